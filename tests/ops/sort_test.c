// SPDX-License-Identifier: Apache-2.0
// Sorting and choosing: order, ties, NaN, and the optimizer steps that share the row kernels' form.
#include "kernels_help.h"

PX_TEST(sort_is_stable_and_puts_nan_last) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(5), VALUES(2, NAN, 1, 2, -1));
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  OK(px_sort(&values, &where, x, -1, false, false));
  ELEMENTS(where, 0, 4, 2, 0, 3, 1);
  CHECK(isnan(element(values, 4)));
}
PX_TEST(long_lines_are_sorted) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  OK(px_randperm(&x, 1000, NULL, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  OK(px_sort(&values, &where, x, 0, true, false));
  const int64_t *v = px_tensor_data(values);
  for (int64_t i = 0; i < 1000; i++) CHECK_EQ(v[i], 999 - i);
}
PX_TEST(topk_along_another_dimension) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(3, 2), VALUES(1, 6, 3, 4, 2, 5));
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  OK(px_topk(&values, &where, x, 2, 0, true, true));
  ELEMENTS(values, 0, 3, 6, 2, 5);
  ELEMENTS(where, 0, 1, 0, 2, 2);
  px_tensor *a = NULL, *b = NULL;
  FAILS(px_topk(&a, &b, x, 4, 0, true, true), PX_RUNTIME, "selected index k out of range");
}
PX_TEST(the_median_is_the_lower_one) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(4), VALUES(4, 1, 3, 2));
  PX_SCOPED(px_tensor) m = NULL;
  OK(px_median(&m, x));
  ELEMENTS(m, 0, 2);
}
PX_TEST(gradients_go_where_the_elements_were) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(3), VALUES(3, 1, 2));
  px_tensor *values = NULL, *where = NULL;
  PX_SCOPED(px_tensor) g = made(PX_FLOAT32, S(2), VALUES(10, 20));
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_topk(&values, &where, x, 2, 0, true, true));
  OK(px_backward(1, &values, &g, false, false));
  ELEMENTS(px_tensor_grad(x), 0, 10, 0, 20);
  px_release(values);
  px_release(where);
}
PX_TEST(sgd_moves_against_the_gradient) {
  PX_SCOPED(px_tensor) p = made(PX_FLOAT32, S(2), VALUES(1, 2));
  PX_SCOPED(px_tensor) g = made(PX_FLOAT32, S(2), VALUES(0.5, -1));
  PX_SCOPED(px_tensor) m = made(PX_FLOAT32, S(2), VALUES(0, 0));
  for (int step = 0; step < 2; step++) {
    PX_SCOPED(px_tensor) p2 = NULL;
    PX_SCOPED(px_tensor) m2 = NULL;
    OK(px_sgd_step(&p2, &m2, p, g, m, 0.1, 0.9, 0, 0, false, false, step == 0));
    CHECK(p2 == p && m2 == m);
  }
  ELEMENTS(p, 1e-6, 1 - 0.1 * 0.5 - 0.1 * 0.95, 2 + 0.1 + 0.19);
  CHECK_EQ(px_tensor_version(p), 2);
}
PX_TEST(adam_takes_a_step_of_lr_first) {
  PX_SCOPED(px_tensor) p = made(PX_FLOAT32, S(2), VALUES(1, 1));
  PX_SCOPED(px_tensor) g = made(PX_FLOAT32, S(2), VALUES(0.5, -3));
  PX_SCOPED(px_tensor) a = made(PX_FLOAT32, S(2), VALUES(0, 0));
  PX_SCOPED(px_tensor) s = made(PX_FLOAT32, S(2), VALUES(0, 0));
  px_tensor *r[4] = {NULL};
  OK(px_adam_step(&r[0], &r[1], &r[2], &r[3], p, g, a, s, NULL, 0.01, 0.9, 0.999, 1e-8, 0, 1, false,
                  false));
  ELEMENTS(p, 1e-6, 0.99, 1.01);
  CHECK(r[3] == NULL);
  for (int i = 0; i < 3; i++) px_release(r[i]);
}
