// SPDX-License-Identifier: Apache-2.0
// Device kernels against CPU kernels, for shapes larger than a CUDA block, strided or unaligned.
// (Samples of the op tables are in samples_device_test.c.)
#include "device_help.h"
#include "hidden.h"
#include "phlox/optim.h"

static void compare(const char *what, px_tensor *want, px_tensor *got, double tolerance) {
  bool good = agrees(what, want, got, tolerance);
  px_release(want), px_release(got);
  CHECK(good);
}
// Applies `expression` to a pattern x on the CPU and on the device. y is the result.
#define BOTH(dtype, shape, tolerance, expression) \
  do { \
    px_tensor *here_ = pattern(dtype, shape), *there_ = to_device(here_), *x = here_, *y = NULL; \
    OK(expression); \
    px_tensor *want_ = y; \
    x = there_, y = NULL; \
    OK(expression); \
    compare(#expression, want_, y, tolerance); \
    px_release(here_), px_release(there_); \
  } while (0)
#define SHAPE_OF(...) S(__VA_ARGS__)

PX_TEST(reductions_by_rows_columns_and_parts) {
  static const int64_t first = 0, last = 1, ends[] = {0, 2}, indices[] = {0, 2, 3};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16,
                                    PX_INT64,   PX_INT32,   PX_UINT8,   PX_BOOL};
  arrange();
  for (int i = 0; i < 8; i++) {
    double tolerance = tolerance_of(dtypes[i]);
    px_dtype none = PX_DTYPE_NONE;
    BOTH(dtypes[i], SHAPE_OF(3001, 70), tolerance, px_sum(&y, x, &first, 1, false, none));
    BOTH(dtypes[i], SHAPE_OF(3001, 72), tolerance, px_sum(&y, x, &first, 1, false, none));
    BOTH(dtypes[i], SHAPE_OF(3001, 70), tolerance, px_sum(&y, x, &last, 1, true, none));
    BOTH(dtypes[i], SHAPE_OF(3, 5000), tolerance, px_sum(&y, x, &last, 1, false, none));
    BOTH(dtypes[i], SHAPE_OF(300007), tolerance, px_sum_all(&y, x, none));
    BOTH(dtypes[i], SHAPE_OF(40, 50, 60), tolerance, px_sum(&y, x, ends, 2, false, none));
    // Channels of images with long, short and odd planes, and planes in several parts.
    BOTH(dtypes[i], SHAPE_OF(5, 7, 36, 40), tolerance, px_sum(&y, x, indices, 3, false, none));
    BOTH(dtypes[i], SHAPE_OF(70, 3, 23, 29), tolerance, px_sum(&y, x, indices, 3, true, none));
    BOTH(dtypes[i], SHAPE_OF(3, 2, 16, 32), tolerance, px_sum(&y, x, indices, 3, false, none));
    BOTH(dtypes[i], SHAPE_OF(2, 9, 120, 130), tolerance, px_sum(&y, x, indices, 3, false, none));
    BOTH(dtypes[i], SHAPE_OF(40, 50, 60), tolerance, px_amax(&y, x, &last, 1, false));
    BOTH(dtypes[i], SHAPE_OF(100, 3), tolerance, px_amin(&y, x, &last, 1, false));
  }
}

// Short and odd rows, with a few threads per row; dense rows, aligned or not, and views of them.
PX_TEST(reductions_of_rows_of_every_length) {
  static const int64_t lengths[] = {1, 2, 3, 7, 16, 31, 33, 100, 999, 1000, 1024, 1025, 4096, 9001};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16,
                                    PX_INT64,   PX_INT32,   PX_BOOL};
  static const int64_t last = 1;
  px_dtype none = PX_DTYPE_NONE;
  arrange();
  for (int i = 0; i < 14; i++)
    for (int k = 0; k < 7; k++) {
      int64_t n = lengths[i], rows = n < 300 ? 301 : 5;
      double tolerance = tolerance_of(dtypes[k]);
      px_tensor *view = NULL;
      BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance, px_sum(&y, x, &last, 1, false, none));
      BOTH(dtypes[k], SHAPE_OF(rows, n), 0, px_amax(&y, x, &last, 1, false));
      BOTH(dtypes[k], SHAPE_OF(rows, n), 0, px_all(&y, x, &last, 1, false));
      for (int64_t apart = 1; apart <= 16; apart += 15)
        BOTH(dtypes[k], SHAPE_OF(rows, n + apart), tolerance,
             (px_release(view), view = NULL, px_narrow(&view, x, 1, apart, n)) ||
                 px_sum(&y, view, &last, 1, false, none));
      px_release(view), view = NULL;
      if (dtypes[k] == PX_BOOL) continue;
      BOTH(dtypes[k], SHAPE_OF(rows, n), 0, px_argmax(&y, x, &last, false));
      if (dtypes[k] == PX_INT64 || dtypes[k] == PX_INT32) continue;
      BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance, px_mean(&y, x, &last, 1, false, none));
      if (n > 1)
        BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance, px_var(&y, x, &last, 1, px_int(1), false));
      BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance,
           px_norm(&y, x, px_float(2), &last, 1, false, none));
      BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance, px_logsumexp(&y, x, &last, 1, false));
    }
}

