# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.CUDAGraph: capture, replay, pools, and make_graphed_callables. Requires a device."""
import gc
import os
import tempfile
import unittest
import warnings

import phlox as torch
from phlox import nn


def capture(function):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        result = function()
    return g, result


@unittest.skipUnless(torch.cuda.is_available(), "requires a device")
class Graphs(unittest.TestCase):
    def test_captures_indexing_and_views(self):
        x = torch.arange(24.0, device="cuda").reshape(4, 6)
        index = torch.tensor([2, 0], device="cuda")
        g, y = capture(lambda: (x[index].t() @ x[:2]).softmax(1)[:, 1:])
        x.copy_(torch.randn(4, 6))
        g.replay()
        self.assertTrue(torch.allclose(y, (x[index].t() @ x[:2]).softmax(1)[:, 1:]))

    def test_misuse_errors(self):
        g = torch.cuda.CUDAGraph()
        for call, text in ((g.pool, "Called CUDAGraph::pool\\(\\) without a preceding successful capture"),
                           (g.replay, "without a preceding successful capture"), (g.capture_end, "must end on the same stream"),
                           (lambda: g.capture_begin(capture_error_mode="none"), "Unknown capture error mode"),
                           (lambda: torch.cuda.graph(g, pool=(1, "x")), "int")):
            with self.assertRaisesRegex((RuntimeError, TypeError), text):
                call()
        g, _ = capture(lambda: torch.zeros(2, device="cuda"))
        with self.assertRaisesRegex(RuntimeError, "already owns a captured graph"):
            with torch.cuda.graph(g):
                pass
        self.assertEqual(torch.cuda.current_stream(), torch.cuda.default_stream())
        g.register_generator_state(torch.Generator("cuda"))
        with self.assertRaisesRegex(RuntimeError, "Expected a 'cuda' device type"):
            g.register_generator_state(torch.Generator())

    def test_keep_graph(self):
        plain, g, x = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(keep_graph=True), torch.zeros(4, device="cuda")
        for call, text in ((g.instantiate, "capture_end\\(\\) must have been called before calling instantiate"),
                           (g.raw_cuda_graph, "until after capture_end\\(\\) has been called"),
                           (plain.raw_cuda_graph, "unless CUDAGraph was initialized with keep_graph=true"),
                           (plain.instantiate, "only when keep_graph=true")):
            with self.assertRaisesRegex(RuntimeError, text):
                call()
        with torch.cuda.graph(g):
            x.add_(1)
        with self.assertRaisesRegex(RuntimeError, "cudaGraphExec_t instance until instantiate"):
            g.raw_cuda_graph_exec()
        with tempfile.TemporaryDirectory() as folder:
            g.debug_dump(os.path.join(folder, "g.dot"))
            with open(os.path.join(folder, "g.dot")) as file:
                self.assertTrue(file.read().startswith("digraph"))
        g.replay()  # instantiates the graph
        g.instantiate()
        g.replay()
        self.assertTrue(g.raw_cuda_graph() and g.raw_cuda_graph_exec())
        self.assertEqual(x.tolist(), [2.0] * 4)
        plain.enable_debug_mode()
        with torch.cuda.graph(plain):
            x.add_(10)
        plain.replay()
        self.assertTrue(plain.raw_cuda_graph())
        self.assertEqual(x.tolist(), [12.0] * 4)

    def test_pageable_copies_cannot_be_captured(self):
        x = torch.ones(3)
        with self.assertRaisesRegex(RuntimeError, "captur"):
            capture(lambda: x.cuda())
        pinned = torch.ones(3).pin_memory()
        g, y = capture(lambda: pinned.to("cuda", non_blocking=True) + 1)
        pinned.fill_(4)
        g.replay()
        self.assertEqual(y.tolist(), [5.0] * 3)

    def test_registered_generators_advance(self):
        own = torch.Generator("cuda").manual_seed(3)
        want = [torch.rand(5, device="cuda", generator=own.manual_seed(3) if not i else own).tolist() for i in range(2)]
        g, y = capture(lambda: torch.rand(5, device="cuda", generator=own))
        own.manual_seed(3)
        for row in want:
            g.replay()
            self.assertEqual(y.tolist(), row)

    def test_generator_state_is_not_in_reused_memory(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for size in 4, 128, 1 << 18:
                filled = torch.full((size,), 3.0, device="cuda")
                del filled
            drawn = torch.rand(8, device="cuda")
        torch.cuda.manual_seed(3)
        replayed = [(graph.replay(), drawn.tolist())[1] for _ in range(3)]
        torch.cuda.manual_seed(3)
        self.assertEqual(replayed, [torch.rand(8, device="cuda").tolist() for _ in range(3)])

    def test_destroying_capturing_graph_ends_capture(self):
        s, g = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(s):
            g.capture_begin()
            torch.zeros(3, device="cuda")
            del g
            gc.collect()
            self.assertFalse(torch.cuda.is_current_stream_capturing())
            self.assertEqual(torch.ones(2, device="cuda").sum().item(), 2)

    def test_empty_graph_warns(self):
        with self.assertWarnsRegex(UserWarning, "The CUDA Graph is empty"):
            g, _ = capture(lambda: None)
        g.replay()


@unittest.skipUnless(torch.cuda.is_available(), "requires a device")
class Callables(unittest.TestCase):
    def test_graphed_function_has_gradients(self):
        a, b = (torch.randn(3, device="cuda", requires_grad=True) for _ in range(2))
        f = torch.cuda.make_graphed_callables(lambda x, y: (x * y, x + 1), (torch.zeros(3, device="cuda", requires_grad=True),
                                                                           torch.zeros(3, device="cuda", requires_grad=True)))
        p, q = f(a, b)
        (p.sum() + (q * 2).sum()).backward()
        self.assertTrue(torch.equal(p, a * b) and torch.equal(q, a + 1))
        self.assertTrue(torch.equal(a.grad, b + 2) and torch.equal(b.grad, a))

    def test_callables_without_gradients_capture_no_backward(self):
        class Double(nn.Module):
            def forward(self, x):
                return x * 2

        def without_grad(*args):
            with torch.no_grad():
                return torch.cuda.make_graphed_callables(*args)

        make, frozen = torch.cuda.make_graphed_callables, nn.Linear(2, 2).cuda().requires_grad_(False)
        x, leaf = torch.ones(3, 2, device="cuda"), torch.ones(3, 2, device="cuda", requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for made, given in ((make(Double(), (x,)), x), (make(frozen, (x,)), x), (make(lambda t: t * 2, (x,)), x),
                                (make(lambda t: t.detach() * 2, (leaf,)), leaf), (without_grad(nn.Linear(2, 2).cuda(), (x,)), x)):
                self.assertFalse(made(given).requires_grad)
            first, second = make((Double(), nn.Linear(2, 2).cuda()), ((x,), (x,)))
            self.assertEqual((first(x).requires_grad, second(x).requires_grad), (False, True))
            second(x).sum().backward()
            self.assertTrue(torch.equal(second.bias.grad, torch.full((2,), 3., device="cuda")))

    def test_results_without_gradients_have_none(self):
        x = torch.ones(3, device="cuda", requires_grad=True)
        first, second = torch.cuda.make_graphed_callables(lambda t: (t * 2, t.detach() * 3), (x,))(x)
        self.assertEqual((first.requires_grad, second.requires_grad), (True, False))
        first.sum().backward()
        self.assertEqual(x.grad.tolist(), [2., 2., 2.])

    def test_other_training_mode_runs_eagerly(self):
        m = nn.Linear(3, 2).cuda()
        x = torch.randn(4, 3, device="cuda")
        same = torch.cuda.make_graphed_callables(m, (x,))
        self.assertIs(same, m)
        trained = m(x)
        m.eval()
        self.assertTrue(torch.allclose(m(torch.cat([x, x]))[:4], trained))  # another batch size

    def test_invalid_callables(self):
        x, m = torch.ones(2, 3, device="cuda"), nn.Linear(3, 2).cuda()
        with self.assertRaisesRegex(TypeError, "must contain only Tensors"):
            torch.cuda.make_graphed_callables(m, (x, 3))
        with torch.autocast("cuda"), self.assertRaisesRegex(RuntimeError, "does not support the autocast caching"):
            torch.cuda.make_graphed_callables(m, (x,))
        m.register_forward_hook(lambda *a: None)
        with self.assertRaisesRegex(RuntimeError, "must not have hooks registered"):
            torch.cuda.make_graphed_callables(m, (x,))


if __name__ == "__main__":
    unittest.main()
