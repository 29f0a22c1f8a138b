# SPDX-License-Identifier: Apache-2.0
"""torch.utils.benchmark.Measurement: the times of a statement and their statistics."""
from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable
from typing import Any, NamedTuple

_UNITS = (1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")
_MIN_CONFIDENCE_INTERVAL, _MAX_FIGURES = 25e-9, 4  # seconds: resolution of timers; digits
_Z90 = 1.645  # standard errors in half of a two-sided 90 % confidence interval


class Task(NamedTuple):
    """A statement with its labels and environment."""
    stmt: str
    setup: str
    label: str | None
    sub_label: str | None
    description: str | None
    env: str | None
    num_threads: int


class Measurement:
    """The result of a Timer measurement: the times of a statement."""

    def __init__(self, task: Task, number_per_run: int) -> None:
        self._task, self._times, self._sorted = task, [], []
        self._number = number_per_run

    stmt = property(lambda self: self._task.stmt, doc="The measured statement.")
    setup = property(lambda self: self._task.setup, doc="The setup statement.")
    label = property(lambda self: self._task.label, doc="The label of its table.")
    sub_label = property(lambda self: self._task.sub_label, doc="The label of its row.")
    description = property(lambda self: self._task.description, doc="The label of its column.")
    env = property(lambda self: self._task.env, doc="The label of its environment.")
    num_threads = property(lambda self: self._task.num_threads, doc="The number of CPU threads.")
    as_row_name = property(lambda self: self.sub_label or self.stmt, doc="The row's name.")
    number_per_run = property(lambda self: self._number, doc="The number of runs in each time.")
    raw_times = property(lambda self: self._times[:], doc="The times in seconds.")
    times = property(lambda self: [t / self._number for t in self._times],
                     doc="The times per run in seconds.")
    median = property(lambda self: self._quantile(0.5), doc="The median time per run.")
    iqr = property(lambda self: self._quantile(0.75) - self._quantile(0.25),
                   doc="The interquartile range of the times per run.")
    has_warnings = property(lambda self: self.iqr > 0.1 * self.median,
                            doc="True if iqr exceeds a tenth of the median.")
    mean = property(lambda self: sum(self._times) / len(self._times) / self._number,
                    doc="The mean time per run.")

    @property
    def title(self) -> str:
        """The name of the measurement in tables."""
        if self.label is None:
            return self.stmt
        return self.label if self.sub_label is None else f"{self.label}: {self.sub_label}"

    @property
    def significant_figures(self) -> int:
        """The number of significant digits of the median, from 1 to 4: those supported by a 90 %
        confidence interval of the inner half of the times."""
        count = len(self._sorted)
        inner = self._sorted[count // 4:(3 * count + 3) // 4]
        mean = sum(inner) / len(inner)
        deviation = math.sqrt(sum((t - mean) ** 2 for t in inner) / len(inner))
        interval = _Z90 * deviation / math.sqrt(len(inner)) / self._number
        digits = (math.log10(self.median / max(interval, _MIN_CONFIDENCE_INTERVAL))
                  if self.median > 0 else 0)
        return min(max(math.floor(digits), 1), _MAX_FIGURES)

    def meets_confidence(self, threshold: float = 0.1) -> bool:
        """Returns True if iqr is below threshold times the median."""
        return self.iqr < threshold * self.median

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Merges measurements of the same task into one, with times of single runs."""
        merged: dict[Any, Measurement] = {}
        for one in measurements:
            if not isinstance(one, Measurement):
                raise TypeError(f"merge expected Measurements, got {type(one).__name__}")
            into = merged.setdefault(one._task, Measurement(one._task, 1))
            for t in one.times:
                into._add(t)
        return list(merged.values())

    def _add(self, seconds):
        self._times.append(seconds)
        insort(self._sorted, seconds)

    def _quantile(self, share):
        at = share * (len(self._sorted) - 1)
        low, high = self._sorted[math.floor(at)], self._sorted[math.ceil(at)]
        return (low + (at - math.floor(at)) * (high - low)) / self._number

    def __repr__(self) -> str:
        scale, unit = next((u for u in _UNITS if self.median >= u[0]), _UNITS[-1])
        low, middle, high, iqr = (f"{t / scale:.2f}" for t in (self._quantile(0.25), self.median,
                                                                self._quantile(0.75), self.iqr))
        count, threads = len(self._times), self.num_threads
        several = count > 1
        lines = ["<torch.utils.benchmark.utils.common.Measurement object at %#x>" % id(self),
                 self.title,
                 *[self.description] * (self.description is not None),
                 *[f"setup: {self.setup}"] * (self.setup != "pass"),
                 f"  {'Median: ' * several}{middle} {unit}",
                 *[f"  IQR:    {iqr} {unit} ({low} to {high})"] * (count > 2),
                 f"  {count} measurement{'s' * several}, {self._number} runs "
                 f"{'per measurement' * several}, {threads} thread{'s' * (threads != 1)}",
                 *["  WARNING: the measurements differ by more than a tenth."] *
                 (count > 2 and self.has_warnings)]
        return "\n".join(lines)
