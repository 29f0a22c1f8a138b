// SPDX-License-Identifier: Apache-2.0
// Methods of Tensor that move and convert: to, cuda, cpu, type_as, float..., pin_memory. They
// give the tensor itself where nothing would change and no copy was asked for.
#include "ext.h"

#include <string.h>

// A copy that is made takes the order of self's dimensions, unless the program names another.
static PyObject *convert_as(PyObject *self, px_device device, px_dtype dtype, bool non_blocking,
                            bool copy, ext_format format) {
  if (!format.name) return ext_convert(self, device, dtype, non_blocking, copy);
  const px_op *op = EXT_OP("to_format");
  if (!op) return NULL;
  ext_named named[] = {{"self", PX_T(ext_tensor(self))},
                       {"dtype", PX_DT(dtype)},
                       {"device", PX_DV(device)},
                       {"non_blocking", PX_B(non_blocking)},
                       {"copy", PX_B(copy)},
                       {"memory_format", PX_TX(format.name)}};
  return ext_op_named(op, PX_CALL_NEW, EXT_LENGTH(named), named);
}

// ---- to
typedef struct to_request {
  px_device device;
  px_dtype dtype;
} to_request;

static int bad_target(PyObject *object) {
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
  EXT_FAIL_INT(PyExc_TypeError,
               "to() received an invalid combination of arguments - got (%s), but expected one "
               "of:\n * (torch.device device, torch.dtype dtype, bool non_blocking, bool copy, "
               "*, torch.memory_format memory_format)\n * (torch.dtype dtype, bool "
               "non_blocking, bool copy, *, torch.memory_format memory_format)\n * (Tensor "
               "tensor, bool non_blocking, bool copy, *, torch.memory_format "
               "memory_format)\n",
               ext_type_name(object));
}

// What the positional arguments say: a device and perhaps a dtype, a dtype, or a tensor; how many
// they are. non_blocking and copy come after them.
static int read_target(PyObject *const *given, Py_ssize_t count, to_request *to) {
  PyObject *first = given[0], *second = count > 1 ? given[1] : NULL;
  if (ext_is_tensor(first)) {
    to->device = px_tensor_device(ext_tensor(first));
    to->dtype = px_tensor_dtype(ext_tensor(first));
    return 1;
  }
  if (ext_is_dtype(first)) return ext_to_dtype(first, &to->dtype) < 0 ? -1 : 1;
  if (ext_to_device(first, &to->device) < 0) return bad_target(first);
  if (first != Py_None && !(second && (second == Py_None || ext_is_dtype(second)))) return 1;
  bool typed = second && (first != Py_None || ext_is_dtype(second));
  return typed && ext_to_dtype(second, &to->dtype) < 0 ? -1 : 2;
}

EXT_METHOD(tensor, to,
           "(*target: Tensor | dtype | Device | bool | None, device: Device | None = None, dtype: "
           "dtype | None = None, non_blocking: bool | None = None, copy: bool | None = None, "
           "memory_format: memory_format | None = None, other: Tensor | None = None) -> Tensor",
           "The tensor with another dtype or on another device; itself where it is so already.\n\n"
           "Args:\n"
           "    target: a dtype; a device, or a device and a dtype; or a tensor, whose they are. "
           "non_blocking\n"
           "        and copy may follow\n"
           "    non_blocking (bool): a copy between pinned memory and a device does not wait\n"
           "    copy (bool): makes a copy in any case\n\n"
           ">>> torch.ones(2).to(torch.int64)\n"
           "tensor([1, 1])\n") {
  // Calls without keywords, which loops make, need no binding.
  ext_varargs target = {call->args, call->nargs};
  px_device device = PX_DEVICE_NONE;
  px_dtype dtype = PX_DTYPE_NONE;
  ext_optional_bool non_blocking = -1, copy = -1;
  PyObject *other = NULL;
  ext_format memory_format = {NULL};
  if (call->kwnames) EXT_BIND(target, device, dtype, non_blocking, copy, memory_format, other);
  to_request to = {PX_DEVICE_NONE, PX_DTYPE_NONE};
  if (target.count > 4)
    EXT_FAIL(PyExc_TypeError, "to() takes 4 positional arguments but %zd were given", target.count);
  int used = target.count ? read_target(target.items, target.count, &to)
             : other      ? read_target(&other, 1, &to)
                          : 0;
  if (used < 0) return NULL;
  if (device.type >= 0) to.device = device;
  if (dtype != PX_DTYPE_NONE) to.dtype = dtype;
  int flags[2] = {non_blocking, copy};
  for (int i = 0; i < 2; i++) {
    if (flags[i] < 0)
      flags[i] = ext_to_bool(used + i < target.count ? target.items[used + i] : NULL, false);
    if (flags[i] < 0) return NULL;
  }
  return convert_as(self, to.device, to.dtype, flags[0], flags[1], memory_format);
}

