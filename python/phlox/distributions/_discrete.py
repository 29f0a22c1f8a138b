# SPDX-License-Identifier: Apache-2.0
"""Discrete distributions."""
import phlox as torch
from phlox.nn.functional import binary_cross_entropy_with_logits, logsigmoid, one_hot

from . import constraints
from ._continuous import Gamma
from .distribution import Distribution, ExponentialFamily, Family, Trials

_BERNOULLI = {"probs": constraints.unit_interval, "logits": constraints.real}
_CATEGORICAL = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Bernoulli(Trials, ExponentialFamily):
    """A Bernoulli distribution: 1 with probability `probs`, else 0. `logits` are log-odds."""
    arg_constraints, support, has_enumerate_support = _BERNOULLI, constraints.boolean, True
    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._begin(validate_args, **self._choose(probs, logits))

    @property
    def mode(self):
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, torch.nan)

    _sample = lambda self, shape: torch.bernoulli(self.probs.expand(shape))

    def _log_prob(self, value):
        logits, value = torch.broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    entropy = lambda self: binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    enumerate_support = lambda self, expand=True: self._enumerate(2, self._param.dtype, expand)


class Categorical(Trials):
    """A categorical distribution over the indices of the last dimension of `probs` or `logits`, which
    are normalized."""
    arg_constraints, has_enumerate_support, _binary = _CATEGORICAL, True, False
    mean = variance = property(lambda self: self._param.new_full(self._batch_shape, torch.nan))
    mode = property(lambda self: self.probs.argmax(-1))

    def __init__(self, probs=None, logits=None, validate_args=None):
        (name, value), = self._choose(probs, logits).items()
        if value.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        setattr(self, name, value - value.logsumexp(-1, keepdim=True) if probs is None else
                value / value.sum(-1, keepdim=True))
        self._num_events = value.size(-1)
        Distribution.__init__(self, value.size()[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    def _sample(self, shape):
        rows = self.probs.reshape(-1, self._num_events)
        count = shape[:len(shape) - len(self._batch_shape)].numel()
        return torch.multinomial(rows, count, True).T.reshape(shape)

    def _log_prob(self, value):
        index, logits = torch.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self):
        return -(self.logits.clamp(min=torch.finfo(self.logits.dtype).min) * self.probs).sum(-1)

    enumerate_support = lambda self, expand=True: self._enumerate(self._num_events, torch.int64, expand)


class OneHotCategorical(Trials):
    """A one-hot categorical distribution."""
    arg_constraints, support, has_enumerate_support = _CATEGORICAL, constraints.one_hot, True
    probs = mean = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits, doc="The log-probabilities.")
    _param = property(lambda self: self._categorical._param)
    mode = property(lambda self: self._one_hot(self._categorical.mode))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        size = self._param.size()
        Distribution.__init__(self, size[:-1], size[-1:], validate_args=validate_args)

    _one_hot = lambda self, index: one_hot(index, self._categorical._num_events).to(self._param)

    _sample = lambda self, shape: self._one_hot(self._categorical._sample(shape[:-1]))
    _log_prob = lambda self, value: self._categorical._log_prob(value.argmax(-1))
    entropy = lambda self: self._categorical.entropy()

    def enumerate_support(self, expand=True):
        values = self._one_hot(self._categorical.enumerate_support(False))
        return values.expand(values.size()[:1] + self._batch_shape + self._event_shape
                             if expand else values.size())


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A OneHotCategorical with reparameterized samples by the straight-through estimator."""
    has_rsample = True
    _rsample = lambda self, shape: self._sample(shape) + (self.probs - self.probs.detach())


class Poisson(Family, ExponentialFamily):
    """A Poisson distribution with the given rate."""
    arg_constraints, support = {"rate": constraints.nonnegative}, constraints.nonnegative_integer
    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def __init__(self, rate, validate_args=None):
        self._begin(validate_args, rate=rate)

    _sample = lambda self, shape: torch.poisson(self.rate.expand(shape))

    _log_prob = lambda self, value: torch.xlogy(value, self.rate) - self.rate - torch.lgamma(value + 1)


class Geometric(Trials):
    """A geometric distribution: the number of failures before the first success."""
    arg_constraints, support = _BERNOULLI, constraints.nonnegative_integer
    mean = property(lambda self: 1 / self.probs - 1)
    mode = property(lambda self: torch.zeros_like(self.probs))
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._begin(validate_args, **self._choose(probs, logits))
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError("Expected parameter probs (Tensor of shape "
                             f"{tuple(self.probs.shape)}) of distribution {self!r} to be positive but "
                             f"found invalid values:\n{self.probs[self.probs <= 0]}")

    def _sample(self, shape):
        u = self.probs.new_empty(shape).uniform_(torch.finfo(self.probs.dtype).tiny, 1)
        return (u.log() / (-self.probs).log1p()).floor()

    def _log_prob(self, value):
        value, probs = torch.broadcast_tensors(value, self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(Trials):
    """A binomial distribution: the number of successes in `total_count` trials."""
    arg_constraints = {"total_count": constraints.nonnegative_integer, **_BERNOULLI}
    has_enumerate_support = True
    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.mean * (1 - self.probs))

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        given = self._choose(probs, logits)
        parameter, = given.values()
        self._begin(validate_args, **given, total_count=torch.as_tensor(total_count).to(parameter)
                    if isinstance(parameter, torch.Tensor) else total_count)

    @constraints.dependent_property(is_discrete=True)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    def _sample(self, shape):
        return torch.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def _log_prob(self, value):
        n, logits = self.total_count, self.logits
        ways = torch.lgamma(n + 1) - torch.lgamma(value + 1) - torch.lgamma(n - value + 1)
        return ways + value * logits - n * (logits.clamp(min=0) + (-logits.abs()).exp().log1p())

    def _values(self, expand):
        count = int(self.total_count.max())
        if (self.total_count != count).any():
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return self._enumerate(count + 1, self._param.dtype, expand)

    enumerate_support = lambda self, expand=True: self._values(expand)

    def entropy(self):
        values = self._values(False)
        return -(self._log_prob(values).exp() * self._log_prob(values)).sum(0)


class NegativeBinomial(Trials):
    """A negative binomial distribution: the number of successes before `total_count` failures."""
    arg_constraints = {"total_count": constraints.greater_than_eq(0),
                       "probs": constraints.half_open_interval(0., 1.), "logits": constraints.real}
    support = constraints.nonnegative_integer
    mean = property(lambda self: self.total_count * self.logits.exp())
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        given = self._choose(probs, logits)
        parameter, = given.values()
        self._begin(validate_args, **given, total_count=torch.as_tensor(total_count).to(parameter)
                    if isinstance(parameter, torch.Tensor) else total_count)

    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0))

    def _sample(self, shape):
        gamma = Gamma(self.total_count, (-self.logits).exp(), validate_args=False)
        return torch.poisson(gamma._rsample(shape))

    def _log_prob(self, value):
        n = self.total_count
        ways = torch.lgamma(n + value) - torch.lgamma(1 + value) - torch.lgamma(n)
        ways = ways.masked_fill(n + value == 0, 0)
        return n * logsigmoid(-self.logits) + value * logsigmoid(self.logits) + ways
