# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.kl: divergences of distributions from each other, by their types."""
from phlox.nn.functional import softplus

from ._continuous import Normal
from ._discrete import Bernoulli, Categorical, Poisson
from .distribution import Distribution

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
