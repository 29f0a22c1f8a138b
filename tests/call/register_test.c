// SPDX-License-Identifier: Apache-2.0
// User-defined ops: definitions, refused definitions, and the dispatch of registered ops on the CPU
// and on simulated devices.
#include "devices.h"
#include "ops_help.h"

#include <pthread.h>

#include "phlox/extend.h"

// ---- squareplus from the example: pointwise, with a kernel and a gradient

#include "../../examples/own_op/squareplus.c"

static const px_op_definition squareplus_definition = {
    .schema = "toys::squareplus(Tensor self, *, Scalar beta=4) -> Tensor",
    .kind = "pointwise float inplace out",
    .dtypes = "float32 float64",
    .doc = "Gives half of self plus the root of self squared plus beta.",
    .kernels = {{"cpu", squareplus_cpu}},
    .gradient = squareplus_gradient};

static const px_op *registered(const px_op_definition *definition) {
  const px_op *op = NULL;
  OK(px_op_register(&op, definition));
  CHECK(op);
  return op;
}

static px_status call(px_tensor **out, const px_op *op, px_tensor *a, px_value b) {
  void *results[4] = {NULL};
  px_value args[16] = {PX_T(a), b};
  PX_TRY(px_op_call(op, PX_CALL_NEW, args, results));
  *out = results[0];
  for (int i = 1; i < 4; i++) px_release(results[i]);
  return PX_OK;
}

PX_TEST(a_registered_op_is_found_and_called) {
  const px_op *op = registered(&squareplus_definition);
  CHECK(px_op_find("toys::squareplus") == op && px_op_at(px_op_count() - 1) == op);
  CHECK(!px_op_at(px_op_count()));
  CHECK_TEXT(op->schema, squareplus_definition.schema);
  CHECK_TEXT(op->grad_name, "SquareplusBackward0");
  PX_SCOPED(px_tensor) x = floats(3, 0., 1.5, -1.5);
  PX_SCOPED(px_tensor) y = NULL;
  OK(call(&y, op, x, PX_NONE()));
  IS(y, 3, 1., 2., 0.5);
  px_release(y);
  OK(call(&y, op, x, PX_S(px_float(0))));
  IS(y, 3, 0., 1.5, 0.);
  char text[64];
  px_value args[16] = {PX_T(x)};
  CHECK_TEXT(px_op_describe(op, args, text, sizeof text), "toys::squareplus(f32[3]@cpu)");
}

PX_TEST(registration_copies_the_definition) {
  char schema[] = "toys::id(Tensor self) -> Tensor", kind[] = "pointwise", device[] = "cpu";
  px_op_definition d = {.schema = schema, .kind = kind, .kernels = {{device, squareplus_cpu}}};
  const px_op *op = registered(&d);
  memset(schema, 'x', sizeof schema - 1);
  memset(device, 'x', sizeof device - 1);
  CHECK_TEXT(op->name, "toys::id");
  CHECK_TEXT(op->params[0].name, "self");
  CHECK(px_op_find("toys::id") == op);
}

PX_TEST(a_registered_op_promotes_and_broadcasts_any_strides) {
  const px_op *op = registered(&squareplus_definition);
  PX_SCOPED(px_tensor) i = longs(2, 0, 1);
  PX_SCOPED(px_tensor) x = matrix();
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  OK(call(&y, op, i, PX_S(px_int(0))));
  CHECK_EQ(px_tensor_dtype(y), PX_FLOAT32);
  IS(y, 2, 0., 1.);
  px_release(y);
  OK(px_t(&t, x));
  OK(call(&y, op, t, PX_S(px_int(0))));
  SHAPE(y, 2, 3, 2);
  IS(y, 6, 0., 3., 1., 4., 2., 5.);
}

PX_TEST(a_registered_op_writes_inplace_and_to_out) {
  const px_op *op = registered(&squareplus_definition);
  PX_SCOPED(px_tensor) x = matrix();
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) out = floats(1, 9.);
  PX_SCOPED(px_tensor) small = longs(2, 1, 2);
  void *results[4] = {NULL};
  OK(px_t(&t, x));
  px_value args[16] = {PX_T(t), PX_S(px_int(0))};
  uint64_t version = px_tensor_version(x);
  OK(px_neg_(x));
  OK(px_op_call(op, PX_CALL_INPLACE, args, results));  // self is transposed
  px_release(results[0]);
  CHECK_EQ(px_tensor_version(x), version + 2);
  IS(x, 6, 0., 0., 0., 0., 0., 0.);
  results[0] = out;
  OK(px_op_call(op, PX_CALL_OUT, args, results));
  CHECK(results[0] == out);
  px_release(results[0]);
  SHAPE(out, 2, 3, 2);
  args[0] = PX_T(small);
  FAILS(px_op_call(op, PX_CALL_INPLACE, args, results), PX_RUNTIME,
        "result type Float can't be cast to the desired output type Long");
}

