# SPDX-License-Identifier: Apache-2.0
"""torch.utils.benchmark: execution times of Python statements, measured by timeit with a clock
that synchronizes the current device."""
from __future__ import annotations

import textwrap
import time
import timeit
from collections.abc import Callable
from typing import Any

import phlox as torch
from phlox import _C, cuda
from phlox.utils._compare import Compare as Compare
from phlox.utils._measurement import Measurement, Task


def timer() -> float:
    """Returns the time in seconds. Synchronizes the current device first."""
    if cuda.is_initialized():
        cuda.synchronize()
    return time.monotonic()


_clock = timer  # arguments of Timer shadow the name timer


def _check_language(language, global_setup):
    if language in ("python", "py"):
        if global_setup:
            raise ValueError(f"global_setup is C++ only, got `{global_setup}`. Most likely this "
                             "code can simply be moved to `setup`.")
    elif language in ("cpp", "c++"):
        raise NotImplementedError("Timer(language='c++') is not implemented in Phlox")
    else:
        raise ValueError(f"Invalid language `{language}`.")


class Timer:
    """Helper class for measuring execution time of Python statements. The namespace of stmt has
    torch and the entries of globals.

    >>> timer = torch.utils.benchmark.Timer("x + x", globals={"x": torch.ones(3)})
    >>> timer.timeit(10).number_per_run
    10
    """

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
                 timer: Callable[[], float] | None = None, globals: dict[str, Any] | None = None,
                 label: str | None = None, sub_label: str | None = None,
                 description: str | None = None, env: str | None = None, num_threads: int = 1,
                 language: str = "python") -> None:
        _check_language(language, global_setup)
        stmt, setup = (textwrap.dedent(text).strip() for text in (stmt, setup))
        self._task = Task(stmt, setup, label, sub_label, description, env, num_threads)
        if num_threads < 1:
            raise ValueError(f"num_threads must be positive, but got {num_threads}")
        names = {"torch": torch, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer or _clock, names)

    def timeit(self, number: int = 1000000) -> Measurement:
        """Executes stmt `number` times after a warm-up and returns their total time."""
        if number < 1:
            raise ValueError(f"number must be positive, but got {number}")
        return self._measure(number)

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Not supported, as in PyTorch. Use blocked_autorange."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[..., Any] | None = None) -> None:
        """Not supported, as in PyTorch. Use blocked_autorange."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def blocked_autorange(self, callback: Callable[[int, float], Any] | None = None,
                          min_run_time: float = 0.2) -> Measurement:
        """Measures blocks of runs until they took at least `min_run_time` seconds. Chooses the
        block size. callback is called with the number of runs and the seconds of each block."""
        return self._measure(0, min_run_time, min_run_time, 0, callback)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01,
                           max_run_time: float = 10.0,
                           callback: Callable[[int, float], Any] | None = None) -> Measurement:
        """Measures blocks of runs until iqr is below threshold times the median, for at most
        max_run_time seconds."""
        return self._measure(0, min_run_time, max_run_time, threshold, callback)

    def _measure(self, number, min_time=0, max_time=0, threshold=0, callback=None):
        """Measures `number` runs once or, if it is 0, blocks of runs for min_time to max_time
        seconds."""
        threads = torch.get_num_threads()
        torch.set_num_threads(self._task.num_threads)
        try:
            if number:
                self._timer.timeit(max(number // 100, 2))
            made, total = Measurement(self._task, number or self._block_size(min_time)), 0.0
            while not made._times or not number and total < max_time:
                seconds = self._timer.timeit(made._number)
                made._add(seconds)
                total += seconds
                if callback:
                    callback(made._number, seconds)
                if total >= min_time and len(made._times) > 3 and made.meets_confidence(threshold):
                    break
            return made
        finally:
            torch.set_num_threads(threads)

    def _block_size(self, min_run_time):
        """Returns a number of runs that takes at least a thousandth of min_run_time."""
        number = 1
        while self._timer.timeit(number) < min_run_time / 1000:
            number *= 10
        return number


_C._name_missing(__name__)
