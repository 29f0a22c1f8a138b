// SPDX-License-Identifier: Apache-2.0
// Fault injection for calls outside of training (tests/fault/training.c). Each row is a piece of
// work, run on the CPU and on simulated devices. Each fault point fails at each passage.
#include "faults.h"
#include "ops/hidden.h"

// ---- helpers

// Numbers 1 to n on the job's device, as a matrix.
static px_status numbers(px_tensor **out, const job *j, int64_t rows, int64_t columns, bool grad) {
  float values[64];
  PX_SCOPED(px_tensor) made = NULL;
  for (int64_t i = 0; i < rows * columns; i++) values[i] = (float)(i + 1);
  PX_TRY(px_tensor_from_data(&made, values, 2, (int64_t[]){rows, columns}, PX_FLOAT32, j->device));
  PX_TRY(px_tensor_set_requires_grad(made, grad));
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status indices(px_tensor **out, const job *j, int64_t count, const int64_t *values) {
  return px_tensor_from_data(out, values, 1, &count, PX_INT64, j->device);
}

static px_status add_all_to_loss(job *j, const px_list *list) {
  for (int64_t i = 0; i < px_list_size(list); i++) PX_TRY(add_to_loss(j, px_list_get(list, i)));
  return PX_OK;
}

// ---- the rows

// More dimensions than a tensor stores inline.
static px_status dimensions(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) many = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  PX_SCOPED(px_tensor) preallocated = NULL;
  PX_SCOPED(px_tensor) grown = NULL;
  int64_t sizes[20], permutation[20];
  for (int d = 0; d < 20; d++) sizes[d] = d % 5 ? 1 : 2, permutation[d] = 19 - d;
  PX_TRY(numbers(&x, j, 4, 4, false));
  PX_TRY(px_reshape(&many, x, sizes, 20));
  PX_TRY(px_permute(&back, many, permutation, 20));
  PX_TRY(numbers(&preallocated, j, 2, 2, false));
  PX_TRY(px_tensor_set_data(preallocated, back));
  PX_TRY(px_neg_(preallocated));
  PX_TRY(add_to_loss(j, preallocated));
  PX_TRY(numbers(&grown, j, 2, 2, false));
  PX_TRY(px_tensor_resize(grown, 9, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 2, 2}));
  return add_to_loss(j, grown);
}

static px_status views(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) permutation = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_list) rows = NULL;
  PX_SCOPED(px_list) pieces = NULL;
  PX_TRY(numbers(&x, j, 4, 6, false));
  PX_TRY(px_transpose(&permutation, x, 0, 1));
  PX_TRY(px_reshape(&flat, permutation, (int64_t[]){24}, 1));
  PX_TRY(px_narrow(&part, x, 1, 1, 3));
  PX_TRY(px_select(&row, x, 0, 2));
  PX_TRY(px_expand(&wide, row, (int64_t[]){5, 6}, 2));
  PX_TRY(px_unbind(&rows, x, 0));
  PX_TRY(px_split(&pieces, permutation, 4, 0));
  PX_TRY(px_neg_(part));
  PX_TRY(add_to_loss(j, flat));
  PX_TRY(add_to_loss(j, wide));
  PX_TRY(add_all_to_loss(j, rows));
  return add_all_to_loss(j, pieces);
}

// A packed batch through a bidirectional LSTM, and backward.
static px_status recurrent(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) w = NULL;
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) h = NULL;
  PX_SCOPED(px_tensor) sizes = NULL;
  PX_SCOPED(px_tensor) output = NULL;
  PX_SCOPED(px_tensor) h_n = NULL;
  PX_SCOPED(px_tensor) c_n = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_tensor_from_data(&sizes, (int64_t[]){2, 1}, 1, (int64_t[]){2}, PX_INT64, px_cpu()));
  PX_TRY(numbers(&x, j, 3, 2, true));
  PX_TRY(numbers(&w, j, 8, 2, true));
  PX_TRY(numbers(&first, j, 4, 2, false));
  PX_TRY(px_view(&h, first, (int64_t[]){2, 2, 2}, 3));
  px_tensor *hx[] = {h, h}, *params[] = {w, w, w, w};
  PX_TRY(px_lstm_packed(&output, &h_n, &c_n, x, sizes, hx, 2, params, 4, false, 1, 0, true, true));
  PX_TRY(px_sum_all(&sum, c_n, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(add_to_loss(j, output));
  PX_TRY(add_to_loss(j, px_tensor_grad(w)));
  return add_to_loss(j, px_tensor_grad(x));
}

// Attention with two backward passes over one graph.
static px_status attention(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) output = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_TRY(numbers(&x, j, 3, 4, true));
  PX_TRY(px_scaled_dot_product_attention(&output, x, x, x, NULL, 0, true, NULL, false));
  PX_TRY(px_sum_all(&sum, output, PX_DTYPE_NONE));
  PX_TRY(px_grad(&grad, 1, &sum, NULL, 1, &x, true, true, false));
  PX_TRY(px_sum_all(&total, grad, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &total, NULL, true, false));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(add_to_loss(j, output));
  return add_to_loss(j, px_tensor_grad(x));
}

