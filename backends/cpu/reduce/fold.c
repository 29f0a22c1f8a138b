// SPDX-License-Identifier: Apache-2.0
// Runs a fold over the operands of a launch.
//
// If the inputs of one result are contiguous, rows are folded one after the other; if those of
// neighbouring results are, columns are folded together. A long fold into few results is cut into
// at most 256 parts by its length alone. The pool folds the parts; they are merged in order.
//
// The input of a fold at the end of a chain has no memory. The chain computes it in blocks, as
// other inputs are converted in blocks.
#include "cpu/threads/buffer.h"
#include "cpu/reduce/fold.h"

#include "cpu/loop/chain.h"
#include "cpu/reduce/reduced_dims.h"
#include "cpu/threads/threads.h"

enum {
  PARTS = 256,         // max parts of a long fold
  MIN_PART = 65536,    // min elements of a part
  CHUNK = 1024,        // max columns folded together
  CONVERTED_ROWS = 4,  // converted rows at a time
  PARALLEL = 32768     // min elements for the pool
};
enum { WIDEN_PERIOD = 64 };  // rows accumulated in T before widening
enum {
  STRIP = 16384,            // elements of a strip of rows
  MAX_STRIP_COLUMNS = 256,  // max columns of strips
  MAX_STRIP_SUMS = 4096,    // max sums of all strips
  MERGED_COLUMNS = 128      // columns of contiguous rows treated as one
};
enum { ROWS_AT_ONCE = 64 };  // rows stored together
enum { MIN_COLUMNS = 32 };   // min columns per thread: two cache lines of float

typedef union wide {  // an accumulator of type D
  double f, complex[2];
  int64_t i;
} wide;
typedef struct plan {
  const px_launch *l;
  const px__cpu_fold *f;
  const char *in;  // of a chain: an offset from START
  char *out;
  int in_dtype, out_dtype;
  px__axes x;
  int64_t part;   // elements, or rows, per part of a long fold
  int64_t chunk;  // columns folded together
  wide *parts;
} plan;

// ---- loads

static const char START[1];

// Computes n contiguous elements of a chain and converts them to the fold's dtype.
static void read_chain(const plan *p, char *to, const char *at, int64_t n) {
  int64_t item = px__cpu_item[p->in_dtype], wanted = px__cpu_item[p->f->dtype];
  int64_t first = (int64_t)((uintptr_t)at - (uintptr_t)START) / item;
  if (p->in_dtype == p->f->dtype) {
    px__cpu_chain_read(p->l->chain, to, first, n);
    return;
  }
  PX__BUFFER(wide, made, PX__CPU_BLOCK);
  for (int64_t i = 0; i < n; i += PX__CPU_BLOCK) {
    int64_t count = n - i < PX__CPU_BLOCK ? n - i : PX__CPU_BLOCK;
    px__cpu_chain_read(p->l->chain, made, first + i, count);
    px__cpu_convert(to + i * wanted, wanted, p->f->dtype, made, item, p->in_dtype, count);
  }
}
// Converts n elements, `stride` bytes apart, into a contiguous array of the fold's dtype.
static void load(const plan *p, void *to, const char *at, int64_t stride, int64_t n) {
  if (p->l->chain)
    read_chain(p, to, at, n);
  else
    px__cpu_convert(to, px__cpu_item[p->f->dtype], p->f->dtype, at, stride, p->in_dtype, n);
}

// ---- rows

