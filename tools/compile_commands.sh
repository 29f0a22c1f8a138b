#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Converts the output of `make -n V=1` to compile_commands.json, with an entry per compiled file. $1: the folder.
set -eu
awk -v folder="$1" '
  function quoted(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
  / -c -o / {
    sub(/^mkdir -p [^;]*; */, "")
    file = $NF
    printf "%s\n  {\"directory\": %s, \"file\": %s, \"command\": %s}", count++ ? "," : "[", quoted(folder), quoted(file), quoted($0)
  }
  END { print count ? "\n]" : "[]" }'
