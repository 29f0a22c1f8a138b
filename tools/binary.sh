#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the built library shows: it needs libc, libm, and nothing else; it exports px_ names only, each declared in a public header.
set -u
library=${1:?usage: tools/binary.sh LIBRARY}
status=0
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
  case $name in
    libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | ld-linux-x86-64.so.2) ;;
    *) echo "$library needs $name"; status=1 ;;
  esac
done
exported=$(nm -D --defined-only "$library" | awk '$2 ~ /[TDBRV]/ { print $3 }')
for name in $exported; do
  case $name in
    px__* | [!p]* | p[!x]*) echo "$library exports $name"; status=1 ;;
  esac
done
exit $status
