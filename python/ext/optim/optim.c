// SPDX-License-Identifier: Apache-2.0
// Core functions of torch.optim (python/phlox/optim): the step of a parameter group, and the
// learning rates of schedules. Options and states are Python dicts owned by the user, read at every
// step.
#include "phlox/optim.h"

#include <math.h>

#include "declare/declare.h"
#include "phlox/graph.h"
#include "phlox/ops/arithmetic.h"

enum { KINDS = 64, OPTIONS = 16 };
// Interned names of attributes and keys.
static PyObject *groups_name, *params_name, *lr_name, *optimizer_name, *options_name, *words_name,
    *bases_name, *called_name, *before_name, *after_name, *kind_name, *state_name, *warned_name,
    *found_name, *scale_name;
enum { FUSED, FOREACH, DIFFERENTIABLE, CAPTURABLE, FLAGS };
static PyObject *flag_names[FLAGS];
static const struct {
  PyObject **name;
  const char *text;
} interned[] = {{&groups_name, "param_groups"},
                {&params_name, "params"},
                {&lr_name, "lr"},
                {&optimizer_name, "optimizer"},
                {&options_name, "_options"},
                {&words_name, "_words"},
                {&bases_name, "base_lrs"},
                {&called_name, "_opt_called"},
                {&before_name, "_optimizer_step_pre_hooks"},
                {&after_name, "_optimizer_step_post_hooks"},
                {&kind_name, "_kind"},
                {&state_name, "state"},
                {&warned_name, "_warned_capturable_if_run_uncaptured"},
                {&found_name, "found_inf"},
                {&scale_name, "grad_scale"},
                {&flag_names[CAPTURABLE], "capturable"},
                {&flag_names[FUSED], "fused"},
                {&flag_names[FOREACH], "foreach"},
                {&flag_names[DIFFERENTIABLE], "differentiable"}};

