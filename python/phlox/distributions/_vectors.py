# SPDX-License-Identifier: Apache-2.0
"""Multivariate and matrix distributions, and Multinomial."""
import math
import warnings

import phlox as torch

from . import constraints
from ._continuous import Beta, Chi2
from ._discrete import Binomial, Categorical
from .distribution import Distribution, ExponentialFamily, Family, Trials
from .utils import broadcast_all, lazy_property

_COVARIANCES = ("covariance_matrix", "precision_matrix", "scale_tril")


def _log_det_tril(matrix):
    """Returns the log-determinant of a triangular matrix."""
    return matrix.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class _WithCovariance(Family):
    """A base class parameterized by exactly one of covariance, precision and Cholesky factor. The others
    are derived."""
    scale_tril = lazy_property(lambda self: self._to_batch(self._tril))
    covariance_matrix = lazy_property(lambda self: self._to_batch(self._tril @ self._tril.mT))
    precision_matrix = lazy_property(lambda self: self._to_batch(torch.cholesky_inverse(self._tril)))

    _to_batch = lambda self, matrix: matrix.expand(self._batch_shape + matrix.shape[-2:])

    def _choose(self, error, *matrices):
        """Returns the given matrix and its name. Raises `error` unless exactly one is given."""
        given = [pair for pair in zip(matrices, _COVARIANCES) if pair[0] is not None]
        if len(given) != 1:
            raise error("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        (matrix, name), = given
        if matrix.dim() < 2:
            raise ValueError(f"{self._names.get(name, name)} must be at least two-dimensional, with optional "
                             "leading batch dimensions")
        return matrix, name

    def _factor(self, matrix, name):
        """Computes the Cholesky factor of the covariance."""
        if name == "precision_matrix":  # a flipped Cholesky makes the inverse lower triangular
            inverse = torch.linalg.cholesky(matrix.flip(-2, -1)).flip(-2, -1).mT
            one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
            matrix = torch.linalg.solve_triangular(inverse, one, upper=False)
        self._tril = torch.linalg.cholesky(matrix) if name == "covariance_matrix" else matrix


class _Gaussian(Distribution):
    """Multivariate normal distributions. Subclasses define _root (a factor of the covariance), _log_det
    (the covariance's log-determinant) and _distance (the squared Mahalanobis distance from 0)."""
    support, has_rsample = constraints.real_vector, True
    mean = mode = property(lambda self: self.loc)

    def _log_prob(self, value):
        size = self._event_shape[0] * math.log(2 * math.pi)
        return -(size + self._distance(value - self.loc) + self._log_det) / 2

    def entropy(self):
        size = self._event_shape[0] * (1 + math.log(2 * math.pi))
        return ((size + self._log_det) / 2).expand(self._batch_shape)


class MultivariateNormal(_Gaussian, _WithCovariance):
    """A multivariate normal distribution with mean `loc` and one of covariance_matrix, precision_matrix
    and scale_tril, the Cholesky factor of the covariance."""
    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite,
                       "scale_tril": constraints.lower_cholesky}
    _names = {"scale_tril": "scale_tril matrix"}  # names in error messages
    _root = property(lambda self: self._tril)
    _log_det = property(lambda self: 2 * _log_det_tril(self._tril))
    variance = property(lambda self: (self._tril ** 2).sum(-1).expand(self._extended_shape()))

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None,
                 validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrix, name = self._choose(ValueError, covariance_matrix, precision_matrix, scale_tril)
        batch = torch.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand(batch + (-1,))
        setattr(self, name, matrix.expand(batch + (-1, -1)))
        Distribution.__init__(self, batch, loc.shape[-1:], validate_args=validate_args)
        self._factor(matrix, name)

    def _distance(self, x):
        if self._tril.dim() == 2:  # one solve for all vectors
            columns = x.reshape(-1, x.shape[-1]).mT
            return torch.linalg.solve_triangular(self._tril, columns, upper=False).pow(2).sum(0).view(x.shape[:-1])
        return torch.linalg.solve_triangular(self._tril, x.unsqueeze(-1), upper=False).pow(2).sum((-2, -1))

    def _rsample(self, shape):
        noise = self.loc.new_empty(shape).normal_()
        return self.loc + (self._tril @ noise.unsqueeze(-1)).squeeze(-1)