// A fixed order of additions gives bitwise equal results.
PX_TEST(row_sums_are_reproducible) {
  static const int64_t lengths[] = {3, 33, 100, 999, 1000, 5001}, last = 1;
  arrange();
  for (int i = 0; i < 6; i++) {
    px_tensor *here = pattern(PX_FLOAT32, S(301, lengths[i])), *on = to_device(here), *x = NULL;
    px_tensor *first = NULL, *again = NULL;
    OK(px_exp(&x, on));
    OK(px_sum(&first, x, &last, 1, false, PX_DTYPE_NONE));
    for (int turn = 0; turn < 3; turn++) {
      OK(px_sum(&again, x, &last, 1, false, PX_DTYPE_NONE));
      CHECK(agrees("again", first, again, 0));
      px_release(again), again = NULL;
    }
    px_release(here), px_release(on), px_release(x), px_release(first);
  }
}

// Values that need rounding, so that sums depend on their order.
static px_tensor *unrounded(px_dtype dtype, int ndim, const int64_t *sizes) {
  px_tensor *t = pattern(dtype, ndim, sizes);
  char *at = px_tensor_data(t);
  for (int64_t i = 0; i < px_tensor_numel(t); i++)
    px_scalar_store(px_float(sin((double)i) * (i % 3 ? 1 : 1000)), dtype,
                    at + (size_t)i * px_dtype_size(dtype));
  return t;
}
static px_tensor *indices(int64_t n, int64_t below) {
  px_tensor *t = pattern(PX_INT64, S(n));
  int64_t *at = px_tensor_data(t);
  for (int64_t i = 0; i < n; i++) at[i] = i * i * 7 % below;
  return t;
}

PX_TEST(deterministic_index_sums_match_the_cpu) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  static const int64_t shapes[][2] = {{5000, 1}, {3000, 7}, {700, 64}, {64, 700}, {0, 3}},
                       first = 0;
  arrange();
  px_setting_set(PX_SETTING_DETERMINISTIC, 1);
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 5; k++) {
      int64_t n = shapes[k][0], width = shapes[k][1];
      PX_SCOPED(px_tensor) here = indices(n, 13);
      PX_SCOPED(px_tensor) on = to_device(here);
      PX_SCOPED(px_tensor) source = unrounded(dtypes[i], S(n, width));
      PX_SCOPED(px_tensor) source_on_device = to_device(source);
      for (int turn = 0; turn < 3; turn++) {
        BOTH(dtypes[i], SHAPE_OF(13, width), 0,
             px_index_add(&y, x, 0, x == here_ ? here : on, x == here_ ? source : source_on_device,
                          px_int(1)));
        BOTH(dtypes[i], SHAPE_OF(13, width), 0,
             px_index_put(&y, x, x == here_ ? &here : &on, 1, &first, 1,
                          x == here_ ? source : source_on_device, true));
      }
    }
}

PX_TEST(deterministic_gradients_of_indexing_match_the_cpu) {
  static const int64_t small[] = {4, 3, 5}, line[] = {4, 90, 5}, plane[] = {4, 3, 5};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64};
  arrange();
  px_setting_set(PX_SETTING_DETERMINISTIC, 1);
  for (int i = 0; i < 2; i++) {
    PX_SCOPED(px_tensor) grad = unrounded(dtypes[i], 3, line);
    PX_SCOPED(px_tensor) at = pattern(PX_INT64, 3, line);
    int64_t *indices = px_tensor_data(at);
    for (int64_t k = 0; k < px_tensor_numel(at); k++) indices[k] = k * k * 7 % 3;
    PX_SCOPED(px_tensor) grad_there = to_device(grad);
    PX_SCOPED(px_tensor) at_there = to_device(at);
    px_tensor *want = NULL, *got = NULL;
    OK(HIDDEN(place_along, (&want), PX_T(grad), PX_T(at), PX_I(1), PX_IS(small, 3)));
    OK(HIDDEN(place_along, (&got), PX_T(grad_there), PX_T(at_there), PX_I(1), PX_IS(small, 3)));
    compare("place_along", want, got, 0);
    OK(HIDDEN(max_pool2d_backward, (&want), PX_T(grad), PX_T(at), PX_IS(plane, 3)));
    OK(HIDDEN(max_pool2d_backward, (&got), PX_T(grad_there), PX_T(at_there), PX_IS(plane, 3)));
    compare("max_pool2d_backward", want, got, 0);
  }
}

PX_TEST(copies_of_every_layout) {
  static const int64_t axes[] = {2, 0, 1}, dims[] = {0, 1};
  arrange();
  for (px_dtype d = PX_BOOL; d < PX_DTYPE_COUNT; d++) {
    px_tensor *view = NULL;
    BOTH(d, SHAPE_OF(100, 333), 0,
         (px_release(view), view = NULL, px_transpose(&view, x, 0, 1)) || px_clone(&y, view, NULL));
    px_release(view), view = NULL;
    BOTH(d, SHAPE_OF(100, 333), 0,
         (px_release(view), view = NULL, px_transpose(&view, x, 0, 1)) || px_contiguous(&y, view));
    px_release(view), view = NULL;
    BOTH(d, SHAPE_OF(9, 40, 35), 0,
         (px_release(view), view = NULL, px_permute(&view, x, axes, 3)) || px_contiguous(&y, view));
    px_release(view), view = NULL;
    BOTH(d, SHAPE_OF(1003), 0,
         (px_release(view), view = NULL, px_narrow(&view, x, 0, 1, 1001)) ||
             px_clone(&y, view, NULL));
    px_release(view), view = NULL;
    BOTH(d, SHAPE_OF(33, 65), 0, px_flip(&y, x, dims, 2));
    // Devices convert negative floats to unsigned dtypes in another way.
    bool integers = px_dtype_is_integer(d) || d == PX_BOOL;
    for (px_dtype to = PX_BOOL; to < PX_DTYPE_COUNT; to++)
      if (integers ? to != PX_UINT8 : px_dtype_about(to)->kind != 'u')
        BOTH(d, SHAPE_OF(1003), 0, px_to(&y, x, to, PX_DEVICE_NONE, false, false));
  }
}

