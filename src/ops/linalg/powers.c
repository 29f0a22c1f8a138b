// SPDX-License-Identifier: Apache-2.0
// Run functions of matrix powers, products and exponentials. They are in C because the number of
// products depends on an exponent, on the operands or on a norm.
#include <math.h>

#include "formulas.h"
#include "ops/core/matrix_checks.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/solve.h"
#include "phlox/ops/view.h"
#include "run_functions/powers.h"

// ---- powers

static px_status identities(px_tensor **out, const px_tensor *t) {
  return px__formula_identities(out, (px_value[]){PX_T(t)});
}
static void replace(px_tensor **target, px_tensor **value) {
  px_release(*target);
  *target = PX_MOVE(*value);
}
// t to the n-th power for n >= 1, by repeated squaring.
static px_status power(px_tensor **out, const px_tensor *t, uint64_t n) {
  PX_SCOPED(px_tensor) square = px_retain(t);
  PX_SCOPED(px_tensor) product = NULL;
  for (;;) {
    px_tensor *next = NULL;
    if (n & 1) {
      if (product)
        PX_TRY(px_matmul(&next, product, square));
      else
        next = px_retain(square);
      replace(&product, &next);
    }
    if (!(n >>= 1)) break;
    PX_TRY(px_matmul(&next, square, square));
    replace(&square, &next);
  }
  *out = PX_MOVE(product);
  return PX_OK;
}
PX_RUN(linalg_matrix_power) {
  const px_tensor *self = args->self;
  int64_t n = args->n;
  PX_SCOPED(px_tensor) inverse = NULL;
  PX_TRY(px__check_square(self, "linalg.matrix_power"));
  if (n == 0) return identities(&call->results[0], self);
  if (n == 1) return px_clone(&call->results[0], self, NULL);
  if (n > 0) return power(&call->results[0], self, (uint64_t)n);
  PX_TRY(px_linalg_inv(&inverse, self));
  return power(&call->results[0], inverse, 0 - (uint64_t)n);
}

// ---- products of several

// The operands of multi_dot as matrices, with vectors at the ends unsqueezed, and the dynamic
// programming tables: the minimum cost of the product of items i to j, and its best split.
typedef struct chain {
  px_tensor **items;  // owned
  int n;
  int64_t *sizes;  // n + 1 sizes
  double *cost;    // n by n
  int *cut;
} chain;
static void chain_end(chain *c) {
  for (int i = 0; c->items && i < c->n; i++) px_release(c->items[i]);
  px__free(c->items);
  px__free(c->sizes);
  px__free(c->cost);
  px__free(c->cut);
}
static px_status chain_alloc(chain *c, int n) {
  c->n = n;
  PX_TRY(px__alloc((void **)&c->items, (size_t)n * sizeof *c->items));
  PX_TRY(px__alloc((void **)&c->sizes, ((size_t)n + 1) * sizeof *c->sizes));
  PX_TRY(px__alloc((void **)&c->cost, (size_t)n * (size_t)n * sizeof *c->cost));
  return px__alloc((void **)&c->cut, (size_t)n * (size_t)n * sizeof *c->cut);
}
static px_status chain_check(px_tensor *const *tensors, int n) {
  PX_CHECK(n >= 2, PX_RUNTIME, "multi_dot(): expected at least 2 tensors but got %d", n);
  for (int i = 0; i < n; i++) {
    const px_tensor *t = tensors[i];
    bool end = i == 0 || i == n - 1;
    PX_CHECK(!end || t->ndim == 1 || t->ndim == 2, PX_RUNTIME,
             "multi_dot(): the %s tensor must be 1D or 2D but got %dD", i ? "last" : "first",
             t->ndim);
    PX_CHECK(end || t->ndim == 2, PX_RUNTIME, "multi_dot(): tensor %d must be 2D but got %dD", i,
             t->ndim);
    PX_CHECK(t->dtype == tensors[0]->dtype, PX_RUNTIME,
             "multi_dot(): all tensors must have be the same dtype but tensor 0 is %s and tensor "
             "%d %s",
             px_dtype_about((px_dtype)tensors[0]->dtype)->type_name, i,
             px_dtype_about((px_dtype)t->dtype)->type_name);
  }
  return PX_OK;
}
static px_status chain_fill(chain *c, px_tensor *const *tensors) {
  char a[128], b[128];
  for (int i = 0; i < c->n; i++) {
    const px_tensor *t = tensors[i];
    if (t->ndim == 2)
      c->items[i] = px_retain(t);
    else
      PX_TRY(px_unsqueeze(&c->items[i], t, i ? 1 : 0));
    if (i)
      PX_CHECK(c->items[i]->sizes[0] == c->sizes[i], PX_RUNTIME,
               "multi_dot(): tensors %d and %d with shapes %s and %s cannot be multiplied", i - 1,
               i, px__size_text(a, sizeof a, tensors[i - 1]), px__size_text(b, sizeof b, t));
    c->sizes[i] = c->items[i]->sizes[0];
    c->sizes[i + 1] = c->items[i]->sizes[1];
  }
  return PX_OK;
}
static void chain_plan(chain *c) {
  int n = c->n;
  for (int length = 2; length <= n; length++)
    for (int i = 0; i + length <= n; i++) {
      int j = i + length - 1;
      c->cost[i * n + j] = INFINITY;
      for (int k = i; k < j; k++) {
        double both = c->cost[i * n + k] + c->cost[(k + 1) * n + j];
        double cost =
            both + (double)c->sizes[i] * (double)c->sizes[k + 1] * (double)c->sizes[j + 1];
        if (cost < c->cost[i * n + j]) c->cost[i * n + j] = cost, c->cut[i * n + j] = k;
      }
    }
}
static px_status chain_multiply(px_tensor **out, const chain *c, int i, int j) {
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  if (i == j) return *out = px_retain(c->items[i]), PX_OK;
  int k = c->cut[i * c->n + j];
  PX_TRY(chain_multiply(&left, c, i, k));
  PX_TRY(chain_multiply(&right, c, k + 1, j));
  return px_mm(out, left, right);
}
static px_status multiply_all(px_tensor **out, chain *c, px_tensor *const *tensors, int n) {
  PX_TRY(chain_alloc(c, n));
  PX_TRY(chain_fill(c, tensors));
  chain_plan(c);
  return chain_multiply(out, c, 0, n - 1);
}
PX_RUN(linalg_multi_dot) {
  px_tensor *const *tensors = args->tensors.v.tensors;
  int n = args->tensors.n;
  chain c = {0};
  PX_SCOPED(px_tensor) product = NULL;
  PX_TRY(chain_check(tensors, n));
  px_status status = multiply_all(&product, &c, tensors, n);
  chain_end(&c);
  PX_TRY(status);
  bool row = tensors[0]->ndim == 1, column = tensors[n - 1]->ndim == 1;
  int64_t sizes[2], kept = 0;
  if (!row) sizes[kept++] = product->sizes[0];
  if (!column) sizes[kept++] = product->sizes[1];
  return px_reshape(&call->results[0], product, sizes, kept);
}

