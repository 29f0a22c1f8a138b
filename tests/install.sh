#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests installed Phlox from outside the tree: C and C++ programs build with pkg-config and run. Headers compile without warnings. CMake finds
# compatible versions only. The wheel is sufficient for `import phlox`; the sdist is complete; an editable module is the tree's.
set -eu
cd "$(dirname "$0")/.."
tree=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
fail() { echo "$*"; exit 1; }
PYTHON=${PYTHON:-python3}
release=$(sed -n 's/^#define PX_VERSION "\(.*\)"/\1/p' include/phlox/version.h)
minor=$(echo "$release" | cut -d. -f2)
said=$(make -s install PREFIX="$place/usr")
# A folder outside the loader's paths: the printed lines are sufficient.
eval "$(echo "$said" | sed -n 's/^to .*: export /export /p')"
cp examples/hello.c "$place/hello.c"
cd "$place"
gcc -std=c11 -Wall -Werror hello.c $(pkg-config --cflags --libs phlox) -o hello
said=$(PHLOX_SIM_DEVICES=1 ./hello)
echo "$said" | grep -q "device='cuda:0'" || fail "hello said: $said"
# Linked statically, a program finds the backends of PHLOX_BACKEND_PATH and those in its folder.
gcc -std=c11 -Wall -Werror hello.c $(pkg-config --cflags --libs-only-L phlox) -l:libphlox.a -lm -o hello_static
! readelf -d hello_static | grep -q libphlox || fail "hello_static needs libphlox.so"
said=$(PHLOX_SIM_DEVICES=1 ./hello_static 2>&1)
echo "$said" | grep -q "libphlox_sim.so cannot be loaded" || [ -e /usr/local/lib/phlox ] || fail "hello_static without backends said: $said"
said=$(PHLOX_BACKEND_PATH="$place/usr/lib/phlox" PHLOX_SIM_DEVICES=1 ./hello_static)
echo "$said" | grep -q "device='cuda:0'" || fail "hello_static said: $said"
ln -s usr/lib/phlox phlox
said=$(PHLOX_SIM_DEVICES=1 ./hello_static)
echo "$said" | grep -q "device='cuda:0'" || fail "hello_static in the folder of phlox/ said: $said"
# Exported names are in a header and have the version of the soname.
nm -D --with-symbol-versions --defined-only usr/lib/libphlox.so | awk '$2 != "A" {print $3}' | sort >exported
! grep -v '^px_[^_].*@@PHLOX_0$' exported || fail "exported without the version PHLOX_0"
cat usr/include/phlox/*.h usr/include/phlox/ops/*.h | grep -oE '\bpx_[a-z0-9_]+\(' | sed 's/($/@@PHLOX_0/' | sort -u >declared
[ -z "$(comm -23 exported declared)" ] || fail "exported, but in no header: $(comm -23 exported declared)"
# Each header compiles by itself, in C and in C++.
flags="-Wall -Wextra -Wconversion -Wshadow -pedantic -Werror $(pkg-config --cflags phlox)"
for header in "$place"/usr/include/phlox/*.h "$place"/usr/include/phlox/ops/*.h; do
  printf '#include <%s>\ntypedef int something;\n' "${header#"$place"/usr/include/}" >alone.c # some headers define macros only
  for language in 'gcc -x c -std=c99' 'gcc -x c -std=c11' 'g++ -x c++ -std=c++11' 'g++ -x c++ -std=c++17' 'clang++ -x c++ -std=c++17'; do
    command -v "${language%% *}" >/dev/null || continue
    $language $flags -fsyntax-only alone.c
  done
done
# Constructors without options need no argument for `...`, and an extra positional argument is a warning.
cat >layers.c <<'END'
#include <phlox/phlox.h>
px_status make(px_module **linear, px_module **relu, px_module **conv, px_optimizer **sgd, px_tensor **parameters);
px_status make(px_module **linear, px_module **relu, px_module **conv, px_optimizer **sgd, px_tensor **parameters) {
  PX_TRY(px_linear_new(linear, 3, 4));
  PX_TRY(px_relu_new(relu));
  PX_TRY(px_conv2d_new(conv, 1, 32, PX_SIZES(3, 5), .stride = {1, 2}));
  return px_sgd_new(sgd, parameters, 1);
}
END
gcc -std=c11 $flags -fsyntax-only layers.c
for extra in 's/linear, 3, 4/&, true/' 's/(relu/&, true/' 's/parameters, 1/&, 0.1/'; do
  ! sed "$extra" layers.c | gcc -x c -std=c11 $flags -fsyntax-only - 2>/dev/null || fail "an extra argument ($extra) is no warning"
done
cat >hello.cc <<'END'
#include <phlox/phlox.h>
static px_status run() {
  PX_SCOPED(px_tensor) made = nullptr;
  PX_SCOPED(px_tensor) sum = nullptr;
  px_scalar number;
  px_value args[16] = {PX_IS(nullptr, 0), PX_S(px_int(3)), PX_DT(PX_FLOAT64), PX_DV(PX_DEVICE_NONE)};
  void *result = nullptr;
  px_linear_args linear = {PX_LINEAR_ARGS};
  px_conv2d_args conv = {PX_CONV2D_ARGS};
  px_sgd_args sgd = {PX_SGD_ARGS};
  PX_CHECK(linear.bias && conv.stride[0] == 1 && sgd.lr == 0.001, PX_BUG, "other defaults");
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
  ./hello_cc
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
  for version in 10.0 1 0.10 "0.$((minor - 1)).99"; do
    lists "$version"
    ! cmake -S . -B "build-$version" -DCMAKE_PREFIX_PATH="$place/usr" >/dev/null 2>&1 || { echo "version $version was found"; exit 1; }
  done
  for version in '' 0 "0.$minor" "0.$minor.0"; do
    lists "$version"
    cmake -S . -B "build-$version" -DCMAKE_PREFIX_PATH="$place/usr" >/dev/null
  done
  cmake --build "build-$version" >/dev/null
  PHLOX_SIM_DEVICES=1 "build-$version/hello" >/dev/null
fi
# The wheel has files of its own names only, and is sufficient.
cd "$tree"
"$PYTHON" -m hatchling build -t wheel -d "$place" >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
"$PYTHON" tools/release/check.py "$place"/phlox-*.whl
"$PYTHON" -m zipfile -e "$place"/phlox-*.whl "$place/site"
said=$(cd "$place" && PYTHONPATH=site PHLOX_SIM_DEVICES=1 "$PYTHON" -m phlox -c "import torch; print(torch.__file__, torch.ones(2, device='cuda').sum())")
echo "$said" | grep -q "site/phlox/.* tensor(2., device='cuda:0')" || fail "the wheel said: $said"
# Without a compiler the build says so in one line.
said=$(CC=/nowhere/cc "$PYTHON" -m hatchling build -t wheel -d "$place/none" 2>&1 | sed 1d)
case $said in
  *Traceback*) fail "without a compiler: $said" ;;
  "phlox: missing a C compiler (/nowhere/cc)"*"script/bootstrap"*) ;;
  *) fail "without a compiler: $said" ;;
esac
# The sdist has the sources of all that make builds. (script/release builds it.)
"$PYTHON" -m hatchling build -t sdist -d "$place" >/dev/null 2>&1
tar -x -C "$place" -f "$place"/phlox-*.tar.gz
make -s -n -C "$place"/phlox-[0-9]*/ all tests CUDA=0 PYTHON="$PYTHON" >/dev/null
# An editable installation uses the tree. (Debian's Python has hatchling: no build environment is made.)
"$PYTHON" -m venv --system-site-packages "$place/venv"
"$place/venv/bin/python" -m pip install -q --no-build-isolation --no-deps -e "$tree"
said=$(cd "$place" && venv/bin/python -c "import phlox; print(phlox.__file__)")
[ "$said" = "$tree/python/phlox/__init__.py" ] || fail "the editable module is $said"
head -1 debian/changelog | grep -qF "phlox ($release)" || fail "debian/changelog is not of version $release"
# phlox-run: the command pip installs for the wheel's entry point.
cat >"$place/command.py" <<'END'
import sys
from importlib.metadata import entry_points
command, = (e for e in entry_points(group="console_scripts") if e.value.startswith("phlox."))
sys.argv = [command.name, *sys.argv[1:]]
sys.exit(command.load()())
END
said=$(cd "$place" && PYTHONPATH=site "$PYTHON" command.py --nproc-per-node=2 --no-python sh -c 'echo rank $RANK of $WORLD_SIZE')
echo "$said" | grep -q "rank 1 of 2" || fail "phlox-run said: $said"
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
