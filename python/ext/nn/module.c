// SPDX-License-Identifier: Apache-2.0
// torch.nn.Module: the type, its attributes, and the layer types, which are created from the table
// of kinds.
#include "nn/nn.h"

#include "phlox/shard.h"

// ---- called from C

// Kinds whose forward has non-tensor parameters receive optional inputs by name.
static px_status invoke_by_names(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                 int count) {
  const px_module_kind *kind = px_module_kind_of(self);
  px_named_value args[EXT_PORTS];
  int given = 0, wanted = px_module_port_tensors(kind->results, kind->result_count);
  for (int i = 0; i < count && i < EXT_PORTS; i++)
    if (inputs[i])
      args[given++] =
          (px_named_value){kind->inputs[i].optional ? kind->inputs[i].name : NULL, PX_T(inputs[i])};
  return ext_module_invoke(out, wanted, self, "forward", args, given);
}

// Modules with a Python object are called through it: Python hooks and methods take effect.
static px_status python_forward(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                int count) {
  const px_module_kind *kind = px_module_kind_of(self);
  if (kind->method_count) return invoke_by_names(out, self, inputs, count);
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  px_status status = PX_OK;
  PyObject *object = Py_XNewRef((PyObject *)px_module_user(self));  // may be replaced
  PyObject *args[EXT_PORTS], *result = NULL;
  int made = object ? ext_wrap_inputs(args, kind, inputs, count) : 0;
  if (!object) PyErr_SetString(PyExc_RuntimeError, "this module has lost its Python object");
  if (!PyErr_Occurred()) result = ext_module_run(object, args, made, NULL);
  if (!result || ext_unwrap_results(out, kind, result) < 0) status = ext_error_from_python();
  for (int i = 0; i < made; i++) Py_XDECREF(args[i]);
  Py_XDECREF(result);
  Py_XDECREF(object);
  ext_gil_give(&gil);
  return status;
}

// Formats a subclass's extra_repr.
static void python_repr(const px_module *self, char *text, size_t capacity) {
  ext_gil gil;
  *text = 0;
  if (ext_gil_take(&gil) != PX_OK) return;
  PyObject *object = Py_XNewRef((PyObject *)px_module_user(self));
  EXT_OWNED *text_object = object ? PyObject_CallMethod(object, "extra_repr", NULL) : NULL;
  const char *utf8 =
      text_object && PyUnicode_Check(text_object) ? PyUnicode_AsUTF8(text_object) : NULL;
  snprintf(text, capacity, "%s", utf8 ? utf8 : "");
  PyErr_Clear();
  Py_CLEAR(text_object);
  Py_XDECREF(object);
  ext_gil_give(&gil);
}

// ---- construction and destruction

static PyObject *module_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  ext_module_object *self = (ext_module_object *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->call = ext_module_call;
  self->class = ext_module_class_of(type);
  self->children = self->class ? PyDict_New() : NULL;
  if (!self->children) Py_CLEAR(self);
  return (PyObject *)self;
}

// Makes the object own a px_module, replacing its previous one.
static void adopt(PyObject *object, px_module *module_take) {
  ext_module_object *self = (ext_module_object *)object;
  px_module *old = self->module;
  self->module = module_take;
  px_module_set_user(module_take, self);
  px_module_set_forward(module_take, python_forward);
  px_module_set_invoke(module_take, ext_module_invoke);
  PyDict_Clear(self->children);
  if (old) px_module_set_user(old, NULL), px_release(old);
}

int ext_module_begin(PyObject *self) {
  static const px_module_kind bare = {.name = "Module"};
  PX_SCOPED(px_module) empty = NULL;
  EXT_TRY_INT(px_module_new(&empty, &bare, NULL, NULL));
  EXT_TRY_INT(px_module_adopt_kind(empty, &((ext_module_object *)self)->class->kind));
  adopt(self, PX_MOVE(empty));
  ((ext_module_object *)self)->may_lack_tensors = true;
  return 0;
}

// Binds arguments by the kind's table: positional in order, or by name.
static int bind(const px_module_kind *kind, PyObject *args, PyObject *kwargs, PyObject **out) {
  Py_ssize_t given = PyTuple_GET_SIZE(args), at = 0;
  if (given > kind->param_count)
    EXT_FAIL_INT(PyExc_TypeError, "%s.__init__() takes %d positional arguments but %zd were given",
                 kind->name, kind->param_count + 1, given + 1);
  for (Py_ssize_t i = 0; i < given; i++) out[i] = PyTuple_GET_ITEM(args, i);
  PyObject *name, *value;
  while (kwargs && PyDict_Next(kwargs, &at, &name, &value)) {
    int k = 0;
    while (k < kind->param_count && PyUnicode_CompareWithASCIIString(name, kind->params[k].name))
      k++;
    if (k == kind->param_count)
      EXT_FAIL_INT(PyExc_TypeError, "%s.__init__() got an unexpected keyword argument '%U'",
                   kind->name, name);
    if (out[k])
      EXT_FAIL_INT(PyExc_TypeError, "%s.__init__() got multiple values for argument '%U'",
                   kind->name, name);
    out[k] = value;
  }
  return 0;
}

// Sizes with None replaced by PX_OWN_SIZE.
static PyObject *replace_none_sizes(PyObject *given) {
  EXT_OWNED *list = PySequence_List(given);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    if (PyList_GET_ITEM(list, i) != Py_None) continue;
    PyObject *own = PyLong_FromLongLong(PX_OWN_SIZE);
    if (!own || PyList_SetItem(list, i, own) < 0) return NULL;
  }
  return Py_XNewRef(list);
}

// A constructor argument as a value. None means "none" if optional, and false for a bool.
static int argument_value(const px_module_kind *kind, int i, PyObject *given, px_value *out,
                          ext_ints *ints) {
  const px_param *param = &kind->params[i];
  bool word = given && PyUnicode_Check(given) && param->kind == PX_ARG_INTS && !param->accepts_word;
  if (given == Py_None && param->optional) return *out = PX_GIVEN_NONE(), 0;
  if (given == Py_None && param->kind == PX_ARG_BOOL) return *out = PX_B(false), 0;
  EXT_OWNED *sizes = NULL;
  if (param->accepts_own_size && given && (PyTuple_Check(given) || PyList_Check(given)) &&
      !(given = sizes = replace_none_sizes(given)))
    return -1;
  int fits = word || given == Py_None ? 0 : ext_to_value(given, param->kind, out, ints);
  if (fits < 0) return -1;
  if (!fits)
    EXT_FAIL_INT(PyExc_TypeError, "%s.__init__(): argument '%s' cannot be %s", kind->name,
                 param->name, ext_type_name(given));
  return 0;
}

