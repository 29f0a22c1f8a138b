// SPDX-License-Identifier: Apache-2.0
// state_dict, load_state_dict, copying and pickling of modules.
#include "nn/nn.h"

static PyObject *dict_of(const px_dict *state) {
  PyObject *dict = ext_call_from("collections", "OrderedDict", "()");
  for (int64_t i = 0; dict && i < px_dict_size(state); i++) {
    EXT_OWNED *name = ext_str(px_dict_name(state, i));
    EXT_OWNED *value = ext_wrap_borrowed(px_dict_value(state, i));
    if (!name || !value || PyObject_SetItem(dict, name, value) < 0) Py_CLEAR(dict);
  }
  return dict;
}

// The values of subclasses of Tensor are those of their detach().
static px_status put_detached(const char *name, const px_module_entry *entry, px_module *owner,
                              void *dict) {
  bool saved = entry->tensor && (entry->sort != PX_ENTRY_BUFFER || entry->persistent);
  PyObject *object = saved ? ext_wrap_borrowed(entry->tensor) : NULL;
  EXT_OWNED *owned = object;
  EXT_OWNED *key = object && !ext_is_plain(object) ? ext_str(name) : NULL;
  if (!key) return PyErr_Occurred() ? ext_error_from_python() : PX_OK;
  EXT_OWNED *value = PyObject_CallMethod(object, "detach", NULL);
  return value && PyObject_SetItem(dict, key, value) == 0 ? PX_OK : ext_error_from_python();
}

// Replaces detached values in `dict` by the parameters and buffers themselves.
static px_status put_itself(const char *name, const px_module_entry *entry, px_module *owner,
                            void *dict) {
  EXT_OWNED *key = ext_str(name);
  int known = key ? PyDict_Contains(dict, key) : -1;
  if (known == 0) return PX_OK;
  EXT_OWNED *value = known > 0 ? ext_wrap_borrowed(entry->tensor) : NULL;
  return value && PyObject_SetItem(dict, key, value) == 0 ? PX_OK : ext_error_from_python();
}

EXT_METHOD(module, state_dict,
           "(destination: dict | None = None, prefix: str = '', keep_vars: bool = False) -> "
           "dict[str, Tensor]",
           "Returns a dictionary of the parameters and persistent buffers of the module and its "
           "descendants.\nValues share the module's memory; with keep_vars they are the parameters "
           "themselves.\n\n"
           ">>> list(torch.nn.Linear(2, 3).state_dict())\n"
           "['weight', 'bias']\n") {
  PyObject *destination;
  const char *prefix;
  bool keep_vars;
  EXT_BIND(destination, prefix, keep_vars);
  int own = ext_module_any_custom(self, EXT_CUSTOM_SAVE | EXT_CUSTOM_VERSION);
  if (own < 0) return NULL;
  if (own || (destination && PyObject_HasAttrString(destination, "_metadata"))) {
    EXT_OWNED *how = Py_BuildValue("(OsO)", destination ? destination : Py_None, prefix,
                                   keep_vars ? Py_True : Py_False);
    return how ? ext_module_python("save", self, how) : NULL;
  }
  size_t length = strlen(prefix);  // PyTorch's prefix ends in a dot, the core's does not
  bool dotted = length && prefix[length - 1] == '.';
  EXT_OWNED *name = PyUnicode_FromStringAndSize(prefix, (Py_ssize_t)(length - dotted));
  const char *bare = name ? PyUnicode_AsUTF8(name) : NULL;
  if (!bare) return NULL;
  PX_SCOPED(px_dict) state = NULL;
  EXT_TRY(px_module_state_dict(&state, ext_module(self), bare));
  EXT_OWNED *dict = dict_of(state);
  if (!dict) return NULL;
  if (ext_has_subclasses)
    EXT_TRY(px_module_walk(ext_module(self), PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER, bare, true, true,
                           put_detached, dict));
  if (keep_vars)
    EXT_TRY(px_module_walk(ext_module(self), PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER, bare, true, true,
                           put_itself, dict));
  if (ext_is_none(destination)) {
    EXT_OWNED *versions = ext_module_python("versions", self, name);
    if (!versions || PyObject_SetAttrString(dict, "_metadata", versions) < 0) return NULL;
    return ext_moved(&dict);
  }
  EXT_OWNED *none = PyObject_CallMethod(destination, "update", "O", dict);
  return none ? Py_NewRef(destination) : NULL;
}

