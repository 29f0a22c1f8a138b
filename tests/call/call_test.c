// SPDX-License-Identifier: Apache-2.0
// Calls of ops: promotion, broadcasting, in-place forms, out=, and error texts.
#include "test.h"

#include "ops_help.h"

PX_TEST(adds_two_tensors) {
  PX_SCOPED(px_tensor) a = floats(4, 1., 2., 3., 4.);
  PX_SCOPED(px_tensor) b = floats(4, 10., 20., 30., 40.);
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_add(&c, a, b, px_float(1)));
  IS(c, 4, 11., 22., 33., 44.);
  px_release(c);
  OK(px_add(&c, a, b, px_float(2)));
  IS(c, 4, 21., 42., 63., 84.);
}

PX_TEST(broadcasts) {
  PX_SCOPED(px_tensor) a = floats(2, 1., 2.);
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_unsqueeze(&column, a, 1));
  OK(px_add(&c, column, a, px_int(1)));
  SHAPE(c, 2, 2, 2);
  IS(c, 4, 2., 3., 3., 4.);
}

PX_TEST(promotes_as_pytorch_does) {
  PX_SCOPED(px_tensor) i = longs(2, 1, 2);
  PX_SCOPED(px_tensor) f = NULL;
  PX_SCOPED(px_tensor) half = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  OK(px_add_scalar(&f, i, px_float(1.5), px_int(1)));
  CHECK_EQ(px_tensor_dtype(f), PX_FLOAT32);
  IS(f, 2, 2.5, 3.5);
  OK(px_to(&half, i, PX_FLOAT16, PX_DEVICE_NONE, false, false));
  OK(px_scalar_tensor(&wide, px_float(2), PX_FLOAT64, PX_DEVICE_NONE, false, false));
  OK(px_mul(&c, half, wide));
  CHECK_EQ(px_tensor_dtype(c), PX_FLOAT16);
  px_release(c);
  OK(px_div_scalar(&c, i, px_int(2)));
  CHECK_EQ(px_tensor_dtype(c), PX_FLOAT32);
  px_release(c);
  OK(px_lt_scalar(&c, i, px_float(1.5)));
  CHECK_EQ(px_tensor_dtype(c), PX_BOOL);
  IS(c, 2, 1., 0.);
}

PX_TEST(refuses_a_cast_down_in_place) {
  PX_SCOPED(px_tensor) i = NULL;
  const int64_t size = 2;
  PX_SCOPED(px_tensor) f = floats(2, 1.5, 1.5);
  OK(px_full(&i, &size, 1, px_int(1), PX_INT32, PX_DEVICE_NONE, false, false));
  FAILS(px_add_(i, f, px_int(1)), PX_RUNTIME,
        "result type Float can't be cast to the desired output type Int");
  IS(i, 2, 1., 1.);
}

PX_TEST(names_mismatched_sizes) {
  PX_SCOPED(px_tensor) a = floats(2, 1., 2.);
  PX_SCOPED(px_tensor) b = floats(3, 1., 2., 3.);
  px_tensor *c = NULL;
  FAILS(
      px_add(&c, a, b, px_int(1)), PX_RUNTIME,
      "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0");
  CHECK(c == NULL);
}

PX_TEST(inplace_writes_increment_the_version) {
  PX_SCOPED(px_tensor) a = floats(2, 1., 2.);
  PX_SCOPED(px_tensor) b = floats(2, 3., 4.);
  uint64_t version = px_tensor_version(a);
  OK(px_add_(a, b, px_int(1)));
  IS(a, 2, 4., 6.);
  CHECK_EQ(px_tensor_version(a), version + 1);
}

PX_TEST(refuses_to_write_an_expanded_tensor) {
  PX_SCOPED(px_tensor) a = floats(1, 1.);
  PX_SCOPED(px_tensor) wide = NULL;
  const int64_t three = 3;
  OK(px_expand(&wide, a, &three, 1));
  FAILS(px_add_(wide, a, px_int(1)), PX_RUNTIME,
        "more than one element of the written-to tensor refers to a single memory location");
}

PX_TEST(resizes_an_output) {
  PX_SCOPED(px_tensor) a = floats(3, 1., 2., 3.);
  PX_SCOPED(px_tensor) out = NULL;
  const int64_t none = 0;
  OK(px_empty(&out, &none, 1, PX_FLOAT32, PX_DEVICE_NONE, false, false, NULL));
  OK(px_mul_out(out, a, a));
  IS(out, 3, 1., 4., 9.);
}

