// SPDX-License-Identifier: Apache-2.0
// Run functions of matrix ops. Composites (matmul, linear) select kernels as PyTorch does, because
// the names of the recorded nodes expose the selection.
#include <math.h>
#include <string.h>

#include "formulas.h"
#include "hidden/linalg.h"
#include "hidden/view.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factor.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/linalg.h"
#include "run_functions/reduce.h"

PX_RUN(trace) {
  const px_tensor *self = args->self;
  PX_CHECK(self->dtype != PX_BOOL || px__tensor_device(self).type != PX_CPU, PX_UNIMPLEMENTED,
           "\"trace\" not implemented for 'Bool'");
  return PX_OK;
}

// Fails for orders without an identity (inf, negative) over an empty dimension.
static px_status check_identity(const px__linalg_vector_norm_args *args) {
  const px_tensor *x = args->self;
  double order = px_scalar_float(args->ord);
  for (int k = 0; k < args->dim.n && (order < 0 || order == INFINITY); k++) {
    int dim;
    PX_TRY(px__wrap_dim(&dim, args->dim.v.ints[k], x->ndim));
    PX_CHECK(!x->ndim || x->sizes[dim] != 0, PX_RUNTIME,
             "linalg.vector_norm cannot compute the %g norm on the dimension %lldbecause this "
             "dimension is empty and the operation does not have an identity",
             order, (long long)args->dim.v.ints[k]);
  }
  return PX_OK;
}
PX_RUN(linalg_vector_norm) {
  PX_TRY(check_identity(args));
  return px_norm(&call->results[0], args->self, args->ord, args->dim.v.ints, args->dim.n,
                 args->keepdim, args->dtype);
}
// Reduces all dimensions if none is given.
PX_RUN(norm_named) {
  int64_t all[PX_MAX_DIMS] = {0};
  const px_tensor *self = args->self;
  bool given = px__given(args->dim);
  const int64_t *dims = given ? args->dim.v.ints : all;
  int count = given ? args->dim.n : self->ndim;
  for (int d = 0; d < self->ndim; d++) all[d] = d;
  if (!strcmp(args->p, "fro"))
    return px_norm(&call->results[0], self, px_int(2), dims, count, args->keepdim, args->dtype);
  PX_CHECK(!strcmp(args->p, "nuc"), PX_RUNTIME, "Invalid p: %s", args->p);
  return px_linalg_matrix_norm_named(&call->results[0], self, "nuc", dims, count, args->keepdim,
                                     args->dtype);
}

// ---- norms of matrices

static px_status two_dims(int *pair, const px_tensor *self, const int64_t *dim) {
  for (int k = 0; k < 2; k++) PX_TRY(px__wrap_dim(&pair[k], dim[k], self->ndim));
  PX_CHECK(pair[0] != pair[1], PX_RUNTIME,
           "linalg.matrix_norm: dims must be different. Got (%d, %d)", pair[0], pair[1]);
  return PX_OK;
}
static px_status norm_of_values(px_tensor **out, const px_tensor *self, const int pair[2],
                                double order, bool keepdim, px_dtype dtype) {
  return px__formula_norm_of_values(out, (px_value[]){PX_T(self), PX_I(pair[0]), PX_I(pair[1]),
                                                      PX_F(order), PX_B(keepdim), PX_DT(dtype)});
}
static px_status matrix_norm(px_tensor **out, const px_tensor *self, double order,
                             const int64_t *dim, bool keepdim, px_dtype dtype) {
  int pair[2];
  PX_TRY(two_dims(pair, self, dim));
  if (fabs(order) == 2) return norm_of_values(out, self, pair, order, keepdim, dtype);
  bool columns = fabs(order) == 1;
  PX_CHECK(columns || isinf(order), PX_RUNTIME, "linalg.matrix_norm: Order %g not supported.",
           order);
  return px__formula_extreme_of_sums(
      out, (px_value[]){PX_T(self), PX_I(pair[!columns]), PX_I(pair[columns]), PX_B(order > 0),
                        PX_B(keepdim), PX_DT(dtype)});
}
static px_status matrix_norm_named(px_tensor **out, const px_tensor *self, const char *order,
                                   const int64_t *dim, bool keepdim, px_dtype dtype) {
  int pair[2];
  PX_TRY(two_dims(pair, self, dim));
  if (!strcmp(order, "nuc")) return norm_of_values(out, self, pair, 0, keepdim, dtype);
  PX_CHECK(!strcmp(order, "fro"), PX_RUNTIME, "linalg.matrix_norm: Order %s not supported.", order);
  return px_linalg_vector_norm(out, self, px_int(2), dim, 2, keepdim, dtype);
}
PX_RUN(linalg_matrix_norm) {
  return matrix_norm(&call->results[0], args->self, px_scalar_float(args->ord), args->dim.v.ints,
                     args->keepdim, args->dtype);
}
PX_RUN(linalg_matrix_norm_named) {
  return matrix_norm_named(&call->results[0], args->self, args->ord, args->dim.v.ints,
                           args->keepdim, args->dtype);
}

