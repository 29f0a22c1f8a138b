// SPDX-License-Identifier: Apache-2.0
// Run functions of window functions and logspace. Windows are computed on the host in float64.
#include <math.h>

#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/factory.h"
#include "run_functions/factory.h"

#define TAU 6.28318530717958647692

typedef struct shape {
  double constant, first, second;  // coefficients of cos(0), cos(x) and cos(2 x)
} shape;
// Creates the uninitialised result, and a float64 tensor for its values.
static px_status new_window(px_call *call, px_tensor **values, const char *name, int64_t length,
                            px__options o) {
  px_dtype dtype = o.dtype == PX_DTYPE_NONE ? px_dtype_default() : o.dtype;
  PX_CHECK(px_dtype_is_float(dtype), PX_RUNTIME, "%s expects floating point dtypes, got: %s", name,
           px_dtype_class(dtype));
  PX_CHECK(length >= 0, PX_RUNTIME,
           "%s requires non-negative window_length, got window_length=%lld", name,
           (long long)length);
  PX_TRY(px_tensor_empty(values, 1, &length, PX_FLOAT64, px_cpu()));
  return px_empty(&call->results[0], &length, 1, dtype, o.device, o.pin_memory, o.requires_grad,
                  NULL);
}
static px_status copy_values(px_call *call, const px_tensor *values) {
  call->device = px__tensor_device(call->results[0]);
  return px__tensor_copy(call->results[0], values, false);
}
// The number of intervals of a period: `length` for periodic windows, otherwise length - 1.
static double interval_count(int64_t length, bool periodic) {
  return (double)(periodic ? length : length - 1);
}
static px_status cosines(px_call *call, const char *name, int64_t length, bool periodic, shape s,
                         px__options o) {
  PX_SCOPED(px_tensor) values = NULL;
  PX_TRY(new_window(call, &values, name, length, o));
  double *out = px__tensor_at(values), intervals = interval_count(length, periodic);
  for (int64_t i = 0; i < length; i++) {
    double x = TAU * (double)i / intervals;
    out[i] = length == 1 ? 1 : s.constant + s.first * cos(x) + s.second * cos(2 * x);
  }
  return copy_values(call, values);
}
PX_RUN(hann_window) {
  return cosines(call, "hann_window", args->window_length, args->periodic, (shape){0.5, -0.5, 0},
                 PX_OPTIONS(args));
}
PX_RUN(hamming_window) {
  return cosines(call, "hamming_window", args->window_length, args->periodic,
                 (shape){args->alpha, -args->beta, 0}, PX_OPTIONS(args));
}
PX_RUN(blackman_window) {
  return cosines(call, "blackman_window", args->window_length, args->periodic,
                 (shape){0.42, -0.5, 0.08}, PX_OPTIONS(args));
}
PX_RUN(bartlett_window) {
  PX_SCOPED(px_tensor) values = NULL;
  int64_t length = args->window_length;
  PX_TRY(new_window(call, &values, "bartlett_window", length, PX_OPTIONS(args)));
  double *out = px__tensor_at(values), intervals = interval_count(length, args->periodic);
  for (int64_t i = 0; i < length; i++)
    out[i] = length == 1 ? 1 : 1 - fabs(2 * (double)i / intervals - 1);
  return copy_values(call, values);
}
PX_RUN(kaiser_window) {
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) heights = NULL;
  int64_t length = args->window_length;
  PX_TRY(new_window(call, &values, "kaiser_window", length, PX_OPTIONS(args)));
  double *out = px__tensor_at(values), intervals = interval_count(length, args->periodic);
  for (int64_t i = 0; i < length; i++) {
    double x = 2 * (double)i / intervals - 1;
    out[i] = args->beta * (length == 1 ? 1 : sqrt(fmax(0, 1 - x * x)));
  }
  PX_TRY(px__formula_bessel_ratios(&heights, (px_value[]){PX_T(values), PX_F(args->beta)}));
  return copy_values(call, heights);
}

PX_RUN(logspace) {
  px__options o = PX_OPTIONS(args);
  PX_SCOPED(px_tensor) values = NULL;
  int64_t n = args->steps;
  px_dtype dtype = o.dtype == PX_DTYPE_NONE ? px_dtype_default() : o.dtype;
  bool computed = dtype < PX_DTYPE_COMPUTED && dtype != PX_BOOL;
  PX_CHECK(n < 1 || computed || px_dtype_is_complex(dtype), PX_UNIMPLEMENTED,
           "\"logspace_cpu\" not implemented for '%s'", px_dtype_class(dtype));
  PX_CHECK(n < 1 || (px_scalar_fits(args->start, dtype) && px_scalar_fits(args->end, dtype)),
           PX_RUNTIME, "value cannot be converted to type %s without overflow",
           px_dtype_about(dtype)->c_name);
  PX_TRY(px_empty(&call->results[0], &n, 1, dtype, o.device, o.pin_memory, o.requires_grad, NULL));
  PX_TRY(px__formula_powers_between(
      &values, (px_value[]){PX_T(call->results[0]), PX_S(args->start), PX_S(args->end), PX_I(n),
                            PX_F(args->base)}));
  PX_TRY(copy_values(call, values));
  return px__shape_like_out(call);
}
