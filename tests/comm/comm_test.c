// SPDX-License-Identifier: Apache-2.0
// Stores and communicators: rendezvous of processes, each collective on the CPU and on a simulated
// device, and failures.
#include "phlox/comm.h"
#include "phlox/device.h"
#include "phlox/extend.h"
#include "phlox/ops/copy.h"
#include "phlox/phlox.h"

#include <pthread.h>

#include "ranks.h"

// ---- stores

static void check_store(px_store *store) {
  void *value;
  size_t size;
  int64_t sum;
  bool yes;
  OK(px_store_set(store, "a", "one", 3));
  OK(px_store_get(&value, &size, store, "a"));
  CHECK(size == 3 && !memcmp(value, "one", 3));
  px_free(value);
  OK(px_store_add(&sum, store, "n", 5));
  OK(px_store_add(&sum, store, "n", -2));
  CHECK_EQ(sum, 3);
  OK(px_store_get(&value, &size, store, "n"));
  CHECK(size == 1 && !memcmp(value, "3", 1));
  px_free(value);
  OK(px_store_compare_set(&value, &size, store, "a", "two", 3, "three", 5));
  CHECK(size == 3 && !memcmp(value, "one", 3));
  px_free(value);
  OK(px_store_compare_set(&value, &size, store, "a", "one", 3, "three", 5));
  CHECK(size == 5 && !memcmp(value, "three", 5));
  px_free(value);
  const char *both[] = {"a", "n"}, *none[] = {"a", "missing"};
  OK(px_store_check(&yes, store, both, 2));
  CHECK(yes);
  OK(px_store_check(&yes, store, none, 2));
  CHECK(!yes);
  OK(px_store_wait(store, both, 2, 1000));
  FAILS(px_store_wait(store, none, 2, 20), PX_DIST_STORE,
        "wait timeout after 20ms, keys: /a, /missing");
  OK(px_store_delete(&yes, store, "a"));
  CHECK(yes);
  OK(px_store_delete(&yes, store, "a"));
  CHECK(!yes);
  OK(px_store_set(store, "empty", NULL, 0));
  OK(px_store_get(&value, &size, store, "empty"));
  CHECK(value && size == 0);
  px_free(value);
  OK(px_store_num_keys(&sum, store));
  CHECK_EQ(sum, 2);
}

static const px_store_tcp_options here = {.host = "127.0.0.1", .serve = true, .timeout_ms = 20000};

PX_TEST(all_stores_behave_alike) {
  PX_SCOPED(px_store) memory = NULL;
  OK(px_store_memory(&memory));
  check_store(memory);
  char path[] = "/tmp/phlox-store-XXXXXX";
  CHECK(mkstemp(path) >= 0);
  PX_SCOPED(px_store) file = NULL;
  OK(px_store_file(&file, path));
  check_store(file);
  PX_SCOPED(px_store) again = NULL;
  OK(px_store_file(&again, path));
  int64_t keys;
  OK(px_store_num_keys(&keys, again));
  CHECK_EQ(keys, 2);
  unlink(path);
  PX_SCOPED(px_store) tcp = NULL;
  OK(px_store_tcp(&tcp, &here));
  CHECK(px_store_port(tcp) > 0);
  check_store(tcp);
}

PX_TEST(a_store_has_its_own_timeout) {
  PX_SCOPED(px_store) store = NULL;
  void *value;
  size_t size;
  OK(px_store_memory(&store));
  px_store_set_timeout(store, 15);
  CHECK_EQ(px_store_timeout(store), 15);
  FAILS(px_store_get(&value, &size, store, "x"), PX_DIST_STORE,
        "wait timeout after 15ms, keys: /x");
}

