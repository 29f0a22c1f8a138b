// SPDX-License-Identifier: Apache-2.0
// Results of a float convolution as the product of the weights and the unfolded source; packs
// neither (conv_indirect.c).
#pragma once
#include "phlox/backend.h"

enum {
  PX__CONV_MIN_PIXELS = 16,  // min pixels of a product
  PX__CONV_KEPT_GROUPS = 24  // tile rows whose sums are kept between blocks of terms
};

// m results and n pixels. Weights: results are `ar` apart and terms contiguous, or the reverse if
// `transposed`. Term p of pixel j is b[at[p] + j]. The first `grid` of each `pitch` pixels are
// stored, consecutively from c on, with results `cr` apart. scratch, unless NULL: b is not in a
// near cache; holds the sums between blocks of terms, px__conv_scratch_size() elements in 64-byte
// vectors. after: the source of the next product with the same table, prefetched; or NULL.
typedef struct px__conv_product {
  int64_t m, n, k;
  const float *a, *b, *after, *bias;
  const int64_t *at;
  float *c, *scratch;
  int64_t ar, cr, pitch, grid;
  bool transposed, more;  // more: set by px__conv_sums_run, which supports `transposed` weights
} px__conv_product;

// True if the processor has the required vectors (AVX-512).
bool px__conv_has_tiles(void);
static inline int64_t px__conv_scratch_size(int64_t m) {
  int64_t tiles = (m + 5) / 6;
  return (tiles < PX__CONV_KEPT_GROUPS ? tiles : PX__CONV_KEPT_GROUPS) * 6 * 64;
}
void px__conv_product_run(const px__conv_product *g);
// The same for few sums over many terms. n is a multiple of PX__CONV_MIN_PIXELS and all pixels are
// stored. `more`: adds to the existing results.
void px__conv_sums_run(const px__conv_product *g, bool more);