// Keys of an optimizer kind in param_groups and states, created on first use.
typedef struct keys {
  const px_optimizer_kind *kind;
  const px_option *options;
  int option_count, state_count;
  bool counts;  // has a step counter, possibly on the device
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
    row->counts |= row->option[k] == flag_names[CAPTURABLE];
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

// Lookup by a Python name, cached for the most recent one.
static const keys *keys_by(PyObject *name) {
  static PyObject *latest;
  static const keys *row;
  if (name == latest) return row;
  if (!PyUnicode_Check(name))
    EXT_FAIL(PyExc_TypeError, "the _kind of an optimizer must be str, not %s", ext_type_name(name));
  const char *text = ext_text(name);
  const keys *found = text ? keys_of(text) : NULL;
  if (!found) return NULL;
  Py_XSETREF(latest, Py_NewRef(name));
  return row = found;
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

// True for a rate on a device, which is not read: `rate` receives a reference, if given.
static bool is_rate(PyObject *value, PyObject *key, px_tensor **rate) {
  if (!rate || key != lr_name || !ext_is_tensor(value)) return false;
  if (px_tensor_device(ext_tensor(value)).type != PX_CUDA) return false;
  px_release(*rate);
  *rate = px_retain(ext_tensor(value));
  return true;
}

static int read_options(const keys *kind, PyObject *group, double *out, px_tensor **rate) {
  for (int k = 0, slot = 0; k < kind->option_count; k++) {
    const px_option *o = &kind->options[k];
    // Reading a tensor releases the GIL, and the group may change.
    EXT_OWNED *value = Py_XNewRef(PyDict_GetItemWithError(group, kind->option[k]));
    out[k] = 0;
    if (value && is_rate(value, kind->option[k], rate)) continue;
    if (!value) {
      if (!PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, kind->option[k]);
      return -1;
    }
    slot = o->pair && k && kind->options[k - 1].pair == o->pair ? slot + 1 : 0;
    if (!o->pair) {
      if (number_of(value, &out[k]) < 0) return -1;
      continue;
    }
    EXT_OWNED *item = PySequence_GetItem(value, slot);
    if (!item || number_of(item, &out[k]) < 0) return -1;
  }
  return 0;
}

// 1, 0, or -1 with an exception.
static int is_on(PyObject *group, int flag) {
  PyObject *value = PyDict_GetItemWithError(group, flag_names[flag]);
  if (!value) return PyErr_Occurred() ? -1 : 0;
  return value == Py_None || value == Py_False ? 0 : PyObject_IsTrue(value);
}

// Rejects mutually exclusive implementation flags, as in PyTorch.
static int check_flags(const char *kind, PyObject *group) {
  int on[FLAGS];
  for (int k = 0; k < FLAGS; k++)
    if ((on[k] = is_on(group, k)) < 0) return -1;
  if (on[FUSED] && on[DIFFERENTIABLE])
    EXT_FAIL_INT(PyExc_RuntimeError, "`fused` does not support `differentiable`");
  if (on[FUSED] && on[FOREACH])
    EXT_FAIL_INT(PyExc_RuntimeError, "`fused` and `foreach` cannot be `True` together.");
  EXT_OWNED *rate = Py_XNewRef(PyDict_GetItemWithError(group, lr_name));
  if (!rate || !ext_is_tensor(rate)) return PyErr_Occurred() ? -1 : 0;
  bool is_adam = !strcmp(kind, "Adam") || !strcmp(kind, "AdamW");
  if (is_adam && on[FOREACH] && !on[CAPTURABLE])
    EXT_FAIL_INT(PyExc_ValueError,
                 "lr as a Tensor is not supported for capturable=False and foreach=True");
  if (px_tensor_numel(ext_tensor(rate)) != 1)
    EXT_FAIL_INT(PyExc_ValueError, "Tensor lr must be 1-element");
  return 0;
}

EXT_FUNCTION(torch, _optimizer_check, "(kind: str, group: dict) -> None",
             "Checks options: ValueError if out of range, RuntimeError if mutually exclusive.") {
  const char *kind;
  PyObject *group;
  double options[OPTIONS];
  EXT_BIND(kind, group);
  const keys *k = keys_of(kind);
  if (!k || check_flags(kind, group) < 0 || read_options(k, group, options, NULL) < 0) return NULL;
  return ext_none(px_optimizer_kind_check(k->kind, options));
}

// ---- groups

// A set of objects by identity: an open-addressing hash table by address.
typedef struct object_set {
  PyObject **places;
  size_t mask;
} object_set;

static int object_set_begin(object_set *set, Py_ssize_t max_count) {
  size_t capacity = 8;
  while (capacity < 2 * (size_t)max_count) capacity *= 2;
  set->places = PyMem_Calloc(capacity, sizeof *set->places);
  set->mask = capacity - 1;
  return set->places ? 0 : (PyErr_NoMemory(), -1);
}

static PyObject **object_set_find(const object_set *set, PyObject *object) {
  size_t at = (uintptr_t)object / sizeof(PyObject);
  while (set->places[at & set->mask] && set->places[at & set->mask] != object) at++;
  return &set->places[at & set->mask];
}

// Parameters of all groups, in a list.
static PyObject *parameters_of(PyObject *groups) {
  EXT_OWNED *all = PyList_New(0);
  for (Py_ssize_t g = 0; all && g < PyList_GET_SIZE(groups); g++) {
    EXT_OWNED *group = Py_NewRef(PyList_GET_ITEM(groups, g));
    EXT_OWNED *params = PyObject_GetItem(group, params_name);
    EXT_OWNED *longer = params ? PySequence_InPlaceConcat(all, params) : NULL;
    if (!longer) return NULL;
  }
  return ext_moved(&all);
}

static int check_parameter(PyObject *item, bool any) {
  if (PyTuple_CheckExact(item))  // a named parameter after unnamed ones
    EXT_FAIL_INT(PyExc_ValueError,
                 "all optimizer params should be with/without names. Some param names are missing");
  if (!ext_is_tensor(item))
    EXT_FAIL_INT(PyExc_TypeError,
                 "optimizer can only optimize Tensors, but one of the params is %s",
                 ext_type_name(item));
  if (!any && !px_tensor_is_leaf(ext_tensor(item)) && !px_tensor_retains_grad(ext_tensor(item)))
    EXT_FAIL_INT(PyExc_ValueError, "can't optimize a non-leaf Tensor");
  return 0;
}

// 1 if `params` contains a duplicate, -1 if a parameter is invalid.
static int check_parameters(PyObject *params, PyObject *others, bool any, const object_set *known,
                            const object_set *here) {
  int twice = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(others); i++)
    *object_set_find(known, PyList_GET_ITEM(others, i)) = PyList_GET_ITEM(others, i);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); i++) {
    PyObject *item = PyList_GET_ITEM(params, i);
    if (check_parameter(item, any) < 0) return -1;
    if (*object_set_find(known, item))
      EXT_FAIL_INT(PyExc_ValueError, "some parameters appear in more than one parameter group");
    PyObject **slot = object_set_find(here, item);
    if (*slot) twice = 1;
    *slot = item;
  }
  return twice;
}

EXT_FUNCTION(torch, _optimizer_params, "(params: list, groups: list, any: bool) -> bool",
             "Checks the parameters of a new group: TypeError or ValueError if invalid, or, unless "
             "`any`, not a leaf. Returns True if a tensor occurs twice.") {
  PyObject *params, *groups;
  bool any;
  EXT_BIND(params, groups, any);
  if (!PyList_Check(params) || !PyList_Check(groups))
    EXT_FAIL(PyExc_TypeError, "params and param_groups must be lists");
  object_set known = {NULL}, here = {NULL};
  int twice = -1;
  EXT_OWNED *others = parameters_of(groups);
  if (others && object_set_begin(&known, PyList_GET_SIZE(others)) == 0 &&
      object_set_begin(&here, PyList_GET_SIZE(params)) == 0)
    twice = check_parameters(params, others, any, &known, &here);
  PyMem_Free(known.places);
  PyMem_Free(here.places);
  return twice < 0 ? NULL : PyBool_FromLong(twice);
}

// ---- steps

