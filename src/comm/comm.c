// SPDX-License-Identifier: Apache-2.0
// Communicators: joining, leaving, and the thread of host collectives.
#include "comm/comm_impl.h"
#include "phlox/autograd.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ---- the thread

static void *run_queue(void *argument) {
  px_comm *self = argument;
  px_grad_set_enabled(false);
  pthread_mutex_lock(&self->lock);
  for (;;) {
    while (!self->first && !self->ends) pthread_cond_wait(&self->changed, &self->lock);
    if (!self->first) break;
    px__work_run_first(self);
  }
  pthread_mutex_unlock(&self->lock);
  return NULL;
}

static px_status begin_on_host(px_comm *self, px_work *work) {
  pthread_mutex_lock(&self->lock);
  px_status status = PX_OK;
  if (!self->has_thread) status = px_thread_start(&self->thread, run_queue, self);
  if (status == PX_OK) {
    self->has_thread = true;
    work->on_thread = true;
    work->thread = self->thread;
    px_retain(work);
    if (self->last)
      self->last->next = work;
    else
      self->first = work;
    self->last = work;
    self->on_host++;
    pthread_cond_broadcast(&self->changed);
  }
  pthread_mutex_unlock(&self->lock);
  return status;
}

static bool on_own_thread(const px_comm *self) {
  return self->has_thread && pthread_equal(self->thread, pthread_self());
}

// Callbacks at the end of a work run on the communicator's own thread. It cannot wait for itself
// and runs the queued works instead.
px_status px_comm_synchronize(px_comm *self) {
  PX_GIVEN(self);
  px_status status = PX_OK;
  if (self->owner != getpid()) return PX_OK;
  pthread_mutex_lock(&self->lock);
  while (on_own_thread(self) && self->first) px__work_run_first(self);
  while (!on_own_thread(self) && self->on_host && status == PX_OK) {
    px_interrupt_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    status = px_interrupt_poll();
    pthread_mutex_lock(&self->lock);
  }
  pthread_mutex_unlock(&self->lock);
  PX_TRY(status);
  px__works_reap(self, true);
  return PX_OK;
}

static px_status begin_pair(px_comm *self, px_work *work) {
  char why[PX__REASON] = "";
  PX_TRY(px__work_gather(work));
  if (!self->engine->start(&work->pending, self->joined, &work->call, why, sizeof why))
    return PX_OK;
  return px__work_break_group(work, self, why);
}

static px_status check_operands(const px_collective *collective) {
  PX_GIVEN_N(collective->inputs, collective->input_count);
  PX_GIVEN_N(collective->outputs, collective->output_count);
  return PX_OK;
}

static px_status begin_single(px_work **out, px_comm *self, const px_collective *collective) {
  PX_SCOPED(px_work) work = NULL;
  PX_TRY(px__work_new(&work, self, collective));
  if (work->device.type == PX_CUDA)
    PX_TRY(px__begin_on_device(self, work));
  else
    PX_TRY(px__is_p2p(collective->op) ? begin_pair(self, work) : begin_on_host(self, work));
  *out = PX_MOVE(work);
  return PX_OK;
}

px_status px_comm_run_all(px_work **works, px_comm *self, const px_collective *collectives,
                          int count) {
  PX_GIVEN_N(works, count);
  PX_GIVEN(self);
  PX_GIVEN_N(collectives, count);
  px_status status = PX_OK;
  if (count) memset(works, 0, (size_t)count * sizeof *works);
  for (int i = 0; i < count && status == PX_OK; i++) status = check_operands(&collectives[i]);
  if (status == PX_OK && self->queues)
    status = px__begin_on_stream(works, self, collectives, count);
  else
    for (int i = 0; i < count && status == PX_OK; i++)
      status = begin_single(&works[i], self, &collectives[i]);
  for (int i = 0; i < count && status != PX_OK; i++) px_release(works[i]), works[i] = NULL;
  return status;
}

px_status px_comm_run(px_work **out, px_comm *self, const px_collective *collective) {
  PX_SCOPED(px_work) work = NULL;
  PX_GIVEN(collective);
  PX_TRY(px_comm_run_all(&work, self, collective, 1));
  if (out) *out = PX_MOVE(work);
  return PX_OK;
}

