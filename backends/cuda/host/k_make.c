// SPDX-License-Identifier: Apache-2.0
// Host functions of make.cu: fills by a rule of the place, and triangles.
#include "cuda/host/kernel.h"

static bool is_whole(px_value v) {
  return v.kind != PX_ARG_FLOAT && !(v.kind == PX_ARG_SCALAR && v.category == 'f');
}
static k_make make_of(const px_launch *l) {
  const px_operand *o = &l->operands[0];
  return (k_make){.out = o->data, .dtype = o->dtype, .n = px__operand_numel(o)};
}

// params: start, step.
PX_CUDA_KERNEL(arange) {
  k_make p = make_of(l);
  p.start = px__param_int(l, 0), p.step = px__param_int(l, 1);
  p.from = px__param_float(l, 0), p.by = px__param_float(l, 1);
  p.whole = is_whole(l->params[0]) && is_whole(l->params[1]);
  return px__cuda_over(l, "make", "arange", p.n, &p);
}
// params: start, end.
PX_CUDA_KERNEL(linspace) {
  k_make p = make_of(l);
  p.from = px__param_float(l, 0), p.to = px__param_float(l, 1);
  p.by = p.n > 1 ? (p.to - p.from) / (double)(p.n - 1) : 0;
  return px__cuda_over(l, "make", "linspace", p.n, &p);
}
PX_CUDA_KERNEL(eye) {
  k_make p = make_of(l);
  p.columns = l->operands[0].sizes[1];
  return px__cuda_over(l, "make", "eye", p.n, &p);
}

static px_status triangle(const px_launch *l, bool lower) {
  static const char *const names[] = {"triangle_1", "triangle_2", "triangle_4", "triangle_8"};
  const px_operand *from = &l->operands[1];
  k_make p = make_of(l);
  p.in = from->data, p.diagonal = px__param_int(l, 1), p.lower = lower, p.ndim = from->ndim;
  for (int d = 0; d < p.ndim; d++) {
    int k = p.ndim - 1 - d;
    p.sizes[d] = from->sizes[k];
    p.to_strides[d] = l->operands[0].strides[k], p.from_strides[d] = from->strides[k];
  }
  size_t item = px__cuda_dtype_size(p.dtype);
  return px__cuda_over(l, "make",
                       names[item == 1   ? 0
                             : item == 2 ? 1
                             : item == 4 ? 2
                                         : 3],
                       p.n, &p);
}
PX_CUDA_KERNEL(tril) { return triangle(l, true); }
PX_CUDA_KERNEL(triu) { return triangle(l, false); }
