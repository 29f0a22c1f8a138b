// SPDX-License-Identifier: Apache-2.0
// Composites that join: stacks, block_diag, cartesian_prod, combinations. Also coordinates, copies
// with strides and filled diagonals.
#include "formulas.h"
#include "hidden/arithmetic.h"
#include "hidden/index.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "run_functions/index.h"
#include "run_functions/view.h"

// ---- stacks

static px_status column(px_tensor **out, const px_tensor *t) {
  if (t->ndim < 2) return px_reshape(out, t, (const int64_t[]){t->numel, 1}, 2);
  *out = px_retain((px_tensor *)t);
  return PX_OK;
}

// Applies `part` to each tensor and joins the results.
typedef px_status part_fn(px_tensor **out, const px_tensor *t, void *context);
typedef px_status join_fn(px_tensor **out, px_tensor *const *items, int64_t n, int64_t dim);
static px_status joined(px_tensor **out, px_value list, part_fn *part, void *context, join_fn *join,
                        int64_t dim) {
  px_tensor **items = NULL;
  px_status status = PX_OK;
  int made = 0;
  PX_TRY(px__alloc((void **)&items, (size_t)list.n * sizeof *items));
  for (; made < list.n && status == PX_OK; made++)
    status = part(&items[made], list.v.tensors[made], context);
  if (status == PX_OK) status = join(out, items, list.n, dim);
  for (int i = 0; i < made; i++) px_release(items[i]);
  px__free(items);
  return status;
}

typedef px_status widen_fn(px_tensor **out, const px_tensor *t);
static px_status widened(px_tensor **out, const px_tensor *t, void *widen) {
  return (*(widen_fn **)widen)(out, t);
}
static px_status cat_widened(px_tensor **out, px_value list, widen_fn *widen, int dim) {
  return joined(out, list, widened, &widen, px_cat, dim);
}
PX_RUN(hstack) {
  bool flat = args->tensors.v.tensors[0]->ndim <= 1;
  return cat_widened(&call->results[0], args->tensors, px_atleast_1d, flat ? 0 : 1);
}
PX_RUN(vstack) { return cat_widened(&call->results[0], args->tensors, px_atleast_2d, 0); }
PX_RUN(dstack) { return cat_widened(&call->results[0], args->tensors, px_atleast_3d, 2); }
PX_RUN(column_stack) { return cat_widened(&call->results[0], args->tensors, column, 1); }

// ---- coordinates

// Coordinate along one dimension from flat indices. Multiplies *unit by the dimension's size.
static px_status coordinate(px_tensor **out, const px_tensor *flat_index, int64_t *unit,
                            int64_t size) {
  PX_SCOPED(px_tensor) quotient = NULL;
  PX_TRY(px_floor_divide_scalar(&quotient, flat_index, px_int(*unit)));
  PX_CHECK(!px__mul_size(*unit, size ? size : 1, unit), PX_RUNTIME,
           "unravel_index: the shape has too many elements");
  return px_remainder_scalar(out, quotient, px_int(size));
}
// Stacks the coordinates and returns them as views of one tensor.
static px_status stack_coordinates(px_list **out, px_tensor *const *items, int n) {
  PX_SCOPED(px_tensor) all = NULL;
  PX_TRY(px_stack(&all, items, n, -1));
  return px_unbind(out, all, -1);
}
PX_RUN(unravel_index) {
  const px_tensor *flat_index = args->indices;
  px_tensor *items[PX_MAX_DIMS];
  int n = args->shape.n, made = n;
  int64_t unit = 1;
  px_dtype dtype = (px_dtype)flat_index->dtype;
  PX_CHECK(!px_dtype_is_float(dtype) && !px_dtype_is_complex(dtype) && dtype != PX_BOOL, PX_TYPE,
           "expected 'indices' to be integer dtype, but got torch.%s", px_dtype_name(dtype));
  PX_TRY(px__check_ndim(n));
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px__tensor_to(&wide, flat_index, PX_INT64, PX_DEVICE_NONE));
  px_status status = PX_OK;
  while (made > 0 && status == PX_OK) {
    status = coordinate(&items[made - 1], wide, &unit, args->shape.v.ints[made - 1]);
    if (status == PX_OK) made--;
  }
  if (status == PX_OK)
    status = n ? stack_coordinates(&call->list, items, n) : px_list_new(&call->list, items, n);
  for (int i = made; i < n; i++) px_release(items[i]);
  return status;
}

