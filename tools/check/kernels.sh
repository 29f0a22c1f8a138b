#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that every kernel of the cuda backend begins with k_wait(). Launches may start before the
# preceding one has ended (backends/cuda/host/driver/launch.c): without it a kernel would read stale data.
cd "$(dirname "$0")/../.." || exit 1
awk '
  FNR == 1 { kernel = 0 }
  /__global__/ { kernel = 1; where = FILENAME ":" FNR }
  opened { if (!/k_wait\(\);/) { print where ": a kernel that does not begin with k_wait()"; bad = 1 } opened = kernel = 0; next }
  kernel && (/{( \\)?$/ || /{\\n/) {
    if (FILENAME ~ /\.c$/) { if (!/{\\n  k_wait\(\);/) { print where ": a kernel that does not begin with k_wait()"; bad = 1 } kernel = 0; next }
    opened = 1
  }
  END { exit bad }
' backends/cuda/kernels/*.cu backends/cuda/kernels/*.cuh tools/opgen/cuda.c tools/opgen/optim_kernels.c
