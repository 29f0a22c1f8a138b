// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transforms: composites over three kernels (complex to complex, real to half of a
// complex line, and back). The op's name selects the transform.
#include "hidden/fft.h"
#include "ops/core/run.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "run_functions/fft.h"

#include <string.h>

// ---- kernels

// Checks the kind and support of the dtype, and that the FFT library is loaded.
static px_status check_kernel(const px_call *call, const px_tensor *t, bool complex) {
  px_dtype dtype = (px_dtype)t->dtype;
  PX_CHECK(px_dtype_is_complex(dtype) == complex, complex ? PX_RUNTIME : PX_TYPE,
           "Only supports %s dtypes, but found: %s", complex ? "complex" : "floating-point",
           px_dtype_class(dtype));
  if (dtype != PX_FLOAT32 && dtype != PX_FLOAT64 && dtype != PX_COMPLEX64 && dtype != PX_COMPLEX128)
    return px__refuse_dtype(call->op, dtype, call->device);
  px_device_type type = (px_device_type)call->device.type;
  return type != PX_META && px__runs_host_kernels(type) ? px__fftw_ready() : PX_OK;
}

// Dimensions, outermost first.
typedef struct order {
  int dims[PX_MAX_DIMS], count;
} order;
static bool contains(const order *o, int dim) {
  for (int i = 0; i < o->count; i++)
    if (o->dims[i] == dim) return true;
  return false;
}
// Inserts a dimension after those of larger strides, but not before index `first`.
static void insert(order *o, int first, const px_tensor *t, int dim) {
  int at = o->count++;
  for (; at > first && t->strides[dim] > t->strides[o->dims[at - 1]]; at--)
    o->dims[at] = o->dims[at - 1];
  o->dims[at] = dim;
}
// PyTorch's layout: transformed dimensions are innermost, those of `inside` the very innermost.
// Otherwise dimensions keep their order in t.
static px_status make_result(px_call *call, const px_tensor *t, const int64_t *sizes, px_value dims,
                             px_value innermost, px_dtype dtype) {
  order transformed = {.count = 0}, all = {.count = 0};
  int64_t strides[PX_MAX_DIMS], step = 1;
  for (int i = 0; i < dims.n; i++) insert(&transformed, 0, t, (int)dims.v.ints[i]);
  for (int i = 0; i < innermost.n; i++)
    transformed.dims[transformed.count++] = (int)innermost.v.ints[i];
  for (int d = 0; d < t->ndim; d++)
    if (!contains(&transformed, d)) insert(&all, 0, t, d);
  for (int i = 0; i < transformed.count; i++) all.dims[all.count++] = transformed.dims[i];
  for (int i = all.count; i-- > 0;
       step = px__product(step, sizes[all.dims[i]] ? sizes[all.dims[i]] : 1))
    strides[all.dims[i]] = step;
  return px_tensor_empty_strided(&call->results[0], t->ndim, sizes, strides, dtype, call->device);
}
// Makes a result with size n along the last of the dimensions.
static px_status make_result_sized(px_call *call, const px_tensor *t, px_value dims, int64_t n,
                                   px_dtype dtype) {
  int64_t sizes[PX_MAX_DIMS];
  int last = dims.n - 1;
  px__sizes_copy(sizes, t->sizes, t->ndim);
  sizes[dims.v.ints[last]] = n;
  PX_TRY(
      make_result(call, t, sizes, PX_IS(dims.v.ints, last), PX_IS(dims.v.ints + last, 1), dtype));
  call->skip_launch = call->results[0]->numel == 0;
  return PX_OK;
}
static px_status check_dims(const px_tensor *t, px_value dims) {
  uint64_t unique;
  PX_TRY(px__wrap_dims(&unique, dims.v.ints, dims.n, t->ndim));
  for (int i = 0; i < dims.n; i++) {
    int64_t dim = dims.v.ints[i];
    PX_CHECK(dim >= 0 && dim < t->ndim && t->sizes[dim] > 0, PX_RUNTIME,
             "expected a non-empty dimension of a %d-dimensional tensor, got dimension %lld",
             t->ndim, (long long)dim);
  }
  return PX_OK;
}
PX_RUN(_fft_c2c) {
  const px_tensor *t = args->self;
  PX_TRY(check_kernel(call, t, true));
  PX_TRY(check_dims(t, args->dim));
  PX_TRY(make_result(call, t, t->sizes, args->dim, PX_IS(NULL, 0), (px_dtype)t->dtype));
  call->skip_launch = t->numel == 0;
  return PX_OK;
}
PX_RUN(_fft_r2c) {
  const px_tensor *t = args->self;
  PX_TRY(check_kernel(call, t, false));
  PX_CHECK(args->dim.n == 1 || (args->dim.n > 1 && args->onesided), PX_RUNTIME,
           "expected one dimension for a two-sided transform of real numbers, got %d", args->dim.n);
  PX_TRY(check_dims(t, args->dim));
  int64_t n = t->sizes[args->dim.v.ints[args->dim.n - 1]];
  return make_result_sized(call, t, args->dim, args->onesided ? n / 2 + 1 : n,
                           px_dtype_to_complex((px_dtype)t->dtype));
}
PX_RUN(_fft_c2r) {
  const px_tensor *t = args->self;
  int64_t n = args->last_dim_size;
  PX_TRY(check_kernel(call, t, true));
  PX_TRY(check_dims(t, PX_IS(&args->dim, 1)));
  PX_CHECK(n > 0 && n / 2 + 1 == t->sizes[args->dim], PX_RUNTIME,
           "a size of %lld does not match an output of %lld elements",
           (long long)t->sizes[args->dim], (long long)n);
  return make_result_sized(call, t, PX_IS(&args->dim, 1), n, px_dtype_to_real((px_dtype)t->dtype));
}

