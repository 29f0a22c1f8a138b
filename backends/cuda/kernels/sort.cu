// SPDX-License-Identifier: Apache-2.0
// Stable sorts of contiguous lines by keys (keys.cuh). Short lines are sorted in the registers
// of a few threads (sort_short), medium ones by one block (sort_block), longer ones by LSD radix
// passes over memory with 8-bit digits (sort_counts, sort_starts, sort_pass).
//
// sort_short: blocks of K_BLOCK threads, `width` threads per line. sort_block: one block per line,
// with as many warps as needed. sort_counts: one block of K_BLOCK threads per piece of a line.
// sort_pass: one block of K_SORT_WARPS warps per tile, with coalesced reads, reordered in shared
// memory, and written in runs of equal digits. select: one block of K_BLOCK threads per piece.
#include "keys.cuh"
#include "tiles.cuh"

enum { DIGITS = 256 };
template <typename K>
static __device__ __forceinline__ unsigned digit_of(const k_sort &p, K key, int pass) {
  return (unsigned)(k_rank(p, key) >> (pass * 8)) & (DIGITS - 1);
}
// Writes element `index` of a line as the `at`th in sorted order.
template <typename K>
static __device__ __forceinline__ void store_result(const k_sort &p, int64_t line, int64_t at,
                                                    K bits, int64_t index) {
  at -= p.skip;
  if (at < 0 || at >= p.take) return;
  k_store_bits(p, line * p.take + at, bits);
  if (p.indices) p.indices[line * p.take + at] = p.from ? p.from[line * p.size + index] : index;
}

// ---- short lines: `lanes` threads of a warp sort a line, EACH elements each. Bitonic merges;
// the index breaks ties, so all elements differ.

enum { EACH = 8 };
static __device__ __forceinline__ bool precedes(uint32_t a, int i, uint32_t b, int j) {
  return ((uint64_t)a << 32 | (uint32_t)i) < ((uint64_t)b << 32 | (uint32_t)j);
}
static __device__ __forceinline__ bool precedes(uint64_t a, int i, uint64_t b, int j) {
  return a < b || (a == b && i < j);
}
template <typename K>
static __device__ __forceinline__ void compare_swap(K &a, int &i, K &b, int &j) {
  bool good = precedes(a, i, b, j);
  K low = good ? a : b, high = good ? b : a;
  int first = good ? i : j, last = good ? j : i;
  a = low, b = high, i = first, j = last;
}
// Keeps the lower or the higher of this lane's and another lane's elements.
template <typename K>
static __device__ __forceinline__ void merge_lanes(K (&key)[EACH], int (&index)[EACH], int across,
                                                   bool mirrored, bool low) {
  K other[EACH];
  int at[EACH];
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    other[e] = __shfl_xor_sync(0xffffffffu, key[e], across);
    at[e] = __shfl_xor_sync(0xffffffffu, index[e], across);
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    K theirs = mirrored ? other[EACH - 1 - e] : other[e];
    int its = mirrored ? at[EACH - 1 - e] : at[e];
    bool mine = precedes(key[e], index[e], theirs, its) == low;
    key[e] = mine ? key[e] : theirs, index[e] = mine ? index[e] : its;
  }
}
template <int STEP, typename K>
static __device__ __forceinline__ void merge_own(K (&key)[EACH], int (&index)[EACH],
                                                 bool mirrored) {
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int o = mirrored ? e ^ (2 * STEP - 1) : e ^ STEP;
    if (o > e) compare_swap(key[e], index[e], key[o], index[o]);
  }
}
template <typename K>
static __device__ __forceinline__ void sort_lanes(K (&key)[EACH], int (&index)[EACH], int lanes) {
  int lane = threadIdx.x & 31;
  merge_own<1>(key, index, true);
  merge_own<2>(key, index, true);
  merge_own<1>(key, index, false);
  merge_own<4>(key, index, true);
  merge_own<2>(key, index, false);
  merge_own<1>(key, index, false);
#pragma unroll 1
  for (int width = 2; width <= lanes; width *= 2) {
    merge_lanes(key, index, width - 1, true, (lane & (width / 2)) == 0);
#pragma unroll 1
    for (int step = width / 4; step > 0; step /= 2)
      merge_lanes(key, index, step, false, (lane & step) == 0);
    merge_own<4>(key, index, false);
    merge_own<2>(key, index, false);
    merge_own<1>(key, index, false);
  }
}