// Nets without a library implementation run layer by layer, and again in backward.
static px_status recurrent_library(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) w = NULL;
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) h = NULL;
  PX_SCOPED(px_tensor) output = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(numbers(&x, j, 4, 2, true));
  PX_TRY(numbers(&w, j, 6, 2, true));
  PX_TRY(numbers(&first, j, 2, 2, false));
  PX_TRY(px_view(&h, first, (int64_t[]){1, 2, 2}, 3));
  px_tensor *params[] = {w, w};
  PX_TRY(HIDDEN(recurrent_whole, (&output), PX_T(x), PX_T(h), PX_NONE(), PX_TS(params, 2),
                PX_NONE(), PX_TX("gru"), PX_B(false), PX_I(1), PX_B(false), PX_B(true),
                PX_B(true)));
  PX_TRY(px_sum_all(&sum, output, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(add_to_loss(j, px_tensor_grad(w)));
  return add_to_loss(j, px_tensor_grad(x));
}

// An in-place write to a view of a non-leaf rebases the graph.
static px_status inplace_on_views(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_node *node;
  PX_TRY(numbers(&x, j, 3, 3, true));
  PX_TRY(px_mul(&y, x, x));
  PX_TRY(px_select(&part, y, 0, 1));
  PX_TRY(px_mul_(y, x));
  PX_TRY(px_tensor_grad_fn(&node, part));
  PX_TRY(px_tanh_(part));
  PX_TRY(px_sum_all(&sum, y, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  return add_to_loss(j, px_tensor_grad(x));
}

static px_status indexing(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) taken = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) chosen = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_SCOPED(px_tensor) gathered = NULL;
  PX_SCOPED(px_tensor) index = NULL;
  int64_t first = 0;
  PX_TRY(numbers(&x, j, 4, 3, false));
  PX_TRY(indices(&rows, j, 3, (int64_t[]){3, 0, 2}));
  PX_TRY(px_index(&taken, x, &rows, 1, &first, 1));
  PX_TRY(px_index_put_(x, &rows, 1, &first, 1, taken, true));
  PX_TRY(px_gt_scalar(&mask, x, px_int(5)));
  PX_TRY(px_masked_select(&chosen, x, mask));
  PX_TRY(px_nonzero(&where, mask));
  PX_TRY(px_reshape(&index, rows, (int64_t[]){3, 1}, 2));
  PX_TRY(px_gather(&gathered, x, 0, index, false));
  PX_TRY(px_scatter_(x, 0, index, gathered));
  PX_TRY(px_masked_fill_(x, mask, px_int(1)));
  PX_TRY(add_to_loss(j, chosen));
  PX_TRY(add_to_loss(j, where));
  return add_to_loss(j, x);
}

static px_status gradients_of_indexing(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) taken = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) chosen = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  int64_t first = 0;
  PX_TRY(numbers(&x, j, 4, 3, true));
  PX_TRY(indices(&rows, j, 3, (int64_t[]){3, 0, 3}));
  PX_TRY(px_gt_scalar(&mask, x, px_int(5)));
  PX_TRY(px_index(&taken, x, &rows, 1, &first, 1));
  PX_TRY(px_masked_select(&chosen, x, mask));
  PX_TRY(px_sum_all(&a, taken, PX_DTYPE_NONE));
  PX_TRY(px_sum_all(&b, chosen, PX_DTYPE_NONE));
  PX_TRY(px_backward(2, (px_tensor *[]){a, b}, NULL, false, false));
  return add_to_loss(j, px_tensor_grad(x));
}

// Decompositions, solvers, and the gradients of both.
static px_status matrices(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) solved = NULL;
  PX_SCOPED(px_tensor) inverse = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  PX_TRY(numbers(&x, j, 2, 2, true));
  PX_TRY(px_linalg_inv(&inverse, x));
  PX_TRY(px_linalg_solve(&solved, x, inverse, true));
  PX_TRY(px_linalg_svdvals(&values, x, NULL));
  PX_TRY(px_linalg_multi_dot(&product, (px_tensor *[]){x, solved, x}, 3));
  PX_TRY(px_sum_all(&a, solved, PX_DTYPE_NONE));
  PX_TRY(px_sum_all(&b, values, PX_DTYPE_NONE));
  PX_TRY(px_sum_all(&c, product, PX_DTYPE_NONE));
  PX_TRY(px_backward(3, (px_tensor *[]){a, b, c}, NULL, false, false));
  return add_to_loss(j, px_tensor_grad(x));
}