// The function that folds contiguous elements without conversion; NULL: conversion needed.
static px__cpu_fold_rows direct_rows(const plan *p) {
  bool bfloat = p->in_dtype == PX_BFLOAT16, half = bfloat || p->in_dtype == PX_FLOAT16;
  if (p->l->chain || p->x.reduced[0].in != px__cpu_item[p->in_dtype]) return NULL;
  if (p->in_dtype == p->f->dtype) return p->f->rows;
  return half ? p->f->half_rows[bfloat] : NULL;
}
// Folds n elements along the innermost reduced axis.
static void fold_run(const plan *p, wide *sum, const char *at, int64_t n) {
  int64_t stride = p->x.reduced[0].in;
  px__cpu_fold_rows direct = direct_rows(p);
  if (direct) {
    direct(sum, at, 0, 1, n);
    return;
  }
  PX__BUFFER(wide, buffer, PX__CPU_BLOCK);
  for (int64_t i = 0; i < n; i += PX__CPU_BLOCK) {
    int64_t count = n - i < PX__CPU_BLOCK ? n - i : PX__CPU_BLOCK;
    load(p, buffer, at + i * stride, stride, count);
    p->f->rows(sum, (const char *)buffer, 0, 1, count);
  }
}

// Folds the elements [begin, end) of one result.
static void fold_span(const plan *p, wide *sum, const char *base, int64_t begin, int64_t end) {
  int64_t inner = p->x.reduced[0].size, work = 0;
  while (begin < end) {
    int64_t k = begin % inner, n = inner - k < end - begin ? inner - k : end - begin;
    if (n > PX__STEP) n = PX__STEP;
    fold_run(p, sum,
             base + px__axes_offset_of(p->x.reduced, 1, p->x.reduced_count, begin / inner).in +
                 k * p->x.reduced[0].in,
             n);
    begin += n;
    if (begin < end && px__work_stopped(&work, n)) return;
  }
}

static void store(const plan *p, int64_t result, int64_t stride, wide *sums, int64_t n) {
  p->f->finish(sums, n, p->x.length, p->l);
  px__cpu_convert(p->out + result, stride, p->out_dtype, sums, px__cpu_item[p->f->wide], p->f->wide,
                  n);
}

// Folds n short adjacent rows of a chain, several with one load.
static void fold_short_rows(const plan *p, wide *sums, const char *in, int64_t n) {
  PX__BUFFER(wide, buffer, PX__CPU_BLOCK);
  int64_t length = p->x.length, most = PX__CPU_BLOCK / length, item = px__cpu_item[p->f->dtype];
  for (int64_t i = 0; i < n; i += most) {
    int64_t count = n - i < most ? n - i : most;
    load(p, buffer, in + i * p->x.kept[0].in, 0, count * length);
    p->f->rows((char *)sums + i * px__cpu_item[p->f->wide], (const char *)buffer, length * item,
               count, length);
  }
}

// Folds and stores up to ROWS_AT_ONCE rows of neighbouring results.
static void fold_neighbours(const plan *p, px__axes_offset at, int64_t n) {
  wide sums[ROWS_AT_ONCE];
  int64_t step = p->x.kept[0].in;
  px__cpu_fold_rows direct = p->x.reduced_count == 1 ? direct_rows(p) : NULL;
  bool adjacent = p->x.reduced_count == 1 && step == p->x.length * px__cpu_item[p->in_dtype];
  p->f->identity(sums, n);
  if (direct && p->x.length * n <= PX__STEP)
    direct(sums, p->in + at.in, step, n, p->x.length);
  else if (p->l->chain && adjacent && p->x.length <= PX__CPU_BLOCK / 2)
    fold_short_rows(p, sums, p->in + at.in, n);
  else
    for (int64_t i = 0; i < n; i++)
      fold_span(p, (wide *)(void *)((char *)sums + i * px__cpu_item[p->f->wide]),
                p->in + at.in + i * step, 0, p->x.length);
  store(p, at.out, p->x.kept[0].out, sums, n);
}
static void rows(void *context, int64_t begin, int64_t end) {
  const plan *p = context;
  int64_t width = p->x.kept[0].size;
  while (begin < end) {
    int64_t left = width - begin % width, n = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
    if (n > end - begin) n = end - begin;
    fold_neighbours(p, px__axes_offset_of(p->x.kept, 0, p->x.kept_count, begin), n);
    begin += n;
  }
}

// True if all results have the same inputs (such as the expanded gradient of a sum).
static bool share_inputs(const plan *p) {
  for (int d = 0; d < p->x.kept_count; d++)
    if (p->x.kept[d].in != 0) return false;
  return p->x.results > 1;
}

