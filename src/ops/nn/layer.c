// SPDX-License-Identifier: Apache-2.0
// Run functions of layers composed of several ops: activations, channel-wise dropout, normalisation
// and pixel shuffles.
#include <math.h>
#include <stdio.h>

#include "hidden/layer.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/layer.h"

#define LL(x) ((long long)(x))

// ---- activations

PX_RUN(glu) {
  const px_tensor *x = args->input;
  PX_SCOPED(px_tensor) value = NULL;
  PX_SCOPED(px_tensor) gate = NULL;
  PX_SCOPED(px_tensor) opened = NULL;
  int dim;
  PX_TRY(px__wrap_dim(&dim, args->dim, x->ndim));
  int64_t gate_size = x->sizes[dim] / 2;
  PX_CHECK(x->sizes[dim] % 2 == 0, PX_RUNTIME,
           "Halving dimension must be even, but dimension %d is size %lld", dim, LL(x->sizes[dim]));
  PX_TRY(px_narrow(&value, x, dim, 0, gate_size));
  PX_TRY(px_narrow(&gate, x, dim, gate_size, gate_size));
  PX_TRY(px_sigmoid(&opened, gate));
  return px_mul(&call->results[0], value, opened);
}

PX_RUN(prelu) {
  const px_tensor *x = args->self, *weight = args->weight;
  PX_SCOPED(px_tensor) slope = NULL;
  int64_t sizes[PX_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) sizes[d] = d == 1 ? weight->numel : 1;
  PX_TRY(px_reshape(&slope, weight, sizes, x->ndim));
  return px_prelu_to(&call->results[0], x, slope);
}

// ---- hardshrink and dropout

// lambd is rounded to self's dtype.
PX_RUN(hardshrink) {
  char element[8];
  px_scalar lambd = args->lambd;
  px_dtype dtype = (px_dtype)args->self->dtype;
  if (px_dtype_is_float(dtype)) {
    PX_CHECK(px_scalar_fits(lambd, dtype), PX_RUNTIME,
             "value cannot be converted to type %s without overflow",
             px_dtype_about(dtype)->c_name);
    px_scalar_store(lambd, dtype, element);
    lambd = px_scalar_load(dtype, element);
  }
  return px_hardshrink_to(&call->results[0], args->self, lambd);
}

// PyTorch's warnings for unusual numbers of dimensions.
static px_status warn_of_dims(const px_tensor *x, int dims) {
  if (dims == 2 && x->ndim == 3)
    return px_warn(
        PX_WARN_USER,
        "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
        "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
        "dim. This behavior will change in a future release to interpret the input as one without "
        "a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout "
        "behavior, please switch to using dropout1d instead.");
  if (x->ndim == dims + 1 || x->ndim == dims + 2) return PX_OK;
  return px_warn(PX_WARN_USER,
                 "dropout%dd: Received a %d-D input to dropout%dd, which is deprecated and will "
                 "result in an error in a future release. To retain the behavior and silence this "
                 "warning, please use dropout instead. Note that dropout%dd exists to provide "
                 "channel-wise dropout on inputs with %d spatial dimensions, a channel dimension, "
                 "and an optional batch dimension (i.e. %dD or %dD inputs).",
                 dims, x->ndim, dims, dims, dims, dims + 1, dims + 2);
}
// Multiplies by a mask with one number per channel. 2-d signals have no batch dimension. dropout3d
// expects one for 5-d inputs only.
PX_RUN(channel_dropout) {
  const px_tensor *x = args->input;
  double p = args->p;
  int dims = call->op->name[strlen("dropout")] - '0';
  int leading = (dims == 1 && x->ndim == 2) || (dims == 3 && x->ndim != 5) ? 1 : 2;
  if (dims > 1) PX_TRY(warn_of_dims(x, dims));
  PX_SCOPED(px_tensor) ones = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  int64_t sizes[PX_MAX_DIMS];
  if (!args->training || p == 0) {
    call->results[0] = px_retain((px_tensor *)x);
    return PX_OK;
  }
  for (int d = 0; d < x->ndim; d++) sizes[d] = d < leading ? x->sizes[d] : 1;
  PX_TRY(px_ones(&ones, sizes, x->ndim, (px_dtype)x->dtype, px__tensor_device(x), false, false));
  PX_TRY(px_dropout(&mask, ones, p, true));
  return px_mul(&call->results[0], x, mask);
}

