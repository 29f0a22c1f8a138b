// SPDX-License-Identifier: Apache-2.0
// Fault injection: makes the n-th passage of a fault point fail, for n = 1, 2, ... until a run no
// longer reaches it. Each failure must set a message, leak no object and leave the results of later
// runs unchanged.
#pragma once
#include "devices.h"

static inline void synchronize_devices(void) {
  if (!px_device_initialized()) return;
  for (int i = 0; i < px_device_count(PX_CUDA); i++) OK(px_device_synchronize(i));
}

static inline int64_t device_bytes(void) {
  int64_t sum = 0, bytes;
  for (int i = 0; px_device_initialized() && i < px_device_count(PX_CUDA); i++) {
    OK(px_memory_stat_get(&bytes, i, "allocated_bytes.all.current"));
    sum += bytes;
  }
  return sum;
}

// A set check enables the fault point "interrupt" in interruptible calls.
static inline px_status never_interrupt(void) { return PX_OK; }

// The device and optimizer of a run, and its result.
typedef struct job {
  px_device device;
  const char *optimizer;
  int replicas;  // 0: the module itself
  float loss;
} job;
typedef px_status (*job_function)(void *job);
// Adds the sum of the tensor's elements to the job's result.
static inline px_status add_to_loss(job *j, const px_tensor *t) {
  PX_SCOPED(px_tensor) sum = NULL;
  px_scalar number;
  PX_TRY(px_sum_all(&sum, t, PX_DTYPE_NONE));
  PX_TRY(px_tensor_item(&number, sum));
  j->loss += (float)px_scalar_float(number);
  return PX_OK;
}

// Checks the thread's state: a failed call restores it.
static inline void check_thread_state(void) {
  px_stream *home, *current;
  CHECK(px_grad_enabled() && !px_inference_enabled());
  CHECK_EQ(px_device_peek(), 0);
  for (int i = 0; px_device_initialized() && i < px_device_count(PX_CUDA); i++) {
    OK(px_stream_default(&home, px_cuda(i)));
    OK(px_stream_current(&current, px_cuda(i)));
    CHECK(home == current);
  }
}

// Runs once with the fault armed. Returns true if the run reached it. `wanted` is the loss of a
// clean run.
static inline bool run_with_fault(const char *point, int64_t n, bool repeated, job_function run,
                                  job *j, float wanted) {
  int64_t objects = px_live_objects(NULL), bytes = device_bytes();
  // Otherwise the allocator serves the run from its cache and never passes the fault point.
  if (!strcmp(point, "device.alloc")) OK(px_memory_empty_cache());
  OK(px_fault_arm(point, n, repeated));
  px_status status = run(j);
  bool reached = px_fault_seen(point) >= n;
  px_fault_disarm_all();
  if (status == PX_OK) {
    CHECK(!memcmp(&j->loss, &wanted, sizeof wanted));  // a survived fault changes no result
  } else {
    CHECK(reached);
    CHECK_EQ(px_error_last()->code, status);
    CHECK(px_error_last()->message[0]);
  }
  px_error_clear();
  check_thread_state();
  synchronize_devices();
  if (px_live_objects(NULL) != objects || device_bytes() != bytes)
    fprintf(stderr, "%s %lld%s: status %d\n", point, (long long)n, repeated ? "+" : "", status);
  CHECK_EQ(px_live_objects(NULL), objects);
  CHECK_EQ(device_bytes(), bytes);
  return reached;
}

// Other builds check the state after each failure. The thread sanitizer looks for races during a
// failure only, so it fails every seventh passage.
#ifdef __SANITIZE_THREAD__
enum { FAULT_STEP = 7 };
#else
enum { FAULT_STEP = 1 };
#endif
// Fails each passage of a point, first once and then from that passage on. Returns the number of
// passages.
static inline int64_t fail_each(const char *point, job_function run, job *j) {
  OK(run(j));
  synchronize_devices();
  float wanted = j->loss;
  int64_t n = 1, passages = 0, failures = 0;
  for (int repeated = 0; repeated < 2; repeated++) {
    for (n = 1; run_with_fault(point, n, repeated, run, j, wanted); n += FAULT_STEP, failures++)
      CHECK(n < 20000);
    passages += n - 1;
  }
  tally("faults", failures);
  OK(run(j));
  CHECK(!memcmp(&j->loss, &wanted, sizeof wanted));
  return passages;
}
