# SPDX-License-Identifier: Apache-2.0
"""torch.save files: contents, the weights_only allowlist, malicious files, and interchange with PyTorch."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import argparse
import copy
import errno
import gc
import io
import itertools
import mmap
import pickle
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque

import phlox as torch
from phlox import nn

UnpicklingError = pickle.UnpicklingError


class Own:
    def __init__(self):
        self.x = torch.ones(2)


class WithState(Own):
    def __setstate__(self, state):
        self.x, self.seen = state["x"], True


class Tagged(torch.Tensor):
    pass


def saved_buffer(thing, **options):
    buffer = io.BytesIO()
    torch.save(thing, buffer, **options)
    buffer.seek(0)
    return buffer


def round_trip(thing, loading={}, **options):
    return torch.load(saved_buffer(thing, **options), **loading)


class ZipFormat(unittest.TestCase):
    """The zip format; a subclass runs the same tests with the legacy format."""
    options = {}

    def round_trip(self, thing, **loading):
        return round_trip(thing, loading, **self.options)

    def test_views_share_memory(self):
        base = torch.arange(6.0)
        back = self.round_trip({"base": base, "view": base[2:4], "t": torch.arange(6).view(2, 3).t()})
        back["view"][0] = 50
        self.assertEqual(back["base"].tolist(), [0, 1, 50, 3, 4, 5])
        self.assertEqual((back["t"].stride(), back["t"].tolist()), ((1, 3), [[0, 3], [1, 4], [2, 5]]))
        self.assertEqual((back["view"].storage_offset(), back["view"]._base), (2, None))

    def test_tied_weights(self):
        a = nn.Linear(2, 2)
        back = self.round_trip(OrderedDict(a=a.weight, b=a.weight, c=a.weight.detach()))
        self.assertIs(back["a"], back["b"])
        self.assertEqual(back["a"].untyped_storage().data_ptr(), back["c"].untyped_storage().data_ptr())

    def test_weights_only_allowlist(self):
        things = [b"ab", bytearray(b"xy"), {1, 2}, 1j, Counter("aab"), OrderedDict(a=1), torch.float16, torch.device("cuda:1"),
                  torch.Size([2, 3]), torch.strided, 2**100, -2**31, 70000, "\u00e9\0", (1,), [[], {}, ()]]
        back = self.round_trip(things)
        self.assertEqual([type(t) for t in back], [type(t) for t in things])
        self.assertEqual(back, things)

    def test_parameters_and_attributes(self):
        p, t = nn.Parameter(torch.ones(2), requires_grad=False), torch.ones(1, requires_grad=True)
        p.note, t.note = "p", ["t"]
        q, u = self.round_trip((p, t))
        self.assertEqual((type(q), q.requires_grad, q.note), (nn.Parameter, False, "p"))
        self.assertEqual((type(u), u.requires_grad, u.note, u.is_leaf), (torch.Tensor, True, ["t"], True))

    def test_dtypes(self):
        for name in "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split():
            t = torch.tensor([0, 1, 1], dtype=getattr(torch, name))
            self.assertTrue(torch.equal(self.round_trip(t), t), name)
            self.assertEqual(self.round_trip(torch.empty(0, 3, dtype=t.dtype)).shape, (0, 3))

    def test_storages(self):
        t = torch.arange(3.0)
        storage, same = self.round_trip([t.storage(), t])
        self.assertEqual((storage.tolist(), storage.dtype), ([0, 1, 2], torch.float32))
        self.assertEqual(storage.data_ptr(), same.data_ptr())

    def test_objects_and_modules_need_weights_only_false(self):
        for thing in (Own(), argparse.Namespace(a=torch.ones(2)), nn.Sequential(nn.Linear(2, 2), nn.ReLU()), defaultdict(list, a=[1])):
            with self.assertRaisesRegex(UnpicklingError, "(?s)Weights only load failed.*Unsupported global: GLOBAL"):
                self.round_trip(thing)
            self.assertIs(type(self.round_trip(thing, weights_only=False)), type(thing))
        self.assertEqual(str(self.with_safe_globals(nn.Sequential(nn.ReLU()), [nn.Sequential, nn.ReLU])), "Sequential(\n  (0): ReLU()\n)")
        net = nn.Linear(2, 2)
        self.assertTrue(torch.equal(self.round_trip(net, weights_only=False).weight, net.weight))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        self.assertEqual(self.round_trip(optimizer, weights_only=False).param_groups[0]["lr"], 0.5)

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        a = numpy.arange(3)
        self.assertEqual(self.round_trip([a], weights_only=False)[0].tolist(), [0, 1, 2])
        with self.assertRaisesRegex(UnpicklingError, r"GLOBAL numpy.*_reconstruct was not an allowed global by default"):
            self.round_trip(a)

    def test_tensor_subclasses(self):
        t = torch.ones(2).as_subclass(Tagged)
        t.note = 3
        with self.assertRaises(UnpicklingError):
            self.round_trip(t)
        for back in (self.round_trip(t, weights_only=False), self.with_safe_globals(t, [Tagged])):
            self.assertEqual((type(back), back.note, back.tolist()), (Tagged, 3, [1, 1]))

    def with_safe_globals(self, thing, classes):
        with torch.serialization.safe_globals(classes):
            return self.round_trip(thing)

    def test_safe_globals(self):
        self.assertEqual(self.with_safe_globals(Own(), [Own]).x.tolist(), [1, 1])
        back = self.with_safe_globals(WithState(), [WithState])
        self.assertTrue(back.seen)
        self.assertEqual(self.with_safe_globals(Own(), [(Own, f"{__name__}.Own")]).x.tolist(), [1, 1])
        self.assertEqual(torch.serialization.get_safe_globals(), [])
        torch.serialization.add_safe_globals([deque, defaultdict, dict])
        self.assertEqual(set(torch.serialization.get_safe_globals()), {deque, defaultdict, dict})
        self.assertEqual(self.round_trip(defaultdict(dict, a=1)), {"a": 1})
        torch.serialization.clear_safe_globals()
        with self.assertRaisesRegex(UnpicklingError, "GLOBAL collections.deque"):
            self.round_trip(deque())
        with self.assertRaisesRegex(TypeError, "expected a safe global to be a class, a function"):
            torch.serialization.add_safe_globals([3])

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_map_location(self):
        t = torch.arange(3.0, device="cuda:1")
        a, b = self.round_trip([t, t[1:]])
        self.assertEqual((str(a.device), b.tolist()), ("cuda:1", [1, 2]))
        b[0] = 9
        self.assertEqual(a.tolist(), [0, 9, 2])
        for where, device in (("cpu", "cpu"), (torch.device("cuda:0"), "cuda:0"), ({"cuda:1": "cuda:0"}, "cuda:0"),
                              (lambda s, l: s, "cpu"), (lambda s, l: s.cuda(0), "cuda:0"), (lambda s, l: None, "cuda:1")):
            back = self.round_trip(t, map_location=where)
            self.assertEqual((str(back.device), back.tolist()), (device, [0, 1, 2]))

    def test_storage_with_two_dtypes_raises(self):
        t = torch.ones(2)
        with self.assertRaisesRegex(RuntimeError, "Cannot save multiple tensors or storages that view the same data as different types"):
            saved_buffer([t, t.untyped_storage()], **self.options)

    def test_failed_save_keeps_old_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.pt")
            torch.save(1, path, **self.options)
            for thing in (threading.Lock(), lambda: 1):
                with self.assertRaises((TypeError, AttributeError, pickle.PicklingError)):
                    torch.save([torch.ones(3), thing], path, **self.options)
            self.assertEqual((torch.load(path), os.listdir(folder)), (1, ["x.pt"]))


class LegacyFormat(ZipFormat):
    options = {"_use_new_zipfile_serialization": False}

    def test_consecutive_files(self):
        both = io.BytesIO(saved_buffer([torch.ones(2)], **self.options).getvalue() + saved_buffer({"a": 3}, **self.options).getvalue())
        self.assertEqual((torch.load(both)[0].tolist(), torch.load(both)), ([1, 1], {"a": 3}))


class ZipFiles(unittest.TestCase):
    def test_records_are_aligned(self):
        file = saved_buffer({"x": torch.ones(3), "y": torch.ones(5, dtype=torch.int8)})
        archive = zipfile.ZipFile(file)
        self.assertIsNone(archive.testzip())
        for record in archive.infolist():
            file.seek(record.header_offset + 26)
            begin = record.header_offset + 30 + sum(int.from_bytes(file.read(2), "little") for _ in range(2))
            self.assertEqual((begin % 64, record.compress_type), (0, zipfile.ZIP_STORED), record.filename)
        self.assertEqual(archive.read("archive/byteorder"), sys.byteorder.encode())

    def test_zip64(self):
        with tempfile.TemporaryFile() as file:  # sparse
            at, entries, offsets = 0, b"", []
            for name, size in (("a/0", 5 << 30), ("a/\u00e9", 3), ("a/2", 3 << 30), ("a/3", 3)):
                header, entry = torch._C._zip_record(name, at, size, zipfile.crc32(b"abc"), 64)
                file.seek(at)
                file.write(header + b"abc")
                offsets.append((name, size, at))
                at, entries = at + len(header) + size, entries + entry
                self.assertEqual((at - size) % 64, 0)
            file.seek(at)
            file.write(entries + torch._C._zip_end(4, at, len(entries)))
            archive = zipfile.ZipFile(file)
            self.assertEqual([(r.filename, r.file_size, r.header_offset) for r in archive.infolist()], offsets)
            self.assertEqual((archive.read("a/\u00e9"), archive.read("a/3")), (b"abc", b"abc"))
        entries = b"".join(torch._C._zip_record(f"a/{i}", 0, 0, 0, 64)[1] for i in range(70000))
        self.assertEqual(len(zipfile.ZipFile(io.BytesIO(entries + torch._C._zip_end(70000, 0, len(entries)))).namelist()), 70000)

    def test_minimal_file_protocol(self):
        class File:
            def __init__(self, file):
                for name in ("read", "readline", "tell"):
                    setattr(self, name, getattr(file, name))
                self.inner = file

            def seek(self, *position):
                self.inner.seek(*position)
        for options in ({}, {"_use_new_zipfile_serialization": False}):
            self.assertEqual(torch.load(File(saved_buffer(torch.arange(5), **options))).tolist(), [0, 1, 2, 3, 4])
        written = []
        File.write = lambda self, data: written.append(bytes(data))
        torch.save(torch.ones(2), File(io.BytesIO()))
        self.assertEqual(torch.load(io.BytesIO(b"".join(written))).tolist(), [1, 1])

    def test_large_records_are_split_so_that_signals_are_handled(self):
        class Pieces(io.BytesIO):
            def write(self, data):
                sizes.append(len(data))
                return super().write(data)

            def readinto(self, destination):
                sizes.append(len(destination))
                return super().readinto(destination)

        sizes, file = [], Pieces()
        x = torch.arange(1_000_000)
        torch.save(x, file)
        file.seek(0)
        self.assertTrue(torch.equal(torch.load(file), x))
        self.assertLessEqual(max(sizes), 1 << 20)

    def test_save_error_has_no_followup_errors(self):
        class Full(io.BytesIO):
            def write(self, data):
                if self.tell() > 300: raise KeyboardInterrupt
                return super().write(data)

        unraisable, hook = [], sys.unraisablehook
        sys.unraisablehook = unraisable.append
        try:
            with Full() as file, self.assertRaises(KeyboardInterrupt):
                torch.save(torch.ones(100), file)
            gc.collect()
        finally:
            sys.unraisablehook = hook
        self.assertEqual(unraisable, [])

    def test_mmap(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.pt")
            torch.save({"x": torch.arange(4.0), "e": torch.empty(0)}, path)
            back = torch.load(path, mmap=True)["x"]
            back[1] = 7
            self.assertEqual((back.tolist(), torch.load(path)["x"].tolist()), ([0, 7, 2, 3], [0, 1, 2, 3]))
            with self.assertRaisesRegex(ValueError, "f must be a file path in order to use the mmap argument"):
                torch.load(saved_buffer(1), mmap=True)
            torch.save(1, path, _use_new_zipfile_serialization=False)
            with self.assertRaisesRegex(RuntimeError, "mmap can only be used with files saved with"):
                torch.load(path, mmap=True)

    def test_byteorder(self):
        file = io.BytesIO()
        with zipfile.ZipFile(saved_buffer(torch.tensor([1, 256], dtype=torch.int16))) as given, zipfile.ZipFile(file, "w") as made:
            for name in given.namelist():
                made.writestr(name, b"big" if name.endswith("byteorder") else given.read(name))
        file.seek(0)
        self.assertEqual(torch.load(file).tolist(), [256, 1])

    def test_tensor_encoding_is_independent_of_preceding_tensors(self):
        last = torch.device("cuda", torch.cuda.device_count() - 1)
        def some(scale):
            base = torch.arange(70000.0) * scale
            return [base[66000:66300], base[300:], base.as_strided((2, 3, 2, 2, 5), (1, 300, 40000, 0, 7), 9),
                    torch.tensor(scale), torch.empty(0, 3), torch.ones(2, 3).t(), torch.ones(3, requires_grad=True),
                    torch.arange(5), torch.ones(2, dtype=torch.uint16), torch.ones(2, device="meta"),
                    torch.ones(2, device=last), nn.Parameter(torch.ones(2))]
        def about(t):
            return (type(t), t.dtype, t.device, t.shape, t.stride(), t.storage_offset(), t.requires_grad,
                    t.is_meta or t.tolist())
        things = some(1.0) + some(2.0)
        things[13].tag = "an attribute"
        things.append(things[3])
        for protocol in (1, 2, 3, 5):
            back = round_trip(things, {"weights_only": False}, pickle_protocol=protocol)
            self.assertEqual(list(map(about, back)), list(map(about, things)))
            self.assertEqual(back[13].tag, "an attribute")
            self.assertIs(back[24], back[3])
            back[12][0] = 5
            self.assertEqual(back[13][65700], 5)
            self.assertNotEqual(back[1][65700], 5)

    def test_pickle_protocols(self):
        for protocol in (2, 3, 4, 5):
            file = saved_buffer([torch.ones(2), nn.Linear(1, 1)], pickle_protocol=protocol)
            self.assertEqual(torch.load(file, weights_only=False)[0].tolist(), [1, 1])
        with self.assertRaisesRegex(UnpicklingError, "Unsupported operand 149"):
            torch.load(saved_buffer([1], pickle_protocol=4))

    def test_argument_errors(self):
        with self.assertRaisesRegex(RuntimeError, "Can not safely load weights when explicit pickle_module is specified"):
            torch.load(saved_buffer(1), pickle_module=pickle, weights_only=True)
        with self.assertRaisesRegex(TypeError, "weights_only=False"):
            torch.load(saved_buffer(1), encoding="latin1")
        self.assertEqual(torch.load(saved_buffer(1), pickle_module=pickle), 1)
        self.assertEqual(torch.load(saved_buffer("a"), weights_only=False, encoding="latin1"), "a")
        with self.assertRaisesRegex(RuntimeError, "Parent directory .* does not exist"):
            torch.save(1, "/no/such/folder/x.pt")
        with self.assertRaises(IsADirectoryError):
            torch.load("/tmp")

    def test_globals_use_torch_names(self):
        file = saved_buffer([nn.Parameter(torch.ones(1)), torch.optim.SGD, torch.relu, torch.float32])
        text = zipfile.ZipFile(file).read("archive/data.pkl")
        for name in (b"torch._utils\n_rebuild_parameter\n", b"torch\nFloatStorage\n", b"torch.optim\nSGD\n", b"torch\nfloat32\n"):
            self.assertIn(name, text)
        self.assertNotIn(b"phlox", text)
        file.seek(0)
        self.assertIs(torch.load(file, weights_only=False)[1], torch.optim.SGD)


@torch.no_grad()
def no_grad_function(x):
    return torch.is_grad_enabled()


class Settings(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "x.pt")

    def tearDown(self):
        self.folder.cleanup()

    def test_skip_data(self):
        with torch.serialization.skip_data():
            torch.save({"x": torch.arange(4.0)}, self.path)
        self.assertEqual(torch.load(self.path)["x"].tolist(), [0, 0, 0, 0])
        torch.load(self.path, mmap=True)["x"].fill_(3)  # a private mapping
        self.assertEqual(torch.load(self.path)["x"].tolist(), [0, 0, 0, 0])
        with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
            torch.load(self.path, mmap=True)["x"].fill_(3)
        self.assertEqual(torch.load(self.path)["x"].tolist(), [3, 3, 3, 3])
        with torch.serialization.skip_data():
            self.assertEqual(torch.load(self.path)["x"].shape, (4,))
            with self.assertRaisesRegex(RuntimeError, "^Cannot use skip_data=True with _use_new_zipfile_serialization=False$"):
                torch.save(torch.ones(1), io.BytesIO(), _use_new_zipfile_serialization=False)
            with self.assertWarnsRegex(UserWarning, "^Serializing tensors on the meta device under skip_data"):
                torch.save(torch.ones(1, device="meta"), io.BytesIO())

    def test_crc32_options(self):
        torch.serialization.set_crc32_options(False)
        self.addCleanup(torch.serialization.set_crc32_options, True)
        torch.save(torch.ones(2), self.path)
        self.assertEqual({record.CRC for record in zipfile.ZipFile(self.path).infolist()}, {0})
        self.assertEqual((torch.load(self.path).tolist(), torch.serialization.get_crc32_options()), ([1, 1], False))

    def test_settings_getters_and_errors(self):
        serialization = torch.serialization
        self.assertEqual((serialization.get_default_mmap_options(), serialization.get_default_load_endianness()), (mmap.MAP_PRIVATE, None))
        with self.assertRaisesRegex(ValueError, "expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got 9$"):
            serialization.set_default_mmap_options(9)
        with self.assertRaisesRegex(TypeError, "^Invalid argument type in function set_default_load_endianness$"):
            serialization.set_default_load_endianness(3)

    def test_default_load_endianness(self):
        torch.save(torch.tensor([1], dtype=torch.int16), self.path)
        bare = io.BytesIO()
        with zipfile.ZipFile(self.path) as archive, zipfile.ZipFile(bare, "w") as copied:
            for record in archive.infolist():
                if not record.filename.endswith("byteorder"):
                    copied.writestr(record.filename, archive.read(record))
        self.addCleanup(torch.serialization.set_default_load_endianness, None)
        for order, value in ((None, 1), ("LITTLE", 1), ("BIG", 256), ("NATIVE", 1 if sys.byteorder == "little" else 256)):
            torch.serialization.set_default_load_endianness(order and torch.serialization.LoadEndianness[order])
            bare.seek(0)
            self.assertEqual(torch.load(bare).item(), value)

    @unittest.skipUnless(torch.cuda.device_count() > 1, "requires two devices")
    def test_register_package(self):
        serialization, seen = torch.serialization, []

        def restore(storage, location):
            seen.append((storage.nbytes(), location))
            return storage if location == "mine" else None

        self.addCleanup(serialization._packages.clear)
        serialization.register_package(5, lambda storage: "mine" if storage.nbytes() == 12 else None, restore)
        torch.save({"a": torch.ones(3), "b": torch.ones(2)}, self.path)
        self.assertEqual({name: x.tolist() for name, x in torch.load(self.path).items()}, {"a": [1, 1, 1], "b": [1, 1]})
        self.assertEqual(seen, [(12, "mine"), (8, "cpu")])
        self.assertEqual(torch.load(self.path, map_location={"mine": "cuda:1", "cpu": "cpu"})["a"].device, torch.device("cuda:1"))
        with self.assertRaisesRegex(RuntimeError, r"tagged with other\)$"):
            torch.load(self.path, map_location="other")
        storage = torch.ones(3, device="cuda:1").untyped_storage()
        self.assertEqual((serialization.location_tag(torch.ones(2).untyped_storage()), serialization.location_tag(storage)), ("cpu", "mine"))
        self.assertIs(serialization.default_restore_location(storage, "mine"), storage)


class Failures(unittest.TestCase):
    def test_write_failure_keeps_old_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.pt")
            torch.save("old", path)
            code = f"import phlox as torch; torch.save([torch.ones(3), 'new'], {path!r})"
            failed = 0
            for n in (1, 2, 3, 6, 10, 1000):  # faults of opening, writing, flushing and renaming, in this order
                done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PHLOX_FAULT": f"file:{n}"}, capture_output=True, text=True)
                self.assertEqual(os.listdir(folder), ["x.pt"])
                if done.returncode:
                    failed += 1
                    self.assertIn("OSError", done.stderr)
                    self.assertEqual(torch.load(path), "old")
            self.assertEqual((failed, torch.load(path)[1]), (5, "new"))

    def test_symlinks_and_modes_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            path, link = os.path.join(folder, "x.pt"), os.path.join(folder, "l.pt")
            torch.save(1, path)
            os.chmod(path, 0o600)
            os.symlink("x.pt", link)
            torch.save(2, link)
            self.assertEqual((os.stat(path).st_mode & 0o777, os.path.islink(link), torch.load(path)), (0o600, True, 2))
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            got = []

            def read():
                with open(pipe, "rb") as file:
                    got.append(file.read())
            reader = threading.Thread(target=read)
            reader.start()
            torch.save([torch.ones(2)], pipe)
            reader.join()
            self.assertEqual(torch.load(io.BytesIO(got[0]))[0].tolist(), [1, 1])


class Pickles(unittest.TestCase):
    """Python's pickle and copy, for objects without a file format."""

    def both(self, thing):
        return pickle.loads(pickle.dumps(thing)), copy.deepcopy(thing), round_trip(thing, {"weights_only": False})

    def test_generators_keep_state(self):
        for device in ("cpu", "cuda")[:1 + torch.cuda.is_available()]:
            generator = torch.Generator(device).manual_seed(7)
            torch.rand(3, generator=generator, device=device)
            others = self.both(generator)
            expected = torch.rand(4, generator=generator, device=device)
            for other in others:
                self.assertEqual((other.initial_seed(), other.device.type), (7, device))
                self.assertTrue(torch.equal(torch.rand(4, generator=other, device=device), expected))

    def test_storages(self):
        for thing in (torch.arange(3.0).storage(), torch.arange(3).untyped_storage()):
            for other in self.both(thing)[:2]:
                self.assertEqual((type(other), other.dtype, other.tolist()), (type(thing), thing.dtype, thing.tolist()))
                self.assertNotEqual(other.data_ptr(), thing.data_ptr())

    def test_functions_are_pickled_by_reference(self):
        for thing in (nn.functional.relu, torch.relu, torch.Tensor.relu, nn.functional.linear, torch.Tensor.add_, no_grad_function):
            for other in self.both(thing):
                self.assertIs(other, thing)
        self.assertEqual((nn.functional.relu.__module__, torch.relu.__module__), ("torch.nn.functional", "torch"))
        self.assertFalse(copy.deepcopy(torch.no_grad()(lambda x: torch.is_grad_enabled()))(1))

    def test_datasets_and_finfo(self):
        data = torch.utils.data.Subset(torch.utils.data.TensorDataset(torch.arange(4)), [1, 3])
        for other in self.both(data):
            self.assertEqual(other[1][0].item(), 3)
        for other in self.both(torch.finfo(torch.float16)) + self.both(torch.iinfo(torch.int8)):
            self.assertIn(other.max, (65504.0, 127))

    def test_streams_and_events_cannot_be_pickled(self):
        if not torch.cuda.is_available():
            self.skipTest("requires a device")
        for thing, name in ((torch.cuda.Stream(), "Stream"), (torch.cuda.Event(), "Event")):
            for act in (pickle.dumps, copy.deepcopy, saved_buffer):
                with self.assertRaisesRegex(TypeError, f"cannot pickle 'torch.cuda.{name}' object"):
                    act(thing)


