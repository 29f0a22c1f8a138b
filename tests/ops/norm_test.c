// SPDX-License-Identifier: Apache-2.0
// Softmax and normalisation: reference values, extreme inputs, and running statistics.
#include "hidden.h"
#include "kernels_help.h"

PX_TEST(softmax_of_two) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(2, 2), VALUES(0, 0, 0, 1));
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_softmax(&y, x, 1, PX_DTYPE_NONE));
  ELEMENTS(y, 1e-7, 0.5, 0.5, 0.2689414214, 0.7310585786);
}
PX_TEST(softmax_of_large_numbers_is_finite) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(3), VALUES(1000, 1000, -INFINITY));
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) logs = NULL;
  OK(px_softmax(&y, x, 0, PX_DTYPE_NONE));
  ELEMENTS(y, 0, 0.5, 0.5, 0);
  OK(px_log_softmax(&logs, x, 0, PX_DTYPE_NONE));
  CHECK_NEAR(element(logs, 0), -0.6931471806, 1e-6);
  CHECK(element(logs, 2) == -INFINITY);
}
PX_TEST(softmax_propagates_nan) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(3), VALUES(1, NAN, 2));
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_softmax(&y, x, 0, PX_DTYPE_NONE));
  for (int i = 0; i < 3; i++) CHECK(isnan(element(y, i)));
}
PX_TEST(softmax_over_any_dimension_sums_to_one) {
  PX_SCOPED(px_tensor) x = pattern(PX_FLOAT32, S(3, 37, 5));
  for (int dim = 0; dim < 3; dim++) {
    PX_SCOPED(px_tensor) y = NULL;
    PX_SCOPED(px_tensor) sum = NULL;
    int64_t over = dim;
    OK(px_softmax(&y, x, dim, PX_DTYPE_NONE));
    OK(px_sum(&sum, y, &over, 1, false, PX_DTYPE_NONE));
    for (int64_t i = 0; i < px_tensor_numel(sum); i++) CHECK_NEAR(element(sum, i), 1, 1e-5);
  }
}
static void check_rounded(const px_tensor *have, const px_tensor *floats) {
  px_dtype dtype = px_tensor_dtype(have);
  PX_SCOPED(px_tensor) wanted = NULL;
  OK(px_to(&wanted, floats, dtype, PX_DEVICE_NONE, false, false));
  CHECK(!memcmp(px_tensor_data(have), px_tensor_data(wanted),
                (size_t)px_tensor_numel(have) * px_dtype_size(dtype)));
}
// Row lengths so that many rows, one row, or none fit a thread's float buffer.
static void compare_with_float(px_dtype dtype, int64_t rows, int64_t n) {
  PX_SCOPED(px_tensor) x = pattern(dtype, S(rows, n));
  PX_SCOPED(px_tensor) floats = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) wanted = NULL;
  PX_SCOPED(px_tensor) normal = NULL;
  PX_SCOPED(px_tensor) wanted_normal = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  PX_SCOPED(px_tensor) of = NULL;
  PX_SCOPED(px_tensor) wanted_back = NULL;
  OK(px_to(&floats, x, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  OK(px_log_softmax(&y, x, 1, PX_DTYPE_NONE));
  OK(px_log_softmax(&wanted, floats, 1, PX_DTYPE_NONE));
  check_rounded(y, wanted);
  OK(px_layer_norm(&normal, x, &n, 1, NULL, NULL, 1e-5));
  OK(px_layer_norm(&wanted_normal, floats, &n, 1, NULL, NULL, 1e-5));
  check_rounded(normal, wanted_normal);
  OK(px_to(&of, y, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  OK(HIDDEN(softmax_backward, (&back), PX_T(x), PX_T(y), PX_I(1)));
  OK(HIDDEN(softmax_backward, (&wanted_back), PX_T(floats), PX_T(of), PX_I(1)));
  check_rounded(back, wanted_back);
}
PX_TEST(rows_of_fp16_match_float_with_any_number_of_threads) {
  static const int64_t shapes[][2] = {{5, 3}, {999, 37}, {40, 1000}, {3, 4096}, {3, 4097}};
  int64_t threads = px_num_threads();
  for (int i = 0; i < 2 * 3 * 5; i++) {
    OK(px_set_num_threads((int64_t[]){1, 2, 7}[i / 2 % 3]));
    compare_with_float(i % 2 ? PX_BFLOAT16 : PX_FLOAT16, shapes[i / 6][0], shapes[i / 6][1]);
  }
  OK(px_set_num_threads(threads));
}

PX_TEST(softmax_requires_floating_dtypes) {
  PX_SCOPED(px_tensor) x = made(PX_INT64, S(2), VALUES(1, 2));
  PX_SCOPED(px_tensor) y = NULL;
  px_tensor *none = NULL;
  FAILS(px_softmax(&none, x, 0, PX_DTYPE_NONE), PX_UNIMPLEMENTED, "not implemented for 'Long'");
  OK(px_softmax(&y, x, 0, PX_FLOAT32));
  ELEMENTS(y, 1e-7, 0.2689414214, 0.7310585786);
}
PX_TEST(layer_norm_has_mean_0_and_deviation_1) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(1, 4), VALUES(1, 2, 3, 4));
  PX_SCOPED(px_tensor) w = made(PX_FLOAT32, S(4), VALUES(1, 1, 1, 2));
  PX_SCOPED(px_tensor) y = NULL;
  int64_t shape = 4;
  OK(px_layer_norm(&y, x, &shape, 1, w, NULL, 1e-5));
  ELEMENTS(y, 1e-5, -1.3416355, -0.4472118, 0.4472118, 2.683271);
  px_tensor *none = NULL;
  shape = 3;
  FAILS(
      px_layer_norm(&none, x, &shape, 1, NULL, NULL, 1e-5), PX_RUNTIME,
      "Given normalized_shape=[3], expected input with shape [*, 3], but got input of size[1, 4]");
}
PX_TEST(batch_norm_keeps_running_statistics) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(2, 2), VALUES(1, 10, 3, 20));
  PX_SCOPED(px_tensor) mean = made(PX_FLOAT32, S(2), VALUES(0, 0));
  PX_SCOPED(px_tensor) var = made(PX_FLOAT32, S(2), VALUES(1, 1));
  PX_SCOPED(px_tensor) w = made(PX_FLOAT32, S(2), VALUES(1, 1));
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_tensor_set_requires_grad(w, true));
  OK(px_batch_norm(&y, x, mean, var, w, NULL, true, 0.1, 1e-5));
  ELEMENTS(y, 1e-4, -1, -1, 1, 1);
  ELEMENTS(mean, 1e-6, 0.2, 1.5);
  ELEMENTS(var, 1e-6, 1.1, 5.9);
  CHECK_TEXT(node_name(y), "NativeBatchNormBackward0");
  CHECK(!px_tensor_requires_grad(mean));
}
PX_TEST(batch_norm_uses_running_statistics_in_eval_mode) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(1, 2), VALUES(3, 10));
  PX_SCOPED(px_tensor) mean = made(PX_FLOAT32, S(2), VALUES(1, 10));
  PX_SCOPED(px_tensor) var = made(PX_FLOAT32, S(2), VALUES(4, 1));
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_batch_norm(&y, x, mean, var, NULL, NULL, false, 0.1, 0));
  ELEMENTS(y, 1e-6, 1, 0);
  px_tensor *none = NULL;
  FAILS(px_batch_norm(&none, x, mean, var, NULL, NULL, true, 0.1, 1e-5), PX_VALUE,
        "Expected more than 1 value per channel when training, got input size torch.Size([1, 2])");
}

// A leaf of thirds, so that sums depend on their order.
static px_tensor *thirds(px_dtype dtype, int ndim, const int64_t *sizes) {
  PX_SCOPED(px_tensor) whole = pattern(dtype, ndim, sizes);
  px_tensor *t = NULL;
  OK(px_mul_scalar(&t, whole, px_float(1 / 3.0)));
  OK(px_tensor_set_requires_grad(t, true));
  return t;
}
// Batch norm of rows of channels: returns x, w and y. Without training the statistics are ones.
static void normalise(px_dtype dtype, bool training, px_tensor *all[3]) {
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  int64_t channels = 70;
  OK(px_ones(&one, &channels, 1, dtype, px_cpu(), false, false));
  all[0] = thirds(dtype, S(3001, 70)), all[1] = thirds(dtype, S(70));
  OK(px_batch_norm(&all[2], all[0], training ? NULL : one, training ? NULL : one, all[1], one,
                   training, 0.1, 1e-5));
  OK(px_sin(&grad, all[0]));
  OK(px_backward(1, &all[2], &grad, false, false));
}
static px_tensor *outcome(px_tensor *all[3], int i) {
  return i == 2 ? all[2] : px_tensor_grad(all[i]);
}
static void release_all(px_tensor *all[3]) {
  for (int i = 0; i < 3; i++) px_release(all[i]);
}
PX_TEST(batch_norm_of_rows_of_channels_does_not_depend_on_the_number_of_threads) {
  for (int training = 0; training < 2; training++) {
    px_tensor *alone[3] = {NULL};
    OK(px_set_num_threads(1));
    normalise(PX_FLOAT32, training, alone);
    for (int k = 0; k < 3; k++) {
      px_tensor *together[3] = {NULL};
      OK(px_set_num_threads(SIZES(2, 7, 16)[k]));
      normalise(PX_FLOAT32, training, together);
      for (int i = 0; i < 3; i++) {
        const px_tensor *a = outcome(alone, i);
        size_t bytes = (size_t)px_tensor_numel(a) * sizeof(float);
        CHECK(!memcmp(px_tensor_data(outcome(alone, i)), px_tensor_data(outcome(together, i)),
                      bytes));
      }
      release_all(together);
    }
    release_all(alone);
  }
}
PX_TEST(batch_norm_of_rows_of_channels_matches_double) {
  for (int training = 0; training < 2; training++) {
    px_tensor *single[3] = {NULL}, *wide[3] = {NULL};
    normalise(PX_FLOAT32, training, single);
    normalise(PX_FLOAT64, training, wide);
    for (int i = 0; i < 3; i++) {
      const float *a = px_tensor_data(outcome(single, i));
      const double *b = px_tensor_data(outcome(wide, i));
      for (int64_t j = 0; j < px_tensor_numel(outcome(wide, i)); j++)
        CHECK_NEAR(a[j], b[j], 1e-5 * (1 + fabs(b[j])));
    }
    release_all(single), release_all(wide);
  }
}
PX_TEST(dropout_keeps_the_mean) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  OK(px_ones(&x, SIZES(10000), 1, PX_DTYPE_NONE, PX_DEVICE_NONE, false, true));
  px_manual_seed(0);
  OK(px_dropout(&y, x, 0.25, true));
  CHECK_TEXT(node_name(y), "MulBackward0");
  OK(px_mean_all(&mean, y, PX_DTYPE_NONE));
  CHECK_NEAR(element(mean, 0), 1, 0.03);
  px_tensor *none = NULL;
  FAILS(px_dropout(&none, x, 1.5, true), PX_VALUE,
        "dropout probability has to be between 0 and 1, but got 1.5");
  FAILS(px_dropout(&none, x, -0.1, true), PX_VALUE,
        "dropout probability has to be between 0 and 1, but got -0.1");
}
