// SPDX-License-Identifier: Apache-2.0
// Vectorising map: a program written for one example runs on a batch.
//
// Between px_vmap_begin and px_vmap_end, px_batch makes a batched tensor: it hides one dimension,
// and has the sizes of a single example. Ops accept batched tensors and compute all examples at
// once; their results are batched, too. px_unbatch restores the dimension. Maps nest and combine
// with px_grad: a gradient requested inside is computed for each example; one requested outside
// differentiates through the map.
//
// A batched tensor has no memory. Reading elements (px_tensor_item, px_tensor_read,
// px_tensor_host_data, the numbers of px_tensor_text) and ops with data-dependent sizes
// (px_nonzero) fail with PX_RUNTIME. So does changing an unbatched tensor in place by a batched
// one.
//
// Example, sums of squares over rows:
//
//   int level;
//   PX_TRY(px_vmap_begin(&level, px_tensor_size(rows, 0), PX_RANDOMNESS_ERROR));
//   px_status status = px_batch(&row, rows, 0);                    // (n, m) -> (m)
//   if (status == PX_OK) status = px_mul(&square, row, row);
//   if (status == PX_OK) status = px_sum(&sum, square, NULL, 0, false, PX_DTYPE_NONE);
//   if (status == PX_OK) status = px_unbatch(&out, sum, 0);        // () -> (n)
//   px_vmap_end();
#pragma once
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// Random ops inside a map.
typedef enum px_randomness {
  PX_RANDOMNESS_ERROR,      // fail
  PX_RANDOMNESS_DIFFERENT,  // draw separate numbers for each batch index
  PX_RANDOMNESS_SAME        // draw the same numbers for all batch indices
} px_randomness;

enum { PX_VMAP_LEVELS = 64 };
// Begins a map of the calling thread over `size` examples, inside the active maps. *level is the
// new number of active maps. PX_RUNTIME if PX_VMAP_LEVELS are active.
PX_CALL px_vmap_begin(int *level, int64_t size, px_randomness randomness);
// Ends the innermost map. Tensors batched by it remain and should be released.
PX_API void px_vmap_end(void);
// Returns the number of active maps of the calling thread.
PX_API int px_vmap_depth(void);
// Returns the size of the innermost map and sets *randomness; -1 outside of a map.
PX_API int64_t px_vmap_size(px_randomness *randomness);

// Makes a batched tensor in the innermost map: hides dimension `dim` of self, which may be
// negative. Shares self's memory. PX_INDEX for an invalid dimension; PX_VALUE if its size differs
// from the map's; PX_RUNTIME outside of a map.
PX_CALL px_batch(px_tensor **out, px_tensor *self, int64_t dim);
// Makes the hidden dimension of the innermost map dimension `dim` of the result. A tensor not
// batched at this level is expanded. Errors as px_batch.
PX_CALL px_unbatch(px_tensor **out, px_tensor *self, int64_t dim);

PX_API bool px_tensor_is_batched(const px_tensor *self);
// Return the level of a batched tensor, and its physical tensor, borrowed, with the batch dimension
// first; 0 and NULL for others.
PX_API int px_tensor_batch_level(const px_tensor *self);
PX_API px_tensor *px_tensor_physical(const px_tensor *self);

#ifdef __cplusplus
}
#endif
