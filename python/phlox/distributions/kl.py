# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.kl: divergences of distributions from each other, by their types."""
from phlox import digamma, lgamma
from phlox.nn.functional import softplus

from ._continuous import Beta, Dirichlet, Exponential, Gamma, Laplace, Normal
from ._discrete import Bernoulli, Categorical, OneHotCategorical, Poisson
from .distribution import Distribution
from .independent import Independent

_rules = {}


def register_kl(type_p, type_q):
    """A decorator: the function gives the divergence of a `type_p` from a `type_q`."""
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def keep(function):
        _rules[type_p, type_q] = function
        return function

    return keep


def kl_divergence(p, q):
    """The Kullback-Leibler divergence of q from p, by the rule of the nearest types.

    NotImplementedError where there is none.
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _rules:
                return _rules[a, b](p, q)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q "
                              f"type {type(q).__name__}")


@register_kl(Bernoulli, Bernoulli)
def _(p, q):
    return (p.probs * (softplus(-q.logits) - softplus(-p.logits))
            + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits)))


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


@register_kl(Laplace, Laplace)
def _(p, q):
    ratio, far = p.scale / q.scale, (p.loc - q.loc).abs()
    return far / q.scale + ratio * (-far / p.scale).exp() - ratio.log() - 1


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


register_kl(Beta, Beta)(lambda p, q: kl_divergence(p._shares, q._shares))
register_kl(OneHotCategorical, OneHotCategorical)(
    lambda p, q: kl_divergence(p._categorical, q._categorical))


@register_kl(Independent, Independent)
def _(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return p._sum(kl_divergence(p.base_dist, q.base_dist))
