// SPDX-License-Identifier: Apache-2.0
// Runs a function on each matrix of a batch; copies matrices and integers for LAPACK.
#include "cpu/linalg/each_matrix.h"

#include <stdlib.h>

// ---- copies, by element size

// In tiles, so that the rows read and the columns written stay in cache.
enum { TILE = 16 };
static int min_int(int a, int b) { return a < b ? a : b; }
#define LOAD(name, type) \
  static void name(type *to, int64_t ld, const type *from, int64_t down, int64_t across, int m, \
                   int n) { \
    for (int c0 = 0; c0 < n; c0 += TILE) \
      for (int r0 = 0; r0 < m; r0 += TILE) \
        for (int c = c0, c1 = min_int(n, c0 + TILE); c < c1; c++) { \
          type *at = to + c * ld; \
          const type *x = from + c * across + r0 * down; \
          for (int r = r0, r1 = min_int(m, r0 + TILE); r < r1; r++, x += down) at[r] = *x; \
        } \
  }
typedef struct wide {
  uint64_t half[2];
} wide;
LOAD(load4, uint32_t)
LOAD(load8, uint64_t)
LOAD(load16, wide)

void px__matrix_load(void *to, int64_t ld, const px_operand *o, int64_t i, int m, int n) {
  if (m == 0 || n == 0) return;  // an empty operand may have no memory
  int64_t down = o->strides[o->ndim - 2], across = o->strides[o->ndim - 1];
  size_t item = px__matrix_bytes(o, 1);
  const char *from = (const char *)o->data + px__matrix_at(o, i, 2) * (int64_t)item;
  if (down == 1)
    for (int c = 0; c < n; c++)
      memcpy((char *)to + c * ld * (int64_t)item, from + c * across * (int64_t)item,
             (size_t)m * item);
  else if (item == 4)
    load4(to, ld, (const void *)from, down, across, m, n);
  else if (item == 8)
    load8(to, ld, (const void *)from, down, across, m, n);
  else
    load16(to, ld, (const void *)from, down, across, m, n);
}

static int *number_of_line(const px_operand *o, int64_t i, int k) {
  return (int *)o->data + px__matrix_at(o, i, 1) + k * o->strides[o->ndim - 1];
}
void px__integers_in(px__int *to, const px_operand *o, int64_t i) {
  for (int k = 0; k < px__columns_of(o); k++) px__int_put(to, k, *number_of_line(o, i, k));
}
void px__integers_out(const px_operand *o, int64_t i, const px__int *from) {
  for (int k = 0; k < px__columns_of(o); k++) *number_of_line(o, i, k) = px__int_at(from, k);
}

// ---- batches

static void run_piece(void *context, int64_t begin, int64_t end) {
  px__matrices *t = context;
  void *workspace = malloc(t->workspace + sizeof(px__int));
  if (!workspace) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  for (int64_t i = begin; workspace && i < end; i++) t->one(t, i, workspace);
  free(workspace);
}
// With several matrices at once, limits the library to one thread each.
static void run_alone(void *context, int64_t begin, int64_t end) {
  int before = px__lapack_limit(1);
  run_piece(context, begin, end);
  px__lapack_restore_limit(before);
}

px_status px__matrices_run(px__matrices *t, int64_t count, double cost) {
  int64_t grain = cost > 1 << 14 ? 1 : (1 << 14) / ((int64_t)cost + 1);
  int before = px__lapack_limit(count == 1 ? px__cpu_thread_count() : 1);
  if (count == 1)
    run_piece(t, 0, 1);  // the library may use its own threads
  else
    px__cpu_parallel(count, grain, run_alone, t);
  px__lapack_restore_limit(before);
  if (t->failed) px_kernel_fault(t->l, PX_FAULT_NOMEM, (int64_t)t->workspace, 0, 0);
  return PX_OK;
}
