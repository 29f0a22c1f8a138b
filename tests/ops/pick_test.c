// SPDX-License-Identifier: Apache-2.0
// Indexing against loops over single elements: all dtypes, strides, broadcast and negative indices,
// and sizes above the threading threshold. Results are bitwise the same for any number of threads.
#include "test.h"

#include "ops_help.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__}), (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8)
enum { DENSE, TRANSPOSED, SPACED, SAME_ROWS, FORMS };

// A matrix of small integers in [0, below), not ordered by position.
static px_tensor *integers(int64_t rows, int64_t columns, int below, px_dtype dtype, int form) {
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) cast = NULL;
  PX_SCOPED(px_tensor) matrix = NULL;
  px_tensor *out = NULL;
  bool is_transposed = form == TRANSPOSED;
  int64_t r = form == SAME_ROWS ? 1 : is_transposed ? columns : rows;
  int64_t c = is_transposed ? rows : form == SPACED ? 2 * columns : columns, n = r * c;
  int64_t *data = malloc((size_t)n * sizeof *data);
  uint32_t state = 12345;
  for (int64_t i = 0; i < n; i++) {
    state = state * 1664525 + 1013904223;
    data[i] = (int64_t)((state >> 8) % (uint32_t)below);
  }
  OK(px_tensor_from_data(&flat, data, 1, &n, PX_INT64, px_cpu()));
  free(data);
  OK(px_to(&cast, flat, dtype, PX_DEVICE_NONE, false, false));
  OK(px_view(&matrix, cast, SIZES(r, c)));
  if (is_transposed)
    OK(px_t(&out, matrix));
  else if (form == SPACED)
    OK(px_slice(&out, matrix, 1, NULL, NULL, 2));
  else if (form == SAME_ROWS)
    OK(px_expand(&out, matrix, SIZES(rows, columns)));
  else
    out = px_retain(matrix);
  return out;
}

static double *elements(const px_tensor *t) {
  PX_SCOPED(px_tensor) wide = NULL;
  size_t bytes = (size_t)px_tensor_numel(t) * sizeof(double);
  double *data = malloc(bytes);
  OK(px_to(&wide, t, PX_FLOAT64, px_cpu(), false, false));
  OK(px_tensor_read(wide, data, bytes));
  return data;
}
// Compares the tensor with `wanted` and frees that.
static void check_equal(const px_tensor *t, double *wanted, const char *what) {
  double *have = elements(t);
  for (int64_t i = 0; i < px_tensor_numel(t); i++) {
    if (have[i] == wanted[i]) continue;
    fprintf(stderr, "%s, %s: element %lld is %g, wanted %g\n", what,
            px_dtype_name(px_tensor_dtype(t)), (long long)i, have[i], wanted[i]);
    exit(1);
  }
  free(have);
  free(wanted);
}
static double sum_of(double a, double b, px_dtype dtype) {
  return dtype == PX_BOOL ? a != 0 || b != 0 : a + b;
}

// ---- an index for each element

static void gather_and_scatter(px_dtype dtype, int form, int index_form, int dim, int64_t m,
                               int64_t n) {
  PX_SCOPED(px_tensor) x = integers(m, n, 5, dtype, form);
  PX_SCOPED(px_tensor) to = integers(m, n, 3, dtype, form == SAME_ROWS ? DENSE : form);
  PX_SCOPED(px_tensor) index = integers(m, n, (int)(dim ? n : m), PX_INT64, index_form);
  PX_SCOPED(px_tensor) got = NULL;
  double *from = elements(x), *at = elements(index), *sums = elements(to);
  double *picked = malloc((size_t)(m * n) * sizeof *picked);
  for (int64_t i = 0; i < m * n; i++) {
    int64_t offset = dim ? i / n * n + (int64_t)at[i] : (int64_t)at[i] * n + i % n;
    picked[i] = from[offset];
    sums[offset] = sum_of(sums[offset], from[i], dtype);
  }
  OK(px_gather(&got, x, dim, index, false));
  check_equal(got, picked, "gather");
  OK(px_scatter_add_(to, dim, index, x));
  check_equal(to, sums, "scatter_add_");
  free(from);
  free(at);
}

