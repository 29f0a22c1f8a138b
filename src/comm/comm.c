// SPDX-License-Identifier: Apache-2.0
// Communicators: joining, the thread that runs collectives of host memory in order, and the streams
// that run those of simulated devices.
#include "comm/comm_impl.h"
#include "phlox/autograd.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ---- what an engine asks of the store

static int answer(px_status status, char *why, size_t room) {
  if (status == PX_OK) return 0;
  snprintf(why, room, "%s", px_error_last()->message);
  px_error_clear();
  return 1;
}

static int job_set(void *store, const char *key, const void *value, size_t size, char *why,
                   size_t room) {
  px_comm *self = store;
  return answer(px_store_set(self->store, key, value, size), why, room);
}

// The value of a key, unless the group ends before all have joined.
static px_status await_key(void **value, size_t *size, px_comm *self, const char *key) {
  enum { SLICE_MS = 200 };
  int64_t end = px__now_ms() + self->timeout_ms;
  px_status status;
  while ((status = px_store_wait(self->store, &key, 1, SLICE_MS)) == PX_DIST_STORE) {
    pthread_mutex_lock(&self->lock);
    bool broken = self->broken[0];
    pthread_mutex_unlock(&self->lock);
    PX_CHECK(!broken, PX_DIST_BACKEND, "%s", self->broken);
    if (px__now_ms() >= end) break;
  }
  PX_TRY(status);
  px_error_clear();
  return px_store_get(value, size, self->store, key);
}

static int job_get(void *store, const char *key, void **value, size_t *size, char *why,
                   size_t room) {
  return answer(await_key(value, size, store, key), why, room);
}

// ---- the thread

static void *work_off(void *argument) {
  px_comm *self = argument;
  px_grad_set_enabled(false);
  pthread_mutex_lock(&self->lock);
  for (;;) {
    while (!self->first && !self->ends) pthread_cond_wait(&self->changed, &self->lock);
    px_work *work = self->first;
    if (!work) break;
    self->first = work->next;
    if (!self->first) self->last = NULL;
    pthread_mutex_unlock(&self->lock);
    if (px__work_gather(work) != PX_OK)
      px__work_fail(work);
    else
      px__work_run(work, self);
    if (!work->error && px__work_spread(work) != PX_OK) px__work_fail(work);
    px__work_done(work);
    px_release(work);
    pthread_mutex_lock(&self->lock);
  }
  pthread_mutex_unlock(&self->lock);
  return NULL;
}

static px_status begin_on_host(px_comm *self, px_work *work) {
  pthread_mutex_lock(&self->lock);
  px_status status = PX_OK;
  if (!self->has_thread) status = px_thread_start(&self->thread, work_off, self);
  if (status == PX_OK) {
    self->has_thread = true;
    px_retain(work);
    if (self->last)
      self->last->next = work;
    else
      self->first = work;
    self->last = work;
    pthread_cond_signal(&self->changed);
  }
  pthread_mutex_unlock(&self->lock);
  return status;
}

static px_status begin_pair(px_comm *self, px_work *work) {
  char why[PX__WHY] = "";
  PX_TRY(px__work_gather(work));
  if (!self->engine->start(&work->pending, self->joined, &work->call, why, sizeof why))
    return PX_OK;
  return px__work_refuse(work, self, why);
}

// ---- simulated devices

// On the stream's thread: it calls nothing of devices. What it used is released later (reap).
static void run_on_stream(void *argument) {
  px_work *work = argument;
  px__work_run(work, work->comm);
  if (work->error) px_device_fail(work->device, work->error);
  px__work_done(work);
}

// Waits for a work; what another one has left to be told is left.
static void wait_quietly(const px_work *work) {
  px_error why;
  if (px_event_synchronize(work->event) == PX_OK) return;
  px_error_take(&why);
  if (why.code == PX_DIST_BACKEND) px_device_fail(work->device, &why);
}

// Forgets works of devices that are over. `all` waits for them.
static void reap(px_comm *self, bool all) {
  px_work **at = &self->on_device;
  while (*at) {
    px_work *work = *at;
    if (all) wait_quietly(work);
    if (!all && !px_work_is_completed(work)) {
      at = &work->next;
      continue;
    }
    *at = work->next;
    px_release(work);
  }
}

static px_status stream_for(px_stream **out, px_comm *self, const px_work *work) {
  px_stream **stream = &self->streams[work->call.op != PX_RECV];
  PX_CHECK(!strcmp(px_device_backend(), "sim"), PX_UNIMPLEMENTED,
           "Phlox does not have collectives of tensors on GPUs yet, but on simulated devices and "
           "the CPU");
  if (!*stream) PX_TRY(px_stream_new(stream, work->device, 0));
  PX_CHECK(px_stream_device(*stream).index == work->device.index, PX_VALUE,
           "a group's tensors are on one device of a rank: cuda:%d, not cuda:%d",
           px_stream_device(*stream).index, work->device.index);
  *out = *stream;
  return PX_OK;
}

