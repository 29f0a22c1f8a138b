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
    EXT_TRY(px_module_forward(&result, module, inputs, kind->input_count));
  else
    EXT_WAIT(px_module_forward(&result, module, inputs, kind->input_count));
  return ext_wrap(result);
}

// Sequential calls its children's objects, so that subclasses and hooks of Python take part.
static PyObject *call_sequential(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  PyObject *children = ((ext_module_object *)self)->children, *name, *child;
  Py_ssize_t at = 0;
  if (nargs != 1)
    EXT_FAIL(PyExc_TypeError,
             "Sequential.forward() takes 2 positional arguments but %zd were given", nargs + 1);
  PyObject *x = Py_NewRef(args[0]);
  while (x && PyDict_Next(children, &at, &name, &child)) {
    PyObject *next = PyObject_CallOneArg(child, x);
    Py_SETREF(x, next);
  }
  return x;
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

// ---- hooks

// hook(module, args): None, or the arguments to go on with. *args is a tuple, owned.
static int run_pre_hooks(PyObject *self, PyObject **args) {
  EXT_OWNED *hooks = PyDict_Values(((ext_module_object *)self)->pre_hooks);
  for (Py_ssize_t i = 0; hooks && i < PyList_GET_SIZE(hooks); i++) {
    PyObject *said = PyObject_CallFunctionObjArgs(PyList_GET_ITEM(hooks, i), self, *args, NULL);
    if (!said) return -1;
    if (said == Py_None)
      Py_DECREF(said);
    else if (PyTuple_Check(said))
      Py_SETREF(*args, said);
    else {
      PyObject *packed = PyTuple_Pack(1, said);
      Py_DECREF(said);
      if (!packed) return -1;
      Py_SETREF(*args, packed);
    }
  }
  return hooks ? 0 : -1;
}

// hook(module, args, result): None, or the result to go on with.
static int run_hooks(PyObject *self, PyObject *args, PyObject **result) {
  EXT_OWNED *hooks = PyDict_Values(((ext_module_object *)self)->hooks);
  for (Py_ssize_t i = 0; hooks && i < PyList_GET_SIZE(hooks); i++) {
    PyObject *said =
        PyObject_CallFunctionObjArgs(PyList_GET_ITEM(hooks, i), self, args, *result, NULL);
    if (!said) return -1;
    if (said == Py_None)
      Py_DECREF(said);
    else
      Py_SETREF(*result, said);
  }
  return hooks ? 0 : -1;
}

static PyObject *call_hooked(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
  enum { LIMIT = 32 };
  PyObject *flat[LIMIT];
  Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  EXT_OWNED *tuple = PyTuple_New(nargs);
  if (!tuple) return NULL;
  for (Py_ssize_t i = 0; i < nargs; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
  if (((ext_module_object *)self)->pre_hooks && run_pre_hooks(self, &tuple) < 0) return NULL;
  Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  if (count + keywords > LIMIT)
    EXT_FAIL(PyExc_TypeError, "a module with hooks takes at most %d arguments", LIMIT);
  for (Py_ssize_t i = 0; i < count; i++) flat[i] = PyTuple_GET_ITEM(tuple, i);
  for (Py_ssize_t i = 0; i < keywords; i++) flat[count + i] = args[nargs + i];
  PyObject *result = forward_of(self, flat, count, kwnames);
  if (result && ((ext_module_object *)self)->hooks && run_hooks(self, tuple, &result) < 0)
    Py_CLEAR(result);
  return result;
}

PyObject *ext_module_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  const ext_module_object *object = (const ext_module_object *)self;
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (object->hooks || object->pre_hooks) return call_hooked(self, args, nargs, kwnames);
  return forward_of(self, args, nargs, kwnames);
}

// ---- handles

typedef struct handle_object {
  PyObject_HEAD PyObject *dict, *key;
} handle_object;

static void handle_dealloc(PyObject *object) {
  Py_XDECREF(((handle_object *)object)->dict);
  Py_XDECREF(((handle_object *)object)->key);
  Py_TYPE(object)->tp_free(object);
}

static PyObject *handle_remove(PyObject *object, PyObject *unused) {
  handle_object *self = (handle_object *)object;
  if (PyDict_Contains(self->dict, self->key) == 1) PyDict_DelItem(self->dict, self->key);
  Py_RETURN_NONE;
}

static PyObject *handle_enter(PyObject *self, PyObject *unused) { return Py_NewRef(self); }
static PyObject *handle_exit(PyObject *self, PyObject *args) { return handle_remove(self, args); }
static PyMethodDef handle_methods[] = {{"remove", handle_remove, METH_NOARGS, NULL},
                                       {"__enter__", handle_enter, METH_NOARGS, NULL},
                                       {"__exit__", handle_exit, METH_VARARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyTypeObject handle_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.utils.hooks.RemovableHandle",
    .tp_basicsize = sizeof(handle_object),
    .tp_doc = "Removes a hook.",
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = handle_dealloc,
    .tp_methods = handle_methods,
};

PyObject *ext_module_add_hook(PyObject **dict, PyObject *hook) {
  static long next;
  if (PyType_Ready(&handle_type) < 0) return NULL;
  if (!*dict && !(*dict = PyDict_New())) return NULL;
  PyObject *key = PyLong_FromLong(next++);
  handle_object *handle = key ? PyObject_New(handle_object, &handle_type) : NULL;
  if (!handle) return Py_XDECREF(key), NULL;
  handle->dict = Py_NewRef(*dict);
  handle->key = key;
  if (PyDict_SetItem(*dict, key, hook) < 0) Py_CLEAR(handle);
  return (PyObject *)handle;
}
