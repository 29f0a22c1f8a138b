// SPDX-License-Identifier: Apache-2.0
// Faults of one rank of a group: each collective, rank, moment and kind of fault, over Gloo, over
// NCCL on simulated devices, and in simulated clusters. Each survivor fails long before the
// deadline of its calls, with an error that names the fault, and nothing of the group leaks. By
// default some cases of each fault run; LONG=1 in the environment runs all. Each test prints the
// number of right cases and the longest detection time.
#include "phlox/comm.h"
#include "phlox/phlox.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "test.h"

enum { RANKS = 3, SIZE = 6, OPS = 10, MOMENTS = 3, AT_ONCE = 8 };
// Call deadlines: one never reached, and the one of calls that wait for a slow rank.
enum { FAR_MS = 60000, NEAR_MS = 1500, WRONG_MS = 5000, HEARTBEAT_MS = 3000, BOUND_MS = 30000 };
typedef enum moment { BEFORE, WITHIN, AFTER } moment;
// Ranks as processes with host memory or memory of a simulated device, or as threads.
typedef enum transport { OVER_GLOO, OVER_NCCL, IN_CLUSTER, TRANSPORTS } transport;
typedef struct incident incident;
typedef struct fault {
  const char *name;
  void (*apply)(px_comm *comm);  // the fault of the rank
  bool wrong_size, wrong_op, leaves,
      dies;                  // or a mismatched call, an early exit, or a seeded death
  int timeout_ms, limit_ms;  // of calls; and the minimum time until a survivor can detect the fault
  bool (*named)(const char *text, const incident *of);  // true if an error text names the fault
} fault;
struct incident {
  const fault *fault;
  px_collective_op op;
  int victim;
  moment moment;
  transport transport;
  int64_t *fault_time;  // time of the fault; shared by the ranks, atomic
};
// The result of a survivor, and its delay after the fault became detectable.
typedef struct outcome {
  px_status status;
  int64_t late_ms;
  char text[4096];
} outcome;
static _Thread_local px_device here;  // device of the rank's tensors
// Shared by all processes of a test, atomic.
static struct statistics {
  int cases, wrong;
  int64_t slowest[TRANSPORTS];  // maximum delay in ms; the low bits hold the case (pack)
} * statistics;