class LowRankMultivariateNormal(_Gaussian, Family):
    """A multivariate normal distribution with covariance cov_factor @ cov_factor.T + diag(cov_diag).
    Efficient if cov_factor has few columns."""
    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    covariance_matrix = property(lambda self: self.cov_factor @ self.cov_factor.mT
                                 + self.cov_diag.diag_embed(), doc="The covariance matrix.")
    scale_tril = property(lambda self: torch.linalg.cholesky(self.covariance_matrix), doc="Its Cholesky factor.")
    variance = property(lambda self: (self.cov_factor ** 2).sum(-1) + self.cov_diag)
    _root = property(lambda self: torch.cat([self.cov_factor, self.cov_diag.sqrt().diag_embed()], -1))
    _log_det = property(lambda self: 2 * _log_det_tril(self._capacitance[2]) + self._capacitance[1].log().sum(-1))

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        size = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch "
                             "dimensions")
        if cov_factor.shape[-2:-1] != size:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {size[0]} x m")
        if cov_diag.shape[-1:] != size:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {size}")
        try:
            batch = torch.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                             f"cov_diag {cov_diag.shape}") from error
        self.loc, self.cov_diag = loc.expand(batch + size), cov_diag.expand(batch + size)
        self.cov_factor = cov_factor.expand(batch + cov_factor.shape[-2:])
        scaled = cov_factor.mT / cov_diag.unsqueeze(-2)
        inner = scaled @ cov_factor
        # The capacitance matrix (rank x rank): determinant and inverse are derived from its factor.
        self._capacitance = (scaled, cov_diag, torch.linalg.cholesky(inner + torch.eye(inner.shape[-1]).to(inner)))
        Distribution.__init__(self, batch, size, validate_args=validate_args)

    @property
    def precision_matrix(self):
        """The inverse of the covariance matrix."""
        scaled, diag, tril = self._capacitance
        part = torch.linalg.solve_triangular(tril, scaled, upper=False)
        return (diag.reciprocal().diag_embed() - part.mT @ part).expand(self._batch_shape + 2 * self._event_shape)

    def _distance(self, x):
        scaled, diag, tril = self._capacitance
        part = torch.linalg.solve_triangular(tril, scaled @ x.unsqueeze(-1), upper=False)
        return (x ** 2 / diag).sum(-1) - part.pow(2).sum((-2, -1))

    def _rsample(self, shape):
        narrow = self.loc.new_empty(shape[:-1] + self.cov_factor.shape[-1:]).normal_()
        wide = self.loc.new_empty(shape).normal_()
        return self.loc + (self.cov_factor @ narrow.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * wide


class Wishart(_WithCovariance, ExponentialFamily):
    """A Wishart distribution with `df` degrees of freedom and one of covariance_matrix, precision_matrix
    and scale_tril, the Cholesky factor of the covariance."""
    support, has_rsample, _mean_carrier_measure = constraints.positive_definite, True, 0
    arg_constraints = property(lambda self: {
        "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self._size - 1)})
    _names, _size = dict.fromkeys(_COVARIANCES, "scale_tril"), property(lambda self: self._event_shape[-1])
    _df = property(lambda self: self.df.view(self._batch_shape + (1, 1)))
    _excess_df = property(lambda self: self.df - self._size - 1)
    mean = property(lambda self: self._df * self.covariance_matrix)

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        matrix, name = self._choose(AssertionError, covariance_matrix, precision_matrix, scale_tril)
        size = matrix.shape[-1]
        self.df = torch.as_tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = torch.broadcast_shapes(matrix.shape[:-2], self.df.shape)
        self.df = self.df.expand(batch)
        if (self.df <= size - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {size - 1}.")
        if (self.df < size).any():
            warnings.warn("Low df values detected. Singular samples are highly likely to occur for ndim - "
                          "1 < df < ndim.", stacklevel=2)
        setattr(self, name, matrix.expand(batch + (-1, -1)))
        Distribution.__init__(self, batch, matrix.shape[-2:], validate_args=validate_args)
        self._factor(matrix, name)

    @property
    def mode(self):
        spare = self._excess_df.masked_fill(self._excess_df <= 0, math.nan)
        return spare.view(self._batch_shape + (1, 1)) * self.covariance_matrix

    @property
    def variance(self):
        shape = self.covariance_matrix
        sides = shape.diagonal(dim1=-2, dim2=-1)
        return self._df * (shape ** 2 + sides.unsqueeze(-1) * sides.unsqueeze(-2))

    def _draw(self, shape):
        """Samples by the Bartlett decomposition."""
        size, eps = self._size, torch.finfo(self.df.dtype).eps
        df = self.df.unsqueeze(-1) - torch.arange(size, dtype=self.df.dtype, device=self.df.device)
        noise = Chi2(df, validate_args=False)._rsample(shape[:-1]).sqrt().clamp(min=eps).diag_embed()
        i, j = torch.tril_indices(size, size, -1)
        noise[..., i, j] = noise.new_empty(shape[:-2] + (i.numel(),)).normal_()
        factor = self._tril @ noise
        return factor @ factor.mT

    def _rsample(self, shape):
        draw = self._draw(shape)
        for _ in range(10):  # redraws singular samples
            good = self.support.check(draw)
            if good.all():
                break
            draw = torch.where(good[..., None, None], draw, self._draw(shape))
        return draw

    def _log_prob(self, value):
        size = self._size
        inside = torch.cholesky_solve(value, self._tril).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (-self.df * (size * math.log(2) / 2 + _log_det_tril(self._tril)) - torch.mvlgamma(self.df / 2, size)
                + self._excess_df / 2 * torch.linalg.slogdet(value).logabsdet - inside / 2)

    def entropy(self):
        size, half = self._size, self.df / 2
        steps = torch.arange(size, dtype=half.dtype, device=half.device) / 2
        return ((size + 1) * (size * math.log(2) / 2 + _log_det_tril(self._tril)) + torch.mvlgamma(half, size)
                - self._excess_df / 2 * torch.digamma(half.unsqueeze(-1) - steps).sum(-1) + half * size)

    _natural_params = property(lambda self: (-self.precision_matrix / 2, self._excess_df / 2))

    def _log_normalizer(self, x, y):
        half = y + (self._size + 1) / 2
        logs = self._size * math.log(2) - torch.linalg.slogdet(-2 * x).logabsdet
        return half * logs + torch.mvlgamma(half, self._size)


class LKJCholesky(Family):
    """An LKJ distribution over the Cholesky factors of `dim` x `dim` correlation matrices.
    concentration = 1 is uniform over correlation matrices; larger values approach the identity
    (Lewandowski, Kurowicka and Joe 2009)."""
    arg_constraints, support = {"concentration": constraints.positive}, constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        self.concentration, = broadcast_all(concentration)
        Distribution.__init__(self, self.concentration.size(), torch.Size((dim, dim)), validate_args)

    def _sample(self, shape):
        like = self.concentration
        row = torch.arange(self.dim, dtype=like.dtype, device=like.device).sub(1).clamp(min=0)
        shares = Beta(row + 0.5, (like + 0.5 * (self.dim - 2)).unsqueeze(-1) - 0.5 * row, validate_args=False)
        lengths = shares._rsample(shape[:-1]).unsqueeze(-1)
        ways = like.new_empty(shape).normal_().tril(-1)
        ways = ways / ways.norm(dim=-1, keepdim=True)
        ways[..., 0, :] = 0
        below = lengths.sqrt() * ways
        tiny = torch.finfo(like.dtype).tiny
        return below + (1 - (below ** 2).sum(-1)).clamp(min=tiny).sqrt().diag_embed()

    def _log_prob(self, value):
        left, like = self.dim - 1, self.concentration
        order = torch.arange(2, self.dim + 1, device=like.device)
        order = 2 * (like - 1).unsqueeze(-1) + self.dim - order
        alpha = like + left / 2
        norm = left * math.log(math.pi) / 2 + torch.mvlgamma(alpha - 0.5, left) - torch.lgamma(alpha) * left
        return (order * value.diagonal(dim1=-1, dim2=-2)[..., 1:].log()).sum(-1) - norm


class Multinomial(Trials):
    """A multinomial distribution: counts of each index in `total_count` draws of a Categorical."""
    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    probs = property(lambda self: self._categorical.probs, doc="The probabilities of the indices.")
    logits = property(lambda self: self._categorical.logits, doc="The log-probabilities.")
    _param = property(lambda self: self._categorical._param)
    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count, self._categorical = total_count, Categorical(probs, logits)
        size = self._param.size()
        Distribution.__init__(self, size[:-1], size[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    def _sample(self, shape):
        chosen = self._categorical._sample(torch.Size((self.total_count,)) + shape[:-1]).movedim(0, -1)
        return chosen.new_zeros(shape).scatter_add(-1, chosen, torch.ones_like(chosen)).to(self.probs)

    def _log_prob(self, value):
        logits, value = broadcast_all(self.logits, value)
        powers = (logits.masked_fill((value == 0) & (logits == -math.inf), 0) * value).sum(-1)
        return torch.lgamma(value.sum(-1) + 1) - torch.lgamma(value + 1).sum(-1) + powers

    def entropy(self):
        binomial = Binomial(self.total_count, self.probs, validate_args=False)
        counts = binomial.enumerate_support(expand=False)[1:]
        doubled = (binomial._log_prob(counts).exp() * torch.lgamma(counts + 1)).sum((0, -1))
        return self.total_count * self._categorical.entropy() - math.lgamma(self.total_count + 1) + doubled
