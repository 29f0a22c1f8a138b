// SPDX-License-Identifier: Apache-2.0
// Attributes of Tensor.
#include "ext.h"

#define T(self) ext_tensor(self)

static PyObject *get_shape(PyObject *self, void *unused) {
  return ext_size(px_tensor_ndim(T(self)), px_tensor_sizes(T(self)));
}
static PyObject *get_dtype(PyObject *self, void *unused) {
  return ext_dtype(px_tensor_dtype(T(self)));
}
static PyObject *get_device(PyObject *self, void *unused) {
  return ext_device(px_tensor_device(T(self)));
}
static PyObject *get_ndim(PyObject *self, void *unused) {
  return PyLong_FromLong(px_tensor_ndim(T(self)));
}
static PyObject *get_is_cuda(PyObject *self, void *unused) {
  return PyBool_FromLong(px_tensor_is_cuda(T(self)));
}
static PyObject *get_is_cpu(PyObject *self, void *unused) {
  return PyBool_FromLong(!px_tensor_is_cuda(T(self)));
}
static PyObject *get_false(PyObject *self, void *unused) { Py_RETURN_FALSE; }
static PyObject *get_none(PyObject *self, void *unused) { Py_RETURN_NONE; }
static PyObject *get_layout(PyObject *self, void *unused) {
  EXT_OWNED *module = PyImport_ImportModule("phlox._C");
  return module ? PyObject_GetAttrString(module, "strided") : NULL;
}
static PyObject *get_version(PyObject *self, void *unused) {
  if (px_tensor_is_inference(T(self)))
    EXT_FAIL(PyExc_RuntimeError, "Inference tensors do not track version counter.");
  return PyLong_FromUnsignedLongLong(px_tensor_version(T(self)));
}
static PyObject *get_base(PyObject *self, void *unused) {
  return ext_wrap_borrowed(px_tensor_base(T(self)));
}
static PyObject *get_output_nr(PyObject *self, void *unused) {
  return PyLong_FromLong(px_tensor_output_nr(T(self)));
}
static PyObject *get_itemsize(PyObject *self, void *unused) {
  return PyLong_FromSize_t(px_dtype_size(px_tensor_dtype(T(self))));
}
static PyObject *get_nbytes(PyObject *self, void *unused) {
  return PyLong_FromLongLong(px_tensor_numel(T(self)) *
                             (int64_t)px_dtype_size(px_tensor_dtype(T(self))));
}
static PyObject *get_names(PyObject *self, void *unused) {
  PyObject *names = PyTuple_New(px_tensor_ndim(T(self)));
  for (int i = 0; names && i < px_tensor_ndim(T(self)); i++)
    PyTuple_SET_ITEM(names, i, Py_NewRef(Py_None));
  return names;
}

// ---- gradients
static const char *const non_leaf_grad =
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
    "attribute won't be populated during autograd.backward(). If you indeed want the .grad field "
    "to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you "
    "access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead. See "
    "github.com/pytorch/pytorch/pull/30531 for more information.";

static PyObject *get_grad(PyObject *self, void *unused) {
  px_tensor *grad = px_tensor_grad(T(self));
  if (!grad && px_tensor_requires_grad(T(self)) && !px_tensor_is_leaf(T(self)) &&
      !px_tensor_retains_grad(T(self)) && PyErr_WarnEx(PyExc_UserWarning, non_leaf_grad, 1) < 0)
    return NULL;
  return ext_wrap_borrowed(grad);
}
static PyObject *get_grad_silent(PyObject *self, void *unused) {
  return ext_wrap_borrowed(px_tensor_grad(T(self)));
}

static int set_grad(PyObject *self, PyObject *value, void *unused) {
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
  EXT_TRY_INT(px_tensor_set_grad(T(self), grad));
  return 0;
}

static PyObject *get_grad_fn(PyObject *self, void *unused) {
  px_node *node = NULL;
  EXT_TRY(px_tensor_grad_fn(&node, T(self)));
  return ext_node(node);
}
static PyObject *get_requires_grad(PyObject *self, void *unused) {
  return PyBool_FromLong(px_tensor_requires_grad(T(self)));
}
static int set_requires_grad(PyObject *self, PyObject *value, void *unused) {
  if (!value || !PyBool_Check(value))
    EXT_FAIL_INT(PyExc_RuntimeError, "requires_grad must be a bool");
  EXT_TRY_INT(px_tensor_set_requires_grad(T(self), value == Py_True));
  return 0;
}
static PyObject *get_is_leaf(PyObject *self, void *unused) {
  return PyBool_FromLong(px_tensor_is_leaf(T(self)));
}
static PyObject *get_retains_grad(PyObject *self, void *unused) {
  return PyBool_FromLong(px_tensor_retains_grad(T(self)));
}

static PyObject *get_data(PyObject *self, void *unused) {
  px_tensor *alias = NULL;
  EXT_TRY(px_tensor_alias(&alias, T(self)));
  return ext_wrap(alias);
}
static int set_data(PyObject *self, PyObject *value, void *unused) {
  px_tensor *data = ext_need_tensor(value, "set_data", "data");
  if (!data) return -1;
  if (px_tensor_requires_grad(T(self)) && !px_dtype_is_float(px_tensor_dtype(data)))
    EXT_FAIL_INT(
        PyExc_RuntimeError,
        "data set to a tensor that requires gradients must be floating point or complex dtype");
  EXT_TRY_INT(px_tensor_set_data(T(self), data));
  return 0;
}