// A non-tensor value is an unexpected key, and an error if the module has a tensor of its name.
static int check_non_tensor(PyObject *self, px_dict *state, const px_dict *own, const char *name,
                            PyObject *value) {
  PX_SCOPED(px_tensor) place = NULL;
  int64_t zero = 0;
  if (px_dict_get(own, name))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Error(s) in loading state_dict for %s:\n\tWhile copying the parameter named "
                 "\"%s\", expected torch.Tensor or Tensor-like object from checkpoint but received "
                 "%R",
                 ext_type_name(self), name, (PyObject *)Py_TYPE(value));
  EXT_TRY_INT(px_tensor_empty(&place, 1, &zero, PX_DTYPE_NONE, px_cpu()));
  return ext_zero(px_dict_set(state, name, place));
}

static int dict_from(PyObject *self, px_dict *state, const px_dict *own, PyObject *mapping) {
  EXT_OWNED *items = PyMapping_Items(mapping);
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items); i++) {
    PyObject *pair = PyList_GET_ITEM(items, i), *value = PyTuple_GET_ITEM(pair, 1);
    const char *name = ext_text(PyTuple_GET_ITEM(pair, 0));
    if (!name || (!ext_is_tensor(value) && check_non_tensor(self, state, own, name, value) < 0))
      return -1;
    EXT_OWNED *shape =
        ext_is_tensor(value) ? PyObject_GetAttrString(value, "shape") : Py_NewRef(value);
    if (!shape) return -1;  // an uninitialized parameter
    if (ext_is_tensor(value)) EXT_TRY_INT(px_dict_set(state, name, ext_tensor(value)));
  }
  return items ? 0 : -1;
}

// load_state_dict(assign=True): the checked values become the module's memory.
static px_status assign_memory(const char *name, const px_module_entry *entry, px_module *owner,
                               void *state) {
  const px_tensor *value = px_dict_get(state, name);
  return value ? px_tensor_set_data(entry->tensor, value) : PX_OK;
}

// Warns that a copy into a meta tensor is a no-op.
static px_status warn_if_lost(const px_tensor *own, const px_tensor *value, const char *name) {
  bool lost = px_tensor_device(own).type == PX_META && px_tensor_device(value).type != PX_META;
  if (!lost) return PX_OK;
  return px_warn(PX_WARN_USER,
                 "for %s: copying from a non-meta parameter in the checkpoint to a meta parameter "
                 "in the current model, which is a no-op. (Did you mean to pass `assign=True` to "
                 "assign items in the state dictionary to their corresponding key in the module "
                 "instead of copying them in place?)",
                 name);
}
static px_status warn_of_loss(const char *name, const px_module_entry *entry, px_module *owner,
                              void *state) {
  const px_tensor *value = px_dict_get(state, name);
  return value ? warn_if_lost(entry->tensor, value, name) : PX_OK;
}
EXT_FUNCTION(torch, _warn_of_loss, "(own: Tensor, value: Tensor, name: str) -> None",
             "Warns about copying a value of a state dict into a meta tensor.") {
  px_tensor *own, *value;
  const char *name;
  EXT_BIND(own, value, name);
  return ext_none(warn_if_lost(own, value, name));
}

// Names in `a` that are missing in `b`.
static PyObject *missing_names(const px_dict *a, const px_dict *b) {
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list && i < px_dict_size(a); i++) {
    if (px_dict_get(b, px_dict_name(a, i))) continue;
    EXT_OWNED *name = ext_str(px_dict_name(a, i));
    if (!name || PyList_Append(list, name) < 0) Py_CLEAR(list);
  }
  return list;
}

// True if a state may predate num_batches_tracked: its version must then be checked.
static int lacks_counts(const px_dict *own, const px_dict *state) {
  static const char name[] = "num_batches_tracked";
  for (int64_t i = 0; i < px_dict_size(own); i++) {
    const char *key = px_dict_name(own, i);
    size_t length = strlen(key), end = sizeof name - 1;
    if (length >= end && !strcmp(key + length - end, name) && !px_dict_get(state, key)) return 1;
  }
  return 0;
}

static PyObject *keys_repr(PyObject *self) {
  PyObject *missing = PyStructSequence_GET_ITEM(self, 0),
           *unexpected = PyStructSequence_GET_ITEM(self, 1);
  if (!PyList_GET_SIZE(missing) && !PyList_GET_SIZE(unexpected))
    return PyUnicode_FromString("<All keys matched successfully>");
  return PyUnicode_FromFormat("_IncompatibleKeys(missing_keys=%R, unexpected_keys=%R)", missing,
                              unexpected);
}

