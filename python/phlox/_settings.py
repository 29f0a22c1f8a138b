# SPDX-License-Identifier: Apache-2.0
"""torch.set_printoptions."""
from __future__ import annotations

from phlox import _C

_MOST = 2**31 - 1
_PROFILES = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, _MOST, 3, 80)}


def set_printoptions(precision: int | None = None, threshold: float | None = None,
                     edgeitems: int | None = None, linewidth: int | None = None,
                     profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Sets how tensors print.

    Args:
        precision (int): digits behind the point (4)
        threshold (float): of more elements than that only the edges are shown (1000)
        edgeitems (int): how many of them at each edge (3)
        linewidth (int): columns of a line (80)
        profile (str): "default", "short" or "full", before the others
        sci_mode (bool or None): with exponents, without, or as the values are

    >>> torch.set_printoptions(precision=2); torch.tensor([0.123456])
    tensor([0.12])
    >>> torch.set_printoptions(profile="default")
    """
    given = precision, threshold, edgeitems, linewidth
    base = _PROFILES.get(profile, (None,) * 4)
    numbers = (default if value is None else int(min(float(value), _MOST))
               for value, default in zip(given, base))
    _C._print_options(*numbers, -1 if sci_mode is None else int(bool(sci_mode)))
