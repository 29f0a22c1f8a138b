# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.gradcheck."""
from __future__ import annotations

from phlox import _C, autograd

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def gradcheck(func: Callable[..., Any], inputs: _C.Tensor | Sequence[Any], eps: float = 1e-06,
              atol: float = 1e-05, rtol: float = 0.001, raise_exception: bool = True,
              nondet_tol: float = 0.0, fast_mode: bool = False,
              check_undefined_grad: bool = True) -> bool:
    """Compares gradients with differences: True, or an error that tells where they part.

    Args:
        func (callable): of the inputs; gives a tensor, or a tuple of which the first counts
        inputs (Tensor or sequence): those that are tensors and require a gradient, of float64, are
            moved
        eps (float): by how much they are moved
        atol, rtol (float): what the two may differ by
        raise_exception (bool): raises where they differ by more; else gives False

    >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.sin, x)
    True
    """
    inputs = (inputs,) if isinstance(inputs, _C.Tensor) else tuple(inputs)
    try:
        autograd._gradcheck(func, inputs, eps, atol, rtol)
    except Exception:
        if raise_exception:
            raise
        return False
    return True
