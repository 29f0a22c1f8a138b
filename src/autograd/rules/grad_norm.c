// SPDX-License-Identifier: Apache-2.0
// Gradients of normalization layers. A fused kernel computes all three gradients. With create_graph
// they are composed of recorded ops.
#include "autograd/rules/backward.h"
#include "grad_functions.h"
#include "hidden/norm.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

static void move_to(px_tensor **to, px_tensor **from) {
  if (to) *to = PX_MOVE(*from);
}

// Gradient of x in (x - mean) / deviation: rstd * (g - mean(g) - h * mean(g * h)), means over
// `dims`.
static px_status input_gradient(px_tensor **out, const px_tensor *g, const px_tensor *h,
                                const px_tensor *rstd, const int64_t *dims, int64_t n) {
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) gh = NULL;
  PX_SCOPED(px_tensor) slope = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) centred = NULL;
  PX_SCOPED(px_tensor) rest = NULL;
  PX_TRY(px_mean(&mean, g, dims, n, true, PX_DTYPE_NONE));
  PX_TRY(px_mul(&gh, g, h));
  PX_TRY(px_mean(&slope, gh, dims, n, true, PX_DTYPE_NONE));
  PX_TRY(px_mul(&part, h, slope));
  PX_TRY(px_sub(&centred, g, mean, px_int(1)));
  PX_TRY(px_sub(&rest, centred, part, px_int(1)));
  return px_mul(out, rest, rstd);
}
// mean, 1 / sqrt(variance + eps) and h = (x - mean) * rstd over `dims`, as recorded ops.
typedef struct moments {
  px_tensor *rstd, *h;
} moments;
static px_status moments_of(moments *out, const px_tensor *x, const int64_t *dims, int64_t n,
                            double eps) {
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) centred = NULL;
  PX_SCOPED(px_tensor) squares = NULL;
  PX_SCOPED(px_tensor) variance = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_mean(&mean, x, dims, n, true, PX_DTYPE_NONE));
  PX_TRY(px_sub(&centred, x, mean, px_int(1)));
  PX_TRY(px_mul(&squares, centred, centred));
  PX_TRY(px_mean(&variance, squares, dims, n, true, PX_DTYPE_NONE));
  PX_TRY(px_add_scalar(&sum, variance, px_float(eps), px_int(1)));
  PX_TRY(px_rsqrt(&out->rstd, sum));
  return px_mul(&out->h, centred, out->rstd);
}
static void moments_end(moments *m) {
  px_release(m->rstd);
  px_release(m->h);
}

// Arguments of the three gradients. `over`: dimensions of the means. `rest`: the other dimensions,
// over which weight and bias are shared. `wide`: the weight in x's dimensions.
typedef struct parts {
  const int64_t *over, *rest;
  int64_t over_count, rest_count;
  const px_tensor *grad, *wide;
  px_tensor **d_input, **d_weight, **d_bias;  // NULL: not required
} parts;
static px_status sum_over(px_tensor **out, const px_tensor *t, const parts *p) {
  if (p->rest_count) return px_sum(out, t, p->rest, p->rest_count, false, PX_DTYPE_NONE);
  *out = px_retain(t);
  return PX_OK;
}
static px_status composed(const moments *m, const parts *p, bool fixed) {
  const px_tensor *g = p->grad;
  PX_SCOPED(px_tensor) gw = NULL;
  PX_SCOPED(px_tensor) gh = NULL;
  if (p->wide)
    PX_TRY(px_mul(&gw, g, p->wide));
  else
    gw = px_retain(g);
  if (p->d_input)
    PX_TRY(fixed ? px_mul(p->d_input, gw, m->rstd)
                 : input_gradient(p->d_input, gw, m->h, m->rstd, p->over, p->over_count));
  if (p->d_weight) {
    PX_TRY(px_mul(&gh, g, m->h));
    PX_TRY(sum_over(p->d_weight, gh, p));
  }
  if (p->d_bias) PX_TRY(sum_over(p->d_bias, g, p));
  return PX_OK;
}

static px_status layer_recomputed(const px__layer_norm_grad *args) {
  const px_tensor *x = args->input;
  int64_t over[PX_MAX_DIMS], rest[PX_MAX_DIMS];
  parts p = {.over = over,
             .rest = rest,
             .over_count = args->normalized_shape.n,
             .grad = args->grad_output,
             .wide = args->weight,
             .d_input = args->d_input,
             .d_weight = args->d_weight,
             .d_bias = args->d_bias};
  p.rest_count = px_tensor_ndim(x) - p.over_count;
  for (int64_t i = 0; i < p.rest_count; i++) rest[i] = i;
  for (int64_t i = 0; i < p.over_count; i++) over[i] = p.rest_count + i;
  moments m = {NULL, NULL};
  px_status status = moments_of(&m, x, over, p.over_count, args->eps);
  if (status == PX_OK) status = composed(&m, &p, false);
  moments_end(&m);
  return status;
}
PX_GRAD(layer_norm) {
  PX_CHECK(
      args->grad_output && !args->grad_mean && !args->grad_rstd, PX_UNIMPLEMENTED,
      "the gradient of native_layer_norm with respect to its mean and rstd is not implemented");
  if (px_grad_enabled()) return layer_recomputed(args);
  PX_SCOPED(px_tensor) input = NULL;
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  PX_TRY(px_layer_norm_backward(&input, &weight, &bias, args->grad_output, args->input,
                                args->normalized_shape.v.ints, args->normalized_shape.n, args->mean,
                                args->rstd, args->weight));
  move_to(args->d_input, &input);
  move_to(args->d_weight, &weight);
  move_to(args->d_bias, &bias);
  return PX_OK;
}

