// SPDX-License-Identifier: Apache-2.0
// Grid sampling. Each output has taps along each dimension: element indices and weights. The result
// is the weighted sum over all combinations of taps, read by gather. Coordinates are in elements,
// after clipping or reflection at the borders.
#include "call/shapes.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/layer.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/view.h"
#include "run_functions/layer.h"

enum { TAPS = 4, DIMS = 3 };

// Replaces a tensor by the result of an op.
#define STEP(x, call_) \
  do { \
    px_tensor *next_ = NULL; \
    px_tensor **const out_ = &next_; \
    PX_TRY(call_); \
    px_release(x); \
    (x) = next_; \
  } while (0)

typedef struct taps {
  int count;
  px_tensor *index[TAPS], *weight[TAPS];  // [N, L]: int64 indices, and weights
} taps;
static void taps_drop(taps *t) {
  for (int i = 0; i < TAPS; i++) px_release(t->index[i]), px_release(t->weight[i]);
}

// Treatment of coordinates outside of an image.
typedef struct border {
  int64_t size;
  bool corners, zeros, reflects;
} border;

static px_status clip(px_tensor **x, const border *b) {
  STEP(*x, px_hardtanh(out_, *x, px_int(0), px_int(b->size - 1)));
  return PX_OK;
}
// Reflects at the centres of the border elements, or at their outer edges.
static px_status reflect(px_tensor **x, const border *b) {
  double low = b->corners ? 0 : -0.5, span = (double)b->size - (b->corners ? 1 : 0);
  PX_SCOPED(px_tensor) remainder = NULL;
  PX_SCOPED(px_tensor) periods = NULL;
  PX_SCOPED(px_tensor) odd = NULL;
  PX_SCOPED(px_tensor) mirrored = NULL;
  if (span <= 0) {
    STEP(*x, px_mul_scalar(out_, *x, px_int(0)));
    return PX_OK;
  }
  STEP(*x, px_add_scalar(out_, *x, px_float(-low), px_int(1)));
  STEP(*x, px_abs(out_, *x));
  PX_TRY(px_fmod_scalar(&remainder, *x, px_float(span)));
  PX_TRY(px_div_scalar(&periods, *x, px_float(span)));
  STEP(periods, px_floor(out_, periods));
  STEP(periods, px_fmod_scalar(out_, periods, px_int(2)));
  PX_TRY(px_ne_scalar(&odd, periods, px_int(0)));
  PX_TRY(px_neg(&mirrored, remainder));
  STEP(mirrored, px_add_scalar(out_, mirrored, px_float(span), px_int(1)));
  STEP(*x, px_where(out_, odd, mirrored, remainder));
  STEP(*x, px_add_scalar(out_, *x, px_float(low), px_int(1)));
  return clip(x, b);
}
static px_status apply_border(px_tensor **x, const border *b) {
  if (b->zeros) return PX_OK;
  return b->reflects ? reflect(x, b) : clip(x, b);
}

