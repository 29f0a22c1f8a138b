// SPDX-License-Identifier: Apache-2.0
// torch.tensor and as_tensor: tensors from nested sequences, numbers, arrays and tensors. Sequences
// are read twice, for sizes and dtype and for the values. Both passes validate: a user-defined
// sequence may change in between.
#include "bind/ext.h"

#include <string.h>

// ---- nested sequences
static bool is_sequence(PyObject *object) {
  if (PyList_Check(object) || PyTuple_Check(object)) return true;
  if (ext_is_tensor(object)) return false;  // a scalar
  return !PyUnicode_Check(object) && !PyBytes_Check(object) && PySequence_Check(object) &&
         !ext_is_number(object) && PySequence_Size(object) >= 0;
}

// Sizes, from the first element of each level.
static int shape_of(PyObject *data, ext_ints *sizes) {
  EXT_OWNED *at = Py_NewRef(data);
  sizes->count = 0;
  while (is_sequence(at)) {
    Py_ssize_t length = PySequence_Size(at);
    if (length < 0) return -1;
    if (sizes->count == PX_MAX_DIMS)
      EXT_FAIL_INT(PyExc_ValueError, "tensors have at most %d dimensions, but the data has more",
                   PX_MAX_DIMS);
    sizes->items[sizes->count++] = length;
    if (length == 0) break;
    PyObject *first = PySequence_GetItem(at, 0);
    if (!first) return -1;
    Py_SETREF(at, first);
  }
  PyErr_Clear();  // of a sequence-like object without a length
  if (PyUnicode_Check(at) || PyBytes_Check(at)) {
    if (sizes->count) EXT_FAIL_INT(PyExc_ValueError, "too many dimensions '%s'", ext_type_name(at));
    EXT_FAIL_INT(PyExc_TypeError, "new(): invalid data type '%s'", ext_type_name(at));
  }
  return 0;
}

// Exact floats first: the most frequent type.
static int leaf_dtype(PyObject *leaf, px_dtype *out) {
  if (PyFloat_CheckExact(leaf))
    *out = px_dtype_default();
  else if (PyBool_Check(leaf))
    *out = PX_BOOL;
  else if (PyLong_Check(leaf))
    *out = PX_INT64;
  else if (ext_is_tensor(leaf))
    *out = px_tensor_dtype(ext_tensor(leaf));
  else if (ext_is_array(leaf)) {
    ext_array array;
    if (ext_array_read(leaf, &array) < 0) return -1;
    *out = array.dtype;
  } else if (PyFloat_Check(leaf))
    *out = px_dtype_default();
  else if (ext_is_complex(leaf))
    *out = px_dtype_to_complex(px_dtype_default());
  else
    EXT_FAIL_INT(PyExc_RuntimeError, "Could not infer dtype of %s", ext_type_name(leaf));
  return 0;
}

static int infer_dtype(PyObject *data, int depth, px_dtype *dtype) {
  if (depth == 0) {
    px_dtype leaf;
    if (leaf_dtype(data, &leaf) < 0) return -1;
    if (*dtype == PX_DTYPE_NONE) *dtype = leaf;
    if (*dtype != leaf) EXT_TRY_INT(px_dtype_promote_or_fail(dtype, *dtype, leaf));
    return 0;
  }
  if (ext_is_tensor(data) || ext_is_array(data)) return infer_dtype(data, 0, dtype);
  EXT_OWNED *items = PySequence_Fast(data, "");
  if (!items) return PyErr_Clear(), 0;  // reported when values are stored
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
    EXT_OWNED *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
    if (i % EXT_SIGNAL_CHECK_INTERVAL == EXT_SIGNAL_CHECK_INTERVAL - 1 && PyErr_CheckSignals() < 0)
      return -1;
    if (infer_dtype(item, depth - 1, dtype) < 0) return -1;
  }
  return 0;
}

typedef struct fill_state {
  char *at;
  px_dtype dtype;
  const ext_ints *sizes;
  px_device device;  // device of the result
  bool given;        // explicit; otherwise device scalars determine it
} fill_state;

// Device scalars move the result to their device, as in any op. Scalars of two devices are an
// error.
static int join_device(fill_state *f, px_device device) {
  char here[PX_DEVICE_TEXT], there[PX_DEVICE_TEXT];
  if (f->given || device.type != PX_CUDA) return 0;
  EXT_TRY_INT(px_device_resolve(&f->device, f->device));  // a default may have no index
  if (px_device_equal(f->device, device)) return 0;
  if (f->device.type == PX_CUDA)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Expected all tensors to be on the same device, but found at least two devices, "
                 "%s and %s!",
                 px_device_format(f->device, here), px_device_format(device, there));
  f->device = device;
  return 0;
}

