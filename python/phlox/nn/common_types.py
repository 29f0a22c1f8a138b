# SPDX-License-Identifier: Apache-2.0
"""torch.nn.common_types: annotations for one value, or one per dimension."""
from typing import Optional, Tuple, TypeVar, Union

from phlox import Tensor

T = TypeVar("T")


def _of(n):
    return Union[T, Tuple[(T,) * n]]


_scalar_or_tuple_any_t = Union[T, Tuple[T, ...]]
_scalar_or_tuple_1_t, _scalar_or_tuple_2_t, _scalar_or_tuple_3_t = _of(1), _of(2), _of(3)
_scalar_or_tuple_4_t, _scalar_or_tuple_5_t, _scalar_or_tuple_6_t = _of(4), _of(5), _of(6)
_size_any_t, _size_1_t, _size_2_t = _scalar_or_tuple_any_t[int], _of(1)[int], _of(2)[int]
_size_3_t, _size_4_t, _size_5_t, _size_6_t = (_of(n)[int] for n in (3, 4, 5, 6))
_size_any_opt_t = _scalar_or_tuple_any_t[Optional[int]]
_size_2_opt_t, _size_3_opt_t = _of(2)[Optional[int]], _of(3)[Optional[int]]
_ratio_any_t, _ratio_2_t, _ratio_3_t = _scalar_or_tuple_any_t[float], _of(2)[float], _of(3)[float]
_tensor_list_t, _maybe_indices_t = _scalar_or_tuple_any_t[Tensor], _of(2)[Tensor]