// Adds a tap at integer coordinates `at`. Taps outside or at NaN get weight 0 in finish_tap.
static px_status add_tap(taps *t, const px_tensor *at, px_tensor *weight_take) {
  t->weight[t->count] = weight_take;
  return px_detach(&t->index[t->count++], at);
}
static px_status finish_tap(px_tensor **index, px_tensor **weight, const border *b) {
  PX_SCOPED(px_tensor) inside = NULL;
  PX_SCOPED(px_tensor) wrong = NULL;
  PX_TRY(px_hardtanh(&inside, *index, px_int(0), px_int(b->size - 1)));
  PX_TRY(px_ne(&wrong, inside, *index));  // NaN too
  STEP(*weight, px_masked_fill(out_, *weight, wrong, px_int(0)));
  STEP(inside, px_masked_fill(out_, inside, wrong, px_int(0)));
  STEP(*index, px__tensor_to(out_, inside, PX_INT64, PX_DEVICE_NONE));
  return PX_OK;
}
static px_status rounded(px_tensor **out, const px_tensor *x, bool nearest) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_TRY(px_detach(&plain, x));
  return nearest ? px_round(out, plain) : px_floor(out, plain);
}
static px_status two_taps(taps *t, const px_tensor *x) {
  PX_SCOPED(px_tensor) low = NULL;
  PX_SCOPED(px_tensor) high = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) remainder = NULL;
  PX_TRY(rounded(&low, x, false));
  PX_TRY(px_add_scalar(&high, low, px_int(1), px_int(1)));
  PX_TRY(px_sub(&part, x, low, px_int(1)));
  PX_TRY(px_sub(&remainder, high, x, px_int(1)));
  PX_TRY(add_tap(t, low, PX_MOVE(remainder)));
  return add_tap(t, high, PX_MOVE(part));
}
static px_status nearest_tap(taps *t, const px_tensor *x) {
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_TRY(rounded(&at, x, true));
  PX_TRY(px_mul_scalar(&one, x, px_int(0)));  // its gradient is 0
  STEP(one, px_add_scalar(out_, one, px_int(1), px_int(1)));
  return add_tap(t, at, PX_MOVE(one));
}
// Cubic convolution (Keys 1981), a = -0.75, for distances below 1, or from 1 to 2.
static px_status keys(px_tensor **out, const px_tensor *d, bool far) {
  const double near_factors[] = {1.25, -2.25, 0, 1}, far_factors[] = {-0.75, 3.75, -6, 3};
  const double *a = far ? far_factors : near_factors;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_mul_scalar(&sum, d, px_float(a[0])));
  for (int i = 1; i < 4; i++) {
    STEP(sum, px_add_scalar(out_, sum, px_float(a[i]), px_int(1)));
    if (i < 3) STEP(sum, px_mul(out_, sum, d));
  }
  *out = PX_MOVE(sum);
  return PX_OK;
}
static px_status four_taps(taps *t, const px_tensor *x, const border *b) {
  PX_SCOPED(px_tensor) low = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(rounded(&low, x, false));
  PX_TRY(px_sub(&part, x, low, px_int(1)));
  for (int k = -1; k < 3; k++) {
    PX_SCOPED(px_tensor) at = NULL;
    PX_SCOPED(px_tensor) distance = NULL;
    PX_SCOPED(px_tensor) weight = NULL;
    PX_TRY(px_add_scalar(&at, low, px_int(k), px_int(1)));
    PX_TRY(apply_border(&at, b));
    PX_TRY(px_mul_scalar(&distance, part, px_int(k > 0 ? -1 : 1)));
    STEP(distance, px_add_scalar(out_, distance, px_int(k > 0 ? k : -k), px_int(1)));
    PX_TRY(keys(&weight, distance, k == -1 || k == 2));
    PX_TRY(add_tap(t, at, PX_MOVE(weight)));
  }
  return PX_OK;
}
// Taps along a dimension. k: index of its coordinate in the grid.
static px_status taps_of(taps *t, const px_tensor *grid, int k, const char *mode, const border *b) {
  PX_SCOPED(px_tensor) x = NULL;
  double size = (double)b->size;
  PX_TRY(px_select(&x, grid, -1, k));
  STEP(x, px_reshape(out_, x, (int64_t[]){grid->sizes[0], -1}, 2));
  STEP(x, px_add_scalar(out_, x, px_int(1), px_int(1)));
  STEP(x, px_mul_scalar(out_, x, px_float(b->corners ? (size - 1) / 2 : size / 2)));
  if (!b->corners) STEP(x, px_add_scalar(out_, x, px_float(-0.5), px_int(1)));
  bool cubic = !strcmp(mode, "bicubic");
  if (!cubic) PX_TRY(apply_border(&x, b));
  if (cubic)
    PX_TRY(four_taps(t, x, b));
  else
    PX_TRY((*mode == 'n' ? nearest_tap : two_taps)(t, x));
  for (int i = 0; i < t->count; i++) PX_TRY(finish_tap(&t->index[i], &t->weight[i], b));
  return PX_OK;
}

// Adds the weighted elements of one combination of taps.
static px_status add_combination(px_tensor **sum, const px_tensor *flat, const taps *all,
                                 const int *chosen, const px_tensor *input) {
  int dims = input->ndim - 2;
  PX_SCOPED(px_tensor) index = px_retain(all[0].index[chosen[0]]);
  PX_SCOPED(px_tensor) weight = px_retain(all[0].weight[chosen[0]]);
  PX_SCOPED(px_tensor) elements = NULL;
  for (int k = 1; k < dims; k++) {
    STEP(index, px_mul_scalar(out_, index, px_int(input->sizes[2 + k])));
    STEP(index, px_add(out_, index, all[k].index[chosen[k]], px_int(1)));
    STEP(weight, px_mul(out_, weight, all[k].weight[chosen[k]]));
  }
  int64_t sizes[] = {flat->sizes[0], flat->sizes[1], index->sizes[1]};
  STEP(index, px_unsqueeze(out_, index, 1));
  STEP(index, px_expand(out_, index, sizes, 3));
  STEP(weight, px_unsqueeze(out_, weight, 1));
  PX_TRY(px_gather(&elements, flat, 2, index, false));
  STEP(elements, px_mul(out_, elements, weight));
  if (*sum)
    STEP(*sum, px_add(out_, *sum, elements, px_int(1)));
  else
    *sum = PX_MOVE(elements);
  return PX_OK;
}
static px_status add_all(px_tensor **sum, const px_tensor *input, const taps *all) {
  int dims = input->ndim - 2, each = all[0].count, combinations = 1;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_TRY(px_reshape(&flat, input, (int64_t[]){input->sizes[0], input->sizes[1], -1}, 3));
  for (int k = 0; k < dims; k++) combinations *= each;
  for (int i = 0; i < combinations; i++) {
    int chosen[DIMS], remainder = i;
    for (int k = 0; k < dims; k++) chosen[k] = remainder % each, remainder /= each;
    PX_TRY(add_combination(sum, flat, all, chosen, input));
  }
  return PX_OK;
}

