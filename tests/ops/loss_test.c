// SPDX-License-Identifier: Apache-2.0
// Losses: reference values, gradient names, and PyTorch's error texts.
#include "kernels_help.h"

static px_tensor *logits(void) { return made(PX_FLOAT32, S(4, 2), VALUES(1, 2, 0, 1, 2, 0, 1, 1)); }
static px_tensor *classes(void) { return made(PX_INT64, S(4), VALUES(1, 0, 0, 1)); }

PX_TEST(cross_entropy_with_and_without_weights) {
  PX_SCOPED(px_tensor) x = logits();
  PX_SCOPED(px_tensor) target = classes();
  PX_SCOPED(px_tensor) weight = made(PX_FLOAT32, S(2), VALUES(1, 3));
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) weighed = NULL;
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_cross_entropy(&plain, x, target, NULL, -100, "mean", 0));
  CHECK_NEAR(element(plain, 0), 0.6116, 5e-5);
  CHECK_TEXT(node_name(plain), "NllLossBackward0");
  OK(px_cross_entropy(&weighed, x, target, weight, -100, "mean", 0));
  CHECK_NEAR(element(weighed, 0), 0.5574, 5e-5);
}
PX_TEST(ignored_targets_do_not_count) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(2, 2), VALUES(0, 0, 5, 1));
  PX_SCOPED(px_tensor) target = made(PX_INT64, S(2), VALUES(1, -100));
  PX_SCOPED(px_tensor) loss = NULL;
  OK(px_cross_entropy(&loss, x, target, NULL, -100, "mean", 0));
  CHECK_NEAR(element(loss, 0), 0.69314718, 1e-6);
}
PX_TEST(an_invalid_target_is_an_index_error) {
  PX_SCOPED(px_tensor) x = logits();
  PX_SCOPED(px_tensor) target = made(PX_INT64, S(4), VALUES(0, 5, 0, 0));
  px_tensor *none = NULL;
  FAILS(px_cross_entropy(&none, x, target, NULL, -100, "mean", 0), PX_INDEX,
        "Target 5 is out of bounds.");
}
PX_TEST(invalid_probabilities_are_refused) {
  PX_SCOPED(px_tensor) good = made(PX_FLOAT32, S(2), VALUES(0, 1));
  PX_SCOPED(px_tensor) high = made(PX_FLOAT64, S(2), VALUES(0, 1.5));
  PX_SCOPED(px_tensor) not_a_number = made(PX_FLOAT32, S(2), VALUES(NAN, 0));
  px_tensor *none = NULL;
  FAILS(px_binary_cross_entropy(&none, not_a_number, good, NULL, "mean"), PX_RUNTIME,
        "all elements of input should be between 0 and 1");
  FAILS(px_binary_cross_entropy(&none, high, high, NULL, "mean"), PX_RUNTIME,
        "all elements of input should be between 0 and 1");
  FAILS(px_binary_cross_entropy(&none, good, not_a_number, NULL, "mean"), PX_RUNTIME,
        "all elements of target should be between 0 and 1");
  PX_SCOPED(px_tensor) empty = NULL;
  OK(px_zeros(&empty, (int64_t[]){3, 0}, 2, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  FAILS(px_multinomial(&none, empty, 1, true, NULL), PX_RUNTIME,
        "invalid multinomial distribution (sum of probabilities <= 0)");
  FAILS(px_multinomial(&none, not_a_number, 1, true, NULL), PX_RUNTIME,
        "probability tensor contains either `inf`, `nan` or element < 0");
}
PX_TEST(shapes_and_dtypes_are_checked) {
  PX_SCOPED(px_tensor) x = logits();
  PX_SCOPED(px_tensor) one = made(PX_INT64, S(1), VALUES(0));
  PX_SCOPED(px_tensor) floats = made(PX_FLOAT32, S(4), VALUES(0, 0, 0, 0));
  PX_SCOPED(px_tensor) target = classes();
  PX_SCOPED(px_tensor) three = made(PX_FLOAT32, S(3), VALUES(1, 1, 1));
  px_tensor *none = NULL;
  FAILS(px_cross_entropy(&none, x, one, NULL, -100, "mean", 0), PX_VALUE,
        "Expected input batch_size (4) to match target batch_size (1).");
  FAILS(px_cross_entropy(&none, x, floats, NULL, -100, "mean", 0), PX_RUNTIME,
        "expected target dtype to be Long or Byte, but got Float");
  FAILS(px_cross_entropy(&none, x, target, three, -100, "mean", 0), PX_RUNTIME,
        "weight tensor should be defined either for all 2 classes or no classes but got weight "
        "tensor of shape: [3]");
  FAILS(px_mse_loss(&none, floats, floats, "most", NULL), PX_VALUE,
        "most is not a valid value for reduction");
}
PX_TEST(element_losses) {
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(3), VALUES(0, 1, 5));
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(3), VALUES(0.5, 1, 2));
  PX_SCOPED(px_tensor) mse = NULL;
  PX_SCOPED(px_tensor) l1 = NULL;
  PX_SCOPED(px_tensor) smooth = NULL;
  OK(px_tensor_set_requires_grad(a, true));
  OK(px_mse_loss(&mse, a, b, "mean", NULL));
  ELEMENTS(mse, 1e-6, 9.25 / 3);
  CHECK_TEXT(node_name(mse), "MseLossBackward0");
  OK(px_l1_loss(&l1, a, b, "mean", NULL));
  ELEMENTS(l1, 1e-6, 3.5 / 3);
  CHECK_TEXT(node_name(l1), "MeanBackward0");
  OK(px_smooth_l1_loss(&smooth, a, b, "none", 1));
  ELEMENTS(smooth, 1e-6, 0.125, 0, 2.5);
}
PX_TEST(element_losses_may_be_weighted) {
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(3), VALUES(0, 1, 5));
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(3), VALUES(0.5, 1, 2));
  PX_SCOPED(px_tensor) weight = made(PX_FLOAT32, S(3), VALUES(2, 5, 1));
  PX_SCOPED(px_tensor) one = made(PX_FLOAT32, S(1), VALUES(1));
  PX_SCOPED(px_tensor) mse = NULL;
  PX_SCOPED(px_tensor) l1 = NULL;
  PX_SCOPED(px_tensor) huber = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_tensor *none = NULL;
  OK(px_mse_loss(&mse, a, b, "mean", weight));  // divided by the sum of the weights
  ELEMENTS(mse, 1e-6, 9.5 / 8);
  OK(px_l1_loss(&l1, a, b, "mean", weight));
  ELEMENTS(l1, 1e-6, 4.0 / 8);
  OK(px_huber_loss(&huber, a, b, "mean", 1, weight));  // divided by the number of elements
  ELEMENTS(huber, 1e-6, 2.75 / 3);
  OK(px_mse_loss(&each, a, b, "none", weight));
  ELEMENTS(each, 1e-6, 0.5, 0, 9);
  OK(px_l1_loss(&sum, a, b, "sum", weight));
  ELEMENTS(sum, 1e-6, 4);
  FAILS(px_huber_loss(&none, a, b, "mean", 1, one), PX_VALUE,
        "Weights and input must have the same size.");
}
PX_TEST(the_gradient_of_mse) {
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(2), VALUES(1, 5));
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(2), VALUES(0, 2));
  px_tensor *loss = NULL;
  OK(px_tensor_set_requires_grad(a, true));
  OK(px_mse_loss(&loss, a, b, "mean", NULL));
  OK(px_backward(1, &loss, NULL, false, false));
  ELEMENTS(px_tensor_grad(a), 1e-6, 1, 3);
  px_release(loss);
}
PX_TEST(binary_cross_entropy_of_extremes_is_finite) {
  PX_SCOPED(px_tensor) p = made(PX_FLOAT32, S(2), VALUES(0, 1));
  PX_SCOPED(px_tensor) wrong = made(PX_FLOAT32, S(2), VALUES(1, 0));
  PX_SCOPED(px_tensor) loss = NULL;
  OK(px_binary_cross_entropy(&loss, p, wrong, NULL, "none"));
  ELEMENTS(loss, 0, 100, 100);
}

