// SPDX-License-Identifier: Apache-2.0
// Datasets: the base classes, rows of tensors, subsets, concatenations, random splits.
#include "data.h"

#include "phlox/ops.h"

typedef struct plain_object {
  PyObject_HEAD PyObject *dict;
} plain_object;

static void plain_dealloc(PyObject *object) {
  PyObject_GC_UnTrack(object);
  Py_CLEAR(((plain_object *)object)->dict);
  Py_TYPE(object)->tp_free(object);
}
static int plain_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(((plain_object *)object)->dict);
  return 0;
}
static int plain_clear(PyObject *object) {
  Py_CLEAR(((plain_object *)object)->dict);
  return 0;
}

static PyObject *no_item(PyObject *self, PyObject *index) {
  EXT_FAIL(PyExc_NotImplementedError, "Subclasses of Dataset should implement __getitem__.");
}
static PyObject *generic(PyObject *cls, PyObject *item) { return Py_NewRef(cls); }
static PyMethodDef generic_methods[] = {{"__class_getitem__", generic, METH_O | METH_CLASS, NULL},
                                        {NULL, NULL, 0, NULL}};
static PyMappingMethods no_mapping = {.mp_subscript = no_item};

// Makes datasets iterable: Python's iterator over a sequence asks for items by this slot.
static PyObject *item_at(PyObject *self, Py_ssize_t at) {
  EXT_OWNED *index = PyLong_FromSsize_t(at);
  return index ? PyObject_GetItem(self, index) : NULL;
}
static PySequenceMethods plain_sequence = {.sq_item = item_at};

#define PLAIN_TYPE(text, documentation) \
  PyVarObject_HEAD_INIT(NULL, 0).tp_name = text, .tp_basicsize = sizeof(plain_object), \
                              .tp_doc = documentation, \
                              .tp_flags = \
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, \
                              .tp_dealloc = plain_dealloc, .tp_traverse = plain_traverse, \
                              .tp_clear = plain_clear, .tp_new = PyType_GenericNew, \
                              .tp_dictoffset = offsetof(plain_object, dict)

PyTypeObject ext_DatasetType = {PLAIN_TYPE("torch.utils.data.Dataset", "Items by index."),
                                .tp_methods = generic_methods, .tp_as_mapping = &no_mapping,
                                .tp_as_sequence = &plain_sequence};
PyTypeObject ext_IterableDatasetType = {
    PLAIN_TYPE("torch.utils.data.IterableDataset", "Items in an order of their own."),
    .tp_base = &ext_DatasetType};

static int set(PyObject *self, const char *name, PyObject *value) {
  int status = value ? PyObject_SetAttrString(self, name, value) : -1;
  Py_XDECREF(value);
  return status;
}

static Py_ssize_t length_of(PyObject *self, const char *name) {
  EXT_OWNED *value = PyObject_GetAttrString(self, name);
  return value ? PyObject_Size(value) : -1;
}

// ---- TensorDataset

static int rows_init(PyObject *self, PyObject *args, PyObject *kwargs) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
    px_tensor *t = ext_need_tensor(PyTuple_GET_ITEM(args, i), "TensorDataset", "tensors");
    if (!t) return -1;
    if (px_tensor_ndim(t) == 0 ||
        px_tensor_size(t, 0) != px_tensor_size(ext_tensor(PyTuple_GET_ITEM(args, 0)), 0))
      EXT_FAIL_INT(PyExc_AssertionError, "Size mismatch between tensors");
  }
  return set(self, "tensors", Py_NewRef(args));
}

static Py_ssize_t rows_length(PyObject *self) {
  EXT_OWNED *tensors = PyObject_GetAttrString(self, "tensors");
  if (!tensors || !PyTuple_GET_SIZE(tensors)) return tensors ? 0 : -1;
  return (Py_ssize_t)px_tensor_size(ext_tensor(PyTuple_GET_ITEM(tensors, 0)), 0);
}

static PyObject *rows_item(PyObject *self, PyObject *index) {
  EXT_OWNED *tensors = PyObject_GetAttrString(self, "tensors");
  PyObject *row = tensors ? PyTuple_New(PyTuple_GET_SIZE(tensors)) : NULL;
  for (Py_ssize_t i = 0; row && i < PyTuple_GET_SIZE(row); i++) {
    PyObject *item = ext_getitem(PyTuple_GET_ITEM(tensors, i), index);
    if (item)
      PyTuple_SET_ITEM(row, i, item);
    else
      Py_CLEAR(row);
  }
  return row;
}

static PyMappingMethods rows_mapping = {.mp_length = rows_length, .mp_subscript = rows_item};
static PySequenceMethods rows_sequence = {.sq_length = rows_length};
PyTypeObject ext_TensorDatasetType = {
    PLAIN_TYPE("torch.utils.data.TensorDataset", "Rows of tensors of equal length."),
    .tp_base = &ext_DatasetType, .tp_init = rows_init, .tp_as_mapping = &rows_mapping,
    .tp_as_sequence = &rows_sequence};

// ---- Subset

