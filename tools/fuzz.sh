#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzzer for FUZZ_SECONDS: tools/fuzz.sh BUILD PYTHON [RUNTIME]. RUNTIME is the runtime of the build's sanitizer, to be preloaded
# into Python. The last line is "N passed, N failed".
set -eu
build=$1 python=$2 runtime=${3:-}
passed=0 failed=0
export FUZZ_SECONDS="${FUZZ_SECONDS:-180}" FUZZ_SAMPLES="$PWD/$build/gen/samples.inc"
case $build in /*) FUZZ_SAMPLES="$build/gen/samples.inc" ;; esac
# run COMMAND...: runs one fuzzer, which prints its number of cases and its findings.
run() {
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
for program in "$build"/tests/fuzz/*; do
  if [ -f "$program" ] && [ -x "$program" ]; then run "$program"; fi
done
if [ -n "$runtime" ]; then
  tools/module.sh "$build"
  # Python does not free all memory at exit: leak checking is left to the C programs.
  run env PYTHONPATH="$PWD/$build/module" LD_PRELOAD="$runtime" PYTHONMALLOC=malloc UBSAN_OPTIONS=halt_on_error=1 \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=512 "$python" tests/fuzz/calls.py
else
  run env PYTHONPATH="$PWD/python" "$python" tests/fuzz/calls.py
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
