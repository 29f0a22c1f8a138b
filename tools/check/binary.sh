#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the dynamic section of a library: it needs libc, libm (and libmvec, its vector part) only; it exports px_ names only.
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
# Static thread-local storage would prevent Python from loading the library.
if readelf -d "$library" | grep -q STATIC_TLS; then
  echo "$library has static thread-local memory: a variable with tls_model(\"initial-exec\")?"
  status=1
fi
# The loader reserves 512 bytes of static thread-local storage for libraries loaded later. Variables within it are accessed in 3 instructions, others in 17, at each access.
bytes=$(($(readelf -lW "$library" | awk '$1 == "TLS" { bytes = $6 } END { print bytes ? bytes : 0 }')))
if [ "$bytes" -gt 480 ]; then
  echo "$library has $bytes bytes of thread-local memory: more than 480, see src/base/error.c"
  status=1
fi
# Libraries loaded later get none of it: before glibc 2.40, a descriptor's first call in a thread then clobbers the caller's vector registers.
case $library in
  */libphlox.so) ;;
  *) if readelf -rW "$library" | grep -q TLSDESC; then
       echo "$library accesses thread-local storage by descriptors: build it without -mtls-dialect=gnu2"
       status=1
     fi ;;
esac
exit $status
