// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels of fft.cu: see params.h.
#pragma once
#include "cuda/params.h"

// Lines of a Fourier transform: `lines` lines at distance `apart`, each of n complex elements at
// stride `step`. For scaling: n contiguous real numbers at `from`, multiplied by `by`.
typedef struct k_fft {
  void *at;
  const void *from;
  int64_t lines, apart, n, step;
  double by;
} k_fft;
