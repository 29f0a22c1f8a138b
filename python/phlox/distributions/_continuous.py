# SPDX-License-Identifier: Apache-2.0
"""Distributions of real numbers."""
import math

import phlox as torch

from . import constraints
from .distribution import Family


class Normal(Family):
    """Normal, with mean `loc` and standard deviation `scale`."""
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support, has_rsample = constraints.real, True
    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale ** 2)

    def __init__(self, loc, scale, validate_args=None):
        self._begin(validate_args, loc=loc, scale=scale)

    def _rsample(self, shape):
        return self.loc + self.scale * torch.empty(shape).to(self.loc).normal_()

    def _log_prob(self, value):
        return (-((value - self.loc) / self.scale) ** 2 / 2 - self.scale.log()
                - math.log(2 * math.pi) / 2)

    def _cdf(self, value):
        return (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf()) / 2

    def entropy(self):
        return math.log(2 * math.pi * math.e) / 2 + self.scale.log()
