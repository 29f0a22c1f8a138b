// SPDX-License-Identifier: Apache-2.0
// cuFFT, and its plans: loaded at the first transform; each device keeps the plans that it used
// last, by what they do.
#pragma once
#include "cuda/host/driver/cuda.h"

// How numbers lie: the places of the last dimension are `step` apart, those of each dimension
// before it `embed` of the next one's steps, and transforms of the batch `apart`; all in numbers.
typedef struct px__cufft_side {
  long long embed[3], step, apart;
} px__cufft_side;

typedef enum px__cufft_way { PX__CUFFT_C2C, PX__CUFFT_R2C, PX__CUFFT_C2R } px__cufft_way;

// What a plan does, over one to three dimensions. All bytes count: begin with zeros.
typedef struct px__cufft_shape {
  long long way, wide, rank, batch, sizes[3];  // wide: float64
  px__cufft_side in, out;
} px__cufft_shape;

// Queues a transform on the launch's stream. `forward` is for C2C. PX_RUNTIME if there is no cuFFT,
// or if it fails.
px_status px__cufft_run(const px_launch *l, const px__cufft_shape *shape, void *in, void *out,
                        bool forward);

// The device keeps at most so many plans from now on, or as before if that is negative. Returns how
// many it has.
int64_t px__cufft_plans(int device, int64_t most);