PX_TEST(an_op_without_an_inplace_form_copies_its_result) {
  px_op_definition d = squareplus_definition;
  d.kind = "pointwise float";
  const px_op *op = registered(&d);
  PX_SCOPED(px_tensor) x = floats(2, 0., 1.5);
  void *results[4] = {NULL};
  px_value args[16] = {PX_T(x)};
  OK(px_op_call(op, PX_CALL_INPLACE, args, results));
  CHECK(results[0] == x);
  px_release(results[0]);
  IS(x, 2, 1., 2.);
}

PX_TEST(errors_name_the_op) {
  const px_op *op = registered(&squareplus_definition);
  px_tensor *y = NULL;
  PX_SCOPED(px_tensor) x = floats(1, 1.);
  PX_SCOPED(px_tensor) half = NULL;
  FAILS(call(&y, op, NULL, PX_NONE()), PX_TYPE,
        "toys::squareplus() missing 1 required positional arguments: \"input\"");
  FAILS(call(&y, op, x, PX_TX("four")), PX_TYPE,
        "toys::squareplus(): argument 'beta' (position 2) must be Number, not str");
  OK(px_to(&half, x, PX_FLOAT16, PX_DEVICE_NONE, false, false));
  FAILS(call(&y, op, half, PX_NONE()), PX_UNIMPLEMENTED, "not implemented for 'Half'");
}

// ---- gradients

static px_status apply(px_tensor **out, px_tensor *const *inputs, void *op) {
  return call(out, op, inputs[0], PX_NONE());
}

static px_tensor *wide(px_device device) {
  const double data[] = {-1.5, -0.25, 0.5, 2};
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, data, 1, (int64_t[]){4}, PX_FLOAT64, device));
  OK(px_tensor_set_requires_grad(t, true));
  return t;
}

static void check_gradients(px_device device) {
  const px_op *op = registered(&squareplus_definition);
  PX_SCOPED(px_tensor) x = wide(device);
  PX_SCOPED(px_tensor) y = NULL;
  px_node *node;
  OK(px_gradcheck(apply, (void *)op, 1, &x, 1e-6, 1e-5, 1e-3));
  OK(px_gradgradcheck(apply, (void *)op, 1, &x, 1e-6, 1e-5, 1e-3));
  OK(call(&y, op, x, PX_NONE()));
  OK(px_tensor_grad_fn(&node, y));
  CHECK_TEXT(px_node_name(node), "SquareplusBackward0");
}
PX_TEST(a_registered_op_is_twice_differentiable) { check_gradients(px_cpu()); }
PX_TEST(a_registered_op_is_twice_differentiable_on_a_device) {
  simulate(1);
  check_gradients(px_cuda(0));
}

static px_status backward_of(const px_op *op, px_tensor *x, bool modify) {
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(call(&y, op, x, PX_NONE()));
  PX_TRY(px_sum_all(&sum, y, PX_DTYPE_NONE));
  if (modify) PX_TRY(px_zero_(y));
  return px_backward(1, &sum, NULL, false, false);
}

PX_TEST(modifying_a_saved_tensor_is_an_error) {
  PX_SCOPED(px_tensor) x = wide(px_cpu());
  FAILS(backward_of(registered(&squareplus_definition), x, true), PX_RUNTIME,
        "which is output 0 of Squareplus, is at version 1; expected version 0");
}

// Reads only the shape of self.
static px_status shape_gradient(px_op_gradient *g) {
  bool trial = px_tensor_ndim(g->args[0].v.tensor) == 2;  // of px_op_register
  CHECK(trial || (g->results[0] == NULL && px_tensor_size(g->args[0].v.tensor, 0) == 4));
  return px_clone(&g->out[0], g->grads[0], NULL);
}
PX_TEST(tensors_not_saved_may_be_modified) {
  px_op_definition d = squareplus_definition;
  d.gradient = shape_gradient, d.saves = "";
  PX_SCOPED(px_tensor) x = wide(px_cpu());
  OK(backward_of(registered(&d), x, true));
  IS(px_tensor_grad(x), 4, 1., 1., 1., 1.);
}

