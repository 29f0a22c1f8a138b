// SPDX-License-Identifier: Apache-2.0
// Dual tensors (phlox/autograd.h) for phlox/autograd/forward_ad.py and torch.func. A level is a
// capsule, to be ended by its creator.
#include "bind/ext.h"

static px_duals *level_of(PyObject *level) { return PyCapsule_GetPointer(level, NULL); }

EXT_FUNCTION0(torch, _duals_begin, "object", "Enters a level of dual tensors and returns it.") {
  px_duals *level = NULL;
  EXT_TRY(px_duals_begin(&level));
  PyObject *capsule = PyCapsule_New(level, NULL, NULL);
  if (!capsule) px_duals_end(level);
  return capsule;
}

EXT_FUNCTION(torch, _duals_end, "(level: object) -> None",
             "Exits a level, which must not be used afterwards.") {
  EXT_ARGS(PyObject *, level);
  px_duals *ended = level_of(level);
  if (!ended) return NULL;
  px_duals_end(ended);
  Py_RETURN_NONE;
}

EXT_FUNCTION(torch, _dual_make, "(level: object, tensor: Tensor, tangent: Tensor) -> Tensor",
             "Returns a dual tensor with a tangent.") {
  PyObject *level;
  px_tensor *tensor, *tangent, *made = NULL;
  EXT_BIND(level, tensor, tangent);
  px_duals *of = level_of(level);
  if (!of) return NULL;
  EXT_TRY(px_dual_make(&made, of, tensor, tangent));
  return ext_wrap(made);
}

EXT_FUNCTION(torch, _dual_tangents,
             "(level: object, tensors: Sequence[Tensor]) -> list[Tensor | None]",
             "Returns the tangents of tensors; None for a tensor without one.") {
  PyObject *level, *tensors;
  EXT_BIND(level, tensors);
  EXT_TENSORS given = {0}, results = {0};
  px_duals *of = level_of(level);
  if (!of || ext_to_tensors(&given, tensors, "unpack_dual") < 0) return NULL;
  int n = (int)given.count;
  if (ext_room_for_tensors(&results, n) < 0) return NULL;
  EXT_WAIT(px_dual_tangents(results.items, of, n, given.items));
  PyObject *list = PyList_New(n);
  for (int i = 0; i < n; i++) {
    PyObject *item = ext_wrap(results.items[i]);
    if (list && item)
      PyList_SET_ITEM(list, i, item);
    else
      Py_XDECREF(item);
  }
  return PyErr_Occurred() ? Py_XDECREF(list), NULL : list;
}

static PyObject *apply_mode(px_status (*mode)(px_tensor **, px_tensor *), px_tensor *tensor) {
  px_tensor *made = NULL;
  EXT_TRY(mode(&made, tensor));
  return ext_wrap(made);
}
EXT_FUNCTION(torch, _dual_primal, "(tensor: Tensor) -> Tensor",
             "Returns the primal of a dual tensor.") {
  EXT_ARGS(px_tensor *, tensor);
  return apply_mode(px_dual_primal, tensor);
}

EXT_FUNCTION(torch, _dual_change, "(tensor: Tensor) -> Tensor",
             "Returns the tensor with its tangent, but without history.") {
  EXT_ARGS(px_tensor *, tensor);
  return apply_mode(px_dual_change, tensor);
}

EXT_FUNCTION(torch, _dual_variable, "(tensor: Tensor) -> Tensor",
             "Returns a leaf for reverse mode with the tensor's tangent.") {
  EXT_ARGS(px_tensor *, tensor);
  return apply_mode(px_dual_variable, tensor);
}

EXT_FUNCTION(torch, _is_dual, "(tensor: Tensor) -> bool",
             "Returns True if the tensor has a tangent.") {
  EXT_ARGS(px_tensor *, tensor);
  return PyBool_FromLong(px_tensor_is_dual(tensor));
}