// `width` lanes a line. Elements are stored in shared memory with a gap after each EACH.
static __device__ __forceinline__ int gapped(int i) { return i + i / EACH; }
template <typename K>
static __device__ __forceinline__ void sort_short_body(const k_sort &p) {
  enum { ROOM = K_BLOCK * EACH };
  __shared__ K shared_memory[ROOM + ROOM / EACH];
  __shared__ uint8_t order[ROOM];
  int lanes = (int)p.width, size = (int)p.size, take = (int)p.take, each = K_BLOCK / lanes;
  int64_t line = (int64_t)blockIdx.x * each;
  int count = p.lines - line < each ? (int)(p.lines - line) : each, total = count * size;
  K key[EACH];
  int index[EACH];
  k_bits(key, p, [&](int e) {
    int i = threadIdx.x + e * K_BLOCK;
    return i < total ? line * size + i : (int64_t)-1;
  });
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int i = threadIdx.x + e * K_BLOCK;
    if (i < total) shared_memory[gapped(i)] = key[e];
  }
  __syncthreads();
  int own = threadIdx.x / lanes, first = threadIdx.x % lanes * EACH;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    bool real = own < count && first + e < size;
    index[e] = first + e;
    key[e] = real ? k_rank(p, k_key(p, shared_memory[gapped(own * size + first + e)])) : ~(K)0;
  }
  sort_lanes(key, index, lanes);
#pragma unroll
  for (int e = 0; e < EACH; e++)
    if (own < count && first + e < size) order[own * size + first + e] = (uint8_t)index[e];
  __syncthreads();
  for (int i = threadIdx.x; i < count * take; i += K_BLOCK) {
    int row = (int)k_divide(i, p.by_take), at = (int)p.skip + i - row * take;
    int from = order[row * size + at];
    store_result(p, line + row, at, shared_memory[gapped(row * size + from)], from);
  }
}

// ---- digits within a block: warps hold elements in rounds of 32

// Stable target index of each key in the block by its digit. `counts` holds 2 * DIGITS numbers a
// warp: counts of digits so far, and lane masks of the current round. `starts` returns the first
// index of each digit; seen(digit, count) is called once for each.
template <typename K, int N, typename F>
static __device__ __forceinline__ void rank_by_digit(int (&to)[N], const K (&key)[N],
                                                     const k_sort &p, int pass, unsigned *counts,
                                                     unsigned *starts, F seen) {
  int warps = blockDim.x / 32, lane = threadIdx.x & 31;
  unsigned *own = counts + threadIdx.x / 32 * DIGITS, *lanes = own + warps * DIGITS;
  for (int d = lane; d < DIGITS; d += 32) own[d] = 0, lanes[d] = 0;
  __syncwarp();
#pragma unroll
  for (int e = 0; e < N; e++) {
    unsigned digit = digit_of(p, key[e], pass);
    atomicOr(&lanes[digit], 1u << lane);
    __syncwarp();
    unsigned same = lanes[digit], before = own[digit], lower = __popc(same & k_lower_lanes());
    __syncwarp();
    if (lower == 0) own[digit] = before + __popc(same), lanes[digit] = 0;
    __syncwarp();
    to[e] = (int)(digit << 16 | (before + lower));
  }
  __syncthreads();
  for (int d = threadIdx.x; d < DIGITS; d += blockDim.x) {
    unsigned sum = 0;
    for (int w = 0; w < warps; w++) {
      unsigned count = counts[w * DIGITS + d];
      counts[w * DIGITS + d] = sum;
      sum += count;
    }
    starts[d] = sum;
    seen(d, sum);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    unsigned sum = 0;
    for (int d = 0; d < DIGITS / 32; d++) sum += starts[lane * (DIGITS / 32) + d];
    unsigned before = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      unsigned left = __shfl_up_sync(0xffffffffu, before, step);
      if (lane >= step) before += left;
    }
    before -= sum;
    for (int d = 0; d < DIGITS / 32; d++) {
      unsigned count = starts[lane * (DIGITS / 32) + d];
      starts[lane * (DIGITS / 32) + d] = before;
      before += count;
    }
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < N; e++) {
    unsigned digit = (unsigned)to[e] >> 16;
    to[e] = (int)((to[e] & 0xffff) + own[digit] + starts[digit]);
  }
}

