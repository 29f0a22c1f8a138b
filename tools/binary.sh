#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the built library shows: it needs libc, libm (with libmvec, its part for vectors), and nothing else; it exports px_ names only, each declared in a public header.
set -u
library=${1:?usage: tools/binary.sh LIBRARY}
status=0
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
  case $name in
    libc.so.6 | libm.so.6 | libmvec.so.1 | libpthread.so.0 | libdl.so.2 | ld-linux-x86-64.so.2) ;;
    *) echo "$library needs $name"; status=1 ;;
  esac
done
# A library with initial-exec thread-local storage cannot be loaded by a running Python: there is little room in the static block.
readelf -d "$library" | grep -q STATIC_TLS && { echo "$library needs static thread-local storage"; status=1; }
exported=$(nm -D --defined-only "$library" | awk '$2 ~ /[TDBRV]/ { print $3 }')
for name in $exported; do
  case $name in
    px__* | [!p]* | p[!x]*) echo "$library exports $name"; status=1 ;;
  esac
done
# Thread-local memory of the static kind would keep Python from loading the library.
if readelf -d "$library" | grep -q STATIC_TLS; then
  echo "$library has static thread-local memory: a variable with tls_model(\"initial-exec\")?"
  status=1
fi
exit $status