static void *join_late(void *store) {
  px_comm *comm;
  usleep(50000);
  OK(px_comm_new(&comm, &(px_comm_options){"gloo", store, 0, 2, 60000}));
  return comm;
}
PX_TEST(a_group_has_its_own_timeout) {
  PX_SCOPED(px_store) store = NULL;
  px_comm *comm = NULL;
  pthread_t first;
  void *other;
  if (!px_engine_available("gloo")) SKIP("the gloo engine is not built");
  OK(px_store_memory(&store));
  FAILS(px_comm_new(&comm, &(px_comm_options){"gloo", store, 1, 2, 15}), PX_DIST_STORE,
        "wait timeout after 15ms, keys: /watch");
  px_store_set_timeout(store, 15);
  CHECK(!pthread_create(&first, NULL, join_late, store));
  OK(px_comm_new(&comm, &(px_comm_options){"gloo", store, 1, 2, 60000}));
  CHECK(!pthread_join(first, &other));
  CHECK_EQ(px_store_timeout(store), 15);
  px_release(comm);
  px_release(other);
}

PX_TEST(a_group_with_missing_ranks_names_the_time_waited) {
  PX_SCOPED(px_store) store = NULL;
  px_comm *comm;
  if (!px_engine_available("gloo")) SKIP("the gloo engine is not built");
  OK(px_store_memory(&store));
  FAILS(px_comm_new(&comm, &(px_comm_options){"gloo", store, 0, 2, 300}), PX_DIST_BACKEND,
        "[Rank 0] cannot join a group of 2 ranks: wait timeout after 300ms, keys: /1");
}

PX_TEST(prefixes_separate_keys) {
  PX_SCOPED(px_store) store = NULL;
  PX_SCOPED(px_store) a = NULL;
  PX_SCOPED(px_store) b = NULL;
  OK(px_store_memory(&store));
  OK(px_store_prefix(&a, "a", store));
  OK(px_store_prefix(&b, "b", store));
  int64_t sum;
  OK(px_store_add(&sum, a, "n", 1));
  OK(px_store_add(&sum, b, "n", 7));
  CHECK_EQ(sum, 7);
  bool there;
  OK(px_store_check(&there, store, (const char *[]){"a/n"}, 1));
  CHECK(there);
}

PX_TEST(a_key_set_by_another_process_ends_a_wait) {
  PX_SCOPED(px_store) server = NULL;
  int ready[2], port;
  CHECK(!pipe(ready));
  pid_t child = fork();  // before the server thread starts
  if (child == 0) {
    px_store *store;
    CHECK(read(ready[0], &port, sizeof port) == sizeof port);
    usleep(30000);
    OK(px_store_tcp(&store, &(px_store_tcp_options){.host = "127.0.0.1", .port = port}));
    OK(px_store_set(store, "late", "yes", 3));
    _exit(0);
  }
  OK(px_store_tcp(&server, &here));
  port = px_store_port(server);
  CHECK(write(ready[1], &port, sizeof port) == sizeof port);
  void *value;
  size_t size;
  OK(px_store_get(&value, &size, server, "late"));
  CHECK(size == 3 && !memcmp(value, "yes", 3));
  px_free(value);
  int status;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
}

PX_TEST(connections_require_the_secret) {
  px_store_tcp_options options = here;
  options.secret = "of this job";
  PX_SCOPED(px_store) server = NULL;
  PX_SCOPED(px_store) client = NULL;
  OK(px_store_tcp(&server, &options));
  options.serve = false;
  options.port = px_store_port(server);
  OK(px_store_tcp(&client, &options));
  check_store(client);
  options.secret = "of another one";
  FAILS(px_store_tcp(&client, &options), PX_DIST_NETWORK, "the server has a different secret");
  options.secret = NULL;
  FAILS(px_store_tcp(&client, &options), PX_DIST_NETWORK, "requires a secret");
}

PX_TEST(a_port_in_use_is_named) {
  PX_SCOPED(px_store) store = NULL;
  PX_SCOPED(px_store) other = NULL;
  OK(px_store_tcp(&store, &here));
  px_store_tcp_options options = here;
  options.port = px_store_port(store);
  FAILS(px_store_tcp(&other, &options), PX_DIST_NETWORK, "has failed to listen");
}

