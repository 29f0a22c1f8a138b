// SPDX-License-Identifier: Apache-2.0
// The Mersenne Twister of the CPU's random kernels: PyTorch's stream, draw for draw.
//
// `left` and `next` follow PyTorch's conventions because the saved state contains them: after
// seeding, left is 1 and next 0; a block of 624 words is generated when left runs out. The two
// cached normals are part of the engine state. Threads share the default generator, so a kernel
// holds the lock for each step of its draws.
#pragma once
#include "phlox/backend.h"

enum { PX_MT19937_WORDS = 624, PX_MT19937_SHIFT = 397 };

typedef struct px_mt19937 {
  uint32_t state[PX_MT19937_WORDS];
  int32_t left;
  uint32_t next;
  uint64_t seed;
  uint8_t lock;
  bool has_normal_float, has_normal_double;
  float normal_float;  // second normal of a pair, for the next draw
  double normal_double;
} px_mt19937;

// init_genrand: the low 32 bits of the seed start the state; drops cached normals.
static inline void px_mt19937_seed(px_mt19937 *mt, uint64_t seed) {
  mt->seed = seed;
  mt->state[0] = (uint32_t)seed;
  for (uint32_t i = 1; i < PX_MT19937_WORDS; i++)
    mt->state[i] = 1812433253u * (mt->state[i - 1] ^ (mt->state[i - 1] >> 30)) + i;
  mt->left = 1;
  mt->next = 0;
  mt->has_normal_float = mt->has_normal_double = false;
}

static inline uint32_t px_mt19937_twist(uint32_t high, uint32_t low, uint32_t other) {
  uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);
  return other ^ (mixed >> 1) ^ (low & 1 ? 0x9908b0dfu : 0);
}

static inline void px_mt19937_refill(px_mt19937 *mt) {
  uint32_t *s = mt->state;
  int i = 0;
  for (; i < PX_MT19937_WORDS - PX_MT19937_SHIFT; i++)
    s[i] = px_mt19937_twist(s[i], s[i + 1], s[i + PX_MT19937_SHIFT]);
  for (; i < PX_MT19937_WORDS - 1; i++)
    s[i] = px_mt19937_twist(s[i], s[i + 1], s[i + PX_MT19937_SHIFT - PX_MT19937_WORDS]);
  s[i] = px_mt19937_twist(s[i], s[0], s[PX_MT19937_SHIFT - 1]);
  mt->left = PX_MT19937_WORDS + 1;
  mt->next = 0;
}

static inline uint32_t px_mt19937_temper(uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}
// PyTorch's random(): 32 bits.
static inline uint32_t px_mt19937_random32(px_mt19937 *mt) {
  if (mt->left <= 1 || mt->next >= PX_MT19937_WORDS) px_mt19937_refill(mt);
  mt->left--;
  return px_mt19937_temper(mt->state[mt->next++]);
}
// Draws up to n words into `to`, at most the rest of the block; returns the number drawn.
static inline int64_t px_mt19937_take(px_mt19937 *mt, int64_t n, uint32_t *to) {
  if (mt->left <= 1 || mt->next >= PX_MT19937_WORDS) px_mt19937_refill(mt);
  int64_t count = PX_MT19937_WORDS - (int64_t)mt->next;
  if (count > mt->left - 1) count = mt->left - 1;
  if (count > n) count = n;
  const uint32_t *from = mt->state + mt->next;
  for (int64_t i = 0; i < count; i++) to[i] = px_mt19937_temper(from[i]);
  mt->left -= (int32_t)count;
  mt->next += (uint32_t)count;
  return count;
}

// PyTorch's random64(): the first draw is the upper half.
static inline uint64_t px_mt19937_random64(px_mt19937 *mt) {
  uint64_t high = px_mt19937_random32(mt);
  return high << 32 | px_mt19937_random32(mt);
}

// Uniform in [0, 1): 24 bits of one 32-bit draw; 53 bits of one 64-bit draw.
static inline float px_mt19937_uniform_float(px_mt19937 *mt) {
  return (float)(px_mt19937_random32(mt) & 0xffffffu) * 0x1p-24f;
}
static inline double px_mt19937_uniform_double(px_mt19937 *mt) {
  return (double)(px_mt19937_random64(mt) & 0x1fffffffffffffu) * 0x1p-53;
}