static px_status sorting(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) order = NULL;
  PX_SCOPED(px_tensor) top = NULL;
  PX_SCOPED(px_tensor) which = NULL;
  PX_SCOPED(px_tensor) alone = NULL;
  PX_SCOPED(px_tensor) inverse = NULL;
  PX_SCOPED(px_tensor) counts = NULL;
  PX_TRY(numbers(&x, j, 4, 5, false));
  PX_TRY(px_sort(&values, &order, x, 0, true, false));
  PX_TRY(px_topk(&top, &which, x, 2, 1, true, true));
  PX_TRY(px_unique(&alone, &inverse, &counts, which, true, true, true));
  PX_TRY(add_to_loss(j, values));
  PX_TRY(add_to_loss(j, top));
  PX_TRY(add_to_loss(j, inverse));
  return add_to_loss(j, alone);
}

static px_status joining(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) joined = NULL;
  PX_SCOPED(px_tensor) stacked = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_TRY(numbers(&x, j, 3, 3, false));
  PX_TRY(px_cat(&joined, (px_tensor *[]){x, x}, 2, 1));
  PX_TRY(px_stack(&stacked, (px_tensor *[]){x, x}, 2, 0));
  PX_TRY(px_einsum(&product, "bij,jk->bik", (px_tensor *[]){stacked, x}, 2));
  PX_TRY(px_cumsum(&sums, joined, 1, PX_DTYPE_NONE));
  PX_TRY(add_to_loss(j, product));
  return add_to_loss(j, sums);
}

static px_status second_derivatives(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) cube = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_tensor) second = NULL;
  PX_TRY(numbers(&x, j, 2, 2, true));
  PX_TRY(px_pow_scalar(&cube, x, px_int(3)));
  PX_TRY(px_sum_all(&sum, cube, PX_DTYPE_NONE));
  PX_TRY(px_grad(&first, 1, &sum, NULL, 1, &x, true, true, false));
  PX_TRY(px_sum_all(&total, first, PX_DTYPE_NONE));
  PX_TRY(px_grad(&second, 1, &total, NULL, 1, &x, false, false, false));
  PX_TRY(add_to_loss(j, second));
  return add_to_loss(j, first);
}

static px_status tangents(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) cube = NULL;
  PX_SCOPED(px_tensor) change = NULL;
  PX_TRY(numbers(&x, j, 2, 2, true));
  PX_TRY(px_pow_scalar(&cube, x, px_int(3)));
  px_tensor *outputs[] = {x, cube}, *changes[2] = {NULL};
  PX_TRY(px_ones_like(&change, x, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  PX_TRY(px_jvp(changes, 2, outputs, 1, &x, &change, true));
  px_status status = add_to_loss(j, changes[0]);
  if (status == PX_OK) status = add_to_loss(j, changes[1]);
  px_release(changes[0]);
  px_release(changes[1]);
  return status;
}

static px_status dual_in_level(px_duals *level, px_tensor *x, job *j) {
  PX_SCOPED(px_tensor) dual = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) cube = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) change = NULL;
  PX_SCOPED(px_tensor) primal = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_dual_make(&dual, level, x, x));
  PX_TRY(px_dual_variable(&own, dual));
  PX_TRY(px_pow_scalar(&cube, own, px_int(3)));
  PX_TRY(px_sum_all(&sum, cube, PX_DTYPE_NONE));
  PX_TRY(px_grad(&grad, 1, &sum, NULL, 1, &own, false, true, false));
  PX_TRY(px_dual_tangents(&change, level, 1, &grad));
  PX_TRY(px_dual_primal(&primal, grad));
  PX_TRY(add_to_loss(j, primal));
  return add_to_loss(j, change);
}
static px_status dual_tensors(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  px_duals *level = NULL;
  PX_TRY(numbers(&x, j, 2, 2, true));
  PX_TRY(px_duals_begin(&level));
  px_status status = dual_in_level(level, x, j);
  px_duals_end(level);
  return status;
}

static px_status doubled(px_tensor **out, px_tensor *grad, void *context) {
  return px_mul_scalar(out, grad, px_int(2));
}
static px_status on_accumulated(px_tensor *leaf, void *context) {
  return add_to_loss(context, px_tensor_grad(leaf));
}
static px_status negated(px_tensor **replacement, px_module *self, px_tensor *const *inputs,
                         int count, px_tensor *result, void *context) {
  return px_neg(replacement, result ? result : inputs[0]);
}

