# SPDX-License-Identifier: Apache-2.0
"""DataLoader: options and their checks, and iterators that fetch in this process. Iterators with worker
processes are in _workers.py, imported on first use."""
from __future__ import annotations

import os
import warnings
from functools import partial
from itertools import islice, repeat

import phlox as torch
from phlox import _C

from ._collate import collates_by_default, default_collate, default_convert, pin_memory
from .dataset import IterableDataset, TensorDataset, gather_batch
from .sampler import BatchSampler, RandomSampler, SequentialSampler

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

_C._name_missing(__name__)
worker_info = None  # the result of get_worker_info() in a worker process


def fetch(dataset, collate, batched, index):
    """Fetches the item of an index, or the batch of a list of indices. `collate` None: the default."""
    if not batched:
        return (collate or default_convert)(dataset[index])
    batch = gather_batch(dataset, index) if collate is None and collates_by_default() else None
    if batch is not None:
        return batch
    get_all = getattr(dataset, "__getitems__", None)
    items = get_all(index) if get_all else [dataset[i] for i in index]
    return (collate or default_collate)(items)


def next_batch(items, size, drop_last, collate):
    """Fetches the next batch from an iterator over items (size None: the next item). Raises StopIteration
    at the end."""
    if size is None:
        return (collate or default_convert)(next(items))
    batch = list(islice(items, size))
    if not batch or (drop_last and len(batch) < size):
        raise StopIteration
    return (collate or default_collate)(batch)


class _BaseDataLoaderIter:
    """The base class of iterators over a DataLoader."""


class _SingleProcessDataLoaderIter(map, _BaseDataLoaderIter):
    """An iterator that fetches in this process: a map from the order of indices to batches."""

    def __new__(cls, loader):
        order = repeat(iter(loader.dataset)) if loader._iterable else iter(loader._indices)
        get = partial(fetch, loader.dataset, loader._collate, loader.batch_sampler is not None)
        if type(loader.dataset) is TensorDataset and loader._collate is None and collates_by_default():
            get = partial(_C._rows, loader.dataset, get)
        if loader._iterable:
            get = lambda it: next_batch(it, loader.batch_size, loader.drop_last, loader._collate)
        pins = loader.pin_memory and torch.cuda.is_available()
        self = super().__new__(cls, (lambda i: pin_memory(get(i))) if pins else get, order)
        self.loader = loader
        return self

    def __len__(self):
        return len(self.loader)


