#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Circles inside a folder: files of which each needs, directly or through others, a symbol that another of them defines. They are read from
# object files: an include of which nothing is used makes none, and a declaration in another file's header hides none.
#   tools/check/circles.sh [BUILD [FOLDER...]]   prints the circles, and the symbols that make each arrow of them
#   tools/check/circles.sh --check BUILD         prints those that are not within a circle of tools/check/circles.txt, and fails if there are any
set -eu
cd "$(dirname "$0")/../.."
known=/dev/null
if [ "${1:-}" = --check ]; then known=tools/check/circles.txt; shift; fi
build=${1:-build}
[ $# = 0 ] || shift
folders=${*:-$(git ls-files 'src/*.c' 'backends/*.c' 'python/ext/*.c' | sed 's|/[^/]*$||' | sort -u)}

objects() { # objects FOLDER: where the Makefile puts what is made of the folder's sources, as far as it was made
  for source in "$1"/*.c; do
    case $source in
      backends/cpu/linalg/* | backends/cpu/threads/*) object=$build/once/${source#backends/cpu/} object=${object%.c}.o ;;
      backends/cpu/*) object=$build/base/${source#backends/cpu/} object=${object%.c}.o ;;
      *) object=$build/${source%.c}.o ;;
    esac
    [ ! -f "$object" ] || echo "$object"
  done
}

status=0
for folder in $folders; do
  made=$(objects "$folder")
  [ -n "$made" ] || continue
  # shellcheck disable=SC2086
  nm -A -P -g $made | awk -v folder="$folder" -v known="$known" -f tools/check/circles.awk - "$known" || status=1
done
[ "$known" = /dev/null ] || exit $status
