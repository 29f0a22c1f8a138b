#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the names of the acceptance programs supported by the Python module in a folder: tools/acceptance.sh FOLDER. Distributed programs
# require a collective backend.
set -eu
for name in $(cat tests/acceptance.txt); do
  if [ "$name" = distributed ] && [ ! -f "$1/libphlox_gloo.so" ]; then
    echo "acceptance/$name: skipped: the gloo engine is not built" >&2
    continue
  fi
  echo "$name"
done
