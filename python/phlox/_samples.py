# SPDX-License-Identifier: Apache-2.0
"""torch.gradient, histogram and histogramdd, whose arguments are lists of numbers or tensors."""
from __future__ import annotations

from collections import namedtuple
from typing import Any, Sequence

import phlox as torch
from phlox import _C

Number = bool | int | float | complex


def gradient(input: _C.Tensor, *, spacing: Number | Sequence[Number] | Sequence[_C.Tensor] | None = None, dim: int | Sequence[int] | None = None,
             edge_order: int = 1) -> tuple[_C.Tensor, ...]:
    """Estimates the gradient of a function along `dim` from its samples. `spacing` is the distance between samples (a number, or one for each
    dimension), or their coordinates (a tensor for each dimension).

    >>> torch.gradient(torch.tensor([1., 4., 9.]), spacing=(torch.tensor([0., 1., 3.]),))
    (tensor([3.0000, 2.8333, 2.5000]),)
    """
    listed = isinstance(spacing, (list, tuple))
    if listed and any(isinstance(s, _C.Tensor) for s in spacing):
        return _C.gradient(input, spacing=spacing, dim=dim, edge_order=edge_order)
    dims = 1 if isinstance(dim, int) else input.dim() if dim is None else len(dim)
    if listed and len(spacing) != dims:
        no_dim = f", or a list of length equal to 'self.dim() = {dims}', since dim argument was not given, but got a list of length {len(spacing)}"
        given = f" or it's spacing and dim arguments to have the same length, but got a spacing argument of length {len(spacing)} and a dim argument of length {dims}."
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar" + (no_dim if dim is None else given))
    made = _C.gradient(input, dim=dim, edge_order=edge_order)
    if spacing is None:
        return made
    return tuple(g / step for g, step in zip(made, spacing if listed else [spacing] * dims))


def _bounds(range):
    return None if range is None else _C.tensor(tuple(range), dtype=_C.float64)


def histogram(input: _C.Tensor, bins: int | _C.Tensor = 100, *, range: Sequence[float] | None = None, weight: _C.Tensor | None = None,
              density: bool = False, **out: Any) -> tuple[_C.Tensor, _C.Tensor]:
    """Counts the elements in each bin, or sums their weights. `bins` is a number of equal-width bins over `range` (default: the range of the
    elements), or a tensor of bin edges. With density, the integral is normalized to 1. Returns a named tuple (hist, bin_edges).

    >>> torch.histogram(torch.tensor([1., 2., 1.]), 2, range=(0., 3.)).hist
    tensor([2., 1.])
    """
    between = {} if range is None else {"range": _bounds(range)}
    return _C.histogram(input, bins, weight=weight, density=density, **between, **out)


class _Histogram(namedtuple("histogramdd", "hist bin_edges")):
    def __repr__(self):
        return f"torch.return_types.histogramdd(\nhist={self.hist!r},\nbin_edges={self.bin_edges!r})"


def histogramdd(input: _C.Tensor, bins: int | Sequence[int] | Sequence[_C.Tensor], range: Sequence[float] | None = None,
                weight: _C.Tensor | None = None, density: bool = False) -> tuple[_C.Tensor, tuple[_C.Tensor, ...]]:
    """Counts points in multi-dimensional bins; the last dimension of `input` is a point's coordinates. Arguments are those of histogram. Returns a named
    tuple (hist, bin_edges); bin_edges has one tensor per coordinate.

    >>> torch.histogramdd(torch.tensor([[0., 1.], [1., 0.], [2., 2.]]), bins=[2, 2]).hist
    tensor([[0., 1.],
            [1., 1.]])
    """
    if isinstance(bins, int):
        bins = [bins] * input.shape[-1]
    listed = isinstance(bins, (list, tuple)) and any(isinstance(b, _C.Tensor) for b in bins)
    edges = bins if listed else _C._histogramdd_bin_edges(input, bins, range=_bounds(range))
    return _Histogram(_C._histogramdd_from_bin_tensors(input, edges, weight=weight, density=density), tuple(edges))


class Tensor:
    def histogram(self, bins: int | _C.Tensor = 100, **options: Any) -> tuple[_C.Tensor, _C.Tensor]:
        """See torch.histogram()."""
        return torch.histogram(self, bins, **options)
