#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts the Python module of a sanitizer's build together in a folder of its own, BUILD/module, so that the tree keeps the plain one:
# tools/module.sh BUILD.
set -eu
build=$1
place="$build/module"
rm -rf "$place"
mkdir -p "$place/phlox"
cp -r python/phlox "$place/"
rm -f "$place"/phlox/*.so*
for name in _kinds _formulas _schedules; do cp "$build/gen/$name.py" "$place/phlox/optim/"; done
cp "$build/_C.so" "$build/libphlox_sim.so" "$place/phlox/"
cp "$build/libphlox.so" "$place/phlox/libphlox.so.0"
[ ! -f "$build/libphlox_gloo.so" ] || cp "$build/libphlox_gloo.so" "$place/phlox/"
