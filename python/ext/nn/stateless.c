// SPDX-License-Identifier: Apache-2.0
// torch.func.functional_call: calls a module with replaced tensors. They replace the module's own
// during the call, which are restored in any case.
#include "nn/nn.h"

EXT_MODULE(func, "func", "Function transforms and functional calls of modules.");
EXT_MODULE(nn_stateless, "nn.utils.stateless", "Functional calls of modules.");

// ---- one tensor

// Owner module of a path, and the last name.
static PyObject *owner_of(PyObject *module, PyObject *path, PyObject **name) {
  EXT_OWNED *parts = PyObject_CallMethod(path, "rpartition", "s", ".");
  if (!parts) return NULL;
  *name = Py_NewRef(PyTuple_GET_ITEM(parts, 2));
  PyObject *head = PyTuple_GET_ITEM(parts, 0);
  if (PyUnicode_GET_LENGTH(head) == 0) return Py_NewRef(module);
  return PyObject_CallMethod(module, "get_submodule", "O", head);
}

// Replaces an attribute that is neither a parameter nor a buffer; Ellipsis means missing.
static PyObject *exchange_attribute(PyObject *owner, PyObject *name, PyObject *value) {
  EXT_OWNED *before = PyObject_GetAttr(owner, name);
  if (!before) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
    PyErr_Clear();
    before = Py_NewRef(Py_Ellipsis);
  } else if (before != Py_None && !ext_is_tensor(before)) {
    EXT_FAIL(PyExc_TypeError, "attribute `%U`: %S is not an instance of torch.Tensor", name,
             before);
  }
  int failed =
      value == Py_Ellipsis ? PyObject_DelAttr(owner, name) : PyObject_SetAttr(owner, name, value);
  return failed < 0 ? NULL : ext_moved(&before);
}

// Replaces a tensor of a module and returns the previous one.
static PyObject *exchange(PyObject *module, PyObject *path, PyObject *value) {
  static const char *const sorts[] = {"_parameters", "_buffers"};
  EXT_OWNED *name = NULL;
  EXT_OWNED *owner = owner_of(module, path, &name);
  if (!owner) return NULL;
  for (int i = 0; i < 2; i++) {
    EXT_OWNED *tensors = PyObject_GetAttrString(owner, sorts[i]);
    int found = tensors ? PySequence_Contains(tensors, name) : -1;
    if (found < 0) return NULL;
    if (!found) continue;
    EXT_OWNED *before = PyObject_GetItem(tensors, name);
    if (!before || PyObject_SetItem(tensors, name, value) < 0) return NULL;
    return ext_moved(&before);
  }
  return exchange_attribute(owner, name, value);
}

// ---- all tensors

// Replaces all tensors of a dict. `before` receives the previous ones, also on failure.
static int replace_all(PyObject *module, PyObject *tensors, PyObject *before) {
  PyObject *path, *tensor;
  for (Py_ssize_t at = 0; PyDict_Next(tensors, &at, &path, &tensor);) {
    EXT_OWNED *kept_path = Py_NewRef(path);  // an assignment may change the dict
    EXT_OWNED *kept_tensor = Py_NewRef(tensor);
    EXT_OWNED *own = exchange(module, kept_path, kept_tensor);
    if (!own || PyDict_SetItem(before, kept_path, own) < 0) return -1;
  }
  return 0;
}

// Restores the previous tensors, in reverse order. Tensors assigned by the module in between are
// stored in the caller's dict. Preserves a pending exception.
static int restore_all(PyObject *module, PyObject *before, PyObject *given) {
  PyObject *pending = ext_exception_take();
  EXT_OWNED *paths = PyDict_Keys(before);
  int failed = paths ? 0 : -1;
  for (Py_ssize_t i = paths ? PyList_GET_SIZE(paths) : 0; i-- > 0;) {
    PyObject *path = PyList_GET_ITEM(paths, i);
    EXT_OWNED *last = exchange(module, path, PyDict_GetItem(before, path));
    int known = last ? PyDict_Contains(given, path) : -1;
    if (last == Py_Ellipsis) known = 0;
    if (known < 0 || (known && PyDict_SetItem(given, path, last) < 0)) failed = -1;
  }
  if (!pending) return failed;
  PyErr_Clear();
  ext_exception_set(pending);
  return -1;
}

// ---- names

// Maps each tensor of a module to the list of its names.
static PyObject *names_by_tensor(PyObject *module) {
  static const char *const methods[] = {"named_parameters", "named_buffers"};
  EXT_OWNED *names = PyDict_New();
  EXT_OWNED *none = PyTuple_New(0);
  EXT_OWNED *all = Py_BuildValue("{sO}", "remove_duplicate", Py_False);
  for (int i = 0; names && none && all && i < 2; i++) {
    EXT_OWNED *method = PyObject_GetAttrString(module, methods[i]);
    EXT_OWNED *pairs = method ? PyObject_Call(method, none, all) : NULL;
    EXT_OWNED *list = pairs ? PySequence_List(pairs) : NULL;
    if (!list) return NULL;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); k++) {
      PyObject *name, *tensor;
      if (!PyArg_ParseTuple(PyList_GET_ITEM(list, k), "OO", &name, &tensor)) return NULL;
      EXT_OWNED *key = PyLong_FromVoidPtr(tensor);
      EXT_OWNED *fresh = PyList_New(0);
      PyObject *known = key && fresh ? PyDict_SetDefault(names, key, fresh) : NULL;
      if (!known || PyList_Append(known, name) < 0) return NULL;
    }
  }
  return all ? ext_moved(&names) : NULL;
}

