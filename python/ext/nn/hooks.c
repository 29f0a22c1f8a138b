// SPDX-License-Identifier: Apache-2.0
// Hooks of modules. They are stored in dicts of the object by handle id, where user code may read
// and change them. Hooks for all modules are in dicts of phlox/nn/_module.py. This file only caches
// the names of the dicts. Backward hooks are applied by Python.
#include "nn/nn.h"

// ---- dicts
#define ENUMERATOR(bit, word, name) word,
#define NAME(bit, word, name) #name,
#define BIT(bit, word, name) EXT_CUSTOM_##bit,
typedef enum hook_dict { EXT_MODULE_HOOKS(ENUMERATOR) DICTS } hook_dict;
enum { OF_MODULE, OF_ALL, OWNERS };
static PyObject *names[DICTS][OWNERS];
// EXT_CUSTOM bits of modules that may have each dict.
static const unsigned custom_bits[DICTS] = {EXT_MODULE_HOOKS(BIT)};
static ext_module_object *object_of(PyObject *self) { return (ext_module_object *)self; }

PyObject *ext_module_hook_dict(PyObject *self, PyObject *name) {
  static PyObject *ordered;
  int i = 0;
  while (i < DICTS && PyUnicode_Compare(name, names[i][OF_MODULE])) i++;
  if (i == DICTS || PyErr_Occurred()) return NULL;
  EXT_OWNED *collections = ordered ? NULL : PyImport_ImportModule("collections");
  if (collections) ordered = PyObject_GetAttrString(collections, "OrderedDict");
  EXT_OWNED *made = ordered ? PyObject_CallNoArgs(ordered) : NULL;
  return made && PyObject_GenericSetAttr(self, name, made) == 0 ? ext_moved(&made) : NULL;
}

static int name_dicts(PyObject *root) {
  static const char *const texts[] = {EXT_MODULE_HOOKS(NAME)};
  for (int i = 0; i < DICTS; i++) {
    EXT_OWNED *of_all = PyUnicode_FromFormat("_global%s", texts[i]);
    if (!of_all) return -1;
    PyUnicode_InternInPlace(&of_all);
    names[i][OF_ALL] = ext_moved(&of_all);
    if (!(names[i][OF_MODULE] = PyUnicode_InternFromString(texts[i]))) return -1;
  }
  return 0;
}
EXT_START(EXT_TYPES, name_dicts);

// ---- registration

static PyObject *add_hook(PyObject *hooks, PyObject *hook, PyObject *const *marks, Py_ssize_t count,
                          bool prepend) {
  int64_t id;
  EXT_OWNED *handle = ext_hook_handle(hooks, marks, count, &id);
  EXT_OWNED *key = handle ? PyLong_FromLongLong(id) : NULL;
  for (Py_ssize_t i = 0; key && i < count; i++)
    if (PyObject_SetItem(marks[i], key, Py_True) < 0) return NULL;
  if (!key || PyObject_SetItem(hooks, key, hook) < 0) return NULL;
  EXT_OWNED *none =
      prepend ? PyObject_CallMethod(hooks, "move_to_end", "OO", key, Py_False) : Py_NewRef(Py_None);
  return none ? ext_moved(&handle) : NULL;
}

EXT_FUNCTION(
    torch, _add_hook, "(hooks: dict, hook: Callable, *marks: dict, prepend: bool = False) -> Any",
    "Adds a hook to a dict and returns its handle. `marks` are dicts with properties of the "
    "hook by its id.") {
  PyObject *hooks, *hook;
  ext_varargs marks;
  bool prepend;
  EXT_BIND(hooks, hook, marks, prepend);
  return add_hook(hooks, hook, marks.items, marks.count, prepend);
}

// Adds to the first of a module's dicts; the others are marks. The list ends with DICTS.
static PyObject *add_to_module(PyObject *self, PyObject *hook, const hook_dict *dicts,
                               bool prepend) {
  PyObject *found[DICTS], *handle = NULL;
  int count = 0;
  for (; dicts[count] != DICTS; count++)
    if (!(found[count] = PyObject_GetAttr(self, names[dicts[count]][OF_MODULE]))) break;
  if (dicts[count] == DICTS) handle = add_hook(found[0], hook, found + 1, count - 1, prepend);
  while (count > 0) Py_DECREF(found[--count]);
  return handle;
}

