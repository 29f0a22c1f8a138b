// SPDX-License-Identifier: Apache-2.0
// Running sums and products beside a loop, along lines that lie in one piece and side by side.
#include "kernels_help.h"

static double at(const px_tensor *t, int64_t i) {
  px_dtype dtype = px_tensor_dtype(t);
  const char *data = px_tensor_data(t);
  return px_scalar_float(px_scalar_load(dtype, data + (size_t)i * px_dtype_size(dtype)));
}
// Along dimension 0 of x, an image of rows x columns: the numbers are small and the sums exact.
static void check_columns(const px_tensor *x, bool product) {
  PX_SCOPED(px_tensor) copy = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  int64_t rows = px_tensor_sizes(x)[0], columns = px_tensor_sizes(x)[1];
  OK(px_clone(&copy, x, "contiguous_format"));
  OK((product ? px_cumprod : px_cumsum)(&y, x, 0, PX_DTYPE_NONE));
  for (int64_t c = 0; c < columns; c++) {
    double carry = product;
    for (int64_t r = 0; r < rows; r++) {
      double e = at(copy, r * columns + c);
      carry = product ? carry * e : carry + e;
      CHECK(element(y, r * columns + c) == carry);
    }
  }
}
PX_TEST(lines_in_one_piece_and_side_by_side) {
  static const int64_t shapes[][2] = {{1, 9}, {4, 7}, {5, 8}, {3, 521}, {40, 33}};
  static const px_dtype dtypes[] = {PX_INT32,   PX_INT64,   PX_FLOAT16, PX_BFLOAT16,
                                    PX_FLOAT32, PX_FLOAT64, PX_BOOL};
  for (int k = 0; k < 7; k++)
    for (int i = 0; i < 5; i++) {
      PX_SCOPED(px_tensor) turned = NULL;
      px_tensor *x = NULL;
      OK(px_tensor_empty(&x, 2, shapes[i], dtypes[k], px_cpu()));
      char *data = px_tensor_data(x);
      for (int64_t e = 0; e < px_tensor_numel(x); e++)
        px_scalar_store(px_int(e * 7 % 3 - 1), dtypes[k],
                        data + (size_t)e * px_dtype_size(dtypes[k]));
      OK(px_transpose(&turned, x, 0, 1));
      for (int product = 0; product < 2; product++) {
        check_columns(x, product);
        check_columns(turned, product);
      }
      px_release(x);
    }
}
PX_TEST(the_gradient_of_sums_side_by_side_runs_backwards) {
  PX_SCOPED(px_tensor) x = pattern(PX_FLOAT32, S(3, 9));
  PX_SCOPED(px_tensor) g = NULL;
  px_tensor *y = NULL;
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_cumsum(&y, x, 0, PX_DTYPE_NONE));
  g = pattern(PX_FLOAT32, S(3, 9));
  OK(px_backward(1, &y, &g, false, false));
  for (int64_t c = 0; c < 9; c++) {
    double sum = 0;
    for (int64_t r = 2; r >= 0; r--) {
      sum += at(g, r * 9 + c);
      CHECK(element(px_tensor_grad(x), r * 9 + c) == sum);
    }
  }
  px_release(y);
}
