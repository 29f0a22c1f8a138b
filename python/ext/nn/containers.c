// SPDX-License-Identifier: Apache-2.0
// Sequential, ModuleList and ModuleDict as Python sequences and mappings of their children.
#include "nn/nn.h"

static PyObject *children_of(PyObject *self) { return ((ext_module_object *)self)->children; }

static Py_ssize_t length(PyObject *self) { return PyDict_GET_SIZE(children_of(self)); }

static bool is_dict(PyObject *self) {
  return PyObject_TypeCheck(self, ext_module_type("ModuleDict"));
}

static int contains(PyObject *self, PyObject *item) {
  if (is_dict(self)) return PyDict_Contains(children_of(self), item);
  EXT_OWNED *values = PyDict_Values(children_of(self));
  return values ? PySequence_Contains(values, item) : -1;
}

// Name of the child at an index, a new reference.
static PyObject *name_at(PyObject *self, PyObject *index) {
  int64_t i, n = length(self);
  if (ext_to_int(index, &i) < 0) return NULL;
  if (i < -n || i >= n) EXT_FAIL(PyExc_IndexError, "index %lld is out of range", (long long)i);
  px_module_entry entry;
  bool found =
      px_module_entry_at(ext_module(self), PX_ENTRY_MODULE, (int)(i < 0 ? i + n : i), &entry);
  if (!found) EXT_FAIL(PyExc_IndexError, "index %lld is out of range", (long long)i);
  return PyUnicode_FromString(entry.name);
}

static PyObject *slice_of(PyObject *self, PyObject *slice) {
  EXT_OWNED *values = PyDict_Values(children_of(self));
  EXT_OWNED *part = values ? PyObject_GetItem(values, slice) : NULL;
  if (!part) return NULL;
  if (!PyObject_TypeCheck(self, ext_module_type("Sequential")))
    return PyObject_CallOneArg((PyObject *)Py_TYPE(self), part);
  // Names are preserved: layers of a slice of a Sequential keep the names of the whole.
  EXT_OWNED *items = PyDict_Items(children_of(self));
  EXT_OWNED *named = items ? PyObject_GetItem(items, slice) : NULL;
  EXT_OWNED *dict = named ? PyDict_New() : NULL;
  if (!dict || PyDict_MergeFromSeq2(dict, named, 1) < 0) return NULL;
  return PyObject_CallOneArg((PyObject *)Py_TYPE(self), dict);
}

static PyObject *subscript(PyObject *self, PyObject *index) {
  if (is_dict(self)) {
    PyObject *child = PyDict_GetItemWithError(children_of(self), index);
    if (!child && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, index);
    return Py_XNewRef(child);
  }
  if (PySlice_Check(index)) return slice_of(self, index);
  EXT_OWNED *name = name_at(self, index);
  return name ? Py_XNewRef(PyDict_GetItem(children_of(self), name)) : NULL;
}

static int remove_child(PyObject *self, PyObject *name) {
  const char *text = ext_text(name);
  if (!text) return -1;
  if (!PyDict_Contains(children_of(self), name)) return PyErr_SetObject(PyExc_KeyError, name), -1;
  EXT_TRY_INT(px_module_remove(ext_module(self), text));
  return PyDict_DelItem(children_of(self), name);
}

// Replaces the children by the modules of a list, numbered from 0.
static int renumber(PyObject *self, PyObject *modules) {
  EXT_OWNED *names = PyDict_Keys(children_of(self));
  for (Py_ssize_t i = 0; names && i < PyList_GET_SIZE(names); i++)
    if (remove_child(self, PyList_GET_ITEM(names, i)) < 0) return -1;
  for (Py_ssize_t i = 0; names && i < PyList_GET_SIZE(modules); i++) {
    char name[24];
    snprintf(name, sizeof name, "%zd", i);
    if (ext_module_put_child(self, name, PyList_GET_ITEM(modules, i)) < 0) return -1;
  }
  return names ? 0 : -1;
}

// True for the name of the last module of a list.
static bool is_last(PyObject *self, PyObject *name) {
  char last[24];
  snprintf(last, sizeof last, "%zd", length(self) - 1);
  return PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, last) == 0;
}

// del m[1], del m[1:]: later children are renumbered.
static int remove_at(PyObject *self, PyObject *index) {
  EXT_OWNED *name = PySlice_Check(index) ? Py_NewRef(Py_None) : name_at(self, index);
  if (name && is_last(self, name)) return remove_child(self, name);
  EXT_OWNED *modules = name ? PyDict_Values(children_of(self)) : NULL;
  if (!modules || PyObject_DelItem(modules, index) < 0) return -1;
  return renumber(self, modules);
}

static int assign(PyObject *self, PyObject *index, PyObject *value) {
  if (!value && !is_dict(self)) return remove_at(self, index);
  EXT_OWNED *name = is_dict(self) ? Py_NewRef(index) : name_at(self, index);
  const char *text = name ? ext_text(name) : NULL;
  if (!text) return -1;
  return value ? ext_module_put_child(self, text, value) : remove_child(self, name);
}

static PyObject *iterate(PyObject *self) {
  EXT_OWNED *items =
      is_dict(self) ? PyDict_Keys(children_of(self)) : PyDict_Values(children_of(self));
  return items ? PyObject_GetIter(items) : NULL;
}

// ---- lists

static PyObject *append(PyObject *self, PyObject *child) {
  char name[24];
  snprintf(name, sizeof name, "%zd", length(self));
  return ext_module_put_child(self, name, child) < 0 ? NULL : Py_NewRef(self);
}

