// SPDX-License-Identifier: Apache-2.0
// Storages and events of devices shared between processes: visibility, lifetime of memory, and
// refused handles.
#include "device_test.h"
#include "tensor/tensor_impl.h"

enum { N = 64 };

// A child, forked before the first use of a device, and a pipe in each direction.
static int from_parent[2], from_child[2];
static bool is_child;
static pid_t start_child(void) {
  CHECK(pipe(from_parent) == 0 && pipe(from_child) == 0);
  fflush(NULL);
  pid_t child = fork();
  is_child = child == 0;
  close(is_child ? from_parent[1] : from_parent[0]);
  close(is_child ? from_child[0] : from_child[1]);
  simulate_plainly(2);
  return child;
}
static void send_bytes(const void *at, size_t bytes) {
  CHECK(write(is_child ? from_child[1] : from_parent[1], at, bytes) == (ssize_t)bytes);
}
static void receive_bytes(void *at, size_t bytes) {
  CHECK(read(is_child ? from_parent[0] : from_child[0], at, bytes) == (ssize_t)bytes);
}
static void signal_peer(void) { send_bytes("", 1); }
static void await_peer(void) { receive_bytes((char[1]){0}, 1); }
static void end_child(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

// Blocks a stream until the gate is opened.
static int gate[2];
static void wait_at_gate(void *unused) { CHECK(read(gate[0], (char[1]){0}, 1) == 1); }
static void close_gate(px_stream *stream) {
  CHECK(pipe(gate) == 0);
  OK(px_stream_host_call(stream, wait_at_gate, NULL));
}
static void open_gate(void) { CHECK(write(gate[1], "", 1) == 1); }

static px_tensor *numbers(int device, int64_t first) {
  int64_t data[N], count = N;
  px_tensor *t;
  for (int i = 0; i < N; i++) data[i] = first + i;
  OK(px_tensor_from_data(&t, data, 1, &count, PX_INT64, px_cuda(device)));
  return t;
}
static int64_t first_in(px_storage *storage) { return first_of(storage->allocation); }
static int64_t exported_count(void) {
  int64_t count;
  OK(px_storage_ipc_collect(&count));
  return count;
}
static px_storage *receive(void) {
  px_storage_handle handle;
  px_storage *storage;
  receive_bytes(&handle, sizeof handle);
  OK(px_storage_from_ipc_handle(&storage, &handle));
  return storage;
}
// Holds a received storage until the sender's signal. Its first element is still 5.
static void receive_and_hold(void) {
  px_storage *storage = receive();
  signal_peer(), await_peer();
  CHECK_EQ(first_in(storage), 5);
  px_release(storage);
}
static void send(px_tensor *t) {
  px_storage_handle handle;
  OK(px_storage_ipc_handle(&handle, px_tensor_storage(t)));
  send_bytes(&handle, sizeof handle);
}

PX_TEST(a_childs_write_is_visible) {
  pid_t child = start_child();
  if (is_child) {
    px_storage *storage = receive();
    CHECK(px_storage_device(storage).index == 1 && px_storage_bytes(storage) == N * 8);
    CHECK_EQ(first_in(storage), 5);
    OK(fill(storage->allocation, 77, 0));
    OK(px_device_synchronize(1));
    signal_peer();
    px_release(storage);
    exit(0);
  }
  PX_SCOPED(px_tensor) before = numbers(1, 0);
  PX_SCOPED(px_tensor) t = numbers(1, 5);
  send(t);
  await_peer();
  CHECK_EQ(first_in(px_tensor_storage(t)), 77);
  CHECK_EQ(first_in(px_tensor_storage(before)), 0);
  end_child(child);
  CHECK_EQ(exported_count(), 0);
}

PX_TEST(repeated_handles_open_one_storage) {
  pid_t child = start_child();
  if (is_child) {
    px_storage *first = receive(), *again = receive(), *other = receive();
    CHECK(first == again && other != first);
    // Two storages of one allocation keep their offsets.
    CHECK((char *)other->allocation->data - (char *)first->allocation->data == 512);
    px_release(first), px_release(again), px_release(other);
    CHECK_EQ(px_live_objects("storage"), 0);
    exit(0);
  }
  PX_SCOPED(px_tensor) t = numbers(0, 5);
  PX_SCOPED(px_tensor) other = numbers(0, 6);
  send(t), send(t), send(other);
  end_child(child);
  CHECK_EQ(exported_count(), 0);
}

PX_TEST(a_receivers_work_is_ordered_after_the_senders) {
  pid_t child = start_child();
  if (is_child) {
    PX_SCOPED(px_storage) storage = receive();
    signal_peer();
    CHECK_EQ(first_in(storage), 9);
    exit(0);
  }
  PX_SCOPED(px_tensor) t = numbers(0, 5);
  PX_SCOPED(px_stream) side = new_stream(0);
  OK(px_stream_set_current(side));
  close_gate(side);
  OK(fill(px_tensor_storage(t)->allocation, 9, 0));
  OK(px_stream_set_current(default_stream(0)));  // the handle is exported from another stream
  send(t);
  await_peer();
  open_gate();
  end_child(child);
}

PX_TEST(memory_lives_until_the_receiver_releases_it) {
  pid_t child = start_child();
  if (is_child) {
    receive_and_hold();
    signal_peer(), await_peer();
    exit(0);
  }
  px_tensor *t = numbers(0, 5);
  int64_t held = stat_of("allocated_bytes.all.current");
  send(t);
  px_release(t);
  CHECK_EQ(exported_count(), 1);  // in flight
  await_peer();
  CHECK_EQ(exported_count(), 1);
  px_release(numbers(0, 1));  // would reuse the memory if it were free
  CHECK_EQ(stat_of("allocated_bytes.all.current"), held);
  signal_peer(), await_peer();
  CHECK_EQ(exported_count(), 0);
  CHECK_EQ(stat_of("allocated_bytes.all.current"), 0);
  signal_peer();
  end_child(child);
}

PX_TEST(a_killed_receiver_releases_its_memory) {
  pid_t child = start_child();
  if (is_child) {
    receive();
    signal_peer(), await_peer();
  }
  px_tensor *t = numbers(0, 5);
  send(t);
  await_peer();
  px_release(t);
  CHECK_EQ(exported_count(), 1);
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
  CHECK_EQ(exported_count(), 0);
  CHECK_EQ(stat_of("allocated_bytes.all.current"), 0);
}

PX_TEST(memory_of_killed_receivers_is_reclaimed_before_out_of_memory) {
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  pid_t child = start_child();
  if (is_child) {
    px_storage *storage = receive();
    await_peer();
    px_release(storage);
    exit(0);
  }
  int64_t bytes_60_mib = 60 << 20;
  px_tensor *t, *next;
  OK(px_tensor_empty(&t, 1, &bytes_60_mib, PX_UINT8, px_cuda(0)));
  send(t);
  px_release(t);
  FAILS(px_tensor_empty(&next, 1, &bytes_60_mib, PX_UINT8, px_cuda(0)), PX_OUT_OF_MEMORY,
        "out of memory");
  signal_peer();
  end_child(child);
  OK(px_tensor_empty(&next, 1, &bytes_60_mib, PX_UINT8, px_cuda(0)));
  px_release(next);
}

PX_TEST(handles_of_an_ended_sender_are_an_error) {
  pid_t child = start_child();
  px_storage_handle handle;
  px_ipc_handle event;
  if (is_child) {
    px_tensor *t = numbers(0, 5);
    px_event *e;
    OK(px_storage_ipc_handle(&handle, px_tensor_storage(t)));
    OK(px_event_new(&e, PX_EVENT_INTERPROCESS));
    OK(px_event_ipc_handle(&event, e));
    send_bytes(&handle, sizeof handle), send_bytes(&event, sizeof event);
    px_release(t), px_release(e);
    exit(0);
  }
  receive_bytes(&handle, sizeof handle), receive_bytes(&event, sizeof event);
  end_child(child);
  px_storage *none;
  px_event *no_event;
  FAILS(px_storage_from_ipc_handle(&none, &handle), PX_RUNTIME, "has ended or is inaccessible");
  FAILS(px_event_from_ipc_handle(&no_event, px_cuda(0), &event), PX_RUNTIME, "has ended");
  CHECK(!none && !no_event);
  CHECK_EQ(px_live_objects("storage") + px_live_objects("event"), 0);
}

PX_TEST(received_storages_cannot_be_exported) {
  pid_t child = start_child();
  if (is_child) {
    px_storage *storage = receive();
    px_storage_handle handle;
    FAILS(px_storage_ipc_handle(&handle, storage), PX_RUNTIME,
          "Attempted to send CUDA tensor received from another process");
    px_release(storage);
    exit(0);
  }
  PX_SCOPED(px_tensor) t = numbers(0, 5);
  send(t);
  end_child(child);
}

PX_TEST(a_process_can_open_its_own_handle) {
  simulate_plainly(1);
  px_tensor *t = numbers(0, 5);
  px_storage *storage = px_tensor_storage(t), *back, *kept;
  px_storage_handle handle;
  OK(px_storage_ipc_handle(&handle, storage));
  OK(px_storage_from_ipc_handle(&back, &handle));
  CHECK(back == storage && exported_count() == 0);
  px_release(back);
  OK(px_storage_ipc_handle(&handle, storage));
  px_release(t);
  OK(px_storage_from_ipc_handle(&kept, &handle));
  CHECK(first_in(kept) == 5 && exported_count() == 0);
  px_release(kept);
  FAILS(px_storage_from_ipc_handle(&kept, &handle), PX_RUNTIME, "has released the storage");
  CHECK_EQ(stat_of("allocated_bytes.all.current"), 0);
}

PX_TEST(a_fork_keeps_the_parents_exports) {
  simulate_plainly(1);
  px_tensor *t = numbers(0, 5);
  px_storage *back;
  px_storage_handle handle;
  OK(px_storage_ipc_handle(&handle, px_tensor_storage(t)));
  // Under the address sanitizer, a child inherits locks held by other threads of its parent.
  OK(px_device_synchronize(0));
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    FAILS(px_storage_from_ipc_handle(&back, &handle), PX_RUNTIME, "Cannot re-initialize CUDA");
    px_release(t);
    exit(exported_count() != 0);
  }
  end_child(child);
  px_release(t);
  CHECK_EQ(exported_count(), 1);
  OK(px_storage_from_ipc_handle(&back, &handle));
  CHECK_EQ(first_in(back), 5);
  px_release(back);
  CHECK_EQ(exported_count(), 0);
}

