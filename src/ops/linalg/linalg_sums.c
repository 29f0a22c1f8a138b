// SPDX-License-Identifier: Apache-2.0
// Composites of products: addmv, addr, kron, tensordot and cross products. Formulas cannot truncate
// factors of integers, nor build the lists of contracted dimensions.
#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/linalg.h"

static bool is_number(px_scalar s, double value) { return px_scalar_float(s) == value; }

static px_scalar truncate(px_scalar x) { return x.kind == 'f' ? px_int((int64_t)x.v.f) : x; }

// beta * self + alpha * product. For integers, alpha and beta are truncated. A tensor multiplied by
// 0 is not read, so its NaNs are ignored.
static px_status sum_of(px_tensor **out, const px_tensor *self, const px_tensor *product,
                        px_scalar beta, px_scalar alpha) {
  PX_SCOPED(px_tensor) scaled = NULL;
  px_dtype dtype = (px_dtype)self->dtype;
  if (!px_dtype_is_float(dtype) && !px_dtype_is_complex(dtype) && self->dtype == product->dtype)
    beta = truncate(beta), alpha = truncate(alpha);
  if (is_number(beta, 0)) return px_mul_scalar(out, product, alpha);
  if (is_number(beta, 1)) return px_add(out, self, product, alpha);
  PX_TRY(px_mul_scalar(&scaled, self, beta));
  return px_add(out, scaled, product, alpha);
}
static px_status check_broadcast(const px_tensor *self, int64_t rows, int64_t columns) {
  PX_SCOPED(px_tensor) wide = NULL;
  return px_expand(&wide, self, (const int64_t[]){rows, columns}, 2);
}
PX_RUN(addmv) {
  PX_SCOPED(px_tensor) product = NULL;
  px_dtype dtype = (px_dtype)args->mat->dtype;
  if (is_number(args->alpha, 0) && (dtype == PX_FLOAT32 || dtype == PX_FLOAT64))
    return px__formula_addmv_by_columns(call->results, call->args);
  PX_TRY(px_mv(&product, args->mat, args->vec));
  return sum_of(&call->results[0], args->self, product, args->beta, args->alpha);
}
// bool: self or product, each only if its factor is not 0.
static px_status or_of_bools(px_tensor **out, const px_tensor *self, const px_tensor *product,
                             px_scalar beta, px_scalar alpha) {
  px_scalar self_factor = px_int(!is_number(beta, 0)),
            product_factor = px_int(!is_number(alpha, 0));
  PX_SCOPED(px_tensor) count = NULL;
  PX_TRY(sum_of(&count, self, product, self_factor, product_factor));
  return px__tensor_to(out, count, PX_BOOL, PX_DEVICE_NONE);
}
PX_RUN(addr) {
  PX_SCOPED(px_tensor) product = NULL;
  px_dtype dtype = (px_dtype)args->self->dtype;
  PX_TRY(check_broadcast(args->self, args->vec1->numel, args->vec2->numel));
  if ((dtype == PX_FLOAT16 || dtype == PX_BFLOAT16) && args->vec1->dtype == dtype &&
      args->vec2->dtype == dtype)
    return px__formula_addr_of_halves(call->results, call->args);
  PX_TRY(px_outer(&product, args->vec1, args->vec2));
  if (args->self->dtype == PX_BOOL && product->dtype == PX_BOOL)
    return or_of_bools(&call->results[0], args->self, product, args->beta, args->alpha);
  return sum_of(&call->results[0], args->self, product, args->beta, args->alpha);
}

// ---- operands of any shape

// Sizes of t with a size of 1 before (odd = 1) or after (odd = 0) each of its own.
static void interleave_ones(int64_t sizes[2 * PX_MAX_DIMS], const px_tensor *t, int ndim, int odd) {
  for (int d = 0; d < 2 * ndim; d++) sizes[d] = 1;
  for (int d = 0; d < t->ndim; d++) sizes[2 * (ndim - t->ndim + d) + odd] = t->sizes[d];
}
PX_RUN(kron) {
  const px_tensor *a = args->self, *b = args->other;
  int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
  int64_t sizes[PX_MAX_DIMS], left[2 * PX_MAX_DIMS], right[2 * PX_MAX_DIMS];
  PX_TRY(px__check_ndim(2 * (int64_t)ndim));
  for (int d = 0; d < ndim; d++) {
    int da = d - ndim + a->ndim, db = d - ndim + b->ndim;
    bool over = px__mul_size(da < 0 ? 1 : a->sizes[da], db < 0 ? 1 : b->sizes[db], &sizes[d]);
    PX_CHECK(!over, PX_RUNTIME, "kron: the result has too many elements");
  }
  interleave_ones(left, a, ndim, 0);
  interleave_ones(right, b, ndim, 1);
  return px__formula_kron_of(
      call->results, (px_value[]){PX_T(args->self), PX_T(args->other), PX_IS(left, 2 * ndim),
                                  PX_IS(right, 2 * ndim), PX_IS(sizes, ndim)});
}

