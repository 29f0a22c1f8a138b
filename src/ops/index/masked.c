// SPDX-License-Identifier: Apache-2.0
// Run functions of torch.masked: products over several dimensions, one at a time. The others are
// formulas of ops/masked.op, which fill masked elements with the identity of the op.
#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/masked.h"

PX_RUN(masked_prod) {
  px__dims d = {.n = args->self->ndim};
  PX_SCOPED(px_tensor) x = NULL;
  const px_value of[] = {PX_T(args->self), PX_T(args->mask), PX_S(px_int(1))};
  for (int i = 0; i < d.n; i++) d.at[i] = i;
  if (px__given(args->dim) && args->dim.n)
    PX_TRY(px__wrap_dim_list(&d, args->dim.v.ints, args->dim.n, args->self->ndim));
  PX_TRY(px__formula_fill_masked(&x, of));
  if (!d.n) return px_prod_all(&call->results[0], x, args->dtype);
  for (int i = 0; i < d.n; i++) {
    px_tensor *product = NULL;
    PX_TRY(px_prod(&product, x, d.at[i], true, args->dtype));
    px_release(x);
    x = product;
  }
  if (!args->keepdim) return px_squeeze_dim(&call->results[0], x, d.at, d.n);
  call->results[0] = PX_MOVE(x);
  return PX_OK;
}

// Rejects dtypes without a mean.
PX_RUN(masked_mean) {
  px_dtype dtype = args->dtype == PX_DTYPE_NONE ? (px_dtype)args->self->dtype : args->dtype;
  PX_CHECK(px_dtype_is_differentiable(dtype), PX_VALUE,
           "mean(): Could not infer output dtype. Input dtype must be either a floating point or "
           "complex dtype. Got: torch.%s",
           px_dtype_name(dtype));
  return PX_OK;
}