static int subset_init(PyObject *self, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"Subset", "dataset indices", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return -1;
  return set(self, "dataset", Py_NewRef(out[0])) < 0 ? -1 : set(self, "indices", Py_NewRef(out[1]));
}

static Py_ssize_t subset_length(PyObject *self) { return length_of(self, "indices"); }

static PyObject *mapped(PyObject *self, PyObject *index) {
  EXT_OWNED *indices = PyObject_GetAttrString(self, "indices");
  if (!indices) return NULL;
  if (!PyList_Check(index)) return PyObject_GetItem(indices, index);
  PyObject *list = PyList_New(PyList_GET_SIZE(index));
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    PyObject *item = PyObject_GetItem(indices, PyList_GET_ITEM(index, i));
    if (item)
      PyList_SET_ITEM(list, i, item);
    else
      Py_CLEAR(list);
  }
  return list;
}

static PyObject *subset_item(PyObject *self, PyObject *index) {
  EXT_OWNED *dataset = PyObject_GetAttrString(self, "dataset");
  EXT_OWNED *at = dataset ? mapped(self, index) : NULL;
  return at ? PyObject_GetItem(dataset, at) : NULL;
}

static PyMappingMethods subset_mapping = {.mp_length = subset_length, .mp_subscript = subset_item};
static PySequenceMethods subset_sequence = {.sq_length = subset_length};
PyTypeObject ext_SubsetType = {
    PLAIN_TYPE("torch.utils.data.Subset", "The items of a dataset at given indices."),
    .tp_base = &ext_DatasetType, .tp_init = subset_init, .tp_as_mapping = &subset_mapping,
    .tp_as_sequence = &subset_sequence};

// ---- ConcatDataset

static int concat_init(PyObject *self, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"ConcatDataset", "datasets", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return -1;
  EXT_OWNED *list = PySequence_List(out[0]);
  EXT_OWNED *ends = list ? PyList_New(0) : NULL;
  Py_ssize_t sum = 0;
  if (list && !PyList_GET_SIZE(list))
    EXT_FAIL_INT(PyExc_AssertionError, "datasets should not be an empty iterable");
  for (Py_ssize_t i = 0; ends && i < PyList_GET_SIZE(list); i++) {
    Py_ssize_t length = PyObject_Size(PyList_GET_ITEM(list, i));
    EXT_OWNED *end = length < 0 ? NULL : PyLong_FromSsize_t(sum += length);
    if (!end || PyList_Append(ends, end) < 0) return -1;
  }
  if (!ends || set(self, "datasets", Py_NewRef(list)) < 0) return -1;
  return set(self, "cumulative_sizes", Py_NewRef(ends));
}

static Py_ssize_t concat_length(PyObject *self) {
  EXT_OWNED *ends = PyObject_GetAttrString(self, "cumulative_sizes");
  return ends ? PyLong_AsSsize_t(PyList_GET_ITEM(ends, PyList_GET_SIZE(ends) - 1)) : -1;
}

static PyObject *concat_item(PyObject *self, PyObject *index) {
  EXT_OWNED *ends = PyObject_GetAttrString(self, "cumulative_sizes");
  EXT_OWNED *datasets = ends ? PyObject_GetAttrString(self, "datasets") : NULL;
  int64_t at, begin = 0, length = concat_length(self);
  if (!datasets || ext_to_int(index, &at) < 0) return NULL;
  if (at < -length)
    EXT_FAIL(PyExc_ValueError, "absolute value of index should not exceed dataset length");
  if (at >= length) EXT_FAIL(PyExc_IndexError, "list index out of range");
  if (at < 0) at += length;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ends); i++) {
    int64_t end = PyLong_AsLongLong(PyList_GET_ITEM(ends, i));
    if (at < end) {
      EXT_OWNED *inner = PyLong_FromLongLong(at - begin);
      return inner ? PyObject_GetItem(PyList_GET_ITEM(datasets, i), inner) : NULL;
    }
    begin = end;
  }
  return NULL;
}

static PyMappingMethods concat_mapping = {.mp_length = concat_length, .mp_subscript = concat_item};
static PySequenceMethods concat_sequence = {.sq_length = concat_length};
static PyTypeObject concat_type = {
    PLAIN_TYPE("torch.utils.data.ConcatDataset", "Several datasets one after another."),
    .tp_base = &ext_DatasetType, .tp_init = concat_init, .tp_as_mapping = &concat_mapping,
    .tp_as_sequence = &concat_sequence};

// ---- whole batches

// The rows of every tensor at `indices`, as the collated list.
static PyObject *rows_batch(PyObject *dataset, PyObject *indices) {
  EXT_OWNED *tensors = PyObject_GetAttrString(dataset, "tensors");
  PX_SCOPED(px_tensor) index = ext_tensor_from(indices, PX_INT64, px_cpu());
  EXT_OWNED *batch = tensors && index ? PyList_New(0) : NULL;
  for (Py_ssize_t i = 0; batch && i < PyTuple_GET_SIZE(tensors); i++) {
    px_tensor *t = ext_tensor(PyTuple_GET_ITEM(tensors, i)), *rows;
    EXT_TRY(px_index_select(&rows, t, 0, index));
    EXT_OWNED *item = ext_wrap(rows);
    if (!item || PyList_Append(batch, item) < 0) return NULL;
  }
  return ext_moved(&batch);
}

