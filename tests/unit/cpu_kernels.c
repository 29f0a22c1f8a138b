// SPDX-License-Identifier: Apache-2.0
// Generated kernels and the loops below them, on raw launches: dtypes, strides, broadcasting,
// in-place use, faults and threads.
#include "phlox/backend.h"
#include "test.h"

#include <pthread.h>

const px_kernel_row *px__cpu_table_base(int *count);

static px_kernel find(const char *name) {
  int n;
  const px_kernel_row *rows = px__cpu_table_base(&n);
  for (int i = 0; i < n; i++)
    if (!strcmp(rows[i].name, name)) return rows[i].run;
  fprintf(stderr, "no kernel %s\n", name);
  exit(1);
}

static px_operand operand(void *data, int dtype, int ndim, const int64_t *sizes,
                          const int64_t *strides) {
  return (px_operand){
      .data = data, .sizes = sizes, .strides = strides, .ndim = ndim, .dtype = dtype};
}
static px_fault_slot faults;
static void run(const char *name, int compute, int n, px_operand *operands, int params,
                const px_value *values) {
  px_launch l = {.op = name,
                 .operand_count = n,
                 .operands = operands,
                 .param_count = params,
                 .params = values,
                 .compute = compute,
                 .id = 7,
                 .fault = &faults};
  faults = (px_fault_slot){0};
  OK(find(name)(&l));
}
static const int64_t one = 1;
// result = name(a, b) of n contiguous elements
static void binary(const char *name, int compute, int64_t n, void *result, int result_dtype,
                   void *a, int a_dtype, void *b, int b_dtype) {
  px_operand o[] = {operand(result, result_dtype, 1, &n, &one), operand(a, a_dtype, 1, &n, &one),
                    operand(b, b_dtype, 1, &n, &one)};
  px_value values[] = {PX_NONE(), PX_NONE(), PX_S(px_int(1))};
  run(name, compute, 3, o, 3, values);
}

static void copy(void *to, int to_dtype, void *from, int from_dtype, int64_t n) {
  px_operand o[] = {operand(to, to_dtype, 1, &n, &one), operand(from, from_dtype, 1, &n, &one)};
  run("copy", PX_DTYPE_NONE, 2, o, 0, NULL);
}

PX_TEST(adds_contiguous_floats) {
  float a[5] = {1, 2, 3, 4, 5}, b[5] = {10, 20, 30, 40, 50}, c[5];
  binary("add", PX_FLOAT32, 5, c, PX_FLOAT32, a, PX_FLOAT32, b, PX_FLOAT32);
  for (int i = 0; i < 5; i++) CHECK_NEAR(c[i], 11 * (i + 1), 0);
  binary("mul", PX_FLOAT32, 5, a, PX_FLOAT32, a, PX_FLOAT32, b, PX_FLOAT32);  // in place
  for (int i = 0; i < 5; i++) CHECK_NEAR(a[i], 10 * (i + 1) * (i + 1), 0);
}

PX_TEST(converts_operands_of_other_dtypes) {
  int64_t a[3] = {1, 2, 3};
  uint16_t b[3], c[3];
  float half[3] = {0.5f, 1.5f, 2.5f}, back[3];
  copy(b, PX_FLOAT16, half, PX_FLOAT32, 3);
  binary("add", PX_FLOAT16, 3, c, PX_FLOAT16, a, PX_INT64, b, PX_FLOAT16);
  copy(back, PX_FLOAT32, c, PX_FLOAT16, 3);
  for (int i = 0; i < 3; i++) CHECK_NEAR(back[i], 1.5 + 2 * i, 0);
  uint8_t less[3];
  binary("lt", PX_FLOAT16, 3, less, PX_BOOL, a, PX_INT64, b, PX_FLOAT16);
  CHECK(!less[0] && !less[1] && !less[2]);
}

PX_TEST(rows_are_broadcast_and_transposed) {
  float a[6] = {0, 1, 2, 3, 4, 5}, b[2] = {100, 200}, c[6];
  int64_t sizes[2] = {3, 2}, dense[2] = {2, 1}, transposed[2] = {1, 3}, repeated[2] = {0, 1};
  px_operand o[] = {operand(c, PX_FLOAT32, 2, sizes, dense),
                    operand(a, PX_FLOAT32, 2, sizes, transposed),
                    operand(b, PX_FLOAT32, 2, sizes, repeated)};
  px_value values[] = {PX_NONE(), PX_NONE(), PX_S(px_int(2))};
  run("add", PX_FLOAT32, 3, o, 3, values);
  const float wanted[6] = {200, 403, 201, 404, 202, 405};
  for (int i = 0; i < 6; i++) CHECK_NEAR(c[i], wanted[i], 0);
}

