// SPDX-License-Identifier: Apache-2.0
// torch.unique and unique_consecutive: they give a tensor, or a tuple with what was asked for.
#include "ext.h"

// The first of the op's three results, and those of the others that are wanted.
static PyObject *chosen(PyObject *results_take, bool inverse, bool counts) {
  EXT_OWNED *results = results_take;
  if (!results) return NULL;
  EXT_OWNED *list = PySequence_List(results);
  if (!list) return NULL;
  if (!counts && PyList_SetSlice(list, 2, 3, NULL) < 0) return NULL;
  if (!inverse && PyList_SetSlice(list, 1, 2, NULL) < 0) return NULL;
  return PyList_GET_SIZE(list) == 1 ? Py_NewRef(PyList_GET_ITEM(list, 0)) : PyList_AsTuple(list);
}

#define RESULT "Tensor | tuple[Tensor, ...]"
EXT_BOTH(torch, tensor, unique,
         "(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = "
         "False, dim: int | None = None) -> " RESULT,
         "The values that occur, each once.\n\n"
         "Args:\n"
         "    input (Tensor)\n"
         "    sorted (bool): in ascending order; they are so in any case\n"
         "    return_inverse (bool): also gives the index in the result of each element\n"
         "    return_counts (bool): also gives how often each value occurs\n"
         "    dim (int or None): compares slices along a dimension, rather than elements\n\n"
         ">>> torch.unique(torch.tensor([3, 1, 3]), return_counts=True)\n"
         "(tensor([1, 3]), tensor([1, 2]))\n") {
  px_tensor *input;
  bool sorted, return_inverse, return_counts;
  int64_t dim;
  EXT_BIND(input, sorted, return_inverse, return_counts, dim);
  ext_named named[] = {{"self", PX_T(input)},
                       {"sorted", PX_B(sorted)},
                       {"return_inverse", PX_B(return_inverse)},
                       {"return_counts", PX_B(return_counts)},
                       {"dim", PX_I(dim)}};
  bool by_dim = dim != EXT_NO_INT;
  const px_op *op = by_dim ? EXT_OP("unique_dim") : EXT_OP("unique");
  PyObject *results = ext_op_named(op, PX_CALL_NEW, by_dim ? 5 : 4, named);
  return chosen(results, return_inverse, return_counts);
}

EXT_BOTH(
    torch, tensor, unique_consecutive,
    "(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None "
    "= None) -> " RESULT,
    "The values without repetitions of the one before; arguments as those of unique.\n\n"
    ">>> torch.unique_consecutive(torch.tensor([1, 1, 2, 1]))\n"
    "tensor([1, 2, 1])\n") {
  px_tensor *input;
  bool return_inverse, return_counts;
  int64_t dim;
  EXT_BIND(input, return_inverse, return_counts, dim);
  ext_named named[] = {{"self", PX_T(input)},
                       {"return_inverse", PX_B(return_inverse)},
                       {"return_counts", PX_B(return_counts)},
                       {"dim", dim == EXT_NO_INT ? PX_NONE() : PX_I(dim)}};
  PyObject *results = ext_op_named(EXT_OP("unique_consecutive"), PX_CALL_NEW, 4, named);
  return chosen(results, return_inverse, return_counts);
}
