// SPDX-License-Identifier: Apache-2.0
// Internal header of src/nn.
#pragma once
#include "phlox/nn.h"
#include "phlox/readers.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// Rows of a module's lists. A row does not change while it is in a list.
typedef struct px__entry {
  px_retired head;
  const char *name;  // in `shared`
  px_entry_sort sort;
  bool persistent;
  px_tensor *tensor;
  px_module *module;
  struct px__name *shared;  // also of the rows that replace this one: callers keep names
} px__entry;

enum { PX__ATTRIBUTE_INTS = 8 };
typedef struct px__attribute {
  px_retired head;
  const char *name;  // in `texts`
  px_value value;    // lists and texts point into the fields below
  int64_t ints[PX__ATTRIBUTE_INTS];
  char texts[];  // the name, and the text
} px__attribute;

typedef struct px__hook {
  px_retired head;
  const char *name;  // in `text`
  px_hook_entry entry;
  char text[24];  // the id
} px__hook;

// A list of rows, used by a reader of the module or under its lock.
typedef struct px__list {
  px_retired head;
  int count, capacity, gaps;  // count and gaps: atomic; count includes gaps
  size_t name_at;             // offset of the name's pointer in a row
  uint32_t *index;            // of many named rows, by name; its items are atomic. Or NULL
  uint64_t index_mask;
  void *rows[];  // atomic
} px__list;
extern px__list px__no_rows;         // each empty list
extern max_align_t px__row_gap[16];  // each row removed from a long list: zeros
static inline bool px__is_gap(const void *row) { return row == px__row_gap; }

// Purpose of a call of init: MADE constructs a module; WAITS constructs a lazy one, whose tensors
// have no size yet; FILLS materializes a lazy one; STARTS resets the parameters.
typedef enum px__stage { PX__MADE, PX__WAITS, PX__MATERIALIZES, PX__STARTS } px__stage;

struct px_module {
  px_object head;
  const px_module_kind *kind;
  void *context;
  void *user;
  px_module_function forward;  // set by a binding; NULL: the kind's
  px_module_invoker invoke;    // set by a binding; NULL: the kind's methods
  bool training;               // atomic
  px__stage stage;
  px_readers readers;
  pthread_mutex_t lock;  // excludes changes of the lists; no object is released under it
  px__list *entries, *attributes, *hooks;  // atomic
  int sorts;                               // atomic: of all entries so far
  px_module *next_waiting;                 // in the destruction list
};

// Grows an array if necessary, so that it holds one more item of `size` bytes.
px_status px__nn_grow(void **items, int *capacity, int count, size_t size)
    __attribute__((warn_unused_result));

// Begins a reader of a module that ends with the scope.
#define PX__READS(module) PX_READS(&((px_module *)(module))->readers)

// ---- list.c
static inline bool px__list_is_empty(px__list *const *list) {
  return PX_READ(*list) == &px__no_rows;
}
// Returns row i, perhaps a gap, or NULL past the end.
static inline void *px__row(px__list *const *list, int i) {
  px__list *l = PX_READ(*list);
  return i >= 0 && i < PX_READ(l->count) ? PX_READ(l->rows[i]) : NULL;
}
// Returns the next row that is no gap, or NULL. *i is 0 before the first one.
static inline void *px__next_row(px__list *list, int *i) {
  while (*i < PX_READ(list->count)) {
    void *row = PX_READ(list->rows[(*i)++]);
    if (!px__is_gap(row)) return row;
  }
  return NULL;
}
static inline const px__entry *px__entry_row(const px_module *self, int i) {
  return px__row(&self->entries, i);
}
// Returns the index of a name, or -1. `name_at`: offset of the name in a row.
int px__row_find(px__list *const *list, size_t name_at, const char *name);
// Change a list under the lock of its module. The caller retires *old afterwards, without the lock:
// the replaced list, or NULL. px__list_move replaces row i by a row at the end.
px_status px__list_append(px__list **list, size_t name_at, void *row, px_retired **old)
    __attribute__((warn_unused_result));
