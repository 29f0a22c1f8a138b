#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Static analysis: clang-tidy and cppcheck over src, backends and python/ext. `make lint` calls it with the build folder and the folders of the headers
# of Python and CUDA. clang-tidy skips files that passed, unless the file, a header or .clang-tidy has changed. Fails if a tool finds something.
set -u
cd "$(dirname "$0")/.."
build=$1 status=0
shift
includes="-Iinclude -Isrc -Ibackends -Ipython/ext -I$build/gen" system=$(printf -- '-isystem %s ' "$@")
mkdir -p "$build/lint/cppcheck"
tidy() { # tidy FILE: passed files leave a stamp
  local stamp=$build/lint/$1.ok
  [ ! -f "$stamp" ] || [ -n "$(find "$1" .clang-tidy $(git ls-files '*.h') -newer "$stamp" -print -quit)" ] || return 0
  mkdir -p "$(dirname "$stamp")"
  clang-tidy --quiet "$1" -- $includes $system -std=c11 -D_GNU_SOURCE >"$stamp.log" 2>&1 || { cat "$stamp.log"; return 1; }
  mv "$stamp.log" "$stamp"
}
export -f tidy
export build includes system
if command -v clang-tidy >/dev/null; then
  git ls-files 'src/*.c' 'backends/cpu/*.c' 'backends/sim/*.c' 'backends/nccl/*.c' 'backends/cuda/host/*.c' 'python/ext/*.c' |
    xargs -P"$(nproc)" -I{} bash -c 'tidy {}' || status=1
else
  echo 'clang-tidy is missing: not run'
fi
# cppcheck knows neither __builtin_expect and __typeof__ nor that gcc and clang define shifts of negative numbers. Kernels read bytes as a dtype.
if command -v cppcheck >/dev/null; then
  cppcheck -j"$(nproc)" --quiet --error-exitcode=1 --enable=warning,portability,performance --inline-suppr --library=posix --library=gnu --library=python \
    '-D__builtin_expect(x,y)=(x)' '-D__typeof__(x)=x' --suppress=shiftTooManyBitsSigned --suppress=invalidPointerCast \
    --cppcheck-build-dir="$build/lint/cppcheck" $includes src backends python/ext || status=1
else
  echo 'cppcheck is missing: not run'
fi
exit $status
