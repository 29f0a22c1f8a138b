// SPDX-License-Identifier: Apache-2.0
// Simulated clusters: ranks as threads of this process, and the one that the seed lets die.
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
  pthread_t self;  // the thread, once it is `here`
  bool here;       // atomic
  px_status status;
  px_error error;
  int meetings;   // that it was given
  int64_t calls;  // of collectives that it has begun
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
  pthread_cond_t left;  // a rank has
  int running;          // by `lock`
  member members[];
};
static cluster *running;  // atomic: there is one at a time

// The rank that a thread belongs to.
static member *own(void) {
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
  const member *self = own();
  return self ? self->rank : -1;
}
int px_cluster_size(void) {
  const member *self = own();
  return self ? self->of->ranks : 0;
}
px_store *px_cluster_store(void) {
  const member *self = own();
  return self ? self->of->store : NULL;
}

px_status px_cluster_next_store(px_store **out) {
  char name[32];
  PX_GIVEN(out);
  member *self = own();
  PX_CHECK(self, PX_RUNTIME, "this thread is no rank of a simulated cluster");
  snprintf(name, sizeof name, "meeting/%d", self->meetings++);
  return px_store_prefix(out, name, self->of->store);
}

// ---- interrupts

// Fails in a rank of a cluster that was interrupted.
static px_status poll_interrupt(void) {
  const member *self = own();
  bool over = self && __atomic_load_n(&self->of->interrupted, __ATOMIC_ACQUIRE);
  PX_CHECK(!over, PX_DIST_BACKEND, "[Rank %d] the simulated cluster was interrupted", self->rank);
  return PX_OK;
}

// What ranks wait for ends: their calls, which the engine fails, and what asks `poll`.
static void interrupt(cluster *self) {
  __atomic_store_n(&self->interrupted, true, __ATOMIC_RELEASE);
  self->engine->cluster(-1);
}

// Waits for all ranks. What interrupts the calling thread ends them, and is its error then.
static px_status await_ranks(cluster *self) {
  px_status status = PX_OK;
  px_error why;
  pthread_mutex_lock(&self->lock);
  while (self->running) {
    px_interrupt_wait(&self->left, &self->lock);
    pthread_mutex_unlock(&self->lock);
    px_status asked = px_interrupt_poll();
    if (asked != PX_OK && status != PX_OK) px_error_clear();
    if (asked != PX_OK && status == PX_OK) px_error_take(&why), status = asked;
    if (asked != PX_OK) interrupt(self);
    pthread_mutex_lock(&self->lock);
  }
  pthread_mutex_unlock(&self->lock);
  return status == PX_OK ? PX_OK : px_error_give(&why);
}

// ---- deaths

void px__cluster_parts(px_comm *comm) {
  char why[PX__WHY];
  const member *self = own();
  if (!px__comm_sees(comm) || !comm->joined) return;
  pthread_mutex_lock(&comm->lock);
  uint64_t last = comm->number;
  pthread_mutex_unlock(&comm->lock);
  if (self && self->dead)
    snprintf(why, sizeof why, "the connection of rank %d has ended, as it does with its process",
             comm->rank);
  else
    snprintf(why, sizeof why, "rank %d has left the group after its call number %llu", comm->rank,
             (unsigned long long)last);
  comm->engine->fail(comm->joined, last + 1, why);
}

px_status px__cluster_pass(px_comm *comm, px_collective_op op) {
  member *self = own();
  if (self) PX_TRY(poll_interrupt());
  if (!self || self->of->victim != self->rank) return PX_OK;
  if (!px__pairs_up(op)) self->calls++;
  if (!self->dead && self->calls < self->of->death) return PX_OK;
  self->dead = true;
  px__cluster_parts(comm);
  PX_FAIL(PX_DIST_BACKEND,
          "[Rank %d] has died at its collective number %lld, as PHLOX_SIM_DEATH and "
          "PHLOX_SIM_SEED say",
          self->rank, (long long)self->of->death);
}

// Spreads a seed over all bits.
static uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static px_status choose_victim(cluster *self) {
  int64_t most, seed;
  self->victim = -1;
  PX_TRY(px_env_read("PHLOX_SIM_DEATH", &most));
  PX_TRY(px_env_read("PHLOX_SIM_SEED", &seed));
  if (!most) return PX_OK;
  self->victim = (int)(mix((uint64_t)seed) % (uint64_t)self->ranks);
  self->death = 1 + (int64_t)(mix(mix((uint64_t)seed)) % (uint64_t)most);
  return PX_OK;
}

// ---- running

// A rank draws its own numbers, as a process does.
static px_status be_rank(member *self) {
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
  self->status = be_rank(self);
  if (self->status != PX_OK) px_error_take(&self->error);
  __atomic_store_n(&self->here, false, __ATOMIC_RELEASE);
  pthread_mutex_lock(&self->of->lock);
  self->of->running--;
  pthread_cond_signal(&self->of->left);
  pthread_mutex_unlock(&self->of->lock);
  return NULL;
}

// What one rank did wrong is told before what the others had of it.
static px_status first_failure(const cluster *self) {
  const member *first = NULL;
  for (int r = 0; r < self->ranks; r++) {
    const member *one = &self->members[r];
    if (one->status == PX_OK) continue;
    bool better = first && first->status == PX_DIST_BACKEND && one->status != PX_DIST_BACKEND;
    if (!first || better) first = one;
  }
  if (!first) return PX_OK;
  PX_FAIL(first->error.code, "rank %d of %d failed: %s", first->rank, self->ranks,
          first->error.message);
}

static px_status run_all(cluster *self) {
  px_status status = PX_OK;
  for (int r = 0; r < self->ranks && status == PX_OK; r++) {
    member *one = &self->members[r];
    one->of = self;
    one->rank = r;
    pthread_mutex_lock(&self->lock);
    status = px_thread_start(&one->thread, run_rank, one);
    one->runs = status == PX_OK;
    self->running += one->runs;
    pthread_mutex_unlock(&self->lock);
  }
  px_status interrupted = await_ranks(self);
  for (int r = 0; r < self->ranks; r++)
    if (self->members[r].runs) pthread_join(self->members[r].thread, NULL);
  if (interrupted != PX_OK) return interrupted;
  return status == PX_OK ? first_failure(self) : status;
}

px_status px_cluster_run(int ranks, px_cluster_function function, void *argument) {
  PX_CHECK(function, PX_TYPE, "a simulated cluster needs a function");
  PX_CHECK(ranks > 0, PX_VALUE, "a simulated cluster has at least one rank, not %d", ranks);
  int count = strcmp(px_device_backend(), "sim") ? 0 : px_device_count(PX_CUDA);
  PX_CHECK(ranks <= count, PX_RUNTIME,
           "a simulated cluster of %d ranks needs as many simulated devices "
           "(PHLOX_SIM_DEVICES=%d), and there are %d",
           ranks, ranks, count);
  cluster *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self + (size_t)ranks * sizeof(member)));
  self->ranks = ranks;
  self->function = function;
  self->argument = argument;
  __atomic_store_n(&px__store_asks, poll_interrupt, __ATOMIC_RELAXED);
  cluster *none = NULL;
  if (!__atomic_compare_exchange_n(&running, &none, self, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    px_free(self);
    PX_FAIL(PX_RUNTIME, "a simulated cluster is running: there is one at a time");
  }
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->left, NULL);
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
  pthread_cond_destroy(&self->left);
  pthread_mutex_destroy(&self->lock);
  px_free(self);
  return status;
}
