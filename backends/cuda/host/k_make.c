// SPDX-License-Identifier: Apache-2.0
// Host functions of make.cu: fills by a rule of the place, triangles, and searches of masks.
#include "cuda/host/kernel.h"

typedef struct k_make {  // as in make.cu
  void *out;
  const void *in;
  int64_t n, columns, start, step, diagonal;
  double from, by, to;
  int32_t dtype, whole, lower, ndim;
  int64_t sizes[K_DIMS], to_strides[K_DIMS], from_strides[K_DIMS];
} k_make;

static bool is_whole(px_value v) {
  return v.kind != PX_ARG_FLOAT && !(v.kind == PX_ARG_SCALAR && v.category == 'f');
}
static k_make make_of(const px_launch *l) {
  const px_operand *o = &l->operands[0];
  return (k_make){.out = o->data, .dtype = o->dtype, .n = px__cuda_numel(o)};
}

// params: start, step.
PX_CUDA_KERNEL(arange) {
  k_make p = make_of(l);
  p.start = px__cuda_int(l, 0), p.step = px__cuda_int(l, 1);
  p.from = px__cuda_float(l, 0), p.by = px__cuda_float(l, 1);
  p.whole = is_whole(l->params[0]) && is_whole(l->params[1]);
  return px__cuda_over(l, "make", "arange", p.n, &p);
}
// params: start, end.
PX_CUDA_KERNEL(linspace) {
  k_make p = make_of(l);
  p.from = px__cuda_float(l, 0), p.to = px__cuda_float(l, 1);
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
  p.in = from->data, p.diagonal = px__cuda_int(l, 1), p.lower = lower, p.ndim = from->ndim;
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

static px_status search(const px_launch *l, const char *function) {
  static const char spec[] = "WR";
  px__cuda_dense d[2];
  PX_CUDA_PASS(px__cuda_open(d, l, spec, PX_FLOAT32));
  k_make p = {.out = d[0].at, .in = d[1].at, .n = d[1].n, .dtype = l->operands[1].dtype};
  p.ndim = l->operands[1].ndim;
  for (int k = 0; k < p.ndim; k++) p.sizes[k] = l->operands[1].sizes[p.ndim - 1 - k];
  if (l->operands[0].ndim > 0) p.columns = l->operands[0].sizes[0];
  void *params[] = {&p};
  PX_CUDA_PASS(px__cuda_launch(l, "make", function, 1, 1024, 0, params));
  return px__cuda_close(d, l, spec);
}
PX_CUDA_KERNEL(nonzero_count) { return search(l, "nonzero_count"); }
PX_CUDA_KERNEL(nonzero) { return search(l, "nonzero"); }
PX_CUDA_KERNEL(index_max) { return search(l, "index_max"); }
