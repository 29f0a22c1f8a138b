// SPDX-License-Identifier: Apache-2.0
// Counters of floating-point operations, per module.
//
// An entered module is a scope nested in another. Node sequence numbers increase in recording
// order, so a list of (first sequence number, scope) gives the forward scope of a running node.
// Recording itself has no extra cost.
#include "phlox/flops.h"

#include <stdio.h>
#include <stdlib.h>

#include "autograd/engine/engine.h"

// Interned scopes of the process; never freed. Scope 0 is Global.
typedef struct scope {
  int parent;
  char *name;
} scope;
// The scope of nodes from `sequence` on.
typedef struct begin {
  uint64_t sequence;
  int scope;
} begin;
typedef struct row {
  char *module, *op;
  int64_t operations;
  uint64_t last_launch;  // number of the last added launch: a module may be entered recursively
} row;
struct px_flop_counter {
  px_object head;
  px_flop_counter *next;  // in the list of active counters
  bool counting;
  bool failed;  // out of memory for a row
  row *rows;
  int count, capacity;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // guards the variables below and counters
static px_flop_counter *counters;
static scope *scopes;
static begin *begins;
static int scope_count, scope_capacity, begin_count, begin_capacity;
static uint64_t launches;
static uint64_t sessions, session;   // number of starts; the current one, or 0 (atomic)
static _Thread_local int scope_now;  // innermost scope of the thread

static px_status grow(void **items, int *capacity, int count, size_t size) {
  if (count < *capacity) return PX_OK;
  int larger = *capacity ? 2 * *capacity : 16;
  PX_TRY(px_realloc(items, (size_t)larger * size));
  *capacity = larger;
  return PX_OK;
}

// ---- scopes; the caller holds the lock

static px_status find_scope(int *out, int parent, const char *name) {
  for (int i = 1; i < scope_count; i++)
    if (scopes[i].parent == parent && !strcmp(scopes[i].name, name)) return *out = i, PX_OK;
  char *copy;
  PX_TRY(grow((void **)&scopes, &scope_capacity, scope_count + 1, sizeof *scopes));
  if (!scope_count) scopes[scope_count++] = (scope){0};
  PX_TRY(px_strdup(&copy, name));
  scopes[ *out = scope_count++] = (scope){parent, copy};
  return PX_OK;
}

static px_status note_begin(int at) {
  uint64_t sequence = px__node_next();
  if (!begin_count || begins[begin_count - 1].sequence != sequence) {
    PX_TRY(grow((void **)&begins, &begin_capacity, begin_count, sizeof *begins));
    begin_count++;
  }
  begins[begin_count - 1] = (begin){sequence, at};
  return PX_OK;
}

static px_status enter(const char *module) {
  int made = 0;
  PX_TRY(find_scope(&made, scope_now, module));
  PX_TRY(note_begin(made));
  scope_now = made;
  return PX_OK;
}

px_status px_flops_enter(const char *module) {
  PX_GIVEN(module);
  pthread_mutex_lock(&lock);
  px_status status = enter(module);
  pthread_mutex_unlock(&lock);
  return status == PX_OK ? PX_OK : px_error_add_frame(status, __FILE__, __LINE__, __func__);
}

void px_flops_leave(void) {
  pthread_mutex_lock(&lock);
  if (scope_now) {
    scope_now = scopes[scope_now].parent;
    if (note_begin(scope_now) != PX_OK) px_error_clear();
  }
  pthread_mutex_unlock(&lock);
}

// Returns the scope of a node's forward call.
static int scope_of(uint64_t sequence) {
  int low = 0, high = begin_count;  // begins[low - 1] <= sequence < begins[high]
  while (low < high) {
    int middle = (low + high) / 2;
    if (begins[middle].sequence <= sequence)
      low = middle + 1;
    else
      high = middle;
  }
  return low ? begins[low - 1].scope : 0;
}

// ---- launches

// Selects the op name from an entry such as "convolution, backward convolution_backward".
static void pick(char *out, size_t size, const char *names, const char *when) {
  size_t length = strcspn(names, ",");
  for (const char *at = names; when && (at = strchr(at, ','));) {
    at += strspn(at, ", ");
    size_t word = strlen(when);
    if (strncmp(at, when, word) || at[word] != ' ') continue;
    names = at + word + 1;
    length = strcspn(names, ",");
    break;
  }
  snprintf(out, size, "%.*s", (int)length, names);
}

static px_status add(px_flop_counter *self, const char *module, const char *op,
                     int64_t operations) {
  row *r = NULL;
  for (int i = 0; i < self->count && !r; i++)
    if (!strcmp(self->rows[i].module, module) && !strcmp(self->rows[i].op, op)) r = &self->rows[i];
  if (!r) {
    row made = {0};
    PX_TRY(grow((void **)&self->rows, &self->capacity, self->count, sizeof *self->rows));
    PX_TRY(px_strdup(&made.module, module));
    px_status status = px_strdup(&made.op, op);
    if (status != PX_OK) return px_free(made.module), status;
    self->rows[self->count] = made;
    r = &self->rows[self->count++];
  }
  if (r->last_launch != launches) r->operations += operations;
  r->last_launch = launches;
  return PX_OK;
}

static void add_all(const char *module, const char *op, int64_t operations) {
  for (px_flop_counter *c = counters; c; c = c->next) {
    if (add(c, module, op, operations) == PX_OK) continue;
    c->failed = true;
    px_error_clear();
  }
}

static void counted(const char *names, int64_t operations, px_device_type type) {
  char op[96];
  px__running_item run = px__run_here();
  // Recomputation during backward (checkpointing) counts as forward.
  bool backward = run.depth && px_grad_enabled() == run.create;
  pick(op, sizeof op, names,
       backward && strstr(names, ", backward ") ? "backward"
       : type == PX_CPU                         ? "cpu"
                                                : NULL);
  pthread_mutex_lock(&lock);
  launches++;
  add_all("Global", op, operations);
  for (int s = scope_now; s; s = scopes[s].parent) add_all(scopes[s].name, op, operations);
  for (int s = run.depth ? scope_of(run.sequence) : 0; s; s = scopes[s].parent)
    add_all(scopes[s].name, op, operations);
  pthread_mutex_unlock(&lock);
}

// ---- counters

static void clear(px_flop_counter *self) {
  for (int i = 0; i < self->count; i++) px_free(self->rows[i].module), px_free(self->rows[i].op);
  self->count = 0, self->failed = false;
}

static void destroy(void *object) {
  px_flop_counter *self = object;
  clear(self);
  px_free(self->rows);
  px_object_end(self);
  px_free(self);
}
static const px_class counter_class = {"flop_counter", destroy};

px_status px_flop_counter_new(px_flop_counter **out) {
  PX_GIVEN(out);
  PX_TRY(px_alloc((void **)out, sizeof **out));
  px_object_init(*out, &counter_class);
  return PX_OK;
}

px_status px_flop_counter_begin(px_flop_counter *self) {
  PX_GIVEN(self);
  pthread_mutex_lock(&lock);
  bool fresh = !self->counting;
  if (fresh) {
    clear(self);
    self->counting = true;
    self->next = counters;
    counters = px_retain(self);
    if (!session) begin_count = 0;
    __atomic_store_n(&session, ++sessions, __ATOMIC_RELAXED);
    px_op_set_flop_callback(counted);
  }
  pthread_mutex_unlock(&lock);
  PX_CHECK(fresh, PX_RUNTIME, "the counter is already active");
  return PX_OK;
}

void px_flop_counter_end(px_flop_counter *self) {
  if (!self) return;
  pthread_mutex_lock(&lock);
  px_flop_counter **slot = &counters;
  while (*slot && *slot != self) slot = &(*slot)->next;
  bool found = *slot != NULL;
  if (found) {
    *slot = self->next;
    self->counting = false;
    if (!counters) __atomic_store_n(&session, 0, __ATOMIC_RELAXED), px_op_set_flop_callback(NULL);
  }
  pthread_mutex_unlock(&lock);
  if (found) px_release(self);
}

uint64_t px_flops_session(void) { return __atomic_load_n(&session, __ATOMIC_RELAXED); }

// ---- results

bool px_flop_counter_at(const px_flop_counter *self, int i, px_flop_count *out) {
  if (i < 0 || i >= self->count) return false;
  *out = (px_flop_count){self->rows[i].module, self->rows[i].op, self->rows[i].operations};
  return true;
}

static int64_t sum(const px_flop_counter *self, const char *module) {
  int64_t operations = 0;
  for (int i = 0; i < self->count; i++)
    if (!strcmp(self->rows[i].module, module)) operations += self->rows[i].operations;
  return operations;
}

int64_t px_flop_counter_total(const px_flop_counter *self) { return sum(self, "Global"); }

// A table under construction: lines of three columns, and the common unit of the numbers.
typedef struct line {
  char *name;
  int64_t operations;
} line;
typedef struct table {
  const px_flop_counter *counter;
  int64_t total;
  int power;  // of 1000
  line *lines;
  int count, capacity, width[3];
} table;

static void number_text(const table *t, int64_t operations, char text[32]) {
  static const char suffixes[][2] = {"", "K", "M", "B", "T"};
  double scale = 1;
  for (int i = 0; i < t->power; i++) scale *= 1000;
  if (t->power)
    snprintf(text, 32, "%.3f%s", (double)operations / scale, suffixes[t->power]);
  else
    snprintf(text, 32, "%lld", (long long)operations);
}

static void percent_text(const table *t, int64_t operations, char text[32]) {
  if (t->total)
    snprintf(text, 32, "%.2f%%", 100 * ((double)operations / (double)t->total));
  else
    snprintf(text, 32, "0%%");
}

static void widen(int *width, const char *text) {
  if ((int)strlen(text) > *width) *width = (int)strlen(text);
}

static px_status add_line(table *t, int indent, const char *mark, const char *name,
                          int64_t operations) {
  char text[32], whole[512];
  snprintf(whole, sizeof whole, "%*s%s%s", indent, "", mark, name);
  PX_TRY(grow((void **)&t->lines, &t->capacity, t->count, sizeof *t->lines));
  PX_TRY(px_strdup(&t->lines[t->count].name, whole));
  t->lines[t->count++].operations = operations;
  widen(&t->width[0], whole);
  number_text(t, operations, text);
  widen(&t->width[1], text);
  percent_text(t, operations, text);
  widen(&t->width[2], text);
  return PX_OK;
}

static px_status add_module(table *t, int indent, const char *module) {
  PX_TRY(add_line(t, indent, "", module, sum(t->counter, module)));
  for (int i = 0; i < t->counter->count; i++) {
    const row *r = &t->counter->rows[i];
    if (!strcmp(r->module, module)) PX_TRY(add_line(t, indent, " - aten.", r->op, r->operations));
  }
  return PX_OK;
}

static int levels(const char *module) {
  int count = 1;
  for (; *module; module++) count += *module == '.';
  return count;
}

// Returns the next module name in lexicographic order, or NULL.
static const char *next_module(const px_flop_counter *self, const char *after) {
  const char *next = NULL;
  for (int i = 0; i < self->count; i++) {
    const char *module = self->rows[i].module;
    if (!strcmp(module, "Global") || (after && strcmp(module, after) <= 0)) continue;
    if (!next || strcmp(module, next) < 0) next = module;
  }
  return next;
}

// Global is listed unless one module accounts for everything.
static px_status add_modules(table *t, int depth) {
  bool last_launch = t->total == 0;
  for (const char *m = next_module(t->counter, NULL); m; m = next_module(t->counter, m))
    last_launch |= (depth < 0 || levels(m) <= depth) && sum(t->counter, m) >= t->total;
  if (!last_launch) PX_TRY(add_module(t, 0, "Global"));
  for (const char *m = next_module(t->counter, NULL); m; m = next_module(t->counter, m))
    if (depth < 0 || levels(m) <= depth) PX_TRY(add_module(t, levels(m) - last_launch, m));
  return t->count ? PX_OK : add_line(t, 0, "", "Global", 0);
}

static int print_line(const table *t, char *text, size_t bytes, const char *name,
                      const char *number, const char *percent) {
  return snprintf(text, bytes, "\n%-*s  %*s  %*s", t->width[0], name, t->width[1], number,
                  t->width[2], percent);
}

static int print_lines(const table *t, char *text, size_t bytes) {
  char number[32], percent[32];
  int length = 0;
  for (int i = 0; i < t->count; i++) {
    number_text(t, t->lines[i].operations, number);
    percent_text(t, t->lines[i].operations, percent);
    length +=
        print_line(t, text + length, bytes - (size_t)length, t->lines[i].name, number, percent);
  }
  return length;
}

static px_status print(char **out, const table *t) {
  size_t width = (size_t)(t->width[0] + t->width[1] + t->width[2]) + 5;
  size_t bytes = width * (size_t)(t->count + 2) + 1;
  char dashes[3][512];
  PX_TRY(px_alloc((void **)out, bytes));
  for (int i = 0; i < 3; i++) {
    memset(dashes[i], '-', (size_t)t->width[i]);
    dashes[i][t->width[i]] = 0;
  }
  int length = print_line(t, *out, bytes, "Module", "FLOP", "% Total");
  length += print_line(t, *out + length, bytes - (size_t)length, dashes[0], dashes[1], dashes[2]);
  print_lines(t, *out + length, bytes - (size_t)length);
  memmove(*out, *out + 1, strlen(*out));  // without the leading newline
  return PX_OK;
}

px_status px_flop_counter_table(char **out, const px_flop_counter *self, int depth) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_CHECK(!self->failed, PX_NOMEM, "out of memory while counting operations");
  table t = {.counter = self, .total = px_flop_counter_total(self), .width = {8, 6, 9}};
  for (int64_t rest = t.total / 10000; rest && t.power < 4; rest /= 1000) t.power++;
  px_status status = add_modules(&t, depth);
  if (status == PX_OK) status = print(out, &t);
  for (int i = 0; i < t.count; i++) px_free(t.lines[i].name);
  px_free(t.lines);
  return status == PX_OK ? PX_OK : px_error_add_frame(status, __FILE__, __LINE__, __func__);
}
