// SPDX-License-Identifier: Apache-2.0
// The kernels "bag_sums" and "bag_tops": sums and maxima over bags of table rows (embedding_bag).
//
// Bag i has the indices [begins[i], begins[i + 1]). A bag is processed COLUMNS columns at a time,
// in index order; threads share the bags. fp16 and bf16 are summed in float.
#include "cpu/threads/cache_line.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "cpu/vector/loop_hints.h"
#include "kernel_args/index.h"

enum {
  COLUMNS = 64,       // columns processed together
  GRAIN = 16384,      // elements per thread, min
  PREFETCH_ROWS = 4,  // prefetch distance, rows
  MAX_PART = 1 << 30  // max indices counted in an int32
};

typedef struct bags bags;
struct bags {
  const char *weight;
  const void *factors;  // per index, or NULL
  const int64_t *indices, *begins;
  int64_t columns, count, item;
  int64_t padding;  // padding_idx; -1: none
  int dtype, compute;
  char *out;
  int64_t *max_indices;  // indices of maxima
};

// The offset list is clamped: the program may have overwritten it since its validation.
static int64_t begin_of(const bags *b, int64_t bag) {
  int64_t at = b->begins[bag];
  return at < 0 ? 0 : at < b->count ? at : b->count;
}
// n columns of a row from column c in the compute dtype: in place, or converted into `buffer`.
static const void *row_of(const bags *b, int64_t index, int64_t c, int64_t n, void *buffer) {
  const char *at = b->weight + (index * b->columns + c) * b->item;
  if (b->dtype == b->compute) return at;
  px__cpu_convert(buffer, sizeof(float), PX_FLOAT32, at, b->item, b->dtype, n);
  return buffer;
}
// Prefetches a row a few indices ahead, for large tables.
static void prefetch_row(const bags *b, int64_t k, int64_t end, int64_t c, int64_t n) {
  if (k + PREFETCH_ROWS >= end) return;
  const char *at = b->weight + (b->indices[k + PREFETCH_ROWS] * b->columns + c) * b->item;
  for (int64_t i = 0; i < n * b->item; i += PX__CACHE_LINE) __builtin_prefetch(at + i);
}
static void store(const bags *b, int64_t bag, int64_t c, const void *from, int64_t n) {
  char *to = b->out + (bag * b->columns + c) * b->item;
  px__cpu_convert(to, b->item, b->dtype, from, px__cpu_item[b->compute], b->compute, n);
}

// I is as wide as T, so vectors select both. A bag is processed in parts whose indices fit into I.
#define BAGS(S, T, I) \
  static void sum_columns_##S(const bags *b, int64_t bag, int64_t c, int64_t n) { \
    T sum[COLUMNS] = {0}, buffer[COLUMNS], one = 1; \
    int64_t end = begin_of(b, bag + 1); \
    for (int64_t k = begin_of(b, bag); k < end; k++) { \
      if (b->indices[k] == b->padding) continue; \
      prefetch_row(b, k, end, c, n); \
      const T *row = row_of(b, b->indices[k], c, n, buffer); \
      T factor = b->factors ? ((const T *)b->factors)[k] : one; \
      if (n == COLUMNS && !b->factors) \
        PX__CPU_INDEPENDENT for (int i = 0; i < COLUMNS; i++) sum[i] += row[i]; \
      else \
        PX__CPU_INDEPENDENT for (int64_t i = 0; i < n; i++) sum[i] += row[i] * factor; \
    } \
    store(b, bag, c, sum, n); \
  } \
  static inline void join_tops_##S(T *top, I *which, const T *row, I k, int64_t n) { \
    PX__CPU_INDEPENDENT for (int64_t i = 0; i < n; i++) { \
      T x = row[i], y = top[i]; \
      I more = -(I)((x > y) | ((x != x) & (y == y))); \
      top[i] = more ? x : y, which[i] = more ? k : which[i]; \
    } \
  } \
  static void top_part_##S(const bags *b, T *top, int64_t *max_indices, int64_t begin, \
                           int64_t end, int64_t c, int64_t n) { \
    T buffer[COLUMNS]; \
    I which[COLUMNS]; \
    for (int i = 0; i < COLUMNS; i++) which[i] = -1; \
    for (int64_t k = begin; k < end; k++) { \
      if (b->indices[k] == b->padding) continue; \
      prefetch_row(b, k, end, c, n); \
      const T *row = row_of(b, b->indices[k], c, n, buffer); \
      if (n == COLUMNS) \
        join_tops_##S(top, which, row, (I)(k - begin), COLUMNS); \
      else \
        join_tops_##S(top, which, row, (I)(k - begin), n); \
    } \
    for (int64_t i = 0; i < n; i++) \
      if (which[i] >= 0) max_indices[i] = b->indices[begin + which[i]]; \
  } \
  static void top_columns_##S(const bags *b, int64_t bag, int64_t c, int64_t n) { \
    T top[COLUMNS] = {0}, buffer[COLUMNS]; \
    int64_t k = begin_of(b, bag), end = begin_of(b, bag + 1), \
            *max_indices = b->max_indices + bag * b->columns + c; \
    while (k < end && b->indices[k] == b->padding) k++; \
    for (int64_t i = 0; i < n; i++) max_indices[i] = k < end ? b->indices[k] : -1; \
    if (k < end) memcpy(top, row_of(b, b->indices[k], c, n, buffer), (size_t)n * sizeof(T)); \
    for (int64_t next; k < end; k = next) { \
      next = end - k < MAX_PART ? end : k + MAX_PART; \
      top_part_##S(b, top, max_indices, k, next, c, n); \
    } \
    store(b, bag, c, top, n); \
  }
