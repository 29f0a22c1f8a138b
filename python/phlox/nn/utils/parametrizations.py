# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.parametrizations: ready-made parametrizations."""
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
    """Parametrizes a weight by norms of slices along dim (None: one norm of the whole) and directions."""
    def rename_legacy_keys(state, prefix, *_):
        keys = {f"{prefix}{name}_{old}": f"{prefix}parametrizations.{name}.original{i}" for i, old in enumerate("gv")}
        if all(key in state for key in keys):
            state.update({new: state.pop(old) for old, new in keys.items()})

    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(rename_legacy_keys)
    return module


def start_vectors(weight, dim, eps):
    """Returns random initial vectors for the power iteration of `spectrally_normalized`."""
    matrix = weight.detach().movedim(dim, 0).flatten(1)
    return [normalize(matrix.new_empty(size).normal_(0, 1), dim=0, eps=eps) for size in matrix.shape]


def spectrally_normalized(weight, dim, u, v, steps, eps, u_first=True):
    """Returns the weight divided by its spectral norm. Its matrix has dimension dim as rows. u and v approximate the leading singular
    vectors and are updated by `steps` power iterations."""
    matrix = weight.movedim(dim, 0).flatten(1)
    halves = [(u, matrix.detach(), v), (v, matrix.detach().t(), u)]
    for to, factor, vector in (halves if u_first else halves[::-1]) * steps:
        to.copy_(normalize(factor.mv(vector), dim=0, eps=eps))
    u, v = u.clone(), v.clone()  # saved for backward; the next call overwrites the originals
    return weight / torch.dot(u, matrix.mv(v))


def dim_of_outputs(module, dim):
    """Returns the output dimension of a module's weight."""
    transposed = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
    return int(isinstance(module, transposed)) if dim is None else dim


def check_steps(count):
    """Raises ValueError unless the number of power iterations is positive."""
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
            spectrally_normalized(weight.detach(), dim, self._u, self._v, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        return spectrally_normalized(weight, self.dim, self._u, self._v, self.n_power_iterations * self.training, self.eps)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value  # of any norm: forward divides it


def spectral_norm(module: nn.Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> nn.Module:
    """Parametrizes a weight by an unnormalized one divided by its spectral norm. Two buffers approximate the leading singular vectors;
    each forward in training mode refines them."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    norm = _SpectralNorm(weight, n_power_iterations, dim_of_outputs(module, dim), eps)
    return register_parametrization(module, name, norm)


def orthogonal_factor(matrix):
    """Returns Q of the QR decomposition, with signs such that an orthogonal matrix maps to itself."""
    reflections, tau = torch.geqrf(matrix)
    return torch.linalg.householder_product(reflections, tau) * reflections.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def is_orthogonal(matrix):
    """Returns True if the columns are orthonormal."""
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return torch.allclose(matrix.mT @ matrix, eye, atol=10 * matrix.shape[-1] * torch.finfo(matrix.dtype).eps)


class _Orthogonal(nn.Module):
    """Maps a matrix to one with orthonormal columns (rows if wide): the matrix exponential or Cayley transform of the skew-symmetric matrix of
    its lower triangle, or a product of Householder reflections. With trivialization, the result is multiplied by `base`. M. Lezcano-Casado
    2019, Trivializations for gradient-based optimization on manifolds."""
    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool = True) -> None:
        super().__init__()
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def rotation(self, tall):
        n, k = tall.shape[-2:]
        lower = torch.nn.functional.pad(tall.tril(), (0, n - k))
        skew = lower - lower.mT
        if self.orthogonal_map == "matrix_exp":
            return torch.matrix_exp(skew)[..., :k]
        eye = torch.eye(n, dtype=tall.dtype, device=tall.device)
        return torch.linalg.solve(eye - skew / 2, eye + skew / 2)[..., :k]

    def reflections(self, tall):
        below = tall.tril(-1)
        product = torch.linalg.householder_product(below, 2 / (1 + below.square().sum(-2)))
        return product * tall.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        tall = X.mT if wide else X
        columns = self.reflections(tall) if self.orthogonal_map == "householder" else self.rotation(tall)
        if hasattr(self, "base"):
            columns = self.base @ columns
        return columns.mT if wide else columns

    @torch.no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}.")
        wide = Q.shape[-2] < Q.shape[-1]
        tall = Q.mT if wide else Q
        if hasattr(self, "base"):
            return self.set_base(Q, tall)
        if self.orthogonal_map != "householder":
            raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley parametrizations "
                                      "when use_trivialization=False.")
        given, tau = torch.geqrf(tall)
        diagonal = given.diagonal(dim1=-2, dim2=-1)
        diagonal.copy_(torch.where(tau == 0, -diagonal.sign(), diagonal.sign()))
        return given.mT if wide else given

    def set_base(self, Q, tall):
        """Stores Q, completed to a square orthogonal matrix, as base. Returns the matrix that maps to the identity."""
        n, k = tall.shape[-2:]
        if n == k:
            self.base = tall.clone() if is_orthogonal(tall) else orthogonal_factor(tall)
        else:
            self.base = orthogonal_factor(torch.cat([tall, torch.randn(*tall.shape[:-1], n - k, dtype=tall.dtype, device=tall.device)], -1))
        start = torch.zeros_like(Q)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1)
        return start


def orthogonal(module: nn.Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True) -> nn.Module:
    """Parametrizes a weight to have orthonormal columns (rows if wide). orthogonal_map is "matrix_exp" (default for square weights), "cayley"
    or "householder" (default for others)."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    return register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, use_trivialization), unsafe=True)
