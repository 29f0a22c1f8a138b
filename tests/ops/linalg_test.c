// SPDX-License-Identifier: Apache-2.0
// Matrix products against explicit sums, for each size class and layout; error texts; gradient
// names.
#include "kernels_help.h"

// Checks the product against a sum in double, element by element.
static void check_product(const px_tensor *c, const px_tensor *a, const px_tensor *b) {
  int64_t m = px_tensor_size(a, 0), k = px_tensor_size(a, 1), n = px_tensor_size(b, 1);
  px_tensor *ad = NULL, *bd = NULL, *cd = NULL;
  OK(px_contiguous(&ad, a));
  OK(px_contiguous(&bd, b));
  OK(px_contiguous(&cd, c));
  const float *x = px_tensor_data(ad), *y = px_tensor_data(bd), *z = px_tensor_data(cd);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t p = 0; p < k; p++) sum += (double)x[i * k + p] * y[p * n + j];
      CHECK_NEAR(z[i * n + j], sum, 1e-3);
    }
  px_release(ad);
  px_release(bd);
  px_release(cd);
}
static void product_of(int64_t m, int64_t k, int64_t n, bool transpose_a, bool transpose_b) {
  PX_SCOPED(px_tensor) a = pattern(PX_FLOAT32, S(transpose_a ? k : m, transpose_a ? m : k));
  PX_SCOPED(px_tensor) b = pattern(PX_FLOAT32, S(transpose_b ? n : k, transpose_b ? k : n));
  PX_SCOPED(px_tensor) c = NULL;
  px_tensor *at = NULL, *bt = NULL;
  OK(transpose_a ? px_t(&at, a) : px_tensor_alias(&at, a));
  OK(transpose_b ? px_t(&bt, b) : px_tensor_alias(&bt, b));
  OK(px_mm(&c, at, bt));
  check_product(c, at, bt);
  px_release(at);
  px_release(bt);
}
static void product_in_all_layouts(int64_t m, int64_t k, int64_t n) {
  for (int layout = 0; layout < 4; layout++) product_of(m, k, n, layout & 1, layout & 2);
}

