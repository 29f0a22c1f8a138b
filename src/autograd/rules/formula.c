// SPDX-License-Identifier: Apache-2.0
// Helpers of the gradient formulas in ops/pointwise.op and ops/reduce.op, for computations a
// formula cannot express, such as those depending on the reduced dimensions.
//
// They call ops, so their results are differentiable.
#include "autograd/rules/formula.h"

#include <string.h>

#include "grad_functions.h"
#include "hidden/reduce.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "phlox/vmap.h"

void px__f_end(const px__f_owned *owned) {
  for (int i = 0; i < owned->n; i++) px_release(owned->t[i]);
}
void px__f_release(px_tensor **t) {
  px_release(*t);
  *t = NULL;
}
px_status px__f_call(px_tensor **out, const px_op *op, const px_value *args) {
  void *results[4] = {NULL};
  PX_TRY(px_op_call(op, PX_CALL_NEW, args, results));
  *out = (px_tensor *)results[0];
  for (int i = 1; i < 4; i++) px_release(results[i]);
  return PX_OK;
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

// Reduced dimensions as a bit mask; all if none are given. A 0-dimensional tensor has none, and
// accepts dimensions -1 and 0.
static uint64_t reduced_dims(px_value dim, int ndim) {
  uint64_t bits = 0;
  if (ndim == 0) return 0;
  for (int i = 0; i < dim.n; i++) {
    int64_t d = dim.v.ints[i];
    bits |= UINT64_C(1) << (d < 0 ? d + ndim : d);
  }
  return dim.n ? bits : UINT64_MAX;
}

// Restores the reduced dimensions of `t` with size 1.
static px_status keep_dims(px_tensor **out, const px_tensor *t, px_value sizes, px_value dim,
                           bool keepdim) {
  int64_t kept[PX_MAX_DIMS];
  uint64_t reduced = reduced_dims(dim, sizes.n);
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there are sizes.n of them
  for (int d = 0; d < sizes.n; d++) kept[d] = reduced >> d & 1 ? 1 : sizes.v.ints[d];
  if (keepdim || px_tensor_ndim(t) == sizes.n) {
    *out = px_retain(t);
    return PX_OK;
  }
  return px_reshape(out, t, kept, sizes.n);
}

px_status px__grad_spread(px_tensor **out, px_tensor *grad, px_value sizes, px_value dim,
                          bool keepdim) {
  PX_SCOPED(px_tensor) kept = NULL;
  if (px_tensor_ndim(grad) == 0) return px_expand(out, grad, sizes.v.ints, sizes.n);
  PX_TRY(keep_dims(&kept, grad, sizes, dim, keepdim));
  return px_expand(out, kept, sizes.v.ints, sizes.n);
}
// Broadcasts like px__grad_spread, to the shape of `like`.
static px_status spread_like(px_tensor **out, px_tensor *t, const px_tensor *like, px_value dim,
                             bool keepdim) {
  px_value sizes = PX_IS(px_tensor_sizes(like), px_tensor_ndim(like));
  return px__grad_spread(out, t, sizes, dim, keepdim);
}

px_status px__grad_spread_mean(px_tensor **out, px_tensor *grad, px_value sizes, px_value dim,
                               bool keepdim) {
  PX_SCOPED(px_tensor) wide = NULL;
  int64_t results = px_tensor_numel(grad);
  uint64_t n = 1;  // may wrap around if another size is 0
  for (int i = 0; i < sizes.n; i++) n *= (uint64_t)sizes.v.ints[i];
  PX_TRY(px__grad_spread(&wide, grad, sizes, dim, keepdim));
  return px_div_scalar(out, wide, px_int(results ? (int64_t)n / results : 1));
}

// Elements equal to the result share the gradient evenly. If the result is NaN, only with
// `equal_nan` are there such elements; the gradient is NaN otherwise.
px_status px__grad_extreme(px_tensor **out, px_tensor *grad, px_tensor *self, px_tensor *result,
                           px_value dim, bool keepdim, bool equal_nan) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) best = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) share = NULL;
  PX_TRY(spread_like(&best, result, self, dim, keepdim));
  PX_TRY(equal_nan ? px_isclose(&mask, self, best, 0, 0, true) : px_eq(&mask, self, best));
  PX_TRY(px_sum(&number, mask, dim.v.ints, dim.n, keepdim, PX_DTYPE_NONE));
  PX_TRY(px_div(&share, grad, number));
  PX_TRY(spread_like(&wide, share, self, dim, keepdim));
  return px_mul(out, wide, mask);
}

