// SPDX-License-Identifier: Apache-2.0
// Run functions of resizing signals, images and volumes, one dimension at a time. Each output
// element is a weighted sum of a few input elements, its taps, read with index_select. Source
// positions are computed in float32, or float64 for float64 input, as in PyTorch. uint8 sums are
// rounded after each dimension.
#include <math.h>
#include <stdio.h>

#include "formulas.h"
#include "hidden/layer.h"
#include "ops/core/run.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/volume.h"
#include "run_functions/layer.h"

#define LL(x) ((long long)(x))

enum { TAPS = 4, DIMS = 3 };
#define PI 3.14159265358979323846

static int64_t clamp_index(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

static const struct mode {
  const char *name;
  int dims;  // number of spatial dimensions; 0: any
  int taps;
  float centre;  // centre of an element: added before scaling, subtracted after it if taps > 1
  bool corners;  // supports align_corners
  const char *cpu, *cuda;  // PyTorch's kernel names, for errors
} modes[] = {
    {"nearest", 0, 1, 0, false, "", ""},
    {"nearest-exact", 0, 1, 0.5f, false, "", ""},
    {"linear", 1, 2, 0.5f, true, "compute_indices_weights_linear", "upsample_linear1d_out_frame"},
    {"bilinear", 2, 2, 0.5f, true, "compute_indices_weights_linear",
     "upsample_bilinear2d_out_frame"},
    {"trilinear", 3, 2, 0.5f, true, "compute_indices_weights_linear",
     "upsample_trilinear3d_out_frame"},
    {"bicubic", 2, 4, 0.5f, true, "compute_indices_weights_cubic", "upsample_bicubic2d_out_frame"}};

// The sizes of a dimension before and after. The scale is 0 if it is given by the sizes.
typedef struct span {
  int64_t from, to;
  double scale;
  bool corners;
} span;

#define T float
#define NAME(x) x##_f32
#define M(x) x##f
#include "ops/resize/resize_taps.h"
#define T double
#define NAME(x) x##_f64
#define M(x) x
#include "ops/resize/resize_taps.h"

typedef struct tables {
  px_tensor *indices[TAPS], *weights[TAPS];
} tables;

static void tables_drop(tables *t) {
  for (int k = 0; k < TAPS; k++) px_release(t->indices[k]), px_release(t->weights[k]);
}
static px_status tables_fill(tables *t, const struct mode *m, const span *s, bool wide) {
  int64_t *indices[TAPS];
  void *weights[TAPS];
  px_dtype dtype = wide ? PX_FLOAT64 : PX_FLOAT32;
  const int taps = m->taps;
  for (int k = 0; k < taps; k++) {
    PX_TRY(px_tensor_empty(&t->indices[k], 1, &s->to, PX_INT64, px_cpu()));
    PX_TRY(px_tensor_empty(&t->weights[k], 1, &s->to, dtype, px_cpu()));
    indices[k] = px__tensor_at(t->indices[k]), weights[k] = px__tensor_at(t->weights[k]);
  }
  (wide ? fill_f64 : fill_f32)(m, s, indices, weights);
  return PX_OK;
}

static px_status resize_dim(px_tensor **x, const struct mode *m, int dim, const span *s) {
  tables t = {{NULL}, {NULL}};
  px_tensor *next = NULL;
  if (s->from == s->to && m->taps == 1) return PX_OK;
  px_status status = tables_fill(&t, m, s, (*x)->dtype == PX_FLOAT64);
  if (status == PX_OK)
    status = px__formula_sum_of_taps(
        &next,
        (px_value[]){PX_T(*x), PX_I(dim), PX_TS(t.indices, m->taps), PX_TS(t.weights, m->taps)});
  tables_drop(&t);
  if (status != PX_OK) return status;
  px_release(*x);
  *x = next;
  return PX_OK;
}

// ---- antialias

// The support radius of the filter at scale 1; 0: unsupported mode.
static int radius_of(const char *mode) {
  return !strcmp(mode, "bilinear")  ? 1
         : !strcmp(mode, "bicubic") ? 2
         : !strcmp(mode, "lanczos") ? 3
                                    : 0;
}
// The maximum number of taps of an output element.
static int64_t max_taps(const span *s, int radius) {
  double scale = s->corners     ? (s->to > 1 ? (double)(s->from - 1) / (double)(s->to - 1) : 0)
                 : s->scale > 0 ? 1 / s->scale
                                : (double)s->from / (double)s->to;
  double support = scale >= 1 ? radius * scale : radius, max_count = ceil(support) * 2 + 2;
  return max_count > (double)s->from ? s->from : (int64_t)max_count;
}
static px_status resize_antialias(px_tensor **x, int radius, int dim, const span *s) {
  bool wide = (*x)->dtype == PX_FLOAT64;
  px_device device = px__tensor_device(*x);
  int64_t sizes[] = {max_taps(s, radius), s->to};
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) weights = NULL;
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) factors = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  if (s->from == s->to && !s->scale) return PX_OK;
  PX_TRY(px_tensor_empty(&indices, 2, sizes, PX_INT64, px_cpu()));
  PX_TRY(px_tensor_empty(&weights, 2, sizes, wide ? PX_FLOAT64 : PX_FLOAT32, px_cpu()));
  (wide ? fill_antialias_f64 : fill_antialias_f32)(radius, s, sizes[0], px__tensor_at(indices),
                                                   px__tensor_at(weights));
  PX_TRY(px__tensor_to(&at, indices, PX_INT64, device));
  PX_TRY(px__tensor_to(&factors, weights, (px_dtype)(*x)->dtype, device));
  PX_TRY(px__formula_sum_of_rows(&sum, (px_value[]){PX_T(*x), PX_I(dim), PX_T(at), PX_T(factors)}));
  px_release(*x);
  *x = PX_MOVE(sum);
  return PX_OK;
}

static px_status mode_of(const struct mode **out, const px_tensor *x, const char *name,
                         bool corners) {
  int dims = x->ndim - 2;
  PX_CHECK(1 <= dims && dims <= 3, PX_UNIMPLEMENTED,
           "Input Error: Only 3D, 4D and 5D input Tensors supported (got %dD) for the modes: "
           "nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact (got %s)",
           x->ndim, name);
  for (int i = 0; i < PX_COUNT_OF(modes); i++) {
    if (strcmp(modes[i].name, name)) continue;
    PX_CHECK(!corners || modes[i].corners, PX_VALUE,
             "align_corners option can only be set with the interpolating modes: linear | bilinear "
             "| bicubic | trilinear");
    PX_CHECK(!modes[i].dims || modes[i].dims == dims, PX_UNIMPLEMENTED,
             "Got %dD input, but %s mode needs %dD input", x->ndim, name, modes[i].dims + 2);
    *out = &modes[i];
    return PX_OK;
  }
  PX_FAIL(PX_UNIMPLEMENTED, "interpolate: mode '%s' is not implemented", name);
}

// The output size of a spatial dimension, and its scale (0: none given).
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
  // cppcheck-suppress incorrectLogicOperator ; it does not parse 0x1p53
  PX_CHECK(wide < 0x1p53 && wide > -0x1p53, PX_RUNTIME, "interpolate: scale_factor is too large");
  *to = size.kind == PX_ARG_NONE ? (int64_t)floor(wide) : px__int_at(size, k);
  return PX_OK;
}

// "D: 2, H: 3, W: 4": the input sizes, or the output sizes if `to`.
static const char *span_text(char text[96], const span *s, int dims, bool to) {
  size_t used = 0;
  for (int k = 0; k < dims; k++)
    used += (size_t)snprintf(text + used, 96 - used, "%s%c: %lld", k ? ", " : "",
                             "DHW"[3 - dims + k], LL(to ? s[k].to : s[k].from));
  return text;
}
// Channels, input sizes and output sizes must not be 0. The batch may be empty.
static px_status check_spans(const px_tensor *x, const span *s) {
  char text[128], have[96], want[96];
  int dims = x->ndim - 2;
  for (int k = 0; k < dims; k++)
    PX_CHECK(s[k].from > 0 && s[k].to > 0, PX_RUNTIME,
             "Input and output sizes should be greater than 0, but got input (%s) %soutput (%s)",
             span_text(have, s, dims, false), dims == 1 ? "and " : "",
             span_text(want, s, dims, true));
  PX_CHECK(x->sizes[1] > 0, PX_RUNTIME,
           "Non-empty %dD data tensor expected but got a tensor with sizes %s", x->ndim,
           px__size_text(text, sizeof text, x));
  return PX_OK;
}

