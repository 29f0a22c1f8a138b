# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.graph: gradient edges, and hooks over several tensors."""
from __future__ import annotations

from threading import Lock
from typing import NamedTuple
from weakref import ref

import phlox as torch
from phlox import _C
from phlox.utils.hooks import RemovableHandle

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class GradientEdge(NamedTuple):
    """An output of a node. backward and grad accept it in place of the tensor."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: torch.Tensor) -> GradientEdge:
    """Returns the gradient edge of a tensor; for a leaf, the edge of its gradient accumulator.

    >>> x = torch.ones(1, requires_grad=True)
    >>> y = x * 3
    >>> torch.autograd.grad(y, torch.autograd.graph.get_gradient_edge(x))
    (tensor([3.]),)
    """
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not "
                           "require gradients")
    with torch.enable_grad():
        return GradientEdge(*tensor.view_as(tensor).grad_fn.next_functions[0])


class _Handles:
    """A handle that removes several hooks."""

    def __init__(self, handles):
        self.handles = handles

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(tensors: Sequence[torch.Tensor], fn: Callable[..., None], *,
                             mode: str = "all") -> RemovableHandle | _Handles:
    """Registers a hook over several tensors, called in each backward pass. Mode "all" calls fn with
    the list of gradients (None for tensors without one) after the last gradient arrives; mode "any"
    calls fn with the first gradient."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    for tensor in tensors:
        get_gradient_edge(tensor)  # raises if the tensor does not require gradients
    # Weak references and addresses: the nodes own this hook, and strong references would leak them.
    targets, lock, passes = [ref(tensor) if tensor.is_leaf else tensor.grad_fn._address()
                            for tensor in tensors], Lock(), {}

    def on_grad(at, grad):
        known = [target if isinstance(target, int) else target() for target in targets]
        number, expected = _C._backward_call([leaf if isinstance(leaf, int) else
                                              get_gradient_edge(leaf).node
                                              for leaf in known if leaf is not None])
        expected += known.count(None)
        with lock:
            seen = passes.setdefault(number, [0, [None] * len(targets)])
            seen[0] += 1
            seen[1][at] = grad
            if seen[0] == expected:
                del passes[number]
        if mode == "any" and seen[0] == 1:
            fn(grad)
        elif mode == "all" and seen[0] == expected:
            fn(seen[1])

    return _Handles([tensor.register_hook(lambda grad, at=at: on_grad(at, grad))
                     for at, tensor in enumerate(tensors)])
