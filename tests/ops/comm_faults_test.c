// SPDX-License-Identifier: Apache-2.0
// What becomes of a group when something happens to one of its ranks: each collective, each rank,
// each moment, each fault. Every survivor ends with an error that says what happened, long before
// the deadline of its calls, and nothing of the group is left. Some cases of each fault are run;
// with LONG=1 in the environment, all 540.
#include "phlox/comm.h"
#include "phlox/phlox.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "test.h"

enum { RANKS = 3, SIZE = 6, OPS = 10, MOMENTS = 3, AT_ONCE = 8 };
// Deadlines of calls: one that is never reached, and that of calls which wait for who is slow.
enum { FAR_MS = 60000, NEAR_MS = 1500, HEARTBEAT_MS = 3000, BOUND_MS = 30000 };
typedef enum moment { BEFORE, WITHIN, AFTER } moment;
typedef struct incident incident;
typedef struct fault {
  const char *name;
  void (*strike)(px_comm *comm);  // what happens to the rank
  bool wrong_size, wrong_op;      // or what it calls instead
  int timeout_ms;
  bool (*named)(const char *text, const incident *of);  // whether an error says so
} fault;
struct incident {
  const fault *fault;
  px_collective_op op;
  int victim;
  moment moment;
};

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
  OK(px_tensor_empty(&out, 1, &n, PX_FLOAT32, (px_device){PX_CPU, -1}));
  memset(px_tensor_data(out), 0, (size_t)n * 4);
  return out;
}

// Begins a collective whose tensors have `size` elements a rank. Sends go in a ring.
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

// The collective of the case; a pair is a send and a receive.
static px_status run(px_comm *comm, px_collective_op op, int64_t size, int timeout_ms) {
  PX_SCOPED(px_work) first = NULL;
  PX_SCOPED(px_work) second = NULL;
  PX_TRY(call(&first, comm, op, size, timeout_ms));
  if (op == PX_SEND) PX_TRY(call(&second, comm, PX_RECV, size, timeout_ms));
  if (second) PX_TRY(px_work_wait(second, 0));
  return px_work_wait(first, 0);
}

// ---- the ranks

static void be_struck(px_comm *comm, const incident *of) {
  px_collective_op op = of->op;
  PX_SCOPED(px_work) work = NULL;
  if (of->moment == AFTER) OK(run(comm, op, SIZE, FAR_MS));
  if (of->fault->wrong_op) op = op == PX_ALL_GATHER ? PX_ALL_REDUCE : PX_ALL_GATHER;
  if (of->moment == WITHIN && of->fault->strike) {
    OK(call(&work, comm, op, SIZE, FAR_MS));
    usleep(30000);
  }
  if (of->fault->strike) of->fault->strike(comm);
  // A rank that goes on gets an error, too, at some call.
  px_status status = run(comm, op, of->fault->wrong_size ? SIZE + 1 : SIZE, of->fault->timeout_ms);
  for (int i = 0; i < 20 && status == PX_OK; i++)
    status = run(comm, PX_ALL_REDUCE, 1, of->fault->timeout_ms);
  CHECK_EQ(status, PX_DIST_BACKEND);
  px_error_clear();
}

static void survive(px_comm *comm, const incident *of) {
  int64_t begin = now_ms();
  bool late = of->moment == WITHIN && px_comm_rank(comm) == (of->victim + 1) % RANKS;
  if (late) usleep(60000);  // so that the collective is under way when it happens
  px_status status = PX_OK;
  if (of->moment == AFTER) status = run(comm, of->op, SIZE, FAR_MS);
  if (status == PX_OK) status = run(comm, of->op, SIZE, of->fault->timeout_ms);
  // Where the collective did not need the rank any more, a later one does.
  for (int i = 0; i < 20 && status == PX_OK; i++)
    status = run(comm, PX_ALL_REDUCE, 1, of->fault->timeout_ms);
  int64_t took = now_ms() - begin;
  bool fine = status == PX_DIST_BACKEND && of->fault->named(px_error_last()->message, of);
  if (!fine || took > BOUND_MS)
    fprintf(stderr, "rank %d, after %lld ms: %s\n", px_comm_rank(comm), (long long)took,
            status == PX_OK ? "no error" : px_error_last()->message);
  CHECK(fine);
  CHECK(took <= BOUND_MS);
  px_error_clear();
}

static void *nothing(void *argument) { return argument; }