static px_status hooks(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_module) relu = NULL;
  int64_t id;
  PX_TRY(numbers(&x, j, 2, 3, true));
  PX_TRY(px_tensor_add_hook(&id, x, doubled, NULL, NULL));
  PX_TRY(px_tensor_add_accumulated_hook(&id, x, on_accumulated, j, NULL));
  PX_TRY(px_relu_new(&relu));
  PX_TRY(px_module_add_hook(&id, relu, true, negated, NULL, NULL));
  PX_TRY(px_module_add_hook(&id, relu, false, negated, NULL, NULL));
  PX_TRY(px_neg(&y, x));
  PX_TRY(px_tensor_retain_grad(y));
  PX_TRY(px_tensor_add_hook(&id, y, doubled, NULL, NULL));
  PX_TRY(px_module_call(&z, relu, y));
  PX_TRY(px_sum_all(&sum, z, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  return add_to_loss(j, px_tensor_grad(y));
}

typedef struct saved_square {
  px_saved *saved;
} saved_square;
static px_status square_backward(px_tensor **inputs, int input_count, px_tensor *const *outputs,
                                 int output_count, void *context) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) twice = NULL;
  PX_TRY(px_saved_unpack(&x, ((saved_square *)context)->saved, "square"));
  PX_TRY(px_mul_scalar(&twice, x, px_int(2)));
  return px_mul(&inputs[0], twice, outputs[0]);
}
static void square_release(void *context) {
  px_release(((saved_square *)context)->saved);
  px_free(context);
}

static px_status record_square(px_tensor *x, px_tensor *y) {
  static const px_function function = {"square", square_backward, square_release, NULL};
  saved_square *context = NULL;
  PX_TRY(px_alloc((void **)&context, sizeof *context));
  px_status status = px_saved_new(&context->saved, x, false);
  if (status != PX_OK) {
    square_release(context);
    return status;
  }
  return px_function_record(&function, context, 1, &x, 1, &y);
}

static px_status custom_functions(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(numbers(&x, j, 2, 2, true));
  PX_TRY(px_tensor_detach(&plain, x));
  PX_TRY(px_mul(&y, plain, plain));
  PX_TRY(record_square(x, y));
  PX_TRY(px_sum_all(&sum, y, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  return add_to_loss(j, px_tensor_grad(x));
}

static px_status pack_copy(void **out, px_tensor *t, void *context) {
  px_tensor *copy = NULL;
  PX_TRY(px_clone(&copy, t, NULL));
  *out = copy;
  return PX_OK;
}
static px_status unpack_copy(px_tensor **out, void *packed, void *context) {
  return px_clone(out, packed, NULL);
}

static px_status with_saved_hooks(px_tensor *x, px_tensor **sum) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  PX_TRY(px_tensor_detach(&plain, x));
  PX_TRY(px_mul(&y, plain, plain));
  PX_TRY(record_square(x, y));
  PX_TRY(px_mul(&z, y, x));
  return px_sum_all(sum, z, PX_DTYPE_NONE);
}

static px_status hooks_for_saved_tensors(job *j) {
  static const px_saved_hooks copies = {pack_copy, unpack_copy, px_release, NULL};
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(numbers(&x, j, 2, 2, true));
  PX_TRY(px_saved_hooks_push(&copies, NULL));
  px_status status = with_saved_hooks(x, &sum);
  px_saved_hooks_pop();
  PX_TRY(status);
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px_grad(&grad, 1, &sum, NULL, 1, &x, false, true, false));
  return add_to_loss(j, grad);
}

static px_status cubed(px_tensor **out, px_tensor *const *inputs, void *context) {
  return px_pow_scalar(out, inputs[0], px_int(3));
}

static px_status checked_gradients(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(numbers(&x, j, 1, 2, false));
  PX_TRY(px_to(&wide, x, PX_FLOAT64, PX_DEVICE_NONE, false, false));
  PX_TRY(px_tensor_set_requires_grad(wide, true));
  PX_TRY(px_gradcheck(cubed, NULL, 1, &wide, 1e-6, 1e-4, 1e-3));
  return px_gradgradcheck(cubed, NULL, 1, &wide, 1e-6, 1e-4, 1e-3);
}

static px_status layers(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) words = NULL;
  PX_SCOPED(px_tensor) looked_up = NULL;
  PX_SCOPED(px_tensor) even = NULL;
  PX_SCOPED(px_tensor) thinned = NULL;
  PX_SCOPED(px_tensor) logs = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_manual_seed(1);
  PX_TRY(numbers(&x, j, 4, 3, true));
  PX_TRY(indices(&words, j, 3, (int64_t[]){3, 0, 3}));
  PX_TRY(px_embedding(&looked_up, words, x, NULL));
  PX_TRY(px_layer_norm(&even, looked_up, (int64_t[]){3}, 1, NULL, NULL, 1e-5));
  PX_TRY(px_dropout(&thinned, even, 0.25, true));
  PX_TRY(px_log_softmax(&logs, thinned, 1, PX_DTYPE_NONE));
  PX_TRY(px_sum_all(&sum, logs, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(add_to_loss(j, logs));
  return add_to_loss(j, px_tensor_grad(x));
}

// out= tensors: one to be resized, and one on foreign memory.
static px_status out_tensors(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) pair = NULL;
  PX_TRY(numbers(&x, j, 3, 3, false));
  PX_TRY(px_tensor_empty(&sum, 1, (int64_t[]){0}, PX_FLOAT32, j->device));
  PX_TRY(px_tensor_empty(&pair, 1, (int64_t[]){0}, PX_FLOAT32, j->device));
  PX_TRY(px_add_out(sum, x, x, px_int(2)));
  PX_TRY(px_cat_out(pair, (px_tensor *[]){x, sum}, 2, 0));
  PX_TRY(px_tensor_resize(x, 2, (int64_t[]){2, 3}));
  PX_TRY(px_tensor_set_data(sum, x));
  PX_TRY(add_to_loss(j, sum));
  return add_to_loss(j, pair);
}

