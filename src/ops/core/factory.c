// SPDX-License-Identifier: Apache-2.0
// Factories: dtype, device, page-locked memory and requires_grad of new tensors, and their values.
#include "vmap_rules/factory.h"
#include "call/vmap.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"
#include "run_functions/factory.h"
#include "run_functions/arithmetic.h"

#include <math.h>

static px_status check_options(const px__options *o, px_dtype dtype) {
  if (o->requires_grad) PX_TRY(px_dtype_check_grad(dtype));
  if (!o->pin_memory) return PX_OK;
  px_device d = o->device.type < 0 ? px_device_default() : o->device;
  PX_CHECK(d.type == PX_CPU, PX_RUNTIME, "Only dense CPU tensors can be pinned");
  PX_CHECK(px_device_count(PX_CUDA) > 0, PX_RUNTIME,
           "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory "
           "allocator is available on this system.");
  return PX_OK;
}

// Applies the remaining options to a new result.
static px_status apply_options(px_call *call, const px__options *o) {
  if (o->requires_grad) call->results[0]->flags |= PX_TENSOR_NEEDS_GRAD;
  call->device = px__tensor_device(call->results[0]);
  return PX_OK;
}

static px_status make(px_call *call, const px__options *o, int64_t ndim, const int64_t *sizes) {
  px_dtype dtype = o->dtype == PX_DTYPE_NONE ? px_dtype_default() : o->dtype;
  PX_TRY(check_options(o, dtype));
  if (o->pin_memory)
    PX_TRY(px_tensor_empty_pinned(&call->results[0], (int)ndim, sizes, dtype));
  else
    PX_TRY(px_tensor_empty(&call->results[0], (int)ndim, sizes, dtype, o->device));
  return apply_options(call, o);
}

// Fills a new, unshared tensor without recording. memset is faster than a kernel for few zeros.
enum { MEMSET_LIMIT = 32768 };
static px_status fill(px_tensor *t, px_scalar value) {
  bool zero = value.kind == 'f' ? value.v.f == 0 && !signbit(value.v.f) : px_scalar_int(value) == 0;
  uint16_t needs = px__flags(t) & PX_TENSOR_NEEDS_GRAD;
  if (t->numel == 0) return PX_OK;
  if (zero && t->contiguous && px__tensor_device(t).type == PX_CPU && t->numel <= MEMSET_LIMIT)
    return memset(px__tensor_at(t), 0, (size_t)t->numel * px__item(t)), PX_OK;
  t->flags &= (uint16_t)~PX_TENSOR_NEEDS_GRAD;  // not an in-place change of a leaf
  uint64_t version = t->storage->version;
  px_status status = zero ? px_zero_(t) : px_fill_(t, value);
  t->storage->version = version;
  t->flags |= needs;
  return status;
}

// View of t with expanded dimensions reduced to size 1.
static px_status unexpanded(px_tensor **out, const px_tensor *t) {
  int64_t sizes[PX_MAX_DIMS];
  if (t->contiguous) {
    *out = px_retain((px_tensor *)t);
    return PX_OK;
  }
  for (int d = 0; d < t->ndim; d++) sizes[d] = t->strides[d] || !t->sizes[d] ? t->sizes[d] : 1;
  return px__tensor_view(out, t, t->ndim, sizes, t->strides, t->offset);
}
// Fills with a one-element tensor. Copies it if both are on one device or complex; otherwise the
// host waits for it and reads it.
static px_status fill_from_tensor(px_tensor *to, const px_tensor *value) {
  px_scalar number;
  PX_SCOPED(px_tensor) each = NULL;
  px_dtype dtype = (px_dtype)to->dtype;
  PX_TRY(px__check_value(value, px__tensor_device(to)));
  if (px_dtype_is_complex((px_dtype)value->dtype) && !px_dtype_is_complex(dtype)) {
    px_complex parts;
    PX_TRY(px_tensor_item_complex(&parts, value));
    PX_CHECK(parts.imag == 0 || dtype == PX_BOOL, PX_RUNTIME,
             "value cannot be converted to type %s without overflow",
             px_dtype_about(dtype)->c_name);
  }
  PX_TRY(unexpanded(&each, to));
  if (px_dtype_is_complex((px_dtype)value->dtype) ||
      px_device_equal(px__tensor_device(to), px__tensor_device(value)))
    return px__tensor_copy(each, value, false);
  PX_TRY(px_tensor_item(&number, value));
  return px_fill_(to, number);
}

