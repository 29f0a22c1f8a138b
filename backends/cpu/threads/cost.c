// SPDX-License-Identifier: Apache-2.0
#include "cpu/threads/cost.h"

// Jobs of one op are of another kind when they are four times as large: the data come from another
// cache. SIZE: the smallest, parts of a grain. A kind lies at the place that its number gives, and
// gives way to another one.
enum { KINDS = 1024, KINDS_BITS = 10, SIZES = 8, SIZE = 16 };
static px__kind kinds[KINDS];

px__kind *px__kind_of(const void *op, double grains) {
  int size = (63 - __builtin_clzll((uint64_t)(grains * SIZE) | 1)) / 2;
  uintptr_t of = (uintptr_t)op * SIZES + (uintptr_t)(size < SIZES ? size : SIZES - 1);
  px__kind *k = &kinds[of * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KINDS_BITS)];
  if (__atomic_load_n(&k->of, __ATOMIC_RELAXED) != of) {
    __atomic_store_n(&k->grain_ps, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&k->of, of, __ATOMIC_RELAXED);
  }
  return k;
}

// The quickest counts, until it was slower many times: what is more than that was a wait for memory
// or for the core, which more threads do not end.
void px__kind_note(px__kind *k, double grains, int64_t ns) {
  int64_t before = __atomic_load_n(&k->grain_ps, __ATOMIC_RELAXED);
  int64_t now = (int64_t)(1e3 * (double)ns / grains) + 1;
  if (before && now > before) now = before + (now < 4 * before ? now - before : 3 * before) / 32;
  __atomic_store_n(&k->grain_ps, now, __ATOMIC_RELAXED);
}

double px__kind_work(const px__kind *k, double grains) {
  return (double)__atomic_load_n(&k->grain_ps, __ATOMIC_RELAXED) * grains / 1e3;
}
