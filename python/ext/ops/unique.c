// SPDX-License-Identifier: Apache-2.0
// torch.unique and unique_consecutive. They return a tensor, or a tuple with the requested results.
#include "bind/ext.h"

// The first of an op's three results, with the requested others.
static PyObject *select_results(PyObject *results_take, bool inverse, bool counts) {
  EXT_OWNED *results = results_take;
  if (!results || (inverse && counts)) return ext_moved(&results);
  EXT_OWNED *first = PySequence_GetItem(results, 0);
  if (!first || !(inverse || counts)) return ext_moved(&first);
  EXT_OWNED *second = PySequence_GetItem(results, inverse ? 1 : 2);
  return second ? PyTuple_Pack(2, first, second) : NULL;
}

EXT_FUNCTION_AND_METHOD(
    torch, tensor, unique,
    "(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = "
    "False, dim: int | None = None) -> Tensor | tuple[Tensor, ...]",
    "Returns the unique elements of the input tensor.\n\n"
    "Args:\n"
    "    input (Tensor)\n"
    "    sorted (bool): whether to sort in ascending order; always done\n"
    "    return_inverse (bool): also returns the index of each element in the result\n"
    "    return_counts (bool): also returns the counts of each unique element\n"
    "    dim (int or None): dimension along which slices are compared; None: elements\n\n"
    ">>> torch.unique(torch.tensor([3, 1, 3]), return_counts=True)\n"
    "(tensor([1, 3]), tensor([1, 2]))\n") {
  PyObject *input;
  bool sorted, return_inverse, return_counts;
  int64_t dim;
  EXT_BIND(input, sorted, return_inverse, return_counts, dim);
  px_tensor *tensor = ext_need_tensor(input, "unique", "input");
  if (!tensor) return NULL;
  ext_named named[] = {{"self", PX_T(tensor)},
                       {"sorted", PX_B(sorted)},
                       {"return_inverse", PX_B(return_inverse)},
                       {"return_counts", PX_B(return_counts)},
                       {"dim", PX_I(dim)}};
  bool slices = dim != EXT_NO_INT;
  return select_results(ext_op_named(slices ? EXT_OP("unique_dim") : EXT_OP("unique"), PX_CALL_NEW,
                                     slices ? 5 : 4, named),
                        return_inverse, return_counts);
}

EXT_FUNCTION_AND_METHOD(
    torch, tensor, unique_consecutive,
    "(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | "
    "None = None) -> Tensor | tuple[Tensor, ...]",
    "Eliminates all but the first element from every group of consecutive equivalent elements.\n"
    "Arguments as for unique.\n\n"
    ">>> torch.unique_consecutive(torch.tensor([1, 1, 2, 1]))\n"
    "tensor([1, 2, 1])\n") {
  PyObject *input;
  bool return_inverse, return_counts;
  int64_t dim;
  EXT_BIND(input, return_inverse, return_counts, dim);
  px_tensor *tensor = ext_need_tensor(input, "unique_consecutive", "input");
  if (!tensor) return NULL;
  ext_named named[] = {{"self", PX_T(tensor)},
                       {"return_inverse", PX_B(return_inverse)},
                       {"return_counts", PX_B(return_counts)},
                       {"dim", dim == EXT_NO_INT ? PX_NONE() : PX_I(dim)}};
  return select_results(ext_op_named(EXT_OP("unique_consecutive"), PX_CALL_NEW, 4, named),
                        return_inverse, return_counts);
}
