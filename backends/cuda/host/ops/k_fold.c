// SPDX-License-Identifier: Apache-2.0
// Launches of reductions: kept and reduced dimensions, reduction by rows or by columns, number of
// parts. All of it depends on shapes and strides only, so results are reproducible.
#include "cuda/host/ops/kernel.h"

// MIN_PART, MIN_COLUMN: minimum elements of a part by rows, by columns. BLOCKS: blocks that
// fill a device. MIN_IN_FLIGHT: minimum loads in flight a thread of a dense row. MIN_INNER: minimum
// innermost row. Equal on all devices, so that results are.
enum { MIN_PART = 4096, MIN_COLUMN = 256, BLOCKS = 1056, MIN_IN_FLIGHT = 6, MIN_INNER = 512 };

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

// Inserts an axis sorted by input stride, or appends it as the outermost.
static void add_axis(k_axis *list, int32_t *count, k_axis a, bool sorted) {
  int at = (*count)++;
  for (; sorted && at > 0 && magnitude(list[at - 1].in) > magnitude(a.in); at--)
    list[at] = list[at - 1];
  list[at] = a;
}
// Merges adjacent axes contiguous in all operands. The list keeps at least one axis.
static void join_axes(k_axis *list, int32_t *count) {
  int n = 0;
  for (int i = 0; i < *count; i++) {
    k_axis *last = n ? &list[n - 1] : NULL, a = list[i];
    if (last && a.in == last->in * last->size && a.out == last->out * last->size &&
        a.out2 == last->out2 * last->size)
      last->size *= a.size;
    else
      list[n++] = a;
  }
  if (n == 0) list[n++] = (k_axis){1, 0, 0, 0};
  *count = n;
}

px_status px__cuda_axes(k_fold *p, const px_operand *out, const px_operand *second,
                        const px_operand *in, bool sorted) {
  PX_CUDA_PASS(px__cuda_fits(in, 2));
  p->in = in->data, p->out = out->data, p->out2 = second ? second->data : NULL;
  p->in_dtype = in->dtype, p->out_dtype = out->dtype;
  p->kept_count = p->reduced_count = 0, p->results = p->length = p->parts = 1;
  int64_t item = (int64_t)px__cuda_dtype_size(in->dtype);
  int64_t out_item = (int64_t)px__cuda_dtype_size(out->dtype);
  int64_t item2 = second ? (int64_t)px__cuda_dtype_size(second->dtype) : 0;
  for (int d = in->ndim - 1; d >= 0; d--) {
    k_axis a = {in->sizes[d], in->strides[d] * item, out->strides[d] * out_item,
                second ? second->strides[d] * item2 : 0};
    bool reduced = out->sizes[d] == 1 && in->sizes[d] != 1;
    *(reduced ? &p->length : &p->results) *= a.size;
    if (a.size == 1) continue;
    if (reduced) a.out = a.out2 = 0;
    add_axis(reduced ? p->reduced : p->kept, reduced ? &p->reduced_count : &p->kept_count, a,
             sorted);
  }
  join_axes(p->kept, &p->kept_count);
  join_axes(p->reduced, &p->reduced_count);
  p->part = p->length, p->inner = 0;
  return PX_OK;
}

// True for rows of contiguous elements; is_aligned: rows readable in 16-byte vectors.
static bool is_dense(const k_fold *p, int64_t item) {
  return (p->reduced_count == 1 || p->inner) && (p->reduced[0].in == item || p->length == 1);
}
static bool is_aligned(const k_fold *p) {
  for (int i = 0; i < p->kept_count; i++)
    if (p->kept[i].in % 16) return false;
  for (int i = 1; i < p->reduced_count; i++)
    if (p->reduced[i].in % 16) return false;
  return (uintptr_t)p->in % 16 == 0;
}
// For reduced dimensions that are not contiguous as a whole, such as the examples and pixels of an
// image's channel: size of the innermost dimension if it is contiguous and long enough to be
// reduced as one row for each index of the others, else 0.
static int64_t inner_of(const k_fold *p) {
  bool row = p->reduced_count > 1 && p->reduced[0].in == (int64_t)px__cuda_dtype_size(p->in_dtype);
  return row && p->reduced[0].size >= MIN_INNER ? p->reduced[0].size : 0;
}
static int64_t row_of_part(const k_fold *p) { return p->inner ? p->inner : p->length; }

// Threads for each row, with several vectors or elements in flight; a warp handles several short
// rows.
static int32_t lanes_of(const k_fold *p, int64_t item) {
  int64_t length = row_of_part(p), units = p->vector ? length * item / 16 : length;
  int64_t least = p->dense ? MIN_IN_FLIGHT : 2;
  int32_t lanes = 32;
  if (length > 2048) return K_BLOCK;
  while (lanes > 1 && units < least * lanes) lanes /= 2;
  return lanes;
}

