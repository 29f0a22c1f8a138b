// SPDX-License-Identifier: Apache-2.0
// Copies, cuts, joins and sums of tensors over devices, for torch.cuda.comm (phlox/cuda/comm.py),
// which checks the arguments.
#include "phlox/parallel.h"

#include "ext.h"

enum { LIMIT = 64 };

// The devices with the indices.
static int devices_of(const ext_ints *indices, px_device *out) {
  if (indices->count > LIMIT) EXT_FAIL_INT(PyExc_ValueError, "at most %d devices", LIMIT);
  for (int i = 0; i < indices->count; i++) out[i] = px_cuda((int)indices->items[i]);
  return indices->count;
}

// A list of new references, which it takes.
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

EXT_FUNCTION(cuda, _broadcast, "(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]", NULL) {
  px_tensor *tensor, *results[LIMIT];
  ext_ints devices;
  px_device to[LIMIT];
  EXT_BIND(tensor, devices);
  int count = devices_of(&devices, to);
  if (count < 0) return NULL;
  EXT_WAIT(px_broadcast(results, tensor, to, count));
  return list_of(results, count);
}

EXT_FUNCTION(cuda, _reduce_add, "(tensors: Sequence[Tensor], device: Device | None) -> Tensor",
             NULL) {
  PyObject *tensors;
  px_device device;
  px_tensor *items[LIMIT], *sum = NULL;
  EXT_OWNED *keep = NULL;
  EXT_BIND(tensors, device);
  int count = ext_to_tensors(tensors, items, LIMIT, "reduce_add", &keep);
  if (count < 0) return NULL;
  EXT_WAIT(px_reduce_add(&sum, items, count, device));
  return ext_wrap(sum);
}

EXT_FUNCTION(cuda, _scatter,
             "(tensor: Tensor, devices: Sequence[int], sizes: Sequence[int] | None, dim: int) -> "
             "list[Tensor]",
             NULL) {
  px_tensor *tensor, *results[LIMIT] = {NULL};
  ext_ints devices, sizes;
  int64_t dim;
  px_device to[LIMIT];
  EXT_BIND(tensor, devices, sizes, dim);
  int count = devices_of(&devices, to);
  if (count < 0) return NULL;
  if (sizes.count < 0)
    EXT_WAIT(px_scatter_parts(results, &count, tensor, to, count, (int)dim));
  else
    EXT_WAIT(px_scatter_sizes(results, tensor, to, sizes.items, count, (int)dim));
  return list_of(results, count);
}

EXT_FUNCTION(cuda, _gather, "(tensors: Sequence[Tensor], dim: int, device: Device) -> Tensor",
             NULL) {
  PyObject *tensors;
  int64_t dim;
  px_device device;
  px_tensor *items[LIMIT], *joined = NULL;
  EXT_OWNED *keep = NULL;
  EXT_BIND(tensors, dim, device);
  int count = ext_to_tensors(tensors, items, LIMIT, "gather", &keep);
  if (count < 0) return NULL;
  EXT_WAIT(px_gather_parts(&joined, items, count, device, (int)dim));
  return ext_wrap(joined);
}
