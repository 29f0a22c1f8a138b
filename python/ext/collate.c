// SPDX-License-Identifier: Apache-2.0
// default_collate, and pinning of batches: both follow the structure of what they are given.
#include <string.h>

#include "data.h"

static PyObject *stack(PyObject *items) {
  PyObject *function = ext_op_object('f', "stack");
  return function ? PyObject_CallFunction(function, "Oi", items, 0) : NULL;
}

static bool is_array(PyObject *object) {
  return !strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray");
}

// Tensors of the items' arrays, stacked.
static PyObject *stack_arrays(PyObject *items) {
  EXT_OWNED *tensors = PyList_New(0);
  for (Py_ssize_t i = 0; tensors && i < PyList_GET_SIZE(items); i++) {
    EXT_OWNED *tensor =
        ext_wrap(ext_tensor_from(PyList_GET_ITEM(items, i), PX_DTYPE_NONE, px_cpu()));
    if (!tensor || PyErr_Occurred() || PyList_Append(tensors, tensor) < 0) return NULL;
  }
  return tensors ? stack(tensors) : NULL;
}

// Whether it is one of collections.abc: a kind that a program's own classes may be.
static int is_kind(PyObject *object, const char *kind) {
  if (PyDict_Check(object) || PyTuple_Check(object) || PyList_Check(object))
    return PyDict_Check(object) == !strcmp(kind, "Mapping");
  EXT_OWNED *module = PyImport_ImportModule("collections.abc");
  EXT_OWNED *abstract = module ? PyObject_GetAttrString(module, kind) : NULL;
  return abstract ? PyObject_IsInstance(object, abstract) : -1;
}

static PyObject *numbers(PyObject *items, px_dtype dtype) {
  px_tensor *made = ext_tensor_from(items, dtype, px_cpu());
  return made ? ext_wrap(made) : NULL;
}

// The items' values at one key or place, collated.
static PyObject *column(PyObject *items, PyObject *key) {
  EXT_OWNED *values = PyList_New(0);
  for (Py_ssize_t i = 0; values && i < PyList_GET_SIZE(items); i++) {
    EXT_OWNED *value = PyObject_GetItem(PyList_GET_ITEM(items, i), key);
    if (!value || PyList_Append(values, value) < 0) return NULL;
  }
  return values ? ext_collate(values) : NULL;
}

// The dict, as a mapping of the given one's type.
static PyObject *as_type_of(PyObject *given, PyObject **dict) {
  if (PyDict_CheckExact(given)) return ext_moved(dict);
  return PyObject_CallOneArg((PyObject *)Py_TYPE(given), *dict);
}

static PyObject *collate_dict(PyObject *items) {
  EXT_OWNED *keys = PyMapping_Keys(PyList_GET_ITEM(items, 0));
  EXT_OWNED *dict = PyDict_New();
  for (Py_ssize_t i = 0; keys && dict && i < PyList_GET_SIZE(keys); i++) {
    EXT_OWNED *value = column(items, PyList_GET_ITEM(keys, i));
    if (!value || PyDict_SetItem(dict, PyList_GET_ITEM(keys, i), value) < 0) return NULL;
  }
  return keys && dict ? as_type_of(PyList_GET_ITEM(items, 0), &dict) : NULL;
}

// The k-th elements; texts stay in the tuple in which PyTorch hands them on.
static PyObject *collate_place(PyObject *items, Py_ssize_t k) {
  EXT_OWNED *key = PyLong_FromSsize_t(k);
  EXT_OWNED *value = key ? column(items, key) : NULL;
  bool texts =
      value && PyList_CheckExact(value) && PyList_GET_SIZE(value) &&
      (PyUnicode_Check(PyList_GET_ITEM(value, 0)) || PyBytes_Check(PyList_GET_ITEM(value, 0)));
  return texts ? PyList_AsTuple(value) : ext_moved(&value);
}

