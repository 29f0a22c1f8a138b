// SPDX-License-Identifier: Apache-2.0
// Factories: dtype, device, page-locked memory and requires_grad of new tensors, and their values.
//
// The four options come last in every factory's schema: dtype, device, pin_memory, requires_grad.
#include "ops/run_impl.h"

#include <math.h>

typedef struct options {
  px_dtype dtype;  // PX_DTYPE_NONE: not given
  px_device device;
  bool pin, requires_grad;
} options;

static options read_options(const px_call *c) {
  const px_value *a = &c->args[c->op->param_count - 4];
  return (options){a[0].kind == PX_ARG_NONE ? PX_DTYPE_NONE : (px_dtype)a[0].v.i,
                   a[1].kind == PX_ARG_NONE ? PX_DEVICE_NONE : a[1].v.device, a[2].v.i != 0,
                   a[3].v.i != 0};
}

static px_status check_options(const options *o, px_dtype dtype) {
  PX_CHECK(!o->requires_grad || px_dtype_is_float(dtype), PX_RUNTIME,
           "Only Tensors of floating point and complex dtype can require gradients");
  if (!o->pin) return PX_OK;
  px_device d = o->device.type < 0 ? px_device_default() : o->device;
  PX_CHECK(d.type == PX_CPU, PX_RUNTIME, "Only dense CPU tensors can be pinned");
  PX_CHECK(px_device_count(PX_CUDA) > 0, PX_RUNTIME,
           "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory "
           "allocator is available on this system.");
  return PX_OK;
}

static px_status make(px_call *c, const options *o, int64_t ndim, const int64_t *sizes) {
  px_dtype dtype = o->dtype == PX_DTYPE_NONE ? px_dtype_default() : o->dtype;
  PX_TRY(check_options(o, dtype));
  if (o->pin)
    PX_TRY(px_tensor_empty_pinned(&c->results[0], (int)ndim, sizes, dtype));
  else
    PX_TRY(px_tensor_empty(&c->results[0], (int)ndim, sizes, dtype, o->device));
  if (o->requires_grad) c->results[0]->flags |= PX_TENSOR_NEEDS_GRAD;
  c->device = px__tensor_device(c->results[0]);
  return PX_OK;
}

// Writes a value into a tensor that nobody else has seen.
static px_status fill(px_tensor *t, px_scalar value) {
  bool zero = value.kind == 'f' ? value.v.f == 0 && !signbit(value.v.f) : px_scalar_int(value) == 0;
  uint16_t needs = t->flags & PX_TENSOR_NEEDS_GRAD;
  if (t->numel == 0) return PX_OK;
  if (zero && t->contiguous && px__tensor_device(t).type == PX_CPU) {
    memset(px__tensor_at(t), 0, (size_t)t->numel * px__item(t));
    return PX_OK;
  }
  t->flags &= (uint16_t)~PX_TENSOR_NEEDS_GRAD;  // it is no in-place change of a leaf
  uint64_t version = t->storage->version;
  px_status status = zero ? px_zero_(t) : px_fill_(t, value);
  t->storage->version = version;
  t->flags |= needs;
  return status;
}

// ---- of nothing

static px_status sized(px_call *c) {
  options o = read_options(c);
  return make(c, &o, c->args[0].n, c->args[0].v.ints);
}

px_status px__make_empty(px_call *c) { return sized(c); }

px_status px__make_zeros(px_call *c) {
  PX_TRY(sized(c));
  return fill(c->results[0], px_int(0));
}

px_status px__make_ones(px_call *c) {
  PX_TRY(sized(c));
  return fill(c->results[0], px_int(1));
}

px_status px__make_full(px_call *c) {
  options o = read_options(c);
  px_scalar value = px_value_scalar(c->args[1]);
  if (o.dtype == PX_DTYPE_NONE) o.dtype = px_scalar_dtype(value);
  PX_TRY(make(c, &o, c->args[0].n, c->args[0].v.ints));
  return fill(c->results[0], value);
}

px_status px__make_scalar(px_call *c) {
  options o = read_options(c);
  PX_TRY(make(c, &o, 0, NULL));
  return fill(c->results[0], px_value_scalar(c->args[0]));
}

static px_status run_filler(px_call *c, const char *kernel, const px_value *params, int count) {
  if (!c->results[0]->numel) return PX_OK;
  return px__run_kernel(kernel, c->device, 1, c->results, 0, NULL, params, count);
}

// Where the result is int64 the three are integers first, as in PyTorch.
static px_scalar cut(px_scalar s, px_dtype dtype) {
  return dtype == PX_INT64 && px_scalar_fits(s, PX_INT64) ? px_int(px_scalar_int(s)) : s;
}

