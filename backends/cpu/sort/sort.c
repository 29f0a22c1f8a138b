// SPDX-License-Identifier: Apache-2.0
// Sorting along a dimension, topk and kthvalue. Lines are sorted independently; threads share the
// lines. Also the kernels that gather and scatter elements by sorted indices.
//
// Sorts are stable, so results do not depend on the method.
#include "cpu/convert/dense.h"
#include "cpu/convert/lines.h"
#include "cpu/sort/sort_keys.h"
#include "cpu/vector/simd.h"
#include "cpu/threads/threads.h"
#include "cpu/vector/loop_hints.h"
#include "kernel_args/sort.h"

#include <stdlib.h>
#include <string.h>

enum {
  BLOCK = 64,         // keys loaded at a time by topk
  MAX_KEY_ARRAYS = 3  // key arrays of a thread
};
enum {
  INTERLEAVED = 16,                   // interleaved lines sorted together
  MAX_INTERLEAVED_BYTES = 512 * 1024  // max bytes of them
};

typedef struct scratch {
  int64_t *keys_scratch[MAX_KEY_ARRAYS];  // arrays of job.hold keys
  px__key_counts *counts;
  char *interleaved;  // two arrays of INTERLEAVED lines, or NULL
} scratch;
typedef struct lines {
  px__line values, indices, in;
} lines;
enum { VALUES, INDICES, IN, OPERANDS };
typedef struct job {
  const px_operand *operands[OPERANDS];
  // Writes a line of the results. False: out of memory or interrupted.
  bool (*line)(const struct job *t, const lines *x, scratch *s);
  int64_t size, take, skip;  // of a line: elements; elements requested; index of the requested one
  int64_t capacity;          // keys kept at a time
  int dim, key_arrays;
  int64_t interleaved;  // number of interleaved lines; 0: none
  bool down, failed;
} job;

// ---- a line

// Copies elements and indices by the order `at`.
#define COPY_BY_ORDER(T) \
  for (int64_t i = begin; i < end; i++) \
    *(T *)(void *)(to.at + i * to.stride) = \
        *(const T *)(const void *)(from.at + at[i] * from.stride);
static void store_part(const lines *x, const int64_t *at, int64_t begin, int64_t end) {
  px__line to = x->values, where = x->indices, from = x->in;
  switch (px__cpu_item[from.dtype]) {
    case 1:
      COPY_BY_ORDER(uint8_t) break;
    case 2:
      COPY_BY_ORDER(uint16_t) break;
    case 4:
      COPY_BY_ORDER(uint32_t) break;
    default:
      COPY_BY_ORDER(uint64_t)
  }
  for (int64_t i = begin; i < end; i++) *(int64_t *)(void *)(where.at + i * where.stride) = at[i];
}
// If each element is on a page of its own, page faults dominate: polls more often.
enum { PAGE = 4096, PAGE_STEP = 16 };
static void store_order(const lines *x, const int64_t *at, int64_t n) {
  int64_t step = x->indices.stride < PAGE ? PX__STEP : PAGE_STEP;
  for (int64_t i = 0, end; i < n && (i == 0 || !px__cpu_stopped()); i = end) {
    end = n - i < step ? n : i + step;
    store_part(x, at, i, end);
  }
}

static void load(const job *t, const lines *x, int64_t *keys, int64_t first, int64_t n) {
  px__line in = x->in;
  px__keys_load(keys, in.at + first * in.stride, in.stride, in.dtype, t->down, n);
}

static bool sort_line(const job *t, const lines *x, scratch *s) {
  load(t, x, s->keys_scratch[0], 0, t->size);
  const int64_t *order = px__keys_order(s->keys_scratch[0], t->size, s->keys_scratch[1], s->counts);
  if (order) store_order(x, order, t->take);
  return order != NULL;
}

static bool values_line(const job *t, const lines *x, scratch *s) {
  return px__values_sort(&x->values, &x->in, t->size, s->keys_scratch[0], s->counts);
}