// ---- kind of a transform

typedef enum from { FROM_ANY, FROM_REAL, FROM_HALF } from;
typedef struct transform {
  const char *name;  // "irfft2"
  bool forward;
  from from;
  int normalization;
} transform;

static px_status read_norm(transform *t, const char *norm) {
  const char *mode = norm ? norm : "backward";
  bool backward = !strcmp(mode, "backward"), forward = !strcmp(mode, "forward");
  PX_CHECK(backward || forward || !strcmp(mode, "ortho"), PX_RUNTIME,
           "Invalid normalization mode: \"%s\"", mode);
  t->normalization = !backward && !forward ? 1 : forward == t->forward ? 2 : 0;
  return PX_OK;
}
static px_status read_transform(transform *t, const px_call *call, const char *norm) {
  t->name = call->op->name + strlen("fft_");
  t->forward = t->name[0] != 'i';
  char kind = t->name[t->forward ? 0 : 1];
  t->from = kind == 'f' ? FROM_ANY : (kind == 'r') == t->forward ? FROM_REAL : FROM_HALF;
  return read_norm(t, norm);
}
// Checks that out= has the kind of dtype of the result.
static px_status check_given(const px_call *call, const transform *t) {
  if (!call->given[0]) return PX_OK;
  px_dtype dtype = (px_dtype)call->given[0]->dtype;
  bool real = t->from == FROM_HALF;
  PX_CHECK(real ? px_dtype_is_float(dtype) : px_dtype_is_complex(dtype), PX_RUNTIME,
           "%s expects a %s output tensor, but got %s", t->name,
           real ? "floating point" : "complex", px_dtype_class(dtype));
  return PX_OK;
}

// Integers become the default dtype, and reals become complex on request.
static px_status promoted(px_tensor **out, const px_tensor *t, bool complex) {
  px_dtype dtype = (px_dtype)t->dtype;
  if (px_dtype_is_complex(dtype)) return *out = px_retain((px_tensor *)t), PX_OK;
  if (!px_dtype_is_float(dtype)) dtype = px_dtype_default();
  PX_CHECK(dtype == PX_FLOAT32 || dtype == PX_FLOAT64, PX_UNIMPLEMENTED, "Unsupported dtype %s",
           px_dtype_class(dtype));
  return px_to(out, t, complex ? px_dtype_to_complex(dtype) : dtype, PX_DEVICE_NONE, false, false);
}