// Computes one result and copies it to the others, row by row.
static void fold_once(const plan *p) {
  wide sum;
  p->f->identity(&sum, 1);
  fold_span(p, &sum, p->in, 0, p->x.length);
  store(p, 0, 0, &sum, 1);
  const px__axis *inner = &p->x.kept[0];
  for (int64_t r = 0; r < p->x.results; r += inner->size)
    px__cpu_convert(p->out + px__axes_offset_of(p->x.kept, 0, p->x.kept_count, r).out, inner->out,
                    p->out_dtype, p->out, 0, p->out_dtype, inner->size);
}

// ---- one long fold

static void parts(void *context, int64_t begin, int64_t end) {
  plan *p = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * p->part, to = from + p->part;
    p->f->identity(&p->parts[i], 1);
    fold_span(p, &p->parts[i], p->in, from, to < p->x.length ? to : p->x.length);
  }
}

static void long_fold(plan *p) {
  PX__BUFFER(wide, sums, PARTS);
  const char *base = p->in;
  p->parts = sums;
  int64_t count = p->x.length / MIN_PART;
  if (count > PARTS) count = PARTS;
  p->part = px__ceil_div(p->x.length, count);
  p->part = px__ceil_div(p->part, PX__CPU_BLOCK) * PX__CPU_BLOCK;
  count = px__ceil_div(p->x.length, p->part);
  for (int64_t r = 0; r < p->x.results; r++) {
    p->in = base + px__axes_offset_of(p->x.kept, 0, p->x.kept_count, r).in;
    px__cpu_parallel(count, 1, parts, p);
    for (int64_t i = 1; i < count; i++) p->f->merge(&p->parts[0], &p->parts[i], 1);
    store(p, px__axes_offset_of(p->x.kept, 0, p->x.kept_count, r).out, 0, &p->parts[0], 1);
  }
}

// ---- columns

// Address of row i of a chunk that starts at `in`.
static const char *row_at(const plan *p, const char *in, int64_t i) {
  if (p->x.reduced_count == 1) return in + i * p->x.reduced[0].in;
  return in + px__axes_offset_of(p->x.reduced, 0, p->x.reduced_count, i).in;
}
// The function that folds contiguous columns without conversion; NULL: conversion needed.
static px__cpu_fold_rows direct_columns(const plan *p) {
  bool bfloat = p->in_dtype == PX_BFLOAT16, half = bfloat || p->in_dtype == PX_FLOAT16;
  if (p->l->chain || p->x.kept[0].in != px__cpu_item[p->in_dtype]) return NULL;
  if (p->in_dtype == p->f->dtype) return p->f->columns;
  return half ? p->f->half_columns[bfloat] : NULL;
}
// Converts rows [i, i + count) of n columns into a contiguous array.
static void load_rows(const plan *p, void *buffer, const char *in, int64_t i, int64_t count,
                      int64_t n, int64_t step) {
  int64_t item = px__cpu_item[p->f->dtype], stride = p->x.kept[0].in;
  bool dense = p->x.reduced_count == 1 && step == n * stride;
  int64_t at_once = dense ? count : 1;
  for (int64_t k = 0; k < count; k += at_once) {
    const char *row = p->x.reduced_count == 1 ? in + (i + k) * step : row_at(p, in, i + k);
    load(p, (char *)buffer + k * n * item, row, stride, at_once * n);
  }
}
// Folds n columns of the rows [first, end) into `sums`. Rows along a single axis are `step` apart.
// Returns false if interrupted.
static bool fold_rows(const plan *p, wide *sums, const char *in, int64_t first, int64_t end,
                      int64_t n, int64_t step) {
  PX__BUFFER(wide, narrow, (1 + CONVERTED_ROWS) * CHUNK);
  wide *buffer = narrow + CHUNK;
  int64_t item = px__cpu_item[p->f->dtype];
  px__cpu_fold_rows direct = direct_columns(p);
  int64_t most = !direct ? CONVERTED_ROWS : p->x.reduced_count == 1 ? WIDEN_PERIOD : 1;
  p->f->identity(sums, n);
  p->f->clear(narrow, n);
  for (int64_t i = first, rows; i < end; i += rows) {
    int64_t left = WIDEN_PERIOD - (i - first) % WIDEN_PERIOD;  // rows until the next widening
    rows = left < most ? left : most;
    if (end - i < rows) rows = end - i;
    const char *at = p->x.reduced_count == 1 ? in + i * step : row_at(p, in, i);
    if (!direct) load_rows(p, buffer, in, i, rows, n, step);
    if (direct)
      direct(narrow, at, step, rows, n);
    else
      p->f->columns(narrow, (char *)buffer, n * item, rows, n);
    if (rows < left) continue;
    p->f->widen(sums, narrow, n);
    if (px__cpu_stopped()) return false;
  }
  p->f->widen(sums, narrow, n);
  return true;
}
static void fold_chunk(const plan *p, const char *in, int64_t result, int64_t n) {
  PX__BUFFER(wide, sums, CHUNK);
  if (fold_rows(p, sums, in, 0, p->x.length, n, p->x.reduced[0].in))
    store(p, result, p->x.kept[0].out, sums, n);
}

