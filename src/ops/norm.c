// SPDX-License-Identifier: Apache-2.0
// Run functions of softmax, the normalisations, and dropout.
#include "ops/run.h"

#include <stdio.h>

#define LL(x) ((long long)(x))

// ---- softmax
PX_RUN(softmax) {
  const px_tensor *t = args->self;
  int dim;
  PX_TRY(px__wrap_dim(&dim, args->dim, t->ndim));
  px_dtype dtype = args->dtype != PX_DTYPE_NONE ? args->dtype : (px_dtype)t->dtype;
  if (!px_dtype_is_float(dtype)) return px__refuse_dtype(call->op, dtype, call->device);
  return px__call_result(call, 0, t->ndim, t->sizes, dtype);
}
PX_RUN(softmax_backward) {
  const px_tensor *grad = args->grad_output;
  return px__call_result(call, 0, grad->ndim, grad->sizes, (px_dtype)grad->dtype);
}

// ---- layer_norm

PX_RUN(native_layer_norm) {
  const px_tensor *x = args->input, *w = args->weight;
  px_value shape = args->normalized_shape;
  PX_CHECK(!w || w->dtype == x->dtype || w->dtype == PX_FLOAT32, PX_RUNTIME,
           "expected scalar type %s but found %s", px_dtype_class((px_dtype)x->dtype),
           px_dtype_class((px_dtype)w->dtype));
  int64_t sizes[PX_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) sizes[i] = i < x->ndim - shape.n ? x->sizes[i] : 1;
  px_dtype dtype = (px_dtype)x->dtype, compute = dtype == PX_FLOAT64 ? PX_FLOAT64 : PX_FLOAT32;
  PX_TRY(px__call_result(call, 0, x->ndim, x->sizes, dtype));
  PX_TRY(px__call_result(call, 1, x->ndim, sizes, compute));
  return px__call_result(call, 2, x->ndim, sizes, compute);
}
PX_RUN(layer_norm) {
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) rstd = NULL;
  px_value shape = args->normalized_shape;
  return px_native_layer_norm(&call->results[0], &mean, &rstd, args->input, shape.v.ints, shape.n,
                              args->weight, args->bias, args->eps);
}
PX_RUN(layer_norm_backward) {
  const px_tensor *x = args->input, *w = args->weight;
  px_value shape = args->normalized_shape;
  px_dtype dtype = w ? (px_dtype)w->dtype : (px_dtype)x->dtype;
  PX_TRY(px__call_result(call, 0, x->ndim, x->sizes, (px_dtype)x->dtype));
  PX_TRY(px__call_result(call, 1, shape.n, shape.v.ints, dtype));
  return px__call_result(call, 2, shape.n, shape.v.ints, dtype);
}

// ---- batch_norm

PX_RUN(native_batch_norm) {
  const px_tensor *x = args->input;
  bool training = args->training;
  int64_t channels = x->sizes[1];
  px_dtype dtype = (px_dtype)x->dtype, compute = dtype == PX_FLOAT64 ? PX_FLOAT64 : PX_FLOAT32;
  int64_t kept = training ? channels : 0;
  PX_TRY(px__call_result(call, 0, x->ndim, x->sizes, dtype));
  for (int i = 1; i <= 3; i++) PX_TRY(px__call_result(call, i, 1, &kept, compute));
  return PX_OK;
}
PX_RUN(batch_norm_backward) {
  const px_tensor *x = args->input, *w = args->weight;
  px_dtype dtype = w ? (px_dtype)w->dtype : (px_dtype)x->dtype;
  PX_TRY(px__call_result(call, 0, x->ndim, x->sizes, (px_dtype)x->dtype));
  PX_TRY(px__call_result(call, 1, 1, &x->sizes[1], dtype));
  return px__call_result(call, 2, 1, &x->sizes[1], dtype);
}

