// SPDX-License-Identifier: Apache-2.0
// Resizing signals and images, one dimension after the other. Each place of the result is a
// weighted sum of a few places of the input, its taps, which are taken by indexing. Places are
// computed in float, as in PyTorch.
#include <math.h>

#include "ops/run.h"

#define LL(x) ((long long)(x))

enum { TAPS = 4 };

// The places and weights of one place of the result that lies at `at` of the input.
typedef void (*spread)(float at, int64_t size, int64_t *places, float *weights);

static int64_t within(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

static void one_tap(float at, int64_t size, int64_t *places, float *weights) {
  places[0] = within((int64_t)floorf(at), size);
}
static void two_taps(float at, int64_t size, int64_t *places, float *weights) {
  float inside = at < 0 ? 0 : at;
  places[0] = within((int64_t)inside, size);
  places[1] = within(places[0] + 1, size);
  weights[1] = inside - (float)places[0];
  weights[0] = 1 - weights[1];
}
// Keys 1981, with a = -0.75.
static float keys(float x) {
  const float a = -0.75f;
  x = fabsf(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}
static void four_taps(float at, int64_t size, int64_t *places, float *weights) {
  float low = floorf(at), rest = at - low;
  for (int k = 0; k < 4; k++) {
    places[k] = within((int64_t)low - 1 + k, size);
    weights[k] = keys(rest + 1 - (float)k);
  }
}

static const struct mode {
  const char *name;
  int dims;  // spatial dimensions; 0: any
  int taps;
  spread spread;
  float centre;  // of a place: what is added before scaling, and taken off again if there are taps
  bool corners;  // takes align_corners
} modes[] = {{"nearest", 0, 1, one_tap, 0, false},
             {"nearest-exact", 0, 1, one_tap, 0.5f, false},
             {"linear", 1, 2, two_taps, 0.5f, true},
             {"bilinear", 2, 2, two_taps, 0.5f, true},
             {"bicubic", 2, 4, four_taps, 0.5f, true}};

// Where place i of `to` lies among `from` places.
static float place_of(const struct mode *m, int64_t i, int64_t from, int64_t to, double scale,
                      bool corners) {
  float step = scale > 0 ? (float)(1 / scale) : (float)from / (float)to;
  if (corners) return to > 1 ? (float)i * ((float)(from - 1) / (float)(to - 1)) : 0;
  float at = ((float)i + m->centre) * step;
  return m->taps > 1 ? at - m->centre : at;
}

typedef struct tables {
  px_tensor *places[TAPS], *weights[TAPS];
} tables;

static void tables_drop(tables *t) {
  for (int k = 0; k < TAPS; k++) px_release(t->places[k]), px_release(t->weights[k]);
}
static px_status tables_fill(tables *t, const struct mode *m, const px_tensor *x, int dim,
                             int64_t to, double scale, bool corners) {
  int64_t *places[TAPS], one[TAPS];
  float *weights[TAPS], weight[TAPS];
  const int taps = m->taps;
  for (int k = 0; k < taps; k++) {
    PX_TRY(px_tensor_empty(&t->places[k], 1, &to, PX_INT64, px_cpu()));
    PX_TRY(px_tensor_empty(&t->weights[k], 1, &to, PX_FLOAT32, px_cpu()));
    places[k] = px__tensor_at(t->places[k]), weights[k] = px__tensor_at(t->weights[k]);
  }
  for (int64_t i = 0; i < to; i++) {
    m->spread(place_of(m, i, x->sizes[dim], to, scale, corners), x->sizes[dim], one, weight);
    for (int k = 0; k < taps; k++) places[k][i] = one[k];
    for (int k = 0; k < taps && taps > 1; k++) weights[k][i] = weight[k];
  }
  return PX_OK;
}

// The taps of one k: the places picked, times their weights.
static px_status tap(px_tensor **out, const px_tensor *x, int dim, const tables *t, int k,
                     bool weighed) {
  PX_SCOPED(px_tensor) places = NULL;
  PX_SCOPED(px_tensor) picked = NULL;
  PX_SCOPED(px_tensor) weights = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  int64_t sizes[PX_MAX_DIMS];
  px_device device = px__tensor_device(x);
  PX_TRY(px_to(&places, t->places[k], PX_INT64, device, false, false));
  if (!weighed) return px_index_select(out, x, dim, places);
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what weighs has weights
  for (int d = 0; d < x->ndim; d++) sizes[d] = d == dim ? t->weights[k]->numel : 1;
  PX_TRY(px_index_select(&picked, x, dim, places));
  PX_TRY(px_to(&weights, t->weights[k], (px_dtype)x->dtype, device, false, false));
  PX_TRY(px_reshape(&shaped, weights, sizes, x->ndim));
  return px_mul(out, picked, shaped);
}
static px_status sum_taps(px_tensor **out, const px_tensor *x, int dim, const tables *t, int taps) {
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(tap(&sum, x, dim, t, 0, taps > 1));
  for (int k = 1; k < taps; k++) {
    PX_SCOPED(px_tensor) more = NULL;
    px_tensor *next;
    PX_TRY(tap(&more, x, dim, t, k, true));
    PX_TRY(px_add(&next, sum, more, px_int(1)));
    px_release(sum);
    sum = next;
  }
  *out = PX_MOVE(sum);
  return PX_OK;
}

static px_status resize_dim(px_tensor **x, const struct mode *m, int dim, int64_t to, double scale,
                            bool corners) {
  tables t = {{NULL}, {NULL}};
  px_tensor *next = NULL;
  if ((*x)->sizes[dim] == to && m->taps == 1) return PX_OK;
  px_status status = tables_fill(&t, m, *x, dim, to, scale, corners);
  if (status == PX_OK) status = sum_taps(&next, *x, dim, &t, m->taps);
  tables_drop(&t);
  if (status != PX_OK) return status;
  px_release(*x);
  *x = next;
  return PX_OK;
}

static px_status mode_of(const struct mode **out, const px_tensor *x, const char *name,
                         bool corners) {
  int dims = x->ndim - 2;
  for (int i = 0; i < PX_COUNT_OF(modes); i++) {
    if (strcmp(modes[i].name, name)) continue;
    PX_CHECK(!corners || modes[i].corners, PX_VALUE,
             "align_corners option can only be set with the interpolating modes: linear | bilinear "
             "| bicubic | trilinear");
    PX_CHECK(dims == 1 || dims == 2, PX_UNIMPLEMENTED,
             "interpolate of %dD input is not implemented: 3D and 4D are", x->ndim);
    PX_CHECK(!modes[i].dims || modes[i].dims == dims, PX_UNIMPLEMENTED,
             "Got %dD input, but %s mode needs %dD input", x->ndim, name, modes[i].dims + 2);
    *out = &modes[i];
    return PX_OK;
  }
  PX_FAIL(PX_UNIMPLEMENTED, "interpolate: mode '%s' is not implemented", name);
}

// The size asked for, of a spatial dimension, and its scale; 0: none was given.
static px_status size_of(int64_t *to, double *scale, const px_tensor *x, px_value size,
                         px_value given, int k) {
  int64_t from = x->sizes[2 + k];
  char have[128], want[128];
  *scale = given.kind == PX_ARG_NONE ? 0 : px_value_float(given);
  PX_CHECK((size.kind == PX_ARG_NONE) == (given.kind != PX_ARG_NONE), PX_VALUE, "%s",
           size.kind == PX_ARG_NONE ? "either size or scale_factor should be defined"
                                    : "only one of size or scale_factor should be defined");
  PX_CHECK(size.kind == PX_ARG_NONE || size.n == 1 || size.n == x->ndim - 2, PX_VALUE,
           "Input and output must have the same number of spatial dimensions, but got input with "
           "spatial dimensions of %s and output size of %s. Please provide input tensor in (N, C, "
           "d1, d2, ...,dK) format and output size in (o1, o2, ...,oK) format.",
           px__sizes_text(have, sizeof have, x->ndim - 2, x->sizes + 2),
           px__sizes_text(want, sizeof want, size.n, size.v.ints));
  double wide = (double)from * *scale;
  PX_CHECK(wide < 0x1p53 && wide > -0x1p53, PX_RUNTIME, "interpolate: scale_factor is too large");
  *to = size.kind == PX_ARG_NONE ? (int64_t)floor(wide) : px__int_at(size, k);
  PX_CHECK(from > 0 && *to > 0, PX_RUNTIME,
           "Input and output sizes should be greater than 0, but got input (%lld) and output "
           "(%lld)",
           LL(from), LL(*to));
  return PX_OK;
}

PX_RUN(resize_images) {
  PX_SCOPED(px_tensor) x = px_retain(args->input);
  bool corners = args->align_corners;
  const struct mode *m = NULL;
  int64_t to[2];
  double scale[2];
  PX_TRY(mode_of(&m, x, args->mode, corners));
  for (int k = 0; k < x->ndim - 2; k++) {
    px_value given = x->ndim == 4 && k == 0 ? args->scale_height : args->scale_width;
    PX_TRY(size_of(&to[k], &scale[k], x, args->size, given, k));
  }
  for (int k = x->ndim - 3; k >= 0; k--) PX_TRY(resize_dim(&x, m, 2 + k, to[k], scale[k], corners));
  call->results[0] = PX_MOVE(x);
  return PX_OK;
}
