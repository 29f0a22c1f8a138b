#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Finds unused public functions: declared in include/phlox/*.h, but used neither by the Python extension, an example, a test of behaviour, nor
# a macro of the headers (such as PX_TRY). tools/check/unused.txt lists exceptions with reasons. An entry that is used, or no longer a function, is an
# error, too.
set -u
cd "$(dirname "$0")/../.."
names() { grep -ohE '\bpx_[a-z0-9_]+' "$@" | sort -u; }

declared=$(cat include/phlox/*.h | sed -e 's://.*::' -e '/^#/d' | tr '\n' ' ' | grep -oE '\bPX_(CALL|API)\b[^;{}()]*\(' |
  sed -nE 's/.*[ *](px_[a-z0-9_]+)\($/\1/p' | sort -u)
macros=$(sed -nE ':more; /^#define.*\\$/ { N; s/\\\n//; b more; }; /^#define/p' include/phlox/*.h | grep -oE '\bpx_[a-z0-9_]+' | sort -u)
used=$({ names $(git ls-files 'python/ext/*.[ch]' 'examples/*.c' 'tests/*.[ch]'); echo "$macros"; } | sort -u)
unused=$(comm -23 <(echo "$declared") <(echo "$used"))
listed=$(grep -oE '^px_[a-z0-9_]+' tools/check/unused.txt | sort -u)

status=0
for name in $(comm -23 <(echo "$unused") <(echo "$listed")); do
  echo "$name: public, but used by neither the binding, the examples nor a test"
  status=1
done
for name in $(comm -13 <(echo "$unused") <(echo "$listed")); do
  echo "tools/check/unused.txt: $name is used or no longer exists"
  status=1
done
exit $status
