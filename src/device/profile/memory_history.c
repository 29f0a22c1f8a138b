// SPDX-License-Identifier: Apache-2.0
// Reads a history of memory: the bytes gained or lost by an owner with each event. From these, the
// state with the most live memory in each column of a picture.
//
// Owners are texts, "op  file:line". Memory older than the history has a single owner, since no
// event describes it.
#include "device/profile/memory_history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char before[] = "before the history";

// The effect of an event. owner < 0: none.
typedef struct change {
  int64_t bytes, reserved;
  int owner;
} change;
// A block by its address. owner < 0: not live.
typedef struct slot {
  int64_t address, bytes;
  int owner;
  bool used;
} slot;
typedef struct reader {
  const px_memory_trace *past;
  change *changes;
  slot *slots;      // open addressing
  size_t capacity;  // slots of places and names: a power of two
  int *names;       // number of an owner + 1, by its text; open addressing
  char **owners;
  int count;
  px__text text;  // of the latest event's owner
} reader;

// ---- owners
static const char *base_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// Formats the op, or else the function or the node of a backward pass, and the program's line.
static const char *text_of(px__text *text, const px_traceback *stack) {
  if (!stack || (!stack->op && !stack->count)) return "no stack recorded";
  const char *op = stack->op ? stack->op : stack->frames[0].function;
  for (int i = 0; i < stack->count; i++) {
    const px_frame *f = &stack->frames[i];
    if (!f->line || f->inside) continue;
    text->length = 0;
    px__text_add(text, "%s  %s:%d", op, base_of(f->file), f->line);
    return text->failed ? NULL : text->at;
  }
  return op;
}

static size_t hash_text(const char *text) {
  uint64_t hash = 14695981039346656037u;
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
  return (size_t)(hash ^ hash >> 32);
}

// Returns the owner's number, a new one if needed.
static px_status find_owner(reader *r, const char *text, int *out) {
  size_t at = hash_text(text) & (r->capacity - 1);
  while (r->names[at] && strcmp(r->owners[r->names[at] - 1], text))
    at = (at + 1) & (r->capacity - 1);
  if (!r->names[at]) {
    PX_TRY(px_strdup(&r->owners[r->count], text));
    r->names[at] = ++r->count;
  }
  *out = r->names[at] - 1;
  return PX_OK;
}

// ---- blocks
static slot *slot_at(const reader *r, int64_t address) {
  size_t at = (size_t)(((uint64_t)address * 0x9E3779B97F4A7C15u) >> 20) & (r->capacity - 1);
  while (r->slots[at].used && r->slots[at].address != address) at = (at + 1) & (r->capacity - 1);
  if (!r->slots[at].used) r->slots[at] = (slot){address, 0, -1, true};
  return &r->slots[at];
}

static bool is_live(const px_memory_block *block) {
  return block->state && !strcmp(block->state, "active_allocated");
}

// Finds memory allocated before the first event: live at the end, or freed by an event, without an
// event for its allocation. Goes backwards, since an address may have had several blocks.
static px_status find_older(reader *r, int64_t *total) {
  const px_memory_trace *p = r->past;
  int old;
  PX_TRY(find_owner(r, before, &old));
  for (int64_t i = 0; i < p->block_count; i++) {
    const px_memory_block *b = &p->blocks[i];
    if (is_live(b))
      *slot_at(r, b->address) =
          (slot){b->address, b->requested ? b->requested : b->size, old, true};
  }
  for (int64_t i = p->event_count; i-- > 0;) {
    const px_memory_event *e = &p->events[i];
    if (e->action == PX_MEMORY_FREE_REQUESTED)
      *slot_at(r, e->address) = (slot){e->address, e->size, old, true};
    else if (e->action == PX_MEMORY_ALLOC)
      slot_at(r, e->address)->owner = -1;
  }
  for (size_t i = 0; i < r->capacity; i++)
    if (r->slots[i].used && r->slots[i].owner >= 0) *total += r->slots[i].bytes;
  return PX_OK;
}

