// SPDX-License-Identifier: Apache-2.0
// The step of torch.optim.LBFGS: px_lbfgs_step of the core, with its memory in the user's state
// dict under PyTorch's names.
#include "phlox/optim.h"

#include "declare/declare.h"

// ---- conversion of the memory from and to the dict

// Reads a number, possibly a tensor; leaves *value unchanged if missing.
static int read_number(PyObject *state, const char *name, double *value) {
  EXT_OWNED *found = Py_XNewRef(PyDict_GetItemString(state, name));
  if (!found || found == Py_None) return 0;
  EXT_OWNED *number = PyNumber_Float(found);
  return number ? (*value = PyFloat_AS_DOUBLE(number), 0) : -1;
}
static int read_count(PyObject *state, const char *name, int64_t *value) {
  double number = 0;
  if (read_number(state, name, &number) < 0) return -1;
  return *value = (int64_t)number, 0;
}
static int read_tensor(PyObject *state, const char *name, px_tensor **out) {
  PyObject *found = PyDict_GetItemString(state, name);
  if (!found || found == Py_None) return 0;
  px_tensor *tensor = ext_need_tensor(found, "LBFGS.step", name);
  return tensor ? (*out = px_retain(tensor), 0) : -1;
}

// A copy: reading a number may let other threads change the list.
static PyObject *list_under(PyObject *state, const char *name) {
  EXT_OWNED *found = Py_XNewRef(PyDict_GetItemString(state, name));
  EXT_OWNED *items = found ? ext_items(found, "expected a list in the state of LBFGS") : NULL;
  if (found && !items) return NULL;
  return items ? PySequence_Tuple(items) : PyTuple_New(0);
}
static int read_updates(PyObject *state, px_lbfgs_memory *m) {
  EXT_OWNED *changes = list_under(state, "old_dirs");
  EXT_OWNED *steps = changes ? list_under(state, "old_stps") : NULL;
  EXT_OWNED *ros = steps ? list_under(state, "ro") : NULL;
  Py_ssize_t count = ros ? PySequence_Fast_GET_SIZE(ros) : -1;
  if (count < 0) return -1;
  if (PySequence_Fast_GET_SIZE(changes) != count || PySequence_Fast_GET_SIZE(steps) != count)
    EXT_FAIL_INT(PyExc_ValueError, "old_dirs, old_stps and ro of LBFGS must have the same length");
  for (Py_ssize_t i = 0; i < count; i++) {
    EXT_OWNED *ro = PyNumber_Float(PySequence_Fast_GET_ITEM(ros, i));
    px_tensor *change =
        ext_need_tensor(PySequence_Fast_GET_ITEM(changes, i), "LBFGS.step", "old_dirs");
    px_tensor *step =
        change ? ext_need_tensor(PySequence_Fast_GET_ITEM(steps, i), "LBFGS.step", "old_stps")
               : NULL;
    if (!ro || !step) return -1;
    EXT_TRY_INT(px_lbfgs_remember(m, change, step, PyFloat_AS_DOUBLE(ro), INT64_MAX));
  }
  return 0;
}

static int read_memory(PyObject *state, px_lbfgs_memory *m) {
  if (read_count(state, "func_evals", &m->calls) < 0) return -1;
  if (read_count(state, "n_iter", &m->iterations) < 0) return -1;
  if (read_number(state, "t", &m->t) < 0 || read_number(state, "H_diag", &m->scale) < 0) return -1;
  if (read_tensor(state, "d", &m->direction) < 0) return -1;
  if (read_tensor(state, "prev_flat_grad", &m->grad) < 0) return -1;
  if (m->iterations && (!m->direction || !m->grad))
    EXT_FAIL_INT(PyExc_ValueError, "the state of LBFGS lacks d or prev_flat_grad");
  return read_updates(state, m);
}

