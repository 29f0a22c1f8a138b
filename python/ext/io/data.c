// SPDX-License-Identifier: Apache-2.0
// Core functions of torch.utils.data (python/phlox/utils/data): random orders, rows of tensors,
// seeds.
#include "phlox/data.h"
#include "bind/ext.h"

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

// Indices of a list of non-negative ints as an array, to be freed by the caller; *count is 0 for
// other objects.
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
    "Returns the selected rows of each tensor of a TensorDataset. For indices other than a list of "
    "non-negative ints, returns the result of otherwise(), or None.") {
  PyObject *dataset, *otherwise, *indices_;
  EXT_TENSORS tensors = {0};
  px_list *list = NULL;
  Py_ssize_t count;
  EXT_BIND(dataset, otherwise, indices_);
  static PyObject *name;
  if (!name && !(name = PyUnicode_InternFromString("tensors"))) return NULL;
  EXT_OWNED *given = PyObject_GetAttr(dataset, name);
  bool fits = given && ext_to_tensors(&tensors, given, "TensorDataset") == 0;
  int64_t *indices = !fits ? NULL : plain_indices(indices_, &count);
  if (!indices) return NULL;
  px_status status =
      count ? px_collate_rows(&list, tensors.items, (int)tensors.count, indices, count) : PX_OK;
  PyMem_Free(indices);
  EXT_TRY(status);
  if (!list) return otherwise ? PyObject_CallOneArg(otherwise, indices_) : Py_NewRef(Py_None);
  EXT_OWNED *made = ext_wrap_list(list);
  return made ? PySequence_List(made) : NULL;
}

// ---- batches of a sampler
typedef struct batches_object {
  PyObject_HEAD PyObject *sampler, *order;  // order: the iterator, created for the first batch
  int64_t size;                             // 0 after the last batch
  bool drop_last;
} batches_object;
EXT_OWNS(batches, EXT_OBJECT(batches_object, sampler), EXT_OBJECT(batches_object, order));

static PyObject *batches_next(PyObject *object) {
  batches_object *self = (batches_object *)object;
  if (!self->order && !(self->order = PyObject_GetIter(self->sampler))) return NULL;
  EXT_OWNED *batch = PyList_New(0);
  while (batch && PyList_GET_SIZE(batch) < self->size) {
    EXT_OWNED *item = PyIter_Next(self->order);
    if (item ? PyList_Append(batch, item) < 0 : PyErr_Occurred() != NULL) return NULL;
    if (item) continue;
    self->size = 0;
    if (self->drop_last) return NULL;
  }
  return batch && PyList_GET_SIZE(batch) ? ext_moved(&batch) : NULL;
}
EXT_TYPE(batches, "torch.utils.data._Batches", "", batches_object, EXT_GC,
         "Iterator over batches of a sampler.", EXT_LIFETIME_SLOTS(batches),
         .tp_iter = PyObject_SelfIter, .tp_iternext = batches_next);

EXT_FUNCTION(
    torch, _batches, "(sampler: Iterable, size: int, drop_last: bool) -> Iterator",
    "Returns an iterator over lists of `size` items of the sampler. The last list is shorter, "
    "or dropped with drop_last.") {
  PyObject *sampler;
  int64_t size;
  bool drop_last;
  EXT_BIND(sampler, size, drop_last);
  batches_object *made = ext_new(&batches_type);
  if (!made) return NULL;
  made->sampler = Py_NewRef(sampler), made->size = size, made->drop_last = drop_last;
  return (PyObject *)made;
}

EXT_FUNCTION(torch, _draw_seed, "(generator: Generator | None) -> int", NULL) {
  int64_t seed;
  EXT_ARGS(px_generator *, generator);
  EXT_TRY(px_seed_draw(&seed, generator));
  return PyLong_FromLongLong(seed);
}