PX_TEST(a_missing_engine_is_named) {
  PX_SCOPED(px_store) store = NULL;
  px_comm *comm;
  OK(px_store_memory(&store));
  px_comm_options options = {.engine = "none", .store = store, .size = 1};
  FAILS(px_comm_new(&comm, &options), PX_UNIMPLEMENTED, "'none' is unavailable");
  CHECK(!px_engine_available("none"));
  const char *path = "unchanged";
  FAILS(px_engine_library(&path, "none"), PX_UNIMPLEMENTED, "'none' is unavailable");
  FAILS(px_engine_library(&path, "../none"), PX_VALUE, "invalid name");
  CHECK_TEXT(path, "unchanged");
  if (!px_engine_available("gloo")) return;
  OK(px_engine_library(&path, "gloo"));
  CHECK(strstr(path, "libphlox_gloo.so"));
}

// ---- communicators

enum { RANKS = 3 };
static bool negative_views;  // tensors are negative views
static px_tensor *tensor_of(px_device device, int n, const float *values) {
  px_tensor *host, *out;
  int64_t size = n;
  OK(px_tensor_empty(&host, 1, &size, PX_FLOAT32, (px_device){PX_CPU, -1}));
  for (int i = 0; values && i < n; i++)
    ((float *)px_tensor_data(host))[i] = negative_views ? -values[i] : values[i];
  OK(px_to(&out, host, PX_DTYPE_NONE, device, false, true));
  px_release(host);
  px_tensor_mark(out, PX_MARK_NEG, negative_views);
  return out;
}

static void check_values(px_tensor *tensor, const float *values) {
  PX_SCOPED(px_tensor) host = NULL;
  OK(px_to(&host, tensor, PX_DTYPE_NONE, (px_device){PX_CPU, -1}, false, true));
  for (int64_t i = 0; i < px_tensor_numel(host); i++)
    CHECK_NEAR(((float *)px_tensor_data(host))[i], values[i], 0);
  px_release(tensor);
}

static void run(px_comm *comm, px_collective collective) {
  PX_SCOPED(px_work) work = NULL;
  OK(px_comm_run(&work, comm, &collective));
  OK(px_work_wait(work, 0));
}

static void each_collective(px_comm *comm, px_device device) {
  float r = (float)px_comm_rank(comm);
  px_tensor *x = tensor_of(device, 2, (float[]){r + 1, 10 * r});
  run(comm, (px_collective){PX_ALL_REDUCE, .outputs = &x, .output_count = 1});
  check_values(x, (float[]){6, 30});
  x = tensor_of(device, 1, (float[]){r + 1});
  run(comm, (px_collective){PX_ALL_REDUCE, PX_REDUCE_AVG, .outputs = &x, .output_count = 1});
  check_values(x, (float[]){2});
  x = tensor_of(device, 1, (float[]){r});
  run(comm, (px_collective){PX_BROADCAST, .outputs = &x, .output_count = 1, .peer = 2});
  check_values(x, (float[]){2});
  x = tensor_of(device, 1, (float[]){r + 1});
  run(comm,
      (px_collective){PX_REDUCE, PX_REDUCE_PRODUCT, .outputs = &x, .output_count = 1, .peer = 1});
  check_values(x, (float[]){r == 1 ? 6 : r + 1});
}

#define ONE(name, tensor) .name##s = &(tensor), .name##_count = 1
#define EACH(name, list) .name##s = (list), .name##_count = RANKS

