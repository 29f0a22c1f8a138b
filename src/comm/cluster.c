// SPDX-License-Identifier: Apache-2.0
// Simulated clusters: ranks as threads of this process, with an optional seeded death of one rank.
#include <stdio.h>
#include <string.h>

#include "comm/comm_impl.h"
#include "phlox/device.h"
#include "phlox/extend.h"
#include "phlox/random.h"

typedef struct cluster cluster;
typedef struct member {
  cluster *of;
  int rank;
  pthread_t thread;
  bool runs;
  pthread_t self;  // the rank's thread; valid while `here`
  bool here;       // atomic
  px_status status;
  px_error error;
  int meetings;   // prefix stores handed out
  int64_t calls;  // collectives begun
  bool dead;
} member;
struct cluster {
  int ranks;
  px_cluster_function function;
  void *argument;
  px_store *store;
  int victim;  // -1: none
  int64_t death;
  const px_engine *engine;
  bool interrupted;  // atomic
  pthread_mutex_t lock;
  pthread_cond_t rank_ended;  // signalled when a rank ends
  int running;                // guarded by `lock`
  member members[];
};
static cluster *running;  // atomic; at most one at a time

// Returns the rank of the calling thread: its own member, else the member of its current
// device.
static member *current_member(void) {
  cluster *self = __atomic_load_n(&running, __ATOMIC_ACQUIRE);
  if (!self) return NULL;
  for (int r = 0; r < self->ranks; r++)
    if (__atomic_load_n(&self->members[r].here, __ATOMIC_ACQUIRE) &&
        pthread_equal(self->members[r].self, pthread_self()))
      return &self->members[r];
  int device = px_device_peek();
  return device < self->ranks ? &self->members[device] : NULL;
}

int px_cluster_rank(void) {
  const member *self = current_member();
  return self ? self->rank : -1;
}
int px_cluster_size(void) {
  const member *self = current_member();
  return self ? self->of->ranks : 0;
}
px_store *px_cluster_store(void) {
  const member *self = current_member();
  return self ? self->of->store : NULL;
}

px_status px_cluster_next_store(px_store **out) {
  char name[32];
  PX_GIVEN(out);
  member *self = current_member();
  PX_CHECK(self, PX_RUNTIME, "this thread is not a rank of a simulated cluster");
  snprintf(name, sizeof name, "meeting/%d", self->meetings++);
  return px_store_prefix(out, name, self->of->store);
}

// ---- interrupts

// Fails on a rank of an interrupted cluster.
static px_status poll_interrupt(void) {
  const member *self = current_member();
  bool over = self && __atomic_load_n(&self->of->interrupted, __ATOMIC_ACQUIRE);
  PX_CHECK(!over, PX_DIST_BACKEND, "[Rank %d] the simulated cluster was interrupted", self->rank);
  return PX_OK;
}

// Ends all waits of ranks: the engine fails their calls, and other waits poll `poll_interrupt`.
static void interrupt(cluster *self) {
  __atomic_store_n(&self->interrupted, true, __ATOMIC_RELEASE);
  self->engine->cluster(-1);
}

// Waits for all ranks. An interrupt of the calling thread ends them and is returned as its error.
static px_status await_ranks(cluster *self) {
  px_status status = PX_OK;
  px_error why;
  pthread_mutex_lock(&self->lock);
  while (self->running) {
    px_interrupt_wait(&self->rank_ended, &self->lock);
    pthread_mutex_unlock(&self->lock);
    px_status polled = px_interrupt_poll();
    if (polled != PX_OK && status != PX_OK) px_error_clear();
    if (polled != PX_OK && status == PX_OK) px_error_take(&why), status = polled;
    if (polled != PX_OK) interrupt(self);
    pthread_mutex_lock(&self->lock);
  }
  pthread_mutex_unlock(&self->lock);
  return status == PX_OK ? PX_OK : px_error_give(&why);
}

// ---- deaths

void px__cluster_leave(px_comm *comm) {
  char why[PX__REASON];
  const member *self = current_member();
  if (!px__comm_detects(comm) || !comm->joined) return;
  pthread_mutex_lock(&comm->lock);
  uint64_t last = comm->number;
  pthread_mutex_unlock(&comm->lock);
  if (self && self->dead)
    snprintf(why, sizeof why, "lost the connection to rank %d: its process may have ended",
             comm->rank);
  else
    snprintf(why, sizeof why, "rank %d has left the group after its call number %llu", comm->rank,
             (unsigned long long)last);
  comm->engine->fail(comm->joined, last + 1, why);
}

px_status px__cluster_enter(px_comm *comm, px_collective_op op) {
  member *self = current_member();
  if (self) PX_TRY(poll_interrupt());
  if (!self || self->of->victim != self->rank) return PX_OK;
  if (!px__is_p2p(op)) self->calls++;
  if (!self->dead && self->calls < self->of->death) return PX_OK;
  self->dead = true;
  px__cluster_leave(comm);
  PX_FAIL(PX_DIST_BACKEND,
          "[Rank %d] has died at its collective number %lld (PHLOX_SIM_DEATH, PHLOX_SIM_SEED)",
          self->rank, (long long)self->of->death);
}

