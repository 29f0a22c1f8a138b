// SPDX-License-Identifier: Apache-2.0
// Methods of Tensor that are no ops: its geometry, its values as Python objects, gradients, copies
// and pickles.
#include "ext.h"

#include <string.h>

#define T(self) ext_tensor(self)

// ---- geometry
// An argument that names a dimension: 0 to ndim - 1, or -ndim to -1 from the end.
static int dim_of(PyObject *given, int ndim, int *dim) {
  int64_t at;
  if (ext_to_int(given, &at) < 0) return -1;
  if (!ndim)
    EXT_FAIL_INT(PyExc_IndexError, "Dimension specified as %lld but tensor has no dimensions",
                 (long long)at);
  if (at < -ndim || at >= ndim)
    EXT_FAIL_INT(PyExc_IndexError,
                 "Dimension out of range (expected to be in range of [%d, %d], but got %lld)",
                 -ndim, ndim - 1, (long long)at);
  *dim = (int)(at < 0 ? at + ndim : at);
  return 0;
}
EXT_FAST(tensor_size) {
  EXT_ARGS("size", "|dim", out);
  const px_tensor *t = T(self);
  int ndim = px_tensor_ndim(t), dim;
  if (ext_is_none(out[0])) return ext_size(ndim, px_tensor_sizes(t));
  if (dim_of(out[0], ndim, &dim) < 0) return NULL;
  return PyLong_FromLongLong(px_tensor_size(t, dim));
}
EXT_FAST(tensor_stride) {
  EXT_ARGS("stride", "|dim", out);
  const px_tensor *t = T(self);
  int ndim = px_tensor_ndim(t), dim;
  if (!ext_is_none(out[0])) {
    if (dim_of(out[0], ndim, &dim) < 0) return NULL;
    return PyLong_FromLongLong(px_tensor_strides(t)[dim]);
  }
  PyObject *tuple = PyTuple_New(ndim);
  for (int i = 0; tuple && i < ndim; i++)
    PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(px_tensor_strides(t)[i]));
  return tuple;
}

static PyObject *tensor_dim(PyObject *self, PyObject *u) {
  return PyLong_FromLong(px_tensor_ndim(T(self)));
}
static PyObject *tensor_numel(PyObject *self, PyObject *u) {
  return PyLong_FromLongLong(px_tensor_numel(T(self)));
}
static PyObject *tensor_element_size(PyObject *self, PyObject *u) {
  return PyLong_FromSize_t(px_dtype_size(px_tensor_dtype(T(self))));
}
static PyObject *tensor_storage_offset(PyObject *self, PyObject *u) {
  return PyLong_FromLongLong(px_tensor_offset(T(self)));
}
static PyObject *tensor_data_ptr(PyObject *self, PyObject *u) {
  return PyLong_FromVoidPtr(px_tensor_numel(T(self)) ? px_tensor_data(T(self)) : NULL);
}
EXT_FAST(tensor_is_contiguous) {
  EXT_ARGS("is_contiguous", "|memory_format", out);
  return PyBool_FromLong(px_tensor_is_contiguous(T(self)));
}
static PyObject *tensor_get_device(PyObject *self, PyObject *u) {
  px_device device = px_tensor_device(T(self));
  return PyLong_FromLong(device.type == PX_CUDA ? device.index : -1);
}
static PyObject *tensor_is_floating_point(PyObject *self, PyObject *u) {
  return PyBool_FromLong(px_dtype_is_float(px_tensor_dtype(T(self))));
}
static PyObject *tensor_false(PyObject *self, PyObject *u) { Py_RETURN_FALSE; }
static PyObject *tensor_is_signed(PyObject *self, PyObject *u) {
  px_dtype dtype = px_tensor_dtype(T(self));
  return PyBool_FromLong(dtype != PX_BOOL && dtype != PX_UINT8);
}
static PyObject *tensor_is_inference(PyObject *self, PyObject *u) {
  return PyBool_FromLong(px_tensor_is_inference(T(self)));
}
static PyObject *tensor_self(PyObject *self, PyObject *u) { return Py_NewRef(self); }