static PyTypeObject keys_type;
static int keys_ready(void) {
  static PyStructSequence_Field fields[] = {
      {"missing_keys", NULL}, {"unexpected_keys", NULL}, {NULL, NULL}};
  static PyStructSequence_Desc desc = {"torch.nn.modules.module._IncompatibleKeys", NULL, fields,
                                       2};
  if (keys_type.tp_name) return 0;
  if (PyStructSequence_InitType2(&keys_type, &desc) < 0) return -1;
  keys_type.tp_repr = keys_type.tp_str = keys_repr;
  return 0;
}

static int name_keys(PyObject *root) {
  PyObject *nn = ext_submodule(root, "nn");
  if (!nn || keys_ready() < 0) return -1;
  return PyModule_AddObjectRef(nn, "_IncompatibleKeys", (PyObject *)&keys_type);
}
EXT_START(EXT_LAYERS, name_keys);

// Slow path: for classes with overridden methods or hooks.
static PyObject *load_by_methods(PyObject *self, PyObject *state, bool strict, bool assign) {
  PyObject *keys = PyStructSequence_New(&keys_type);
  if (!keys) return NULL;
  for (int i = 0; i < 2; i++) PyStructSequence_SET_ITEM(keys, i, PyList_New(0));
  EXT_OWNED *how =
      Py_BuildValue("(ONNO)", state, PyBool_FromLong(strict), PyBool_FromLong(assign), keys);
  EXT_OWNED *done = how ? ext_module_python("load", self, how) : NULL;
  if (!done) Py_CLEAR(keys);
  return keys;
}

EXT_METHOD(
    module, load_state_dict,
    "(state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False) -> "
    "tuple[list[str], list[str]]",
    "Copies parameters and buffers from state_dict; with assign the module takes its tensors.\n\n"
    "Returns:\n"
    "    missing_keys and unexpected_keys; errors if strict\n\n"
    "Raises:\n"
    "    RuntimeError listing all missing and unexpected keys and size mismatches; nothing is\n"
    "    changed then") {
  PyObject *state_dict;
  bool strict, assign;
  EXT_BIND(state_dict, strict, assign);
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_dict) own = NULL;
  if (!PyMapping_Check(state_dict) || !PyObject_HasAttrString(state_dict, "items"))
    EXT_FAIL(PyExc_TypeError, "Expected state_dict to be dict-like, got %R.",
             (PyObject *)Py_TYPE(state_dict));
  if (keys_ready() < 0) return NULL;
  int heard = ext_module_any_custom(self, EXT_CUSTOM_LOAD | EXT_CUSTOM_VERSION);
  if (heard) return heard < 0 ? NULL : load_by_methods(self, state_dict, strict, assign);
  EXT_OWNED *given = PyDict_New();
  EXT_TRY(px_dict_new(&state));
  EXT_TRY(px_module_state_dict(&own, ext_module(self), ""));
  if (!given || PyDict_Update(given, state_dict) < 0 || dict_from(self, state, own, given) < 0 ||
      keys_ready() < 0)
    return NULL;
  int old = lacks_counts(own, state);
  if (old) return old < 0 ? NULL : load_by_methods(self, state_dict, strict, assign);
  EXT_WAIT(px_module_load_state_dict(ext_module(self), state, strict));
  EXT_TRY(px_module_walk(ext_module(self), PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER, "", true, true,
                         assign ? assign_memory : warn_of_loss, state));
  PyObject *keys = PyStructSequence_New(&keys_type);
  if (!keys) return NULL;
  PyObject *missing = missing_names(own, state), *unexpected = missing_names(state, own);
  PyStructSequence_SET_ITEM(keys, 0, missing);
  PyStructSequence_SET_ITEM(keys, 1, unexpected);
  if (!missing || !unexpected) Py_CLEAR(keys);
  return keys;
}

EXT_METHOD(module, _save_to_state_dict, "(destination: dict, prefix: str, keep_vars: bool) -> None",
           "Saves the module's own state to destination. May be overridden.") {
  EXT_ARGS(PyObject *, destination, prefix, keep_vars);
  EXT_OWNED *how = PyTuple_Pack(3, destination, prefix, keep_vars);
  return how ? ext_module_python("save_own", self, how) : NULL;
}
EXT_METHOD(module, _load_from_state_dict,
           "(state_dict: dict, prefix: str, local_metadata: dict, strict: bool, missing_keys: "
           "list[str], unexpected_keys: list[str], error_msgs: list[str]) -> None",
           "Loads the module's own state from state_dict. May be overridden.") {
  EXT_ARGS(PyObject *, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
           error_msgs);
  EXT_OWNED *how = PyTuple_Pack(7, state_dict, prefix, local_metadata, strict, missing_keys,
                                unexpected_keys, error_msgs);
  return how ? ext_module_python("load_own", self, how) : NULL;
}

