// SPDX-License-Identifier: Apache-2.0
// The NCCL engine and communicators with queued collectives: on a simulated device with a stub of
// NCCL (tests/nccl) that records its calls and moves no data.
#include <dlfcn.h>
#include <limits.h>
#include <semaphore.h>
#include <time.h>

#include "nccl/stub.h"
#include "phlox/comm.h"
#include "phlox/extend.h"
#include "phlox/graph.h"
#include "phlox/phlox.h"

#include "test.h"

// ---- a communicator over the stub: rank 0 of several, without the others

static nccl_stub_state *stub;
static char folder[] = "/tmp/phlox-nccl-XXXXXX";

// The engine has a name of its own here, since "nccl" is Gloo on simulated devices.
static void prepare(void) {
  char path[PATH_MAX], link[PATH_MAX];
  CHECK(mkdtemp(folder));
  built_path(path, PATH_MAX, "libphlox_nccl.so");
  snprintf(link, sizeof link, "%s/libphlox_queues.so", folder);
  CHECK(symlink(path, link) == 0);
  setenv("PHLOX_BACKEND_PATH", folder, 1);
  setenv("PHLOX_BACKENDS", "sim", 1);
  setenv("PHLOX_SIM_DEVICES", "2", 1);
  built_path(path, PATH_MAX, "libphlox_sim.so");
  snprintf(link, sizeof link, "%s/libphlox_sim.so", folder);
  CHECK(symlink(path, link) == 0);
  built_path(path, PATH_MAX, "tests/nccl");
  setenv("PHLOX_CUDA_PATH", path, 1);
  strcat(path, "/libnccl.so.2");
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library);
  stub = dlsym(library, "nccl_stub");
  CHECK(stub);
}

static void clean(void) {
  char command[PATH_MAX];
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0);
}

static px_comm *comm_of(int size, int64_t timeout_ms) {
  PX_SCOPED(px_store) store = NULL;
  px_comm *comm;
  if (!stub) prepare();
  OK(px_store_memory(&store));
  int64_t joined;
  OK(px_store_add(&joined, store, "have come", size - 1));  // on behalf of the other ranks
  px_comm_options options = {"queues", store, 0, size, timeout_ms};
  OK(px_comm_new(&comm, &options));
  CHECK(px_comm_queues(comm));
  return comm;
}

static px_tensor *tensor_of(px_dtype dtype, int64_t n) {
  px_tensor *out;
  OK(px_tensor_empty(&out, 1, &n, dtype, px_cuda(0)));
  return out;
}

static void run(px_comm *comm, px_collective collective) {
  PX_SCOPED(px_work) work = NULL;
  stub->count = 0;
  OK(px_comm_run(&work, comm, &collective));
  OK(px_work_wait(work, 0));
}

// Checks call i of the last group.
static void check_call(int i, const char *name, size_t count, int type, int op, int peer) {
  CHECK(i + 1 < stub->count);
  CHECK_TEXT(stub->calls[i + 1].name, name);
  CHECK_EQ(stub->calls[i + 1].count, count);
  CHECK_EQ(stub->calls[i + 1].type, type);
  if (op >= 0) CHECK_EQ(stub->calls[i + 1].op, op);
  if (peer >= 0) CHECK_EQ(stub->calls[i + 1].peer, peer);
}

#define ONE(name, tensor) .name##s = &(tensor), .name##_count = 1
enum { BYTES = 0, FLOAT32 = 7, SUM = 0, MAX = 2, AVERAGE = 4 };

// Returns the number of threads in this process with this prefix in their names.
static int count_threads(const char *prefix) {
  char command[128];
  int count = 0;
  snprintf(command, sizeof command, "cat /proc/%d/task/*/comm | grep -c '^%s'", getpid(), prefix);
  FILE *out = popen(command, "r");
  CHECK(out && fscanf(out, "%d", &count) == 1);
  pclose(out);
  return count;
}