// True if a type-checked argument has the right type. A bool counts as an int, except for optional
// dimensions.
static bool has_type(const px_param *param, PyObject *given) {
  if (!given || (given == Py_None && param->optional)) return true;
  if (param->kind == PX_ARG_BOOL) return PyBool_Check(given);
  if (param->kind == PX_ARG_FLOAT) return PyFloat_Check(given) || PyLong_Check(given);
  return PyLong_Check(given) && !(param->optional && PyBool_Check(given));
}
static int check_typed(const px_module_kind *kind, PyObject *const *given) {
  const char *const names[] = {
      [PX_ARG_BOOL] = "bool", [PX_ARG_INT] = "int", [PX_ARG_FLOAT] = "float"};
  for (const char *word = kind->typed; word && *word; word += strspn(word, " ")) {
    size_t n = strcspn(word, " ");
    int i = 0;
    while (strlen(kind->params[i].name) != n || strncmp(kind->params[i].name, word, n)) i++;
    const px_param *param = &kind->params[i];
    if (!has_type(param, given[i])) {
      char text[256];
      snprintf(text, sizeof text, kind->typed_text, param->name, names[param->kind],
               ext_type_name(given[i]));
      EXT_FAIL_INT(PyExc_TypeError, "%s", text);
    }
    word += n;
  }
  return 0;
}

// Calls an overridden reset_parameters after construction.
static int reset_overridden(PyObject *self) {
  static PyObject *name;
  if (!name && !(name = PyUnicode_InternFromString("reset_parameters"))) return -1;
  PyObject *found = _PyType_Lookup(Py_TYPE(self), name);
  if (!found || Py_IS_TYPE(found, &PyMethodDescr_Type)) return 0;
  EXT_OWNED *none = PyObject_CallMethodNoArgs(self, name);
  return none ? 0 : -1;
}

int ext_module_wrap_children(PyObject *self) {
  px_module_entry entry;
  for (int i = 0; px_module_entry_next(ext_module(self), PX_ENTRY_MODULE, &i, &entry);) {
    EXT_OWNED *child = ext_module_wrap(entry.module);
    if (!child ||
        PyDict_SetItemString(((ext_module_object *)self)->children, entry.name, child) < 0)
      return -1;
  }
  return 0;
}

// Index of a parameter that accepts a user-defined function or object, or -1. The core sees it as
// none in that case.
static int find_callable(const px_module_kind *kind, PyObject *const *given, px_value *values) {
  int at = 0;
  if (!kind->callable) return -1;
  while (strcmp(kind->params[at].name, kind->callable)) at++;
  if (given[at] && !PyUnicode_Check(given[at])) values[at] = PX_GIVEN_NONE();
  return at;
}
// Keeps the given function as an attribute; for a name, the function of that name.
static int set_callable(PyObject *self, const px_module_kind *kind, int at, PyObject *given) {
  px_value word = px_module_attribute(ext_module(self), kind->callable);
  EXT_OWNED *value = word.kind == PX_ARG_TEXT ? ext_import("phlox.nn.functional", word.v.text)
                                              : Py_NewRef(given ? given : Py_None);
  return value ? PyObject_SetAttrString(self, kind->callable, value) : -1;
}

static int init_layer(PyObject *self, const px_module_kind *kind, PyObject *args,
                      PyObject *kwargs) {
  enum { LIMIT = 16 };
  PyObject *given[LIMIT] = {NULL};
  px_value values[LIMIT];
  for (int i = 0; i < LIMIT; i++) values[i] = PX_NONE();
  if (bind(kind, args, kwargs, given) < 0 || check_typed(kind, given) < 0) return -1;
  int function = find_callable(kind, given, values);
  px_module *module = NULL;
  ext_ints *lists = PyMem_New(ext_ints, LIMIT);
  bool done = lists != NULL;
  for (int i = 0; done && i < kind->param_count; i++)
    done = (i == function && values[i].category == 'n') ||
           argument_value(kind, i, given[i], &values[i], &lists[i]) == 0;
  px_status status = done ? px_module_new(&module, kind, values, NULL) : PX_OK;
  PyMem_Free(lists);
  if (!lists) PyErr_NoMemory();
  if (!done) return -1;
  EXT_TRY_INT(status);
  adopt(self, module);
  if (ext_module_wrap_children(self) < 0) return -1;
  if (function >= 0 && set_callable(self, kind, function, given[function]) < 0) return -1;
  return reset_overridden(self);
}

// With call_super_init, also calls the next __init__ in the MRO after Module with the arguments.
static int init_next(PyObject *self, PyObject *args, PyObject *kwargs) {
  EXT_OWNED *next = PyObject_CallFunction((PyObject *)&PySuper_Type, "OO", &ext_ModuleType, self);
  EXT_OWNED *init = next ? PyObject_GetAttrString(next, "__init__") : NULL;
  EXT_OWNED *none = init ? PyObject_Call(init, args, kwargs) : NULL;
  return none ? 0 : -1;
}

// Module.__init__ for Python classes.
static int module_init(PyObject *self, PyObject *args, PyObject *kwargs) {
  EXT_OWNED *wanted = PyObject_GetAttrString(self, "call_super_init");
  int passes = wanted ? PyObject_IsTrue(wanted) : -1;
  PyObject *name, *value;
  Py_ssize_t at = 0, count = PyTuple_GET_SIZE(args);
  if (passes < 0) return -1;
  if (!passes && kwargs && PyDict_Next(kwargs, &at, &name, &value))
    EXT_FAIL_INT(PyExc_TypeError, "%s.__init__() got an unexpected keyword argument '%U'",
                 ext_type_name(self), name);
  if (!passes && count)
    EXT_FAIL_INT(PyExc_TypeError, "%s.__init__() takes 1 positional argument but %zd were given",
                 ext_type_name(self), count + 1);
  if (ext_module_begin(self) < 0) return -1;
  return passes ? init_next(self, args, kwargs) : 0;
}

