// SPDX-License-Identifier: Apache-2.0
// Profiles: records of ops, backward passes, ranges, memory and devices.
#include <pthread.h>
#include <string.h>

#include "device_test.h"
#include "folder.h"
#include "phlox/phlox.h"

static int find(const px_profile *p, const char *name, int from, px_profile_event *out) {
  for (int i = from; px_profile_event_at(p, i, out); i++)
    if (!strcmp(out->name, name)) return i;
  return -1;
}

static px_profile *profile_of(px_profile_options options, void (*run)(void)) {
  px_profile *p = NULL;
  OK(px_profile_start(&options));
  CHECK(px_profile_running());
  run();
  OK(px_profile_stop(&p));
  CHECK(!px_profile_running());
  return p;
}

static void add_in_a_range(void) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  int64_t range = px_profile_enter(PX_PROFILE_RANGE, "forward");
  OK(px_ones(&a, (int64_t[]){2, 3}, 2, PX_FLOAT32, px_cpu(), false, false));
  OK(px_add(&b, a, a, px_int(1)));
  OK(px_add_(b, a, px_int(1)));
  px_profile_leave(range);
}

PX_TEST(ops_nest_in_their_callers_with_sizes_and_memory) {
  px_profile_options options = {.host = true, .shapes = true, .memory = true};
  px_profile *p = profile_of(options, add_in_a_range);
  px_profile_event range, add, in_place;
  int outer = find(p, "forward", 0, &range), i = find(p, "aten::add", 0, &add);
  CHECK_EQ(outer, 0);
  CHECK(i > outer && find(p, "aten::add_", i, &in_place) > i);
  CHECK(range.kind == PX_PROFILE_RANGE && range.parent == -1 && add.kind == PX_PROFILE_OP &&
        add.parent == outer);
  CHECK(range.start <= add.start && add.start <= add.end && add.end <= in_place.start &&
        in_place.end <= range.end);
  CHECK_EQ(add.cpu_bytes, 24);
  CHECK_EQ(in_place.cpu_bytes, 0);
  CHECK_TEXT(add.shapes, "[[2, 3], [2, 3], []]");
  px_profile_free(p);
}

static void enter_odd_names(void) {
  px_profile_leave(px_profile_enter(PX_PROFILE_RANGE, "<\x01\"\\\xff\xc3>"));
}

PX_TEST(names_that_are_not_utf8_are_escaped_in_traces_and_pictures) {
  static char read[1 << 16];
  char *trace = NULL;
  px_profile *p = profile_of((px_profile_options){.host = true}, enter_odd_names);
  px_profile_event e;
  CHECK(px_profile_event_at(p, 0, &e));
  OK(px_profile_trace(&trace, &e, 1, NULL));
  CHECK(strstr(trace, "\"name\": \"<\\u0001\\u0022\\u005c\\\\xff\\\\xc3>\""));
  px_free(trace);
  OK(px_profile_draw(p, path_of("profile.svg")));
  FILE *file = fopen(path_of("profile.svg"), "r");
  CHECK(file && fread(read, 1, sizeof read - 1, file) > 0);
  fclose(file);
  CHECK(strstr(read, "<title>&lt;\xe2\x90\x81&quot;\\\\xff\\xc3&gt;, "));
  px_profile_free(p);
}

static void run_backward(void) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  OK(px_ones(&a, (int64_t[]){2}, 1, PX_FLOAT32, px_cpu(), false, true));
  OK(px_exp(&b, a));
  OK(px_sum(&sum, b, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &sum, NULL, false, false));
}

PX_TEST(backward_nodes_contain_their_ops) {
  px_profile *p = profile_of((px_profile_options){.host = true}, run_backward);
  px_profile_event node, op;
  int at = find(p, "ExpBackward0", 0, &node);
  CHECK(at > 0 && node.kind == PX_PROFILE_NODE);
  int inner = find(p, "aten::mul", at, &op);
  CHECK(inner > at && op.parent == at);
  CHECK_TEXT(op.shapes, "");
  px_profile_free(p);
}

static void negate_at_a_line(void) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  px_site_set("model.c", 12);
  px_status status = px_ones(&a, (int64_t[]){2}, 1, PX_FLOAT32, px_cpu(), false, false);
  if (status == PX_OK) status = px_neg(&b, a);
  px_site_set(NULL, 0);
  OK(status);
}

PX_TEST(call_stacks_are_recorded_on_request) {
  px_profile_event op;
  px_profile *p = profile_of((px_profile_options){.host = true, .stacks = true}, negate_at_a_line);
  CHECK(find(p, "aten::neg", 0, &op) > 0);
  CHECK(!op.file && op.stack && op.stack->count == 1 && !op.stack->op);
  CHECK_TEXT(op.stack->frames[0].file, "model.c");
  CHECK_EQ(op.stack->frames[0].line, 12);
  px_profile_free(p);
  p = profile_of((px_profile_options){.host = true, .lines = true}, negate_at_a_line);
  CHECK(find(p, "aten::neg", 0, &op) > 0);
  CHECK(!op.stack && op.line == 12);
  px_profile_free(p);
}

