// SPDX-License-Identifier: Apache-2.0
// Sorting and selection: order, ties, NaN, and the related search and unique ops.
#include "kernels_help.h"

PX_TEST(sort_is_stable_and_puts_nan_last) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(5), VALUES(2, NAN, 1, 2, -1));
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  OK(px_sort(&values, &where, x, -1, false, false));
  ELEMENTS(where, 0, 4, 2, 0, 3, 1);
  CHECK(isnan(element(values, 4)));
}
PX_TEST(long_rows_are_sorted) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  OK(px_randperm(&x, 1000, NULL, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  OK(px_sort(&values, &where, x, 0, true, false));
  const int64_t *v = px_tensor_data(values);
  for (int64_t i = 0; i < 1000; i++) CHECK_EQ(v[i], 999 - i);
}
PX_TEST(topk_along_another_dimension) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(3, 2), VALUES(1, 6, 3, 4, 2, 5));
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  OK(px_topk(&values, &where, x, 2, 0, true, true));
  ELEMENTS(values, 0, 3, 6, 2, 5);
  ELEMENTS(where, 0, 1, 0, 2, 2);
  px_tensor *a = NULL, *b = NULL;
  FAILS(px_topk(&a, &b, x, 4, 0, true, true), PX_RUNTIME, "selected index k out of range");
}
PX_TEST(the_median_is_the_lower_one) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(4), VALUES(4, 1, 3, 2));
  PX_SCOPED(px_tensor) m = NULL;
  OK(px_median(&m, x));
  ELEMENTS(m, 0, 2);
}
PX_TEST(the_median_of_a_row_with_nan_is_its_first_nan) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(2, 3), VALUES(1, NAN, NAN, 3, 1, 2));
  PX_SCOPED(px_tensor) m = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  OK(px_median_dim(&m, &where, x, 1, false));
  CHECK(isnan(element(m, 0)));
  CHECK_EQ(element(m, 1), 2);
  ELEMENTS(where, 0, 1, 2);
  OK(px_median(&all, x));
  CHECK(isnan(element(all, 0)));
}
// ---- against a comparison sort

typedef struct ranked {
  px_scalar x;
  bool whole;
  int64_t at;
} ranked;
static bool is_before(const ranked *a, const ranked *b) {
  if (a->whole) return px_scalar_int(a->x) < px_scalar_int(b->x);
  double p = px_scalar_float(a->x), q = px_scalar_float(b->x);
  return p < q || (q != q && p == p);
}
static int up(const void *a, const void *b) {
  if (is_before(a, b) || is_before(b, a)) return is_before(a, b) ? -1 : 1;
  return ((const ranked *)a)->at < ((const ranked *)b)->at ? -1 : 1;
}
static int down(const void *a, const void *b) {
  if (is_before(a, b) || is_before(b, a)) return is_before(a, b) ? 1 : -1;
  return ((const ranked *)a)->at < ((const ranked *)b)->at ? -1 : 1;
}