PX_TEST(reduces_dimensions) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) s = NULL;
  const int64_t first = 0;
  OK(px_sum(&s, m, &first, 1, false, PX_DTYPE_NONE));
  SHAPE(s, 1, 3);
  IS(s, 3, 3., 5., 7.);
  px_release(s);
  OK(px_sum(&s, m, &first, 1, true, PX_DTYPE_NONE));
  SHAPE(s, 2, 1, 3);
  px_release(s);
  OK(px_sum(&s, m, NULL, 0, false, PX_DTYPE_NONE));
  IS(s, 1, 15.);
}

PX_TEST(the_sum_of_no_elements_is_zero) {
  PX_SCOPED(px_tensor) empty = NULL;
  PX_SCOPED(px_tensor) s = NULL;
  const int64_t none = 0;
  OK(px_empty(&empty, &none, 1, PX_FLOAT32, PX_DEVICE_NONE, false, false, NULL));
  OK(px_sum(&s, empty, NULL, 0, false, PX_DTYPE_NONE));
  IS(s, 1, 0.);
}

PX_TEST(ops_are_sorted_by_name) {
  int count = px_op_count();
  for (int i = 0; i < count; i++) CHECK(px_op_find(px_op_at(i)->name) == px_op_at(i));
  for (int i = 1; i < count; i++) CHECK(strcmp(px_op_at(i - 1)->name, px_op_at(i)->name) < 0);
  CHECK(!px_op_at(-1) && !px_op_at(count));
}

PX_TEST(finds_and_describes_ops) {
  const px_op *op = px_op_find("add");
  char text[128];
  CHECK(op && !strcmp(op->name, "add") && !px_op_find("no such op"));
  PX_SCOPED(px_tensor) m = matrix();
  px_value args[16] = {PX_T(m), PX_S(px_float(1.5))};
  CHECK_TEXT(px_op_describe(op, args, text, sizeof text), "add(f32[2,3]@cpu, 1.5)");
}

PX_TEST(refuses_arguments_of_the_wrong_kind) {
  px_value args[16] = {PX_TX("a"), PX_S(px_int(1))};
  void *out[4] = {NULL};
  FAILS(px_op_call(px_op_find("add"), PX_CALL_NEW, args, out), PX_TYPE, "must be Tensor, not str");
  FAILS(px_op_call(px_op_find("cat"), PX_CALL_NEW, args, out), PX_TYPE,
        "must be tuple of Tensors, not");
  CHECK_TEXT(px_arg_name(-1), "object");
  px_value fewer[16] = {PX_NONE()};
  FAILS(px_op_call(px_op_find("add"), PX_CALL_NEW, fewer, out), PX_TYPE, "missing");
}

PX_TEST(an_unknown_op_is_an_error) {
  void *result = NULL;
  FAILS(px_op_call(px_op_find("adn"), PX_CALL_NEW, (px_value[16]){{0}}, &result), PX_ATTRIBUTE,
        "there is no op 'adn': the nearest name is add");
  FAILS(px_op_call(px_op_find("soft_max"), PX_CALL_NEW, (px_value[16]){{0}}, &result), PX_ATTRIBUTE,
        "there is no op 'soft_max': the nearest name is softmax");
}

PX_TEST(refuses_unsupported_forms_of_an_op) {
  PX_SCOPED(px_tensor) a = floats(2, 1., 2.);
  PX_SCOPED(px_tensor) b = floats(2, 1., 2.);
  px_value args[16] = {PX_T(a)};
  void *results[4] = {b};
  FAILS(px_op_call(px_op_find("alias"), PX_CALL_OUT, args, results), PX_TYPE,
        "does not support writing to out=");
  FAILS(px_op_call(px_op_find("sort"), PX_CALL_INPLACE, args, results), PX_TYPE,
        "does not support writing to self");
  FAILS(px_op_call(px_op_find("alias"), PX_CALL_INPLACE, args, results), PX_TYPE,
        "does not support writing to self");
  results[0] = NULL;
  FAILS(px_op_call(px_op_find("exp"), PX_CALL_OUT, args, results), PX_TYPE, "'out' must be Tensor");
  FAILS(px_op_call(px_op_find("sum"), PX_CALL_OUT, args, results), PX_TYPE, "'out' must be Tensor");
  IS(a, 2, 1., 2.);
}

