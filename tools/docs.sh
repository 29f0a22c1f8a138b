#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Generates parts of the documentation: HACKING's table of environment variables, from include/phlox/tables/env.def, between its marker comments.
# --check writes nothing and fails if the table is out of date.
set -eu
cd "$(dirname "$0")/.."
page=HACKING.md
made=$(mktemp)
trap 'rm -f "$made"' EXIT

awk '
  function quoted(text) { return text == "" ? "" : "`" text "`" }
  function row(line,  part, head, allowed) {
    sub(/^PX_ENV\(/, "", line)
    sub(/"\)$/, "", line)
    if (split(line, part, /, "|", "/) != 4 || split(part[1], head, /, /) != 2) {
      print "include/phlox/tables/env.def: cannot read: " line >"/dev/stderr"
      exit 1
    }
    sub(/"$/, "", part[2])
    allowed = part[3]
    gsub(/\|/, ", ", allowed)
    sub(/\.\./, " to ", allowed)
    print "| `" head[1] "` | " head[2] " | " allowed " | " quoted(part[2]) " | " part[4] " |"
  }
  FILENAME ~ /\.def$/ { if (/^PX_ENV/) rows[++count] = $0; next }
  /^<!-- env: begin/ {
    print "<!-- env: begin (written by tools/docs.sh from include/phlox/tables/env.def) -->"
    print "| variable | type | allowed | default | what it does |"
    print "|---|---|---|---|---|"
    for (i = 1; i <= count; i++) row(rows[i])
    inside = found = 1
  }
  /^<!-- env: end/ { inside = 0 }
  !inside { print }
  END { if (!found) { print "HACKING.md has no marker <!-- env: begin -->" >"/dev/stderr"; exit 1 } }
' include/phlox/tables/env.def include/phlox/tables/env_cluster.def "$page" >"$made"

cmp -s "$made" "$page" && exit 0
if [ "${1:-}" = --check ]; then
  echo "$page: the table of environment variables is out of date: run make docs"
  exit 1
fi
cat "$made" >"$page"
