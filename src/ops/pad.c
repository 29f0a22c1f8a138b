// SPDX-License-Identifier: Apache-2.0
// Padding with a value: the tensor is copied into a larger one. Padding with what is at the edges:
// by indexing (on the CPU of the edges alone), one dimension after the other. Sizes come in pairs,
// the last dimension first.
#include "hidden/index.h"
#include "ops/run.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "run_functions/index.h"

#define LL(x) ((long long)(x))

// ---- a value

PX_RUN(constant_pad_nd_of_complex) {
  const px_tensor *self = args->self;
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) around = NULL;
  PX_SCOPED(px_tensor) padded = NULL;
  px_value pad = args->pad;
  PX_TRY(px__check_complex_scalar(self));
  PX_TRY(px_zeros_like(&none, self, PX_BOOL, PX_DEVICE_NONE, false, false, NULL));
  PX_TRY(px_constant_pad_nd(&around, none, pad.v.ints, pad.n, px_int(1)));
  PX_TRY(px_constant_pad_nd(&padded, self, pad.v.ints, pad.n, px_int(0)));
  return px_masked_fill_tensor(&call->results[0], padded, around, args->value);
}

typedef struct frame {
  int64_t sizes[PX_MAX_DIMS], first[PX_MAX_DIMS], from[PX_MAX_DIMS], count[PX_MAX_DIMS];
} frame;

// Where the tensor comes to lie; negative pads cut it.
static px_status lay_out(frame *f, const px_tensor *self, px_value pad) {
  for (int d = 0; d < self->ndim; d++) {
    int pair = 2 * (self->ndim - 1 - d);
    int64_t before = pair < pad.n ? pad.v.ints[pair] : 0;
    int64_t behind = pair < pad.n ? pad.v.ints[pair + 1] : 0;
    int64_t kept = self->sizes[d] + (before < 0 ? before : 0);
    // What the first cut leaves is not less than 0, so the second one cannot overflow either.
    if (kept >= 0 && behind < 0) kept += behind;
    PX_CHECK(kept >= 0, PX_RUNTIME, "narrow(): length must be non-negative.");
    PX_CHECK(!__builtin_add_overflow(kept, before > 0 ? before : 0, &f->sizes[d]) &&
                 !__builtin_add_overflow(f->sizes[d], behind > 0 ? behind : 0, &f->sizes[d]),
             PX_RUNTIME, "padding (%lld, %lld) is too large", LL(before), LL(behind));
    f->first[d] = before > 0 ? before : 0;
    f->from[d] = before < 0 ? -before : 0;
    f->count[d] = kept;
  }
  return PX_OK;
}

// The part of t that starts at `first` and has the frame's counts.
static px_status part(px_tensor **out, const px_tensor *t, const int64_t *first, const frame *f) {
  PX_SCOPED(px_tensor) now = px_retain((px_tensor *)t);
  for (int d = 0; d < t->ndim; d++) {
    px_tensor *next;
    // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): the frame has all dimensions of t
    PX_TRY(px_narrow(&next, now, d, f->count[d] ? first[d] : 0, f->count[d]));
    px_release(now);
    now = next;
  }
  *out = PX_MOVE(now);
  return PX_OK;
}

PX_RUN(constant_pad_nd) {
  const px_tensor *self = args->self;
  frame f;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) inner = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  PX_TRY(lay_out(&f, self, args->pad));
  PX_TRY(px_full(&made, f.sizes, self->ndim, args->value, (px_dtype)self->dtype,
                 px__tensor_device(self), false, false));
  PX_TRY(part(&inner, made, f.first, &f));
  PX_TRY(part(&kept, self, f.from, &f));
  PX_TRY(px__tensor_copy(inner, kept, false));
  call->results[0] = PX_MOVE(made);
  return PX_OK;
}

// ---- what lies at the edges

// The place that stands for place i, which may be outside.
static int64_t mirrored(int64_t i, int64_t size) {
  return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
}
static int64_t nearest(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }
static int64_t around(int64_t i, int64_t size) { return (i % size + size) % size; }

static const struct {
  const char *name;
  int64_t (*place)(int64_t i, int64_t size);
  int64_t most;  // of a pad, beside the size; 1: as much as you like
  const char *text;
} modes[] = {{"reflect", mirrored, -1,
              "Padding size should be less than the corresponding input dimension, but got: "
              "padding (%lld, %lld) at dimension %d of input %s"},
             {"replicate", nearest, 1, ""},
             {"circular", around, 0, "Padding value causes wrapping around more than once."}};

static bool is_small(int64_t pad) { return -INT32_MAX <= pad && pad <= INT32_MAX; }

// On the CPU what is within is copied in long pieces, and only the edges are picked.
static px_status join_edges(px_tensor **out, const px_tensor *self, int dim, px_tensor *places,
                            int64_t before, int64_t behind) {
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  PX_TRY(px_narrow(&first, places, 0, 0, before));
  PX_TRY(px_narrow(&last, places, 0, places->numel - behind, behind));
  PX_TRY(px_index_select(&left, self, dim, first));
  PX_TRY(px_index_select(&right, self, dim, last));
  px_tensor *parts[] = {left, (px_tensor *)self, right};
  return px_cat(out, parts, 3, dim);
}
static bool has_few_edges(const px_tensor *self, int64_t size, int64_t before, int64_t behind) {
  bool on_cpu = px__tensor_device(self).type == PX_CPU;
  return on_cpu && before >= 0 && behind >= 0 && before + behind <= size / 2;
}

