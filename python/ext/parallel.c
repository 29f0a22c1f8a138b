// SPDX-License-Identifier: Apache-2.0
// What torch.nn.parallel, which is Python (python/phlox/nn/parallel.py), asks of the core: tensors
// cut and joined, replicas of a module, and a thread for each.
#include "parallel.h"

#include "nn.h"
#include "phlox/parallel.h"

enum { LIMIT = 64 };

typedef struct devices {
  px_device at[LIMIT];
  int count;
} devices;

static int to_devices(PyObject *object, devices *out) {
  EXT_OWNED *sequence = PySequence_Fast(object, "device_ids must be a sequence of devices");
  if (!sequence) return -1;
  out->count = (int)PySequence_Fast_GET_SIZE(sequence);
  if (out->count > LIMIT) EXT_FAIL_INT(PyExc_ValueError, "at most %d devices", LIMIT);
  for (int i = 0; i < out->count; i++) {
    int index;
    if (ext_to_cuda_index(PySequence_Fast_GET_ITEM(sequence, i), &index) < 0) return -1;
    out->at[i] = px_cuda(index);
  }
  return 0;
}

// _device_indices(devices): a list of them.
static PyObject *device_indices(PyObject *self, PyObject *given) {
  devices to;
  if (to_devices(given, &to) < 0) return NULL;
  PyObject *list = PyList_New(to.count);
  for (int i = 0; list && i < to.count; i++)
    PyList_SET_ITEM(list, i, PyLong_FromLong(to.at[i].index));
  return list;
}

// _scatter_tensor(tensor, devices, dim): a list of its parts.
static PyObject *scatter_tensor(PyObject *self, PyObject *args) {
  PyObject *tensor, *given;
  devices to;
  int dim, count = 0;
  px_tensor *parts[LIMIT] = {NULL};
  if (!PyArg_ParseTuple(args, "OOi", &tensor, &given, &dim) || to_devices(given, &to) < 0 ||
      !ext_need_tensor(tensor, "scatter", "inputs"))
    return NULL;
  EXT_WAIT(px_scatter_parts(parts, &count, ext_tensor(tensor), to.at, to.count, dim));
  PyObject *list = PyList_New(count);
  for (int i = 0; i < count; i++) {
    PyObject *part = list ? ext_wrap(parts[i]) : (px_release(parts[i]), NULL);
    if (list && part)
      PyList_SET_ITEM(list, i, part);
    else
      Py_CLEAR(list);
  }
  return list;
}

// The target of a gather: a device, an index, or -1 for the CPU.
static int to_target(PyObject *object, px_device *out) {
  int64_t index = 0;
  if (PyLong_Check(object) && ext_to_int(object, &index) == 0 && index == -1)
    return *out = px_cpu(), 0;
  if (ext_to_device(object, out) < 0) return -1;
  EXT_TRY_INT(px_device_resolve(out, *out));
  return 0;
}

// _gather_tensors(tensors, target, dim): them as one.
static PyObject *gather_tensors(PyObject *self, PyObject *args) {
  PyObject *given, *target;
  EXT_OWNED *keep = NULL;
  px_tensor *parts[LIMIT], *result;
  px_device to;
  int dim;
  if (!PyArg_ParseTuple(args, "OOi", &given, &target, &dim) || to_target(target, &to) < 0)
    return NULL;
  int count = ext_to_tensors(given, parts, LIMIT, "gather", &keep);
  if (count < 0) return NULL;
  EXT_WAIT(px_gather_parts(&result, parts, count, to, dim));
  return ext_wrap(result);
}

// ---- replicas

// _data_parallel_check(module, device): RuntimeError unless all of it is there.
static PyObject *data_parallel_check(PyObject *self, PyObject *args) {
  PyObject *module, *given;
  int index;
  if (!PyArg_ParseTuple(args, "OO", &module, &given) || ext_to_cuda_index(given, &index) < 0)
    return NULL;
  EXT_TRY(px_data_parallel_check(ext_module(module), px_cuda(index)));
  Py_RETURN_NONE;
}

static PyObject *shallow(PyObject *dict, PyObject *memo) { return PyDict_Copy(dict); }

// _replicate(module, devices): a list of replicas.
static PyObject *replicate(PyObject *self, PyObject *args) {
  PyObject *module, *given;
  devices to;
  px_module *copies[LIMIT] = {NULL};
  if (!PyArg_ParseTuple(args, "OO", &module, &given) || to_devices(given, &to) < 0) return NULL;
  EXT_WAIT(px_replicate(copies, ext_module(module), to.at, to.count));
  PyObject *list = PyList_New(to.count);
  for (int i = 0; i < to.count; i++) {
    PyObject *replica = list ? ext_module_mirror(module, copies[i], shallow, NULL) : NULL;
    if (replica)
      PyList_SET_ITEM(list, i, replica);
    else
      Py_CLEAR(list);
    px_release(copies[i]);
  }
  return list;
}

// ---- threads

typedef struct application {
  PyObject *modules, *inputs, *kwargs;  // lists: of callables, tuples, dicts
  PyObject *results[LIMIT];
  const px_device *devices;
} application;

// Runs on a thread of its own.
static px_status apply_one(int i, void *context) {
  application *a = context;
  PyGILState_STATE gil = PyGILState_Ensure();
  px_status status = PX_OK;
  a->results[i] = PyObject_Call(PyList_GET_ITEM(a->modules, i), PyList_GET_ITEM(a->inputs, i),
                                PyList_GET_ITEM(a->kwargs, i));
  if (!a->results[i]) {
    char where[64];
    snprintf(where, sizeof where, "in replica %d on device %d", i, a->devices[i].index);
    ext_rewrap(where);
    status = ext_foreign();
  }
  PyGILState_Release(gil);
  return status;
}

// _parallel_apply(modules, inputs, kwargs, devices): what each module gives, on its own thread.
static PyObject *parallel_apply(PyObject *self, PyObject *args) {
  application a = {.results = {NULL}};
  PyObject *given;
  devices to;
  if (!PyArg_ParseTuple(args, "O!O!O!O", &PyList_Type, &a.modules, &PyList_Type, &a.inputs,
                        &PyList_Type, &a.kwargs, &given) ||
      to_devices(given, &to) < 0)
    return NULL;
  a.devices = to.at;
  px_status status = EXT_NOGIL(px_parallel_apply(to.count, to.at, apply_one, &a));
  PyObject *list = status == PX_OK ? PyList_New(to.count) : ext_raise();
  for (int i = 0; i < to.count; i++) {
    if (list)
      PyList_SET_ITEM(list, i, a.results[i]);
    else
      Py_XDECREF(a.results[i]);
  }
  return list;
}

static PyMethodDef functions[] = {{"_device_indices", device_indices, METH_O, NULL},
                                  {"_scatter_tensor", scatter_tensor, METH_VARARGS, NULL},
                                  {"_gather_tensors", gather_tensors, METH_VARARGS, NULL},
                                  {"_data_parallel_check", data_parallel_check, METH_VARARGS, NULL},
                                  {"_replicate", replicate, METH_VARARGS, NULL},
                                  {"_parallel_apply", parallel_apply, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static int ext_init_parallel(PyObject *m) { return PyModule_AddFunctions(m, functions); }
EXT_START(EXT_UPPER, ext_init_parallel);
