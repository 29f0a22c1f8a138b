// SPDX-License-Identifier: Apache-2.0
// What torch.optim, which is Python (python/phlox/optim), asks of the core: the step of a group,
// the rates of schedules, and clipping for torch.nn.utils. Options and states are the program's
// dicts, which are read here at every step.
#include "phlox/optim.h"

#include <math.h>

#include "declare.h"

enum { KINDS = 64, OPTIONS = 16 };

// The keys of a kind in param_groups and in the states, made when it is first used.
typedef struct keys {
  const px_optimizer_kind *kind;
  const px_option *options;
  int option_count, state_count;
  PyObject *option[OPTIONS], *state[PX_OPTIMIZER_STATES];
  bool scalar[PX_OPTIMIZER_STATES];
} keys;

static const keys *fill_keys(keys *row, const px_optimizer_kind *kind) {
  const char *name;
  row->options = px_optimizer_kind_options(kind, &row->option_count);
  for (int k = 0; k < row->option_count; k++) {
    const px_option *o = &row->options[k];
    row->option[k] = PyUnicode_InternFromString(o->pair ? o->pair : o->name);
    if (!row->option[k]) return NULL;
  }
  for (int k = 0; (name = px_optimizer_kind_state(kind, k)); k++) {
    if (!(row->state[k] = PyUnicode_InternFromString(name))) return NULL;
    row->scalar[k] = px_optimizer_kind_scalar(kind, k);
    row->state_count = k + 1;
  }
  row->kind = kind;
  return row;
}

static const keys *keys_of(const char *name) {
  static keys rows[KINDS];
  const px_optimizer_kind *kind = px_optimizer_kind_find(name);
  if (!kind) return PyErr_Format(PyExc_KeyError, "'%s'", name), NULL;
  int i = 0;
  while (px_optimizer_kind_at(i) != kind) i++;
  if (i >= KINDS) return PyErr_SetString(PyExc_SystemError, "too many kinds of optimizer"), NULL;
  return rows[i].kind ? &rows[i] : fill_keys(&rows[i], kind);
}

// ---- options

static int number_of(PyObject *value, double *out) {
  px_scalar scalar;
  if (PyFloat_CheckExact(value)) return *out = PyFloat_AS_DOUBLE(value), 0;
  if (PyBool_Check(value)) return *out = value == Py_True, 0;
  if (value == Py_None) return *out = 0, 0;
  if (ext_to_scalar(value, &scalar) < 0) return -1;
  *out = px_scalar_float(scalar);
  return 0;
}

static int read_options(const keys *kind, PyObject *group, double *out) {
  for (int k = 0, place = 0; k < kind->option_count; k++) {
    const px_option *o = &kind->options[k];
    PyObject *value = PyDict_GetItemWithError(group, kind->option[k]);
    if (!value) {
      if (!PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, kind->option[k]);
      return -1;
    }
    place = o->pair && k && kind->options[k - 1].pair == o->pair ? place + 1 : 0;
    if (!o->pair) {
      if (number_of(value, &out[k]) < 0) return -1;
      continue;
    }
    EXT_OWNED *item = PySequence_GetItem(value, place);
    if (!item || number_of(item, &out[k]) < 0) return -1;
  }
  return 0;
}

EXT_FUNCTION(torch, _optimizer_check, "(kind: str, group: dict) -> None",
             "ValueError for options out of their range.") {
  const char *kind;
  PyObject *group;
  double options[OPTIONS];
  EXT_BIND(kind, group);
  const keys *k = keys_of(kind);
  if (!k || read_options(k, group, options) < 0) return NULL;
  return ext_none(px_optimizer_kind_check(k->kind, options));
}

// ---- steps

// The parameters of a group that have a gradient, and their states. Python's references keep them
// while other threads run; a state that the step has begun is the core's reference, and ours.
enum { HELD = 1 + PX_OPTIMIZER_STATES };
typedef struct work {
  px_tensor **tensors, **states;
  PyObject **held;  // of each parameter: itself, then its states
  Py_ssize_t count;
} work;

static void work_end(work *w) {
  for (Py_ssize_t i = 0; i < w->count; i++)
    for (int k = 0; k < HELD; k++) {
      PyObject *held = w->held[i * HELD + k];
      if (!held) px_release(w->states[i * PX_OPTIMIZER_STATES + k - 1]);
      Py_XDECREF(held);
    }
  PyMem_Free(w->tensors);
}

static int work_begin(work *w, Py_ssize_t room) {
  size_t each = (1 + PX_OPTIMIZER_STATES + HELD) * sizeof(void *);
  void **block = PyMem_Calloc((size_t)(room ? room : 1), each);
  if (!block) return PyErr_NoMemory(), -1;
  *w = (work){(px_tensor **)block, (px_tensor **)(block + room),
              (PyObject **)(block + room * (1 + PX_OPTIMIZER_STATES)), 0};
  // cppcheck-suppress memleak ; it is the work's now
  return 0;
}

