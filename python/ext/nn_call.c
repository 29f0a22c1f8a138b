// SPDX-License-Identifier: Apache-2.0
// Calling a module: hooks, then the type's own forward, or the layer's in C.
#include "nn.h"

#include <string.h>

enum { MANY_ELEMENTS = 1 << 14 };  // from here on a CPU layer runs without the GIL

static const char *input_name(const px_module_kind *kind, int i) {
  return kind->inputs && i < kind->input_count ? kind->inputs[i] : "input";
}

// "'input1', 'input2' and 'target'": the inputs that are not given.
static void name_missing(const px_module_kind *kind, PyObject *const *given, int missing,
                         char *text, size_t room) {
  size_t used = 0;
  for (int i = 0, n = 0; i < kind->input_count; i++) {
    if (given[i]) continue;
    const char *comma = n == 0 ? "" : n + 1 < missing ? ", " : missing > 2 ? ", and " : " and ";
    used += (size_t)snprintf(text + used, room - used, "%s'%s'", comma, input_name(kind, i));
    n++;
  }
}

// Inputs by position, then by name, as a Python function takes them.
static int bind_inputs(const px_module_kind *kind, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames, PyObject **given) {
  Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (nargs > kind->input_count)
    EXT_FAIL_INT(PyExc_TypeError, "%s.forward() takes %d positional arguments but %zd were given",
                 kind->name, kind->input_count + 1, nargs + keywords + 1);
  int missing = kind->input_count - (int)nargs;
  for (Py_ssize_t i = 0; i < nargs; i++) given[i] = args[i];
  for (Py_ssize_t k = 0; k < keywords; k++, missing--) {
    PyObject *name = PyTuple_GET_ITEM(kwnames, k);
    int i = 0;
    while (i < kind->input_count && PyUnicode_CompareWithASCIIString(name, input_name(kind, i)))
      i++;
    if (i == kind->input_count || given[i])
      EXT_FAIL_INT(PyExc_TypeError,
                   i == kind->input_count ? "%s.forward() got an unexpected keyword argument '%U'"
                                          : "%s.forward() got multiple values for argument '%U'",
                   kind->name, name);
    given[i] = args[nargs + k];
  }
  if (!missing) return 0;
  char names[256];
  name_missing(kind, given, missing, names, sizeof names);
  EXT_FAIL_INT(PyExc_TypeError, "%s.forward() missing %d required positional argument%s: %s",
               kind->name, missing, missing > 1 ? "s" : "", names);
}

// The layer's forward in C.
static PyObject *call_layer(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
  enum { LIMIT = 4 };
  px_module *module = ext_module(self);
  const px_module_kind *kind = px_module_kind_of(module);
  PyObject *bound[LIMIT] = {NULL}, *const *given = args;
  px_tensor *inputs[LIMIT] = {NULL}, *result;
  if (kwnames || nargs != kind->input_count) {
    if (bind_inputs(kind, args, nargs, kwnames, bound) < 0) return NULL;
    given = bound;
  }
  for (int i = 0; i < kind->input_count; i++)
    if (!(inputs[i] = ext_need_tensor(given[i], kind->name, input_name(kind, i)))) return NULL;
  if (px_tensor_numel(inputs[0]) < MANY_ELEMENTS)
    EXT_TRY(kind->forward(&result, module, inputs, kind->input_count));
  else
    EXT_WAIT(kind->forward(&result, module, inputs, kind->input_count));
  return ext_wrap(result);
}

// One step of Sequential: the child's object is called, so that subclasses and hooks of Python take
// part, and what is no tensor goes through. A child that C registered may have no object.
static px_status call_child(px_module *child, void *value) {
  PyObject **x = value, *object = child ? px_module_user(child) : Py_None, *next;
  if (object) {
    next = PyObject_CallOneArg(object, *x);
  } else {
    px_tensor *given = ext_need_tensor(*x, px_module_kind_of(child)->name, "input"), *result;
    if (!given) return ext_foreign();
    PX_TRY(px_module_call(&result, child, given));
    next = ext_wrap(result);
  }
  if (!next) return ext_foreign();
  Py_SETREF(*x, next);
  return PX_OK;
}

