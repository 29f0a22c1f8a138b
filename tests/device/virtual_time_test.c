// SPDX-License-Identifier: Apache-2.0
// Virtual time of simulated devices: determined by the work and the machine file, and reproducible;
// profiles of it.
#include <sys/stat.h>
#include <unistd.h>

#include "phlox/graph.h"
#include "phlox/phlox.h"
#include "phlox/profile.h"
#include "test.h"

static char folder[] = "/tmp/phlox-time-XXXXXX";

static const char *in_folder(const char *name) {
  static char path[96];
  static bool made;
  if (!made) CHECK(mkdtemp(folder));
  made = true;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

// A machine with round figures: a kernel takes 1000 ns, plus 1 ns for each 1000 operations or 100
// bytes. A copy takes 500 ns, plus 1 ns for each 10 bytes.
static void simulate(const char *mode, const char *figures) {
  const char *path = in_folder("machine");
  FILE *file = fopen(path, "w");
  CHECK(file);
  fputs(figures, file);
  fclose(file);
  setenv("PHLOX_BACKENDS", "sim", 1), setenv("PHLOX_SIM_DEVICES", "2", 1);
  setenv("PHLOX_SIM_MODE", mode, 1), setenv("PHLOX_SIM_MACHINE", path, 1);
}
static const char round_figures[] =
    "# a machine for tests\n"
    "issue_ns = 100\nkernel_ns = 1000  # the smallest\ncopy_ns = 500\nwait_ns = 0\npeer_wait_ns = "
    "0\n"
    "memory = 100G\nto_device = 10G\nto_host = 10G\npeer = 10G\ndetour = 1G\n"
    "float32 = 1T\nfloat64 = 0.5T\n";

static px_tensor *zeros(int n, px_dtype dtype) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, 2, (int64_t[]){n, n}, dtype, px_cuda(0)));
  OK(px_zero_(t));
  return t;
}

static int64_t device_time(void) {
  int64_t time = -1;
  OK(px_time_device(&time, px_cuda(0)));
  return time;
}

// Returns the time of a product of n x n matrices.
static int64_t product_time(int n, px_dtype dtype) {
  PX_SCOPED(px_tensor) x = zeros(n, dtype);
  PX_SCOPED(px_tensor) y = NULL;
  int64_t before = device_time();
  OK(px_mm(&y, x, x));
  return device_time() - before;
}

PX_TEST(a_product_takes_time_by_operations) {
  simulate("schedule", round_figures);
  CHECK_EQ(product_time(100, PX_FLOAT32), 1000 + 2000);
  CHECK_EQ(product_time(100, PX_FLOAT64), 1000 + 4000);
}

PX_TEST(an_elementwise_op_takes_time_by_bytes) {
  simulate("schedule", round_figures);
  PX_SCOPED(px_tensor) x = zeros(100, PX_FLOAT32);
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  int64_t before = device_time();
  OK(px_neg(&y, x));
  CHECK_EQ(device_time() - before, 1000 + 2 * 40000 / 100);
  OK(px_select(&row, x, 0, 0));
  OK(px_expand(&wide, row, (int64_t[]){100, 100}, 2));
  before = device_time();
  OK(px_neg(&z, wide));  // repeated reads of an element count once
  CHECK_EQ(device_time() - before, 1000 + (40000 + 400) / 100);
}

// Returns the device time of a convolution in the given layout, and the host time.
static int64_t convolution_time(const char *layout, int64_t *host) {
  const int64_t one[] = {1, 1}, none[] = {0, 0};
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) w = NULL;
  PX_SCOPED(px_tensor) filter = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_tensor_empty(&plain, 4, (int64_t[]){10, 10, 10, 10}, PX_BFLOAT16, px_cuda(0)));
  OK(px_tensor_empty(&w, 4, (int64_t[]){10, 10, 1, 1}, PX_BFLOAT16, px_cuda(0)));
  OK(px_zero_(plain));
  OK(px_zero_(w));
  OK(px_clone(&x, plain, layout));
  OK(px_clone(&filter, w, layout));
  int64_t before = device_time(), began, ended;
  OK(px_time_host(&began));
  OK(px_conv2d(&y, x, filter, NULL, one, 2, none, 2, one, 2, 1));
  OK(px_time_host(&ended));
  *host = ended - began;
  return device_time() - before;
}

