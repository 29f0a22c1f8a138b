// SPDX-License-Identifier: Apache-2.0
// Conformance of the backend of device type `cuda`, through the public C API: rules C1 to C12, and
// the rules of graphs, G1 to G9.
//
// The same program runs on simulated devices and on GPUs. A gate blocks a stream while a test
// observes the others. Drivers may run all host functions on one thread. Therefore no test waits
// for another host function while a gate is closed; concurrent work is device work. Unless the
// environment sets a number of devices, two are simulated. `--seeds N` runs the random programs for
// N seeds.
#include "order.h"
#include "phlox/event.h"
#include "phlox/graph.h"
#include "phlox/memory.h"
#include "phlox/op.h"
#include "phlox/random.h"

// ---- the table: id, name, rule

#define RULES(XX) \
  XX(C1, wait_ignores_later_record, "a wait does not wait for a record made after it") \
  XX(C1, wait_keeps_its_record, "a wait still waits for its record when another is made") \
  XX(C1, record_again_by_the_waiter, "a waiting stream may record the event again") \
  XX(C2, wait_without_record, "a wait for an event without a record does nothing") \
  XX(C2, wait_without_record_is_reported, "the race checker reports a wait without a record") \
  XX(C3, latest_record_pending, "query and synchronize use the latest record: pending") \
  XX(C3, latest_record_done, "query and synchronize use the latest record: done") \
  XX(C4, busy_while_running, "a stream is busy while its last task runs") \
  XX(C5, default_does_not_hold_others, "work on the default stream does not block another stream") \
  XX(C5, others_do_not_hold_default, "work on a stream does not block the default stream") \
  XX(C6, pageable_upload, "a pageable source may be overwritten after the call") \
  XX(C6, pageable_download, "a pageable destination is complete after the call") \
  XX(C6, pinned_upload, "a pinned source is read in stream order") \
  XX(C6, pinned_download, "a pinned destination is written in stream order") \
  XX(C7, empty_cache_waits, "memory in use outlives its last reference and the cache") \
  XX(C7, reuse_waits, "memory in use is not handed to another stream") \
  XX(C8, stream_dropped, "a released stream completes its work") \
  XX(C8, event_dropped, "a released event still blocks its waiters") \
  XX(C9, bad_device_once, "a bad device index is an error once") \
  XX(C9, kernel_fault_once, "a kernel's bad index is raised at the next wait, once") \
  XX(C10, elapsed_texts, "elapsed requires two completed timing events") \
  XX(C10, elapsed_is_positive, "elapsed is the time between two records") \
  XX(C11, peers_are_ordered_pairs, "peer access is per ordered pair") \
  XX(C12, forked_child_gets_an_error, "device calls in a forked child fail with an error") \
  XX(IPC, memory_is_shared, \
     "a received storage shares its memory, ordered after the sender's work") \
  XX(IPC, event_is_shared, "a received event is reached after the sender's recorded work") \
  XX(G1, capture_runs_nothing, "captured work runs at each replay and only then") \
  XX(G2, replays_are_ordered, "a replay is ordered with earlier and later work of its stream") \
  XX(G2, replays_follow_each_other, "replays of one graph on two streams follow each other") \
  XX(G3, streams_fork_and_join, \
     "a stream that waits for captured work is captured until it is joined") \
  XX(G3, branches_are_independent, "a branch of a graph does not block another") \
  XX(G4, unjoined_work_is_refused, "work that is not joined fails the capture") \
  XX(G4, work_from_outside_is_refused, \
     "a captured stream does not wait for work that is not captured") \
  XX(G4, captures_do_not_merge, "a captured stream does not wait for another capture") \
  XX(G5, waits_are_refused, "waits and queries are refused and invalidate the capture") \
  XX(G5, modes_forbid, "the capture mode selects the threads with refused waits") \
  XX(G6, default_stream_is_refused, "a default stream is not captured") \
  XX(G7, memory_is_private, "a graph's memory is exclusive while the graph lives") \
  XX(G8, random_numbers_continue, "each replay draws the numbers of eager execution") \
  XX(G8, random_numbers_of_two_devices_continue, \
     "each replay draws them on each device of a graph") \
  XX(G8, a_failed_replay_draws_nothing, "a failed replay advances no generator") \
  XX(G9, bad_index_names_its_launch, "a fault in a replay names the captured launch") \
  XX(ORDER, pipeline, "a pipeline of three streams ordered by events carries its data")

