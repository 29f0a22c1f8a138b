# SPDX-License-Identifier: Apache-2.0
"""torch.distributions: distributions with parameters, their draws, densities and divergences.

It is Python, since programs derive from it and patch it: a distribution is its parameters and a
few expressions over the library's ops."""
from phlox import _C

from . import constraints as constraints
from ._continuous import (Beta as Beta, Dirichlet as Dirichlet, Exponential as Exponential, Gamma
    as Gamma, Laplace as Laplace, Normal as Normal, Uniform as Uniform)
from ._discrete import (Bernoulli as Bernoulli, Categorical as Categorical, OneHotCategorical as
    OneHotCategorical, OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
    Poisson as Poisson)
from .constraint_registry import (biject_to as biject_to, transform_to as transform_to)
from .distribution import Distribution as Distribution
from .independent import Independent as Independent
from .kl import (kl_divergence as kl_divergence, register_kl as register_kl)
from .transformed_distribution import TransformedDistribution as TransformedDistribution
from .transforms import *  # noqa: F403

_C._name_missing(__name__)