static void each_exchange(px_comm *comm, px_device device) {
  float r = (float)px_comm_rank(comm);
  PX_SCOPED(px_tensor) one = tensor_of(device, 1, &r);
  PX_SCOPED(px_tensor) three = tensor_of(device, 3, (float[]){r, r + 10, r + 20});
  px_tensor *out = tensor_of(device, 3, NULL), *parts[RANKS];
  run(comm, (px_collective){PX_ALL_GATHER, ONE(input, one), ONE(output, out)});
  check_values(out, (float[]){0, 1, 2});
  for (int i = 0; i < RANKS; i++) parts[i] = tensor_of(device, 1, NULL);
  run(comm, (px_collective){PX_ALL_GATHER, ONE(input, one), EACH(output, parts)});
  for (int i = 0; i < RANKS; i++) check_values(parts[i], (float[]){(float)i});
  out = tensor_of(device, 1, NULL);
  run(comm, (px_collective){PX_REDUCE_SCATTER, ONE(input, three), ONE(output, out)});
  check_values(out, (float[]){3 + 30 * r});
  out = tensor_of(device, 3, NULL);
  run(comm, (px_collective){PX_ALL_TO_ALL, ONE(input, three), ONE(output, out)});
  check_values(out, (float[]){10 * r, 10 * r + 1, 10 * r + 2});
  out = tensor_of(device, 1, NULL);
  bool root = r == 1;
  run(comm, (px_collective){PX_SCATTER, .inputs = &three, .input_count = root, ONE(output, out),
                            .peer = 1});
  check_values(out, (float[]){10 * r + 1});
  out = tensor_of(device, 3, NULL);
  run(comm, (px_collective){PX_GATHER, ONE(input, one), .outputs = &out, .output_count = root,
                            .peer = 1});
  if (root)
    check_values(out, (float[]){0, 1, 2});
  else
    px_release(out);
  run(comm, (px_collective){.op = PX_BARRIER});
}

// Uneven splits: rank r sends i + 1 elements to rank i.
static void uneven_exchange(px_comm *comm, px_device device) {
  int rank = px_comm_rank(comm);
  float r = (float)rank, values[9];
  PX_SCOPED(px_tensor) in = tensor_of(device, 6, (float[]){r, r, r, r, r, r});
  px_tensor *out = tensor_of(device, 3 * (rank + 1), NULL);
  int64_t same[] = {rank + 1, rank + 1, rank + 1};
  run(comm, (px_collective){PX_ALL_TO_ALL, ONE(input, in), ONE(output, out),
                            .input_counts = (int64_t[]){1, 2, 3}, .output_counts = same});
  for (int i = 0; i < 3 * (rank + 1); i++) values[i] = (float)(i / (rank + 1));
  check_values(out, values);
}

// A ring: each rank sends to the next, and all sends begin before any receive.
static void ring(px_comm *comm, px_device device) {
  int rank = px_comm_rank(comm), next = (rank + 1) % RANKS, before = (rank + 2) % RANKS;
  PX_SCOPED(px_tensor) mine = tensor_of(device, 1, (float[]){(float)rank});
  px_tensor *theirs = tensor_of(device, 1, NULL);
  PX_SCOPED(px_work) sent = NULL;
  OK(px_comm_run(&sent, comm, &(px_collective){PX_SEND, ONE(input, mine), .peer = next, .tag = 4}));
  run(comm, (px_collective){PX_RECV, ONE(output, theirs), .peer = before, .tag = 4});
  OK(px_work_wait(sent, 0));
  check_values(theirs, (float[]){(float)before});
}

static void receive_from_any(px_comm *comm, px_device device) {
  int rank = px_comm_rank(comm);
  PX_SCOPED(px_tensor) mine = tensor_of(device, 1, (float[]){(float)rank});
  if (rank) {
    run(comm, (px_collective){PX_SEND, ONE(input, mine)});
    return;
  }
  for (int i = 1; i < RANKS; i++) {
    px_tensor *theirs = tensor_of(device, 1, NULL);
    PX_SCOPED(px_work) work = NULL;
    OK(px_comm_run(&work, comm, &(px_collective){PX_RECV, ONE(output, theirs), .peer = -1}));
    OK(px_work_wait(work, 0));
    check_values(theirs, (float[]){(float)px_work_source(work)});
  }
}

static void count_up(void *context) { ++*(int *)context; }

static void run_callbacks(px_comm *comm, px_device device) {
  int ended = 0, after = 0;
  px_tensor *x = tensor_of(device, 1, (float[]){1});
  PX_SCOPED(px_work) work = NULL;
  OK(px_comm_run(&work, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, x)}));
  OK(px_work_at_end(work, count_up, &ended));
  OK(px_work_wait(work, 0));
  OK(px_work_at_end(work, count_up, &after));
  run(comm, (px_collective){.op = PX_BARRIER});  // the callbacks of the first collective have run
  CHECK(ended == 1 && after == 1 && !px_work_event(work));
  check_values(x, (float[]){RANKS});
}

