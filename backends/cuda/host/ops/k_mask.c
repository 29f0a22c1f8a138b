// SPDX-License-Identifier: Apache-2.0
// Host functions of mask.cu: nonzero, masked_select and unique.
#include "cuda/host/ops/sort.h"
#include "kernel_args/index.h"
#include "kernel_args/sort.h"

static k_mask mask_of(const void *in, int64_t n, int dtype) {
  k_sort s;  // provides the dtype's NaN threshold
  px__cuda_sort_as(&s, dtype, false);
  bool real = px__cuda_is_float(dtype);
  return (k_mask){.in = in,
                  .n = n,
                  .magnitude = real ? s.top - 1 : UINT64_MAX,
                  .max_magnitude = s.max_magnitude};
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
  int dtype = args->self->dtype;
  px__cuda_dense d = {.launch = l};
  k_mask p = mask_of(px__cuda_dense_in(&d, args->self, dtype), px_operand_numel(args->self), dtype);
  p.number = px__cuda_dense_out(&d, args->count, PX_INT64);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_fill(l->stream, p.number, 0, sizeof *p.number));
  unsigned grid = px__cuda_grid(l, (p.n + K_MASK_EACH - 1) / K_MASK_EACH, K_BLOCK);
  PX_CUDA_PASS(run(l, "nonzero_count", dtype, grid, &p));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(nonzero) {
  const px_operand *in = args->self;
  PX_CUDA_PASS(px__cuda_fits(in, 0));
  px__cuda_dense d = {.launch = l};
  k_mask p = mask_of(px__cuda_dense_in(&d, in, in->dtype), px_operand_numel(in), in->dtype);
  PX_CUDA_PASS(d.status);
  p.out = args->places->data;
  p.capacity = args->places->sizes[0], p.ndim = in->ndim;
  for (int k = 0; k < p.ndim; k++) p.sizes[k] = in->sizes[p.ndim - 1 - k];
  PX_CUDA_PASS(by_tiles(l, "nonzero", in->dtype, &p));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(selected) {
  int dtype = args->self->dtype;
  px__cuda_dense d = {.launch = l};
  k_mask p =
      mask_of(px__cuda_dense_in(&d, args->mask, PX_BOOL), px_operand_numel(args->mask), PX_BOOL);
  p.out = px__cuda_dense_out(&d, args->out, dtype),
  p.from = px__cuda_dense_in(&d, args->self, dtype);
  PX_CUDA_PASS(d.status);
  p.capacity = px_operand_numel(args->out);
  PX_CUDA_PASS(by_tiles(l, "selected", dtype, &p));
  return px__cuda_dense_close(&d);
}
// `values` and `counts` may be absent, else have capacity for all elements. The input is not
// empty.
PX_CUDA_KERNEL(distinct) {
  void *sorted, *starts = NULL;
  int dtype = args->self->dtype;
  int64_t n = px_operand_numel(args->self);
  px__cuda_dense d = {.launch = l};
  const void *in = px__cuda_dense_in(&d, args->self, dtype);
  void *values = px__cuda_dense_out(&d, args->values, dtype);
  void *counts = px__cuda_dense_out(&d, args->counts, PX_INT64);
  int64_t *number = px__cuda_dense_out(&d, args->number, PX_INT64);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)n * px__cuda_dtype_size(dtype), &sorted));
  k_sort s = {.in = in, .out = sorted, .lines = 1, .size = n, .take = n};
  px__cuda_sort_as(&s, dtype, false);
  PX_CUDA_PASS(px__cuda_sort_lines(l, &s));
  k_mask p = mask_of(sorted, n, dtype);
  if (counts) PX_CUDA_PASS(px__cuda_scratch(l, (size_t)n * sizeof *p.starts, &starts));
  p.out = values, p.number = number, p.starts = starts, p.capacity = n;
  PX_CUDA_PASS(by_tiles(l, "distinct", dtype, &p));
  p.out = counts;
  if (counts) PX_CUDA_PASS(px__cuda_over(l, "mask", "distinct_counts", n, &p));
  return px__cuda_dense_close(&d);
}

// Maximum of int64 elements, by the fold of amax over the whole tensor.
PX_CUDA_KERNEL(index_max) {
  static const char *const variants[3] = {"amax_i64_rows", "amax_i64_columns", "amax_i64_join"};
  int64_t n = px_operand_numel(args->self);
  px__cuda_dense d = {.launch = l};
  k_fold p = {.in = px__cuda_dense_in(&d, args->self, PX_INT64),
              .out = px__cuda_dense_out(&d, args->most, PX_INT64),
              .results = 1,
              .length = n,
              .parts = 1,
              .part = n,
              .in_dtype = PX_INT64,
              .out_dtype = PX_INT64,
              .kept_count = 1,
              .reduced_count = 1,
              .kept = {{1, 0, 0, 0}},
              .reduced = {{n, sizeof(int64_t), 0, 0}}};
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_reduce(l, &p, "kernels_cuda_fold", variants, sizeof(int64_t), NULL));
  return px__cuda_dense_close(&d);
}