// Splits the length into parts until there are enough blocks.
static void split_length(k_fold *p, int64_t blocks, int64_t least) {
  int64_t length = row_of_part(p), rows = p->length / length, unit = least / 4;
  int64_t most = length / least, parts = blocks * rows < BLOCKS ? BLOCKS / (blocks * rows) : 1;
  if (parts > most) parts = most;
  p->part = parts < 2 ? length : ((length + parts - 1) / parts + unit - 1) / unit * unit;
  p->parts = (length + p->part - 1) / p->part * rows;
}
static px_status allocate_parts(const px_launch *l, k_fold *p, int64_t blocks, int64_t least,
                                size_t accumulator) {
  split_length(p, blocks, least);
  if (p->parts == 1) return PX_OK;
  return px__cuda_scratch(l, (size_t)(p->results * p->parts) * accumulator, &p->partial);
}

static unsigned grid_of(int64_t blocks) {
  return blocks > INT32_MAX ? (unsigned)INT32_MAX : (unsigned)blocks;
}

static void choose_rows(k_fold *p) {
  int64_t item = (int64_t)px__cuda_dtype_size(p->in_dtype);
  p->dense = is_dense(p, item), p->vector = p->dense && is_aligned(p);
  p->lanes = lanes_of(p, item);
}
// Launches a function of a module, or `instead`.
static px_status launch_way(const px_launch *l, k_fold *p, const char *module, const char *function,
                            CUkernel instead, int64_t blocks) {
  void *params[] = {p};
  const unsigned grid[3] = {grid_of(blocks), 1, 1}, block[3] = {K_BLOCK, 1, 1};
  return instead ? px__cuda_launch_function(l, instead, grid, block, 0, params)
                 : px__cuda_launch_3d(l, module, function, grid, block, 0, params);
}
static px_status by_rows(const px_launch *l, k_fold *p, const char *module, const char *function,
                         size_t accumulator, CUkernel instead) {
  choose_rows(p);
  if (p->lanes == K_BLOCK || p->inner)
    PX_CUDA_PASS(allocate_parts(l, p, p->results, MIN_PART, accumulator));
  int64_t groups = K_BLOCK / p->lanes, total = p->results * p->parts;
  return launch_way(l, p, module, function, instead, (total + groups - 1) / groups);
}
// True if columns can be read in 16-byte vectors.
static bool in_vectors(const k_fold *p) {
  int64_t item = (int64_t)px__cuda_dtype_size(p->in_dtype);
  bool good =
      p->kept[0].in == item && p->kept[0].size * item % 16 == 0 && (uintptr_t)p->in % 16 == 0;
  for (int i = 1; i < p->kept_count; i++) good &= p->kept[i].in % 16 == 0;
  for (int i = 0; i < p->reduced_count; i++) good &= p->reduced[i].in % 16 == 0;
  return good;
}
static px_status by_columns(const px_launch *l, k_fold *p, const char *module, const char *function,
                            size_t accumulator, CUkernel instead) {
  int64_t item = (int64_t)px__cuda_dtype_size(p->in_dtype);
  int64_t wide = !p->vector || !in_vectors(p) ? 1 : item == 2 ? 4 : 16 / item;
  int64_t width = p->kept[0].size, pieces = p->results / width * ((width / wide + 31) / 32);
  p->vector = wide > 1, p->inner = 0;
  PX_CUDA_PASS(allocate_parts(l, p, pieces, MIN_COLUMN, accumulator));
  return launch_way(l, p, module, function, instead, pieces * p->parts);
}

bool px__cuda_fold_columns(const k_fold *p) {
  return p->kept[0].size >= 8 && p->length > 1 &&
         magnitude(p->kept[0].in) < magnitude(p->reduced[0].in);
}

px_status px__cuda_reduce(const px_launch *l, k_fold *p, const char *module,
                          const char *const variants[3], size_t accumulator, CUkernel instead) {
  if (p->results == 0) return PX_OK;
  PX_CUDA_PASS(px__cuda_fold_columns(p)
                   ? by_columns(l, p, module, variants[1], accumulator, instead)
                   : by_rows(l, p, module, variants[0], accumulator, instead));
  if (p->parts == 1) return PX_OK;
  p->lanes = p->parts > 64 ? K_BLOCK : 32;
  int64_t groups = K_BLOCK / p->lanes;
  return launch_way(l, p, module, variants[2], NULL, (p->results + groups - 1) / groups);
}

// Index of the functions for a compute dtype.
static int row_of(int compute) {
  if (compute == PX_COMPLEX64 || compute == PX_COMPLEX128) return compute == PX_COMPLEX64 ? 3 : 4;
  return compute == PX_FLOAT64 ? 2 : compute >= PX_FLOAT16 ? 1 : 0;
}
// True if the functions read dense rows of this dtype without conversion.
static bool is_native(int compute, int in) {
  if (compute == PX_FLOAT16 || compute == PX_BFLOAT16 || compute == PX_FLOAT32)
    return in == PX_FLOAT32 || in == PX_FLOAT16 || in == PX_BFLOAT16;
  return in == (compute < PX_FLOAT16 ? PX_INT64 : compute);
}