static PyObject *collate_sequence(PyObject *items) {
  PyObject *first = PyList_GET_ITEM(items, 0);
  Py_ssize_t width = PySequence_Size(first);
  for (Py_ssize_t i = 1; i < PyList_GET_SIZE(items); i++)
    if (PySequence_Size(PyList_GET_ITEM(items, i)) != width)
      EXT_FAIL(PyExc_RuntimeError, "each element in list of batch should be of equal size");
  EXT_OWNED *list = PyList_New(0);
  for (Py_ssize_t k = 0; list && k < width; k++) {
    EXT_OWNED *value = collate_place(items, k);
    if (!value || PyList_Append(list, value) < 0) return NULL;
  }
  // Tuples become lists; named ones keep their type.
  return list && ext_is_named_tuple(first) ? ext_rebuild(first, list) : ext_moved(&list);
}

PyObject *ext_collate(PyObject *items) {
  if (!PyList_GET_SIZE(items)) EXT_FAIL(PyExc_IndexError, "list index out of range");
  PyObject *first = PyList_GET_ITEM(items, 0);
  if (ext_is_tensor(first)) return stack(items);
  if (is_array(first)) return stack_arrays(items);
  if (PyFloat_CheckExact(first)) return numbers(items, PX_FLOAT64);
  if (PyLong_Check(first)) return numbers(items, PX_DTYPE_NONE);
  if (ext_is_number(first)) return stack_arrays(items);
  if (PyUnicode_Check(first) || PyBytes_Check(first)) return Py_NewRef(items);
  int mapping = is_kind(first, "Mapping"), sequence = is_kind(first, "Sequence");
  if (mapping < 0 || sequence < 0) return NULL;
  if (mapping) return collate_dict(items);
  if (sequence) return collate_sequence(items);
  EXT_FAIL(PyExc_TypeError,
           "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
           "found %R",
           (PyObject *)Py_TYPE(first));
}

// ---- pinning

static PyObject *pin_items(PyObject *batch) {
  EXT_OWNED *list = PySequence_List(batch);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    PyObject *pinned = ext_pin_batch(PyList_GET_ITEM(list, i));
    if (!pinned || PyList_SetItem(list, i, pinned) < 0) return NULL;
  }
  return list ? ext_rebuild(batch, list) : NULL;
}

static PyObject *pin_dict(PyObject *batch) {
  EXT_OWNED *keys = PyMapping_Keys(batch);
  EXT_OWNED *dict = keys ? PyDict_New() : NULL;
  for (Py_ssize_t i = 0; dict && i < PyList_GET_SIZE(keys); i++) {
    EXT_OWNED *value = PyObject_GetItem(batch, PyList_GET_ITEM(keys, i));
    EXT_OWNED *pinned = value ? ext_pin_batch(value) : NULL;
    if (!pinned || PyDict_SetItem(dict, PyList_GET_ITEM(keys, i), pinned) < 0) return NULL;
  }
  return dict ? as_type_of(batch, &dict) : NULL;
}

PyObject *ext_pin_batch(PyObject *batch) {
  if (ext_is_tensor(batch)) return PyObject_CallMethod(batch, "pin_memory", NULL);
  if (PyUnicode_Check(batch) || PyBytes_Check(batch)) return Py_NewRef(batch);
  int mapping = is_kind(batch, "Mapping");
  if (mapping) return mapping < 0 ? NULL : pin_dict(batch);
  if (PyTuple_Check(batch) || PyList_Check(batch)) return pin_items(batch);
  if (PyObject_HasAttrString(batch, "pin_memory"))
    return PyObject_CallMethod(batch, "pin_memory", NULL);
  return Py_NewRef(batch);
}

static PyObject *default_collate(PyObject *self, PyObject *batch) {
  EXT_OWNED *items = PySequence_List(batch);
  return items ? ext_collate(items) : NULL;
}
static PyObject *default_convert(PyObject *self, PyObject *item) {
  if (is_array(item)) return numbers(item, PX_DTYPE_NONE);
  return Py_NewRef(item);
}
static PyObject *pin(PyObject *self, PyObject *batch) { return ext_pin_batch(batch); }
static PyMethodDef functions[] = {{"default_collate", default_collate, METH_O, NULL},
                                  {"default_convert", default_convert, METH_O, NULL},
                                  {"_pin_memory", pin, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int ext_init_collate(PyObject *data) { return PyModule_AddFunctions(data, functions); }
