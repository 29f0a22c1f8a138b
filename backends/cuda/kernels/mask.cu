// SPDX-License-Identifier: Apache-2.0
// nonzero, masked_select and unique of sorted elements. Memory is read once: each
// tile receives the number of elements selected before it from earlier tiles (tiles.cuh).
//
// A block of K_BLOCK threads has a tile of K_MASK_EACH elements per thread, read by warps in
// coalesced rows of 32; results are written contiguously. nonzero_count uses a grid-stride loop.
#include "tiles.cuh"

enum { EACH = K_MASK_EACH, TILE = K_BLOCK * EACH };

// Value of the previous lane; `first` for lane 0.
template <typename S>
static __device__ __forceinline__ S lane_before(S x, S first) {
  S before = (S)__shfl_up_sync(0xffffffffu, x, 1);
  return threadIdx.x & 31 ? before : first;
}
template <typename S>
static __device__ __forceinline__ S last_lane(S x) {
  return (S)__shfl_sync(0xffffffffu, x, 31);
}

// Bit e: element i + e is marked, where i is the thread's first. A warp reads rows of 32
// adjacent elements, HELD in flight; past the end, the last one is repeated.
template <int HELD, typename R, typename F>
static __device__ __forceinline__ unsigned bits_of(const k_mask &p, int64_t i, R read, F marked) {
  int lane = threadIdx.x & 31;
  int64_t first = i - lane * EACH + lane;
  unsigned bits = 0;
#pragma unroll 1
  for (int round = 0; round < EACH; round += HELD) {
    decltype(read(first)) x[HELD];
#pragma unroll
    for (int e = 0; e < HELD; e++) {
      int64_t k = first + (round + e) * 32;
      x[e] = read(k < p.n ? k : p.n - 1);
    }
#pragma unroll
    for (int e = 0; e < HELD; e++) {
      bool here = first + (round + e) * 32 < p.n, is = marked(x[e]);  // marked() shuffles lanes
      unsigned set = __ballot_sync(0xffffffffu, here && is);
      bits = lane == round + e ? set : bits;
    }
  }
  return bits;
}
template <typename S>
static __device__ __forceinline__ unsigned set_bits(const k_mask &p, int64_t i) {
  enum { HELD = sizeof(S) == 8 ? 8 : 16 };
  const S *in = (const S *)p.in;
  return bits_of<HELD>(
      p, i, [&](int64_t k) { return in[k]; }, [&](S x) { return (x & (S)p.magnitude) != 0; });
}
// Bytes are read in 16-byte vectors.
template <>
__device__ __forceinline__ unsigned set_bits<uint8_t>(const k_mask &p, int64_t i) {
  typedef k_vector<uint8_t, 16> V;
  const uint8_t *in = (const uint8_t *)p.in + i;
  bool is_full = i + EACH <= p.n && (uintptr_t)in % sizeof(V) == 0;
  unsigned bits = 0;
#pragma unroll
  for (int k = 0; k < EACH; k += 16) {
    V x;
    if (is_full) x = *(const V *)(in + k);
#pragma unroll
    for (int e = 0; e < 16; e++) {
      bool set = is_full ? x.v[e] != 0 : i + k + e < p.n && in[k + e] != 0;
      bits |= (unsigned)set << (k + e);
    }
  }
  return bits;
}
// Marks elements that differ from their predecessor, received from the previous lane.
template <typename S>
static __device__ __forceinline__ unsigned begin_bits(const k_mask &p, int64_t i) {
  enum { HELD = sizeof(S) == 8 ? 8 : 16 };
  const S *in = (const S *)p.in;
  const S magnitude = (S)p.magnitude, max_magnitude = (S)p.max_magnitude;
  int lane = threadIdx.x & 31;
  int64_t begin = i - lane * EACH, at = begin;
  S latest = begin < p.n ? in[begin ? begin - 1 : 0] : S();
  return bits_of<HELD>(
      p, i, [&](int64_t k) { return in[k]; },
      [&](S x) {
        S before = lane_before(x, latest);
        latest = last_lane(x);
        bool zeros = ((x | before) & magnitude) == 0, first = at == 0 && lane == 0;
        at += 32;
        return first || (x != before && !zeros) || (x & magnitude) > max_magnitude;
      });
}

