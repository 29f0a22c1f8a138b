// SPDX-License-Identifier: Apache-2.0
// DataLoader: its options and their checks, and the passes that fetch in this process. Passes with
// workers are phlox/_workers.py's: processes and queues are Python's own.
#include <string.h>

#include "data.h"

typedef struct loader_object {
  PyObject_HEAD PyObject *dataset, *sampler, *batch_sampler, *collate, *generator, *worker_init,
      *context, *pool;
  PyObject *batch_size, *prefetch, *timeout;  // as given
  int64_t workers;
  bool pin, drop_last, persistent, iterable, ready;
  PyObject *dict;
} loader_object;

#define EACH_FIELD(XX) \
  XX(dataset) \
  XX(sampler) \
  XX(batch_sampler) \
  XX(collate) \
  XX(generator) \
  XX(worker_init) XX(context) XX(pool) XX(batch_size) XX(prefetch) XX(timeout) XX(dict)

static int loader_traverse(PyObject *object, visitproc visit, void *arg) {
  loader_object *self = (loader_object *)object;
#define XX(name) Py_VISIT(self->name);
  EACH_FIELD(XX)
#undef XX
  return 0;
}
static int loader_clear(PyObject *object) {
  loader_object *self = (loader_object *)object;
#define XX(name) Py_CLEAR(self->name);
  EACH_FIELD(XX)
#undef XX
  return 0;
}
static void loader_dealloc(PyObject *object) {
  PyObject_GC_UnTrack(object);
  loader_clear(object);
  Py_TYPE(object)->tp_free(object);
}

// ---- options

enum {
  DATASET,
  BATCH_SIZE,
  SHUFFLE,
  SAMPLER,
  BATCH_SAMPLER,
  WORKERS,
  COLLATE,
  PIN,
  DROP_LAST,
  TIMEOUT,
  WORKER_INIT,
  CONTEXT,
  GENERATOR,
  PREFETCH,
  PERSISTENT,
  PIN_DEVICE,
  IN_ORDER
};
static const char params[] =
    "dataset|batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last "
    "timeout worker_init_fn multiprocessing_context generator$prefetch_factor persistent_workers "
    "pin_memory_device in_order";

static bool truth(PyObject *object) { return !ext_is_none(object) && PyObject_IsTrue(object) == 1; }

static int check_workers(PyObject **o, int64_t workers) {
  double timeout = 0;
  if (workers < 0)
    EXT_FAIL_INT(
        PyExc_ValueError,
        "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.");
  if (o[TIMEOUT] && ext_to_double(o[TIMEOUT], &timeout) < 0) return -1;
  if (timeout < 0) EXT_FAIL_INT(PyExc_ValueError, "timeout option should be non-negative");
  if (workers == 0 && !ext_is_none(o[PREFETCH]))
    EXT_FAIL_INT(
        PyExc_ValueError,
        "prefetch_factor option could only be specified in multiprocessing."
        "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None.");
  int64_t ahead = 1;
  if (!ext_is_none(o[PREFETCH]) && ext_to_int(o[PREFETCH], &ahead) < 0) return -1;
  if (ahead < 1) EXT_FAIL_INT(PyExc_ValueError, "prefetch_factor option should be non-negative");
  if (workers == 0 && truth(o[PERSISTENT]))
    EXT_FAIL_INT(PyExc_ValueError, "persistent_workers option needs num_workers > 0");
  if (!ext_is_none(o[CONTEXT]) && workers == 0)
    EXT_FAIL_INT(PyExc_ValueError,
                 "multiprocessing_context can only be used with multi-process loading (num_workers "
                 "> 0), but got num_workers=0");
  return 0;
}