static int check_range(px_scalar scalar, px_dtype dtype) {
  if (px_dtype_is_float(dtype) || px_dtype_is_complex(dtype) || px_scalar_fits(scalar, dtype))
    return 0;
  if (scalar.kind == 'u') EXT_FAIL_INT(PyExc_ValueError, "Overflow when unpacking long long");
  EXT_FAIL_INT(PyExc_RuntimeError, "value cannot be converted to type %s without overflow",
               px_dtype_name(dtype));
}

static int item_of_array(PyObject *array, px_scalar *out) {
  PX_SCOPED(px_tensor) shared = ext_tensor_from_array(array);
  if (!shared) return -1;
  return ext_zero(px_tensor_item(out, shared));
}

// Stores a complex number or a complex tensor.
static int store_complex(fill_state *f, PyObject *leaf) {
  px_complex number;
  if (ext_is_tensor(leaf)) {
    if (join_device(f, px_tensor_device(ext_tensor(leaf))) < 0) return -1;
    EXT_TRY_INT(EXT_NOGIL(px_tensor_item_complex(&number, ext_tensor(leaf))));
  } else {
    Py_complex value = PyComplex_AsCComplex(leaf);
    if (value.real == -1.0 && PyErr_Occurred()) return -1;
    number = (px_complex){value.real, value.imag};
  }
  px_complex_store(number, f->dtype, f->at);
  f->at += px_dtype_size(f->dtype);
  return 0;
}

// An integer using all 64 bits.
static int read_unsigned(PyObject *leaf, px_scalar *out) {
  unsigned long long value = PyLong_AsUnsignedLongLong(leaf);
  if (value == (unsigned long long)-1 && PyErr_Occurred()) return -1;
  *out = px_uint(value);
  return 0;
}

// An integer beyond 64 bits is a float for floating-point and complex dtypes.
static int read_integer(PyObject *leaf, px_dtype dtype, px_scalar *out) {
  double value;
  if (ext_to_scalar(leaf, out) == 0) return 0;
  if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
  PyErr_Clear();
  if (dtype == PX_BOOL) return *out = px_bool(true), 0;
  if (!px_dtype_is_float(dtype) && !px_dtype_is_complex(dtype))
    EXT_FAIL_INT(PyExc_ValueError, "Overflow when unpacking long long");
  return ext_to_double(leaf, &value) < 0 ? -1 : (*out = px_float(value), 0);
}

// A complex number for a real dtype.
static int read_complex(PyObject *leaf, px_dtype dtype, px_scalar *out) {
  Py_complex value = PyComplex_AsCComplex(leaf);
  if (value.real == -1.0 && PyErr_Occurred()) return -1;
  if (dtype == PX_BOOL) return *out = px_bool(value.real != 0 || value.imag != 0), 0;
  EXT_FAIL_INT(PyExc_TypeError,
               px_dtype_is_integer(dtype) ? "'%s' object cannot be interpreted as an integer"
                                          : "must be real number, not %s",
               ext_type_name(leaf));
}

static int store_leaf(fill_state *f, PyObject *leaf) {
  px_scalar scalar;
  if (px_dtype_is_complex(f->dtype) &&
      (ext_is_complex(leaf) || (ext_is_array(leaf) && ext_is_number(leaf)) ||
       (ext_is_tensor(leaf) && px_tensor_numel(ext_tensor(leaf)) == 1)))
    return store_complex(f, leaf);
  if (PyFloat_CheckExact(leaf)) {
    scalar = px_float(PyFloat_AS_DOUBLE(leaf));
  } else if (ext_is_tensor(leaf)) {
    if (px_tensor_numel(ext_tensor(leaf)) != 1)
      EXT_FAIL_INT(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
    if (join_device(f, px_tensor_device(ext_tensor(leaf))) < 0) return -1;
    EXT_TRY_INT(ext_item(&scalar, ext_tensor(leaf)));
  } else if (ext_is_array(leaf) && !ext_is_number(leaf)) {
    if (item_of_array(leaf, &scalar) < 0) return -1;
  } else if (f->dtype == PX_UINT64 && PyLong_CheckExact(leaf)) {
    if (read_unsigned(leaf, &scalar) < 0) return -1;
  } else if (ext_is_complex(leaf)) {
    if (read_complex(leaf, f->dtype, &scalar) < 0) return -1;
  } else if (PyLong_Check(leaf) && !PyBool_Check(leaf)) {
    if (read_integer(leaf, f->dtype, &scalar) < 0) return -1;
  } else if (ext_to_scalar(leaf, &scalar) < 0) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
    EXT_FAIL_INT(PyExc_TypeError, "must be real number, not %s", ext_type_name(leaf));
  }
  if (check_range(scalar, f->dtype) < 0) return -1;
  px_scalar_store(scalar, f->dtype, f->at);
  f->at += px_dtype_size(f->dtype);
  return 0;
}

