// SPDX-License-Identifier: Apache-2.0
// no_grad, enable_grad, set_grad_enabled, inference_mode, detect_anomaly: context managers over
// modes of the calling thread, and decorators (phlox/_modes.py). Each entry saves all modes, and
// its exit restores them regardless of changes in between.
#include "bind/ext.h"

typedef enum mode_kind {
  NO_GRAD,
  ENABLE_GRAD,
  SET_GRAD,
  INFERENCE,
  ANOMALY,
  MULTITHREADING
} mode_kind;
enum { DEPTH = 64 };
typedef struct mode_object {
  PyObject_HEAD mode_kind kind;
  bool value, check_nan;
  int depth;
  bool immediate;        // set_grad_enabled, set_detect_anomaly: takes effect on construction
  uint8_t saved[DEPTH];  // bits of grad, inference, anomaly, threads before each entry
  uint8_t initial;       // the same at construction
} mode_object;

static uint8_t state_now(void) {
  return (uint8_t)((px_grad_enabled() ? 1 : 0) | (px_inference_enabled() ? 2 : 0) |
                   (px_anomaly_enabled() ? 4 : 0) | (px_anomaly_checks_nan() ? 8 : 0) |
                   (px_multithreading_enabled() ? 16 : 0));
}
static void state_restore(mode_kind kind, uint8_t state) {
  if (kind == ANOMALY) return px_anomaly_set(state & 4, state & 8);
  if (kind == MULTITHREADING) return px_multithreading_set_enabled(state & 16);
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
    case MULTITHREADING:
      px_multithreading_set_enabled(self->value);
      break;
    default:
      px_grad_set_enabled(self->value);
  }
}

static PyObject *mode_enter(PyObject *object, PyObject *unused) {
  mode_object *self = (mode_object *)object;
  if (self->depth == DEPTH) EXT_FAIL(PyExc_RuntimeError, "too many nested entries of the mode");
  self->saved[self->depth++] = self->immediate ? self->initial : state_now();
  state_apply(self);
  return Py_NewRef(object);
}
static PyObject *mode_exit(PyObject *object, PyObject *unused) {
  mode_object *self = (mode_object *)object;
  if (!self->depth) EXT_FAIL(PyExc_RuntimeError, "the mode was not entered");
  state_restore(self->kind, self->saved[--self->depth]);
  Py_RETURN_NONE;
}
// _run(function, args, kwargs): calls the function in the mode. Keeps no state in the object: the
// function may be re-entered, or run on another thread.
static PyObject *mode_run(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
  const mode_object *self = (mode_object *)object;
  PyObject *function, *given, *kwargs;
  if (!EXT_UNPACK_ARGS(args, nargs, &function, &given, &kwargs))
    EXT_FAIL(PyExc_TypeError, "_run() expects a function, a tuple and a dict");
  uint8_t before = state_now();
  state_apply(self);
  PyObject *result = ext_apply(function, given, kwargs);
  state_restore(self->kind, before);
  return result;
}

// Decorates a function.
static PyObject *decorate(PyObject *mode, PyObject *function) {
  return ext_call_from("phlox._modes", "under", "(OO)", mode, function);
}
static PyObject *mode_call(PyObject *object, PyObject *args, PyObject *kwargs) {
  const mode_object *self = (mode_object *)object;
  PyObject *function;
  if (!PyArg_ParseTuple(args, "O", &function)) return NULL;
  if (self->immediate) state_restore(self->kind, self->initial);
  return decorate(object, function);
}

static PyObject *make_mode(PyTypeObject *type, mode_kind kind, bool immediate, bool value,
                           bool check) {
  mode_object *self = ext_new(type);
  if (!self) return NULL;
  self->kind = kind, self->value = value, self->check_nan = check;
  self->initial = state_now();
  self->immediate = immediate;
  if (immediate) state_apply(self);
  return (PyObject *)self;
}
// no_grad(function) and the like decorate directly.
static PyObject *mode_or_decorated(PyTypeObject *type, mode_kind kind, bool value,
                                   PyObject *given) {
  EXT_OWNED *mode = make_mode(type, kind, false, value, true);
  bool function = given && PyCallable_Check(given) && !PyBool_Check(given);
  return mode && function ? decorate(mode, given) : ext_moved(&mode);
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
          "Context manager and decorator that disables gradient calculation.\n\n"
          ">>> x = torch.ones(2, requires_grad=True)\n"
          ">>> with torch.no_grad():\n"
          "...     y = x * 2\n"
          ">>> y.requires_grad\n"
          "False\n");