EXT_METHOD(tensor, cuda,
           "(device: Device | None = None, non_blocking: bool | None = None, *, memory_format: "
           "memory_format | None = None, async_: bool | None = None) -> Tensor",
           "The tensor on a device of type cuda, the current one by default.\n\n"
           "Args:\n"
           "    device (torch.device, str or int): where to\n"
           "    non_blocking (bool): a copy from pinned memory does not wait\n") {
  px_device device;
  ext_optional_bool non_blocking, async_;
  ext_format memory_format;
  EXT_BIND(device, non_blocking, memory_format, async_);
  if (async_ >= 0 &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "This overload of cuda is deprecated:\n\tcuda(torch.device device, bool async, "
                   "*, torch.memory_format memory_format)\nConsider using one of the following "
                   "signatures instead:\n\tcuda(torch.device device, bool non_blocking, *, "
                   "torch.memory_format memory_format)",
                   1) < 0)
    return NULL;
  if (device.type < 0) device = px_cuda(-1);
  if (device.type != PX_CUDA) EXT_FAIL(PyExc_RuntimeError, "Invalid device, must be cuda device");
  bool queued = non_blocking >= 0 ? non_blocking : async_ > 0;
  return convert_as(self, device, PX_DTYPE_NONE, queued, false, memory_format);
}

EXT_METHOD(tensor, cpu, "(*, memory_format: memory_format | None = None) -> Tensor",
           "The tensor in the host's memory.") {
  EXT_ARGS(ext_format, memory_format);
  return convert_as(self, px_cpu(), PX_DTYPE_NONE, false, false, memory_format);
}

// Not by EXT_METHOD, in which the name bool would be expanded.
#define XX(dtype, suffix, cell, number, name, ...) \
  EXT_CALLABLE_(tensor_##name, "tensor", #name, \
                "(memory_format: memory_format | None = None) -> Tensor", "to(torch." #name ").", \
                0) { \
    ext_format memory_format; \
    EXT_BIND(memory_format); \
    return convert_as(self, PX_DEVICE_NONE, PX_##dtype, false, false, memory_format); \
  }
PX_DTYPE_COMPUTED_MAP(XX)
PX_DTYPE_COMPLEX_MAP(XX)
#undef XX

EXT_METHOD(tensor, type_as, "(other: Tensor) -> Tensor", "to(other).") {
  EXT_ARGS(px_tensor *, other);
  return ext_convert(self, px_tensor_device(other), px_tensor_dtype(other), false, false);
}

// ---- pinned memory
static int no_device(PyObject *device, const char *method) {
  if (!device) return 0;
  return PyErr_WarnFormat(PyExc_DeprecationWarning, 1,
                          "The argument 'device' of Tensor.%s() is deprecated. Please do not pass "
                          "this argument.",
                          method);
}
EXT_METHOD(
    tensor, pin_memory, "(device: Device | None = None) -> Tensor",
    "The tensor in pinned memory, from which copies to a device need not wait; itself where it "
    "is\nthere already.") {
  PyObject *device;
  char text[48];
  EXT_BIND(device);
  px_tensor *t = ext_tensor(self);
  if (no_device(device, "pin_memory") < 0) return NULL;
  if (px_tensor_device(t).type != PX_CPU)
    EXT_FAIL(PyExc_RuntimeError, "cannot pin '%s' only dense CPU tensors can be pinned",
             px_tensor_type_name(t, text));
  if (px_tensor_is_pinned(t)) return Py_NewRef(self);
  if (px_device_count(PX_CUDA) == 0)
    EXT_FAIL(PyExc_RuntimeError, "Cannot access accelerator device when none is available.");
  px_tensor *pinned = ext_pin(t);
  return pinned ? ext_wrap(pinned) : NULL;
}
EXT_METHOD(tensor, is_pinned, "(device: Device | None = None) -> bool",
           "Whether it is in pinned memory.") {
  EXT_ARGS(PyObject *, device);
  if (no_device(device, "is_pinned") < 0) return NULL;
  return PyBool_FromLong(px_tensor_is_pinned(ext_tensor(self)));
}

EXT_METHOD(
    tensor, record_stream, "(stream: Stream) -> None",
    "Marks the memory as used by `stream` up to now. Phlox does so itself at each call; this "
    "is for\nuses that it does not see.") {
  px_stream *used;
  EXT_ARGS(PyObject *, stream);
  if (!PyObject_TypeCheck(stream, &ext_StreamType))
    EXT_FAIL(PyExc_RuntimeError, "unknown parameter type");
  if (ext_to_stream(stream, &used) < 0) return NULL;
  return ext_none(px_tensor_record_stream(ext_tensor(self), used));
}