static PyObject *tensor_is_same_size(PyObject *self, PyObject *other) {
  px_tensor *o = ext_need_tensor(other, "is_same_size", "other"), *t = T(self);
  if (!o) return NULL;
  int ndim = px_tensor_ndim(t);
  return PyBool_FromLong(
      ndim == px_tensor_ndim(o) &&
      !memcmp(px_tensor_sizes(t), px_tensor_sizes(o), (size_t)ndim * sizeof(int64_t)));
}
static PyObject *tensor_is_set_to(PyObject *self, PyObject *other) {
  px_tensor *o = ext_need_tensor(other, "is_set_to", "tensor"), *t = T(self);
  if (!o) return NULL;
  return PyBool_FromLong(px_tensor_storage(t) == px_tensor_storage(o) &&
                         px_tensor_offset(t) == px_tensor_offset(o) &&
                         px_tensor_numel(t) == px_tensor_numel(o));
}

EXT_FAST(tensor_resize) {
  ext_ints sizes = {.count = 0};
  if (kwnames && PyTuple_GET_SIZE(kwnames))
    EXT_FAIL(PyExc_TypeError, "resize_() got an unexpected keyword argument '%U'",
             PyTuple_GET_ITEM(kwnames, 0));
  EXT_OWNED *given = nargs == 1 ? Py_NewRef(args[0]) : PyTuple_New(nargs);
  for (Py_ssize_t i = 0; nargs != 1 && given && i < nargs; i++)
    PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
  if (!given || ext_to_ints(given, &sizes) < 0) return NULL;
  if (px_tensor_requires_grad(T(self)))
    EXT_FAIL(PyExc_RuntimeError, "cannot resize variables that require grad");
  EXT_TRY(px_tensor_resize(T(self), sizes.count, sizes.items));
  return Py_NewRef(self);
}

static PyObject *view_with(PyObject *self, PyObject *other, const char *op, const char *function) {
  px_tensor *o = ext_need_tensor(other, function, "other");
  if (!o) return NULL;
  PyObject *method = ext_op_object('m', op);
  if (!method) EXT_FAIL(PyExc_NotImplementedError, "%s", function);
  EXT_OWNED *size = ext_size(px_tensor_ndim(o), px_tensor_sizes(o));
  PyObject *args[] = {self, size};
  return size ? PyObject_Vectorcall(method, args, 2, NULL) : NULL;
}
static PyObject *tensor_view_as(PyObject *self, PyObject *other) {
  return view_with(self, other, "view", "view_as");
}
static PyObject *tensor_reshape_as(PyObject *self, PyObject *other) {
  return view_with(self, other, "reshape", "reshape_as");
}
static PyObject *tensor_expand_as(PyObject *self, PyObject *other) {
  return view_with(self, other, "expand", "expand_as");
}

// ---- values
static PyObject *tensor_item(PyObject *self, PyObject *u) {
  px_scalar scalar;
  EXT_WAIT(px_tensor_item(&scalar, T(self)));
  return ext_scalar(scalar);
}

PyObject *ext_scalar(px_scalar s) {
  return s.kind == 'f'   ? PyFloat_FromDouble(s.v.f)
         : s.kind == 'b' ? PyBool_FromLong(px_scalar_int(s) != 0)
                         : PyLong_FromLongLong(s.v.i);
}

// Lists of lists from row-major memory.
static PyObject *list_of(const char **at, px_dtype dtype, int ndim, const int64_t *sizes) {
  if (ndim == 0) {
    px_scalar scalar = px_scalar_load(dtype, *at);
    *at += px_dtype_size(dtype);
    return ext_scalar(scalar);
  }
  PyObject *list = PyList_New((Py_ssize_t)sizes[0]);
  for (int64_t i = 0; list && i < sizes[0]; i++) {
    PyObject *item = list_of(at, dtype, ndim - 1, sizes + 1);
    if (!item) Py_CLEAR(list);
    if (list) PyList_SET_ITEM(list, i, item);
  }
  return list;
}

// All elements in row-major order; freed by the caller with PyMem_Free.
static void *read_all(const px_tensor *t, size_t *bytes) {
  *bytes = (size_t)px_tensor_numel(t) * px_dtype_size(px_tensor_dtype(t));
  void *memory = PyMem_Malloc(*bytes ? *bytes : 1);
  if (!memory) return PyErr_NoMemory(), NULL;
  if (EXT_NOGIL(px_tensor_read(t, memory, *bytes)) != PX_OK) {
    PyMem_Free(memory);
    return ext_raise();
  }
  return memory;
}

static PyObject *tensor_tolist(PyObject *self, PyObject *u) {
  size_t bytes;
  void *memory = read_all(T(self), &bytes);
  if (!memory) return NULL;
  const char *at = memory;
  PyObject *list =
      list_of(&at, px_tensor_dtype(T(self)), px_tensor_ndim(T(self)), px_tensor_sizes(T(self)));
  PyMem_Free(memory);
  return list;
}

