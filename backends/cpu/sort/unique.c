// SPDX-License-Identifier: Apache-2.0
// The kernel "distinct": distinct elements in order, with their counts; and "kinds": elements that
// differ from their predecessor (unique_consecutive).
//
// If there are few distinct elements, they are counted in a hash table and only they are sorted.
// Otherwise all elements are sorted. Each thread counts a part, and the tables are merged in order.
// Of equal elements (zeros) the first is returned. NaN is not equal to itself.
#include "cpu/threads/buffer.h"
#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/sort/sort_keys.h"
#include "cpu/threads/threads.h"
#include "kernel_args/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum {
  BLOCK = 512,          // keys loaded at a time
  MAX_DISTINCT = 4096,  // max distinct elements of a hash table
  PARTS = 16,           // max parts
  MIN_PART = 65536      // min elements of a part
};

typedef struct source {
  const char *at;
  int64_t stride, n;  // bytes, elements
  int dtype;
  bool has_nan;
  int64_t nan;  // the key of NaN
} source;
static void load(const source *s, int64_t *keys, int64_t first, int64_t n) {
  px__keys_load(keys, s->at + first * s->stride, s->stride, s->dtype, false, n);
}

// ---- few distinct elements

typedef struct slot {
  int64_t key, count, first;  // count 0: empty
} slot;
typedef struct table {
  slot *slots;
  int64_t used;
  int bits;
  bool failed;  // too many elements, NaN, or out of memory
} table;

static inline uint64_t hash_slot(const table *t, int64_t key) {
  return ((uint64_t)key * 0x9e3779b97f4a7c15u) >> (64 - t->bits);
}
static slot *find(const table *t, int64_t key) {
  uint64_t at = hash_slot(t, key);
  while (t->slots[at].count && t->slots[at].key != key)
    at = (at + 1) & (((uint64_t)1 << t->bits) - 1);
  return &t->slots[at];
}
static bool grow(table *t, int bits) {
  table bigger = {calloc((size_t)1 << bits, sizeof(slot)), t->used, bits, false};
  if (!bigger.slots) return false;
  for (int64_t i = 0; t->slots && i < (int64_t)1 << t->bits; i++)
    if (t->slots[i].count) *find(&bigger, t->slots[i].key) = t->slots[i];
  free(t->slots);
  *t = bigger;
  return true;
}
static void add(table *t, int64_t key, int64_t count, int64_t first) {
  slot *s = find(t, key);
  if (s->count) {
    s->count += count;
    return;
  }
  if (t->used >= MAX_DISTINCT || (t->used * 4 >= (int64_t)1 << t->bits && !grow(t, t->bits + 2))) {
    t->failed = true;
    return;
  }
  *find(t, key) = (slot){key, count, first};
  t->used++;
}

typedef struct counting {
  const source *s;
  int64_t part;
  bool failed;  // atomic: one table gave up, so others need not start
  table tables[PARTS];
} counting;

static void count_part(const source *s, table *t, int64_t begin, int64_t end) {
  PX__BUFFER(int64_t, keys, BLOCK);
  t->failed = !grow(t, 6);
  int64_t work = 0;
  for (int64_t i = begin; i < end && !t->failed; i += BLOCK) {
    int64_t n = end - i < BLOCK ? end - i : BLOCK;
    t->failed = px__work_stopped(&work, n);
    load(s, keys, i, n);
    for (int64_t k = 0; k < n && !t->failed; k++) {
      slot *likely = &t->slots[hash_slot(t, keys[k])];
      if (likely->key == keys[k] && likely->count) {
        likely->count++;
        continue;
      }
      t->failed = s->has_nan && keys[k] == s->nan;
      add(t, keys[k], 1, i + k);
    }
  }
}
static void count_parts(void *context, int64_t begin, int64_t end) {
  counting *c = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * c->part, to = from + c->part < c->s->n ? from + c->part : c->s->n;
    if (__atomic_load_n(&c->failed, __ATOMIC_RELAXED)) return;
    count_part(c->s, &c->tables[i], from, to);
    if (c->tables[i].failed) __atomic_store_n(&c->failed, true, __ATOMIC_RELAXED);
  }
}
// The table of all elements. Parts depend on the size only and are merged in order.
static void count_all(const source *s, table *all) {
  counting c = {.s = s};
  int64_t parts = s->n / MIN_PART;
  if (parts > PARTS) parts = PARTS;
  c.part = parts ? px__ceil_div(s->n, parts) : s->n;
  parts = px__ceil_div(s->n, c.part);
  px__cpu_parallel(parts, 1, count_parts, &c);
  *all = c.tables[0];
  all->failed |= !all->slots;
  for (int64_t p = 1; p < parts; p++) {
    table *t = &c.tables[p];
    all->failed |= t->failed || !t->slots;  // a skipped part has no table
    for (int64_t i = 0; !all->failed && i < (int64_t)1 << t->bits; i++)
      if (t->slots[i].count) add(all, t->slots[i].key, t->slots[i].count, t->slots[i].first);
    free(t->slots);
  }
}

