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

// The sum of lgamma(self - k/2) for k < p, plus the constant term.
PX_RUN(mvlgamma) {
  const double log_pi = 1.14472988584940017414;
  const px_tensor *self = args->self;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) steps = NULL;
  PX_SCOPED(px_tensor) points = NULL;
  PX_SCOPED(px_tensor) terms = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  double p = (double)args->p;
  int64_t last = -1;
  px_dtype dtype = (px_dtype)self->dtype;
  if (!px_dtype_is_float(dtype)) dtype = px_dtype_default();
  PX_TRY(px_unsqueeze(&column, self, -1));
  PX_TRY(px_arange(&steps, px_float(0), px_float(-p / 2), px_float(-0.5), dtype,
                   px__tensor_device(self), false, false));
  PX_TRY(px_add(&points, column, steps, px_int(1)));
  PX_TRY(px_lgamma(&terms, points));
  PX_TRY(px_sum(&sum, terms, &last, 1, false, PX_DTYPE_NONE));
  return px_add_scalar(&call->results[0], sum, px_float(log_pi * p * (p - 1) / 4), px_int(1));
}

// The exponents are not differentiable.
PX_RUN(frexp) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) exponent = NULL;
  PX_TRY(px_frexp_mantissa(&call->results[0], args->self));
  PX_TRY(px_tensor_detach(&plain, args->self));
  PX_TRY(px_frexp_exponent(&exponent, plain));
  return px_to(&call->results[1], exponent, PX_INT32, PX_DEVICE_NONE, false, false);
}

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
