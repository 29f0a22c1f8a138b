// SPDX-License-Identifier: Apache-2.0
// Views: shared memory, error texts of impossible views, and gradients.
#include "test.h"

#include "hidden.h"
#include "ops_help.h"

static px_tensor *leaf(void) {
  px_tensor *m = matrix();
  OK(px_tensor_set_requires_grad(m, true));
  return m;
}
// d sum(y * y) / dx is 2 x for the elements in the view y: checks the mapping of indices.
static void check_square_gradient(px_tensor *x, px_tensor *y) {
  PX_SCOPED(px_tensor) square = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_mul(&square, y, y));
  OK(px_sum(&sum, square, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &sum, NULL, false, false));
}
static void check_grad_name(px_tensor *t, const char *name) {
  px_node *node = NULL;
  OK(px_tensor_grad_fn(&node, t));
  CHECK(node);
  CHECK_TEXT(px_node_name(node), name);
}

PX_TEST(a_view_shares_memory) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) v = NULL;
  const int64_t sizes[2] = {3, -1};
  OK(px_view(&v, m, sizes, 2));
  SHAPE(v, 2, 3, 2);
  OK(px_zero_(v));
  IS(m, 6, 0., 0., 0., 0., 0., 0.);
}

// Without elements, any sizes and strides are valid, and overflowing products are harmless.
PX_TEST(empty_views_may_have_extreme_strides) {
  const int64_t far_offset = (int64_t)1 << 62;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_zeros(&x, (int64_t[]){2}, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_as_strided(&one, x, (int64_t[]){1}, 1, &far_offset, 1, NULL));
  OK(px_slice(&a, one, 0, NULL, NULL, 4));
  CHECK_EQ(px_tensor_numel(a), 1);
  OK(px_as_strided(&none, x, (int64_t[]){0, 4}, 2, (int64_t[]){1, far_offset}, 2, NULL));
  OK(px_select(&b, none, 1, 3));
  OK(px_sum_all(&c, b, PX_DTYPE_NONE));
  CHECK_EQ(px_tensor_numel(b), 0);
}

PX_TEST(impossible_views_are_named) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) t = NULL;
  px_tensor *v = NULL;
  const int64_t four = 4, six = 6;
  FAILS(px_view(&v, m, &four, 1), PX_RUNTIME, "shape '[4]' is invalid for input of size 6");
  OK(px_t(&t, m));
  FAILS(px_view(&v, t, &six, 1), PX_RUNTIME, "Use .reshape(...) instead.");
}

PX_TEST(reshape_copies_if_needed) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  const int64_t six = 6;
  OK(px_t(&t, m));
  OK(px_reshape(&flat, t, &six, 1));
  IS(flat, 6, 0., 3., 1., 4., 2., 5.);
}

PX_TEST(gradient_names_match_pytorch) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) reversed = NULL;
  OK(px_t(&t, m));
  check_grad_name(t, "TBackward0");
  OK(HIDDEN(numpy_T, (&reversed), PX_T(m)));
  check_grad_name(reversed, "PermuteBackward0");
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  const int64_t one = 1;
  OK(px_select(&row, m, 0, 0));
  check_grad_name(row, "SelectBackward0");
  OK(px_slice(&part, m, 0, NULL, &one, 1));
  check_grad_name(part, "SliceBackward0");
}

PX_TEST(select_scatters_its_gradient) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) row = NULL;
  OK(px_select(&row, m, 0, 1));
  IS(row, 3, 3., 4., 5.);
  check_square_gradient(m, row);
  IS(px_tensor_grad(m), 6, 0., 0., 0., 6., 8., 10.);
}

PX_TEST(slice_scatters_its_gradient) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) part = NULL;
  OK(px_slice(&part, m, 1, NULL, NULL, 2));
  IS(part, 4, 0., 2., 3., 5.);
  check_square_gradient(m, part);
  IS(px_tensor_grad(m), 6, 0., 0., 4., 6., 0., 10.);
}

PX_TEST(unfold_accumulates_gradients_of_overlaps) {
  PX_SCOPED(px_tensor) x = floats(4, 1., 1., 1., 1.);
  PX_SCOPED(px_tensor) w = NULL;
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_unfold(&w, x, 0, 3, 1));
  SHAPE(w, 2, 2, 3);
  check_square_gradient(x, w);
  IS(px_tensor_grad(x), 4, 2., 4., 4., 2.);
}

PX_TEST(as_strided_accumulates_gradients_of_overlaps) {
  PX_SCOPED(px_tensor) x = floats(3, 1., 1., 1.);
  PX_SCOPED(px_tensor) w = NULL;
  const int64_t sizes[2] = {2, 2}, strides[2] = {1, 1};
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_as_strided(&w, x, sizes, 2, strides, 2, NULL));
  check_square_gradient(x, w);
  IS(px_tensor_grad(x), 3, 2., 4., 2.);
}

