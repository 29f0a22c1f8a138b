# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.utils: what distributions and programs' own ones begin with."""
from numbers import Number

import phlox as torch
from phlox.nn.functional import softmax

euler_constant = 0.5772156649015329


class lazy_property:
    """A value that is computed when it is first asked for, with gradients, and kept."""

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
    """The values, broadcast to one shape; numbers get the dtype and device of the first tensor.

    ValueError for what is neither.
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
    """Probabilities with the dtype's epsilon between them and 0 and 1."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs, is_binary=False):
    """The logarithms of probabilities, or of their odds."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def logits_to_probs(logits, is_binary=False):
    """The probabilities of which `probs_to_logits` gives the logits."""
    return logits.sigmoid() if is_binary else softmax(logits, dim=-1)


def sum_rightmost(value, dim):
    """The sum over the last `dim` dimensions."""
    return value.flatten(-dim).sum(-1) if dim else value


def _lower(n, diag, like):
    """Which entries of a square matrix are not above a diagonal."""
    return torch.ones(n, n, dtype=torch.bool, device=like.device).tril(diag)


def tril_matrix_to_vec(mat, diag=0):
    """The entries of matrices that are not above a diagonal, row by row, as vectors."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _lower(n, diag, mat)]


def vec_to_tril_matrix(vec, diag=0):
    """The matrices of which `tril_matrix_to_vec` gives the vectors; the other entries are 0."""
    count, b = vec.shape[-1], 1 + 2 * diag
    n = ((b ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5 - b) / 2
    if round(n) - n > torch.finfo(vec.dtype).eps:
        raise ValueError(f"The size of last dimension is {count} which cannot be expressed as "
                         "the lower triangular part of a square D x D matrix.")
    mat = vec.new_zeros((*vec.shape[:-1], round(n), round(n)))
    mat[..., _lower(round(n), diag, vec)] = vec
    return mat