EXT_METHOD(
    module, register_forward_pre_hook,
    "(hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False) -> "
    "RemovableHandle",
    "Registers a forward pre-hook: hook(module, args) is called before each forward. A result "
    "other than None\nreplaces the arguments. With with_kwargs it is hook(module, args, "
    "kwargs) and may return both; with\nprepend it runs before the others.") {
  PyObject *hook;
  bool prepend, with_kwargs;
  EXT_BIND(hook, prepend, with_kwargs);
  const hook_dict dicts[] = {BEFORE, with_kwargs ? BEFORE_NAMED : DICTS, DICTS};
  return add_to_module(self, hook, dicts, prepend);
}
EXT_METHOD(module, register_forward_hook,
           "(hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, "
           "always_call: bool = False) -> RemovableHandle",
           "Registers a forward hook: hook(module, args, result) is called after each forward. A "
           "result other than\nNone replaces the output. With with_kwargs it is hook(module, args, "
           "kwargs, result); with always_call it\nalso runs after an error.") {
  PyObject *hook;
  bool prepend, with_kwargs, always_call;
  hook_dict dicts[4] = {AFTER, DICTS, DICTS, DICTS};
  int count = 1;
  EXT_BIND(hook, prepend, with_kwargs, always_call);
  if (with_kwargs) dicts[count++] = AFTER_NAMED;
  if (always_call) dicts[count++] = AFTER_ALWAYS;
  return add_to_module(self, hook, dicts, prepend);
}

// ---- calls

PyObject *ext_global_hooks;
EXT_FUNCTION(torch, _watch_modules, "(space: dict) -> None",
             "Enables global module hooks, stored in the dicts of a namespace.") {
  EXT_ARGS(PyObject *, space);
  Py_XSETREF(ext_global_hooks, Py_NewRef(space));
  Py_RETURN_NONE;
}

// One call of a module: the values passed to its hooks.
typedef struct hooked_call {
  ext_module_runner *forward;
  PyObject *self;
  PyObject *args, *kwargs, *result;  // owned; kwargs and result may be NULL
  PyObject *done;                    // ids of hooks run after forward, if some have always_call
} hooked_call;

// Borrowed; NULL if missing.
static PyObject *dict_of(const hooked_call *p, hook_dict dict, int owner) {
  PyObject *own = ext_module_custom(p->self) & custom_bits[dict] ? object_of(p->self)->dict : NULL;
  PyObject *space = owner == OF_ALL ? ext_global_hooks : own;
  return space ? PyDict_GetItemWithError(space, names[dict][owner]) : NULL;
}
static int owners(void) { return ext_global_hooks ? OWNERS : OF_MODULE + 1; }
static bool has_any(const hooked_call *p, hook_dict dict) {
  for (int owner = 0; owner < owners(); owner++) {
    PyObject *hooks = dict_of(p, dict, owner);
    if (hooks && PyObject_Size(hooks) != 0) return true;
  }
  return false;
}
static int is_marked(const hooked_call *p, hook_dict marks, PyObject *id) {
  for (int owner = 0; owner < owners(); owner++) {
    PyObject *dict = dict_of(p, marks, owner);
    int found = dict ? PySequence_Contains(dict, id) : 0;
    if (found) return found;
  }
  return 0;
}

// (id, hook) pairs: global hooks, then the module's.
static PyObject *items_of(const hooked_call *p, hook_dict dict) {
  EXT_OWNED *items = PyList_New(0);
  for (int owner = owners(); items && owner-- > 0;) {
    EXT_OWNED *hooks = Py_XNewRef(dict_of(p, dict, owner));
    EXT_OWNED *more = hooks ? PyMapping_Items(hooks) : NULL;
    if (hooks && (!more || PyList_SetSlice(items, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, more) < 0))
      return NULL;
  }
  return ext_moved(&items);
}

typedef int hook_runner(hooked_call *p, PyObject *id, PyObject *hook);

// Runs a snapshot of the hooks: a hook may remove itself or add others. Fast path for a single
// hook.
static int run_each(hooked_call *p, hook_dict dict, hook_runner *run) {
  PyObject *own = dict_of(p, dict, OF_MODULE), *id, *hook;
  Py_ssize_t at = 0;
  if (!own && !ext_global_hooks) return 0;
  if (!ext_global_hooks && PyDict_Check(own) && PyDict_GET_SIZE(own) == 1 &&
      PyDict_Next(own, &at, &id, &hook)) {
    EXT_OWNED *kept_id = Py_NewRef(id);
    EXT_OWNED *kept_hook = Py_NewRef(hook);
    return run(p, kept_id, kept_hook);
  }
  EXT_OWNED *items = items_of(p, dict);
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items); i++) {
    PyObject *item = PyList_GET_ITEM(items, i);
    if (run(p, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1)) < 0) return -1;
  }
  return items ? 0 : -1;
}

static int make_kwargs(hooked_call *p) { return p->kwargs || (p->kwargs = PyDict_New()) ? 0 : -1; }
static int replace(PyObject **field, PyObject *value_take) {
  if (value_take) Py_XSETREF(*field, value_take);
  return value_take ? 0 : -1;
}