static px_status arange_length(int64_t *out, px_scalar start, px_scalar end, px_scalar step) {
  double from = px_scalar_float(start), to = px_scalar_float(end), by = px_scalar_float(step);
  PX_CHECK(by != 0, PX_RUNTIME, "step must be nonzero");
  PX_CHECK(isfinite(from) && isfinite(to), PX_RUNTIME, "unsupported range: %g -> %g", from, to);
  PX_CHECK((by > 0 && to >= from) || (by < 0 && to <= from), PX_RUNTIME,
           "upper bound and lower bound inconsistent with step sign");
  if (start.kind != 'f' && end.kind != 'f' && step.kind != 'f') {
    int64_t s = px_scalar_int(step), span;
    bool over = __builtin_sub_overflow(px_scalar_int(end), px_scalar_int(start), &span);
    PX_CHECK(s != 0 && !over, PX_RUNTIME, "invalid size, possible overflow?");
    *out = span / s + (span % s != 0);
    return PX_OK;
  }
  double n = ceil((to - from) / by);
  PX_CHECK(n >= 0 && n < 9.2e18, PX_RUNTIME, "invalid size, possible overflow?");
  *out = (int64_t)n;
  return PX_OK;
}

px_status px__make_arange(px_call *c) {
  options o = read_options(c);
  px_scalar start = px_value_scalar(c->args[0]), end = px_value_scalar(c->args[1]);
  px_scalar step = px_value_scalar(c->args[2]);
  int64_t n;
  if (!end.kind) end = start, start = px_int(0);
  if (o.dtype == PX_DTYPE_NONE)
    o.dtype =
        start.kind == 'f' || end.kind == 'f' || step.kind == 'f' ? px_dtype_default() : PX_INT64;
  start = cut(start, o.dtype), end = cut(end, o.dtype), step = cut(step, o.dtype);
  PX_TRY(arange_length(&n, start, end, step));
  PX_TRY(make(c, &o, 1, &n));
  px_value params[2] = {PX_S(start), PX_S(step)};
  return run_filler(c, "arange", params, 2);
}

px_status px__make_linspace(px_call *c) {
  options o = read_options(c);
  int64_t n = px__int_arg(c, 2);
  PX_CHECK(n >= 0, PX_RUNTIME, "number of steps must be non-negative");
  PX_TRY(make(c, &o, 1, &n));
  return run_filler(c, "linspace", c->args, 2);
}

px_status px__make_eye(px_call *c) {
  options o = read_options(c);
  int64_t sizes[2] = {px__int_arg(c, 0), px__has_arg(c, 1) ? px__int_arg(c, 1) : px__int_arg(c, 0)};
  PX_CHECK(sizes[0] >= 0, PX_RUNTIME, "n must be greater or equal to 0, got %lld",
           (long long)sizes[0]);
  PX_CHECK(sizes[1] >= 0, PX_RUNTIME, "m must be greater or equal to 0, got %lld",
           (long long)sizes[1]);
  PX_TRY(make(c, &o, 2, sizes));
  return run_filler(c, "eye", NULL, 0);
}

// ---- places of triangles

static int64_t clamped(int64_t x, int64_t least, int64_t most) {
  return x < least ? least : x > most ? most : x;
}

// How many places lie on and below a diagonal: r + offset + 1 in row r, until rows are full.
static int64_t places_below(int64_t rows, int64_t cols, int64_t offset) {
  int64_t first = offset < 0 ? -offset : 0, full = clamped(cols - offset - 1, first, rows);
  return (full - first) * (first + full + 2 * offset + 1) / 2 + (rows - full) * cols;
}

// The rows and the columns of the places below a diagonal, or of those that are not.
static px_status list_places(px_tensor **out, int64_t rows, int64_t cols, int64_t offset,
                             bool above) {
  int64_t all;
  bool over = __builtin_mul_overflow(rows, cols, &all) || all > INT64_MAX / 4;
  PX_CHECK(!over, PX_RUNTIME, "invalid size, possible overflow?");
  int64_t below = places_below(rows, cols, offset), count = above ? all - below : below;
  PX_TRY(px_tensor_empty(out, 2, (int64_t[]){2, count}, PX_INT64, px_cpu()));
  int64_t *place = px__tensor_at(*out), done = 0;
  for (int64_t r = above || offset > 0 ? 0 : -offset; done < count; r++) {
    int64_t edge = clamped(r + offset + 1, 0, cols), end = above ? cols : edge;
    for (int64_t c = above ? edge : 0; c < end; c++, done++)
      place[done] = r, place[count + done] = c;
  }
  return PX_OK;
}

