// SPDX-License-Identifier: Apache-2.0
// Dense operands for the hand-written kernels, and helpers shared by their host functions.
#include "cuda/host/ops/kernel.h"

static bool has_last(const px__cuda_dense *d, const px_operand *o) {
  return d->last && (o->ndim == 4 || o->ndim == 5);
}
// Describes the operand's copy in scratch memory; `strides` holds the copy's strides.
static px_operand copy_of(const px__cuda_dense *d, const px_operand *o, void *at, int dtype,
                          int64_t *strides) {
  px_operand copy = *o;
  bool last = has_last(d, o);
  int64_t n = 1;
  if (last) strides[1] = 1, n = o->sizes[1];
  for (int i = o->ndim - 1; i >= 0; i--)
    if (!last || i != 1) strides[i] = n, n *= o->sizes[i];
  copy.data = at, copy.dtype = dtype, copy.strides = strides, copy.immediate = false;
  return copy;
}

// Returns the operand's own memory if it is dense and of the dtype, else a scratch copy. Immediate
// operands are materialised by the copy kernel.
static void *open_operand(px__cuda_dense *d, const px_operand *o, int dtype, bool read,
                          bool write) {
  if (d->status != PX_OK || !o || !px__operand_present(o)) return NULL;
  bool dense = has_last(d, o) ? px__operand_channels_last(o) : px__operand_row_major(o);
  if (!o->immediate && o->dtype == dtype && dense) return o->data;
  void *at = NULL;
  int64_t n = px_operand_numel(o), strides[PX_MAX_DIMS];
  d->status = px__cuda_scratch(d->launch, (size_t)(n ? n : 1) * px__cuda_dtype_size(dtype), &at);
  if (d->status != PX_OK) return NULL;
  px_operand copy = copy_of(d, o, at, dtype, strides);
  if (read && n) d->status = px__cuda_copy_operand(d->launch, &copy, o);
  if (write && n) {
    d->written[d->count].operand = o, d->written[d->count].at = at;
    d->written[d->count++].dtype = dtype;
  }
  return at;
}
px_status px__cuda_as(const px_launch *l, px_operand *o, int dtype, int64_t *strides) {
  px__cuda_dense d = {.launch = l};
  void *at = px__cuda_dense_in(&d, o, dtype);
  PX_CUDA_PASS(d.status);
  *o = copy_of(&d, o, at, dtype, strides);
  return PX_OK;
}
void *px__cuda_dense_in(px__cuda_dense *d, const px_operand *o, int dtype) {
  return open_operand(d, o, dtype, true, false);
}
void *px__cuda_dense_out(px__cuda_dense *d, const px_operand *o, int dtype) {
  return open_operand(d, o, dtype, false, true);
}
void *px__cuda_dense_inout(px__cuda_dense *d, const px_operand *o, int dtype) {
  return open_operand(d, o, dtype, true, true);
}

static bool is_only_last(const px_operand *o) {
  return px__operand_present(o) && px__operand_channels_last(o) && !px__operand_row_major(o);
}
bool px__cuda_wants_last(const px_operand *out, const px_operand *const *others, int count) {
  bool last = is_only_last(out);
  if (px__operand_row_major(out) && !px__operand_channels_last(out)) return false;
  for (int i = 0; i < count && !last; i++) last = is_only_last(others[i]);
  return last;
}

px_status px__cuda_dense_close(px__cuda_dense *d) {
  for (int i = 0; i < d->count; i++) {
    int64_t strides[PX_MAX_DIMS];
    const px_operand *o = d->written[i].operand;
    px_operand copy = copy_of(d, o, d->written[i].at, d->written[i].dtype, strides);
    PX_CUDA_PASS(px__cuda_copy_operand(d->launch, o, &copy));
  }
  return PX_OK;
}

px_status px__cuda_tiles(const px_launch *l, k_tiles_of *t, int64_t lines, int64_t tiles) {
  enum { NEXT = 512 };
  size_t bytes = NEXT + (size_t)(lines * K_TILE_STATES(tiles)) * sizeof *t->states;
  void *memory;
  PX_CUDA_PASS(px__cuda_scratch(l, bytes, &memory));
  *t = (k_tiles_of){tiles, (k_tile_state *)((char *)memory + NEXT), memory};
  return px__cuda_fill(l->stream, memory, 0, bytes);
}

px_status px__cuda_by_dtype(const px_launch *l, const char *module, const char *name, int dtype,
                            int64_t grid, unsigned block, void *params) {
  char function[64];
  void *list[] = {params};
  if (grid <= 0) return PX_OK;
  if (dtype < PX_FLOAT16 || dtype > PX_FLOAT64) return px__cuda_missing(l, dtype);
  if (grid > INT32_MAX) grid = INT32_MAX;
  snprintf(function, sizeof function, "%s_%s", name, px__cuda_suffix(dtype));
  return px__cuda_launch(l, module, function, (unsigned)grid, block, 0, list);
}
