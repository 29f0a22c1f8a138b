// SPDX-License-Identifier: Apache-2.0
// torch.Generator and the functions that seed, save and restore random streams; print options and
// thread counts live here too: they are settings of the process.
#include "ext.h"

typedef struct generator_object {
  PyObject_HEAD px_generator *generator;
} generator_object;
static px_generator *generator_of(PyObject *self) { return ((generator_object *)self)->generator; }

PyObject *ext_generator(px_generator *generator_take) {
  generator_object *self = PyObject_New(generator_object, &ext_GeneratorType);
  if (!self) {
    px_release(generator_take);
    return NULL;
  }
  self->generator = generator_take;
  return (PyObject *)self;
}

int ext_to_generator(PyObject *object, px_generator **out) {
  *out = NULL;
  if (ext_is_none(object)) return 0;
  if (!Py_IS_TYPE(object, &ext_GeneratorType))
    EXT_FAIL_INT(PyExc_TypeError, "must be torch.Generator, not %s", ext_type_name(object));
  *out = generator_of(object);
  return 0;
}

static void generator_dealloc(PyObject *self) {
  px_release(generator_of(self));
  Py_TYPE(self)->tp_free(self);
}

static PyObject *generator_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"Generator", "|device", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  px_device device;
  px_generator *generator = NULL;
  if (ext_args_tuple(&spec, args, kwargs, out) < 0 || ext_to_device(out[0], &device) < 0)
    return NULL;
  if (device.type < 0) device = px_cpu();
  EXT_TRY(px_generator_new(&generator, device));
  return ext_generator(generator);
}

// Any int of 64 bits, signed or not.
static int to_seed(PyObject *object, uint64_t *out) {
  EXT_OWNED *index = PyNumber_Index(object);
  if (!index) return -1;
  *out = PyLong_AsUnsignedLongLong(index);
  if (!PyErr_Occurred()) return 0;
  PyErr_Clear();
  *out = (uint64_t)PyLong_AsLongLong(index);
  if (!PyErr_Occurred()) return 0;
  PyErr_Clear();
  EXT_FAIL_INT(PyExc_RuntimeError,
               "Overflow when unpacking long; manual_seed expects a 64-bit number");
}

static PyObject *state_of(px_generator *generator) {
  uint8_t state[8192];
  px_tensor *made = NULL;
  int64_t size = (int64_t)px_generator_state_size(generator);
  px_generator_get_state(generator, state);
  EXT_TRY(px_tensor_from_data(&made, state, 1, &size, PX_UINT8, px_cpu()));
  return ext_wrap(made);
}

static int set_state(px_generator *generator, PyObject *state) {
  uint8_t bytes[8192];
  if (!ext_is_tensor(state) || px_tensor_dtype(ext_tensor(state)) != PX_UINT8 ||
      px_tensor_is_cuda(ext_tensor(state)))
    EXT_FAIL_INT(PyExc_TypeError, "RNG state must be a torch.ByteTensor");
  size_t size = (size_t)px_tensor_numel(ext_tensor(state));
  if (size > sizeof bytes) EXT_FAIL_INT(PyExc_RuntimeError, "RNG state is wrong size");
  EXT_TRY_INT(px_tensor_read(ext_tensor(state), bytes, size));
  EXT_TRY_INT(px_generator_set_state(generator, bytes, size));
  return 0;
}

