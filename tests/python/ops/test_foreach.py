# SPDX-License-Identifier: Apache-2.0
"""torch._foreach_*: ops on each tensor of a list. Compared with PyTorch if an installed version has them all."""
import unittest

import phlox as torch

try:
    import torch as pytorch
    pytorch = pytorch if hasattr(pytorch, "_foreach_max") else None
except ImportError:
    pytorch = None

ALONE = ("abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac log log10 log1p log2 max neg norm reciprocal round "
         "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc").split()
CALLS = ["add(x, 2)", "add(x, y, alpha=3)", "add(x, [1, 2.5])", "add(x, t.tensor(2.0))", "sub(x, y)", "mul(x, scalars=[2, 3])", "div(x, y)",
         "clamp_max(x, 0.4)", "clamp_min(x, y)", "maximum(x, y)", "minimum(x, 0.5)", "pow(x, 3)", "pow(x, [2, 3])", "lerp(x, y, 0.25)",
         "lerp(x, y, weights=y)", "lerp(x, y, [0.5, 0.25])", "addcmul(x, y, y, 2)", "addcmul(x, y, y, value=3)", "addcmul(x, y, y, [1.5, 2])",
         "addcdiv(x, x, y, t.tensor([1.0, 2.0]))", "addcdiv(x, x, y)", "copy(x, y)", "zero(x)"]


def lists(t):
    return [t.tensor([0.5, 0.25]), t.tensor([[0.75]])], [t.tensor([2.0, 0.5]), t.tensor([[1.5]])]


def listed(tensors):
    return [tensor.tolist() for tensor in tensors]


class Foreach(unittest.TestCase):
    def close(self, a, b):
        for one, other in zip(a, b):
            self.assertTrue(torch.allclose(torch.tensor(one), torch.tensor(other), 1e-5, 1e-6), (a, b))

    def test_matches_op_on_each_tensor(self):
        for name in ALONE:
            with self.subTest(name):
                x, _ = lists(torch)
                wanted = [getattr(torch, name)(tensor).tolist() for tensor in x]
                self.assertEqual(listed(getattr(torch, f"_foreach_{name}")(x)), wanted)
                if name not in ("clone", "max", "norm"):
                    self.assertIs(getattr(torch, f"_foreach_{name}_")(x), x)
                    self.assertEqual(listed(x), wanted)

    def results(self, t, call, in_place):
        x, y = lists(t)
        got = eval("t._foreach_" + call.replace("(", "_(" if in_place else "(", 1), {"t": t, "x": x, "y": y})
        return listed(x if in_place else got)

    def test_lists_and_scalars(self):
        x, y = lists(torch)
        self.assertEqual(listed(torch._foreach_add(x, y, alpha=2)), [[4.5, 1.25], [[3.75]]])
        self.assertEqual(listed(torch._foreach_addcmul(x, y, y, scalars=[1, 2])), [[4.5, 0.5], [[5.25]]])
        self.assertEqual(listed(torch._foreach_pow(2.0, [torch.tensor(3.0)])), [8])
        self.assertEqual(listed(torch._foreach_norm([torch.tensor([3.0, -4.0])], ord=float("inf"))), [4])

    @unittest.skipIf(pytorch is None, "PyTorch is not installed, or an older one")
    def test_matches_pytorch(self):
        for call in CALLS:
            for in_place in (True, False)[:1 if call.startswith(("copy", "zero")) else 2]:
                with self.subTest(call, in_place=in_place):
                    self.close(self.results(torch, call, in_place), self.results(pytorch, call, in_place))

    def test_gradients(self):
        x, y = lists(torch)
        y[0].requires_grad_()
        sum(t.sum() for t in torch._foreach_mul(x, y)).backward()
        self.assertEqual(y[0].grad.tolist(), [0.5, 0.25])

    def test_errors_change_nothing(self):
        x, y = lists(torch)
        before = listed(x)
        for call, kind, text in (
            (lambda: torch._foreach_add_(x, y[:1]), RuntimeError, "^Tensor lists must have the same number of tensors, got 2 and 1$"),
            (lambda: torch._foreach_mul_(x, [1.0]), RuntimeError, "^Tensor list must have same number of elements as scalar list"),
            (lambda: torch._foreach_add_([], 1), RuntimeError, "^Tensor list must have at least one tensor"),
            (lambda: torch._foreach_add_(x, torch.ones(2)), RuntimeError, "expected to be 0 dim but it has 1 dimensions and 2 elements"),
            (lambda: torch._foreach_add_(x, [y[0], 3]), TypeError, "expected Tensor as element 1 in argument 0, but got int"),
            (lambda: torch._foreach_sqrt_(3), TypeError, "^_foreach_sqrt_\\(\\): argument 'self' \\(position 1\\) must be tuple of Tensors, not int"),
            (lambda: torch._foreach_sqrt_(x, 3), TypeError, "got too many positional arguments: 2"),
            (lambda: torch._foreach_add_(x, 1, betta=2), TypeError, "unexpected keyword argument 'betta'"),
            (lambda: torch._foreach_add_(x, 1, other=2), TypeError, "multiple values for argument 'other'"),
            (lambda: torch._foreach_add_(), TypeError, "must be tuple of Tensors"),
        ):
            with self.assertRaisesRegex(kind, text):
                call()
        self.assertEqual(listed(x), before)


if __name__ == "__main__":
    unittest.main()