static px_status dlpack_roundtrip(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  px_dl_managed *managed = NULL;
  PX_TRY(numbers(&x, j, 2, 3, false));
  PX_TRY(px_dlpack_export(&managed, x, NULL));
  px_status status = px_dlpack_import_take(&back, managed);
  if (status != PX_OK) managed->deleter(managed);
  PX_TRY(status);
  return add_to_loss(j, back);
}

static px_status versioned_roundtrip(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) like = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  px_dl_versioned *managed = NULL;
  px_dl_tensor described;
  PX_TRY(numbers(&x, j, 2, 3, false));
  PX_TRY(px_dlpack_describe(&described, x));
  PX_TRY(px_dlpack_empty(&like, &described));
  PX_TRY(px_dlpack_export_versioned(&managed, x, NULL, 0));
  px_status status = px_dlpack_import_versioned_take(&back, managed);
  if (status != PX_OK) managed->deleter(managed);
  PX_TRY(status);
  return add_to_loss(j, back);
}

static px_status registered_copies(job *j) {
  static float data[1024];
  int64_t size = 1024;
  PX_SCOPED(px_tensor) host = NULL;
  PX_SCOPED(px_tensor) copy = NULL;
  PX_TRY(
      px_tensor_wrap(&host, data, sizeof data, 1, &size, NULL, PX_FLOAT32, px_cpu(), NULL, NULL));
  PX_TRY(px_memory_host_register(data, sizeof data));
  px_status status = px_to(&copy, host, PX_FLOAT32, j->device, true, false);
  PX_TRY(px_memory_host_unregister(data));
  return status;
}
static px_status pinned_copies(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) home = NULL;
  PX_SCOPED(px_tensor) pinned = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  PX_TRY(numbers(&x, j, 4, 4, false));
  PX_TRY(px_to(&home, x, PX_FLOAT64, px_cpu(), true, false));
  PX_TRY(px_device_synchronize(j->device.index));
  PX_TRY(px_pin_memory(&pinned, home));
  PX_TRY(px_to(&back, pinned, PX_FLOAT32, j->device, true, false));
  return add_to_loss(j, back);
}

static px_status streams_and_events(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_event) event = NULL;
  px_stream *home;
  PX_TRY(numbers(&x, j, 4, 4, false));
  PX_TRY(px_stream_new(&side, j->device, 0));
  PX_TRY(px_event_new(&event, PX_EVENT_TIMING));
  PX_TRY(px_stream_default(&home, j->device));
  PX_TRY(px_event_record(event, home));
  PX_TRY(px_stream_wait_event(side, event));
  PX_TRY(px_stream_set_current(side));
  px_status status = px_mul(&y, x, x);
  if (status == PX_OK) status = px_tensor_record_stream(x, side);
  OK(px_stream_set_current(home));
  PX_TRY(status);
  PX_TRY(px_stream_wait_stream(home, side));
  return add_to_loss(j, y);
}

// A capture with a side stream and random numbers, and two replays.
static px_status captured(px_graph *graph, px_tensor **y, px_tensor *x, px_stream *s) {
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_tensor) drawn = NULL;
  PX_TRY(px_stream_new(&side, px_stream_device(s), 0));
  PX_TRY(px_graph_begin(graph, (px_graph_pool){0}, PX_CAPTURE_GLOBAL));
  px_status status = px_rand_like(&drawn, x, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL);
  if (status == PX_OK) status = px_stream_wait_stream(side, s);
  if (status == PX_OK) status = px_stream_set_current(side);
  if (status == PX_OK) status = px_mul(y, x, x);
  OK(px_stream_set_current(s));
  if (status == PX_OK) status = px_stream_wait_stream(s, side);
  px_status ended = status == PX_OK ? px_graph_end(graph) : status;
  if (ended != PX_OK) OK(px_graph_reset(graph));
  return ended;
}
static px_status graph_of(job *j, bool keeps) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_stream) stream = NULL;
  PX_SCOPED(px_graph) graph = NULL;
  px_stream *home;
  PX_TRY(numbers(&x, j, 4, 4, false));
  PX_TRY(px_graph_new(&graph));
  if (keeps) PX_TRY(px_graph_keep(graph));
  PX_TRY(px_stream_new(&stream, j->device, 0));
  PX_TRY(px_stream_default(&home, j->device));
  PX_TRY(px_stream_synchronize(home));
  OK(px_stream_set_current(stream));
  px_status status = captured(graph, &y, x, stream);
  OK(px_stream_set_current(home));
  PX_TRY(status);
  PX_TRY(px_graph_replay(graph));
  if (keeps) PX_TRY(px_graph_instantiate(graph));
  OK(px_stream_set_current(stream));
  status = px_graph_replay(graph);
  if (status == PX_OK) status = px_stream_synchronize(stream);
  OK(px_stream_set_current(home));
  PX_TRY(status);
  return add_to_loss(j, y);
}
static px_status graphs(job *j) { return graph_of(j, false); }
static px_status retained_graphs(job *j) { return graph_of(j, true); }