PX_TEST(an_empty_storage_can_be_shared) {
  simulate_plainly(1);
  int64_t none = 0;
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_storage) back = NULL;
  px_storage_handle handle;
  OK(px_tensor_empty(&t, 1, &none, PX_INT64, px_cuda(0)));
  OK(px_storage_ipc_handle(&handle, px_tensor_storage(t)));
  OK(px_storage_from_ipc_handle(&back, &handle));
  CHECK(px_storage_bytes(back) == 0 && px_storage_device(back).type == PX_CUDA);
}

PX_TEST(invalid_handles_are_refused) {
  simulate_plainly(1);
  PX_SCOPED(px_tensor) t = numbers(0, 5);
  PX_SCOPED(px_event) plain = NULL;
  px_storage *none;
  px_event *event;
  px_storage_handle handle, good;
  px_ipc_handle zeros = {{0}};
  int64_t four = 4;
  PX_SCOPED(px_tensor) host = NULL;
  OK(px_tensor_empty(&host, 1, &four, PX_FLOAT32, px_cpu()));
  FAILS(px_storage_ipc_handle(&good, px_tensor_storage(host)), PX_RUNTIME, "px_storage_fd");
  OK(px_storage_ipc_handle(&good, px_tensor_storage(t)));
  handle = good, handle.counters = zeros;
  FAILS(px_storage_from_ipc_handle(&none, &handle), PX_VALUE, "invalid IPC handle");
  handle = good, handle.slot = ~0ull;
  FAILS(px_storage_from_ipc_handle(&none, &handle), PX_RUNTIME, "has released the storage");
  handle = good, handle.device[0] ^= 1;
  FAILS(px_storage_from_ipc_handle(&none, &handle), PX_RUNTIME, "not visible to this process");
  handle = good, handle.serial += 1;
  FAILS(px_storage_from_ipc_handle(&none, &handle), PX_RUNTIME, "has released the storage");
  OK(px_event_new(&plain, 0));
  FAILS(px_event_ipc_handle(&zeros, plain), PX_ACCELERATOR, "invalid resource handle");
  FAILS(px_event_from_ipc_handle(&event, px_cuda(0), &zeros), PX_VALUE, "invalid IPC handle");
  FAILS(px_event_from_ipc_handle(&event, px_cpu(), &zeros), PX_VALUE, "Expected a cuda device");
  CHECK(!none && !event);
}

