# SPDX-License-Identifier: Apache-2.0
"""torch.utils.benchmark.Compare: tables of measurements."""
from __future__ import annotations

import math
import statistics
from typing import Any, Iterable

from phlox.utils._measurement import Measurement

UNITS = ((1, "second", "s"), (1e-3, "millisecond", "ms"), (1e-6, "microsecond", "us"),
         (1e-9, "nanosecond", "ns"))
# (ratio to the best time, ANSI style up to that ratio)
COLORS = ((1.01, "\033[92m\033[1m"), (1.1, "\033[34m\033[1m"), (2, ""), (5, "\033[2m\033[91m"),
          (math.inf, "\033[31m\033[1m"))
NOTE = "(! XX%) Measurement has high variance, where XX is the IQR / median * 100."
SIGNIFICANT, Z95 = 4, 1.645  # maximum number of digits; z-score of a 90% confidence interval


def _unique(values):
    return list(dict.fromkeys(values))


def _digits(times):
    """Returns the number of significant digits of the median, estimated from the interquartile
    samples."""
    middle = sorted(times)[len(times) // 4:math.ceil(len(times) * 3 / 4)]
    error = Z95 * statistics.pstdev(middle) / math.sqrt(len(middle))
    certain = math.log10(statistics.median(times) / error) if error else SIGNIFICANT
    return min(max(math.floor(certain), 1), SIGNIFICANT)


def _iqr(times):
    """Returns the interquartile range relative to the median."""
    if len(times) < 2:
        return 0.0
    first, middle, third = statistics.quantiles(times, n=4, method="inclusive")
    return (third - first) / middle


def _colored(text, ratio):
    color = next(color for limit, color in COLORS
                 if ratio <= limit and (ratio < limit or limit < 2))
    return f"{color}{text}\033[0m\033[0m" if color else text


class Compare:
    """A table of measurements. Columns are descriptions, rows are environments and sub_labels,
    grouped by number of threads. Each label has its own table."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trim = self._warn = False
        self._colors: str | None = None
        self.extend_results(results)

    def __str__(self) -> str:
        return "\n".join(self._table([m for m in self._results if m.label == label])
                         for label in _unique(m.label for m in self._results))

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Adds measurements. Measurements of the same cell are merged."""
        for result in (results := list(results)):
            if not isinstance(result, Measurement):
                raise ValueError("Expected an instance of `Measurement`, got "
                                 f"{type(result)} instead.")
        self._results += results

    def trim_significant_figures(self) -> None:
        """Limits the digits of a column to the significant ones."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colours the times by their ratio to the best of the column, or of the row."""
        self._colors = "row" if rowwise else "column"

    def highlight_warnings(self) -> None:
        """Marks measurements whose interquartile range exceeds 10% of the median."""
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
        rows_text = [f"[{title}]", lines[0]]
        for i, row in enumerate(rows):
            if not i or row[0] != rows[i - 1][0]:
                rows_text.append(f"{row[0]} threads: ".ljust(width, "-"))
            rows_text.append(lines[i + 1])
        noisy = self._warn and any(_iqr(times) > 0.1 for times in cells.values())
        return "\n".join([*rows_text, "", f"Times are in {unit}s ({short}).", *[NOTE] * noisy, ""])

    def _column(self, rows, times, name, scale, cells):
        """Returns the header and cells of a column, padded to a common width."""
        medians = [statistics.median(t) / scale if t else None for t in times]
        there = [m for m in medians if m is not None]
        numbers = ["" if m is None else f"{m:.1f}" for m in medians]
        if self._trim:
            digits = min(_digits(t) for t in times if t)
            decimals = max(digits - math.ceil(math.log10(max(there))), 0)
            numbers = ["" if m is None else f"{float(f'{m:.{digits}g}'):.{decimals}f}"
                       for m in medians]
        wide = max(map(len, numbers))
        texts = [number and number.rjust(wide) for number in numbers]
        if self._warn and any(t and _iqr(t) > 0.1 for t in times):
            marks = [t and _iqr(t) > 0.1 and f" (! {_iqr(t) * 100:.0f}%)" for t in times]
            texts = [text and text + (mark or " " * 8) for text, mark in zip(texts, marks)]
        wide = max(map(len, [name, *texts]))
        text_width = max(map(len, texts))
        texts = [text.rjust(text_width).center(wide) for text in texts]
        if self._colors:
            best = [min(statistics.median(t) / scale for key, t in cells.items() if key[:3] == row)
                    if self._colors == "row" else min(there) for row in rows]
            texts = [text if m is None else _colored(text, m / b)
                     for text, m, b in zip(texts, medians, best)]
        return [name.center(wide), *texts]
