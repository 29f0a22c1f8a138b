// SPDX-License-Identifier: Apache-2.0
// __torch_function__ dispatch: finds the classes and active modes of the thread that override a
// call, and calls them. Tensor's own __torch_function__ is in subclass.c, the user API in
// phlox/overrides.py.
#include "bind/ext.h"

#include <string.h>

// ---- active modes of a thread
int ext_mode_count;
static _Thread_local struct {
  PyObject *modes;  // a list, innermost last; NULL if none
  int classes_off, modes_off;
} here;

bool ext_mode_active(void) { return here.modes && !here.modes_off; }

int ext_mode_push(PyObject *mode) {
  if (!here.modes) here.modes = PyList_New(0);
  return here.modes ? PyList_Append(here.modes, mode) : -1;
}
PyObject *ext_mode_pop(void) {
  Py_ssize_t last = here.modes ? PyList_GET_SIZE(here.modes) - 1 : -1;
  if (last < 0) EXT_FAIL(PyExc_RuntimeError, "no mode is active");
  PyObject *mode = Py_NewRef(PyList_GET_ITEM(here.modes, last));
  if (PyList_SetSlice(here.modes, last, last + 1, NULL) < 0) PyErr_Clear();
  if (!last) Py_CLEAR(here.modes);
  return mode;
}
void ext_overrides_off(int classes, int modes) {
  here.classes_off += classes;
  here.modes_off += modes;
}
EXT_FUNCTION0(torch, _modes, "list", "Returns the active modes of this thread, innermost last.") {
  return here.modes ? PySequence_List(here.modes) : PyList_New(0);
}

// ---- overriding classes
PyObject *ext_disabled_function;

// Quick test: classes made by a class statement only.
static inline bool may_override(PyObject *object) {
  return PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE) && !ext_is_plain(object);
}
// __torch_function__ of an object with an override, a new reference; NULL without an exception if
// it has none. Most types lack the name, a lookup cached by CPython.
static PyObject *function_of(PyObject *object) {
  static PyObject *word;
  if (!word && !(word = PyUnicode_InternFromString("__torch_function__"))) return NULL;
  PyTypeObject *type = Py_TYPE(object);
  if (!may_override(object) || here.classes_off || !_PyType_Lookup(type, word)) return NULL;
  PyObject *function = PyObject_GetAttr((PyObject *)type, word);
  if (!function) PyErr_Clear();
  if (function == ext_disabled_function) Py_CLEAR(function);
  return function;
}
bool ext_overrides(PyObject *object) {
  EXT_OWNED *function = function_of(object);
  return function != NULL;
}

// Objects checked for an argument: the items of a list or tuple, or the argument itself.
typedef struct arg_objects {
  PyObject *const *items;
  Py_ssize_t count;
} arg_objects;
static arg_objects objects_of_arg(PyObject *const *arg) {
  if (!PyList_Check(*arg) && !PyTuple_Check(*arg)) return (arg_objects){arg, 1};
  return (arg_objects){PySequence_Fast_ITEMS(*arg), PySequence_Fast_GET_SIZE(*arg)};
}

bool ext_any_overrides(PyObject *const *args, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    arg_objects of = objects_of_arg(&args[i]);
    for (Py_ssize_t k = 0; k < of.count; k++)
      if (may_override(of.items[k]) && ext_overrides(of.items[k])) return true;
  }
  return false;
}

// Adds an object to the overriding ones: one of each type, in argument order, but subclasses before
// their base classes.
static int add_overrider(PyObject *list, PyObject *object) {
  Py_ssize_t at = PyList_GET_SIZE(list);
  for (Py_ssize_t i = PyList_GET_SIZE(list); i-- > 0;) {
    PyTypeObject *type = Py_TYPE(PyList_GET_ITEM(list, i));
    if (Py_IS_TYPE(object, type)) return 0;
    if (PyType_IsSubtype(Py_TYPE(object), type)) at = i;
  }
  return PyList_Insert(list, at, object);
}
static int add_overriders(PyObject *list, PyObject *const *args, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    arg_objects of = objects_of_arg(&args[i]);
    for (Py_ssize_t k = 0; k < of.count; k++)
      if (ext_overrides(of.items[k]) && add_overrider(list, of.items[k]) < 0) return -1;
  }
  return 0;
}

static PyObject *types_of(PyObject *list) {
  PyObject *types = PyTuple_New(PyList_GET_SIZE(list));
  for (Py_ssize_t i = 0; types && i < PyList_GET_SIZE(list); i++)
    PyTuple_SET_ITEM(types, i, Py_NewRef((PyObject *)Py_TYPE(PyList_GET_ITEM(list, i))));
  return types;
}

