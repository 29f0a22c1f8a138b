// SPDX-License-Identifier: Apache-2.0
// Runs a row function over the operands of a launch.
//
// Fast path: all operands are contiguous or scalars, with the row's dtypes; one call. General path:
// adjacent dimensions are merged where possible, the one with the smallest strides becomes the row,
// and operands of other dtypes are converted in blocks. Large launches are split over the pool. The
// parts are disjoint in the result, so the split does not affect it.
#include "cpu/threads/buffer.h"
#include "cpu/threads/cache_line.h"
#include "cpu/loop/loop.h"

#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/convert/transpose.h"
#include "cpu/threads/threads.h"
#include "cpu_kernels.h"
#include "kernel_args/copy.h"

enum {
  MAX_SINGLE_THREAD = 2048,  // max elements run on the calling thread
  CONVERT_BLOCK = 512,       // elements converted at a time
  GRAIN = 16384              // grain of the pool, elements
};
enum {
  MAX_SHORT_ROW = 8192,  // max bytes of a short row
  MIN_FILL = 512         // min elements of a result filled with one value
};
static const int64_t zero[2];  // absent operands read as zero

typedef struct plan {
  const px_launch *l;
  px__cpu_row row;
  int operands, ndim;
  uint32_t convert;  // bit i: operand i has another dtype than the row
  int dtypes[PX_MAX_OPERANDS], row_dtypes[PX_MAX_OPERANDS];
  char *data[PX_MAX_OPERANDS];
  double numbers[PX_MAX_OPERANDS][2];  // converted scalars
  int64_t sizes[PX_MAX_DIMS];
  int64_t strides[PX_MAX_DIMS][PX_MAX_OPERANDS];  // bytes; dimension 0 is the row
} plan;

// ---- fast path

// The stride of an operand over all elements: 0 or the item size; -1 if there is no single stride.
static int64_t single_stride(const px_operand *o, int64_t item) {
  int64_t dense = 1;
  bool contiguous = true, expanded = true;
  for (int d = o->ndim - 1; d >= 0; d--) {
    if (o->sizes[d] == 1) continue;
    contiguous &= o->strides[d] == dense;
    expanded &= o->strides[d] == 0;
    dense *= o->sizes[d];
  }
  return expanded ? 0 : contiguous ? item : -1;
}

typedef struct contiguous_job {
  px__cpu_row row;
  const px_launch *l;
  int operands;
  char **data;
  const int64_t *strides;
} contiguous_job;
static void run_contiguous(void *context, int64_t begin, int64_t end) {
  const contiguous_job *j = context;
  char *at[PX_MAX_OPERANDS];
  for (int i = 0; i < j->operands; i++) at[i] = j->data[i] + begin * j->strides[i];
  j->row(at, j->strides, end - begin, j->l);
}

// single_stride for any operand, including absent and immediate ones; -1 if the dtype differs.
static __attribute__((noinline)) int64_t operand_stride(const px_operand *o, int want) {
  if (o->dtype == PX_DTYPE_NONE) return 0;
  if (o->dtype != want) return -1;
  return o->immediate ? 0 : single_stride(o, px__cpu_item[want]);
}

// Runs the fast path if it applies. `dtype`: that of the row.
static bool try_contiguous(const px_launch *l, const px__cpu_pointwise *op, int dtype, int64_t n) {
  px__cpu_row row = op->rows[dtype];
  char *data[PX_MAX_OPERANDS];
  int64_t strides[PX_MAX_OPERANDS];
  bool same_dtype = !op->bools && !op->real;
  for (int i = 0; i < op->operands; i++) {
    const px_operand *o = &l->operands[i];
    int want = same_dtype ? dtype : px__cpu_operand_dtype(op, i, dtype);
    data[i] = o->data, strides[i] = px__cpu_item[want];
    // Fast exit: most operands are 1-D and contiguous.
    if (o->dtype == want && o->ndim == 1 && !o->immediate && o->strides[0] == 1) continue;
    strides[i] = operand_stride(o, want);
    if (o->dtype == PX_DTYPE_NONE) data[i] = (char *)(uintptr_t)zero;
    if (strides[i] < 0 || (i == 0 && strides[i] == 0 && n > 1)) return false;
  }
  if (n <= MAX_SINGLE_THREAD) {
    row(data, strides, n, l);
    return true;
  }
  contiguous_job j = {row, l, op->operands, data, strides};
  px__cpu_parallel_of((const void *)(uintptr_t)row, n, GRAIN, run_contiguous, &j);
  return true;
}

