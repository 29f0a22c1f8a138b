// SPDX-License-Identifier: Apache-2.0
// Backs the dicts of a module exposed to user code (_parameters, _buffers, _modules, __dict__).
// They are Python views (python/phlox/nn/_views.py) without storage: of the entries of the
// px_module, the children's objects, and the object's own dict.
#include "nn/nn.h"

static ext_module_object *object_of(PyObject *self) { return (ext_module_object *)self; }

// The px_entry_sort of a call, or 0 with an exception.
static int sort_of(PyObject *module, int64_t sort) {
  if (!ext_is_module(module))
    return PyErr_Format(PyExc_TypeError, "%s is not a Module", ext_type_name(module)), 0;
  if (ext_module_ready(module, "parameters") < 0) return 0;
  return (int)sort;
}

EXT_FUNCTION(torch, _module_entries, "(module: Module, sort: int) -> dict[str, Any]", NULL) {
  PyObject *module;
  int64_t sort;
  EXT_BIND(module, sort);
  if (!sort_of(module, sort)) return NULL;
  if (sort == PX_ENTRY_MODULE) return Py_NewRef(object_of(module)->children);
  EXT_OWNED *dict = PyDict_New();
  px_module_entry entry;
  for (int i = 0; dict && px_module_entry_next(ext_module(module), (int)sort, &i, &entry);) {
    EXT_OWNED *value = ext_module_tensor(ext_module(module), entry.tensor);
    if (!value || PyDict_SetItemString(dict, entry.name, value) < 0) return NULL;
  }
  return ext_moved(&dict);
}

EXT_FUNCTION(torch, _module_non_persistent, "(module: Module) -> set[str]",
             "Returns the names of non-persistent buffers.") {
  EXT_ARGS(PyObject *, module);
  if (!sort_of(module, PX_ENTRY_BUFFER)) return NULL;
  EXT_OWNED *names = PySet_New(NULL);
  px_module_entry entry;
  for (int i = 0; names && px_module_entry_next(ext_module(module), PX_ENTRY_BUFFER, &i, &entry);) {
    EXT_OWNED *name = entry.persistent ? NULL : ext_str(entry.name);
    if (!entry.persistent && (!name || PySet_Add(names, name) < 0)) return NULL;
  }
  return ext_moved(&names);
}

// Fills an entry from a value, according to its sort.
static int fill_entry(px_module_entry *entry, PyObject *value) {
  if (ext_is_none(value)) return 0;
  if (entry->sort == PX_ENTRY_MODULE) {
    if (!ext_is_module(value) || !ext_module(value))
      EXT_FAIL_INT(PyExc_TypeError, "%s is not a Module subclass", ext_type_name(value));
    entry->module = ext_module(value);
    return 0;
  }
  if (!ext_is_tensor(value))
    EXT_FAIL_INT(PyExc_TypeError, "'%s' cannot be a %s: a Tensor or None is expected", entry->name,
                 ext_type_name(value));
  entry->tensor = ext_tensor(value);
  return 0;
}

EXT_FUNCTION(torch, _module_put,
             "(module: Module, sort: int, name: str, value: Any, persistent: bool | None = None) "
             "-> None",
             NULL) {
  PyObject *module, *value;
  int64_t sort;
  const char *name;
  ext_optional_bool persistent;
  EXT_BIND(module, sort, name, value, persistent);
  if (!sort_of(module, sort)) return NULL;
  if (!name) EXT_FAIL(PyExc_TypeError, "the name of an entry must be a str, not None");
  px_module_entry known,
      entry = {.name = name, .sort = (px_entry_sort)sort, .persistent = persistent != 0};
  if (fill_entry(&entry, value) < 0) return NULL;
  bool found = px_module_entry_find(ext_module(module), name, &known);
  if (found && persistent < 0 && known.sort == entry.sort) entry.persistent = known.persistent;
  PyObject *children = object_of(module)->children;
  EXT_OWNED *before = ext_module_entry_object(module, name);
  if (!before) return NULL;
  EXT_TRY(px_module_put(ext_module(module), &entry));
  if (sort == PX_ENTRY_MODULE) {
    if (PyDict_SetItemString(children, name, value ? value : Py_None) < 0) return NULL;
  } else if (found && known.sort == PX_ENTRY_MODULE) {
    if (PyDict_DelItemString(children, name) < 0) return NULL;
  }
  return ext_none_unless(ext_module_keep(module, before, entry.tensor ? value : NULL) < 0);
}

