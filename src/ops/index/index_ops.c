// SPDX-License-Identifier: Apache-2.0
// Indexing ops: shapes and checks. index.c moves the elements.
#include "formulas.h"
#include "hidden/view.h"
#include "ops/index/index_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/statistics.h"
#include "phlox/ops/view.h"
#include "run_functions/index.h"

// Writes the form of an index tensor: expanded to the index dimensions, with dimensions of size 1
// around them whose strides are those of a reshape.
static px__form form_of_index(const px__index_loop *p, int i, int width, int64_t *sizes) {
  const px_tensor *index = p->index[i];
  int64_t *strides = sizes + PX_MAX_DIMS;
  int first = p->ends[i] - width, own = first + width - index->ndim;
  for (int d = first; d < p->ends[i]; d++) {
    bool expanded = d < own || (index->sizes[d - own] == 1 && p->sizes[d] != 1);
    sizes[d] = p->sizes[d], strides[d] = expanded ? 0 : index->strides[d - own];
  }
  for (int d = 0; d < first; d++)
    sizes[d] = 1, strides[d] = width ? sizes[first] * strides[first] : 1;
  for (int d = p->ends[i]; d < p->ndim; d++)
    sizes[d] = 1, strides[d] = width ? strides[p->ends[i] - 1] : 1;
  return (px__form){p->ndim, sizes, strides};
}

// Makes the result of x[i, j] with the strides of an elementwise op over the part of self that is
// read, whose strides are 0 in index dimensions, and the index tensors.
__attribute__((noinline)) static px_status empty_like_parts(px_call *call, const px__index_loop *p,
                                                            const px_tensor *self) {
  int64_t made[PX_MAX_DIMS];
  int width = 0;
  px__layout l = {p->ndim, 1, .sizes = p->sizes, .of = {{p->ndim, p->sizes, p->strides}}};
  PX__INTS(room);
  PX_TRY(px__ints_reserve(&room, (int64_t)2 * p->count * PX_MAX_DIMS));
  for (int i = 0; i < p->count; i++)
    if (p->index[i]->ndim > width) width = p->index[i]->ndim;
  for (int i = 0; i < p->count; i++)
    l.of[l.n++] = form_of_index(p, i, width, room.at + (size_t)2 * i * PX_MAX_DIMS);
  px__layout_strides(made, &l);
  return px_tensor_empty_strided(&call->results[0], p->ndim, p->sizes, made, (px_dtype)self->dtype,
                                 call->device);
}

// ---- get and put, releasing the indexing state in all cases

static px_status get(px_call *call, px__index_loop *p, px_status made, const px_tensor *self) {
  // cppcheck-suppress uninitvar ; initialised if `made` is PX_OK
  if (made == PX_OK) made = px__call_result(call, 0, p->ndim, p->sizes, (px_dtype)self->dtype);
  if (made == PX_OK) made = px__index_loop_get(p, call->results[0], self);
  px__index_loop_release(p);
  return made;
}

static px_status put(px__index_loop *p, px_status made, px_tensor *to, const px_tensor *values,
                     bool add) {
  if (made == PX_OK) made = px__index_loop_put(p, to, values, add);
  px__index_loop_release(p);
  return made;
}

// ---- x[i, j]

PX_RUN(index) {
  px__index_loop p;
  const px_tensor *self = args->self;
  px_status made = px__index_advanced(&p, self, args->indices, args->dims);
  bool contiguous = self->contiguous;
  for (int i = 0; made == PX_OK && i < p.count; i++) contiguous &= p.index[i]->contiguous;
  if (made == PX_OK && !contiguous && !call->given[0]) made = empty_like_parts(call, &p, self);
  return get(call, &p, made, self);
}

PX_RUN(index_backward) {
  px__index_loop p;
  PX_TRY(px__zeros_of(&call->results[0], args->grad_output, args->input_sizes));
  px_tensor *to = call->results[0];
  return put(&p, px__index_advanced(&p, to, args->indices, args->dims), to, args->grad_output,
             true);
}

