// SPDX-License-Identifier: Apache-2.0
// Subclasses of Tensor: the inherited __torch_function__, which converts results to the subclass;
// their attribute access, a __getattribute__ dispatching attributes inherited from Tensor; the same
// for Tensor under active modes; and the switches disabling it.
#include "bind/ext.h"

#include <string.h>

// ---- the default __torch_function__: results get the subclass
// `spent`: the result has no other owner.
static PyObject *convert_result(PyObject *result, PyTypeObject *cls, bool spent);

static PyObject *convert_items(PyObject *result, PyTypeObject *cls, bool spent) {
  Py_ssize_t count = PySequence_Fast_GET_SIZE(result);
  EXT_OWNED *list = PyList_New(count);
  for (Py_ssize_t i = 0; list && i < count; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(result, i);
    item = convert_result(item, cls, spent && Py_REFCNT(item) == 1);
    if (!item) return NULL;
    PyList_SET_ITEM(list, i, item);
  }
  return list ? PyObject_CallOneArg((PyObject *)Py_TYPE(result), list) : NULL;
}
static PyObject *convert_result(PyObject *result, PyTypeObject *cls, bool spent) {
  if (cls == ext_TensorType) return Py_NewRef(result);
  if (ext_is_tensor(result) && !PyObject_TypeCheck(result, cls))
    return ext_as_class(result, cls, spent);
  bool list = PyList_Check(result) || PyTuple_Check(result);
  return list ? convert_items(result, cls, spent) : Py_NewRef(result);
}

// Getters of attributes returning other tensors, which keep their class.
static bool keeps_class(PyObject *function) {
  static const char *const names[] = {"grad", "_grad", "_base"};
  for (int i = 0; i < EXT_LENGTH(names); i++) {
    EXT_OWNED *known = PyObject_GetAttrString((PyObject *)ext_TensorType, names[i]);
    EXT_OWNED *get = known ? PyObject_GetAttrString(known, "__get__") : NULL;
    int same = get ? PyObject_RichCompareBool(function, get, Py_EQ) : 0;
    if (same > 0) return true;
  }
  PyErr_Clear();
  return false;
}

static PyObject *call_plain(PyObject *function, PyObject *args, PyObject *kwargs) {
  ext_overrides_off(1, 0);
  PyObject *result = ext_apply(function, args, kwargs);
  ext_overrides_off(-1, 0);
  return result;
}

EXT_CLASS_METHOD(
    tensor, __torch_function__,
    "(func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict | None = "
    "None) -> object",
    "Calls `func` and converts resulting tensors to the class. Subclasses may override "
    "it.") {
  PyObject *func, *types, *args_, *kwargs;
  EXT_BIND(func, types, args_, kwargs);
  EXT_OWNED *classes = PySequence_Fast(types, "types must be a sequence");
  if (!classes) return NULL;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(classes); i++) {
    int derived = PyObject_IsSubclass(self, PySequence_Fast_GET_ITEM(classes, i));
    if (derived <= 0) return derived < 0 ? NULL : Py_NewRef(Py_NotImplemented);
  }
  EXT_OWNED *result = call_plain(func, args_, kwargs);
  if (!result || keeps_class(func)) return ext_moved(&result);
  return convert_result(result, (PyTypeObject *)self, Py_REFCNT(result) == 1);
}

EXT_FUNCTION(
    torch, _disabled_torch_function_impl,
    "(func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict | None = None) "
    "-> object",
    "Disables the __torch_function__ override of a class that is assigned this function.") {
  PyObject *func, *types, *args_, *kwargs;
  EXT_BIND(func, types, args_, kwargs);
  return call_plain(func, args_, kwargs);
}

