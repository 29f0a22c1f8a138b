#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests installed Phlox from outside the tree: C and C++ programs build with pkg-config and run. Headers compile without warnings. CMake finds
# compatible versions only. The wheel is sufficient for `import phlox`.
set -eu
cd "$(dirname "$0")/.."
tree=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
make -s install PREFIX="$place/usr" >/dev/null
cp examples/hello.c "$place/hello.c"
cd "$place"
export PKG_CONFIG_PATH="$place/usr/lib/pkgconfig"
gcc -std=c11 -Wall -Werror hello.c $(pkg-config --cflags --libs phlox) -o hello
said=$(LD_LIBRARY_PATH="$place/usr/lib" PHLOX_SIM_DEVICES=1 ./hello)
echo "$said" | grep -q "device='cuda:0'" || { echo "hello said: $said"; exit 1; }
# Each header compiles by itself, in C and in C++.
flags="-Wall -Wextra -Wconversion -Wshadow -pedantic -Werror $(pkg-config --cflags phlox)"
for header in "$place"/usr/include/phlox/*.h "$place"/usr/include/phlox/ops/*.h; do
  printf '#include <%s>\ntypedef int something;\n' "${header#"$place"/usr/include/}" >alone.c # some headers define macros only
  for language in 'gcc -x c -std=c99' 'gcc -x c -std=c11' 'g++ -x c++ -std=c++11' 'g++ -x c++ -std=c++17' 'clang++ -x c++ -std=c++17'; do
    command -v "${language%% *}" >/dev/null || continue
    $language $flags -fsyntax-only alone.c
  done
done
cat >hello.cc <<'END'
#include <phlox/phlox.h>
static px_status run() {
  PX_SCOPED(px_tensor) made = nullptr;
  PX_SCOPED(px_tensor) sum = nullptr;
  px_scalar number;
  px_value args[16] = {PX_IS(nullptr, 0), PX_S(px_int(3)), PX_DT(PX_FLOAT64), PX_DV(PX_DEVICE_NONE)};
  void *result = nullptr;
  PX_TRY(px_op_call(px_op_find("full"), PX_CALL_NEW, args, &result));
  made = static_cast<px_tensor *>(result);
  PX_TRY(px_add(&sum, made, made, px_float(0.5)));
  PX_TRY(px_tensor_item(&number, sum));
  PX_CHECK(px_scalar_float(number) == 4.5, PX_BUG, "3 and half of 3 are %g", px_scalar_float(number));
  return PX_OK;
}
int main() { return run(); }
END
for compiler in g++ clang++; do
  command -v $compiler >/dev/null || continue
  $compiler -std=c++17 $flags hello.cc $(pkg-config --libs phlox) -o hello_cc
  LD_LIBRARY_PATH="$place/usr/lib" ./hello_cc
done
if command -v cmake >/dev/null; then
  lists() { # lists VERSION: a CMake project requiring it
    cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.13)
project(hello C)
set(CMAKE_C_STANDARD 11)
find_package(phlox $1 REQUIRED)
add_executable(hello hello.c)
target_link_libraries(hello phlox::phlox)
END
  }
  for version in 10.0 1 0.10 0.11.99; do
    lists "$version"
    ! cmake -S . -B "build-$version" -DCMAKE_PREFIX_PATH="$place/usr" >/dev/null 2>&1 || { echo "version $version was found"; exit 1; }
  done
  for version in '' 0 0.12 0.12.0; do
    lists "$version"
    cmake -S . -B "build-$version" -DCMAKE_PREFIX_PATH="$place/usr" >/dev/null
  done
  cmake --build "build-$version" >/dev/null
  PHLOX_SIM_DEVICES=1 "build-$version/hello" >/dev/null
fi
# Unpacks the wheel by hand: venv may be missing.
"${PYTHON:-python3}" - "$tree" "$place" <<'END'
import glob, os, sys, zipfile
tree, place = sys.argv[1:]
os.chdir(tree)
sys.path.insert(0, "tools")
import wheel
zipfile.ZipFile(os.path.join(place, wheel.build_wheel(place))).extractall(place + "/site")
END
said=$(cd "$place" && PYTHONPATH=site PHLOX_SIM_DEVICES=1 "${PYTHON:-python3}" -m phlox -c "import torch; print(torch.__file__, torch.ones(2, device='cuda').sum())")
echo "$said" | grep -q "site/phlox/.* tensor(2., device='cuda:0')" || { echo "the wheel said: $said"; exit 1; }
# phlox-run: the command pip installs for the wheel's entry point.
cat >"$place/command.py" <<'END'
import sys
from importlib.metadata import entry_points
command, = (e for e in entry_points(group="console_scripts") if e.value.startswith("phlox."))
sys.argv = [command.name, *sys.argv[1:]]
sys.exit(command.load()())
END
said=$(cd "$place" && PYTHONPATH=site "${PYTHON:-python3}" command.py --nproc-per-node=2 --no-python sh -c 'echo rank $RANK of $WORLD_SIZE')
echo "$said" | grep -q "rank 1 of 2" || { echo "phlox-run said: $said"; exit 1; }
# In a built tree, another Python builds its own extension.
cd "$tree"
stamp=${O:-build}/python/ext/abi
cp -p "$stamp" "$place/abi"
printf '#!/bin/sh\necho "%s cpython-of-another-kind"\n' "$(cut -d' ' -f1 "$stamp")" >"$place/python"
chmod +x "$place/python"
planned=$(make -n PYTHON="$place/python" "${O:-build}/_C.cpython-of-another-kind.so")
cp -p "$place/abi" "$stamp"
case $planned in
  *python/ext/bind/tensor.c*) ;;
  *) echo "another Python would get this one's extension"; exit 1 ;;
esac
echo "1 passed, 0 failed"