// The unique value given for the names of a tensor, borrowed; NULL if none.
static int value_of(PyObject **value, PyObject *names, PyObject *given) {
  *value = NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); i++) {
    PyObject *found = PyDict_GetItemWithError(given, PyList_GET_ITEM(names, i));
    if (!found && PyErr_Occurred()) return -1;
    if (found && *value && found != *value) {
      if (PyList_Sort(names) < 0) return -1;
      EXT_FAIL_INT(PyExc_ValueError,
                   "functional_call got multiple values for keys %R, which are tied. Consider "
                   "using tie_weights=False",
                   names);
    }
    if (found) *value = found;
  }
  return 0;
}

// Assigns given tensors to all names of the tensors they replace.
static int untie(PyObject *tensors, PyObject *names_of, PyObject *given) {
  PyObject *key, *names, *value;
  for (Py_ssize_t at = 0; PyDict_Next(names_of, &at, &key, &names);) {
    if (value_of(&value, names, given) < 0) return -1;
    for (Py_ssize_t i = 0; value && i < PyList_GET_SIZE(names); i++)
      if (PyDict_SetItem(tensors, PyList_GET_ITEM(names, i), value) < 0) return -1;
  }
  return 0;
}

// "\n\tMissing key(s): 'a', 'b'.", or "" if there are none.
static PyObject *key_text(const char *word, PyObject *some, PyObject *others) {
  EXT_OWNED *set = PyNumber_Subtract(some, others);
  EXT_OWNED *list = set ? PySequence_List(set) : NULL;
  if (!list || PyList_Sort(list) < 0) return NULL;
  if (!PyList_GET_SIZE(list)) return PyUnicode_FromString("");
  EXT_OWNED *text = PyObject_Repr(list);
  EXT_OWNED *inner = text ? PyUnicode_Substring(text, 1, PyUnicode_GET_LENGTH(text) - 1) : NULL;
  return inner ? PyUnicode_FromFormat("\n\t%s key(s): %U.", word, inner) : NULL;
}

static int check_names(PyObject *module, PyObject *names_of, PyObject *tensors) {
  EXT_OWNED *all = PySet_New(NULL);
  EXT_OWNED *given = PySet_New(tensors);
  PyObject *key, *names;
  for (Py_ssize_t at = 0; all && given && PyDict_Next(names_of, &at, &key, &names);)
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); i++)
      if (PySet_Add(all, PyList_GET_ITEM(names, i)) < 0) return -1;
  EXT_OWNED *unexpected = all && given ? key_text("Unexpected", given, all) : NULL;
  EXT_OWNED *missing = unexpected ? key_text("Missing", all, given) : NULL;
  if (!missing) return -1;
  if (!PyUnicode_GET_LENGTH(unexpected) && !PyUnicode_GET_LENGTH(missing)) return 0;
  EXT_OWNED *name = PyObject_CallMethod(module, "_get_name", NULL);
  if (!name) return -1;
  EXT_FAIL_INT(PyExc_RuntimeError, "Error(s) in reparametrizing for %S:%U%U", name, unexpected,
               missing);
}

// ---- the call

typedef struct stateless_call {
  PyObject *module, *given, *args, *kwargs;
  bool tie_weights, strict;
} stateless_call;

static int check_call(const stateless_call *c) {
  PyObject *path, *tensor;
  EXT_OWNED *parallel = ext_import("phlox.nn", "DataParallel");
  int several = parallel ? PyObject_IsInstance(c->module, parallel) : -1;
  if (several < 0) return -1;
  if (several)
    EXT_FAIL_INT(PyExc_RuntimeError, "The stateless API can't be used with nn.DataParallel module");
  for (Py_ssize_t at = 0; PyDict_Next(c->given, &at, &path, &tensor);) {
    if (!PyUnicode_Check(path))
      EXT_FAIL_INT(PyExc_TypeError, "names of tensors must be str, not %s", ext_type_name(path));
    if (tensor != Py_None && !ext_is_tensor(tensor))
      EXT_FAIL_INT(PyExc_TypeError, "%S is not an instance of torch.Tensor", tensor);
  }
  return 0;
}

// Replacement tensors for all names of the module.
static PyObject *tensors_for(const stateless_call *c) {
  EXT_OWNED *tensors = PyDict_Copy(c->given);
  if (!tensors || (!c->tie_weights && !c->strict)) return ext_moved(&tensors);
  EXT_OWNED *names_of = names_by_tensor(c->module);
  if (!names_of || (c->tie_weights && untie(tensors, names_of, c->given) < 0)) return NULL;
  if (c->strict && check_names(c->module, names_of, tensors) < 0) return NULL;
  return ext_moved(&tensors);
}

