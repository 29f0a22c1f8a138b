// SPDX-License-Identifier: Apache-2.0
// torch.cuda: devices. Selection, properties, synchronisation; torch.accelerator.
#include "ext.h"

static PyObject *is_available(PyObject *m, PyObject *u) {
  return PyBool_FromLong(px_device_count(PX_CUDA) > 0);
}
static PyObject *device_count(PyObject *m, PyObject *u) {
  return PyLong_FromLong(px_device_count(PX_CUDA));
}
static PyObject *current_device(PyObject *m, PyObject *u) {
  int index;
  EXT_TRY(px_device_current(&index));
  return PyLong_FromLong(index);
}
static PyObject *is_initialized(PyObject *m, PyObject *u) {
  return PyBool_FromLong(px_device_initialized());
}
static PyObject *init(PyObject *m, PyObject *u) {
  EXT_WAIT(px_device_init());
  Py_RETURN_NONE;
}

EXT_FAST(set_device) {
  EXT_ARGS("set_device", "device", out);
  px_device device;
  int64_t index;
  char text[PX_DEVICE_TEXT];
  if (PyLong_Check(out[0])) {
    if (ext_to_int(out[0], &index) < 0) return NULL;
    EXT_TRY(px_device_set(index < 0 ? -1 : index > INT16_MAX ? INT16_MAX : (int)index));
    Py_RETURN_NONE;
  }
  bool named = PyUnicode_Check(out[0]) || ext_is_device(out[0]);
  if (named && ext_to_device(out[0], &device) < 0) return NULL;
  if (named && device.type != PX_CUDA)
    EXT_FAIL(PyExc_ValueError, "Expected a cuda device, but got: %s",
             px_device_format(device, text));
  if (!named || device.index < 0)
    EXT_FAIL(PyExc_ValueError,
             "Expected a torch.device with a specified index or an integer, but got:%S", out[0]);
  EXT_TRY(px_device_set(device.index));
  Py_RETURN_NONE;
}

EXT_FAST(synchronize) {
  EXT_ARGS("synchronize", "|device", out);
  int index;
  if (ext_to_cuda_index(out[0], &index) < 0) return NULL;
  EXT_WAIT(px_device_synchronize(index));
  Py_RETURN_NONE;
}

// ---- with torch.cuda.device(x), torch.cuda.device_of(t)
enum { DEPTH = 64 };
typedef struct scope_object {
  PyObject_HEAD int index, depth;  // index -1: stays where it is
  bool restores;                   // what its block did to the current device is undone
  int16_t before[DEPTH];
} scope_object;
static PyTypeObject scope_type, scope_of_type;

static int scope_index(PyObject *given, scope_object *self) {
  px_device device;
  int64_t index;
  self->index = -1;
  self->restores = true;
  if (ext_is_none(given)) return 0;
  if (PyLong_Check(given)) {
    if (ext_to_int(given, &index) < 0) return -1;
    self->index = index < 0 ? -1 : index > INT16_MAX ? INT16_MAX : (int)index;
    self->restores = index >= 0;
    return 0;
  }
  if (ext_to_device(given, &device) < 0) return -1;
  char text[PX_DEVICE_TEXT];
  if (device.type != PX_CUDA)
    EXT_FAIL_INT(PyExc_ValueError, "Expected a cuda device, but got: %s",
                 px_device_format(device, text));
  self->index = device.index;
  return 0;
}

static PyObject *scope_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"device", "device", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return NULL;
  PyObject *self = type->tp_alloc(type, 0);
  if (self && scope_index(out[0], (scope_object *)self) < 0) Py_CLEAR(self);
  return self;
}

static PyObject *scope_of_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"device_of", "obj", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return NULL;
  EXT_OWNED *is_cuda = PyObject_GetAttrString(out[0], "is_cuda");
  int moves = is_cuda ? PyObject_IsTrue(is_cuda) : -1;
  if (moves < 0) return NULL;
  EXT_OWNED *index = moves ? PyObject_CallMethod(out[0], "get_device", NULL) : PyLong_FromLong(-1);
  if (!index) return NULL;
  PyObject *self = type->tp_alloc(type, 0);
  if (self && scope_index(index, (scope_object *)self) < 0) Py_CLEAR(self);
  return self;
}