static px_status reads_self(px_op_gradient *g) {
  return px_mul(&g->out[SELF], g->grads[0], g->args[SELF].v.tensor);
}
static px_status reads_result(px_op_gradient *g) {
  return px_mul(&g->out[SELF], g->grads[0], g->results[0]);
}
static px_status reads_other(px_op_gradient *g) {
  return px_mul(&g->out[SELF], g->grads[0], g->args[1].v.tensors[1]);
}
PX_TEST(a_gradient_reading_unsaved_contents_is_refused) {
  px_op_definition d = {.schema = "toys::unsaved(Tensor self) -> Tensor",
                        .kind = "pointwise float",
                        .dtypes = "float64",
                        .kernels = {{"cpu", squareplus_cpu}},
                        .gradient = reads_self,
                        .saves = "result"};
  FAILS(px_op_register(NULL, &d), PX_VALUE,
        "the gradient of toys::unsaved reads the contents of 'self', which `saves` does not name");
  d.gradient = reads_result, d.saves = "self";
  FAILS(px_op_register(NULL, &d), PX_VALUE,
        "the gradient of toys::unsaved reads the contents of 'result', which `saves` does not "
        "name");
  d.schema = "toys::unsaved(Tensor self, Tensor[] others) -> Tensor";
  d.kind = "kernel", d.gradient = reads_other;
  FAILS(px_op_register(NULL, &d), PX_VALUE,
        "the gradient of toys::unsaved reads the contents of 'others', which `saves` does not "
        "name");
  d.saves = "others";
  registered(&d);
}
PX_TEST(reading_a_guarded_outline_fails) {
  PX_SCOPED(px_tensor) x = floats(2, 1., 2.);
  PX_SCOPED(px_tensor) outline = NULL;
  px_tensor *y = NULL;
  void *data;
  OK(px_tensor_outline(&outline, x));
  px_tensor_guard_outline(outline);
  FAILS(px_neg(&y, outline), PX_RUNTIME, "a tensor that `saves` does not name");
  FAILS(px_tensor_host_data(&data, outline), PX_RUNTIME, "a tensor that `saves` does not name");
}
static px_status of_vectors(px_op_result *results, const px_value *args) {
  (void)args;
  PX_CHECK(results[0].ndim == 1, PX_VALUE, "expected 1 dimension");
  return PX_OK;
}
static void check_unsaved(px_device device) {
  px_op_definition d = {.schema = "toys::unsaved(Tensor self, *, Scalar beta=4) -> Tensor",
                        .kind = "kernel",
                        .kernels = {{"cpu", squareplus_cpu}},
                        .shape = of_vectors,
                        .gradient = reads_self,
                        .saves = ""};
  PX_SCOPED(px_tensor) x = wide(device);
  FAILS(backward_of(registered(&d), x, false), PX_RUNTIME,
        "a gradient reads the contents of a tensor that `saves` does not name");
}
PX_TEST(a_backward_pass_cannot_read_unsaved_contents) { check_unsaved(px_cpu()); }
PX_TEST(a_backward_pass_cannot_read_unsaved_contents_on_a_device) {
  simulate(1);
  check_unsaved(px_cuda(0));
}

PX_TEST(a_missing_gradient_fails_backward) {
  px_op_definition d = squareplus_definition;
  d.gradient = NULL;
  PX_SCOPED(px_tensor) x = wide(px_cpu());
  FAILS(backward_of(registered(&d), x, false), PX_UNIMPLEMENTED,
        "derivative for toys::squareplus is not implemented");
}

// ---- pick: a result of another shape, and a check of the index

static px_status pick(const px_launch *l) {
  const float *from = l->operands[1].data;
  const int64_t *index = l->operands[2].data, size = l->operands[1].sizes[0];
  float *to = l->operands[0].data;
  for (int64_t i = 0; i < l->operands[0].sizes[0]; i++) {
    bool inside = index[i] >= 0 && index[i] < size;
    if (!inside) px_kernel_fault(l, PX_FAULT_INDEX, index[i], 0, size);
    if (inside) to[i] = from[index[i]];
  }
  return PX_OK;
}
static px_status pick_shape(px_op_result *results, const px_value *args) {
  CHECK_EQ(results[0].dtype, PX_FLOAT32);
  results[0].sizes[0] = px_tensor_size(args[1].v.tensor, 0);
  return PX_OK;
}
static const px_op_definition pick_definition = {
    .schema = "toys::pick(Tensor self, Tensor index) -> Tensor",
    .kind = "kernel",
    .dtypes = "float32",
    .kernels = {{"cpu", pick}},
    .shape = pick_shape};

static void picks(px_device device) {
  const px_op *op = registered(&pick_definition);
  PX_SCOPED(px_tensor) x = floats(3, 1., 2., 3.);
  PX_SCOPED(px_tensor) i = longs(4, 2, 0, 0, 1);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) on_device = NULL;
  PX_SCOPED(px_tensor) index = NULL;
  OK(px_to(&on_device, x, PX_DTYPE_NONE, device, false, false));
  OK(px_to(&index, i, PX_DTYPE_NONE, device, false, false));
  OK(call(&y, op, on_device, PX_T(index)));
  IS(y, 4, 3., 1., 1., 2.);
}
PX_TEST(a_shape_function_sets_the_result_shape) { picks(px_cpu()); }
PX_TEST(the_simulator_runs_the_cpu_kernel) {
  simulate(1);
  picks(px_cuda(0));
}

