// SPDX-License-Identifier: Apache-2.0
// The kernels "index_get" and "index_put": elements picked by index tensors (src/ops/index_impl.h).
//
// All operands have the sizes of the loop. Before anything is put all indices are checked, so that
// a bad one changes nothing; what is got is checked on the way.
//
// The loop is three deep: dimensions of any kind; a row, of which the places are worked out
// together, unless its only index tensor tells them; and a line, along which no index changes.
// Threads share a dimension along which what is written lies apart. So each element is written by
// one thread, in row-major order of the loop, and the last of several values wins, or sums are
// rounded, as with one thread.
#include "cpu/index_rows.h"
#include "kernel_args/index.h"

#include "cpu/convert.h"
#include "cpu/dense.h"
#include "cpu/threads.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { INDICES = PX_MAX_OPERANDS - 2, DIMS = PX_MAX_DIMS + 2, PLACES = 256, LINES = 64 };
// Elements that are worth another thread; elements of a line that one thread takes at least, lest
// several write to one line of the cache.
enum { ALONE = 32768, PIECE = 16384, LINE = 64 };

// What both kernels are given.
typedef struct request {
  const px_launch *l;
  const px_operand *self, *other, *indices;  // other: what is got, or put
  int count;                                 // of indices
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

typedef struct pick {
  int ndim, count;                               // dimensions of the loop; index tensors
  int64_t sizes[DIMS], mine[DIMS], other[DIMS];  // strides in bytes, of the indexed tensor first
  int64_t index_strides[INDICES][DIMS];          // in elements
  int64_t dim_sizes[INDICES], dim_strides[INDICES];  // strides in bytes
  const int64_t *index[INDICES];
  char *self, *values;
  gather_fn gather;  // NULL: values are put
  moves moves;
  uint64_t least[INDICES], span[INDICES];  // an index less the least is below the span
  bool direct;                             // the only index tensor has neighbours along the row
  bool plain;                              // and none that is out of bounds or counts from the end
  int split;                               // the dimension that threads share
  bool *bad;                               // atomic: a thread met a bad index
} pick;

// ---- the loop's dimensions

// Whether dimension d of the operands goes on where the last one of p ends.
static bool joins(const pick *p, const request *r, int d, int64_t item) {
  int n = p->ndim - 1;
  int64_t size = r->self->sizes[d];
  if (p->ndim == 0 || p->mine[n] != r->self->strides[d] * item * size) return false;
  if (p->other[n] != r->other->strides[d] * item * size) return false;
  for (int i = 0; i < p->count; i++)
    if (p->index_strides[i][n] != r->indices[i].strides[d] * size) return false;
  return true;
}

// A dimension along which nothing moves.
static void add_still(pick *p) {
  int d = p->ndim++;
  p->sizes[d] = 1, p->mine[d] = p->other[d] = 0;
  for (int i = 0; i < p->count; i++) p->index_strides[i][d] = 0;
}

static bool is_indexed(const pick *p, int d) {
  for (int i = 0; i < p->count; i++)
    if (p->index_strides[i][d] != 0) return true;
  return false;
}

// Puts a row of one element before the only dimension.
static void line_alone(pick *p) {
  add_still(p);
  p->sizes[1] = p->sizes[0], p->mine[1] = p->mine[0], p->other[1] = p->other[0];
  p->sizes[0] = 1, p->mine[0] = p->other[0] = 0;
}

static void setup(pick *p, const request *r) {
  const px_operand *self = r->self, *other = r->other;
  int64_t item = px__cpu_item[self->dtype];
  p->self = self->data, p->values = other->data;
  p->ndim = 0, p->count = r->count;
  for (int i = 0; i < p->count; i++) {
    p->index[i] = r->indices[i].data;
    p->dim_sizes[i] = r->dim_sizes[i];
    p->dim_strides[i] = r->dim_strides[i] * item;
    p->least[i] = r->wraps ? -(uint64_t)p->dim_sizes[i] : 0;
    p->span[i] = (uint64_t)p->dim_sizes[i] * (r->wraps ? 2 : 1);
  }
  for (int d = 0; d < self->ndim; d++) {
    if (self->sizes[d] == 1) continue;
    bool joined = joins(p, r, d, item);
    if (!joined) add_still(p);
    int n = p->ndim - 1;
    p->sizes[n] *= self->sizes[d];
    p->mine[n] = self->strides[d] * item, p->other[n] = other->strides[d] * item;
    for (int i = 0; i < p->count; i++) p->index_strides[i][n] = r->indices[i].strides[d];
  }
  if (p->ndim == 0 || is_indexed(p, p->ndim - 1)) add_still(p);
  if (p->ndim == 1) line_alone(p);
  int row = p->ndim - 2;
  p->plain = false;
  p->direct = p->count == 1 && p->sizes[row + 1] == 1 && p->index_strides[0][row] == 1;
}

// ---- indices that are out of bounds

typedef struct look {
  const int64_t *index;
  int ndim;
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS];  // of the index tensor alone
  uint64_t least, span;
  bool bad;  // atomic
} look;

