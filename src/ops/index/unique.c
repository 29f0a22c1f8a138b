// SPDX-License-Identifier: Apache-2.0
// Run functions of unique. Sorting makes equal rows adjacent (unique_consecutive does not sort). A
// row different from its predecessor starts a group. NaN is not equal to NaN, as in PyTorch. They
// are in C because kernels serve some dtypes, whose results are shrunk in place.
#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/sort.h"
#include "phlox/ops/view.h"
#include "run_functions/sort.h"

// Rows to group: the elements of a flat tensor, or the rows of a matrix. `order` holds the index of
// each row before sorting; NULL if the rows are not sorted.
typedef struct groups {
  px_tensor *rows, *order;  // owned
  int inverse_ndim;
  const int64_t *inverse_sizes;
  bool inverse, counts;  // requested results
} groups;
static void groups_end(groups *g) {
  px_release(g->rows);
  px_release(g->order);
}
#define GROUPS __attribute__((cleanup(groups_end))) groups

static px_status full_vector(px_tensor **out, const px_tensor *like, int64_t n, px_scalar value,
                             px_dtype dtype) {
  return px_full(out, &n, 1, value, dtype, px__tensor_device(like), false, false);
}

static px_status set_results(px_call *call, const groups *g) {
  return px__formula_grouped(call->results, (px_value[]){PX_T(g->rows), PX_T(g->order),
                                                         PX_IS(g->inverse_sizes, g->inverse_ndim),
                                                         PX_B(g->inverse), PX_B(g->counts)});
}

static px_status flat(px_tensor **out, const px_tensor *t) {
  return px_reshape(out, t, &t->numel, 1);
}

// The first n elements of a fresh tensor. Shrinks the tensor in place, unless more than half of its
// memory would be unused. Then it is copied.
static px_status take_first(px_tensor **out, px_tensor *values, int64_t n) {
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(px_narrow(&part, values, 0, 0, n));
  if (n < values->numel / 2) return px_clone(out, part, NULL);
  PX_TRY(px__tensor_take_geometry(values, part));
  *out = px_retain(values);
  return PX_OK;
}

// Without an inverse, a kernel avoids sorting repeated elements.
static px__named_kernel distinct_kernel = {.name = "distinct"};
static px_status distinct(px_call *call, px_tensor *elements, bool wants_counts) {
  px_device device = px__tensor_device(elements);
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) counts = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  px_scalar n;
  PX_TRY(px_tensor_empty(&values, 1, elements->sizes, (px_dtype)elements->dtype, device));
  if (wants_counts) PX_TRY(px_tensor_empty(&counts, 1, elements->sizes, PX_INT64, device));
  PX_TRY(px_tensor_empty(&number, 0, NULL, PX_INT64, device));
  px_tensor *results[] = {values, counts, number};
  PX_TRY(px__run_kernel(&distinct_kernel, device, 3, results, 1, &elements, NULL, 0));
  PX_TRY(px_tensor_item(&n, number));
  PX_TRY(take_first(&call->results[0], values, px_scalar_int(n)));
  PX_TRY(full_vector(&call->results[1], elements, 0, px_int(0), PX_INT64));
  if (!counts) return full_vector(&call->results[2], elements, 0, px_int(0), PX_INT64);
  return take_first(&call->results[2], counts, px_scalar_int(n));
}

// Unsigned dtypes without arithmetic are mapped to int64 of the same order.
static px_status unique_unsigned(px_call *call, const px_tensor *t, const int64_t *dim,
                                 bool inverse, bool counts) {
  PX_SCOPED(px_tensor) signed_ = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_TRY(px__to_ordered(&signed_, t));
  px_tensor **inverse_out = &call->results[1], **count_out = &call->results[2];
  PX_TRY(dim ? px_unique_dim(&values, inverse_out, count_out, signed_, *dim, true, inverse, counts)
             : px_unique(&values, inverse_out, count_out, signed_, true, inverse, counts));
  return px__from_ordered(&call->results[0], values, (px_dtype)t->dtype);
}

PX_RUN(unique) {
  const px_tensor *t = args->self;
  if (px__is_unsigned((px_dtype)t->dtype))
    return unique_unsigned(call, t, NULL, args->return_inverse, args->return_counts);
  PX_SCOPED(px_tensor) elements = NULL;
  GROUPS g = {.inverse_ndim = t->ndim,
              .inverse_sizes = t->sizes,
              .inverse = args->return_inverse,
              .counts = args->return_counts};
  PX_TRY(flat(&elements, t));
  if (!g.inverse && t->numel &&
      px__named_kernel_on(&distinct_kernel, (px_device_type)px__tensor_device(t).type))
    return distinct(call, elements, g.counts);
  PX_TRY(px_sort(&g.rows, &g.order, elements, 0, false, true));
  return set_results(call, &g);
}

