# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.spectral_norm: the legacy implementation by a hook."""
from __future__ import annotations

from sys import modules
from typing import Any

from phlox import Tensor, nn
from phlox._paths import make_callable

from ._recomputed import Norm
from .parametrizations import check_steps, dim_of_outputs, spectrally_normalized, start_vectors


class SpectralNorm(Norm):
    """The hook of spectral_norm."""

    _suffixes = "_orig", "_u", "_v"

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        check_steps(n_power_iterations)
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def compute_weight(self, module: nn.Module, do_power_iteration: bool) -> Tensor:
        """Computes the weight divided by its spectral norm."""
        return self._computed(module, self.n_power_iterations * do_power_iteration)

    def _computed(self, module, steps=None):
        weight, u, v = (getattr(module, self.name + suffix) for suffix in self._suffixes)
        steps = self.n_power_iterations * module.training if steps is None else steps
        return spectrally_normalized(weight, self.dim, u, v, steps, self.eps, u_first=False)

    @staticmethod
    def apply(module: nn.Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Registers the hook."""
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        return hook.register(module, "spectral", lambda weight: (weight, *start_vectors(weight, dim, eps)))


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Any:
    """Divides a weight by its spectral norm before each forward. Buffers approximate the singular vectors."""
    SpectralNorm.apply(module, name, n_power_iterations, dim_of_outputs(module, dim), eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Removes spectral_norm. The weight keeps its current value."""
    return SpectralNorm.remove_hook(module, name, f"spectral_norm of '{name}' not found in {module}")


make_callable(modules[__name__], spectral_norm)