// ---- lines sorted by one block

template <typename T, typename R, int N>
static __device__ __forceinline__ void exchange(T (&x)[N], const int (&to)[N], R *shared_memory,
                                                int first) {
  __syncthreads();
#pragma unroll
  for (int e = 0; e < N; e++) shared_memory[to[e]] = (R)x[e];
  __syncthreads();
#pragma unroll
  for (int e = 0; e < N; e++) x[e] = (T)shared_memory[first + e * 32];
}
template <typename K>
static __device__ __forceinline__ void sort_block_body(const k_sort &p) {
  enum { N = K_SORT_EACH(sizeof(K)) };
  extern __shared__ uint64_t shared_memory[];
  __shared__ unsigned starts[DIGITS];
  int first = threadIdx.x / 32 * 32 * N + (threadIdx.x & 31), size = (int)p.size;
  int64_t line = blockIdx.x;
  K key[N];
  int index[N], to[N];
  k_keys(key, p,
         [&](int e) { return first + e * 32 < size ? line * size + first + e * 32 : (int64_t)-1; });
#pragma unroll
  for (int e = 0; e < N; e++) index[e] = first + e * 32;
#pragma unroll 1
  for (int pass = 0; pass < p.passes; pass++) {
    rank_by_digit(to, key, p, pass, (unsigned *)shared_memory, starts, [](int, unsigned) {});
    exchange(key, to, (K *)shared_memory, first);
    exchange(index, to, (uint16_t *)shared_memory, first);
    __syncthreads();
  }
#pragma unroll
  for (int e = 0; e < N; e++)
    if (first + e * 32 < size)
      store_result(p, line, first + e * 32, k_element(p, key[e]), index[e]);
}

// ---- long lines. `starts`: for each line and pass, first the digits' counts, then their start
// indices.

template <typename K, typename P>
static __device__ __forceinline__ void sort_counts_body(const k_sort &p) {
  enum { N = 8 };
  __shared__ unsigned counts[sizeof(K) * DIGITS];
  for (int i = threadIdx.x; i < p.passes * DIGITS; i += K_BLOCK) counts[i] = 0;
  int64_t line = blockIdx.x / p.tiles, begin = blockIdx.x % p.tiles * p.width;
  int64_t end = begin + p.width < p.size ? begin + p.width : p.size;
  __syncthreads();
#pragma unroll 1
  for (int64_t base = begin + threadIdx.x; base < end; base += K_BLOCK * N) {
    K key[N];
    auto at = [&](int e) {
      return base + e * K_BLOCK < end ? line * p.size + base + e * K_BLOCK : (int64_t)-1;
    };
    k_keys(key, p, at);
#pragma unroll
    for (int e = 0; e < N; e++) {
      if (at(e) < 0) break;
      K rank = k_rank(p, key[e]);
#pragma unroll
      for (int pass = 0; pass < (int)sizeof(K); pass++)
        if (pass < p.passes)
          atomicAdd(&counts[pass * DIGITS + ((unsigned)(rank >> (pass * 8)) & (DIGITS - 1))], 1);
    }
  }
  __syncthreads();
  unsigned long long *wide = (unsigned long long *)p.starts;
  for (int i = threadIdx.x; i < p.passes * DIGITS; i += K_BLOCK) {
    if (!counts[i]) continue;
    if (sizeof(P) == 8)
      atomicAdd(&wide[line * p.passes * DIGITS + i], (unsigned long long)counts[i]);
    else
      atomicAdd(&((unsigned *)p.starts)[line * p.passes * DIGITS + i], counts[i]);
  }
}
template <typename P>
static __device__ __forceinline__ void sort_starts_body(const k_sort &p) {
  P *at = (P *)p.starts + blockIdx.x * (int64_t)DIGITS + threadIdx.x, count = *at, total;
  *at = k_before(count, (P)0, &total, k_add());
  bool uniform = __syncthreads_or(count == (P)p.size);
  if (threadIdx.x == 0) p.uniform[blockIdx.x / p.passes * 8 + blockIdx.x % p.passes] = uniform;
}
// Bit set of the passes that move a line's elements. At least one, to write the results.
static __device__ __forceinline__ unsigned active_passes(const k_sort &p, int64_t line) {
  unsigned passes = 0;
  for (int i = 0; i < p.passes; i++) passes |= (unsigned)!p.uniform[line * 8 + i] << i;
  return passes ? passes : 1;
}

