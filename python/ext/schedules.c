// SPDX-License-Identifier: Apache-2.0
// torch.optim.lr_scheduler, and torch.nn.utils: clipping of gradients, parameters as one vector.
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "optim.h"

#include <structmember.h>

typedef struct scheduler_object {
  PyObject_HEAD px_scheduler *scheduler;
  PyObject *optimizer;
  PyObject *lambdas;  // of LambdaLR and MultiplicativeLR: a list of functions, one for each group
  bool started;       // the first step is made
  PyObject *dict;
} scheduler_object;

static void scheduler_dealloc(PyObject *object) {
  scheduler_object *self = (scheduler_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_CLEAR(self->optimizer);
  Py_CLEAR(self->lambdas);
  Py_CLEAR(self->dict);
  px_release(self->scheduler);
  type->tp_free(object);
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) Py_DECREF(type);
}

static int scheduler_traverse(PyObject *object, visitproc visit, void *arg) {
  scheduler_object *self = (scheduler_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->optimizer);
  Py_VISIT(self->lambdas);
  Py_VISIT(self->dict);
  return 0;
}

static int scheduler_clear(PyObject *object) {
  scheduler_object *self = (scheduler_object *)object;
  Py_CLEAR(self->lambdas);
  Py_CLEAR(self->dict);
  return 0;
}

static px_optimizer *core_of(const scheduler_object *self) {
  return ((ext_optimizer_object *)self->optimizer)->optimizer;
}

static int optimizer_of(PyObject *object, scheduler_object *self) {
  if (!PyObject_TypeCheck(object, &ext_OptimizerType))
    EXT_FAIL_INT(PyExc_TypeError, "%s is not an Optimizer", ext_type_name(object));
  Py_XSETREF(self->optimizer, Py_NewRef(object));
  px_release(self->scheduler);
  self->scheduler = NULL;
  return ext_optimizer_push(object);
}

static int need_scheduler(PyObject *object) {
  if (((scheduler_object *)object)->scheduler) return 0;
  EXT_FAIL_INT(PyExc_AttributeError, "'%s' object was used before LRScheduler.__init__()",
               ext_type_name(object));
}

// ---- options as Python has them

// Options that are words in Python: 0 and 1 in the core.
static const struct {
  const char *name, *first, *second, *text;
} words[] = {{"mode", "min", "max", "mode %U is unknown!"},
             {"threshold_mode", "rel", "abs", "threshold mode %U is unknown!"},
             {"anneal_strategy", "cos", "linear",
              "anneal_strategy must be one of 'cos' or 'linear', instead got %U"}};

static int word_index(const char *name) {
  for (int i = 0; i < EXT_LENGTH(words); i++)
    if (!strcmp(words[i].name, name)) return i;
  return -1;
}

static int read_option(const px_option *option, PyObject *value, double *out) {
  int word = option->type == 'c' ? word_index(option->name) : -1;
  if (word < 0) return value == Py_None ? (*out = NAN, 0) : ext_to_double(value, out);
  bool text = PyUnicode_Check(value);
  if (text && !PyUnicode_CompareWithASCIIString(value, words[word].first)) return *out = 0, 0;
  if (text && !PyUnicode_CompareWithASCIIString(value, words[word].second)) return *out = 1, 0;
  EXT_OWNED *said = PyObject_Str(value);
  return said ? (PyErr_Format(PyExc_ValueError, words[word].text, said), -1) : -1;
}

static PyObject *option_object(const px_option *option, const scheduler_object *self) {
  double value;
  int count, word = option->type == 'c' ? word_index(option->name) : -1;
  if (option->type == 'm') {
    const int64_t *milestones = px_scheduler_milestones(self->scheduler, &count);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++)
      PyList_SET_ITEM(list, i, PyLong_FromLongLong(milestones[i]));
    return list;
  }
  EXT_TRY(px_scheduler_get(&value, self->scheduler, option->name));
  if (word >= 0) return PyUnicode_FromString(value != 0 ? words[word].second : words[word].first);
  if (isnan(value)) Py_RETURN_NONE;
  if (option->type == 'b') return PyBool_FromLong(value != 0);
  return option->type == 'f' ? PyFloat_FromDouble(value) : PyLong_FromDouble(value);
}

