# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.weight_norm: the legacy implementation by a hook."""
from __future__ import annotations

import warnings
from sys import modules
from typing import Any

import phlox as torch
from phlox import Tensor, nn
from phlox._paths import make_callable

from ._recomputed import Norm


class WeightNorm(Norm):
    """The hook of weight_norm."""

    _suffixes = "_g", "_v"

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: nn.Module) -> Tensor:
        """Computes the weight from its norms and directions."""
        return torch._weight_norm(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    def _computed(self, module, steps=None):
        return self.compute_weight(module)

    @staticmethod
    def apply(module: nn.Module, name: str, dim: int | None) -> WeightNorm:
        """Registers the hook."""
        warnings.warn("`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.",
                      FutureWarning, stacklevel=3)
        hook = WeightNorm(name, dim)
        hook.register(module, "weight", lambda weight: (nn.Parameter(torch.norm_except_dim(weight.data, 2, hook.dim)),
                                                   nn.Parameter(weight.data)))
        hook(module, None)
        return hook


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Replaces a weight by `name_g`, the norms of its slices along dim (None: one norm), and `name_v`, their directions.
    Deprecated: use torch.nn.utils.parametrizations.weight_norm."""
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Removes weight_norm. The weight keeps its current value."""
    return WeightNorm.remove_hook(module, name, f"weight_norm of '{name}' not found in {module}")


make_callable(modules[__name__], weight_norm)
