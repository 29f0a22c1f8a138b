// SPDX-License-Identifier: Apache-2.0
// How many threads the CPU kernels may use. The pool itself is the CPU backend's.
#include "base/base_impl.h"

#include <sched.h>

static int threads;  // atomic; 0 until asked or set

px_status px__threads_check(void) {
  int64_t unused = 0;
  return __atomic_load_n(&threads, __ATOMIC_RELAXED) ? PX_OK : px__env_PHLOX_THREADS(&unused);
}

static int cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int px_num_threads(void) {
  int n = __atomic_load_n(&threads, __ATOMIC_RELAXED), none = 0;
  if (PX_LIKELY(n)) return n;
  int64_t asked = 0;
  if (px__env_PHLOX_THREADS(&asked) != PX_OK) return px_error_clear(), cores();  // ops tell it
  n = asked > 0 ? (int)asked : cores();
  bool first =
      __atomic_compare_exchange_n(&threads, &none, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return first ? n : none;
}

px_status px_set_num_threads(int64_t count) {
  PX_CHECK(count > 0, PX_RUNTIME, "set_num_threads expects a positive integer");
  __atomic_store_n(&threads, count > INT32_MAX ? INT32_MAX : (int)count, __ATOMIC_RELAXED);
  return PX_OK;
}
