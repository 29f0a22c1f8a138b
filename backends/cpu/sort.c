// SPDX-License-Identifier: Apache-2.0
// Sorting along a dimension, and what follows from it: the first k, the k-th. Every line is sorted
// apart; threads share the lines. Also the kernels that move elements to and from given places.
#include "cpu/dense.h"
#include "cpu/threads.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
  const void *in;
  void *values;
  int64_t *indices;
  int64_t size, inner, take, skip;
  int dtype;
  bool down, failed;
} job;

#define T float
#define LESS(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#define NAME(x) x##_f32
#include "cpu/sort_rows.h"
#undef T
#undef NAME
#define T double
#define NAME(x) x##_f64
#include "cpu/sort_rows.h"
#undef T
#undef NAME
#undef LESS
#define T int64_t
#define LESS(a, b) ((a) < (b))
#define NAME(x) x##_i64
#include "cpu/sort_rows.h"

static void run(void *ctx, int64_t begin, int64_t end) {
  job *t = ctx;
  void *room = malloc((size_t)t->size * 2 * sizeof(item_f64) + 1);
  if (!room) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  for (int64_t i = begin; room && i < end; i++) {
    if (t->dtype == PX_FLOAT32)
      line_f32(t, i, room);
    else if (t->dtype == PX_FLOAT64)
      line_f64(t, i, room);
    else
      line_i64(t, i, room);
  }
  free(room);
}
static px_status choose(const px_launch *l, int64_t dim, bool down, int64_t take, int64_t skip) {
  static const char spec[] = "wWr";
  int dtype = l->operands[2].dtype;
  dtype = dtype >= PX_FLOAT16 ? px__compute_of(dtype) : PX_INT64;
  px__dense d[3];
  int64_t outer;
  if (!px__dense_open(d, l, spec, dtype)) return PX_OK;
  job t = {.in = d[2].at,
           .values = d[0].at,
           .indices = d[1].at,
           .dtype = dtype,
           .down = down,
           .skip = skip};
  px__around(&l->operands[2], dim, &outer, &t.size, &t.inner);
  t.take = take < 0 ? t.size : take;
  if (d[2].n && d[0].n) px__cpu_parallel(outer * t.inner, 4096 / (t.size + 1) + 1, run, &t);
  if (t.failed) px_kernel_fault(l, PX_FAULT_NOMEM, t.size * 32, 0, 0);
  px__dense_close(d, spec);
  return PX_OK;
}
// sort(self, dim, descending, stable)
PX_KERNEL(sort) { return choose(l, px__param_int(l, 1), px__param_int(l, 2) != 0, -1, 0); }
// topk(self, k, dim, largest, sorted)
PX_KERNEL(topk) {
  return choose(l, px__param_int(l, 2), px__param_int(l, 3) != 0, px__param_int(l, 1), 0);
}
// kthvalue(self, k, dim, keepdim)
PX_KERNEL(kthvalue) { return choose(l, px__param_int(l, 2), false, 1, px__param_int(l, 1) - 1); }

// ---- places along a dimension
static px_status move_along(const px_launch *l, bool place) {
  const char *spec = "wrR";
  int dtype = l->operands[0].dtype;
  dtype = dtype >= PX_FLOAT16 ? PX_FLOAT64 : PX_INT64;
  px__dense d[3];
  int64_t outer, size, inner, count;
  if (!px__dense_open(d, l, spec, dtype)) return PX_OK;
  const int64_t *where = d[2].at;
  int64_t dim = px__param_int(l, 2);
  px__around(&l->operands[2], dim, &outer, &count, &inner);
  px__around(&l->operands[place ? 0 : 1], dim, &outer, &size, &inner);
  uint64_t *to = d[0].at;  // bits: doubles are added as doubles
  const uint64_t *from = d[1].at;
  if (place) memset(to, 0, (size_t)d[0].n * sizeof *to);
  for (int64_t i = 0; i < d[2].n; i++) {
    int64_t o = i / (count * inner), r = i % inner, big = (o * size + where[i]) * inner + r;
    if (where[i] < 0 || where[i] >= size)
      px_kernel_fault(l, PX_FAULT_INDEX, where[i], dim, size);
    else if (!place)
      to[i] = from[big];
    else if (dtype == PX_FLOAT64)
      ((double *)d[0].at)[big] += ((const double *)d[1].at)[i];
    else
      to[big] += from[i];
  }
  px__dense_close(d, spec);
  return PX_OK;
}
PX_KERNEL(place_along) { return move_along(l, true); }
PX_KERNEL(pick_along) { return move_along(l, false); }