// Products of all other elements, composed of ops for second derivatives. Row j is the line with
// element j replaced by 1.
static px_status others_composed(px_tensor **out, const px_tensor *self, int64_t dim, bool all) {
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) spread = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  const int64_t flat = -1;
  int64_t sizes[PX_MAX_DIMS + 1];
  PX_TRY(all ? px_reshape(&line, self, &flat, 1) : px_transpose(&line, self, dim, -1));
  int n = px_tensor_ndim(line);
  int64_t count = px_tensor_sizes(line)[n - 1];
  PX_CHECK(n < PX_MAX_DIMS, PX_RUNTIME, "prod: no second gradient of %d dimensions", n);
  for (int d = 0; d < n; d++) sizes[d] = px_tensor_sizes(line)[d];
  sizes[n] = count;
  PX_TRY(px_unsqueeze(&spread, line, -2));
  PX_TRY(px_expand(&wide, spread, sizes, n + 1));
  PX_TRY(px_eye(&own, count, NULL, PX_BOOL, px_tensor_device(self), false, false));
  PX_TRY(px_masked_fill(&rows, wide, own, px_int(1)));
  PX_TRY(px_prod(&made, rows, -1, false, PX_DTYPE_NONE));
  return all ? px_reshape(out, made, px_tensor_sizes(self), px_tensor_ndim(self))
             : px_transpose(out, made, dim, -1);
}
px_status px__any_of_samples(bool *out, const px_tensor *truths) {
  PX_SCOPED(px_tensor) any = NULL;
  px_scalar found;
  *out = false;
  while (px_tensor_is_batched(truths)) truths = px_tensor_physical(truths);
  if (px_tensor_device(truths).type == PX_META || !px_tensor_numel(truths)) return PX_OK;
  PX_TRY(px_any(&any, truths, NULL, 0, false));
  PX_TRY(px_tensor_item(&found, any));
  *out = px_scalar_int(found) != 0;
  return PX_OK;
}
// Gradient of prod: the product of all other elements, also with zeros.
px_status px__grad_prod(px_tensor **out, px_tensor *grad, px_tensor *self, px_value dim,
                        bool keepdim) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) safe = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) others = NULL;
  PX_SCOPED(px_tensor) zeroed = NULL;
  PX_SCOPED(px_tensor) valid = NULL;
  bool all = dim.kind == PX_ARG_NONE;
  px_value dims = all ? PX_NONE() : PX_IS(&dim.v.i, 1);
  bool composed = false;
  PX_TRY(px_eq_scalar(&zero, self, px_int(0)));
  if (px_grad_enabled() && px_tensor_ndim(self)) PX_TRY(px__any_of_samples(&composed, zero));
  if (composed) {
    PX_TRY(others_composed(&others, self, all ? 0 : dim.v.i, all));
    PX_TRY(spread_like(&wide, grad, self, dims, keepdim));
    return px_mul(out, wide, others);
  }
  PX_TRY(px_masked_fill(&safe, self, zero, px_int(1)));
  PX_TRY(all ? px_prod_all(&product, safe, PX_DTYPE_NONE)
             : px_prod(&product, safe, dim.v.i, true, PX_DTYPE_NONE));
  PX_TRY(px_sum(&zeros, zero, all ? NULL : dims.v.ints, dims.n, true, PX_DTYPE_NONE));
  PX_TRY(px_div(&others, product, safe));
  // The product of the others is 0 if there are more zeros than the element itself.
  PX_TRY(px_ne(&zeroed, zeros, zero));
  PX_TRY(px_masked_fill(&valid, others, zeroed, px_int(0)));
  PX_TRY(spread_like(&wide, grad, self, dims, keepdim));
  return px_mul(out, wide, valid);
}

// ---- complex numbers

// Multiplies by the imaginary unit.
static px_status times_i(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) unit = NULL;
  PX_TRY(px_tensor_from_complex(&unit, (px_complex){0, 1}));
  return px_mul(out, t, unit);
}

static px_status zeros_of(px_tensor **out, const px_tensor *t) {
  return px_zeros_like(out, t, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL);
}

