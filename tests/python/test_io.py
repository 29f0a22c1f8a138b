# SPDX-License-Identifier: Apache-2.0
"""torch.save and torch.load, and files of safetensors."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import tempfile
import unittest
from collections import OrderedDict

import phlox as torch
from phlox import nn


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "file")

    def tearDown(self):
        self.folder.cleanup()

    def test_a_state_goes_through_a_file(self):
        net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        torch.save(net.state_dict(), self.path)
        other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        other.load_state_dict(torch.load(self.path))
        for a, b in zip(net.state_dict().values(), other.state_dict().values()):
            self.assertTrue(torch.equal(a, b))

    def test_what_is_no_state_is_refused(self):
        for thing in ({"epoch": 3}, [torch.ones(1)], nn.Linear(1, 1), 5):
            with self.assertRaisesRegex(NotImplementedError, "torch.save writes safetensors"):
                torch.save(thing, self.path)
            self.assertFalse(os.path.exists(self.path))

    def test_names(self):
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

    @unittest.skipIf(torch.cuda.device_count() < 2, "two devices are wanted")
    def test_devices(self):
        torch.save({"t": torch.ones(2, device="cuda:1")}, self.path)
        self.assertEqual(torch.load(self.path)["t"].device, torch.device("cuda:1"))
        self.assertEqual(torch.load(self.path, map_location="cpu")["t"].device, torch.device("cpu"))
        self.assertEqual(torch.load(self.path, map_location=torch.device("cuda:0"))["t"].device, torch.device("cuda:0"))
        self.assertEqual(torch.load(self.path, map_location={"cuda:1": "cuda:0"})["t"].device, torch.device("cuda:0"))

    def test_what_is_no_file(self):
        with self.assertRaises(FileNotFoundError) as caught:
            torch.load(os.path.join(self.folder.name, "absent"))
        self.assertEqual(caught.exception.errno, 2)
        with open(self.path, "wb") as file:
            file.write(b"no such form")
        with self.assertRaises(Exception):
            torch.load(self.path)
        with self.assertRaises((FileNotFoundError, RuntimeError)):
            torch.save(torch.ones(1), os.path.join(self.folder.name, "no", "such"))

    def test_a_cut_file(self):
        torch.save({"t": torch.arange(100)}, self.path)
        with open(self.path, "rb") as file:
            whole = file.read()
        for cut in range(0, len(whole) - 1, max(1, len(whole) // 40)):
            with open(self.path, "wb") as file:
                file.write(whole[:cut])
            with self.assertRaises(Exception):
                torch.load(self.path)


if __name__ == "__main__":
    unittest.main()