// ---- from sizes

static px_status sized(px_call *call, px_value size, px__options o) {
  return make(call, &o, size.n, size.v.ints);
}

static px_scalar max_integer(px_dtype dtype) {
  int bits = 63;
  while (!px_scalar_fits(px_int((int64_t)(((uint64_t)1 << bits) - 1)), dtype)) bits--;
  return px_int((int64_t)(((uint64_t)1 << bits) - 1));
}

// Deterministic mode: fills uninitialised memory with NaN or the maximum, to expose reads of it.
static px_status fill_uninitialized(px_tensor *t) {
  if (!px_setting_get(PX_SETTING_DETERMINISTIC)) return PX_OK;
  if (!px_setting_get(PX_SETTING_FILL_UNINITIALIZED)) return PX_OK;
  bool real = px_dtype_is_float(t->dtype) || px_dtype_is_complex(t->dtype);
  return fill(t, real ? px_float(NAN) : max_integer(t->dtype));
}

// Creates a tensor in a memory format. `preserve_format` is invalid without a source.
static px_status make_in_format(px_call *call, const px__options *o, px_value size,
                                const char *name) {
  px_memory_format format;
  int64_t strides[PX_MAX_DIMS];
  PX_TRY(px_memory_format_parse(&format, name));
  PX_CHECK(format != PX_FORMAT_PRESERVE, PX_RUNTIME, "unsupported memory format Preserve");
  PX_TRY(px__check_sizes(size.n, size.v.ints));
  PX_TRY(px__format_strides(strides, size.n, size.v.ints, format));
  PX_TRY(check_options(o, o->dtype == PX_DTYPE_NONE ? px_dtype_default() : o->dtype));
  PX_TRY(px__empty_strided(&call->results[0], size.n, size.v.ints, strides, o->dtype, o->device,
                           o->pin_memory));
  return apply_options(call, o);
}

PX_RUN(empty) {
  px__options o = PX_OPTIONS(args);
  if (args->memory_format)
    PX_TRY(make_in_format(call, &o, args->size, args->memory_format));
  else
    PX_TRY(sized(call, args->size, o));
  return fill_uninitialized(call->results[0]);
}

static px_status strided(px_call *call, px_value size, px_value stride, px__options o) {
  PX_CHECK(size.n == stride.n, PX_RUNTIME,
           "dimensionality of sizes (%lld) must match dimensionality of strides (%lld)",
           (long long)size.n, (long long)stride.n);
  PX_TRY(check_options(&o, o.dtype == PX_DTYPE_NONE ? px_dtype_default() : o.dtype));
  PX_TRY(px__empty_strided(&call->results[0], size.n, size.v.ints, stride.v.ints, o.dtype, o.device,
                           o.pin_memory));
  PX_TRY(apply_options(call, &o));
  return fill_uninitialized(call->results[0]);
}
PX_RUN(empty_strided) { return strided(call, args->size, args->stride, PX_OPTIONS(args)); }

