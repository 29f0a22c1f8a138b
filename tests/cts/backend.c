// SPDX-License-Identifier: Apache-2.0
// Conformance of a backend's function table: rules C1 to C11, memory, kernels, and guarantees of
// simulated devices beyond those of real ones. Only the error module of the core is linked.
//
// CTS_BACKEND names the backend's library. The default is libphlox_sim.so next to libphlox.so.
// Drivers may run all host functions on one thread. Therefore no test waits for another host
// function while a gate is closed, except on simulated devices.
#include "order.h"
#include "phlox/backend.h"

#include <dlfcn.h>
#include <fcntl.h>

enum { TIMING = 1 };  // flag of event_new
static const px_backend *b;

// ---- a minimal core

// Appends `bytes` to the buffer at *used if they fit. Returns their address.
static void *append(char *buffer, size_t capacity, size_t *used, const void *from, size_t bytes) {
  void *to = buffer && *used + bytes <= capacity ? buffer + *used : NULL;
  if (to && bytes) memcpy(to, from, bytes);
  *used += (bytes + 15) & ~(size_t)15;
  return to;
}
static size_t core_pack(const px_launch *l, void *buffer, size_t capacity) {
  size_t used = 0;
  px_launch *copy = append(buffer, capacity, &used, l, sizeof *l);
  px_operand *operands =
      append(buffer, capacity, &used, l->operands, (size_t)l->operand_count * sizeof *operands);
  for (int i = 0; i < l->operand_count; i++) {
    const px_operand *o = &l->operands[i];
    int64_t *sizes = append(buffer, capacity, &used, o->sizes, (size_t)o->ndim * 8);
    int64_t *strides = append(buffer, capacity, &used, o->strides, (size_t)o->ndim * 8);
    if (operands) operands[i].sizes = sizes, operands[i].strides = strides;
  }
  px_value *params =
      append(buffer, capacity, &used, l->params, (size_t)l->param_count * sizeof *params);
  if (copy && capacity >= used) copy->operands = operands, copy->params = params;
  return used;
}

// result = argument + number, int32.
static px_status kernel_add(const px_launch *l) {
  int32_t *to = l->operands[0].data;
  const int32_t *from = l->operands[1].data;
  int32_t number;
  memcpy(&number, l->operands[2].data, sizeof number);
  for (int64_t i = 0; i < l->operands[0].sizes[0]; i++) to[i] = from[i] + number;
  return PX_OK;
}
static px_status kernel_index(const px_launch *l) {
  px_kernel_fault(l, PX_FAULT_INDEX, 7, 0, 5);
  return PX_OK;
}
static px_status kernel_dies(const px_launch *l) { return PX_RUNTIME; }
static const px_kernel_row kernels[] = {
    {"add", kernel_add}, {"index", kernel_index}, {"dies", kernel_dies}};
// Files shared between processes: a handle is the process id and the descriptor.
static px_status core_file_share(px_ipc_handle *out, int fd) {
  int32_t parts[2] = {(int32_t)getpid(), fd};
  memcpy(out->bytes, parts, sizeof parts);
  return PX_OK;
}
static px_status core_file_open(int *out, const px_ipc_handle *handle) {
  int32_t parts[2];
  char path[64];
  memcpy(parts, handle->bytes, sizeof parts);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", parts[0], parts[1]);
  *out = open(path, O_RDWR | O_CLOEXEC);
  return *out < 0 ? px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__, "gone") : PX_OK;
}
static const px_core core = {.size = sizeof core,
                             .abi = PX_BACKEND_ABI,
                             .error = px_error_set,
                             .env = px_env_read,
                             .pack = core_pack,
                             .host_kernels = kernels,
                             .host_kernel_count = 3,
                             .file_share = core_file_share,
                             .file_open = core_file_open};

// ---- objects of a test, released at exit unless unfinished work uses them

enum { STREAM, EVENT, PINNED, OWNED = 256 };
static struct {
  int kind, device;
  void *thing;
} owned[OWNED];
static int owned_count;

static void *own(int kind, int device, void *thing) {
  CHECK(owned_count < OWNED);
  owned[owned_count].kind = kind, owned[owned_count].device = device;
  owned[owned_count++].thing = thing;
  return thing;
}
static void release_owned(int i) {
  void *thing = owned[i].thing;
  owned[i].thing = NULL;
  if (!thing) return;
  if (owned[i].kind == STREAM) b->stream_release(owned[i].device, thing);
  if (owned[i].kind == EVENT) b->event_release(owned[i].device, thing);
  if (owned[i].kind == PINNED) b->host_release(thing);
}
static void release_object(void *thing) {
  for (int i = 0; i < owned_count; i++)
    if (owned[i].thing == thing) release_owned(i);
}
static void release_all(void) {
  bool done = true;
  for (int i = 0; i < owned_count && done; i++)
    if (owned[i].kind == STREAM && owned[i].thing && b->stream_query(owned[i].thing, &done)) return;
  for (int i = 0; i < owned_count && done; i++) release_owned(i);
}