// Index of the key with `equals` equal keys before it; -1: interrupted.
static int64_t index_of_key(const int64_t *keys, int64_t n, int64_t key, int64_t equals) {
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++)
      if (keys[i] == key && equals-- == 0) return i;
  return -1;
}
static bool kth_line(const job *t, const lines *x, scratch *s) {
  int64_t *keys = s->keys_scratch[0], below, key;
  load(t, x, keys, 0, t->size);
  if (!px__keys_select(&key, keys, t->size, t->skip, s->keys_scratch[1], s->counts, &below))
    return false;
  int64_t at = index_of_key(keys, t->size, key, t->skip - below);
  if (at >= 0) store_part(x, &at, 0, 1);
  return at >= 0;
}

// ---- topk: candidates are collected in index order. When the array is full, the worse ones are
// discarded. From then on only keys better than the worst kept one are candidates; an equal key has
// a larger index.

typedef struct candidates {
  int64_t *keys, *at;
  int64_t n, limit;
  bool has_limit;
} candidates;

static bool discard_worst(candidates *c, int64_t take, scratch *s) {
  int64_t below, kept = 0;
  if (!px__keys_select(&c->limit, c->keys, c->n, take - 1, s->keys_scratch[2], s->counts, &below))
    return false;
  c->has_limit = true;
  int64_t equals = take - below;
  for (px__steps p = {.n = c->n}; px__step(&p);)
    for (int64_t i = p.begin; i < p.end; i++) {
      int64_t key = c->keys[i], at = c->at[i];
      bool keep = key < c->limit || (key == c->limit && equals > 0);
      equals -= key == c->limit;
      c->keys[kept] = key, c->at[kept] = at;
      kept += keep;
    }
  c->n = kept;
  return true;
}

static void add_candidates(candidates *c, const int64_t *keys, int64_t first, int64_t n) {
  int64_t count = c->n;
  for (int64_t i = 0; i < n; i++) {
    c->keys[count] = keys[i], c->at[count] = first + i;
    count += !c->has_limit || keys[i] < c->limit;
  }
  c->n = count;
}

static bool topk_line(const job *t, const lines *x, scratch *s) {
  int64_t block[BLOCK];
  candidates c = {.keys = s->keys_scratch[0], .at = s->keys_scratch[1]};
  int64_t work = 0;
  for (int64_t i = 0; i < t->size; i += BLOCK) {
    int64_t n = t->size - i < BLOCK ? t->size - i : BLOCK;
    if (px__work_stopped(&work, n)) return false;
    if (c.n + n > t->capacity && !discard_worst(&c, t->take, s)) return false;
    load(t, x, block, i, n);
    add_candidates(&c, block, i, n);
  }
  if (c.n > t->take && !discard_worst(&c, t->take, s)) return false;
  int64_t *order = px__keys_order(c.keys, t->take, s->keys_scratch[2], s->counts);
  if (!order) return false;
  for (px__steps p = {.n = t->take}; px__step(&p);) {
    for (int64_t i = p.begin; i < p.end; i++) order[i] = c.at[order[i]];
    store_part(x, order, p.begin, p.end);
  }
  return true;
}

// ---- values of interleaved lines: sorted one by one, each element would be in its own cache line.
// They are transposed to rows, sorted, and transposed back.

// Transposes an LxL block; each round interleaves the first half of the rows with the second.
#define TRANSPOSE(T, V, L) \
  static void transpose_##V(const char *from, int64_t step, char *to, int64_t across) { \
    V x[L], y[L]; \
    for (int i = 0; i < L; i++) x[i] = V##_load((const T *)(const void *)(from + i * step)); \
    PX__CPU_UNROLLED for (int round = 1; round < L; round *= 2) { \
      PX__CPU_UNROLLED for (int i = 0; i < L / 2; i++) { \
        y[2 * i] = V##_interleave_low(x[i], x[i + L / 2]); \
        y[2 * i + 1] = V##_interleave_high(x[i], x[i + L / 2]); \
      } \
      PX__CPU_UNROLLED for (int i = 0; i < L; i++) x[i] = y[i]; \
    } \
    for (int i = 0; i < L; i++) V##_store((T *)(void *)(to + i * across), x[i]); \
  }