static px_status pad_dim(px_tensor **out, const px_tensor *self, int dim, int mode, int64_t before,
                         int64_t behind) {
  int64_t size = self->sizes[dim];
  PX_SCOPED(px_tensor) places = NULL;
  PX_SCOPED(px_tensor) near = NULL;
  char text[256];
  int64_t most = modes[mode].most > 0 ? INT64_MAX : size + modes[mode].most;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
  PX_CHECK(before <= most && behind <= most, PX_RUNTIME, modes[mode].text, LL(before), LL(behind),
           dim, px__sizes_text(text, sizeof text, self->ndim, self->sizes));
#pragma GCC diagnostic pop
  PX_CHECK(size > 0 && is_small(before) && is_small(behind) && size + before + behind > 0,
           PX_RUNTIME, "padding (%lld, %lld) leaves nothing of dimension %d of size %lld",
           LL(before), LL(behind), dim, LL(size));
  int64_t count = size + before + behind;
  PX_TRY(px_tensor_empty(&places, 1, &count, PX_INT64, px_cpu()));
  // What a negative pad cuts off has no part in what goes around.
  bool cuts = modes[mode].place == around;
  int64_t first = cuts && before < 0 ? -before : 0, last = cuts && behind < 0 ? -behind : 0;
  int64_t *to = px__tensor_at(places), kept = size - first - last;
  PX_CHECK(kept > 0, PX_RUNTIME, "Negative padding value is resulting in an empty dimension");
  for (int64_t i = 0; i < count; i++) to[i] = first + modes[mode].place(i - before - first, kept);
  if (has_few_edges(self, size, before, behind))
    return join_edges(out, self, dim, places, before, behind);
  PX_TRY(px__tensor_to(&near, places, PX_INT64, px__tensor_device(self)));
  return px_index_select(out, self, dim, near);
}

// All but the batch have elements, unless what goes around is nothing.
static px_status check_inner(const px_tensor *x, int dims, int mode) {
  char text[128];
  bool empty = false;
  for (int d = x->ndim == dims + 2; d < x->ndim; d++) empty |= x->sizes[d] == 0;
  PX_CHECK(!empty || modes[mode].place == around, PX_RUNTIME,
           "Expected %dD or %dD (batch mode) tensor with possibly 0 batch size and other non-zero "
           "dimensions for input, but got: %s",
           dims + 1, dims + 2, px__size_text(text, sizeof text, x));
  return PX_OK;
}

static px_status pad_edges(px_tensor **out, const px_tensor *self, px_value pad, int mode) {
  PX_SCOPED(px_tensor) now = px_retain(self);
  int dims = pad.n / 2;
  PX_CHECK(dims && dims <= 3 && (now->ndim == dims + 1 || now->ndim == dims + 2), PX_UNIMPLEMENTED,
           "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now");
  PX_TRY(check_inner(now, dims, mode));
  for (int k = 0; k < dims; k++) {
    px_tensor *next;
    if (!pad.v.ints[2 * k] && !pad.v.ints[2 * k + 1]) continue;
    PX_TRY(pad_dim(&next, now, now->ndim - 1 - k, mode, pad.v.ints[2 * k], pad.v.ints[2 * k + 1]));
    px_release(now);
    now = next;
  }
  if (now == self) return px_clone(out, self, NULL);
  *out = PX_MOVE(now);
  return PX_OK;
}

PX_RUN(_pad_edges) {
  for (int i = 0; i < PX_COUNT_OF(modes); i++)
    if (!strcmp(args->mode, modes[i].name))
      return pad_edges(&call->results[0], args->input, args->pad, i);
  PX_FAIL(PX_UNIMPLEMENTED, "Unrecognised padding mode %s", args->mode);
}

PX_RUN(pad) {
  const px_tensor *input = args->input;
  px_value pad = args->pad;
  const char *mode = args->mode;
  bool given = px__given(args->value);
  px_scalar value = given ? px_value_scalar(args->value) : px_int(0);
  if (!strcmp(mode, "constant"))
    return px_constant_pad_nd(&call->results[0], input, pad.v.ints, pad.n, value);
  PX_CHECK(!given || px_scalar_float(value) == 0, PX_RUNTIME,
           "Padding mode \"%s\" doesn't take in value argument", mode);
  for (int i = 0; i < PX_COUNT_OF(modes); i++)
    if (!strcmp(mode, modes[i].name))
      return modes[i].place == around
                 ? pad_edges(&call->results[0], input, pad, i)
                 : px__pad_edges(&call->results[0], input, pad.v.ints, pad.n, mode);
  PX_FAIL(PX_UNIMPLEMENTED, "Unrecognised padding mode %s", mode);
}