// A state as a tensor; a number that a program has put there becomes one. New reference.
static PyObject *state_tensor(PyObject *state, PyObject *key, PyObject *value) {
  double number;
  if (ext_is_tensor(value)) return Py_NewRef(value);
  if (number_of(value, &number) < 0) return NULL;
  float small = (float)number;
  px_tensor *made;
  EXT_TRY(px_tensor_from_data(&made, &small, 0, NULL, PX_FLOAT32, px_cpu()));
  EXT_OWNED *object = ext_wrap(made);
  return object && PyDict_SetItem(state, key, object) == 0 ? ext_moved(&object) : NULL;
}

static int take_parameter(work *w, const keys *kind, PyObject *parameter, PyObject *all) {
  Py_ssize_t i = w->count;
  if (!ext_is_tensor(parameter))
    EXT_FAIL_INT(PyExc_TypeError,
                 "optimizer can only optimize Tensors, but one of the params is %s",
                 ext_type_name(parameter));
  px_tensor *tensor = ext_tensor(parameter);
  if (!px_tensor_grad(tensor)) return 0;
  w->tensors[i] = tensor;
  w->held[i * HELD] = Py_NewRef(parameter);
  w->count++;
  PyObject *state = PyDict_GetItemWithError(all, parameter);
  if (!state || !PyDict_Check(state)) return PyErr_Occurred() ? -1 : 0;
  for (int k = 0; k < kind->state_count; k++) {
    PyObject *value = PyDict_GetItemWithError(state, kind->state[k]);
    if (!value || value == Py_None) continue;
    PyObject *found = state_tensor(state, kind->state[k], value);
    if (!found) return -1;
    w->held[i * HELD + 1 + k] = found;
    w->states[i * PX_OPTIMIZER_STATES + k] = ext_tensor(found);
  }
  return PyErr_Occurred() ? -1 : 0;
}

// Puts a state that has come to be into the program's dict.
static int give_state(PyObject *all, PyObject *parameter, PyObject *key, px_tensor *fresh) {
  PyObject *state = PyDict_GetItemWithError(all, parameter);
  EXT_OWNED *first = state || PyErr_Occurred() ? NULL : PyDict_New();
  if (first && PyDict_SetItem(all, parameter, first) < 0) return -1;
  EXT_OWNED *object = ext_wrap_borrowed(fresh);
  if (!object || !(state || first)) return -1;
  return PyDict_SetItem(state ? state : first, key, object);
}

static int give_states(const work *w, const keys *kind, PyObject *all) {
  for (Py_ssize_t i = 0; i < w->count; i++)
    for (int k = 0; k < kind->state_count; k++) {
      px_tensor *now = w->states[i * PX_OPTIMIZER_STATES + k];
      if (!now || w->held[i * HELD + 1 + k]) continue;
      if (give_state(all, w->held[i * HELD], kind->state[k], now) < 0) return -1;
    }
  return 0;
}

static PyObject *step_group(const keys *kind, const double *options, PyObject *params,
                            PyObject *state) {
  work w;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(params);
  if (work_begin(&w, count) < 0) return NULL;
  int failed = 0;
  for (Py_ssize_t i = 0; i < count && !failed; i++)
    failed = take_parameter(&w, kind, PySequence_Fast_GET_ITEM(params, i), state);
  px_status status = PX_OK;
  if (!failed)
    status = EXT_NOGIL(px_optimizer_kind_step(kind->kind, options, w.tensors, w.states, w.count));
  if (!failed) failed = give_states(&w, kind, state);
  work_end(&w);
  if (failed) return status == PX_OK ? NULL : (px_error_clear(), NULL);
  return ext_none(status);
}

EXT_FUNCTION(torch, _optimizer_step, "(kind: str, group: dict, state: dict) -> None",
             "One step of a group's parameters.") {
  const char *kind;
  PyObject *group, *state;
  double options[OPTIONS];
  EXT_BIND(kind, group, state);
  const keys *k = keys_of(kind);
  if (!k || read_options(k, group, options) < 0) return NULL;
  PyObject *given = PyDict_GetItemString(group, "params");
  if (!given) return PyErr_SetString(PyExc_KeyError, "params"), NULL;
  EXT_OWNED *params = ext_items(given, "params is no sequence");
  return params ? step_group(k, options, params, state) : NULL;
}

EXT_FUNCTION(torch, _clear_grads, "(params: Sequence[Tensor], set_to_none: bool) -> None", NULL) {
  PyObject *params;
  bool set_to_none;
  EXT_BIND(params, set_to_none);
  EXT_OWNED *list = ext_items(params, "params is no sequence");
  if (!list) return NULL;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); i++) {
    px_tensor *tensor = ext_need_tensor(PySequence_Fast_GET_ITEM(list, i), "zero_grad", "params");
    if (!tensor) return NULL;
    EXT_TRY(px_clear_grads(&tensor, 1, set_to_none));
  }
  Py_RETURN_NONE;
}

