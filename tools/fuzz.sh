#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzzer for FUZZ_SECONDS: tools/fuzz.sh BUILD PYTHON [RUNTIME]. RUNTIME is that of the sanitizer of the build, which Python
# has to load first. Ends in the line "N passed, N failed".
set -eu
build=$1 python=$2 runtime=${3:-}
passed=0 failed=0
export FUZZ_SECONDS="${FUZZ_SECONDS:-180}" FUZZ_SAMPLES="$PWD/$build/gen/samples.inc"
case $build in /*) FUZZ_SAMPLES="$build/gen/samples.inc" ;; esac
# run COMMAND...: one fuzzer, which says how many cases it ran, and what it found.
run() {
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
for program in "$build"/tests/fuzz/*; do
  if [ -f "$program" ] && [ -x "$program" ]; then run "$program"; fi
done
if [ -n "$runtime" ]; then
  tools/module.sh "$build"
  # Python itself keeps memory to the end of the process: leaks are looked for by the C programs.
  run env PYTHONPATH="$PWD/$build/module" LD_PRELOAD="$runtime" PYTHONMALLOC=malloc UBSAN_OPTIONS=halt_on_error=1 \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=512 "$python" tests/fuzz/calls.py
else
  run env PYTHONPATH="$PWD/python" "$python" tests/fuzz/calls.py
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