// Loads the backend with the environment of the test.
static void load(void) {
  char path[4096];
  const char *name = getenv("CTS_BACKEND");
  Dl_info info;
  if (!name && dladdr(__extension__(void *) px_version, &info)) {
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(path, sizeof path, "%.*s/libphlox_sim.so", slash ? (int)(slash - info.dli_fname) : 1,
             slash ? info.dli_fname : ".");
    name = path;
  }
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) SKIP(dlerror());
  px_backend_entry_fn entry;
  *(void **)&entry = dlsym(library, PX_BACKEND_ENTRY);
  CHECK(entry);
  b = entry(&core);
  CHECK(b && b->abi == PX_BACKEND_ABI);
}
static bool is_sim(void) {
  const char *name = getenv("CTS_BACKEND");
  return !name || strstr(name, "_sim");
}
static void begin(const char *devices) {
  setenv("PHLOX_SIM_DEVICES", devices, 1);
  load();
  int wanted = atoi(devices), present = b->probe();
  if (is_sim()) CHECK_EQ(present, wanted);
  if (present < wanted) SKIP("too few devices");
  for (int i = 0; i < wanted; i++) OK(b->open(i));
  atexit(release_all);
}
static void require_sim(void) {
  if (!is_sim()) SKIP("of the simulated devices only");
}

static void *stream(int device) {
  void *s;
  OK(b->stream_new(device, 0, &s));
  return own(STREAM, device, s);
}
static void *event(int device) {
  void *e;
  OK(b->event_new(device, TIMING, &e));
  return own(EVENT, device, e);
}
static int32_t *memory(int device, size_t bytes) {
  void *m;
  OK(b->alloc(device, bytes, &m));
  return m;
}
static int32_t *pinned(size_t bytes) {
  void *m;
  OK(b->host_alloc(bytes, &m));
  memset(m, 0, bytes);
  return own(PINNED, -1, m);
}
static bool stream_done(void *s) {
  bool done;
  OK(b->stream_query(s, &done));
  return done;
}
static bool event_done(void *e) {
  bool done;
  OK(b->event_query(e, &done));
  return done;
}
static px_status to_device(void *s, void *to, const void *from, size_t bytes, bool is_pinned) {
  px_copy c = {PX_COPY_HOST_TO_DEVICE, to, from, 0, -1, bytes, is_pinned};
  return b->copy(s, &c);
}
static px_status to_host(void *s, void *to, const void *from, size_t bytes, bool is_pinned) {
  px_copy c = {PX_COPY_DEVICE_TO_HOST, to, from, -1, 0, bytes, is_pinned};
  return b->copy(s, &c);
}
// to = from + number, over n elements.
static px_status add(int device, void *s, void *to, void *from, int32_t number, int64_t n) {
  static const int64_t one = 1;
  px_operand operands[3] = {
      {.data = to, .sizes = &n, .strides = &one, .ndim = 1, .dtype = PX_INT32},
      {.data = from, .sizes = &n, .strides = &one, .ndim = 1, .dtype = PX_INT32},
      {.dtype = PX_INT32, .immediate = true}};
  memcpy(operands[2].value, &number, sizeof number);
  operands[2].data = operands[2].value;
  px_value params[3] = {{.kind = PX_ARG_TENSOR}, {.kind = PX_ARG_TENSOR}, PX_S(px_int(1))};
  px_launch l = {.op = "add",
                 .kernel = b->find("add"),
                 .operand_count = 3,
                 .operands = operands,
                 .param_count = 3,
                 .params = params,
                 .compute = PX_INT32,
                 .device = device,
                 .id = 1,
                 .fault = b->fault_slot(device)};
  CHECK(l.kernel);
  return b->launch(s, &l);
}

// ---- streams and events

PX_TEST(c1_a_wait_uses_the_latest_record_at_the_call) {
  begin("1");
  void *s1 = stream(0), *s2 = stream(0), *late = stream(0), *e = event(0);
  gate first, second;
  gate_init(&first), gate_init(&second);
  int32_t *m = memory(0, 4096), *result = pinned(4096);
  OK(b->fill(s2, m, 1, 4096));
  OK(b->synchronize(0));
  OK(b->host_call(s1, gate_run, &first));
  OK(b->event_record(e, s1));
  OK(b->stream_wait(s2, e));
  OK(b->host_call(late, gate_run, &second));
  OK(b->event_record(e, late));
  OK(to_host(s2, result, m, 4096, true));
  give_time();
  CHECK_EQ(result[0], 0);
  gate_open(&first);
  OK(b->stream_synchronize(s2));  // does not wait for the second record
  CHECK(result[0] == 0x01010101 && !event_done(e));
  gate_open(&second);
  OK(b->synchronize(0));
}

PX_TEST(c1_a_stream_may_record_an_event_it_waits_for) {
  begin("1");
  void *s1 = stream(0), *s2 = stream(0), *e = event(0);
  gate g;
  gate_init(&g);
  OK(b->host_call(s1, gate_run, &g));
  OK(b->event_record(e, s1));
  OK(b->stream_wait(s2, e));
  OK(b->event_record(e, s2));
  CHECK(!event_done(e));
  gate_open(&g);
  OK(b->event_synchronize(e));
  CHECK(stream_done(s1));
}

