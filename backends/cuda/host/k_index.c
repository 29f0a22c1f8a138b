// SPDX-License-Identifier: Apache-2.0
// Host functions of index.cu. The form of index_get and index_put is told in src/ops/index_impl.h:
// operands (out, self, indices...) and (self, values, indices...) with the sizes of the loop.
#include "cuda/host/kernel.h"

static px_status fill_pick(k_pick *p, const px_launch *l, bool put) {
  const px_operand *self = &l->operands[put ? 0 : 1], *other = &l->operands[put ? 1 : 0];
  memset(p, 0, sizeof *p);
  p->count = l->operand_count - 2;
  if (p->count > K_INDICES) PX_CUDA_FAIL(PX_BUG, "too many index tensors");
  p->where = px__cuda_where(l);
  p->self = self->data, p->other = other->data, p->dtype = self->dtype;
  p->n = px__operand_numel(self), p->wide = p->n >> 31 != 0, p->ndim = self->ndim;
  p->wraps = l->params[3].v.i != 0, p->fault = (int32_t)l->params[4].v.i;
  for (int d = 0; d < p->ndim; d++) {
    int k = p->ndim - 1 - d;
    p->sizes[d] = self->sizes[k];
    px__cuda_divisor(&p->by[d], p->sizes[d]);
    p->self_strides[d] = self->strides[k], p->other_strides[d] = other->strides[k];
    for (int i = 0; i < p->count; i++) p->index_strides[i][d] = l->operands[2 + i].strides[k];
  }
  for (int i = 0; i < p->count; i++) {
    p->index[i] = l->operands[2 + i].data;
    p->dim_sizes[i] = l->params[0].v.ints[i], p->dim_strides[i] = l->params[1].v.ints[i];
    p->dims[i] = l->params[2].v.ints[i];
  }
  return PX_OK;
}
// Where whole runs are moved, elements are joined into larger ones, up to 16 bytes: returns their
// size.
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

// Runs along one dimension.
static bool has_runs(const k_pick *p) {
  return !p->wide && p->count == 1 && p->ndim == 2 && p->index_strides[0][0] == 0;
}

PX_CUDA_KERNEL(index_get) {
  k_pick p;
  char function[24];
  PX_CUDA_PASS(fill_pick(&p, l, false));
  int64_t item = widen(&p);
  // Places in the result are told from none by their sign.
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
PX_CUDA_KERNEL(index_put) {
  static const char *const suffixes[] = PX_CUDA_SUFFIXES;
  k_pick p, wide;
  char function[24];
  PX_CUDA_PASS(fill_pick(&p, l, true));
  wide = p;
  int64_t item = widen(&wide);
  if (!l->params[5].v.i) {
    snprintf(function, sizeof function, "put_%d", (int)item);
    return px__cuda_over(l, "index", function, wide.n, &wide);
  }
  bool runs = item == 16 && px__cuda_is_float(p.dtype) && has_runs(&wide);
  snprintf(function, sizeof function, runs ? "add_runs_%s" : "add_%s", suffixes[p.dtype]);
  return px__cuda_over(l, "index", function, runs ? wide.n : p.n, runs ? &wide : &p);
}

static px_status move_along(const px_launch *l, bool place) {
  static const char spec[] = "wrR";
  int dtype = px__cuda_is_float(l->operands[0].dtype) ? PX_FLOAT64 : PX_INT64;
  px__cuda_dense d[3];
  k_lines p = {.where = px__cuda_where(l), .place = place, .dim = px__param_int(l, 2)};
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  p.out = d[0].at, p.in = d[1].at, p.indices = d[2].at;
  px__around(&l->operands[place ? 0 : 1], p.dim, &p.outer, &p.take, &p.inner);
  px__around(&l->operands[2], p.dim, &p.outer, &p.size, &p.inner);
  if (place) PX_CUDA_PASS(px__cuda_fill(l->stream, p.out, 0, (size_t)d[0].n * 8));
  PX_CUDA_PASS(
      px__cuda_over(l, "index", dtype == PX_FLOAT64 ? "along_f64" : "along_i64", d[2].n, &p));
  return px__cuda_close(d, l, spec);
}
PX_CUDA_KERNEL(place_along) { return move_along(l, true); }
PX_CUDA_KERNEL(pick_along) { return move_along(l, false); }