// Converts a number or 0-dim value to self's device and dtype. Other values must match already.
static px_status value_for(px_tensor **out, const px_tensor *values, const px_tensor *self) {
  px_device d = px__tensor_device(self);
  if (px__flags(values) & PX_TENSOR_WRAPPED)
    return px__tensor_to(out, values, (px_dtype)self->dtype, d);
  PX_CHECK(values->dtype == self->dtype, PX_RUNTIME,
           "Index put requires the source and destination dtypes match, got %s for the destination "
           "and %s for the source.",
           px_dtype_class((px_dtype)self->dtype), px_dtype_class((px_dtype)values->dtype));
  bool same_device = px_device_equal(px__tensor_device(values), d) ||
                     (values->ndim == 0 && px__tensor_device(values).type == PX_CPU);
  char a[PX_DEVICE_TEXT], b[PX_DEVICE_TEXT];
  PX_CHECK(same_device, PX_RUNTIME,
           "Expected all tensors to be on the same device, but found at least two devices, %s and "
           "%s!",
           px_device_format(d, a), px_device_format(px__tensor_device(values), b));
  return px__tensor_to(out, values, PX_DTYPE_NONE, d);
}

PX_RUN(index_put) {
  px__index_loop p;
  PX_SCOPED(px_tensor) values = NULL;
  PX_TRY(value_for(&values, args->values, args->self));
  PX_TRY(px__start_from_self(call, args->self));
  px_tensor *to = call->results[0];
  return put(&p, px__index_advanced(&p, to, args->indices, args->dims), to, values,
             args->accumulate);
}

// ---- flat indices

PX_RUN(take) {
  px__index_loop p;
  PX_SCOPED(px_tensor) self = NULL;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px_contiguous(&self, args->self));
  return get(call, &p, px__index_flat(&p, self, args->index), self);
}

PX_RUN(take_backward) {
  px__index_loop p;
  PX_TRY(px__zeros_of(&call->results[0], args->grad_output, args->input_sizes));
  px_tensor *to = call->results[0];
  return put(&p, px__index_flat(&p, to, args->index), to, args->grad_output, true);
}

// ---- indices of one dimension

PX_RUN(index_select) {
  px__index_loop p;
  int dim;
  const px_tensor *self = args->self;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  return get(call, &p, px__index_dim(&p, self, dim, args->index), self);
}

PX_RUN(index_select_backward) {
  px__index_loop p;
  int dim;
  PX_TRY(px__zeros_of(&call->results[0], args->grad_output, args->input_sizes));
  px_tensor *to = call->results[0];
  PX_TRY(px__wrap_dim(&dim, args->dim, to->ndim));
  return put(&p, px__index_dim(&p, to, dim, args->index), to, args->grad_output, true);
}

static px_status check_source(const px_call *call, const px_tensor *self, int dim,
                              const px_tensor *index, const px_tensor *source, bool add) {
  int64_t n = source->ndim ? source->sizes[dim] : 1;
  bool one = source->ndim > 0 || index->numel == 1;
  PX_CHECK(one || add, PX_INDEX,
           "index_copy_(): When source is scalar, index should have one element (got %lld)",
           (long long)index->numel);
  PX_CHECK(one, PX_INDEX, "Dimension specified as %d but tensor has no dimensions", dim);
  PX_CHECK(index->numel == n, PX_RUNTIME,
           "%s(): Number of indices (%lld) should be equal to source.size(dim): (%lld)",
           call->op->name, (long long)index->numel, (long long)n);
  for (int d = 0; d < self->ndim; d++)
    PX_CHECK(d == dim || self->sizes[d] == source->sizes[d], PX_RUNTIME,
             "%s(): Source/destination tensor must have same slice shapes except at dimension %d",
             call->op->name, dim);
  return PX_OK;
}

// `source` is the caller's tensor; `values` are the elements to store.
typedef struct slices {
  px_tensor *self, *index, *source;
  int64_t dim;
} slices;
static px_status put_slices(px_call *call, const slices *s, const px_tensor *values, bool add) {
  px__index_loop p;
  int dim;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__wrap_dim(&dim, s->dim, s->self->ndim));
  PX_TRY(check_source(call, s->self, dim, s->index, s->source, add));
  PX_TRY(px__start_row_major(call, s->self));
  px_tensor *to = call->results[0];
  return put(&p, px__index_dim(&p, to, dim, s->index), to, values, add);
}

// Rounds a number to an element of a dtype. Integers drop the fraction.
static px_scalar as_element(px_scalar number, px_dtype dtype) {
  char bytes[16];  // the widest elements
  px_scalar_store(number, dtype, bytes);
  return px_scalar_load(dtype, bytes);
}
PX_RUN(index_add) {
  px_scalar alpha = as_element(args->alpha, (px_dtype)args->self->dtype);
  PX_SCOPED(px_tensor) scaled = NULL;
  slices s = {args->self, args->index, args->source, args->dim};
  if (px_scalar_float(alpha) == 1) return put_slices(call, &s, s.source, true);
  PX_TRY(px_mul_scalar(&scaled, s.source, alpha));
  return put_slices(call, &s, scaled, true);
}

