// SPDX-License-Identifier: Apache-2.0
// Running sums and products: results of the input's shape, integers becoming int64.
#include "ops/run.h"

static px_status scanned(px_call *call, const px_tensor *self, int64_t along, px_dtype dtype) {
  int dim;
  if (dtype == PX_DTYPE_NONE)
    dtype = px_dtype_is_float((px_dtype)self->dtype) ? (px_dtype)self->dtype : PX_INT64;
  PX_TRY(px__wrap_dim(&dim, along, self->ndim));
  return px__call_result(call, 0, self->ndim, self->sizes, dtype);
}
PX_RUN(scan) { return scanned(call, args->self, args->dim, args->dtype); }
PX_RUN(cumsum_backward) { return scanned(call, args->grad_output, args->dim, PX_DTYPE_NONE); }

PX_RUN(cumprod_backward) {
  const px_tensor *grad = args->grad_output, *self = args->self;
  PX_CHECK(grad->ndim == self->ndim, PX_RUNTIME, "cumprod_backward wants two tensors of one shape");
  return px__call_result(call, 0, self->ndim, self->sizes, (px_dtype)self->dtype);
}