static PyObject *extend(PyObject *self, PyObject *items) {
  EXT_OWNED *iterator = PyObject_GetIter(items);
  PyObject *item;
  while (iterator && (item = PyIter_Next(iterator))) {
    EXT_OWNED *same = append(self, item);
    Py_DECREF(item);
    if (!same) return NULL;
  }
  return PyErr_Occurred() ? NULL : Py_NewRef(self);
}

EXT_METHOD(sequential, append, "(module: Module) -> Self", "Appends a given module to the end.") {
  EXT_ARGS(PyObject *, module);
  return append(self, module);
}
EXT_METHOD(sequential, extend, "(modules: Iterable[Module]) -> Self",
           "Appends modules to the end in order.") {
  EXT_ARGS(PyObject *, modules);
  return extend(self, modules);
}
static int insert(PyObject *self, int64_t index, PyObject *module) {
  EXT_OWNED *values = PyDict_Values(children_of(self));
  if (!values || PyList_Insert(values, (Py_ssize_t)index, module) < 0) return -1;
  return renumber(self, values);
}
static int need_module(PyObject *module) {
  if (ext_is_module(module)) return 0;
  EXT_FAIL_INT(PyExc_TypeError, "%s is not a Module subclass", ext_type_name(module));
}
EXT_METHOD(sequential, insert, "(index: int, module: Module) -> Self",
           "Inserts a module before a given index, at most the length; later modules are "
           "renumbered.") {
  int64_t index, count = (int64_t)length(self);
  PyObject *module;
  EXT_BIND(index, module);
  if (need_module(module) < 0) return NULL;
  if (index < -count || index > count)
    EXT_FAIL(PyExc_IndexError, "Index out of range: %lld", (long long)index);
  return insert(self, index, module) < 0 ? NULL : Py_NewRef(self);
}
EXT_METHOD(module_list, insert, "(index: int, module: Module) -> None",
           "Inserts a module before a given index, as list.insert; later modules are renumbered.") {
  int64_t index;
  PyObject *module;
  EXT_BIND(index, module);
  return ext_none_unless(need_module(module) < 0 || insert(self, index, module) < 0);
}

static PyObject *pop(PyObject *self, PyObject *key) {
  PyObject *child = subscript(self, key);
  if (child && assign(self, key, NULL) < 0) Py_CLEAR(child);
  return child;
}

EXT_METHOD(sequential, pop, "(key: int) -> Module",
           "Removes the module at an index and returns it.") {
  EXT_ARGS(PyObject *, key);
  return pop(self, key);
}
EXT_SAME_MEMBERS(module_list, sequential, append, extend, pop);

// ---- dicts

EXT_RETURNS(module_dict, keys, "list[str]", PyDict_Keys(children_of(self)),
            "Returns the names of the modules.");
EXT_RETURNS(module_dict, values, "list[Module]", PyDict_Values(children_of(self)),
            "Returns the modules.");
EXT_RETURNS(module_dict, items, "list[tuple[str, Module]]", PyDict_Items(children_of(self)),
            "Returns the names and modules.");
EXT_METHOD(module_dict, update,
           "(modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None",
           "Updates with the modules of a mapping or of pairs, overwriting existing names.") {
  EXT_ARGS(PyObject *, modules);
  EXT_OWNED *pairs = ext_module_pairs(modules);
  PyObject *name, *module;
  Py_ssize_t at = 0;
  while (pairs && PyDict_Next(pairs, &at, &name, &module))
    if (assign(self, name, module) < 0) return NULL;
  return ext_none_unless(!pairs);
}
EXT_METHOD(module_dict, pop, "(key: str) -> Module",
           "Removes the module of a name and returns it.") {
  EXT_ARGS(PyObject *, key);
  return pop(self, key);
}
static PyObject *clear(PyObject *self) {
  EXT_OWNED *nothing = PyList_New(0);
  return nothing && renumber(self, nothing) == 0 ? Py_NewRef(Py_None) : NULL;
}
EXT_RETURNS(module_dict, clear, "None", clear(self), "Removes all modules.");

// ---- Identity: accepts any constructor arguments and returns its input

static int init_identity(PyObject *self, PyObject *args, PyObject *kwargs) {
  return ext_module_begin(self);
}
EXT_METHOD(identity, forward, "(input: Any) -> Any", "Returns its input.") {
  EXT_ARGS(PyObject *, input);
  return Py_NewRef(input ? input : Py_None);
}

// ---- types

static int make_identity(PyObject *root) {
  static const PyType_Slot identity_slots[] = {{Py_tp_init, (void *)init_identity}, {0, NULL}};
  PyTypeObject *type = ext_module_make_type("Identity", identity_slots);
  return type ? ext_register_owner("identity", type) : -1;
}
EXT_START(EXT_TYPES, make_identity);

static const PyType_Slot slots[] = {{Py_tp_iter, (void *)iterate},
                                    {Py_sq_length, (void *)length},
                                    {Py_sq_contains, (void *)contains},
                                    {Py_mp_length, (void *)length},
                                    {Py_mp_subscript, (void *)subscript},
                                    {Py_mp_ass_subscript, (void *)assign},
                                    {0, NULL}};

static int make_containers(PyObject *root) {
  static const struct {
    const char *word, *kind;
  } rows[] = {
      {"sequential", "Sequential"}, {"module_list", "ModuleList"}, {"module_dict", "ModuleDict"}};
  for (int i = 0; i < EXT_LENGTH(rows); i++) {
    PyTypeObject *type = ext_module_make_type(rows[i].kind, slots);
    if (!type || ext_register_owner(rows[i].word, type) < 0) return -1;
  }
  return 0;
}
EXT_START(EXT_TYPES, make_containers);