// ---- calls of overrides
// Leaves the innermost mode for the call: calls within it go to the next mode.
static PyObject *call_mode(PyObject *function, PyObject *types, PyObject *args, PyObject *kwargs) {
  EXT_OWNED *mode = ext_mode_pop();
  if (!mode) return NULL;
  PyObject *result = PyObject_CallMethod(mode, "__torch_function__", "OOOO", function, types, args,
                                         kwargs ? kwargs : Py_None);
  if (ext_mode_push(mode) < 0) Py_CLEAR(result);
  return result;
}

static PyObject *name_of(PyObject *function) {
  PyObject *name = PyObject_GetAttrString(function, "__name__");
  PyErr_Clear();
  return name ? name : PyObject_Str(function);
}
static PyObject *fail_not_implemented(PyObject *function, PyObject *mode, PyObject *list) {
  EXT_OWNED *name = name_of(function);
  EXT_OWNED *text = name ? PyUnicode_FromFormat(
                               "Multiple dispatch failed for 'torch.%U'; all __torch_function__ "
                               "handlers returned NotImplemented:\n",
                               name)
                         : NULL;
  if (text && mode) Py_SETREF(text, PyUnicode_FromFormat("%U\n  - mode object %R", text, mode));
  for (Py_ssize_t i = 0; text && i < PyList_GET_SIZE(list); i++)
    Py_SETREF(text, PyUnicode_FromFormat("%U\n  - tensor subclass %R", text,
                                         (PyObject *)Py_TYPE(PyList_GET_ITEM(list, i))));
  if (text) PyErr_SetObject(PyExc_TypeError, text);
  return NULL;
}

static PyObject *call_all(PyObject *function, PyObject *list, PyObject *args, PyObject *kwargs) {
  EXT_OWNED *types = types_of(list);
  if (!types) return NULL;
  PyObject *mode = NULL;  // borrowed
  if (ext_mode_active()) {
    mode = PyList_GET_ITEM(here.modes, PyList_GET_SIZE(here.modes) - 1);
    PyObject *result = call_mode(function, types, args, kwargs);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    EXT_OWNED *own = function_of(PyList_GET_ITEM(list, i));
    if (!own) continue;
    PyObject *result =
        PyObject_CallFunction(own, "OOOO", function, types, args, kwargs ? kwargs : Py_None);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  return fail_not_implemented(function, mode, list);
}

PyObject *ext_call_override(PyObject *function, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
  Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  EXT_OWNED *list = PyList_New(0);
  EXT_OWNED *tuple = ext_tuple_of((ext_varargs){args, nargs});
  EXT_OWNED *kwargs = ext_kwargs_of(args, nargs, kwnames);
  if (!list || !tuple || !kwargs || add_overriders(list, args, nargs + named) < 0) return NULL;
  return call_all(function, list, tuple, kwargs);
}

PyObject *ext_call_slot_override(const char *name, PyObject *self, PyObject *other,
                                 PyObject *third) {
  EXT_OWNED *function = PyObject_GetAttrString((PyObject *)ext_TensorType, name);
  return function ? ext_call_override(function, (PyObject *[]){self, other, third},
                                      1 + !!other + !!third, NULL)
                  : NULL;
}

bool ext_dispatch_to_modes(PyObject *self, const ext_call *call, PyObject **result) {
  const ext_row *row = call->row;
  if (!ext_mode_active() || strcmp(row->owner, "torch") || row->name[0] == '_') return false;
  EXT_OWNED *known = PyObject_GetAttrString(self, row->name);
  *result = known ? ext_call_override(known, call->args, call->nargs, call->kwnames) : NULL;
  return true;
}

bool ext_dispatch_to_classes(const ext_call *call, PyObject **result) {
  Py_ssize_t named = call->kwnames ? PyTuple_GET_SIZE(call->kwnames) : 0;
  if (call->first || !ext_any_overrides(call->args, call->nargs + named)) return false;
  const ext_row *row = call->row;
  EXT_OWNED *module = strcmp(row->owner, "torch") != 0 ? ext_extension_attr(row->owner) : NULL;
  EXT_OWNED *known =
      module ? PyObject_GetAttrString(module, row->name) : ext_extension_attr(row->name);
  *result = known ? ext_call_override(known, call->args, call->nargs, call->kwnames) : NULL;
  return true;
}

EXT_FUNCTION(torch, _ask,
             "(function: Callable, relevant: tuple, args: tuple, kwargs: dict) -> object",
             "Calls the __torch_function__ overrides of the relevant arguments.") {
  PyObject *function, *relevant, *args_, *kwargs;
  EXT_BIND(function, relevant, args_, kwargs);
  EXT_OWNED *list = PyList_New(0);
  if (!list || add_overriders(list, &relevant, 1) < 0) return NULL;
  return call_all(function, list, args_, kwargs);
}
EXT_FUNCTION(torch, _overrides, "(objects: tuple) -> bool",
             "Returns True if a mode is active or one of the objects overrides calls.") {
  PyObject *objects;
  EXT_BIND(objects);
  return PyBool_FromLong(ext_mode_active() || ext_any_overrides(&objects, 1));
}
