// SPDX-License-Identifier: Apache-2.0
// Host functions of make.cu: fills by a rule of the place, triangles, and searches of masks.
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

// ---- searches

static px_status open_search(k_make *p, px__cuda_dense *d, const px_launch *l) {
  PX_CUDA_PASS(px__cuda_open(d, l, "WR", PX_FLOAT32));
  *p = (k_make){.out = d[0].at, .in = d[1].at, .n = d[1].n, .dtype = l->operands[1].dtype};
  p->ndim = l->operands[1].ndim;
  for (int k = 0; k < p->ndim; k++) p->sizes[k] = l->operands[1].sizes[p->ndim - 1 - k];
  if (l->operands[0].ndim > 0) p->columns = l->operands[0].sizes[0];
  return PX_OK;
}
// Counts the elements that are not zero by chunks, then launches `function`.
static px_status nonzero(const px_launch *l, const char *function, bool all) {
  enum { LEAST = 4096, MOST = 2048, ROUND = 2048 };  // elements of a chunk, chunks
  px__cuda_dense d[2];
  k_make p;
  void *params[] = {&p}, *counts = NULL;
  PX_CUDA_PASS(open_search(&p, d, l));
  p.step = ((p.n + MOST - 1) / MOST + ROUND - 1) / ROUND * ROUND;
  if (p.step < LEAST) p.step = LEAST;
  p.chunks = (p.n + p.step - 1) / p.step;
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(p.chunks + 1) * sizeof *p.counts, &counts));
  p.counts = counts;
  PX_CUDA_PASS(
      px__cuda_launch(l, "make", "nonzero_chunks", (unsigned)p.chunks, K_BLOCK, 0, params));
  PX_CUDA_PASS(
      px__cuda_launch(l, "make", function, all ? 1 : (unsigned)p.chunks, K_BLOCK, 0, params));
  return px__cuda_close(d, l, "WR");
}
PX_CUDA_KERNEL(nonzero_count) { return nonzero(l, "nonzero_count", true); }
PX_CUDA_KERNEL(nonzero) { return nonzero(l, "nonzero", false); }
// The greatest of int64: the fold of amax, over all elements.
PX_CUDA_KERNEL(index_max) {
  static const char *const ways[3] = {"amax_i64_rows", "amax_i64_columns", "amax_i64_join"};
  px__cuda_dense d[2];
  PX_CUDA_PASS(px__cuda_open(d, l, "WR", PX_FLOAT32));
  k_fold p = {.in = d[1].at,
              .out = d[0].at,
              .results = 1,
              .length = d[1].n,
              .parts = 1,
              .part = d[1].n,
              .in_dtype = PX_INT64,
              .out_dtype = PX_INT64,
              .kept_count = 1,
              .gone_count = 1,
              .kept = {{1, 0, 0, 0}},
              .gone = {{d[1].n, sizeof(int64_t), 0, 0}}};
  PX_CUDA_PASS(px__cuda_reduce(l, &p, "kernels_cuda_fold", ways, sizeof(int64_t)));
  return px__cuda_close(d, l, "WR");
}