// ---- normalisation

// Merges examples into channels of one example. Running statistics become means over examples.
static px_status fold_batch(px_tensor **out, const px_tensor *t, int64_t times) {
  if (!t) return *out = NULL, PX_OK;
  return px_repeat(out, t, &times, 1);
}
static px_status unfold_batch(px_tensor *to, const px_tensor *many, int64_t times) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  PX_TRY(px_reshape(&rows, many, (int64_t[]){times, to->numel}, 2));
  PX_TRY(px_mean(&mean, rows, (int64_t[]){0}, 1, false, PX_DTYPE_NONE));
  return px_copy_(to, mean, false);
}
static px_status check_spatial(const px_tensor *x, bool use_input) {
  char text[128];
  int64_t spatial = x->ndim > 2 ? px__sizes_product(x->sizes + 2, x->ndim - 2) : 1;
  PX_CHECK(!use_input || spatial != 1, PX_VALUE,
           "Expected more than 1 spatial element when training, got input size torch.Size(%s)",
           px__size_text(text, sizeof text, x));
  return PX_OK;
}
PX_RUN(instance_norm) {
  const px_tensor *x = args->input;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) var = NULL;
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  bool use_input = args->use_input_stats;
  PX_TRY(check_spatial(x, use_input));
  int64_t sizes[PX_MAX_DIMS] = {1, px__product(x->sizes[0], x->sizes[1])}, n = x->sizes[0];
  for (int d = 2; d < x->ndim; d++) sizes[d] = x->sizes[d];
  px_tensor *kept_mean = args->running_mean, *kept_var = args->running_var;
  PX_TRY(px_reshape(&flat, x, sizes, x->ndim));
  PX_TRY(fold_batch(&mean, kept_mean, n));
  PX_TRY(fold_batch(&var, kept_var, n));
  PX_TRY(fold_batch(&weight, args->weight, n));
  PX_TRY(fold_batch(&bias, args->bias, n));
  PX_TRY(
      px_batch_norm(&result, flat, mean, var, weight, bias, use_input, args->momentum, args->eps));
  if (use_input && kept_mean) PX_TRY(unfold_batch(kept_mean, mean, n));
  if (use_input && kept_var) PX_TRY(unfold_batch(kept_var, var, n));
  return px_reshape(&call->results[0], result, x->sizes, x->ndim);
}

