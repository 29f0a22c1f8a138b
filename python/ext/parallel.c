// SPDX-License-Identifier: Apache-2.0
// torch.nn.parallel: scatter, gather, replicate, parallel_apply and DataParallel, over the C API's
// pieces.
#include "parallel.h"

#include "nn.h"
#include "phlox/parallel.h"

enum { LIMIT = 64 };

typedef struct devices {
  px_device at[LIMIT];
  int count;
} devices;

static int to_devices(PyObject *object, devices *out) {
  EXT_OWNED *sequence = PySequence_Fast(object, "device_ids must be a sequence of devices");
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

// ---- scatter

static PyObject *scatter_any(PyObject *object, const devices *to, int dim);

static PyObject *scatter_tensor(PyObject *object, const devices *to, int dim) {
  px_tensor *parts[LIMIT] = {NULL};
  int count = 0;
  EXT_WAIT(px_scatter_parts(parts, &count, ext_tensor(object), to->at, to->count, dim));
  PyObject *list = PyList_New(count);
  for (int i = 0; i < count; i++) {
    PyObject *part = list ? ext_wrap(parts[i]) : (px_release(parts[i]), NULL);
    if (list && part)
      PyList_SET_ITEM(list, i, part);
    else
      Py_CLEAR(list);
  }
  return list;
}

// One part of a container: its items' k-th parts.
static PyObject *part_of(PyObject *model, PyObject *scattered, Py_ssize_t k) {
  EXT_OWNED *items = PyList_New(0);
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(scattered); i++)
    if (PyList_Append(items, PyList_GET_ITEM(PyList_GET_ITEM(scattered, i), k)) < 0) return NULL;
  return items ? ext_rebuild(model, items) : NULL;
}

static PyObject *scatter_sequence(PyObject *object, const devices *to, int dim) {
  EXT_OWNED *sequence = PySequence_List(object);
  EXT_OWNED *scattered = PyList_New(0);
  Py_ssize_t least = LIMIT;
  if (!sequence || !scattered) return NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sequence); i++) {
    EXT_OWNED *parts = scatter_any(PyList_GET_ITEM(sequence, i), to, dim);
    if (!parts || PyList_Append(scattered, parts) < 0) return NULL;
    if (PyList_GET_SIZE(parts) < least) least = PyList_GET_SIZE(parts);
  }
  EXT_OWNED *result = PyList_New(0);
  for (Py_ssize_t k = 0; result && k < least; k++) {
    EXT_OWNED *part = part_of(object, scattered, k);
    if (!part || PyList_Append(result, part) < 0) return NULL;
  }
  return ext_moved(&result);
}

static PyObject *scatter_dict(PyObject *object, const devices *to, int dim) {
  EXT_OWNED *pairs = PyMapping_Items(object);
  EXT_OWNED *parts = pairs ? scatter_sequence(pairs, to, dim) : NULL;
  EXT_OWNED *result = parts ? PyList_New(0) : NULL;
  for (Py_ssize_t k = 0; result && k < PyList_GET_SIZE(parts); k++) {
    EXT_OWNED *dict = PyObject_CallOneArg((PyObject *)Py_TYPE(object), PyList_GET_ITEM(parts, k));
    if (!dict || PyList_Append(result, dict) < 0) return NULL;
  }
  return ext_moved(&result);
}

static PyObject *repeat(PyObject *object, int count) {
  PyObject *list = PyList_New(count);
  for (int i = 0; list && i < count; i++) PyList_SET_ITEM(list, i, Py_NewRef(object));
  return list;
}

// A list of one part a device; other objects are referred to in each.
static PyObject *scatter_any(PyObject *object, const devices *to, int dim) {
  if (ext_is_tensor(object)) return scatter_tensor(object, to, dim);
  bool sequence = PyTuple_Check(object) || PyList_Check(object);
  if (sequence && PySequence_Size(object) > 0) return scatter_sequence(object, to, dim);
  if (PyDict_Check(object) && PyDict_GET_SIZE(object) > 0) return scatter_dict(object, to, dim);
  return repeat(object, to->count);
}

EXT_FAST(scatter) {
  EXT_ARGS("scatter", "inputs target_gpus|dim", out);
  devices to = {.count = 0};
  int64_t dim = 0;
  if (to_devices(out[1], &to) < 0 || (out[2] && ext_to_int(out[2], &dim) < 0)) return NULL;
  EXT_OWNED *list = scatter_any(out[0], &to, (int)dim);
  return list ? PyList_AsTuple(list) : NULL;
}

