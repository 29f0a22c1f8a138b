# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.distribution: base classes. A distribution of this package is its constrained
parameters and a few expressions; everything common is here."""
import warnings

import phlox as torch

from . import constraints
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


def _abstract(text):
    """Makes an abstract method: it raises NotImplementedError."""
    def method(self, *args, **kwargs):
        raise NotImplementedError

    method.__doc__ = text
    return method


class Distribution:
    """The abstract base class of distributions. Subclasses define `arg_constraints`, `support` and
    methods.

    batch_shape: the shape of independent distributions. event_shape: the shape of one sample.
    validate_args: True checks parameters and values; None: see set_default_validate_args.
    """
    has_rsample = has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints = property(_abstract("Returns a dict of the parameters' constraints."))
    support = property(_abstract("Returns the constraint of the distribution's values."))
    mean, variance = property(_abstract("Returns the mean.")), property(_abstract("Returns the variance."))
    expand = _abstract("Returns the distribution with batch dimensions expanded.")
    rsample = _abstract("Generates a reparameterized sample: gradients flow to the parameters.")
    log_prob = _abstract("Returns the log of the probability density or mass at `value`.")
    cdf = _abstract("Returns the cumulative distribution function at `value`.")
    icdf = _abstract("Returns the inverse cumulative distribution function at `value`.")
    enumerate_support = _abstract("Returns all values of a discrete distribution along dimension 0.")
    entropy = _abstract("Returns the entropy in nats.")
    batch_shape = property(lambda self: self._batch_shape, doc="The shape of the batch of distributions.")
    event_shape = property(lambda self: self._event_shape, doc="The shape of one sample.")
    stddev = property(lambda self: self.variance.sqrt(), doc="The standard deviation.")

    @staticmethod
    def set_default_validate_args(value):
        """Sets the default of validate_args."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape=torch.Size(), event_shape=torch.Size(), validate_args=None):
        self._batch_shape, self._event_shape = batch_shape, event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    def _validate_parameters(self):
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            wanted = {}
            warnings.warn(f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = "
                          "{}` or initialize the distribution with `validate_args=False` to turn off "
                          "validation.", stacklevel=3)
        for name, constraint in wanted.items():
            follows = isinstance(getattr(type(self), name, None), lazy_property)
            if not constraints.is_dependent(constraint) and (name in vars(self) or not follows):
                self._check(f"parameter {name}", getattr(self, name), "of",
                            "to satisfy the constraint", constraint)

    def _check(self, what, value, of, how, constraint):
        if constraint.check(value).all():
            return
        shape = f"({type(value).__name__} of shape {tuple(value.shape)})"
        bounds = (f"{of} distribution {self!r} {how} {constraint!r}" if of == "of" else
                  f"{how} ({constraint!r}) {of} distribution {self!r}")
        raise ValueError(f"Expected {what} {shape} {bounds}, but found invalid values:\n{value}")

    def _validate_sample(self, value):
        if not self._validate_args:
            return
        if not isinstance(value, torch.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, event = self._batch_shape + self._event_shape, self._event_shape
        if value.size()[value.dim() - len(event):] != event:
            raise ValueError("The right-most size of value must match event_shape: "
                             f"{value.size()} vs {event}.")
        if any(1 != a != b != 1 for a, b in zip(reversed(value.size()), reversed(shape))):
            raise ValueError("Value is not broadcastable with batch_shape+event_shape: "
                             f"{value.size()} vs {shape}.")
        try:
            support = self.support
        except NotImplementedError:
            return
        self._check("value argument", value, "of the", "to be within the support", support)

    @property
    def mode(self):
        """Returns the mode."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    def sample(self, sample_shape=torch.Size()):
        """Generates a sample of shape sample_shape + batch_shape + event_shape, without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n):
        """Deprecated: see sample()."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning,
                      stacklevel=2)
        return self.sample(torch.Size((n,)))

    def perplexity(self):
        """Returns the perplexity, exp(entropy)."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape=torch.Size()):
        return torch.Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method.")
        return type(self).__new__(type(self)) if _instance is None else _instance

    def _copy(self, _instance):
        """Returns a shallow copy, or copies the attributes to `_instance`."""
        ours = next(cls for cls in type(self).__mro__ if cls.__module__.startswith(__package__))
        new = self._get_checked_instance(ours, _instance)
        vars(new).update(vars(self))
        return new

    def _expanded(self, batch_shape, **parts):
        """Returns the attributes that change with a larger batch: expanded parameters and nested
        distributions, and `parts`, which override them."""
        changed = {"_batch_shape": batch_shape, **parts}
        for name, value in vars(self).items():
            if isinstance(value, Distribution) and name not in parts:
                changed[name] = value.expand(batch_shape)
            elif name in self.arg_constraints and isinstance(value, torch.Tensor):
                event = value.size()[value.dim() - self.arg_constraints[name].event_dim:]
                changed[name] = value.expand(batch_shape + event)
        return changed

    def __repr__(self):
        there = [(name, vars(self)[name]) for name in self.arg_constraints if name in vars(self)]
        shown = (f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in there)
        return f"{type(self).__name__}({', '.join(shown)})"