// Many equal elements, NaN, zeros of both signs, and the ends of the range.
static px_tensor *assorted(px_dtype dtype, int64_t rows, int64_t columns, int64_t kinds) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, S(rows, columns), dtype, px_cpu()));
  char *at = px_tensor_data(t);
  uint64_t state = 7;
  const double odd[] = {NAN, -0.0, 0.0, INFINITY, -INFINITY};
  for (int64_t i = 0; i < rows * columns; i++, at += px_dtype_size(dtype)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    int64_t r = (int64_t)(state >> 33) % kinds - kinds / 2;
    px_scalar x = px_int(dtype == PX_INT64 ? (r == 3    ? INT64_MAX
                                              : r == -3 ? INT64_MIN
                                                        : r * ((int64_t)1 << 40))
                                           : r);
    if (px_dtype_is_float(dtype))
      x = px_float(state >> 60 == 0 ? odd[(state >> 40) % 5] : (double)r / 3);
    px_scalar_store(x, dtype, at);
  }
  return t;
}
static ranked *ranked_line(const px_tensor *t, int64_t row, bool descending) {
  int64_t n = px_tensor_sizes(t)[1];
  size_t item = px_dtype_size(px_tensor_dtype(t));
  ranked *all = malloc((size_t)n * sizeof *all);
  for (int64_t i = 0; i < n; i++)
    all[i] = (ranked){px_scalar_load(px_tensor_dtype(t), (const char *)px_tensor_data(t) +
                                                             (size_t)(row * n + i) * item),
                      !px_dtype_is_float(px_tensor_dtype(t)), i};
  qsort(all, (size_t)n, sizeof *all, descending ? down : up);
  return all;
}
// Line `row` of transposed results: checks indices, and values bit by bit.
static void check_line(const px_tensor *t, int64_t row, const ranked *wanted, int64_t count,
                       px_tensor *values, px_tensor *indices) {
  int64_t n = px_tensor_sizes(t)[1];
  size_t item = px_dtype_size(px_tensor_dtype(t));
  const char *from = px_tensor_data(t), *got = px_tensor_data(values);
  const int64_t *strides = px_tensor_strides(values), *places = px_tensor_strides(indices);
  for (int64_t i = 0; i < count; i++) {
    CHECK_EQ(((int64_t *)px_tensor_data(indices))[i * places[0] + row * places[1]], wanted[i].at);
    CHECK(!memcmp(got + (size_t)(i * strides[0] + row * strides[1]) * item,
                  from + (size_t)(row * n + wanted[i].at) * item, item));
  }
}
// sort, topk and kthvalue along the columns of the transpose of t.
static void check_all(px_tensor *t, bool descending, const int64_t *counts, int count) {
  PX_SCOPED(px_tensor) transposed = NULL;
  int64_t rows = px_tensor_sizes(t)[0], n = px_tensor_sizes(t)[1];
  OK(px_transpose(&transposed, t, 0, 1));
  for (int c = 0; c < count; c++) {
    int64_t k = counts[c] < n ? counts[c] : n;
    px_tensor *v = NULL, *at = NULL, *nth = NULL, *nth_at = NULL;
    if (k == n)
      OK(px_sort(&v, &at, transposed, 0, descending, true));
    else
      OK(px_topk(&v, &at, transposed, k, 0, descending, true));
    if (!descending) OK(px_kthvalue(&nth, &nth_at, transposed, k, 0, true));
    for (int64_t row = 0; row < rows; row++) {
      ranked *wanted = ranked_line(t, row, descending);
      check_line(t, row, wanted, k, v, at);
      if (!descending) check_line(t, row, wanted + k - 1, 1, nth, nth_at);
      free(wanted);
    }
    px_release(v), px_release(at), px_release(nth), px_release(nth_at);
  }
}
PX_TEST(every_dtype_and_length_matches_a_comparison_sort) {
  static const int64_t lengths[] = {1, 2, 5, 8, 9, 47, 48, 49, 300, 9001},
                       counts[] = {1, 7, 140, 6000, 9001};
  for (px_dtype d = PX_BOOL; d <= PX_FLOAT64; d++)
    for (int i = 0; i < 10; i++)
      for (int64_t kinds = 9; kinds < 100000; kinds *= 1000) {
        px_tensor *t = assorted(d, lengths[i] > 300 ? 2 : 5, lengths[i], kinds);
        check_all(t, false, counts, 5);
        check_all(t, true, counts, 5);
        px_release(t);
      }
}
PX_TEST(values_only_sorts_match_sorts_with_indices) {
  static const int64_t lengths[] = {1, 2, 8, 17, 300, 9001};
  for (px_dtype d = PX_BOOL; d <= PX_FLOAT64; d++)
    for (int i = 0; i < 6; i++)
      for (int64_t kinds = 9; kinds < 100000; kinds *= 1000) {
        PX_SCOPED(px_tensor) t = assorted(d, 3, lengths[i], kinds);
        PX_SCOPED(px_tensor) transposed = NULL;
        PX_SCOPED(px_tensor) alone = NULL;
        PX_SCOPED(px_tensor) values = NULL;
        PX_SCOPED(px_tensor) where = NULL;
        OK(px_transpose(&transposed, t, 0, 1));
        OK(px_msort(&alone, transposed));
        OK(px_sort(&values, &where, transposed, 0, false, true));
        CHECK(!memcmp(px_tensor_data(alone), px_tensor_data(values),
                      (size_t)(3 * lengths[i]) * px_dtype_size(d)));
      }
}
// Gives zeros and NaN both signs.
static void flip_signs(px_tensor *t) {
  size_t item = px_dtype_size(px_tensor_dtype(t));
  char *at = px_tensor_data(t);
  for (int64_t i = 0; i < px_tensor_numel(t); i += 3) at[(size_t)(i + 1) * item - 1] ^= (char)0x80;
}
static void check_rows(const char *level) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_INT32, PX_INT64};
  static const int64_t lengths[] = {1, 15, 16, 255, 1000, 1025, 2049, 5000, 70001};
  setenv("PHLOX_CPU", level, 1);
  for (int i = 0; i < 36; i++)
    for (int64_t kinds = 9; kinds < 100000000; kinds *= 1000) {
      int64_t n = lengths[i / 4];
      PX_SCOPED(px_tensor) t = assorted(dtypes[i % 4], 1, n, kinds);
      PX_SCOPED(px_tensor) line = NULL;
      PX_SCOPED(px_tensor) alone = NULL;
      PX_SCOPED(px_tensor) values = NULL;
      PX_SCOPED(px_tensor) where = NULL;
      flip_signs(t);
      OK(px_view(&line, t, SIZES(n), 1));
      OK(px_msort(&alone, line));
      OK(px_sort(&values, &where, line, 0, false, true));
      CHECK(!memcmp(px_tensor_data(alone), px_tensor_data(values),
                    (size_t)n * px_dtype_size(dtypes[i % 4])));
    }
}
PX_TEST(values_only_row_sorts_match_with_avx512) { check_rows("avx512"); }
PX_TEST(values_only_row_sorts_match_with_avx2) { check_rows("avx2"); }
PX_TEST(values_only_row_sorts_match_without_vectors) { check_rows("base"); }
// Columns, of which several are sorted at a time.
PX_TEST(values_only_column_sorts_match_sorts_with_indices) {
  static const int64_t lengths[] = {1, 5, 16, 100, 2000};
  for (px_dtype d = PX_BOOL; d <= PX_FLOAT64; d++)
    for (int i = 0; i < 5; i++) {
      PX_SCOPED(px_tensor) t = assorted(d, lengths[i], 2 * 37, 5000);
      PX_SCOPED(px_tensor) halves = NULL;
      PX_SCOPED(px_tensor) alone = NULL;
      PX_SCOPED(px_tensor) values = NULL;
      PX_SCOPED(px_tensor) where = NULL;
      OK(px_view(&halves, t, SIZES(lengths[i], 2, 37), 3));
      OK(px_msort(&alone, halves));
      OK(px_sort(&values, &where, halves, 0, false, true));
      CHECK(!memcmp(px_tensor_data(alone), px_tensor_data(values),
                    (size_t)(74 * lengths[i]) * px_dtype_size(d)));
    }
}
// Inputs with bad pivots, and inputs too wide for packed keys: clusters of close numbers, 2^50
// apart.
static int64_t patterned(int pattern, int64_t i, int64_t n) {
  int64_t mixed = (int64_t)((uint64_t)i * 0x9e3779b97f4a7c15u >> 40);
  switch (pattern) {
    case 0:
      return i;
    case 1:
      return i < n / 2 ? i : n - i;
    case 2:
      return (i * 64 / n) % 2 ? mixed : INT64_MIN;
    case 3:
      return (int64_t)((uint64_t)1 << (mixed % 64));
    case 4:
      return (mixed % 3 - 1) * ((int64_t)1 << 62) + (mixed >> 4) % 5000;
    default:
      return (mixed % 1000 - 500) * ((int64_t)1 << 50) + (mixed >> 12) % 3;
  }
}
PX_TEST(adversarial_patterns_are_sorted) {
  enum { N = 70000, PATTERNS = 6 };
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) alone = NULL;
  OK(px_tensor_empty(&t, S(PATTERNS, N), PX_INT64, px_cpu()));
  int64_t *at = px_tensor_data(t);
  for (int p = 0; p < PATTERNS; p++)
    for (int64_t i = 0; i < N; i++) at[p * N + i] = patterned(p, i, N);
  const int64_t all = N;
  check_all(t, false, &all, 1);
  check_all(t, true, &all, 1);
  OK(px_transpose(&transposed, t, 0, 1));
  OK(px_msort(&alone, transposed));
  const int64_t *got = px_tensor_data(alone);
  for (int p = 0; p < PATTERNS; p++) {
    ranked *wanted = ranked_line(t, p, false);
    for (int64_t i = 0; i < N; i++) CHECK_EQ(got[p * N + i], px_scalar_int(wanted[i].x));
    free(wanted);
  }
}
PX_TEST(topk_of_sorted_rows) {
  for (int descending = 0; descending < 2; descending++) {
    PX_SCOPED(px_tensor) x = NULL;
    PX_SCOPED(px_tensor) values = NULL;
    PX_SCOPED(px_tensor) where = NULL;
    OK(px_arange(&x, px_int(0), px_int(5000), px_int(1), PX_FLOAT32, PX_DEVICE_NONE, false, false));
    OK(px_topk(&values, &where, x, 3, 0, descending, true));
    if (descending)
      ELEMENTS(where, 0, 4999, 4998, 4997);
    else
      ELEMENTS(where, 0, 0, 1, 2);
  }
}
// NaN is the max.
static bool is_less(double a, double b) { return a < b || (b != b && a == a); }
static void check_search(px_dtype dtype, int64_t size, int64_t values, bool right) {
  PX_SCOPED(px_tensor) x = pattern(dtype, S(2, size));
  PX_SCOPED(px_tensor) v = pattern(dtype, S(2, values));
  PX_SCOPED(px_tensor) lines = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_SCOPED(px_tensor) found = NULL;
  if (size && dtype == PX_FLOAT32) ((float *)px_tensor_data(x))[size / 2] = NAN;
  if (values && dtype == PX_FLOAT32) ((float *)px_tensor_data(v))[values / 2] = -NAN;
  OK(px_sort(&lines, &where, x, 1, false, false));
  OK(px_searchsorted(&found, lines, v, false, right, NULL, NULL));
  for (int64_t i = 0; i < 2 * values; i++) {
    int64_t before = 0;
    for (int64_t j = i / values * size; j < (i / values + 1) * size; j++)
      before += right ? !is_less(element(v, i), element(lines, j))
                      : is_less(element(lines, j), element(v, i));
    CHECK_EQ((int64_t)element(found, i), before);
  }
}
PX_TEST(searchsorted_in_rows_of_each_length) {
  for (int64_t size = 0; size < 35; size += size < 9 ? 1 : 5)
    for (int64_t values = 1; values < 40; values += 6)
      for (int right = 0; right < 2; right++) {
        check_search(PX_FLOAT32, size, values, right);
        check_search(PX_FLOAT64, size, values, right);
        check_search(PX_INT64, size, values, right);
      }
}
PX_TEST(topk_of_zero_or_empty) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(2, 3), VALUES(1, 2, 3, 4, 5, 6));
  PX_SCOPED(px_tensor) empty = NULL;
  px_tensor *values = NULL, *where = NULL;
  OK(px_topk(&values, &where, x, 0, 0, true, true));
  CHECK_EQ(px_tensor_sizes(values)[0], 0);
  CHECK_EQ(px_tensor_sizes(where)[1], 3);
  px_release(values), px_release(where);
  OK(px_tensor_empty(&empty, S(3, 0), PX_FLOAT32, px_cpu()));
  OK(px_sort(&values, &where, empty, 1, false, false));
  CHECK_EQ(px_tensor_numel(where), 0);
  px_release(values), px_release(where);
}

