// SPDX-License-Identifier: Apache-2.0
// A distributed job. Each node has an agent: the process that calls px_job_run. One agent serves
// the store shared by all agents and ranks. A round is one start of all ranks. It succeeds if the
// ranks of each agent do. On a failure the first agent to report it sets the verdict for all.
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/launch_impl.h"
#include "comm/store_impl.h"

enum {
  KEY = 64,          // bytes of a store key
  LEAVE_MS = 10000,  // wait of the serving agent for the others at the end
  STEP_MS = 20,      // polling interval of the store
  TURN_MS = 2000,    // one attempt to serve or to connect
  MAX_RANKS = 16384  // of a node; the ranks of 65536 nodes are an int
};

// The last handled signal received; 0: none.
static volatile sig_atomic_t caught_signal;
static atomic_flag busy = ATOMIC_FLAG_INIT;
static void on_signal(int signal) { caught_signal = signal; }

typedef struct agent {
  px__launch_plan plan;
  px_store *store;
  bool serves;
  px__launch_position position;
  px__launch_rank *ranks;
  px__guard guard;
  char folder[PX__LAUNCH_PATH], round_folder[PX__LAUNCH_PATH];
  bool own_folder;
} agent;

// ---- the store

static px_status interrupted(void) {
  PX_CHECK(!caught_signal, PX_RUNTIME, "phlox-run: the job was ended by signal %d (%s)",
           (int)caught_signal, px__signal_name(caught_signal));
  return px_interrupt_poll();
}

// Static rendezvous: node 0 serves the store. c10d: the first agent on the endpoint's host does. An
// agent that finds the port in use alternates between serving and connecting until the timeout,
// because the port's owner may be another program or an agent not listening yet.
static px_status open_store(px_store **out, agent *a, px_store_tcp_options *options) {
  bool any = a->plan.node < 0 && px__host_is_here(options->host);
  px_status status = PX_DIST_NETWORK;
  for (int64_t end = px__now_ms() + a->plan.join_ms; status == PX_DIST_NETWORK;) {
    a->serves = options->serve = any ? !a->serves : a->plan.node == 0;
    int64_t left = end - px__now_ms();
    options->timeout_ms = left < 1 ? 1 : left < TURN_MS ? left : TURN_MS;
    status = px_store_tcp(out, options);
    if ((!any && a->serves) || px__now_ms() >= end) break;
    if (status == PX_DIST_NETWORK) PX_TRY(interrupted());
  }
  if (status == PX_OK) px_store_set_timeout(*out, a->plan.join_ms);
  return status;
}

__attribute__((noinline)) static px_status join_rendezvous(agent *a) {
  px__launch_plan *plan = &a->plan;
  PX_SCOPED(px_store) raw_store = NULL;
  px_store_tcp_options options = {.host = plan->host, .port = plan->port};
  char prefix[PX__HOST];
  PX_TRY(open_store(&raw_store, a, &options));
  a->position = (px__launch_position){.host = plan->host, .nodes = plan->nodes};
  a->position.port = a->serves ? px_store_port(raw_store) : plan->port;
  snprintf(prefix, sizeof prefix, "torchrun/%.200s", plan->rdzv_id);
  return px_store_prefix(&a->store, prefix, raw_store);
}

static const char *key(char text[KEY], const char *what, int round, int node) {
  snprintf(text, KEY, "%s/%d/%d", what, round, node);
  return text;
}

// Waits for a key and returns its value as text.
static px_status await(char *out, size_t capacity, agent *a, const char *name) {
  void *value;
  size_t size;
  bool there = false;
  for (int64_t end = px__now_ms() + a->plan.join_ms; !there;) {
    PX_TRY(px_store_check(&there, a->store, &name, 1));
    PX_TRY(interrupted());
    PX_CHECK(there || px__now_ms() < end, PX_DIST_STORE,
             "phlox-run: %d nodes did not all join within %d s (%s)", a->plan.nodes,
             a->plan.join_ms / 1000, name);
    if (!there) usleep(STEP_MS * 1000);
  }
  PX_TRY(px_store_get(&value, &size, a->store, name));
  snprintf(out, capacity, "%.*s", (int)size, (const char *)value);
  px_free(value);
  return PX_OK;
}

// Exchanges the number of ranks of each node, and derives this node's rank numbers.
static px_status exchange_counts(agent *a) {
  char name[KEY], text[PX__HOST];
  px__launch_position *p = &a->position;
  snprintf(text, sizeof text, "%d %.200s", a->plan.local, a->plan.role);
  PX_TRY(px_store_set(a->store, key(name, "ranks", p->round, p->node), text, strlen(text)));
  p->rank = p->world = p->role_rank = p->role_world = 0;
  for (int node = 0; node < p->nodes; node++) {
    PX_TRY(await(text, sizeof text, a, key(name, "ranks", p->round, node)));
    char *role;
    long count = strtol(text, &role, 10);
    PX_CHECK(count > 0 && count <= MAX_RANKS, PX_DIST_STORE,
             "phlox-run: expected a number of ranks in [1, %d] of node %d, got '%.80s'", MAX_RANKS,
             node, text);
    bool same = *role && !strncmp(role + 1, a->plan.role, 200);
    int of_role = same ? (int)count : 0;
    if (node < p->node) p->rank += (int)count, p->role_rank += of_role;
    p->world += (int)count;
    p->role_world += of_role;
  }
  return PX_OK;
}

