// SPDX-License-Identifier: Apache-2.0
// Mask kernels: count and positions of nonzero elements, masked selection; the max of integers; and
// triangles of matrices. Masks are read twice in pieces, by lines of the last dimension. Threads
// share the pieces, and the rows of triangles.
#include "cpu/threads/buffer.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "kernel_args/index.h"

#include <string.h>

// Iterates over an operand's lines of the last dimension in row-major order.
typedef struct cursor {
  const px_operand *o;
  const char *at;
  int64_t position[PX_MAX_DIMS];
} cursor;
static bool next_line(cursor *c) {
  int64_t item = (int64_t)px__cpu_item[c->o->dtype];
  for (int d = c->o->ndim - 2; d >= 0; d--) {
    c->at += c->o->strides[d] * item;
    if (++c->position[d] < c->o->sizes[d]) return true;
    c->at -= c->o->strides[d] * item * c->o->sizes[d];
    c->position[d] = 0;
  }
  return false;
}

// ---- nonzero: counted piece by piece, then written, so that threads know their output positions.
// If another thread changes the input in between, writes stay within the capacity.

enum {
  UNIT = 4096,       // max elements of a unit, a part of a line
  PIECES = 64,       // max pieces
  MIN_PIECE = 32768  // min elements of a piece
};

typedef struct selection {
  const px_operand *mask, *from;  // from: the input of a selection; NULL: write positions
  int64_t *positions;
  char *to;
  int64_t capacity;                // capacity: elements, or positions per dimension
  int64_t width, per_line, units;  // elements of a line; units per line and in total
  int64_t piece, counts[PIECES];   // units per piece; nonzero elements per piece
} selection;

// A mask of the relevant bits; a float is zero if all bits but the sign are zero.
static uint64_t bits_of(int dtype) {
  uint64_t all = ~(uint64_t)0 >> (64 - 8 * px__cpu_item[dtype]);
  return px_dtype_is_float((px_dtype)dtype) ? all >> 1 : all;
}
#define FIND(T) \
  static int64_t find_##T(const char *at, int64_t stride, int64_t n, uint64_t bits, \
                          int32_t *restrict positions) { \
    int64_t count = 0; \
    for (int64_t i = 0; i < n; i++) { \
      positions[count] = (int32_t)i; \
      count += (*(const T *)(const void *)(at + i * stride) & (T)bits) != 0; \
    } \
    return count; \
  } \
  static int64_t count_##T(const char *at, int64_t stride, int64_t n, uint64_t bits) { \
    int32_t count = 0; \
    const T *e = (const void *)at; \
    if (stride == sizeof(T)) \
      for (int64_t i = 0; i < n; i++) count += (e[i] & (T)bits) != 0; \
    else \
      for (int64_t i = 0; i < n; i++) \
        count += (*(const T *)(const void *)(at + i * stride) & (T)bits) != 0; \
    return count; \
  }
FIND(uint8_t)
FIND(uint16_t)
FIND(uint32_t)
FIND(uint64_t)

// A unit: its line's position in the outer dimensions, and its start within the line.
typedef struct unit {
  int64_t position[PX_MAX_DIMS], begin, n;
} unit;
static unit find_unit(const selection *s, int64_t u) {
  unit x = {.begin = u % s->per_line * UNIT};
  x.n = s->width - x.begin < UNIT ? s->width - x.begin : UNIT;
  u /= s->per_line;
  for (int d = s->mask->ndim - 2; d >= 0; d--) {
    x.position[d] = u % s->mask->sizes[d];
    u /= s->mask->sizes[d];
  }
  return x;
}
static int64_t last_stride(const px_operand *o) {
  return o->ndim ? o->strides[o->ndim - 1] * px__cpu_item[o->dtype] : 0;
}
static char *start_of(const px_operand *o, const unit *x) {
  int64_t offset = 0;
  for (int d = 0; d < o->ndim - 1; d++) offset += x->position[d] * o->strides[d];
  return (char *)o->data + offset * px__cpu_item[o->dtype] + x->begin * last_stride(o);
}

