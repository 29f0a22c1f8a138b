#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Detects changes of the public headers by a hash, stored in tools/check/abi.txt. `tools/check/abi.sh --update` rewrites it, in a commit that changes a
# header on purpose. Generated headers are excluded: they follow ops/*.op, which may only grow.
set -eu
now=$(for header in include/phlox/*.h include/phlox/tables/*.h; do
  sed -e 's://.*::' "$header" | tr -s ' \t\n' ' '
done | sha256sum | cut -d' ' -f1)
if [ "${1:-}" = --update ]; then
  echo "$now" >tools/check/abi.txt
elif [ "$now" != "$(cat tools/check/abi.txt 2>/dev/null)" ]; then
  echo "the public headers changed: if intended, run tools/check/abi.sh --update and add an entry to CHANGELOG.md"
  exit 1
fi
