// SPDX-License-Identifier: Apache-2.0
// For tests that let each fault point fail at its n-th passage, for n = 1, 2, ... until the work
// passes without meeting the fault. Every failure has a message, leaves no object behind, and does
// not change what a later run computes.
#pragma once
#include "devices.h"

static inline void settle(void) {
  if (!px_device_initialized()) return;
  for (int i = 0; i < px_device_count(PX_CUDA); i++) OK(px_device_synchronize(i));
}

static inline int64_t held(void) {
  int64_t sum = 0, bytes;
  for (int i = 0; px_device_initialized() && i < px_device_count(PX_CUDA); i++) {
    OK(px_memory_stat_get(&bytes, i, "allocated_bytes.all.current"));
    sum += bytes;
  }
  return sum;
}

// Calls that may be ended early are, at the fault point "interrupt", if a check is set.
static inline px_status goes_on(void) { return PX_OK; }

// What is run, where, and what comes of it.
typedef struct job {
  px_device device;
  const char *optimizer;
  int replicas;  // 0: the module itself
  float loss;
} job;
typedef px_status (*work)(void *job);
// Adds what the tensor sums to to the job's result.
static inline px_status tell(job *j, const px_tensor *t) {
  PX_SCOPED(px_tensor) sum = NULL;
  px_scalar number;
  PX_TRY(px_sum_all(&sum, t, PX_DTYPE_NONE));
  PX_TRY(px_tensor_item(&number, sum));
  j->loss += (float)px_scalar_float(number);
  return PX_OK;
}

// What a thread is set to: a call that fails leaves it as it was.
static inline void as_at_start(void) {
  px_stream *home, *current;
  CHECK(px_grad_enabled() && !px_inference_enabled());
  CHECK_EQ(px_device_peek(), 0);
  for (int i = 0; px_device_initialized() && i < px_device_count(PX_CUDA); i++) {
    OK(px_stream_default(&home, px_cuda(i)));
    OK(px_stream_current(&current, px_cuda(i)));
    CHECK(home == current);
  }
}

// One run with the fault armed; whether it was met. `wanted` is the loss of a clean run.
static inline bool attempt(const char *point, int64_t n, bool onward, work run, job *j,
                           float wanted) {
  int64_t objects = px_live_objects(NULL), bytes = held();
  // The allocator would serve the run from its cache, and the point would not be passed.
  if (!strcmp(point, "device.alloc")) OK(px_memory_empty_cache());
  OK(px_fault_arm(point, n, onward));
  px_status status = run(j);
  bool met = px_fault_seen(point) >= n;
  px_fault_disarm_all();
  if (status == PX_OK) {
    CHECK(!memcmp(&j->loss, &wanted, sizeof wanted));  // what was survived changed nothing
  } else {
    CHECK(met);
    CHECK_EQ(px_error_last()->code, status);
    CHECK(px_error_last()->message[0]);
  }
  px_error_clear();
  as_at_start();
  settle();
  if (px_live_objects(NULL) != objects || held() != bytes)
    fprintf(stderr, "%s %lld%s: status %d\n", point, (long long)n, onward ? "+" : "", status);
  CHECK_EQ(px_live_objects(NULL), objects);
  CHECK_EQ(held(), bytes);
  return met;
}

// What each failure leaves behind is looked at by the other builds; for what threads do meanwhile,
// every seventh is enough.
#ifdef __SANITIZE_THREAD__
enum { FAULT_STEP = 7 };
#else
enum { FAULT_STEP = 1 };
#endif
// Fails every passage of a point, once and from then on; returns how many there were.
static inline int64_t fail_each(const char *point, work run, job *j) {
  OK(run(j));
  settle();
  float wanted = j->loss;
  int64_t n = 1, passages = 0, failures = 0;
  for (int onward = 0; onward < 2; onward++) {
    for (n = 1; attempt(point, n, onward, run, j, wanted); n += FAULT_STEP, failures++)
      CHECK(n < 20000);
    passages += n - 1;
  }
  tally("faults", failures);
  OK(run(j));
  CHECK(!memcmp(&j->loss, &wanted, sizeof wanted));
  return passages;
}
