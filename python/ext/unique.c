// SPDX-License-Identifier: Apache-2.0
// The ops behind torch.unique and unique_consecutive (phlox/_functional.py), which give what was
// asked for of their three results.
#include "ext.h"

EXT_FUNCTION(torch, _unique,
             "(input: Tensor, dim: int | None, sorted: bool, return_inverse: bool, return_counts: "
             "bool) -> tuple[Tensor, ...]",
             NULL) {
  px_tensor *input;
  int64_t dim;
  bool sorted, return_inverse, return_counts;
  EXT_BIND(input, dim, sorted, return_inverse, return_counts);
  ext_named named[] = {{"self", PX_T(input)},
                       {"sorted", PX_B(sorted)},
                       {"return_inverse", PX_B(return_inverse)},
                       {"return_counts", PX_B(return_counts)},
                       {"dim", PX_I(dim)}};
  if (dim == EXT_NO_INT) return ext_op_named(EXT_OP("unique"), PX_CALL_NEW, 4, named);
  return ext_op_named(EXT_OP("unique_dim"), PX_CALL_NEW, 5, named);
}

EXT_FUNCTION(torch, _unique_consecutive,
             "(input: Tensor, return_inverse: bool, return_counts: bool, dim: int | None) -> "
             "tuple[Tensor, ...]",
             NULL) {
  px_tensor *input;
  bool return_inverse, return_counts;
  int64_t dim;
  EXT_BIND(input, return_inverse, return_counts, dim);
  ext_named named[] = {{"self", PX_T(input)},
                       {"return_inverse", PX_B(return_inverse)},
                       {"return_counts", PX_B(return_counts)},
                       {"dim", dim == EXT_NO_INT ? PX_NONE() : PX_I(dim)}};
  return ext_op_named(EXT_OP("unique_consecutive"), PX_CALL_NEW, 4, named);
}