static px_status take_node_number(agent *a) {
  int64_t here = 0;
  a->position.node = a->plan.node;
  if (a->plan.node < 0) {
    PX_TRY(px_store_add(&here, a->store, "nodes", 1));
    a->position.node = here > 0 && here <= a->position.nodes ? (int)here - 1 : a->position.nodes;
  }
  PX_CHECK(a->position.node < a->position.nodes, PX_VALUE,
           "phlox-run: all %d nodes of the job have joined already", a->position.nodes);
  return PX_OK;
}

// ---- a round

static px_status make_folders(agent *a) {
  int length = (int)strlen(a->folder);
  if (!length) {
    const char *base =
        *a->plan.log_dir ? a->plan.log_dir : px__launch_variable(a->plan.given, "TMPDIR");
    a->own_folder = !*a->plan.log_dir;
    if (!base) base = "/tmp";
    (void)mkdir(base, 0777);
    length = snprintf(a->folder, sizeof a->folder, "%s/%.100s_XXXXXX", base, a->plan.rdzv_id);
    PX_CHECK(length + 64 < PX__LAUNCH_PATH && mkdtemp(a->folder), PX_IO,
             "phlox-run: cannot make a folder for logs in %s", base);
  }
  snprintf(a->round_folder, sizeof a->round_folder, "%.*s/attempt_%d", length, a->folder,
           a->position.round);
  PX_CHECK(mkdir(a->round_folder, 0777) == 0, PX_IO, "phlox-run: cannot make %s", a->round_folder);
  return PX_OK;
}

typedef enum verdict { NONE, DONE, AGAIN, FAILED } verdict;

// Reads the verdict. If there is none, sets it to `mine` unless that is NONE. *node: its author.
static px_status decide(verdict *out, int *node, agent *a, verdict mine) {
  char name[KEY], text[32] = "";
  void *value;
  size_t size;
  bool there;
  const char *at = key(name, "verdict", a->position.round, 0);
  *out = NONE;
  PX_TRY(px_store_check(&there, a->store, &at, 1));
  if (!there && mine == NONE) return PX_OK;
  if (mine != NONE) snprintf(text, sizeof text, "%d %d", (int)mine, a->position.node);
  PX_TRY(there ? px_store_get(&value, &size, a->store, at)
               : px_store_compare_set(&value, &size, a->store, at, NULL, 0, text, strlen(text)));
  snprintf(text, sizeof text, "%.*s", (int)size, (const char *)value);
  px_free(value);
  char *rest;
  long number = strtol(text, &rest, 10);
  PX_CHECK(number == DONE || number == AGAIN || number == FAILED, PX_DIST_STORE,
           "phlox-run: expected the verdict of a node, got '%s'", text);
  *out = (verdict)number;
  *node = (int)strtol(rest, NULL, 10);
  return PX_OK;
}

// Reports that this agent's ranks are done. The last agent sets the verdict.
static px_status report_done(agent *a, verdict *mine) {
  char name[KEY];
  int64_t done;
  PX_TRY(px_store_add(&done, a->store, key(name, "done", a->position.round, 0), 1));
  if (done == a->position.nodes) *mine = DONE;
  return PX_OK;
}

static px_status supervise(agent *a, verdict *out, int *node) {
  bool reported = false;
  int interval = a->plan.interval_ms < 1 ? 1 : a->plan.interval_ms;
  for (*out = NONE; *out == NONE;) {
    int running, failed;
    verdict mine = NONE;
    px__ranks_pump(a->ranks, a->plan.local, reported ? STEP_MS : interval < 50 ? interval : 50);
    px__ranks_reap(a->ranks, a->plan.local, &running, &failed);
    PX_TRY(interrupted());
    if (failed) mine = a->position.round < a->plan.restarts ? AGAIN : FAILED;
    if (!running && !failed && !reported) {
      PX_TRY(report_done(a, &mine));
      reported = true;
    }
    PX_TRY(decide(out, node, a, mine));
  }
  return PX_OK;
}

static px_status run_round(agent *a, verdict *out, int *node) {
  PX_TRY(exchange_counts(a));
  PX_TRY(make_folders(a));
  px_status status = px__ranks_start(a->ranks, &a->plan, &a->position, a->round_folder, &a->guard);
  return status == PX_OK ? supervise(a, out, node) : status;
}