static PyObject *call_sequential(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs != 1)
    EXT_FAIL(PyExc_TypeError,
             "Sequential.forward() takes 2 positional arguments but %zd were given", nargs + 1);
  EXT_OWNED *x = Py_NewRef(args[0]);
  EXT_TRY(px_module_chain(ext_module(self), call_child, &x));
  return ext_moved(&x);
}

bool ext_is_sequential(const px_module_kind *kind) {
  static const px_module_kind *sequential;  // comparing names costs a tenth of a small layer's call
  if (!sequential) sequential = px_module_kind_find("Sequential");
  return kind->forward == sequential->forward;
}

static PyObject *no_forward(PyObject *self) {
  EXT_FAIL(PyExc_NotImplementedError, "Module [%s] is missing the required \"forward\" function",
           ext_type_name(self));
}

PyObject *ext_module_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
  if (!ext_module(self))
    EXT_FAIL(PyExc_AttributeError, "'%s' object was called before its Module.__init__()",
             ext_type_name(self));
  const px_module_kind *kind = px_module_kind_of(ext_module(self));
  if (!kind->forward) return no_forward(self);
  if (ext_is_sequential(kind)) return call_sequential(self, args, nargs);
  return call_layer(self, args, nargs, kwnames);
}

static PyObject *forward_of(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
  static PyObject *name;
  if (!((ext_module_object *)self)->python_forward)
    return ext_module_forward(self, args, nargs, kwnames);
  if (!name && !(name = PyUnicode_InternFromString("forward"))) return NULL;
  EXT_OWNED *forward = PyObject_GetAttr(self, name);
  return forward ? PyObject_Vectorcall(forward, args, (size_t)nargs, kwnames) : NULL;
}

// ---- hooks. They are the core's, whose walk runs them; a function of Python is the context of
// `python_hook`.

// What a hook of Python is called with; `result` is NULL before forward.
static PyObject *call_hook(PyObject *hook, PyObject *self, PyObject *args, PyObject *result) {
  EXT_OWNED *kept = Py_NewRef(hook);  // it may remove itself
  return PyObject_CallFunctionObjArgs(kept, self, args, result, NULL);
}

static PyObject *tuple_of(px_tensor *const *tensors, int count) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++)
    PyTuple_SET_ITEM(tuple, i, ext_wrap_borrowed(tensors[i]));
  return tuple;
}

// What a hook said in place of a tensor: it, or the first of a tuple.
static int take_tensor(px_tensor **out, PyObject *said) {
  if (said == Py_None) return 0;
  if (PyTuple_Check(said) && PyTuple_GET_SIZE(said) == 1) said = PyTuple_GET_ITEM(said, 0);
  *out = px_retain(ext_need_tensor(said, "hook", "result"));
  return *out ? 0 : -1;
}

// For calls that come from C.
static px_status python_hook(px_tensor **replacement, px_module *self, px_tensor *const *inputs,
                             int count, px_tensor *result, void *context) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *object = Py_XNewRef(px_module_user(self)), *args = tuple_of(inputs, count);
  PyObject *value = result ? ext_wrap_borrowed(result) : NULL;
  if (!object) PyErr_SetString(PyExc_RuntimeError, "this module has lost its Python object");
  PyObject *said = object && args ? call_hook(context, object, args, value) : NULL;
  px_status status = said && take_tensor(replacement, said) == 0 ? PX_OK : ext_foreign();
  Py_XDECREF(said);
  Py_XDECREF(value);
  Py_XDECREF(args);
  Py_XDECREF(object);
  PyGILState_Release(gil);
  return status;
}

PyObject *ext_hook_function(const px_hook_entry *hook) {
  return hook->run == python_hook ? hook->context : NULL;
}

int ext_module_hook(int64_t *id, PyObject *self, bool before, PyObject *function) {
  EXT_TRY_INT(px_module_add_hook(id, ext_module(self), before, python_hook, function, ext_release));
  Py_INCREF(function);
  return 0;
}

// A call from Python that passes hooks.
typedef struct python_call {
  PyObject *self, *args, *result;  // args: a tuple, owned
  PyObject *const *keywords, *kwnames;
} python_call;

