// SPDX-License-Identifier: Apache-2.0
// Helpers of formulas that need the graph's own view of memory.
#include "autograd/rules/backward.h"

#include "grad_functions.h"

// The gradient of as_strided_backward: the same elements of `grad`, laid out as the base was.
// Arguments: grad, base_size, base_stride, base_offset, size, stride, storage_offset.
px_status px__grad_as_strided_again(px_tensor **out, const px_value *args, int count) {
  px_tensor *grad = args[0].v.tensor;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_TRY(px_tensor_empty_strided(&whole, args[1].n, args[1].v.ints, args[2].v.ints,
                                 px_tensor_dtype(grad), px_tensor_device(grad)));
  PX_TRY(px_copy_(whole, grad, false));
  int64_t offset = px_value_int(args[6]) - px_value_int(args[3]);
  return px_as_strided(out, whole, args[4].v.ints, args[4].n, args[5].v.ints, args[5].n, &offset);
}

// ---- products of matrices
// A matrix that is a transposed one (a Linear's weight, as the product sees it) gets a gradient
// which is transposed likewise: seen from the weight it is row-major, and nothing has to copy it.

static px_status times_turned(px_tensor **out, const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) bt = NULL;
  PX_TRY(px_transpose(&bt, b, 0, 1));
  return px_mm(out, a, bt);
}
static px_status turned_times(px_tensor **out, const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) at = NULL;
  PX_TRY(px_transpose(&at, a, 0, 1));
  return px_mm(out, at, b);
}

// grad @ mat2.T. Arguments: grad, mat2, whether self is transposed.
px_status px__grad_mm_self(px_tensor **out, const px_value *args, int count) {
  const px_tensor *grad = args[0].v.tensor, *mat2 = args[1].v.tensor;
  if (!px_value_int(args[2])) return times_turned(out, grad, mat2);
  PX_SCOPED(px_tensor) product = NULL;
  PX_TRY(times_turned(&product, mat2, grad));
  return px_transpose(out, product, 0, 1);
}

// self.T @ grad. Arguments: grad, self, whether mat2 is transposed.
px_status px__grad_mm_mat2(px_tensor **out, const px_value *args, int count) {
  const px_tensor *grad = args[0].v.tensor, *self = args[1].v.tensor;
  if (!px_value_int(args[2])) return turned_times(out, self, grad);
  PX_SCOPED(px_tensor) product = NULL;
  PX_TRY(turned_times(&product, grad, self));
  return px_transpose(out, product, 0, 1);
}

// (grad, pad): what was added is cut off again, and what was cut off is zero.
px_status px__grad_pad(px_tensor **out, const px_value *args, int count);
px_status px__grad_pad(px_tensor **out, const px_value *args, int count) {
  int64_t back[2 * PX_MAX_DIMS];
  for (int i = 0; i < args[1].n; i++) back[i] = -args[1].v.ints[i];
  return px_constant_pad_nd(out, args[0].v.tensor, back, args[1].n, px_int(0));
}