// ---- results

typedef struct results {
  char *values;
  int64_t *counts, number;  // counts may be NULL
  size_t item;
} results;
static inline void copy_element(char *to, const char *from, size_t item) {
  char one[8];  // source and destination may be in the same array
  if (item == 4)
    memcpy(one, from, 4), memcpy(to, one, 4);
  else if (item == 8)
    memcpy(one, from, 8), memcpy(to, one, 8);
  else
    memmove(to, from, item);
}
static inline void emit(results *r, const source *s, int64_t first, int64_t count) {
  copy_element(r->values + (size_t)r->number * r->item, s->at + first * s->stride, r->item);
  if (r->counts) r->counts[r->number] = count;
  r->number++;
}

enum { MANY_SLOTS = 64 };  // min slots sorted by keys instead of qsort
static int by_key(const void *a, const void *b) {
  int64_t p = ((const slot *)a)->key, q = ((const slot *)b)->key;
  return p < q ? -1 : p > q;
}
// Stores the slots in key order. Returns false if out of memory or interrupted.
static bool emit_sorted_slots(results *r, const source *s, const slot *slots, int64_t n) {
  int64_t *keys = malloc((size_t)n * 2 * sizeof *keys), *order = NULL;
  px__key_counts *counts = malloc(sizeof *counts);
  for (int64_t i = 0; keys && i < n; i++) keys[i] = slots[i].key;
  if (keys && counts) order = px__keys_order(keys, n, keys + n, counts);
  for (int64_t i = 0; order && i < n; i++) emit(r, s, slots[order[i]].first, slots[order[i]].count);
  free(keys);
  free(counts);
  return order;
}
static void emit_few(results *r, const source *s, table *t) {
  int64_t n = 0;
  for (int64_t i = 0; i < (int64_t)1 << t->bits; i++)
    if (t->slots[i].count) t->slots[n++] = t->slots[i];
  if (n >= MANY_SLOTS && emit_sorted_slots(r, s, t->slots, n)) return;
  qsort(t->slots, (size_t)n, sizeof *t->slots, by_key);
  for (int64_t i = 0; i < n; i++) emit(r, s, t->slots[i].first, t->slots[i].count);
}

// Keeps the first value of each run and counts the runs, by C's comparison: zeros are equal, every
// NaN is distinct. Continues with values [i, n) after `written` values; *last is the value before i
// and is updated. `values` and `from` may be the same array.
typedef int64_t (*keep_fn)(void *values, const void *from, int64_t i, int64_t written, int64_t n,
                           void *last);
#define KEEP_RUN_STARTS(name, type) \
  static int64_t name(void *values, const void *from, int64_t i, int64_t written, int64_t n, \
                      void *last) { \
    type *v = values, before = *(type *)last; \
    const type *e = from; \
    for (; i < n; i++) { \
      type one = e[i]; \
      v[written] = one; \
      written += one != before; \
      before = one; \
    } \
    *(type *)last = before; \
    return written; \
  }
