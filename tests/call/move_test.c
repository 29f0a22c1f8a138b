// SPDX-License-Identifier: Apache-2.0
// Copies, rolls, flips, triangles and ranges against loops over single elements: all dtypes,
// strides of both operands, and sizes above the threading threshold.
#include "test.h"

#include "ops_help.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__}), (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8)
#define FLAT(n) SIZES(n)
enum { ORDERS = 6 };
static const int64_t orders[ORDERS][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

// Returns a view of `sizes`. Its memory has the dimensions in `order` and a stride of `step`
// elements in the last one. Values are small, with a period coprime to all sizes.
static px_tensor *cube(px_dtype dtype, const int64_t *sizes, const int64_t *order, int64_t step,
                       int first) {
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) memory = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  int64_t n = sizes[0] * sizes[1] * sizes[2] * step, own[3], back[3], *data = NULL;
  data = malloc((size_t)n * sizeof *data);
  for (int64_t i = 0; i < n; i++) data[i] = (first + i * 13 / 11) % 101;
  OK(px_tensor_from_data(&flat, data, 1, &n, PX_INT64, px_cpu()));
  free(data);
  for (int d = 0; d < 3; d++) own[d] = sizes[order[d]], back[order[d]] = d;
  OK(px_to(&memory, flat, dtype, PX_DEVICE_NONE, false, false));
  px_tensor *view = NULL, *out = NULL;
  OK(px_view(&view, memory, SIZES(own[0], own[1], own[2] * step)));
  OK(px_slice(&part, view, 2, NULL, NULL, step));
  px_release(view);
  OK(px_permute(&out, part, back, 3));
  return out;
}

static const char *at(const px_tensor *t, int64_t i, int64_t j, int64_t k) {
  const int64_t *s = px_tensor_strides(t);
  int64_t offset = i * s[0] + j * s[1] + k * s[2];
  return (const char *)px_tensor_data(t) + offset * (int64_t)px_dtype_size(px_tensor_dtype(t));
}
static void check_element(const px_tensor *t, const char *a, const char *b, const char *what) {
  if (!memcmp(a, b, px_dtype_size(px_tensor_dtype(t)))) return;
  fprintf(stderr, "%s of %s: an element differs\n", what, px_dtype_name(px_tensor_dtype(t)));
  exit(1);
}
// Checks t[i, j, k] against from[i, j, k], reversed along the dimensions in `back`.
static void is_copy(const px_tensor *t, const px_tensor *from, int back, const char *what) {
  const int64_t *n = px_tensor_sizes(t);
  for (int64_t i = 0; i < n[0]; i++)
    for (int64_t j = 0; j < n[1]; j++)
      for (int64_t k = 0; k < n[2]; k++)
        check_element(t, at(t, i, j, k),
                      at(from, back & 1 ? n[0] - 1 - i : i, back & 2 ? n[1] - 1 - j : j,
                         back & 4 ? n[2] - 1 - k : k),
                      what);
}

// Both are row-major.
static bool equal(const px_tensor *a, const px_tensor *b) {
  size_t bytes = (size_t)px_tensor_numel(a) * px_dtype_size(px_tensor_dtype(a));
  return !memcmp(px_tensor_data(a), px_tensor_data(b), bytes);
}

static void copy_between(px_dtype dtype, const int64_t *sizes, int a, int b, int64_t step) {
  PX_SCOPED(px_tensor) to = cube(dtype, sizes, orders[a], 1, 0);
  PX_SCOPED(px_tensor) from = cube(dtype, sizes, orders[b], step, 5);
  PX_SCOPED(px_tensor) spaced = cube(dtype, sizes, orders[a], 2, 0);
  PX_SCOPED(px_tensor) gaps = NULL;
  PX_SCOPED(px_tensor) were = NULL;
  PX_SCOPED(px_tensor) now = NULL;
  PX_SCOPED(px_tensor) flipped = NULL;
  OK(px_copy_(to, from, false));
  is_copy(to, from, 0, "copy");
  OK(px_as_strided(&gaps, spaced, FLAT(px_tensor_numel(spaced)), FLAT(2), &(int64_t){1}));
  OK(px_contiguous(&were, gaps));
  OK(px_copy_(spaced, from, false));
  is_copy(spaced, from, 0, "copy with gaps");
  OK(px_flip(&flipped, from, SIZES(0, 2)));
  is_copy(flipped, from, 5, "flip");
  OK(px_contiguous(&now, gaps));
  CHECK(equal(now, were));
}

PX_TEST(copies_between_all_dimension_orders) {
  for (int dtype = 0; dtype < PX_DTYPE_COUNT; dtype++)
    for (int a = 0; a < ORDERS; a++)
      for (int b = 0; b < ORDERS; b++)
        copy_between((px_dtype)dtype, (const int64_t[]){3, 37, 5}, a, b, 1 + (a + b) % 2);
  OK(px_set_num_threads(3));
  for (int b = 0; b < ORDERS; b++) {
    copy_between(PX_FLOAT32, (const int64_t[]){35, 41, 33}, 0, b, 1);
    copy_between(PX_FLOAT64, (const int64_t[]){2, 300, 70}, 0, b, 1);
    copy_between(PX_UINT8, (const int64_t[]){300, 2, 70}, 3, b, 2);
    copy_between(PX_INT16, (const int64_t[]){1, 1, 70000}, 0, b, 1);
  }
}

