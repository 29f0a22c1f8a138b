# SPDX-License-Identifier: Apache-2.0
"""Operators of Sequential and ModuleList. They create containers of the same modules."""
from __future__ import annotations

from itertools import chain

from phlox import nn

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from phlox.nn import Module


def _checked_layers(other):
    if not isinstance(other, nn.Sequential):
        raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
    return list(other)


def _checked_times(sequential, times):
    if not isinstance(times, int):
        raise TypeError(f"unsupported operand type(s) for *: {type(sequential)} and {type(times)}")
    if times <= 0:
        raise ValueError(f"Non-positive multiplication factor {times} for {type(sequential)}")
    return times


class Sequential:
    def __add__(self, other: Sequential) -> Sequential:
        """Returns a Sequential with the modules of both."""
        return nn.Sequential(*self, *_checked_layers(other))

    def __iadd__(self, other: Sequential) -> Sequential:
        """Appends the modules of another Sequential."""
        return self.extend(_checked_layers(other))

    def __mul__(self, times: int) -> Sequential:
        """Returns a Sequential with the modules repeated `times` times."""
        return nn.Sequential(*list(self) * _checked_times(self, times))

    def __rmul__(self, times: int) -> Sequential:
        """Returns a Sequential with the modules repeated `times` times."""
        return self * times

    def __imul__(self, times: int) -> Sequential:
        """Repeats the modules in place, `times` times in total."""
        return self.extend(list(self) * (_checked_times(self, times) - 1))

    def __reversed__(self) -> Iterator[Module]:
        """Iterates over the modules in reverse order."""
        return reversed(list(self))


class ModuleList:
    def __add__(self, other: Iterable[Module]) -> ModuleList:
        """Returns a ModuleList with the modules of both."""
        return nn.ModuleList(chain(self, other))

    def __iadd__(self, other: Iterable[Module]) -> ModuleList:
        """Appends modules."""
        return self.extend(other)

    def __reversed__(self) -> Iterator[Module]:
        """Iterates over the modules in reverse order."""
        return reversed(list(self))
