// SPDX-License-Identifier: Apache-2.0
// Calls of modules, their hooks, and copies of their structure.
#include "nn/module/nn_impl.h"

#include <stdio.h>

int px_module_port_tensors(const px_module_port *ports, int count) {
  int tensors = 0;
  for (int i = 0; i < count; i++) tensors += ports ? ports[i].tensors : 1;
  return tensors;
}

bool px_module_tensor_name(const px_module *self, int i, char *name, size_t size) {
  const px_module_kind *kind = self->kind;
  if (kind->tensor_name) return kind->tensor_name(self, i, name, size);
  if (i < 0 || i >= kind->tensor_count) return false;
  snprintf(name, size, "%s", kind->tensors[i]);
  return true;
}

// ---- hooks

static void hook_end(px_retired *row) {
  const px_hook_entry *hook = &((px__hook *)row)->entry;
  if (hook->release) hook->release(hook->context);
  px_free(row);
}

// Hooks are found by the texts of their ids, as entries are by their names.
static char *id_text(char text[24], int64_t id) {
  snprintf(text, 24, "%lld", (long long)id);
  return text;
}

px_status px_module_add_hook(int64_t *id, px_module *self, bool before, px_module_hook hook,
                             void *context, void (*release)(void *context)) {
  PX_GIVEN(id);
  PX_GIVEN(self);
  static int64_t next;  // atomic; ids are unique in the process
  PX_CHECK(hook, PX_TYPE, "expected a hook function, got NULL");
  px__hook *fresh;
  px_retired *old = NULL;
  PX_TRY(px_alloc((void **)&fresh, sizeof *fresh));
  fresh->head.end = hook_end;
  pthread_mutex_lock(&self->lock);  // also for the order of the ids
  int64_t given = __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
  fresh->entry = (px_hook_entry){given, before, hook, context, release};
  fresh->name = id_text(fresh->text, given);
  px_status status = px__list_append(&self->hooks, offsetof(px__hook, name), fresh, &old);
  pthread_mutex_unlock(&self->lock);
  px_readers_retire(&self->readers, old);
  if (status == PX_OK)
    *id = given;
  else
    px_free(fresh);
  return status;
}

void px_module_remove_hook(px_module *self, int64_t id) {
  char name[24];
  px_retired *old = NULL;
  pthread_mutex_lock(&self->lock);
  int i = px__row_find(&self->hooks, offsetof(px__hook, name), id_text(name, id));
  px__hook *hook = px__row(&self->hooks, i);
  if (hook) px__list_remove(&self->hooks, i, &old);
  pthread_mutex_unlock(&self->lock);
  px_readers_retire(&self->readers, old);
  px_readers_retire(&self->readers, hook ? &hook->head : NULL);
}

bool px_module_has_hooks(const px_module *self) { return !px__list_is_empty(&self->hooks); }

bool px_module_hook_at(const px_module *self, int i, px_hook_entry *out) {
  PX__READS(self);
  px__list *rows = PX_READ(self->hooks);
  const px__hook *hook;
  int at = 0;
  if (i < 0) return false;
  if (!PX_READ(rows->gaps)) at = i, i = 0;  // direct access
  while ((hook = px__next_row(rows, &at)) && i-- > 0) continue;
  if (hook) *out = hook->entry;
  return hook != NULL;
}

// Returns the next hook after the given id. Hooks may be added or removed during the iteration, so
// it is tracked by ids and ends at `last`.
static bool next_hook(const px_module *self, bool before, int64_t after, int64_t last,
                      px_hook_entry *out) {
  px__list *rows = PX_READ(self->hooks);
  int i = 0;
  for (const px__hook *hook; (hook = px__next_row(rows, &i));) {
    *out = hook->entry;
    if (out->before == before && out->id > after && out->id <= last) return true;
  }
  return false;
}

static int64_t last_hook(const px_module *self) {
  px__list *rows = PX_READ(self->hooks);
  int count = PX_READ(rows->count);
  while (count && px__is_gap(PX_READ(rows->rows[count - 1]))) count--;
  return count ? ((const px__hook *)PX_READ(rows->rows[count - 1]))->entry.id : 0;
}

static px_status run_hooks(px_module *self, bool before, const px_module_runner *way, void *call) {
  PX__READS(self);
  int64_t last = last_hook(self);
  px_hook_entry hook = {0};
  while (next_hook(self, before, hook.id, last, &hook)) PX_TRY(way->hook(self, &hook, call));
  return PX_OK;
}

px_status px_module_run(px_module *self, const px_module_runner *way, void *call) {
  PX_GIVEN(self);
  PX_GIVEN(way);
  PX_CHECK(way->hook && way->forward, PX_TYPE, "px_module_run(): `way` lacks a function");
  PX_TRY(run_hooks(self, true, way, call));
  PX_TRY(way->forward(self, call));
  return run_hooks(self, false, way, call);
}

// ---- calls with tensors

typedef struct tensor_call {
  px_tensor *inputs[PX__INPUTS];  // the first is owned
  int count;
  px_tensor **results;  // PX__RESULTS items, owned
} tensor_call;

static px_status tensor_hook(px_module *self, const px_hook_entry *hook, void *with) {
  tensor_call *call = with;
  px_tensor *replacement = NULL, **at = hook->before ? call->inputs : call->results;
  PX_TRY(hook->run(&replacement, self, call->inputs, call->count, call->results[0], hook->context));
  if (!replacement) return PX_OK;
  px_release(*at);
  *at = replacement;
  return PX_OK;
}

