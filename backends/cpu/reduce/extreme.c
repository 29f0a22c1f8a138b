// SPDX-License-Identifier: Apache-2.0
// max and min with indices. Ties return the first index; NaN is greater than any number for max,
// and smaller for min.
//
// A line is searched by blocks: first for the extreme, then for its index. Interleaved lines are
// compared together. A long line with few results is cut into parts by its length alone. fp16 and
// bf16 compare as float, integers as int64.
#include "cpu/threads/buffer.h"
#include "cpu/reduce/reduced_dims.h"
#include "cpu/convert/dense.h"
#include "cpu/reduce/extreme.h"
#include "cpu/threads/threads.h"
#include "kernel_args/reduce.h"

#include <string.h>

enum {
  BLOCK = 2048,      // elements of a block
  CHUNK = 512,       // columns processed together
  SPAN = 1 << 30,    // rows counted in an int32
  PARALLEL = 16384,  // elements per thread, min
  PARTS = 64,        // max parts of a long line
  MIN_PART = 65536   // min elements of a part
};

typedef struct best {
  bool has_value;
  int64_t index;
  union {
    float of_f32;
    double of_f64;
    int64_t of_i64;
  } value;
} best;
typedef struct kind {
  int dtype;
  void (*join)(best *b, const void *elements, int64_t n, int64_t first, bool is_min);
  void (*merge)(best *b, const best *later, bool is_min);
  void (*columns)(void *extremes, void *rows, const void *elements, int64_t n, int64_t row,
                  bool is_min);
  void (*widen)(int64_t *index, void *rows, int64_t n, int64_t first);
} kind;

#define IS_NAN(x) ((x) != (x))
#define T float
#define I int32_t
#define V vf
#define M vfi
#define MASK(x) vfi_##x
#define OP(x) vf_##x
#define NAME(x) x##_f32
#define DTYPE PX_FLOAT32
#include "cpu/reduce/extreme_rows.h"
#undef T
#undef I
#undef V
#undef M
#undef MASK
#undef OP
#undef NAME
#undef DTYPE
#define T double
#define I int64_t
#define V vd
#define M vdi
#define MASK(x) vdi_##x
#define OP(x) vd_##x
#define NAME(x) x##_f64
#define DTYPE PX_FLOAT64
#include "cpu/reduce/extreme_rows.h"
#undef T
#undef V
#undef OP
#undef NAME
#undef DTYPE
#undef IS_NAN
#define IS_NAN(x) ((x) < (x))
#define T int64_t
#define V vdi
#define OP(x) vdi_##x
#define NAME(x) x##_i64
#define DTYPE PX_INT64
#include "cpu/reduce/extreme_rows.h"

typedef struct walk {
  px__axes x;
  const kind *k;
  const char *in;
  char *out, *out2;
  int in_dtype, out_dtype;
  bool is_min, pair;
  int64_t part;  // of a long line
  best *parts;
} walk;

// ---- lines

// n elements at `at` in the comparison dtype: in place, or converted into `buffer`.
static const void *elements(const walk *w, const char *at, int64_t stride, int64_t n,
                            void *buffer) {
  int64_t item = px__cpu_item[w->k->dtype];
  if (w->in_dtype == w->k->dtype && stride == item) return at;
  px__cpu_convert(buffer, item, w->k->dtype, at, stride, w->in_dtype, n);
  return buffer;
}

// Elements [begin, end) of a line.
static best find_best(const walk *w, const char *base, int64_t begin, int64_t end) {
  PX__BUFFER(int64_t, buffer, BLOCK);
  int64_t inner = w->x.reduced[0].size, stride = w->x.reduced[0].in;
  best b = {0};
  int64_t work = 0;
  while (begin < end && !px__work_stopped(&work, BLOCK)) {
    int64_t outer = begin < inner ? 0 : begin / inner, k = begin - outer * inner;
    int64_t n = inner - k < end - begin ? inner - k : end - begin;
    if (n > BLOCK) n = BLOCK;
    const char *at = base + k * stride;
    if (outer) at += px__axes_offset_of(w->x.reduced, 1, w->x.reduced_count, outer).in;
    w->k->join(&b, elements(w, at, stride, n, buffer), n, begin, w->is_min);
    begin += n;
  }
  return b;
}

static void store_best(const walk *w, px__axes_offset at, const best *b) {
  char *index = w->pair ? w->out2 + at.out2 : w->out + at.out;
  memcpy(index, &b->index, sizeof b->index);
  if (w->pair) px__cpu_convert(w->out + at.out, 8, w->out_dtype, &b->value, 8, w->k->dtype, 1);
}

static void lines(void *context, int64_t begin, int64_t end) {
  const walk *w = context;
  for (int64_t i = begin; i < end; i++) {
    px__axes_offset at = px__axes_offset_of(w->x.kept, 0, w->x.kept_count, i);
    best b = find_best(w, w->in + at.in, 0, w->x.length);
    store_best(w, at, &b);
  }
}