// ---- long losses: parts, blocks, and their tails

static double reference_loss(int which, double a, double b) {
  double d = fabs(a - b);
  switch (which) {
    case 0:
      return d * d;
    case 1:
      return d < 0.5 ? d * d : d - 0.25;
    case 2:
      return d <= 0.5 ? 0.5 * d * d : 0.5 * (d - 0.25);
    case 3:
      return -b * log(a) - (1 - b) * log1p(-a);
    default:
      return fmax(a, 0) - a * b + log1p(exp(-fabs(a)));
  }
}
static px_status loss_of(px_tensor **out, int which, const px_tensor *a, const px_tensor *b,
                         const char *how) {
  switch (which) {
    case 0:
      return px_mse_loss(out, a, b, how, NULL);
    case 1:
      return px_smooth_l1_loss(out, a, b, how, 0.5);
    case 2:
      return px_huber_loss(out, a, b, how, 0.5, NULL);
    case 3:
      return px_binary_cross_entropy(out, a, b, NULL, how);
    default:
      return px_binary_cross_entropy_with_logits(out, a, b, NULL, how, NULL);
  }
}
PX_TEST(long_losses_match_elementwise_sums) {
  enum { LONG = 40001 };
  static double x[LONG], y[LONG], one[LONG];
  for (int i = 0; i < LONG; i++)
    x[i] = 0.01 + 0.98 * fmod(i * 0.618034, 1), y[i] = fmod(i * 0.754878, 1);
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  OK(px_tensor_from_data(&a, x, 1, (int64_t[]){LONG}, PX_FLOAT64, px_cpu()));
  OK(px_tensor_from_data(&b, y, 1, (int64_t[]){LONG}, PX_FLOAT64, px_cpu()));
  for (int which = 0; which < 5; which++) {
    PX_SCOPED(px_tensor) each = NULL;
    PX_SCOPED(px_tensor) sum = NULL;
    PX_SCOPED(px_tensor) mean = NULL;
    PX_SCOPED(px_tensor) again = NULL;
    double wanted = 0;
    OK(loss_of(&each, which, a, b, "none"));
    OK(loss_of(&sum, which, a, b, "sum"));
    OK(loss_of(&mean, which, a, b, "mean"));
    OK(px_tensor_read(each, one, sizeof one));
    for (int i = 0; i < LONG; i++) {
      CHECK_NEAR(one[i], reference_loss(which, x[i], y[i]), 1e-12);
      wanted += one[i];
    }
    CHECK_NEAR(element(sum, 0), wanted, 1e-7);
    CHECK_NEAR(element(mean, 0), wanted / LONG, 1e-11);
    OK(px_set_num_threads(1));
    OK(loss_of(&again, which, a, b, "sum"));
    OK(px_set_num_threads(2));
    CHECK(element(again, 0) == element(sum, 0));
  }
}

