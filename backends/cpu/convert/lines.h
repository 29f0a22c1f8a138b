// SPDX-License-Identifier: Apache-2.0
// Lines of operands along one dimension: start address and stride.
#pragma once
#include "operands.h"

#include "cpu/convert/convert.h"

typedef struct px__line {
  char *at;
  int64_t stride;  // bytes
  int dtype;
} px__line;

// Finds line i of each operand. Lines are counted in row-major order over all dimensions of `shape`
// except `along`. An operand with one dimension fewer lacks `along`.
static inline void px__lines_find(px__line *lines, int count, const px_operand *const *operands,
                                  const px_operand *shape, int along, int64_t i) {
  for (int k = 0; k < count; k++) {
    const px_operand *o = operands[k];
    bool whole = o->ndim && o->ndim == shape->ndim;
    lines[k] =
        (px__line){o->data, whole ? o->strides[along] * px__cpu_item[o->dtype] : 0, o->dtype};
  }
  for (int d = shape->ndim - 1; d >= 0; d--) {
    if (d == along) continue;
    bool more = i >= shape->sizes[d];  // skips the division: it takes as long as a short line
    int64_t at = more ? i % shape->sizes[d] : i;
    i = more ? i / shape->sizes[d] : 0;
    for (int k = 0; k < count; k++) {
      const px_operand *o = operands[k];
      int own = o->ndim < shape->ndim && d > along ? d - 1 : d;
      lines[k].at += at * o->strides[own] * px__cpu_item[o->dtype];
    }
  }
}
