// SPDX-License-Identifier: Apache-2.0
// Products of batches of matrices by cuBLAS, which is loaded at the first of them.
#pragma once
#include "cuda/host/driver/cuda.h"

// The dtypes that linear algebra's libraries have functions of, in the order of their tables.
enum { PX__CUDA_KINDS = 4 };
static inline int px__cuda_kind(int dtype) {
  return dtype == PX_FLOAT32 ? 0 : dtype == PX_FLOAT64 ? 1 : dtype == PX_COMPLEX64 ? 2 : 3;
}
// How a matrix counts, in the libraries' numbers; conjugate: and transposed.
enum { PX__CUDA_PLAIN = 0, PX__CUDA_TRANSPOSED = 1, PX__CUDA_CONJUGATE = 2 };

// A batch of matrices: `sizes` and `strides` (in elements) are those of batch, row and column.
typedef struct px__cuda_matrices {
  void *at;
  int64_t sizes[3], strides[3];
} px__cuda_matrices;

// c = alpha * a b + beta * s. The strides may be any: matrices that cuBLAS cannot read or write as
// they lie are copied to or from scratch memory. `s` has the sizes of c, with stride 0 where it is
// broadcast; it is not read if beta is 0, may be c itself, and its `at` is NULL if there is none.
typedef struct px__cuda_product {
  px__cuda_matrices c, a, b, s;
  int dtype;
  double alpha, beta;
} px__cuda_product;
px_status px__cuda_multiply(const px_launch *l, px__cuda_product product);

// k_dots.c: whether a product is that of one row or one column with a matrix that lies for it,
// which a kernel of our own reads once; and that product.
bool px__cuda_is_dots(const px__cuda_product *p);
px_status px__cuda_dots(const px_launch *l, const px__cuda_product *p);

// b becomes x in a x = b, or with `right` in x a = b, where a is a triangle; both lie by columns.
typedef struct px__cuda_triangle {
  int dtype, m, n, lda, ldb;  // m, n: of b
  int turned;                 // PX__CUDA_PLAIN, or what is taken in the place of a
  bool right, upper, unit;    // unit: the diagonal of a counts as ones
  const void *a;
  void *b;
} px__cuda_triangle;
px_status px__cuda_solve_triangle(const px_launch *l, const px__cuda_triangle *t);

// Systems of equations, of many small matrices by columns at a time: `factor` makes of each `a` its
// LU decomposition, `solve` of each `b` what a decomposed `a`, or by `turned` its transpose, is to
// be multiplied with for it.
typedef struct px__cuda_systems {
  int dtype, n, columns, lda, ldb, count, turned;
  bool factor, solve;
  void **a, **b;  // where matrices begin; in device memory, as the others
  int *pivots, *info;
} px__cuda_systems;
px_status px__cuda_solve_systems(const px_launch *l, const px__cuda_systems *s);

// Each of many small matrices by columns becomes its QR decomposition, as reflections.
typedef struct px__cuda_reflections {
  int dtype, m, n, lda, count;
  void **a, **tau;  // where matrices and lines begin, in device memory
} px__cuda_reflections;
px_status px__cuda_reflect(const px_launch *l, const px__cuda_reflections *r);

// ---- shared by gemm.c and gemm_lt.c

// A matrix as cuBLAS takes it. `rows`: the rows are what lies together, so that to cuBLAS it is the
// transposed matrix.
typedef struct px__cuda_layout {
  void *at;
  bool rows;
  int64_t ld, batch;
} px__cuda_layout;

// How cuBLAS computes a dtype: its number of the type, and of the arithmetic; type -1: not at all.
typedef struct px__cuda_arithmetic {
  int type, compute;
} px__cuda_arithmetic;
px__cuda_arithmetic px__cuda_arithmetic_of(int dtype);
// Whether parts of a sum may be joined in the dtype's own precision.
bool px__cuda_narrow_sums(int dtype);
// Bytes that cuBLAS may take to work in, as many as its manual advises; 0 where the product is too
// small for it to matter.
size_t px__cuda_workspace_size(const px_launch *l, const px__cuda_product *p);

// gemm_lt.c: the same product of matrices as cuBLAS takes them, with c as it is where beta is not
// 0; or `with_bias` c = alpha * a b + s in one pass, where s is one dense row for all rows of a
// row-major c. False, and nothing done, where cuBLASLt cannot, or is not there.
bool px__cuda_multiply_lt(const px_launch *l, const px__cuda_product *p, const px__cuda_layout *c,
                          const px__cuda_layout *a, const px__cuda_layout *b, bool with_bias);