// Mixes all bits of a seed (splitmix64).
static uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static px_status choose_victim(cluster *self) {
  int64_t max_calls, seed;
  self->victim = -1;
  PX_TRY(px_env_read("PHLOX_SIM_DEATH", &max_calls));
  PX_TRY(px_env_read("PHLOX_SIM_SEED", &seed));
  if (!max_calls) return PX_OK;
  self->victim = (int)(mix((uint64_t)seed) % (uint64_t)self->ranks);
  self->death = 1 + (int64_t)(mix(mix((uint64_t)seed)) % (uint64_t)max_calls);
  return PX_OK;
}

// ---- running

// Runs one rank with its own random generator, as a process would have.
static px_status rank_main(member *self) {
  PX_SCOPED(px_generator) drawn = NULL;
  PX_TRY(px_generator_new(&drawn, (px_device){PX_CPU, -1}));
  PX_TRY(px_device_set(self->rank));
  px_random_isolate(drawn, self->rank);
  px_status status = self->of->function(self->rank, self->of->ranks, self->of->argument);
  px_random_isolate(NULL, 0);
  return status;
}

static void *run_rank(void *argument) {
  member *self = argument;
  self->self = pthread_self();
  __atomic_store_n(&self->here, true, __ATOMIC_RELEASE);
  self->status = rank_main(self);
  if (self->status != PX_OK) px_error_take(&self->error);
  __atomic_store_n(&self->here, false, __ATOMIC_RELEASE);
  pthread_mutex_lock(&self->of->lock);
  self->of->running--;
  pthread_cond_signal(&self->of->rank_ended);
  pthread_mutex_unlock(&self->of->lock);
  return NULL;
}

// Returns the root cause: a rank's own error takes precedence over PX_DIST_BACKEND
// errors, which follow from another rank's failure.
static px_status first_failure(const cluster *self) {
  const member *first = NULL;
  for (int r = 0; r < self->ranks; r++) {
    const member *current = &self->members[r];
    if (current->status == PX_OK) continue;
    bool better = first && first->status == PX_DIST_BACKEND && current->status != PX_DIST_BACKEND;
    if (!first || better) first = current;
  }
  if (!first) return PX_OK;
  PX_FAIL(first->error.code, "rank %d of %d failed: %s", first->rank, self->ranks,
          first->error.message);
}

static px_status run_all(cluster *self) {
  px_status status = PX_OK;
  for (int r = 0; r < self->ranks && status == PX_OK; r++) {
    member *rank = &self->members[r];
    rank->of = self;
    rank->rank = r;
    pthread_mutex_lock(&self->lock);
    status = px_thread_start(&rank->thread, run_rank, rank);
    rank->runs = status == PX_OK;
    self->running += rank->runs;
    pthread_mutex_unlock(&self->lock);
  }
  px_status interrupted = await_ranks(self);
  for (int r = 0; r < self->ranks; r++)
    if (self->members[r].runs) pthread_join(self->members[r].thread, NULL);
  for (int r = 0; r < self->ranks; r++) px_error_drop(&self->members[r].error);
  if (interrupted != PX_OK) return interrupted;
  return status == PX_OK ? first_failure(self) : status;
}

px_status px_cluster_run(int ranks, px_cluster_function function, void *argument) {
  PX_CHECK(function, PX_TYPE, "expected a function to run in the simulated cluster, got NULL");
  PX_CHECK(ranks > 0, PX_VALUE, "expected at least one rank in a simulated cluster, got %d", ranks);
  int count = strcmp(px_device_backend(), "sim") ? 0 : px_device_count(PX_CUDA);
  PX_CHECK(ranks <= count, PX_RUNTIME,
           "a simulated cluster of %d ranks requires %d simulated devices "
           "(PHLOX_SIM_DEVICES=%d), got %d",
           ranks, ranks, ranks, count);
  cluster *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self + (size_t)ranks * sizeof(member)));
  self->ranks = ranks;
  self->function = function;
  self->argument = argument;
  __atomic_store_n(&px__store_poll, poll_interrupt, __ATOMIC_RELAXED);
  cluster *none = NULL;
  if (!__atomic_compare_exchange_n(&running, &none, self, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    px_free(self);
    PX_FAIL(PX_RUNTIME, "a simulated cluster is already running; only one can run at a time");
  }
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->rank_ended, NULL);
  px_status status = px_store_memory(&self->store);
  if (status == PX_OK) status = choose_victim(self);
  if (status == PX_OK) status = px__engine_find(&self->engine, "sim");
  if (status == PX_OK) {
    self->engine->cluster(ranks);
    status = run_all(self);
    self->engine->cluster(0);
  }
  __atomic_store_n(&running, NULL, __ATOMIC_RELEASE);
  px_release(self->store);
  pthread_cond_destroy(&self->rank_ended);
  pthread_mutex_destroy(&self->lock);
  px_free(self);
  return status;
}
