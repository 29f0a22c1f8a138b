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
  p->n = px__cuda_numel(self), p->wide = p->n >> 31 != 0, p->ndim = self->ndim;
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
static const char *by_item(const char *const *names, int dtype) {
  size_t item = px__cuda_dtype_size(dtype);
  return names[item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : 3];
}

PX_CUDA_KERNEL(index_get) {
  static const char *const names[] = {"get_1", "get_2", "get_4", "get_8"};
  k_pick p;
  PX_CUDA_PASS(fill_pick(&p, l, false));
  return px__cuda_over(l, "index", by_item(names, p.dtype), p.n, &p);
}
PX_CUDA_KERNEL(index_put) {
  static const char *const names[] = {"put_1", "put_2", "put_4", "put_8"};
  static const char *const suffixes[] = PX_CUDA_SUFFIXES;
  k_pick p;
  char function[16];
  PX_CUDA_PASS(fill_pick(&p, l, true));
  snprintf(function, sizeof function, "add_%s", suffixes[p.dtype]);
  return px__cuda_over(l, "index", l->params[5].v.i ? function : by_item(names, p.dtype), p.n, &p);
}

static px_status move_along(const px_launch *l, bool place) {
  static const char spec[] = "wrR";
  int dtype = px__cuda_is_float(l->operands[0].dtype) ? PX_FLOAT64 : PX_INT64;
  px__cuda_dense d[3];
  k_lines p = {.where = px__cuda_where(l), .place = place, .dim = px__cuda_int(l, 2)};
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  p.out = d[0].at, p.in = d[1].at, p.indices = d[2].at;
  px__cuda_around(&l->operands[place ? 0 : 1], p.dim, &p.outer, &p.take, &p.inner);
  px__cuda_around(&l->operands[2], p.dim, &p.outer, &p.size, &p.inner);
  if (place) PX_CUDA_PASS(px__cuda_fill(l->stream, p.out, 0, (size_t)d[0].n * 8));
  PX_CUDA_PASS(
      px__cuda_over(l, "index", dtype == PX_FLOAT64 ? "along_f64" : "along_i64", d[2].n, &p));
  return px__cuda_close(d, l, spec);
}
PX_CUDA_KERNEL(place_along) { return move_along(l, true); }
PX_CUDA_KERNEL(pick_along) { return move_along(l, false); }