static const px_option *options_of(const scheduler_object *self, int *count) {
  const px_scheduler_kind *kind = self->scheduler ? px_scheduler_kind_of(self->scheduler) : NULL;
  *count = 0;
  return kind ? px_scheduler_kind_options(kind, count) : NULL;
}

// What ReduceLROnPlateau knows of its metric.
static const char *const remembered[] = {"best", "num_bad_epochs", "cooldown_counter"};

// An attribute, or an option of the kind.
static PyObject *scheduler_getattro(PyObject *object, PyObject *name) {
  PyObject *found = PyObject_GenericGetAttr(object, name);
  int count;
  const px_option *options = options_of((scheduler_object *)object, &count);
  for (int i = 0; !found && i < count; i++) {
    if (PyUnicode_CompareWithASCIIString(name, options[i].name)) continue;
    PyErr_Clear();
    return option_object(&options[i], (scheduler_object *)object);
  }
  for (int i = 0; !found && i < EXT_LENGTH(remembered) && count; i++) {
    double value;
    if (PyUnicode_CompareWithASCIIString(name, remembered[i])) continue;
    if (px_scheduler_get(&value, ((scheduler_object *)object)->scheduler, remembered[i]) != PX_OK)
      return px_error_clear(), NULL;
    PyErr_Clear();
    return i ? PyLong_FromDouble(value) : PyFloat_FromDouble(value);
  }
  return found;
}

static int scheduler_setattro(PyObject *object, PyObject *name, PyObject *value) {
  scheduler_object *self = (scheduler_object *)object;
  int count;
  double number;
  const px_option *options = options_of(self, &count);
  for (int i = 0; value && i < count; i++) {
    if (PyUnicode_CompareWithASCIIString(name, options[i].name) || options[i].type == 'm') continue;
    if (read_option(&options[i], value, &number) < 0) return -1;
    EXT_TRY_INT(px_scheduler_set(self->scheduler, options[i].name, number));
    return 0;
  }
  return PyObject_GenericSetAttr(object, name, value);
}

// ---- making

static bool by_metric(const px_scheduler_kind *kind) {
  return !strcmp(px_scheduler_kind_name(kind), "ReduceLROnPlateau");
}

static const px_scheduler_kind *kind_of(PyTypeObject *type) {
  for (PyTypeObject *at = type; at; at = at->tp_base) {
    const char *dot = strrchr(at->tp_name, '.');
    const px_scheduler_kind *kind = px_scheduler_kind_find(dot ? dot + 1 : at->tp_name);
    if (kind) return kind;
  }
  return NULL;
}

// "optimizer step_size|gamma last_epoch": options without a default are required.
static ext_spec *spec_of(const px_scheduler_kind *kind) {
  enum { KINDS = 16 };
  static ext_spec specs[KINDS];
  static char texts[KINDS][256], names[KINDS][64];
  int i = 0, count;
  while (px_scheduler_kind_at(i) != kind) i++;
  if (i >= KINDS) return PyErr_SetString(PyExc_SystemError, "too many kinds of schedule"), NULL;
  if (specs[i].name) return &specs[i];
  const px_option *options = px_scheduler_kind_options(kind, &count);
  size_t used = (size_t)snprintf(texts[i], sizeof *texts, "optimizer");
  bool required = true;
  for (int k = 0; k < count; k++) {
    bool needed = isnan(options[k].fallback) && options[k].type != 'o';
    used += (size_t)snprintf(texts[i] + used, sizeof *texts - used, "%c%s",
                             required && !needed ? '|' : ' ', options[k].name);
    required &= needed;
  }
  if (!by_metric(kind))
    snprintf(texts[i] + used, sizeof *texts - used, "%clast_epoch", required ? '|' : ' ');
  snprintf(names[i], sizeof *names, "%s.__init__", px_scheduler_kind_name(kind));
  specs[i] = (ext_spec){names[i], texts[i], 0, 0, 0, {NULL}};
  return &specs[i];
}

