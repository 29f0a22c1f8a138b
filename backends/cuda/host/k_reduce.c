// SPDX-License-Identifier: Apache-2.0
// Host functions of reduce.cu. Elements are taken in the input's row-major order: places are
// counted in it.
#include "cuda/host/kernel.h"

static px_status reduce(const px_launch *l, k_fold *p, const char *function) {
  void *params[] = {p};
  px__cuda_axes(p, l, false);
  if (p->results == 0) return PX_OK;
  unsigned block = K_BLOCK;
  p->lanes = 32;
  if (p->length <= 2048)
    while (p->lanes > 1 && p->length < 2 * p->lanes) p->lanes /= 2;
  else
    p->lanes = (int32_t)(block = p->length > 65536 ? 1024 : K_BLOCK);
  int64_t each = block / (unsigned)p->lanes, grid = (p->results + each - 1) / each;
  return px__cuda_launch(l, "reduce", function,
                         grid > INT32_MAX ? (unsigned)INT32_MAX : (unsigned)grid, block, 0, params);
}

static px_status extreme(const px_launch *l, bool least, bool pair) {
  int in = l->operands[l->operand_count - 1].dtype;
  k_fold p = {.a = {.i = least}, .b = {.i = pair}};
  return reduce(l, &p, px__cuda_is_float(in) ? "extreme_f64" : "extreme_i64");
}
PX_CUDA_KERNEL(argmax) { return extreme(l, false, false); }
PX_CUDA_KERNEL(argmin) { return extreme(l, true, false); }
PX_CUDA_KERNEL(max_dim) { return extreme(l, false, true); }
PX_CUDA_KERNEL(min_dim) { return extreme(l, true, true); }

static px_status variance(const px_launch *l, bool root) {
  k_fold p = {.a = {.f = 1}, .b = {.i = root}};
  if (l->params[2].kind != PX_ARG_NONE) p.a.f = px_value_float(l->params[2]);
  return reduce(l, &p, "variance");
}
PX_CUDA_KERNEL(var) { return variance(l, false); }
PX_CUDA_KERNEL(std) { return variance(l, true); }

PX_CUDA_KERNEL(norm) {
  k_fold p = {.a = {.f = 2}};
  if (l->params[1].kind != PX_ARG_NONE) p.a.f = px_value_float(l->params[1]);
  return reduce(l, &p, "vector_norm");
}
PX_CUDA_KERNEL(logsumexp) {
  k_fold p = {.results = 0};
  return reduce(l, &p, "logsumexp");
}