// Whether all indices are plain integers from 0: others go the slow way.
static bool plain_indices(PyObject *indices) {
  if (!PyList_Check(indices)) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(indices); i++)
    if (!PyLong_CheckExact(PyList_GET_ITEM(indices, i)) ||
        PyLong_AsLongLong(PyList_GET_ITEM(indices, i)) < 0)
      return false;
  return PyList_GET_SIZE(indices) > 0;
}

PyObject *ext_dataset_batch(PyObject *dataset, PyObject *indices) {
  if (!plain_indices(indices)) return PyErr_Clear(), NULL;
  if (Py_IS_TYPE(dataset, &ext_TensorDatasetType)) return rows_batch(dataset, indices);
  if (!Py_IS_TYPE(dataset, &ext_SubsetType)) return NULL;
  EXT_OWNED *whole = PyObject_GetAttrString(dataset, "dataset");
  bool rows =
      whole && (Py_IS_TYPE(whole, &ext_TensorDatasetType) || Py_IS_TYPE(whole, &ext_SubsetType));
  EXT_OWNED *at = rows ? mapped(dataset, indices) : NULL;
  return at ? ext_dataset_batch(whole, at) : NULL;
}

// ---- random_split

// Fractions become lengths: the floors, and the rest one by one from the first.
static int lengths_of(PyObject *given, Py_ssize_t total, ext_ints *out) {
  EXT_OWNED *list = PySequence_List(given);
  double sum = 0;
  if (!list) return -1;
  bool fractions = false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
    fractions |= PyFloat_Check(PyList_GET_ITEM(list, i));
  if (!fractions) return ext_to_ints(list, out);
  out->count = (int)PyList_GET_SIZE(list);
  int64_t used = 0;
  for (int i = 0; i < out->count; i++) {
    double part = PyFloat_AsDouble(PyList_GET_ITEM(list, i));
    if (part < 0 || part > 1)
      EXT_FAIL_INT(PyExc_ValueError, "Fraction at index %d is not between 0 and 1", i);
    sum += part;
    used += out->items[i] = (int64_t)(part * (double)total);
  }
  if (sum > 1 + 1e-9)
    EXT_FAIL_INT(PyExc_ValueError,
                 "Sum of input lengths does not equal the length of the input dataset!");
  for (int i = 0; used < total && out->count; i = (i + 1) % out->count, used++) out->items[i]++;
  return 0;
}

static PyObject *part_of(PyObject *dataset, const int64_t *order, int64_t count) {
  EXT_OWNED *indices = PyList_New((Py_ssize_t)count);
  for (Py_ssize_t i = 0; indices && i < count; i++)
    PyList_SET_ITEM(indices, i, PyLong_FromLongLong(order[i]));
  return indices ? PyObject_CallFunctionObjArgs((PyObject *)&ext_SubsetType, dataset, indices, NULL)
                 : NULL;
}

EXT_FAST(random_split) {
  EXT_ARGS("random_split", "dataset lengths|generator", out);
  ext_ints lengths;
  px_generator *generator;
  Py_ssize_t total = PyObject_Size(out[0]);
  int64_t sum = 0, at = 0;
  if (total < 0 || lengths_of(out[1], total, &lengths) < 0 ||
      ext_to_generator(out[2], &generator) < 0)
    return NULL;
  for (int i = 0; i < lengths.count; i++) sum += lengths.items[i];
  if (sum != total)
    EXT_FAIL(PyExc_ValueError,
             "Sum of input lengths does not equal the length of the input dataset!");
  int64_t *order = PyMem_Malloc((size_t)(sum ? sum : 1) * sizeof *order);
  if (!order) return PyErr_NoMemory();
  px_status status = px_random_permutation(order, sum, generator);
  PyObject *parts = status == PX_OK ? PyList_New(lengths.count) : ext_raise();
  for (int i = 0; parts && i < lengths.count; at += lengths.items[i++]) {
    PyObject *part = part_of(out[0], order + at, lengths.items[i]);
    if (part)
      PyList_SET_ITEM(parts, i, part);
    else
      Py_CLEAR(parts);
  }
  PyMem_Free(order);
  return parts;
}

static PyMethodDef functions[] = {EXT_DEF("random_split", random_split), {NULL, NULL, 0, NULL}};

int ext_init_dataset(PyObject *data) {
  if (PyModule_AddFunctions(data, functions) < 0 ||
      ext_add_type(data, "Dataset", &ext_DatasetType) < 0)
    return -1;
  if (ext_add_type(data, "IterableDataset", &ext_IterableDatasetType) < 0 ||
      ext_add_class(data, "TensorDataset", &ext_TensorDatasetType) < 0)
    return -1;
  return ext_add_class(data, "Subset", &ext_SubsetType) < 0
             ? -1
             : ext_add_class(data, "ConcatDataset", &concat_type);
}