// With many classes, no matrix of log-probabilities is stored. Loss and gradient are the same for
// each reduction, and an invalid class is refused.
static void compare_with_steps(const char *how, int64_t ignored) {
  enum { ROWS = 1050, CLASSES = 1000 };
  static int64_t targets[ROWS];
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) wave = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) log_p = NULL;
  PX_SCOPED(px_tensor) apart = NULL;
  px_tensor *loss[2] = {NULL, NULL}, *sum[2] = {NULL, NULL}, *grads[2] = {NULL, NULL};
  for (int i = 0; i < ROWS; i++) targets[i] = i * 31 % CLASSES;
  OK(px_tensor_from_data(&y, targets, 1, (int64_t[]){ROWS}, PX_INT64, px_cpu()));
  OK(px_arange(&line, px_int(0), px_int(ROWS * CLASSES), px_int(1), PX_FLOAT64, px_cpu(), false,
               false));
  OK(px_sin(&wave, line));
  OK(px_reshape(&x, wave, (int64_t[]){ROWS, CLASSES}, 2));
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_cross_entropy(&loss[0], x, y, NULL, ignored, how, 0));
  OK(px_log_softmax(&log_p, x, 1, PX_DTYPE_NONE));
  OK(px_nll_loss(&loss[1], log_p, y, NULL, ignored, how));
  OK(px_sub(&apart, loss[0], loss[1], px_int(1)));
  for (int i = 0; i < 2; i++) {
    OK(px_sum_all(&sum[i], loss[i], PX_DTYPE_NONE));
    OK(px_grad(&grads[i], 1, &sum[i], NULL, 1, &x, false, false, false));
  }
  px_grad_set_enabled(false);
  PX_SCOPED(px_tensor) difference = NULL;
  PX_SCOPED(px_tensor) most = NULL;
  PX_SCOPED(px_tensor) most_loss = NULL;
  OK(px_sub(&difference, grads[0], grads[1], px_int(1)));
  OK(px_norm(&most, difference, px_float(INFINITY), NULL, 0, false, PX_DTYPE_NONE));
  OK(px_norm(&most_loss, apart, px_float(INFINITY), NULL, 0, false, PX_DTYPE_NONE));
  px_grad_set_enabled(true);
  px_scalar number;
  OK(px_tensor_item(&number, most));
  CHECK_NEAR(px_scalar_float(number), 0, 1e-12);
  OK(px_tensor_item(&number, most_loss));
  CHECK_NEAR(px_scalar_float(number), 0, 1e-9);
  for (int i = 0; i < 2; i++) px_release(loss[i]), px_release(sum[i]), px_release(grads[i]);
  targets[7] = CLASSES;
  PX_SCOPED(px_tensor) bad = NULL;
  OK(px_tensor_from_data(&bad, targets, 1, (int64_t[]){ROWS}, PX_INT64, px_cpu()));
  FAILS(px_cross_entropy(&loss[0], x, bad, NULL, ignored, how, 0), PX_INDEX,
        "Target 1000 is out of bounds.");
}
PX_TEST(cross_entropy_of_many_classes_stores_no_log_probabilities) {
  compare_with_steps("mean", 31);
  compare_with_steps("sum", -100);
  compare_with_steps("none", 62);
}

