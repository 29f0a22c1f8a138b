# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.mixture_same_family: mixtures of distributions of the same family."""
import phlox as torch

from . import constraints
from ._discrete import Categorical
from .distribution import Distribution


class MixtureSameFamily(Distribution):
    """A mixture: a Categorical selects a component. The components are the rightmost batch dimension
    of a distribution.

    >>> choice = torch.distributions.Categorical(torch.ones(2))
    >>> parts = torch.distributions.Normal(torch.tensor([-1.0, 1.0]), 0.5)
    >>> torch.distributions.MixtureSameFamily(choice, parts).mean
    tensor(0.)
    """
    arg_constraints, has_rsample = {}, False
    mixture_distribution = property(lambda self: self._mixture, doc="The Categorical over components.")
    component_distribution = property(lambda self: self._component, doc="The component distributions.")

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        mixture, component = mixture_distribution, component_distribution
        if not isinstance(mixture, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of "
                             "torch.distributions.Categorical")
        if not isinstance(component, Distribution):
            raise ValueError("The Component distribution needs to be an instance of "
                             "torch.distributions.Distribution")
        mixed, shape = mixture.batch_shape, component.batch_shape
        if any(1 != a != b != 1 for a, b in zip(reversed(mixed), reversed(shape[:-1]))):
            raise ValueError(f"`mixture_distribution.batch_shape` ({mixed}) is not compatible with "
                             f"`component_distribution.batch_shape`({shape[:-1]})")
        if mixture.logits.shape[-1] != shape[-1]:
            raise ValueError(f"`mixture_distribution component` ({mixture._num_events}) does not equal"
                             f" `component_distribution.batch_shape[-1]` ({shape[-1]})")
        self._mixture, self._component = mixture, component
        super().__init__(shape[:-1], component.event_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new, batch_shape = self._copy(_instance), torch.Size(batch_shape)
        vars(new).update(_batch_shape=batch_shape, _mixture=self._mixture.expand(batch_shape),
                         _component=self._component.expand(batch_shape + (self._mixture._num_events,)))
        return new

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self._component.support)

    def _average(self, values):
        """Averages per-component values, weighted by the mixture's probabilities."""
        shares = self._mixture.probs
        return (shares.reshape(shares.shape + (1,) * len(self.event_shape)) * values).sum(self._dim)

    _dim = property(lambda self: -1 - len(self.event_shape))
    mean = property(lambda self: self._average(self._component.mean))

    @property
    def variance(self):
        far = self._component.mean - self.mean.unsqueeze(self._dim)
        return self._average(self._component.variance) + self._average(far ** 2)

    def sample(self, sample_shape=torch.Size()):
        with torch.no_grad():
            chosen = self._mixture.expand(self._batch_shape).sample(sample_shape)
            dim = self._dim
            draws = self._component.sample(sample_shape)
            index = chosen.reshape(chosen.shape + (1,) * (1 + len(self.event_shape)))
            wide = list(draws.shape)
            wide[dim] = 1
            return draws.gather(dim, index.expand(wide)).squeeze(dim)

    def log_prob(self, value):
        self._validate_sample(value)
        each = self._component.log_prob(value.unsqueeze(self._dim))
        return (each + self._mixture.logits.log_softmax(-1)).logsumexp(-1)

    def cdf(self, value):
        self._validate_sample(value)
        return (self._component.cdf(value.unsqueeze(self._dim)) * self._mixture.probs).sum(-1)

    __repr__ = lambda self: f"MixtureSameFamily(\n  {self._mixture!r},\n  {self._component!r})"
