// SPDX-License-Identifier: Apache-2.0
// The kernels "tally" and "binned": counts of integers (bincount), and of elements per bin (histc).
//
// Counts are integers, so the order does not matter: threads count parts in separate tables if
// there are few counts. Consecutive elements use different tables, since incrementing the same
// counter twice would wait for the first store.
#include "cpu/threads/buffer.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"
#include "kernel_args/index.h"
#include "kernel_args/statistics.h"

#include <stdlib.h>

enum {
  BLOCK = 512,          // elements converted at a time
  MAX_SEPARATE = 4096,  // max counts for separate tables
  TABLES = 4,           // per part
  PARTS = 16,           // max parts
  MIN_PART = 65536      // min elements of a part
};

typedef struct counting counting;
// Counts n contiguous elements into `tables` tables of `size` counts each, TABLES or one.
typedef void (*count_fn)(const counting *c, int64_t *counts, int tables, const void *e, int64_t n);
struct counting {
  count_fn fn;
  const px_operand *in;
  const void *edges;  // bins only
  int dtype;          // the dtype that fn expects
  int64_t n, size, part;
  int64_t *tables;
};

static void count_range(const counting *c, int64_t *counts, int tables, int64_t begin,
                        int64_t end) {
  PX__BUFFER(int64_t, buffer, BLOCK);
  int64_t item = px__cpu_item[c->in->dtype], work = 0;
  int64_t stride = (c->in->ndim ? c->in->strides[0] : 1) * item;
  bool is_direct = c->in->dtype == c->dtype && stride == item;
  const char *from = (const char *)c->in->data + begin * stride;
  for (int64_t n; begin < end && !px__work_stopped(&work, BLOCK); begin += n, from += n * stride) {
    n = end - begin < BLOCK ? end - begin : BLOCK;
    if (!is_direct)
      px__cpu_convert(buffer, px__cpu_item[c->dtype], c->dtype, from, stride, c->in->dtype, n);
    c->fn(c, counts, tables, is_direct ? (const void *)from : buffer, n);
  }
}
static void count_parts(void *context, int64_t begin, int64_t end) {
  const counting *c = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * c->part, to = from + c->part < c->n ? from + c->part : c->n;
    count_range(c, c->tables + i * TABLES * c->size, TABLES, from, to);
  }
}
// Counts into `counts`, cleared first.
static void count(counting *c, int64_t *counts) {
  int64_t parts = c->n / MIN_PART;
  parts = parts < 1 ? 1 : parts > PARTS ? PARTS : parts;
  if (!px__cpu_clear(counts, (size_t)c->size * sizeof *counts)) return;
  bool separate = c->size <= MAX_SEPARATE && c->size * TABLES * parts <= c->n;
  c->tables = separate ? calloc((size_t)(parts * TABLES * c->size), sizeof *c->tables) : NULL;
  if (!c->tables) {
    count_range(c, counts, 1, 0, c->n);
    return;
  }
  c->part = px__ceil_div(c->n, parts);
  px__cpu_parallel(parts, 1, count_parts, c);
  for (int64_t i = 0; i < parts * TABLES; i++)
    for (int64_t k = 0; k < c->size; k++) counts[k] += c->tables[i * c->size + k];
  free(c->tables);
}

// ---- integers

