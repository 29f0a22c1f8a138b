# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.independent: reinterprets batch dimensions as event dimensions."""
import phlox as torch

from . import constraints
from .distribution import Distribution


class Independent(Distribution):
    """Reinterprets the last `reinterpreted_batch_ndims` batch dimensions of a distribution as event
    dimensions."""
    arg_constraints = {}
    has_rsample = property(lambda self: self.base_dist.has_rsample)
    has_enumerate_support = property(
        lambda self: not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support)
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        count, batch = reinterpreted_batch_ndims, base_distribution.batch_shape
        if count > len(batch):
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape"
                             f"), actual {count} vs {len(batch)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, count
        kept = len(batch) - count
        super().__init__(batch[:kept], batch[kept:] + base_distribution.event_shape,
                         validate_args=validate_args)

    @constraints.dependent_property
    def support(self):
        inner = self.base_dist.support
        count = self.reinterpreted_batch_ndims
        return constraints.independent(inner, count) if count else inner

    def _sum(self, values):
        count = self.reinterpreted_batch_ndims
        return values.sum(tuple(range(-count, 0))) if count else values

    def expand(self, batch_shape, _instance=None):
        """Returns the distribution with batch dimensions expanded."""
        new = self._get_checked_instance(Independent, _instance)
        shape = torch.Size(batch_shape) + self.event_shape[:self.reinterpreted_batch_ndims]
        Independent.__init__(new, self.base_dist.expand(shape), self.reinterpreted_batch_ndims,
                             validate_args=self._validate_args)
        return new

    sample = lambda self, sample_shape=torch.Size(): self.base_dist.sample(sample_shape)

    rsample = lambda self, sample_shape=torch.Size(): self.base_dist.rsample(sample_shape)

    def enumerate_support(self, expand=True):
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    log_prob = lambda self, value: self._sum(self.base_dist.log_prob(value))
    entropy = lambda self: self._sum(self.base_dist.entropy())
    __repr__ = lambda self: f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
