// SPDX-License-Identifier: Apache-2.0
// Measured costs of jobs, in a hash table by op and size class.
#include "cpu/threads/cost.h"

// Each factor of 4 in job size is a separate class, since the data come from another cache level.
// The table is direct-mapped by hash; a colliding entry is replaced.
enum {
  COSTS = 1024,
  COSTS_BITS = 10,
  SIZE_CLASSES = 8,        // size classes per op
  SMALLEST_PER_GRAIN = 16  // smallest size unit: 1/16 grain
};
static px__job_cost costs[COSTS];

px__job_cost *px__job_cost_of(const void *op, double grains) {
  int size = (63 - __builtin_clzll((uint64_t)(grains * SMALLEST_PER_GRAIN) | 1)) / 2;
  uintptr_t key =
      (uintptr_t)op * SIZE_CLASSES + (uintptr_t)(size < SIZE_CLASSES ? size : SIZE_CLASSES - 1);
  px__job_cost *k = &costs[key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - COSTS_BITS)];
  if (__atomic_load_n(&k->key, __ATOMIC_RELAXED) != key) {
    __atomic_store_n(&k->grain_ps, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&k->key, key, __ATOMIC_RELAXED);
  }
  return k;
}

// Keeps the minimum. Slower measurements mostly include waits for memory or for the core, and more
// threads do not shorten those. They raise the estimate only gradually, by 1/32 of the excess.
void px__job_cost_record(px__job_cost *k, double grains, int64_t ns) {
  int64_t before = __atomic_load_n(&k->grain_ps, __ATOMIC_RELAXED);
  int64_t now = (int64_t)(1e3 * (double)ns / grains) + 1;
  if (before && now > before) now = before + (now < 4 * before ? now - before : 3 * before) / 32;
  __atomic_store_n(&k->grain_ps, now, __ATOMIC_RELAXED);
}

double px__job_cost_ns(const px__job_cost *k, double grains) {
  return (double)__atomic_load_n(&k->grain_ps, __ATOMIC_RELAXED) * grains / 1e3;
}
