// SPDX-License-Identifier: Apache-2.0
// Runs a fold over the operands of a launch.
//
// Where the elements of one result lie side by side, rows are folded one after the other; where
// those of neighbouring results do, columns are folded together. A long fold into few results is
// cut into at most 256 parts, by its length alone, that the pool works on and that are joined in
// order.
#include "cpu/fold.h"

#include "cpu/convert.h"
#include "cpu/threads.h"

enum { PARTS = 256, LEAST_PART = 65536, CHUNK = 512, PARALLEL = 32768 };

typedef struct axis {
  int64_t size, in, out;  // strides in bytes
} axis;
typedef struct plan {
  const px_launch *l;
  const px__cpu_fold *f;
  const char *in;
  char *out;
  int in_dtype, out_dtype;
  axis kept[PX_MAX_DIMS], gone[PX_MAX_DIMS];  // [0] is the innermost
  int kept_count, gone_count;
  int64_t results, length;  // elements of the result, and elements that each folds
  int64_t part;             // of a long fold
  union {
    double f;
    int64_t i;
  } parts[PARTS];
} plan;
enum { WIDE = 8 };  // bytes of every D

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

// Inserts by the input's stride, the smallest first.
static void insert_axis(axis *list, int *count, axis a) {
  int at = (*count)++;
  for (; at > 0 && magnitude(list[at - 1].in) > magnitude(a.in); at--) list[at] = list[at - 1];
  list[at] = a;
}
static void join_axes(axis *list, int *count) {
  int n = 0;
  for (int i = 0; i < *count; i++) {
    axis *last = n ? &list[n - 1] : NULL;
    if (last && list[i].in == last->in * last->size && list[i].out == last->out * last->size)
      last->size *= list[i].size;
    else
      list[n++] = list[i];
  }
  *count = n;
}

static void load_plan(plan *p, const px_launch *l, const px__cpu_fold *f) {
  const px_operand *out = &l->operands[0], *in = &l->operands[l->operand_count - 1];
  *p = (plan){.l = l,
              .f = f,
              .in = in->data,
              .out = out->data,
              .in_dtype = in->dtype,
              .out_dtype = out->dtype,
              .results = 1,
              .length = 1};
  for (int d = in->ndim - 1; d >= 0; d--) {
    axis a = {in->sizes[d], in->strides[d] * px__cpu_item[in->dtype],
              out->strides[d] * px__cpu_item[out->dtype]};
    bool reduced = out->sizes[d] == 1 && in->sizes[d] != 1;
    *(reduced ? &p->length : &p->results) *= a.size;
    if (a.size == 1) continue;
    if (reduced) a.out = 0;
    insert_axis(reduced ? p->gone : p->kept, reduced ? &p->gone_count : &p->kept_count, a);
  }
  join_axes(p->kept, &p->kept_count);
  join_axes(p->gone, &p->gone_count);
  if (p->kept_count == 0) p->kept[p->kept_count++] = (axis){1, 0, 0};
  if (p->gone_count == 0) p->gone[p->gone_count++] = (axis){1, 0, 0};
}

// The place of element i of the axes [first, count), as a byte offset.
static int64_t place(const axis *list, int first, int count, int64_t i, bool out) {
  int64_t at = 0;
  for (int d = first; d < count; d++) {
    int64_t k = i % list[d].size;
    at += k * (out ? list[d].out : list[d].in);
    i /= list[d].size;
  }
  return at;
}

// ---- rows

// Folds n elements along the innermost reduced axis.
static void fold_run(const plan *p, void *wide, const char *at, int64_t n) {
  int64_t stride = p->gone[0].in, item = px__cpu_item[p->f->dtype];
  if (p->in_dtype == p->f->dtype && stride == item) {
    p->f->row(wide, at, n);
    return;
  }
  double room[PX__CPU_BLOCK];
  for (int64_t i = 0; i < n; i += PX__CPU_BLOCK) {
    int64_t count = n - i < PX__CPU_BLOCK ? n - i : PX__CPU_BLOCK;
    px__cpu_convert(room, item, p->f->dtype, at + i * stride, stride, p->in_dtype, count);
    p->f->row(wide, room, count);
  }
}

// Folds the elements [begin, end) of one result.
static void fold_span(const plan *p, void *wide, const char *base, int64_t begin, int64_t end) {
  int64_t inner = p->gone[0].size;
  while (begin < end) {
    int64_t k = begin % inner, n = inner - k < end - begin ? inner - k : end - begin;
    fold_run(p, wide,
             base + place(p->gone, 1, p->gone_count, begin / inner, false) + k * p->gone[0].in, n);
    begin += n;
  }
}