PX_TEST(small_products) { product_in_all_layouts(3, 4, 5); }
PX_TEST(products_with_partial_tiles) { product_in_all_layouts(13, 17, 19); }
PX_TEST(blocked_products) { product_in_all_layouts(130, 300, 70); }
PX_TEST(large_products) { product_in_all_layouts(261, 259, 257); }
PX_TEST(products_with_partial_row_tiles) {
  for (int64_t m = 1; m < 34; m++) product_in_all_layouts(m, 18, 40);
  for (int64_t m = 196; m < 202; m++) product_in_all_layouts(m, 131, 259);
  for (int64_t m = 57; m < 70; m++) product_in_all_layouts(m, 301, 130);
  product_in_all_layouts(29, 70, 1030);
  for (int64_t m = 15; m < 48; m += 8) product_in_all_layouts(m, 300, 345);
}
PX_TEST(products_with_several_k_blocks) { product_in_all_layouts(31, 1100, 65); }
PX_TEST(products_of_few_long_rows) {
  for (int64_t m = 2; m < 10; m++) product_in_all_layouts(m, 11, 517);
  product_in_all_layouts(33, 7, 770);
}
PX_TEST(products_with_few_columns) {
  for (int64_t n = 1; n < 18; n++) product_in_all_layouts(203, n % 2 ? 130 : 60, n);
  product_in_all_layouts(530, 520, 9);
}
PX_TEST(products_with_unpacked_columns) {
  for (int64_t n = 8; n < 35; n++) {
    product_in_all_layouts(37, 528, n);
    product_in_all_layouts(n, 275, 41);
  }
}
PX_TEST(vector_products) {
  product_in_all_layouts(1, 33, 20);
  product_in_all_layouts(20, 33, 1);
  product_in_all_layouts(1, 100, 1);
}
PX_TEST(an_empty_product_is_zero) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_tensor_empty(&a, S(2, 0), PX_FLOAT32, px_cpu()));
  OK(px_tensor_empty(&b, S(0, 2), PX_FLOAT32, px_cpu()));
  OK(px_mm(&c, a, b));
  ELEMENTS(c, 0, 0, 0, 0, 0);
}
PX_TEST(products_of_integers_and_fp16) {
  static const px_dtype dtypes[] = {PX_INT64, PX_INT32, PX_FLOAT16, PX_BFLOAT16, PX_FLOAT64};
  for (int i = 0; i < 5; i++) {
    PX_SCOPED(px_tensor) a = made(dtypes[i], S(2, 2), VALUES(1, 2, 3, 4));
    PX_SCOPED(px_tensor) c = NULL;
    OK(px_mm(&c, a, a));
    CHECK_EQ(px_tensor_dtype(c), dtypes[i]);
    ELEMENTS(c, 0, 7, 10, 15, 22);
  }
}
PX_TEST(addmm_scales_and_broadcasts) {
  PX_SCOPED(px_tensor) bias = made(PX_FLOAT32, S(2), VALUES(10, 20));
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(2, 2), VALUES(1, 2, 3, 4));
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_addmm(&c, bias, a, a, px_float(0.5), px_int(2)));
  ELEMENTS(c, 0, 19, 30, 35, 54);
}
PX_TEST(beta_zero_does_not_read_self) {
  PX_SCOPED(px_tensor) self = made(PX_FLOAT32, S(1), VALUES(NAN));
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(1, 1), VALUES(3));
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_addmm(&c, self, a, a, px_int(0), px_int(1)));
  ELEMENTS(c, 0, 9);
}
PX_TEST(products_propagate_nan_and_inf) {
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(1, 2), VALUES(INFINITY, 1));
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(2, 1), VALUES(0, 1));
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_mm(&c, a, b));
  CHECK(isnan(element(c, 0)));
}
PX_TEST(bmm_multiplies_each_pair) {
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(2, 1, 2), VALUES(1, 2, 3, 4));
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(2, 2, 1), VALUES(5, 6, 7, 8));
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_bmm(&c, a, b));
  ELEMENTS(c, 0, 17, 53);
}
PX_TEST(matmul_broadcasts_batches) {
  PX_SCOPED(px_tensor) a = pattern(PX_FLOAT32, S(2, 1, 3, 4));
  PX_SCOPED(px_tensor) b = pattern(PX_FLOAT32, S(5, 4, 2));
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_matmul(&c, a, b));
  CHECK_EQ(px_tensor_ndim(c), 4);
  CHECK_EQ(px_tensor_size(c, 1), 5);
}
PX_TEST(linear_is_recorded_as_addmm) {
  PX_SCOPED(px_tensor) x = pattern(PX_FLOAT32, S(2, 3));
  PX_SCOPED(px_tensor) w = pattern(PX_FLOAT32, S(4, 3));
  PX_SCOPED(px_tensor) b = pattern(PX_FLOAT32, S(4));
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  OK(px_tensor_set_requires_grad(w, true));
  OK(px_linear(&y, x, w, b));
  CHECK_TEXT(node_name(y), "AddmmBackward0");
  OK(px_linear(&plain, x, w, NULL));
  CHECK_TEXT(node_name(plain), "MmBackward0");
}
PX_TEST(linear_takes_a_weight_of_any_strides) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(1, 2), VALUES(1, 10));
  PX_SCOPED(px_tensor) columns = made(PX_FLOAT32, S(2, 3), VALUES(1, 2, 3, 4, 5, 6));
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(3), VALUES(100, 200, 300));
  PX_SCOPED(px_tensor) w = NULL;
  PX_SCOPED(px_tensor) same = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  OK(px_t(&w, columns));
  OK(px_linear(&y, x, w, b));
  ELEMENTS(y, 0, 141, 252, 363);
  int64_t all[2] = {3, 2};
  OK(px_expand(&same, x, all, 2));  // three rows of one
  OK(px_linear(&z, x, same, b));
  ELEMENTS(z, 0, 201, 301, 401);
}
PX_TEST(a_linear_of_bools_is_refused_as_addmm) {
  PX_SCOPED(px_tensor) x = made(PX_BOOL, S(1, 2), VALUES(1, 1));
  PX_SCOPED(px_tensor) b = made(PX_BOOL, S(1), VALUES(1));
  px_tensor *none = NULL;
  FAILS(px_linear(&none, x, x, b), PX_UNIMPLEMENTED,
        "\"addmm_impl_cpu_\" not implemented for 'Bool'");
}
PX_TEST(trace_sums_the_diagonal) {
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(2, 3), VALUES(1, 2, 3, 4, 5, 6));
  PX_SCOPED(px_tensor) truth = made(PX_BOOL, S(2, 2), VALUES(1, 0, 0, 1));
  PX_SCOPED(px_tensor) row = made(PX_FLOAT32, S(2), VALUES(1, 2));
  PX_SCOPED(px_tensor) sum = NULL;
  px_tensor *none = NULL;
  OK(px_trace(&sum, a));
  ELEMENTS(sum, 0, 6);
  FAILS(px_trace(&none, row), PX_RUNTIME, "trace: expected a matrix, but got tensor with dim 1");
  FAILS(px_trace(&none, truth), PX_UNIMPLEMENTED, "\"trace\" not implemented for 'Bool'");
}
PX_TEST(einsum_sums_over_missing_labels) {
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(2, 2), VALUES(1, 2, 3, 4));
  px_tensor *both[2] = {a, a};
  PX_SCOPED(px_tensor) c = NULL;
  PX_SCOPED(px_tensor) trace = NULL;
  OK(px_einsum(&c, "ij,kj->ik", both, 2));
  ELEMENTS(c, 0, 5, 11, 11, 25);
  OK(px_einsum(&trace, "ii", both, 1));
  ELEMENTS(trace, 0, 5);
  px_tensor *none = NULL;
  FAILS(px_einsum(&none, "ij,jk->il", both, 2), PX_RUNTIME,
        "einsum(): output subscript l does not appear in the equation for any input operand");
  FAILS(px_einsum(&none, "ijk", both, 1), PX_RUNTIME,
        "einsum(): the number of subscripts in the equation (3) does not match the number of "
        "dimensions (2) for operand 0 and no ellipsis was given");
}
PX_TEST(mismatched_operands_are_refused) {
  PX_SCOPED(px_tensor) a = pattern(PX_FLOAT32, S(2, 3));
  PX_SCOPED(px_tensor) d = pattern(PX_FLOAT64, S(3, 2));
  PX_SCOPED(px_tensor) v = pattern(PX_FLOAT32, S(3));
  PX_SCOPED(px_tensor) u = pattern(PX_FLOAT32, S(2));
  PX_SCOPED(px_tensor) batch = pattern(PX_FLOAT32, S(2, 2, 3));
  PX_SCOPED(px_tensor) other = pattern(PX_FLOAT32, S(3, 3, 1));
  px_tensor *c = NULL;
  FAILS(px_mm(&c, a, a), PX_RUNTIME, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
  FAILS(px_mm(&c, d, a), PX_RUNTIME,
        "expected m1 and m2 to have the same dtype, but got: double != float");
  FAILS(px_mm(&c, a, v), PX_RUNTIME, "mat2 must be a matrix");
  FAILS(px_dot(&c, v, u), PX_RUNTIME,
        "inconsistent tensor size, expected tensor [3] and src [2] to have the same number of "
        "elements, but got 3 and 2 elements respectively");
  FAILS(px_bmm(&c, batch, other), PX_RUNTIME,
        "Expected size for first two dimensions of batch2 tensor to be: [2, 3] but got: [3, 3].");
  CHECK(c == NULL);
}

// ---- threads

static void product_with(px_tensor **out, int64_t threads, const px_tensor *a, const px_tensor *b,
                         const px_tensor *bias) {
  OK(px_set_num_threads(threads));
  CHECK_EQ(px_num_threads(), threads);
  OK(px_addmm(out, bias, a, b, px_int(1), px_int(1)));
}
static void compare_thread_counts(px_dtype dtype, int64_t m, int64_t n, int64_t k,
                                  bool transposed) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b0 = NULL;
  PX_SCOPED(px_tensor) bias = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) alone = NULL;
  OK(px_randn(&a, SIZES(m, k), 2, NULL, dtype, px_cpu(), false, false));
  OK(px_randn(&b0, SIZES(transposed ? n : k, transposed ? k : n), 2, NULL, dtype, px_cpu(), false,
              false));
  OK(px_randn(&bias, SIZES(n), 1, NULL, dtype, px_cpu(), false, false));
  OK(transposed ? px_t(&b, b0) : px_tensor_alias(&b, b0));
  product_with(&alone, 1, a, b, bias);
  for (int i = 0; i < 5; i++) {
    int64_t threads = SIZES(2, 3, 4, 7, 16)[i];
    PX_SCOPED(px_tensor) together = NULL;
    product_with(&together, threads, a, b, bias);
    size_t bytes = (size_t)(m * n) * px_dtype_size(dtype);
    bool same = !memcmp(px_tensor_data(alone), px_tensor_data(together), bytes);
    if (!same)
      fprintf(stderr, "%lld x %lld x %lld differs with %lld threads\n", (long long)m, (long long)n,
              (long long)k, (long long)threads);
    CHECK(same);
  }
}