// ---- along a dimension

// Reshapes t to a matrix with one row for each index along dim. *turned is t with dim first.
static px_status as_rows(px_tensor **out, px_tensor **moved, const px_tensor *t, int dim) {
  int64_t zero = 0, from = dim, empties = 0;
  for (int d = 0; d < t->ndim; d++) empties += t->sizes[d] == 0;
  PX_CHECK(empties == 0 || (empties == 1 && t->sizes[dim] == 0), PX_RUNTIME,
           "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  PX_TRY(px_movedim(moved, t, &from, 1, &zero, 1));
  int64_t n = (*moved)->sizes[0];
  int64_t columns = px__sizes_product((*moved)->sizes + 1, (*moved)->ndim - 1);
  return px_reshape(out, *moved, (int64_t[]){n, columns}, 2);
}

static px_status unique_along(px_call *call, const px_tensor *t, int64_t dim_arg, bool sorts,
                              bool inverse, bool counts) {
  int dim;
  PX_SCOPED(px_tensor) moved = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_TRY(px__wrap_dim(&dim, dim_arg, t->ndim));
  PX_CHECK(t->ndim > 0, PX_RUNTIME, "unique: a 0-dim tensor has no dimensions");
  PX_TRY(as_rows(&rows, &moved, t, dim));
  GROUPS g = {
      .inverse_ndim = 1, .inverse_sizes = rows->sizes, .inverse = inverse, .counts = counts};
  if (sorts && rows->sizes[0]) {
    PX_TRY(px__formula_lexicographic(&g.order, (px_value[]){PX_T(rows)}));
    PX_TRY(px_index_select(&g.rows, rows, 0, g.order));
  } else {
    g.rows = px_retain(rows);
  }
  PX_TRY(set_results(call, &g));
  PX_SCOPED(px_tensor) values = PX_MOVE(call->results[0]);
  return px__formula_slices_of(call->results, (px_value[]){PX_T(values), PX_T(moved), PX_I(dim)});
}

PX_RUN(unique_dim) {
  if (px__is_unsigned((px_dtype)args->self->dtype))
    return unique_unsigned(call, args->self, &args->dim, args->return_inverse, args->return_counts);
  return unique_along(call, args->self, args->dim, true, args->return_inverse, args->return_counts);
}

static px__named_kernel kinds_kernel = {.name = "kinds"};
static bool has_kinds_kernel(const px_tensor *t) {
  bool plain = t->dtype >= PX_UINT8 && t->dtype <= PX_INT64;
  plain |= t->dtype == PX_FLOAT32 || t->dtype == PX_FLOAT64;
  return plain && t->numel &&
         px__named_kernel_on(&kinds_kernel, (px_device_type)px__tensor_device(t).type);
}
static px_status kinds(px_call *call, const groups *g) {
  px_device device = px__tensor_device(g->rows);
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) counts = NULL;
  PX_SCOPED(px_tensor) inverse_out = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  px_scalar n;
  PX_TRY(px_contiguous(&plain, g->rows));
  PX_TRY(px_tensor_empty(&values, 1, plain->sizes, (px_dtype)plain->dtype, device));
  if (g->counts) PX_TRY(px_tensor_empty(&counts, 1, plain->sizes, PX_INT64, device));
  if (g->inverse)
    PX_TRY(px_tensor_empty(&inverse_out, g->inverse_ndim, g->inverse_sizes, PX_INT64, device));
  PX_TRY(px_tensor_empty(&number, 0, NULL, PX_INT64, device));
  px_tensor *results[] = {values, counts, inverse_out, number};
  PX_TRY(px__run_kernel(&kinds_kernel, device, 4, results, 1, &plain, NULL, 0));
  PX_TRY(px_tensor_item(&n, number));
  PX_TRY(take_first(&call->results[0], values, px_scalar_int(n)));
  if (inverse_out)
    call->results[1] = PX_MOVE(inverse_out);
  else
    PX_TRY(full_vector(&call->results[1], plain, 0, px_int(0), PX_INT64));
  return counts ? take_first(&call->results[2], counts, px_scalar_int(n))
                : full_vector(&call->results[2], plain, 0, px_int(0), PX_INT64);
}
PX_RUN(unique_consecutive) {
  const px_tensor *t = args->self;
  bool inverse = args->return_inverse, counts = args->return_counts;
  if (px__given(args->dim)) return unique_along(call, t, args->dim.v.i, false, inverse, counts);
  GROUPS g = {
      .inverse_ndim = t->ndim, .inverse_sizes = t->sizes, .inverse = inverse, .counts = counts};
  PX_TRY(flat(&g.rows, t));
  return has_kinds_kernel(g.rows) ? kinds(call, &g) : set_results(call, &g);
}
