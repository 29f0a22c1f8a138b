#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Finds cyclic dependencies within a folder: files that need, directly or indirectly, symbols defined by each other. Read from object files:
# unused includes do not count, and declarations in unrelated headers are seen through. Prints the cycles with the symbols of each edge.
#   tools/check/circles.sh [BUILD [FOLDER...]]
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
[ $# = 0 ] || shift
folders=${*:-$(git ls-files 'src/*.c' 'backends/*.c' 'python/ext/*.c' | sed 's|/[^/]*$||' | sort -u)}

objects() { # objects FOLDER: prints the existing object files of the folder's sources
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
  nm -A -P -g $made | awk -v folder="$folder" -f tools/check/circles.awk || status=1
done
exit $status