PX_TEST(a_communicator_joins_at_its_first_call) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 6);
  stub->delay = 3;
  CHECK_EQ(stub->joined_size, 0);
  run(comm, (px_collective){PX_ALL_REDUCE, ONE(output, x)});
  CHECK_EQ(stub->joined_size, 2);
  CHECK_TEXT(stub->calls[0].name, "ncclCommInitRankConfig");
  CHECK_TEXT(stub->calls[1].name, "ncclCommSplit");
  CHECK(!stub->blocking[0] && stub->blocking[1]);
  CHECK_EQ(stub->count, 5);
  check_call(2, "ncclAllReduce", 6, FLOAT32, SUM, -1);
  CHECK(stub->calls[3].in == px_tensor_data(x) && stub->calls[3].out == px_tensor_data(x));
  run(comm, (px_collective){PX_ALL_REDUCE, PX_REDUCE_AVG, ONE(output, x)});
  CHECK_EQ(stub->count, 3);
  check_call(0, "ncclAllReduce", 6, FLOAT32, AVERAGE, -1);
  px_release(comm);
  CHECK_EQ(stub->releasing, 1);
  CHECK_EQ(stub->destroyed, 1);
  CHECK_EQ(__atomic_load_n(&stub->torn_down, __ATOMIC_ACQUIRE), 1);
  CHECK_EQ(stub->aborted, 0);
  clean();
}

// The driver's thread stays and is not waited for.
PX_TEST(releasing_a_communicator_joins_its_threads) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  run(comm, (px_collective){PX_ALL_REDUCE, ONE(output, x)});
  px_release(comm);
  CHECK_EQ(__atomic_load_n(&stub->torn_down, __ATOMIC_ACQUIRE), 1);
  CHECK_EQ(__atomic_load_n(&stub->driver_thread_alive, __ATOMIC_ACQUIRE), 1);
  CHECK_EQ(count_threads("cuda-EvtHandlr"), 1);
  CHECK_EQ(count_threads("phlox-nccl"), 0);
  __atomic_store_n(&stub->driver_thread_alive, 0, __ATOMIC_RELEASE);
  clean();
}

// Another rank releases the two in the opposite order.
PX_TEST(ranks_may_release_communicators_in_different_orders) {
  px_comm *comms[] = {comm_of(2, 60000), comm_of(2, 60000)};
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  for (int i = 0; i < 2; i++) run(comms[i], (px_collective){PX_ALL_REDUCE, ONE(output, x)});
  stub->release_barrier = 2;
  px_release(comms[0]);
  CHECK_EQ(__atomic_load_n(&stub->destroyed, __ATOMIC_ACQUIRE), 0);
  px_release(comms[1]);
  while (__atomic_load_n(&stub->destroyed, __ATOMIC_ACQUIRE) < 2) usleep(1000);
  CHECK_EQ(stub->aborted, 0);
  clean();
}

PX_TEST(each_collective_is_one_nccl_call) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  PX_SCOPED(px_tensor) both = tensor_of(PX_FLOAT32, 6);
  px_tensor *two[2] = {tensor_of(PX_FLOAT32, 3), tensor_of(PX_FLOAT32, 3)};
  run(comm, (px_collective){PX_BROADCAST, ONE(output, x), .peer = 1});
  check_call(stub->count - 3, "ncclBroadcast", 12, BYTES, -1, 1);
  run(comm, (px_collective){PX_REDUCE, PX_REDUCE_MAX, ONE(output, x), .peer = 1});
  check_call(0, "ncclReduce", 3, FLOAT32, MAX, 1);
  run(comm, (px_collective){PX_ALL_GATHER, ONE(input, x), ONE(output, both)});
  check_call(0, "ncclAllGather", 12, BYTES, -1, -1);
  CHECK(stub->calls[1].out == px_tensor_data(both));
  run(comm, (px_collective){PX_ALL_GATHER, ONE(input, x), .outputs = two, .output_count = 2});
  check_call(0, "ncclAllGather", 12, BYTES, -1, -1);
  CHECK(stub->calls[1].out != px_tensor_data(two[0]));
  run(comm, (px_collective){PX_REDUCE_SCATTER, ONE(input, both), ONE(output, x)});
  check_call(0, "ncclReduceScatter", 3, FLOAT32, SUM, -1);
  run(comm, (px_collective){.op = PX_BARRIER});
  check_call(0, "ncclAllReduce", 1, 1, SUM, -1);
  run(comm, (px_collective){PX_SEND, ONE(input, x), .peer = 1});
  check_call(0, "ncclSend", 12, BYTES, -1, 1);
  run(comm, (px_collective){PX_RECV, ONE(output, x), .peer = 1});
  check_call(0, "ncclRecv", 12, BYTES, -1, 1);
  px_release(two[0]);
  px_release(two[1]);
  px_release(comm);
  clean();
}

