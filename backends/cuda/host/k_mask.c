// SPDX-License-Identifier: Apache-2.0
// Host functions of mask.cu: searches of masks, and the different elements of a tensor.
#include "cuda/host/sort.h"

static k_mask mask_of(const void *in, int64_t n, int dtype) {
  k_sort s;  // knows what a NaN is
  px__cuda_sort_as(&s, dtype, false);
  bool real = px__cuda_is_float(dtype);
  return (k_mask){.in = in, .n = n, .magnitude = real ? s.top - 1 : UINT64_MAX, .most = s.most};
}
static px_status run(const px_launch *l, const char *name, int dtype, int64_t grid, k_mask *p) {
  char function[32];
  void *params[] = {p};
  snprintf(function, sizeof function, "%s_%d", name, (int)px__cuda_dtype_size(dtype));
  return px__cuda_launch(l, "mask", function, (unsigned)grid, K_BLOCK, 0, params);
}
static px_status by_tiles(const px_launch *l, const char *name, int dtype, k_mask *p) {
  int64_t tile = K_BLOCK * K_MASK_EACH, tiles = (p->n + tile - 1) / tile;
  PX_CUDA_PASS(px__cuda_tiles(l, &p->tiles, 1, tiles));
  return run(l, name, dtype, tiles, p);
}

PX_CUDA_KERNEL(nonzero_count) {
  px__cuda_dense d[2];
  PX_CUDA_PASS(px__cuda_open(d, l, "WR", PX_FLOAT32));
  int dtype = l->operands[1].dtype;
  k_mask p = mask_of(d[1].at, d[1].n, dtype);
  p.number = d[0].at;
  PX_CUDA_PASS(px__cuda_fill(l->stream, p.number, 0, sizeof *p.number));
  unsigned grid = px__cuda_grid(l, (p.n + K_MASK_EACH - 1) / K_MASK_EACH, K_BLOCK);
  PX_CUDA_PASS(run(l, "nonzero_count", dtype, grid, &p));
  return px__cuda_close(d, l, "WR");
}
PX_CUDA_KERNEL(nonzero) {
  px__cuda_dense d[2];
  const px_operand *in = &l->operands[1];
  PX_CUDA_PASS(px__cuda_open(d, l, "WR", PX_FLOAT32));
  k_mask p = mask_of(d[1].at, d[1].n, in->dtype);
  p.out = d[0].at, p.room = l->operands[0].sizes[0], p.ndim = in->ndim;
  for (int k = 0; k < p.ndim; k++) p.sizes[k] = in->sizes[p.ndim - 1 - k];
  PX_CUDA_PASS(by_tiles(l, "nonzero", in->dtype, &p));
  return px__cuda_close(d, l, "WR");
}
// selected(elements, mask)
PX_CUDA_KERNEL(selected) {
  px__cuda_dense d[3];
  PX_CUDA_PASS(px__cuda_open(d, l, "WRR", PX_FLOAT32));
  k_mask p = mask_of(d[2].at, d[2].n, PX_BOOL);
  p.out = d[0].at, p.from = d[1].at, p.room = d[0].n;
  PX_CUDA_PASS(by_tiles(l, "selected", l->operands[1].dtype, &p));
  return px__cuda_close(d, l, "WRR");
}
// Operands: values and counts, which may be absent, with room for all; how many; the elements, at
// least one.
PX_CUDA_KERNEL(distinct) {
  static const char spec[] = "WWWR";
  px__cuda_dense d[4];
  void *sorted, *places = NULL;
  int dtype = l->operands[3].dtype;
  PX_CUDA_PASS(px__cuda_open(d, l, spec, PX_FLOAT32));
  int64_t n = d[3].n;
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)n * px__cuda_dtype_size(dtype), &sorted));
  k_sort s = {.in = d[3].at, .out = sorted, .lines = 1, .size = n, .take = n};
  px__cuda_sort_as(&s, dtype, false);
  PX_CUDA_PASS(px__cuda_sort_lines(l, &s));
  k_mask p = mask_of(sorted, n, dtype);
  if (d[1].at) PX_CUDA_PASS(px__cuda_scratch(l, (size_t)n * sizeof *p.places, &places));
  p.out = d[0].at, p.number = d[2].at, p.places = places, p.room = n;
  PX_CUDA_PASS(by_tiles(l, "distinct", dtype, &p));
  p.out = d[1].at;
  if (p.out) PX_CUDA_PASS(px__cuda_over(l, "mask", "distinct_counts", n, &p));
  return px__cuda_close(d, l, spec);
}

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
