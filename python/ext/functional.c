// SPDX-License-Identifier: Apache-2.0
// Functions of the torch namespace that are not ops of the tables, since their results are values
// of Python, or their arguments are forms that a schema has no word for. What computes are ops.
#include <math.h>
#include <string.h>

#include "ext.h"
#include "phlox/ops.h"

EXT_FUNCTION(torch, is_tensor, "(obj: object) -> bool", "Whether an object is a tensor.") {
  PyObject *obj;
  EXT_BIND(obj);
  return PyBool_FromLong(ext_is_tensor(obj));
}
EXT_FUNCTION(torch, is_floating_point, "(input: Tensor) -> bool",
             "Whether the elements are floating point.") {
  px_tensor *input;
  EXT_BIND(input);
  return PyBool_FromLong(px_dtype_is_float(px_tensor_dtype(input)));
}
EXT_FUNCTION(torch, is_complex, "(input: Tensor) -> bool", "False: there are no complex dtypes.") {
  px_tensor *input;
  EXT_BIND(input);
  Py_RETURN_FALSE;
}
EXT_FUNCTION(torch, numel, "(input: Tensor) -> int", "Number of elements.") {
  px_tensor *input;
  EXT_BIND(input);
  return PyLong_FromLongLong(px_tensor_numel(input));
}
EXT_FUNCTION(torch, is_nonzero, "(input: Tensor) -> bool",
             "The truth of a tensor of one element; RuntimeError for others.") {
  PyObject *input;
  EXT_BIND(input);
  if (!ext_need_tensor(input, "is_nonzero", "input")) return NULL;
  int truth = PyObject_IsTrue(input);
  return truth < 0 ? NULL : PyBool_FromLong(truth);
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
  PyObject *input, *other;
  EXT_BIND(input, other);
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

// |a - b| <= atol + rtol |b|, or equal (infinities), or both NaN where asked for.
static PyObject *close_to(PyObject *a, PyObject *b, PyObject *rtol, PyObject *atol, int equal_nan) {
  EXT_OWNED *difference = PyNumber_Subtract(a, b);
  EXT_OWNED *distance = difference ? PyNumber_Absolute(difference) : NULL;
  EXT_OWNED *size = distance ? PyNumber_Absolute(b) : NULL;
  EXT_OWNED *relative = size ? PyNumber_Multiply(size, rtol) : NULL;
  EXT_OWNED *allowed = relative ? PyNumber_Add(relative, atol) : NULL;
  EXT_OWNED *near_enough = allowed ? ext_richcompare(distance, allowed, Py_LE) : NULL;
  EXT_OWNED *zero = near_enough ? PyNumber_Subtract(distance, distance) : NULL;  // NaN: not finite
  EXT_OWNED *finite = zero ? ext_richcompare(zero, zero, Py_EQ) : NULL;
  EXT_OWNED *close = finite ? PyNumber_And(near_enough, finite) : NULL;
  EXT_OWNED *same = close ? ext_richcompare(a, b, Py_EQ) : NULL;
  EXT_OWNED *result = same ? PyNumber_Or(close, same) : NULL;
  if (!equal_nan || !result) return ext_moved(&result);
  EXT_OWNED *nan_a = ext_richcompare(a, a, Py_NE);
  EXT_OWNED *nan_b = nan_a ? ext_richcompare(b, b, Py_NE) : NULL;
  EXT_OWNED *both = nan_b ? PyNumber_And(nan_a, nan_b) : NULL;
  return both ? PyNumber_Or(result, both) : NULL;
}

static PyObject *close_of(const ext_call *call) {
  PyObject *input, *other;
  double rtol, atol;
  bool equal_nan;
  EXT_BIND(input, other, rtol, atol, equal_nan);
  px_tensor *a = ext_need_tensor(input, call->row->name, "input");
  px_tensor *b = a ? ext_need_tensor(other, call->row->name, "other") : NULL;
  if (!b) return NULL;
  if (px_tensor_dtype(a) != px_tensor_dtype(b))
    EXT_FAIL(PyExc_RuntimeError, "%s did not match %s", px_dtype_class(px_tensor_dtype(a)),
             px_dtype_class(px_tensor_dtype(b)));
  if (px_tensor_dtype(a) == PX_BOOL) return ext_richcompare(input, other, Py_EQ);
  EXT_OWNED *relative = PyFloat_FromDouble(rtol);
  EXT_OWNED *absolute = PyFloat_FromDouble(atol);
  return relative && absolute ? close_to(input, other, relative, absolute, equal_nan) : NULL;
}
#define CLOSE_SIGNATURE(result) \
  "(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = " \
  "False) -> " result
EXT_BOTH(torch, tensor, isclose, CLOSE_SIGNATURE("Tensor"),
         "Where |input - other| <= atol + rtol * |other|.\n\n"
         "Args:\n"
         "    input, other (Tensor): of one dtype\n"
         "    rtol, atol (float): how far they may be apart\n"
         "    equal_nan (bool): two NaN are close\n\n"
         ">>> torch.isclose(torch.tensor([1., 2.]), torch.tensor([1., 2.1]))\n"
         "tensor([ True, False])\n") {
  return close_of(call);
}
EXT_BOTH(torch, tensor, allclose, CLOSE_SIGNATURE("bool"),
         "Whether isclose holds everywhere; its arguments.\n\n"
         ">>> torch.allclose(torch.tensor([1., 2.]), torch.tensor([1., 2.1]))\n"
         "False\n") {
  return all_true(close_of(call));
}

// ---- types of results
// What a lower category adds to a higher one: nothing, unless it is of a higher kind of number.
static px_dtype combine(px_dtype higher, px_dtype lower) {
  if (higher == PX_DTYPE_NONE) return lower;
  if (lower == PX_DTYPE_NONE || px_dtype_is_float(higher)) return higher;
  if (higher == PX_BOOL || px_dtype_is_float(lower)) return px_dtype_promote(higher, lower);
  return higher;
}
static px_dtype join(px_dtype a, px_dtype b) {
  return a == PX_DTYPE_NONE ? b : b == PX_DTYPE_NONE ? a : px_dtype_promote(a, b);
}
EXT_FUNCTION(torch, result_type, "(tensor: Tensor | Number, other: Tensor | Number) -> dtype",
             "The dtype of what an operation on the two gives.\n\n"
             ">>> torch.result_type(torch.tensor([1, 2]), 1.0)\n"
             "torch.float32\n") {
  PyObject *tensor, *other;
  EXT_BIND(tensor, other);
  PyObject *given[2] = {tensor, other};
  px_dtype kinds[3] = {PX_DTYPE_NONE, PX_DTYPE_NONE, PX_DTYPE_NONE};
  for (int i = 0; i < 2; i++) {
    px_scalar scalar;
    int kind = 2;
    px_dtype dtype;
    if (ext_is_tensor(given[i])) {
      kind = px_tensor_ndim(ext_tensor(given[i])) ? 0 : 1;
      dtype = px_tensor_dtype(ext_tensor(given[i]));
    } else {
      if (ext_to_scalar(given[i], &scalar) < 0) return NULL;
      dtype = px_scalar_dtype(scalar);
    }
    kinds[kind] = join(kinds[kind], dtype);
  }
  return ext_dtype(combine(combine(kinds[0], kinds[1]), kinds[2]));
}

// ---- several tensors
enum { MAX_TENSORS = 64 };
// The tensors of f(a, b, c) or f([a, b, c]); the count, or -1.
static int read_tensors(ext_rest given, px_tensor **items, const char *function) {
  EXT_OWNED *keep = NULL;
  if (given.count == 1 && !ext_is_tensor(given.items[0]))
    return ext_to_tensors(given.items[0], items, MAX_TENSORS, function, &keep);
  if (given.count > MAX_TENSORS) EXT_FAIL_INT(PyExc_ValueError, "%s(): too many tensors", function);
  for (Py_ssize_t i = 0; i < given.count; i++) {
    items[i] = ext_need_tensor(given.items[i], function, "tensors");
    if (!items[i]) return -1;
  }
  return (int)given.count;
}

static int broadcast_into(ext_ints *shape, const int64_t *sizes, int ndim) {
  if (ndim > shape->count) {
    int shift = ndim - shape->count;
    for (int i = shape->count - 1; i >= 0; i--) shape->items[i + shift] = shape->items[i];
    for (int i = 0; i < shift; i++) shape->items[i] = 1;
    shape->count = ndim;
  }
  for (int i = 0; i < ndim; i++) {
    int64_t *at = &shape->items[shape->count - ndim + i];
    if (*at == 1) *at = sizes[i];
    if (sizes[i] != 1 && sizes[i] != *at)
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "The size of tensor a (%lld) must match the size of tensor b (%lld) at "
                   "non-singleton dimension %d",
                   (long long)*at, (long long)sizes[i], shape->count - ndim + i);
  }
  return 0;
}

