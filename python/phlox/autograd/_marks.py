# SPDX-License-Identifier: Apache-2.0
"""Annotations for profilers: torch.profiler.record_function, torch.cuda.nvtx.range,
torch.autograd.profiler.emit_nvtx, and torch.cuda.profiler."""
from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from phlox import _C

_enter, _leave = _C.autograd.profiler._enter, _C.autograd.profiler._leave
_push, _pop = _C.cuda.nvtx.range_push, _C.cuda.nvtx.range_pop


class _Mark(ContextDecorator):
    def __call__(self, func: Any) -> Any:
        if not callable(func):
            raise TypeError(f"expected a function, not {type(func).__name__}")
        return super().__call__(func)


class record_function(_Mark):
    """Context manager or function decorator that adds a label to a code block in profiles.

    >>> with torch.autograd.profiler.record_function("forward"):
    ...     x = torch.ones(1)
    """
    __module__ = "torch.autograd.profiler"

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args

    def _recreate_cm(self):
        return type(self)(self.name, self.args)  # one event per call of a decorated function

    def __enter__(self) -> record_function:
        self._part = _enter(self.name)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._part:
            _leave(self._part)


class range(_Mark):
    """Context manager or decorator that pushes an NVTX range at the beginning of its scope, and
    pops it at the end."""
    __module__ = "torch.cuda.nvtx"

    def __init__(self, msg: str, *args: Any) -> None:
        self.name = msg.format(*args)

    def __enter__(self) -> range:
        _push(self.name)
        return self

    def __exit__(self, *exc: object) -> None:
        _pop()


class emit_nvtx:
    """Context manager that makes every op emit an NVTX range, with the input shapes if
    record_shapes=True. Does nothing if enabled=False."""
    __module__ = "torch.autograd.profiler"

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.record_shapes, self.entered = enabled, record_shapes, False

    def __enter__(self) -> emit_nvtx | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("NVTX annotation context manager is not reentrant")
        self.entered = True
        _C.autograd.profiler._emit_nvtx(True, self.record_shapes)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.enabled:
            _C.autograd.profiler._emit_nvtx(False, False)


# ---- torch.cuda.profiler

def init(output_file: str, flags: list[str] | None = None, output_mode: str = "key_value") -> None:
    """Not supported, as in PyTorch: CUDA 12 needs no initialization."""
    raise AssertionError("CUDA12+ does not need profiler initialization!")


class profile:
    """Context manager that enables collection by NVIDIA's tools for its scope."""
    __module__ = "torch.cuda.profiler"

    def __enter__(self) -> None:
        _C.cuda.profiler.start()

    def __exit__(self, *exc: object) -> None:
        _C.cuda.profiler.stop()
