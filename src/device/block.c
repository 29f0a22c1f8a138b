// SPDX-License-Identifier: Apache-2.0
// Blocks of every kind: making and freeing them.
#include "device/state.h"

px_status px__block_new(px_block **out, size_t bytes, px_device device) {
  if (device.type == PX_CPU) return px__host_new(out, bytes);
  if (device.type == PX_META) return px__meta_new(out, bytes);
  px__device *d;
  if (px__rt.forked) return px__error_cuda(3);
  PX_TRY(px__device_get(&d, device.index));
  return px__cache_new(out, bytes, d);
}

static void (*const frees[])(px_block *) = {
    [PX__HOST] = px__host_free, [PX__PINNED] = px__pinned_free,   [PX__CACHED] = px__cache_free,
    [PX__RAW] = px__cache_free, [PX__WRAPPED] = px__wrapped_free, [PX__META] = px__meta_free};

void px__block_free(px_block *block) {
  if (!block) return;
  px__block *b = px__block_of(block);
  if (PX_UNLIKELY(b->shadow != NULL)) px__race_forget(b);
  if (PX_LIKELY(b->kind == PX__HOST))
    px__host_free(block);
  else
    frees[b->kind](block);
}

void px__block_hand_out(px_block *block) { block->foreign = true; }