static int pad(PyObject *list, Py_ssize_t count, PyObject *filler) {
  while (PyList_GET_SIZE(list) < count)
    if (PyList_Append(list, filler) < 0) return -1;
  return 0;
}

// The positional and keyword arguments of each replica, as two lists of equal length, at least one.
static int scatter_arguments(PyObject *inputs, PyObject *kwargs, const devices *to, int dim,
                             PyObject **in, PyObject **kw) {
  bool some = PyTuple_GET_SIZE(inputs) > 0, named = kwargs && PyDict_GET_SIZE(kwargs) > 0;
  EXT_OWNED *none = PyTuple_New(0);
  EXT_OWNED *empty = PyDict_New();
  *in = some ? scatter_any(inputs, to, dim) : PyList_New(0);
  *kw = named ? scatter_any(kwargs, to, dim) : PyList_New(0);
  if (!*in || !*kw || !none || !empty) return -1;
  Py_ssize_t most =
      PyList_GET_SIZE(*in) > PyList_GET_SIZE(*kw) ? PyList_GET_SIZE(*in) : PyList_GET_SIZE(*kw);
  if (most == 0) most = 1;
  return pad(*in, most, none) < 0 ? -1 : pad(*kw, most, empty);
}

// ---- gather

static PyObject *gather_any(PyObject *outputs, px_device to, int dim);

static PyObject *gather_tensors(PyObject *outputs, px_device to, int dim) {
  px_tensor *parts[LIMIT], *result;
  int count = (int)PyList_GET_SIZE(outputs);
  for (int i = 0; i < count; i++)
    if (!(parts[i] = ext_need_tensor(PyList_GET_ITEM(outputs, i), "gather", "outputs")))
      return NULL;
  EXT_WAIT(px_gather_parts(&result, parts, count, to, dim));
  return ext_wrap(result);
}

// What the replicas gave at one key or place.
static PyObject *gather_at(PyObject *outputs, PyObject *key, px_device to, int dim) {
  EXT_OWNED *column = PyList_New(0);
  for (Py_ssize_t i = 0; column && i < PyList_GET_SIZE(outputs); i++) {
    EXT_OWNED *item = PyObject_GetItem(PyList_GET_ITEM(outputs, i), key);
    if (!item || PyList_Append(column, item) < 0) return NULL;
  }
  return column ? gather_any(column, to, dim) : NULL;
}

static PyObject *gather_dict(PyObject *outputs, px_device to, int dim) {
  PyObject *first = PyList_GET_ITEM(outputs, 0);
  for (Py_ssize_t i = 1; i < PyList_GET_SIZE(outputs); i++)
    if (PyObject_Size(PyList_GET_ITEM(outputs, i)) != PyDict_GET_SIZE(first))
      EXT_FAIL(PyExc_ValueError, "All dicts must have the same number of keys");
  EXT_OWNED *keys = PyDict_Keys(first);
  EXT_OWNED *dict = PyDict_New();
  for (Py_ssize_t i = 0; keys && dict && i < PyList_GET_SIZE(keys); i++) {
    EXT_OWNED *value = gather_at(outputs, PyList_GET_ITEM(keys, i), to, dim);
    if (!value || PyDict_SetItem(dict, PyList_GET_ITEM(keys, i), value) < 0) return NULL;
  }
  if (!dict || PyDict_CheckExact(first)) return ext_moved(&dict);
  return PyObject_CallOneArg((PyObject *)Py_TYPE(first), dict);
}

static PyObject *gather_sequence(PyObject *outputs, px_device to, int dim) {
  PyObject *first = PyList_GET_ITEM(outputs, 0);
  EXT_OWNED *items = PyList_New(0);
  for (Py_ssize_t i = 0, n = PySequence_Size(first); items && i < n; i++) {
    EXT_OWNED *key = PyLong_FromSsize_t(i);
    EXT_OWNED *value = key ? gather_at(outputs, key, to, dim) : NULL;
    if (!value || PyList_Append(items, value) < 0) return NULL;
  }
  return items ? ext_rebuild(first, items) : NULL;
}

static PyObject *gather_any(PyObject *outputs, px_device to, int dim) {
  PyObject *first = PyList_GET_ITEM(outputs, 0);
  if (ext_is_tensor(first)) return gather_tensors(outputs, to, dim);
  if (first == Py_None) Py_RETURN_NONE;
  if (PyDict_Check(first)) return gather_dict(outputs, to, dim);
  if (PyTuple_Check(first) || PyList_Check(first)) return gather_sequence(outputs, to, dim);
  EXT_FAIL(PyExc_TypeError,
           "gather: outputs must be tensors, None, or dicts, tuples and lists of them, not %s",
           ext_type_name(first));
}

