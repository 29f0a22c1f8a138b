# SPDX-License-Identifier: Apache-2.0
"""torch.amp.GradScaler: loss scaling, to prevent underflow of fp16 gradients. The scale and the inf
checks stay on the devices. A step synchronizes once per device to read the result of the check."""
from __future__ import annotations

from collections import defaultdict
from enum import Enum

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

OptState = Enum("OptState", {"READY": 0, "UNSCALED": 1, "STEPPED": 2})
OptState.__doc__ = "The state of an optimiser since the last update."


def _new_state():
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler(_C._GradScaler):
    """Multiplies losses by a scale, divides gradients by it, and skips steps with inf or NaN
    gradients. A skipped step lowers the scale; a number of successful steps raises it.

    Args:
        device (str): the device type
        init_scale (float): the initial scale
        growth_factor (float): the factor by which the scale is raised; > 1
        backoff_factor (float): the factor by which the scale is lowered; < 1
        growth_interval (int): the number of consecutive successful steps before the scale is raised
        enabled (bool): if False, step() only calls the optimiser

    >>> scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    >>> scaler.scale(torch.tensor(0.5))
    tensor(4.)
    """

    def _begin(self):
        self._per_optimizer_states = defaultdict(_new_state)

    def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
        if not sum(found.item() for found in optimizer_state["found_inf_per_device"].values()):
            return optimizer.step(*args, **kwargs)
        return None

    def _scaled_step(self, optimizer, state, *args, **kwargs):
        """Steps an optimiser that unscales by itself. Its attributes `grad_scale` and `found_inf`
        pass the scale and the result of the inf check."""
        ready, scale = state["stage"] is OptState.READY, self._get_scale_async()
        found = self._check_inf_per_device(optimizer) if ready else state["found_inf_per_device"]
        optimizer.grad_scale = scale * getattr(optimizer, "grad_scale", 1) if ready else None
        optimizer.found_inf = sum(one.to(scale.device) for one in found.values())
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscales the gradients, unless unscale_() has, then calls optimizer.step(*args, **kwargs)
        if all gradients are finite. Returns None if the step was skipped."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        take = self._scaled_step
        if not getattr(optimizer, "_step_supports_amp_scaling", False):
            take = self._maybe_opt_step
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            assert state["found_inf_per_device"], "No inf checks were recorded for this optimizer."
        result = take(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result
