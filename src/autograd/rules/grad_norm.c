// SPDX-License-Identifier: Apache-2.0
// Backward functions of the normalisations. A fused kernel gives all three gradients; where the
// gradient itself is to be differentiated (create_graph), they are composed of ops that record
// themselves.
#include "autograd/rules/backward.h"
#include "phlox/autograd.h"

px_status px__grad_layer_norm(px__backward *b);
px_status px__grad_batch_norm(px__backward *b);

static bool wanted(const px__backward *b, int i) { return b->needs >> i & 1; }
static const px_tensor *tensor_at(const px__backward *b, int i) {
  return b->args[i].kind == PX_ARG_TENSOR ? b->args[i].v.tensor : NULL;
}
static void give(px__backward *b, int i, px_tensor **from) {
  if (wanted(b, i)) b->out[i] = PX_MOVE(*from);
}

// The gradient of x in (x - mean) / deviation: rstd * (g - mean(g) - h * mean(g * h)), over `dims`.
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

// The three gradients from h and rstd. `over`: the dimensions of the means; `rest`: the others,
// over which weight and bias are shared; `wide` is the weight in x's dimensions.
typedef struct parts {
  const int64_t *over, *rest;
  int64_t over_count, rest_count;
  const px_tensor *wide;
  int weight, bias;  // parameters
} parts;
static px_status sum_over(px_tensor **out, const px_tensor *t, const parts *p) {
  if (p->rest_count) return px_sum(out, t, p->rest, p->rest_count, false, PX_DTYPE_NONE);
  *out = px_retain(t);
  return PX_OK;
}
static px_status composed(px__backward *b, const moments *m, const parts *p, bool fixed) {
  const px_tensor *g = b->grads[0];
  PX_SCOPED(px_tensor) gw = NULL;
  PX_SCOPED(px_tensor) gh = NULL;
  if (p->wide)
    PX_TRY(px_mul(&gw, g, p->wide));
  else
    gw = px_retain(g);
  if (wanted(b, 0))
    PX_TRY(fixed ? px_mul(&b->out[0], gw, m->rstd)
                 : input_gradient(&b->out[0], gw, m->h, m->rstd, p->over, p->over_count));
  if (wanted(b, p->weight)) {
    PX_TRY(px_mul(&gh, g, m->h));
    PX_TRY(sum_over(&b->out[p->weight], gh, p));
  }
  if (wanted(b, p->bias)) PX_TRY(sum_over(&b->out[p->bias], g, p));
  return PX_OK;
}

// native_layer_norm(input, normalized_shape, weight, bias, eps) -> output, mean, rstd
static px_status layer_again(px__backward *b) {
  const px_tensor *x = tensor_at(b, 0);
  int64_t over[PX_MAX_DIMS], rest[PX_MAX_DIMS];
  parts p = {.over = over,
             .rest = rest,
             .over_count = b->args[1].n,
             .wide = tensor_at(b, 2),
             .weight = 2,
             .bias = 3};
  p.rest_count = px_tensor_ndim(x) - p.over_count;
  for (int64_t i = 0; i < p.rest_count; i++) rest[i] = i;
  for (int64_t i = 0; i < p.over_count; i++) over[i] = p.rest_count + i;
  moments m = {NULL, NULL};
  px_status status = moments_of(&m, x, over, p.over_count, b->args[4].v.f);
  if (status == PX_OK) status = composed(b, &m, &p, false);
  moments_end(&m);
  return status;
}
px_status px__grad_layer_norm(px__backward *b) {
  PX_CHECK(b->grads[0] && !b->grads[1] && !b->grads[2], PX_UNIMPLEMENTED,
           "the gradient of native_layer_norm with respect to its mean and rstd");
  if (px_grad_enabled()) return layer_again(b);
  PX_SCOPED(px_tensor) input = NULL;
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  PX_TRY(px_layer_norm_backward(&input, &weight, &bias, b->grads[0], tensor_at(b, 0),
                                b->args[1].v.ints, b->args[1].n, b->results[1], b->results[2],
                                tensor_at(b, 2)));
  give(b, 0, &input);
  give(b, 2, &weight);
  give(b, 3, &bias);
  return PX_OK;
}

// native_batch_norm(input, weight, bias, running_mean, running_var, training, eps)
static px_status wide_channels(px_tensor **out, const px_tensor *t, int ndim) {
  int64_t sizes[PX_MAX_DIMS];
  for (int i = 0; i < ndim; i++) sizes[i] = i == 1 ? px_tensor_numel(t) : 1;
  return px_reshape(out, t, sizes, ndim);
}
static px_status running_moments(moments *out, const px__backward *b, int ndim) {
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) variance = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) centred = NULL;
  PX_TRY(wide_channels(&mean, tensor_at(b, 3), ndim));
  PX_TRY(wide_channels(&variance, tensor_at(b, 4), ndim));
  PX_TRY(px_add_scalar(&sum, variance, px_float(b->args[6].v.f), px_int(1)));
  PX_TRY(px_rsqrt(&out->rstd, sum));
  PX_TRY(px_sub(&centred, tensor_at(b, 0), mean, px_int(1)));
  return px_mul(&out->h, centred, out->rstd);
}
static px_status batch_again(px__backward *b) {
  const px_tensor *x = tensor_at(b, 0);
  int64_t over[PX_MAX_DIMS];
  int ndim = px_tensor_ndim(x);
  bool training = b->args[5].v.i != 0;
  PX_SCOPED(px_tensor) wide = NULL;
  if (tensor_at(b, 1)) PX_TRY(wide_channels(&wide, tensor_at(b, 1), ndim));
  for (int i = 0; i < ndim - 1; i++) over[i] = i ? i + 1 : 0;
  parts p = {.over = over,
             .rest = over,
             .over_count = ndim - 1,
             .rest_count = ndim - 1,
             .wide = wide,
             .weight = 1,
             .bias = 2};
  moments m = {NULL, NULL};
  px_status status =
      training ? moments_of(&m, x, over, ndim - 1, b->args[6].v.f) : running_moments(&m, b, ndim);
  if (status == PX_OK) status = composed(b, &m, &p, !training);
  moments_end(&m);
  return status;
}
px_status px__grad_batch_norm(px__backward *b) {
  PX_CHECK(b->grads[0] && !b->grads[1] && !b->grads[2] && !b->grads[3], PX_UNIMPLEMENTED,
           "the gradient of batch_norm with respect to its statistics");
  if (px_grad_enabled()) return batch_again(b);
  PX_SCOPED(px_tensor) input = NULL;
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  PX_TRY(px_batch_norm_backward(&input, &weight, &bias, b->grads[0], tensor_at(b, 0),
                                tensor_at(b, 1), tensor_at(b, 3), tensor_at(b, 4), b->results[1],
                                b->results[2], b->args[5].v.i != 0, b->args[6].v.f));
  give(b, 0, &input);
  give(b, 1, &weight);
  give(b, 2, &bias);
  return PX_OK;
}
