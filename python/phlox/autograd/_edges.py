# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.graph: edges of the graph in the place of tensors, and hooks of several tensors."""
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
    """A result of a node, which backward and grad take in the place of the tensor."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: torch.Tensor) -> GradientEdge:
    """The edge to which a tensor's gradient goes: of a leaf that of its accumulator.

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
    """Takes several hooks away."""

    def __init__(self, handles):
        self.handles = handles

    def remove(self) -> None:
        """Takes them away."""
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(tensors: Sequence[torch.Tensor], fn: Callable[..., None], *,
                             mode: str = "all") -> RemovableHandle | _Handles:
    """Calls fn in each backward pass: with a list of the tensors' gradients, None for those that
    have none, when the last has come ("all"); or with the first that comes ("any")."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    for tensor in tensors:
        get_gradient_edge(tensor)  # refuses those without
    # What kept the nodes here would keep them for ever: they have the hook.
    places, lock, passes = [ref(tensor) if tensor.is_leaf else tensor.grad_fn._address()
                            for tensor in tensors], Lock(), {}

    def arrived(at, grad):
        known = [place if isinstance(place, int) else place() for place in places]
        number, expected = _C._backward_call([leaf if isinstance(leaf, int) else
                                              get_gradient_edge(leaf).node
                                              for leaf in known if leaf is not None])
        expected += known.count(None)
        with lock:
            seen = passes.setdefault(number, [0, [None] * len(places)])
            seen[0] += 1
            seen[1][at] = grad
            if seen[0] == expected:
                del passes[number]
        if mode == "any" and seen[0] == 1:
            fn(grad)
        elif mode == "all" and seen[0] == expected:
            fn(seen[1])

    return _Handles([tensor.register_hook(lambda grad, at=at: arrived(at, grad))
                     for at, tensor in enumerate(tensors)])