static int put(PyObject *state, const char *name, PyObject *value_take) {
  EXT_OWNED *value = value_take;
  return value ? PyDict_SetItemString(state, name, value) : -1;
}
static int write_memory(PyObject *state, const px_lbfgs_memory *m) {
  if (put(state, "func_evals", PyLong_FromLongLong(m->calls)) < 0) return -1;
  if (put(state, "n_iter", PyLong_FromLongLong(m->iterations)) < 0) return -1;
  if (!m->iterations) return 0;
  EXT_OWNED *changes = PyList_New(m->count);
  EXT_OWNED *steps = PyList_New(m->count);
  EXT_OWNED *ros = PyList_New(m->count);
  for (Py_ssize_t i = 0; changes && steps && ros && i < m->count; i++) {
    PyList_SET_ITEM(changes, i, ext_wrap_borrowed(m->history[i].change));
    PyList_SET_ITEM(steps, i, ext_wrap_borrowed(m->history[i].step));
    PyList_SET_ITEM(ros, i, PyFloat_FromDouble(m->history[i].ro));
  }
  if (PyErr_Occurred() || put(state, "d", ext_wrap_borrowed(m->direction)) < 0 ||
      put(state, "t", PyFloat_FromDouble(m->t)) < 0 ||
      put(state, "old_dirs", ext_moved(&changes)) < 0 ||
      put(state, "old_stps", ext_moved(&steps)) < 0 || put(state, "ro", ext_moved(&ros)) < 0 ||
      put(state, "H_diag", PyFloat_FromDouble(m->scale)) < 0 ||
      put(state, "prev_flat_grad", ext_wrap_borrowed(m->grad)) < 0)
    return -1;
  return put(state, "prev_loss", PyFloat_FromDouble(m->loss));
}

// ---- the closure

typedef struct calls {
  PyObject *closure, *first;  // first: the first loss, returned by the step
} calls;
static px_status call_closure(double *loss, void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  calls *c = context;
  PyObject *made = PyObject_CallNoArgs(c->closure);
  PyObject *number = made ? PyNumber_Float(made) : NULL;
  if (number) *loss = PyFloat_AS_DOUBLE(number);
  px_status status = number ? PX_OK : ext_error_from_python();
  if (number && !c->first) c->first = Py_NewRef(made);
  Py_XDECREF(number);
  Py_XDECREF(made);
  ext_gil_give(&gil);
  return status;
}

static int read_options(PyObject *group, px_lbfgs_options *o) {
  *o = (px_lbfgs_options){0};
  if (read_number(group, "lr", &o->lr) < 0 || read_count(group, "max_iter", &o->max_iter) < 0 ||
      read_count(group, "max_eval", &o->max_eval) < 0 ||
      read_count(group, "history_size", &o->history_size) < 0 ||
      read_number(group, "tolerance_grad", &o->tolerance_grad) < 0 ||
      read_number(group, "tolerance_change", &o->tolerance_change) < 0)
    return -1;
  PyObject *search = PyDict_GetItemString(group, "line_search_fn");
  PyObject *maximize = PyDict_GetItemString(group, "maximize");
  bool named = search && search != Py_None, strong = named && PyUnicode_Check(search);
  if (named && (!strong || PyUnicode_CompareWithASCIIString(search, "strong_wolfe")))
    EXT_FAIL_INT(PyExc_RuntimeError, "only 'strong_wolfe' is supported");
  int up = maximize ? PyObject_IsTrue(maximize) : 0;
  o->line_search = named, o->maximize = up == 1;
  return up < 0 ? -1 : 0;
}

EXT_FUNCTION(torch, _lbfgs_step,
             "(params: list, group: dict, state: dict, closure: Callable) -> object",
             "Performs a step of LBFGS and returns the first loss.") {
  EXT_ARGS(PyObject *, params, group, state, closure);
  px_lbfgs_options options;
  px_lbfgs_memory memory = {.scale = 1};
  EXT_TENSORS list = {NULL};
  EXT_OWNED *items = ext_items(params, "params must be a sequence");
  if (!items || read_options(group, &options) < 0) return NULL;
  if (ext_take_tensors(&list, ext_moved(&items), "LBFGS.step", "params") < 0) return NULL;
  calls c = {closure, NULL};
  EXT_OWNED *result = NULL;
  if (read_memory(state, &memory) == 0) {
    px_status status =
        EXT_NOGIL(px_lbfgs_step(&memory, &options, list.items, list.count, call_closure, &c));
    if (status != PX_OK) ext_raise();
    if (status == PX_OK && write_memory(state, &memory) == 0) result = Py_NewRef(c.first);
  }
  Py_XDECREF(c.first);
  px_lbfgs_clear(&memory);
  return ext_moved(&result);
}