// ---- copies with strides

// Copies self with its strides, gaps included. Row-major if elements share memory.
PX_RUN(_clone_strided) {
  const px_tensor *t = args->self;
  for (int d = 0; d < t->ndim; d++)
    if (t->sizes[d] > 1 && t->strides[d] == 0) return px_clone(&call->results[0], t, NULL);
  PX_TRY(px_empty_strided(&call->results[0], t->sizes, t->ndim, t->strides, t->ndim, t->dtype,
                          px_tensor_device(t), false, false));
  return px__tensor_copy(call->results[0], t, false);
}

// storage_offset counts from the storage of self.
PX_RUN(as_strided_scatter) {
  const px_tensor *self = args->self;
  int64_t strides[PX_MAX_DIMS];
  bool expanded = false;
  for (int d = 0; d < self->ndim; d++) expanded |= self->sizes[d] > 1 && self->strides[d] == 0;
  px__row_major(self->ndim, self->sizes, strides);
  return px__as_strided_scatter(
      &call->results[0], self, args->src, args->size.v.ints, args->size.n, args->stride.v.ints,
      args->stride.n, px__given(args->storage_offset) ? args->storage_offset.v.i - self->offset : 0,
      expanded ? strides : self->strides, self->ndim);
}
// View of the diagonal over all dimensions. `again`: the next diagonal of a tall matrix, starting
// one row after the end of the first.
static px_status full_diagonal(px_tensor **out, const px_tensor *self, bool second) {
  int64_t smallest = self->sizes[0], stride = 0, offset;
  for (int d = 0; d < self->ndim; d++) {
    if (self->sizes[d] < smallest) smallest = self->sizes[d];
    stride += self->strides[d];
  }
  offset = self->offset;
  if (second) {
    int64_t step = self->sizes[1] + 1;
    smallest = (self->numel + step - 1) / step - smallest;
    offset += self->strides[0] * step;
  }
  return px_as_strided(out, self, &smallest, 1, &stride, 1, &offset);
}
// Fills with a tensor or, without one, a number.
static px_status fill_with(px_tensor *t, const px_tensor *value, px_scalar number) {
  return value ? px_copy_(t, value, false) : px_fill_(t, number);
}
static px_status fill_diagonal(px_call *call, px_tensor *self, const px_tensor *value,
                               px_scalar number, bool wrap) {
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  for (int d = 1; d < self->ndim && self->ndim > 2; d++)
    PX_CHECK(self->sizes[d] == self->sizes[0], PX_RUNTIME,
             "all dimensions of input must be of equal length");
  PX_TRY(full_diagonal(&line, self, false));
  bool wraps = wrap && self->ndim == 2 && self->sizes[0] > self->sizes[1] + 1;
  if (wraps) PX_TRY(full_diagonal(&below, self, true));
  PX_TRY(fill_with(line, value, number));
  if (wraps) PX_TRY(fill_with(below, value, number));
  call->results[0] = px_retain(self);
  return PX_OK;
}
PX_RUN(fill_diagonal) {
  return fill_diagonal(call, args->self, NULL, args->fill_value, args->wrap);
}
PX_RUN(fill_diagonal_of_complex) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px__complex_number(&value, args->fill_value, (px_dtype)args->self->dtype));
  return fill_diagonal(call, args->self, value, px_no_scalar(), args->wrap);
}

// ---- blocks and set products

// Common dtype of the blocks, their total columns, and the columns before the next block.
typedef struct blocks {
  px_dtype dtype;
  int64_t columns, before;
} blocks;
static int64_t columns_of(const px_tensor *t) { return t->ndim ? t->sizes[t->ndim - 1] : 1; }
static px_status measure_blocks(blocks *all, px_value list) {
  *all = (blocks){.dtype = (px_dtype)list.v.tensors[0]->dtype};
  for (int i = 0; i < list.n; i++) {
    const px_tensor *t = list.v.tensors[i];
    PX_CHECK(t->ndim <= 2, PX_RUNTIME,
             "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input %d has %d "
             "dimensions",
             i, t->ndim);
    all->columns = px__sum(all->columns, columns_of(t));
    PX_TRY(px_dtype_promote_or_fail(&all->dtype, all->dtype, (px_dtype)t->dtype));
  }
  return PX_OK;
}
// Pads a block with zeros on both sides.
static px_status pad_block(px_tensor **out, const px_tensor *t, void *context) {
  blocks *all = context;
  int64_t before = all->before;
  all->before = px__sum(before, columns_of(t));
  return px__formula_padded_block(out, (px_value[]){PX_T(t), PX_DT(all->dtype), PX_I(before),
                                                    PX_I(all->columns - all->before)});
}
PX_RUN(block_diag) {
  px_value list = args->tensors;
  int64_t empty[2] = {1, 0};
  blocks all;
  if (!list.n) return px_zeros(&call->results[0], empty, 2, PX_DTYPE_NONE, px_cpu(), false, false);
  PX_TRY(measure_blocks(&all, list));
  return joined(&call->results[0], list, pad_block, &all, px_cat, 0);
}