// ---- several devices

static void release_all(px_tensor **tensors, int count) {
  for (int i = 0; i < count; i++) px_release(tensors[i]), tensors[i] = NULL;
}

static const px_device both[] = {{PX_CUDA, 0}, {PX_CUDA, 1}};

static px_status scatter_and_gather(job *j, px_tensor *x, px_tensor **parts, px_tensor **copies) {
  PX_SCOPED(px_tensor) joined = NULL;
  PX_SCOPED(px_tensor) added = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  int count;
  PX_TRY(px_scatter_parts(parts, &count, x, both, 2, 0));
  PX_TRY(px_broadcast(copies, x, both, 2));
  PX_TRY(px_gather_parts(&joined, parts, 2, px_cuda(0), 0));
  PX_TRY(px_reduce_add(&added, copies, 2, px_cuda(0)));
  PX_TRY(px_mul(&product, joined, added));
  PX_TRY(px_sum_all(&sum, product, PX_DTYPE_NONE));
  PX_TRY(add_to_loss(j, sum));
  return px_backward(1, &sum, NULL, false, false);
}

static px_status parts_on_devices(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  px_tensor *parts[2] = {NULL}, *copies[2] = {NULL};
  PX_TRY(numbers(&x, j, 4, 2, true));
  px_status status = scatter_and_gather(j, x, parts, copies);
  release_all(parts, 2);
  release_all(copies, 2);
  PX_TRY(status);
  return add_to_loss(j, px_tensor_grad(x));
}

static px_status peers(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) on_peer = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(numbers(&x, j, 4, 4, false));
  PX_TRY(px_transpose(&part, x, 0, 1));
  PX_TRY(px_to(&on_peer, part, PX_FLOAT64, px_cuda(1), true, false));
  return add_to_loss(j, on_peer);
}

// ---- layers, data, files

static px_status states(job *j) {
  PX_SCOPED(px_module) net = NULL;
  PX_SCOPED(px_module) norm = NULL;
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_tensor) drawn = NULL;
  char *text = NULL;
  px_manual_seed(1);
  PX_TRY(px_linear_new(&norm, 3, 2));
  PX_TRY(px_sequential_new(&net, &norm, 1));
  PX_TRY(px_module_to(net, PX_DTYPE_NONE, j->device, false));
  PX_TRY(px_module_state_dict(&state, net, ""));
  PX_TRY(px_init_constant(px_dict_get(state, "0.weight"), 2));
  PX_TRY(px_module_load_state_dict(net, state, true));
  PX_TRY(px_module_text(&text, net));
  px_free(text);
  PX_TRY(px_tensor_text(&text, px_dict_get(state, "0.weight"), NULL));
  j->loss += (float)strlen(text);
  px_free(text);
  return add_to_loss(j, px_dict_get(state, "0.weight"));
}

static px_status fused(job *j) {
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) scales = NULL;
  PX_SCOPED(px_tensor) shifts = NULL;
  PX_TRY(numbers(&weight, j, 2, 3, true));
  PX_TRY(px_select(&x, weight, 1, 0));
  px_channel_norm norm = {x, x, x, x, 1e-5};
  PX_TRY(px_fuse_norm(&scales, &shifts, weight, x, &norm, false));
  PX_TRY(add_to_loss(j, scales));
  return add_to_loss(j, shifts);
}

// Calls, a fold, a write to an input and a backward pass with fusion on.
static px_status chained(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) other = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(numbers(&x, j, 4, 12, true));
  PX_TRY(numbers(&other, j, 4, 12, false));
  PX_TRY(px_add(&a, x, other, px_int(1)));
  PX_TRY(px_sigmoid(&b, a));
  PX_TRY(px_sum_all(&sum, b, PX_DTYPE_NONE));
  PX_TRY(px_zero_(other));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(add_to_loss(j, b));
  return add_to_loss(j, px_tensor_grad(x));
}
static px_status fused_chain(job *j) {
  PX_TRY(px_fuse_begin());
  return px_fuse_end(chained(j));
}

