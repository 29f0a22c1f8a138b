// SPDX-License-Identifier: Apache-2.0
// Joining: the store callbacks of the engine, and early exit if the group fails first.
#include "comm/comm_impl.h"

#include <stdio.h>

static int status_code(px_status status, char *why, size_t size) {
  if (status == PX_OK) return 0;
  snprintf(why, size, "%s", px_error_last()->message);
  px_error_clear();
  return 1;
}

static int job_set(void *store, const char *key, const void *value, size_t size, char *why,
                   size_t why_size) {
  px_comm *self = store;
  return status_code(px_store_set(self->store, key, value, size), why, why_size);
}

// Waits for a key and returns its value. Fails early if the group fails before all have joined.
static px_status await_key(void **value, size_t *size, px_comm *self, const char *key) {
  enum { SLICE_MS = 200 };
  int64_t end = px__now_ms() + self->timeout_ms;
  px_status status;
  while ((status = px_store_wait(self->store, &key, 1, SLICE_MS)) == PX_DIST_STORE) {
    pthread_mutex_lock(&self->lock);
    bool broken = self->broken[0];
    pthread_mutex_unlock(&self->lock);
    PX_CHECK(!broken, PX_DIST_BACKEND, "%s", self->broken);
    PX_CHECK(px__now_ms() < end, PX_DIST_STORE, "wait timeout after %lldms, keys: /%s",
             (long long)self->timeout_ms, key);
  }
  PX_TRY(status);
  px_error_clear();
  return px_store_get(value, size, self->store, key);
}

static int job_get(void *store, const char *key, void **value, size_t *size, char *why,
                   size_t why_size) {
  return status_code(await_key(value, size, store, key), why, why_size);
}

static int job_over(void *store, char *why, size_t size) {
  px_comm *self = store;
  pthread_mutex_lock(&self->lock);
  bool over = self->broken[0];
  if (over) snprintf(why, size, "%s", self->broken);
  pthread_mutex_unlock(&self->lock);
  return over;
}

int px__comm_open(px_comm *self, int64_t timeout_ms, char why[PX__REASON]) {
  px_engine_job job = {.rank = self->rank,
                       .size = self->size,
                       .timeout_ms = timeout_ms,
                       .interface = self->interface,
                       .store = self,
                       .set = job_set,
                       .get = job_get,
                       .release = px_free,
                       .over = job_over};
  void *joined = NULL;
  int bad = self->engine->open(&joined, &job, why, PX__REASON);
  pthread_mutex_lock(&self->lock);
  self->joined = joined;
  if (self->broken[0]) bad = 1, snprintf(why, PX__REASON, "%s", self->broken);
  pthread_mutex_unlock(&self->lock);
  return bad;
}