// ---- one long line

static void parts(void *context, int64_t begin, int64_t end) {
  walk *w = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * w->part, to = from + w->part < w->x.length ? from + w->part : w->x.length;
    w->parts[i] = find_best(w, w->in, from, to);
  }
}
static void long_lines(walk *w) {
  PX__BUFFER(best, found, PARTS);
  w->parts = found;
  const char *base = w->in;
  int64_t count = w->x.length / MIN_PART;
  if (count > PARTS) count = PARTS;
  w->part = px__ceil_div(w->x.length, count);
  count = px__ceil_div(w->x.length, w->part);
  for (int64_t r = 0; r < w->x.results; r++) {
    px__axes_offset at = px__axes_offset_of(w->x.kept, 0, w->x.kept_count, r);
    w->in = base + at.in;
    for (int64_t i = 0; i < count; i++) w->parts[i].has_value = false;  // interrupts may skip parts
    px__cpu_parallel(count, 1, parts, w);
    for (int64_t i = 1; i < count; i++) w->k->merge(&w->parts[0], &w->parts[i], w->is_min);
    store_best(w, at, &w->parts[0]);
  }
}

// ---- columns

static void columns_chunk(const walk *w, px__axes_offset at, int64_t n) {
  PX__BUFFER(int64_t, top, CHUNK);
  PX__BUFFER(int64_t, rows, CHUNK);
  PX__BUFFER(int64_t, buffer, CHUNK);
  PX__BUFFER(int64_t, index, CHUNK);
  int64_t row = w->x.reduced[0].in;
  int64_t item = px__cpu_item[w->k->dtype];
  px__axis across = w->x.kept[0];
  int64_t work = 0;
  const char *in = w->in + at.in;
  memcpy(top, elements(w, in, across.in, n, buffer), (size_t)(n * item));
  memset(rows, -1, CHUNK * sizeof *rows);
  memset(index, 0, CHUNK * sizeof *index);
  for (int64_t first = 0; first < w->x.length; first += SPAN) {
    int64_t end = w->x.length - first < SPAN ? w->x.length - first : SPAN;
    for (int64_t i = first ? 0 : 1; i < end && !px__work_stopped(&work, n); i++) {
      const char *here = in + (first + i) * row;
      w->k->columns(top, rows, elements(w, here, across.in, n, buffer), n, i, w->is_min);
    }
    w->k->widen(index, rows, n, first);
  }
  char *index_out = w->pair ? w->out2 + at.out2 : w->out + at.out;
  int64_t step = w->pair ? across.out2 : across.out;
  px__cpu_convert(index_out, step, PX_INT64, index, 8, PX_INT64, n);
  if (w->pair)
    px__cpu_convert(w->out + at.out, across.out, w->out_dtype, top, item, w->k->dtype, n);
}

static void columns(void *context, int64_t begin, int64_t end) {
  const walk *w = context;
  for (int64_t i = begin, n; i < end; i++) {
    px__axes_offset at = px__axes_piece(&w->x, CHUNK, i, &n);
    columns_chunk(w, at, n);
  }
}

// `values` is NULL if only indices are requested.
static px_status extreme(const px_operand *values, const px_operand *indices, const px_operand *in,
                         bool is_min) {
  const px_operand *out = values ? values : indices;
  walk w;  // left uninitialized: lines may be short
  w.is_min = is_min, w.pair = values != NULL, w.in = in->data, w.out = out->data;
  bool whole = !px_dtype_is_float((px_dtype)in->dtype);
  w.k = whole ? &kind_i64 : in->dtype == PX_FLOAT64 ? &kind_f64 : &kind_f32;
  w.out2 = indices->data;
  w.in_dtype = in->dtype, w.out_dtype = out->dtype;
  px__axes_load(&w.x, out, values ? indices : NULL, in, false);
  int64_t length = w.x.length, width = w.x.kept[0].size;
  if (px__axes_reduces_outer(&w.x))
    px__cpu_parallel(px__axes_pieces(&w.x, CHUNK),
                     PARALLEL / (length * (width < CHUNK ? width : CHUNK)) + 1, columns, &w);
  else if (length >= 2 * MIN_PART && w.x.results < 16)
    long_lines(&w);
  else
    px__cpu_parallel(w.x.results, PARALLEL / (length ? length : 1) + 1, lines, &w);
  return PX_OK;
}
PX_KERNEL(argmax) { return extreme(NULL, args->out, args->self, false); }
PX_KERNEL(argmin) { return extreme(NULL, args->out, args->self, true); }
PX_KERNEL(max_dim) { return extreme(args->values, args->indices, args->self, false); }
PX_KERNEL(min_dim) { return extreme(args->values, args->indices, args->self, true); }
