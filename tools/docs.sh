#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the reference page of the environment variables, from include/phlox/tables/env.def and env_cluster.def. `make docs` writes it to build/docs/environment.md.
set -eu
cd "$(dirname "$0")/.."
cat <<'EOF'
# Environment variables

A variable is read when it is first needed, so a program may set it after its start. Variables of devices are read when type `cuda` is initialised, those of
the simulator when its first device is opened. Types:

| type | values |
|---|---|
| flag | `1`, `true`, `yes`, `on`, `0`, `false`, `no` or `off`, in any case |
| int | an integer in the given range |
| bytes | an integer in the given range, with suffix K, M or G |
| choice | one of the given words |
| folder | an existing folder |
| text | any text |

An empty value of a variable with a default counts as unset. An invalid value is an error of the first call that needs it: it fails with `PX_VALUE` and names the allowed
values. Functions that cannot fail (`px_device_count`, `px_num_threads`) use the default until then. An unknown name that begins with `PHLOX_` causes one
warning, with the nearest known name.

| variable | type | allowed | default | meaning |
|---|---|---|---|---|
EOF
awk '
  function quoted(text) { return text == "" ? "" : "`" text "`" }
  /^PX_ENV/ {
    row = $0
    sub(/^PX_ENV\(/, "", row)
    sub(/"\)$/, "", row)
    if (split(row, part, /, "|", "/) != 4 || split(part[1], head, /, /) != 2) {
      print FILENAME ":" FNR ": cannot read: " $0 >"/dev/stderr"
      exit 1
    }
    sub(/"$/, "", part[2])
    allowed = part[3]
    gsub(/\|/, ", ", allowed)
    sub(/\.\./, " to ", allowed)
    print "| `" head[1] "` | " head[2] " | " allowed " | " quoted(part[2]) " | " part[4] " |"
  }' include/phlox/tables/env.def include/phlox/tables/env_cluster.def
