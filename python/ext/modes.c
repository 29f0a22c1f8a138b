// SPDX-License-Identifier: Apache-2.0
// no_grad, enable_grad, set_grad_enabled, inference_mode, detect_anomaly: context managers over the
// modes of the calling thread, and decorators by phlox/_modes.py. An entry remembers all modes at
// once, so that exits restore them whatever happened in between.
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
// _run(function, args, kwargs): the call within the mode. It keeps nothing in the object, since the
// function may be called again, or on another thread, before it returns.
static PyObject *mode_run(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
  const mode_object *self = (mode_object *)object;
  PyObject *function, *given, *kwargs;
  if (!EXT_UNPACK_ARGS(args, nargs, &function, &given, &kwargs))
    EXT_FAIL(PyExc_TypeError, "_run() takes a function, a tuple and a dict");
  uint8_t before = state_now();
  state_apply(self);
  PyObject *result = ext_apply(function, given, kwargs);
  state_restore(self->kind, before);
  return result;
}

// As a decorator.
static PyObject *under(PyObject *mode, PyObject *function) {
  return ext_call_from("phlox._modes", "under", "(OO)", mode, function);
}
static PyObject *mode_call(PyObject *object, PyObject *args, PyObject *kwargs) {
  const mode_object *self = (mode_object *)object;
  PyObject *function;
  if (!PyArg_ParseTuple(args, "O", &function)) return NULL;
  if (self->at_once) state_restore(self->kind, self->first);
  return under(object, function);
}

static PyObject *make_mode(PyTypeObject *type, mode_kind kind, bool at_once, bool value,
                           bool check) {
  mode_object *self = ext_new(type);
  if (!self) return NULL;
  self->kind = kind, self->value = value, self->check_nan = check;
  self->first = state_now();
  self->at_once = at_once;
  if (at_once) state_apply(self);
  return (PyObject *)self;
}
// no_grad(function) and the like decorate at once.
static PyObject *mode_or_decorated(PyTypeObject *type, mode_kind kind, bool value,
                                   PyObject *given) {
  EXT_OWNED *mode = make_mode(type, kind, false, value, true);
  bool function = given && PyCallable_Check(given) && !PyBool_Check(given);
  return mode && function ? under(mode, given) : ext_moved(&mode);
}

// ---- the types
static PyMethodDef mode_methods[] = {
    {"__enter__", mode_enter, METH_NOARGS, NULL},
    {"__exit__", mode_exit, METH_VARARGS, NULL},
    {"_run", (PyCFunction)(void (*)(void))mode_run, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};
#define MODE_TYPE(word, name, paths, text) \
  EXT_TYPE(word, "torch." name, paths, mode_object, EXT_BASETYPE | EXT_SHORT_NAME, text, \
           .tp_new = word##_new, .tp_call = mode_call, .tp_methods = mode_methods)

EXT_NEW(no_grad, "(function: Callable | None = None)") {
  EXT_ARGS(PyObject *, function);
  return mode_or_decorated(type, NO_GRAD, false, function);
}
MODE_TYPE(no_grad, "no_grad", "no_grad autograd.no_grad autograd.grad_mode.no_grad",
          "Within it nothing is recorded for gradients. A context manager and a decorator.\n\n"
          ">>> x = torch.ones(2, requires_grad=True)\n"
          ">>> with torch.no_grad():\n"
          "...     y = x * 2\n"
          ">>> y.requires_grad\n"
          "False\n");

EXT_NEW(enable_grad, "(function: Callable | None = None)") {
  EXT_ARGS(PyObject *, function);
  return mode_or_decorated(type, ENABLE_GRAD, true, function);
}
MODE_TYPE(
    enable_grad, "enable_grad", "enable_grad autograd.enable_grad autograd.grad_mode.enable_grad",
    "Within it operations are recorded for gradients, also inside of no_grad. A context manager "
    "and a\ndecorator.");

EXT_NEW(inference_mode, "(mode: bool | Callable = True)") {
  EXT_ARGS(PyObject *, mode);
  bool function = mode && PyCallable_Check(mode) && !PyBool_Check(mode);
  int value = function ? 1 : ext_to_bool(mode, true);
  return value < 0 ? NULL : mode_or_decorated(type, INFERENCE, value, mode);
}
MODE_TYPE(inference_mode, "inference_mode",
          "inference_mode autograd.inference_mode autograd.grad_mode.inference_mode",
          "Like no_grad, and what is made in it can never be part of a graph, nor counts its "
          "versions.\n\n"
          "Args:\n"
          "    mode (bool): whether it is on\n");

EXT_NEW(set_grad_enabled, "(mode: bool = True)") {
  EXT_ARGS(bool, mode);
  return make_mode(type, SET_GRAD, true, mode, true);
}
MODE_TYPE(set_grad_enabled, "set_grad_enabled",
          "set_grad_enabled autograd.set_grad_enabled autograd.grad_mode.set_grad_enabled",
          "Says whether operations are recorded: from the call on, or within it as a context "
          "manager.\n\n"
          "Args:\n"
          "    mode (bool): whether they are\n");

EXT_NEW(detect_anomaly, "(check_nan: bool = True)") {
  EXT_ARGS(bool, check_nan);
  if (PyErr_WarnEx(PyExc_UserWarning,
                   "Anomaly Detection has been enabled. This mode will increase the runtime and "
                   "should only be enabled for debugging.",
                   1) < 0)
    return NULL;
  return make_mode(type, ANOMALY, false, true, check_nan);
}
MODE_TYPE(detect_anomaly, "autograd.detect_anomaly", "autograd.detect_anomaly",
          "Within it an error of a backward pass tells which operation was recorded where.\n\n"
          "Args:\n"
          "    check_nan (bool): a gradient that is NaN is an error\n");

EXT_NEW(set_detect_anomaly, "(mode: bool = True, check_nan: bool = True)") {
  EXT_ARGS(bool, mode, check_nan);
  return make_mode(type, ANOMALY, true, mode, check_nan);
}
MODE_TYPE(set_detect_anomaly, "autograd.set_detect_anomaly", "autograd.set_detect_anomaly",
          "detect_anomaly from the call on, or within it as a context manager.\n\n"
          "Args:\n"
          "    mode (bool): whether it is on\n"
          "    check_nan (bool): a gradient that is NaN is an error\n");

EXT_RETURNS(torch, is_grad_enabled, "bool", px_grad_enabled(),
            "Whether this thread records operations for gradients.");
EXT_RETURNS(torch, is_inference_mode_enabled, "bool", px_inference_enabled(),
            "Whether this thread is in inference mode.");
EXT_RETURNS(torch, is_anomaly_enabled, "bool", px_anomaly_enabled(),
            "Whether anomaly detection is on.");
EXT_RETURNS(torch, is_anomaly_check_nan_enabled, "bool", px_anomaly_checks_nan(),
            "Whether anomaly detection looks for NaN.");
EXT_MODULE(grad_mode, "autograd.grad_mode", "The modes of recording.");
