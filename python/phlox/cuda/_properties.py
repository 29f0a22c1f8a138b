# SPDX-License-Identifier: Apache-2.0
"""torch.cuda's device properties and its synchronization debug mode."""
from __future__ import annotations

from collections import namedtuple

from phlox import cuda

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from phlox._typing import Device

_MODES = ("default", "warn", "error")


class _CudaDeviceProperties(namedtuple("_CudaDeviceProperties", (
        "name", "major", "minor", "total_memory", "multi_processor_count", "uuid", "pci_bus_id",
        "pci_device_id", "pci_domain_id", "L2_cache_size", "max_threads_per_multi_processor",
        "is_simulated"))):
    """Properties of a CUDA device. Sizes are in bytes."""

    __module__ = "torch.cuda"
    __slots__ = ()

    def __repr__(self):
        shown = {**self._asdict(), "total_memory": f"{self.total_memory >> 20}MB",
                 "L2_cache_size": f"{self.L2_cache_size >> 20}MB", "name": repr(self.name)}
        text = ", ".join(f"{name}={shown[name]}" for name in self._fields[:10])
        return f"_CudaDeviceProperties({text})"


def get_device_properties(device: Device | None = None) -> _CudaDeviceProperties:
    """Returns the properties of a device (default: the current one) as a named tuple: name,
    capability, memory, ..."""
    return _CudaDeviceProperties(*cuda._device_properties(device))


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Sets the debug mode for synchronizing calls.

    Args:
        debug_mode (int or str): 0 or "default", 1 or "warn", 2 or "error"
    """
    cuda._sync_debug_mode(None)  # raises if there is no device
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, "
                               "`error`")
        debug_mode = _MODES.index(debug_mode)
    cuda._sync_debug_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """Returns the debug mode for synchronizing calls, as an int."""
    return cuda._sync_debug_mode(None)
