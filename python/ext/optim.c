// SPDX-License-Identifier: Apache-2.0
// torch.optim: optimisers, made from the core's table of kinds. The dicts in param_groups are what
// a program reads and writes; their options are handed to the core before each step.
#include "optim.h"

#include <math.h>
#include <string.h>

#include "phlox/ops.h"

static void optimizer_dealloc(PyObject *object) {
  ext_optimizer_object *self = (ext_optimizer_object *)object;
  PyObject_GC_UnTrack(self);
  Py_CLEAR(self->groups);
  Py_CLEAR(self->defaults);
  Py_CLEAR(self->dict);
  px_release(self->optimizer);
  Py_TYPE(object)->tp_free(object);  // a heap type's own dealloc lets go of the type
}

static int optimizer_traverse(PyObject *object, visitproc visit, void *arg) {
  ext_optimizer_object *self = (ext_optimizer_object *)object;
  Py_VISIT(self->groups);
  Py_VISIT(self->defaults);
  Py_VISIT(self->dict);
  return 0;
}

static int optimizer_clear(PyObject *object) {
  ext_optimizer_object *self = (ext_optimizer_object *)object;
  Py_CLEAR(self->groups);
  Py_CLEAR(self->defaults);
  Py_CLEAR(self->dict);
  return 0;
}

// ---- options

// Options that PyTorch has beside the core's: how a step is done, which is ours to choose.
static const char *const manners[] = {"foreach", "fused", "capturable", "differentiable"};

// A default as Python prints it: 0 rather than 0.0.
static PyObject *default_of(const px_option *option) {
  if (option->type == 'b') return PyBool_FromLong(option->fallback != 0);
  if (isnan(option->fallback)) return Py_NewRef(Py_None);
  bool whole = option->fallback == floor(option->fallback);
  return whole ? PyLong_FromDouble(option->fallback) : PyFloat_FromDouble(option->fallback);
}

static int put(PyObject *dict, const char *name, PyObject *value) {
  int status = value ? PyDict_SetItemString(dict, name, value) : -1;
  Py_XDECREF(value);
  return status;
}

static PyObject *defaults_of(const px_optimizer_kind *kind) {
  int count;
  const px_option *options = px_optimizer_kind_options(kind, &count);
  PyObject *dict = PyDict_New();
  for (int i = 0; dict && i < count; i++) {
    int status;
    if (options[i].type == 'p') {
      status =
          put(dict, "betas", Py_BuildValue("(dd)", options[i].fallback, options[i + 1].fallback));
      i++;
    } else
      status = put(dict, options[i].name, default_of(&options[i]));
    if (status < 0) Py_CLEAR(dict);
  }
  for (int i = 0; dict && i < EXT_LENGTH(manners); i++) {
    // PyTorch's SGD has no capturable.
    if (!strcmp(manners[i], "capturable") && !strcmp(px_optimizer_kind_name(kind), "SGD")) continue;
    if (put(dict, manners[i], i < 2 ? Py_NewRef(Py_None) : Py_NewRef(Py_False)) < 0) Py_CLEAR(dict);
  }
  return dict;
}

static int check_manner(const char *name, PyObject *value) {
  if ((!strcmp(name, "capturable") || !strcmp(name, "differentiable")) &&
      PyObject_IsTrue(value) == 1)
    EXT_FAIL_INT(PyExc_NotImplementedError, "an optimizer with %s=True is not implemented in Phlox",
                 name);
  return 0;
}

static int number_of(PyObject *value, double *out) {
  px_scalar scalar;
  if (value == Py_None) return *out = 0, 0;
  if (ext_to_scalar(value, &scalar) < 0) return -1;
  *out = px_scalar_float(scalar);
  return 0;
}

// Hands one group's options to the core, which checks their ranges.
static int push_group(ext_optimizer_object *self, int g) {
  int count;
  const px_option *options =
      px_optimizer_kind_options(px_optimizer_kind_of(self->optimizer), &count);
  PyObject *group = PyList_GetItem(self->groups, g);
  for (int i = 0; group && i < count; i++) {
    bool pair = options[i].type == 'p' || options[i].type == 'q';
    PyObject *value = PyDict_GetItemString(group, pair ? "betas" : options[i].name);
    double number;
    if (!value) EXT_FAIL_INT(PyExc_KeyError, "'%s'", pair ? "betas" : options[i].name);
    EXT_OWNED *item = pair ? PySequence_GetItem(value, options[i].type == 'q') : Py_NewRef(value);
    if (!item || number_of(item, &number) < 0) return -1;
    EXT_TRY_INT(px_optimizer_set(self->optimizer, g, options[i].name, number));
  }
  PyObject *first = group ? PyDict_GetItemString(group, "initial_lr") : NULL;
  double number;
  if (!first) return group ? 0 : -1;
  if (number_of(first, &number) < 0) return -1;
  EXT_TRY_INT(px_optimizer_set_initial_lr(self->optimizer, g, number));
  return 0;
}

int ext_optimizer_push(PyObject *object) {
  ext_optimizer_object *self = (ext_optimizer_object *)object;
  for (int g = 0; g < px_optimizer_groups(self->optimizer); g++)
    if (push_group(self, g) < 0) return -1;
  return 0;
}

// Puts the core's numbers into a group's dict, where they are not what is there.
static int pull_group(ext_optimizer_object *self, int g) {
  int count;
  const px_option *options =
      px_optimizer_kind_options(px_optimizer_kind_of(self->optimizer), &count);
  PyObject *group = PyList_GetItem(self->groups, g);
  for (int i = 0; group && i < count; i++) {
    double now, next;
    if (options[i].type == 'q') continue;
    PyObject *value =
        PyDict_GetItemString(group, options[i].type == 'p' ? "betas" : options[i].name);
    EXT_TRY_INT(px_optimizer_get(&now, self->optimizer, g, options[i].name));
    if (options[i].type == 'p') {
      EXT_OWNED *first = value ? PySequence_GetItem(value, 0) : NULL;
      double was;
      EXT_TRY_INT(px_optimizer_get(&next, self->optimizer, g, options[i + 1].name));
      if (!first || number_of(first, &was) < 0) return -1;
      if (was != now && put(group, "betas", Py_BuildValue("(dd)", now, next)) < 0) return -1;
    } else {
      double was;
      if (!value || number_of(value, &was) < 0) return -1;
      bool rate = !strcmp(options[i].name, "lr");
      if ((was != now || rate) && put(group, options[i].name, PyFloat_FromDouble(now)) < 0)
        return -1;
    }
  }
  return group ? 0 : -1;
}

int ext_optimizer_pull(PyObject *object) {
  ext_optimizer_object *self = (ext_optimizer_object *)object;
  for (int g = 0; g < px_optimizer_groups(self->optimizer); g++)
    if (pull_group(self, g) < 0) return -1;
  return 0;
}

// ---- groups

static int core_group(ext_optimizer_object *self, PyObject *list) {
  Py_ssize_t count = PyList_GET_SIZE(list);
  px_tensor **tensors = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *tensors);
  if (!tensors) return PyErr_NoMemory(), -1;
  px_status status = PX_OK;
  bool good = true;
  for (Py_ssize_t i = 0; i < count && good; i++) {
    PyObject *tensor = PyList_GET_ITEM(list, i);
    good = ext_is_tensor(tensor);
    if (!good)
      PyErr_Format(PyExc_TypeError,
                   "optimizer can only optimize Tensors, but one of the params is %s",
                   ext_type_name(tensor));
    else
      tensors[i] = ext_tensor(tensor);
  }
  if (good) status = px_optimizer_add(self->optimizer, tensors, count);
  PyMem_Free(tensors);
  if (status != PX_OK) ext_raise();
  return good && status == PX_OK ? 0 : -1;
}

