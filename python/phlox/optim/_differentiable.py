# SPDX-License-Identifier: Apache-2.0
"""Steps with differentiable=True. The formulas of the optimisers (_formulas.py, generated from
optim/*.optim) run as recorded tensor ops. They also accept Python numbers."""
from __future__ import annotations

import math
from importlib import import_module

import phlox as torch


def _generic(name, plain):
    """Returns a formula function: torch's if an argument is a tensor, else `plain` for numbers."""
    def call(*args):
        like = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if like is None:
            return plain(*args)
        return getattr(torch, name)(*(torch.as_tensor(a, dtype=like.dtype, device=like.device)
                                      for a in args))
    return call


abs, max, min = _generic("abs", abs), _generic("maximum", max), _generic("minimum", min)
sign = _generic("sign", lambda x: (x > 0) - (x < 0))
sqrt, exp, cos, log, floor = (_generic(name, getattr(math, name))
                              for name in ("sqrt", "exp", "cos", "log", "floor"))


def choose(test, yes, no, like):
    """Selects yes() or no() by `test`; elementwise if `test` is a tensor."""
    if not isinstance(test, torch.Tensor):
        return yes() if test else no()
    return torch.where(test, *(torch.as_tensor(part(), dtype=like.dtype, device=like.device)
                               for part in (yes, no)))


def number(value):
    """Converts an option or state value to a number, unless it is a tensor requiring gradients."""
    tensor = isinstance(value, torch.Tensor)
    return value.item() if tensor and not value.requires_grad else value


def _parts(value):
    """Views a complex tensor as pairs of real numbers: the formulas are of real numbers."""
    complex = isinstance(value, torch.Tensor) and value.is_complex()
    return torch.view_as_real(value.resolve_conj().resolve_neg()) if complex else value


def _as_tensor(value, device):
    """Converts a number to a tensor, the type stored in the state."""
    tensor = isinstance(value, torch.Tensor)
    return value if tensor else torch.tensor(float(value), dtype=torch.float32, device=device)


@torch.enable_grad()
def step(kind, group, states):
    """Steps a group's parameters. Updates each in place."""
    formula = getattr(import_module("phlox.optim._formulas"), kind)
    for parameter in group["params"]:
        if parameter.grad is not None:
            device = parameter.device if group.get("capturable") else None
            state = {name: _parts(value) for name, value in states.get(parameter, {}).items()
                     if value is not None}
            # Copies: the formula may save its inputs for backward, and both are modified in place
            # later.
            new, state = formula(group, state, _parts(parameter.clone()),
                                 _parts(parameter.grad.clone()))
            whole = torch.view_as_complex if parameter.is_complex() else lambda value: value
            parameter.copy_(whole(new))
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.dim():
                    value = whole(value)
                states.setdefault(parameter, {})[name] = _as_tensor(value, device)
