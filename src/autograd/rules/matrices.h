// SPDX-License-Identifier: Apache-2.0
// Shared by gradients of matrix decompositions: products and triangles of batched matrices.
#pragma once
#include "autograd/rules/backward.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

// Adjoint (conjugate transpose), written A' in comments.
__attribute__((unused)) static px_status adjoint(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) other = NULL;
  if (!px_dtype_is_complex(px_tensor_dtype(t))) return px_transpose(out, t, -2, -1);
  PX_TRY(px_transpose(&other, t, -2, -1));
  return px_conj(out, other);
}
// a' b, and a b'.
__attribute__((unused)) static px_status adjoint_times(px_tensor **out, const px_tensor *a,
                                                       const px_tensor *b) {
  PX_SCOPED(px_tensor) at = NULL;
  PX_TRY(adjoint(&at, a));
  return px_matmul(out, at, b);
}
__attribute__((unused)) static px_status times_adjoint(px_tensor **out, const px_tensor *a,
                                                       const px_tensor *b) {
  PX_SCOPED(px_tensor) bt = NULL;
  PX_TRY(adjoint(&bt, b));
  return px_matmul(out, a, bt);
}
__attribute__((unused)) static px_status negative_product(px_tensor **out, const px_tensor *a,
                                                          const px_tensor *b) {
  PX_SCOPED(px_tensor) product = NULL;
  PX_TRY(px_matmul(&product, a, b));
  return px_neg(out, product);
}
// x + sign * y. y may be NULL.
__attribute__((unused)) static px_status plus(px_tensor **out, const px_tensor *x,
                                              const px_tensor *y, int sign) {
  if (y) return px_add(out, x, y, px_int(sign));
  *out = px_retain(x);
  return PX_OK;
}
__attribute__((unused)) static int64_t rows_of(const px_tensor *t) { return px_tensor_size(t, -2); }
__attribute__((unused)) static int64_t columns_of(const px_tensor *t) {
  return px_tensor_size(t, -1);
}
