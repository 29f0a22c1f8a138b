// SPDX-License-Identifier: Apache-2.0
// Cumulative sums, products and extremes against a loop, along contiguous and strided dimensions.
#include "kernels_help.h"

static double at(const px_tensor *t, int64_t i) {
  px_dtype dtype = px_tensor_dtype(t);
  const char *data = px_tensor_data(t);
  return px_scalar_float(px_scalar_load(dtype, data + (size_t)i * px_dtype_size(dtype)));
}
// Along dimension 0 of x, a matrix of small numbers with exact sums.
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
PX_TEST(cumsum_and_cumprod_in_any_layout) {
  static const int64_t shapes[][2] = {{1, 9}, {4, 7}, {5, 8}, {3, 521}, {40, 33}};
  static const px_dtype dtypes[] = {PX_INT32,   PX_INT64,   PX_FLOAT16, PX_BFLOAT16,
                                    PX_FLOAT32, PX_FLOAT64, PX_BOOL};
  for (int k = 0; k < 7; k++)
    for (int i = 0; i < 5; i++) {
      PX_SCOPED(px_tensor) transposed = NULL;
      px_tensor *x = NULL;
      OK(px_tensor_empty(&x, 2, shapes[i], dtypes[k], px_cpu()));
      char *data = px_tensor_data(x);
      for (int64_t e = 0; e < px_tensor_numel(x); e++)
        px_scalar_store(px_int(e * 7 % 3 - 1), dtypes[k],
                        data + (size_t)e * px_dtype_size(dtypes[k]));
      OK(px_transpose(&transposed, x, 0, 1));
      for (int product = 0; product < 2; product++) {
        check_columns(x, product);
        check_columns(transposed, product);
      }
      px_release(x);
    }
}
PX_TEST(the_gradient_of_cumsum_is_a_reversed_cumsum) {
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

// ---- cummax, cummin

// Against a loop along `dim` of a matrix. The later of equal elements wins, and NaN beats all.
static void check_extremes(const px_tensor *x, int64_t dim, bool is_min) {
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) copy = NULL;
  OK(px_clone(&copy, x, "contiguous_format"));
  OK((is_min ? px_cummin : px_cummax)(&values, &indices, x, dim));
  CHECK_EQ(px_tensor_dtype(values), px_tensor_dtype(x));
  CHECK_EQ(px_tensor_dtype(indices), PX_INT64);
  const int64_t *sizes = px_tensor_sizes(x), length = sizes[dim], columns = sizes[1];
  for (int64_t line = 0; line < sizes[1 - dim]; line++) {
    double best = 0;
    int64_t index = -1;
    for (int64_t i = 0; i < length; i++) {
      int64_t e = dim == 0 ? i * columns + line : line * columns + i;
      double v = at(copy, e);
      bool better = index < 0 || isnan(v) || (!isnan(best) && (is_min ? v <= best : v >= best));
      if (better) best = v, index = i;
      CHECK(at(values, e) == best || (isnan(best) && isnan(at(values, e))));
      CHECK_EQ((int64_t)at(indices, e), index);
    }
  }
}
PX_TEST(cummax_and_cummin_of_every_dtype) {
  static const int64_t shapes[][2] = {{1, 9}, {5, 8}, {3, 1200}, {700, 2}};
  for (int dtype = 0; dtype < PX_DTYPE_COMPUTED; dtype++)
    for (int i = 0; i < 4; i++) {
      PX_SCOPED(px_tensor) transposed = NULL;
      PX_SCOPED(px_tensor) x = pattern((px_dtype)dtype, 2, shapes[i]);
      OK(px_transpose(&transposed, x, 0, 1));
      for (int k = 0; k < 4; k++) {
        check_extremes(x, k & 1, k >> 1);
        check_extremes(transposed, k & 1, k >> 1);
      }
    }
}
PX_TEST(the_last_of_equal_elements_or_nans_wins) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(2, 5), VALUES(2, 1, 2, NAN, 3, 1, NAN, 0, NAN, -1));
  check_extremes(x, 1, false);
  check_extremes(x, 1, true);
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  OK(px_cummax(&values, &indices, x, -1));
  ELEMENTS(indices, 0, 0, 0, 2, 3, 3, 0, 1, 1, 3, 3);
}
PX_TEST(cummax_and_cummin_of_long_rows_with_nan) {
  static double values[3 * 100];
  for (int i = 0; i < 300; i++) values[i] = i % 100 == 41 || i == 277 ? (double)NAN : i * 37 % 29;
  PX_SCOPED(px_tensor) floats = made(PX_FLOAT32, S(3, 100), values);
  PX_SCOPED(px_tensor) doubles = made(PX_FLOAT64, S(3, 100), values);
  for (int is_min = 0; is_min < 2; is_min++)
    check_extremes(floats, 1, is_min), check_extremes(doubles, 1, is_min);
}
PX_TEST(cummax_and_cummin_of_scalars_and_empty_tensors) {
  PX_SCOPED(px_tensor) one = made(PX_FLOAT32, 0, NULL, VALUES(3));
  PX_SCOPED(px_tensor) none = made(PX_FLOAT32, S(2, 0), NULL);
  px_tensor *values = NULL, *indices = NULL;
  OK(px_cummin(&values, &indices, one, -1));
  ELEMENTS(values, 0, 3);
  ELEMENTS(indices, 0, 0);
  px_release(values), px_release(indices);
  OK(px_cummax(&values, &indices, none, 1));
  CHECK_EQ(px_tensor_numel(indices), 0);
  px_release(values), px_release(indices);
  FAILS(px_cummax(&values, &indices, one, 1), PX_INDEX,
        "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  FAILS(px_cummin(&values, &indices, none, 2), PX_INDEX, "[-2, 1], but got 2");
}
PX_TEST(the_gradient_of_cummax_accumulates_at_its_indices) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(5), VALUES(1, 3, 2, 3, 0));
  PX_SCOPED(px_tensor) g = made(PX_FLOAT32, S(5), VALUES(1, 2, 4, 8, 16));
  px_tensor *values = NULL, *indices = NULL;
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_cummax(&values, &indices, x, 0));
  CHECK_TEXT(node_name(values), "CummaxBackward0");
  OK(px_backward(1, &values, &g, false, false));
  ELEMENTS(px_tensor_grad(x), 0, 1, 6, 0, 24, 0);
  px_release(values), px_release(indices);
}