static PyObject *generator_manual_seed(PyObject *self, PyObject *seed) {
  uint64_t value;
  if (to_seed(seed, &value) < 0) return NULL;
  px_generator_seed(generator_of(self), value);
  return Py_NewRef(self);
}
static int fresh_seed(uint64_t *seed) {
  FILE *file = fopen("/dev/urandom", "rb");
  size_t got = file ? fread(seed, sizeof *seed, 1, file) : 0;
  if (file) fclose(file);
  if (!got) EXT_FAIL_INT(PyExc_OSError, "no random seed can be read");
  *seed &= UINT64_C(0x1fffffffffffff);
  return 0;
}
static PyObject *generator_seed(PyObject *self, PyObject *u) {
  uint64_t seed;
  if (fresh_seed(&seed) < 0) return NULL;
  px_generator_seed(generator_of(self), seed);
  return PyLong_FromUnsignedLongLong(seed);
}
static PyObject *generator_initial_seed(PyObject *self, PyObject *u) {
  return PyLong_FromUnsignedLongLong(px_generator_initial_seed(generator_of(self)));
}
static PyObject *generator_get_state(PyObject *self, PyObject *u) {
  return state_of(generator_of(self));
}
static PyObject *generator_set_state(PyObject *self, PyObject *state) {
  return set_state(generator_of(self), state) < 0 ? NULL : Py_NewRef(self);
}
static PyObject *generator_device(PyObject *self, void *u) {
  return ext_device(px_generator_device(generator_of(self)));
}
static PyObject *generator_repr(PyObject *self) {
  return PyUnicode_FromFormat("<torch._C.Generator object at %p>", self);
}
static PyMethodDef generator_methods[] = {
    {"manual_seed", generator_manual_seed, METH_O, NULL},
    {"seed", generator_seed, METH_NOARGS, NULL},
    {"initial_seed", generator_initial_seed, METH_NOARGS, NULL},
    {"get_state", generator_get_state, METH_NOARGS, NULL},
    {"set_state", generator_set_state, METH_O, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef generator_getset[] = {{"device", generator_device, NULL, NULL, NULL},
                                         {NULL, NULL, NULL, NULL, NULL}};
PyTypeObject ext_GeneratorType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch._C.Generator",
    .tp_basicsize = sizeof(generator_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = generator_new,
    .tp_dealloc = generator_dealloc,
    .tp_repr = generator_repr,
    .tp_methods = generator_methods,
    .tp_getset = generator_getset,
};

// ---- the default generators
static PyObject *default_generator;

static PyObject *manual_seed(PyObject *m, PyObject *seed) {
  uint64_t value;
  if (to_seed(seed, &value) < 0) return NULL;
  px_manual_seed(value);
  return Py_NewRef(default_generator);
}
static PyObject *seed_all(PyObject *m, PyObject *u) {
  uint64_t seed;
  if (fresh_seed(&seed) < 0) return NULL;
  px_manual_seed(seed);
  return PyLong_FromUnsignedLongLong(seed);
}
static PyObject *initial_seed(PyObject *m, PyObject *u) {
  return generator_initial_seed(default_generator, NULL);
}
static PyObject *get_rng_state(PyObject *m, PyObject *u) {
  return state_of(generator_of(default_generator));
}
static PyObject *set_rng_state(PyObject *m, PyObject *state) {
  if (set_state(generator_of(default_generator), state) < 0) return NULL;
  Py_RETURN_NONE;
}

// ---- the same for torch.cuda
static int cuda_generator(PyObject *device, px_generator **out) {
  int index = px_device_peek();
  if (!ext_is_none(device) && ext_to_cuda_index(device, &index) < 0) return -1;
  EXT_TRY_INT(px_generator_default(out, px_cuda(index)));
  return 0;
}
static PyObject *cuda_manual_seed(PyObject *m, PyObject *seed) {
  uint64_t value;
  px_generator *generator;
  if (to_seed(seed, &value) < 0) return NULL;
  if (px_device_count(PX_CUDA) == 0) Py_RETURN_NONE;
  if (cuda_generator(NULL, &generator) < 0) return NULL;
  px_generator_seed(generator, value);
  Py_RETURN_NONE;
}
static PyObject *cuda_manual_seed_all(PyObject *m, PyObject *seed) {
  uint64_t value;
  if (to_seed(seed, &value) < 0) return NULL;
  for (int i = 0; i < px_device_count(PX_CUDA); i++) {
    px_generator *generator;
    EXT_TRY(px_generator_default(&generator, px_cuda(i)));
    px_generator_seed(generator, value);
  }
  Py_RETURN_NONE;
}
static PyObject *cuda_seed(PyObject *m, PyObject *u) {
  uint64_t seed;
  if (fresh_seed(&seed) < 0) return NULL;
  EXT_OWNED *number = PyLong_FromUnsignedLongLong(seed);
  return number ? cuda_manual_seed(m, number) : NULL;
}
static PyObject *cuda_seed_all(PyObject *m, PyObject *u) {
  uint64_t seed;
  if (fresh_seed(&seed) < 0) return NULL;
  EXT_OWNED *number = PyLong_FromUnsignedLongLong(seed);
  return number ? cuda_manual_seed_all(m, number) : NULL;
}
static PyObject *cuda_initial_seed(PyObject *m, PyObject *u) {
  px_generator *generator;
  if (cuda_generator(NULL, &generator) < 0) return NULL;
  return PyLong_FromUnsignedLongLong(px_generator_initial_seed(generator));
}
EXT_FAST(cuda_get_rng_state) {
  EXT_ARGS("get_rng_state", "|device", out);
  px_generator *generator;
  return cuda_generator(out[0], &generator) < 0 ? NULL : state_of(generator);
}
EXT_FAST(cuda_set_rng_state) {
  EXT_ARGS("set_rng_state", "new_state|device", out);
  px_generator *generator;
  if (cuda_generator(out[1], &generator) < 0 || set_state(generator, out[0]) < 0) return NULL;
  Py_RETURN_NONE;
}
static PyObject *cuda_get_rng_state_all(PyObject *m, PyObject *u) {
  PyObject *list = PyList_New(0);
  for (int i = 0; list && i < px_device_count(PX_CUDA); i++) {
    px_generator *generator = NULL;
    EXT_OWNED *state =
        px_generator_default(&generator, px_cuda(i)) == PX_OK ? state_of(generator) : ext_raise();
    if (!state || PyList_Append(list, state) < 0) Py_CLEAR(list);
  }
  return list;
}
static PyObject *cuda_set_rng_state_all(PyObject *m, PyObject *states) {
  for (Py_ssize_t i = 0; i < PySequence_Size(states); i++) {
    px_generator *generator;
    EXT_TRY(px_generator_default(&generator, px_cuda((int)i)));
    EXT_OWNED *state = PySequence_GetItem(states, i);
    if (!state || set_state(generator, state) < 0) return NULL;
  }
  Py_RETURN_NONE;
}

// ---- settings of the process
static const struct {
  const char *name;
  px_print_options options;
} profiles[] = {{"default", {4, 1000, 3, 80, -1}},
                {"short", {2, 1000, 2, 80, -1}},
                {"full", {4, INT32_MAX, 3, 80, -1}}};

EXT_FAST(set_printoptions) {
  EXT_ARGS("set_printoptions", "|precision threshold edgeitems linewidth profile sci_mode", out);
  px_print_options options = px_print_options_get();
  int *const places[] = {&options.precision, &options.threshold, &options.edgeitems,
                         &options.linewidth};
  for (int i = 0; !ext_is_none(out[4]) && i < EXT_LENGTH(profiles); i++)
    if (PyUnicode_Check(out[4]) && !PyUnicode_CompareWithASCIIString(out[4], profiles[i].name))
      options = profiles[i].options;
  for (int i = 0; i < 4; i++) {
    double value;
    if (ext_is_none(out[i])) continue;
    if (ext_to_double(out[i], &value) < 0) return NULL;
    *places[i] = value > INT32_MAX ? INT32_MAX : (int)value;
  }
  options.sci_mode = ext_is_none(out[5]) ? -1 : ext_to_bool(out[5], false);
  px_print_options_set(options);
  Py_RETURN_NONE;
}

static PyObject *get_num_threads(PyObject *m, PyObject *u) {
  return PyLong_FromLong(px_num_threads());
}
static PyObject *set_num_threads(PyObject *m, PyObject *count) {
  int64_t value;
  if (ext_to_int(count, &value) < 0) return NULL;
  EXT_TRY(px_set_num_threads(value));
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"manual_seed", manual_seed, METH_O, NULL},
                                  {"seed", seed_all, METH_NOARGS, NULL},
                                  {"initial_seed", initial_seed, METH_NOARGS, NULL},
                                  {"get_rng_state", get_rng_state, METH_NOARGS, NULL},
                                  {"set_rng_state", set_rng_state, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};
static PyMethodDef settings[] = {EXT_DEF("set_printoptions", set_printoptions),
                                 {"get_num_threads", get_num_threads, METH_NOARGS, NULL},
                                 {"set_num_threads", set_num_threads, METH_O, NULL},
                                 {"get_num_interop_threads", get_num_threads, METH_NOARGS, NULL},
                                 {NULL, NULL, 0, NULL}};
static PyMethodDef cuda_functions[] = {
    {"manual_seed", cuda_manual_seed, METH_O, NULL},
    {"manual_seed_all", cuda_manual_seed_all, METH_O, NULL},
    {"seed", cuda_seed, METH_NOARGS, NULL},
    {"seed_all", cuda_seed_all, METH_NOARGS, NULL},
    {"initial_seed", cuda_initial_seed, METH_NOARGS, NULL},
    EXT_DEF("get_rng_state", cuda_get_rng_state),
    EXT_DEF("set_rng_state", cuda_set_rng_state),
    {"get_rng_state_all", cuda_get_rng_state_all, METH_NOARGS, NULL},
    {"set_rng_state_all", cuda_set_rng_state_all, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static int ext_init_random(PyObject *m) {
  px_generator *generator = NULL;
  EXT_TRY_INT(px_generator_default(&generator, px_cpu()));
  if (ext_add_type(m, "Generator", &ext_GeneratorType) < 0) return -1;
  default_generator = ext_generator(px_retain(generator));
  if (!default_generator || ext_add(m, "default_generator", Py_NewRef(default_generator)) < 0)
    return -1;
  PyObject *random = ext_submodule(m, "random", functions);
  EXT_OWNED *cuda = PyObject_GetAttrString(m, "cuda");
  if (!random || !cuda || PyModule_AddFunctions(cuda, cuda_functions) < 0) return -1;
  if (ext_add(random, "default_generator", Py_NewRef(default_generator)) < 0) return -1;
  return PyModule_AddFunctions(m, functions) < 0 ? -1 : PyModule_AddFunctions(m, settings);
}
EXT_START(EXT_VALUES, ext_init_random);
