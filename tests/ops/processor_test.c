// SPDX-License-Identifier: Apache-2.0
// Processor levels of CPU kernels (PHLOX_CPU): products of each level match explicit sums and do
// not depend on the number of threads. Unsupported levels are skipped.
#include "kernels_help.h"

typedef struct problem {
  int64_t m, k, n;
  px_dtype dtype;
  px_tensor *a, *b, *s;  // b: k x n; s: a row of n
} problem;

// Returns the next number of a fixed sequence in [-1, 1].
static double next_random(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (double)(int32_t)state / 2147483648.0;
}
static px_tensor *numbers(px_dtype dtype, int64_t rows, int64_t columns, bool transposed) {
  px_tensor *t = NULL, *transposed_view = NULL;
  OK(px_tensor_empty(&t, S(transposed ? columns : rows, transposed ? rows : columns), dtype,
                     px_cpu()));
  char *at = px_tensor_data(t);
  for (int64_t i = 0; i < rows * columns; i++)
    px_scalar_store(px_float(next_random()), dtype, at + (size_t)i * px_dtype_size(dtype));
  if (!transposed) return t;
  OK(px_t(&transposed_view, t));
  px_release(t);
  return transposed_view;
}
static problem problem_of(px_dtype dtype, int64_t m, int64_t k, int64_t n, int layout) {
  return (problem){m,
                   k,
                   n,
                   dtype,
                   numbers(dtype, m, k, layout & 1),
                   numbers(dtype, k, n, layout & 2),
                   numbers(dtype, 1, n, false)};
}
static void release(problem *p) { px_release(p->a), px_release(p->b), px_release(p->s); }

static double *wide(const px_tensor *t) {
  PX_SCOPED(px_tensor) all = NULL;
  size_t bytes = (size_t)px_tensor_numel(t) * sizeof(double);
  double *to = malloc(bytes + 1);
  OK(px_to(&all, t, PX_FLOAT64, px_cpu(), false, true));
  OK(px_tensor_read(all, to, bytes));
  return to;
}
// Checks 2 * s + a b / 2 against the sum in double: rounded once to the dtype.
static void check_sums(const problem *p) {
  PX_SCOPED(px_tensor) c = NULL;
  double unit = p->dtype == PX_BFLOAT16 ? 0x1p-8 : p->dtype == PX_FLOAT16 ? 0x1p-11 : 0x1p-24;
  OK(px_addmm(&c, p->s, p->a, p->b, px_int(2), px_float(0.5)));
  double *a = wide(p->a), *b = wide(p->b), *s = wide(p->s), *got = wide(c);
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      double sum = 2 * s[j], size = 0;
      for (int64_t q = 0; q < p->k; q++) {
        double x = a[i * p->k + q] * b[q * p->n + j] / 2;
        sum += x, size += fabs(x);
      }
      CHECK_NEAR(got[i * p->n + j], sum, unit * fabs(sum) + 1e-6 * (1 + size));
    }
  free(a), free(b), free(s), free(got);
}
static void check_threads(const problem *p) {
  px_tensor *alone = NULL;
  size_t bytes = (size_t)(p->m * p->n) * px_dtype_size(p->dtype);
  for (int i = 0; i < 4; i++) {
    PX_SCOPED(px_tensor) c = NULL;
    OK(px_set_num_threads(SIZES(1, 2, 7, 16)[i]));
    OK(px_addmm(&c, p->s, p->a, p->b, px_int(1), px_int(1)));
    if (alone)
      CHECK(!memcmp(px_tensor_data(c), px_tensor_data(alone), bytes));
    else
      alone = PX_MOVE(c);
  }
  px_release(alone);
}

// Sizes for matrix-vector products, few rows contiguous in k, one tile, partial tiles, and blocks
// with all tails.
static const int64_t sizes[][3] = {{1, 100, 33},  {33, 100, 1}, {1, 70, 40},    {3, 33, 5},
                                   {17, 64, 33},  {8, 96, 200}, {64, 64, 64},   {70, 1100, 97},
                                   {130, 31, 70}, {2, 1, 2},    {40, 40, 1100}, {7, 150, 35}};
static void check_level(px_cpu_level level, const char *name) {
  static const px_dtype dtypes[] = {PX_BFLOAT16, PX_FLOAT16, PX_FLOAT32};
  setenv("PHLOX_CPU", name, 1);
  if (px_cpu_level_used() != level) SKIP("the processor does not have it");
  for (int d = 0; d < 3; d++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int layout = 0; layout < 4; layout++) {
        problem p = problem_of(dtypes[d], sizes[i][0], sizes[i][1], sizes[i][2], layout);
        check_sums(&p);
        release(&p);
      }
  for (int layout = 0; layout < 4; layout++) {
    problem wide = problem_of(PX_BFLOAT16, 150, 530, 170, layout);
    problem deep = problem_of(PX_FLOAT16, 410, 1210, 70, layout);
    check_threads(&wide), check_threads(&deep);
    check_sums(&deep);
    release(&wide), release(&deep);
  }
}
// Large enough that float16 is converted during packing.
PX_TEST(large_products_of_float16) {
  for (int layout = 0; layout < 4; layout++) {
    problem p = problem_of(PX_FLOAT16, 256, 270, 257, layout);
    check_sums(&p);
    check_threads(&p);
    release(&p);
  }
}
PX_TEST(infinity_in_a_large_product_of_float16_stays_in_its_row) {
  problem p = problem_of(PX_FLOAT16, 256, 270, 257, 0);
  PX_SCOPED(px_tensor) c = NULL;
  px_scalar_store(px_float(INFINITY), PX_FLOAT16, px_tensor_data(p.a));
  OK(px_mm(&c, p.a, p.b));
  double *got = wide(c);
  for (int64_t i = 0; i < 256; i++)
    for (int64_t j = 0; j < 257; j++) CHECK(isinf(got[i * 257 + j]) ? i == 0 : i > 0);
  free(got);
  release(&p);
}
PX_TEST(products_at_the_base_level) { check_level(PX_CPU_BASE, "base"); }
PX_TEST(products_of_avx2) { check_level(PX_CPU_AVX2, "avx2"); }
PX_TEST(products_of_avx512) { check_level(PX_CPU_AVX512, "avx512"); }
PX_TEST(products_of_avx512_bf16) { check_level(PX_CPU_AVX512_BF16, "avx512_bf16"); }
PX_TEST(products_of_amx) { check_level(PX_CPU_AMX, "amx"); }

PX_TEST(phlox_cpu_limits_the_level) {
  setenv("PHLOX_CPU", "avx2", 1);
  CHECK(px_cpu_level_used() <= PX_CPU_AVX2);
  CHECK(strcmp(px_cpu_capability(), "AVX512"));
}

PX_TEST(empty_sums_and_special_values_in_bfloat16) {
  PX_SCOPED(px_tensor) a = made(PX_BFLOAT16, S(2, 3), VALUES(INFINITY, 1, NAN, 1, 2, 3));
  PX_SCOPED(px_tensor) b = made(PX_BFLOAT16, S(3, 2), VALUES(0, 1, 1, 2, 0, 0));
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  PX_SCOPED(px_tensor) empty = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  OK(px_mm(&c, a, b));
  CHECK(isnan(element(c, 0)) && isnan(element(c, 1)));
  CHECK(element(c, 2) == 2 && element(c, 3) == 5);
  OK(px_tensor_empty(&none, S(2, 0), PX_BFLOAT16, px_cpu()));
  OK(px_t(&empty, none));
  OK(px_mm(&zero, none, empty));
  ELEMENTS(zero, 0, 0, 0, 0, 0);
}