// Pieces of the innermost kept axis, for each index of the other kept axes.
static void columns(void *context, int64_t begin, int64_t end) {
  const plan *p = context;
  int64_t width = p->x.kept[0].size, chunk = p->chunk, pieces = px__ceil_div(width, chunk);
  for (int64_t i = begin; i < end; i++) {
    int64_t j = i % pieces * chunk, n = width - j < chunk ? width - j : chunk;
    int64_t in = px__axes_offset_of(p->x.kept, 1, p->x.kept_count, i / pieces).in;
    int64_t out = px__axes_offset_of(p->x.kept, 1, p->x.kept_count, i / pieces).out;
    fold_chunk(p, p->in + in + j * p->x.kept[0].in, out + j * p->x.kept[0].out, n);
  }
}

// Columns are independent, so the chunk size does not affect results: it is halved until every
// thread has work.
static void run_columns(plan *p, bool shared) {
  int64_t width = p->x.kept[0].size, others = p->x.results / width, items;
  int64_t wanted = shared ? 2 * px__cpu_thread_count() : 1;
  for (p->chunk = CHUNK;; p->chunk /= 2) {
    items = others * px__ceil_div(width, p->chunk);
    if (items >= wanted || p->chunk == MIN_COLUMNS) break;
  }
  px__cpu_parallel(items, shared ? 1 : items, columns, p);
}