PX_TEST(kernel_errors_name_the_op_and_the_line) {
  simulate(1);
  const px_op *op = registered(&pick_definition);
  PX_SCOPED(px_tensor) x = floats(3, 1., 2., 3.);
  PX_SCOPED(px_tensor) i = longs(1, 7);
  PX_SCOPED(px_tensor) on_device = NULL;
  PX_SCOPED(px_tensor) index = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  FAILS(call(&y, op, x, PX_T(i)), PX_INDEX, "index 7 is out of bounds for dimension 0 with size 3");
  OK(px_to(&on_device, x, PX_DTYPE_NONE, px_cuda(0), false, false));
  OK(px_to(&index, i, PX_DTYPE_NONE, px_cuda(0), false, false));
  px_site_set("program.c", 12);
  OK(call(&y, op, on_device, PX_T(index)));
  FAILS(px_device_synchronize(0), PX_INDEX,
        "It was reported by toys::pick on the default stream of cuda:0, launched at program.c:12");
}

PX_TEST(tensors_of_two_devices_are_refused) {
  simulate(1);
  const px_op *op = registered(&pick_definition);
  PX_SCOPED(px_tensor) x = floats(1, 1.);
  PX_SCOPED(px_tensor) i = longs(1, 0);
  PX_SCOPED(px_tensor) on_device = NULL;
  px_tensor *y = NULL;
  OK(px_to(&on_device, x, PX_DTYPE_NONE, px_cuda(0), false, false));
  FAILS(call(&y, op, on_device, PX_T(i)), PX_RUNTIME,
        "Expected all tensors to be on the same device");
}

PX_TEST(the_race_checker_names_the_op) {
  simulate(1);
  px_race_enable(1, true);
  const px_op *op = registered(&squareplus_definition);
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  px_tensor *y = NULL;
  const int64_t size = 100;
  OK(px_ones(&x, &size, 1, PX_FLOAT32, px_cuda(0), false, false));
  OK(px_stream_new(&side, px_cuda(0), 0));
  OK(px_stream_set_current(side));
  FAILS(call(&y, op, x, PX_NONE()), PX_RUNTIME, "toys::squareplus reads it on stream 1 of cuda:0");
}

// ---- which kernel runs

static px_status fill_one(const px_launch *l) {
  for (int64_t i = 0; i < px_operand_numel(&l->operands[0]); i++)
    ((float *)l->operands[0].data)[i] = 1;
  return PX_OK;
}
PX_TEST(a_backends_kernel_precedes_the_cpu_kernel) {
  simulate(1);
  px_op_definition d = squareplus_definition;
  d.kernels[1] = (px_op_kernel){"sim", fill_one};
  const px_op *op = registered(&d);
  PX_SCOPED(px_tensor) x = floats(2, 0., 1.5);
  PX_SCOPED(px_tensor) on_device = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_to(&on_device, x, PX_DTYPE_NONE, px_cuda(0), false, false));
  OK(call(&y, op, on_device, PX_NONE()));
  IS(y, 2, 1., 1.);
  px_release(y);
  OK(call(&y, op, x, PX_NONE()));
  IS(y, 2, 1., 2.);
}
PX_TEST(a_device_without_a_kernel_is_an_error) {
  simulate(1);
  px_op_definition d = squareplus_definition;
  d.kernels[0].device = "cuda";
  const px_op *op = registered(&d);
  PX_SCOPED(px_tensor) x = floats(1, 0.);
  PX_SCOPED(px_tensor) on_device = NULL;
  px_tensor *y = NULL;
  OK(px_to(&on_device, x, PX_DTYPE_NONE, px_cuda(0), false, false));
  FAILS(call(&y, op, x, PX_NONE()), PX_UNIMPLEMENTED,
        "toys::squareplus has no kernel for device type cpu");
  FAILS(call(&y, op, on_device, PX_NONE()), PX_UNIMPLEMENTED,
        "toys::squareplus has no kernel for device type cuda");
}

// ---- strides of operands

static px_status double_strided(const px_launch *l) {
  const px_operand *to = &l->operands[0], *a = &l->operands[1], *b = &l->operands[2];
  CHECK_EQ(a->strides[0], 1);  // a transposed matrix
  CHECK_EQ(a->dtype, PX_INT64);
  CHECK(b->immediate);
  for (int64_t i = 0; i < to->sizes[0]; i++)
    for (int64_t k = 0; k < to->sizes[1]; k++)
      ((float *)to->data)[i * to->strides[0] + k * to->strides[1]] =
          (float)((const int64_t *)a->data)[i * a->strides[0] + k * a->strides[1]] +
          *(const float *)b->data;
  return PX_OK;
}
PX_TEST(a_strided_kernel_gets_strided_operands) {
  const px_op *op =
      registered(&(px_op_definition){.schema = "toys::sum2(Tensor self, Tensor other) -> Tensor",
                                     .kind = "pointwise strided",
                                     .kernels = {{"cpu", double_strided}}});
  PX_SCOPED(px_tensor) x = matrix();
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_to(&whole, x, PX_INT64, PX_DEVICE_NONE, false, false));
  OK(px_t(&t, whole));
  OK(call(&y, op, t, PX_F(0.5)));
  CHECK_EQ(px_tensor_dtype(y), PX_FLOAT32);
  IS(y, 6, 0.5, 3.5, 1.5, 4.5, 2.5, 5.5);
}

