# SPDX-License-Identifier: Apache-2.0
"""torch.signal.windows. Common options: sym (True: symmetric, False: periodic), dtype (float32 or float64), layout, device and
requires_grad. Windows are computed in double precision."""
from __future__ import annotations

import math

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _window(name, M, values, *, sym=True, dtype=None, layout=_C.strided, device=None, requires_grad=False):
    """Creates a window from values(k, n): k is a tensor of 0 ... M - 1, n is the period (M - 1 if symmetric, else M)."""
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not _C.strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    dtype = dtype or _C.get_default_dtype()
    if dtype not in (_C.float32, _C.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    k = _C.arange(M, dtype=_C.float64, device=device)
    return (values(k, M - 1 if sym else M) if M > 1 else k + 1).to(dtype).requires_grad_(requires_grad)


def general_cosine(M: int, *, a: Sequence[float], _name: str = "general_cosine", **options: Any) -> _C.Tensor:
    """Computes the sum of (-1)^i a[i] cos(2 pi i k / n)."""
    if not isinstance(a, (list, tuple)):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _window(_name, M, lambda k, n: sum((-1)**i * c * (k * (2 * math.pi * i / n)).cos() for i, c in enumerate(a)), **options)


def general_hamming(M: int, *, alpha: float = 0.54, **options: Any) -> _C.Tensor:
    """Computes alpha - (1 - alpha) cos(2 pi k / n)."""
    return general_cosine(M, a=[alpha, 1 - alpha], **options)


def hamming(M: int, **options: Any) -> _C.Tensor:
    """Computes 0.54 - 0.46 cos(2 pi k / n)."""
    return general_hamming(M, **options)


def hann(M: int, **options: Any) -> _C.Tensor:
    """Computes (1 - cos(2 pi k / n)) / 2.

    >>> torch.signal.windows.hann(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return general_hamming(M, alpha=0.5, **options)


def blackman(M: int, **options: Any) -> _C.Tensor:
    """Computes 0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n)."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], _name="blackman", **options)


def nuttall(M: int, **options: Any) -> _C.Tensor:
    """Computes Nuttall's four-term window with minimum side lobes."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], **options)


def bartlett(M: int, **options: Any) -> _C.Tensor:
    """Computes 1 - |2 k / n - 1|."""
    return _window("bartlett", M, lambda k, n: 1 - (2 * k / n - 1).abs(), **options)


def cosine(M: int, **options: Any) -> _C.Tensor:
    """Computes sin(pi (k + 1/2) / (n + 1))."""
    return _window("cosine", M, lambda k, n: ((k + 0.5) * (math.pi / (n + 1))).sin(), **options)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, **options: Any) -> _C.Tensor:
    """Computes exp(-|k - center| / tau). Default center: n / 2; any other center requires sym=False."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if center is not None and options.get("sym", True):
        raise ValueError("Center must be None for symmetric windows")
    return _window("exponential", M, lambda k, n: (-(k - (n / 2 if center is None else center)).abs() / tau).exp(), **options)


def gaussian(M: int, *, std: float = 1.0, **options: Any) -> _C.Tensor:
    """Computes exp(-((k - n / 2) / std)^2 / 2)."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _window("gaussian", M, lambda k, n: (((k - n / 2) / std)**2 * -0.5).exp(), **options)


def kaiser(M: int, *, beta: float = 12.0, **options: Any) -> _C.Tensor:
    """Computes i0(beta sqrt(1 - (2 k / n - 1)^2)) / i0(beta)."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    height = lambda x: _C.i0(beta * (1 - x * x).clamp(min=0).sqrt())
    return _window("kaiser", M, lambda k, n: height(2 * k / n - 1) / height(k[0] * 0), **options)
