// SPDX-License-Identifier: Apache-2.0
// Interrupts: long calls end early when the thread's check fails, at any time. Nothing leaks and
// the next call is right. On the CPU and on simulated devices.
#include "devices.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PAUSE_US = 120 * 1000 };  // longer than the interval between two polls of the check

static int polls;
static bool interrupted;
static px_status check(void) {
  polls++;
  if (!interrupted) return PX_OK;
  return px_error_set(PX_STOP, 0, __FILE__, __LINE__, __func__, "that is enough");
}

static px_tensor *ones(int64_t n, px_device device, bool requires_grad) {
  px_tensor *t = NULL;
  const int64_t size[2] = {n, n};
  OK(px_ones(&t, size, 2, PX_FLOAT32, device, false, requires_grad));
  return t;
}

static atomic_bool unblocked;
static void block_until_unblocked(void *unused) {
  for (int i = 0; i < 1000 && !unblocked; i++) usleep(10 * 1000);
}

// Returns a stream blocked until `unblocked` is set.
static px_stream *blocked_stream(void) {
  px_stream *stream = NULL;
  unblocked = false;
  simulate(2);
  setenv("PHLOX_SIM_MODE", "threads", 1);
  OK(px_stream_default(&stream, px_cuda(0)));
  OK(px_stream_host_call(stream, block_until_unblocked, NULL));
  interrupted = true;
  px_interrupt_set_check(check);
  return stream;
}

static void resume(void) {
  interrupted = false;
  unblocked = true;
  OK(px_device_synchronize(0));
  PX_SCOPED(px_tensor) x = ones(2, px_cuda(0), false);
  PX_SCOPED(px_tensor) sum = NULL;
  px_scalar value;
  OK(px_sum(&sum, x, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_tensor_item(&value, sum));
  CHECK_EQ(px_scalar_float(value), 4);
}

PX_TEST(an_interrupt_ends_a_device_wait) {
  (void)blocked_stream();
  FAILS(px_device_synchronize(0), PX_STOP, "that is enough");
  CHECK(polls >= 1);
  resume();
}

PX_TEST(an_interrupt_ends_waits_for_streams_events_and_copies) {
  px_stream *stream = blocked_stream();
  PX_SCOPED(px_event) event = NULL;
  PX_SCOPED(px_tensor) x = ones(2, px_cuda(0), false);
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) host = NULL;
  double data[4];
  OK(px_select(&one, x, 0, 0));
  OK(px_event_new(&event, 0));
  OK(px_event_record(event, stream));
  FAILS(px_stream_synchronize(stream), PX_STOP, "that is enough");
  usleep(PAUSE_US);
  FAILS(px_event_synchronize(event), PX_STOP, "that is enough");
  usleep(PAUSE_US);
  FAILS(px_to(&host, x, PX_DTYPE_NONE, px_cpu(), false, false), PX_STOP, "that is enough");
  resume();
  OK(px_tensor_read(x, data, 4 * sizeof(float)));
}

PX_TEST(an_interrupted_copy_keeps_its_pinned_memory) {
  (void)blocked_stream();
  PX_SCOPED(px_tensor) x = ones(64, px_cuda(0), false);
  PX_SCOPED(px_tensor) cpu = ones(64, px_cpu(), false);
  PX_SCOPED(px_tensor) pinned = NULL;
  OK(px_pin_memory(&pinned, cpu));
  FAILS(px_copy_(pinned, x, false), PX_STOP, "that is enough");
  px_release(pinned);
  pinned = NULL;
  interrupted = false;
  OK(px_pin_memory(&pinned, cpu));
  OK(px_mul_scalar_(pinned, px_float(5)));
  resume();
  PX_SCOPED(px_tensor) minimum = NULL;
  px_scalar value;
  OK(px_amin(&minimum, pinned, NULL, 0, false));
  OK(px_tensor_item(&value, minimum));
  CHECK_EQ(px_scalar_float(value), 5);
}

static void *unblock_later(void *unused) {
  usleep(400 * 1000);
  unblocked = true;
  return NULL;
}

PX_TEST(a_passing_check_does_not_interrupt) {
  pthread_t other;
  (void)blocked_stream();
  interrupted = false;
  CHECK(!pthread_create(&other, NULL, unblock_later, NULL));
  OK(px_device_synchronize(0));
  CHECK(!pthread_join(other, NULL));
  CHECK(polls >= 2);
}

PX_TEST(other_threads_and_held_calls_do_not_poll) {
  (void)blocked_stream();
  px_interrupt_hold(true);
  unblocked = true;
  CHECK(!px_interrupt_wanted());
  OK(px_device_synchronize(0));
  px_interrupt_hold(false);
  CHECK(px_interrupt_wanted() && !polls);
  px_interrupt_set_check(NULL);
  CHECK(!px_interrupt_wanted());
}

