// SPDX-License-Identifier: Apache-2.0
// Tensors nested in lists, tuples and dicts of arguments and results.
#include "bind/ext.h"

PyObject *ext_sequence_like(PyObject *model, PyObject *items) {
  PyObject *type = (PyObject *)Py_TYPE(model);
  if (!PyObject_HasAttrString(model, "_fields")) return PyObject_CallOneArg(type, items);
  EXT_OWNED *fields = PySequence_Tuple(items);
  return fields ? PyObject_CallObject(type, fields) : NULL;
}

// ---- replacement

static PyObject *map_items(PyObject *sequence, ext_mapping *fn, void *context) {
  EXT_OWNED *list = PySequence_List(sequence);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    PyObject *item = ext_map_tensors(PyList_GET_ITEM(list, i), fn, context);
    if (!item) return NULL;
    PyList_SetItem(list, i, item);
  }
  return list ? ext_sequence_like(sequence, list) : NULL;
}

static PyObject *map_dict(PyObject *dict, ext_mapping *fn, void *context) {
  EXT_OWNED *copy = PyDict_New();
  PyObject *key, *value;
  for (Py_ssize_t at = 0; copy && PyDict_Next(dict, &at, &key, &value);) {
    EXT_OWNED *kept_key = Py_NewRef(key);  // `fn` may change the dict
    EXT_OWNED *kept_value = Py_NewRef(value);
    EXT_OWNED *item = ext_map_tensors(kept_value, fn, context);
    if (!item || PyDict_SetItem(copy, kept_key, item) < 0) return NULL;
  }
  return ext_moved(&copy);
}

PyObject *ext_map_tensors(PyObject *value, ext_mapping *fn, void *context) {
  if (ext_is_tensor(value)) return fn(value, context);
  bool list = PyList_Check(value) || PyTuple_Check(value);
  if (!list && !PyDict_Check(value)) return Py_NewRef(value);
  if (Py_EnterRecursiveCall(" while looking for tensors")) return NULL;
  PyObject *mapped = list ? map_items(value, fn, context) : map_dict(value, fn, context);
  Py_LeaveRecursiveCall();
  return mapped;
}

static PyObject *cast_one(PyObject *tensor, void *dtype) {
  bool fits = px_dtype_is_float(px_tensor_dtype(ext_tensor(tensor)));
  return fits ? ext_convert(tensor, PX_DEVICE_NONE, *(px_dtype *)dtype, false, false)
              : Py_NewRef(tensor);
}
PyObject *ext_cast_tensors(PyObject *value, px_dtype dtype) {
  return ext_map_tensors(value, cast_one, &dtype);
}

// ---- collection

static int collect(PyObject *list, PyObject *object);

static int collect_items(PyObject *list, PyObject *items_take) {
  EXT_OWNED *items = items_take;
  for (Py_ssize_t i = 0; items && i < PySequence_Fast_GET_SIZE(items); i++)
    if (collect(list, PySequence_Fast_GET_ITEM(items, i)) < 0) return -1;
  return items ? 0 : -1;
}

static int collect_fields(PyObject *list, PyObject *object) {
  EXT_OWNED *fields = PyObject_GetAttrString(object, "__dataclass_fields__");
  EXT_OWNED *names = fields ? PySequence_List(fields) : NULL;
  if (!names) return PyErr_Clear(), 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); i++) {
    EXT_OWNED *value = PyObject_GetAttr(object, PyList_GET_ITEM(names, i));
    if (!value || collect(list, value) < 0) return -1;
  }
  return 0;
}

static int collect_within(PyObject *list, PyObject *object) {
  if (ext_is_tensor(object)) return PyList_Append(list, object);
  if (PyList_Check(object) || PyTuple_Check(object))
    return collect_items(list, PySequence_List(object));
  if (PyDict_Check(object)) return collect_items(list, PyDict_Values(object));
  return PyType_Check(object) ? 0 : collect_fields(list, object);
}

static int collect(PyObject *list, PyObject *object) {
  if (Py_EnterRecursiveCall(" while looking for tensors in the result of a forward pass"))
    return -1;
  int bad = collect_within(list, object);
  Py_LeaveRecursiveCall();
  return bad;
}

PyObject *ext_collect_tensors(PyObject *values) {
  EXT_OWNED *list = PyList_New(0);
  return list && collect(list, values ? values : Py_None) == 0 ? ext_moved(&list) : NULL;
}
