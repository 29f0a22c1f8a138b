// SPDX-License-Identifier: Apache-2.0
// Run functions of layers: hardshrink, which rounds a number, and instance_norm, which writes
// running statistics. The others are formulas of ops/layer.op.
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
