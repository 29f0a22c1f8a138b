// SPDX-License-Identifier: Apache-2.0
// Modules: construction, entries and attributes.
#include "nn/module/nn_impl.h"
#include "phlox/base.h"

#include <stdio.h>

static _Thread_local int nest;  // depth of nested calls and walks on this thread

px_status px__nn_enter(const px_module *self) {
  enum { MAX_DEPTH = 1000 };
  PX_CHECK(nest < MAX_DEPTH, PX_RECURSION, "%s: modules are nested deeper than %d",
           self->kind->name, MAX_DEPTH);
  nest++;
  return PX_OK;
}
void px__nn_leave(void) { nest--; }

// The name of an entry, shared by the rows of that name.
typedef struct px__name {
  int32_t refs;
  char text[];
} px__name;

static void name_release(px__name *name) {
  if (__atomic_sub_fetch(&name->refs, 1, __ATOMIC_ACQ_REL) == 0) px_free(name);
}

static void entry_end(px_retired *row) {
  px__entry *entry = (px__entry *)row;
  name_release(entry->shared);
  px_release(entry->tensor);
  px_release(entry->module);
  px_free(entry);
}

void (*px__nn_ended)(const px_module *self);
static void module_end(px_module *self) {
  void (*ended)(const px_module *) = __atomic_load_n(&px__nn_ended, __ATOMIC_ACQUIRE);
  if (ended) ended(self);
  px__list_end(self->entries);
  px__list_end(self->attributes);
  px__list_end(self->hooks);
  if (self->kind->release) self->kind->release(self->context);
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

// Destroys without recursion, so nesting is limited by memory only. Children destroyed with their
// parent are queued in a list.
static void module_destroy(void *object) {
  static _Thread_local px_module *waiting;
  static _Thread_local bool ending;
  px_module *self = object;
  self->next_waiting = waiting;
  waiting = self;
  if (ending) return;
  ending = true;
  while ((self = waiting)) {
    waiting = self->next_waiting;
    module_end(self);
  }
  ending = false;
}

static const px_class module_class = {"module", module_destroy};

static px_status attribute_set(px_module *self, const char *name, px_value value);

// Value of an attribute: the argument, or the default. A number given for a list becomes a list
// that prints as a number.
static px_value argument_of(const px_param *param, const px_value *given) {
  px_value value = given ? *given : param->fallback;
  if (param->kind != PX_ARG_INTS) return value;
  if (!given && value.n == 1 && param->fallback_text && *param->fallback_text != '[')
    value.category = 'i';
  if (given && given->kind == PX_ARG_INT) {
    value = PX_IS(&given->v.i, 1);
    value.category = 'i';
  }
  return value;
}

static px_status set_arguments(px_module *self, const px_value *args) {
  for (int i = 0; i < self->kind->param_count; i++) {
    const px_param *param = &self->kind->params[i];
    bool none = args && args[i].kind == PX_ARG_NONE && args[i].category == 'n' && param->optional;
    bool given = none || (args && args[i].kind != PX_ARG_NONE);
    PX_CHECK(given || param->has_default || param->optional, PX_TYPE,
             "%s.__init__() missing 1 required positional argument: '%s'", self->kind->name,
             param->name);
    PX_TRY(attribute_set(self, param->name, argument_of(param, given ? &args[i] : NULL)));
  }
  return PX_OK;
}

void px__kind_missed(const char *name, const char *nearest) {
  char text[128];
  snprintf(text, sizeof text, "'%.60s': the nearest name is %s", name, nearest);
  px_name_miss(&module_class, text);
}

px_status px_module_new(px_module **out, const px_module_kind *kind, const px_value *args,
                        void *context) {
  PX_GIVEN(out);
  *out = NULL;
  const char *missed = kind ? NULL : px_name_missed(&module_class);
  PX_CHECK(!missed, PX_ATTRIBUTE, "there is no module kind %s", missed);
  PX_GIVEN(kind);
  px_module *made;
  PX_TRY(px_alloc((void **)&made, sizeof *made));
  px_object_init(made, &module_class);
  made->kind = kind;
  made->training = true;
  made->entries = made->attributes = made->hooks = &px__no_rows;
  pthread_mutex_init(&made->lock, NULL);
  PX_SCOPED(px_module) self = made;
  PX_TRY(set_arguments(self, args));
  if (kind->init) PX_TRY(kind->init(self));
  self->context = context;  // taken over on success only
  *out = PX_MOVE(self);
  return PX_OK;
}

px_status px_module_adopt_kind(px_module *self, const px_module_kind *kind) {
  PX_GIVEN(self);
  PX_GIVEN(kind);
  bool empty = px__list_is_empty(&self->entries) && px__list_is_empty(&self->attributes);
  PX_CHECK(self->kind->lazy || empty, PX_VALUE,
           "only an empty or a lazy module takes another kind");
  PX_PUBLISH(self->kind, kind);
  return PX_OK;
}

const px_module_kind *px_module_kind_of(const px_module *self) { return self->kind; }
void *px_module_context(const px_module *self) { return self->context; }
void *px_module_user(const px_module *self) { return self->user; }
void px_module_set_user(px_module *self, void *user) { self->user = user; }
void px_module_set_forward(px_module *self, px_module_function forward) { self->forward = forward; }
void px_module_set_invoke(px_module *self, px_module_invoker invoke) { self->invoke = invoke; }
bool px_module_training(const px_module *self) { return px__training(self); }
void px_module_set_training(px_module *self, bool training) {
  __atomic_store_n(&self->training, training, __ATOMIC_RELAXED);
}

int px_module_read_begin(px_module *self) { return px_read_begin(&self->readers); }
void px_module_read_end(px_module *self, int reader) { px_read_end(&self->readers, reader); }

// Replaces row i of a list, or appends the row if i is -1. The caller holds the lock.
static px_status put_row(px__list **list, size_t name_at, int i, void *row, px_retired *old[2]) {
  if (i < 0) return px__list_append(list, name_at, row, &old[1]);
  old[0] = (*list)->rows[i];
  PX_PUBLISH((*list)->rows[i], row);
  return PX_OK;
}

// Unlocks the module, and retires a row and a list.
static void change_end(px_module *self, px_retired *const old[2]) {
  pthread_mutex_unlock(&self->lock);
  for (int k = 0; k < 2; k++) px_readers_retire(&self->readers, old[k]);
}

// ---- attributes

static void attribute_end(px_retired *row) { px_free(row); }

static px_status attribute_new(px__attribute **out, const char *name, px_value value) {
  bool texts = value.kind == PX_ARG_TEXT;
  size_t name_bytes = strlen(name) + 1, text_bytes = texts ? strlen(value.v.text) + 1 : 0;
  PX_TRY(px_alloc((void **)out, sizeof **out + name_bytes + text_bytes));
  px__attribute *made = *out;
  made->head.end = attribute_end;
  made->name = memcpy(made->texts, name, name_bytes);
  if (texts) value.v.text = memcpy(made->texts + name_bytes, value.v.text, text_bytes);
  if (value.kind == PX_ARG_INTS)
    value.v.ints = memcpy(made->ints, value.v.ints, (size_t)value.n * sizeof(int64_t));
  made->value = value;
  return PX_OK;
}

static px_status attribute_set(px_module *self, const char *name, px_value value) {
  bool fits = value.kind != PX_ARG_INVALID_LIST &&
              (value.kind != PX_ARG_INTS || value.n <= PX__ATTRIBUTE_INTS);
  PX_CHECK(fits, PX_VALUE, "a module's attribute holds at most %d integers, but '%s' has %d",
           PX__ATTRIBUTE_INTS, name, value.n);
  px__attribute *fresh;
  px_retired *old[2] = {NULL, NULL};
  PX_TRY(attribute_new(&fresh, name, value));
  pthread_mutex_lock(&self->lock);
  int i = px__row_find(&self->attributes, offsetof(px__attribute, name), name);
  px_status status = put_row(&self->attributes, offsetof(px__attribute, name), i, fresh, old);
  change_end(self, old);
  if (status != PX_OK) attribute_end(&fresh->head);
  return status;
}

// Attributes own no objects. init takes over tensor arguments of the constructor.
px_status px_module_set_attribute(px_module *self, const char *name, px_value value) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  PX_CHECK(
      value.kind != PX_ARG_TENSOR && value.kind != PX_ARG_TENSORS && value.kind != PX_ARG_GENERATOR,
      PX_TYPE, "a module's attribute '%s' cannot be a %s", name, px_arg_name(value.kind));
  return attribute_set(self, name, value);
}

