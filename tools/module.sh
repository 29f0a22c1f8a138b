#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Assembles the Python module of a sanitizer build in BUILD/module, separate from the regular one in the source tree:
# tools/module.sh BUILD.
set -eu
build=$1
module="$build/module"
rm -rf "$module"
mkdir -p "$module/phlox"
cp -r python/phlox "$module/"
rm -f "$module"/phlox/*.so*
for name in _kinds _formulas _schedules; do cp "$build/gen/$name.py" "$module/phlox/optim/"; done
cp "$build"/_C.*so "$build/libphlox_sim.so" "$module/phlox/"
cp "$build/libphlox.so" "$module/phlox/libphlox.so.0"
[ ! -f "$build/libphlox_gloo.so" ] || cp "$build/libphlox_gloo.so" "$module/phlox/"