static int init_children(PyObject *self, PyObject *args, PyObject *kwargs);

// Makes the tensors uninitialized with a function of phlox/nn/_lazy.py.
static int init_lazy(PyObject *self, const px_module_kind *kind, PyObject *args, PyObject *kwargs) {
  if (init_layer(self, kind, args, kwargs) < 0) return -1;
  EXT_OWNED *none = ext_call_from("phlox.nn._lazy", "begin", "(O)", self);
  return none ? 0 : -1;
}

EXT_FUNCTION(torch, _infer, "(module: Module, input: Any) -> bool",
             "Materializes the tensors of a lazy layer. Returns False for other modules.") {
  EXT_ARGS(PyObject *, module, input);
  px_module *lazy = ext_is_module(module) ? ext_module(module) : NULL;
  if (!lazy || !px_module_kind_of(lazy)->lazy) Py_RETURN_FALSE;
  px_tensor *tensor = ext_need_tensor(input, px_module_kind_of(lazy)->name, "input");
  if (!tensor) return NULL;
  EXT_TRY(px_module_infer(lazy, tensor));
  Py_RETURN_TRUE;
}

EXT_FUNCTION(torch, _become, "(module: Module, kind: type) -> None",
             "Changes the class of a module.") {
  EXT_ARGS(PyObject *, module, kind);
  if (PyObject_SetAttrString(module, "__class__", kind) < 0) return NULL;
  ext_module_class *class = ext_module_class_of(Py_TYPE(module));
  if (!class) return NULL;
  return ext_none(px_module_adopt_kind(ext_module(module), &class->kind));
}

// __init__ of library types.
static int layer_init(PyObject *self, PyObject *args, PyObject *kwargs) {
  const px_module_kind *kind = &((ext_module_object *)self)->class->kind;
  if (kind->lazy) return init_lazy(self, kind, args, kwargs);
  if (kind->param_count) return init_layer(self, kind, args, kwargs);
  px_module *module;
  EXT_TRY_INT(px_module_new(&module, kind, NULL, NULL));
  adopt(self, module);
  return init_children(self, args, kwargs);
}

static int module_traverse(PyObject *object, visitproc visit, void *arg) {
  ext_module_object *self = (ext_module_object *)object;
  Py_VISIT(self->dict);
  Py_VISIT(self->children);
  for (size_t i = 0; i < self->kept.capacity; i++) Py_VISIT(self->kept.slots[i].object);
  return 0;
}

static int module_clear(PyObject *object) {
  ext_module_object *self = (ext_module_object *)object;
  ext_kept_drop(&self->kept);
  Py_CLEAR(self->dict);
  Py_CLEAR(self->children);
  return 0;
}

static void module_dealloc(PyObject *object) {
  ext_module_object *self = (ext_module_object *)object;
  PyObject_GC_UnTrack(self);
  if (self->weak) PyObject_ClearWeakRefs(object);
  module_clear(object);
  if (self->module) {
    px_module_set_user(self->module, NULL);
    // C references keep working, unless forward is overridden in Python.
    if (!(self->class->patched & EXT_CUSTOM_FORWARD)) px_module_set_forward(self->module, NULL);
    if (Py_TYPE(object) == ext_module_type(px_module_kind_of(self->module)->name))
      px_module_set_invoke(self->module, NULL);
    px_release(self->module);
  }
  Py_TYPE(object)->tp_free(object);  // subtype_dealloc drops the reference to a heap type
}

int ext_module_ready(PyObject *self, const char *what) {
  if (ext_module(self)) return 0;
  EXT_FAIL_INT(PyExc_AttributeError, "cannot assign %s before Module.__init__() call", what);
}

static bool registrations_watched;
EXT_FUNCTION0(torch, _watch_registrations, "None", "Enables global registration hooks.") {
  registrations_watched = true;
  Py_RETURN_NONE;
}

PyObject *ext_module_registration_hook(PyObject *self, const char *sort, const char *name,
                                       PyObject *value) {
  if (!registrations_watched) return Py_NewRef(value);
  EXT_OWNED *what = Py_BuildValue("(ssO)", sort, name, value);
  return what ? ext_module_python("registered", self, what) : NULL;
}

int ext_module_put_tensor(PyObject *self, px_entry_sort sort, const char *name, PyObject *value,
                          bool persistent) {
  px_tensor *tensor = value == Py_None ? NULL : ext_tensor(value);
  EXT_OWNED *before = ext_module_entry_object(self, name);
  if (!before) return -1;
  if (sort == PX_ENTRY_PARAMETER)
    EXT_TRY_INT(px_module_register_parameter(ext_module(self), name, tensor));
  else
    EXT_TRY_INT(px_module_register_buffer(ext_module(self), name, tensor, persistent));
  return ext_module_keep(self, before, value);
}

int ext_module_put_child(PyObject *self, const char *name, PyObject *given) {
  if (ext_module_ready(self, "module") < 0) return -1;
  EXT_OWNED *child = ext_module_registration_hook(self, "module", name, given ? given : Py_None);
  if (!child) return -1;
  bool none = ext_is_none(child);
  if (!none && !ext_is_module(child))
    EXT_FAIL_INT(PyExc_TypeError, "%s is not a Module subclass", ext_type_name(child));
  if (!none && !ext_module(child))
    EXT_FAIL_INT(PyExc_AttributeError, "cannot assign a module whose __init__() has not run");
  EXT_TRY_INT(px_module_register_module(ext_module(self), name, none ? NULL : ext_module(child)));
  return PyDict_SetItemString(((ext_module_object *)self)->children, name, none ? Py_None : child);
}

