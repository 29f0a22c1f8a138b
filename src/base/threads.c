// SPDX-License-Identifier: Apache-2.0
// The thread count of CPU kernels. The thread pool belongs to the CPU backend.
#include "base/base_impl.h"

#include <stdlib.h>
#include <string.h>

static int threads;  // atomic; 0: not chosen yet

px_status px__threads_check(void) {
  int64_t unused = 0;
  return __atomic_load_n(&threads, __ATOMIC_RELAXED) ? PX_OK : px__env_PHLOX_THREADS(&unused);
}

// Parses OMP_NUM_THREADS, a number or a list with the count first. 0 if unset or malformed.
static int openmp_threads(void) {
  const char *text = NULL;
  if (px__env_OMP_NUM_THREADS(&text) != PX_OK || !text) return 0;
  char *end;
  long n = strtol(text, &end, 10);
  end += strspn(end, " \t");
  return end != text && (!*end || *end == ',') && n > 0 && n <= INT32_MAX ? (int)n : 0;
}

// OMP_NUM_THREADS is capped at the number of cores, as by matrix products of PyTorch.
int px__threads_default(void) {
  int cores = px__cores(), wanted = openmp_threads();
  return wanted > 0 && wanted < cores ? wanted : cores;
}

int px_num_threads(void) {
  if (px__thread_is_alone()) return 1;
  int n = __atomic_load_n(&threads, __ATOMIC_RELAXED), none = 0;
  if (PX_LIKELY(n)) return n;
  int64_t wanted = 0;
  if (px__env_PHLOX_THREADS(&wanted) != PX_OK)  // reported by ops
    return px_error_clear(), px__threads_default();
  n = wanted > 0 ? (int)wanted : px__threads_default();
  bool first =
      __atomic_compare_exchange_n(&threads, &none, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return first ? n : none;
}

px_status px_set_num_threads(int64_t count) {
  PX_CHECK(count > 0, PX_RUNTIME, "set_num_threads expects a positive integer");
  __atomic_store_n(&threads, count > INT32_MAX ? INT32_MAX : (int)count, __ATOMIC_RELAXED);
  return PX_OK;
}