EXT_FUNCTION(torch, _module_drop, "(module: Module, sort: int, name: object) -> None", NULL) {
  PyObject *module, *name;
  int64_t sort;
  EXT_BIND(module, sort, name);
  px_module_entry entry;
  if (!sort_of(module, sort)) return NULL;
  const char *text = name && PyUnicode_Check(name) ? ext_lookup_text(name) : NULL;
  if (!text || !px_module_entry_find(ext_module(module), text, &entry) ||
      (int)entry.sort != (int)sort)
    return PyErr_SetObject(PyExc_KeyError, name ? name : Py_None), NULL;
  EXT_OWNED *before = ext_module_entry_object(module, text);
  if (!before) return NULL;
  EXT_TRY(px_module_remove(ext_module(module), text));
  object_of(module)->may_lack_tensors = true;
  if (sort == PX_ENTRY_MODULE && PyDict_DelItem(object_of(module)->children, name) < 0) return NULL;
  return ext_none_unless(ext_module_keep(module, before, NULL) < 0);
}

// ---- the object's own dict, and attributes of the core shown in __dict__

EXT_FUNCTION(torch, _module_dict, "(module: Module) -> dict[str, Any]",
             "Returns the dict of attributes that are neither entries nor arguments of a layer.") {
  EXT_ARGS(PyObject *, module);
  if (!ext_is_module(module))
    EXT_FAIL(PyExc_TypeError, "%s is not a Module", ext_type_name(module));
  ext_module_object *object = object_of(module);
  if (!object->dict && !(object->dict = PyDict_New())) return NULL;
  object->seen = -1;  // the caller may modify it
  return Py_NewRef(object->dict);
}

EXT_FUNCTION(torch, _module_begin, "(module: Module) -> bool",
             "Creates the entries of an object before Module.__init__ has run.") {
  EXT_ARGS(PyObject *, module);
  if (!ext_is_module(module))
    EXT_FAIL(PyExc_TypeError, "%s is not a Module", ext_type_name(module));
  bool begun = ext_module(module) != NULL;
  if (!begun && ext_module_begin(module) < 0) return NULL;
  return PyBool_FromLong(!begun);
}

EXT_FUNCTION(torch, _module_has_begun, "(module: Module) -> bool", NULL) {
  EXT_ARGS(PyObject *, module);
  return PyBool_FromLong(ext_is_module(module) && ext_module(module));
}

EXT_FUNCTION(
    torch, _module_arguments, "(module: Module) -> dict[str, Any]",
    "Returns the constructor arguments that are attributes of a layer, and its fixed attributes.") {
  EXT_ARGS(PyObject *, module);
  EXT_OWNED *dict = PyDict_New();
  if (!dict || !ext_is_module(module) || !ext_module(module)) return ext_moved(&dict);
  const px_module_kind *kind = px_module_kind_of(ext_module(module));
  for (int i = 0; i < ext_attribute_count(kind); i++) {
    if (kind->params[i].no_attribute) continue;
    const char *name = kind->params[i].name;
    EXT_OWNED *value = ext_from_value(px_module_attribute(ext_module(module), name));
    if (!value || PyDict_SetItemString(dict, name, value) < 0) return NULL;
  }
  for (int i = 0; kind->fixed && kind->fixed[i]; i++) {
    EXT_OWNED *value = ext_from_value(px_module_attribute(ext_module(module), kind->fixed[i]));
    if (!value || PyDict_SetItemString(dict, kind->fixed[i], value) < 0) return NULL;
  }
  return ext_moved(&dict);
}

// ---- attributes of Module

static PyObject *live_view(PyObject *self, const char *word) {
  EXT_OWNED *name = PyUnicode_FromString(word);
  return name ? ext_module_python("live", self, name) : NULL;
}
static int fill_view(PyObject *self, const char *word, PyObject *value) {
  if (!value) EXT_FAIL_INT(PyExc_AttributeError, "cannot delete %s of a module", word);
  EXT_OWNED *pair = Py_BuildValue("(sO)", word, value);
  EXT_OWNED *none = pair ? ext_module_python("fill", self, pair) : NULL;
  return none ? 0 : -1;
}

#define LIVE(name, annotation, doc) \
  EXT_GETTER_AND_SETTER(module, name, annotation, doc) { return live_view(self, #name); } \
  EXT_SETTER(module, name) { return fill_view(self, #name, value); }
LIVE(_parameters, "dict[str, Parameter | None]", "The module's own parameters by name.")
LIVE(_buffers, "dict[str, Tensor | None]", "The module's own buffers by name.")
LIVE(_modules, "dict[str, Module | None]", "The children by name.")
LIVE(_non_persistent_buffers_set, "set[str]", "The names of buffers omitted from state_dict.")
LIVE(__dict__, "dict[str, Any]", "All attributes of the object.")
