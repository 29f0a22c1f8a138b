// SPDX-License-Identifier: Apache-2.0
// Running sums and products: results of the input's shape, integers becoming int64.
#include "call/op_impl.h"
#include "run_functions.h"

static px_value argument(const px_call *call, const char *name) {
  for (int i = 1; i < call->op->param_count; i++)
    if (!strcmp(call->op->params[i].name, name)) return call->args[i];
  return PX_NONE();
}

px_status px__run_scan(px_call *call) {
  const px_tensor *self = px__arg_tensor(call, 0);
  PX_CHECK(self, PX_TYPE, "%s(): argument 'input' (position 1) must be Tensor", call->op->name);
  px_value dtype = argument(call, "dtype");
  px_dtype result = (px_dtype)self->dtype;
  if (dtype.kind == PX_ARG_DTYPE)
    result = (px_dtype)dtype.v.i;
  else if (!px_dtype_is_float(result))
    result = PX_INT64;
  int dim;
  PX_TRY(px__wrap_dim(&dim, argument(call, "dim").v.i, self->ndim));
  return px__call_result(call, 0, self->ndim, self->sizes, result);
}

px_status px__run_cumprod_backward(px_call *call) {
  const px_tensor *grad = px__arg_tensor(call, 0), *self = px__arg_tensor(call, 1);
  PX_CHECK(grad && self && grad->ndim == self->ndim, PX_RUNTIME,
           "cumprod_backward wants two tensors of one shape");
  return px__call_result(call, 0, self->ndim, self->sizes, (px_dtype)self->dtype);
}