// ---- joining and leaving

int px_comm_rank(const px_comm *self) { return self->rank; }
int px_comm_size(const px_comm *self) { return self->size; }
int64_t px_comm_timeout(const px_comm *self) { return self->timeout_ms; }
bool px_comm_queues(const px_comm *self) { return self->queues; }

void px_comm_abort(px_comm *self) {
  pthread_mutex_lock(&self->lock);
  if (!self->broken[0]) snprintf(self->broken, sizeof self->broken, "it was aborted");
  self->aborted = true;
  pthread_mutex_unlock(&self->lock);
  if (self->watch) px__watchdog_failed(self->watch, 0, "the group was aborted");
  px__works_abort(self, "it was aborted");
  if (self->joined) self->engine->abort(self->joined);
}

static void *leave(void *object) {
  px_comm *self = object;
  if (self->has_thread) pthread_join(self->thread, NULL);
  px__works_reap(self, true);
  px__watchdog_end(self->watch);
  px_release(self->streams[0]);
  px_release(self->streams[1]);
  if (self->joined) self->engine->close(self->joined);
  px_release(self->store);
  px_free(self->engine_name);
  pthread_cond_destroy(&self->changed);
  pthread_mutex_destroy(&self->lock);
  pthread_mutex_destroy(&self->queueing);
  pthread_mutex_destroy(&self->works);
  px_object_end(self);
  px_free(self);
  return NULL;
}

static void comm_destroy(void *object) {
  px_comm *self = object;
  pthread_t other;
  if (self->owner != getpid()) return;  // a forked child: threads and resources are the parent's
  px__cluster_leave(self);
  pthread_mutex_lock(&self->lock);
  self->ends = true;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
  if (!on_own_thread(self)) {
    leave(self);
    return;
  }
  // A work's callback released the last reference. This thread cannot join itself.
  if (px_thread_start(&other, leave, self) == PX_OK)
    pthread_detach(other);
  else
    px_error_clear();
}

// Waits until all ranks have reached the store. A queueing engine joins only at its first call,
// once the device is known. The store detects missing ranks earlier.
static px_status await_all_ranks(px_comm *self) {
  const char *all = "all have come";
  int64_t arrived;
  PX_TRY(px_store_add(&arrived, self->store, "have come", 1));
  if (arrived == self->size) return px_store_set(self->store, all, "", 0);
  px_status status = px_store_wait(self->store, &all, 1, self->timeout_ms);
  PX_CHECK(status != PX_DIST_STORE, PX_DIST_BACKEND,
           "[Rank %d] cannot join a group of %d ranks: other ranks did not join within %lld ms",
           self->rank, self->size, (long long)self->timeout_ms);
  return status;
}

static px_status join(px_comm *self) {
  char why[PX__REASON] = "";
  PX_TRY(px_env_read("GLOO_SOCKET_IFNAME", &self->interface));
  if (!px__comm_detects(self)) PX_TRY(px__watchdog_start(&self->watch, self));
  if (self->watch && self->queues) PX_TRY(await_all_ranks(self));
  bool bad = !self->queues && px__comm_open(self, self->timeout_ms, why);
  PX_CHECK(!bad, PX_DIST_BACKEND, "[Rank %d] cannot join a group of %d ranks: %s", self->rank,
           self->size, why);
  return PX_OK;
}

px_status px_comm_new(px_comm **out, const px_comm_options *options) {
  static const px_class cls = {"comm", comm_destroy};
  PX_GIVEN(out);
  PX_GIVEN(options);
  PX_GIVEN(options->engine);
  PX_GIVEN(options->store);
  PX_CHECK(options->size > 0 && options->rank >= 0 && options->rank < options->size, PX_VALUE,
           "rank %d is not in a group of %d", options->rank, options->size);
  const px_engine *engine;
  // Threads as ranks always use the simulator's engine.
  PX_TRY(px__engine_find(&engine, px_cluster_rank() < 0 ? options->engine : "sim"));
  px_comm *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  PX_SCOPED(px_comm) owned = self;
  px_object_init(self, &cls);
  pthread_mutex_init(&self->lock, NULL);
  pthread_mutex_init(&self->queueing, NULL);
  pthread_mutex_init(&self->works, NULL);
  pthread_cond_init(&self->changed, NULL);
  self->engine = engine;
  self->queues = PX__ENGINE_HAS(engine, queue);
  self->owner = getpid();
  self->rank = options->rank;
  self->size = options->size;
  self->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : 1800000;
  self->store = px_retain(options->store);
  PX_TRY(px_strdup(&self->engine_name, options->engine));
  PX_TRY(join(self));
  *out = PX_MOVE(owned);
  return PX_OK;
}

