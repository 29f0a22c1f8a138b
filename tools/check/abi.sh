#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A change of the public headers shows in this hash; tools/check/abi.txt holds the one of the version. `tools/check/abi.sh --update` writes it, in the
# commit that changes a header on purpose. Generated headers follow ops/*.op, which may only grow.
set -eu
now=$(for header in include/phlox/*.h; do
  sed -e 's://.*::' "$header" | tr -s ' \t\n' ' '
done | sha256sum | cut -d' ' -f1)
if [ "${1:-}" = --update ]; then
  echo "$now" >tools/check/abi.txt
elif [ "$now" != "$(cat tools/check/abi.txt 2>/dev/null)" ]; then
  echo "the public headers changed: if that is meant, run tools/check/abi.sh --update and say so in CHANGELOG.md"
  exit 1
fi
