// SPDX-License-Identifier: Apache-2.0
// Constant padding copies into a larger tensor. Other modes use a kernel, or index_select along one
// dimension at a time if a backend lacks it. Pad sizes come in pairs, last dimension first. Sources
// are computed on the host, so these are no formulas.
#include "formulas.h"
#include "hidden/index.h"
#include "ops/core/run.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "run_functions/index.h"

#define LL(x) ((long long)(x))

// ---- constant padding

typedef struct layout {
  int64_t sizes[PX_MAX_DIMS], first[PX_MAX_DIMS], from[PX_MAX_DIMS], count[PX_MAX_DIMS];
} layout;

// Position of the tensor in the result. Negative padding crops.
static px_status set_layout(layout *f, const px_tensor *self, px_value pad) {
  for (int d = 0; d < self->ndim; d++) {
    int pair = 2 * (self->ndim - 1 - d);
    int64_t before = pair < pad.n ? pad.v.ints[pair] : 0;
    int64_t after = pair < pad.n ? pad.v.ints[pair + 1] : 0;
    int64_t kept = self->sizes[d] + (before < 0 ? before : 0);
    // kept is at least 0 after the first crop, so the second one cannot overflow either.
    if (kept >= 0 && after < 0) kept += after;
    PX_CHECK(kept >= 0, PX_RUNTIME, "narrow(): length must be non-negative.");
    PX_CHECK(!__builtin_add_overflow(kept, before > 0 ? before : 0, &f->sizes[d]) &&
                 !__builtin_add_overflow(f->sizes[d], after > 0 ? after : 0, &f->sizes[d]),
             PX_RUNTIME, "padding (%lld, %lld) is too large", LL(before), LL(after));
    f->first[d] = before > 0 ? before : 0;
    f->from[d] = before < 0 ? -before : 0;
    f->count[d] = kept;
  }
  return PX_OK;
}

PX_RUN(constant_pad_nd) {
  const px_tensor *self = args->self;
  int n = self->ndim;
  layout f;
  PX_TRY(set_layout(&f, self, args->pad));
  return px__formula_constant_padded(
      call->results, (px_value[]){PX_T(self), PX_S(args->value), PX_IS(f.sizes, n),
                                  PX_IS(f.first, n), PX_IS(f.from, n), PX_IS(f.count, n)});
}

// ---- padding with elements of the tensor

// Source index for an index i that may be outside of [0, size).
static int64_t reflect(int64_t i, int64_t size) {
  return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
}
static int64_t replicate(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }
static int64_t circular(int64_t i, int64_t size) { return (i % size + size) % size; }

static const struct {
  const char *name;
  int64_t (*source)(int64_t i, int64_t size);
  int64_t max_pad;  // max padding minus the size; 1: unlimited
  const char *text;
} modes[] = {{"reflect", reflect, -1,
              "Padding size should be less than the corresponding input dimension, but got: "
              "padding (%lld, %lld) at dimension %d of input %s"},
             {"replicate", replicate, 1, ""},
             {"circular", circular, 0, "Padding value causes wrapping around more than once."}};

enum { MAX_PADDED_DIMS = 3 };  // dimensions
static bool is_small(int64_t pad) { return -INT32_MAX <= pad && pad <= INT32_MAX; }
static bool fits(int64_t size, int64_t before, int64_t after) {
  int64_t padded;
  return size > 0 && is_small(before) && is_small(after) &&
         !__builtin_add_overflow(size, before + after, &padded) && padded > 0;
}

// Padding of a dimension.
typedef struct padding {
  int dim;
  int64_t before, after, size;
  int64_t first, kept;  // range of source elements
} padding;

