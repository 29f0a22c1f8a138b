// SPDX-License-Identifier: Apache-2.0
// Helpers of gradient formulas that depend on memory layout.
#include "autograd/rules/backward.h"

#include "formulas.h"
#include "grad_functions.h"
#include "phlox/extend.h"
#include "hidden/view.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"

static bool is_row_major(px_value sizes, px_value strides) {
  int64_t step = 1;
  for (int d = sizes.n - 1; d >= 0; step *= sizes.v.ints[d--])
    if (sizes.v.ints[d] > 1 && strides.v.ints[d] != step) return false;
  return true;
}

// A base whose elements share memory: the mean of grad over the elements of the base in each
// element of memory, read by the view.
static px_status view_of_means(px_tensor **out, px_tensor *grad, px_value base_size,
                               px_value base_stride, int64_t offset, px_value size,
                               px_value stride) {
  int64_t length = 1;
  for (int d = 0; d < base_size.n; d++) length += (base_size.v.ints[d] - 1) * base_stride.v.ints[d];
  PX_SCOPED(px_tensor) means = NULL;
  PX_TRY(px__formula_means_in_memory(
      &means, (px_value[]){PX_T(grad), PX_I(length), base_size, base_stride}));
  return px_as_strided(out, means, size.v.ints, size.n, stride.v.ints, stride.n, &offset);
}

// Gradient of as_strided_backward: the elements of `grad` in the layout of the base.
px_status px__grad_as_strided_again(px_tensor **out, px_tensor *grad, px_value base_size,
                                    px_value base_stride, int64_t base_offset, px_value size,
                                    px_value stride, int64_t storage_offset) {
  PX_SCOPED(px_tensor) whole = NULL;
  if (px_may_overlap(base_size.n, base_size.v.ints, base_stride.v.ints))
    return view_of_means(out, grad, base_size, base_stride, storage_offset - base_offset, size,
                         stride);
  if (is_row_major(base_size, base_stride)) {
    PX_TRY(px_contiguous(&whole, grad));
  } else {
    PX_TRY(px_new_empty_strided(&whole, grad, base_size.v.ints, base_size.n, base_stride.v.ints,
                                base_stride.n, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
    PX_TRY(px_copy_(whole, grad, false));
  }
  int64_t offset = storage_offset - base_offset + px_tensor_offset(whole);
  return px_as_strided(out, whole, size.v.ints, size.n, stride.v.ints, stride.n, &offset);
}

// Padding by the negated amounts: added elements are cut off, removed ones are zero.
px_status px__grad_pad(px_tensor **out, px_tensor *grad, px_value pad) {
  int64_t back[2 * PX_MAX_DIMS];
  for (int i = 0; i < pad.n; i++) back[i] = -pad.v.ints[i];
  return px_constant_pad_nd(out, grad, back, pad.n, px_int(0));
}
