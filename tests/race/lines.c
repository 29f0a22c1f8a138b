// SPDX-License-Identifier: Apache-2.0
// Source lines in reports of C programs: both lines of a race, and the launching line of a faulting
// kernel. Also for launches from the library's threads: replicas, and backward over two devices.
#include "devices.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static px_device home, other;

// Tests of races run all work on one thread: races are reported but do not happen.
static void with_devices(bool checks) {
  setenv("PHLOX_SIM_MODE", checks ? "schedule" : "threads", 1);
  simulate(2);
  px_race_enable(checks, false);
  home = px_cuda(0), other = px_cuda(1);
}

static px_tensor *ones(px_device device) {
  px_tensor *made;
  OK(px_ones(&made, (int64_t[]){4, 4}, 2, PX_FLOAT32, device, false, false));
  return made;
}

static void synchronize_and_clear(void) {
  OK(px_device_synchronize(0));
  OK(px_device_synchronize(1));
}

// ---- races: pairs of steps, the second unordered after the first

// The objects of the steps: x and y on `home`, z on the other device, `host` page-locked, w a
// weight with a gradient, `loss` of w and x, and an optimizer of w.
typedef struct scene {
  px_tensor *x, *y, *z, *host, *w, *loss;
  px_optimizer *optimizer;
} scene;

static void scene_begin(scene *s) {
  PX_SCOPED(px_tensor) product = NULL;
  s->x = ones(home), s->y = ones(home), s->z = ones(other), s->w = ones(home);
  OK(px_tensor_empty_pinned(&s->host, 2, (int64_t[]){4, 4}, PX_FLOAT32));
  OK(px_tensor_set_grad(s->w, s->y));
  OK(px_tensor_set_requires_grad(s->w, true));
  px_site_set("forward.c", 2);
  OK(px_mul(&product, s->w, s->x));
  OK(px_sum(&s->loss, product, NULL, 0, false, PX_DTYPE_NONE));
  px_site_set(NULL, 0);
  OK(px_optimizer_new(&s->optimizer, "SGD"));
  OK(px_optimizer_add(s->optimizer, &s->w, 1));
  synchronize_and_clear();
}

static void scene_end(scene *s) {
  px_tensor *tensors[] = {s->x, s->y, s->z, s->host, s->w, s->loss};
  for (int i = 0; i < COUNT(tensors); i++) px_release(tensors[i]);
  px_release(s->optimizer);
}

static px_status write_x(scene *s) { return px_fill_(s->x, px_float(2)); }
// Hidden from autograd.
static px_status write_hidden(scene *s) {
  PX_SCOPED(px_tensor) alias = NULL;
  PX_TRY(px_tensor_alias(&alias, s->x));
  return px_fill_(alias, px_float(2));
}
static px_status write_z(scene *s) { return px_fill_(s->z, px_float(2)); }
static px_status write_grad(scene *s) { return px_zero_(px_tensor_grad(s->w)); }
static px_status write_host(scene *s) { return px_fill_(s->host, px_float(2)); }
static px_status copy_x(scene *s) { return px_copy_(s->y, s->x, false); }
static px_status down(scene *s) { return px_copy_(s->host, s->x, true); }
static px_status up(scene *s) { return px_copy_(s->x, s->host, true); }
static px_status step(scene *s) { return px_optimizer_step(s->optimizer); }
static px_status backward(scene *s) { return px_backward(1, &s->loss, NULL, true, false); }
static px_status sum_of(px_tensor *t) {
  PX_SCOPED(px_tensor) sum = NULL;
  return px_sum(&sum, t, NULL, 0, false, PX_DTYPE_NONE);
}
static px_status sum_x(scene *s) { return sum_of(s->x); }
static px_status sum_w(scene *s) { return sum_of(s->w); }
static px_status sum_host(scene *s) { return sum_of(s->host); }
static px_status broadcast(scene *s) {
  px_tensor *copies[2];
  px_status status = px_broadcast(copies, s->x, (px_device[]){home, other}, 2);
  for (int i = 0; i < 2; i++) px_release(copies[i]);
  return status;
}
static px_status scatter(scene *s) {
  px_tensor *parts[2];
  int count;
  px_status status = px_scatter_parts(parts, &count, s->x, (px_device[]){home, other}, 2, 0);
  for (int i = 0; i < 2; i++) px_release(parts[i]);
  return status;
}
static px_status gather(scene *s) {
  PX_SCOPED(px_tensor) joined = NULL;
  return px_gather_parts(&joined, (px_tensor *[]){s->y, s->z}, 2, home, 0);
}
static px_status reduce(scene *s) {
  PX_SCOPED(px_tensor) sum = NULL;
  return px_reduce_add(&sum, (px_tensor *[]){s->y, s->z}, 2, home);
}