static PyObject *call_stateless(const stateless_call *c) {
  if (check_call(c) < 0) return NULL;
  bool one = c->args && c->args != Py_None && !PyTuple_Check(c->args);
  EXT_OWNED *args = one                    ? PyTuple_Pack(1, c->args)
                    : ext_is_none(c->args) ? PyTuple_New(0)
                                           : Py_NewRef(c->args);
  EXT_OWNED *tensors = args ? tensors_for(c) : NULL;
  EXT_OWNED *before = tensors ? PyDict_New() : NULL;
  if (!before) return NULL;
  EXT_OWNED *result = NULL;
  if (replace_all(c->module, tensors, before) == 0) result = ext_apply(c->module, args, c->kwargs);
  return restore_all(c->module, before, c->given) < 0 ? NULL : ext_moved(&result);
}

EXT_FUNCTION(nn_stateless, functional_call,
             "(module: Module, parameters_and_buffers: dict[str, Tensor], args: Any = None, "
             "kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = "
             "False) -> Any",
             "Deprecated name of torch.func.functional_call.") {
  stateless_call c;
  PyObject *module, *parameters_and_buffers, *args, *kwargs;
  bool tie_weights, strict;
  EXT_BIND(module, parameters_and_buffers, args, kwargs, tie_weights, strict);
  if (!PyDict_Check(parameters_and_buffers))
    EXT_FAIL(PyExc_TypeError, "parameters_and_buffers must be a dict, not %s",
             ext_type_name(parameters_and_buffers));
  c = (stateless_call){module, parameters_and_buffers, args, kwargs, tie_weights, strict};
  if (PyErr_WarnEx(PyExc_FutureWarning,
                   "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 "
                   "and will be removed in a future version of PyTorch. Please use "
                   "`torch.func.functional_call` instead which is a drop-in replacement.",
                   1) < 0)
    return NULL;
  return call_stateless(&c);
}

// Merges a sequence of dicts; a name may occur only once.
static PyObject *merge_dicts(PyObject *dicts) {
  if (!PyList_Check(dicts) && !PyTuple_Check(dicts))
    EXT_FAIL(PyExc_ValueError,
             "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
             "%S",
             (PyObject *)Py_TYPE(dicts));
  EXT_OWNED *all = PyDict_New();
  EXT_OWNED *repeated = PyList_New(0);
  EXT_OWNED *list = ext_items(dicts, "no sequence");
  for (Py_ssize_t i = 0; all && repeated && list && i < PySequence_Fast_GET_SIZE(list); i++) {
    PyObject *dict = PySequence_Fast_GET_ITEM(list, i), *name, *tensor;
    if (!PyDict_Check(dict))
      EXT_FAIL(PyExc_ValueError,
               "Expected all elements of parameter_and_buffer_dicts to be dictionaries");
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &name, &tensor);) {
      int known = PyDict_Contains(all, name);
      if (known < 0 || (known && PyList_Append(repeated, name) < 0)) return NULL;
      if (PyDict_SetItem(all, name, tensor) < 0) return NULL;
    }
  }
  if (!all || !repeated || !list) return NULL;
  if (!PyList_GET_SIZE(repeated)) return ext_moved(&all);
  EXT_FAIL(PyExc_ValueError,
           "%R appeared in multiple dictionaries; behavior of functional call is ambiguous",
           repeated);
}

EXT_FUNCTION(
    func, functional_call,
    "(module: Module, parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]], "
    "args: Any = None, kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: "
    "bool = False) -> Any",
    "Performs a functional call on the module by replacing its parameters and buffers with the "
    "provided ones.\n\n"
    "Args:\n"
    "    parameter_and_buffer_dicts: a dict of tensors by name, or several. Tensors assigned by "
    "the "
    "module\n"
    "        during the call are stored in a single dict\n"
    "    args (Any): a tuple of arguments, or a single one\n"
    "    tie_weights (bool): whether a tensor with several names is replaced at all of them\n"
    "    strict (bool): RuntimeError unless all tensors are provided\n\n"
    ">>> layer = torch.nn.Linear(2, 1)\n"
    ">>> given = {\"weight\": torch.ones(1, 2), \"bias\": torch.zeros(1)}\n"
    ">>> torch.func.functional_call(layer, given, torch.ones(1, 2))\n"
    "tensor([[2.]])\n") {
  PyObject *module, *parameter_and_buffer_dicts, *args, *kwargs;
  bool tie_weights, strict;
  EXT_BIND(module, parameter_and_buffer_dicts, args, kwargs, tie_weights, strict);
  EXT_OWNED *given = PyDict_Check(parameter_and_buffer_dicts)
                         ? Py_NewRef(parameter_and_buffer_dicts)
                         : merge_dicts(parameter_and_buffer_dicts);
  if (!given) return NULL;
  return call_stateless(&(stateless_call){module, given, args, kwargs, tie_weights, strict});
}