static PyObject *tensor_format(PyObject *self, PyObject *spec) {
  if (px_tensor_ndim(T(self)) == 0 && Py_IS_TYPE(self, ext_TensorType)) {
    EXT_OWNED *item = tensor_item(self, NULL);
    return item ? PyObject_Format(item, spec) : NULL;
  }
  if (PyUnicode_GetLength(spec) > 0)
    EXT_FAIL(PyExc_TypeError, "unsupported format string passed to %s.__format__",
             ext_type_name(self));
  return PyObject_Str(self);
}

static PyObject *tensor_reversed(PyObject *self, PyObject *u) {
  int64_t dim = 0;
  if (px_tensor_ndim(T(self)) == 0) return Py_NewRef(self);
  return ext_op_named(EXT_OP("flip"), PX_CALL_NEW, 2,
                      (ext_named[]){{"self", PX_T(T(self))}, {"dims", PX_IS(&dim, 1)}});
}

// apply_(f): each element replaced by f(element); map_(other, f): by f(element, other's).
static PyObject *apply_values(PyObject *self, PyObject *other, PyObject *function) {
  px_tensor *t = T(self);
  if (px_tensor_is_cuda(t)) EXT_FAIL(PyExc_TypeError, "apply_ is only implemented on CPU tensors");
  if (px_tensor_requires_grad(t))
    EXT_FAIL(PyExc_RuntimeError,
             "Can't call apply_() on Variable that requires grad. Use "
             "var.detach().apply_() instead.");
  size_t bytes, more = 0, size = px_dtype_size(px_tensor_dtype(t));
  char *mine = read_all(t, &bytes), *theirs = mine && other ? read_all(T(other), &more) : NULL;
  bool good = mine && (!other || theirs);
  if (good && other && (more != bytes || px_tensor_dtype(T(other)) != px_tensor_dtype(t))) {
    PyErr_SetString(PyExc_RuntimeError, "map_: the tensors differ in size or dtype");
    good = false;
  }
  for (size_t at = 0; good && at < bytes; at += size) {
    EXT_OWNED *a = ext_scalar(px_scalar_load(px_tensor_dtype(t), mine + at));
    EXT_OWNED *b = theirs ? ext_scalar(px_scalar_load(px_tensor_dtype(t), theirs + at)) : NULL;
    EXT_OWNED *result = PyObject_CallFunctionObjArgs(function, a, b, NULL);
    px_scalar value;
    good = result && ext_to_scalar(result, &value) == 0;
    if (good) px_scalar_store(value, px_tensor_dtype(t), mine + at);
  }
  PX_SCOPED(px_tensor) changed = NULL;
  if (good && px_tensor_from_data(&changed, mine, px_tensor_ndim(t), px_tensor_sizes(t),
                                  px_tensor_dtype(t), px_cpu()) != PX_OK) {
    ext_raise();
    good = false;
  }
  PyMem_Free(mine);
  PyMem_Free(theirs);
  if (!good) return NULL;
  return ext_op_named(EXT_OP("copy"), PX_CALL_INPLACE, 2,
                      (ext_named[]){{"self", PX_T(t)}, {"src", PX_T(changed)}});
}
static PyObject *tensor_apply(PyObject *self, PyObject *function) {
  return apply_values(self, NULL, function);
}
EXT_FAST(tensor_map) {
  EXT_ARGS("map_", "tensor callable", out);
  if (!ext_need_tensor(out[0], "map_", "tensor")) return NULL;
  return apply_values(self, out[0], out[1]);
}

// ---- gradients
static PyObject *tensor_detach(PyObject *self, PyObject *u) {
  px_tensor *detached = NULL;
  EXT_TRY(px_tensor_detach(&detached, T(self)));
  return ext_wrap_as(ext_TensorType, detached);
}
static PyObject *tensor_detach_(PyObject *self, PyObject *u) {
  EXT_TRY(px_tensor_detach_inplace(T(self)));
  return Py_NewRef(self);
}
EXT_FAST(tensor_requires_grad_) {
  EXT_ARGS("requires_grad_", "|requires_grad", out);
  int wanted = ext_to_bool(out[0], true);
  if (wanted < 0) return NULL;
  EXT_TRY(px_tensor_set_requires_grad(T(self), wanted));
  return Py_NewRef(self);
}
static PyObject *tensor_retain_grad(PyObject *self, PyObject *u) {
  EXT_TRY(px_tensor_retain_grad(T(self)));
  Py_RETURN_NONE;
}
static PyObject *tensor_register_hook(PyObject *self, PyObject *hook) {
  return ext_tensor_register_hook(self, hook, false);
}
static PyObject *tensor_register_accumulated(PyObject *self, PyObject *hook) {
  return ext_tensor_register_hook(self, hook, true);
}