PX_RUN(empty_permuted) {
  px_value size = args->size, order = args->physical_layout;
  int64_t strides[PX_MAX_DIMS], step = 1;
  unsigned seen = 0;
  int n = (int)order.n;
  PX_TRY(px__check_ndim(n));
  for (int i = 0; i < n; i++) {
    int64_t d = order.v.ints[i];
    PX_CHECK(d >= 0 && d < n, PX_RUNTIME,
             "Dimension out of range (expected to be between 0 and %d, but got %lld at index %d).  "
             "NB: negative dims not currently supported; file an issue if you want it.",
             n - 1, (long long)d, i);
    PX_CHECK(!(seen & 1u << d), PX_RUNTIME, "Duplicate dim not allowed");
    seen |= 1u << d;
  }
  for (int i = n - 1; i >= 0; i--) {
    int64_t d = order.v.ints[i];
    strides[d] = step;
    step = px__product(step, size.v.ints[d] > 1 ? size.v.ints[d] : 1);
  }
  px_value stride = PX_IS(strides, n);
  return strided(call, size, stride, PX_OPTIONS(args));
}

PX_RUN(zeros) {
  PX_TRY(sized(call, args->size, PX_OPTIONS(args)));
  return fill(call->results[0], px_int(0));
}

PX_RUN(ones) {
  PX_TRY(sized(call, args->size, PX_OPTIONS(args)));
  return fill(call->results[0], px_int(1));
}

PX_RUN(full) {
  px__options o = PX_OPTIONS(args);
  px_scalar value = args->fill_value;
  if (o.dtype == PX_DTYPE_NONE)
    o.dtype = value.kind == 'u' ? PX_INT64 : px_scalar_dtype(value);  // which it does not fit
  PX_TRY(make(call, &o, args->size.n, args->size.v.ints));
  return fill(call->results[0], value);
}

PX_RUN(full_tensor) {
  const px_tensor *value = args->fill_value;
  px__options o = PX_OPTIONS(args);
  bool number = px_tensor_is_wrapped(value);  // a complex number
  if (o.dtype == PX_DTYPE_NONE)
    o.dtype = number ? px_dtype_to_complex(px_dtype_default()) : (px_dtype)value->dtype;
  PX_TRY(make(call, &o, args->size.n, args->size.v.ints));
  return fill_from_tensor(call->results[0], value);
}

PX_RUN(scalar_tensor) {
  px__options o = PX_OPTIONS(args);
  PX_TRY(make(call, &o, 0, NULL));
  return fill(call->results[0], args->s);
}

static px_status run_filler(px_call *call, px__named_kernel *kernel, const px_value *params,
                            int count) {
  if (!call->results[0]->numel) return PX_OK;
  return px__run_kernel(kernel, call->device, 1, call->results, 0, NULL, params, count);
}

