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
EXT_METHOD(tensor, size, "(dim: int | None = None) -> Size | int",
           "The sizes, or that of one dimension.\n\n"
           "Args:\n"
           "    dim (int or None): a dimension; -1 is the last\n\n"
           ">>> torch.zeros(2, 3).size(), torch.zeros(2, 3).size(-1)\n"
           "(torch.Size([2, 3]), 3)\n") {
  PyObject *dim;
  int at;
  EXT_BIND(dim);
  const px_tensor *t = T(self);
  if (!dim) return ext_size(px_tensor_ndim(t), px_tensor_sizes(t));
  if (dim_of(dim, px_tensor_ndim(t), &at) < 0) return NULL;
  return PyLong_FromLongLong(px_tensor_size(t, at));
}
EXT_METHOD(tensor, stride, "(dim: int | None = None) -> tuple[int, ...] | int",
           "The elements between neighbours of each dimension, or of one.\n\n"
           ">>> torch.zeros(2, 3).stride()\n"
           "(3, 1)\n") {
  PyObject *dim;
  int at;
  EXT_BIND(dim);
  const px_tensor *t = T(self);
  if (!dim) return ext_tuple(px_tensor_ndim(t), px_tensor_strides(t), 1);
  if (dim_of(dim, px_tensor_ndim(t), &at) < 0) return NULL;
  return PyLong_FromLongLong(px_tensor_strides(t)[at]);
}
EXT_GIVES(tensor, dim, "int", px_tensor_ndim(T(self)), "Number of dimensions.");
EXT_ALSO(tensor, ndimension, tensor_dim);
EXT_GIVES(tensor, numel, "int", px_tensor_numel(T(self)), "Number of elements.");
EXT_ALSO(tensor, nelement, tensor_numel);
EXT_GIVES(tensor, element_size, "int", px_dtype_size(px_tensor_dtype(T(self))),
          "Bytes of an element.");
EXT_GIVES(tensor, storage_offset, "int", px_tensor_offset(T(self)),
          "Where in its storage it begins, in elements.");
EXT_GIVES(tensor, data_ptr, "int", px_tensor_numel(T(self)) ? px_tensor_data(T(self)) : NULL,
          "The address of the first element; 0 where there is none. The memory then counts as used "
          "on\nevery stream that has unfinished work when it is freed.");
EXT_METHOD(tensor, is_contiguous, "(memory_format: memory_format | None = None) -> bool",
           "Whether the elements lie in row-major order without gaps.") {
  PyObject *memory_format;
  EXT_BIND(memory_format);
  return PyBool_FromLong(px_tensor_is_contiguous(T(self)));
}
EXT_GIVES(tensor, get_device, "int",
          px_tensor_is_cuda(T(self)) ? (int)px_tensor_device(T(self)).index : -1,
          "The index of its device; -1 on the CPU.");
EXT_GIVES(tensor, is_floating_point, "bool", px_dtype_is_float(px_tensor_dtype(T(self))),
          "Whether the elements are floating point.");
EXT_GIVES(tensor, is_signed, "bool",
          (bool)(px_tensor_dtype(T(self)) != PX_BOOL && px_tensor_dtype(T(self)) != PX_UINT8),
          "Whether the elements may be negative.");
EXT_GIVES(tensor, is_inference, "bool", px_tensor_is_inference(T(self)),
          "Whether it was made in inference mode.");

// What no tensor of Phlox is, and what does nothing here.
EXT_GIVES(tensor, is_complex, "bool", Py_NewRef(Py_False), "False: Phlox has no such tensors.");
EXT_ALSO(tensor, is_conj, tensor_is_complex);
EXT_ALSO(tensor, is_neg, tensor_is_complex);
EXT_ALSO(tensor, is_shared, tensor_is_complex);
EXT_ALSO(tensor, is_coalesced, tensor_is_complex);
EXT_GIVES(tensor, conj, "Tensor", Py_NewRef(self), "The tensor itself.");
EXT_ALSO(tensor, resolve_conj, tensor_conj);
EXT_ALSO(tensor, resolve_neg, tensor_conj);
EXT_ALSO(tensor, share_memory_, tensor_conj);