// Narrows or zero-pads the given dimensions to the given sizes.
static px_status resized(px_tensor **out, const px_tensor *t, const int64_t *dims,
                         const int64_t *sizes, int count) {
  int64_t pad[2 * PX_MAX_DIMS] = {0};
  int64_t pad_count = 0;
  PX_SCOPED(px_tensor) current = px_retain((px_tensor *)t);
  for (int i = 0; i < count; i++) {
    int64_t have = t->sizes[dims[i]], pad_index = 2 * (t->ndim - 1 - dims[i]);
    if (sizes[i] > have) {
      pad[pad_index + 1] = sizes[i] - have;
      if (pad_index + 2 > pad_count) pad_count = pad_index + 2;
    } else if (sizes[i] < have) {
      PX_SCOPED(px_tensor) part = NULL;
      PX_TRY(px_narrow(&part, current, dims[i], 0, sizes[i]));
      px_release(current);
      current = PX_MOVE(part);
    }
  }
  if (pad_count) return px_constant_pad_nd(out, current, pad, pad_count, px_int(0));
  *out = PX_MOVE(current);
  return PX_OK;
}
static px_status check_points(int64_t n) {
  PX_CHECK(n >= 1, PX_RUNTIME, "Invalid number of data points (%lld) specified", (long long)n);
  return PX_OK;
}

// ---- one dimension

static px_status to_complex(px_tensor **out, const px_tensor *t, const transform *f, int64_t dim) {
  PX_SCOPED(px_tensor) made = NULL;
  if (px_dtype_is_complex((px_dtype)t->dtype))
    return px__fft_c2c(out, t, &dim, 1, f->normalization, f->forward ? 1 : -1);
  PX_TRY(px__fft_r2c(&made, t, &dim, 1, f->normalization, f->from == FROM_REAL));
  if (!f->forward) return px_conj(out, made);
  *out = PX_MOVE(made);
  return PX_OK;
}
static px_status to_real(px_tensor **out, const px_tensor *t, const transform *f, int64_t dim,
                         int64_t n) {
  PX_SCOPED(px_tensor) input = NULL;
  PX_TRY(f->forward ? px_conj(&input, t) : (input = px_retain((px_tensor *)t), PX_OK));
  return px__fft_c2r(out, input, dim, f->normalization, n);
}

// Resizes out= to the strides of a conjugate-view result.
static px_status resize_like(px_call *call, const px_tensor *made) {
  px_tensor *given = call->mode == PX_CALL_OUT ? call->given[0] : NULL;
  PX_SCOPED(px_tensor) view = NULL;
  if (!given || !px__has_conj_neg(made) || px__has_sizes(given, made->ndim, made->sizes))
    return PX_OK;
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__check_not_batched(made));
  PX_TRY(px__resize_output(given, made->ndim, made->sizes));
  PX_TRY(px_tensor_as_strided(&view, given, made->ndim, made->sizes, made->strides, given->offset));
  return px__tensor_take_geometry(given, view);
}

PX_RUN(fft_line) {
  const px_tensor *self = args->self;
  transform f;
  int wrapped;
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) sized = NULL;
  PX_TRY(read_transform(&f, call, args->norm));
  PX_CHECK(f.from != FROM_REAL || !px_dtype_is_complex((px_dtype)self->dtype), PX_TYPE,
           "%s expects a real input tensor, but got %s", f.name,
           px_dtype_class((px_dtype)self->dtype));
  PX_TRY(promoted(&t, self, f.from == FROM_HALF));
  PX_TRY(px__wrap_size_dim(&wrapped, args->dim, self->ndim));
  int64_t dim = wrapped, have = self->sizes[dim];
  int64_t n = px__given(args->n)    ? px_value_int(args->n)
              : f.from == FROM_HALF ? 2 * (have - 1)
                                    : have;
  PX_TRY(check_points(n));
  PX_TRY(check_given(call, &f));
  int64_t read = f.from != FROM_HALF ? n : px__given(args->n) ? n / 2 + 1 : have;
  PX_TRY(resized(&sized, t, &dim, &read, 1));
  if (f.from == FROM_HALF) return to_real(&call->results[0], sized, &f, dim, n);
  PX_TRY(to_complex(&call->results[0], sized, &f, dim));
  return f.forward ? PX_OK : resize_like(call, call->results[0]);
}

