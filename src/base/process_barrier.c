// SPDX-License-Identifier: Apache-2.0
// A memory barrier of all threads of the process. One side of a protocol calls it, so that the
// other side, taken far more often, needs no barrier instruction.
#include "base/base_impl.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool available;  // atomic
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool barrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }
static void start(void) {
  __atomic_store_n(&available, barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED),
                   __ATOMIC_RELAXED);
}

bool px__process_barrier_available(void) {
  pthread_once(&once, start);
  return __atomic_load_n(&available, __ATOMIC_RELAXED);
}

// A sandbox entered since the start may refuse the barrier. Then a delay serves: no processor
// buffers a write that long.
void px__process_barrier(void) {
  if (px__process_barrier_available() && barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  __atomic_store_n(&available, false, __ATOMIC_RELAXED);
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