EXT_METHOD(tensor, is_same_size, "(other: Tensor) -> bool", "Whether the sizes are equal.") {
  px_tensor *other, *t = T(self);
  EXT_BIND(other);
  int ndim = px_tensor_ndim(t);
  return PyBool_FromLong(
      ndim == px_tensor_ndim(other) &&
      !memcmp(px_tensor_sizes(t), px_tensor_sizes(other), (size_t)ndim * sizeof(int64_t)));
}
EXT_METHOD(tensor, is_set_to, "(tensor: Tensor) -> bool",
           "Whether it is the same part of the same memory.") {
  px_tensor *tensor, *t = T(self);
  EXT_BIND(tensor);
  return PyBool_FromLong(px_tensor_storage(t) == px_tensor_storage(tensor) &&
                         px_tensor_offset(t) == px_tensor_offset(tensor) &&
                         px_tensor_numel(t) == px_tensor_numel(tensor));
}

EXT_METHOD(tensor, resize_, "(*sizes: int | Sequence[int]) -> Tensor",
           "Changes the sizes in place; elements keep their order, new ones are undefined.\n\n"
           "Args:\n"
           "    sizes (ints, or a sequence of them): the new sizes\n\n"
           "Raises RuntimeError for a tensor that requires a gradient.") {
  ext_rest sizes;
  ext_ints read;
  EXT_BIND(sizes);
  EXT_OWNED *all = sizes.count == 1 ? Py_NewRef(sizes.items[0]) : ext_tuple_of(sizes);
  if (!all || ext_to_ints(all, &read) < 0) return NULL;
  if (px_tensor_requires_grad(T(self)))
    EXT_FAIL(PyExc_RuntimeError, "cannot resize variables that require grad");
  EXT_TRY(px_tensor_resize(T(self), read.count, read.items));
  return Py_NewRef(self);
}

// An op whose argument is the size of `other`.
static PyObject *with_size_of(PyObject *self, const ext_call *call, const char *op) {
  px_tensor *other;
  EXT_BIND(other);
  PyObject *method = ext_op_object('m', op);
  if (!method) EXT_FAIL(PyExc_NotImplementedError, "%s", op);
  EXT_OWNED *size = ext_size(px_tensor_ndim(other), px_tensor_sizes(other));
  PyObject *args[] = {self, size};
  return size ? PyObject_Vectorcall(method, args, 2, NULL) : NULL;
}
EXT_METHOD(tensor, view_as, "(other: Tensor) -> Tensor", "view(other.size()).") {
  return with_size_of(self, call, "view");
}
EXT_METHOD(tensor, reshape_as, "(other: Tensor) -> Tensor", "reshape(other.size()).") {
  return with_size_of(self, call, "reshape");
}
EXT_METHOD(tensor, expand_as, "(other: Tensor) -> Tensor", "expand(other.size()).") {
  return with_size_of(self, call, "expand");
}

