// SPDX-License-Identifier: Apache-2.0
// Mapping over a dimension: a program that is written for one example runs for a batch of them.
//
// Between px_vmap_begin and px_vmap_end, px_batch makes of a tensor one that hides a dimension: it
// has the sizes of one place, and stands for all of them. Ops take such tensors as any others, and
// compute all places at once; what they give is batched too. px_unbatch makes the dimension visible
// again. Mappings nest, and go together with px_grad on either side: a gradient that is asked for
// between begin and end is that of each place; one that is asked for outside goes through them.
//
// A batched tensor has no memory of its own: what reads elements (px_tensor_item, px_tensor_read,
// px_tensor_host_data, px_tensor_text's numbers) or lets sizes depend on them (px_nonzero) fails
// with PX_RUNTIME. So does a change in place of a tensor that is not batched by one that is.
//
// Example, the rows' sums of squares:
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

// What ops that draw random numbers do in a mapping.
typedef enum px_randomness {
  PX_RANDOMNESS_ERROR,      // they fail
  PX_RANDOMNESS_DIFFERENT,  // each place has numbers of its own
  PX_RANDOMNESS_SAME        // all places have the same
} px_randomness;

enum { PX_VMAP_LEVELS = 64 };
// Begins a mapping of the calling thread over `size` places, within those that are under way.
// *level is how many there are now. PX_RUNTIME if there are PX_VMAP_LEVELS already.
PX_CALL px_vmap_begin(int *level, int64_t size, px_randomness randomness);
// Ends the innermost mapping. Tensors that it made stay, and should be let go of.
PX_API void px_vmap_end(void);
// How many mappings of the calling thread are under way.
PX_API int px_vmap_depth(void);

// Makes a tensor that hides dimension `dim` of self, which may be negative, in the innermost
// mapping. It shares self's memory. PX_INDEX if there is no such dimension; PX_VALUE if it has
// another size than the mapping; PX_RUNTIME outside of all.
PX_CALL px_batch(px_tensor **out, px_tensor *self, int64_t dim);
// Makes what is hidden in the innermost mapping dimension `dim` of the result. A tensor that is not
// batched there is repeated. Errors as of px_batch.
PX_CALL px_unbatch(px_tensor **out, px_tensor *self, int64_t dim);

PX_API bool px_tensor_is_batched(const px_tensor *self);
// The level whose mapping a batched tensor belongs to, and the tensor beneath, borrowed, whose
// first dimension is the hidden one; 0 and NULL for others.
PX_API int px_tensor_batch_level(const px_tensor *self);
PX_API px_tensor *px_tensor_beneath(const px_tensor *self);

#ifdef __cplusplus
}
#endif
