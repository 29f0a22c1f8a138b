// SPDX-License-Identifier: Apache-2.0
// Traversal of a module and its children: parameters, buffers, modes, conversion.
#include "nn/module/nn_impl.h"
#include "phlox/ops/copy.h"

// ---- the walk: without recursion, so that depth is limited by memory only

// A module whose children are being visited. Its reader keeps them.
typedef struct level {
  px_module *module;
  px__list *rows;
  int next, reader;  // position of the next child
  size_t length;     // of the module's name
} level;

typedef struct walk {
  int sorts;
  bool recurse, duplicates;
  px_module_visitor visit;
  void *context;
  // Visited items; with duplicates, the modules of `levels`. A hash table by address.
  const void **seen;
  int64_t seen_count, seen_capacity;  // capacity: a power of two, at least twice the count
  level *levels;
  int level_count, level_capacity;
  char *name;  // full name of the current item
  size_t name_capacity;
} walk;

static int64_t home_of(const walk *w, const void *item) {
  return (int64_t)((uint64_t)(uintptr_t)item * 0x9e3779b97f4a7c15u >> 20) & (w->seen_capacity - 1);
}
// Returns the slot of an address, or the free slot for it.
static const void **seen_at(const walk *w, const void *item) {
  for (int64_t at = home_of(w, item);; at++) {
    const void **slot = &w->seen[at & (w->seen_capacity - 1)];
    if (!*slot || *slot == item) return slot;
  }
}

static px_status seen_grow(walk *w) {
  const void **old = w->seen, **grown;
  int64_t capacity = w->seen_capacity;
  PX_TRY(px_alloc((void **)&grown, (size_t)(capacity ? 2 * capacity : 32) * sizeof *old));
  w->seen = grown;
  w->seen_capacity = capacity ? 2 * capacity : 32;
  for (int64_t i = 0; i < capacity; i++)
    if (old[i]) *seen_at(w, old[i]) = old[i];
  px_free(old);
  return PX_OK;
}

// Adds an item. *fresh: it was not in the table.
static px_status seen_add(walk *w, const void *item, bool *fresh) {
  if (2 * (w->seen_count + 1) > w->seen_capacity) PX_TRY(seen_grow(w));
  const void **slot = seen_at(w, item);
  *fresh = !*slot;
  w->seen_count += *fresh;
  *slot = item;
  return PX_OK;
}

static void seen_remove(walk *w, const void *item) {
  int64_t mask = w->seen_capacity - 1, gap = seen_at(w, item) - w->seen;
  for (int64_t at = gap + 1; w->seen[at & mask]; at++) {
    if (((at - home_of(w, w->seen[at & mask])) & mask) < ((at - gap) & mask)) continue;
    w->seen[gap & mask] = w->seen[at & mask];
    gap = at;
  }
  w->seen[gap & mask] = NULL;
  w->seen_count--;
}

// Appends a part to the first `length` characters of the name. Returns the new length in *out.
static px_status join(walk *w, size_t length, const char *part, size_t *out) {
  size_t added = strlen(part), dot = length && added;
  if (length + dot + added + 1 > w->name_capacity) {
    size_t capacity = 2 * (length + added) + 64;
    PX_TRY(px_realloc((void **)&w->name, capacity));
    w->name_capacity = capacity;
  }
  if (dot) w->name[length] = '.';
  memcpy(w->name + length + dot, part, added + 1);
  *out = length + dot + added;
  return PX_OK;
}

static px_status visit_entries(walk *w, const level *of, px_entry_sort sort) {
  int i = 0;
  size_t length = of->length;
  for (const px__entry *entry; (entry = px__next_row(of->rows, &i));) {
    bool fresh = true;
    size_t end;
    if (entry->sort != sort || !entry->tensor) continue;
    if (!w->duplicates) PX_TRY(seen_add(w, entry->tensor, &fresh));
    if (!fresh) continue;
    PX_TRY(join(w, length, entry->name, &end));
    px_module_entry shown = {w->name, sort, entry->persistent, entry->tensor, NULL};
    PX_TRY(w->visit(w->name, &shown, of->module, w->context));
    w->name[length] = 0;
  }
  return PX_OK;
}

