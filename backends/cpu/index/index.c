// SPDX-License-Identifier: Apache-2.0
// The kernels "index_get" and "index_put": elements selected by index tensors
// (src/ops/index/index_impl.h).
//
// All operands have the sizes of the loop. index_put checks all indices first, so that an invalid
// one changes nothing; index_get checks on the fly.
//
// The loop has three levels: outer dimensions of any kind; a row, whose offsets are computed
// together unless its only index tensor can be used directly; and a line, along which no index
// changes. Threads share a dimension along which the written elements are distinct. Each element is
// thus written by one thread, in row-major order of the loop: the last of several values wins, and
// sums are rounded, as with one thread.
#include "cpu/threads/buffer.h"
#include "cpu/index/index_rows.h"
#include "kernel_args/index.h"

#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/threads/threads.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum {
  INDICES = PX_MAX_OPERANDS - 2,  // max index tensors
  DIMS = PX_MAX_DIMS + 2,         // max loop dimensions
  OFFSETS = 256,                  // offsets computed at a time
  LINE_BLOCK = 64                 // lines moved at a time
};
enum {
  MAX_SINGLE_THREAD = 32768,  // max elements moved by the calling thread
  GRAIN = 16384,              // elements per thread, min
  MIN_LINE_PART = 64          // min elements of a line per thread, to avoid false sharing
};

// The arguments of both kernels.
typedef struct request {
  const px_launch *l;
  const px_operand *self, *other, *indices;  // other: the result (get) or the values (put)
  int count;                                 // of index tensors
  const int64_t *dim_sizes, *dim_strides, *dims;
  bool wraps;  // negative indices count from the end
  px_fault_code fault;
} request;
#define REQUEST(what) \
  (request) { \
    .l = l, .self = args->self, .other = args->what, .indices = args->list, .count = args->list_n, \
    .dim_sizes = args->dim_sizes.v.ints, .dim_strides = args->dim_strides.v.ints, \
    .dims = args->dims.v.ints, .wraps = args->wraps, .fault = (px_fault_code)args->fault \
  }

typedef struct indexing {
  int ndim, count;                                       // dimensions of the loop; index tensors
  int64_t sizes[DIMS], self_strides[DIMS], other[DIMS];  // strides in bytes: of `self`, of `values`
  int64_t index_strides[INDICES][DIMS];                  // in elements
  int64_t dim_sizes[INDICES], dim_strides[INDICES];      // strides in bytes
  const int64_t *index[INDICES];
  char *self, *values;
  gather_fn gather;  // NULL: index_put
  moves moves;
  uint64_t lowest[INDICES], span[INDICES];  // valid: index - lowest < span, unsigned
  bool direct;                              // a single index tensor, contiguous along the row
  bool in_bounds;                           // in addition, all indices are within [0, size)
  int split;                                // the dimension shared by threads
  bool *bad;                                // atomic: a thread found an invalid index
} indexing;

// ---- the loop's dimensions

// True if dimension d of the operands continues the last dimension of p.
static bool joins(const indexing *p, const request *r, int d, int64_t item) {
  int n = p->ndim - 1;
  int64_t size = r->self->sizes[d];
  if (p->ndim == 0 || p->self_strides[n] != r->self->strides[d] * item * size) return false;
  if (p->other[n] != r->other->strides[d] * item * size) return false;
  for (int i = 0; i < p->count; i++)
    if (p->index_strides[i][n] != r->indices[i].strides[d] * size) return false;
  return true;
}

// Adds a dimension of size 1.
static void add_unit_dim(indexing *p) {
  int d = p->ndim++;
  p->sizes[d] = 1, p->self_strides[d] = p->other[d] = 0;
  for (int i = 0; i < p->count; i++) p->index_strides[i][d] = 0;
}

static bool is_indexed(const indexing *p, int d) {
  for (int i = 0; i < p->count; i++)
    if (p->index_strides[i][d] != 0) return true;
  return false;
}

// Inserts a row of size 1 before the only dimension.
static void add_unit_row(indexing *p) {
  add_unit_dim(p);
  p->sizes[1] = p->sizes[0], p->self_strides[1] = p->self_strides[0], p->other[1] = p->other[0];
  p->sizes[0] = 1, p->self_strides[0] = p->other[0] = 0;
}

