// SPDX-License-Identifier: Apache-2.0
// What PyTorch has and Phlox lacks: the name exists and raises NotImplementedError when called, so
// that a script fails where it uses it, with the name, and not by a wrong result.
#include "ext.h"
#include "missing.h"

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

// The last part to be initialised: it fills what the others left.
int ext_init_missing(PyObject *m) {
  EXT_OWNED *nn = PyObject_GetAttrString(m, "nn");
  EXT_OWNED *functional = nn ? PyObject_GetAttrString(nn, "functional") : NULL;
  if (!functional || PyType_Ready(&missing_type) < 0) return -1;
  if (fill(PyModule_GetDict(m), "torch", torch_names, EXT_LENGTH(torch_names)) < 0 ||
      fill(ext_TensorType.tp_dict, "torch.Tensor", tensor_names, EXT_LENGTH(tensor_names)) < 0 ||
      fill(PyModule_GetDict(functional), "torch.nn.functional", functional_names,
           EXT_LENGTH(functional_names)) < 0)
    return -1;
  PyType_Modified(&ext_TensorType);
  return 0;
}