px_value px_module_attribute(const px_module *self, const char *name) {
  PX__READS(self);
  int i = px__row_find(&self->attributes, offsetof(px__attribute, name), name);
  const px__attribute *at = px__row(&self->attributes, i);
  return at ? at->value : PX_NONE();
}

double px__float_of(const px_module *self, const char *name) {
  return px_value_float(px_module_attribute(self, name));
}

// ---- entries

static int entry_find(const px_module *self, const char *name) {
  return px__row_find(&self->entries, offsetof(px__entry, name), name);
}

px_tensor *px__tensor_of(const px_module *self, const char *name) {
  PX__READS(self);
  const px__entry *entry = px__entry_row(self, entry_find(self, name));
  return entry ? entry->tensor : NULL;
}

static px_status name_check(const char *sort, const char *name) {
  PX_CHECK(name && *name, PX_KEY, "%s name can't be empty string \"\"", sort);
  bool given = !strcmp(sort, "module");  // PyTorch names modules only
  PX_CHECK(!strchr(name, '.'), PX_KEY, "%s name can't contain \".\"%s%s", sort,
           given ? ", got: " : "", given ? name : "");
  return PX_OK;
}

static px_status entry_new(px__entry **out, const px_module_entry *from) {
  size_t bytes = strlen(from->name) + 1;
  px__name *name;
  PX_TRY(px_alloc((void **)&name, sizeof *name + bytes));
  px_status status = px_alloc((void **)out, sizeof **out);
  if (status != PX_OK) return px_free(name), status;
  px__entry *made = *out;
  made->head.end = entry_end;
  made->sort = from->sort, made->persistent = from->persistent;
  made->tensor = px_retain(from->tensor), made->module = px_retain(from->module);
  name->refs = 1;
  made->shared = name;
  made->name = memcpy(name->text, from->name, bytes);
  return PX_OK;
}

