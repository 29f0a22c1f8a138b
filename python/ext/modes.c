// SPDX-License-Identifier: Apache-2.0
// no_grad, enable_grad, set_grad_enabled, inference_mode, detect_anomaly: context managers and
// decorators over the modes of the calling thread.
#include "ext.h"

typedef enum mode_kind { NO_GRAD, ENABLE_GRAD, SET_GRAD, INFERENCE, ANOMALY } mode_kind;
enum { DEPTH = 64 };
typedef struct mode_object {
  PyObject_HEAD mode_kind kind;
  bool value, check_nan;
  int depth;
  bool at_once;          // set_grad_enabled, set_detect_anomaly: acts when it is made
  uint8_t saved[DEPTH];  // grad, inference, anomaly of the thread before each entry, as bits
  uint8_t first;         // the same at construction
} mode_object;

static uint8_t state_now(void) {
  return (uint8_t)((px_grad_enabled() ? 1 : 0) | (px_inference_enabled() ? 2 : 0) |
                   (px_anomaly_enabled() ? 4 : 0) | (px_anomaly_checks_nan() ? 8 : 0));
}
static void state_restore(mode_kind kind, uint8_t state) {
  if (kind == ANOMALY) return px_anomaly_set(state & 4, state & 8);
  if (kind == INFERENCE) px_inference_set_enabled(state & 2);
  px_grad_set_enabled(state & 1);
}
static void state_apply(const mode_object *self) {
  switch (self->kind) {
    case INFERENCE:
      px_inference_set_enabled(self->value);
      px_grad_set_enabled(!self->value);
      break;
    case ANOMALY:
      px_anomaly_set(self->value, self->check_nan);
      break;
    default:
      px_grad_set_enabled(self->value);
  }
}

static PyObject *mode_enter(PyObject *object, PyObject *unused) {
  mode_object *self = (mode_object *)object;
  if (self->depth == DEPTH) EXT_FAIL(PyExc_RuntimeError, "the mode is entered too often");
  self->saved[self->depth++] = self->at_once ? self->first : state_now();
  state_apply(self);
  return Py_NewRef(object);
}
static PyObject *mode_exit(PyObject *object, PyObject *unused) {
  mode_object *self = (mode_object *)object;
  if (!self->depth) EXT_FAIL(PyExc_RuntimeError, "the mode was not entered");
  state_restore(self->kind, self->saved[--self->depth]);
  Py_RETURN_NONE;
}

// ---- a function under a mode; it binds to instances as functions do
typedef struct wrapped_object {
  PyObject_HEAD PyObject *function, *dict;
  mode_object mode;
} wrapped_object;
static PyTypeObject wrapped_type;

// A generator runs when it is asked for values: the mode holds in each of these steps, and not
// between them.
typedef struct steps_object {
  PyObject_HEAD PyObject *generator;
  mode_object mode;
} steps_object;

static PyObject *step(PyObject *object, const char *method, PyObject *args) {
  steps_object *self = (steps_object *)object;
  uint8_t before = state_now();
  state_apply(&self->mode);
  PyObject *function = method ? PyObject_GetAttrString(self->generator, method) : NULL;
  PyObject *result = function ? PyObject_CallObject(function, args)
                     : method ? NULL
                              : Py_TYPE(self->generator)->tp_iternext(self->generator);
  Py_XDECREF(function);
  state_restore(self->mode.kind, before);
  return result;
}
static PyObject *steps_next(PyObject *self) { return step(self, NULL, NULL); }
static PyObject *steps_send(PyObject *self, PyObject *args) { return step(self, "send", args); }
static PyObject *steps_throw(PyObject *self, PyObject *args) { return step(self, "throw", args); }
static PyObject *steps_close(PyObject *self, PyObject *args) { return step(self, "close", args); }
static void steps_dealloc(PyObject *self) {
  Py_DECREF(((steps_object *)self)->generator);
  PyObject_Free(self);
}
static PyMethodDef steps_methods[] = {{"send", steps_send, METH_VARARGS, NULL},
                                      {"throw", steps_throw, METH_VARARGS, NULL},
                                      {"close", steps_close, METH_VARARGS, NULL},
                                      {NULL, NULL, 0, NULL}};
static PyTypeObject steps_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.generator",
    .tp_basicsize = sizeof(steps_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = steps_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = steps_next,
    .tp_methods = steps_methods,
};

