# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.graph: what is kept in the place of tensors that are saved for backward."""
from __future__ import annotations

from contextlib import contextmanager

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class saved_tensors_hooks:
    """Within a with statement, pack_hook gets the tensors that are saved for backward, and
    unpack_hook gives them again, of what the first gave.

    Args:
        pack_hook (Callable): of a tensor, which it may not change; gives any object
        unpack_hook (Callable): of that object; gives a tensor like the first

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
    """Within a with statement, tensors that are saved for backward wait for it on the CPU.

    Args:
        pin_memory (bool): in pinned memory, so that copies need not be waited for
        device_type (str): the type of the devices
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor):
            host = tensor.cpu()
            return tensor.device, host.pin_memory() if pin_memory and tensor.is_cuda else host

        super().__init__(pack, lambda kept: kept[1].to(kept[0], non_blocking=pin_memory))


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within a with statement, hooks for saved tensors are refused: a RuntimeError with this text."""
    before = _C._disable_saved_hooks(error_message)
    try:
        yield
    finally:
        _C._disable_saved_hooks(before)


class _AllowMutationOnSavedContext:
    """What is saved within the statement: unchanged tensors, and copies of those that changed."""
    original = property(lambda self: _C._mutable_saved_list(False))
    cloned = property(lambda self: _C._mutable_saved_list(True))


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_AllowMutationOnSavedContext]:
    """Within a with statement, tensors that are saved for backward may be changed in place: they
    are copied first. Backward is to be within the same statement.

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