static px_status pruned(job *j) {
  PX_SCOPED(px_tensor) weight = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  px_manual_seed(1);
  PX_TRY(numbers(&weight, j, 4, 3, true));
  PX_TRY(px_ones_like(&ones, weight, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  for (int way = 0; way < 4; way++) {
    PX_SCOPED(px_tensor) mask = NULL;
    px_prune how = {.amount = 2, .channels = way & 1, .random = way & 2, .p = 2};
    PX_TRY(px_prune_mask(&mask, weight, ones, &how));
    PX_TRY(add_to_loss(j, mask));
  }
  return PX_OK;
}

static px_status rates(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_optimizer) optimizer = NULL;
  px_schedule schedule = {.kind = px_scheduler_kind_find("CosineAnnealingLR"),
                          .options = (double[]){4, 0}};
  PX_TRY(numbers(&x, j, 2, 2, true));
  PX_TRY(px_optimizer_new(&optimizer, "Adam"));
  PX_TRY(px_optimizer_add(optimizer, &x, 1));
  PX_TRY(px_optimizer_set(optimizer, -1, "lr", 0.25));
  PX_TRY(px_optimizer_schedule(optimizer, &schedule, 0));
  PX_TRY(px_mul(&y, x, x));
  PX_TRY(px_sum_all(&sum, y, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(px_clip_grad_norm(&total, &x, 1, 1, 2, true));
  PX_TRY(px_clip_grads_with_norm(&x, 1, 1, total));
  PX_TRY(px_clip_grad_value(&x, 1, 0.5));
  PX_TRY(px_optimizer_step(optimizer));
  PX_TRY(px_optimizer_schedule(optimizer, &schedule, 1));
  PX_TRY(add_to_loss(j, total));
  return add_to_loss(j, x);
}

// Writes through conjugate views: in place, to out=, and by a step.
static px_status conjugate_views(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  PX_SCOPED(px_tensor) view = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_optimizer) optimizer = NULL;
  PX_TRY(numbers(&x, j, 2, 2, false));
  PX_TRY(px_to(&z, x, PX_COMPLEX64, PX_DEVICE_NONE, false, false));
  PX_TRY(px_conj(&view, z));
  PX_TRY(px_mul_(view, view));
  PX_TRY(px_add_out(view, view, z, px_int(1)));
  PX_TRY(px_optimizer_new(&optimizer, "Adam"));
  PX_TRY(px_optimizer_add(optimizer, &view, 1));
  PX_TRY(px_tensor_set_grad(view, z));
  PX_TRY(px_optimizer_step(optimizer));
  PX_TRY(px_imag(&part, view));
  return add_to_loss(j, part);
}

static px_status batches(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  job home = {px_cpu(), NULL, 0, 0};
  int64_t order[6];
  px_manual_seed(1);
  PX_TRY(numbers(&x, &home, 6, 2, false));
  PX_TRY(px_random_order(order, 6, 6, false, NULL));
  for (int i = 0; i < 6; i += 2) {
    PX_SCOPED(px_list) batch = NULL;
    PX_TRY(px_collate_rows(&batch, &x, 1, order + i, 2));
    PX_TRY(add_all_to_loss(j, batch));
  }
  return PX_OK;
}

static px_status tree_of(px_tree **out, const job *j) {
  PX_SCOPED(px_tree) made = NULL;
  PX_SCOPED(px_tree) list = NULL;
  PX_SCOPED(px_tree) part = NULL;
  PX_SCOPED(px_tree) epoch = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(numbers(&x, j, 2, 2, true));
  PX_TRY(px_tree_new(&made, PX_TREE_DICT));
  PX_TRY(px_tree_new(&list, PX_TREE_LIST));
  PX_TRY(px_tree_tensor(&part, x));
  PX_TRY(px_tree_append(list, part));
  PX_TRY(px_tree_append(list, part));
  PX_TRY(px_tree_number(&epoch, px_int(3)));
  PX_TRY(px_tree_set(made, "model", list));
  PX_TRY(px_tree_set(made, "epoch", epoch));
  *out = PX_MOVE(made);
  return PX_OK;
}

static char file[64];

static px_status trees_in_files(job *j) {
  PX_SCOPED(px_tree) tree = NULL;
  PX_SCOPED(px_tree) back = NULL;
  PX_TRY(tree_of(&tree, j));
  PX_TRY(px_save_tree(file, tree));
  PX_TRY(px_load_tree(&back, file, j->device));
  px_tree *model = px_tree_get(back, "model");
  PX_CHECK(model && px_tree_size(model) == 2, PX_BUG, "a part is lost");
  return add_to_loss(j, px_tree_get_tensor(px_tree_at(model, 1)));
}

// Results copied to channels_last, and kernels with row-wise operands.
static px_status formats(job *j) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) images = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) normal = NULL;
  PX_SCOPED(px_tensor) spread = NULL;
  PX_SCOPED(px_tensor) pooled = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  const int64_t one = 1, two = 2, none = 0;
  PX_TRY(numbers(&x, j, 6, 8, true));
  PX_TRY(px_reshape(&images, x, (int64_t[]){1, 3, 4, 4}, 4));
  PX_TRY(px_contiguous_in(&last, images, "channels_last"));
  PX_TRY(px_batch_norm(&normal, last, NULL, NULL, NULL, NULL, true, 0.1, 1e-5));
  PX_TRY(px_add(&spread, normal, images, px_int(1)));
  PX_TRY(px_avg_pool2d(&pooled, spread, &two, 1, &one, 1, &none, 1, false, true, NULL));
  PX_TRY(px_sum_all(&sum, pooled, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(add_to_loss(j, pooled));
  return add_to_loss(j, px_tensor_grad(x));
}

// ---- the table

enum { CPU = 1, ONE = 2, TWO = 4 };  // devices of a row: the CPU, one device, two devices
static const struct row {
  const char *name;
  px_status (*run)(job *j);
  int where;
} rows[] = {{"dimensions", dimensions, CPU | ONE},
            {"views", views, CPU | ONE},
            {"views_with_history", inplace_on_views, CPU | ONE},
            {"recurrent", recurrent, CPU | ONE},
            {"recurrent_whole", recurrent_library, CPU | ONE},
            {"attention", attention, CPU | ONE},
            {"indexing", indexing, CPU | ONE},
            {"gradients_of_indexing", gradients_of_indexing, CPU | ONE},
            {"matrices", matrices, CPU | ONE},
            {"sorting", sorting, CPU | ONE},
            {"joining", joining, CPU | ONE},
            {"second_derivatives", second_derivatives, CPU | ONE},
            {"tangents", tangents, CPU | ONE},
            {"dual_tensors", dual_tensors, CPU | ONE},
            {"hooks", hooks, CPU | ONE},
            {"own_functions", custom_functions, CPU | ONE},
            {"hooks_for_saved_tensors", hooks_for_saved_tensors, CPU | ONE},
            {"checked_gradients", checked_gradients, CPU | ONE},
            {"layers", layers, CPU | ONE},
            {"given_results", out_tensors, CPU | ONE},
            {"handing_over", dlpack_roundtrip, CPU | ONE},
            {"handing_over_versioned", versioned_roundtrip, CPU | ONE},
            {"pinned_copies", pinned_copies, ONE},
            {"registered_copies", registered_copies, ONE},
            {"streams_and_events", streams_and_events, ONE},
            {"graphs", graphs, ONE},
            {"kept graphs", retained_graphs, ONE},
            {"parts_of_devices", parts_on_devices, TWO},
            {"peers", peers, TWO},
            {"states", states, CPU | ONE},
            {"rates", rates, CPU | ONE},
            {"conjugate_views", conjugate_views, CPU | ONE},
            {"fused", fused, CPU | ONE},
            {"fused chain", fused_chain, CPU | ONE},
            {"pruned", pruned, CPU | ONE},
            {"formats", formats, CPU | ONE},
            {"batches", batches, CPU | ONE},
            {"trees_in_files", trees_in_files, CPU | ONE}};

static const struct row *current;
static px_status run_current(void *context) {
  job *j = context;
  j->loss = 0;
  return current->run(j);
}

static void survive(int where, px_device device) {
  static const char *const points[] = {"alloc", "device.alloc", "host.alloc", "launch",
                                       "copy",  "stream",       "event",      "thread",
                                       "file",  "interrupt",    "graph"};
  px_interrupt_set_check(never_interrupt);
  strcpy(file, "/tmp/phlox-fault-XXXXXX");
  int descriptor = mkstemp(file);
  CHECK(descriptor >= 0);
  close(descriptor);
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    current = &rows[r];
    if (!(current->where & where)) continue;
    int64_t passages = 0;
    for (size_t p = 0; p < sizeof points / sizeof *points; p++)
      passages += fail_each(points[p], run_current, &(job){device, NULL, 0, 0});
    if (passages <= 10) fprintf(stderr, "%s: %lld\n", current->name, (long long)passages);
    CHECK(passages > 10);
  }
  unlink(file);
}

PX_TEST(calls_on_the_cpu_survive_every_fault) { survive(CPU, px_cpu()); }

PX_TEST(calls_on_a_device_survive_every_fault) {
  simulate(1);
  survive(ONE, px_cuda(0));
}

PX_TEST(calls_on_two_devices_survive_every_fault) {
  simulate(2);
  survive(TWO, px_cuda(0));
}