px_status px__cuda_fold_open(k_fold *p, const char *const **variants, const char **members,
                             int compute, const px__cuda_fold *op, const px_operand *out,
                             const px_operand *in) {
  *variants = op->functions[row_of(compute)], *members = op->members[row_of(compute)];
  PX_CUDA_PASS(px__cuda_axes(p, out, NULL, in, true));
  p->vector = is_native(compute, p->in_dtype);
  if (p->vector) p->inner = inner_of(p);
  return PX_OK;
}

px_status px__cuda_fold_run(const px_launch *l, const px__cuda_fold *op) {
  if (px__cuda_asked(l, op)) return PX_OK;
  int c = l->compute;
  bool complex = c == PX_COMPLEX64 || c == PX_COMPLEX128;
  if (!op->functions[row_of(c)][0] || (c >= PX_DTYPE_COMPUTED && !complex))
    return px__cuda_missing(l, c);
  px_operand in = l->operands[l->operand_count - 1];
  int64_t strides[PX_MAX_DIMS];
  if (!complex && in.dtype >= PX_DTYPE_COMPUTED)  // truth value of complex numbers
    PX_CUDA_PASS(px__cuda_as(l, &in, c, strides));
  const char *const *variants, *members;
  k_fold p;
  PX_CUDA_PASS(px__cuda_fold_open(&p, &variants, &members, c, op, &l->operands[0], &in));
  return px__cuda_reduce(l, &p, complex ? "kernels_cuda_complex" : "kernels_cuda_fold", variants,
                         complex ? 16 : 8, NULL);
}

// ---- batched launches: whole tensors

_Thread_local px__cuda_folds *px__cuda_folds_batch;

static px_status launch_folds(px__cuda_folds *f) {
  k_folds *p = &f->p;
  void *params[] = {p};
  char name[64];
  int count = p->count;
  p->count = 0;
  if (!count) return PX_OK;
  const k_fold_of *last = &p->of[count - 1];
  size_t parts = last->first + (last->parts > 1 ? last->parts : 0);
  if (parts) PX_CUDA_PASS(px__cuda_scratch(&f->launch, parts * f->accumulator, &p->all.partial));
  snprintf(name, sizeof name, "%s_listed", f->name);
  PX_CUDA_PASS(px__cuda_launch(&f->launch, f->module, name, last->end, K_BLOCK, 0, params));
  if (!parts) return PX_OK;
  snprintf(name, sizeof name, "%s_listed_join", f->name);
  return px__cuda_launch(&f->launch, f->module, name, (unsigned)count, K_BLOCK, 0, params);
}

void px__cuda_folds_begin(px__cuda_folds *folds) {
  folds->p.count = 0;
  px__cuda_folds_batch = folds;
}
px_status px__cuda_folds_end(px__cuda_folds *folds) {
  px__cuda_folds_batch = NULL;
  return launch_folds(folds);
}

// True if the reduction shares dtypes, parameters and stream with the batch, and the batch has
// space.
static bool matches(const px__cuda_folds *f, const px_launch *l, const char *name,
                    const k_fold *p) {
  const k_fold *all = &f->p.all;
  return f->p.count < K_FOLDS && f->launch.stream == l->stream && !strcmp(f->name, name) &&
         all->in_dtype == p->in_dtype && all->out_dtype == p->out_dtype && all->a.i == p->a.i &&
         all->b.i == p->b.i;
}

// Parts and threads are those of a separate launch, so the result is identical.
px_status px__cuda_folds_add(bool *batched, const px_launch *l, const char *module,
                             const char *name, size_t accumulator, k_fold *p) {
  px__cuda_folds *f = px__cuda_folds_batch;
  if (p->results != 1) return PX_OK;
  choose_rows(p);
  if (!p->dense) return PX_OK;
  if (p->lanes == K_BLOCK) split_length(p, 1, MIN_PART);
  if (f->p.count && !matches(f, l, name, p)) PX_CUDA_PASS(launch_folds(f));
  if (!f->p.count)
    f->launch = *l, f->module = module, f->name = name, f->accumulator = accumulator, f->p.all = *p;
  k_fold_of *of = &f->p.of[f->p.count++], none = {0}, *before = of > f->p.of ? of - 1 : &none;
  *of = (k_fold_of){.in = p->in,
                    .out = p->out,
                    .length = p->length,
                    .part = p->part,
                    .parts = (uint32_t)p->parts,
                    .first = before->first + (before->parts > 1 ? before->parts : 0),
                    .end = before->end + (uint32_t)p->parts,
                    .lanes = (int16_t)p->lanes,
                    .vector = (int16_t)p->vector};
  *batched = true;
  return PX_OK;
}