// ---- several dimensions

typedef struct region {
  int64_t dims[PX_MAX_DIMS], sizes[PX_MAX_DIMS];
  int count;
} region;

static px_status read_dims(region *r, const px_tensor *t, px_value dims, px_value sizes) {
  uint64_t seen = 0;
  int given = px__given(dims) ? dims.n : px__given(sizes) ? sizes.n : t->ndim;
  PX_CHECK(given <= PX_MAX_DIMS, PX_RUNTIME, "FFT dims must be unique");
  r->count = given;
  for (int i = 0; i < given; i++) {
    int d = t->ndim - given + i;
    if (px__given(dims)) PX_TRY(px__wrap_size_dim(&d, dims.v.ints[i], t->ndim));
    PX_CHECK(!(seen >> d & 1), PX_RUNTIME, "FFT dims must be unique");
    seen |= UINT64_C(1) << d;
    r->dims[i] = d;
  }
  return PX_OK;
}
static px_status read_region(region *r, const px_tensor *t, px_value dims, px_value sizes) {
  if (px__given(sizes)) {
    PX_CHECK(!px__given(dims) || dims.n == sizes.n, PX_RUNTIME,
             "When given, dim and shape arguments must have the same length");
    PX_CHECK(sizes.n <= t->ndim, PX_RUNTIME,
             "Got shape with %d values but input tensor only has %d dimensions.", sizes.n, t->ndim);
  }
  PX_TRY(read_dims(r, t, dims, sizes));
  for (int i = 0; i < r->count; i++) {
    r->sizes[i] = px__given(sizes) ? sizes.v.ints[i] : -1;
    if (r->sizes[i] == -1) r->sizes[i] = t->sizes[r->dims[i]];
    PX_TRY(check_points(r->sizes[i]));
  }
  return PX_OK;
}
static px_status check_any(const region *r, const char *name) {
  PX_CHECK(r->count > 0, PX_RUNTIME, "%s must transform at least one axis", name);
  return PX_OK;
}
static px_status transform_c2c(px_tensor **out, const px_tensor *t, const region *r, int count,
                               const transform *f) {
  return px__fft_c2c(out, t, r->dims, count, f->normalization, f->forward ? 1 : -1);
}

static px_status complex_dims(px_tensor **out, const px_tensor *t, const region *r,
                              const transform *f) {
  PX_SCOPED(px_tensor) sized = NULL;
  PX_TRY(resized(&sized, t, r->dims, r->sizes, r->count));
  return transform_c2c(out, sized, r, r->count, f);
}
// Transforms half of the last dimension only.
static px_status real_dims(px_tensor **out, const px_tensor *t, const region *r,
                           const transform *f) {
  int last = r->count - 1;
  PX_SCOPED(px_tensor) sized = NULL;
  PX_SCOPED(px_tensor) half = NULL;
  PX_TRY(resized(&sized, t, r->dims, r->sizes, r->count));
  if (f->forward) return px__fft_r2c(out, sized, r->dims, r->count, f->normalization, true);
  PX_TRY(to_complex(&half, sized, f, r->dims[last]));
  if (last) return transform_c2c(out, half, r, last, f);
  *out = PX_MOVE(half);
  return PX_OK;
}
static px_status half_dims(px_tensor **out, const px_tensor *t, region *r, int64_t n,
                           const transform *f) {
  int last = r->count - 1;
  PX_SCOPED(px_tensor) sized = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(check_points(n));
  r->sizes[last] = n / 2 + 1;
  PX_TRY(resized(&sized, t, r->dims, r->sizes, r->count));
  if (last) PX_TRY(transform_c2c(&made, sized, r, last, f));
  return to_real(out, last ? made : sized, f, r->dims[last], n);
}

