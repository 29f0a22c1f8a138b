# SPDX-License-Identifier: Apache-2.0
"""torch.cpu.amp.GradScaler: torch.amp.GradScaler of "cpu"."""
from phlox.cuda.amp.grad_scaler import GradScaler as _GradScaler


class GradScaler(_GradScaler):
    """torch.amp.GradScaler without the argument device."""

    _type = "cpu"