PyObject *ext_module_pairs(PyObject *modules) {
  EXT_OWNED *dict = PyDict_New();
  bool mapping = PyObject_HasAttrString(modules, "keys");
  EXT_OWNED *iterator = mapping ? NULL : PyObject_GetIter(modules);
  if (!mapping && !iterator)
    EXT_FAIL(PyExc_TypeError,
             "ModuleDict.update should be called with an iterable of key/value pairs, but got %s",
             ext_type_name(modules));
  int status = !dict     ? -1
               : mapping ? PyDict_Update(dict, modules)
                         : PyDict_MergeFromSeq2(dict, iterator, 1);
  return status < 0 ? NULL : ext_moved(&dict);
}

// Children of Sequential(a, b), Sequential(OrderedDict), ModuleList([a, b]), ModuleDict({...}).
static int put_items(PyObject *self, PyObject *items) {
  EXT_OWNED *iterator = PyObject_GetIter(items);
  PyObject *item;
  Py_ssize_t number = 0;
  while (iterator && (item = PyIter_Next(iterator))) {
    char name[24];
    snprintf(name, sizeof name, "%zd", number++);
    PyObject *value = PyDict_Check(items) ? PyDict_GetItem(items, item) : item;
    const char *key = PyDict_Check(items) ? ext_text(item) : name;
    int status = key ? ext_module_put_child(self, key, value) : -1;
    Py_DECREF(item);
    if (status < 0) return -1;
  }
  return PyErr_Occurred() ? -1 : 0;
}

// Arguments of a constructor without parameters: children of a container, otherwise an error.
static int init_children(PyObject *self, PyObject *args, PyObject *kwargs) {
  const px_module_kind *above = ((ext_module_object *)self)->class->native;
  bool sequential = above && ext_is_sequential(above);
  bool container = sequential || (above && !above->forward);
  Py_ssize_t count = PyTuple_GET_SIZE(args), at = 0;
  PyObject *first = count ? PyTuple_GET_ITEM(args, 0) : NULL, *name, *value;
  while (kwargs && PyDict_Next(kwargs, &at, &name, &value)) {
    if (first || sequential || !container || PyUnicode_CompareWithASCIIString(name, "modules"))
      EXT_FAIL_INT(PyExc_TypeError, "%s.__init__() got an unexpected keyword argument '%U'",
                   ext_type_name(self), name);
    first = value, count = 1;
  }
  if (!container && count)
    EXT_FAIL_INT(PyExc_TypeError, "%s.__init__() takes 1 positional argument but %zd were given",
                 ext_type_name(self), count + 1);
  if (first == Py_None && !sequential) return 0;
  if (above && count == 1 && !strcmp(above->name, "ModuleDict") && !PyDict_Check(first)) {
    EXT_OWNED *pairs = ext_module_pairs(first);
    return pairs ? put_items(self, pairs) : -1;
  }
  return put_items(self, count == 1 && (!sequential || PyDict_Check(first)) ? first : args);
}

PyObject *ext_module_from_core(PyTypeObject *type, px_module *module) {
  PyObject *self = module_new(type, NULL, NULL);
  if (self)
    adopt(self, module);
  else
    px_release(module);
  return self;
}

PyObject *ext_module_wrap(px_module *module) {
  if (!module) Py_RETURN_NONE;
  PyObject *known = px_module_user(module);
  if (known) return Py_NewRef(known);
  PyObject *self =
      ext_module_from_core(ext_module_type(px_module_kind_of(module)->name), px_retain(module));
  if (self && ext_module_wrap_children(self) < 0) Py_CLEAR(self);
  return self;
}

// ---- attributes

// Attributes of PyTorch's convolutions in addition to their arguments: the padding in the order of
// F.pad, last dimension first, before and after.
static PyObject *paddings(const px_module *module) {
  px_value padding = px_module_attribute(module, "padding"),
           kernel = px_module_attribute(module, "kernel_size"),
           dilation = px_module_attribute(module, "dilation");
  bool worded = padding.kind == PX_ARG_TEXT, same = worded && !strcmp(padding.v.text, "same");
  EXT_OWNED *list = PyList_New(0);
  for (int d = kernel.n - 1; list && d >= 0; d--) {
    int64_t all = same     ? dilation.v.ints[d] * (kernel.v.ints[d] - 1)
                  : worded ? 0
                           : 2 * padding.v.ints[d];
    for (int side = 0; side < 2; side++) {
      EXT_OWNED *item = PyLong_FromLongLong(side ? all - all / 2 : all / 2);
      if (!item || PyList_Append(list, item) < 0) return NULL;
    }
  }
  return !list || worded ? ext_moved(&list) : PyList_AsTuple(list);
}

// NULL without an exception if the layer lacks the attribute.
static PyObject *convolution_attribute(const px_module *module, const char *name) {
  const char *kind = px_module_kind_of(module)->name;
  if (strncmp(kind, "Conv", 4)) return NULL;
  if (!strcmp(name, "transposed")) return PyBool_FromLong(!strncmp(kind, "ConvTranspose", 13));
  if (!strcmp(name, "_reversed_padding_repeated_twice")) return paddings(module);
  if (strcmp(name, "output_padding")) return NULL;
  return ext_tuple(px_module_attribute(module, "kernel_size").n, (int64_t[PX_MAX_DIMS]){0}, 1);
}

// An entry or attribute of the px_module; NULL without an exception if missing.
static PyObject *own_attribute(PyObject *self, const char *name) {
  px_module *module = ext_module(self);
  px_module_entry entry;
  if (!module) return NULL;
  if (px_module_entry_find(module, name, &entry)) {
    if (entry.sort != PX_ENTRY_MODULE) return ext_module_tensor(module, entry.tensor);
    return Py_XNewRef(PyDict_GetItemString(((ext_module_object *)self)->children, name));
  }
  const px_module_kind *kind = px_module_kind_of(module);
  for (int i = 0; i < ext_attribute_count(kind); i++)
    if (!kind->params[i].no_attribute && !strcmp(kind->params[i].name, name))
      return ext_from_value(px_module_attribute(module, name));
  for (int i = 0; kind->fixed && kind->fixed[i]; i++)
    if (!strcmp(kind->fixed[i], name)) return ext_from_value(px_module_attribute(module, name));
  return convolution_attribute(module, name);
}

