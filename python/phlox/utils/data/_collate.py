# SPDX-License-Identifier: Apache-2.0
"""Collating items to a batch, and pinning a batch. Both preserve the containers' structure."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import phlox as torch

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


def _is_numpy(value):
    return type(value).__module__ == "numpy"


def _like(model, mapping):
    """Converts a dict to the model's mapping type."""
    return mapping if type(model) is dict else type(model)(mapping)


def default_collate(batch: Iterable[Any]) -> Any:
    """Collates a list of items to a batch. Tensors, arrays and numbers are stacked along a new
    first dimension, mappings and sequences are collated by element, strings stay in a list.

    Raises TypeError for other items, RuntimeError for sequences of different lengths.

        >>> default_collate([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}])
        {'x': tensor([1, 2]), 'y': ['a', 'b']}
    """
    items = list(batch)
    first = items[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(items)
    if _is_numpy(first):
        return torch.stack([torch.as_tensor(item) for item in items])
    if type(first) is float:
        return torch.tensor(items, dtype=torch.float64)
    if isinstance(first, (int, float)):
        return torch.tensor(items)
    if isinstance(first, (str, bytes)):
        return items
    if isinstance(first, Mapping):
        return _like(first, {key: default_collate([item[key] for item in items]) for key in first})
    if isinstance(first, Sequence):
        return _collate_sequences(first, items)
    raise TypeError("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or "
                    f"lists; found {type(first)}")


def _collate_sequences(first, items):
    if len(set(map(len, items))) > 1:
        raise RuntimeError("each element in list of batch should be of equal size")
    # Columns of strings are kept as tuples.
    columns = [column if isinstance(column[0], (str, bytes)) else default_collate(column)
               for column in zip(*items)]
    return type(first)(*columns) if hasattr(first, "_fields") else columns


def default_convert(data: Any) -> Any:
    """Converts NumPy arrays to tensors, also within mappings and sequences. Other values are kept.
    Tuples become lists.

        >>> default_convert((torch.tensor(1), "a", [2]))
        [tensor(1), 'a', [2]]
    """
    if _is_numpy(data):
        return torch.as_tensor(data) if data.dtype.kind in "biuf" else data
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if not isinstance(data, Sequence) or isinstance(data, (str, bytes)):
        return data
    items = [default_convert(item) for item in data]
    return type(data)(*items) if hasattr(data, "_fields") else items


def pin_memory(batch: Any) -> Any:
    """Copies a batch's tensors to pinned memory, which allows asynchronous copies to devices."""
    if isinstance(batch, torch.Tensor):
        return batch.pin_memory()
    if isinstance(batch, (str, bytes)):
        return batch
    if isinstance(batch, Mapping):
        return _like(batch, {key: pin_memory(value) for key, value in batch.items()})
    if isinstance(batch, (tuple, list)):
        pinned = [pin_memory(value) for value in batch]
        return type(batch)(*pinned) if hasattr(batch, "_fields") else type(batch)(pinned)
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch
