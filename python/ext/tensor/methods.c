// SPDX-License-Identifier: Apache-2.0
// Methods of Tensor that are not ops: geometry, values as Python objects, gradients. Copies,
// pickling and others are in phlox/_tensor.py.
#include "bind/compiled.h"
#include "bind/ext.h"
#include "phlox/extend.h"

#include <string.h>

#define T(self) ext_tensor(self)

// ---- geometry
// A dimension argument: 0 to ndim - 1, or -ndim to -1 from the end.
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
// Returns a per-dimension value: of the given dimension, or of all.
static PyObject *per_dim(const ext_call *call, const px_tensor *t, const int64_t *values,
                         PyObject *(*all)(int ndim, const int64_t *values)) {
  int at, ndim = px_tensor_ndim(t);
  EXT_ARGS(PyObject *, dim);
  if (!dim) return all(ndim, values);
  return dim_of(dim, ndim, &at) < 0 ? NULL : PyLong_FromLongLong(values[at]);
}
static PyObject *tuple_of(int count, const int64_t *values) { return ext_tuple(count, values, 1); }
EXT_METHOD(tensor, size, "(dim: int | None = None) -> Size | int",
           "Returns the size of the tensor, or of one dimension.\n\n"
           "Args:\n"
           "    dim (int or None): the dimension to retrieve; -1 is the last\n\n"
           ">>> torch.zeros(2, 3).size(), torch.zeros(2, 3).size(-1)\n"
           "(torch.Size([2, 3]), 3)\n") {
  return per_dim(call, T(self), px_tensor_sizes(T(self)), ext_size);
}
EXT_METHOD(tensor, stride, "(dim: int | None = None) -> tuple[int, ...] | int",
           "Returns the stride of the tensor in elements, or of one dimension.\n\n"
           ">>> torch.zeros(2, 3).stride()\n"
           "(3, 1)\n") {
  return per_dim(call, T(self), px_tensor_strides(T(self)), tuple_of);
}
EXT_RETURNS(tensor, dim, "int", px_tensor_ndim(T(self)), "Returns the number of dimensions.");
EXT_ALIASES(tensor, tensor_dim, ndimension);
EXT_RETURNS(tensor, numel, "int", px_tensor_numel(T(self)),
            "Returns the total number of elements.");
EXT_ALIASES(tensor, tensor_numel, nelement);
EXT_RETURNS(tensor, element_size, "int", px_dtype_size(px_tensor_dtype(T(self))),
            "Returns the size of an element in bytes.");
EXT_RETURNS(tensor, storage_offset, "int", px_tensor_offset(T(self)),
            "Returns the offset in the underlying storage, in elements.");
// Also the address of a conjugate or negative view: programs compare addresses.
static void *address_of(const px_tensor *t) {
  if (!px_tensor_numel(t)) return NULL;
  if (!px_tensor_unresolved(t)) return px_tensor_data(t);
  char *start = px_storage_data(px_tensor_storage(t));
  size_t size = px_dtype_size(px_tensor_dtype(t));
  return start ? start + (size_t)px_tensor_offset(t) * size : NULL;
}
EXT_RETURNS(tensor, data_ptr, "int", address_of(T(self)),
            "Returns the address of the first element; 0 for an empty tensor. The memory then "
            "counts as used "
            "by all\nstreams: it is reused only after the work queued on them when it is freed.");
EXT_METHOD(tensor, is_contiguous, "(memory_format: memory_format | None = None) -> bool",
           "Returns True if the tensor is contiguous in memory, in the order of a memory format.") {
  px_memory_format format = PX_FORMAT_CONTIGUOUS;
  ext_format memory_format = {NULL};
  if (call->nargs || call->kwnames) EXT_BIND(memory_format);  // most calls have no arguments
  if (memory_format.name) EXT_TRY(px_memory_format_parse(&format, memory_format.name));
  return PyBool_FromLong(px_tensor_has_format(T(self), format));
}
EXT_RETURNS(tensor, get_device, "int",
            px_tensor_is_cuda(T(self)) ? (int)px_tensor_device(T(self)).index : -1,
            "Returns the device index; -1 for CPU tensors.");