static void count_pieces(void *context, int64_t begin, int64_t end) {
  selection *s = context;
  int64_t stride = last_stride(s->mask), item = px__cpu_item[s->mask->dtype];
  int64_t max = s->width < UNIT ? s->width : UNIT;
  uint64_t bits = bits_of(s->mask->dtype);
  for (int64_t i = begin, work = 0; i < end; i++) {
    int64_t n = 0, last = (i + 1) * s->piece < s->units ? (i + 1) * s->piece : s->units;
    for (int64_t u = i * s->piece; u < last && !px__work_stopped(&work, max); u++) {
      unit x = find_unit(s, u);
      const char *at = start_of(s->mask, &x);
      n += item == 1   ? count_uint8_t(at, stride, x.n, bits)
           : item == 2 ? count_uint16_t(at, stride, x.n, bits)
           : item == 4 ? count_uint32_t(at, stride, x.n, bits)
                       : count_uint64_t(at, stride, x.n, bits);
    }
    s->counts[i] = n;
  }
}

// Divides the mask into pieces and counts them; returns the number of pieces.
static int64_t count_all(selection *s) {
  const px_operand *o = s->mask;
  s->width = o->ndim ? o->sizes[o->ndim - 1] : 1;
  s->per_line = px__ceil_div(s->width, UNIT);
  s->units = s->per_line;
  for (int d = 0; d < o->ndim - 1; d++) s->units *= o->sizes[d];
  if (s->units == 0) return 0;
  int64_t min_units = MIN_PIECE / (s->width < UNIT ? s->width : UNIT) + 1;
  s->piece = px__ceil_div(s->units, PIECES);
  if (s->piece < min_units) s->piece = min_units;
  int64_t pieces = px__ceil_div(s->units, s->piece);
  px__cpu_parallel(pieces, 1, count_pieces, s);
  return pieces;
}

static void write_positions(const selection *s, const unit *x, const int32_t *at, int64_t n,
                            int64_t row) {
  int64_t *to = s->positions + row;
  for (int d = 0; d < s->mask->ndim - 1; d++, to += s->capacity)
    for (int64_t i = 0; i < n; i++) to[i] = x->position[d];
  for (int64_t i = 0; i < n; i++) to[i] = x->begin + at[i];
}
#define TAKE(T) \
  for (int64_t i = 0; i < n; i++) \
    ((T *)(void *)s->to)[row + i] = *(const T *)(const void *)(from + at[i] * stride);
static void write_elements(const selection *s, const unit *x, const int32_t *at, int64_t n,
                           int64_t row) {
  const char *from = start_of(s->from, x);
  int64_t stride = last_stride(s->from);
  // NOLINTBEGIN(clang-analyzer-core.UndefinedBinaryOperatorResult): `at` has n elements
  switch (px__cpu_item[s->from->dtype]) {
    case 1:
      TAKE(uint8_t) break;
    case 2:
      TAKE(uint16_t) break;
    case 4:
      TAKE(uint32_t) break;
    default:
      TAKE(uint64_t)
  }
  // NOLINTEND(clang-analyzer-core.UndefinedBinaryOperatorResult)
}

static void write_pieces(void *context, int64_t begin, int64_t end) {
  selection *s = context;
  int64_t stride = last_stride(s->mask), item = px__cpu_item[s->mask->dtype];
  int64_t max = s->width < UNIT ? s->width : UNIT;
  uint64_t bits = bits_of(s->mask->dtype);
  PX__BUFFER(int32_t, at, UNIT);
  for (int64_t i = begin, work = 0; i < end; i++) {
    int64_t row = i ? s->counts[i - 1] : 0;
    int64_t last = (i + 1) * s->piece < s->units ? (i + 1) * s->piece : s->units;
    for (int64_t u = i * s->piece; u < last && !px__work_stopped(&work, max); u++) {
      unit x = find_unit(s, u);
      const char *here = start_of(s->mask, &x);
      int64_t n = item == 1   ? find_uint8_t(here, stride, x.n, bits, at)
                  : item == 2 ? find_uint16_t(here, stride, x.n, bits, at)
                  : item == 4 ? find_uint32_t(here, stride, x.n, bits, at)
                              : find_uint64_t(here, stride, x.n, bits, at);
      if (n > s->counts[i] - row) n = s->counts[i] - row;
      (s->from ? write_elements : write_positions)(s, &x, at, n, row);
      row += n;
    }
  }
}

static px_status write_all(selection *s) {
  int64_t pieces = count_all(s), sum = 0;
  for (int64_t i = 0; i < pieces; i++) {  // counts become end positions
    sum += s->counts[i];
    s->counts[i] = sum < s->capacity ? sum : s->capacity;
  }
  px__cpu_parallel(pieces, 1, write_pieces, s);
  return PX_OK;
}

