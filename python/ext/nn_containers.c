// SPDX-License-Identifier: Apache-2.0
// Sequential, ModuleList and ModuleDict as Python sequences and mappings of their children.
#include "nn.h"

#include <string.h>

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

// The name of the child at an integer index, as a new reference.
static PyObject *name_at(PyObject *self, PyObject *index) {
  int64_t i, n = length(self);
  if (ext_to_int(index, &i) < 0) return NULL;
  if (i < -n || i >= n) EXT_FAIL(PyExc_IndexError, "index %lld is out of range", (long long)i);
  EXT_OWNED *names = PyDict_Keys(children_of(self));
  return names ? Py_NewRef(PyList_GET_ITEM(names, i < 0 ? i + n : i)) : NULL;
}

static PyObject *slice_of(PyObject *self, PyObject *slice) {
  EXT_OWNED *values = PyDict_Values(children_of(self));
  EXT_OWNED *part = values ? PyObject_GetItem(values, slice) : NULL;
  if (!part) return NULL;
  if (!PyObject_TypeCheck(self, ext_module_type("Sequential")))
    return PyObject_CallOneArg((PyObject *)Py_TYPE(self), part);
  // The names stay: layers of a part of a Sequential are called as in the whole.
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

static int forget_child(PyObject *self, PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  if (!text) return -1;
  EXT_TRY_INT(px_module_remove(ext_module(self), text));
  return PyDict_DelItem(children_of(self), name);
}

// Makes the modules of a list the children, numbered anew.
static int renumber(PyObject *self, PyObject *modules) {
  EXT_OWNED *names = PyDict_Keys(children_of(self));
  for (Py_ssize_t i = 0; names && i < PyList_GET_SIZE(names); i++)
    if (forget_child(self, PyList_GET_ITEM(names, i)) < 0) return -1;
  for (Py_ssize_t i = 0; names && i < PyList_GET_SIZE(modules); i++) {
    char name[24];
    snprintf(name, sizeof name, "%zd", i);
    if (ext_module_put_child(self, name, PyList_GET_ITEM(modules, i)) < 0) return -1;
  }
  return names ? 0 : -1;
}

// del m[1], del m[1:]: what follows moves up.
static int remove_at(PyObject *self, PyObject *index) {
  EXT_OWNED *name = PySlice_Check(index) ? Py_NewRef(Py_None) : name_at(self, index);
  EXT_OWNED *modules = name ? PyDict_Values(children_of(self)) : NULL;
  if (!modules || PyObject_DelItem(modules, index) < 0) return -1;
  return renumber(self, modules);
}

static int assign(PyObject *self, PyObject *index, PyObject *value) {
  if (!value && !is_dict(self)) return remove_at(self, index);
  EXT_OWNED *name = is_dict(self) ? Py_NewRef(index) : name_at(self, index);
  const char *text = name ? PyUnicode_AsUTF8(name) : NULL;
  if (!text) return -1;
  return value ? ext_module_put_child(self, text, value) : forget_child(self, name);
}

PyMappingMethods ext_container_mapping = {
    .mp_length = length, .mp_subscript = subscript, .mp_ass_subscript = assign};

PyObject *ext_container_iterate(PyObject *self) {
  EXT_OWNED *items =
      is_dict(self) ? PyDict_Keys(children_of(self)) : PyDict_Values(children_of(self));
  return items ? PyObject_GetIter(items) : NULL;
}

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

static PyObject *insert(PyObject *self, PyObject *args) {
  Py_ssize_t at;
  PyObject *child;
  if (!PyArg_ParseTuple(args, "nO", &at, &child)) return NULL;
  EXT_OWNED *values = PyDict_Values(children_of(self));
  if (!ext_is_module(child))
    EXT_FAIL(PyExc_TypeError, "%s is not a Module subclass", ext_type_name(child));
  if (!values || PyList_Insert(values, at, child) < 0 || renumber(self, values) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *keys(PyObject *self, PyObject *unused) { return PyDict_Keys(children_of(self)); }
static PyObject *values(PyObject *self, PyObject *unused) {
  return PyDict_Values(children_of(self));
}
static PyObject *items(PyObject *self, PyObject *unused) { return PyDict_Items(children_of(self)); }

static PyObject *update(PyObject *self, PyObject *mapping) {
  EXT_OWNED *pairs = PyMapping_Items(mapping);
  for (Py_ssize_t i = 0; pairs && i < PyList_GET_SIZE(pairs); i++) {
    PyObject *pair = PyList_GET_ITEM(pairs, i);
    if (assign(self, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1)) < 0) return NULL;
  }
  if (!pairs) return NULL;
  Py_RETURN_NONE;
}

static PyObject *pop(PyObject *self, PyObject *key) {
  PyObject *child = subscript(self, key);
  if (child && assign(self, key, NULL) < 0) Py_CLEAR(child);
  return child;
}

PySequenceMethods ext_container_sequence = {
    .sq_length = length, .sq_contains = contains, .sq_inplace_concat = extend};

PyMethodDef ext_sequential_methods[] = {{"append", append, METH_O, NULL},
                                        {"extend", extend, METH_O, NULL},
                                        {"insert", insert, METH_VARARGS, NULL},
                                        {"pop", pop, METH_O, NULL},
                                        {NULL, NULL, 0, NULL}};
PyMethodDef ext_module_list_methods[] = {{"append", append, METH_O, NULL},
                                         {"extend", extend, METH_O, NULL},
                                         {"insert", insert, METH_VARARGS, NULL},
                                         {"pop", pop, METH_O, NULL},
                                         {NULL, NULL, 0, NULL}};
PyMethodDef ext_module_dict_methods[] = {
    {"keys", keys, METH_NOARGS, NULL},   {"values", values, METH_NOARGS, NULL},
    {"items", items, METH_NOARGS, NULL}, {"update", update, METH_O, NULL},
    {"pop", pop, METH_O, NULL},          {NULL, NULL, 0, NULL}};