EXT_RETURNS(tensor, is_floating_point, "bool", px_dtype_is_float(px_tensor_dtype(T(self))),
            "Returns True if the dtype is a floating point type.");
EXT_RETURNS(tensor, is_signed, "bool", px_dtype_is_signed(px_tensor_dtype(T(self))),
            "Returns True if the dtype is a signed type.");
EXT_RETURNS(tensor, is_inference, "bool", px_tensor_is_inference(T(self)),
            "Returns True if the tensor was created in inference mode.");

EXT_RETURNS(tensor, is_coalesced, "bool", Py_NewRef(Py_False),
            "Returns False: sparse tensors are not supported.");
EXT_RETURNS(tensor, is_complex, "bool", px_dtype_is_complex(px_tensor_dtype(T(self))),
            "Returns True if the dtype is a complex type.");
EXT_METHOD(tensor, is_same_size, "(other: Tensor) -> bool",
           "Returns True if both tensors have the same size.") {
  px_tensor *other, *t = T(self);
  EXT_BIND(other);
  int ndim = px_tensor_ndim(t);
  return PyBool_FromLong(
      ndim == px_tensor_ndim(other) &&
      !memcmp(px_tensor_sizes(t), px_tensor_sizes(other), (size_t)ndim * sizeof(int64_t)));
}
EXT_METHOD(tensor, is_set_to, "(tensor: Tensor) -> bool",
           "Returns True if both tensors refer to the same memory with the same offset, size and "
           "strides.") {
  px_tensor *tensor, *t = T(self);
  EXT_BIND(tensor);
  return PyBool_FromLong(px_tensor_storage(t) == px_tensor_storage(tensor) &&
                         px_tensor_offset(t) == px_tensor_offset(tensor) &&
                         px_tensor_numel(t) == px_tensor_numel(tensor));
}

EXT_METHOD(tensor, resize_, "(*sizes: int | Sequence[int]) -> Tensor",
           "Resizes the tensor in-place. Elements keep their order; new ones are uninitialized.\n\n"
           "Args:\n"
           "    sizes (int... or a sequence of ints): the desired size\n\n"
           "Raises RuntimeError for a tensor that requires gradient.") {
  ext_ints read;
  EXT_ARGS(ext_varargs, sizes);
  EXT_OWNED *all = sizes.count == 1 ? Py_NewRef(sizes.items[0]) : ext_tuple_of(sizes);
  if (!all || ext_to_ints(all, &read) < 0) return NULL;
  if (px_tensor_requires_grad(T(self)))
    EXT_FAIL(PyExc_RuntimeError, "cannot resize variables that require grad");
  EXT_WAIT(px_tensor_resize(T(self), read.count, read.items));
  return Py_NewRef(self);
}

#define RESIZE_AS \
  "Resizes the tensor in-place to the size of another tensor. Elements keep their order; new " \
  "ones " \
  "are " \
  "uninitialized.\n\n" \
  "Args:\n" \
  "    the_template (Tensor): the tensor with the desired size\n\n" \
  "Raises RuntimeError for a tensor that requires gradient."
static PyObject *resized_as(px_tensor *self, const px_tensor *like) {
  if (px_tensor_requires_grad(self))
    EXT_FAIL(PyExc_RuntimeError, "cannot resize variables that require grad");
  EXT_WAIT(px_tensor_resize(self, px_tensor_ndim(like), px_tensor_sizes(like)));
  return ext_wrap(px_retain(self));
}
EXT_METHOD(tensor, resize_as_, "(the_template: Tensor) -> Tensor", RESIZE_AS) {
  EXT_ARGS(px_tensor *, the_template);
  return resized_as(T(self), the_template);
}
EXT_FUNCTION(torch, resize_as_, "(input: Tensor, the_template: Tensor) -> Tensor", RESIZE_AS) {
  EXT_ARGS(px_tensor *, input, the_template);
  return resized_as(input, the_template);
}