// Exclusions of backends, with reasons.
static const struct {
  const char *backend, *test, *reason;
} exclusions[] = {
    {"", "", "no backend is excluded from anything yet"},
};

// ---- helpers

static void begin(void) {
  setenv("PHLOX_SIM_DEVICES", "2", 0);
  if (px_device_count(PX_CUDA) == 0) SKIP("no device of type cuda");
  OK(px_device_init());
  px_race_enable(0, false);  // some rules race on purpose
}
static void check_excluded(const char *test) {
  for (size_t i = 0; i < sizeof exclusions / sizeof *exclusions; i++)
    if (!strcmp(exclusions[i].test, test) && !strcmp(exclusions[i].backend, px_device_backend()))
      SKIP(exclusions[i].reason);
}

// Objects of a test, released when its process succeeds.
enum { OWNED = 256 };
static void *owned[OWNED];
static int owned_count;
static void *own(void *object) {
  CHECK(owned_count < OWNED);
  return owned[owned_count++] = object;
}
static void release_object(void *object) {
  for (int i = 0; i < owned_count; i++)
    if (owned[i] == object) owned[i] = NULL;
  px_release(object);
}
static void release_all(void) {
  for (int i = 0; i < owned_count; i++) px_release(owned[i]);
}

static px_stream *stream(int device) {
  px_stream *s;
  OK(px_stream_new(&s, px_cuda(device), 0));
  return own(s);
}
static px_event *event(void) {
  px_event *e;
  OK(px_event_new(&e, PX_EVENT_TIMING));
  return own(e);
}
static void on(px_stream *s) { OK(px_stream_set_current(s)); }
static bool done(px_stream *s) {
  bool out;
  OK(px_stream_query(&out, s));
  return out;
}
static bool reached(px_event *e) {
  bool out;
  OK(px_event_query(&out, e));
  return out;
}

enum { N = 256 };
static px_tensor *device_tensor(int device, int64_t n) {
  px_tensor *t;
  OK(px_tensor_empty(&t, 1, &n, PX_INT32, px_cuda(device)));
  return own(t);
}
static px_tensor *pinned_tensor(int64_t n) {
  px_tensor *t;
  OK(px_tensor_empty_pinned(&t, 1, &n, PX_INT32));
  memset(px_tensor_data(t), 0, (size_t)n * 4);
  return own(t);
}
static void inplace(const char *name, px_value *args) {
  const px_op *op = px_op_find(name);
  CHECK(op);
  void *result = NULL;
  OK(px_op_call(op, PX_CALL_INPLACE, args, &result));
  px_release(result);
}
// Queues t = value, and to = from, on the current stream.
static void fill(px_tensor *t, int value) {
  px_value args[PX_MAX_OPERANDS] = {PX_T(t), PX_S(px_int(value))};
  inplace("fill", args);
}
static void copy(px_tensor *to, px_tensor *from, bool non_blocking) {
  px_value args[PX_MAX_OPERANDS] = {PX_T(to), PX_T(from), PX_B(non_blocking)};
  inplace("copy", args);
}
static void add(px_tensor *t, int number) {
  px_value args[PX_MAX_OPERANDS] = {PX_T(t), PX_S(px_int(number))};
  inplace("add", args);
}
static int first_of(px_tensor *t) {
  px_scalar value;
  int64_t n = px_tensor_size(t, 0);
  int32_t *all = malloc((size_t)n * 4);
  OK(px_tensor_read(t, all, (size_t)n * 4));
  for (int64_t i = 1; i < n; i++) CHECK_EQ(all[i], all[0]);
  value = px_int(all[0]);
  free(all);
  return (int)px_scalar_int(value);
}
static void close_gate(px_stream *s, gate *g) {
  gate_init(g);
  OK(px_stream_host_call(s, gate_run, g));
}
// Runs each kind of task once, so that no first use blocks at a gate.
static void warm_up(px_stream *s) {
  on(s);
  px_tensor *t = device_tensor(0, N);
  fill(t, 1);
  OK(px_stream_synchronize(s));
}