PX_RUN(index_copy) {
  slices s = {args->self, args->index, args->source, args->dim};
  return put_slices(call, &s, s.source, false);
}

px_status px__value_like(px_tensor **out, const px_tensor *like, px_scalar value) {
  PX_CHECK(px_scalar_fits(value, (px_dtype)like->dtype), PX_RUNTIME,
           "value cannot be converted to type %s without overflow",
           px_dtype_about((px_dtype)like->dtype)->c_name);
  return px_full(out, NULL, 0, value, (px_dtype)like->dtype, px__tensor_device(like), false, false);
}

static px_status fill_indexed(px_call *call, px_tensor *self, int64_t at, const px_tensor *index,
                              const px_tensor *value) {
  px__index_loop p;
  int dim;
  PX_TRY(px__wrap_dim(&dim, at, self->ndim));
  PX_TRY(px__start_from_self(call, self));
  px_tensor *to = call->results[0];
  px_status status = px__index_dim(&p, to, dim, index);
  p.wraps = true;
  return put(&p, status, to, value, false);
}
PX_RUN(index_fill) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__value_like(&value, args->self, args->value));
  return fill_indexed(call, args->self, args->dim, args->index, value);
}
PX_RUN(index_fill_tensor) {
  px_device device = px__tensor_device(args->self);
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px__check_value(args->value, device));
  PX_TRY(px__tensor_to(&value, args->value, (px_dtype)args->self->dtype, device));
  return fill_indexed(call, args->self, args->dim, args->index, value);
}

// ---- an index per element

// Fails unless `index` fits into `self` (called `name` in the text) in all dimensions but `dim`,
// and into `src` if given.
static px_status check_along(const px_call *call, const px_tensor *self, int dim,
                             const px_tensor *index, const px_tensor *src, const char *name) {
  char a[256], b[256], e[256];
  int n = self->ndim ? self->ndim : 1, have = index->ndim ? index->ndim : 1;
  if (index->numel == 0) return PX_OK;
  PX_CHECK(n == have, PX_RUNTIME,
           "Index tensor must have the same number of dimensions as %s tensor", name);
  PX_CHECK(!src || have == (src->ndim ? src->ndim : 1), PX_RUNTIME,
           "Index tensor must have the same number of dimensions as src tensor");
  for (int d = 0; d < index->ndim; d++) {
    int64_t max_tensor = self->ndim ? self->sizes[d] : 1;
    bool fits = (d == dim || index->sizes[d] <= max_tensor) &&
                (!src || index->sizes[d] <= (src->ndim ? src->sizes[d] : 1));
    if (fits) continue;
    px__sizes_text(a, sizeof a, index->ndim, index->sizes);
    px__sizes_text(b, sizeof b, self->ndim, self->sizes);
    PX_CHECK(src, PX_RUNTIME,
             "Size does not match at dimension %d expected index %s to be no larger than self %s "
             "apart from dimension %d",
             d, a, b, dim);
    PX_FAIL(PX_RUNTIME,
            "Expected index %s to be no larger than self %s apart from dimension %d and to be no "
            "larger size than src %s",
            a, b, dim, px__sizes_text(e, sizeof e, src->ndim, src->sizes));
  }
  return PX_OK;
}

// Converts an index to int64. An empty one may have any dtype.
static px_status long_index(px_tensor **out, const px_tensor *index, const char *name) {
  bool is_integer = index->dtype == PX_INT64 || index->dtype == PX_INT32;
  PX_CHECK(is_integer || !index->numel, PX_RUNTIME, "%s(): Expected dtype int32/int64 for index",
           name);
  return px__tensor_to(out, index, PX_INT64, px__tensor_device(index));
}

PX_RUN(gather) {
  px__index_loop p;
  int dim;
  PX_SCOPED(px_tensor) index = NULL;
  const px_tensor *self = args->self;
  PX_TRY(long_index(&index, args->index, "gather"));
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  PX_TRY(check_along(call, self, dim, index, NULL, "input"));
  return get(call, &p, px__index_along(&p, self, dim, index), self);
}