// Calls an op with the size of `other`.
static PyObject *with_size_of(PyObject *self, const ext_call *call, const char *op) {
  EXT_ARGS(px_tensor *, other);
  PyObject *method = ext_op_object('m', op);
  if (!method) EXT_FAIL(PyExc_NotImplementedError, "%s", op);
  EXT_OWNED *size = ext_size(px_tensor_ndim(other), px_tensor_sizes(other));
  PyObject *args[] = {self, size};
  return size ? PyObject_Vectorcall(method, args, 2, NULL) : NULL;
}
EXT_METHOD(tensor, view_as, "(other: Tensor) -> Tensor",
           "Views this tensor as the size of other: self.view(other.size()).") {
  return with_size_of(self, call, "view");
}
EXT_METHOD(tensor, reshape_as, "(other: Tensor) -> Tensor",
           "Returns this tensor reshaped to the size of other: self.reshape(other.size()).") {
  return with_size_of(self, call, "reshape");
}
EXT_METHOD(tensor, expand_as, "(other: Tensor) -> Tensor",
           "Expands this tensor to the size of other: self.expand(other.size()).") {
  return with_size_of(self, call, "expand");
}

// ---- values
EXT_METHOD0(
    tensor, item, "Number",
    "Returns the value of a single-element tensor as a Python number. Waits for the device.\n\n"
    ">>> torch.tensor([1.5]).item()\n"
    "1.5\n") {
  px_scalar scalar;
  px_complex number;
  if (px_dtype_is_complex(px_tensor_dtype(T(self)))) {
    EXT_TRY(EXT_NOGIL(px_tensor_item_complex(&number, T(self))));
    return PyComplex_FromDoubles(number.real, number.imag);
  }
  EXT_TRY(ext_item(&scalar, T(self)));
  return ext_scalar(scalar);
}
EXT_METHOD0(tensor, __complex__, "complex", NULL) {
  px_complex number;
  if (px_tensor_numel(T(self)) != 1)
    EXT_FAIL(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
  EXT_TRY(EXT_NOGIL(px_tensor_item_complex(&number, T(self))));
  return PyComplex_FromDoubles(number.real, number.imag);
}

PyObject *ext_scalar(px_scalar s) {
  return s.kind == 'f'   ? PyFloat_FromDouble(s.v.f)
         : s.kind == 'b' ? PyBool_FromLong(px_scalar_int(s) != 0)
         : s.kind == 'u' ? PyLong_FromUnsignedLongLong((unsigned long long)s.v.i)
                         : PyLong_FromLongLong(s.v.i);
}

// Nested lists from row-major memory. `at` advances element by element, so no offsets are computed.
// Long lists check for signals.
static PyObject *list_of(const char **at, px_dtype dtype, int ndim, const int64_t *sizes) {
  if (ndim == 0) {
    const char *element = *at;
    *at += px_dtype_size(dtype);
    if (!px_dtype_is_complex(dtype)) return ext_scalar(px_scalar_load(dtype, element));
    px_complex number = px_complex_load(dtype, element);
    return PyComplex_FromDoubles(number.real, number.imag);
  }
  PyObject *list = PyList_New((Py_ssize_t)sizes[0]);
  for (int64_t i = 0; list && i < sizes[0]; i++) {
    bool ends =
        i % EXT_SIGNAL_CHECK_INTERVAL == EXT_SIGNAL_CHECK_INTERVAL - 1 && PyErr_CheckSignals() < 0;
    PyObject *item = ends ? NULL : list_of(at, dtype, ndim - 1, sizes + 1);
    if (!item) Py_CLEAR(list);
    if (list) PyList_SET_ITEM(list, i, item);
  }
  return list;
}

// All elements in row-major order. The caller frees them with PyMem_Free.
static void *read_all(const px_tensor *t, size_t *bytes) {
  *bytes = (size_t)px_tensor_numel(t) * px_dtype_size(px_tensor_dtype(t));
  void *memory = PyMem_Malloc(*bytes ? *bytes : 1);
  if (!memory) return PyErr_NoMemory(), NULL;
  px_status refused = ext_refuses_reads() ? ext_refuse_read("the values of a Tensor") : PX_OK;
  if (refused != PX_OK || EXT_NOGIL(px_tensor_read(t, memory, *bytes)) != PX_OK) {
    PyMem_Free(memory);
    return ext_raise();
  }
  return memory;
}

EXT_METHOD0(tensor, tolist, "list | Number",
            "Returns the tensor as a (nested) list of numbers; a number for a 0-dim tensor.\n\n"
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

EXT_METHOD0(tensor, __reversed__, "Tensor", NULL) {
  int64_t dim = 0;
  if (px_tensor_ndim(T(self)) == 0) return Py_NewRef(self);
  return ext_op_named(EXT_OP("flip"), PX_CALL_NEW, 2,
                      (ext_named[]){{"self", PX_T(T(self))}, {"dims", PX_IS(&dim, 1)}});
}

// ---- gradients
EXT_METHOD0(tensor, detach, "Tensor",
            "Returns a new tensor detached from the current graph, sharing the same memory.") {
  px_tensor *detached = NULL;
  EXT_TRY(px_tensor_detach(&detached, T(self)));
  return ext_wrap_as(ext_TensorType, detached);
}
EXT_METHOD0(tensor, detach_, "Tensor",
            "Detaches the tensor from its graph in-place, making it a leaf.") {
  EXT_TRY(px_tensor_detach_inplace(T(self)));
  return Py_NewRef(self);
}
EXT_METHOD(tensor, requires_grad_, "(requires_grad: bool = True) -> Tensor",
           "Changes in-place whether autograd records operations on this tensor.\n\n"
           ">>> torch.ones(2).requires_grad_()\n"
           "tensor([1., 1.], requires_grad=True)\n") {
  EXT_ARGS(bool, requires_grad);
  EXT_TRY(px_tensor_set_requires_grad(T(self), requires_grad));
  return Py_NewRef(self);
}
EXT_METHOD0(tensor, retain_grad, "None",
            "Enables this non-leaf tensor to have its grad populated during backward().") {
  return ext_none(px_tensor_retain_grad(T(self)));
}
EXT_METHOD(tensor, register_hook, "(hook: Callable) -> RemovableHandle",
           "Registers a backward hook: hook(grad) is called each time the gradient is computed. A "
           "result\nother than None replaces the gradient.\n\n"
           ">>> x = torch.ones(2, requires_grad=True)\n"
           ">>> handle = x.register_hook(lambda grad: grad * 2)\n"
           ">>> x.sum().backward(); x.grad\n"
           "tensor([2., 2.])\n") {
  EXT_ARGS(PyObject *, hook);
  return ext_tensor_register_hook(self, hook, false);
}
EXT_METHOD(tensor, register_post_accumulate_grad_hook, "(hook: Callable) -> RemovableHandle",
           "Registers a hook that runs after gradient accumulation: hook(tensor).") {
  EXT_ARGS(PyObject *, hook);
  return ext_tensor_register_hook(self, hook, true);
}

EXT_METHOD(
    tensor, backward,
    "(gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = "
    "False, inputs: Tensor | Sequence[Tensor] | None = None) -> None",
    "Computes the gradient of the tensor with respect to graph leaves, and accumulates it in their "
    "grad.\n\n"
    "Args:\n"
    "    gradient (Tensor or None): gradient of the tensor itself; 1 for a single-element tensor\n"
    "    retain_graph (bool or None): keeps the graph for another call; default: create_graph\n"
    "    create_graph (bool): records the computation of the gradients, too\n"
    "    inputs (Tensors or None): the only tensors whose grad is accumulated\n\n"
    ">>> x = torch.tensor([2.], requires_grad=True)\n"
    ">>> (x * x).backward(); x.grad\n"
    "tensor([4.])\n") {
  px_tensor *output = T(self), *gradient;
  ext_optional_bool retain_graph;
  bool create_graph;
  PyObject *inputs;
  EXT_BIND(gradient, retain_graph, create_graph, inputs);
  return ext_backward(1, &output, &gradient, retain_graph, create_graph, inputs);
}

// ---- pickling (phlox/_tensor.py)
EXT_FUNCTION(torch, _bytes_of, "(tensor: Tensor) -> bytes",
             "Returns all elements in row-major order.") {
  size_t bytes;
  EXT_ARGS(px_tensor *, tensor);
  void *memory = read_all(tensor, &bytes);
  PyObject *data = memory ? PyBytes_FromStringAndSize(memory, (Py_ssize_t)bytes) : NULL;
  PyMem_Free(memory);
  return data;
}
EXT_FUNCTION(torch, _rebuild_tensor,
             "(type: object, data: bytes, shape: Sequence[int], dtype: str, device: str, "
             "requires_grad: bool) -> Tensor",
             "Rebuilds a pickled tensor.") {
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
  bool bare = device.type == PX_META;  // has no data
  if ((bare ? 0 : n * (int64_t)px_dtype_size(dtype)) != PyBytes_Size(data) || !PyType_Check(type) ||
      !PyType_IsSubtype((PyTypeObject *)type, ext_TensorType))
    EXT_FAIL(PyExc_ValueError, "corrupt pickled tensor");
  PX_SCOPED(px_tensor) made = NULL;
  EXT_WAIT(bare ? px_tensor_empty(&made, shape.count, shape.items, dtype, device)
                : px_tensor_from_data(&made, PyBytes_AS_STRING(data), shape.count, shape.items,
                                      dtype, device));
  if (requires_grad) EXT_TRY(px_tensor_set_requires_grad(made, true));
  if (PyType_IsSubtype((PyTypeObject *)type, ext_ParameterType))
    px_tensor_set_parameter(made, true);
  return ext_wrap_as((PyTypeObject *)type, PX_MOVE(made));
}

// The marks of conjugate and negative views, by their names in files.
enum { VIEW_MARKS = 2 };
static const struct {
  const char *name;
  unsigned mark;
} view_marks[VIEW_MARKS] = {{"neg", PX_MARK_NEG}, {"conj", PX_MARK_CONJ}};

EXT_FUNCTION(torch, _get_tensor_metadata, "(tensor: Tensor) -> dict[str, bool]",
             "Returns the marks of a conjugate or negative view, as files store them.") {
  EXT_ARGS(px_tensor *, tensor);
  EXT_OWNED *marks = PyDict_New();
  for (int i = 0; marks && i < VIEW_MARKS; i++)
    if ((px_tensor_marks(tensor) & view_marks[i].mark) &&
        PyDict_SetItemString(marks, view_marks[i].name, Py_True) < 0)
      return NULL;
  return ext_moved(&marks);
}

static bool takes_mark(px_dtype dtype, unsigned mark) {
  return mark == PX_MARK_CONJ ? px_dtype_is_complex(dtype) : dtype != PX_BOOL;
}

EXT_FUNCTION(torch, _set_tensor_metadata, "(tensor: Tensor, metadata: dict[str, bool]) -> None",
             "Marks a tensor whose memory has the conjugates or negatives of its values.") {
  px_tensor *tensor;
  PyObject *metadata;
  EXT_BIND(tensor, metadata);
  if (!PyDict_Check(metadata))
    EXT_FAIL(PyExc_TypeError, "metadata must be a dict, not %s", ext_type_name(metadata));
  for (int i = 0; i < VIEW_MARKS; i++) {
    PyObject *value = PyDict_GetItemString(metadata, view_marks[i].name);
    int on = value ? PyObject_IsTrue(value) : 0;
    if (on < 0) return NULL;
    if (on && !takes_mark(px_tensor_dtype(tensor), view_marks[i].mark))
      EXT_FAIL(PyExc_RuntimeError, "a tensor of %s cannot have the bit '%s'",
               px_dtype_name(px_tensor_dtype(tensor)), view_marks[i].name);
    if (value) px_tensor_mark(tensor, view_marks[i].mark, on);
  }
  Py_RETURN_NONE;
}

// ---- printing
static PyObject *tensor_repr(PyObject *self) {
  if (!ext_is_plain(self) && ext_overrides(self))
    return ext_call_slot_override("__repr__", self, NULL, NULL);
  if (!ext_tensor(self)) return PyUnicode_FromString("tensor(<unset>)");
  if (Py_IS_TYPE(self, ext_TensorType)) return ext_tensor_text(self, "tensor(");
  EXT_OWNED *prefix = PyUnicode_FromFormat("%s(", ext_type_name(self));
  EXT_OWNED *text = prefix ? ext_tensor_text(self, PyUnicode_AsUTF8(prefix)) : NULL;
  bool marked = text && ext_is_parameter(self);
  return marked ? PyUnicode_FromFormat("Parameter(%U)", text) : ext_moved(&text);
}
EXT_SLOT(tensor_base, tp_repr, tensor_repr);

// ---- conversion to another class
static int check_class(PyObject *cls, const char *function) {
  if (PyType_Check(cls) && PyType_IsSubtype((PyTypeObject *)cls, ext_TensorType)) return 0;
  EXT_FAIL_INT(PyExc_TypeError, "%s(): argument 'cls' must be a subclass of Tensor", function);
}

PyObject *ext_as_class(PyObject *object, PyTypeObject *cls, bool spent) {
  px_tensor *tensor = T(object);
  if (spent && ext_is_plain(object))
    ((ext_tensor_object *)object)->tensor = NULL;
  else
    tensor = ext_op_tensor(EXT_OP("alias"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(tensor)}});
  return tensor ? ext_wrap_as(cls, tensor) : NULL;
}

EXT_METHOD(tensor, as_subclass, "(cls: type) -> Tensor",
           "Makes a cls instance with the same data.") {
  EXT_ARGS(PyObject *, cls);
  if (check_class(cls, "as_subclass") < 0) return NULL;
  return ext_as_class(self, (PyTypeObject *)cls, false);
}

// Swaps the classes and the attributes, also those in slots.
static void swap_objects(ext_tensor_object *a, ext_tensor_object *b) {
  PyTypeObject *type = Py_TYPE(a);
  PyObject *dict = a->dict;
  a->dict = b->dict;
  b->dict = dict;
  a->sole = b->sole = 0;
  Py_SET_TYPE((PyObject *)a, Py_TYPE(b));
  Py_SET_TYPE((PyObject *)b, type);
  size_t slots = ((size_t)type->tp_basicsize - sizeof *a) / sizeof(PyObject *);
  PyObject **from = (PyObject **)(a + 1), **to = (PyObject **)(b + 1);
  for (size_t i = 0; i < slots; i++) {
    PyObject *value = from[i];
    from[i] = to[i];
    to[i] = value;
  }
}
static int check_weak(const ext_tensor_object *self, const char *name) {
  if (!self->weak) return 0;
  EXT_FAIL_INT(PyExc_RuntimeError, "Cannot swap %s because it has weakref associated with it",
               name);
}
EXT_FUNCTION(utils, swap_tensors, "(t1: Tensor, t2: Tensor) -> None",
             "Swaps the contents of two tensors. Each keeps its identity and gets the class, the "
             "attributes, the\nmemory, the gradient and the history of the other. Modules with a "
             "tensor then see its new contents.\n\n"
             ">>> a, b = torch.ones(2), torch.zeros(3)\n"
             ">>> torch.utils.swap_tensors(a, b); a\n"
             "tensor([0., 0., 0.])\n") {
  px_tensor *t1, *t2;
  EXT_BIND(t1, t2);
  ext_tensor_object *a = px_tensor_user(t1), *b = px_tensor_user(t2);
  if (a == b) Py_RETURN_NONE;
  if (check_weak(a, "t1") < 0 || check_weak(b, "t2") < 0) return NULL;
  Py_ssize_t size = Py_TYPE(a)->tp_basicsize, plain = (Py_ssize_t)sizeof *a;
  if (size != Py_TYPE(b)->tp_basicsize || (size > plain && Py_TYPE(a) != Py_TYPE(b)))
    EXT_FAIL(PyExc_RuntimeError, "Cannot swap t1 and t2 if they have different slots");
  EXT_TRY(px_tensor_swap(t1, 1 + a->kept, t2, 1 + b->kept));
  swap_objects(a, b);
  Py_RETURN_NONE;
}

EXT_STATIC_METHOD(tensor, _make_subclass,
                  "(cls: type, data: Tensor, require_grad: bool = False) -> Tensor",
                  "Returns a leaf of a subclass of Tensor sharing the memory of data.") {
  PyObject *cls;
  px_tensor *data;
  bool require_grad;
  EXT_BIND(cls, data, require_grad);
  if (check_class(cls, "_make_subclass") < 0) return NULL;
  PX_SCOPED(px_tensor) leaf = NULL;
  EXT_TRY(px_tensor_detach(&leaf, data));
  if (require_grad) EXT_TRY(px_tensor_set_requires_grad(leaf, true));
  return ext_wrap_as((PyTypeObject *)cls, PX_MOVE(leaf));
}
