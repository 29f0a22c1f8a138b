# SPDX-License-Identifier: Apache-2.0
"""Continuous univariate distributions, and Dirichlet."""
import math

import phlox as torch
from phlox.nn.functional import binary_cross_entropy_with_logits, one_hot

from . import constraints
from .distribution import Distribution, ExponentialFamily, Family, Trials
from .utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs

_LOC_SCALE = {"loc": constraints.real, "scale": constraints.positive}


class Normal(Family, ExponentialFamily):
    """A normal distribution with mean `loc` and standard deviation `scale`."""
    arg_constraints, support, has_rsample = _LOC_SCALE, constraints.real, True
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

    _cdf = lambda self, value: (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf()) / 2


class Uniform(Family):
    """A uniform distribution over [low, high)."""
    has_rsample = True
    arg_constraints = property(lambda self: {"low": constraints.less_than(self.high),
                                             "high": constraints.greater_than(self.low)})
    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: math.nan * self.high)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def __init__(self, low, high, validate_args=None):
        self._begin(validate_args, low=low, high=high)

    support = constraints.dependent_property(lambda self: constraints.interval(self.low, self.high))

    def _rsample(self, shape):
        return self.low + self.low.new_empty(shape).uniform_() * (self.high - self.low)

    def _log_prob(self, value):
        inside = (self.low <= value) & (value < self.high)
        return inside.to(self.low).log() - (self.high - self.low).log()

    _cdf = lambda self, value: ((value - self.low) / (self.high - self.low)).clamp(0, 1)
    icdf = lambda self, value: value * (self.high - self.low) + self.low
    entropy = lambda self: (self.high - self.low).log()


class Exponential(Family, ExponentialFamily):
    """An exponential distribution with the given rate."""
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
    """A Laplace distribution with mean `loc` and scale `scale`."""
    arg_constraints, support, has_rsample = _LOC_SCALE, constraints.real, True
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


class Gamma(Family, ExponentialFamily):
    """A gamma distribution with shape `concentration` and the given rate."""
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support, has_rsample = constraints.nonnegative, True
    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate ** 2)

    def __init__(self, concentration, rate, validate_args=None):
        self._begin(validate_args, concentration=concentration, rate=rate)

    _rsample = lambda self, shape: torch._standard_gamma(self.concentration.expand(shape)) / self.rate

    def _log_prob(self, value):
        a = self.concentration
        return (torch.xlogy(a, self.rate) + torch.xlogy(a - 1, value) - self.rate * value
                - torch.lgamma(a))

    _cdf = lambda self, value: torch.special.gammainc(self.concentration, self.rate * value)

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + torch.lgamma(a) + (1 - a) * torch.digamma(a)


class Dirichlet(Family, ExponentialFamily):
    """A Dirichlet distribution over the simplex; the last dimension is the event."""
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


class Beta(Family, ExponentialFamily):
    """A beta distribution with parameters `concentration1` and `concentration0`."""
    arg_constraints = {"concentration1": constraints.positive,
                       "concentration0": constraints.positive}
    support, has_rsample = constraints.unit_interval, True
    _concentrations = property(lambda self: torch.stack([self.concentration1, self.concentration0], -1))
    _dirichlet = property(lambda self: Dirichlet(self._concentrations, validate_args=False))
    mean = property(lambda self: self._dirichlet.mean[..., 0])
    mode = property(lambda self: self._dirichlet.mode[..., 0])
    variance = property(lambda self: self._dirichlet.variance[..., 0])

    def __init__(self, concentration1, concentration0, validate_args=None):
        self._begin(validate_args, concentration1=concentration1, concentration0=concentration0)

    _rsample = lambda self, shape: self._dirichlet._rsample(shape + (2,))[..., 0]
    _log_prob = lambda self, value: self._dirichlet._log_prob(torch.stack([value, 1 - value], -1))
    entropy = lambda self: self._dirichlet.entropy()


