# SPDX-License-Identifier: Apache-2.0
"""torch.nn.DataParallel, torch.nn.parallel and torch.cuda.comm on simulated devices."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "4")

import threading
import unittest
import warnings
from collections import namedtuple

import phlox as torch
from phlox import nn

cuda0, cuda1 = torch.device("cuda:0"), torch.device("cuda:1")
Pair = namedtuple("Pair", "a b")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 2)
        self.seen = []

    def forward(self, x):
        self.seen.append((x.shape[0], x.device.index, self.fc.weight.device.index))
        return self.fc(x)


@unittest.skipIf(torch.cuda.device_count() < 4, "four devices are wanted")
class Parallel(unittest.TestCase):
    def test_batch_is_split_by_devices(self):
        for batch, ids, wanted in ((30, [0, 1], [15, 15]), (30, [0, 1, 2], [10, 10, 10]), (10, [0, 1, 2], [4, 4, 2]),
                                   (7, [0, 1], [4, 3]), (1, [0, 1], [1]), (5, [0, 1, 2, 3], [2, 2, 1])):
            net = Net().to("cuda:0")
            out = nn.DataParallel(net, device_ids=ids)(torch.randn(batch, 5))
            self.assertEqual((out.shape, out.device), ((batch, 2), cuda0))
            self.assertEqual(sorted(net.seen, key=lambda s: s[1]), [(n, i, i) for i, n in enumerate(wanted)])

    def test_defaults(self):
        parallel = nn.DataParallel(Net().cuda())
        self.assertEqual(parallel.device_ids, [0, 1, 2, 3])
        self.assertEqual(parallel.output_device, 0)
        self.assertEqual(parallel.dim, 0)
        self.assertEqual(list(parallel.state_dict()), ["module.fc.weight", "module.fc.bias"])
        self.assertEqual(repr(nn.DataParallel(nn.Linear(2, 2).cuda())),
                         "DataParallel(\n  (module): Linear(in_features=2, out_features=2, bias=True)\n)")

    def test_gradients_match_one_device(self):
        net, x = Net().cuda(), torch.randn(11, 5, device="cuda:0")
        grads = []
        for module in (net, nn.DataParallel(net)):
            net.zero_grad()
            out = module(x)
            out.pow(2).mean().backward()
            grads.append([p.grad.clone() for p in net.parameters()])
        self.assertIn("GatherBackward", repr(out.grad_fn))
        for a, b in zip(*grads):
            self.assertTrue(torch.allclose(a, b, atol=1e-6))
            self.assertEqual(b.device, cuda0)

    def test_training(self):
        net = nn.DataParallel(Net().cuda())
        optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
        x, losses = torch.randn(8, 5), []
        for _ in range(5):
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0])

    def test_scatter_and_gather_can_be_overridden(self):
        class Counting(nn.DataParallel):
            def scatter(self, inputs, kwargs, device_ids):
                parts = super().scatter(inputs, kwargs, device_ids)
                sizes.append([part[0].shape[0] for part in parts[0]])
                return parts

            def gather(self, outputs, output_device):
                return super().gather(outputs, output_device) + 100
        sizes = []
        out = Counting(nn.Identity(), device_ids=[0, 1])(torch.zeros(5))
        self.assertEqual((sizes, out.tolist()), ([[3, 2]], [100] * 5))

    def test_invalid_devices(self):
        for ids in (["cpu"], [0, 9], ["meta"]):
            with self.assertRaises((ValueError, RuntimeError, AssertionError)):
                nn.DataParallel(nn.Identity(), device_ids=ids)
        with self.assertRaisesRegex(ValueError, "device_ids must name at least one device"):
            nn.DataParallel(nn.Identity(), device_ids=[])
        with self.assertRaisesRegex(TypeError, "DataParallel takes a Module, not int"):
            nn.DataParallel(5)

    def test_parameters_must_be_on_first_device(self):
        with self.assertRaises(RuntimeError) as caught:
            parallel = nn.DataParallel(Net().cuda(), device_ids=[0, 1])
            parallel.module.cpu()
            parallel(torch.randn(4, 5))
        self.assertEqual(str(caught.exception),
                         "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one of "
                         "them on device: cpu")

    def test_zero_dim_input_raises(self):
        with self.assertRaisesRegex(RuntimeError, "chunk expects at least a 1-dimensional tensor"):
            nn.DataParallel(nn.Identity(), device_ids=[0, 1])(torch.tensor(1.0))

    def test_replica_exception(self):
        class Bad(nn.Module):
            def forward(self, x):
                if x.device.index == 1:
                    raise ValueError("boom")
                return x
        with self.assertRaises(ValueError) as caught:
            nn.DataParallel(Bad(), device_ids=[0, 1])(torch.zeros(4))
        text = str(caught.exception)
        self.assertTrue(text.startswith("Caught ValueError in replica 1 on device 1.\nOriginal Traceback"), text)
        self.assertTrue(text.rstrip().endswith("ValueError: boom"), text)

    def test_layer_exception_in_replica(self):
        with self.assertRaises(ValueError) as caught:
            nn.DataParallel(nn.BatchNorm1d(2).cuda(), device_ids=[0, 1])(torch.zeros(2, 2))
        self.assertEqual(str(caught.exception).rstrip(),
                         "Caught ValueError in replica 0 on device 0.\nOriginal Traceback (most recent call last):\n"
                         "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 2])")

    def test_nested_inputs_and_outputs(self):
        class Many(nn.Module):
            def forward(self, x, other=None, plain=None):
                return {"sum": x["t"] + other[0], "pair": Pair(x["t"], [plain]), "none": None}
        out = nn.DataParallel(Many(), device_ids=[0, 1])({"t": torch.arange(4.0)}, other=(torch.ones(4),), plain=None)
        self.assertEqual(out["sum"].tolist(), [1, 2, 3, 4])
        self.assertIsInstance(out["pair"], Pair)
        self.assertEqual(out["pair"].a.tolist(), [0, 1, 2, 3])
        self.assertIsNone(out["none"])

    def test_writes_to_replicas_are_lost(self):
        class Counter(nn.Module):
            def __init__(self):
                super().__init__()
                self.n = 0

            def forward(self, x):
                self.n += 1
                return x
        counter = Counter()
        nn.DataParallel(counter, device_ids=[0, 1])(torch.zeros(4))
        self.assertEqual(counter.n, 0)

    def test_gathering_scalars_warns(self):
        class Sum(nn.Module):
            def forward(self, x):
                return x.sum()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = nn.DataParallel(Sum(), device_ids=[0, 1])(torch.ones(4))
        self.assertEqual(out.tolist(), [2, 2])
        self.assertIn("Was asked to gather along dimension 0, but all input tensors were scalars",
                      str(caught[-1].message))

    def test_replicas_run_in_threads_with_callers_modes(self):
        class Look(nn.Module):
            def forward(self, x):
                seen.add((threading.get_ident(), torch.cuda.current_device(), torch.is_grad_enabled()))
                return x
        seen = set()
        with torch.no_grad():
            nn.DataParallel(Look(), device_ids=[0, 1])(torch.zeros(4))
        self.assertEqual(len({s[0] for s in seen}), 2)
        self.assertEqual(sorted(s[1:] for s in seen), [(0, False), (1, False)])

    def test_batch_norm_with_one_sample_per_device(self):
        norm = nn.BatchNorm1d(2).cuda()
        with self.assertRaisesRegex(ValueError, r"(?s)Caught ValueError in replica 0 on device 0\..*Expected more than 1 "
                                                r"value per channel when training, got input size torch\.Size\(\[1, 2\]\)"):
            nn.DataParallel(norm, device_ids=[0, 1])(torch.zeros(2, 2))

    def test_buffers_of_first_replica_are_kept(self):
        norm = nn.BatchNorm1d(2).cuda()
        nn.DataParallel(norm, device_ids=[0, 1])(torch.randn(8, 2))
        self.assertEqual(norm.num_batches_tracked.item(), 1)
        self.assertNotEqual(norm.running_mean.tolist(), [0, 0])


@unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
class Functions(unittest.TestCase):
    def test_scatter_and_gather(self):
        parts = nn.parallel.scatter(torch.arange(5), [0, 1])
        self.assertEqual([p.tolist() for p in parts], [[0, 1, 2], [3, 4]])
        self.assertEqual(nn.parallel.gather(parts, 1).device, cuda1)
        self.assertEqual(nn.parallel.gather(parts, "cpu").tolist(), [0, 1, 2, 3, 4])

    def test_backward_through_one_chunk(self):
        x = torch.ones(4, device=cuda0, requires_grad=True)
        parts = nn.parallel.scatter(x * 1, [0, 1])
        (parts[1] * 3).sum().backward()
        self.assertEqual(x.grad.tolist(), [0, 0, 3, 3])

    def test_replicate_and_parallel_apply(self):
        replicas = nn.parallel.replicate(nn.Linear(2, 2).cuda(), [0, 1])
        self.assertEqual([list(r.parameters()) for r in replicas], [[], []])
        self.assertEqual([r.weight.device for r in replicas], [cuda0, cuda1])
        self.assertFalse(replicas[1].weight.is_leaf)
        x = [torch.ones(1, 2, device=d) for d in (cuda0, cuda1)]
        out = nn.parallel.parallel_apply(replicas, x)
        self.assertEqual(out[0].tolist(), out[1].tolist())

    def test_parallel_apply_argument_errors(self):
        with self.assertRaises(AssertionError):
            nn.parallel.parallel_apply([nn.ReLU()], [torch.ones(1)], devices=[0, 1])
        with self.assertRaisesRegex(TypeError, r"argument after \*\* must be a mapping, not float"):
            nn.parallel.parallel_apply([nn.ReLU()], [torch.ones(1)], [3.0])

    def test_data_parallel_function(self):
        layer = nn.Linear(2, 2).cuda()
        x = torch.ones(4, 2)
        out = nn.parallel.data_parallel(layer, x, [0, 1])
        self.assertTrue(torch.allclose(out, layer(x.cuda())))

    def test_comm(self):
        comm = torch.cuda.comm
        self.assertEqual([t.device for t in comm.broadcast(torch.ones(2), [0, 1])], [cuda0, cuda1])
        self.assertEqual(comm.reduce_add([torch.ones(2, device=d) for d in (cuda0, cuda1)]).tolist(), [2, 2])
        with self.assertRaisesRegex(AssertionError, "reduce_add expects all inputs to be on GPUs, but input 0 is on CPU"):
            comm.reduce_add([torch.ones(1)])
        with self.assertRaisesRegex(ValueError, "input 1 has invalid size: got 2, but expected 1"):
            comm.reduce_add([torch.ones(1, device=cuda0), torch.ones(2, device=cuda1)])
        self.assertEqual([p.tolist() for p in comm.scatter(torch.arange(5), [0, 1], [1, 4])], [[0], [1, 2, 3, 4]])
        self.assertEqual(comm.gather([torch.ones(1, device=d) for d in (cuda0, cuda1)], destination=1).device, cuda1)
        self.assertEqual(comm.broadcast(torch.ones(1), []), [])
        each = comm.broadcast_coalesced([torch.ones(2, device=cuda0), torch.zeros(1, device=cuda0)], [0, 1])
        self.assertEqual([[t.device for t in copies] for copies in each], [[cuda0] * 2, [cuda1] * 2])
        self.assertEqual([t.tolist() for t in comm.reduce_add_coalesced(each, 1)], [[2, 2], [0]])
        out = [torch.zeros(2, device=d) for d in (cuda0, cuda1)]
        comm.broadcast(torch.ones(2), out=out)
        self.assertEqual(out[1].tolist(), [1, 1])

    def test_comm_errors(self):
        comm, x = torch.cuda.comm, torch.arange(5)
        a, b = torch.ones(1, 2, device=cuda0), torch.ones(1, 3, device=cuda1)
        for call, text in (
            (lambda: comm.broadcast(x), "Exactly one of 'devices' and 'out' must be specified, but got devices=None and "
                                        "out=None"),
            (lambda: comm.broadcast(x, out=[torch.ones(5)]), "Expected all output tensors to be CUDA tensors, but output "
                                                             "tensor at index 0 has device 'cpu'"),
            (lambda: comm.scatter(x, [0, 1], [1, 3]), "split_with_sizes expects split_sizes to sum exactly to 5 (input "
                                                      "tensor's size at dimension 0), but got split_sizes=[1, 3]"),
            (lambda: comm.scatter(x, [0, 1], [1, 2, 2]), "Expected devices and chunk_sizes to be of same length, but got "
                                                         "len(devices) = 2 and len(chunk_sizes) = 3"),
            (lambda: comm.gather([x]), "Expected all input tensors to be CUDA tensors, but tensor at index 0 has device cpu"),
            (lambda: comm.gather([a, b]), "Input tensor at index 1 has invalid shape [1, 3], but expected [1, 2]"),
            (lambda: comm.reduce_add([a, a], destination=1), "reduce_add expects destination to be on the same GPU with one "
                                                             "of the tensors"),
        ):
            with self.assertRaises(RuntimeError) as caught:
                call()
            self.assertEqual(str(caught.exception), text)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(comm.gather([a], destination=-1).device, torch.device("cpu"))
        self.assertEqual([w.category for w in caught], [FutureWarning])

    def test_model_parallel(self):
        first, second = nn.Linear(3, 4).to(cuda0), nn.Linear(4, 2).to(cuda1)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            second(first(torch.ones(2, 3, device=cuda0)).to(cuda1)).sum().backward()
            optimizer.step()
        self.assertEqual((first.weight.grad.device, second.weight.grad.device), (cuda0, cuda1))
        with self.assertRaisesRegex(RuntimeError, "Expected all tensors to be on the same device"):
            second(first(torch.ones(2, 3, device=cuda0)))


class WithoutDevices(unittest.TestCase):
    def test_empty_device_ids(self):
        net = nn.DataParallel(nn.Linear(2, 2))
        net.device_ids = []
        self.assertEqual(net.module.cpu()(torch.ones(1, 2)).shape, (1, 2))


if __name__ == "__main__":
    unittest.main()
