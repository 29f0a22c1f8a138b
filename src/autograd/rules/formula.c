// SPDX-License-Identifier: Apache-2.0
// Runtime of generated formulas, and gradients that need more than a formula.
#include "autograd/rules/formula.h"

#include <string.h>

#include "grad_functions.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/vmap.h"

void px__f_end(const px__f_owned *owned) {
  for (int i = 0; i < owned->n; i++) px_release(owned->t[i]);
}
void px__f_release(px_tensor **t) {
  px_release(*t);
  *t = NULL;
}
px_status px__f_call_all(px_tensor **out, int count, const px_op *op, const px_value *args) {
  void *results[PX_MAX_OPERANDS] = {NULL};
  PX_F_TRY(px_op_call(op, PX_CALL_NEW, args, results));
  for (int i = 0; i < op->result_count; i++)
    if (i < count)
      out[i] = (px_tensor *)results[i];
    else
      px_release(results[i]);
  return PX_OK;
}
px_status px__f_call(px_tensor **out, const px_op *op, const px_value *args) {
  void *result = NULL;
  if (op->result_count > 1) return px__f_call_all(out, 1, op, args);
  PX_F_TRY(px_op_call(op, PX_CALL_NEW, args, &result));
  return *out = (px_tensor *)result, PX_OK;
}
px_status px__f_call_in_place(px_tensor **out, const px_op *op, const px_value *args) {
  void *result = NULL;
  PX_F_TRY(px_op_call(op, PX_CALL_INPLACE, args, &result));
  return *out = (px_tensor *)result, PX_OK;
}
static double apply(char op, double a, double b) {
  return op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : a / b;
}
px_value px__f_arith(char op, px_value a, px_value b) {
  px_scalar x = px_value_scalar(a), y = px_value_scalar(b);
  if (x.kind == 'f' || y.kind == 'f' || op == '/')
    return PX_F_FLOAT(apply(op, px_scalar_float(x), px_scalar_float(y)));
  uint64_t i = (uint64_t)px_scalar_int(x), j = (uint64_t)px_scalar_int(y);  // wraps around
  return PX_F_INT((int64_t)(op == '+' ? i + j : op == '-' ? i - j : i * j));
}
px_status px__f_scale(px_tensor **out, const px_op *mul, px_value t, px_value number) {
  const px_value args[2] = {t, px__f_scalar(number)};
  if (px_value_float(number) != 1 || t.kind != PX_ARG_TENSOR) return px__f_call(out, mul, args);
  *out = (px_tensor *)px_retain(t.v.tensor);
  return PX_OK;
}
static px_value limit(px_dtype dtype, bool least) {
  int bits = (int)px_dtype_size(dtype) * 8;
  if (px_dtype_is_float(dtype)) return PX_S(px_float(least ? -INFINITY : INFINITY));
  if (px_dtype_is_complex(dtype)) return PX_S(px_int(0));
  if (dtype == PX_BOOL) return PX_S(px_bool(!least));
  if (px_dtype_is_signed(dtype))
    return PX_S(px_int(least ? INT64_MIN >> (64 - bits) : INT64_MAX >> (64 - bits)));
  return PX_S(px_int(least ? 0 : INT64_MAX >> (bits < 64 ? 63 - bits : 0)));
}
px_value px__f_least(px_value v) { return limit(px_tensor_dtype(v.v.tensor), true); }
px_value px__f_greatest(px_value v) { return limit(px_tensor_dtype(v.v.tensor), false); }
px_status px__f_call_wide(px_tensor **out, const px_op *op, const px_value *args) {
  px_value wide[PX_MAX_OPERANDS];
  PX_SCOPED(px_tensor) number = NULL;
  for (int i = 0; i < op->param_count; i++)
    if (args[i].kind == PX_ARG_TENSOR) return px__f_call(out, op, args);
  PX_TRY(px_full(&number, NULL, 0, px_value_scalar(*args), PX_FLOAT64, px_cpu(), false, false));
  memcpy(wide, args, (size_t)op->param_count * sizeof *wide);
  *wide = PX_T(number);
  return px__f_call(out, op, wide);
}

// Reads a reduction of the elements of all samples. Tensors without elements or data keep *out.
static px_status read_samples(bool *out, const px_tensor *truths,
                              px_status (*reduce)(px_tensor **, const px_tensor *, const int64_t *,
                                                  int64_t, bool)) {
  PX_SCOPED(px_tensor) reduced = NULL;
  px_scalar found;
  while (px_tensor_is_batched(truths)) truths = px_tensor_physical(truths);
  if (px_tensor_device(truths).type == PX_META || !px_tensor_numel(truths)) return PX_OK;
  PX_TRY(reduce(&reduced, truths, NULL, 0, false));
  PX_TRY(px_tensor_item(&found, reduced));
  *out = px_scalar_int(found) != 0;
  return PX_OK;
}
px_status px__any_of_samples(bool *out, const px_tensor *truths) {
  *out = false;
  return read_samples(out, truths, px_any);
}
px_status px__all_of_samples(bool *out, const px_tensor *truths) {
  *out = true;
  return read_samples(out, truths, px_all);
}
px_status px__item_of(int64_t *out, const px_tensor *t) {
  px_scalar number;
  PX_TRY(px_tensor_item(&number, t));
  *out = px_scalar_int(number);
  return PX_OK;
}

// Multiplies by the imaginary unit, a number that formulas do not have.
static px_status times_i(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) unit = NULL;
  PX_TRY(px_tensor_from_complex(&unit, (px_complex){0, 1}));
  return px_mul(out, t, unit);
}

static px_status zeros_of(px_tensor **out, const px_tensor *t) {
  return px_zeros_like(out, t, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL);
}

// Gradient of the angle: the direction i * self divided by |self|^2, 0 at 0.
px_status px__grad_angle(px_tensor **out, px_tensor *grad, px_tensor *self) {
  PX_SCOPED(px_tensor) across = NULL;
  PX_SCOPED(px_tensor) length = NULL;
  PX_SCOPED(px_tensor) square = NULL;
  PX_SCOPED(px_tensor) slope = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) change = NULL;
  if (!px_dtype_is_complex(px_tensor_dtype(self))) return zeros_of(out, self);
  PX_TRY(times_i(&across, self));
  PX_TRY(px_abs(&length, self));
  PX_TRY(px_square(&square, length));
  PX_TRY(px_div(&slope, across, square));
  PX_TRY(px_mul(&change, grad, slope));
  PX_TRY(px_eq_scalar(&zero, self, px_int(0)));
  return px_masked_fill(out, change, zero, px_int(0));
}

// Missing derivative of an op: fails instead of returning zero. The error class is PyTorch's.
px_status px__grad_unimplemented(px__backward *b) {
  const char *name = b->op->python_name ? b->op->python_name : b->op->name;
  PX_FAIL(PX_RUNTIME, "derivative for aten::%s is not implemented",
          name + !strncmp(name, "_linalg_", 8));
}
