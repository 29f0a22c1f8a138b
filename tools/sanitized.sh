#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the acceptance programs against a sanitizer's build of the library and the module: tools/sanitized.sh BUILD RUNTIME PYTHON.
set -eu
build=$1 runtime=$2 python=$3
if [ ! -d ../shared/acceptance ]; then
  echo "the acceptance programs are not beside this checkout: skipped"
  exit 0
fi
tools/module.sh "$build"
place="$build/module"
# The thread sanitizer gives up by default when the child of a program with threads starts threads, which workers of data loaders do.
export TSAN_OPTIONS="die_after_fork=0 ${TSAN_OPTIONS:-}"
# It stops ("dup thread") where a child's thread has the place of one that only the parent has, as threads of kernels are; tests in C have those.
case $runtime in *tsan*) export PHLOX_THREADS=1 ;; esac
passed=0 failed=0
for name in $(tools/acceptance.sh "$place/phlox"); do
  # Python itself keeps memory to the end of the process: leaks are looked for by the C tests.
  if PYTHONPATH="$place" PHLOX_SIM_DEVICES=4 LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
    "$python" -m phlox "../shared/acceptance/$name.py" >"$build/$name.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -40 "$build/$name.log"
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
