// SPDX-License-Identifier: Apache-2.0
// Methods of Tensor that move and convert: to, cuda, cpu, type, float..., new_*, pin_memory.
#include "ext.h"

#include <string.h>

// Fills in what is not given from self; true if nothing would change.
static int target(PyObject *self, px_device *device, px_dtype *dtype, bool *same) {
  const px_tensor *t = ext_tensor(self);
  px_device here = px_tensor_device(t);
  if (device->type < 0)
    *device = here;
  else
    EXT_TRY_INT(px_device_resolve(device, *device));
  if (*dtype == PX_DTYPE_NONE) *dtype = px_tensor_dtype(t);
  *same = px_device_equal(here, *device) && *dtype == px_tensor_dtype(t);
  return 0;
}

PyObject *ext_convert(PyObject *self, px_device device, px_dtype dtype, bool non_blocking,
                      bool copy) {
  bool same;
  if (target(self, &device, &dtype, &same) < 0) return NULL;
  if (same && !copy) return Py_NewRef(self);
  const px_op *op = EXT_OP("_to_copy");
  if (!op) return NULL;
  ext_named named[] = {{"self", PX_T(ext_tensor(self))},
                       {"dtype", PX_DT(dtype)},
                       {"device", PX_DV(device)},
                       {"non_blocking", PX_B(non_blocking)}};
  return ext_op_named(op, PX_CALL_NEW, EXT_LENGTH(named), named);
}

// A copy that was made takes the order of self's dimensions, unless the program wants it row-major.
static PyObject *convert_as(PyObject *self, px_device device, px_dtype dtype, bool non_blocking,
                            bool copy, PyObject *format) {
  EXT_OWNED *made = ext_convert(self, device, dtype, non_blocking, copy);
  if (!made || made == self || !ext_is_packed_format(format)) return ext_moved(&made);
  return PyObject_CallMethod(made, "contiguous", NULL);
}

// ---- to
typedef struct to_request {
  px_device device;
  px_dtype dtype;
  int non_blocking, copy;
} to_request;

// What the first positional argument says; `next` is where non_blocking and copy begin.
static int read_first(PyObject **out, to_request *to, int *next) {
  PyObject *first = out[0];
  if (ext_is_none(first)) {
    *next = first ? 2 : 1;
    return first && out[1] && ext_is_dtype(out[1]) ? ext_to_dtype(out[1], &to->dtype) : 0;
  }
  *next = 1;
  if (ext_is_tensor(first)) {
    to->device = px_tensor_device(ext_tensor(first));
    to->dtype = px_tensor_dtype(ext_tensor(first));
    return 0;
  }
  if (ext_is_dtype(first)) return ext_to_dtype(first, &to->dtype);
  if (ext_to_device(first, &to->device) < 0) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_Format(PyExc_TypeError,
                   "to() received an invalid combination of arguments - got (%s), but expected one "
                   "of:\n * (torch.device device, torch.dtype dtype, bool non_blocking, bool copy, "
                   "*, torch.memory_format memory_format)\n * (torch.dtype dtype, bool "
                   "non_blocking, bool copy, *, torch.memory_format memory_format)\n * (Tensor "
                   "tensor, bool non_blocking, bool copy, *, torch.memory_format "
                   "memory_format)\n",
                   ext_type_name(first));
    return -1;
  }
  if (out[1] && (out[1] == Py_None || ext_is_dtype(out[1]))) {
    *next = 2;
    return ext_to_dtype(out[1], &to->dtype);
  }
  return 0;
}

EXT_FAST(tensor_to) {
  EXT_ARGS("to", "|a b c d$device dtype non_blocking copy memory_format other", out);
  to_request to = {PX_DEVICE_NONE, PX_DTYPE_NONE, 0, 0};
  int next = 1;
  if (read_first(out, &to, &next) < 0) return NULL;
  if (out[9] && !out[0]) {
    out[0] = out[9];
    if (read_first(out, &to, &next) < 0) return NULL;
  }
  if (out[4] && ext_to_device(out[4], &to.device) < 0) return NULL;
  if (out[5] && ext_to_dtype(out[5], &to.dtype) < 0) return NULL;
  to.non_blocking = ext_to_bool(out[6] ? out[6] : out[next], false);
  to.copy = ext_to_bool(out[7] ? out[7] : out[next + 1], false);
  if (to.non_blocking < 0 || to.copy < 0) return NULL;
  return convert_as(self, to.device, to.dtype, to.non_blocking, to.copy, out[8]);
}

EXT_FAST(tensor_cuda) {
  EXT_ARGS("cuda", "|device non_blocking$memory_format async", out);
  px_device device = px_cuda(-1);
  if (out[3] &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "This overload of cuda is deprecated:\n\tcuda(torch.device device, bool async, "
                   "*, torch.memory_format memory_format)\nConsider using one of the following "
                   "signatures instead:\n\tcuda(torch.device device, bool non_blocking, *, "
                   "torch.memory_format memory_format)",
                   1) < 0)
    return NULL;
  if (!ext_is_none(out[0]) && ext_to_device(out[0], &device) < 0) return NULL;
  if (device.type != PX_CUDA) EXT_FAIL(PyExc_RuntimeError, "Invalid device, must be cuda device");
  int non_blocking = ext_to_bool(out[1] ? out[1] : out[3], false);
  if (non_blocking < 0) return NULL;
  return convert_as(self, device, PX_DTYPE_NONE, non_blocking, false, out[2]);
}

