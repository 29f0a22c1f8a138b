// SPDX-License-Identifier: Apache-2.0
// Internal header of src/nn.
#pragma once
#include "phlox/nn.h"

#include <stdlib.h>
#include <string.h>

typedef struct px__entry {
  char *name;
  px_entry_sort sort;
  bool persistent;
  px_tensor *tensor;
  px_module *module;
} px__entry;

enum { PX__ATTRIBUTE_INTS = 8 };
typedef struct px__attribute {
  char *name;
  px_value value;  // lists and texts point into the fields below
  int64_t ints[PX__ATTRIBUTE_INTS];
  char *text;
} px__attribute;

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
  bool training;
  px__stage stage;
  px__entry *entries;
  int entry_count, entry_capacity, gaps;  // entry_count includes gaps
  int sort_counts[PX_ENTRY_MODULE + 1];   // entries of each sort
  uint32_t *index;                        // of many entries, by name (entries.c)
  uint64_t index_size;
  px__attribute *attributes;
  int attribute_count, attribute_capacity;
  px_hook_entry *hooks;
  int hook_count, hook_capacity;
  px_module *next_waiting;  // in the destruction list
};

// Grows an array if necessary, so that it holds one more item of `size` bytes.
px_status px__nn_grow(void **items, int *capacity, int count, size_t size)
    __attribute__((warn_unused_result));

// entries.c. find returns a position, or -1. take removes an entry and returns it. add appends one
// with a new name, after a reserve.
extern char px__no_name[];
static inline bool px__is_gap(const px__entry *entry) { return entry->name == px__no_name; }
int px__entry_find(const px_module *self, const char *name);
px_status px__entry_reserve(px_module *self) __attribute__((warn_unused_result));
void px__entry_add(px_module *self, px__entry entry_take);
px__entry px__entry_take(px_module *self, int i);
uint64_t px__name_hash(const char *name);  // keyed with a secret of the process

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
// Returns a child by name. Fails with PX_ATTRIBUTE if there is none.
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
