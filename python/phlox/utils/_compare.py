# SPDX-License-Identifier: Apache-2.0
"""torch.utils.benchmark.Compare: what timers measured, side by side."""
from __future__ import annotations

import math
import statistics
from typing import Any, Iterable

from phlox.utils._measurement import Measurement

UNITS = ((1, "second", "s"), (1e-3, "millisecond", "ms"), (1e-6, "microsecond", "us"),
         (1e-9, "nanosecond", "ns"))
# How a time is shown that is so many times the best.
COLORS = ((1.01, "\033[92m\033[1m"), (1.1, "\033[34m\033[1m"), (2, ""), (5, "\033[2m\033[91m"),
          (math.inf, "\033[31m\033[1m"))
NOTE = "(! XX%) Measurement has high variance, where XX is the IQR / median * 100."
SIGNIFICANT, Z95 = 4, 1.645  # figures at most; of a share of 0.9 around the mean


def _unique(values):
    return list(dict.fromkeys(values))


def _figures(times):
    """How many figures of the median the spread of the middle half leaves certain."""
    middle = sorted(times)[len(times) // 4:math.ceil(len(times) * 3 / 4)]
    doubt = Z95 * statistics.pstdev(middle) / math.sqrt(len(middle))
    sure = math.log10(statistics.median(times) / doubt) if doubt else SIGNIFICANT
    return min(max(math.floor(sure), 1), SIGNIFICANT)


def _spread(times):
    """The range of the middle half as a share of the median."""
    if len(times) < 2:
        return 0.0
    first, middle, third = statistics.quantiles(times, n=4, method="inclusive")
    return (third - first) / middle


def _colored(text, share):
    color = next(color for most, color in COLORS if share <= most and (share < most or most < 2))
    return f"{color}{text}\033[0m\033[0m" if color else text


class Compare:
    """A table of measurements: a column for each description, a row for each environment and
    sub_label, a part for each number of threads, and a table for each label."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trim = self._warn = False
        self._colors: str | None = None
        self.extend_results(results)

    def __str__(self) -> str:
        return "\n".join(self._table([m for m in self._results if m.label == label])
                         for label in _unique(m.label for m in self._results))

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Adds measurements; those of equal rows and columns count as one."""
        for result in (results := list(results)):
            if not isinstance(result, Measurement):
                raise ValueError("Expected an instance of `Measurement`, got "
                                 f"{type(result)} instead.")
        self._results += results

    def trim_significant_figures(self) -> None:
        """Shows no more figures than the measurements of a column allow."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colours the times by how they compare with the best of their column, or row."""
        self._colors = "row" if rowwise else "column"

    def highlight_warnings(self) -> None:
        """Says which measurements have a spread of more than a tenth of the median."""
        self._warn = True

    def print(self) -> None:
        """Prints the table."""
        print(self)

    def _table(self, results):
        cells: dict[Any, Any] = {}
        for m in results:
            cells.setdefault((m.num_threads, m.env or "", m.as_row_name, m.description), []
                             ).extend(m.times)
        shortest = min(map(statistics.median, cells.values()))
        scale, unit, short = next((u for u in UNITS if shortest >= u[0]), UNITS[-1])
        names = _unique(key[2] for key in cells)
        rows = sorted(_unique(key[:3] for key in cells),
                      key=lambda row: (*row[:2], names.index(row[2])))
        several = len({row[1] for row in rows}) > 1
        envs = [f"({row[1]})" if several else "  " for row in rows]
        stubs = [f"  {env:{max(map(len, envs))}}  {row[2]}" for env, row in zip(envs, rows)]
        columns = [self._column(rows, [cells.get((*row, name)) for row in rows], name or "", scale,
                                cells) for name in _unique(key[3] for key in cells)]
        lines = [f"{stub:{max(map(len, stubs))}}  |  " + "  |  ".join(parts)
                 for stub, *parts in zip(["", *stubs], *columns)]
        width = len(lines[0])
        title = f" {results[0].label or ''} ".center(width - 2, "-")
        shown = [f"[{title}]", lines[0]]
        for i, row in enumerate(rows):
            if not i or row[0] != rows[i - 1][0]:
                shown.append(f"{row[0]} threads: ".ljust(width, "-"))
            shown.append(lines[i + 1])
        uneven = self._warn and any(_spread(times) > 0.1 for times in cells.values())
        return "\n".join([*shown, "", f"Times are in {unit}s ({short}).", *[NOTE] * uneven, ""])

    def _column(self, rows, times, name, scale, cells):
        """The head and the cells of a column, each as wide as the widest."""
        medians = [statistics.median(t) / scale if t else None for t in times]
        there = [m for m in medians if m is not None]
        numbers = ["" if m is None else f"{m:.1f}" for m in medians]
        if self._trim:
            figures = min(_figures(t) for t in times if t)
            places = max(figures - math.ceil(math.log10(max(there))), 0)
            numbers = ["" if m is None else f"{float(f'{m:.{figures}g}'):.{places}f}"
                       for m in medians]
        wide = max(map(len, numbers))
        texts = [number and number.rjust(wide) for number in numbers]
        if self._warn and any(t and _spread(t) > 0.1 for t in times):
            marks = [t and _spread(t) > 0.1 and f" (! {_spread(t) * 100:.0f}%)" for t in times]
            texts = [text and text + (mark or " " * 8) for text, mark in zip(texts, marks)]
        wide = max(map(len, [name, *texts]))
        tight = max(map(len, texts))
        texts = [text.rjust(tight).center(wide) for text in texts]
        if self._colors:
            best = [min(statistics.median(t) / scale for key, t in cells.items() if key[:3] == row)
                    if self._colors == "row" else min(there) for row in rows]
            texts = [text if m is None else _colored(text, m / b)
                     for text, m, b in zip(texts, medians, best)]
        return [name.center(wide), *texts]
