// SPDX-License-Identifier: Apache-2.0
// Attributes of Tensor: what it is, its gradient, its transposes. Each is read from the core when
// it is asked for; the object keeps none of them.
#include "ext.h"

#define T(self) ext_tensor(self)

// ---- what it is
EXT_GET(tensor_base, shape, "Size", ext_size(px_tensor_ndim(T(self)), px_tensor_sizes(T(self))),
        "The sizes, a tuple of ints.");
EXT_GET(tensor_base, dtype, "dtype", ext_dtype(px_tensor_dtype(T(self))),
        "The type of the elements.");
EXT_GET(tensor_base, device, "device", px_tensor_device(T(self)), "Where the memory is.");
EXT_GET(tensor_base, ndim, "int", px_tensor_ndim(T(self)), "Number of dimensions.");
EXT_GET(tensor_base, is_cuda, "bool", px_tensor_is_cuda(T(self)),
        "Whether it is on a device of type cuda.");
EXT_GET(tensor_base, is_cpu, "bool", (bool)(px_tensor_device(T(self)).type == PX_CPU),
        "Whether it is in the host's memory.");
EXT_GET(tensor_base, is_meta, "bool", (bool)(px_tensor_device(T(self)).type == PX_META),
        "Whether it has no memory, only a shape and a dtype.");
EXT_GET(tensor_base, itemsize, "int", px_dtype_size(px_tensor_dtype(T(self))),
        "Bytes of an element.");
EXT_GET(tensor_base, nbytes, "int",
        px_tensor_numel(T(self)) * (int64_t)px_dtype_size(px_tensor_dtype(T(self))),
        "Bytes of all elements.");
EXT_GET(tensor_base, layout, "layout", ext_extension_attr("strided"),
        "torch.strided: there is no other.");
EXT_GET(tensor_base, name, "None", Py_NewRef(Py_None), "None.");

// What no tensor of Phlox is.
EXT_GET(tensor_base, is_sparse, "bool", Py_NewRef(Py_False), "False: Phlox has no such tensors.");
EXT_ALIASES(tensor_base, tensor_base_attr_is_sparse, is_sparse_csr, is_quantized, is_mps, is_mkldnn,
            is_xpu, is_nested);

EXT_GETTER(tensor_base, names, "tuple", "A None for each dimension: names are not supported.") {
  PyObject *names = PyTuple_New(px_tensor_ndim(T(self)));
  for (int i = 0; names && i < px_tensor_ndim(T(self)); i++)
    PyTuple_SET_ITEM(names, i, Py_NewRef(Py_None));
  return names;
}
EXT_GETTER(tensor_base, _version, "int", "How often the memory was changed in place.") {
  if (px_tensor_is_inference(T(self)))
    EXT_FAIL(PyExc_RuntimeError, "Inference tensors do not track version counter.");
  return PyLong_FromUnsignedLongLong(px_tensor_version(T(self)));
}
EXT_GET(tensor_base, _base, "Tensor | None", ext_wrap_borrowed(px_tensor_base(T(self))),
        "The tensor that this is a view of, or None.");
EXT_RETURNS(tensor_base, _is_view, "bool", (bool)(px_tensor_base(T(self)) != NULL),
            "Whether it is a view of another tensor.");

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
EXT_GETTER_AND_SETTER(
    tensor_base, grad, "Tensor | None",
    "The gradient that backward() added up, of a leaf that requires one, or None.") {
  px_tensor *grad = px_tensor_grad(T(self));
  if (!grad && px_tensor_requires_grad(T(self)) && !px_tensor_is_leaf(T(self)) &&
      !px_tensor_retains_grad(T(self)) && PyErr_WarnEx(PyExc_UserWarning, non_leaf_grad, 1) < 0)
    return NULL;
  return ext_wrap_borrowed(grad);
}
EXT_GETTER_AND_SETTER(tensor_base, _grad, "Tensor | None", "grad, without the warning.") {
  return ext_wrap_borrowed(px_tensor_grad(T(self)));
}
EXT_SETTER(tensor_base, _grad) { return tensor_base_assign_grad(self, value, unused); }

EXT_GETTER(tensor_base, grad_fn, "Node | None", "The node of the graph that made it, or None.") {
  px_node *node = NULL;
  EXT_TRY(px_tensor_grad_fn(&node, T(self)));
  return ext_node(node);
}
EXT_GETTER_AND_SETTER(tensor_base, requires_grad, "bool",
                      "Whether operations on it are recorded, for gradients.") {
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
        "Whether no recorded operation made it.");
