# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils: clipping of gradients, and all parameters as one vector."""
from __future__ import annotations

import phlox as torch
from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable


def clip_grad_norm_(parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float,
                    norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: bool | None = None) -> torch.Tensor:
    """Scales the gradients of `parameters` so that their common norm is at most max_norm; the norm
    before, a 0-dim tensor, without waiting for it.

    norm_type: which norm, `inf` the greatest element. RuntimeError for a norm that is not finite,
    with error_if_nonfinite.

        >>> weight = torch.zeros(2, requires_grad=True)
        >>> weight.grad = torch.tensor([3.0, 4.0])
        >>> clip_grad_norm_([weight], 1.0), weight.grad
        (tensor(5.), tensor([0.6000, 0.8000]))
    """
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    return _C._clip_grad_norm(parameters, max_norm, norm_type, error_if_nonfinite)


def parameters_to_vector(parameters: Iterable[torch.Tensor]) -> torch.Tensor:
    """All parameters, one after another, as one vector.

        >>> parameters_to_vector([torch.ones(1, 2), torch.zeros(1)])
        tensor([1., 1., 0.])
    """
    parameters = list(parameters)
    for parameter in parameters:
        if not isinstance(parameter, torch.Tensor):
            raise TypeError("parameters_to_vector(): argument 'parameters' must be Tensor, not "
                            + type(parameter).__name__)
    return torch.cat([parameter.view(-1) for parameter in parameters])


def vector_to_parameters(vec: torch.Tensor, parameters: Iterable[torch.Tensor]) -> None:
    """Gives each parameter its numbers of a vector, in their order, as views of it."""
    if not isinstance(vec, torch.Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    at = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = vec.narrow(0, at, count).view_as(parameter).data
        at += count


_C._name_missing(__name__)