static int check_batching(PyObject **o) {
  bool one = !o[BATCH_SIZE] || (PyLong_Check(o[BATCH_SIZE]) && PyLong_AsLong(o[BATCH_SIZE]) == 1);
  if (!ext_is_none(o[SAMPLER]) && truth(o[SHUFFLE]))
    EXT_FAIL_INT(PyExc_ValueError, "sampler option is mutually exclusive with shuffle");
  if (!ext_is_none(o[BATCH_SAMPLER]) &&
      (!one || truth(o[SHUFFLE]) || !ext_is_none(o[SAMPLER]) || truth(o[DROP_LAST])))
    EXT_FAIL_INT(PyExc_ValueError,
                 "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                 "and drop_last");
  if (o[BATCH_SIZE] == Py_None && truth(o[DROP_LAST]))
    EXT_FAIL_INT(
        PyExc_ValueError,
        "batch_size=None option disables auto-batching and is mutually exclusive with drop_last");
  return 0;
}

// An iterable dataset has its own order.
static int check_iterable(PyObject **o) {
  static const struct {
    int option;
    const char *name;
  } rows[] = {{SHUFFLE, "shuffle"}, {SAMPLER, "sampler"}, {BATCH_SAMPLER, "batch_sampler"}};
  for (int i = 0; i < EXT_LENGTH(rows); i++) {
    PyObject *given = o[rows[i].option];
    if (ext_is_none(given) || given == Py_False) continue;
    EXT_FAIL_INT(PyExc_ValueError,
                 "DataLoader with IterableDataset: expected unspecified %s option, but got %s=%S",
                 rows[i].name, rows[i].name, given);
  }
  return 0;
}

static int check_context(loader_object *self) {
  if (!self->context || !PyUnicode_Check(self->context)) return 0;
  EXT_OWNED *module = PyImport_ImportModule("multiprocessing");
  EXT_OWNED *methods = module ? PyObject_CallMethod(module, "get_all_start_methods", NULL) : NULL;
  int known = methods ? PySequence_Contains(methods, self->context) : -1;
  if (known == 0)
    EXT_FAIL_INT(PyExc_ValueError,
                 "multiprocessing_context option should specify a valid start method in %R, but "
                 "got multiprocessing_context=%R",
                 methods, self->context);
  return known < 0 ? -1 : 0;
}

static int make_sampler(loader_object *self, PyObject **o) {
  if (!ext_is_none(o[SAMPLER]))
    self->sampler = Py_NewRef(o[SAMPLER]);
  else if (self->iterable)
    self->sampler = Py_NewRef(Py_None);
  else if (!truth(o[SHUFFLE]))
    self->sampler = PyObject_CallOneArg((PyObject *)&ext_SequentialSamplerType, self->dataset);
  else {
    EXT_OWNED *args = PyTuple_Pack(1, self->dataset);
    EXT_OWNED *kwargs =
        self->generator ? Py_BuildValue("{sO}", "generator", self->generator) : NULL;
    self->sampler = args ? PyObject_Call((PyObject *)&ext_RandomSamplerType, args, kwargs) : NULL;
  }
  return self->sampler ? 0 : -1;
}

static int make_batches(loader_object *self, PyObject **o) {
  bool automatic = o[BATCH_SIZE] != Py_None;
  self->batch_size = o[BATCH_SIZE] ? Py_NewRef(o[BATCH_SIZE]) : PyLong_FromLong(1);
  if (!ext_is_none(o[BATCH_SAMPLER])) {
    self->batch_sampler = Py_NewRef(o[BATCH_SAMPLER]);
    Py_SETREF(self->batch_size, Py_NewRef(Py_None));
    return 0;
  }
  if (!automatic || self->iterable) return 0;
  self->batch_sampler =
      PyObject_CallFunctionObjArgs((PyObject *)&ext_BatchSamplerType, self->sampler,
                                   self->batch_size, o[DROP_LAST] ? o[DROP_LAST] : Py_False, NULL);
  return self->batch_sampler ? 0 : -1;
}

static int warn_options(PyObject **o, int64_t workers) {
  EXT_OWNED *os = PyImport_ImportModule("os");
  EXT_OWNED *count = os ? PyObject_CallMethod(os, "cpu_count", NULL) : NULL;
  if (truth(o[PIN_DEVICE]) &&
      PyErr_WarnFormat(PyExc_UserWarning, 2,
                       "pin_memory_device is deprecated, the current accelerator will be used as "
                       "the device,ignore pin_memory_device='%S'.",
                       o[PIN_DEVICE]) < 0)
    return -1;
  if (!count || count == Py_None || workers <= PyLong_AsLong(count)) return 0;
  return PyErr_WarnFormat(
      PyExc_UserWarning, 2,
      "This DataLoader will create %lld worker processes in total. Our suggested max number of "
      "worker in current system is %S, which is "
      "smaller than what this DataLoader is going to create. Please be aware that excessive worker "
      "creation might get DataLoader running slow or "
      "even freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
      (long long)workers, count);
}

static void keep(PyObject **place, PyObject *given) {
  *place = ext_is_none(given) ? NULL : Py_NewRef(given);
}

static int loader_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"DataLoader", params, 0, 0, 0, {NULL}};
  PyObject *o[EXT_MAX_ARGS] = {NULL};
  loader_object *self = (loader_object *)object;
  if (ext_args_tuple(&spec, args, kwargs, o) < 0) return -1;
  self->ready = false;
  loader_clear(object);
  self->workers = 0;
  if (o[WORKERS] && ext_to_int(o[WORKERS], &self->workers) < 0) return -1;
  if (check_workers(o, self->workers) < 0 || check_batching(o) < 0) return -1;
  self->dataset = Py_NewRef(o[DATASET]);
  self->iterable = PyObject_TypeCheck(o[DATASET], &ext_IterableDatasetType);
  if (self->iterable && check_iterable(o) < 0) return -1;
  self->pin = truth(o[PIN]);
  self->drop_last = truth(o[DROP_LAST]);
  self->persistent = truth(o[PERSISTENT]);
  keep(&self->generator, o[GENERATOR]);
  keep(&self->worker_init, o[WORKER_INIT]);
  keep(&self->context, o[CONTEXT]);
  keep(&self->collate, o[COLLATE]);
  self->timeout = o[TIMEOUT] ? Py_NewRef(o[TIMEOUT]) : PyLong_FromLong(0);
  self->prefetch = !ext_is_none(o[PREFETCH]) ? Py_NewRef(o[PREFETCH])
                   : self->workers           ? PyLong_FromLong(2)
                                             : Py_NewRef(Py_None);
  if (check_context(self) < 0 || make_sampler(self, o) < 0 || make_batches(self, o) < 0) return -1;
  self->ready = true;
  return warn_options(o, self->workers);
}

static Py_ssize_t loader_length(PyObject *object) {
  loader_object *self = (loader_object *)object;
  if (self->batch_sampler) return PyObject_Size(self->batch_sampler);
  return self->iterable ? PyObject_Size(self->dataset) : PyObject_Size(self->sampler);
}

// ---- fetching

// The items at a list of indices, collated. A whole batch at once where the dataset can.
static PyObject *fetch_batch(PyObject *dataset, PyObject *collate, PyObject *indices) {
  PyObject *whole = collate ? NULL : ext_dataset_batch(dataset, indices);
  if (whole || PyErr_Occurred()) return whole;
  EXT_OWNED *iterator = PyObject_GetIter(indices);
  EXT_OWNED *items = iterator ? PyList_New(0) : NULL;
  PyObject *index;
  while (items && (index = PyIter_Next(iterator))) {
    EXT_OWNED *item = PyObject_GetItem(dataset, index);
    Py_DECREF(index);
    if (!item || PyList_Append(items, item) < 0) return NULL;
  }
  if (!items || PyErr_Occurred()) return NULL;
  return collate ? PyObject_CallOneArg(collate, items) : ext_collate(items);
}

static PyObject *fetch_one(PyObject *dataset, PyObject *collate, PyObject *index) {
  EXT_OWNED *item = PyObject_GetItem(dataset, index);
  return item && collate ? PyObject_CallOneArg(collate, item) : ext_moved(&item);
}

// _fetch(dataset, collate_fn, batched, index): what a worker does for one index.
static PyObject *fetch(PyObject *self, PyObject *args) {
  PyObject *dataset, *collate, *index;
  int batched;
  if (!PyArg_ParseTuple(args, "OOpO", &dataset, &collate, &batched, &index)) return NULL;
  if (collate == Py_None) collate = NULL;
  return batched ? fetch_batch(dataset, collate, index) : fetch_one(dataset, collate, index);
}

// ---- a pass in this process

typedef struct pass_object {
  PyObject_HEAD loader_object *loader;  // owned
  PyObject
      *order;  // an iterator over indices or batches of them; over items for an iterable dataset
} pass_object;

static void pass_dealloc(PyObject *object) {
  Py_XDECREF(((pass_object *)object)->loader);
  Py_XDECREF(((pass_object *)object)->order);
  Py_TYPE(object)->tp_free(object);
}

