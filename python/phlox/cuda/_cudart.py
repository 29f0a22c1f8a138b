# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.cudart: functions of the CUDA runtime. Those without a result return a cudaError, or 0 for success."""
from __future__ import annotations

import enum
import sys
from typing import Any

from phlox import cuda
from phlox.types import Device


class cudaError(enum.IntEnum):
    """Results of the functions of this module."""

    success = 0
    invalidValue = 1
    memoryAllocation = 2
    hostMemoryAlreadyRegistered = 712
    hostMemoryNotRegistered = 713


class CudaError(RuntimeError):
    """Raised by check_error; its argument is the text of the error and its number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{cudaGetErrorString(cudaError(code))} ({int(code)})")


def check_error(res: int) -> None:
    """Raises CudaError if the result of a function of the CUDA runtime is no success."""
    if res != cudaError.success:
        raise CudaError(res)


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


def cudaHostRegister(ptr: int, size: int, flags: int) -> cudaError:
    """Page-locks host memory where it is, for all devices: copies may be asynchronous, and tensors in it are pinned.

    Args:
        ptr (int): the address, as from Tensor.data_ptr
        size (int): bytes
        flags (int): 0, or a sum of 1 (portable) and 2 (mapped), which all registrations are

    Example::

        >>> t = torch.ones(1024)
        >>> torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(t.data_ptr(), t.nbytes, 0))
        >>> t.is_pinned()
        True
    """
    if flags & ~3:
        raise NotImplementedError(f"cudaHostRegister: flags {flags}; memory of I/O devices and read-only memory are not supported")
    return cudaError(cuda._host_register(ptr, size))


def cudaHostUnregister(ptr: int) -> cudaError:
    """Undoes cudaHostRegister of the same address, after waiting for work using the memory."""
    return cudaError(cuda._host_unregister(ptr))


def cudaGetErrorString(error: cudaError) -> str:
    """Returns the text of a result."""
    return _TEXTS[error]


_TEXTS = {
    cudaError.success: "no error",
    cudaError.invalidValue: "invalid argument",
    cudaError.memoryAllocation: "out of memory",
    cudaError.hostMemoryAlreadyRegistered: "part or all of the requested memory range is already mapped",
    cudaError.hostMemoryNotRegistered: "pointer does not correspond to a registered memory region",
}


def cudaMemGetInfo(device: Device) -> tuple[int, int]:
    """Returns the free and total memory of a device in bytes."""
    return cuda.mem_get_info(device)