static px_status on_stream(px_work *work, px_stream *stream) {
  PX_TRY(px__work_gather(work));
  PX_TRY(px_event_new(&work->event, 0));
  PX_TRY(px_stream_host_call(stream, run_on_stream, work));
  px_status status = px__work_spread(work);
  px_status recorded = px_event_record(work->event, stream);
  return status != PX_OK ? status : recorded;
}

static px_status begin_on_device(px_comm *self, px_work *work) {
  px_stream *stream = NULL, *current;
  PX_TRY(stream_for(&stream, self, work));
  PX_TRY(px_stream_current(&current, work->device));
  PX_SCOPED(px_stream) before = px_retain(current);
  PX_TRY(px_stream_wait_stream(stream, before));
  PX_TRY(px_stream_set_current(stream));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = on_stream(work, stream);
  px_grad_set_enabled(was);
  px_status back = px_stream_set_current(before);
  // From its start on, the stream has the work, whatever failed after.
  if (work->event) {
    reap(self, false);
    work->next = self->on_device;
    self->on_device = px_retain(work);
  }
  return status != PX_OK ? status : back;
}

px_status px_comm_run(px_work **out, px_comm *self, const px_collective *collective) {
  PX_GIVEN(self);
  PX_GIVEN(collective);
  PX_GIVEN_N(collective->inputs, collective->input_count);
  PX_GIVEN_N(collective->outputs, collective->output_count);
  PX_SCOPED(px_work) work = NULL;
  bool pairs = collective->op == PX_SEND || collective->op == PX_RECV;
  PX_TRY(px__work_new(&work, self, collective));
  if (work->device.type == PX_CUDA)
    PX_TRY(begin_on_device(self, work));
  else
    PX_TRY(pairs ? begin_pair(self, work) : begin_on_host(self, work));
  if (out) *out = PX_MOVE(work);
  return PX_OK;
}

// ---- joining and leaving

int px_comm_rank(const px_comm *self) { return self->rank; }
int px_comm_size(const px_comm *self) { return self->size; }
int64_t px_comm_timeout(const px_comm *self) { return self->timeout_ms; }

void px_comm_abort(px_comm *self) {
  pthread_mutex_lock(&self->lock);
  if (!self->broken[0]) snprintf(self->broken, sizeof self->broken, "it was aborted");
  self->aborted = true;
  pthread_mutex_unlock(&self->lock);
  if (self->watch) px__watch_failed(self->watch, 0, "the group was aborted");
  self->engine->abort(self->joined);
}

static void comm_destroy(void *object) {
  px_comm *self = object;
  if (self->owner != getpid()) return;  // its threads, and what they hold, are the parent's
  pthread_mutex_lock(&self->lock);
  self->ends = true;
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->lock);
  if (self->has_thread) pthread_join(self->thread, NULL);
  reap(self, true);
  px__watch_end(self->watch);
  px_release(self->streams[0]);
  px_release(self->streams[1]);
  if (self->joined) self->engine->close(self->joined);
  px_release(self->store);
  px_free(self->engine_name);
  pthread_cond_destroy(&self->changed);
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

static px_status join(px_comm *self) {
  char why[PX__WHY] = "";
  const char *interface = NULL;
  PX_TRY(px_env_read("GLOO_SOCKET_IFNAME", &interface));
  PX_TRY(px__watch_start(&self->watch, self));
  px_engine_job job = {.rank = self->rank,
                       .size = self->size,
                       .timeout_ms = self->timeout_ms,
                       .interface = interface,
                       .store = self,
                       .set = job_set,
                       .get = job_get,
                       .release = px_free};
  int64_t before = px_store_timeout(self->store);
  px_store_set_timeout(self->store, self->timeout_ms);
  void *joined = NULL;
  int bad = self->engine->open(&joined, &job, why, sizeof why);
  px_store_set_timeout(self->store, before);
  pthread_mutex_lock(&self->lock);
  self->joined = joined;
  if (self->broken[0]) bad = 1, snprintf(why, sizeof why, "%s", self->broken);
  pthread_mutex_unlock(&self->lock);
  PX_CHECK(!bad, PX_DIST_BACKEND, "[Rank %d] cannot join a group of %d ranks: %s", self->rank,
           self->size, why);
  return PX_OK;
}

static px_status copy_text(char **out, const char *text) {
  PX_TRY(px_alloc((void **)out, strlen(text) + 1));
  memcpy(*out, text, strlen(text));
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
  PX_TRY(px__engine_find(&engine, options->engine));
  px_comm *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  PX_SCOPED(px_comm) owned = self;
  px_object_init(self, &cls);
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->changed, NULL);
  self->engine = engine;
  self->owner = getpid();
  self->rank = options->rank;
  self->size = options->size;
  self->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : 1800000;
  self->store = px_retain(options->store);
  PX_TRY(copy_text(&self->engine_name, options->engine));
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
      PX_CHECK(ranks[i] != ranks[j], PX_VALUE, "rank %d is given twice", ranks[i]);
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

// ---- monitored_barrier: by the store, so that it tells who is missing whatever the engine does

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