static px_status check_real_dims(const px_tensor *t, const transform *f) {
  px_dtype dtype = (px_dtype)t->dtype;
  if (f->from != FROM_REAL || !px_dtype_is_complex(dtype)) return PX_OK;
  PX_CHECK(!f->forward, PX_TYPE, "rfftn expects a real-valued input tensor, but got %s",
           px_dtype_class(dtype));
  PX_FAIL(PX_TYPE, "Only supports floating-point dtypes, but found: %s", px_dtype_class(dtype));
}
static px_status transform_dims(px_call *call, const px_tensor *self, px_value sizes, px_value dims,
                                const char *norm) {
  static const char *const many[] = {"rfftn", "ihfftn", "irfftn", "hfftn"};
  transform f;
  region r;
  PX_SCOPED(px_tensor) t = NULL;
  PX_TRY(read_transform(&f, call, norm));
  f.name = f.from == FROM_ANY
               ? "fftn"
               : many[2 * (f.from == FROM_HALF) + (f.forward == (f.from == FROM_HALF))];
  PX_TRY(check_real_dims(self, &f));
  PX_TRY(read_region(&r, self, dims, sizes));
  if (f.from != FROM_ANY) PX_TRY(check_any(&r, f.name));
  PX_TRY(promoted(&t, self, f.from != FROM_REAL));
  PX_TRY(check_given(call, &f));
  px_tensor **out = &call->results[0];
  if (f.from == FROM_ANY) return complex_dims(out, t, &r, &f);
  if (f.from == FROM_REAL) return real_dims(out, t, &r, &f);
  bool given = px__given(sizes) && sizes.v.ints[r.count - 1] != -1;
  int64_t n = r.sizes[r.count - 1];
  return half_dims(out, t, &r, given ? n : 2 * (n - 1), &f);
}
PX_RUN(fft_dims) { return transform_dims(call, args->self, args->s, args->dim, args->norm); }
PX_RUN(fft_planes) { return transform_dims(call, args->self, args->s, args->dim, args->norm); }

// ---- frequencies

static px_status frequencies(px_call *call, int64_t count, int64_t n, double d, px__options o) {
  px_dtype dtype = o.dtype == PX_DTYPE_NONE ? px_dtype_default() : o.dtype;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_CHECK(px_dtype_is_float(dtype) || px_dtype_is_complex(dtype), PX_RUNTIME,
           "%s requires a floating point or complex dtype", call->op->name + strlen("fft_"));
  PX_CHECK(count >= 0, PX_RUNTIME, "Trying to create tensor with negative dimension %lld: [%lld]",
           (long long)n, (long long)n);
  PX_TRY(
      px_arange(&made, px_int(0), px_int(count), px_int(1), dtype, o.device, o.pin_memory, false));
  int64_t half = (n + 1) / 2;
  if (count == n && half < n) {
    PX_TRY(px_narrow(&below, made, 0, half, n - half));
    PX_TRY(px_sub_scalar_(below, px_int(n), px_int(1)));
  }
  PX_TRY(px_mul_scalar_(made, px_float(1 / ((double)n * d))));
  call->device = px__tensor_device(made);
  if (o.requires_grad) PX_TRY(px_tensor_set_requires_grad(made, true));
  call->results[0] = PX_MOVE(made);
  return PX_OK;
}
PX_RUN(fft_fftfreq) { return frequencies(call, args->n, args->n, args->d, PX_OPTIONS(args)); }
PX_RUN(fft_rfftfreq) {
  int64_t count = args->n < 0 ? args->n : args->n / 2 + 1;
  return frequencies(call, count, args->n, args->d, PX_OPTIONS(args));
}

PX_RUN(fft_shift) {
  const px_tensor *self = args->self;
  bool back = !strcmp(call->op->name, "fft_ifftshift"), given = px__given(args->dim);
  int64_t dims[PX_MAX_DIMS], shifts[PX_MAX_DIMS];
  int count = given ? args->dim.n : self->ndim;
  PX_CHECK(count <= PX_MAX_DIMS, PX_RUNTIME, "only up to %d dimensions can be shifted",
           PX_MAX_DIMS);
  for (int i = 0; i < count; i++) {
    int d = i;
    if (given) PX_TRY(px__wrap_dim(&d, args->dim.v.ints[i], self->ndim));
    dims[i] = d;
    int64_t n = self->ndim ? self->sizes[d] : 1;
    shifts[i] = back ? (n + 1) / 2 : n / 2;
  }
  return px_roll(&call->results[0], self, shifts, count, dims, count);
}
