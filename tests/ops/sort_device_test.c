// SPDX-License-Identifier: Apache-2.0
// Device sorts and related ops against the CPU: topk, unique, masked_select and cumulative sums.
// Lengths are on both sides of each algorithm's threshold.
#include "device_help.h"
#include "hidden.h"

static const px_dtype DTYPES[] = {PX_BOOL,   PX_UINT8,   PX_INT8,     PX_INT16,   PX_INT32,
                                  PX_INT64,  PX_FLOAT16, PX_BFLOAT16, PX_FLOAT32, PX_FLOAT64,
                                  PX_UINT16, PX_UINT32,  PX_UINT64};
// Unsigned dtypes beyond uint8 are only sorted.
enum {
  SORTED_COUNT = sizeof DTYPES / sizeof *DTYPES,
  DTYPE_COUNT = SORTED_COUNT - 3,
  INTEGERS = 6
};

typedef enum order { MIXED, RISING, FALLING, EQUAL } order;
static double element_of(order how, px_dtype dtype, int64_t i) {
  static const double special[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0};
  uint64_t x = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u >> 20;
  if (how != MIXED) return how == EQUAL ? 1 : (double)(how == RISING ? i % 100000 : -(i % 100000));
  if (px_dtype_is_float(dtype) && x % 16 < 6) return special[x % 16];
  return (double)(x >> 8 & 4095) - 2048;
}
static px_tensor *mixed(order how, px_dtype dtype, int ndim, const int64_t *sizes) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, ndim, sizes, dtype, px_cpu()));
  char *at = px_tensor_data(t);
  bool whole = dtype == PX_UINT8, wide = dtype >= PX_UINT16 && dtype <= PX_UINT64;
  for (int64_t i = 0; i < px_tensor_numel(t); i++) {
    double x = element_of(how, dtype, i);
    px_scalar_store(whole  ? px_int((int64_t)x & 255)
                    : wide ? px_int((int64_t)x)
                           : px_float(x),
                    dtype, at + (size_t)i * px_dtype_size(dtype));
  }
  return t;
}
static void check_same_take(const char *what, px_tensor *want, px_tensor *got) {
  bool good = agrees(what, want, got, 0);
  px_release(want), px_release(got);
  CHECK(good);
}

static void check_sort(const px_tensor *a, int64_t dim, bool down) {
  px_tensor *b = to_device(a), *v = NULL, *w = NULL, *vi = NULL, *wi = NULL;
  OK(px_sort(&v, &vi, a, dim, down, true));
  OK(px_sort(&w, &wi, b, dim, down, true));
  check_same_take("values", v, w);
  check_same_take("indices", vi, wi);
  px_release(b);
}
PX_TEST(sorts_of_every_dtype_and_length) {
  static const int64_t lengths[] = {1, 5, 64, 256, 257, 3000, 4097, 8192, 8193, 30011};
  arrange();
  for (int d = 0; d < SORTED_COUNT; d++)
    for (int i = 0; i < 10; i++) {
      px_tensor *t = mixed(MIXED, DTYPES[d], S(lengths[i] < 300 ? 37 : 2, lengths[i]));
      check_sort(t, 1, (d + i) % 2);
      px_release(t);
    }
}
PX_TEST(sorts_along_any_dimension_and_layout) {
  arrange();
  for (int64_t dim = 0; dim < 3; dim++) {
    px_tensor *t = mixed(MIXED, PX_FLOAT32, S(7, 300, 9)), *view = NULL, *part = NULL;
    OK(px_transpose(&view, t, 0, 2));
    OK(px_narrow(&part, view, 1, 3, 290));
    check_sort(t, dim, false);
    check_sort(part, dim, true);
    px_release(t), px_release(view), px_release(part);
  }
  px_tensor *one = mixed(MIXED, PX_FLOAT32, 0, NULL), *none = mixed(MIXED, PX_FLOAT32, S(3, 0));
  check_sort(one, 0, false);
  check_sort(none, 1, false);
  check_sort(none, 0, true);
  px_release(one), px_release(none);
}
PX_TEST(sorts_of_sorted_and_constant_rows) {
  static const int64_t lengths[] = {200, 5000, 50021};
  arrange();
  for (order how = RISING; how <= EQUAL; how++)
    for (int i = 0; i < 3; i++) {
      px_tensor *t = mixed(how, PX_INT32, S(2, lengths[i]));
      check_sort(t, 1, false);
      check_sort(t, 1, true);
      px_release(t);
    }
}