// True if a poll right after an answered poll skips the check. The machine may stall for longer
// than the poll interval, so one of many tries is enough.
static bool polls_are_throttled(void) {
  for (int i = 0; i < 100; i++) {
    int before = polls;
    if (px_interrupt_poll() == PX_OK && polls == before) return true;
  }
  return false;
}

PX_TEST(user_functions_poll_and_wait) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t never = PTHREAD_COND_INITIALIZER;
  PX_SCOPED(px_tensor) x = ones(2, px_cpu(), false);
  PX_SCOPED(px_tensor) y = NULL;
  px_interrupt_set_check(check);
  interrupted = true;
  FAILS(px_interrupt_poll(), PX_STOP, "that is enough");
  CHECK(polls_are_throttled());
  int before = polls;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < 10 && !px_interrupt_due(); i++) px_interrupt_wait(&never, &mutex);
  pthread_mutex_unlock(&mutex);
  CHECK(px_interrupt_due() && px_interrupt_due());  // as in a kernel
  CHECK_EQ(polls, before + 1);
  FAILS(px_sin(&y, x), PX_STOP, "that is enough");
  usleep(PAUSE_US);
  interrupted = false;
  CHECK(!px_interrupt_due());
  OK(px_sin(&y, x));
}

static px_status slow_hook(px_tensor **out, px_tensor *grad, void *context) {
  ++*(int *)context;
  usleep(10 * 1000);
  return PX_OK;
}

// x -> x + x -> ... with a slow hook at each node.
static px_status slow_backward(px_device device, int *hooks) {
  PX_SCOPED(px_tensor) x = ones(2, device, true);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_add(&y, x, x, px_int(1)));
  for (int i = 0; i < 32; i++) {
    px_tensor *next = NULL;
    int64_t id;
    OK(px_tensor_add_hook(&id, y, slow_hook, hooks, NULL));
    OK(px_add(&next, y, y, px_int(1)));
    px_release(y);
    y = next;
  }
  OK(px_sum(&sum, y, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &sum, NULL, false, false);
}

PX_TEST(an_interrupt_ends_backward_between_nodes) {
  simulate(1);
  px_interrupt_set_check(check);
  for (int i = 0; i < 2; i++) {
    int hooks = 0;
    int64_t before = px_live_objects(NULL);
    interrupted = true;
    FAILS(slow_backward(i ? px_cuda(0) : px_cpu(), &hooks), PX_STOP, "that is enough");
    CHECK(hooks < 24);
    CHECK_EQ(px_live_objects(NULL), before);
    interrupted = false, hooks = 0;
    OK(slow_backward(px_cpu(), &hooks));
    CHECK_EQ(hooks, 32);
  }
}

// ---- CPU kernels; tests/fault/kernels.c interrupts each kind of them at each poll
static px_tensor *matrix;

static px_status sines(void) {
  PX_SCOPED(px_tensor) result = NULL;
  return px_sin(&result, matrix);
}
static px_status square(void) {
  PX_SCOPED(px_tensor) result = NULL;
  return px_mm(&result, matrix, matrix);
}
static px_status sorted(void) {
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  return px_sort(&values, &indices, matrix, 0, true, false);
}
static px_status zeros(void) {
  PX_SCOPED(px_tensor) result = NULL;
  const int64_t size = 1500 * 1500;
  return px_zeros(&result, &size, 1, PX_FLOAT32, px_cpu(), false, false);
}
static void kernel_ends(px_status (*call)(void)) {
  int64_t before = px_live_objects(NULL);
  interrupted = true;
  usleep(PAUSE_US);
  FAILS(call(), PX_STOP, "that is enough");
  CHECK_EQ(px_live_objects(NULL), before);
  interrupted = false;
  OK(call());
  CHECK_EQ(px_live_objects(NULL), before);
}

static float *numbers;
static px_status read_all(void) {
  return px_tensor_read(matrix, numbers, (size_t)px_tensor_numel(matrix) * sizeof *numbers);
}
PX_TEST(an_interrupt_ends_large_copies_between_chunks) {
  matrix = ones(1500, px_cpu(), false);
  numbers = calloc((size_t)px_tensor_numel(matrix), sizeof *numbers);
  CHECK(numbers);
  px_interrupt_set_check(check);
  kernel_ends(read_all);
  CHECK(numbers[0] == 1 && numbers[px_tensor_numel(matrix) - 1] == 1);
  free(numbers);
}

PX_TEST(an_interrupt_ends_large_cpu_kernels_between_steps) {
  px_status (*const calls[])(void) = {sines, square, sorted, zeros};
  matrix = ones(1000, px_cpu(), false);
  px_interrupt_set_check(check);
  for (int threads = 1; threads <= 3; threads += 2) {
    OK(px_set_num_threads(threads));
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) kernel_ends(calls[i]);
  }
}
