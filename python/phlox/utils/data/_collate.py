# SPDX-License-Identifier: Apache-2.0
"""Collating items to a batch, and pinning a batch. Both preserve the containers' structure."""
from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from copy import copy
from functools import cache

import phlox as torch

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

default_collate_err_msg_format = ("default_collate: batch must contain tensors, numpy arrays, numbers, "
                                  "dicts or lists; found {}")
np_str_obj_array_pattern = re.compile(r"[SaUO]")  # arrays of texts and objects


def _like(model, values):
    """Returns the dict or list `values` as a container of the model's type. A mutable container is a
    copy, with the model's attributes. Types without a copy or a suitable constructor become dicts and
    lists."""
    if type(model) in (dict, list):
        return values
    try:
        if not isinstance(model, (MutableMapping, MutableSequence)):
            return type(model)(values)
        made = copy(model)
        if isinstance(model, Counter):
            dict.update(made, values)  # Counter.update adds to the model's counts
        elif isinstance(values, dict):
            made.update(values)
        else:
            for i, value in enumerate(values):
                made[i] = value
        return made
    except TypeError:
        return values


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """Collates a list of items to a batch. The first entry of `collate_fn_map` for the first item's type,
    else for one of its base classes, collates items; mappings and sequences are collated by element.

    Raises TypeError for other items, RuntimeError for sequences of different lengths.
    """
    first, functions = batch[0], collate_fn_map or {}
    for kind in (type(first), *functions):
        if kind in functions and isinstance(first, kind):
            return functions[kind](batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _like(first, {key: collate([item[key] for item in batch], collate_fn_map=collate_fn_map)
                             for key in first})
    if not isinstance(first, Sequence):
        raise TypeError(default_collate_err_msg_format.format(type(first)))
    named = isinstance(first, tuple) and hasattr(first, "_fields")
    if not named and len(set(map(len, batch))) > 1:
        raise RuntimeError("each element in list of batch should be of equal size")
    columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)]
    if named:
        return type(first)(*columns)
    return columns if isinstance(first, tuple) else _like(first, columns)


def collate_tensor_fn(batch, *, collate_fn_map=None):
    return torch.stack(batch)


def collate_numpy_array_fn(batch, *, collate_fn_map=None):
    if np_str_obj_array_pattern.search(batch[0].dtype.str):
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return collate([torch.as_tensor(item) for item in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch, *, collate_fn_map=None):
    return torch.as_tensor(batch)


def collate_float_fn(batch, *, collate_fn_map=None):
    return torch.tensor(batch, dtype=torch.float64)


def collate_int_fn(batch, *, collate_fn_map=None):
    return torch.tensor(batch)


def collate_str_fn(batch, *, collate_fn_map=None):
    return batch


_KINDS = {torch.Tensor: collate_tensor_fn, float: collate_float_fn, int: collate_int_fn,
          str: collate_str_fn, bytes: collate_str_fn}
default_collate_fn_map: dict[Any, Callable[..., Any]] = dict(_KINDS)


@cache
def _add_numpy(numpy):
    for known in _KINDS, default_collate_fn_map:
        known.setdefault(numpy.ndarray, collate_numpy_array_fn)
        known.setdefault((numpy.bool_, numpy.number, numpy.object_), collate_numpy_scalar_fn)


def collates_by_default() -> bool:
    """Whether programs have left default_collate_fn_map unchanged."""
    return default_collate_fn_map == _KINDS


def default_collate(batch: Any) -> Any:
    """Collates a list of items to a batch. Tensors, arrays and numbers are stacked along a new
    first dimension, mappings and sequences are collated by element, strings stay in a list.
    Mappings and sequences keep their types, but tuples become lists. `default_collate_fn_map` holds
    the functions by type.

    Raises TypeError for other items, RuntimeError for sequences of different lengths.

        >>> default_collate([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}])
        {'x': tensor([1, 2]), 'y': ['a', 'b']}
    """
    if "numpy" in sys.modules:
        _add_numpy(sys.modules["numpy"])
    return collate(batch, collate_fn_map=default_collate_fn_map)


def default_convert(data: Any) -> Any:
    """Converts NumPy arrays to tensors, also within mappings and sequences. Other values are kept.
    Mappings and sequences keep their types, but tuples become lists.

        >>> default_convert((torch.tensor(1), "a", [2]))
        [tensor(1), 'a', [2]]
    """
    kind = type(data)
    if isinstance(data, torch.Tensor):
        return data
    if kind.__module__ == "numpy" and kind.__name__ not in ("str_", "string_"):
        plain = kind.__name__ != "ndarray" or not np_str_obj_array_pattern.search(data.dtype.str)
        return torch.as_tensor(data) if plain else data
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(data[key]) for key in data})
    if not isinstance(data, Sequence) or isinstance(data, (str, bytes)):
        return data
    items = [default_convert(item) for item in data]
    if isinstance(data, tuple):
        return kind(*items) if hasattr(data, "_fields") else items
    return _like(data, items)


def pin_memory(data: Any, device: Any = None) -> Any:
    """Copies a batch's tensors to pinned memory, which allows asynchronous copies to devices. An object
    with a method pin_memory pins itself. Mappings and sequences keep their types."""
    if isinstance(data, torch.Tensor) or hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return _like(data, {key: pin_memory(value, device) for key, value in data.items()})
    if not isinstance(data, Sequence):
        return data
    pinned = [pin_memory(value, device) for value in data]
    if isinstance(data, tuple):
        return type(data)(*pinned) if hasattr(data, "_fields") else type(data)(pinned)
    return _like(data, pinned)