// Not strided: scalars and one-element tensors are expanded to full operands of the compute dtype.
static px_status add_plain(const px_launch *l) {
  int64_t n = px_operand_numel(&l->operands[0]);
  for (int k = 0; k < 3; k++) {
    CHECK_EQ(l->operands[k].dtype, PX_FLOAT32);
    CHECK_EQ(px_operand_numel(&l->operands[k]), n);
    CHECK(!l->operands[k].immediate);
  }
  const float *a = l->operands[1].data, *b = l->operands[2].data;
  for (int64_t i = 0; i < n; i++) ((float *)l->operands[0].data)[i] = a[i] + b[i];
  return PX_OK;
}
static void check_plain(px_device device) {
  const px_op *op =
      registered(&(px_op_definition){.schema = "toys::sum(Tensor self, Tensor other) -> Tensor",
                                     .kind = "pointwise inplace",
                                     .kernels = {{"cpu", add_plain}}});
  PX_SCOPED(px_tensor) i = longs(3, 1, 2, 3);
  PX_SCOPED(px_tensor) on_device = NULL;
  PX_SCOPED(px_tensor) one = floats(1, 0.25);
  PX_SCOPED(px_tensor) near = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  OK(px_to(&on_device, i, PX_DTYPE_NONE, device, false, false));
  OK(px_to(&near, one, PX_DTYPE_NONE, device, false, false));
  OK(call(&y, op, on_device, PX_F(0.5)));
  IS(y, 3, 1.5, 2.5, 3.5);
  OK(call(&z, op, on_device, PX_T(near)));
  IS(z, 3, 1.25, 2.25, 3.25);
}
PX_TEST(other_kernels_get_contiguous_operands) { check_plain(px_cpu()); }
PX_TEST(other_kernels_get_contiguous_operands_on_a_device) {
  simulate(1);
  check_plain(px_cuda(0));
}

PX_TEST(empty_tensors_launch_no_kernel) {
  const px_op *op = registered(&squareplus_definition);
  const int64_t none = 0;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_zeros(&x, &none, 1, PX_FLOAT32, px_cpu(), false, false));
  OK(px_fault_arm("launch", 1, true));
  OK(call(&y, op, x, PX_NONE()));
  CHECK_EQ(px_tensor_numel(y), 0);
}

// ---- functions and composites

static px_status mean_and_square(px_tensor **results, const px_value *args) {
  PX_TRY(px_mean_all(&results[0], args[0].v.tensor, PX_DTYPE_NONE));
  return px_mul(&results[1], args[0].v.tensor, args[0].v.tensor);
}
static px_status ones_gradient(px_op_gradient *g) {
  CHECK_EQ(g->grad_count, 2);
  return px_ones_like(&g->out[0], g->args[0].v.tensor, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false,
                      NULL);
}
PX_TEST(a_function_defines_its_gradient) {
  const px_op *op = registered(
      &(px_op_definition){.schema = "toys::moments(Tensor self) -> (Tensor mean, Tensor square)",
                          .kind = "function",
                          .run = mean_and_square,
                          .gradient = ones_gradient});
  CHECK_TEXT(op->result_names[1], "square");
  PX_SCOPED(px_tensor) x = wide(px_cpu());
  px_value args[16] = {PX_T(x)};
  void *results[4] = {NULL};
  OK(px_op_call(op, PX_CALL_NEW, args, results));
  px_tensor *mean = results[0];
  OK(px_backward(1, &mean, NULL, false, false));
  IS(px_tensor_grad(x), 4, 1., 1., 1., 1.);
  px_release(results[0]);
  px_release(results[1]);
}
PX_TEST(a_composite_uses_the_gradient_of_its_ops) {
  const px_op *op = registered(
      &(px_op_definition){.schema = "toys::moments(Tensor self) -> (Tensor mean, Tensor square)",
                          .kind = "composite",
                          .run = mean_and_square});
  PX_SCOPED(px_tensor) x = wide(px_cpu());
  OK(px_gradcheck(apply, (void *)op, 1, &x, 1e-6, 1e-5, 1e-3));
}
static px_status return_nothing(px_tensor **results, const px_value *args) { return PX_OK; }
PX_TEST(a_function_must_return_its_results) {
  const px_op *op = registered(&(px_op_definition){
      .schema = "toys::none(Tensor self) -> Tensor", .kind = "function", .run = return_nothing});
  PX_SCOPED(px_tensor) x = floats(1, 1.);
  px_tensor *y = NULL;
  FAILS(call(&y, op, x, PX_NONE()), PX_RUNTIME, "toys::none returned no result 0");
}