EXT_FAST(tensor_backward) {
  EXT_ARGS("backward", "|gradient retain_graph create_graph inputs", out);
  px_tensor *output = T(self), *gradient = NULL;
  if (!ext_is_none(out[0])) {
    gradient = ext_need_tensor(out[0], "backward", "gradient");
    if (!gradient) return NULL;
  }
  return ext_backward(1, &output, &gradient, out[1], out[2], out[3]);
}

// ---- copies and pickles. A pickle names its type as None (Tensor), True (Parameter), or by class.
// The copy of a whole storage, as a flat tensor; the memo keeps it, so that the copies of tensors
// that share memory share memory.
static PyObject *storage_copy(px_tensor *t, PyObject *memo) {
  px_storage *storage = px_tensor_storage(t);
  int64_t count = (int64_t)(px_storage_bytes(storage) / px_dtype_size(px_tensor_dtype(t))), one = 1;
  EXT_OWNED *address = PyLong_FromVoidPtr(storage);
  EXT_OWNED *key =
      address ? Py_BuildValue("(sOi)", "storage", address, (int)px_tensor_dtype(t)) : NULL;
  if (!key) return NULL;
  PyObject *known = PyDict_Check(memo) ? PyDict_GetItem(memo, key) : NULL;
  if (known) return Py_NewRef(known);
  PX_SCOPED(px_tensor) data = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  EXT_TRY(px_tensor_detach(&data, t));
  EXT_TRY(px_tensor_as_strided(&flat, data, 1, &count, &one, 0));
  px_tensor *copy =
      ext_op_tensor(EXT_OP("clone"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(flat)}});
  EXT_OWNED *object = copy ? ext_wrap(copy) : NULL;
  return object && PyObject_SetItem(memo, key, object) == 0 ? ext_moved(&object) : NULL;
}

static px_tensor *copy_with_storage(px_tensor *t, PyObject *memo) {
  PX_SCOPED(px_tensor) part = NULL;
  px_tensor *made;
  if (px_tensor_is_parameter(t)) {  // PyTorch's parameters part from what shares their memory
    EXT_TRY(px_tensor_detach(&part, t));
    return ext_op_tensor(EXT_OP("clone"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(part)}});
  }
  EXT_OWNED *whole = storage_copy(t, memo);
  if (!whole) return NULL;
  EXT_TRY(px_tensor_as_strided(&part, ext_tensor(whole), px_tensor_ndim(t), px_tensor_sizes(t),
                               px_tensor_strides(t), px_tensor_offset(t)));
  EXT_TRY(px_tensor_detach(&made, part));
  return made;
}

static PyObject *tensor_deepcopy(PyObject *self, PyObject *memo) {
  px_tensor *t = T(self);
  if (!px_tensor_is_leaf(t))
    EXT_FAIL(PyExc_RuntimeError,
             "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
             "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
             "because of a torch.nn.utils.weight_norm usage, see "
             "https://github.com/pytorch/pytorch/pull/103001");
  EXT_OWNED *key = PyLong_FromVoidPtr(self);
  PyObject *known = key && PyDict_Check(memo) ? PyDict_GetItem(memo, key) : NULL;
  if (!key) return NULL;
  if (known) return Py_NewRef(known);
  PX_SCOPED(px_tensor) copy = copy_with_storage(t, memo);
  if (!copy) return NULL;
  if (px_tensor_requires_grad(t)) EXT_TRY(px_tensor_set_requires_grad(copy, true));
  if (px_tensor_grad(t) && !px_tensor_is_parameter(t)) {
    PX_SCOPED(px_tensor) grad = copy_with_storage(px_tensor_grad(t), memo);
    if (!grad) return NULL;
    EXT_TRY(px_tensor_set_grad(copy, grad));
  }
  px_tensor_set_parameter(copy, px_tensor_is_parameter(t));
  EXT_OWNED *object = ext_wrap_as(Py_TYPE(self), PX_MOVE(copy));
  ext_tensor_object *from = (ext_tensor_object *)self;
  if (object && from->dict) ((ext_tensor_object *)object)->dict = PyDict_Copy(from->dict);
  if (!object || PyDict_SetItem(memo, key, object) < 0) return NULL;
  return ext_moved(&object);
}

