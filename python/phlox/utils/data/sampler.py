# SPDX-License-Identifier: Apache-2.0
"""Samplers: orders of indices, and their grouping into batches. A seed gives PyTorch's orders."""
from __future__ import annotations

from itertools import cycle, islice

import phlox as torch
from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Sized
    from typing import Any


_AT_ONCE = 1 << 20  # indices that are drawn before the first is given


def _check_count(name, count):
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={count}")


class Sampler:
    """An order of indices: derive from it, with `__iter__`, and `__len__` where it is known."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __class_getitem__(cls, item: Any) -> type:
        return cls


class SequentialSampler(Sampler):
    """From the first index of `data_source` to the last.

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
    """The indices of `data_source` at random, each once unless with `replacement`.

    num_samples: how many; None: as many as there are. generator: draws them; None: one that the
    default generator seeds.

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
        """How many indices a pass has."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        length, count = len(self.data_source), self.num_samples
        device = self.generator.device if self.generator else None
        if count <= _AT_ONCE and (device is None or device.type == "cpu"):
            return iter(_C._random_order(length, count, self.replacement, self.generator))
        return self._some_at_a_time(length, count)

    def _some_at_a_time(self, length, count):
        generator = self.generator
        if generator is None:
            generator = torch.Generator()
            generator.manual_seed(_C._draw_seed(None))
        options = {"generator": generator, "device": generator.device}
        if self.replacement:
            for done in range(0, count, 32):
                yield from torch.randint(length, (min(32, count - done),), **options).tolist()
            return
        for done in range(0, count + 1, length):  # an order of which nothing is left is drawn too
            yield from torch.randperm(length, **options).tolist()[:count - done]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given `indices` in a random order, drawn by `generator`."""

    def __init__(self, indices: Sequence[int],
                 generator: torch.Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in torch.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """`num_samples` indices, each drawn with the probability that its weight says.

    weights: numbers from 0, as a sequence or a 1-d tensor. replacement: whether an index may come
    again. generator: draws them; None: the default one.
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
        return iter(torch.multinomial(self.weights, self.num_samples, self.replacement,
                                      generator=self.generator).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` indices of another sampler; the last is shorter, or left out with
    `drop_last`.

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
    """The part of the indices that one of several processes takes, in an order that all of them draw
    from the same seed. The parts are of one length: indices from the beginning come twice, or,
    with `drop_last`, the last ones not at all.

    num_replicas, rank: how many processes there are, and which this is; without, those of
    torch.distributed's group of all. seed: of the first pass; set_epoch makes another order.

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
        """Says which pass comes, so that its order is another one."""
        self.epoch = epoch
