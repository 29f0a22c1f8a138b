// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation: gradients of leaves, the public graph API, and errors.
#include "autograd_helpers.h"
#include "phlox/memory.h"

PX_TEST(gradients_reach_the_leaves) {
  PX_SCOPED(px_tensor) x = LEAF(2, 3), *w = LEAF(5, 7), *y = NULL;
  OK(px_mul(&y, x, w));
  CHECK(px_tensor_requires_grad(y) && !px_tensor_is_leaf(y));
  CHECK_TEXT(maker(y), "MulBackward0");
  back(y);
  CHECK_NEAR(at(px_tensor_grad(x), 1), 7, 0);
  CHECK_NEAR(at(px_tensor_grad(w), 0), 2, 0);
}

PX_TEST(gradients_accumulate_without_aliasing) {
  PX_SCOPED(px_tensor) a = LEAF(1, 1), *b = LEAF(1, 1), *y = NULL;
  for (int i = 0; i < 2; i++) {
    OK(px_add(&y, a, b, px_int(1)));
    back(y);
    px_release(PX_MOVE(y));
  }
  CHECK_NEAR(at(px_tensor_grad(a), 0), 2, 0);
  CHECK_NEAR(at(px_tensor_grad(b), 0), 2, 0);
  CHECK(px_tensor_storage(px_tensor_grad(a)) != px_tensor_storage(px_tensor_grad(b)));
}

PX_TEST(a_tensor_used_twice_gets_the_sum) {
  PX_SCOPED(px_tensor) x = LEAF(3), *y = NULL, *z = NULL;
  OK(px_mul(&y, x, x));
  OK(px_add(&z, y, x, px_int(4)));
  back(z);
  CHECK_NEAR(at(px_tensor_grad(x), 0), 10, 0);
}

PX_TEST(gradients_are_reduced_to_broadcast_operands) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2, 3), *s = needing_grad(VECTOR(2)), *y = NULL;
  OK(px_mul(&y, x, s));
  back(y);
  CHECK_EQ(px_tensor_numel(px_tensor_grad(s)), 1);
  CHECK_NEAR(at(px_tensor_grad(s), 0), 6, 0);
}

PX_TEST(the_gradient_has_the_operands_dtype) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *d = NULL, *y = NULL;
  double values[] = {0.5, 0.25};
  OK(px_tensor_from_data(&d, values, 1, (int64_t[]){2}, PX_FLOAT64, px_cpu()));
  OK(px_mul(&y, x, d));
  CHECK_EQ(px_tensor_dtype(y), PX_FLOAT64);
  back(y);
  CHECK_EQ(px_tensor_dtype(px_tensor_grad(x)), PX_FLOAT32);
  CHECK_NEAR(at(px_tensor_grad(x), 1), 0.25, 0);
}

PX_TEST(nothing_is_recorded_without_grad_mode) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL;
  px_grad_set_enabled(false);
  OK(px_exp(&y, x));
  px_grad_set_enabled(true);
  CHECK(!px_tensor_requires_grad(y) && px_tensor_is_leaf(y));
}

PX_TEST(edges_name_the_inputs) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL;
  OK(px_add_scalar(&y, x, px_float(1), px_int(1)));
  px_node *fn;
  OK(px_tensor_grad_fn(&fn, y));
  int nr = -1;
  CHECK_EQ(px_node_edge_count(fn), 2);
  CHECK_TEXT(px_node_name(px_node_edge(fn, 0, &nr)), "AccumulateGrad");
  CHECK(px_node_variable(px_node_edge(fn, 0, NULL)) == x);
  CHECK(px_node_edge(fn, 1, NULL) == NULL);
}

PX_TEST(a_second_backward_requires_retain_graph) {
  PX_SCOPED(px_tensor) x = LEAF(2), *y = NULL;
  OK(px_mul(&y, x, x));
  OK(px_backward(1, &y, NULL, true, false));
  OK(px_backward(1, &y, NULL, false, false));
  FAILS(px_backward(1, &y, NULL, false, false), PX_RUNTIME,
        "Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed).");
  CHECK_NEAR(at(px_tensor_grad(x), 0), 8, 0);
}

