// SPDX-License-Identifier: Apache-2.0
// The public store functions, blocking waits, the in-memory store and the prefix store.
#include "comm/store_impl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SLICE_MS = 200 };  // interval of interrupt checks during a wait
px_status (*px__store_poll)(void);

int64_t px__now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static px__bytes text(const char *at) { return (px__bytes){at, strlen(at)}; }

static px_status request(px_store *self, px__store_request_kind kind, int64_t number, int count,
                         const px__bytes *items, px__response *response) {
  size_t total = 0;
  for (int i = 0; i < count; i++)
    PX_CHECK(!__builtin_add_overflow(total, items[i].size, &total) && total < PX__STORE_FRAME / 2,
             PX_DIST_STORE, "expected fewer than %d bytes of key and value", PX__STORE_FRAME / 2);
  return self->request(self, &(px__store_request){kind, number, count, items}, response);
}

int px_store_port(const px_store *self) { return self->port; }
// Atomic: ranks as threads may share one store.
int64_t px_store_timeout(const px_store *self) {
  return __atomic_load_n(&self->timeout_ms, __ATOMIC_RELAXED);
}
void px_store_set_timeout(px_store *self, int64_t milliseconds) {
  __atomic_store_n(&self->timeout_ms, milliseconds, __ATOMIC_RELAXED);
}

px_status px_store_set(px_store *self, const char *key, const void *value, size_t size) {
  PX_GIVEN(self);
  PX_GIVEN(key);
  PX_GIVEN_N(value, (int64_t)size);
  px__response response;
  return request(self, PX__REQUEST_SET, 0, 2, (px__bytes[]){text(key), {value, size}}, &response);
}

px_status px_store_add(int64_t *out, px_store *self, const char *key, int64_t amount) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(key);
  px__response response;
  PX_TRY(request(self, PX__REQUEST_ADD, amount, 1, (px__bytes[]){text(key)}, &response));
  *out = response.number;
  return PX_OK;
}

px_status px_store_compare_set(void **value, size_t *size, px_store *self, const char *key,
                               const void *expected, size_t expected_size, const void *desired,
                               size_t desired_size) {
  PX_GIVEN(value);
  PX_GIVEN(size);
  PX_GIVEN(self);
  PX_GIVEN(key);
  PX_GIVEN_N(expected, (int64_t)expected_size);
  PX_GIVEN_N(desired, (int64_t)desired_size);
  px__response response;
  const px__bytes items[] = {text(key), {expected, expected_size}, {desired, desired_size}};
  PX_TRY(request(self, PX__REQUEST_SWAP, 0, 3, items, &response));
  *value = response.value;
  *size = response.size;
  return PX_OK;
}

px_status px_store_delete(bool *out, px_store *self, const char *key) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(key);
  px__response response;
  PX_TRY(request(self, PX__REQUEST_DELETE, 0, 1, (px__bytes[]){text(key)}, &response));
  *out = response.number != 0;
  return PX_OK;
}

px_status px_store_num_keys(int64_t *out, px_store *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  px__response response;
  PX_TRY(request(self, PX__REQUEST_COUNT, 0, 0, NULL, &response));
  *out = response.number;
  return PX_OK;
}

// ---- waiting

static px_status await(bool *out, px_store *self, const char *const *keys, int count,
                       int64_t slice) {
  px__bytes *items;
  px__response response;
  PX_CHECK(count >= 0 && count < PX__STORE_KEYS, PX_DIST_STORE, "expected at most %d keys, got %d",
           PX__STORE_KEYS - 1, count);
  PX_GIVEN_EACH(keys, count);
  PX_TRY(px_alloc((void **)&items, ((size_t)count + 1) * sizeof *items));
  for (int i = 0; i < count; i++) items[i] = text(keys[i]);
  px_status status = request(self, PX__REQUEST_AWAIT, slice, count, items, &response);
  px_free(items);
  *out = status == PX_OK && response.number;
  return status;
}

static px_status timed_out(const char *const *keys, int count, int64_t timeout_ms) {
  char list[512] = "";
  size_t at = 0;
  for (int i = 0; i < count && at < sizeof list; i++)
    at += (size_t)snprintf(list + at, sizeof list - at, "%s/%s", i ? ", " : "", keys[i]);
  PX_FAIL(PX_DIST_STORE, "wait timeout after %lldms, keys: %s", (long long)timeout_ms, list);
}

