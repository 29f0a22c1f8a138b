// SPDX-License-Identifier: Apache-2.0
// In-place changes and views, with PyTorch's values and error texts.
#include "autograd_helpers.h"

static px_tensor *item_of(px_tensor *t, int64_t i) {
  px_tensor *v = NULL;
  OK(px_select(&v, t, 0, i));
  return v;
}

PX_TEST(a_leaf_cannot_be_modified_inplace) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *one = VECTOR(1), *v = item_of(x, 0);
  FAILS(px_add_(x, one, px_int(1)), PX_RUNTIME,
        "a leaf Variable that requires grad is being used in an in-place operation.");
  FAILS(px_zero_(v), PX_RUNTIME,
        "a view of a leaf Variable that requires grad is being used in an in-place operation.");
  CHECK_NEAR(at(x, 0), 1, 0);
  CHECK_EQ(px_tensor_version(x), 0);
}

PX_TEST(inplace_ops_extend_the_graph) {
  PX_SCOPED(px_tensor) x = LEAF(2, 3), *y = NULL;
  OK(px_mul_scalar(&y, x, px_float(3)));
  OK(px_exp_(y));
  CHECK_TEXT(maker(y), "ExpBackward0");
  back(y);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 3 * exp(6), 1e-3);
}

PX_TEST(inplace_ops_save_the_original_self) {
  PX_SCOPED(px_tensor) x = LEAF(2), *w = LEAF(5), *y = NULL;
  OK(px_mul_scalar(&y, x, px_float(3)));
  OK(px_mul_(y, w));
  back(y);
  CHECK_NEAR(at(px_tensor_grad(w), 0), 6, 0);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 15, 0);
}

PX_TEST(inplace_square) {
  PX_SCOPED(px_tensor) x = LEAF(3), *y = NULL;
  OK(px_mul_scalar(&y, x, px_float(1)));
  OK(px_mul_(y, y));
  back(y);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 6, 0);
}

PX_TEST(an_inplace_op_can_make_a_tensor_require_grad) {
  PX_SCOPED(px_tensor) w = LEAF(5, 7), *y = VECTOR(1, 2);
  OK(px_mul_(y, w));
  CHECK_TEXT(maker(y), "MulBackward0");
  back(y);
  CHECK_NEAR(at(px_tensor_grad(w), 1), 2, 0);
}

PX_TEST(writes_to_a_view_rebase_the_base) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *w = LEAF(10), *y = NULL;
  OK(px_mul_scalar(&y, x, px_float(3)));
  PX_SCOPED(px_tensor) v = item_of(y, 0), *scalar = item_of(w, 0);
  OK(px_mul_(v, scalar));
  CHECK_TEXT(maker(y), "CopySlices");
  CHECK_TEXT(maker(v), "AsStridedBackward0");
  back(y);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 30, 0);
  CHECK_NEAR(at(px_tensor_grad(x), 1), 3, 0);
  CHECK_NEAR(at(px_tensor_grad(w), 0), 3, 0);
}

PX_TEST(writes_to_the_base_regenerate_views) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL;
  OK(px_mul_scalar(&y, x, px_float(3)));
  PX_SCOPED(px_tensor) v = item_of(y, 1);
  OK(px_mul_(y, y));
  CHECK_TEXT(maker(v), "AsStridedBackward0");
  OK(px_backward(1, &v, NULL, false, false));
  CHECK_NEAR(at(px_tensor_grad(x), 0), 0, 0);
  CHECK_NEAR(at(px_tensor_grad(x), 1), 36, 0);
}

PX_TEST(a_view_of_a_base_that_comes_to_require_grad) {
  PX_SCOPED(px_tensor) base = VECTOR(1, 2), *w = LEAF(5, 7), *v = item_of(base, 1), *y = NULL;
  OK(px_mul_(base, w));
  OK(px_mul_scalar(&y, v, px_float(2)));
  OK(px_backward(1, &y, NULL, false, false));
  CHECK_NEAR(at(px_tensor_grad(w), 0), 0, 0);
  CHECK_NEAR(at(px_tensor_grad(w), 1), 4, 0);
}