// Parameters of a group with a gradient, and their states. Owns Python references while other
// threads may run. A state created by the step has one core reference, owned by the work.
enum { HELD = 1 + PX_OPTIMIZER_STATES };
typedef struct work {
  const keys *kind;
  px_tensor **tensors, **states;
  PyObject **held;  // per parameter: itself, then its states
  Py_ssize_t count;
} work;

static void work_end(work *w) {
  for (Py_ssize_t i = 0; i < w->count; i++)
    for (int k = 0; k <= w->kind->state_count; k++) {
      PyObject *held = w->held[i * HELD + k];
      if (!held) px_release(w->states[i * PX_OPTIMIZER_STATES + k - 1]);
      Py_XDECREF(held);
    }
  PyMem_Free(w->tensors);
}

static int work_begin(work *w, const keys *kind, Py_ssize_t capacity) {
  size_t each = (1 + PX_OPTIMIZER_STATES + HELD) * sizeof(void *);
  void **block = PyMem_Calloc((size_t)(capacity ? capacity : 1), each);
  if (!block) return PyErr_NoMemory(), -1;
  *w = (work){kind, (px_tensor **)block, (px_tensor **)(block + capacity),
              (PyObject **)(block + capacity * (1 + PX_OPTIMIZER_STATES)), 0};
  // cppcheck-suppress memleak ; owned by the work
  return 0;
}

// A state as a tensor; replaces a number set by user code. New reference.
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

static int add_state(work *w, int k, PyObject *state, PyObject *value) {
  Py_ssize_t i = w->count - 1;
  if (value == Py_None) return 0;
  PyObject *found = state_tensor(state, w->kind->state[k], value);
  if (!found) return -1;
  w->held[i * HELD + 1 + k] = found;
  w->states[i * PX_OPTIMIZER_STATES + k] = ext_tensor(found);
  return 0;
}

// States of the latest parameter. Usually the dict has exactly these in the kind's order, and one
// iteration finds them. Otherwise they are looked up.
static int add_states(work *w, PyObject *state) {
  PyObject *name = NULL, *value;
  Py_ssize_t at = 0, count = w->kind->state_count, left = PyDict_GET_SIZE(state);
  for (int k = 0; k < count && left > 0; k++) {
    PyObject *const key = w->kind->state[k];
    if (!name && !PyDict_Next(state, &at, &name, &value)) return 0;
    bool here = name == key;
    EXT_OWNED *found = Py_XNewRef(here ? value : PyDict_GetItemWithError(state, key));
    if (found ? add_state(w, k, state, found) < 0 : PyErr_Occurred() != NULL) return -1;
    if (here) name = NULL, left--;
  }
  return 0;
}

static int add_parameter(work *w, PyObject *parameter, PyObject *all) {
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
  EXT_OWNED *state = Py_XNewRef(PyDict_GetItemWithError(all, parameter));
  if (!state || !PyDict_Check(state)) return PyErr_Occurred() ? -1 : 0;
  return add_states(w, state);
}

// Stores a new state in the user's dict.
static int store_state(PyObject *all, PyObject *parameter, PyObject *key, px_tensor *fresh) {
  EXT_OWNED *state = Py_XNewRef(PyDict_GetItemWithError(all, parameter));
  EXT_OWNED *first = state || PyErr_Occurred() ? NULL : PyDict_New();
  if (first && PyDict_SetItem(all, parameter, first) < 0) return -1;
  EXT_OWNED *object = ext_wrap_like(parameter, fresh);
  if (!object || !(state || first)) return -1;
  return PyDict_SetItem(state ? state : first, key, object);
}

static int store_states(const work *w, PyObject *all) {
  for (Py_ssize_t i = 0; i < w->count; i++)
    for (int k = 0; k < w->kind->state_count; k++) {
      px_tensor *now = w->states[i * PX_OPTIMIZER_STATES + k];
      if (!now || w->held[i * HELD + 1 + k]) continue;
      if (store_state(all, w->held[i * HELD], w->kind->state[k], now) < 0) return -1;
    }
  return 0;
}

static px_status unscale(const work *w, px_tensor *found, px_tensor *scale) {
  PX_SCOPED(px_tensor) by = NULL;
  PX_TRY(px_reciprocal(&by, scale));
  for (Py_ssize_t i = 0; i < w->count; i++) {
    PX_SCOPED(px_tensor) grad = NULL;
    PX_TRY(px_tensor_get_grad(&grad, w->tensors[i]));
    if (grad) PX_TRY(px_amp_unscale(1, (px_tensor *[]){grad}, found, by));
  }
  return PX_OK;
}

// Tensors set by a GradScaler: the scale to divide gradients by (may be NULL), and the inf/NaN
// flag.
typedef struct scaling {
  px_tensor *found, *scale;
} scaling;

static px_status make_step(work *w, const double *options, const px_step_options *manner,
                           const scaling *scaler) {
  if (scaler->scale) PX_TRY(unscale(w, scaler->found, scaler->scale));
  return px_optimizer_kind_step(w->kind->kind, options, manner, w->tensors, w->states, w->count);
}

