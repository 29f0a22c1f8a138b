// SPDX-License-Identifier: Apache-2.0
// Max and min with indices against a comparing loop, in rows, columns and long vectors. The first
// of equal elements wins, and NaN beats all numbers.
#include "kernels_help.h"

// Many equal numbers, with NaN at index `nan`.
static px_tensor *numbers(px_dtype dtype, int64_t rows, int64_t columns, int64_t nan) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, S(rows, columns), dtype, px_cpu()));
  char *at = px_tensor_data(t);
  uint64_t state = 3;
  for (int64_t i = 0; i < rows * columns; i++, at += px_dtype_size(dtype)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    px_scalar x = px_int((int64_t)(state >> 33) % 100 - 30);
    if (px_dtype_is_float(dtype) && nan && i % nan == nan - 1) x = px_float(NAN);
    px_scalar_store(x, dtype, at);
  }
  return t;
}
static bool is_better(double x, double y, bool is_min) {
  return (is_min ? x < y : x > y) || (x != x && y == y);
}
// Returns the index of the extreme of `count` elements from `first` on, `step` apart.
static int64_t extreme_index(const px_tensor *t, int64_t first, int64_t step, int64_t count,
                             bool is_min) {
  size_t item = px_dtype_size(px_tensor_dtype(t));
  const char *data = px_tensor_data(t);
  int64_t found = 0;
  double top = 0;
  for (int64_t i = 0; i < count; i++) {
    double x = px_scalar_float(
        px_scalar_load(px_tensor_dtype(t), data + (size_t)(first + i * step) * item));
    if (i == 0 || is_better(x, top, is_min)) found = i, top = x;
  }
  return found;
}
static void check_value(const px_tensor *t, int64_t from, const px_tensor *values, int64_t to) {
  size_t item = px_dtype_size(px_tensor_dtype(t));
  CHECK(!memcmp((const char *)px_tensor_data(t) + (size_t)from * item,
                (const char *)px_tensor_data(values) + (size_t)to * item, item));
}
static void check_dim(const px_tensor *t, const px_tensor *view, int dim, bool rows, bool is_min) {
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_SCOPED(px_tensor) alone = NULL;
  int64_t n = px_tensor_sizes(t)[0], width = px_tensor_sizes(t)[1], d = dim;
  OK((is_min ? px_min_dim : px_max_dim)(&values, &where, view, dim, false));
  OK((is_min ? px_argmin : px_argmax)(&alone, view, &d, false));
  const int64_t *at = px_tensor_data(where), *again = px_tensor_data(alone);
  for (int64_t i = 0; i < (rows ? n : width); i++) {
    int64_t first = rows ? i * width : i, step = rows ? 1 : width;
    int64_t wanted = extreme_index(t, first, step, rows ? width : n, is_min);
    CHECK_EQ(at[i], wanted);
    CHECK_EQ(again[i], wanted);
    check_value(t, first + wanted * step, values, i);
  }
}
static void check_matrix(px_dtype dtype, int64_t rows, int64_t columns, int64_t nan) {
  PX_SCOPED(px_tensor) t = numbers(dtype, rows, columns, nan);
  PX_SCOPED(px_tensor) transposed = NULL;
  OK(px_transpose(&transposed, t, 0, 1));
  for (int is_min = 0; is_min < 2; is_min++) {
    check_dim(t, t, 1, true, is_min);
    check_dim(t, t, 0, false, is_min);
    check_dim(t, transposed, 0, true, is_min);
    check_dim(t, transposed, 1, false, is_min);
  }
}
PX_TEST(max_and_min_return_the_first_of_equal_elements) {
  static const int64_t shapes[][2] = {{1, 1}, {3, 31}, {5, 70}, {2, 2100}, {70, 600}, {2100, 9}};
  for (px_dtype d = PX_BOOL; d <= PX_FLOAT64; d++)
    for (int i = 0; i < 6; i++)
      for (int64_t nan = 0; nan < 200; nan += 97) check_matrix(d, shapes[i][0], shapes[i][1], nan);
}

