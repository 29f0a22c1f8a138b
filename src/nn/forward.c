// SPDX-License-Identifier: Apache-2.0
// Calling modules, their hooks, and copying their structure.
#include "nn/nn_impl.h"

enum { INPUT_LIMIT = 4 };

px_status px_module_add_hook(int64_t *id, px_module *self, bool before, px_module_hook hook,
                             void *context) {
  PX_GIVEN(self);
  static int64_t next;  // atomic; ids are unique in the process
  PX_CHECK(hook, PX_TYPE, "a hook needs a function");
  PX_TRY(
      px__nn_grow((void **)&self->hooks, &self->hook_room, self->hook_count, sizeof *self->hooks));
  *id = __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
  self->hooks[self->hook_count++] = (px__hook){*id, before, hook, context};
  return PX_OK;
}

void px_module_remove_hook(px_module *self, int64_t id) {
  for (int i = 0; i < self->hook_count; i++) {
    if (self->hooks[i].id != id) continue;
    memmove(&self->hooks[i], &self->hooks[i + 1],
            (size_t)(--self->hook_count - i) * sizeof *self->hooks);
    return;
  }
}

// Runs the hooks of one side; *tensor is owned and may be replaced.
static px_status run_hooks(px_module *self, bool before, px_tensor **tensor) {
  for (int i = 0; i < self->hook_count; i++) {
    px__hook hook = self->hooks[i];
    px_tensor *replacement = NULL;
    if (hook.before != before) continue;
    PX_TRY(hook.run(&replacement, self, *tensor, hook.context));
    if (!replacement) continue;
    px_release(*tensor);
    *tensor = replacement;
  }
  return PX_OK;
}

static px_status forward_hooked(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                int count) {
  PX_SCOPED(px_tensor) first = px_retain(inputs[0]);
  PX_SCOPED(px_tensor) result = NULL;
  px_tensor *changed[INPUT_LIMIT] = {0};
  PX_TRY(run_hooks(self, true, &first));
  memcpy(changed, inputs, (size_t)count * sizeof *inputs);
  changed[0] = first;
  PX_TRY(self->kind->forward(&result, self, changed, count));
  PX_TRY(run_hooks(self, false, &result));
  *out = PX_MOVE(result);
  return PX_OK;
}

px_status px_module_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count) {
  PX_GIVEN(self);
  PX_GIVEN_N(inputs, count);
  *out = NULL;
  PX_CHECK(self->kind->forward, PX_UNIMPLEMENTED,
           "Module [%s] is missing the required \"forward\" function", self->kind->name);
  PX_CHECK(count == self->kind->input_count && count <= INPUT_LIMIT, PX_TYPE,
           "%s.forward() takes %d positional arguments but %d were given", self->kind->name,
           self->kind->input_count + 1, count + 1);
  if (self->hook_count && count) return forward_hooked(out, self, inputs, count);
  return self->kind->forward(out, self, inputs, count);
}

px_status px_module_call(px_tensor **out, px_module *self, px_tensor *input) {
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
  // A replica's parameters are results, not leaves: they are kept as buffers are.
  if (entry->sort == PX_ENTRY_PARAMETER && (!kept || px_tensor_is_parameter(kept)))
    return px_module_register_parameter(made, entry->name, kept);
  return px_module_register_buffer(made, entry->name, kept, entry->persistent);
}

px_status px_module_copy(px_module **out, px_module *self, px_module_replace replace,
                         void *context) {
  PX_GIVEN(self);
  PX_GIVEN(replace);
  static const px_module_kind bare = {.name = "copy"};  // entries come from self, not from init
  *out = NULL;
  PX_SCOPED(px_module) made = NULL;
  PX_TRY(px_module_new(&made, &bare, NULL, NULL));
  made->kind = self->kind;
  made->training = self->training;
  for (int i = 0; i < self->attribute_count; i++)
    PX_TRY(px_module_set_attribute(made, self->attributes[i].name, self->attributes[i].value));
  for (int i = 0; i < self->entry_count; i++)
    PX_TRY(copy_entry(made, &self->entries[i], replace, context));
  *out = PX_MOVE(made);
  return PX_OK;
}