#define RULE(id, name) static void id##_##name(void)
#define XX(id, name, text) RULE(id, name);
RULES(XX)
#undef XX
static const struct {
  const char *id, *name, *text;
  void (*run)(void);
} rules[] = {
#define XX(id, name, text) {#id, #id "_" #name, text, id##_##name},
    RULES(XX)
#undef XX
};
static void run_rule(const char *name) {
  begin();
  check_excluded(name);
  atexit(release_all);
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (!strcmp(rules[i].name, name)) rules[i].run();
}
#define XX(id, name, text) \
  PX_TEST(id##_##name) { run_rule(#id "_" #name); }
RULES(XX)
#undef XX

// ---- events

RULE(C1, wait_ignores_later_record) {
  px_stream *s1 = stream(0), *s2 = stream(0), *late = stream(0);
  px_event *e = event();
  warm_up(s2);
  gate g;
  OK(px_event_record(e, s1));
  OK(px_stream_wait_event(s2, e));
  close_gate(late, &g);
  OK(px_event_record(e, late));
  on(s2);
  fill(device_tensor(0, N), 1);
  OK(px_stream_synchronize(s2));
  CHECK(!reached(e));
  gate_open(&g);
  OK(px_event_synchronize(e));
}

RULE(C1, wait_keeps_its_record) {
  px_stream *s1 = stream(0), *s2 = stream(0), *idle = stream(0);
  px_event *e = event(), *after = event();
  gate g;
  close_gate(s1, &g);
  OK(px_event_record(e, s1));
  OK(px_stream_wait_event(s2, e));
  OK(px_event_record(e, idle));
  OK(px_event_synchronize(e));
  OK(px_event_record(after, s2));
  give_time();
  CHECK(!reached(after));
  gate_open(&g);
  OK(px_event_synchronize(after));
  CHECK(done(s1));
}

RULE(C1, record_again_by_the_waiter) {
  px_stream *s1 = stream(0), *s2 = stream(0);
  px_event *e = event();
  gate g;
  close_gate(s1, &g);
  OK(px_event_record(e, s1));
  OK(px_stream_wait_event(s2, e));
  OK(px_event_record(e, s2));
  CHECK(!reached(e));
  gate_open(&g);
  OK(px_event_synchronize(e));
  CHECK(reached(e) && done(s1));
}

RULE(C2, wait_without_record) {
  px_stream *s = stream(0);
  px_event *e = event();
  int ran = 0;
  CHECK(!px_event_recorded(e) && reached(e));
  OK(px_event_synchronize(e));
  OK(px_stream_wait_event(s, e));
  OK(px_stream_host_call(s, set_flag, &ran));
  OK(px_stream_synchronize(s));
  CHECK(get_flag(&ran));
}

RULE(C2, wait_without_record_is_reported) {
  px_stream *s = stream(0);
  px_event *e = event();
  px_race_enable(1, false);
  px_race_clear();
  OK(px_stream_wait_event(s, e));
  CHECK_EQ(px_race_count(), 1);
  OK(px_event_record(e, s));
  OK(px_stream_wait_event(s, e));
  CHECK_EQ(px_race_count(), 1);
}

RULE(C3, latest_record_pending) {
  px_stream *idle = stream(0), *busy = stream(0);
  px_event *e = event();
  gate g;
  OK(px_event_record(e, idle));
  OK(px_event_synchronize(e));
  CHECK(reached(e));
  close_gate(busy, &g);
  OK(px_event_record(e, busy));
  CHECK(!reached(e));
  gate_open(&g);
  OK(px_event_synchronize(e));
  CHECK(done(busy));
}

RULE(C3, latest_record_done) {
  px_stream *idle = stream(0), *busy = stream(0);
  px_event *e = event();
  gate g;
  close_gate(busy, &g);
  OK(px_event_record(e, busy));
  OK(px_event_record(e, idle));
  OK(px_event_synchronize(e));
  CHECK(reached(e) && !done(busy));
  gate_open(&g);
  OK(px_stream_synchronize(busy));
}

// ---- streams

RULE(C4, busy_while_running) {
  px_stream *s = stream(0);
  gate g;
  CHECK(done(s));
  close_gate(s, &g);
  gate_started(&g);
  CHECK(!done(s));
  gate_open(&g);
  OK(px_stream_synchronize(s));
  CHECK(done(s));
}

// Work on one stream completes while the other is blocked.
static void check_not_held(px_stream *blocked, px_stream *other) {
  warm_up(other);
  gate g;
  close_gate(blocked, &g);
  on(other);
  px_tensor *t = device_tensor(0, N);
  fill(t, 3);
  OK(px_stream_synchronize(other));
  CHECK_EQ(first_of(t), 3);
  CHECK(!done(blocked));
  gate_open(&g);
  OK(px_device_synchronize(0));
}
RULE(C5, default_does_not_hold_others) {
  px_stream *first;
  OK(px_stream_default(&first, px_cuda(0)));
  check_not_held(first, stream(0));
}
RULE(C5, others_do_not_hold_default) {
  px_stream *first;
  OK(px_stream_default(&first, px_cuda(0)));
  check_not_held(stream(0), first);
}

// ---- copies

RULE(C6, pageable_upload) {
  px_stream *s = stream(0);
  warm_up(s);
  px_tensor *t = device_tensor(0, N), *source;
  int64_t n = N;
  OK(px_tensor_empty(&source, 1, &n, PX_INT32, px_cpu()));
  own(source);
  fill(source, 5);
  gate g;
  later opener;
  close_gate(s, &g);
  later_start(&opener, &g);
  copy(t, source, true);
  memset(px_tensor_data(source), 0, N * 4);
  later_end(&opener);
  CHECK_EQ(first_of(t), 5);
}

RULE(C6, pageable_download) {
  px_stream *s = stream(0);
  on(s);
  px_tensor *t = device_tensor(0, N), *to;
  int64_t n = N;
  OK(px_tensor_empty(&to, 1, &n, PX_INT32, px_cpu()));
  own(to);
  fill(to, 0);
  const int32_t *seen = px_tensor_data(to);
  gate g;
  later opener;
  fill(t, 6);
  close_gate(s, &g);
  later_start(&opener, &g);
  copy(to, t, true);
  CHECK_EQ(seen[0], 6);
  CHECK_EQ(seen[N - 1], 6);
  CHECK(later_end(&opener));
}

RULE(C6, pinned_upload) {
  px_stream *s = stream(0);
  warm_up(s);
  px_tensor *t = device_tensor(0, N), *source = pinned_tensor(N);
  int32_t *elements = px_tensor_data(source);
  gate g;
  close_gate(s, &g);
  copy(t, source, true);
  for (int i = 0; i < N; i++) elements[i] = 9;  // the copy has not read yet
  gate_open(&g);
  OK(px_stream_synchronize(s));
  CHECK_EQ(first_of(t), 9);
}

RULE(C6, pinned_download) {
  px_stream *s = stream(0);
  warm_up(s);
  px_tensor *t = device_tensor(0, N), *to = pinned_tensor(N);
  volatile int32_t *elements = px_tensor_data(to);
  fill(t, 8);
  OK(px_stream_synchronize(s));
  gate g;
  close_gate(s, &g);
  copy(to, t, true);
  give_time();
  CHECK_EQ(elements[0], 0);
  gate_open(&g);
  OK(px_stream_synchronize(s));
  CHECK_EQ(elements[N - 1], 8);
}

// ---- lifetimes

RULE(C7, empty_cache_waits) {
  px_stream *s = stream(0);
  warm_up(s);
  px_tensor *t = device_tensor(0, 1 << 22), *to = pinned_tensor(1 << 22);
  const int32_t *elements = px_tensor_data(to);
  gate g;
  later opener;
  fill(t, 4);
  close_gate(s, &g);
  copy(to, t, true);
  later_start(&opener, &g);
  release_object(t);  // may wait if nothing is cached
  OK(px_memory_empty_cache());
  later_end(&opener);
  OK(px_stream_synchronize(s));
  CHECK(elements[0] == 4 && elements[(1 << 22) - 1] == 4);
}

RULE(C7, reuse_waits) {
  px_stream *s = stream(0), *other = stream(0);
  warm_up(other);
  warm_up(s);
  px_tensor *t = device_tensor(0, N), *to = pinned_tensor(N);
  gate g;
  later opener;
  fill(t, 4);
  close_gate(s, &g);
  copy(to, t, true);
  later_start(&opener, &g);
  release_object(t);
  on(other);
  for (int i = 0; i < 20; i++) fill(device_tensor(0, N), 66);
  later_end(&opener);
  OK(px_device_synchronize(0));
  CHECK_EQ(((int32_t *)px_tensor_data(to))[0], 4);
}

RULE(C8, stream_dropped) {
  px_stream *s = stream(0);
  gate g;
  int ran = 0;
  close_gate(s, &g);
  OK(px_stream_host_call(s, set_flag, &ran));
  release_object(s);
  CHECK(!get_flag(&ran));
  gate_open(&g);
  OK(px_device_synchronize(0));
  CHECK(get_flag(&ran));
}

RULE(C8, event_dropped) {
  px_stream *s1 = stream(0), *s2 = stream(0);
  px_event *e = event(), *after = event();
  gate g;
  close_gate(s1, &g);
  OK(px_event_record(e, s1));
  OK(px_stream_wait_event(s2, e));
  OK(px_event_record(after, s2));
  release_object(e);
  give_time();
  CHECK(!reached(after));
  gate_open(&g);
  OK(px_event_synchronize(after));
  CHECK(done(s1));
}

// ---- errors

RULE(C9, bad_device_once) {
  int current;
  FAILS(px_device_set(77), PX_ACCELERATOR, "invalid device ordinal");
  OK(px_device_current(&current));
  CHECK_EQ(current, 0);
  px_stream *s;
  FAILS(px_stream_new(&s, px_cuda(77), 0), PX_ACCELERATOR, "invalid device ordinal");
  OK(px_device_synchronize(0));
}

RULE(C9, kernel_fault_once) {
  on(stream(0));
  px_tensor *t = device_tensor(0, N), *index;
  int64_t one = 1;
  OK(px_tensor_from_data(&index, &(int64_t){N + 5}, 1, &one, PX_INT64, px_cuda(0)));
  own(index);
  fill(t, 1);
  const px_op *op = px_op_find("index_select");
  CHECK(op);
  px_value args[] = {PX_T(t), PX_I(0), PX_T(index)};
  void *result = NULL;
  OK(px_op_call(op, PX_CALL_NEW, args, &result));
  own(result);
  FAILS(px_device_synchronize(0), PX_INDEX, "out of");
  OK(px_device_synchronize(0));
  CHECK_EQ(first_of(t), 1);
}

RULE(C10, elapsed_texts) {
  px_stream *s = stream(0);
  px_event *start = event(), *end = event(), *untimed;
  OK(px_event_new(&untimed, 0));
  own(untimed);
  gate g;
  float ms;
  FAILS(px_event_elapsed(&ms, start, end), PX_VALUE, "must be recorded before");
  FAILS(px_event_elapsed(&ms, start, untimed), PX_VALUE, "enable_timing=True");
  OK(px_event_record(start, s));
  close_gate(s, &g);
  OK(px_event_record(end, s));
  FAILS(px_event_elapsed(&ms, start, end), PX_RUNTIME, "must be completed before");
  gate_open(&g);
  OK(px_event_synchronize(end));
  OK(px_event_elapsed(&ms, start, end));
}

RULE(C10, elapsed_is_positive) {
  px_stream *s = stream(0);
  px_event *start = event(), *end = event();
  float there, back;
  on(s);
  OK(px_event_record(start, s));
  for (int i = 0; i < 10; i++) fill(device_tensor(0, 1 << 16), i);
  OK(px_event_record(end, s));
  OK(px_event_synchronize(end));
  OK(px_event_elapsed(&there, start, end));
  OK(px_event_elapsed(&back, end, start));
  CHECK(there > 0 && there < 60000);
  CHECK_NEAR(back, -there, 1e-3);
}

RULE(C11, peers_are_ordered_pairs) {
  bool can, back;
  OK(px_device_can_access_peer(&can, 0, 0));
  CHECK(!can);
  FAILS(px_device_can_access_peer(&can, 0, 99), PX_ASSERTION, "");
  if (px_device_count(PX_CUDA) < 2) SKIP("one device");
  OK(px_device_can_access_peer(&can, 0, 1));
  OK(px_device_can_access_peer(&back, 1, 0));
  if (!can) FAILS(px_device_enable_peer(0, 1), PX_RUNTIME, "");
  if (!can) return;
  OK(px_device_enable_peer(0, 1));
  OK(px_device_enable_peer(0, 1));
  CHECK(px_device_peer_enabled(0, 1) && !px_device_peer_enabled(1, 0));
}

// ---- fork

static int child_result(px_stream *s, px_tensor *t) {
  int64_t n = N;
  int32_t host[N];
  px_tensor *fresh;
  if (px_device_init() != PX_RUNTIME) return 1;
  if (!strstr(px_error_last()->message, "Cannot re-initialize CUDA in forked subprocess")) return 2;
  if (px_tensor_empty(&fresh, 1, &n, PX_INT32, px_cuda(0)) == PX_OK) return 3;
  if (px_stream_synchronize(s) == PX_OK) return 4;
  if (px_tensor_read(t, host, sizeof host) == PX_OK) return 5;
  return px_tensor_empty(&fresh, 1, &n, PX_INT32, px_cpu()) == PX_OK ? 0 : 6;
}

RULE(C12, forked_child_gets_an_error) {
  px_stream *s = stream(0);
  on(s);
  px_tensor *t = device_tensor(0, N);
  fill(t, 2);
  OK(px_stream_synchronize(s));
  pid_t child = fork();
  if (child == 0) _exit(child_result(s, t));
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  CHECK_EQ(first_of(t), 2);  // the parent continues
}

// ---- graphs
#include "graph_rules.h"

// ---- between processes

// The handles sent to another process of this program, and the pipes in both directions.
typedef struct parcel {
  px_storage_handle storage;
  px_ipc_handle event;
} parcel;
static int to_child, to_parent;
static void send_bytes(int channel, const void *at, size_t bytes) {
  CHECK(write(channel, at, bytes) == (ssize_t)bytes);
}
static void receive_bytes(int channel, void *at, size_t bytes) {
  CHECK(read(channel, at, bytes) == (ssize_t)bytes);
}

// The other process: opens both handles, reports whether the event is pending, then waits for it
// and adds 2.
static int receiver(int in, int out) {
  parcel p;
  begin();
  receive_bytes(in, &p, sizeof p);
  PX_SCOPED(px_storage) storage = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  PX_SCOPED(px_event) e = NULL;
  int64_t n = N, stride = 1;
  OK(px_event_from_ipc_handle(&e, px_cuda(0), &p.event));
  bool pending = !reached(e);
  send_bytes(out, &pending, sizeof pending);
  OK(px_event_synchronize(e));
  OK(px_storage_from_ipc_handle(&storage, &p.storage));
  OK(px_tensor_from_storage(&t, storage, PX_INT32, 1, &n, &stride, 0));
  add(t, 2);
  int value = first_of(t);
  send_bytes(out, &value, sizeof value);
  return 0;
}

static pid_t start_receiver(void) {
  int there[2], back[2];
  char in[16], out[16];
  CHECK(pipe(there) == 0 && pipe(back) == 0);
  snprintf(in, sizeof in, "%d", there[0]), snprintf(out, sizeof out, "%d", back[1]);
  pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "conformance", "--receive", in, out, NULL);
    _exit(1);
  }
  close(there[0]), close(back[1]);
  to_child = there[1], to_parent = back[0];
  return child;
}

