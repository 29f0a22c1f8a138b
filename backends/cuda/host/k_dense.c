// SPDX-License-Identifier: Apache-2.0
// Operands as dense arrays for the hand-written kernels, and what their host functions share.
#include "cuda/host/kernel.h"

static int dtype_for(char how, const px_operand *o, int dtype) {
  if (how == 'x' || how == 'y' || how == 'z') return px__compute_of(dtype);
  return how < 'a' ? o->dtype : dtype;
}
static bool reads(char how) {
  return how == 'r' || how == 'R' || how == 'x' || how == 'b' || how == 'B' || how == 'z';
}
static bool writes(char how) { return how != 'r' && how != 'R' && how != 'x'; }

// A number from the host has no memory: it is filled in by a copy whose source is the value.
static px_status open_one(px__cuda_dense *d, const px_launch *l, const px_operand *o, char how,
                          int dtype, int64_t *strides) {
  int want = dtype_for(how, o, dtype);
  *d = (px__cuda_dense){.n = px__operand_numel(o), .self = *o, .plain = *o, .write = writes(how)};
  if (!o->immediate && o->dtype == want && px__operand_row_major(o)) {
    d->at = o->data;
    return PX_OK;
  }
  int64_t n = 1;
  for (int i = o->ndim - 1; i >= 0; i--) strides[i] = n, n *= o->sizes[i];
  d->owned = true;
  d->plain.dtype = want, d->plain.strides = strides, d->plain.immediate = false;
  PX_CUDA_PASS(
      px__cuda_scratch(l, (size_t)(n ? n : 1) * px__cuda_dtype_size(want), &d->plain.data));
  d->at = d->plain.data;
  return reads(how) && n ? px__cuda_copy_operand(l, &d->plain, &d->self) : PX_OK;
}

px_status px__cuda_open(px__cuda_dense *d, const px_launch *l, const char *spec, int dtype) {
  int64_t strides[PX_MAX_DIMS];
  memset(d, 0, strlen(spec) * sizeof *d);
  for (int i = 0; spec[i]; i++) {
    const px_operand *o = &l->operands[i];
    if (spec[i] == '-' || o->dtype == PX_DTYPE_NONE) continue;
    PX_CUDA_PASS(open_one(&d[i], l, o, spec[i], dtype, strides));
  }
  return PX_OK;
}

px_status px__cuda_close(px__cuda_dense *d, const px_launch *l, const char *spec) {
  for (int i = 0; spec[i]; i++) {
    if (!d[i].owned || !d[i].write || d[i].n == 0) continue;
    int64_t strides[PX_MAX_DIMS], n = 1;
    for (int k = d[i].self.ndim - 1; k >= 0; k--) strides[k] = n, n *= d[i].self.sizes[k];
    d[i].plain.strides = strides;
    PX_CUDA_PASS(px__cuda_copy_operand(l, &d[i].self, &d[i].plain));
  }
  return PX_OK;
}

px_status px__cuda_tiles(const px_launch *l, k_tiles_of *t, int64_t lines, int64_t tiles) {
  enum { NEXT = 512 };
  size_t bytes = NEXT + (size_t)(lines * K_ROOMS(tiles)) * sizeof *t->rooms;
  void *room;
  PX_CUDA_PASS(px__cuda_scratch(l, bytes, &room));
  *t = (k_tiles_of){tiles, (k_room *)((char *)room + NEXT), room};
  return px__cuda_fill(l->stream, room, 0, bytes);
}

px_status px__cuda_by_dtype(const px_launch *l, const char *module, const char *name, int dtype,
                            int64_t grid, unsigned block, void *params) {
  static const char *const suffixes[] = PX_CUDA_SUFFIXES;
  char function[64];
  void *list[] = {params};
  if (grid <= 0) return PX_OK;
  if (dtype < PX_FLOAT16 || dtype > PX_FLOAT64) return px__cuda_missing(l, dtype);
  if (grid > INT32_MAX) grid = INT32_MAX;
  snprintf(function, sizeof function, "%s_%s", name, suffixes[dtype]);
  return px__cuda_launch(l, module, function, (unsigned)grid, block, 0, list);
}