static int store(fill_state *f, PyObject *data, int dim) {
  if (dim == f->sizes->count) return store_leaf(f, data);
  if (!PySequence_Check(data) || PyUnicode_Check(data))
    EXT_FAIL_INT(PyExc_TypeError, "'%s' object is not a sequence", ext_type_name(data));
  EXT_OWNED *items = PySequence_Fast(data, "not a sequence");
  if (!items) return -1;
  Py_ssize_t length = PySequence_Fast_GET_SIZE(items);
  if (length != f->sizes->items[dim])
    EXT_FAIL_INT(PyExc_ValueError, "expected sequence of length %lld at dim %d (got %zd)",
                 (long long)f->sizes->items[dim], dim, length);
  for (Py_ssize_t i = 0; i < length; i++) {
    if (PySequence_Fast_GET_SIZE(items) != length)  // modified by the code of an item
      EXT_FAIL_INT(PyExc_RuntimeError, "list changed size during iteration");
    EXT_OWNED *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, i));
    if (i % EXT_SIGNAL_CHECK_INTERVAL == EXT_SIGNAL_CHECK_INTERVAL - 1 && PyErr_CheckSignals() < 0)
      return -1;
    if (store(f, item, dim + 1) < 0) return -1;
  }
  return 0;
}

static px_tensor *tensor_from_sequence(PyObject *data, px_dtype dtype, px_device device) {
  ext_ints sizes;
  if (shape_of(data, &sizes) < 0) return NULL;
  if (dtype == PX_DTYPE_NONE && infer_dtype(data, sizes.count, &dtype) < 0) return NULL;
  if (dtype == PX_DTYPE_NONE) dtype = px_dtype_default();
  size_t bytes = px_dtype_size(dtype);
  for (int i = 0; i < sizes.count; i++) bytes *= (size_t)sizes.items[i];
  char small[256], *memory = bytes <= sizeof small ? small : PyMem_Malloc(bytes);
  if (!memory) return PyErr_NoMemory(), NULL;
  fill_state f = {memory, dtype, &sizes, device, device.type >= 0};
  if (!f.given) f.device = px_device_default();
  px_tensor *made = NULL;
  int failed = store(&f, data, 0);
  px_status status = PX_OK;
  if (!failed)
    status =
        EXT_NOGIL(px_tensor_from_data(&made, memory, sizes.count, sizes.items, dtype, f.device));
  if (memory != small) PyMem_Free(memory);
  if (failed) return NULL;
  return status == PX_OK ? made : ext_raise();
}

// ---- other data
static px_tensor *copy_of(px_tensor *source, px_dtype dtype, px_device device) {
  PX_SCOPED(px_tensor) plain = NULL;
  if (px_tensor_detach(&plain, source) != PX_OK) return ext_raise();
  if (device.type < 0) device = px_tensor_device(source);
  if (dtype == PX_DTYPE_NONE) dtype = px_tensor_dtype(source);
  return ext_op_tensor(
      EXT_OP("_to_copy"), PX_CALL_NEW, 3,
      (ext_named[]){{"self", PX_T(plain)}, {"dtype", PX_DT(dtype)}, {"device", PX_DV(device)}});
}

// Data of other libraries stays on its device, or moves from the CPU to the default device.
static px_device device_for(const px_tensor *shared, px_device given) {
  if (given.type >= 0) return given;
  return px_tensor_is_cuda(shared) ? px_tensor_device(shared) : px_device_default();
}

px_tensor *ext_tensor_from(PyObject *data, px_dtype dtype, px_device device) {
  if (ext_is_tensor(data)) return copy_of(ext_tensor(data), dtype, device);
  if (ext_is_foreign(data)) {
    PX_SCOPED(px_tensor) shared = ext_tensor_sharing(data, false);
    return shared ? copy_of(shared, dtype, device_for(shared, device)) : NULL;
  }
  return tensor_from_sequence(data, dtype, device);
}

