// SPDX-License-Identifier: Apache-2.0
// Conversions of Python values to C values. They raise Python's own exceptions, or TypeError "must
// be int, not str" for a wrong type. The argument binder (signature.c) adds the names of function
// and argument.
#include "bind/compiled.h"
#include "bind/ext.h"

#include <string.h>

PyObject *ext_tuple(int count, const int64_t *values, int64_t factor) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++)
    PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(values[i] * factor));
  return tuple;
}

PyObject *ext_tuple_of(ext_varargs rest) {
  PyObject *tuple = PyTuple_New(rest.count);
  for (Py_ssize_t i = 0; tuple && i < rest.count; i++)
    PyTuple_SET_ITEM(tuple, i, Py_NewRef(rest.items[i]));
  return tuple;
}

PyObject *ext_kwargs_of(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  EXT_OWNED *dict = PyDict_New();
  for (Py_ssize_t i = 0; dict && kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) return NULL;
  return ext_moved(&dict);
}

// Keyword arguments of a mapping other than a dict.
static PyObject *dict_of_mapping(PyObject *function, PyObject *mapping) {
  PyObject *dict = PyDict_New();
  if (!dict || PyDict_Update(dict, mapping) == 0) return dict;
  Py_DECREF(dict);
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
  PyErr_Clear();
  EXT_OWNED *name = PyObject_Repr(function);
  if (!name) return NULL;
  EXT_FAIL(PyExc_TypeError, "%U argument after ** must be a mapping, not %s", name,
           ext_type_name(mapping));
}

PyObject *ext_call_from(const char *module, const char *name, const char *format, ...) {
  va_list list;
  va_start(list, format);
  EXT_OWNED *args = Py_VaBuildValue(format, list);
  va_end(list);
  EXT_OWNED *function = args ? ext_import(module, name) : NULL;
  return function ? PyObject_CallObject(function, args) : NULL;
}
int ext_setattr_new(PyObject *object, const char *name, PyObject *value_take) {
  EXT_OWNED *value = value_take;
  return value ? PyObject_SetAttrString(object, name, value) : -1;
}

PyObject *ext_apply(PyObject *function, PyObject *args, PyObject *kwargs) {
  EXT_OWNED *list = args ? PySequence_Tuple(args) : PyTuple_New(0);
  if (!list || ext_is_none(kwargs)) return list ? PyObject_Call(function, list, NULL) : NULL;
  if (PyDict_Check(kwargs)) return PyObject_Call(function, list, kwargs);
  EXT_OWNED *dict = dict_of_mapping(function, kwargs);
  return dict ? PyObject_Call(function, list, dict) : NULL;
}

int ext_to_bool(PyObject *object, bool fallback) {
  if (!object || object == Py_None) return fallback;
  if (object == Py_True) return 1;
  if (object == Py_False) return 0;
  return PyObject_IsTrue(object);
}

static bool is_numpy_scalar(PyObject *object) {
  const char *name = Py_TYPE(object)->tp_name;
  return !strncmp(name, "numpy.", 6) && PyObject_HasAttrString(object, "item") &&
         !PyObject_HasAttrString(object, "__array_finalize__");  // which arrays have
}

bool ext_is_number(PyObject *object) {
  return PyFloat_Check(object) || PyLong_Check(object) || is_numpy_scalar(object);
}

bool ext_is_complex(PyObject *object) {
  return PyComplex_Check(object) || !strcmp(Py_TYPE(object)->tp_name, "numpy.complex64");
}

bool ext_is_complex_tensor(PyObject *object) {
  return ext_is_tensor(object) && !px_tensor_ndim(ext_tensor(object)) &&
         px_dtype_is_complex(px_tensor_dtype(ext_tensor(object)));
}

PyObject *ext_real_number(PyObject *number, px_dtype dtype) {
  Py_complex value = PyComplex_AsCComplex(number);
  if (value.real == -1.0 && PyErr_Occurred()) return NULL;
  if (dtype == PX_BOOL) return PyBool_FromLong(value.real != 0 || value.imag != 0);
  if (value.imag != 0)
    EXT_FAIL(PyExc_RuntimeError, "value cannot be converted to type %s without overflow",
             px_dtype_about(dtype)->c_name);
  return PyFloat_FromDouble(value.real);
}

int ext_to_int(PyObject *object, int64_t *out) {
  if (PyLong_CheckExact(object)) {
    int over;
    *out = PyLong_AsLongLongAndOverflow(object, &over);
    if (over) EXT_FAIL_INT(PyExc_ValueError, "Overflow when unpacking long long");
    return 0;
  }
  PyObject *index = PyNumber_Index(object);
  if (!index) return -1;
  int overflow;
  *out = PyLong_AsLongLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow) EXT_FAIL_INT(PyExc_ValueError, "Overflow when unpacking long long");
  return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int ext_to_double(PyObject *object, double *out) {
  *out = PyFloat_AsDouble(object);
  return *out == -1.0 && PyErr_Occurred() ? -1 : 0;
}

// The item of a longdouble is a longdouble again.
static int scalar_of_item(PyObject *object, px_scalar *out) {
  EXT_OWNED *item = PyObject_CallMethod(object, "item", NULL);
  if (!item) return -1;
  if (!is_numpy_scalar(item)) return ext_to_scalar(item, out);
  double value;
  return ext_to_double(item, &value) < 0 ? -1 : (*out = px_float(value), 0);
}