static void share_name(px__entry *fresh, const px__entry *old) {
  name_release(fresh->shared);
  __atomic_add_fetch(&old->shared->refs, 1, __ATOMIC_RELAXED);
  fresh->shared = old->shared, fresh->name = old->name;
}

// Replaces the entry of that name, or appends it. An entry of another sort is an error, or `moves`
// to the end.
static px_status entry_put(px_module *self, px__entry *fresh, bool moves, px_retired *old[2]) {
  int i = entry_find(self, fresh->name);
  bool other = i >= 0 && px__entry_row(self, i)->sort != fresh->sort;
  PX_CHECK(!other || moves, PX_KEY, "attribute '%s' already exists", fresh->name);
  if (i >= 0) share_name(fresh, px__entry_row(self, i));
  __atomic_fetch_or(&self->sorts, (int)fresh->sort, __ATOMIC_RELAXED);
  if (!other) return put_row(&self->entries, offsetof(px__entry, name), i, fresh, old);
  px_retired *moved = self->entries->rows[i];
  PX_TRY(px__list_move(&self->entries, i, fresh, &old[1]));
  old[0] = moved;
  return PX_OK;
}

static px_status entry_register(px_module *self, const px_module_entry *entry, bool moves) {
  px__entry *fresh;
  px_retired *old[2] = {NULL, NULL};
  PX_TRY(entry_new(&fresh, entry));
  pthread_mutex_lock(&self->lock);
  px_status status = entry_put(self, fresh, moves, old);
  change_end(self, old);
  if (status == PX_OK) return PX_OK;
  entry_end(&fresh->head);
  return px_error_add_frame(status, __FILE__, __LINE__, __func__);
}