static void reduce_two_tensors(px_comm *comm, px_device device) {
  float r = (float)px_comm_rank(comm);
  px_tensor *two[] = {tensor_of(device, 2, (float[]){r, 1}),
                      tensor_of(device, 1, (float[]){10 * r})};
  px_collective all = {PX_ALL_REDUCE, .outputs = two, .output_count = 2};
  run(comm, all);
  all.op = PX_REDUCE;
  all.reduce = PX_REDUCE_PREMUL_SUM;
  all.factor = 0.5;
  run(comm, all);
  bool root = r == 0;
  check_values(two[0], root ? (float[]){4.5, 4.5} : (float[]){3, 3});
  check_values(two[1], root ? (float[]){45} : (float[]){30});
}

static void subgroup(px_comm *comm, px_device device) {
  px_comm *part;
  OK(px_comm_split(&part, comm, "some", (int[]){2, 0}, 2, 0));
  CHECK((part == NULL) == (px_comm_rank(comm) == 1));
  if (!part) return;
  CHECK_EQ(px_comm_size(part), 2);
  CHECK_EQ(px_comm_timeout(part), px_comm_timeout(comm));
  CHECK_EQ(px_comm_rank(part), px_comm_rank(comm) == 0);
  px_tensor *x = tensor_of(device, 1, (float[]){(float)px_comm_rank(comm) + 1});
  run(part, (px_collective){PX_ALL_REDUCE, ONE(output, x)});
  check_values(x, (float[]){4});
  px_release(part);
}

PX_TEST(completion_callbacks_run_once) { run_ranks(RANKS, ON_CPU, run_callbacks); }
PX_TEST(coalesced_tensors_reduce_on_the_cpu) { run_ranks(RANKS, ON_CPU, reduce_two_tensors); }
PX_TEST(coalesced_tensors_reduce_on_a_device) { run_ranks(RANKS, ON_SIM, reduce_two_tensors); }
PX_TEST(collectives_reduce_on_the_cpu) { run_ranks(RANKS, ON_CPU, each_collective); }
PX_TEST(collectives_reduce_on_a_simulated_device) { run_ranks(RANKS, ON_SIM, each_collective); }
PX_TEST(collectives_exchange_on_the_cpu) { run_ranks(RANKS, ON_CPU, each_exchange); }
PX_TEST(collectives_exchange_on_a_simulated_device) { run_ranks(RANKS, ON_SIM, each_exchange); }
PX_TEST(collectives_read_and_write_the_values_of_negative_views) {
  void (*const all[])(px_comm *, px_device) = {each_collective, each_exchange, uneven_exchange,
                                               ring, reduce_two_tensors};
  negative_views = true;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    run_ranks(RANKS, ON_CPU, all[i]);
    run_ranks(RANKS, ON_SIM, all[i]);
  }
  run_ranks(RANKS, ON_CPU, receive_from_any);
  negative_views = false;
}
PX_TEST(splits_may_be_uneven) { run_ranks(RANKS, ON_CPU, uneven_exchange); }
PX_TEST(splits_may_be_uneven_on_a_simulated_device) { run_ranks(RANKS, ON_SIM, uneven_exchange); }
PX_TEST(a_ring_of_sends_does_not_block) { run_ranks(RANKS, ON_CPU, ring); }
PX_TEST(a_ring_of_sends_does_not_block_on_a_simulated_device) { run_ranks(RANKS, ON_SIM, ring); }
PX_TEST(a_receive_from_any_rank_returns_the_source) { run_ranks(RANKS, ON_CPU, receive_from_any); }
PX_TEST(some_ranks_form_a_group) { run_ranks(RANKS, ON_CPU, subgroup); }
PX_TEST(some_ranks_form_a_group_on_a_simulated_device) { run_ranks(RANKS, ON_SIM, subgroup); }

