#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layers only include downward. One rule a folder: the includes that its files may have, beside the public headers and their own.
set -u
status=0

# allow FOLDER PATTERN: every quoted include of the folder's files must match the pattern.
allow() {
  for file in $(find "$1" -name '*.[ch]' -o -name '*.cc' 2>/dev/null); do
    bad=$(sed -n 's/^ *#include "\([^"]*\)".*/\1/p' "$file" | grep -Ev "^($2)") || continue
    for include in $bad; do
      echo "$file: includes \"$include\", which its layer may not see"
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
    echo "$file: a backend includes phlox/backend.h, an engine phlox/engine.h, and nothing else of Phlox"
    status=1
  fi
done
# What includes all ops is compiled anew for each new one: files of the library include the tables that they call (phlox/ops/view.h).
for file in $(grep -lrE '^ *#include "phlox/(ops|phlox).h"' --include='*.[ch]' src python/ext); do
  echo "$file: includes all ops, instead of those of the tables that it needs"
  status=1
done
exit $status
