// SPDX-License-Identifier: Apache-2.0
// Matrix products of any strides: C = alpha * A B + beta * S.
//
// A is m x k, B is k x n, C and S are m x n; each has a row and a column stride in elements, so
// that transposed and broadcast operands need no copy (a bias is an S with row stride 0). S may be
// C itself, or NULL; with beta 0 it is not read.
//
// Rows of B, of no integers, may lie anywhere: a table then says where each begins, in elements,
// the stride of rows is 0 and that of columns 1. It comes with room: PX__GEMM_SLACK elements past
// the last column of each row may be read. Or columns of B may, with strides the other way round
// (of the transposed problem these are the rows of A). Or rows of A, of no integers or bfloat16,
// may, and their columns too, as another table says.
#pragma once
#include "phlox/backend.h"

enum { PX__GEMM_SLACK = 8 * 16 };

typedef struct px__gemm {
  int64_t m, n, k;
  int64_t all_m, all_n;  // of a part of a product: the whole's, which say how it is done; or 0
  const int64_t *a_rows, *b_rows, *b_columns;  // NULL: evenly spaced
  const int64_t *a_columns;                    // or NULL; then ac is 1
  const void *a;
  int64_t ar, ac;
  const void *b;
  int64_t br, bc;
  void *c;
  int64_t cr, cc;
  const void *s;
  int64_t sr, sc;
  double alpha, beta;
  bool a_half, b_half;  // of float: A, B is float16, and is converted where it is packed
  // Of float, with both: where the sums go as float16, rows so far apart; C is scratch. Or NULL.
  uint16_t *half;
  int64_t half_r;
  bool deep;           // by the product itself: so many rows that blocks of k are to be long
  bool c_float;        // of bfloat16 by px__gemm_bf16: C and S are float
  const void *packed;  // B as px__gemm_pack has written it, instead of b; or NULL
} px__gemm;

// Packs B, of float or double, for products that come again and again: into room for k times n
// elements, n rounded up to a multiple of PX__GEMM_PACK.
enum { PX__GEMM_PACK = 64 };
void px__gemm_pack(const px__gemm *g, bool wide, void *to);

// False if there was no memory for scratch. `parallel` lets the product use the kernel threads; a
// caller that is itself parallel passes false.
bool px__gemm_f32(const px__gemm *g, bool parallel);
bool px__gemm_f64(const px__gemm *g, bool parallel);
// Of bfloat16, where the processor multiplies it: px__gemm_has_bf16.
bool px__gemm_bf16(const px__gemm *g, bool parallel);
bool px__gemm_has_bf16(void);
// The same for operands of any dtype: half formats through float, integers of a byte through those
// of 16 bits. Sums of integers wrap around.
bool px__gemm_any(const px__gemm *g, int dtype, bool parallel);