// The target of a gather: a device, an index, or -1 for the CPU.
static int to_target(PyObject *object, px_device *out) {
  int64_t index = 0;
  if (PyLong_Check(object) && ext_to_int(object, &index) == 0 && index == -1)
    return *out = px_cpu(), 0;
  if (ext_to_device(object, out) < 0) return -1;
  EXT_TRY_INT(px_device_resolve(out, *out));
  return 0;
}

EXT_FAST(gather) {
  EXT_ARGS("gather", "outputs target_device|dim", out);
  px_device to;
  int64_t dim = 0;
  EXT_OWNED *list = PySequence_List(out[0]);
  if (!list || to_target(out[1], &to) < 0 || (out[2] && ext_to_int(out[2], &dim) < 0)) return NULL;
  Py_ssize_t count = PyList_GET_SIZE(list);
  if (count < 1 || count > LIMIT) EXT_FAIL(PyExc_ValueError, "gather takes 1 to %d outputs", LIMIT);
  return gather_any(list, to, (int)dim);
}

// ---- replicas

static PyObject *shallow(PyObject *dict, PyObject *memo) { return PyDict_Copy(dict); }

static PyObject *replicate_on(PyObject *module, const devices *to) {
  px_module *copies[LIMIT] = {NULL};
  EXT_WAIT(px_replicate(copies, ext_module(module), to->at, to->count));
  PyObject *list = PyList_New(to->count);
  for (int i = 0; i < to->count; i++) {
    PyObject *replica = list ? ext_module_mirror(module, copies[i], shallow, NULL) : NULL;
    if (replica)
      PyList_SET_ITEM(list, i, replica);
    else
      Py_CLEAR(list);
    px_release(copies[i]);
  }
  return list;
}

EXT_FAST(replicate) {
  EXT_ARGS("replicate", "network devices|detach", out);
  devices to = {.count = 0};
  if (!ext_is_module(out[0]))
    EXT_FAIL(PyExc_TypeError, "replicate() takes a Module, not %s", ext_type_name(out[0]));
  if (to_devices(out[1], &to) < 0) return NULL;
  return replicate_on(out[0], &to);
}

typedef struct application {
  PyObject *modules, *inputs, *kwargs;  // lists
  PyObject *results[LIMIT];
  const px_device *devices;
} application;

static PyObject *apply_one(const application *a, int i) {
  PyObject *input = PyList_GET_ITEM(a->inputs, i);
  EXT_OWNED *args = PyTuple_Check(input)  ? Py_NewRef(input)
                    : PyList_Check(input) ? PyList_AsTuple(input)
                                          : PyTuple_Pack(1, input);
  return args ? PyObject_Call(PyList_GET_ITEM(a->modules, i), args, PyList_GET_ITEM(a->kwargs, i))
              : NULL;
}

// Runs on a thread of its own.
static px_status apply_thread(int i, void *context) {
  application *a = context;
  PyGILState_STATE gil = PyGILState_Ensure();
  px_status status = PX_OK;
  a->results[i] = apply_one(a, i);
  if (!a->results[i]) {
    char where[64];
    snprintf(where, sizeof where, "in replica %d on device %d", i, a->devices[i].index);
    ext_rewrap(where);
    status = ext_foreign();
  }
  PyGILState_Release(gil);
  return status;
}

static PyObject *apply_all(PyObject *modules, PyObject *inputs, PyObject *kwargs,
                           const devices *to) {
  application a = {modules, inputs, kwargs, {NULL}, to->at};
  int count = (int)PyList_GET_SIZE(modules);
  px_status status = EXT_NOGIL(px_parallel_apply(count, to->at, apply_thread, &a));
  PyObject *list = status == PX_OK ? PyList_New(count) : ext_raise();
  for (int i = 0; i < count; i++) {
    if (list)
      PyList_SET_ITEM(list, i, a.results[i]);
    else
      Py_XDECREF(a.results[i]);
  }
  return list;
}