static bool line_is_bad(const look *k, const int64_t *index, int64_t stride, int64_t n) {
  uint64_t bad = 0;
  if (stride == 1)
    for (int64_t i = 0; i < n; i++) bad |= (uint64_t)index[i] - k->least >= k->span;
  else
    for (int64_t i = 0; i < n; i++) bad |= (uint64_t)index[i * stride] - k->least >= k->span;
  return bad != 0;
}

// Lines of the innermost dimension; or, if there is no other, a part of it.
static void look_at(void *context, int64_t begin, int64_t end) {
  look *k = context;
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

static bool is_outside(const pick *p, int i, uint64_t least, uint64_t span) {
  look k = {.index = p->index[i], .least = least, .span = span};
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
    px__cpu_parallel(length, ALONE, look_at, &k);
  else
    px__cpu_parallel(lines, ALONE / length + 1, look_at, &k);
  return k.bad;
}

// Whether index tensor i has a bad element. Most have none that counts from the end, either.
static bool is_bad(pick *p, int i) {
  p->plain = !is_outside(p, i, 0, (uint64_t)p->dim_sizes[i]);
  return !p->plain && (p->least[i] == 0 || is_outside(p, i, p->least[i], p->span[i]));
}

// Looks at each element of index tensor i once, and reports the first bad one.
static bool report_one(const pick *p, const request *r, int i) {
  const px_operand *o = &r->indices[i];
  const int64_t *index = p->index[i];
  int64_t at[PX_MAX_DIMS] = {0}, n = p->dim_sizes[i], work = 0;
  while (!px__worked(&work, 1)) {
    if ((uint64_t)*index - p->least[i] >= p->span[i]) {
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

static px_status report(const pick *p, const request *r) {
  for (int i = 0; i < p->count; i++)
    if (report_one(p, r, i)) break;
  return PX_OK;
}

// ---- rows

#if defined(__AVX2__)
// Four at a time, as many as there are of them; sizes and steps are of 32 bits.
static int64_t add_fours(int64_t *places, const int64_t *index, int64_t size, int64_t step,
                         uint64_t least, uint64_t span, int64_t n, uint64_t *bad) {
  const __m256i sign = _mm256_set1_epi64x(INT64_MIN), none = _mm256_setzero_si256();
  const __m256i sizes = _mm256_set1_epi64x(size), steps = _mm256_set1_epi64x(step);
  const __m256i first = _mm256_set1_epi64x((int64_t)least);
  const __m256i end = _mm256_xor_si256(_mm256_set1_epi64x((int64_t)span), sign);
  __m256i fine = _mm256_set1_epi64x(-1);
  int64_t k = 0;
  for (; k + 4 <= n; k += 4) {
    __m256i at = _mm256_loadu_si256((const __m256i *)(const void *)(index + k));
    __m256i above = _mm256_xor_si256(_mm256_sub_epi64(at, first), sign);
    fine = _mm256_and_si256(fine, _mm256_cmpgt_epi64(end, above));
    at = _mm256_add_epi64(at, _mm256_and_si256(_mm256_cmpgt_epi64(none, at), sizes));
    __m256i *to = (__m256i *)(void *)(places + k);
    __m256i sum = _mm256_add_epi64(_mm256_loadu_si256(to), _mm256_mul_epu32(at, steps));
    _mm256_storeu_si256(to, sum);
  }
  *bad |= (uint64_t)(_mm256_movemask_epi8(fine) != -1);
  return k;
}
#else
static int64_t add_fours(int64_t *places, const int64_t *index, int64_t size, int64_t step,
                         uint64_t least, uint64_t span, int64_t n, uint64_t *bad) {
  return 0;
}
#endif

// Adds what an index tensor says to the places. A negative index counts from the end. Says whether
// all are in bounds; places of others mean nothing.
static bool add_places(const pick *p, int i, int64_t *places, const int64_t *index, int64_t stride,
                       int64_t n) {
  int64_t size = p->dim_sizes[i], step = p->dim_strides[i], k = 0;
  uint64_t least = p->least[i], span = p->span[i], bad = 0;
  if (stride == 1 && size <= UINT32_MAX && step >= 0 && step <= UINT32_MAX)
    k = add_fours(places, index, size, step, least, span, n, &bad);
  for (; k < n; k++) {
    uint64_t at = (uint64_t)index[k * stride];
    bad |= at - least >= span;
    at += (uint64_t)((int64_t)at >> 63 & size);
    places[k] = (int64_t)((uint64_t)places[k] + at * (uint64_t)step);
  }
  return bad == 0;
}

static bool row_places(const pick *p, int64_t *places, const int64_t *const *index, int64_t begin,
                       int64_t n) {
  int row = p->ndim - 2;
  bool fine = true;
  for (int64_t k = 0; k < n; k++) places[k] = (begin + k) * p->mine[row];
  for (int i = 0; i < p->count; i++) {
    int64_t stride = p->index_strides[i][row];
    fine &= add_places(p, i, places, index[i] + begin * stride, stride, n);
  }
  return fine;
}

// Whether all are from 0 to size - 1: no sign is set of an index, nor of what is left above it.
static bool are_plain(const int64_t *index, int64_t size, int64_t n) {
  int64_t signs = 0;
  for (int64_t k = 0; k < n; k++) signs |= index[k] | (size - 1 - index[k]);
  return signs >= 0;
}

static spots direct_spots(const pick *p, char *self, const int64_t *index, int64_t begin) {
  int64_t stride = p->mine[p->ndim - 2];
  return (spots){self + begin * stride, stride, p->dim_strides[0], index + begin};
}

// How much of a row is moved at once.
static int64_t block_of(const pick *p) { return p->sizes[p->ndim - 1] > 1 ? LINES : PLACES; }

// Moves one row: its places, then a line at each of them. False: a bad index, or the call has been
// ended.
static bool run_row(const pick *p, char *self, char *other, const int64_t *const *index,
                    int64_t *work) {
  int row = p->ndim - 2, line = row + 1;
  int64_t at[PLACES], os = p->other[row], count = p->sizes[line];
  const int64_t most = block_of(p);
  for (int64_t begin = 0; begin < p->sizes[row]; begin += most) {
    int64_t n = p->sizes[row] - begin < most ? p->sizes[row] - begin : most;
    if (begin > 0 && px__worked(work, most * count)) return false;
    spots where = {self, 0, 1, at};
    if (p->direct && (p->plain || are_plain(index[0] + begin, p->dim_sizes[0], n)))
      where = direct_spots(p, self, index[0], begin);
    else if (!row_places(p, at, index, begin, n))
      return false;
    char *values = other + begin * os;
    if (count > 1 && p->gather)
      for (int64_t k = 0; k < n; k++)
        p->moves.line(values + k * os, p->other[line], self + at[k], p->mine[line], count);
    else if (count > 1)
      for (int64_t k = 0; k < n; k++)
        p->moves.line(self + at[k], p->mine[line], values + k * os, p->other[line], count);
    else if (p->gather)
      p->gather(values, os, &where, n);
    else
      p->moves.scatter(&where, values, os, n);
  }
  return true;
}

// Stops at a row that has a bad index.
static bool run_all(const pick *p) {
  const int64_t *index[INDICES];
  char *self = p->self, *other = p->values;
  int64_t at[DIMS] = {0}, work = 0, size = p->sizes[p->ndim - 2];
  int64_t most = block_of(p), cost = (size < most ? size : most) * p->sizes[p->ndim - 1];
  for (int i = 0; i < p->count; i++) index[i] = p->index[i];
  while (!px__worked(&work, cost)) {
    if (!run_row(p, self, other, index, &work)) return false;
    int d = p->ndim - 3;
    for (; d >= 0; d--) {
      int64_t steps = ++at[d] < p->sizes[d] ? 1 : 1 - p->sizes[d];
      self += steps * p->mine[d], other += steps * p->other[d];
      for (int i = 0; i < p->count; i++) index[i] += steps * p->index_strides[i][d];
      if (steps == 1) break;
      at[d] = 0;
    }
    if (d < 0) return true;
  }
  return false;
}

// ---- threads

// The part [begin, end) of the dimension that is shared.
static void run_part(void *context, int64_t begin, int64_t end) {
  pick p = *(const pick *)context;
  int d = p.split;
  p.sizes[d] = end - begin;
  p.self += begin * p.mine[d], p.values += begin * p.other[d];
  for (int i = 0; i < p.count; i++) p.index[i] += begin * p.index_strides[i][d];
  if (!run_all(&p)) __atomic_store_n(p.bad, true, __ATOMIC_RELAXED);
}

static int64_t size_of(int64_t stride) { return stride < 0 ? -stride : stride; }

// Whether different indices and places of the loop are different elements of the indexed tensor:
// sorted by stride, each dimension steps over all of those inside.
static bool lies_apart(const pick *p) {
  int64_t strides[DIMS + INDICES], sizes[DIMS + INDICES], reach = 0;
  int n = 0;
  for (int d = 0; d < p->ndim + p->count; d++) {
    int i = d - p->ndim;
    int64_t stride = size_of(i < 0 ? p->mine[d] : p->dim_strides[i]);
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

// The outermost dimension that is long enough along which what is written moves, or the longest.
static int choose_split(const pick *p) {
  int64_t enough = 4 * (int64_t)px__cpu_thread_count();
  int best = -1;
  for (int d = 0; d < p->ndim; d++) {
    if ((p->gather ? p->other : p->mine)[d] == 0) continue;
    if (best < 0 || p->sizes[d] > p->sizes[best]) best = d;
    if (p->sizes[best] >= enough) break;
  }
  return best >= 0 && (p->gather || lies_apart(p)) ? best : -1;
}

static void run_split(pick *p, int64_t total) {
  int64_t size = p->sizes[p->split], each = total / size;
  int64_t grain = px__ceil_div(PIECE, each);
  if (p->split == p->ndim - 1 && grain < LINE) grain = LINE;
  px__cpu_parallel(size, grain, run_part, p);
}

static px_status run(pick *p, const request *r) {
  int64_t total = 1;
  bool bad = false;
  for (int d = 0; d < p->ndim; d++) total *= p->sizes[d];
  p->split = total > ALONE ? choose_split(p) : -1, p->bad = &bad;
  if (p->split < 0)
    bad = !run_all(p);
  else
    run_split(p, total);
  p->bad = NULL;
  return bad ? report(p, r) : PX_OK;
}

PX_KERNEL(index_get) {
  pick p;
  request r = REQUEST(out);
  setup(&p, &r);
  size_t item = px__cpu_item[args->out->dtype];
  p.gather = gathering[item], p.moves = putting[item];
  return run(&p, &r);
}

static moves moving(int dtype, px_put_mode how) {
  if (how == PX_PUT_ADD && dtype == PX_FLOAT16) return add_halves;
  return how == PX_PUT_STORE ? putting[px__cpu_item[dtype]] : joining[how][dtype];
}
PX_KERNEL(index_put) {
  pick p;
  request r = REQUEST(values);
  setup(&p, &r);
  int dtype = args->self->dtype;
  p.gather = NULL, p.moves = moving(dtype, (px_put_mode)args->how);
  for (int i = 0; i < p.count; i++)
    if (is_bad(&p, i)) return report(&p, &r);
  return run(&p, &r);
}
