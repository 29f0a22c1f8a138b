// SPDX-License-Identifier: Apache-2.0
// Blocks of every kind: making and freeing them.
#include "device/state.h"

static px_status block_new(px_block **out, size_t bytes, px_device device) {
  if (device.type == PX_CPU) return px__host_new(out, bytes);
  if (device.type == PX_META) return px__meta_new(out, bytes);
  px__device *d;
  if (px__rt.forked) return px__error_cuda(3);
  PX_TRY(px__device_get(&d, device.index));
  return px__cache_new(out, bytes, d);
}

px_status px__block_new(px_block **out, size_t bytes, px_device device) {
  px_status status = block_new(out, bytes, device);
  if (px__profile_on() && status == PX_OK && device.type != PX_META)
    px__profile_memory(device, (int64_t)(*out)->bytes);
  return status;
}

// What a profile counts: not other libraries' memory, pinned pages, nor outlines.
static void note_free(const px_block *block, uint8_t kind) {
  if (kind == PX__HOST || kind == PX__CACHED || kind == PX__RAW)
    px__profile_memory(block->device, -(int64_t)block->bytes);
}

static void (*const frees[])(px_block *) = {
    [PX__HOST] = px__host_free, [PX__PINNED] = px__pinned_free,   [PX__CACHED] = px__cache_free,
    [PX__RAW] = px__cache_free, [PX__WRAPPED] = px__wrapped_free, [PX__META] = px__meta_free};

void px__block_free(px_block *block) {
  if (!block) return;
  px__block *b = px__block_of(block);
  if (px__profile_on()) note_free(block, b->kind);
  if (PX_UNLIKELY(b->shadow != NULL)) px__race_forget(b);
  if (PX_LIKELY(b->kind == PX__HOST))
    px__host_free(block);
  else
    frees[b->kind](block);
}

void px__block_hand_out(px_block *block) { block->foreign = true; }