// Missing optional inputs are NULL in the kind's function.
px_status px__forward_bare(px_tensor **out, px_module *self, px_tensor *const *inputs, int count) {
  px_tensor *all[PX__INPUTS] = {NULL};
  if (self->forward) return self->forward(out, self, inputs, count);
  memcpy(all, inputs, (size_t)count * sizeof *inputs);
  PX__READS(self);
  return self->kind->forward(out, self, all,
                             px_module_port_tensors(self->kind->inputs, self->kind->input_count));
}

static px_status tensor_forward(px_module *self, void *with) {
  tensor_call *call = with;
  return px__forward_bare(call->results, self, call->inputs, call->count);
}

static px_status forward_hooked(px_tensor **results, px_module *self, px_tensor *const *inputs,
                                int count) {
  static const px_module_runner way = {tensor_hook, tensor_forward};
  tensor_call call = {.count = count, .results = results};
  memcpy(call.inputs, inputs, (size_t)count * sizeof *inputs);
  px_retain(*call.inputs);
  px_status status = px_module_run(self, &way, &call);
  px_release(*call.inputs);
  return status;
}

static px_status check_inputs(const px_module *self, px_tensor *const *inputs, int count) {
  const px_module_kind *kind = self->kind;
  int min = 0, max = px_module_port_tensors(kind->inputs, kind->input_count);
  for (int i = 0; i < kind->input_count && !(kind->inputs && kind->inputs[i].optional); i++)
    min += kind->inputs ? kind->inputs[i].tensors : 1;
  PX_CHECK(self->forward || kind->forward, PX_UNIMPLEMENTED,
           "Module [%s] is missing the required \"forward\" function", kind->name);
  PX_CHECK((self->forward || (count >= min && count <= max)) && count <= PX__INPUTS, PX_TYPE,
           "%s.forward() takes %d positional arguments but %d were given", kind->name,
           kind->input_count + 1, count + 1);
  for (int i = 0; i < min && i < count; i++)
    PX_CHECK(inputs[i], PX_TYPE, "%s.forward(): input %d is missing", kind->name, i);
  return PX_OK;
}

px_status px_module_forward_all(px_tensor **results, int result_count, px_module *self,
                                px_tensor *const *inputs, int count) {
  PX_GIVEN_N(results, result_count);
  PX_GIVEN(self);
  PX_GIVEN_N(inputs, count);
  const px_module_kind *kind = self->kind;
  px_tensor *all[PX__RESULTS] = {NULL};
  int made = kind->result_count ? px_module_port_tensors(kind->results, kind->result_count) : 1;
  for (int i = 0; i < result_count; i++) results[i] = NULL;
  PX_CHECK(result_count >= 1 && result_count <= made, PX_VALUE,
           "%s: expected at most %d results, got %d", kind->name, made, result_count);
  PX_TRY(check_inputs(self, inputs, count));
  bool counted;
  PX_TRY(px__nn_call(&counted, self));
  px_status status = !px__list_is_empty(&self->hooks) && count
                         ? forward_hooked(all, self, inputs, count)
                         : px__forward_bare(all, self, inputs, count);
  px__nn_called(counted);
  for (int i = 0; i < made; i++)
    if (status == PX_OK && i < result_count)
      results[i] = all[i];
    else
      px_release(all[i]);
  return status;
}

px_status px_module_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count) {
  PX_GIVEN(out);
  return px_module_forward_all(out, 1, self, inputs, count);
}

px_status px_module_call(px_tensor **out, px_module *self, px_tensor *input) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  return px_module_forward(out, self, &input, 1);
}

// ---- copying

static px_status copy_entry(px_module *made, const px__entry *entry, px_module_replace replace,
                            void *context) {
  if (entry->sort == PX_ENTRY_MODULE) {
    PX_SCOPED(px_module) child = NULL;
    if (entry->module) PX_TRY(px_module_copy(&child, entry->module, replace, context));
    return px_module_register_module(made, entry->name, child);
  }
  PX_SCOPED(px_tensor) tensor = NULL;
  if (entry->tensor) PX_TRY(replace(&tensor, entry->tensor, entry->sort, context));
  px_tensor *kept = tensor ? tensor : entry->tensor;
  // Parameters of a replica are non-leaf results, registered like buffers.
  if (entry->sort == PX_ENTRY_PARAMETER && (!kept || px_tensor_is_parameter(kept)))
    return px_module_register_parameter(made, entry->name, kept);
  return px_module_register_buffer(made, entry->name, kept, entry->persistent);
}

static px_status copy_entries(px_module *made, const px_module *self, px_module_replace replace,
                              void *context) {
  px__list *rows = PX_READ(self->entries);
  int i = 0;
  for (const px__entry *entry; (entry = px__next_row(rows, &i));)
    PX_TRY(copy_entry(made, entry, replace, context));
  return PX_OK;
}

static px_status copy_rows(px_module *made, const px_module *self, px_module_replace replace,
                           void *context) {
  const px__attribute *at;
  PX__READS(self);
  for (int i = 0; (at = px__row(&self->attributes, i)); i++)
    PX_TRY(px_module_set_attribute(made, at->name, at->value));
  return copy_entries(made, self, replace, context);
}

px_status px_module_copy(px_module **out, px_module *self, px_module_replace replace,
                         void *context) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(replace);
  static const px_module_kind bare = {.name = "copy"};  // without init: entries are copied
  *out = NULL;
  PX_SCOPED(px_module) made = NULL;
  PX_TRY(px_module_new(&made, &bare, NULL, NULL));
  made->kind = self->kind;
  made->training = px__training(self);
  PX_TRY(px__nn_enter(self));
  px_status status = copy_rows(made, self, replace, context);
  px__nn_leave();
  if (status == PX_OK) *out = PX_MOVE(made);
  return status;
}