px_status px_comm_split(px_comm **out, px_comm *self, const char *name, const int *ranks, int count,
                        int64_t timeout_ms) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(name);
  PX_GIVEN_N(ranks, count);
  int mine = -1;
  *out = NULL;
  for (int i = 0; i < count; i++) {
    PX_CHECK(ranks[i] >= 0 && ranks[i] < self->size, PX_VALUE, "rank %d is not in a group of %d",
             ranks[i], self->size);
    for (int j = 0; j < i; j++)
      PX_CHECK(ranks[i] != ranks[j], PX_VALUE, "rank %d is listed twice", ranks[i]);
    if (ranks[i] == self->rank) mine = i;
  }
  if (mine < 0) return PX_OK;
  PX_SCOPED(px_store) store = NULL;
  PX_TRY(px_store_prefix(&store, name, self->store));
  return px_comm_new(
      out, &(px_comm_options){.engine = self->engine_name,
                              .store = store,
                              .rank = mine,
                              .size = count,
                              .timeout_ms = timeout_ms > 0 ? timeout_ms : self->timeout_ms});
}

// ---- monitored_barrier: implemented over the store, so it names missing ranks under any engine

static px_status missing_ranks(px_comm *self, uint64_t number, int64_t timeout_ms, bool all) {
  char key[64], list[256] = "";
  int missing = 0;
  int64_t end = px__now_ms() + timeout_ms;
  size_t at = 0;
  for (int r = 1; r < self->size && (all || !missing); r++) {
    const char *keys[] = {key};
    int64_t left = end - px__now_ms();
    snprintf(key, sizeof key, "monitored/%llu/%d", (unsigned long long)number, r);
    px_status status = px_store_wait(self->store, keys, 1, left > 1 ? left : 1);
    if (status != PX_DIST_STORE) PX_TRY(status);
    if (status == PX_OK || at >= sizeof list) continue;
    at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", missing++ ? ", " : "", r);
  }
  px_error_clear();
  PX_CHECK(!missing, PX_RUNTIME, "[Rank 0]: Rank%s %s failed to pass monitoredBarrier in %lld ms",
           missing > 1 ? "s" : "", list, (long long)timeout_ms);
  return PX_OK;
}

px_status px_comm_monitored_barrier(px_comm *self, int64_t timeout_ms, bool all) {
  PX_GIVEN(self);
  char key[64], own[64];
  const char *keys[] = {key};
  if (timeout_ms <= 0) timeout_ms = self->timeout_ms;
  pthread_mutex_lock(&self->lock);
  uint64_t number = ++self->barriers;
  pthread_mutex_unlock(&self->lock);
  snprintf(key, sizeof key, "monitored/%llu/all", (unsigned long long)number);
  snprintf(own, sizeof own, "monitored/%llu/%d", (unsigned long long)number, self->rank);
  if (self->rank == 0) {
    PX_TRY(missing_ranks(self, number, timeout_ms, all));
    return px_store_set(self->store, key, "1", 1);
  }
  PX_TRY(px_store_set(self->store, own, "1", 1));
  px_status status = px_store_wait(self->store, keys, 1, timeout_ms);
  PX_CHECK(status == PX_OK || status != PX_DIST_STORE, PX_RUNTIME,
           "Rank %d successfully reached monitoredBarrier, but received errors while waiting for "
           "send/recv from rank 0. Please check rank 0 logs for faulty rank.",
           self->rank);
  return status;
}