// The elements of an integer range have an integer start and step.
static px_scalar truncate(px_scalar s, px_dtype dtype) {
  return px_dtype_is_integer(dtype) && px_scalar_fits(s, PX_INT64) ? px_int(px_scalar_int(s)) : s;
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

// Fill kernels compute in the result's dtype, which is not bool.
static px_status check_computed(px_dtype dtype, const char *name) {
  PX_CHECK(dtype < PX_DTYPE_COMPUTED && dtype != PX_BOOL, PX_UNIMPLEMENTED,
           "\"%s\" not implemented for '%s'", name, px_dtype_class(dtype));
  return PX_OK;
}

// Warns if an out= tensor with elements will be resized.
static px_status warn_resize(const px_call *call, int64_t n) {
  const px_tensor *given = call->mode == PX_CALL_OUT ? call->given[0] : NULL;
  char have[256];
  if (!given || given->numel == n || given->numel == 0) return PX_OK;
  return px_warn(PX_WARN_USER,
                 "The number of elements in the out tensor of shape %s is %lld which does not "
                 "match the computed number of elements %lld. Note that this may occur as a result "
                 "of rounding error. The out tensor will be resized to a tensor of shape (%lld,).",
                 px__sizes_text(have, sizeof have, given->ndim, given->sizes),
                 (long long)given->numel, (long long)n, (long long)n);
}

px_status px__shape_like_out(px_call *call) {
  const px_tensor *given = call->mode == PX_CALL_OUT ? call->given[0] : NULL;
  px_tensor *made = call->results[0];
  if (!given || given->numel != made->numel || given->ndim == 1) return PX_OK;
  PX_TRY(px_view(&call->results[0], made, given->sizes, given->ndim));
  px_release(made);
  return PX_OK;
}

PX_RUN(arange) {
  static px__named_kernel kernel = {.name = "arange"};
  px__options o = PX_OPTIONS(args);
  PX_TRY(check_computed(o.dtype, "arange_cpu"));
  px_scalar start = args->start, end = px_value_scalar(args->end);
  px_scalar step = args->step;
  int64_t n;
  if (!end.kind) end = start, start = px_int(0);
  if (o.dtype == PX_DTYPE_NONE)
    o.dtype =
        start.kind == 'f' || end.kind == 'f' || step.kind == 'f' ? px_dtype_default() : PX_INT64;
  PX_CHECK(o.dtype != PX_INT64 || (start.kind != 'u' && end.kind != 'u'), PX_RUNTIME,
           "value cannot be converted to type int64_t without overflow");
  PX_TRY(arange_length(&n, start, end, step));
  PX_TRY(warn_resize(call, n));
  PX_TRY(make(call, &o, 1, &n));
  px_value params[2] = {PX_S(truncate(start, o.dtype)), PX_S(truncate(step, o.dtype))};
  PX_TRY(run_filler(call, &kernel, params, 2));
  return px__shape_like_out(call);
}

// Fails unless the dtype of spaced numbers is supported and the ends that are used fit it.
static px_status check_spaced(const px_call *call, px_dtype asked, const char *name,
                              px_scalar start, px_scalar end, int64_t n) {
  px_dtype dtype = asked != PX_DTYPE_NONE ? asked
                   : call->given[0]       ? (px_dtype)call->given[0]->dtype
                                          : px_dtype_default();
  if (n < 1) return PX_OK;
  PX_TRY(check_computed(dtype, name));
  PX_CHECK(px_scalar_fits(start, dtype) && (n == 1 || px_scalar_fits(end, dtype)), PX_RUNTIME,
           "value cannot be converted to type %s without overflow", px_dtype_about(dtype)->c_name);
  return PX_OK;
}

// Real and imaginary parts are each linearly spaced.
static px_status complex_line(px_call *call, px_complex start, px_complex end, int64_t n,
                              px__options o) {
  PX_TRY(make(call, &o, 1, &n));
  px_dtype dtype = px_dtype_to_real(o.dtype);
  for (int imaginary = 0; imaginary < 2; imaginary++) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_SCOPED(px_tensor) line = NULL;
    PX_SCOPED(px_tensor) plain = NULL;
    PX_TRY(px_tensor_detach(&plain, call->results[0]));
    PX_TRY(imaginary ? px_imag(&part, plain) : px_real(&part, plain));
    PX_TRY(px_linspace(&line, px_float(imaginary ? start.imag : start.real),
                       px_float(imaginary ? end.imag : end.real), n, dtype, call->device, false,
                       false));
    PX_TRY(px__tensor_copy(part, line, false));
  }
  return px__shape_like_out(call);
}
static px_complex complex_of_real(px_scalar s) { return (px_complex){px_scalar_float(s), 0}; }
PX_RUN(linspace) {
  static px__named_kernel kernel = {.name = "linspace"};
  px__options o = PX_OPTIONS(args);
  int64_t n = args->steps;
  if (px_dtype_is_complex(o.dtype))
    return complex_line(call, complex_of_real(args->start), complex_of_real(args->end), n, o);
  PX_TRY(check_spaced(call, o.dtype, "linspace_cpu", args->start, args->end, n));
  PX_TRY(make(call, &o, 1, &n));
  px_value params[2] = {PX_S(args->start), PX_S(args->end)};
  // Integer results are spaced between integer ends.
  for (int i = 0; i < 2 && !px_dtype_is_float((px_dtype)call->results[0]->dtype); i++)
    params[i] = PX_S(px_int(px_scalar_int(px_value_scalar(params[i]))));
  PX_TRY(run_filler(call, &kernel, params, 2));
  return px__shape_like_out(call);
}