// Published state of a digit: the tile's count, or the inclusive prefix of the line's tiles; the
// two top bits select which.
template <typename P>
struct published {
  static const int BITS = sizeof(P) * 8 - 2;
  static const P OWN = (P)1 << BITS, UP_TO_HERE = (P)2 << BITS, COUNT = OWN - 1;
};
// Decoupled look-back: the count of a digit in the line's preceding tiles.
template <typename P>
static __device__ __forceinline__ P look_back(volatile P *own, int64_t tile) {
  typedef published<P> T;
  P sum = 0;
  while (tile-- > 0) {
    P x;
    own -= DIGITS;
    while (x = *own, x < T::OWN) {
    }
    sum += x & T::COUNT;
    if (x >= T::UP_TO_HERE) break;
  }
  return sum;
}
// Loads a thread's elements of a tile at stride 32; all bits set if absent.
template <typename T, int N>
static __device__ __forceinline__ void load(T (&x)[N], const T *from, int left) {
#pragma unroll
  for (int e = 0; e < N; e++) x[e] = e * 32 < left ? from[e * 32] : ~(T)0;
}
// Stores this thread's share of the tile's n sorted elements at their target indices.
template <typename T, typename P, int N>
static __device__ __forceinline__ void store(T *to, const P (&at)[N], const T (&x)[N], int n) {
#pragma unroll
  for (int e = 0; e < N; e++)
    if ((int)threadIdx.x + e * K_SORT_WARPS * 32 < n) to[at[e]] = x[e];
}
// Calls f(e, index in the result) for elements within the requested range.
template <typename P, int N, typename F>
static __device__ __forceinline__ void each_requested(const k_sort &p, const P (&at)[N], int n,
                                                      int64_t line, F f) {
#pragma unroll
  for (int e = 0; e < N; e++) {
    int64_t i = (int64_t)at[e] - p.skip;
    if ((int)threadIdx.x + e * K_SORT_WARPS * 32 < n && i >= 0 && i < p.take)
      f(e, line * p.take + i);
  }
}
template <typename K, typename P>
static __device__ __forceinline__ void sort_pass_body(const k_sort &p) {
  enum { N = K_SORT_EACH(sizeof(K) > sizeof(P) ? sizeof(K) : sizeof(P)) };
  enum { THREADS = K_SORT_WARPS * 32, TILE = THREADS * N };
  typedef published<P> T;
  __shared__ union {
    unsigned counts[2 * K_SORT_WARPS * DIGITS];
    K keys[TILE];
    P positions[TILE];
  } shared_memory;
  __shared__ unsigned starts[DIGITS];
  __shared__ P target_shift[DIGITS];  // target index minus index in the tile, for each digit
  unsigned number = k_take_tile(p.next);
  int64_t line = number / p.tiles, tile = number % p.tiles, begin = tile * TILE;
  int64_t base = line * p.size + begin;
  int n = p.size - begin < TILE ? (int)(p.size - begin) : TILE;
  int first = threadIdx.x / 32 * 32 * N + (threadIdx.x & 31), to[N];
  unsigned passes = active_passes(p, line), before = passes & ((1u << p.pass) - 1);
  if (!(passes >> p.pass & 1)) return;
  bool initial = !before, last = passes >> p.pass == 1;
  int to_buffer = __popc(before) % 2;
  volatile P *state = (volatile P *)p.states + (int64_t)number * DIGITS + threadIdx.x;
  K key[N];
  P total = 0, at[N];
  if (initial)
    k_keys(key, p, [&](int e) { return first + e * 32 < n ? base + first + e * 32 : (int64_t)-1; });
  else
    load(key, (const K *)p.keys[!to_buffer] + base + first, n - first);
  rank_by_digit(to, key, p, p.pass, shared_memory.counts, starts, [&](int, unsigned count) {
    total = count;
    *state = tile ? T::OWN | total : T::UP_TO_HERE | total;
  });
  if (threadIdx.x < DIGITS) {
    P earlier = look_back(state, tile);
    if (tile) *state = T::UP_TO_HERE | (earlier + total);
    const P *begins = (const P *)p.starts + (line * p.passes + p.pass) * DIGITS;
    target_shift[threadIdx.x] = begins[threadIdx.x] + earlier - starts[threadIdx.x];
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < N; e++) shared_memory.keys[to[e]] = key[e];
  __syncthreads();
#pragma unroll
  for (int e = 0; e < N; e++) {
    int j = threadIdx.x + e * THREADS;
    key[e] = shared_memory.keys[j];
    at[e] = target_shift[digit_of(p, key[e], p.pass)] + j;
  }
  if (last)
    each_requested(p, at, n, line,
                   [&](int e, int64_t i) { k_store_bits(p, i, k_element(p, key[e])); });
  else
    store((K *)p.keys[to_buffer] + line * p.size, at, key, n);
  if (!p.indices) return;
  __syncthreads();
#pragma unroll
  for (int from = 0; from < N; from += N / 2) {  // in halves, to limit registers
    P half[N / 2];
    const P *from_positions = (const P *)p.positions[!to_buffer] + base;
    if (!initial) load(half, from_positions + first + from * 32, n - first - from * 32);
#pragma unroll
    for (int e = 0; e < N / 2; e++)
      shared_memory.positions[to[from + e]] =
          !initial ? half[e] : (P)(begin + first + (from + e) * 32);
  }
  __syncthreads();
  P index[N];
#pragma unroll
  for (int e = 0; e < N; e++) index[e] = shared_memory.positions[threadIdx.x + e * THREADS];
  if (last)
    each_requested(p, at, n, line, [&](int e, int64_t i) {
      p.indices[i] = p.from ? p.from[line * p.size + index[e]] : (int64_t)index[e];
    });
  else
    store((P *)p.positions[to_buffer] + line * p.size, at, index, n);
}