EXT_GET(tensor_base, retains_grad, "bool", px_tensor_retains_grad(T(self)),
        "Whether grad is kept though it is no leaf.");
EXT_GET(tensor_base, output_nr, "int", px_tensor_output_nr(T(self)),
        "Which of its node's results it is.");

EXT_GETTER_AND_SETTER(
    tensor_base, data, "Tensor",
    "The same memory without history; assigning replaces memory, dtype and sizes.") {
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
  return ext_zero(px_tensor_set_data(T(self), data));
}

// ---- transposes
static PyObject *transposed(PyObject *self, int a, int b) {
  return ext_op_named(EXT_OP("transpose"), PX_CALL_NEW, 3,
                      (ext_named[]){{"self", PX_T(T(self))}, {"dim0", PX_I(a)}, {"dim1", PX_I(b)}});
}
EXT_GETTER(tensor_base, T, "Tensor", "The view with all dimensions reversed.") {
  int ndim = px_tensor_ndim(T(self));
  int64_t dims[PX_MAX_DIMS];
  for (int i = 0; i < ndim; i++) dims[i] = ndim - 1 - i;
  return ext_op_named(EXT_OP("permute"), PX_CALL_NEW, 2,
                      (ext_named[]){{"self", PX_T(T(self))}, {"dims", PX_IS(dims, ndim)}});
}
EXT_GETTER(tensor_base, mT, "Tensor", "The view with the last two dimensions exchanged.") {
  int ndim = px_tensor_ndim(T(self));
  if (ndim == 0) return Py_NewRef(self);
  if (ndim < 2)
    EXT_FAIL(PyExc_RuntimeError,
             "tensor.mT is only supported on matrices or batches of matrices. Got %d-D tensor.",
             ndim);
  return transposed(self, -2, -1);
}
// Complex matrices are conjugated too.
static PyObject *adjoint(PyObject *self) {
  return ext_op_named(EXT_OP("adjoint"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(T(self))}});
}
EXT_GETTER(tensor_base, mH, "Tensor",
           "The view with the last two dimensions exchanged, of complex numbers conjugated.") {
  int ndim = px_tensor_ndim(T(self));
  if (ndim == 1)
    EXT_FAIL(PyExc_RuntimeError,
             "tensor.mH is only supported on matrices or batches of matrices. Got %d-D tensor.",
             ndim);
  return adjoint(self);
}
EXT_GETTER(tensor_base, H, "Tensor", "A matrix transposed, of complex numbers conjugated.") {
  int ndim = px_tensor_ndim(T(self));
  if (ndim == 0) return Py_NewRef(self);
  if (ndim != 2)
    EXT_FAIL(PyExc_RuntimeError,
             "tensor.H is only supported on matrices (2-D tensors). Got %d-D tensor.%s", ndim,
             ndim > 2 ? " For batches of matrices, consider using tensor.mH" : "");
  return adjoint(self);
}
// The op of that name: the parts of complex numbers, which are views. Of a real tensor it is the
// tensor itself, so that what is written to it is recorded there.
#define PART(name, text) \
  EXT_GETTER_AND_SETTER(tensor_base, name, "Tensor", text) { \
    return ext_op_named(EXT_OP(#name), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(T(self))}}); \
  } \
  EXT_SETTER(tensor_base, name) { return put_part(tensor_base_attr_##name(self, NULL), value); } \
  struct ext_row
static int put_part(PyObject *part_take, PyObject *value) {
  EXT_OWNED *part = part_take;
  if (!part) return -1;
  if (!value) EXT_FAIL_INT(PyExc_RuntimeError, "a part of a tensor cannot be deleted");
  return PyObject_SetItem(part, Py_Ellipsis, value);
}
PART(real, "The real parts; of a real tensor itself.");
PART(imag, "The imaginary parts. Raises TypeError for a real tensor.");

// ---- for Python and other libraries
EXT_GET(tensor_base, __dict__, "dict", PyObject_GenericGetDict(self, NULL), NULL);
// So that an array of NumPy's leaves an operation with a tensor to the tensor.
EXT_GET(tensor_base, __array_priority__, "int", 1000, NULL);