static PyObject *in_steps(const mode_object *mode, PyObject *generator_take) {
  steps_object *self = PyObject_New(steps_object, &steps_type);
  if (!self) {
    Py_DECREF(generator_take);
    return NULL;
  }
  self->generator = generator_take;
  self->mode = *mode;
  return (PyObject *)self;
}

static PyObject *wrapped_call(PyObject *object, PyObject *args, PyObject *kwargs) {
  wrapped_object *self = (wrapped_object *)object;
  uint8_t before = state_now();
  state_apply(&self->mode);
  PyObject *result = PyObject_Call(self->function, args, kwargs);
  state_restore(self->mode.kind, before);
  return result && PyGen_CheckExact(result) ? in_steps(&self->mode, result) : result;
}
static PyObject *wrapped_get(PyObject *self, PyObject *instance, PyObject *owner) {
  return !instance || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}
static PyObject *wrapped_attribute(PyObject *object, PyObject *name) {
  PyObject *own = PyObject_GenericGetAttr(object, name);
  if (own || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(((wrapped_object *)object)->function, name);
}
static PyObject *wrapped_name(PyObject *self, void *name) {
  return PyObject_GetAttrString(((wrapped_object *)self)->function, name);
}
static PyObject *wrapped_function(PyObject *self, void *unused) {
  return Py_NewRef(((wrapped_object *)self)->function);
}
static int wrapped_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(((wrapped_object *)self)->function);
  Py_VISIT(((wrapped_object *)self)->dict);
  return 0;
}
static int wrapped_clear(PyObject *self) {
  Py_CLEAR(((wrapped_object *)self)->function);
  Py_CLEAR(((wrapped_object *)self)->dict);
  return 0;
}
static void wrapped_dealloc(PyObject *self) {
  PyObject_GC_UnTrack(self);
  wrapped_clear(self);
  PyObject_GC_Del(self);
}
static PyGetSetDef wrapped_getset[] = {
    {"__wrapped__", wrapped_function, NULL, NULL, NULL},
    {"__name__", wrapped_name, NULL, NULL, (void *)"__name__"},
    {"__qualname__", wrapped_name, NULL, NULL, (void *)"__qualname__"},
    {"__module__", wrapped_name, NULL, NULL, (void *)"__module__"},
    {"__doc__", wrapped_name, NULL, NULL, (void *)"__doc__"},
    {NULL, NULL, NULL, NULL, NULL}};
static PyTypeObject wrapped_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.function",
    .tp_basicsize = sizeof(wrapped_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = wrapped_dealloc,
    .tp_traverse = wrapped_traverse,
    .tp_clear = wrapped_clear,
    .tp_call = wrapped_call,
    .tp_descr_get = wrapped_get,
    .tp_getattro = wrapped_attribute,
    .tp_getset = wrapped_getset,
    .tp_dictoffset = offsetof(wrapped_object, dict),
};

static PyObject *wrap_function(const mode_object *mode, PyObject *function) {
  wrapped_object *self = PyObject_GC_New(wrapped_object, &wrapped_type);
  if (!self) return NULL;
  self->function = Py_NewRef(function);
  self->dict = NULL;
  self->mode = *mode;
  PyObject_GC_Track(self);
  return (PyObject *)self;
}

static PyObject *mode_call(PyObject *object, PyObject *args, PyObject *kwargs) {
  mode_object *self = (mode_object *)object;
  PyObject *function;
  if (!PyArg_ParseTuple(args, "O", &function)) return NULL;
  if (self->at_once) state_restore(self->kind, self->first);
  return wrap_function(self, function);
}