PX_TEST(out_of_range_offsets_are_refused) {
  pid_t child = start_child();
  px_storage_handle good, bad;
  if (is_child) {
    px_storage *none;
    receive_bytes(&good, sizeof good);
    bad = good, bad.bytes = 1 << 30;
    FAILS(px_storage_from_ipc_handle(&none, &bad), PX_VALUE, "expected a range within");
    bad = good, bad.slot = ~0ull;
    FAILS(px_storage_from_ipc_handle(&none, &bad), PX_VALUE, "invalid IPC handle");
    bad = good, bad.offset = ~0ull - 8;
    FAILS(px_storage_from_ipc_handle(&none, &bad), PX_VALUE, "expected a range within");
    bad = good, memset(bad.memory.bytes + PX_FILE_HANDLE, 0xff, 16);
    FAILS(px_storage_from_ipc_handle(&none, &bad), PX_VALUE, "invalid argument");
    CHECK_EQ(px_live_objects("storage"), 0);
    exit(0);
  }
  PX_SCOPED(px_tensor) t = numbers(0, 5);
  OK(px_storage_ipc_handle(&good, px_tensor_storage(t)));
  send_bytes(&good, sizeof good);
  end_child(child);
}

PX_TEST(an_exported_storage_may_be_resized) {
  pid_t child = start_child();
  if (is_child) {
    receive_and_hold();
    exit(0);
  }
  int64_t more = 100000;
  PX_SCOPED(px_tensor) t = numbers(0, 5);
  send(t);
  await_peer();
  OK(px_tensor_resize(t, 1, &more));
  CHECK_EQ(first_in(px_tensor_storage(t)), 5);
  OK(fill(px_tensor_storage(t)->allocation, 1, 0));
  OK(px_device_synchronize(0));
  CHECK_EQ(exported_count(), 1);
  signal_peer();
  end_child(child);
  CHECK_EQ(exported_count(), 0);
}

