// SPDX-License-Identifier: Apache-2.0
// Checks of the quantiles q, which read values.
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/reduce.h"
#include "run_functions/statistics.h"

static px_status check_q(const px_tensor *q) {
  px_scalar valid;
  PX_SCOPED(px_tensor) above = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) inside = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_TRY(px_tensor_detach(&plain, px__innermost_physical(q)));
  PX_TRY(px_ge_scalar(&above, plain, px_int(0)));
  PX_TRY(px_le_scalar(&below, plain, px_int(1)));
  PX_TRY(px_logical_and(&inside, above, below));
  PX_TRY(px_all(&all, inside, NULL, 0, false));
  PX_TRY(px_tensor_item(&valid, all));
  PX_CHECK(px_scalar_int(valid), PX_RUNTIME, "quantile() q values must be in the range [0, 1]");
  return PX_OK;
}
// Checks q's device before its values, because reading those waits for the device.
PX_RUN(quantile) {
  PX_CHECK(px_device_equal(px__tensor_device(args->self), px__tensor_device(args->q)), PX_RUNTIME,
           "quantile() q tensor must be on the same device as the input tensor");
  return px__tensor_device(args->q).type == PX_CPU ? check_q(args->q) : PX_OK;
}