// ---- AVX-512 rows with stride-0 operands

#if defined(__AVX2__)
enum {
  MAX_EXPANDED = 3,  // max stride-0 operands
  EXPANDED = 1024    // bytes of an expanded operand
};

static void expand(char *to, const char *from, int64_t item, int64_t n) {
  if (item == sizeof(float))
    for (int64_t k = 0; k < n; k++) memcpy(to + k * 4, from, 4);
  else
    for (int64_t k = 0; k < n; k++) memcpy(to + k * 8, from, 8);
}

bool px__cpu_wide_broadcast(px__cpu_wide_row row, char *const *p, const int64_t *s, int64_t n,
                            const px_launch *l, int operands, int64_t item) {
  _Alignas(PX__CACHE_LINE) char buffers[MAX_EXPANDED][EXPANDED];
  char *at[PX_MAX_OPERANDS];
  int64_t steps[PX_MAX_OPERANDS];
  int64_t max = EXPANDED / item, piece = n < max ? n : max;
  int expanded = 0;
  for (int i = 0; i < operands; i++) {
    at[i] = p[i], steps[i] = item;
    if (s[i] == item) continue;
    if (i == 0 || s[i] != 0 || expanded == MAX_EXPANDED) return false;
    expand(at[i] = buffers[expanded++], p[i], item, piece);
  }
  for (int64_t begin = 0; begin < n; begin += piece) {
    int64_t count = n - begin < piece ? n - begin : piece;
    if (!row(at, steps, count, l)) return false;
    for (int i = 0; i < operands; i++)
      if (s[i] != 0) at[i] += count * item;
  }
  return true;
}
#endif

// ---- general path

static void load_operands(plan *p, const px_launch *l, const px__cpu_pointwise *op) {
  p->l = l, p->operands = op->operands, p->convert = 0;
  int compute = px__cpu_row_dtype(op, l->compute);
  for (int i = 0; i < op->operands; i++) {
    const px_operand *o = &l->operands[i];
    if (compute == PX_DTYPE_NONE) compute = o->dtype;  // a copy has no compute dtype
    p->row_dtypes[i] = px__cpu_operand_dtype(op, i, compute);
    p->dtypes[i] = o->dtype;
    p->data[i] = o->data;
    bool expanded =
        i > 0 && (o->immediate || o->dtype == PX_DTYPE_NONE || single_stride(o, 1) == 0);
    if (o->dtype == PX_DTYPE_NONE) {
      p->data[i] = (char *)(uintptr_t)zero;
    } else if (o->dtype != p->row_dtypes[i] && expanded) {
      px__cpu_convert(p->numbers[i], 8, p->row_dtypes[i], o->data, 8, o->dtype, 1);
      p->data[i] = (char *)p->numbers[i];
    } else if (o->dtype != p->row_dtypes[i]) {
      p->convert |= 1u << i;
    }
  }
}

static void add_dim(plan *p, int64_t size, const int64_t *strides) {
  if (p->ndim > 0) {  // merges with the previous dimension if all operands' strides match
    int64_t *last = p->strides[p->ndim - 1];
    bool joins = true;
    for (int i = 0; i < p->operands; i++) joins &= strides[i] == last[i] * p->sizes[p->ndim - 1];
    if (joins) {
      p->sizes[p->ndim - 1] *= size;
      return;
    }
  }
  p->sizes[p->ndim] = size;
  memcpy(p->strides[p->ndim++], strides, sizeof(int64_t) * (size_t)p->operands);
}

static int64_t byte_stride(const px_launch *l, int i, int d) {
  const px_operand *o = &l->operands[i];
  return o->immediate || o->dtype == PX_DTYPE_NONE ? 0 : o->strides[d] * px__cpu_item[o->dtype];
}

// True if dimension a belongs inside of b, by the result's strides, then the inputs'.
static bool is_inner(const px_launch *l, int operands, int a, int b) {
  for (int i = 0; i < operands; i++) {
    int64_t x = byte_stride(l, i, a), y = byte_stride(l, i, b);
    x = x < 0 ? -x : x, y = y < 0 ? -y : y;
    if (x != y && x && y) return x < y;
  }
  return a > b;
}

