# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.functional, gradcheck and gradgradcheck, compared with PyTorch if a recent one is installed."""
import itertools
import math
import unittest

import phlox

try:
    import torch
    torch = torch if hasattr(torch.optim, "Muon") else None
except ImportError:
    torch = None


DEVICES = ["cpu"] + ["cuda"] * (phlox.cuda.device_count() > 0)


def cases(t):
    """Calls of torch.autograd.functional, valid and invalid."""
    F = t.autograd.functional
    x, y = t.tensor([1.0, 2.0, 3.0]), t.tensor([[0.5, -1.0], [2.0, 0.0]])
    three, two, square = t.ones(3), t.ones(2), t.ones(2, 2)
    f, h = (lambda a: (a**3)[:2]), (lambda a: (a**3).sum() * a[0])
    g, k = (lambda a, b: (a.sum() * b, (a * a).sum())), (lambda a, b: (a.sum() * b).pow(2).sum())
    one, line = (lambda a: (a.sum(),)), (lambda a, b: a * 2)
    return [
        lambda: F.jacobian(f, x), lambda: F.jacobian(g, (x, y)), lambda: F.jacobian(f, (x,)), lambda: F.jacobian(lambda a: a.sum(), x),
        lambda: F.jacobian(f, x, vectorize=True), lambda: F.hessian(h, x), lambda: F.hessian(k, (x, y)), lambda: F.hessian(lambda a: a.sum(), x),
        lambda: F.hessian(h, (x,)), lambda: F.vjp(f, x, two), lambda: F.vjp(g, (x, y), (square, t.tensor(2.0))), lambda: F.vjp(h, x),
        lambda: F.jvp(f, x, three), lambda: F.jvp(g, (x, y), (three, square)), lambda: F.jvp(lambda a: a * 2, t.tensor(3.0)),
        lambda: F.vhp(h, x, three), lambda: F.hvp(h, x, three), lambda: F.vhp(k, (x, y), (three, square)), lambda: F.hvp(k, (x, y), (three, square)),
        lambda: F.vhp(lambda a: a**3, t.tensor(3.0)), lambda: F.jacobian(line, (x, y)), lambda: F.vhp(lambda a: a.sum(), x, x),
        # mismatched arguments
        lambda: F.vjp(f, x), lambda: F.jvp(f, x), lambda: F.vjp(f, x, three), lambda: F.vjp(g, (x, y), (three, t.tensor(2.0))),
        lambda: F.vjp(g, (x, y), two), lambda: F.vjp(f, x, (two, two)), lambda: F.jacobian(f, 3), lambda: F.jacobian(f, [x]),
        lambda: F.jacobian(g, (x, 3)), lambda: F.jacobian(lambda a: 3, x), lambda: F.jacobian(lambda a: (a, 3), x), lambda: F.vjp(f, x, 3),
        lambda: F.hessian(f, x), lambda: F.hessian(one, x), lambda: F.vhp(f, x, x), lambda: F.vhp(one, x, x),
        lambda: F.jacobian(line, (x, y), strict=True), lambda: F.jacobian(lambda a: t.ones(2), x, strict=True),
        lambda: F.jacobian(lambda a: a * 2, x, strict=True, create_graph=True), lambda: F.vjp(line, (x, y), x, strict=True),
        lambda: F.jvp(line, (x, y), (x, y), strict=True), lambda: F.vhp(lambda a: a.sum(), x, x, strict=True),
        lambda: F.jacobian(f, x, vectorize=True, strict=True), lambda: F.jacobian(f, x, strategy="x")]


def outcome(call):
    try:
        return str(call())
    except Exception as error:
        return type(error).__name__, str(error)