def raw(ops, *records):
    """A zip archive with the given pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in (("data.pkl", ops), ("version", b"3\n"), *records):
            archive.writestr("archive/" + name, data)
    file.seek(0)
    return file


def text(string):
    return b"X" + len(string).to_bytes(4, "little") + string.encode()


def storage(key="0", count=b"K\x04", kind=b"ctorch\nFloatStorage\n", location="cpu"):
    return b"(" + text("storage") + kind + text(key) + text(location) + count + b"tQ"


def tensor(of=None, offset=b"K\0", size=b"K\4\x85", stride=b"K\1\x85"):
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + (of or storage()) + offset + size + stride + b"\x89ccollections\nOrderedDict\n)RtR"


RECORD = ("data/0", bytes(16))


class MaliciousFiles(unittest.TestCase):
    def refuses(self, pattern, ops, *records, error=UnpicklingError):
        with self.assertRaisesRegex(error, pattern):
            torch.load(raw(b"\x80\x02" + ops + b".", *records))

    def test_only_allowlisted_globals_are_called(self):
        for module in ("os", "posix", "sys", "nt"):
            self.refuses(f"unsupported GLOBAL {module}.system whose module {module} is blocked", b"c" + module.encode() + b"\nsystem\n)R")
        for name in (b"builtins\neval", b"builtins\ngetattr", b"torch\nload", b"torch.serialization\nload", b"torch\n_C", b"torch\nTensor.map_",
                     b"collections\nOrderedDict.__init__", b"phlox._utils\n_rebuild_tensor", b"_codecs\nlookup", b"torch\n_import"):
            self.refuses("Unsupported global", b"c" + name + b"\n)R")
        self.refuses("Trying to call reduce for unrecognized function", b"])R")
        self.refuses("Trying to call reduce for unrecognized function", b"ctorch\nTensor\nK\5\x85R")
        self.refuses("Unsupported operand 105", b"(icollections\nOrderedDict\n")
        self.refuses("Unsupported operand 147", text("os") + text("system") + b"\x93")
        self.refuses("unrecognized function", b"ctorch._tensor\n_rebuild_from_type_v2\n(ccollections\nOrderedDict\nctorch\nTensor\n)}tR")

    def test_allowlisted_objects_are_immutable(self):
        for name in (b"torch._utils\n_rebuild_tensor_v2", b"collections\nOrderedDict", b"torch.nn.parameter\nParameter", b"torch\nFloatStorage",
                     b"torch\nfloat32", b"torch\nSize"):
            self.refuses("Can only build Tensor, Parameter, OrderedDict or types allowlisted", b"c" + name + b"\n}" + text("a") + b"K\1sb")
        self.refuses("Can only SETITEM for dict", b"ccollections\nOrderedDict\nK\2K\3s")
        self.refuses("Can only append to lists", b"K\1K\2a")
        self.refuses("Can only extend lists", b"K\1(K\2e")
        self.refuses("Can only SETITEMS for dict", b"K\1(K\2K\1u")
        self.refuses("Can only create new object for nn.Parameter", b"ctorch\nSize\n)\x81")

    def test_reduce_arguments_are_checked(self):
        self.refuses("bytearray is called with a size", b"c__builtin__\nbytearray\n\x8a\x06\0\0\0\0\0\1\x85R")
        self.refuses("expected bytes encoded as latin1, got 'idna'", b"c_codecs\nencode\n" + text("a") + text("idna") + b"\x86R")
        self.refuses("cannot be called with the pickle's arguments", b"ctorch\nSize\n" + text("a") + b"\x85R")
        self.refuses("cannot be called with the pickle's arguments", b"ctorch._utils\n_rebuild_tensor_v2\nK\1\x85R")
        self.refuses("a Parameter requires a tensor", b"ctorch.nn.parameter\nParameter\nK\1\x85R")

    def test_stack_and_memo(self):
        self.refuses("from an empty stack", b"")
        self.refuses("from an empty stack", b"R")
        self.refuses("from an empty stack", b"a")
        self.refuses("a missing mark", b"t")
        self.refuses("the memo has no entry 5", b"h\5")
        self.refuses("unterminated name", b"ccollections")
        for cut in (b"X\xff\xff\xff\x7fa", b"J\1", b"\x8a\xffa", b"K"):
            with self.assertRaises((EOFError, UnpicklingError)):
                torch.load(raw(b"\x80\x02" + cut))
        self.assertEqual(torch.load(raw(b"\x80\x02K\1r\xff\xff\xff\xff0."[:-2] + b".")), 1)  # a large memo index allocates no memory

    def test_size_of_result_is_bounded(self):
        for step in (b"]", b"}", b"\x8f"):
            self.refuses("more values than its length is worth", step * 40000)
        self.refuses("expected a key of at most 1000 parts", b"}N" + b"\x85q\0" * 5000 + b"K\1s")
        self.refuses("expected a key of at most 1000 parts", b"Nq\0" + b"h\0h\0\x86q\0" * 40 + b"}h\0K\1s")
        self.refuses("expected a key of at most 1000 parts", b"Nq\0" + b"h\0h\0\x86q\0" * 40 + b"c__builtin__\nset\n]h\0a\x85R")
        self.refuses("cannot be called with the pickle's arguments", b"}]K\1s")  # a list is not hashable
        deep = torch.load(raw(b"\x80\x02N" + b"\x85q\0" * 100000 + b"."))
        for _ in range(100000):
            deep, = deep

    def test_tensors_are_within_storages(self):
        self.assertEqual(torch.load(raw(b"\x80\x02" + tensor() + b".", RECORD)).tolist(), [0, 0, 0, 0])
        self.refuses("out of bounds for storage of size 16", tensor(offset=b"K\1"), RECORD, error=RuntimeError)
        self.refuses("out of bounds for storage of size 16", tensor(stride=b"M\xff\xff\x85"), RECORD, error=RuntimeError)
        for size in (b"J\xff\xff\xff\xff\x85", b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85", b"\x8a\x09" + b"\xff" * 8 + b"\x7f\x85"):
            with self.assertRaises((RuntimeError, UnpicklingError)):
                torch.load(raw(b"\x80\x02" + tensor(size=size) + b".", RECORD))
        for part in ({"stride": b"J\xff\xff\xff\xff\x85"}, {"offset": b"J\xff\xff\xff\xff"}, {"stride": b")"}):
            self.refuses(".", tensor(**part), RECORD, error=RuntimeError)

    def test_storages_are_within_file(self):
        self.refuses("failed locating file data/7: file not found", tensor(storage("7")), RECORD, error=RuntimeError)
        self.refuses(r"record size \(16 bytes\) does not match expected size \(20 bytes\)", tensor(storage(count=b"K\5")), RECORD, error=RuntimeError)
        self.refuses("has two dtypes", b"(" + tensor() + tensor(storage(kind=b"ctorch\nIntStorage\n")) + b"t", RECORD)
        self.refuses("invalid storage of -1 elements", tensor(storage(count=b"J\xff\xff\xff\xff")), RECORD)
        self.refuses("invalid storage of 'x' elements", tensor(storage(count=text("x"))), RECORD)
        self.refuses("don't know how to restore data location", tensor(storage(location="moon")), RECORD, error=RuntimeError)
        self.refuses("Only persistent_load of storage is allowed", b"(" + text("file") + b"tQ")
        self.refuses("saved_id must be a tuple, got int", b"K\1Q")
        self.refuses("values to unpack|storage", b"(" + text("storage") + b"tQ", error=Exception)
        self.refuses("unsupported storage type", tensor(storage(kind=b"ctorch\nTensor\n")), RECORD)

    def test_bool_bytes_are_normalized(self):
        back = torch.load(raw(b"\x80\x02" + tensor(storage(kind=b"ctorch\nBoolStorage\n")) + b".", ("data/0", b"\0\1\2\xff")))
        self.assertEqual((back.tolist(), back.int().tolist()), ([False, True, True, True], [0, 1, 1, 1]))

    def test_overlapping_and_compressed_records(self):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02" + tensor(storage(count=b"J\0\0\0\4"), size=b"K\1\x85") + b".")
            archive.writestr("archive/data/0", bytes(1 << 28))
        with self.assertRaisesRegex(RuntimeError, "compressed or encrypted"):
            torch.load(io.BytesIO(file.getvalue()))
        # Many overlapping records.
        many = b"(" + b"".join(tensor(storage(str(i), count=b"M\0\x40"), size=b"K\1\x85") for i in range(20)) + b"t"
        file = raw(b"\x80\x02" + many + b".", ("data/0", bytes(1 << 16)))
        with zipfile.ZipFile(file, "a") as archive:
            first = archive.getinfo("archive/data/0")
            for i in range(1, 20):
                again = copy.copy(first)
                again.filename = again.orig_filename = f"archive/data/{i}"
                archive.filelist.append(again)
                archive.NameToInfo[again.filename] = again
            archive._didModify = True
        file.seek(0)
        with self.assertRaisesRegex(RuntimeError, "storages overlap"):
            torch.load(file)

    def test_offsets_outside_the_file(self):
        whole = saved_buffer({"x": torch.arange(6.0), "y": torch.ones(2)}).getvalue()
        end = whole.rindex(b"PK\5\6")
        fields = [(end + at, 4) for at in (12, 16)]  # size and offset of the central directory
        fields += [(whole.rindex(name) - 4, 4) for name in (b"archive/data.pkl", b"archive/data/1")]  # offsets of the local headers
        count, size, begin = struct.unpack("<HII", whole[end + 10:end + 20])
        zip64 = (whole[:end] + struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, begin)
                 + struct.pack("<4sIQI", b"PK\6\7", 0, end, 1) + whole[end:end + 8] + b"\xff" * 12 + whole[-2:])
        self.assertEqual(torch.load(io.BytesIO(zip64))["y"].tolist(), [1, 1])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.pt")
            for data, places in ((whole, fields), (zip64, [(end + 40, 8), (end + 48, 8)])):
                for (at, width), value in itertools.product(places, (1238, 1 << 30, (1 << 31) + 5, (1 << 32) - 2, (1 << 62) + 1, (1 << 64) - 1)):
                    changed = data[:at] + value.to_bytes(8, "little")[:width] + data[at + width:]
                    with open(path, "wb") as file:
                        file.write(changed)
                    for load in (lambda: torch.load(io.BytesIO(changed)), lambda: torch.load(path), lambda: torch.load(path, mmap=True)):
                        with self.assertRaisesRegex(RuntimeError, "^PytorchStreamReader failed"):
                            load()

    def test_read_errors_are_not_corrupt_files(self):
        class Broken(io.BytesIO):
            def read(self, size=-1):
                if self.getvalue().startswith(b"PK\1\2", self.tell()):  # the central directory
                    raise OSError(errno.EIO, "Input/output error")
                return super().read(size)

        with self.assertRaisesRegex(OSError, "Input/output error"):
            torch.load(Broken(saved_buffer([1]).getvalue()))

    def test_non_checkpoint_files(self):
        for data, error, pattern in ((b"", EOFError, "empty"), (b"no such form", UnpicklingError, "Unsupported operand 110"),
                                     (b"PK\3\4" + bytes(100), RuntimeError, "failed finding central directory"),
                                     (pickle.dumps({"a": 1}, 2), RuntimeError, "Invalid magic number; corrupt file?")):
            with self.assertRaisesRegex(error, pattern):
                torch.load(io.BytesIO(data))

    def test_truncated_and_modified_files(self):
        for options in ({}, {"_use_new_zipfile_serialization": False}):
            whole = saved_buffer({"t": torch.arange(50.0), "n": [1, "x"]}, **options).getvalue()
            for cut in range(0, len(whole), 23):
                with self.assertRaises((EOFError, RuntimeError, UnpicklingError)):
                    torch.load(io.BytesIO(whole[:cut]))
            for at in range(0, len(whole), 13):
                for value in (0, 0x28, 0xff):
                    changed = whole[:at] + bytes([value]) + whole[at + 1:]
                    try:
                        torch.load(io.BytesIO(changed))
                    except (EOFError, RuntimeError, UnpicklingError, ValueError):
                        pass


class Greedy(list):
    """Clears the list passed to it, and every list reachable from there."""
    def extend(self, items):
        for holder in gc.get_referrers(items):
            if type(holder) is list:
                holder.clear()
        items.clear()
        super().extend([1])


class Failing:
    def __init__(self, error):
        self.error = error

    def __setstate__(self, state):
        raise {"value": ValueError, "stop": KeyboardInterrupt, "pickle": UnpicklingError}[state["error"]]("of its own")


class Nosy:
    """A key that clears its dict while it is hashed."""
    def __setstate__(self, state):
        self.inside = state["inside"]

    def __hash__(self):
        self.inside.clear()
        return 1


def graph(steps=100):
    """Nested lists with a repr of 2**steps parts, as memo 0."""
    return b"]q\0" + b"](h\0h\0eq\0" * steps


DEEP = b"Nq\0" + b"\x85q\0" * 120000  # nested tuples: hashing them recurses once per level
ENDLESS = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage() + b"K\0\x8a\x06\0\0\0\0\0\1\x85K\0\x85\x89NtRq\0"  # 2**40 elements with stride 0 over 16 bytes
LISTED = (b"torch._utils\n_rebuild_tensor", b"torch._utils\n_rebuild_tensor_v2", b"torch._utils\n_rebuild_tensor_v3", b"torch._utils\n_rebuild_parameter",
          b"torch._utils\n_rebuild_parameter_with_state", b"torch._utils\n_rebuild_meta_tensor_no_storage", b"torch._tensor\n_rebuild_from_type_v2",
          b"torch.nn.parameter\nParameter", b"torch\nSize", b"torch\ndevice", b"torch.serialization\n_get_layout", b"collections\nOrderedDict",
          b"collections\nCounter", b"__builtin__\nset", b"__builtin__\ncomplex", b"__builtin__\nbytearray", b"_codecs\nencode")
OPCODES = b"cR\x81bQaesu(t\x85\x86\x87)]}\x8fN\x88\x89KMJ\x8aGUXhjqr\x80."


class MaliciousPickles(unittest.TestCase):
    """Memory safety of the unpickler in C."""
    refuses = MaliciousFiles.refuses

    def load(self, ops, *records):
        return torch.load(raw(b"\x80\x02" + ops + b".", *records))

    def survives(self, ops, *records):
        try:
            self.load(ops, *records)
        except (EOFError, RuntimeError, UnpicklingError, NotImplementedError):
            pass

    def test_memo_indices(self):
        self.assertEqual(self.load(b"K\1r\xff\xff\xff\xffj\xff\xff\xff\xff"), 1)
        self.refuses("the memo has no entry 4294967294", b"K\1r\xff\xff\xff\xffj\xfe\xff\xff\xff")
        self.refuses("the memo has no entry 255", b"K\1q\0h\xff")
        index = b"\0\2\0\0"  # 512: first above the number of puts, later below it
        self.assertEqual(self.load(b"(K\1r" + index + b"j" + index + b"Nq\0" * 600 + b"j" + index + b"K\2r" + index + b"j" + index + b"t")[-3:], (1, 2, 2))
        many = b"".join(b"M" + i.to_bytes(2, "little") + b"r" + (i << 16).to_bytes(4, "little") for i in range(5000))
        self.assertEqual(self.load(many + b"j" + (4321 << 16).to_bytes(4, "little")), 4321)

    def test_truncated_operands(self):
        operands = {b"K": 1, b"M": 2, b"J": 4, b"G": 8, b"h": 1, b"j": 4, b"q": 1, b"r": 4, b"\x80": 1, b"U": 1, b"X": 4, b"\x8a": 1}
        for opcode, size in operands.items():
            for cut in range(size):
                with self.assertRaises(EOFError):
                    torch.load(raw(b"\x80\x02N" + opcode + bytes(cut)))
        for cut in (b"U\2a", b"X\2\0\0\0a", b"X\xff\xff\xff\xffa", b"\x8a\2a"):
            with self.assertRaises(EOFError):
                torch.load(raw(b"\x80\x02" + cut))
        self.refuses("unterminated name", b"c" + b"a" * 1000 + b"\nb\n")

    def test_opcode_pairs(self):
        for start in (b"", b"(", b"N", b"]", b"}", b"(N", b"})", b"ccollections\nOrderedDict\n"):
            for first in range(256):
                self.survives(start + bytes((first,)))
            for first in OPCODES:
                for second in OPCODES:
                    self.survives(start + bytes((first, second)) + b"\0\0\0\0\n\n")

    def test_marks_bound_stack(self):
        for ops in (b"K\1(R", b"K\1(\x85", b"K\1K\2(\x87", b"](K\1a", b"}K\1(K\2s", b"K\1(q\0", b"K\1(", b"](e", b"}(u", b"N(NQ", b"N(Nb"):
            self.survives(ops)
        self.refuses("from an empty stack", b"K\1K\1(\x86")
        self.refuses("from an empty stack", b"}K\1(K\1s")
        self.refuses("odd number of items for SETITEMS", b"}(K\1u")
        self.assertEqual(self.load(b"](]((K\1tte"), [[], ((1,),)])

    def test_self_referencing_containers_are_collected(self):
        for own in (b"]q\1h\1a", b"}q\1K\1h\1s", b"ccollections\nOrderedDict\n)Rq\1K\1h\1s", b"]q\1h\1\x85a"):
            gc.collect()
            tracked = own + b"c%s\nOwn\n)\x81q\2}" % __name__.encode() + text("a") + b"h\1sb"
            with torch.serialization.safe_globals([Own]):
                made = self.load(tracked + b"h\1h\2\x86")
                last = weakref.ref(made[1])
                made[0].append(made[1]) if isinstance(made[0], list) else made[0].update(a=made[1])
                del made
                gc.collect()
                self.assertIsNone(last())
                self.refuses("Unsupported operand 0", tracked + b"\0")
                gc.collect()
                self.assertEqual([item for item in gc.get_objects() if type(item) is Own], [])

    def test_deep_nesting(self):
        depth = 1_000_000
        for ops in (b"N" + b"\x85q\0" * depth, b"]" * depth + b"a" * (depth - 1)):
            self.load(ops)
        self.refuses("Unsupported operand 0", b"N" + b"\x85q\0" * depth + b"\0")
        self.load(b"}K\1" * 200000 + b"N" + b"s" * 200000)
        part = b"ctorch.nn.parameter\nParameter\nq\0" + tensor() + b"q\1Nq\3"
        chain = b"h\0h\1\x85R}" + text("a") + b"h\3sbq\3"  # parameters that are attributes of each other
        self.load(part + chain * 100000, RECORD)

    def test_allowlisted_functions_with_hostile_arguments(self):
        """Every argument as a list of exponential repr, a deeply nested tuple, and a tensor of 2**40 elements."""
        for name in LISTED:
            for given, records in ((graph(), ()), (DEEP, ()), (ENDLESS, (RECORD,))):
                for count in (1, 2, 3, 4, 6):
                    self.survives(given + b"c" + name + b"\n(" + b"h\0" * count + b"tR", *records)
                self.survives(given + b"c" + name + b"\nh\0R", *records)
                self.survives(given + b"c" + name + b"\nh\0\x81", *records)
                self.survives(given + b"c" + name + b"\n]h\0a\x85R", *records)
                self.survives(given + b"c" + name + b"\n]]h\0aK\1aa\x85R", *records)
                self.survives(given + b"ccollections\nOrderedDict\n)Rh\0b", *records)
        for given, records in ((graph(), ()), (DEEP, ()), (ENDLESS, (RECORD,))):
            for ops in (b"h\0)R", b"h\0)\x81", b"h\0}b", b"h\0Q", b"}h\0K\1s", b"ccollections\nOrderedDict\n)R]]h\0aK\1aab",
                        b"ctorch._tensor\n_rebuild_from_type_v2\n(" + b"ctorch._utils\n_rebuild_tensor_v2\n" + b"ctorch\nTensor\n(" + storage() +
                        b"K\0)K\1\x85\x89Nt" + b"]]h\0aK\1aatR"):
                self.survives(given + ops, RECORD)
            for position in range(5):
                parts = [text("storage"), b"ctorch\nFloatStorage\n", text("0"), text("cpu"), b"K\4"]
                parts[position] = b"h\0"
                self.survives(given + b"(" + b"".join(parts) + b"tQ", RECORD)

    def test_repeated_values_are_bounded(self):
        data = text("a" * 50000) + b"q\0" + text("latin1") + b"q\1c_codecs\nencode\nq\2"
        self.refuses("more values than its length is worth", data + b"h\2h\0h\1\x86R" * 1000)
        self.refuses("more values than its length is worth", b"](" + b"K\1" * 50000 + b"eq\0c__builtin__\nset\nq\1" + b"h\1h\0\x85R" * 1000)
        self.refuses("bytearray is called with a size", b"c__builtin__\nbytearray\n\x88\x85R")

    def test_invalid_persistent_ids(self):
        for saved_buffer, pattern in ((b"N", "saved_id must be a tuple, got NoneType"), (b"]", "saved_id must be a tuple, got list"), (b")", "Only persistent_load of storage"),
                               (b"K\1\x85", "Only persistent_load of storage is allowed, but got <class 'int'>"),
                               (text("storage") + b"\x85", "expected a storage id of 5 parts, got 1")):
            self.refuses(pattern, saved_buffer + b"Q")
        self.refuses("expected a str as storage key, got list", b"(" + text("storage") + b"ctorch\nFloatStorage\n]" + text("cpu") + b"K\4tQ", RECORD)
        self.refuses("invalid storage of 4 elements on 1", b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + b"K\1K\4tQ", RECORD)
        self.refuses("invalid storage of .* elements", tensor(storage(count=b"\x8a\x09" + b"\0" * 8 + b"\x01")), RECORD)
        self.refuses("invalid storage of .* elements", tensor(storage(count=b"\x8a\x08" + b"\xff" * 7 + b"\x7f")), RECORD)
        self.refuses("storage views", b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\4)tQ", RECORD)

    def test_setstate_exceptions(self):
        with torch.serialization.safe_globals([Failing]):
            self.assertRaisesRegex(UnpicklingError, "__setstate__ cannot be called with the pickle's arguments: of its own", round_trip, Failing("value"))
            self.assertRaisesRegex(UnpicklingError, "Weights only load failed(?s:.)*of its own", round_trip, Failing("pickle"))
            self.assertRaisesRegex(KeyboardInterrupt, "of its own", round_trip, Failing("stop"))

    def test_safe_classes_mutating_arguments(self):
        module = __name__.encode()
        with torch.serialization.safe_globals([Greedy, Nosy]):
            greedy = b"c%s\nGreedy\n)\x81" % module
            self.assertEqual(self.load(greedy + b"(K\2]K\3e"), [1])
            self.assertEqual(self.load(b"(" + greedy + b"]atK\7\x86"), (([1],), 7))
            nosy = b"}q\0(K\1K\2K\3K\4c%s\nNosy\n)\x81}" % module + text("inside") + b"h\0sbK\5K\6K\7u"
            self.assertEqual(list(self.load(nosy).values()), [5, 7])

    def test_blocked_modules(self):
        with torch.serialization.safe_globals([(os.system, "posix.system"), (os.getcwd, "os.getcwd")]):
            self.refuses("unsupported GLOBAL posix.system whose module posix is blocked", b"cposix\nsystem\n)R")
            self.refuses("unsupported GLOBAL os.getcwd whose module os is blocked", b"cos\ngetcwd\n)R")

    def test_python_2_names_and_strings(self):
        self.assertEqual(self.load(b"U\2\xc3\xa9"), "\u00e9")
        self.refuses("invalid UTF-8", b"U\1\xe9")
        self.refuses("invalid UTF-8", b"X\1\0\0\0\xe9")
        self.assertEqual(self.load(text("") + b"X\3\0\0\0\xed\xa0\x80"), "\ud800")
        self.refuses("GLOBAL copyreg._reconstructor was not", b"ccopy_reg\n_reconstructor\n")
        with self.assertWarnsRegex(UserWarning, "Detected pickle protocol 3 in the checkpoint"):
            self.assertEqual(torch.load(raw(b"\x80\x03K\1.")), 1)


HERE = os.path.dirname(os.path.abspath(__file__))
PYTORCH = os.environ.get("PYTORCH_PYTHON", sys.executable)


def run_with_pytorch(program, *args):
    """Output of a program run with PyTorch in a subprocess."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([PYTORCH, "-W", "ignore", "-c", program, *args], cwd="/", env=env, capture_output=True, text=True)