static PyObject *next_iterable(const pass_object *self) {
  const loader_object *loader = self->loader;
  if (loader->batch_size == Py_None) return PyIter_Next(self->order);
  Py_ssize_t size = PyLong_AsSsize_t(loader->batch_size);
  EXT_OWNED *items = PyList_New(0);
  PyObject *item;
  while (items && PyList_GET_SIZE(items) < size && (item = PyIter_Next(self->order))) {
    int status = PyList_Append(items, item);
    Py_DECREF(item);
    if (status < 0) return NULL;
  }
  if (!items || PyErr_Occurred() || !PyList_GET_SIZE(items)) return NULL;
  if (loader->drop_last && PyList_GET_SIZE(items) < size) return NULL;
  return loader->collate ? PyObject_CallOneArg(loader->collate, items) : ext_collate(items);
}

static PyObject *next_mapped(const pass_object *self) {
  const loader_object *loader = self->loader;
  EXT_OWNED *index = PyIter_Next(self->order);
  if (!index) return NULL;
  return loader->batch_sampler ? fetch_batch(loader->dataset, loader->collate, index)
                               : fetch_one(loader->dataset, loader->collate, index);
}

static PyObject *pass_next(PyObject *object) {
  pass_object *self = (pass_object *)object;
  PyObject *batch = self->loader->iterable ? next_iterable(self) : next_mapped(self);
  if (batch && self->loader->pin && px_device_count(PX_CUDA) > 0) {
    PyObject *pinned = ext_pin_batch(batch);
    Py_SETREF(batch, pinned);
  }
  return batch;
}

static Py_ssize_t pass_length(PyObject *self) {
  return loader_length((PyObject *)((pass_object *)self)->loader);
}
static PySequenceMethods pass_sequence = {.sq_length = pass_length};
static PyTypeObject pass_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.utils.data._SingleProcessDataLoaderIter",
    .tp_basicsize = sizeof(pass_object),
    .tp_doc = "One pass over a DataLoader.",
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = pass_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = pass_next,
    .tp_as_sequence = &pass_sequence,
};

static int warn_unpinned(const loader_object *self) {
  if (!self->pin || px_device_count(PX_CUDA) > 0) return 0;
  return PyErr_WarnEx(PyExc_UserWarning,
                      "'pin_memory' argument is set as true but no accelerator is found, then "
                      "device pinned memory won't be used.",
                      1);
}

static PyObject *start_pass(loader_object *self) {
  PyObject *source = self->iterable        ? self->dataset
                     : self->batch_sampler ? self->batch_sampler
                                           : self->sampler;
  PyObject *order = PyObject_GetIter(source);
  pass_object *made = order ? PyObject_New(pass_object, &pass_type) : NULL;
  if (!made) return Py_XDECREF(order), NULL;
  made->loader = (loader_object *)Py_NewRef((PyObject *)self);
  made->order = order;
  return (PyObject *)made;
}

static PyObject *start_workers(loader_object *self, int64_t seed) {
  EXT_OWNED *module = PyImport_ImportModule("phlox._workers");
  if (!module) return NULL;
  if (self->pool && self->persistent)
    return PyObject_CallMethod(self->pool, "start", "L", (long long)seed);
  PyObject *pass = PyObject_CallMethod(module, "Pass", "OL", (PyObject *)self, (long long)seed);
  if (pass && self->persistent) Py_XSETREF(self->pool, Py_NewRef(pass));
  return pass;
}

static PyObject *loader_iter(PyObject *object) {
  loader_object *self = (loader_object *)object;
  px_generator *generator;
  int64_t seed;
  if (warn_unpinned(self) < 0 || ext_to_generator(self->generator, &generator) < 0) return NULL;
  // Drawn at the start of every pass, as PyTorch does: the order of a seeded run depends on it.
  EXT_TRY(px_seed_draw(&seed, generator));
  return self->workers ? start_workers(self, seed) : start_pass(self);
}

// ---- attributes

#define GETTER(name, expression) \
  static PyObject *get_##name(PyObject *object, void *closure) { \
    loader_object *self = (loader_object *)object; \
    return expression; \
  }
static PyObject *or_none(PyObject *object) { return Py_NewRef(object ? object : Py_None); }
GETTER(dataset, or_none(self->dataset))
GETTER(sampler, or_none(self->sampler))
GETTER(batch_sampler, or_none(self->batch_sampler))
GETTER(batch_size, or_none(self->batch_size))
GETTER(collate, self->collate ? Py_NewRef(self->collate)
                              : PyObject_GetAttrString(PyImport_AddModule("phlox.utils.data"),
                                                       "default_collate"))
