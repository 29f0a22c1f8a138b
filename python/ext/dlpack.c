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

EXT_FAST(tensor_dlpack) {
  EXT_ARGS("__dlpack__", "|stream$max_version dl_device copy", out);
  PX_SCOPED(px_tensor) copy = NULL;
  px_tensor *tensor = ext_tensor(self);
  px_dl_managed *managed;
  void *native = NULL;
  if (px_tensor_requires_grad(tensor))
    EXT_FAIL(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
  if (check_device(tensor, out[2]) < 0) return NULL;
  if (px_tensor_is_cuda(tensor) && to_native(out[0], &native) < 0) return NULL;
  if (out[3] == Py_True) {
    EXT_TRY(px_clone(&copy, tensor, NULL));
    tensor = copy;
  }
  EXT_WAIT(export_to(&managed, tensor, native));
  PyObject *capsule = PyCapsule_New(managed, "dltensor", capsule_end);
  if (!capsule) managed->deleter(managed);
  return capsule;
}

static PyObject *tensor_dlpack_device(PyObject *self, PyObject *unused) {
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

static PyObject *from_dlpack(PyObject *self, PyObject *object) {
  if (PyCapsule_CheckExact(object)) return take(object);
  EXT_OWNED *keywords = NULL;
  EXT_OWNED *method = PyObject_GetAttrString(object, "__dlpack__");
  EXT_OWNED *none = PyTuple_New(0);
  if (!method || !none || our_stream(&keywords, object) < 0) return NULL;
  EXT_OWNED *capsule = PyObject_Call(method, none, keywords);
  return capsule ? take(capsule) : NULL;
}

static PyObject *to_dlpack(PyObject *self, PyObject *tensor) {
  return PyObject_CallMethod(tensor, "__dlpack__", NULL);
}

static PyMethodDef methods[] = {EXT_DEF("__dlpack__", tensor_dlpack),
                                {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyMethodDef functions[] = {{"from_dlpack", from_dlpack, METH_O, NULL},
                                  {"to_dlpack", to_dlpack, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

static int ext_init_dlpack(PyObject *m) {
  EXT_OWNED *utils = PyObject_GetAttrString(m, "utils");
  if (!utils || !ext_submodule(utils, "dlpack", functions)) return -1;
  if (PyModule_AddFunctions(m, functions) < 0) return -1;
  return ext_add_methods(ext_TensorType, methods);
}
EXT_START(EXT_VALUES, ext_init_dlpack);