// PyTorch's fused kernels take real parameters only.
static int check_fused(const work *w) {
  for (Py_ssize_t i = 0; i < w->count; i++) {
    px_dtype dtype = px_tensor_dtype(w->tensors[i]);
    if (!px_dtype_is_complex(dtype)) continue;
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "`fused=True` requires all the params to be floating point Tensors of supported "
                 "devices: ['mps', 'cuda', 'xpu', 'hpu', 'cpu', 'mtia', 'privateuseone'] but "
                 "torch.%s and %s",
                 px_dtype_name(dtype), px_device_type_name(px_tensor_device(w->tensors[i]).type));
  }
  return 0;
}

static int step_params(const keys *kind, const double *options, const px_step_options *manner,
                       const scaling *scaler, PyObject *params, PyObject *state) {
  work w;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(params);
  if (work_begin(&w, kind, count) < 0) return -1;
  int failed = 0;
  // A hash or a number in Python lets other threads run, and the list may become shorter.
  for (Py_ssize_t i = 0; i < count && i < PySequence_Fast_GET_SIZE(params) && !failed; i++) {
    EXT_OWNED *parameter = Py_NewRef(PySequence_Fast_GET_ITEM(params, i));
    failed = add_parameter(&w, parameter, state);
  }
  if (!failed && manner->on_device) failed = check_fused(&w);
  px_status status = PX_OK;
  if (!failed) status = EXT_NOGIL(make_step(&w, options, manner, scaler));
  if (!failed) failed = store_states(&w, state);
  work_end(&w);
  if (failed) return status == PX_OK ? -1 : (px_error_clear(), -1);
  return ext_zero(status);
}

static int is_capturing(bool *out) {
  px_stream *stream;
  *out = false;
  if (!px_device_initialized()) return 0;
  EXT_TRY_INT(px_stream_current(&stream, px_cuda(px_device_peek())));
  *out = px_stream_capturing(stream);
  return 0;
}

// A differentiable step evaluates the kind's formulas in Python. It computes scalars on the host,
// so every replay of a captured one would repeat the same step.
static int differentiable_step(const keys *kind, const double *options, PyObject *group,
                               PyObject *state) {
  bool capturing = false;
  EXT_TRY_INT(px_optimizer_kind_check(kind->kind, options));
  if (is_capturing(&capturing) < 0) return -1;
  if (capturing)
    EXT_FAIL_INT(PyExc_NotImplementedError,
                 "%s.step() with differentiable=True cannot be captured in a graph",
                 px_optimizer_kind_name(kind->kind));
  EXT_OWNED *done = ext_call_from("phlox.optim._differentiable", "step", "(sOO)",
                                  px_optimizer_kind_name(kind->kind), group, state);
  return done ? 0 : -1;
}

// Tensor attribute set by a GradScaler on the optimizer; NULL if missing, with or without an error.
static PyObject *scaler_tensor(PyObject *optimizer, PyObject *name) {
  PyObject *value = PyObject_GetAttr(optimizer, name);
  if (!value && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  if (value && ext_is_tensor(value)) return value;
  Py_XDECREF(value);
  return NULL;
}

static int step_group(const keys *kind, PyObject *optimizer, PyObject *group, PyObject *state) {
  double options[OPTIONS];
  px_step_options manner = {0};
  PX_SCOPED(px_tensor) rate = NULL;
  if (!PyDict_Check(group) || !PyDict_Check(state))
    EXT_FAIL_INT(PyExc_TypeError, "the groups and the state of an optimizer must be dicts");
  int fused = is_on(group, FUSED), recorded = fused < 0 ? -1 : is_on(group, DIFFERENTIABLE);
  if (recorded < 0) return -1;
  if (read_options(kind, group, options, recorded ? NULL : &rate) < 0) return -1;
  if (recorded) return differentiable_step(kind, options, group, state);
  EXT_OWNED *found = fused ? scaler_tensor(optimizer, found_name) : NULL;
  EXT_OWNED *scale = found ? scaler_tensor(optimizer, scale_name) : NULL;
  EXT_OWNED *given =
      PyErr_Occurred() ? NULL : Py_XNewRef(PyDict_GetItemWithError(group, params_name));
  if (!given) return PyErr_Occurred() ? -1 : (PyErr_SetObject(PyExc_KeyError, params_name), -1);
  EXT_OWNED *params = ext_items(given, "params must be a sequence");
  scaling scaler = {found ? ext_tensor(found) : NULL, scale ? ext_tensor(scale) : NULL};
  manner.rate = rate, manner.on_device = fused, manner.found_inf = scaler.found;
  return params ? step_params(kind, options, &manner, &scaler, params, state) : -1;
}

// ---- steps in a capture

static int is_capturable(PyObject *group) {
  bool plain = PyDict_CheckExact(group);
  PyObject *known = plain ? PyDict_GetItemWithError(group, flag_names[CAPTURABLE]) : NULL;
  if (known == Py_False) return 0;
  EXT_OWNED *flag = known ? Py_NewRef(known) : PyObject_GetItem(group, flag_names[CAPTURABLE]);
  return flag ? PyObject_IsTrue(flag) : -1;
}
static int all_capturable(PyObject *groups) {
  int all = 1;
  for (Py_ssize_t g = 0; all > 0 && g < PySequence_Fast_GET_SIZE(groups); g++) {
    EXT_OWNED *group = Py_NewRef(PySequence_Fast_GET_ITEM(groups, g));
    all = is_capturable(group);
  }
  return all;
}

// Warns once per optimizer.
static int warn_uncaptured(PyObject *self) {
  EXT_OWNED *warned = PyObject_GetAttr(self, warned_name);
  int was = warned ? PyObject_IsTrue(warned) : -1;
  if (was || px_device_count(PX_CUDA) == 0) return was < 0 ? -1 : 0;
  if (PyErr_WarnEx(PyExc_UserWarning,
                   "This instance was constructed with capturable=True or some of all the "
                   "param_groups came with capturable=True, but step() is running without CUDA "
                   "graph capture. If you never intend to graph-capture this instance, "
                   "capturable=True can impair performance, and you should set capturable=False.",
                   1) < 0)
    return -1;
  return PyObject_SetAttr(self, warned_name, Py_True);
}

static int check_capture(PyObject *self, PyObject *groups) {
  bool capturing;
  int all = all_capturable(groups);
  if (all < 0 || is_capturing(&capturing) < 0) return -1;
  if (capturing && !all)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Attempting CUDA graph capture of step() for an instance of %s but param_groups' "
                 "capturable is False.",
                 ext_type_name(self));
  return all && !capturing ? warn_uncaptured(self) : 0;
}

