// SPDX-License-Identifier: Apache-2.0
// torch.autocast and its settings; the rest of torch.amp is in grad_scaler.c. A context manager,
// and a decorator through phlox/_modes.py.
#include "bind/ext.h"

EXT_MODULE(amp, "amp", "Automatic mixed precision: autocast and gradient scaling.");
EXT_MODULE(cuda_amp, "cuda.amp", "Deprecated names of mixed precision for CUDA devices.");
EXT_MODULE(cpu_amp, "cpu.amp", "Deprecated names of mixed precision for the CPU.");
EXT_MODULE(cpu, "cpu", "The interface of torch.cuda for the CPU.");

enum { DEPTH = 64 };
typedef struct autocast_object {
  PyObject_HEAD px_device_type type;
  px_dtype dtype;
  bool enabled, cache;
  int depth;
  px_autocast saved[DEPTH];  // state before each entry
} autocast_object;
#define A(self) ((autocast_object *)(self))

// Device type of a name; -1 for NULL, after an exception. A type without autocast is rejected on
// use.
static int type_of(const char *name, px_device_type *out) {
  px_device device;
  if (!name) return -1;
  EXT_TRY_INT(px_device_parse(&device, name));
  *out = (px_device_type)device.type;
  return 0;
}
static int check_type(px_device_type type) {
  if (px_autocast_is_available(type)) return 0;
  EXT_FAIL_INT(PyExc_RuntimeError, "unsupported scalarType");
}

// ---- a region

static int autocast_set(autocast_object *self, px_device_type type, px_dtype dtype, bool enabled,
                        int cache) {
  px_autocast now = px_autocast_get();
  if (check_type(type) < 0) return -1;
  self->type = type;
  self->dtype = dtype == PX_DTYPE_NONE ? (px_dtype)now.dtype[type] : dtype;
  self->cache = cache < 0 ? now.cache : cache;
  self->enabled = enabled;
  return ext_zero(px_autocast_check(type, self->dtype, &self->enabled));
}

EXT_INIT(autocast,
         "(device_type: str, dtype: _dtype | None = None, enabled: bool = True, "
         "cache_enabled: bool | None = None)") {
  PyObject *device_type;
  px_dtype dtype;
  bool enabled;
  ext_optional_bool cache_enabled;
  px_device_type type;
  EXT_BIND_OR(-1, device_type, dtype, enabled, cache_enabled);
  if (!device_type || !PyUnicode_Check(device_type))
    EXT_FAIL_INT(PyExc_ValueError, "Expected `device_type` of type `str`, got: `%R`",
                 device_type ? (PyObject *)Py_TYPE(device_type) : Py_None);
  if (type_of(ext_text(device_type), &type) < 0) return -1;
  return autocast_set(A(self), type, dtype, enabled, cache_enabled);
}

static int enter(autocast_object *self, px_autocast *before) {
  EXT_TRY_INT(px_autocast_enter(before, self->type, self->dtype, self->enabled));
  px_autocast_set_cache_enabled(self->cache);
  return 0;
}
// _run(function, args, kwargs): calls the function with autocast. Keeps no state in the object: the
// function may be re-entered, or run on another thread.
static PyObject *autocast_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  px_autocast before;
  PyObject *function, *given, *kwargs;
  if (!EXT_UNPACK_ARGS(args, nargs, &function, &given, &kwargs))
    EXT_FAIL(PyExc_TypeError, "_run() expects a function, a tuple and a dict");
  if (enter(A(self), &before) < 0) return NULL;
  PyObject *result = ext_apply(function, given, kwargs);
  px_autocast_exit(before);
  return result;
}
static PyObject *autocast_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *function;
  if (!PyArg_ParseTuple(args, "O", &function)) return NULL;
  return ext_call_from("phlox._modes", "under", "(OO)", self, function);
}

