#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that layers include downward only. For each folder: the permitted includes, in addition to the public headers and its own.
set -u
status=0

# allow FOLDER PATTERN: every quoted include of the folder's files must match the pattern.
allow() {
  for file in $(find "$1" -name '*.[ch]' -o -name '*.cc' 2>/dev/null); do
    bad=$(sed -n 's/^ *#include "\([^"]*\)".*/\1/p' "$file" | grep -Ev "^($2)") || continue
    for include in $bad; do
      echo "$file: includes \"$include\", which its layer does not permit"
      status=1
    done
  done
}

allow src/base     'phlox/((base|names).h|env(_cluster)?.def)|base/'
allow src/device   'phlox/(base|device|stream|event|graph|lapack|memory|profile|dtype|backend|extend|queue).h|base/|device/|cpu/'
allow src/tensor   'phlox/(base|device|stream|event|memory|dtype|backend|tensor|random|dlpack|extend|float8|queue).h|base/|device/(device_impl|queue).h|tensor/|cpu/(mt19937|philox).h'
allow src/call     'phlox/|base/|device/device_impl.h|tensor/|call/|conditions.h$'
allow src/ops      'phlox/|base/|device/device_impl.h|tensor/|call/|ops/|run_functions/|batch_functions/|hidden/|conditions.h$'
allow src/autograd 'phlox/|autograd/|hidden/|[a-z_]+.h$'
allow src/nn       'phlox/|nn/|layer_functions.h|conditions.h$'
allow src/optim    'phlox/|optim/'
allow src/data     'phlox/|data/'
allow src/parallel 'phlox/|parallel/'
allow src/io       'phlox/|io/'
allow src/comm     'phlox/|comm/'
allow python/ext   'phlox/|[a-z_0-9]+.h$'
allow backends/sim 'phlox/(backend|engine).h|phlox/env_cluster.def|sim|[a-z_]+.h$'
allow backends/cuda 'phlox/(backend|dtypes|float8).h|cuda/|kernel_args/|[a-z_0-9]+.(h|cuh)$'
allow backends/gloo 'phlox/engine.h'
allow backends/mpi  'phlox/engine.h'
allow backends/nccl 'phlox/engine.h|nccl/nccl.sym'
allow backends/cpu 'phlox/(backend|float8).h|cpu/|kernel_args/|[a-z_0-9]+.(h|inc)$'
allow examples     'phlox/phlox.h'
for file in backends/*.h backends/*/*.[ch]; do
  case $file in backends/nccl/*) continue ;; esac
  if grep -E '^ *#include "phlox/' "$file" | grep -vE '"phlox/((backend|dtypes|float8|engine).h|env_cluster.def)"'; then
    echo "$file: a backend may include only phlox/backend.h of Phlox, a collective backend only phlox/engine.h"
    status=1
  fi
done
# A file that includes all ops is recompiled for each new op: library files include only the tables they call (phlox/ops/view.h).
for file in $(grep -lrE '^ *#include "phlox/(ops|phlox).h"' --include='*.[ch]' src python/ext); do
  echo "$file: includes all ops instead of the tables it needs"
  status=1
done
exit $status
