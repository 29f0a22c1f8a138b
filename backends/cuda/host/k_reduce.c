// SPDX-License-Identifier: Apache-2.0
// Host functions of reduce.cu. Elements are taken in the input's row-major order: places are
// counted in it.
#include "cuda/host/kernel.h"

enum { MOST_BYTES = 32 };  // of an accumulator

#define WAYS(type) \
  { #type "_rows", #type "_columns", #type "_join" }
// The functions for whole numbers, for floats up to 32 bits, and for doubles.
static px_status reduce(const px_launch *l, k_fold *p, const char *const (*functions)[3]) {
  int in = l->operands[l->operand_count - 1].dtype;
  px__cuda_axes(p, l, false);
  return px__cuda_reduce(l, p, "reduce",
                         functions[in == PX_FLOAT64        ? 2
                                   : px__cuda_is_float(in) ? 1
                                                           : 0],
                         MOST_BYTES);
}

static px_status extreme(const px_launch *l, bool least, bool pair) {
  static const char *const functions[3][3] = {WAYS(extreme_i64), WAYS(extreme_f32),
                                              WAYS(extreme_f64)};
  k_fold p = {.a = {.i = least}, .b = {.i = pair}};
  return reduce(l, &p, functions);
}
PX_CUDA_KERNEL(argmax) { return extreme(l, false, false); }
PX_CUDA_KERNEL(argmin) { return extreme(l, true, false); }
PX_CUDA_KERNEL(max_dim) { return extreme(l, false, true); }
PX_CUDA_KERNEL(min_dim) { return extreme(l, true, true); }

static px_status variance(const px_launch *l, bool root) {
  static const char *const functions[3][3] = {WAYS(variance_f64), WAYS(variance_f64),
                                              WAYS(variance_f64)};
  k_fold p = {.a = {.f = 1}, .b = {.i = root}};
  if (l->params[2].kind != PX_ARG_NONE) p.a.f = px_value_float(l->params[2]);
  return reduce(l, &p, functions);
}
PX_CUDA_KERNEL(var) { return variance(l, false); }
PX_CUDA_KERNEL(std) { return variance(l, true); }

PX_CUDA_KERNEL(norm) {
  static const char *const functions[3][3] = {WAYS(norm_f64), WAYS(norm_f64), WAYS(norm_f64)};
  k_fold p = {.a = {.f = 2}};
  if (l->params[1].kind != PX_ARG_NONE) p.a.f = px_value_float(l->params[1]);
  return reduce(l, &p, functions);
}
PX_CUDA_KERNEL(logsumexp) {
  static const char *const functions[3][3] = {WAYS(logsumexp_f64), WAYS(logsumexp_f32),
                                              WAYS(logsumexp_f64)};
  k_fold p = {.results = 0};
  return reduce(l, &p, functions);
}