#define KERNEL(name, suffix, threads, blocks, ...) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) \
      name##_##suffix(const __grid_constant__ k_sort p) { \
    k_wait(); \
    name##_body<__VA_ARGS__>(p); \
  }
KERNEL(sort_short, 4, K_BLOCK, 4, uint32_t)
KERNEL(sort_short, 8, K_BLOCK, 3, uint64_t)
KERNEL(sort_block, 4, K_SORT_WARPS * 32, 2, uint32_t)
KERNEL(sort_block, 8, K_SORT_WARPS * 32, 2, uint64_t)
KERNEL(sort_counts, 44, K_BLOCK, 4, uint32_t, uint32_t)
KERNEL(sort_counts, 84, K_BLOCK, 4, uint64_t, uint32_t)
KERNEL(sort_counts, 48, K_BLOCK, 4, uint32_t, uint64_t)
KERNEL(sort_counts, 88, K_BLOCK, 4, uint64_t, uint64_t)
KERNEL(sort_starts, 4, DIGITS, 4, uint32_t)
KERNEL(sort_starts, 8, DIGITS, 4, unsigned long long)
KERNEL(sort_pass, 44, K_SORT_WARPS * 32, 2, uint32_t, uint32_t)
KERNEL(sort_pass, 84, K_SORT_WARPS * 32, 2, uint64_t, uint32_t)
KERNEL(sort_pass, 48, K_SORT_WARPS * 32, 2, uint32_t, uint64_t)
KERNEL(sort_pass, 88, K_SORT_WARPS * 32, 2, uint64_t, uint64_t)

// ---- select: the first `take` elements in sort order of each of a line's `tiles` pieces, in
// their original order. A block scans a piece once and keeps candidate keys. When the buffer is
// full, the `take` first are selected by radix from the top digit on; later keys must sort
// before their limit.

