#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs tests/fuzz/calls.py with a build: tools/fuzz_calls.sh BUILD PYTHON [RUNTIME]. RUNTIME is the runtime of the build's sanitizer, to be preloaded
# into Python. The last line is "N passed, N failed".
set -eu
build=$1 python=$2 runtime=${3:-}
export FUZZ_SAMPLES="${FUZZ_SAMPLES:-$PWD/$build/gen/samples.inc}"
[ -n "$runtime" ] || exec env PYTHONPATH="$PWD/python" "$python" tests/fuzz/calls.py
tools/module.sh "$build"
# Python does not free all memory at exit: leak checking is left to the C programs.
exec env PYTHONPATH="$PWD/$build/module" LD_PRELOAD="$runtime" PYTHONMALLOC=malloc UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=512:detect_stack_use_after_return=1 "$python" tests/fuzz/calls.py
