// SPDX-License-Identifier: Apache-2.0
// The kernel "joined": concatenates rows of several tensors into rows of the result.
//
// A few rows at a time receive all of their parts, so the result is written once, in order. All
// operands are row-major; threads share the rows.
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "kernel_args/index.h"

enum {
  ROWS_BYTES = 2048,  // bytes of rows written together
  GRAIN = 16384       // elements per thread, min
};

typedef struct joining {
  const px_operand *parts;
  int count;
  char *to;
  int64_t row, widths[PX_MAX_OPERANDS];  // bytes of a row, and of each part of it
} joining;

static void join_rows(void *context, int64_t begin, int64_t end) {
  const joining *j = context;
  int64_t rows_at_once = j->row < ROWS_BYTES ? ROWS_BYTES / j->row : 1;
  for (int64_t i = begin, n; i < end; i += n) {
    char *to = j->to + i * j->row;
    n = end - i < rows_at_once ? end - i : rows_at_once;
    for (int k = 0; k < j->count; to += j->widths[k++])
      if (j->widths[k])
        px__cpu_move_rows(to, j->row, (const char *)j->parts[k].data + i * j->widths[k],
                          j->widths[k], n, j->widths[k]);
  }
}

PX_KERNEL(joined) {
  const px_operand *out = args->out;
  int64_t item = px__cpu_item[out->dtype], rows = args->rows, n = px_operand_numel(out);
  joining j = {.parts = args->list,
               .count = args->list_n,
               .to = (char *)out->data + args->first * item,
               .row = n / rows * item};
  for (int k = 0; k < j.count; k++) j.widths[k] = px_operand_numel(&j.parts[k]) / rows * item;
  px__cpu_parallel(rows, GRAIN / (n / rows) + 1, join_rows, &j);
  return PX_OK;
}
