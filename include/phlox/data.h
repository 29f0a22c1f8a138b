// SPDX-License-Identifier: Apache-2.0
// Batches: random orders of rows, and rows of tensors.
//
//     PX_TRY(px_random_order(order, n, n, false, NULL));
//     for (int64_t i = 0; i + 32 <= n; i += 32) {
//       PX_SCOPED(px_list) batch = NULL;
//       PX_TRY(px_collate_rows(&batch, (px_tensor *[]){images, labels}, 2, order + i, 32));
//       ...
#pragma once
#include "phlox/random.h"
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// Writes a random permutation of the numbers below `length`, as PyTorch's random_split draws it.
PX_CALL px_random_permutation(int64_t *out, int64_t length, px_generator *generator);
// Writes `count` integers below `length` in the order drawn by PyTorch's RandomSampler: with
// replacement, or in random permutations. generator NULL: one seeded by the default generator.
// PX_VALUE if `length` is 0 and `count` is not.
PX_CALL px_random_order(int64_t *out, int64_t length, int64_t count, bool replacement,
                        px_generator *generator);
// Draws a seed from 0 to 2^63-1, as torch.empty((), dtype=torch.int64).random_() does. generator
// NULL: the default one.
PX_CALL px_seed_draw(int64_t *out, px_generator *generator);
// Returns the rows at `indices` of each of `n` tensors. PX_INDEX for an index out of range.
PX_CALL px_collate_rows(px_list **out, px_tensor *const *tensors, int64_t n, const int64_t *indices,
                        int64_t count);

#ifdef __cplusplus
}
#endif
