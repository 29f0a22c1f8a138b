// SPDX-License-Identifier: Apache-2.0
// The run function of hardshrink, which rounds a number. Other layers are formulas of ops/layer.op.
#include "hidden/layer.h"
#include "ops/core/run.h"
#include "run_functions/layer.h"

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