static PyMethodDef autocast_methods[] = {
    {"_run", (PyCFunction)(void (*)(void))autocast_run, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};
EXT_TYPE(
    autocast, "torch.amp.autocast_mode.autocast", "autocast amp.autocast", autocast_object,
    EXT_BASETYPE | EXT_SHORT_NAME,
    "Context manager and decorator for mixed precision: matrix products and convolutions run "
    "in a lower precision,\nops prone to overflow or loss of precision in float32.\n\n"
    "Args:\n"
    "    device_type (str): device type to use: \"cuda\" or \"cpu\"\n"
    "    dtype (torch.dtype or None): the lower dtype. Default: float16; bfloat16 on the CPU\n"
    "    enabled (bool): whether autocasting is enabled in the region\n"
    "    cache_enabled (bool or None): whether the weight cache is enabled until the end of the "
    "outermost\n        region. Default: the current setting\n\n"
    ">>> a = torch.ones(2, 2)\n"
    ">>> with torch.autocast(\"cpu\"):\n"
    "...     b = a @ a\n"
    ">>> b.dtype\n"
    "torch.bfloat16\n",
    .tp_new = PyType_GenericNew, .tp_init = autocast_init, .tp_call = autocast_call,
    .tp_methods = autocast_methods);
EXT_METHOD0(autocast, __enter__, "Self", NULL) {
  autocast_object *object = A(self);
  if (object->depth == DEPTH) EXT_FAIL(PyExc_RuntimeError, "too many nested entries of autocast");
  if (enter(object, &object->saved[object->depth]) < 0) return NULL;
  object->depth++;
  return Py_NewRef(self);
}
EXT_METHOD(autocast, __exit__, "(*exc: object) -> Literal[False]", NULL) {
  autocast_object *object = A(self);
  if (!object->depth) EXT_FAIL(PyExc_RuntimeError, "autocast was not entered");
  px_autocast_exit(object->saved[--object->depth]);
  return Py_NewRef(Py_False);
}
EXT_GET(autocast, device, "str", px_device_type_name(A(self)->type), "The device type.");
EXT_GET(autocast, fast_dtype, "_dtype", ext_dtype(A(self)->dtype), "The lower dtype.");
EXT_GET(autocast, _enabled, "bool", A(self)->enabled, NULL);
EXT_GET(autocast, _cache_enabled, "bool", A(self)->cache, NULL);

// ---- deprecated names per device type

static int old_autocast(PyObject *self, px_device_type type, px_dtype lower, const ext_call *call) {
  bool enabled, cache_enabled;
  px_dtype dtype;
  const char *name = px_device_type_name(type);
  EXT_BIND_OR(-1, enabled, dtype, cache_enabled);
  if (PyErr_WarnFormat(PyExc_FutureWarning, 1,
                       "`torch.%s.amp.autocast(args...)` is deprecated. Please use "
                       "`torch.amp.autocast('%s', args...)` instead.",
                       name, name) < 0)
    return -1;
  return autocast_set(A(self), type, dtype == PX_DTYPE_NONE ? lower : dtype, enabled,
                      cache_enabled);
}
#define OLD_TYPE(word, type, lower, module) \
  EXT_INIT(word, \
           "(enabled: bool = True, dtype: _dtype | None = None, cache_enabled: bool = True)") { \
    return old_autocast(self, type, lower, call); \
  } \
  EXT_TYPE(word, "torch." module ".amp.autocast_mode.autocast", module ".amp.autocast", \
           autocast_object, EXT_BASETYPE | EXT_SHORT_NAME, \
           "torch.autocast of \"" module \
           "\".\n\n" \
           "Args:\n" \
           "    enabled (bool): whether autocasting is enabled in the region\n" \
           "    dtype (torch.dtype or None): the lower dtype\n" \
           "    cache_enabled (bool): whether the weight cache is enabled\n", \
           .tp_base = &autocast_type, .tp_new = PyType_GenericNew, .tp_init = word##_init)
OLD_TYPE(cuda_autocast, PX_CUDA, PX_FLOAT16, "cuda");
OLD_TYPE(cpu_autocast, PX_CPU, PX_BFLOAT16, "cpu");

// ---- settings

EXT_FUNCTION(amp, is_autocast_available, "(device_type: str) -> bool",
             "Returns True if autocast is available for the device type.\n\n"
             "Args:\n"
             "    device_type (str)\n") {
  EXT_ARGS(const char *, device_type);
  px_device_type type;
  if (type_of(device_type, &type) < 0) return NULL;
  return EXT_VALUE(px_autocast_is_available(type));
}

EXT_FUNCTION(torch, is_autocast_enabled, "(device_type: str = 'cuda') -> bool",
             "Returns True if autocast is enabled in this thread.\n\n"
             "Args:\n"
             "    device_type (str)\n") {
  EXT_ARGS(const char *, device_type);
  px_device_type type;
  if (type_of(device_type, &type) < 0) return NULL;
  return EXT_VALUE(px_autocast_get().enabled[type]);
}

EXT_FUNCTION(torch, get_autocast_dtype, "(device_type: str) -> _dtype",
             "Returns the lower dtype of autocast in this thread.\n\n"
             "Args:\n"
             "    device_type (str)\n") {
  EXT_ARGS(const char *, device_type);
  px_device_type type;
  if (type_of(device_type, &type) < 0 || check_type(type) < 0) return NULL;
  return ext_dtype((px_dtype)px_autocast_get().dtype[type]);
}

EXT_FUNCTION(torch, set_autocast_dtype, "(device_type: str, dtype: _dtype) -> None",
             "Sets the lower dtype of autocast in this thread.\n\n"
             "Args:\n"
             "    device_type (str)\n"
             "    dtype (torch.dtype): float16 or bfloat16\n") {
  const char *device_type;
  px_dtype dtype;
  px_device_type type;
  EXT_BIND(device_type, dtype);
  if (type_of(device_type, &type) < 0) return NULL;
  return ext_none(px_autocast_set_dtype(type, dtype));
}

// set_autocast_enabled(True) without a device type means cuda, for backward compatibility.
EXT_FUNCTION(torch, set_autocast_enabled,
             "(device_type: str | bool, enabled: bool | None = None) -> None",
             "Enables or disables autocast in this thread.\n\n"
             "Args:\n"
             "    device_type (str): optional; default: \"cuda\"\n"
             "    enabled (bool)\n") {
  EXT_ARGS(PyObject *, device_type, enabled);
  px_device_type type = PX_CUDA;
  bool named = device_type && PyUnicode_Check(device_type);
  PyObject *on = named ? enabled : device_type;
  if (!on || !PyBool_Check(on) || (!named && enabled))
    EXT_FAIL(PyExc_TypeError,
             "set_autocast_enabled(): argument 'enabled' (position %d) must be bool, not %s",
             named ? 2 : 1, on ? ext_type_name(on) : "NoneType");
  if (named && type_of(ext_text(device_type), &type) < 0) return NULL;
  return ext_none(px_autocast_set_enabled(type, on == Py_True));
}

EXT_RETURNS(torch, is_autocast_cache_enabled, "bool", px_autocast_get().cache,
            "Returns True if the autocast weight cache is enabled.");
EXT_FUNCTION(torch, set_autocast_cache_enabled, "(enabled: bool) -> None",
             "Enables or disables the autocast weight cache.\n\n"
             "Args:\n"
             "    enabled (bool)\n") {
  EXT_ARGS(bool, enabled);
  px_autocast_set_cache_enabled(enabled);
  Py_RETURN_NONE;
}
EXT_FUNCTION0(torch, clear_autocast_cache, "None", "Clears the autocast weight cache.") {
  px_autocast_clear_cache();
  Py_RETURN_NONE;
}
EXT_RETURNS(torch, autocast_increment_nesting, "int", px_autocast_nest(1),
            "Increments the nesting depth of autocast and returns it.");
EXT_RETURNS(torch, autocast_decrement_nesting, "int", px_autocast_nest(-1),
            "Decrements the nesting depth of autocast and returns it.");

// ---- deprecated names of settings

static int warn_deprecated(const char *name, const char *instead) {
  return PyErr_WarnFormat(PyExc_DeprecationWarning, 1,
                          "torch.%s is deprecated. Please use torch.%s instead.", name, instead);
}
#define DEPRECATED_GET(name, annotation, value, instead) \
  EXT_FUNCTION0(torch, name, annotation, "Deprecated name of " instead ".") { \
    return warn_deprecated(#name "()", instead) < 0 ? NULL : (value); \
  } \
  struct ext_row
#define DEPRECATED_SET(name, type, argument, annotation, action, instead) \
  EXT_FUNCTION(torch, name, "(" #argument ": " annotation ") -> None", \
               "Deprecated name of " instead \
               ".\n\n" \
               "Args:\n" \
               "    " #argument "\n") { \
    EXT_ARGS(type, argument); \
    return warn_deprecated(#name "(" #argument ")", instead) < 0 ? NULL : ext_none(action); \
  } \
  struct ext_row
#define LOWER(type) ext_dtype((px_dtype)px_autocast_get().dtype[type])
DEPRECATED_GET(is_autocast_cpu_enabled, "bool", EXT_VALUE(px_autocast_get().enabled[PX_CPU]),
               "is_autocast_enabled('cpu')");
DEPRECATED_GET(get_autocast_cpu_dtype, "_dtype", LOWER(PX_CPU), "get_autocast_dtype('cpu')");
DEPRECATED_GET(get_autocast_gpu_dtype, "_dtype", LOWER(PX_CUDA), "get_autocast_dtype('cuda')");
DEPRECATED_SET(set_autocast_cpu_enabled, bool, enabled, "bool",
               px_autocast_set_enabled(PX_CPU, enabled), "set_autocast_enabled('cpu', enabled)");
DEPRECATED_SET(set_autocast_cpu_dtype, px_dtype, dtype, "_dtype",
               px_autocast_set_dtype(PX_CPU, dtype), "set_autocast_dtype('cpu', dtype)");
DEPRECATED_SET(set_autocast_gpu_dtype, px_dtype, dtype, "_dtype",
               px_autocast_set_dtype(PX_CUDA, dtype), "set_autocast_dtype('cuda', dtype)");

// ---- torch.cpu

EXT_RETURNS(cpu, is_available, "bool", true, "Returns True: the CPU is always available.");
EXT_RETURNS(cpu, is_initialized, "bool", true, "Returns True: the CPU needs no initialization.");
EXT_RETURNS(cpu, device_count, "int", 1, "Returns the number of CPU devices: 1.");
EXT_RETURNS(cpu, current_device, "str", px_device_type_name(PX_CPU),
            "Returns the name of the current device: cpu.");
EXT_FUNCTION(cpu, synchronize, "(device: Device | None = None) -> None",
             "No-op: CPU work is complete when its call returns.\n\n"
             "Args:\n"
             "    device (torch.device or None)\n") {
  EXT_ARGS(PyObject *, device);
  (void)device;
  Py_RETURN_NONE;
}