static px_status padding_of(padding *e, int ndim, const int64_t *sizes, px_value pad, int k,
                            int mode) {
  int dim = ndim - 1 - k;
  int64_t size = sizes[dim], before = pad.v.ints[2 * k], after = pad.v.ints[2 * k + 1];
  char text[256];
  int64_t max_pad =
      modes[mode].max_pad > 0 ? INT64_MAX : (size > 0 ? size : 0) + modes[mode].max_pad;
  *e = (padding){dim, 0, 0, size, 0, size};
  if (before == 0 && after == 0) return PX_OK;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
  PX_CHECK(before <= max_pad && after <= max_pad, PX_RUNTIME, modes[mode].text, LL(before),
           LL(after), dim, px__sizes_text(text, sizeof text, ndim, sizes));
#pragma GCC diagnostic pop
  PX_CHECK(fits(size, before, after), PX_RUNTIME,
           "padding (%lld, %lld) results in an empty dimension %d, from size %lld", LL(before),
           LL(after), dim, LL(size));
  // Circular padding does not wrap to cropped elements.
  bool crops = modes[mode].source == circular;
  int64_t first = crops && before < 0 ? -before : 0, last = crops && after < 0 ? -after : 0;
  *e = (padding){dim, before, after, size + before + after, first, size - first - last};
  PX_CHECK(e->kept > 0, PX_RUNTIME, "Negative padding value is resulting in an empty dimension");
  return PX_OK;
}
static void list_sources(int64_t *to, const padding *e, int mode) {
  for (int64_t i = 0; i < e->size; i++)
    to[i] = e->first + modes[mode].source(i - e->before - e->first, e->kept);
}

// Fails for empty dimensions other than the batch, except in circular mode.
static px_status check_inner(const px_tensor *x, int dims, int mode) {
  char text[128];
  bool empty = false;
  for (int d = x->ndim == dims + 2; d < x->ndim; d++) empty |= x->sizes[d] == 0;
  PX_CHECK(!empty || modes[mode].source == circular, PX_RUNTIME,
           "Expected %dD or %dD (batch mode) tensor with possibly 0 batch size and other non-zero "
           "dimensions for input, but got: %s",
           dims + 1, dims + 2, px__size_text(text, sizeof text, x));
  return PX_OK;
}

static px_status pad_edges(px_tensor **out, const px_tensor *self, px_value pad, int mode) {
  int dims = pad.n / 2;
  bool pads = false;
  PX_CHECK(dims && dims <= MAX_PADDED_DIMS && (self->ndim == dims + 1 || self->ndim == dims + 2),
           PX_UNIMPLEMENTED,
           "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now");
  PX_TRY(check_inner(self, dims, mode));
  for (int i = 0; i < pad.n; i++) pads |= pad.v.ints[i] != 0;
  if (!pads) return px_clone(out, self, NULL);
  return px__pad_near(out, self, pad.v.ints, pad.n, modes[mode].name);
}

static px_status mode_of(int *mode, const char *name) {
  for (int i = 0; i < PX_COUNT_OF(modes); i++)
    if (!strcmp(name, modes[i].name)) return *mode = i, PX_OK;
  PX_FAIL(PX_UNIMPLEMENTED, "Unrecognised padding mode %s", name);
}
PX_RUN(_pad_edges) {
  int mode = 0;
  PX_TRY(mode_of(&mode, args->mode));
  return pad_edges(&call->results[0], args->input, args->pad, mode);
}

// Source indices of all padded dimensions, the outermost first.
static px_status sources_of(px_tensor **out, const padding *e, int dims, int mode,
                            px_device device) {
  PX_SCOPED(px_tensor) sources = NULL;
  int64_t total = 0;
  for (int k = 0; k < dims; k++) total += e[k].size;
  PX_TRY(px_tensor_empty(&sources, 1, &total, PX_INT64, px_cpu()));
  int64_t *to = px__tensor_at(sources);
  for (int k = dims - 1; k >= 0; to += e[k--].size) list_sources(to, &e[k], mode);
  return px__tensor_to(out, sources, PX_INT64, device);
}
static px_status index_each_dim(px_tensor **out, px_tensor *self, const padding *e, int dims,
                                int mode) {
  PX_SCOPED(px_tensor) current = px_retain(self);
  for (int k = 0; k < dims; k++) {
    PX_SCOPED(px_tensor) sources = NULL;
    px_tensor *next = NULL;
    if (!e[k].before && !e[k].after) continue;
    PX_TRY(sources_of(&sources, &e[k], 1, mode, px__tensor_device(self)));
    PX_TRY(px_index_select(&next, current, e[k].dim, sources));
    px_release(current);
    current = next;
  }
  *out = PX_MOVE(current);
  return PX_OK;
}

