#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All checks of the sources and of the built libraries. Called by `make check` with O, the build folder. Fails if any check fails.
cd "$(dirname "$0")/../.." || exit 1
checks=tools/check
status=0
run() { "$@" || status=1; }
run $checks/layers.sh
run $checks/arguments.sh
run $checks/kernels.sh
run $checks/budget.sh
run $checks/prose.py
run $checks/links.py
run $checks/abi.sh
run $checks/env.sh
run $checks/unused.sh
run $checks/circles.sh "$O"
run $checks/order.sh "$O"
for library in "$O"/libphlox.so "$O"/libphlox_cuda.so; do
  [ ! -f "$library" ] || run $checks/binary.sh "$library"
done
if command -v clang-format >/dev/null; then
  # shellcheck disable=SC2046
  run clang-format --dry-run -Werror $(git ls-files '*.c' '*.h')
else
  echo 'clang-format is missing: format not checked'
fi
exit $status
