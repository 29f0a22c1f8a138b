// SPDX-License-Identifier: Apache-2.0
// Counting and locating the elements that are not 0. The host waits for the count.
#include "ops/index/index_impl.h"
#include "run_functions/index.h"

static px__named_kernel nonzero = {.name = "nonzero"}, nonzero_count = {.name = "nonzero_count"};

px_status px__count_nonzero(int64_t *out, const px_tensor *self) {
  px_device device = px__tensor_device(self);
  PX_SCOPED(px_tensor) count = NULL;
  px_tensor *input = (px_tensor *)self;
  px_scalar n;
  *out = 0;
  if (self->numel == 0) return PX_OK;
  PX_TRY(px_tensor_empty(&count, 0, NULL, PX_INT64, device));
  PX_TRY(px__run_kernel(&nonzero_count, device, 1, &count, 1, &input, NULL, 0));
  PX_TRY(px_tensor_item(&n, count));
  *out = px_scalar_int(n);
  return PX_OK;
}

// Column-major, as in PyTorch: indices of one dimension are contiguous.
px_status px__nonzero(px_tensor **out, const px_tensor *self) {
  px_device device = px__tensor_device(self);
  PX_SCOPED(px_tensor) rows = NULL;
  px_tensor *input = (px_tensor *)self;
  int64_t sizes[2] = {0, self->ndim}, strides[2] = {1, 1};
  PX_TRY(px__count_nonzero(&sizes[0], self));
  if (sizes[0]) strides[1] = sizes[0];
  PX_TRY(px_tensor_empty_strided(&rows, 2, sizes, strides, PX_INT64, device));
  if (rows->numel) PX_TRY(px__run_kernel(&nonzero, device, 1, &rows, 1, &input, NULL, 0));
  *out = PX_MOVE(rows);
  return PX_OK;
}

PX_RUN(nonzero) { return px__nonzero(&call->results[0], args->self); }
