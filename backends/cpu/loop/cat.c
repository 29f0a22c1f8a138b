// SPDX-License-Identifier: Apache-2.0
// The kernel "joined": rows of several tensors, one behind the other, are the rows of another.
//
// A few rows at a time get all of their parts, so that the result is written from its beginning to
// its end, once. All lie row-major; threads share the rows.
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "kernel_args/index.h"

// Bytes of rows that are made together, and elements that a thread is worth.
enum { TOGETHER = 2048, PIECE = 16384 };

typedef struct joining {
  const px_operand *parts;
  int count;
  char *to;
  int64_t row, widths[PX_MAX_OPERANDS];  // bytes of a row, and of each part's
} joining;

static void join_rows(void *context, int64_t begin, int64_t end) {
  const joining *j = context;
  int64_t most = j->row < TOGETHER ? TOGETHER / j->row : 1;
  for (int64_t i = begin, n; i < end; i += n) {
    char *to = j->to + i * j->row;
    n = end - i < most ? end - i : most;
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
  px__cpu_parallel(rows, PIECE / (n / rows) + 1, join_rows, &j);
  return PX_OK;
}
