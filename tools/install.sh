#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the library: install.sh SHARED STATIC BACKEND..., called by `make install` with O, PREFIX, LIBDIR, VERSION, DESTDIR, and STRIP (a strip
# program, or empty) in the environment. Then programs find the library, or the lines to type are printed.
set -eu
cd "$(dirname "$0")/.."
libraries=${DESTDIR:-}$LIBDIR headers=$(realpath -m "${DESTDIR:-}$PREFIX/include/phlox") library=$1 archive=$2
shift 2
strip=${STRIP:+-s --strip-program=$STRIP}
install -d "$libraries/phlox" "$libraries/pkgconfig" "$libraries/cmake/phlox" "$headers/ops"
# shellcheck disable=SC2086
install $strip -m 755 "$library" "$libraries/libphlox.so.$VERSION"
ln -sf "libphlox.so.$VERSION" "$libraries/libphlox.so.0"
ln -sf libphlox.so.0 "$libraries/libphlox.so"
# shellcheck disable=SC2086
install $strip -m 755 "$@" "$libraries/phlox/"
install -m 644 "$archive" "$libraries/libphlox.a"
[ -z "${STRIP:-}" ] || "$STRIP" -g "$libraries/libphlox.a"
(cd include/phlox && find . -type f -exec install -D -m 644 {} "$headers/{}" \;)
install -m 644 "$O"/gen/phlox/*.h "$headers/"
install -m 644 "$O"/gen/phlox/ops/*.h "$headers/ops/"
include=$(realpath -m --relative-to="$LIBDIR" "$PREFIX/include")
fill() { sed "s|@PREFIX@|$PREFIX|; s|@LIBDIR@|$LIBDIR|; s|@VERSION@|$VERSION|; s|@INCLUDE@|$include|" "$1"; }
fill phlox.pc.in >"$libraries/pkgconfig/phlox.pc"
fill phlox-config.cmake.in >"$libraries/cmake/phlox/phlox-config.cmake"
fill phlox-config-version.cmake.in >"$libraries/cmake/phlox/phlox-config-version.cmake"

[ -z "${DESTDIR:-}" ] || exit 0
PATH=$PATH:/sbin:/usr/sbin
[ "$(id -u)" != 0 ] || ldconfig
ldconfig -p | grep -qF "=> $LIBDIR/libphlox.so.0" || echo "to run programs: export LD_LIBRARY_PATH=$LIBDIR"
if [ "$(pkg-config --variable=libdir phlox 2>/dev/null)" != "$LIBDIR" ]; then
  echo "to compile programs: export PKG_CONFIG_PATH=$LIBDIR/pkgconfig"
fi