EXT_NEW(enable_grad, "(function: Callable | None = None)") {
  EXT_ARGS(PyObject *, function);
  return mode_or_decorated(type, ENABLE_GRAD, true, function);
}
MODE_TYPE(enable_grad, "enable_grad",
          "enable_grad autograd.enable_grad autograd.grad_mode.enable_grad",
          "Context manager and decorator that enables gradient calculation, also inside no_grad.");

EXT_NEW(inference_mode, "(mode: bool | Callable = True)") {
  EXT_ARGS(PyObject *, mode);
  bool function = mode && PyCallable_Check(mode) && !PyBool_Check(mode);
  int value = function ? 1 : ext_to_bool(mode, true);
  return value < 0 ? NULL : mode_or_decorated(type, INFERENCE, value, mode);
}
MODE_TYPE(
    inference_mode, "inference_mode",
    "inference_mode autograd.inference_mode autograd.grad_mode.inference_mode",
    "Context manager and decorator that enables inference mode: like no_grad, and new tensors "
    "can never\nrequire gradients and do not track versions.\n\n"
    "Args:\n"
    "    mode (bool): whether to enable or disable inference mode\n");

EXT_NEW(set_grad_enabled, "(mode: bool = True)") {
  EXT_ARGS(bool, mode);
  return make_mode(type, SET_GRAD, true, mode, true);
}
MODE_TYPE(set_grad_enabled, "set_grad_enabled",
          "set_grad_enabled autograd.set_grad_enabled autograd.grad_mode.set_grad_enabled",
          "Sets gradient calculation on or off: from the call on, or as a context manager.\n\n"
          "Args:\n"
          "    mode (bool): whether to enable or disable gradients\n");

EXT_NEW(set_multithreading_enabled, "(mode: bool)") {
  EXT_ARGS(PyObject *, mode);
  if (!PyBool_Check(mode))
    EXT_FAIL(PyExc_TypeError,
             "set_multithreading_enabled(): argument 'enabled' (position 1) must be bool, not %s",
             ext_type_name(mode));
  return make_mode(type, MULTITHREADING, true, mode == Py_True, true);
}
MODE_TYPE(
    set_multithreading_enabled, "autograd.set_multithreading_enabled",
    "autograd.set_multithreading_enabled autograd.grad_mode.set_multithreading_enabled",
    "Sets on or off whether a backward pass over several devices uses a thread for each: from "
    "the call on,\nor as a context manager. Off, it runs on the calling thread.\n\n"
    "Args:\n"
    "    mode (bool): whether to use several threads\n");
EXT_GET(set_multithreading_enabled, mode, "bool", ((mode_object *)self)->value, "The given value.");

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
          "Context manager that enables anomaly detection: errors in backward report the forward "
          "operation and its line.\n\n"
          "Args:\n"
          "    check_nan (bool): whether to raise an error when backward computes NaN\n");

EXT_NEW(set_detect_anomaly, "(mode: bool = True, check_nan: bool = True)") {
  EXT_ARGS(bool, mode, check_nan);
  return make_mode(type, ANOMALY, true, mode, check_nan);
}
MODE_TYPE(set_detect_anomaly, "autograd.set_detect_anomaly", "autograd.set_detect_anomaly",
          "Sets anomaly detection on or off: from the call on, or as a context manager.\n\n"
          "Args:\n"
          "    mode (bool): whether to enable or disable anomaly detection\n"
          "    check_nan (bool): whether to raise an error when backward computes NaN\n");

EXT_RETURNS(torch, is_grad_enabled, "bool", px_grad_enabled(),
            "Returns True if gradients are currently enabled in this thread.");
EXT_RETURNS(torch, _is_multithreading_enabled, "bool", px_multithreading_enabled(),
            "Returns True if backward passes of this thread may use several threads.");
EXT_RETURNS(torch, is_inference_mode_enabled, "bool", px_inference_enabled(),
            "Returns True if inference mode is currently enabled in this thread.");
EXT_RETURNS(torch, is_anomaly_enabled, "bool", px_anomaly_enabled(),
            "Returns True if anomaly detection is enabled.");
EXT_RETURNS(torch, is_anomaly_check_nan_enabled, "bool", px_anomaly_checks_nan(),
            "Returns True if anomaly detection checks for NaN.");
EXT_MODULE(grad_mode, "autograd.grad_mode", "Context managers that control gradient recording.");