static int run_before(hooked_call *p, PyObject *id, PyObject *hook) {
  int named = is_marked(p, BEFORE_NAMED, id);
  if (named < 0 || (named && make_kwargs(p) < 0)) return -1;
  PyObject *given[] = {p->self, p->args, p->kwargs};
  EXT_OWNED *said = PyObject_Vectorcall(hook, given, (size_t)(2 + named), NULL);
  if (!said || said == Py_None) return said ? 0 : -1;
  if (!named)
    return replace(&p->args, PyTuple_Check(said) ? Py_NewRef(said) : PyTuple_Pack(1, said));
  if (!PyTuple_Check(said) || PyTuple_GET_SIZE(said) != 2)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                 "%S.",
                 said);
  EXT_OWNED *kwargs = PyDict_New();
  if (!kwargs || PyDict_Update(kwargs, PyTuple_GET_ITEM(said, 1)) < 0) return -1;
  Py_SETREF(p->args, Py_NewRef(PyTuple_GET_ITEM(said, 0)));
  Py_SETREF(p->kwargs, ext_moved(&kwargs));
  return 0;
}

static int run_after(hooked_call *p, PyObject *id, PyObject *hook) {
  if (p->done && PySet_Add(p->done, id) < 0) return -1;
  int named = is_marked(p, AFTER_NAMED, id);
  if (named < 0 || (named && make_kwargs(p) < 0)) return -1;
  PyObject *result = p->result ? p->result : Py_None;
  PyObject *given[] = {p->self, p->args, named ? p->kwargs : result, result};
  EXT_OWNED *said = PyObject_Vectorcall(hook, given, (size_t)(3 + named), NULL);
  return said == Py_None ? 0 : replace(&p->result, ext_moved(&said));
}

// After an error: runs always_call hooks that have not run yet.
static int run_after_error(hooked_call *p, PyObject *id, PyObject *hook) {
  int always = is_marked(p, AFTER_ALWAYS, id);
  int done = always > 0 ? PySet_Contains(p->done, id) : always < 0 ? -1 : 1;
  if (done) return done < 0 ? -1 : 0;
  if (run_after(p, id, hook) == 0) return 0;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
  EXT_OWNED *later = ext_exception_take();
  return PyErr_WarnFormat(PyExc_UserWarning, 1,
                          "module forward hook with ``always_call=True`` raised an exception that "
                          "was silenced as another error was raised in forward: %S",
                          later);
}
static void run_all_after_error(hooked_call *p) {
  if (!p->done || !PyErr_ExceptionMatches(PyExc_Exception)) return;
  PyObject *error = ext_exception_take();
  if (run_each(p, AFTER, run_after_error) == 0)
    ext_exception_set(error);
  else
    Py_DECREF(error);
}

static PyObject *call_forward(const hooked_call *p) {
  EXT_OWNED *args = PySequence_Tuple(p->args);
  if (!args) return NULL;
  if (!p->kwargs)
    return p->forward(p->self, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), NULL);
  EXT_OWNED *found = PyObject_GetAttrString(p->self, "forward");
  return found ? PyObject_Call(found, args, p->kwargs) : NULL;
}

// Runs forward between pre-hooks and hooks. With backward hooks, arguments and results pass through
// them.
static int run_forward(hooked_call *p) {
  bool backward = (ext_global_hooks || ext_module_custom(p->self) & EXT_CUSTOM_BACKWARD) &&
                  (has_any(p, BACKWARD_BEFORE) || has_any(p, BACKWARD));
  EXT_OWNED *backward_hooks = backward ? ext_module_python("backward_of", p->self, NULL) : NULL;
  if (backward &&
      (!backward_hooks ||
       replace(&p->args, PyObject_CallMethod(backward_hooks, "inputs", "(O)", p->args)) < 0))
    return -1;
  p->result = call_forward(p);
  if (!p->result || run_each(p, AFTER, run_after) < 0) return -1;
  return backward_hooks
             ? replace(&p->result, PyObject_CallMethod(backward_hooks, "outputs", "(O)", p->result))
             : 0;
}

static int begin(hooked_call *p, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  if (!(p->args = ext_tuple_of((ext_varargs){args, nargs}))) return -1;
  if (kwnames && !(p->kwargs = ext_kwargs_of(args, nargs, kwnames))) return -1;
  return has_any(p, AFTER_ALWAYS) && !(p->done = PySet_New(NULL)) ? -1 : 0;
}

PyObject *ext_module_run_hooked(ext_module_runner *forward, PyObject *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames) {
  hooked_call p = {.forward = forward, .self = self};
  bool failed = begin(&p, args, nargs, kwnames) < 0 || run_each(&p, BEFORE, run_before) < 0 ||
                run_forward(&p) < 0;
  if (failed) run_all_after_error(&p);
  if (failed) Py_CLEAR(p.result);
  Py_XDECREF(p.args);
  Py_XDECREF(p.kwargs);
  Py_XDECREF(p.done);
  return p.result;
}
