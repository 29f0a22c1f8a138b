// SPDX-License-Identifier: Apache-2.0
// Host functions of dots.cu: matrix-vector products with contiguous rows. The added operand is
// fused, so it takes one launch instead of cuBLAS's two or three.
#include "cuda/dots_params.h"
#include "cuda/host/library/gemm.h"
#include "cuda/host/ops/kernel.h"

// VECTOR: bytes. SATURATING_WARPS: number of warps that saturates a device's memory bandwidth.
enum { VECTOR = 16, MIN_ROWS = 16, MAX_LENGTH = 1 << 16, SATURATING_WARPS = 2048 };

// A single row a: columns of b times a. Otherwise: rows of a times the column b.
static k_dots dots_of(const px__cuda_product *p) {
  bool row = p->c.sizes[1] == 1;
  const px__cuda_matrices *matrix = row ? &p->b : &p->a, *vector = row ? &p->a : &p->b;
  int along = row ? 2 : 1;
  return (k_dots){
      .matrix = {matrix->at, matrix->strides[0], matrix->strides[along]},
      .vector = {vector->at, vector->strides[0], 0},
      .added = {p->s.at, p->s.strides[0], p->s.strides[along]},
      .out = {p->c.at, p->c.strides[0], p->c.strides[along]},
      .count = p->c.sizes[0],
      .rows = p->c.sizes[along],
      .n = p->a.sizes[2],
      .alpha = p->alpha,
      .beta = p->s.at ? p->beta : 0,
  };
}
static bool is_aligned(const k_dotted *x, int64_t count, int64_t rows, int64_t each) {
  return (uintptr_t)x->at % VECTOR == 0 && (count == 1 || x->batch % each == 0) &&
         (rows == 1 || x->step % each == 0);
}

bool px__cuda_is_dots(const px__cuda_product *p) {
  bool row = p->c.sizes[1] == 1, column = p->c.sizes[2] == 1;
  if (row == column || !px__cuda_is_float(p->dtype)) return false;
  if (p->a.strides[2] != 1 || p->b.strides[1] != 1) return false;
  k_dots d = dots_of(p);
  int64_t each = VECTOR / (int64_t)px__cuda_dtype_size(p->dtype);
  // Few long rows would leave the device idle.
  if (d.rows < MIN_ROWS || d.n < each || d.n > MAX_LENGTH || d.n % each) return false;
  return is_aligned(&d.matrix, d.count, d.rows, each) && is_aligned(&d.vector, d.count, 1, each);
}
// Number of warps sharing a row: more for few rows, as long as each lane gets more than two
// vectors.
static int split_of(const k_dots *d, int64_t each) {
  int64_t vectors = d->n / each / 32, warps = d->count * d->rows;
  int split = 1;
  while (split < K_DOTS_WARPS && split * warps < SATURATING_WARPS && vectors > 2 * split)
    split *= 2;
  return split;
}
px_status px__cuda_dots(const px_launch *l, const px__cuda_product *p) {
  k_dots d = dots_of(p);
  d.split = split_of(&d, VECTOR / (int64_t)px__cuda_dtype_size(p->dtype));
  int64_t rows = K_DOTS_WARPS / d.split;  // a block
  d.blocks = (d.rows + rows - 1) / rows;
  return px__cuda_by_dtype(l, "dots", "dots", p->dtype, d.count * d.blocks, K_DOTS_BLOCK, &d);
}