// topk returns the first elements of the stable sort.
static void check_topk(const px_tensor *a, int64_t k, bool largest) {
  px_tensor *b = to_device(a), *v = NULL, *vi = NULL, *w = NULL, *wi = NULL, *x = NULL, *xi = NULL;
  OK(px_sort(&v, &vi, a, 1, largest, true));
  OK(px_narrow(&x, v, 1, 0, k));
  OK(px_narrow(&xi, vi, 1, 0, k));
  OK(px_topk(&w, &wi, b, k, 1, largest, true));
  check_same_take("the first", x, w);
  check_same_take("their places", xi, wi);
  w = wi = x = xi = NULL;
  if (!largest) {
    OK(px_narrow(&x, v, 1, k - 1, 1));
    OK(px_narrow(&xi, vi, 1, k - 1, 1));
    OK(px_kthvalue(&w, &wi, b, k, 1, true));
    check_same_take("the last of them", x, w);
    check_same_take("its place", xi, wi);
  }
  px_release(b), px_release(v), px_release(vi);
}
static void check_topk_range(int begin, int end) {
  static const int64_t lengths[] = {5, 300, 3000, 20011}, counts[] = {1, 5, 60, 1000, 1500};
  arrange();
  for (int d = begin; d < end; d++)
    for (int i = 0; i < 4; i++)
      for (int k = 0; k < 5 && counts[k] <= lengths[i]; k++) {
        px_tensor *t = mixed(MIXED, DTYPES[d], S(2, lengths[i]));
        check_topk(t, counts[k], (d + i + k) % 2);
        px_release(t);
      }
}
PX_TEST(topk_of_integers_of_every_length) { check_topk_range(0, INTEGERS); }
PX_TEST(topk_of_floats_of_every_length) { check_topk_range(INTEGERS, DTYPE_COUNT); }
PX_TEST(topk_of_sorted_and_constant_rows) {
  arrange();
  for (order how = RISING; how <= EQUAL; how++)
    for (int64_t k = 1; k < 2000; k *= 10) {
      px_tensor *t = mixed(how, PX_FLOAT32, S(2, 50021));
      check_topk(t, k, false);
      check_topk(t, k, true);
      px_release(t);
    }
}

static void check_unique(const px_tensor *a, bool wants_counts) {
  px_tensor *b = to_device(a), *want[3] = {0}, *got[3] = {0};
  OK(px_unique(&want[0], &want[1], &want[2], a, true, false, wants_counts));
  OK(px_unique(&got[0], &got[1], &got[2], b, true, false, wants_counts));
  for (int i = 0; i < 3; i++) check_same_take("unique", want[i], got[i]);
  px_release(b);
}
static void check_unique_range(int begin, int end) {
  static const int64_t lengths[] = {1, 200, 8192, 8193, 30011};
  arrange();
  for (int d = begin; d < end; d++)
    for (int i = 0; i < 5; i++)
      for (order how = MIXED; how <= EQUAL; how += EQUAL) {
        px_tensor *t = mixed(how, DTYPES[d], S(lengths[i]));
        check_unique(t, (d + i) % 2);
        px_release(t);
      }
}
PX_TEST(unique_integers_with_counts) { check_unique_range(0, INTEGERS); }
PX_TEST(unique_floats_with_counts) { check_unique_range(INTEGERS, DTYPE_COUNT); }

static px_tensor *mask_of(int64_t rows, int64_t columns) {
  px_tensor *numbers = mixed(MIXED, PX_INT32, S(rows, columns)), *mask = NULL;
  OK(px_lt_scalar(&mask, numbers, px_int(-500)));
  px_release(numbers);
  return mask;
}
PX_TEST(masked_select_of_any_length) {
  static const int64_t lengths[] = {1, 8191, 8193, 100003};
  arrange();
  for (int d = 0; d < DTYPE_COUNT; d++)
    for (int i = 0; i < 4; i++) {
      px_tensor *a = mixed(MIXED, DTYPES[d], S(3, lengths[i])), *b = to_device(a);
      px_tensor *mask = mask_of(3, lengths[i]), *device_mask = to_device(mask);
      px_tensor *part = NULL, *other = NULL, *x = NULL, *y = NULL;
      OK(px_masked_select(&x, a, mask));
      OK(px_masked_select(&y, b, device_mask));
      check_same_take("selected", x, y);
      x = y = NULL;
      OK(px_narrow(&part, mask, 0, 1, 1));  // broadcast and unaligned
      OK(px_narrow(&other, device_mask, 0, 1, 1));
      OK(px_masked_select(&x, a, part));
      OK(px_masked_select(&y, b, other));
      check_same_take("selected by one row", x, y);
      px_release(a), px_release(b), px_release(mask), px_release(device_mask);
      px_release(part), px_release(other);
    }
}
PX_TEST(nonzero_of_every_dtype) {
  arrange();
  for (int d = 0; d < DTYPE_COUNT; d++) {
    px_tensor *a = mixed(MIXED, DTYPES[d], S(3, 70001)), *mask = mask_of(3, 70001), *t = NULL;
    OK(px_mul(&t, a, mask));
    px_tensor *b = to_device(t), *x = NULL, *y = NULL;
    OK(px_nonzero(&x, t));
    OK(px_nonzero(&y, b));
    check_same_take("places", x, y);
    px_release(a), px_release(b), px_release(t), px_release(mask);
  }
}