// The serving agent waits until the others have read the verdict.
static void leave(agent *a) {
  char name[KEY];
  int64_t left = 0;
  const char *at = key(name, "left", 0, 0);
  px_status status = px_store_add(&left, a->store, at, a->serves ? 0 : 1);
  int64_t end = px__now_ms() + LEAVE_MS;
  while (a->serves && status == PX_OK && left < a->position.nodes - 1 && px__now_ms() < end &&
         !caught_signal) {
    usleep(STEP_MS * 1000);
    status = px_store_add(&left, a->store, at, 0);
  }
  if (status != PX_OK) px_error_clear();
}

static px_status end_round(agent *a, verdict outcome, int node) {
  int failed = 0;
  px__ranks_stop(a->ranks, a->plan.local, SIGTERM, a->plan.shutdown_ms);
  for (int i = 0; i < a->plan.local; i++) failed += a->ranks[i].failed;
  px_status status = PX_OK;
  if (outcome == FAILED && failed)
    status = px__launch_report(a->ranks, a->plan.local, a->plan.program[0]);
  else if (outcome == FAILED)
    status = px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__,
                          "phlox-run: ranks of node %d failed; those of node %d were ended", node,
                          a->position.node);
  // Keep logs and files named in the report. Otherwise leave nothing in a temporary folder.
  bool tidy = a->own_folder && outcome != FAILED;
  px__ranks_close(a->ranks, a->plan.local, tidy);
  if (tidy) (void)rmdir(a->round_folder);
  if (status != PX_OK || outcome != AGAIN) return status;
  return px_warn(PX_WARN_USER,
                 "phlox-run: ranks of node %d failed; restarting all ranks, %d restarts left", node,
                 a->plan.restarts - a->position.round - 1);
}

__attribute__((noinline)) static px_status run_job(agent *a) {
  verdict outcome = AGAIN;
  PX_TRY(take_node_number(a));
  for (a->position.round = 0; outcome == AGAIN; a->position.round++) {
    int node = 0;
    px_status status = run_round(a, &outcome, &node);
    if (status == PX_OK) {
      PX_TRY(end_round(a, outcome, node));
      continue;
    }
    // No verdict (signal, lost store, out of memory): set FAILED for the others if possible.
    px_error why;
    px_error_take(&why);
    px__ranks_stop(a->ranks, a->plan.local, caught_signal ? caught_signal : SIGTERM,
                   a->plan.shutdown_ms);
    px__ranks_close(a->ranks, a->plan.local, a->own_folder);
    if (a->own_folder && *a->round_folder) (void)rmdir(a->round_folder);
    if (why.code != PX_DIST_NETWORK && decide(&outcome, &node, a, FAILED) != PX_OK)
      px_error_clear();
    return px_error_give(&why);
  }
  return PX_OK;
}

__attribute__((noinline)) static px_status run_agent(agent *a) {
  PX_TRY(join_rendezvous(a));
  PX_TRY(px_alloc((void **)&a->ranks, (size_t)a->plan.local * sizeof *a->ranks));
  for (int i = 0; i < a->plan.local; i++)
    for (int k = 0; k < 2; k++) a->ranks[i].outputs[k].pipe = a->ranks[i].outputs[k].file = -1;
  PX_TRY(px__guard_start(&a->guard, a->plan.local, a->plan.shutdown_ms));
  px_status status = run_job(a);
  px_error why;
  if (status != PX_OK) px_error_take(&why);
  px__guard_end(&a->guard);
  if (status != PX_DIST_NETWORK) leave(a);
  if (a->own_folder && *a->folder) (void)rmdir(a->folder);
  return status == PX_OK ? PX_OK : px_error_give(&why);
}

px_status px_job_run(const px_job_options *options) {
  struct sigaction own = {.sa_handler = on_signal}, before[PX__SIGNALS];
  PX_GIVEN(options);
  PX_GIVEN_N(options->arguments, options->count);
  PX_GIVEN_N(options->interpreter, options->interpreter_count);
  agent *a;
  PX_TRY(px_alloc((void **)&a, sizeof *a));
  px_status status = px__launch_parse(&a->plan, options);
  if (status == PX_OK && !*a->plan.no_python && !options->interpreter_count)
    status = px_error_set(PX_VALUE, 0, __FILE__, __LINE__, __func__,
                          "px_job_run(): expected an interpreter, or --no-python");
  if (status == PX_OK && atomic_flag_test_and_set(&busy))
    status = px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__,
                          "px_job_run(): another job of this process is running");
  else if (status == PX_OK) {
    caught_signal = 0;
    sigemptyset(&own.sa_mask);
    for (int i = 0; i < a->plan.signal_count; i++)
      (void)sigaction(a->plan.signals[i], &own, &before[i]);
    status = run_agent(a);
    for (int i = 0; i < a->plan.signal_count; i++)
      (void)sigaction(a->plan.signals[i], &before[i], NULL);
    atomic_flag_clear(&busy);
  }
  px_release(a->store);
  px_free(a->ranks);
  px_free(a);
  return status;
}
