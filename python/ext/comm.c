// SPDX-License-Identifier: Apache-2.0
// torch.cuda.comm: copies, cuts, joins and sums of tensors over devices, by hand.
#include "phlox/parallel.h"

#include "ext.h"
#include "phlox/ops.h"

enum { LIMIT = 64 };

// Tensors or devices of a Python sequence; -1 with an exception.
static int tensors_of(PyObject *object, const char *function, px_tensor **out) {
  EXT_OWNED *list = PySequence_Fast(object, "a sequence of tensors is wanted");
  if (!list) return -1;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
  if (count > LIMIT) EXT_FAIL_INT(PyExc_ValueError, "at most %d tensors", LIMIT);
  for (Py_ssize_t i = 0; i < count; i++)
    if (!(out[i] = ext_need_tensor(PySequence_Fast_GET_ITEM(list, i), function, "tensors")))
      return -1;
  return (int)count;
}

static int devices_of(PyObject *object, px_device *out) {
  EXT_OWNED *list = PySequence_Fast(object, "devices must be a sequence of devices");
  if (!list) return -1;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
  if (count > LIMIT) EXT_FAIL_INT(PyExc_ValueError, "at most %d devices", LIMIT);
  for (Py_ssize_t i = 0; i < count; i++) {
    int index;
    if (ext_to_cuda_index(PySequence_Fast_GET_ITEM(list, i), &index) < 0) return -1;
    out[i] = px_cuda(index);
  }
  return (int)count;
}

// A list of new references, which it takes.
static PyObject *list_of(px_tensor **tensors, int count) {
  PyObject *list = PyList_New(count);
  for (int i = 0; i < count; i++) {
    PyObject *item = list ? ext_wrap(tensors[i]) : (px_release(tensors[i]), NULL);
    if (list && item)
      PyList_SET_ITEM(list, i, item);
    else
      Py_CLEAR(list);
  }
  return list;
}

// Copies into the tensors of `out`, which must be on devices.
static PyObject *copy_to(PyObject *out, px_tensor *tensor) {
  px_tensor *to[LIMIT];
  int count = tensors_of(out, "broadcast", to);
  for (int i = 0; i < count; i++) {
    char device[PX_DEVICE_TEXT];
    if (!px_tensor_is_cuda(to[i]))
      EXT_FAIL(PyExc_RuntimeError,
               "Expected all output tensors to be CUDA tensors, but output tensor at index %d has "
               "device '%s'",
               i, px_device_format(px_tensor_device(to[i]), device));
    EXT_WAIT(px_copy_(to[i], tensor, true));
  }
  return count < 0 ? NULL : Py_NewRef(out);
}

EXT_FAST(broadcast) {
  EXT_ARGS("broadcast", "tensor|devices$out", out);
  px_tensor *tensor = ext_need_tensor(out[0], "broadcast", "tensor"), *results[LIMIT];
  px_device devices[LIMIT];
  if (!tensor) return NULL;
  if (ext_is_none(out[1]) == ext_is_none(out[2]))
    EXT_FAIL(PyExc_RuntimeError,
             "Exactly one of 'devices' and 'out' must be specified, but got devices=%S and out=%S",
             out[1] ? out[1] : Py_None, out[2] ? out[2] : Py_None);
  if (!ext_is_none(out[2])) return copy_to(out[2], tensor);
  int count = devices_of(out[1], devices);
  if (count < 0) return NULL;
  EXT_WAIT(px_broadcast(results, tensor, devices, count));
  return list_of(results, count);
}

EXT_FAST(reduce_add) {
  EXT_ARGS("reduce_add", "inputs|destination", out);
  px_tensor *inputs[LIMIT], *sum = NULL;
  px_device to = PX_DEVICE_NONE;
  int index, count = tensors_of(out[0], "reduce_add", inputs);
  if (count < 0) return NULL;
  if (!ext_is_none(out[1])) {
    if (ext_to_cuda_index(out[1], &index) < 0) return NULL;
    to = px_cuda(index);
    bool there = false;
    for (int i = 0; i < count; i++) there |= px_device_equal(px_tensor_device(inputs[i]), to);
    if (!there)
      EXT_FAIL(PyExc_RuntimeError,
               "reduce_add expects destination to be on the same GPU with one of the tensors");
  }
  EXT_WAIT(px_reduce_add(&sum, inputs, count, to));
  return ext_wrap(sum);
}

static int check_sizes(px_tensor *tensor, int64_t dim, const ext_ints *sizes, int devices,
                       PyObject *given) {
  int64_t sum = 0, whole = px_tensor_size(tensor, (int)dim);
  for (int i = 0; i < sizes->count; i++) sum += sizes->items[i];
  if (sizes->count != devices)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Expected devices and chunk_sizes to be of same length, but got len(devices) = %d "
                 "and len(chunk_sizes) = %d",
                 devices, sizes->count);
  if (sum != whole)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "split_with_sizes expects split_sizes to sum exactly to %lld (input tensor's size "
                 "at dimension %lld), but got split_sizes=%S",
                 (long long)whole, (long long)dim, given);
  return 0;
}

