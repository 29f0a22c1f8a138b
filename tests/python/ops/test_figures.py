# SPDX-License-Identifier: Apache-2.0
"""torch.gradient, histograms and scaled products of float8, compared with values computed by hand and with PyTorch if it is installed."""
import unittest

import phlox as torch

X = [[1.0, 2.0, 4.0, 8.0], [3.0, 3.0, 5.0, 1.0], [0.0, 2.0, 2.5, 7.0]]
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


class GradientOp(unittest.TestCase):
    def test_scalar_spacing(self):
        for device in DEVICES:
            x = torch.tensor([0.0, 1.0, 4.0, 9.0], device=device)
            self.assertEqual(torch.gradient(x)[0].tolist(), [1, 2, 4, 5])
            self.assertEqual(torch.gradient(x, edge_order=2)[0].tolist(), [0, 2, 4, 6])
            self.assertEqual(torch.gradient(x, spacing=2)[0].tolist(), [0.5, 1, 2, 2.5])

    def test_coordinate_spacing(self):
        for device in DEVICES:
            at = torch.tensor([0.0, 1.0, 3.0, 4.0], device=device)
            for order in 1, 2:
                (made,) = torch.gradient(at * at, spacing=[at], edge_order=order)
                self.assertEqual(made[1:3].tolist(), [2, 6])
            self.assertEqual(made.tolist(), [0, 2, 6, 8])

    def test_infinity_affects_neighbours_only(self):
        made = torch.gradient(torch.tensor([1.0, 2.0, float("inf"), 4.0, 5.0]))[0]
        self.assertEqual(made[2].item(), 1)

    def test_autograd(self):
        x = torch.tensor(X, requires_grad=True)
        (torch.gradient(x, dim=1, edge_order=2)[0] * torch.tensor(X)).sum().backward()
        self.assertEqual(x.grad.shape, x.shape)
        self.assertTrue(torch.autograd.gradcheck(lambda t: torch.gradient(t, spacing=[torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)], dim=0),
                                                 torch.tensor(X, dtype=torch.float64, requires_grad=True)))

    def test_argument_errors(self):
        x = torch.tensor(X)
        for text, options in (("same length, but got a spacing argument of length 1 and a dim argument of length 2", {"spacing": [1.0], "dim": (0, 1)}),
                              ("a list of length equal to 'self.dim\\(\\) = 2'", {"spacing": [torch.ones(3)]}),
                              ("a list of length equal to 'self.dim\\(\\) = 2'", {"spacing": [1]}),
                              ("an element with 2 dimensions", {"spacing": [torch.ones(3, 1), torch.ones(4)]}),
                              ("expected 3 coordinates for dimension 0, but got 2", {"spacing": [torch.ones(2)], "dim": 0}),
                              ("at least edge_order\\+1", {"dim": 0, "edge_order": 2}), ("dim 1 appears multiple times", {"dim": (1, -1)})):
            with self.assertRaisesRegex(RuntimeError, text):
                torch.gradient(x[:2] if "at least" in text else x, **options)


class Histograms(unittest.TestCase):
    def test_bin_edges(self):
        for device in DEVICES:
            made = torch.histogram(torch.tensor([0.0, 1.0, 1.5, 2.0, 9.0, float("nan")], device=device), 2, range=(0, 2))
            self.assertEqual(made.hist.tolist(), [1, 3])
            self.assertEqual(made.bin_edges.tolist(), [0, 1, 2])

    def test_weights_and_density(self):
        for device in DEVICES:
            x, w = torch.tensor([0.5, 2.0, 3.0], device=device), torch.tensor([1.0, 2.0, 1.0], device=device)
            edges = torch.tensor([0.0, 1.0, 3.0], device=device)
            self.assertEqual(x.histogram(edges, weight=w).hist.tolist(), [1, 3])
            self.assertEqual(torch.histogram(x, edges, weight=w, density=True).hist.tolist(), [0.25, 0.375])
            infinite = torch.tensor([1.0, 1.0, float("inf")], device=device)
            self.assertEqual(torch.histogram(x, edges[:2], weight=infinite).hist.tolist(), [1])

    def test_histogramdd(self):
        for device in DEVICES:
            points = torch.tensor([[0.0, 0.0], [1.0, 5.0], [2.0, 5.0], [2.0, 9.0]], device=device)
            hist, edges = torch.histogramdd(points, [2, 3], range=(0.0, 2.0, 0.0, 6.0))
            self.assertEqual(hist.tolist(), [[1, 0, 0], [0, 0, 2]])
            self.assertEqual([e.tolist() for e in edges], [[0, 1, 2], [0, 2, 4, 6]])
            self.assertEqual(torch.histogramdd(points, edges, density=True).hist.sum().item() * 2, 1)

    def test_errors_leave_out_unchanged(self):
        x, out = torch.tensor([1.0, 2.0]), (torch.zeros(5, dtype=torch.int32), torch.ones(1))
        for text, call in (("bins must be > 0, but got 0 for dimension 0", lambda: torch.histogram(x, 0)),
                           ("min should not exceed max", lambda: torch.histogram(x, 2, range=(1, 0))),
                           ("range \\[0, inf\\] is not finite", lambda: torch.histogram(x, 2, range=(0, float("inf")))),
                           ("range should have 2 elements, but got 3", lambda: torch.histogram(x, 2, range=(0, 1, 2))),
                           ("with dtype float and bins for dimension 0 with dtype long int", lambda: torch.histogram(x, torch.tensor([0, 1]))),
                           ("at least 2 dimensions", lambda: torch.histogramdd(x, 2)), ("expected 1 sequences", lambda: torch.histogramdd(x[:, None], [x, x])),
                           ("input float and hist int", lambda: torch.histogram(x, 2, out=out))):
            with self.assertRaisesRegex(RuntimeError, text):
                call()
        self.assertEqual([t.tolist() for t in out], [[0] * 5, [1]])
        with self.assertRaisesRegex(NotImplementedError, "\"histogramdd\" not implemented for 'Half'"):
            torch.histogram(x.half(), 2)


