# SPDX-License-Identifier: Apache-2.0
"""Forward-mode automatic differentiation with dual tensors: a primal and its tangent.

>>> with torch.autograd.forward_ad.dual_level():
...     x = torch.autograd.forward_ad.make_dual(torch.tensor(3.), torch.tensor(1.))
...     torch.autograd.forward_ad.unpack_dual(x * x).tangent
tensor(6.)
"""
from __future__ import annotations

from contextlib import ContextDecorator
from typing import NamedTuple

import phlox
from phlox import _C

_levels = []  # at most one


def enter_dual_level() -> int:
    """Enters level 0. Levels do not nest; levels of torch.func.jvp are independent."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels.append(_C._duals_begin())
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Exits the level. Its dual tensors become constants."""
    if level is not None and level != len(_levels) - 1:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. "
                           "This is not supported.")
    if not _levels:
        raise RuntimeError("Dual level must be a positive number.")
    _C._duals_end(_levels.pop())


class dual_level(ContextDecorator):
    """A context manager and decorator that enters and exits a dual level."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, kind, error, traceback):
        exit_dual_level()


class UnpackedDualTensor(NamedTuple):
    """The result of unpack_dual."""
    primal: phlox.Tensor
    tangent: phlox.Tensor | None


def make_dual(tensor: phlox.Tensor, tangent: phlox.Tensor, *, level: int | None = None) -> phlox.Tensor:
    """Creates a dual tensor sharing the memory of `tensor`, with the given tangent."""
    if level is None and not _levels:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to "
                           "enter_dual_level() first.")
    if level not in (None, len(_levels) - 1):
        raise RuntimeError("Invalid level given to _make_dual")
    for name, x in ("primal", tensor), ("tangent", tangent):
        if not (x.is_floating_point() or x.is_complex()):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {x.dtype}")
    if _C._is_dual(tensor):
        raise RuntimeError("Making a dual Tensor based on a Tensor that already has a forward gradient at the same "
                           "level 0 is not supported.")
    return _C._dual_make(_levels[0], tensor, tangent)


def unpack_dual(tensor: phlox.Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Returns (primal, tangent). The tangent is None if the tensor does not depend on a dual tensor."""
    if level not in (None, len(_levels) - 1):
        raise RuntimeError("Invalid level given to _fw_primal")
    if not _levels:
        return UnpackedDualTensor(tensor, None)
    if not isinstance(tensor, phlox.Tensor):
        raise TypeError(f"_unpack_dual(): argument 'dual' (position 1) must be Tensor, not {type(tensor).__name__}")
    tangent, = _C._dual_tangents(_levels[0], [tensor])
    if tangent is None and _C._is_dual(tensor):  # overwritten in place by a constant
        tangent = phlox.zeros_like(tensor)
    return UnpackedDualTensor(_C._dual_primal(tensor), tangent)