// Puts what a hook of Python said in the place of the arguments or the result.
static px_status take_said(python_call *call, bool before, PyObject *said) {
  if (said == Py_None) {
    Py_DECREF(said);
  } else if (!before) {
    Py_SETREF(call->result, said);
  } else if (PyTuple_Check(said)) {
    Py_SETREF(call->args, said);
  } else {
    PyObject *packed = PyTuple_Pack(1, said);
    Py_DECREF(said);
    if (!packed) return ext_foreign();
    Py_SETREF(call->args, packed);
  }
  return PX_OK;
}

// A hook of C sees tensors.
static px_status run_c_hook(px_module *self, const px_hook_entry *hook, python_call *call) {
  enum { LIMIT = 4 };
  px_tensor *inputs[LIMIT] = {NULL}, *replacement = NULL, *result = NULL;
  int count = (int)PyTuple_GET_SIZE(call->args);
  bool fit = count <= LIMIT && (!call->result || ext_is_tensor(call->result));
  for (int i = 0; fit && i < count; i++) {
    PyObject *item = PyTuple_GET_ITEM(call->args, i);
    inputs[i] = ext_is_tensor(item) ? ext_tensor(item) : NULL;
    fit = inputs[i] != NULL;
  }
  PX_CHECK(fit, PX_TYPE, "%s has a hook of C, which takes tensors alone",
           px_module_kind_of(self)->name);
  if (call->result) result = ext_tensor(call->result);
  PX_TRY(hook->run(&replacement, self, inputs, count, result, hook->context));
  PyObject *said = replacement ? ext_wrap(replacement) : Py_NewRef(Py_None);
  return said ? take_said(call, hook->before, said) : ext_foreign();
}

static px_status run_hook(px_module *self, const px_hook_entry *hook, void *with) {
  python_call *call = with;
  PyObject *function = ext_hook_function(hook);
  if (!function) return run_c_hook(self, hook, call);
  PyObject *said = call_hook(function, call->self, call->args, call->result);
  return said ? take_said(call, hook->before, said) : ext_foreign();
}

static px_status run_forward(px_module *self, void *with) {
  enum { LIMIT = 32 };
  python_call *call = with;
  PyObject *flat[LIMIT];
  Py_ssize_t count = PyTuple_GET_SIZE(call->args);
  Py_ssize_t keywords = call->kwnames ? PyTuple_GET_SIZE(call->kwnames) : 0;
  PX_CHECK(count + keywords <= LIMIT, PX_TYPE, "a module with hooks takes at most %d arguments",
           LIMIT);
  for (Py_ssize_t i = 0; i < count; i++) flat[i] = PyTuple_GET_ITEM(call->args, i);
  for (Py_ssize_t i = 0; i < keywords; i++) flat[count + i] = call->keywords[i];
  call->result = forward_of(call->self, flat, count, call->kwnames);
  return call->result ? PX_OK : ext_foreign();
}

static PyObject *call_hooked(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
  static const px_module_way way = {run_hook, run_forward};
  python_call call = {self, PyTuple_New(nargs), NULL, args + nargs, kwnames};
  if (!call.args) return NULL;
  for (Py_ssize_t i = 0; i < nargs; i++) PyTuple_SET_ITEM(call.args, i, Py_NewRef(args[i]));
  px_status status = px_module_run(ext_module(self), &way, &call);
  Py_XDECREF(call.args);
  if (status == PX_OK) return call.result;
  Py_XDECREF(call.result);
  return ext_raise();
}

PyObject *ext_module_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  px_module *module = ext_module(self);
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (module && px_module_has_hooks(module)) return call_hooked(self, args, nargs, kwnames);
  return forward_of(self, args, nargs, kwnames);
}

// ---- handles

// The target is a weak reference: a hook does not keep its module.
static void remove_hook(void *weak, int64_t id) {
  PyObject *module = PyWeakref_GetObject(weak);
  if (module != Py_None && ext_module(module)) px_module_remove_hook(ext_module(module), id);
}
static void drop(void *object) { Py_DECREF((PyObject *)object); }

PyObject *ext_module_add_hook(PyObject *self, bool before, PyObject *function) {
  int64_t id;
  PyObject *weak = PyWeakref_NewRef(self, NULL);
  if (!weak) return NULL;
  if (ext_module_hook(&id, self, before, function) < 0) return drop(weak), NULL;
  return ext_handle(weak, id, remove_hook, drop);
}
