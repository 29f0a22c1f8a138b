# SPDX-License-Identifier: Apache-2.0
"""Families of which a draw is another's, transformed."""
import math

import phlox as torch

from . import constraints
from ._continuous import Cauchy, Normal, Uniform
from ._discrete import Categorical
from .distribution import Distribution, Trials
from .transformed_distribution import TransformedDistribution as Made
from .transforms import AbsTransform, AffineTransform, ExpTransform, SigmoidTransform
from .utils import broadcast_all, clamp_probs

_EULER = 0.57721566490153286060


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


class HalfNormal(Made):
    """Of the size of normal numbers around 0."""
    arg_constraints, support, has_rsample = {"scale": constraints.positive}, constraints.nonnegative, True
    scale = property(lambda self: self.base_dist.scale, doc="That of the base.")
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    mode = property(lambda self: torch.zeros_like(self.scale))
    variance = property(lambda self: self.scale ** 2 * (1 - 2 / math.pi))

    def __init__(self, scale, validate_args=None):
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    def log_prob(self, value):
        self._validate_sample(value)
        return torch.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value):
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    icdf = lambda self, value: self.base_dist.icdf((value + 1) / 2)
    entropy = lambda self: self.base_dist.entropy() - math.log(2)


class HalfCauchy(HalfNormal):
    """Of the size of Cauchy's numbers around 0."""
    mean = property(lambda self: torch.full(self._extended_shape(), math.inf, dtype=self.scale.dtype,
                                            device=self.scale.device))
    variance = property(lambda self: self.base_dist.variance)

    def __init__(self, scale, validate_args=None):
        Made.__init__(self, Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)


class Gumbel(Made):
    """Of the largest of many numbers (Gumbel's distribution)."""
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    mean = property(lambda self: self.loc + self.scale * _EULER)
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

    entropy = lambda self: self.scale.log() + (1 + _EULER)


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