static PyObject *module_getattr(PyObject *self, PyObject *name) {
  const char *text = ext_lookup_text(name);
  PyObject *found = text ? own_attribute(self, text) : NULL;
  if (!found && text && *text == '_' && ext_module(self) && !PyErr_Occurred())
    found = strcmp(text, "_is_full_backward_hook") ? ext_module_hook_dict(self, name)
                                                   : Py_NewRef(Py_None);
  if (found || PyErr_Occurred()) return found;
  bool scripted = text && (!strcmp(text, "save") || !strcmp(text, "save_to_buffer") ||
                           !strcmp(text, "graph_for") || !strcmp(text, "inlined_graph"));
  EXT_FAIL(PyExc_AttributeError, "'%s' object has no attribute '%U'%s%s%s", ext_type_name(self),
           name, scripted ? ": torch.jit.ScriptModule." : "", scripted ? text : "",
           scripted ? " is not implemented in Phlox" : "");
}

// object.__getattribute__ and Module.__getattr__ in one step.
static PyObject *module_getattro(PyObject *self, PyObject *name) {
  PyObject *found = _PyObject_GenericGetAttrWithDict(self, name, NULL, 1);
  return found || PyErr_Occurred() ? found : module_getattr(self, name);
}

EXT_METHOD(module, __getattr__, "(name: str) -> Any",
           "Returns the parameter, buffer or child of a name. Called if the object and its class "
           "lack the\nattribute.") {
  EXT_ARGS(PyObject *, name);
  if (!PyUnicode_Check(name)) EXT_FAIL(PyExc_TypeError, "attribute name must be string");
  return module_getattr(self, name);
}

void ext_type_text(PyObject *value, char *text, size_t capacity) {
  char name[48];
  snprintf(
      text, capacity, "%s",
      ext_is_tensor(value) ? px_tensor_type_name(ext_tensor(value), name) : ext_type_name(value));
}

// Removes entries and attributes of a name, to be reused by another sort of entry.
static int remove_name(PyObject *self, const char *name) {
  ext_module_object *object = (ext_module_object *)self;
  px_module_entry entry;
  if (object->dict && PyDict_GetItemString(object->dict, name))
    PyDict_DelItemString(object->dict, name);
  if (PyDict_GetItemString(object->children, name)) PyDict_DelItemString(object->children, name);
  if (!px_module_entry_find(object->module, name, &entry)) return 0;
  EXT_OWNED *before = ext_module_entry_object(self, name);
  if (!before) return -1;
  EXT_TRY_INT(px_module_remove(object->module, name));
  object->may_lack_tensors = true;
  return ext_module_keep(self, before, NULL);
}

// An entry of the same sort is kept, which preserves the order of entries.
static int prepare_name(PyObject *self, const char *name, px_entry_sort sort) {
  px_module_entry entry;
  if (ext_module_ready(self, sort == PX_ENTRY_MODULE ? "module" : "parameters") < 0) return -1;
  bool known = px_module_entry_find(ext_module(self), name, &entry) && entry.sort == sort;
  return known ? 0 : remove_name(self, name);
}
static int assign_parameter(PyObject *self, const char *name, PyObject *value) {
  if (prepare_name(self, name, PX_ENTRY_PARAMETER) < 0) return -1;
  if (value != Py_None &&
      (registrations_watched || ext_module_custom(self) & EXT_CUSTOM_REGISTER)) {
    EXT_OWNED *none = PyObject_CallMethod(self, "register_parameter", "sO", name, value);
    return none ? 0 : -1;
  }
  return ext_module_put_tensor(self, PX_ENTRY_PARAMETER, name, value, true);
}

// nn.Buffer marks tensors that become buffers on assignment.
static bool is_made_buffer(PyObject *value) {
  PyObject *dict = ext_is_tensor(value) ? ((ext_tensor_object *)value)->dict : NULL;
  return dict && PyDict_GetItemString(dict, "_is_buffer") == Py_True;
}

static int assign_made_buffer(PyObject *self, const char *name, PyObject *value) {
  if (prepare_name(self, name, PX_ENTRY_BUFFER) < 0) return -1;
  EXT_OWNED *persistent = PyObject_GetAttrString(value, "persistent");
  EXT_OWNED *none =
      persistent ? PyObject_CallMethod(self, "register_buffer", "sOO", name, value, persistent)
                 : NULL;
  return none ? 1 : -1;
}

static int assign_child(PyObject *self, const char *name, PyObject *value) {
  return prepare_name(self, name, PX_ENTRY_MODULE) < 0 ? -1
                                                       : ext_module_put_child(self, name, value);
}

// Assigns to an existing entry; 0: no such entry, 1: done, -1: exception.
static int assign_known(PyObject *self, const char *name, PyObject *value) {
  px_module_entry entry;
  char given[64];
  if (!ext_module(self) || !px_module_entry_find(ext_module(self), name, &entry)) return 0;
  ext_type_text(value, given, sizeof given);
  if (entry.sort == PX_ENTRY_PARAMETER) {
    if (value != Py_None)
      EXT_FAIL_INT(PyExc_TypeError,
                   "cannot assign '%s' as parameter '%s' (torch.nn.Parameter or None expected)",
                   given, name);
    return assign_parameter(self, name, value) < 0 ? -1 : 1;
  }
  if (entry.sort == PX_ENTRY_MODULE) {
    if (value != Py_None)
      EXT_FAIL_INT(PyExc_TypeError,
                   "cannot assign '%s' as child module '%s' (torch.nn.Module or None expected)",
                   given, name);
    return assign_child(self, name, value) < 0 ? -1 : 1;
  }
  if (value != Py_None && !ext_is_tensor(value))
    EXT_FAIL_INT(PyExc_TypeError,
                 "cannot assign '%s' as buffer '%s' (torch.nn.Buffer, torch.Tensor or None "
                 "expected)",
                 given, name);
  if (is_made_buffer(value)) return assign_made_buffer(self, name, value);
  EXT_OWNED *put = ext_module_registration_hook(self, "buffer", name, value);
  if (!put || (put != Py_None && !ext_need_tensor(put, name, "buffer"))) return -1;
  return ext_module_put_tensor(self, PX_ENTRY_BUFFER, name, put, entry.persistent) < 0 ? -1 : 1;
}

