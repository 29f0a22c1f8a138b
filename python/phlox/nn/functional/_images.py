# SPDX-License-Identifier: Apache-2.0
"""nn.functional.interpolate."""
from __future__ import annotations

from math import floor

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _scales(given, dims):
    """(depth, height, width) of a number, or of one for each dimension."""
    if isinstance(given, str):
        raise TypeError("must be real number, not str")
    given = [float(one) for one in given] if hasattr(given, "__len__") else [float(given)] * dims
    if len(given) != dims and len(given) != 1:
        raise ValueError("Input and scale_factor must have the same number of spatial dimensions, but got input with "
                         f"{dims} spatial dimensions and scale_factor of shape {given}.")
    given = given * dims if len(given) == 1 else given
    return (*[None] * (3 - dims), *given)[-3:]


def interpolate(input: _C.Tensor, size: int | Sequence[int] | None = None,
                scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
                antialias: bool = False) -> _C.Tensor:
    """Volumes (N, C, D, H, W), images (N, C, H, W) or lines (N, C, L) of another size.

    Args:
        input (Tensor)
        size (int or ints): the new size; or
        scale_factor (float or floats): by how much larger
        mode (str): "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area"
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
    dims = max(input.dim() - 2, 1)
    scales = (None, None, None) if scale_factor is None else _scales(scale_factor, dims)
    if size is not None:
        size = [size] if isinstance(size, int) else list(size)
    elif recompute_scale_factor and scale_factor is not None:
        size = [floor(n * scale) for n, scale in zip(input.shape[2:], scales[-dims:])]
        scales = None, None, None
    # align_corners=False is refused too by the modes that have no corners.
    cornerless = mode.startswith("nearest") or mode == "area"
    corners = bool(align_corners) or (align_corners is not None and cornerless)
    depth, height, width = scales
    return _C._resize_images(input, size, height, width, mode, corners, depth)


upsample = interpolate