// ---- attributes and methods of subclass tensors
// Dispatches a bound method given as (function, tensor): the tensor precedes the arguments.
static PyObject *call_bound(PyObject *pair, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
  Py_ssize_t count = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  PyObject **all = PyMem_New(PyObject *, count + 1);
  if (!all) return PyErr_NoMemory();
  all[0] = PyTuple_GET_ITEM(pair, 1);
  for (Py_ssize_t i = 0; i < count; i++) all[i + 1] = args[i];
  PyObject *result = ext_call_override(PyTuple_GET_ITEM(pair, 0), all, nargs + 1, kwnames);
  PyMem_Free(all);
  return result;
}
static PyMethodDef bound_def = {"method", (PyCFunction)(void (*)(void))call_bound,
                                METH_FASTCALL | METH_KEYWORDS, NULL};

// The attribute inherited from Tensor, if the class does not override it and it can be dispatched.
// New reference; NULL without an exception otherwise. Ops check their arguments themselves.
static PyObject *inherited_attribute(PyObject *self, PyObject *name) {
  static const char *const never[] = {
      "__class__",  "__dict__", "__init_subclass__", "as_subclass", "new",
      "new_tensor", "stride",   "__getattribute__",  "__setattr__"};
  for (int i = 0; i < EXT_LENGTH(never); i++)
    if (PyUnicode_CompareWithASCIIString(name, never[i]) == 0) return NULL;
  EXT_OWNED *mine = PyObject_GetAttr((PyObject *)Py_TYPE(self), name);
  EXT_OWNED *tensors = mine ? PyObject_GetAttr((PyObject *)ext_TensorType, name) : NULL;
  PyErr_Clear();
  bool taken = ext_mode_active() || ext_overrides(self);
  return mine == tensors && taken ? ext_moved(&mine) : NULL;
}

static PyObject *derived_get(PyObject *self, PyObject *name) {
  EXT_OWNED *own = inherited_attribute(self, name);
  if (own && Py_IS_TYPE(own, &PyGetSetDescr_Type)) {
    EXT_OWNED *get = PyObject_GetAttrString(own, "__get__");
    return get ? ext_call_override(get, &self, 1, NULL) : NULL;
  }
  if (own && (Py_IS_TYPE(own, &PyMethodDescr_Type) || PyFunction_Check(own))) {
    EXT_OWNED *pair = PyTuple_Pack(2, own, self);
    return pair ? PyCFunction_New(&bound_def, pair) : NULL;
  }
  return PyObject_GenericGetAttr(self, name);
}
static int derived_set(PyObject *self, PyObject *name, PyObject *value) {
  EXT_OWNED *own = value ? inherited_attribute(self, name) : NULL;
  if (!own || !Py_IS_TYPE(own, &PyGetSetDescr_Type))
    return PyObject_GenericSetAttr(self, name, value);
  EXT_OWNED *set = PyObject_GetAttrString(own, "__set__");
  EXT_OWNED *done = set ? ext_call_override(set, (PyObject *[]){self, value}, 2, NULL) : NULL;
  return done ? 0 : -1;
}

// Under active modes, Tensor's own attributes are dispatched, too.
static void dispatch_attributes(bool taken) {
  PyTypeObject *const types[] = {ext_TensorType, ext_ParameterType};
  for (int i = 0; i < EXT_LENGTH(types); i++) {
    types[i]->tp_getattro = taken ? derived_get : PyObject_GenericGetAttr;
    types[i]->tp_setattro = taken ? derived_set : PyObject_GenericSetAttr;
    PyType_Modified(types[i]);
  }
}

static PyObject *set_attribute(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  PyObject *name, *value;
  if (!EXT_UNPACK_ARGS(args, nargs, &name, &value))
    EXT_FAIL(PyExc_TypeError, "__setattr__() expects a name and a value");
  return ext_none_unless(derived_set(self, name, value) < 0);
}
static PyMethodDef derived_methods[] = {
    {"__getattribute__", derived_get, METH_O, NULL},
    {"__setattr__", (PyCFunction)(void (*)(void))set_attribute, METH_FASTCALL, NULL}};