px_status ext_item(px_scalar *out, const px_tensor *t) {
  bool waits = px_tensor_is_cuda(t) || px_tensor_is_pinned(t);
  if (ext_refuses_reads()) return ext_refuse_read("the value of a Tensor");
  return waits ? EXT_NOGIL(px_tensor_item(out, t)) : px_tensor_item(out, t);
}

// Numbers from 2**63 on are unsigned.
static int scalar_of_int(PyObject *object, px_scalar *out) {
  int overflow;
  int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (!overflow) return *out = px_int(value), 0;
  uint64_t number = PyLong_AsUnsignedLongLong(object);
  return PyErr_Occurred() ? -1 : (*out = px_uint(number), 0);
}

int ext_to_scalar(PyObject *object, px_scalar *out) {
  if (PyFloat_Check(object)) return *out = px_float(PyFloat_AS_DOUBLE(object)), 0;
  if (PyBool_Check(object)) return *out = px_bool(object == Py_True), 0;
  if (PyLong_Check(object)) return scalar_of_int(object, out);
  if (ext_is_tensor(object)) {
    return ext_zero(ext_item(out, ext_tensor(object)));
  }
  if (is_numpy_scalar(object)) return scalar_of_item(object, out);
  EXT_FAIL_INT(PyExc_TypeError, "must be Number, not %s", ext_type_name(object));
}

PyObject *ext_items(PyObject *object, const char *text) {
  return PyList_Check(object) ? PyList_AsTuple(object) : PySequence_Fast(object, text);
}

int ext_to_ints(PyObject *object, ext_ints *out) {
  out->count = 0;
  if (PyLong_Check(object) || (!PySequence_Check(object) && PyIndex_Check(object)) ||
      (ext_is_tensor(object) && px_tensor_ndim(ext_tensor(object)) == 0)) {
    out->count = 1;
    return ext_to_int(object, out->items);
  }
  EXT_OWNED *sequence = ext_items(object, "must be tuple of ints");
  if (!sequence) return -1;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
  if (count > EXT_LENGTH(out->items))
    EXT_FAIL_INT(PyExc_RuntimeError, "a tensor may have at most %d dimensions, got %zd",
                 PX_MAX_DIMS, count);
  for (Py_ssize_t i = 0; i < count; i++)
    if (ext_to_int(PySequence_Fast_GET_ITEM(sequence, i), &out->items[i]) < 0) return -1;
  out->count = (int)count;
  return 0;
}

px_tensor *ext_need_tensor(PyObject *object, const char *function, const char *argument) {
  if (object && ext_is_tensor(object)) return ext_tensor(object);
  PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be Tensor, not %s", function, argument,
               object ? ext_type_name(object) : "None");
  return NULL;
}

int ext_to_tensors(ext_tensors *out, PyObject *object, const char *function) {
  out->owner = ext_is_tensor(object) ? PyTuple_Pack(1, object)
                                     : ext_items(object, "expected a sequence of Tensors");
  if (!out->owner || ext_room_for_tensors(out, PySequence_Fast_GET_SIZE(out->owner)) < 0) return -1;
  for (Py_ssize_t i = 0; i < out->count; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(out->owner, i);
    if (item == Py_None) continue;
    if (!(out->items[i] = ext_need_tensor(item, function, "tensors"))) return -1;
  }
  return 0;
}

int ext_room_for_tensors(ext_tensors *out, Py_ssize_t count) {
  out->count = count;
  out->items = PyMem_Calloc((size_t)count + 1, sizeof *out->items);
  return out->items ? 0 : (PyErr_NoMemory(), -1);
}

int ext_take_tensors(ext_tensors *out, PyObject *sequence_take, const char *function,
                     const char *argument) {
  out->owner = sequence_take;
  if (!out->owner) return -1;
  out->count = PySequence_Fast_GET_SIZE(out->owner);
  out->items = PyMem_New(px_tensor *, (size_t)out->count);
  if (!out->items) return PyErr_NoMemory(), -1;
  for (Py_ssize_t i = 0; i < out->count; i++) {
    out->items[i] = ext_need_tensor(PySequence_Fast_GET_ITEM(out->owner, i), function, argument);
    if (!out->items[i]) return -1;
  }
  return 0;
}
void ext_tensors_end(ext_tensors *tensors) {
  PyMem_Free(tensors->items);
  Py_XDECREF(tensors->owner);
}

static int to_number(PyObject *object, void *out) { return ext_to_scalar(object, out); }
static int to_ints(PyObject *object, void *out) { return ext_to_ints(object, out); }
static int to_tensor(PyObject *object, void *out) {
  if (!ext_is_tensor(object))
    EXT_FAIL_INT(PyExc_TypeError, "must be Tensor, not %s", ext_type_name(object));
  *(px_tensor **)out = ext_tensor(object);
  return 0;
}
EXT_CONVERTS(EXT_KIND_NUMBER, to_number);
EXT_CONVERTS(EXT_KIND_INTS, to_ints);
EXT_CONVERTS(EXT_KIND_TENSOR, to_tensor);
