// SPDX-License-Identifier: Apache-2.0
// Prefix sums over the threads of a block, and over the blocks of a line, in a single pass.
//
// In a kernel that reads memory once, each block has a tile and needs the sum of all tiles before
// it. Blocks take the numbers of their tiles from a counter, so the tiles that one waits for have
// begun, whatever the order in which blocks are scheduled. The order of summation depends only on
// the numbers of tiles, so a sum of floats is the same every time.
#pragma once
#include "device.cuh"

static __device__ __forceinline__ unsigned k_lower_lanes() {
  return (1u << (threadIdx.x & 31)) - 1;
}

// The sum of x over the threads before this one; *total: over the block. All threads must come.
template <typename T, typename F>
static __device__ __forceinline__ T k_before(T x, T unit, T *total, F f) {
  __shared__ T room[32];
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
  if (lane == 31) room[warp] = sum;
  __syncthreads();
  T base = unit, all = unit;
  for (int w = 0; w < (int)blockDim.x / 32; w++) {
    if (w == warp) base = all;
    all = f(all, room[w]);
  }
  *total = all;
  return f(base, before);
}

// Of elements that warps hold in turns of 32, where each that is flagged goes when they are put
// together in their order; returns how many there are. All threads must come.
template <int N>
static __device__ __forceinline__ int k_order(int (&to)[N], const bool (&flag)[N]) {
  __shared__ int room[32];
  int n = 0, base = 0, all = 0, warp = threadIdx.x / 32;
#pragma unroll
  for (int e = 0; e < N; e++) {
    unsigned set = __ballot_sync(0xffffffffu, flag[e]);
    to[e] = n + __popc(set & k_lower_lanes());
    n += __popc(set);
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) room[warp] = n;
  __syncthreads();
  for (int w = 0; w < (int)blockDim.x / 32; w++) {
    if (w == warp) base = all;
    all += room[w];
  }
#pragma unroll
  for (int e = 0; e < N; e++) to[e] += base;
  return all;
}

// ---- tiles

// The number of this block's tile, which no other has. All threads must come, once in a kernel.
static __device__ __forceinline__ unsigned k_take_tile(unsigned *counter) {
  __shared__ unsigned tile;
  if (threadIdx.x == 0) tile = atomicAdd(counter, 1);
  __syncthreads();
  return tile;
}

// Rooms are written and read as wholes, so what is seen to be ready has its value.
static __device__ __forceinline__ void k_write_room(k_room *room, int64_t value) {
  asm volatile(
      "{ .reg .b128 x; mov.b128 x, {%1, %2}; st.relaxed.gpu.global.b128 [%0], x; }" ::"l"(room),
      "l"(value), "l"((int64_t)1)
      : "memory");
}
static __device__ __forceinline__ k_room k_read_room(const k_room *room) {
  k_room x;
  asm volatile("{ .reg .b128 x; ld.relaxed.gpu.global.b128 x, [%2]; mov.b128 {%0, %1}, x; }"
               : "=l"(x.value), "=l"(x.ready)
               : "l"(room)
               : "memory");
  return x;
}
// A value of eight bytes that a tile tells in a room; the unit where there is none.
template <typename T>
struct k_told {
  const k_room *from;
  k_room room;
  __device__ __forceinline__ k_told(const k_room *from, T unit) : from(from) {
    memcpy(&room.value, &unit, sizeof unit);
    room.ready = 1;
    if (from) room = k_read_room(from);
  }
  __device__ __forceinline__ T wait() {
    T value;
    while (!room.ready) room = k_read_room(from);
    memcpy(&value, &room.value, sizeof value);
    return value;
  }
};
template <typename T>
static __device__ __forceinline__ void k_tell(k_room *room, T x) {
  int64_t value;
  memcpy(&value, &x, sizeof value);
  k_write_room(room, value);
}

// The sum over the tiles of a line before this one, whose own is `sum`. All threads must come. Sums
// are joined by 32: tiles, the runs of 32 tiles that the last of these told of, and all runs
// before. All three are asked for at once.
template <typename T, typename F>
static __device__ __forceinline__ T k_before_tile(const k_tiles_of &p, int64_t line, int64_t tile,
                                                  T sum, T unit, F f) {
  __shared__ T before;
  int lane = threadIdx.x;
  if (lane < 32) {
    k_room *tiles = p.rooms + line * K_ROOMS(p.tiles), *runs = tiles + p.tiles;
    k_room *bases = runs + p.tiles / 32;
    int64_t run = tile / 32, base = run / 32;
    int in_run = (int)(tile % 32), in_base = (int)(run % 32);
    if (lane == 0) k_tell(&tiles[tile], sum);
    k_told<T> low(lane < in_run ? &tiles[run * 32 + lane] : NULL, unit);
    k_told<T> middle(lane < in_base ? &runs[base * 32 + lane] : NULL, unit);
    k_told<T> high(base ? &bases[base - 1] : NULL, unit);
    T x = k_join(low.wait(), 32, f);
    if (lane == 0 && in_run == 31) k_tell(&runs[run], f(x, sum));
    x = f(high.wait(), f(k_join(middle.wait(), 32, f), x));
    if (lane == 0 && tile % 1024 == 1023) k_tell(&bases[base], f(x, sum));
    if (lane == 0) before = x;
  }
  __syncthreads();
  return before;
}
