// SPDX-License-Identifier: Apache-2.0
// Scans along a dimension: cumulative sums, products and extremes. Operands are dense, outer x
// size x inner.
//
// Contiguous lines (inner = 1) are read and written by warps in 16-byte vectors: several short
// lines per warp, one warp for most lines, one block of K_BLOCK threads per tile for few long
// lines. Strided lines are split into chunks of one thread each; adjacent threads process adjacent
// lines, so accesses are coalesced.
#include "complex.cuh"
#include "tiles.cuh"

// ---- scans, in double, int64 or complex double

struct sum_or_product {
  bool product;
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return product ? a * b : a + b;
  }
};
template <typename S>
struct wide_of {
  typedef double W;
};
template <>
struct wide_of<int64_t> {
  typedef int64_t W;
};
template <typename R>
struct wide_of<k_complex<R>> {
  typedef k_c128 W;
};

// A warp's share of a contiguous line: K_SCAN_VECTORS rounds of 32 vectors, all in flight at
// once. ROWS: the line consists of rows of p.width elements with separate sums, and the share
// covers whole rows.
template <typename S, bool ROWS>
struct warp_share {
  typedef typename wide_of<S>::W W;
  enum { VECTORS = K_SCAN_VECTORS, EACH = 16 / sizeof(S), ROUND = 32 * EACH };
  enum { SIZE = VECTORS * ROUND };
  typedef k_loaded<S, EACH> V;
  V x[VECTORS];
  W before[VECTORS];  // sum of the elements preceding this thread's
  int64_t at;
  int size, step;
  bool aligned;

  // Loads elements from `begin` on; the unit past the end.
  __device__ __forceinline__ warp_share(const k_lines &p, int64_t line, int64_t begin, W unit) {
    int64_t left = p.size - begin, larger = ROWS ? p.take : SIZE;
    size = (int)(left < larger ? left : larger), step = p.backwards ? -1 : 1;
    at = line * p.size + (p.backwards ? p.size - 1 - begin : begin);
    const S *in = (const S *)p.in + at;
    aligned = step == 1 && ((uintptr_t)in | (uintptr_t)((S *)p.out + at)) % sizeof(V) == 0;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      int i = first(v);
      if (aligned && i + EACH <= size) {
        x[v] = *(const V *)(in + i);
        continue;
      }
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        S element;
        k_put(&element, unit);
        if (i + e < size) element = in[(i + e) * step];
        x[v].put(e, element);
      }
    }
  }
  static __device__ __forceinline__ int first(int v) {
    return v * ROUND + (threadIdx.x & 31) * EACH;
  }
  // Index of a vector's first element in its row.
  static __device__ __forceinline__ int index_in_row(const k_lines &p, int v) {
    return ROWS ? first(v) - (int)k_divide((uint32_t)first(v), p.by_width) * (int)p.width : 0;
  }
  // Total of all elements; with ROWS, of the last row.
  __device__ __forceinline__ W sum(const k_lines &p, const sum_or_product &f, W unit) {
    W carry = unit;
    int lane = threadIdx.x & 31, row = (int)p.width;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      before[v] = carry;
      if (v * ROUND >= size) continue;
      const int begin = index_in_row(p, v);
      int end = begin;  // index of the last element in its row
      W total = (W)k_get(x[v][0]);
#pragma unroll
      for (int e = 1; e < EACH; e++) {
        if (ROWS && ++end == row) total = unit, end = 0;
        total = f(total, (W)k_get(x[v][e]));
      }
#pragma unroll
      for (int width = 1; width < 32; width *= 2) {
        if (ROWS && width * EACH >= row) break;
        W left = __shfl_up_sync(0xffffffffu, total, width);
        if (lane >= width && (!ROWS || end >= width * EACH)) total = f(left, total);
      }
      W left = __shfl_up_sync(0xffffffffu, total, 1);
      if (lane) before[v] = !ROWS || begin > lane * EACH ? f(carry, left) : left;
      total = __shfl_sync(0xffffffffu, total, 31);
      carry = !ROWS || __shfl_sync(0xffffffffu, end, 31) >= ROUND ? f(carry, total) : total;
    }
    return carry;
  }
  __device__ __forceinline__ void store(const k_lines &p, const sum_or_product &f, W base) {
    S *out = (S *)p.out + at;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      int i = first(v), in_row = index_in_row(p, v);
      W sum = f(base, before[v]);
      V y;
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        if (ROWS && in_row == (int)p.width) in_row = 0;
        if (ROWS && in_row++ == 0) sum = base;
        sum = f(sum, (W)k_get(x[v][e]));
        S element;
        k_put(&element, sum);
        y.put(e, element);
      }
      if (aligned && i + EACH <= size) {
        *(V *)(out + i) = y;
        continue;
      }