// ---- vector or matrix norms by the number of dimensions

// The given dimensions; by default those of a vector or a matrix.
static const int64_t last_dims[2] = {-2, -1};
static px_status norm_dims(px_value *out, px_value dim, const px_tensor *self) {
  char text[128];
  int n = px__given(dim) ? dim.n : self->ndim;
  PX_CHECK(px__given(dim) || n == 1 || n == 2, PX_RUNTIME,
           "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got %dD.",
           n);
  PX_CHECK(n == 1 || n == 2, PX_RUNTIME,
           "linalg.norm: If dim is specified, it must be of length 1 or 2. Got %s",
           px__sizes_text(text, sizeof text, dim.n, dim.v.ints));
  *out = px__given(dim) ? dim : PX_IS(last_dims + 2 - n, n);
  return PX_OK;
}
PX_RUN(linalg_norm) {
  const px_tensor *self = args->self;
  px_value dim = args->dim, order = args->ord;
  const int64_t *none = NULL;
  if (!px__given(order))
    return px_linalg_vector_norm(&call->results[0], self, px_int(2),
                                 px__given(dim) ? dim.v.ints : none, dim.n, args->keepdim,
                                 args->dtype);
  PX_TRY(norm_dims(&dim, dim, self));
  if (dim.n == 1)
    return px_linalg_vector_norm(&call->results[0], self, px_value_scalar(order),
                                 px__given(args->dim) ? dim.v.ints : none, px__given(args->dim),
                                 args->keepdim, args->dtype);
  return px_linalg_matrix_norm(&call->results[0], self, px_value_scalar(order), dim.v.ints, 2,
                               args->keepdim, args->dtype);
}
PX_RUN(linalg_norm_named) {
  px_value dim = args->dim;
  PX_CHECK(px__given(dim) || args->self->ndim <= 2, PX_RUNTIME,
           "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got %dD.",
           args->self->ndim);
  if (!px__given(dim)) dim = PX_IS(last_dims, 2);
  return px_linalg_matrix_norm_named(&call->results[0], args->self, args->ord, dim.v.ints, dim.n,
                                     args->keepdim, args->dtype);
}

// ---- matmul

// a of at least three dimensions times a vector or matrix: one product of all rows.
static px_status fold_left(px_tensor **out, const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  int64_t sizes[PX_MAX_DIMS], k = a->sizes[a->ndim - 1];
  int64_t rows = px__sizes_product(a->sizes, a->ndim - 1);
  px__sizes_copy(sizes, a->sizes, a->ndim);
  int64_t flat_sizes[2] = {rows, k};
  PX_TRY(px_reshape(&flat, a, flat_sizes, 2));
  PX_TRY(b->ndim == 1 ? px_mv(&product, flat, b) : px_mm(&product, flat, b));
  int ndim = a->ndim - 1;
  if (b->ndim == 2) sizes[ndim++] = b->sizes[1];
  return px__unsafe_view(out, product, sizes, ndim);
}