template <typename S>
static __device__ __forceinline__ void nonzero_count_body(const k_mask &p) {
  unsigned long long n = 0;
  int64_t lane = threadIdx.x & 31;  // warps leave the loop as one
  for (int64_t i = k_thread() * EACH; i - lane * EACH < p.n; i += k_threads() * EACH)
    n += __popc(set_bits<S>(p, i));
  n = k_join(n, K_BLOCK, k_add());
  if (threadIdx.x == 0) atomicAdd((unsigned long long *)p.number, n);
}

// Calls write(k, i) for the k-th marked element, element i, up to the output's capacity, even if
// the mask changed since it was counted. A warp writes the results of 32 adjacent elements.
template <typename M, typename W>
static __device__ __forceinline__ void compact(const k_mask &p, M marks, W write) {
  int64_t tile = k_take_tile(p.tiles.next), begin = tile * TILE + threadIdx.x / 32 * 32 * EACH;
  int lane = threadIdx.x & 31, all;
  unsigned bits = marks(begin + lane * EACH);
  int before = k_before(__popc(bits), 0, &all, k_add());
  int64_t first = k_before_tile(p.tiles, 0, tile, (int64_t)all, (int64_t)0, k_add());
  if (p.number && tile == p.tiles.tiles - 1 && threadIdx.x == 0) *p.number = first + all;
#pragma unroll 4
  for (int e = 0; e < EACH; e++) {
    unsigned set = __shfl_sync(0xffffffffu, bits, e);
    int64_t k = first + __shfl_sync(0xffffffffu, before, e) + __popc(set & k_lower_lanes());
    if (set >> lane & 1 && k < p.capacity) write(k, begin + e * 32 + lane);
  }
}
template <typename S>
static __device__ __forceinline__ void nonzero_body(const k_mask &p) {
  compact(
      p, [&](int64_t i) { return set_bits<S>(p, i); },
      [&](int64_t row, int64_t i) {
        int64_t *to = (int64_t *)p.out + row;  // outermost coordinate; others at stride `capacity`
#pragma unroll 1
        for (int d = 0; d + 1 < p.ndim; d++) {  // the innermost first
          int64_t next = k_quotient(i, p.sizes[d]);
          to[(p.ndim - 1 - d) * p.capacity] = i - next * p.sizes[d];
          i = next;
        }
        *to = i;
      });
}
template <typename S>
static __device__ __forceinline__ void selected_body(const k_mask &p) {
  compact(
      p, [&](int64_t i) { return set_bits<uint8_t>(p, i); },
      [&](int64_t k, int64_t i) { ((S *)p.out)[k] = ((const S *)p.from)[i]; });
}
template <typename S>
static __device__ __forceinline__ void distinct_body(const k_mask &p) {
  compact(
      p, [&](int64_t i) { return begin_bits<S>(p, i); },
      [&](int64_t k, int64_t i) {
        ((S *)p.out)[k] = ((const S *)p.in)[i];
        if (p.starts) p.starts[k] = i;
      });
}
#define KERNEL(name, suffix, S) \
  extern "C" __global__ void __launch_bounds__(K_BLOCK, 4) \
      name##_##suffix(const __grid_constant__ k_mask p) { \
    k_wait(); \
    name##_body<S>(p); \
  }
#define EVERY_SIZE(name) \
  KERNEL(name, 1, uint8_t) \
  KERNEL(name, 2, uint16_t) \
  KERNEL(name, 4, uint32_t) KERNEL(name, 8, unsigned long long)
EVERY_SIZE(nonzero_count)
EVERY_SIZE(nonzero)
EVERY_SIZE(selected)
EVERY_SIZE(distinct)

// Counts: the differences of consecutive start indices.
extern "C" __global__ void __launch_bounds__(K_BLOCK)
    distinct_counts(const __grid_constant__ k_mask p) {
  k_wait();
  int64_t last = *p.number - 1;
  for (int64_t k = k_thread(); k <= last; k += k_threads())
    ((int64_t *)p.out)[k] = (k < last ? p.starts[k + 1] : p.n) - p.starts[k];
}