static void setup(indexing *p, const request *r) {
  const px_operand *self = r->self, *other = r->other;
  int64_t item = px__cpu_item[self->dtype];
  p->self = self->data, p->values = other->data;
  p->ndim = 0, p->count = r->count;
  for (int i = 0; i < p->count; i++) {
    p->index[i] = r->indices[i].data;
    p->dim_sizes[i] = r->dim_sizes[i];
    p->dim_strides[i] = r->dim_strides[i] * item;
    p->lowest[i] = r->wraps ? -(uint64_t)p->dim_sizes[i] : 0;
    p->span[i] = (uint64_t)p->dim_sizes[i] * (r->wraps ? 2 : 1);
  }
  for (int d = 0; d < self->ndim; d++) {
    if (self->sizes[d] == 1) continue;
    bool joined = joins(p, r, d, item);
    if (!joined) add_unit_dim(p);
    int n = p->ndim - 1;
    p->sizes[n] *= self->sizes[d];
    p->self_strides[n] = self->strides[d] * item, p->other[n] = other->strides[d] * item;
    for (int i = 0; i < p->count; i++) p->index_strides[i][n] = r->indices[i].strides[d];
  }
  if (p->ndim == 0 || is_indexed(p, p->ndim - 1)) add_unit_dim(p);
  if (p->ndim == 1) add_unit_row(p);
  int row = p->ndim - 2;
  p->in_bounds = false;
  p->direct = p->count == 1 && p->sizes[row + 1] == 1 && p->index_strides[0][row] == 1;
}

// ---- invalid indices

typedef struct check {
  const int64_t *index;
  int ndim;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];  // of the index tensor
  uint64_t lowest, span;
  bool bad;  // atomic
} check;

static bool line_is_bad(const check *k, const int64_t *index, int64_t stride, int64_t n) {
  uint64_t bad = 0;
  if (stride == 1)
    for (int64_t i = 0; i < n; i++) bad |= (uint64_t)index[i] - k->lowest >= k->span;
  else
    for (int64_t i = 0; i < n; i++) bad |= (uint64_t)index[i * stride] - k->lowest >= k->span;
  return bad != 0;
}

// Checks lines of the innermost dimension, or a part of the only dimension.
static void check_lines(void *context, int64_t begin, int64_t end) {
  check *k = context;
  int last = k->ndim - 1;
  bool bad = false;
  if (last == 0) {
    bad = line_is_bad(k, k->index + begin * k->strides[0], k->strides[0], end - begin);
    begin = end;
  }
  for (int64_t i = begin; i < end && !bad; i++) {
    const int64_t *at = k->index;
    for (int64_t d = last - 1, rest = i; d >= 0; d--) {
      at += rest % k->sizes[d] * k->strides[d];
      rest /= k->sizes[d];
    }
    bad = line_is_bad(k, at, k->strides[last], k->sizes[last]);
  }
  if (bad) __atomic_store_n(&k->bad, true, __ATOMIC_RELAXED);
}

static bool any_outside(const indexing *p, int i, uint64_t lowest, uint64_t span) {
  check k = {.index = p->index[i], .lowest = lowest, .span = span};
  int64_t lines = 1;
  for (int d = 0; d < p->ndim; d++) {
    int64_t stride = p->index_strides[i][d];
    if (stride == 0) continue;
    bool joined = k.ndim > 0 && k.strides[k.ndim - 1] == stride * p->sizes[d];
    if (!joined) k.sizes[k.ndim++] = 1;
    k.sizes[k.ndim - 1] *= p->sizes[d], k.strides[k.ndim - 1] = stride;
  }
  if (k.ndim == 0) k.ndim = 1, k.sizes[0] = 1, k.strides[0] = 0;
  for (int d = 0; d < k.ndim - 1; d++) lines *= k.sizes[d];
  int64_t length = k.sizes[k.ndim - 1];
  if (k.ndim == 1)
    px__cpu_parallel(length, MAX_SINGLE_THREAD, check_lines, &k);
  else
    px__cpu_parallel(lines, MAX_SINGLE_THREAD / length + 1, check_lines, &k);
  return k.bad;
}

