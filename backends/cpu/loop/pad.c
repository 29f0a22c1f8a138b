// SPDX-License-Identifier: Apache-2.0
// The kernel "pad_edges": a tensor surrounded by what is at its edges.
//
// Which place of a padded dimension each place of the result is comes as a list. Rows of the
// result are made one by one, by all threads: what follows one another in the input is copied as
// it is, and only what is at both ends is picked.
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "kernel_args/index.h"

enum { PIECE = 16384, SHORT = 4096 };

typedef struct axis {
  int64_t size, to, from;  // of the result, and strides in bytes
  const int64_t *places;   // NULL: each is its own
} axis;
typedef struct row {
  char *to;
  const char *from;
} row;
// Places [begin, end) of an axis, in each of so many rows that follow one another along another.
typedef void (*pick_fn)(row r, int64_t rows, const axis *by, const axis *a, int64_t begin,
                        int64_t end);
typedef struct padded {
  axis axes[PX_MAX_DIMS + 1];  // the innermost one last
  int count, dtype;
  int64_t item, low, high;  // where the run of the innermost axis is
  row all;
  pick_fn pick;
} padded;

#define PICK(name, T) \
  static void name(row r, int64_t rows, const axis *by, const axis *a, int64_t begin, \
                   int64_t end) { \
    const int64_t *places = a->places, ts = a->to, fs = a->from, item = sizeof(T); \
    for (; rows > 0; rows--, r.to += by->to, r.from += by->from) \
      if (ts == item && fs == item) \
        for (int64_t i = begin; i < end; i++) \
          ((T *)(void *)r.to)[i] = ((const T *)(const void *)r.from)[places[i]]; \
      else \
        for (int64_t i = begin; i < end; i++) \
          *(T *)(void *)(r.to + i * ts) = *(const T *)(const void *)(r.from + places[i] * fs); \
  }
PICK(pick1, uint8_t)
PICK(pick2, uint16_t)
PICK(pick4, uint32_t)
PICK(pick8, uint64_t)
typedef struct wide {
  uint64_t half[2];
} wide;
PICK(pick16, wide)
static const pick_fn picking[17] = {
    [1] = pick1, [2] = pick2, [4] = pick4, [8] = pick8, [16] = pick16};

// The longest run of places that follow one another.
static void find_run(padded *p) {
  const axis *a = &p->axes[p->count - 1];
  p->low = 0, p->high = a->places ? 0 : a->size;
  for (int64_t begin = 0, end = 1; a->places && begin < a->size; begin = end++) {
    while (end < a->size && a->places[end] == a->places[end - 1] + 1) end++;
    if (end - begin > p->high - p->low) p->low = begin, p->high = end;
  }
}

static bool is_plain(const int64_t *places, int64_t n) {
  int64_t apart = 0;
  for (int64_t i = 0; i < n; i++) apart |= places[i] ^ i;
  return apart == 0;
}
// Adds an axis inside of those before, or makes the last one longer.
static void add(padded *p, axis a) {
  axis *last = &p->axes[p->count - 1];
  if (p->count > 1 && !last->places && !a.places && last->to == a.size * a.to &&
      last->from == a.size * a.from)
    last->size *= a.size, last->to = a.to, last->from = a.from;
  else
    p->axes[p->count++] = a;
}
static void load_axes(padded *p, const px_operand *to, const px_operand *from,
                      const int64_t *places, int padded_dims) {
  axis sorted[PX_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < to->ndim; d++) {
    bool among = d >= to->ndim - padded_dims;
    axis a = {to->sizes[d], to->strides[d] * p->item, from->strides[d] * p->item, NULL};
    if (among && !is_plain(places, a.size)) a.places = places;
    if (among) places += a.size;
    int at = n++;
    for (; at > 0 && sorted[at - 1].to < a.to; at--) sorted[at] = sorted[at - 1];
    sorted[at] = a;
  }
  p->count = 1, p->axes[0] = (axis){1, 0, 0, NULL};  // a row has one outside of it
  for (int i = 0; i < n; i++)
    if (sorted[i].size != 1 || sorted[i].places) add(p, sorted[i]);
  if (p->count == 1) add(p, (axis){1, p->item, p->item, NULL});
}

static void copy_runs(const padded *p, row r, int64_t rows) {
  const axis *a = &p->axes[p->count - 1], *by = a - 1;
  int64_t n = p->high - p->low, bytes = n * p->item;
  char *to = r.to + p->low * a->to;
  const char *from = r.from + (a->places ? a->places[p->low] : p->low) * a->from;
  if (a->to == p->item && a->from == p->item && bytes <= SHORT)
    px__cpu_move_rows(to, by->to, from, by->from, rows, bytes);
  else
    for (; rows > 0; rows--, to += by->to, from += by->from)
      px__cpu_convert(to, a->to, p->dtype, from, a->from, p->dtype, n);
}
// Rows that follow one another on both sides.
static void make_some(const padded *p, row r, int64_t rows) {
  const axis *a = &p->axes[p->count - 1];
  copy_runs(p, r, rows);
  if (p->low > 0) p->pick(r, rows, a - 1, a, 0, p->low);
  if (p->high < a->size) p->pick(r, rows, a - 1, a, p->high, a->size);
}

// Row i of the axes [0, count), without what the axes inside of those say.
static row row_at(const padded *p, int64_t i, int count) {
  row r = p->all;
  for (int d = count - 1; d >= 0; d--) {
    const axis *a = &p->axes[d];
    int64_t at = i % a->size;
    i /= a->size;
    r.to += at * a->to, r.from += (a->places ? a->places[at] : at) * a->from;
  }
  return r;
}
// How many of the places [i, end) follow one another.
static int64_t run_of(const axis *a, int64_t i, int64_t end) {
  int64_t n = 1;
  if (!a->places) return end - i;
  while (i + n < end && a->places[i + n] == a->places[i] + n) n++;
  return n;
}
static void make_rows(void *context, int64_t begin, int64_t end) {
  const padded *p = context;
  const axis *a = &p->axes[p->count - 2];
  while (begin < end) {
    row r = row_at(p, begin / a->size, p->count - 2);
    int64_t i = begin % a->size, left = a->size - i < end - begin ? a->size - i : end - begin;
    int64_t n = run_of(a, i, i + left);
    r.to += i * a->to, r.from += (a->places ? a->places[i] : i) * a->from;
    make_some(p, r, n);
    begin += n;
  }
}

PX_KERNEL(pad_edges) {
  const px_operand *to = args->out, *from = args->self;
  padded p = {.dtype = to->dtype, .item = px__cpu_item[to->dtype], .all = {to->data, from->data}};
  int64_t rows = 1;
  if (px_operand_numel(to) == 0) return PX_OK;
  load_axes(&p, to, from, args->places->data, (int)args->dims);
  p.pick = picking[p.item];
  find_run(&p);
  for (int d = 0; d < p.count - 1; d++) rows *= p.axes[d].size;
  px__cpu_parallel(rows, PIECE / p.axes[p.count - 1].size + 1, make_rows, &p);
  return PX_OK;
}
