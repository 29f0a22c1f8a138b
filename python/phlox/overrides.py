# SPDX-License-Identifier: Apache-2.0
"""__torch_function__ for programs: classes and modes that take over calls. The dispatch itself is
in C (override.c)."""
from __future__ import annotations

import inspect
from functools import wraps

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

__all__ = ["get_overridable_functions", "handle_torch_function", "has_torch_function",
           "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "TorchFunctionMode",
           "wrap_torch_function"]


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments, or a mode that this thread has entered, takes calls over."""
    return _C._overrides(tuple(relevant_args))


def has_torch_function_unary(arg: Any) -> bool:
    """has_torch_function of one argument."""
    return _C._overrides((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """has_torch_function of the arguments."""
    return _C._overrides(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any],
                          *args: Any, **kwargs: Any) -> Any:
    """What those who take the call public_api(*args, **kwargs) over make of it: the innermost mode,
    then the classes of the relevant arguments, derived ones first.

    >>> class Always:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return "mine"
    >>> torch.add(Always(), 1)
    'mine'
    """
    return _C._ask(public_api, tuple(relevant_args), args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """A decorator: the function's calls may be taken over by those arguments that `dispatcher`
    gives of them."""
    def decorate(function):
        @wraps(function)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)
        return wrapped
    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or of a class that takes calls over."""
    return type(inp) is _C.Tensor or hasattr(inp, "__torch_function__")


class TorchFunctionMode:
    """A context manager within which all calls of this thread go to its __torch_function__, which
    a derived class defines. While that runs, the mode is left.

    >>> class Counting(torch.overrides.TorchFunctionMode):
    ...     calls = 0
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         self.calls += 1
    ...         return func(*args, **(kwargs or {}))
    >>> with Counting() as counting:
    ...     x = torch.ones(2) + 1
    >>> counting.calls
    2
    """

    def __torch_function__(self, func: Callable[..., Any], types: Sequence[type],
                           args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        _C._push_mode(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        _C._pop_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """An older form of the constructor."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Callable[..., Any], types: Sequence[type],
                           args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return func(*args, **(kwargs or {}))


def _spaces():
    from phlox import nn
    return {"torch": _C, "torch.nn.functional": nn.functional, "torch.Tensor": _C.Tensor}


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that can be taken over, by the module or class that they belong to."""
    ops = type(_C.add), type(_C.Tensor.add)
    return {owner: [value for name, value in sorted(vars(owner).items())
                    if type(value) in ops and not name.startswith("_")]
            for owner in _spaces().values()}


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The name of a function that can be taken over, as "torch.Tensor.add"."""
    for path, owner in _spaces().items():
        if getattr(owner, getattr(f, "__name__", ""), None) is f:
            return f"{path}.{f.__name__}"
    return None


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether it is a method of Tensor, or what reads one of its attributes."""
    if getattr(func, "__name__", None) == "__get__":
        return inspect.isgetsetdescriptor(func.__self__)
    return getattr(_C.Tensor, getattr(func, "__name__", ""), None) is func