PX_TEST(gather_and_scatter_of_any_layout) {
  for (int dtype = 0; dtype < PX_DTYPE_COMPUTED; dtype++)
    for (int form = 0; form < FORMS; form++)
      for (int index_form = 0; index_form < FORMS; index_form++)
        for (int dim = 0; dim < 2; dim++)
          gather_and_scatter((px_dtype)dtype, form, index_form, dim, 12, 9);
  OK(px_set_num_threads(3));
  for (int form = 0; form < FORMS; form++) {
    gather_and_scatter(PX_FLOAT32, form, DENSE, 0, 310, 230);
    gather_and_scatter(PX_INT16, TRANSPOSED, form, 1, 310, 230);
  }
}

// ---- index tensors

// x[i, j] with a column of i and a row of j, i negative. Then stores and adds there.
static void two_indices(px_dtype dtype, int form, int64_t rows, int64_t columns) {
  int64_t m = 11, n = 13;
  PX_SCOPED(px_tensor) x = integers(m, n, 5, dtype, form);
  PX_SCOPED(px_tensor) values = integers(rows, columns, 4, dtype, form);
  PX_SCOPED(px_tensor)
  up = integers(rows, 1, (int)m, PX_INT64, form == TRANSPOSED ? SPACED : DENSE);
  PX_SCOPED(px_tensor) i = NULL;
  PX_SCOPED(px_tensor) j = integers(1, columns, (int)n, PX_INT64, form);
  PX_SCOPED(px_tensor) got = NULL;
  PX_SCOPED(px_tensor) stored = NULL;
  PX_SCOPED(px_tensor) added = NULL;
  OK(px_sub_scalar(&i, up, px_int(m), px_int(1)));
  double *from = elements(x), *v = elements(values), *at = elements(i), *columns_at = elements(j);
  double *last = elements(x), *sums = elements(x);
  double *picked = malloc((size_t)(rows * columns) * sizeof *picked);
  for (int64_t k = 0; k < rows * columns; k++) {
    int64_t offset = ((int64_t)at[k / columns] + m) * n + (int64_t)columns_at[k % columns];
    picked[k] = from[offset], last[offset] = v[k];
    sums[offset] = sum_of(sums[offset], v[k], dtype);
  }
  px_tensor *both[2] = {i, j};
  OK(px_index(&got, x, both, 2, SIZES(0, 1)));
  check_equal(got, picked, "index");
  OK(px_index_put(&stored, x, both, 2, SIZES(0, 1), values, false));
  check_equal(stored, last, "index_put");
  OK(px_index_put(&added, x, both, 2, SIZES(0, 1), values, true));
  check_equal(added, sums, "index_put of sums");
  free(from);
  free(v);
  free(at);
  free(columns_at);
}

PX_TEST(index_tensors_broadcast_and_count_from_the_end) {
  for (int dtype = 0; dtype < PX_DTYPE_COMPUTED; dtype++)
    for (int form = 0; form < FORMS; form++) two_indices((px_dtype)dtype, form, 6, 7);
  two_indices(PX_FLOAT32, DENSE, 1, 1);
  OK(px_set_num_threads(3));
  for (int form = 0; form < FORMS; form++) two_indices(PX_FLOAT64, form, 190, 200);
}

