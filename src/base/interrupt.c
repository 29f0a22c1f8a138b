// SPDX-License-Identifier: Apache-2.0
// Cooperative cancellation: long waits and computations poll the thread's check and return its
// error. Cleanup must not be interrupted, so it holds interrupts off.
#include "base/base_impl.h"

#include <time.h>

// Polling takes at most 1/SHARE of the time: in Python the check may wait for another thread.
enum {
  MIN_INTERVAL_NS = 20 * 1000 * 1000,
  MAX_INTERVAL_NS = 100 * 1000 * 1000,
  SHARE = 10
};  // interval limits
static _Thread_local struct {
  px_interrupt_check check;
  int held;           // nesting depth of px_interrupt_hold
  bool asking;        // the check is running
  bool alone;         // px_set_single_threaded; here, since thread-local storage is scarce
  int64_t next;       // time of the next poll
  px_status stopped;  // interruption of the running kernel
} here;
int px__interrupted_count;

void px_interrupt_set_check(px_interrupt_check check) { here.check = check; }

bool px_interrupt_wanted(void) { return here.check && !here.held && !here.asking; }

void px_interrupt_hold(bool on) { here.held += on ? 1 : -1; }

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static px_status run_check(int64_t begin) {
  here.asking = true;
  px_status status = here.check();
  here.asking = false;
  int64_t end = now(), pause = (end - begin) * SHARE;
  here.next = end + (pause < MIN_INTERVAL_NS   ? MIN_INTERVAL_NS
                     : pause > MAX_INTERVAL_NS ? MAX_INTERVAL_NS
                                               : pause);
  return status;
}

px_status px_interrupt_poll(void) {
  if (!px_interrupt_wanted()) return PX_OK;
  PX_CHECK(!px__fault(PX__FAULT_INTERRUPT), PX_RUNTIME, "interrupted (injected)");
  int64_t time = now();
  return time < here.next ? PX_OK : run_check(time);
}

bool px_interrupt_due(void) {
  if (here.stopped != PX_OK) return true;
  here.stopped = px_interrupt_poll();
  if (here.stopped == PX_OK) return false;
  __atomic_add_fetch(&px__interrupted_count, 1, __ATOMIC_RELAXED);
  return true;
}

px_status px__interrupted_clear(void) {
  px_status status = here.stopped;
  here.stopped = PX_OK;
  if (status != PX_OK) __atomic_sub_fetch(&px__interrupted_count, 1, __ATOMIC_RELAXED);
  return status;
}

void px_set_single_threaded(bool on) { here.alone = on; }
bool px__thread_is_alone(void) { return here.alone; }

// ---- large copies
enum { PIECE = 8 << 20 };
static size_t piece(size_t left) { return left < PIECE ? left : PIECE; }

px_status px__copy_interruptible(void *to, const void *from, size_t bytes) {
  for (size_t done = 0; done < bytes; done += PIECE) {
    if (done) PX_TRY(px_interrupt_poll());
    memcpy((char *)to + done, (const char *)from + done, piece(bytes - done));
  }
  return PX_OK;
}

void px_interrupt_wait(void *condition, void *mutex) {
  if (!px_interrupt_wanted()) {
    pthread_cond_wait(condition, mutex);
    return;
  }
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  time.tv_nsec += 2 * MIN_INTERVAL_NS;
  if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
  (void)pthread_cond_timedwait(condition, mutex, &time);
}