class Chi2(Gamma):
    """A chi-squared distribution with `df` degrees of freedom."""
    arg_constraints = {"df": constraints.positive}
    df = property(lambda self: self.concentration * 2, doc="Degrees of freedom.")

    def __init__(self, df, validate_args=None):
        Gamma.__init__(self, 0.5 * df, 0.5, validate_args=validate_args)

    def _expanded(self, batch_shape, **parts):
        return super()._expanded(batch_shape, concentration=self.concentration.expand(batch_shape),
                                 rate=self.rate.expand(batch_shape), **parts)


class Cauchy(Family):
    """A Cauchy distribution with location `loc` and scale `scale`. Its mean is undefined."""
    arg_constraints, support, has_rsample = _LOC_SCALE, constraints.real, True
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
    """A Student's t-distribution with `df` degrees of freedom."""
    arg_constraints = {"df": constraints.positive, **_LOC_SCALE}
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


class FisherSnedecor(Family):
    """A Fisher-Snedecor (F) distribution with `df1` and `df2` degrees of freedom."""
    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support, has_rsample = constraints.positive, True
    mean = property(lambda self: (self.df2 / (self.df2 - 2)).masked_fill(self.df2 <= 2, math.nan))

    def __init__(self, df1, df2, validate_args=None):
        self._begin(validate_args, df1=df1, df2=df2)

    @property
    def mode(self):
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self):
        a, b = self.df1, self.df2
        return (2 * b ** 2 * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4))).masked_fill(b <= 4, math.nan)

    def _rsample(self, shape):
        over, under = (Gamma(df / 2, df, validate_args=False)._rsample(shape) for df in (self.df1, self.df2))
        tiny = torch.finfo(under.dtype).tiny
        return (over / under.clamp(min=tiny)).clamp(min=tiny)

    def _log_prob(self, value):
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        return (torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + a * ratio.log()
                + (a - 1) * value.log() - (a + b) * (ratio * value).log1p())