// What a program sees in param_groups: the rates, their first ones, and a momentum that turns.
static int show(scheduler_object *self) {
  PyObject *groups = ((ext_optimizer_object *)self->optimizer)->groups;
  if (ext_optimizer_pull(self->optimizer) < 0) return -1;
  for (Py_ssize_t g = 0; g < PyList_GET_SIZE(groups); g++) {
    double first = px_optimizer_initial_lr(core_of(self), (int)g);
    EXT_OWNED *number = isnan(first) ? NULL : PyFloat_FromDouble(first);
    if (number && PyDict_SetItemString(PyList_GET_ITEM(groups, g), "initial_lr", number) < 0)
      return -1;
  }
  return PyErr_Occurred() ? -1 : 0;
}

// A list of rates in the place of max_lr: each group's own.
static int spread_most(scheduler_object *self, PyObject *list) {
  px_optimizer *optimizer = core_of(self);
  if (PySequence_Size(list) != px_optimizer_groups(optimizer))
    EXT_FAIL_INT(PyExc_ValueError, "expected %d values for max_lr, got %zd",
                 px_optimizer_groups(optimizer), PySequence_Size(list));
  double division;
  EXT_TRY_INT(px_scheduler_get(&division, self->scheduler, "div_factor"));
  for (int g = 0; g < px_optimizer_groups(optimizer); g++) {
    double most;
    EXT_OWNED *item = PySequence_GetItem(list, g);
    if (!item || ext_to_double(item, &most) < 0) return -1;
    EXT_TRY_INT(px_optimizer_set_initial_lr(optimizer, g, most / division));
    EXT_TRY_INT(px_scheduler_set_base_lr(self->scheduler, g, most / division));
  }
  EXT_TRY_INT(px_scheduler_step_to(self->scheduler, 0));
  return 0;
}

static int make_kind(scheduler_object *self, const px_scheduler_kind *kind, PyObject **given) {
  enum { LIMIT = 16 };
  double values[LIMIT];
  int64_t last = -1;
  int count;
  ext_ints milestones = {.count = 0};
  PyObject *list = NULL;
  const px_option *options = px_scheduler_kind_options(kind, &count);
  for (int k = 0; k < count; k++) {
    PyObject *value = given[1 + k];
    values[k] = NAN;
    if (!value) continue;
    bool many = PyList_Check(value) || PyTuple_Check(value);
    if (options[k].type == 'm') {
      EXT_OWNED *tuple = PySequence_Tuple(value);
      if (!tuple || ext_to_ints(tuple, &milestones) < 0) return -1;
      values[k] = 0;
    } else if (many && !strcmp(options[k].name, "max_lr") && PySequence_Size(value) > 0) {
      EXT_OWNED *first = PySequence_GetItem(list = value, 0);
      if (!first || ext_to_double(first, &values[k]) < 0) return -1;
    } else if (read_option(&options[k], value, &values[k]) < 0) {
      return -1;
    }
  }
  if (!by_metric(kind) && given[1 + count] && ext_to_int(given[1 + count], &last) < 0) return -1;
  EXT_TRY_INT(px_scheduler_new(&self->scheduler, kind, core_of(self), values, milestones.items,
                               milestones.count, last));
  return list && last < 0 ? spread_most(self, list) : 0;
}

static int kind_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  scheduler_object *self = (scheduler_object *)object;
  const px_scheduler_kind *kind = kind_of(Py_TYPE(object));
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  ext_spec *spec = spec_of(kind);
  if (!spec || ext_args_tuple(spec, args, kwargs, out) < 0 || optimizer_of(out[0], self) < 0)
    return -1;
  return make_kind(self, kind, out) < 0 ? -1 : show(self);
}

// ---- rates of the program's own

// What get_lr of a class written in Python says.
static int rates_of_class(PyObject *object, double *rates, int groups) {
  EXT_OWNED *said = PyObject_CallMethod(object, "get_lr", NULL);
  EXT_OWNED *list = said ? PySequence_List(said) : NULL;
  if (!list) return -1;
  for (int g = 0; g < groups && g < PyList_GET_SIZE(list); g++)
    if (ext_to_double(PyList_GET_ITEM(list, g), &rates[g]) < 0) return -1;
  return 0;
}

static bool multiplies(PyObject *object) {
  for (PyTypeObject *at = Py_TYPE(object); at; at = at->tp_base)
    if (strstr(at->tp_name, "MultiplicativeLR")) return true;
  return false;
}

