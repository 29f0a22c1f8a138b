// SPDX-License-Identifier: Apache-2.0
// Host functions of reduce.cu. Elements are visited in the input's row-major order, which defines
// the indices.
#include "cuda/host/ops/kernel.h"
#include "kernel_args/reduce.h"

enum { MAX_ACCUMULATOR = 32 };  // upper bound of an accumulator's bytes

#define VARIANTS(type) \
  { #type "_rows", #type "_columns", #type "_join" }
// functions: for integers, floats of up to 32 bits, doubles.
static px_status reduce(const px_launch *l, k_fold *p, const char *const (*functions)[3],
                        const px_operand *out, const px_operand *second, const px_operand *in) {
  PX_CUDA_PASS(px__cuda_axes(p, out, second, in, false));
  return px__cuda_reduce(l, p, "reduce",
                         functions[in->dtype == PX_FLOAT64        ? 2
                                   : px__cuda_is_float(in->dtype) ? 1
                                                                  : 0],
                         MAX_ACCUMULATOR, NULL);
}

// `values` is NULL for argmax and argmin.
static px_status extreme(const px_launch *l, const px_operand *values, const px_operand *indices,
                         const px_operand *in, bool is_min) {
  static const char *const functions[3][3] = {VARIANTS(extreme_i64), VARIANTS(extreme_f32),
                                              VARIANTS(extreme_f64)};
  k_fold p = {.a = {.i = is_min}, .b = {.i = values != NULL}};
  return reduce(l, &p, functions, values ? values : indices, values ? indices : NULL, in);
}
PX_CUDA_KERNEL(argmax) { return extreme(l, NULL, args->out, args->self, false); }
PX_CUDA_KERNEL(argmin) { return extreme(l, NULL, args->out, args->self, true); }
PX_CUDA_KERNEL(max_dim) { return extreme(l, args->values, args->indices, args->self, false); }
PX_CUDA_KERNEL(min_dim) { return extreme(l, args->values, args->indices, args->self, true); }

static px_status variance(const px_launch *l, const px_operand *out, const px_operand *in,
                          double correction, bool root) {
  static const char *const functions[3][3] = {VARIANTS(variance_f64), VARIANTS(variance_f64),
                                              VARIANTS(variance_f64)};
  k_fold p = {.a = {.f = correction}, .b = {.i = root}};
  return reduce(l, &p, functions, out, NULL, in);
}
PX_CUDA_KERNEL(var) {
  return variance(l, args->out, args->self, px__number_or(&args->correction, 1), false);
}
PX_CUDA_KERNEL(std) {
  return variance(l, args->out, args->self, px__number_or(&args->correction, 1), true);
}

PX_CUDA_KERNEL(norm) {
  static const char *const functions[3][3] = {VARIANTS(norm_f64), VARIANTS(norm_f64),
                                              VARIANTS(norm_f64)};
  k_fold p = {.a = {.f = px__norm_order(&args->p, args->out, args->self)}};
  bool batched = false;
  if (px__cuda_folds_batch && args->self->dtype != PX_FLOAT64) {
    PX_CUDA_PASS(px__cuda_axes(&p, args->out, NULL, args->self, false));
    PX_CUDA_PASS(px__cuda_folds_add(&batched, l, "reduce", "norm_f64", sizeof(double), &p));
  }
  return batched ? PX_OK : reduce(l, &p, functions, args->out, NULL, args->self);
}
PX_CUDA_KERNEL(logsumexp) {
  static const char *const functions[3][3] = {VARIANTS(logsumexp_f64), VARIANTS(logsumexp_f32),
                                              VARIANTS(logsumexp_f64)};
  k_fold p = {.results = 0};
  return reduce(l, &p, functions, args->out, NULL, args->self);
}
