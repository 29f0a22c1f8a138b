// SPDX-License-Identifier: Apache-2.0
// What torch.utils.data, which is Python (python/phlox/utils/data), asks of the core: random
// orders, the seed of a pass; and raising what a worker process met.
#include "phlox/data.h"
#include "parallel.h"

// _random_order(length, count, replacement, generator): a list of indices.
static PyObject *random_order(PyObject *self, PyObject *args) {
  long long length, count;
  int replacement;
  PyObject *given;
  px_generator *generator;
  if (!PyArg_ParseTuple(args, "LLpO", &length, &count, &replacement, &given) ||
      ext_to_generator(given, &generator) < 0)
    return NULL;
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

// _rows(tensors, indices): a list of the rows of each tensor, cut out at once; None for indices
// that are no list of ints from 0.
EXT_FAST(rows) {
  EXT_ARGS("_rows", "tensors indices", out);
  enum { LIMIT = 64 };
  px_tensor *tensors[LIMIT];
  px_list *list = NULL;
  Py_ssize_t count;
  EXT_OWNED *keep = NULL;
  int n = ext_to_tensors(out[0], tensors, LIMIT, "TensorDataset", &keep);
  int64_t *indices = n < 0 ? NULL : plain_indices(out[1], &count);
  if (!indices) return NULL;
  px_status status = count ? px_collate_rows(&list, tensors, n, indices, count) : PX_OK;
  PyMem_Free(indices);
  EXT_TRY(status);
  if (!list) Py_RETURN_NONE;
  EXT_OWNED *made = ext_wrap_list(list);
  return made ? PySequence_List(made) : NULL;
}

// _draw_seed(generator)
static PyObject *draw_seed(PyObject *self, PyObject *given) {
  px_generator *generator;
  int64_t seed;
  if (ext_to_generator(given, &generator) < 0) return NULL;
  EXT_TRY(px_seed_draw(&seed, generator));
  return PyLong_FromLongLong(seed);
}

// _raise_caught(class, traceback, where)
static PyObject *raise_caught(PyObject *self, PyObject *args) {
  PyObject *cls, *text;
  const char *where;
  if (!PyArg_ParseTuple(args, "OOs", &cls, &text, &where)) return NULL;
  ext_raise_caught(cls, text, where);
  return NULL;
}

static PyMethodDef functions[] = {{"_random_order", random_order, METH_VARARGS, NULL},
                                  EXT_DEF("_rows", rows),
                                  {"_draw_seed", draw_seed, METH_O, NULL},
                                  {"_raise_caught", raise_caught, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static int ext_init_data(PyObject *m) { return PyModule_AddFunctions(m, functions); }
EXT_START(EXT_UPPER, ext_init_data);