EXT_FAST(parallel_apply) {
  EXT_ARGS("parallel_apply", "modules inputs|kwargs_tup devices", out);
  devices to = {.count = 0};
  EXT_OWNED *modules = PySequence_List(out[0]);
  EXT_OWNED *inputs = PySequence_List(out[1]);
  EXT_OWNED *empty = PyDict_New();
  if (!modules || !inputs || !empty) return NULL;
  int count = (int)PyList_GET_SIZE(modules);
  EXT_OWNED *kwargs = ext_is_none(out[2]) ? repeat(empty, count) : PySequence_List(out[2]);
  if (!kwargs) return NULL;
  if (PyList_GET_SIZE(inputs) != count || PyList_GET_SIZE(kwargs) != count || count > LIMIT)
    EXT_FAIL(PyExc_AssertionError,
             "The number of modules %d is not equal to the number of inputs %zd", count,
             PyList_GET_SIZE(inputs));
  if (!ext_is_none(out[3]) && to_devices(out[3], &to) < 0) return NULL;
  for (; to.count < count; to.count++) to.at[to.count] = px_cuda(to.count);
  return apply_all(modules, inputs, kwargs, &to);
}

// ---- DataParallel

static PyObject *pass(PyObject *module, PyObject *inputs, PyObject *kwargs, devices to,
                      px_device output, int dim) {
  EXT_OWNED *in = NULL;
  EXT_OWNED *kw = NULL;
  if (to.count == 0) return PyObject_Call(module, inputs, kwargs);
  EXT_TRY(px_data_parallel_check(ext_module(module), to.at[0]));
  if (scatter_arguments(inputs, kwargs, &to, dim, &in, &kw) < 0) return NULL;
  bool single = to.count == 1;
  to.count = (int)PyList_GET_SIZE(in);
  if (single) return PyObject_Call(module, PyList_GET_ITEM(in, 0), PyList_GET_ITEM(kw, 0));
  EXT_OWNED *replicas = replicate_on(module, &to);
  EXT_OWNED *outputs = replicas ? apply_all(replicas, in, kw, &to) : NULL;
  return outputs ? gather_any(outputs, output, dim) : NULL;
}

static PyObject *all_ids(void) {
  int count = px_device_count(PX_CUDA);
  PyObject *list = PyList_New(count);
  for (int i = 0; list && i < count; i++) PyList_SET_ITEM(list, i, PyLong_FromLong(i));
  return list;
}

// Indices of the devices asked for; all of them if none were. No devices: an empty list.
static PyObject *ids_of(PyObject *given) {
  devices to = {.count = 0};
  if (px_device_count(PX_CUDA) == 0) return PyList_New(0);
  if (ext_is_none(given)) return all_ids();
  if (to_devices(given, &to) < 0) return NULL;
  if (to.count == 0) EXT_FAIL(PyExc_ValueError, "device_ids must name at least one device");
  PyObject *list = PyList_New(to.count);
  for (int i = 0; list && i < to.count; i++)
    PyList_SET_ITEM(list, i, PyLong_FromLong(to.at[i].index));
  return list;
}

static int warn_imbalance(const devices *to) {
  px_device_properties facts;
  size_t least = SIZE_MAX, most = 0;
  int small = 0, large = 0;
  for (int i = 0; i < to->count; i++) {
    EXT_TRY_INT(px_device_get_properties(&facts, to->at[i].index));
    if (facts.total_memory < least) least = facts.total_memory, small = i;
    if (facts.total_memory > most) most = facts.total_memory, large = i;
  }
  if ((double)least / (double)most >= 0.75) return 0;
  return PyErr_WarnFormat(
      PyExc_UserWarning, 2,
      "\n    There is an imbalance between your GPUs. You may want to exclude GPU %d which\n"
      "    has less than 75%% of the memory or cores of GPU %d. You can do so by setting\n"
      "    the device_ids argument to DataParallel, or by setting the CUDA_VISIBLE_DEVICES\n"
      "    environment variable.",
      to->at[small].index, to->at[large].index);
}

static int set(PyObject *self, const char *name, PyObject *value) {
  int status = value ? PyObject_SetAttrString(self, name, value) : -1;
  Py_XDECREF(value);
  return status;
}

static int init_on(PyObject *self, PyObject *module, PyObject *ids, PyObject *output) {
  devices to = {.count = 0};
  px_device target;
  if (to_devices(ids, &to) < 0) return -1;
  EXT_OWNED *first = to.count ? PyLong_FromLong(to.at[0].index) : Py_NewRef(Py_None);
  if (set(self, "output_device", Py_NewRef(ext_is_none(output) ? first : output)) < 0) return -1;
  if (!to.count) return 0;
  if (!ext_is_none(output) && to_target(output, &target) < 0) return -1;
  if (set(self, "src_device_obj", ext_device(to.at[0])) < 0 || warn_imbalance(&to) < 0) return -1;
  if (to.count == 1) EXT_TRY_INT(px_module_to(ext_module(module), PX_DTYPE_NONE, to.at[0], false));
  return 0;
}

