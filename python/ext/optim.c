// SPDX-License-Identifier: Apache-2.0
// What torch.optim, which is Python (python/phlox/optim), asks of the core: the step of a group,
// the rates of schedules, and clipping for torch.nn.utils. Options and states are the program's
// dicts, which are read here at every step.
#include "phlox/optim.h"

#include <math.h>

#include "ext.h"

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

static const keys *keys_of(PyObject *name) {
  static keys rows[KINDS];
  const char *text = PyUnicode_AsUTF8(name);
  const px_optimizer_kind *kind = text ? px_optimizer_kind_find(text) : NULL;
  if (!kind) return text ? (PyErr_Format(PyExc_KeyError, "%R", name), NULL) : NULL;
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

// _optimizer_check(kind, group): ValueError for options out of their range.
static PyObject *optimizer_check(PyObject *self, PyObject *args) {
  PyObject *name, *group;
  double options[OPTIONS];
  if (!PyArg_ParseTuple(args, "UO!", &name, &PyDict_Type, &group)) return NULL;
  const keys *kind = keys_of(name);
  if (!kind || read_options(kind, group, options) < 0) return NULL;
  EXT_TRY(px_optimizer_kind_check(kind->kind, options));
  Py_RETURN_NONE;
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

// _optimizer_step(kind, group, state): one step of a group's parameters.
static PyObject *optimizer_step(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  double options[OPTIONS];
  work w;
  if (nargs != 3 || !PyDict_Check(args[1]) || !PyDict_Check(args[2]))
    EXT_FAIL(PyExc_TypeError, "_optimizer_step(kind, group, state)");
  const keys *kind = keys_of(args[0]);
  if (!kind || read_options(kind, args[1], options) < 0) return NULL;
  PyObject *given = PyDict_GetItemString(args[1], "params");
  EXT_OWNED *params = given ? PySequence_Fast(given, "params is no sequence") : NULL;
  if (!params) return given ? NULL : (PyErr_SetString(PyExc_KeyError, "params"), NULL);
  Py_ssize_t count = PySequence_Fast_GET_SIZE(params);
  if (work_begin(&w, count) < 0) return NULL;
  int failed = 0;
  for (Py_ssize_t i = 0; i < count && !failed; i++)
    failed = take_parameter(&w, kind, PySequence_Fast_GET_ITEM(params, i), args[2]);
  px_status status = PX_OK;
  if (!failed)
    status = EXT_NOGIL(px_optimizer_kind_step(kind->kind, options, w.tensors, w.states, w.count));
  if (!failed) failed = give_states(&w, kind, args[2]);
  work_end(&w);
  if (failed) return status == PX_OK ? NULL : (px_error_clear(), NULL);
  EXT_TRY(status);
  Py_RETURN_NONE;
}

// _clear_grads(parameters, set_to_none)
static PyObject *clear_grads(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  EXT_OWNED *list = nargs == 2 ? PySequence_Fast(args[0], "params is no sequence") : NULL;
  int to_none = list ? ext_to_bool(args[1], true) : -1;
  if (to_none < 0) return NULL;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); i++) {
    px_tensor *tensor = ext_need_tensor(PySequence_Fast_GET_ITEM(list, i), "zero_grad", "params");
    if (!tensor) return NULL;
    EXT_TRY(px_clear_grads(&tensor, 1, to_none));
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

// _schedule_check(kind, options): a list of them, with those that follow from others, and the rate
// that it begins with, NAN for that of the group.
static PyObject *schedule_check(PyObject *self, PyObject *args) {
  const char *name;
  PyObject *list;
  double options[OPTIONS];
  if (!PyArg_ParseTuple(args, "sO", &name, &list) || read_numbers(list, options) < 0) return NULL;
  const px_scheduler_kind *kind = schedule_of(name);
  if (!kind) return NULL;
  EXT_TRY(px_scheduler_kind_check(kind, options));
  Py_ssize_t count = PyList_GET_SIZE(list);
  EXT_OWNED *filled = PyList_New(count);
  for (Py_ssize_t i = 0; filled && i < count; i++)
    PyList_SET_ITEM(filled, i, PyFloat_FromDouble(options[i]));
  return filled ? Py_BuildValue("Od", filled, px_scheduler_kind_first(kind, options)) : NULL;
}

// _schedule_rate(kind, closed, options, milestones, epoch, base, lr): the rate, and the momentum
// that goes along with it, NAN for none.
static PyObject *schedule_rate(PyObject *self, PyObject *args) {
  const char *name;
  PyObject *list, *stones;
  int closed;
  double options[OPTIONS], lr, momentum;
  ext_ints milestones;
  px_schedule_point at = {.options = options};
  if (!PyArg_ParseTuple(args, "spOOddd", &name, &closed, &list, &stones, &at.epoch, &at.base,
                        &at.lr) ||
      read_numbers(list, options) < 0 || ext_to_ints(stones, &milestones) < 0)
    return NULL;
  const px_scheduler_kind *kind = schedule_of(name);
  if (!kind) return NULL;
  at.milestones = milestones.items, at.milestone_count = milestones.count;
  EXT_TRY(px_scheduler_kind_rate(&lr, &momentum, kind, &at, closed));
  return Py_BuildValue("dd", lr, momentum);
}

// _plateau_step(options, best, bad epochs, cooling, metric): whether the rates fall, and the three.
static PyObject *plateau_step(PyObject *self, PyObject *args) {
  PyObject *list;
  double options[OPTIONS], metric;
  px_plateau p;
  if (!PyArg_ParseTuple(args, "Odddd", &list, &p.best, &p.bad_epochs, &p.cooling, &metric) ||
      read_numbers(list, options) < 0)
    return NULL;
  bool falls = px_plateau_step(&p, options, metric);
  return Py_BuildValue("Odnn", falls ? Py_True : Py_False, p.best, (Py_ssize_t)p.bad_epochs,
                       (Py_ssize_t)p.cooling);
}

// _plateau_rate(options, lr): the rate below it.
static PyObject *plateau_rate(PyObject *self, PyObject *args) {
  PyObject *list;
  double options[OPTIONS], lr;
  if (!PyArg_ParseTuple(args, "Od", &list, &lr) || read_numbers(list, options) < 0) return NULL;
  return PyFloat_FromDouble(px_plateau_rate(options, lr));
}

// ---- clipping

// _clip_grad_norm(parameters, max_norm, norm_type, error_if_nonfinite)
static PyObject *clip_grad_norm(PyObject *self, PyObject *args) {
  PyObject *list;
  double most, type;
  int finite;
  px_tensor *total = NULL;
  if (!PyArg_ParseTuple(args, "O!ddp", &PyList_Type, &list, &most, &type, &finite)) return NULL;
  Py_ssize_t count = PyList_GET_SIZE(list);
  px_tensor **items = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *items);
  bool good = items != NULL;
  for (Py_ssize_t i = 0; i < count && good; i++)
    good = (items[i] =
                ext_need_tensor(PyList_GET_ITEM(list, i), "clip_grad_norm_", "parameters")) != NULL;
  px_status status =
      good ? EXT_NOGIL(px_clip_grad_norm(&total, items, count, most, type, finite)) : PX_OK;
  PyMem_Free(items);
  if (!good) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  EXT_TRY(status);
  return ext_wrap(total);
}

static PyMethodDef functions[] = {
    {"_optimizer_check", optimizer_check, METH_VARARGS, NULL},
    {"_optimizer_step", (PyCFunction)(void (*)(void))optimizer_step, METH_FASTCALL, NULL},
    {"_clear_grads", (PyCFunction)(void (*)(void))clear_grads, METH_FASTCALL, NULL},
    {"_schedule_check", schedule_check, METH_VARARGS, NULL},
    {"_schedule_rate", schedule_rate, METH_VARARGS, NULL},
    {"_plateau_step", plateau_step, METH_VARARGS, NULL},
    {"_plateau_rate", plateau_rate, METH_VARARGS, NULL},
    {"_clip_grad_norm", clip_grad_norm, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static int ext_init_optim(PyObject *m) { return PyModule_AddFunctions(m, functions); }
EXT_START(EXT_UPPER, ext_init_optim);