// copy.copy: another tensor of the same memory, without history and gradient.
static PyObject *tensor_copy(PyObject *self, PyObject *u) {
  px_tensor *t = T(self);
  PX_SCOPED(px_tensor) copy = NULL;
  EXT_TRY(px_tensor_detach(&copy, t));
  if (px_tensor_requires_grad(t)) EXT_TRY(px_tensor_set_requires_grad(copy, true));
  px_tensor_set_parameter(copy, px_tensor_is_parameter(t));
  EXT_OWNED *object = ext_wrap_as(Py_TYPE(self), PX_MOVE(copy));
  ext_tensor_object *from = (ext_tensor_object *)self;
  if (object && from->dict) ((ext_tensor_object *)object)->dict = PyDict_Copy(from->dict);
  return ext_moved(&object);
}

static PyObject *tensor_reduce_ex(PyObject *self, PyObject *protocol) {
  px_tensor *t = T(self);
  size_t bytes;
  char device[PX_DEVICE_TEXT];
  if (px_tensor_requires_grad(t) && !px_tensor_is_leaf(t))
    EXT_FAIL(PyExc_RuntimeError,
             "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
             "does not support crossing process boundaries.  If you just want to transfer the "
             "data, call detach() on the tensor before serializing (e.g., putting it on the "
             "queue).");
  EXT_OWNED *module = PyImport_ImportModule("phlox._C");
  EXT_OWNED *maker = module ? PyObject_GetAttrString(module, "_rebuild_tensor") : NULL;
  EXT_OWNED *shape = ext_size(px_tensor_ndim(t), px_tensor_sizes(t));
  EXT_OWNED *plain = shape ? PySequence_List(shape) : NULL;
  void *memory = maker && plain ? read_all(t, &bytes) : NULL;
  if (!memory) return NULL;
  EXT_OWNED *data = PyBytes_FromStringAndSize(memory, (Py_ssize_t)bytes);
  PyMem_Free(memory);
  if (!data) return NULL;
  PyObject *dict = ((ext_tensor_object *)self)->dict;
  PyObject *type = Py_IS_TYPE(self, ext_TensorType)      ? Py_None
                   : Py_IS_TYPE(self, ext_ParameterType) ? Py_True
                                                         : (PyObject *)Py_TYPE(self);
  return Py_BuildValue("O(OOOssO)O", maker, type, data, plain, px_dtype_name(px_tensor_dtype(t)),
                       px_device_format(px_tensor_device(t), device),
                       px_tensor_requires_grad(t) ? Py_True : Py_False, dict ? dict : Py_None);
}

static PyObject *rebuild_tensor(PyObject *module, PyObject *args) {
  PyObject *type, *shape;
  const char *data, *dtype_name, *device_name;
  Py_ssize_t bytes;
  int requires_grad;
  px_dtype dtype;
  px_device device;
  ext_ints sizes;
  if (!PyArg_ParseTuple(args, "Oy#Ossp", &type, &data, &bytes, &shape, &dtype_name, &device_name,
                        &requires_grad) ||
      ext_to_ints(shape, &sizes) < 0)
    return NULL;
  if (type == Py_None) type = (PyObject *)ext_TensorType;
  if (type == Py_True) type = (PyObject *)ext_ParameterType;
  EXT_TRY(px_dtype_parse(&dtype, dtype_name));
  EXT_TRY(px_device_parse(&device, device_name));
  int64_t n = 1;
  for (int i = 0; i < sizes.count; i++) n *= sizes.items[i];
  if (n * (int64_t)px_dtype_size(dtype) != bytes || !PyType_Check(type) ||
      !PyType_IsSubtype((PyTypeObject *)type, ext_TensorType))
    EXT_FAIL(PyExc_ValueError, "a pickled tensor is damaged");
  PX_SCOPED(px_tensor) made = NULL;
  EXT_WAIT(px_tensor_from_data(&made, data, sizes.count, sizes.items, dtype, device));
  if (requires_grad) EXT_TRY(px_tensor_set_requires_grad(made, true));
  if (PyType_IsSubtype((PyTypeObject *)type, ext_ParameterType))
    px_tensor_set_parameter(made, true);
  return ext_wrap_as((PyTypeObject *)type, PX_MOVE(made));
}