// named_parameters() may be given for parameters: the group then keeps their names beside them.
// Replaces the (name, parameter) pairs of the list; *names is NULL where there are none.
static int take_names(PyObject *list, PyObject **names) {
  Py_ssize_t count = PyList_GET_SIZE(list);
  PyObject *taken = PyList_New(0);
  for (Py_ssize_t i = 0; taken && i < count; i++) {
    PyObject *pair = PyList_GET_ITEM(list, i);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) continue;
    PyObject *parameter = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
    if (PyList_Append(taken, PyTuple_GET_ITEM(pair, 0)) < 0) Py_CLEAR(taken);
    PyList_SetItem(list, i, parameter);
  }
  if (!taken) return -1;
  Py_ssize_t named = PyList_GET_SIZE(taken);
  if (named)
    *names = taken;
  else
    Py_DECREF(taken);
  if (named && named < count)
    EXT_FAIL_INT(PyExc_ValueError,
                 "all optimizer params should be with/without names. Some param names are missing");
  return 0;
}

static int add_group(ext_optimizer_object *self, PyObject *group) {
  PyObject *params = PyDict_GetItemString(group, "params");
  if (!params) EXT_FAIL_INT(PyExc_KeyError, "'params'");
  EXT_OWNED *list = ext_is_tensor(params) ? Py_BuildValue("[O]", params) : PySequence_List(params);
  EXT_OWNED *full = PyDict_New();
  EXT_OWNED *names = NULL;
  if (!list || !full || take_names(list, &names) < 0) return -1;
  if (PyDict_SetItemString(full, "params", list) < 0) return -1;
  if (names && PyDict_SetItemString(full, "param_names", names) < 0) return -1;
  if (PyDict_Update(full, self->defaults) < 0 || PyDict_Update(full, group) < 0) return -1;
  if (PyDict_SetItemString(full, "params", list) < 0 || core_group(self, list) < 0) return -1;
  if (PyList_Append(self->groups, full) < 0) return -1;
  if (push_group(self, (int)PyList_GET_SIZE(self->groups) - 1) < 0) return -1;
  EXT_TRY_INT(px_optimizer_check(self->optimizer));
  return 0;
}

static int add_all(ext_optimizer_object *self, PyObject *params) {
  if (ext_is_tensor(params))
    EXT_FAIL_INT(
        PyExc_TypeError,
        "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
        "%s",
        px_tensor_is_cuda(ext_tensor(params)) ? "torch.cuda.FloatTensor" : "torch.FloatTensor");
  EXT_OWNED *list = PySequence_List(params);
  if (!list) return -1;
  if (!PyList_GET_SIZE(list))
    EXT_FAIL_INT(PyExc_ValueError, "optimizer got an empty parameter list");
  if (!PyDict_Check(PyList_GET_ITEM(list, 0))) {
    EXT_OWNED *group = PyDict_New();
    if (!group || PyDict_SetItemString(group, "params", list) < 0) return -1;
    return add_group(self, group);
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
    if (add_group(self, PyList_GET_ITEM(list, i)) < 0) return -1;
  return 0;
}

static int set_options(ext_optimizer_object *self, PyObject *args, PyObject *kwargs) {
  PyObject *name, *value;
  Py_ssize_t at = 0, k = 1;
  // By position: in the order of the defaults.
  while (k < PyTuple_GET_SIZE(args) && PyDict_Next(self->defaults, &at, &name, &value))
    if (PyDict_SetItem(self->defaults, name, PyTuple_GET_ITEM(args, k++)) < 0) return -1;
  for (at = 0; kwargs && PyDict_Next(kwargs, &at, &name, &value);) {
    if (!PyUnicode_CompareWithASCIIString(name, "params")) continue;
    int known = PyDict_Contains(self->defaults, name);
    if (known == 0)
      EXT_FAIL_INT(PyExc_TypeError, "%s.__init__() got an unexpected keyword argument '%U'",
                   ext_type_name((PyObject *)self), name);
    if (known < 0 || check_manner(PyUnicode_AsUTF8(name), value) < 0 ||
        PyDict_SetItem(self->defaults, name, value) < 0)
      return -1;
  }
  return 0;
}

// The kind's name is that of the nearest type above that is one.
static const px_optimizer_kind *kind_of(PyTypeObject *type) {
  for (PyTypeObject *at = type; at; at = at->tp_base) {
    const char *dot = strrchr(at->tp_name, '.');
    const px_optimizer_kind *kind = px_optimizer_kind_find(dot ? dot + 1 : at->tp_name);
    if (kind) return kind;
  }
  return NULL;
}

static int optimizer_init(PyObject *object, PyObject *args, PyObject *kwargs) {
  ext_optimizer_object *self = (ext_optimizer_object *)object;
  const px_optimizer_kind *kind = kind_of(Py_TYPE(object));
  PyObject *params = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0)
                     : kwargs               ? PyDict_GetItemString(kwargs, "params")
                                            : NULL;
  if (!kind)
    EXT_FAIL_INT(PyExc_NotImplementedError,
                 "an Optimizer written in Python is not implemented in Phlox: derive from SGD, "
                 "Adam or AdamW");
  if (!params)
    EXT_FAIL_INT(PyExc_TypeError, "%s.__init__() missing 1 required positional argument: 'params'",
                 ext_type_name(object));
  px_release(self->optimizer);
  self->optimizer = NULL;
  EXT_TRY_INT(px_optimizer_new(&self->optimizer, px_optimizer_kind_name(kind)));
  Py_XSETREF(self->groups, PyList_New(0));
  Py_XSETREF(self->defaults, defaults_of(kind));
  if (!self->groups || !self->defaults || set_options(self, args, kwargs) < 0) return -1;
  return add_all(self, params);
}

