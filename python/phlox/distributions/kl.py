# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.kl: Kullback-Leibler divergences, dispatched on the types of both distributions."""
import math
import warnings

import phlox as torch
from phlox import digamma, lgamma
from phlox.nn.functional import softplus

from . import _continuous, _transformed
from ._continuous import (Beta, Cauchy, ContinuousBernoulli, Dirichlet, Exponential, Gamma, Laplace,
    Normal, Uniform)
from ._discrete import (Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson)
from ._transformed import Gumbel, HalfNormal, Pareto
from ._vectors import LowRankMultivariateNormal, MultivariateNormal
from .distribution import Distribution, ExponentialFamily
from .independent import Independent
from .transformed_distribution import TransformedDistribution
from .utils import euler_constant

_rules = {}


def register_kl(type_p, type_q):
    """A decorator that registers a function for KL(p || q) of a `type_p` and a `type_q`."""
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def keep(function):
        _rules[type_p, type_q] = function
        return function

    return keep


def kl_divergence(p, q):
    """Computes the Kullback-Leibler divergence KL(p || q), by the rule of the closest types.

    Raises NotImplementedError if there is no rule.
    """
    ps, qs = type(p).__mro__, type(q).__mro__
    left = next(((a, b) for a in ps for b in qs if (a, b) in _rules), None)
    right = next(((a, b) for b in qs for a in ps if (a, b) in _rules), None)
    names = type(p).__name__, type(q).__name__
    if left is None:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {names[0]} and q type {names[1]}")
    if _rules[left] is not _rules[right]:
        warnings.warn(f"Ambiguous kl_divergence({', '.join(names)}). Please register_kl("
                      f"{left[0].__name__}, {right[1].__name__})", RuntimeWarning, stacklevel=2)
    return _rules[left](p, q)


# ---- rules for pairs of families: KL = -entropy(p) - E_p[log q], with an expression for the second term

def _x_log_x(x):
    return torch.xlogy(x, x)


def _mean_log(p, flip=False):
    """Returns E[log x], or E[log(1 - x)] with `flip`."""
    if isinstance(p, Uniform):
        low, high = (1 - p.high, 1 - p.low) if flip else (p.low, p.high)
        return (_x_log_x(high) - _x_log_x(low)) / (high - low) - 1
    if isinstance(p, Beta):
        return digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0)
    if isinstance(p, Pareto):
        return p.scale.log() + 1 / p.alpha
    return (digamma(p.concentration) if isinstance(p, Gamma) else -euler_constant) - p.rate.log()


def _mean_exp(p, loc, scale):
    """Returns E[exp((loc - x) / scale)]."""
    if isinstance(p, Uniform):
        return scale / (p.high - p.low) * (((loc - p.low) / scale).exp() - ((loc - p.high) / scale).exp())
    if isinstance(p, Gumbel):
        return ((loc - p.loc) / scale + lgamma(1 + p.scale / scale)).exp()
    if isinstance(p, Normal):
        return ((loc - p.loc) / scale + (p.scale / scale) ** 2 / 2).exp()
    power = p.concentration if isinstance(p, Gamma) else 1
    return (loc / scale).exp() * (1 + 1 / (p.rate * scale)) ** -power


def _mean_distance(p, loc):
    """Returns E[|x - loc|]."""
    far = p.loc - loc
    if isinstance(p, Laplace):
        return far.abs() + p.scale * (-far.abs() / p.scale).exp()
    return (math.sqrt(2 / math.pi) * p.scale * (-(far / p.scale) ** 2 / 2).exp()
            + far * (math.sqrt(0.5) * far / p.scale).erf())


# q's family: (families of p with a closed form, E_p[log q])
_CROSS_ENTROPIES = {
    Beta: ("Uniform", lambda p, q: (q.concentration1 - 1) * _mean_log(p) + (q.concentration0 - 1)
           * _mean_log(p, True) + lgamma(q.concentration1 + q.concentration0) - lgamma(q.concentration1)
           - lgamma(q.concentration0)),
    ContinuousBernoulli: ("Beta ContinuousBernoulli Uniform", lambda p, q: p.mean * q.logits
                          + (-q.probs).log1p() + q._cont_bern_log_norm()),
    Exponential: ("Beta ContinuousBernoulli Gamma Pareto Uniform", lambda p, q: q.rate.log() - q.rate * p.mean),
    Gamma: ("Beta Exponential Pareto Uniform", lambda p, q: q.concentration * q.rate.log()
            - lgamma(q.concentration) + (q.concentration - 1) * _mean_log(p) - q.rate * p.mean),
    Gumbel: ("Exponential Gamma Gumbel Normal Uniform", lambda p, q: (q.loc - p.mean) / q.scale
             - q.scale.log() - _mean_exp(p, q.loc, q.scale)),
    Laplace: ("Laplace Normal", lambda p, q: -(2 * q.scale).log() - _mean_distance(p, q.loc) / q.scale),
    Normal: ("Beta ContinuousBernoulli Exponential Gamma Gumbel Laplace Pareto Uniform", lambda p, q:
             -q.scale.log() - math.log(2 * math.pi) / 2
             - (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale ** 2)),
    Pareto: ("Pareto Uniform", lambda p, q: q.alpha.log() + q.alpha * q.scale.log()
             - (q.alpha + 1) * _mean_log(p)),
    Uniform: ("Beta ContinuousBernoulli Uniform", lambda p, q: -(q.high - q.low).log()),
}
# q's family: families of p whose support always exceeds q's
_INFINITE = {
    Beta: "Exponential Gamma Gumbel Laplace Normal Pareto",
    ContinuousBernoulli: "Exponential Gamma Gumbel Laplace Normal Pareto",
    Exponential: "Gumbel Laplace Normal", Gamma: "Gumbel Laplace Normal",
    Pareto: "Beta ContinuousBernoulli Exponential Gamma Gumbel Laplace Normal",
    Uniform: "Exponential Gamma Gumbel Laplace Normal Pareto",
}