// Moves the running statistics: the variance that is kept is the unbiased one.
// They are no part of the graph.
static px_status update_running(px_tensor *running, const px_tensor *now, double momentum) {
  if (!running) return PX_OK;
  if (px__hooks) px__hooks->suspend(true);
  px_status status = px_running_average_(running, now, momentum);
  if (px__hooks) px__hooks->suspend(false);
  return status;
}
PX_RUN(running_average) {
  const px_tensor *self = args->self;
  return px__call_result(call, 0, self->ndim, self->sizes, (px_dtype)self->dtype);
}
PX_RUN(batch_norm) {
  const px_tensor *x = args->input;
  px_tensor *mean = args->running_mean, *var = args->running_var;
  bool training = args->training;
  double momentum = args->momentum;
  if (training && x->ndim >= 2 && x->sizes[1] && x->numel == x->sizes[1]) {
    char text[128];
    PX_FAIL(PX_VALUE,
            "Expected more than 1 value per channel when training, got input size torch.Size(%s)",
            px__size_text(text, sizeof text, x));
  }
  PX_SCOPED(px_tensor) save_mean = NULL;
  PX_SCOPED(px_tensor) invstd = NULL;
  PX_SCOPED(px_tensor) variance = NULL;
  // In training the statistics are only written: what is saved for the gradient must not change.
  PX_TRY(px_native_batch_norm(&call->results[0], &save_mean, &invstd, &variance, x, args->weight,
                              args->bias, training ? NULL : mean, training ? NULL : var, training,
                              args->eps));
  if (!training || !save_mean->numel) return PX_OK;
  PX_TRY(update_running(mean, save_mean, momentum));
  return update_running(var, variance, momentum);
}

// ---- group_norm: layers of the channels of a group, then one scale and shift a channel

static px_status per_channel(px_tensor **out, const px_tensor *t, int ndim) {
  int64_t sizes[PX_MAX_DIMS];
  for (int i = 0; i < ndim; i++) sizes[i] = i == 1 ? t->numel : 1;
  return px_reshape(out, t, sizes, ndim);
}
PX_RUN(group_norm) {
  const px_tensor *x = args->input, *w = args->weight;
  const px_tensor *b = args->bias;
  int64_t groups = args->num_groups;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) normal = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  PX_SCOPED(px_tensor) scale = NULL;
  PX_SCOPED(px_tensor) shift = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  int64_t each = x->sizes[0] ? x->numel / (x->sizes[0] * groups) : 0;
  int64_t sizes[3] = {x->sizes[0], groups, each};
  PX_TRY(px_reshape(&flat, x, sizes, 3));
  PX_TRY(px_layer_norm(&normal, flat, &each, 1, NULL, NULL, args->eps));
  PX_TRY(px_reshape(&back, normal, x->sizes, x->ndim));
  if (w) PX_TRY(per_channel(&scale, w, x->ndim));
  if (b) PX_TRY(per_channel(&shift, b, x->ndim));
  if (w)
    PX_TRY(px_mul(&scaled, back, scale));
  else
    scaled = px_retain(back);
  if (b) return px_add(&call->results[0], scaled, shift, px_int(1));
  call->results[0] = px_retain(scaled);
  return PX_OK;
}

// ---- dropout

// How many neighbours a thread of PyTorch's kernel takes: 16 bytes, or less where that leaves a
// remainder; 1 where the memory of x has gaps, so that the mask lies otherwise.
static int64_t lanes_of(const px_tensor *x, const px_tensor *mask) {
  int64_t lanes = 16 / (int64_t)px_dtype_size((px_dtype)x->dtype);
  for (int d = 0; d < x->ndim; d++)
    if (x->sizes[d] > 1 && x->strides[d] != mask->strides[d]) return 1;
  while (x->numel % lanes) lanes /= 2;
  return lanes;
}
// Neighbours are neighbours in memory: with several lanes the mask is drawn as one row.
static px_status draw_mask(px_tensor **out, const px_tensor *x, double keep) {
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  int64_t one = 1;
  PX_TRY(px_empty_like(&mask, x, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  int64_t lanes = !px_tensor_is_cuda(x) ? 1 : lanes_of(x, mask);
  if (lanes > 1) PX_TRY(px_as_strided(&row, mask, &x->numel, 1, &one, 1, NULL));
  PX_TRY(px_dropout_mask_(row ? row : mask, keep, lanes, NULL));
  *out = PX_MOVE(mask);
  return PX_OK;
}
PX_RUN(dropout) {
  px_tensor *x = args->input;
  double p = args->p;
  if (!args->training || p == 0 || x->numel == 0) {
    call->results[0] = px_retain(x);
    return PX_OK;
  }
  if (p == 1) return px_mul_scalar(&call->results[0], x, px_float(0));
  PX_SCOPED(px_tensor) mask = NULL;
  PX_TRY(draw_mask(&mask, x, 1 - p));
  return px_mul(&call->results[0], x, mask);
}