PX_TEST(c2_a_wait_without_a_record_does_nothing) {
  begin("1");
  void *s = stream(0), *e = event(0);
  int ran = 0;
  OK(b->stream_wait(s, e));
  OK(b->host_call(s, set_flag, &ran));
  OK(b->stream_synchronize(s));
  CHECK(get_flag(&ran) && event_done(e));
  OK(b->event_synchronize(e));
}

PX_TEST(c3_query_and_synchronize_use_the_latest_record) {
  begin("1");
  void *busy = stream(0), *idle = stream(0), *e = event(0);
  gate g;
  gate_init(&g);
  OK(b->event_record(e, idle));
  OK(b->event_synchronize(e));
  OK(b->host_call(busy, gate_run, &g));
  OK(b->event_record(e, busy));
  CHECK(!event_done(e));
  OK(b->event_record(e, idle));
  OK(b->event_synchronize(e));  // the record on `busy` no longer counts
  CHECK(event_done(e) && !stream_done(busy));
  gate_open(&g);
  OK(b->synchronize(0));
}

PX_TEST(c4_a_stream_is_busy_while_its_last_task_runs) {
  begin("1");
  void *s = stream(0);
  gate g;
  gate_init(&g);
  CHECK(stream_done(s));
  OK(b->host_call(s, gate_run, &g));
  gate_started(&g);
  CHECK(!stream_done(s));
  gate_open(&g);
  OK(b->stream_synchronize(s));
  CHECK(stream_done(s));
}

PX_TEST(c5_streams_do_not_block_each_other) {
  begin("1");
  void *first = stream(0), *second = stream(0), *m = memory(0, 4096);
  int32_t *result = pinned(4096);
  for (int turn = 0; turn < 2; turn++) {
    gate g;
    gate_init(&g);
    OK(b->fill(first, m, turn + 1, 4096));
    OK(b->synchronize(0));
    OK(b->host_call(turn ? first : second, gate_run, &g));
    OK(to_host(turn ? second : first, result, m, 4096, true));
    OK(b->stream_synchronize(turn ? second : first));
    CHECK_EQ(result[0], (turn + 1) * 0x01010101);
    gate_open(&g);
    OK(b->synchronize(0));
  }
}

PX_TEST(the_number_of_queued_tasks_is_bounded) {
  require_sim();
  begin("1");
  void *s = stream(0), *m = memory(0, 4096);
  gate g;
  later opens;
  gate_init(&g);
  OK(b->host_call(s, gate_run, &g));
  gate_started(&g);
  later_start(&opens, &g);
  for (int i = 0; i < 3000; i++) OK(b->fill(s, m, i & 1, 64));
  CHECK(later_end(&opens));
  OK(b->stream_synchronize(s));
}

// ---- copies

PX_TEST(c6_a_small_pageable_source_is_read_during_the_call) {
  begin("1");
  void *s = stream(0), *m = memory(0, 4096);
  gate g;
  gate_init(&g);
  int32_t source[64], result[64];
  for (int i = 0; i < 64; i++) source[i] = i;
  OK(b->host_call(s, gate_run, &g));
  OK(to_device(s, m, source, sizeof source, false));
  memset(source, 0xee, sizeof source);
  gate_open(&g);
  OK(to_host(s, result, m, sizeof result, false));  // complete on return
  for (int i = 0; i < 64; i++) CHECK_EQ(result[i], i);
}

PX_TEST(c6_a_large_pageable_copy_is_complete_on_return) {
  begin("1");
  enum { N = 1 << 20 };
  void *s = stream(0), *m = memory(0, N);
  char *source = malloc(N), *result = malloc(N);
  memset(source, 1, N);
  OK(to_device(s, m, source, N, false));
  memset(source, 2, N);
  OK(to_host(s, result, m, N, false));
  for (int i = 0; i < N; i++) CHECK(result[i] == 1);
  free(source), free(result);
}

PX_TEST(c6_pinned_copies_are_asynchronous_both_ways) {
  begin("1");
  void *s = stream(0), *m = memory(0, 4096);
  int32_t *source = pinned(4096), *result = pinned(4096);
  gate g;
  gate_init(&g);
  source[0] = 1;
  OK(b->host_call(s, gate_run, &g));
  OK(to_device(s, m, source, 4096, true));
  OK(to_host(s, result, m, 4096, true));
  gate_started(&g);
  CHECK_EQ(result[0], 0);
  source[0] = 2;  // the copy has not read yet
  gate_open(&g);
  OK(b->stream_synchronize(s));
  CHECK_EQ(result[0], 2);
}

PX_TEST(copies_and_fills_work_between_devices) {
  begin("2");
  void *s = stream(0);
  char *local = (char *)memory(0, 4096), *remote = (char *)memory(1, 4096), result[4096];
  OK(b->fill(s, local, 0x5a, 4096));
  px_copy across = {PX_COPY_PEER, remote + 8, local, 1, 0, 100, false};
  px_copy back = {PX_COPY_PEER, local, remote, 0, 1, 108, false};
  px_copy inside = {PX_COPY_DEVICE_TO_DEVICE, local + 200, local, 0, 0, 108, false};
  OK(b->copy(s, &across));
  OK(b->copy(s, &back));
  OK(b->copy(s, &inside));
  OK(to_host(s, result, local, 4096, false));
  for (int i = 8; i < 200; i++) CHECK_EQ(result[i], 0x5a);
  for (int i = 208; i < 308; i++) CHECK_EQ(result[i], 0x5a);
}