PX_TEST(transposes_in_wide_tiles) {
  static const int64_t axes[] = {1, 0, 2};
  arrange();
  for (px_dtype d = PX_BOOL; d < PX_DTYPE_COUNT; d++) {
    px_tensor *view = NULL;
    BOTH(d, SHAPE_OF(272, 144), 0,
         (px_release(view), view = NULL, px_transpose(&view, x, 0, 1)) || px_contiguous(&y, view));
    px_release(view), view = NULL;
    BOTH(d, SHAPE_OF(5, 48, 160), 0,
         (px_release(view), view = NULL, px_transpose(&view, x, 1, 2)) || px_contiguous(&y, view));
    px_release(view), view = NULL;
    BOTH(d, SHAPE_OF(7, 9, 32), 0,
         (px_release(view), view = NULL, px_permute(&view, x, axes, 3)) || px_contiguous(&y, view));
    px_release(view);
  }
}

// One operand repeats a row, or one element per row.
PX_TEST(elementwise_on_aligned_rows) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_UINT8, PX_INT64};
  static const int64_t widths[] = {16, 64, 100, 7};
  px_scalar two = px_int(2);
  arrange();
  for (int k = 0; k < 5; k++)
    for (int i = 0; i < 4; i++)
      for (int64_t dim = 0; dim < 2; dim++) {
        px_tensor *t = NULL, *c = NULL;
        BOTH(dtypes[k], SHAPE_OF(33, widths[i]), tolerance_of(dtypes[k]),
             (px_release(t), t = NULL, px_narrow(&t, x, (int)dim, 0, 1)) || px_add(&y, x, t, two));
        px_release(t), t = NULL;
        BOTH(dtypes[k], SHAPE_OF(33, widths[i] + 16), tolerance_of(dtypes[k]),
             (px_release(t), px_release(c), t = c = NULL, px_narrow(&t, x, 1, 16, widths[i])) ||
                 px_contiguous(&c, t) || px_mul(&y, t, c));
        px_release(t), px_release(c);
      }
}

// Operands strided along the rows of the result: transposed ones, and each second element.
PX_TEST(elementwise_on_transposed_operands) {
  static const px_dtype dtypes[] = {PX_FLOAT32,  PX_FLOAT64, PX_FLOAT16,
                                    PX_BFLOAT16, PX_UINT8,   PX_INT64};
  static const int64_t shapes[][2] = {{64, 64}, {272, 144}, {40, 100}, {33, 65}, {2, 16}};
  px_scalar two = px_int(2);
  arrange();
  for (int k = 0; k < 6; k++)
    for (int i = 0; i < 5; i++) {
      int64_t n = shapes[i][0], m = shapes[i][1], transposed_sizes[] = {3, m, n}, start = 1,
              end = 2 * m;
      px_tensor *t = NULL, *u = NULL;
      BOTH(dtypes[k], SHAPE_OF(3, n, m), tolerance_of(dtypes[k]),
           (px_release(t), px_release(u), t = u = NULL, px_transpose(&t, x, 1, 2)) ||
               px_reshape(&u, x, transposed_sizes, 3) || px_add(&y, u, t, two));
      px_release(t), px_release(u), t = u = NULL;
      BOTH(dtypes[k], SHAPE_OF(3, n, m), tolerance_of(dtypes[k]),
           (px_release(t), t = NULL, px_transpose(&t, x, 1, 2)) ||
               px_to(&y, t, PX_FLOAT32, PX_DEVICE_NONE, false, false));
      px_release(t), t = NULL;
      BOTH(dtypes[k], SHAPE_OF(n, 2 * m), tolerance_of(dtypes[k]),
           (px_release(t), px_release(u), t = u = NULL, px_slice(&t, x, 1, &start, &end, 2)) ||
               px_narrow(&u, x, 1, 0, m) || px_add(&y, t, u, two));
      px_release(t), px_release(u);
    }
}

