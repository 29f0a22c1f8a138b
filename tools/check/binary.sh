#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the built library shows: it needs libc, libm (with libmvec, its part for vectors), and nothing else; it exports px_ names only, each declared in a public header.
set -u
library=${1:?usage: tools/check/binary.sh LIBRARY}
status=0
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
  case $name in
    libc.so.6 | libm.so.6 | libmvec.so.1 | libpthread.so.0 | libdl.so.2 | ld-linux-x86-64.so.2 | ld-linux-aarch64.so.1) ;;
    *) echo "$library needs $name"; status=1 ;;
  esac
done
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
# The loader keeps 512 bytes of static thread-local memory for libraries that are loaded later. What fits is reached in 3 instructions, else in 17: at each place that asks.
bytes=$(($(readelf -lW "$library" | awk '$1 == "TLS" { bytes = $6 } END { print bytes ? bytes : 0 }')))
if [ "$bytes" -gt 480 ]; then
  echo "$library has $bytes bytes of thread-local memory: more than 480, see src/base/error.c"
  status=1
fi
# What is loaded behind it has none of that room: a descriptor's first call in a thread then loses the vector registers of its caller, before glibc 2.40.
case $library in
  */libphlox.so) ;;
  *) if readelf -rW "$library" | grep -q TLSDESC; then
       echo "$library reaches thread-local memory by descriptors: it is to be built without -mtls-dialect=gnu2"
       status=1
     fi ;;
esac
exit $status