PX_TEST(roots_are_checked) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *plain = VECTOR(1), *y = NULL, *g = VECTOR(1, 2, 3);
  OK(px_exp(&y, x));
  FAILS(px_backward(1, &y, NULL, false, false), PX_RUNTIME,
        "grad can be implicitly created only for scalar outputs");
  FAILS(px_backward(1, &plain, NULL, false, false), PX_RUNTIME,
        "element 0 of tensors does not require grad and does not have a grad_fn");
  FAILS(px_backward(1, &y, &g, false, false), PX_RUNTIME,
        "Mismatch in shape: grad_output[0] has a shape of torch.Size([3]) and output[0] has a "
        "shape of torch.Size([2]).");
}

PX_TEST(requires_grad_needs_a_floating_leaf) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL, *i = NULL;
  int64_t one = 1;
  OK(px_tensor_from_data(&i, &one, 1, &one, PX_INT64, px_cpu()));
  FAILS(px_tensor_set_requires_grad(i, true), PX_RUNTIME,
        "only Tensors of floating point dtype can require gradients");
  OK(px_exp(&y, x));
  FAILS(px_tensor_set_requires_grad(y, false), PX_RUNTIME,
        "you can only change requires_grad flags of leaf variables. If you want to use a computed "
        "variable in a subgraph that doesn't require differentiation use var_no_grad = "
        "var.detach().");
}

PX_TEST(grad_of_chosen_inputs_does_not_accumulate_in_leaves) {
  PX_SCOPED(px_tensor) x = LEAF(2), *w = LEAF(3), *y = NULL, *z = NULL;
  px_tensor *g[2] = {0};
  OK(px_mul(&y, x, w));
  OK(px_mul(&z, y, y));
  OK(px_grad(g, 1, &z, NULL, 2, (px_tensor *[]){y, x}, false, false, false));
  CHECK_NEAR(at(g[0], 0), 12, 0);
  CHECK_NEAR(at(g[1], 0), 36, 0);
  px_release(g[0]), px_release(g[1]);
  CHECK(!px_tensor_grad(x) && !px_tensor_grad(w));
}

PX_TEST(an_unused_input_is_an_error_unless_allowed) {
  PX_SCOPED(px_tensor) x = LEAF(2), *w = LEAF(3), *y = NULL;
  px_tensor *g[2] = {0};
  OK(px_mul(&y, x, x));
  px_tensor *inputs[] = {x, w};
  FAILS(px_grad(g, 1, &y, NULL, 2, inputs, true, false, false), PX_RUNTIME,
        "The differentiated Tensor at index 1 appears to not have been used in the graph. Set "
        "allow_unused=True if this is the desired behavior.");
  OK(px_grad(g, 1, &y, NULL, 2, inputs, false, false, true));
  CHECK(g[1] == NULL);
  CHECK_NEAR(at(g[0], 0), 4, 0);
  px_release(g[0]);
}

PX_TEST(create_graph_gives_second_derivatives) {
  PX_SCOPED(px_tensor) x = LEAF(2), *y = NULL, *z = NULL, *g = NULL, *gg = NULL;
  OK(px_mul(&y, x, x));
  OK(px_mul(&z, y, x));
  OK(px_grad(&g, 1, &z, NULL, 1, &x, true, true, false));
  CHECK(px_tensor_requires_grad(g));
  CHECK_NEAR(at(g, 0), 12, 1e-5);
  OK(px_grad(&gg, 1, &g, NULL, 1, &x, false, false, false));
  CHECK_NEAR(at(gg, 0), 12, 1e-5);
}

PX_TEST(a_saved_result_keeps_its_graph_under_create_graph) {
  PX_SCOPED(px_tensor) x = LEAF(0.5f), *y = NULL, *g = NULL, *gg = NULL;
  OK(px_exp(&y, x));
  OK(px_grad(&g, 1, &y, NULL, 1, &x, true, true, false));
  OK(px_grad(&gg, 1, &g, NULL, 1, &x, false, false, false));
  CHECK_NEAR(at(gg, 0), exp(0.5), 1e-6);
}

