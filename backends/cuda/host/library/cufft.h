// SPDX-License-Identifier: Apache-2.0
// cuFFT, loaded on first use. Each device caches its most recently used plans by shape.
#pragma once
#include "cuda/host/driver/cuda.h"

// Layout, in elements: `stride` is the stride of the last dimension, `embed` the storage extents of
// the dimensions, `distance` the distance between transforms of the batch.
typedef struct px__cufft_side {
  long long embed[3], stride, distance;
} px__cufft_side;

typedef enum px__cufft_kind { PX__CUFFT_C2C, PX__CUFFT_R2C, PX__CUFFT_C2R } px__cufft_kind;

// The full key of a plan, over one to three dimensions. Compared as bytes: zero it first.
typedef struct px__cufft_shape {
  long long kind, wide, rank, batch, sizes[3];  // wide: float64
  px__cufft_side in, out;
} px__cufft_shape;

// Queues a transform on the launch's stream. `forward` applies to C2C only. PX_RUNTIME without
// cuFFT or if it fails.
px_status px__cufft_run(const px_launch *l, const px__cufft_shape *shape, void *in, void *out,
                        bool forward);

// Sets the device's maximum number of cached plans; negative leaves it. Returns the number cached.
int64_t px__cufft_plans(int device, int64_t capacity);
