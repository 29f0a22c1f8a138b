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

// Line i of each of the first `count` operands, i counting in row-major order over the other
// dimensions of `shape`. An operand with a dimension less lacks the one that the lines run along.
static inline void px__lines_find(px__line *lines, const px_launch *l, int count,
                                  const px_operand *shape, int dim, int64_t i) {
  for (int k = 0; k < count; k++) {
    const px_operand *o = &l->operands[k];
    bool along = o->ndim && o->ndim == shape->ndim;
    lines[k] = (px__line){o->data, along ? o->strides[dim] * px__cpu_item[o->dtype] : 0, o->dtype};
  }
  for (int d = shape->ndim - 1; d >= 0; d--) {
    if (d == dim) continue;
    int64_t at = i % shape->sizes[d];
    i /= shape->sizes[d];
    for (int k = 0; k < count; k++) {
      const px_operand *o = &l->operands[k];
      int own = o->ndim < shape->ndim && d > dim ? d - 1 : d;
      lines[k].at += at * o->strides[own] * px__cpu_item[o->dtype];
    }
  }
}