static void check_same(const px_tensor *a, const px_tensor *b) {
  CHECK_EQ(px_tensor_numel(a), px_tensor_numel(b));
  CHECK_EQ(px_tensor_dtype(a), px_tensor_dtype(b));
  CHECK(!memcmp(px_tensor_data(a), px_tensor_data(b),
                (size_t)px_tensor_numel(a) * px_dtype_size(px_tensor_dtype(a))));
}
// With an inverse it sorts all elements; without, it may count them.
PX_TEST(unique_is_the_same_with_and_without_an_inverse) {
  static const int64_t lengths[] = {1, 300, 140000}, kinds[] = {2, 900, 100000};
  for (px_dtype d = PX_BOOL; d <= PX_FLOAT64; d++)
    for (int i = 0; i < 9; i++) {
      PX_SCOPED(px_tensor) t = assorted(d, 1, lengths[i / 3], kinds[i % 3]);
      PX_SCOPED(px_tensor) transposed = NULL;
      px_tensor *with[3] = {NULL}, *without[3] = {NULL};
      OK(px_transpose(&transposed, t, 0, 1));
      OK(px_unique(&with[0], &with[1], &with[2], transposed, true, true, true));
      OK(px_unique(&without[0], &without[1], &without[2], transposed, true, false, true));
      check_same(with[0], without[0]);
      check_same(with[2], without[2]);
      for (int k = 0; k < 3; k++) px_release(with[k]), px_release(without[k]);
    }
}
// Without counts, unique numbers are compacted by vectors. The lengths leave tails.
PX_TEST(unique_is_the_same_with_and_without_counts) {
  static const int64_t lengths[] = {5000, 5007, 9001, 140015};
  for (px_dtype d = PX_BOOL; d <= PX_FLOAT64; d++)
    for (int i = 0; i < 4; i++) {
      PX_SCOPED(px_tensor) t = assorted(d, 1, lengths[i], i % 2 ? 1000000 : 9000);
      px_tensor *with[3] = {NULL}, *without[3] = {NULL};
      OK(px_unique(&with[0], &with[1], &with[2], t, true, false, true));
      OK(px_unique(&without[0], &without[1], &without[2], t, true, false, false));
      check_same(with[0], without[0]);
      for (int k = 0; k < 3; k++) px_release(with[k]), px_release(without[k]);
    }
}
PX_TEST(unique_without_nan_counts_few_distinct_numbers) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) inverse = NULL;
  PX_SCOPED(px_tensor) counts = NULL;
  OK(px_tensor_empty(&x, S(200000), PX_FLOAT32, px_cpu()));
  float *at = px_tensor_data(x);
  for (int64_t i = 0; i < 200000; i++) at[i] = i % 5 == 4 ? -0.0f : (float)(i % 5) - 1;
  at[0] = 0;
  OK(px_unique(&values, &inverse, &counts, x, true, false, true));
  ELEMENTS(values, 0, -1, 0, 1, 2);
  ELEMENTS(counts, 0, 39999, 80001, 40000, 40000);
  CHECK(!signbit(element(values, 1)));  // the first of the zeros
}
PX_TEST(gradients_of_topk_scatter_to_its_indices) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(3), VALUES(3, 1, 2));
  px_tensor *values = NULL, *where = NULL;
  PX_SCOPED(px_tensor) g = made(PX_FLOAT32, S(2), VALUES(10, 20));
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_topk(&values, &where, x, 2, 0, true, true));
  OK(px_backward(1, &values, &g, false, false));
  ELEMENTS(px_tensor_grad(x), 0, 10, 0, 20);
  px_release(values);
  px_release(where);
}