static px__named_kernel kernel = {.name = "pad_edges", .moves = true};
PX_RUN(_pad_near) {
  px_tensor *self = args->input;
  int64_t sizes[PX_MAX_DIMS];
  padding e[MAX_PADDED_DIMS];
  int mode = 0, dims = args->pad.n / 2;
  PX_SCOPED(px_tensor) sources = NULL;
  PX_TRY(mode_of(&mode, args->mode));
  memcpy(sizes, self->sizes, sizeof *sizes * (size_t)self->ndim);
  for (int k = 0; k < dims; k++) {
    PX_TRY(padding_of(&e[k], self->ndim, self->sizes, args->pad, k, mode));
    sizes[e[k].dim] = e[k].size;
  }
  if (!px__named_kernel_on(&kernel, (px_device_type)call->device.type))
    return index_each_dim(&call->results[0], self, e, dims, mode);
  PX_TRY(px__call_empty(call, 0, self->ndim, sizes, (px_dtype)self->dtype));
  PX_TRY(sources_of(&sources, e, dims, mode, call->device));
  px_tensor *given[] = {self, sources};
  const px_value count = PX_I(dims);
  return px__run_kernel(&kernel, call->device, 1, &call->results[0], 2, given, &count, 1);
}

static px_status pad_backward(px_tensor **out, px_tensor *grad, const padding *e, int mode) {
  PX_SCOPED(px_tensor) sources = NULL;
  PX_TRY(sources_of(&sources, e, 1, mode, px__tensor_device(grad)));
  return px__formula_pad_gradient(
      out, (px_value[]){PX_T(grad), PX_T(sources), PX_I(e->dim), PX_I(e->before), PX_I(e->after)});
}
PX_RUN(_pad_near_backward) {
  const px_value sizes = args->input_sizes;
  PX_SCOPED(px_tensor) current = px_retain(args->grad_output);
  int mode = 0;
  PX_TRY(mode_of(&mode, args->mode));
  for (int k = args->pad.n / 2 - 1; k >= 0; k--) {
    padding e;
    px_tensor *next = NULL;
    PX_TRY(padding_of(&e, current->ndim, sizes.v.ints, args->pad, k, mode));
    PX_CHECK(current->sizes[e.dim] == e.size, PX_RUNTIME,
             "grad_output has size %lld in dimension %d, expected %lld", LL(current->sizes[e.dim]),
             e.dim, LL(e.size));
    if (!e.before && !e.after) continue;
    PX_TRY(pad_backward(&next, current, &e, mode));
    px_release(current);
    current = next;
  }
  call->results[0] = PX_MOVE(current);
  return PX_OK;
}

PX_RUN(pad) {
  const px_tensor *input = args->input;
  px_value pad = args->pad;
  const char *mode = args->mode;
  bool given = px__given(args->value);
  px_scalar value = given ? px_float(px_value_float(args->value)) : px_int(0);  // as in PyTorch
  if (!strcmp(mode, "constant"))
    return px_constant_pad_nd(&call->results[0], input, pad.v.ints, pad.n, value);
  PX_CHECK(!given || px_scalar_float(value) == 0, PX_RUNTIME,
           "Padding mode \"%s\" doesn't take in value argument", mode);
  int which = 0;
  PX_TRY(mode_of(&which, mode));
  if (modes[which].source != circular)
    return px__pad_edges(&call->results[0], input, pad.v.ints, pad.n, mode);
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(pad_edges(&made, input, pad, which));
  return px_contiguous(&call->results[0], made);
}