PX_TEST(elementwise_on_strided_mixed_or_unaligned_operands) {
  arrange();
  px_scalar one = px_float(1.5), two = px_int(2);
  px_tensor *t = NULL, *u = NULL;
  BOTH(PX_FLOAT32, SHAPE_OF(64, 64), 1e-6,
       (px_release(t), t = NULL, px_transpose(&t, x, 0, 1)) || px_add(&y, x, t, two));
  px_release(t), t = NULL;
  BOTH(PX_FLOAT16, SHAPE_OF(1001), 1e-3,
       (px_release(t), px_release(u), t = u = NULL, px_narrow(&t, x, 0, 1, 999)) ||
           px_to(&u, t, PX_FLOAT32, PX_DEVICE_NONE, false, false) || px_mul(&y, t, u));
  px_release(t), px_release(u);
  BOTH(PX_INT32, SHAPE_OF(1001), 0, px_add_scalar(&y, x, two, two));
  BOTH(PX_BFLOAT16, SHAPE_OF(4099), 2e-2, px_add_scalar(&y, x, one, two));
  BOTH(PX_FLOAT32, SHAPE_OF(4099), 0, px_lt_scalar(&y, x, one));
  BOTH(PX_FLOAT32, SHAPE_OF(4099), 1e-5, px_gelu(&y, x, "tanh"));
}

// Rows kept in registers, with few or many threads per row, and longer ones.
PX_TEST(row_kernels_of_every_length) {
  static const int64_t lengths[] = {1, 7, 64, 250, 1000, 1500, 3000, 5001, 16384, 20000};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  arrange();
  for (int i = 0; i < 10; i++)
    for (int k = 0; k < 4; k++) {
      int64_t n = lengths[i], rows = n < 300 ? 301 : 3;
      double tolerance = tolerance_of(dtypes[k]);
      px_dtype none = PX_DTYPE_NONE;
      px_tensor *out = NULL, *mean = NULL, *rstd = NULL, *dw = NULL, *db = NULL;
      fill_registers_with_nan();
      BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance, px_softmax(&y, x, 1, none));
      BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance * 4, px_log_softmax(&y, x, -1, none));
      BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance * 4,
           HIDDEN(softmax_backward, (&y), PX_T(x), PX_T(x), PX_I(1)));
      BOTH(dtypes[k], SHAPE_OF(2, n, 5), tolerance, px_softmax(&y, x, 1, none));
      BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance * 10,
           px_layer_norm(&y, x, &n, 1, NULL, NULL, 1e-1));
      BOTH(dtypes[k], SHAPE_OF(rows, n), tolerance * 10,
           (px_release(out), px_release(mean), px_release(rstd), px_release(dw), px_release(db),
            out = mean = rstd = dw = db = NULL,
            px_layer_norm_with_statistics(&out, &mean, &rstd, x, &n, 1, NULL, NULL, 1e-1)) ||
               HIDDEN(layer_norm_backward, (&y, &dw, &db), PX_T(x), PX_T(x), PX_IS(&n, 1),
                      PX_T(mean), PX_T(rstd)));
      px_release(out), px_release(mean), px_release(rstd), px_release(dw), px_release(db);
    }
}

// Sums over all rows, with and without a weight.
PX_TEST(gradients_of_layer_norm_of_every_length) {
  static const int64_t lengths[] = {1, 7, 8, 24, 48, 64, 100, 300, 768, 1024, 4000, 8192, 9001};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  arrange();
  for (int i = 0; i < 13; i++)
    for (int k = 0; k < 4; k++)
      for (int weighted = 0; weighted < 2; weighted++) {
        int64_t n = lengths[i], rows = n < 300 ? 5003 : 41;
        double tolerance = tolerance_of(dtypes[k]) * 20;
        px_tensor *x[2] = {pattern(dtypes[k], S(rows, n))}, *w[2] = {pattern(dtypes[k], S(n))};
        px_tensor *of[2][3] = {{0}}, *out = NULL, *mean = NULL, *rstd = NULL;
        x[1] = to_device(x[0]), w[1] = to_device(w[0]);
        for (int side = 0; side < 2; side++) {
          OK(px_layer_norm_with_statistics(&out, &mean, &rstd, x[side], &n, 1, NULL, NULL, 1e-1));
          fill_registers_with_nan();
          OK(HIDDEN(layer_norm_backward, (&of[side][0], &of[side][1], &of[side][2]), PX_T(x[side]),
                    PX_T(x[side]), PX_IS(&n, 1), PX_T(mean), PX_T(rstd),
                    PX_T(weighted ? w[side] : NULL)));
          px_release(out), px_release(mean), px_release(rstd);
          px_release(x[side]), px_release(w[side]);
        }
        compare("of the input", of[0][0], of[1][0], tolerance);
        compare("of the weight", of[0][1], of[1][1], tolerance);
        compare("of the bias", of[0][2], of[1][2], tolerance);
      }
}