// NCCL has more pairs of dtype and reduction than the host's functions.
PX_TEST(nccl_sums_float8_and_averages_integers) {
  static const struct {
    px_dtype dtype;
    px_reduce_op reduction;
    int type, op;
  } pairs[] = {{PX_UINT8, PX_REDUCE_AVG, 1, AVERAGE},      {PX_INT64, PX_REDUCE_AVG, 4, AVERAGE},
               {PX_UINT32, PX_REDUCE_SUM, 3, SUM},         {PX_UINT64, PX_REDUCE_MAX, 5, MAX},
               {PX_FLOAT8_E4M3FN, PX_REDUCE_SUM, 10, SUM}, {PX_FLOAT8_E5M2, PX_REDUCE_MAX, 11, MAX},
               {PX_BFLOAT16, PX_REDUCE_AVG, 9, AVERAGE}};
  px_comm *comm = comm_of(2, 60000);
  run(comm, (px_collective){.op = PX_BARRIER});
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    PX_SCOPED(px_tensor) x = tensor_of(pairs[i].dtype, 6);
    run(comm, (px_collective){PX_ALL_REDUCE, pairs[i].reduction, ONE(output, x)});
    check_call(0, "ncclAllReduce", 6, pairs[i].type, pairs[i].op, -1);
  }
  PX_SCOPED(px_tensor) z = tensor_of(PX_COMPLEX64, 6);
  px_collective largest = {PX_ALL_REDUCE, PX_REDUCE_MAX, ONE(output, z)};
  FAILS(px_comm_run(NULL, comm, &largest), PX_VALUE,
        "does not support RedOpType.MAX on complex tensors");
  px_release(comm);
  clean();
}

PX_TEST(exchanges_are_grouped_sends_and_receives) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  PX_SCOPED(px_tensor) both = tensor_of(PX_FLOAT32, 6);
  PX_SCOPED(px_tensor) from = tensor_of(PX_FLOAT32, 4);
  run(comm, (px_collective){.op = PX_BARRIER});
  run(comm, (px_collective){PX_GATHER, ONE(input, x), ONE(output, both)});
  CHECK_EQ(stub->count, 5);
  check_call(0, "ncclSend", 12, BYTES, -1, 0);
  check_call(1, "ncclRecv", 12, BYTES, -1, 0);
  check_call(2, "ncclRecv", 12, BYTES, -1, 1);
  CHECK(stub->calls[3].out == (char *)px_tensor_data(both) + 12);
  run(comm, (px_collective){PX_GATHER, ONE(input, x), .peer = 1});
  CHECK_EQ(stub->count, 3);
  run(comm, (px_collective){PX_SCATTER, ONE(input, both), ONE(output, x)});
  CHECK_EQ(stub->count, 5);
  check_call(0, "ncclRecv", 12, BYTES, -1, 0);
  check_call(2, "ncclSend", 12, BYTES, -1, 1);
  run(comm, (px_collective){PX_ALL_TO_ALL, ONE(input, both), ONE(output, from),
                            .input_counts = (int64_t[]){5, 1}, .output_counts = (int64_t[]){4, 0}});
  CHECK_EQ(stub->count, 5);
  check_call(0, "ncclSend", 20, BYTES, -1, 0);
  check_call(1, "ncclRecv", 16, BYTES, -1, 0);
  check_call(2, "ncclSend", 4, BYTES, -1, 1);
  px_release(comm);
  clean();
}

