// SPDX-License-Identifier: Apache-2.0
// Ordered maps from names to tensors, up to a hundred thousand rows (files). A hash table maps
// names to rows. The hash is keyed with a random secret, since names may come from untrusted files.
#include <sys/random.h>

#include "nn/module/nn_impl.h"

typedef struct row {
  char *name;
  px_tensor *value;
  uint64_t hash;
} row;

struct px_dict {
  px_object head;
  row *rows;
  int count, capacity;
  int *slots;           // 1 + row index; 0: free
  uint64_t slot_count;  // a power of two, at least twice the count
};

px_status px__nn_grow(void **items, int *capacity, int count, size_t size) {
  if (count < *capacity) return PX_OK;
  int larger = *capacity ? *capacity * 2 : 4;
  PX_TRY(px_realloc(items, (size_t)larger * size));
  *capacity = larger;
  return PX_OK;
}

static void dict_destroy(void *object) {
  px_dict *dict = object;
  for (int i = 0; i < dict->count; i++) {
    px_free(dict->rows[i].name);
    px_release(dict->rows[i].value);
  }
  px_free(dict->rows);
  px_free(dict->slots);
  px_object_end(dict);
  px_free(dict);
}

static const px_class dict_class = {"dict", dict_destroy};

px_status px_dict_new(px_dict **out) {
  PX_GIVEN(out);
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &dict_class);
  return PX_OK;
}

static uint64_t secret(void) {
  static uint64_t known;  // atomic; the first thread's value is used by all
  uint64_t value = __atomic_load_n(&known, __ATOMIC_RELAXED), none = 0;
  if (value) return value;
  if (getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value) value = (uintptr_t)&known;
  value |= 1;
  bool first =
      __atomic_compare_exchange_n(&known, &none, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return first ? value : none;
}

static uint64_t mix(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t px__name_hash(const char *name) {
  const uint64_t key = secret(), by = 0x9e3779b97f4a7c15u ^ key;
  size_t length = strlen(name), at = 0;
  uint64_t hash = key ^ length, word;
  for (; at + sizeof word <= length; at += sizeof word) {
    memcpy(&word, name + at, sizeof word);
    hash = mix(hash ^ word, by);
  }
  word = 0;
  memcpy(&word, name + at, length - at);
  return mix(mix(hash ^ word, by), 0xd6e8feb86659fd93u);
}

// Returns the slot of a name, or the free slot for it. The table must have a free slot.
static int *slot_of(const px_dict *dict, const char *name, uint64_t hash) {
  for (uint64_t at = hash;; at++) {
    int *slot = &dict->slots[at & (dict->slot_count - 1)];
    const row *known = *slot ? &dict->rows[*slot - 1] : NULL;
    if (!known || (known->hash == hash && !strcmp(known->name, name))) return slot;
  }
}

static px_status more_slots(px_dict *dict) {
  if (2 * (uint64_t)(dict->count + 1) <= dict->slot_count) return PX_OK;
  uint64_t slot_count = dict->slot_count ? 2 * dict->slot_count : 8;
  int *slots;
  PX_TRY(px_alloc((void **)&slots, slot_count * sizeof *slots));
  px_free(dict->slots);
  dict->slots = slots;
  dict->slot_count = slot_count;
  for (int i = 0; i < dict->count; i++)
    *slot_of(dict, dict->rows[i].name, dict->rows[i].hash) = i + 1;
  return PX_OK;
}

static px_status dict_add(px_dict *dict, int *slot, const char *name, uint64_t hash) {
  char *copy;
  PX_TRY(px__nn_grow((void **)&dict->rows, &dict->capacity, dict->count, sizeof(row)));
  PX_TRY(px_strdup(&copy, name));
  dict->rows[dict->count] = (row){copy, NULL, hash};
  *slot = ++dict->count;
  return PX_OK;
}

px_status px_dict_set(px_dict *dict, const char *name, px_tensor *value) {
  PX_GIVEN(dict);
  PX_GIVEN(name);
  PX_GIVEN(value);
  uint64_t hash = px__name_hash(name);
  PX_TRY(more_slots(dict));
  int *slot = slot_of(dict, name, hash);
  if (!*slot) PX_TRY(dict_add(dict, slot, name, hash));
  row *at = &dict->rows[*slot - 1];
  px_tensor *old = at->value;
  at->value = px_retain(value);
  px_release(old);
  return PX_OK;
}

px_tensor *px_dict_get(const px_dict *dict, const char *name) {
  int slot = dict->slot_count ? *slot_of(dict, name, px__name_hash(name)) : 0;
  return slot ? dict->rows[slot - 1].value : NULL;
}

int64_t px_dict_size(const px_dict *dict) { return dict->count; }
const char *px_dict_name(const px_dict *dict, int64_t i) {
  return i >= 0 && i < dict->count ? dict->rows[i].name : NULL;
}
px_tensor *px_dict_value(const px_dict *dict, int64_t i) {
  return i >= 0 && i < dict->count ? dict->rows[i].value : NULL;
}
