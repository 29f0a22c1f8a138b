// SPDX-License-Identifier: Apache-2.0
// Host functions of index.cu. Operands of index_get and index_put, described in
// src/ops/index/index_impl.h, all have the sizes of the loop.
#include "cuda/host/ops/kernel.h"
#include "kernel_args/index.h"
#include "kernel_args/sort.h"

// Parameters common to both kernels; `other` is the gathered or the scattered operand.
static px_status fill_pick(k_pick *p, const px_launch *l, const px_operand *self,
                           const px_operand *other, const px_operand *indices, int count) {
  memset(p, 0, sizeof *p);
  p->count = count;
  if (p->count > K_INDICES) PX_CUDA_FAIL(PX_BUG, "too many index tensors");
  PX_CUDA_PASS(px__cuda_fits(self, 0));
  p->where = px__cuda_where(l);
  p->self = self->data, p->other = other->data, p->dtype = self->dtype;
  p->n = px_operand_numel(self), p->wide = p->n >> 31 != 0, p->ndim = self->ndim;
  for (int d = 0; d < p->ndim; d++) {
    int k = p->ndim - 1 - d;
    p->sizes[d] = self->sizes[k];
    px__cuda_divisor(&p->by[d], p->sizes[d]);
    p->self_strides[d] = self->strides[k], p->other_strides[d] = other->strides[k];
    for (int i = 0; i < p->count; i++) p->index_strides[i][d] = indices[i].strides[k];
  }
  for (int i = 0; i < p->count; i++) p->index[i] = indices[i].data;
  return PX_OK;
}
// Sets the indexed dimensions, whether negative indices wrap, and the fault code of an invalid
// index.
static void fill_dims(k_pick *p, const px_value *sizes, const px_value *strides,
                      const px_value *dims, bool wraps, int64_t fault) {
  size_t bytes = (size_t)p->count * sizeof(int64_t);
  memcpy(p->dim_sizes, sizes->v.ints, bytes);
  memcpy(p->dim_strides, strides->v.ints, bytes);
  memcpy(p->dims, dims->v.ints, bytes);
  p->wraps = wraps, p->fault = (int32_t)fault;
}
// If whole runs are moved, merges elements into larger ones of up to 16 bytes. Returns their size.
static int64_t widen(k_pick *p) {
  int64_t item = (int64_t)px__cuda_dtype_size(p->dtype), by = 16 / item;
  bool runs = p->ndim > 0 && p->self_strides[0] == 1 && p->other_strides[0] == 1;
  for (int i = 0; i < p->count; i++) runs &= p->index_strides[i][0] == 0;
  for (; runs && by > 1; by /= 2) {
    bool fits = p->sizes[0] % by == 0 && (uintptr_t)p->self % (size_t)(by * item) == 0 &&
                (uintptr_t)p->other % (size_t)(by * item) == 0;
    for (int d = 1; d < p->ndim; d++)
      fits &= p->self_strides[d] % by == 0 && p->other_strides[d] % by == 0;
    for (int i = 0; i < p->count; i++) fits &= p->dim_strides[i] % by == 0;
    if (fits) break;
  }
  if (!runs || by == 1) return item;
  p->n /= by, p->sizes[0] /= by, p->wide = p->n >> 31 != 0;
  px__cuda_divisor(&p->by[0], p->sizes[0]);
  for (int d = 1; d < p->ndim; d++) p->self_strides[d] /= by, p->other_strides[d] /= by;
  for (int i = 0; i < p->count; i++) p->dim_strides[i] /= by;
  return item * by;
}

// True for runs along one dimension.
static bool has_runs(const k_pick *p) {
  return !p->wide && p->count == 1 && p->ndim == 2 && p->index_strides[0][0] == 0;
}

