// SPDX-License-Identifier: Apache-2.0
// Samplers: orders of indices, and their grouping into batches.
#include "data.h"
#include "phlox/ops.h"

typedef struct sampler_object {
  PyObject_HEAD PyObject *source,
      *generator;    // what is sampled (or the sampler that is grouped); NULL or a Generator
  int64_t count;     // num_samples, or batch_size
  bool given, flag;  // count was given; replacement, or drop_last
  px_sampler *core;  // of a weighted one
  PyObject *dict;
} sampler_object;

static void sampler_dealloc(PyObject *object) {
  sampler_object *self = (sampler_object *)object;
  PyObject_GC_UnTrack(self);
  Py_CLEAR(self->source);
  Py_CLEAR(self->generator);
  Py_CLEAR(self->dict);
  px_release(self->core);
  Py_TYPE(object)->tp_free(object);
}
static int sampler_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(((sampler_object *)object)->source);
  Py_VISIT(((sampler_object *)object)->dict);
  return 0;
}
static int sampler_clear(PyObject *object) {
  Py_CLEAR(((sampler_object *)object)->source);
  Py_CLEAR(((sampler_object *)object)->dict);
  return 0;
}
static int base_init(PyObject *self, PyObject *args, PyObject *kwargs) { return 0; }
static PyObject *generic(PyObject *cls, PyObject *item) { return Py_NewRef(cls); }
static PyMethodDef generic_methods[] = {{"__class_getitem__", generic, METH_O | METH_CLASS, NULL},
                                        {NULL, NULL, 0, NULL}};

#define SAMPLER_TYPE(text, documentation) \
  PyVarObject_HEAD_INIT(NULL, 0).tp_name = text, .tp_basicsize = sizeof(sampler_object), \
                              .tp_doc = documentation, \
                              .tp_flags = \
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, \
                              .tp_dealloc = sampler_dealloc, .tp_traverse = sampler_traverse, \
                              .tp_clear = sampler_clear, .tp_new = PyType_GenericNew, \
                              .tp_dictoffset = offsetof(sampler_object, dict)

PyTypeObject ext_SamplerType = {SAMPLER_TYPE("torch.utils.data.Sampler", "An order of indices."),
                                .tp_init = base_init, .tp_methods = generic_methods};

static int64_t samples_of(const sampler_object *self) {
  return self->given ? self->count : (int64_t)PyObject_Size(self->source);
}
static Py_ssize_t sampler_length(PyObject *self) {
  return (Py_ssize_t)samples_of((sampler_object *)self);
}

static PyObject *get_source(PyObject *self, void *closure) {
  return Py_XNewRef(((sampler_object *)self)->source);
}

static PyObject *list_of(const int64_t *items, int64_t count) {
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (Py_ssize_t i = 0; list && i < count; i++)
    PyList_SET_ITEM(list, i, PyLong_FromLongLong(items[i]));
  return list;
}

// ---- in order

static int sequential_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"SequentialSampler", "data_source", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return -1;
  Py_XSETREF(((sampler_object *)object)->source, Py_NewRef(out[0]));
  return 0;
}

static PyObject *sequential_iter(PyObject *self) {
  EXT_OWNED *count = PyLong_FromSsize_t(PyObject_Size(((sampler_object *)self)->source));
  EXT_OWNED *range =
      PyErr_Occurred() ? NULL : PyObject_CallOneArg((PyObject *)&PyRange_Type, count);
  return range ? PyObject_GetIter(range) : NULL;
}

static PySequenceMethods sampler_sequence = {.sq_length = sampler_length};
PyTypeObject ext_SequentialSamplerType = {
    SAMPLER_TYPE("torch.utils.data.SequentialSampler", "From the first to the last."),
    .tp_base = &ext_SamplerType, .tp_init = sequential_init, .tp_iter = sequential_iter,
    .tp_as_sequence = &sampler_sequence};

// ---- at random