// True if index tensor i has an invalid element. First checks for nonnegative indices, the usual
// case.
static bool is_bad(indexing *p, int i) {
  p->in_bounds = !any_outside(p, i, 0, (uint64_t)p->dim_sizes[i]);
  return !p->in_bounds && (p->lowest[i] == 0 || any_outside(p, i, p->lowest[i], p->span[i]));
}

// Checks each element of index tensor i in order, and reports the first invalid one.
static bool report_first_invalid(const indexing *p, const request *r, int i) {
  const px_operand *o = &r->indices[i];
  const int64_t *index = p->index[i];
  int64_t at[PX_MAX_DIMS] = {0}, n = p->dim_sizes[i], work = 0;
  while (!px__work_stopped(&work, 1)) {
    if ((uint64_t)*index - p->lowest[i] >= p->span[i]) {
      bool range = r->fault == PX_FAULT_RANGE;
      px_kernel_fault(r->l, r->fault, *index, range ? n : r->dims[i], range ? 0 : n);
      return true;
    }
    int d = o->ndim - 1;
    for (; d >= 0; d--) {
      if (o->strides[d] == 0) continue;
      index += o->strides[d];
      if (++at[d] < o->sizes[d]) break;
      index -= o->strides[d] * o->sizes[d];
      at[d] = 0;
    }
    if (d < 0) break;
  }
  return false;
}

static px_status report(const indexing *p, const request *r) {
  for (int i = 0; i < p->count; i++)
    if (report_first_invalid(p, r, i)) break;
  return PX_OK;
}

// ---- rows

#if defined(__AVX2__)
// Multiples of four indices; returns the number processed. Sizes and steps are 32-bit.
static int64_t add_offsets_by_4(int64_t *offsets, const int64_t *index, int64_t size, int64_t step,
                                uint64_t lowest, uint64_t span, int64_t n, uint64_t *bad) {
  const __m256i sign = _mm256_set1_epi64x(INT64_MIN), none = _mm256_setzero_si256();
  const __m256i sizes = _mm256_set1_epi64x(size), steps = _mm256_set1_epi64x(step);
  const __m256i first = _mm256_set1_epi64x((int64_t)lowest);
  const __m256i end = _mm256_xor_si256(_mm256_set1_epi64x((int64_t)span), sign);
  __m256i fine = _mm256_set1_epi64x(-1);
  int64_t k = 0;
  for (; k + 4 <= n; k += 4) {
    __m256i at = _mm256_loadu_si256((const __m256i *)(const void *)(index + k));
    __m256i above = _mm256_xor_si256(_mm256_sub_epi64(at, first), sign);
    fine = _mm256_and_si256(fine, _mm256_cmpgt_epi64(end, above));
    at = _mm256_add_epi64(at, _mm256_and_si256(_mm256_cmpgt_epi64(none, at), sizes));
    __m256i *to = (__m256i *)(void *)(offsets + k);
    __m256i sum = _mm256_add_epi64(_mm256_loadu_si256(to), _mm256_mul_epu32(at, steps));
    _mm256_storeu_si256(to, sum);
  }
  *bad |= (uint64_t)(_mm256_movemask_epi8(fine) != -1);
  return k;
}
#else
static int64_t add_offsets_by_4(int64_t *offsets, const int64_t *index, int64_t size, int64_t step,
                                uint64_t lowest, uint64_t span, int64_t n, uint64_t *bad) {
  return 0;
}
#endif

// Adds the offsets of an index tensor; negative indices count from the end. Returns false if an
// index is invalid; offsets are then meaningless.
static bool add_offsets(const indexing *p, int i, int64_t *offsets, const int64_t *index,
                        int64_t stride, int64_t n) {
  int64_t size = p->dim_sizes[i], step = p->dim_strides[i], k = 0;
  uint64_t lowest = p->lowest[i], span = p->span[i], bad = 0;
  if (stride == 1 && size <= UINT32_MAX && step >= 0 && step <= UINT32_MAX)
    k = add_offsets_by_4(offsets, index, size, step, lowest, span, n, &bad);
  for (; k < n; k++) {
    uint64_t at = (uint64_t)index[k * stride];
    bad |= at - lowest >= span;
    at += (uint64_t)((int64_t)at >> 63 & size);
    offsets[k] = (int64_t)((uint64_t)offsets[k] + at * (uint64_t)step);
  }
  return bad == 0;
}

