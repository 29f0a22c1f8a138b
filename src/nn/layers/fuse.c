// SPDX-License-Identifier: Apache-2.0
// Fusion of batch normalization in evaluation mode, a per-channel scale and shift, into the weights
// of the preceding layer.
#include "nn/module/nn_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"

// Per-channel scale.
static px_status find_scale(px_tensor **out, const px_channel_norm *norm) {
  PX_SCOPED(px_tensor) shifted = NULL;
  PX_TRY(px_add_scalar(&shifted, norm->var, px_float(norm->eps), px_int(1)));
  if (!norm->weight) return px_rsqrt(out, shifted);
  PX_SCOPED(px_tensor) inverse = NULL;
  PX_TRY(px_rsqrt(&inverse, shifted));
  return px_mul(out, inverse, norm->weight);
}

static px_status scale_weight(px_tensor **out, const px_tensor *weight, const px_tensor *scale,
                              int channels) {
  PX_SCOPED(px_tensor) shaped = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  int ndim = px_tensor_ndim(weight);
  int64_t sizes[PX_MAX_DIMS];
  PX_CHECK(ndim > channels, PX_RUNTIME, "expected a weight of at least %d dimensions, got %d",
           channels + 1, ndim);
  for (int d = 0; d < ndim; d++) sizes[d] = d == channels ? -1 : 1;
  PX_TRY(px_reshape(&shaped, scale, sizes, ndim));
  PX_TRY(px_mul(&scaled, weight, shaped));
  return px_to(out, scaled, px_tensor_dtype(weight), PX_DEVICE_NONE, false, false);
}

static px_status shift_bias(px_tensor **out, const px_tensor *bias, px_dtype dtype,
                            const px_tensor *scale, const px_channel_norm *norm) {
  PX_SCOPED(px_tensor) centred = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) shifted = NULL;
  if (bias)
    PX_TRY(px_sub(&centred, bias, norm->mean, px_int(1)));
  else
    PX_TRY(px_neg(&centred, norm->mean));
  PX_TRY(px_mul(&scaled, centred, scale));
  if (norm->bias) PX_TRY(px_add(&shifted, scaled, norm->bias, px_int(1)));
  return px_to(out, shifted ? shifted : scaled, dtype, PX_DEVICE_NONE, false, false);
}

static px_status fuse(px_tensor **weight, px_tensor **bias, const px_tensor *of_weight,
                      const px_tensor *of_bias, const px_channel_norm *norm, bool transposed) {
  PX_SCOPED(px_tensor) scale = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  px_dtype dtype = px_tensor_dtype(of_bias ? of_bias : of_weight);
  PX_TRY(find_scale(&scale, norm));
  PX_TRY(scale_weight(&made, of_weight, scale, transposed ? 1 : 0));
  PX_TRY(shift_bias(bias, of_bias, dtype, scale, norm));
  *weight = PX_MOVE(made);
  return PX_OK;
}

px_status px_fuse_norm(px_tensor **weight, px_tensor **bias, const px_tensor *of_weight,
                       const px_tensor *of_bias, const px_channel_norm *norm, bool transposed) {
  PX_GIVEN(weight);
  PX_GIVEN(bias);
  PX_GIVEN(of_weight);
  PX_GIVEN(norm);
  PX_CHECK(norm->mean && norm->var, PX_VALUE, "expected a norm with running statistics");
  bool recording = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = fuse(weight, bias, of_weight, of_bias, norm, transposed);
  px_grad_set_enabled(recording);
  return status;
}
