# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.CUDAGraph: captures, replays, pools, and callables that are graphed. Needs a device."""
import gc
import unittest

import phlox as torch
from phlox import nn


def capture(function):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        result = function()
    return g, result


@unittest.skipUnless(torch.cuda.is_available(), "a device is wanted")
class Graphs(unittest.TestCase):
    def test_indexing_shapes_and_views_are_captured(self):
        x = torch.arange(24.0, device="cuda").reshape(4, 6)
        index = torch.tensor([2, 0], device="cuda")
        g, y = capture(lambda: (x[index].t() @ x[:2]).softmax(1)[:, 1:])
        x.copy_(torch.randn(4, 6))
        g.replay()
        self.assertTrue(torch.allclose(y, (x[index].t() @ x[:2]).softmax(1)[:, 1:]))

    def test_a_text_for_each_misuse(self):
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
        with self.assertRaises(NotImplementedError):
            torch.cuda.CUDAGraph(keep_graph=True)
        g.register_generator_state(torch.Generator("cuda"))
        with self.assertRaisesRegex(RuntimeError, "Expected a 'cuda' device type"):
            g.register_generator_state(torch.Generator())

    def test_copies_of_pageable_memory_are_refused(self):
        x = torch.ones(3)
        with self.assertRaisesRegex(RuntimeError, "captur"):
            capture(lambda: x.cuda())
        pinned = torch.ones(3).pin_memory()
        g, y = capture(lambda: pinned.to("cuda", non_blocking=True) + 1)
        pinned.fill_(4)
        g.replay()
        self.assertEqual(y.tolist(), [5.0] * 3)

    def test_generators_of_programs_go_on(self):
        own = torch.Generator("cuda").manual_seed(3)
        want = [torch.rand(5, device="cuda", generator=own.manual_seed(3) if not i else own).tolist() for i in range(2)]
        g, y = capture(lambda: torch.rand(5, device="cuda", generator=own))
        own.manual_seed(3)
        for row in want:
            g.replay()
            self.assertEqual(y.tolist(), row)

    def test_a_graph_that_is_dropped_in_its_capture_gives_it_up(self):
        s, g = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(s):
            g.capture_begin()
            torch.zeros(3, device="cuda")
            del g
            gc.collect()
            self.assertFalse(torch.cuda.is_current_stream_capturing())
            self.assertEqual(torch.ones(2, device="cuda").sum().item(), 2)

    def test_an_empty_graph_is_warned_of(self):
        with self.assertWarnsRegex(UserWarning, "The CUDA Graph is empty"):
            g, _ = capture(lambda: None)
        g.replay()


@unittest.skipUnless(torch.cuda.is_available(), "a device is wanted")
class Callables(unittest.TestCase):
    def test_a_function_of_several_tensors_has_gradients(self):
        a, b = (torch.randn(3, device="cuda", requires_grad=True) for _ in range(2))
        f = torch.cuda.make_graphed_callables(lambda x, y: (x * y, x + 1), (torch.zeros(3, device="cuda", requires_grad=True),
                                                                           torch.zeros(3, device="cuda", requires_grad=True)))
        p, q = f(a, b)
        (p.sum() + (q * 2).sum()).backward()
        self.assertTrue(torch.equal(p, a * b) and torch.equal(q, a + 1))
        self.assertTrue(torch.equal(a.grad, b + 2) and torch.equal(b.grad, a))

    def test_another_mode_runs_the_module_itself(self):
        m = nn.Linear(3, 2).cuda()
        x = torch.randn(4, 3, device="cuda")
        same = torch.cuda.make_graphed_callables(m, (x,))
        self.assertIs(same, m)
        trained = m(x)
        m.eval()
        self.assertTrue(torch.allclose(m(torch.cat([x, x]))[:4], trained))  # of another size

    def test_a_step_that_counts_on_the_host_is_refused(self):
        for kind, refused in ((torch.optim.Adam, True), (torch.optim.RMSprop, True), (torch.optim.SGD, False)):
            w = torch.ones(3, device="cuda").requires_grad_()
            w.grad = torch.ones_like(w)
            optimizer, graph = kind([w], lr=0.5), torch.cuda.CUDAGraph()
            optimizer.step()
            before = w.tolist(), {name: t.tolist() for name, t in optimizer.state[w].items() if torch.is_tensor(t)}
            try:
                with torch.cuda.graph(graph):
                    optimizer.step()
            except NotImplementedError as error:
                self.assertIn(f"{kind.__name__}.step() cannot be captured in a graph", str(error))
                after = w.tolist(), {name: t.tolist() for name, t in optimizer.state[w].items() if torch.is_tensor(t)}
                self.assertEqual((refused, after), (True, before))
            else:
                self.assertFalse(refused)
                graph.replay()
                self.assertLess(w[0].item(), before[0][0])

    def test_what_cannot_be_graphed_is_refused(self):
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
