// SPDX-License-Identifier: Apache-2.0
// Kept and reduced dimensions of a reduction, for folds and hand-written reductions.
#pragma once
#include "cpu/convert/convert.h"
#include "cpu/threads/ceil_div.h"

typedef struct px__axis {
  int64_t size, in, out, out2;  // strides in bytes; out2: second result
} px__axis;
typedef struct px__axes {
  px__axis kept[PX_MAX_DIMS + 2];  // innermost first; never empty; `reduced` is in the same array
  px__axis *reduced;               // innermost first; never empty
  int kept_count, reduced_count;
  int64_t results, length;  // elements of a result, and inputs per result
} px__axes;

// A product of sizes. May wrap around if another size is 0.
static inline int64_t px__axes_product(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}
static inline int64_t px__abs_stride(int64_t x) { return x < 0 ? -x : x; }

// Inserts an axis: sorted by stride, or outermost.
static inline void px__axes_add(px__axis *list, int *count, px__axis a, bool sorted) {
  int at = (*count)++;
  for (; sorted && at > 0 && px__abs_stride(list[at - 1].in) > px__abs_stride(a.in); at--)
    list[at] = list[at - 1];
  list[at] = a;
}
// Merges adjacent axes with matching strides. The list then holds at least one axis.
static inline void px__axes_join(px__axis *list, int *count) {
  int n = 0;
  for (int i = 0; i < *count; i++) {
    px__axis *last = n ? &list[n - 1] : NULL, a = list[i];
    if (last && a.in == last->in * last->size && a.out == last->out * last->size &&
        a.out2 == last->out2 * last->size)
      last->size = px__axes_product(last->size, a.size);
    else
      list[n++] = a;
  }
  if (n == 0) list[n++] = (px__axis){1, 0, 0, 0};
  *count = n;
}

// Builds the axes for one or two results (`second` may be NULL) and an input. Unless `sorted`, the
// order of elements is the input's row-major order. An empty input may have arbitrary strides; they
// are ignored.
static inline void px__axes_load(px__axes *x, const px_operand *out, const px_operand *second,
                                 const px_operand *in, bool sorted) {
  x->kept_count = x->reduced_count = 0;
  x->reduced = x->kept + 1;
  for (int d = 0; d < in->ndim; d++) x->reduced += out->sizes[d] != 1 || in->sizes[d] == 1;
  x->results = x->length = 1;
  int64_t step = px_operand_numel(in) ? px__cpu_item[in->dtype] : 0;
  for (int d = in->ndim - 1; d >= 0; d--) {
    px__axis a = {in->sizes[d], in->strides[d] * step, out->strides[d] * px__cpu_item[out->dtype],
                  second ? second->strides[d] * px__cpu_item[second->dtype] : 0};
    bool reduced = out->sizes[d] == 1 && in->sizes[d] != 1;
    int64_t *count = reduced ? &x->length : &x->results;
    *count = px__axes_product(*count, a.size);
    if (a.size == 1) continue;
    if (reduced) a.out = a.out2 = 0;
    px__axes_add(reduced ? x->reduced : x->kept, reduced ? &x->reduced_count : &x->kept_count, a,
                 sorted);
  }
  px__axes_join(x->kept, &x->kept_count);
  px__axes_join(x->reduced, &x->reduced_count);
}

// True if there is one reduced axis and neighbouring results are closer in memory than the inputs
// of one result: the reduction runs over an outer dimension.
static inline bool px__axes_reduces_outer(const px__axes *x) {
  return x->length > 1 && x->kept[0].size >= 8 && x->reduced_count == 1 &&
         px__abs_stride(x->kept[0].in) < px__abs_stride(x->reduced[0].in);
}

typedef struct px__axes_offset {
  int64_t in, out, out2;
} px__axes_offset;
// Byte offsets of element i over the axes [first, count).
static inline px__axes_offset px__axes_offset_of(const px__axis *list, int first, int count,
                                                 int64_t i) {
  px__axes_offset at = {0, 0, 0};
  for (int d = first; d < count; d++) {
    int64_t k = i;
    if (d + 1 < count) k = i % list[d].size, i /= list[d].size;
    at.in += k * list[d].in;
    at.out += k * list[d].out;
    at.out2 += k * list[d].out2;
  }
  return at;
}

// Number of pieces of at most `max_size` results along the innermost kept axis.
static inline int64_t px__axes_pieces(const px__axes *x, int64_t max_size) {
  int64_t width = x->kept[0].size;
  return width ? x->results / width * px__ceil_div(width, max_size) : 0;
}
// Offsets of piece i; *n receives its number of results.
static inline px__axes_offset px__axes_piece(const px__axes *x, int64_t max_size, int64_t i,
                                             int64_t *n) {
  int64_t pieces = px__ceil_div(x->kept[0].size, max_size), j = i % pieces * max_size;
  px__axes_offset at = px__axes_offset_of(x->kept, 1, x->kept_count, i / pieces);
  *n = x->kept[0].size - j < max_size ? x->kept[0].size - j : max_size;
  at.in += j * x->kept[0].in, at.out += j * x->kept[0].out, at.out2 += j * x->kept[0].out2;
  return at;
}
