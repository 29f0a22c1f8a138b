# SPDX-License-Identifier: Apache-2.0
"""Derivatives of every op in every nesting of forward mode, reverse mode and vmap. All samples of the op tables are functions of one number:
the tensors of a sample move along fixed directions."""
import os
import sys
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import samples

import phlox as torch
from phlox.func import grad, jacfwd, jacrev, jvp

SPACES = (torch, torch.nn.functional, torch.linalg, torch.fft, torch.special, torch._C)
# Ops whose derivatives differ between runs or are no derivatives, and why.
LEFT_OUT = {
    "alpha_dropout": "random", "bernoulli": "random", "binomial": "random", "dropout": "random", "feature_alpha_dropout": "random",
    "feature_dropout": "random", "fractional_max_pool2d": "random", "fractional_max_pool3d": "random", "gumbel_softmax": "random",
    "multinomial": "random", "normal": "random", "normal_around": "random", "normal_of": "random", "normal_wide": "random", "poisson": "random", "rrelu": "random",
    "_sample_dirichlet": "random", "_standard_gamma": "random", "linalg_qr": "a sample is singular",
    "native_group_norm": "computes the statistics of complex numbers in float32",
}
SHIFTS = torch.tensor([0.0, 0.01], dtype=torch.float64)


def find(op, name, args):
    """The function of an op: its name may be in one of several modules, or that of a method."""
    for space in SPACES:
        function = getattr(space, name, None)
        if function: return function
    if op.startswith("linalg_") and hasattr(torch.linalg, op[7:]): return getattr(torch.linalg, op[7:])
    if args and hasattr(args[0], name): return lambda self, *rest, **names: getattr(self, name)(*rest, **names)
    return None


def total(results):
    """A weighted sum of all floating-point results."""
    if isinstance(results, (tuple, list)): return sum(map(total, results))
    if not isinstance(results, torch.Tensor): return 0
    t = torch.view_as_real(results.resolve_conj()) if results.is_complex() else results
    return (t * torch.arange(1, t.numel() + 1, dtype=t.dtype).reshape(t.shape).sin()).sum() if t.is_floating_point() else 0


class Line:
    """A sample as a function of a number for each of its tensors."""
    def __init__(self, function, op, args, names):
        self.function, self.op, self.args, self.names = function, op, args, names
        self.places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and (a.is_floating_point() or a.is_complex())]
        self.bases = [args[i] for i in self.places]
        self.steps = [torch.arange(2, 2 + b.numel(), dtype=torch.float64).reshape(b.shape).cos().to(b.dtype) * (1 + 0.5j if b.is_complex() else 1)
                      for b in self.bases]

    def at(self, number, only=None, bases=None):
        """The value after a step of the given length; with `only` of one tensor alone."""
        args = list(self.args)
        for k, (place, base, step) in enumerate(zip(self.places, bases or self.bases, self.steps)):
            args[place] = base + number * step if only in (None, k) else base
        if self.op.endswith("_"): args[0] = args[0].clone()
        return total(self.function(*args, **self.names))

    def is_differentiable(self):
        try:
            return self.at(torch.zeros((), dtype=torch.float64, requires_grad=True)).requires_grad
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):  # a sample of another dtype or interface
            return False


def lines():
    for op, name, (text, low, high) in samples.samples():
        if op in LEFT_OUT or op.endswith("_copy"): continue
        args, names = samples.arguments(torch, text, low, high, "float64")
        function = find(op, name, args)
        if not function: continue
        for dtype in ("float64", "complex128"):
            given = [a * (1 + 0.25j) if dtype == "complex128" and isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
            line = Line(function, op, given, names)
            if dtype == "complex128" and not any(b.is_complex() for b in line.bases): continue
            if line.bases and line.is_differentiable(): yield f"{op}({text}) {dtype}", line


def outcome(call):
    try:
        return call()
    except (RuntimeError, NotImplementedError) as error:
        return str(error)[:200]


class Nestings(unittest.TestCase):
    def setUp(self):
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")

    def check(self, wanted, call, what):
        """An error must be that of the plain derivative."""
        found = outcome(call)
        if isinstance(wanted, str) or isinstance(found, str):
            self.assertEqual(found, wanted, what)
        else:
            close = torch.allclose(torch.as_tensor(wanted).resolve_conj(), torch.as_tensor(found).resolve_conj(), 1e-7, 1e-8, equal_nan=True)
            self.assertTrue(close, f"{what}: {found} instead of {wanted}")

    def test_forward_and_reverse_mode_agree(self):
        zero, count = torch.zeros((), dtype=torch.float64), 0
        for name, line in lines():
            with self.subTest(name):
                first, second = outcome(lambda: jacrev(line.at)(zero)), outcome(lambda: jacrev(jacrev(line.at))(zero))
                self.check(first, lambda: jacfwd(line.at)(zero), "forward")
                for what, outer, inner in (("forward of forward", jacfwd, jacfwd), ("forward of reverse", jacfwd, jacrev),
                                           ("reverse of forward", jacrev, jacfwd)):
                    self.check(second, lambda: outer(inner(line.at))(zero), what)
                count += 1
        self.assertGreater(count, 1000)

    def test_batches_of_derivatives_match_loops(self):
        slope = lambda function, x: jvp(function, (x,), (torch.ones_like(x),))[1]
        for name, line in lines():
            with self.subTest(name):
                each = outcome(lambda: torch.stack([grad(line.at)(x) for x in SHIFTS]))
                self.check(each, lambda: torch.vmap(grad(line.at))(SHIFTS), "vmap of grad")
                self.check(each, lambda: torch.vmap(lambda x: slope(line.at, x))(SHIFTS), "vmap of jvp")
                batch = lambda x: torch.vmap(lambda shift: line.at(x + shift))(SHIFTS).sum()
                self.check(each if isinstance(each, str) else each.sum(), lambda: grad(batch)(torch.zeros_like(SHIFTS[0])), "grad of vmap")

    def test_one_tensor_is_batched_and_all_are_differentiated(self):
        for name, line in lines():
            count = len(line.bases)
            for k in range(count if count > 1 else 0):
                with self.subTest(name, batched=k):
                    value = lambda shift, *bases: line.at(shift, k, bases)
                    numbers = tuple(range(1, count + 1))
                    each = outcome(lambda: [grad(value, numbers)(x, *line.bases) for x in SHIFTS])
                    if isinstance(each, str): continue
                    found = torch.vmap(grad(value, numbers), (0,) + (None,) * count)(SHIFTS, *line.bases)
                    batch = lambda *bases: torch.vmap(lambda shift: value(shift, *bases))(SHIFTS).sum()
                    sums = grad(batch, tuple(range(count)))(*line.bases)
                    for i in range(count):
                        wanted = torch.stack([gradients[i] for gradients in each])
                        self.check(wanted, lambda: found[i], f"vmap of the gradient of tensor {i}")
                        self.check(wanted.sum(0), lambda: sums[i], f"gradient of tensor {i} of a vmap")


if __name__ == "__main__":
    unittest.main()