// Installs the methods in a direct subclass of Tensor or Parameter without its own.
static int install_attributes(PyTypeObject *cls) {
  for (int i = 0; i < EXT_LENGTH(derived_methods); i++) {
    const char *name = derived_methods[i].ml_name;
    EXT_OWNED *known = PyObject_GetAttrString((PyObject *)cls, name);
    EXT_OWNED *plain = PyObject_GetAttrString((PyObject *)ext_TensorType, name);
    if (!known || !plain) return -1;
    if (known != plain) continue;
    EXT_OWNED *method = PyDescr_NewMethod(ext_TensorType, &derived_methods[i]);
    if (!method || PyObject_SetAttrString((PyObject *)cls, name, method) < 0) return -1;
  }
  return 0;
}

EXT_CLASS_METHOD(tensor, __init_subclass__, "(*args: object) -> None", NULL) {
  if (PyObject_HasAttrString(self, "__torch_dispatch__"))
    EXT_FAIL(PyExc_NotImplementedError, "__torch_dispatch__ is not implemented in Phlox");
  EXT_OWNED *above = PyObject_CallFunction((PyObject *)&PySuper_Type, "OO", ext_TensorType, self);
  EXT_OWNED *init = above ? PyObject_GetAttrString(above, "__init_subclass__") : NULL;
  EXT_OWNED *done =
      init ? PyObject_Vectorcall(init, call->args, (size_t)call->nargs, call->kwnames) : NULL;
  return ext_none_unless(!done || install_attributes((PyTypeObject *)self) < 0);
}

// ---- modes, and disabling overrides
EXT_FUNCTION(torch, _push_mode, "(mode: object) -> None",
             "Pushes a mode onto this thread's stack.") {
  EXT_ARGS(PyObject *, mode);
  if (ext_mode_push(mode) < 0) return NULL;
  if (ext_mode_count++ == 0) dispatch_attributes(true);
  Py_RETURN_NONE;
}
EXT_FUNCTION0(torch, _pop_mode, "object", "Pops this thread's innermost mode and returns it.") {
  PyObject *mode = ext_mode_pop();
  if (mode && --ext_mode_count == 0) dispatch_attributes(false);
  return mode;
}

// Context managers disabling overrides.
typedef struct off_object {
  PyObject_HEAD int modes;
} off_object;
static void switch_off(PyObject *self, int by) {
  ext_overrides_off(by, by * ((off_object *)self)->modes);
}
static PyObject *off_enter(PyObject *self, PyObject *unused) {
  switch_off(self, 1);
  Py_RETURN_NONE;
}
static PyObject *off_exit(PyObject *self, PyObject *unused) {
  switch_off(self, -1);
  Py_RETURN_NONE;
}
static PyMethodDef off_methods[] = {{"__enter__", off_enter, METH_NOARGS, NULL},
                                    {"__exit__", off_exit, METH_VARARGS, NULL},
                                    {NULL, NULL, 0, NULL}};
static PyObject *off_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  if (PyTuple_GET_SIZE(args) || kwargs)
    EXT_FAIL(PyExc_TypeError, "%s() takes no arguments", type->tp_name);
  off_object *self = ext_new(type);
  if (self) self->modes = !strstr(type->tp_name, "Subclass");
  return (PyObject *)self;
}
EXT_TYPE(classes_off, "torch._C.DisableTorchFunctionSubclass", "DisableTorchFunctionSubclass",
         off_object, EXT_FINAL,
         "DisableTorchFunctionSubclass()\n--\n\n"
         "Context manager that disables __torch_function__ of subclasses.",
         .tp_new = off_new, .tp_methods = off_methods);
EXT_TYPE(all_off, "torch._C.DisableTorchFunction", "DisableTorchFunction", off_object, EXT_FINAL,
         "DisableTorchFunction()\n--\n\n"
         "Context manager that disables __torch_function__ of subclasses and modes.",
         .tp_new = off_new, .tp_methods = off_methods);

static int start(PyObject *torch) {
  PyObject *none = PyObject_GetAttrString(torch, "_disabled_torch_function_impl");
  ext_disabled_function = none;
  if (!none) return -1;
  int failed = PyDict_SetItemString(ext_ParameterType->tp_dict, "__torch_function__", none);
  PyType_Modified(ext_ParameterType);
  return failed;
}
EXT_START(EXT_VALUES, start);
