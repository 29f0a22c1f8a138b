# SPDX-License-Identifier: Apache-2.0
"""torch._assert and torch._check: function forms of `assert` and `if ...: raise`, used by libraries."""
from __future__ import annotations

from typing import Any, Callable

from phlox import _C

_NO_MESSAGE = ("Expected cond to be True, but got False. (Could this error message be improved? If so, "
               "please report an enhancement request to PyTorch.)")


def _assert(condition: Any, message: str) -> None:
    """Asserts the condition: a function form of the assert statement."""
    assert condition, message


def _raising(kind):
    def check(cond: bool, message: str | Callable[[], object] | None = None) -> None:
        if isinstance(cond, _C.Tensor):
            raise TypeError("cond must be a bool, but got a Tensor. For tensor conditions, use "
                            "torch._check_tensor_all() to assert that all elements are true.")
        if not isinstance(cond, bool):
            raise TypeError(f"cond must be a bool, but got {type(cond)}")
        if not cond:
            raise kind(_NO_MESSAGE if message is None else str(message() if callable(message) else message))

    check.__doc__ = f"Raises {kind.__name__} with `message` (a text or a function) unless cond is True."
    return check


_check, _check_index, _check_value = _raising(RuntimeError), _raising(IndexError), _raising(ValueError)
_check_type, _check_not_implemented = _raising(TypeError), _raising(NotImplementedError)
_TensorMeta = type(_C.Tensor)
