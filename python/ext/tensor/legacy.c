// SPDX-License-Identifier: Apache-2.0
// The legacy constructor torch.Tensor(2, 3), shared by torch.FloatTensor and others
// (phlox/_legacy.py), and the names of those types as used by Tensor.type().
#include "bind/ext.h"

#include <string.h>

// Device of torch.Tensor(): set by set_default_tensor_type, independent of the default device.
static px_device constructor_device = {PX_CPU, -1};

static px_tensor *empty_of(const ext_ints *sizes, px_dtype dtype, px_device device) {
  px_tensor *made = NULL;
  if (px_tensor_empty(&made, sizes->count, sizes->items, dtype, device) != PX_OK)
    return ext_raise();
  return made;
}

static px_tensor *alias_of(PyObject *source, px_dtype dtype, px_device device) {
  px_tensor *t = ext_tensor(source), *alias = NULL;
  char text[48];
  bool cuda = device.type == PX_CUDA;
  if (px_tensor_dtype(t) != dtype || px_tensor_is_cuda(t) != cuda) {
    PyErr_Format(PyExc_TypeError, "expected torch.%s%sTensor (got %s)", cuda ? "cuda." : "",
                 px_dtype_class(dtype), px_tensor_type_name(t, text));
    return NULL;
  }
  if (px_tensor_detach(&alias, t) != PX_OK) return ext_raise();
  return alias;
}

// new(): no arguments, sizes, a sequence of values, or a tensor.
static px_tensor *construct(PyObject *const *args, Py_ssize_t nargs, px_dtype dtype,
                            px_device device) {
  ext_ints sizes = {.count = 1};
  if (nargs == 0) {
    sizes.items[0] = 0;
    return empty_of(&sizes, dtype, device);
  }
  PyObject *first = *args;
  if (nargs == 1 && ext_is_tensor(first)) return alias_of(first, dtype, device);
  if (nargs == 1 && Py_IS_TYPE(first, &ext_SizeType))
    return ext_to_ints(first, &sizes) < 0 ? NULL : empty_of(&sizes, dtype, device);
  if (nargs == 1 && !PyLong_Check(first) &&
      (ext_is_array(first) || (PySequence_Check(first) && !PyUnicode_Check(first))))
    return ext_tensor_from(first, dtype, device);
  if (nargs > EXT_LENGTH(sizes.items)) {
    PyErr_SetString(PyExc_TypeError, "new(): too many sizes");
    return NULL;
  }
  sizes.count = (int)nargs;
  for (Py_ssize_t i = 0; i < nargs; i++) {
    if (PyFloat_Check(args[i]) || !PyIndex_Check(args[i])) {
      PyErr_Format(PyExc_TypeError, "new(): data must be a sequence (got %s)",
                   ext_type_name(args[i]));
      return NULL;
    }
    if (ext_to_int(args[i], &sizes.items[i]) < 0) return NULL;
  }
  return empty_of(&sizes, dtype, device);
}

// Reads device=, which must match the constructor's type.
static int read_device(PyObject *given, px_device *device) {
  px_device asked;
  if (ext_is_none(given)) return 0;
  if (ext_to_device(given, &asked) < 0) return -1;
  if (asked.type != device->type)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "legacy constructor expects device type: %s but device type: %s was passed",
                 px_device_type_name(device->type), px_device_type_name(asked.type));
  *device = asked;
  return 0;
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  px_device device = constructor_device;
  px_dtype dtype = px_dtype_default();
  if (read_device(kwargs ? PyDict_GetItemString(kwargs, "device") : NULL, &device) < 0) return NULL;
  PyObject *const *items = PySequence_Fast_ITEMS(args);
  Py_ssize_t nargs = PyTuple_GET_SIZE(args);
  PyObject *data = kwargs ? PyDict_GetItemString(kwargs, "data") : NULL;
  if (nargs == 1 && ext_is_tensor(items[0])) {
    dtype = px_tensor_dtype(ext_tensor(items[0]));
    device = px_tensor_device(ext_tensor(items[0]));
  }
  px_tensor *made =
      data ? construct(&data, 1, dtype, device) : construct(items, nargs, dtype, device);
  return made ? ext_wrap_as(type, made) : NULL;
}
EXT_SLOT(tensor_base, tp_new, tensor_new);

