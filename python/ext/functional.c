// SPDX-License-Identifier: Apache-2.0
// Functions of the torch namespace that are not ops of the tables, since their results are values
// of Python, or their arguments are forms that a schema has no word for. What computes are ops.
#include <math.h>
#include <string.h>

#include "ext.h"
#include "phlox/ops/layer.h"

EXT_FUNCTION(torch, is_tensor, "(obj: object) -> bool", "Whether an object is a tensor.") {
  EXT_ARGS(PyObject *, obj);
  return PyBool_FromLong(ext_is_tensor(obj));
}
EXT_FUNCTION(torch, is_floating_point, "(input: Tensor) -> bool",
             "Whether the elements are floating point.") {
  EXT_ARGS(px_tensor *, input);
  return PyBool_FromLong(px_dtype_is_float(px_tensor_dtype(input)));
}

// ---- comparisons
static bool same_sizes(const px_tensor *a, const px_tensor *b) {
  if (px_tensor_ndim(a) != px_tensor_ndim(b)) return false;
  for (int i = 0; i < px_tensor_ndim(a); i++)
    if (px_tensor_sizes(a)[i] != px_tensor_sizes(b)[i]) return false;
  return true;
}
static PyObject *all_true(PyObject *flags_take) {
  EXT_OWNED *flags = flags_take;
  EXT_OWNED *all = flags ? PyObject_CallMethod(flags, "all", NULL) : NULL;
  int truth = all ? PyObject_IsTrue(all) : -1;
  return truth < 0 ? NULL : PyBool_FromLong(truth);
}
EXT_BOTH(torch, tensor, equal, "(input: Tensor, other: Tensor) -> bool",
         "Whether sizes and all elements are equal.\n\n"
         "Raises RuntimeError for tensors of two devices.\n\n"
         ">>> torch.equal(torch.tensor([1, 2]), torch.tensor([1, 2]))\n"
         "True\n") {
  EXT_ARGS(PyObject *, input, other);
  px_tensor *a = ext_need_tensor(input, "equal", "input");
  px_tensor *b = a ? ext_need_tensor(other, "equal", "other") : NULL;
  if (!b) return NULL;
  char first[PX_DEVICE_TEXT], second[PX_DEVICE_TEXT];
  if (!px_device_equal(px_tensor_device(a), px_tensor_device(b)))
    EXT_FAIL(PyExc_RuntimeError,
             "Expected all tensors to be on the same device, but got other is on %s, different "
             "from other tensors on %s (when checking argument in method wrapper_CUDA__equal)",
             px_device_format(px_tensor_device(b), second),
             px_device_format(px_tensor_device(a), first));
  if (!same_sizes(a, b)) Py_RETURN_FALSE;
  return all_true(ext_richcompare(input, other, Py_EQ));
}

// ---- forms of ops that take fewer arguments
// The columns of nonzero(): what where(condition) gives.
static PyObject *nonzero_tuple(PyObject *self) {
  if (px_tensor_ndim(ext_tensor(self)) == 0) {
    EXT_OWNED *row = PyObject_CallMethod(self, "unsqueeze", "i", 0);
    return row ? nonzero_tuple(row) : NULL;
  }
  EXT_OWNED *found = ext_op_named(EXT_OP("nonzero"), PX_CALL_NEW, 1,
                                  (ext_named[]){{"self", PX_T(ext_tensor(self))}});
  return found ? PyObject_CallMethod(found, "unbind", "i", 1) : NULL;
}
EXT_BOTH(
    torch, tensor, nonzero,
    "(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Tensor | "
    "tuple[Tensor, ...]",
    "The indices of the elements that are not zero.\n\n"
    "Args:\n"
    "    input (Tensor)\n"
    "    as_tuple (bool): gives a tensor for each dimension, rather than a row for each element\n\n"
    ">>> torch.nonzero(torch.tensor([0, 7, 0, 5]))\n"
    "tensor([[1],\n"
    "        [3]])\n") {
  PyObject *input, *out;
  bool as_tuple;
  EXT_BIND(input, out, as_tuple);
  px_tensor *t = ext_need_tensor(input, "nonzero", "input");
  if (!t) return NULL;
  if (as_tuple && out)
    EXT_FAIL(PyExc_TypeError, "nonzero(): argument 'out' does not go with as_tuple=True");
  if (as_tuple) return nonzero_tuple(input);
  const px_op *op = EXT_OP("nonzero");
  void *into[4] = {out ? ext_need_tensor(out, "nonzero", "out") : NULL};
  if (!op || (out && !into[0])) return NULL;
  px_value args[] = {PX_T(t)};
  EXT_TRY(EXT_NOGIL(px_op_call(op, out ? PX_CALL_OUT : PX_CALL_NEW, args, into)));
  return ext_wrap(into[0]);
}

static PyObject *where_op;
// With one argument, nonzero(as_tuple=True); the rest is the op's.
EXT_FUNCTION(
    torch, where,
    "(condition: Tensor, input: Tensor | Number | None = None, other: Tensor | Number | None "
    "= None, *, out: Tensor | None = None) -> Tensor | tuple[Tensor, ...]",
    "Elements of `input` where the condition holds, and of `other` elsewhere. Of a condition "
    "alone, the\nindices where it holds, a tensor for each dimension.\n\n"
    ">>> torch.where(torch.tensor([True, False]), 1, 2)\n"
    "tensor([1, 2])\n") {
  bool alone = call->nargs == 1 && !(call->kwnames && PyTuple_GET_SIZE(call->kwnames));
  if (!alone) return PyObject_Vectorcall(where_op, call->args, (size_t)call->nargs, call->kwnames);
  return ext_need_tensor(call->args[0], "where", "condition") ? nonzero_tuple(call->args[0]) : NULL;
}
EXT_METHOD(tensor, where, "(condition: Tensor, other: Tensor | Number) -> Tensor",
           "torch.where(condition, self, other).") {
  EXT_ARGS(PyObject *, condition, other);
  PyObject *given[] = {condition, self, other};
  return PyObject_Vectorcall(where_op, given, 3, NULL);
}
static int find_where(PyObject *torch) {
  where_op = Py_XNewRef(ext_op_object('f', "where"));
  return where_op ? 0 : -1;
}
EXT_START(EXT_VALUES, find_where);

// px_resize_images for nn.functional.interpolate, which reads its arguments in Python.
EXT_FUNCTION(torch, _resize_images,
             "(input: Tensor, size: Sequence[int] | None, height_scale: float | None, width_scale: "
             "float | None, mode: str, align_corners: bool, depth_scale: float | None) -> Tensor",
             NULL) {
  px_tensor *input, *made;
  ext_ints size;
  double height_scale, width_scale, depth_scale;
  const char *mode;
  bool align_corners;
  EXT_BIND(input, size, height_scale, width_scale, mode, align_corners, depth_scale);
  bool sized = size.count > 0;
  EXT_TRY(px_resize_images(&made, input, sized ? size.items : NULL, sized ? size.count : 0,
                           isnan(height_scale) ? NULL : &height_scale,
                           isnan(width_scale) ? NULL : &width_scale, mode, align_corners,
                           isnan(depth_scale) ? NULL : &depth_scale));
  return ext_wrap(made);
}
