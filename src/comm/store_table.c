// SPDX-License-Identifier: Apache-2.0
// The key-value table of a store, and the requests on it. No locking: the table's owner locks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/store_impl.h"

struct px__entry {
  px__entry *next;
  px__bytes key, value;  // the key follows the entry; the value is a separate allocation
};

static uint64_t hash(px__bytes key) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < key.size; i++) h = (h ^ ((const uint8_t *)key.at)[i]) * 0x100000001b3u;
  return h ^ (h >> 32);
}

static bool same(px__bytes a, px__bytes b) {
  return a.size == b.size && (a.size == 0 || !memcmp(a.at, b.at, a.size));
}

// Returns the pointer to the key's entry, or the NULL link at which to insert it.
static px__entry **find_slot(const px__table *table, px__bytes key) {
  px__entry **at = &table->heads[hash(key) & (uint64_t)(table->capacity - 1)];
  while (*at && !same((*at)->key, key)) at = &(*at)->next;
  return at;
}

const px__bytes *px__table_find(const px__table *table, px__bytes key) {
  px__entry *entry = table->capacity ? *find_slot(table, key) : NULL;
  return entry ? &entry->value : NULL;
}

static px_status grow(px__table *table) {
  px__table larger = {.capacity = table->capacity ? 2 * table->capacity : 64,
                      .count = table->count};
  if (table->count < table->capacity) return PX_OK;
  PX_TRY(px_alloc((void **)&larger.heads, (size_t)larger.capacity * sizeof *larger.heads));
  for (int64_t i = 0; i < table->capacity; i++)
    for (px__entry *entry = table->heads[i], *next; entry; entry = next) {
      px__entry **head = &larger.heads[hash(entry->key) & (uint64_t)(larger.capacity - 1)];
      next = entry->next;
      entry->next = *head;
      *head = entry;
    }
  px_free(table->heads);
  *table = larger;
  return PX_OK;
}

static px_status copied(void **out, px__bytes bytes) {
  PX_TRY(px_alloc(out, bytes.size + 1));
  if (bytes.size) memcpy(*out, bytes.at, bytes.size);
  return PX_OK;
}

static px_status insert(px__table *table, px__bytes key, void *value_take, size_t size) {
  px__entry *entry = NULL;
  px_status status = grow(table);
  if (status == PX_OK) status = px_alloc((void **)&entry, sizeof *entry + key.size + 1);
  if (status != PX_OK) return px_free(value_take), status;
  if (key.size) memcpy(entry + 1, key.at, key.size);
  entry->key = (px__bytes){entry + 1, key.size};
  entry->value = (px__bytes){value_take, size};
  *find_slot(table, key) = entry;
  table->count++;
  return PX_OK;
}

static px_status set(px__table *table, px__bytes key, px__bytes value) {
  void *copy;
  PX_TRY(copied(&copy, value));
  px__entry *entry = table->capacity ? *find_slot(table, key) : NULL;
  if (!entry) return insert(table, key, copy, value.size);
  px_free((void *)entry->value.at);
  entry->value = (px__bytes){copy, value.size};
  return PX_OK;
}

static px_status respond(px__response *response, px__bytes value) {
  PX_TRY(copied(&response->value, value));
  response->size = value.size;
  return PX_OK;
}

// ---- requests, one function each

static px_status apply_set(px__table *table, const px__request *request, px__response *response) {
  return set(table, request->items[0], request->items[1]);
}

static px_status apply_get(px__table *table, const px__request *request, px__response *response) {
  const px__bytes *value = px__table_find(table, request->items[0]);
  response->number = value != NULL;
  return value ? respond(response, *value) : PX_OK;
}

// A value is parsed as a decimal prefix, 0 if it has none. Sums wrap around.
static px_status apply_add(px__table *table, const px__request *request, px__response *response) {
  char text[32] = "";
  const px__bytes *value = px__table_find(table, request->items[0]);
  if (value) snprintf(text, sizeof text, "%.*s", (int)(value->size % 31), (char *)value->at);
  response->number = (int64_t)((uint64_t)strtoll(text, NULL, 10) + (uint64_t)request->number);
  int length = snprintf(text, sizeof text, "%lld", (long long)response->number);
  return set(table, request->items[0], (px__bytes){text, (size_t)length});
}

static px_status apply_swap(px__table *table, const px__request *request, px__response *response) {
  const px__bytes *value = px__table_find(table, request->items[0]);
  px__bytes expected = request->items[1], desired = request->items[2];
  bool fits = value ? same(*value, expected) : expected.size == 0;
  PX_TRY(respond(response, fits ? desired : value ? *value : expected));
  return fits ? set(table, request->items[0], desired) : PX_OK;
}

static px_status apply_delete(px__table *table, const px__request *request,
                              px__response *response) {
  px__entry **at = table->capacity ? find_slot(table, request->items[0]) : NULL,
            *entry = at ? *at : NULL;
  response->number = entry != NULL;
  if (!entry) return PX_OK;
  *at = entry->next;
  px_free((void *)entry->value.at);
  px_free(entry);
  table->count--;
  return PX_OK;
}

static px_status apply_count(px__table *table, const px__request *request, px__response *response) {
  response->number = table->count;
  return PX_OK;
}

static px_status apply_await(px__table *table, const px__request *request, px__response *response) {
  response->number = 1;
  for (int i = 0; i < request->count; i++)
    if (!px__table_find(table, request->items[i])) response->number = 0;
  return PX_OK;
}

static const struct {
  int items;  // -1: any number
  px_status (*run)(px__table *table, const px__request *request, px__response *response);
} handlers[PX__REQUEST_KINDS] = {
    [PX__REQUEST_SET] = {2, apply_set},       [PX__REQUEST_GET] = {1, apply_get},
    [PX__REQUEST_ADD] = {1, apply_add},       [PX__REQUEST_SWAP] = {3, apply_swap},
    [PX__REQUEST_DELETE] = {1, apply_delete}, [PX__REQUEST_COUNT] = {0, apply_count},
    [PX__REQUEST_AWAIT] = {-1, apply_await},
};

px_status px__table_apply(px__table *table, const px__request *request, px__response *response) {
  *response = (px__response){0};
  PX_CHECK(handlers[request->kind].items < 0 || handlers[request->kind].items == request->count,
           PX_DIST_STORE, "expected %d keys and values in a store request, got %d",
           handlers[request->kind].items, request->count);
  return handlers[request->kind].run(table, request, response);
}

void px__table_clear(px__table *table) {
  for (int64_t i = 0; i < table->capacity; i++)
    for (px__entry *entry = table->heads[i], *next; entry; entry = next) {
      next = entry->next;
      px_free((void *)entry->value.at);
      px_free(entry);
    }
  px_free(table->heads);
  *table = (px__table){0};
}