PX_TEST(copying_into_a_view_of_a_plain_base) {
  PX_SCOPED(px_tensor) base = VECTOR(0, 0, 0), *x = LEAF(4), *part = item_of(base, 1);
  PX_SCOPED(px_tensor) value = item_of(x, 0);
  OK(px_copy_(part, value, false));
  CHECK_TEXT(maker(base), "CopySlices");
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_mul(&y, base, base));
  back(y);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 8, 0);
}

PX_TEST(fill_cuts_the_graph) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL;
  OK(px_mul_scalar(&y, x, px_float(3)));
  PX_SCOPED(px_tensor) v = item_of(y, 0);
  OK(px_zero_(v));
  back(y);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 0, 0);
  CHECK_NEAR(at(px_tensor_grad(x), 1), 3, 0);
}

PX_TEST(multi_output_views_cannot_be_modified_inplace) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL, *one = VECTOR(1);
  PX_SCOPED(px_tensor) scalar = item_of(one, 0);
  OK(px_mul_scalar(&y, x, px_float(3)));
  PX_SCOPED(px_list) parts = NULL;
  OK(px_unbind(&parts, y, 0));
  FAILS(px_add_(px_list_get(parts, 0), scalar, px_int(1)), PX_RUNTIME,
        "Output 0 of UnbindBackward0 is a view and is being modified inplace. This view is the "
        "output of a function that returns multiple views. Such functions do not allow the output "
        "views to be modified inplace. You should replace the inplace operation by an out-of-place "
        "one.");
}

PX_TEST(a_no_grad_view_cannot_be_modified_in_grad_mode) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL, *v = NULL, *w = LEAF(1);
  OK(px_mul_scalar(&y, x, px_float(3)));
  px_grad_set_enabled(false);
  v = item_of(y, 0);
  px_grad_set_enabled(true);
  PX_SCOPED(px_tensor) scalar = item_of(w, 0);
  FAILS(px_zero_(v), PX_RUNTIME, "A view was created in no_grad mode");
  FAILS(px_mul_(v, scalar), PX_RUNTIME,
        "A view was created in no_grad mode and is being modified inplace with grad mode enabled.");
  px_grad_set_enabled(false);
  OK(px_zero_(v));
  px_grad_set_enabled(true);
}

PX_TEST(a_no_grad_view_is_not_recorded) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL, *one = VECTOR(1, 1);
  px_grad_set_enabled(false);
  PX_SCOPED(px_tensor) v = item_of(x, 0);
  OK(px_add_(x, one, px_int(1)));  // an optimizer step
  px_grad_set_enabled(true);
  OK(px_mul_scalar(&y, v, px_float(2)));
  CHECK(!px_tensor_requires_grad(v) && !px_tensor_requires_grad(y));
  CHECK_NEAR(at(y, 0), 4, 0);
}

PX_TEST(a_detached_tensor_shares_memory_and_version_only) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL, *d = NULL;
  OK(px_mul_scalar(&y, x, px_float(3)));
  OK(px_tensor_detach(&d, y));
  OK(px_zero_(d));
  CHECK_TEXT(maker(y), "MulBackward0");
  CHECK_EQ(px_tensor_version(y), 1);
  CHECK(!px_tensor_requires_grad(d));
}

PX_TEST(second_derivatives_through_copy_slices) {
  PX_SCOPED(px_tensor) x = LEAF(2, 3), *y = NULL, *g = NULL, *total = NULL;
  OK(px_mul(&y, x, x));
  PX_SCOPED(px_tensor) v = item_of(y, 0);
  OK(px_mul_(v, v));  // y = [x0^4, x1^2]
  OK(px_sum(&total, y, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_grad(&g, 1, &total, NULL, 1, &x, true, true, false));
  CHECK_NEAR(at(g, 0), 32, 1e-4);
  CHECK_NEAR(at(g, 1), 6, 1e-4);
  back(g);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 48, 1e-3);
  CHECK_NEAR(at(px_tensor_grad(x), 1), 2, 1e-4);
}