PX_TEST(several_tensors_are_reduced_inplace_in_one_group) {
  px_comm *comm = comm_of(2, 60000);
  px_tensor *two[2] = {tensor_of(PX_FLOAT32, 3), tensor_of(PX_FLOAT32, 5)};
  run(comm, (px_collective){.op = PX_BARRIER});
  run(comm, (px_collective){PX_ALL_REDUCE, .outputs = two, .output_count = 2});
  CHECK_EQ(stub->count, 4);
  check_call(0, "ncclAllReduce", 3, FLOAT32, SUM, -1);
  check_call(1, "ncclAllReduce", 5, FLOAT32, SUM, -1);
  CHECK(stub->calls[2].out == px_tensor_data(two[1]));
  px_release(two[0]);
  px_release(two[1]);
  px_release(comm);
  clean();
}

PX_TEST(a_negative_view_is_reduced_in_a_buffer_and_written_back) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = NULL;
  OK(px_ones(&x, (int64_t[]){3}, 1, PX_FLOAT32, px_cuda(0), false, false));
  px_tensor_mark(x, PX_MARK_NEG, true);
  uint64_t version = px_tensor_version(x);
  run(comm, (px_collective){PX_ALL_REDUCE, ONE(output, x)});
  const nccl_stub_call *call = &stub->calls[stub->count - 2];
  CHECK_TEXT(call->name, "ncclAllReduce");
  CHECK(call->in == call->out && call->in != px_storage_data(px_tensor_storage(x)));
  CHECK(px_tensor_version(x) > version);
  px_release(comm);
  clean();
}

PX_TEST(a_batch_of_sends_and_receives_is_one_group) {
  px_comm *comm = comm_of(3, 60000);
  px_work *works[2];
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  PX_SCOPED(px_tensor) y = tensor_of(PX_FLOAT32, 4);
  px_collective pairs[] = {{PX_RECV, ONE(output, y), .peer = 2},
                           {PX_SEND, ONE(input, x), .peer = 1}};
  run(comm, (px_collective){.op = PX_BARRIER});
  stub->count = 0;
  OK(px_comm_run_all(works, comm, pairs, 2));
  CHECK_EQ(stub->count, 4);
  check_call(0, "ncclRecv", 16, BYTES, -1, 2);
  check_call(1, "ncclSend", 12, BYTES, -1, 1);
  CHECK(stub->calls[1].out == px_tensor_data(y) && stub->calls[2].in == px_tensor_data(x));
  for (int i = 0; i < 2; i++) {
    OK(px_work_wait(works[i], 1000));
    CHECK(px_work_is_completed(works[i]) && !px_work_error(works[i]));
    px_release(works[i]);
  }
  px_release(comm);
  CHECK_EQ(px_live_objects("comm"), 0);
  clean();
}

PX_TEST(unsupported_calls_leave_the_group_usable) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  PX_SCOPED(px_tensor) shorts = tensor_of(PX_INT16, 3);
  PX_SCOPED(px_tensor) truths = tensor_of(PX_BOOL, 3);
  PX_SCOPED(px_tensor) host = NULL;
  OK(px_to(&host, x, PX_DTYPE_NONE, px_cpu(), false, true));
  FAILS(px_comm_run(NULL, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, host)}), PX_RUNTIME,
        "No backend type associated with device type cpu");
  FAILS(px_comm_run(NULL, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, shorts)}), PX_TYPE,
        "Input tensor data type is not supported for NCCL process group: Short");
  px_tensor *ints = tensor_of(PX_INT32, 2);
  FAILS(px_comm_run(NULL, comm, &(px_collective){PX_ALL_REDUCE, PX_REDUCE_BOR, ONE(output, ints)}),
        PX_VALUE, "Cannot use ReduceOp.BOR with NCCL");
  FAILS(px_comm_run(NULL, comm, &(px_collective){PX_RECV, ONE(output, x), .peer = -1}), PX_RUNTIME,
        "Backend nccl does not support recvAnysource");
  CHECK_EQ(stub->joined_size, 0);
  run(comm, (px_collective){PX_ALL_REDUCE, ONE(output, truths)});
  check_call(2, "ncclAllReduce", 3, 1, MAX, -1);
  run(comm, (px_collective){PX_BROADCAST, ONE(output, shorts)});
  check_call(0, "ncclBroadcast", 6, BYTES, -1, 0);
  px_release(ints);
  px_release(comm);
  clean();
}

