# SPDX-License-Identifier: Apache-2.0
"""torch.utils.data: sampling orders (those of PyTorch 1.13.1), collation, worker processes and their failures."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "1")

import doctest
import gc
import multiprocessing
import random
import signal
import sys
import time
import unittest
import warnings
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from types import MappingProxyType
from unittest import mock

import phlox as torch
from phlox.utils.data import (ChainDataset, ConcatDataset, DataLoader, Dataset, DistributedSampler, IterableDataset, StackDataset, RandomSampler, SequentialSampler,
                              Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler, random_split)

Pair = namedtuple("Pair", "x y")


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(i * i), i


class RaisesKeyError(Squares):
    def __getitem__(self, i):
        if i == 3:
            raise KeyError("three")
        return i


class BatchedFetch(Squares):
    def __getitems__(self, indices):
        return [-i for i in indices]


class Exits(Squares):
    def __getitem__(self, i):
        if i == 2:
            os._exit(3)
        return i


class Slow(Squares):
    def __getitem__(self, i):
        time.sleep(30)


class WorkerSeeds(Squares):
    def __getitem__(self, i):
        info = torch.utils.data.get_worker_info()
        return torch.initial_seed() - info.seed, info.id, random.random()


class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        return iter(range(0 if info is None else info.id, 6, 1 if info is None else info.num_workers))


class BatchedItems(Squares):
    def __getitems__(self, indices):
        return [-i for i in indices]


class OwnDict(dict):
    def __init__(self, label, **items):
        super().__init__(**items)
        self.label = label


class ReadOnlyDict(dict):
    def __setitem__(self, key, value):
        raise TypeError("read-only")


class UncopiedDict(dict):
    def __copy__(self):
        raise TypeError("no copy")


class TwoKeys(Mapping):
    def __init__(self, a, b):
        self.items_ = {"a": a, "b": b}

    def __getitem__(self, key):
        return self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


class MutableKeys(TwoKeys, MutableMapping):
    def __setitem__(self, key, value):
        self.items_ = {**self.items_, key: value}

    def __delitem__(self, key):
        raise NotImplementedError


class TwoItems(list):
    def __init__(self, a, b):
        super().__init__([a, b])


class ReadOnlyList(list):
    def __setitem__(self, i, value):
        raise TypeError("read-only")


class Items(Sequence):
    def __init__(self, items):
        self.items_ = list(items)

    def __getitem__(self, i):
        return self.items_[i]

    def __len__(self):
        return len(self.items_)


class ItemsOfTwo(Items):
    def __init__(self, a, b):
        super().__init__((a, b))


class MutableItems(ItemsOfTwo, MutableSequence):
    def __setitem__(self, i, value):
        self.items_ = [*self.items_[:i], value, *self.items_[i + 1:]]

    def __delitem__(self, i):
        raise NotImplementedError

    insert = __delitem__


class Triple(tuple):
    """A plain subclass of tuple."""


class NamedPair(Pair):
    """A subclass of a namedtuple."""


# Containers of two values, and the type of the result: None for the container's own.
CONTAINERS = {
    "dict": (lambda a, b: {"a": a, "b": b}, None),
    "OrderedDict": (lambda a, b: OrderedDict(a=a, b=b), None),
    "defaultdict": (lambda a, b: defaultdict(list, a=a, b=b), None),
    "Counter": (lambda a, b: Counter(a=a, b=b), None),
    "UserDict": (lambda a, b: UserDict(a=a, b=b), None),
    "ChainMap": (lambda a, b: ChainMap({"a": a}, {"b": b}), None),
    "MappingProxyType": (lambda a, b: MappingProxyType({"a": a, "b": b}), None),
    "a dict with its own constructor": (lambda a, b: OwnDict("x", a=a, b=b), None),
    "a dict without item assignment": (lambda a, b: ReadOnlyDict(a=a, b=b), dict),
    "a dict without copies": (lambda a, b: UncopiedDict(a=a, b=b), dict),
    "a Mapping of two arguments": (TwoKeys, dict),
    "a MutableMapping of two arguments": (MutableKeys, None),
    "list": (lambda a, b: [a, b], None),
    "deque": (lambda a, b: deque([a, b], maxlen=2), None),
    "UserList": (lambda a, b: UserList([a, b]), None),
    "a list of two arguments": (TwoItems, None),
    "a list without item assignment": (lambda a, b: ReadOnlyList([a, b]), list),
    "a Sequence": (lambda a, b: Items([a, b]), None),
    "a Sequence of two arguments": (ItemsOfTwo, list),
    "a MutableSequence of two arguments": (MutableItems, None),
    "namedtuple": (Pair, None),
    "a subclass of a namedtuple": (NamedPair, None),
    "tuple": (lambda a, b: (a, b), list),
    "a subclass of tuple": (lambda a, b: Triple((a, b)), list),
}


class NotCollatable:
    """Has no collation rule."""


def numbers(n=10):
    return TensorDataset(torch.arange(n))


def order(loader):
    return [batch[0].tolist() for batch in loader]


def first(dataset):
    torch.manual_seed(0)
    return next(iter(DataLoader(dataset, batch_size=len(dataset))))


class Orders(unittest.TestCase):
    def test_shuffle(self):
        for workers in (0, 2):
            torch.manual_seed(0)
            self.assertEqual(order(DataLoader(numbers(), 4, shuffle=True, num_workers=workers)),
                             [[6, 7, 1, 4], [2, 0, 9, 8], [3, 5]])

    def test_generator(self):
        g = torch.Generator()
        g.manual_seed(5)
        loader = DataLoader(numbers(), 4, shuffle=True, generator=g)
        self.assertEqual(order(loader), [[7, 4, 8, 1], [2, 3, 6, 5], [9, 0]])
        self.assertEqual(order(loader), [[2, 1, 6, 3], [5, 9, 4, 7], [8, 0]])

    def test_samplers(self):
        ten = list(range(10))
        torch.manual_seed(0)
        self.assertEqual(list(RandomSampler(ten)), [6, 9, 0, 7, 3, 5, 4, 2, 1, 8])
        torch.manual_seed(0)
        self.assertEqual(list(RandomSampler(ten, replacement=True)), [6, 0, 4, 3, 9, 5, 7, 8, 9, 1])
        torch.manual_seed(0)
        self.assertEqual(list(RandomSampler(ten, num_samples=25))[-5:], [0, 7, 9, 3, 8])
        g = torch.Generator()
        g.manual_seed(3)
        self.assertEqual([list(SubsetRandomSampler([5, 6, 7], generator=g)) for _ in range(2)], [[6, 5, 7], [6, 7, 5]])
        self.assertEqual(list(SequentialSampler(ten)), ten)

    def test_weighted_sampler(self):
        weights = [.1, .9, .4, .7, 3., .6]
        torch.manual_seed(0)
        drawn = [list(WeightedRandomSampler(weights, n, replace)) for n, replace in ((10, True), (6, False), (1, True))]
        self.assertEqual(drawn, [[5, 4, 4, 5, 4, 4, 2, 3, 4, 3], [1, 4, 5, 2, 3, 0], [4]])
        torch.manual_seed(1)
        sampler = WeightedRandomSampler(torch.tensor(weights), 5)
        self.assertEqual(order(DataLoader(numbers(6), 2, sampler=sampler)), [[2, 2], [2, 4], [1]])
        self.assertEqual((len(sampler), sampler.num_samples, sampler.replacement, sampler.generator), (5, 5, True, None))
        self.assertEqual((sampler.weights.dtype, sampler.weights.shape), (torch.float64, (6,)))
        for count in (0, -1, True, 2.5):
            with self.assertRaisesRegex(ValueError, f"num_samples should be a positive integer value, but got num_samples={count}"):
                WeightedRandomSampler(weights, count)
        with self.assertRaisesRegex(ValueError, "replacement should be a boolean value, but got replacement=1"):
            WeightedRandomSampler(weights, 2, 1)
        with self.assertRaisesRegex(ValueError, r"given weights have shape \(1, 2\)"):
            WeightedRandomSampler([[1., 2.]], 2)
        with self.assertRaisesRegex(RuntimeError, "cannot sample n_sample > prob_dist.size"):
            list(WeightedRandomSampler(weights, 7, False))
        with self.assertRaisesRegex(TypeError, "must be torch.Generator, not int"):
            WeightedRandomSampler(weights, 2, generator=5)

    def test_random_split(self):
        torch.manual_seed(0)
        a, b = random_split(numbers(), [7, 3])
        self.assertEqual((list(a.indices), list(b.indices)), ([4, 1, 7, 5, 3, 9, 0], [8, 6, 2]))
        self.assertEqual((len(a), b[0][0].item()), (7, 8))
        self.assertEqual([len(part) for part in random_split([1, 2, 3, 4], [0.3, 0.7])], [2, 2])
        for parts in [0.1], [0.1, 0.2], [0.5, 0.6], [1, 2]:
            self.assertRaisesRegex(ValueError, "Sum of input lengths does not equal", random_split, [1, 2, 3, 4], parts)
        with self.assertRaisesRegex(ValueError, "Sum of input lengths does not equal the length of the input dataset!"):
            random_split(numbers(), [7, 4])

    def test_lengths(self):
        self.assertEqual(len(DataLoader(numbers(), 4)), 3)
        self.assertEqual(len(DataLoader(numbers(), 4, drop_last=True)), 2)
        self.assertEqual(order(DataLoader(numbers(), 4, drop_last=True)), [[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual(order(DataLoader(Subset(numbers(), [9, 2]))), [[9], [2]])

    def test_getitems(self):
        self.assertEqual([b.tolist() for b in DataLoader(BatchedItems(3), 2)], [[0, -1], [-2]])

    def test_negative_and_tensor_indices(self):
        for order_ in ([[-1, 0]], [[torch.tensor(9), torch.tensor(0)]]):
            self.assertEqual(order(DataLoader(numbers(), batch_sampler=order_)), [[9, 0]])
        with self.assertRaisesRegex(IndexError, "out of"):
            order(DataLoader(numbers(), batch_sampler=[[10]]))

    def test_custom_samplers(self):
        self.assertEqual(order(DataLoader(numbers(), 2, sampler=[3, 1, 2])), [[3, 1], [2]])
        self.assertEqual(order(DataLoader(numbers(), batch_sampler=[[5], [1, 0]])), [[5], [1, 0]])
        self.assertEqual([x.item() for x, in DataLoader(numbers(3), batch_size=None)], [0, 1, 2])


    def test_iterable_dataset_rejects_samplers(self):
        for name, value in (("shuffle", True), ("sampler", [1]), ("batch_sampler", [[1]])):
            with self.assertRaisesRegex(ValueError, "DataLoader with IterableDataset: expected unspecified "
                                                    f"{name} option, but got {name}="):
                DataLoader(Stream(), **{name: value})

    def test_datasets_are_iterable(self):
        both = ConcatDataset([range(2), Subset(range(9), [5, 7])])
        self.assertEqual(list(both), [0, 1, 5, 7])
        self.assertEqual([row[0].item() for row in numbers(3)], [0, 1, 2])
        self.assertEqual((both[-1], both[-4]), (7, 0))
        self.assertRaisesRegex(ValueError, "absolute value of index should not exceed dataset length", lambda: both[-5])

    def test_invalid_options(self):
        for wrong in (0, -1):
            with self.assertRaisesRegex(ValueError, "prefetch_factor option should be non-negative"):
                DataLoader(numbers(), num_workers=1, prefetch_factor=wrong)
        with self.assertRaisesRegex(ValueError, "drop_last should be a boolean value, but got drop_last=5"):
            DataLoader(numbers(), drop_last=5)
        with self.assertRaisesRegex(TypeError, "replacement should be a boolean value, but got replacement=5"):
            RandomSampler(range(3), replacement=5)


class Collation(unittest.TestCase):
    def test_kinds(self):
        tensors, numbers_ = first(Squares(3))
        self.assertEqual((tensors.tolist(), numbers_.tolist(), numbers_.dtype), ([0, 1, 4], [0, 1, 2], torch.int64))
        floats = first([0.5, 1.5])
        self.assertEqual((floats.dtype, floats.tolist()), (torch.float64, [0.5, 1.5]))
        self.assertEqual(first(["a", "b"]), ["a", "b"])
        pair = first([Pair(1, "a"), Pair(2, "b")])
        self.assertIsInstance(pair, Pair)
        self.assertEqual((pair.x.tolist(), pair.y), ([1, 2], ("a", "b")))
        named = first([{"k": (1, torch.ones(2))}, {"k": (2, torch.zeros(2))}])
        self.assertEqual((named["k"][0].tolist(), named["k"][1].shape), ([1, 2], (2, 2)))
        self.assertIsInstance(named["k"], list)

    def test_collate_strings(self):
        self.assertEqual(torch.utils.data.default_collate([(1, "a"), (2, "b")])[1], ("a", "b"))
        self.assertEqual(torch.utils.data.default_collate([{"k": "a"}, {"k": "b"}]), {"k": ["a", "b"]})
        self.assertEqual(torch.utils.data.default_collate(["a", "b"]), ["a", "b"])

    def test_collate_mappings_and_sequences(self):
        batch = first([UserDict(a=1), UserDict(a=2)])
        self.assertEqual((type(batch), batch["a"].tolist()), (UserDict, [1, 2]))
        self.assertEqual([column.tolist() for column in first([range(2), range(2)])], [[0, 0], [1, 1]])

    def test_pin_memory_keeps_mappings(self):
        loader = DataLoader([UserDict(a=1.0), UserDict(a=2.0)], 2, pin_memory=True)
        batch = next(iter(loader))
        self.assertEqual((type(batch), batch["a"].is_pinned()), (UserDict, True))
        on_device = torch.ones(1, device="cuda")
        with self.assertRaisesRegex(RuntimeError, "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be"):
            next(iter(DataLoader([on_device], pin_memory=True)))

    def check_containers(self, function, tuples):
        for name, (make, kind) in CONTAINERS.items():
            with self.subTest(name):
                sample = make(torch.tensor([1.0]), torch.tensor([2.0]))
                vars(sample).update(note="kept") if hasattr(sample, "__dict__") else None
                result = function(sample)
                kind = kind or type(sample)
                if isinstance(sample, tuple) and not hasattr(sample, "_fields"):
                    kind = tuples or type(sample)
                self.assertIs(type(result), kind)
                values = [result[k] for k in "ab"] if isinstance(result, Mapping) else list(result)
                self.assertEqual([value.flatten().tolist() for value in values], [[1.0], [2.0]])
                if isinstance(sample, (MutableMapping, MutableSequence)) and kind is type(sample):
                    self.assertEqual(getattr(result, "note", "kept"), "kept")
                yield sample, result

    def test_collate_keeps_containers(self):
        for sample, result in self.check_containers(lambda sample: torch.utils.data.default_collate([sample]), list):
            self.assertEqual((getattr(result, "label", "x"), getattr(result, "maxlen", 2)), ("x", 2))

    def test_loader_keeps_containers(self):
        for batch_size in (1, None):
            for pins in (False, True):
                list(self.check_containers(lambda sample: next(iter(DataLoader([sample], batch_size, pin_memory=pins))), list))

    def test_collate_does_not_add_to_the_counts_of_a_counter(self):
        counts = first([Counter(a=1), Counter(a=2)])
        self.assertEqual((type(counts), counts["a"].tolist()), (Counter, [1, 2]))

    def test_convert_keeps_containers(self):
        for sample, result in self.check_containers(torch.utils.data.default_convert, list):
            self.assertEqual((result is sample, getattr(result, "label", "x")), (False, "x"))

    def test_pin_memory_keeps_containers(self):
        for sample, result in self.check_containers(torch.utils.data._utils.pin_memory.pin_memory, None):
            values = result.values() if isinstance(result, Mapping) else result
            self.assertTrue(all(value.is_pinned() for value in values))

    def test_sequences_without_a_constructor_become_lists(self):
        for sample in (range(2), bytearray(b"ab"), memoryview(b"ab")):
            self.assertEqual([column.tolist() for column in torch.utils.data.default_collate([sample, sample])],
                             [[i, i] for i in sample])

    def test_objects_pin_themselves(self):
        for base in (object, dict, list, tuple, str):
            sample = type("Own", (base,), {"pin_memory": lambda self: "pinned"})()
            self.assertEqual(torch.utils.data._utils.pin_memory.pin_memory([sample]), ["pinned"])
        packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
        self.assertTrue(torch.utils.data._utils.pin_memory.pin_memory(packed).data.is_pinned())

    def test_collate_calls_the_functions_of_a_type(self):
        functions = torch.utils.data._utils.collate.default_collate_fn_map
        own = {NotCollatable: lambda batch, *, collate_fn_map: len(batch),
               torch.Tensor: lambda batch, *, collate_fn_map: list(batch)}
        with mock.patch.dict(functions, own):
            sample = {"x": (NotCollatable(), torch.ones(1))}
            self.assertEqual(first([sample, sample]), {"x": [2, [torch.ones(1), torch.ones(1)]]})
            self.assertEqual(type(next(iter(DataLoader(numbers(2), 2)))[0]), list)
            self.assertEqual(type(next(iter(DataLoader(Subset(numbers(2), [1, 0]), 2)))[0]), list)
        self.assertEqual(next(iter(DataLoader(numbers(2), 2)))[0].tolist(), [0, 1])

    def test_numpy_scalars_and_arrays(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        collate, convert = torch.utils.data.default_collate, torch.utils.data.default_convert
        for name in "bool_ int8 uint8 int16 int32 int64 float16 float32 float64 complex64 complex128".split():
            number = getattr(numpy, name)(1)
            dtype = getattr(torch, name.rstrip("_"))
            self.assertEqual((collate([number, number]).dtype, convert(number).dtype), (dtype, dtype), name)
            array = numpy.ones(2, number.dtype)
            for given in (array, array.view(type("Own", (numpy.ndarray,), {})), numpy.ma.array(array)):
                self.assertEqual(collate([given]).dtype, dtype)
            self.assertEqual(convert([array])[0].dtype, dtype)
        text = numpy.array(["a"])
        self.assertIs(convert(text), text)
        with self.assertRaisesRegex(TypeError, "^default_collate: batch must contain tensors, .* found <U1$"):
            collate([text])

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        batch = first([numpy.ones(2, dtype="float32"), numpy.zeros(2, dtype="float32")])
        self.assertEqual((batch.dtype, batch.tolist()), (torch.float32, [[1, 1], [0, 0]]))

    def test_errors(self):
        with self.assertRaises(TypeError) as caught:
            first([NotCollatable()])
        self.assertIn("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class",
                      str(caught.exception))
        with self.assertRaisesRegex(RuntimeError, "each element in list of batch should be of equal size"):
            first([[1, 2], [1]])
        with self.assertRaisesRegex(RuntimeError, r"stack expects each tensor to be equal size, but got \[1\] at entry 0 and "
                                                  r"\[2\] at entry 1"):
            first([torch.ones(1), torch.ones(2)])

    def test_collate_fn(self):
        loader = DataLoader(list(range(4)), 2, collate_fn=sum)
        self.assertEqual(list(loader), [1, 5])

    def test_pin_memory(self):
        if not torch.cuda.is_available():
            self.skipTest("requires a device")
        for workers in (0, 1):
            tensors, plain = next(iter(DataLoader(Squares(2), 2, pin_memory=True, num_workers=workers)))
            self.assertTrue(tensors.is_pinned() and plain.is_pinned())


class Options(unittest.TestCase):
    def test_option_errors(self):
        for options, text in (
            (dict(num_workers=-1), "num_workers option should be non-negative; use num_workers=0 to disable "
                                   "multiprocessing."),
            (dict(timeout=-1), "timeout option should be non-negative"),
            (dict(prefetch_factor=2), "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 "
                                      "to enable multiprocessing, otherwise set prefetch_factor to None."),
            (dict(persistent_workers=True), "persistent_workers option needs num_workers > 0"),
            (dict(sampler=[0], shuffle=True), "sampler option is mutually exclusive with shuffle"),
            (dict(batch_sampler=[[0]], batch_size=2), "batch_sampler option is mutually exclusive with batch_size, shuffle, "
                                                      "sampler, and drop_last"),
            (dict(batch_size=None, drop_last=True), "batch_size=None option disables auto-batching and is mutually exclusive "
                                                    "with drop_last"),
            (dict(batch_size=0), "batch_size should be a positive integer value, but got batch_size=0"),
        ):
            with self.subTest(**options):
                with self.assertRaises(ValueError) as caught:
                    DataLoader(numbers(), **options)
                self.assertEqual(str(caught.exception), text)
        with self.assertRaises(ValueError) as caught:
            DataLoader(numbers(0), shuffle=True)
        self.assertEqual(str(caught.exception), "num_samples should be a positive integer value, but got num_samples=0")

    def test_attributes_are_read_only(self):
        loader = DataLoader(numbers())
        with self.assertRaises(ValueError) as caught:
            loader.batch_size = 3
        self.assertEqual(str(caught.exception),
                         "batch_size attribute should not be set after DataLoader is initialized")

    def test_tensor_dataset_size_mismatch(self):
        with self.assertRaisesRegex(AssertionError, "Size mismatch between tensors"):
            TensorDataset(torch.ones(2), torch.ones(3))


class Documentation(unittest.TestCase):
    def test_examples(self):
        data = torch.utils.data
        for module in (data.dataset, data.sampler, data.dataloader, data._collate):
            found = doctest.testmod(module, extraglobs={**vars(data), "torch": torch})
            self.assertEqual((found.failed, found.attempted > 0), (0, True), module)


class Workers(unittest.TestCase):
    def test_order_and_values(self):
        for workers in (1, 3):
            loader = DataLoader(Squares(10), 3, num_workers=workers)
            for _ in range(2):
                self.assertEqual(order(loader), [[0, 1, 4], [9, 16, 25], [36, 49, 64], [81]])

    def test_worker_seeds(self):
        torch.manual_seed(0)
        batches = list(DataLoader(WorkerSeeds(4), 1, num_workers=2))
        self.assertEqual([b[0].item() for b in batches], [0] * 4)
        self.assertEqual([b[1].item() for b in batches], [0, 1, 0, 1])
        torch.manual_seed(0)
        again = list(DataLoader(WorkerSeeds(4), 1, num_workers=2))
        self.assertEqual([b[2].item() for b in batches], [b[2].item() for b in again])
        self.assertIsNone(torch.utils.data.get_worker_info())

    def test_iterable_dataset(self):
        self.assertEqual([b.tolist() for b in DataLoader(Stream(), 4)], [[0, 1, 2, 3], [4, 5]])
        self.assertEqual(sorted(i for b in DataLoader(Stream(), 2, num_workers=2) for i in b.tolist()), list(range(6)))

    def test_exception_in_worker(self):
        with self.assertRaises(KeyError) as caught:
            list(DataLoader(RaisesKeyError(5), 1, num_workers=1))
        text = str(caught.exception.args[0])
        self.assertTrue(text.startswith("Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent "
                                        "call last):"), text)
        with self.assertRaisesRegex(KeyError, "^'three'$"):
            list(DataLoader(RaisesKeyError(5), 1))

    def test_worker_exit(self):
        with self.assertRaisesRegex(RuntimeError, r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly"):
            list(DataLoader(Exits(5), 1, num_workers=1))

    def test_timeout(self):
        with self.assertRaisesRegex(RuntimeError, "DataLoader timed out after 1 seconds"):
            list(DataLoader(Slow(2), 1, num_workers=1, timeout=1))

    def test_hanging_worker_is_killed(self):
        others = multiprocessing.active_children()
        loader = iter(DataLoader(Slow(2), 1, num_workers=1, timeout=1))
        workers = [worker for worker in multiprocessing.active_children() if worker not in others]
        self.assertRaisesRegex(RuntimeError, "timed out after 1 seconds", next, loader)
        self.assertEqual([worker.exitcode for worker in workers], [-signal.SIGKILL])

    def test_early_exit(self):
        iterator = iter(DataLoader(Squares(100), 1, num_workers=2))
        next(iterator)
        del iterator

    def test_persistent_workers(self):
        loader = DataLoader(Squares(4), 2, num_workers=1, persistent_workers=True)
        self.assertEqual([order(loader) for _ in range(2)], [[[0, 1], [4, 9]]] * 2)

    def test_early_exit_of_persistent_workers_leaves_no_batches(self):
        loader = DataLoader(numbers(20), 2, shuffle=True, num_workers=2, persistent_workers=True)
        for _ in range(3):
            next(iter(loader))
            self.assertEqual(sorted(i for batch in order(loader) for i in batch), list(range(20)))

    def test_garbage_collected_iterator_ends_workers(self):
        others, wrong, context = multiprocessing.active_children(), [], multiprocessing.get_context("fork")
        pipes = [context.Pipe(duplex=False) for _ in range(2)]
        loader = DataLoader(Squares(4), 2, num_workers=2, persistent_workers=True, multiprocessing_context=context)
        with mock.patch.object(context, "Pipe", lambda duplex: pipes.pop()), mock.patch.object(sys, "unraisablehook", wrong.append):
            next(iter(loader))
            workers = [worker for worker in multiprocessing.active_children() if worker not in others]
            del loader
            gc.collect()
        self.assertEqual(wrong, [])
        self.assertEqual([worker.is_alive() for worker in workers], [False, False])

    def test_persistent_workers_with_iterable_dataset(self):
        loader = DataLoader(Stream(), 2, num_workers=2, persistent_workers=True)
        for _ in range(2):
            self.assertEqual(sorted(i for batch in loader for i in batch.tolist()), list(range(6)))

    def test_iteration_continues_after_exception(self):
        iterator, got = iter(DataLoader(RaisesKeyError(12), 1, num_workers=2)), []
        while len(got) < 12:
            try:
                got.append(next(iterator).item())
            except KeyError:
                got.append("error")
        self.assertEqual(got, [0, 1, 2, "error", *range(4, 12)])
        self.assertRaises(StopIteration, next, iterator)

    def test_unpicklable_batch_raises(self):
        for collate, kind in ((lambda items: lambda: 1, AttributeError),
                              (lambda items: torch.ones(1, requires_grad=True) * 2, RuntimeError)):
            with self.assertRaisesRegex(kind, f"Caught {kind.__name__} in DataLoader worker process 0"):
                list(DataLoader(Squares(4), 2, num_workers=1, collate_fn=collate))

    def test_multiprocessing_contexts(self):
        import multiprocessing
        for context in ("fork", "spawn", "forkserver", multiprocessing.get_context("spawn")):
            loader = DataLoader(Squares(6), 2, num_workers=2, multiprocessing_context=context)
            self.assertEqual([x.tolist() for x, *_ in loader], [x.tolist() for x, *_ in DataLoader(Squares(6), 2)])
            self.assertEqual(loader.multiprocessing_context.get_start_method(), context if isinstance(context, str) else "spawn")

    def test_multiprocessing_context_setter_validates(self):
        loader, here = DataLoader(Squares(4), num_workers=1), DataLoader(Squares(4))
        loader.multiprocessing_context = "spawn"
        self.assertEqual(loader.multiprocessing_context.get_start_method(), "spawn")
        for given, kind, text in ((3, TypeError, "^multiprocessing_context option should be a valid context object or a string specifying the start method, but got "
                                                 "multiprocessing_context=3$"), ("zig", ValueError, "should specify a valid start method in .*but got multiprocessing_context='zig'$")):
            with self.assertRaisesRegex(kind, text):
                loader.multiprocessing_context = given
            with self.assertRaisesRegex(kind, text):
                DataLoader(Squares(4), num_workers=1, multiprocessing_context=given)
        with self.assertRaisesRegex(ValueError, "can only be used with multi-process loading"):
            here.multiprocessing_context = "spawn"
        self.assertEqual((loader.multiprocessing_context.get_start_method(), here.multiprocessing_context, loader.in_order), ("spawn", None, True))

    def test_unpicklable_dataset_raises_once(self):
        dataset = Squares(4)
        dataset.hidden = lambda: 1
        with mock.patch("sys.unraisablehook") as unraisable:
            with self.assertRaises(AttributeError):
                list(DataLoader(dataset, num_workers=1, multiprocessing_context="spawn"))
            gc.collect()
        unraisable.assert_not_called()


class SamplerProtocol(unittest.TestCase):
    def test_very_long_sampler_starts_immediately(self):
        order = iter(RandomSampler(range(3), replacement=True, num_samples=10**10))
        self.assertIn(next(order), (0, 1, 2))
        self.assertIn(next(iter(RandomSampler(range(3), num_samples=10**10))), (0, 1, 2))

    def test_sampler_is_read_lazily(self):
        begun = []

        class Order(torch.utils.data.Sampler):
            def __iter__(self):
                begun.append(True)
                return iter([2, 0, 1])
        for drop_last, batches in ((False, [[2, 0], [1]]), (True, [[2, 0]])):
            order = iter(torch.utils.data.BatchSampler(Order(), 2, drop_last))
            self.assertEqual(begun, [])
            self.assertEqual(list(order), batches)
            self.assertEqual([next(order, None), begun.pop()], [None, True])

    def test_exhausted_sampler_is_not_resumed(self):
        class Order:
            """Ends after three items, but returns more if called again."""
            def __init__(self): self.count = 0
            def __iter__(self): return self
            def __next__(self):
                self.count += 1
                if self.count == 4:
                    raise StopIteration
                return self.count
        for drop_last in (False, True):
            order = iter(torch.utils.data.BatchSampler(Order(), 2, drop_last))
            self.assertEqual(list(order), [[1, 2]] if drop_last else [[1, 2], [3]])
            self.assertEqual(list(order), [])

    def test_dataset_is_read_lazily(self):
        dataset = TensorDataset(torch.arange(4))
        batches = iter(DataLoader(dataset, batch_size=2))
        self.assertEqual(next(batches)[0].tolist(), [0, 1])
        dataset.tensors = (torch.arange(4) * 10,)
        self.assertEqual(next(batches)[0].tolist(), [20, 30])
        self.assertRaises(StopIteration, next, batches)

    def test_sampler_of_tensors(self):
        tensor_indices = [torch.tensor(1), torch.tensor(-1)]
        self.assertEqual(next(iter(DataLoader(TensorDataset(torch.arange(4)), sampler=tensor_indices, batch_size=2)))[0].tolist(), [1, 3])

    def test_chunked_draws_match_one_draw(self):
        from phlox.utils.data import sampler
        for replacement, count in ((True, 100), (True, 64), (False, 10), (False, 14), (False, 3)):
            for seeded in (True, False):
                runs = []
                for at_once in (1 << 20, 0):
                    torch.manual_seed(5)
                    generator = torch.Generator().manual_seed(3) if seeded else None
                    with mock.patch.object(sampler, "_AT_ONCE", at_once):
                        runs.append(list(RandomSampler(range(5), replacement, count, generator)))
                    runs.append(torch.rand(2, generator=generator).tolist())
                self.assertEqual(runs[:2], runs[2:], (replacement, count, seeded))

    def test_getitems_is_called_once_per_batch(self):
        for dataset in (BatchedFetch(6), Subset(BatchedFetch(6), range(6))):
            for workers in (0, 1):
                loader = DataLoader(dataset, 3, num_workers=workers)
                self.assertEqual([b.tolist() for b in loader], [[0, -1, -2], [-3, -4, -5]])
        self.assertEqual(Subset(range(10), [5, 7]).__getitems__([1, 0]), [7, 5])

    def test_batch_size_none_converts_items(self):
        data = TensorDataset(torch.arange(2), torch.ones(2))
        for workers in (0, 1):
            self.assertEqual([(type(item), len(item)) for item in DataLoader(data, batch_size=None, num_workers=workers)], [(list, 2)] * 2)
        convert = DataLoader(data, batch_size=None).collate_fn
        self.assertEqual(convert(({"a": (1, "text")}, Pair(1, 2), b"x", None)), [{"a": [1, "text"]}, Pair(1, 2), b"x", None])

    @unittest.skipUnless(torch.cuda.is_available(), "requires a device")
    def test_device_datasets_and_generators(self):
        data = TensorDataset(torch.arange(8.0, device="cuda"), torch.arange(8, device="cuda"))
        for loader in (DataLoader(data, 4, shuffle=True), DataLoader(random_split(data, [6, 2])[0], 4)):
            x, y = next(iter(loader))
            self.assertTrue(x.is_cuda and y.is_cuda and torch.equal(x.long(), y) and len(x) == 4)
        generator = torch.Generator("cuda").manual_seed(1)
        orders = [sorted(torch.cat([y for _, y in DataLoader(data, 3, shuffle=True, generator=generator)]).tolist()) for _ in range(2)]
        self.assertEqual(orders, [list(range(8))] * 2)

    def test_default_device(self):
        torch.set_default_device("cuda")
        try:
            self.assertTrue(torch.utils.data.default_collate([1.0, 2.0]).is_cuda)
            parts = [random_split(range(4), [2, 2], generator=torch.Generator("cuda").manual_seed(3)) for _ in range(2)]
            self.assertEqual(*([list(part.indices) for part in split] for split in parts))
            self.assertEqual(sorted(parts[0][0].indices + parts[0][1].indices), [0, 1, 2, 3])
        finally:
            torch.set_default_device(None)


class Counted(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))

    def __len__(self):
        return self.count


class Doubled(Subset):
    def __getitem__(self, i):
        return 2 * super().__getitem__(i)


class CombinedDatasets(unittest.TestCase):
    def test_subset_with_its_own_item_needs_own_items(self):
        with self.assertRaisesRegex(NotImplementedError, "^Doubled overrides __getitem__ but not __getitems__. When subclassing Subset"):
            Doubled([1, 2], [0])
        both = type("Both", (Doubled,), {"__getitems__": lambda self, indices: [self[i] for i in indices]})
        self.assertEqual(next(iter(DataLoader(both([1, 2], [1, 0]), 2))).tolist(), [4, 2])

    def test_overridden_item_serves_batches_of_combined_datasets(self):
        late = type("Late", (Doubled,), {"__init__": lambda self: None})()
        late.dataset, late.indices = [1, 2], [1, 0]
        self.assertEqual(next(iter(DataLoader(late, 2))).tolist(), [4, 2])
        negated = type("Negated", (StackDataset,), {"__getitem__": lambda self, i: -self.datasets[0][i]})([1, 2], [3, 4])
        self.assertEqual(next(iter(DataLoader(negated, 2))).tolist(), [-1, -2])

    def test_stack_dataset_checks_the_lengths_of_batches(self):
        short = type("Short", (Squares,), {"__getitems__": lambda self, indices: [0]})(3)
        for dataset in (StackDataset(short), StackDataset(a=short)):
            with self.assertRaisesRegex(ValueError, "^Nested dataset's output size mismatch. Expected 2, got 1$"):
                next(iter(DataLoader(dataset, 2)))

    def test_chain_dataset(self):
        chain = Counted(2) + Counted(3)
        self.assertEqual((type(chain).__name__, list(chain), len(chain)), ("ChainDataset", [0, 1, 0, 1, 2], 5))
        self.assertEqual([b.tolist() for b in DataLoader(chain, 2)], [[0, 1], [0, 1], [2]])
        with self.assertRaisesRegex(AssertionError, "ChainDataset only supports IterableDataset"):
            list(ChainDataset([[1]]))
        with self.assertRaisesRegex(AssertionError, "ConcatDataset does not support IterableDataset"):
            ConcatDataset([Counted(1)])

    def test_stack_dataset(self):
        pairs, named = StackDataset([1, 2, 3], "abc"), StackDataset(x=BatchedFetch(3), y=[5, 6, 7])
        self.assertEqual((pairs[1], len(pairs), pairs.__getitems__([2, 0])), ((2, "b"), 3, [(3, "c"), (1, "a")]))
        self.assertEqual([b["y"].tolist() for b in DataLoader(named, 2)], [[5, 6], [7]])
        for make, text in ((lambda: StackDataset(), "At least one dataset should be passed"), (lambda: StackDataset([1], [1, 2]), "Size mismatch between datasets"),
                           (lambda: StackDataset([1], x=[1]), "but both types are given")):
            with self.assertRaisesRegex(ValueError, text):
                make()

    def test_distributed_sampler_partitions_dataset(self):
        for length, count, drop in ((10, 3, False), (10, 3, True), (4, 9, False), (8, 4, True)):
            parts = [DistributedSampler(range(length), count, rank, seed=3, drop_last=drop) for rank in range(count)]
            orders = []
            for epoch in range(2):
                for part in parts:
                    part.set_epoch(epoch)
                drawn = [list(part) for part in parts]
                self.assertEqual({len(part) for part in drawn}, {len(parts[0])})
                orders.append([i for group in zip(*drawn) for i in group])
                if not drop:
                    self.assertEqual(set(orders[-1]), set(range(length)))
                if drop:
                    self.assertEqual(len(set(orders[-1])), len(orders[-1]))
            self.assertNotEqual(orders[0], orders[1])
            first = torch.randperm(length, generator=torch.Generator().manual_seed(3)).tolist()
            self.assertEqual(orders[0][:length], first[:len(orders[0])])
        with self.assertRaisesRegex(ValueError, r"^Invalid rank 2, rank should be in the interval \[0, 1\]$"):
            DistributedSampler([1], 2, 2)
        there = torch.distributed.is_available()
        text = "Default process group has not been initialized" if there else "^Requires distributed package to be available$"
        with self.assertRaisesRegex(ValueError if there else RuntimeError, text):
            DistributedSampler([1])


if __name__ == "__main__":
    unittest.main()
