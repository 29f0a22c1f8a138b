# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.utils: helpers of distributions, also for user-defined ones."""
from numbers import Number

import phlox as torch
from phlox.nn.functional import softmax

euler_constant = 0.5772156649015329


class lazy_property:
    """A property computed on first access, with gradients enabled, and cached in the instance."""

    def __init__(self, wrapped):
        self.wrapped, self.__doc__ = wrapped, wrapped.__doc__

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with torch.enable_grad():
            value = vars(instance)[self.name] = self.wrapped(instance)
        return value


def broadcast_all(*values):
    """Broadcasts tensors and numbers to a common shape. Numbers get the dtype and device of the
    first tensor.

    Raises ValueError for other types.
    """
    if not all(isinstance(value, (torch.Tensor, Number)) for value in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects "
                         "implementing __torch_function__.")
    like = next((value for value in values if isinstance(value, torch.Tensor)),
                torch.empty((), dtype=torch.get_default_dtype()))
    return torch.broadcast_tensors(*(
        value if isinstance(value, torch.Tensor) else
        torch.tensor(value, dtype=like.dtype, device=like.device) for value in values))


def clamp_probs(probs):
    """Clamps probabilities to [eps, 1 - eps] of their dtype."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs, is_binary=False):
    """Converts probabilities to log-odds (binary) or log-probabilities."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def logits_to_probs(logits, is_binary=False):
    """Converts logits to probabilities: the inverse of probs_to_logits."""
    return logits.sigmoid() if is_binary else softmax(logits, dim=-1)


def sum_rightmost(value, dim):
    """Sums over the last `dim` dimensions."""
    return value.flatten(-dim).sum(-1) if dim else value


def _lower(n, diag, like):
    """Returns the mask of a square matrix's entries on or below a diagonal."""
    return torch.ones(n, n, dtype=torch.bool, device=like.device).tril(diag)


def tril_matrix_to_vec(mat, diag=0):
    """Converts the lower triangles of matrices to vectors, in row-major order."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _lower(n, diag, mat)]


def vec_to_tril_matrix(vec, diag=0):
    """Converts vectors to lower triangular matrices: the inverse of tril_matrix_to_vec."""
    count, b = vec.shape[-1], 1 + 2 * diag
    n = ((b ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5 - b) / 2
    if round(n) - n > torch.finfo(vec.dtype).eps:
        raise ValueError(f"The size of last dimension is {count} which cannot be expressed as "
                         "the lower triangular part of a square D x D matrix.")
    mat = vec.new_zeros((*vec.shape[:-1], round(n), round(n)))
    mat[..., _lower(round(n), diag, vec)] = vec
    return mat