typedef px_status (*act)(scene *);
static const struct {
  const char *name;
  act first, second;
  bool is_late;       // the second step is on a side stream, otherwise the first
  const char *words;  // expected words of the report about the first
  bool graph;         // the report names the forward call
} rows[] = {
    {"a sum of what is written", write_x, sum_x, true, "fill wrote", false},
    {"a write of what is summed", sum_x, write_x, true, "sum read", false},
    {"two writes", write_x, write_x, true, "fill wrote", false},
    {"a copy of what is written", write_x, copy_x, true, "fill wrote", false},
    {"a write of what is copied", copy_x, write_x, true, "copy read", false},
    {"a host's sum of a download", down, sum_host, false, "copy, possibly unfinished", false},
    {"a host's write of a download", down, write_host, false, "copy, possibly unfinished", false},
    {"a host's write of an upload", up, write_host, false, "copy, possibly unfinished", false},
    {"a sum of what a step writes", step, sum_w, true, "sgd_step wrote", false},
    {"a step on what is summed", sum_w, step, true, "sum read", false},
    {"two steps", step, step, true, "sgd_step wrote", false},
    {"a step behind a backward", backward, step, true, "wrote", true},
    {"a write of what backward wrote", backward, write_grad, true, "wrote", true},
    {"a backward of what is written", write_hidden, backward, false, "fill wrote", true},
    {"a gradient added to another", write_grad, backward, false, "zero wrote", true},
    {"a broadcast", write_x, broadcast, false, "fill wrote", false},
    {"a scatter", write_x, scatter, false, "fill wrote", false},
    {"a gather", write_z, gather, false, "fill wrote", false},
    {"a sum across devices", write_z, reduce, false, "fill wrote", false}};

static void run_step(act a, scene *s, bool on_side) {
  for (int i = 0; i < 2 && on_side; i++) {
    PX_SCOPED(px_stream) side = NULL;
    OK(px_stream_new(&side, px_cuda(i), 0));
    OK(px_stream_set_current(side));
  }
  OK(a(s));
  for (int i = 0; i < 2 && on_side; i++) {
    px_stream *usual;
    OK(px_stream_default(&usual, px_cuda(i)));
    OK(px_stream_set_current(usual));
  }
}

static void check_report(const char *report, const char *words, bool expected) {
  bool found = report && strstr(report, words);
  if (expected && !found) fprintf(stderr, "no %s in %s\n", words, report ? report : "nothing");
  CHECK(!expected || found);
}

PX_TEST(both_lines_of_a_race_are_named) {
  with_devices(true);
  for (int i = 0; i < COUNT(rows); i++) {
    scene s;
    bool late = rows[i].is_late, host = rows[i].first == down || rows[i].first == up;
    scene_begin(&s);
    px_race_clear();
    px_site_set("first.c", 3);
    run_step(rows[i].first, &s, !late && !host);
    px_site_set("second.c", 5);
    run_step(rows[i].second, &s, late);
    px_site_set(NULL, 0);
    const char *report = px_race_report(0);
    fprintf(stderr, "%s\n", rows[i].name);
    check_report(report, " at first.c:3", true);
    check_report(report, " at second.c:5", true);
    check_report(report, rows[i].words, true);
    check_report(report, " of forward.c:2", rows[i].graph);
    synchronize_and_clear();
    scene_end(&s);
  }
}

