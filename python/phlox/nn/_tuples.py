# SPDX-License-Identifier: Apache-2.0
"""What libraries take from torch.nn.modules.utils and torch.nn.init: one number for all dimensions, or
one for each; fans of weights."""
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


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    """How many numbers go into an output of a weight, and out of an input."""
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = tensor[0][0].numel() if tensor.dim() > 2 else 1
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    """One of the two, by "fan_in" or "fan_out"."""
    modes = ["fan_in", "fan_out"]
    if mode.lower() not in modes:
        raise ValueError(f"Mode {mode.lower()} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode.lower())]