struct chosen {
  int digit, before, count;
};
template <typename K>
struct candidates {
  K *keys, limit;
  unsigned *indices;
  int count;
  bool any;  // no limit yet
};
template <typename K>
static __device__ void keep_first(candidates<K> &c, const k_sort &p, int take) {
  enum { N = (K_SELECT + K_SELECT_STEP) / K_BLOCK };
  __shared__ unsigned counts[DIGITS];
  __shared__ chosen found;
  K prefix = 0, key[N];
  unsigned index[N];
  int need = take, shift = p.passes * 8, to[N], first = threadIdx.x / 32 * 32 * N;
  bool exact, flag[N], tie[N];
  first += threadIdx.x & 31;
  do {
    shift -= 8;
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (int j = threadIdx.x; j < c.count; j += K_BLOCK)
      if (c.keys[j] >> shift >> 8 == prefix)
        atomicAdd(&counts[(unsigned)(c.keys[j] >> shift) & (DIGITS - 1)], 1);
    __syncthreads();
    int count = (int)counts[threadIdx.x], all, before = k_before(count, 0, &all, k_add());
    if (before < need && need <= before + count) found = chosen{(int)threadIdx.x, before, count};
    __syncthreads();
    prefix = prefix << 8 | (K)found.digit;
    need -= found.before;
    exact = need == found.count;
  } while (shift > 0 && !exact);
#pragma unroll
  for (int e = 0; e < N; e++) {
    int j = first + e * 32;
    bool real = j < c.count;
    key[e] = real ? c.keys[j] : 0, index[e] = real ? c.indices[j] : 0;
    flag[e] = real && key[e] >> shift < prefix;
    tie[e] = real && key[e] >> shift == prefix;
  }
  k_order(to, tie);
#pragma unroll
  for (int e = 0; e < N; e++) flag[e] = flag[e] || (tie[e] && to[e] < need);
  k_order(to, flag);
#pragma unroll
  for (int e = 0; e < N; e++)
    if (flag[e]) c.keys[to[e]] = key[e], c.indices[to[e]] = index[e];
  __syncthreads();
  c.count = take;
  c.limit = shift ? (prefix + 1) << shift : prefix;
  c.any = shift && c.limit == 0;
}
template <typename K>
static __device__ __forceinline__ void select_body(const k_sort &p) {
  enum { N = K_SELECT_STEP / K_BLOCK };
  extern __shared__ uint64_t shared_memory[];
  int take = (int)p.take, most = take + K_SELECT_STEP, warp = threadIdx.x / 32;
  candidates<K> c = {(K *)shared_memory, 0, (unsigned *)((K *)shared_memory + most), 0, true};
  int64_t line = blockIdx.x / p.tiles, tile = blockIdx.x % p.tiles, begin = tile * p.width;
  int64_t n = p.size - begin < p.width ? p.size - begin : p.width;
  const int64_t start = line * p.size + begin;
#pragma unroll 1
  for (int64_t base = 0; base < n; base += K_SELECT_STEP) {
    int64_t first = base + warp * 32 * N + (threadIdx.x & 31);
    K key[N];
    bool flag[N];
    int to[N], more;
    auto at = [&](int e) { return first + e * 32 < n ? start + first + e * 32 : (int64_t)-1; };
    k_keys(key, p, at);
#pragma unroll 1
    for (;;) {
#pragma unroll
      for (int e = 0; e < N; e++) {
        key[e] = k_rank(p, key[e]);
        flag[e] = at(e) >= 0 && (c.any || key[e] < c.limit);
      }
      more = k_order(to, flag);
      if (c.count + more <= most) break;
      keep_first(c, p, take);
    }
#pragma unroll
    for (int e = 0; e < N; e++)
      if (flag[e])
        c.keys[c.count + to[e]] = key[e], c.indices[c.count + to[e]] = (unsigned)(first + e * 32);
    c.count += more;
  }
  __syncthreads();
  if (c.count > take) keep_first(c, p, take);
  int64_t last = p.size - (p.tiles - 1) * p.width;
  int64_t to = line * ((p.tiles - 1) * take + (last < take ? last : take)) + tile * take;
  for (int j = threadIdx.x; j < c.count; j += K_BLOCK) {
    int64_t i = start + c.indices[j];
    K bits[1];
    k_bits(bits, p, [&](int) { return i; });
    k_store_bits(p, to + j, bits[0]);
    p.indices[to + j] = p.from ? p.from[i] : begin + c.indices[j];
  }
}
KERNEL(select, 4, K_BLOCK, 4, uint32_t)
KERNEL(select, 8, K_BLOCK, 4, uint64_t)
