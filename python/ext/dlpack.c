// SPDX-License-Identifier: Apache-2.0
// Tensor.__dlpack__, __dlpack_device__ and from_dlpack: capsules named "dltensor", renamed once
// they are taken, as the protocol says. https://dmlc.github.io/dlpack/latest/python_spec.html
#include "phlox/dlpack.h"

#include "ext.h"
#include "phlox/ops.h"

enum { DL_CUDA = 2 };

static void capsule_end(PyObject *capsule) {
  px_dl_managed *managed =
      PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
  if (managed) managed->deleter(managed);
}

// The consumer's stream as a handle. None is CUDA's default stream, 0 would be ambiguous; -1 asks
// for no order, and gives NULL.
static int to_native(PyObject *stream, void **out) {
  long long handle = 1;
  if (!ext_is_none(stream) && !PyLong_Check(stream))
    EXT_FAIL_INT(PyExc_TypeError, "stream must be an int or None, not %s", ext_type_name(stream));
  if (!ext_is_none(stream)) handle = PyLong_AsLongLong(stream);
  if (handle == -1 && PyErr_Occurred()) return -1;
  if (handle == 0 || handle < -1)
    EXT_FAIL_INT(PyExc_BufferError, "unsupported stream on CUDA: %lld.", handle);
  *out = handle == -1 ? NULL : (void *)(intptr_t)handle;
  return 0;
}

static px_status export_to(px_dl_managed **out, px_tensor *tensor, void *native) {
  return native ? px_dlpack_export_native(out, tensor, native)
                : px_dlpack_export(out, tensor, NULL);
}

// The protocol's dl_device asks for a copy on another device, which is refused.
static int check_device(px_tensor *tensor, PyObject *wanted) {
  px_dl_device device = px_dlpack_device(tensor);
  int type, index;
  if (ext_is_none(wanted)) return 0;
  if (!PyTuple_Check(wanted))
    EXT_FAIL_INT(PyExc_TypeError, "dl_device must be a tuple, not %s", ext_type_name(wanted));
  if (!PyArg_ParseTuple(wanted, "ii", &type, &index)) return -1;
  if (type == device.device_type && index == device.device_id) return 0;
  EXT_FAIL_INT(PyExc_BufferError, "the tensor is on DLPack device (%d, %d), not on (%d, %d)",
               device.device_type, device.device_id, type, index);
}

EXT_METHOD(
    tensor, __dlpack__,
    "(stream: int | None = None, *, max_version: tuple[int, int] | None = None, dl_device: "
    "tuple[int, int] | None = None, copy: bool | None = None) -> object",
    "The memory as a DLPack capsule, for another library.\n\n"
    "Args:\n"
    "    stream (int or None): the consumer's stream, made to wait for the memory; -1 for no "
    "order\n"
    "    dl_device: must be the tensor's\n"
    "    copy (bool): the capsule gets memory of its own\n\n"
    "Raises BufferError for what DLPack cannot say: a tensor that requires a gradient, another "
    "device.") {
  PyObject *stream, *max_version, *dl_device, *copy;
  PX_SCOPED(px_tensor) own = NULL;
  px_dl_managed *managed;
  void *native = NULL;
  EXT_BIND(stream, max_version, dl_device, copy);
  px_tensor *tensor = ext_tensor(self);
  if (px_tensor_requires_grad(tensor))
    EXT_FAIL(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
  if (check_device(tensor, dl_device) < 0) return NULL;
  if (px_tensor_is_cuda(tensor) && to_native(stream, &native) < 0) return NULL;
  if (copy == Py_True) {
    EXT_TRY(px_clone(&own, tensor, NULL));
    tensor = own;
  }
  EXT_WAIT(export_to(&managed, tensor, native));
  PyObject *capsule = PyCapsule_New(managed, "dltensor", capsule_end);
  if (!capsule) managed->deleter(managed);
  return capsule;
}
EXT_METHOD0(tensor, __dlpack_device__, "tuple[int, int]", "DLPack's number of its device.") {
  px_dl_device device = px_dlpack_device(ext_tensor(self));
  return Py_BuildValue("(ii)", device.device_type, device.device_id);
}

static PyObject *take(PyObject *capsule) {
  px_tensor *tensor;
  px_dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
  if (!managed) return NULL;
  EXT_TRY(px_dlpack_import_take(&tensor, managed));
  PyCapsule_SetName(capsule, "used_dltensor");
  return ext_wrap(tensor);
}

// What a producer has to make visible its work to: our current stream where it is on a device, as
// the keyword argument `stream`; nothing on the CPU.
static int our_stream(PyObject **out, PyObject *producer) {
  int type, index;
  px_stream *stream;
  *out = NULL;
  if (!PyObject_HasAttrString(producer, "__dlpack_device__")) return 0;
  EXT_OWNED *device = PyObject_CallMethod(producer, "__dlpack_device__", NULL);
  EXT_OWNED *pair = device ? PySequence_Tuple(device) : NULL;
  if (!pair || !PyArg_ParseTuple(pair, "ii", &type, &index)) return -1;
  if (type != DL_CUDA) return 0;
  EXT_TRY_INT(px_stream_current(&stream, px_cuda(index)));
  *out = Py_BuildValue("{s:N}", "stream", PyLong_FromVoidPtr(px_stream_native(stream)));
  return *out ? 0 : -1;
}

EXT_MODULE(utils_dlpack, "utils.dlpack .", "Tensors from and for other libraries, by DLPack.");
EXT_FUNCTION(
    utils_dlpack, from_dlpack, "(ext_tensor: object) -> Tensor",
    "A tensor over the memory of an object with __dlpack__, or of a capsule, which it takes.\n\n"
    ">>> torch.from_dlpack(torch.ones(2))\n"
    "tensor([1., 1.])\n") {
  PyObject *ext_tensor;
  EXT_BIND(ext_tensor);
  if (PyCapsule_CheckExact(ext_tensor)) return take(ext_tensor);
  EXT_OWNED *keywords = NULL;
  EXT_OWNED *method = PyObject_GetAttrString(ext_tensor, "__dlpack__");
  EXT_OWNED *none = PyTuple_New(0);
  if (!method || !none || our_stream(&keywords, ext_tensor) < 0) return NULL;
  EXT_OWNED *capsule = PyObject_Call(method, none, keywords);
  return capsule ? take(capsule) : NULL;
}
EXT_FUNCTION(utils_dlpack, to_dlpack, "(tensor: Tensor) -> object", "tensor.__dlpack__().") {
  PyObject *tensor;
  EXT_BIND(tensor);
  return PyObject_CallMethod(tensor, "__dlpack__", NULL);
}
