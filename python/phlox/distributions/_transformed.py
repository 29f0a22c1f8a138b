# SPDX-License-Identifier: Apache-2.0
"""Families defined as transformed distributions."""
import math

import phlox as torch

from . import constraints
from ._continuous import Cauchy, Exponential, Gamma, Normal, Uniform
from ._discrete import Categorical
from .distribution import Distribution, Trials
from .transformed_distribution import TransformedDistribution
from .transforms import (AbsTransform, AffineTransform, ExpTransform, PowerTransform,
    SigmoidTransform, StickBreakingTransform)
from .utils import broadcast_all, clamp_probs, euler_constant


class LogNormal(TransformedDistribution):
    """A log-normal distribution: the exponential of a normal variable with mean `loc` and deviation `scale`."""
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support, has_rsample = constraints.positive, True
    loc = property(lambda self: self.base_dist.loc, doc="The mean of the logarithm.")
    scale = property(lambda self: self.base_dist.scale, doc="The standard deviation of the logarithm.")
    mean = property(lambda self: (self.loc + self.scale ** 2 / 2).exp())
    mode = property(lambda self: (self.loc - self.scale ** 2).exp())
    variance = property(lambda self: (self.scale ** 2).expm1() * (2 * self.loc + self.scale ** 2).exp())

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(Normal(loc, scale), ExpTransform(), validate_args=validate_args)

    entropy = lambda self: self.base_dist.entropy() + self.loc


class _Half(TransformedDistribution):
    """The absolute value of a distribution symmetric around 0."""
    arg_constraints, support, has_rsample = {"scale": constraints.positive}, constraints.nonnegative, True
    scale = property(lambda self: self.base_dist.scale, doc="The scale of the base distribution.")
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
    """A half-normal distribution: the absolute value of a normal variable."""
    _base = Normal
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale ** 2 * (1 - 2 / math.pi))


class HalfCauchy(_Half):
    """A half-Cauchy distribution: the absolute value of a Cauchy variable."""
    _base = Cauchy
    mean = property(lambda self: torch.full_like(self.scale, math.inf))
    variance = property(lambda self: self.base_dist.variance)


class Gumbel(TransformedDistribution):
    """A Gumbel distribution, the limit of the maximum of many variables."""
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


class InverseGamma(TransformedDistribution):
    """An inverse gamma distribution: the reciprocal of a gamma variable."""
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support, has_rsample = constraints.positive, True
    concentration = property(lambda self: self.base_dist.concentration, doc="The base's concentration.")
    rate = property(lambda self: self.base_dist.rate, doc="The base's rate.")
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


class Kumaraswamy(TransformedDistribution):
    """A Kumaraswamy distribution on [0, 1]: similar to Beta, with a closed-form cdf."""
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


class Pareto(TransformedDistribution):
    """A Pareto distribution of values >= `scale`, with shape `alpha`."""
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


class Weibull(TransformedDistribution):
    """A Weibull distribution with the given scale and shape `concentration`."""
    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    concentration_reciprocal = property(lambda self: 1 / self.concentration, doc="1 / concentration.")
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


class LogisticNormal(TransformedDistribution):
    """A logistic-normal distribution over the simplex: stick breaking applied to normal variables."""
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support, has_rsample = constraints.simplex, True
    loc = property(lambda self: self.base_dist.base_dist.loc, doc="The mean of the normal variables.")
    scale = property(lambda self: self.base_dist.base_dist.scale, doc="The deviation of the normal variables.")

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base if base.batch_shape else base.expand([1]), StickBreakingTransform(),
                         validate_args=validate_args)


# ---- relaxed discrete distributions

class LogitRelaxedBernoulli(Trials):
    """The logits of a RelaxedBernoulli."""
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
    """The logarithm of a RelaxedOneHotCategorical."""
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


class RelaxedBernoulli(TransformedDistribution):
    """A relaxed Bernoulli distribution: reparameterizable samples in (0, 1). A lower temperature moves
    them closer to 0 and 1 (Maddison et al. 2017, Jang et al. 2017)."""
    arg_constraints, support = LogitRelaxedBernoulli.arg_constraints, constraints.unit_interval
    has_rsample, _base, _last = True, LogitRelaxedBernoulli, SigmoidTransform
    temperature = property(lambda self: self.base_dist.temperature, doc="The relaxation temperature.")
    logits = property(lambda self: self.base_dist.logits, doc="The logits of the base distribution.")
    probs = property(lambda self: self.base_dist.probs, doc="The probabilities of the base distribution.")

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(self._base(temperature, probs, logits), self._last(), validate_args=validate_args)


class RelaxedOneHotCategorical(RelaxedBernoulli):
    """A relaxed one-hot categorical distribution: reparameterizable samples on the simplex. A lower
    temperature moves them closer to one-hot vectors (Maddison et al. 2017, Jang et al. 2017)."""
    arg_constraints, support = ExpRelaxedCategorical.arg_constraints, constraints.simplex
    _base, _last = ExpRelaxedCategorical, ExpTransform
