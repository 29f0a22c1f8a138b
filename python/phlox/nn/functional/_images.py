# SPDX-License-Identifier: Apache-2.0
"""nn.functional.interpolate."""
from __future__ import annotations

from math import floor

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _scales(given):
    """(height, width) of a number, or of one or two numbers."""
    if isinstance(given, str):
        raise TypeError("must be real number, not str")
    if not hasattr(given, "__len__"):
        return float(given), float(given)
    if not 1 <= len(given) <= 2:
        raise ValueError(f"scale_factor takes one or two numbers, but got {len(given)}")
    return float(given[0]), float(given[-1])


def interpolate(input: _C.Tensor, size: int | Sequence[int] | None = None,
                scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
                antialias: bool = False) -> _C.Tensor:
    """Images (N, C, H, W) or lines (N, C, L) of another size.

    Args:
        input (Tensor)
        size (int or ints): the new size; or
        scale_factor (float or floats): by how much larger
        mode (str): "nearest", "nearest-exact", "linear", "bilinear", "bicubic" or "area"
        align_corners (bool): the corners' elements lie on those of the input
        recompute_scale_factor (bool): the scale is that of the sizes, rounded

    >>> torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2), scale_factor=2).shape
    torch.Size([1, 1, 4, 4])
    """
    if not isinstance(input, _C.Tensor):
        raise TypeError("interpolate(): argument 'input' must be Tensor, not "
                        f"{type(input).__name__}")
    if antialias:
        raise NotImplementedError("interpolate with antialias=True is not implemented")
    scales = (None, None) if scale_factor is None else _scales(scale_factor)
    if size is not None:
        size = [size] if isinstance(size, int) else list(size)
    elif recompute_scale_factor and scale_factor is not None:
        dims = input.shape[2:]
        size = [floor(n * scales[k if len(dims) > 1 else 1]) for k, n in enumerate(dims[:2])]
        scales = None, None
    # align_corners=False is refused too by the modes that have no corners.
    cornerless = mode.startswith("nearest") or mode == "area"
    corners = bool(align_corners) or (align_corners is not None and cornerless)
    return _C._resize_images(input, size, *scales, mode, corners)


upsample = interpolate
