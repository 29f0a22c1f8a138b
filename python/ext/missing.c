// SPDX-License-Identifier: Apache-2.0
// What PyTorch has and Phlox lacks: the name exists and raises NotImplementedError when called, so
// that a script fails where it uses it, with the name, and not by a wrong result.
#include "ext.h"
#include "missing.h"

#include <string.h>

typedef struct missing_object {
  PyObject_HEAD const char *space;
  PyObject *name;
} missing_object;

static PyObject *missing_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  const missing_object *object = (missing_object *)self;
  EXT_FAIL(PyExc_NotImplementedError, "%s.%U is not implemented in Phlox", object->space,
           object->name);
}
static PyObject *missing_repr(PyObject *self) {
  const missing_object *object = (missing_object *)self;
  return PyUnicode_FromFormat("<%s.%U: not implemented>", object->space, object->name);
}
EXT_OWNS(missing, EXT_OBJECT(missing_object, name));
EXT_TYPE(missing, "torch.missing", "", missing_object, EXT_FINAL,
         "A function or method of PyTorch that Phlox lacks.", EXT_LIFE(missing),
         .tp_call = missing_call, .tp_repr = missing_repr);
EXT_GET(missing, __name__, "str", Py_NewRef(((missing_object *)self)->name), NULL);

// Binds the names, which are separated by spaces, where there is nothing else of that name.
static int fill(PyObject *dict, const char *space, const char *names) {
  while (*names) {
    size_t length = strcspn(names, " ");
    EXT_OWNED *name = PyUnicode_FromStringAndSize(names, (Py_ssize_t)length);
    names += length + (names[length] == ' ');
    if (!name) return -1;
    if (PyDict_Contains(dict, name)) continue;
    EXT_OWNED *object = ext_new(&missing_type);
    if (!object) return -1;
    ((missing_object *)object)->space = space;
    ((missing_object *)object)->name = Py_NewRef(name);
    if (PyDict_SetItem(dict, name, object) < 0) return -1;
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

EXT_FUNCTION(torch, _name_missing, "(name: str) -> None",
             "Lets a module in Python, which is being imported, say what it lacks.") {
  PyObject *name;
  EXT_BIND(name);
  PyObject *module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  if (!module) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_KeyError, "%R", name);
  if (give_getattr(module) < 0) return NULL;
  Py_RETURN_NONE;
}

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

// The last part of the start: it fills what the others left.
static int fill_missing(PyObject *torch) {
  EXT_OWNED *nn = PyObject_GetAttrString(torch, "nn");
  EXT_OWNED *functional = nn ? PyObject_GetAttrString(nn, "functional") : NULL;
  if (!functional || fill(PyModule_GetDict(torch), "torch", torch_names) < 0 ||
      fill(ext_TensorType->tp_dict, "torch.Tensor", tensor_names) < 0 ||
      fill(PyModule_GetDict(functional), "torch.nn.functional", functional_names) < 0)
    return -1;
  PyType_Modified(ext_TensorType);
  return give_all_getattr(torch);
}
EXT_START(EXT_LAST, fill_missing);