// By warps, blocks and several parts of a channel, with vectors and single elements.
PX_TEST(group_norm_of_every_size) {
  static const int64_t shapes[][4] = {{3, 6, 1, 3},    {2, 8, 64, 2},   {4, 6, 77, 3},
                                      {2, 4, 2048, 2}, {1, 3, 9001, 1}, {2, 64, 16, 1},
                                      {1, 2, 32768, 2}};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  arrange();
  for (int i = 0; i < 7; i++)
    for (int k = 0; k < 4; k++)
      for (int weighted = 0; weighted < 2; weighted++) {
        const int64_t *s = shapes[i];
        double tolerance = tolerance_of(dtypes[k]) * 40;
        px_tensor *x[2] = {pattern(dtypes[k], S(s[0], s[1], s[2]))},
                  *w[2] = {pattern(dtypes[k], S(s[1]))};
        px_tensor *of[2][3] = {{0}}, *out[2] = {0}, *mean = NULL, *rstd = NULL;
        x[1] = to_device(x[0]), w[1] = to_device(w[0]);
        fill_registers_with_nan();
        for (int side = 0; side < 2; side++) {
          px_tensor *weight = weighted ? w[side] : NULL;
          OK(HIDDEN(grouped_norm, (&out[side], &mean, &rstd), PX_T(x[side]), PX_I(s[3]),
                    PX_T(weight), PX_T(weight), PX_F(0.1)));
          OK(HIDDEN(grouped_norm_backward, (&of[side][0], &of[side][1], &of[side][2]),
                    PX_T(out[side]), PX_T(x[side]), PX_I(s[3]), PX_T(mean), PX_T(rstd),
                    PX_T(weight)));
          px_release(mean), px_release(rstd), px_release(x[side]), px_release(w[side]);
        }
        compare("of groups", out[0], out[1], tolerance);
        compare("of the input", of[0][0], of[1][0], tolerance);
        compare("of the weight", of[0][1], of[1][1], tolerance);
        compare("of the bias", of[0][2], of[1][2], tolerance);
      }
}

// Rows of each length and alignment, with some ignored.
PX_TEST(losses_of_many_classes) {
  static const int64_t sizes[] = {1, 3, 64, 1000, 1024, 9001, 20000};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  enum { ROWS = 37 };
  arrange();
  for (int i = 0; i < 7; i++)
    for (int k = 0; k < 4; k++) {
      int64_t targets[ROWS];
      px_tensor *x[2] = {pattern(dtypes[k], S(ROWS, sizes[i]))}, *t[2] = {0};
      px_tensor *losses[2] = {0}, *sums[2] = {0}, *of[2] = {0};
      for (int r = 0; r < ROWS; r++) targets[r] = r % 5 == 4 ? -1 : r * 7919 % sizes[i];
      OK(px_tensor_from_data(&t[0], targets, 1, (int64_t[]){ROWS}, PX_INT64, px_cpu()));
      x[1] = to_device(x[0]), t[1] = to_device(t[0]);
      for (int side = 0; side < 2; side++) {
        OK(HIDDEN(class_losses, (&losses[side], &sums[side]), PX_T(x[side]), PX_T(t[side]),
                  PX_I(-1)));
        OK(HIDDEN(class_losses_backward, (&of[side]), PX_T(sums[side]), PX_T(x[side]),
                  PX_T(t[side]), PX_T(sums[side]), PX_I(-1)));
        px_release(x[side]), px_release(t[side]);
      }
      compare("losses", losses[0], losses[1], 1e-5);
      compare("logarithms of sums", sums[0], sums[1], 1e-5);
      compare("gradient", of[0], of[1], tolerance_of(dtypes[k]) * 4);
    }
}

PX_TEST(reductions_with_indices_by_rows_columns_and_parts) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16, PX_INT64};
  static const int64_t shapes[][2] = {{3, 70001}, {1, 300008}, {5001, 70}, {200, 9}, {70, 2048}};
  static const double orders[] = {2, 1, 0, 3, INFINITY, -INFINITY};
  arrange();
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < 5; k++)
      for (int64_t dim = 0; dim < 2; dim++) {
        double tolerance = tolerance_of(dtypes[k]);
        const int64_t *shape = shapes[i];
        px_tensor *indices = NULL;
        BOTH(dtypes[k], SHAPE_OF(shape[0], shape[1]), 0, px_argmax(&y, x, &dim, false));
        BOTH(dtypes[k], SHAPE_OF(shape[0], shape[1]), 0, px_argmin(&y, x, &dim, true));
        BOTH(dtypes[k], SHAPE_OF(shape[0], shape[1]), 0,
             (px_release(indices), indices = NULL, px_max_dim(&y, &indices, x, dim, false)));
        px_release(indices);
        if (dtypes[k] == PX_INT64) continue;
        if (shape[dim] > 1)
          BOTH(dtypes[k], SHAPE_OF(shape[0], shape[1]), tolerance,
               px_var(&y, x, &dim, 1, px_int(1), false));
        BOTH(dtypes[k], SHAPE_OF(shape[0], shape[1]), tolerance,
             px_logsumexp(&y, x, &dim, 1, false));
        for (int o = 0; o < 6; o++)
          BOTH(dtypes[k], SHAPE_OF(shape[0], shape[1]), tolerance,
               px_norm(&y, x, px_float(orders[o]), &dim, 1, false, PX_DTYPE_NONE));
      }
  BOTH(PX_FLOAT32, SHAPE_OF(7, 40001), 0, px_argmax(&y, x, NULL, false));
}

PX_TEST(cumulative_sums_along_rows_and_columns) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16, PX_INT64};
  px_dtype none = PX_DTYPE_NONE;
  arrange();
  for (int k = 0; k < 5; k++) {
    double tolerance = tolerance_of(dtypes[k]);
    BOTH(dtypes[k], SHAPE_OF(4, 3001), tolerance, px_cumsum(&y, x, 1, none));
    BOTH(dtypes[k], SHAPE_OF(301, 40), tolerance, px_cumsum(&y, x, 0, none));
    BOTH(dtypes[k], SHAPE_OF(100003), tolerance, px_cumsum(&y, x, 0, none));
    BOTH(dtypes[k], SHAPE_OF(2, 3000, 3), tolerance, px_cumsum(&y, x, 1, none));
  }
  BOTH(PX_INT64, SHAPE_OF(3, 20), 0, px_cumprod(&y, x, 1, none));
}

