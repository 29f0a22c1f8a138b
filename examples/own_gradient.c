// SPDX-License-Identifier: Apache-2.0
// A function with a custom gradient: log(1 + exp(x)), with value and gradient free of overflow.
// Composed of ops, its gradient at 200 would be NaN.
#include <phlox/phlox.h>
#include <stdio.h>

// ---- the function

static px_status gradient(px_tensor **grad_inputs, int input_count, px_tensor *const *grads,
                          int grad_count, void *context) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) slope = NULL;
  PX_TRY(px_saved_unpack(&x, *(px_saved **)context, "SoftplusBackward"));
  PX_TRY(px_sigmoid(&slope, x));
  return px_mul(&grad_inputs[0], grads[0], slope);
}
static void drop(void *context) {  // called after a backward that does not retain the graph
  px_release(*(px_saved **)context);
  *(px_saved **)context = NULL;
}
static void end(void *context) {
  drop(context);
  px_free(context);
}

// Computes max(x, 0) + log1p(exp(-|x|)) without recording.
static px_status value(px_tensor **out, px_tensor *x) {
  PX_SCOPED(px_tensor) size = NULL;
  PX_SCOPED(px_tensor) rest = NULL;
  PX_SCOPED(px_tensor) positive = NULL;
  PX_TRY(px_abs(&size, x));
  PX_TRY(px_neg_(size));
  PX_TRY(px_exp(&rest, size));
  PX_TRY(px_log1p_(rest));
  PX_TRY(px_relu(&positive, x));
  return px_add(out, positive, rest, px_int(1));
}

static px_status softplus(px_tensor **out, px_tensor *x) {
  static const px_function function = {"SoftplusBackward", gradient, end, drop};
  px_saved **context = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  bool recording = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = value(&y, x);
  px_grad_set_enabled(recording);
  PX_TRY(status);
  PX_TRY(px_alloc((void **)&context, sizeof *context));
  status = px_saved_new(context, x, false);
  if (status != PX_OK) end(context);
  PX_TRY(status);
  PX_TRY(px_function_record(&function, context, 1, &x, 1, &y));  // takes ownership of the context
  *out = PX_MOVE(y);
  return PX_OK;
}

// ---- the program

static px_status check(px_tensor **out, px_tensor *const *inputs, void *unused) {
  return softplus(out, inputs[0]);
}

static px_status print(const char *what, const px_tensor *t) {
  char *text;
  PX_TRY(px_tensor_text(&text, t, "tensor("));
  printf("%s %s\n", what, text);
  px_free(text);
  return PX_OK;
}

static px_status run(void) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  const double values[] = {-200, 0, 1, 200};
  PX_TRY(px_tensor_from_data(&x, values, 1, (int64_t[]){4}, PX_FLOAT64, px_cpu()));
  PX_TRY(px_tensor_set_requires_grad(x, true));
  PX_TRY(softplus(&y, x));
  PX_TRY(px_sum_all(&sum, y, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(print("value", y));
  PX_TRY(print("gradient", px_tensor_grad(x)));
  PX_TRY(px_gradcheck(check, NULL, 1, &x, 1e-6, 1e-5, 1e-3));
  puts("the gradient agrees with differences");
  return PX_OK;
}

int main(void) {
  if (run() == PX_OK) return 0;
  px_error_print();
  return 1;
}