static PyObject *random_replaces(PyObject *self, void *closure) {
  return PyBool_FromLong(((sampler_object *)self)->flag);
}
static PyObject *random_samples(PyObject *self, void *closure) {
  int64_t count = samples_of((sampler_object *)self);
  return PyErr_Occurred() ? NULL : PyLong_FromLongLong(count);
}
static PyObject *get_generator(PyObject *self, void *closure) {
  PyObject *generator = ((sampler_object *)self)->generator;
  return Py_NewRef(generator ? generator : Py_None);
}
static PyGetSetDef random_getset[] = {{"replacement", random_replaces, NULL, NULL, NULL},
                                      {"num_samples", random_samples, NULL, NULL, NULL},
                                      {"generator", get_generator, NULL, NULL, NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};

static int random_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"RandomSampler", "data_source|replacement num_samples generator", 0, 0, 0,
                          {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  sampler_object *self = (sampler_object *)object;
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return -1;
  Py_XSETREF(self->source, Py_NewRef(out[0]));
  Py_XSETREF(self->generator, ext_is_none(out[3]) ? NULL : Py_NewRef(out[3]));
  if (out[1] && !PyBool_Check(out[1]))
    EXT_FAIL_INT(PyExc_TypeError, "replacement should be a boolean value, but got replacement=%R",
                 out[1]);
  self->flag = ext_to_bool(out[1], false);
  self->given = !ext_is_none(out[2]);
  if (self->given && ext_to_int(out[2], &self->count) < 0) return -1;
  int64_t count = samples_of(self);
  if (PyErr_Occurred()) return -1;
  if (count <= 0)
    EXT_FAIL_INT(PyExc_ValueError,
                 "num_samples should be a positive integer value, but got num_samples=%lld",
                 (long long)count);
  return 0;
}

// Whole orders one after another, the last one cut short (perhaps to nothing: it is drawn all the
// same), as PyTorch draws them.
static px_status draw_orders(int64_t *out, int64_t length, int64_t count, px_generator *generator) {
  int64_t *order;
  PX_TRY(px_alloc((void **)&order, (size_t)length * sizeof *order));
  px_status status = PX_OK;
  for (int64_t done = 0; done <= count && status == PX_OK; done += length) {
    int64_t take = count - done < length ? count - done : length;
    status = px_random_permutation(order, length, generator);
    if (status == PX_OK) memcpy(out + done, order, (size_t)take * sizeof *order);
  }
  px_free(order);
  return status;
}

// With replacement: 32 at a time.
static px_status draw_freely(int64_t *out, int64_t length, int64_t count, px_generator *generator) {
  for (int64_t done = 0; done < count; done += 32) {
    PX_SCOPED(px_tensor) some = NULL;
    int64_t take = count - done < 32 ? count - done : 32;
    PX_TRY(px_randint_below(&some, length, &take, 1, generator, PX_INT64, px_cpu(), false, false));
    PX_TRY(px_tensor_read(some, out + done, (size_t)take * sizeof *out));
  }
  return PX_OK;
}

// A seed from the default generator and an order from a generator of that seed, unless one was
// given: PyTorch's draws.
static px_status draw(int64_t *out, int64_t length, int64_t count, bool replacement,
                      px_generator *generator) {
  PX_SCOPED(px_generator) fresh = NULL;
  int64_t seed;
  if (!generator) {
    PX_TRY(px_seed_draw(&seed, NULL));
    PX_TRY(px_generator_new(&fresh, px_cpu()));
    px_generator_seed(fresh, (uint64_t)seed);
    generator = fresh;
  }
  return replacement ? draw_freely(out, length, count, generator)
                     : draw_orders(out, length, count, generator);
}

static PyObject *random_iter(PyObject *object) {
  sampler_object *self = (sampler_object *)object;
  px_generator *generator;
  Py_ssize_t length = PyObject_Size(self->source);
  int64_t count = samples_of(self);
  if (length < 0 || ext_to_generator(self->generator, &generator) < 0) return NULL;
  int64_t *order = PyMem_Malloc((size_t)count * sizeof *order);
  if (!order) return PyErr_NoMemory();
  px_status status = draw(order, length, count, self->flag, generator);
  EXT_OWNED *list = status == PX_OK ? list_of(order, count) : ext_raise();
  PyMem_Free(order);
  return list ? PyObject_GetIter(list) : NULL;
}

PyTypeObject ext_RandomSamplerType = {
    SAMPLER_TYPE("torch.utils.data.RandomSampler", "At random, each once unless with replacement."),
    .tp_base = &ext_SamplerType,
    .tp_init = random_init,
    .tp_iter = random_iter,
    .tp_as_sequence = &sampler_sequence,
    .tp_getset = random_getset};

static PyObject *permuted_iter(PyObject *object) {
  sampler_object *self = (sampler_object *)object;
  px_generator *generator;
  EXT_OWNED *indices = PySequence_List(self->source);
  if (!indices || ext_to_generator(self->generator, &generator) < 0) return NULL;
  Py_ssize_t count = PyList_GET_SIZE(indices);
  int64_t *order = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *order);
  if (!order) return PyErr_NoMemory();
  px_status status = px_random_permutation(order, count, generator);
  EXT_OWNED *list = status == PX_OK ? PyList_New(count) : ext_raise();
  for (Py_ssize_t i = 0; list && i < count; i++)
    PyList_SET_ITEM(list, i, Py_NewRef(PyList_GET_ITEM(indices, order[i])));
  PyMem_Free(order);
  return list ? PyObject_GetIter(list) : NULL;
}

