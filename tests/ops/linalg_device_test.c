// SPDX-License-Identifier: Apache-2.0
// Matrix products on a device against the CPU, for all strided layouts.
//
// All matrices are windows of vectors with the same contents on both sides. The whole destination
// vector is compared, which also catches writes outside the window.
#include "kernels_help.h"
#include "phlox/memory.h"

enum { LENGTH = 4096 };
typedef struct window {
  int ndim;
  int64_t sizes[3], strides[3];
} window;
typedef struct sides {
  px_tensor *cpu, *device;
} sides;

static sides vector(px_dtype dtype) {
  sides v = {.cpu = pattern(dtype, S(LENGTH))};
  setenv("PHLOX_SIM_DEVICES", "1", 0);
  if (px_device_count(PX_CUDA) == 0) SKIP("no device of type cuda");
  OK(px_to_cuda(&v.device, v.cpu, px_cuda(0), false));
  return v;
}
static sides view_of(const sides *v, const window *w) {
  sides out = {0};
  OK(px_as_strided(&out.cpu, v->cpu, w->sizes, w->ndim, w->strides, w->ndim, NULL));
  OK(px_as_strided(&out.device, v->device, w->sizes, w->ndim, w->strides, w->ndim, NULL));
  return out;
}
static void release_sides(sides s) { px_release(s.cpu), px_release(s.device); }
static void check_same(sides v, double tolerance) {
  size_t bytes = LENGTH * px_dtype_size(px_tensor_dtype(v.cpu));
  char *to_device = malloc(bytes);
  OK(px_tensor_read(v.device, to_device, bytes));
  for (int i = 0; i < LENGTH; i++) {
    px_dtype dtype = px_tensor_dtype(v.cpu);
    size_t at = (size_t)i * px_dtype_size(dtype);
    double x = px_scalar_float(px_scalar_load(dtype, (char *)px_tensor_data(v.cpu) + at));
    CHECK_NEAR(px_scalar_float(px_scalar_load(dtype, to_device + at)), x, tolerance);
  }
  free(to_device);
}

// c = a b, or c += a b, in windows of three vectors. `s`, if given, is added.
static void check_product(px_dtype dtype, const window *wc, const window *wa, const window *wb,
                          const window *ws, double beta) {
  sides vc = vector(dtype), va = vector(dtype), vs = vector(dtype);
  sides c = view_of(&vc, wc), a = view_of(&va, wa), b = view_of(&va, wb);
  sides s = view_of(&vs, ws ? ws : wc);
  px_scalar two = px_float(2), times = px_float(beta);
  bool batch = wc->ndim == 3;
  if (!ws) {
    OK(batch ? px_bmm_out(c.cpu, a.cpu, b.cpu) : px_mm_out(c.cpu, a.cpu, b.cpu));
    OK(batch ? px_bmm_out(c.device, a.device, b.device) : px_mm_out(c.device, a.device, b.device));
  } else if (batch) {
    OK(px_baddbmm_out(c.cpu, s.cpu, a.cpu, b.cpu, times, two));
    OK(px_baddbmm_out(c.device, s.device, a.device, b.device, times, two));
  } else {
    OK(px_addmm_out(c.cpu, s.cpu, a.cpu, b.cpu, times, two));
    OK(px_addmm_out(c.device, s.device, a.device, b.device, times, two));
  }
  check_same(vc, dtype == PX_FLOAT16 || dtype == PX_BFLOAT16 ? 1 : 1e-4);
  release_sides(c), release_sides(a), release_sides(b), release_sides(s), release_sides(vc),
      release_sides(va), release_sides(vs);
}

// Layouts of an m x n matrix: dense, transposed, padded, two large strides, one row expanded.
enum { LAYOUTS = 6 };
static window matrix_of(int layout, int64_t m, int64_t n) {
  const int64_t strides[LAYOUTS][2] = {{n, 1},         {1, m}, {n + 3, 1},
                                       {2 * n + 5, 2}, {0, 1}, {3, 3 * m + 1}};
  return (window){2, {m, n, 0}, {strides[layout][0], strides[layout][1], 0}};
}
static window batch_of(int layout, int64_t count, int64_t m, int64_t n) {
  window one = matrix_of(layout, m, n);
  int64_t step = layout == 4 ? 0 : (m + 1) * (n + 1) * 4;
  return (window){3, {count, m, n}, {step, one.strides[0], one.strides[1]}};
}