PX_CUDA_KERNEL(index_get) {
  k_pick p;
  char function[24];
  PX_CUDA_PASS(fill_pick(&p, l, args->self, args->out, args->list, args->list_n));
  fill_dims(&p, &args->dim_sizes, &args->dim_strides, &args->dims, args->wraps, args->fault);
  int64_t item = widen(&p);
  // The kernel marks an absent output offset by its sign.
  if (item < 4 || !has_runs(&p) || p.other_strides[0] < 0 || p.other_strides[1] < 0) {
    snprintf(function, sizeof function, "get_%d", (int)item);
    return px__cuda_over(l, "index", function, p.n, &p);
  }
  void *params[] = {&p};
  snprintf(function, sizeof function, "get_runs_%d", (int)item);
  return px__cuda_launch(l, "index", function,
                         (unsigned)((p.n + K_BLOCK * K_RUNS - 1) / (K_BLOCK * K_RUNS)), K_BLOCK, 0,
                         params);
}
// In deterministic mode, float accumulation has a fixed order; integer sums do not depend on it.
static bool is_ordered(int dtype) {
  return px__cuda_is_float(dtype) && px__cuda_core->setting(PX_SETTING_DETERMINISTIC);
}
enum { ORDERED_BLOCKS = 256 };
static px_status join_ordered(const px_launch *l, k_pick *p) {
  bool runs = p->ndim > 0;
  for (int i = 0; i < p->count; i++) runs &= p->index_strides[i][0] == 0;
  p->run = runs ? p->sizes[0] : 1;
  return px__cuda_by_dtype(l, "index", "join_ordered", p->dtype, ORDERED_BLOCKS, K_BLOCK, p);
}
// Stores or adds elements, several at a time where possible. Not inlined: its stack frame.
__attribute__((noinline)) static px_status put_wide(const px_launch *l, k_pick *p) {
  k_pick wide = *p;
  char function[24];
  int64_t item = widen(&wide);
  if (p->how == PX_PUT_STORE) {
    snprintf(function, sizeof function, "put_%d", (int)item);
    return px__cuda_over(l, "index", function, wide.n, &wide);
  }
  bool runs = item == 16 && px__cuda_is_float(p->dtype) && has_runs(&wide);
  snprintf(function, sizeof function, runs ? "add_runs_%s" : "add_%s", px__cuda_suffix(p->dtype));
  return px__cuda_over(l, "index", function, runs ? wide.n : p->n, runs ? &wide : p);
}
PX_CUDA_KERNEL(index_put) {
  k_pick p;
  char function[24];
  PX_CUDA_PASS(fill_pick(&p, l, args->self, args->values, args->list, args->list_n));
  fill_dims(&p, &args->dim_sizes, &args->dim_strides, &args->dims, args->wraps, args->fault);
  p.how = (int32_t)args->how;
  if (p.how == PX_PUT_STORE) return put_wide(l, &p);
  if (is_ordered(p.dtype)) return p.n ? join_ordered(l, &p) : PX_OK;
  if (p.how != PX_PUT_ADD) {
    snprintf(function, sizeof function, "join_%s", px__cuda_suffix(p.dtype));
    return px__cuda_over(l, "index", function, p.n, &p);
  }
  return put_wide(l, &p);
}

// Works on 64-bit numbers: floats are moved and added as doubles. `big` is the operand with full
// lines.
static px_status move_along(const px_launch *l, const px_operand *out, const px_operand *in,
                            const px_operand *indices, const px_operand *big, int64_t dim) {
  int dtype = px__cuda_is_float(out->dtype) ? PX_FLOAT64 : PX_INT64;
  px__cuda_dense d = {.launch = l};
  k_lines p = {.where = px__cuda_where(l),
               .scatters = big == out,
               .dim = dim,
               .out = px__cuda_dense_out(&d, out, dtype),
               .in = px__cuda_dense_in(&d, in, dtype),
               .indices = px__cuda_dense_in(&d, indices, indices->dtype)};
  PX_CUDA_PASS(d.status);
  px__split_sizes(big, dim, &p.outer, &p.take, &p.inner);
  px__split_sizes(indices, dim, &p.outer, &p.size, &p.inner);
  if (p.scatters)
    PX_CUDA_PASS(px__cuda_fill(l->stream, p.out, 0, (size_t)px_operand_numel(out) * 8));
  if (p.scatters && is_ordered(dtype))
    PX_CUDA_PASS(px__cuda_over(l, "index", "along_ordered_f64", p.outer * p.inner, &p));
  else
    PX_CUDA_PASS(px__cuda_over(l, "index", dtype == PX_FLOAT64 ? "along_f64" : "along_i64",
                               px_operand_numel(indices), &p));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(place_along) {
  return move_along(l, args->out, args->grad_output, args->indices, args->out, args->dim);
}
PX_CUDA_KERNEL(pick_along) {
  return move_along(l, args->out, args->self, args->indices, args->self, args->dim);
}