// The same with threads as ranks.
#define IN_CLUSTERS(name, body) \
  PX_TEST(name##_in_a_simulated_cluster) { run_ranks(RANKS, IN_CLUSTER, body); } \
  PX_TEST(name##_in_a_simulated_cluster_on_the_cpu) { run_ranks(RANKS, IN_CLUSTER_CPU, body); }
IN_CLUSTERS(collectives_reduce, each_collective)
IN_CLUSTERS(collectives_exchange, each_exchange)
IN_CLUSTERS(splits_may_be_uneven, uneven_exchange)
IN_CLUSTERS(a_ring_of_sends_does_not_block, ring)
IN_CLUSTERS(some_ranks_form_a_group, subgroup)
PX_TEST(a_receive_from_any_rank_returns_the_source_in_a_simulated_cluster_on_the_cpu) {
  run_ranks(RANKS, IN_CLUSTER_CPU, receive_from_any);
}

// ---- each dtype and reduction

static void one_reduction(px_comm *comm, px_device device, px_dtype dtype, px_reduce_op op,
                          double wanted) {
  int64_t size = 5;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) narrow = NULL;
  PX_SCOPED(px_tensor) back = NULL;
  OK(px_tensor_empty(&wide, 1, &size, PX_FLOAT64, (px_device){PX_CPU, -1}));
  for (int i = 0; i < size; i++) ((double *)px_tensor_data(wide))[i] = px_comm_rank(comm) ? 3 : 6;
  OK(px_to(&x, wide, dtype, device, false, true));
  run(comm, (px_collective){PX_ALL_REDUCE, op, ONE(output, x)});
  OK(px_to(&back, x, PX_FLOAT64, (px_device){PX_CPU, -1}, false, true));
  for (int i = 0; i < size; i++) CHECK_NEAR(((double *)px_tensor_data(back))[i], wanted, 0);
}

static void each_dtype(px_comm *comm, px_device device) {
  const px_dtype real[] = {PX_UINT8,   PX_INT8,     PX_INT16,   PX_INT32,  PX_INT64,
                           PX_FLOAT16, PX_BFLOAT16, PX_FLOAT32, PX_FLOAT64};
  for (int i = 0; i < 9; i++) {
    one_reduction(comm, device, real[i], PX_REDUCE_SUM, 9);
    one_reduction(comm, device, real[i], PX_REDUCE_PRODUCT, 18);
    one_reduction(comm, device, real[i], PX_REDUCE_MIN, 3);
    one_reduction(comm, device, real[i], PX_REDUCE_MAX, 6);
    if (i >= 5) one_reduction(comm, device, real[i], PX_REDUCE_AVG, 4.5);
    if (i >= 5) continue;
    one_reduction(comm, device, real[i], PX_REDUCE_BAND, 2);
    one_reduction(comm, device, real[i], PX_REDUCE_BOR, 7);
    one_reduction(comm, device, real[i], PX_REDUCE_BXOR, 5);
  }
  one_reduction(comm, device, PX_BOOL, PX_REDUCE_SUM, 1);
  one_reduction(comm, device, PX_BOOL, PX_REDUCE_BXOR, 0);
  one_reduction(comm, device, PX_COMPLEX64, PX_REDUCE_SUM, 9);
}
PX_TEST(each_dtype_reduces_with_each_operation) { run_ranks(2, ON_CPU, each_dtype); }
PX_TEST(each_dtype_reduces_in_a_simulated_cluster) { run_ranks(2, IN_CLUSTER, each_dtype); }

// ---- failures

static void bad_arguments(px_comm *comm, px_device device) {
  px_tensor *x = tensor_of(device, 3, NULL), *y = tensor_of(device, 2, NULL);
  px_collective gather = {PX_ALL_GATHER, ONE(input, x), ONE(output, y)};
  FAILS(px_comm_run(NULL, comm, &gather), PX_RUNTIME, "expected 6 elements");
  px_collective far = {PX_BROADCAST, ONE(output, x), .peer = 2};
  FAILS(px_comm_run(NULL, comm, &far), PX_VALUE, "rank 2 is not in a group of 2");
  px_collective own = {PX_SEND, ONE(input, x), .peer = px_comm_rank(comm)};
  FAILS(px_comm_run(NULL, comm, &own), PX_VALUE, "Invalid destination rank");
  CHECK_EQ(px_live_objects("work"), 0);
  px_collective bits = {PX_ALL_REDUCE, PX_REDUCE_BAND, ONE(output, x)};
  FAILS(px_comm_run(NULL, comm, &bits), PX_RUNTIME,
        "Cannot use ReduceOp.BAND with non-integral dtype");
  px_collective odd = {PX_ALL_TO_ALL, ONE(input, x), ONE(output, x)};
  FAILS(px_comm_run(NULL, comm, &odd), PX_RUNTIME, "does not divide equally across group size");
  // A refused call has no number and sends nothing, so the ranks still agree.
  run(comm, (px_collective){.op = PX_BARRIER});
  px_release(x);
  px_release(y);
}
PX_TEST(refused_calls_leave_the_group_usable) { run_ranks(2, ON_CPU, bad_arguments); }

// The store outlives the first error: the rank that fails second names both calls.
static void different_calls(px_comm *comm, px_device device) {
  PX_SCOPED(px_work) work = NULL;
  int rank = px_comm_rank(comm);
  px_tensor *x = tensor_of(device, 2 + rank, NULL);
  px_collective c = {PX_ALL_REDUCE, ONE(output, x), .timeout_ms = 300 + 300 * rank};
  OK(px_comm_run(&work, comm, &c));
  FAILS(px_work_wait(work, 0), PX_DIST_BACKEND,
        rank ? "[Rank 1] all_reduce number 1 of 3 elements float32"
             : "[Rank 0] all_reduce number 1 of 2 elements float32");
  CHECK(px_work_is_completed(work) && px_work_error(work));
  FAILS(px_comm_run(NULL, comm, &c), PX_DIST_BACKEND, "the group is no longer usable");
  px_release(x);
}
PX_TEST(mismatched_sizes_fail_on_all_ranks) { run_ranks(2, ON_CPU, different_calls); }

static void a_rank_ends(px_comm *comm, px_device device) {
  OK(px_comm_monitored_barrier(comm, 60000, true));  // all have joined
  if (px_comm_rank(comm)) _exit(0);
  PX_SCOPED(px_work) work = NULL;
  px_tensor *x = tensor_of(device, 4, NULL);
  OK(px_comm_run(&work, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, x)}));
  FAILS(px_work_wait(work, 0), PX_DIST_BACKEND, "[Rank 0] all_reduce number 1");
  _exit(0);
}
PX_TEST(a_rank_that_exits_is_detected) { run_ranks(2, ON_CPU, a_rank_ends); }