// ---- transposes
static PyObject *transposed(PyObject *self, int a, int b) {
  return ext_op_named(EXT_OP("transpose"), PX_CALL_NEW, 3,
                      (ext_named[]){{"self", PX_T(T(self))}, {"dim0", PX_I(a)}, {"dim1", PX_I(b)}});
}
static PyObject *get_T(PyObject *self, void *unused) {
  int ndim = px_tensor_ndim(T(self));
  int64_t dims[PX_MAX_DIMS];
  for (int i = 0; i < ndim; i++) dims[i] = ndim - 1 - i;
  return ext_op_named(EXT_OP("permute"), PX_CALL_NEW, 2,
                      (ext_named[]){{"self", PX_T(T(self))}, {"dims", PX_IS(dims, ndim)}});
}
static PyObject *get_mT(PyObject *self, void *unused) {
  if (px_tensor_ndim(T(self)) < 2)
    EXT_FAIL(PyExc_RuntimeError,
             "tensor.mT is only supported on matrices or batches of matrices. Got %d-D tensor.",
             px_tensor_ndim(T(self)));
  return transposed(self, -2, -1);
}
static PyObject *get_H(PyObject *self, void *unused) {
  int ndim = px_tensor_ndim(T(self));
  if (ndim == 0) return Py_NewRef(self);
  if (ndim != 2)
    EXT_FAIL(PyExc_RuntimeError,
             "tensor.H is only supported on matrices (2-D tensors). Got %d-D tensor.", ndim);
  return transposed(self, 0, 1);
}
static PyObject *get_real(PyObject *self, void *unused) { return Py_NewRef(self); }

static PyObject *get_array_interface(PyObject *self, void *unused) {
  const px_tensor *t = T(self);
  char text[48];
  if (!px_tensor_is_cuda(t))
    EXT_FAIL(PyExc_AttributeError,
             "Can't get __cuda_array_interface__ on non-CUDA tensor type: %s If CUDA data is "
             "required use tensor.cuda() to copy tensor to device memory.",
             px_tensor_type_name(t, text));
  if (px_tensor_requires_grad(t))
    EXT_FAIL(PyExc_RuntimeError,
             "Can't get __cuda_array_interface__ on Variable that requires "
             "grad. If gradients aren't required, use var.detach() to get "
             "Variable that doesn't require grad.");
  px_dtype dtype = px_tensor_dtype(t);
  size_t size = px_dtype_size(dtype);
  char typestr[8];
  snprintf(typestr, sizeof typestr, "%c%c%zu", size == 1 ? '|' : '<',
           dtype == PX_BOOL           ? 'b'
           : px_dtype_is_float(dtype) ? 'f'
           : dtype == PX_UINT8        ? 'u'
                                      : 'i',
           size);
  EXT_OWNED *sizes = get_shape(self, NULL);
  EXT_OWNED *list = sizes ? PySequence_List(sizes) : NULL;
  EXT_OWNED *shape = list ? PyList_AsTuple(list) : NULL;
  if (!shape) return NULL;
  EXT_OWNED *strides = Py_NewRef(Py_None);
  if (!px_tensor_is_contiguous(t)) {
    Py_SETREF(strides, PyTuple_New(px_tensor_ndim(t)));
    for (int i = 0; strides && i < px_tensor_ndim(t); i++)
      PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(px_tensor_strides(t)[i] * (int64_t)size));
  }
  void *data = px_tensor_numel(t) ? px_tensor_data(t) : NULL;
  return Py_BuildValue("{s:s,s:O,s:O,s:i,s:(NO)}", "typestr", typestr, "shape", shape, "strides",
                       strides, "version", 2, "data", PyLong_FromVoidPtr(data), Py_False);
}
static PyObject *get_array_priority(PyObject *self, void *unused) { return PyLong_FromLong(1000); }

static PyObject *get_dict(PyObject *self, void *unused) {
  return PyObject_GenericGetDict(self, NULL);
}

#define READ(name, function) \
  { name, function, NULL, NULL, NULL }
PyGetSetDef ext_tensor_getset[] = {
    READ("shape", get_shape),
    READ("dtype", get_dtype),
    READ("device", get_device),
    READ("ndim", get_ndim),
    READ("is_cuda", get_is_cuda),
    READ("is_cpu", get_is_cpu),
    READ("is_sparse", get_false),
    READ("is_sparse_csr", get_false),
    READ("is_quantized", get_false),
    READ("is_meta", get_false),
    READ("is_mps", get_false),
    READ("is_mkldnn", get_false),
    READ("is_xpu", get_false),
    READ("is_nested", get_false),
    READ("layout", get_layout),
    READ("_version", get_version),
    READ("_base", get_base),
    READ("output_nr", get_output_nr),
    READ("itemsize", get_itemsize),
    READ("nbytes", get_nbytes),
    READ("names", get_names),
    READ("name", get_none),
    {"grad", get_grad, set_grad, NULL, NULL},
    {"_grad", get_grad_silent, set_grad, NULL, NULL},
    READ("grad_fn", get_grad_fn),
    {"requires_grad", get_requires_grad, set_requires_grad, NULL, NULL},
    READ("is_leaf", get_is_leaf),
    READ("retains_grad", get_retains_grad),
    {"data", get_data, set_data, NULL, NULL},
    READ("T", get_T),
    READ("mT", get_mT),
    READ("H", get_H),
    READ("mH", get_mT),
    READ("real", get_real),
    READ("__cuda_array_interface__", get_array_interface),
    READ("__array_priority__", get_array_priority),
    READ("__dict__", get_dict),
    {NULL, NULL, NULL, NULL, NULL}};