class OptionalArguments(unittest.TestCase):
    def test_none_as_dim(self):
        x = torch.tensor(X)
        self.assertEqual(torch.amax(x, None).item(), 8)
        self.assertTrue(torch.equal(torch.roll(x, 1, None), torch.roll(x, 1)))
        with self.assertRaisesRegex(TypeError, "argument 'dims' .* must be tuple of ints, not NoneType"):
            torch.flip(x, None)

    def test_from_dlpack_copy(self):
        x = torch.tensor(X)
        self.assertEqual(torch.from_dlpack(x, copy=False).data_ptr(), x.data_ptr())
        self.assertNotEqual(torch.from_dlpack(x, copy=True).data_ptr(), x.data_ptr())
        with self.assertRaisesRegex(BufferError, "Cannot pack tensors on meta"):
            torch.from_dlpack(x, device="meta")


class Multinomial(unittest.TestCase):
    def test_invalid_weights(self):
        for weights, text in (([1, -1, 1], "entry < 0"), ([1, float("inf"), 1], "entry = infinity or NaN"), ([1, 1, float("nan")], "entry < 0")):
            for device in DEVICES:
                with self.assertRaisesRegex(RuntimeError, text):
                    torch.multinomial(torch.tensor(weights, device=device).float(), 2, True).cpu()
                with self.assertRaisesRegex(RuntimeError, "probability tensor contains either"):
                    torch.multinomial(torch.tensor(weights, device=device).float(), 2, False).cpu()


class Addr(unittest.TestCase):
    def test_addr_of_bool(self):
        for device in DEVICES:
            one, two = torch.tensor([True, False], device=device), torch.tensor([[False, False], [True, True]], device=device)
            self.assertEqual(torch.addr(two, one, one).tolist(), [[True, False], [True, True]])
            self.assertEqual(torch.addr(two, one, one, beta=0).tolist(), [[True, False], [False, False]])
            self.assertEqual(torch.addr(two, one, one, beta=-1, alpha=1).dtype, torch.bool)


class ScaledMM(unittest.TestCase):
    def setUp(self):
        self.a = (torch.arange(48.0).reshape(6, 8) % 7 - 3).to(torch.float8_e4m3fn)
        self.b = (torch.arange(40.0).reshape(5, 8) % 5 - 2).to(torch.float8_e5m2).t()

    def test_matches_scaled_float32_product(self):
        for device in DEVICES:
            a, b = self.a.to(device), self.b.to(device)
            want = a.float() @ b.float()
            half, two = torch.tensor(0.5, device=device), torch.full((1, 1), 2.0, device=device)
            self.assertTrue(torch.equal(torch._scaled_mm(a, b, half, two, out_dtype=torch.float32), want))
            rows, columns = torch.arange(6.0, device=device)[:, None], torch.arange(5.0, device=device)[None]
            self.assertTrue(torch.equal(torch._scaled_mm(a, b, rows, columns, bias=columns[0], out_dtype=torch.float32),
                                        want * rows * columns + columns))
            self.assertEqual(torch._scaled_mm(a, b, half, half).dtype, torch.float8_e4m3fn)

    def test_invalid_dtypes_and_scales(self):
        one = torch.ones(())
        for a, scale in ((self.a.float(), one), (self.a, one.double()), (self.a, torch.ones(6))):
            with self.assertRaisesRegex(ValueError, "Invalid scaling configuration"):
                torch._scaled_mm(a, self.b, scale, one)
        with self.assertRaisesRegex(RuntimeError, "shapes cannot be multiplied \\(6x8 and 5x8\\)"):
            torch._scaled_mm(self.a, self.b.t(), one, one)
        with self.assertRaisesRegex(NotImplementedError, "scale_result"):
            torch._scaled_mm(self.a, self.b, one, one, scale_result=one)


if __name__ == "__main__":
    unittest.main()