class Functional(unittest.TestCase):
    @unittest.skipIf(torch is None, "PyTorch is not installed, or one before 2.9")
    def test_functional_matches_pytorch(self):
        for number, (mine, theirs) in enumerate(zip(cases(phlox), cases(torch))):
            with self.subTest(number):
                self.assertEqual(outcome(mine), outcome(theirs))

    def test_products_match_full_matrices(self):
        F = phlox.autograd.functional
        for device in ("cpu", "cuda")[:1 + phlox.cuda.is_available()]:
            x, v, w = (phlox.tensor(numbers, device=device, dtype=phlox.float64) for numbers in ([1.0, 2, -3], [4.0, -5, 6], [2.0, 1]))
            f, h = (lambda a: phlox.stack([a.prod(), (a * a).sum()])), (lambda a: (a**3).sum() * a[0] + a.prod())
            J, H = F.jacobian(f, x), F.hessian(h, x)
            self.assertEqual((J.shape, H.shape, J.device.type), ((2, 3), (3, 3), device))
            self.assertTrue(phlox.allclose(F.vjp(f, x, w)[1], w @ J))
            self.assertTrue(phlox.allclose(F.jvp(f, x, v)[1], J @ v))
            self.assertTrue(phlox.allclose(F.vhp(h, x, v)[1], v @ H) and phlox.allclose(F.hvp(h, x, v)[1], H @ v))
            self.assertEqual(F.vjp(f, x, w)[0].tolist(), f(x).tolist())

    def test_create_graph(self):
        F = phlox.autograd.functional
        x = phlox.tensor([1.0, 2.0], requires_grad=True)
        self.assertFalse(F.jacobian(lambda a: a**3, x).requires_grad)
        F.jacobian(lambda a: a**3, x, create_graph=True).sum().backward()
        self.assertEqual(x.grad.tolist(), [6, 12])
        self.assertTrue(F.hessian(lambda a: (a**4).sum(), x, create_graph=True).requires_grad)
        with phlox.no_grad():  # it records all the same
            self.assertEqual(F.jacobian(lambda a: a * a, x).tolist(), [[2, 0], [0, 4]])
            self.assertFalse(phlox.is_grad_enabled())

    def test_numbers_in_gradients_have_double_precision(self):
        for device, dtype in itertools.product(DEVICES, (phlox.float64, phlox.complex128)):
            x = phlox.tensor([0.5], dtype=dtype, device=device, requires_grad=True)
            first, = phlox.autograd.grad((2**x).real.sum(), x, create_graph=True)
            second, = phlox.autograd.grad(first.real.sum(), x)
            self.assertAlmostEqual(second.real.item(), math.sqrt(2) * math.log(2) ** 2, 15)
        power = x**True
        first, = phlox.autograd.grad(power.real.sum(), x, create_graph=True)
        self.assertEqual(phlox.autograd.grad(first.real.sum(), x)[0].tolist(), [0])

    def test_second_derivatives_and_tangents_at_zero(self):
        t, F = phlox, phlox.nn.functional
        zeros, zero, nothing = t.zeros(2, dtype=t.float64), t.zeros((), dtype=t.float64), t.zeros(2, 2, dtype=t.float64)
        number = lambda value: t.tensor(value, dtype=t.float64)
        cases = {  # function, input, first and second derivatives
            **{f"norm {p}": (lambda x, p=p: t.linalg.vector_norm(x, p), zeros, zeros, nothing) for p in (1, 2, 3, math.inf)},
            "std": (t.std, zeros, zeros, nothing), "dist": (lambda x: t.dist(x, zeros), zeros, zeros, nothing),
            "cdist": (lambda x: t.cdist(x[None], zeros[None]).sum(), zeros, zeros, nothing),
            "pairwise_distance": (lambda x: F.pairwise_distance(x[None], zeros[None], eps=0).sum(), zeros, zeros, nothing),
            **{f"lp_pool {p}": (lambda x, p=p: F.lp_pool1d(x[None], p, 2).sum(), zeros, zeros, nothing) for p in (1.0, 2.0, 3.0)},
            **{f"x**{n}": (lambda x, n=n: x**n, zero, number(float(n == 1)), number(2.0 * (n == 2))) for n in (0, 1, 2, 3, 4)},
            "pow(x, 0)": (lambda x: t.pow(x, zero), zero, zero, zero), "pow(0, x)": (lambda x: t.pow(zero, x), number(1.5), zero, zero),
            "copysign": (lambda x: t.copysign(x, number(-1.0)), zero, zero, zero), "logit": (lambda x: t.logit(x, 1e-3), zero, zero, zero),
            **{f.__name__: (f, number(800.0), f(number(800.0)) / 800, zero) for f in (F.elu, F.celu, F.selu)},
            "log_ndtr": (t.special.log_ndtr, number(40.0), zero, zero),
            "imag": (lambda x: t.sqrt(t.complex(x, x).imag), zero, number(math.inf), number(-math.inf)),
        }
        forward, reverse = t.func.jacfwd, t.func.jacrev
        for name, (function, x, first, second) in cases.items():
            for what, derive in (("first", (forward, reverse)), ("second", list(itertools.product((forward, reverse), repeat=2)))):
                for way in derive:
                    with self.subTest(name, derivative=what, way=[w.__name__ for w in (way if what == "second" else (way,))]):
                        found = (way[0](way[1](function)) if what == "second" else way(function))(x)
                        self.assertTrue(t.allclose(found, second if what == "second" else first, atol=1e-12), found)

    def test_complex_norm_and_deviation_where_an_element_is_zero(self):
        x = phlox.tensor([0j, 1 + 1j], dtype=phlox.complex128)
        for function in (phlox.linalg.vector_norm, lambda x: phlox.dist(x, phlox.zeros_like(x)), lambda x: phlox.std(phlox.cat([x, -x]))):
            parts = lambda y: function(phlox.view_as_complex(y))
            hessian = phlox.func.hessian(parts)(phlox.view_as_real(x))
            moved = phlox.func.hessian(parts)(phlox.view_as_real(x) + 1e-9)
            self.assertTrue(phlox.allclose(hessian, moved, atol=1e-6) and hessian[0, 0, 0, 0] > 0.1)

    def test_third_derivatives_of_gelu(self):
        for approximate in ("none", "tanh"):
            x = phlox.linspace(-3, 3, 13, dtype=phlox.float64, requires_grad=True)
            def second(x):
                first, = phlox.autograd.grad(phlox.nn.functional.gelu(x, approximate=approximate).sum(), x, create_graph=True)
                return phlox.autograd.grad(first.sum(), x, create_graph=True)[0]
            self.assertTrue(phlox.autograd.gradcheck(second, x))

    def test_unsupported_options_and_errors(self):
        F, x = phlox.autograd.functional, phlox.ones(2)
        with self.assertRaisesRegex(NotImplementedError, "Computing Jacobian using forward-AD or forward-over-reverse Hessian"):
            F.jacobian(lambda a: a, x, strategy="forward-mode")
        with self.assertRaisesRegex(NotImplementedError, "Computing Jacobian using forward-AD or forward-over-reverse Hessian"):
            F.hessian(lambda a: a, x, outer_jacobian_strategy="forward-mode")
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            F.hessian(lambda a: 1 / 0, x)
        self.assertTrue(phlox.is_grad_enabled())
        self.assertEqual(F.jacobian(lambda a: a[:0], x).shape, (0, 2))


