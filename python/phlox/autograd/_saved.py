# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.graph: hooks for tensors saved for backward."""
from __future__ import annotations

from contextlib import contextmanager

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class saved_tensors_hooks:
    """A context manager. pack_hook is called with each tensor saved for backward, and its result is
    saved instead. unpack_hook converts the result back to a tensor.

    Args:
        pack_hook (Callable): takes a tensor and returns any object; must not modify the tensor
        unpack_hook (Callable): takes that object and returns a tensor equal to the original

    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), torch.tensor):
    ...     y = x * x
    >>> y.sum().backward(); x.grad
    tensor([2., 2.])
    """

    def __init__(self, pack_hook: Callable[[_C.Tensor], Any],
                 unpack_hook: Callable[[Any], _C.Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        _C._push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: object) -> None:
        _C._pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """A context manager that keeps tensors saved for backward on the CPU.

    Args:
        pin_memory (bool): if True, uses pinned memory; copies in both directions are asynchronous
        device_type (str): the device type
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor):
            # A non-blocking copy to the host has pinned memory.
            return tensor.device, tensor.to("cpu", non_blocking=pin_memory)

        super().__init__(pack, lambda kept: kept[1].to(kept[0], non_blocking=pin_memory))


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A context manager that disables hooks for saved tensors: they raise
    RuntimeError(error_message)."""
    before = _C._disable_saved_hooks(error_message)
    try:
        yield
    finally:
        _C._disable_saved_hooks(before)


class _AllowMutationOnSavedContext:
    """The tensors saved within the scope: `original` are unmodified ones, `cloned` copies of modified
    ones."""
    original = property(lambda self: _C._mutable_saved_list(False))
    cloned = property(lambda self: _C._mutable_saved_list(True))


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_AllowMutationOnSavedContext]:
    """A context manager that allows in-place modification of tensors saved for backward: they are
    cloned before the modification. Backward must run within the same scope.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.autograd.graph.allow_mutation_on_saved_tensors():
    ...     y = x.clone()
    ...     z = (y ** 2).sum()
    ...     unused = y.zero_()
    ...     z.backward()
    >>> x.grad
    tensor([2., 2.])
    """
    _C._mutable_saved(True)
    try:
        yield _AllowMutationOnSavedContext()
    finally:
        _C._mutable_saved(False)