PX_TEST(numbers_are_immediate) {
  float a[4] = {1, 2, 3, 4}, c[4];
  int64_t n = 4, zero = 0;
  px_operand o[] = {operand(c, PX_FLOAT32, 1, &n, &one), operand(a, PX_FLOAT32, 1, &n, &one),
                    operand(NULL, PX_FLOAT64, 1, &n, &zero)};
  double number = 0.5;
  o[2].immediate = true, o[2].data = o[2].value;
  memcpy(o[2].value, &number, 8);
  px_value values[] = {PX_NONE(), PX_NONE()};
  run("mul", PX_FLOAT32, 3, o, 2, values);
  for (int i = 0; i < 4; i++) CHECK_NEAR(c[i], 0.5 * (i + 1), 0);
}

PX_TEST(integers_divide_as_in_python) {
  int32_t a[4] = {7, -7, 7, -7}, b[4] = {2, 2, -2, -2}, c[4];
  const int32_t quotient[4] = {3, -4, -4, 3}, rest[4] = {1, 1, -1, -1};
  binary("floor_divide", PX_INT32, 4, c, PX_INT32, a, PX_INT32, b, PX_INT32);
  for (int i = 0; i < 4; i++) CHECK_EQ(c[i], quotient[i]);
  binary("remainder", PX_INT32, 4, c, PX_INT32, a, PX_INT32, b, PX_INT32);
  for (int i = 0; i < 4; i++) CHECK_EQ(c[i], rest[i]);
  a[0] = INT32_MIN, b[0] = -1;  // overflows; must not trap
  binary("floor_divide", PX_INT32, 1, c, PX_INT32, a, PX_INT32, b, PX_INT32);
  CHECK_EQ(c[0], INT32_MIN);
  CHECK_EQ(faults.launch, 0);
  b[0] = 0;
  binary("fmod", PX_INT32, 1, c, PX_INT32, a, PX_INT32, b, PX_INT32);
  CHECK_EQ(faults.launch, 7);
  CHECK_EQ(faults.code, PX_FAULT_ZERO_DIVISION);
}

PX_TEST(bool_adds_as_or) {
  uint8_t a[4] = {0, 0, 1, 1}, b[4] = {0, 1, 0, 1}, c[4];
  binary("add", PX_BOOL, 4, c, PX_BOOL, a, PX_BOOL, b, PX_BOOL);
  CHECK(!c[0] && c[1] == 1 && c[2] == 1 && c[3] == 1);
}

PX_TEST(clamp_limits_are_optional) {
  float a[4] = {-3, -1, 1, NAN}, c[4];
  int64_t n = 4;
  float low = 0;
  int64_t zero = 0;
  px_operand o[] = {operand(c, PX_FLOAT32, 1, &n, &one),
                    operand(a, PX_FLOAT32, 1, &n, &one),
                    operand(&low, PX_FLOAT32, 1, &n, &zero),
                    {.dtype = PX_DTYPE_NONE}};
  px_value values[] = {PX_NONE(), PX_NONE(), PX_NONE()};
  run("clamp", PX_FLOAT32, 4, o, 3, values);
  CHECK(c[0] == 0 && c[1] == 0 && c[2] == 1 && c[3] != c[3]);
}

// ---- reductions

// Reduces `in`, a strided 3 x 4 matrix, over the dimensions of the mask.
static void reduce(const char *name, int compute, int mask, px_operand in, void *out, int out_dtype,
                   void *indices) {
  int64_t sizes[2], strides[2], step = 1;
  for (int d = 1; d >= 0; d--) {
    bool reduced = mask >> d & 1;
    sizes[d] = reduced ? 1 : in.sizes[d];
    strides[d] = reduced ? 0 : step;
    step *= sizes[d];
  }
  px_operand o[3] = {operand(out, out_dtype, 2, sizes, strides)};
  int n = 1;
  if (indices) o[n++] = operand(indices, PX_INT64, 2, sizes, strides);
  o[n++] = in;
  px_value values[5] = {PX_NONE()};
  run(name, compute, n, o, 5, values);
}