static PyObject *expanded(px_tensor *t, const ext_ints *shape) {
  return ext_op_named(
      EXT_OP("expand"), PX_CALL_NEW, 2,
      (ext_named[]){{"self", PX_T(t)}, {"size", PX_IS(shape->items, shape->count)}});
}

static PyObject *fill_tuple(PyObject *tuple, int i, PyObject *item_take) {
  if (!item_take) {
    Py_XDECREF(tuple);
    return NULL;
  }
  PyTuple_SET_ITEM(tuple, i, item_take);
  return tuple;
}

EXT_FUNCTION(torch, broadcast_tensors,
             "(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]",
             "Views of the tensors with one size, by the rules of broadcasting.\n\n"
             ">>> a, b = torch.broadcast_tensors(torch.zeros(3), torch.zeros(2, 1))\n"
             ">>> a.shape == b.shape == (2, 3)\n"
             "True\n") {
  ext_rest tensors;
  px_tensor *items[MAX_TENSORS];
  ext_ints shape = {.count = 0};
  EXT_BIND(tensors);
  int n = read_tensors(tensors, items, "broadcast_tensors");
  if (n < 0) return NULL;
  for (int i = 0; i < n; i++)
    if (broadcast_into(&shape, px_tensor_sizes(items[i]), px_tensor_ndim(items[i])) < 0)
      return NULL;
  PyObject *tuple = PyTuple_New(n);
  for (int i = 0; tuple && i < n; i++) tuple = fill_tuple(tuple, i, expanded(items[i], &shape));
  return tuple;
}