// ---- events
static px_event *send_event(void) {
  px_ipc_handle handle;
  px_event *event;
  OK(px_event_new(&event, PX_EVENT_INTERPROCESS));
  OK(px_event_ipc_handle(&handle, event));  // bound to the current device, and not recorded
  send_bytes(&handle, sizeof handle);
  return event;
}
static px_event *receive_event(void) {
  px_ipc_handle handle;
  px_event *event;
  receive_bytes(&handle, sizeof handle);
  OK(px_event_from_ipc_handle(&event, px_cuda(0), &handle));
  return event;
}
static bool is_reached(px_event *event) {
  bool done;
  OK(px_event_query(&done, event));
  return done;
}

PX_TEST(another_process_can_wait_for_an_event) {
  pid_t child = start_child();
  if (is_child) {
    PX_SCOPED(px_event) event = receive_event();
    PX_SCOPED(px_storage) storage = receive();
    await_peer();
    CHECK(!is_reached(event) && px_event_device(event).index == 0);
    OK(px_stream_wait_event(default_stream(0), event));
    signal_peer();
    CHECK_EQ(first_in(storage), 9);
    OK(px_event_synchronize(event));
    CHECK(is_reached(event));
    exit(0);
  }
  PX_SCOPED(px_tensor) t = numbers(0, 5);
  PX_SCOPED(px_event) event = send_event();
  send(t);
  close_gate(default_stream(0));
  OK(fill(px_tensor_storage(t)->allocation, 9, 0));
  OK(px_event_record(event, default_stream(0)));
  signal_peer(), await_peer();
  open_gate();
  end_child(child);
}

