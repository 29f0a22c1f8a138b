// SPDX-License-Identifier: Apache-2.0
// Fusion: several pointwise calls as one kernel, without memory for the results in between.
//
// Between begin and end, the calling thread's calls of pointwise ops make results with a shape and
// a dtype, but no memory yet. A result is computed when something needs its elements: an op that is
// not pointwise, a copy, a read on the host, its address, another stream, or the end. The calls it
// depends on then run as one launch, and only results that are needed get memory. A sum, mean or
// other fold of such a result reads it without memory as well.
//
// Results, gradients and errors are those of the calls one by one, bit for bit. Inputs may change
// afterwards: results that depend on them are computed first. Fusion is off while a profile, the
// race checker or fault injection watches single launches.
#pragma once
#include "phlox/op.h"
#ifdef __cplusplus
extern "C" {
#endif

// Begin and end fusion on the calling thread. Pairs may nest; the outermost end computes the
// results that the program still holds. Results held only for a backward pass stay uncomputed if
// that takes less memory: the backward pass computes them again. The end returns `so_far` if that
// is an error; else it fails with PX_OUT_OF_MEMORY and the like if a result cannot be computed. The
// results are kept, and computed when they are needed.
//   PX_TRY(px_fuse_begin());
//   px_status status = px_mul(&product, a, b);
//   if (status == PX_OK) status = px_relu(&out, product);
//   px_release(product);
//   PX_TRY(px_fuse_end(status));  // one kernel; the product gets no memory
PX_CALL px_fuse_begin(void);
PX_CALL px_fuse_end(px_status so_far);
// True between them, and always if the environment variable PHLOX_FUSE is 1.
PX_API bool px_fuse_active(void);
// Turn fusion off on the calling thread, for code that must run call by call, and on again. pause
// returns what resume takes: whether it was off before.
//   bool before = px_fuse_pause();
//   status = run(x);
//   px_fuse_resume(before);
PX_API bool px_fuse_pause(void);
PX_API void px_fuse_resume(bool before);

#ifdef __cplusplus
}
#endif
