# SPDX-License-Identifier: Apache-2.0
"""Distributions of counts and choices."""
import phlox as torch
from phlox.nn.functional import binary_cross_entropy_with_logits, one_hot

from . import constraints
from .distribution import Distribution, Family, Trials

_ODDS = {"probs": constraints.unit_interval, "logits": constraints.real}
_CHOICES = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Bernoulli(Trials):
    """1 with the probability `probs`, of which `logits` are the logarithms of the odds; else 0."""
    arg_constraints, support, has_enumerate_support = _ODDS, constraints.boolean, True
    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._begin(validate_args, **self._choose(probs, logits))

    @property
    def mode(self):
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, torch.nan)

    def _sample(self, shape):
        return torch.bernoulli(self.probs.expand(shape))

    def _log_prob(self, value):
        logits, value = torch.broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        return self._count_up(2, self._param.dtype, expand)


class Categorical(Trials):
    """One of the indices of the last dimension of `probs`, or of `logits`, which are made sum to
    one."""
    arg_constraints, has_enumerate_support, _binary = _CHOICES, True, False
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

    def enumerate_support(self, expand=True):
        return self._count_up(self._num_events, torch.int64, expand)


class OneHotCategorical(Trials):
    """The choice of a Categorical as a vector with a one at its index."""
    arg_constraints, support, has_enumerate_support = _CHOICES, constraints.one_hot, True
    probs = mean = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits, doc="The logarithms of probs.")
    _param = property(lambda self: self._categorical._param)
    mode = property(lambda self: self._marked(self._categorical.mode))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        size = self._param.size()
        Distribution.__init__(self, size[:-1], size[-1:], validate_args=validate_args)

    def _marked(self, index):
        return one_hot(index, self._categorical._num_events).to(self._param)

    _sample = lambda self, shape: self._marked(self._categorical._sample(shape[:-1]))
    _log_prob = lambda self, value: self._categorical._log_prob(value.argmax(-1))
    entropy = lambda self: self._categorical.entropy()

    def enumerate_support(self, expand=True):
        values = self._marked(self._categorical.enumerate_support(False))
        return values.expand(values.size()[:1] + self._batch_shape + self._event_shape
                             if expand else values.size())


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same, of which draws have the gradients of `probs`."""
    has_rsample = True
    _rsample = lambda self, shape: self._sample(shape) + (self.probs - self.probs.detach())


class Poisson(Family):
    """How many events there are where `rate` of them are expected."""
    arg_constraints, support = {"rate": constraints.nonnegative}, constraints.nonnegative_integer
    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def __init__(self, rate, validate_args=None):
        self._begin(validate_args, rate=rate)

    def _sample(self, shape):
        return torch.poisson(self.rate.expand(shape))

    def _log_prob(self, value):
        return torch.xlogy(value, self.rate) - self.rate - torch.lgamma(value + 1)
