// SPDX-License-Identifier: Apache-2.0
// Tensor methods that move and convert: to, cuda, cpu, type_as, float..., pin_memory. They return
// the tensor itself if nothing changes and no copy was requested.
#include "bind/ext.h"

#include <string.h>

// A copy preserves the order of dimensions unless a memory format is given.
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

static int fail_target(PyObject *object) {
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

// Parses positional arguments: a device and optionally a dtype, a dtype, or a tensor. Returns how
// many it used; non_blocking and copy follow them.
static int read_target(PyObject *const *given, Py_ssize_t count, to_request *to) {
  PyObject *first = given[0], *second = count > 1 ? given[1] : NULL;
  if (ext_is_tensor(first)) {
    to->device = px_tensor_device(ext_tensor(first));
    to->dtype = px_tensor_dtype(ext_tensor(first));
    return 1;
  }
  if (ext_is_dtype(first)) return ext_to_dtype(first, &to->dtype) < 0 ? -1 : 1;
  if (ext_to_device(first, &to->device) < 0) return fail_target(first);
  if (first != Py_None && !(second && (second == Py_None || ext_is_dtype(second)))) return 1;
  bool typed = second && (first != Py_None || ext_is_dtype(second));
  return typed && ext_to_dtype(second, &to->dtype) < 0 ? -1 : 2;
}

EXT_METHOD(tensor, to,
           "(*target: Tensor | dtype | Device | bool | None, device: Device | None = None, dtype: "
           "dtype | None = None, non_blocking: bool | None = None, copy: bool | None = None, "
           "memory_format: memory_format | None = None, other: Tensor | None = None) -> Tensor",
           "Returns a tensor with the given dtype and device; self if it already has both.\n\n"
           "Args:\n"
           "    target: a dtype; a device, optionally followed by a dtype; or a tensor with both. "
           "non_blocking\n"
           "        and copy may follow\n"
           "    non_blocking (bool): copies between pinned memory and a device asynchronously\n"
           "    copy (bool): copies even if nothing changes\n\n"
           ">>> torch.ones(2).to(torch.int64)\n"
           "tensor([1, 1])\n") {
  // Calls without keywords, frequent in loops, need no binding.
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

EXT_METHOD(
    tensor, cuda,
    "(device: Device | None = None, non_blocking: bool | None = None, *, memory_format: "
    "memory_format | None = None, async_: bool | None = None) -> Tensor",
    "Returns a copy of this tensor in CUDA memory; self if it is already on the device.\n\n"
    "Args:\n"
    "    device (torch.device, str or int): the destination device; default: the current one\n"
    "    non_blocking (bool): copies from pinned memory asynchronously\n") {
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
           "Returns a copy of this tensor in CPU memory; self if it is already there.") {
  EXT_ARGS(ext_format, memory_format);
  return convert_as(self, px_cpu(), PX_DTYPE_NONE, false, false, memory_format);
}

// Not EXT_METHOD: it would expand the name bool.
#define XX(dtype, suffix, cell, number, name, ...) \
  EXT_CALLABLE_(tensor_##name, "tensor", #name, \
                "(memory_format: memory_format | None = None) -> Tensor", \
                "Equivalent to self.to(torch." #name ").", 0) { \
    ext_format memory_format; \
    EXT_BIND(memory_format); \
    return convert_as(self, PX_DEVICE_NONE, PX_##dtype, false, false, memory_format); \
  }
PX_DTYPE_COMPUTED_MAP(XX)
PX_DTYPE_COMPLEX_MAP(XX)
#undef XX

EXT_METHOD(tensor, type_as, "(other: Tensor) -> Tensor",
           "Returns this tensor cast to the type of other: self.to(other).") {
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
    "Copies the tensor to pinned memory, which allows asynchronous copies to devices; returns self "
    "if it\nis already pinned.") {
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
           "Returns True if this tensor resides in pinned memory.") {
  EXT_ARGS(PyObject *, device);
  if (no_device(device, "is_pinned") < 0) return NULL;
  return PyBool_FromLong(px_tensor_is_pinned(ext_tensor(self)));
}

EXT_METHOD(
    tensor, record_stream, "(stream: Stream) -> None",
    "Marks the tensor as having been used by this stream. Phlox does so for each call itself; this "
    "is for\nother uses.") {
  px_stream *used;
  EXT_ARGS(PyObject *, stream);
  if (!PyObject_TypeCheck(stream, &ext_StreamType))
    EXT_FAIL(PyExc_RuntimeError, "unknown parameter type");
  if (ext_to_stream(stream, &used) < 0) return NULL;
  return ext_none(px_tensor_record_stream(ext_tensor(self), used));
}