PX_RUN(gather_backward) {
  px__index_loop p;
  int dim;
  PX_SCOPED(px_tensor) index = NULL;
  PX_TRY(long_index(&index, args->index, "gather"));
  PX_TRY(px__zeros_of(&call->results[0], args->grad_output, args->input_sizes));
  px_tensor *to = call->results[0];
  PX_TRY(px__wrap_dim(&dim, args->dim, to->ndim));
  PX_TRY(check_along(call, to, dim, index, args->grad_output, "self"));
  return put(&p, px__index_along(&p, to, dim, index), to, args->grad_output, true);
}

static px_status put_along(px_tensor *to, int dim, const px_tensor *index, const px_tensor *values,
                           px_put_mode how) {
  px__index_loop p;
  px_status status = px__index_along(&p, to, dim, index);
  if (status == PX_OK) status = px__index_loop_combine(&p, to, values, how);
  px__index_loop_release(&p);
  return status;
}
px_status px__scatter(px_call *call, const px__scatter_call *s) {
  int dim;
  px_tensor *src = s->src;
  PX_SCOPED(px_tensor) index = NULL;
  PX_TRY(long_index(&index, s->index, "scatter"));
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__wrap_dim(&dim, s->dim, s->self->ndim));
  bool one = src->ndim == 0 && index->ndim != 0;
  PX_TRY(check_along(call, s->self, dim, index, one ? NULL : src, "self"));
  PX_CHECK(s->self->dtype == src->dtype, PX_RUNTIME,
           "scatter(): Expected self.dtype to be equal to src.dtype");
  if (one)
    part = px_retain(src);
  else if (index->numel)
    PX_TRY(px__tensor_view(&part, src, index->ndim, index->sizes, src->strides, src->offset));
  if (index->numel)
    PX_TRY(px__index_loop_check_dtype((px_dtype)src->dtype, s->how));  // before any is put
  PX_TRY(px__start_row_major(call, s->self));
  px_tensor *to = call->results[0];
  if (!index->numel) return PX_OK;
  if (s->first) PX_TRY(put_along(to, dim, index, s->first, PX_PUT_STORE));
  return put_along(to, dim, index, part, s->how);
}

PX_RUN(scatter) {
  PX_SCOPED(px_tensor) value = NULL;
  px__scatter_call s = {args->self, args->index, args->src, .dim = args->dim};
  if (px__flags(s.src) & PX_TENSOR_WRAPPED) {
    PX_TRY(value_for(&value, s.src, s.self));
    s.src = value;
  }
  return px__scatter(call, &s);
}

PX_RUN(scatter_value) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px__value_like(&value, args->self, args->value));
  px__scatter_call s = {args->self, args->index, value, .dim = args->dim};
  return px__scatter(call, &s);
}

PX_RUN(scatter_add) {
  px__scatter_call s = {args->self, args->index, args->src, args->dim, PX_PUT_ADD, NULL};
  return px__scatter(call, &s);
}

// ---- embedding tables

PX_RUN(embedding) {
  px__index_loop p;
  const px_tensor *input = args->input, *weight = args->weight;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  int64_t sizes[PX_MAX_DIMS];
  PX_CHECK(input->dtype == PX_INT64 || input->dtype == PX_INT32, PX_RUNTIME,
           "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
           "Long, Int; but got torch.%sTensor instead (while checking arguments for embedding)",
           px_dtype_class((px_dtype)input->dtype));
  char here[PX_DEVICE_TEXT], there[PX_DEVICE_TEXT];
  call->device = px__tensor_device(weight);
  PX_CHECK(px_device_equal(px__tensor_device(input), call->device), PX_RUNTIME,
           "Expected all tensors to be on the same device, but got index is on %s, different from "
           "other tensors on %s (when checking argument in method wrapper_CUDA__index_select)",
           px_device_format(px__tensor_device(input), here), px_device_format(call->device, there));
  PX_TRY(px__check_ndim(input->ndim + 1));
  PX_TRY(px_reshape(&flat, input, (const int64_t[]){-1}, 1));
  px_status made = px__index_dim(&p, weight, 0, flat);
  PX_TRY(get(call, &p, made, weight));
  memcpy(sizes, input->sizes, sizeof *sizes * (size_t)input->ndim);
  sizes[input->ndim] = weight->sizes[1];
  PX_TRY(px__unsafe_view(&rows, call->results[0], sizes, input->ndim + 1));
  px_release(call->results[0]);
  call->results[0] = PX_MOVE(rows);
  return PX_OK;
}

