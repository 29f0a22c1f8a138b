#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program outside the tree, built with pkg-config against an installed Phlox, runs; CMake finds the package; the wheel holds all that
# `import phlox` needs.
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
if command -v cmake >/dev/null; then
  printf 'cmake_minimum_required(VERSION 3.13)\nproject(hello C)\nset(CMAKE_C_STANDARD 11)\nfind_package(phlox REQUIRED)\nadd_executable(hello hello.c)\ntarget_link_libraries(hello phlox::phlox)\n' >CMakeLists.txt
  cmake -S . -B build -DCMAKE_PREFIX_PATH="$place/usr" >/dev/null
  cmake --build build >/dev/null
  PHLOX_SIM_DEVICES=1 build/hello >/dev/null
fi
# What pip would install, unpacked by hand: a venv need not be there.
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
echo "1 passed, 0 failed"
