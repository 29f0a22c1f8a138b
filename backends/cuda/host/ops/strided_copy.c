// SPDX-License-Identifier: Apache-2.0
// Strided copies of up to three dimensions, by element size.
#include "cuda/host/driver/cuda.h"

enum { BLOCK = 256 };

px_status px__cuda_strided_copy(const px_launch *l, const k_strided *copy, int dtype) {
  static const char *const functions[] = {[1] = "px_strided_1",
                                          [2] = "px_strided_2",
                                          [4] = "px_strided_4",
                                          [8] = "px_strided_8",
                                          [16] = "px_strided_16"};
  k_strided own = *copy;
  void *params[] = {&own};
  int64_t n = copy->sizes[0] * copy->sizes[1] * copy->sizes[2];
  size_t size = px__cuda_dtype_size(dtype);
  if (!n) return PX_OK;
  return px__cuda_launch(l, "strided", functions[size], px__cuda_grid(l, n, BLOCK), BLOCK, 0,
                         params);
}