// ---- exponentials

enum { DEGREE = 16, STEP = 4 };
static const double max_norm = 0.78;  // the polynomial has full float64 accuracy up to here

// The number of halvings of t before the polynomial, from the greatest 1-norm of its matrices.
static px_status halvings(int *out, const px_tensor *t) {
  PX_SCOPED(px_tensor) maximum = NULL;
  px_scalar norm;
  *out = 0;
  if (px__is_meta(t)) return PX_OK;
  PX_TRY(px__formula_greatest_norm(&maximum, (px_value[]){PX_T(t)}));
  PX_TRY(px_tensor_item(&norm, maximum));
  double value = px_scalar_float(norm);
  if (isfinite(value) && value > max_norm) *out = (int)ceil(log2(value / max_norm));
  return PX_OK;
}
// c[0] + c[1] A + ... + c[STEP - 1] A^(STEP-1), plus `more` if it is not NULL. powers[k] is A^k.
static px_status block(px_tensor **out, px_tensor *const *powers, const double *c,
                       const px_tensor *more) {
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_mul_scalar(&sum, powers[0], px_float(c[0])));
  for (int k = 1; k < STEP; k++) {
    px_tensor *next = NULL;
    PX_TRY(px_add(&next, sum, powers[k], px_float(c[k])));
    replace(&sum, &next);
  }
  if (more) return px_add(out, sum, more, px_int(1));
  *out = PX_MOVE(sum);
  return PX_OK;
}
// The Taylor polynomial by Horner's rule in the fourth power of A.
static px_status polynomial(px_tensor **out, px_tensor *const *powers) {
  double c[DEGREE + 1] = {1};
  for (int k = 1; k <= DEGREE; k++) c[k] = c[k - 1] / k;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_mul_scalar(&sum, powers[STEP], px_float(c[DEGREE])));
  for (int at = DEGREE - STEP; at >= 0; at -= STEP) {
    px_tensor *next = NULL;
    PX_TRY(block(&next, powers, c + at, sum));
    replace(&sum, &next);
    if (!at) break;
    PX_TRY(px_matmul(&next, sum, powers[STEP]));
    replace(&sum, &next);
  }
  *out = PX_MOVE(sum);
  return PX_OK;
}
static px_status exponential(px_tensor **out, px_tensor **powers, const px_tensor *t) {
  int halved;
  PX_TRY(halvings(&halved, t));
  PX_TRY(identities(&powers[0], t));
  PX_TRY(px_mul_scalar(&powers[1], t, px_float(ldexp(1, -halved))));
  for (int k = 2; k <= STEP; k++) PX_TRY(px_matmul(&powers[k], powers[k - 1], powers[1]));
  PX_SCOPED(px_tensor) result = NULL;
  PX_TRY(polynomial(&result, powers));
  for (; halved > 0; halved--) {
    px_tensor *square = NULL;
    PX_TRY(px_matmul(&square, result, result));
    replace(&result, &square);
  }
  *out = PX_MOVE(result);
  return PX_OK;
}
// The computation has 64 bits: repeated squaring accumulates rounding errors.
PX_RUN(_linalg_matrix_exp) {
  px_tensor *powers[STEP + 1] = {NULL};
  px_dtype dtype = (px_dtype)args->self->dtype;
  px_dtype wide_dtype = px_dtype_is_complex(dtype) ? PX_COMPLEX128 : PX_FLOAT64;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) wide_result = NULL;
  PX_TRY(px__check_square(args->self, "linalg.matrix_exp"));
  if (!args->self->numel) return px_clone(&call->results[0], args->self, NULL);
  PX_TRY(px__tensor_to(&wide, args->self, wide_dtype, PX_DEVICE_NONE));
  px_status status = exponential(&wide_result, powers, wide);
  for (int k = 0; k <= STEP; k++) px_release(powers[k]);
  PX_TRY(status);
  return px__tensor_to(&call->results[0], wide_result, dtype, PX_DEVICE_NONE);
}
