# SPDX-License-Identifier: Apache-2.0
"""torch.amp.GradScaler: the scale that keeps gradients of float16 from vanishing. What it computes
stays on the devices; a step waits once for each device, to know whether it is to be made."""
from __future__ import annotations

from collections import defaultdict
from enum import Enum

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

OptState = Enum("OptState", {"READY": 0, "UNSCALED": 1, "STEPPED": 2})
OptState.__doc__ = "What has been done for an optimiser since the last update."


def _fresh():
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler(_C._GradScaler):
    """Multiplies losses by a scale, divides gradients by it, and leaves out steps whose gradients
    are infinite or NaN: then the scale is lowered, and after a number of good steps it is raised.

    Args:
        device (str): the type of devices that it is for
        init_scale (float): the scale at the start
        growth_factor (float): what raises the scale; more than 1
        backoff_factor (float): what lowers it; less than 1
        growth_interval (int): after how many good steps in a row it is raised
        enabled (bool): False makes a scaler that only calls the optimiser

    >>> scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    >>> scaler.scale(torch.tensor(0.5))
    tensor(4.)
    """

    def _begin(self):
        self._per_optimizer_states = defaultdict(_fresh)

    def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
        if not sum(found.item() for found in optimizer_state["found_inf_per_device"].values()):
            return optimizer.step(*args, **kwargs)
        return None

    def _scaled_step(self, optimizer, state, *args, **kwargs):
        """A step of an optimiser that unscales by itself: it is told the scale, and whether a
        gradient is not finite."""
        ready, scale = state["stage"] is OptState.READY, self._get_scale_async()
        found = self._check_inf_per_device(optimizer) if ready else state["found_inf_per_device"]
        optimizer.grad_scale = scale * getattr(optimizer, "grad_scale", 1) if ready else None
        optimizer.found_inf = sum(one.to(scale.device) for one in found.values())
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls optimizer.step(*args, **kwargs) unless a gradient is infinite or NaN; before that,
        unscales the gradients, unless unscale_() did. None where the step was left out."""
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
