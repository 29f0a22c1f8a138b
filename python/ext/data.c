// SPDX-License-Identifier: Apache-2.0
// What torch.utils.data, which is Python (python/phlox/utils/data), asks of the core: random
// orders, rows of tensors, the seed of a pass.
#include "phlox/data.h"
#include "ext.h"

EXT_FUNCTION(
    torch, _random_order,
    "(length: int, count: int, replacement: bool, generator: Generator | None) -> list[int]",
    NULL) {
  int64_t length, count;
  bool replacement;
  px_generator *generator;
  EXT_BIND(length, count, replacement, generator);
  int64_t *order = PyMem_Malloc((size_t)(count > 0 ? count : 1) * sizeof *order);
  if (!order) return PyErr_NoMemory();
  px_status status = px_random_order(order, length, count, replacement, generator);
  PyObject *list = status == PX_OK ? PyList_New((Py_ssize_t)count) : ext_raise();
  for (Py_ssize_t i = 0; list && i < count; i++) {
    PyObject *index = PyLong_FromLongLong(order[i]);
    if (index)
      PyList_SET_ITEM(list, i, index);
    else
      Py_CLEAR(list);
  }
  PyMem_Free(order);
  return list;
}

// The indices of a list of ints from 0, as an array to be freed; *count 0 where it is something
// else.
static int64_t *plain_indices(PyObject *list, Py_ssize_t *count) {
  *count = PyList_CheckExact(list) ? PyList_GET_SIZE(list) : 0;
  int64_t *indices = PyMem_Malloc((size_t)(*count ? *count : 1) * sizeof *indices);
  if (!indices) return (int64_t *)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < *count; i++) {
    PyObject *item = PyList_GET_ITEM(list, i);
    indices[i] = PyLong_CheckExact(item) ? PyLong_AsLongLong(item) : -1;
    if (indices[i] < 0) *count = 0;
  }
  PyErr_Clear();
  return indices;
}

EXT_FUNCTION(
    torch, _rows, "(dataset: object, otherwise: Callable | None, indices: object) -> Any",
    "The rows of each of a TensorDataset's tensors, cut out at once. What otherwise() gives, "
    "or None, for indices that are no list of ints from 0.") {
  enum { LIMIT = 64 };
  PyObject *dataset, *otherwise, *indices_;
  px_tensor *tensors[LIMIT];
  px_list *list = NULL;
  Py_ssize_t count;
  EXT_OWNED *keep = NULL;
  EXT_BIND(dataset, otherwise, indices_);
  EXT_OWNED *given = PyObject_GetAttrString(dataset, "tensors");
  int n = given ? ext_to_tensors(given, tensors, LIMIT, "TensorDataset", &keep) : -1;
  int64_t *indices = n < 0 ? NULL : plain_indices(indices_, &count);
  if (!indices) return NULL;
  px_status status = count ? px_collate_rows(&list, tensors, n, indices, count) : PX_OK;
  PyMem_Free(indices);
  EXT_TRY(status);
  if (!list) return otherwise ? PyObject_CallOneArg(otherwise, indices_) : Py_NewRef(Py_None);
  EXT_OWNED *made = ext_wrap_list(list);
  return made ? PySequence_List(made) : NULL;
}

EXT_FUNCTION(torch, _batch, "(order: Iterator, size: int, drop_last: bool) -> list",
             "The next items, as many as `size`, or what is left of them, but for drop_last.") {
  PyObject *order;
  int64_t size;
  bool drop_last;
  EXT_BIND(order, size, drop_last);
  EXT_OWNED *batch = PyList_New(0);
  while (batch && PyList_GET_SIZE(batch) < size) {
    EXT_OWNED *item = PyIter_Next(order);
    if (PyErr_Occurred() || (item && PyList_Append(batch, item) < 0)) return NULL;
    if (!item) return drop_last ? PyList_New(0) : ext_moved(&batch);
  }
  return ext_moved(&batch);
}

EXT_FUNCTION(torch, _draw_seed, "(generator: Generator | None) -> int", NULL) {
  int64_t seed;
  EXT_ARGS(px_generator *, generator);
  EXT_TRY(px_seed_draw(&seed, generator));
  return PyLong_FromLongLong(seed);
}
