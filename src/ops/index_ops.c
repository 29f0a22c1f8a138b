// SPDX-License-Identifier: Apache-2.0
// The ops that pick by index: their shapes and checks. What moves the elements is index.c.
#include "ops/index_impl.h"

// ---- getting and putting with a picking that is dropped whatever happens

static px_status get(px_call *c, px__picking *p, px_status made, const px_tensor *self) {
  // cppcheck-suppress uninitvar ; what was made is filled in
  if (made == PX_OK) made = px__call_result(c, 0, p->ndim, p->sizes, (px_dtype)self->dtype);
  if (made == PX_OK) made = px__picking_get(p, c->results[0], self);
  px__picking_drop(p);
  return made;
}

static px_status put(px__picking *p, px_status made, px_tensor *to, const px_tensor *values,
                     bool add) {
  if (made == PX_OK) made = px__picking_put(p, to, values, add);
  px__picking_drop(p);
  return made;
}

// Zeros like argument 0 of the sizes in argument 1, as the first result.
static px_status zeros(px_call *c) {
  return px__zeros_like_sized(&c->results[0], px__tensor_arg(c, 0), c->args[1].n,
                              c->args[1].v.ints);
}

static px_status same_dtype(const px_call *c, const px_tensor *self, const px_tensor *other,
                            const char *name) {
  PX_CHECK(self->dtype == other->dtype, PX_RUNTIME,
           "%s(): Expected self.dtype to be equal to %s.dtype", c->op->name, name);
  return PX_OK;
}

static px_status long_index(const px_call *c, const px_tensor *index) {
  PX_CHECK(index->dtype == PX_INT64, PX_RUNTIME, "%s(): Expected dtype int64 for index",
           c->op->name);
  return PX_OK;
}

// ---- x[i, j]

px_status px__index_index(px_call *c) {
  px__picking p;
  const px_tensor *self = px__tensor_arg(c, 0);
  return get(c, &p, px__pick_advanced(&p, self, c->args[1], c->args[2]), self);
}

px_status px__index_index_backward(px_call *c) {
  px__picking p;
  PX_TRY(zeros(c));
  px_tensor *to = c->results[0];
  return put(&p, px__pick_advanced(&p, to, c->args[2], c->args[3]), to, px__tensor_arg(c, 0), true);
}

// A number or a 0-dim value goes to self's device and dtype; others must be there.
static px_status value_for(px_tensor **out, const px_tensor *values, const px_tensor *self) {
  px_device d = px__tensor_device(self);
  if (values->flags & PX_TENSOR_WRAPPED)
    return px_to(out, values, (px_dtype)self->dtype, d, false, false);
  PX_CHECK(values->dtype == self->dtype, PX_RUNTIME,
           "Index put requires the source and destination dtypes match, got %s for the destination "
           "and %s for the source.",
           px_dtype_class((px_dtype)self->dtype), px_dtype_class((px_dtype)values->dtype));
  bool near = px_device_equal(px__tensor_device(values), d) ||
              (values->ndim == 0 && px__tensor_device(values).type == PX_CPU);
  char a[PX_DEVICE_TEXT], b[PX_DEVICE_TEXT];
  PX_CHECK(near, PX_RUNTIME,
           "Expected all tensors to be on the same device, but found at least two devices, %s and "
           "%s!",
           px_device_format(d, a), px_device_format(px__tensor_device(values), b));
  return px_to(out, values, PX_DTYPE_NONE, d, false, false);
}

px_status px__index_index_put(px_call *c) {
  px__picking p;
  PX_SCOPED(px_tensor) values = NULL;
  PX_TRY(value_for(&values, px__tensor_arg(c, 3), px__tensor_arg(c, 0)));
  PX_TRY(px__start_from_self(c));
  px_tensor *to = c->results[0];
  return put(&p, px__pick_advanced(&p, to, c->args[1], c->args[2]), to, values, px__int_arg(c, 4));
}

// ---- flat places

px_status px__index_take(px_call *c) {
  px__picking p;
  PX_SCOPED(px_tensor) self = NULL;
  PX_TRY(px__call_same_device(c));
  PX_CHECK(px__tensor_arg(c, 1)->dtype == PX_INT64, PX_RUNTIME,
           "take(): Expected a long tensor for index, but got %s",
           px_dtype_class((px_dtype)px__tensor_arg(c, 1)->dtype));
  PX_TRY(px_contiguous(&self, px__tensor_arg(c, 0)));
  return get(c, &p, px__pick_flat(&p, self, px__tensor_arg(c, 1)), self);
}

px_status px__index_take_backward(px_call *c) {
  px__picking p;
  PX_TRY(zeros(c));
  px_tensor *to = c->results[0];
  return put(&p, px__pick_flat(&p, to, px__tensor_arg(c, 2)), to, px__tensor_arg(c, 0), true);
}