static PyObject *add_param_group(PyObject *self, PyObject *group) {
  if (!PyDict_Check(group))
    EXT_FAIL(PyExc_TypeError, "param_group must be a dict, but got %s", ext_type_name(group));
  if (add_group((ext_optimizer_object *)self, group) < 0) return NULL;
  Py_RETURN_NONE;
}

// ---- use

EXT_FAST(step) {
  EXT_ARGS("step", "|closure", out);
  EXT_OWNED *loss = Py_NewRef(Py_None);
  if (!ext_is_none(out[0])) {
    bool was = px_grad_enabled();
    px_grad_set_enabled(true);
    Py_SETREF(loss, PyObject_CallNoArgs(out[0]));
    px_grad_set_enabled(was);
  }
  if (!loss || ext_optimizer_push(self) < 0) return NULL;
  ((ext_optimizer_object *)self)->stepped = true;
  EXT_WAIT(px_optimizer_step(((ext_optimizer_object *)self)->optimizer));
  return ext_moved(&loss);
}

EXT_FAST(zero_grad) {
  EXT_ARGS("zero_grad", "|set_to_none", out);
  EXT_TRY(
      px_optimizer_zero_grad(((ext_optimizer_object *)self)->optimizer, ext_to_bool(out[0], true)));
  Py_RETURN_NONE;
}

static int put_count(PyObject *dict, px_optimizer *optimizer, int g, int64_t i) {
  px_tensor *count;
  EXT_TRY_INT(px_optimizer_count(&count, optimizer, g, i));
  return count ? put(dict, "step", ext_wrap(count)) : 0;
}

// What is remembered of one parameter: {"step": ..., "exp_avg": ...}; NULL without an exception
// where it is nothing. SGD's steps are no part of its state.
static PyObject *slot_state(px_optimizer *optimizer, int g, int64_t i) {
  const px_optimizer_kind *kind = px_optimizer_kind_of(optimizer);
  EXT_OWNED *dict = PyDict_New();
  const char *name;
  bool counted = strcmp(px_optimizer_kind_name(kind), "SGD") != 0;
  if (!dict || (counted && put_count(dict, optimizer, g, i) < 0)) return NULL;
  for (int k = 0; (name = px_optimizer_kind_state(kind, k)); k++) {
    px_tensor *value = px_optimizer_state(optimizer, g, i, name);
    if (value && put(dict, name, ext_wrap_borrowed(value)) < 0) return NULL;
  }
  return PyDict_GET_SIZE(dict) ? ext_moved(&dict) : NULL;
}