#pragma unroll
      for (int e = 0; e < EACH; e++)
        if (i + e < size) out[(i + e) * step] = y[e];
    }
  }
};

// One warp walks a line.
template <typename S>
static __device__ __forceinline__ void scan_rows_body(const k_lines &p) {
  typedef typename wide_of<S>::W W;
  const sum_or_product f = {p.product != 0};
  const W unit = p.product ? 1 : 0;
#pragma unroll 1
  for (int64_t line = k_thread() / 32; line < p.outer; line += k_threads() / 32) {
    W carry = unit;
#pragma unroll 1
    for (int64_t begin = 0; begin < p.size; begin += warp_share<S, false>::SIZE) {
      warp_share<S, false> own(p, line, begin, unit);
      W total = own.sum(p, f, unit);
      own.store(p, f, carry);
      carry = f(carry, total);
    }
  }
}
// One warp processes several short rows at a time, p.take elements.
template <typename S>
static __device__ __forceinline__ void scan_short_body(const k_lines &p) {
  typedef typename wide_of<S>::W W;
  const sum_or_product f = {p.product != 0};
  const W unit = p.product ? 1 : 0;
#pragma unroll 1
  for (int64_t warp = k_thread() / 32; warp * p.take < p.size; warp += k_threads() / 32) {
    warp_share<S, true> own(p, 0, warp * p.take, unit);
    own.sum(p, f, unit);
    own.store(p, f, unit);
  }
}
// Few long lines: a single pass over memory in tiles.
template <typename S>
static __device__ __forceinline__ void scan_tiles_body(const k_lines &p) {
  typedef typename wide_of<S>::W W;
  const sum_or_product f = {p.product != 0};
  const W unit = p.product ? 1 : 0;
  unsigned number = k_take_tile(p.tiles.next), tiles = (unsigned)p.tiles.tiles;
  int64_t line = number / tiles, tile = number % tiles;
  int64_t begin = tile * K_SCAN_TILE(sizeof(S)) + threadIdx.x / 32 * warp_share<S, false>::SIZE;
  warp_share<S, false> own(p, line, begin, unit);
  W total = own.sum(p, f, unit), all;
  W base = k_before((threadIdx.x & 31) == 31 ? total : unit, unit, &all, f);
  base = f(k_before_tile(p.tiles, line, tile, all, unit, f), base);
  own.store(p, f, base);
}
#define KERNEL(name, suffix, S) \
  extern "C" __global__ void __launch_bounds__(K_BLOCK, 3) \
      name##_##suffix(const __grid_constant__ k_lines p) { \
    k_wait(); \
    name##_body<S>(p); \
  }
#define EVERY_DTYPE(name) \
  KERNEL(name, i64, int64_t) \
  KERNEL(name, f16, __half) \
  KERNEL(name, bf16, __nv_bfloat16) KERNEL(name, f32, float) KERNEL(name, f64, double)
EVERY_DTYPE(scan_rows)
EVERY_DTYPE(scan_short)
EVERY_DTYPE(scan_tiles)

// Strided lines: one thread per chunk of `width` elements; `keys` holds the chunks' totals.
enum { SCAN = 4 };  // elements in flight

