#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The folders of a layer form an order: a folder uses symbols of the same folder and of lower folders only. tools/check/order.txt has the orders.
# Reads object files: tools/check/order.sh BUILD. Prints each symbol that points upward.
set -eu
cd "$(dirname "$0")/../.."
build=$1 status=0
while IFS=: read -r layer folders; do
  case $layer in '' | '#'*) continue ;; esac
  objects=
  for folder in $folders; do
    for source in "$layer/$folder"/*.c; do
      case $layer in
        backends/cpu) object=$build/base/${source#backends/cpu/} ;;
        *) object=$build/$source ;;
      esac
      object=${object%.c}.o
      [ ! -f "$object" ] || objects="$objects $object"
    done
  done
  [ -n "$objects" ] || continue
  # shellcheck disable=SC2086
  nm -A -P -g $objects | awk -v folders="$folders" -v layer="$layer" '
    BEGIN { n = split(folders, order, " "); for (i = 1; i <= n; i++) rank[order[i]] = i }
    {
      file = $1; sub(/:$/, "", file)
      parts = split(file, part, "/")
      if ($3 == "U") needs[++count] = file SUBSEP $2 SUBSEP part[parts - 1] "/" part[parts] SUBSEP rank[part[parts - 1]]
      else { where[$2] = part[parts - 1] "/" part[parts]; level[$2] = rank[part[parts - 1]] }
    }
    END {
      for (i = 1; i <= count; i++) {
        split(needs[i], need, SUBSEP)
        if (level[need[2]] > need[4]) { print layer ": " need[3] " uses " need[2] " of " where[need[2]] ", a higher folder"; bad = 1 }
      }
      exit bad
    }' || status=1
done <tools/check/order.txt
exit $status
