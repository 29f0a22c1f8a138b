# SPDX-License-Identifier: Apache-2.0
"""Samplers of indices and batches. With the same seed, orders are equal to PyTorch's."""
from __future__ import annotations

from itertools import cycle, islice

import phlox as torch
from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Sized
    from typing import Any


_AT_ONCE = 1 << 20  # maximum number of indices drawn in advance


def _check_count(name, count):
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={count}")


class Sampler:
    """The base class of samplers. Subclasses define `__iter__`, and `__len__` if known."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __class_getitem__(cls, item: Any) -> type:
        return cls


class SequentialSampler(Sampler):
    """Samples indices sequentially.

        >>> list(SequentialSampler("abc"))
        [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """Samples indices randomly, without or with `replacement`.

    num_samples: the number of samples. Default: the length of `data_source`. generator: draws the
    order. Default: a generator seeded from the default one.

        >>> sorted(RandomSampler("abc"))
        [0, 1, 2]
    """

    def __init__(self, data_source: Sized, replacement: bool = False,
                 num_samples: int | None = None,
                 generator: torch.Generator | None = None) -> None:
        if not isinstance(replacement, bool):
            raise TypeError("replacement should be a boolean value, but got "
                            f"replacement={replacement!r}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        _check_count("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """The number of samples of a pass."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        length, count = len(self.data_source), self.num_samples
        if count <= _AT_ONCE and self.generator is None:
            yield from _C._random_order(length, count, self.replacement, None)
        else:
            yield from self._in_blocks(length, count)

    def _in_blocks(self, length, count):
        generator = self.generator
        if generator is None:
            generator = torch.Generator()
            generator.manual_seed(_C._draw_seed(None))
        options = {"generator": generator, "device": generator.device}
        if self.replacement:
            for done in range(0, count, 32):
                yield from torch.randint(length, (min(32, count - done),), **options).tolist()
            return
        for done in range(0, count + 1, length):  # also draws a last, unused permutation
            yield from torch.randperm(length, **options).tolist()[:count - done]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Samples the given `indices` in a random order drawn by `generator`."""

    def __init__(self, indices: Sequence[int],
                 generator: torch.Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in torch.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Draws `num_samples` indices with probabilities proportional to the weights.

    weights: non-negative numbers, a sequence or a 1-d tensor. replacement: if True, an index may be
    drawn repeatedly. generator: draws the samples. Default: the default generator.
    """

    def __init__(self, weights: Sequence[float] | torch.Tensor, num_samples: int,
                 replacement: bool = True, generator: torch.Generator | None = None) -> None:
        _check_count("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError("replacement should be a boolean value, but got "
                             f"replacement={replacement}")
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TypeError("generator must be torch.Generator, not "
                            f"{type(generator).__name__}")
        weights = torch.as_tensor(weights, dtype=torch.float64)
        if weights.ndim != 1:
            raise ValueError("weights should be a 1d sequence but given weights have shape "
                             f"{tuple(weights.shape)}")
        self.weights, self.num_samples = weights, num_samples
        self.replacement, self.generator = replacement, generator

    def __iter__(self) -> Iterator[int]:
        yield from torch.multinomial(self.weights, self.num_samples, self.replacement,
                                     generator=self.generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Groups the indices of another sampler into lists of `batch_size`. The last list is shorter, or
    dropped with `drop_last`.

        >>> list(BatchSampler(range(5), 2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        _check_count("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return _C._batches(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        rest = 0 if self.drop_last else self.batch_size - 1
        return (len(self.sampler) + rest) // self.batch_size


class DistributedSampler(Sampler):
    """Samples this process's share of the indices, in an order drawn by all processes from the same
    seed. All shares have the same length: indices from the start are repeated or, with `drop_last`,
    the last ones are dropped.

    num_replicas, rank: the number of processes and this process's rank. Default: those of the world
    group. seed: the base seed; set_epoch changes the order.

        >>> [list(DistributedSampler("abcde", 2, rank, shuffle=False)) for rank in (0, 1)]
        [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None,
                 shuffle: bool = True, seed: int = 0, drop_last: bool = False) -> None:
        if num_replicas is None or rank is None:
            if not torch.distributed.is_available():
                raise RuntimeError("Requires distributed package to be available")
            num_replicas = torch.distributed.get_world_size() if num_replicas is None else num_replicas
            rank = torch.distributed.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, "
                             f"{num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank, self.epoch = dataset, num_replicas, rank, 0
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        length = len(dataset)
        self.num_samples = length // num_replicas if drop_last else -(-length // num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        length = len(self.dataset)
        order = list(range(length))
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(length, generator=generator).tolist()
        return islice(cycle(order), self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, which makes the next order differ."""
        self.epoch = epoch