// Gradients of group norm as recorded ops. `rows`: shape with one row per group, for h. `channels`:
// one row per channel, for the sums of weight and bias.
static px_status grouped_parts(const px__grouped_norm_grad *args, const moments *m,
                               const int64_t rows[3], const int64_t channels[3]) {
  const px_tensor *x = args->input;
  const int64_t last = 2, others[] = {0, 2};
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) h = NULL;
  PX_SCOPED(px_tensor) gh = NULL;
  PX_SCOPED(px_tensor) gw = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  PX_TRY(px_reshape(&g, args->grad_output, channels, 3));
  PX_TRY(px_reshape(&h, m->h, channels, 3));
  PX_TRY(px_mul(&gh, g, h));
  if (args->d_weight) PX_TRY(px_sum(args->d_weight, gh, others, 2, false, PX_DTYPE_NONE));
  if (args->d_bias) PX_TRY(px_sum(args->d_bias, g, others, 2, false, PX_DTYPE_NONE));
  if (!args->d_input) return PX_OK;
  if (args->weight) {
    PX_TRY(px_reshape(&wide, args->weight, (const int64_t[]){1, channels[1], 1}, 3));
    PX_TRY(px_mul(&gw, g, wide));
  } else {
    gw = px_retain(g);
  }
  PX_TRY(px_reshape(&flat, gw, rows, 3));
  PX_TRY(input_gradient(&back, flat, m->h, m->rstd, &last, 1));
  return px_reshape(args->d_input, back, px_tensor_sizes(x), px_tensor_ndim(x));
}
static px_status grouped_recomputed(const px__grouped_norm_grad *args) {
  const px_tensor *x = args->input;
  const int64_t *sizes = px_tensor_sizes(x), last = 2;
  int64_t n = sizes[0], all = px_tensor_numel(x);
  int64_t groups = args->num_groups;
  int64_t rows[3] = {n, groups, all ? all / (n * groups) : 0};
  int64_t channels[3] = {n, sizes[1], all ? all / (n * sizes[1]) : 0};
  PX_SCOPED(px_tensor) flat = NULL;
  moments m = {NULL, NULL};
  PX_TRY(px_reshape(&flat, x, rows, 3));
  px_status status = moments_of(&m, flat, &last, 1, args->eps);
  if (status == PX_OK) status = grouped_parts(args, &m, rows, channels);
  moments_end(&m);
  return status;
}
PX_GRAD(grouped_norm) {
  PX_CHECK(args->grad_output && !args->grad_mean && !args->grad_rstd, PX_UNIMPLEMENTED,
           "the gradient of grouped_norm with respect to its mean and rstd is not implemented");
  if (px_grad_enabled()) return grouped_recomputed(args);
  PX_SCOPED(px_tensor) input = NULL;
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  PX_TRY(px_grouped_norm_backward(&input, &weight, &bias, args->grad_output, args->input,
                                  args->num_groups, args->mean, args->rstd, args->weight));
  move_to(args->d_input, &input);
  move_to(args->d_weight, &weight);
  move_to(args->d_bias, &bias);
  return PX_OK;
}

static px_status wide_channels(px_tensor **out, const px_tensor *t, int ndim) {
  int64_t sizes[PX_MAX_DIMS];
  for (int i = 0; i < ndim; i++) sizes[i] = i == 1 ? px_tensor_numel(t) : 1;
  return px_reshape(out, t, sizes, ndim);
}
static px_status running_moments(moments *out, const px__batch_norm_grad *args, int ndim) {
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) variance = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) centred = NULL;
  PX_TRY(wide_channels(&mean, args->running_mean, ndim));
  PX_TRY(wide_channels(&variance, args->running_var, ndim));
  PX_TRY(px_add_scalar(&sum, variance, px_float(args->eps), px_int(1)));
  PX_TRY(px_rsqrt(&out->rstd, sum));
  PX_TRY(px_sub(&centred, args->input, mean, px_int(1)));
  return px_mul(&out->h, centred, out->rstd);
}
static px_status batch_recomputed(const px__batch_norm_grad *args) {
  const px_tensor *x = args->input;
  int64_t over[PX_MAX_DIMS];
  int ndim = px_tensor_ndim(x);
  PX_SCOPED(px_tensor) wide = NULL;
  if (args->weight) PX_TRY(wide_channels(&wide, args->weight, ndim));
  for (int i = 0; i < ndim - 1; i++) over[i] = i ? i + 1 : 0;
  parts p = {.over = over,
             .rest = over,
             .over_count = ndim - 1,
             .rest_count = ndim - 1,
             .grad = args->grad_output,
             .wide = wide,
             .d_input = args->d_input,
             .d_weight = args->d_weight,
             .d_bias = args->d_bias};
  moments m = {NULL, NULL};
  px_status status = args->training ? moments_of(&m, x, over, ndim - 1, args->eps)
                                    : running_moments(&m, args, ndim);
  if (status == PX_OK) status = composed(&m, &p, !args->training);
  moments_end(&m);
  return status;
}
PX_GRAD(batch_norm) {
  PX_CHECK(
      args->grad_output && !args->grad_save_mean && !args->grad_save_invstd && !args->grad_variance,
      PX_UNIMPLEMENTED,
      "the gradient of batch_norm with respect to its statistics is not implemented");
  if (px_grad_enabled()) return batch_recomputed(args);
  PX_SCOPED(px_tensor) input = NULL;
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  PX_TRY(px_batch_norm_backward(&input, &weight, &bias, args->grad_output, args->input,
                                args->weight, args->running_mean, args->running_var,
                                args->save_mean, args->save_invstd, args->training, args->eps));
  move_to(args->d_input, &input);
  move_to(args->d_weight, &weight);
  move_to(args->d_bias, &bias);
  return PX_OK;
}