// Pairs as complex numbers; products are on the unit circle.
static px_status run_complex(px_tensor **out, const px_tensor *pairs, int64_t dim, bool product) {
  PX_SCOPED(px_tensor) numbers = NULL;
  PX_SCOPED(px_tensor) shifted = NULL;
  PX_SCOPED(px_tensor) units = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_view_as_complex(&numbers, pairs));
  PX_TRY(px_add_scalar(&shifted, numbers, px_float(0.3), px_int(1)));
  PX_TRY(px_sgn(&units, shifted));
  PX_TRY(product ? px_cumprod(&made, units, dim, PX_DTYPE_NONE)
                 : px_logcumsumexp(&made, shifted, dim));
  return px_view_as_real(out, made);
}
PX_TEST(complex_cumprod_and_logcumsumexp) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64};
  arrange();
  for (int k = 0; k < 2; k++)
    for (int product = 0; product < 2; product++) {
      double tolerance = tolerance_of(dtypes[k]);
      BOTH(dtypes[k], SHAPE_OF(3, 3001, 2), tolerance, run_complex(&y, x, 1, product));
      BOTH(dtypes[k], SHAPE_OF(300, 40, 2), tolerance, run_complex(&y, x, 0, product));
      BOTH(dtypes[k], SHAPE_OF(50, 7, 2), tolerance, run_complex(&y, x, 1, product));
    }
}

PX_TEST(batch_norm_by_channel) {
  static const int64_t shapes[][3] = {{40, 70, 1},  {3, 5, 7},   {2, 3, 5000},  // in pieces
                                      {300, 2, 49}, {900, 1, 1}, {1, 3, 9001}, {50, 40, 196}};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  arrange();
  for (int i = 0; i < 7; i++)
    for (int k = 0; k < 4; k++) {
      double tolerance = tolerance_of(dtypes[k]) * 10;
      const int64_t *s = shapes[i];
      px_tensor *out = NULL, *mean = NULL, *invstd = NULL, *var = NULL, *dw = NULL, *db = NULL;
      fill_registers_with_nan();
#define NORM \
  (px_release(out), px_release(mean), px_release(invstd), px_release(var), px_release(dw), \
   px_release(db), out = mean = invstd = var = dw = db = NULL, \
   HIDDEN(native_batch_norm, (&out, &mean, &invstd, &var), PX_T(x), PX_NONE(), PX_NONE(), \
          PX_NONE(), PX_NONE(), PX_B(true), PX_F(0.1)))
#define BACK \
  HIDDEN(batch_norm_backward, (&y, &dw, &db), PX_T(x), PX_T(x), PX_NONE(), PX_NONE(), PX_NONE(), \
         PX_T(mean), PX_T(invstd), PX_B(true), PX_F(0.1))
      BOTH(dtypes[k], SHAPE_OF(s[0], s[1], s[2]), tolerance, NORM || (y = out, out = NULL, PX_OK));
      BOTH(dtypes[k], SHAPE_OF(s[0], s[1], s[2]), tolerance,
           NORM || (y = mean, mean = NULL, PX_OK));
      BOTH(dtypes[k], SHAPE_OF(s[0], s[1], s[2]), tolerance, NORM || (y = var, var = NULL, PX_OK));
      BOTH(dtypes[k], SHAPE_OF(s[0], s[1], s[2]), tolerance, NORM || BACK);
      px_release(out), px_release(mean), px_release(invstd), px_release(var);
      px_release(dw), px_release(db);
    }
}

PX_TEST(nonzero_of_any_size) {
  static const int64_t sizes[] = {1, 4096, 4097, 300001};
  arrange();
  for (int i = 0; i < 4; i++) {
    BOTH(PX_BOOL, SHAPE_OF(sizes[i]), 0, px_nonzero(&y, x));
    BOTH(PX_FLOAT32, SHAPE_OF(3, sizes[i]), 0, px_nonzero(&y, x));
  }
}

// Copies of 16 bytes and less, and unaligned rows.
PX_TEST(row_gathers_of_any_width) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_UINT8};
  static const int64_t widths[] = {1, 2, 3, 4, 6, 8, 16, 100};
  arrange();
  px_tensor *here = made(PX_INT64, S(5), VALUES(4, 0, 6, 6, 1)), *index = NULL;
  px_tensor *device = to_device(here);
  for (int k = 0; k < 4; k++)
    for (int i = 0; i < 8; i++) {
      px_tensor *view = NULL;
      BOTH(dtypes[k], SHAPE_OF(7, widths[i]), 0,
           (index = px_tensor_device(x).type == PX_CPU ? here : device,
            px_index_select(&y, x, 0, index)));
      BOTH(dtypes[k], SHAPE_OF(7, 1 + widths[i]), 0,
           (px_release(view), view = NULL,
            index = px_tensor_device(x).type == PX_CPU ? here : device,
            px_narrow(&view, x, 1, 1, widths[i])) ||
               px_index_select(&y, view, 0, index));
      px_release(view);
    }
  px_release(here), px_release(device);
}

