// SPDX-License-Identifier: Apache-2.0
// Forward mode in C: Jacobian-vector products and dual tensors.
#include "phlox/autograd.h"
#include "phlox/ops.h"
#include "test.h"

static px_tensor *vector(double a, double b) {
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, (double[]){a, b}, 1, (int64_t[]){2}, PX_FLOAT64, px_cpu()));
  return t;
}
static double at(const px_tensor *t, int i) {
  double values[2] = {0};
  OK(px_tensor_read(t, values, sizeof values));
  return values[i];
}

PX_TEST(jvp_returns_the_change_of_each_output) {
  PX_SCOPED(px_tensor) x = vector(1, 2);
  PX_SCOPED(px_tensor) v = vector(3, -1);
  PX_SCOPED(px_tensor) y = NULL;
  px_tensor *tangents[3] = {NULL};
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_mul(&y, x, x));
  OK(px_jvp(tangents, 3, (px_tensor *[]){y, x, v}, 1, &x, &v, false));
  CHECK_EQ(at(tangents[0], 0), 6);
  CHECK_EQ(at(tangents[0], 1), -4);
  CHECK_EQ(at(tangents[1], 0), 3);
  CHECK(!tangents[2]);  // depends on no input
  CHECK(!px_tensor_requires_grad(tangents[0]));
  px_release(tangents[0]), px_release(tangents[1]);
  OK(px_backward(1, &y, &v, false, false));  // the graph is still there
}

PX_TEST(a_tangent_must_match_shape_and_dtype) {
  PX_SCOPED(px_tensor) x = vector(1, 2);
  PX_SCOPED(px_tensor) narrow = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  px_tensor *tangent = NULL;
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_narrow(&part, x, 0, 0, 1));
  OK(px_to(&narrow, x, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  FAILS(px_jvp(&tangent, 1, &x, 1, &x, &part, false), PX_RUNTIME, "[2]");
  FAILS(px_jvp(&tangent, 1, &x, 1, &x, &narrow, false), PX_UNIMPLEMENTED, "float32");
  FAILS(px_jvp(&tangent, 1, &x, 1, &x, (px_tensor *[]){NULL}, false), PX_TYPE, "tangents");
  FAILS(px_jvp(&tangent, -1, &x, 1, &x, &x, false), PX_VALUE,
        "non-negative count of `results`, got -1");
  FAILS(px_jvp(&tangent, 1, &x, -2, &x, &x, false), PX_VALUE, "got -2");
  CHECK(!tangent);
}

PX_TEST(calls_with_dual_tensors_return_dual_tensors) {
  PX_SCOPED(px_tensor) x = vector(1, 2);
  PX_SCOPED(px_tensor) v = vector(3, -1);
  PX_SCOPED(px_tensor) dual = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  px_duals *level = NULL;
  px_tensor *tangent = NULL;
  OK(px_duals_begin(&level));
  OK(px_dual_make(&dual, level, x, v));
  px_grad_set_enabled(false);
  OK(px_mul(&y, dual, x));
  px_grad_set_enabled(true);
  CHECK(px_tensor_is_dual(y) && !px_tensor_is_dual(x));
  CHECK(!px_tensor_requires_grad(y) && px_tensor_is_leaf(y));
  OK(px_dual_tangents(&tangent, level, 1, &y));
  CHECK_EQ(at(tangent, 1), -2);
  OK(px_dual_primal(&plain, y));
  CHECK(!px_tensor_is_dual(plain));
  FAILS(px_backward(1, &y, &v, false, false), PX_RUNTIME, "does not require grad");
  px_release(tangent);
  px_duals_end(level);
  CHECK(!px_tensor_is_dual(y));
}

PX_TEST(levels_nest) {
  PX_SCOPED(px_tensor) x = vector(1, 2);
  PX_SCOPED(px_tensor) one = vector(1, 1);
  PX_SCOPED(px_tensor) outside = NULL;
  PX_SCOPED(px_tensor) inside = NULL;
  PX_SCOPED(px_tensor) cube = NULL;
  px_duals *outer = NULL, *inner = NULL;
  px_tensor *first = NULL, *second = NULL;
  OK(px_duals_begin(&outer));
  OK(px_dual_make(&outside, outer, x, one));
  OK(px_duals_begin(&inner));
  OK(px_dual_make(&inside, inner, outside, one));
  OK(px_pow_scalar(&cube, inside, px_int(3)));
  OK(px_dual_tangents(&first, inner, 1, &cube));
  px_duals_end(inner);
  OK(px_dual_tangents(&second, outer, 1, &first));
  CHECK_EQ(at(first, 1), 12);
  CHECK_EQ(at(second, 1), 12);
  CHECK_EQ(at(second, 0), 6);
  px_release(first), px_release(second);
  px_duals_end(outer);
}

PX_TEST(forward_over_reverse_mode_gives_both_derivatives) {
  PX_SCOPED(px_tensor) x = vector(1, 2);
  PX_SCOPED(px_tensor) v = vector(3, -1);
  PX_SCOPED(px_tensor) dual = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) cube = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) bare = NULL;
  px_duals *level = NULL;
  px_tensor *tangent = NULL;
  OK(px_duals_begin(&level));
  OK(px_dual_make(&dual, level, x, v));
  OK(px_dual_variable(&own, dual));
  OK(px_pow_scalar(&cube, own, px_int(3)));
  PX_SCOPED(px_tensor) one = vector(1, 1);
  OK(px_grad(&grad, 1, &cube, &one, 1, &own, false, true, false));
  OK(px_dual_change(&bare, grad));
  CHECK(px_tensor_requires_grad(grad) && !px_tensor_requires_grad(bare));
  OK(px_dual_tangents(&tangent, level, 1, &bare));
  CHECK_EQ(at(grad, 1), 12);
  CHECK_EQ(at(tangent, 0), 18);
  CHECK_EQ(at(tangent, 1), -12);
  px_release(tangent);
  px_duals_end(level);
}