static void store(const plan *p, int64_t result, int64_t stride, void *wide, int64_t n) {
  p->f->finish(wide, n, p->length, p->l);
  px__cpu_convert(p->out + result, stride, p->out_dtype, wide, WIDE, p->f->wide, n);
}

static void rows(void *context, int64_t begin, int64_t end) {
  const plan *p = context;
  for (int64_t r = begin; r < end; r++) {
    double wide;
    p->f->identity(&wide, 1);
    fold_span(p, &wide, p->in + place(p->kept, 0, p->kept_count, r, false), 0, p->length);
    store(p, place(p->kept, 0, p->kept_count, r, true), WIDE, &wide, 1);
  }
}

// ---- one long fold

static void parts(void *context, int64_t begin, int64_t end) {
  plan *p = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * p->part, to = from + p->part;
    p->f->identity(&p->parts[i], 1);
    fold_span(p, &p->parts[i], p->in, from, to < p->length ? to : p->length);
  }
}

static void long_fold(plan *p) {
  const char *base = p->in;
  int64_t count = p->length / LEAST_PART;
  if (count > PARTS) count = PARTS;
  p->part = (p->length + count - 1) / count;
  p->part = (p->part + PX__CPU_BLOCK - 1) / PX__CPU_BLOCK * PX__CPU_BLOCK;
  count = (p->length + p->part - 1) / p->part;
  for (int64_t r = 0; r < p->results; r++) {
    p->in = base + place(p->kept, 0, p->kept_count, r, false);
    px__cpu_parallel(count, 1, parts, p);
    for (int64_t i = 1; i < count; i++) p->f->merge(&p->parts[0], &p->parts[i]);
    store(p, place(p->kept, 0, p->kept_count, r, true), WIDE, &p->parts[0], 1);
  }
}

// ---- columns

static void fold_chunk(const plan *p, const char *in, int64_t result, int64_t n) {
  double wide[CHUNK], narrow[CHUNK], room[CHUNK];
  int64_t item = px__cpu_item[p->f->dtype], stride = p->kept[0].in;
  bool direct = p->in_dtype == p->f->dtype && stride == item;
  p->f->identity(wide, n);
  p->f->clear(narrow, n);
  for (int64_t i = 0; i < p->length; i++) {
    const char *at =
        in + (p->gone_count == 1 ? i * p->gone[0].in : place(p->gone, 0, p->gone_count, i, false));
    if (!direct) px__cpu_convert(room, item, p->f->dtype, at, stride, p->in_dtype, n);
    p->f->column(narrow, direct ? (const void *)at : room, n);
    if (i % PX__CPU_BLOCK == PX__CPU_BLOCK - 1) p->f->widen(wide, narrow, n);
  }
  p->f->widen(wide, narrow, n);
  store(p, result, p->kept[0].out, wide, n);
}

// Pieces of the innermost kept axis, for each place of the other kept axes.
static void columns(void *context, int64_t begin, int64_t end) {
  const plan *p = context;
  int64_t width = p->kept[0].size, pieces = (width + CHUNK - 1) / CHUNK;
  for (int64_t i = begin; i < end; i++) {
    int64_t j = i % pieces * CHUNK, n = width - j < CHUNK ? width - j : CHUNK;
    int64_t in = place(p->kept, 1, p->kept_count, i / pieces, false);
    int64_t out = place(p->kept, 1, p->kept_count, i / pieces, true);
    fold_chunk(p, p->in + in + j * p->kept[0].in, out + j * p->kept[0].out, n);
  }
}

static void run(plan *p) {
  int64_t work = p->results * p->length, width = p->kept[0].size;
  bool by_column =
      width >= 8 && p->length > 1 && magnitude(p->kept[0].in) < magnitude(p->gone[0].in);
  if (by_column) {
    int64_t items = p->results / width * ((width + CHUNK - 1) / CHUNK);
    px__cpu_parallel(items, work > PARALLEL ? 1 : items, columns, p);
  } else if (p->length >= 2 * LEAST_PART && p->results < 16) {
    long_fold(p);
  } else {
    int64_t grain = PARALLEL / (p->length ? p->length : 1) + 1;
    px__cpu_parallel(p->results, work > PARALLEL ? grain : p->results, rows, p);
  }
}

px_status px__cpu_fold_run(const px_launch *l, const px__cpu_fold *const *folds) {
  int c = l->compute;
  const px__cpu_fold *f = folds[c == PX_FLOAT64 ? 2 : c >= PX_FLOAT16 ? 1 : 0];
  if (!f)
    return px_error_set(PX_UNIMPLEMENTED, 0, __FILE__, __LINE__, __func__,
                        "\"%s\" not implemented for '%s'", l->op, px_dtype_class((px_dtype)c));
  plan p;
  load_plan(&p, l, f);
  if (p.results > 0) run(&p);
  return PX_OK;
}
