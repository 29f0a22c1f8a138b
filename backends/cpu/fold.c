// SPDX-License-Identifier: Apache-2.0
// Runs a fold over the operands of a launch.
//
// Where the elements of one result lie side by side, rows are folded one after
// the other; where those of neighbouring results do, columns are folded
// together. A long fold into few results is cut into at most 256 parts, by its
// length alone, that the pool works on and that are joined in order.
#include "cpu/fold.h"

#include "cpu/axes.h"
#include "cpu/threads.h"

enum { PARTS = 256, LEAST_PART = 65536, CHUNK = 1024, FEW = 4, PARALLEL = 32768 };
enum { NARROW = 64 };  // rows that are added up before sums become wide
// Elements of a strip of rows, its most columns, and the most sums of all strips.
enum { STRIP = 16384, MOST_STRIPPED = 256, STRIP_SUMS = 4096, JOINED = 128 };
enum { TOGETHER = 64 };   // rows
enum { NARROWEST = 32 };  // columns that a thread has at least: two cache lines of float

typedef union wide {  // a D
  double f, complex[2];
  int64_t i;
} wide;
typedef struct plan {
  const px_launch *l;
  const px__cpu_fold *f;
  const char *in;
  char *out;
  int in_dtype, out_dtype;
  px__axes x;
  int64_t part;   // of a long fold
  int64_t chunk;  // columns that are folded together
  wide *parts;
} plan;

// ---- rows