// State by parameter, or by number in the order of all parameters.
static PyObject *state_of(px_optimizer *optimizer, bool numbered) {
  PyObject *dict = PyDict_New();
  long number = 0;
  for (int g = 0; dict && g < px_optimizer_groups(optimizer); g++)
    for (int64_t i = 0; dict && i < px_optimizer_group_size(optimizer, g); i++, number++) {
      EXT_OWNED *state = slot_state(optimizer, g, i);
      EXT_OWNED *key = numbered ? PyLong_FromLong(number)
                                : ext_wrap_borrowed(px_optimizer_parameter(optimizer, g, i));
      if (PyErr_Occurred() || (state && PyDict_SetItem(dict, key, state) < 0)) Py_CLEAR(dict);
    }
  return dict;
}

static PyObject *get_state(PyObject *self, void *closure) {
  return state_of(((ext_optimizer_object *)self)->optimizer, false);
}
static PyObject *get_groups(PyObject *self, void *closure) {
  return Py_XNewRef(((ext_optimizer_object *)self)->groups);
}
static PyObject *get_defaults(PyObject *self, void *closure) {
  return Py_XNewRef(((ext_optimizer_object *)self)->defaults);
}

static PyObject *numbered_groups(const ext_optimizer_object *self) {
  PyObject *list = PyList_New(0);
  long number = 0;
  for (Py_ssize_t g = 0; list && g < PyList_GET_SIZE(self->groups); g++) {
    EXT_OWNED *group = PyDict_Copy(PyList_GET_ITEM(self->groups, g));
    EXT_OWNED *ids = PyList_New(0);
    Py_ssize_t count =
        PyList_GET_SIZE(PyDict_GetItemString(PyList_GET_ITEM(self->groups, g), "params"));
    for (Py_ssize_t i = 0; ids && i < count; i++) {
      EXT_OWNED *id = PyLong_FromLong(number++);
      if (!id || PyList_Append(ids, id) < 0) Py_CLEAR(ids);
    }
    if (!group || !ids || PyDict_SetItemString(group, "params", ids) < 0 ||
        PyList_Append(list, group) < 0)
      Py_CLEAR(list);
  }
  return list;
}

static PyObject *state_dict(PyObject *self, PyObject *unused) {
  EXT_OWNED *state = state_of(((ext_optimizer_object *)self)->optimizer, true);
  EXT_OWNED *groups = state ? numbered_groups((ext_optimizer_object *)self) : NULL;
  return groups ? Py_BuildValue("{sOsO}", "state", state, "param_groups", groups) : NULL;
}

static int load_slot(px_optimizer *optimizer, int g, int64_t i, PyObject *state) {
  const char *name;
  PyObject *steps = PyDict_GetItemString(state, "step");
  double count = 0;
  if (steps && number_of(steps, &count) < 0) return -1;
  EXT_TRY_INT(px_optimizer_set_steps(optimizer, g, i, (int64_t)count));
  px_tensor *parameter = px_optimizer_parameter(optimizer, g, i);
  for (int k = 0; (name = px_optimizer_kind_state(px_optimizer_kind_of(optimizer), k)); k++) {
    PyObject *value = PyDict_GetItemString(state, name);
    PX_SCOPED(px_tensor) copy = NULL;
    if (!value || !ext_is_tensor(value)) continue;
    EXT_TRY_INT(px_to(&copy, ext_tensor(value), px_tensor_dtype(parameter),
                      px_tensor_device(parameter), false, true));
    EXT_TRY_INT(px_optimizer_set_state(optimizer, g, i, name, copy));
  }
  return 0;
}