// Calls f(line, chunk, offset of its first element, size).
template <typename F>
static __device__ __forceinline__ void each_chunk(const k_lines &p, F f) {
  int64_t lines = p.outer * p.inner;
#pragma unroll 1
  for (int64_t g = k_thread(); g < lines * p.chunks; g += k_threads()) {
    int64_t line = g % lines, chunk = g / lines, begin = chunk * p.width, left = p.size - begin;
    int64_t first = line / p.inner * p.size + (p.backwards ? p.size - 1 - begin : begin);
    f(line, chunk, first * p.inner + line % p.inner, left < p.width ? left : p.width);
  }
}
// Loads SCAN elements, of which `left` exist; the unit for the rest.
template <typename S, typename W>
static __device__ __forceinline__ void scan_load(W *x, const S *in, int64_t step, int64_t left,
                                                 W unit) {
#pragma unroll
  for (int e = 0; e < SCAN; e++) x[e] = e < left ? (W)k_get(in[e * step]) : unit;
}
template <typename S>
static __device__ __forceinline__ void scan_totals_body(const k_lines &p) {
  typedef typename wide_of<S>::W W;
  const sum_or_product f = {p.product != 0};
  const W unit = p.product ? 1 : 0;
  const int64_t step = p.backwards ? -p.inner : p.inner;
  each_chunk(p, [&](int64_t line, int64_t chunk, int64_t at, int64_t size) {
    W total = unit, x[SCAN];
#pragma unroll 2
    for (int64_t i = 0; i < size; i += SCAN) {
      scan_load(x, (const S *)p.in + at + i * step, step, size - i, unit);
#pragma unroll
      for (int e = 0; e < SCAN; e++) total = f(total, x[e]);
    }
    ((W *)p.keys)[line * p.chunks + chunk] = total;
  });
}
template <typename S>
static __device__ __forceinline__ void scan_body(const k_lines &p) {
  typedef typename wide_of<S>::W W;
  const sum_or_product f = {p.product != 0};
  const W unit = p.product ? 1 : 0;
  const int64_t step = p.backwards ? -p.inner : p.inner;
  each_chunk(p, [&](int64_t line, int64_t chunk, int64_t at, int64_t size) {
    W carry = unit, x[SCAN];
#pragma unroll 1
    for (int64_t c = 0; c < chunk; c++) carry = f(carry, ((const W *)p.keys)[line * p.chunks + c]);
#pragma unroll 1
    for (int64_t i = 0; i < size; i += SCAN) {
      scan_load(x, (const S *)p.in + at + i * step, step, size - i, unit);
#pragma unroll
      for (int e = 0; e < SCAN; e++) {
        carry = f(carry, x[e]);
        if (i + e < size) k_put((S *)p.out + at + (i + e) * step, carry);
      }
    }
  });
}
#define SCANS(name) \
  K_KERNEL(name, i64, int64_t, k_lines) \
  K_FLOATS(name, k_lines) \
  K_KERNEL(name, c64, k_c64, k_lines) K_KERNEL(name, c128, k_c128, k_lines)
SCANS(scan)
SCANS(scan_totals)

// Gradient of cumprod without division: with a_i = g_i + x_(i+1) a_(i+1), it is a_i times the
// product before i. `keys` holds these products. One thread per line.
template <typename S>
static __device__ __forceinline__ void cumprod_backward_body(const k_lines &p) {
#pragma unroll 1
  for (int64_t row = k_thread(); row < p.outer * p.inner; row += k_threads()) {
    int64_t at = row / p.inner * p.size * p.inner + row % p.inner;
    const S *g = (const S *)p.in + at, *x = (const S *)p.other + at;
    S *before = (S *)p.keys + at, *to = (S *)p.out + at, product = 1, tail = 0;
    for (int64_t i = 0; i < p.size; i++) {
      before[i * p.inner] = product;
      product *= x[i * p.inner];
    }
    for (int64_t i = p.size - 1; i >= 0; i--) {
      tail += g[i * p.inner];
      to[i * p.inner] = before[i * p.inner] * tail;
      tail *= x[i * p.inner];
    }
  }
}
K_KERNEL(cumprod_backward, i64, int64_t, k_lines)
K_KERNEL(cumprod_backward, f64, double, k_lines)

// ---- cummax, cummin: the later of equal elements; NaN beats all

