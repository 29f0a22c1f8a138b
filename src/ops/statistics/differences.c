// SPDX-License-Identifier: Apache-2.0
// torch.gradient: its dimensions. ops/reduce.op has the formulas of one dimension.
#include "formulas.h"
#include "ops/core/run.h"
#include "run_functions/reduce.h"

// Given dimensions, or all.
static px_status dims_of(int *dims, int *count, const px_tensor *self, px_value dim,
                         int64_t order) {
  uint64_t mask;
  bool given = px__given(dim);
  if (given) PX_TRY(px__wrap_dims(&mask, dim.v.ints, dim.n, self->ndim));
  *count = given ? dim.n : self->ndim;
  for (int i = 0; i < *count; i++) {
    dims[i] = i;
    if (given) PX_TRY(px__wrap_dim(&dims[i], dim.v.ints[i], self->ndim));
    PX_CHECK(self->ndim && self->sizes[dims[i]] > order, PX_RUNTIME,
             "torch.gradient expected each dimension size to be at least edge_order+1");
  }
  return PX_OK;
}
static px_status return_list(px_call *call, px_tensor **items, int count, px_status status) {
  if (status == PX_OK) status = px_list_new(&call->list, items, count);
  for (int i = 0; i < count; i++) px_release(items[i]);
  return status;
}
PX_RUN(gradient) {
  px_tensor *items[PX_MAX_DIMS] = {0};
  int dims[PX_MAX_DIMS], count;
  px_status status = PX_OK;
  PX_TRY(dims_of(dims, &count, args->self, args->dim, args->edge_order));
  for (int i = 0; i < count && status == PX_OK; i++) {
    const px_value of[] = {PX_T(args->self), PX_I(dims[i]), PX_F(px_scalar_float(args->spacing)),
                           PX_B(args->edge_order == 2)};
    status = px__formula_uniform_gradient(&items[i], of);
  }
  return return_list(call, items, count, status);
}

static px_status check_coordinates(const px_tensor *self, px_value spacing, px_value dim) {
  PX_CHECK(px__given(dim) || spacing.n == self->ndim, PX_RUNTIME,
           "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal "
           "to 'self.dim() = %d', since dim argument was not given, but got a list of length %d",
           self->ndim, spacing.n);
  PX_CHECK(!px__given(dim) || spacing.n == dim.n, PX_RUNTIME,
           "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim "
           "arguments to have the same length, but got a spacing argument of length %d and a dim "
           "argument of length %d.",
           spacing.n, dim.n);
  for (int i = 0; i < spacing.n; i++)
    PX_CHECK(spacing.v.tensors[i]->ndim == 1, PX_RUNTIME,
             "torch.gradient expected each element of spacing to have one dimension, but got an "
             "element with %d dimensions!",
             spacing.v.tensors[i]->ndim);
  return PX_OK;
}
PX_RUN(gradient_of_coordinates) {
  px_tensor *items[PX_MAX_DIMS] = {0};
  int dims[PX_MAX_DIMS], count;
  px_status status = PX_OK;
  px_value spacing = args->spacing;
  PX_TRY(check_coordinates(args->self, spacing, args->dim));
  PX_TRY(dims_of(dims, &count, args->self, args->dim, args->edge_order));
  for (int i = 0; i < count && status == PX_OK; i++) {
    const px_value of[] = {PX_T(args->self), PX_T(spacing.v.tensors[i]), PX_I(dims[i]),
                           PX_B(args->edge_order == 2)};
    status = px__formula_spaced_gradient(&items[i], of);
  }
  return return_list(call, items, count, status);
}