PX_TEST(a_convolution_pays_for_its_plan_and_layout_conversion) {
  int64_t host;
  simulate("schedule",
           "issue_ns = 100\nplan_ns = 70\nkernel_ns = 1000\nmemory = 100G\n"
           "bfloat16 = 0.5T\nconvolution = 0.5\n");
  CHECK_EQ(convolution_time("channels_last", &host), 1000 + 2 * 10 * 10000 / 250);
  CHECK_EQ(host, 170);
  // Converting the layout reads and writes input and output, 20,000 bytes each, once more.
  CHECK_EQ(convolution_time("contiguous_format", &host), 1000 + 800 + 4 * 20000 / 100);
  CHECK_EQ(host, 170);
}

PX_TEST(a_replay_has_one_issue_cost) {
  simulate("schedule", round_figures);
  PX_SCOPED(px_graph) graph = NULL;
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_tensor) x = zeros(10, PX_FLOAT32);
  int64_t began, ended;
  OK(px_device_synchronize(0));
  OK(px_stream_new(&side, px_cuda(0), 0));
  OK(px_stream_set_current(side));
  OK(px_graph_new(&graph));
  OK(px_graph_begin(graph, (px_graph_pool){0}, PX_CAPTURE_GLOBAL));
  for (int i = 0; i < 5; i++) OK(px_neg_(x));
  OK(px_graph_end(graph));
  OK(px_device_synchronize(0));
  OK(px_time_host(&began));
  OK(px_graph_replay(graph));
  OK(px_time_host(&ended));
  CHECK_EQ(ended - began, 100);
}

PX_TEST(events_and_streams_report_virtual_time) {
  simulate("schedule", round_figures);
  PX_SCOPED(px_tensor) x = zeros(100, PX_FLOAT32);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_event) begin = NULL;
  PX_SCOPED(px_event) end = NULL;
  px_stream *stream;
  int64_t host, done;
  float ms;
  OK(px_stream_current(&stream, px_cuda(0)));
  OK(px_event_new(&begin, PX_EVENT_TIMING));
  OK(px_event_new(&end, PX_EVENT_TIMING));
  OK(px_device_synchronize(0));
  OK(px_event_record(begin, stream));
  OK(px_mm(&y, x, x));
  OK(px_event_record(end, stream));
  OK(px_time_host(&host));
  OK(px_time_stream(&done, stream));
  CHECK_EQ(done - host, 2900);  // the host took 100 for the launch
  OK(px_time_host(&host));
  CHECK_EQ(host, done);  // the host has waited
  OK(px_event_elapsed(&ms, begin, end));
  CHECK(ms > 0.00299 && ms < 0.00301);
}

// Returns the time from the end of a product on device 0 to the end of a waiting kernel on
// `device`.
static int64_t time_after_wait(int device) {
  PX_SCOPED(px_tensor) x = zeros(100, PX_FLOAT32);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) z = NULL;
  PX_SCOPED(px_stream) waiting_stream = NULL;
  px_stream *home, *before;
  int64_t size = 1, done, end;
  OK(px_tensor_empty(&z, 1, &size, PX_FLOAT32, px_cuda(device)));
  OK(px_zero_(z));
  OK(px_stream_current(&home, px_cuda(0)));
  OK(px_stream_current(&before, px_cuda(device)));
  OK(px_stream_new(&waiting_stream, px_cuda(device), 0));
  OK(px_device_synchronize(device));
  OK(px_mm(&y, x, x));
  OK(px_stream_wait_stream(waiting_stream, home));
  OK(px_stream_set_current(waiting_stream));
  OK(px_neg_(z));
  OK(px_stream_set_current(before));
  OK(px_time_stream(&end, waiting_stream));
  OK(px_time_stream(&done, home));
  return end - done;
}

PX_TEST(a_wait_has_a_latency) {
  simulate("schedule",
           "issue_ns = 10\nkernel_ns = 1000\nfloat32 = 1T\nmemory = 100T\nwait_ns = 30\n"
           "peer_wait_ns = 700\n");
  CHECK_EQ(time_after_wait(0), 30 + 1000);
  CHECK_EQ(time_after_wait(1), 700 + 1000);
}

// Copies from page-locked memory during products on another stream. Returns the end time.
static int64_t copy_during_products(bool profiled, px_profile **profile) {
  PX_SCOPED(px_tensor) source = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) x = zeros(200, PX_FLOAT32);
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_stream) waiting_stream = NULL;
  px_stream *home;
  int64_t size = 20000, part;
  OK(px_tensor_empty(&source, 1, &size, PX_FLOAT32, px_cpu()));
  OK(px_zero_(source));
  PX_SCOPED(px_tensor) pinned = NULL;
  OK(px_pin_memory(&pinned, source));
  OK(px_tensor_empty(&target, 1, &size, PX_FLOAT32, px_cuda(0)));
  OK(px_stream_current(&home, px_cuda(0)));
  OK(px_stream_new(&waiting_stream, px_cuda(0), 0));
  OK(px_device_synchronize(0));
  px_profile_options all = {.host = true, .devices = true, .memory = true, .flops = true};
  if (profiled) OK(px_profile_start(&all));
  part = px_profile_enter(PX_PROFILE_RANGE, "ProfilerStep#0");
  OK(px_stream_set_current(waiting_stream));
  OK(px_copy_(target, pinned, true));
  OK(px_stream_set_current(home));
  OK(px_mm(&y, x, x));
  px_profile_leave(part);
  int64_t end = device_time();
  if (profiled) OK(px_profile_stop(profile));
  return end;
}

