# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.parametrizations: those that are ready to use."""
from __future__ import annotations

import phlox as torch
from phlox import _C, Tensor, nn
from phlox.nn.functional import normalize

from .parametrize import register_parametrization

_C._name_missing(__name__)


class _WeightNorm(nn.Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return torch._weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return torch.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: nn.Module, name: str = "weight", dim: int | None = 0) -> nn.Module:
    """Parametrizes a weight by the norms of its slices along dim (None: of the whole), and their directions."""
    def take_older_names(state, prefix, *_):
        keys = {f"{prefix}{name}_{old}": f"{prefix}parametrizations.{name}.original{i}" for i, old in enumerate("gv")}
        if all(key in state for key in keys):
            state.update({new: state.pop(old) for old, new in keys.items()})

    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(take_older_names)
    return module


def start_vectors(weight, dim, eps):
    """Vectors of random directions for `divided`."""
    matrix = weight.detach().movedim(dim, 0).flatten(1)
    return [normalize(matrix.new_empty(size).normal_(0, 1), dim=0, eps=eps) for size in matrix.shape]


def divided(weight, dim, u, v, steps, eps, u_first=True):
    """A weight divided by the greatest singular value of the matrix that has dimension dim as rows. u and v tell it, after so
    many steps of power iteration, which change them."""
    matrix = weight.movedim(dim, 0).flatten(1)
    halves = [(u, matrix.detach(), v), (v, matrix.detach().t(), u)]
    for to, factor, vector in (halves if u_first else halves[::-1]) * steps:
        to.copy_(normalize(factor.mv(vector), dim=0, eps=eps))
    u, v = u.clone(), v.clone()  # what the gradient needs stays when the next call changes them
    return weight / torch.dot(u, matrix.mv(v))


def dim_of_outputs(module, dim):
    """The dimension of a weight that its outputs are."""
    transposed = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
    return int(isinstance(module, transposed)) if dim is None else dim


def check_steps(count):
    """Refuses a number of power iterations that is not positive."""
    if count <= 0:
        raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={count}")


class _SpectralNorm(nn.Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError("Dimension out of range (expected to be in range of "
                             f"[-{weight.ndim}, {weight.ndim - 1}] but got {dim})")
        check_steps(n_power_iterations)
        self.dim, self.eps, self.n_power_iterations = dim % weight.ndim, eps, n_power_iterations
        if weight.ndim > 1:
            for name, vector in zip(("_u", "_v"), start_vectors(weight, dim, eps)):
                self.register_buffer(name, vector)
            divided(weight.detach(), dim, self._u, self._v, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        return divided(weight, self.dim, self._u, self._v, self.n_power_iterations * self.training, self.eps)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value  # of any length: it will be divided


def spectral_norm(module: nn.Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> nn.Module:
    """Parametrizes a weight by one of any length, which is divided by its greatest singular value. Two buffers approximate it,
    the nearer, the more often it was computed in training mode."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    norm = _SpectralNorm(weight, n_power_iterations, dim_of_outputs(module, dim), eps)
    return register_parametrization(module, name, norm)
