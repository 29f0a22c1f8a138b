// SPDX-License-Identifier: Apache-2.0
// Fault injection in training and in its files.
#include "faults.h"

// ---- the job: two training steps from a fixed seed

static px_status net_new(px_module **out) {
  PX_SCOPED(px_module) conv = NULL;
  PX_SCOPED(px_module) relu = NULL;
  PX_SCOPED(px_module) pool = NULL;
  PX_SCOPED(px_module) flat = NULL;
  PX_SCOPED(px_module) linear = NULL;
  PX_TRY(px_conv2d_new(&conv, 1, 2, 3, .padding = 1));
  PX_TRY(px_relu_new(&relu));
  PX_TRY(px_max_pool2d_new(&pool, 2));
  PX_TRY(px_flatten_new(&flat));
  PX_TRY(px_linear_new(&linear, 18, 4));
  return px_sequential_new(out, (px_module *[]){conv, relu, pool, flat, linear}, 5);
}

static px_status optimizer_new(px_optimizer **out, const char *name, px_module *net) {
  PX_SCOPED(px_list) parameters = NULL;
  PX_SCOPED(px_optimizer) made = NULL;
  PX_TRY(px_module_parameters(&parameters, net));
  PX_TRY(px_optimizer_new(&made, name));
  PX_TRY(px_optimizer_add(made, px_list_items(parameters), px_list_size(parameters)));
  PX_TRY(px_optimizer_set(made, -1, "lr", 0.125));
  if (!strcmp(name, "SGD")) PX_TRY(px_optimizer_set(made, -1, "momentum", 0.5));
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status forward(px_tensor **out, const job *j, px_module *net, px_tensor *x) {
  px_device devices[8];
  if (!j->replicas) return px_module_call(out, net, x);
  for (int i = 0; i < j->replicas; i++) devices[i] = px_cuda(i);
  return px_data_parallel(out, net, x, devices, j->replicas, PX_DEVICE_NONE, 0);
}

static px_status step(job *j, px_module *net, px_optimizer *optimizer, px_tensor *x,
                      px_tensor *target) {
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  px_scalar number;
  PX_TRY(px_optimizer_zero_grad(optimizer, true));
  PX_TRY(forward(&y, j, net, x));
  PX_TRY(px_cross_entropy(&loss, y, target, NULL, -100, "mean", 0));
  PX_TRY(px_backward(1, &loss, NULL, false, false));
  PX_TRY(px_optimizer_step(optimizer));
  PX_TRY(px_tensor_item(&number, loss));
  j->loss = (float)px_scalar_float(number);
  return PX_OK;
}

static px_status train(void *context) {
  job *j = context;
  PX_SCOPED(px_module) net = NULL;
  PX_SCOPED(px_optimizer) optimizer = NULL;
  PX_SCOPED(px_tensor) drawn = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  px_manual_seed(0);
  PX_TRY(net_new(&net));
  PX_TRY(px_module_to(net, PX_DTYPE_NONE, j->device, false));
  PX_TRY(optimizer_new(&optimizer, j->optimizer, net));
  PX_TRY(px_randn(&drawn, (int64_t[]){4, 1, 6, 6}, 4, NULL, PX_DTYPE_NONE, px_cpu(), false, false));
  PX_TRY(px_to(&x, drawn, PX_DTYPE_NONE, j->device, false, false));
  PX_TRY(px_tensor_from_data(&target, (int64_t[]){0, 1, 2, 3}, 1, (int64_t[]){4}, PX_INT64,
                             j->device));
  for (int i = 0; i < 2; i++) PX_TRY(step(j, net, optimizer, x, target));
  return PX_OK;
}

// ---- a failure at each passage

PX_TEST(sgd_on_the_cpu_survives_failing_allocations) {
  CHECK(fail_each("alloc", train, &(job){px_cpu(), "SGD", 0, 0}) > 50);
}

PX_TEST(adam_on_the_cpu_survives_failing_allocations) {
  CHECK(fail_each("alloc", train, &(job){px_cpu(), "Adam", 0, 0}) > 50);
}

PX_TEST(the_cpu_survives_failing_threads) {
  fail_each("thread", train, &(job){px_cpu(), "SGD", 0, 0});
}

PX_TEST(sgd_on_a_device_survives_failing_allocations) {
  simulate(1);
  CHECK(fail_each("alloc", train, &(job){px_cuda(0), "SGD", 0, 0}) > 50);
}

PX_TEST(adam_on_a_device_survives_failing_allocations) {
  simulate(1);
  CHECK(fail_each("alloc", train, &(job){px_cuda(0), "Adam", 0, 0}) > 50);
}

PX_TEST(training_survives_failing_device_memory) {
  simulate(1);
  CHECK(fail_each("device.alloc", train, &(job){px_cuda(0), "SGD", 0, 0}) > 0);
  CHECK(fail_each("device.alloc", train, &(job){px_cuda(0), "Adam", 0, 0}) > 0);
}

PX_TEST(training_survives_failing_launches) {
  simulate(1);
  CHECK(fail_each("launch", train, &(job){px_cuda(0), "SGD", 0, 0}) > 10);
  CHECK(fail_each("launch", train, &(job){px_cuda(0), "Adam", 0, 0}) > 10);
}

PX_TEST(training_survives_failing_copies) {
  simulate(1);
  CHECK(fail_each("copy", train, &(job){px_cuda(0), "SGD", 0, 0}) > 4);
}

PX_TEST(training_survives_failing_streams_events_and_threads) {
  simulate(1);
  fail_each("stream", train, &(job){px_cuda(0), "SGD", 0, 0});
  fail_each("event", train, &(job){px_cuda(0), "SGD", 0, 0});
  fail_each("thread", train, &(job){px_cuda(0), "SGD", 0, 0});
}

PX_TEST(a_step_can_be_interrupted_at_each_poll) {
  simulate(2);
  px_interrupt_set_check(never_interrupt);
  CHECK(fail_each("interrupt", train, &(job){px_cpu(), "SGD", 0, 0}) > 2);
  CHECK(fail_each("interrupt", train, &(job){px_cuda(0), "Adam", 0, 0}) > 2);
  CHECK(fail_each("interrupt", train, &(job){px_cuda(0), "SGD", 2, 0}) > 2);
}

PX_TEST(data_parallel_survives_failing_allocations) {
  simulate(2);
  CHECK(fail_each("alloc", train, &(job){px_cuda(0), "SGD", 2, 0}) > 50);
}

PX_TEST(data_parallel_survives_failing_launches_and_copies) {
  simulate(2);
  CHECK(fail_each("launch", train, &(job){px_cuda(0), "SGD", 2, 0}) > 10);
  CHECK(fail_each("copy", train, &(job){px_cuda(0), "SGD", 2, 0}) > 10);
}

PX_TEST(data_parallel_survives_failing_threads_events_and_memory) {
  simulate(2);
  job j = {px_cuda(0), "SGD", 2, 0};
  CHECK(fail_each("thread", train, &j) > 0);
  fail_each("stream", train, &j);
  fail_each("event", train, &j);
  CHECK(fail_each("device.alloc", train, &j) > 0);
}

// ---- the first run of a process, including all initialisation: one process per passage

static bool run_in_fresh_process(const char *point, int64_t n, job *j) {
  pid_t child = fork();
  if (child == 0) {
    OK(px_fault_arm(point, n, false));
    px_status status = train(j);
    bool reached = px_fault_seen(point) >= n;
    px_fault_disarm_all();
    if (status != PX_OK) CHECK(px_error_last()->message[0]);
    px_error_clear();
    OK(train(j));  // the process still works
    synchronize_devices();
    tally("faults", reached);
    exit(reached ? 0 : 3);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3)) {
    fprintf(stderr, "%s %lld: %d\n", point, (long long)n, status);
    exit(1);
  }
  return WEXITSTATUS(status) == 0;
}

PX_TEST(initialisation_survives_any_device_fault) {
  simulate(2);
  static const char *const points[] = {"stream", "event", "thread", "device.alloc", "copy"};
  job j = {px_cuda(0), "SGD", 2, 0};
  for (int p = 0; p < 5; p++)
    for (int64_t n = 1; run_in_fresh_process(points[p], n, &j); n += 1 + n / 8) CHECK(n < 2000);
}

PX_TEST(initialisation_survives_failing_allocations) {
  simulate(1);
  job j = {px_cuda(0), "SGD", 0, 0};
  for (int64_t n = 1; run_in_fresh_process("alloc", n, &j); n += 1 + n / 16) CHECK(n < 20000);
}

// ---- files

static char folder[64];

static const char *file_path(void) {
  static char path[128];
  if (!folder[0]) {
    strcpy(folder, "/tmp/phlox-fault-XXXXXX");
    CHECK(mkdtemp(folder));
  }
  snprintf(path, sizeof path, "%s/state", folder);
  return path;
}

static px_status dict_of(px_dict **out, float value) {
  PX_SCOPED(px_dict) made = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  PX_TRY(px_dict_new(&made));
  PX_TRY(px_full(&t, (int64_t[]){3}, 1, px_float(value), PX_FLOAT32, px_cpu(), false, false));
  PX_TRY(px_dict_set(made, "w", t));
  PX_TRY(px_dict_set(made, "v", t));
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status save(float value) {
  PX_SCOPED(px_dict) state = NULL;
  PX_TRY(dict_of(&state, value));
  return px_save(file_path(), state, (const char *const[]){"key", "value", NULL});
}

static px_status load(void *context) {
  job *j = context;
  px_scalar number;
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_load(&state, file_path(), PX_DEVICE_NONE));
  PX_CHECK(px_dict_get(state, "w") && px_dict_get(state, "v"), PX_BUG, "a name is lost");
  PX_TRY(px_sum(&sum, px_dict_get(state, "w"), NULL, 0, false, PX_DTYPE_NONE));
  PX_TRY(px_tensor_item(&number, sum));
  j->loss = (float)px_scalar_float(number);
  return PX_OK;
}