px_status px__make_triangle(px_call *c) {
  options o = read_options(c);
  PX_SCOPED(px_tensor) places = NULL;
  int64_t rows = px__int_arg(c, 0), cols = px__int_arg(c, 1), offset = px__int_arg(c, 2);
  bool above = !strcmp(c->op->name, "triu_indices");
  PX_CHECK(rows >= 0, PX_RUNTIME, "row must be non-negative, got%lld", (long long)rows);
  PX_CHECK(cols >= 0, PX_RUNTIME, "col must be non-negative, got%lld", (long long)cols);
  if (o.dtype == PX_DTYPE_NONE) o.dtype = PX_INT64;
  offset = clamped(offset, -rows, cols);
  if (above && offset > -rows) offset--;
  PX_TRY(list_places(&places, rows, cols, offset, above));
  PX_TRY(make(c, &o, 2, places->sizes));
  PX_CHECK(c->device.type != PX_CPU || o.dtype == PX_INT64 || o.dtype == PX_INT32, PX_UNIMPLEMENTED,
           "\"%s\" not implemented for '%s'", c->op->name, px_dtype_class(o.dtype));
  return px__tensor_copy(c->results[0], places, false);
}

// ---- like another tensor

static options options_of(const px_call *c) {
  const px_tensor *self = px__tensor_arg(c, 0);
  options o = read_options(c);
  if (o.dtype == PX_DTYPE_NONE) o.dtype = (px_dtype)self->dtype;
  if (o.device.type < 0) o.device = px__tensor_device(self);
  return o;
}

static px_status same_looks(px_call *c) {
  const px_tensor *self = px__tensor_arg(c, 0);
  options o = options_of(c);
  if (o.pin) return make(c, &o, self->ndim, self->sizes);
  PX_TRY(check_options(&o, o.dtype));
  PX_TRY(px__empty_as(&c->results[0], self, o.dtype, o.device));
  if (o.requires_grad) c->results[0]->flags |= PX_TENSOR_NEEDS_GRAD;
  return PX_OK;
}

px_status px__make_empty_like(px_call *c) { return same_looks(c); }

px_status px__make_zeros_like(px_call *c) {
  PX_TRY(same_looks(c));
  return fill(c->results[0], px_int(0));
}

px_status px__make_ones_like(px_call *c) {
  PX_TRY(same_looks(c));
  return fill(c->results[0], px_int(1));
}

px_status px__make_full_like(px_call *c) {
  PX_TRY(same_looks(c));
  return fill(c->results[0], px_value_scalar(c->args[1]));
}

static px_status new_sized(px_call *c) {
  options o = options_of(c);
  return make(c, &o, c->args[1].n, c->args[1].v.ints);
}

px_status px__make_new_empty(px_call *c) { return new_sized(c); }

px_status px__make_new_zeros(px_call *c) {
  PX_TRY(new_sized(c));
  return fill(c->results[0], px_int(0));
}

px_status px__make_new_ones(px_call *c) {
  PX_TRY(new_sized(c));
  return fill(c->results[0], px_int(1));
}

px_status px__make_new_full(px_call *c) {
  PX_TRY(new_sized(c));
  return fill(c->results[0], px_value_scalar(c->args[2]));
}

// ---- of one value

px_status px__make_filled(px_call *c) {
  const px_tensor *self = px__tensor_arg(c, 0);
  PX_TRY(px__empty_as(&c->results[0], self, (px_dtype)self->dtype, px__tensor_device(self)));
  return fill(c->results[0], px_value_scalar(c->args[1]));
}

// Writes the one element of value everywhere. It is copied where both are on one device, and read
// by the host otherwise, which waits for it.
static px_status spread(px_tensor *to, const px_tensor *value) {
  px_scalar number;
  PX_CHECK(value->ndim == 0, PX_RUNTIME,
           "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.",
           value->ndim);
  PX_TRY(px__check_value(value, px__tensor_device(to)));
  if (px_device_equal(px__tensor_device(to), px__tensor_device(value)))
    return px__tensor_copy(to, value, false);
  PX_TRY(px_tensor_item(&number, value));
  return px_fill_(to, number);
}

px_status px__make_filled_tensor(px_call *c) {
  const px_tensor *self = px__tensor_arg(c, 0);
  PX_TRY(px__empty_as(&c->results[0], self, (px_dtype)self->dtype, px__tensor_device(self)));
  return spread(c->results[0], px__tensor_arg(c, 1));
}

px_status px__make_fill_tensor(px_call *c) {
  c->results[0] = px_retain(px__tensor_arg(c, 0));
  return spread(c->results[0], px__tensor_arg(c, 1));
}
