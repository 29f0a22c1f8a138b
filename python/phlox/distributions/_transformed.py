# SPDX-License-Identifier: Apache-2.0
"""Families of which a draw is another's, transformed."""
import math

import phlox as torch

from . import constraints
from ._continuous import Normal, Uniform
from .transformed_distribution import TransformedDistribution as Made
from .transforms import AffineTransform, ExpTransform
from .utils import broadcast_all

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
