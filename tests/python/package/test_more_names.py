# SPDX-License-Identifier: Apache-2.0
"""Names of PyTorch outside of its main tables: set_, chain_matmul, threads of backward, observers of shortages, safe loading, copies by NumPy,
states of checkpoints, weights of convolutions and Functions of DataParallel."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import collections
import contextlib
import io
import pickle
import tempfile
import threading
import unittest
import warnings
from unittest import mock

import phlox as torch
import phlox.nn.parallel._functions as transfers
import phlox.utils.checkpoint as checkpoint

try:
    import numpy
except ImportError:
    numpy = None


class Mine:
    """A class that weights_only refuses."""


def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


class SetMemory(unittest.TestCase):
    def test_geometries(self):
        six = torch.arange(6.0)
        view, storage = six[2:], six.untyped_storage()
        for args, want, place in (((), [], (1,)), ((six.reshape(2, 3).t(),), [[0, 3], [1, 4], [2, 5]], (1, 3)), ((view,), [2, 3, 4, 5], (1,)),
                                  ((storage,), [0, 1, 2, 3, 4, 5], (1,)), ((six.storage(),), [0, 1, 2, 3, 4, 5], (1,)),
                                  ((storage, 1, (2, 2), (2, 1)), [[1, 2], [3, 4]], (2, 1)), ((storage, 1, (2, 2)), [[1, 2], [3, 4]], (2, 1)),
                                  ((six, 1, (2,)), [1, 2], (1,)), ((storage, 0, ()), 0, ())):
            x = torch.zeros(2)
            self.assertIs(x.set_(*args), x)
            self.assertEqual((x.tolist(), x.stride(), x._version), (want, place, 1))
        x = torch.zeros(2).set_(source=storage, storage_offset=4, size=(2,), stride=(1,))
        x.add_(10)
        self.assertEqual(six.tolist(), [0, 1, 2, 3, 14, 15])

    def test_small_storage_grows(self):
        storage = torch.arange(6.0).untyped_storage()
        self.assertEqual((torch.zeros(2).set_(storage, 2, (10,))[:4].tolist(), storage.nbytes()), ([2, 3, 4, 5], 48))

    def test_leaves_need_no_grad(self):
        leaf = torch.zeros(2, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "^a leaf Variable that requires grad is being used in an in-place operation.$"):
            leaf.set_(torch.ones(3))
        with torch.no_grad():
            leaf.set_(torch.ones(3))
        self.assertEqual((leaf.tolist(), leaf.requires_grad), ([1, 1, 1], True))

    def test_errors(self):
        storage = torch.arange(6.0).untyped_storage()
        for args, kind, text in (((3,), TypeError, "invalid combination of arguments"), ((None,), TypeError, "got .NoneType."),
                                 ((torch.arange(3),), RuntimeError, "^Could not set tensor of type"), ((storage, -1, (2,)), RuntimeError, "^Tensor: invalid storage offset -1"),
                                 ((storage, 0, (2,), (1, 1)), RuntimeError, r"^unequal size length \(1\) and stride length \(2\)"),
                                 ((torch.zeros(2, device="cuda"),), RuntimeError, 'tensor on device "cpu" to a storage on different device "cuda:0"')):
            with self.assertRaisesRegex(kind, text):
                torch.zeros(2).set_(*args)


class ChainMatmul(unittest.TestCase):
    def test_product_of_any_number_of_matrices(self):
        a, b, c = torch.rand(2, 3), torch.rand(3, 4), torch.rand(4, 1)
        with self.assertWarnsRegex(UserWarning, "torch.chain_matmul is deprecated"):
            torch.testing.assert_close(torch.chain_matmul(a, b, c), a @ b @ c)
            torch.testing.assert_close(torch.chain_matmul(a, b, out=torch.empty(0)), a @ b)
            self.assertTrue(torch.equal(torch.chain_matmul(a), a) and torch.equal(torch.chain_matmul(a, out=torch.empty(0)), a))
            for args, kind, text in (((), RuntimeError, "^chain_matmul.*Expected one or more matrices"), ((a, b[0]), RuntimeError, "dimension is 1, expected 2"),
                                     (([a, b],), TypeError, "expected Tensor as element 0 in argument 0, but got list")):
                with self.assertRaisesRegex(kind, text):
                    torch.chain_matmul(*args)


class Multithreading(unittest.TestCase):
    def setUp(self):
        self.addCleanup(torch.autograd.set_multithreading_enabled, True)

    def threads_of_backward(self):
        names = set()
        inputs, streams = [torch.ones(2, device=f"cuda:{i}", requires_grad=True) for i in range(2)], [torch.cuda.Stream(i) for i in range(2)]
        total = 0
        for x, stream in zip(inputs, streams):
            stream.wait_stream(torch.cuda.default_stream(x.device))
            with torch.cuda.stream(stream):
                y = x * 2
                y.register_hook(lambda grad: names.add(threading.get_ident()))
            torch.cuda.default_stream(x.device).wait_stream(stream)
            total = total + y.sum().to("cuda:0")
        before = [torch.cuda.current_stream(i) for i in range(2)], torch.cuda.current_device()
        total.backward()
        self.assertEqual([x.grad.tolist() for x in inputs], [[2, 2]] * 2)
        self.assertEqual(([torch.cuda.current_stream(i) for i in range(2)], torch.cuda.current_device()), before)
        return names

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_backward_runs_on_the_calling_thread(self):
        mine = threading.get_ident()
        self.assertNotIn(mine, self.threads_of_backward())
        with torch.autograd.set_multithreading_enabled(False):
            self.assertEqual(self.threads_of_backward(), {mine})
        self.assertNotIn(mine, self.threads_of_backward())

    def test_context_function_and_decorator(self):
        state, switch = torch._C._is_multithreading_enabled, torch.autograd.set_multithreading_enabled
        with switch(False) as mode:
            self.assertEqual((state(), mode.mode), (False, False))
        self.assertTrue(state())
        self.assertFalse(switch(False)(state)())
        self.assertTrue(state())
        switch(False)
        self.assertFalse(state())
        seen = []
        thread = threading.Thread(target=lambda: seen.append(state()))
        thread.start(), thread.join()
        self.assertEqual(seen, [True])
        with self.assertRaisesRegex(TypeError, "must be bool, not int"):
            switch(3)
        self.assertIs(torch.autograd.grad_mode.set_multithreading_enabled, switch)


class Shortages(unittest.TestCase):
    def test_observers_are_called_before_the_error(self):
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *figures: seen.append((figures, torch.cuda.memory_allocated(0))))
        torch._C._cuda_attach_out_of_memory_observer(lambda *figures: 1 / 0)
        with contextlib.redirect_stderr(io.StringIO()) as printed, self.assertRaises(torch.OutOfMemoryError):
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        (device, requested, total, free), _ = seen[0]
        self.assertEqual((len(seen), device, requested, 0 < free <= total), (1, 0, 1 << 50, True))
        self.assertIn("ZeroDivisionError", printed.getvalue())
        with self.assertRaisesRegex(TypeError, "expected a callable observer, not int"):
            torch._C._cuda_attach_out_of_memory_observer(3)

    def test_host_statistics_of_the_accelerator(self):
        self.assertEqual(list(torch.accelerator.host_memory_stats()), list(torch.cuda.host_memory_stats()))


class SafeLoading(unittest.TestCase):
    def test_unsafe_globals_are_listed(self):
        unsafe = lambda value, **options: torch.serialization.get_unsafe_globals_in_checkpoint(saved(value, **options))
        self.assertEqual(set(unsafe([Mine(), collections.defaultdict(int)])), {f"{__name__}.Mine", "builtins.int", "collections.defaultdict"})
        plain = {"tensor": torch.ones(1), "set": {1}, "size": torch.Size([1]), "dtype": torch.int8, "parameter": torch.nn.Parameter(torch.ones(1)),
                 "state": torch.nn.Linear(1, 1).state_dict(), "counter": collections.Counter("a"), "bytes": bytearray(b"a"), "device": torch.device("cpu")}
        self.assertEqual(unsafe(plain), [])
        with torch.serialization.safe_globals([Mine]):
            self.assertEqual(unsafe([Mine()]), [])
        with self.assertRaisesRegex(ValueError, "^Expected input to be a checkpoint returned by torch.save$"):
            unsafe([1], _use_new_zipfile_serialization=False)
        with self.assertRaisesRegex(pickle.UnpicklingError, "^Unsupported operand"):
            unsafe([Mine()], pickle_protocol=4)
        with tempfile.NamedTemporaryFile(suffix=".pt") as file:
            torch.save([Mine()], file.name)
            self.assertEqual(torch.serialization.get_unsafe_globals_in_checkpoint(file.name), [f"{__name__}.Mine"])

    def load(self, environment, **options):
        with mock.patch.dict(os.environ, environment), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return type(torch.load(saved(Mine()), **options))

    def test_environment_forces_weights_only(self):
        for value, forces in (("1", True), ("y", True), ("YES", True), ("True", True), ("0", False), ("no", False), ("2", False), ("", False)):
            with self.subTest(value):
                with self.assertRaises(pickle.UnpicklingError) if forces else contextlib.nullcontext():
                    self.load({"TORCH_FORCE_WEIGHTS_ONLY_LOAD": value}, weights_only=False)
                with contextlib.nullcontext() if forces else self.assertRaises(pickle.UnpicklingError):
                    self.load({"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": value})

    def test_explicit_argument_wins_over_no_weights_only(self):
        with self.assertRaises(pickle.UnpicklingError):
            self.load({"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}, weights_only=True)
        with mock.patch.dict(os.environ, {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}), self.assertWarnsRegex(UserWarning, "forcing weights_only=False"):
            torch.load(saved(Mine()))
        with self.assertRaisesRegex(RuntimeError, "should be set, but both were set.$"):
            self.load({"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"})


@unittest.skipIf(numpy is None, "NumPy is not installed")
class ArrayCopies(unittest.TestCase):
    def test_copy_says_whether_memory_is_shared(self):
        x = torch.arange(2.0)
        for dtype, copy, shares in ((None, None, True), (None, False, True), (None, True, False), ("float32", None, True), ("float32", False, True),
                                    ("float32", True, False), ("float64", None, False), ("float64", True, False)):
            array = x.__array__(dtype, copy=copy)
            self.assertEqual((array.__array_interface__["data"][0] == x.data_ptr(), array.dtype.name), (shares, dtype or "float32"))
        with self.assertRaisesRegex(ValueError, "^Unable to avoid copy while creating an array as requested.$"):
            x.__array__("float64", copy=False)


class CheckpointStates(unittest.TestCase):
    def test_states_of_the_tensors_devices(self):
        x = torch.ones(1, device="cuda:0")
        devices, states = checkpoint.get_device_states(x, 3, [x, {"k": torch.ones(1)}])
        self.assertEqual((devices, len(states)), ([0, 0], 2))
        first = torch.rand(3, device="cuda:0")
        checkpoint.set_device_states(devices, states, device_type="cuda")
        self.assertTrue(torch.equal(torch.rand(3, device="cuda:0"), first))
        checkpoint.set_device_states([0], ["no state"], device_type="meta")

    def test_default_device_type(self):
        kind = checkpoint.DefaultDeviceType
        self.addCleanup(setattr, kind, "_type", kind._type)
        self.assertEqual(kind.get_device_type(), "cuda" if torch.cuda.is_available() else "cpu")
        kind.set_device_type("meta")
        self.assertEqual(kind.get_device_type(), "meta")
        checkpoint.set_device_states([0], ["no state"])

    def test_detached_variables_are_leaves(self):
        x = torch.ones(2, requires_grad=True)
        doubled, leaf, plain, number = checkpoint.detach_variable((x * 2, x, torch.ones(1), 3))
        self.assertEqual([(t.is_leaf, t.requires_grad) for t in (doubled, leaf, plain)], [(True, True), (True, True), (True, False)])
        self.assertEqual((leaf is x, number), (False, 3))
        with self.assertRaisesRegex(RuntimeError, "^Only tuple of tensors is supported. Got Unsupported input type: list$"):
            checkpoint.detach_variable([x])
        with self.assertWarnsRegex(UserWarning, "^None of the inputs have requires_grad=True"):
            checkpoint.check_backward_validity([torch.ones(1)])


class WeightFormats(unittest.TestCase):
    def test_weights_of_convolutions_are_converted(self):
        nn = torch.nn
        net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Sequential(nn.ConvTranspose2d(3, 2, 2)), nn.Conv1d(2, 2, 1), nn.Conv3d(2, 2, 2), nn.Linear(2, 2))
        strides = lambda: [p.stride() for name, p in net.named_parameters() if name.endswith("weight")]
        self.assertIs(nn.utils.convert_conv2d_weight_memory_format(net, torch.channels_last), net)
        self.assertEqual(strides(), [(8, 1, 4, 2), (8, 1, 4, 2), (2, 1, 1), (16, 8, 4, 2, 1), (2, 1)])
        nn.utils.convert_conv3d_weight_memory_format(net, torch.channels_last_3d)
        self.assertEqual(strides()[3], (16, 1, 8, 4, 2))
        nn.utils.convert_conv2d_weight_memory_format(net, torch.contiguous_format)
        self.assertEqual((strides()[:2], all(p.requires_grad for p in net.parameters())), ([(8, 4, 2, 1), (8, 4, 2, 1)], True))


@unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
class Transfers(unittest.TestCase):
    def test_scatter_and_gather(self):
        for device in ("cpu", "cuda:0"):
            x = torch.arange(6.0, device=device, requires_grad=True)
            parts = transfers.Scatter.apply([0, 1], [4, 2], 0, x)
            self.assertEqual([(p.get_device(), p.tolist()) for p in parts], [(0, [0, 1, 2, 3]), (1, [4, 5])])
            joined = transfers.Gather.apply("cuda:1", 0, *parts)
            self.assertEqual((joined.get_device(), joined.tolist()), (1, x.tolist()))
            (joined * torch.arange(6.0, device="cuda:1")).sum().backward()
            self.assertEqual((x.grad.device, x.grad.tolist()), (x.device, [0, 1, 2, 3, 4, 5]))

    def test_gather_of_scalars_warns(self):
        scalars = [torch.tensor(float(i), device=f"cuda:{i}", requires_grad=True) for i in range(2)]
        with self.assertWarnsRegex(UserWarning, "all input tensors were scalars"):
            joined = transfers.Gather.apply(0, 0, *scalars)
        joined.sum().backward()
        self.assertEqual((joined.tolist(), scalars[1].grad.tolist()), ([0, 1], 1))

    def test_broadcast_and_sum(self):
        a, b = torch.ones(2, device="cuda:0", requires_grad=True), torch.ones(1, device="cuda:0")
        copies = transfers.Broadcast.apply([0, 1], a, b)
        self.assertEqual([(c.get_device(), c.requires_grad) for c in copies], [(0, True), (0, False), (1, True), (1, False)])
        (copies[0].sum() + 2 * copies[2].sum().to("cuda:0")).backward()
        self.assertEqual(a.grad.tolist(), [3, 3])
        parts = [torch.full((2,), float(i + 1), device=f"cuda:{i}", requires_grad=True) for i in range(2)]
        total, = transfers.ReduceAddCoalesced.apply(0, 1, *parts)
        total.sum().backward()
        self.assertEqual((total.tolist(), parts[1].grad.tolist()), ([3, 3], [1, 1]))
        for function, args in ((transfers.Broadcast, ([0],)), (transfers.Gather, (0, 0))):
            with self.assertRaisesRegex(AssertionError, f"^{function.__name__} function not implemented for CPU tensors$"):
                function.apply(*args, torch.ones(1))

    def test_streams_for_copies_are_kept(self):
        self.assertEqual(transfers._get_stream(torch.device("cuda:1")), transfers._get_stream(torch.device("cuda:1")))
        self.assertIsNone(transfers._get_stream(torch.device("cpu")))


if __name__ == "__main__":
    unittest.main()