PX_TEST(memory_names_its_device) {
  begin("2");
  char host = 0;
  if (!b->memory_device) return;
  for (int device = 0; device < 2; device++) {
    const char *at = (char *)memory(device, 4096);
    CHECK_EQ(b->memory_device(at), device);
    CHECK_EQ(b->memory_device(at + 4095), device);
  }
  CHECK_EQ(b->memory_device(&host), -1);
  CHECK_EQ(b->memory_device(NULL), -1);
}

PX_TEST(registered_host_memory_is_page_locked) {
  begin("1");
  if (!b->host_register) return;
  void *s = stream(0), *m = memory(0, 4096);
  int32_t *host = aligned_alloc(4096, 8192);
  memset(host, 7, 8192);
  OK(b->host_register(host, 4096));
  CHECK(b->host_register(host, 4096) == PX_ACCELERATOR && px_error_last()->detail == 712);
  OK(to_device(s, m, host, 4096, true));
  OK(b->fill(s, m, 1, 8));
  OK(to_host(s, host, m, 4096, true));
  OK(b->host_unregister(host));  // waits for the copy
  CHECK_EQ(host[1], 0x01010101);
  CHECK_EQ(host[2], 0x07070707);
  CHECK(b->host_unregister(host) == PX_ACCELERATOR && px_error_last()->detail == 713);
  CHECK_EQ(b->host_register(NULL, 4096), PX_VALUE);
  CHECK_EQ(b->host_register(host, 0), PX_VALUE);
  free(host);
}

// ---- lifetimes

PX_TEST(c7_release_waits_for_pending_uses) {
  begin("1");
  void *s = stream(0), *m = memory(0, 4096);
  int32_t *result = pinned(4096);
  gate g;
  gate_init(&g);
  int done = 0;
  later opener;
  OK(b->fill(s, m, 1, 4096));
  OK(b->host_call(s, gate_run, &g));
  OK(to_host(s, result, m, 4096, true));
  OK(b->host_call(s, set_flag, &done));
  later_start(&opener, &g);
  b->release(0, m);
  CHECK(later_end(&opener));
  CHECK_EQ(result[0], 0x01010101);
  OK(b->synchronize(0));
}

PX_TEST(c7_release_of_pinned_memory_waits_for_pending_uses) {
  begin("1");
  void *s = stream(0), *m = memory(0, 4096);
  int32_t *source = pinned(4096), result[4];
  gate g;
  gate_init(&g);
  later opener;
  source[3] = 77;
  OK(b->host_call(s, gate_run, &g));
  OK(to_device(s, m, source, 4096, true));
  later_start(&opener, &g);
  release_object(source);
  CHECK(later_end(&opener));
  OK(to_host(s, result, m, sizeof result, false));
  CHECK_EQ(result[3], 77);
}

PX_TEST(c8_a_released_stream_completes_its_work) {
  begin("1");
  void *s = stream(0), *idle = stream(0);
  gate g;
  gate_init(&g);
  int ran = 0;
  OK(b->host_call(s, gate_run, &g));
  OK(b->host_call(s, set_flag, &ran));
  release_object(s);  // does not wait
  release_object(idle);
  CHECK(!get_flag(&ran));
  gate_open(&g);
  OK(b->synchronize(0));
  CHECK(get_flag(&ran));
}

PX_TEST(c8_a_released_event_still_blocks_waiters) {
  begin("1");
  void *s1 = stream(0), *s2 = stream(0), *e = event(0);
  gate g;
  gate_init(&g);
  int before = 0, after = 0;
  OK(b->host_call(s1, gate_run, &g));
  OK(b->host_call(s1, set_flag, &before));
  OK(b->event_record(e, s1));
  OK(b->stream_wait(s2, e));
  OK(b->host_call(s2, set_flag, &after));
  release_object(e);
  give_time();
  CHECK(!get_flag(&after));
  gate_open(&g);
  OK(b->stream_synchronize(s2));
  CHECK(get_flag(&before) && get_flag(&after));
}

// ---- between processes

enum { SHARED = 4 };  // flag of event_new
typedef struct parcel {
  px_ipc_handle memory, event;
  size_t offset;
} parcel;

// Forks before the first use of a device. The child opens the handles it receives. Both continue
// from here.
static bool with_child(pid_t *child, int *channel) {
  int channels[2];
  CHECK(pipe(channels) == 0);
  fflush(NULL);
  *child = fork();
  *channel = channels[*child != 0];
  begin("1");
  if (!b->memory_share || !b->event_share) {
    if (!*child) exit(0);
    SKIP("the backend shares nothing with other processes");
  }
  return *child == 0;
}
static void send_parcel(int channel, void *m, void *e) {
  parcel p;
  OK(b->memory_share(0, m, &p.memory, &p.offset));
  OK(b->event_share(e, &p.event));
  CHECK(write(channel, &p, sizeof p) == sizeof p);
}
static void *shared_event_new(void) {
  void *e;
  OK(b->event_new(0, SHARED, &e));
  return own(EVENT, 0, e);
}

