// SPDX-License-Identifier: Apache-2.0
// Run functions of sorting and choosing.
#include <math.h>

#include "ops/run.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/sort.h"
#include "phlox/ops/view.h"
#include "run_functions/sort.h"

static int64_t length_of(const px_tensor *t, int dim) { return t->ndim ? t->sizes[dim] : 1; }
PX_RUN(argsort) {
  PX_SCOPED(px_tensor) values = NULL;
  return px_sort(&values, &call->results[0], args->self, args->dim, args->descending, args->stable);
}
// Where a line holds a NaN, its first one is the median: the maximum finds it.
static px_status nan_first(px_call *call, const px_tensor *t, int dim, bool keepdim) {
  PX_SCOPED(px_tensor) most = NULL;
  PX_SCOPED(px_tensor) place = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) value = PX_MOVE(call->results[0]);
  PX_SCOPED(px_tensor) where = PX_MOVE(call->results[1]);
  PX_TRY(px_max_dim(&most, &place, t, dim, keepdim));
  PX_TRY(px_isnan(&mask, most));
  PX_TRY(px_where(&call->results[0], mask, most, value));
  return px_where(&call->results[1], mask, place, where);
}
PX_RUN(median_dim) {
  const px_tensor *t = args->self;
  int dim;
  PX_TRY(px__wrap_dim(&dim, args->dim, t->ndim));
  PX_CHECK(length_of(t, dim) > 0, PX_INDEX,
           "median(): Expected reduction dim %d to have non-zero size.", dim);
  PX_TRY(px_kthvalue(&call->results[0], &call->results[1], t, (length_of(t, dim) + 1) / 2, dim,
                     args->keepdim));
  if (!px_dtype_is_float((px_dtype)t->dtype) || !t->numel) return PX_OK;
  return nan_first(call, t, dim, args->keepdim);
}
PX_RUN(median) {
  const px_tensor *t = args->self;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  int64_t n = t->numel;
  if (n == 0)
    return px_full(&call->results[0], NULL, 0, px_float(NAN), (px_dtype)t->dtype,
                   px__tensor_device(t), false, false);
  PX_TRY(px_reshape(&flat, t, &n, 1));
  return px_median_dim(&call->results[0], &where, flat, 0, false);
}