// ---- events
static int64_t reserves(const px_memory_event *e) {
  static const int signs[PX_MEMORY_ACTIONS] = {[PX_MEMORY_SEGMENT_ALLOC] = 1,
                                               [PX_MEMORY_SEGMENT_MAP] = 1,
                                               [PX_MEMORY_SEGMENT_FREE] = -1,
                                               [PX_MEMORY_SEGMENT_UNMAP] = -1};
  return signs[e->action] * e->size;
}

static px_status read_event(reader *r, const px_memory_event *e, change *c) {
  *c = (change){.reserved = reserves(e), .owner = -1};
  if (e->action != PX_MEMORY_ALLOC && e->action != PX_MEMORY_FREE_REQUESTED) return PX_OK;
  slot *entry = slot_at(r, e->address);
  if (e->action == PX_MEMORY_ALLOC) {
    const char *owner = text_of(&r->text, e->stack);
    PX_CHECK(owner, PX_NOMEM, "out of memory for the text of an owner");
    PX_TRY(find_owner(r, owner, &c->owner));
    c->bytes = e->size;
    *entry = (slot){e->address, e->size, c->owner, true};
  } else {
    c->owner = entry->owner;
    c->bytes = entry->owner < 0 ? 0 : -entry->bytes;
    entry->owner = -1;
  }
  return PX_OK;
}

// Bytes reserved before the first event.
static int64_t reserved_before(const px_memory_trace *p) {
  int64_t reserved = 0;
  for (int64_t i = 0; i < p->block_count; i++)
    if (!i || p->blocks[i].segment_address != p->blocks[i - 1].segment_address)
      reserved += p->blocks[i].segment_size;
  for (int64_t i = 0; i < p->event_count; i++) reserved -= reserves(&p->events[i]);
  return reserved;
}

static int column_of(const px_memory_trace *p, int64_t event) {
  return (int)(event * PX__COLUMNS / p->event_count);
}

static void find_columns(const reader *r, px__usage_history *out, int64_t total) {
  const px_memory_trace *p = r->past;
  int64_t reserved = reserved_before(p);
  for (int i = 0; i < PX__COLUMNS; i++) out->columns[i].event = -1;
  for (int64_t i = 0; i < p->event_count; i++) {
    px__column *c = &out->columns[column_of(p, i)];
    total += r->changes[i].bytes, reserved += r->changes[i].reserved;
    if (c->event >= 0 && total < c->total) continue;
    c->event = i, c->total = total;
    if (reserved > c->reserved) c->reserved = reserved;
  }
  for (int i = 0; i < PX__COLUMNS; i++) {
    px__column *c = &out->columns[i];
    if (c->event < 0) *c = out->columns[i - 1];
    if (c->total > out->columns[out->peak].total) out->peak = i;
    if (c->total > out->max) out->max = c->total;
    if (c->reserved > out->max) out->max = c->reserved;
  }
}

// ---- bytes of each owner
typedef struct rank {
  char *owner;
  int64_t *held, at_peak, max;
} rank;

static int by_rank(const void *a, const void *b) {
  const rank *x = a, *y = b;
  if (x->at_peak != y->at_peak) return x->at_peak > y->at_peak ? -1 : 1;
  if (x->max != y->max) return x->max > y->max ? -1 : 1;
  return strcmp(x->owner, y->owner);
}

// Second pass over the events: the event of each column is known now.
static void fill_columns(const reader *r, px__usage_history *out, rank *ranks, int64_t total) {
  int column = 0;
  ranks[0].max = total;  // `max` holds the current bytes during this pass
  for (int64_t i = 0; i < r->past->event_count; i++) {
    if (r->changes[i].owner >= 0) ranks[r->changes[i].owner].max += r->changes[i].bytes;
    for (; column < PX__COLUMNS && out->columns[column].event == i; column++)
      for (int n = 0; n < r->count; n++) ranks[n].held[column] = ranks[n].max;
  }
  for (int n = 0; n < r->count; n++) {
    ranks[n].max = 0, ranks[n].at_peak = ranks[n].held[out->peak];
    for (int i = 0; i < PX__COLUMNS; i++)
      if (ranks[n].held[i] > ranks[n].max) ranks[n].max = ranks[n].held[i];
  }
}

