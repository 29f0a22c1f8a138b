// SPDX-License-Identifier: Apache-2.0
// torch.unique and unique_consecutive: they give a tensor, or a tuple with what was asked for.
#include "ext.h"

// The first of an op's three results, and those of the others that are wanted.
static PyObject *chosen(PyObject *results_take, bool inverse, bool counts) {
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
    "The values that occur, each once.\n\n"
    "Args:\n"
    "    input (Tensor)\n"
    "    sorted (bool): in ascending order; they are so in any case\n"
    "    return_inverse (bool): also gives the index in the result of each element\n"
    "    return_counts (bool): also gives how often each value occurs\n"
    "    dim (int or None): compares slices along a dimension, rather than elements\n\n"
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
  return chosen(ext_op_named(slices ? EXT_OP("unique_dim") : EXT_OP("unique"), PX_CALL_NEW,
                             slices ? 5 : 4, named),
                return_inverse, return_counts);
}

EXT_FUNCTION_AND_METHOD(
    torch, tensor, unique_consecutive,
    "(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | "
    "None = None) -> Tensor | tuple[Tensor, ...]",
    "The values without repetitions of the one before; arguments as those of unique.\n\n"
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
  return chosen(ext_op_named(EXT_OP("unique_consecutive"), PX_CALL_NEW, 4, named), return_inverse,
                return_counts);
}
