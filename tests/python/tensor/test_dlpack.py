# SPDX-License-Identifier: Apache-2.0
"""DLPack from Python: memory is shared with NumPy, and with PyTorch if it is installed."""
import unittest

import phlox as torch


class Dlpack(unittest.TestCase):
    def test_round_trip(self):
        a = torch.arange(6.0).view(2, 3)
        b = torch.from_dlpack(a)
        b[1, 1] = -1
        self.assertEqual(a[1, 1].item(), -1)
        self.assertEqual(a.__dlpack_device__(), (1, 0))

    def test_capsule_is_consumed_once(self):
        capsule = torch.ones(2).__dlpack__()
        torch.from_dlpack(capsule)
        self.assertRaises(ValueError, torch.from_dlpack, capsule)

    def test_requires_grad_raises(self):
        self.assertRaisesRegex(BufferError, "require gradient", torch.ones(1, requires_grad=True).__dlpack__)

    def test_arguments(self):
        a = torch.ones(2)
        self.assertRaisesRegex(BufferError, r"not on \(2, 0\)", a.__dlpack__, dl_device=(2, 0))
        self.assertRaises(TypeError, a.__dlpack__, dl_device=1)
        a.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=False)
        copy = torch.from_dlpack(a.__dlpack__(copy=True))
        copy[0] = 5
        self.assertEqual(a.tolist(), [1, 1])

    @unittest.skipIf(torch.cuda.device_count() < 1, "requires a device")
    def test_streams(self):
        a = torch.ones(2, device="cuda")
        side = torch.cuda.Stream()
        capsule = a.__dlpack__(stream=side.cuda_stream)  # makes that stream wait for the current one
        with torch.cuda.stream(side):
            b = torch.from_dlpack(capsule)
            self.assertEqual((b.data_ptr(), b.tolist(), b.__dlpack_device__()), (a.data_ptr(), [1, 1], (2, 0)))
        for stream in (None, -1, 1, 2, torch.cuda.Stream().cuda_stream):
            a.__dlpack__(stream=stream)
        self.assertRaisesRegex(BufferError, "unsupported stream on CUDA: 0", a.__dlpack__, stream=0)
        self.assertRaisesRegex(TypeError, "stream must be an int", a.__dlpack__, stream="1")

    def test_numpy(self):
        try: import numpy
        except ImportError: self.skipTest("NumPy is not installed")
        a = torch.arange(4)
        view = numpy.from_dlpack(a)
        a[0] = 9
        self.assertEqual(view[0], 9)

    def test_pytorch(self):
        try: import torch as pytorch
        except ImportError: self.skipTest("PyTorch is not installed")
        if "phlox" in pytorch.__file__: self.skipTest("PyTorch is not installed")
        a = torch.ones(2, 2)
        pytorch.utils.dlpack.from_dlpack(a.__dlpack__())[0, 0] = 5
        self.assertEqual(a.sum().item(), 8)
        self.assertEqual(torch.from_dlpack(pytorch.full((3,), 2.0)).tolist(), [2, 2, 2])


if __name__ == "__main__":
    unittest.main()