static wide *sum_at(const plan *p, wide *sums, int64_t k) {
  return (wide *)(void *)((char *)sums + k * px__cpu_item[p->f->wide]);
}
static wide *strip_of(const plan *p, int64_t i) { return p->parts + i * p->x.kept[0].size; }
// Number of parts of the rows for narrow columns; less than two: not split.
static int64_t strip_count(const plan *p) {
  int64_t width = p->x.kept[0].size, count, most;
  if (width > MAX_STRIP_COLUMNS || p->x.results >= 16 * width) return 1;
  count = px__axes_product(p->x.length, width) / STRIP, most = MAX_STRIP_SUMS / width;
  return count < most ? count : most;
}
// Contiguous rows are folded as fewer, longer rows: the number of rows per longer row.
static int64_t rows_per_merged(const plan *p) {
  int64_t n = p->x.kept[0].size, step = p->x.reduced[0].in;
  bool dense = p->x.reduced_count == 1 && step == n * p->x.kept[0].in;
  return dense && n < MERGED_COLUMNS ? MERGED_COLUMNS / n : 1;
}
// Narrow columns with many rows are split into parts of the rows by the shape alone, and merged in
// order. p->parts holds the sums of all parts, part by part.
static void strips(void *context, int64_t begin, int64_t end) {
  plan *p = context;
  PX__BUFFER(wide, sums, MERGED_COLUMNS);
  int64_t n = p->x.kept[0].size, length = p->x.length, step = p->x.reduced[0].in,
          m = rows_per_merged(p);
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * p->part, to = from + p->part < length ? from + p->part : length;
    int64_t merged = m > 1 ? (to - from) / m : 0;
    wide *strip_sums = strip_of(p, i);
    fold_rows(p, strip_sums, p->in, from + merged * m, to, n, step);
    if (merged == 0) continue;
    fold_rows(p, sums, p->in + from * step, 0, merged, m * n, m * step);
    for (int64_t k = 0; k < m; k++) p->f->merge(strip_sums, sum_at(p, sums, k * n), n);
  }
}
static void long_columns(plan *p) {
  PX__BUFFER(wide, sums, MAX_STRIP_SUMS);
  const char *base = p->in;
  int64_t width = p->x.kept[0].size, count = strip_count(p);
  p->parts = sums, p->part = px__ceil_div(p->x.length, count);
  count = px__ceil_div(p->x.length, p->part);
  for (int64_t r = 0; r < p->x.results && !px__cpu_stopped(); r += width) {
    px__axes_offset at = px__axes_offset_of(p->x.kept, 0, p->x.kept_count, r);
    p->in = base + at.in;
    px__cpu_parallel(count, 1, strips, p);
    for (int64_t i = 1; i < count; i++) p->f->merge(sums, strip_of(p, i), width);
    store(p, at.out, p->x.kept[0].out, sums, width);
  }
}

// True if inputs of neighbouring results are closer in memory than those of one result.
static bool reduces_outer(const plan *p) {
  return px__abs_stride(p->x.kept[0].in) < px__abs_stride(p->x.reduced[0].in);
}
static void run(plan *p) {
  int64_t work = p->x.results * p->x.length, width = p->x.kept[0].size;
  bool by_column = width >= 8 && (p->x.length == 1 || (p->x.length > 1 && reduces_outer(p)));
  if (p->x.length < 2 * MIN_PART && share_inputs(p)) {
    fold_once(p);
  } else if (by_column && strip_count(p) >= 2) {
    long_columns(p);
  } else if (by_column) {
    run_columns(p, work > PARALLEL);
  } else if (p->x.length >= 2 * MIN_PART && p->x.results < 16) {
    long_fold(p);
  } else {
    int64_t grain = PARALLEL / (p->x.length ? p->x.length : 1) + 1;
    px__cpu_parallel(p->x.results, work > PARALLEL ? grain : p->x.results, rows, p);
  }
}

px_status px__cpu_fold_run(const px_launch *l, const px__cpu_fold *const *folds) {
  int c = l->compute;
  bool narrow = c == PX_FLOAT16 || c == PX_BFLOAT16;
  bool whole = px_dtype_is_integer((px_dtype)c) || c == PX_BOOL;
  int as = c == PX_BOOL ? PX_UINT8 : narrow ? PX_FLOAT32 : c;
  const px__cpu_fold *f = whole && !folds[as] ? folds[PX_INT64] : folds[as];
  if (!f)
    return px_error_set(PX_UNIMPLEMENTED, 0, __FILE__, __LINE__, __func__,
                        "\"%s\" not implemented for '%s'", l->op, px_dtype_class((px_dtype)c));
  const px_operand *out = &l->operands[0], *in = &l->operands[l->operand_count - 1];
  plan p;  // axes are left uninitialized: small folds are frequent
  p.l = l, p.f = f, p.in = l->chain ? START : in->data, p.out = out->data;
  p.in_dtype = in->dtype, p.out_dtype = out->dtype;
  // max and min of nonzero bytes are nonzero, as required for bool.
  if (in->dtype == PX_BOOL && f->dtype == PX_UINT8) p.in_dtype = PX_UINT8;
  px__axes_load(&p.x, out, NULL, in, true);
  if (p.x.results > 0) run(&p);
  return PX_OK;
}