// What folds the elements as they are, side by side; NULL: they are to be converted.
static px__cpu_fold_rows direct_rows(const plan *p) {
  bool bfloat = p->in_dtype == PX_BFLOAT16, half = bfloat || p->in_dtype == PX_FLOAT16;
  if (p->x.reduced[0].in != px__cpu_item[p->in_dtype]) return NULL;
  if (p->in_dtype == p->f->dtype) return p->f->rows;
  return half ? p->f->half_rows[bfloat] : NULL;
}
// Folds n elements along the innermost reduced axis.
static void fold_run(const plan *p, wide *sum, const char *at, int64_t n) {
  int64_t stride = p->x.reduced[0].in, item = px__cpu_item[p->f->dtype];
  px__cpu_fold_rows direct = direct_rows(p);
  if (direct) {
    direct(sum, at, 0, 1, n);
    return;
  }
  wide room[PX__CPU_BLOCK];
  for (int64_t i = 0; i < n; i += PX__CPU_BLOCK) {
    int64_t count = n - i < PX__CPU_BLOCK ? n - i : PX__CPU_BLOCK;
    px__cpu_convert(room, item, p->f->dtype, at + i * stride, stride, p->in_dtype, count);
    p->f->rows(sum, (const char *)room, 0, 1, count);
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

// Up to TOGETHER rows of neighbouring results, which are stored together.
static void rows_together(const plan *p, px__axes_offset at, int64_t n) {
  wide sums[TOGETHER];
  int64_t step = p->x.kept[0].in;
  px__cpu_fold_rows direct = p->x.reduced_count == 1 ? direct_rows(p) : NULL;
  p->f->identity(sums, n);
  if (direct && p->x.length * n <= PX__STEP)
    direct(sums, p->in + at.in, step, n, p->x.length);
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
    int64_t left = width - begin % width, n = left < TOGETHER ? left : TOGETHER;
    if (n > end - begin) n = end - begin;
    rows_together(p, px__axes_offset_of(p->x.kept, 0, p->x.kept_count, begin), n);
    begin += n;
  }
}

// Whether all results are made of the same elements (the gradient of a sum is
// one number, seen as many).
static bool are_alike(const plan *p) {
  for (int d = 0; d < p->x.kept_count; d++)
    if (p->x.kept[d].in != 0) return false;
  return p->x.results > 1;
}

// The first result is stored, and copied to the others, a row of them at a time.
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
  wide sums[PARTS];
  const char *base = p->in;
  p->parts = sums;
  int64_t count = p->x.length / LEAST_PART;
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

// Where row i of a chunk that begins at `in` lies.
static const char *row_at(const plan *p, const char *in, int64_t i) {
  if (p->x.reduced_count == 1) return in + i * p->x.reduced[0].in;
  return in + px__axes_offset_of(p->x.reduced, 0, p->x.reduced_count, i).in;
}
// What folds columns as they are, side by side; NULL: they are to be converted.
static px__cpu_fold_rows direct_columns(const plan *p) {
  bool bfloat = p->in_dtype == PX_BFLOAT16, half = bfloat || p->in_dtype == PX_FLOAT16;
  if (p->x.kept[0].in != px__cpu_item[p->in_dtype]) return NULL;
  if (p->in_dtype == p->f->dtype) return p->f->columns;
  return half ? p->f->half_columns[bfloat] : NULL;
}
// Rows [i, i + count) of n columns, converted, one behind the other.
static void load_rows(const plan *p, void *room, const char *in, int64_t i, int64_t count,
                      int64_t n, int64_t step) {
  int64_t item = px__cpu_item[p->f->dtype], stride = p->x.kept[0].in;
  bool dense = p->x.reduced_count == 1 && step == n * stride;
  int64_t at_once = dense ? count : 1;
  for (int64_t k = 0; k < count; k += at_once) {
    const char *row = p->x.reduced_count == 1 ? in + (i + k) * step : row_at(p, in, i + k);
    px__cpu_convert((char *)room + k * n * item, item, p->f->dtype, row, stride, p->in_dtype,
                    at_once * n);
  }
}
// What n columns of the rows [first, end) are, which are `step` apart if they are along one axis.
// False: the call has been ended.
static bool fold_rows(const plan *p, wide *sums, const char *in, int64_t first, int64_t end,
                      int64_t n, int64_t step) {
  wide narrow[CHUNK], room[FEW * CHUNK];
  int64_t item = px__cpu_item[p->f->dtype];
  px__cpu_fold_rows direct = direct_columns(p);
  int64_t most = !direct ? FEW : p->x.reduced_count == 1 ? NARROW : 1;
  p->f->identity(sums, n);
  p->f->clear(narrow, n);
  for (int64_t i = first, rows; i < end; i += rows) {
    int64_t left = NARROW - (i - first) % NARROW;  // until sums become wide
    rows = left < most ? left : most;
    if (end - i < rows) rows = end - i;
    const char *at = p->x.reduced_count == 1 ? in + i * step : row_at(p, in, i);
    if (!direct) load_rows(p, room, in, i, rows, n, step);
    if (direct)
      direct(narrow, at, step, rows, n);
    else
      p->f->columns(narrow, (char *)room, n * item, rows, n);
    if (rows < left) continue;
    p->f->widen(sums, narrow, n);
    if (px__cpu_stopped()) return false;
  }
  p->f->widen(sums, narrow, n);
  return true;
}
static void fold_chunk(const plan *p, const char *in, int64_t result, int64_t n) {
  wide sums[CHUNK];
  if (fold_rows(p, sums, in, 0, p->x.length, n, p->x.reduced[0].in))
    store(p, result, p->x.kept[0].out, sums, n);
}

// Pieces of the innermost kept axis, for each place of the other kept axes.
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

// Each column is folded by itself, so that it does not matter how many go together: fewer where
// threads would have nothing to do.
static void run_columns(plan *p, bool shared) {
  int64_t width = p->x.kept[0].size, others = p->x.results / width, items;
  int64_t wanted = shared ? 2 * px__cpu_thread_count() : 1;
  for (p->chunk = CHUNK;; p->chunk /= 2) {
    items = others * px__ceil_div(width, p->chunk);
    if (items >= wanted || p->chunk == NARROWEST) break;
  }
  px__cpu_parallel(items, shared ? 1 : items, columns, p);
}

static wide *sum_at(const plan *p, wide *sums, int64_t k) {
  return (wide *)(void *)((char *)sums + k * px__cpu_item[p->f->wide]);
}
static wide *strip_of(const plan *p, int64_t i) { return p->parts + i * p->x.kept[0].size; }
// How many parts rows of few columns are cut into; fewer than two: they are not.
static int64_t strip_count(const plan *p) {
  int64_t width = p->x.kept[0].size, count, most;
  if (width > MOST_STRIPPED || p->x.results >= 16 * width) return 1;
  count = px__axes_product(p->x.length, width) / STRIP, most = STRIP_SUMS / width;
  return count < most ? count : most;
}
// Rows that follow each other without a gap are as good as fewer, longer ones.
static int64_t rows_in_one(const plan *p) {
  int64_t n = p->x.kept[0].size, step = p->x.reduced[0].in;
  bool dense = p->x.reduced_count == 1 && step == n * p->x.kept[0].in;
  return dense && n < JOINED ? JOINED / n : 1;
}
// Few columns of many rows are cut into parts of the rows, by the shape alone, which are joined in
// order. The sums of all parts are in p->parts, those of a part side by side.
static void strips(void *context, int64_t begin, int64_t end) {
  plan *p = context;
  wide sums[JOINED];
  int64_t n = p->x.kept[0].size, length = p->x.length, step = p->x.reduced[0].in,
          m = rows_in_one(p);
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * p->part, to = from + p->part < length ? from + p->part : length;
    int64_t joined = m > 1 ? (to - from) / m : 0;
    wide *mine = strip_of(p, i);
    fold_rows(p, mine, p->in, from + joined * m, to, n, step);
    if (joined == 0) continue;
    fold_rows(p, sums, p->in + from * step, 0, joined, m * n, m * step);
    for (int64_t k = 0; k < m; k++) p->f->merge(mine, sum_at(p, sums, k * n), n);
  }
}
static void long_columns(plan *p) {
  wide sums[STRIP_SUMS];
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

// Whether elements of neighbouring results lie closer than those of one result.
static bool are_beside(const plan *p) {
  return px__abs_stride(p->x.kept[0].in) < px__abs_stride(p->x.reduced[0].in);
}
static void run(plan *p) {
  int64_t work = p->x.results * p->x.length, width = p->x.kept[0].size;
  bool by_column = width >= 8 && (p->x.length == 1 || (p->x.length > 1 && are_beside(p)));
  if (p->x.length < 2 * LEAST_PART && are_alike(p)) {
    fold_once(p);
  } else if (by_column && strip_count(p) >= 2) {
    long_columns(p);
  } else if (by_column) {
    run_columns(p, work > PARALLEL);
  } else if (p->x.length >= 2 * LEAST_PART && p->x.results < 16) {
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
  plan p;  // its axes are not cleared: small folds are frequent
  p.l = l, p.f = f, p.in = in->data, p.out = out->data;
  p.in_dtype = in->dtype, p.out_dtype = out->dtype;
  // The extreme of bytes is true where that of the truths is.
  if (in->dtype == PX_BOOL && f->dtype == PX_UINT8) p.in_dtype = PX_UINT8;
  px__axes_load(&p.x, out, NULL, in, true);
  if (p.x.results > 0) run(&p);
  return PX_OK;
}