static px_status add_to(void *data, px_tensor **results, const px_value *args) {
  return px_add_scalar_(args[0].v.tensor, px_float(*(double *)data), px_int(1));
}
PX_TEST(a_function_may_take_context_data_and_return_nothing) {
  double amount = 3;
  const px_op *op = registered(&(px_op_definition){.schema = "toys::add_to(Tensor(a!) self) -> ()",
                                                   .kind = "composite",
                                                   .serve = add_to,
                                                   .data = &amount});
  PX_SCOPED(px_tensor) x = floats(2, 1., 2.);
  px_value args[16] = {PX_T(x)};
  OK(px_op_call(op, PX_CALL_NEW, args, (void *[4]){NULL}));
  amount = 0.5;
  OK(px_op_call(op, PX_CALL_NEW, args, (void *[4]){NULL}));
  IS(x, 2, 4.5, 5.5);
  FAILS(px_op_call(op, PX_CALL_INPLACE, args, (void *[4]){NULL}), PX_TYPE,
        "does not support writing to self");
}
PX_TEST(result_names_are_optional) {
  const px_op *op = registered(
      &(px_op_definition){.schema = "toys::two(Tensor(a)? self) -> (Tensor(a), Tensor b)",
                          .kind = "composite",
                          .run = mean_and_square});
  CHECK_EQ(op->result_count, 2);
  CHECK_TEXT(op->result_names[0], "result0");
  CHECK_TEXT(op->result_names[1], "b");
}

// ---- refused definitions

