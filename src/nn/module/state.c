// SPDX-License-Identifier: Apache-2.0
// state_dict and load_state_dict.
#include "nn/module/nn_impl.h"
#include "phlox/ops/copy.h"

#include <stdio.h>

enum { STATE = PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER };

static px_status add_state(const char *name, const px_module_entry *entry, px_module *owner,
                           void *context) {
  if (!entry->persistent) return PX_OK;
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px_tensor_detach(&value, entry->tensor));
  return px_dict_set(context, name, value);
}

px_status px_module_state_dict(px_dict **out, px_module *self, const char *prefix) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  PX_SCOPED(px_dict) state = NULL;
  PX_TRY(px_dict_new(&state));
  PX_TRY(px_module_walk(self, STATE, prefix, true, true, add_state, state));
  *out = PX_MOVE(state);
  return PX_OK;
}

// Differences between a module and a state, as error texts.
typedef struct load {
  px_dict *state, *names;
  char missing[1024], unexpected[1024], sizes[1536];
} load;

static void add_name(char *text, size_t size, const char *name) {
  size_t used = strlen(text);
  snprintf(text + used, size - used, "%s\"%s\"", used ? ", " : "", name);
}

static void size_text(char *text, size_t size, const px_tensor *t) {
  size_t used = (size_t)snprintf(text, size, "torch.Size([");
  used += strlen(px__comma_text(text + used, size - used, px_tensor_ndim(t), px_tensor_sizes(t)));
  snprintf(text + used, size - used, "])");
}

bool px__is_uninitialized(const px_tensor *tensor) {
  return tensor && px_tensor_ndim(tensor) == 1 && px_tensor_numel(tensor) == 0;
}

bool px__entry_is_uninitialized(const px_module *owner, const px_tensor *tensor) {
  return owner->kind->lazy && px__is_uninitialized(tensor);
}

static px_status compare(const char *name, const px_module_entry *entry, px_module *owner,
                         void *context) {
  load *l = context;
  if (!entry->persistent) return PX_OK;
  px_tensor *value = px_dict_get(l->state, name);
  PX_TRY(px_dict_set(l->names, name, entry->tensor));
  if (!value) return add_name(l->missing, sizeof l->missing, name), PX_OK;
  if (px_tensor_same_sizes(value, entry->tensor) ||
      px__entry_is_uninitialized(owner, entry->tensor))
    return PX_OK;
  char given_text[128], own_text[128];
  size_text(given_text, sizeof given_text, value);
  size_text(own_text, sizeof own_text, entry->tensor);
  size_t used = strlen(l->sizes);
  snprintf(l->sizes + used, sizeof l->sizes - used,
           "\n\tsize mismatch for %s: copying a param with shape %s from checkpoint, the shape in "
           "current model is %s.",
           name, given_text, own_text);
  return PX_OK;
}

static px_status report_differences(const px_module *self, const load *l, bool strict) {
  char missing[1100] = "", unexpected[1100] = "";
  if (strict && *l->missing)
    snprintf(missing, sizeof missing, "\n\tMissing key(s) in state_dict: %s. ", l->missing);
  if (strict && *l->unexpected)
    snprintf(unexpected, sizeof unexpected, "\n\tUnexpected key(s) in state_dict: %s. ",
             l->unexpected);
  PX_CHECK(!*missing && !*unexpected && !*l->sizes, PX_RUNTIME,
           "Error(s) in loading state_dict for %s:%s%s%s", self->kind->name, missing, unexpected,
           l->sizes);
  return PX_OK;
}

static px_status copy_in(const char *name, const px_module_entry *entry, px_module *owner,
                         void *context) {
  px_tensor *value = px_dict_get(context, name), *own = entry->tensor;
  PX_SCOPED(px_tensor) made = NULL;
  if (!value || !entry->persistent) return PX_OK;
  if (!px_tensor_same_sizes(value, own)) {  // an uninitialized tensor of a lazy layer
    PX_TRY(px_tensor_empty(&made, px_tensor_ndim(value), px_tensor_sizes(value),
                           px_tensor_dtype(own), px_tensor_device(own)));
    PX_TRY(px_tensor_set_data(own, made));
  }
  return px_copy_(own, value, false);
}

static px_status load_checked(px_module *self, load *l, bool strict) {
  PX_TRY(px_module_walk(self, STATE, "", true, true, compare, l));
  for (int64_t i = 0; i < px_dict_size(l->state); i++)
    if (!px_dict_get(l->names, px_dict_name(l->state, i)))
      add_name(l->unexpected, sizeof l->unexpected, px_dict_name(l->state, i));
  PX_TRY(report_differences(self, l, strict));
  bool recording = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = px_module_walk(self, STATE, "", true, true, copy_in, l->state);
  px_grad_set_enabled(recording);
  return status;
}

px_status px_module_load_state_dict(px_module *self, px_dict *state, bool strict) {
  PX_GIVEN(self);
  PX_GIVEN(state);
  load *l;
  PX_TRY(px_alloc((void **)&l, sizeof *l));
  l->state = state;
  px_status status = px_dict_new(&l->names);
  if (status == PX_OK) status = load_checked(self, l, strict);
  px_release(l->names);
  px_free(l);
  return status;
}
