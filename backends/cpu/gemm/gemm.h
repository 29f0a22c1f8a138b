// SPDX-License-Identifier: Apache-2.0
// Matrix products with arbitrary strides: C = alpha * A B + beta * S.
//
// A is m x k, B is k x n, C and S are m x n. Each has a row stride and a column stride in elements,
// so transposed and broadcast operands need no copy (a bias is an S with row stride 0). S may be C
// itself or NULL; it is not read if beta is 0.
//
// Indirect operands: a table of offsets in elements replaces a stride.
// - b_rows (not for integers): row stride 0, column stride 1. PX__GEMM_SLACK elements past the last
//   column of each row must be readable.
// - b_columns: strides the other way round. In the transposed problem these are a_rows.
// - a_rows, and with it a_columns: not for integers or bfloat16.
#pragma once
#include "phlox/backend.h"

enum { PX__GEMM_SLACK = 8 * 16 };  // elements: the widest tile of single rows (8 vectors)

typedef struct px__gemm {
  int64_t m, n, k;
  int64_t whole_m,
      whole_n;  // sizes of the whole product if this is a part; they select the method. Or 0
  const int64_t *a_rows, *b_rows, *b_columns;  // offset tables, or NULL: strided
  const int64_t *a_columns;                    // or NULL; requires ac == 1
  const void *a;
  int64_t ar, ac;
  const void *b;
  int64_t br, bc;
  void *c;
  int64_t cr, cc;
  const void *s;
  int64_t sr, sc;
  double alpha, beta;
  bool a_f16, b_f16;  // float only: A or B is float16, converted during packing
  // Float with a_f16 and b_f16 only: float16 result with row stride c_f16_stride; C is scratch.
  // Or NULL.
  uint16_t *c_f16;
  int64_t c_f16_stride;
  bool deep;           // set internally: enough rows for longer blocks of k
  bool c_float;        // px__gemm_bf16 only: C and S are float
  const void *packed;  // B as written by px__gemm_pack, replaces b; or NULL
} px__gemm;

// Packs B (float or double) for repeated products. `to` holds k times n elements, n rounded up to a
// multiple of PX__GEMM_PACK.
enum { PX__GEMM_PACK = 64 };
void px__gemm_pack(const px__gemm *g, bool wide, void *to);

// Return false if scratch could not be allocated. `parallel` allows use of the thread pool; callers
// running on the pool pass false.
bool px__gemm_f32(const px__gemm *g, bool parallel);
bool px__gemm_f64(const px__gemm *g, bool parallel);
// bfloat16; requires px__gemm_has_bf16() (hardware multiplication).
bool px__gemm_bf16(const px__gemm *g, bool parallel);
bool px__gemm_has_bf16(void);
// Any dtype: fp16 and bf16 are computed in float if needed, 8-bit integers in 16 bits. Integer sums
// wrap around.
bool px__gemm_any(const px__gemm *g, int dtype, bool parallel);
