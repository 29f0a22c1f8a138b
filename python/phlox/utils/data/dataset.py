# SPDX-License-Identifier: Apache-2.0
"""Datasets: base classes, TensorDataset, subsets, concatenations and random splits."""
from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate, repeat
from operator import getitem

import phlox as torch
from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any


class Dataset:
    """The base class of map-style datasets. Subclasses define `__getitem__`, and `__len__` for
    samplers.

        >>> class Squares(Dataset):
        ...     def __len__(self) -> int: return 3
        ...     def __getitem__(self, i): return i * i
        >>> list(DataLoader(Squares(), batch_size=3))
        [tensor([0, 1, 4])]
    """

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])

    def __class_getitem__(cls, item: Any) -> type:
        return cls


class IterableDataset(Dataset):
    """The base class of iterable datasets. Subclasses define `__iter__`."""

    def __add__(self, other: Any) -> ChainDataset:
        return ChainDataset([self, other])


class ChainDataset(IterableDataset):
    """Chains several IterableDatasets."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            assert isinstance(dataset, IterableDataset), "ChainDataset only supports IterableDataset"
            yield from dataset

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


class TensorDataset(Dataset):
    """A dataset of tensors with equal first sizes: item i is the tuple of their i-th rows.

    Raises AssertionError if the first sizes differ.

        >>> TensorDataset(torch.tensor([5, 6]), torch.tensor([0.5, 0.25]))[1]
        (tensor(6), tensor(0.2500))
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        assert all(t.ndim and len(t) == len(tensors[0]) for t in tensors), \
            "Size mismatch between tensors"
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, ...]:
        return tuple(map(getitem, self.tensors, repeat(index)))

    def __len__(self) -> int:
        return len(self.tensors[0]) if self.tensors else 0


class StackDataset(Dataset):
    """Stacks datasets of equal length: an item is the tuple of their items, or a dict for datasets
    given as keyword arguments.

        >>> StackDataset([1, 2], "ab")[1]
        (2, 'b')
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError("Supported either ``tuple``- (via ``args``) or``dict``- (via "
                             "``kwargs``) like input/output, but both types are given.")
        self.datasets: Any = kwargs or args
        if not self.datasets:
            raise ValueError("At least one dataset should be passed")
        sizes = set(map(len, self._parts()))
        if len(sizes) > 1:
            raise ValueError("Size mismatch between datasets")
        self._length = sizes.pop()

    def _parts(self):
        return self.datasets.values() if isinstance(self.datasets, dict) else self.datasets

    def _item(self, parts):
        return dict(zip(self.datasets, parts)) if isinstance(self.datasets, dict) else tuple(parts)

    def __getitem__(self, index: Any) -> Any:
        return self._item(dataset[index] for dataset in self._parts())

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Returns the items at several indices. Uses the datasets' __getitems__ if defined."""
        if _overrides_item_alone(self, StackDataset):
            return [self[i] for i in indices]
        columns = [_items(part, indices) for part in self._parts()]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError("Nested dataset's output size mismatch. "
                                 f"Expected {len(indices)}, got {len(column)}")
        return [self._item(parts) for parts in zip(*columns)]

    def __len__(self) -> int:
        return self._length


def _items(dataset, indices):
    get_all = getattr(dataset, "__getitems__", None)
    return get_all(indices) if get_all else [dataset[i] for i in indices]


def _overrides_item_alone(dataset, base):
    """Whether the dataset's class overrides __getitem__ of `base`, but not __getitems__."""
    kind = type(dataset)
    return kind.__getitem__ is not base.__getitem__ and kind.__getitems__ is base.__getitems__


class Subset(Dataset):
    """A subset of `dataset` at `indices`, a sequence.

    Raises NotImplementedError in a subclass with its own __getitem__ and without __getitems__.

        >>> list(Subset([3, 4, 5], [2, 0]))
        [5, 3]
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices
        if _overrides_item_alone(self, Subset):
            raise NotImplementedError(
                f"{type(self).__name__} overrides __getitem__ but not __getitems__. When subclassing "
                "Subset and overriding __getitem__, you must also override __getitems__ to ensure "
                "DataLoader works correctly with your custom logic. A simple implementation:\n\n"
                "def __getitems__(self, indices):\n"
                "    return [self.__getitem__(idx) for idx in indices]")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Returns the items at several indices. Uses the dataset's __getitems__ if defined."""
        if _overrides_item_alone(self, Subset):  # its __init__ did not call this class's
            return [self[i] for i in indices]
        return _items(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Concatenates several datasets.

        >>> list(ConcatDataset([[1, 2], [3]]))
        [1, 2, 3]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        assert self.datasets, "datasets should not be an empty iterable"
        assert not any(isinstance(dataset, IterableDataset) for dataset in self.datasets), \
            "ConcatDataset does not support IterableDataset"
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


def gather_batch(dataset, indices):
    """Returns the collated batch of a TensorDataset, or of Subsets of one, by a single gather. None
    for other datasets, and for indices other than a list of non-negative numbers."""
    while type(dataset) is Subset and type(indices) is list and min(indices, default=-1) >= 0:
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    return _C._rows(dataset, None, indices) if type(dataset) is TensorDataset else None


def _lengths(given, total):
    """Converts fractions to lengths: rounded down, with the remainder distributed round robin."""
    given = list(given)
    if sum(given) > 1 or not math.isclose(sum(given), 1):
        return given  # but [1] is a fraction: the whole dataset
    for i, part in enumerate(given):
        if not 0 <= part <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
    lengths = [int(part * total) for part in given]
    for i in range(total - sum(lengths)):
        lengths[i % len(lengths)] += 1
    return lengths


def random_split(dataset: Any, lengths: Iterable[float],
                 generator: torch.Generator | None = None) -> list[Subset]:
    """Splits `dataset` randomly into Subsets of the given lengths or fractions.

    generator: draws the order. Default: the default generator. Raises ValueError if the lengths do not
    add up to the dataset's length.

        >>> [len(part) for part in random_split(range(10), [0.75, 0.25])]
        [8, 2]
    """
    lengths = _lengths(lengths, len(dataset))
    if sum(lengths) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = torch.randperm(sum(lengths), generator=generator).tolist()
    return [Subset(dataset, order[end - length:end])
            for length, end in zip(lengths, accumulate(lengths))]
