# SPDX-License-Identifier: Apache-2.0
"""Distributions of real numbers."""
import math

import phlox as torch
from phlox.nn.functional import one_hot

from . import constraints
from .distribution import Distribution, Family

_PLACED = {"loc": constraints.real, "scale": constraints.positive}


class Normal(Family):
    """Normal, with mean `loc` and standard deviation `scale`."""
    arg_constraints, support, has_rsample = _PLACED, constraints.real, True
    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale ** 2)

    def __init__(self, loc, scale, validate_args=None):
        self._begin(validate_args, loc=loc, scale=scale)

    _rsample = lambda self, shape: self.loc + self.scale * self.loc.new_empty(shape).normal_()
    icdf = lambda self, value: self.loc + self.scale * math.sqrt(2) * torch.erfinv(2 * value - 1)
    entropy = lambda self: math.log(2 * math.pi * math.e) / 2 + self.scale.log()

    def _log_prob(self, value):
        return (-((value - self.loc) / self.scale) ** 2 / 2 - self.scale.log()
                - math.log(2 * math.pi) / 2)

    def _cdf(self, value):
        return (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf()) / 2


class Uniform(Family):
    """Evenly over [low, high)."""
    has_rsample = True
    arg_constraints = property(lambda self: {"low": constraints.less_than(self.high),
                                             "high": constraints.greater_than(self.low)})
    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: math.nan * self.high)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def __init__(self, low, high, validate_args=None):
        self._begin(validate_args, low=low, high=high)

    @constraints.dependent_property
    def support(self):
        return constraints.interval(self.low, self.high)

    def _rsample(self, shape):
        return self.low + self.low.new_empty(shape).uniform_() * (self.high - self.low)

    def _log_prob(self, value):
        inside = (self.low <= value) & (value < self.high)
        return inside.to(self.low).log() - (self.high - self.low).log()

    _cdf = lambda self, value: ((value - self.low) / (self.high - self.low)).clamp(0, 1)
    icdf = lambda self, value: value * (self.high - self.low) + self.low
    entropy = lambda self: (self.high - self.low).log()


class Exponential(Family):
    """Of the wait for an event of the rate `rate`."""
    arg_constraints = {"rate": constraints.positive}
    support, has_rsample = constraints.nonnegative, True
    mean = stddev = property(lambda self: 1 / self.rate)
    mode = property(lambda self: torch.zeros_like(self.rate))
    variance = property(lambda self: self.rate ** -2)

    def __init__(self, rate, validate_args=None):
        self._begin(validate_args, rate=rate)

    _rsample = lambda self, shape: self.rate.new_empty(shape).exponential_() / self.rate
    _log_prob = lambda self, value: self.rate.log() - self.rate * value
    _cdf = lambda self, value: 1 - (-self.rate * value).exp()
    icdf = lambda self, value: -(-value).log1p() / self.rate
    entropy = lambda self: 1 - self.rate.log()


class Laplace(Family):
    """Laplace, around `loc`; on either side exponential, with mean `scale`."""
    arg_constraints, support, has_rsample = _PLACED, constraints.real, True
    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: math.sqrt(2) * self.scale)
    variance = property(lambda self: 2 * self.scale ** 2)

    def __init__(self, loc, scale, validate_args=None):
        self._begin(validate_args, loc=loc, scale=scale)

    def _rsample(self, shape):
        u = self.loc.new_empty(shape).uniform_(torch.finfo(self.loc.dtype).eps - 1, 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    _log_prob = lambda self, value: -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def _cdf(self, value):
        far = (value - self.loc) / self.scale
        return 0.5 - 0.5 * far.sign() * (-far.abs()).expm1()

    def icdf(self, value):
        return self.loc - self.scale * (value - 0.5).sign() * (-2 * (value - 0.5).abs()).log1p()

    entropy = lambda self: 1 + (2 * self.scale).log()


class Gamma(Family):
    """Of the sum of `concentration` waits for an event of the rate `rate`."""
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support, has_rsample = constraints.nonnegative, True
    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate ** 2)

    def __init__(self, concentration, rate, validate_args=None):
        self._begin(validate_args, concentration=concentration, rate=rate)

    def _rsample(self, shape):
        return torch._standard_gamma(self.concentration.expand(shape)) / self.rate

    def _log_prob(self, value):
        a = self.concentration
        return (torch.xlogy(a, self.rate) + torch.xlogy(a - 1, value) - self.rate * value
                - torch.lgamma(a))

    _cdf = lambda self, value: torch.special.gammainc(self.concentration, self.rate * value)

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + torch.lgamma(a) + (1 - a) * torch.digamma(a)


