#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzzer for FUZZ_SECONDS: tools/fuzz.sh BUILD PYTHON [RUNTIME], as tools/fuzz_calls.sh. The last line is "N passed, N failed".
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
run tools/fuzz_calls.sh "$build" "$python" "$runtime"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
