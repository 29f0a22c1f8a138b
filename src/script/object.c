// SPDX-License-Identifier: Apache-2.0
// Classes and their objects. The objects of modules keep their tensors in a px_module.
#include <stdio.h>

#include "script/script_impl.h"

// ---- classes

px__definition *px__definition_find(px_script *script, const char *name) {
  if (strncmp(name, "__torch__", 9)) return NULL;
  for (px__definition *d = script->definitions; d; d = d->next)
    if (!d->owner && px__is(d->name, name)) return d;
  return NULL;
}

px__definition *px__method_find(const px__definition *cls, const char *name) {
  for (px__definition *d = cls->methods; d; d = d->next_method)
    if (px__is(d->own, name)) return d;
  return NULL;
}

int px__attribute_index(const px__definition *cls, const char *name) {
  for (int i = 0; i < cls->attribute_count; i++)
    if (px__is(cls->attributes[i], name)) return i;
  return -1;
}

// ---- objects

static bool is_module(const px__definition *cls) { return px__is(cls->base, "Module"); }

static void describe(const px_module *module, char *text, size_t capacity) {
  px_value name = px_module_attribute(module, "original_name");
  snprintf(text, capacity, "original_name=%s", name.kind == PX_ARG_TEXT ? name.v.text : "");
}

static px_status module_new(px_module **out, const px__definition *cls) {
  static const px_module_kind kind = {.name = "RecursiveScriptModule", .repr_fn = describe};
  PX_SCOPED(px_module) made = NULL;
  PX_TRY(px_module_new(&made, &kind, NULL, NULL));
  PX_TRY(px_module_set_attribute(made, "original_name",
                                 (px_value){.kind = PX_ARG_TEXT, .v = {.text = cls->own}}));
  for (int i = 0; i < cls->attribute_count; i++) {
    if (cls->kinds[i] == 'p') PX_TRY(px_module_register_parameter(made, cls->attributes[i], NULL));
    if (cls->kinds[i] == 'b')
      PX_TRY(px_module_register_buffer(made, cls->attributes[i], NULL, true));
  }
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px__object_new(px__var *out, px_script *script, px__definition *cls) {
  PX__SCOPED_VAR made = {0};
  PX_CHECK(cls->is_class, PX_TYPE, "%s is a function, expected a class", cls->name);
  PX_TRY(px__box_new(&made, script, PX__OBJECT));
  made.v.box->definition = cls;
  for (int i = 0; i < cls->attribute_count; i++) {
    PX__SCOPED_VAR value = {0};
    if (cls->values[i]) PX_TRY(script->constant(&value, script, cls->values[i]));
    PX_TRY(px__push(made.v.box, value));
  }
  if (is_module(cls)) PX_TRY(module_new(&made.v.box->module, cls));
  *out = px__var_move(&made);
  return PX_OK;
}

// Parameters, buffers and the training flag are the module's, where programs change them.
px_status px__object_get(px__var *out, px__var object, const char *name) {
  const px__box *box = object.v.box;
  int at = px__attribute_index(box->definition, name);
  PX_CHECK(at >= 0 && at < box->count, PX_ATTRIBUTE, "'%s' object has no attribute '%s'",
           box->definition->own, name);
  px_module_entry entry;
  char kind = box->definition->kinds[at];
  if (box->module && px__is(name, "training"))
    return *out = px__of_bool(px_module_training(box->module)), PX_OK;
  if (box->module && (kind == 'p' || kind == 'b') &&
      px_module_entry_find(box->module, name, &entry)) {
    *out = entry.tensor ? px__of_tensor(px_retain(entry.tensor)) : px__none();
    return PX_OK;
  }
  PX_CHECK(box->items[at].sort, PX_ATTRIBUTE, "the attribute '%s' of '%s' has no value", name,
           box->definition->own);
  *out = px__var_keep(box->items[at]);
  return PX_OK;
}

static px_status set_entry(px_module *module, char kind, const char *name, px__var value) {
  px_tensor *tensor = value.sort == PX__TENSOR ? value.v.tensor : NULL;
  if (kind == 'p' && tensor) px_tensor_set_parameter(tensor, true);
  px_module_entry entry = {name, kind == 'p' ? PX_ENTRY_PARAMETER : PX_ENTRY_BUFFER, true, tensor,
                           NULL};
  return px_module_put(module, &entry);
}

px_status px__object_set(px__var object, const char *name, px__var value) {
  px__box *box = object.v.box;
  int at = px__attribute_index(box->definition, name);
  PX_CHECK(at >= 0 && at < box->count, PX_ATTRIBUTE, "'%s' object has no attribute '%s'",
           box->definition->own, name);
  char kind = box->definition->kinds[at];
  if (box->module && px__is(name, "training") && value.sort == PX__BOOL)
    px_module_set_training(box->module, value.v.i);
  if (box->module && (kind == 'p' || kind == 'b')) return set_entry(box->module, kind, name, value);
  px_module *child = value.sort == PX__OBJECT ? value.v.box->module : NULL;
  if (box->module && child) {
    PX_CHECK(!box->built && value.v.box->built, PX_RUNTIME,
             "the submodule '%s' of '%s' cannot be replaced", name, box->definition->own);
    px_module_entry entry = {name, PX_ENTRY_MODULE, true, NULL, child};
    PX_TRY(px_module_put(box->module, &entry));
  }
  px__var old = box->items[at];
  box->items[at] = px__var_keep(value);
  px__var_free(&old);
  return PX_OK;
}