PX_TEST(one_element_broadcasts) {
  OK(px_set_num_threads(3));
  for (int dtype = 0; dtype < PX_DTYPE_COUNT; dtype++) {
    PX_SCOPED(px_tensor) one = cube((px_dtype)dtype, (const int64_t[]){40, 1, 1}, orders[0], 1, 3);
    PX_SCOPED(px_tensor) wide = NULL;
    PX_SCOPED(px_tensor) full = NULL;
    OK(px_expand(&wide, one, SIZES(40, 30, 50)));
    OK(px_contiguous(&full, wide));
    is_copy(full, wide, 0, "expanded");
  }
}

PX_TEST(roll_of_long_rows) {
  PX_SCOPED(px_tensor) x = cube(PX_FLOAT32, (const int64_t[]){1, 9, 1003}, orders[0], 1, 0);
  for (int64_t shift = -9; shift < 40; shift += 7) {
    PX_SCOPED(px_tensor) y = NULL;
    OK(px_roll(&y, x, &shift, 1, SIZES(2)));
    for (int64_t j = 0; j < 9; j++)
      for (int64_t k = 0; k < 1003; k++)
        check_element(x, at(y, 0, j, (k + shift + 1003) % 1003), at(x, 0, j, k), "roll");
  }
}

// ---- triangles

static void is_triangle(const px_tensor *t, const px_tensor *from, int64_t diagonal, bool lower) {
  static const char zeros[8];
  const int64_t *n = px_tensor_sizes(t);
  for (int64_t i = 0; i < n[0]; i++)
    for (int64_t j = 0; j < n[1]; j++)
      for (int64_t k = 0; k < n[2]; k++) {
        bool kept = lower ? k - j <= diagonal : k - j >= diagonal;
        check_element(t, at(t, i, j, k), kept ? at(from, i, j, k) : zeros, lower ? "tril" : "triu");
      }
}

static void check_triangles(px_dtype dtype, const int64_t *sizes, int order, int64_t step,
                            int64_t diagonal) {
  PX_SCOPED(px_tensor) x = cube(dtype, sizes, orders[order], step, 1);
  PX_SCOPED(px_tensor) was = NULL;
  PX_SCOPED(px_tensor) low = NULL;
  PX_SCOPED(px_tensor) high = NULL;
  OK(px_tril(&low, x, diagonal));
  is_triangle(low, x, diagonal, true);
  OK(px_triu(&high, x, diagonal));
  is_triangle(high, x, diagonal, false);
  OK(px_clone(&was, x, NULL));
  OK(px_tril_(x, diagonal));
  is_triangle(x, was, diagonal, true);
}

PX_TEST(tril_and_triu_of_any_strides_and_diagonals) {
  const int64_t diagonals[] = {INT64_MIN, -100, -7, -2, 0, 1, 4, 8, 100, INT64_MAX};
  for (size_t i = 0; i < sizeof diagonals / sizeof *diagonals; i++) {
    for (int dtype = 0; dtype < PX_DTYPE_COMPUTED; dtype++)
      check_triangles((px_dtype)dtype, (const int64_t[]){2, 7, 5}, dtype % ORDERS, 1, diagonals[i]);
    for (int order = 0; order < ORDERS; order++)
      check_triangles(PX_FLOAT32, (const int64_t[]){3, 4, 8}, order, 2, diagonals[i]);
  }
  OK(px_set_num_threads(3));
  check_triangles(PX_FLOAT32, (const int64_t[]){3, 210, 190}, 0, 1, -3);
  check_triangles(PX_FLOAT64, (const int64_t[]){1, 190, 210}, 1, 1, 5);
}

// ---- ranges

static void check_range(px_dtype dtype, px_scalar start, px_scalar step, int64_t n) {
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) expected = NULL;
  PX_SCOPED(px_tensor) cast = NULL;
  double from = px_scalar_float(start), by = px_scalar_float(step);
  double *want = malloc((size_t)n * sizeof *want);
  for (int64_t i = 0; i < n; i++) want[i] = from + (double)i * by;
  OK(px_arange(&t, start, px_float(from + ((double)n - 0.5) * by), step, dtype, PX_DEVICE_NONE,
               false, false));
  CHECK_EQ(px_tensor_numel(t), n);
  OK(px_tensor_from_data(&expected, want, 1, &n, PX_FLOAT64, px_cpu()));
  OK(px_to(&cast, expected, dtype, PX_DEVICE_NONE, false, false));
  free(want);
  if (equal(t, cast)) return;
  fprintf(stderr, "arange of %s differs\n", px_dtype_name(dtype));
  exit(1);
}

PX_TEST(arange_of_every_dtype) {
  OK(px_set_num_threads(3));
  for (int dtype = PX_UINT8; dtype < PX_DTYPE_COMPUTED; dtype++) {
    check_range((px_dtype)dtype, px_int(3), px_int(2), 60);
    if (px_dtype_is_float((px_dtype)dtype))  // others have an integer step
      check_range((px_dtype)dtype, px_float(0.25), px_float(0.3), 300);
    check_range((px_dtype)dtype, px_int(100), px_int(-1), 100);
  }
  const px_dtype large[] = {PX_INT32, PX_INT64, PX_FLOAT32, PX_FLOAT64};
  for (int i = 0; i < 4; i++) {
    check_range(large[i], px_int(-5), px_int(3), 100000);
    if (px_dtype_is_float(large[i])) check_range(large[i], px_float(-5.5), px_float(0.01), 100000);
  }
}