static bool row_offsets(const indexing *p, int64_t *offsets, const int64_t *const *index,
                        int64_t begin, int64_t n) {
  int row = p->ndim - 2;
  bool fine = true;
  for (int64_t k = 0; k < n; k++) offsets[k] = (begin + k) * p->self_strides[row];
  for (int i = 0; i < p->count; i++) {
    int64_t stride = p->index_strides[i][row];
    fine &= add_offsets(p, i, offsets, index[i] + begin * stride, stride, n);
  }
  return fine;
}

// True if all are in [0, size): neither an index nor size - 1 - index is negative.
static bool all_nonnegative(const int64_t *index, int64_t size, int64_t n) {
  int64_t signs = 0;
  for (int64_t k = 0; k < n; k++) signs |= index[k] | (size - 1 - index[k]);
  return signs >= 0;
}

static positions direct_positions(const indexing *p, char *self, const int64_t *index,
                                  int64_t begin) {
  int64_t stride = p->self_strides[p->ndim - 2];
  return (positions){self + begin * stride, stride, p->dim_strides[0], index + begin};
}

// Number of row elements moved at a time.
static int64_t block_of(const indexing *p) {
  return p->sizes[p->ndim - 1] > 1 ? LINE_BLOCK : OFFSETS;
}

// Moves one row: computes its offsets, then moves a line at each. Returns false if an index is
// invalid or the call was interrupted.
static bool run_row(const indexing *p, char *self, char *other, const int64_t *const *index,
                    int64_t *work) {
  int row = p->ndim - 2, line = row + 1;
  int64_t at[OFFSETS], os = p->other[row], count = p->sizes[line];
  const int64_t block = block_of(p);
  for (int64_t begin = 0; begin < p->sizes[row]; begin += block) {
    int64_t n = p->sizes[row] - begin < block ? p->sizes[row] - begin : block;
    if (begin > 0 && px__work_stopped(work, block * count)) return false;
    positions where = {self, 0, 1, at};
    if (p->direct && (p->in_bounds || all_nonnegative(index[0] + begin, p->dim_sizes[0], n)))
      where = direct_positions(p, self, index[0], begin);
    else if (!row_offsets(p, at, index, begin, n))
      return false;
    char *values = other + begin * os;
    if (count > 1 && p->gather)
      for (int64_t k = 0; k < n; k++)
        p->moves.line(values + k * os, p->other[line], self + at[k], p->self_strides[line], count);
    else if (count > 1)
      for (int64_t k = 0; k < n; k++)
        p->moves.line(self + at[k], p->self_strides[line], values + k * os, p->other[line], count);
    else if (p->gather)
      p->gather(values, os, &where, n);
    else
      p->moves.scatter(&where, values, os, n);
  }
  return true;
}

// Moves all rows. Stops at a row with an invalid index.
static bool run_all(const indexing *p) {
  const int64_t *index[INDICES];
  char *self = p->self, *other = p->values;
  int64_t at[DIMS] = {0}, work = 0, size = p->sizes[p->ndim - 2];
  int64_t block = block_of(p), cost = (size < block ? size : block) * p->sizes[p->ndim - 1];
  for (int i = 0; i < p->count; i++) index[i] = p->index[i];
  while (!px__work_stopped(&work, cost)) {
    if (!run_row(p, self, other, index, &work)) return false;
    int d = p->ndim - 3;
    for (; d >= 0; d--) {
      int64_t steps = ++at[d] < p->sizes[d] ? 1 : 1 - p->sizes[d];
      self += steps * p->self_strides[d], other += steps * p->other[d];
      for (int i = 0; i < p->count; i++) index[i] += steps * p->index_strides[i][d];
      if (steps == 1) break;
      at[d] = 0;
    }
    if (d < 0) return true;
  }
  return false;
}

// ---- threads