// ---- schedules

static const px_scheduler_kind *schedule_of(const char *name) {
  const px_scheduler_kind *kind = px_scheduler_kind_find(name);
  if (!kind) PyErr_Format(PyExc_KeyError, "'%s'", name);
  return kind;
}

// A list of all the options' numbers.
static int read_numbers(PyObject *list, double *out) {
  Py_ssize_t count = PyList_Check(list) ? PyList_GET_SIZE(list) : -1;
  if (count < 0 || count > OPTIONS) EXT_FAIL_INT(PyExc_TypeError, "a list of options is wanted");
  for (Py_ssize_t i = 0; i < count; i++)
    if (ext_to_double(PyList_GET_ITEM(list, i), &out[i]) < 0) return -1;
  return 0;
}

EXT_FUNCTION(torch, _schedule_check, "(kind: str, options: list) -> tuple[list, float]",
             "The options, with those that follow from others, and the rate that the schedule "
             "begins with, NaN for that of the group.") {
  const char *kind;
  PyObject *options_;
  double options[OPTIONS];
  EXT_BIND(kind, options_);
  const px_scheduler_kind *k = schedule_of(kind);
  if (!k || read_numbers(options_, options) < 0) return NULL;
  EXT_TRY(px_scheduler_kind_check(k, options));
  Py_ssize_t count = PyList_GET_SIZE(options_);
  EXT_OWNED *filled = PyList_New(count);
  for (Py_ssize_t i = 0; filled && i < count; i++)
    PyList_SET_ITEM(filled, i, PyFloat_FromDouble(options[i]));
  return filled ? Py_BuildValue("Od", filled, px_scheduler_kind_first(k, options)) : NULL;
}

EXT_FUNCTION(torch, _schedule_rate,
             "(kind: str, closed: bool, options: list, milestones: Sequence[int], epoch: float, "
             "base: float, lr: float) -> tuple[float, float]",
             "The rate, and the momentum that goes along with it, NaN for none.") {
  const char *kind;
  bool closed;
  PyObject *options_;
  ext_ints milestones;
  double options[OPTIONS], epoch, base, lr, rate, momentum;
  EXT_BIND(kind, closed, options_, milestones, epoch, base, lr);
  const px_scheduler_kind *k = schedule_of(kind);
  if (!k || read_numbers(options_, options) < 0) return NULL;
  px_schedule_point at = {options, milestones.items, milestones.count, epoch, base, lr};
  EXT_TRY(px_scheduler_kind_rate(&rate, &momentum, k, &at, closed));
  return Py_BuildValue("dd", rate, momentum);
}

EXT_FUNCTION(torch, _plateau_step,
             "(options: list, best: float, bad_epochs: float, cooling: float, metric: float) -> "
             "tuple[bool, float, int, int]",
             "Whether the rates fall, and what is remembered from now on.") {
  PyObject *options_;
  double options[OPTIONS], best, bad_epochs, cooling, metric;
  EXT_BIND(options_, best, bad_epochs, cooling, metric);
  if (read_numbers(options_, options) < 0) return NULL;
  px_plateau p = {best, bad_epochs, cooling};
  bool falls = px_plateau_step(&p, options, metric);
  return Py_BuildValue("Odnn", falls ? Py_True : Py_False, p.best, (Py_ssize_t)p.bad_epochs,
                       (Py_ssize_t)p.cooling);
}

EXT_FUNCTION(torch, _plateau_rate, "(options: list, lr: float) -> float",
             "The rate to which `lr` falls.") {
  PyObject *options_;
  double options[OPTIONS], lr;
  EXT_BIND(options_, lr);
  if (read_numbers(options_, options) < 0) return NULL;
  return PyFloat_FromDouble(px_plateau_rate(options, lr));
}

// ---- clipping

EXT_FUNCTION(torch, _clip_grad_norm,
             "(parameters: list, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> "
             "Tensor",
             NULL) {
  PyObject *parameters;
  double max_norm, norm_type;
  bool error_if_nonfinite;
  px_tensor *total = NULL;
  EXT_BIND(parameters, max_norm, norm_type, error_if_nonfinite);
  EXT_OWNED *list = ext_items(parameters, "parameters is no sequence");
  if (!list) return NULL;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
  px_tensor **items = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *items);
  bool good = items != NULL;
  for (Py_ssize_t i = 0; i < count && good; i++)
    good = (items[i] = ext_need_tensor(PySequence_Fast_GET_ITEM(list, i), "clip_grad_norm_",
                                       "parameters")) != NULL;
  px_status status = good ? EXT_NOGIL(px_clip_grad_norm(&total, items, count, max_norm, norm_type,
                                                        error_if_nonfinite))
                          : PX_OK;
  PyMem_Free(items);
  if (!good) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  EXT_TRY(status);
  return ext_wrap(total);
}
