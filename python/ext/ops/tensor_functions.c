// SPDX-License-Identifier: Apache-2.0
// Functions of torch that mainly process arguments: broadcasting of sizes, type promotion,
// coordinate grids, einsum.
#include "bind/ext.h"
#include "phlox/ops/view.h"

#include <string.h>

// ---- sizes

// Broadcasts sizes into `shape`.
static int join_shapes(ext_ints *shape, const int64_t *sizes, int ndim) {
  ext_ints joined = {.count = shape->count > ndim ? shape->count : ndim};
  for (int d = joined.count - 1; d >= 0; d--) {
    int i = d - (joined.count - shape->count), k = d - (joined.count - ndim);
    int64_t a = i < 0 ? 1 : shape->items[i], b = k < 0 ? 1 : sizes[k];
    if (a != 1 && b != 1 && a != b)
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "The size of tensor a (%lld) must match the size of tensor b (%lld) at "
                   "non-singleton dimension %d",
                   (long long)a, (long long)b, d);
    joined.items[d] = b == 1 ? a : b;
  }
  *shape = joined;
  return 0;
}

// Tensors of f(a, b) or f([a, b]).
static int read_tensors(ext_tensors *tensors, ext_varargs given, const char *function) {
  bool list = given.count == 1 && !ext_is_tensor(given.items[0]);
  PyObject *items =
      list ? ext_items(given.items[0], "expected a sequence of Tensors") : ext_tuple_of(given);
  return ext_take_tensors(tensors, items, function, "tensors");
}
static PyObject *expanded(const px_tensor *t, const ext_ints *shape) {
  px_tensor *view = NULL;
  return ext_result(px_expand(&view, t, shape->items, shape->count), &view);
}

EXT_FUNCTION(torch, broadcast_tensors,
             "(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]",
             "Broadcasts the given tensors according to broadcasting semantics.\n\n"
             ">>> a, b = torch.broadcast_tensors(torch.zeros(3), torch.zeros(2, 1))\n"
             ">>> a.shape == b.shape == (2, 3)\n"
             "True\n") {
  EXT_DISPATCH_TO_CLASSES();
  EXT_ARGS(ext_varargs, tensors);
  EXT_TENSORS given = {0};
  ext_ints shape = {0};
  if (read_tensors(&given, tensors, "broadcast_tensors") < 0) return NULL;
  for (Py_ssize_t i = 0; i < given.count; i++)
    if (join_shapes(&shape, px_tensor_sizes(given.items[i]), px_tensor_ndim(given.items[i])) < 0)
      return NULL;
  EXT_OWNED *views = PyTuple_New(given.count);
  for (Py_ssize_t i = 0; views && i < given.count; i++) {
    PyObject *view = expanded(given.items[i], &shape);
    if (!view) return NULL;
    PyTuple_SET_ITEM(views, i, view);
  }
  return ext_moved(&views);
}

EXT_FUNCTION(torch, broadcast_shapes, "(*shapes: int | Sequence[int]) -> Size",
             "Broadcasts the given sizes and returns the resulting size.\n\n"
             ">>> torch.broadcast_shapes((3,), (2, 1))\n"
             "torch.Size([2, 3])\n") {
  EXT_ARGS(ext_varargs, shapes);
  ext_ints joined = {0}, one;
  for (Py_ssize_t i = 0; i < shapes.count; i++) {
    if (ext_to_ints(shapes.items[i], &one) < 0) return NULL;
    if (join_shapes(&joined, one.items, one.count) == 0) continue;
    PyErr_Clear();
    EXT_FAIL(PyExc_RuntimeError, "Shape mismatch: objects cannot be broadcast to a single shape");
  }
  return ext_size(joined.count, joined.items);
}

// ---- grids

