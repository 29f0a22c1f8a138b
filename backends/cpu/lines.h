// SPDX-License-Identifier: Apache-2.0
// Lines of operands along one dimension: where each begins, and the step along it.
#pragma once
#include "operands.h"

#include "cpu/convert.h"

typedef struct px__line {
  char *at;
  int64_t stride;  // bytes
  int dtype;
} px__line;

// The line with number i, counted in row-major order over all dimensions of `shape` but the one
// that lines run along: its place in each dimension.
typedef struct px__line_place {
  int ndim, along;
  int64_t at[PX_MAX_DIMS];
} px__line_place;
static inline px__line_place px__line_find(const px_operand *shape, int along, int64_t i) {
  px__line_place p;
  p.ndim = shape->ndim, p.along = along;
  for (int d = shape->ndim - 1; d >= 0; d--) {
    if (d == along) continue;
    p.at[d] = i % shape->sizes[d];
    i /= shape->sizes[d];
  }
  return p;
}
// An operand's line there. An operand with a dimension less lacks the one that lines run along.
static inline px__line px__line_of(const px_operand *o, const px__line_place *p) {
  bool whole = o->ndim == p->ndim;
  int64_t item = px__cpu_item[o->dtype], offset = 0;
  for (int d = 0; d < p->ndim; d++)
    if (d != p->along) offset += p->at[d] * o->strides[!whole && d > p->along ? d - 1 : d];
  return (px__line){(char *)o->data + offset * item,
                    whole && o->ndim ? o->strides[p->along] * item : 0, o->dtype};
}
