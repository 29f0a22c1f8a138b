// SPDX-License-Identifier: Apache-2.0
// Helpers of the gradient formulas of ops/pointwise.op and ops/reduce.op, where a formula cannot
// say it: those that depend on which dimensions were reduced.
//
// They call ops, so their results can be differentiated again.
#include "autograd/rules/formula.h"

#include "grad_functions.h"
#include "phlox/autograd.h"
#include "phlox/ops.h"

// Calls an op by name with `count` first arguments.
static px_status call(px_tensor **out, const char *name, int count, const px_value *args) {
  px_value all[16] = {{0}};
  const px_op *op = px_op_find(name);
  PX_CHECK(op, PX_UNIMPLEMENTED, "a gradient wants the op %s", name);
  for (int i = 0; i < count; i++) all[i] = args[i];
  return px__f_call(out, op->id, all);
}

// The dimensions of a reduction as bits; all of them where none are given.
static uint32_t reduced_dims(px_value dim, int ndim) {
  uint32_t bits = 0;
  bool list = dim.kind == PX_ARG_INTS;
  int n = list ? dim.n : dim.kind == PX_ARG_NONE ? 0 : 1;
  for (int i = 0; i < n; i++) {
    int64_t d = list ? dim.v.ints[i] : dim.v.i;
    bits |= 1u << (d < 0 ? d + ndim : d);
  }
  return n ? bits : (1u << ndim) - 1;
}

// `t`, of the shape of a reduction's result, with its reduced dimensions back at size 1.
static px_status keep_dims(px_tensor **out, px_value t, int ndim, const int64_t *sizes,
                           px_value dim, px_value keepdim) {
  int64_t kept[PX_MAX_DIMS];
  uint32_t reduced = reduced_dims(dim, ndim);
  for (int d = 0; d < ndim; d++) kept[d] = reduced >> d & 1u ? 1 : sizes[d];
  if (keepdim.v.i || px_tensor_ndim(t.v.tensor) == ndim) {
    *out = px_retain(t.v.tensor);
    return PX_OK;
  }
  return px_reshape(out, t.v.tensor, kept, ndim);
}

static px_status spread(px_tensor **out, px_value t, int ndim, const int64_t *sizes, px_value dim,
                        px_value keepdim) {
  PX_SCOPED(px_tensor) kept = NULL;
  if (px_tensor_ndim(t.v.tensor) == 0) return px_expand(out, t.v.tensor, sizes, ndim);
  PX_TRY(keep_dims(&kept, t, ndim, sizes, dim, keepdim));
  return px_expand(out, kept, sizes, ndim);
}
// The same to the shape of `like`.
static px_status spread_like(px_tensor **out, px_value t, px_value like, px_value dim,
                             px_value keepdim) {
  const px_tensor *l = like.v.tensor;
  return spread(out, t, px_tensor_ndim(l), px_tensor_sizes(l), dim, keepdim);
}

// (grad, sizes, dim, keepdim)
px_status px__grad_spread(px_tensor **out, const px_value *args, int count) {
  return spread(out, args[0], args[1].n, args[1].v.ints, args[2], args[3]);
}

px_status px__grad_spread_mean(px_tensor **out, const px_value *args, int count) {
  PX_SCOPED(px_tensor) wide = NULL;
  int64_t results = px_tensor_numel(args[0].v.tensor), n = 1;
  for (int i = 0; i < args[1].n; i++) n *= args[1].v.ints[i];
  PX_TRY(px__grad_spread(&wide, args, count));
  return px_div_scalar(out, wide, px_int(results ? n / results : 1));
}

// (grad, self, result, dim, keepdim): elements equal to the result share the gradient.
px_status px__grad_extreme(px_tensor **out, const px_value *args, int count) {
  px_value self = args[1], dim = args[3], keep = args[4];
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) best = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) share = NULL;
  PX_TRY(spread_like(&best, args[2], self, dim, keep));
  PX_TRY(px_isclose(&mask, self.v.tensor, best, 0, 0, true));  // equal, or both NaN
  PX_TRY(call(&number, "sum", 3,
              (px_value[]){PX_T(mask), dim.kind == PX_ARG_INTS ? dim : PX_NONE(), keep}));
  PX_TRY(px_div(&share, args[0].v.tensor, number));
  PX_TRY(spread_like(&grad, PX_T(share), self, dim, keep));
  return px_mul(out, grad, mask);
}

// (grad, self, dim, keepdim): the product of the others, also where elements are zero.
px_status px__grad_prod(px_tensor **out, const px_value *args, int count) {
  px_value self = args[1], dim = args[2], keep = args[3];
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) safe = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) others = NULL;
  PX_SCOPED(px_tensor) gone = NULL;
  bool all = dim.kind == PX_ARG_NONE;
  int64_t one = dim.v.i;
  px_value dims = all ? PX_NONE() : PX_IS(&one, 1);
  PX_TRY(px_eq_scalar(&zero, self.v.tensor, px_int(0)));
  PX_TRY(px_masked_fill(&safe, self.v.tensor, zero, px_int(1)));
  PX_TRY(call(&product, all ? "prod_all" : "prod", all ? 1 : 3,
              (px_value[]){PX_T(safe), dim, PX_B(true)}));
  PX_TRY(call(&zeros, "sum", 3, (px_value[]){PX_T(zero), dims, PX_B(true)}));
  PX_TRY(px_div(&others, product, safe));
  // An element's others hold a zero where there are more zeros than itself.
  PX_TRY(px_ne(&gone, zeros, zero));
  PX_SCOPED(px_tensor) valid = NULL;
  PX_TRY(px_masked_fill(&valid, others, gone, px_int(0)));
  PX_TRY(spread_like(&grad, args[0], self, dims, keep));
  return px_mul(out, grad, valid);
}