BAGS(f32, float, int32_t)
BAGS(f64, double, int64_t)

typedef void (*columns_fn)(const bags *b, int64_t bag, int64_t c, int64_t n);
static void each_bag(const bags *b, int64_t begin, int64_t end, columns_fn fn) {
  for (int64_t i = begin; i < end && !px__cpu_stopped(); i++)
    for (int64_t c = 0; c < b->columns; c += COLUMNS)
      fn(b, i, c, b->columns - c < COLUMNS ? b->columns - c : COLUMNS);
}
static void each_sum(void *context, int64_t begin, int64_t end) {
  const bags *b = context;
  each_bag(b, begin, end, b->compute == PX_FLOAT64 ? sum_columns_f64 : sum_columns_f32);
}
static void each_top(void *context, int64_t begin, int64_t end) {
  const bags *b = context;
  each_bag(b, begin, end, b->compute == PX_FLOAT64 ? top_columns_f64 : top_columns_f32);
}

// Returns false after reporting the first index out of bounds.
static bool check_indices(const px_launch *l, const px_operand *weight, const px_operand *indices) {
  const int64_t *at = indices->data;
  uint64_t size = (uint64_t)weight->sizes[0];
  for (int64_t k = 0; k < indices->sizes[0]; k++) {
    if ((uint64_t)at[k] < size) continue;
    px_kernel_fault(l, PX_FAULT_INDEX, at[k], 0, (int64_t)size);
    return false;
  }
  return true;
}
static px_status run(const px_launch *l, bags *b, const px_operand *weight,
                     const px_operand *indices, int64_t count) {
  if (!check_indices(l, weight, indices)) return PX_OK;
  b->weight = weight->data, b->dtype = weight->dtype, b->item = px__cpu_item[weight->dtype];
  b->compute = px__compute_of(weight->dtype), b->columns = weight->sizes[1];
  b->indices = indices->data, b->count = indices->sizes[0];
  int64_t each = (indices->sizes[0] + count) * b->columns / (count ? count : 1);
  px__cpu_parallel(count, GRAIN / (each ? each : 1) + 1, b->max_indices ? each_top : each_sum, b);
  return PX_OK;
}

PX_KERNEL(bag_sums) {
  px__dense d = {.launch = l};
  bags b = {.begins = args->begins->data, .out = args->out->data, .padding = args->padding};
  b.factors = px__dense_in(&d, args->factors, px__compute_of(args->weight->dtype));
  if (!d.failed) run(l, &b, args->weight, args->indices, args->out->sizes[0]);
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(bag_tops) {
  bags b = {.begins = args->begins->data,
            .out = args->values->data,
            .max_indices = args->places->data,
            .padding = args->padding};
  return run(l, &b, args->weight, args->indices, args->values->sizes[0]);
}
