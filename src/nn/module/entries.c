// SPDX-License-Identifier: Apache-2.0
// The entries of a module: parameters, buffers and children, in the order of their registration.
//
// Up to MANY entries are searched one by one. More are found by a hash table, and an entry removed
// from the middle leaves a gap, so that each step takes the same time whatever their number. Gaps
// have the name px__no_name. They are closed when half of the entries are gaps.
#include "nn/module/nn_impl.h"

enum { MANY = 16 };
char px__no_name[] = "";

// ---- the hash table: 1 + position of an entry; 0: free

static uint32_t *slot_of(const px_module *self, const char *name) {
  for (uint64_t at = px__name_hash(name);; at++) {
    uint32_t *slot = &self->index[at & (self->index_size - 1)];
    if (!*slot || !strcmp(self->entries[*slot - 1].name, name)) return slot;
  }
}

static void index_all(px_module *self) {
  memset(self->index, 0, self->index_size * sizeof *self->index);
  for (int i = 0; i < self->entry_count; i++)
    if (!px__is_gap(&self->entries[i])) *slot_of(self, self->entries[i].name) = (uint32_t)i + 1;
}

// Removes a name. Later names of its run move up.
static void index_remove(px_module *self, const char *name) {
  uint64_t mask = self->index_size - 1, gap = (uint64_t)(slot_of(self, name) - self->index);
  for (uint64_t at = gap + 1; self->index[at & mask]; at++) {
    uint64_t home = px__name_hash(self->entries[self->index[at & mask] - 1].name);
    if (((at - home) & mask) < ((at - gap) & mask)) continue;
    self->index[gap & mask] = self->index[at & mask];
    gap = at;
  }
  self->index[gap & mask] = 0;
}

// Makes the table large enough for one more entry.
static px_status index_reserve(px_module *self) {
  uint64_t size = self->index_size ? self->index_size : MANY;
  uint32_t *larger;
  if (self->entry_count < MANY || 2 * (uint64_t)(self->entry_count + 1) <= self->index_size)
    return PX_OK;
  PX_TRY(px_alloc((void **)&larger, 4 * size * sizeof *larger));
  px_free(self->index);
  self->index = larger, self->index_size = 4 * size;
  index_all(self);
  return PX_OK;
}

// ---- entries

int px__entry_find(const px_module *self, const char *name) {
  if (self->index) return (int)*slot_of(self, name) - 1;
  for (int i = 0; i < self->entry_count; i++)
    if (!strcmp(self->entries[i].name, name)) return i;
  return -1;
}

px_status px__entry_reserve(px_module *self) {
  PX_TRY(px__nn_grow((void **)&self->entries, &self->entry_capacity, self->entry_count,
                     sizeof *self->entries));
  return index_reserve(self);
}

void px__entry_add(px_module *self, px__entry entry_take) {
  self->entries[self->entry_count++] = entry_take;
  self->sort_counts[entry_take.sort]++;
  if (self->index) *slot_of(self, entry_take.name) = (uint32_t)self->entry_count;
}

static void close_gaps(px_module *self) {
  int count = 0;
  for (int i = 0; i < self->entry_count; i++)
    if (!px__is_gap(&self->entries[i])) self->entries[count++] = self->entries[i];
  self->entry_count = count, self->gaps = 0;
  if (self->index) index_all(self);
}

px__entry px__entry_take(px_module *self, int i) {
  px__entry old = self->entries[i];
  self->sort_counts[old.sort]--;
  if (self->index) index_remove(self, old.name);
  self->entries[i] = (px__entry){.name = px__no_name, .sort = old.sort};
  self->gaps++;
  while (self->entry_count && px__is_gap(&self->entries[self->entry_count - 1]))
    self->entry_count--, self->gaps--;
  if (!self->index || 2 * self->gaps > self->entry_count) close_gaps(self);
  return old;
}

static px_module_entry shown(const px__entry *entry) {
  return (px_module_entry){entry->name, entry->sort, entry->persistent, entry->tensor,
                           entry->module};
}

bool px_module_entry_next(const px_module *self, int sorts, int *at, px_module_entry *out) {
  for (int i = *at; i < self->entry_count; i++) {
    if (!((int)self->entries[i].sort & sorts) || px__is_gap(&self->entries[i])) continue;
    *out = shown(&self->entries[i]);
    *at = i + 1;
    return true;
  }
  return false;
}

bool px_module_entry_at(const px_module *self, int sorts, int i, px_module_entry *out) {
  int count = 0, at = 0;
  for (int sort = PX_ENTRY_PARAMETER; sort <= PX_ENTRY_MODULE; sort <<= 1)
    if (sorts & sort) count += self->sort_counts[sort];
  if (i < 0 || i >= count) return false;
  if (count == self->entry_count) at = i, i = 0;  // all entries are of these sorts, without gaps
  while (px_module_entry_next(self, sorts, &at, out))
    if (i-- == 0) return true;
  return false;
}

bool px_module_entry_find(const px_module *self, const char *name, px_module_entry *out) {
  int i = px__entry_find(self, name);
  if (i >= 0) *out = shown(&self->entries[i]);
  return i >= 0;
}