PX_TEST(ipc_shares_memory_and_events) {
  pid_t child;
  int channel;
  int32_t result[64];
  if (with_child(&child, &channel)) {
    parcel p;
    void *m, *e, *s = stream(0);
    size_t bytes;
    CHECK(read(channel, &p, sizeof p) == sizeof p);
    OK(b->memory_open(0, &p.memory, &m, &bytes));
    CHECK(p.offset == 256 && bytes >= 4096);
    OK(b->event_open(0, &p.event, &e));
    OK(b->stream_wait(s, e));
    OK(add(0, s, (char *)m + p.offset, (char *)m + p.offset, 1, 64));
    OK(to_host(s, result, (char *)m + p.offset, sizeof result, false));
    CHECK_EQ(result[63], 0x01010102);
    b->event_release(0, e);
    b->memory_close(0, m);
    exit(0);
  }
  void *s = stream(0), *e = shared_event_new();
  char *m = (char *)memory(0, 4096);
  int status;
  gate g;
  gate_init(&g);
  OK(b->fill(s, m, 0, 4096));
  OK(b->host_call(s, gate_run, &g));
  OK(b->fill(s, m + 256, 1, 256));
  OK(b->event_record(e, s));
  send_parcel(channel, m + 256, e);
  give_time();
  gate_open(&g);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
  OK(to_host(s, result, m + 256, sizeof result, false));
  CHECK_EQ(result[63], 0x01010102);  // written by the child's kernel
  OK(to_host(s, result, m, sizeof result, false));
  CHECK_EQ(result[0], 0);
  b->release(0, m);
}

PX_TEST(an_event_without_the_ipc_flag_has_no_handle) {
  begin("1");
  px_ipc_handle handle;
  if (!b->event_share) SKIP("the backend shares nothing with other processes");
  FAILS(b->event_share(event(0), &handle), PX_ACCELERATOR, "");
}

// ---- errors

PX_TEST(c9_an_invalid_argument_is_an_error_once) {
  begin("1");
  void *s = stream(0), *m = memory(0, 4096);
  int32_t host[4] = {0};
  FAILS(to_device(s, host, host, sizeof host, false), PX_VALUE, "invalid argument");
  FAILS(to_device(s, m, host, 1 << 20, false), PX_VALUE, "invalid argument");
  OK(to_device(s, m, host, sizeof host, false));
  OK(b->synchronize(0));
}

PX_TEST(c9_an_illegal_access_breaks_only_its_device) {
  require_sim();
  begin("2");
  void *s = stream(0), *other = stream(1), *m = memory(0, 4096), *e = event(0);
  static int32_t host[4];
  OK(add(0, s, m, host, 1, 4));
  FAILS(b->synchronize(0), PX_ACCELERATOR, "an illegal memory access was encountered");
  FAILS(b->stream_synchronize(s), PX_ACCELERATOR, "add on device 0: operand 1");
  FAILS(add(0, s, m, m, 1, 4), PX_ACCELERATOR, "illegal memory access");
  FAILS(b->event_record(e, s), PX_ACCELERATOR, "pageable host memory");
  OK(b->host_call(other, set_flag, host));
  OK(b->synchronize(1));
}

PX_TEST(c9_a_failed_kernel_breaks_its_device) {
  require_sim();
  begin("1");
  void *s = stream(0);
  px_launch l = {.op = "dies", .kernel = b->find("dies"), .id = 1};
  OK(b->launch(s, &l));
  FAILS(b->stream_synchronize(s), PX_ACCELERATOR, "unspecified launch failure");
}

PX_TEST(c10_elapsed_requires_two_completed_timing_events) {
  begin("1");
  void *s = stream(0), *start = event(0), *end = event(0), *untimed;
  gate g;
  gate_init(&g);
  float ms = -1;
  OK(b->event_new(0, 0, &untimed));
  own(EVENT, 0, untimed);
  FAILS(b->event_elapsed(start, end, &ms), PX_ACCELERATOR, "invalid resource handle");
  OK(b->event_record(start, s));
  OK(b->host_call(s, gate_run, &g));
  OK(b->event_record(end, s));
  OK(b->event_record(untimed, s));
  FAILS(b->event_elapsed(start, end, &ms), PX_ACCELERATOR, "device not ready");
  gate_open(&g);
  OK(b->event_synchronize(end));
  OK(b->event_elapsed(start, end, &ms));
  CHECK(ms > 0 && ms < 60000);
  OK(b->stream_synchronize(s));
  FAILS(b->event_elapsed(start, untimed, &ms), PX_ACCELERATOR, "invalid resource handle");
}