PX_TEST(the_receiving_process_can_record_an_event) {
  pid_t child = start_child();
  if (is_child) {
    PX_SCOPED(px_event) event = receive_event();
    close_gate(default_stream(0));
    OK(px_event_record(event, default_stream(0)));
    signal_peer(), await_peer();
    open_gate();
    await_peer();
    CHECK(is_reached(event));
    exit(0);
  }
  PX_SCOPED(px_event) event = send_event();
  await_peer();
  CHECK(!is_reached(event) && !px_event_recorded(event));
  signal_peer();
  OK(px_event_synchronize(event));
  CHECK(is_reached(event));
  OK(px_event_record(event, default_stream(0)));  // and again here
  OK(px_event_synchronize(event));
  signal_peer();
  end_child(child);
}

PX_TEST(events_of_a_killed_process_are_reached) {
  pid_t child = start_child();
  if (is_child) {
    px_event *event = receive_event();
    close_gate(default_stream(0));
    OK(px_event_record(event, default_stream(0)));
    signal_peer();
    pause();
  }
  PX_SCOPED(px_event) event = send_event();
  await_peer();
  CHECK(!is_reached(event));
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
  OK(px_event_synchronize(event));
}

PX_TEST(a_timing_event_cannot_be_shared) {
  simulate_plainly(1);
  PX_SCOPED(px_event) event = NULL;
  OK(px_event_new(&event, PX_EVENT_INTERPROCESS | PX_EVENT_TIMING));
  FAILS(px_event_record(event, default_stream(0)), PX_VALUE, "invalid argument");
}

// ---- failures
static void send_with_faults(const char *point) {
  bool failed = true;
  for (int64_t n = 1; failed; n++) {
    px_storage_handle handle;
    px_storage *back;
    px_tensor *t = numbers(0, 5);
    OK(px_fault_arm(point, n, false));
    failed = px_storage_ipc_handle(&handle, px_tensor_storage(t)) != PX_OK;
    px_fault_disarm_all();
    CHECK(n > 1 || failed);
    CHECK(first_in(px_tensor_storage(t)) == 5 && exported_count() == !failed);
    if (!failed) OK(px_storage_from_ipc_handle(&back, &handle));
    if (!failed) px_release(back);
    px_release(t);
    CHECK(exported_count() == 0 && stat_of("allocated_bytes.all.current") == 0);
    CHECK_EQ(px_live_objects("storage") + px_live_objects("event"), 0);
  }
}

static void receive_with_faults(const char *point) {
  px_storage_handle handle;
  bool failed = true;
  receive_bytes(&handle, sizeof handle);
  for (int64_t n = 1; failed; n++) {
    px_storage *storage;
    int64_t before = px_live_objects(NULL);
    OK(px_fault_arm(point, n, false));
    failed = px_storage_from_ipc_handle(&storage, &handle) != PX_OK;
    px_fault_disarm_all();
    CHECK(n > 1 || failed);
    CHECK_EQ(px_live_objects(NULL), before + !failed);
    if (!failed) CHECK_EQ(first_in(storage), 5);
    px_release(storage);
  }
  signal_peer(), await_peer();
}

PX_TEST(sending_survives_every_failure) {
  static const char *const points[] = {"alloc", "file", "event", "stream"};
  for (int i = 0; i < 4; i++) {
    fflush(NULL);
    pid_t child = fork();  // without previous IPC state
    if (!child) {
      simulate_plainly(1);
      send_with_faults(points[i]);
      exit(0);
    }
    end_child(child);
  }
}

PX_TEST(receiving_survives_every_failure_and_can_be_retried) {
  static const char *const points[] = {"alloc", "file", "event"};
  pid_t child = start_child();
  for (int i = 0; i < 3; i++) {
    if (is_child) {
      receive_with_faults(points[i]);
      continue;
    }
    PX_SCOPED(px_tensor) t = numbers(0, 5);
    send(t);
    await_peer();
    CHECK_EQ(exported_count(), 0);
    signal_peer();
  }
  if (is_child) exit(0);
  end_child(child);
}
