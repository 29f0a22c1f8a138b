// SPDX-License-Identifier: Apache-2.0
// Lines along a dimension: running sums and products, and sorting. Operands are dense,
// outer x size x inner.
#include "math.cuh"

// ---- scans, in double or int64. A warp has a line that lies in one piece, else a thread.

struct k_times {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a * b;
  }
};
template <typename S, typename F>
static __device__ __forceinline__ void scan_lines(const k_lines &p, S unit, F f) {
  int lanes = p.inner == 1 ? 32 : 1, lane = threadIdx.x % lanes;
  int64_t each = blockDim.x / lanes, lines = p.outer * p.inner;
  for (int64_t b = blockIdx.x * each; b < lines; b += gridDim.x * each) {
    int64_t row = b + threadIdx.x / lanes;
    if (row >= lines) continue;  // whole warps, or single threads without a shuffle
    int64_t at = row / p.inner * p.size * p.inner + row % p.inner;
    S carry = unit;
    for (int64_t base = 0; base < p.size; base += lanes) {
      int64_t i = base + lane, k = p.backwards ? p.size - 1 - i : i;
      S x = i < p.size ? ((const S *)p.in)[at + k * p.inner] : unit;
      for (int step = 1; step < lanes; step *= 2) {
        S before = __shfl_up_sync(0xffffffffu, x, step);
        if (lane >= step) x = f(before, x);
      }
      x = f(carry, x);
      if (i < p.size) ((S *)p.out)[at + k * p.inner] = x;
      carry = lanes == 1 ? x : __shfl_sync(0xffffffffu, x, 31);
    }
  }
}
template <typename S>
static __device__ __forceinline__ void scan_body(const k_lines &p) {
  if (p.product)
    scan_lines(p, (S)1, k_times());
  else
    scan_lines(p, (S)0, k_add());
}
K_KERNEL(scan, i64, int64_t, k_lines)
K_KERNEL(scan, f64, double, k_lines)

// The gradient of cumprod without a division: with a_i = g_i + x_(i+1) a_(i+1), it is the product
// before i, times a_i. `keys` has room for the products. A thread a line.
template <typename S>
static __device__ __forceinline__ void cumprod_backward_body(const k_lines &p) {
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

// ---- sorting: a stable merge sort of all lines at once. Lines are gathered, one behind the other,
// with the places of their elements; a pass merges runs of `width` in pairs, each element finding
// its place in the pair by how many of the other run go before it.

template <typename S>
static __device__ __forceinline__ bool less(S a, S b) {  // NaN is the greatest
  return a < b || (b != b && a == a);
}
template <typename S>
static __device__ __forceinline__ void sort_gather_body(const k_lines &p) {
  int64_t n = p.outer * p.size * p.inner;
  for (int64_t i = k_thread(); i < n; i += k_threads()) {
    int64_t line = i / p.size, k = i % p.size;
    int64_t at = (line / p.inner * p.size + k) * p.inner + line % p.inner;
    ((S *)p.keys)[i] = ((const S *)p.in)[at];
    p.places[i] = k;
  }
}
K_KERNEL(sort_gather, i64, int64_t, k_lines)
K_KERNEL(sort_gather, f32, float, k_lines)
K_KERNEL(sort_gather, f64, double, k_lines)

template <typename S>
static __device__ __forceinline__ void sort_pass_body(const k_lines &p) {
  int64_t n = p.outer * p.size * p.inner;
  for (int64_t i = k_thread(); i < n; i += k_threads()) {
    int64_t k = i % p.size, base = i - k;
    const S *keys = (const S *)p.keys + base;
    S x = keys[k];
    int64_t pair = k / (2 * p.width) * (2 * p.width), middle = pair + p.width, end;
    middle = middle < p.size ? middle : p.size;
    end = pair + 2 * p.width < p.size ? pair + 2 * p.width : p.size;
    bool first = k < middle;
    // Of the other run: elements before x, or, for the second run, not after it.
    int64_t low = first ? middle : pair, high = first ? end : middle, start = low;
    while (low < high) {
      int64_t m = (low + high) / 2;
      S y = keys[m];
      bool before =
          first ? (p.down ? less(x, y) : less(y, x)) : !(p.down ? less(y, x) : less(x, y));
      if (before)
        low = m + 1;
      else
        high = m;
    }
    int64_t to = base + pair + (k - (first ? pair : middle)) + (low - start);
    ((S *)p.keys_to)[to] = x;
    p.places_to[to] = p.places[i];
  }
}
K_KERNEL(sort_pass, i64, int64_t, k_lines)
K_KERNEL(sort_pass, f32, float, k_lines)
K_KERNEL(sort_pass, f64, double, k_lines)

// `take` elements of each line, from `skip` on, to out and indices.
template <typename S>
static __device__ __forceinline__ void sort_take_body(const k_lines &p) {
  int64_t n = p.outer * p.take * p.inner;
  for (int64_t i = k_thread(); i < n; i += k_threads()) {
    int64_t r = i % p.inner, k = i / p.inner % p.take, o = i / (p.inner * p.take);
    int64_t from = (o * p.inner + r) * p.size + p.skip + k;
    ((S *)p.out)[i] = ((const S *)p.keys)[from];
    p.indices[i] = p.places[from];
  }
}
K_KERNEL(sort_take, i64, int64_t, k_lines)
K_KERNEL(sort_take, f32, float, k_lines)
K_KERNEL(sort_take, f64, double, k_lines)