// Expands t to the batch sizes and flattens it to three dimensions.
static px_status to_batch(px_tensor **out, const px_tensor *t, int ndim, const int64_t *batch,
                          int64_t rows, int64_t cols) {
  int64_t sizes[PX_MAX_DIMS], count = px__sizes_product(batch, ndim);
  PX_SCOPED(px_tensor) wide = NULL;
  for (int i = 0; i < ndim; i++) sizes[i] = batch[i];
  sizes[ndim] = rows, sizes[ndim + 1] = cols;
  PX_TRY(px_expand(&wide, t, sizes, ndim + 2));
  int64_t flat[3] = {count, rows, cols};
  return px_reshape(out, wide, flat, 3);
}

// Batched product. A 1-d operand is a row (left) or a column (right).
static px_status batched(px_tensor **out, const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  bool row = a->ndim == 1, vector = b->ndim == 1;
  int64_t n = row ? 1 : a->sizes[a->ndim - 2], ka = a->sizes[a->ndim - 1];
  int64_t kb = b->sizes[vector ? 0 : b->ndim - 2], m = vector ? 1 : b->sizes[b->ndim - 1];
  int64_t sizes[PX_MAX_DIMS];
  int ndim = 0, da = row ? 0 : a->ndim - 2, db = vector ? 0 : b->ndim - 2;
  PX_TRY(px__broadcast(&ndim, sizes, da, a->sizes, db, b->sizes));
  PX_CHECK(ndim + 2 <= PX_MAX_DIMS, PX_RUNTIME, "matmul: too many dimensions");
  if (vector) {
    int64_t two[2] = {kb, 1};
    PX_TRY(px_reshape(&column, b, two, 2));
  }
  PX_TRY(to_batch(&left, a, ndim, sizes, n, ka));
  PX_TRY(to_batch(&right, vector ? column : b, ndim, sizes, kb, m));
  PX_TRY(px_bmm(&product, left, right));
  if (!row) sizes[ndim++] = n;
  if (!vector) sizes[ndim++] = m;
  return px__unsafe_view(out, product, sizes, ndim);
}

static px_status matmul(px_tensor **out, const px_tensor *a, const px_tensor *b) {
  PX_CHECK(a->ndim && b->ndim, PX_RUNTIME,
           "both arguments to matmul need to be at least 1D, but they are %dD and %dD", a->ndim,
           b->ndim);
  if (a->ndim == 2 && b->ndim == 2) return px_mm(out, a, b);
  if (a->ndim == 1 && b->ndim == 1) return px_dot(out, a, b);
  if (a->ndim == 2 && b->ndim == 1) return px_mv(out, a, b);
  if (a->ndim >= 3 && b->ndim <= 2) return fold_left(out, a, b);
  if (a->ndim == 1 && b->ndim == 2) {
    PX_SCOPED(px_tensor) row = NULL;
    PX_SCOPED(px_tensor) product = NULL;
    int64_t sizes[2] = {1, a->sizes[0]};
    PX_TRY(px_reshape(&row, a, sizes, 2));
    PX_TRY(px_mm(&product, row, b));
    return px_reshape(out, product, &b->sizes[1], 1);
  }
  return batched(out, a, b);
}
PX_RUN(matmul) {
  const px_tensor *a = args->self, *out = call->mode == PX_CALL_OUT ? call->given[0] : NULL;
  bool dot = a->ndim == 1 && args->other->ndim == 1;
  PX_CHECK(!dot || !out || out->dtype == a->dtype, PX_RUNTIME,
           "result dtype %s does not match input dtype %s", px_dtype_class((px_dtype)out->dtype),
           px_dtype_class((px_dtype)a->dtype));
  return matmul(&call->results[0], a, args->other);
}

// ---- linear

static px_status linear_2d(px_tensor **out, const px_tensor *x, const px_tensor *weight,
                           const px_tensor *bias) {
  if (bias) return px__linear(out, bias, x, weight, px_int(1), px_int(1));
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_TRY(px_t(&transposed, weight));
  return px_mm(out, x, transposed);
}
PX_RUN(linear) {
  const px_tensor *x = args->input, *weight = args->weight;
  const px_tensor *bias = args->bias;
  if (x->ndim == 2 && weight->ndim == 2) return linear_2d(&call->results[0], x, weight, bias);
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  if (weight->ndim != 2 || !bias) {
    PX_TRY(px_t(&transposed, weight));
    PX_TRY(matmul(bias ? &product : &call->results[0], x, transposed));
    return bias ? px_add(&call->results[0], product, bias, px_int(1)) : PX_OK;
  }
  int64_t sizes[PX_MAX_DIMS], rows = px__sizes_product(x->sizes, x->ndim - 1);
  px__sizes_copy(sizes, x->sizes, x->ndim);
  sizes[x->ndim - 1] = weight->sizes[0];
  int64_t two[2] = {rows, x->sizes[x->ndim - 1]};
  PX_TRY(px_reshape(&flat, x, two, 2));
  PX_TRY(linear_2d(&product, flat, weight, bias));
  return px_view(&call->results[0], product, sizes, x->ndim);
}