// An error without a waiter is returned once, by the next call that synchronizes the device.
static void a_rank_ends_with_a_device(px_comm *comm, px_device device) {
  px_tensor *x = tensor_of(device, 4, NULL);
  OK(px_comm_monitored_barrier(comm, 60000, true));  // all have joined
  if (px_comm_rank(comm)) _exit(0);
  px_collective sum = {PX_ALL_REDUCE, ONE(output, x)};
  OK(px_comm_run(NULL, comm, &sum));
  FAILS(px_device_synchronize(0), PX_DIST_BACKEND, "failed: lost the connection to rank 1");
  OK(px_device_synchronize(0));
  FAILS(px_comm_run(NULL, comm, &sum), PX_DIST_BACKEND, "the group is no longer usable");
  OK(px_device_synchronize(0));
  _exit(0);
}
PX_TEST(a_rank_that_exits_is_detected_on_a_simulated_device) {
  run_ranks(2, ON_SIM, a_rank_ends_with_a_device);
}

static void aborted(px_comm *comm, px_device device) {
  px_tensor *x = tensor_of(device, 4, NULL);
  PX_SCOPED(px_work) work = NULL;
  OK(px_comm_monitored_barrier(comm, 60000, true));  // all have joined
  if (!px_comm_rank(comm)) {
    OK(px_comm_run(&work, comm, &(px_collective){PX_ALL_REDUCE, ONE(output, x)}));
    // The wait timed out, or the other rank aborted.
    CHECK(px_work_wait(work, 50) == PX_DIST_BACKEND);
  }
  px_comm_abort(comm);
  if (work) FAILS(px_work_wait(work, 0), PX_DIST_BACKEND, "all_reduce");
  FAILS(px_comm_run(NULL, comm, &(px_collective){.op = PX_BARRIER}), PX_DIST_BACKEND,
        "no longer usable");
  px_release(x);
}
PX_TEST(an_abort_ends_calls_in_flight) { run_ranks(2, ON_CPU, aborted); }