TRANSPOSE(float, vf, VF)
TRANSPOSE(double, vd, VD)
// Transposes a rows x columns matrix; steps are in bytes.
static void transpose(const char *from, int64_t step, char *to, int64_t across, int64_t rows,
                      int64_t columns, int64_t item) {
  int64_t lanes = item == 4 ? VF : VD;
  for (int64_t i = 0; i < rows; i += lanes)
    for (int64_t j = 0; j < columns; j += lanes) {
      const char *at = from + i * step + j * item;
      char *dest = to + j * across + i * item;
      int64_t high = rows - i < lanes ? rows - i : lanes;
      int64_t wide = columns - j < lanes ? columns - j : lanes;
      if (high == lanes && wide == lanes) {
        (item == 4 ? transpose_vf : transpose_vd)(at, step, dest, across);
        continue;
      }
      for (int64_t r = 0; r < high; r++)
        for (int64_t c = 0; c < wide; c++)
          memcpy(dest + c * across + r * item, at + r * step + c * item, (size_t)item);
    }
}
static bool sort_interleaved(const job *t, const lines *x, scratch *s) {
  int64_t item = px__cpu_item[x->in.dtype], n = t->size;
  char *to = s->interleaved + INTERLEAVED * n * item;
  transpose(x->in.at, x->in.stride, s->interleaved, n * item, n, INTERLEAVED, item);
  for (int64_t j = 0; j < INTERLEAVED; j++) {
    px__line from = {s->interleaved + j * n * item, item, x->in.dtype};
    px__line sorted = {to + j * n * item, item, x->in.dtype};
    if (!px__values_sort(&sorted, &from, n, s->keys_scratch[0], s->counts)) return false;
  }
  transpose(to, n * item, x->values.at, x->values.stride, INTERLEAVED, n, item);
  return true;
}
// Number of interleaved lines; 0 if they cannot be sorted together. The job's lines are set.
static int64_t interleaved_lines(const job *t) {
  const px_operand *in = t->operands[IN], *out = t->operands[VALUES];
  int64_t item = px__cpu_item[in->dtype];
  int last = in->ndim - 1;
  bool fits =
      t->line == values_line && item >= 4 && t->size * item * INTERLEAVED <= MAX_INTERLEAVED_BYTES;
  if (!fits || last < 0 || t->dim == last || in->dtype != out->dtype) return 0;
  return in->strides[last] == 1 && out->strides[last] == 1 ? in->sizes[last] : 0;
}

// ---- all lines

static bool scratch_new(scratch *s, const job *t) {
  s->counts = malloc(sizeof *s->counts);
  s->keys_scratch[0] = malloc((size_t)(t->capacity * t->key_arrays) * sizeof *s->keys_scratch[0]);
  for (int i = 1; s->keys_scratch[0] && i < t->key_arrays && i < MAX_KEY_ARRAYS; i++)
    s->keys_scratch[i] = s->keys_scratch[0] + i * t->capacity;
  if (t->interleaved) s->interleaved = malloc((size_t)t->size * 2 * INTERLEAVED * sizeof(int64_t));
  return s->counts && s->keys_scratch[0] && (s->interleaved || !t->interleaved);
}

static void run(void *ctx, int64_t begin, int64_t end) {
  job *t = ctx;
  scratch s = {{NULL}, NULL, NULL};
  bool fine = scratch_new(&s, t);
  for (int64_t i = begin, next; fine && i < end; i = next) {
    px__line found[OPERANDS];
    px__lines_find(found, OPERANDS, t->operands, t->operands[IN], t->dim, i);
    lines x = {found[VALUES], found[INDICES], found[IN]};
    bool together = t->interleaved && i + INTERLEAVED <= end &&
                    i % t->interleaved + INTERLEAVED <= t->interleaved;
    fine = together ? sort_interleaved(t, &x, &s) : t->line(t, &x, &s);
    next = i + (together ? INTERLEAVED : 1);
  }
  if (!fine) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  free(s.keys_scratch[0]);
  free(s.counts);
  free(s.interleaved);
}