EXT_FUNCTION(torch, broadcast_shapes, "(*shapes: int | Sequence[int]) -> Size",
             "The size that sizes are broadcast to.\n\n"
             ">>> torch.broadcast_shapes((3,), (2, 1))\n"
             "torch.Size([2, 3])\n") {
  ext_rest shapes;
  ext_ints shape = {.count = 0}, one;
  EXT_BIND(shapes);
  for (Py_ssize_t i = 0; i < shapes.count; i++) {
    if (ext_to_ints(shapes.items[i], &one) < 0) return NULL;
    if (broadcast_into(&shape, one.items, one.count) < 0) {
      PyErr_SetString(PyExc_RuntimeError,
                      "Shape mismatch: objects cannot be broadcast to a single shape");
      return NULL;
    }
  }
  return ext_size(shape.count, shape.items);
}

EXT_FUNCTION(
    torch, meshgrid,
    "(*tensors: Tensor | Sequence[Tensor], indexing: str | None = None) -> tuple[Tensor, ...]",
    "Grids of coordinates: of n tensors, n of n dimensions, each with one tensor's values "
    "along one.\n\n"
    "Args:\n"
    "    tensors: of one dimension, or none\n"
    "    indexing (str): \"ij\" (the default), or \"xy\", where the first two dimensions are "
    "exchanged\n\n"
    ">>> torch.meshgrid(torch.tensor([1, 2]), torch.tensor([3, 4]), indexing='ij')[0]\n"
    "tensor([[1, 1],\n"
    "        [2, 2]])\n") {
  ext_rest tensors;
  PyObject *indexing;
  px_tensor *items[MAX_TENSORS];
  EXT_BIND(tensors, indexing);
  bool swap =
      indexing && PyUnicode_Check(indexing) && !PyUnicode_CompareWithASCIIString(indexing, "xy");
  if (indexing && !swap &&
      (!PyUnicode_Check(indexing) || PyUnicode_CompareWithASCIIString(indexing, "ij")))
    EXT_FAIL(PyExc_RuntimeError,
             "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: %S",
             indexing);
  int n = read_tensors(tensors, items, "meshgrid");
  if (n < 0) return NULL;
  swap = swap && n >= 2;
  ext_ints shape = {.count = n};
  for (int i = 0; i < n; i++) shape.items[swap && i < 2 ? 1 - i : i] = px_tensor_numel(items[i]);
  PyObject *tuple = PyTuple_New(n);
  for (int i = 0; tuple && i < n; i++) {
    int64_t view[PX_MAX_DIMS];
    int dim = swap && i < 2 ? 1 - i : i;
    for (int k = 0; k < n; k++) view[k] = k == dim ? px_tensor_numel(items[i]) : 1;
    PX_SCOPED(px_tensor)
    shaped = ext_op_tensor(EXT_OP("reshape"), PX_CALL_NEW, 2,
                           (ext_named[]){{"self", PX_T(items[i])}, {"shape", PX_IS(view, n)}});
    tuple = fill_tuple(tuple, i, shaped ? expanded(shaped, &shape) : NULL);
  }
  return tuple;
}

EXT_FUNCTION(
    torch, einsum, "(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor",
    "Sums of products along dimensions that are named by letters.\n\n"
    "Args:\n"
    "    equation (str): letters of each operand's dimensions, and behind \"->\" those of the "
    "result\n"
    "    operands (Tensors, or a sequence of them)\n\n"
    ">>> torch.einsum('ij,jk->ik', torch.ones(2, 3), torch.ones(3, 2))\n"
    "tensor([[3., 3.],\n"
    "        [3., 3.]])\n") {
  PyObject *equation;
  ext_rest operands;
  px_tensor *items[MAX_TENSORS];
  EXT_BIND(equation, operands);
  const char *text = PyUnicode_Check(equation) ? PyUnicode_AsUTF8(equation) : NULL;
  if (!text) EXT_FAIL(PyExc_TypeError, "einsum(): the first argument must be the equation");
  int n = read_tensors(operands, items, "einsum");
  if (n < 0) return NULL;
  return ext_op_named(EXT_OP("einsum"), PX_CALL_NEW, 2,
                      (ext_named[]){{"equation", PX_TX(text)}, {"tensors", PX_TS(items, n)}});
}