static int parallel_init(PyObject *self, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"DataParallel", "module|device_ids output_device dim", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  EXT_OWNED *none = PyTuple_New(0);
  if (!none || ext_args_tuple(&spec, args, kwargs, out) < 0 ||
      ext_ModuleType.tp_init(self, none, NULL) < 0)
    return -1;
  if (!ext_is_module(out[0]))
    EXT_FAIL_INT(PyExc_TypeError, "DataParallel takes a Module, not %s", ext_type_name(out[0]));
  EXT_OWNED *ids = ids_of(out[1]);
  if (!ids || ext_module_put_child(self, "module", out[0]) < 0) return -1;
  if (set(self, "device_ids", Py_NewRef(ids)) < 0 ||
      set(self, "dim", out[3] ? Py_NewRef(out[3]) : PyLong_FromLong(0)) < 0)
    return -1;
  return init_on(self, out[0], ids, out[2]);
}

static PyObject *parallel_forward(PyObject *self, PyObject *inputs, PyObject *kwargs) {
  EXT_OWNED *module = PyObject_GetAttrString(self, "module");
  EXT_OWNED *ids = PyObject_GetAttrString(self, "device_ids");
  EXT_OWNED *output = PyObject_GetAttrString(self, "output_device");
  EXT_OWNED *dim = PyObject_GetAttrString(self, "dim");
  devices to = {.count = 0};
  px_device target = px_cpu();
  int64_t along;
  if (!module || !ids || !output || !dim || to_devices(ids, &to) < 0 || ext_to_int(dim, &along) < 0)
    return NULL;
  if (to.count && to_target(output, &target) < 0) return NULL;
  return pass(module, inputs, kwargs, to, target, (int)along);
}

static PyMethodDef parallel_methods[] = {
    {"forward", (PyCFunction)(void (*)(void))parallel_forward, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot parallel_slots[] = {
    {Py_tp_init, parallel_init}, {Py_tp_methods, parallel_methods}, {0, NULL}};
static PyType_Spec parallel_spec = {
    "torch.nn.DataParallel", sizeof(ext_module_object), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL, parallel_slots};

EXT_FAST(data_parallel) {
  EXT_ARGS("data_parallel", "module inputs|device_ids output_device dim module_kwargs", out);
  devices to = {.count = 0};
  px_device target = px_cpu();
  int64_t dim = 0;
  EXT_OWNED *ids = ids_of(out[2]);
  EXT_OWNED *inputs = PyTuple_Check(out[1]) ? Py_NewRef(out[1]) : PyTuple_Pack(1, out[1]);
  if (!ids || !inputs || to_devices(ids, &to) < 0 || (out[4] && ext_to_int(out[4], &dim) < 0))
    return NULL;
  if (to.count) target = to.at[0];
  if (!ext_is_none(out[3]) && to_target(out[3], &target) < 0) return NULL;
  return pass(out[0], inputs, ext_is_none(out[5]) ? NULL : out[5], to, target, (int)dim);
}

static PyMethodDef functions[] = {EXT_DEF("scatter", scatter),
                                  EXT_DEF("gather", gather),
                                  EXT_DEF("replicate", replicate),
                                  EXT_DEF("parallel_apply", parallel_apply),
                                  EXT_DEF("data_parallel", data_parallel),
                                  {NULL, NULL, 0, NULL}};

static int ext_init_parallel(PyObject *m) {
  EXT_OWNED *nn = PyObject_GetAttrString(m, "nn");
  PyObject *parallel = nn ? ext_submodule(nn, "parallel", functions) : NULL;
  EXT_OWNED *bases = PyTuple_Pack(1, (PyObject *)&ext_ModuleType);
  EXT_OWNED *type = parallel && bases ? PyType_FromSpecWithBases(&parallel_spec, bases) : NULL;
  if (!type || PyObject_SetAttrString(nn, "DataParallel", type) < 0) return -1;
  ext_short_name((PyTypeObject *)type);
  return PyObject_SetAttrString(parallel, "DataParallel", type);
}
EXT_START(EXT_UPPER, ext_init_parallel);