PX_TEST(products_do_not_depend_on_the_number_of_threads) {
  static const int64_t sizes[][3] = {
      {128, 100, 784}, {256, 256, 256}, {300, 260, 270}, {90, 70, 600},   {1000, 10, 128},
      {10, 1000, 64},  {257, 255, 300}, {64, 64, 64},    {1, 2000, 500},  {2000, 1, 500},
      {5, 1200, 700},  {1200, 7, 600},  {700, 900, 40},  {16, 400, 1100}, {199, 201, 70},
      {1000, 16, 300}, {900, 4, 128},   {300, 13, 90},   {30, 1000, 300}, {42, 700, 500},
      {32, 900, 500},  {65, 700, 330},  {23, 300, 512},  {32, 513, 528},  {610, 20, 512}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int transposed = 0; transposed < 2; transposed++) {
      compare_thread_counts(PX_FLOAT32, sizes[i][0], sizes[i][1], sizes[i][2], transposed);
      compare_thread_counts(PX_FLOAT64, sizes[i][0], sizes[i][1], sizes[i][2], transposed);
      compare_thread_counts(PX_BFLOAT16, sizes[i][0], sizes[i][1], sizes[i][2], transposed);
      compare_thread_counts(PX_FLOAT16, sizes[i][0], sizes[i][1], sizes[i][2], transposed);
    }
}
PX_TEST(the_number_of_threads_is_positive) {
  FAILS(px_set_num_threads(0), PX_RUNTIME, "set_num_threads expects a positive integer");
  FAILS(px_set_num_threads(-2), PX_RUNTIME, "positive");
  OK(px_set_num_threads(3));
  CHECK_EQ(px_num_threads(), 3);
}
