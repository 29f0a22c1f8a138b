// SPDX-License-Identifier: Apache-2.0
// Kernels over masks: how many elements are not zero, where they are; the largest of integers; and
// the triangles of matrices.
#include "cpu/convert.h"
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

static px_status triangle(const px_launch *l, bool lower) {
  const px_operand *to = &l->operands[0], *from = &l->operands[1];
  int64_t diagonal = px_value_int(l->params[1]), item = (int64_t)px__cpu_item[to->dtype];
  cursor c = {.o = from, .at = from->data};
  int rows = from->ndim - 2, columns = from->ndim - 1;
  do {
    int64_t beyond = c.place[columns] - c.place[rows], offset = 0;
    for (int d = 0; d < to->ndim; d++) offset += c.place[d] * to->strides[d];
    char *at = (char *)to->data + offset * item;
    if (lower ? beyond <= diagonal : beyond >= diagonal)
      memmove(at, c.at, (size_t)item);
    else
      memset(at, 0, (size_t)item);
  } while (next(&c));
  return PX_OK;
}

px_status px__cpu_tril(const px_launch *l) { return triangle(l, true); }
px_status px__cpu_triu(const px_launch *l) { return triangle(l, false); }