PX_TEST(argmax_of_all_elements_uses_logical_order) {
  PX_SCOPED(px_tensor) t = numbers(PX_FLOAT32, 40, 30, 0);
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) copy = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_SCOPED(px_tensor) wanted = NULL;
  OK(px_transpose(&transposed, t, 0, 1));
  OK(px_clone(&copy, transposed, "contiguous_format"));
  OK(px_argmax(&where, transposed, NULL, false));
  OK(px_argmax(&wanted, copy, NULL, false));
  CHECK_EQ(element(where, 0), element(wanted, 0));
  CHECK_EQ(element(where, 0), extreme_index(copy, 0, 1, 1200, false));
}

// The max of all elements by three methods.
static void check_long(const px_tensor *t, int64_t n) {
  PX_SCOPED(px_tensor) top = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_SCOPED(px_tensor) low = NULL;
  OK(px_argmax(&where, t, NULL, false));
  OK(px_max(&top, t));
  OK(px_min(&low, t));
  int64_t wanted = extreme_index(t, 0, 1, n, false);
  CHECK_EQ(element(where, 0), wanted);
  check_value(t, wanted, top, 0);
  check_value(t, extreme_index(t, 0, 1, n, true), low, 0);
}
PX_TEST(long_vectors_are_the_same_with_any_number_of_threads) {
  static const int64_t sizes[] = {131071, 131072, 300001}, nans[] = {0, 131000, 70000};
  int64_t threads = px_num_threads();
  for (int64_t count = 1; count < 4; count++) {
    OK(px_set_num_threads(count));
    for (int i = 0; i < 9; i++) {
      PX_SCOPED(px_tensor) t = numbers(PX_FLOAT32, 1, sizes[i / 3], nans[i % 3]);
      PX_SCOPED(px_tensor) whole = numbers(PX_INT64, 1, sizes[i / 3], 0);
      check_long(t, sizes[i / 3]);
      check_long(whole, sizes[i / 3]);
    }
  }
  OK(px_set_num_threads(threads));
}

// Norm, variance and logsumexp of all elements by a loop.
static void loop_sums(double out[3], const px_tensor *t, int64_t n) {
  double squares = 0, sum = 0, apart = 0, exps = 0;
  const float *at = px_tensor_data(t);
  for (int64_t i = 0; i < n; i++) {
    double x = (double)at[i];
    squares += x * x, sum += x, exps += exp(x - 69);
  }
  for (int64_t i = 0; i < n; i++) apart += pow((double)at[i] - sum / (double)n, 2);
  out[0] = sqrt(squares), out[1] = apart / (double)(n - 1), out[2] = log(exps) + 69;
}
PX_TEST(full_norms_and_variances_are_the_same_with_any_number_of_threads) {
  static const int64_t rows[] = {1, 700, 40000, 1};
  static const int64_t columns[] = {16385, 300, 7, 1100003}, counts[] = {1, 2, 7, 16};
  int64_t threads = px_num_threads(), both[] = {0, 1};
  for (int i = 0; i < 4; i++) {
    PX_SCOPED(px_tensor) t = numbers(PX_FLOAT32, rows[i], columns[i], 0);
    double wanted[3], first[3];
    loop_sums(wanted, t, rows[i] * columns[i]);
    for (int k = 0; k < 4; k++) {
      PX_SCOPED(px_tensor) norm = NULL;
      PX_SCOPED(px_tensor) var = NULL;
      PX_SCOPED(px_tensor) exps = NULL;
      OK(px_set_num_threads(counts[k]));
      OK(px_norm(&norm, t, px_int(2), NULL, 0, false, PX_DTYPE_NONE));
      OK(px_var(&var, t, both, 2, px_int(1), false));
      OK(px_logsumexp(&exps, t, both, 2, false));
      const double got[] = {element(norm, 0), element(var, 0), element(exps, 0)};
      for (int j = 0; j < 3; j++) {
        if (k == 0) first[j] = got[j];
        CHECK(got[j] == first[j]);
        CHECK_NEAR(got[j] / wanted[j], 1, 1e-6);
      }
    }
  }
  OK(px_set_num_threads(threads));
}

