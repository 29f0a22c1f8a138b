// SPDX-License-Identifier: Apache-2.0
// Tensor.__dlpack__ and __dlpack_device__: capsules named "dltensor" and renamed on consumption, as
// the protocol requires. from_dlpack is in phlox/utils/dlpack.py.
// https://dmlc.github.io/dlpack/latest/python_spec.html
#include "phlox/dlpack.h"

#include "bind/ext.h"
#include "phlox/ops/copy.h"

static void capsule_end(PyObject *capsule) {
  px_dl_managed *managed =
      PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
  if (managed) managed->deleter(managed);
}

// Native handle of the consumer's stream. None means the legacy default stream (1); 0 is ambiguous
// and rejected; -1 requests no synchronization and results in NULL.
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

// dl_device of another device would request a copy, which is not supported.
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
    "Exports the tensor as a DLPack capsule for another library.\n\n"
    "Args:\n"
    "    stream (int or None): the consumer's stream, which waits for pending work; -1: no "
    "synchronization\n"
    "    dl_device: must be the tensor's device\n"
    "    copy (bool): exports a copy\n\n"
    "Raises BufferError if DLPack does not support it: a tensor that requires gradient, another "
    "device.") {
  PyObject *stream, *max_version, *dl_device, *copy;
  PX_SCOPED(px_tensor) own = NULL;
  px_dl_managed *managed;
  void *native = NULL;
  EXT_BIND(stream, max_version, dl_device, copy);
  px_tensor *tensor = ext_tensor(self);
  if (px_tensor_requires_grad(tensor))
    EXT_FAIL(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
  if (px_tensor_unresolved(tensor))
    EXT_FAIL(PyExc_BufferError, "Can't export tensors with the %s bit set",
             px_tensor_unresolved(tensor));
  if (px_tensor_device(tensor).type == PX_META)
    EXT_FAIL(PyExc_BufferError, "Cannot pack tensors on meta");
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
EXT_METHOD0(tensor, __dlpack_device__, "tuple[int, int]",
            "Returns the device as a DLPack (device_type, device_id) tuple.") {
  px_dl_device device = px_dlpack_device(ext_tensor(self));
  return Py_BuildValue("(ii)", device.device_type, device.device_id);
}

// A tensor of another library. Its deleter may run Python code: the core calls it on any thread,
// also during Python's shutdown.
typedef struct foreign_tensor {
  px_dl_managed managed, *owner;
} foreign_tensor;
static void foreign_end(px_dl_managed *managed) {
  foreign_tensor *self = (foreign_tensor *)managed;
  ext_gil gil;
  if (ext_gil_take(&gil) != PX_OK) return;
  if (self->owner->deleter) self->owner->deleter(self->owner);
  PyMem_Free(self);
  ext_gil_give(&gil);
}
static px_dl_managed *foreign_new(px_dl_managed *owner) {
  foreign_tensor *self = PyMem_Malloc(sizeof *self);
  if (!self) return (void *)PyErr_NoMemory();
  *self = (foreign_tensor){{owner->dl_tensor, NULL, foreign_end}, owner};
  return &self->managed;
}

EXT_FUNCTION(
    torch, _take_capsule, "(capsule: object) -> Tensor",
    "Returns the tensor of a capsule and renames the capsule to prevent a second import.") {
  px_tensor *tensor;
  EXT_ARGS(PyObject *, capsule);
  px_dl_managed *given = PyCapsule_GetPointer(capsule, "dltensor");
  bool own = given && PyCapsule_GetDestructor(capsule) == capsule_end;
  px_dl_managed *managed = given && !own ? foreign_new(given) : given;
  if (!managed) return NULL;
  if (px_dlpack_import_take(&tensor, managed) != PX_OK) {
    if (!own) PyMem_Free(managed);
    return ext_raise();
  }
  PyCapsule_SetName(capsule, "used_dltensor");
  return ext_wrap(tensor);
}
EXT_FUNCTION(cuda, _native_stream, "(device: int) -> int",
             "Returns the handle of a device's current stream for the protocol.") {
  px_stream *stream;
  EXT_ARGS(int64_t, device);
  EXT_TRY(px_stream_current(&stream, px_cuda(ext_clamp_device_index(device))));
  return PyLong_FromVoidPtr(px_stream_native(stream));
}
