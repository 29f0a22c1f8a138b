// SPDX-License-Identifier: Apache-2.0
// The kernels "index_get" and "index_put": elements picked by index tensors (src/ops/index_impl.h).
//
// Operands: (out, self, indices...) and (self, values, indices...); all have the sizes of the loop.
// Parameters: sizes and strides of the indexed dimensions, their numbers, whether negative indices
// count from the end, the fault to report, whether to add. Indices are checked before anything is
// written, so that a bad one changes nothing.
#include "cpu/convert.h"
#include "cpu/half.h"
#include "cpu_kernels.h"

#include <string.h>

typedef struct pick {
  int ndim, count;                      // dimensions of the loop without the block; index tensors
  int64_t block;                        // elements that lie together on both sides
  const int64_t *sizes, *mine, *other;  // strides of the indexed tensor, and of the other
  const int64_t *index_strides[PX_MAX_OPERANDS], *index[PX_MAX_OPERANDS];
  const int64_t *dim_sizes, *dim_strides;
  char *self, *values;
  size_t item;
} pick;

static bool is_block_dim(const pick *p, int d) {
  for (int i = 0; i < p->count; i++)
    if (p->index_strides[i][d] != 0) return false;
  return p->sizes[d] == 1 || (p->mine[d] == p->block && p->other[d] == p->block);
}

static void setup(pick *p, const px_launch *l, bool put) {
  const px_operand *self = &l->operands[put ? 0 : 1], *other = &l->operands[put ? 1 : 0];
  p->self = self->data, p->values = other->data;
  p->mine = self->strides, p->other = other->strides;
  p->sizes = self->sizes, p->ndim = self->ndim;
  p->item = px__cpu_item[self->dtype];
  p->count = l->operand_count - 2;
  p->dim_sizes = l->params[0].v.ints, p->dim_strides = l->params[1].v.ints;
  for (int i = 0; i < p->count; i++) {
    p->index[i] = l->operands[2 + i].data;
    p->index_strides[i] = l->operands[2 + i].strides;
  }
  for (p->block = 1; p->ndim > 0 && is_block_dim(p, p->ndim - 1); p->ndim--)
    p->block *= p->sizes[p->ndim - 1];
}

// Looks at each element of index tensor i once.
static bool check_one(const pick *p, const px_launch *l, int i) {
  const int64_t *strides = p->index_strides[i], n = p->dim_sizes[i];
  const int64_t least = l->params[3].v.i ? -n : 0;
  int64_t at[PX_MAX_DIMS] = {0};
  const int64_t *index = p->index[i];
  for (;;) {
    if (*index < least || *index >= n) {
      bool range = l->params[4].v.i == PX_FAULT_RANGE;
      px_kernel_fault(l, (px_fault_code)l->params[4].v.i, *index,
                      range ? n : l->params[2].v.ints[i], range ? 0 : n);
      return false;
    }
    int d = p->ndim - 1;
    for (; d >= 0; d--) {
      if (strides[d] == 0) continue;
      index += strides[d];
      if (++at[d] < p->sizes[d]) break;
      index -= strides[d] * p->sizes[d];
      at[d] = 0;
    }
    if (d < 0) return true;
  }
}

static bool check(const pick *p, const px_launch *l) {
  for (int i = 0; i < p->count; i++)
    if (!check_one(p, l, i)) return false;
  return true;
}

// ---- one block

typedef void (*block_fn)(void *to, const void *from, int64_t n);
#define PUT_BLOCK(name, type) \
  static void name(void *to, const void *from, int64_t n) { \
    memcpy(to, from, (size_t)n * sizeof(type)); \
  }
PUT_BLOCK(put1, uint8_t)
PUT_BLOCK(put2, uint16_t)
PUT_BLOCK(put4, uint32_t)
PUT_BLOCK(put8, uint64_t)
#define ADD_BLOCK(name, type) \
  static void name(void *to, const void *from, int64_t n) { \
    type *t = to; \
    const type *f = from; \
    for (int64_t i = 0; i < n; i++) t[i] = (type)(t[i] + f[i]); \
  }
ADD_BLOCK(add_u8, uint8_t)
ADD_BLOCK(add_u16, uint16_t)
ADD_BLOCK(add_u32, uint32_t)
ADD_BLOCK(add_u64, uint64_t)
ADD_BLOCK(add_f32, float)
ADD_BLOCK(add_f64, double)
static void add_bool(void *to, const void *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((uint8_t *)to)[i] |= ((const uint8_t *)from)[i];
}

// The half formats add in float.
static void add_half(void *to, const void *from, int64_t n) {
  uint16_t *t = to;
  const uint16_t *f = from;
  for (int64_t i = 0; i < n; i++) t[i] = px__half_store(px__half_load(t[i]) + px__half_load(f[i]));
}
static void add_bfloat(void *to, const void *from, int64_t n) {
  uint16_t *t = to;
  const uint16_t *f = from;
  for (int64_t i = 0; i < n; i++)
    t[i] = px__bfloat_store(px__bfloat_load(t[i]) + px__bfloat_load(f[i]));
}

static block_fn put_block(size_t item) {
  return item == 1 ? put1 : item == 2 ? put2 : item == 4 ? put4 : put8;
}
static const block_fn add_blocks[PX_DTYPE_COUNT] = {
    [PX_BOOL] = add_bool,    [PX_UINT8] = add_u8,        [PX_INT8] = add_u8,
    [PX_INT16] = add_u16,    [PX_INT32] = add_u32,       [PX_INT64] = add_u64,
    [PX_FLOAT16] = add_half, [PX_BFLOAT16] = add_bfloat, [PX_FLOAT32] = add_f32,
    [PX_FLOAT64] = add_f64};

// ---- the loop

static int64_t picked(const pick *p, const int64_t *const *index) {
  int64_t offset = 0;
  for (int i = 0; i < p->count; i++) {
    int64_t k = *index[i];
    offset += (k < 0 ? k + p->dim_sizes[i] : k) * p->dim_strides[i];
  }
  return offset;
}

static void walk(const pick *p, block_fn block, bool put) {
  const int64_t *index[PX_MAX_OPERANDS];
  int64_t at[PX_MAX_DIMS] = {0}, mine = 0, other = 0;
  for (int i = 0; i < p->count; i++) index[i] = p->index[i];
  for (;;) {
    char *self = p->self + (mine + picked(p, index)) * (int64_t)p->item;
    char *value = p->values + other * (int64_t)p->item;
    block(put ? self : value, put ? value : self, p->block);
    int d = p->ndim - 1;
    for (; d >= 0; d--) {
      mine += p->mine[d], other += p->other[d];
      for (int i = 0; i < p->count; i++) index[i] += p->index_strides[i][d];
      if (++at[d] < p->sizes[d]) break;
      mine -= p->mine[d] * p->sizes[d], other -= p->other[d] * p->sizes[d];
      for (int i = 0; i < p->count; i++) index[i] -= p->index_strides[i][d] * p->sizes[d];
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

px_status px__cpu_index_get(const px_launch *l) {
  pick p;
  setup(&p, l, false);
  if (check(&p, l)) walk(&p, put_block(p.item), false);
  return PX_OK;
}

px_status px__cpu_index_put(const px_launch *l) {
  pick p;
  setup(&p, l, true);
  if (!check(&p, l)) return PX_OK;
  bool add = l->params[5].v.i != 0;
  walk(&p, add ? add_blocks[l->operands[0].dtype] : put_block(p.item), true);
  return PX_OK;
}
