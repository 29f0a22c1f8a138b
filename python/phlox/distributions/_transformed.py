# SPDX-License-Identifier: Apache-2.0
"""Families of which a draw is another's, transformed."""
import math

import phlox as torch

from . import constraints
from ._continuous import Cauchy, Exponential, Gamma, Normal, Uniform
from ._discrete import Categorical
from .distribution import Distribution, Trials
from .transformed_distribution import TransformedDistribution as Made
from .transforms import (AbsTransform, AffineTransform, ExpTransform, PowerTransform,
    SigmoidTransform, StickBreakingTransform)
from .utils import broadcast_all, clamp_probs, euler_constant


class LogNormal(Made):
    """Of numbers whose logarithms are normal, with mean `loc` and standard deviation `scale`."""
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support, has_rsample = constraints.positive, True
    loc = property(lambda self: self.base_dist.loc, doc="The mean of the logarithms.")
    scale = property(lambda self: self.base_dist.scale, doc="Their deviation.")
    mean = property(lambda self: (self.loc + self.scale ** 2 / 2).exp())
    mode = property(lambda self: (self.loc - self.scale ** 2).exp())
    variance = property(lambda self: (self.scale ** 2).expm1() * (2 * self.loc + self.scale ** 2).exp())

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(Normal(loc, scale), ExpTransform(), validate_args=validate_args)

    entropy = lambda self: self.base_dist.entropy() + self.loc


class _Half(Made):
    """Of the size of numbers around 0."""
    arg_constraints, support, has_rsample = {"scale": constraints.positive}, constraints.nonnegative, True
    scale = property(lambda self: self.base_dist.scale, doc="That of the base.")
    mode = property(lambda self: torch.zeros_like(self.scale))

    def __init__(self, scale, validate_args=None):
        super().__init__(self._base(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    def log_prob(self, value):
        self._validate_sample(value)
        return torch.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value):
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    icdf = lambda self, value: self.base_dist.icdf((value + 1) / 2)
    entropy = lambda self: self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """Of the size of normal numbers around 0."""
    _base = Normal
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale ** 2 * (1 - 2 / math.pi))


class HalfCauchy(_Half):
    """Of the size of Cauchy's numbers around 0."""
    _base = Cauchy
    mean = property(lambda self: torch.full_like(self.scale, math.inf))
    variance = property(lambda self: self.base_dist.variance)


class Gumbel(Made):
    """Of the largest of many numbers (Gumbel's distribution)."""
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    mean = property(lambda self: self.loc + self.scale * euler_constant)
    mode = property(lambda self: self.loc)
    stddev = property(lambda self: math.pi / math.sqrt(6) * self.scale)
    variance = property(lambda self: self.stddev ** 2)

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        limits = torch.finfo(self.loc.dtype)
        ends = (torch.full_like(self.loc, limits.tiny), torch.full_like(self.loc, 1 - limits.eps))
        logs = ExpTransform().inv
        super().__init__(Uniform(*ends, validate_args=False),
                         [logs, AffineTransform(0, -torch.ones_like(self.scale)), logs,
                          AffineTransform(self.loc, -self.scale)], validate_args=validate_args)

    def log_prob(self, value):
        self._validate_sample(value)
        far = (self.loc - value) / self.scale
        return far - far.exp() - self.scale.log()

    entropy = lambda self: self.scale.log() + (1 + euler_constant)


class InverseGamma(Made):
    """Of the reciprocals of a Gamma's draws."""
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support, has_rsample = constraints.positive, True
    concentration = property(lambda self: self.base_dist.concentration, doc="That of the base.")
    rate = property(lambda self: self.base_dist.rate, doc="That of the base.")
    mode = property(lambda self: self.rate / (self.concentration + 1))

    def __init__(self, concentration, rate, validate_args=None):
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args=validate_args)

    @property
    def mean(self):
        a = self.concentration
        return torch.where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def variance(self):
        a = self.concentration
        return torch.where(a > 2, self.rate ** 2 / ((a - 1) ** 2 * (a - 2)), math.inf)

    def entropy(self):
        a = self.concentration
        return a + self.rate.log() + torch.lgamma(a) - (1 + a) * torch.digamma(a)


class Kumaraswamy(Made):
    """Of shares, much like Beta, with a distribution function that is an expression."""
    arg_constraints = {"concentration1": constraints.positive,
                       "concentration0": constraints.positive}
    support, has_rsample = constraints.unit_interval, True
    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self.mean ** 2)

    def __init__(self, concentration1, concentration0, validate_args=None):
        a, b = self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(torch.zeros_like(b), torch.ones_like(b), validate_args=validate_args)
        super().__init__(base, [PowerTransform(1 / b), AffineTransform(1.0, -1.0), PowerTransform(1 / a)],
                         validate_args=validate_args)

    def _moment(self, n):
        far, b = 1 + n / self.concentration1, self.concentration0
        return b * (torch.lgamma(far) + torch.lgamma(b) - torch.lgamma(far + b)).exp()

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        logs = (-b).log1p() / b - (-a * b).log1p()
        return logs.masked_fill((a < 1) | (b < 1), math.nan).exp()

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * (torch.digamma(b + 1) + euler_constant) - a.log() - b.log()


