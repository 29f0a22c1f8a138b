// SPDX-License-Identifier: Apache-2.0
// Interned stacks: the op and the frames of a thread. Each distinct stack is stored once and never
// freed, since their number is bounded by the program's code. Blocks and events point to them.
#include "device/core/state.h"

enum { FRAMES = 128 };  // innermost frames stored per stack

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // innermost lock
// Stacks by number, from 1. `table` is a hash table of numbers: open addressing, 0 is free.
static px_traceback **stacks;
static unsigned *table, used;
static size_t table_size;  // slots, twice the capacity of `stacks`: 0 or a power of two

static size_t hash_of(const px_traceback *s) {
  uint64_t hash = (uintptr_t)s->op + (uint64_t)s->count;
  for (int i = 0; i < s->count; i++) {
    const px_frame *f = &s->frames[i];
    hash = (hash ^ (uintptr_t)f->file ^ (uint64_t)f->line << 40) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ (uintptr_t)f->function ^ hash >> 29) * 0xBF58476D1CE4E5B9u;
  }
  return (size_t)(hash ^ hash >> 32);
}

// Compares addresses of strings: equal lines share their strings.
static bool is_same(const px_traceback *a, const px_traceback *b) {
  bool same = a->op == b->op && a->count == b->count;
  for (int i = 0; i < a->count && same; i++) {
    const px_frame *f = &a->frames[i], *g = &b->frames[i];
    same = f->file == g->file && f->function == g->function && f->line == g->line;
  }
  return same;
}

// Returns the slot of the stack's number, or a free one. One slot is free.
static unsigned *slot_of(unsigned *in, size_t size, const px_traceback *stack) {
  size_t at = hash_of(stack) & (size - 1);
  while (in[at] && !is_same(stacks[in[at]], stack)) at = (at + 1) & (size - 1);
  return &in[at];
}

static px_status grow(void) {
  size_t size = table_size ? 2 * table_size : 256;
  unsigned *larger = NULL;
  if (2 * ((size_t)used + 2) <= table_size) return PX_OK;
  PX_TRY(px__realloc((void **)&stacks, size / 2 * sizeof *stacks));
  PX_TRY(px__alloc((void **)&larger, size * sizeof *larger));
  for (unsigned i = 1; i <= used; i++) *slot_of(larger, size, stacks[i]) = i;
  px__free(table);
  table = larger, table_size = size;
  return PX_OK;
}

static px_status copy(px_traceback **out, const px_traceback *stack) {
  size_t bytes = (size_t)stack->count * sizeof *stack->frames;
  PX_TRY(px__alloc((void **)out, sizeof **out + bytes));
  px_frame *frames = (px_frame *)(*out + 1);
  memcpy(frames, stack->frames, bytes);
  **out = *stack;
  (*out)->frames = frames;
  return PX_OK;
}

static px_status intern(unsigned *out, const px_traceback *stack) {
  PX_TRY(grow());
  unsigned *slot = slot_of(table, table_size, stack);
  if (!*slot) {
    PX_TRY(copy(&stacks[used + 1], stack));
    *slot = ++used;
  }
  *out = *slot;
  return PX_OK;
}

// Lock held: a lent line refers to an interned stack.
static int add_lines(px_frame *frames, int count, const px_site *site) {
  const px_traceback *lent = stacks && site->lines ? stacks[site->lines] : NULL;
  if (!site->file) return count;
  if (!lent)
    return frames[count] = (px_frame){.file = site->file, .function = "", .line = site->line},
           count + 1;
  for (int i = 0; i < lent->count && count < FRAMES; i++) frames[count++] = lent->frames[i];
  return count;
}

// Returns 0 without memory.
static unsigned find(const char *op, bool latest) {
  px_frame frames[FRAMES];
  unsigned found = 0;
  px__error_guard guard;
  px_site other;
  px_traceback here = {op, frames, px__site_frames(frames, FRAMES, latest, &other)};
  px__error_save(&guard);  // the caller may be freeing memory after an error
  pthread_mutex_lock(&lock);
  here.count = add_lines(frames, here.count, &other);
  if (intern(&found, &here) != PX_OK) found = 0;
  pthread_mutex_unlock(&lock);
  px__error_restore(&guard);
  return found;
}

static const px_traceback *by_number(unsigned number) {
  pthread_mutex_lock(&lock);
  const px_traceback *stack = number ? stacks[number] : NULL;
  pthread_mutex_unlock(&lock);
  return stack;
}

static const char *op_now(void) { return px__history_names_ops() ? px__caller() : NULL; }
const px_traceback *px__stack_here(void) { return by_number(find(op_now(), false)); }
const px_traceback *px__stack_at_launch(void) { return by_number(find(op_now(), true)); }
const px_traceback *px__stack_of_lines(void) { return by_number(find(NULL, false)); }

px_site px_site_here(void) {
  px_site now;
  px__site_find(&now);
  bool whole = px__history_wants(PX_HISTORY_LIVE) || px__call_watched(PX__WATCH_STACKS);
  if (now.file && !now.lines && whole) now.lines = find(NULL, false);
  return now;
}