PX_TEST(operands_may_have_any_strides) {
  for (int la = 0; la < LAYOUTS; la++)
    for (int lb = 0; lb < LAYOUTS; lb++) {
      window a = matrix_of(la, 7, 9), b = matrix_of(lb, 9, 5), c = matrix_of(0, 7, 5);
      check_product(PX_FLOAT32, &c, &a, &b, NULL, 0);
    }
}
PX_TEST(results_may_have_any_strides) {
  for (int lc = 0; lc < LAYOUTS; lc++) {
    if (lc == 4) continue;
    window a = matrix_of(lc % 2, 7, 9), b = matrix_of(2, 9, 5), c = matrix_of(lc, 7, 5);
    check_product(PX_FLOAT32, &c, &a, &b, NULL, 0);
    check_product(PX_FLOAT32, &c, &a, &b, &c, 3);
  }
}
PX_TEST(batches_may_have_any_strides) {
  for (int l = 0; l < LAYOUTS; l++) {
    window a = batch_of(l, 4, 6, 5), b = batch_of((l + 2) % LAYOUTS, 4, 5, 3);
    window c = batch_of(l == 4 ? 1 : l, 4, 6, 3);
    check_product(PX_FLOAT32, &c, &a, &b, NULL, 0);
    check_product(PX_FLOAT32, &c, &a, &b, &c, -1);
  }
}
PX_TEST(products_of_single_rows_and_columns) {
  for (int l = 0; l < LAYOUTS; l++) {
    window row = matrix_of(l, 1, 9), column = matrix_of(l, 9, 1), one = matrix_of(0, 1, 1);
    window square = matrix_of(0, 9, 9);
    check_product(PX_FLOAT32, &one, &row, &column, NULL, 0);
    check_product(PX_FLOAT32, &square, &column, &row, NULL, 0);
  }
}
// A layer with one sample, and a batch of such. Also lengths with a vector tail.
PX_TEST(matrix_vector_products) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  static const int64_t sizes[][2] = {{24, 40}, {16, 8}, {50, 72}, {17, 36}, {8, 240}, {5, 640}};
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 6; j++) {
      int64_t rows = sizes[j][0], n = sizes[j][1];
      window matrix = {2, {rows, n}, {n, 1}}, transposed = {2, {n, rows}, {1, n}};
      window row = matrix_of(0, 1, n), column = matrix_of(0, n, 1), bias = {1, {rows}, {3}};
      window across = {2, {1, rows}, {1, 2}}, down = {2, {rows, 1}, {2, 1}};
      check_product(dtypes[i], &across, &row, &transposed, NULL, 0);
      check_product(dtypes[i], &across, &row, &transposed, &bias, 0.5);
      check_product(dtypes[i], &down, &matrix, &column, NULL, 0);
      check_product(dtypes[i], &down, &matrix, &column, &down, 2);
    }
  window a = {3, {3, 1, 16}, {16, 16, 1}}, b = {3, {3, 16, 20}, {320, 1, 16}};
  window c = {3, {3, 1, 20}, {60, 1, 3}}, odd = {3, {3, 16, 20}, {321, 1, 16}};
  check_product(PX_FLOAT32, &c, &a, &b, NULL, 0);
  check_product(PX_FLOAT32, &c, &a, &b, &c, -1);
  check_product(PX_FLOAT32, &c, &a, &odd, NULL, 0);
}
// Rows long enough that two or four warps share one. They overlap.
PX_TEST(matrix_vector_products_of_long_rows) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  static const int64_t sizes[][2] = {{19, 3584}, {16, 1032}, {33, 2040}, {300, 776}, {17, 400}};
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 5; j++) {
      int64_t rows = sizes[j][0], n = sizes[j][1];
      window matrix = {2, {rows, n}, {8, 1}}, transposed = {2, {n, rows}, {1, 8}};
      window row = matrix_of(0, 1, n), column = matrix_of(0, n, 1), bias = {1, {rows}, {3}};
      window across = {2, {1, rows}, {1, 2}}, down = {2, {rows, 1}, {2, 1}};
      check_product(dtypes[i], &across, &row, &transposed, NULL, 0);
      check_product(dtypes[i], &down, &matrix, &column, NULL, 0);
      if (i < 2) check_product(dtypes[i], &across, &row, &transposed, &bias, 0.5);
    }
}
PX_TEST(the_addend_is_broadcast) {
  const window added[] = {{1, {5}, {1}},       {1, {1}, {1}},       {2, {7, 1}, {1, 1}},
                          {2, {1, 5}, {9, 2}}, {2, {7, 5}, {1, 7}}, {0, {0}, {0}}};
  window a = matrix_of(0, 7, 9), b = matrix_of(1, 9, 5), c = matrix_of(0, 7, 5);
  for (int i = 0; i < 6; i++) {
    check_product(PX_FLOAT32, &c, &a, &b, &added[i], 0.5);
    check_product(PX_FLOAT32, &c, &a, &b, &added[i], 0);
  }
}
PX_TEST(products_of_every_floating_dtype) {
  const px_dtype dtypes[] = {PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  window a = matrix_of(0, 17, 33), b = matrix_of(1, 33, 21), c = matrix_of(0, 17, 21);
  for (int i = 0; i < 3; i++) {
    check_product(dtypes[i], &c, &a, &b, NULL, 0);
    check_product(dtypes[i], &c, &a, &b, &(window){1, {21}, {1}}, 1);
  }
}
PX_TEST(an_empty_product_is_zero_or_the_addend) {
  window a = {2, {7, 0}, {1, 1}}, b = {2, {0, 5}, {5, 1}}, c = matrix_of(0, 7, 5);
  check_product(PX_FLOAT32, &c, &a, &b, NULL, 0);
  check_product(PX_FLOAT32, &c, &a, &b, &(window){1, {5}, {1}}, 2);
}
PX_TEST(inplace_addmm_accumulates) {
  sides v = vector(PX_FLOAT32), m = vector(PX_FLOAT32);
  window square = matrix_of(2, 8, 8);
  sides c = view_of(&v, &square), a = view_of(&m, &square);
  OK(px_addmm_(c.cpu, a.cpu, a.cpu, px_float(2), px_float(0.25)));
  OK(px_addmm_(c.device, a.device, a.device, px_float(2), px_float(0.25)));
  check_same(v, 1e-4);
  release_sides(c), release_sides(a), release_sides(v), release_sides(m);
}
PX_TEST(matrix_vector_and_dot_products) {
  sides v = vector(PX_FLOAT32);
  sides m = view_of(&v, &(window){2, {12, 40}, {81, 2}}), x = view_of(&v, &(window){1, {40}, {3}});
  sides y = {0}, d = {0};
  OK(px_mv(&y.cpu, m.cpu, x.cpu));
  OK(px_mv(&y.device, m.device, x.device));
  for (int i = 0; i < 12; i++) CHECK_NEAR(element(y.device, i), element(y.cpu, i), 1e-4);
  OK(px_dot(&d.cpu, x.cpu, x.cpu));
  OK(px_dot(&d.device, x.device, x.device));
  CHECK_NEAR(element(d.device, 0), element(d.cpu, 0), 1e-4);
  release_sides(v), release_sides(m), release_sides(x), release_sides(y), release_sides(d);
}

PX_TEST(einsum_without_a_sum_is_elementwise_in_every_dtype) {
  static const px_dtype dtypes[] = {PX_INT64, PX_INT8, PX_BOOL, PX_FLOAT32};
  setenv("PHLOX_SIM_DEVICES", "1", 0);
  if (px_device_count(PX_CUDA) == 0) SKIP("no device of type cuda");
  for (int i = 0; i < 4; i++) {
    px_tensor *here = made(dtypes[i], S(2), VALUES(1, 0)), *both[2] = {NULL};
    OK(px_to_cuda(&both[0], here, px_cuda(0), false));
    both[1] = both[0];
    PX_SCOPED(px_tensor) y = NULL;
    OK(px_einsum(&y, "i,j->ij", both, 2));
    ELEMENTS(y, 0, 1, 0, 0, 0);
    px_release(here), px_release(both[0]);
  }
}