// (grad, indices, sizes, dim, keepdim): the gradient goes to the element that was taken.
px_status px__grad_pick(px_tensor **out, const px_value *args, int count) {
  px_value sizes = args[2], dim = PX_IS(&args[3].v.i, 1), keep = args[4];
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  const px_tensor *g = args[0].v.tensor;
  PX_TRY(keep_dims(&grad, args[0], sizes.n, sizes.v.ints, dim, keep));
  PX_TRY(keep_dims(&indices, args[1], sizes.n, sizes.v.ints, dim, keep));
  PX_TRY(px_tensor_empty(&zeros, sizes.n, sizes.v.ints, px_tensor_dtype(g), px_tensor_device(g)));
  PX_TRY(px_zero_(zeros));
  return call(out, "scatter", 4, (px_value[]){PX_T(zeros), args[3], PX_T(indices), PX_T(grad)});
}

// (grad, self, dim, correction, keepdim): 2 (self - mean) / (n - correction)
px_status px__grad_var(px_tensor **out, const px_value *args, int count) {
  px_value self = args[1], dim = args[2];
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) offset = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  int64_t results = px_tensor_numel(args[0].v.tensor), n = px_tensor_numel(self.v.tensor);
  double correction = args[3].kind == PX_ARG_NONE ? 1 : px_value_float(args[3]);
  double degrees = (double)(results ? n / results : 0) - correction;
  PX_TRY(call(&mean, "mean", 3, (px_value[]){self, dim, PX_B(true)}));
  PX_TRY(px_sub(&offset, self.v.tensor, mean, px_int(1)));
  PX_TRY(spread_like(&grad, args[0], self, dim, args[4]));
  PX_TRY(px_mul(&product, grad, offset));
  return px_mul_scalar(out, product, px_float(2 / (degrees > 0 ? degrees : 0)));
}

// |x|^(p-1) sign(x), 0 at 0 where p is below 1: what the gradient of a p-norm is made of.
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

// (grad, self, result, p, dim, keepdim)
px_status px__grad_norm(px_tensor **out, const px_value *args, int count) {
  px_value self = args[1], dim = args[4], keep = args[5];
  double p = args[3].kind == PX_ARG_NONE ? 2 : px_value_float(args[3]);
  PX_SCOPED(px_tensor) slope = NULL;
  PX_SCOPED(px_tensor) scale = NULL;
  PX_SCOPED(px_tensor) quotient = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  if (p == 0) return PX_OK;
  if (p * 0 != 0) {  // of infinity: the extremes share it
    PX_SCOPED(px_tensor) size = NULL;
    PX_SCOPED(px_tensor) sign = NULL;
    PX_SCOPED(px_tensor) share = NULL;
    PX_TRY(px_abs(&size, self.v.tensor));
    PX_TRY(px_sign(&sign, self.v.tensor));
    PX_TRY(px__grad_extreme(&share, (px_value[]){args[0], PX_T(size), args[2], dim, keep}, 5));
    return px_mul(out, share, sign);
  }
  PX_TRY(norm_slope(&slope, self.v.tensor, p));
  PX_TRY(px_pow_scalar(&scale, args[2].v.tensor, px_float(p - 1)));
  PX_TRY(px_div(&quotient, args[0].v.tensor, scale));
  PX_SCOPED(px_tensor) zero = NULL;
  PX_TRY(px_eq_scalar(&zero, args[2].v.tensor, px_int(0)));
  PX_TRY(px_masked_fill(&none, quotient, zero, px_int(0)));
  PX_TRY(spread_like(&wide, PX_T(none), self, dim, keep));
  return px_mul(out, wide, slope);
}

// (grad, self, result, dim, keepdim): the gradient times the softmax of self
px_status px__grad_logsumexp(px_tensor **out, const px_value *args, int count) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) offset = NULL;
  PX_SCOPED(px_tensor) weight = NULL;
  PX_TRY(spread_like(&grad, args[0], args[1], args[3], args[4]));
  PX_TRY(spread_like(&wide, args[2], args[1], args[3], args[4]));
  PX_TRY(px_sub(&offset, args[1].v.tensor, wide, px_int(1)));
  PX_TRY(px_exp(&weight, offset));
  return px_mul(out, grad, weight);
}

// The derivative of cumprod as ops, for when it is to be differentiated itself: [.., j, i] is the
// product up to i of all but the j-th, so zeros among the elements do no harm.
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
// (grad, self, dim)
px_status px__grad_cumprod(px_tensor **out, const px_value *args, int count) {
  const px_tensor *grad = args[0].v.tensor, *self = args[1].v.tensor;
  if (px_grad_enabled() && px_tensor_ndim(self))
    return cumprod_composed(out, grad, self, args[2].v.i);
  return px_cumprod_backward(out, grad, self, args[2].v.i);
}

// A second derivative that nobody has written: an error rather than a zero.
px_status px__grad_unimplemented(px__backward *b) {
  PX_FAIL(PX_UNIMPLEMENTED, "derivative for aten::%s is not implemented", b->op->name);
}