// Converts input with weights to the dtype of the sums: uint8 to float32, and without antialias
// fp16 and bf16 as well. Other integers fail if the mode has weights.
static px_status as_floats(px_tensor **out, px_tensor *x, const struct mode *m, bool antialias) {
  const char *host = antialias ? "compute_index_ranges_weights" : m->cpu;
  bool on_device = px__tensor_device(x).type == PX_CUDA;
  px_dtype dtype = (px_dtype)x->dtype;
  bool narrow = px_dtype_is_float(dtype) && px_dtype_size(dtype) < 4 && !antialias;
  if (m->taps > 1 && (dtype == PX_UINT8 || narrow))
    return px_to(out, x, PX_FLOAT32, PX_DEVICE_NONE, false, false);
  PX_CHECK(m->taps == 1 || px_dtype_is_float(dtype), PX_UNIMPLEMENTED,
           "\"%s\" not implemented for '%s'", on_device ? m->cuda : host, px_dtype_class(dtype));
  *out = px_retain(x);
  return PX_OK;
}
static px_status round_bytes(px_tensor **x) {
  PX_SCOPED(px_tensor) before = PX_MOVE(*x);
  return px__formula_rounded_byte(x, (px_value[]){PX_T(before)});
}

// Mode "area": means over the input of each output element.
static px_status area_means(px_tensor **out, const px_tensor *x, const span *s) {
  int64_t sizes[DIMS];
  int dims = x->ndim - 2;
  for (int k = 0; k < dims; k++) sizes[k] = s[k].to;
  px_status (*const mean[])(px_tensor **, const px_tensor *, const int64_t *, int64_t) = {
      px_adaptive_avg_pool1d, px_adaptive_avg_pool2d, px_adaptive_avg_pool3d};
  return mean[dims - 1](out, x, sizes, dims);
}

// Autocast applies to the input of the interpolating modes, but not to mode "area".
PX_RUN(_sampled) {
  call->results[0] = px_retain(args->input);
  return PX_OK;
}

PX_RUN(resize_images) {
  px_tensor *input = args->input;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) sampled = NULL;
  bool corners = args->align_corners, area = !strcmp(args->mode, "area");
  const struct mode *m = NULL;
  span spans[DIMS];
  int dims = input->ndim - 2;
  int radius = args->antialias ? radius_of(args->mode) : 0;
  PX_CHECK(!args->antialias || (radius && input->ndim == 4), PX_VALUE,
           "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a "
           "4-D tensor as input");
  PX_TRY(mode_of(&m, input, area ? "nearest" : radius == 3 ? "bicubic" : args->mode, corners));
  for (int k = 0; k < dims; k++) {
    bool deep = dims == 3 && k == 0 && px__given(args->scale_depth);
    px_value given = deep            ? args->scale_depth
                     : k == dims - 1 ? args->scale_width
                                     : args->scale_height;
    spans[k] = (span){.from = input->sizes[2 + k], .corners = corners};
    PX_TRY(size_of(&spans[k].to, &spans[k].scale, input, args->size, given, k));
  }
  PX_TRY(check_spans(input, spans));
  if (area) return area_means(&call->results[0], input, spans);
  PX_TRY(px__sampled(&sampled, input));
  PX_TRY(as_floats(&x, sampled, m, radius > 0));
  bool bytes = sampled->dtype == PX_UINT8;
  for (int k = dims - 1; k >= 0; k--) {
    PX_TRY(radius ? resize_antialias(&x, radius, 2 + k, &spans[k])
                  : resize_dim(&x, m, 2 + k, &spans[k]));
    if (bytes && x->dtype != PX_UINT8) PX_TRY(round_bytes(&x));
  }
  return px_to(&call->results[0], x, (px_dtype)sampled->dtype, PX_DEVICE_NONE, false, false);
}