static int permuted_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"SubsetRandomSampler", "indices|generator", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return -1;
  Py_XSETREF(((sampler_object *)object)->source, Py_NewRef(out[0]));
  Py_XSETREF(((sampler_object *)object)->generator, ext_is_none(out[1]) ? NULL : Py_NewRef(out[1]));
  return 0;
}

static PyTypeObject permuted_type = {
    SAMPLER_TYPE("torch.utils.data.SubsetRandomSampler", "Given indices at random."),
    .tp_base = &ext_SamplerType, .tp_init = permuted_init, .tp_iter = permuted_iter,
    .tp_as_sequence = &sampler_sequence};

// ---- by weights

static PyObject *as_doubles(PyObject *weights) {
  EXT_OWNED *torch = PyImport_ImportModule("phlox");
  EXT_OWNED *dtype = torch ? PyObject_GetAttrString(torch, "float64") : NULL;
  return dtype ? PyObject_CallMethod(torch, "as_tensor", "OO", weights, dtype) : NULL;
}

static int weighted_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"WeightedRandomSampler.__init__",
                          "weights num_samples|replacement generator",
                          0,
                          0,
                          0,
                          {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  sampler_object *self = (sampler_object *)object;
  px_generator *generator;
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return -1;
  if (!PyLong_Check(out[1]) || PyBool_Check(out[1]))
    EXT_FAIL_INT(PyExc_ValueError,
                 "num_samples should be a positive integer value, but got num_samples=%S", out[1]);
  if (out[2] && !PyBool_Check(out[2]))
    EXT_FAIL_INT(PyExc_ValueError, "replacement should be a boolean value, but got replacement=%S",
                 out[2]);
  EXT_OWNED *weights = as_doubles(out[0]);
  if (!weights || ext_to_int(out[1], &self->count) < 0 || ext_to_generator(out[3], &generator) < 0)
    return -1;
  self->given = true;
  self->flag = out[2] != Py_False;
  px_sampler *core;
  EXT_TRY_INT(px_sampler_weighted(&core, ext_tensor(weights), self->count, self->flag, generator));
  px_release(self->core);
  self->core = core;
  Py_XSETREF(self->source, ext_moved(&weights));
  Py_XSETREF(self->generator, ext_is_none(out[3]) ? NULL : Py_NewRef(out[3]));
  return 0;
}

static PyObject *weighted_iter(PyObject *object) {
  sampler_object *self = (sampler_object *)object;
  int64_t *order = PyMem_Malloc((size_t)(self->count ? self->count : 1) * sizeof *order);
  if (!order) return PyErr_NoMemory();
  px_status status = px_sampler_draw(self->core, order);
  EXT_OWNED *list = status == PX_OK ? list_of(order, self->count) : ext_raise();
  PyMem_Free(order);
  return list ? PyObject_GetIter(list) : NULL;
}

static PyGetSetDef weighted_getset[] = {{"weights", get_source, NULL, NULL, NULL},
                                        {"replacement", random_replaces, NULL, NULL, NULL},
                                        {"num_samples", random_samples, NULL, NULL, NULL},
                                        {"generator", get_generator, NULL, NULL, NULL},
                                        {NULL, NULL, NULL, NULL, NULL}};
static PyTypeObject weighted_type = {
    SAMPLER_TYPE("torch.utils.data.WeightedRandomSampler", "Drawn by weights."),
    .tp_base = &ext_SamplerType,
    .tp_init = weighted_init,
    .tp_iter = weighted_iter,
    .tp_as_sequence = &sampler_sequence,
    .tp_getset = weighted_getset};

// ---- batches