static px_status each_line(job *t, const px_launch *l, int64_t dim) {
  const px_operand *in = t->operands[IN];
  t->dim = (int)(dim < 0 ? dim + in->ndim : dim);
  t->size = in->ndim ? in->sizes[t->dim] : 1;
  int64_t n = px_operand_numel(in);
  if (n == 0 || t->take == 0) return PX_OK;
  if (t->take < 0) t->take = t->size;
  t->capacity = t->size, t->key_arrays = t->line == values_line ? 3 : 2;
  // If more than half are requested, sorts all.
  if (t->line == topk_line && t->take > t->size / 2) t->line = sort_line;
  if (t->line == topk_line) {
    t->key_arrays = 3;
    if (2 * (t->take + BLOCK) < t->size) t->capacity = 2 * (t->take + BLOCK);
  }
  t->interleaved = interleaved_lines(t);
  px__cpu_parallel(n / t->size, 4096 / (t->size + 1) + 1, run, t);
  if (t->failed) px_kernel_fault(l, PX_FAULT_NOMEM, t->capacity * t->key_arrays * 8, 0, 0);
  return PX_OK;
}

PX_KERNEL(sort) {
  job t = {.operands = {args->values, args->indices, args->self},
           .line = sort_line,
           .take = -1,
           .down = args->descending};
  return each_line(&t, l, args->dim);
}
PX_KERNEL(sorted) {
  job t = {.operands = {args->values, args->values, args->self}, .line = values_line, .take = -1};
  return each_line(&t, l, args->dim);
}
PX_KERNEL(topk) {
  job t = {.operands = {args->values, args->indices, args->self},
           .line = topk_line,
           .take = args->k,
           .down = args->largest};
  return each_line(&t, l, args->dim);
}
PX_KERNEL(kthvalue) {
  job t = {.operands = {args->values, args->indices, args->self},
           .line = kth_line,
           .take = 1,
           .skip = args->k - 1};
  return each_line(&t, l, args->dim);
}

// ---- gather and scatter along a dimension

// A 64-bit compute dtype: floats are moved and added as double.
static int dtype_of(const px_operand *o) {
  return px_dtype_is_float((px_dtype)o->dtype) ? PX_FLOAT64 : PX_INT64;
}
// Maps element i of the indices to an offset in a tensor with lines of `size` elements. An invalid
// index is reported and returns -1.
typedef struct along {
  const int64_t *where;
  int64_t n, dim, size, count, inner;
} along;
static along along_of(px__dense *d, const px_operand *indices, const px_operand *big, int64_t dim) {
  along a = {.where = px__dense_in(d, indices, indices->dtype), .dim = dim};
  int64_t outer;
  px__split_sizes(indices, dim, &outer, &a.count, &a.inner);
  px__split_sizes(big, dim, &outer, &a.size, &a.inner);
  a.n = d->failed ? 0 : px_operand_numel(indices);
  return a;
}
static int64_t offset_of(const along *a, const px_launch *l, int64_t i) {
  int64_t at = a->where[i];
  if (at >= 0 && at < a->size)
    return (i / (a->count * a->inner) * a->size + at) * a->inner + i % a->inner;
  px_kernel_fault(l, PX_FAULT_INDEX, at, a->dim, a->size);
  return -1;
}
PX_KERNEL(pick_along) {
  px__dense d = {.launch = l};
  int dtype = dtype_of(args->out);
  uint64_t *to = px__dense_out(&d, args->out, dtype);  // bits of either type
  const uint64_t *from = px__dense_in(&d, args->self, dtype);
  along a = along_of(&d, args->indices, args->self, args->dim);
  for (px__steps s = {.n = a.n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) {
      int64_t at = offset_of(&a, l, i);
      if (at >= 0) to[i] = from[at];
    }
  px__dense_close(&d);
  return PX_OK;
}
PX_KERNEL(place_along) {
  px__dense d = {.launch = l};
  int dtype = dtype_of(args->out);
  void *to = px__dense_out(&d, args->out, dtype);
  const void *from = px__dense_in(&d, args->grad_output, dtype);
  along a = along_of(&d, args->indices, args->out, args->dim);
  size_t bytes = (size_t)px_operand_numel(args->out) * sizeof(int64_t);
  if (!d.failed && !px__cpu_clear(to, bytes)) a.n = 0;
  for (px__steps s = {.n = a.n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) {
      int64_t at = offset_of(&a, l, i);
      if (at < 0) continue;
      if (dtype == PX_FLOAT64)
        ((double *)to)[at] += ((const double *)from)[i];
      else
        ((uint64_t *)to)[at] += ((const uint64_t *)from)[i];
    }
  px__dense_close(&d);
  return PX_OK;
}

// ---- searchsorted

// Several vectors of values search a line together, so that cache misses overlap. Branch-free. Each
// value meets the same elements as in a single search, so results agree even for unsorted lines.
enum { VECTORS_AT_ONCE = 4, VALUES_AT_ONCE = VECTORS_AT_ONCE * VD };

// NaN sorts after all numbers. `before`: number of elements that precede the value.
#define SEARCH(T, V, GATHER) \
  static inline __attribute__((always_inline)) void search_##T( \
      const T *line, int64_t size, const V *values, vdi *before, bool right) { \
    vdi left[VECTORS_AT_ONCE]; \
    for (int j = 0; j < VECTORS_AT_ONCE; j++) before[j] = (vdi){0}, left[j] = before[j] + size; \
    for (int64_t n = size; n > 0; n /= 2) \
      for (int j = 0; j < VECTORS_AT_ONCE; j++) { \
        vdi half = left[j] >> 1, more = left[j] > 0; \
        V met = GATHER(line, (before[j] + half) & more), value = values[j]; \
        vdi after = (value < met) | ((met != met) & (value == value)); \
        vdi moves_right = right ? ~after : (met < value) | ((value != value) & (met == met)); \
        moves_right &= more; \
        before[j] += moves_right & (half + 1); \
        left[j] = half + (moves_right & (left[j] - 2 * half - 1)); \
      } \
  } \
  static void find_##T(const T *line, int64_t size, const T *values, int64_t n, bool right, \
                       int64_t *to) { \
    for (int64_t i = 0; i < n; i += VALUES_AT_ONCE) { \
      size_t count = n - i < VALUES_AT_ONCE ? (size_t)(n - i) : VALUES_AT_ONCE; \
      V few[VECTORS_AT_ONCE] = {{0}}; \
      vdi before[VECTORS_AT_ONCE]; \
      memcpy(few, values + i, count * sizeof *values); \
      if (right) \
        search_##T(line, size, few, before, true); \
      else \
        search_##T(line, size, few, before, false); \
      memcpy(to + i, before, count * sizeof *to); \
    } \
  }