#define EXTRA_STATE(name, signature) \
  EXT_METHOD(module, name, signature, \
             "Extra state of a class in its state_dict. To be overridden.") { \
    EXT_FAIL(PyExc_RuntimeError, \
             "Reached a code path in Module." #name "() that should never be called."); \
  }
EXTRA_STATE(get_extra_state, "() -> Any")
EXTRA_STATE(set_extra_state, "(state: Any) -> None")

// ---- copies

// Wraps a px_module copied from `model`'s: same types, attributes copied by `copy_dict`.
PyObject *ext_module_mirror(PyObject *model, px_module *warn_if_lost,
                            PyObject *(*copy_dict)(PyObject *dict, PyObject *memo),
                            PyObject *memo) {
  PyObject *self = ext_module_from_core(Py_TYPE(model), px_retain(warn_if_lost));
  ext_module_object *from = (ext_module_object *)model, *to = (ext_module_object *)self;
  if (!self) return NULL;
  to->may_lack_tensors = from->may_lack_tensors;
  if (from->dict && !(to->dict = copy_dict(from->dict, memo))) return Py_DECREF(self), NULL;
  PyObject *name, *child;
  Py_ssize_t at = 0;
  while (PyDict_Next(from->children, &at, &name, &child)) {
    px_module_entry entry;
    EXT_OWNED *kept_name = Py_NewRef(name);  // copying may change the dict
    EXT_OWNED *kept_child = Py_NewRef(child);
    bool found = px_module_entry_find(warn_if_lost, PyUnicode_AsUTF8(name), &entry) && entry.module;
    EXT_OWNED *made =
        found ? ext_module_mirror(kept_child, entry.module, copy_dict, memo) : Py_NewRef(Py_None);
    if (!made || PyDict_SetItem(to->children, kept_name, made) < 0) return Py_DECREF(self), NULL;
  }
  return self;
}

// A new object of a library type, to be filled by __setstate__.
EXT_FUNCTION(torch, _rebuild_module, "(name: str) -> Module",
             "Creates an empty module of a library type, for pickles.") {
  EXT_ARGS(const char *, name);
  EXT_OWNED *none = PyTuple_New(0);
  PyTypeObject *type = none ? ext_module_type(name) : NULL;
  return type ? type->tp_new(type, none, NULL) : NULL;
}

// Function and argument that create an object of self's type. Library types are pickled by name:
// "torch.nn" may not be importable.
static PyObject *maker_of(PyObject *self, PyObject **argument) {
  const char *name = Py_TYPE(self)->tp_name, *dot = strrchr(name, '.');
  if (dot) name = dot + 1;
  bool ours = Py_TYPE(self) == ext_module_type(name);
  *argument = ours ? ext_str(name) : Py_NewRef(Py_TYPE(self));
  return ours ? ext_extension_attr("_rebuild_module") : ext_import("copyreg", "__newobj__");
}

// Copies of the live dicts, which belong to the module.
EXT_METHOD0(module, __getstate__, "dict[str, Any]", "Returns the state for pickling and copying.") {
  return ext_module_python("state_of", self, NULL);
}
EXT_METHOD(module, __setstate__, "(state: dict) -> None",
           "Restores the state of an empty module.") {
  EXT_ARGS(PyObject *, state);
  if (!state || !PyMapping_Check(state))
    EXT_FAIL(PyExc_TypeError, "the state of a module must be a dict");
  if (!ext_module(self) && ext_module_begin(self) < 0) return NULL;
  EXT_OWNED *dict = PyObject_GetAttrString(self, "__dict__");
  EXT_OWNED *none = dict ? PyObject_CallMethod(dict, "update", "O", state) : NULL;
  return ext_moved(&none);
}

// Pickled and copied as type and state; children are pickled separately.
EXT_METHOD0(module, __reduce__, "tuple", "Returns the parts for pickling and copying.") {
  EXT_OWNED *state = PyObject_CallMethod(self, "__getstate__", NULL);
  PyObject *argument;
  EXT_OWNED *maker = state ? maker_of(self, &argument) : NULL;
  EXT_OWNED *owned = state ? argument : NULL;
  return maker ? Py_BuildValue("O(O)O", maker, owned, state) : NULL;
}