// x[i] of a vector with only element `back` of i negative. Then adds there.
static void check_one_negative(px_dtype dtype, int64_t count, int64_t back) {
  const int64_t n = 50;
  PX_SCOPED(px_tensor) x = integers(1, n, 5, dtype, DENSE);
  PX_SCOPED(px_tensor) values = integers(1, count, 4, dtype, DENSE);
  PX_SCOPED(px_tensor) index = integers(1, count, (int)n, PX_INT64, DENSE);
  PX_SCOPED(px_tensor) cell = NULL;
  PX_SCOPED(px_tensor) got = NULL;
  double *from = elements(x), *v = elements(values), *at = elements(index), *sums = elements(x);
  double *picked = malloc((size_t)count * sizeof *picked);
  for (int64_t k = 0; k < count; k++) {
    int64_t offset = (int64_t)at[k];
    picked[k] = from[offset], sums[offset] = sum_of(sums[offset], v[k], dtype);
  }
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) line_index = NULL;
  PX_SCOPED(px_tensor) line_values = NULL;
  OK(px_view(&line, x, SIZES(n)));
  OK(px_view(&line_index, index, SIZES(count)));
  OK(px_view(&line_values, values, SIZES(count)));
  OK(px_select(&cell, line_index, 0, back));
  OK(px_sub_scalar_(cell, px_int(n), px_int(1)));
  OK(px_index(&got, line, &line_index, 1, SIZES(0)));
  check_equal(got, picked, "index");
  OK(px_index_put_(line, &line_index, 1, SIZES(0), line_values, true));
  check_equal(line, sums, "index_put of sums");
  free(from);
  free(v);
  free(at);
}

PX_TEST(one_of_many_indices_is_negative) {
  for (int dtype = 0; dtype < PX_DTYPE_COMPUTED; dtype++)
    for (int64_t back = 0; back < 600; back += 599) check_one_negative((px_dtype)dtype, 600, back);
  OK(px_set_num_threads(3));
  const int64_t backs[] = {0, 255, 256, 257, 40000, 99999};
  for (size_t i = 0; i < sizeof backs / sizeof *backs; i++)
    check_one_negative(PX_INT64, 100000, backs[i]);
}

// ---- rows and columns

static void rows_or_columns(px_dtype dtype, int form, int dim, int64_t m, int64_t n,
                            int64_t count) {
  PX_SCOPED(px_tensor) x = integers(m, n, 5, dtype, form);
  PX_SCOPED(px_tensor) to = integers(m, n, 3, dtype, form == SAME_ROWS ? DENSE : form);
  PX_SCOPED(px_tensor) source = integers(dim ? m : count, dim ? count : n, 4, dtype, form);
  PX_SCOPED(px_tensor) wide = integers(1, count, (int)(dim ? n : m), PX_INT32, DENSE);
  PX_SCOPED(px_tensor) index = NULL;
  PX_SCOPED(px_tensor) got = NULL;
  OK(px_view(&index, wide, SIZES(count)));
  double *from = elements(x), *at = elements(index), *v = elements(source), *sums = elements(to);
  int64_t rows = dim ? m : count, columns = dim ? count : n;
  double *picked = malloc((size_t)(rows * columns) * sizeof *picked);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < columns; k++) {
      int64_t offset = dim ? i * n + (int64_t)at[k] : (int64_t)at[i] * n + k;
      picked[i * columns + k] = from[offset];
      sums[offset] = sum_of(sums[offset], v[i * columns + k], dtype);
    }
  OK(px_index_select(&got, x, dim, index));
  check_equal(got, picked, "index_select");
  OK(px_index_add_(to, dim, index, source, px_int(1)));
  check_equal(to, sums, "index_add_");
  free(from);
  free(at);
  free(v);
}

PX_TEST(index_select_and_index_add) {
  for (int dtype = 0; dtype < PX_DTYPE_COMPUTED; dtype++)
    for (int form = 0; form < FORMS; form++)
      for (int dim = 0; dim < 2; dim++) rows_or_columns((px_dtype)dtype, form, dim, 8, 10, 6);
  OK(px_set_num_threads(3));
  for (int form = 0; form < FORMS; form++) {
    rows_or_columns(PX_FLOAT32, form, 0, 50, 210, 400);
    rows_or_columns(PX_UINT8, form, 1, 210, 50, 90);
  }
}

