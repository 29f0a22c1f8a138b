// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels of fft.cu: see params.h.
#pragma once
#include "cuda/params.h"

// Lines of a Fourier transform: `lines` lines at distance `distance`, each of n complex elements at
// stride `stride`. For scaling: n contiguous real numbers at `from`, multiplied by `by`.
typedef struct k_fft {
  void *at;
  const void *from;
  int64_t lines, distance, n, stride;
  double by;
} k_fft;