// Parts of several thousand elements. The gradient is one number for all, or one for each.
static void check_halves(px_dtype dtype, const char *reduction) {
  enum { N = 40001 };
  px_tensor *results[2][2] = {{NULL}};
  for (int i = 0; i < 2; i++) {
    PX_SCOPED(px_tensor) drawn = pattern(dtype, S(N));
    PX_SCOPED(px_tensor) x = NULL;
    PX_SCOPED(px_tensor) y = NULL;
    PX_SCOPED(px_tensor) half_y = NULL;
    PX_SCOPED(px_tensor) grad = NULL;
    px_dtype as = i ? PX_FLOAT32 : dtype;
    OK(px_flip(&half_y, drawn, (int64_t[]){0}, 1));
    OK(px_to(&x, drawn, as, PX_DEVICE_NONE, false, true));
    OK(px_to(&y, half_y, as, PX_DEVICE_NONE, false, true));
    OK(px_tensor_set_requires_grad(x, true));
    OK(px_smooth_l1_loss(&results[i][0], x, y, reduction, 0.75));
    OK(px_ones_like(&grad, results[i][0], PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
    OK(px_backward(1, &results[i][0], &grad, false, false));
    results[i][1] = px_retain(px_tensor_grad(x));
  }
  for (int k = 0; k < 2; k++) {
    PX_SCOPED(px_tensor) wanted = NULL;
    OK(px_to(&wanted, results[1][k], dtype, PX_DEVICE_NONE, false, false));
    CHECK(!memcmp(px_tensor_data(results[0][k]), px_tensor_data(wanted),
                  (size_t)px_tensor_numel(wanted) * px_dtype_size(dtype)));
    for (int i = 0; i < 2; i++) px_release(results[i][k]);
  }
}
PX_TEST(losses_of_fp16_match_float_with_any_number_of_threads) {
  int64_t threads = px_num_threads();
  for (int i = 0; i < 2 * 3 * 3; i++) {
    OK(px_set_num_threads((int64_t[]){1, 2, 7}[i / 2 % 3]));
    check_halves(i % 2 ? PX_BFLOAT16 : PX_FLOAT16, (const char *[]){"none", "mean", "sum"}[i / 6]);
  }
  OK(px_set_num_threads(threads));
}
