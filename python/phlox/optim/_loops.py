# SPDX-License-Identifier: Apache-2.0
"""Optimisers that are not elementwise formulas: they need sums over rows, matrix products, or
further evaluations of the loss. Their options are in optim/loops.optim."""
from __future__ import annotations

from math import sqrt

import phlox as torch
from phlox import _C

from .optimizer import Optimizer, Params

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

class _Loop(Optimizer):
    """Calls _update for each parameter with a gradient."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters with gradients. closure: reevaluates the loss, which is
        returned."""
        loss = self._loss_of(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if parameter.is_complex():
                        raise RuntimeError(f"{type(self).__name__} does not support complex "
                                           "parameters")
                    grad = -parameter.grad if group.get("maximize") else parameter.grad
                    self._update(parameter, grad, self.state[parameter], group, float(group["lr"]))
        return loss


class Adafactor(_Loop):
    """Vectors have a full second moment; matrices have row and column means of it."""

    _numbers = ("step",)

    def _update(self, parameter, grad, state, group, lr):
        state.setdefault("step", torch.tensor(0.0)).add_(1)
        step, min_value = state["step"].item(), group["eps"][0]
        min_value = torch.finfo(parameter.dtype).eps if min_value is None else min_value
        size = max(group["eps"][1], parameter.norm().item() / sqrt(parameter.numel()))
        parameter.mul_(1 - lr * group["weight_decay"])
        square, matrix = grad * grad, grad.dim() > 1
        for name, dim in (("row_var", -1), ("col_var", -2)) if matrix else (("variance", None),):
            mean = square.mean(dim, keepdim=True) if matrix else square
            if name not in state:
                state[name] = torch.zeros_like(mean)
            state[name].lerp_(mean, step ** group["beta2_decay"])
        if matrix:
            mean = state["row_var"].mean(-2, keepdim=True).clamp_(min=min_value)
            variance_estimate = (state["row_var"] @ state["col_var"]).div_(mean)
        else:
            variance_estimate = state["variance"].clone()
        update = variance_estimate.clamp_(min=min_value * min_value).rsqrt_().mul_(grad)
        clip = max(1.0, update.norm().item() / (sqrt(update.numel()) * group["d"]))
        parameter.add_(update, alpha=-size * min(lr, 1 / sqrt(step)) / clip)


# Learning rate adjustments, as functions of a matrix's rows and columns.
RATES = {"original": lambda rows, columns: sqrt(max(1, rows / columns)),
          "match_rms_adamw": lambda rows, columns: 0.2 * sqrt(max(rows, columns)),
          "spectral_unclamped": lambda rows, columns: sqrt(rows / columns)}


class Muon(_Loop):
    """A polynomial (Newton-Schulz) moves the singular values of the momentum close to 1."""

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.ndim != 2:
                raise ValueError("Muon only supports 2D parameters whereas we found a parameter "
                                 f"with size: {parameter.size()}")

    def _update(self, parameter, grad, state, group, lr):
        if group["ns_steps"] >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        rows, columns = parameter.shape
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        ahead = state["momentum_buffer"].lerp_(grad, 1 - group["momentum"])
        if group["nesterov"]:
            ahead = grad.lerp(ahead, group["momentum"])
        x = ahead.to(torch.bfloat16, copy=True)
        x = x.T if rows > columns else x
        x.div_(x.norm().clamp(min=group["eps"]))
        a, b, c = group["ns_coefficients"]
        for _ in range(group["ns_steps"]):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        parameter.mul_(1 - lr * group["weight_decay"])
        rate = RATES[group["adjust_lr_fn"] or "original"]
        parameter.add_(x.T if rows > columns else x, alpha=-lr * rate(rows, columns))


class SparseAdam(_Loop):
    """Raises for dense gradients. Phlox has no sparse ones."""

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        found = [[g, i] for g, group in enumerate(self.param_groups)
                 for i, parameter in enumerate(group["params"]) if parameter.is_complex()]
        if found:
            raise ValueError(f"Complex params at indices {found}: SparseAdam does not support "
                             "complex parameters")

    def _update(self, parameter, grad, state, group, lr):
        raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam "
                           "instead")


class LBFGS(Optimizer):
    """Treats all parameters as one vector, with one direction and one history."""

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if defaults["max_eval"] is None:
            defaults["max_eval"] = defaults["max_iter"] * 5 // 4
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def step(self, closure: Callable[[], Any]) -> Any:
        """Performs a step. closure: clears the gradients, computes the loss and its gradients, and
        returns the loss. Returns the initial loss."""
        if not self._params:
            with torch.enable_grad():
                return closure()
        return _C._lbfgs_step(self._params, self.param_groups[0], self.state[self._params[0]],
                              closure)