// ---- the types
static PyMethodDef mode_methods[] = {{"__enter__", mode_enter, METH_NOARGS, NULL},
                                     {"__exit__", mode_exit, METH_VARARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
static PyObject *mode_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
#define MODE_TYPE(variable, name) \
  static PyTypeObject variable = { \
      PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch." name, \
      .tp_basicsize = sizeof(mode_object), \
      .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, \
      .tp_new = mode_new, \
      .tp_call = mode_call, \
      .tp_methods = mode_methods, \
  }
MODE_TYPE(no_grad_type, "no_grad");
MODE_TYPE(enable_grad_type, "enable_grad");
MODE_TYPE(set_grad_type, "set_grad_enabled");
MODE_TYPE(inference_type, "inference_mode");
MODE_TYPE(detect_anomaly_type, "autograd.detect_anomaly");
MODE_TYPE(set_anomaly_type, "autograd.set_detect_anomaly");

static mode_kind kind_of(PyTypeObject *type) {
  if (PyType_IsSubtype(type, &no_grad_type)) return NO_GRAD;
  if (PyType_IsSubtype(type, &enable_grad_type)) return ENABLE_GRAD;
  if (PyType_IsSubtype(type, &set_grad_type)) return SET_GRAD;
  if (PyType_IsSubtype(type, &inference_type)) return INFERENCE;
  return ANOMALY;
}

#define DETECTION \
  "Anomaly Detection has been enabled. This mode will increase the runtime and should only be " \
  "enabled for debugging."

static PyObject *mode_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static ext_spec plain = {"mode", "|mode check_nan", 0, 0, 0, {NULL}};
  static ext_spec detecting = {"detect_anomaly", "|check_nan", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(type == &detect_anomaly_type ? &detecting : &plain, args, kwargs, out) < 0)
    return NULL;
  mode_object mode = {.kind = kind_of(type), .first = state_now(), .check_nan = true};
  PyObject *function = out[0] && PyCallable_Check(out[0]) && !PyBool_Check(out[0]) ? out[0] : NULL;
  bool detect = type == &detect_anomaly_type;
  int value = function ? 1 : ext_to_bool(detect ? NULL : out[0], true);
  int check_nan = ext_to_bool(detect ? out[0] : out[1], true);
  if (value < 0 || check_nan < 0) return NULL;
  mode.value = mode.kind == NO_GRAD ? false : mode.kind == ENABLE_GRAD ? true : value;
  mode.check_nan = check_nan;
  if (function) return wrap_function(&mode, function);
  PyObject *self = type->tp_alloc(type, 0);
  if (!self) return NULL;
  mode_object *made = (mode_object *)self;
  made->kind = mode.kind, made->value = mode.value, made->check_nan = mode.check_nan;
  made->first = mode.first;
  made->at_once = type == &set_grad_type || type == &set_anomaly_type;
  if (made->at_once) state_apply(made);
  if (!detect || PyErr_WarnEx(PyExc_UserWarning, DETECTION, 1) == 0) return self;
  Py_DECREF(self);
  return NULL;
}

static PyObject *is_grad_enabled(PyObject *m, PyObject *u) {
  return PyBool_FromLong(px_grad_enabled());
}
static PyObject *is_inference_enabled(PyObject *m, PyObject *u) {
  return PyBool_FromLong(px_inference_enabled());
}
static PyObject *is_anomaly_enabled(PyObject *m, PyObject *u) {
  return PyBool_FromLong(px_anomaly_enabled());
}
static PyObject *is_anomaly_checking_nan(PyObject *m, PyObject *u) {
  return PyBool_FromLong(px_anomaly_checks_nan());
}
static PyMethodDef functions[] = {
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS, NULL},
    {"is_inference_mode_enabled", is_inference_enabled, METH_NOARGS, NULL},
    {"is_anomaly_enabled", is_anomaly_enabled, METH_NOARGS, NULL},
    {"is_anomaly_check_nan_enabled", is_anomaly_checking_nan, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static int ext_init_modes(PyObject *m) {
  static const struct {
    PyTypeObject *type;
    const char *name;
    bool top, autograd;
  } types[] = {{&no_grad_type, "no_grad", true, true},
               {&enable_grad_type, "enable_grad", true, true},
               {&set_grad_type, "set_grad_enabled", true, true},
               {&inference_type, "inference_mode", true, true},
               {&detect_anomaly_type, "detect_anomaly", false, true},
               {&set_anomaly_type, "set_detect_anomaly", false, true}};
  PyObject *autograd = PyObject_GetAttrString(m, "autograd");
  PyObject *grad_mode = autograd ? ext_submodule(autograd, "grad_mode", NULL) : NULL;
  if (!grad_mode || PyType_Ready(&wrapped_type) < 0 || PyType_Ready(&steps_type) < 0) return -1;
  for (int i = 0; i < EXT_LENGTH(types); i++) {
    if (types[i].top && ext_add_class(m, types[i].name, types[i].type) < 0) return -1;
    if (ext_add_class(autograd, types[i].name, types[i].type) < 0) return -1;
    if (types[i].top && ext_add_class(grad_mode, types[i].name, types[i].type) < 0) return -1;
  }
  Py_DECREF(autograd);
  return PyModule_AddFunctions(m, functions);
}
EXT_START(EXT_VALUES, ext_init_modes);