static PyObject *scope_enter(PyObject *object, PyObject *u) {
  scope_object *self = (scope_object *)object;
  if (self->depth == DEPTH) EXT_FAIL(PyExc_RuntimeError, "the device scope is entered too often");
  int before = px_device_peek();
  if (self->index >= 0) EXT_TRY(px_device_set(self->index));
  self->before[self->depth++] = (int16_t)before;
  return Py_NewRef(object);
}
static PyObject *scope_exit(PyObject *object, PyObject *u) {
  scope_object *self = (scope_object *)object;
  if (!self->depth) EXT_FAIL(PyExc_RuntimeError, "the device scope was not entered");
  int before = self->before[--self->depth];
  if (self->restores && px_device_peek() != before) EXT_TRY(px_device_set(before));
  Py_RETURN_FALSE;
}
static PyObject *scope_idx(PyObject *self, void *u) {
  return PyLong_FromLong(((scope_object *)self)->index);
}
static PyMethodDef scope_methods[] = {{"__enter__", scope_enter, METH_NOARGS, NULL},
                                      {"__exit__", scope_exit, METH_VARARGS, NULL},
                                      {NULL, NULL, 0, NULL}};
static PyGetSetDef scope_getset[] = {{"idx", scope_idx, NULL, NULL, NULL},
                                     {NULL, NULL, NULL, NULL, NULL}};
#define SCOPE_TYPE(variable, name, make) \
  static PyTypeObject variable = { \
      PyVarObject_HEAD_INIT(NULL, 0).tp_name = name, \
      .tp_basicsize = sizeof(scope_object), \
      .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, \
      .tp_new = make, \
      .tp_methods = scope_methods, \
      .tp_getset = scope_getset, \
  }
SCOPE_TYPE(scope_type, "torch.cuda.device", scope_new);
SCOPE_TYPE(scope_of_type, "torch.cuda.device_of", scope_of_new);

// ---- properties
static PyTypeObject properties_type;
static PyStructSequence_Field properties_fields[] = {{"name", NULL},
                                                     {"major", NULL},
                                                     {"minor", NULL},
                                                     {"total_memory", NULL},
                                                     {"multi_processor_count", NULL},
                                                     {"uuid", NULL},
                                                     {"pci_bus_id", NULL},
                                                     {"pci_device_id", NULL},
                                                     {"pci_domain_id", NULL},
                                                     {"L2_cache_size", NULL},
                                                     {"max_threads_per_multi_processor", NULL},
                                                     {"is_simulated", NULL},
                                                     {NULL, NULL}};