class ExponentialFamily(Distribution):
    """Distributions with density exp(parameters . statistics - normalizer) and a carrier measure.
    Entropy and divergences are derived from gradients of the normalizer."""
    _natural_params = property(_abstract("Returns the tuple of natural parameters."))
    _log_normalizer = _abstract("Returns the log normalizer for natural parameters.")
    _mean_carrier_measure = property(_abstract("Returns the mean of the log carrier measure."))

    def _normalized(self):
        """Returns (natural parameters, log normalizer, its gradients) on a graph separate from the
        parameters'."""
        parts = [part.detach().requires_grad_() for part in self._natural_params]
        normalizer = self._log_normalizer(*parts)
        return parts, normalizer, torch.autograd.grad(normalizer.sum(), parts, create_graph=True)

    def entropy(self):
        parts, result, means = self._normalized()
        for part, mean in zip(parts, means):
            result = result - (part * mean).reshape(self._batch_shape + (-1,)).sum(-1)
        return result - self._mean_carrier_measure


class Family(Distribution):
    """The base class of this package's distributions. Parameters are attributes named by
    `arg_constraints`. Subclass expressions get validated values and full sample shapes."""
    _rsample = _log_prob = _abstract("Implements the public method of this name.")
    _cdf = property(_abstract("Implements cdf. If missing, values are not validated."))

    def _begin(self, validate_args, **parameters):
        """Stores the parameters, broadcast to a common shape."""
        tensors = broadcast_all(*parameters.values())
        vars(self).update(zip(parameters, tensors))
        Distribution.__init__(self, tensors[0].size(), validate_args=validate_args)

    _sample = lambda self, shape: self._rsample(shape)

    rsample = lambda self, sample_shape=torch.Size(): self._rsample(self._extended_shape(sample_shape))

    def sample(self, sample_shape=torch.Size()):
        """Generates a sample of shape sample_shape + batch_shape + event_shape, without gradients."""
        with torch.no_grad():
            return self._sample(self._extended_shape(sample_shape))

    def log_prob(self, value):
        self._validate_sample(value)
        return self._log_prob(value)

    def cdf(self, value):
        share = self._cdf
        self._validate_sample(value)
        return share(value)

    def expand(self, batch_shape, _instance=None):
        new = self._copy(_instance)
        vars(new).update(self._expanded(torch.Size(batch_shape)))
        return new


class Trials(Family):
    """A family parameterized by either `probs` or `logits`; the other is derived."""
    _binary = True
    probs = lazy_property(lambda self: logits_to_probs(self.logits, self._binary))
    logits = lazy_property(lambda self: probs_to_logits(self.probs, self._binary))
    _param = property(lambda self: getattr(self, self._given))
    param_shape = property(lambda self: self._param.size(), doc="The shape of probs or logits.")

    def _choose(self, probs, logits):
        """Returns {name: value} of the given parameter. Raises unless exactly one is given."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._given = "logits" if probs is None else "probs"
        return {self._given: logits if probs is None else probs}

    def _enumerate(self, count, dtype, expand):
        values = torch.arange(count, dtype=dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values
