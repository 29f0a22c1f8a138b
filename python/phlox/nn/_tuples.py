# SPDX-License-Identifier: Apache-2.0
"""torch.nn.modules.utils: one number for all dimensions, or one for each."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes a tuple of n of one value, and of several the tuple of them."""
    def parse(x):
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single, _pair = _ntuple(1, "_single"), _ntuple(2, "_pair")
_triple, _quadruple = _ntuple(3, "_triple"), _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """The values from the last on, each n times over: what F.pad wants for a padding."""
    return tuple(x for x in reversed(t) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Takes a prefix, as "module.", off the names of a state dict and of its metadata, in place."""
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[name[len(prefix):]] = state_dict.pop(name)
    of_modules = getattr(state_dict, "_metadata", {})
    for name in [name for name in of_modules if (name + ".").startswith(prefix)]:
        of_modules[name[len(prefix):]] = of_modules.pop(name)