// ---- failures

static sem_t gate;
static void wait_at_gate(void *unused) {
  while (sem_wait(&gate)) {
  }
}
static void open_gate(void) { sem_post(&gate); }

// Blocks the stream until NCCL is told to abort.
static void block_stream(void) {
  px_stream *current;
  sem_init(&gate, 0, 0);
  stub->on_abort = open_gate;
  OK(px_stream_current(&current, px_cuda(0)));
  OK(px_stream_host_call(current, wait_at_gate, NULL));
}

static px_work *begin_blocked(px_comm *comm, px_tensor *x, int64_t timeout_ms) {
  px_work *work;
  run(comm, (px_collective){.op = PX_BARRIER});
  block_stream();
  OK(px_comm_run(&work, comm,
                 &(px_collective){PX_ALL_REDUCE, ONE(output, x), .timeout_ms = timeout_ms}));
  OK(px_work_wait(work, 0));
  CHECK(!px_work_is_completed(work));
  return work;
}

PX_TEST(a_timeout_ends_the_collective_and_names_it) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  PX_SCOPED(px_work) work = begin_blocked(comm, x, 300);
  FAILS(px_device_synchronize(0), PX_DIST_BACKEND,
        "[Rank 0] all_reduce number 2 of 3 elements float32, SUM (timeout 300 ms) failed: rank 1 "
        "has not called number 2. Rank 0: timed out after 300 ms");
  CHECK_EQ(stub->aborted, 1);
  CHECK(px_work_is_completed(work) && px_work_error(work));
  FAILS(px_work_wait(work, 0), PX_DIST_BACKEND, "timed out after 300 ms");
  FAILS(px_comm_run(NULL, comm, &(px_collective){.op = PX_BARRIER}), PX_DIST_BACKEND,
        "the group is no longer usable: [Rank 0] all_reduce number 2");
  OK(px_device_synchronize(0));
  px_release(comm);
  CHECK_EQ(stub->aborted, 1);
  CHECK_EQ(stub->destroyed, 0);
  clean();
}

// Each queued collective delays an abort. Therefore a call blocks once too many are queued.
PX_TEST(the_number_of_queued_collectives_is_bounded) {
  enum { MAX_QUEUED = 128 };
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  PX_SCOPED(px_work) work = begin_blocked(comm, x, 1000);
  px_collective sum = {PX_ALL_REDUCE, ONE(output, x)};
  for (int i = 1; i < MAX_QUEUED; i++) OK(px_comm_run(NULL, comm, &sum));
  FAILS(px_comm_run(NULL, comm, &sum), PX_DIST_BACKEND, "the group is no longer usable");
  while (!px_work_is_completed(work)) nanosleep(&(struct timespec){0, 1000000}, NULL);  // soon
  CHECK(px_work_error(work));
  px_release(comm);
  clean();
}

PX_TEST(an_asynchronous_nccl_error_fails_calls_in_flight) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  PX_SCOPED(px_work) work = begin_blocked(comm, x, 0);
  __atomic_store_n(&stub->bad_state, 6, __ATOMIC_RELEASE);
  FAILS(px_device_synchronize(0), PX_DIST_BACKEND,
        "Rank 0: NCCL: remote process exited: by the stand-in");
  px_release(comm);
  clean();
}

PX_TEST(a_refused_nccl_call_fails_the_call) {
  px_comm *comm = comm_of(1, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  stub->bad_call = "ncclAllReduce";
  FAILS(px_comm_run(NULL, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, x)}), PX_DIST_BACKEND,
        "[Rank 0] all_reduce number 1 of 3 elements float32, SUM (timeout 60000 ms) failed: NCCL: "
        "invalid usage: by the stand-in");
  CHECK_TEXT(stub->calls[stub->count - 1].name, "ncclGroupEnd");
  px_release(comm);
  clean();
}