// ---- float8

// True for one scale per tensor, or one per row of a and one per column of b.
static bool scales_fit(const px_tensor *a, const px_tensor *b, const px_tensor *scale_a_tensor,
                       const px_tensor *scale_b_tensor) {
  bool rows = scale_a_tensor->ndim == 2 && scale_a_tensor->sizes[0] == a->sizes[0] &&
              scale_a_tensor->sizes[1] == 1 && scale_b_tensor->ndim == 2 &&
              scale_b_tensor->sizes[0] == 1 && scale_b_tensor->sizes[1] == b->sizes[1];
  return (scale_a_tensor->numel == 1 && scale_b_tensor->numel == 1) ||
         (rows && px_tensor_is_contiguous(scale_a_tensor) &&
          px_tensor_is_contiguous(scale_b_tensor));
}
static bool is_float8(const px_tensor *t) {
  return px_dtype_is_float((px_dtype)t->dtype) && t->dtype >= PX_DTYPE_COMPUTED;
}
static px_status check_scaled(const px_tensor *a, const px_tensor *b,
                              const px_tensor *scale_a_tensor, const px_tensor *scale_b_tensor) {
  bool float8 = is_float8(a) && is_float8(b);
  bool scales = scale_a_tensor->dtype == PX_FLOAT32 && scale_b_tensor->dtype == PX_FLOAT32;
  char at[4][128];
  PX_CHECK(float8 && scales && scales_fit(a, b, scale_a_tensor, scale_b_tensor), PX_VALUE,
           "Invalid scaling configuration.\n"
           "- For TensorWise scaling, a and b should be float8, scales should be float and "
           "singletons.\n"
           "- For RowWise scaling, a and b should be float8, scales should be float, scale_a "
           "should be (%lld, 1) and scale_b should be (1, %lld), and both should be contiguous.\n"
           "Got mat_a.dtype()=%s, scale_a.dtype()=%s, scale_a.size()=%s, scale_a.stride()=%s, "
           "mat_b.dtype()=%s, scale_b.dtype()=%s, scale_b.size()=%s and scale_b.stride()=%s",
           (long long)a->sizes[0], (long long)b->sizes[1], px_dtype_class((px_dtype)a->dtype),
           px_dtype_class((px_dtype)scale_a_tensor->dtype),
           px__size_text(at[0], sizeof at[0], scale_a_tensor),
           px__sizes_text(at[1], sizeof at[1], scale_a_tensor->ndim, scale_a_tensor->strides),
           px_dtype_class((px_dtype)b->dtype), px_dtype_class((px_dtype)scale_b_tensor->dtype),
           px__size_text(at[2], sizeof at[2], scale_b_tensor),
           px__sizes_text(at[3], sizeof at[3], scale_b_tensor->ndim, scale_b_tensor->strides));
  return PX_OK;
}
PX_RUN(_scaled_mm) {
  px_tensor *self = args->self;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(check_scaled(self, args->mat2, args->scale_a, args->scale_b));
  const px_tensor *like = call->mode == PX_CALL_OUT && call->given[0] ? call->given[0] : self;
  px_dtype dtype = args->out_dtype == PX_DTYPE_NONE ? (px_dtype)like->dtype : args->out_dtype;
  PX_TRY(px__formula_scaled_product(
      &made, (px_value[]){PX_T(self), PX_T(args->mat2), PX_T(args->scale_a), PX_T(args->scale_b),
                          PX_T(args->bias)}));
  return px__tensor_to(&call->results[0], made, dtype, PX_DEVICE_NONE);
}
