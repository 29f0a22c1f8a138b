// SPDX-License-Identifier: Apache-2.0
// Host functions of make.cu: arange, linspace, eye and triangles.
#include "cuda/host/ops/kernel.h"
#include "kernel_args/factory.h"
#include "kernel_args/index.h"

static k_make make_of(const px_operand *o) {
  return (k_make){.out = o->data, .dtype = o->dtype, .n = px_operand_numel(o)};
}

PX_CUDA_KERNEL(arange) {
  k_make p = make_of(args->out);
  p.start = px_scalar_int(args->start), p.step = px_scalar_int(args->step);
  p.from = px_scalar_float(args->start), p.by = px_scalar_float(args->step);
  p.integer = args->start.kind != 'f' && args->step.kind != 'f';
  return px__cuda_over(l, "make", "arange", p.n, &p);
}
PX_CUDA_KERNEL(linspace) {
  k_make p = make_of(args->out);
  p.from = px_scalar_float(args->start), p.to = px_scalar_float(args->end);
  p.by = p.n > 1 ? (p.to - p.from) / (double)(p.n - 1) : 0;
  return px__cuda_over(l, "make", "linspace", p.n, &p);
}
PX_CUDA_KERNEL(eye) {
  k_make p = make_of(args->out);
  p.columns = args->out->sizes[1];
  return px__cuda_over(l, "make", "eye", p.n, &p);
}

static void swap(int64_t *of_dims) {
  int64_t columns = of_dims[0];
  of_dims[0] = of_dims[1], of_dims[1] = columns;
}
static px_status triangle(const px_launch *l, const px_operand *to, const px_operand *from,
                          int64_t diagonal, bool lower) {
  static const char *const names[] = {[1] = "triangle_1",
                                      [2] = "triangle_2",
                                      [4] = "triangle_4",
                                      [8] = "triangle_8",
                                      [16] = "triangle_16"};
  k_make p = make_of(to);
  PX_CUDA_PASS(px__cuda_fits(from, 0));
  p.in = from->data, p.diagonal = diagonal, p.lower = lower, p.ndim = from->ndim;
  for (int d = 0; d < p.ndim; d++) {
    int k = p.ndim - 1 - d;
    p.sizes[d] = from->sizes[k];
    p.to_strides[d] = to->strides[k], p.from_strides[d] = from->strides[k];
  }
  // Swap rows and columns if the result is column-major.
  if (p.ndim > 1 && p.to_strides[1] < p.to_strides[0]) {
    swap(p.sizes), swap(p.to_strides), swap(p.from_strides);
    p.lower = !lower, p.diagonal = -diagonal;
  }
  return px__cuda_over(l, "make", names[px__cuda_dtype_size(p.dtype)], p.n, &p);
}
PX_CUDA_KERNEL(tril) { return triangle(l, args->out, args->self, args->diagonal, true); }
PX_CUDA_KERNEL(triu) { return triangle(l, args->out, args->self, args->diagonal, false); }