// The result is complex if one end is.
static px_status read_complex_end(px_complex *out, const px_tensor *t) {
  if (px_dtype_is_complex((px_dtype)t->dtype)) return px_tensor_item_complex(out, t);
  px_scalar real;
  PX_TRY(px_tensor_item(&real, t));
  return *out = complex_of_real(real), PX_OK;
}
static px_status read_complex_number(px_complex *out, px_scalar s) {
  return *out = complex_of_real(s), PX_OK;
}
static bool is_complex_end(const px_tensor *t) { return px_dtype_is_complex((px_dtype)t->dtype); }
static bool is_complex_number(px_scalar s) { return false; }
static px_status check_complex(px__options *o, const char *name) {
  px_dtype complex_default = px_dtype_to_complex(px_dtype_default());
  if (o->dtype == PX_DTYPE_NONE) o->dtype = complex_default;
  PX_CHECK(px_dtype_is_complex(o->dtype), PX_RUNTIME,
           "torch.%s(): inferred dtype %s can't be safely cast to passed dtype %s", name,
           px_dtype_about(complex_default)->c_name, px_dtype_class(o->dtype));
  return PX_OK;
}
static px_status complex_linspace(px_call *call, px_complex start, px_complex end, int64_t n,
                                  double base, px__options o) {
  PX_TRY(check_complex(&o, "linspace"));
  return complex_line(call, start, end, n, o);
}
static px_status complex_logspace(px_call *call, px_complex start, px_complex end, int64_t n,
                                  double base, px__options o) {
  PX_SCOPED(px_tensor) values = NULL;
  PX_TRY(check_complex(&o, "logspace"));
  px__options plain = o;
  plain.dtype = PX_COMPLEX128, plain.requires_grad = false;
  PX_TRY(complex_line(call, start, end, n, plain));
  PX_SCOPED(px_tensor) exponents = PX_MOVE(call->results[0]);
  PX_TRY(px_pow_of_number(&values, px_float(base), exponents));
  PX_TRY(make(call, &o, exponents->ndim, exponents->sizes));
  PX_SCOPED(px_tensor) to = NULL;
  PX_TRY(px_tensor_detach(&to, call->results[0]));
  return px__tensor_copy(to, values, false);
}

