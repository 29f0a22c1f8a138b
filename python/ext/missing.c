// SPDX-License-Identifier: Apache-2.0
// What PyTorch has and Phlox lacks: the name exists and raises NotImplementedError when called, so
// that a script fails where it uses it, with the name, and not by a wrong result.
#include "ext.h"
#include "missing.h"

#include <string.h>

typedef struct missing_object {
  PyObject_HEAD const char *space, *name;
} missing_object;

static PyObject *missing_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  const missing_object *object = (missing_object *)self;
  EXT_FAIL(PyExc_NotImplementedError, "%s.%s is not implemented in Phlox", object->space,
           object->name);
}
static PyObject *missing_repr(PyObject *self) {
  const missing_object *object = (missing_object *)self;
  return PyUnicode_FromFormat("<%s.%s: not implemented>", object->space, object->name);
}
static PyObject *missing_name(PyObject *self, void *unused) {
  return PyUnicode_FromString(((missing_object *)self)->name);
}
static PyGetSetDef missing_getset[] = {{"__name__", missing_name, NULL, NULL, NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};
static PyTypeObject missing_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.missing",
    .tp_basicsize = sizeof(missing_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = missing_call,
    .tp_repr = missing_repr,
    .tp_getset = missing_getset,
};

static int fill(PyObject *dict, const char *space, const char *const *names, int count) {
  for (int i = 0; i < count; i++) {
    if (PyDict_GetItemString(dict, names[i])) continue;
    missing_object *object = PyObject_New(missing_object, &missing_type);
    if (!object) return -1;
    object->space = space;
    object->name = names[i];
    int failed = PyDict_SetItemString(dict, names[i], (PyObject *)object);
    Py_DECREF(object);
    if (failed) return -1;
  }
  return 0;
}

// ---- modules' __getattr__
// "phlox.nn" as "torch.nn"; the root is "phlox._C".
static PyObject *torch_name(PyObject *module) {
  const char *name = PyModule_GetName(module);
  if (!name) return NULL;
  return PyUnicode_FromFormat("torch%s", strcmp(name, "phlox._C") ? name + sizeof "phlox" - 1 : "");
}

static PyObject *absent(PyObject *module, PyObject *name) {
  EXT_OWNED *space = torch_name(module);
  EXT_OWNED *full = space ? PyUnicode_FromFormat("%U.%U", space, name) : NULL;
  EXT_OWNED *table = full ? PyImport_ImportModule("phlox._absent") : NULL;
  EXT_OWNED *names = table ? PyObject_GetAttrString(table, "NAMES") : NULL;
  int known = names ? PySet_Contains(names, full) : -1;
  if (known < 0) return NULL;
  if (known)
    EXT_FAIL(PyExc_AttributeError,
             "module '%U' has no attribute '%U': %U is not implemented in Phlox", space, name,
             full);
  EXT_FAIL(PyExc_AttributeError, "module '%U' has no attribute '%U'", space, name);
}
static PyMethodDef absent_def = {"__getattr__", absent, METH_O, NULL};

static int give_getattr(PyObject *module) {
  if (PyDict_GetItemString(PyModule_GetDict(module), "__getattr__")) return 0;
  EXT_OWNED *function = PyCFunction_New(&absent_def, module);
  return function ? PyDict_SetItemString(PyModule_GetDict(module), "__getattr__", function) : -1;
}

// _name_missing(name): the same for a module in Python that is being imported.
static PyObject *name_missing(PyObject *self, PyObject *name) {
  PyObject *module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  if (!module) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_KeyError, "%R", name);
  if (give_getattr(module) < 0) return NULL;
  Py_RETURN_NONE;
}
static PyMethodDef functions[] = {{"_name_missing", name_missing, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

static int give_all_getattr(PyObject *root) {
  EXT_OWNED *names = PyDict_Keys(PyImport_GetModuleDict());
  if (!names || give_getattr(root) < 0) return -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); i++) {
    const char *name = PyUnicode_AsUTF8(PyList_GET_ITEM(names, i));
    if (!name || strncmp(name, "phlox.", 6)) continue;
    PyObject *module = PyDict_GetItem(PyImport_GetModuleDict(), PyList_GET_ITEM(names, i));
    if (PyModule_CheckExact(module) && give_getattr(module) < 0) return -1;
  }
  return 0;
}

// The last part to be initialised: it fills what the others left.
static int ext_init_missing(PyObject *m) {
  EXT_OWNED *nn = PyObject_GetAttrString(m, "nn");
  EXT_OWNED *functional = nn ? PyObject_GetAttrString(nn, "functional") : NULL;
  if (!functional || PyType_Ready(&missing_type) < 0) return -1;
  if (fill(PyModule_GetDict(m), "torch", torch_names, EXT_LENGTH(torch_names)) < 0 ||
      fill(ext_TensorType->tp_dict, "torch.Tensor", tensor_names, EXT_LENGTH(tensor_names)) < 0 ||
      fill(PyModule_GetDict(functional), "torch.nn.functional", functional_names,
           EXT_LENGTH(functional_names)) < 0)
    return -1;
  PyType_Modified(ext_TensorType);
  if (PyModule_AddFunctions(m, functions) < 0) return -1;
  return give_all_getattr(m);
}
EXT_START(EXT_LAST, ext_init_missing);