class GeneralizedPareto(Family):
    """A generalized Pareto distribution above `loc`. A larger `concentration` makes the tail heavier; a
    negative one bounds it."""
    arg_constraints = {**_LOC_SCALE, "concentration": constraints.real}
    has_rsample, mode = True, property(lambda self: self.loc)
    _exponential = property(lambda self: self.concentration.isclose(torch.zeros_like(self.concentration)))
    _nonzero = property(lambda self: self.concentration.masked_fill(self._exponential, 1))

    def __init__(self, loc, scale, concentration, validate_args=None):
        self._begin(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property
    def support(self):
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, torch.where(self.concentration < 0, end, math.inf))

    @property
    def mean(self):
        c = self.concentration
        return torch.where(c < 1, self.loc + self.scale / (1 - c.masked_fill(c >= 1, 0.5)), math.nan)

    @property
    def variance(self):
        valid = self.concentration < 0.5
        c = torch.where(valid, self.concentration, 0.25)
        return torch.where(valid, self.scale ** 2 / ((1 - c) ** 2 * (1 - 2 * c)), math.nan)

    def _rsample(self, shape):
        return self.icdf(torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def _log_prob(self, value):
        z, c = (value - self.loc) / self.scale, self._nonzero
        y = 1 / c + torch.ones_like(z)
        return -self.scale.log() - torch.where(self._exponential, z, torch.where(y == 0, y, y * (c * z).log1p()))

    def log_survival_function(self, value):
        """Returns the log of the survival function, 1 - cdf."""
        self._validate_sample(value)
        z, c = (value - self.loc) / self.scale, self._nonzero
        return torch.where(self._exponential, -z, -(c * z).log1p() / c)


    def log_cdf(self, value):
        """Returns the log of the cumulative distribution function."""
        return (-self.log_survival_function(value).exp()).log1p()

    cdf = lambda self, value: self.log_cdf(value).exp()
    entropy = lambda self: self.scale.log() + self.concentration + 1

    def icdf(self, value):
        logs, c = (-value).log1p(), self._nonzero
        return self.loc + self.scale * torch.where(self._exponential, -logs, (-c * logs).expm1() / c)


class VonMises(Family):
    """A von Mises distribution on the circle around `loc`."""
    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    mean = mode = property(lambda self: self.loc)

    def __init__(self, loc, concentration, validate_args=None):
        self._begin(validate_args, loc=loc, concentration=concentration)

    @property
    def variance(self):
        return 1 - torch.special.i1e(self.concentration) / torch.special.i0e(self.concentration)

    def _log_prob(self, value):
        norm = math.log(2 * math.pi) + torch.special.i0e(self.concentration).log()
        return self.concentration * ((value - self.loc).cos() - 1) - norm

    def _sample(self, shape):
        """Samples by rejection from a wrapped Cauchy distribution (Best and Fisher 1979)."""
        loc, k = self.loc.double(), self.concentration.double()
        tau = 1 + (1 + 4 * k ** 2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        r = torch.where(k < 1e-5, 1 / k + k, (1 + rho ** 2) / (2 * rho))
        x, done = loc.new_empty(shape), torch.zeros(shape, dtype=torch.bool, device=loc.device)
        while not done.all():
            u1, u2, u3 = torch.rand((3,) + shape, dtype=loc.dtype, device=loc.device)
            z = (math.pi * u1).cos()
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            accepted = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
            x, done = torch.where(accepted, (u3 - 0.5).sign() * f.acos(), x), done | accepted
        return ((x + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc)


class ContinuousBernoulli(Trials, ExponentialFamily):
    """A continuous Bernoulli distribution on [0, 1]: density proportional to probs ** x * (1 - probs) ** (1 -
    x) (Loaiza-Ganem and Cunningham 2019). Taylor series are used for `probs` within `lims`."""
    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support, has_rsample, _mean_carrier_measure = constraints.unit_interval, True, 0
    probs = lazy_property(lambda self: clamp_probs(logits_to_probs(self.logits, True)))
    _far = property(lambda self: (self.probs <= self._lims[0]) | (self.probs > self._lims[1]))
    _cut = property(lambda self: self.probs.masked_fill(~self._far, self._lims[0]))
    _natural_params = property(lambda self: (self.logits,))

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        self._lims, given = lims, self._choose(probs, logits)
        if probs is not None:
            probs, = broadcast_all(probs)
            if validate_args is not None and not constraints.unit_interval.check(probs).all():
                raise ValueError("The parameter probs has invalid values")
            given["probs"] = clamp_probs(probs)
        self._begin(validate_args, **given)

    def _cont_bern_log_norm(self):
        p, x = self._cut, (self.probs - 0.5) ** 2
        odds = ((-p).log1p() - p.log()).abs().log()
        norm = odds - torch.where(p <= 0.5, -2 * p.clamp(max=0.5), 2 * p.clamp(min=0.5) - 2).log1p()
        return torch.where(self._far, norm, math.log(2) + (4 / 3 + 104 / 45 * x) * x)

    def _log_normalizer(self, x):
        far = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = x.masked_fill(~far, self._lims[0] - 0.5)
        return torch.where(far, cut.expm1().abs().log() - cut.abs().log(), x / 2 + x ** 2 / 24 - x ** 4 / 2880)

    @property
    def mean(self):
        p, x = self._cut, self.probs - 0.5
        mean = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        return torch.where(self._far, mean, 0.5 + (1 / 3 + 16 / 45 * x ** 2) * x)

    @property
    def variance(self):
        p, x = self._cut, (self.probs - 0.5) ** 2
        wide = p * (p - 1) / (1 - 2 * p) ** 2 + ((-p).log1p() - p.log()) ** -2
        return torch.where(self._far, wide, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def _rsample(self, shape):
        return self.icdf(torch.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def _log_prob(self, value):
        logits, value = torch.broadcast_tensors(self.logits, value)
        return self._cont_bern_log_norm() - binary_cross_entropy_with_logits(logits, value, reduction="none")

    def _cdf(self, value):
        p = self._cut
        share = (p ** value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        return torch.where(self._far & (value > 0) & (value < 1), share, value.clamp(0, 1))

    def icdf(self, value):
        p = self._cut
        quantile = ((value * (2 * p - 1) - p).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return torch.where(self._far, quantile, value)

    def entropy(self):
        none = (-self.probs).log1p()
        return self.mean * (none - self.probs.log()) - self._cont_bern_log_norm() - none
