// SPDX-License-Identifier: Apache-2.0
// Methods of Module: entries, traversal, modes, moves, hooks.
#include "nn/nn.h"

static int ready(PyObject *self) {
  if (ext_module(self)) return 0;
  EXT_FAIL_INT(PyExc_AttributeError, "'%s' object has not run Module.__init__()",
               ext_type_name(self));
}
#define READY(self) \
  if (ready(self) < 0) return NULL

EXT_METHOD(
    module, forward, "(*inputs: Any) -> Any",
    "Defines the computation performed at every call. Call the module instead: it runs hooks.") {
  return ext_module_forward(self, call->args, call->nargs, call->kwnames);
}

// True if the name is used by anything other than an entry of this sort.
static bool is_used_otherwise(PyObject *self, PyObject *name, px_entry_sort sort) {
  px_module_entry entry;
  bool own =
      px_module_entry_find(ext_module(self), PyUnicode_AsUTF8(name), &entry) && entry.sort == sort;
  return !own && PyObject_HasAttr(self, name);
}

EXT_METHOD(module, register_parameter, "(name: str, param: Parameter | None) -> None",
           "Adds a parameter to the module. None reserves the name.") {
  PyObject *name, *param;
  char given[64];
  EXT_BIND(name, param);
  if (!PyUnicode_Check(name))
    EXT_FAIL(PyExc_TypeError, "parameter name should be a string. Got %s", ext_type_name(name));
  const char *text = ext_text(name);
  if (!text || ext_module_ready(self, "parameter") < 0) return NULL;
  if (is_used_otherwise(self, name, PX_ENTRY_PARAMETER))
    EXT_FAIL(PyExc_KeyError, "attribute '%s' already exists", text);
  if (param) ext_type_text(param, given, sizeof given);
  if (param && !ext_is_parameter(param))
    EXT_FAIL(PyExc_TypeError,
             "cannot assign '%s' object to parameter '%s' (torch.nn.Parameter or None required)",
             given, text);
  EXT_OWNED *put =
      param ? ext_module_registration_hook(self, "parameter", text, param) : Py_NewRef(Py_None);
  if (!put || (put != Py_None && !ext_need_tensor(put, "register_parameter", "param"))) return NULL;
  int failed = ext_module_put_tensor(self, PX_ENTRY_PARAMETER, text, put, true);
  return failed ? NULL : Py_NewRef(Py_None);
}

EXT_METHOD(module, register_buffer,
           "(name: str, tensor: Tensor | None, persistent: bool = True) -> None",
           "Adds a buffer to the module. A non-persistent buffer is not part of state_dict.") {
  PyObject *name, *tensor;
  bool persistent;
  EXT_BIND(name, tensor, persistent);
  if (!PyUnicode_Check(name))
    EXT_FAIL(PyExc_TypeError, "buffer name should be a string. Got %s", ext_type_name(name));
  const char *text = ext_text(name);
  if (!text || ext_module_ready(self, "buffer") < 0) return NULL;
  if (tensor && !ext_is_tensor(tensor))
    EXT_FAIL(PyExc_TypeError,
             "cannot assign '%s' object to buffer '%s' (torch Tensor or None required)",
             ext_type_name(tensor), text);
  if (is_used_otherwise(self, name, PX_ENTRY_BUFFER))
    EXT_FAIL(PyExc_KeyError, "attribute '%s' already exists", text);
  EXT_OWNED *put = ext_module_registration_hook(self, "buffer", text, tensor ? tensor : Py_None);
  if (!put || (put != Py_None && !ext_need_tensor(put, "register_buffer", "tensor"))) return NULL;
  int failed = ext_module_put_tensor(self, PX_ENTRY_BUFFER, text, put, persistent);
  return failed ? NULL : Py_NewRef(Py_None);
}

EXT_METHOD(module, add_module, "(name: str, module: Module | None) -> None",
           "Adds a child module to the current module.") {
  const char *name;
  PyObject *module, *children = ((ext_module_object *)self)->children;
  EXT_BIND(name, module);
  EXT_OWNED *key = PyUnicode_FromString(name);
  if (!key || ext_module_ready(self, "module") < 0) return NULL;
  int replaces = PyDict_Contains(children, key);
  if (replaces < 0) return NULL;
  if (!replaces && PyObject_HasAttr(self, key))
    EXT_FAIL(PyExc_KeyError, "attribute '%s' already exists", name);
  return ext_none_unless(ext_module_put_child(self, name, module) < 0);
}
EXT_ALIASES(module, module_add_module, register_module);

