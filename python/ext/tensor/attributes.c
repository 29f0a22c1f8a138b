// SPDX-License-Identifier: Apache-2.0
// Attributes of Tensor: properties, gradient, transposes. Each is read from the core on access; the
// object caches none of them.
#include "bind/ext.h"

#define T(self) ext_tensor(self)

// ---- properties
EXT_GET(tensor_base, shape, "Size", ext_size(px_tensor_ndim(T(self)), px_tensor_sizes(T(self))),
        "The size of the tensor, a tuple of ints.");
EXT_GET(tensor_base, dtype, "dtype", ext_dtype(px_tensor_dtype(T(self))),
        "The dtype of the elements.");
EXT_GET(tensor_base, device, "device", px_tensor_device(T(self)),
        "The torch.device of the tensor.");
EXT_GET(tensor_base, ndim, "int", px_tensor_ndim(T(self)), "The number of dimensions.");
EXT_GET(tensor_base, is_cuda, "bool", px_tensor_is_cuda(T(self)),
        "True if the tensor is stored on a CUDA device.");
EXT_GET(tensor_base, is_cpu, "bool", (bool)(px_tensor_device(T(self)).type == PX_CPU),
        "True if the tensor is stored on the CPU.");
EXT_GET(tensor_base, is_meta, "bool", (bool)(px_tensor_device(T(self)).type == PX_META),
        "True for a meta tensor, which has shape and dtype but no data.");
EXT_GET(tensor_base, itemsize, "int", px_dtype_size(px_tensor_dtype(T(self))),
        "The size of an element in bytes.");
EXT_GET(tensor_base, nbytes, "int",
        px_tensor_numel(T(self)) * (int64_t)px_dtype_size(px_tensor_dtype(T(self))),
        "The size of all elements in bytes.");
EXT_GET(tensor_base, layout, "layout", ext_extension_attr("strided"),
        "torch.strided, the only layout.");
EXT_GET(tensor_base, name, "None", Py_NewRef(Py_None), "None.");

// Tensor kinds not supported.
EXT_GET(tensor_base, is_sparse, "bool", Py_NewRef(Py_False), "False: Phlox has no such tensors.");
EXT_ALIASES(tensor_base, tensor_base_attr_is_sparse, is_sparse_csr, is_quantized, is_mps, is_mkldnn,
            is_xpu, is_nested);

EXT_GETTER(tensor_base, names, "tuple",
           "A tuple with None for each dimension: named tensors are not supported.") {
  PyObject *names = PyTuple_New(px_tensor_ndim(T(self)));
  for (int i = 0; names && i < px_tensor_ndim(T(self)); i++)
    PyTuple_SET_ITEM(names, i, Py_NewRef(Py_None));
  return names;
}
EXT_GETTER(tensor_base, _version, "int", "The number of in-place modifications of the memory.") {
  if (px_tensor_is_inference(T(self)))
    EXT_FAIL(PyExc_RuntimeError, "Inference tensors do not track version counter.");
  return PyLong_FromUnsignedLongLong(px_tensor_version(T(self)));
}
EXT_GET(tensor_base, _base, "Tensor | None", ext_wrap_borrowed(px_tensor_base(T(self))),
        "The base tensor of a view, or None.");
EXT_RETURNS(tensor_base, _is_view, "bool", (bool)(px_tensor_base(T(self)) != NULL),
            "Returns True if the tensor is a view of another one.");

// ---- gradients
static const char *const non_leaf_grad =
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
    "attribute won't be populated during autograd.backward(). If you indeed want the .grad field "
    "to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you "
    "access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead. See "
    "github.com/pytorch/pytorch/pull/30531 for more information.";

EXT_SETTER(tensor_base, grad) {
  px_tensor *grad = NULL;
  if (!ext_is_none(value)) {
    if (!ext_is_tensor(value))
      EXT_FAIL_INT(PyExc_TypeError,
                   "assigned grad expected to be a Tensor or None but got grad of "
                   "type %s",
                   ext_type_name(value));
    if (value == self) EXT_FAIL_INT(PyExc_RuntimeError, "can't assign Variable as its own grad");
    grad = T(value);
  }
  return ext_zero(px_tensor_set_grad(T(self), grad));
}
EXT_GETTER_AND_SETTER(tensor_base, grad, "Tensor | None",
                      "The gradient accumulated by backward(), or None.") {
  px_tensor *grad;
  EXT_TRY(px_tensor_get_grad(&grad, T(self)));
  if (!grad && px_tensor_requires_grad(T(self)) && !px_tensor_is_leaf(T(self)) &&
      !px_tensor_retains_grad(T(self)) && PyErr_WarnEx(PyExc_UserWarning, non_leaf_grad, 1) < 0)
    return NULL;
  return ext_wrap(grad);
}
EXT_GETTER_AND_SETTER(tensor_base, _grad, "Tensor | None",
                      "Same as grad, without the warning for non-leaf tensors.") {
  px_tensor *grad;
  return ext_result(px_tensor_get_grad(&grad, T(self)), &grad);
}
EXT_SETTER(tensor_base, _grad) { return tensor_base_assign_grad(self, value, unused); }