PX_TEST(a_host_read_does_not_race_with_a_copys_read) {
  with_devices(true);
  scene s;
  px_scalar first;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  scene_begin(&s);
  px_race_clear();
  OK(px_select(&row, s.host, 0, 0));
  OK(px_select(&number, row, 0, 0));
  OK(up(&s));
  OK(px_tensor_item(&first, number));
  OK(sum_host(&s));
  CHECK_EQ(px_race_count(), 0);
  synchronize_and_clear();
  scene_end(&s);
}

// All writes are in place, so each is also a read.
PX_TEST(many_partial_writes_are_all_tracked) {
  enum { PIECES = 1000 };
  with_devices(true);
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_stream) side = NULL;
  px_tensor *pieces[PIECES];
  OK(px_ones(&whole, (int64_t[]){PIECES}, 1, PX_FLOAT32, home, false, false));
  synchronize_and_clear();
  for (int i = 0; i < PIECES; i++) {
    OK(px_narrow(&pieces[i], whole, 0, i, 1));
    OK(px_add_(pieces[i], pieces[i], px_int(1)));
  }
  px_race_clear();
  OK(px_stream_new(&side, home, 0));
  for (int i = 0; i < PIECES; i++) {
    px_stream *usual;
    OK(px_stream_default(&usual, home));
    OK(px_stream_set_current(side));
    OK(sum_of(pieces[i]));
    OK(px_stream_set_current(usual));
    if (!px_race_count()) fprintf(stderr, "piece %d is forgotten\n", i);
    CHECK_EQ(px_race_count(), 1);
    CHECK(strstr(px_race_report(0), "add wrote"));
    px_race_clear();
  }
  synchronize_and_clear();
  for (int i = 0; i < PIECES; i++) px_release(pieces[i]);
}

// ---- kernel faults

// Fails each kernel of `run` in turn and checks the error text after "launched". Returns the number
// of kernels.
static int fail_each_kernel(px_status (*run)(void *), void *context, const char *launch_text) {
  for (int n = 1;; n++) {
    OK(px_fault_arm("kernel", n, false));
    px_status status = run(context);
    bool hit = px_fault_seen("kernel") >= n;
    px_fault_disarm_all();
    px_site_set(NULL, 0);
    for (int i = 0; i < 2 && status == PX_OK; i++) status = px_device_synchronize(i);
    CHECK_EQ(status, hit ? PX_ACCELERATOR : PX_OK);
    if (!hit) return n - 1;
    check_report(px_error_last()->message, "a kernel failed (injected)\nIt was reported by ", true);
    check_report(px_error_last()->message, launch_text, true);
    synchronize_and_clear();
  }
}

typedef struct pass {
  px_module *net;
  px_tensor *x, *y;
} pass;

static px_status forward_of(void *context) {
  pass *p = context;
  px_release(p->y), p->y = NULL;
  px_site_set("pass.c", 11);
  return px_data_parallel(&p->y, p->net, p->x, (px_device[]){home, other}, 2, PX_DEVICE_NONE, 0);
}

static px_status backward_of(void *context) {
  pass *p = context;
  px_site_set("back.c", 12);
  return px_backward(1, &p->y, &p->x, true, false);
}

static void pass_begin(pass *p) {
  *p = (pass){.x = ones(home)};
  OK(px_linear_new(&p->net, 4, 4));
  OK(px_module_to(p->net, PX_DTYPE_NONE, home, false));
}
static void pass_end(pass *p) { px_release(p->net), px_release(p->x), px_release(p->y); }

