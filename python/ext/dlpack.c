// SPDX-License-Identifier: Apache-2.0
// Tensor.__dlpack__, __dlpack_device__ and from_dlpack: capsules named "dltensor", renamed once
// they are taken, as the protocol says. https://dmlc.github.io/dlpack/latest/python_spec.html
#include "phlox/dlpack.h"

#include "ext.h"

static void capsule_end(PyObject *capsule) {
  px_dl_managed *managed =
      PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
  if (managed) managed->deleter(managed);
}

// The consumer's stream is awaited by the host: its handle is not one of ours. -1 asks for no
// order.
static int wait_for(px_tensor *tensor, PyObject *stream) {
  bool none = stream && PyLong_Check(stream) && PyLong_AsLong(stream) == -1;
  if (none || !px_tensor_is_cuda(tensor)) return 0;
  px_stream *current;
  EXT_TRY_INT(px_stream_current(&current, px_tensor_device(tensor)));
  EXT_TRY_INT(EXT_NOGIL(px_stream_synchronize(current)));
  return 0;
}

EXT_FAST(tensor_dlpack) {
  EXT_ARGS("__dlpack__", "|stream$max_version dl_device copy", out);
  px_tensor *tensor = ext_tensor(self);
  px_dl_managed *managed;
  if (px_tensor_requires_grad(tensor))
    EXT_FAIL(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
  if (wait_for(tensor, out[0]) < 0) return NULL;
  EXT_TRY(px_dlpack_export(&managed, tensor, NULL));
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

static PyObject *from_dlpack(PyObject *self, PyObject *object) {
  if (PyCapsule_CheckExact(object)) return take(object);
  EXT_OWNED *capsule = PyObject_CallMethod(object, "__dlpack__", NULL);
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

int ext_init_dlpack(PyObject *m) {
  EXT_OWNED *utils = PyObject_GetAttrString(m, "utils");
  if (!utils || !ext_submodule(utils, "dlpack", functions)) return -1;
  if (PyModule_AddFunctions(m, functions) < 0) return -1;
  return ext_add_methods(&ext_TensorType, methods);
}
