# SPDX-License-Identifier: Apache-2.0
"""torch.finfo and torch.iinfo: the limits of dtypes."""
from __future__ import annotations

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

def _dtype(given):
    try:
        return _C.promote_types(given, given)
    except TypeError:
        raise TypeError(f"must be torch.dtype, not {type(given).__name__}") from None


def _limits_of(name, dtype):
    return globals()[name](dtype)


class _Limits:
    """Numeric limits of a dtype. Equal if the dtypes are equal."""

    dtype: str
    bits: int
    min: Any
    max: Any
    __slots__ = {"dtype": "The dtype's name.", "bits": "The number of bits of an element.",
                 "min": "The smallest number.", "max": "The largest number."}

    def __init__(self, dtype: _C.dtype, low: float, high: float) -> None:
        self.dtype, self.bits = str(dtype)[len("torch."):], dtype.itemsize * 8
        self.min, self.max = low, high

    def __eq__(self, other):
        return type(other) is type(self) and other.dtype == self.dtype

    def __hash__(self):
        return hash(self.dtype)

    def __reduce__(self):
        return _limits_of, (type(self).__name__, getattr(_C, self.dtype))


class finfo(_Limits):
    """The limits of a floating-point dtype. Default: the default dtype.

    Args:
        type (torch.dtype): a floating-point or complex dtype; raises TypeError for integer dtypes

    >>> torch.finfo(torch.float16).max
    65504.0
    """

    __module__ = "torch"
    resolution: float
    eps: float
    smallest_normal: float
    tiny: float
    __slots__ = {"resolution": "The approximate decimal resolution.",
                 "eps": "The difference between 1 and the next larger number.",
                 "smallest_normal": "The smallest positive normal number.",
                 "tiny": "Equal to smallest_normal."}

    def __init__(self, type: _C.dtype | None = None) -> None:
        dtype = _C.get_default_dtype() if type is None else _dtype(type)
        dtype = dtype.to_real()
        if not dtype.is_floating_point:
            raise TypeError("torch.finfo() requires a floating point input type. Use torch.iinfo "
                            "to handle 'torch.finfo'")
        self.resolution, low, high, self.eps, self.tiny = _C._limits(dtype)
        self.smallest_normal = self.tiny
        super().__init__(dtype, low, high)

    def __repr__(self):
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        numbers = ", ".join(f"{name}={getattr(self, name):.6g}" for name in names)
        return f"finfo({numbers}, dtype={self.dtype})"


class iinfo(_Limits):
    """The limits of an integer dtype.

    Args:
        type (torch.dtype): an integer dtype; raises TypeError for others

    >>> torch.iinfo(torch.int8)
    iinfo(min=-128, max=127, dtype=int8)
    """

    __module__ = "torch"
    __slots__ = ()

    def __init__(self, type: _C.dtype) -> None:
        dtype = _dtype(type)
        if dtype == _C.bool:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        if dtype.is_floating_point or dtype.is_complex:
            raise TypeError("torch.iinfo() requires an integer input type. Use torch.finfo to "
                            "handle 'torch.iinfo'")
        bits = dtype.itemsize * 8
        low, bits = (-1 << bits - 1, bits - 1) if dtype.is_signed else (0, bits)
        super().__init__(dtype, low, (1 << bits) - 1)

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