EXT_FAST(scatter) {
  EXT_ARGS("scatter", "tensor devices|chunk_sizes dim", out);
  px_tensor *tensor = ext_need_tensor(out[0], "scatter", "tensor"), *results[LIMIT] = {NULL};
  px_device devices[LIMIT];
  ext_ints sizes;
  int64_t dim = 0;
  int count = tensor ? devices_of(out[1], devices) : -1;
  if (count < 0 || (!ext_is_none(out[3]) && ext_to_int(out[3], &dim) < 0)) return NULL;
  if (ext_is_none(out[2])) {
    EXT_WAIT(px_scatter_parts(results, &count, tensor, devices, count, (int)dim));
  } else {
    if (ext_to_ints(out[2], &sizes) < 0 || check_sizes(tensor, dim, &sizes, count, out[2]) < 0)
      return NULL;
    EXT_WAIT(px_scatter_sizes(results, tensor, devices, sizes.items, count, (int)dim));
  }
  EXT_OWNED *list = list_of(results, count);
  return list ? PyList_AsTuple(list) : NULL;
}

// Where a gather goes: the current device, a device, or -1 for the CPU.
static int destination_of(PyObject *object, px_device *out) {
  int64_t index = 0;
  *out = px_cuda(-1);
  if (!ext_is_none(object) && PyLong_Check(object) && ext_to_int(object, &index) == 0 &&
      index == -1) {
    *out = px_cpu();
    return PyErr_WarnEx(PyExc_FutureWarning,
                        "Using -1 to represent CPU tensor is deprecated. Please use a device "
                        "object or string instead, e.g., \"cpu\".",
                        1);
  }
  if (!ext_is_none(object) && ext_to_device(object, out) < 0) return -1;
  EXT_TRY_INT(px_device_resolve(out, *out));
  return 0;
}

static int check_shape(px_tensor *const *tensors, int i, int64_t dim) {
  char device[PX_DEVICE_TEXT];
  if (!px_tensor_is_cuda(tensors[i]))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Expected all input tensors to be CUDA tensors, but tensor at index %d has device "
                 "%s",
                 i, px_device_format(px_tensor_device(tensors[i]), device));
  int ndim = px_tensor_ndim(tensors[0]);
  bool same = px_tensor_ndim(tensors[i]) == ndim;
  int64_t wanted[PX_MAX_DIMS];
  for (int d = 0; same && d < ndim; d++) {
    wanted[d] = px_tensor_sizes(tensors[d == dim ? i : 0])[d];
    same = px_tensor_sizes(tensors[i])[d] == wanted[d];
  }
  if (same) return 0;
  for (int d = 0; d < ndim; d++) wanted[d] = px_tensor_sizes(tensors[0])[d];
  if (dim < ndim && px_tensor_ndim(tensors[i]) == ndim)
    wanted[dim] = px_tensor_sizes(tensors[i])[dim];
  EXT_OWNED *got = ext_size(px_tensor_ndim(tensors[i]), px_tensor_sizes(tensors[i]));
  EXT_OWNED *due = ext_size(ndim, wanted);
  EXT_OWNED *got_list = got ? PySequence_List(got) : NULL;
  EXT_OWNED *due_list = due ? PySequence_List(due) : NULL;
  if (!got_list || !due_list) return -1;
  EXT_FAIL_INT(PyExc_RuntimeError, "Input tensor at index %d has invalid shape %S, but expected %S",
               i, got_list, due_list);
}

EXT_FAST(gather) {
  EXT_ARGS("gather", "tensors|dim destination", out);
  px_tensor *tensors[LIMIT], *joined = NULL;
  px_device to;
  int64_t dim = 0;
  int count = tensors_of(out[0], "gather", tensors);
  if (count < 0 || (!ext_is_none(out[1]) && ext_to_int(out[1], &dim) < 0)) return NULL;
  if (dim < 0 && count) dim += px_tensor_ndim(tensors[0]);
  if (dim < 0 || dim >= PX_MAX_DIMS)
    EXT_FAIL(PyExc_IndexError, "Dimension out of range (got %lld)", (long long)dim);
  for (int i = 0; i < count; i++)
    if (check_shape(tensors, i, dim) < 0) return NULL;
  if (destination_of(out[2], &to) < 0) return NULL;
  EXT_WAIT(px_gather_parts(&joined, tensors, count, to, (int)dim));
  return ext_wrap(joined);
}

static PyMethodDef functions[] = {EXT_DEF("broadcast", broadcast),
                                  EXT_DEF("scatter", scatter),
                                  EXT_DEF("gather", gather),
                                  EXT_DEF("reduce_add", reduce_add),
                                  {NULL, NULL, 0, NULL}};

static int ext_init_comm(PyObject *m) {
  PyObject *cuda = ext_submodule(m, "cuda", NULL);
  return cuda && ext_submodule(cuda, "comm", functions) ? 0 : -1;
}
EXT_START(EXT_VALUES, ext_init_comm);