static float grid[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const int64_t grid_sizes[2] = {3, 4}, grid_dense[2] = {4, 1}, grid_transposed[2] = {1, 3};

PX_TEST(sums_over_rows_columns_and_all) {
  px_operand in = operand(grid, PX_FLOAT32, 2, grid_sizes, grid_dense);
  float out[4];
  reduce("sum", PX_FLOAT32, 1, in, out, PX_FLOAT32, NULL);
  CHECK(out[0] == 15 && out[3] == 24);
  reduce("sum", PX_FLOAT32, 2, in, out, PX_FLOAT32, NULL);
  CHECK(out[0] == 10 && out[2] == 42);
  reduce("mean", PX_FLOAT32, 3, in, out, PX_FLOAT32, NULL);
  CHECK_NEAR(out[0], 6.5, 0);
  in.strides = grid_transposed;
  reduce("sum", PX_FLOAT32, 2, in, out, PX_FLOAT32, NULL);
  CHECK(out[0] == 1 + 4 + 7 + 10 && out[2] == 3 + 6 + 9 + 12);
}

PX_TEST(reductions_of_repeated_elements_are_equal) {
  static const int64_t still[2] = {0, 0}, down[2] = {4, 0};
  px_operand in = operand(grid + 2, PX_FLOAT32, 2, grid_sizes, still);
  float out[4] = {0};
  reduce("sum", PX_FLOAT32, 1, in, out, PX_FLOAT32, NULL);
  for (int i = 0; i < 4; i++) CHECK_NEAR(out[i], 9, 0);
  in.strides = down;
  reduce("mean", PX_FLOAT32, 1, in, out, PX_FLOAT32, NULL);
  for (int i = 0; i < 4; i++) CHECK_NEAR(out[i], (3 + 7 + 11) / 3.0, 0);
}

PX_TEST(max_and_min_with_indices) {
  float e[12] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}, values[4];
  int64_t at[4];
  px_operand in = operand(e, PX_FLOAT32, 2, grid_sizes, grid_dense);
  reduce("max_dim", PX_FLOAT32, 2, in, values, PX_FLOAT32, at);
  CHECK(values[0] == 4 && values[1] == 9 && values[2] == 8 && at[0] == 2 && at[1] == 1 &&
        at[2] == 3);
  reduce("argmin", PX_FLOAT32, 3, in, at, PX_INT64, NULL);
  CHECK_EQ(at[0], 1);  // the first of equal elements
  e[6] = NAN;
  reduce("argmax", PX_FLOAT32, 3, in, at, PX_INT64, NULL);
  CHECK_EQ(at[0], 6);
  reduce("amax", PX_FLOAT32, 3, in, values, PX_FLOAT32, NULL);
  CHECK(values[0] != values[0]);
}

PX_TEST(integers_sum_exactly) {
  int64_t e[12], out[1];
  for (int i = 0; i < 12; i++) e[i] = (INT64_C(1) << 53) + i;
  px_operand in = operand(e, PX_INT64, 2, grid_sizes, grid_dense);
  reduce("sum", PX_INT64, 3, in, out, PX_INT64, NULL);
  CHECK_EQ(out[0], 12 * (INT64_C(1) << 53) + 66);
}

PX_TEST(an_empty_sum_is_zero_and_an_empty_mean_nan) {
  int64_t sizes[2] = {3, 0};
  float out[3] = {9, 9, 9};
  px_operand in = operand(grid, PX_FLOAT32, 2, sizes, grid_dense);
  reduce("sum", PX_FLOAT32, 2, in, out, PX_FLOAT32, NULL);
  CHECK(out[0] == 0 && out[1] == 0 && out[2] == 0);
  reduce("mean", PX_FLOAT32, 2, in, out, PX_FLOAT32, NULL);
  CHECK(out[0] != out[0]);
}

PX_TEST(variance_and_norm) {
  float out[1];
  px_operand in = operand(grid, PX_FLOAT32, 2, grid_sizes, grid_dense);
  reduce("var", PX_FLOAT32, 3, in, out, PX_FLOAT32, NULL);
  CHECK_NEAR(out[0], 13, 1e-5);
  reduce("norm", PX_FLOAT32, 3, in, out, PX_FLOAT32, NULL);
  CHECK_NEAR(out[0], sqrt(650), 1e-5);
  reduce("logsumexp", PX_FLOAT32, 3, in, out, PX_FLOAT32, NULL);
  CHECK_NEAR(out[0], 12.4586697, 1e-5);
}

// ---- threads

