// SPDX-License-Identifier: Apache-2.0
// The inside of a module, for the files of this folder.
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

// Why init runs: to make a module; of a lazy one, whose tensors wait for a size, and then to fill
// them; to start the tensors anew.
typedef enum px__stage { PX__MADE, PX__WAITS, PX__FILLS, PX__STARTS } px__stage;

struct px_module {
  px_object head;
  const px_module_kind *kind;
  void *context;
  void *user;
  px_module_function forward;  // of the embedding language; NULL: the kind's
  px_module_invoker invoke;    // the same
  bool training;
  px__stage stage;
  px__entry *entries;
  int entry_count, entry_room;
  px__attribute *attributes;
  int attribute_count, attribute_room;
  px_hook_entry *hooks;
  int hook_count, hook_room;
  px_module *next_waiting;  // of those that end
};

// Makes room for one more item of `size` bytes in a growing array.
px_status px__nn_grow(void **items, int *room, int count, size_t size)
    __attribute__((warn_unused_result));

// Around what modules do with the modules below them: PX_RECURSION where a nest is so deep that the
// stack could end.
px_status px__nn_enter(const px_module *self) __attribute__((warn_unused_result));
void px__nn_leave(void);
// The same around a call, which is where operations are counted (flops.c): call sets what called
// wants.
px_status px__nn_call(bool *counted, px_module *self) __attribute__((warn_unused_result));
void px__nn_called(bool counted);
// Told of each module that ends, while it is set; atomic.
extern void (*px__nn_ended)(const px_module *self);

// Notes which kind this thread looked for and did not find, and the nearest there is: a module of
// no kind fails with these names.
void px__kind_missed(const char *name, const char *nearest);

struct px_comm;
// The communicator of a SyncBatchNorm, a new reference; NULL where it works alone.
__attribute__((warn_unused_result)) px_status px__sync_norm_comm(struct px_comm **out,
                                                                 px_module *layer);

// Shorthands for forward functions: an attribute as a number, or the entry's tensor (NULL if none).
double px__float_of(const px_module *self, const char *name);
px_tensor *px__tensor_of(const px_module *self, const char *name);

// Forward without hooks: with tensors, and of a kind with methods by the first of them.
px_status px__forward_bare(px_tensor **out, px_module *self, px_tensor *const *inputs, int count)
    __attribute__((warn_unused_result));
px_status px__method_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count)
    __attribute__((warn_unused_result));
enum { PX__INPUTS = 8, PX__RESULTS = 8 };  // tensors of a call

// The tensor of a child, which may be the embedding language's; a new reference, NULL if None.
px_status px__child_tensor(px_tensor **out, px_module *self, const char *child, const char *name)
    __attribute__((warn_unused_result));
// The child of a name; PX_ATTRIBUTE if there is none.
px_status px__child(px_module **out, const px_module *self, const char *name)
    __attribute__((warn_unused_result));
// A bool mask as numbers that are added, -inf for true; any other as it is. NULL stays NULL.
// PX_ASSERTION for integers, a warning where `other` is of another dtype.
px_status px__canonical_mask(px_tensor **out, px_tensor *mask, const char *name,
                             const px_tensor *other, const char *other_name, px_dtype dtype)
    __attribute__((warn_unused_result));

// Whether a tensor waits for a size of a lazy layer; as an entry of such a one.
bool px__tensor_waits(const px_tensor *tensor);
bool px__entry_waits(const px_module *owner, const px_tensor *tensor);

// Writes a value as Python prints it: 3, 1e-05, True, (3, 3), None.
void px__value_text(px_value value, char *text, size_t room);
// Writes numbers, "3, 4", as far as there is room; gives `text`.
const char *px__comma_text(char *text, size_t room, int count, const int64_t *numbers);
// A text in which {name} stands for an attribute, and {class} for the kind's name; gives `text`.
const char *px__filled(const px_module *self, const char *format, char *text, size_t room);
