// SPDX-License-Identifier: Apache-2.0
// The module phlox._C: makes its parts in order. Submodules (phlox.cuda, phlox.nn.functional, ...)
// are module objects made here in C and entered in sys.modules, so that `import phlox.cuda` works.
#include "ext.h"

#include <string.h>

int ext_add(PyObject *module, const char *name, PyObject *object) {
  if (!object) return -1;
  int failed = PyModule_AddObjectRef(module, name, object);
  Py_DECREF(object);
  return failed;
}

int ext_add_type(PyObject *module, const char *name, PyTypeObject *type) {
  if (PyType_Ready(type) < 0) return -1;
  return PyModule_AddObjectRef(module, name, (PyObject *)type);
}

// ---- classes
// A static type's name in messages has its module in front; that of a class of Python's has not.

void ext_short_name(PyTypeObject *type) {
  const char *dot = strrchr(type->tp_name, '.');
  if (dot) type->tp_name = dot + 1;
}

// Writes the short name into "'torch.cuda.Stream' object has no attribute 'x'". What a getter
// raised, and what names a class over the type, stays.
static void shorten(PyObject *object) {
  const char *full = Py_TYPE(object)->tp_name, *dot = strrchr(full, '.');
  if (!dot || !PyErr_ExceptionMatches(PyExc_AttributeError)) return;
  PyObject *exception = ext_exception_take();
  EXT_OWNED *text = PyObject_Str(exception);
  EXT_OWNED *start = PyUnicode_FromFormat("'%s' object ", full);
  if (text && start && PyUnicode_Tailmatch(text, start, 0, PY_SSIZE_T_MAX, -1) == 1) {
    EXT_OWNED *rest =
        PyUnicode_Substring(text, PyUnicode_GET_LENGTH(start), PyUnicode_GET_LENGTH(text));
    EXT_OWNED *args =
        rest ? Py_BuildValue("(N)", PyUnicode_FromFormat("'%s' object %U", dot + 1, rest)) : NULL;
    if (args) PyObject_SetAttrString(exception, "args", args);
  }
  PyErr_Clear();
  ext_exception_give(exception);
}
static PyObject *class_getattro(PyObject *object, PyObject *name) {
  PyObject *value = PyObject_GenericGetAttr(object, name);
  if (!value) shorten(object);
  return value;
}
static int class_setattro(PyObject *object, PyObject *name, PyObject *value) {
  int failed = PyObject_GenericSetAttr(object, name, value);
  if (failed) shorten(object);
  return failed;
}

int ext_add_class(PyObject *module, const char *name, PyTypeObject *type) {
  if (!type->tp_getattro) type->tp_getattro = class_getattro;
  if (!type->tp_setattro) type->tp_setattro = class_setattro;
  return ext_add_type(module, name, type);
}

int ext_add_methods(PyTypeObject *type, PyMethodDef *methods) {
  for (PyMethodDef *at = methods; at->ml_name; at++) {
    PyObject *descriptor = PyDescr_NewMethod(type, at);
    int failed = descriptor ? PyDict_SetItemString(type->tp_dict, at->ml_name, descriptor) : -1;
    Py_XDECREF(descriptor);
    if (failed) return -1;
  }
  PyType_Modified(type);
  return 0;
}

// "phlox._C" is the root and stands for "phlox" in the names of submodules.
static PyObject *full_name(PyObject *parent, const char *name) {
  const char *above = PyModule_GetName(parent);
  if (!above) return NULL;
  return PyUnicode_FromFormat("%s.%s", strcmp(above, "phlox._C") ? above : "phlox", name);
}

PyObject *ext_submodule(PyObject *parent, const char *name, PyMethodDef *methods) {
  PyObject *known = PyDict_GetItemString(PyModule_GetDict(parent), name);
  if (known && PyModule_Check(known))
    return methods && PyModule_AddFunctions(known, methods) < 0 ? NULL : known;
  EXT_OWNED *full = full_name(parent, name);
  EXT_OWNED *module = full ? PyModule_NewObject(full) : NULL;
  EXT_OWNED *path = PyList_New(0);  // an empty __path__ makes it a package to the import system
  if (!module || !path || PyModule_AddObjectRef(module, "__path__", path) < 0) return NULL;
  if (methods && PyModule_AddFunctions(module, methods) < 0) return NULL;
  if (PyDict_SetItem(PyImport_GetModuleDict(), full, module) < 0 ||
      PyModule_AddObjectRef(parent, name, module) < 0)
    return NULL;
  return PyDict_GetItemString(PyModule_GetDict(parent), name);
}

static const struct {
  const char *name;
  int (*init)(PyObject *module);
} parts[] = {{"errors", ext_init_errors},
             {"device", ext_init_device},
             {"dtype", ext_init_dtype},
             {"size", ext_init_size},
             {"tensor", ext_init_tensor},
             {"methods", ext_init_tensor_methods},
             {"convert", ext_init_tensor_convert},
             {"numpy", ext_init_numpy},
             {"cuda", ext_init_cuda},
             {"backends", ext_init_backends},
             {"stream", ext_init_stream},
             {"memory", ext_init_cuda_memory},
             {"random", ext_init_random},
             {"graph", ext_init_graph},
             {"modes", ext_init_modes},
             {"function", ext_init_function},
             {"construct", ext_init_construct},
             {"legacy", ext_init_legacy},
             {"storage", ext_init_storage},
             {"ops", ext_init_ops},
             {"functional", ext_init_functional},
             {"unique", ext_init_unique},
             {"unique", ext_init_unique},
             {"nn", ext_init_nn},
             {"parallel", ext_init_parallel},
             {"comm", ext_init_comm},
             {"optim", ext_init_optim},
             {"data", ext_init_data},
             {"io", ext_init_io},
             {"dlpack", ext_init_dlpack},
             {"missing", ext_init_missing}};

static int add_constants(PyObject *m) {
  static const struct {
    const char *name;
    double value;
  } numbers[] = {{"pi", 3.14159265358979323846}, {"e", 2.7182818284590452354}};
  for (int i = 0; i < EXT_LENGTH(numbers); i++)
    if (ext_add(m, numbers[i].name, PyFloat_FromDouble(numbers[i].value)) < 0) return -1;
  if (ext_add(m, "inf", PyFloat_FromDouble(Py_HUGE_VAL)) < 0) return -1;
  if (ext_add(m, "nan", PyFloat_FromDouble(Py_NAN)) < 0) return -1;
  if (ext_add(m, "newaxis", Py_NewRef(Py_None)) < 0) return -1;
  return ext_add(m, "__version__", PyUnicode_FromString("2.14.1+phlox"));
}

PyMODINIT_FUNC PyInit__C(void);
PyMODINIT_FUNC PyInit__C(void) {
  static struct PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "phlox._C", NULL, -1, NULL, NULL, NULL, NULL, NULL};
  PyObject *m = PyModule_Create(&definition);
  if (!m || add_constants(m) < 0) return NULL;
  for (int i = 0; i < EXT_LENGTH(parts); i++) {
    if (parts[i].init(m) == 0) continue;
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_ImportError, "the part %s could not be initialised", parts[i].name);
    return NULL;
  }
  return m;
}