// Gradient of the imaginary part. A product with the imaginary unit would be NaN for infinities.
px_status px__grad_imaginary(px_tensor **out, px_tensor *grad) {
  PX_SCOPED(px_tensor) none = NULL;
  PX_TRY(px_zeros_like(&none, grad, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  return px_complex_of(out, none, grad);
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

// Gradient of sgn: the component of grad orthogonal to the result, divided by |self|, 0 at 0.
px_status px__grad_sgn(px_tensor **out, px_tensor *grad, px_tensor *self, px_tensor *result) {
  PX_SCOPED(px_tensor) length = NULL;
  PX_SCOPED(px_tensor) mirrored = NULL;
  PX_SCOPED(px_tensor) seen = NULL;
  PX_SCOPED(px_tensor) along = NULL;
  PX_SCOPED(px_tensor) lost = NULL;
  PX_SCOPED(px_tensor) across = NULL;
  PX_SCOPED(px_tensor) change = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  if (!px_dtype_is_complex(px_tensor_dtype(self))) return zeros_of(out, self);
  PX_TRY(px_abs(&length, self));
  PX_TRY(px_conj(&mirrored, result));
  PX_TRY(px_mul(&seen, grad, mirrored));
  PX_TRY(px_real(&along, seen));
  PX_TRY(px_mul(&lost, along, result));
  PX_TRY(px_sub(&across, grad, lost, px_int(1)));
  PX_TRY(px_div(&change, across, length));
  PX_TRY(px_eq_scalar(&zero, self, px_int(0)));
  return px_masked_fill(out, change, zero, px_int(0));
}

// Scatters the gradient to the selected elements.
px_status px__grad_pick(px_tensor **out, px_tensor *grad, px_tensor *indices, px_value sizes,
                        int64_t dim, bool keepdim) {
  px_value dims = PX_IS(&dim, 1);
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_TRY(keep_dims(&wide, grad, sizes, dims, keepdim));
  PX_TRY(keep_dims(&where, indices, sizes, dims, keepdim));
  PX_TRY(px_tensor_empty(&zeros, sizes.n, sizes.v.ints, px_tensor_dtype(grad),
                         px_tensor_device(grad)));
  PX_TRY(px_zero_(zeros));
  return px_scatter(out, zeros, dim, where, wide);
}

// 2 (self - mean) / (n - correction)
px_status px__grad_var(px_tensor **out, px_tensor *grad, px_tensor *self, px_value dim,
                       px_value correction, bool keepdim) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) offset = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  int64_t results = px_tensor_numel(grad), n = px_tensor_numel(self);
  double less = correction.kind == PX_ARG_NONE ? 1 : px_value_float(correction);
  double degrees = (double)(results ? n / results : 0) - less;
  PX_TRY(px_mean(&mean, self, dim.v.ints, dim.n, true, PX_DTYPE_NONE));
  PX_TRY(px_sub(&offset, self, mean, px_int(1)));
  PX_TRY(spread_like(&wide, grad, self, dim, keepdim));
  PX_TRY(px_mul(&product, wide, offset));
  return px_mul_scalar(out, product, px_float(2 / (degrees > 0 ? degrees : 0)));
}

// Slope of a p-norm up to scale: |x|^(p-1) sign(x), 0 at x = 0 if p < 1.
static px_status norm_slope(px_tensor **out, const px_tensor *self, double p) {
  PX_SCOPED(px_tensor) size = NULL;
  PX_SCOPED(px_tensor) power = NULL;
  PX_SCOPED(px_tensor) sign = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) slope = NULL;
  if (p == 1) return px_sign(out, self);
  if (p == 2) {
    *out = px_retain(self);
    return PX_OK;
  }
  PX_TRY(px_abs(&size, self));
  PX_TRY(px_pow_scalar(&power, size, px_float(p - 1)));
  PX_TRY(px_sign(&sign, self));
  PX_TRY(px_mul(&slope, power, sign));
  PX_TRY(px_eq_scalar(&zero, self, px_int(0)));
  return px_masked_fill(out, slope, zero, px_int(0));
}

