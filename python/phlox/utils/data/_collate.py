# SPDX-License-Identifier: Apache-2.0
"""Making a batch of items, and pinning one: both follow the structure of what they are given."""
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
    """The dict, as a mapping of the model's type."""
    return mapping if type(model) is dict else type(model)(mapping)


def default_collate(batch: Iterable[Any]) -> Any:
    """Stacks a list of items: tensors, arrays and numbers to a tensor with a new first dimension,
    mappings and sequences by key and place; texts stay in a list.

    TypeError for other items, RuntimeError for sequences of different length.

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
    # Texts stay in the tuple that they come in.
    columns = [column if isinstance(column[0], (str, bytes)) else default_collate(column)
               for column in zip(*items)]
    return type(first)(*columns) if hasattr(first, "_fields") else columns


def default_convert(data: Any) -> Any:
    """Makes tensors of NumPy arrays, also within mappings and sequences; what else they hold stays
    what it is. Tuples become lists.

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
    """The batch with its tensors in pinned memory, from where copies to devices do not wait."""
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