// ---- places of a dimension

px_status px__index_select(px_call *c) {
  px__picking p;
  int dim;
  const px_tensor *self = px__tensor_arg(c, 0);
  PX_TRY(px__call_same_device(c));
  PX_TRY(px__wrap_dim(&dim, px__int_arg(c, 1), self->ndim));
  PX_CHECK(self->ndim || px__tensor_arg(c, 2)->numel == 1, PX_RUNTIME,
           "index_select(): Index to scalar can have only 1 value, got %lld value(s)",
           (long long)px__tensor_arg(c, 2)->numel);
  return get(c, &p, px__pick_dim(&p, self, dim, px__tensor_arg(c, 2)), self);
}

px_status px__index_select_backward(px_call *c) {
  px__picking p;
  int dim;
  PX_TRY(zeros(c));
  px_tensor *to = c->results[0];
  PX_TRY(px__wrap_dim(&dim, px__int_arg(c, 2), to->ndim));
  return put(&p, px__pick_dim(&p, to, dim, px__tensor_arg(c, 3)), to, px__tensor_arg(c, 0), true);
}

static px_status check_source(const px_call *c, const px_tensor *self, int dim,
                              const px_tensor *index, const px_tensor *source) {
  int64_t n = source->ndim ? source->sizes[dim] : 1;
  PX_CHECK(index->ndim <= 1, PX_INDEX, "%s(): Index is supposed to be a vector", c->op->name);
  PX_TRY(same_dtype(c, self, source, "source"));
  PX_CHECK(source->ndim == self->ndim, PX_RUNTIME,
           "%s(): Source and destination must have the same number of dimensions", c->op->name);
  PX_CHECK(index->numel == n, PX_RUNTIME,
           "%s(): Number of indices (%lld) should be equal to source.size(dim): (%lld)",
           c->op->name, (long long)index->numel, (long long)n);
  for (int d = 0; d < self->ndim; d++)
    PX_CHECK(d == dim || self->sizes[d] == source->sizes[d], PX_RUNTIME,
             "%s(): Source/destination tensor must have same slice shapes except at dimension %d",
             c->op->name, dim);
  return PX_OK;
}

static px_status put_slices(px_call *c, const px_tensor *source, bool add) {
  px__picking p;
  int dim;
  const px_tensor *index = px__tensor_arg(c, 2);
  PX_TRY(px__call_same_device(c));
  PX_TRY(px__wrap_dim(&dim, px__int_arg(c, 1), px__tensor_arg(c, 0)->ndim));
  PX_TRY(check_source(c, px__tensor_arg(c, 0), dim, index, px__tensor_arg(c, 3)));
  PX_TRY(px__start_from_self(c));
  px_tensor *to = c->results[0];
  return put(&p, px__pick_dim(&p, to, dim, index), to, source, add);
}

px_status px__index_add(px_call *c) {
  px_scalar alpha = px_value_scalar(c->args[4]);
  PX_SCOPED(px_tensor) scaled = NULL;
  if (px_scalar_float(alpha) == 1) return put_slices(c, px__tensor_arg(c, 3), true);
  PX_TRY(px_mul_scalar(&scaled, px__tensor_arg(c, 3), alpha));
  return put_slices(c, scaled, true);
}

px_status px__index_copy(px_call *c) { return put_slices(c, px__tensor_arg(c, 3), false); }

static px_status value_like(px_tensor **out, const px_tensor *like, px_scalar value) {
  return px_full(out, NULL, 0, value, (px_dtype)like->dtype, px__tensor_device(like), false, false);
}

px_status px__index_fill(px_call *c) {
  px__picking p;
  int dim;
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px__call_same_device(c));
  PX_TRY(px__wrap_dim(&dim, px__int_arg(c, 1), px__tensor_arg(c, 0)->ndim));
  PX_TRY(value_like(&value, px__tensor_arg(c, 0), px_value_scalar(c->args[3])));
  PX_TRY(px__start_from_self(c));
  px_tensor *to = c->results[0];
  return put(&p, px__pick_dim(&p, to, dim, px__tensor_arg(c, 2)), to, value, false);
}

// ---- an index for each element