PX_RUN(one_hot) {
  const px_tensor *self = args->self;
  int64_t classes = args->num_classes, sizes[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) max_tensor = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  px_scalar highest;
  PX_TRY(px__check_ndim(self->ndim + 1));
  if (classes == -1) {
    PX_TRY(px__index_max(&max_tensor, self));
    PX_TRY(px_tensor_item(&highest, max_tensor));
    classes = px_scalar_int(highest) + 1;
    PX_CHECK(classes > 0, PX_RUNTIME, "Class values must be non-negative.");
  }
  memcpy(sizes, self->sizes, sizeof *sizes * (size_t)self->ndim);
  sizes[self->ndim] = classes;
  PX_TRY(px_zeros(&made, sizes, self->ndim + 1, PX_INT64, px__tensor_device(self), false, false));
  PX_TRY(px_unsqueeze(&column, self, -1));
  px_status status = px_scatter_value_(made, -1, column, px_int(1));
  // An invalid index, on the CPU. A device reports it later.
  if (status == PX_RUNTIME && px__tensor_device(self).type == PX_CPU) {
    PX_SCOPED(px_tensor) min_tensor = NULL;
    PX_TRY(px_min(&min_tensor, self));
    PX_TRY(px_tensor_item(&highest, min_tensor));
    PX_FAIL(PX_RUNTIME, "Class values must be %s.",
            px_scalar_int(highest) < 0 ? "non-negative" : "smaller than num_classes");
  }
  PX_TRY(status);
  call->results[0] = PX_MOVE(made);
  return PX_OK;
}

static px__named_kernel tally = {.name = "tally"};
// Minimum and maximum. Dtypes that the CPU compares directly are not converted to int64.
static px_status min_max_of(px_scalar *lowest, px_scalar *highest, const px_tensor *self) {
  PX_SCOPED(px_tensor) min_tensor = NULL;
  PX_SCOPED(px_tensor) max_tensor = NULL;
  bool direct = self->dtype == PX_UINT8 || self->dtype == PX_INT32 || self->dtype == PX_INT64;
  if (direct && px__named_kernel_on(&tally, (px_device_type)px__tensor_device(self).type)) {
    PX_TRY(px_aminmax(&min_tensor, &max_tensor, self, NULL, false));
  } else {
    PX_TRY(px_min(&min_tensor, self));
    PX_TRY(px__index_max(&max_tensor, self));
  }
  PX_TRY(px_tensor_item(lowest, min_tensor));
  return px_tensor_item(highest, max_tensor);
}
PX_RUN(bincount) {
  const px_tensor *self = args->self;
  px_tensor *weights = args->weights;
  px__index_loop p;
  PX_SCOPED(px_tensor) amount = NULL;
  px_scalar highest = px_int(-1), lowest = px_int(0);
  PX_TRY(px__call_same_device(call));
  if (self->numel) PX_TRY(min_max_of(&lowest, &highest, self));
  PX_CHECK(px_scalar_int(lowest) >= 0, PX_RUNTIME,
           "bincount only supports 1-d non-negative integral inputs.");
  int64_t n = px_scalar_int(highest) + 1;
  if (n < args->minlength) n = args->minlength;
  px_dtype dtype = !weights ? PX_INT64 : weights->dtype == PX_FLOAT32 ? PX_FLOAT32 : PX_FLOAT64;
  px_device device = px__tensor_device(self);
  if (!weights && self->numel && px__named_kernel_on(&tally, (px_device_type)device.type)) {
    px_tensor *numbers = args->self;
    PX_TRY(px_tensor_empty(&call->results[0], 1, &n, dtype, device));
    return px__run_kernel(&tally, device, 1, &call->results[0], 1, &numbers, NULL, 0);
  }
  PX_TRY(px_zeros(&call->results[0], &n, 1, dtype, device, false, false));
  if (weights)
    PX_TRY(px__tensor_to(&amount, weights, dtype, PX_DEVICE_NONE));
  else
    PX_TRY(px_full(&amount, NULL, 0, px_int(1), dtype, device, false, false));
  px_tensor *to = call->results[0];
  px_status made = px__index_flat(&p, to, self);
  p.wraps = false;
  return put(&p, made, to, amount, true);
}

// The result has the order of dimensions of self.
PX_RUN(put) {
  const px_tensor *self = args->self;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) ordered = NULL;
  PX_TRY(px__call_same_device(call));
  if (self->contiguous) return px__formula_put_flat(call->results, call->args);
  PX_TRY(px__formula_put_flat(&made, call->args));
  PX_TRY(px__empty_as(&ordered, self, (px_dtype)self->dtype, px__tensor_device(self)));
  PX_TRY(px_copy_(ordered, made, false));
  call->results[0] = PX_MOVE(ordered);
  return PX_OK;
}
