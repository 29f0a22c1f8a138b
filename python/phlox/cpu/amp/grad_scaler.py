# SPDX-License-Identifier: Apache-2.0
"""torch.cpu.amp.GradScaler: torch.amp.GradScaler for "cpu"."""
from phlox.cuda.amp.grad_scaler import GradScaler as _GradScaler


class GradScaler(_GradScaler):
    """torch.amp.GradScaler without the device argument."""

    _type = "cpu"