// ---- traversal: lists of tensors or modules, with or without names

typedef struct entry_list {
  PyObject *list;
  bool named;
} entry_list;

static px_status append_entry(const char *name, const px_module_entry *entry, px_module *owner,
                              void *context) {
  entry_list *to = context;
  PyObject *value = entry->sort == PX_ENTRY_MODULE ? ext_module_wrap(entry->module)
                                                   : ext_module_tensor(owner, entry->tensor);
  PyObject *item = to->named && value ? Py_BuildValue("(sN)", name, value) : value;
  int status = item ? PyList_Append(to->list, item) : -1;
  Py_XDECREF(item);
  return status < 0 ? ext_error_from_python() : PX_OK;
}

// parameters() for a class overriding named_parameters: the second items of its pairs.
static PyObject *second_items(PyObject *pairs_take) {
  EXT_OWNED *pairs = pairs_take;
  return pairs ? ext_module_python("seconds", pairs, NULL) : NULL;
}

// Named entries of a class that overrides the traversal of modules.
static PyObject *named_members(PyObject *self, int sort, const char *prefix, bool recurse,
                               bool duplicates) {
  EXT_OWNED *how =
      Py_BuildValue("(isNN)", sort, prefix, PyBool_FromLong(recurse), PyBool_FromLong(!duplicates));
  return how ? ext_module_python("named_members", self, how) : NULL;
}

static PyObject *walk(PyObject *self, int sorts, const char *prefix, bool recurse, bool named,
                      bool duplicates) {
  READY(self);
  entry_list to = {PyList_New(0), named};
  EXT_OWNED *list = to.list;
  if (!list || !prefix) return NULL;
  EXT_TRY(px_module_walk(ext_module(self), sorts, prefix, recurse, duplicates, append_entry, &to));
  return PyObject_GetIter(list);
}