static int rates_of_functions(scheduler_object *self, double *rates, int groups,
                              const px_scheduler *core) {
  bool times = multiplies((PyObject *)self);
  if (times && !self->started) return 0;
  for (int g = 0; g < groups; g++) {
    EXT_OWNED *epoch = PyLong_FromLongLong(px_scheduler_epoch(core));
    EXT_OWNED *said = epoch ? PyObject_CallOneArg(PyList_GET_ITEM(self->lambdas, g), epoch) : NULL;
    double factor;
    if (!said || ext_to_double(said, &factor) < 0) return -1;
    rates[g] = (times ? rates[g] : px_scheduler_base_lr(core, g)) * factor;
  }
  return 0;
}

static px_status own_rates(double *rates, int groups, const px_scheduler *core, void *context) {
  scheduler_object *self = context;
  int failed = self->lambdas ? rates_of_functions(self, rates, groups, core)
                             : rates_of_class(context, rates, groups);
  return failed < 0 ? ext_foreign() : PX_OK;
}

static PyObject *take_step(PyObject *object) {
  scheduler_object *self = (scheduler_object *)object;
  EXT_TRY(px_scheduler_step(self->scheduler));
  if (show(self) < 0) return NULL;
  Py_RETURN_NONE;
}

static int make_own(PyObject *object, PyObject *last_epoch) {
  scheduler_object *self = (scheduler_object *)object;
  int64_t last = -1;
  if (last_epoch && ext_to_int(last_epoch, &last) < 0) return -1;
  EXT_TRY_INT(px_scheduler_custom(&self->scheduler, core_of(self), own_rates, object, last));
  self->started = false;
  EXT_OWNED *stepped = take_step(object);
  self->started = true;
  return stepped ? 0 : -1;
}

static int base_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"LRScheduler.__init__", "optimizer|last_epoch", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0 ||
      optimizer_of(out[0], (scheduler_object *)object) < 0)
    return -1;
  return make_own(object, out[1]);
}

static int lambda_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"LambdaLR.__init__", "optimizer lr_lambda|last_epoch", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  scheduler_object *self = (scheduler_object *)object;
  if (ext_args_tuple(&spec, args, kwargs, out) < 0 || optimizer_of(out[0], self) < 0) return -1;
  int groups = px_optimizer_groups(core_of(self));
  bool many = PyList_Check(out[1]) || PyTuple_Check(out[1]);
  EXT_OWNED *list = many ? PySequence_List(out[1]) : PyList_New(groups);
  for (int g = 0; list && !many && g < groups; g++) PyList_SET_ITEM(list, g, Py_NewRef(out[1]));
  if (!list) return -1;
  if (PyList_GET_SIZE(list) != groups)
    EXT_FAIL_INT(PyExc_ValueError, "Expected %d lr_lambdas, but got %zd", groups,
                 PyList_GET_SIZE(list));
  Py_XSETREF(self->lambdas, ext_moved(&list));
  return make_own(object, out[2]);
}

// ---- use

#define TOO_EARLY \
  "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, " \
  "you should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  " \
  "Failure to do this will result in PyTorch skipping the first value of the learning rate " \
  "schedule. See more details at " \
  "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"

EXT_FAST(step) {
  EXT_ARGS("step", "|epoch", out);
  scheduler_object *object = (scheduler_object *)self;
  double epoch;
  if (need_scheduler(self) < 0) return NULL;
  bool early = px_scheduler_epoch(object->scheduler) == 0 &&
               !((ext_optimizer_object *)object->optimizer)->stepped;
  if (early && PyErr_WarnEx(PyExc_UserWarning, TOO_EARLY, 1) < 0) return NULL;
  if (ext_optimizer_push(object->optimizer) < 0) return NULL;
  if (ext_is_none(out[0])) return take_step(self);
  const px_scheduler_kind *kind = px_scheduler_kind_of(object->scheduler);
  bool restarts = kind && !strcmp(px_scheduler_kind_name(kind), "CosineAnnealingWarmRestarts");
  if (!restarts &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "The epoch parameter in `scheduler.step()` was not necessary and is being "
                   "deprecated where possible. Please use `scheduler.step()` to step the "
                   "scheduler. During the deprecation, if epoch is different from None, the closed "
                   "form is used instead of the new chainable form, where available.",
                   1) < 0)
    return NULL;
  if (ext_to_double(out[0], &epoch) < 0) return NULL;
  EXT_TRY(px_scheduler_step_to(object->scheduler, epoch));
  if (show(object) < 0) return NULL;
  Py_RETURN_NONE;
}