KEEP_RUN_STARTS(keep_f32, float)
KEEP_RUN_STARTS(keep_f64, double)
KEEP_RUN_STARTS(keep_i8, int8_t)
KEEP_RUN_STARTS(keep_i16, int16_t)
KEEP_RUN_STARTS(keep_i32, int32_t)
KEEP_RUN_STARTS(keep_i64, int64_t)
static const keep_fn keep_fns[PX_DTYPE_COUNT] = {
    [PX_FLOAT32] = keep_f32, [PX_FLOAT64] = keep_f64, [PX_UINT8] = keep_i8, [PX_INT8] = keep_i8,
    [PX_INT16] = keep_i16,   [PX_INT32] = keep_i32,   [PX_INT64] = keep_i64};
// Vector variant. Stores past the kept values do not run ahead of the reads.
#if defined(__AVX2__)
#define KEEP_WIDE(name, type, bits, MASK, DIFFERS) \
  __attribute__((target("avx512f"))) static int64_t name##_wide( \
      void *values, const void *from, int64_t i, int64_t written, int64_t n, void *last) { \
    enum { LANES = 512 / bits }; \
    type *v = values, lanes[LANES]; \
    const type *e = from; \
    lanes[LANES - 1] = *(type *)last; \
    __m512i before = _mm512_loadu_si512(lanes); \
    for (; i + LANES <= n; i += LANES) { \
      __m512i at = _mm512_loadu_si512(e + i); \
      MASK differ = DIFFERS(at, _mm512_alignr_epi##bits(at, before, LANES - 1)); \
      _mm512_storeu_si512(v + written, _mm512_maskz_compress_epi##bits(differ, at)); \
      written += __builtin_popcount(differ); \
      before = at; \
    } \
    _mm512_storeu_si512(lanes, before); \
    *(type *)last = lanes[LANES - 1]; \
    return name(values, from, i, written, n, last); \
  }
#define DIFFER_F32(a, b) _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_NEQ_UQ)
#define DIFFER_F64(a, b) _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_NEQ_UQ)
KEEP_WIDE(keep_f32, float, 32, __mmask16, DIFFER_F32)
KEEP_WIDE(keep_f64, double, 64, __mmask8, DIFFER_F64)
KEEP_WIDE(keep_i32, int32_t, 32, __mmask16, _mm512_cmpneq_epi32_mask)
KEEP_WIDE(keep_i64, int64_t, 64, __mmask8, _mm512_cmpneq_epi64_mask)
static const keep_fn keep_fns_wide[PX_DTYPE_COUNT] = {[PX_FLOAT32] = keep_f32_wide,
                                                      [PX_FLOAT64] = keep_f64_wide,
                                                      [PX_INT32] = keep_i32_wide,
                                                      [PX_INT64] = keep_i64_wide};
#else
static const keep_fn keep_fns_wide[PX_DTYPE_COUNT];
#endif
static keep_fn keep_of(int dtype) {
  bool wide = px_cpu_level_used() >= PX_CPU_AVX512;
  return wide && keep_fns_wide[dtype] ? keep_fns_wide[dtype] : keep_fns[dtype];
}
static int64_t keep_first(keep_fn keep, void *values, const void *from, int64_t item, int64_t n) {
  _Alignas(8) char last[8];
  int64_t written = 1;
  memcpy(last, from, (size_t)item);
  memmove(values, from, (size_t)item);
  for (px__steps s = {.n = n - 1}; px__step(&s);)
    written = keep(values, from, s.begin + 1, written, s.end + 1, last);
  return written;
}

// The same by keys, with the length of each run.
static void emit_runs(results *r, const source *sorted) {
  PX__BUFFER(int64_t, keys, BLOCK);
  int64_t next = 0, work = 0;
  int64_t first = 0, last = 0;  // of a run: index and key
  for (int64_t i = 0; i < sorted->n; i += next) {
    next = sorted->n - i < BLOCK ? sorted->n - i : BLOCK;
    load(sorted, keys, i, next);
    for (int64_t k = 0; k < next; k++) {
      if (i + k > 0 && keys[k] == last && !(sorted->has_nan && last == sorted->nan)) continue;
      if (i + k > 0) emit(r, sorted, first, i + k - first);
      first = i + k, last = keys[k];
    }
    if (px__work_stopped(&work, next)) break;
  }
  emit(r, sorted, first, sorted->n - first);
}

// Sorts all elements in the result array, then removes duplicates.
static bool emit_sorted(results *r, const source *s) {
  int64_t *scratch = malloc((size_t)s->n * 3 * sizeof *scratch);
  px__key_counts *counts = malloc(sizeof *counts);
  const source sorted = {r->values, (int64_t)r->item, s->n, s->dtype, s->has_nan, s->nan};
  const px__line to = {r->values, (int64_t)r->item, s->dtype},
                 from = {(char *)s->at, s->stride, s->dtype};
  bool fine = scratch && counts && px__values_sort(&to, &from, s->n, scratch, counts);
  keep_fn keep = keep_of(s->dtype);
  if (fine && !r->counts && keep)
    r->number = keep_first(keep, r->values, r->values, (int64_t)r->item, s->n);
  else if (fine)
    emit_runs(r, &sorted);
  free(scratch);
  free(counts);
  return fine;
}

// `values` and `counts` (optional) have capacity for all elements.
PX_KERNEL(distinct) {
  const px_operand *in = args->self;
  int64_t item = px__cpu_item[in->dtype];
  source s = {in->data, in->strides[0] * item, in->sizes[0], in->dtype, false, 0};
  results r = {args->values->data, args->counts->data, 0, (size_t)item};
  table few_distinct = {0};
  if (px_dtype_is_float((px_dtype)in->dtype)) {
    char nan[8];
    px_scalar_store(px_float(NAN), (px_dtype)in->dtype, nan);
    px__keys_load(&s.nan, nan, item, in->dtype, false, 1);
    s.has_nan = true;
  }
  count_all(&s, &few_distinct);
  if (!few_distinct.failed)
    emit_few(&r, &s, &few_distinct);
  else if (!emit_sorted(&r, &s))
    px_kernel_fault(l, PX_FAULT_NOMEM, s.n * 16, 0, 0);
  free(few_distinct.slots);
  *(int64_t *)args->number->data = r.number;
  return PX_OK;
}

// Marks the runs of elements [i, n): ends[run] is the end of a run so far, where[i] the run of
// element i. `run` is the run of the previous element. Either list may be NULL.
typedef int64_t (*mark_fn)(const void *from, int64_t i, int64_t n, int64_t run, int64_t *ends,
                           int64_t *where);
#define MARK_RUNS(name, type) \
  static int64_t name(const void *from, int64_t i, int64_t n, int64_t run, int64_t *ends, \
                      int64_t *where) { \
    const type *e = from; \
    for (; i < n; i++) { \
      run += i > 0 && e[i] != e[i - 1]; \
      if (ends) ends[run] = i + 1; \
      if (where) where[i] = run; \
    } \
    return run; \
  }
MARK_RUNS(mark_f32, float)
MARK_RUNS(mark_f64, double)
MARK_RUNS(mark_i8, int8_t)
MARK_RUNS(mark_i16, int16_t)
MARK_RUNS(mark_i32, int32_t)
MARK_RUNS(mark_i64, int64_t)
static const mark_fn mark_fns[PX_DTYPE_COUNT] = {
    [PX_FLOAT32] = mark_f32, [PX_FLOAT64] = mark_f64, [PX_UINT8] = mark_i8, [PX_INT8] = mark_i8,
    [PX_INT16] = mark_i16,   [PX_INT32] = mark_i32,   [PX_INT64] = mark_i64};

// The first element of each run of a contiguous tensor, the lengths of runs, and the run of each
// element.
PX_KERNEL(kinds) {
  const px_operand *in = args->self;
  int64_t *counts = args->counts->data, *where = args->where->data, n = in->sizes[0], run = 0;
  int64_t written =
      keep_first(keep_of(in->dtype), args->values->data, in->data, px__cpu_item[in->dtype], n);
  *(int64_t *)args->number->data = written;
  if (!counts && !where) return PX_OK;
  for (px__steps s = {.n = n}; px__step(&s);)
    run = mark_fns[in->dtype](in->data, s.begin, s.end, run, counts, where);
  for (int64_t i = written - 1; counts && i > 0; i--) counts[i] -= counts[i - 1];
  return PX_OK;
}