// Visits a module and its own entries. Its children are next.
static px_status enter(walk *w, px_module *self, size_t length) {
  bool fresh;
  PX_TRY(seen_add(w, self, &fresh));
  PX_CHECK(fresh || !w->duplicates, PX_RECURSION, "module '%s' contains itself", w->name);
  if (!fresh) return PX_OK;
  PX_TRY(px__nn_grow((void **)&w->levels, &w->level_capacity, w->level_count, sizeof(level)));
  int reader = px_read_begin(&self->readers);
  level now = {self, PX_READ(self->entries), 0, reader, length};
  w->levels[w->level_count++] = now;
  px_module_entry own = {w->name, PX_ENTRY_MODULE, true, NULL, self};
  if (w->sorts & PX_ENTRY_MODULE) PX_TRY(w->visit(w->name, &own, self, w->context));
  if (w->sorts & PX_ENTRY_PARAMETER) PX_TRY(visit_entries(w, &now, PX_ENTRY_PARAMETER));
  if (w->sorts & PX_ENTRY_BUFFER) PX_TRY(visit_entries(w, &now, PX_ENTRY_BUFFER));
  return PX_OK;
}

static void leave(walk *w) {
  const level *top = &w->levels[--w->level_count];
  if (w->duplicates) seen_remove(w, top->module);
  px_read_end(&top->module->readers, top->reader);
}

// Returns the next child of the module, or NULL.
static const px__entry *next_child(level *of) {
  const px__entry *entry;
  while ((entry = px__next_row(of->rows, &of->next)) && !entry->module) continue;
  return entry;
}

static px_status walk_children(walk *w) {
  while (w->level_count) {
    level *top = &w->levels[w->level_count - 1];
    const px__entry *child = w->recurse ? next_child(top) : NULL;
    if (!child) {
      leave(w);
      continue;
    }
    size_t length;
    PX_TRY(join(w, top->length, child->name, &length));
    PX_TRY(enter(w, child->module, length));
  }
  return PX_OK;
}

px_status px_module_walk(px_module *self, int sorts, const char *prefix, bool recurse,
                         bool duplicates, px_module_visitor visit, void *context) {
  PX_GIVEN(self);
  PX_GIVEN(visit);
  walk w = {.sorts = sorts,
            .recurse = recurse,
            .duplicates = duplicates,
            .visit = visit,
            .context = context};
  size_t length = 0;
  px_status status = join(&w, 0, prefix ? prefix : "", &length);
  if (status == PX_OK) status = enter(&w, self, length);
  if (status == PX_OK) status = walk_children(&w);
  while (w.level_count) leave(&w);
  px_free(w.seen);
  px_free(w.levels);
  px_free(w.name);
  return status;
}

// ---- lists of parameters

typedef struct tensor_array {
  px_tensor **items;
  int count, capacity;
} tensor_array;

static px_status collect(const char *name, const px_module_entry *entry, px_module *owner,
                         void *context) {
  tensor_array *all = context;
  PX_TRY(px__nn_grow((void **)&all->items, &all->capacity, all->count, sizeof(px_tensor *)));
  all->items[all->count++] = px_retain(entry->tensor);
  return PX_OK;
}

px_status px_module_parameters(px_list **out, px_module *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  tensor_array all = {0};
  px_status status = px_module_walk(self, PX_ENTRY_PARAMETER, "", true, false, collect, &all);
  if (status == PX_OK) status = px_list_new(out, all.items, all.count);
  for (int i = 0; i < all.count; i++) px_release(all.items[i]);
  px_free(all.items);
  return status;
}

// ---- modes

static px_status set_mode(const char *name, const px_module_entry *entry, px_module *owner,
                          void *context) {
  px_module_set_training(owner, *(bool *)context);
  return PX_OK;
}

px_status px_module_train(px_module *self, bool training) {
  PX_GIVEN(self);
  return px_module_walk(self, PX_ENTRY_MODULE, "", true, false, set_mode, &training);
}

static px_status set_requires(const char *name, const px_module_entry *entry, px_module *owner,
                              void *context) {
  return px_tensor_set_requires_grad(entry->tensor, *(bool *)context);
}

