// SPDX-License-Identifier: Apache-2.0
// The kernel "copy": element-wise between any two dtypes and any strides, including negative ones.
// If the source is dense along another dimension than the target, tiles are transposed in shared
// memory.
#include "cuda/host/ops/kernel.h"
#include "kernel_args/copy.h"

static const char *by_item(const char *const *names, size_t item) {
  return names[item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : 3];
}

// Returns the dimension along which the source is dense, if it forms a plane to transpose with the
// target's innermost dimension, else -1.
static int plane_of(const k_loop *p) {
  if (p->ndim < 2 || p->strides[0][0] != 1 || p->strides[0][1] == 1 || p->strides[0][1] == 0)
    return -1;
  for (int d = 1; d < p->ndim; d++)
    if (p->strides[d][1] == 1 && p->sizes[d] >= 8 && p->sizes[0] >= 8) return d;
  return -1;
}
// True if both sides can be accessed in 16-byte vectors.
static bool is_wide(const k_tiles *t, size_t item) {
  int64_t each = 16 / (int64_t)item;
  bool wide = t->rows % each == 0 && t->columns % each == 0 && t->to_step % each == 0 &&
              t->from_step % each == 0 && (uintptr_t)t->to % 16 == 0 &&
              (uintptr_t)t->from % 16 == 0;
  for (int d = 0; d < t->ndim; d++)
    wide &= t->to_strides[d] % each == 0 && t->from_strides[d] % each == 0;
  return wide;
}
static px_status transpose(const px_launch *l, const k_loop *p, int down, size_t item) {
  static const char *const names[] = {"tiles_1", "tiles_2", "tiles_4", "tiles_8"};
  static const char *const wide_names[] = {"wide_tiles_1", "wide_tiles_2", "wide_tiles_4",
                                           "wide_tiles_8"};
  k_tiles t = {.rows = p->sizes[down],
               .columns = p->sizes[0],
               .to_step = p->strides[down][0],
               .from_step = p->strides[0][1],
               .batch = 1,
               .to = p->data[0],
               .from = p->data[1]};
  for (int d = 1; d < p->ndim; d++) {
    if (d == down) continue;
    t.sizes[t.ndim] = p->sizes[d];
    t.to_strides[t.ndim] = p->strides[d][0], t.from_strides[t.ndim++] = p->strides[d][1];
    t.batch *= p->sizes[d];
  }
  bool wide = is_wide(&t, item);
  int64_t tile = wide ? K_WIDE_TILE(item) : 32;
  t.tiles_down = (t.rows + tile - 1) / tile, t.tiles_across = (t.columns + tile - 1) / tile;
  int64_t grid = t.batch * t.tiles_down * t.tiles_across;
  void *params[] = {&t};
  return px__cuda_launch(l, "copy", by_item(wide ? wide_names : names, item),
                         grid > INT32_MAX ? (unsigned)INT32_MAX : (unsigned)grid, K_BLOCK, 0,
                         params);
}

// A copy forming a whole launch (`alone`) may be batched with others; copies within a kernel may
// not.
static px_status copy_operand(const px_launch *l, const px_operand *to, const px_operand *from,
                              bool alone) {
  static const char *const raw[] = {"raw_1", "raw_2", "raw_4", "raw_8"};
  char convert[32];
  px_operand both[2] = {*to, *from};
  k_loop p;
  if (px_operand_numel(to) == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_fits(to, 2));
  bool same = to->dtype == from->dtype && !from->immediate && to->dtype != PX_BOOL;
  size_t item = px__cuda_dtype_size(to->dtype);
  // Conversions use vectors of four elements, or two for 8-byte elements.
  size_t other = px__cuda_dtype_size(from->dtype), most = item > other ? item : other;
  int each = same ? 16 / (int)item : most == 8 ? 2 : 4;
  px__cuda_walk(&p, both, 2);
  bool stored = to->dtype >= PX_DTYPE_COMPUTED || from->dtype >= PX_DTYPE_COMPUTED;
  bool wide = same && item == 16;
  int down = same && !wide ? plane_of(&p) : -1;
  if (down > 0) return transpose(l, &p, down, item);
  p.where = px__cuda_where(l);
  p.has = p.truth = 0;
  bool batched = false;
  if (!same) snprintf(convert, sizeof convert, "convert_%s", px__cuda_suffix(to->dtype));
  const char *function = same ? by_item(raw, item) : convert;
  if (alone && px__cuda_loops_batch && !wide && (same || (!stored && !from->immediate)))
    PX_CUDA_PASS(px__cuda_loops_add(&batched, l, "copy", function, each, 2, 0, &p));
  if (batched) return PX_OK;
  px__cuda_vectors(&p, 2, wide || (stored && !same) ? 0 : 16 / each);
  if (wide) return px__cuda_over(l, "stored", "raw_16", p.n, (void *)&p);
  if (same) return px__cuda_each(l, "copy", function, each, &p);
  if (from->immediate) px__cuda_read(&p.value[1], from, px__cuda_is_float(from->dtype));
  if (stored) return px__cuda_over(l, "stored", "convert_stored", p.n, (void *)&p);
  return px__cuda_each(l, "copy", function, each, &p);
}
px_status px__cuda_copy_operand(const px_launch *l, const px_operand *to, const px_operand *from) {
  return copy_operand(l, to, from, false);
}

PX_CUDA_KERNEL(copy) { return copy_operand(l, args->to, args->from, true); }
