// SPDX-License-Identifier: Apache-2.0
// Results of a float convolution as a product of weights and what positions see, neither of which
// is packed (conv_tiles.c).
#pragma once
#include "phlox/backend.h"

// Positions of a product at least, and of an image that is one by itself; and tiles of rows whose
// sums are kept between blocks of terms.
enum { PX__CONV_LEAST = 16, PX__CONV_ALONE = 48, PX__CONV_NEAR = 24 };

// Of m results and n positions: weights are `ar` apart for each result, and follow one another, or
// `turned` the other way round; term p of position j lies at b + at[p] + j. Of each `pitch`
// positions `grid` are wanted: they follow one another from c on, `cr` apart for each result.
// `room`, unless NULL: b is far away from the near caches, and sums of a panel's blocks of terms
// have their place there, in vectors of 64 bytes and px__conv_room() elements; `after` is what
// another product of the same table will read, or NULL.
typedef struct px__conv_product {
  int64_t m, n, k;
  const float *a, *b, *after, *bias;
  const int64_t *at;
  float *c, *room;
  int64_t ar, cr, pitch, grid;
  bool turned, more;  // more: by px__conv_sums_run, which has `turned` weights
} px__conv_product;

// Whether this processor has tiles for it.
bool px__conv_has_tiles(void);
static inline int64_t px__conv_room(int64_t m) {
  int64_t tiles = (m + 5) / 6;
  return (tiles < PX__CONV_NEAR ? tiles : PX__CONV_NEAR) * 6 * 64;
}
void px__conv_product_run(const px__conv_product *g);
// The same where sums are few beside terms: n a multiple of PX__CONV_LEAST, all of them wanted.
// `more`: they are added to what is there.
void px__conv_sums_run(const px__conv_product *g, bool more);
