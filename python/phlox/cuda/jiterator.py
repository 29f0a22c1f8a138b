# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.jiterator: elementwise functions written in C++ (phlox/jit.h has the language). They run
as ops of Phlox, on any device."""
from __future__ import annotations

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from phlox import Tensor

__all__: list[str] = []
_C._name_missing(__name__)


class _JittedFunction:
    def __init__(self, code_string: str, return_by_ref: bool, num_outputs: int,
                 **kwargs: complex) -> None:
        if not (return_by_ref or num_outputs == 1):
            raise AssertionError("Return by value only works for single output.")
        _C._jit_check(code_string)
        self.code_string, self.return_by_ref = code_string, return_by_ref
        self.num_outputs, self.kwargs_dict = num_outputs, kwargs

    def __call__(self, *tensors: Tensor, **kwargs: complex) -> Tensor | tuple[Tensor, ...]:
        if len(tensors) > 8:
            raise AssertionError(f"jiterator only supports up to 8 tensor inputs, got {len(tensors)}")
        for key in kwargs:
            if key not in self.kwargs_dict:
                raise KeyError(f"{key} is not declared in function definition")
        numbers = [*{**self.kwargs_dict, **kwargs}.values()]
        return _C._jit_call(self.code_string, self.num_outputs, tensors, numbers)


def _create_jit_fn(code_string: str, **kwargs: complex) -> _JittedFunction:
    """Creates a function of tensors from elementwise C++ code that returns its result. Keyword
    arguments are scalar parameters after the tensors, with their defaults.

    >>> f = _create_jit_fn("template <typename T> T f(T x, T by) { return -x * by; }", by=2)
    >>> f(torch.tensor([1, 2]))
    tensor([-2, -4])"""
    return _JittedFunction(code_string, False, 1, **kwargs)


def _create_multi_output_jit_fn(code_string: str, num_outputs: int,
                                **kwargs: complex) -> _JittedFunction:
    """Like _create_jit_fn, for void code with several outputs: its last parameters, `T& out`."""
    return _JittedFunction(code_string, True, num_outputs, **kwargs)