PX_TEST(splits_have_sizes_and_gradients) {
  PX_SCOPED(px_tensor) x = floats(5, 1., 2., 3., 4., 5.);
  PX_SCOPED(px_list) parts = NULL;
  OK(px_tensor_set_requires_grad(x, true));
  OK(px_split(&parts, x, 2, 0));
  CHECK_EQ(px_list_size(parts), 3);
  IS(px_list_get(parts, 2), 1, 5.);
  check_grad_name(px_list_get(parts, 1), "SplitBackward0");
  check_square_gradient(x, px_list_get(parts, 1));
  IS(px_tensor_grad(x), 5, 0., 0., 6., 8., 0.);
}

PX_TEST(chunks_are_as_even_as_they_can_be) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_list) parts = NULL;
  OK(px_arange(&x, px_int(10), (px_scalar){0}, px_int(1), PX_DTYPE_NONE, PX_DEVICE_NONE, false,
               false));
  OK(px_chunk(&parts, x, 3, 0));
  CHECK_EQ(px_list_size(parts), 3);
  CHECK_EQ(px_tensor_numel(px_list_get(parts, 0)), 4);
  CHECK_EQ(px_tensor_numel(px_list_get(parts, 2)), 2);
  PX_SCOPED(px_tensor) number = NULL;
  px_list *none = NULL;
  OK(px_select(&number, x, 0, 0));
  FAILS(px_chunk(&none, number, 2, 0), PX_RUNTIME, "chunk expects at least a 1-dimensional tensor");
}

PX_TEST(unbind_scatters_its_gradients) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_list) rows = NULL;
  OK(px_unbind(&rows, m, 0));
  CHECK_EQ(px_list_size(rows), 2);
  check_grad_name(px_list_get(rows, 1), "UnbindBackward0");
  check_square_gradient(m, px_list_get(rows, 1));
  IS(px_tensor_grad(m), 6, 0., 0., 0., 6., 8., 10.);
}

PX_TEST(a_diagonal_is_a_view_with_a_gradient) {
  PX_SCOPED(px_tensor) m = leaf();
  PX_SCOPED(px_tensor) d = NULL;
  OK(px_diagonal(&d, m, 1, 0, 1));
  IS(d, 2, 1., 5.);
  check_square_gradient(m, d);
  IS(px_tensor_grad(m), 6, 0., 2., 0., 0., 0., 10.);
}

PX_TEST(expand_names_mismatched_sizes) {
  PX_SCOPED(px_tensor) x = floats(5, 1., 2., 3., 4., 5.);
  px_tensor *out = NULL;
  const int64_t three = 3;
  FAILS(px_expand(&out, x, &three, 1), PX_RUNTIME,
        "The expanded size of the tensor (3) must match the existing size (5) at non-singleton "
        "dimension 0.  Target sizes: [3].  Tensor sizes: [5]");
}

PX_TEST(an_index_out_of_bounds_is_named) {
  PX_SCOPED(px_tensor) m = matrix();
  px_tensor *out = NULL;
  FAILS(px_select(&out, m, 0, 5), PX_INDEX,
        "index 5 out of range for tensor of size [2, 3] at dimension 0");
  FAILS(px_select(&out, m, 4, 0), PX_INDEX,
        "Dimension out of range (expected to be in range of [-2, 1], but got 4)");
}

PX_TEST(a_dimension_is_listed_once) {
  static const char text[] = "dim 0 appears multiple times in the list of dims";
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) number = NULL;
  px_tensor *out = NULL;
  const int64_t twice[] = {0, -2}, zeros[] = {0, 0};
  OK(px_tensor_from_scalar(&number, px_float(1)));
  FAILS(px_squeeze_dim(&out, m, twice, 2), PX_RUNTIME, text);
  FAILS(px_flip(&out, m, twice, 2), PX_RUNTIME, text);
  FAILS(px_sum(&out, m, twice, 2, false, PX_DTYPE_NONE), PX_RUNTIME, text);
  FAILS(px_sum(&out, number, zeros, 2, false, PX_DTYPE_NONE), PX_RUNTIME, text);
}

PX_TEST(movedim_permutes_dimensions) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  const int64_t sizes[3] = {2, 3, 4}, from = 0, to = 2;
  OK(px_zeros(&x, sizes, 3, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false));
  OK(px_movedim(&y, x, &from, 1, &to, 1));
  SHAPE(y, 3, 3, 4, 2);
}

PX_TEST(overflowing_split_sizes_are_refused) {
  const int64_t four = 4, parts[] = {INT64_MAX, INT64_MAX, 6};  // 4, modulo 2**64
  PX_SCOPED(px_tensor) x = NULL;
  px_list *list = NULL;
  OK(px_zeros(&x, &four, 1, PX_FLOAT32, px_cpu(), false, false));
  FAILS(px_split_with_sizes(&list, x, parts, 3, 0), PX_RUNTIME,
        "expects split_sizes to sum exactly to 4");
}