// Assigns to an attribute fixed by the layer's entry, as copying does.
static int assign_fixed(px_module *module, const char *name, PyObject *value) {
  const px_module_kind *kind = px_module_kind_of(module);
  px_value converted;
  int i = 0;
  while (kind->fixed && kind->fixed[i] && strcmp(kind->fixed[i], name)) i++;
  if (!kind->fixed || !kind->fixed[i]) return 0;
  uint8_t type = PyBool_Check(value) ? PX_ARG_BOOL : PyLong_Check(value) ? PX_ARG_INT : PX_ARG_TEXT;
  int fits = ext_to_value(value, type, &converted, NULL);
  if (fits <= 0) return fits;
  EXT_TRY_INT(px_module_set_attribute(module, name, converted));
  return 1;
}

// Assigns to an attribute of the layer, such as p of Dropout; 0 if it has none of that name.
static int assign_attribute(PyObject *self, const char *name, PyObject *value) {
  px_module *module = ext_module(self);
  const px_module_kind *kind = module ? px_module_kind_of(module) : NULL;
  for (int i = 0; kind && i < ext_attribute_count(kind); i++) {
    px_value converted;
    ext_ints ints;
    if (kind->params[i].no_attribute || strcmp(kind->params[i].name, name)) continue;
    int fits = ext_to_value(value, kind->params[i].kind, &converted, &ints);
    if (fits <= 0) return fits;
    EXT_TRY_INT(px_module_set_attribute(module, name, converted));
    return 1;
  }
  return module ? assign_fixed(module, name, value) : 0;
}

// Old documents assign nn.Parameter(t).cuda(0), which is not a parameter: warns once per class.
static int warn_moved_parameter(PyObject *self, const char *name, PyObject *value) {
  PX_SCOPED(px_node) node = NULL;
  if (!ext_is_tensor(value) || px_tensor_is_leaf(ext_tensor(value))) return 0;
  EXT_TRY_INT(px_tensor_get_grad_fn(&node, ext_tensor(value)));
  int nr;
  px_node *leaf = node && px_node_edge_count(node) == 1 ? px_node_edge(node, 0, &nr) : NULL;
  px_tensor *variable = leaf ? px_node_variable(leaf) : NULL;
  if (!variable || !px_tensor_is_parameter(variable) ||
      strcmp(px_node_name(node), "ToCopyBackward0"))
    return 0;
  static PyObject *warned;
  if (!warned && !(warned = PySet_New(NULL))) return -1;
  int seen = PySet_Contains(warned, (PyObject *)Py_TYPE(self));
  if (seen || PySet_Add(warned, (PyObject *)Py_TYPE(self)) < 0) return seen < 0 ? -1 : 0;
  return PyErr_WarnFormat(
      PyExc_UserWarning, 2,
      "'%s.%s' is assigned a moved copy of a Parameter, which is not registered as a parameter: "
      "write nn.Parameter(t.cuda(0)) instead of nn.Parameter(t).cuda(0)",
      ext_type_name(self), name);
}

// Sets a plain attribute; NULL deletes it. Invalidates the cached protocol if the dict's size
// changes.
static int set_plain(PyObject *self, PyObject *name, PyObject *value) {
  ext_module_object *object = (ext_module_object *)self;
  Py_ssize_t before = object->dict ? PyDict_GET_SIZE(object->dict) : 0;
  int failed = PyObject_GenericSetAttr(self, name, value);
  if (object->dict && PyDict_GET_SIZE(object->dict) != before) object->seen = -1;
  return failed;
}

static int module_delattr(PyObject *self, PyObject *name, const char *text) {
  px_module_entry entry;
  if (ext_module(self) && px_module_entry_find(ext_module(self), text, &entry))
    return remove_name(self, text);
  return set_plain(self, name, NULL);
}

static int module_setattr(PyObject *self, PyObject *name, PyObject *value) {
  const char *text = PyUnicode_Check(name) ? ext_text(name) : NULL;
  if (!text && PyErr_Occurred()) return -1;
  if (!text) EXT_FAIL_INT(PyExc_TypeError, "attribute name must be string");
  if (!value) return module_delattr(self, name, text);
  // Numbers and texts skip these tests: tensors and modules are of run-time types.
  bool heap = PyType_HasFeature(Py_TYPE(value), Py_TPFLAGS_HEAPTYPE);
  if (heap && ext_is_parameter(value)) return assign_parameter(self, text, value);
  if ((heap || Py_IS_TYPE(value, &ext_ModuleType)) && ext_is_module(value))
    return assign_child(self, text, value);
  int done = assign_known(self, text, value);
  if (!done && heap && is_made_buffer(value)) done = assign_made_buffer(self, text, value);
  if (!done) done = assign_attribute(self, text, value);
  if (done) return done < 0 ? -1 : 0;
  if (heap && warn_moved_parameter(self, text, value) < 0) return -1;
  return set_plain(self, name, value);
}

EXT_METHOD(module, __setattr__, "(name: str, value: Any) -> None",
           "Registers parameters and modules; sets other values as plain attributes.") {
  PyObject *name, *value;
  bool plain = !call->kwnames && EXT_UNPACK_ARGS(call->args, call->nargs, &name, &value);
  if (!plain) EXT_BIND(name, value);  // slower
  return ext_none_unless(module_setattr(self, name, value ? value : Py_None) < 0);
}
EXT_METHOD(module, __delattr__, "(name: str) -> None",
           "Deletes an attribute, parameter, buffer or child.") {
  EXT_ARGS(PyObject *, name);
  return ext_none_unless(module_setattr(self, name, NULL) < 0);
}