static void pack(parcel *p, px_tensor *t, px_event *e) {
  px_status status = px_event_ipc_handle(&p->event, e);
  if (status == PX_UNIMPLEMENTED) SKIP("the backend shares nothing with other processes");
  OK(status);
  OK(px_storage_ipc_handle(&p->storage, px_tensor_storage(t)));
}
static void end_receiver(pid_t child, px_tensor *t, int wanted) {
  int value = 0, status = 0;
  int64_t left;
  receive_bytes(to_parent, &value, sizeof value);
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
  CHECK_EQ(value, wanted);
  CHECK_EQ(first_of(t), wanted);
  OK(px_storage_ipc_collect(&left));
  CHECK_EQ(left, 0);
}
static px_event *shared_event_new(void) {
  px_event *e;
  OK(px_event_new(&e, PX_EVENT_INTERPROCESS));
  return own(e);
}

RULE(IPC, memory_is_shared) {
  px_stream *s = stream(0);
  px_event *e = shared_event_new();
  px_tensor *neighbour = device_tensor(0, N), *t = device_tensor(0, N);
  bool pending;
  parcel p;
  gate g;
  warm_up(s);
  fill(neighbour, 1);
  close_gate(s, &g);
  fill(t, 5);
  pack(&p, t, e);  // the event has no record, but the storage handle has an event
  pid_t child = start_receiver();
  send_bytes(to_child, &p, sizeof p);
  receive_bytes(to_parent, &pending, sizeof pending);
  CHECK(!pending);
  give_time();
  gate_open(&g);
  end_receiver(child, t, 7);
  CHECK_EQ(first_of(neighbour), 1);
}

