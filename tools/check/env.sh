#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks access to the environment: only src/base/env.c reads it, and every variable of include/phlox/tables/env.def is read somewhere
# (px__env_NAME in the library, px_env_NAME in a backend, px_env_read in layers over the public headers).
set -u
status=0
sources=$(git ls-files 'src/*.[ch]' 'backends/*.[ch]' 'python/ext/*.[ch]' | grep -v '^src/base/env\.c$')
if grep -nE '(^|[^a-zA-Z_])(getenv|secure_getenv|environ)([^a-zA-Z_]|$)' $sources; then
  echo 'environment variables must be read through include/phlox/tables/env.def'
  status=1
fi
for name in $(sed -n 's/^PX_ENV(\([A-Z0-9_]*\),.*/\1/p' include/phlox/tables/env.def include/phlox/tables/env_cluster.def); do
  grep -qE "px__?env_$name\(|px_env_read\(\"$name\"" $sources || { echo "include/phlox/tables/env*.def: nothing reads $name"; status=1; }
done
exit $status
