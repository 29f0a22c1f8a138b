// SPDX-License-Identifier: Apache-2.0
// Core functions of torch.nn.parallel and torch.cuda.comm (phlox/nn/parallel.py,
// phlox/cuda/comm.py): broadcast, scatter, gather and sum of tensors over devices, module replicas,
// and a thread per replica.
#include "nn/nn.h"
#include "phlox/parallel.h"

enum { LIMIT = 64 };

typedef struct devices {
  px_device at[LIMIT];
  int count;
} devices;

static int to_devices(PyObject *object, devices *out) {
  EXT_OWNED *sequence = ext_items(object, "device_ids must be a sequence of devices");
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

EXT_FUNCTION(torch, _device_indices, "(devices: Sequence[Device]) -> list[int]", NULL) {
  devices to;
  EXT_ARGS(PyObject *, devices_);
  if (to_devices(devices_, &to) < 0) return NULL;
  PyObject *list = PyList_New(to.count);
  for (int i = 0; list && i < to.count; i++)
    PyList_SET_ITEM(list, i, PyLong_FromLong(to.at[i].index));
  return list;
}

// ---- tensors

// A list of tensors, whose references it takes.
static PyObject *list_of(px_tensor **tensors_take, int count) {
  PyObject *list = PyList_New(count);
  for (int i = 0; i < count; i++) {
    PyObject *item = list ? ext_wrap(tensors_take[i]) : (px_release(tensors_take[i]), NULL);
    if (list && item)
      PyList_SET_ITEM(list, i, item);
    else
      Py_CLEAR(list);
  }
  return list;
}

EXT_FUNCTION(torch, _broadcast, "(tensor: Tensor, devices: Sequence[Device]) -> list[Tensor]",
             NULL) {
  px_tensor *tensor, *copies[LIMIT];
  PyObject *devices_;
  devices to;
  EXT_BIND(tensor, devices_);
  if (to_devices(devices_, &to) < 0) return NULL;
  EXT_WAIT(px_broadcast(copies, tensor, to.at, to.count));
  return list_of(copies, to.count);
}

EXT_FUNCTION(torch, _scatter_tensor,
             "(tensor: Tensor, devices: Sequence[Device], dim: int, sizes: Sequence[int] | None = "
             "None) -> list[Tensor]",
             "Splits a tensor over the devices; into fewer parts if they come out even.") {
  px_tensor *tensor, *parts[LIMIT] = {NULL};
  PyObject *devices_;
  devices to;
  int64_t dim;
  ext_ints sizes;
  EXT_BIND(tensor, devices_, dim, sizes);
  if (to_devices(devices_, &to) < 0) return NULL;
  int count = to.count;
  if (sizes.count < 0)
    EXT_WAIT(px_scatter_parts(parts, &count, tensor, to.at, to.count, (int)dim));
  else
    EXT_WAIT(px_scatter_sizes(parts, tensor, to.at, sizes.items, count, (int)dim));
  return list_of(parts, count);
}

EXT_FUNCTION(torch, _reduce_add, "(tensors: Sequence[Tensor], device: Device | None) -> Tensor",
             NULL) {
  PyObject *tensors;
  px_device device;
  px_tensor *sum = NULL;
  EXT_TENSORS given = {0};
  EXT_BIND(tensors, device);
  if (ext_to_tensors(&given, tensors, "reduce_add") < 0) return NULL;
  return ext_result(EXT_NOGIL(px_reduce_add(&sum, given.items, (int)given.count, device)), &sum);
}

// Target of a gather: a device, an index, or -1 for the CPU.
static int to_target(PyObject *object, px_device *out) {
  int64_t index = 0;
  if (PyLong_Check(object) && ext_to_int(object, &index) == 0 && index == -1)
    return *out = px_cpu(), 0;
  if (ext_to_device(object, out) < 0) return -1;
  return ext_zero(px_device_resolve(out, *out));
}

EXT_FUNCTION(torch, _gather_tensors,
             "(tensors: Sequence[Tensor], target: Device, dim: int) -> Tensor", NULL) {
  PyObject *tensors, *target;
  EXT_TENSORS parts = {0};
  px_tensor *result;
  px_device to;
  int64_t dim;
  EXT_BIND(tensors, target, dim);
  if (to_target(target, &to) < 0) return NULL;
  if (ext_to_tensors(&parts, tensors, "gather") < 0) return NULL;
  return ext_result(
      EXT_NOGIL(px_gather_parts(&result, parts.items, (int)parts.count, to, (int)dim)), &result);
}

// ---- replicas

EXT_FUNCTION(torch, _data_parallel_check, "(module: Module, device: Device) -> None",
             "Raises RuntimeError unless all of the module is on the device.") {
  px_module *module;
  ext_cuda device;
  EXT_BIND(module, device);
  return ext_none(px_data_parallel_check(module, px_cuda(device.index)));
}

static PyObject *shallow(PyObject *dict, PyObject *memo) { return PyDict_Copy(dict); }

EXT_FUNCTION(torch, _replicate, "(module: Module, devices: Sequence[Device]) -> list[Module]",
             NULL) {
  px_module *module;
  PyObject *devices_;
  devices to;
  px_module *copies[LIMIT] = {NULL};
  EXT_BIND(module, devices_);
  if (to_devices(devices_, &to) < 0) return NULL;
  EXT_WAIT(px_replicate(copies, module, to.at, to.count));
  PyObject *list = PyList_New(to.count);
  for (int i = 0; i < to.count; i++) {
    PyObject *replica =
        list ? ext_module_mirror(px_module_user(module), copies[i], shallow, NULL) : NULL;
    if (replica)
      PyList_SET_ITEM(list, i, replica);
    else
      Py_CLEAR(list);
    px_release(copies[i]);
  }
  return list;
}

// ---- threads

typedef struct parallel_call {
  PyObject *modules, *inputs, *kwargs;  // lists: of callables, tuples, dicts
  PyObject *results[LIMIT];
  const px_device *devices;
} parallel_call;

// Re-raises the pending exception with its location prepended.
static void rewrap(const char *where) {
  EXT_OWNED *exception = ext_exception_take();
  PyObject *none =
      exception ? ext_call_from("phlox._errors", "rewrap", "(Os)", exception, where) : NULL;
  Py_XDECREF(none);
}

// Runs on a worker thread.
static px_status apply_one(int i, void *context) {
  parallel_call *a = context;
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  px_status status = PX_OK;
  a->results[i] = ext_apply(PyList_GET_ITEM(a->modules, i), PyList_GET_ITEM(a->inputs, i),
                            PyList_GET_ITEM(a->kwargs, i));
  if (!a->results[i]) {
    char where[64];
    snprintf(where, sizeof where, "in replica %d on device %d", i, a->devices[i].index);
    rewrap(where);
    status = ext_error_from_python();
  }
  ext_gil_give(&gil);
  return status;
}

EXT_FUNCTION(torch, _parallel_apply,
             "(modules: list, inputs: list, kwargs: list, devices: Sequence[Device]) -> list",
             "Calls each module on its own thread and returns the results.") {
  devices to;
  EXT_ARGS(PyObject *, modules, inputs, kwargs, devices_);
  if (to_devices(devices_, &to) < 0) return NULL;
  PyObject *lists[] = {modules, inputs, kwargs};
  for (int i = 0; i < EXT_LENGTH(lists); i++)
    if (!PyList_Check(lists[i]) || PyList_GET_SIZE(lists[i]) != to.count)
      EXT_FAIL(PyExc_AssertionError, "expected a module, inputs and kwargs for each device");
  parallel_call a = {modules, inputs, kwargs, {NULL}, to.at};
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
