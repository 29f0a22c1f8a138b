// SPDX-License-Identifier: Apache-2.0
// The kernel "pad_edges": a tensor padded by its own elements (reflect, replicate, circular).
//
// The source index of each output index of a padded dimension is given as a list. Threads share the
// rows of the result. Consecutive source elements are copied as runs; only the ends are gathered.
#include "cpu/threads/buffer.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "kernel_args/index.h"

enum {
  GRAIN = 16384,        // elements per thread, min
  MAX_SHORT_ROW = 4096  // max bytes of a row copied by px__cpu_move_rows
};

typedef struct axis {
  int64_t size, to, from;  // output size; strides in bytes
  const int64_t *sources;  // source indices; NULL: identity
} axis;
typedef struct row {
  char *to;
  const char *from;
} row;
// Gathers indices [begin, end) of an axis, for `rows` rows along axis `by`.
typedef void (*gather_fn)(row r, int64_t rows, const axis *by, const axis *a, int64_t begin,
                          int64_t end);
typedef struct padded {
  axis axes[PX_MAX_DIMS + 1];  // innermost last
  int count, dtype;
  int64_t item, low, high;  // [low, high): the run of the innermost axis
  row all;
  gather_fn gather;
} padded;

#define GATHER(name, T) \
  static void name(row r, int64_t rows, const axis *by, const axis *a, int64_t begin, \
                   int64_t end) { \
    const int64_t *sources = a->sources, ts = a->to, fs = a->from, item = sizeof(T); \
    for (; rows > 0; rows--, r.to += by->to, r.from += by->from) \
      if (ts == item && fs == item) \
        for (int64_t i = begin; i < end; i++) \
          ((T *)(void *)r.to)[i] = ((const T *)(const void *)r.from)[sources[i]]; \
      else \
        for (int64_t i = begin; i < end; i++) \
          *(T *)(void *)(r.to + i * ts) = *(const T *)(const void *)(r.from + sources[i] * fs); \
  }
GATHER(pick1, uint8_t)
GATHER(pick2, uint16_t)
GATHER(pick4, uint32_t)
GATHER(pick8, uint64_t)
typedef struct wide {
  uint64_t half[2];
} wide;
GATHER(pick16, wide)
static const gather_fn gather_fns[17] = {
    [1] = pick1, [2] = pick2, [4] = pick4, [8] = pick8, [16] = pick16};

// Finds the longest run of consecutive source indices.
static void find_run(padded *p) {
  const axis *a = &p->axes[p->count - 1];
  p->low = 0, p->high = a->sources ? 0 : a->size;
  for (int64_t begin = 0, end = 1; a->sources && begin < a->size; begin = end++) {
    while (end < a->size && a->sources[end] == a->sources[end - 1] + 1) end++;
    if (end - begin > p->high - p->low) p->low = begin, p->high = end;
  }
}

static bool is_identity(const int64_t *sources, int64_t n) {
  int64_t differs = 0;
  for (int64_t i = 0; i < n; i++) differs |= sources[i] ^ i;
  return differs == 0;
}
// Adds an inner axis, or merges it with the last one.
static void add(padded *p, axis a) {
  axis *last = &p->axes[p->count - 1];
  if (p->count > 1 && !last->sources && !a.sources && last->to == a.size * a.to &&
      last->from == a.size * a.from)
    last->size *= a.size, last->to = a.to, last->from = a.from;
  else
    p->axes[p->count++] = a;
}
static void load_axes(padded *p, const px_operand *to, const px_operand *from,
                      const int64_t *sources, int padded_dims) {
  axis sorted[PX_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < to->ndim; d++) {
    bool is_padded = d >= to->ndim - padded_dims;
    axis a = {to->sizes[d], to->strides[d] * p->item, from->strides[d] * p->item, NULL};
    if (is_padded && !is_identity(sources, a.size)) a.sources = sources;
    if (is_padded) sources += a.size;
    int at = n++;
    for (; at > 0 && sorted[at - 1].to < a.to; at--) sorted[at] = sorted[at - 1];
    sorted[at] = a;
  }
  p->count = 1, p->axes[0] = (axis){1, 0, 0, NULL};  // a row requires an outer axis
  for (int i = 0; i < n; i++)
    if (sorted[i].size != 1 || sorted[i].sources) add(p, sorted[i]);
  if (p->count == 1) add(p, (axis){1, p->item, p->item, NULL});
}

static void copy_runs(const padded *p, row r, int64_t rows) {
  const axis *a = &p->axes[p->count - 1], *by = a - 1;
  int64_t n = p->high - p->low, bytes = n * p->item;
  char *to = r.to + p->low * a->to;
  const char *from = r.from + (a->sources ? a->sources[p->low] : p->low) * a->from;
  if (a->to == p->item && a->from == p->item && bytes <= MAX_SHORT_ROW)
    px__cpu_move_rows(to, by->to, from, by->from, rows, bytes);
  else
    for (; rows > 0; rows--, to += by->to, from += by->from)
      px__cpu_convert(to, a->to, p->dtype, from, a->from, p->dtype, n);
}
// Makes rows that are consecutive in output and source.
static void make_consecutive_rows(const padded *p, row r, int64_t rows) {
  const axis *a = &p->axes[p->count - 1];
  copy_runs(p, r, rows);
  if (p->low > 0) p->gather(r, rows, a - 1, a, 0, p->low);
  if (p->high < a->size) p->gather(r, rows, a - 1, a, p->high, a->size);
}

// The start of row i over the axes [0, count).
static row row_at(const padded *p, int64_t i, int count) {
  row r = p->all;
  for (int d = count - 1; d >= 0; d--) {
    const axis *a = &p->axes[d];
    int64_t at = i % a->size;
    i /= a->size;
    r.to += at * a->to, r.from += (a->sources ? a->sources[at] : at) * a->from;
  }
  return r;
}
// Number of consecutive source indices in [i, end).
static int64_t consecutive_sources(const axis *a, int64_t i, int64_t end) {
  int64_t n = 1;
  if (!a->sources) return end - i;
  while (i + n < end && a->sources[i + n] == a->sources[i] + n) n++;
  return n;
}
static void make_rows(void *context, int64_t begin, int64_t end) {
  const padded *p = context;
  const axis *a = &p->axes[p->count - 2];
  while (begin < end) {
    row r = row_at(p, begin / a->size, p->count - 2);
    int64_t i = begin % a->size, left = a->size - i < end - begin ? a->size - i : end - begin;
    int64_t n = consecutive_sources(a, i, i + left);
    r.to += i * a->to, r.from += (a->sources ? a->sources[i] : i) * a->from;
    make_consecutive_rows(p, r, n);
    begin += n;
  }
}

PX_KERNEL(pad_edges) {
  const px_operand *to = args->out, *from = args->self;
  PX__BUFFER(padded, p, 1);
  int64_t rows = 1;
  if (px_operand_numel(to) == 0) return PX_OK;
  p->dtype = to->dtype, p->item = px__cpu_item[to->dtype], p->all = (row){to->data, from->data};
  load_axes(p, to, from, args->places->data, (int)args->dims);
  p->gather = gather_fns[p->item];
  find_run(p);
  for (int d = 0; d < p->count - 1; d++) rows *= p->axes[d].size;
  px__cpu_parallel(rows, GRAIN / p->axes[p->count - 1].size + 1, make_rows, p);
  return PX_OK;
}
