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

static void entry_clear(px__entry *entry) {
  px_free(entry->name);
  px_release(entry->tensor);
  px_release(entry->module);
}

void (*px__nn_ended)(const px_module *self);
static void module_end(px_module *self) {
  void (*ended)(const px_module *) = __atomic_load_n(&px__nn_ended, __ATOMIC_ACQUIRE);
  if (ended) ended(self);
  for (int i = 0; i < self->entry_count; i++)
    if (!px__is_gap(&self->entries[i])) entry_clear(&self->entries[i]);
  for (int i = 0; i < self->attribute_count; i++) {
    px_free(self->attributes[i].name);
    px_free(self->attributes[i].text);
  }
  for (int i = 0; i < self->hook_count; i++)
    if (self->hooks[i].release) self->hooks[i].release(self->hooks[i].context);
  if (self->kind->release) self->kind->release(self->context);
  px_free(self->entries);
  px_free(self->index);
  px_free(self->attributes);
  px_free(self->hooks);
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
  PX_CHECK(self->kind->lazy || (!self->entry_count && !self->attribute_count), PX_VALUE,
           "only an empty or a lazy module takes another kind");
  self->kind = kind;
  return PX_OK;
}

const px_module_kind *px_module_kind_of(const px_module *self) { return self->kind; }
void *px_module_context(const px_module *self) { return self->context; }
void *px_module_user(const px_module *self) { return self->user; }
void px_module_set_user(px_module *self, void *user) { self->user = user; }
void px_module_set_forward(px_module *self, px_module_function forward) { self->forward = forward; }
void px_module_set_invoke(px_module *self, px_module_invoker invoke) { self->invoke = invoke; }
bool px_module_training(const px_module *self) { return self->training; }
void px_module_set_training(px_module *self, bool training) { self->training = training; }

// ---- attributes

static px__attribute *attribute_find(const px_module *self, const char *name) {
  for (int i = 0; i < self->attribute_count; i++)
    if (!strcmp(self->attributes[i].name, name)) return &self->attributes[i];
  return NULL;
}

static px_status attribute_store(px__attribute *at, px_value value) {
  char *text = NULL;
  if (value.kind == PX_ARG_TEXT) PX_TRY(px_strdup(&text, value.v.text));
  if (value.kind == PX_ARG_INTS) {
    memmove(at->ints, value.v.ints, (size_t)value.n * sizeof(int64_t));
    value.v.ints = at->ints;
  }
  px_free(at->text);
  at->text = text;
  if (text) value.v.text = text;
  at->value = value;
  return PX_OK;
}

// Lists point into the array of attributes. Updates them after it was reallocated.
static void attributes_moved(px_module *self) {
  for (int i = 0; i < self->attribute_count; i++)
    if (self->attributes[i].value.kind == PX_ARG_INTS)
      self->attributes[i].value.v.ints = self->attributes[i].ints;
}

static px_status attribute_set(px_module *self, const char *name, px_value value) {
  PX_CHECK(value.kind != PX_ARG_INTS || (value.n >= 0 && value.n <= PX__ATTRIBUTE_INTS), PX_VALUE,
           "a module's attribute holds at most %d integers, but '%s' has %d", PX__ATTRIBUTE_INTS,
           name, value.n);
  px__attribute *at = attribute_find(self, name);
  if (at) return attribute_store(at, value);
  PX_TRY(px__nn_grow((void **)&self->attributes, &self->attribute_capacity, self->attribute_count,
                     sizeof *at));
  attributes_moved(self);
  px__attribute fresh = {0};
  PX_TRY(px_strdup(&fresh.name, name));
  at = &self->attributes[self->attribute_count];
  *at = fresh;
  px_status status = attribute_store(at, value);
  if (status != PX_OK)
    px_free(fresh.name);
  else
    self->attribute_count++;
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
  px__attribute *at = attribute_find(self, name);
  return at ? at->value : PX_NONE();
}

double px__float_of(const px_module *self, const char *name) {
  return px_value_float(px_module_attribute(self, name));
}

// ---- entries

px_tensor *px__tensor_of(const px_module *self, const char *name) {
  int i = px__entry_find(self, name);
  return i < 0 ? NULL : self->entries[i].tensor;
}

static px_status name_check(const char *sort, const char *name) {
  PX_CHECK(name && *name, PX_KEY, "%s name can't be empty string \"\"", sort);
  bool given = !strcmp(sort, "module");  // PyTorch names modules only
  PX_CHECK(!strchr(name, '.'), PX_KEY, "%s name can't contain \".\"%s%s", sort,
           given ? ", got: " : "", given ? name : "");
  return PX_OK;
}

// Replaces the entry of that name, or appends it. Takes the references to tensor and module.
static px_status entry_put(px_module *self, const px__entry *fresh) {
  int i = px__entry_find(self, fresh->name);
  if (i >= 0) {
    PX_CHECK(self->entries[i].sort == fresh->sort, PX_KEY, "attribute '%s' already exists",
             fresh->name);
    px__entry old = self->entries[i];
    self->entries[i] = *fresh;
    self->entries[i].name = old.name;
    px_release(old.tensor);
    px_release(old.module);
    return PX_OK;
  }
  px__entry added = *fresh;
  PX_TRY(px__entry_reserve(self));
  PX_TRY(px_strdup(&added.name, fresh->name));
  px__entry_add(self, added);
  return PX_OK;
}

static px_status entry_register(px_module *self, px__entry entry) {
  px_retain(entry.tensor);
  px_retain(entry.module);
  px_status status = entry_put(self, &entry);
  if (status == PX_OK) return PX_OK;
  px_release(entry.tensor);
  px_release(entry.module);
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
    px_tensor_set_parameter(parameter, true);
  }
  px__entry entry = {(char *)name, PX_ENTRY_PARAMETER, true, parameter, NULL};
  return entry_register(self, entry);
}

px_status px_module_register_buffer(px_module *self, const char *name, px_tensor *buffer,
                                    bool persistent) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  PX_TRY(name_check("buffer", name));
  px__entry entry = {(char *)name, PX_ENTRY_BUFFER, persistent, buffer, NULL};
  return entry_register(self, entry);
}

px_status px_module_register_module(px_module *self, const char *name, px_module *child) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  PX_TRY(name_check("module", name));
  px__entry entry = {(char *)name, PX_ENTRY_MODULE, true, NULL, child};
  return entry_register(self, entry);
}

// Keeps the position if the sort is unchanged, otherwise moves the entry to the end.
px_status px_module_put(px_module *self, const px_module_entry *entry) {
  PX_GIVEN(self);
  PX_GIVEN(entry);
  PX_GIVEN(entry->name);
  int i = px__entry_find(self, entry->name);
  px__entry fresh = {(char *)entry->name, entry->sort, entry->persistent, entry->tensor,
                     entry->module};
  if (i < 0 || self->entries[i].sort == entry->sort) return entry_register(self, fresh);
  PX_TRY(px__entry_reserve(self));
  px_retain(entry->tensor);
  px_retain(entry->module);
  px__entry old = px__entry_take(self, i);
  fresh.name = old.name;
  px__entry_add(self, fresh);
  px_release(old.tensor);
  px_release(old.module);
  return PX_OK;
}

px_status px_module_remove(px_module *self, const char *name) {
  PX_GIVEN(self);
  PX_GIVEN(name);
  int i = px__entry_find(self, name);
  PX_CHECK(i >= 0, PX_ATTRIBUTE, "'%s' object has no attribute '%s'", self->kind->name, name);
  px__entry old = px__entry_take(self, i);
  entry_clear(&old);
  return PX_OK;
}