EXT_FAST(plateau_step) {
  EXT_ARGS("ReduceLROnPlateau.step", "metrics|epoch", out);
  scheduler_object *object = (scheduler_object *)self;
  EXT_OWNED *number = PyNumber_Float(out[0]);
  if (!number || need_scheduler(self) < 0 || ext_optimizer_push(object->optimizer) < 0) return NULL;
  EXT_TRY(px_scheduler_step_metric(object->scheduler, PyFloat_AS_DOUBLE(number)));
  if (show(object) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *rates(PyObject *object, double (*rate)(const px_scheduler *, int)) {
  const scheduler_object *self = (scheduler_object *)object;
  if (need_scheduler(object) < 0) return NULL;
  int groups = px_optimizer_groups(core_of(self));
  PyObject *list = PyList_New(groups);
  for (int g = 0; list && g < groups; g++)
    PyList_SET_ITEM(list, g, PyFloat_FromDouble(rate(self->scheduler, g)));
  return list;
}

static PyObject *get_last_lr(PyObject *self, PyObject *unused) {
  return rates(self, px_scheduler_last_lr);
}
static PyObject *get_lr(PyObject *self, PyObject *unused) {
  if (!options_of((scheduler_object *)self, &(int){0}) && !((scheduler_object *)self)->lambdas)
    EXT_FAIL(PyExc_NotImplementedError, "%s has no get_lr", ext_type_name(self));
  return rates(self, px_scheduler_last_lr);
}
static PyObject *get_base_lrs(PyObject *self, void *closure) {
  return rates(self, px_scheduler_base_lr);
}
static int set_base_lrs(PyObject *self, PyObject *value, void *closure) {
  EXT_OWNED *list = value ? PySequence_List(value) : NULL;
  if (!list || need_scheduler(self) < 0) return -1;
  for (Py_ssize_t g = 0; g < PyList_GET_SIZE(list); g++) {
    double lr;
    if (ext_to_double(PyList_GET_ITEM(list, g), &lr) < 0) return -1;
    EXT_TRY_INT(px_scheduler_set_base_lr(((scheduler_object *)self)->scheduler, (int)g, lr));
  }
  return 0;
}
static PyObject *get_epoch(PyObject *self, void *closure) {
  if (need_scheduler(self) < 0) return NULL;
  return PyLong_FromLongLong(px_scheduler_epoch(((scheduler_object *)self)->scheduler));
}
static int set_epoch(PyObject *self, PyObject *value, void *closure) {
  int64_t epoch;
  if (need_scheduler(self) < 0 || !value || ext_to_int(value, &epoch) < 0) return -1;
  px_scheduler_restore(((scheduler_object *)self)->scheduler, epoch);
  return 0;
}
static PyObject *get_optimizer(PyObject *self, void *closure) {
  return Py_XNewRef(((scheduler_object *)self)->optimizer);
}

// ---- state

static int put(PyObject *dict, const char *name, PyObject *value_take) {
  EXT_OWNED *value = value_take;
  return value ? PyDict_SetItemString(dict, name, value) : -1;
}

static PyObject *state_dict(PyObject *object, PyObject *unused) {
  scheduler_object *self = (scheduler_object *)object;
  if (need_scheduler(object) < 0) return NULL;
  EXT_OWNED *dict = self->dict ? PyDict_Copy(self->dict) : PyDict_New();
  int count;
  double value;
  const px_option *options = options_of(self, &count);
  for (int i = 0; dict && i < count; i++)
    if (put(dict, options[i].name, option_object(&options[i], self)) < 0) return NULL;
  for (int i = 0; dict && i < EXT_LENGTH(remembered); i++)
    if (px_scheduler_get(&value, self->scheduler, remembered[i]) != PX_OK)
      px_error_clear();
    else if (put(dict, remembered[i], PyFloat_FromDouble(value)) < 0)
      return NULL;
  if (!dict || put(dict, "base_lrs", get_base_lrs(object, NULL)) < 0 ||
      put(dict, "last_epoch", get_epoch(object, NULL)) < 0 ||
      put(dict, "_last_lr", get_last_lr(object, NULL)) < 0)
    return NULL;
  return ext_moved(&dict);
}

static PyObject *load_state_dict(PyObject *object, PyObject *state) {
  scheduler_object *self = (scheduler_object *)object;
  PyObject *epoch = PyDict_Check(state) ? PyDict_GetItemString(state, "last_epoch") : NULL, *value;
  if (!epoch) EXT_FAIL(PyExc_KeyError, "'last_epoch'");
  if (need_scheduler(object) < 0 || set_epoch(object, epoch, NULL) < 0) return NULL;
  value = PyDict_GetItemString(state, "base_lrs");
  bool has_base = !isnan(px_scheduler_base_lr(self->scheduler, 0));
  if (value && has_base && set_base_lrs(object, value, NULL) < 0) return NULL;
  int count;
  double number;
  const px_option *options = options_of(self, &count);
  for (int i = 0; i < count; i++) {
    value = options[i].type == 'm' ? NULL : PyDict_GetItemString(state, options[i].name);
    if (value && PyObject_SetAttrString(object, options[i].name, value) < 0) return NULL;
  }
  for (int i = 0; i < EXT_LENGTH(remembered); i++) {
    value = PyDict_GetItemString(state, remembered[i]);
    if (value && ext_to_double(value, &number) < 0) return NULL;
    if (value) EXT_TRY(px_scheduler_set(self->scheduler, remembered[i], number));
  }
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {EXT_DEF("step", step),
                                {"get_last_lr", get_last_lr, METH_NOARGS, NULL},
                                {"get_lr", get_lr, METH_NOARGS, NULL},
                                {"state_dict", state_dict, METH_NOARGS, NULL},
                                {"load_state_dict", load_state_dict, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};
static PyMethodDef plateau_methods[] = {EXT_DEF("step", plateau_step), {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"last_epoch", get_epoch, set_epoch, NULL, NULL},
                               {"base_lrs", get_base_lrs, set_base_lrs, NULL, NULL},
                               {"optimizer", get_optimizer, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(scheduler_object, dict), READONLY, NULL},
    {"lr_lambdas", T_OBJECT, offsetof(scheduler_object, lambdas), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot base_slots[] = {{Py_tp_dealloc, scheduler_dealloc},
                                   {Py_tp_traverse, scheduler_traverse},
                                   {Py_tp_clear, scheduler_clear},
                                   {Py_tp_new, PyType_GenericNew},
                                   {Py_tp_init, base_init},
                                   {Py_tp_getattro, scheduler_getattro},
                                   {Py_tp_setattro, scheduler_setattro},
                                   {Py_tp_methods, methods},
                                   {Py_tp_members, members},
                                   {Py_tp_getset, getset},
                                   {0, NULL}};
static PyType_Slot kind_slots[] = {{Py_tp_init, kind_init}, {0, NULL}};
static PyType_Slot lambda_slots[] = {{Py_tp_init, lambda_init}, {0, NULL}};
static PyType_Slot plateau_slots[] = {
    {Py_tp_init, kind_init}, {Py_tp_methods, plateau_methods}, {0, NULL}};

static PyObject *add_type(PyObject *module, const char *name, PyType_Slot *slots, PyObject *base) {
  char *full = PyMem_Malloc(strlen(name) + 32);  // kept by the type
  if (!full) return PyErr_NoMemory();
  snprintf(full, strlen(name) + 32, "torch.optim.lr_scheduler.%s", name);
  PyType_Spec spec = {full, sizeof(scheduler_object), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | (base ? 0 : Py_TPFLAGS_HAVE_GC),
                      slots};  // the others inherit the collector's functions
  EXT_OWNED *bases = base ? PyTuple_Pack(1, base) : NULL;
  EXT_OWNED *type = PyType_FromSpecWithBases(&spec, bases);
  if (!type || PyObject_SetAttrString(module, name, type) < 0) return NULL;
  ext_short_name((PyTypeObject *)type);
  // cppcheck-suppress memleak ; the type keeps its name
  return ext_moved(&type);
}

static int add_types(PyObject *module) {
  EXT_OWNED *base = add_type(module, "LRScheduler", base_slots, NULL);
  EXT_OWNED *lambda = base ? add_type(module, "LambdaLR", lambda_slots, base) : NULL;
  EXT_OWNED *times = lambda ? add_type(module, "MultiplicativeLR", lambda_slots, base) : NULL;
  const px_scheduler_kind *kind;
  if (!times || PyObject_SetAttrString(module, "_LRScheduler", base) < 0) return -1;
  for (int i = 0; (kind = px_scheduler_kind_at(i)); i++) {
    PyType_Slot *slots = by_metric(kind) ? plateau_slots : kind_slots;
    EXT_OWNED *type = add_type(module, px_scheduler_kind_name(kind), slots, base);
    if (!type) return -1;
  }
  return 0;
}

// ---- clipping

EXT_FAST(clip_grad_norm) {
  EXT_ARGS("clip_grad_norm_", "parameters max_norm|norm_type error_if_nonfinite foreach", out);
  EXT_OWNED *list = ext_is_tensor(out[0]) ? Py_BuildValue("[O]", out[0]) : PySequence_List(out[0]);
  double most, type = 2;
  if (!list || ext_to_double(out[1], &most) < 0 || (out[2] && ext_to_double(out[2], &type) < 0))
    return NULL;
  int finite = ext_to_bool(out[3], false);
  if (finite < 0) return NULL;
  Py_ssize_t count = PyList_GET_SIZE(list);
  px_tensor **items = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *items), *total = NULL;
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

// ---- all parameters in one vector

EXT_FAST(parameters_to_vector) {
  EXT_ARGS("parameters_to_vector", "parameters", out);
  EXT_OWNED *list = PySequence_List(out[0]);
  EXT_OWNED *torch = list ? PyImport_ImportModule("phlox") : NULL;
  for (Py_ssize_t i = 0; torch && i < PyList_GET_SIZE(list); i++) {
    PyObject *item = PyList_GET_ITEM(list, i);
    if (!ext_need_tensor(item, "parameters_to_vector", "parameters")) return NULL;
    PyObject *flat = PyObject_CallMethod(item, "view", "i", -1);
    if (!flat || PyList_SetItem(list, i, flat) < 0) return NULL;
  }
  return torch ? PyObject_CallMethod(torch, "cat", "O", list) : NULL;
}

// Gives a parameter the next numbers of the vector; where they end, or -1.
static int64_t take_part(PyObject *vector, PyObject *item, int64_t from) {
  px_tensor *parameter = ext_need_tensor(item, "vector_to_parameters", "parameters");
  if (!parameter) return -1;
  int64_t count = px_tensor_numel(parameter);
  EXT_OWNED *part =
      PyObject_CallMethod(vector, "narrow", "iLL", 0, (long long)from, (long long)count);
  EXT_OWNED *shaped = part ? PyObject_CallMethod(part, "view_as", "O", item) : NULL;
  EXT_OWNED *data = shaped ? PyObject_GetAttrString(shaped, "data") : NULL;
  return data && PyObject_SetAttrString(item, "data", data) == 0 ? from + count : -1;
}

EXT_FAST(vector_to_parameters) {
  EXT_ARGS("vector_to_parameters", "vec parameters", out);
  if (!ext_is_tensor(out[0]))
    EXT_FAIL(PyExc_TypeError, "expected torch.Tensor, but got: %s", Py_TYPE(out[0])->tp_name);
  EXT_OWNED *list = PySequence_List(out[1]);
  int64_t at = 0;
  for (Py_ssize_t i = 0; list && at >= 0 && i < PyList_GET_SIZE(list); i++)
    at = take_part(out[0], PyList_GET_ITEM(list, i), at);
  if (!list || at < 0) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef clipping[] = {EXT_DEF("parameters_to_vector", parameters_to_vector),
                                 EXT_DEF("vector_to_parameters", vector_to_parameters),
                                 EXT_DEF("clip_grad_norm_", clip_grad_norm),
                                 {NULL, NULL, 0, NULL}};

int ext_init_schedules(PyObject *m, PyObject *optim) {
  PyObject *module = ext_submodule(optim, "lr_scheduler", NULL);
  if (!module || add_types(module) < 0) return -1;
  EXT_OWNED *nn = PyObject_GetAttrString(m, "nn");
  return module && nn && ext_submodule(nn, "utils", clipping) ? 0 : -1;
}