static int load_group(ext_optimizer_object *self, int g, PyObject *saved, PyObject *state) {
  PyObject *group = PyList_GET_ITEM(self->groups, g), *ids = PyDict_GetItemString(saved, "params");
  if (!ids || PyObject_Size(ids) != px_optimizer_group_size(self->optimizer, g))
    EXT_FAIL_INT(PyExc_ValueError,
                 "loaded state dict contains a parameter group that doesn't match the size of "
                 "optimizer's group");
  EXT_OWNED *params = Py_NewRef(PyDict_GetItemString(group, "params"));
  if (PyDict_Update(group, saved) < 0 || PyDict_SetItemString(group, "params", params) < 0)
    return -1;
  for (int64_t i = 0; i < px_optimizer_group_size(self->optimizer, g); i++) {
    EXT_OWNED *id = PySequence_GetItem(ids, (Py_ssize_t)i);
    PyObject *slot = id ? PyDict_GetItem(state, id) : NULL;
    if (slot && load_slot(self->optimizer, g, i, slot) < 0) return -1;
  }
  return 0;
}

static PyObject *load_state_dict(PyObject *object, PyObject *saved) {
  ext_optimizer_object *self = (ext_optimizer_object *)object;
  PyObject *state = PyDict_Check(saved) ? PyDict_GetItemString(saved, "state") : NULL;
  PyObject *groups = state ? PyDict_GetItemString(saved, "param_groups") : NULL;
  if (!groups) EXT_FAIL(PyExc_KeyError, "'param_groups'");
  if (PyObject_Size(groups) != PyList_GET_SIZE(self->groups))
    EXT_FAIL(PyExc_ValueError, "loaded state dict has a different number of parameter groups");
  for (int g = 0; g < (int)PyList_GET_SIZE(self->groups); g++) {
    EXT_OWNED *group = PySequence_GetItem(groups, g);
    if (!group || load_group(self, g, group, state) < 0) return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *group_lines(PyObject *group) {
  EXT_OWNED *names = PyDict_Keys(group);
  EXT_OWNED *text = PyUnicode_FromString("");
  if (!names || !text || PyList_Sort(names) < 0) return NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); i++) {
    PyObject *name = PyList_GET_ITEM(names, i);
    if (!PyUnicode_CompareWithASCIIString(name, "params")) continue;
    PyObject *more =
        PyUnicode_FromFormat("%U    %U: %S\n", text, name, PyDict_GetItem(group, name));
    if (!more) return NULL;
    Py_SETREF(text, more);
  }
  return ext_moved(&text);
}

static PyObject *optimizer_repr(PyObject *self) {
  PyObject *groups = ((ext_optimizer_object *)self)->groups;
  EXT_OWNED *text = PyUnicode_FromFormat("%s (", ext_type_name(self));
  for (Py_ssize_t g = 0; text && groups && g < PyList_GET_SIZE(groups); g++) {
    EXT_OWNED *lines = group_lines(PyList_GET_ITEM(groups, g));
    PyObject *more =
        lines ? PyUnicode_FromFormat("%U\nParameter Group %zd\n%U", text, g, lines) : NULL;
    if (!more) return NULL;
    Py_SETREF(text, more);
  }
  return text ? PyUnicode_FromFormat("%U)", text) : NULL;
}

static PyObject *optim_module;  // borrowed: torch.optim, with the library's types