px_status px_store_wait(px_store *self, const char *const *keys, int count, int64_t timeout_ms) {
  PX_GIVEN(self);
  PX_GIVEN_N(keys, count);
  if (timeout_ms <= 0) timeout_ms = px_store_timeout(self);
  int64_t end = px__now_ms() + timeout_ms, left;
  bool there = false;
  do {
    left = end - px__now_ms();
    PX_TRY(await(&there, self, keys, count, left < 0 ? 0 : left < SLICE_MS ? left : SLICE_MS));
    if (there) return PX_OK;
    PX_TRY(px_interrupt_poll());
    px_status (*polls)(void) = __atomic_load_n(&px__store_poll, __ATOMIC_RELAXED);
    if (polls) PX_TRY(polls());
  } while (left > 0);
  return timed_out(keys, count, timeout_ms);
}

px_status px_store_check(bool *out, px_store *self, const char *const *keys, int count) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN_N(keys, count);
  return await(out, self, keys, count, 0);
}

px_status px_store_get(void **value, size_t *size, px_store *self, const char *key) {
  PX_GIVEN(value);
  PX_GIVEN(size);
  PX_GIVEN(self);
  PX_GIVEN(key);
  px__response response = {0};
  // Another process may delete the key between the wait and the read.
  for (;;) {
    PX_TRY(request(self, PX__REQUEST_GET, 0, 1, (px__bytes[]){text(key)}, &response));
    if (response.number) break;
    PX_TRY(px_store_wait(self, &key, 1, 0));
  }
  *value = response.value;
  *size = response.size;
  return PX_OK;
}

// ---- in-memory store

typedef struct memory_store {
  px_store store;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  px__table table;  // guarded by `lock`
} memory_store;

static void wait_for_change(memory_store *self, int64_t milliseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += milliseconds / 1000;
  until.tv_nsec += milliseconds % 1000 * 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_cond_timedwait(&self->changed, &self->lock, &until);
}

static px_status memory_request(px_store *store, const px__store_request *request,
                                px__response *response) {
  memory_store *self = (memory_store *)store;
  pthread_mutex_lock(&self->lock);
  px_status status = px__table_apply(&self->table, request, response);
  if (request->kind == PX__REQUEST_AWAIT && status == PX_OK && !response->number &&
      request->number > 0) {
    wait_for_change(self, request->number);
    status = px__table_apply(&self->table, request, response);
  }
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
  return status;
}

static void memory_destroy(void *object) {
  memory_store *self = object;
  px__table_clear(&self->table);
  pthread_cond_destroy(&self->changed);
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

px_status px_store_memory(px_store **out) {
  static const px_class cls = {"store", memory_destroy};
  PX_GIVEN(out);
  memory_store *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  px_object_init(self, &cls);
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->changed, NULL);
  self->store.request = memory_request;
  self->store.timeout_ms = 300000;
  *out = &self->store;
  return PX_OK;
}

// ---- prefix store

typedef struct prefix_store {
  px_store store;
  px_store *base;
  size_t length;
  char prefix[];  // with a trailing slash
} prefix_store;

static bool is_key(const px__store_request *request, int i) {
  return request->kind == PX__REQUEST_AWAIT || i == 0;
}

static size_t prefixed_size(const prefix_store *self, const px__store_request *request) {
  size_t size = ((size_t)request->count + 1) * sizeof(px__bytes);
  for (int i = 0; i < request->count; i++)
    if (is_key(request, i)) size += self->length + request->items[i].size;
  return size;
}

static px_status prefix_request(px_store *store, const px__store_request *request,
                                px__response *response) {
  prefix_store *self = (prefix_store *)store;
  px__bytes *items;
  PX_TRY(px_alloc((void **)&items, prefixed_size(self, request)));
  char *at = (char *)(items + request->count + 1);
  for (int i = 0; i < request->count; i++) {
    items[i] = request->items[i];
    if (!is_key(request, i)) continue;
    memcpy(at, self->prefix, self->length);
    if (items[i].size) memcpy(at + self->length, items[i].at, items[i].size);
    items[i] = (px__bytes){at, self->length + items[i].size};
    at += items[i].size;
  }
  px__store_request inner = {request->kind, request->number, request->count, items};
  px_status status = self->base->request(self->base, &inner, response);
  px_free(items);
  return status;
}

static void prefix_destroy(void *object) {
  prefix_store *self = object;
  px_release(self->base);
  px_object_end(self);
  px_free(self);
}

px_status px_store_prefix(px_store **out, const char *prefix, px_store *store) {
  static const px_class cls = {"store", prefix_destroy};
  PX_GIVEN(out);
  PX_GIVEN(prefix);
  PX_GIVEN(store);
  prefix_store *self;
  size_t length = strlen(prefix);
  PX_TRY(px_alloc((void **)&self, sizeof *self + length + 2));
  px_object_init(self, &cls);
  memcpy(self->prefix, prefix, length);
  self->prefix[length] = '/';
  self->length = length + 1;
  self->base = px_retain(store);
  self->store.request = prefix_request;
  self->store.timeout_ms = px_store_timeout(store);
  self->store.port = store->port;
  *out = &self->store;
  return PX_OK;
}