// Saves over a file of 1s with the fault armed. Returns true if the fault point was reached.
static bool save_attempt(const char *point, int64_t n, bool repeated) {
  job j = {0};
  OK(save(1));
  int64_t objects = px_live_objects(NULL);
  OK(px_fault_arm(point, n, repeated));
  px_status status = save(2);
  bool reached = px_fault_seen(point) >= n;
  px_fault_disarm_all();
  if (status != PX_OK) CHECK(reached && px_error_last()->message[0]);
  px_error_clear();
  CHECK_EQ(px_live_objects(NULL), objects);
  OK(load(&j));
  CHECK_EQ(j.loss, status == PX_OK ? 6 : 3);  // the complete new file or the old one
  CHECK(unlink(file_path()) == 0);
  CHECK(rmdir(folder) == 0);  // the folder is otherwise empty
  folder[0] = 0;
  return reached;
}

static void fail_saves(const char *point) {
  for (int repeated = 0; repeated < 2; repeated++) {
    int64_t n = 1;
    while (save_attempt(point, n, repeated)) n++;
    CHECK(n > 3);
    tally("faults", n - 1);
  }
}

PX_TEST(a_failed_save_keeps_the_old_file) { fail_saves("file"); }

PX_TEST(a_save_without_memory_keeps_the_old_file) { fail_saves("alloc"); }

PX_TEST(loads_survive_any_fault) {
  job j = {0};
  OK(save(1));
  CHECK(fail_each("file", load, &j) > 3);
  CHECK(fail_each("alloc", load, &j) > 3);
  CHECK_EQ(j.loss, 3);
}

static px_status tree_through_memory(void *context) {
  job *j = context;
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_dict) back = NULL;
  PX_SCOPED(px_tree) tree = NULL;
  PX_SCOPED(px_tree) read = NULL;
  void *bytes = NULL;
  size_t length;
  PX_TRY(dict_of(&state, 5));
  PX_TRY(px_tree_from_dict(&tree, state));
  PX_TRY(px_tree_encode(&bytes, &length, tree));
  px_status status = px_tree_decode(&read, bytes, length, PX_DEVICE_NONE, "bytes");
  px_free(bytes);
  PX_TRY(status);
  PX_TRY(px_tree_to_dict(&back, read));
  j->loss = (float)px_dict_size(back);
  return PX_OK;
}

PX_TEST(trees_survive_failing_allocations) {
  job j = {0};
  CHECK(fail_each("alloc", tree_through_memory, &j) > 10);
  CHECK_EQ(j.loss, 2);
}