PX_TEST(missing_ranks_time_out_at_the_deadline) {
  px_comm *comm = comm_of(1, 200);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  stub->delay = -1;
  FAILS(px_comm_run(NULL, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, x)}), PX_DIST_BACKEND,
        "failed: the other ranks have not come within");
  CHECK_EQ(stub->aborted, 1);
  px_release(comm);
  CHECK_EQ(stub->aborted, 1);
  clean();
}

// The call is inside NCCL, which connects the ranks at the first call of a kind. The error names
// the time left on entry.
PX_TEST(a_call_blocked_inside_nccl_is_aborted_at_the_deadline) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  run(comm, (px_collective){.op = PX_BARRIER});
  stub->blocks_calls = 1;
  FAILS(px_comm_run(NULL, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, x), .timeout_ms = 300}),
        PX_DIST_BACKEND,
        "rank 1 has not called number 2. Rank 0: the other ranks have not come within ");
  FAILS(px_comm_run(NULL, comm, &(px_collective){.op = PX_BARRIER}), PX_DIST_BACKEND,
        "the group is no longer usable");
  px_release(comm);
  CHECK_EQ(stub->aborted, 1);
  CHECK_EQ(stub->aborted_children, 1);
  CHECK_EQ(stub->destroyed, 0);
  clean();
}

PX_TEST(a_fault_or_an_abort_ends_a_group) {
  px_comm *comm = comm_of(1, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  px_collective sum = {PX_ALL_REDUCE, ONE(output, x)};
  OK(px_fault_arm("collective", 1, false));
  FAILS(px_comm_run(NULL, comm, &sum), PX_DIST_BACKEND, "injected fault");
  px_release(comm);
  comm = comm_of(1, 60000);
  PX_SCOPED(px_work) work = begin_blocked(comm, x, 0);
  px_comm_abort(comm);
  FAILS(px_device_synchronize(0), PX_DIST_BACKEND, "all_reduce number 2 of 3 elements");
  CHECK_EQ(stub->aborted, 1);
  FAILS(px_comm_run(NULL, comm, &sum), PX_DIST_BACKEND, "no longer usable");
  px_release(comm);
  clean();
}

// Each allocation at the start of a call fails in turn. Then the call works, and nothing leaks.
PX_TEST(a_call_fails_without_memory) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  px_collective sum = {PX_ALL_REDUCE, ONE(output, x)};
  run(comm, sum);
  OK(px_device_synchronize(0));
  px_status status = PX_NOMEM;
  for (int n = 1; n < 60 && status != PX_OK; n++) {
    OK(px_fault_arm("alloc", n, false));
    status = px_comm_run(NULL, comm, &sum);
    px_fault_disarm_all();
    px_error_clear();
  }
  CHECK_EQ(status, PX_OK);
  px_release(comm);
  CHECK_EQ(px_live_objects("work"), 0);
  clean();
}

PX_TEST(a_queued_call_does_not_hold_its_tensors) {
  px_comm *comm = comm_of(2, 60000);
  px_work *work;
  px_tensor *x = tensor_of(PX_FLOAT32, 3);
  OK(px_comm_run(&work, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, x)}));
  int64_t before = px_live_objects("tensor");
  px_release(x);
  CHECK_EQ(px_live_objects("tensor"), before - 1);
  px_release(work);
  px_release(comm);
  clean();
}

PX_TEST(a_collective_can_be_captured) {
  px_comm *comm = comm_of(2, 60000);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  PX_SCOPED(px_graph) graph = NULL;
  PX_SCOPED(px_stream) side = NULL;
  run(comm, (px_collective){.op = PX_BARRIER});
  OK(px_device_synchronize(0));
  OK(px_stream_new(&side, px_cuda(0), 0));
  OK(px_stream_set_current(side));
  OK(px_graph_new(&graph));
  OK(px_graph_begin(graph, (px_graph_pool){0}, PX_CAPTURE_GLOBAL));
  run(comm, (px_collective){PX_ALL_REDUCE, ONE(output, x)});
  OK(px_graph_end(graph));
  OK(px_graph_replay(graph));
  OK(px_device_synchronize(0));
  px_comm_abort(comm);
  FAILS(px_device_synchronize(0), PX_DIST_BACKEND, "in a graph has failed: it was aborted");
  px_release(comm);
  clean();
}

