// SPDX-License-Identifier: Apache-2.0
// Prefix sums over a block's threads and over the blocks of a line, in a single pass.
//
// Each block processes a tile and needs the sum of all preceding tiles. Blocks take tile numbers
// from an atomic counter, so awaited tiles have already started, in any order of block
// scheduling. The order of summation depends only on tile numbers, so float sums are
// reproducible.
#pragma once
#include "device.cuh"

static __device__ __forceinline__ unsigned k_lower_lanes() {
  return (1u << (threadIdx.x & 31)) - 1;
}

// Exclusive prefix sum of x over the block's threads; *total: the block's sum. All threads must
// call it.
template <typename T, typename F>
static __device__ __forceinline__ T k_before(T x, T unit, T *total, F f) {
  __shared__ T sums[32];
  int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  T sum = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    T left = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum = f(left, sum);
  }
  T before = __shfl_up_sync(0xffffffffu, sum, 1);
  if (lane == 0) before = unit;
  __syncthreads();
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  T base = unit, all = unit;
  for (int w = 0; w < (int)blockDim.x / 32; w++) {
    if (w == warp) base = all;
    all = f(all, sums[w]);
  }
  *total = all;
  return f(base, before);
}

// Stable compaction of flagged elements held by warps in rounds of 32: computes each one's
// target index and returns the total. All threads must call it.
template <int N>
static __device__ __forceinline__ int k_order(int (&to)[N], const bool (&flag)[N]) {
  __shared__ int counts[32];
  int n = 0, base = 0, all = 0, warp = threadIdx.x / 32;
#pragma unroll
  for (int e = 0; e < N; e++) {
    unsigned set = __ballot_sync(0xffffffffu, flag[e]);
    to[e] = n + __popc(set & k_lower_lanes());
    n += __popc(set);
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) counts[warp] = n;
  __syncthreads();
  for (int w = 0; w < (int)blockDim.x / 32; w++) {
    if (w == warp) base = all;
    all += counts[w];
  }
#pragma unroll
  for (int e = 0; e < N; e++) to[e] += base;
  return all;
}

// ---- tiles

// Takes the next tile number. All threads must call it, once in a kernel.
static __device__ __forceinline__ unsigned k_take_tile(unsigned *counter) {
  __shared__ unsigned tile;
  if (threadIdx.x == 0) tile = atomicAdd(counter, 1);
  __syncthreads();
  return tile;
}

// Entries are written and read by single 16-byte accesses, so a ready entry has its value.
static __device__ __forceinline__ void k_write_state(k_tile_state *state, int64_t value) {
  asm volatile(
      "{ .reg .b128 x; mov.b128 x, {%1, %2}; st.relaxed.gpu.global.b128 [%0], x; }" ::"l"(state),
      "l"(value), "l"((int64_t)1)
      : "memory");
}
static __device__ __forceinline__ k_tile_state k_read_state(const k_tile_state *state) {
  k_tile_state x;
  asm volatile("{ .reg .b128 x; ld.relaxed.gpu.global.b128 x, [%2]; mov.b128 {%0, %1}, x; }"
               : "=l"(x.value), "=l"(x.ready)
               : "l"(state)
               : "memory");
  return x;
}
// An 8-byte value published by a tile; `unit` without an entry.
template <typename T>
struct k_published {
  const k_tile_state *from;
  k_tile_state state;
  __device__ __forceinline__ k_published(const k_tile_state *from, T unit) : from(from) {
    memcpy(&state.value, &unit, sizeof unit);
    state.ready = 1;
    if (from) state = k_read_state(from);
  }
  __device__ __forceinline__ T wait() {
    T value;
    while (!state.ready) state = k_read_state(from);
    memcpy(&value, &state.value, sizeof value);
    return value;
  }
};
template <typename T>
static __device__ __forceinline__ void k_publish(k_tile_state *state, T x) {
  int64_t value;
  memcpy(&value, &x, sizeof value);
  k_write_state(state, value);
}

// Sum of the line's tiles before this one, whose own sum is `sum`. All threads must call it.
// Three levels of 32 are read at once: tiles, runs of 32 tiles published by their last tile, and
// prefixes of 32 runs.
template <typename T, typename F>
static __device__ __forceinline__ T k_before_tile(const k_tiles_of &p, int64_t line, int64_t tile,
                                                  T sum, T unit, F f) {
  __shared__ T before;
  int lane = threadIdx.x;
  if (lane < 32) {
    k_tile_state *tiles = p.states + line * K_TILE_STATES(p.tiles), *runs = tiles + p.tiles;
    k_tile_state *bases = runs + p.tiles / 32;
    int64_t run = tile / 32, base = run / 32;
    int in_run = (int)(tile % 32), in_base = (int)(run % 32);
    if (lane == 0) k_publish(&tiles[tile], sum);
    k_published<T> low(lane < in_run ? &tiles[run * 32 + lane] : NULL, unit);
    k_published<T> middle(lane < in_base ? &runs[base * 32 + lane] : NULL, unit);
    k_published<T> high(base ? &bases[base - 1] : NULL, unit);
    T x = k_join(low.wait(), 32, f);
    if (lane == 0 && in_run == 31) k_publish(&runs[run], f(x, sum));
    x = f(high.wait(), f(k_join(middle.wait(), 32, f), x));
    if (lane == 0 && tile % 1024 == 1023) k_publish(&bases[base], f(x, sum));
    if (lane == 0) before = x;
  }
  __syncthreads();
  return before;
}