// _rebuild_optimizer(name, groups), for pickles: "torch.optim" may be no module that can be
// imported, so types of the library go by name.
static PyObject *rebuild(PyObject *module, PyObject *args) {
  PyObject *name, *groups;
  if (!PyArg_ParseTuple(args, "UO", &name, &groups)) return NULL;
  EXT_OWNED *type = PyObject_GetAttr(optim_module, name);
  return type ? PyObject_CallOneArg(type, groups) : NULL;
}
static PyMethodDef functions[] = {{"_rebuild_optimizer", rebuild, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

// For copies and pickles: made anew from its groups, whose dicts hold all options, then given its
// state.
static PyObject *optimizer_reduce(PyObject *object, PyObject *unused) {
  ext_optimizer_object *self = (ext_optimizer_object *)object;
  if (!self->optimizer) EXT_FAIL(PyExc_RuntimeError, "this optimizer was not initialised");
  EXT_OWNED *groups = PyList_New(0);
  EXT_OWNED *state = state_dict(object, NULL);
  for (Py_ssize_t g = 0; groups && g < PyList_GET_SIZE(self->groups); g++) {
    EXT_OWNED *group = PyDict_Copy(PyList_GET_ITEM(self->groups, g));
    if (!group || PyList_Append(groups, group) < 0) return NULL;
  }
  if (!groups || !state) return NULL;
  PyObject *type = (PyObject *)Py_TYPE(object);
  EXT_OWNED *known = PyObject_GetAttrString(optim_module, ext_type_name(object));
  if (!known) PyErr_Clear();
  if (known != type) return Py_BuildValue("O(O)O", type, groups, state);
  EXT_OWNED *core = PyImport_ImportModule("phlox._C");
  EXT_OWNED *maker = core ? PyObject_GetAttrString(core, "_rebuild_optimizer") : NULL;
  return maker ? Py_BuildValue("O(sO)O", maker, ext_type_name(object), groups, state) : NULL;
}

static PyMethodDef methods[] = {EXT_DEF("step", step),
                                {"__reduce__", optimizer_reduce, METH_NOARGS, NULL},
                                {"__setstate__", load_state_dict, METH_O, NULL},
                                EXT_DEF("zero_grad", zero_grad),
                                {"add_param_group", add_param_group, METH_O, NULL},
                                {"state_dict", state_dict, METH_NOARGS, NULL},
                                {"load_state_dict", load_state_dict, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"param_groups", get_groups, NULL, NULL, NULL},
                               {"defaults", get_defaults, NULL, NULL, NULL},
                               {"state", get_state, NULL, NULL, NULL},
                               {NULL, NULL, NULL, NULL, NULL}};

PyTypeObject ext_OptimizerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.optim.Optimizer",
    .tp_basicsize = sizeof(ext_optimizer_object),
    .tp_doc = "Updates parameters from their gradients.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = optimizer_dealloc,
    .tp_traverse = optimizer_traverse,
    .tp_clear = optimizer_clear,
    .tp_new = PyType_GenericNew,
    .tp_init = optimizer_init,
    .tp_repr = optimizer_repr,
    .tp_methods = methods,
    .tp_getset = getset,
    .tp_dictoffset = offsetof(ext_optimizer_object, dict),
};

static int add_kind(PyObject *optim, const px_optimizer_kind *kind) {
  static PyType_Slot slots[] = {{0, NULL}};
  char *name = PyMem_Malloc(strlen(px_optimizer_kind_name(kind)) + 16);  // kept by the type
  if (!name) return PyErr_NoMemory(), -1;
  snprintf(name, strlen(px_optimizer_kind_name(kind)) + 16, "torch.optim.%s",
           px_optimizer_kind_name(kind));
  PyType_Spec spec = {name, sizeof(ext_optimizer_object), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  EXT_OWNED *bases = PyTuple_Pack(1, (PyObject *)&ext_OptimizerType);
  EXT_OWNED *type = bases ? PyType_FromSpecWithBases(&spec, bases) : NULL;
  if (type) ext_short_name((PyTypeObject *)type);
  // cppcheck-suppress memleak ; the type keeps its name
  return type ? PyObject_SetAttrString(optim, px_optimizer_kind_name(kind), type) : -1;
}

static int ext_init_optim(PyObject *m) {
  PyObject *optim = ext_submodule(m, "optim", NULL);
  if (!optim || ext_add_type(optim, "Optimizer", &ext_OptimizerType) < 0) return -1;
  optim_module = optim;
  if (PyModule_AddFunctions(m, functions) < 0) return -1;
  const px_optimizer_kind *kind;
  for (int i = 0; (kind = px_optimizer_kind_at(i)); i++)
    if (add_kind(optim, kind) < 0) return -1;
  return ext_init_schedules(m, optim);
}
EXT_START(EXT_UPPER, ext_init_optim);