static int check_grid(const ext_tensors *given, PyObject *const *objects) {
  for (Py_ssize_t i = 0; i < given->count; i++) {
    const px_tensor *t = given->items[i], *first = given->items[0];
    if (px_tensor_ndim(t) > 1)
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: %S",
                   objects[i]);
    if (px_tensor_dtype(t) != px_tensor_dtype(first))
      EXT_FAIL_INT(PyExc_RuntimeError, "torch.meshgrid expects all tensors to have the same dtype");
    if (!px_device_equal(px_tensor_device(t), px_tensor_device(first)))
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "torch.meshgrid expects all tensors to have the same device");
  }
  return 0;
}
// Expands a tensor along one dimension of a grid.
static PyObject *coordinates(const px_tensor *t, const ext_ints *shape, int dim) {
  PX_SCOPED(px_tensor) line = NULL;
  ext_ints sizes = {.count = shape->count};
  for (int d = 0; d < sizes.count; d++) sizes.items[d] = d == dim ? -1 : 1;
  EXT_TRY(px_reshape(&line, t, sizes.items, sizes.count));
  return expanded(line, shape);
}
EXT_FUNCTION(
    torch, meshgrid,
    "(*tensors: Tensor | Sequence[Tensor], indexing: str | None = None) -> tuple[Tensor, "
    "...]",
    "Creates grids of coordinates specified by the 1D inputs: n tensors of n dimensions, each "
    "with the values of one\ninput along its dimension.\n\n"
    "Args:\n"
    "    tensors: 0-D or 1-D tensors\n"
    "    indexing (str): \"ij\" (the default), or \"xy\", which exchanges the first two "
    "dimensions\n\n"
    ">>> torch.meshgrid(torch.tensor([1, 2]), torch.tensor([3, 4]), indexing='ij')[0]\n"
    "tensor([[1, 1],\n"
    "        [2, 2]])\n") {
  EXT_DISPATCH_TO_CLASSES();
  ext_varargs tensors;
  const char *indexing;
  EXT_BIND(tensors, indexing);
  bool exchanged = indexing && !strcmp(indexing, "xy");
  if (indexing && !exchanged && strcmp(indexing, "ij"))
    EXT_FAIL(PyExc_RuntimeError,
             "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: %s",
             indexing);
  EXT_TENSORS given = {0};
  if (read_tensors(&given, tensors, "meshgrid") < 0 ||
      check_grid(&given, PySequence_Fast_ITEMS(given.owner)) < 0)
    return NULL;
  if (given.count > PX_MAX_DIMS)
    EXT_FAIL(PyExc_RuntimeError, "torch.meshgrid: expected at most %d tensors", PX_MAX_DIMS);
  int count = (int)given.count, dims[PX_MAX_DIMS];
  ext_ints shape = {.count = count};
  for (int i = 0; i < count; i++) dims[i] = exchanged && count > 1 && i < 2 ? 1 - i : i;
  for (int i = 0; i < count; i++) shape.items[dims[i]] = px_tensor_numel(given.items[i]);
  EXT_OWNED *grids = PyTuple_New(count);
  for (int i = 0; grids && i < count; i++) {
    PyObject *grid = coordinates(given.items[i], &shape, dims[i]);
    if (!grid) return NULL;
    PyTuple_SET_ITEM(grids, i, grid);
  }
  return ext_moved(&grids);
}

// ---- dtypes

