#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files include headers of their own layer and of lower ones only. One rule a folder: its allowed includes, besides headers of the same folder.
set -u
status=0

# allow FOLDER PATTERN: every quoted include of the folder's files must match the pattern.
allow() {
  for file in $(find "$1" -name '*.[ch]' -o -name '*.cc' 2>/dev/null); do
    bad=$(sed -n 's/^ *#include "\([^"]*\)".*/\1/p' "$file" | grep -Ev "^($2)") || continue
    for include in $bad; do
      echo "$file: includes \"$include\", which is not below its layer"
      status=1
    done
  done
}

allow src/base     'phlox/((base|readers|spin).h|tables/env(_cluster)?.def)|base/'
allow src/device   'phlox/(base|device|stream|event|graph|memory|profile|dtype|backend|extend).h|base/|device/|cpu/(linalg/lapack|fft/fftw).h'
allow src/tensor   'phlox/(base|device|stream|event|memory|dtype|backend|tensor|random|dlpack|extend|tables/float8).h|base/|device/core/(device_impl|queue).h|tensor/|cpu/random/(mt19937|philox).h'
allow src/call     'phlox/|base/|device/core/device_impl.h|tensor/|call/|conditions.h$'
allow src/ops      'phlox/|base/|device/core/device_impl.h|tensor/|call/|ops/|run_functions/|vmap_rules/|hidden/|(conditions|formulas).h$'
allow src/autograd 'phlox/|autograd/|hidden/|(conditions|formulas|grad_functions).h$'
allow src/nn       'phlox/|nn/|layer_functions.h|(conditions|formulas).h$'
allow src/optim    'phlox/|optim/'
allow src/data     'phlox/|data/'
allow src/parallel 'phlox/|parallel/|formulas.h$'
allow src/io       'phlox/|io/'
allow src/comm     'phlox/|comm/'
allow src/script   'phlox/|script/'
allow python/ext/declare  'phlox/|declare/|bind/ext.h'
allow python/ext/bind     'phlox/|(declare|bind)/|nn/nn.h'
allow python/ext/ops      'phlox/|(declare|bind|ops|nn)/'
allow python/ext/autograd 'phlox/|(declare|bind|ops|autograd|nn)/'
allow python/ext/tensor   'phlox/|(declare|bind|ops|autograd|tensor|io)/'
allow python/ext/nn       'phlox/|(declare|bind|ops|autograd|tensor|dist|nn)/'
allow python/ext          'phlox/|(declare|bind|ops|autograd|tensor|nn|cuda|optim|dist|io)/'
allow backends/sim  'phlox/(backend|engine).h|phlox/tables/env_cluster.def|sim/|operands.h$'
allow backends/cuda 'phlox/(backend|tables/dtypes|tables/float8).h|cuda/|kernel_args/|(operands|scalars|special|rejection).h$|[a-z_]+.cuh$'
allow backends/gloo 'phlox/engine.h'
allow backends/mpi  'phlox/engine.h'
allow backends/nccl 'phlox/engine.h|nccl/nccl.sym'
allow backends/cpu/threads 'phlox/backend.h|cpu/threads/'
allow backends/cpu/vector  'phlox/(backend|tables/float8).h|cpu/(threads|vector)/|(scalars|special).h$'
allow backends/cpu/convert 'phlox/(backend|tables/float8).h|cpu/(threads|vector|convert|loop)/|kernel_args/copy.h$|operands.h$|convert_pairs.inc$'
allow backends/cpu         'phlox/(backend|tables/float8).h|cpu/|kernel_args/|(operands|scalars|special|rejection|cpu_kernels).h$|convert_pairs.inc$'
allow examples     'phlox/phlox.h'
for file in backends/*.h $(git ls-files 'backends/*/*.[ch]'); do
  case $file in backends/nccl/*) continue ;; esac
  if grep -E '^ *#include "phlox/' "$file" | grep -vE '"phlox/((backend|engine|tables/(dtypes|float8)).h|tables/env_cluster.def)"'; then
    echo "$file: a backend includes phlox/backend.h, an engine phlox/engine.h, and no other header of Phlox"
    status=1
  fi
done
# A file that includes all ops is recompiled for each new op: library files include single tables (phlox/ops/view.h).
for file in $(grep -lrE '^ *#include "phlox/(ops|phlox).h"' --include='*.[ch]' src python/ext); do
  echo "$file: includes all ops; include the headers of single tables instead"
  status=1
done
exit $status