px_status px_module_register_parameter(px_module *self, const char *name, px_tensor *parameter) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  PX_TRY(name_check("parameter", name));
  if (parameter) {
    PX_CHECK(px_tensor_is_leaf(parameter), PX_VALUE,
             "Cannot assign non-leaf Tensor to parameter '%s'. Model parameters must be created "
             "explicitly. To express '%s' as a function of another Tensor, compute the value in "
             "the forward() method.",
             name, name);
    if (!px_tensor_is_parameter(parameter)) px_tensor_set_parameter(parameter, true);
  }
  px_module_entry entry = {name, PX_ENTRY_PARAMETER, true, parameter, NULL};
  return entry_register(self, &entry, false);
}

px_status px_module_register_buffer(px_module *self, const char *name, px_tensor *buffer,
                                    bool persistent) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  PX_TRY(name_check("buffer", name));
  px_module_entry entry = {name, PX_ENTRY_BUFFER, persistent, buffer, NULL};
  return entry_register(self, &entry, false);
}

px_status px_module_register_module(px_module *self, const char *name, px_module *child) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  PX_TRY(name_check("module", name));
  px_module_entry entry = {name, PX_ENTRY_MODULE, true, NULL, child};
  return entry_register(self, &entry, false);
}

// Keeps the position if the sort is unchanged, otherwise moves the entry to the end.
px_status px_module_put(px_module *self, const px_module_entry *entry) {
  PX_GIVEN(self);
  PX_GIVEN(entry);
  PX_GIVEN(entry->name);
  return entry_register(self, entry, true);
}

px_status px_module_remove(px_module *self, const char *name) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  px_retired *old[2] = {NULL, NULL};
  pthread_mutex_lock(&self->lock);
  int i = entry_find(self, name);
  if (i >= 0) {
    old[0] = self->entries->rows[i];
    px__list_remove(&self->entries, i, &old[1]);
  }
  change_end(self, old);
  PX_CHECK(i >= 0, PX_ATTRIBUTE, "'%s' object has no attribute '%s'", self->kind->name, name);
  return PX_OK;
}

static px_module_entry entry_shown(const px__entry *entry) {
  return (px_module_entry){entry->name, entry->sort, entry->persistent, entry->tensor,
                           entry->module};
}

bool px_module_entry_next(const px_module *self, int sorts, int *at, px_module_entry *out) {
  PX__READS(self);
  px__list *rows = PX_READ(self->entries);
  for (const px__entry *entry; (entry = px__next_row(rows, at));) {
    if (!((int)entry->sort & sorts)) continue;
    *out = entry_shown(entry);
    return true;
  }
  return false;
}

bool px_module_entry_at(const px_module *self, int sorts, int i, px_module_entry *out) {
  PX__READS(self);
  bool other = __atomic_load_n(&self->sorts, __ATOMIC_RELAXED) & ~sorts;
  int at = 0;
  if (i < 0) return false;
  if (!other && !PX_READ(PX_READ(self->entries)->gaps)) at = i, i = 0;  // direct access
  while (px_module_entry_next(self, sorts, &at, out))
    if (i-- == 0) return true;
  return false;
}

bool px_module_entry_find(const px_module *self, const char *name, px_module_entry *out) {
  PX__READS(self);
  const px__entry *entry = px__entry_row(self, entry_find(self, name));
  if (entry) *out = entry_shown(entry);
  return entry != NULL;
}