PX_TEST(only_one_profile_runs_at_a_time) {
  px_profile_options options = {.host = true};
  px_profile *p = NULL;
  FAILS(px_profile_stop(&p), PX_RUNTIME, "not running");
  OK(px_profile_start(&options));
  FAILS(px_profile_start(&options), PX_RUNTIME, "already enabled");
  int64_t open = px_profile_enter(PX_PROFILE_RANGE, "open");
  OK(px_profile_stop(&p));
  px_profile_event e;
  CHECK(open && px_profile_event_at(p, 0, &e) && e.end >= e.start &&
        !px_profile_event_at(p, 1, &e) && !px_profile_event_at(p, -1, &e));
  px_profile_free(p);
  CHECK_EQ(px_profile_enter(PX_PROFILE_RANGE, "nothing"), 0);
  OK(px_profile_start(&options));
  px_profile_leave(open);  // of the previous profile
  OK(px_profile_stop(&p));
  CHECK(!px_profile_event_at(p, 0, &e));
  px_profile_free(p);
}

static void work_on_a_device(void) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) host = NULL;
  OK(px_ones(&a, (int64_t[]){64}, 1, PX_FLOAT32, px_cuda(0), false, false));
  OK(px_exp(&b, a));
  OK(px_to_cpu(&host, b));
}

PX_TEST(device_work_is_timed_within_the_host_range) {
  simulate_plainly(2);  // one of them unused
  int64_t before = px_live_objects(NULL);
  px_profile_options options = {.host = true, .devices = true, .memory = true};
  for (int round = 0; round < 2; round++) {  // in the second round the device is already in use
    px_profile *p = profile_of(options, work_on_a_device);
    px_profile_event work, op;
    int at = find(p, "exp", 0, &work), call = find(p, "aten::exp", 0, &op);
    CHECK(at > call && work.parent == call);
    CHECK(work.kind == PX_PROFILE_DEVICE && work.device.type == PX_CUDA);
    CHECK(work.start >= op.start && work.end >= work.start && op.device_bytes >= 256);
    CHECK(find(p, "copy", 0, &work) > at);
    px_profile_free(p);
  }
  CHECK_EQ(px_live_objects(NULL), before);
}

static void *add_once(void *unused) {
  add_in_a_range();
  return NULL;
}
static void add_on_two_threads(void) {
  pthread_t other;
  CHECK(pthread_create(&other, NULL, add_once, NULL) == 0);
  add_in_a_range();
  pthread_join(other, NULL);
}

PX_TEST(each_thread_has_its_own_ranges) {
  px_profile *p = profile_of((px_profile_options){.host = true}, add_on_two_threads);
  px_profile_event first, second, e, above;
  int one = find(p, "forward", 0, &first);
  CHECK(find(p, "forward", one + 1, &second) > one && first.thread != second.thread);
  CHECK(first.parent == -1 && second.parent == -1);
  for (int i = 0; px_profile_event_at(p, i, &e); i++)
    if (e.parent >= 0) CHECK(px_profile_event_at(p, e.parent, &above) && above.thread == e.thread);
  px_profile_free(p);
}

PX_TEST(a_profile_without_memory_fails_and_calls_succeed) {
  px_profile_options options = {.host = true, .shapes = true};
  bool failed = true;
  for (int n = 1; failed && n < 40; n++) {
    px_profile *p = NULL;
    OK(px_fault_arm("alloc", n, false));
    failed = px_profile_start(&options) != PX_OK;
    px_fault_disarm_all();
    if (!failed) OK(px_profile_stop(&p));
    px_profile_free(p);
  }
  CHECK(!failed);
  OK(px_profile_start(&options));
  OK(px_fault_arm("alloc", 1, false));
  CHECK(px_profile_enter(PX_PROFILE_RANGE, "lost") == 0 && px_error_last()->code == PX_OK);
  px_fault_disarm_all();
  px_profile *p = NULL;
  FAILS(px_profile_stop(&p), PX_OUT_OF_MEMORY, "could not be recorded");
  CHECK(!px_profile_running() && !p);
}

PX_TEST(invalid_profiles_are_not_freed) {
  px_profile_options options = {.host = true};
  char memory[4096];
  px_profile *p = NULL;
  memset(memory, 7, sizeof memory);
  px_profile_free((px_profile *)memory);
  for (int i = 0; i < (int)sizeof memory; i++) CHECK_EQ(memory[i], 7);
  OK(px_profile_start(&options));
  OK(px_profile_stop(&p));
  px_profile_free(p);
  px_profile_free(p);  // nor twice
}