// Type promotion by priority: tensors with dimensions, 0-dim tensors, numbers. A lower priority
// affects the result only if its category is higher, as float is to int.
enum { DIMENSIONED, ZERO_DIM, NUMBER, RANKS };
static int rank_of(PyObject *value, px_dtype *dtype) {
  if (ext_is_tensor(value)) {
    *dtype = px_tensor_dtype(ext_tensor(value));
    return px_tensor_ndim(ext_tensor(value)) ? DIMENSIONED : ZERO_DIM;
  }
  bool complex = ext_is_complex(value);
  if (!complex && !PyObject_HasAttrString(value, "__float__"))
    EXT_FAIL_INT(PyExc_TypeError, "must be Number, not %s", ext_type_name(value));
  px_tensor *made = ext_tensor_from(value, PX_DTYPE_NONE, px_cpu());
  if (!made) return -1;
  *dtype = px_tensor_dtype(made);
  px_release(made);
  return NUMBER;
}
static int category(px_dtype d) {
  return px_dtype_is_complex(d) ? 3 : px_dtype_is_float(d) ? 2 : d != PX_BOOL;
}
static px_dtype promote(px_dtype higher, px_dtype lower) {
  if (higher == PX_DTYPE_NONE) return lower;
  if (lower == PX_DTYPE_NONE || category(lower) <= category(higher)) return higher;
  bool complex = px_dtype_is_complex(lower) && px_dtype_is_float(higher);
  return complex ? px_dtype_to_complex(higher) : lower;
}
EXT_FUNCTION(torch, result_type, "(tensor: Tensor | Number, other: Tensor | Number) -> dtype",
             "Returns the dtype of an arithmetic operation on the inputs.\n\n"
             ">>> torch.result_type(torch.tensor([1, 2]), 1.0)\n"
             "torch.float32\n") {
  EXT_DISPATCH_TO_CLASSES();
  EXT_ARGS(PyObject *, tensor, other);
  px_dtype ranks[RANKS] = {PX_DTYPE_NONE, PX_DTYPE_NONE, PX_DTYPE_NONE}, dtype;
  PyObject *const values[] = {tensor, other};
  for (int i = 0; i < EXT_LENGTH(values); i++) {
    int rank = rank_of(values[i], &dtype);
    if (rank < 0) return NULL;
    if (ranks[rank] == PX_DTYPE_NONE)
      ranks[rank] = dtype;
    else
      EXT_TRY(px_dtype_promote_or_fail(&ranks[rank], ranks[rank], dtype));
  }
  return ext_dtype(promote(promote(ranks[DIMENSIONED], ranks[ZERO_DIM]), ranks[NUMBER]));
}

// ---- values

EXT_FUNCTION_AND_METHOD(
    torch, tensor, allclose,
    "(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool "
    "= False) -> bool",
    "Returns True if isclose holds for all elements, with the same arguments.\n\n"
    ">>> torch.allclose(torch.tensor([1., 2.]), torch.tensor([1., 2.1]))\n"
    "False\n") {
  EXT_DISPATCH_TO_CLASSES();
  PyObject *input, *other;
  double rtol, atol;
  bool equal_nan;
  EXT_BIND(input, other, rtol, atol, equal_nan);
  const px_tensor *a = ext_need_tensor(input, "allclose", "input");
  const px_tensor *b = a ? ext_need_tensor(other, "allclose", "other") : NULL;
  if (!b) return NULL;
  ext_named named[] = {{"self", PX_T(a)},
                       {"other", PX_T(b)},
                       {"rtol", PX_F(rtol)},
                       {"atol", PX_F(atol)},
                       {"equal_nan", PX_B(equal_nan)}};
  px_tensor *close = ext_op_tensor(EXT_OP("isclose"), PX_CALL_NEW, EXT_LENGTH(named), named);
  if (!close) return NULL;
  EXT_OWNED *all =
      ext_op_named(EXT_OP("all"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(close)}});
  px_release(close);
  int truth = all ? PyObject_IsTrue(all) : -1;
  return truth < 0 ? NULL : PyBool_FromLong(truth);
}

// The letters of a list of subscripts: numbers below 52, and Ellipsis.
static PyObject *letters_of(PyObject *list) {
  char text[3 * PX_MAX_DIMS + 1] = "", *at = text;
  EXT_OWNED *items = PySequence_Fast(list, "einsum(): subscripts must be a sequence");
  if (!items) return NULL;
  if (PySequence_Fast_GET_SIZE(items) > PX_MAX_DIMS)
    EXT_FAIL(PyExc_ValueError, "einsum(): a tensor has at most %d subscripts", PX_MAX_DIMS);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(items, i);
    int64_t number = 0;
    if (item != Py_Ellipsis && ext_to_int(item, &number) < 0) return NULL;
    if (number < 0 || number >= 52)
      EXT_FAIL(PyExc_ValueError,
               "einsum(): subscript in subscript list is not within the valid range [0, 52)");
    if (item == Py_Ellipsis)
      memcpy(at, "...", 3), at += 3;
    else
      *at++ = (char)(number < 26 ? 'A' + number : 'a' + number - 26);
  }
  return PyUnicode_FromStringAndSize(text, at - text);
}