RULE(IPC, event_is_shared) {
  px_stream *s = stream(0);
  px_event *e = shared_event_new();
  px_tensor *t = device_tensor(0, N);
  bool pending;
  parcel p;
  gate g;
  warm_up(s);
  fill(t, 1);
  close_gate(s, &g);
  fill(t, 5);
  OK(px_event_record(e, s));
  pack(&p, t, e);
  p.storage.event = (px_ipc_handle){{0}};  // only the event orders the processes
  pid_t child = start_receiver();
  send_bytes(to_child, &p, sizeof p);
  receive_bytes(to_parent, &pending, sizeof pending);
  CHECK(pending && !reached(e));
  gate_open(&g);
  end_receiver(child, t, 7);
  CHECK(reached(e));
}

// ---- random programs

static int devices;
static px_stream *order_stream[ORDER_STREAMS];
static px_event *order_event[ORDER_EVENTS];
static int on_device(int i) { return i % devices; }
static void order_issue(int s, void (*fn)(void *), void *argument) {
  OK(px_stream_host_call(order_stream[s], fn, argument));
}
static void order_record_event(int e, int s) {
  OK(px_event_record(order_event[e], order_stream[s]));
}
static void order_wait_event(int s, int e) {
  OK(px_stream_wait_event(order_stream[s], order_event[e]));
}
static void order_sync(int s) { OK(px_stream_synchronize(order_stream[s])); }
static void order_sync_event(int e) { OK(px_event_synchronize(order_event[e])); }
static bool order_query(int e) { return reached(order_event[e]); }
static const order_system system_of_phlox = {order_issue, order_record_event, order_wait_event,
                                             order_sync,  order_sync_event,   order_query,
                                             on_device,   on_device};
