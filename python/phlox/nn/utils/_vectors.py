# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils: all parameters as one vector."""
from __future__ import annotations

import phlox as torch

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable


def parameters_to_vector(parameters: Iterable[torch.Tensor]) -> torch.Tensor:
    """All parameters, one after another, as one vector.

        >>> torch.nn.utils.parameters_to_vector([torch.ones(1, 2), torch.zeros(1)])
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