def _bounds(d):
    """Returns the bounds of a distribution's support."""
    support = d.support
    return getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)


def _cross_rule(mean):
    def rule(p, q):
        (low, high), (q_low, q_high) = _bounds(p), _bounds(q)
        result = -p.entropy() - mean(p, q)
        outside = torch.as_tensor(low < q_low) | torch.as_tensor(high > q_high)
        return result.masked_fill(outside.to(result.device), math.inf)

    return rule


def _infinite(p, q):
    return torch.full_like(p.mean, math.inf)


for _table in _CROSS_ENTROPIES, _INFINITE:
    for _q, _row in _table.items():
        _names, _rule = (_row, _infinite) if _table is _INFINITE else (_row[0], _cross_rule(_row[1]))
        for _name in _names.split():
            register_kl(getattr(_continuous, _name, None) or getattr(_transformed, _name), _q)(_rule)
for _q in Bernoulli, Binomial:
    register_kl(Poisson, _q)(_infinite)
register_kl(Bernoulli, Poisson)(lambda p, q: q.rate - p.probs * q.rate.log() - p.entropy())


# ---- rules for pairs of the same family

@register_kl(Bernoulli, Bernoulli)
def _(p, q):
    yes = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    no = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return (yes.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0)
            + no.masked_fill(q.probs == 1, math.inf).masked_fill(p.probs == 1, 0))


@register_kl(Binomial, Binomial)
def _(p, q):
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count * each).masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Geometric, Geometric)
def _(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Cauchy, Cauchy)
def _(p, q):
    return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()


@register_kl(Categorical, Categorical)
def _(p, q):
    terms = p.probs * (p.logits - q.logits)
    impossible = (q.probs == 0).expand_as(terms)
    return terms.masked_fill(impossible, float("inf")).masked_fill(p.probs == 0, 0).sum(-1)


@register_kl(Normal, Normal)
def _(p, q):
    ratio = (p.scale / q.scale) ** 2
    return (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log()) / 2


@register_kl(Poisson, Poisson)
def _(p, q):
    return p.rate * (p.rate / q.rate).log() - (p.rate - q.rate)


@register_kl(Exponential, Exponential)
def _(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _(p, q):
    a, b = p.concentration, q.concentration
    return (b * (p.rate / q.rate).log() + lgamma(b) - lgamma(a) + (a - b) * digamma(a)
            + (q.rate - p.rate) * (a / p.rate))


@register_kl(Dirichlet, Dirichlet)
def _(p, q):
    a, b, total = p.concentration, q.concentration, p.concentration.sum(-1)
    return (lgamma(total) - lgamma(b.sum(-1)) + (lgamma(b) - lgamma(a)).sum(-1)
            + ((a - b) * (digamma(a) - digamma(total).unsqueeze(-1))).sum(-1))


register_kl(Beta, Beta)(lambda p, q: kl_divergence(p._dirichlet, q._dirichlet))
register_kl(OneHotCategorical, OneHotCategorical)(
    lambda p, q: kl_divergence(p._categorical, q._categorical))


@register_kl(Independent, Independent)
def _(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return p._sum(kl_divergence(p.base_dist, q.base_dist))


register_kl(HalfNormal, HalfNormal)(lambda p, q: kl_divergence(p.base_dist, q.base_dist))


@register_kl(TransformedDistribution, TransformedDistribution)
def _(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(ExponentialFamily, ExponentialFamily)
def _(p, q):
    if type(p) is not type(q):
        raise NotImplementedError("The cross KL-divergence between different exponential families cannot"
                                  + " " * 29 + "be computed using Bregman divergences")
    parts, normalizer, means = p._normalized()
    result = q._log_normalizer(*q._natural_params) - normalizer
    for mine, other, mean in zip(parts, q._natural_params, means):
        result = result - ((other - mine) * mean).reshape(result.shape + (-1,)).sum(-1)
    return result


def _normal_vectors(p, q):
    if p.event_shape != q.event_shape:
        low = [isinstance(d, LowRankMultivariateNormal) for d in (p, q)]
        kinds = "Low Rank " if all(low) else "(Low Rank) " if any(low) else ""
        raise ValueError(f"KL-divergence between two {kinds}Multivariate Normals with" + " " * 26
                         + "different event shapes cannot be computed")
    batch = torch.broadcast_shapes(p.batch_shape, q.batch_shape)
    columns = p._root.expand(batch + p._root.shape[-2:]).movedim(-1, 0)
    trace = q._distance(columns).sum(0)
    return (q._log_det - p._log_det + trace + q._distance(q.loc - p.loc) - p.event_shape[0]) / 2


for _p in MultivariateNormal, LowRankMultivariateNormal:
    for _q in MultivariateNormal, LowRankMultivariateNormal:
        register_kl(_p, _q)(_normal_vectors)