// `index` may not reach beyond `self` but in `dim`, nor beyond `src`, if there is one.
static px_status check_along(const px_call *c, const px_tensor *self, int dim,
                             const px_tensor *index, const px_tensor *src) {
  char a[256], b[256], e[256];
  PX_TRY(long_index(c, index));
  int n = self->ndim ? self->ndim : 1, have = index->ndim ? index->ndim : 1;
  if (index->numel == 0) return PX_OK;
  PX_CHECK(n == have, PX_RUNTIME,
           "Index tensor must have the same number of dimensions as %s tensor",
           strcmp(c->op->name, "gather") ? "self" : "input");
  for (int d = 0; d < index->ndim; d++) {
    int64_t most = self->ndim ? self->sizes[d] : 1;
    bool fits = (d == dim || index->sizes[d] <= most) &&
                (!src || (d < src->ndim ? index->sizes[d] <= src->sizes[d] : index->sizes[d] <= 1));
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

px_status px__index_gather(px_call *c) {
  px__picking p;
  int dim;
  const px_tensor *self = px__tensor_arg(c, 0), *index = px__tensor_arg(c, 2);
  PX_TRY(px__call_same_device(c));
  PX_TRY(px__wrap_dim(&dim, px__int_arg(c, 1), self->ndim));
  PX_TRY(check_along(c, self, dim, index, NULL));
  return get(c, &p, px__pick_along(&p, self, dim, index), self);
}

px_status px__index_gather_backward(px_call *c) {
  px__picking p;
  int dim;
  PX_TRY(zeros(c));
  px_tensor *to = c->results[0];
  PX_TRY(px__wrap_dim(&dim, px__int_arg(c, 2), to->ndim));
  return put(&p, px__pick_along(&p, to, dim, px__tensor_arg(c, 3)), to, px__tensor_arg(c, 0), true);
}

static px_status scatter(px_call *c, px_tensor *src, bool add) {
  px__picking p;
  int dim;
  const px_tensor *self = px__tensor_arg(c, 0), *index = px__tensor_arg(c, 2);
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(px__call_same_device(c));
  PX_TRY(px__wrap_dim(&dim, px__int_arg(c, 1), self->ndim));
  bool one = src->ndim == 0 && index->ndim != 0;
  PX_TRY(check_along(c, self, dim, index, one ? NULL : src));
  PX_TRY(same_dtype(c, self, src, "src"));
  if (one)
    part = px_retain(src);
  else if (index->numel)
    PX_TRY(px__tensor_view(&part, src, index->ndim, index->sizes, src->strides, src->offset));
  PX_TRY(px__start_from_self(c));
  px_tensor *to = c->results[0];
  if (!index->numel) return PX_OK;
  return put(&p, px__pick_along(&p, to, dim, index), to, part, add);
}

px_status px__index_scatter(px_call *c) {
  px_tensor *src = px__tensor_arg(c, 3);
  PX_SCOPED(px_tensor) value = NULL;
  if (!(src->flags & PX_TENSOR_WRAPPED)) return scatter(c, src, false);
  PX_TRY(value_for(&value, src, px__tensor_arg(c, 0)));
  return scatter(c, value, false);
}

px_status px__index_scatter_value(px_call *c) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(value_like(&value, px__tensor_arg(c, 0), px_value_scalar(c->args[3])));
  return scatter(c, value, false);
}

px_status px__index_scatter_add(px_call *c) { return scatter(c, px__tensor_arg(c, 3), true); }

// ---- tables

px_status px__index_embedding(px_call *c) {
  px__picking p;
  const px_tensor *input = px__tensor_arg(c, 0), *weight = px__tensor_arg(c, 1);
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  int64_t sizes[PX_MAX_DIMS];
  PX_CHECK(weight->ndim == 2, PX_RUNTIME, "'weight' must be 2-D");
  PX_CHECK(input->dtype == PX_INT64 || input->dtype == PX_INT32, PX_RUNTIME,
           "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
           "Long, Int; but got torch.%sTensor instead (while checking arguments for embedding)",
           px_dtype_class((px_dtype)input->dtype));
  char here[PX_DEVICE_TEXT], there[PX_DEVICE_TEXT];
  c->device = px__tensor_device(weight);
  PX_CHECK(px_device_equal(px__tensor_device(input), c->device), PX_RUNTIME,
           "Expected all tensors to be on the same device, but got index is on %s, different from "
           "other tensors on %s (when checking argument in method wrapper_CUDA__index_select)",
           px_device_format(px__tensor_device(input), here), px_device_format(c->device, there));
  PX_CHECK(input->ndim < PX_MAX_DIMS, PX_RUNTIME, "too many dimensions");
  PX_TRY(px_reshape(&flat, input, (const int64_t[]){-1}, 1));
  px_status made = px__pick_dim(&p, weight, 0, flat);
  PX_TRY(get(c, &p, made, weight));
  memcpy(sizes, input->sizes, sizeof *sizes * (size_t)input->ndim);
  sizes[input->ndim] = weight->sizes[1];
  PX_TRY(px__unsafe_view(&rows, c->results[0], sizes, input->ndim + 1));
  px_release(c->results[0]);
  c->results[0] = PX_MOVE(rows);
  return PX_OK;
}

px_status px__index_embedding_backward(px_call *c) {
  px__picking p;
  const px_tensor *input = px__tensor_arg(c, 2);
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) padding = NULL;
  PX_TRY(zeros(c));
  px_tensor *to = c->results[0];
  PX_TRY(px_reshape(&flat, input, (const int64_t[]){-1}, 1));
  int64_t sizes[2] = {flat->numel, to->sizes[1]};
  PX_TRY(px_reshape(&rows, px__tensor_arg(c, 0), sizes, 2));
  PX_TRY(put(&p, px__pick_dim(&p, to, 0, flat), to, rows, true));
  if (!px__has_arg(c, 3)) return PX_OK;
  int64_t row = px__int_arg(c, 3);
  PX_TRY(px__part_select(&padding, to, 0, row));
  return px_zero_(padding);
}