GETTER(own_collate, or_none(self->collate))
GETTER(generator, or_none(self->generator))
GETTER(worker_init, or_none(self->worker_init))
GETTER(context, or_none(self->context))
GETTER(timeout, or_none(self->timeout))
GETTER(prefetch, or_none(self->prefetch))
GETTER(workers, PyLong_FromLongLong(self->workers))
GETTER(pin, PyBool_FromLong(self->pin))
GETTER(drop_last, PyBool_FromLong(self->drop_last))
GETTER(persistent, PyBool_FromLong(self->persistent))
GETTER(iterable, PyBool_FromLong(self->iterable))
static PyGetSetDef getset[] = {{"dataset", get_dataset, NULL, NULL, NULL},
                               {"sampler", get_sampler, NULL, NULL, NULL},
                               {"batch_sampler", get_batch_sampler, NULL, NULL, NULL},
                               {"batch_size", get_batch_size, NULL, NULL, NULL},
                               {"collate_fn", get_collate, NULL, NULL, NULL},
                               {"_collate", get_own_collate, NULL, NULL, NULL},
                               {"generator", get_generator, NULL, NULL, NULL},
                               {"worker_init_fn", get_worker_init, NULL, NULL, NULL},
                               {"multiprocessing_context", get_context, NULL, NULL, NULL},
                               {"timeout", get_timeout, NULL, NULL, NULL},
                               {"prefetch_factor", get_prefetch, NULL, NULL, NULL},
                               {"num_workers", get_workers, NULL, NULL, NULL},
                               {"pin_memory", get_pin, NULL, NULL, NULL},
                               {"drop_last", get_drop_last, NULL, NULL, NULL},
                               {"persistent_workers", get_persistent, NULL, NULL, NULL},
                               {"_iterable", get_iterable, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};

static int loader_setattro(PyObject *object, PyObject *name, PyObject *value) {
  static const char *const frozen[] = {"batch_size", "batch_sampler", "sampler",
                                       "drop_last",  "dataset",       "persistent_workers"};
  for (int i = 0; i < EXT_LENGTH(frozen); i++)
    if (((loader_object *)object)->ready && !PyUnicode_CompareWithASCIIString(name, frozen[i]))
      EXT_FAIL_INT(PyExc_ValueError,
                   "%s attribute should not be set after DataLoader is initialized", frozen[i]);
  return PyObject_GenericSetAttr(object, name, value);
}

static PyObject *generic(PyObject *cls, PyObject *item) { return Py_NewRef(cls); }
static PyMethodDef methods[] = {{"__class_getitem__", generic, METH_O | METH_CLASS, NULL},
                                {NULL, NULL, 0, NULL}};
static PySequenceMethods loader_sequence = {.sq_length = loader_length};
static PyTypeObject loader_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.utils.data.DataLoader",
    .tp_basicsize = sizeof(loader_object),
    .tp_doc = "Batches of a dataset, in an order, fetched here or by worker processes.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = loader_dealloc,
    .tp_traverse = loader_traverse,
    .tp_clear = loader_clear,
    .tp_new = PyType_GenericNew,
    .tp_init = loader_init,
    .tp_iter = loader_iter,
    .tp_setattro = loader_setattro,
    .tp_methods = methods,
    .tp_getset = getset,
    .tp_as_sequence = &loader_sequence,
    .tp_dictoffset = offsetof(loader_object, dict),
};

// get_worker_info(): what a worker process knows of itself, None in the main one.
static PyObject *worker_info(PyObject *module, PyObject *unused) {
  EXT_OWNED *workers = PyImport_ImportModule("phlox._workers");
  return workers ? PyObject_GetAttrString(workers, "_info") : NULL;
}

static PyMethodDef functions[] = {{"_fetch", fetch, METH_VARARGS, NULL},
                                  {"get_worker_info", worker_info, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ext_init_loader(PyObject *data) {
  if (PyType_Ready(&pass_type) < 0 || PyModule_AddFunctions(data, functions) < 0) return -1;
  return ext_add_class(data, "DataLoader", &loader_type);
}
