// SPDX-License-Identifier: Apache-2.0
// Batched matrix products by cuBLAS, loaded on first use.
#pragma once
#include "cuda/host/driver/cuda.h"

// Dtypes of the linear algebra libraries, in the order of their function tables.
enum { PX__CUDA_KINDS = 4 };
static inline int px__cuda_kind(int dtype) {
  return dtype == PX_FLOAT32 ? 0 : dtype == PX_FLOAT64 ? 1 : dtype == PX_COMPLEX64 ? 2 : 3;
}
// Operation applied to a matrix, in the libraries' numbering; CONJUGATE also transposes.
enum { PX__CUDA_PLAIN = 0, PX__CUDA_TRANSPOSED = 1, PX__CUDA_CONJUGATE = 2 };

// A batch of matrices. `sizes` and `strides` (in elements) are those of batch, row and column.
typedef struct px__cuda_matrices {
  void *at;
  int64_t sizes[3], strides[3];
} px__cuda_matrices;

// c = alpha * a b + beta * s, with any strides: layouts unsupported by cuBLAS are copied to or from
// scratch memory. `s` has the sizes of c, with stride 0 along broadcast dimensions. It is not read
// if beta is 0 and may be c itself; `s.at` is NULL if there is none.
typedef struct px__cuda_product {
  px__cuda_matrices c, a, b, s;
  int dtype;
  double alpha, beta;
} px__cuda_product;
px_status px__cuda_multiply(const px_launch *l, px__cuda_product product);

// k_dots.c. True if the product is a matrix-vector product with a suitable layout, for a kernel
// that reads the matrix once. The second function queues it.
bool px__cuda_is_dots(const px__cuda_product *p);
px_status px__cuda_dots(const px_launch *l, const px__cuda_product *p);

// Overwrites b with x in a x = b, or x a = b if `right`, for a triangular a. Both are column-major.
typedef struct px__cuda_triangle {
  int dtype, m, n, lda, ldb;  // m, n: of b
  int operation;              // operation applied to a
  bool right, upper, unit;    // unit: the diagonal of a counts as ones
  const void *a;
  void *b;
} px__cuda_triangle;
px_status px__cuda_solve_triangle(const px_launch *l, const px__cuda_triangle *t);

// Batched linear systems of small column-major matrices. `factor` overwrites each `a` with its LU
// decomposition. `solve` overwrites each `b` with the solution for the decomposed `a`, or its
// transpose with `operation`.
typedef struct px__cuda_systems {
  int dtype, n, columns, lda, ldb, count, operation;
  bool factor, solve;
  void **a, **b;  // device arrays of matrix addresses
  int *pivots, *info;
} px__cuda_systems;
px_status px__cuda_solve_systems(const px_launch *l, const px__cuda_systems *s);

// Overwrites each small column-major matrix of a batch with its QR decomposition as Householder
// reflectors.
typedef struct px__cuda_qr {
  int dtype, m, n, lda, count;
  void **a, **tau;  // device arrays of addresses
} px__cuda_qr;
px_status px__cuda_factor_qr(const px_launch *l, const px__cuda_qr *r);

// ---- shared by gemm.c, gemm_arithmetic.c and gemm_lt.c

// A matrix as passed to cuBLAS. `rows`: row-major, so cuBLAS sees the transposed matrix.
typedef struct px__cuda_layout {
  void *at;
  bool rows;
  int64_t ld, batch;
} px__cuda_layout;

// cuBLAS's data type and compute type of a dtype; type -1: unsupported.
typedef struct px__cuda_arithmetic {
  int type, compute;
} px__cuda_arithmetic;
px__cuda_arithmetic px__cuda_arithmetic_of(int dtype);
// True if partial sums may be combined in the dtype's own precision.
bool px__cuda_reduced_precision(int dtype);
// Bytes of workspace recommended by cuBLAS's manual; 0 for products too small to benefit.
size_t px__cuda_workspace_size(const px_launch *l, const px__cuda_product *p);

// gemm_lt.c. The same product by cuBLASLt; c holds s if beta is not 0. `with_bias`: c = alpha * a b
// + s in one pass, for s a dense row broadcast over the rows of a row-major c. Returns false
// without effect if cuBLASLt is absent or does not support the product.
bool px__cuda_multiply_lt(const px_launch *l, const px__cuda_product *p, const px__cuda_layout *c,
                          const px__cuda_layout *a, const px__cuda_layout *b, bool with_bias);