# Attributes that are read-only after construction: the sampler depends on them.
_FROZEN = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class DataLoader:
    """Iterates over a dataset in batches, fetched in this process or by worker processes.

    dataset: an object with `__getitem__` and `__len__`, or an IterableDataset.
    batch_size: the number of items in a batch; None disables batching.
    shuffle: if True, each pass has a new random order. sampler, batch_sampler: an iterable of indices,
    or of lists of them. generator: draws the order.
    num_workers: the number of worker processes, each prefetching `prefetch_factor` (2) batches; 0: none.
    persistent_workers keeps them between passes; worker_init_fn(number) runs in each at its start;
    timeout: seconds to wait for a batch; 0: no limit.
    collate_fn: makes a batch from a list of items. Default: default_collate.
    pin_memory: copies batches to pinned memory. drop_last: drops an incomplete last batch.
    in_order: no effect: batches are always in order.

    Raises ValueError for contradictory options.

        >>> for x, y in DataLoader(TensorDataset(torch.arange(3), torch.ones(3)), batch_size=2):
        ...     print(x, y)
        tensor([0, 1]) tensor([1., 1.])
        tensor([2]) tensor([1.])
    """

    _ready = False  # True once __init__ has completed

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Iterable[int] | None = None,
                 batch_sampler: Iterable[list[int]] | None = None, num_workers: int = 0,
                 collate_fn: Callable[[list[Any]], Any] | None = None, pin_memory: bool = False,
                 drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], None] | None = None,
                 multiprocessing_context: Any = None,
                 generator: torch.Generator | None = None, *,
                 prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True) -> None:
        self.dataset, self.num_workers, self.timeout = dataset, num_workers, timeout
        self._collate, self.generator, self.worker_init_fn = collate_fn, generator, worker_init_fn
        self.pin_memory, self.drop_last = bool(pin_memory), drop_last
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers = bool(persistent_workers)
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        self._pool = None  # the iterator with persistent workers
        self._iterable = isinstance(dataset, IterableDataset)
        self._check_workers(prefetch_factor)
        self.multiprocessing_context = multiprocessing_context
        self._check_batching(batch_size, shuffle, sampler, batch_sampler)
        if sampler is None and not self._iterable:
            sampler = (RandomSampler(dataset, generator=generator) if shuffle
                       else SequentialSampler(dataset))
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is not None and not self._iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler, self.batch_size, self.batch_sampler = sampler, batch_size, batch_sampler
        self._warn(pin_memory_device)
        self._ready = True

    def _check_workers(self, prefetch):
        workers = self.num_workers
        if workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to "
                             "disable multiprocessing.")
        if self.timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if workers == 0 and prefetch is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing."
                             "let num_workers > 0 to enable multiprocessing, otherwise set "
                             "prefetch_factor to None.")
        if prefetch is not None and prefetch < 1:
            raise ValueError("prefetch_factor option should be non-negative")
        if workers == 0 and self.persistent_workers:
            raise ValueError("persistent_workers option needs num_workers > 0")

    def _context(self, given):
        if given is None:
            return None
        if self.num_workers == 0:
            raise ValueError("multiprocessing_context can only be used with multi-process loading "
                             "(num_workers > 0), but got num_workers=0")
        import multiprocessing
        methods = multiprocessing.get_all_start_methods()
        if isinstance(given, str) and given not in methods:
            raise ValueError("multiprocessing_context option should specify a valid start method "
                             f"in {methods!r}, but got multiprocessing_context={given!r}")
        if not isinstance(given, (str, multiprocessing.context.BaseContext)):
            raise TypeError("multiprocessing_context option should be a valid context object or a "
                            f"string specifying the start method, but got multiprocessing_context={given}")
        return multiprocessing.get_context(given) if isinstance(given, str) else given

    def _check_batching(self, batch_size, shuffle, sampler, batch_sampler):
        orders = {"shuffle": shuffle, "sampler": sampler, "batch_sampler": batch_sampler}
        for name, given in orders.items() if self._iterable else ():
            if given is not None and given is not False:
                raise ValueError("DataLoader with IterableDataset: expected unspecified "
                                 f"{name} option, but got {name}={given}")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None
                                          or self.drop_last):
            raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, "
                             "sampler, and drop_last")
        if batch_size is None and self.drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually "
                             "exclusive with drop_last")
        if self._iterable and batch_size is not None:
            BatchSampler((), batch_size, self.drop_last)  # checks the arguments

    def _warn(self, pin_device):
        if pin_device:
            warnings.warn("pin_memory_device is deprecated, the current accelerator will be used "
                          f"as the device,ignore pin_memory_device='{pin_device}'.", stacklevel=3)
        count = os.cpu_count()
        if count is not None and self.num_workers > count:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our "
                f"suggested max number of worker in current system is {count}, which is smaller "
                "than what this DataLoader is going to create. Please be aware that excessive "
                "worker creation might get DataLoader running slow or even freeze, lower the "
                "worker number to avoid potential slowness/freeze if necessary.", stacklevel=3)

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any]:
        """The function that collates a list of items, or converts one item if batch_size is None."""
        batched = self.batch_sampler is not None or self.batch_size is not None
        return self._collate or (default_collate if batched else default_convert)

    @property
    def _indices(self):
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __setattr__(self, name, value):
        if self._ready and name in _FROZEN:
            raise ValueError(f"{name} attribute should not be set after DataLoader is initialized")
        object.__setattr__(self, name, self._context(value) if name == "multiprocessing_context" else value)

    def __class_getitem__(cls, item: Any) -> type:
        return cls

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        length = len(self.dataset if self._iterable else self.sampler)
        if not self._iterable or self.batch_size is None:
            return length
        return (length if self.drop_last else length + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Any]:
        if self.pin_memory and not torch.cuda.is_available():
            warnings.warn("'pin_memory' argument is set as true but no accelerator is found, then "
                          "device pinned memory won't be used.", stacklevel=2)
        # Drawn at the start of each pass, used or not: the order of a seeded program depends on it.
        seed = _draw_seed(self.generator)
        if not self.num_workers:
            return _SingleProcessDataLoaderIter(self)
        from . import _workers
        if self._pool is not None and self._pool.workers:  # an error clears its workers
            return self._pool.start(seed)
        started = _workers._MultiProcessingDataLoaderIter(self, seed)
        if self.persistent_workers:
            self._pool = started
        return started


def _draw_seed(generator):
    if generator is None or generator.device.type == "cpu":
        return _C._draw_seed(generator)
    return torch.empty((), dtype=torch.int64, device=generator.device).random_(
        generator=generator).item()


def get_worker_info() -> Any:
    """Returns `id`, `num_workers`, `seed` and `dataset` of the current worker process; None in the main
    process."""
    return worker_info
