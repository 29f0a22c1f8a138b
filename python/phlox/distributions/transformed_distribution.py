# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.transformed_distribution: a base distribution followed by transforms."""
import phlox as torch

from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform
from .utils import sum_rightmost


class TransformedDistribution(Distribution):
    """The distribution of samples of a base distribution after a sequence of transforms.

    >>> base = torch.distributions.Normal(0.0, 1.0)
    >>> made = torch.distributions.TransformedDistribution(base, [torch.distributions.ExpTransform()])
    >>> made.log_prob(torch.tensor(1.0))
    tensor(-0.9189)
    """
    arg_constraints = {}
    has_rsample = property(lambda self: self.base_dist.has_rsample)

    def __init__(self, base_distribution, transforms, validate_args=None):
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not (isinstance(self.transforms, list) and all(isinstance(t, Transform) for t in self.transforms)):
            raise ValueError("transforms must be a Transform or list, but was " + str(transforms)
                             if not isinstance(transforms, list) else
                             "transforms must be a Transform or a list of Transforms")
        base, whole = base_distribution, ComposeTransform(self.transforms)
        shape = base.batch_shape + base.event_shape
        takes, gives = whole.domain.event_dim, whole.codomain.event_dim
        if len(shape) < takes:
            raise ValueError(f"base_distribution needs to have shape with size at least {takes}, "
                             f"but got {shape}.")
        result = torch.Size(whole.forward_shape(shape))
        wanted = torch.Size(whole.inverse_shape(result))
        if wanted != shape:
            base = base.expand(wanted[:len(wanted) - len(base.event_shape)])
        more = takes - len(base.event_shape)
        self.base_dist = Independent(base, more) if more > 0 else base
        cut = len(result) - max(gives, len(self.base_dist.event_shape) + gives - takes)
        super().__init__(result[:cut], result[cut:], validate_args=validate_args)

    @constraints.dependent_property
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        last = self.transforms[-1].codomain
        more = len(self.event_shape) - last.event_dim
        return constraints.independent(last, more) if more > 0 else last

    def expand(self, batch_shape, _instance=None):
        new, batch_shape = self._copy(_instance), torch.Size(batch_shape)
        shape = ComposeTransform(self.transforms).inverse_shape(batch_shape + self.event_shape)
        base = self.base_dist.expand(shape[:len(shape) - len(self.base_dist.event_shape)])
        vars(new).update(self._expanded(batch_shape, base_dist=base))
        return new

    def _forward(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value

    def _orient(self, share):
        """Reverses probabilities (p -> 1 - p) if the transforms are decreasing."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return share if isinstance(sign, int) and sign == 1 else sign * (share - 0.5) + 0.5

    def sample(self, sample_shape=torch.Size()):
        with torch.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    rsample = lambda self, sample_shape=torch.Size(): self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        self._validate_sample(value)
        total, event = 0.0, len(self.event_shape)
        for transform in reversed(self.transforms):
            x = transform.inv(value)
            event += transform.domain.event_dim - transform.codomain.event_dim
            total = total - sum_rightmost(transform.log_abs_det_jacobian(x, value),
                                          event - transform.domain.event_dim)
            value = x
        return total + sum_rightmost(self.base_dist.log_prob(value), event - len(self.base_dist.event_shape))

    def cdf(self, value):
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._orient(self.base_dist.cdf(value))

    icdf = lambda self, value: self._forward(self.base_dist.icdf(self._orient(value)))
