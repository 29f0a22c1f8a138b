# SPDX-License-Identifier: Apache-2.0
"""torch.distributions: distributions with parameters, their draws, densities and divergences.

It is Python, since programs derive from it and patch it: a distribution is its parameters and a
few expressions over the library's ops."""
from phlox import _C

from . import constraints as constraints
from ._continuous import Beta as Beta
from ._continuous import Dirichlet as Dirichlet
from ._continuous import Exponential as Exponential
from ._continuous import Gamma as Gamma
from ._continuous import Laplace as Laplace
from ._continuous import Normal as Normal
from ._continuous import Uniform as Uniform
from ._discrete import Bernoulli as Bernoulli
from ._discrete import Categorical as Categorical
from ._discrete import OneHotCategorical as OneHotCategorical
from ._discrete import OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough
from ._discrete import Poisson as Poisson
from .distribution import Distribution as Distribution
from .independent import Independent as Independent
from .kl import kl_divergence as kl_divergence
from .kl import register_kl as register_kl

_C._name_missing(__name__)