px_status px__index_one_hot(px_call *c) {
  const px_tensor *self = px__tensor_arg(c, 0);
  int64_t classes = px__int_arg(c, 1), sizes[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) most = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  px_scalar top;
  PX_CHECK(self->dtype == PX_INT64, PX_RUNTIME,
           "one_hot is only applicable to index tensor of type LongTensor.");
  PX_CHECK(self->ndim < PX_MAX_DIMS, PX_RUNTIME, "too many dimensions");
  if (classes <= 0) {
    PX_CHECK(classes == -1, PX_RUNTIME, "num_classes should be positive");
    PX_CHECK(self->numel, PX_RUNTIME, "Can not infer total number of classes from empty tensor.");
    PX_TRY(px__index_max(&most, self));
    PX_TRY(px_tensor_item(&top, most));
    classes = px_scalar_int(top) + 1;
    PX_CHECK(classes > 0, PX_RUNTIME, "Class values must be non-negative.");
  }
  memcpy(sizes, self->sizes, sizeof *sizes * (size_t)self->ndim);
  sizes[self->ndim] = classes;
  PX_TRY(px_zeros(&made, sizes, self->ndim + 1, PX_INT64, px__tensor_device(self), false, false));
  PX_TRY(px_unsqueeze(&column, self, -1));
  px_status status = px_scatter_value_(made, -1, column, px_int(1));
  // An index that is none, of a CPU tensor: a device reports it later.
  if (status == PX_RUNTIME && px__tensor_device(self).type == PX_CPU) {
    PX_SCOPED(px_tensor) least = NULL;
    PX_TRY(px_min(&least, self));
    PX_TRY(px_tensor_item(&top, least));
    PX_FAIL(PX_RUNTIME, "Class values must be %s.",
            px_scalar_int(top) < 0 ? "non-negative" : "smaller than num_classes");
  }
  PX_TRY(status);
  c->results[0] = PX_MOVE(made);
  return PX_OK;
}

px_status px__index_bincount(px_call *c) {
  const px_tensor *self = px__tensor_arg(c, 0);
  px_tensor *weights = px__arg_tensor(c, 1);
  px__picking p;
  PX_SCOPED(px_tensor) most = NULL;
  PX_SCOPED(px_tensor) amount = NULL;
  px_scalar top = px_int(-1), bottom = px_int(0);
  PX_TRY(px__call_same_device(c));
  PX_CHECK(self->ndim == 1 && !px_dtype_is_float((px_dtype)self->dtype), PX_RUNTIME,
           "bincount only supports 1-d non-negative integral inputs.");
  PX_CHECK(px__int_arg(c, 2) >= 0, PX_RUNTIME, "minlength should be >= 0");
  PX_CHECK(!weights || (weights->ndim == 1 && weights->numel == self->numel), PX_RUNTIME,
           "weights should be 1-d and have the same length as input");
  if (self->numel) {
    PX_SCOPED(px_tensor) least = NULL;
    PX_TRY(px_min(&least, self));
    PX_TRY(px__index_max(&most, self));
    PX_TRY(px_tensor_item(&bottom, least));
    PX_TRY(px_tensor_item(&top, most));
  }
  PX_CHECK(px_scalar_int(bottom) >= 0, PX_RUNTIME,
           "bincount only supports 1-d non-negative integral inputs.");
  int64_t n = px_scalar_int(top) + 1;
  if (n < px__int_arg(c, 2)) n = px__int_arg(c, 2);
  px_dtype dtype = !weights ? PX_INT64 : weights->dtype == PX_FLOAT32 ? PX_FLOAT32 : PX_FLOAT64;
  px_device device = px__tensor_device(self);
  PX_TRY(px_zeros(&c->results[0], &n, 1, dtype, device, false, false));
  if (weights)
    PX_TRY(px_to(&amount, weights, dtype, PX_DEVICE_NONE, false, false));
  else
    PX_TRY(px_full(&amount, NULL, 0, px_int(1), dtype, device, false, false));
  px_tensor *to = c->results[0];
  px_status made = px__pick_flat(&p, to, self);
  p.wraps = false;
  return put(&p, made, to, amount, true);
}
