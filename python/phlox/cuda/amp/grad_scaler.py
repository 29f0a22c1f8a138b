# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.amp.GradScaler: torch.amp.GradScaler for "cuda"."""
from __future__ import annotations

import warnings

from phlox.amp import grad_scaler


class GradScaler(grad_scaler.GradScaler):
    """torch.amp.GradScaler without the device argument."""

    _type = "cuda"

    def __init__(self, init_scale: float = 2.0 ** 16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        warnings.warn(f"`torch.{self._type}.amp.GradScaler(args...)` is deprecated. Please use "
                      f"`torch.amp.GradScaler('{self._type}', args...)` instead.", FutureWarning,
                      stacklevel=2)
        super().__init__(self._type, init_scale, growth_factor, backoff_factor, growth_interval,
                         enabled)