static px_status rank_owners(reader *r, px__usage_history *out, int64_t total) {
  size_t count = (size_t)r->count;
  rank *ranks = NULL;
  int64_t *held = NULL;
  PX_TRY(px__alloc(&out->memory[1], count * PX__COLUMNS * sizeof *held));
  PX_TRY(px__alloc(&out->memory[0], count * sizeof *out->held));
  PX_TRY(px__alloc((void **)&ranks, count * sizeof *ranks));
  out->held = out->memory[0], held = out->memory[1];
  for (size_t n = 0; n < count; n++)
    ranks[n] = (rank){.owner = r->owners[n], .held = held + n * PX__COLUMNS};
  fill_columns(r, out, ranks, total);
  qsort(ranks, count, sizeof *ranks, by_rank);
  for (size_t n = 0; n < count; n++) {
    r->owners[n] = ranks[n].owner, out->held[n] = ranks[n].held;
    if (ranks[n].max > 0) out->count = (int)n + 1;
  }
  px__free(ranks);
  return PX_OK;
}

static px_status reserve(reader *r) {
  const px_memory_trace *p = r->past;
  size_t events = (size_t)p->event_count, max = events + (size_t)p->block_count + 2;
  for (r->capacity = 16; r->capacity < 2 * max;) r->capacity *= 2;
  PX_TRY(px__alloc((void **)&r->changes, (events + 1) * sizeof *r->changes));
  PX_TRY(px__alloc((void **)&r->slots, r->capacity * sizeof *r->slots));
  PX_TRY(px__alloc((void **)&r->names, r->capacity * sizeof *r->names));
  return px__alloc((void **)&r->owners, max * sizeof *r->owners);
}

// Fails for negative sizes, and if a sum of the sizes could overflow.
static px_status check_sizes(const px_memory_trace *p) {
  int64_t sum = 0;
  bool good = true;
  for (int64_t i = 0; i < p->event_count && good; i++)
    good = p->events[i].size >= 0 && !__builtin_add_overflow(sum, p->events[i].size, &sum);
  for (int64_t i = 0; i < p->block_count && good; i++) {
    const px_memory_block *b = &p->blocks[i];
    good = b->size >= 0 && b->requested >= 0 && b->segment_size >= 0 &&
           !__builtin_add_overflow(sum, b->requested ? b->requested : b->size, &sum) &&
           !__builtin_add_overflow(sum, b->segment_size, &sum);
  }
  PX_CHECK(good, PX_VALUE, "the sizes of the snapshot of device %d are out of range", p->device);
  return PX_OK;
}

static px_status read_all(reader *r, px__usage_history *out) {
  int64_t total = 0;
  PX_TRY(check_sizes(r->past));
  PX_TRY(reserve(r));
  PX_TRY(find_older(r, &total));
  for (int64_t i = 0; i < r->past->event_count; i++)
    PX_TRY(read_event(r, &r->past->events[i], &r->changes[i]));
  find_columns(r, out, total);
  return rank_owners(r, out, total);
}

px_status px__usage_history_read(px__usage_history *out, const px_memory_trace *past) {
  reader r = {.past = past};
  *out = (px__usage_history){0};
  px_status status = read_all(&r, out);
  out->owners = r.owners, out->owner_count = r.count;
  px__free(r.changes);
  px__free(r.slots);
  px__free(r.names);
  px__free(r.text.at);
  return status;
}

void px__usage_history_drop(px__usage_history *past) {
  for (int i = 0; i < past->owner_count; i++) px__free(past->owners[i]);
  px__free(past->owners);
  px__free(past->memory[0]);
  px__free(past->memory[1]);
}