static void *shared(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  return at;
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int count_entries(const char *path) {
  DIR *folder = opendir(path);
  int n = 0;
  CHECK(folder != NULL);
  while (readdir(folder)) n++;
  closedir(folder);
  return n;
}

// ---- the calls

static px_tensor *numbers(int64_t n) {
  px_tensor *out;
  OK(px_zeros(&out, &n, 1, PX_FLOAT32, here, false, false));
  return out;
}

// Begins a collective with `size` elements per rank. Sends form a ring.
static px_status call(px_work **work, px_comm *comm, px_collective_op op, int64_t size,
                      int timeout_ms) {
  int rank = px_comm_rank(comm);
  bool many_in = op == PX_REDUCE_SCATTER || op == PX_SCATTER || op == PX_ALL_TO_ALL;
  bool many_out = op == PX_ALL_GATHER || op == PX_GATHER || op == PX_ALL_TO_ALL;
  bool no_in = op == PX_BROADCAST || op == PX_ALL_REDUCE || op == PX_REDUCE || op == PX_BARRIER ||
               op == PX_RECV || (op == PX_SCATTER && rank != 1);
  bool no_out = op == PX_BARRIER || op == PX_SEND || (op == PX_GATHER && rank != 1);
  PX_SCOPED(px_tensor) in = numbers(many_in ? size * RANKS : size);
  PX_SCOPED(px_tensor) out = numbers(many_out ? size * RANKS : size);
  px_collective c = {.op = op, .inputs = &in, .outputs = &out, .timeout_ms = timeout_ms};
  c.input_count = !no_in;
  c.output_count = !no_out;
  c.peer = op == PX_SEND ? (rank + 1) % RANKS : op == PX_RECV ? (rank + RANKS - 1) % RANKS : 1;
  if (op != PX_SEND && op != PX_RECV && op != PX_BROADCAST && op != PX_REDUCE && op != PX_GATHER &&
      op != PX_SCATTER)
    c.peer = 0;
  return px_comm_run(work, comm, &c);
}

// Runs the collective of the case. A pair is a send and a receive.
static px_status run(px_comm *comm, px_collective_op op, int64_t size, int timeout_ms) {
  PX_SCOPED(px_work) first = NULL;
  PX_SCOPED(px_work) second = NULL;
  PX_TRY(call(&first, comm, op, size, timeout_ms));
  if (op == PX_SEND) PX_TRY(call(&second, comm, PX_RECV, size, timeout_ms));
  if (second) PX_TRY(px_work_wait(second, 0));
  PX_TRY(px_work_wait(first, 0));
  return here.type == PX_CUDA ? px_device_synchronize(here.index) : PX_OK;
}

// ---- the ranks

static void run_victim(px_comm *comm, const incident *of) {
  px_collective_op op = of->op;
  const fault *what = of->fault;
  PX_SCOPED(px_work) work = NULL;
  if (of->moment == AFTER) OK(run(comm, op, SIZE, FAR_MS));
  if (what->wrong_op) op = op == PX_ALL_GATHER ? PX_ALL_REDUCE : PX_ALL_GATHER;
  if (of->moment == WITHIN && (what->apply || what->leaves)) {
    OK(call(&work, comm, op, SIZE, FAR_MS));
    usleep(30000);
  }
  __atomic_store_n(of->fault_time, now_ms(), __ATOMIC_RELEASE);
  if (what->leaves) return;
  if (what->apply) what->apply(comm);
  // A rank that continues gets an error, too, in one of its calls.
  px_status status = run(comm, op, what->wrong_size ? SIZE + 1 : SIZE, what->timeout_ms);
  for (int i = 0; i < 20 && status == PX_OK; i++)
    status = run(comm, PX_ALL_REDUCE, 1, what->timeout_ms);
  CHECK_EQ(status, PX_DIST_BACKEND);
  px_error_clear();
}

static void run_survivor(outcome *out, px_comm *comm, const incident *of) {
  const fault *what = of->fault;
  bool late = of->moment == WITHIN && px_comm_rank(comm) == (of->victim + 1) % RANKS;
  if (late) usleep(60000);  // so that the collective is in flight when the fault happens
  int64_t begin = now_ms();
  px_status status = PX_OK;
  if (of->moment == AFTER) status = run(comm, of->op, SIZE, FAR_MS);
  if (status == PX_OK) begin = now_ms(), status = run(comm, of->op, SIZE, what->timeout_ms);
  // If the collective no longer needed the rank, a later one does.
  for (int i = 0; i < 20 && status == PX_OK; i++)
    begin = now_ms(), status = run(comm, PX_ALL_REDUCE, 1, what->timeout_ms);
  int64_t fault_time = __atomic_load_n(of->fault_time, __ATOMIC_ACQUIRE);
  // Sends and receives have no matching information, so a mismatched pair waits for its deadline.
  bool wrong_pair = of->op == PX_SEND && (what->wrong_size || what->wrong_op);
  int64_t limit = wrong_pair ? what->timeout_ms : what->limit_ms;
  out->late_ms = now_ms() - (fault_time > begin ? fault_time : begin) - limit;
  out->status = status;
  snprintf(out->text, sizeof out->text, "%s", status == PX_OK ? "" : px_error_last()->message);
  px_error_clear();
}

enum { OP = 1 << 4, VICTIM = 1 << 8, MOMENT = 1 << 12, LATE = 1 << 16 };
static int64_t pack(const incident *of, int64_t late_ms) {
  int64_t late = late_ms > 0 ? late_ms : 0;
  return late * LATE + of->moment * MOMENT + of->victim * VICTIM + of->op * OP + 1;
}

static void note_late(const incident *of, int64_t late_ms) {
  int64_t *slowest = &statistics->slowest[of->transport], now = pack(of, late_ms);
  int64_t before = __atomic_load_n(slowest, __ATOMIC_RELAXED);
  while (before < now && !__atomic_compare_exchange_n(slowest, &before, now, false,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    continue;
}

// True if a survivor's error has its rank, the operation, its number and the fault.
static bool is_right(const outcome *out, int rank, const incident *of) {
  char own[32];
  snprintf(own, sizeof own, "[Rank %d] ", rank);
  bool fine = out->status == PX_DIST_BACKEND && strstr(out->text, own) &&
              strstr(out->text, " number ") && of->fault->named(out->text, of);
  note_late(of, out->late_ms);
  if (!fine || out->late_ms > BOUND_MS)
    fprintf(stderr, "rank %d, after %lld ms: %s\n", rank, (long long)out->late_ms,
            out->text[0] ? out->text : "no error");
  return fine && out->late_ms <= BOUND_MS;
}

static void join_and_run(px_store *store, int rank, const incident *of, outcome *out) {
  PX_SCOPED(px_comm) comm = NULL;
  const char *engine = of->transport == OVER_GLOO ? "gloo" : "nccl";
  OK(px_comm_new(&comm, &(px_comm_options){engine, store, rank, RANKS, FAR_MS}));
  OK(px_comm_monitored_barrier(comm, FAR_MS, true));
  if (rank == of->victim)
    run_victim(comm, of);
  else
    run_survivor(out, comm, of);
}

static void check_nothing_lives(void) {
  CHECK_EQ(px_live_objects("work"), 0);
  CHECK_EQ(px_live_objects("comm"), 0);
  CHECK_EQ(px_live_objects("store"), 0);
  CHECK_EQ(px_live_objects("tensor"), 0);
}

static void *return_argument(void *argument) { return argument; }

// Starts everything that a process keeps: the sanitizer's background thread, and a device with the
// threads of its pooled streams.
static void warm_up(px_store *store, int rank) {
  pthread_t first;
  CHECK(!pthread_create(&first, NULL, return_argument, NULL) && !pthread_join(first, NULL));
  if (here.type != PX_CUDA) return;
  PX_SCOPED(px_store) apart = NULL;
  PX_SCOPED(px_comm) comm = NULL;
  OK(px_store_prefix(&apart, "warm", store));
  OK(px_comm_new(&comm, &(px_comm_options){"nccl", apart, rank, RANKS, FAR_MS}));
  OK(run(comm, PX_SEND, SIZE, FAR_MS));
  OK(run(comm, PX_BARRIER, SIZE, FAR_MS));
  OK(px_comm_monitored_barrier(comm, FAR_MS, true));
}

static void run_process(const char *path, int rank, const incident *of) {
  px_store *store;
  outcome out;
  if (of->transport == OVER_NCCL) setenv("PHLOX_BACKENDS", "sim", 1);
  if (of->transport == OVER_NCCL) setenv("PHLOX_SIM_DEVICES", "1", 1);
  here = of->transport == OVER_NCCL ? (px_device){PX_CUDA, 0} : (px_device){PX_CPU, -1};
  OK(px_store_file(&store, path));
  warm_up(store, rank);
  int files = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
  join_and_run(store, rank, of, &out);
  px_release(store);
  if (rank != of->victim) CHECK(is_right(&out, rank, of));
  check_nothing_lives();
  CHECK(count_entries("/proc/self/fd") <= files);
  // Pooled device streams are used in rotation, and each keeps a thread.
  if (here.type == PX_CUDA) threads += 2;
  // The system may list a thread for a moment after it was joined.
  for (int i = 0; i < 500 && count_entries("/proc/self/task") > threads; i++) usleep(10000);
  CHECK(count_entries("/proc/self/task") <= threads);
}

// ---- cases

static const char *name_of(px_collective_op op) {
  static const char *const names[] = {
#define XX(name, text) text,
      PX_COLLECTIVE_MAP(XX)
#undef XX
  };
  return names[op];
}

// Waits for all ranks of a case. Returns the number of wrong outcomes.
static int run_processes(const incident *of) {
  char path[] = "/tmp/phlox-faults-XXXXXX";
  pid_t ranks[RANKS];
  int status, bad = 0;
  CHECK(mkstemp(path) >= 0);
  for (int r = 0; r < RANKS; r++) {
    if ((ranks[r] = fork())) continue;
    run_process(path, r, of);
    _exit(0);
  }
  for (int r = 0; r < RANKS; r++) {
    if (r == of->victim) continue;
    waitpid(ranks[r], &status, 0);
    bad += status != 0;
  }
  kill(ranks[of->victim], SIGCONT);
  waitpid(ranks[of->victim], &status, 0);
  bad += status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  unlink(path);
  return bad;
}

// Ranks as threads. With a seeded death, the dying rank is not known in advance.
typedef struct threads {
  const incident *of;
  outcome outcomes[RANKS];
} threads;
static px_status run_thread(int rank, int ranks, void *argument) {
  threads *self = argument;
  incident of = *self->of;
  here = (px_device){PX_CUDA, rank};
  if (of.fault->dies) of.victim = RANKS;
  join_and_run(px_cluster_store(), rank, &of, &self->outcomes[rank]);
  return PX_OK;
}

static bool has_died(const threads *self, int rank) {
  return strstr(self->outcomes[rank].text, "has died at its collective number") != NULL;
}

static int run_cluster(const incident *of) {
  char seed[16];
  int bad = 0;
  threads *self = calloc(1, sizeof *self);
  self->of = of;
  setenv("PHLOX_BACKENDS", "sim", 1), setenv("PHLOX_SIM_DEVICES", "4", 1);
  setenv("PHLOX_SIM_MODE", of->victim % 2 ? "schedule" : "threads", 1);
  // The rank dies at the first call or at the second.
  if (of->fault->dies) setenv("PHLOX_SIM_DEATH", of->moment == AFTER ? "2" : "1", 1);
  for (int i = 0; i < 100; i++) {
    snprintf(seed, sizeof seed, "%d", i);
    setenv("PHLOX_SIM_SEED", seed, 1);
    __atomic_store_n(of->fault_time, now_ms(), __ATOMIC_RELEASE);
    OK(px_cluster_run(RANKS, run_thread, self));
    if (!of->fault->dies || has_died(self, of->victim)) break;
  }
  if (of->fault->dies) CHECK(has_died(self, of->victim));
  for (int r = 0; r < RANKS; r++) bad += r != of->victim && !is_right(&self->outcomes[r], r, of);
  check_nothing_lives();
  free(self);
  return bad;
}

static const char *const transport_names[] = {"over gloo", "over nccl", "in a cluster"};
static int run_case(const incident *of) {
  int bad = of->transport == IN_CLUSTER ? run_cluster(of) : run_processes(of);
  if (bad)
    fprintf(stderr, "%s of rank %d, moment %d of %s, %s: %d ranks did not end as they should\n",
            of->fault->name, of->victim, of->moment, name_of(of->op),
            transport_names[of->transport], bad);
  return bad != 0;
}

static void reap(int *running) {
  int status = 0;
  if (waitpid(-1, &status, 0) > 0) --*running;
  statistics->wrong += status != 0;
}

// True if a case runs: each collective once, each with another rank and moment. Processes alternate
// between Gloo and NCCL. In a cluster, slow cases run for a third of the collectives.
static bool is_selected(const fault *what, int i, transport where) {
  int op = i / (RANKS * MOMENTS);
  bool own = where == IN_CLUSTER ? !what->limit_ms || op % 3 == 0 : op % 2 == (int)where;
  return getenv("LONG") || (own && op % (RANKS * MOMENTS) == i % (RANKS * MOMENTS));
}

static bool is_possible(const fault *what, transport where) {
  if (where != IN_CLUSTER) return !what->dies;
  return what->dies || what->leaves || what->wrong_size || what->wrong_op ||
         what->timeout_ms == NEAR_MS;
}

static void try_all(const fault *what, transport where, int *running) {
  for (int i = 0; i < OPS * RANKS * MOMENTS; i++) {
    if (!is_selected(what, i, where)) continue;
    incident of = {what,      (px_collective_op)(i / (RANKS * MOMENTS)),
                   i % RANKS, (moment)(i / RANKS % MOMENTS),
                   where,     shared(sizeof *of.fault_time)};
    if (what->wrong_size && of.op == PX_BARRIER) of.op = PX_ALL_REDUCE;
    if (*running == (getenv("LONG") ? 3 : 1) * AT_ONCE) reap(running);
    ++*running, statistics->cases++;
    if (fork() == 0) _exit(run_case(&of));
    munmap(of.fault_time, sizeof *of.fault_time);
  }
}

// Prints the maximum detection delay of each kind of group.
static void report_late(void) {
  for (int where = 0; where < TRANSPORTS; where++) {
    int64_t at = statistics->slowest[where];
    if (at)
      printf("  %s at most %lld ms late: rank %lld, moment %lld of %s\n", transport_names[where],
             (long long)(at / LATE), (long long)(at / VICTIM % 16), (long long)(at / MOMENT % 16),
             name_of((px_collective_op)(at / OP % 16)));
  }
}

static void try_fault(const fault *what) {
  int running = 0;
  char limit[16];
  if (!px_engine_available("gloo")) SKIP("the gloo engine is not built");
  statistics = shared(sizeof *statistics);
  snprintf(limit, sizeof limit, "%d", HEARTBEAT_MS);
  setenv("PHLOX_HEARTBEAT_TIMEOUT", limit, 1);
  for (int where = 0; where < TRANSPORTS; where++)
    if (is_possible(what, (transport)where)) try_all(what, (transport)where, &running);
  while (running) reap(&running);
  printf("%s: %d cases, %d wrong\n", what->name, statistics->cases, statistics->wrong);
  report_late();
  CHECK_EQ(statistics->wrong, 0);
}

// ---- faults

static void be_killed(px_comm *comm) { raise(SIGKILL); }
static void be_stopped(px_comm *comm) { raise(SIGSTOP); }
static void be_slow(px_comm *comm) { usleep(3 * NEAR_MS * 1000); }

// Simulates a network failure: closes each connection of the process.
static void be_cut_off(px_comm *comm) {
  for (int fd = 3; fd < 256; fd++) (void)shutdown(fd, SHUT_RDWR);
}

static bool names_victim(const char *text, const incident *of, const char *before,
                         const char *after) {
  char wanted[80];
  snprintf(wanted, sizeof wanted, "%s%d%s", before, of->victim, after);
  return strstr(text, wanted) != NULL;
}

static bool says_ended(const char *text, const incident *of) {
  return names_victim(text, of, "lost the connection to rank ", ": ");
}
// Rank 0, cut off from one rank first, reports that to the other.
static bool says_cut(const char *text, const incident *of) {
  return says_ended(text, of) || (of->victim == 0 && strstr(text, "lost the connection to rank "));
}
static bool says_silent(const char *text, const incident *of) {
  return names_victim(text, of, "rank ", " sent no heartbeat for 3000 ms");
}
static bool says_late(const char *text, const incident *of) {
  if (of->op == PX_SEND && strstr(text, "timed out receiving"))
    return names_victim(text, of, "from rank ", "");
  if (of->op == PX_SEND && strstr(text, "Timed out") &&
      (names_victim(text, of, "from rank ", "") || names_victim(text, of, "to rank ", "")))
    return true;
  return names_victim(text, of, "rank ", " has not called number") || strstr(text, "ranks ");
}
static bool says_both_calls(const char *text, const incident *of) {
  char one[32], other[32];
  snprintf(one, sizeof one, "rank %d called ", of->victim);
  // Without a comparison against rank 0's call, or if the victim is rank 0, the error names another
  // rank's call.
  bool both = false;
  for (int r = 0; r < RANKS && !both; r++) {
    snprintf(other, sizeof other, "rank %d called ", r);
    both = r != of->victim && strstr(text, one) && strstr(text, other);
  }
  if (of->op == PX_SEND && strstr(text, "timed out receiving"))
    return names_victim(text, of, "from rank ", "");
  if (of->op == PX_SEND && !both) return strstr(text, "send") || strstr(text, "recv");
  // All-to-all may have uneven splits, so its error names the mismatched part.
  if (of->op == PX_ALL_TO_ALL && strstr(text, "bytes, where")) return strstr(text, "are awaited");
  if (of->op == PX_ALL_TO_ALL && strstr(text, "elements to rank ")) return strstr(text, "expects");
  return both;
}

static bool says_left(const char *text, const incident *of) {
  if (of->op == PX_SEND && strstr(text, "Connection "))
    return names_victim(text, of, "from rank ", ": ") || names_victim(text, of, "to rank ", ": ");
  return names_victim(text, of, "rank ", " has left the group after its call number");
}

PX_TEST(a_killed_rank_is_named) {
  try_fault(&(fault){"kill", be_killed, .timeout_ms = FAR_MS, .named = says_ended});
}
PX_TEST(a_rank_with_a_seeded_death_is_named) {
  try_fault(&(fault){"death", .dies = true, .timeout_ms = FAR_MS, .named = says_ended});
}
PX_TEST(a_stopped_rank_is_named) {
  try_fault(&(fault){"stop", be_stopped, .timeout_ms = FAR_MS, .limit_ms = HEARTBEAT_MS,
                     .named = says_silent});
}
PX_TEST(a_disconnected_rank_is_named) {
  try_fault(&(fault){"cut", be_cut_off, .timeout_ms = FAR_MS, .named = says_cut});
}
PX_TEST(a_leaving_rank_is_named) {
  try_fault(&(fault){"leave", .leaves = true, .timeout_ms = FAR_MS, .named = says_left});
}
PX_TEST(a_slow_rank_is_named) {
  try_fault(
      &(fault){"slow", be_slow, .timeout_ms = NEAR_MS, .limit_ms = NEAR_MS, .named = says_late});
}
PX_TEST(mismatched_sizes_name_both_calls) {
  try_fault(&(fault){"size", .wrong_size = true, .timeout_ms = WRONG_MS, .named = says_both_calls});
}
PX_TEST(mismatched_order_names_both_calls) {
  try_fault(&(fault){"order", .wrong_op = true, .timeout_ms = WRONG_MS, .named = says_both_calls});
}