// einsum(a, [0, 1], b, [1, 2], [0, 2]) as an equation and its tensors. `rest` follows the first.
static PyObject *einsum_of_lists(PyObject *first, ext_varargs rest, PyObject **equation) {
  EXT_OWNED *terms = PyList_New(0);
  EXT_OWNED *tensors = PyList_New(0);
  EXT_OWNED *comma = PyUnicode_FromString(",");
  if (!terms || !tensors || !comma) return NULL;
  for (Py_ssize_t i = 0; i < rest.count; i += 2) {
    EXT_OWNED *letters = letters_of(rest.items[i]);
    PyObject *tensor = i ? rest.items[i - 1] : first;
    if (!letters || PyList_Append(terms, letters) < 0 || PyList_Append(tensors, tensor) < 0)
      return NULL;
  }
  EXT_OWNED *left = PyUnicode_Join(comma, terms);
  EXT_OWNED *right = left && rest.count % 2 == 0 ? letters_of(rest.items[rest.count - 1]) : NULL;
  if (!left || PyErr_Occurred()) return NULL;
  *equation = right ? PyUnicode_FromFormat("%U->%U", left, right) : Py_NewRef(left);
  return *equation ? PyList_AsTuple(tensors) : NULL;
}

EXT_FUNCTION(
    torch, einsum, "(equation: Any, *operands: Any) -> Tensor",
    "Sums the product of the elements of the input operands along dimensions specified by "
    "letters.\n\n"
    "Args:\n"
    "    equation (str): letters of each operand's dimensions, and after \"->\" those of the "
    "result\n"
    "    operands (Tensors, or a sequence of them)\n\n"
    "The other form has no equation. Each operand is followed by a list of numbers below 52 in "
    "place of the letters,\nwith Ellipsis for \"...\", and the list of the result may come "
    "last.\n\n"
    ">>> torch.einsum(torch.ones(2, 3), [0, 1], torch.ones(3, 2), [1, 2], [0, 2]).shape\n"
    "torch.Size([2, 2])\n"
    ">>> torch.einsum('ij,jk->ik', torch.ones(2, 3), torch.ones(3, 2))\n"
    "tensor([[3., 3.],\n"
    "        [3., 3.]])\n") {
  EXT_DISPATCH_TO_CLASSES();
  PyObject *equation;
  ext_varargs operands;
  EXT_BIND(equation, operands);
  if (!operands.count)
    EXT_FAIL(PyExc_ValueError,
             "einsum(): must specify the equation string and at least one operand, or at least one "
             "operand and its subscripts list");
  bool lists = ext_is_tensor(equation);
  if (!lists && !PyUnicode_Check(equation))
    EXT_FAIL(PyExc_TypeError, "einsum(): argument 'equation' (position 1) must be str, not %s",
             ext_type_name(equation));
  PyObject *made = NULL;
  EXT_OWNED *tensors = lists ? einsum_of_lists(equation, operands, &made) : NULL;
  EXT_OWNED *whole = made ? made : Py_NewRef(equation);
  if (lists && !tensors) return NULL;
  const char *text = ext_text(whole);
  EXT_TENSORS given = {0};
  if (!text) return NULL;
  int read = lists ? ext_take_tensors(&given, Py_NewRef(tensors), "einsum", "tensors")
                   : read_tensors(&given, operands, "einsum");
  if (read < 0) return NULL;
  ext_named named[] = {{"equation", PX_TX(text)},
                       {"tensors", PX_TS(given.items, (int)given.count)}};
  return ext_op_named(EXT_OP("einsum"), PX_CALL_NEW, EXT_LENGTH(named), named);
}