enum { MANY = 1 << 20 };
static void *sum_many(void *e) {
  int64_t sizes[1] = {MANY}, strides[1] = {1}, unit[1] = {1}, zero[1] = {0};
  float out;
  px_operand o[2] = {operand(&out, PX_FLOAT32, 1, unit, zero),
                     operand(e, PX_FLOAT32, 1, sizes, strides)};
  px_launch l = {.op = "sum", .operand_count = 2, .operands = o, .compute = PX_FLOAT32, .id = 1};
  px_value values[4] = {PX_NONE()};
  l.params = values, l.param_count = 4;
  OK(find("sum")(&l));
  uint32_t bits;
  memcpy(&bits, &out, 4);
  return (void *)(uintptr_t)bits;
}

PX_TEST(long_sums_do_not_depend_on_threads) {
  setenv("PHLOX_THREADS", "4", 1);
  float *e = malloc(sizeof(float) * MANY);
  double exact = 0;
  for (int i = 0; i < MANY; i++) exact += e[i] = (float)((i % 1009 * 79) % 1009) * 0.001f;
  void *first = sum_many(e);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(!pthread_create(&threads[i], NULL, sum_many, e));
  for (int i = 0; i < 4; i++) {
    void *other;
    pthread_join(threads[i], &other);
    CHECK(other == first);  // bitwise equal, although the pool was busy for some threads
  }
  float sum;
  uint32_t bits = (uint32_t)(uintptr_t)first;
  memcpy(&sum, &bits, 4);
  CHECK_NEAR(sum, exact, exact * 1e-6);
  free(e);
}

PX_TEST(a_forked_child_starts_its_own_pool) {
#ifdef __SANITIZE_THREAD__
  SKIP("the thread sanitizer does not follow threads of a forked child");
#endif
  setenv("PHLOX_THREADS", "3", 1);
  float *e = calloc(MANY, sizeof *e);
  void *before = sum_many(e);
  pid_t child = fork();
  if (child == 0) _exit(sum_many(e) == before ? 0 : 1);
  int status;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  free(e);
}

// Many elements are converted by blocks and vectors, single ones are not.
PX_TEST(vectorized_conversion_matches_single_elements) {
  enum { N = 300 };
  static double numbers[N], given[2 * N], made[N], each[N];
  for (int i = 0; i < N; i++) numbers[i] = (i % 40 - 13) * 1.37;
  numbers[7] = NAN, numbers[20] = (double)INFINITY, numbers[41] = 3e9, numbers[290] = -5e12;
  for (int from = 0; from < PX_DTYPE_COMPUTED; from++)
    for (int to = 0; to < PX_DTYPE_COMPUTED; to++)
      for (int64_t step = 1; step <= 2; step++) {
        int64_t n = N, a = (int64_t)px_dtype_size((px_dtype)from);
        size_t b = px_dtype_size((px_dtype)to);
        for (int i = 0; i < N; i++)
          copy((char *)given + i * step * a, from, &numbers[i], PX_FLOAT64, 1);
        px_operand o[] = {operand(made, to, 1, &n, &one), operand(given, from, 1, &n, &step)};
        run("copy", PX_DTYPE_NONE, 2, o, 0, NULL);
        for (int i = 0; i < N; i++)
          copy((char *)each + (size_t)i * b, to, (char *)given + i * step * a, from, 1);
        if (memcmp(made, each, N * b)) fprintf(stderr, "%d to %d by %d\n", from, to, (int)step);
        CHECK(!memcmp(made, each, N * b));
      }
}

// Rows of each length up to the threshold for single-row copies, with gaps on both sides.
PX_TEST(short_rows_are_batched_in_copies) {
  enum { ROWS = 5, MAX_LENGTH = 1040 };
  static uint8_t from[ROWS * (MAX_LENGTH + 3)], to[ROWS * (MAX_LENGTH + 5)];
  for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 7 + i / 256);
  for (int64_t n = 1; n <= MAX_LENGTH; n += n < 70 ? 1 : 97) {
    int64_t sizes[] = {ROWS, n}, ts[] = {n + 5, 1}, fs[] = {n + 3, 1};
    px_operand o[] = {operand(to, PX_UINT8, 2, sizes, ts), operand(from, PX_UINT8, 2, sizes, fs)};
    memset(to, 0, sizeof to);
    run("copy", PX_DTYPE_NONE, 2, o, 0, NULL);
    for (int64_t i = 0; i < ROWS * (n + 5); i++) {
      int64_t row = i / (n + 5), k = i % (n + 5);
      CHECK_EQ(to[i], k < n ? from[row * (n + 3) + k] : 0);
    }
  }
}
