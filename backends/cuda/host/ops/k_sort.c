// SPDX-License-Identifier: Apache-2.0
// Host functions of sort.cu, which sorts contiguous lines. The operands' dimension is moved to the
// end, and they are copied if not dense then.
#include "cuda/host/ops/sort.h"
#include "kernel_args/sort.h"

void px__cuda_sort_as(k_sort *s, int dtype, bool down) {
  int item = (int)px__cuda_dtype_size(dtype), bits = item * 8;
  uint64_t all = UINT64_MAX >> (64 - bits), top = UINT64_C(1) << (bits - 1);
  int fraction = dtype == PX_FLOAT16    ? 10
                 : dtype == PX_BFLOAT16 ? 7
                 : dtype == PX_FLOAT32  ? 23
                                        : 52;
  bool real = px__cuda_is_float(dtype), plain = strchr("bu", px__dtypes[dtype].kind) != NULL;
  uint64_t flip = down ? all : 0;
  s->item = item, s->passes = item, s->top = top;
  s->negative = (real ? all : plain ? 0 : top) ^ flip, s->positive = (plain ? 0 : top) ^ flip;
  s->max_magnitude = real ? (all ^ top) >> fraction << fraction : all;  // larger magnitudes are NaN
  s->nan = all ^ flip;
  s->zero = s->positive, s->minus_zero = real ? top ^ s->negative : s->zero;
}

static px_status run(const px_launch *l, const char *name, int key, int index_bytes, int64_t grid,
                     unsigned block, unsigned shared, k_sort *s) {
  char function[24];
  void *params[] = {s};
  snprintf(function, sizeof function, index_bytes ? "%s_%d%d" : "%s_%d", name, key, index_bytes);
  return px__cuda_launch(l, "sort", function, (unsigned)grid, block, shared, params);
}
static int key_of(const k_sort *s) { return s->item == 8 ? 8 : 4; }

// ---- sorts

static px_status sort_short(const px_launch *l, k_sort *s) {
  enum { EACH = K_SORT_SHORT / 32 };
  for (s->width = 1; s->width * EACH < s->size;) s->width *= 2;
  int64_t each = K_BLOCK / s->width;
  px__cuda_divisor(&s->by_take, s->take);
  return run(l, "sort_short", key_of(s), 0, (s->lines + each - 1) / each, K_BLOCK, 0, s);
}
static px_status sort_block(const px_launch *l, k_sort *s) {
  int64_t warp = 32 * K_SORT_EACH(key_of(s)), warps = (s->size + warp - 1) / warp;
  unsigned shared = (unsigned)(warps * warp * key_of(s));
  return run(l, "sort_block", key_of(s), 0, s->lines, (unsigned)warps * 32, shared, s);
}

static px_status count_digits(const px_launch *l, k_sort *s, int index_bytes) {
  enum { LEAST = 32768, BLOCKS = 4096 };
  int64_t max_tiles = (s->size + LEAST - 1) / LEAST, tiles = BLOCKS / s->lines;
  size_t bytes = (size_t)(s->lines * s->passes * 256 * index_bytes);
  s->tiles = tiles > max_tiles ? max_tiles : tiles < 1 ? 1 : tiles;
  s->width = (s->size + s->tiles - 1) / s->tiles;
  if (s->width >> 31) s->width = INT64_C(1) << 30;  // counts within a piece have 32 bits
  s->tiles = (s->size + s->width - 1) / s->width;
  void *uniform;
  PX_CUDA_PASS(px__cuda_scratch(l, bytes, &s->starts));
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)s->lines * 8, &uniform));
  PX_CUDA_PASS(px__cuda_fill(l->stream, s->starts, 0, bytes));
  s->uniform = uniform;
  PX_CUDA_PASS(run(l, "sort_counts", key_of(s), index_bytes, s->lines * s->tiles, K_BLOCK, 0, s));
  return run(l, "sort_starts", index_bytes, 0, s->lines * s->passes, 256, 0, s);
}
// Radix sort. Keys and indices alternate between two buffers; the first pass reads the elements,
// the last one writes them. Passes over a line's constant digits are skipped.
static px_status sort_long(const px_launch *l, k_sort *s) {
  enum { NEXT = 512 };
  int key = key_of(s), index_bytes = s->size < INT64_C(1) << 30 ? 4 : 8;
  int64_t n = s->lines * s->size;
  PX_CUDA_PASS(count_digits(l, s, index_bytes));
  int64_t tile = K_SORT_WARPS * 32 * K_SORT_EACH(key > index_bytes ? key : index_bytes);
  s->tiles = (s->size + tile - 1) / tile;
  size_t bytes = NEXT + (size_t)(s->lines * s->tiles * 256 * index_bytes);
  void *states;
  PX_CUDA_PASS(px__cuda_scratch(l, bytes, &states));
  for (int i = 0; i < 2 && i + 1 < s->passes; i++) {
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(n * key), &s->keys[i]));
    if (s->indices) PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(n * index_bytes), &s->positions[i]));
  }
  s->next = states, s->states = (char *)states + NEXT;
  for (s->pass = 0; s->pass < s->passes; s->pass++) {
    PX_CUDA_PASS(px__cuda_fill(l->stream, states, 0, bytes));
    PX_CUDA_PASS(
        run(l, "sort_pass", key, index_bytes, s->lines * s->tiles, K_SORT_WARPS * 32, 0, s));
  }
  return PX_OK;
}