// ---- tensordot

// Contracted and free dimensions of one operand.
typedef struct contraction {
  uint64_t contracted;
  int64_t order[PX_MAX_DIMS];          // permutation; contracted ones last (left) or first (right)
  int64_t free_size, contracted_size;  // products of the free and contracted sizes
} contraction;
static px_status read_dims(contraction *s, const px_tensor *t, px_value dims) {
  s->contracted = 0;
  for (int i = 0, at; i < dims.n; i++) {
    PX_TRY(px__wrap_size_dim(&at, dims.v.ints[i], t->ndim));
    PX_CHECK(!(s->contracted >> at & 1), PX_RUNTIME,
             "dim %d appears multiple times in the list of dims", at);
    s->contracted |= (uint64_t)1 << at;
  }
  return PX_OK;
}
static void order_dims(contraction *s, const px_tensor *t, px_value dims, bool contracted_last) {
  int n = 0, free_dims = t->ndim - dims.n;
  s->free_size = s->contracted_size = 1;
  for (int d = 0; d < t->ndim; d++) {
    if (s->contracted >> d & 1) continue;
    s->order[(contracted_last ? 0 : dims.n) + n++] = d;
    s->free_size = px__product(s->free_size, t->sizes[d]);
  }
  for (int i = 0; i < dims.n; i++) {
    int64_t d = dims.v.ints[i] < 0 ? dims.v.ints[i] + t->ndim : dims.v.ints[i];
    s->order[(contracted_last ? free_dims : 0) + i] = d;
    s->contracted_size = px__product(s->contracted_size, t->sizes[d]);
  }
}
// Requires equal contracted sizes, or 1 for one operand; the other is then summed first.
static px_status match_sizes(px_tensor **a, px_tensor **b, px_value dims_a, px_value dims_b) {
  for (int i = 0; i < dims_a.n; i++) {
    int64_t da = dims_a.v.ints[i], db = dims_b.v.ints[i];
    int64_t na = (*a)->sizes[da < 0 ? da + (*a)->ndim : da];
    int64_t nb = (*b)->sizes[db < 0 ? db + (*b)->ndim : db];
    px_tensor *sum = NULL, **longer = nb == 1 ? a : b;
    if (na == nb) continue;
    PX_CHECK(na == 1 || nb == 1, PX_RUNTIME,
             "contracted dimensions need to match, but first has size %lld in dim %lld and second "
             "has size %lld in dim %lld",
             (long long)na, (long long)da, (long long)nb, (long long)db);
    PX_TRY(px_sum(&sum, *longer, longer == a ? &da : &db, 1, true, (px_dtype)(*longer)->dtype));
    px_release(*longer);
    *longer = sum;
  }
  return PX_OK;
}
PX_RUN(tensordot) {
  PX_SCOPED(px_tensor) a = px_retain(args->self);
  PX_SCOPED(px_tensor) b = px_retain(args->other);
  int64_t sizes[2 * PX_MAX_DIMS];
  contraction x, y;
  int n = 0;
  PX_TRY(read_dims(&x, a, args->dims_self));
  PX_TRY(read_dims(&y, b, args->dims_other));
  PX_TRY(match_sizes(&a, &b, args->dims_self, args->dims_other));
  order_dims(&x, a, args->dims_self, true);
  order_dims(&y, b, args->dims_other, false);
  for (int d = 0; d < a->ndim; d++)
    if (!(x.contracted >> d & 1)) sizes[n++] = a->sizes[d];
  for (int d = 0; d < b->ndim; d++)
    if (!(y.contracted >> d & 1)) sizes[n++] = b->sizes[d];
  PX_TRY(px__check_ndim(n));
  const int64_t left[] = {x.free_size, x.contracted_size};
  const int64_t right[] = {y.contracted_size, y.free_size};
  return px__formula_contraction(
      call->results,
      (px_value[]){PX_T(a), PX_T(b), PX_IS(x.order, a->ndim), PX_IS(y.order, b->ndim),
                   PX_IS(left, 2), PX_IS(right, 2), PX_IS(sizes, n)});
}

// ---- vector products

PX_RUN(cross) {
  const px_tensor *self = args->self;
  if (px__given(args->dim))
    return px_linalg_cross(&call->results[0], self, args->other, args->dim.v.i);
  static bool warned;
  if (px__warns(&warned))
    PX_TRY(
        px_warn(PX_WARN_USER,
                "Using torch.cross without specifying the dim arg is deprecated.\nPlease either "
                "pass the dim explicitly or simply use torch.linalg.cross.\nThe default value of "
                "dim will change to agree with that of linalg.cross in a future release."));
  for (int d = 0; d < self->ndim; d++)
    if (self->sizes[d] == 3) return px_linalg_cross(&call->results[0], self, args->other, d);
  PX_FAIL(PX_RUNTIME, "no dimension of size 3 in input");
}