PX_TEST(pooling_windows_of_every_kind) {
  static const struct {
    int64_t kernel[2], stride[2], padding[2], dilation[2];
  } windows[] = {{{2, 2}, {2, 2}, {0, 0}, {1, 1}},
                 {{3, 2}, {1, 2}, {1, 1}, {1, 1}},
                 {{3, 3}, {2, 3}, {1, 0}, {2, 1}},
                 {{2, 3}, {3, 4}, {0, 1}, {1, 3}}};
  arrange();
  for (int i = 0; i < 4; i++)
    for (px_dtype d = PX_FLOAT16; d <= PX_FLOAT64; d++) {
      px_tensor *here = pattern(d, S(3, 5, 17, 19)), *sides[2] = {here, to_device(here)};
      px_tensor *out[2] = {0}, *at[2] = {0}, *back[2] = {0};
      for (int k = 0; k < 2; k++) {
        OK(px_max_pool2d_with_indices(&out[k], &at[k], sides[k], windows[i].kernel, 2,
                                      windows[i].stride, 2, windows[i].padding, 2,
                                      windows[i].dilation, 2, false));
        OK(HIDDEN(max_pool2d_backward, (&back[k]), PX_T(out[k]), PX_T(at[k]),
                  PX_IS(px_tensor_sizes(here), 4), PX_IS(windows[i].kernel, 2),
                  PX_IS(windows[i].stride, 2), PX_IS(windows[i].padding, 2),
                  PX_IS(windows[i].dilation, 2)));
      }
      px_release(sides[0]), px_release(sides[1]);
      compare("maxima", out[0], out[1], 0);
      compare("places", at[0], at[1], 0);
      compare("gradients", back[0], back[1], tolerance_of(d));
    }
}

PX_TEST(sorts_are_stable_for_any_length) {
  static const int64_t shapes[][2] = {{3, 5001}, {700, 5}, {1, 1}, {2, 1024}};
  arrange();
  for (int i = 0; i < 4; i++)
    for (int down = 0; down < 2; down++) {
      px_tensor *a = pattern(PX_FLOAT32, 2, shapes[i]), *b = to_device(a);
      px_tensor *v = NULL, *w = NULL, *vi = NULL, *wi = NULL;
      OK(px_sort(&v, &vi, a, 1, down, true));
      OK(px_sort(&w, &wi, b, 1, down, true));
      compare("values", v, w, 0);
      compare("indices", vi, wi, 0);
      px_release(a), px_release(b);
    }
}

// Multiples of 1/2 and small integers: sums are exact in any order.
PX_TEST(row_scatter_adds_of_any_width) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16, PX_INT64};
  static const int64_t widths[] = {1, 3, 4, 8, 64};
  arrange();
  px_tensor *here = made(PX_INT64, S(5), VALUES(4, 0, 6, 6, 1)), *device = to_device(here);
  for (int k = 0; k < 5; k++)
    for (int i = 0; i < 5; i++) {
      px_tensor *rows = NULL;
      BOTH(dtypes[k], SHAPE_OF(7, widths[i]), 0,
           (px_release(rows), rows = NULL, px_narrow(&rows, x, 0, 2, 5)) ||
               px_index_add(&y, x, 0, px_tensor_device(x).type == PX_CPU ? here : device, rows,
                            px_int(1)));
      px_release(rows);
    }
  px_release(here), px_release(device);
}

PX_TEST(topk_of_long_rows) {
  static const int64_t sizes[] = {5, 1024, 1025, 3000, 70001}, counts[] = {1, 5, 200, 300};
  arrange();
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < 4; k++) {
      px_tensor *indices = NULL;
      if (counts[k] > sizes[i]) continue;
      BOTH(PX_FLOAT32, SHAPE_OF(3, sizes[i]), 0,
           (px_release(indices), indices = NULL,
            px_topk(&y, &indices, x, counts[k], 1, true, true)));
      px_release(indices), indices = NULL;
      BOTH(
          PX_INT64, SHAPE_OF(3, sizes[i]), 0,
          (px_release(indices), indices = NULL, px_kthvalue(&y, &indices, x, counts[k], 1, false)));
      px_release(indices);
    }
}

// Two optimizer steps on one side, with all options except those excluded by `way`.
enum { MAXIMIZE = 1, ON_DEVICE = 2, WAYS = 4 };
static void take_steps(const px_optimizer_kind *kind, px_tensor *param, px_tensor *grad,
                       px_tensor **state, int way) {
  double options[16];
  int count;
  const px_option *rows = px_optimizer_kind_options(kind, &count);
  for (int k = 0; k < count; k++) {
    options[k] = rows[k].type == 'b' ? strcmp(rows[k].name, "nesterov") != 0 : rows[k].fallback;
    if (!strcmp(rows[k].name, "momentum") || !strcmp(rows[k].name, "weight_decay"))
      options[k] = 0.1;
    if (!strcmp(rows[k].name, "eps")) options[k] = 1e-2;
    if (!strcmp(rows[k].name, "maximize")) options[k] = way & MAXIMIZE;
    if (!strcmp(rows[k].name, "capturable")) options[k] = way & ON_DEVICE ? 1 : 0;
  }
  OK(px_tensor_set_requires_grad(param, true));
  OK(px_tensor_set_grad(param, grad));
  PX_SCOPED(px_tensor) rate = NULL;
  if (way & ON_DEVICE)
    OK(px_full(&rate, NULL, 0, px_float(options[0]), PX_FLOAT64, px_tensor_device(param), false,
               false));
  px_step_options manner = {.on_device = way & ON_DEVICE, .rate = rate};
  for (int step = 0; step < 2; step++)
    OK(px_optimizer_kind_step(kind, options, &manner, &param, state, 1));
}

