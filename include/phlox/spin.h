// SPDX-License-Identifier: Apache-2.0
// A spin lock: one byte, zero if free, for sections of a few instructions.
#pragma once
#include <sched.h>
#include <stdint.h>
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
// True while the process has one thread: atomic updates then need no locked instructions.
#define PX_SINGLE_THREADED __libc_single_threaded
#else
#define PX_SINGLE_THREADED 0
#endif

// A section must not start a thread that takes the lock: one thread alone does not mark it.
static inline void px_spin_lock(uint8_t *lock) {
  if (PX_SINGLE_THREADED) return;
  while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
}
static inline void px_spin_unlock(uint8_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }
