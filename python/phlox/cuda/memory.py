# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.memory: memory statistics, the summary table and snapshots."""
from __future__ import annotations

import contextlib
import inspect
import pickle
import sys
import warnings

from phlox import _C, cuda, empty, uint8
from phlox.cuda import (  # noqa: F401
    CUDAPluggableAllocator, MemPool, _caching_allocator_enable, _memory_blocks, _memory_events, _record_memory,
    _set_allocator_settings, change_current_allocator, empty_cache, get_allocator_backend,
    get_per_process_memory_fraction, host_memory_stats,
    max_memory_allocated, max_memory_reserved, mem_get_info, memory_allocated, memory_reserved,
    memory_stats,
    reset_accumulated_host_memory_stats, reset_accumulated_memory_stats,
    reset_peak_host_memory_stats, reset_peak_memory_stats, set_per_process_memory_fraction)

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from phlox._typing import Device

_C._name_missing(__name__)

# ---- the summary: a table 77 columns wide
_ROWS = (("allocated_bytes", "Allocated memory"), ("active_bytes", "Active memory"),
         ("requested_bytes", "Requested memory"), ("reserved_bytes", "GPU reserved memory"),
         ("inactive_split_bytes", "Non-releasable memory"), ("allocation", "Allocations"),
         ("active", "Active allocs"), ("segment", "GPU reserved segments"),
         ("inactive_split", "Non-releasable allocs"))
_KINDS = ("current", "peak", "allocated", "freed")


def _cell(value, scale, is_bytes):
    """Formats a cell. `scale` (the value of the row "all") selects the unit, common to a group of rows."""
    if is_bytes:
        units, limit, step = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB"), 768 * 1024, 1024
    else:
        units, limit, step = (" ", "K", "M"), 750 * 1000, 1000
    unit = 0
    while unit < len(units) - 1 and scale >= limit:
        value, scale, unit = value // step, scale / step, unit + 1
    return f" {value:6d} {units[unit]} |" if is_bytes else f" {value:7d} {units[unit]}  |"


def memory_summary(device: Device | None = None, abbreviated: bool = False) -> str:
    """Returns a printable table of a device's memory statistics.

    Args:
        device (torch.device, str, int or None): the device. Default: the current device
        abbreviated (bool): if True, omits the rows of the large and small pools
    """
    index = cuda._index_of(device)
    stats = memory_stats(device)
    values_of = lambda key: [stats.get(f"{key}.{kind}", 0) for kind in _KINDS]
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
        scales, is_bytes = values_of(f"{key}.all"), key.endswith("bytes")
        row(title, scales, scales, is_bytes)
        for pool in () if abbreviated else ("large", "small"):
            row(f"      from {pool} pool", values_of(f"{key}.{pool}_pool"), scales, is_bytes)
    for key, title in (("oversize_allocations", "Oversize allocations"),
                       ("oversize_segments", "Oversize GPU segments")):
        lines.append(rule("-"))
        row(title, values_of(key), values_of(key), False)
    return "\n".join([*lines, rule("="), ""])


# ---- statistics as dicts of dicts
def _nested(stats):
    nested = {}
    for key, value in stats.items():
        *outer, last = key.split(".")
        level = nested
        for name in outer:  # "0_1" is a pool id
            level = level.setdefault(tuple(map(int, name.split("_"))) if name[0].isdigit() else name, {})
        level[last] = value
    return nested


def memory_stats_as_nested_dict(device: Device | None = None) -> dict[str, Any]:
    """Returns memory_stats as nested dicts: stats["allocated_bytes"]["all"]["peak"]."""
    stats = memory_stats(device)
    return {**({"reserved_bytes_by_private_pools": {}} if stats else {}), **_nested(stats)}


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Returns host_memory_stats as nested dicts."""
    return _nested(host_memory_stats())


def list_gpu_processes(device: Device | None = None) -> str:
    """Returns a printable list of the processes on a GPU and their memory use. Requires pynvml."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return "pynvml module not found, please install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_DriverNotLoaded:
        return "cuda driver can't be loaded, is cuda enabled?"
    p = cuda.get_device_properties(device)
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(
        pynvml.nvmlDeviceGetHandleByPciBusId(f"{p.pci_domain_id:08x}:{p.pci_bus_id:02x}:{p.pci_device_id:02x}.0"))
    lines = [f"process {p.pid:>10d} uses {p.usedGpuMemory / 2**20:>12.3f} MB GPU memory" for p in found]
    return "\n".join([f"GPU:{cuda._index_of(device)}", *(lines or ["no processes are running"])])


# ---- raw allocations for other libraries, and pools
_allocations = {}  # address -> the tensor that owns the memory


def caching_allocator_alloc(size: int, device: Device | None = None, stream: Any = None) -> int:
    """Allocates device memory from the caching allocator and returns its address. Free it with
    caching_allocator_delete.

    Args:
        size (int): the number of bytes
        device (torch.device, str, int or None): the device. Default: the current device
        stream (Stream, int or None): the stream that uses the memory. Default: the current stream
    """
    index = cuda._index_of(device)
    if stream is not None and not isinstance(stream, (int, cuda.Stream)):
        raise TypeError("Invalid type for stream argument, must be `torch.cuda.Stream` or `int` "
                        "representing a pointer to an existing stream")
    if isinstance(stream, int):
        stream = cuda.ExternalStream(stream, index)
    with cuda.device(index), cuda.stream(stream):
        memory = empty(size, dtype=uint8, device="cuda")
    if size:
        _allocations[memory.data_ptr()] = memory
    return memory.data_ptr()


def caching_allocator_delete(mem_ptr: int) -> None:
    """Frees memory from caching_allocator_alloc. Raises RuntimeError for any other address."""
    if mem_ptr and _allocations.pop(mem_ptr, None) is None:
        raise RuntimeError(f"invalid device pointer: {mem_ptr:#x}")


def caching_allocator_enable(value: bool = True) -> None:
    """Enables or disables the caching allocator. While disabled, each request allocates from the
    device and is not counted. Without effect before the first use of a device."""
    if cuda.is_initialized():
        _caching_allocator_enable(value)


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """A context manager that disables the caching allocator and enables it at exit."""
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(True)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device | None = None) -> Iterator[None]:
    """A context manager that routes the calling thread's allocations to a pool.

    >>> pool = torch.cuda.MemPool()
    >>> with torch.cuda.use_mem_pool(pool):
    ...     x = torch.ones(4, device='cuda')
    >>> [segment["segment_pool_id"] == pool.id for segment in pool.snapshot()]
    [True]

    Args:
        pool (MemPool): the pool
        device (torch.device, str, int or None): the device. Default: the current device
    """
    index = cuda._index_of(device)
    pool._begin(index)
    try:
        yield
    finally:
        pool._end(index)


# ---- snapshots, and the history of memory events
def memory_snapshot(mempool_id: tuple[int, int] | None = None,
                    include_traces: bool = True) -> list[dict[str, Any]]:
    """Returns the allocator's segments on all devices: dicts with their blocks, in PyTorch's format.
    With `mempool_id`, only segments of that pool. Frames, innermost first, are available for
    allocations made while a history was recorded. `include_traces` is ignored: _snapshot returns
    the events."""
    return _segments(mempool_id, {})


def _segments(pool_id, known):
    segments = []
    for device in range(cuda.device_count()) if cuda.is_initialized() else ():
        segment = None
        for block in _memory_blocks(device, known):
            address, size = block.pop("segment_address"), block.pop("segment_size")
            stream, frames = block.pop("stream"), block.pop("segment_frames")
            small, pool, expandable = block.pop("small"), block.pop("pool"), block.pop("expandable")
            if pool_id is not None and pool != tuple(pool_id):
                continue
            if segment is None or segment["address"] != address:
                segment = {"device": device, "address": address, "total_size": size,
                           "stream": stream,
                           "segment_type": "small" if small else "large", "segment_pool_id": pool,
                           "allocated_size": 0, "active_size": 0, "requested_size": 0,
                           "is_expandable": expandable,
                           "frames": frames, "blocks": []}
                segments.append(segment)
            segment["blocks"].append(block)
            if block["state"] == "active_allocated":
                segment["allocated_size"] += block["size"]
                segment["requested_size"] += block["requested_size"]
            if block["state"] != "inactive":
                segment["active_size"] += block["size"]
    return segments


def _option(value, allowed, text):
    if value not in allowed:
        raise RuntimeError(text)


def _record_memory_history(enabled: str | bool | None = "all", *args: Any, **kwargs: Any) -> None:
    """Records memory events of the devices and the stacks of their callers.

    >>> torch.cuda.memory._record_memory_history(max_entries=10000)
    >>> x = torch.ones(1000, device='cuda')
    >>> torch.cuda.memory._dump_snapshot("memory.pickle")
    >>> torch.cuda.memory._record_memory_history(enabled=None)

    Args:
        enabled (str or None): "all": records events; "state": records live allocations; None: stops
        context (str or None): the stacks to keep: "state": of live allocations; "alloc": also of
            allocation events; "all": also of frees
        stacks (str): "python": Python frames; "all": also the allocating op
        max_entries (int): the maximum number of events of a device; the newest are kept
        clear_history (bool): if True, discards earlier events
        skip_actions (list of str): actions to ignore: "alloc", "oom", ...
    """
    return (_record_legacy if isinstance(enabled, bool) else _record)(enabled, *args, **kwargs)


def _refuse(**options):
    for name, given in options.items():
        if given:
            raise NotImplementedError(f"_record_memory_history: {name} is not implemented in Phlox")


def _record(enabled="all", context="all", stacks="all", max_entries=sys.maxsize, device=None,
            clear_history=False, compile_context=False, global_record_annotations=False,
            skip_actions=None, record_pinned_host_memory=False, record_cuda=True):
    _option(enabled, (None, "state", "all"), "expected state to be 'state', 'all', or None")
    _option(context, (None, "state", "alloc", "all"),
            "expected context to be 'state', 'alloc', 'all', or None")
    _option(stacks, ("python", "all"), "expected stacks to be 'python', or 'all'")
    _refuse(compile_context=compile_context, global_record_annotations=global_record_annotations,
            record_pinned_host_memory=record_pinned_host_memory,
            **{"record_cuda=False": not record_cuda})
    entries = max(1, max_entries) if enabled == "all" else 1
    _record_memory(enabled and entries, context or "", stacks == "all", skip_actions or (),
                   clear_history)


# The legacy signature with a bool.
def _record_legacy(enabled, record_context=True, trace_alloc_max_entries=1,
                   trace_alloc_record_context=False, device=None, record_context_cpp=False,
                   clear_history=False, **others):
    context = "alloc" if trace_alloc_record_context else "state" if record_context else None
    _record("all" if enabled else None, context, "all" if record_context_cpp else "python",
            trace_alloc_max_entries, device, clear_history, **others)


_record_memory_history.__signature__ = inspect.signature(_record)


def _snapshot(device: Device | None = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Returns {"segments": the result of memory_snapshot, "device_traces": a list of recorded events
    for each device}."""
    known = {}
    devices = range(cuda.device_count()) if cuda.is_initialized() else ()
    return {"device_traces": [_memory_events(device, known) for device in devices],
            "segments": _segments(None, known)}


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """Returns the frames of the live block at an address. None if there is no such block or no history
    was recorded."""
    return next((block["frames"] or None for segment in memory_snapshot()
                 for block in segment["blocks"]
                 if block["address"] == data_ptr and block["state"] == "active_allocated"), None)


def _dump_snapshot(filename: str = "dump_snapshot.pickle",
                   augment_with_fx_traces: bool = False) -> None:
    """Writes the result of _snapshot to a file for PyTorch's memory viewer."""
    snapshot = _snapshot()
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file, 4)  # viewers read pickle protocols up to 4


# ---- legacy names
def _renamed(old: str, function: Callable[..., int]) -> Callable[..., int]:
    def renamed(device: Device | None = None) -> int:
        warnings.warn(f"`torch.cuda.{old}` has been renamed to "
                      f"`torch.cuda.{function.__name__}`", FutureWarning, 2)
        return function(device)

    renamed.__name__ = renamed.__qualname__ = old
    renamed.__doc__ = f"Deprecated: see {function.__name__}."
    return renamed


def _resets_all(old: str) -> Callable[..., None]:
    def reset(device: Device | None = None) -> None:
        warnings.warn(f"torch.cuda.{old} now calls torch.cuda.reset_peak_memory_stats, which "
                      "resets /all/ peak memory stats.", FutureWarning, 2)
        return reset_peak_memory_stats(device)

    reset.__name__ = reset.__qualname__ = old
    reset.__doc__ = "Deprecated: see reset_peak_memory_stats."
    return reset


memory_cached = _renamed("memory_cached", memory_reserved)
max_memory_cached = _renamed("max_memory_cached", max_memory_reserved)
reset_max_memory_allocated = _resets_all("reset_max_memory_allocated")
reset_max_memory_cached = _resets_all("reset_max_memory_cached")
