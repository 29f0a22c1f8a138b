// SPDX-License-Identifier: Apache-2.0
// torch.Size: a tuple of ints printed as torch.Size([2, 3]). Slices, sums and products are Sizes,
// too. Objects have the memory layout of tuples, so operations CPython optimizes for tuples
// (unpacking, hashing) stay fast; only operations creating a tuple have their own slots.
#include "bind/ext.h"

PyObject *ext_size(int ndim, const int64_t *sizes) {
  PyObject *size = PyTuple_Type.tp_alloc(&ext_SizeType, ndim);
  if (!size) return NULL;
  for (int i = 0; i < ndim; i++) {
    PyObject *item = PyLong_FromLongLong(sizes[i]);
    if (!item) {
      Py_DECREF(size);
      return NULL;
    }
    PyTuple_SET_ITEM(size, i, item);
  }
  return size;
}

static PyObject *size_from_tuple(PyObject *tuple_take) {
  if (!tuple_take || !PyTuple_Check(tuple_take)) return tuple_take;
  Py_ssize_t count = PyTuple_GET_SIZE(tuple_take);
  PyObject *size = PyTuple_Type.tp_alloc(&ext_SizeType, count);
  for (Py_ssize_t i = 0; size && i < count; i++)
    PyTuple_SET_ITEM(size, i, Py_NewRef(PyTuple_GET_ITEM(tuple_take, i)));
  Py_DECREF(tuple_take);
  return size;
}

// Converts tensors and NumPy integers to ints: other code relies on exact ints. The tuple has just
// been created, so its items may be replaced.
static PyObject *size_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *self = PyTuple_Type.tp_new(type, args, kwargs);
  if (!self) return NULL;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); i++) {
    PyObject *item = PyTuple_GET_ITEM(self, i);
    if (PyLong_Check(item)) continue;
    PyObject *number = ext_is_tensor(item) || PyIndex_Check(item) ? PyNumber_Index(item) : NULL;
    if (number) {
      PyTuple_SET_ITEM(self, i, number);
      Py_DECREF(item);
      continue;
    }
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "torch.Size() takes an iterable of 'int' (item %zd is '%s')", i,
                 Py_TYPE(item)->tp_name);
    Py_DECREF(self);
    return NULL;
  }
  return self;
}

static PyObject *size_repr(PyObject *self) {
  EXT_OWNED *list = PySequence_List(self);
  return list ? PyUnicode_FromFormat("torch.Size(%R)", list) : NULL;
}

static PyObject *size_concat(PyObject *a, PyObject *b) {
  if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
  return size_from_tuple(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
static PyObject *size_repeat(PyObject *self, Py_ssize_t n) {
  return size_from_tuple(PyTuple_Type.tp_as_sequence->sq_repeat(self, n));
}
static PyObject *size_subscript(PyObject *self, PyObject *index) {
  PyObject *item = PyTuple_Type.tp_as_mapping->mp_subscript(self, index);
  return PySlice_Check(index) ? size_from_tuple(item) : item;
}

static PySequenceMethods sequence = {.sq_concat = size_concat, .sq_repeat = size_repeat};
static PyMappingMethods mapping = {.mp_subscript = size_subscript};
EXT_SHARED_TYPE(
    size, ext_SizeType, "torch.Size", "Size", ext_inherited, EXT_BASETYPE,
    "The size of a tensor: a tuple of ints. Slices, sums and products are Sizes, too.\n\n"
    ">>> torch.zeros(2, 3).shape\n"
    "torch.Size([2, 3])\n"
    ">>> torch.zeros(2, 3).shape[1:] + (4,)\n"
    "torch.Size([3, 4])\n",
    .tp_base = &PyTuple_Type, .tp_new = size_new, .tp_repr = size_repr, .tp_as_sequence = &sequence,
    .tp_as_mapping = &mapping);

EXT_METHOD0(size, numel, "int", "Returns the number of elements of a tensor of this size.") {
  long long n = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); i++)
    n *= PyLong_AsLongLong(PyTuple_GET_ITEM(self, i));
  return PyErr_Occurred() ? NULL : PyLong_FromLongLong(n);
}
EXT_METHOD0(size, __reduce__, "tuple", NULL) {
  return Py_BuildValue("N(N)", ext_extension_attr("_size_of"), PySequence_List(self));
}
EXT_FUNCTION(torch, _size_of, "(sizes: list[int]) -> Size", "Rebuilds a pickled Size.") {
  EXT_ARGS(PyObject *, sizes);
  return PyObject_CallOneArg((PyObject *)&ext_SizeType, sizes);
}