PX_TEST(a_profile_is_free_and_adds_up) {
  simulate("schedule", round_figures);
  px_profile *profile = NULL;
  int64_t start = device_time(), plain = copy_during_products(false, NULL) - start;
  start = device_time();
  CHECK_EQ(copy_during_products(true, &profile) - start, plain);
  px_profile_summary s;
  OK(px_profile_summarize(&s, profile, px_cuda(0)));
  CHECK_EQ(s.copies, 500 + 8000);
  CHECK_EQ(s.kernels, 1000 + 16000);  // from 100 on
  CHECK_EQ(s.overlap, 8400);
  CHECK_EQ(s.busy, 17100);
  CHECK_EQ(s.count, 2);
  CHECK_EQ(s.end - s.start, 17100);
  CHECK_EQ(s.critical_kernels, 17000);
  CHECK_EQ(s.critical_copies, 0);
  px_profile_event e;
  int64_t flops = 0;
  for (int64_t i = 0; px_profile_event_at(profile, i, &e); i++) flops += e.flops;
  CHECK_EQ(flops, 16000000);
  OK(px_profile_summarize(&s, profile, px_cuda(1)));
  CHECK_EQ(s.count, 0);
  px_profile_free(profile);
}

static void read_file(const char *path, char *text, size_t capacity) {
  FILE *file = fopen(path, "r");
  CHECK(file);
  text[fread(text, 1, capacity - 1, file)] = 0;
  fclose(file);
}

PX_TEST(a_profile_is_tabulated_and_drawn) {
  simulate("schedule", round_figures);
  static char picture[1 << 16];
  px_profile *profile = NULL;
  char *table = NULL;
  copy_during_products(true, &profile);
  OK(px_profile_table(&table, profile));
  CHECK(strstr(table, "ProfilerStep#0"));
  CHECK(strstr(table, "0.017      0.017      0.017      0.009        0.000      0.008"));
  px_free(table);
  OK(px_profile_draw(profile, in_folder("picture.svg")));
  read_file(in_folder("picture.svg"), picture, sizeof picture);
  CHECK(strstr(picture, "<title>copy, 8.5 us</title>"));
  CHECK(strstr(picture, "stroke='#d62728'><title>mm, 17 us</title>"));
  CHECK(strstr(picture, "cuda:0 stream 0</text>") && strstr(picture, "device memory"));
  FAILS(px_profile_draw(profile, in_folder("no/picture.svg")), PX_IO, "No such file");
  px_profile_free(profile);
}

// Returns all events of a profile as a trace, owned by the caller.
static px_status trace(char **out, px_profile *profile) {
  px_profile_event events[64];
  int64_t count = 0;
  while (count < 64 && px_profile_event_at(profile, count, &events[count])) count++;
  return px_profile_trace(out, events, count, "\"run\": 7");
}
PX_TEST(a_profile_is_traced) {
  simulate("schedule", round_figures);
  px_profile *profile = NULL;
  char *text = NULL;
  copy_during_products(true, &profile);
  OK(trace(&text, profile));
  CHECK(!strncmp(text, "{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\", \"run\": 7, ", 54));
  CHECK(strstr(text, "\"pid\": 0, \"tid\": 0, \"cat\": \"kernel\", \"name\": \"mm\""));
  CHECK(strstr(text, "\"cat\": \"gpu_memcpy\", \"name\": \"copy\""));
  CHECK(strstr(text, "\"dur\": 17.000, ") && strstr(text, "\"name\": \"stream 0\""));
  px_free(text);
  px_profile_free(profile);
}