px_status px__grad_norm(px_tensor **out, px_tensor *grad, px_tensor *self, px_tensor *result,
                        px_value p, px_value dim, bool keepdim) {
  double power = p.kind == PX_ARG_NONE ? 2 : px_value_float(p);
  PX_SCOPED(px_tensor) slope = NULL;
  PX_SCOPED(px_tensor) divisor = NULL;
  PX_SCOPED(px_tensor) scale = NULL;
  PX_SCOPED(px_tensor) quotient = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  if (power == 0) return PX_OK;
  if (power * 0 != 0) {  // infinity norm: extreme elements share the gradient
    PX_SCOPED(px_tensor) size = NULL;
    PX_SCOPED(px_tensor) sign = NULL;
    PX_SCOPED(px_tensor) share = NULL;
    PX_TRY(px_abs(&size, self));
    PX_TRY(px_sign(&sign, self));
    PX_TRY(px__grad_extreme(&share, grad, size, result, dim, keepdim, true));
    return px_mul(out, share, sign);
  }
  PX_TRY(norm_slope(&slope, self, power));
  PX_TRY(px_eq_scalar(&zero, result, px_int(0)));
  PX_TRY(px_masked_fill(&divisor, result, zero, px_int(1)));
  PX_TRY(px_pow_scalar(&scale, divisor, px_float(power - 1)));
  PX_TRY(px_div(&quotient, grad, scale));
  PX_TRY(px_masked_fill(&none, quotient, zero, px_int(0)));
  PX_TRY(spread_like(&wide, none, self, dim, keepdim));
  return px_mul(out, wide, slope);
}

// grad * softmax(self).
px_status px__grad_logsumexp(px_tensor **out, px_tensor *grad, px_tensor *self, px_tensor *result,
                             px_value dim, bool keepdim) {
  PX_SCOPED(px_tensor) spread = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) offset = NULL;
  PX_SCOPED(px_tensor) weight = NULL;
  PX_TRY(spread_like(&spread, grad, self, dim, keepdim));
  PX_TRY(spread_like(&wide, result, self, dim, keepdim));
  PX_TRY(px_sub(&offset, self, wide, px_int(1)));
  PX_TRY(px_exp(&weight, offset));
  return px_mul(out, spread, weight);
}

// Derivative of cumprod composed of ops, for second derivatives. [.., j, i] is the product up to i
// without element j, so zeros are handled.
static px_status cumprod_composed(px_tensor **out, const px_tensor *grad, const px_tensor *self,
                                  int64_t dim) {
  int64_t n = px_tensor_size(self, (int)(dim < 0 ? dim + px_tensor_ndim(self) : dim));
  int64_t sizes[PX_MAX_DIMS + 1], last = -1;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) others = NULL;
  PX_SCOPED(px_tensor) products = NULL;
  PX_TRY(px_transpose(&x, self, dim, -1));
  PX_TRY(px_unsqueeze(&row, x, -2));
  int ndim = px_tensor_ndim(row);
  for (int d = 0; d < ndim; d++) sizes[d] = d == ndim - 2 ? n : px_tensor_size(row, d);
  PX_TRY(px_expand(&wide, row, sizes, ndim));
  PX_TRY(px_eye(&own, n, NULL, PX_BOOL, px_tensor_device(self), false, false));
  PX_TRY(px_masked_fill(&others, wide, own, px_int(1)));
  PX_TRY(px_cumprod(&products, others, -1, PX_DTYPE_NONE));
  PX_SCOPED(px_tensor) g = NULL;
  PX_SCOPED(px_tensor) g_row = NULL;
  PX_SCOPED(px_tensor) terms = NULL;
  PX_SCOPED(px_tensor) later = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_TRY(px_transpose(&g, grad, dim, -1));
  PX_TRY(px_unsqueeze(&g_row, g, -2));
  PX_TRY(px_mul(&terms, products, g_row));
  PX_TRY(px_triu(&later, terms, 0));
  PX_TRY(px_sum(&sums, later, &last, 1, false, PX_DTYPE_NONE));
  return px_transpose(out, sums, dim, -1);
}
px_status px__grad_cumprod(px_tensor **out, px_tensor *grad, px_tensor *self, int64_t dim) {
  if (!px_tensor_ndim(self)) {
    *out = px_retain(grad);
    return PX_OK;
  }
  if (px_grad_enabled() || px_dtype_is_complex(px_tensor_dtype(self)))
    return cumprod_composed(out, grad, self, dim);
  return px_cumprod_backward(out, grad, self, dim);
}

// Missing derivative of an op: fails instead of returning zero. The error class is PyTorch's.
px_status px__grad_unimplemented(px__backward *b) {
  const char *name = b->op->python_name ? b->op->python_name : b->op->name;
  PX_FAIL(PX_RUNTIME, "derivative for aten::%s is not implemented",
          name + !strncmp(name, "_linalg_", 8));
}
// Missing derivative of one parameter of an op.
px_status px__grad_unknown(px_tensor **out, px_tensor *grad, const char *what) {
  PX_FAIL(PX_UNIMPLEMENTED, "the derivative for '%s' is not implemented.", what);
}
