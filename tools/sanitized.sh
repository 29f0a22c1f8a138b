#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the acceptance programs with a sanitizer build of the library and the module: tools/sanitized.sh BUILD RUNTIME PYTHON.
set -eu
build=$1 runtime=$2 python=$3
if [ ! -d ../shared/acceptance ]; then
  echo "the acceptance programs are not present next to this checkout: skipped"
  exit 0
fi
tools/module.sh "$build"
module="$build/module"
# By default the thread sanitizer aborts when a forked child of a threaded program starts threads, as DataLoader workers do.
export TSAN_OPTIONS="die_after_fork=0 ${TSAN_OPTIONS:-}"
# It aborts ("dup thread") if a child's thread reuses the id of a thread of the parent, such as kernel threads; C tests cover those.
case $runtime in *tsan*) export PHLOX_THREADS=1 ;; esac
passed=0 failed=0
for name in $(tools/acceptance.sh "$module/phlox"); do
  # Python does not free all memory at exit: leak checking is left to the C tests.
  if PYTHONPATH="$module" PHLOX_SIM_DEVICES=4 LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
    "$python" -m phlox "../shared/acceptance/$name.py" >"$build/$name.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -40 "$build/$name.log"
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