PX_TEST(a_trace_escapes_names_and_requires_parents_first) {
  px_profile_event e = {.kind = PX_PROFILE_RANGE, .name = "a\"b\\\n", .shapes = "", .parent = -1};
  char *text = NULL;
  e.device = px_cpu();
  OK(px_profile_trace(&text, &e, 1, NULL));
  CHECK(strstr(text, "\"name\": \"a\\u0022b\\u005c\\u000a\", \"ts\": 0.000"));
  px_free(text);
  OK(px_profile_trace(&text, NULL, 0, NULL));
  CHECK(strstr(text, "\"traceEvents\": [\n]}"));
  px_free(text);
  e.parent = 0;
  FAILS(px_profile_trace(&text, &e, 1, NULL), PX_VALUE, "event 0 of a trace");
  e.parent = -1, e.kind = PX_PROFILE_DEVICE, e.device.index = 64;
  FAILS(px_profile_trace(&text, &e, 1, NULL), PX_VALUE, "has an invalid device");
  FAILS(px_profile_trace(&text, NULL, 1, NULL), PX_TYPE, "`events` is NULL");
  FAILS(px_profile_trace(&text, NULL, -1, NULL), PX_VALUE,
        "expected a non-negative count of `events`, got -1");
}

static px_status draw(px_profile *profile) {
  return px_profile_draw(profile, in_folder("picture.svg"));
}
static px_status write_table(px_profile *profile) {
  char *table = NULL;
  px_status status = px_profile_table(&table, profile);
  px_free(table);
  return status;
}
static px_status write_trace(px_profile *profile) {
  char *text = NULL;
  px_status status = trace(&text, profile);
  px_free(text);
  return status;
}
static px_status summarize(px_profile *profile) {
  px_profile_summary s;
  return px_profile_summarize(&s, profile, px_cuda(0));
}

// Fails each passage of the point once, until a call succeeds.
static int fail_each(const char *point, px_status (*call)(px_profile *), px_profile *profile) {
  int n = 0;
  for (bool reached = true; reached;) {
    OK(px_fault_arm(point, ++n, false));
    px_status status = call(profile);
    reached = px_fault_seen(point) >= n;
    px_fault_disarm_all();
    CHECK((status != PX_OK) == reached);
  }
  return n - 1;
}
PX_TEST(profile_output_fails_without_memory_or_files) {
  simulate("schedule", round_figures);
  px_profile *profile = NULL;
  copy_during_products(true, &profile);
  CHECK(fail_each("alloc", summarize, profile) == 2);
  CHECK(fail_each("alloc", write_table, profile) >= 3);
  CHECK(fail_each("alloc", draw, profile) >= 5);
  CHECK(fail_each("alloc", write_trace, profile) >= 3);
  CHECK(fail_each("file", draw, profile) == 1);
  px_profile_free(profile);
}

PX_TEST(an_empty_profile_has_nothing_to_draw) {
  px_profile *profile = NULL;
  px_profile_options none = {.host = true};
  OK(px_profile_start(&none));
  OK(px_profile_stop(&profile));
  FAILS(px_profile_draw(profile, in_folder("picture.svg")), PX_RUNTIME, "the profile is empty");
  px_profile_free(profile);
}

PX_TEST(devices_in_mode_threads_have_real_time) {
  simulate("threads", "");
  int64_t time;
  FAILS(px_time_host(&time), PX_RUNTIME, "the time of these devices is real");
  FAILS(px_time_device(&time, px_cuda(0)), PX_RUNTIME, "the time of these devices is real");
}

static void refuse(const char *figures, const char *text) {
  simulate("schedule", figures);
  FAILS(px_device_synchronize(0), PX_VALUE, text);
}
PX_TEST(unknown_figures_are_refused) {
  refuse("memory = 1T\nspeed = 3\n", "machine:2: a machine has no figure 'speed'");
}
PX_TEST(non_numeric_figures_are_refused) {
  refuse("memory = fast\n", "machine:1: expected `name = number`");
}
PX_TEST(a_missing_machine_file_is_refused) {
  simulate("schedule", "");
  setenv("PHLOX_SIM_MACHINE", "/nowhere/machine", 1);
  FAILS(px_device_synchronize(0), PX_VALUE, "PHLOX_SIM_MACHINE must be a file of figures");
}

// Peers are close; other devices copy through the host.
static int64_t peer_copy_time(void) {
  PX_SCOPED(px_tensor) x = zeros(50, PX_FLOAT32);
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_device_synchronize(0));
  int64_t before = device_time(), after;
  OK(px_to(&y, x, PX_DTYPE_NONE, px_cuda(1), true, false));
  OK(px_device_synchronize(1));
  after = device_time();
  int64_t other;
  OK(px_time_device(&other, px_cuda(1)));
  return (other > after ? other : after) - before;
}
PX_TEST(peer_copies_take_time_by_link) {
  simulate("schedule", round_figures);
  CHECK_EQ(peer_copy_time(), 500 + 1000);
}