PX_TEST(an_inplace_view_changes_the_sizes_of_self) {
  PX_SCOPED(px_tensor) a = floats(2, 1., 2.);
  OK(px_unsqueeze_(a, 0));
  OK(px_t_(a));
  CHECK_EQ(px_tensor_ndim(a), 2);
  CHECK_EQ(px_tensor_sizes(a)[0], 2);
  FAILS(px_squeeze_dim_(a, (int64_t[]){2}, 1), PX_INDEX, "Dimension out of range");
  OK(px_squeeze_(a));
  IS(a, 2, 1., 2.);
}

PX_TEST(ops_without_an_inplace_form_copy_into_self) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) same = NULL;
  void *result = NULL;
  uint64_t version = px_tensor_version(m);
  OK(px_op_call(px_op_find("softmax"), PX_CALL_INPLACE, (px_value[16]){PX_T(m), PX_I(0)}, &result));
  same = result;
  CHECK(same == m);
  CHECK(px_tensor_version(m) > version);
  PX_SCOPED(px_tensor) sums = NULL;
  OK(px_sum(&sums, m, (const int64_t[]){0}, 1, false, PX_DTYPE_NONE));
  IS(sums, 3, 1., 1., 1.);
  // A result of another shape, or of a dtype that self cannot hold, changes nothing.
  PX_SCOPED(px_tensor) v = floats(2, 1., 2.);
  FAILS(px_op_call(px_op_find("outer"), PX_CALL_INPLACE, (px_value[16]){PX_T(v), PX_T(v)}, &result),
        PX_RUNTIME, "doesn't match the broadcast shape");
  IS(v, 2, 1., 2.);
}

PX_TEST(in_place_with_a_number) {
  PX_SCOPED(px_tensor) a = floats(2, 1., 2.);
  OK(px_mul_scalar_(a, px_float(3)));
  OK(px_add_scalar_(a, px_int(1), px_int(2)));
  IS(a, 2, 5., 8.);
}

PX_TEST(refuses_invalid_dtypes_and_null_tensors) {
  PX_SCOPED(px_tensor) a = floats(2, 1., 2.);
  px_tensor *out = NULL, *pair[] = {a, NULL};
  px_dtype none = (px_dtype)77;
  FAILS(px_tensor_empty(&out, 0, NULL, none, px_cpu()), PX_TYPE, "invalid dtype 77");
  FAILS(px_tensor_empty_pinned(&out, 0, NULL, none), PX_TYPE, "invalid dtype 77");
  FAILS(px_to(&out, a, none, PX_DEVICE_NONE, false, false), PX_TYPE, "invalid dtype 77");
  FAILS(px_zeros_like(&out, a, none, PX_DEVICE_NONE, false, false, NULL), PX_TYPE,
        "invalid dtype 77");
  FAILS(px_hstack(&out, pair, 2), PX_TYPE, "");
  FAILS(px_vstack(&out, pair, 2), PX_TYPE, "");
  CHECK(!out);
}

PX_TEST(allocation_failures_leak_nothing) {
  PX_SCOPED(px_tensor) m = matrix();
  PX_SCOPED(px_tensor) t = NULL;
  OK(px_t(&t, m));
  for (int n = 1; n < 50; n++) {
    px_tensor *out = NULL;
    int64_t live = px_live_objects(NULL);
    OK(px_fault_arm("alloc", n, false));
    px_status status = px_reshape(&out, t, (const int64_t[]){6}, 1);
    px_fault_disarm_all();
    px_release(out);
    CHECK_EQ(px_live_objects(NULL), live);
    if (status == PX_OK) break;
    px_error_clear();
  }
}

PX_TEST(out_may_be_given_for_one_of_two_results) {
  PX_SCOPED(px_tensor) x = floats(3, 2., 3., 1.);
  PX_SCOPED(px_tensor) maxima = floats(3, 0., 0., 0.);
  const px_op *op = px_op_find("cummax");
  const px_value args[] = {PX_T(x), PX_I(0)};
  void *results[2] = {maxima, NULL};
  OK(px_op_call(op, PX_CALL_OUT, args, results));
  PX_SCOPED(px_tensor) same = results[0];
  PX_SCOPED(px_tensor) indices = results[1];
  CHECK(same == maxima);
  IS(maxima, 3, 2., 3., 3.);
  IS(indices, 3, 0., 1., 1.);
}