// ---- the base of Optimizer: functions called in every iteration, faster than in Python
static PyObject *list_of(PyObject *object_take) {
  if (!object_take || PyList_CheckExact(object_take)) return object_take;
  EXT_OWNED *object = object_take;
  return PySequence_List(object);
}

static int clear_grad(PyObject *parameter, bool set_to_none) {
  px_tensor *tensor = ext_tensor(parameter);
  EXT_OWNED *kept = Py_NewRef(parameter);  // destroying the gradient may modify the list
  return ext_zero(px_clear_grads(&tensor, 1, set_to_none));
}

static int clear_group(PyObject *group, bool set_to_none) {
  bool plain = PyDict_CheckExact(group);
  PyObject *known = plain ? PyDict_GetItemWithError(group, params_name) : NULL;
  EXT_OWNED *list = list_of(known ? Py_NewRef(known) : PyObject_GetItem(group, params_name));
  if (!list) return -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *item = PyList_GET_ITEM(list, i);
    if (!ext_is_tensor(item) && !ext_need_tensor(item, "zero_grad", "params")) return -1;
    if (px_tensor_grad(ext_tensor(item)) && clear_grad(item, set_to_none) < 0) return -1;
  }
  return 0;
}

static PyObject *groups_of(PyObject *self) { return list_of(PyObject_GetAttr(self, groups_name)); }

EXT_METHOD(optimizer, zero_grad, "(set_to_none: bool = True) -> None",
           "Resets the gradients of all optimized tensors, to None or to zeros.") {
  bool set_to_none = true;
  if (call->nargs || call->kwnames) EXT_BIND(set_to_none);  // most calls have no arguments
  EXT_OWNED *list = groups_of(self);
  if (!list) return NULL;
  for (Py_ssize_t g = 0; g < PyList_GET_SIZE(list); g++) {
    EXT_OWNED *group = Py_NewRef(PyList_GET_ITEM(list, g));
    if (clear_group(group, set_to_none) < 0) return NULL;
  }
  Py_RETURN_NONE;
}

EXT_METHOD0(optimizer, _accelerator_graph_capture_health_check, "None",
            "Raises RuntimeError if a step counting on the host is captured; warns once about a "
            "capturable step that is not captured.") {
  EXT_OWNED *groups = groups_of(self);
  return !groups || check_capture(self, groups) < 0 ? NULL : Py_NewRef(Py_None);
}
EXT_ALIASES(optimizer, optimizer__accelerator_graph_capture_health_check,
            _cuda_graph_capture_health_check);

EXT_METHOD0(optimizer, _step_groups, "None", "Performs one step on the parameters of all groups.") {
  EXT_OWNED *name = PyObject_GetAttr(self, kind_name);
  const keys *kind = name ? keys_by(name) : NULL;
  EXT_OWNED *groups = kind ? groups_of(self) : NULL;
  EXT_OWNED *state = groups ? PyObject_GetAttr(self, state_name) : NULL;
  if (!state || (kind->counts && check_capture(self, groups) < 0)) return NULL;
  for (Py_ssize_t g = 0; g < PySequence_Fast_GET_SIZE(groups); g++) {
    EXT_OWNED *group = Py_NewRef(PySequence_Fast_GET_ITEM(groups, g));
    if (step_group(kind, self, group, state) < 0) return NULL;
  }
  Py_RETURN_NONE;
}

