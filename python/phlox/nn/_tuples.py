# SPDX-License-Identifier: Apache-2.0
"""Helpers of torch.nn.modules.utils and torch.nn.init used by libraries: expansion of a number to a
tuple, and the fans of weights."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that repeats a value n times, or converts an iterable to a tuple."""
    def parse(x):
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single, _pair = _ntuple(1, "_single"), _ntuple(2, "_pair")
_triple, _quadruple = _ntuple(3, "_triple"), _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """Reverses the tuple and repeats each value n times: the format of F.pad."""
    return tuple(x for x in reversed(t) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Strips a prefix such as "module." from the keys of a state dict and its metadata, in place."""
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[name[len(prefix):]] = state_dict.pop(name)
    metadata = getattr(state_dict, "_metadata", {})
    for name in [name for name in metadata if (name + ".").startswith(prefix)]:
        metadata[name[len(prefix):]] = metadata.pop(name)


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    """Returns (fan_in, fan_out) of a weight."""
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = tensor[0][0].numel() if tensor.dim() > 2 else 1
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    """Returns the fan selected by mode, "fan_in" or "fan_out"."""
    modes = ["fan_in", "fan_out"]
    if mode.lower() not in modes:
        raise ValueError(f"Mode {mode.lower()} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode.lower())]