static void load_dims(plan *p, const px_launch *l) {
  const px_operand *out = &l->operands[0];
  int order[PX_MAX_DIMS], count = 0;
  for (int d = out->ndim - 1; d >= 0; d--) {
    if (out->sizes[d] == 1) continue;
    int at = count++;
    for (; at > 0 && is_inner(l, p->operands, d, order[at - 1]); at--) order[at] = order[at - 1];
    order[at] = d;
  }
  p->ndim = 0;
  for (int k = 0; k < count; k++) {
    int64_t strides[PX_MAX_OPERANDS];
    for (int i = 0; i < p->operands; i++) strides[i] = byte_stride(l, i, order[k]);
    add_dim(p, out->sizes[order[k]], strides);
  }
  if (p->ndim == 0) {
    p->ndim = 1, p->sizes[0] = 1;
    memset(p->strides[0], 0, sizeof p->strides[0]);
  }
}

// Elements of an operand, at most complex numbers of two doubles.
typedef double block[CONVERT_BLOCK + 4][2];

// Part of a row with operands of other dtypes.
static void run_blocks(const plan *p, char *const *at, int64_t n) {
  PX__BUFFER(block, buffers, (size_t)p->operands);
  char *data[PX_MAX_OPERANDS];
  int64_t strides[PX_MAX_OPERANDS];
  const int64_t *step = p->strides[0];
  for (int64_t begin = 0; begin < n; begin += CONVERT_BLOCK) {
    int64_t count = n - begin < CONVERT_BLOCK ? n - begin : CONVERT_BLOCK;
    for (int i = 0; i < p->operands; i++) {
      bool other = p->convert >> i & 1u;
      char *from = at[i] + begin * step[i];
      data[i] = other ? (char *)buffers[i] : from;
      strides[i] = other ? px__cpu_item[p->row_dtypes[i]] : step[i];
      if (other && i > 0)
        px__cpu_convert(buffers[i], strides[i], p->row_dtypes[i], from, step[i], p->dtypes[i],
                        count);
    }
    p->row(data, strides, count, p->l);
    if (p->convert & 1u)
      px__cpu_convert(at[0] + begin * step[0], step[0], p->dtypes[0], buffers[0], strides[0],
                      p->row_dtypes[0], count);
  }
}

static void run_part(const plan *p, char *const *at, int64_t n) {
  if (!p->row)
    (p->l->stream ? px__device_convert : px__cpu_convert)(at[0], p->strides[0][0], p->dtypes[0],
                                                          at[1], p->strides[0][1], p->dtypes[1], n);
  else if (p->convert)
    run_blocks(p, at, n);
  else
    p->row(at, p->strides[0], n, p->l);
}

// Number of short contiguous rows, at most `left` elements, that can be copied by one call. 0 for
// bool: its bytes are normalized, not copied.
static int64_t short_rows(const plan *p, const int64_t *index, int64_t left) {
  int64_t item = px__cpu_item[p->dtypes[0]], rows;
  bool same_dtype = p->dtypes[0] == p->dtypes[1] && p->dtypes[0] != PX_BOOL;
  if (p->row || p->ndim < 2 || !same_dtype || index[0] || p->sizes[0] * item > MAX_SHORT_ROW)
    return 0;
  if (p->strides[0][0] != item || p->strides[0][1] != item) return 0;
  rows = left / p->sizes[0];
  return rows < p->sizes[1] - index[1] ? rows : p->sizes[1] - index[1];
}
static void copy_rows(const plan *p, char *const *at, int64_t rows) {
  px__cpu_move_rows(at[0], p->strides[1][0], at[1], p->strides[1][1], rows,
                    p->sizes[0] * px__cpu_item[p->dtypes[0]]);
}