EXT_FAST(tensor_cpu) {
  EXT_ARGS("cpu", "|$memory_format", out);
  return convert_as(self, px_cpu(), PX_DTYPE_NONE, false, false, out[0]);
}

#define DTYPE_METHOD(name, dtype) \
  static PyObject *tensor_##name(PyObject *self, PyObject *const *args, Py_ssize_t nargs, \
                                 PyObject *kwnames) { \
    EXT_ARGS(#name, "|memory_format", out); \
    return convert_as(self, PX_DEVICE_NONE, dtype, false, false, out[0]); \
  }
DTYPE_METHOD(float, PX_FLOAT32)
DTYPE_METHOD(double, PX_FLOAT64)
DTYPE_METHOD(half, PX_FLOAT16)
DTYPE_METHOD(bfloat16, PX_BFLOAT16)
DTYPE_METHOD(long, PX_INT64)
DTYPE_METHOD(int, PX_INT32)
DTYPE_METHOD(short, PX_INT16)
DTYPE_METHOD(char, PX_INT8)
DTYPE_METHOD(byte, PX_UINT8)
DTYPE_METHOD(bool, PX_BOOL)

// ---- type
static int type_target(PyObject *given, px_device *device, px_dtype *dtype) {
  if (ext_is_dtype(given) || given == (PyObject *)&PyFloat_Type ||
      given == (PyObject *)&PyLong_Type)
    return ext_to_dtype(given, dtype);
  if (ext_is_type_object(given)) return ext_type_object(given, dtype, device), 0;
  if (!PyUnicode_Check(given))
    EXT_FAIL_INT(PyExc_TypeError, "dtype must be a type, str, or dtype object");
  const char *text = PyUnicode_AsUTF8(given);
  if (!text) return -1;
  if (ext_dtype_of_type_name(text, dtype, device) > 0) return 0;
  EXT_FAIL_INT(PyExc_ValueError, "invalid type: '%s'", text);
}

EXT_FAST(tensor_type) {
  EXT_ARGS("type", "|dtype non_blocking", out);
  char text[48];
  if (ext_is_none(out[0])) return PyUnicode_FromString(px_tensor_type_name(ext_tensor(self), text));
  px_device device = PX_DEVICE_NONE;
  px_dtype dtype = PX_DTYPE_NONE;
  if (type_target(out[0], &device, &dtype) < 0) return NULL;
  if (device.type == PX_CUDA && px_tensor_is_cuda(ext_tensor(self))) device = PX_DEVICE_NONE;
  int non_blocking = ext_to_bool(out[1], false);
  return non_blocking < 0 ? NULL : ext_convert(self, device, dtype, non_blocking, false);
}

EXT_FAST(tensor_type_as) {
  EXT_ARGS("type_as", "other", out);
  px_tensor *other = ext_need_tensor(out[0], "type_as", "other");
  if (!other) return NULL;
  return ext_convert(self, px_tensor_device(other), px_tensor_dtype(other), false, false);
}

// ---- new_*: factories with the dtype and device of self
static PyObject *call_like(PyObject *self, const char *factory, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames) {
  PyObject *function = ext_op_object('f', factory);
  if (!function) EXT_FAIL(PyExc_NotImplementedError, "new_%s", factory);
  EXT_OWNED *named = PyDict_New();
  for (Py_ssize_t i = 0; named && kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
    if (args[nargs + i] != Py_None &&
        PyDict_SetItem(named, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0)
      return NULL;
  EXT_OWNED *dtype = ext_dtype(px_tensor_dtype(ext_tensor(self)));
  EXT_OWNED *device = ext_device(px_tensor_device(ext_tensor(self)));
  if (!named || !dtype || !device) return NULL;
  if (!PyDict_GetItemString(named, "dtype") && PyDict_SetItemString(named, "dtype", dtype) < 0)
    return NULL;
  if (!PyDict_GetItemString(named, "device") && PyDict_SetItemString(named, "device", device) < 0)
    return NULL;
  return PyObject_VectorcallDict(function, args, (size_t)nargs, named);
}
#define NEW_METHOD(name) \
  EXT_FAST(new_##name) { return call_like(self, #name, args, nargs, kwnames); }
NEW_METHOD(empty)
NEW_METHOD(zeros)
NEW_METHOD(ones)
NEW_METHOD(full)

EXT_FAST(new_tensor) {
  EXT_ARGS("new_tensor", "data$dtype device requires_grad layout pin_memory", out);
  px_dtype dtype;
  px_device device;
  if (ext_to_dtype(out[1], &dtype) < 0 || ext_to_device(out[2], &device) < 0) return NULL;
  int requires_grad = ext_to_bool(out[3], false), pin = ext_to_bool(out[5], false);
  if (requires_grad < 0 || pin < 0) return NULL;
  if (ext_is_tensor(out[0]) &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "To copy construct from a tensor, it is recommended to use "
                   "sourceTensor.detach().clone() or sourceTensor.detach().clone()."
                   "requires_grad_(True), rather than tensor.new_tensor(sourceTensor).",
                   1) < 0)
    return NULL;
  if (dtype == PX_DTYPE_NONE) dtype = px_tensor_dtype(ext_tensor(self));
  if (device.type < 0) device = px_tensor_device(ext_tensor(self));
  PX_SCOPED(px_tensor) made = ext_tensor_from(out[0], dtype, device);
  if (!made) return NULL;
  if (requires_grad) EXT_TRY(px_tensor_set_requires_grad(made, true));
  return ext_wrap(PX_MOVE(made));
}

// The legacy x.new(2, 3), x.new([1, 2.]): the legacy constructor for self's dtype and device.
EXT_FAST(tensor_new_legacy) {
  const px_tensor *t = ext_tensor(self);
  if (nargs == 1 && !ext_is_tensor(args[0]) && (PyList_Check(args[0]) || PyTuple_Check(args[0])) &&
      !Py_IS_TYPE(args[0], &ext_SizeType)) {
    px_tensor *made = ext_tensor_from(args[0], px_tensor_dtype(t), px_tensor_device(t));
    return made ? ext_wrap(made) : NULL;
  }
  int64_t zero = 0;
  if (nargs) return call_like(self, "empty", args, nargs, kwnames);
  px_tensor *made = NULL;
  EXT_TRY(px_tensor_empty(&made, 1, &zero, px_tensor_dtype(t), px_tensor_device(t)));
  return ext_wrap(made);
}

// ---- pinned memory
EXT_FAST(tensor_pin_memory) {
  EXT_ARGS("pin_memory", "|device", out);
  px_tensor *t = ext_tensor(self);
  char text[48];
  if (!ext_is_none(out[0]) &&
      PyErr_WarnEx(PyExc_DeprecationWarning,
                   "The argument 'device' of Tensor.pin_memory() is deprecated. Please do not pass "
                   "this argument.",
                   1) < 0)
    return NULL;
  if (px_tensor_is_cuda(t))
    EXT_FAIL(PyExc_RuntimeError, "cannot pin '%s' only dense CPU tensors can be pinned",
             px_tensor_type_name(t, text));
  if (px_tensor_is_pinned(t)) return Py_NewRef(self);
  if (px_device_count(PX_CUDA) == 0)
    EXT_FAIL(PyExc_RuntimeError, "Cannot access accelerator device when none is available.");
  px_tensor *pinned = ext_pin(t);
  return pinned ? ext_wrap(pinned) : NULL;
}

EXT_FAST(tensor_is_pinned) {
  EXT_ARGS("is_pinned", "|device", out);
  if (!ext_is_none(out[0]) &&
      PyErr_WarnEx(PyExc_DeprecationWarning,
                   "The argument 'device' of Tensor.is_pinned() is deprecated. Please do not pass "
                   "this argument.",
                   1) < 0)
    return NULL;
  return PyBool_FromLong(px_tensor_is_pinned(ext_tensor(self)));
}

EXT_FAST(tensor_record_stream) {
  EXT_ARGS("record_stream", "stream", out);
  px_stream *stream;
  if (!PyObject_TypeCheck(out[0], &ext_StreamType))
    EXT_FAIL(PyExc_RuntimeError, "unknown parameter type");
  if (ext_to_stream(out[0], &stream) < 0) return NULL;
  EXT_TRY(px_tensor_record_stream(ext_tensor(self), stream));
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {EXT_DEF("to", tensor_to),
                                EXT_DEF("cuda", tensor_cuda),
                                EXT_DEF("cpu", tensor_cpu),
                                EXT_DEF("float", tensor_float),
                                EXT_DEF("double", tensor_double),
                                EXT_DEF("half", tensor_half),
                                EXT_DEF("bfloat16", tensor_bfloat16),
                                EXT_DEF("long", tensor_long),
                                EXT_DEF("int", tensor_int),
                                EXT_DEF("short", tensor_short),
                                EXT_DEF("char", tensor_char),
                                EXT_DEF("byte", tensor_byte),
                                EXT_DEF("bool", tensor_bool),
                                EXT_DEF("type", tensor_type),
                                EXT_DEF("type_as", tensor_type_as),
                                EXT_DEF("new_empty", new_empty),
                                EXT_DEF("new_zeros", new_zeros),
                                EXT_DEF("new_ones", new_ones),
                                EXT_DEF("new_full", new_full),
                                EXT_DEF("new_tensor", new_tensor),
                                EXT_DEF("new", tensor_new_legacy),
                                EXT_DEF("pin_memory", tensor_pin_memory),
                                EXT_DEF("is_pinned", tensor_is_pinned),
                                EXT_DEF("record_stream", tensor_record_stream),
                                {NULL, NULL, 0, NULL}};

static int ext_init_tensor_convert(PyObject *m) { return ext_add_methods(ext_TensorType, methods); }
EXT_START(EXT_VALUES, ext_init_tensor_convert);