PX_TEST(c11_peer_access_is_per_ordered_pair) {
  require_sim();
  setenv("PHLOX_SIM_PEERS", "0>1,2-1", 1);
  begin("3");
  CHECK(b->can_access_peer(0, 1) && !b->can_access_peer(1, 0));
  CHECK(b->can_access_peer(1, 2) && b->can_access_peer(2, 1));
  CHECK(!b->can_access_peer(0, 0) && !b->can_access_peer(0, 7));
  FAILS(b->enable_peer(1, 0), PX_ACCELERATOR, "peer access is not supported");
  OK(b->enable_peer(0, 1));
  OK(b->enable_peer(0, 1));
  void *s0 = stream(0), *s1 = stream(1), *local = memory(0, 4096), *remote = memory(1, 4096);
  OK(b->fill(s0, local, 0, 4096));
  OK(add(0, s0, remote, local, 5, 8));
  OK(b->synchronize(0));
  CHECK_EQ(*(int32_t *)b->peek(1, remote), 5);
  OK(add(1, s1, remote, local, 5, 8));  // the other direction is not enabled
  FAILS(b->synchronize(1), PX_ACCELERATOR, "memory of a device without peer access");
}

// ---- memory

PX_TEST(memory_is_limited_and_released_memory_is_reusable) {
  require_sim();
  setenv("PHLOX_SIM_MEMORY", "1M", 1);
  begin("2");
  size_t free_bytes, total;
  void *a = memory(0, 600 << 10), *other = memory(1, 1 << 20), *more = &more;
  FAILS(b->alloc(0, 600 << 10, &more), PX_OUT_OF_MEMORY, "out of memory");
  CHECK(!more && a != other);
  OK(b->memory_info(0, &free_bytes, &total));
  CHECK_EQ(total, 1 << 20);
  CHECK_EQ(free_bytes, 424 << 10);
  b->release(0, a);
  more = memory(0, 1 << 20);
  FAILS(b->alloc(0, SIZE_MAX - 5, &more), PX_OUT_OF_MEMORY, "out of memory");
  OK(b->memory_info(0, &free_bytes, &total));
  CHECK_EQ(free_bytes, 0);
}

// Random allocations and releases with a pattern in each block: no two blocks may overlap.
PX_TEST(memory_blocks_never_overlap) {
  require_sim();
  setenv("PHLOX_SIM_MEMORY", "4M", 1);
  begin("1");
  struct {
    char *at;
    size_t bytes;
  } block[40] = {{0}};
  uint64_t random = 12345;
  for (int turn = 0; turn < 4000; turn++) {
    int i = (int)order_random(&random, 40);
    if (block[i].at) {
      const char *seen = b->peek(0, block[i].at);
      for (size_t k = 0; k < block[i].bytes; k += 97) CHECK_EQ(seen[k], i);
      b->release(0, block[i].at);
      block[i].at = NULL;
      continue;
    }
    block[i].bytes = 1 + order_random(&random, turn % 2 ? 100000 : 3000);
    block[i].at = (char *)memory(0, block[i].bytes);
    CHECK_EQ((uintptr_t)block[i].at % 512, 0);
    memset(b->peek(0, block[i].at), i, block[i].bytes);
  }
}

