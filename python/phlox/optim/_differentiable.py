# SPDX-License-Identifier: Apache-2.0
"""Steps with differentiable=True: the formulas of the kinds (_formulas.py, written by the generator
from optim/*.optim) as operations on tensors, which are recorded. They compute with numbers, too."""
from __future__ import annotations

import math
from importlib import import_module

import phlox as torch


def _of_both(name, plain):
    """A function of the formulas: torch's if an argument is a tensor, else that of numbers."""
    def call(*args):
        like = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if like is None:
            return plain(*args)
        return getattr(torch, name)(*(torch.as_tensor(a, dtype=like.dtype, device=like.device)
                                      for a in args))
    return call


abs, max, min = _of_both("abs", abs), _of_both("maximum", max), _of_both("minimum", min)
sign = _of_both("sign", lambda x: (x > 0) - (x < 0))
sqrt, exp, cos, log, floor = (_of_both(name, getattr(math, name))
                              for name in ("sqrt", "exp", "cos", "log", "floor"))


def choose(test, yes, no, like):
    """What yes() or no() gives; of a test of elements, each takes its own."""
    if not isinstance(test, torch.Tensor):
        return yes() if test else no()
    return torch.where(test, *(torch.as_tensor(part(), dtype=like.dtype, device=like.device)
                               for part in (yes, no)))


def number(value):
    """An option or a number of the state: a tensor only if it has a gradient to get."""
    tensor = isinstance(value, torch.Tensor)
    return value.item() if tensor and not value.requires_grad else value


def _kept(value, device):
    """A number as the state keeps it."""
    tensor = isinstance(value, torch.Tensor)
    return value if tensor else torch.tensor(float(value), dtype=torch.float32, device=device)


@torch.enable_grad()
def step(kind, group, states):
    """One step of a group's parameters, each of which is changed in place."""
    formula = getattr(import_module("phlox.optim._formulas"), kind)
    for parameter in group["params"]:
        if parameter.grad is not None:
            device = parameter.device if group.get("capturable") else None
            state = {name: value for name, value in states.get(parameter, {}).items()
                     if value is not None}
            # Of copies, since the formula may save them, and both are changed behind it.
            new, state = formula(group, state, parameter.clone(), parameter.grad.clone())
            parameter.copy_(new)
            for name, value in state.items():
                states.setdefault(parameter, {})[name] = _kept(value, device)