class Dirichlet(Family):
    """Of shares that sum to one over the last dimension."""
    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support, has_rsample = constraints.simplex, True
    _total = property(lambda self: self.concentration.sum(-1, True))
    mean = property(lambda self: self.concentration / self._total)

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration, size = concentration, concentration.size()
        Distribution.__init__(self, size[:-1], size[-1:], validate_args=validate_args)

    variance = property(lambda self: self.mean * (1 - self.mean) / (self._total + 1))

    @property
    def mode(self):
        above = (self.concentration - 1).clamp(min=0)
        corner = one_hot(above.argmax(-1), above.size(-1)).to(above)
        flat = (self.concentration < 1).all(-1, keepdim=True)
        return torch.where(flat, corner, above / above.sum(-1, True))

    _rsample = lambda self, shape: torch._sample_dirichlet(self.concentration.expand(shape))

    def _log_prob(self, value):
        a = self.concentration
        return (torch.xlogy(a - 1, value).sum(-1) + torch.lgamma(a.sum(-1))
                - torch.lgamma(a).sum(-1))

    def entropy(self):
        a, total = self.concentration, self.concentration.sum(-1)
        return (torch.lgamma(a).sum(-1) - torch.lgamma(total)
                - (a.size(-1) - total) * torch.digamma(total)
                - ((a - 1) * torch.digamma(a)).sum(-1))


class Beta(Family):
    """Of a share: of `concentration1` against `concentration0`."""
    arg_constraints = {"concentration1": constraints.positive,
                       "concentration0": constraints.positive}
    support, has_rsample = constraints.unit_interval, True
    _both = property(lambda self: torch.stack([self.concentration1, self.concentration0], -1))
    _shares = property(lambda self: Dirichlet(self._both, validate_args=False))
    mean = property(lambda self: self._shares.mean[..., 0])
    mode = property(lambda self: self._shares.mode[..., 0])
    variance = property(lambda self: self._shares.variance[..., 0])

    def __init__(self, concentration1, concentration0, validate_args=None):
        self._begin(validate_args, concentration1=concentration1, concentration0=concentration0)

    _rsample = lambda self, shape: self._shares._rsample(shape + (2,))[..., 0]
    _log_prob = lambda self, value: self._shares._log_prob(torch.stack([value, 1 - value], -1))
    entropy = lambda self: self._shares.entropy()


class Chi2(Gamma):
    """Of the sum of the squares of `df` standard normal numbers."""
    arg_constraints = {"df": constraints.positive}
    df = property(lambda self: self.concentration * 2, doc="Degrees of freedom.")

    def __init__(self, df, validate_args=None):
        Gamma.__init__(self, 0.5 * df, 0.5, validate_args=validate_args)

    def _expanded(self, batch_shape, **parts):
        return super()._expanded(batch_shape, concentration=self.concentration.expand(batch_shape),
                                 rate=self.rate.expand(batch_shape), **parts)


class Cauchy(Family):
    """Of the ratio of two normal numbers, around `loc`: without a mean."""
    arg_constraints, support, has_rsample = _PLACED, constraints.real, True
    mean = property(lambda self: torch.full_like(self.loc, math.nan))
    variance = property(lambda self: torch.full_like(self.loc, math.inf))
    mode = property(lambda self: self.loc)

    def __init__(self, loc, scale, validate_args=None):
        self._begin(validate_args, loc=loc, scale=scale)

    _rsample = lambda self, shape: self.loc + self.loc.new_empty(shape).cauchy_() * self.scale
    _cdf = lambda self, value: ((value - self.loc) / self.scale).atan() / math.pi + 0.5
    icdf = lambda self, value: (math.pi * (value - 0.5)).tan() * self.scale + self.loc
    entropy = lambda self: math.log(4 * math.pi) + self.scale.log()

    def _log_prob(self, value):
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()


class StudentT(Family):
    """Of the mean of few normal numbers in units of its error, with `df` degrees of freedom."""
    arg_constraints = {"df": constraints.positive, **_PLACED}
    support, has_rsample = constraints.real, True
    mean = property(lambda self: self.loc.masked_fill(self.df <= 1, math.nan))
    mode = property(lambda self: self.loc)

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self._begin(validate_args, df=df, loc=loc, scale=scale)

    @property
    def variance(self):
        df = self.df
        wide = self.scale ** 2 * df / (df - 2).clamp(min=torch.finfo(df.dtype).tiny)
        return wide.masked_fill(df <= 2, math.inf).masked_fill(df <= 1, math.nan)

    def _rsample(self, shape):
        x = self.loc.new_empty(shape).normal_()
        return self.loc + self.scale * x * torch.rsqrt(Chi2(self.df)._rsample(shape) / self.df)

    def _log_prob(self, value):
        df, y = self.df, (value - self.loc) / self.scale
        norm = (self.scale.log() + 0.5 * df.log() + math.log(math.pi) / 2 + torch.lgamma(df / 2)
                - torch.lgamma((df + 1) / 2))
        return -0.5 * (df + 1) * (y ** 2 / df).log1p() - norm

    def entropy(self):
        half, df = self.df / 2, self.df
        beta = torch.lgamma(half) + math.log(math.pi) / 2 - torch.lgamma(half + 0.5)
        return (self.scale.log() + (df + 1) / 2 * (torch.digamma(half + 0.5) - torch.digamma(half))
                + df.log() / 2 + beta)