PX_TEST(optimizers_step_in_every_dtype) {
  arrange();
  for (int i = 0; px_optimizer_kind_at(i); i++)
    for (px_dtype d = PX_FLOAT16; d <= PX_FLOAT64; d++)
      for (int way = 0; way < WAYS; way++) {
        const px_optimizer_kind *kind = px_optimizer_kind_at(i);
        px_tensor *state[2][PX_OPTIMIZER_STATES] = {{0}}, *param[2] = {0};
        for (int side = 0; side < 2; side++) {
          px_tensor *grad = pattern(d, S(1003)), *moved = side ? to_device(grad) : px_retain(grad);
          OK(px_clone(&param[side], moved, NULL));
          take_steps(kind, param[side], moved, state[side], side ? way : way & MAXIMIZE);
          px_release(grad), px_release(moved);
        }
        const char *name = px_optimizer_kind_name(kind);
        for (int side = 0; side < 2; side++) OK(px_tensor_set_requires_grad(param[side], false));
        compare(name, param[0], param[1], 4 * tolerance_of(d));
        for (int k = 0; px_optimizer_kind_state(kind, k); k++)
          if (!px_optimizer_kind_scalar(kind, k))
            compare(name, state[0][k], state[1][k], 4 * tolerance_of(d));
          else if (way & ON_DEVICE)
            compare(name, state[0][k], state[1][k], 1e-6);
          else
            px_release(state[0][k]), px_release(state[1][k]);
      }
}

// ---- faults

PX_TEST(an_invalid_index_leaves_the_device_usable) {
  arrange();
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) bad = NULL;
  px_tensor *here = pattern(PX_FLOAT32, S(5, 3)), *y = NULL, *z = NULL;
  x = to_device(here);
  px_tensor *index = made(PX_INT64, S(2), VALUES(1, 9));
  bad = to_device(index);
  px_status status = px_index_select(&y, x, 0, bad);
  if (!status) status = px_device_synchronize(0);
  CHECK_EQ(status, PX_INDEX);
  CHECK(strstr(px_error_last()->message, "index 9") ||
        strstr(px_error_last()->message, "index out"));
  px_error_clear();
  OK(px_add_scalar(&z, x, px_float(1), px_int(1)));
  OK(px_device_synchronize(0));
  px_release(here), px_release(index), px_release(y), px_release(z);
}

PX_TEST(integers_divided_by_zero_are_reported) {
  arrange();
  px_tensor *here = made(PX_INT64, S(3), VALUES(4, 5, 6)),
            *none = made(PX_INT64, S(3), VALUES(2, 0, 3));
  px_tensor *a = to_device(here), *b = to_device(none), *y = NULL;
  px_status status = px_floor_divide(&y, a, b);
  if (!status) status = px_device_synchronize(0);
  CHECK_EQ(status, PX_RUNTIME);
  CHECK(strstr(px_error_last()->message, "ZeroDivisionError"));
  px_error_clear();
  OK(px_device_synchronize(0));
  px_release(here), px_release(none), px_release(a), px_release(b), px_release(y);
}

// ---- random numbers of seed 0: PyTorch's on CUDA devices

static px_tensor *empty(px_dtype dtype, int64_t n) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, 1, &n, dtype, px_cuda(0)));
  px_manual_seed(0);
  return t;
}
PX_TEST(random_numbers_match_pytorch) {
  static const int64_t low = 0, high = 100;
  arrange();
  px_tensor *u = empty(PX_FLOAT32, 5);
  OK(px_uniform_(u, 0, 1, NULL));
  ELEMENTS(u, 1e-9, 0.399046481, 0.516679168, 0.024930386, 0.940079391, 0.945854127);
  px_tensor *g = empty(PX_FLOAT32, 3);
  OK(px_normal_(g, 0, 1, NULL));
  ELEMENTS(g, 1e-6, -0.924662411, -0.425344229, -2.643845797);
  px_tensor *i = empty(PX_INT64, 5);
  OK(px_random_(i, &low, &high, NULL));
  ELEMENTS(i, 0, 41, 97, 91, 72, 53);
  px_tensor *p = empty(PX_INT64, 5);
  OK(HIDDEN_INPLACE(randperm_fill, PX_T(p)));
  ELEMENTS(p, 0, 1, 4, 2, 0, 3);
  px_release(u), px_release(g), px_release(i), px_release(p);
}
PX_TEST(permutations_hold_every_number_once) {
  enum { N = 5000 };
  arrange();
  PX_SCOPED(px_tensor) p = empty(PX_INT64, N);
  int64_t values[N];
  bool seen[N] = {false};
  OK(HIDDEN_INPLACE(randperm_fill, PX_T(p)));
  OK(px_tensor_read(p, values, sizeof values));
  for (int i = 0; i < N; i++) {
    CHECK(values[i] >= 0 && values[i] < N && !seen[values[i]]);
    seen[values[i]] = true;
  }
}