static int batch_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"BatchSampler", "sampler batch_size drop_last", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  sampler_object *self = (sampler_object *)object;
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return -1;
  if (!PyLong_Check(out[1]) || PyBool_Check(out[1]) || ext_to_int(out[1], &self->count) < 0 ||
      self->count <= 0)
    EXT_FAIL_INT(PyExc_ValueError,
                 "batch_size should be a positive integer value, but got batch_size=%S", out[1]);
  if (!PyBool_Check(out[2]))
    EXT_FAIL_INT(PyExc_ValueError, "drop_last should be a boolean value, but got drop_last=%S",
                 out[2]);
  Py_XSETREF(self->source, Py_NewRef(out[0]));
  self->flag = out[2] == Py_True;
  return 0;
}

static Py_ssize_t batch_length(PyObject *object) {
  sampler_object *self = (sampler_object *)object;
  Py_ssize_t n = PyObject_Size(self->source), size = (Py_ssize_t)self->count;
  return n < 0 ? -1 : self->flag ? n / size : (n + size - 1) / size;
}

typedef struct batches_object {
  PyObject_HEAD PyObject *iterator;
  int64_t size;
  bool drop_last;
} batches_object;

static void batches_dealloc(PyObject *object) {
  Py_CLEAR(((batches_object *)object)->iterator);
  Py_TYPE(object)->tp_free(object);
}

static PyObject *batches_next(PyObject *object) {
  batches_object *self = (batches_object *)object;
  EXT_OWNED *batch = PyList_New(0);
  PyObject *index = NULL;
  while (batch && PyList_GET_SIZE(batch) < self->size && (index = PyIter_Next(self->iterator))) {
    int status = PyList_Append(batch, index);
    Py_DECREF(index);
    if (status < 0) return NULL;
  }
  if (!batch || PyErr_Occurred() || !PyList_GET_SIZE(batch)) return NULL;
  if (self->drop_last && PyList_GET_SIZE(batch) < self->size) return NULL;
  return ext_moved(&batch);
}

static PyTypeObject batches_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.utils.data._Batches",
    .tp_basicsize = sizeof(batches_object),
    .tp_doc = "Batches of indices.",
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = batches_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = batches_next,
};

static PyObject *batch_iter(PyObject *object) {
  sampler_object *self = (sampler_object *)object;
  PyObject *iterator = PyObject_GetIter(self->source);
  batches_object *made = iterator ? PyObject_New(batches_object, &batches_type) : NULL;
  if (!made) return Py_XDECREF(iterator), NULL;
  made->iterator = iterator;
  made->size = self->count;
  made->drop_last = self->flag;
  return (PyObject *)made;
}

static PyObject *get_size(PyObject *self, void *closure) {
  return PyLong_FromLongLong(((sampler_object *)self)->count);
}
static PyObject *get_drop(PyObject *self, void *closure) {
  return PyBool_FromLong(((sampler_object *)self)->flag);
}
static PyGetSetDef batch_getset[] = {{"sampler", get_source, NULL, NULL, NULL},
                                     {"batch_size", get_size, NULL, NULL, NULL},
                                     {"drop_last", get_drop, NULL, NULL, NULL},
                                     {NULL, NULL, NULL, NULL, NULL}};
static PySequenceMethods batch_sequence = {.sq_length = batch_length};
PyTypeObject ext_BatchSamplerType = {
    SAMPLER_TYPE("torch.utils.data.BatchSampler", "Groups another sampler's indices."),
    .tp_base = &ext_SamplerType,
    .tp_init = batch_init,
    .tp_iter = batch_iter,
    .tp_as_sequence = &batch_sequence,
    .tp_getset = batch_getset};

int ext_init_sampler(PyObject *data) {
  if (PyType_Ready(&batches_type) < 0 || ext_add_type(data, "Sampler", &ext_SamplerType) < 0)
    return -1;
  if (ext_add_class(data, "SequentialSampler", &ext_SequentialSamplerType) < 0 ||
      ext_add_class(data, "RandomSampler", &ext_RandomSamplerType) < 0)
    return -1;
  return ext_add_class(data, "SubsetRandomSampler", &permuted_type) < 0 ||
                 ext_add_class(data, "WeightedRandomSampler", &weighted_type) < 0
             ? -1
             : ext_add_class(data, "BatchSampler", &ext_BatchSamplerType);
}
