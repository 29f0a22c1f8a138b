// SPDX-License-Identifier: Apache-2.0
// Work of other libraries on streams: native handles and addresses, ordering, and lifetime of
// memory.
#include <semaphore.h>

#include "phlox/extend.h"
#include "phlox/phlox.h"

#include "test.h"

static sem_t gate;
static void wait_at_gate(void *unused) {
  while (sem_wait(&gate)) {
  }
}

static px_stream *blocked_stream(void) {
  px_stream *out;
  setenv("PHLOX_BACKENDS", "sim", 1);
  setenv("PHLOX_SIM_DEVICES", "2", 1);
  sem_init(&gate, 0, 0);
  OK(px_stream_new(&out, px_cuda(0), 0));
  OK(px_stream_host_call(out, wait_at_gate, NULL));
  return out;
}

static px_tensor *tensor_on(int device) {
  px_tensor *out;
  int64_t size = 1000;
  OK(px_tensor_empty(&out, 1, &size, PX_FLOAT32, px_cuda(device)));
  return out;
}

typedef struct seen {
  void *native, *addresses[2];
  px_status status;
} seen;
static px_status note(void *native, void *const *addresses, void *context) {
  seen *s = context;
  s->native = native;
  memcpy(s->addresses, addresses, sizeof s->addresses);
  PX_CHECK(s->status == PX_OK, s->status, "the library said no");
  return PX_OK;
}

PX_TEST(external_work_keeps_its_memory_in_use) {
  PX_SCOPED(px_stream) stream = blocked_stream();
  PX_SCOPED(px_tensor) x = tensor_on(0);
  px_tensor *y = tensor_on(0), *both[] = {x, y};
  seen s = {0};
  OK(px_stream_queue(stream, "theirs", both, 2, 1, note, &s));
  CHECK(s.native == px_stream_native(stream));
  px_release(y);
  PX_SCOPED(px_tensor) z = tensor_on(0);
  CHECK(px_tensor_data(z) != s.addresses[1]);
  CHECK(px_tensor_data(x) == s.addresses[0]);
  sem_post(&gate);
  OK(px_stream_synchronize(stream));
  PX_SCOPED(px_tensor) again = tensor_on(0);
  CHECK(px_tensor_data(again) == s.addresses[1]);
}

PX_TEST(external_work_returns_its_status_and_requires_one_device) {
  PX_SCOPED(px_stream) stream = blocked_stream();
  PX_SCOPED(px_tensor) x = tensor_on(0);
  PX_SCOPED(px_tensor) on_other_device = tensor_on(1);
  px_tensor *both[] = {x, on_other_device}, *same[] = {x, x};
  seen s = {.status = PX_NOMEM};
  FAILS(px_stream_queue(stream, "theirs", both, 2, 1, note, &s), PX_VALUE,
        "on the device of the stream");
  CHECK(!s.native);
  FAILS(px_stream_queue(stream, "theirs", same, 2, 1, note, &s), PX_NOMEM, "the library said no");
  sem_post(&gate);
  OK(px_stream_synchronize(stream));
}

PX_TEST(external_work_on_a_negative_view_is_refused) {
  PX_SCOPED(px_stream) stream = blocked_stream();
  PX_SCOPED(px_tensor) x = tensor_on(0);
  seen s = {0};
  px_tensor_mark(x, PX_MARK_NEG, true);
  FAILS(px_stream_queue(stream, "theirs", &x, 1, 0, note, &s), PX_RUNTIME, "the negative bit set");
  CHECK(!s.native);
  sem_post(&gate);
  OK(px_stream_synchronize(stream));
}

PX_TEST(reached_reports_an_event_without_waiting) {
  PX_SCOPED(px_stream) stream = blocked_stream();
  PX_SCOPED(px_event) event = NULL;
  OK(px_event_new(&event, 0));
  CHECK(px_event_query_nolock(event));
  OK(px_event_record(event, stream));
  CHECK(!px_event_query_nolock(event));
  sem_post(&gate);
  OK(px_stream_synchronize(stream));
  CHECK(px_event_query_nolock(event));
}