PX_TEST(a_modified_saved_tensor_is_an_error) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL;
  OK(px_exp(&y, x));
  px_grad_set_enabled(false);
  OK(px_add_(y, y, px_int(1)));
  px_grad_set_enabled(true);
  PX_SCOPED(px_tensor) g = VECTOR(1, 1);
  FAILS(px_backward(1, &y, &g, false, false), PX_RUNTIME,
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [torch.FloatTensor [2]], which is output 0 of Exp, is at version 1; "
        "expected version 0 instead. Hint: enable anomaly detection to find the operation that "
        "failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, "
        "check_nan=False).");
}

PX_TEST(only_tensors_needed_for_requested_gradients_are_saved) {
  PX_SCOPED(px_tensor) x = VECTOR(1, 2), *w = LEAF(3, 4), *y = NULL;
  OK(px_mul(&y, x, w));
  px_grad_set_enabled(false);
  OK(px_add_(w, x, px_int(1)));  // an optimizer step before backward
  px_grad_set_enabled(true);
  back(y);
  CHECK_NEAR(at(px_tensor_grad(w), 1), 2, 0);
}

PX_TEST(assigned_gradients_must_match_the_tensor) {
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *three = VECTOR(1, 2, 3), *fits = VECTOR(5, 6);
  FAILS(px_tensor_set_grad(x, three), PX_RUNTIME,
        "attempting to assign a gradient of size '[3]' to a tensor of size '[2]'. Please ensure "
        "that the gradient and the tensor are the same size");
  OK(px_tensor_set_grad(x, fits));
  CHECK(px_tensor_grad(x) == fits);
  OK(px_tensor_set_grad(x, NULL));
  CHECK(!px_tensor_grad(x));
}

PX_TEST(detach_in_place_makes_a_leaf) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL;
  OK(px_exp(&y, x));
  OK(px_tensor_detach_inplace(y));
  CHECK(px_tensor_is_leaf(y) && !px_tensor_requires_grad(y));
}

PX_TEST(inference_tensors_are_not_recorded) {
  PX_SCOPED(px_tensor) x = LEAF(2), *i = NULL, *y = NULL;
  px_inference_set_enabled(true);
  OK(px_exp(&i, x));
  px_inference_set_enabled(false);
  CHECK(px_tensor_is_inference(i) && !px_tensor_requires_grad(i));
  FAILS(px_add_(i, i, px_int(1)), PX_RUNTIME,
        "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a "
        "clone to get a normal tensor before doing inplace update.");
  FAILS(px_mul(&y, x, i), PX_RUNTIME, "Inference tensors cannot be saved for backward.");
}

PX_TEST(anomaly_mode_finds_nan) {
  PX_SCOPED(px_tensor) x = LEAF(0), *y = NULL, *z = NULL;
  OK(px_mul_scalar(&y, x, px_float(0)));
  OK(px_sqrt(&z, y));
  px_anomaly_set(true, true);
  PX_SCOPED(px_tensor) g = VECTOR(0);
  FAILS(px_backward(1, &z, &g, false, false), PX_RUNTIME,
        "Function 'SqrtBackward0' returned nan values in its 0th output.");
  px_anomaly_set(false, false);
}

static char warned[256];
static px_status save_warning(px_warning category, const char *text) {
  (void)snprintf(warned, sizeof warned, "%s", text);
  return PX_OK;
}

PX_TEST(anomaly_mode_names_the_line_of_the_forward_call) {
  PX_SCOPED(px_tensor) x = LEAF(-1), *y = NULL;
  px_warning_set_sink(save_warning);
  px_anomaly_set(true, true);
  px_site_set("model.c", 7);
  OK(px_sqrt(&y, x));
  px_site_set(NULL, 0);
  FAILS(px_backward(1, &y, NULL, false, false), PX_RUNTIME,
        "Function 'SqrtBackward0' returned nan");
  CHECK_TEXT(warned,
             "Error detected in SqrtBackward0. Traceback of forward call that caused the error:\n"
             "  File \"model.c\", line 7\n");
  px_anomaly_set(false, true);
  px_warning_set_sink(NULL);
}