// A heap type: Python's pickle then uses the subclass.
static int make_base(PyObject *torch) {
  static PyType_Slot slots[] = {{Py_tp_doc, "Base of torch.optim.Optimizer."}, {0, NULL}};
  PyType_Spec spec = {"torch.optim.optimizer._Base", sizeof(PyObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
  if (!type || ext_register_owner("optimizer", type) < 0) return -1;
  for (int i = 0; i < EXT_LENGTH(interned); i++)
    if (!(*interned[i].name = PyUnicode_InternFromString(interned[i].text))) return -1;
  return ext_add_type(torch, "_Optimizer", type);
}
EXT_START(EXT_TYPES, make_base);

// ---- step hooks
// Wraps the step() of a class. In C, because usually there are no hooks.
typedef struct hooked_object {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *step, *around, *everywhere, *dict;  // everywhere: global hooks
  PyObject *alone;  // C implementation of step() without arguments, or NULL
} hooked_object;
EXT_OWNS(hooked, EXT_OBJECT(hooked_object, step), EXT_OBJECT(hooked_object, around),
         EXT_OBJECT(hooked_object, everywhere), EXT_OBJECT(hooked_object, dict),
         EXT_OBJECT(hooked_object, alone));

// 1, 0, or -1 with an exception.
static int has_hooks(const hooked_object *self, PyObject *optimizer) {
  PyObject *const names[] = {before_name, after_name};
  for (int i = 0; i < EXT_LENGTH(names); i++) {
    EXT_OWNED *own = PyObject_GetAttr(optimizer, names[i]);
    int some = own ? PyObject_IsTrue(own) : -1;
    if (some) return some;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->everywhere); i++) {
    int some = PyObject_IsTrue(PyTuple_GET_ITEM(self->everywhere, i));
    if (some) return some;
  }
  return 0;
}

static PyObject *hooked_call(PyObject *object, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames) {
  const hooked_object *self = (hooked_object *)object;
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (!nargs) return PyObject_Vectorcall(self->step, args, nargsf, kwnames);  // raises the error
  PyObject *optimizer = *args;
  if (PyObject_SetAttr(optimizer, called_name, Py_True) < 0) return NULL;
  int some = has_hooks(self, optimizer);
  if (some < 0) return NULL;
  PyObject *step = nargs == 1 && !kwnames && self->alone ? self->alone : self->step;
  if (!some) return PyObject_Vectorcall(step, args, nargsf, kwnames);
  EXT_OWNED *tuple = ext_tuple_of((ext_varargs){args + 1, nargs - 1});
  EXT_OWNED *kwargs = ext_kwargs_of(args, nargs, kwnames);
  if (!tuple || !kwargs) return NULL;
  return PyObject_CallFunctionObjArgs(self->around, self->step, optimizer, tuple, kwargs, NULL);
}
static PyObject *hooked_get(PyObject *self, PyObject *instance, PyObject *owner) {
  return instance ? PyMethod_New(self, instance) : Py_NewRef(self);
}

EXT_NEW(hooked,
        "(step: Callable, around: Callable, everywhere: tuple, alone: Callable | None = None)") {
  EXT_ARGS(PyObject *, step, around, everywhere, alone);
  if (!PyTuple_Check(everywhere)) EXT_FAIL(PyExc_TypeError, "everywhere must be a tuple");
  hooked_object *self = ext_new(type);
  if (!self) return NULL;
  self->vectorcall = hooked_call;
  self->step = Py_NewRef(step), self->around = Py_NewRef(around);
  self->everywhere = Py_NewRef(everywhere);
  self->alone = Py_XNewRef(alone);
  return (PyObject *)self;
}
static PyGetSetDef hooked_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL}};
EXT_TYPE(hooked, "torch.optim.optimizer._Hooked", "_Hooked", hooked_object,
         EXT_GC | EXT_VECTORCALL | EXT_METHOD_DESCRIPTOR,
         "A step() that marks itself as called, and runs around(step, optimizer, args, kwargs) if "
         "there are\nhooks of the optimizer or of all optimizers.",
         EXT_LIFETIME_SLOTS(hooked), .tp_new = hooked_new, .tp_call = PyVectorcall_Call,
         .tp_vectorcall_offset = offsetof(hooked_object, vectorcall),
         .tp_dictoffset = offsetof(hooked_object, dict), .tp_descr_get = hooked_get,
         .tp_getset = hooked_attributes);

// ---- schedules

static const px_scheduler_kind *schedule_of(const char *name) {
  const px_scheduler_kind *kind = px_scheduler_kind_find(name);
  if (!kind) PyErr_Format(PyExc_KeyError, "'%s'", name);
  return kind;
}

// Reads a list with the numbers of all options. Returns their number, or -1.
static int read_numbers(PyObject *list, double *out) {
  EXT_OWNED *numbers = PyList_Check(list) ? PyList_AsTuple(list) : NULL;
  if (!numbers || PyTuple_GET_SIZE(numbers) > OPTIONS)
    EXT_FAIL_INT(PyExc_TypeError, "expected a list of options");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++)
    if (ext_to_double(PyTuple_GET_ITEM(numbers, i), &out[i]) < 0) return -1;
  return (int)PyTuple_GET_SIZE(numbers);
}

