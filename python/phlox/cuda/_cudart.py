# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.cudart: functions of the CUDA runtime. Those without a result return 0, success."""
from __future__ import annotations

import sys
from typing import Any

from phlox import cuda
from phlox.types import Device


def cudart() -> Any:
    """Returns this module. Initializes CUDA."""
    cuda.init()
    return sys.modules[__name__]


def cudaProfilerStart() -> int:
    """Enables profile collection by the active profiling tool."""
    cuda.profiler.start()
    return 0


def cudaProfilerStop() -> int:
    """Disables profile collection by the active profiling tool."""
    cuda.profiler.stop()
    return 0


def cudaMemGetInfo(device: Device) -> tuple[int, int]:
    """Returns the free and total memory of a device in bytes."""
    return cuda.mem_get_info(device)