// parameters and buffers, with and without names, differ only in the sort of entries.
#define WALK(name, what, sort, custom) \
  EXT_METHOD(module, name, "(recurse: bool = True) -> Iterator[" what "]", \
             "Returns an iterator over the module's " #name \
             "; with recurse, also those of its descendants.") { \
    bool recurse; \
    EXT_BIND(recurse); \
    if (ext_module_custom(self) & (custom | EXT_CUSTOM_NAMED_MODULES)) \
      return second_items( \
          PyObject_CallMethod(self, "named_" #name, "sN", "", PyBool_FromLong(recurse))); \
    return walk(self, sort, "", recurse, false, false); \
  } \
  EXT_METHOD(module, named_##name, \
             "(prefix: str = '', recurse: bool = True, remove_duplicate: bool = True) -> " \
             "Iterator[tuple[str, " what "]]", \
             "Names and " #name "; each once, unless remove_duplicate is False.") { \
    const char *prefix; \
    bool recurse, remove_duplicate; \
    EXT_BIND(prefix, recurse, remove_duplicate); \
    if (ext_module_custom(self) & EXT_CUSTOM_NAMED_MODULES) \
      return named_members(self, sort, prefix, recurse, !remove_duplicate); \
    return walk(self, sort, prefix, recurse, true, !remove_duplicate); \
  }
WALK(parameters, "Parameter", PX_ENTRY_PARAMETER, EXT_CUSTOM_NAMED_PARAMETERS)
WALK(buffers, "Tensor", PX_ENTRY_BUFFER, EXT_CUSTOM_NAMED_BUFFERS)

EXT_METHOD(module, modules, "(remove_duplicate: bool = True) -> Iterator[Module]",
           "Returns an iterator over the module and its descendants.") {
  bool remove_duplicate;
  EXT_BIND(remove_duplicate);
  if (!(ext_module_custom(self) & EXT_CUSTOM_NAMED_MODULES))
    return walk(self, PX_ENTRY_MODULE, "", true, false, !remove_duplicate);
  PyObject *once = PyBool_FromLong(remove_duplicate);
  return second_items(PyObject_CallMethod(self, "named_modules", "OsN", Py_None, "", once));
}
EXT_METHOD(module, named_modules,
           "(memo: set | None = None, prefix: str = '', remove_duplicate: bool = True) -> "
           "Iterator[tuple[str, Module]]",
           "Returns an iterator over the names and modules of this module and its descendants.") {
  PyObject *memo;
  const char *prefix;
  bool remove_duplicate;
  EXT_BIND(memo, prefix, remove_duplicate);
  return walk(self, PX_ENTRY_MODULE, prefix, true, true, !remove_duplicate);
}

// Unique children other than None.
static PyObject *child_list(PyObject *self, bool named) {
  EXT_OWNED *list = PyList_New(0);
  EXT_OWNED *seen = PySet_New(NULL);
  PyObject *name, *child;
  Py_ssize_t at = 0;
  while (list && seen && PyDict_Next(((ext_module_object *)self)->children, &at, &name, &child)) {
    int known = child == Py_None ? 1 : PySet_Contains(seen, child);
    if (known > 0) continue;
    EXT_OWNED *item = named ? PyTuple_Pack(2, name, child) : Py_NewRef(child);
    if (known < 0 || !item || PySet_Add(seen, child) < 0 || PyList_Append(list, item) < 0)
      return NULL;
  }
  return seen ? ext_moved(&list) : NULL;
}
static PyObject *iterator_of(PyObject *list_take) {
  EXT_OWNED *list = list_take;
  return list ? PyObject_GetIter(list) : NULL;
}

EXT_METHOD0(module, children, "Iterator[Module]",
            "Returns an iterator over immediate children modules.") {
  if (ext_module_custom(self) & EXT_CUSTOM_NAMED_CHILDREN)
    return second_items(PyObject_CallMethod(self, "named_children", NULL));
  return iterator_of(child_list(self, false));
}
EXT_RETURNS(module, named_children, "Iterator[tuple[str, Module]]",
            iterator_of(child_list(self, true)),
            "Returns an iterator over names and immediate children modules.");

// An attribute of a module, or PyTorch's error message.
static PyObject *attribute(PyObject *module, PyObject *name) {
  PyObject *found = PyObject_GetAttr(module, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  EXT_OWNED *kind = PyObject_CallMethod(module, "_get_name", NULL);
  if (!kind) return NULL;
  EXT_FAIL(PyExc_AttributeError, "%S has no attribute `%U`", kind, name);
}
static PyObject *child_module(PyObject *module, PyObject *name) {
  EXT_OWNED *found = attribute(module, name);
  if (!found || ext_is_module(found)) return ext_moved(&found);
  EXT_FAIL(PyExc_AttributeError, "`%U` is not an nn.Module", name);
}

EXT_METHOD(module, get_submodule, "(target: str) -> Module",
           "Returns the submodule given by target; the module itself for ''.") {
  EXT_ARGS(PyObject *, target);
  EXT_OWNED *parts = PyObject_CallMethod(target, "split", "s", ".");
  if (!parts) return NULL;
  PyObject *at = Py_NewRef(self);
  if (PyUnicode_GET_LENGTH(target) == 0) return at;
  for (Py_ssize_t i = 0; at && i < PyList_GET_SIZE(parts); i++) {
    PyObject *next = child_module(at, PyList_GET_ITEM(parts, i));
    Py_SETREF(at, next);
  }
  return at;
}

// Owner module of a dotted name, and the last part of the name.
static PyObject *parent_of(PyObject *self, PyObject *target, PyObject **name) {
  EXT_OWNED *parts = PyObject_CallMethod(target, "rpartition", "s", ".");
  if (!parts) return NULL;
  *name = Py_NewRef(PyTuple_GET_ITEM(parts, 2));
  return PyObject_CallMethod(self, "get_submodule", "O", PyTuple_GET_ITEM(parts, 0));
}

EXT_METHOD(module, get_parameter, "(target: str) -> Parameter",
           "Returns the parameter given by target.") {
  EXT_ARGS(PyObject *, target);
  EXT_OWNED *name = NULL;
  EXT_OWNED *parent = parent_of(self, target, &name);
  EXT_OWNED *value = parent ? attribute(parent, name) : NULL;
  if (!value) return NULL;
  int is = PyObject_IsInstance(value, (PyObject *)ext_ParameterType);
  if (is < 0) return NULL;
  if (!is) EXT_FAIL(PyExc_AttributeError, "`%U` is not an nn.Parameter", name);
  return ext_moved(&value);
}

EXT_METHOD(module, get_buffer, "(target: str) -> Tensor", "Returns the buffer given by target.") {
  EXT_ARGS(PyObject *, target);
  EXT_OWNED *name = NULL;
  EXT_OWNED *parent = parent_of(self, target, &name);
  EXT_OWNED *value = parent ? attribute(parent, name) : NULL;
  EXT_OWNED *buffers = value ? PyObject_GetAttrString(parent, "_buffers") : NULL;
  int is = buffers ? PySequence_Contains(buffers, name) : -1;
  if (is < 0) return NULL;
  if (!is || !ext_is_tensor(value)) EXT_FAIL(PyExc_AttributeError, "`%U` is not a buffer", name);
  return ext_moved(&value);
}

EXT_METHOD(module, set_submodule, "(target: str, module: Module, strict: bool = False) -> None",
           "Sets the submodule given by target; if strict, it must exist already.") {
  PyObject *target, *module;
  bool strict;
  EXT_BIND(target, module, strict);
  EXT_OWNED *name = NULL;
  int given = PyObject_IsTrue(target);
  if (given < 0) return NULL;
  if (!given) EXT_FAIL(PyExc_ValueError, "Cannot set the submodule without a target name!");
  EXT_OWNED *parent = parent_of(self, target, &name);
  if (!parent) return NULL;
  EXT_OWNED *before = attribute(parent, name);
  if (!before && (strict || !PyErr_ExceptionMatches(PyExc_AttributeError))) return NULL;
  PyErr_Clear();
  if (before && !ext_is_module(before))
    EXT_FAIL(PyExc_AttributeError, "`%U` is not an nn.Module", name);
  return ext_none_unless(PyObject_SetAttr(parent, name, module) < 0);
}

// A traversal without recursion: modules with their children and the number of children visited.
typedef struct level {
  PyObject *module, *children;
  Py_ssize_t next;
} level;
typedef struct levels {
  level *at;
  Py_ssize_t count, capacity;
} levels;
static void levels_end(levels *all) {
  for (Py_ssize_t i = 0; i < all->count; i++) {
    Py_DECREF(all->at[i].module);
    Py_DECREF(all->at[i].children);
  }
  PyMem_Free(all->at);
}
#define LEVELS __attribute__((cleanup(levels_end))) levels
// Adds a module with its list of children, which is NULL after an exception.
static int push(levels *all, PyObject *module, PyObject *children_take) {
  if (!children_take) return -1;
  if (all->count == all->capacity) {
    Py_ssize_t capacity = all->capacity ? 2 * all->capacity : 8;
    level *larger = PyMem_Realloc(all->at, (size_t)capacity * sizeof *larger);
    if (!larger) return Py_DECREF(children_take), PyErr_NoMemory(), -1;
    all->at = larger, all->capacity = capacity;
  }
  for (Py_ssize_t i = 0; i < all->count && all->count % 1024 == 0; i++)
    if (all->at[i].module == module) {
      Py_DECREF(children_take);
      EXT_FAIL_INT(PyExc_RecursionError, "%s contains itself", ext_type_name(module));
    }
  all->at[all->count++] = (level){Py_NewRef(module), children_take, 0};
  return 0;
}
// The next child, borrowed; NULL if there is none.
static PyObject *next_child(level *of) {
  return of->next < PyList_GET_SIZE(of->children) ? PyList_GET_ITEM(of->children, of->next++)
                                                  : NULL;
}
static void pop(levels *all) {
  level last = all->at[--all->count];
  Py_DECREF(last.module);
  Py_DECREF(last.children);
}

// Overridden children() are called.
static PyObject *children_of(PyObject *self) {
  bool asked = ext_module_custom(self) & (EXT_CUSTOM_VISIT | EXT_CUSTOM_NAMED_CHILDREN);
  EXT_OWNED *children = asked ? PyObject_CallMethod(self, "children", NULL) : NULL;
  return children ? PySequence_List(children) : asked ? NULL : child_list(self, false);
}
// Overridden apply() methods of children are called.
static int apply(PyObject *self, PyObject *fn) {
  LEVELS all = {NULL};
  int status = push(&all, self, children_of(self));
  while (status == 0 && all.count) {
    PyObject *child = next_child(&all.at[all.count - 1]);
    if (!child) {
      EXT_OWNED *result = PyObject_CallOneArg(fn, all.at[all.count - 1].module);
      status = result ? 0 : -1;
      pop(&all);
    } else if (ext_is_module(child) && !(ext_module_custom(child) & EXT_CUSTOM_VISIT)) {
      status = push(&all, child, children_of(child));
    } else {
      EXT_OWNED *done = PyObject_CallMethod(child, "apply", "O", fn);
      status = done ? 0 : -1;
    }
  }
  return status;
}
EXT_METHOD(module, apply, "(fn: Callable[[Module], None]) -> Self",
           "Applies fn recursively to every submodule as well as self.") {
  EXT_ARGS(PyObject *, fn);
  return apply(self, fn) < 0 ? NULL : Py_NewRef(self);
}

// ---- modes

// Overridden train() methods of children are called.
static int set_mode(PyObject *self, PyObject *mode) {
  LEVELS all = {NULL};
  int status = push(&all, self, PyDict_Values(((ext_module_object *)self)->children));
  px_module_set_training(ext_module(self), mode == Py_True);
  while (status == 0 && all.count) {
    PyObject *child = next_child(&all.at[all.count - 1]);
    if (!child) {
      pop(&all);
    } else if (child != Py_None && ext_module_custom(child) & EXT_CUSTOM_TRAIN) {
      EXT_OWNED *done = PyObject_CallMethod(child, "train", "O", mode);
      status = done ? 0 : -1;
    } else if (child != Py_None) {
      px_module_set_training(ext_module(child), mode == Py_True);
      status = push(&all, child, PyDict_Values(((ext_module_object *)child)->children));
    }
  }
  return status;
}

EXT_METHOD(module, train, "(mode: bool = True) -> Self",
           "Sets the module and its descendants in training mode.") {
  EXT_ARGS(PyObject *, mode);
  if (mode && !PyBool_Check(mode))
    EXT_FAIL(PyExc_ValueError, "training mode is expected to be boolean");
  READY(self);
  return set_mode(self, mode ? mode : Py_True) < 0 ? NULL : Py_NewRef(self);
}

EXT_RETURNS(module, eval, "Self", PyObject_CallMethod(self, "train", "O", Py_False),
            "Sets the module and its descendants in evaluation mode.");

// Bits of classes overriding the traversal of parameters.
enum {
  CUSTOM_PARAMETERS = EXT_CUSTOM_PARAMETERS | EXT_CUSTOM_NAMED_PARAMETERS | EXT_CUSTOM_NAMED_MODULES
};

EXT_METHOD(module, requires_grad_, "(requires_grad: bool = True) -> Self",
           "Changes if autograd should record operations on parameters.") {
  EXT_ARGS(bool, requires_grad);
  READY(self);
  if (ext_module_custom(self) & CUSTOM_PARAMETERS)
    return ext_module_python("require_grad", self, requires_grad ? Py_True : Py_False);
  EXT_TRY(px_module_requires_grad(ext_module(self), requires_grad));
  return Py_NewRef(self);
}

static px_status zero_gradient(const char *name, const px_module_entry *entry, px_module *owner,
                               void *context) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px_tensor_get_grad(&grad, entry->tensor));
  if (!grad) return PX_OK;
  // A gradient without history may be a view, as in DistributedDataParallel.
  if (px_tensor_requires_grad(grad)) PX_TRY(px_tensor_detach_inplace(grad));
  EXT_OWNED *object = ext_wrap_borrowed(grad);
  EXT_OWNED *done = object ? PyObject_CallMethod(object, "zero_", NULL) : NULL;
  return done ? PX_OK : ext_error_from_python();
}

EXT_METHOD(module, zero_grad, "(set_to_none: bool = True) -> None",
           "Resets gradients of all parameters, to None or to zeros.") {
  EXT_ARGS(bool, set_to_none);
  READY(self);
  if (ext_module_custom(self) & CUSTOM_PARAMETERS)
    return ext_module_python("zero_grads", self, set_to_none ? Py_True : Py_False);
  px_module *m = ext_module(self);
  return ext_none(
      set_to_none ? px_module_zero_grad(m)
                  : px_module_walk(m, PX_ENTRY_PARAMETER, "", true, false, zero_gradient, NULL));
}

// ---- moves

EXT_METHOD(
    module, _apply, "(fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self",
    "Applies fn to all parameters, their gradients and buffers, and stores the results. Moves "
    "call it if\na descendant overrides it.") {
  PyObject *fn;
  bool recurse;
  EXT_BIND(fn, recurse);
  READY(self);
  EXT_OWNED *how = PyTuple_Pack(2, fn, recurse ? Py_True : Py_False);
  return how ? ext_module_python("apply_own", self, how) : NULL;
}

// Destination of to(): parsed arguments.
typedef struct destination {
  px_dtype dtype;
  px_device device;
  ext_optional_bool non_blocking;
  PyObject *format;  // a torch.memory_format, or NULL
} destination;

// Moves by calling the modules' _apply. casts: complex tensors keep their dtype.
static PyObject *move_by_apply(PyObject *self, const destination *to, bool casts) {
  bool stays = px_device_equal(to->device, PX_DEVICE_NONE);
  EXT_OWNED *words = Py_BuildValue("NNOOO", ext_dtype(to->dtype),
                                   stays ? Py_NewRef(Py_None) : ext_device(to->device),
                                   to->non_blocking > 0 ? Py_True : Py_False,
                                   to->format ? to->format : Py_None, casts ? Py_True : Py_False);
  return words ? ext_module_python("move", self, words) : NULL;
}

static PyObject *move_all(PyObject *self, const destination *to) {
  ext_format named;
  px_memory_format format = PX_FORMAT_PRESERVE;
  READY(self);
  if (to->format && ext_to_format(to->format, &named) < 0) return NULL;
  if (to->format) EXT_TRY(px_memory_format_parse(&format, named.name));
  int applies = ext_module_any_custom(self, EXT_CUSTOM_APPLY);
  if (applies) return applies < 0 ? NULL : move_by_apply(self, to, false);
  EXT_WAIT(
      px_module_to_format(ext_module(self), to->dtype, to->device, to->non_blocking > 0, format));
  return Py_NewRef(self);
}

static PyObject *move(PyObject *self, px_dtype dtype, px_device device, bool non_blocking) {
  return move_all(self, &(destination){dtype, device, non_blocking, NULL});
}

// Reads a dtype, a device, or both from a tensor.
static int read_target(PyObject *value, px_dtype *dtype, px_device *device) {
  if (ext_is_none(value)) return 0;
  if (ext_is_dtype(value)) return ext_to_dtype(value, dtype);
  if (!ext_is_tensor(value)) return ext_to_device(value, device);
  *dtype = px_tensor_dtype(ext_tensor(value));
  *device = px_tensor_device(ext_tensor(value));
  return 0;
}

#define TO_ARGUMENTS \
  "(*target: Tensor | dtype | Device | bool | None, device: Device | None = None, " \
  "dtype: dtype | None = None, non_blocking: bool | None = None, " \
  "memory_format: memory_format | None = None) -> "

static int read_destination(destination *to, const ext_varargs *target, PyObject *device,
                            PyObject *dtype) {
  if (target->count > 3)
    EXT_FAIL_INT(PyExc_TypeError, "to() takes at most 3 positional arguments but %zd were given",
                 target->count);
  for (Py_ssize_t i = 0; i < target->count; i++) {
    PyObject *value = target->items[i];
    if (i > 0 && PyBool_Check(value))
      to->non_blocking = (ext_optional_bool)(value == Py_True);
    else if (read_target(value, &to->dtype, &to->device) < 0)
      return -1;
  }
  if (read_target(device, &to->dtype, &to->device) < 0) return -1;
  return read_target(dtype, &to->dtype, &to->device);
}

static int bind_destination(destination *to, const ext_call *call) {
  ext_varargs target;
  PyObject *device, *dtype, *memory_format;
  ext_optional_bool non_blocking;
  EXT_BIND_OR(-1, target, device, dtype, non_blocking, memory_format);
  PyObject *format = ext_is_none(memory_format) ? NULL : memory_format;
  *to = (destination){PX_DTYPE_NONE, PX_DEVICE_NONE, non_blocking, format};
  return read_destination(to, &target, device, dtype);
}

EXT_METHOD(module, to, TO_ARGUMENTS "Self",
           "Moves and/or casts the parameters, gradients and buffers in-place.\n\n"
           "Args:\n"
           "    target: a device, a dtype, both, or a tensor with both; then non_blocking\n"
           "    non_blocking (bool): copies from pinned memory asynchronously\n"
           "    memory_format (torch.memory_format): format of 4-D and 5-D tensors\n\n"
           "Raises:\n"
           "    TypeError for an integer dtype") {
  destination to;
  return bind_destination(&to, call) < 0 ? NULL : move_all(self, &to);
}

EXT_FUNCTION(torch, _parse_to, TO_ARGUMENTS "tuple",
             "Returns the device, dtype, non_blocking flag and memory format of the arguments of "
             "to();\nNone for missing ones.") {
  destination to;
  if (bind_destination(&to, call) < 0) return NULL;
  bool has_device = !px_device_equal(to.device, PX_DEVICE_NONE);
  return Py_BuildValue("NNOO", has_device ? ext_device(to.device) : Py_NewRef(Py_None),
                       ext_dtype(to.dtype), to.non_blocking > 0 ? Py_True : Py_False,
                       to.format ? to.format : Py_None);
}

EXT_METHOD(module, cuda, "(device: Device | None = None, *, device_id: int | None = None) -> Self",
           "Moves all parameters and buffers to the GPU; default: the current device.") {
  int index;
  EXT_ARGS(PyObject *, device, device_id);
  if (device_id) {
    if (PyErr_WarnEx(PyExc_FutureWarning,
                     "Module.cuda(device_id=...) is deprecated: use device=", 1) < 0)
      return NULL;
    device = device_id;
  }
  if (ext_to_cuda_index(device, &index) < 0) return NULL;
  return move(self, PX_DTYPE_NONE, px_cuda(index), false);
}

EXT_RETURNS(module, cpu, "Self", move(self, PX_DTYPE_NONE, px_cpu(), false),
            "Moves all parameters and buffers to the CPU.");
static PyObject *cast(PyObject *self, px_dtype dtype) {
  READY(self);
  int applies = ext_module_any_custom(self, EXT_CUSTOM_APPLY);
  destination to = {dtype, PX_DEVICE_NONE, 0, NULL};
  if (applies) return applies < 0 ? NULL : move_by_apply(self, &to, true);
  EXT_WAIT(px_module_cast(ext_module(self), dtype));
  return Py_NewRef(self);
}
#define CONVERSION(name, dtype) \
  EXT_RETURNS(module, name, "Self", cast(self, dtype), \
              "Casts all floating point parameters and buffers to " #name ".")
CONVERSION(float, PX_FLOAT32);
CONVERSION(double, PX_FLOAT64);
CONVERSION(half, PX_FLOAT16);
CONVERSION(bfloat16, PX_BFLOAT16);

EXT_METHOD(module, type, "(dst_type: dtype | str) -> Self",
           "Casts all floating point parameters and buffers to dst_type, optionally a name like "
           "'torch.DoubleTensor'.") {
  PyObject *dst_type;
  px_dtype dtype;
  px_device device = PX_DEVICE_NONE;
  EXT_BIND(dst_type);
  if (ext_is_dtype(dst_type)) {
    if (ext_to_dtype(dst_type, &dtype) < 0) return NULL;
  } else if (ext_is_type_object(dst_type)) {
    ext_type_object(dst_type, &dtype, &device);
  } else {
    const char *text = PyUnicode_Check(dst_type) ? ext_lookup_text(dst_type) : NULL;
    if (!text)
      EXT_FAIL(PyExc_TypeError, "type() expects a dtype or a type, not %s",
               ext_type_name(dst_type));
    if (!ext_dtype_of_type_name(text, &dtype, &device))
      EXT_FAIL(PyExc_ValueError, "invalid type: '%s'", text);
  }
  return move(self, dtype, device, false);
}

// ---- texts

EXT_METHOD0(module, extra_repr, "str",
            "Returns the extra representation of the module. To be overridden.") {
  char text[512];
  READY(self);
  px_module_extra_repr(ext_module(self), text, sizeof text);
  return ext_str(text);
}

EXT_RETURNS(module, _get_name, "str", ext_type_name(self), "Returns the name of the class.");

EXT_METHOD0(module, __dir__, "list[str]",
            "Returns the names of attributes, parameters and children.") {
  EXT_OWNED *names = PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__dir__", "O", self);
  px_module_entry entry;
  int all = PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER | PX_ENTRY_MODULE;
  for (int i = 0;
       names && ext_module(self) && px_module_entry_next(ext_module(self), all, &i, &entry);) {
    EXT_OWNED *name = ext_str(entry.name);
    if (!name || PyList_Append(names, name) < 0) return NULL;
  }
  return ext_moved(&names);
}