static px_status align(bool *corners, px_value given) {
  *corners = px__given(given) && px_value_int(given);
  if (px__given(given)) return PX_OK;
  return px_warn(PX_WARN_USER,
                 "Default grid_sample and affine_grid behavior has changed to align_corners=False "
                 "since 1.3.0. Please specify align_corners=True if the old behavior is desired. "
                 "See the documentation of grid_sample for details.");
}
// fp16 and bf16 coordinates would be off by whole elements.
static px_status widened(px_tensor **out, const px_tensor *t) {
  px_dtype dtype = (px_dtype)t->dtype;
  return px__tensor_to(out, t, px_dtype_is_float(dtype) ? px__acc_dtype(dtype) : dtype,
                       PX_DEVICE_NONE);
}
PX_RUN(grid_sample) {
  int dims = args->input->ndim - 2;
  PX_SCOPED(px_tensor) input = NULL;
  PX_SCOPED(px_tensor) grid = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  taps all[DIMS] = {{0}};
  bool corners;
  char text[128];
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(widened(&input, args->input));
  PX_TRY(widened(&grid, args->grid));
  PX_TRY(align(&corners, args->align_corners));
  for (int d = 2; d < input->ndim; d++)
    PX_CHECK(input->sizes[d] > 0, PX_RUNTIME,
             "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
             "sizes %s with dimension %d being empty",
             px__size_text(text, sizeof text, input), d);
  int64_t sizes[5] = {input->sizes[0], input->sizes[1]};
  for (int k = 0; k < dims; k++) sizes[2 + k] = grid->sizes[1 + k];
  if (!input->numel || !grid->numel)
    return px__zeros_like_sized(&call->results[0], args->input, input->ndim, sizes);
  px_status status = PX_OK;
  for (int k = 0; k < dims && status == PX_OK; k++) {
    border b = {.size = input->sizes[2 + k],
                .corners = corners,
                .zeros = *args->padding_mode == 'z',
                .reflects = *args->padding_mode == 'r'};
    status = taps_of(&all[k], grid, dims - 1 - k, args->mode, &b);
  }
  if (status == PX_OK) status = add_all(&sum, input, all);
  for (int k = 0; k < dims; k++) taps_drop(&all[k]);
  PX_TRY(status);
  PX_TRY(px_reshape(&shaped, sum, sizes, input->ndim));
  return px__tensor_to(&call->results[0], shaped, (px_dtype)args->input->dtype, PX_DEVICE_NONE);
}

// ---- affine maps

// Coordinates of the elements of dimension k, from -1 to 1 at the element centres (`corners`) or at
// the outer edges. Expanded to `sizes`.
static px_status coordinates(px_tensor **out, const px_tensor *theta, int64_t size, bool corners,
                             const int64_t *sizes, int dims, int k) {
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  int64_t shape[DIMS + 1] = {1, 1, 1, 1};
  double end = size == 1 ? 0 : corners ? 1 : (double)(size - 1) / (double)size;
  shape[k] = size;
  PX_TRY(px_linspace(&line, px_float(-end), px_float(end), size, (px_dtype)theta->dtype,
                     px__tensor_device(theta), false, false));
  PX_TRY(px_view(&shaped, line, shape, dims));
  return px_expand(out, shaped, sizes, dims);
}
PX_RUN(affine_grid) {
  const px_tensor *theta = args->theta;
  int dims = args->size.n - 2;
  const int64_t *sizes = args->size.v.ints + 2;
  px_tensor *columns[DIMS + 1] = {NULL};
  bool corners;
  PX_SCOPED(px_tensor) base = NULL;
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) points = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_TRY(align(&corners, args->align_corners));
  px_status status = PX_OK;
  for (int k = 0; k < dims && status == PX_OK; k++)
    status = coordinates(&columns[dims - 1 - k], theta, sizes[k], corners, sizes, dims, k);
  if (status == PX_OK)
    status = px_ones(&columns[dims], sizes, dims, (px_dtype)theta->dtype, px__tensor_device(theta),
                     false, false);
  if (status == PX_OK) status = px_stack(&base, columns, dims + 1, -1);
  for (int k = 0; k <= dims; k++) px_release(columns[k]);
  if (status != PX_OK) return status;
  PX_TRY(px_reshape(&flat, base, (int64_t[]){-1, dims + 1}, 2));
  PX_TRY(px_transpose(&transposed, theta, 1, 2));
  PX_TRY(px_matmul(&points, flat, transposed));
  int64_t all[5] = {theta->sizes[0]};
  for (int k = 0; k < dims; k++) all[1 + k] = sizes[k];
  all[1 + dims] = dims;
  return px_reshape(&call->results[0], points, all, dims + 2);
}

PX_RUN(grid_sampler) {
  static const char *const modes[] = {"bilinear", "nearest", "bicubic"};
  static const char *const paddings[] = {"zeros", "border", "reflection"};
  bool corners = args->align_corners;
  return px_grid_sample(&call->results[0], args->input, args->grid, modes[args->interpolation_mode],
                        paddings[args->padding_mode], &corners);
}