PX_TEST(schema_errors_name_the_character) {
  static const struct {
    const char *schema, *text;
  } rows[] = {
      {"", "character 1: expected the name of the op"},
      {"f", "character 2: expected '(', but it ends here"},
      {"f(Tnsor self) -> Tensor", "character 3: unknown type 'Tnsor'"},
      {"f(Tensor) -> Tensor", "character 9: expected the name of a parameter, not ') -> Tensor'"},
      {"f(Tensor self Tensor b) -> Tensor", "character 15: expected ',', not 'Tensor b) ->'"},
      {"f(Tensor a, Tensor a) -> Tensor", "character 20: duplicate parameter 'a'"},
      {"f(Tensor a=1) -> Tensor", "character 12: the default of 'a' can only be None"},
      {"f(Tensor a, int n=None) -> Tensor", "character 19: 'n' may not be None"},
      {"f(Tensor a, int n=1.5) -> Tensor", "character 19: expected an integer, not '1.5'"},
      {"f(Tensor a, int n=x) -> Tensor",
       "character 19: 'x) -> Tensor' is not a valid default of 'n'"},
      {"f(Tensor a, bool b=1) -> Tensor",
       "character 20: '1) -> Tensor' is not a valid default of 'b'"},
      {"f(Tensor a, int n=True) -> Tensor", "character 19: a bool is not a valid default of 'n'"},
      {"f(Tensor a, float[] x) -> Tensor", "character 13: lists of float are not supported"},
      {"f(Tensor a, str s=x) -> Tensor",
       "character 19: the default of 's' must be a quoted string"},
      {"f(Tensor a, Dtype? d=flat32) -> Tensor", "character 22: unknown dtype 'flat32'"},
      {"f(Tensor a, int[] n=[1, 2) -> Tensor", "expected ',', not ') -> Tensor'"},
      {"f(Tensor a)", "character 12: expected '->', but it ends here"},
      {"f(Tensor a) -> int", "character 16: expected '(', not 'int'"},
      {"f(Tensor a) -> Tensor[]", "character 22: expected the end, not '[]'"},
      {"f(Tensor a) -> (Tensor 7)", "character 24: expected the name of a result, not '7)'"},
      {"f(Tensor(a a) -> Tensor", "character 9: expected '(a)' or '(a!)', not '(a a) -> Ten'"},
      {"f(Tensor() a) -> Tensor", "character 9: expected '(a)' or '(a!)'"},
      {"f(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, int g, int h, int i, int j, int k, "
       "int l, int m, int n, int o, int p, int q, int r) -> Tensor",
       "at most 16 parameters are supported"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    px_op_definition d = squareplus_definition;
    int64_t objects = px_live_objects(NULL), ops = px_op_count();
    d.schema = rows[i].schema;
    FAILS(px_op_register(NULL, &d), PX_VALUE, rows[i].text);
    CHECK_EQ(px_live_objects(NULL), objects);
    CHECK_EQ(px_op_count(), ops);
  }
}

PX_TEST(defaults_come_from_the_schema) {
  const px_op *op = registered(&(px_op_definition){
      .schema = "defaults( Tensor self , int[2] sizes=[3, -4], int[] one=7, int[] none=[], "
                "float f=1e-05, Scalar s=2, Scalar t=-0.5, bool b=True, int? n=None, "
                "str mode='a, b)', *, ScalarType? dtype=float64, Device? device=None, "
                "Scalar inf=inf, Tensor? mask=None)->Tensor",
      .kind = "function",
      .run = return_nothing});
  const px_param *p = op->params;
  CHECK_EQ(op->param_count, 14);
  CHECK(p[1].kind == PX_ARG_INTS && p[1].fallback.n == 2 && p[1].fallback.v.ints[1] == -4);
  CHECK(p[2].fallback.n == 1 && p[2].fallback.v.ints[0] == 7 && p[3].fallback.n == 0);
  CHECK(p[4].fallback.v.f == 1e-05 && p[5].fallback.category == 'i' && p[6].fallback.v.f == -0.5);
  CHECK(p[7].fallback.v.i == 1 && p[8].optional && p[8].fallback.kind == PX_ARG_NONE);
  CHECK_TEXT(p[9].fallback.v.text, "a, b)");
  CHECK_TEXT(p[9].fallback_text, "'a, b)'");
  CHECK(!p[9].keyword_only && p[10].keyword_only && p[10].fallback.v.i == PX_FLOAT64);
  CHECK(isinf(p[12].fallback.v.f) && p[13].optional && p[13].kind == PX_ARG_TENSOR);
}

PX_TEST(inconsistent_definitions_are_refused) {
  static const char schema[] = "toys::f(Tensor self, Tensor[] more, int n=0) -> Tensor";
  static const char one[] = "toys::f(Tensor self) -> Tensor";
  static const struct {
    px_op_definition d;
    const char *text;
  } rows[] = {
      {{.schema = one, .kind = ""}, "toys::f has no kind"},
      {{.schema = "f(Tensor x) -> ()", .kind = "function", .run = return_nothing},
       "f has no result; only composite ops may have none"},
      {{.schema = one, .kind = "function", .run = return_nothing, .serve = add_to},
       "toys::f has functions `run` and `serve`"},
      {{.schema = one, .kind = "kernel", .kernels = {{"cpu", pick}}, .serve = add_to},
       "toys::f has kernels and a function `serve`"},
      {{.schema = one, .kind = "pontwise"}, "unknown kind 'pontwise'"},
      {{.schema = one, .kind = "view"}, "unknown kind 'view'; there are pointwise, kernel"},
      {{.schema = one, .kind = "pointwise flot"}, "unknown word 'flot' after the kind"},
      {{.schema = one, .kind = "pointwise"}, "toys::f is a pointwise op and has no kernels"},
      {{.schema = one, .kind = "kernel", .kernels = {{"cpu", NULL}}}, "for 'cpu' is NULL"},
      {{.schema = one, .kind = "kernel", .kernels = {{"cpu", pick}, {"cpu", pick}}},
       "toys::f has two kernels for 'cpu'"},
      {{.schema = one, .kind = "kernel", .kernels = {{"cpu", pick}}, .run = return_nothing},
       "toys::f has kernels and a function `run`"},
      {{.schema = one, .kind = "kernel float", .kernels = {{"cpu", pick}}},
       "'float' is for pointwise ops"},
      {{.schema = one, .kind = "pointwise", .dtypes = "flat", .kernels = {{"cpu", pick}}},
       "unknown dtype 'flat'"},
      {{.schema = one, .kind = "pointwise", .kernels = {{"cpu", pick}}, .shape = pick_shape},
       "its result's shape follows from broadcasting"},
      {{.schema = schema, .kind = "pointwise", .kernels = {{"cpu", pick}}},
       "toys::f is pointwise and has a list of tensors, 'more'"},
      {{.schema = "toys::f(Tensor a) -> (Tensor b, Tensor c)",
        .kind = "pointwise",
        .kernels = {{"cpu", pick}}},
       "toys::f is pointwise and has 2 results"},
      {{.schema = "toys::f(int n) -> Tensor", .kind = "kernel", .kernels = {{"cpu", pick}}},
       "the first parameter of toys::f, which has kernels, must be a Tensor"},
      {{.schema = one, .kind = "function"}, "toys::f has no function `run`"},
      {{.schema = one, .kind = "function inplace", .run = return_nothing},
       "'inplace' is for ops with kernels"},
      {{.schema = "f(int n) -> Tensor", .kind = "function method", .run = return_nothing},
       "cannot be a method"},
      {{.schema = one, .kind = "composite", .run = return_nothing, .gradient = ones_gradient},
       "its gradient is that of the ops it calls"},
      {{.schema = one, .kind = "function", .run = return_nothing, .saves = "self"},
       "toys::f saves 'self' and has no gradient"},
      {{.schema = schema,
        .kind = "function",
        .run = return_nothing,
        .gradient = ones_gradient,
        .saves = "self, n"},
       "toys::f saves 'n', which is neither a tensor parameter nor a result"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    FAILS(px_op_register(NULL, &rows[i].d), PX_VALUE, rows[i].text);
  FAILS(px_op_register(NULL, &(px_op_definition){.kind = "kernel"}), PX_TYPE,
        "an op needs a schema and a kind");
  FAILS(px_op_register(NULL, NULL), PX_TYPE, "`definition` is NULL");
}

PX_TEST(a_name_is_registered_once) {
  px_op_definition d = squareplus_definition;
  registered(&d);
  FAILS(px_op_register(NULL, &d), PX_VALUE, "op 'toys::squareplus' is already registered");
  d.schema = "add(Tensor self, *, Scalar beta=4) -> Tensor";
  FAILS(px_op_register(NULL, &d), PX_VALUE, "op 'add' is already registered");
  d.schema = "toys::add(Tensor self, *, Scalar beta=4) -> Tensor";
  registered(&d);
}

// ---- many ops, many threads

static const px_op *numbered(int i) {
  char schema[64];
  snprintf(schema, sizeof schema, "many::op%d(Tensor self, *, Scalar beta=4) -> Tensor", i);
  px_op_definition d = squareplus_definition;
  d.schema = schema;
  const px_op *op = NULL;
  return px_op_register(&op, &d) == PX_OK ? op : NULL;
}

PX_TEST(a_thousand_ops_can_be_registered) {
  PX_SCOPED(px_tensor) x = floats(1, 0.);
  const px_op *last = NULL;
  for (int i = 0; i < 1024; i++) {
    const px_op *op = numbered(i);
    CHECK(op && px_op_at(px_op_count() - 1) == op);
    last = op;
  }
  CHECK(px_op_find("many::op0") && px_op_find("many::op1023") == last);
  for (int i = 0; i < 2; i++) {
    PX_SCOPED(px_tensor) y = NULL;
    OK(call(&y, last, x, PX_NONE()));
    IS(y, 1, 1.);
  }
  CHECK(!numbered(1024));
  CHECK(strstr(px_error_last()->message, "1024 ops can be registered"));
}

enum { THREADS = 8, NAMES = 50 };
static int won[NAMES];  // atomic

// All threads register the same names while they look up and call the ops.
static void *register_all(void *unused) {
  for (int i = 0; i < NAMES; i++) {
    if (numbered(i)) __atomic_add_fetch(&won[i], 1, __ATOMIC_RELAXED);
    char name[32];
    snprintf(name, sizeof name, "many::op%d", i);
    const px_op *op = px_op_find(name);
    CHECK(op && !strcmp(op->name, name));
    PX_SCOPED(px_tensor) x = floats(1, 0.);
    PX_SCOPED(px_tensor) y = NULL;
    OK(call(&y, op, x, PX_NONE()));
    IS(y, 1, 1.);
  }
  return NULL;
}

PX_TEST(of_threads_registering_a_name_one_succeeds) {
  pthread_t threads[THREADS];
  int before = px_op_count();
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, register_all, NULL) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < NAMES; i++) CHECK_EQ(won[i], 1);
  CHECK_EQ(px_op_count(), before + NAMES);
}

// ---- faults

PX_TEST(a_failed_registration_leaves_no_op) {
  int ops = px_op_count();
  bool failed = true;
  for (int64_t n = 1; failed; n++) {
    CHECK_EQ(px_op_count(), ops);
    OK(px_fault_arm("alloc", n, false));
    failed = px_op_register(NULL, &squareplus_definition) != PX_OK;
    px_fault_disarm_all();
    if (failed) CHECK_EQ(px_error_last()->code, PX_NOMEM);
  }
  CHECK_EQ(px_op_count(), ops + 1);
}

static void check_failed_call(const char *point, px_device device) {
  const px_op *op = px_op_find("toys::squareplus");
  PX_SCOPED(px_tensor) x = matrix();
  PX_SCOPED(px_tensor) on_device = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  OK(px_to(&on_device, x, PX_DTYPE_NONE, device, false, false));
  OK(px_t(&t, on_device));
  px_value args[16] = {PX_T(t)};
  int64_t objects = px_live_objects(NULL), passed = 0;
  for (int64_t n = 1, failed = 1; failed; n++) {
    void *results[4] = {NULL};
    OK(px_fault_arm(point, n, false));
    failed = px_op_call(op, PX_CALL_INPLACE, args, results) != PX_OK;
    passed = px_fault_seen(point);
    px_fault_disarm_all();
    px_release(results[0]);
    CHECK_EQ(px_live_objects(NULL), objects);
    if (failed) IS(on_device, 6, 0., 1., 2., 3., 4., 5.);
  }
  CHECK(passed > 0 && px_tensor_version(on_device) == 1);
}
PX_TEST(a_failed_call_changes_nothing) {
  simulate(1);
  registered(&squareplus_definition);
  check_failed_call("alloc", px_cpu());
  check_failed_call("launch", px_cpu());
  check_failed_call("alloc", px_cuda(0));
  check_failed_call("launch", px_cuda(0));
}