// Set with setattr to update CPython's slots. They are methods, not slots: CPython allows
// object.__setattr__(module, ...) only if no C type has its own slot.
static int set_accessors(PyObject *root) {
  static const char *const names[] = {"__getattr__", "__setattr__", "__delattr__"};
  for (int i = 0; i < EXT_LENGTH(names); i++) {
    PyObject *own = PyDict_GetItemString(ext_ModuleType.tp_dict, names[i]);
    EXT_OWNED *method = Py_XNewRef(own);
    if (!method || PyObject_SetAttrString((PyObject *)&ext_ModuleType, names[i], method) < 0)
      return -1;
  }
  PyObject *dict = ext_ModuleType.tp_dict;
  EXT_OWNED *version = PyLong_FromLong(1);
  if (!version || PyDict_SetItemString(dict, "call_super_init", Py_False) < 0 ||
      PyDict_SetItemString(dict, "_version", version) < 0)
    return -1;
  PyType_Modified(&ext_ModuleType);
  return ext_module_init_protocol(
      &(ext_module_base){&ext_ModuleType, module_getattro, python_repr});
}
EXT_START(EXT_LAYERS, set_accessors);

EXT_GETTER_AND_SETTER(
    module, training, "bool",
    "True in training mode, which affects layers such as Dropout and BatchNorm.") {
  return PyBool_FromLong(!ext_module(self) || px_module_training(ext_module(self)));
}
EXT_SETTER(module, training) {
  int on = value ? PyObject_IsTrue(value) : -1;
  if (on < 0 || ext_module_ready(self, "training") < 0) return -1;
  px_module_set_training(ext_module(self), on);
  return 0;
}

static PyObject *module_repr(PyObject *self) {
  if (!ext_module(self)) return PyUnicode_FromFormat("%s(<not initialised>)", ext_type_name(self));
  bool is_list = PyObject_TypeCheck(self, ext_module_type("ModuleList"));
  return ext_module_python("text_of", self, is_list ? Py_True : Py_False);
}

EXT_SHARED_TYPE(
    module, ext_ModuleType, "torch.nn.Module", "nn.Module", ext_module_object,
    EXT_BASETYPE | EXT_GC | EXT_VECTORCALL | EXT_QUALIFIED | EXT_MUTABLE,
    "Module()\n--\n\n"
    "Base class for all neural network modules: named parameters, buffers and children, and a "
    "forward\nfunction. Subclasses call super().__init__(), assign parameters and modules, and "
    "define forward.\nAssigned parameters and modules are found by parameters(), moved by to() and "
    "saved by state_dict().\n\n"
    ">>> class Twice(torch.nn.Module):\n"
    "...     def __init__(self):\n"
    "...         super().__init__()\n"
    "...         self.inner = torch.nn.Linear(2, 3)\n"
    "...     def forward(self, x):\n"
    "...         return 2 * self.inner(x)\n"
    ">>> Twice()(torch.ones(4, 2)).shape\n"
    "torch.Size([4, 3])\n"
    ">>> [name for name, _ in Twice().named_parameters()]\n"
    "['inner.weight', 'inner.bias']\n",
    .tp_vectorcall_offset = offsetof(ext_module_object, call), .tp_call = ext_module_tp_call,
    .tp_dealloc = module_dealloc, .tp_traverse = module_traverse, .tp_clear = module_clear,
    .tp_new = module_new, .tp_init = module_init, .tp_repr = module_repr,
    .tp_dictoffset = offsetof(ext_module_object, dict),
    .tp_weaklistoffset = offsetof(ext_module_object, weak));

// ---- layer types

static int to_module(PyObject *object, void *out) {
  if (!ext_is_module(object))
    EXT_FAIL_INT(PyExc_TypeError, "must be Module, not %s", ext_type_name(object));
  *(px_module **)out = ext_module(object);
  return ext_module_ready(object, "module");
}
EXT_CONVERTS(EXT_KIND_MODULE, to_module);

static PyObject *types;  // dict of kind name to type

PyTypeObject *ext_module_type(const char *kind) {
  PyObject *type = PyDict_GetItemString(types, kind);
  return type ? (PyTypeObject *)type : &ext_ModuleType;
}