static void be_rank(const char *path, int rank, const incident *of) {
  pthread_t first;  // a sanitizer starts a thread of its own beside the first one
  CHECK(!pthread_create(&first, NULL, nothing, NULL) && !pthread_join(first, NULL));
  int files = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
  px_store *store;
  px_comm *comm;
  OK(px_store_file(&store, path));
  OK(px_comm_new(&comm, &(px_comm_options){"gloo", store, rank, RANKS, FAR_MS}));
  OK(px_comm_monitored_barrier(comm, FAR_MS, true));
  if (rank == of->victim)
    be_struck(comm, of);
  else
    survive(comm, of);
  px_release(comm);
  px_release(store);
  CHECK_EQ(px_live_objects("work"), 0);
  CHECK_EQ(px_live_objects("comm"), 0);
  CHECK_EQ(px_live_objects("store"), 0);
  CHECK_EQ(px_live_objects("tensor"), 0);
  CHECK_EQ(count_entries("/proc/self/fd"), files);
  // The system may show a thread for a moment after it was joined.
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

// Of a process that waits for its ranks: 0 if all survivors ended as they should.
static int run_case(const incident *of) {
  char path[] = "/tmp/phlox-faults-XXXXXX";
  pid_t ranks[RANKS];
  int status, bad = 0;
  CHECK(mkstemp(path) >= 0);
  for (int r = 0; r < RANKS; r++) {
    if ((ranks[r] = fork())) continue;
    be_rank(path, r, of);
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
  if (bad)
    fprintf(stderr, "%s of rank %d, moment %d of %s: %d ranks did not end as they should\n",
            of->fault->name, of->victim, of->moment, name_of(of->op), bad);
  return bad != 0;
}

static int reap(int *running) {
  int status;
  if (waitpid(-1, &status, 0) > 0) --*running;
  return status != 0;
}

static void try_fault(const fault *what) {
  int bad = 0, running = 0;
  bool all = getenv("LONG") != NULL;
  if (!px_engine_available("gloo")) SKIP("the gloo engine is not built");
  char limit[16];
  snprintf(limit, sizeof limit, "%d", HEARTBEAT_MS);
  setenv("PHLOX_HEARTBEAT_TIMEOUT", limit, 1);
  for (int i = 0; i < OPS * RANKS * MOMENTS; i++) {
    // Each collective once, each with another rank and moment.
    if (!all && i % (RANKS * MOMENTS) != i / (RANKS * MOMENTS) % (RANKS * MOMENTS)) continue;
    incident of = {what, (px_collective_op)(i / (RANKS * MOMENTS)), i % RANKS,
                   (moment)(i / RANKS % MOMENTS)};
    if (what->wrong_size && of.op == PX_BARRIER) of.op = PX_ALL_REDUCE;
    if (running == (all ? 3 : 1) * AT_ONCE) bad += reap(&running);
    running++;
    if (fork() == 0) _exit(run_case(&of));
  }
  while (running) bad += reap(&running);
  CHECK_EQ(bad, 0);
}

// ---- faults

static void be_killed(px_comm *comm) { raise(SIGKILL); }
static void be_stopped(px_comm *comm) { raise(SIGSTOP); }
static void be_slow(px_comm *comm) { usleep(3 * NEAR_MS * 1000); }

// As when the network goes: every connection of the process ends.
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
  return names_victim(text, of, "the connection of rank ", " has ended");
}
// Rank 0, which is cut off from one rank first, tells the other one of that.
static bool says_cut(const char *text, const incident *of) {
  return says_ended(text, of) || (of->victim == 0 && strstr(text, "the connection of rank "));
}
static bool says_silent(const char *text, const incident *of) {
  return names_victim(text, of, "rank ", " has given no sign of life for 3000 ms");
}
static bool says_late(const char *text, const incident *of) {
  if (of->op == PX_SEND && strstr(text, "Timed out"))
    return names_victim(text, of, "from rank ", "") || names_victim(text, of, "to rank ", "");
  return names_victim(text, of, "rank ", " has not called number") || strstr(text, "ranks ");
}
static bool says_both_calls(const char *text, const incident *of) {
  char two[80];
  // Where it is rank 0 that differs, any other one may be named beside it.
  bool second = of->victim == 0 && strstr(text, "rank 2 called ");
  snprintf(two, sizeof two, "rank %d called ", of->victim ? of->victim : second ? 2 : 1);
  if (of->op == PX_SEND && !strstr(text, two)) return strstr(text, "send") || strstr(text, "recv");
  // How a rank cuts what it sends to all is its own: what does not fit is told.
  if (of->op == PX_ALL_TO_ALL && strstr(text, "bytes, where")) return strstr(text, "are awaited");
  return strstr(text, two) && strstr(text, "and rank 0 called ");
}

PX_TEST(a_rank_that_is_killed_is_named) {
  try_fault(&(fault){"kill", be_killed, .timeout_ms = FAR_MS, .named = says_ended});
}
PX_TEST(a_rank_that_is_stopped_is_named) {
  try_fault(&(fault){"stop", be_stopped, .timeout_ms = FAR_MS, .named = says_silent});
}
PX_TEST(a_rank_that_is_cut_off_is_named) {
  try_fault(&(fault){"cut", be_cut_off, .timeout_ms = FAR_MS, .named = says_cut});
}
PX_TEST(a_rank_that_is_slow_is_named) {
  try_fault(&(fault){"slow", be_slow, .timeout_ms = NEAR_MS, .named = says_late});
}
PX_TEST(a_rank_that_calls_with_another_size_is_named_with_both_calls) {
  try_fault(&(fault){"size", .wrong_size = true, .timeout_ms = 5000, .named = says_both_calls});
}
PX_TEST(a_rank_that_calls_in_another_order_is_named_with_both_calls) {
  try_fault(&(fault){"order", .wrong_op = true, .timeout_ms = 5000, .named = says_both_calls});
}
