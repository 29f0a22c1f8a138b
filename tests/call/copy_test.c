// SPDX-License-Identifier: Apache-2.0
// Copies: conversions, strides, no-op conversions, and gradients.
#include "test.h"

#include "ops_help.h"

PX_TEST(to_returns_self_if_nothing_changes) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) same = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  OK(px_to(&same, m, PX_FLOAT32, px_cpu(), false, false));
  CHECK(same == m);
  OK(px_to(&other, m, PX_FLOAT32, px_cpu(), false, true));
  CHECK(other != m);
}

PX_TEST(every_dtype_converts_to_every_other) {
  PX_SCOPED(px_tensor) x = longs(3, 0, 1, 64);
  for (int a = 0; a < PX_DTYPE_COUNT; a++)
    for (int b = 0; b < PX_DTYPE_COUNT; b++) {
      PX_SCOPED(px_tensor) y = NULL;
      PX_SCOPED(px_tensor) z = NULL;
      OK(px_to(&y, x, (px_dtype)a, PX_DEVICE_NONE, false, false));
      OK(px_to(&z, y, (px_dtype)b, PX_DEVICE_NONE, false, false));
      CHECK_EQ(px_tensor_dtype(z), b);
      bool zero = a != PX_FLOAT8_E8M0FNU || b != PX_BOOL;  // e8m0 has no zero
      IS(z, 3, zero ? 0. : 1., 1., a == PX_BOOL || b == PX_BOOL ? 1. : 64.);
    }
}

// A vectorized conversion agrees with the conversion of single elements, also in the tail.
PX_TEST(vectorized_bfloat16_conversion_matches_single_elements) {
  enum { COUNT = 37 };
  const double kinds[] = {NAN,     -INFINITY,  0x1p-140,   -0.0, 0x1.01p0, 0x1.03p0,
                          0x1p-30, 0x1.ffp127, -0x1.7fp-3, 3,    1e-40};
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) halves = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  const int64_t size = COUNT;
  OK(px_tensor_empty(&x, 1, &size, PX_FLOAT32, px_cpu()));
  float *from = px_tensor_data(x);
  for (int i = 0; i < COUNT; i++) from[i] = (float)kinds[i % 11] * (i % 3 ? 1 : -1);
  OK(px_to(&halves, x, PX_BFLOAT16, PX_DEVICE_NONE, false, false));
  OK(px_to(&back, halves, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  for (int i = 0; i < COUNT; i++) {
    uint16_t half, got = ((const uint16_t *)px_tensor_data(halves))[i];
    px_scalar_store(px_float(from[i]), PX_BFLOAT16, &half);
    CHECK(from[i] != from[i] ? (got & 0x7fff) > 0x7f80 : got == half);
    uint32_t bits;
    memcpy(&bits, (const float *)px_tensor_data(back) + i, sizeof bits);
    CHECK(bits == (uint32_t)got << 16);
  }
}

PX_TEST(copies_transposed_matrices) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  const int64_t sizes[2] = {70, 45};
  OK(px_arange(&x, px_int(70 * 45), (px_scalar){0}, px_int(1), PX_FLOAT32, PX_DEVICE_NONE, false,
               false));
  PX_SCOPED(px_tensor) m = NULL;
  OK(px_view(&m, x, sizes, 2));
  OK(px_t(&t, m));
  OK(px_contiguous(&y, t));
  CHECK(px_tensor_is_contiguous(y) && !px_tensor_is_contiguous(t));
  const float *at = px_tensor_data(y);
  for (int i = 0; i < 45; i++)
    for (int k = 0; k < 70; k++) CHECK(at[i * 70 + k] == (float)(k * 45 + i));
}

PX_TEST(copies_transposed_matrices_of_int16) {
  PX_SCOPED(px_tensor) x = NULL;
  const int64_t sizes[2] = {70, 45};
  OK(px_arange(&x, px_int(70 * 45), (px_scalar){0}, px_int(1), PX_INT16, PX_DEVICE_NONE, false,
               false));
  PX_SCOPED(px_tensor) m = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_view(&m, x, sizes, 2));
  OK(px_t(&t, m));
  OK(px_contiguous(&y, t));
  const int16_t *at = px_tensor_data(y);
  for (int i = 0; i < 45; i++)
    for (int k = 0; k < 70; k++) CHECK(at[i * 70 + k] == k * 45 + i);
}

PX_TEST(copy_broadcasts_and_names_mismatched_sizes) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) row = floats(3, 7., 8., 9.);
  PX_SCOPED(px_tensor) bad = floats(2, 7., 8.);
  OK(px_copy_(m, row, false));
  IS(m, 6, 7., 8., 9., 7., 8., 9.);
  FAILS(
      px_copy_(m, bad, false), PX_RUNTIME,
      "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 1");
}

PX_TEST(clone_keeps_the_order_of_dimensions) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_t(&t, m));
  OK(px_clone(&c, t, NULL));
  CHECK_EQ(px_tensor_strides(c)[0], 1);
  IS(c, 6, 0., 3., 1., 4., 2., 5.);
}

PX_TEST(conversions_are_differentiable) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_tensor_set_requires_grad(m, true));
  OK(px_to(&wide, m, PX_FLOAT64, PX_DEVICE_NONE, false, false));
  px_node *node = NULL;
  OK(px_tensor_grad_fn(&node, wide));
  CHECK_TEXT(px_node_name(node), "ToCopyBackward0");
  OK(px_sum(&sum, wide, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &sum, NULL, false, false));
  CHECK_EQ(px_tensor_dtype(px_tensor_grad(m)), PX_FLOAT32);
  IS(px_tensor_grad(m), 6, 1., 1., 1., 1., 1., 1.);
}

PX_TEST(the_source_of_copy_gets_the_gradient) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) to = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_tensor_set_requires_grad(m, true));
  OK(px_zeros_like(&to, m, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  OK(px_copy_(to, m, false));
  OK(px_sum(&sum, to, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &sum, NULL, false, false));
  IS(px_tensor_grad(m), 6, 1., 1., 1., 1., 1., 1.);
}