EXT_FUNCTION(
    torch, _schedule_check, "(kind: str, options: list) -> tuple[list, float]",
    "Returns the options including derived ones, and the initial rate of the schedule, NaN "
    "for the group's.") {
  const char *kind;
  PyObject *options_;
  double options[OPTIONS];
  EXT_BIND(kind, options_);
  const px_scheduler_kind *k = schedule_of(kind);
  int count = k ? read_numbers(options_, options) : -1;
  if (count < 0) return NULL;
  EXT_TRY(px_scheduler_kind_check(k, options));
  EXT_OWNED *filled = PyList_New(count);
  for (Py_ssize_t i = 0; filled && i < count; i++)
    PyList_SET_ITEM(filled, i, PyFloat_FromDouble(options[i]));
  return filled ? Py_BuildValue("Od", filled, px_scheduler_kind_first(k, options)) : NULL;
}

// Index of a word among those of an option, listed in the class's _words; -1: none.
static int word_index(PyObject *schedule, PyObject *name, PyObject *word) {
  EXT_OWNED *all = PyObject_GetAttr(schedule, words_name);
  PyObject *row = all && PyDict_Check(all) ? PyDict_GetItemWithError(all, name) : NULL;
  PyObject *words = row && PyTuple_Check(row) ? PyTuple_GetItem(row, 0) : NULL;
  for (int i = 0; words && PyTuple_Check(words) && i < PyTuple_GET_SIZE(words); i++)
    if (PyTuple_GET_ITEM(words, i) == word) return i;
  PyErr_Clear();
  return -1;
}

// Reads an attribute that is an option. Values other than numbers, known words and None are
// converted by the class. Sets *lists if there is a value per group.
static int read_attribute(PyObject *schedule, PyObject *name, char type, double *out, bool *lists) {
  EXT_OWNED *value = PyObject_GetAttr(schedule, name);
  *lists |= value && type == 'f' && (PyList_Check(value) || PyTuple_Check(value));
  int word = value && type == 'c' ? word_index(schedule, name, value) : -1;
  if (!value) return -1;
  if (word >= 0) return *out = word, 0;
  if (type != 'c' && value == Py_None) return *out = NAN, 0;
  if (type != 'c' && (PyFloat_CheckExact(value) || PyLong_Check(value)))
    return ext_to_double(value, out);
  EXT_OWNED *number = PyObject_CallMethod(schedule, "_number", "O", name);
  return number ? ext_to_double(number, out) : -1;
}

// Milestones, allocated with PyMem.
static int read_milestones(PyObject *schedule, PyObject *name, px_schedule_point *at) {
  EXT_OWNED *value = PyObject_GetAttr(schedule, name);
  EXT_OWNED *counted = value && PyDict_Check(value) ? PyObject_CallMethod(value, "elements", NULL)
                                                    : Py_XNewRef(value);
  EXT_OWNED *given = counted ? ext_items(counted, "milestones must be a sequence") : NULL;
  EXT_OWNED *list = given ? PySequence_Tuple(given) : NULL;
  if (!list) return -1;
  Py_ssize_t count = PyTuple_GET_SIZE(list);
  int64_t *items = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *items);
  if (!items) return PyErr_NoMemory(), -1;
  at->milestones = items, at->milestone_count = (int)count;
  for (Py_ssize_t i = 0; i < count; i++)
    if (ext_to_int(PyTuple_GET_ITEM(list, i), &items[i]) < 0) return -1;
  return 0;
}

// Replaces per-group options by the values of one group.
static int read_own(PyObject *schedule, const px_scheduler_kind *kind, Py_ssize_t group,
                    double *options) {
  int count;
  const px_option *rows = px_scheduler_kind_options(kind, &count);
  for (int k = 0; k < count; k++) {
    if (rows[k].type != 'f') continue;
    EXT_OWNED *value = PyObject_GetAttrString(schedule, rows[k].name);
    if (!value) return -1;
    if (!PyList_Check(value) && !PyTuple_Check(value)) continue;
    EXT_OWNED *item = group < PySequence_Size(value) ? PySequence_GetItem(value, group) : NULL;
    if (PyErr_Occurred() || (item && ext_to_double(item, &options[k]) < 0)) return -1;
  }
  return 0;
}

static int read_schedule(PyObject *schedule, const px_scheduler_kind *kind, double *options,
                         px_schedule_point *at, bool *lists) {
  int count;
  const px_option *rows = px_scheduler_kind_options(kind, &count);
  EXT_OWNED *names = PyObject_GetAttr(schedule, options_name);
  if (!names || !PyTuple_Check(names) || PyTuple_GET_SIZE(names) != count || count > OPTIONS)
    return names
               ? (PyErr_SetString(PyExc_TypeError, "_options does not match the kind of schedule"),
                  -1)
               : -1;
  for (int k = 0; k < count; k++) {
    PyObject *name = PyTuple_GET_ITEM(names, k);
    if (read_attribute(schedule, name, rows[k].type, &options[k], lists) < 0) return -1;
    if (rows[k].type == 'm' && read_milestones(schedule, name, at) < 0) return -1;
  }
  return 0;
}