SEARCH(double, vd, vd_gather)
SEARCH(int64_t, vdi, vdi_gather)

typedef struct searching {
  const void *lines, *values;
  int64_t *to, size, each;
  bool is_int, right;
} searching;
static void search_part(void *context, int64_t begin, int64_t end) {
  const searching *s = context;
  for (px__steps p = {.n = end - begin}; px__step(&p);)
    for (int64_t i = begin + p.begin, n, last = begin + p.end; i < last; i += n) {
      int64_t line = i / s->each * s->size, of_line = (i / s->each + 1) * s->each - i;
      n = last - i < of_line ? last - i : of_line;
      if (s->is_int)
        find_int64_t((const int64_t *)s->lines + line, s->size, (const int64_t *)s->values + i, n,
                     s->right, s->to + i);
      else
        find_double((const double *)s->lines + line, s->size, (const double *)s->values + i, n,
                    s->right, s->to + i);
    }
}
PX_KERNEL(search_lines) {
  enum { MIN_VALUES = 4096 };
  px__dense d = {.launch = l};
  const px_operand *boundaries = args->boundaries, *values = args->values;
  int dtype = dtype_of(boundaries);
  int64_t count = px_operand_numel(values);
  searching s = {.is_int = dtype == PX_INT64, .right = args->right};
  s.to = px__dense_out(&d, args->out, PX_INT64);
  s.lines = px__dense_in(&d, boundaries, dtype);
  s.values = px__dense_in(&d, values, dtype);
  s.size = boundaries->sizes[boundaries->ndim - 1];
  s.each = boundaries->ndim > 1 ? values->sizes[values->ndim - 1] : count;
  if (!d.failed && count) px__cpu_parallel(count, MIN_VALUES, search_part, &s);
  px__dense_close(&d);
  return PX_OK;
}