PX_KERNEL(nonzero_count) {
  selection s = {.mask = args->self};
  int64_t pieces = count_all(&s), n = 0;
  for (int64_t i = 0; i < pieces; i++) n += s.counts[i];
  *(int64_t *)args->count->data = n;
  return PX_OK;
}
PX_KERNEL(nonzero) {
  selection s = {
      .mask = args->self, .positions = args->places->data, .capacity = args->places->sizes[0]};
  return write_all(&s);
}
// masked_select: `out` has as many elements as were counted.
PX_KERNEL(selected) {
  selection s = {.mask = args->mask,
                 .from = args->self,
                 .to = args->out->data,
                 .capacity = args->out->sizes[0]};
  return write_all(&s);
}

PX_KERNEL(index_max) {
  const px_operand *o = args->self;
  cursor c = {.o = o, .at = o->data};
  int64_t max = INT64_MIN, n = o->ndim ? o->sizes[o->ndim - 1] : 1, work = 0;
  do {
    for (px__steps s = {.n = n}; px__step(&s);)
      for (int64_t i = s.begin; i < s.end; i++) {
        int64_t v = *(const int64_t *)(const void *)(c.at + i * last_stride(o));
        if (v > max) max = v;
      }
  } while (next_line(&c) && !px__work_stopped(&work, n));
  *(int64_t *)args->most->data = max;
  return PX_OK;
}

// ---- tril, triu: part of each row is kept, the rest is zero

typedef struct rows {
  const px_operand *to, *from;
  int64_t diagonal;
  bool lower;
} rows;

static void copy_part(const rows *r, char *to, const char *from, int64_t begin, int64_t end) {
  int last = r->to->ndim - 1, dtype = r->to->dtype;
  int64_t item = px__cpu_item[dtype];
  int64_t ts = r->to->strides[last] * item, fs = r->from->strides[last] * item;
  if (to == from && ts == fs) return;
  px__cpu_convert(to + begin * ts, ts, dtype, from + begin * fs, fs, dtype, end - begin);
}

static void clear_part(const rows *r, char *to, int64_t begin, int64_t end) {
  static const int64_t zero;
  int last = r->to->ndim - 1, dtype = r->to->dtype;
  int64_t ts = r->to->strides[last] * px__cpu_item[dtype];
  px__cpu_convert(to + begin * ts, ts, dtype, &zero, 0, dtype, end - begin);
}

static void run_rows(void *context, int64_t begin, int64_t end) {
  const rows *r = context;
  const px_operand *to = r->to, *from = r->from;
  int last = to->ndim - 1;
  int64_t item = px__cpu_item[to->dtype], columns = to->sizes[last];
  for (int64_t i = begin; i < end; i++) {
    int64_t rest = i, t = 0, f = 0;
    for (int d = last - 1; d >= 0; d--) {
      int64_t at = rest % to->sizes[d];
      rest /= to->sizes[d];
      t += at * to->strides[d], f += at * from->strides[d];
    }
    // The first column past the diagonal (tril) or on it (triu). The diagonal may be far outside.
    int64_t row = i % to->sizes[last - 1], edge = row + r->lower;
    edge = r->diagonal >= columns ? columns : r->diagonal <= -edge ? 0 : edge + r->diagonal;
    if (edge > columns) edge = columns;
    char *out = (char *)to->data + t * item;
    const char *in = (const char *)from->data + f * item;
    copy_part(r, out, in, r->lower ? 0 : edge, r->lower ? edge : columns);
    clear_part(r, out, r->lower ? edge : 0, r->lower ? columns : edge);
  }
}

static px_status triangle(rows *r) {
  enum { PIECE = 16384 };
  int last = r->to->ndim - 1;
  int64_t count = 1;
  for (int d = 0; d < last; d++) count *= r->to->sizes[d];
  if (r->to->sizes[last] == 0) return PX_OK;
  px__cpu_parallel(count, PIECE / r->to->sizes[last] + 1, run_rows, r);
  return PX_OK;
}

PX_KERNEL(tril) { return triangle(&(rows){args->out, args->self, args->diagonal, true}); }
PX_KERNEL(triu) { return triangle(&(rows){args->out, args->self, args->diagonal, false}); }