class Pareto(Made):
    """Of sizes of at least `scale`, of which the larger are rarer by the power `alpha`."""
    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}
    mode = property(lambda self: self.scale)

    def __init__(self, scale, alpha, validate_args=None):
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(Exponential(self.alpha, validate_args=validate_args),
                         [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    support = constraints.dependent_property(lambda self: constraints.greater_than_eq(self.scale))

    @property
    def mean(self):
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def variance(self):
        a = self.alpha.clamp(min=2)
        return self.scale ** 2 * a / ((a - 1) ** 2 * (a - 2))

    entropy = lambda self: (self.scale / self.alpha).log() + 1 + 1 / self.alpha


class Weibull(Made):
    """Of the time until something breaks: the later, the likelier, if `concentration` is above 1."""
    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    concentration_reciprocal = property(lambda self: 1 / self.concentration, doc="Its reciprocal.")
    mean = property(lambda self: self.scale * self._moment(1))
    mode = property(lambda self: self.scale * (1 - 1 / self.concentration) ** (1 / self.concentration))
    variance = property(lambda self: self.scale ** 2 * (self._moment(2) - self._moment(1) ** 2))

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        super().__init__(Exponential(torch.ones_like(self.scale), validate_args=validate_args),
                         [PowerTransform(1 / self.concentration), AffineTransform(0, self.scale)],
                         validate_args=validate_args)

    _moment = lambda self, n: torch.lgamma(1 + n / self.concentration).exp()

    def entropy(self):
        part = 1 / self.concentration
        return euler_constant * (1 - part) + (self.scale * part).log() + 1


class LogisticNormal(Made):
    """Of shares that a stick breaks into by normal numbers."""
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support, has_rsample = constraints.simplex, True
    loc = property(lambda self: self.base_dist.base_dist.loc, doc="That of the numbers.")
    scale = property(lambda self: self.base_dist.base_dist.scale, doc="That of the numbers.")

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base if base.batch_shape else base.expand([1]), StickBreakingTransform(),
                         validate_args=validate_args)


# ---- relaxed choices

class LogitRelaxedBernoulli(Trials):
    """The logarithms of the odds of a RelaxedBernoulli's draws."""
    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support, has_rsample = constraints.real, True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        self._begin(validate_args, **self._choose(probs, logits))

    def _rsample(self, shape):
        p = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(torch.rand(shape, dtype=p.dtype, device=p.device))
        return (u.log() - (-u).log1p() + p.log() - (-p).log1p()) / self.temperature

    def _log_prob(self, value):
        logits, value = broadcast_all(self.logits, value)
        far = logits - value * self.temperature
        return torch.as_tensor(self.temperature).log().to(far) + far - 2 * far.exp().log1p()


class ExpRelaxedCategorical(Trials):
    """The logarithms of a RelaxedOneHotCategorical's draws."""
    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support, has_rsample, _binary = constraints.real_vector, True, False
    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    _param = property(lambda self: self._categorical._param)

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self._categorical, self.temperature = Categorical(probs, logits), temperature
        size = self._param.size()
        Distribution.__init__(self, size[:-1], size[-1:], validate_args=validate_args)

    def _rsample(self, shape):
        u = clamp_probs(torch.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits.expand(shape) - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def _log_prob(self, value):
        k = self._categorical._num_events
        logits, value = broadcast_all(self.logits, value)
        scale = math.lgamma(k) + (k - 1) * torch.as_tensor(self.temperature).log().to(value)
        score = logits - value * self.temperature
        return (score - score.logsumexp(-1, keepdim=True)).sum(-1) + scale


class RelaxedBernoulli(Made):
    """A Bernoulli of which draws are between 0 and 1 and have gradients; the nearer to 0 and 1, the
    lower the temperature (Maddison et al. 2017, Jang et al. 2017)."""
    arg_constraints, support = LogitRelaxedBernoulli.arg_constraints, constraints.unit_interval
    has_rsample, _base, _last = True, LogitRelaxedBernoulli, SigmoidTransform
    temperature = property(lambda self: self.base_dist.temperature, doc="As given.")
    logits = property(lambda self: self.base_dist.logits, doc="Those of the base.")
    probs = property(lambda self: self.base_dist.probs, doc="Those of the base.")

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(self._base(temperature, probs, logits), self._last(), validate_args=validate_args)


class RelaxedOneHotCategorical(RelaxedBernoulli):
    """A OneHotCategorical of which draws are shares and have gradients; the nearer to one choice,
    the lower the temperature (Maddison et al. 2017, Jang et al. 2017)."""
    arg_constraints, support = ExpRelaxedCategorical.arg_constraints, constraints.simplex
    _base, _last = ExpRelaxedCategorical, ExpTransform