// Rank 1 has issued all its calls before rank 0 begins. `meet` is a separate communicator.
static void wait_for_late_rank(px_comm *comm, px_device device) {
  enum { CALLS = 20 };
  px_work *works[CALLS];
  const int all[] = {0, 1};
  PX_SCOPED(px_comm) meet = NULL;
  px_tensor *x = tensor_of(device, 1, (float[]){1});
  OK(px_comm_split(&meet, comm, "meet", all, 2, 0));
  OK(px_comm_synchronize(comm));
  if (px_comm_rank(comm) == 0) OK(px_comm_monitored_barrier(meet, 60000, true));
  for (int i = 0; i < CALLS; i++)
    OK(px_comm_run(&works[i], comm, &(px_collective){PX_ALL_REDUCE, ONE(output, x)}));
  if (px_comm_rank(comm) == 1) OK(px_comm_monitored_barrier(meet, 60000, true));
  OK(px_comm_synchronize(comm));
  for (int i = 0; i < CALLS; i++) {
    CHECK(px_work_is_completed(works[i]) && !px_work_error(works[i]));
    px_release(works[i]);
  }
  px_release(x);
}
PX_TEST(synchronize_waits_for_all_issued_calls) {
  run_ranks(2, ON_CPU, wait_for_late_rank);
  run_ranks(2, ON_SIM, wait_for_late_rank);
  run_ranks(2, IN_CLUSTER, wait_for_late_rank);
}

static void a_late_rank(px_comm *comm, px_device device) {
  OK(px_comm_monitored_barrier(comm, 60000, false));
  if (px_comm_rank(comm) == 0)
    FAILS(px_comm_monitored_barrier(comm, 200, true), PX_RUNTIME,
          "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 200 ms");
  _exit(0);
}
PX_TEST(a_monitored_barrier_names_missing_ranks) { run_ranks(RANKS, ON_CPU, a_late_rank); }

static void a_fault(px_comm *comm, px_device device) {
  PX_SCOPED(px_work) work = NULL;
  OK(px_fault_arm("collective", 1, false));
  OK(px_comm_run(&work, comm, &(px_collective){.op = PX_BARRIER}));
  FAILS(px_work_wait(work, 0), PX_DIST_BACKEND, "barrier number 1");
}
PX_TEST(an_injected_fault_fails_the_collective) { run_ranks(2, ON_CPU, a_fault); }

// Each allocation at the start of a collective fails in turn. Then the collective works, and
// nothing leaks.
static void no_memory(px_comm *comm, px_device device) {
  px_tensor *x = tensor_of(device, 4, (float[]){1, 1, 1, 1});
  px_tensor *all = tensor_of(device, 12, NULL);
  px_collective c = {PX_ALL_GATHER, ONE(input, x), ONE(output, all)};
  int64_t before = px_live_objects("work");
  for (int n = 1; n < 40; n++) {
    OK(px_fault_arm("alloc", n, false));
    px_status status = px_comm_run(NULL, comm, &c);
    px_fault_disarm_all();
    if (status == PX_OK) break;
    CHECK_EQ(px_live_objects("work"), before);
    px_error_clear();
  }
  run(comm, (px_collective){.op = PX_BARRIER});
  px_release(all);
  px_release(x);
}
PX_TEST(a_collective_fails_without_memory) { run_ranks(RANKS, ON_CPU, no_memory); }

// Ranks exchange the numbers of their calls only a few times a second.
static void many_calls(px_comm *comm, px_device device) {
  px_tensor *x = tensor_of(device, 1, (float[]){1});
  for (int i = 0; i < 3000; i++)
    run(comm, (px_collective){PX_BROADCAST, .outputs = &x, .output_count = 1});
  px_release(x);
}
PX_TEST(many_calls_between_reports_are_not_a_mismatch) { run_ranks(2, ON_CPU, many_calls); }
