// SPDX-License-Identifier: Apache-2.0
// Conversion of core values, used for attributes and arguments of modules, to Python and back.
#include "nn/nn.h"

PyObject *ext_from_value(px_value value) {
  switch (value.kind) {
    case PX_ARG_BOOL:
      return PyBool_FromLong((long)value.v.i);
    case PX_ARG_INT:
      return PyLong_FromLongLong(value.v.i);
    case PX_ARG_FLOAT:
      return PyFloat_FromDouble(value.v.f);
    case PX_ARG_SCALAR:
      return ext_scalar(px_value_scalar(value));
    case PX_ARG_TEXT:
      return ext_str(value.v.text);
    case PX_ARG_INTS:
      if (value.category == 'i') return PyLong_FromLongLong(value.v.ints[0]);
      break;
    default:
      Py_RETURN_NONE;
  }
  PyObject *tuple = PyTuple_New(value.n);
  for (int i = 0; tuple && i < value.n; i++) {
    bool own = value.v.ints[i] == PX_OWN_SIZE;
    PyTuple_SET_ITEM(tuple, i, own ? Py_NewRef(Py_None) : PyLong_FromLongLong(value.v.ints[i]));
  }
  return tuple;
}

static int value_of_number(PyObject *object, uint8_t kind, px_value *out) {
  double real;
  int64_t whole;
  if (kind == PX_ARG_FLOAT) {
    if (ext_to_double(object, &real) < 0) return -1;
    *out = PX_F(real);
    return 1;
  }
  if (ext_to_int(object, &whole) < 0) return -1;
  *out = kind == PX_ARG_BOOL ? PX_B(whole != 0) : PX_I(whole);
  return 1;
}

static int value_of_text(PyObject *object, px_value *out) {
  const char *text = ext_text(object);
  *out = PX_TX(text);
  return text ? 1 : -1;
}

int ext_to_value(PyObject *object, uint8_t kind, px_value *out, ext_ints *ints) {
  px_dtype dtype;
  px_device device;
  int truth;
  *out = PX_NONE();
  if (ext_is_none(object)) return 1;
  switch (kind) {
    case PX_ARG_BOOL:
      truth = PyObject_IsTrue(object);
      *out = PX_B(truth == 1);
      return truth < 0 ? -1 : 1;
    case PX_ARG_INT:
    case PX_ARG_FLOAT:
      return value_of_number(object, kind, out);
    case PX_ARG_INTS:
      if (PyUnicode_Check(object)) return value_of_text(object, out);
      if (ext_to_ints(object, ints) < 0) return -1;
      *out = PX_IS(ints->items, ints->count);
      if (PyLong_Check(object)) out->category = 'i';
      return 1;
    case PX_ARG_TEXT:
      return PyUnicode_Check(object) ? value_of_text(object, out) : 0;
    case PX_ARG_TENSOR:
      if (!ext_is_tensor(object)) return 0;
      *out = PX_T(ext_tensor(object));
      return 1;
    case PX_ARG_DTYPE:
      if (ext_to_dtype(object, &dtype) < 0) return -1;
      *out = PX_DT(dtype);
      return 1;
    case PX_ARG_DEVICE:
      if (ext_to_device(object, &device) < 0) return -1;
      *out = PX_DV(device);
      return 1;
    default:
      return 0;
  }
}