// Elements [begin, end) in the plan's order.
static void run_range(void *context, int64_t begin, int64_t end) {
  const plan *p = context;
  const int ndim = p->ndim;
  int64_t index[PX_MAX_DIMS], rest = begin;
  char *at[PX_MAX_OPERANDS];
  memcpy(at, p->data, sizeof at);
  for (int d = 0; d < ndim; d++) {
    index[d] = rest % p->sizes[d];
    rest /= p->sizes[d];
    for (int i = 0; i < p->operands; i++) at[i] += index[d] * p->strides[d][i];
  }
  while (begin < end) {
    int64_t n = p->sizes[0] - index[0], rows = short_rows(p, index, end - begin);
    if (n > end - begin) n = end - begin;
    if (rows > 1) {
      copy_rows(p, at, rows);
      n = rows-- * p->sizes[0], index[1] += rows;
      for (int i = 0; i < p->operands; i++) at[i] += rows * p->strides[1][i];
    } else {
      run_part(p, at, n);
    }
    begin += n;
    if (index[0])
      for (int i = 0; i < p->operands; i++) at[i] -= index[0] * p->strides[0][i];
    index[0] = 0;
    for (int d = 1; d < ndim; d++) {
      bool wraps = ++index[d] == p->sizes[d];
      int64_t steps = wraps ? 1 - p->sizes[d] : 1;
      for (int i = 0; i < p->operands; i++) at[i] += steps * p->strides[d][i];
      if (!wraps) break;
      index[d] = 0;
    }
  }
}

// Copies an operand to another of the same shape and any dtype.
static px_status copy_elements(const px_launch *l) {
  static const px__cpu_pointwise two = {.operands = 2};
  int64_t n = px_operand_numel(&l->operands[0]);
  if (n == 0) return PX_OK;
  PX__BUFFER(plan, p, 1);
  load_operands(p, l, &two);
  load_dims(p, l);
  for (int i = 0; i < 2; i++) p->data[i] = l->operands[i].data;
  p->row = NULL;
  px__cpu_parallel(n, GRAIN, run_range, p);
  return PX_OK;
}

// Copies between any dtypes and strides, negative strides included.
PX_KERNEL(copy) { return px__cpu_copy_across(args->to, args->from) ? PX_OK : copy_elements(l); }

typedef struct fill {
  char *to;
  int64_t item;
  int dtype;
} fill;
static void fill_part(void *context, int64_t begin, int64_t end) {
  const fill *f = context;  // element 0 is already computed
  px__cpu_convert(f->to + (begin + 1) * f->item, f->item, f->dtype, f->to, 0, f->dtype,
                  end - begin);
}
// Computes a single element and fills the result with it, if all operands are scalars or
// expanded, or none is read. Returns false if this does not apply or the result has gaps.
static bool try_fill(const px_launch *l, const px__cpu_pointwise *op, px__cpu_row row, int64_t n) {
  const px_operand *out = &l->operands[0];
  fill f = {out->data, px__cpu_item[out->dtype], out->dtype};
  if (n < MIN_FILL) return false;
  for (int i = 1; i < op->operands && !op->alike; i++) {
    const px_operand *o = &l->operands[i];
    if (!o->immediate && o->dtype != PX_DTYPE_NONE && single_stride(o, 1) != 0) return false;
  }
  if (single_stride(out, f.item) != f.item) return false;
  PX__BUFFER(plan, p, 1);
  load_operands(p, l, op);
  p->row = row, p->ndim = 1;
  memset(p->strides[0], 0, sizeof p->strides[0]);
  run_part(p, p->data, 1);
  px__cpu_parallel(n - 1, GRAIN, fill_part, &f);
  return true;
}

px_status px__cpu_pointwise_run(const px_launch *l, const px__cpu_pointwise *op) {
  if (__builtin_expect(!l->operands, 0)) return memcpy(l->stream, &op, sizeof op), PX_OK;
  int dtype = px__cpu_row_dtype(op, l->compute);
  px__cpu_row row = op->rows[dtype];
  if (!row)
    return px_error_set(PX_UNIMPLEMENTED, 0, __FILE__, __LINE__, __func__,
                        "\"%s\" not implemented for '%s'", l->op,
                        px_dtype_class((px_dtype)l->compute));
  int64_t n = px_operand_numel(&l->operands[0]);
  if (n == 0 || try_fill(l, op, row, n) || try_contiguous(l, op, dtype, n)) return PX_OK;
  PX__BUFFER(plan, p, 1);
  load_operands(p, l, op);
  load_dims(p, l);
  p->row = row;
  px__cpu_parallel_of((const void *)(uintptr_t)row, n, GRAIN, run_range, p);
  return PX_OK;
}