static PyObject *finish(px_tensor *made_take, bool requires_grad, bool pin) {
  PX_SCOPED(px_tensor) made = made_take;
  if (!made) return NULL;
  if (pin) {
    px_tensor *pinned = ext_pin(made);
    if (!pinned) return NULL;
    px_release(made);
    made = pinned;
  }
  if (requires_grad) EXT_TRY(px_dtype_check_grad(px_tensor_dtype(made)));
  if (requires_grad) EXT_TRY(px_tensor_set_requires_grad(made, true));
  return ext_wrap(PX_MOVE(made));
}

EXT_FUNCTION(
    torch, tensor,
    "(data: object, *, dtype: dtype | None = None, device: Device | None = None, "
    "requires_grad: bool = False, pin_memory: bool = False, names: Sequence[str] | None = "
    "None, layout: layout | None = None) -> Tensor",
    "Constructs a tensor with no autograd history by copying data.\n\n"
    "Args:\n"
    "    data: a number, nested sequences of numbers, an array, or a tensor\n"
    "    dtype (torch.dtype or None): default: inferred from data: bool, int64 or the "
    "default dtype\n"
    "    device (torch.device, str, int or None): default: the default device\n"
    "    requires_grad (bool): whether autograd should record operations on the tensor\n"
    "    pin_memory (bool): allocates the tensor in pinned memory\n\n"
    "Raises ValueError for ragged sequences, and RuntimeError for a value out of range of the\n"
    "dtype.\n\n"
    ">>> torch.tensor([[1, 2], [3, 4.5]])\n"
    "tensor([[1.0000, 2.0000],\n"
    "        [3.0000, 4.5000]])\n") {
  PyObject *data, *names;
  ext_layout layout;
  px_dtype dtype;
  px_device device;
  bool requires_grad, pin_memory;
  EXT_BIND(data, dtype, device, requires_grad, pin_memory, names, layout);
  if (ext_no_names(names) < 0) return NULL;
  if (ext_is_tensor(data) &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "To copy construct from a tensor, it is recommended to use "
                   "sourceTensor.detach().clone() or sourceTensor.detach().clone()."
                   "requires_grad_(True), rather than torch.tensor(sourceTensor).",
                   1) < 0)
    return NULL;
  return finish(ext_tensor_from(data, dtype, device), requires_grad, pin_memory);
}

PyObject *ext_as_tensor(PyObject *data, px_dtype dtype, px_device device) {
  if (ext_is_tensor(data)) return ext_convert(data, device, dtype, false, false);
  if (!ext_is_foreign(data)) return finish(ext_tensor_from(data, dtype, device), false, false);
  px_tensor *shared = ext_tensor_sharing(data, true);
  EXT_OWNED *object = shared ? ext_wrap(shared) : NULL;
  return object ? ext_convert(object, device_for(shared, device), dtype, false, false) : NULL;
}
EXT_FUNCTION(
    torch, as_tensor,
    "(data: object, dtype: dtype | None = None, device: Device | None = None) -> Tensor",
    "Converts data into a tensor, sharing data and preserving autograd history if possible.") {
  PyObject *data;
  px_dtype dtype;
  px_device device;
  EXT_BIND(data, dtype, device);
  return ext_as_tensor(data, dtype, device);
}

EXT_FUNCTION(torch, scalar_tensor,
             "(s: Number, *, dtype: dtype | None = None, device: Device | None = None, "
             "requires_grad: bool = False, pin_memory: bool = False, layout: layout | None = None) "
             "-> Tensor",
             "Returns a 0-dim tensor with a number, of the default dtype.\n\n"
             ">>> torch.scalar_tensor(3)\n"
             "tensor(3.)\n") {
  PyObject *s;
  px_dtype dtype;
  px_device device;
  bool requires_grad, pin_memory;
  ext_layout layout;
  EXT_BIND(s, dtype, device, requires_grad, pin_memory, layout);
  if (dtype == PX_DTYPE_NONE) dtype = px_dtype_default();
  EXT_OWNED *real =
      ext_is_complex(s) && !px_dtype_is_complex(dtype) ? ext_real_number(s, dtype) : Py_NewRef(s);
  px_scalar scalar = px_int(0);
  if (!real || (PyLong_Check(real) && ext_to_scalar(real, &scalar) < 0)) return NULL;
  if (!px_dtype_is_float(dtype) && !px_scalar_fits(scalar, dtype))
    EXT_FAIL(PyExc_RuntimeError, "value cannot be converted to type %s without overflow",
             px_dtype_about(dtype)->c_name);
  return finish(ext_tensor_from(real, dtype, device), requires_grad, pin_memory);
}
