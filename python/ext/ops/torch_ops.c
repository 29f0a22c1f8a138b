// SPDX-License-Identifier: Apache-2.0
// torch.ops: user-registered ops (phlox/register.h) as torch.ops.NAMESPACE.NAME. An op is looked up
// on first access of its name, so time and place of its registration do not matter.
#include "bind/ext.h"
#include "phlox/register.h"

#include <string.h>

typedef struct space_object {
  PyObject_HEAD PyObject *name;
} space_object;
static PyObject *name_of(PyObject *self) { return ((space_object *)self)->name; }

// ---- a namespace

static PyObject *space_getattro(PyObject *self, PyObject *name) {
  PyObject *known = PyObject_GenericGetAttr(self, name);
  if (known || !PyErr_ExceptionMatches(PyExc_AttributeError)) return known;
  PyErr_Clear();
  bool aten = PyUnicode_CompareWithASCIIString(name_of(self), "aten") == 0;
  known = aten ? ext_aten_packet(name) : NULL;
  if (known || PyErr_Occurred()) return known;
  EXT_OWNED *full = PyUnicode_FromFormat("%U::%U", name_of(self), name);
  const char *text = full ? ext_lookup_text(full) : NULL;
  known = text ? ext_op_registered(text) : NULL;
  if (known || PyErr_Occurred()) return Py_XNewRef(known);
  EXT_FAIL(PyExc_AttributeError, "'_OpNamespace' '%U' object has no attribute '%U'", name_of(self),
           name);
}
static PyObject *space_repr(PyObject *self) {
  return PyUnicode_FromFormat("<torch.ops.%U>", name_of(self));
}

EXT_OWNS(op_space, EXT_OBJECT(space_object, name));
EXT_TYPE(op_space, "torch._ops._OpNamespace", "", space_object, EXT_FINAL,
         "The ops of a namespace, as attributes.", EXT_LIFETIME_SLOTS(op_space),
         .tp_getattro = space_getattro, .tp_repr = space_repr);

// ---- torch.ops

// Any name may be a namespace of ops registered later.
static PyObject *make_space(PyObject *module, PyObject *name) {
  EXT_OWNED *dunder = PyUnicode_FromString("__");
  int special = dunder ? (int)PyUnicode_Tailmatch(name, dunder, 0, PY_SSIZE_T_MAX, -1) : -1;
  if (special < 0) return NULL;
  if (special) EXT_FAIL(PyExc_AttributeError, "module 'torch.ops' has no attribute '%U'", name);
  space_object *self = ext_new(&op_space_type);
  if (!self) return NULL;
  self->name = Py_NewRef(name);
  if (PyObject_SetAttr(module, name, (PyObject *)self) < 0) Py_CLEAR(self);
  return (PyObject *)self;
}
static PyMethodDef getattr_method = {"__getattr__", make_space, METH_O, NULL};

EXT_MODULE(ops, "ops", "Ops registered by shared objects: torch.ops.NAMESPACE.NAME.");

EXT_FUNCTION(ops, load_library, "(path: object) -> None",
             "Loads a shared object that registers ops. Loading it again is a no-op.") {
  EXT_ARGS(PyObject *, path);
  EXT_OWNED *bytes = NULL;
  if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
  EXT_WAIT(px_op_load_library(PyBytes_AS_STRING(bytes)));
  EXT_OWNED *loaded = PyObject_GetAttrString(self, "loaded_libraries");
  return ext_none_unless(!loaded || PySet_Add(loaded, path) < 0 || ext_ops_update() < 0);
}

static int ext_init_own_ops(PyObject *m) {
  PyObject *ops = ext_submodule(m, "ops");
  if (!ops || ext_add(ops, "loaded_libraries", PySet_New(NULL)) < 0) return -1;
  return ext_add(ops, "__getattr__", PyCFunction_New(&getattr_method, ops));
}
EXT_START(EXT_VALUES, ext_init_own_ops);