static PyObject *uuid_text(const unsigned char *u) {
  char text[40];
  snprintf(text, sizeof text,
           "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
           u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
  return PyUnicode_FromString(text);
}

static int read_properties(PyObject *device, px_device_properties *p) {
  int index;
  if (ext_to_cuda_index(device, &index) < 0) return -1;
  EXT_TRY_INT(px_device_get_properties(p, index));
  return 0;
}

EXT_FAST(get_device_properties) {
  EXT_ARGS("get_device_properties", "|device", out);
  px_device_properties p;
  if (read_properties(out[0], &p) < 0) return NULL;
  PyObject *made = PyStructSequence_New(&properties_type);
  if (!made) return NULL;
  PyObject *items[] = {PyUnicode_FromString(p.name),
                       PyLong_FromLong(p.major),
                       PyLong_FromLong(p.minor),
                       PyLong_FromSize_t(p.total_memory),
                       PyLong_FromLong(p.multi_processor_count),
                       uuid_text(p.uuid),
                       PyLong_FromLong(p.pci_bus_id),
                       PyLong_FromLong(p.pci_device_id),
                       PyLong_FromLong(p.pci_domain_id),
                       PyLong_FromSize_t(p.l2_cache_size),
                       PyLong_FromLong(p.max_threads_per_multi_processor),
                       PyBool_FromLong(p.simulated)};
  for (int i = 0; i < EXT_LENGTH(items); i++) PyStructSequence_SetItem(made, i, items[i]);
  return made;
}

static PyObject *properties_repr(PyObject *self) {
#define FIELD(i) PyStructSequence_GetItem(self, i)
  return PyUnicode_FromFormat(
      "_CudaDeviceProperties(name=%R, major=%S, minor=%S, total_memory=%zdMB, "
      "multi_processor_count=%S, uuid=%S, pci_bus_id=%S, pci_device_id=%S, pci_domain_id=%S, "
      "L2_cache_size=%zdMB)",
      FIELD(0), FIELD(1), FIELD(2), PyLong_AsSsize_t(FIELD(3)) >> 20, FIELD(4), FIELD(5), FIELD(6),
      FIELD(7), FIELD(8), PyLong_AsSsize_t(FIELD(9)) >> 20);
#undef FIELD
}

EXT_FAST(get_device_name) {
  EXT_ARGS("get_device_name", "|device", out);
  px_device_properties p;
  return read_properties(out[0], &p) < 0 ? NULL : PyUnicode_FromString(p.name);
}
EXT_FAST(get_device_capability) {
  EXT_ARGS("get_device_capability", "|device", out);
  px_device_properties p;
  return read_properties(out[0], &p) < 0 ? NULL : Py_BuildValue("(ii)", p.major, p.minor);
}
EXT_FAST(can_device_access_peer) {
  EXT_ARGS("can_device_access_peer", "device peer_device", out);
  int from, to;
  bool can;
  if (ext_to_cuda_index(out[0], &from) < 0 || ext_to_cuda_index(out[1], &to) < 0) return NULL;
  EXT_TRY(px_device_can_access_peer(&can, from, to));
  return PyBool_FromLong(can);
}
// Not in PyTorch: kernels on `device` may then use memory of `peer_device`.
EXT_FAST(enable_peer_access) {
  EXT_ARGS("enable_peer_access", "device peer_device", out);
  int from, to;
  if (ext_to_cuda_index(out[0], &from) < 0 || ext_to_cuda_index(out[1], &to) < 0) return NULL;
  EXT_WAIT(px_device_enable_peer(from, to));
  Py_RETURN_NONE;
}
EXT_FAST(mem_get_info) {
  EXT_ARGS("mem_get_info", "|device", out);
  int index;
  size_t free_bytes, total;
  if (ext_to_cuda_index(out[0], &index) < 0) return NULL;
  EXT_TRY(px_device_memory(&free_bytes, &total, index));
  return Py_BuildValue("(nn)", (Py_ssize_t)free_bytes, (Py_ssize_t)total);
}
EXT_FAST(is_bf16_supported) {
  EXT_ARGS("is_bf16_supported", "|including_emulation", out);
  return PyBool_FromLong(px_device_count(PX_CUDA) > 0);
}
// By number or by name.
static int sync_mode_of(PyObject *object, int64_t *out) {
  static const char *const names[] = {"default", "warn", "error"};
  if (!PyUnicode_Check(object)) return ext_to_int(object, out);
  for (*out = 0; *out < EXT_LENGTH(names); ++*out)
    if (!PyUnicode_CompareWithASCIIString(object, names[*out])) return 0;
  EXT_FAIL_INT(PyExc_RuntimeError,
               "invalid value of debug_mode, expected one of `default`, `warn`, `error`");
}
EXT_FAST(set_sync_debug_mode) {
  EXT_ARGS("set_sync_debug_mode", "debug_mode", out);
  int64_t mode;
  EXT_TRY(px_device_init());
  if (sync_mode_of(out[0], &mode) < 0) return NULL;
  EXT_TRY(px_sync_debug_set(mode < 0 || mode > 2 ? (px_sync_debug)3 : (px_sync_debug)mode));
  Py_RETURN_NONE;
}
static PyObject *get_sync_debug_mode(PyObject *m, PyObject *u) {
  EXT_TRY(px_device_init());
  return PyLong_FromLong(px_sync_debug_get());
}
static PyObject *ipc_collect(PyObject *m, PyObject *u) {
  EXT_FAIL(PyExc_NotImplementedError, "torch.cuda.ipc_collect");
}
static PyObject *get_arch_list(PyObject *m, PyObject *u) { return PyList_New(0); }
static PyObject *backend_name(PyObject *m, PyObject *u) {
  return PyUnicode_FromString(px_device_backend());
}

static PyMethodDef functions[] = {{"is_available", is_available, METH_NOARGS, NULL},
                                  {"device_count", device_count, METH_NOARGS, NULL},
                                  {"current_device", current_device, METH_NOARGS, NULL},
                                  {"is_initialized", is_initialized, METH_NOARGS, NULL},
                                  {"init", init, METH_NOARGS, NULL},
                                  {"_lazy_init", init, METH_NOARGS, NULL},
                                  EXT_DEF("set_device", set_device),
                                  EXT_DEF("synchronize", synchronize),
                                  EXT_DEF("get_device_properties", get_device_properties),
                                  EXT_DEF("get_device_name", get_device_name),
                                  EXT_DEF("get_device_capability", get_device_capability),
                                  EXT_DEF("can_device_access_peer", can_device_access_peer),
                                  EXT_DEF("enable_peer_access", enable_peer_access),
                                  EXT_DEF("mem_get_info", mem_get_info),
                                  EXT_DEF("is_bf16_supported", is_bf16_supported),
                                  EXT_DEF("set_sync_debug_mode", set_sync_debug_mode),
                                  {"get_sync_debug_mode", get_sync_debug_mode, METH_NOARGS, NULL},
                                  {"ipc_collect", ipc_collect, METH_NOARGS, NULL},
                                  {"get_arch_list", get_arch_list, METH_NOARGS, NULL},
                                  {"_backend_name", backend_name, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

// ---- torch.accelerator
EXT_FAST(current_accelerator) {
  EXT_ARGS("current_accelerator", "|check_available", out);
  if (px_device_count(PX_CUDA) == 0) Py_RETURN_NONE;
  return ext_device(px_cuda(-1));
}
static PyMethodDef accelerator_functions[] = {
    EXT_DEF("current_accelerator", current_accelerator),
    {"is_available", is_available, METH_NOARGS, NULL},
    {"device_count", device_count, METH_NOARGS, NULL},
    {"current_device_index", current_device, METH_NOARGS, NULL},
    {"current_device_idx", current_device, METH_NOARGS, NULL},
    EXT_DEF("set_device_index", set_device),
    EXT_DEF("set_device_idx", set_device),
    EXT_DEF("synchronize", synchronize),
    {NULL, NULL, 0, NULL}};

static int ext_init_cuda(PyObject *m) {
  static PyStructSequence_Desc desc = {"torch.cuda._CudaDeviceProperties", NULL, properties_fields,
                                       12};
  PyObject *cuda = ext_submodule(m, "cuda", functions);
  PyObject *accelerator = ext_submodule(m, "accelerator", accelerator_functions);
  if (!cuda || !accelerator || PyStructSequence_InitType2(&properties_type, &desc) < 0) return -1;
  properties_type.tp_repr = properties_type.tp_str = properties_repr;
  if (ext_add_class(cuda, "device", &scope_type) < 0 ||
      ext_add_class(cuda, "device_of", &scope_of_type) < 0 ||
      ext_add(cuda, "OutOfMemoryError", Py_NewRef(ext_OutOfMemoryError)) < 0)
    return -1;
  return 0;
}
EXT_START(EXT_VALUES, ext_init_cuda);
EXT_MODULE(cuda, "cuda", "Devices of type cuda: selection, properties, streams, memory.");
EXT_MODULE(accelerator, "accelerator", "The same for whatever accelerator there is.");
