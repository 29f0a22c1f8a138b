// SPDX-License-Identifier: Apache-2.0
// Helpers of formulas that need the graph's own view of memory.
#include "autograd/backward.h"

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
