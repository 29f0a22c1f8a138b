// SPDX-License-Identifier: Apache-2.0
// Functions of torch accepting any number of tensors, or dimensions in several forms, over ops with
// list parameters. Also in-place forms of ops whose results have a dtype of their own.
#include "bind/ext.h"
#include "phlox/ops/linalg.h"
#include "phlox/register.h"

// ---- any number of tensors

// Applies an op to each tensor of f(a, b) or f([a, b]); f(a) does not return a tuple.
static PyObject *apply_to_each(const px_op *op, ext_varargs given, const char *function) {
  bool alone = given.count == 1 && ext_is_tensor(given.items[0]);
  EXT_OWNED *items = given.count == 1 && !alone
                         ? ext_items(given.items[0], "expected a sequence of Tensors")
                         : ext_tuple_of(given);
  Py_ssize_t count = items ? PySequence_Fast_GET_SIZE(items) : 0;
  EXT_OWNED *made = items ? PyTuple_New(count) : NULL;
  for (Py_ssize_t i = 0; made && i < count; i++) {
    px_tensor *t = ext_need_tensor(PySequence_Fast_GET_ITEM(items, i), function, "tensors");
    PyObject *wide = t ? ext_op_named(op, PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(t)}}) : NULL;
    if (!wide) return NULL;
    PyTuple_SET_ITEM(made, i, wide);
  }
  return alone && made ? Py_NewRef(PyTuple_GET_ITEM(made, 0)) : ext_moved(&made);
}
#define AT_LEAST(name, text, example) \
  EXT_FUNCTION(torch, name, \
               "(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]", \
               text "\n\n" example) { \
    EXT_ARGS(ext_varargs, tensors); \
    return apply_to_each(EXT_OP(#name), tensors, #name); \
  } \
  struct ext_row
AT_LEAST(atleast_1d, "Returns a 1-dimensional view of each input tensor with zero dimensions.",
         ">>> torch.atleast_1d(torch.tensor(3))\n"
         "tensor([3])\n");
AT_LEAST(atleast_2d, "Returns a 2-dimensional view of each input tensor with fewer dimensions.",
         ">>> torch.atleast_2d(torch.tensor([3, 4]))\n"
         "tensor([[3, 4]])\n");
AT_LEAST(atleast_3d, "Returns a 3-dimensional view of each input tensor with fewer dimensions.",
         ">>> torch.atleast_3d(torch.zeros(2, 3)).shape\n"
         "torch.Size([2, 3, 1])\n");

static PyObject *call_with_list(const px_op *op, ext_varargs given, const char *function) {
  EXT_TENSORS tensors = {0};
  for (Py_ssize_t i = 0; i < given.count; i++)
    if (!ext_is_tensor(given.items[i]))
      EXT_FAIL(PyExc_TypeError, "expected Tensor as element %zd in argument 0, but got %s", i,
               ext_type_name(given.items[i]));
  if (ext_take_tensors(&tensors, ext_tuple_of(given), function, "tensors") < 0) return NULL;
  return ext_op_named(op, PX_CALL_NEW, 1,
                      (ext_named[]){{"tensors", PX_TS(tensors.items, (int)tensors.count)}});
}
EXT_FUNCTION(torch, block_diag, "(*tensors: Tensor) -> Tensor",
             "Creates a block diagonal matrix from the given tensors.\n\n"
             ">>> torch.block_diag(torch.tensor([[1, 2]]), torch.tensor(3))\n"
             "tensor([[1, 2, 0],\n"
             "        [0, 0, 3]])\n") {
  EXT_ARGS(ext_varargs, tensors);
  return call_with_list(EXT_OP("block_diag"), tensors, "block_diag");
}
EXT_FUNCTION(torch, cartesian_prod, "(*tensors: Tensor) -> Tensor",
             "Returns the Cartesian product of 1-D tensors, one combination per row.\n\n"
             ">>> torch.cartesian_prod(torch.tensor([1, 2]), torch.tensor([3, 4]))\n"
             "tensor([[1, 3],\n"
             "        [1, 4],\n"
             "        [2, 3],\n"
             "        [2, 4]])\n") {
  EXT_ARGS(ext_varargs, tensors);
  return call_with_list(EXT_OP("cartesian_prod"), tensors, "cartesian_prod");
}

// ---- lists of copies

// Writes a copy of each view to the corresponding out tensor. All shapes are checked and all copies
// made before the first write: outputs may be views of the same tensor.
static PyObject *write_copies(PyObject *views, PyObject *copies, PyObject *out,
                              const char *function, const char *form) {
  EXT_TENSORS parts = {0}, from = {0}, to = {0};
  const px_op *copy = EXT_OP("alias_copy");
  if (ext_take_tensors(&parts, Py_NewRef(views), function, "self") < 0 ||
      ext_take_tensors(&from, Py_NewRef(copies), function, "self") < 0 ||
      ext_take_tensors(&to, ext_items(out, "argument 'out' must be tuple of Tensors"), function,
                       "out") < 0)
    return NULL;
  if (from.count != to.count)
    EXT_FAIL(PyExc_RuntimeError, "%s expected an out= argument of size %lld, got size %lld", form,
             (long long)from.count, (long long)to.count);
  for (int64_t i = 0; i < from.count; i++) {
    const px_value self = PX_T(parts.items[i]);
    EXT_TRY(px_op_check_out(copy, &self, to.items[i], px_tensor_dtype(parts.items[i])));
  }
  for (int64_t i = 0; i < from.count; i++) {
    void *results[] = {to.items[i]};
    const px_value self = PX_T(from.items[i]);
    EXT_TRY(EXT_NOGIL(px_op_call(copy, PX_CALL_OUT, &self, results)));
    px_release(results[0]);
  }
  Py_RETURN_NONE;
}
// Returns or writes copies of the views returned by an op.
static PyObject *copies_of(const px_op *copies, const px_op *views, int count,
                           const ext_named *given, PyObject *out, const char *form) {
  EXT_OWNED *made = ext_op_named(copies, PX_CALL_NEW, count, given);
  if (!made || !out) return ext_moved(&made);
  EXT_OWNED *parts = ext_op_named(views, PX_CALL_NEW, count, given);
  return parts ? write_copies(parts, made, out, copies->name, form) : NULL;
}
EXT_FUNCTION(torch, unbind_copy,
             "(input: Tensor, dim: int = 0, *, out: Sequence[Tensor] | None = None) -> "
             "tuple[Tensor, ...] | None",
             "Returns copies of the results of unbind, or None if they are written to `out`.\n\n"
             ">>> torch.unbind_copy(torch.tensor([1, 2]))\n"
             "(tensor(1), tensor(2))\n") {
  px_tensor *input;
  int64_t dim;
  PyObject *out;
  EXT_BIND(input, dim, out);
  const ext_named given[] = {{"self", PX_T(input)}, {"dim", PX_I(dim)}};
  return copies_of(EXT_OP("unbind_copy"), EXT_OP("unbind"), 2, given, out, "unbind_copy_int_out");
}
EXT_FUNCTION(torch, split_copy,
             "(input: Tensor, split_size: int, dim: int = 0, *, out: Sequence[Tensor] | None = "
             "None) -> tuple[Tensor, ...] | None",
             "Returns copies of the results of split, or None if they are written to `out`.\n\n"
             ">>> torch.split_copy(torch.tensor([1, 2, 3]), 2)\n"
             "(tensor([1, 2]), tensor([3]))\n") {
  px_tensor *input;
  int64_t split_size, dim;
  PyObject *out;
  EXT_BIND(input, split_size, dim, out);
  const ext_named given[] = {
      {"self", PX_T(input)}, {"split_size", PX_I(split_size)}, {"dim", PX_I(dim)}};
  return copies_of(EXT_OP("split_copy"), EXT_OP("split"), 3, given, out, "split_copy_Tensor_out()");
}
EXT_FUNCTION(torch, split_with_sizes_copy,
             "(input: Tensor, split_sizes: Sequence[int], dim: int = 0, *, out: Sequence[Tensor] | "
             "None = None) -> tuple[Tensor, ...] | None",
             "Returns copies of the results of split_with_sizes, or None if they are written to "
             "`out`.\n\n"
             ">>> torch.split_with_sizes_copy(torch.tensor([1, 2, 3]), [1, 2])\n"
             "(tensor([1]), tensor([2, 3]))\n") {
  px_tensor *input;
  ext_ints split_sizes;
  int64_t dim;
  PyObject *out;
  EXT_BIND(input, split_sizes, dim, out);
  const ext_named given[] = {{"self", PX_T(input)},
                             {"split_sizes", PX_IS(split_sizes.items, split_sizes.count)},
                             {"dim", PX_I(dim)}};
  return copies_of(EXT_OP("split_with_sizes_copy"), EXT_OP("split_with_sizes"), 3, given, out,
                   "split_with_sizes_copy_out");
}

// ---- tensordot

// The last `count` dimensions of one tensor and the first of the other.
static int count_dims(ext_ints *a, ext_ints *b, int64_t count, px_tensor *left, px_tensor *right) {
  if (count < 0)
    EXT_FAIL_INT(PyExc_RuntimeError, "tensordot expects dims >= 0, but got dims=%lld",
                 (long long)count);
  if (count > px_tensor_ndim(left) || count > px_tensor_ndim(right))
    EXT_FAIL_INT(PyExc_RuntimeError, "tensordot expects dims < ndim_a or ndim_b, but got dims=%lld",
                 (long long)count);
  a->count = b->count = (int)count;
  for (int i = 0; i < count; i++) a->items[i] = i - count, b->items[i] = i;
  return 0;
}
// A number of dimensions, two lists of dimensions, or a tensor of either.
static int read_dims(ext_ints *a, ext_ints *b, PyObject *dims, px_tensor *left, px_tensor *right) {
  int64_t count = 2;
  EXT_OWNED *plain = NULL;
  if (!dims) return count_dims(a, b, count, left, right);
  plain = ext_is_tensor(dims) ? PyObject_CallMethod(dims, "tolist", NULL) : Py_NewRef(dims);
  if (!plain) return -1;
  if (!PyTuple_Check(plain) && !PyList_Check(plain)) {
    if (ext_to_int(plain, &count) < 0) return -1;
    return count_dims(a, b, count, left, right);
  }
  if (PySequence_Size(plain) != 2)
    EXT_FAIL_INT(
        PyExc_RuntimeError,
        "tensordot expects dims to be int or tuple[list[int], list[int]] or list[list[int]] "
        "containing two lists, but got dims=%R",
        plain);
  EXT_OWNED *first = PySequence_GetItem(plain, 0);
  EXT_OWNED *second = first ? PySequence_GetItem(plain, 1) : NULL;
  return second && ext_to_ints(first, a) == 0 && ext_to_ints(second, b) == 0 ? 0 : -1;
}
EXT_FUNCTION(torch, tensordot,
             "(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] | Tensor = 2, *, out: "
             "Tensor | None = None) -> Tensor",
             "Returns a contraction of a and b over multiple dimensions.\n\n"
             "Args:\n"
             "    a (Tensor)\n"
             "    b (Tensor)\n"
             "    dims (int, or two lists): number of trailing dimensions of a and leading "
             "dimensions of b,\n        or the dimensions of each\n\n"
             ">>> torch.tensordot(torch.ones(2, 3), torch.ones(3, 2), dims=1)\n"
             "tensor([[3., 3.],\n"
             "        [3., 3.]])\n") {
  px_tensor *a, *b;
  PyObject *dims, *out;
  ext_ints left, right;
  EXT_BIND(a, b, dims, out);
  if (read_dims(&left, &right, dims, a, b) < 0) return NULL;
  if (!out)
    return ext_op_named(EXT_OP("tensordot"), PX_CALL_NEW, 4,
                        (ext_named[]){{"self", PX_T(a)},
                                      {"other", PX_T(b)},
                                      {"dims_self", PX_IS(left.items, left.count)},
                                      {"dims_other", PX_IS(right.items, right.count)}});
  if (!ext_need_tensor(out, "tensordot", "out")) return NULL;
  EXT_TRY(EXT_NOGIL(
      px_tensordot_out(ext_tensor(out), a, b, left.items, left.count, right.items, right.count)));
  return Py_NewRef(out);
}

// ---- in-place scans, which keep the tensor's dtype

static PyObject *run_inplace(PyObject *self, const px_op *op, int64_t dim, px_dtype dtype) {
  px_tensor *t = ext_tensor(self);
  if (dtype != PX_DTYPE_NONE && dtype != px_tensor_dtype(t))
    EXT_FAIL(PyExc_RuntimeError,
             "Bad in-place call: input tensor dtype %s and output tensor dtype %s should match",
             px_dtype_about(px_tensor_dtype(t))->c_name, px_dtype_about(dtype)->c_name);
  return ext_op_named(op, PX_CALL_INPLACE, 2, (ext_named[]){{"self", PX_T(t)}, {"dim", PX_I(dim)}});
}
EXT_METHOD(tensor, cumsum_, "(dim: int, *, dtype: dtype | None = None) -> Tensor",
           "In-place version of cumsum.") {
  int64_t dim;
  px_dtype dtype;
  EXT_BIND(dim, dtype);
  return run_inplace(self, EXT_OP("cumsum"), dim, dtype);
}
EXT_METHOD(tensor, cumprod_, "(dim: int, *, dtype: dtype | None = None) -> Tensor",
           "cumprod, in place.") {
  int64_t dim;
  px_dtype dtype;
  EXT_BIND(dim, dtype);
  return run_inplace(self, EXT_OP("cumprod"), dim, dtype);
}

// ---- predicates

EXT_FUNCTION(torch, is_signed, "(input: Tensor) -> bool",
             "Returns True if the dtype of input is a signed type.") {
  EXT_ARGS(px_tensor *, input);
  return PyBool_FromLong(px_dtype_is_signed(px_tensor_dtype(input)));
}
EXT_FUNCTION(torch, is_same_size, "(input: Tensor, other: Tensor) -> bool",
             "Returns True if both tensors have the same size.") {
  PyObject *input, *other;
  EXT_BIND(input, other);
  if (!ext_need_tensor(input, "is_same_size", "input")) return NULL;
  return PyObject_CallMethod(input, "is_same_size", "O", other);
}
EXT_METHOD0(tensor, is_nonzero, "bool", "Returns the truth value of a single-element tensor.") {
  int truth = PyObject_IsTrue(self);
  return truth < 0 ? NULL : PyBool_FromLong(truth);
}