PX_TEST(a_too_old_library_is_named) {
  char path[PATH_MAX];
  px_comm *comm;
  PX_SCOPED(px_store) store = NULL;
  prepare();
  snprintf(path, sizeof path, "%s/libnccl.so.2", folder);
  char sim[PATH_MAX];
  built_path(sim, PATH_MAX, "libphlox_sim.so");
  CHECK(symlink(sim, path) == 0);
  setenv("PHLOX_CUDA_PATH", folder, 1);
  OK(px_store_memory(&store));
  px_comm_options options = {"queues", store, 0, 1, 1000};
  FAILS(px_comm_new(&comm, &options), PX_UNIMPLEMENTED,
        "libnccl.so.2 is too old for Phlox: it lacks ncclGetUniqueId");
  clean();
}

// ---- two processes

static px_comm *comm_of_two(int rank, const char *file) {
  PX_SCOPED(px_store) store = NULL;
  px_comm *comm;
  OK(px_store_file(&store, file));
  px_comm_options options = {"queues", store, rank, 2, 60000};
  OK(px_comm_new(&comm, &options));
  return comm;
}

PX_TEST(a_group_forms_once_all_ranks_joined) {
  char file[] = "/tmp/phlox-comm-XXXXXX";
  int status;
  px_comm *comm;
  PX_SCOPED(px_store) store = NULL;
  CHECK(mkstemp(file) >= 0);
  prepare();
  OK(px_store_memory(&store));
  px_comm_options options = {"queues", store, 0, 3, 20};
  FAILS(px_comm_new(&comm, &options), PX_DIST_BACKEND,
        "[Rank 0] cannot join a group of 3 ranks: other ranks did not join within 20 ms");
  pid_t other = fork();
  if (other == 0) usleep(200000);  // until rank 0 would have left
  px_release(comm_of_two(other == 0, file));
  if (other == 0) _exit(0);
  waitpid(other, &status, 0);
  CHECK_EQ(status, 0);
  unlink(file);
  clean();
}

// Ranks far ahead of their last exchanged call numbers still match.
PX_TEST(thousands_of_calls_at_once_are_not_a_mismatch) {
  char file[] = "/tmp/phlox-comm-XXXXXX";
  int status;
  CHECK(mkstemp(file) >= 0);
  prepare();
  pid_t other = fork();
  px_comm *comm = comm_of_two(other == 0, file);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  px_collective sum = {PX_ALL_REDUCE, ONE(output, x)};
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < 1500; i++) OK(px_comm_run(NULL, comm, &sum));
    OK(px_device_synchronize(0));
    usleep(300000);  // the hub reports some of the calls
    OK(px_comm_monitored_barrier(comm, 60000, true));
  }
  OK(px_comm_run(NULL, comm, &sum));
  if (other == 0) _exit(0);
  waitpid(other, &status, 0);
  CHECK_EQ(status, 0);
  px_release(comm);
  unlink(file);
  clean();
}

PX_TEST(a_rank_that_exits_fails_calls_in_flight) {
  char file[] = "/tmp/phlox-comm-XXXXXX";
  CHECK(mkstemp(file) >= 0);
  prepare();
  pid_t other = fork();
  px_comm *comm = comm_of_two(other == 0, file);
  OK(px_comm_monitored_barrier(comm, 60000, true));
  if (other == 0) _exit(0);
  PX_SCOPED(px_tensor) x = tensor_of(PX_FLOAT32, 3);
  block_stream();
  OK(px_comm_run(NULL, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, x)}));
  FAILS(px_device_synchronize(0), PX_DIST_BACKEND,
        "failed: lost the connection to rank 1: its process may have ended");
  CHECK_EQ(stub->aborted, 1);
  px_release(comm);
  waitpid(other, NULL, 0);
  unlink(file);
  clean();
}
