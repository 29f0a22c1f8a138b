# SPDX-License-Identifier: Apache-2.0
"""Ops along a dimension, such as searchsorted and diff."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import unittest

import phlox as torch

inf, nan = float("inf"), float("nan")


class Case(unittest.TestCase):
    def same(self, wanted, call, *args, dtype=None):
        """Checks the result on the CPU and on a device."""
        for device in ("cpu", "cuda"):
            made = call(*(x.to(device) if isinstance(x, torch.Tensor) else x for x in args))
            self.assertEqual((made.tolist(), made.device.type), (wanted, device))
            self.assertTrue(dtype is None or made.dtype == dtype, made.dtype)

    def refused(self, kind, text, call):
        with self.assertRaisesRegex(kind, text):
            call()


class Searching(Case):
    def test_searchsorted(self):
        a, both = torch.tensor([1., 3, 3, 5]), torch.tensor([[1, 3, 5], [0, 0, 9]])
        self.same([0, 1, 3, 4], torch.searchsorted, a, torch.tensor([0., 3, 4, 6]), dtype=torch.int64)
        self.same([0, 3, 3, 4], lambda a, x: torch.searchsorted(a, x, right=True), a, torch.tensor([0., 3, 4, 6]))
        self.same([[0, 3], [2, 2]], lambda a, x: torch.searchsorted(a, x, side="right", out_int32=True), both, torch.tensor([[0, 5], [0, 8]]), dtype=torch.int32)
        self.same([1, 2], torch.searchsorted, torch.tensor([1, 3]), torch.tensor([2.5, 4]))
        # Bisection also runs on an unsorted sequence; the results match PyTorch's.
        self.same([0, 8, 8, 11], torch.searchsorted, torch.tensor([5, 1, 4, 200, 3, 7, 2, 9, 250, 0, 8]), torch.tensor([0, 17, 238, 255]))
        self.same(1, torch.searchsorted, torch.tensor([1, 3]), 2.5)
        self.same([1, 2], lambda a, x, s: torch.searchsorted(a, x, sorter=s), torch.tensor([5, 1, 3]), torch.tensor([3, 4]), torch.tensor([1, 2, 0]))
        self.same([0, 0], torch.searchsorted, torch.tensor([]), torch.tensor([1., 2]))
        self.same([2, 1], torch.searchsorted, torch.tensor([1., inf, nan]), torch.tensor([nan, inf]))
        self.same([1, 2], torch.searchsorted, torch.tensor([1, 3, 5], dtype=torch.half), torch.tensor([2, 4], dtype=torch.half))
        self.same([1], torch.searchsorted, torch.tensor([2**53, 2**53 + 1]), torch.tensor([2**53 + 1]))

    def test_bucketize(self):
        bounds = torch.tensor([1, 3, 5])
        self.same([[0, 1], [2, 3]], torch.bucketize, torch.tensor([[1, 2], [5, 6]]), bounds)
        self.same([1, 2], lambda x, b: torch.bucketize(x, b, right=True), torch.tensor([1, 3]), bounds)
        self.same(1, torch.bucketize, 2.5, bounds)
        self.refused(RuntimeError, r"boundaries tensor must be 1 dimension, but got dim\(2\)", lambda: torch.bucketize(bounds, torch.ones(2, 2)))

    def test_many_values(self):
        bounds = torch.arange(0, 3000, 3)
        self.same([True, True], lambda x, b: torch.stack([(torch.bucketize(x, b) == (x + 2) // 3).all(), torch.isin(x, b).sum() == 1000]),
                  torch.arange(2998), bounds)

    def test_errors(self):
        a, search = torch.tensor([1., 3, 5]), torch.searchsorted
        for text, call in (("side and right can't be set to opposites, got side of left while right was True", lambda: search(a, a, right=True, side="left")),
                           ("side can only be 'left' or 'right' but got x", lambda: search(a, a, side="x")),
                           ("boundaries tensor should have positive dimension, but got 0 dimension", lambda: search(torch.tensor(1.), a)),
                           (r"dim\(2\) and input value's dim\(0\) numel\(1\)", lambda: search(torch.ones(2, 3), 2)),
                           (r"but we got boundaries tensor \[2, 3\] and input value tensor \[3, 3\]", lambda: search(torch.ones(2, 3), torch.ones(3, 3))),
                           (r"got boundary tensor \[3\]and got sorter tensor \[2\]", lambda: search(a, a, sorter=torch.tensor([0, 1]))),
                           ("sorter must be a tensor of long dtype but got dtype Float", lambda: search(a, a, sorter=a))):
            self.refused(RuntimeError, text, call)
        self.refused(IndexError, "index 5 is out of bounds for dimension -1 with size 3", lambda: search(a, a, sorter=torch.tensor([0, 1, 5])))
        self.refused(NotImplementedError, "\"searchsorted_out_cpu\" not implemented for 'Bool'", lambda: search(a.bool(), a.bool()))

    def test_isin(self):
        x = torch.tensor([[1, 2], [3, 4]])
        self.same([[True, False], [False, True]], torch.isin, x, torch.tensor([4., 1.5, 1]), dtype=torch.bool)
        self.same([[False, True], [True, False]], lambda x, t: torch.isin(x, t, invert=True, assume_unique=True), x, torch.tensor([[4], [1]]))
        self.same([[False, True], [False, False]], torch.isin, x, 2)
        self.same([True, False], lambda t: torch.stack([torch.isin(2, t), torch.isin(2, t, invert=True)]), x)
        self.same([False, False], torch.isin, torch.tensor([1., nan]), torch.tensor([nan, 2]))
        self.same([True, True], lambda x, t: torch.isin(x, t, invert=True), torch.tensor([1., nan]), torch.tensor([]))
        self.assertFalse(torch.isin(torch.ones(2, requires_grad=True), torch.ones(1)).requires_grad)
        self.refused(NotImplementedError, r"Unsupported input type encountered for isin\(\): Bool", lambda: torch.isin(x.bool(), x))


class AlongDimension(Case):
    def test_take_along_dim(self):
        x = torch.tensor([[5., 1, 3], [2, 6, 4]])
        self.same([[1, 3, 5], [2, 4, 6]], lambda x: x.take_along_dim(x.argsort(1), 1), x)
        self.same([[3, 5]] * 2, lambda x, i: torch.take_along_dim(x[:1], i, 1), x, torch.tensor([[-1, 0]] * 2))
        self.same([5, 4], torch.take_along_dim, x, torch.tensor([0, 5]))
        w = x.clone().requires_grad_()
        w.take_along_dim(torch.tensor([[1, 1]]), dim=1).sum().backward()
        self.assertEqual(w.grad.tolist(), [[0, 2, 0], [0, 2, 0]])
        self.refused(RuntimeError, "dtype of indices should be Long but got Float", lambda: x.take_along_dim(x, 1))
        self.refused(RuntimeError, "but got 2 dimensions for input, and 1 dimensions for indices", lambda: x.take_along_dim(torch.tensor([0]), 1))
        self.refused(RuntimeError, "index 7 is out of bounds for dimension 1 with size 3", lambda: x.take_along_dim(torch.tensor([[7]]), 1))
        self.refused(RuntimeError, r"The size of tensor a \(2\) must match the size of tensor b \(3\)", lambda: x.take_along_dim(torch.tensor([[0]] * 3), 1))

    def test_diff(self):
        x = torch.tensor([[1, 3, 6], [0, 5, 5]])
        self.same([[2, 3], [5, 0]], torch.diff, x)
        self.same([[1], [-5]], lambda x: x.diff(2), x)
        self.same([[-1, 2, -1]], lambda x: x.diff(dim=0), x)
        self.same([[], []], torch.diff, x, 5)
        self.same([[1, 2, 3, -6], [0, 5, 0, -5]], torch.diff, x, 1, 1, torch.zeros(2, 1, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64))
        self.same([True, False], torch.diff, torch.tensor([True, False, False]), dtype=torch.bool)
        self.assertEqual(torch.ones(0, 3).diff(2).shape, (0, 1))
        copy = x.diff(0)
        copy[0, 0] = 9
        self.assertEqual(x[0, 0], 1)
        self.refused(RuntimeError, "diff expects input to be at least one-dimensional", lambda: torch.tensor(1).diff())
        self.refused(RuntimeError, "order must be non-negative but got -1", lambda: x.diff(-1))
        self.refused(RuntimeError, "diff expects prepend or append to be the same dimension as input", lambda: x.diff(prepend=torch.tensor(1)))
        self.refused(RuntimeError, "to match that of input except along the differencing dimension", lambda: x.diff(append=torch.zeros(3, 2)))

    def test_trapezoid(self):
        y, x = torch.tensor([1., 2, 4]), torch.tensor([0., 1, 3])
        self.same(4.5, torch.trapz, y)
        self.same(9, lambda y: torch.trapezoid(y, dx=2), y)
        self.same(7.5, torch.trapezoid, y, x)
        self.same([3, 3], torch.trapezoid, torch.ones(2, 3), x)
        self.same([1, 1, 1], lambda y, x: torch.trapezoid(y, x, dim=0), torch.ones(2, 3), x[:2])
        self.same([3, 3], torch.trapezoid, torch.ones(2, 3), x[None])
        self.same([1.5, 7.5], torch.cumulative_trapezoid, y, x)
        self.same([0.75, 2.25], lambda y: torch.cumulative_trapezoid(y, dx=.5), y)
        self.same([0, 0], torch.trapezoid, torch.ones(2, 0))
        w = y.clone().requires_grad_()
        torch.trapezoid(w, x).backward()
        self.assertEqual(w.grad.tolist(), [0.5, 1.5, 1])
        self.refused(RuntimeError, "There must be one `x` value for each sample point", lambda: torch.trapezoid(y, x[:2]))
        self.refused(IndexError, "Dimension specified as -1 but tensor has no dimensions", lambda: torch.trapezoid(y[0]))
        self.refused(NotImplementedError, "trapezoid: received a bool input for `y`, but bool is not supported", lambda: torch.trapezoid(y.bool()))


class Norms(Case):
    def test_norm(self):
        x, v, norm = torch.arange(6.).view(2, 3) - 2, torch.tensor([3., -4.]), torch.linalg.norm
        self.same(7, norm, v, 1)
        self.same(5, norm, v)
        self.same([3, 6], lambda x: norm(x, 1, 1), x)
        self.same([3, 6, 3, 3], lambda x: torch.stack([norm(x, order) for order in (1, inf, -1, -inf)]), x)
        self.same(5, norm, torch.tensor([[3., 0], [0, 4]]), "fro")
        self.same([[[2], [2]]], lambda x: norm(x, 1, (0, 2), True), torch.ones(2, 2, 2))
        w = x.clone().requires_grad_()
        norm(w, inf).backward()
        self.assertEqual(w.grad.tolist(), [[0, 0, 0], [1, 1, 1]])
        for text, call in (("Order bad not supported", lambda: norm(x, "bad")), ("Order 3 not supported", lambda: norm(x, 3)),
                           ("the input must be 1D or 2D. Got 3D", lambda: norm(torch.ones(2, 2, 2), 1)),
                           (r"it must be of length 1 or 2. Got \[0, 1, 2\]", lambda: norm(x, 1, (0, 1, 2))),
                           ("dim must be a 2-tuple. Got 1", lambda: norm(x, "fro", 1))):
            self.refused(RuntimeError, text, call)

    def test_matrix_norm(self):
        x, norm = torch.ones(2, 2, 3), torch.linalg.matrix_norm
        self.same([[4.0]], lambda x: norm(x, keepdim=True), torch.full((2, 8), 1.))
        self.same([3, 3], lambda x: norm(x, 1, (-1, -2)), x)
        self.same([2, 2, 2], lambda x: norm(x, inf, (0, 1)), x)
        for text, call in (("must have at least 2 dimensions", lambda: norm(x[0, 0])), (r"dims must be different. Got \(0, 0\)", lambda: norm(x, dim=(0, 0))),
                           ("Expected a floating point or complex tensor as input. Got Int", lambda: norm(x.int()))):
            self.refused(RuntimeError, text, call)


if __name__ == "__main__":
    unittest.main()