px_status px__list_move(px__list **list, int i, void *row, px_retired **old)
    __attribute__((warn_unused_result));
void px__list_remove(px__list **list, int i, px_retired **old);
// Frees a list with its rows. The module has no readers.
void px__list_end(px__list *list);
uint64_t px__name_hash(const char *name);  // dict.c: keyed with a secret of the process

// Brackets recursion into child modules. Fails with PX_RECURSION before the stack could overflow.
px_status px__nn_enter(const px_module *self) __attribute__((warn_unused_result));
void px__nn_leave(void);
// Brackets a call, which also enters a scope for counting operations (flop_names.c). px__nn_called
// takes the value set by px__nn_call.
px_status px__nn_call(bool *counted, px_module *self) __attribute__((warn_unused_result));
void px__nn_called(bool counted);
// Called for each destroyed module unless NULL. Atomic.
extern void (*px__nn_ended)(const px_module *self);

// Records the last kind name not found on this thread and the nearest existing one.
// px_module_new(NULL) reports them.
void px__kind_missed(const char *name, const char *nearest);

struct px_comm;
// Returns the communicator of a SyncBatchNorm (a new reference), or NULL without synchronization.
__attribute__((warn_unused_result)) px_status px__sync_norm_comm(struct px_comm **out,
                                                                 px_module *layer);

static inline bool px__training(const px_module *self) {
  return __atomic_load_n(&self->training, __ATOMIC_RELAXED);
}

// An attribute as a number; an entry's tensor, or NULL.
double px__float_of(const px_module *self, const char *name);
px_tensor *px__tensor_of(const px_module *self, const char *name);

// Runs forward without hooks, with tensor inputs. For a kind with methods: its first method.
px_status px__forward_bare(px_tensor **out, px_module *self, px_tensor *const *inputs, int count)
    __attribute__((warn_unused_result));
px_status px__method_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count)
    __attribute__((warn_unused_result));
enum { PX__INPUTS = 8, PX__RESULTS = 8 };  // maximum number of tensors of a call

// Returns a tensor of a child, which may be a binding's module. A new reference, or NULL for None.
px_status px__child_tensor(px_tensor **out, px_module *self, const char *child, const char *name)
    __attribute__((warn_unused_result));
// Returns the i-th child. A new reference. Fails with PX_INDEX if there is none.
px_status px__child_at(px_module **out, px_module *self, int i) __attribute__((warn_unused_result));
// Returns a child by name, borrowed from a reader of the module. Fails with PX_ATTRIBUTE if there
// is none.
px_status px__child(px_module **out, const px_module *self, const char *name)
    __attribute__((warn_unused_result));
// Converts a bool mask to an additive one, with -inf for true. Float masks are returned unchanged,
// NULL stays NULL. Fails with PX_ASSERTION for integers. Warns if `other` has a different dtype.
px_status px__canonical_mask(px_tensor **out, px_tensor *mask, const char *name,
                             const px_tensor *other, const char *other_name, px_dtype dtype)
    __attribute__((warn_unused_result));

// True if a tensor has no size yet. px__entry_is_uninitialized: and it belongs to a lazy layer.
bool px__is_uninitialized(const px_tensor *tensor);
bool px__entry_is_uninitialized(const px_module *owner, const px_tensor *tensor);

// Formats a value as Python prints it: 3, 1e-05, True, (3, 3), None.
void px__value_text(px_value value, char *text, size_t size);
// Formats integers as "3, 4", truncated to `size`. Returns `text`.
const char *px__comma_text(char *text, size_t size, int count, const int64_t *numbers);
// Expands {name} to an attribute and {class} to the kind's name. Returns `text`.
const char *px__expand_template(const px_module *self, const char *format, char *text, size_t size);