PX_TEST(a_fault_in_a_replica_names_the_line_of_the_forward_call) {
  with_devices(false);
  pass p;
  pass_begin(&p);
  CHECK(fail_each_kernel(forward_of, &p, ", launched at pass.c:11") >= 2);
  pass_end(&p);
}

PX_TEST(a_fault_in_replica_backward_names_node_and_both_lines) {
  with_devices(false);
  pass p;
  pass_begin(&p);
  OK(forward_of(&p));
  px_site_set(NULL, 0);
  synchronize_and_clear();
  CHECK(fail_each_kernel(backward_of, &p, ", launched at back.c:12 in ") >= 4);
  CHECK(fail_each_kernel(backward_of, &p, " of pass.c:11") >= 4);
  pass_end(&p);
}

static px_status double_back(px_tensor **inputs, int input_count, px_tensor *const *outputs,
                             int output_count, void *context) {
  return px_add(&inputs[0], outputs[0], outputs[0], px_int(1));
}

// The function's name is user memory that may be freed before the fault is found.
PX_TEST(a_fault_in_a_custom_function_names_it) {
  with_devices(false);
  PX_SCOPED(px_tensor) x = ones(home);
  px_tensor *y = NULL;
  char name[] = "DoubleBackward";
  px_function function = {.name = name, .backward = double_back};
  OK(px_tensor_set_requires_grad(x, true));
  px_grad_set_enabled(false);
  OK(px_add(&y, x, x, px_int(1)));
  px_grad_set_enabled(true);
  px_site_set("forward.c", 2);
  OK(px_function_record(&function, NULL, 1, &x, 1, &y));
  memset(name, 'x', sizeof name - 1);
  PX_SCOPED(px_tensor) seed = ones(home);
  synchronize_and_clear();
  OK(px_fault_arm("kernel", 1, false));
  px_site_set("back.c", 12);
  OK(px_backward(1, &y, &seed, false, false));
  px_release(y);
  px_fault_disarm_all();
  px_site_set(NULL, 0);
  FAILS(px_device_synchronize(0), PX_ACCELERATOR,
        "launched at back.c:12 in DoubleBackward of forward.c:2");
}

PX_TEST(a_borrowed_site_is_restored) {
  px_site own;
  px_site before = px_site_lend((px_site){.file = "lent.c", .line = 4});
  CHECK(!before.file);
  px_site_get(&own.file, &own.line);
  CHECK_TEXT(own.file, "lent.c");
  px_site_set("own.c", 9);
  px_site_get(&own.file, &own.line);
  CHECK_TEXT(own.file, "own.c");
  px_site_set(NULL, 0);
  before = px_site_lend(before);
  CHECK_EQ(before.line, 4);
  px_site_get(&own.file, &own.line);
  CHECK(!own.file);
}

PX_TEST(the_running_node_is_set_and_restored) {
  with_devices(false);
  px_backward_site node = {"MyBackward", {.file = "forward.c", .line = 2}};
  px_backward_site before = px_site_set_backward(node);
  CHECK(!before.node);
  PX_SCOPED(px_tensor) x = ones(home);
  OK(px_fault_arm("kernel", 1, false));
  OK(px_zero_(x));
  px_fault_disarm_all();
  before = px_site_set_backward(before);
  CHECK_TEXT(before.node, "MyBackward");
  FAILS(px_device_synchronize(0), PX_ACCELERATOR, ", launched in MyBackward of forward.c:2");
}

PX_TEST(a_tensor_records_the_line_of_its_launch) {
  with_devices(false);
  px_site_set("first.c", 3);
  PX_SCOPED(px_tensor) x = ones(home);
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_add(&y, x, x, px_int(1)));
  px_site_set("second.c", 5);
  CHECK_EQ(px_tensor_site(y).line, 3);
  CHECK_EQ(px_tensor_site(x).line, 5);
}
