// SPDX-License-Identifier: Apache-2.0
// Losses: known numbers, names, and PyTorch's texts.
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
PX_TEST(a_target_that_is_no_class_is_an_index_error) {
  PX_SCOPED(px_tensor) x = logits();
  PX_SCOPED(px_tensor) target = made(PX_INT64, S(4), VALUES(0, 5, 0, 0));
  px_tensor *none = NULL;
  FAILS(px_cross_entropy(&none, x, target, NULL, -100, "mean", 0), PX_INDEX,
        "Target 5 is out of bounds.");
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
  FAILS(px_mse_loss(&none, floats, floats, "most"), PX_VALUE,
        "most is not a valid value for reduction");
}
PX_TEST(element_losses) {
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(3), VALUES(0, 1, 5));
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(3), VALUES(0.5, 1, 2));
  PX_SCOPED(px_tensor) mse = NULL;
  PX_SCOPED(px_tensor) l1 = NULL;
  PX_SCOPED(px_tensor) smooth = NULL;
  OK(px_tensor_set_requires_grad(a, true));
  OK(px_mse_loss(&mse, a, b, "mean"));
  ELEMENTS(mse, 1e-6, 9.25 / 3);
  CHECK_TEXT(node_name(mse), "MseLossBackward0");
  OK(px_l1_loss(&l1, a, b, "mean"));
  ELEMENTS(l1, 1e-6, 3.5 / 3);
  CHECK_TEXT(node_name(l1), "MeanBackward0");
  OK(px_smooth_l1_loss(&smooth, a, b, "none", 1));
  ELEMENTS(smooth, 1e-6, 0.125, 0, 2.5);
}
PX_TEST(the_gradient_of_mse) {
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(2), VALUES(1, 5));
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(2), VALUES(0, 2));
  px_tensor *loss = NULL;
  OK(px_tensor_set_requires_grad(a, true));
  OK(px_mse_loss(&loss, a, b, "mean"));
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