// Appends a group's rate and momentum to the lists.
static int add_rate(PyObject *rates, PyObject *momenta, const px_scheduler_kind *kind,
                    px_schedule_point *at, bool closed, PyObject *group) {
  double rate, momentum;
  EXT_OWNED *lr = PyObject_GetItem(group, lr_name);
  if (!lr || ext_to_double(lr, &at->lr) < 0) return -1;
  EXT_TRY_INT(px_scheduler_kind_rate(&rate, &momentum, kind, at, closed));
  // An unchanged integer rate stays an integer.
  bool unchanged = !closed && PyLong_Check(lr) && rate == at->lr;
  EXT_OWNED *next = unchanged ? Py_NewRef(lr) : PyFloat_FromDouble(rate);
  if (!next || PyList_Append(rates, next) < 0) return -1;
  if (isnan(momentum) || isnan(at->base)) return 0;
  EXT_OWNED *next_momentum = PyFloat_FromDouble(momentum);
  return next_momentum ? PyList_Append(momenta, next_momentum) : -1;
}

static PyObject *rates_of(PyObject *schedule, const px_scheduler_kind *kind, px_schedule_point *at,
                          double *options, bool lists, bool closed) {
  EXT_OWNED *optimizer = PyObject_GetAttr(schedule, optimizer_name);
  EXT_OWNED *groups = optimizer ? PyObject_GetAttr(optimizer, groups_name) : NULL;
  EXT_OWNED *bases = groups ? PyObject_GetAttr(schedule, bases_name) : NULL;
  EXT_OWNED *rates = PyList_New(0);
  EXT_OWNED *momenta = PyList_New(0);
  if (!bases || !rates || !momenta) return NULL;
  if (!PyList_Check(groups) || !PyList_Check(bases))
    EXT_FAIL(PyExc_TypeError, "param_groups and base_lrs must be lists");
  for (Py_ssize_t g = 0; g < PyList_GET_SIZE(groups); g++) {
    at->base = NAN;
    EXT_OWNED *group = Py_NewRef(PyList_GET_ITEM(groups, g));
    EXT_OWNED *base = Py_XNewRef(g < PyList_GET_SIZE(bases) ? PyList_GET_ITEM(bases, g) : NULL);
    if (base && ext_to_double(base, &at->base) < 0) return NULL;
    if (lists && read_own(schedule, kind, g, options) < 0) return NULL;
    if (add_rate(rates, momenta, kind, at, closed, group) < 0) return NULL;
  }
  return PyTuple_Pack(2, rates, momenta);
}

EXT_FUNCTION(torch, _schedule_rates,
             "(schedule: object, kind: str, closed: bool, epoch: float, step: int, initial: bool) "
             "-> tuple[list[float], list[float]]",
             "Returns the rates of the groups, and the associated momenta, if any, of the initial "
             "groups.") {
  PyObject *schedule;
  const char *kind;
  bool closed, initial;
  double options[OPTIONS], epoch;
  int64_t step;
  EXT_BIND(schedule, kind, closed, epoch, step, initial);
  const px_scheduler_kind *k = schedule_of(kind);
  px_schedule_point at = {
      .options = options, .epoch = epoch, .step = (double)step, .initial = initial};
  if (!k) return NULL;
  bool lists = false, read = read_schedule(schedule, k, options, &at, &lists) == 0;
  PyObject *rates = read ? rates_of(schedule, k, &at, options, lists, closed) : NULL;
  PyMem_Free((void *)at.milestones);
  return rates;
}

EXT_FUNCTION(torch, _plateau_step,
             "(schedule: object, kind: str, best: float, bad_epochs: float, cooling: float, "
             "metric: float) -> tuple[bool, float, int, int]",
             "Returns whether to reduce the rates, and the new state.") {
  PyObject *schedule;
  const char *kind;
  double options[OPTIONS], best, bad_epochs, cooling, metric;
  EXT_BIND(schedule, kind, best, bad_epochs, cooling, metric);
  const px_scheduler_kind *k = schedule_of(kind);
  px_schedule_point at = {0};
  bool lists = false;
  if (!k || read_schedule(schedule, k, options, &at, &lists) < 0) return NULL;
  px_plateau p = {best, bad_epochs, cooling};
  bool falls = px_plateau_step(&p, options, metric);
  return Py_BuildValue("Odnn", falls ? Py_True : Py_False, p.best, (Py_ssize_t)p.bad_epochs,
                       (Py_ssize_t)p.cooling);
}

EXT_FUNCTION(torch, _plateau_rate, "(options: list, lr: float) -> float",
             "Returns the reduced rate of `lr`.") {
  PyObject *options_;
  double options[OPTIONS], lr;
  EXT_BIND(options_, lr);
  if (read_numbers(options_, options) < 0) return NULL;
  return PyFloat_FromDouble(px_plateau_rate(options, lr));
}