template <bool IS_MAX, typename C>
static __device__ __forceinline__ bool beats(C later, C earlier) {
  return (IS_MAX ? later >= earlier : later <= earlier) || later != later;
}

// A contiguous line by one warp: a prefix scan of 32 adjacent elements, then combined with the
// preceding ones.
template <bool IS_MAX, typename S>
static __device__ __forceinline__ void extremes_of_row(const k_lines &p, int64_t row) {
  typedef typename k_type<S>::number C;
  int lane = (int)(threadIdx.x % 32);
  const S *in = (const S *)p.in + row * p.size;
  S *values = (S *)p.out + row * p.size;
  int64_t *indices = p.indices + row * p.size, carried_at = 0;
  C carried = C();
  for (int64_t first = 0; first < p.size; first += 32) {
    int64_t i = first + lane, at = i;
    C best = i < p.size ? (C)k_get(in[i]) : C();
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      C other = (C)__shfl_up_sync(~0u, best, step);
      int64_t other_at = __shfl_up_sync(~0u, at, step);
      if (lane >= step && !beats<IS_MAX>(best, other)) best = other, at = other_at;
    }
    if (first > 0 && !beats<IS_MAX>(best, carried)) best = carried, at = carried_at;
    if (i < p.size) k_put(values + i, best), indices[i] = at;
    carried = (C)__shfl_sync(~0u, best, 31), carried_at = __shfl_sync(~0u, at, 31);
  }
}
// A strided line by one thread.
template <bool IS_MAX, typename S>
static __device__ __forceinline__ void extremes_of_line(const k_lines &p, int64_t line) {
  typedef typename k_type<S>::number C;
  int64_t from = line / p.inner * p.size * p.inner + line % p.inner, at = 0;
  C best = C();
  for (int64_t i = 0; i < p.size; i++) {
    C x = k_get(((const S *)p.in)[from + i * p.inner]);
    if (i == 0 || beats<IS_MAX>(x, best)) best = x, at = i;
    k_put((S *)p.out + from + i * p.inner, best);
    p.indices[from + i * p.inner] = at;
  }
}
template <bool IS_MAX, typename S>
static __device__ __forceinline__ void extremes_of_lines(const k_lines &p) {
  if (p.inner == 1)
    for (int64_t row = k_thread() / 32; row < p.outer; row += k_threads() / 32)
      extremes_of_row<IS_MAX, S>(p, row);
  else
    for (int64_t line = k_thread(); line < p.outer * p.inner; line += k_threads())
      extremes_of_line<IS_MAX, S>(p, line);
}
template <typename S>
static __device__ __forceinline__ void cummax_body(const k_lines &p) {
  extremes_of_lines<true, S>(p);
}
template <typename S>
static __device__ __forceinline__ void cummin_body(const k_lines &p) {
  extremes_of_lines<false, S>(p);
}
#define INTEGERS(name, P) \
  K_KERNEL(name, u8, k_u8, P) \
  K_KERNEL(name, i8, k_i8, P) \
  K_KERNEL(name, i16, k_i16, P) K_KERNEL(name, i32, k_i32, P) K_KERNEL(name, i64, k_i64, P)
K_KERNEL(cummax, bool, k_bool, k_lines)
INTEGERS(cummax, k_lines)
K_FLOATS(cummax, k_lines)
K_KERNEL(cummin, bool, k_bool, k_lines)
INTEGERS(cummin, k_lines)
K_FLOATS(cummin, k_lines)

// ---- searchsorted in lines; NaN is the maximum. One thread per value.