static order_run ran;

static void order_test(uint64_t seed) {
  begin();
  atexit(release_all);
  devices = px_device_count(PX_CUDA) > 1 ? 2 : 1;
  for (int i = 0; i < ORDER_STREAMS; i++) order_stream[i] = stream(on_device(i));
  for (int i = 0; i < ORDER_EVENTS; i++) order_event[i] = event();
  for (uint64_t i = 0; i < 4; i++) order_program(&ran, &system_of_phlox, 4 * seed + i);
}

// Work ordered by records and waits runs in order. Each seed runs in a process without prior device
// use.
PX_TEST(ORDER_random_programs) { CHECK_EQ(over_seeds(50, order_test), 0); }

// Upload, work and download on three streams over three buffers, ordered by events only.
RULE(ORDER, pipeline) {
  enum { TURNS = 30, RING = 3 };
  px_stream *up = stream(0), *work = stream(0), *down = stream(0);
  px_tensor *buffer[RING], *source[TURNS], *result[TURNS];
  px_event *full[RING], *ready[RING], *again[RING];
  for (int i = 0; i < RING; i++) {
    buffer[i] = device_tensor(0, N);
    full[i] = event(), ready[i] = event(), again[i] = event();
  }
  for (int t = 0; t < TURNS; t++) {
    source[t] = pinned_tensor(N), result[t] = pinned_tensor(N);
    for (int k = 0; k < N; k++) ((int32_t *)px_tensor_data(source[t]))[k] = t;
  }
  OK(px_device_synchronize(0));
  px_race_enable(1, false);
  for (int t = 0; t < TURNS; t++) {
    int i = t % RING;
    if (t >= RING) OK(px_stream_wait_event(up, again[i]));
    on(up), copy(buffer[i], source[t], true);
    OK(px_event_record(full[i], up));
    OK(px_stream_wait_event(work, full[i]));
    on(work), add(buffer[i], 100);
    OK(px_event_record(ready[i], work));
    OK(px_stream_wait_event(down, ready[i]));
    on(down), copy(result[t], buffer[i], true);
    OK(px_event_record(again[i], down));
  }
  OK(px_stream_synchronize(down));
  CHECK_EQ(px_race_count(), 0);
  for (int t = 0; t < TURNS; t++)
    for (int k = 0; k < N; k++) CHECK_EQ(((int32_t *)px_tensor_data(result[t]))[k], t + 100);
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "--receive")) return receiver(atoi(argv[2]), atoi(argv[3]));
  return seeds_main(argc, argv, order_test);
}
