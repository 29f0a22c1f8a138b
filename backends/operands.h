// SPDX-License-Identifier: Apache-2.0
// Helpers of all backends for the operands and number lists of a launch, and for chains.
#pragma once
#include <math.h>

#include "phlox/backend.h"

// The rows of the dtype table.
static const px_dtype_info px__dtypes[PX_DTYPE_COUNT] = {
#define XX(name_, suffix_, cell, number, alias_, ...) {.suffix = #suffix_, __VA_ARGS__},
    PX_DTYPE_MAP(XX)
#undef XX
};

static inline bool px__operand_row_major(const px_operand *o) {
  int64_t step = 1;
  for (int i = o->ndim - 1; i >= 0; i--) {
    if (o->sizes[i] == 0) return true;
    if (o->sizes[i] != 1 && o->strides[i] != step) return false;
    step *= o->sizes[i];
  }
  return true;
}
// An operand whose dimensions are sorted by stride, largest first; itself if it is row-major.
typedef struct px__ordered {
  px_operand o;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
} px__ordered;
static inline const px_operand *px__by_stride(px__ordered *t, const px_operand *o) {
  if (px__operand_row_major(o)) return o;
  t->o = *o, t->o.sizes = t->sizes, t->o.strides = t->strides;
  for (int i = 0; i < o->ndim; i++) {
    int at = i;
    for (; at > 0 && t->strides[at - 1] < o->strides[i]; at--)
      t->sizes[at] = t->sizes[at - 1], t->strides[at] = t->strides[at - 1];
    t->sizes[at] = o->sizes[i], t->strides[at] = o->strides[i];
  }
  return &t->o;
}
// True if a 4-D or 5-D operand is channels_last and has no gaps.
static inline bool px__operand_channels_last(const px_operand *o) {
  int64_t step = 1;
  if (o->ndim != 4 && o->ndim != 5) return false;
  for (int k = 0; k < o->ndim; k++) {
    int i = k == 0 ? 1 : k == o->ndim - 1 ? 0 : o->ndim - k;
    if (o->sizes[i] == 0) return true;
    if (o->sizes[i] != 1 && o->strides[i] != step) return false;
    step *= o->sizes[i];
  }
  return true;
}
static inline bool px__operand_present(const px_operand *o) { return o->dtype != PX_DTYPE_NONE; }
// The compute dtype: double for float64, float otherwise.
static inline int px__compute_of(int dtype) {
  return dtype == PX_FLOAT64 ? PX_FLOAT64 : PX_FLOAT32;
}
// Splits the sizes around a dimension (negative: counted from the end): outer, size, inner.
static inline void px__split_sizes(const px_operand *o, int64_t dim, int64_t *outer, int64_t *size,
                                   int64_t *inner) {
  if (dim < 0) dim += o->ndim;
  *outer = *size = *inner = 1;
  for (int i = 0; i < o->ndim; i++) *(i < dim ? outer : i == dim ? size : inner) *= o->sizes[i];
}

// The size of a dimension (negative: counted from the end). A 0-dim operand has size 1.
static inline int64_t px__operand_size(const px_operand *o, int64_t dim) {
  return o->ndim ? o->sizes[dim < 0 ? dim + o->ndim : dim] : 1;
}

// An optional number, or its default.
static inline double px__number_or(const px_value *v, double otherwise) {
  return v->kind == PX_ARG_NONE ? otherwise : px_value_float(*v);
}
// Order of a norm. All norms of one element are its absolute value, without the overflow of powers,
// except for that of order 0.
static inline double px__norm_order(const px_value *p, const px_operand *out,
                                    const px_operand *self) {
  double order = px__number_or(p, 2);
  bool single = px_operand_numel(out) == px_operand_numel(self);
  return single && order != 0 ? (double)INFINITY : order;
}
// The k-th number of a list; a list of one number applies to every k.
static inline int64_t px__list_at(const px_value *v, int k) {
  if (v->kind != PX_ARG_INTS) return px_value_int(*v);
  return v->v.ints[v->n == 1 ? 0 : k];
}
// The same with a default for an absent or empty list.
static inline int64_t px__list_or(const px_value *v, int k, int64_t otherwise) {
  bool none = v->kind == PX_ARG_NONE || (v->kind == PX_ARG_INTS && v->n == 0);
  return none ? otherwise : px__list_at(v, k);
}
// The number of values random_ draws from without bounds, by dtype.
static inline uint64_t px__random_values(int dtype) {
  const px_dtype_info *d = &px__dtypes[dtype];
  if (d->kind == 'f') return (uint64_t)(2 / d->eps) + 1;
  return d->min < 0 ? (uint64_t)-d->min : (uint64_t)d->max + 1;
}
// The range of random_: [0, from) if `to` is absent. Returns false if no bound was given.
static inline bool px__random_range(const px_value *from, const px_value *to, int64_t *low,
                                    uint64_t *range) {
  const px_value *end = to->kind == PX_ARG_NONE ? from : to;
  *low = end == to ? px_value_int(*from) : 0;
  *range = (uint64_t)px_value_int(*end) - (uint64_t)*low;
  return end->kind != PX_ARG_NONE;
}
static inline int64_t px__list_product(const px_value *v) {
  int64_t n = 1;
  for (int i = 0; i < v->n; i++) n *= v->v.ints[i];
  return n;
}

// The factor of an n-element Fourier transform, by normalization: 0: 1; 1: 1 / sqrt(n); 2: 1 / n.
static inline double px__fft_scale(int normalization, double n) {
  return normalization == 0 ? 1 : normalization == 1 ? 1 / __builtin_sqrt(n) : 1 / n;
}

// ---- buffers of a chain's results (px_chain_step) that are not stored

// True if the buffer of step `owner` can take the result of step k: nothing reads it after k. Step
// k may read it itself, since kernels work in place, but not with elements of another size.
static inline bool px__chain_slot_is_free(const px_chain_step *steps, int owner, int last_use,
                                          int k) {
  bool same = px__dtypes[steps[owner].dtype].size == px__dtypes[steps[k].dtype].size;
  return last_use < k || (last_use == k && same);
}

// Gives each result without memory a buffer that no later reader of another result needs: its
// number in slots[], or -1. Returns the number of buffers.
static inline int px__chain_slots(const px_chain_step *steps, int count, int *slots) {
  int last_use[PX_CHAIN_STEPS], owner[PX_CHAIN_STEPS], used = 0;
  for (int k = 0; k < count; k++) last_use[k] = k;
  for (int k = 0; k < count; k++)
    for (int i = 1; i < steps[k].operand_count; i++)
      if (steps[k].sources[i] < 0) last_use[~steps[k].sources[i]] = k;
  last_use[count - 1] = count;
  for (int k = 0; k < count; k++) {
    slots[k] = -1;
    if (steps[k].stores >= 0) continue;
    int slot = 0;
    while (slot < used && !px__chain_slot_is_free(steps, owner[slot], last_use[owner[slot]], k))
      slot++;
    used += slot == used;
    owner[slot] = k, slots[k] = slot;
  }
  return used;
}
