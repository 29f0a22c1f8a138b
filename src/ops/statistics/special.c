// SPDX-License-Identifier: Apache-2.0
// Run functions of special functions and powers, as composites.
#include <math.h>

#include "hidden/special.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/special.h"
#include "phlox/ops/view.h"
#include "run_functions/special.h"

// ---- powers in float64

static px_status doubled(px_tensor **out, const px_tensor *t) {
  bool complex = px_dtype_is_complex((px_dtype)t->dtype);
  if (!(px__flags(t) & PX_TENSOR_WRAPPED))
    return px_to(out, t, complex ? PX_COMPLEX128 : PX_FLOAT64, PX_DEVICE_NONE, false, false);
  *out = px_retain((px_tensor *)t);
  return PX_OK;
}
PX_RUN(float_power) {
  PX_SCOPED(px_tensor) base = NULL;
  PX_SCOPED(px_tensor) exponent = NULL;
  PX_TRY(doubled(&base, args->self));
  PX_TRY(doubled(&exponent, args->exponent));
  return px_pow(&call->results[0], base, exponent);
}
PX_RUN(float_power_number) {
  PX_SCOPED(px_tensor) exponent = NULL;
  PX_TRY(doubled(&exponent, args->exponent));
  return px_pow_of_number(&call->results[0], args->self, exponent);
}
PX_RUN(float_power_self) {
  PX_TRY(px_pow_(args->self, args->exponent));
  call->results[0] = px_retain(args->self);
  return PX_OK;
}

PX_RUN(round_decimals) {
  double ten = pow(10, fabs((double)args->decimals));
  return px_round_scaled(&call->results[0], args->self, px_float(ten), args->decimals >= 0);
}
