// SPDX-License-Identifier: Apache-2.0
// Fusion of batch normalization in evaluation mode, a per-channel scale and shift, into the weights
// of the preceding layer.
#include "formulas.h"
#include "nn/module/nn_impl.h"

px_status px_fuse_norm(px_tensor **weight, px_tensor **bias, const px_tensor *of_weight,
                       const px_tensor *of_bias, const px_channel_norm *norm, bool transposed) {
  PX_GIVEN(weight);
  PX_GIVEN(bias);
  PX_GIVEN(of_weight);
  PX_GIVEN(norm);
  PX_CHECK(norm->mean && norm->var, PX_VALUE, "expected a norm with running statistics");
  bool recording = px_grad_enabled();
  px_grad_set_enabled(false);
  px_tensor *fused[2] = {NULL, NULL};
  px_status status = px__formula_fused_norm(
      fused, (px_value[]){PX_T(of_weight), PX_T(of_bias), PX_T(norm->mean), PX_T(norm->var),
                          PX_T(norm->weight), PX_T(norm->bias), PX_F(norm->eps), PX_I(transposed)});
  if (status == PX_OK) *weight = fused[0], *bias = fused[1];
  px_grad_set_enabled(recording);
  return status;
}
