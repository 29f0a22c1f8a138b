// SPDX-License-Identifier: Apache-2.0
// The key-value table of a store, and the requests on it. No locking: the table's owner locks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "comm/store_impl.h"

struct px__store_entry {
  px__store_entry *next;
  uint64_t hash;
  px__bytes key, value;  // the key follows the entry; the value is a separate allocation
};

// ---- hash: SipHash-1-3

static void sip_round(uint64_t v[4]) {
  v[0] += v[1], v[1] = (v[1] << 13 | v[1] >> 51) ^ v[0], v[0] = v[0] << 32 | v[0] >> 32;
  v[2] += v[3], v[3] = (v[3] << 16 | v[3] >> 48) ^ v[2];
  v[0] += v[3], v[3] = (v[3] << 21 | v[3] >> 43) ^ v[0];
  v[2] += v[1], v[1] = (v[1] << 17 | v[1] >> 47) ^ v[2], v[2] = v[2] << 32 | v[2] >> 32;
}

static void sip_word(uint64_t v[4], uint64_t word) {
  v[3] ^= word;
  sip_round(v);
  v[0] ^= word;
}

static uint64_t hash(const px__table *table, px__bytes key) {
  uint64_t a = table->secret[0], b = table->secret[1], word = 0;
  uint64_t v[4] = {a ^ 0x736f6d6570736575u, b ^ 0x646f72616e646f6du, a ^ 0x6c7967656e657261u,
                   b ^ 0x7465646279746573u};
  size_t at = 0;
  for (; at + 8 <= key.size; at += 8) {
    memcpy(&word, (const uint8_t *)key.at + at, 8);
    sip_word(v, word);
  }
  word = (uint64_t)key.size << 56;
  for (size_t i = at; i < key.size; i++)
    word |= (uint64_t)((const uint8_t *)key.at)[i] << 8 * (i - at);
  sip_word(v, word);
  v[2] ^= 0xff;
  for (int i = 0; i < 3; i++) sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

// ---- buckets

static bool same(px__bytes a, px__bytes b) {
  return a.size == b.size && (a.size == 0 || !memcmp(a.at, b.at, a.size));
}

// Linear hashing: buckets above the last power of two come from splits of the lower ones.
static uint64_t bucket_of(const px__table *table, uint64_t hash) {
  uint64_t mask = ~(uint64_t)0 >> __builtin_clzll(table->buckets | 1);
  return (hash & mask) < table->buckets ? hash & mask : hash & mask >> 1;
}

// Returns the pointer to the key's entry, or the NULL link at which to insert it. The table has a
// bucket.
static px__store_entry **find_slot(const px__table *table, px__bytes key) {
  uint64_t h = hash(table, key);
  px__store_entry **at = &table->heads[bucket_of(table, h)];
  while (*at && !((*at)->hash == h && same((*at)->key, key))) at = &(*at)->next;
  return at;
}

static px__store_entry **find_entry(const px__table *table, px__bytes key) {
  px__store_entry **at = table->buckets ? find_slot(table, key) : NULL;
  return at && *at ? at : NULL;
}

const px__bytes *px__table_find(const px__table *table, px__bytes key) {
  px__store_entry **at = find_entry(table, key);
  return at ? &(*at)->value : NULL;
}

// Adds a bucket. Its keys come from the bucket with the same number less the highest bit.
static px_status grow(px__table *table) {
  if (table->buckets == table->capacity) {
    uint64_t capacity = table->capacity ? 2 * table->capacity : 64;
    PX_TRY(px_realloc((void **)&table->heads, capacity * sizeof *table->heads));
    table->capacity = capacity;
  }
  if (!table->buckets)
    PX_CHECK(getrandom(table->secret, sizeof table->secret, 0) == sizeof table->secret,
             PX_DIST_STORE, "getrandom failed");
  uint64_t added = table->buckets++;
  px__store_entry **from =
      &table->heads[added ? added ^ (uint64_t)1 << (63 - __builtin_clzll(added)) : 0];
  px__store_entry *entry = added ? *from : NULL, *next;
  *from = table->heads[added] = NULL;
  for (; entry; entry = next) {
    px__store_entry **head = &table->heads[bucket_of(table, entry->hash)];
    next = entry->next;
    entry->next = *head;
    *head = entry;
  }
  return PX_OK;
}

static px_status copied(void **out, px__bytes bytes) {
  PX_TRY(px_alloc(out, bytes.size + 1));
  if (bytes.size) memcpy(*out, bytes.at, bytes.size);
  return PX_OK;
}

px_status px__table_check_used(const px__table *table, int64_t more) {
  PX_CHECK(
      more <= 0 || !table->max_used || table->used + more <= table->max_used, PX_DIST_STORE,
      "the store has reached its limit of %lld bytes; PHLOX_STORE_MEMORY of its process sets it",
      (long long)table->max_used);
  return PX_OK;
}

static int64_t entry_bytes(px__bytes key, px__bytes value) {
  return (int64_t)(sizeof(px__store_entry) + key.size + value.size);
}

static px_status insert(px__table *table, px__bytes key, px__bytes value) {
  px__store_entry *entry;
  void *copy;
  PX_CHECK(!table->max_count || table->count < table->max_count, PX_DIST_STORE,
           "the store has reached its limit of %lld keys; PHLOX_STORE_KEYS of its process sets it",
           (long long)table->max_count);
  PX_TRY(px__table_check_used(table, entry_bytes(key, value)));
  PX_TRY(grow(table));
  PX_TRY(px_alloc((void **)&entry, sizeof *entry + key.size + 1));
  px_status status = copied(&copy, value);
  if (status != PX_OK) return px_free(entry), status;
  if (key.size) memcpy(entry + 1, key.at, key.size);
  *entry = (px__store_entry){
      .hash = hash(table, key), .key = {entry + 1, key.size}, .value = {copy, value.size}};
  *find_slot(table, key) = entry;
  table->count++;
  table->inserts++;
  table->used += entry_bytes(key, value);
  return PX_OK;
}

static px_status set(px__table *table, px__bytes key, px__bytes value) {
  void *copy;
  px__store_entry **at = find_entry(table, key);
  if (!at) return insert(table, key, value);
  px__bytes *old = &(*at)->value;
  int64_t more = (int64_t)value.size - (int64_t)old->size;
  PX_TRY(px__table_check_used(table, more));
  PX_TRY(copied(&copy, value));
  px_free((void *)old->at);
  *old = (px__bytes){copy, value.size};
  table->used += more;
  return PX_OK;
}

static px_status respond(px__response *response, px__bytes value) {
  PX_TRY(copied(&response->value, value));
  response->size = value.size;
  return PX_OK;
}

// ---- requests, one function each

static px_status apply_set(px__table *table, const px__store_request *request,
                           px__response *response) {
  return set(table, request->items[0], request->items[1]);
}

static px_status apply_get(px__table *table, const px__store_request *request,
                           px__response *response) {
  const px__bytes *value = px__table_find(table, request->items[0]);
  response->number = value != NULL;
  return value ? respond(response, *value) : PX_OK;
}

// A value is parsed as a decimal prefix, 0 if it has none. Sums wrap around.
static px_status apply_add(px__table *table, const px__store_request *request,
                           px__response *response) {
  char text[32] = "";
  const px__bytes *value = px__table_find(table, request->items[0]);
  if (value)
    snprintf(text, sizeof text, "%.*s", value->size < 31 ? (int)value->size : 31,
             (char *)value->at);
  response->number = (int64_t)((uint64_t)strtoll(text, NULL, 10) + (uint64_t)request->number);
  int length = snprintf(text, sizeof text, "%lld", (long long)response->number);
  return set(table, request->items[0], (px__bytes){text, (size_t)length});
}

static px_status apply_swap(px__table *table, const px__store_request *request,
                            px__response *response) {
  const px__bytes *value = px__table_find(table, request->items[0]);
  px__bytes expected = request->items[1], desired = request->items[2];
  bool fits = value ? same(*value, expected) : expected.size == 0;
  PX_TRY(respond(response, fits ? desired : value ? *value : expected));
  return fits ? set(table, request->items[0], desired) : PX_OK;
}

static px_status apply_delete(px__table *table, const px__store_request *request,
                              px__response *response) {
  px__store_entry **at = find_entry(table, request->items[0]);
  response->number = at != NULL;
  if (!at) return PX_OK;
  px__store_entry *entry = *at;
  *at = entry->next;
  table->used -= entry_bytes(entry->key, entry->value);
  table->count--;
  px_free((void *)entry->value.at);
  px_free(entry);
  return PX_OK;
}

static px_status apply_count(px__table *table, const px__store_request *request,
                             px__response *response) {
  response->number = table->count;
  return PX_OK;
}

static px_status apply_await(px__table *table, const px__store_request *request,
                             px__response *response) {
  response->number = 1;
  for (int i = 0; i < request->count; i++)
    if (!px__table_find(table, request->items[i])) response->number = 0;
  return PX_OK;
}

static const struct {
  int items;  // -1: any number
  px_status (*run)(px__table *table, const px__store_request *request, px__response *response);
} handlers[PX__REQUEST_KINDS] = {
    [PX__REQUEST_SET] = {2, apply_set},       [PX__REQUEST_GET] = {1, apply_get},
    [PX__REQUEST_ADD] = {1, apply_add},       [PX__REQUEST_SWAP] = {3, apply_swap},
    [PX__REQUEST_DELETE] = {1, apply_delete}, [PX__REQUEST_COUNT] = {0, apply_count},
    [PX__REQUEST_AWAIT] = {-1, apply_await},
};

px_status px__table_apply(px__table *table, const px__store_request *request,
                          px__response *response) {
  *response = (px__response){0};
  PX_CHECK(handlers[request->kind].items < 0 || handlers[request->kind].items == request->count,
           PX_DIST_STORE, "expected %d keys and values in a store request, got %d",
           handlers[request->kind].items, request->count);
  px_status status = handlers[request->kind].run(table, request, response);
  if (status != PX_OK) px_free(response->value), *response = (px__response){0};
  return status;
}

void px__table_clear(px__table *table) {
  for (uint64_t i = 0; i < table->buckets; i++)
    for (px__store_entry *entry = table->heads[i], *next; entry; entry = next) {
      next = entry->next;
      px_free((void *)entry->value.at);
      px_free(entry);
    }
  px_free(table->heads);
  *table = (px__table){0};
}