// Column counts that split into pieces of different widths, with tails. Thirds need rounding.
PX_TEST(sums_of_columns_are_the_same_with_any_number_of_threads) {
  static const int64_t columns[] = {8, 13, 33, 64, 250, 511, 1000, 1537}, counts[] = {1, 2, 7, 16};
  int64_t threads = px_num_threads(), down = 0;
  for (int i = 0; i < 8; i++) {
    int64_t rows = 80000 / columns[i], n = columns[i];
    PX_SCOPED(px_tensor) whole = numbers(PX_FLOAT32, rows, n, 0);
    PX_SCOPED(px_tensor) t = NULL;
    PX_SCOPED(px_tensor) first = NULL;
    OK(px_div_scalar(&t, whole, px_float(3)));
    for (int k = 0; k < 4; k++) {
      PX_SCOPED(px_tensor) sum = NULL;
      OK(px_set_num_threads(counts[k]));
      OK(px_sum(&sum, t, &down, 1, false, PX_DTYPE_NONE));
      if (k == 0) first = px_retain(sum);
      CHECK(!memcmp(px_tensor_data(sum), px_tensor_data(first), (size_t)n * sizeof(float)));
    }
    for (int64_t j = 0; j < n; j += n - 1) {
      double wanted = 0;
      for (int64_t r = 0; r < rows; r++) wanted += element(t, r * n + j);
      CHECK_NEAR(element(first, j) / wanted, 1, 1e-6);
    }
  }
  OK(px_set_num_threads(threads));
}

// int32 and uint8 in their dtype, bool as bytes: rows of any length, and columns.
PX_TEST(max_and_min_of_small_integers_match_int64) {
  static const px_dtype dtypes[] = {PX_INT32, PX_UINT8, PX_BOOL};
  static const int64_t shapes[][2] = {{3, 70000}, {70, 8}, {5000, 3}, {40, 33}, {9000, 9}};
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 5; k++)
      for (int64_t dim = 0; dim < 2; dim++)
        for (int is_min = 0; is_min < 2; is_min++) {
          PX_SCOPED(px_tensor) some = numbers(PX_INT32, shapes[k][0], shapes[k][1], 0);
          PX_SCOPED(px_tensor) low = NULL;
          PX_SCOPED(px_tensor) t = NULL;
          PX_SCOPED(px_tensor) wide = NULL;
          PX_SCOPED(px_tensor) found = NULL;
          PX_SCOPED(px_tensor) wanted = NULL;
          OK(px_sub_scalar(&low, some, px_int(i ? 0 : 2000), px_int(1)));
          OK(px_to(&t, low, dtypes[i], px_cpu(), false, false));
          OK(px_to(&wide, t, PX_INT64, px_cpu(), false, false));
          OK((is_min ? px_amin : px_amax)(&found, t, &dim, 1, false));
          OK((is_min ? px_amin : px_amax)(&wanted, wide, &dim, 1, false));
          for (int64_t n = 0; n < px_tensor_numel(wanted); n += 1 + n / 64)  // all of the first 64
            CHECK_EQ(element(found, n), element(wanted, n));
        }
}

// A reduction of size 1, as inside vmap, also runs by columns.
PX_TEST(sums_over_one_element_are_that_element) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT16, PX_INT64, PX_BOOL};
  int64_t middle = 1;
  for (int i = 0; i < 4; i++)
    for (int64_t columns = 3; columns < 1500; columns = columns * 5 + 1) {
      PX_SCOPED(px_tensor) t = numbers(dtypes[i], 300, columns, 0);
      PX_SCOPED(px_tensor) transposed = NULL;
      PX_SCOPED(px_tensor) more = NULL;
      PX_SCOPED(px_tensor) sum = NULL;
      OK(px_transpose(&transposed, t, 0, 1));
      OK(px_unsqueeze(&more, columns % 2 ? t : transposed, 1));
      OK(px_sum(&sum, more, &middle, 1, false, PX_DTYPE_NONE));
      PX_SCOPED(px_tensor) again = NULL;
      OK(px_transpose(&again, sum, 0, 1));
      PX_SCOPED(px_tensor) plain = NULL;
      OK(px_clone(&plain, columns % 2 ? sum : again, "contiguous_format"));
      for (int64_t k = 0; k < 300 * columns; k += 1 + columns / 3)
        CHECK_EQ(element(plain, k), element(t, k));
    }
}
