#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks access to the environment: only src/base/env.c reads it in the library, and every variable of include/phlox/tables/env*.def is read somewhere
# (px__env_NAME in the library, px_env_NAME in a backend, px_env_read in layers over the public headers). python/ext/bind/env.def has the variables read by
# the Python module and those that the launcher reads or sets, and no others. No variable has two rows.
set -u
status=0
tables='include/phlox/tables/env.def include/phlox/tables/env_cluster.def'
names() { sed -n 's/^PX_ENV(\([A-Z0-9_*]*\),.*/\1/p' "$@"; }
complain() { echo "$1"; status=1; }
sources=$(git ls-files 'src/*.[ch]' 'backends/*.[ch]' 'python/ext/*.[ch]' | grep -v '^src/base/env\.c$')
if grep -nE '(^|[^a-zA-Z_])(getenv|secure_getenv|environ)([^a-zA-Z_]|$)' $sources; then
  complain 'environment variables must be read through include/phlox/tables/env.def'
fi
for name in $(names $tables); do
  grep -qE "px__?env_$name\(|px_env_read\(\"$name\"" $sources || complain "include/phlox/tables/env*.def: nothing reads $name"
done
# A name in Python is a text of capitals in a line that uses the environment. env.py only prints.
outside=$({
  sed -n '/environ\|_required(/p' $(git ls-files 'python/phlox/*.py' | grep -v '/env\.py$') | grep -oE "[\"'][A-Z][A-Z0-9_]+[\"']"
  sed -n '/environment_variable(\|px__launch_variable(/p' $sources | grep -oE '"[A-Z][A-Z0-9_]+"'
  grep -oE '"[A-Z_]+=' src/comm/launch_ranks.c
  echo 'TORCH_FORCE_WEIGHTS_ONLY_LOAD TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD' | tr ' ' '\n' # serialization.py composes the names
} | tr -d "\"'=" | sort -u)
for name in $outside; do
  names $tables python/ext/bind/env.def | grep -qx "$name" || complain "python/ext/bind/env.def: no row for $name"
done
for name in $(names python/ext/bind/env.def | grep -v '\*'); do
  echo "$outside" | grep -qx "$name" || complain "python/ext/bind/env.def: nothing reads or sets $name"
done
[ -z "$(names $tables python/ext/bind/env.def | sort | uniq -d)" ] || complain "rows that occur twice: $(names $tables python/ext/bind/env.def | sort | uniq -d)"
exit $status
