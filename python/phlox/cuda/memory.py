# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.memory: the figures of memory, told as a table and as a snapshot."""
from __future__ import annotations

import warnings

from phlox import _C, cuda
from phlox.cuda import (  # noqa: F401
    _memory_blocks, _set_allocator_settings, empty_cache, get_allocator_backend, host_memory_stats,
    max_memory_allocated, max_memory_reserved, mem_get_info, memory_allocated, memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats, reset_peak_memory_stats, set_per_process_memory_fraction)

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from phlox._typing import Device

_C._name_missing(__name__)

# ---- the summary: a table of 77 columns
_ROWS = (("allocated_bytes", "Allocated memory"), ("active_bytes", "Active memory"),
         ("requested_bytes", "Requested memory"), ("reserved_bytes", "GPU reserved memory"),
         ("inactive_split_bytes", "Non-releasable memory"), ("allocation", "Allocations"),
         ("active", "Active allocs"), ("segment", "GPU reserved segments"),
         ("inactive_split", "Non-releasable allocs"))
_KINDS = ("current", "peak", "allocated", "freed")


def _cell(value, scale, is_bytes):
    """`scale` decides the unit: that of the row "all", so that the rows of a group agree."""
    if is_bytes:
        units, most, step = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB"), 768 * 1024, 1024
    else:
        units, most, step = (" ", "K", "M"), 750 * 1000, 1000
    unit = 0
    while unit < len(units) - 1 and scale >= most:
        value, scale, unit = value // step, scale / step, unit + 1
    return f" {value:6d} {units[unit]} |" if is_bytes else f" {value:7d} {units[unit]}  |"


def memory_summary(device: Device | None = None, abbreviated: bool = False) -> str:
    """The figures of a device as a table, to print.

    Args:
        device (torch.device, str, int or None): the current one by default
        abbreviated (bool): without the rows of the two pools
    """
    index = cuda._index_of(device)
    stats = memory_stats(device)
    figures = lambda key: [stats.get(f"{key}.{kind}", 0) for kind in _KINDS]
    rule = lambda mark: f"|{mark * 75}|"
    lines = [rule("="),
             f"|                  PyTorch CUDA memory summary, device ID {index:<18d}|", rule("-"),
             f"|            CUDA OOMs: {stats.get('num_ooms', 0):<13d}|"
             f"        cudaMalloc retries: {stats.get('num_alloc_retries', 0):<10d}|", rule("="),
             "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |"]

    def row(title, values, scales, is_bytes):
        cells = "".join(_cell(v, s, is_bytes) for v, s in zip(values, scales))
        lines.append(f"| {title:<21s} |{cells}")

    for key, title in _ROWS:
        lines.append(rule("-"))
        scales, is_bytes = figures(f"{key}.all"), key.endswith("bytes")
        row(title, scales, scales, is_bytes)
        for pool in () if abbreviated else ("large", "small"):
            row(f"      from {pool} pool", figures(f"{key}.{pool}_pool"), scales, is_bytes)
    for key, title in (("oversize_allocations", "Oversize allocations"),
                       ("oversize_segments", "Oversize GPU segments")):
        lines.append(rule("-"))
        row(title, figures(key), figures(key), False)
    return "\n".join([*lines, rule("="), ""])


# ---- the snapshot
def memory_snapshot() -> list[dict[str, Any]]:
    """The segments that the allocator holds, of all devices: dicts with their blocks, as PyTorch
    has them."""
    segments = []
    for device in range(cuda.device_count()) if cuda.is_initialized() else ():
        segment = None
        for block in _memory_blocks(device):
            address, size = block.pop("segment_address"), block.pop("segment_size")
            stream = block.pop("stream")
            small = block.pop("small")
            if segment is None or segment["address"] != address:
                segment = {"device": device, "address": address, "total_size": size,
                           "stream": stream,
                           "segment_type": "small" if small else "large", "segment_pool_id": (0, 0),
                           "allocated_size": 0, "active_size": 0, "requested_size": 0,
                           "is_expandable": False,
                           "frames": [], "blocks": []}
                segments.append(segment)
            segment["blocks"].append({**block, "frames": []})
            if block["state"] == "active_allocated":
                segment["allocated_size"] += block["size"]
                segment["requested_size"] += block["requested_size"]
            if block["state"] != "inactive":
                segment["active_size"] += block["size"]
    return segments


# ---- older names
def _renamed(old: str, function: Callable[..., int]) -> Callable[..., int]:
    def renamed(device: Device | None = None) -> int:
        warnings.warn(f"`torch.cuda.{old}` has been renamed to "
                      f"`torch.cuda.{function.__name__}`", FutureWarning, 2)
        return function(device)

    renamed.__name__ = renamed.__qualname__ = old
    renamed.__doc__ = f"The older name of {function.__name__}."
    return renamed


def _resets_all(old: str) -> Callable[..., None]:
    def reset(device: Device | None = None) -> None:
        warnings.warn(f"torch.cuda.{old} now calls torch.cuda.reset_peak_memory_stats, which "
                      "resets /all/ peak memory stats.", FutureWarning, 2)
        return reset_peak_memory_stats(device)

    reset.__name__ = reset.__qualname__ = old
    reset.__doc__ = "The older name of reset_peak_memory_stats."
    return reset


memory_cached = _renamed("memory_cached", memory_reserved)
max_memory_cached = _renamed("max_memory_cached", max_memory_reserved)
reset_max_memory_allocated = _resets_all("reset_max_memory_allocated")
reset_max_memory_cached = _resets_all("reset_max_memory_cached")
