# SPDX-License-Identifier: Apache-2.0
"""torch.overrides: helpers for __torch_function__, and modes. The dispatch is in C (override.c)."""
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
    """Returns True if an argument, or an active mode of this thread, overrides functions."""
    return _C._overrides(tuple(relevant_args))


def has_torch_function_unary(arg: Any) -> bool:
    """has_torch_function for one argument."""
    return _C._overrides((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """has_torch_function for several arguments."""
    return _C._overrides(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any],
                          *args: Any, **kwargs: Any) -> Any:
    """Calls the __torch_function__ overrides of public_api(*args, **kwargs): the innermost mode,
    then the classes of the relevant arguments, subclasses first. Returns the result.

    >>> class Always:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return "mine"
    >>> torch.add(Always(), 1)
    'mine'
    """
    return _C._ask(public_api, tuple(relevant_args), args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """A decorator that makes a function overridable by the arguments returned by `dispatcher`."""
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
    """Returns True for tensors and objects with __torch_function__."""
    return type(inp) is _C.Tensor or hasattr(inp, "__torch_function__")


class TorchFunctionMode:
    """A context manager that routes all calls of this thread to its __torch_function__, defined by
    a subclass. The mode is inactive while __torch_function__ runs.

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
        """Deprecated form of the constructor."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls each function unchanged."""

    def __torch_function__(self, func: Callable[..., Any], types: Sequence[type],
                           args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return func(*args, **(kwargs or {}))


def _namespaces():
    from phlox import nn
    return {"torch": _C, "torch.nn.functional": nn.functional, "torch.Tensor": _C.Tensor}


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """Returns the overridable functions, by their module or class."""
    ops = type(_C.add), type(_C.Tensor.add)
    return {owner: [value for name, value in sorted(vars(owner).items())
                    if type(value) in ops and not name.startswith("_")]
            for owner in _namespaces().values()}


def resolve_name(f: Callable[..., Any]) -> str | None:
    """Returns the name of an overridable function, such as "torch.Tensor.add"."""
    for path, owner in _namespaces().items():
        if getattr(owner, getattr(f, "__name__", ""), None) is f:
            return f"{path}.{f.__name__}"
    return None


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Returns True for methods of Tensor and getters of its attributes."""
    if getattr(func, "__name__", None) == "__get__":
        return inspect.isgetsetdescriptor(func.__self__)
    return getattr(_C.Tensor, getattr(func, "__name__", ""), None) is func
