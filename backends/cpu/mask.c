// SPDX-License-Identifier: Apache-2.0
// Kernels over masks: how many elements are not zero, where they are; the largest of integers; and
// the triangles of matrices.
#include "cpu/convert.h"
#include "cpu/threads.h"
#include "cpu_kernels.h"

#include <string.h>

static bool is_set(const char *at, int dtype) {
  switch (dtype) {
    case PX_FLOAT32: {
      float f;
      memcpy(&f, at, sizeof f);
      return f != 0;
    }
    case PX_FLOAT64: {
      double f;
      memcpy(&f, at, sizeof f);
      return f != 0;
    }
    case PX_FLOAT16:
    case PX_BFLOAT16: {
      uint16_t bits;
      memcpy(&bits, at, sizeof bits);
      return (bits & 0x7fff) != 0;
    }
    default: {
      static const char zeros[8];
      return memcmp(at, zeros, px__cpu_item[dtype]) != 0;
    }
  }
}

// Walks an operand in row-major order.
typedef struct cursor {
  const px_operand *o;
  const char *at;
  int64_t place[PX_MAX_DIMS];
} cursor;
static bool next(cursor *c) {
  int64_t item = (int64_t)px__cpu_item[c->o->dtype];
  for (int d = c->o->ndim - 1; d >= 0; d--) {
    c->at += c->o->strides[d] * item;
    if (++c->place[d] < c->o->sizes[d]) return true;
    c->at -= c->o->strides[d] * item * c->o->sizes[d];
    c->place[d] = 0;
  }
  return false;
}

px_status px__cpu_nonzero_count(const px_launch *l) {
  cursor c = {.o = &l->operands[1], .at = l->operands[1].data};
  int64_t n = 0;
  do n += is_set(c.at, c.o->dtype);
  while (next(&c));
  *(int64_t *)l->operands[0].data = n;
  return PX_OK;
}

// The result has a row for each; should another thread have changed the input, no more are written.
px_status px__cpu_nonzero(const px_launch *l) {
  cursor c = {.o = &l->operands[1], .at = l->operands[1].data};
  int64_t *to = l->operands[0].data, rows = l->operands[0].sizes[0];
  do {
    if (!is_set(c.at, c.o->dtype)) continue;
    if (rows-- == 0) break;
    for (int d = 0; d < c.o->ndim; d++) *to++ = c.place[d];
  } while (next(&c));
  return PX_OK;
}

px_status px__cpu_index_max(const px_launch *l) {
  cursor c = {.o = &l->operands[1], .at = l->operands[1].data};
  int64_t most = INT64_MIN;
  do {
    int64_t v = *(const int64_t *)(const void *)c.at;
    if (v > most) most = v;
  } while (next(&c));
  *(int64_t *)l->operands[0].data = most;
  return PX_OK;
}

// ---- triangles: of each row one part is kept, and the other is zero

typedef struct rows {
  const px_operand *to, *from;
  int64_t diagonal;
  bool lower;
} rows;

static void move_part(const rows *r, char *to, const char *from, int64_t begin, int64_t end) {
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
    // The first column past the diagonal, or on it; a diagonal may lie far outside.
    int64_t row = i % to->sizes[last - 1], edge = row + r->lower;
    edge = r->diagonal >= columns ? columns : r->diagonal <= -edge ? 0 : edge + r->diagonal;
    if (edge > columns) edge = columns;
    char *out = (char *)to->data + t * item;
    const char *in = (const char *)from->data + f * item;
    move_part(r, out, in, r->lower ? 0 : edge, r->lower ? edge : columns);
    clear_part(r, out, r->lower ? edge : 0, r->lower ? columns : edge);
  }
}

static px_status triangle(const px_launch *l, bool lower) {
  enum { PIECE = 16384 };
  rows r = {&l->operands[0], &l->operands[1], px_value_int(l->params[1]), lower};
  int last = r.to->ndim - 1;
  int64_t count = 1;
  for (int d = 0; d < last; d++) count *= r.to->sizes[d];
  px__cpu_parallel(count, PIECE / r.to->sizes[last] + 1, run_rows, &r);
  return PX_OK;
}

px_status px__cpu_tril(const px_launch *l) { return triangle(l, true); }
px_status px__cpu_triu(const px_launch *l) { return triangle(l, false); }