// One column of the product: each element repeats for all combinations of later sets, and the whole
// set for all combinations of earlier ones.
typedef struct rows_of_product {
  int64_t all, before;
} rows_of_product;
static px_status product_column(px_tensor **out, const px_tensor *t, void *context) {
  rows_of_product *rows = context;
  int64_t size = t->numel, inner = rows->all ? rows->all / rows->before / size : 0;
  int64_t before = rows->before;
  rows->before *= size;
  return px__formula_product_column(
      out, (px_value[]){PX_T(t), PX_I(before), PX_I(inner), PX_I(rows->all)});
}
PX_RUN(cartesian_prod) {
  px_value list = args->tensors;
  char text[128];
  rows_of_product rows = {1, 1};
  for (int i = 0; i < list.n; i++) {
    const px_tensor *t = list.v.tensors[i];
    PX_CHECK(t->ndim == 1, PX_RUNTIME, "Expect a 1D vector, but got shape %s",
             px__size_text(text, sizeof text, t));
    PX_CHECK(!px__mul_size(rows.all, t->numel, &rows.all), PX_RUNTIME,
             "cartesian_prod: too many elements");
  }
  if (list.n == 1) return call->results[0] = px_retain(list.v.tensors[0]), PX_OK;
  return joined(&call->results[0], list, product_column, &rows, px_stack, 1);
}

// Advances to the next ascending row of r numbers below n; false after the last. `repeats`: numbers
// may repeat.
static bool next_choice(int64_t *row, int64_t r, int64_t n, bool repeats) {
  int64_t k = r - 1;
  while (k >= 0 && row[k] == (repeats ? n - 1 : n - r + k)) k--;
  if (k < 0) return false;
  row[k]++;
  for (int64_t i = k + 1; i < r; i++) row[i] = repeats ? row[k] : row[i - 1] + 1;
  return true;
}
static px_status count_choices(int64_t *count, int64_t n, int64_t r, bool repeats) {
  int64_t from = repeats ? px__sum(n - 1, r) : n, made = 1;
  *count = 0;
  if ((!repeats && r > n) || (repeats && n == 0)) return PX_OK;
  int64_t smallest = r < from - r ? r : from - r;
  for (int64_t i = 1; i <= smallest; i++) {
    PX_CHECK(!px__mul_size(made, from - smallest + i, &made), PX_RUNTIME,
             "combinations: too many rows");
    made /= i;
  }
  *count = made;
  return PX_OK;
}
PX_RUN(combinations) {
  const px_tensor *self = args->self;
  int64_t r = args->r, n = self->numel, count, none = 0;
  PX_SCOPED(px_tensor) rows = NULL;
  px_device device = px__tensor_device(self);
  if (r == 0)
    return px_zeros(&call->results[0], &none, 1, (px_dtype)self->dtype, device, false, false);
  PX_TRY(count_choices(&count, n, r, args->with_replacement));
  int64_t sizes[2] = {count, r};
  PX_TRY(px_tensor_empty(&rows, 2, sizes, PX_INT64, px_cpu()));
  int64_t *to = px__tensor_at(rows);
  for (int64_t i = 0; i < r && count; i++) to[i] = args->with_replacement ? 0 : i;
  for (int64_t k = 1; k < count; k++) {
    for (int64_t i = 0; i < r; i++) to[k * r + i] = to[(k - 1) * r + i];
    next_choice(to + k * r, r, n, args->with_replacement);
  }
  return px__formula_picked(call->results, (px_value[]){PX_T(args->self), PX_T(rows)});
}