static void check_sums(const px_tensor *a, int64_t dim) {
  px_tensor *b = to_device(a), *want[2] = {0}, *got[2] = {0};
  OK(px_cumsum(&want[0], a, dim, PX_DTYPE_NONE));
  OK(px_cumsum(&got[0], b, dim, PX_DTYPE_NONE));
  OK(HIDDEN(cumsum_backward, (&want[1]), PX_T(a), PX_I(dim)));
  OK(HIDDEN(cumsum_backward, (&got[1]), PX_T(b), PX_I(dim)));
  check_same_take("running sums", want[0], got[0]);
  check_same_take("running sums from the end", want[1], got[1]);
  px_release(b);
}
// Tile counts for all three levels, and rows of one warp. Integers are exact in any order.
PX_TEST(cumulative_sums_of_long_rows) {
  static const int64_t shapes[][2] = {{1, 4097},    {3, 4096 * 33 + 5}, {1, 4096 * 1027 + 1},
                                      {5000, 1030}, {70, 1024},         {9, 3},
                                      {40009, 3}};
  static const px_dtype dtypes[] = {PX_FLOAT64, PX_INT64};
  arrange();
  for (int i = 0; i < 7; i++)
    for (int d = 0; d < 2; d++) {
      px_tensor *a = pattern(dtypes[d], 2, shapes[i]);
      check_sums(a, shapes[i][1] == 3 ? 0 : 1);  // strided, and contiguous
      px_release(a);
    }
}
// A warp handles several rows and starts at any element, or it handles one. With 1009 rows, the
// last warp has fewer.
PX_TEST(cumulative_sums_of_short_rows) {
  static const int64_t lengths[] = {1, 2, 3, 7, 16, 31, 100, 128, 129, 257, 341, 512, 1000, 1024};
  static const px_dtype dtypes[] = {PX_FLOAT64, PX_INT64, PX_FLOAT32, PX_FLOAT16, PX_BFLOAT16};
  arrange();
  for (int i = 0; i < 14; i++)
    for (int d = 0; d < 5; d++) {
      px_tensor *a = pattern(dtypes[d], S(1009, lengths[i]));
      check_sums(a, 1);
      px_release(a);
    }
  px_tensor *whole = pattern(PX_INT64, S(1009, 5)), *a = NULL, *x = NULL, *y = NULL;
  OK(px_bitwise_or_scalar(&a, whole, px_int(1)));  // no zeros, so that products do not vanish
  px_tensor *b = to_device(a);
  OK(px_cumprod(&x, a, 1, PX_DTYPE_NONE));
  OK(px_cumprod(&y, b, 1, PX_DTYPE_NONE));
  check_same_take("running products", x, y);
  px_release(whole), px_release(a), px_release(b);
}
// Short and long rows, columns, NaN, and equal numbers.
PX_TEST(cummax_and_cummin_match_the_cpu) {
  static const px_dtype dtypes[] = {PX_BOOL,    PX_UINT8,    PX_INT64,   PX_INT16,
                                    PX_FLOAT16, PX_BFLOAT16, PX_FLOAT32, PX_FLOAT64};
  static const int64_t shapes[][2] = {{300, 1}, {40, 31}, {7, 33}, {2, 5003}, {1, 64}};
  arrange();
  for (int k = 0; k < 8; k++)
    for (int i = 0; i < 5; i++) {
      px_tensor *a = mixed(MIXED, dtypes[k], 2, shapes[i]), *b = to_device(a);
      for (int way = 0; way < 4; way++) {
        px_tensor *want[2] = {0}, *got[2] = {0};
        px_status (*op)(px_tensor **, px_tensor **, const px_tensor *, int64_t) =
            way & 1 ? px_cummin : px_cummax;
        OK(op(&want[0], &want[1], a, way >> 1));
        OK(op(&got[0], &got[1], b, way >> 1));
        check_same_take("running extremes", want[0], got[0]);
        check_same_take("their places", want[1], got[1]);
      }
      px_release(a), px_release(b);
    }
}
PX_TEST(cumulative_sums_are_reproducible) {
  static const double some = 0.1, great = 1e9, small = -1e-9;
  arrange();
  px_tensor *here = mixed(MIXED, PX_FLOAT64, S(3000011)), *a = to_device_take(here), *b = NULL;
  OK(px_nan_to_num(&b, a, &some, &great, &small));
  px_tensor *first = NULL;
  OK(px_cumsum(&first, b, 0, PX_DTYPE_NONE));
  for (int i = 0; i < 5; i++) {
    px_tensor *again = NULL;
    OK(px_cumsum(&again, b, 0, PX_DTYPE_NONE));
    check_same_take("again", px_retain(first), again);
  }
  px_release(a), px_release(b), px_release(first);
}