PX_TEST(nodes_without_saved_tensors_can_run_again) {
  PX_SCOPED(px_tensor) x = LEAF(2), *y = NULL, *z = NULL;
  OK(px_add(&y, x, x, px_int(1)));
  OK(px_sum(&z, y, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &z, NULL, false, false));
  OK(px_backward(1, &z, NULL, false, false));
  CHECK_NEAR(at(px_tensor_grad(x), 0), 4, 0);
}

static px_status widen(px_tensor **out, px_tensor *grad, void *context) {
  return px_cat(out, (px_tensor *[]){grad, grad}, 2, 0);
}
static px_status to_double(px_tensor **out, px_tensor *grad, void *context) {
  return px_to(out, grad, PX_FLOAT64, PX_DEVICE_NONE, false, false);
}

PX_TEST(a_hook_must_keep_shape_and_dtype) {
  PX_SCOPED(px_tensor) x = LEAF(2, 3), *g = VECTOR(1, 1);
  int64_t id;
  OK(px_tensor_add_hook(&id, x, widen, NULL, NULL));
  FAILS(px_backward(1, &x, &g, false, false), PX_RUNTIME, "hook has changed the size of value");
  px_tensor_remove_hook(x, id);
  OK(px_tensor_add_hook(&id, x, to_double, NULL, NULL));
  FAILS(px_backward(1, &x, &g, false, false), PX_RUNTIME,
        "hook has changed the type of value (was torch.FloatTensor got torch.DoubleTensor)");
  CHECK(px_tensor_grad(x) == NULL);
}

PX_TEST(out_forms_do_not_support_grad) {
  PX_SCOPED(px_tensor) x = LEAF(1), *to = VECTOR(0);
  FAILS(px_exp_out(to, x), PX_RUNTIME,
        "exp(): functions with out=... arguments don't support automatic differentiation, but one "
        "of the arguments requires grad.");
}

PX_TEST(released_graphs_leak_nothing) {
  int64_t tensors = px_live_objects("tensor"), nodes = px_live_objects("node");
  PX_SCOPED(px_tensor) x = LEAF(1, 2), *y = NULL, *z = NULL;
  OK(px_mul(&y, x, x));
  OK(px_exp(&z, y));
  OK(px_add_(y, z, px_int(1)));  // y's graph now holds z, and z's graph the old y
  px_release(PX_MOVE(x)), px_release(PX_MOVE(y)), px_release(PX_MOVE(z));
  CHECK_EQ(px_live_objects("tensor"), tensors);
  CHECK_EQ(px_live_objects("node"), nodes);
}

PX_TEST(tensors_print_their_grad_fn) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL;
  char *text = NULL;
  OK(px_mul(&y, x, x));
  OK(px_tensor_text(&text, y, "tensor("));
  CHECK_TEXT(text, "tensor([1.], grad_fn=<MulBackward0>)");
  px_free(text);
  OK(px_tensor_text(&text, x, "tensor("));
  CHECK_TEXT(text, "tensor([1.], requires_grad=True)");
  px_free(text);
}

PX_TEST(missing_tensors_and_functions_are_errors) {
  PX_SCOPED(px_tensor) x = LEAF(1), *y = NULL;
  px_tensor *missing = NULL, *result = NULL;
  int64_t id;
  OK(px_mul(&y, x, x));
  FAILS(px_backward(1, &missing, NULL, false, false), PX_TYPE, "element 0 of tensors is missing");
  FAILS(px_backward(-1, &y, NULL, false, false), PX_VALUE,
        "expected a non-negative count of `outputs`, got -1");
  FAILS(px_grad(&result, 1, &y, NULL, 1, &missing, false, false, false), PX_TYPE,
        "element 0 of inputs is missing");
  FAILS(px_tensor_add_hook(&id, x, NULL, NULL, NULL), PX_TYPE,
        "expected a hook function, got NULL");
  FAILS(px_tensor_add_accumulated_hook(&id, x, NULL, NULL, NULL), PX_TYPE,
        "expected a hook function, got NULL");
  FAILS(px_tensor_add_hook(NULL, x, widen, NULL, NULL), PX_TYPE, "`id` is NULL");
  CHECK(!result);
  back(y);  // the graph is unchanged
  CHECK_NEAR(at(px_tensor_grad(x), 0), 2, 0);
}