px_status px__cuda_sort_lines(const px_launch *l, k_sort *s) {
  if (s->size <= K_SORT_SHORT) return sort_short(l, s);
  if (s->size <= K_SORT_WARPS * 32 * K_SORT_EACH(key_of(s))) return sort_block(l, s);
  return sort_long(l, s);
}

// ---- selection

// Reduces lines to candidates for their first `first` elements, while that shrinks them
// considerably.
static px_status select_candidates(const px_launch *l, k_sort *s, int64_t first) {
  enum { BLOCKS = 2048, LEAST = 8192 };
  k_sort own = *s;
  for (own.tiles = 2; own.tiles > 1 && own.size > K_SORT_SHORT && own.size / 4 >= first;) {
    int64_t least = first * 16 > LEAST ? first * 16 : LEAST, max_tiles = own.size / least;
    void *indices;
    own.tiles = BLOCKS / own.lines;
    own.tiles = own.tiles > max_tiles ? max_tiles : own.tiles;
    if (own.tiles < 1) own.tiles = 1;
    own.width = (own.size + own.tiles - 1) / own.tiles;
    if (own.width >> 31) own.width = INT64_C(1) << 30;  // indices within a piece have 32 bits
    own.tiles = (own.size + own.width - 1) / own.width;
    int64_t last = own.size - (own.tiles - 1) * own.width;
    int64_t size = (own.tiles - 1) * first + (last < first ? last : first);
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(own.lines * size * own.item), &own.out));
    PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(own.lines * size) * sizeof(int64_t), &indices));
    own.indices = indices, own.take = first;
    unsigned shared = (unsigned)((first + K_SELECT_STEP) * (key_of(s) + 4));
    PX_CUDA_PASS(run(l, "select", key_of(s), 0, own.lines * own.tiles, K_BLOCK, shared, &own));
    own.in = own.out, own.from = own.indices, own.size = size;
  }
  s->in = own.in, s->from = own.from, s->size = own.size;
  return PX_OK;
}

// An operand with a dimension moved to the end.
typedef struct moved {
  px_operand operand;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];
} moved;
// `ndim` is the input's; a result may lack the moved dimension.
static const px_operand *move_to_end(moved *t, const px_operand *o, int ndim, int64_t dim) {
  t->operand = *o;
  if (o->ndim < ndim || ndim == 0) return &t->operand;
  for (int64_t d = 0; d < ndim; d++) {
    int64_t from = d == ndim - 1 ? dim : d < dim ? d : d + 1;
    t->sizes[d] = o->sizes[from], t->strides[d] = o->strides[from];
  }
  t->operand.sizes = t->sizes, t->operand.strides = t->strides;
  return &t->operand;
}
// Writes `take` elements of each sorted line from `skip` on; all if `take` is negative.
static px_status sort_or_select(const px_launch *l, const px_operand *values,
                                const px_operand *indices, const px_operand *in, int64_t dim,
                                bool down, int64_t take, int64_t skip) {
  moved of_values, of_indices, of_in;
  int ndim = in->ndim;
  if (dim < 0) dim += ndim;
  px__cuda_dense d = {.launch = l};
  const px_operand *x = move_to_end(&of_in, in, ndim, dim);
  k_sort s = {
      .in = px__cuda_dense_in(&d, x, x->dtype),
      .out = px__cuda_dense_out(&d, move_to_end(&of_values, values, ndim, dim), x->dtype),
      .indices = px__cuda_dense_out(&d, move_to_end(&of_indices, indices, ndim, dim), PX_INT64),
      .skip = skip};
  PX_CUDA_PASS(d.status);
  if (px_operand_numel(x) == 0 || px_operand_numel(values) == 0) return PX_OK;
  s.size = ndim ? x->sizes[ndim - 1] : 1, s.lines = px_operand_numel(x) / s.size;
  s.take = take < 0 ? s.size : take;
  px__cuda_sort_as(&s, x->dtype, down);
  if (s.take + skip <= K_SELECT) PX_CUDA_PASS(select_candidates(l, &s, s.take + skip));
  PX_CUDA_PASS(px__cuda_sort_lines(l, &s));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(sort) {
  return sort_or_select(l, args->values, args->indices, args->self, args->dim, args->descending, -1,
                        0);
}
PX_CUDA_KERNEL(topk) {
  return sort_or_select(l, args->values, args->indices, args->self, args->dim, args->largest,
                        args->k, 0);
}
PX_CUDA_KERNEL(kthvalue) {
  return sort_or_select(l, args->values, args->indices, args->self, args->dim, false, 1,
                        args->k - 1);
}