class Wrong(phlox.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a, a.exp()

    @staticmethod
    def backward(ctx, g, h):
        a, = ctx.saved_tensors
        return 2 * a * g + h * a.exp() * a


class Nondeterministic(phlox.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, a):
        return a * 2

    @staticmethod
    def backward(ctx, g):
        Nondeterministic.calls += 1
        return g * (2 + 1e-7 * (Nondeterministic.calls % 2))


class Checks(unittest.TestCase):
    def test_gradcheck_many_inputs(self):
        inputs = [phlox.randn(2, dtype=phlox.float64, requires_grad=True) for _ in range(40)]
        self.assertTrue(phlox.autograd.gradcheck(lambda *all: sum(x * x for x in all), inputs))
        with self.assertRaisesRegex(RuntimeError, "with respect to input 39"):
            phlox.autograd.gradcheck(lambda *all: sum(all[:39]) + Wrong.apply(all[39])[1], inputs)

    def setUp(self):
        self.x, self.w = (phlox.tensor(numbers, dtype=phlox.float64, requires_grad=True) for numbers in ([0.3, 0.7, -0.2], [1.0, 2.0, 3.0]))

    def test_gradcheck_all_outputs(self):
        from phlox.autograd.gradcheck import GradcheckError
        self.assertTrue(phlox.autograd.gradcheck(phlox.mul, (self.x, self.w)))
        self.assertTrue(phlox.autograd.gradcheck(lambda a: (a * 2, 3, a.detach().long()), self.x))
        with self.assertRaisesRegex(GradcheckError, "^Jacobian mismatch for output 1 with respect to input 0,"):
            phlox.autograd.gradcheck(Wrong.apply, (self.x,))
        self.assertFalse(phlox.autograd.gradcheck(Wrong.apply, (self.x,), raise_exception=False))

    def test_gradgradcheck(self):
        check = phlox.autograd.gradgradcheck
        self.assertTrue(check(phlox.sin, self.x) and check(phlox.mul, (self.x, self.w)) and check(lambda a: (a.sin(), a.exp()), (self.x,)))
        self.assertTrue(check(phlox.sin, self.x, phlox.ones(3, dtype=phlox.float64), gen_non_contig_grad_outputs=True))
        self.assertTrue(check(phlox.sin, self.x, gen_non_contig_grad_outputs=True))

        class Half(phlox.autograd.Function):  # right, but its gradient hides that it depends on a
            @staticmethod
            def forward(ctx, a):
                ctx.save_for_backward(a)
                return a * a

            @staticmethod
            def backward(ctx, g):
                return 2 * ctx.saved_tensors[0].detach() * g
        self.assertTrue(phlox.autograd.gradcheck(Half.apply, self.x))
        self.assertFalse(check(Half.apply, self.x, raise_exception=False))

    def test_gradcheck_nondet_tol(self):
        with self.assertRaisesRegex(RuntimeError, r"^Backward is not reentrant, .* nondeterminism was 0\.0\."):
            phlox.autograd.gradcheck(Nondeterministic.apply, self.x)
        self.assertTrue(phlox.autograd.gradcheck(Nondeterministic.apply, self.x, nondet_tol=1e-5))

    def test_gradcheck_argument_errors(self):
        for option, mode, needed in (("check_batched_grad", "forward_ad", "backward_ad"), ("check_batched_forward_grad", "backward_ad", "forward_ad")):
            with self.assertRaisesRegex(AssertionError, f"^Setting {option}=True requires check_{needed} to be True$"):
                phlox.autograd.gradcheck(phlox.sin, self.x, **{option: True, f"check_{mode}": True, f"check_{needed}": False})
        with self.assertRaisesRegex(AssertionError, "at least one of check_forward_ad or check_backward_ad"):
            phlox.autograd.gradcheck(phlox.sin, self.x, check_backward_ad=False)
        with self.assertRaisesRegex(ValueError, "at least one input tensor to require gradient"):
            phlox.autograd.gradcheck(phlox.sin, self.x.detach())


if __name__ == "__main__":
    unittest.main()