// torch.nn.modules.lazy.LazyModuleMixin; its methods are in Python.
static PyObject *mixin_type(void) {
  static PyType_Slot slots[] = {
      {Py_tp_doc,
       "LazyModuleMixin(*args, **kwargs)\n--\n\n"
       "A mixin, placed before Module, for modules that infer parameter sizes from their first "
       "input: `initialize_parameters`\nreceives the input and materializes them. The module then "
       "becomes a `cls_to_become`."},
      {0, NULL}};
  static PyType_Spec spec = {"torch.nn.modules.lazy.LazyModuleMixin", 0, 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  static PyObject *type;
  if (!type && (type = PyType_FromSpec(&spec)))
    if (PyObject_SetAttrString(type, "cls_to_become", Py_None) < 0) Py_CLEAR(type);
  return type;
}

// Type of a layer's base or family, created on first use; Module if it has none.
static PyTypeObject *family_type(const px_module_kind *kind, const char *name) {
  const char *family = kind && kind->base ? kind->base : ext_module_family(name);
  if (!family) return &ext_ModuleType;
  bool made = PyDict_GetItemString(types, family);
  return made ? ext_module_type(family) : ext_module_make_type(family, NULL);
}

// The family; for lazy layers the mixin and the target class.
static PyObject *bases_of(const px_module_kind *kind, const char *name) {
  if (!kind || !kind->lazy) {
    PyTypeObject *above = family_type(kind, name);
    return above ? PyTuple_Pack(1, (PyObject *)above) : NULL;
  }
  PyObject *mixin = mixin_type();
  return mixin ? PyTuple_Pack(2, mixin, (PyObject *)ext_module_type(kind->lazy->becomes)) : NULL;
}

// A new type torch.nn.NAME with its own slots, and the docstring of its kind, if any.
static PyTypeObject *new_type(const char *name, const px_module_kind *kind,
                              const PyType_Slot *own) {
  enum { SLOTS = 16 };
  PyType_Slot slots[SLOTS] = {{0, NULL}};
  int n = 0;
  slots[n++] = (PyType_Slot){Py_tp_init, (void *)layer_init};  // default, overridden by `own`
  if (kind) slots[n++] = (PyType_Slot){Py_tp_doc, (void *)kind->doc};
  for (; own && own->slot && n < SLOTS - 1; own++) slots[n++] = *own;
  PyType_Spec spec = {name, sizeof(ext_module_object), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL, slots};
  EXT_OWNED *bases = bases_of(kind, name + strlen("torch.nn."));
  PyObject *type = bases ? PyType_FromSpecWithBases(&spec, bases) : NULL;
  if (type) ext_short_name((PyTypeObject *)type);
  if (type && kind && kind->lazy &&
      PyObject_SetAttrString(type, "cls_to_become",
                             (PyObject *)ext_module_type(kind->lazy->becomes)) < 0)
    Py_CLEAR(type);
  return (PyTypeObject *)type;
}

PyTypeObject *ext_module_make_type(const char *name, const PyType_Slot *slots) {
  bool is_family = *name == '_';  // has no kind; px_module_kind_find would suggest the nearest one
  const px_module_kind *kind = is_family ? NULL : px_module_kind_find(name);
  if (!types) types = PyDict_New();
  char *full = PyMem_Malloc(strlen(name) + 16);  // never freed: heap types of 3.11 point to it
  if (!types || !full) return (PyTypeObject *)PyErr_NoMemory();
  sprintf(full, "torch.nn.%s", name);
  EXT_OWNED *type = (PyObject *)new_type(full, kind, slots);
  if (!type || ext_module_register_type((PyTypeObject *)type, kind) < 0) return NULL;
  // cppcheck-suppress memleak ; the type keeps its name
  return PyDict_SetItemString(types, name, type) < 0 ? NULL : (PyTypeObject *)type;
}

// Creates the layer types and their names in torch.nn.
static int make_layers(PyObject *root) {
  const px_module_kind *kind;
  for (int lazy = 0; lazy < 2; lazy++)  // lazy layers after the layers they become
    for (int i = 0; (kind = px_module_kind_at(i)); i++)
      if (!kind->lazy == !lazy && (!types || !PyDict_GetItemString(types, kind->name)) &&
          !ext_module_make_type(kind->name, NULL))
        return -1;
  return 0;
}
EXT_START(EXT_TYPES, make_layers);

EXT_METHOD0(module, _reset_parameters, "None", "Reinitializes the layer's tensors.") {
  if (ext_module_ready(self, "parameters") < 0) return NULL;
  return ext_none(px_shards_reset(ext_module(self)));
}

// Adds the parts of forward that subclasses may override.
static int add_parts(PyTypeObject *type, const px_module_kind *kind) {
  for (int i = 1; i < kind->method_count; i++) {
    const px_module_method *m = &kind->methods[i];
    PyMethodDef *def = PyMem_Malloc(sizeof *def);  // lives as long as the type
    if (!def) return PyErr_NoMemory(), -1;
    *def = (PyMethodDef){m->name, (PyCFunction)(void (*)(void))ext_module_methods[i],
                         METH_FASTCALL | METH_KEYWORDS, m->name};
    def->ml_doc = ext_text_signature(m->name, m->signature, "Computes a part of forward.", "$self");
    EXT_OWNED *made = PyDescr_NewMethod(type, def);
    // cppcheck-suppress memleak ; the descriptor points to it
    if (!made || PyDict_SetItemString(type->tp_dict, m->name, made) < 0) return -1;
  }
  return 0;
}

#define RESET "_reset_parameters"
// Copies a method of Module to the type itself, before those of other bases, with the type's own
// signature if given.
static int copy_method(PyTypeObject *type, const char *name, const char *signature) {
  if (PyDict_GetItemString(type->tp_dict, name)) return 0;
  bool hidden = !strcmp(name, &RESET[1]);  // under another name in Module
  PyObject *base = PyDict_GetItemString(ext_ModuleType.tp_dict, hidden ? RESET : name);
  if (!base || !Py_IS_TYPE(base, &PyMethodDescr_Type)) return -1;
  PyMethodDef *method = PyMem_Malloc(sizeof *method);  // lives as long as the type
  if (!method) return PyErr_NoMemory(), -1;
  *method = *((PyMethodDescrObject *)base)->d_method;
  method->ml_name = name;
  const char *doc = strstr(method->ml_doc, "--\n\n");
  if (signature && doc) method->ml_doc = ext_text_signature(name, signature, doc + 4, "$self");
  EXT_OWNED *made = PyDescr_NewMethod(type, method);
  // cppcheck-suppress memleak ; the descriptor points to it
  return made ? PyDict_SetItemString(type->tp_dict, name, made) : -1;
}

static int copy_methods(PyTypeObject *type, const px_module_kind *kind) {
  char signature[512];
  size_t used = (size_t)snprintf(signature, sizeof signature, "(");
  for (int i = 0; i < kind->input_count; i++) {
    bool optional = kind->inputs && kind->inputs[i].optional;
    const char *what = kind->inputs && kind->inputs[i].tensors > 1 ? "tuple" : "Tensor";
    used += (size_t)snprintf(signature + used, sizeof signature - used, "%s%s: %s%s", i ? ", " : "",
                             ext_port_name(kind, i), what, optional ? " | None = None" : "");
  }
  snprintf(signature + used, sizeof signature - used, ") -> %s",
           kind->result_count > 1 ? "tuple" : "Tensor");
  const char *shown = kind->method_count ? kind->methods[0].signature : signature;
  if (kind->forward && copy_method(type, "forward", shown) < 0) return -1;
  if (add_parts(type, kind) < 0) return -1;
  if (copy_method(type, "extra_repr", NULL) < 0) return -1;
  if (kind->starts && !kind->method_count && copy_method(type, &RESET[1], "() -> None") < 0)
    return -1;
  PyType_Modified(type);
  return 0;
}

EXT_MODULE(nn, "nn", "Modules: parameters, layers and losses.");
static int name_layers(PyObject *root) {
  const px_module_kind *kind;
  for (int i = 0; (kind = px_module_kind_at(i)); i++) {
    PyTypeObject *type = ext_module_type(kind->name);
    if (copy_methods(type, kind) < 0 || !ext_module_class_of(type)) return -1;
  }
  PyObject *nn = ext_submodule(root, "nn");
  if (!nn || PyDict_Update(PyModule_GetDict(nn), types) < 0) return -1;
  if (PyObject_SetAttrString(nn, "LazyModuleMixin", mixin_type()) < 0) return -1;
  return PyObject_SetAttrString(nn, "Parameter", (PyObject *)ext_ParameterType);
}
EXT_START(EXT_LAYERS, name_layers);
