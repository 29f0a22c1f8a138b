#!/bin/sh
# size.sh BUILD: prints the installed size of a wheel in bytes, by part, then that of `make install-strip`. Called by `make size`, which has
# stripped the module's libraries to BUILD/stripped.
cd "$(dirname "$0")/.." || exit 1
bytes() { cat "$@" 2>/dev/null | wc -c; }
files() { find python/phlox -name "$1" -exec cat {} + | wc -c; }
row() { printf '%12d  %s\n' "$1" "$2"; }
total=0
part() { row "$1" "$2" && total=$((total + $1)); }

library=$(bytes "$1/stripped/libphlox.so.0")
part "$library" 'libphlox.so.0: the library, with the CPU kernels and the tables'
part "$(bytes "$1"/stripped/_C.*.so)" '_C.so: the Python extension'
engines=0
for engine in sim gloo nccl mpi; do engines=$((engines + $(bytes "$1/stripped/libphlox_$engine.so"))); done
part "$engines" 'libphlox_{sim,gloo,nccl,mpi}.so: simulated devices, collective backends'
part "$(files '*.py')" '*.py'
part "$(files '*.pyi')" '*.pyi: types and docstrings for editors'
row "$total" 'together: a wheel without the cuda backend, in place'
cuda=$(bytes "$1/stripped/libphlox_cuda.so")
[ "$cuda" = 0 ] || row $((total + cuda)) "with libphlox_cuda.so ($cuda)"
headers=$(cat include/phlox/*.h include/phlox/tables/* "$1"/gen/phlox/*.h "$1"/gen/phlox/ops/*.h | wc -c)
row $((library + engines + headers)) "make install-strip, for programs in C: the libraries, and headers ($headers)"

echo 'of the library:'
size -A -d "$1/stripped/libphlox.so.0" | awk '
  $1 == ".text" {code = $2}
  $1 == ".rodata" {texts = $2}
  $1 == ".data.rel.ro" {tables = $2}
  END {printf "%12d  code\n%12d  texts and numbers\n%12d  tables\n", code, texts, tables}'
for variant in base v3; do
  [ ! -f "$1/cpu_$variant.o" ] || row "$(size "$1/cpu_$variant.o" | awk 'NR == 2 {print $1 + $2}')" "of it kernels, variant $variant"
done