// Variants with tensor ends. The host reads them; they have no gradient.
#define SPACED(name, suffix, first, read_start, second, read_end, base_, ...) \
  PX_RUN(name##suffix) { \
    px_scalar start, end; \
    if (is_complex_##first(args->start) || is_complex_##second(args->end)) { \
      px_complex from, to; \
      PX_TRY(read_complex_##first(&from, args->start)); \
      PX_TRY(read_complex_##second(&to, args->end)); \
      return complex_##name(call, from, to, args->steps, base_, PX_OPTIONS(args)); \
    } \
    PX_TRY(read_start(&start, args->start)); \
    PX_TRY(read_end(&end, args->end)); \
    PX_TRY(px_##name(&call->results[0], start, end, args->steps, ##__VA_ARGS__, args->dtype, \
                     args->device, args->pin_memory, args->requires_grad)); \
    return px__shape_like_out(call); \
  }
static px_status number_of(px_scalar *out, px_scalar end) { return *out = end, PX_OK; }
SPACED(linspace, _of_tensors, end, px_tensor_item, end, px_tensor_item, 0)
SPACED(linspace, _from, end, px_tensor_item, number, number_of, 0)
SPACED(linspace, _to, number, number_of, end, px_tensor_item, 0)
SPACED(logspace, _of_tensors, end, px_tensor_item, end, px_tensor_item, args->base, args->base)
SPACED(logspace, _from, end, px_tensor_item, number, number_of, args->base, args->base)
SPACED(logspace, _to, number, number_of, end, px_tensor_item, args->base, args->base)

// Each sample has ends of its own, read by the host.
PX_VMAP_RULE(ends) { return px__vmap_loop(b, true); }

PX_RUN(eye) {
  static px__named_kernel kernel = {.name = "eye"};
  px__options o = PX_OPTIONS(args);
  int64_t sizes[2] = {args->n, px__given(args->m) ? args->m.v.i : args->n};
  PX_TRY(make(call, &o, 2, sizes));
  if (call->results[0]->dtype < PX_DTYPE_COMPUTED) return run_filler(call, &kernel, NULL, 0);
  PX_SCOPED(px_tensor) ones = NULL;
  PX_TRY(px_eye(&ones, sizes[0], &sizes[1], PX_UINT8, call->device, false, false));
  return px__tensor_copy(call->results[0], ones, false);
}

// ---- indices of triangles

static int64_t clamped(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

// Number of elements on and below a diagonal: r + offset + 1 in row r, up to full rows.
static int64_t count_below(int64_t rows, int64_t cols, int64_t offset) {
  int64_t first = offset < 0 ? -offset : 0, full = clamped(cols - offset - 1, first, rows);
  return (full - first) * (first + full + 2 * offset + 1) / 2 + (rows - full) * cols;
}

// Row and column indices below a diagonal, or above it.
static px_status list_indices(px_tensor **out, int64_t rows, int64_t cols, int64_t offset,
                              bool above) {
  int64_t all;
  bool over = __builtin_mul_overflow(rows, cols, &all) || all > INT64_MAX / 4;
  PX_CHECK(!over, PX_RUNTIME, "invalid size, possible overflow?");
  int64_t below = count_below(rows, cols, offset), count = above ? all - below : below;
  PX_TRY(px_tensor_empty(out, 2, (int64_t[]){2, count}, PX_INT64, px_cpu()));
  int64_t *index = px__tensor_at(*out), done = 0;
  for (int64_t r = above || offset > 0 ? 0 : -offset; done < count; r++) {
    int64_t edge = clamped(r + offset + 1, 0, cols), end = above ? cols : edge;
    for (int64_t c = above ? edge : 0; c < end; c++, done++)
      index[done] = r, index[count + done] = c;
  }
  return PX_OK;
}

static px_status triangle(px_call *call, int64_t rows, int64_t cols, int64_t offset, bool above,
                          px__options o) {
  PX_SCOPED(px_tensor) indices = NULL;
  if (o.dtype == PX_DTYPE_NONE) o.dtype = PX_INT64;
  offset = clamped(offset, -rows, cols);
  if (above && offset > -rows) offset--;
  PX_TRY(list_indices(&indices, rows, cols, offset, above));
  PX_TRY(make(call, &o, 2, indices->sizes));
  PX_CHECK(call->device.type != PX_CPU || o.dtype == PX_INT64 || o.dtype == PX_INT32,
           PX_UNIMPLEMENTED, "\"%s\" not implemented for '%s'", call->op->name,
           px_dtype_class(o.dtype));
  return px__tensor_copy(call->results[0], indices, false);
}
PX_RUN(tril_indices) {
  return triangle(call, args->row, args->col, args->offset, false, PX_OPTIONS(args));
}
PX_RUN(triu_indices) {
  return triangle(call, args->row, args->col, args->offset, true, PX_OPTIONS(args));
}

// ---- like another tensor

static px__options like(const px_tensor *self, px__options o) {
  if (o.dtype == PX_DTYPE_NONE) o.dtype = (px_dtype)self->dtype;
  if (o.device.type < 0) o.device = px__tensor_device(self);
  return o;
}

static px_status make_like(px_call *call, const px_tensor *self, px__options asked,
                           const char *memory_format) {
  px__options o = like(self, asked);
  PX_TRY(check_options(&o, o.dtype));
  PX_TRY(px__empty_in(&call->results[0], self, memory_format, o.dtype, o.device, o.pin_memory));
  if (o.requires_grad) call->results[0]->flags |= PX_TENSOR_NEEDS_GRAD;
  return PX_OK;
}

PX_RUN(empty_like) {
  PX_TRY(make_like(call, args->self, PX_OPTIONS(args), args->memory_format));
  return fill_uninitialized(call->results[0]);
}

PX_RUN(zeros_like) {
  PX_TRY(make_like(call, args->self, PX_OPTIONS(args), args->memory_format));
  return fill(call->results[0], px_int(0));
}

PX_RUN(ones_like) {
  PX_TRY(make_like(call, args->self, PX_OPTIONS(args), args->memory_format));
  return fill(call->results[0], px_int(1));
}

PX_RUN(full_like) {
  PX_TRY(make_like(call, args->self, PX_OPTIONS(args), args->memory_format));
  return fill(call->results[0], args->fill_value);
}

PX_RUN(full_like_of_complex) {
  PX_TRY(make_like(call, args->self, PX_OPTIONS(args), args->memory_format));
  return fill_from_tensor(call->results[0], args->fill_value);
}

PX_RUN(new_empty) {
  PX_TRY(sized(call, args->size, like(args->self, PX_OPTIONS(args))));
  return fill_uninitialized(call->results[0]);
}

PX_RUN(new_empty_strided) {
  return strided(call, args->size, args->stride, like(args->self, PX_OPTIONS(args)));
}

// The samples follow one another in memory.
PX_VMAP_RULE(new_empty_strided) {
  int64_t sizes[PX_MAX_DIMS] = {b->size}, strides[PX_MAX_DIMS];
  int n = args->size.n;
  size_t count;
  px_tensor *made = NULL;
  if (n != args->stride.n || n >= PX_MAX_DIMS) return px__vmap_loop(b, true);
  px__sizes_copy(sizes + 1, args->size.v.ints, n);
  px__sizes_copy(strides + 1, args->stride.v.ints, n);
  PX_TRY(px__check_sizes(n, sizes + 1));
  PX_TRY(px__extent_bytes(&count, n, sizes + 1, strides + 1, 0, PX_UINT8));
  strides[0] = (int64_t)count;
  PX_TRY(px_new_empty_strided(&made, args->self->physical, sizes, n + 1, strides, n + 1,
                              args->dtype, args->device, args->pin_memory, args->requires_grad));
  return px__vmap_set_result(b, 0, made);
}

PX_RUN(new_zeros) {
  PX_TRY(sized(call, args->size, like(args->self, PX_OPTIONS(args))));
  return fill(call->results[0], px_int(0));
}

PX_RUN(new_ones) {
  PX_TRY(sized(call, args->size, like(args->self, PX_OPTIONS(args))));
  return fill(call->results[0], px_int(1));
}

PX_RUN(new_full) {
  PX_TRY(sized(call, args->size, like(args->self, PX_OPTIONS(args))));
  return fill(call->results[0], args->fill_value);
}

PX_RUN(new_full_of_complex) {
  PX_TRY(sized(call, args->size, like(args->self, PX_OPTIONS(args))));
  return fill_from_tensor(call->results[0], args->fill_value);
}

// ---- filled with one value

PX_RUN(filled) {
  const px_tensor *self = args->self;
  PX_TRY(px__empty_as(&call->results[0], self, (px_dtype)self->dtype, px__tensor_device(self)));
  return fill(call->results[0], args->value);
}

PX_RUN(filled_tensor) {
  const px_tensor *self = args->self;
  PX_TRY(px__empty_as(&call->results[0], self, (px_dtype)self->dtype, px__tensor_device(self)));
  return fill_from_tensor(call->results[0], args->value);
}

PX_RUN(fill_tensor) {
  call->results[0] = px_retain(args->self);
  return fill_from_tensor(call->results[0], args->value);
}
