// SPDX-License-Identifier: Apache-2.0
// Sizes of a convolution as a product, and its plan (conv_product_plan.c).
#pragma once
#include "cpu/conv/conv.h"
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/gemm_tiles.h"

// Images of the batch; those of a volume are result planes.
static inline int64_t px__product_images(const conv *t) { return t->n * t->z.grid; }
// Elements of an image of the source.
static inline int64_t px__product_image(const conv *t) {
  return t->channels * t->groups * t->z.source * t->y.source * t->x.source;
}
// The slot of depth tap k among a channel's planes.
static inline int64_t px__product_slot(const conv *t, int64_t rotation, int64_t k) {
  if (!t->rotates) return k;
  return (rotation + (t->z.move > 0 ? k : t->z.count - k)) % t->z.count;
}
// Elements of a group's packed factors.
static inline int64_t px__product_packed(const conv *t) {
  return px__ceil_div(t->results, PX__GEMM_PACK) * PX__GEMM_PACK * t->terms;
}
// Lanes of a packed panel.
static inline int64_t px__product_panel(const conv *t) {
  return (t->dtype == PX_FLOAT64 ? px__tiles_f64() : px__tiles_f32())->columns;
}

// Derives the plan, without packed factors, from the axes and channels. `like`: an earlier phase of
// the convolution, or NULL. Returns false if out of memory. px__product_plan_end releases its
// memory.
bool px__product_plan(conv *t, const conv *like);
void px__product_plan_end(conv *t);
bool px__product_tiled(const conv *t);
bool px__product_pixel_rows(const conv *t);