static PyObject *tensor_setstate(PyObject *self, PyObject *state) {
  if (PyDict_Check(state)) {
    EXT_OWNED *dict = PyObject_GenericGetDict(self, NULL);
    if (!dict || PyDict_Update(dict, state) < 0) return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *tensor_as_subclass(PyObject *self, PyObject *type) {
  if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, ext_TensorType))
    EXT_FAIL(PyExc_TypeError, "as_subclass(): argument 'cls' must be a subclass of Tensor");
  px_tensor *alias = NULL;
  EXT_TRY(px_tensor_detach(&alias, T(self)));
  return ext_wrap_as((PyTypeObject *)type, alias);
}

#define PLAIN(name, function, flags) \
  { name, (PyCFunction)(void (*)(void))(function), flags, NULL }
static PyMethodDef methods[] = {
    EXT_DEF("size", tensor_size),
    EXT_DEF("stride", tensor_stride),
    PLAIN("dim", tensor_dim, METH_NOARGS),
    PLAIN("ndimension", tensor_dim, METH_NOARGS),
    PLAIN("numel", tensor_numel, METH_NOARGS),
    PLAIN("nelement", tensor_numel, METH_NOARGS),
    PLAIN("element_size", tensor_element_size, METH_NOARGS),
    PLAIN("storage_offset", tensor_storage_offset, METH_NOARGS),
    PLAIN("data_ptr", tensor_data_ptr, METH_NOARGS),
    EXT_DEF("is_contiguous", tensor_is_contiguous),
    PLAIN("get_device", tensor_get_device, METH_NOARGS),
    PLAIN("is_floating_point", tensor_is_floating_point, METH_NOARGS),
    PLAIN("is_complex", tensor_false, METH_NOARGS),
    PLAIN("is_conj", tensor_false, METH_NOARGS),
    PLAIN("is_neg", tensor_false, METH_NOARGS),
    PLAIN("is_shared", tensor_false, METH_NOARGS),
    PLAIN("is_coalesced", tensor_false, METH_NOARGS),
    PLAIN("is_signed", tensor_is_signed, METH_NOARGS),
    PLAIN("is_inference", tensor_is_inference, METH_NOARGS),
    PLAIN("resolve_conj", tensor_self, METH_NOARGS),
    PLAIN("resolve_neg", tensor_self, METH_NOARGS),
    PLAIN("conj", tensor_self, METH_NOARGS),
    PLAIN("share_memory_", tensor_self, METH_NOARGS),
    PLAIN("is_same_size", tensor_is_same_size, METH_O),
    PLAIN("is_set_to", tensor_is_set_to, METH_O),
    EXT_DEF("resize_", tensor_resize),
    EXT_DEF("index_put_", ext_index_put),
    PLAIN("view_as", tensor_view_as, METH_O),
    PLAIN("reshape_as", tensor_reshape_as, METH_O),
    PLAIN("expand_as", tensor_expand_as, METH_O),
    PLAIN("item", tensor_item, METH_NOARGS),
    PLAIN("tolist", tensor_tolist, METH_NOARGS),
    PLAIN("__format__", tensor_format, METH_O),
    PLAIN("__reversed__", tensor_reversed, METH_NOARGS),
    PLAIN("apply_", tensor_apply, METH_O),
    EXT_DEF("map_", tensor_map),
    PLAIN("detach", tensor_detach, METH_NOARGS),
    PLAIN("detach_", tensor_detach_, METH_NOARGS),
    EXT_DEF("requires_grad_", tensor_requires_grad_),
    PLAIN("retain_grad", tensor_retain_grad, METH_NOARGS),
    PLAIN("register_hook", tensor_register_hook, METH_O),
    PLAIN("register_post_accumulate_grad_hook", tensor_register_accumulated, METH_O),
    EXT_DEF("backward", tensor_backward),
    PLAIN("__deepcopy__", tensor_deepcopy, METH_O),
    PLAIN("__copy__", tensor_copy, METH_NOARGS),
    PLAIN("__reduce_ex__", tensor_reduce_ex, METH_O),
    PLAIN("__setstate__", tensor_setstate, METH_O),
    PLAIN("as_subclass", tensor_as_subclass, METH_O),
    {NULL, NULL, 0, NULL}};
static PyMethodDef functions[] = {{"_rebuild_tensor", rebuild_tensor, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static int ext_init_tensor_methods(PyObject *m) {
  if (ext_add_methods(ext_TensorType, methods) < 0) return -1;
  return PyModule_AddFunctions(m, functions);
}
EXT_START(EXT_VALUES, ext_init_tensor_methods);