// Runs [begin, end) of the shared dimension.
static void run_part(void *context, int64_t begin, int64_t end) {
  PX__BUFFER(indexing, p, 1);
  *p = *(const indexing *)context;
  int d = p->split;
  p->sizes[d] = end - begin;
  p->self += begin * p->self_strides[d], p->values += begin * p->other[d];
  for (int i = 0; i < p->count; i++) p->index[i] += begin * p->index_strides[i][d];
  if (!run_all(p)) __atomic_store_n(p->bad, true, __ATOMIC_RELAXED);
}

static int64_t abs_stride(int64_t stride) { return stride < 0 ? -stride : stride; }

// True if different indices and loop positions address different elements of the indexed tensor:
// sorted by stride, each dimension steps over the extent of all inner ones.
static bool elements_are_distinct(const indexing *p) {
  int64_t strides[DIMS + INDICES], sizes[DIMS + INDICES], reach = 0;
  int n = 0;
  for (int d = 0; d < p->ndim + p->count; d++) {
    int i = d - p->ndim;
    int64_t stride = abs_stride(i < 0 ? p->self_strides[d] : p->dim_strides[i]);
    int64_t size = i < 0 ? p->sizes[d] : p->dim_sizes[i];
    if (size == 1 || (i < 0 && stride == 0)) continue;
    int k = n++;
    for (; k > 0 && strides[k - 1] > stride; k--)
      strides[k] = strides[k - 1], sizes[k] = sizes[k - 1];
    strides[k] = stride, sizes[k] = size;
  }
  for (int k = 0; k < n; k++) {
    if (strides[k] <= reach) return false;
    reach += strides[k] * (sizes[k] - 1);
  }
  return true;
}

// The outermost sufficiently long dimension along which the written elements move, or the longest
// one.
static int choose_split(const indexing *p) {
  int64_t enough = 4 * (int64_t)px__cpu_thread_count();
  int best = -1;
  for (int d = 0; d < p->ndim; d++) {
    if ((p->gather ? p->other : p->self_strides)[d] == 0) continue;
    if (best < 0 || p->sizes[d] > p->sizes[best]) best = d;
    if (p->sizes[best] >= enough) break;
  }
  return best >= 0 && (p->gather || elements_are_distinct(p)) ? best : -1;
}

static void run_split(indexing *p, int64_t total) {
  int64_t size = p->sizes[p->split], each = total / size;
  int64_t grain = px__ceil_div(GRAIN, each);
  if (p->split == p->ndim - 1 && grain < MIN_LINE_PART) grain = MIN_LINE_PART;
  px__cpu_parallel(size, grain, run_part, p);
}

static px_status run(indexing *p, const request *r) {
  int64_t total = 1;
  bool bad = false;
  for (int d = 0; d < p->ndim; d++) total *= p->sizes[d];
  p->split = total > MAX_SINGLE_THREAD ? choose_split(p) : -1, p->bad = &bad;
  if (p->split < 0)
    bad = !run_all(p);
  else
    run_split(p, total);
  p->bad = NULL;
  return bad ? report(p, r) : PX_OK;
}

PX_KERNEL(index_get) {
  PX__BUFFER(indexing, p, 1);
  request r = REQUEST(out);
  setup(p, &r);
  size_t item = px__cpu_item[args->out->dtype];
  p->gather = gather_fns[item], p->moves = store_moves[item];
  return run(p, &r);
}

static moves moves_for(int dtype, px_put_mode how) {
  if (how == PX_PUT_ADD && dtype == PX_FLOAT16) return add_f16;
  if (how != PX_PUT_STORE && dtype == PX_COMPLEX64) return multiply_complex64;
  if (how != PX_PUT_STORE && dtype == PX_COMPLEX128) return multiply_complex128;
  return how == PX_PUT_STORE ? store_moves[px__cpu_item[dtype]] : combine_moves[how][dtype];
}
PX_KERNEL(index_put) {
  PX__BUFFER(indexing, p, 1);
  request r = REQUEST(values);
  setup(p, &r);
  int dtype = args->self->dtype;
  p->gather = NULL, p->moves = moves_for(dtype, (px_put_mode)args->how);
  for (int i = 0; i < p->count; i++)
    if (is_bad(p, i)) return report(p, &r);
  return run(p, &r);
}
