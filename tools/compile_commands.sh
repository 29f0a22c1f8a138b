#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Reads what `make -n V=1` would run and writes compile_commands.json: one entry for each file that is compiled. $1: the folder.
set -eu
awk -v folder="$1" '
  function quoted(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
  / -c -o / {
    file = $NF
    printf "%s\n  {\"directory\": %s, \"file\": %s, \"command\": %s}", count++ ? "," : "[", quoted(folder), quoted(file), quoted($0)
  }
  END { print count ? "\n]" : "[]" }'
