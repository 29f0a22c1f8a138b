// SPDX-License-Identifier: Apache-2.0
// Runs work on each matrix of a batch.
#include "cpu/matrices.h"

#include <stdlib.h>

static void run_piece(void *context, int64_t begin, int64_t end) {
  px__matrices *t = context;
  void *room = malloc(t->room + 1);
  if (!room) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  for (int64_t i = begin; room && i < end; i++) t->one(t, i, room);
  free(room);
}

px_status px__matrices_run(px__matrices *t, int64_t count, double cost) {
  int64_t grain = cost > 1 << 14 ? 1 : (1 << 14) / ((int64_t)cost + 1);
  if (count == 1)
    run_piece(t, 0, 1);  // the library may have threads of its own
  else
    px__cpu_parallel(count, grain, run_piece, t);
  if (t->failed) px_kernel_fault(t->l, PX_FAULT_NOMEM, (int64_t)t->room, 0, 0);
  return PX_OK;
}