EXT_GETTER(tensor_base, grad_fn, "Node | None",
           "The autograd node that created the tensor, or None.") {
  PX_SCOPED(px_node) node = NULL;
  EXT_TRY(px_tensor_get_grad_fn(&node, T(self)));
  return ext_node(node);
}
EXT_GETTER_AND_SETTER(tensor_base, requires_grad, "bool",
                      "True if gradients need to be computed for this tensor.") {
  return PyBool_FromLong(px_tensor_requires_grad(T(self)));
}
EXT_SETTER(tensor_base, requires_grad) {
  if (!value || !PyBool_Check(value))
    EXT_FAIL_INT(PyExc_RuntimeError, "requires_grad must be a bool");
  if (value == Py_True && !px_tensor_is_leaf(T(self)))
    EXT_FAIL_INT(PyExc_RuntimeError, "you can only change requires_grad flags of leaf variables.");
  if (value == Py_True && !px_dtype_is_differentiable(px_tensor_dtype(T(self))))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "only Tensors of floating point and complex dtype can require gradients");
  return ext_zero(px_tensor_set_requires_grad(T(self), value == Py_True));
}
EXT_GET(tensor_base, is_leaf, "bool", px_tensor_is_leaf(T(self)),
        "True for a leaf tensor: not the result of a recorded operation.");
EXT_GET(tensor_base, retains_grad, "bool", px_tensor_retains_grad(T(self)),
        "True if this non-leaf tensor populates its grad.");
EXT_GET(tensor_base, output_nr, "int", px_tensor_output_nr(T(self)),
        "The index of the tensor among the results of its node.");

EXT_GETTER_AND_SETTER(
    tensor_base, data, "Tensor",
    "A tensor sharing the memory without history. Assignment replaces memory, dtype and size.") {
  px_tensor *alias = NULL;
  return ext_result(px_tensor_alias(&alias, T(self)), &alias);
}
EXT_SETTER(tensor_base, data) {
  px_tensor *data = ext_need_tensor(value, "set_data", "data");
  if (!data) return -1;
  if (px_tensor_requires_grad(T(self)) && !px_dtype_is_differentiable(px_tensor_dtype(data)))
    EXT_FAIL_INT(
        PyExc_RuntimeError,
        "data set to a tensor that requires gradients must be floating point or complex dtype");
  return ext_zero(EXT_NOGIL(px_tensor_set_data(T(self), data)));
}

// ---- transposes
static PyObject *transposed(PyObject *self, int a, int b) {
  return ext_op_named(EXT_OP("transpose"), PX_CALL_NEW, 3,
                      (ext_named[]){{"self", PX_T(T(self))}, {"dim0", PX_I(a)}, {"dim1", PX_I(b)}});
}
EXT_GETTER(tensor_base, T, "Tensor", "Returns a view with all dimensions reversed.") {
  int ndim = px_tensor_ndim(T(self));
  int64_t dims[PX_MAX_DIMS];
  for (int i = 0; i < ndim; i++) dims[i] = ndim - 1 - i;
  return ext_op_named(EXT_OP("permute"), PX_CALL_NEW, 2,
                      (ext_named[]){{"self", PX_T(T(self))}, {"dims", PX_IS(dims, ndim)}});
}
EXT_GETTER(tensor_base, mT, "Tensor", "Returns a view with the last two dimensions transposed.") {
  int ndim = px_tensor_ndim(T(self));
  if (ndim == 0) return Py_NewRef(self);
  if (ndim < 2)
    EXT_FAIL(PyExc_RuntimeError,
             "tensor.mT is only supported on matrices or batches of matrices. Got %d-D tensor.",
             ndim);
  return transposed(self, -2, -1);
}
// Also conjugates complex matrices.
static PyObject *adjoint(PyObject *self) {
  return ext_op_named(EXT_OP("adjoint"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(T(self))}});
}
EXT_GETTER(tensor_base, mH, "Tensor",
           "Returns a view with the last two dimensions transposed, conjugated if complex.") {
  int ndim = px_tensor_ndim(T(self));
  if (ndim == 1)
    EXT_FAIL(PyExc_RuntimeError,
             "tensor.mH is only supported on matrices or batches of matrices. Got %d-D tensor.",
             ndim);
  return adjoint(self);
}
EXT_GETTER(tensor_base, H, "Tensor",
           "Returns a view of a matrix transposed, conjugated if complex.") {
  int ndim = px_tensor_ndim(T(self));
  if (ndim == 0) return Py_NewRef(self);
  if (ndim != 2)
    EXT_FAIL(PyExc_RuntimeError,
             "tensor.H is only supported on matrices (2-D tensors). Got %d-D tensor.%s", ndim,
             ndim > 2 ? " For batches of matrices, consider using tensor.mH" : "");
  return adjoint(self);
}
// Defines `real` and `imag` by the ops of these names, which return views. Assignment copies into
// the view, so autograd records it.
#define PART(name, text) \
  EXT_GETTER_AND_SETTER(tensor_base, name, "Tensor", text) { \
    return ext_op_named(EXT_OP(#name), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(T(self))}}); \
  } \
  EXT_SETTER(tensor_base, name) { return put_part(tensor_base_attr_##name(self, NULL), value); } \
  struct ext_row
static int put_part(PyObject *part_take, PyObject *value) {
  EXT_OWNED *part = part_take;
  if (!part) return -1;
  if (!value)
    EXT_FAIL_INT(PyExc_RuntimeError, "cannot delete the real or imaginary part of a tensor");
  return PyObject_SetItem(part, Py_Ellipsis, value);
}
PART(real, "The real part; self for a real tensor.");
PART(imag, "The imaginary part. Raises TypeError for a real tensor.");

// ---- for Python and other libraries
EXT_GET(tensor_base, __dict__, "dict", PyObject_GenericGetDict(self, NULL), NULL);
// Makes NumPy arrays leave mixed operations to the tensor.
EXT_GET(tensor_base, __array_priority__, "int", 1000, NULL);