static PyObject *own_copy(PyObject *tensor) {
  EXT_OWNED *alone = PyObject_CallMethod(tensor, "detach", NULL);
  return alone ? PyObject_CallMethod(alone, "clone", NULL) : NULL;
}
// copy=False requires data whose memory can be the result's.
static int check_alias(PyObject *data, px_dtype dtype, px_device device) {
  char here[PX_DEVICE_TEXT], there[PX_DEVICE_TEXT];
  bool tensor = ext_is_tensor(data);
  if (ext_is_array(data) && ext_is_number(data))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "can't alias NumPy scalars. Either remove copy=False or transform it in a "
                 "ndarray. ");
  if (!tensor && !ext_is_foreign(data))
    EXT_FAIL_INT(PyExc_ValueError, "can't alias arbitrary sequence into a tensor.");
  PX_SCOPED(px_tensor) source = ext_tensor_sharing(data, false);
  if (!source) return -1;
  px_device from = px_tensor_device(source);
  if (device.type < 0) device = tensor || from.type != PX_CPU ? from : px_device_default();
  EXT_TRY_INT(px_device_resolve(&device, device));
  if (!px_device_equal(from, device))
    EXT_FAIL_INT(PyExc_ValueError, "can't alias tensor from device '%s' to '%s'.",
                 px_device_format(from, here), px_device_format(device, there));
  if (dtype != PX_DTYPE_NONE && dtype != px_tensor_dtype(source))
    EXT_FAIL_INT(PyExc_ValueError, "can't alias tensor with dtype '%s' into dtype '%s'.",
                 px_dtype_class(px_tensor_dtype(source)), px_dtype_class(dtype));
  return 0;
}
EXT_FUNCTION(
    torch, asarray,
    "(obj: Any, *, dtype: dtype | None = None, device: Device | None = None, copy: bool | None = "
    "None, requires_grad: bool = False) -> Tensor",
    "Converts obj to a tensor, sharing its memory if possible unless copy is True.\n\n"
    "Args:\n"
    "    obj: any data accepted by torch.tensor, a storage, or a DLPack capsule (consumed)\n"
    "    dtype (torch.dtype), device (torch.device): of the result; a copy is made if the object "
    "differs\n"
    "    copy (bool or None): True always copies; False raises ValueError if a copy is needed\n"
    "    requires_grad (bool): whether autograd should record operations on the tensor\n") {
  PyObject *obj;
  px_dtype dtype;
  px_device device;
  ext_optional_bool copy;
  bool requires_grad;
  EXT_BIND(obj, dtype, device, copy, requires_grad);
  const char *reader = ext_is_storage(obj)         ? "_storage_elements"
                       : PyCapsule_CheckExact(obj) ? "_take_capsule"
                                                   : NULL;
  EXT_OWNED *data = reader ? ext_call_from("phlox._C", reader, "(O)", obj) : Py_NewRef(obj);
  if (!data || (copy == 0 && check_alias(data, dtype, device) < 0)) return NULL;
  EXT_OWNED *made = ext_as_tensor(data, dtype, device);
  if (made && copy > 0) Py_SETREF(made, own_copy(made));
  if (!made || !requires_grad) return ext_moved(&made);
  return PyObject_CallMethod(made, "requires_grad_", NULL);
}

EXT_FUNCTION(torch, is_nonzero, "(input: Tensor) -> bool",
             "Returns the truth value of a single-element tensor; RuntimeError for others.") {
  EXT_DISPATCH_TO_CLASSES();
  EXT_ARGS(PyObject *, input);
  if (!ext_need_tensor(input, "is_nonzero", "input")) return NULL;
  int truth = PyObject_IsTrue(input);
  return truth < 0 ? NULL : PyBool_FromLong(truth);
}
EXT_FUNCTION(torch, numel, "(input: Tensor) -> int",
             "Returns the total number of elements in the input tensor.") {
  EXT_DISPATCH_TO_CLASSES();
  EXT_ARGS(PyObject *, input);
  const px_tensor *t = ext_need_tensor(input, "numel", "input");
  return t ? PyLong_FromLongLong(px_tensor_numel(t)) : NULL;
}

EXT_FUNCTION(
    torch, get_device_module, "(device: Device | None = None) -> Any",
    "Returns the module of a device's type, torch.cuda or torch.cpu; by default that of the "
    "accelerator.\n\n"
    ">>> torch.get_device_module(\"cpu\") is torch.cpu\n"
    "True\n") {
  EXT_ARGS(px_device, device);
  if (device.type < 0) device.type = px_device_count(PX_CUDA) > 0 ? PX_CUDA : PX_CPU;
  const char *name = px_device_type_name(device.type);
  if (device.type != PX_CPU && device.type != PX_CUDA)
    EXT_FAIL(PyExc_RuntimeError,
             "Device '%s' does not have a corresponding module registered as 'torch.%s'.", name,
             name);
  return ext_extension_attr(name);
}