HAS_PYTORCH = run_with_pytorch("import torch; torch.load").returncode == 0


@unittest.skipUnless(HAS_PYTORCH, "PyTorch is not installed for this Python (PYTORCH_PYTHON names another)")
class PyTorchInterchange(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "x.pt")

    def tearDown(self):
        self.folder.cleanup()

    def run_pytorch(self, program):
        done = run_with_pytorch("import torch, sys, collections\npath = sys.argv[1]\n" + program, self.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_pytorch_loads_phlox_files(self):
        for legacy in (False, True):
            base = torch.arange(6.0)
            torch.save({"base": base, "view": base[2:4], "t": torch.ones(2, 3).t(), "p": nn.Parameter(torch.ones(2)),
                        "b": torch.tensor([True, False]), "h": torch.ones(2, dtype=torch.bfloat16), "size": torch.Size([1]),
                        "dtype": torch.int16, "device": torch.device("cuda:1"), "cuda": torch.ones(1, device="cuda:1") if
                        torch.cuda.device_count() > 1 else None, "o": OrderedDict(a=1), "bytes": b"ab", "n": 2**70},
                       self.path, _use_new_zipfile_serialization=not legacy)
            said = self.run_pytorch("""
d = torch.load(path, map_location="cpu")
d["view"][0] = 50
assert d["base"].tolist() == [0, 1, 50, 3, 4, 5] and d["t"].stride() == (1, 3)
assert type(d["p"]) is torch.nn.Parameter and d["p"].requires_grad
assert d["b"].tolist() == [True, False] and d["h"].dtype == torch.bfloat16 and d["h"].tolist() == [1, 1]
assert type(d["size"]) is torch.Size and d["dtype"] is torch.int16 and d["device"] == torch.device("cuda:1")
assert type(d["o"]) is collections.OrderedDict and d["bytes"] == b"ab" and d["n"] == 2**70
assert d["cuda"] is None or d["cuda"].tolist() == [1]
print("read")""")
            self.assertEqual(said.strip(), "read")

    NET = "nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 3))"

    def test_pytorch_loads_phlox_modules(self):
        net = eval(self.NET).eval()
        torch.save(net, self.path)
        said = self.run_pytorch("""
net = torch.load(path, **({"weights_only": False} if torch.__version__ >= "2" else {}))
assert not net.training and net[6].in_features == 8 and type(net[0]) is torch.nn.Conv2d
net.train(); net(torch.ones(2, 1, 4, 4)).sum().backward(); net.zero_grad(); net.eval()
print(net(torch.ones(1, 1, 4, 4)).tolist())""")
        net.train(), net(torch.ones(2, 1, 4, 4)), net.eval()
        expected = net(torch.ones(1, 1, 4, 4))
        self.assertTrue(torch.allclose(torch.tensor(eval(said)), expected, atol=1e-5))

    def test_phlox_loads_pytorch_modules(self):
        said = self.run_pytorch(f"""
from torch import nn
net = {self.NET}.eval()
torch.save(net, path)
print(net(torch.ones(1, 1, 4, 4)).tolist())""")
        net = torch.load(self.path, weights_only=False)
        self.assertTrue(torch.allclose(torch.tensor(eval(said)), net(torch.ones(1, 1, 4, 4)), atol=1e-5))
        kinds = [nn.Sequential, nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d, nn.Flatten, nn.Dropout, nn.Linear]
        with self.assertRaisesRegex(UnpicklingError, "GLOBAL torch.nn.modules.container.Sequential was not an allowed global"):
            torch.load(self.path)
        with torch.serialization.safe_globals(kinds):
            self.assertEqual(str(torch.load(self.path)), str(net))

    def test_phlox_loads_pytorch_files(self):
        for form in ("", ", _use_new_zipfile_serialization=False"):
            self.run_pytorch(f"""
base = torch.arange(6.0)
p = torch.nn.Parameter(torch.ones(2));
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
torch.save(dict(base=base, view=base[2:4], t=torch.ones(2, 3).t(), p=p, b=torch.tensor([True, False]), h=torch.ones(2, dtype=torch.bfloat16),
                size=torch.Size([1]), dtype=torch.int16, device=torch.device("cuda:1"), o=collections.OrderedDict(a=1), bytes=b"ab",
                state=net.state_dict(), s=set([1]), c=collections.Counter("aab"), layout=torch.strided), path{form})""")
            back = torch.load(self.path)
            back["view"][0] = 50
            self.assertEqual((back["base"].tolist(), back["t"].stride()), ([0, 1, 50, 3, 4, 5], (1, 3)))
            self.assertEqual((type(back["p"]), back["p"].requires_grad), (nn.Parameter, True))
            self.assertEqual((back["b"].tolist(), back["h"].tolist(), back["h"].dtype), ([True, False], [1, 1], torch.bfloat16))
            self.assertEqual((back["size"], back["dtype"], back["device"]), (torch.Size([1]), torch.int16, torch.device("cuda:1")))
            self.assertEqual((back["o"], back["bytes"], back["s"], back["c"]), ({"a": 1}, b"ab", {1}, Counter("aab")))
            self.assertIs(back["layout"], torch.strided)
            nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).load_state_dict(back["state"])


if __name__ == "__main__":
    unittest.main()
