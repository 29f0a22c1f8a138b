# SPDX-License-Identifier: Apache-2.0
"""torch.distributions: parameterized probability distributions, with sampling, densities and
divergences.

Written in Python because programs subclass and patch it. A distribution is its parameters and a few
expressions of tensor ops."""
from phlox import _C

from . import constraints as constraints
from ._continuous import (Beta as Beta, Cauchy as Cauchy, Chi2 as Chi2,
    ContinuousBernoulli as ContinuousBernoulli, Dirichlet as Dirichlet, Exponential as Exponential,
    FisherSnedecor as FisherSnedecor, Gamma as Gamma, GeneralizedPareto as GeneralizedPareto,
    Laplace as Laplace, Normal as Normal, StudentT as StudentT, Uniform as Uniform,
    VonMises as VonMises)
from ._discrete import (Bernoulli as Bernoulli, Binomial as Binomial, Categorical as Categorical,
    Geometric as Geometric, NegativeBinomial as NegativeBinomial,
    OneHotCategorical as OneHotCategorical, OneHotCategoricalStraightThrough as
    OneHotCategoricalStraightThrough, Poisson as Poisson)
from ._transformed import (Gumbel as Gumbel, HalfCauchy as HalfCauchy, HalfNormal as HalfNormal,
    InverseGamma as InverseGamma, Kumaraswamy as Kumaraswamy, LogisticNormal as LogisticNormal,
    LogNormal as LogNormal, Pareto as Pareto, RelaxedBernoulli as RelaxedBernoulli,
    RelaxedOneHotCategorical as RelaxedOneHotCategorical, Weibull as Weibull)
from ._vectors import (LKJCholesky as LKJCholesky, LowRankMultivariateNormal as
    LowRankMultivariateNormal, Multinomial as Multinomial, MultivariateNormal as
    MultivariateNormal, Wishart as Wishart)
from .constraint_registry import (biject_to as biject_to, transform_to as transform_to)
from .distribution import (Distribution as Distribution, ExponentialFamily as ExponentialFamily)
from .independent import Independent as Independent
from .kl import (kl_divergence as kl_divergence, register_kl as register_kl)
from .mixture_same_family import MixtureSameFamily as MixtureSameFamily
from .transformed_distribution import TransformedDistribution as TransformedDistribution
from .transforms import *  # noqa: F403

__all__ = [name for name, value in list(globals().items())
           if name[0] != "_" and not isinstance(value, type(_C))]
_C._name_missing(__name__)