// Values were validated before, but the program may have overwritten them since: they are checked
// again before use as indices. int32 values are checked in a copy, by vectors; then the loop needs
// no checks.
static bool are_valid(const int32_t *e, uint64_t size, int64_t n) {
  uint32_t most = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size - 1, wrong = 0;
  for (int64_t k = 0; k < n; k++) wrong |= (uint32_t)e[k] > most;
  return size > 0 && !wrong;
}
static void tally_int32(const counting *c, int64_t *counts, int tables, const void *elements,
                        int64_t n) {
  int32_t e[BLOCK];
  uint64_t size = (uint64_t)c->size;
  int64_t k = 0, *second = counts + size, *third = second + size, *fourth = third + size;
  memcpy(e, elements, (size_t)n * sizeof *e);
  bool fine = tables == TABLES && are_valid(e, size, n);
  for (; fine && k + TABLES <= n; k += TABLES) {
    counts[e[k]]++, second[e[k + 1]]++;
    third[e[k + 2]]++, fourth[e[k + 3]]++;
  }
  for (; k < n; k++)
    if ((uint64_t)e[k] < size) counts[e[k]]++;
}
static void tally_int64(const counting *c, int64_t *counts, int tables, const void *elements,
                        int64_t n) {
  const int64_t *e = elements;
  uint64_t size = (uint64_t)c->size;
  int64_t k = 0, *second = counts + size, *third = second + size, *fourth = third + size;
  for (; tables == TABLES && k + TABLES <= n; k += TABLES) {
    uint64_t w = (uint64_t)e[k], x = (uint64_t)e[k + 1];
    uint64_t y = (uint64_t)e[k + 2], z = (uint64_t)e[k + 3];
    if ((w >= size) | (x >= size) | (y >= size) | (z >= size)) continue;
    counts[w]++, second[x]++, third[y]++, fourth[z]++;
  }
  for (; k < n; k++) {
    uint64_t x = (uint64_t)e[k];
    if (x < size) counts[x]++;
  }
}
// Tables cover all byte values, so no checks are needed.
enum { BYTES = 256 };
static void tally_bytes(const counting *c, int64_t *counts, int tables, const void *elements,
                        int64_t n) {
  const uint8_t *e = elements;
  int64_t k = 0, *second = counts + BYTES, *third = second + BYTES, *fourth = third + BYTES;
  for (; tables == TABLES && k + 8 <= n; k += 8) {
    uint64_t eight;
    memcpy(&eight, e + k, sizeof eight);
    counts[eight & 255]++, second[eight >> 8 & 255]++;
    third[eight >> 16 & 255]++, fourth[eight >> 24 & 255]++;
    counts[eight >> 32 & 255]++, second[eight >> 40 & 255]++;
    third[eight >> 48 & 255]++, fourth[eight >> 56]++;
  }
  for (; k < n; k++) counts[e[k]]++;
}
static void tally_all_bytes(counting *c, int64_t *counts) {
  int64_t all[BYTES] = {0}, size = c->size;
  c->fn = tally_bytes, c->dtype = PX_UINT8, c->size = BYTES;
  count(c, all);
  for (int64_t i = 0; i < size; i++) counts[i] = i < BYTES ? all[i] : 0;
}

PX_KERNEL(tally) {
  const px_operand *in = args->self, *out = args->counts;
  bool ints = in->dtype == PX_INT32;
  counting c = {.fn = ints ? tally_int32 : tally_int64,
                .in = in,
                .dtype = ints ? PX_INT32 : PX_INT64,
                .n = in->sizes[0],
                .size = out->sizes[0]};
  if (in->dtype == PX_UINT8)
    tally_all_bytes(&c, out->data);
  else
    count(&c, out->data);
  return PX_OK;
}

// ---- bins

// Guesses the bin assuming equal widths, then corrects it by the edges.
#define BINNED(T) \
  static void binned_##T(const counting *c, int64_t *counts, int tables, const void *elements, \
                         int64_t n) { \
    const T *e = elements, *edges = c->edges; \
    T low = edges[0], high = edges[c->size], top = (T)(c->size - 1); \
    T scale = (T)c->size / (high - low); \
    int32_t guess[BLOCK]; \
    for (int64_t k = 0; k < n; k++) { \
      T x = (e[k] - low) * scale; \
      x = x > 0 ? x : 0; \
      guess[k] = (int32_t)(x < top ? x : top); \
    } \
    for (int64_t k = 0; k < n; k++) { \
      T x = e[k]; \
      int64_t bin = guess[k]; \
      if (!(x >= low && x <= high)) continue; \
      while (bin + 1 < c->size && x >= edges[bin + 1]) bin++; \
      while (bin > 0 && x < edges[bin]) bin--; \
      counts[(k & (tables - 1)) * c->size + bin]++; \
    } \
  }
BINNED(float)
BINNED(double)

// Edges are ascending; the first and last bins include the outer edges. `out` has the input's
// dtype.
PX_KERNEL(binned) {
  const px_operand *in = args->self, *out = args->counts;
  counting c = {.fn = in->dtype == PX_FLOAT32 ? binned_float : binned_double,
                .in = in,
                .edges = args->edges->data,
                .dtype = in->dtype,
                .n = in->sizes[0],
                .size = out->sizes[0]};
  int64_t *counts = malloc((size_t)c.size * sizeof *counts);
  if (!counts) {
    px_kernel_fault(l, PX_FAULT_NOMEM, c.size * 8, 0, 0);
    return PX_OK;
  }
  count(&c, counts);
  px__cpu_convert(out->data, px__cpu_item[out->dtype], out->dtype, counts, 8, PX_INT64, c.size);
  free(counts);
  return PX_OK;
}