// Accesses `at` in a child. *text receives its output. Returns true if the child died.
static bool access_kills(volatile int32_t *at, char *text, size_t buffer) {
  int ends[2], status = 0;
  CHECK_EQ(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    _exit(at[0] == 12345 ? 0 : 0);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t n; (n = read(ends[0], text + length, buffer - 1 - length)) > 0;) length += (size_t)n;
  text[length] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

PX_TEST(host_access_to_device_memory_faults_and_names_it) {
  require_sim();
  signal(SIGSEGV, SIG_DFL);
  begin("2");
  char text[4096];
  CHECK(access_kills(memory(1, 4096), text, sizeof text));
  CHECK(strstr(text, "phlox: the host read or wrote 0x"));
  CHECK(strstr(text, "which is memory of cuda:1 (simulated)"));
  CHECK(access_kills(NULL, text, sizeof text));
  CHECK(!strstr(text, "phlox: the host"));
}

PX_TEST(memory_is_poisoned_on_request) {
  require_sim();
  setenv("PHLOX_SIM_POISON", "1", 1);
  setenv("PHLOX_SIM_SEED", "2", 1);
  begin("1");
  int32_t *m = memory(0, 4096);
  const uint32_t *seen = b->peek(0, m);
  CHECK_EQ(seen[0], 0xcbcbcbcb);
  memset(b->peek(0, m), 0, 4096);
  b->release(0, m);
  CHECK_EQ(seen[1000], 0xcbcbcbcb);
}

PX_TEST(kernel_access_to_released_memory_is_an_error) {
  require_sim();
  begin("1");
  void *s = stream(0), *m = memory(0, 4096), *released = memory(0, 4096);
  b->release(0, released);
  OK(add(0, s, m, released, 1, 8));
  FAILS(b->synchronize(0), PX_ACCELERATOR, "not in one live allocation");
}

// ---- kernels

PX_TEST(kernels_run_in_order_with_their_own_arguments) {
  begin("1");
  void *s = stream(0), *m = memory(0, 4096);
  int32_t result[16];
  OK(b->fill(s, m, 0, 4096));
  for (int i = 1; i <= 100; i++) OK(add(0, s, m, m, i, 16));
  OK(to_host(s, result, m, sizeof result, false));
  for (int i = 0; i < 16; i++) CHECK_EQ(result[i], 5050);
  CHECK(!b->find("nonesuch"));
}

PX_TEST(kernel_faults_go_to_the_slot_and_leave_the_device_usable) {
  require_sim();  // the kernel is defined here; the conformance test of the core covers real ones
  begin("1");
  void *s = stream(0);
  px_fault_slot *slot = b->fault_slot(0);
  px_launch l = {.op = "index", .kernel = b->find("index"), .id = 42, .fault = slot};
  OK(b->launch(s, &l));
  l.id = 43;
  OK(b->launch(s, &l));
  OK(b->stream_synchronize(s));
  CHECK_EQ(slot->launch, 42);
  CHECK_EQ(slot->code, PX_FAULT_INDEX);
  CHECK_EQ(slot->a, 7);
}

// ---- environment

PX_TEST(invalid_environment_variables_fail_open) {
  require_sim();
  setenv("PHLOX_SIM_DEVICES", "2", 1);
  setenv("PHLOX_SIM_MEMORY", "12Q", 1);
  load();
  CHECK_EQ(b->probe(), 2);
  FAILS(b->open(0), PX_VALUE, "PHLOX_SIM_MEMORY must be a size such as 512M or 4G, but is '12Q'");
}

PX_TEST(without_the_environment_there_are_no_devices) {
  require_sim();
  unsetenv("PHLOX_SIM_DEVICES");
  load();
  CHECK_EQ(b->probe(), 0);
  setenv("PHLOX_SIM_DEVICES", "3", 1);
  CHECK_EQ(b->probe(), 3);
  FAILS(b->open(3), PX_ACCELERATOR, "invalid device ordinal");
}

PX_TEST(properties_name_the_device) {
  require_sim();
  setenv("PHLOX_SIM_MEMORY", "2g", 1);
  begin("2");
  px_device_properties p, q;
  OK(b->properties(0, &p));
  OK(b->properties(1, &q));
  CHECK_TEXT(p.name, "Phlox simulated device");
  CHECK(p.simulated && p.total_memory == (size_t)2 << 30 && p.major == 9);
  CHECK(memcmp(p.uuid, q.uuid, 16) && p.pci_bus_id != q.pci_bus_id);
}

// ---- random programs by seed

static void *order_stream[ORDER_STREAMS], *order_event[ORDER_EVENTS];
static int half(int i) { return i % 2; }
static void order_issue(int s, void (*fn)(void *), void *argument) {
  OK(b->host_call(order_stream[s], fn, argument));
}
static void order_record_event(int e, int s) {
  OK(b->event_record(order_event[e], order_stream[s]));
}
static void order_wait_event(int s, int e) { OK(b->stream_wait(order_stream[s], order_event[e])); }
static void order_sync(int s) { OK(b->stream_synchronize(order_stream[s])); }
static void order_sync_event(int e) { OK(b->event_synchronize(order_event[e])); }
static bool order_query(int e) { return event_done(order_event[e]); }
static const order_system system_of_backend = {order_issue,
                                               order_record_event,
                                               order_wait_event,
                                               order_sync,
                                               order_sync_event,
                                               order_query,
                                               half,
                                               half};

static void order_begin(void) {
  begin("2");
  for (int i = 0; i < ORDER_STREAMS; i++) order_stream[i] = stream(half(i));
  for (int i = 0; i < ORDER_EVENTS; i++) order_event[i] = event(half(i));
}
static order_run ran;
static void order_test(uint64_t seed) {
  order_begin();
  for (uint64_t i = 0; i < 4; i++) order_program(&ran, &system_of_backend, 4 * seed + i);
}

PX_TEST(ordering_holds_for_any_seed) { CHECK_EQ(over_seeds(50, order_test), 0); }

// A ring of three buffers between two streams, ordered by events only.
static void pipeline_test(uint64_t seed) {
  begin("2");
  enum { TURNS = 30, RING = 3, BYTES = 4096 };
  void *up = stream(0), *work = stream(0), *down = stream(0), *m[RING], *full[RING], *done[RING];
  int32_t *source = pinned(TURNS * BYTES), *result = pinned(TURNS * BYTES);
  for (int i = 0; i < RING; i++) m[i] = memory(0, BYTES), full[i] = event(0), done[i] = event(0);
  void *free_again[RING] = {event(0), event(0), event(0)};
  for (int t = 0; t < TURNS; t++) {
    int i = t % RING, at = t * BYTES / 4;
    for (int k = 0; k < BYTES / 4; k++) source[at + k] = t * 1000 + k;
    OK(b->stream_wait(up, free_again[i]));
    OK(to_device(up, m[i], source + at, BYTES, true));
    OK(b->event_record(full[i], up));
    OK(b->stream_wait(work, full[i]));
    OK(add(0, work, m[i], m[i], 7, BYTES / 4));
    OK(b->event_record(done[i], work));
    OK(b->stream_wait(down, done[i]));
    OK(to_host(down, result + at, m[i], BYTES, true));
    OK(b->event_record(free_again[i], down));
  }
  OK(b->stream_synchronize(down));
  for (int k = 0; k < TURNS * BYTES / 4; k++)
    CHECK_EQ(result[k], k / (BYTES / 4) * 1000 + k % (BYTES / 4) + 7);
}

PX_TEST(event_ordered_pipelines_hold_for_any_seed) { CHECK_EQ(over_seeds(30, pipeline_test), 0); }

// Host threads sharing a device and an event, each with its own streams and memory.
static void *shared_event;
static void *host_thread(void *argument) {
  int number = (int)(intptr_t)argument;
  int32_t result[64];
  void *s;
  OK(b->stream_new(number % 2, 0, &s));
  for (int turn = 0; turn < 40; turn++) {
    void *m = memory(number % 2, 4096), *e;
    OK(b->event_new(number % 2, 0, &e));
    OK(b->fill(s, m, 0, 4096));
    for (int i = 0; i < 5; i++) OK(add(number % 2, s, m, m, number, 64));
    OK(b->stream_wait(s, shared_event));
    if (number % 2 == 0) OK(b->event_record(shared_event, s));
    OK(b->event_record(e, s));
    if (turn % 2) OK(b->event_synchronize(e));
    px_copy c = {PX_COPY_DEVICE_TO_HOST, result, m, -1, number % 2, sizeof result, false};
    OK(b->copy(s, &c));
    b->event_release(number % 2, e);
    b->release(number % 2, m);
    for (int i = 0; i < 64; i++) CHECK_EQ(result[i], 5 * number);
  }
  b->stream_release(number % 2, s);
  return NULL;
}

PX_TEST(host_threads_share_devices_and_events) {
  begin("2");
  pthread_t threads[6];
  shared_event = event(0);
  for (int i = 0; i < 6; i++)
    CHECK(!pthread_create(&threads[i], NULL, host_thread, (void *)(intptr_t)i));
  for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
}

// ---- mode "schedule"

// Writes a digest of the execution order of a program.
static void schedule_digest(uint64_t seed, const char *path) {
  char text[24];
  snprintf(text, sizeof text, "%d", (int)seed);
  setenv("PHLOX_SIM_SEED", text, 1);
  setenv("PHLOX_SIM_MODE", "schedule", 1);
  order_begin();
  order_program(&ran, &system_of_backend, 99);
  FILE *file = fopen(path, "w");
  for (int i = 0; i < ran.items; i++) fprintf(file, "%d ", ran.item[i].begin);
  fclose(file);
}

static void run_digest(uint64_t seed, char *text, size_t buffer) {
  char path[] = "/tmp/phlox-cts-XXXXXX";
  close(mkstemp(path));
  pid_t child = fork();
  if (child == 0) {
    schedule_digest(seed, path);
    exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
  FILE *file = fopen(path, "r");
  text[fread(text, 1, buffer - 1, file)] = 0;
  fclose(file);
  unlink(path);
}

PX_TEST(schedule_depends_only_on_the_seed) {
  require_sim();
  static char first[4096], again[4096], other[4096];
  run_digest(5, first, sizeof first);
  run_digest(5, again, sizeof again);
  run_digest(6, other, sizeof other);
  CHECK_TEXT(again, first);
  CHECK(strcmp(other, first));
}

PX_TEST(schedule_starves_a_stream) {
  require_sim();
  setenv("PHLOX_SIM_MODE", "schedule", 1);
  setenv("PHLOX_SIM_STARVE", "0", 1);
  begin("1");
  void *starved = stream(0), *other = stream(0);
  order_item late[3] = {{0}}, early[3] = {{0}};
  for (int i = 0; i < 3; i++) OK(b->host_call(starved, order_stamp, &late[i]));
  for (int i = 0; i < 3; i++) OK(b->host_call(other, order_stamp, &early[i]));
  OK(b->synchronize(0));
  CHECK(early[2].end < late[0].begin);
}

// Returns the time of two copies of equal size on one stream or on two, in virtual milliseconds.
static float copies_time(void *s1, void *s2, void *m, const void *source, size_t bytes) {
  void *start = event(0), *end = event(0), *join = event(0);
  float ms;
  OK(b->event_record(start, s1));
  OK(b->stream_wait(s2, start));
  OK(to_device(s1, m, source, bytes, true));
  OK(to_device(s2, (char *)m + bytes, source, bytes, true));
  OK(b->event_record(join, s2));
  OK(b->stream_wait(s1, join));
  OK(b->event_record(end, s1));
  OK(b->event_synchronize(end));
  OK(b->event_elapsed(start, end, &ms));
  return ms;
}

PX_TEST(streams_overlap_in_virtual_time) {
  require_sim();
  setenv("PHLOX_SIM_MODE", "schedule", 1);
  begin("1");
  size_t bytes = 8 << 20;
  void *s1 = stream(0), *s2 = stream(0), *m = memory(0, 2 * bytes), *source = pinned(bytes);
  float apart = copies_time(s1, s2, m, source, bytes),
        serial = copies_time(s1, s1, m, source, bytes);
  CHECK(apart > 0.1 && serial > 1.8 * apart && serial < 2.2 * apart);
}

int main(int argc, char **argv) { return seeds_main(argc, argv, order_test); }
