# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.cudart: functions of CUDA's runtime that programs call. They return 0 for success."""
from __future__ import annotations

import sys
from typing import Any

from phlox import cuda
from phlox.types import Device


def cudart() -> Any:
    """Returns the module of these functions."""
    cuda.init()
    return sys.modules[__name__]


def cudaProfilerStart() -> int:
    """Tells the driver to begin to collect for tools."""
    cuda.profiler.start()
    return 0


def cudaProfilerStop() -> int:
    """Tells the driver to end it."""
    cuda.profiler.stop()
    return 0


def cudaMemGetInfo(device: Device) -> tuple[int, int]:
    """Returns the bytes of a device that are free, and all."""
    return cuda.mem_get_info(device)