px_status px_module_requires_grad(px_module *self, bool requires_grad) {
  PX_GIVEN(self);
  return px_module_walk(self, PX_ENTRY_PARAMETER, "", true, false, set_requires, &requires_grad);
}

static px_status clear_grad(const char *name, const px_module_entry *entry, px_module *owner,
                            void *context) {
  return px_tensor_set_grad(entry->tensor, NULL);
}

px_status px_module_zero_grad(px_module *self) {
  PX_GIVEN(self);
  return px_module_walk(self, PX_ENTRY_PARAMETER, "", true, false, clear_grad, NULL);
}

// ---- conversion of dtype, device and memory format

typedef struct destination {
  px_dtype dtype;
  px_device device;
  bool non_blocking;
  px_memory_format format;
  bool casts;  // complex tensors keep their dtype
} destination;

static px_status moved(px_tensor **out, px_tensor *tensor, const destination *to) {
  px_dtype own = px_tensor_dtype(tensor);
  bool changes = to->casts ? px_dtype_is_float(own) : px_dtype_is_differentiable(own);
  px_dtype dtype = changes ? to->dtype : PX_DTYPE_NONE;
  bool stays = to->device.type < 0 || to->device.type == PX_META;
  PX_CHECK(stays || px_tensor_device(tensor).type != PX_META, PX_UNIMPLEMENTED,
           "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead "
           "of torch.nn.Module.to() when moving module from meta to a different device.");
  int ndim = px_tensor_ndim(tensor);
  bool formed = to->format != PX_FORMAT_PRESERVE && (ndim == 4 || ndim == 5);
  return px_to_format(out, tensor, dtype, to->device, to->non_blocking, false,
                      formed ? px_memory_format_name(to->format) : NULL);
}

// Converts one tensor and its gradient in place; both keep their identity. The gradient is detached
// during the conversion, because it must always match the tensor.
static px_status move_entry(const char *name, const px_module_entry *entry, px_module *owner,
                            void *context) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_SCOPED(px_tensor) slope = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px_tensor_get_grad(&grad, entry->tensor));
  PX_TRY(moved(&value, entry->tensor, context));
  if (value == entry->tensor) return PX_OK;
  if (grad) PX_TRY(moved(&slope, grad, context));
  PX_TRY(px_tensor_set_grad(entry->tensor, NULL));
  px_status status = px_tensor_set_data(entry->tensor, value);
  if (!grad) return status;
  if (status == PX_OK) PX_TRY(px_tensor_set_data(grad, slope));
  PX_TRY(px_tensor_set_grad(entry->tensor, grad));
  return status;
}

static px_status move_entries(px_module *self, destination *to) {
  bool recording = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status =
      px_module_walk(self, PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER, "", true, false, move_entry, to);
  px_grad_set_enabled(recording);
  return status;
}

px_status px_module_to(px_module *self, px_dtype dtype, px_device device, bool non_blocking) {
  return px_module_to_format(self, dtype, device, non_blocking, PX_FORMAT_PRESERVE);
}

px_status px_module_to_format(px_module *self, px_dtype dtype, px_device device, bool non_blocking,
                              px_memory_format format) {
  PX_GIVEN(self);
  PX_CHECK(dtype == PX_DTYPE_NONE || px_dtype_is_differentiable(dtype), PX_TYPE,
           "nn.Module.to only accepts floating point or complex dtypes, but got desired "
           "dtype=torch.%s",
           px_dtype_name(dtype));
  if (px_dtype_is_complex(dtype))
    PX_TRY(px_warn(PX_WARN_USER,
                   "Complex modules are a new feature under active development whose design may "
                   "change, and some modules might not work as expected when using complex tensors "
                   "as parameters or buffers."));
  return move_entries(self, &(destination){dtype, device, non_blocking, format, false});
}

px_status px_module_cast(px_module *self, px_dtype dtype) {
  PX_GIVEN(self);
  PX_CHECK(px_dtype_is_float(dtype), PX_TYPE, "expected a floating point dtype, got torch.%s",
           px_dtype_name(dtype));
  return move_entries(self, &(destination){dtype, PX_DEVICE_NONE, false, PX_FORMAT_PRESERVE, true});
}
