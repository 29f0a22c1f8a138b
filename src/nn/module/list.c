// SPDX-License-Identifier: Apache-2.0
// Lists of rows that threads read while one changes them. A row is replaced and appended in place.
//
// A row removed from a list of more than MANY leaves a gap. Gaps go when they are half of the list,
// or when it grows. A hash table finds its names, so the time of a step does not depend on the
// number of rows. Shorter lists are copied at a removal.
#include "nn/module/nn_impl.h"

enum { MANY = 16 };
px__list px__no_rows;
max_align_t px__row_gap[16];
_Static_assert(sizeof(px__entry) < sizeof px__row_gap &&
                   sizeof(px__attribute) < sizeof px__row_gap &&
                   sizeof(px__hook) < sizeof px__row_gap,
               "a gap is read like any row");

// ---- the hash table: 1 + position of a row; 0: free

static const char *name_in(const void *row, size_t name_at) {
  return *(const char *const *)((const char *)row + name_at);
}

// Returns the slot of a name, or the free slot for it. Slots of gaps match no name.
static uint32_t *slot_of(const px__list *list, const char *name) {
  for (uint64_t at = px__name_hash(name);; at++) {
    uint32_t *slot = &list->index[at & list->index_mask], row = PX_READ(*slot);
    const void *known = row ? PX_READ(list->rows[row - 1]) : NULL;
    if (!row || (!px__is_gap(known) && !strcmp(name_in(known, list->name_at), name))) return slot;
  }
}

int px__row_find(px__list *const *list, size_t name_at, const char *name) {
  const px__list *rows = PX_READ(*list);
  if (rows->index) return (int)PX_READ(*slot_of(rows, name)) - 1;
  for (int i = 0; i < PX_READ(rows->count); i++) {
    const void *row = PX_READ(rows->rows[i]);
    if (!px__is_gap(row) && !strcmp(name_in(row, name_at), name)) return i;
  }
  return -1;
}

// ---- changes

static void free_list(px_retired *list) {
  px_free(((px__list *)list)->index);
  px_free(list);
}

// Makes a list of the same rows without gaps and without row `except`, for `capacity` rows.
static px_status copy_rows(px__list **out, const px__list *from, int except, int capacity) {
  px__list *made;
  uint64_t slots = MANY;
  PX_TRY(px_alloc((void **)&made, sizeof *made + (size_t)capacity * sizeof *made->rows));
  made->head.end = free_list;
  made->capacity = capacity;
  made->name_at = from->name_at;
  while (slots < 2 * (uint64_t)capacity) slots *= 2;
  if (capacity > MANY) {
    px_status status = px_alloc((void **)&made->index, slots * sizeof *made->index);
    if (status != PX_OK) return px_free(made), status;
    made->index_mask = slots - 1;
  }
  for (int i = 0; i < from->count; i++) {
    if (i == except || px__is_gap(from->rows[i])) continue;
    made->rows[made->count++] = from->rows[i];
    if (made->index) *slot_of(made, name_in(from->rows[i], made->name_at)) = (uint32_t)made->count;
  }
  *out = made;
  return PX_OK;
}

static px_retired *retired_of(px__list *list) { return list == &px__no_rows ? NULL : &list->head; }

// The table's slot is last: a reader finds complete rows.
static void add(px__list *list, void *row) {
  uint32_t *slot = list->index ? slot_of(list, name_in(row, list->name_at)) : NULL;
  PX_PUBLISH(list->rows[list->count], row);
  PX_PUBLISH(list->count, list->count + 1);
  if (slot) PX_PUBLISH(*slot, (uint32_t)list->count);
}

px_status px__list_append(px__list **list, size_t name_at, void *row, px_retired **old) {
  px__list *rows = *list;
  if (rows->count == rows->capacity) {
    int used = rows->count - rows->gaps, capacity = used < 2 ? 4 : 2 * used;
    PX_TRY(copy_rows(&rows, rows, -1, capacity));
    rows->name_at = name_at;
    *old = retired_of(*list);
  }
  add(rows, row);
  PX_PUBLISH(*list, rows);
  return PX_OK;
}

void px__list_remove(px__list **list, int i, px_retired **old) {
  px__list *rows = *list, *fresh = NULL;
  int gaps = rows->gaps + 1;
  if (gaps == rows->count) {
    fresh = &px__no_rows;
  } else if (rows->count <= MANY || 2 * gaps > rows->count) {
    if (copy_rows(&fresh, rows, i, rows->capacity) != PX_OK) px_error_clear();
  }
  PX_PUBLISH(rows->gaps, gaps);
  PX_PUBLISH(rows->rows[i], (void *)px__row_gap);
  if (!fresh) return;
  *old = &rows->head;
  PX_PUBLISH(*list, fresh);
}

px_status px__list_move(px__list **list, int i, void *row, px_retired **old) {
  px__list *rows;
  PX_TRY(copy_rows(&rows, *list, i, (*list)->capacity));
  add(rows, row);
  *old = &(*list)->head;
  PX_PUBLISH(*list, rows);
  return PX_OK;
}

void px__list_end(px__list *list) {
  for (int i = 0; i < list->count; i++) {
    px_retired *row = list->rows[i];
    if (!px__is_gap(row)) row->end(row);
  }
  if (list != &px__no_rows) free_list(&list->head);
}