// fp16 and bf16 squares would overflow, so they are computed in float32, including the weight.
static px_status scale_by_rms(px_tensor **out, const px_tensor *x, const px_tensor *weight,
                              px_value shape, double eps) {
  PX_SCOPED(px_tensor) square = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) scale = NULL;
  PX_SCOPED(px_tensor) normal = NULL;
  int64_t dims[PX_MAX_DIMS];
  for (int i = 0; i < shape.n; i++) dims[i] = x->ndim - shape.n + i;
  PX_TRY(px_square(&square, x));
  PX_TRY(px_mean(&mean, square, dims, shape.n, true, PX_DTYPE_NONE));
  PX_TRY(px_add_scalar(&sum, mean, px_float(eps), px_int(1)));
  PX_TRY(px_rsqrt(&scale, sum));
  if (!weight) return px_mul(out, x, scale);
  PX_TRY(px_mul(&normal, x, scale));
  return px_mul(out, normal, weight);
}
PX_RUN(rms_norm) {
  const px_tensor *x = args->input;
  px_dtype dtype = (px_dtype)x->dtype;
  bool is_16_bit = dtype == PX_FLOAT16 || dtype == PX_BFLOAT16;
  bool is_double = dtype == PX_FLOAT64 || dtype == PX_COMPLEX128;
  double epsilon = is_double ? 0x1p-52 : 0x1p-23;
  double eps = args->eps.kind == PX_ARG_NONE ? epsilon : px_value_float(args->eps);
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  if (!is_16_bit)
    return scale_by_rms(&call->results[0], x, args->weight, args->normalized_shape, eps);
  PX_TRY(px_to(&wide, x, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  PX_TRY(scale_by_rms(&made, wide, args->weight, args->normalized_shape, eps));
  return px_to(&call->results[0], made, dtype, PX_DEVICE_NONE, false, false);
}

// ---- pixel shuffles

// Reshapes (.., C r r, H, W) to (.., C, r, r, H, W) and permutes to (.., C, H, r, W, r), or back.
static px_status reorder(px_tensor **out, const px_tensor *x, const int64_t *parts,
                         const int64_t *order, const int64_t *last) {
  PX_SCOPED(px_tensor) split = NULL;
  PX_SCOPED(px_tensor) moved = NULL;
  int64_t sizes[PX_MAX_DIMS + 2], dims[PX_MAX_DIMS + 2];
  int lead = x->ndim - 3;
  for (int d = 0; d < lead; d++) sizes[d] = x->sizes[d], dims[d] = d;
  for (int k = 0; k < 5; k++) sizes[lead + k] = parts[k], dims[lead + k] = lead + order[k];
  PX_TRY(px_reshape(&split, x, sizes, lead + 5));
  PX_TRY(px_permute(&moved, split, dims, lead + 5));
  for (int k = 0; k < 3; k++) sizes[lead + k] = last[k];
  PX_SCOPED(px_tensor) copy = NULL;
  PX_TRY(px_clone(&copy, moved, "contiguous_format"));  // never a view of x
  return px_reshape(out, copy, sizes, x->ndim);
}
static px_status check_image(const px_call *call, const px_tensor *x) {
  PX_CHECK(x->ndim >= 3 && x->ndim <= PX_MAX_DIMS - 2, PX_RUNTIME,
           "%s expects input to have at least 3 dimensions, but got input with %d dimension(s)",
           call->op->name, x->ndim);
  return PX_OK;
}
PX_RUN(pixel_shuffle) {
  PX_TRY(check_image(call, args->self));
  const px_tensor *x = args->self;
  const int64_t *end = x->sizes + x->ndim - 3;
  int64_t r = args->upscale_factor;
  PX_CHECK(r <= INT32_MAX && end[0] % (r * r) == 0, PX_RUNTIME,
           "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
           "upscale_factor, but input.size(-3)=%lld is not divisible by %lld",
           LL(end[0]), r <= INT32_MAX ? LL(r * r) : LL(r));
  return reorder(&call->results[0], x, (int64_t[]){end[0] / (r * r), r, r, end[1], end[2]},
                 (int64_t[]){0, 3, 1, 4, 2},
                 (int64_t[]){end[0] / (r * r), px__product(end[1], r), px__product(end[2], r)});
}
PX_RUN(pixel_unshuffle) {
  PX_TRY(check_image(call, args->self));
  const px_tensor *x = args->self;
  const int64_t *end = x->sizes + x->ndim - 3;
  int64_t r = args->downscale_factor;
  for (int k = 1; k < 3; k++)
    PX_CHECK(end[k] % r == 0, PX_RUNTIME,
             "pixel_unshuffle expects %s to be divisible by downscale_factor, but input.size(%d)="
             "%lld is not divisible by %lld",
             k == 1 ? "height" : "width", k - 3, LL(end[k]), LL(r));
  if (!x->numel) return px_clone(&call->results[0], x, NULL);  // sizes unchanged, as in PyTorch
  return reorder(&call->results[0], x, (int64_t[]){end[0], end[1] / r, r, end[2] / r, r},
                 (int64_t[]){0, 2, 4, 1, 3},
                 (int64_t[]){px__product(px__product(end[0], r), r), end[1] / r, end[2] / r});
}
