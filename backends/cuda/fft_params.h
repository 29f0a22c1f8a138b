// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels of fft.cu: see params.h.
#pragma once
#include "cuda/params.h"

// Lines of a Fourier transform: `lines` of them, `apart` from each other, each of n places that are
// `step` apart, in complex numbers; or n real numbers in a row, which become those at `from` times
// `by`.
typedef struct k_fft {
  void *at;
  const void *from;
  int64_t lines, apart, n, step;
  double by;
} k_fft;
