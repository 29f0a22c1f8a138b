// SPDX-License-Identifier: Apache-2.0
// Calls of a module's methods from C by name: the method found by Python, which a subclass or an
// object may override.
#include "nn/nn.h"

enum { MAX_ARGS = 16 };

// Arguments in Python's order: positional, then named. Returns the total count.
static int wrap_args(PyObject **out, PyObject **kwnames, const px_named_value *args, int count) {
  EXT_OWNED *names = PyList_New(0);
  int made = 0;
  for (int named = 0; named < 2 && names; named++)
    for (int i = 0; i < count && i < MAX_ARGS; i++) {
      if (named != (args[i].name != NULL)) continue;
      bool tensor = args[i].value.kind == PX_ARG_TENSOR;
      out[made] =
          tensor ? ext_wrap_borrowed(args[i].value.v.tensor) : ext_from_value(args[i].value);
      if (!out[made++]) return made;
      EXT_OWNED *name = named ? PyUnicode_InternFromString(args[i].name) : NULL;
      if (named && (!name || PyList_Append(names, name) < 0)) return made;
    }
  *kwnames = names ? PyList_AsTuple(names) : NULL;
  return made;
}

// A tensor, or several from a tuple, with None for missing ones.
static int unwrap_results(px_tensor **out, int wanted, const char *method, PyObject *value) {
  for (int i = 0; i < wanted; i++) {
    PyObject *item = wanted == 1 ? value
                     : !PyTuple_Check(value) || i >= PyTuple_GET_SIZE(value)
                         ? Py_None
                         : PyTuple_GET_ITEM(value, i);
    if (item == Py_None && (i || wanted == 1)) continue;
    if (!ext_is_tensor(item)) {
      while (i) px_release(out[--i]), out[i] = NULL;
      EXT_FAIL_INT(PyExc_TypeError, "%s must return a Tensor here, not %s", method,
                   ext_type_name(value));
    }
    out[i] = px_retain(ext_tensor(item));
  }
  return 0;
}

// Calls forward with hooks, or a method; or returns the object's tensor of this name.
static PyObject *call_found(PyObject *self, const char *name, PyObject *const *args, int count,
                            PyObject *kwnames) {
  Py_ssize_t nargs = count - PyTuple_GET_SIZE(kwnames);
  if (!strcmp(name, "forward")) return ext_module_run(self, args, nargs, kwnames);
  EXT_OWNED *found = PyObject_GetAttrString(self, name);
  if (!found || ext_is_tensor(found) || found == Py_None) return ext_moved(&found);
  return PyObject_Vectorcall(found, args, (size_t)nargs, kwnames);
}

px_status ext_module_invoke(px_tensor **results, int result_count, px_module *self,
                            const char *method, const px_named_value *args, int count) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  PyObject *objects[MAX_ARGS] = {NULL}, *kwnames = NULL, *result = NULL;
  PyObject *object = Py_XNewRef((PyObject *)px_module_user(self));
  px_status status = PX_OK;
  int made = object ? wrap_args(objects, &kwnames, args, count) : 0;
  if (!object) PyErr_SetString(PyExc_RuntimeError, "this module has lost its Python object");
  if (kwnames) result = call_found(object, method, objects, made, kwnames);
  if (!result || unwrap_results(results, result_count, method, result) < 0)
    status = ext_error_from_python();
  for (int i = 0; i < made; i++) Py_XDECREF(objects[i]);
  Py_XDECREF(kwnames);
  Py_XDECREF(result);
  Py_XDECREF(object);
  ext_gil_give(&gil);
  return status;
}
