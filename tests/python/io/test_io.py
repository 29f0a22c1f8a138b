# SPDX-License-Identifier: Apache-2.0
"""torch.save and torch.load, and safetensors files."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import io
import tempfile
import unittest
from collections import OrderedDict

import phlox as torch
from phlox import nn


class Files(unittest.TestCase):
    name = "file.pt"

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, self.name)

    def tearDown(self):
        self.folder.cleanup()

    def test_state_dict_round_trip(self):
        net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        torch.save(net.state_dict(), self.path)
        other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        other.load_state_dict(torch.load(self.path))
        for a, b in zip(net.state_dict().values(), other.state_dict().values()):
            self.assertTrue(torch.equal(a, b))

    def test_checkpoint_round_trip(self):
        net = nn.Linear(2, 3)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, self.path)
        back = torch.load(self.path)
        self.assertEqual((list(back), back["epoch"]), (["model", "optimizer", "epoch"], 3))
        other = nn.Linear(2, 3)
        again = torch.optim.Adam(other.parameters(), lr=0.5)
        other.load_state_dict(back["model"])
        again.load_state_dict(back["optimizer"])
        for module, by in ((net, optimizer), (other, again)):
            by.zero_grad()
            module(torch.ones(1, 2)).sum().backward()
            by.step()
        self.assertTrue(torch.equal(net.weight, other.weight))

    def round_trip(self, thing):
        torch.save(thing, self.path)
        return torch.load(self.path)

    def test_values_round_trip(self):
        for thing in (None, True, 3, -2**63, 0.1, 1e300, -0.0, float("inf"), "", "a\"\\\u00e9", [], (), {}, [1, (2.0, None)],
                      {"a": {"b": [1]}}, {3: "x", (1, 2): [True]}, OrderedDict([("b", 1), ("a", 2)]), torch.float16,
                      torch.device("cuda:1"), torch.Size([2, 3]), [[[[]]]]):
            back = self.round_trip(thing)
            self.assertEqual((type(back), repr(back)), (type(thing), repr(thing)))
        self.assertNotEqual(*[self.round_trip(float("nan"))] * 2)

    def test_tensors_keep_type_and_requires_grad(self):
        weight = nn.Parameter(torch.ones(2))
        frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        leaf = torch.ones(3, requires_grad=True)
        back = self.round_trip([weight, {"again": weight}, frozen, leaf, leaf * 2, {"a.b": leaf, "a": {"b": weight * 3}}])
        self.assertIs(back[0], back[1]["again"])
        self.assertEqual([type(t).__name__ for t in back[2:5]], ["Parameter", "Tensor", "Tensor"])
        history = self.name == "file.pt"  # as in PyTorch, a non-leaf is loaded as a leaf that requires grad
        self.assertEqual([t.requires_grad for t in (back[0], back[2], back[3], back[4])], [True, False, True, history])
        self.assertEqual((back[5]["a.b"].tolist(), back[5]["a"]["b"].tolist()), ([1, 1, 1], [3, 3]))
        self.assertEqual(self.round_trip({"__metadata__": leaf})["__metadata__"].tolist(), [1, 1, 1])

    def test_safetensors_unsupported_values(self):
        path = self.path + ".safetensors"
        for thing, text in (({1, 2}, "of type 'set'"), ([nn.Linear(1, 1)], r"'Linear' cannot be saved; save its state_dict\(\) instead"),
                            ({"a": 1 + 2j}, "of type 'complex'"), (object(), "of type 'object'")):
            with self.assertRaisesRegex(NotImplementedError, "torch.save writes safetensors.*" + text):
                torch.save(thing, path)
        loop = []
        loop.append(loop)
        for thing in (loop, "a\0b", 2**63):
            with self.assertRaises(ValueError):
                torch.save(thing, path)
        self.assertFalse(os.path.exists(path))

    def test_file_like_objects(self):
        buffer = io.BytesIO()
        torch.save({"t": torch.arange(3), "n": 5}, buffer)
        buffer.seek(0)
        back = torch.load(buffer)
        self.assertEqual((back["t"].tolist(), back["n"]), ([0, 1, 2], 5))
        with self.assertRaisesRegex(AttributeError, "expected 'f' to be string, path, or a file-like object with a 'write' attribute"):
            torch.save(1, 5)
        with self.assertRaisesRegex(AttributeError, "'int' object has no attribute 'read'. You can only torch.load from a file that is seekable"):
            torch.load(5)

    def test_names_and_order(self):
        torch.save(OrderedDict((("b", torch.arange(3)), ("a.c", torch.tensor(1.5)))), self.path)
        back = torch.load(self.path)
        self.assertEqual(list(back), ["b", "a.c"])
        self.assertEqual((back["b"].tolist(), back["a.c"].item()), ([0, 1, 2], 1.5))

    def test_dtypes(self):
        for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
                      torch.bfloat16, torch.float32, torch.float64):
            t = torch.tensor([0, 1, 1], dtype=dtype)
            torch.save(t, self.path)
            back = torch.load(self.path)
            self.assertEqual(back.dtype, dtype)
            self.assertTrue(torch.equal(back, t))

    def test_shapes(self):
        for t in (torch.tensor(2.5), torch.zeros(2, 0, 3), torch.arange(6).reshape(2, 3).t()):
            torch.save(t, self.path)
            back = torch.load(self.path)
            self.assertEqual(back.shape, t.shape)
            self.assertTrue(torch.equal(back, t))

    def test_unknown_dtype_keeps_other_tensors(self):
        header = (b'{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,4]},'
                  b'"b":{"dtype":"I32","shape":[],"data_offsets":[4,8]}}')
        back = torch.load(io.BytesIO(len(header).to_bytes(8, "little") + header + bytes(4) + b"\7\0\0\0"))
        self.assertEqual((list(back), back["b"].item()), (["b"], 7))
        with self.assertRaisesRegex(NotImplementedError, "tensor 'a' of the file has the dtype F4, which Phlox lacks"):
            back["a"]
        with self.assertRaises(KeyError):
            back["c"]

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_map_location(self):
        torch.save({"t": torch.ones(2, device="cuda:1")}, self.path)
        self.assertEqual(torch.load(self.path)["t"].device, torch.device("cuda:1"))
        self.assertEqual(torch.load(self.path, map_location="cpu")["t"].device, torch.device("cpu"))
        self.assertEqual(torch.load(self.path, map_location=torch.device("cuda:0"))["t"].device, torch.device("cuda:0"))
        self.assertEqual(torch.load(self.path, map_location={"cuda:1": "cuda:0"})["t"].device, torch.device("cuda:0"))
        self.assertEqual(torch.load(self.path, map_location={"cuda:0": "cpu"})["t"].device, torch.device("cuda:1"))

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_map_location_function(self):
        seen = []

        def map_location(storage, location):
            seen.append((type(storage).__name__, str(storage.device), location))
            return storage if location == "cpu" else None
        torch.save([torch.ones(2, device="cuda:1"), torch.zeros(1)], self.path)
        back = torch.load(self.path, map_location=map_location)
        self.assertEqual([str(t.device) for t in back], ["cuda:1", "cpu"])
        self.assertEqual(seen, [("UntypedStorage", "cpu", "cuda:1"), ("UntypedStorage", "cpu", "cpu")])
        self.assertEqual(str(torch.load(self.path, map_location=lambda storage, _: storage.cuda(0))[1].device), "cuda:0")

    def test_invalid_map_location(self):
        torch.save(torch.ones(1), self.path)
        with self.assertRaisesRegex(RuntimeError, r"don't know how to restore data location of torch.storage.UntypedStorage \(tagged with cud\)"):
            torch.load(self.path, map_location="cud")
        with self.assertRaisesRegex(RuntimeError, "Attempting to deserialize object on (CUDA device 63|a CUDA device)"):
            torch.load(self.path, map_location="cuda:63")
        with self.assertRaisesRegex(TypeError, "'int' object is not callable"):
            torch.load(self.path, map_location=3)

    def test_invalid_files(self):
        with self.assertRaises(FileNotFoundError) as caught:
            torch.load(os.path.join(self.folder.name, "absent"))
        self.assertEqual(caught.exception.errno, 2)
        with open(self.path, "wb") as file:
            file.write(b"no such form")
        with self.assertRaises(Exception):
            torch.load(self.path)
        with self.assertRaises((FileNotFoundError, RuntimeError)):
            torch.save(torch.ones(1), os.path.join(self.folder.name, "no", "such"))

    def test_truncated_file(self):
        torch.save({"t": torch.arange(100)}, self.path)
        with open(self.path, "rb") as file:
            whole = file.read()
        for cut in range(0, len(whole) - 1, max(1, len(whole) // 40)):
            with open(self.path, "wb") as file:
                file.write(whole[:cut])
            with self.assertRaises(Exception):
                torch.load(self.path)


class MappedFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "bytes")

    def test_from_file(self):
        path = self.path
        with open(path, "wb") as file:
            file.write(bytes(range(10)))
        part = torch.UntypedStorage.from_file(path, nbytes=4)
        part[1] = 9  # private mapping
        self.assertEqual((list(part), torch.from_file(path, size=2, dtype=torch.int16).tolist()), ([0, 9, 2, 3], [256, 770]))
        torch.from_file(path, True, 3).fill_(1)  # float32: extends the file
        self.assertEqual(open(path, "rb").read(), b"\0\0\x80\x3f" * 3)
        self.assertEqual((len(torch.UntypedStorage.from_file(path)), torch.from_file(path, dtype=torch.int8).shape), (0, (0,)))

    def test_from_file_errors(self):
        path = self.path
        open(path, "wb").close()
        for text, call in ((r"file <.*> size <0> is smaller than the required mapping size <4>", lambda: torch.from_file(path, size=1)),
                           (r"unable to open file <.*> in read-only mode: No such file or directory \(2\)",
                            lambda: torch.UntypedStorage.from_file(path + "no", nbytes=1)),
                           ("the memory of a file is on the CPU", lambda: torch.from_file(path, size=1, device="cuda"))):
            with self.assertRaisesRegex(RuntimeError, text):
                call()

    def test_storage_slices_share_memory(self):
        x = torch.arange(8, dtype=torch.uint8)
        for device in ("cpu", "cuda"):
            whole = x.to(device).untyped_storage()
            part = torch.asarray(whole[2:-2], dtype=torch.uint8)
            part[0] = 7
            self.assertEqual((list(whole[2:4]), part.device.type, len(whole[5:2])), ([7, 3], device, 0))
        with self.assertRaisesRegex(RuntimeError, "Trying to slice with a step of 2, but only a step of 1 is supported"):
            whole[::2]
        with self.assertRaisesRegex(RuntimeError, "slices are only supported in UntypedStorage.__getitem__"):
            x.storage()[1:]


class SafetensorsFiles(Files):
    name = "file.safetensors"


if __name__ == "__main__":
    unittest.main()