EXT_FUNCTION(torch, _legacy_tensor,
             "(data: tuple, dtype: dtype, device: Device, asked: Device | None) -> Tensor",
             "Implements torch.FloatTensor(*data, device=asked).") {
  PyObject *data, *asked;
  px_dtype dtype;
  px_device device;
  EXT_BIND(data, dtype, device, asked);
  if (read_device(asked, &device) < 0) return NULL;
  px_tensor *made = construct(PySequence_Fast_ITEMS(data), PyTuple_GET_SIZE(data), dtype, device);
  return made ? ext_wrap(made) : NULL;
}
EXT_FUNCTION(torch, _set_legacy_type, "(dtype: dtype, device: Device) -> None",
             "Sets the default dtype of factories and the device of torch.Tensor().") {
  px_dtype dtype;
  px_device device;
  EXT_BIND(dtype, device);
  if (device.type == PX_CUDA) EXT_TRY(px_device_init());
  EXT_TRY(px_dtype_set_default(dtype));
  EXT_TRY(px_device_set_home(device.type == PX_CUDA ? device : PX_DEVICE_NONE));
  constructor_device = device;
  Py_RETURN_NONE;
}

// ---- names of types
int ext_dtype_of_type_name(const char *text, px_dtype *dtype, px_device *device) {
  *device = px_cpu();
  if (strncmp(text, "torch.", 6)) return 0;
  text += 6;
  if (!strncmp(text, "cuda.", 5)) {
    *device = px_cuda(-1);
    text += 5;
  }
  for (int i = 0; i < PX_DTYPE_COUNT; i++) {
    char name[32];
    snprintf(name, sizeof name, "%sTensor", px_dtype_class((px_dtype)i));
    *dtype = (px_dtype)i;
    if (!strcmp(text, name)) return 1;
  }
  *dtype = px_dtype_default();
  return !strcmp(text, "Tensor");
}
EXT_FUNCTION(torch, _type_of_name, "(name: str) -> tuple[dtype, device] | None",
             "Returns the dtype and device of a type name such as \"torch.cuda.FloatTensor\".") {
  px_dtype dtype;
  px_device device;
  EXT_ARGS(const char *, name);
  if (!ext_dtype_of_type_name(name, &dtype, &device)) Py_RETURN_NONE;
  return Py_BuildValue("(NN)", ext_dtype(dtype), ext_device(device));
}
EXT_FUNCTION(torch, _typed_dtypes, "(storages: bool = False) -> list[dtype]",
             "Returns the dtypes with a tensor type (torch.FloatTensor), or with a storage type.") {
  EXT_ARGS(bool, storages);
  EXT_OWNED *all = PyList_New(0);
  for (int i = 0; all && i < PX_DTYPE_COUNT; i++) {
    bool both = i < PX_DTYPE_COMPUTED, typed = both || i == PX_COMPLEX64 || i == PX_COMPLEX128;
    EXT_OWNED *dtype = ext_dtype((px_dtype)i);
    if ((storages ? typed : both) && PyList_Append(all, dtype) < 0) return NULL;
  }
  return ext_moved(&all);
}
EXT_FUNCTION(torch, _dtype_class, "(dtype: dtype) -> str",
             "Returns the type name prefix of a dtype: \"Float\" for torch.float32.") {
  EXT_ARGS(px_dtype, dtype);
  return PyUnicode_FromString(px_dtype_class(dtype));
}

// torch.FloatTensor: a class with a Python metaclass.
bool ext_is_type_object(PyObject *object) {
  return PyType_Check(object) && !strcmp(Py_TYPE(object)->tp_name, "tensortype");
}
void ext_type_object(PyObject *object, px_dtype *dtype, px_device *device) {
  EXT_OWNED *module = PyObject_GetAttrString(object, "__module__");
  EXT_OWNED *name =
      module ? PyUnicode_FromFormat("%U.%s", module, ((PyTypeObject *)object)->tp_name) : NULL;
  const char *text = name ? PyUnicode_AsUTF8(name) : NULL;
  if (!text || !ext_dtype_of_type_name(text, dtype, device)) PyErr_Clear();
}