// ---- values
EXT_METHOD0(
    tensor, item, "Number",
    "The value of a tensor of one element, as a number of Python's; waits for the device.\n\n"
    ">>> torch.tensor([1.5]).item()\n"
    "1.5\n") {
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

EXT_METHOD0(tensor, tolist, "list | Number",
            "The values as nested lists of numbers; a number where there are no dimensions.\n\n"
            ">>> torch.tensor([[1, 2], [3, 4]]).tolist()\n"
            "[[1, 2], [3, 4]]\n") {
  size_t bytes;
  void *memory = read_all(T(self), &bytes);
  if (!memory) return NULL;
  const char *at = memory;
  PyObject *list =
      list_of(&at, px_tensor_dtype(T(self)), px_tensor_ndim(T(self)), px_tensor_sizes(T(self)));
  PyMem_Free(memory);
  return list;
}

EXT_METHOD(tensor, __format__, "(spec: str) -> str", NULL) {
  PyObject *spec;
  EXT_BIND(spec);
  if (px_tensor_ndim(T(self)) == 0 && Py_IS_TYPE(self, ext_TensorType)) {
    EXT_OWNED *item = tensor_item(self, NULL);
    return item ? PyObject_Format(item, spec) : NULL;
  }
  if (PyUnicode_GetLength(spec) > 0)
    EXT_FAIL(PyExc_TypeError, "unsupported format string passed to %s.__format__",
             ext_type_name(self));
  return PyObject_Str(self);
}

EXT_METHOD0(tensor, __reversed__, "Tensor", NULL) {
  int64_t dim = 0;
  if (px_tensor_ndim(T(self)) == 0) return Py_NewRef(self);
  return ext_op_named(EXT_OP("flip"), PX_CALL_NEW, 2,
                      (ext_named[]){{"self", PX_T(T(self))}, {"dims", PX_IS(&dim, 1)}});
}

// apply_(f): each element replaced by f(element); map_(other, f): by f(element, other's).
static PyObject *apply_values(PyObject *self, px_tensor *other, PyObject *function) {
  px_tensor *t = T(self);
  if (px_tensor_is_cuda(t)) EXT_FAIL(PyExc_TypeError, "apply_ is only implemented on CPU tensors");
  if (px_tensor_requires_grad(t))
    EXT_FAIL(PyExc_RuntimeError,
             "Can't call apply_() on Variable that requires grad. Use "
             "var.detach().apply_() instead.");
  size_t bytes, more = 0, size = px_dtype_size(px_tensor_dtype(t));
  char *mine = read_all(t, &bytes), *theirs = mine && other ? read_all(other, &more) : NULL;
  bool good = mine && (!other || theirs);
  if (good && other && (more != bytes || px_tensor_dtype(other) != px_tensor_dtype(t))) {
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
EXT_METHOD(tensor, apply_, "(callable: Callable) -> Tensor",
           "Replaces each element x by callable(x), in place. On the CPU only, and slow.") {
  PyObject *callable;
  EXT_BIND(callable);
  return apply_values(self, NULL, callable);
}
EXT_METHOD(
    tensor, map_, "(tensor: Tensor, callable: Callable) -> Tensor",
    "Replaces each element x by callable(x, y), where y is the element of `tensor`, in place. "
    "On the\nCPU only, and slow.") {
  px_tensor *tensor;
  PyObject *callable;
  EXT_BIND(tensor, callable);
  return apply_values(self, tensor, callable);
}

// ---- gradients
EXT_METHOD0(tensor, detach, "Tensor",
            "The same memory without history: nothing that is done with it is recorded.") {
  px_tensor *detached = NULL;
  EXT_TRY(px_tensor_detach(&detached, T(self)));
  return ext_wrap_as(ext_TensorType, detached);
}
EXT_METHOD0(tensor, detach_, "Tensor", "Drops the history of this tensor, in place.") {
  EXT_TRY(px_tensor_detach_inplace(T(self)));
  return Py_NewRef(self);
}
EXT_METHOD(tensor, requires_grad_, "(requires_grad: bool = True) -> Tensor",
           "Sets whether operations on it are recorded, in place.\n\n"
           ">>> torch.ones(2).requires_grad_()\n"
           "tensor([1., 1.], requires_grad=True)\n") {
  bool requires_grad;
  EXT_BIND(requires_grad);
  EXT_TRY(px_tensor_set_requires_grad(T(self), requires_grad));
  return Py_NewRef(self);
}
EXT_METHOD0(tensor, retain_grad, "None",
            "Keeps the gradient of a tensor that is no leaf in grad.") {
  EXT_TRY(px_tensor_retain_grad(T(self)));
  Py_RETURN_NONE;
}
EXT_METHOD(tensor, register_hook, "(hook: Callable) -> RemovableHandle",
           "Calls hook(grad) each time the gradient is computed; what it gives, if not None, takes "
           "the\ngradient's place.\n\n"
           ">>> x = torch.ones(2, requires_grad=True)\n"
           ">>> handle = x.register_hook(lambda grad: grad * 2)\n"
           ">>> x.sum().backward(); x.grad\n"
           "tensor([2., 2.])\n") {
  PyObject *hook;
  EXT_BIND(hook);
  return ext_tensor_register_hook(self, hook, false);
}
EXT_METHOD(tensor, register_post_accumulate_grad_hook, "(hook: Callable) -> RemovableHandle",
           "Calls hook(tensor) each time after a leaf's grad was added to.") {
  PyObject *hook;
  EXT_BIND(hook);
  return ext_tensor_register_hook(self, hook, true);
}

EXT_METHOD(
    tensor, backward,
    "(gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = "
    "False, inputs: Tensor | Sequence[Tensor] | None = None) -> None",
    "Computes the gradients of the leaves that this was computed from, and adds them to their "
    "grad.\n\n"
    "Args:\n"
    "    gradient (Tensor or None): what flows in; 1 for a tensor of one element\n"
    "    retain_graph (bool or None): keeps what was saved, for another call; by default as "
    "create_graph\n"
    "    create_graph (bool): records the computation of the gradients too\n"
    "    inputs (Tensors or None): only their grad is added to\n\n"
    ">>> x = torch.tensor([2.], requires_grad=True)\n"
    ">>> (x * x).backward(); x.grad\n"
    "tensor([4.])\n") {
  px_tensor *output = T(self), *gradient;
  ext_maybe retain_graph;
  bool create_graph;
  PyObject *inputs;
  EXT_BIND(gradient, retain_graph, create_graph, inputs);
  return ext_backward(1, &output, &gradient, retain_graph, create_graph, inputs);
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

EXT_METHOD(tensor, __deepcopy__, "(memo: dict) -> Tensor", NULL) {
  px_tensor *t = T(self);
  PyObject *memo;
  EXT_BIND(memo);
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
EXT_METHOD0(tensor, __copy__, "Tensor", NULL) {
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

EXT_METHOD(tensor, __reduce_ex__, "(protocol: int) -> tuple", NULL) {
  px_tensor *t = T(self);
  size_t bytes;
  char device[PX_DEVICE_TEXT];
  if (px_tensor_requires_grad(t) && !px_tensor_is_leaf(t))
    EXT_FAIL(PyExc_RuntimeError,
             "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
             "does not support crossing process boundaries.  If you just want to transfer the "
             "data, call detach() on the tensor before serializing (e.g., putting it on the "
             "queue).");
  EXT_OWNED *maker = ext_from_module("_rebuild_tensor");
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

EXT_FUNCTION(torch, _rebuild_tensor,
             "(type: object, data: bytes, shape: Sequence[int], dtype: str, device: str, "
             "requires_grad: bool) -> Tensor",
             "The tensor of a pickle.") {
  PyObject *type, *data;
  ext_ints shape;
  const char *dtype_, *device_;
  bool requires_grad;
  px_dtype dtype;
  px_device device;
  EXT_BIND(type, data, shape, dtype_, device_, requires_grad);
  if (type == Py_None) type = (PyObject *)ext_TensorType;
  if (type == Py_True) type = (PyObject *)ext_ParameterType;
  EXT_TRY(px_dtype_parse(&dtype, dtype_));
  EXT_TRY(px_device_parse(&device, device_));
  int64_t n = 1;
  for (int i = 0; i < shape.count; i++) n *= shape.items[i];
  if (n * (int64_t)px_dtype_size(dtype) != PyBytes_Size(data) || !PyType_Check(type) ||
      !PyType_IsSubtype((PyTypeObject *)type, ext_TensorType))
    EXT_FAIL(PyExc_ValueError, "a pickled tensor is damaged");
  PX_SCOPED(px_tensor) made = NULL;
  EXT_WAIT(
      px_tensor_from_data(&made, PyBytes_AS_STRING(data), shape.count, shape.items, dtype, device));
  if (requires_grad) EXT_TRY(px_tensor_set_requires_grad(made, true));
  if (PyType_IsSubtype((PyTypeObject *)type, ext_ParameterType))
    px_tensor_set_parameter(made, true);
  return ext_wrap_as((PyTypeObject *)type, PX_MOVE(made));
}

EXT_METHOD(tensor, __setstate__, "(state: dict) -> None", NULL) {
  PyObject *state;
  EXT_BIND(state);
  if (PyDict_Check(state)) {
    EXT_OWNED *dict = PyObject_GenericGetDict(self, NULL);
    if (!dict || PyDict_Update(dict, state) < 0) return NULL;
  }
  Py_RETURN_NONE;
}

EXT_METHOD(tensor, as_subclass, "(cls: type) -> Tensor",
           "The same memory, without history, as an object of a class derived from Tensor.") {
  PyObject *cls;
  EXT_BIND(cls);
  if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, ext_TensorType))
    EXT_FAIL(PyExc_TypeError, "as_subclass(): argument 'cls' must be a subclass of Tensor");
  px_tensor *alias = NULL;
  EXT_TRY(px_tensor_detach(&alias, T(self)));
  return ext_wrap_as((PyTypeObject *)cls, alias);
}