// True if the value's insertion point is after element `there`.
template <typename C>
static __device__ __forceinline__ bool inserts_after(C there, C value, bool right) {
  if (value != value) return right || there == there;
  return right ? there <= value : there < value;
}
// Uses the midpoints of the CPU's search, so unsorted lines give the same index.
template <typename S, typename I, typename C>
static __device__ __forceinline__ I insertion_index(const S *line, I n, C value, bool right) {
  I low = 0;
  while (low < n) {
    I middle = low + (n - low) / 2;
    bool after = inserts_after(C(k_get(line[middle])), value, right);
    low = after ? middle + 1 : low;
    n = after ? n : middle;
  }
  return low;
}
template <typename S>
static __device__ __forceinline__ void search_lines_body(const k_search &p) {
  typedef typename k_type<S>::number C;
  bool one = p.each >= p.count, right = p.right;
  for (int64_t i = k_thread(); i < p.count; i += k_threads()) {
    const S *line = (const S *)p.lines + (one ? 0 : i / p.each * p.size);
    C value = k_get(((const S *)p.values)[i]);
    p.out[i] = p.size >> 31 ? insertion_index(line, p.size, value, right)
                            : insertion_index(line, (int)p.size, value, right);
  }
}
INTEGERS(search_lines, k_search)
K_FLOATS(search_lines, k_search)

// ---- logcumsumexp, in double or complex double: one warp per contiguous line with lanes at
// stride 32; one thread per strided line

static __device__ __forceinline__ double log_sum(double a, double b) {
  double larger = a > b || a != a ? a : b, smaller = a > b || a != a ? b : a;
  return larger == smaller && isinf(larger) ? larger : larger + log1p(exp(smaller - larger));
}
// The operand with the larger real part is factored out.
static __device__ __noinline__ k_c128 log_sum(k_c128 a, k_c128 b) {
  k_c128 larger = a.re > b.re ? a : b, smaller = a.re > b.re ? b : a;
  if (k_isnan_c128(a) || k_isnan_c128(b)) return {NAN, NAN};
  if (isinf(larger.re) && larger.re == smaller.re) return larger.re < 0 ? larger : a + b;
  return larger + k_log1p_c128(k_exp_c128(smaller + -larger));
}
static __device__ __forceinline__ double before_lane(double x, int step) {
  return __shfl_up_sync(~0u, x, step);
}
static __device__ __forceinline__ k_c128 before_lane(k_c128 x, int step) {
  return {before_lane(x.re, step), before_lane(x.im, step)};
}
static __device__ __forceinline__ double of_lane(double x, int lane) {
  return __shfl_sync(~0u, x, lane);
}
static __device__ __forceinline__ k_c128 of_lane(k_c128 x, int lane) {
  return {of_lane(x.re, lane), of_lane(x.im, lane)};
}
template <typename S>
static __device__ __forceinline__ void log_sums_of_row(const k_lines &p, int64_t row) {
  typedef typename wide_of<S>::W W;
  int lane = (int)(threadIdx.x % 32);
  const S *in = (const S *)p.in + row * p.size;
  S *out = (S *)p.out + row * p.size;
  W carry = -INFINITY;
  for (int64_t first = 0; first < p.size; first += 32) {
    int64_t i = first + lane;
    W sum = i < p.size ? (W)k_get(in[i]) : W(-INFINITY);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      W left = before_lane(sum, step);
      if (lane >= step) sum = log_sum(left, sum);
    }
    sum = log_sum(carry, sum);
    if (i < p.size) k_put(out + i, sum);
    carry = of_lane(sum, 31);
  }
}
template <typename S>
static __device__ __forceinline__ void log_sums_of_line(const k_lines &p, int64_t line) {
  typedef typename wide_of<S>::W W;
  int64_t from = line / p.inner * p.size * p.inner + line % p.inner;
  W sum = -INFINITY;
  for (int64_t i = 0; i < p.size; i++) {
    sum = log_sum(sum, (W)k_get(((const S *)p.in)[from + i * p.inner]));
    k_put((S *)p.out + from + i * p.inner, sum);
  }
}
template <typename S>
static __device__ __forceinline__ void logcumsumexp_body(const k_lines &p) {
  if (p.inner == 1)
    for (int64_t row = k_thread() / 32; row < p.outer; row += k_threads() / 32)
      log_sums_of_row<S>(p, row);
  else
    for (int64_t line = k_thread(); line < p.outer * p.inner; line += k_threads())
      log_sums_of_line<S>(p, line);
}
K_FLOATS(logcumsumexp, k_lines)
K_KERNEL(logcumsumexp, c64, k_c64, k_lines)
K_KERNEL(logcumsumexp, c128, k_c128, k_lines)