PX_TEST(empty_indices_select_nothing) {
  PX_SCOPED(px_tensor) x = integers(4, 3, 5, PX_FLOAT32, DENSE);
  PX_SCOPED(px_tensor) none = longs(0);
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) cells = NULL;
  PX_SCOPED(px_tensor) columns = NULL;
  px_tensor *index = none;
  OK(px_index(&rows, x, &index, 1, SIZES(0)));
  SHAPE(rows, 2, 0, 3);
  OK(px_index_select(&columns, x, 1, none));
  SHAPE(columns, 2, 4, 0);
  OK(px_take(&cells, x, none));
  SHAPE(cells, 1, 0);
  OK(px_index_put_(x, &index, 1, SIZES(0), rows, true));
}

// ---- out-of-range indices

static void check_invalid_index(int64_t m, int64_t n, int64_t at, int bad, int form,
                                const char *text) {
  PX_SCOPED(px_tensor) x = integers(m, n, 5, PX_FLOAT32, DENSE);
  PX_SCOPED(px_tensor) was = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  PX_SCOPED(px_tensor) index = integers(m, n, (int)n, PX_INT64, form);
  PX_SCOPED(px_tensor) cell = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  px_tensor *none = NULL;
  OK(px_clone(&was, x, NULL));
  OK(px_ones_like(&ones, x, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  OK(px_select(&row, index, 0, at / n));
  OK(px_select(&cell, row, 0, at % n));
  OK(px_fill_(cell, px_int(bad)));
  FAILS(px_gather(&none, x, 1, index, false), PX_RUNTIME, text);
  FAILS(px_scatter_add_(x, 1, index, ones), PX_RUNTIME, text);
  CHECK(!memcmp(px_tensor_data(x), px_tensor_data(was), (size_t)(m * n) * sizeof(float)));
}

PX_TEST(an_invalid_index_is_found_anywhere) {
  const char *const high = "index 20 is out of bounds for dimension 1 with size 20";
  OK(px_set_num_threads(3));
  for (int form = 0; form < SAME_ROWS; form++) {
    check_invalid_index(3, 20, 59, 20, form, high);
    check_invalid_index(3, 20, 0, -1, form,
                        "index -1 is out of bounds for dimension 1 with size 20");
    check_invalid_index(4000, 20, 79999, 20, form, high);
    check_invalid_index(4000, 20, 40001, 20, form, high);
  }
}

PX_TEST(the_first_invalid_index_is_named) {
  PX_SCOPED(px_tensor) x = integers(4, 3, 5, PX_FLOAT32, DENSE);
  PX_SCOPED(px_tensor) i = longs(4, 0, -4, -5, 9);
  PX_SCOPED(px_tensor) j = longs(4, 7, 0, 0, 0);
  px_tensor *both[2] = {i, j}, *none = NULL;
  FAILS(px_index(&none, x, both, 2, SIZES(0, 1)), PX_INDEX,
        "index -5 is out of bounds for dimension 0 with size 4");
  FAILS(px_index(&none, x, both + 1, 1, SIZES(1)), PX_INDEX,
        "index 7 is out of bounds for dimension 1 with size 3");
  FAILS(px_index_select(&none, x, 0, i), PX_INDEX, "index out of range in self");
}

// ---- threads

typedef void (*put_fn)(px_tensor *to, px_tensor *index, px_tensor *values);
static void add_cells(px_tensor *to, px_tensor *index, px_tensor *values) {
  OK(px_scatter_add_(to, 1, index, values));
}
static void add_rows(px_tensor *to, px_tensor *index, px_tensor *values) {
  PX_SCOPED(px_tensor) column = NULL;
  OK(px_select(&column, index, 1, 0));
  OK(px_index_add_(to, 0, column, values, px_int(1)));
}
static void put_rows(px_tensor *to, px_tensor *index, px_tensor *values) {
  PX_SCOPED(px_tensor) column = NULL;
  OK(px_select(&column, index, 1, 0));
  OK(px_index_put_(to, &column, 1, SIZES(0), values, false));
}
static void add_flat(px_tensor *to, px_tensor *index, px_tensor *values) {
  PX_SCOPED(px_tensor) line = NULL;
  OK(px_view(&line, to, SIZES(-1)));
  OK(px_index_put_(line, &index, 1, SIZES(0), values, true));
}
// Overlapping rows, each shifted by one element.
static void add_overlapping(px_tensor *to, px_tensor *index, px_tensor *values) {
  PX_SCOPED(px_tensor) windows = NULL;
  OK(px_as_strided(&windows, to, SIZES(300, 250), SIZES(1, 1), NULL));
  OK(px_scatter_add_(windows, 1, index, values));
}

PX_TEST(results_do_not_depend_on_the_number_of_threads) {
  const put_fn puts[] = {add_cells, add_rows, put_rows, add_flat, add_overlapping};
  PX_SCOPED(px_tensor) index = integers(300, 250, 90, PX_INT64, DENSE);
  PX_SCOPED(px_tensor) values = NULL;
  OK(px_randn(&values, SIZES(300, 250), NULL, PX_FLOAT32, px_cpu(), false, false));
  for (size_t i = 0; i < sizeof puts / sizeof *puts; i++) {
    PX_SCOPED(px_tensor) alone = NULL;
    OK(px_ones_like(&alone, values, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
    OK(px_set_num_threads(1));
    puts[i](alone, index, values);
    for (int threads = 2; threads < 6; threads++) {
      PX_SCOPED(px_tensor) together = NULL;
      OK(px_ones_like(&together, values, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
      OK(px_set_num_threads(threads));
      puts[i](together, index, values);
      CHECK(!memcmp(px_tensor_data(alone), px_tensor_data(together), 300 * 250 * sizeof(float)));
    }
  }
}

// Compares with the max or min of all values put at an index and the old value. NaN beats all
// numbers.
static void check_max_or_min(px_dtype dtype, bool is_min, int64_t nan) {
  enum { M = 11, N = 37 };
  PX_SCOPED(px_tensor) x = integers(M, N, 23, dtype, DENSE);
  PX_SCOPED(px_tensor) to = integers(M, N, 13, dtype, DENSE);
  PX_SCOPED(px_tensor) index = integers(M, N, 5, PX_INT64, DENSE);
  PX_SCOPED(px_tensor) got = NULL;
  if (nan >= 0)
    px_scalar_store(px_float(NAN), dtype,
                    (char *)px_tensor_data(x) + (size_t)nan * px_dtype_size(dtype));
  double *from = elements(x), *at = elements(index), *wanted = elements(to);
  for (int64_t i = 0; i < M * N; i++) {
    double *offset = &wanted[i / N * N + (int64_t)at[i]];
    bool beats = from[i] != from[i] || (is_min ? from[i] < *offset : from[i] > *offset);
    if (*offset == *offset && beats) *offset = from[i];
  }
  OK(px_scatter_reduce(&got, to, 1, index, x, is_min ? "amin" : "amax", true));
  double *given = elements(got);
  for (int64_t i = 0; i < M * N; i++)
    CHECK(given[i] == wanted[i] || (given[i] != given[i] && wanted[i] != wanted[i]));
  free(from);
  free(at);
  free(wanted);
  free(given);
}
PX_TEST(scatter_reduce_max_and_min) {
  for (int dtype = PX_UINT8; dtype < PX_DTYPE_COMPUTED; dtype++)
    for (int is_min = 0; is_min < 2; is_min++) {
      check_max_or_min((px_dtype)dtype, is_min, -1);
      if (px_dtype_is_float((px_dtype)dtype)) check_max_or_min((px_dtype)dtype, is_min, 40);
    }
}
