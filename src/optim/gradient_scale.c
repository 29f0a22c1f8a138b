// SPDX-License-Identifier: Apache-2.0
// Gradient scaling for mixed precision. The ops run with gradients disabled.
#include "phlox/autograd.h"
#include "phlox/op.h"
#include "phlox/optim.h"

static px_status change(const char *name, const px_value *args) {
  void *changed[2] = {NULL, NULL};
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = px_op_call(px_op_find(name), PX_CALL_NEW, args, changed);
  px_grad_set_enabled(was);
  for (int i = 0; i < 2; i++) px_release(changed[i]);
  return status;
}

px_status px_amp_unscale(int64_t count, px_tensor *const *grads, px_tensor *found_inf,
                         px_tensor *inv_scale) {
  PX_GIVEN_N(grads, count);
  PX_GIVEN(found_inf);
  PX_GIVEN(inv_scale);
  for (int64_t i = 0; i < count; i++)
    PX_CHECK(grads[i], PX_TYPE, "gradient %lld is missing", (long long)i);
  for (int64_t i = 0; i < count; i++)
    PX_TRY(change("_amp_unscale", (px_value[]){PX_T(grads[i]), PX_T(found_inf), PX_T(inv_scale)}));
  return PX_OK;
}

px_status px_amp_update_scale(px_tensor *scale, px_tensor *growth_tracker, px_tensor *found_inf,
                              double growth_factor, double backoff_factor,
                              int64_t growth_interval) {
  PX_GIVEN(scale);
  PX_GIVEN(growth_tracker);
  PX_GIVEN(found_inf);
  return change("_amp_update_scale",
                (px_value[]){PX_T(scale), PX_T(growth_tracker), PX_T(found_inf),
                             PX_F(growth_factor), PX_F(backoff_factor), PX_I(growth_interval)});
}
