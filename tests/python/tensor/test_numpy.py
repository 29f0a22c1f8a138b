# SPDX-License-Identifier: Apache-2.0
"""NumPy: shared memory in both directions, conversion of scalars and dtypes, and errors."""
import ctypes
import subprocess
import sys
import tempfile
import unittest
import warnings

import phlox as torch

try:
    import numpy as np
except ImportError:
    np = None


@unittest.skipIf(np is None, "NumPy is not installed")
class Arrays(unittest.TestCase):
    def test_memory_is_shared(self):
        a = np.zeros(3)
        t = torch.from_numpy(a)
        a[0], t[1] = 5, 7
        self.assertEqual((t.tolist(), a.tolist()), ([5, 7, 0], [5, 7, 0]))
        b = t.numpy()
        b[2] = 9
        self.assertEqual(a.tolist(), [5, 7, 9])
        del a, t
        self.assertEqual(b.tolist(), [5, 7, 9])

    def test_array_keeps_its_memory_after_the_tensor_gets_other_data(self):
        t = torch.full((4096,), 3.0)
        a, z = t.numpy(), t.detach().numpy()
        t.data = torch.zeros(1)
        torch.full((4096,), 7.0)  # reuses memory that was freed
        self.assertEqual((set(a.tolist()), set(z.tolist())), ({3.0}, {3.0}))

    def test_scalars_keep_values(self):
        made = [torch.as_tensor(np.int64(i)) for i in range(50)]
        self.assertEqual([t.item() for t in made], list(range(50)))
        self.assertEqual((made[3].dtype, made[3].shape), (torch.int64, ()))
        self.assertEqual([torch.tensor(np.float32(i)).item() for i in range(9)], [*range(9)])
        self.assertEqual(torch.utils.data.default_collate([np.int32(i) for i in range(9)]).tolist(), [*range(9)])
        with self.assertRaisesRegex(TypeError, r"expected np.ndarray \(got numpy.int64\)"):
            torch.from_numpy(np.int64(1))

    def test_lists_of_complex_and_extended_scalars(self):
        for name in ("complex64", "complex128"):
            made = torch.tensor([1.5, getattr(np, name)(1 + 2j)])
            self.assertEqual((made.dtype, made.tolist()), (getattr(torch, name), [1.5, 1 + 2j]))
        self.assertEqual(torch.tensor([np.longdouble(2), np.clongdouble(1j)], dtype=torch.complex64).tolist(), [2, 1j])
        self.assertEqual((torch.ones(1) + np.longdouble(2), torch.full((1,), np.longdouble(2))), (3, 2))
        with self.assertRaisesRegex(TypeError, "can't convert np.ndarray of type"):
            torch.tensor([np.longdouble(2)])

    def test_zero_dim_arrays_in_lists(self):
        self.assertEqual(torch.tensor([[np.array(1), 2], [np.array(3), np.int8(4)]]).tolist(), [[1, 2], [3, 4]])
        self.assertEqual(torch.tensor([np.array(1.5, dtype="float32")]).dtype, torch.float32)
        self.assertEqual(torch.as_tensor([np.array(True)]).dtype, torch.bool)

    def test_array_subclasses(self):
        with tempfile.TemporaryFile() as file:
            mapped = np.memmap(file, dtype="int64", shape=(3,))
            mapped[:] = [1, 2, 3]
            self.assertEqual(torch.from_numpy(mapped).tolist(), [1, 2, 3])
            self.assertEqual((torch.ones(3) + mapped).tolist(), [2, 3, 4])

    def test_strides_and_dtypes(self):
        for dtype in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"):
            a = np.arange(6).reshape(2, 3).astype(dtype).T
            t = torch.from_numpy(a)
            self.assertEqual((t.tolist(), str(t.dtype)), (a.tolist(), "torch." + dtype))
            self.assertEqual(t.numpy().strides, a.strides)
        self.assertEqual(torch.ones(0, 2).numpy().shape, (0, 2))
        self.assertEqual(torch.tensor(2).numpy().shape, ())

    def test_unsupported_arrays(self):
        with self.assertRaisesRegex(TypeError, r"can't convert np.ndarray of type numpy.str_"):
            torch.from_numpy(np.array(["a"]))
        with self.assertRaisesRegex(TypeError, r"expected np.ndarray \(got list\)"):
            torch.from_numpy([1])
        with self.assertRaisesRegex(ValueError, "strides in the given numpy array is negative|negative"):
            torch.from_numpy(np.arange(3)[::-1])
        with self.assertRaisesRegex(RuntimeError, "Can't call numpy"):
            torch.ones(1, requires_grad=True).numpy()

    def test_scalars_and_mixed_arithmetic(self):
        self.assertEqual(torch.tensor(np.float32(2)).dtype, torch.float32)
        self.assertEqual(torch.tensor([np.int64(1), 2]).tolist(), [1, 2])
        self.assertEqual((torch.ones(2) * np.float64(2)).dtype, torch.float32)
        self.assertEqual((torch.ones(2) * np.ones(2)).dtype, torch.float64)
        self.assertIsInstance(np.sin(torch.ones(2)), torch.Tensor)
        self.assertEqual(torch.ones(3)[np.int64(1)].item(), 1)
        self.assertEqual(torch.arange(4)[np.array([0, 3])].tolist(), [0, 3])

    def test_operators_with_arrays(self):
        a, b = torch.arange(3.0), np.arange(3.0, dtype=np.float32)
        for result, values in ((a == b, [True] * 3), (b == a, [True] * 3), (a != b, [False] * 3), (b < a + 1, [True] * 3), (b / (a + 1), [0.0, 0.5, 2 / 3]),
                               (a / (b + 1), [0.0, 0.5, 2 / 3]), (b - a, [0.0] * 3), (a * b, [0.0, 1.0, 4.0]), (b * a, [0.0, 1.0, 4.0]), (b @ a, 5.0)):
            self.assertIs(type(result), torch.Tensor)
            self.assertTrue(torch.allclose(result.double(), torch.tensor(values, dtype=torch.float64)), result)
        same = a
        a += b
        self.assertIs(a, same)
        self.assertEqual(a.tolist(), [0, 2, 4])
        w = torch.ones(3, requires_grad=True)
        (w * b).sum().backward()
        self.assertEqual(w.grad.tolist(), [0, 1, 2])
        with self.assertRaisesRegex(TypeError, "can't convert np.ndarray of type numpy.str_"):
            a == np.array(["a", "b", "c"])

    def test_read_only_arrays_warn(self):
        a = np.ones(2)
        a.setflags(write=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.from_numpy(a)
        self.assertIn("not writable", str(caught[0].message))

    def test_conversions_of_read_only_arrays_warn_unless_they_copy(self):
        script = "import numpy as np, phlox as torch; a = np.ones(2); a.setflags(write=False); torch.{}(a{})"
        for call, options, warns in (("as_tensor", "", True), ("asarray", "", True), ("from_numpy", "", True), ("tensor", "", False), ("from_dlpack", ", copy=True", False)):
            if call == "from_dlpack" and np.lib.NumpyVersion(np.__version__) < "2.1.0": continue
            run = subprocess.run([sys.executable, "-c", script.format(call, options)], capture_output=True, text=True, check=True)
            self.assertEqual("not writable" in run.stderr, warns, call)


class Buffers(unittest.TestCase):
    def test_frombuffer(self):
        b = bytearray(8)
        t = torch.frombuffer(b, dtype=torch.int16, offset=2, count=2)
        t[0] = 258
        self.assertEqual(bytes(b), b"\0\0\2\1\0\0\0\0")
        with self.assertRaisesRegex(ValueError, "must be a multiple of element size"):
            torch.frombuffer(b, dtype=torch.int16, offset=1)

    def test_unaligned_offsets(self):
        for offset in range(8):
            t = torch.frombuffer(bytearray(16 + 8), dtype=torch.float32, offset=offset, count=4)
            t += 1.5
            self.assertEqual((t.tolist(), t[3].item(), (t @ t).item(), t.view(2, 2).t().contiguous().sum().item()), ([1.5] * 4, 1.5, 9, 6))

    def test_nonzero_bytes_are_true(self):
        t = torch.frombuffer(b"\0\1\2\xff", dtype=torch.bool)
        self.assertEqual((t.sum().item(), (t & t).int().tolist(), (~t).tolist()), (3, [0, 1, 1, 1], [True, False, False, False]))


class ArrayInterface:
    """An object with a given __array_interface__."""

    def __init__(self, **invalid):
        self.memory = (ctypes.c_float * 4)(1, 2, 3, 4)
        self.__array_interface__ = dict(shape=(2, 2), typestr="<f4", strides=None, data=(ctypes.addressof(self.memory), False), version=3, **invalid)


class ArrayInterfaces(unittest.TestCase):
    def described(self, **invalid):
        made = ArrayInterface()
        made.__array_interface__.update(invalid)
        return made

    def test_invalid_interfaces(self):
        self.assertEqual(torch.from_numpy(self.described()).tolist(), [[1, 2], [3, 4]])
        for invalid, error, text in (({"strides": (4,)}, ValueError, "1 strides for 2 dimensions"), ({"typestr": ""}, TypeError, "can't convert"),
                                  ({"shape": (-1, 2)}, ValueError, "exceeds the address space"), ({"data": (0, False)}, ValueError, "needs memory, but got NULL"),
                                  ({"shape": 4}, TypeError, "shape must be a tuple"), ({"strides": [4, 4]}, TypeError, "strides must be a tuple"),
                                  ({"data": None}, TypeError, "lacks shape or data"), ({"shape": (2 ** 62, 2 ** 62)}, ValueError, "exceeds the address space")):
            with self.subTest(invalid=invalid), self.assertRaisesRegex(error, text):
                torch.from_numpy(self.described(**invalid))

    def test_interface_mutated_while_read(self):
        made = self.described()

        class Emptying:
            def __index__(self):
                made.__array_interface__.clear()
                return 2
        made.__array_interface__["shape"] = (Emptying(), 2)
        self.assertEqual(torch.from_numpy(made).tolist(), [[1, 2], [3, 4]])


if __name__ == "__main__":
    unittest.main()