// ---- forms of ops that take fewer arguments
// The columns of nonzero(): what where(condition) gives.
static PyObject *nonzero_tuple(PyObject *self) {
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
  if (as_tuple) return nonzero_tuple(input);
  return ext_op_named(EXT_OP("nonzero"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(t)}});
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
  PyObject *condition, *other;
  EXT_BIND(condition, other);
  PyObject *given[] = {condition, self, other};
  return PyObject_Vectorcall(where_op, given, 3, NULL);
}
static int find_where(PyObject *torch) {
  where_op = Py_XNewRef(ext_op_object('f', "where"));
  return where_op ? 0 : -1;
}
EXT_START(EXT_VALUES, find_where);

// ---- other sizes of images

// A scale for both dimensions, or (height, width); *given tells whether there is one.
static int read_scale(PyObject *object, double *scale, bool *given) {
  *given = !ext_is_none(object);
  if (!*given) return 0;
  if (!PySequence_Check(object)) {
    if (ext_to_double(object, &scale[0]) < 0) return -1;
    scale[1] = scale[0];
    return 0;
  }
  Py_ssize_t count = PySequence_Size(object);
  if (count < 1 || count > 2)
    EXT_FAIL_INT(PyExc_ValueError, "scale_factor takes one or two numbers, but got %zd", count);
  for (Py_ssize_t i = 0; i < 2; i++) {
    EXT_OWNED *item = PySequence_GetItem(object, count == 2 ? i : 0);
    if (!item || ext_to_double(item, &scale[i]) < 0) return -1;
  }
  return 0;
}
// The sizes that scales give, where they are to take the scales' place.
static void size_of_scale(const px_tensor *x, const double *scale, ext_ints *size) {
  int dims = px_tensor_ndim(x) - 2;
  for (int k = 0; k < dims && k < 2; k++)
    size->items[k] = (int64_t)floor((double)px_tensor_sizes(x)[2 + k] * scale[dims == 1 ? 1 : k]);
  size->count = dims < 2 ? dims : 2;
}
EXT_FUNCTION(
    nn_functional, interpolate,
    "(input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | "
    "Sequence[float] | None = None, mode: str = 'nearest', align_corners: bool | None = None, "
    "recompute_scale_factor: bool | None = None, antialias: bool = False) -> Tensor",
    "Images (N, C, H, W) or lines (N, C, L) of another size.\n\n"
    "Args:\n"
    "    input (Tensor)\n"
    "    size (int or ints): the new size; or\n"
    "    scale_factor (float or floats): by how much larger\n"
    "    mode (str): \"nearest\", \"nearest-exact\", \"linear\", \"bilinear\", \"bicubic\" or "
    "\"area\"\n"
    "    align_corners (bool): the corners' elements lie on those of the input\n"
    "    recompute_scale_factor (bool): the scale is that of the sizes, rounded\n\n"
    ">>> torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2), scale_factor=2).shape\n"
    "torch.Size([1, 1, 4, 4])\n") {
  px_tensor *input, *made;
  PyObject *scale_factor;
  ext_ints size;
  const char *mode;
  ext_maybe align_corners, recompute_scale_factor;
  bool antialias, scaled;
  double scale[2];
  EXT_BIND(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias);
  if (read_scale(scale_factor, scale, &scaled) < 0) return NULL;
  // align_corners=False is refused too by the modes that have no corners.
  bool cornerless = !strncmp(mode, "nearest", 7) || !strcmp(mode, "area");
  bool corners = align_corners > 0 || (align_corners == 0 && cornerless);
  if (antialias)
    EXT_FAIL(PyExc_NotImplementedError, "interpolate with antialias=True is not implemented");
  bool sized = size.count > 0;
  if (recompute_scale_factor > 0 && scaled && !sized) {
    size_of_scale(input, scale, &size);
    scaled = false;
    sized = true;
  }
  EXT_TRY(px_resize_images(&made, input, sized ? size.items : NULL, sized ? size.count : 0,
                           scaled ? &scale[0] : NULL, scaled ? &scale[1] : NULL, mode, corners));
  return ext_wrap(made);
}
EXT_ALSO(nn_functional, upsample, nn_functional_interpolate);
