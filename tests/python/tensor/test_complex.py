# SPDX-License-Identifier: Apache-2.0
"""Complex numbers: results, gradients, and conjugate and negative views. On the CPU and on GPUs, real or simulated. The expected values are from
Python's cmath or from finite differences."""
import cmath
import math
import unittest

import phlox as torch

VALUES = [0.5 + 0.25j, -1.5 + 0.75j, 0.3 - 1.2j, -0.8 - 0.4j]
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def tensor(values=VALUES, dtype=torch.complex128, device="cpu", grad=False):
    return torch.tensor(values, dtype=dtype, device=device, requires_grad=grad)


class Case(unittest.TestCase):
    def assertNear(self, made, expected, within=1e-12):
        made = made.flatten().tolist()
        self.assertEqual(len(made), len(expected))
        for a, b in zip(made, expected):
            self.assertLess(abs(a - b), within * max(1, abs(b)), (made, expected))


class Values(Case):
    def test_functions_match_cmath(self):
        names = "exp log sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh log10".split()
        for device in DEVICES:
            for name in names:
                expected = [getattr(cmath, name)(v) for v in VALUES]
                for dtype, within in ((torch.complex128, 1e-12), (torch.complex64, 1e-5)):
                    made = getattr(torch, name)(tensor(dtype=dtype, device=device))
                    self.assertEqual(made.dtype, dtype)
                    self.assertNear(made, expected, within)

    def test_small_arguments_keep_precision(self):
        small = [1e-9 + 2e-9j]
        self.assertNear(torch.expm1(tensor(small)) * 1e9, [1 + 2j], 1e-8)
        self.assertNear(torch.log1p(tensor(small)) * 1e9, [1 + 2j], 1e-8)

    def test_arithmetic(self):
        for device in DEVICES:
            x, y = tensor(device=device), tensor(VALUES[::-1], device=device)
            pairs = list(zip(VALUES, VALUES[::-1]))
            self.assertNear(x + y, [a + b for a, b in pairs])
            self.assertNear(x - 2 * y, [a - 2 * b for a, b in pairs])
            self.assertNear(x * y, [a * b for a, b in pairs])
            self.assertNear(x / y, [a / b for a, b in pairs])
            self.assertNear(x ** y, [a ** b for a, b in pairs])
            self.assertNear(x ** 2, [a * a for a in VALUES])
            self.assertNear(1 / x, [1 / a for a in VALUES])
            self.assertNear(-x * 1j, [-a * 1j for a in VALUES])
            self.assertNear(torch.addcmul(x, y, y, value=3), [a + 3 * b * b for a, b in pairs])
            self.assertNear(x.clone().mul_(y), [a * b for a, b in pairs])

    def test_parts_abs_and_angle(self):
        x = tensor(dtype=torch.complex64)
        self.assertEqual([t.dtype for t in (x.abs(), x.angle(), x.real, x.sgn())], [torch.float32] * 3 + [torch.complex64])
        self.assertNear(x.abs(), [abs(v) for v in VALUES], 1e-6)
        self.assertNear(x.angle(), [cmath.phase(v) for v in VALUES], 1e-6)
        self.assertNear(torch.sgn(x), [v / abs(v) for v in VALUES], 1e-6)
        self.assertEqual(torch.sgn(torch.zeros(1, dtype=torch.complex64)).tolist(), [0])
        self.assertNear(torch.polar(x.abs(), x.angle()), VALUES, 1e-6)
        self.assertEqual(torch.complex(torch.tensor([1., 2.]), torch.tensor([3.])).tolist(), [1 + 3j, 2 + 3j])
        with self.assertRaisesRegex(RuntimeError, "^Expected object of scalar type Float but got scalar type Double"):
            torch.complex(torch.ones(1), torch.ones(1, dtype=torch.float64))

    def test_abs_and_angle_of_any_layout(self):
        for device in DEVICES:
            for dtype in torch.complex64, torch.complex128:
                base = tensor([[0.25 * i - 1.5j * k for i in range(7)] for k in range(1, 6)], dtype, device)
                for x in base, base.t(), base[:, 1:], base[1:, ::2], base[2], base[0, 3]:
                    values = x.flatten().tolist()
                    out = torch.empty(*x.shape, 2, dtype=x.real.dtype, device=device)[..., 0]
                    self.assertNear(x.abs(), [abs(v) for v in values], 1e-6)
                    self.assertNear(torch.angle(x), [cmath.phase(v) for v in values], 1e-6)
                    self.assertNear(torch.abs(x, out=out), [abs(v) for v in values], 1e-6)

    def test_type_promotion(self):
        x = tensor(dtype=torch.complex64)
        for other, dtype in ((2, torch.complex64), (torch.ones(4, dtype=torch.int64), torch.complex64),
                             (torch.ones(4, dtype=torch.float64), torch.complex128), (1j, torch.complex64)):
            self.assertEqual((x * other).dtype, dtype)
        self.assertEqual((torch.ones(2) * 1j).dtype, torch.complex64)
        self.assertEqual((torch.ones(2, dtype=torch.float64) + 1j).dtype, torch.complex128)

    def test_comparisons(self):
        x = tensor()
        self.assertEqual((x == VALUES[1]).tolist(), [False, True, False, False])
        self.assertEqual((x != x.conj()).tolist(), [True] * 4)
        self.assertEqual(torch.isnan(torch.tensor([complex(0, math.nan), 1])).tolist(), [True, False])
        self.assertTrue(torch.isclose(x, x + 1e-12).all().item())
        for call, name in ((lambda: x < x, "lt_cpu"), (lambda: x.clamp_min(x), "clamp_min_cpu")):
            with self.assertRaisesRegex(NotImplementedError, f"^\"{name}\" not implemented for 'ComplexDouble'"):
                call()
        for call in x.clamp, x.clamp_min, x.clamp_max:
            self.assertRaisesRegex(NotImplementedError, "clamp is not supported for complex types", call, 0)

    def test_reductions(self):
        for device in DEVICES:
            x = tensor(device=device).view(2, 2)
            self.assertNear(x.sum(), [sum(VALUES)])
            self.assertNear(x.sum(0), [VALUES[0] + VALUES[2], VALUES[1] + VALUES[3]])
            self.assertNear(x.mean(1), [(VALUES[0] + VALUES[1]) / 2, (VALUES[2] + VALUES[3]) / 2])
            self.assertNear(x.prod(), [math.prod(VALUES)])
            self.assertEqual((x.any().item(), (x * 1j).all().item()), (True, True))
            self.assertEqual(torch.tensor([0, 1j], device=device).count_nonzero().item(), 1)
        self.assertNear(tensor(VALUES * 1000, torch.complex64).sum(), [sum(VALUES) * 1000], 1e-6)

    def test_matmul(self):
        for device in DEVICES:
            a, b = tensor(device=device).view(2, 2), tensor(VALUES[::-1], device=device).view(2, 2)
            (p, q), (r, s) = VALUES[:2], VALUES[2:]
            (t, u), (v, w) = VALUES[::-1][:2], VALUES[::-1][2:]
            product = [p * t + q * v, p * u + q * w, r * t + s * v, r * u + s * w]
            self.assertNear(a @ b, product)
            self.assertNear(torch.bmm(a[None], b[None]), product)
            self.assertNear(torch.addmm(b, a, b, beta=2, alpha=0.5), [2 * x + y / 2 for x, y in zip(VALUES[::-1], product)])
            self.assertNear(torch.mv(a, b[0]), [p * t + q * u, r * t + s * u])
            self.assertNear(torch.dot(a[0], b[0]), [p * t + q * u])
            self.assertNear(torch.vdot(a[0], b[0]), [p.conjugate() * t + q.conjugate() * u])
            self.assertNear(torch.nn.functional.linear(a, b.T.contiguous(), torch.zeros(2, dtype=a.dtype, device=device)), product)
            self.assertNear(a.mH, [v.conjugate() for v in (p, r, q, s)])


class VectorizedRows(Case):
    """Vectorized loops on the CPU: blocks of 64 elements, with elements outside of the fast range computed separately."""
    OPS = [lambda x, y: x * y, lambda x, y: x / y, lambda x, y: x * (1.5 - 2j), lambda x, y: x.square(), lambda x, y: x.reciprocal(),
           lambda x, y: x.abs(), lambda x, y: x.angle(), lambda x, y: x.sgn()]

    def assertBits(self, made, expected):
        made, expected = (torch.view_as_real(t) if t.is_complex() else t for t in (made, expected))
        both_nan = made.isnan() & expected.isnan()
        self.assertTrue(((made == expected) & (made.signbit() == expected.signbit()) | both_nan).all())

    def test_independent_of_length_layout_and_threads(self):
        for dtype in torch.complex64, torch.complex128:
            real = torch.randn(20000, dtype=dtype).real
            x, y = (torch.complex(real.roll(k) * 10, real.roll(k + 3)) for k in (0, 1))
            x[100], x[300], y[500], y[700], x[900] = 0, math.inf, math.nan, 1e-38, complex(1e30, -1e30)
            for op in self.OPS:
                whole = op(x, y)
                self.assertBits(torch.cat([op(x[i:i + 37], y[i:i + 37]) for i in range(0, 999, 37)]), whole[:999])
                self.assertBits(op(x[::3], y[::3]), whole[::3])
                threads = torch.get_num_threads()
                try:
                    torch.set_num_threads(1)
                    self.assertBits(op(x, y), whole)
                finally:
                    torch.set_num_threads(threads)

    def test_accuracy_over_full_range(self):
        for dtype, eps, part, sizes in (torch.complex64, 2.0**-23, 0.51, (1e-44, 1e-30, 1e-15, 1, 1e15, 1e30)), (torch.complex128, 2.0**-52, 1.01, (1e-310, 1e-200, 1e-61, 1, 1e61, 1e200)):
            x = torch.tensor([complex(a * s, -b * t) for s in sizes for t in sizes for a in (0, 0.3, 1.7) for b in (0.9, 1.1)], dtype=dtype)
            values = x.tolist()
            self.assertEqual(x.abs().dtype, x.real.dtype)
            exact = torch.tensor([math.hypot(v.real, v.imag) for v in values], dtype=torch.float64)
            least = 2.0**-149 if dtype == torch.complex64 else 5e-324
            self.assertTrue(((x.abs().double() - exact).abs() <= exact * eps * part + least).all())
            for v, made in zip(values, x.sgn().tolist()):
                self.assertLess(abs(made - v / abs(v)), eps * 1.5 if abs(v) > 1e-300 else 1)
            for y in 1, complex(0.5, 1e-20), complex(-1e10, 3e10):
                for v, made in zip(values, (x / y).tolist()):
                    expected = v / complex(y)
                    self.assertLessEqual(abs(made - expected), 3 * eps * abs(expected) + 2 * least)

    def test_infinities_and_zeros_follow_c(self):
        inf, nan = math.inf, math.nan
        for dtype in torch.complex64, torch.complex128:
            x = torch.tensor([complex(inf, nan), complex(-inf, 1), complex(nan, -inf), complex(nan, 1), 0, complex(1, 1)], dtype=dtype)
            self.assertEqual(x.abs()[[0, 1, 2, 4]].tolist(), [inf, inf, inf, 0])
            self.assertTrue(x.abs()[3].isnan())
            self.assertEqual((x * (1 + 1j)).isinf().tolist(), [True, True, True, False, False, False])
            self.assertEqual((x / 0).isinf().tolist(), [True, True, True, True, False, True])
            self.assertEqual(x.reciprocal()[[0, 1, 2]].abs().tolist(), [0, 0, 0])
            self.assertEqual(x.sgn()[4].item(), 0)
            signs = torch.tensor([1, -1, 2], dtype=dtype).reciprocal().imag.signbit()
            self.assertEqual(signs.tolist(), [False, True, False])


class ComposedOps(Case):
    """Ops composed of real ops in their entries."""

    def test_values(self):
        for device in DEVICES:
            x = tensor(device=device)
            mean = sum(VALUES) / 4
            variance = sum(abs(v - mean) ** 2 for v in VALUES) / 3
            self.assertNear(x.norm(), [math.sqrt(sum(abs(v) ** 2 for v in VALUES))])
            self.assertNear(torch.stack([x.var(), x.std()]), [variance, math.sqrt(variance)])
            self.assertNear(x.cumsum(0), [sum(VALUES[:n]) for n in (1, 2, 3, 4)])
            self.assertNear(x.view(2, 2).tril(), [VALUES[0], 0, *VALUES[2:]])
            self.assertNear(x[x.real > 0], [VALUES[0], VALUES[2]])
            self.assertEqual((x * (x.real > 0)).nonzero().tolist(), [[0], [2]])
            self.assertNear(torch.logsumexp(x, 0), [cmath.log(sum(map(cmath.exp, VALUES)))])
            self.assertNear(torch.logaddexp(x, x * 2), [cmath.log(cmath.exp(v) + cmath.exp(2 * v)) for v in VALUES])
            self.assertEqual(torch.nan_to_num(torch.tensor([complex(math.nan, math.inf)], device=device), posinf=1.).tolist(), [1j])
            self.assertNear(x.clone().index_add_(0, torch.tensor([0, 0], device=device), x[2:]), [VALUES[0] + VALUES[2] + VALUES[3], *VALUES[1:]])
            self.assertNear(x.float_power(2), [v * v for v in VALUES])

    def test_in_place_and_out(self):
        x = tensor().view(2, 2)
        out = torch.empty(0, dtype=x.dtype)
        self.assertIs(torch.triu(x, out=out), out)
        self.assertNear(out, [VALUES[0], VALUES[1], 0, VALUES[3]])
        self.assertNear(x.triu_(), out.flatten().tolist())


class FurtherOps(Case):
    """Composite ops, random numbers, and ops with complex scalar arguments."""

    def test_softmax(self):
        for device in DEVICES:
            x = tensor(device=device)
            exps = [cmath.exp(v) for v in VALUES]
            self.assertNear(torch.softmax(x, 0), [e / sum(exps) for e in exps])
            self.assertNear(torch.log_softmax(x, 0).exp(), [e / sum(exps) for e in exps])
        self.assertEqual(torch.softmax(torch.zeros(0, 2, dtype=torch.complex64), 0).shape, (0, 2))

    def test_cumprod_and_logcumsumexp(self):
        for device in DEVICES:
            x = tensor(device=device)
            self.assertNear(x.logcumsumexp(0).exp(), [sum(cmath.exp(v) for v in VALUES[:i + 1]) for i in range(4)])
            self.assertNear(x.cumprod(0), [math.prod(VALUES[:i + 1]) for i in range(4)])
            self.assertNear(torch.ones(2, dtype=torch.int64, device=device).cumprod(0, dtype=torch.complex64), [1, 1])
            wide = x.reshape(2, 2).expand(9, 2, 2).contiguous().movedim(0, -1)
            self.assertTrue(torch.equal(wide.cumprod(1)[..., 8], x.reshape(2, 2).cumprod(1)))

    def test_convolutions_are_complex_linear(self):
        torch.manual_seed(1)
        draw = lambda *sizes: torch.randn(*sizes, dtype=torch.complex128)
        F = torch.nn.functional
        for function, sizes in ((F.conv1d, (6,)), (F.conv2d, (6, 5)), (F.conv3d, (4, 5, 3)),
                                (F.conv_transpose1d, (6,)), (F.conv_transpose2d, (6, 5)), (F.conv_transpose3d, (4, 3, 2))):
            for device in DEVICES:
                x, w, b = draw(2, 4, *sizes).to(device), draw(4, 2, *[2] * len(sizes)).to(device), draw(4).to(device)
                made = function(x, w, b, stride=2, padding=1, groups=2)
                parts = [[function(p, q, None, 2, 1, groups=2) for q in (w.real, w.imag)] for p in (x.real, x.imag)]
                shift = b.reshape(-1, *[1] * len(sizes))
                self.assertTrue(torch.allclose(made.real, parts[0][0] - parts[1][1] + shift.real))
                self.assertTrue(torch.allclose(made.imag, parts[0][1] + parts[1][0] + shift.imag))
        x, w = draw(1, 2, 4, 3).requires_grad_(), draw(2, 2, 2, 2).requires_grad_()
        self.assertTrue(torch.autograd.gradcheck(F.conv2d, (x, w)))
        self.assertTrue(torch.autograd.gradcheck(F.conv_transpose2d, (x, w)))
        with self.assertRaisesRegex(RuntimeError, "should be the same"):
            F.conv2d(x, w.real)

    def test_linspace_and_logspace(self):
        for device in DEVICES:
            self.assertNear(torch.linspace(1j, 2, 3, dtype=torch.complex128, device=device), [1j, 1 + .5j, 2])
            self.assertNear(torch.linspace(0, 1, 2, dtype=torch.complex64, device=device), [0, 1])
            self.assertNear(torch.logspace(0, 1j, 2, dtype=torch.complex128, device=device), [1, 10 ** 1j])
        self.assertEqual(torch.linspace(torch.tensor(1j), 2, 3).dtype, torch.complex64)
        with self.assertRaises(RuntimeError) as caught:
            torch.linspace(1j, 2, 3, dtype=torch.float32)
        self.assertEqual(str(caught.exception), "torch.linspace(): inferred dtype c10::complex<float> can't be safely cast to passed dtype Float")

    def test_random_numbers_are_pairs_of_reals(self):
        for device in DEVICES:
            for dtype, part in ((torch.complex64, torch.float32), (torch.complex128, torch.float64), (torch.complex32, torch.float16)):
                torch.manual_seed(4)
                drawn = torch.view_as_real(torch.randn(3, dtype=dtype, device=device))
                torch.manual_seed(4)
                expected = torch.empty(3, 2, dtype=part, device=device).normal_(0, 1 / math.sqrt(2))
                self.assertTrue(torch.equal(drawn, expected))
                torch.manual_seed(4)
                drawn = torch.view_as_real(torch.zeros(3, dtype=dtype, device=device).uniform_(-1, 2))
                torch.manual_seed(4)
                self.assertTrue(torch.equal(drawn, torch.empty(3, 2, dtype=part, device=device).uniform_(-1, 2)))

    def test_var_mean_and_corrcoef(self):
        x = tensor()
        spread, mean = torch.var_mean(x)
        self.assertNear(mean, [sum(VALUES) / 4])
        self.assertEqual(spread.dtype, torch.float64)
        both = torch.corrcoef(torch.stack([x, 2j * x]))
        self.assertNear(both.abs(), [1, 1, 1, 1])
        self.assertNear(torch.nn.functional.softsign(x), [v / (1 + abs(v)) for v in VALUES])
        self.assertNear(torch.linalg.vander(x[:1], N=3), [1, VALUES[0], VALUES[0] ** 2])

    def test_complex_scalar_arguments(self):
        torch.manual_seed(6)
        draw = lambda *sizes: torch.randn(*sizes, dtype=torch.complex128)
        a, b, c = draw(3, 4), draw(4, 2), draw(3, 2)
        for device in DEVICES:
            x, y, z = (t.to(device) for t in (a, b, c))
            expected = (2j * c + (1 - 1j) * (a @ b)).flatten().tolist()
            self.assertNear(torch.addmm(z, x, y, beta=2j, alpha=1 - 1j).cpu(), expected)
            self.assertNear(z.clone().addmm_(x, y, beta=2j, alpha=1 - 1j).cpu(), expected)
            self.assertNear(torch.addmm(z, x, y, alpha=1j, out=torch.empty_like(z)).cpu(), (c + 1j * (a @ b)).flatten().tolist())
            self.assertNear(torch.baddbmm(z[None], x[None], y[None], beta=1j).cpu(), (1j * c + a @ b).flatten().tolist())
            self.assertNear(torch.addbmm(z, x[None], y[None], alpha=1j).cpu(), (c + 1j * (a @ b)).flatten().tolist())
            self.assertNear(torch.addmv(z[:, 0], x, y[:, 0], beta=1j).cpu(), (1j * c[:, 0] + a @ b[:, 0]).tolist())
            self.assertNear(torch.addr(z, x[:, 0], y[:2, 0], alpha=1j).cpu(), (c + 1j * torch.outer(a[:, 0], b[:2, 0])).flatten().tolist())
            self.assertNear(torch.constant_pad_nd(x[0, :1], (1, 1), 2j).cpu(), [2j, a[0, 0].item(), 2j])
            self.assertEqual(torch.full_like(z, 1 + 2j).tolist(), [[1 + 2j] * 2] * 3)
            self.assertEqual(torch.full((2,), 1j, out=torch.empty(2, dtype=torch.complex64, device=device)).tolist(), [1j, 1j])
        for refused, text in ((lambda: torch.addmm(c.real, a.real, b.real, beta=1j), "value cannot be converted to type double without overflow"),
                              (lambda: torch.full_like(c.real, 1j), "value cannot be converted to type double without overflow")):
            with self.assertRaises(RuntimeError) as caught:
                refused()
            self.assertEqual(str(caught.exception), text)
        for call in (lambda: torch.addmm(c, a, b, beta="x"), lambda: torch.addmm(c, a, 3, beta=1j)):
            with self.assertRaisesRegex(TypeError, r"^addmm\(\): argument '(beta|mat2)'"):
                call()

    def test_module_to_complex_warns(self):
        layer = torch.nn.Linear(2, 2)
        with self.assertWarnsRegex(UserWarning, "Complex modules are a new feature"):
            layer.to(torch.complex64)
        self.assertEqual(layer(torch.ones(2, dtype=torch.complex64)).dtype, torch.complex64)
        with self.assertRaises(TypeError):
            layer.to(torch.int32)


class Conjugates(Case):
    def test_conj_is_a_view(self):
        x = tensor()
        y = x.conj()
        self.assertEqual((y.is_conj(), x.is_conj(), y.data_ptr() == x.data_ptr()), (True, False, True))
        self.assertNear(y, [v.conjugate() for v in VALUES])
        self.assertEqual(y[1].item(), VALUES[1].conjugate())
        self.assertFalse(y.conj().is_conj())
        self.assertTrue(y.view(2, 2).t().is_conj())
        x[0] = 5j
        self.assertEqual(y[0].item(), -5j)
        self.assertEqual(str(torch.tensor([1 + 2j]).conj()), "tensor([1.-2.j])")
        real = torch.ones(2)
        self.assertIs(real.conj(), real)

    def test_writes_through_conj(self):
        x = tensor()
        y = x.conj()
        y[0] = 1 + 1j
        y[1:].mul_(2j)
        y[3].fill_(4j)
        self.assertNear(x, [1 - 1j, VALUES[1] * -2j, VALUES[2] * -2j, -4j])

    def test_imag_of_conj_is_negative_view(self):
        x = tensor()
        part = x.conj().imag
        self.assertEqual((part.is_neg(), part.data_ptr() == x.imag.data_ptr()), (True, True))
        self.assertNear(part, [-v.imag for v in VALUES])
        self.assertNear(part + 1, [1 - v.imag for v in VALUES])
        self.assertFalse(part.resolve_neg().is_neg())
        part.fill_(7)
        self.assertEqual(x.imag.tolist(), [-7] * 4)
        for dtype in (torch.bool, torch.uint8):  # dtypes without negative values
            part.copy_(torch.tensor([1, 0, 1, 1], dtype=dtype))
            self.assertEqual(x.imag.tolist(), [-1, 0, -1, -1])

    def test_copies_resolve_conj(self):
        for device in DEVICES:
            y = tensor(device=device).conj()
            expected = [v.conjugate() for v in VALUES]
            for made in (y.resolve_conj(), y.clone(), y.to(torch.complex64), torch.cat([y]), y.cpu(), y.contiguous()):
                self.assertNear(made, expected, 1e-6)
            self.assertFalse(y.resolve_conj().is_conj())
            self.assertIs(y.conj().resolve_conj().is_conj(), False)

    def test_raw_memory_access_raises(self):
        y = tensor().conj()
        with self.assertRaisesRegex(RuntimeError, "^view_as_real doesn't work on unresolved conjugated tensors"):
            torch.view_as_real(y)
        with self.assertRaisesRegex(RuntimeError, "^Can't call numpy\\(\\) on Tensor that has conjugate bit set"):
            y.numpy()


class Gradients(Case):
    """The gradient of a real L at z is dL/dx + i dL/dy: the direction of steepest ascent."""

    def check(self, function, *inputs, within=1e-6):
        weights = [0.7 - 0.2j, -0.4 + 0.9j, 1.1 + 0.3j, 0.2 - 0.6j]

        def loss(*tensors):
            made = function(*tensors).flatten()
            if not made.is_complex():
                return (made * torch.tensor([w.real for w in weights], dtype=made.dtype)[:made.numel()]).sum()
            return (made * torch.tensor(weights, dtype=made.dtype)[:made.numel()]).real.sum()
        inputs = [x.detach().clone().requires_grad_() for x in inputs]
        loss(*inputs).backward()
        step = 1e-6
        for x in inputs:
            grad = x.grad.flatten().tolist()
            flat = x.detach().view(-1)
            for i, here in enumerate(grad):
                slope = 0
                for direction in (1, 1j)[:1 + x.is_complex()]:
                    was = flat[i].item()
                    ends = []
                    for sign in (1, -1):
                        flat[i] = was + sign * step * direction
                        ends.append(loss(*[t.detach() for t in inputs]).item())
                    flat[i] = was
                    slope += direction * (ends[0] - ends[1]) / (2 * step)
                self.assertLess(abs(here - slope), within * max(1, abs(slope)), (i, grad, slope))

    def test_unary_functions(self):
        for name in ("exp log sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh log2 log10 log1p expm1 "
                     "exp2 sigmoid reciprocal square neg abs angle sgn conj conj_physical real imag sinc").split():
            with self.subTest(name):
                self.check(getattr(torch, name), tensor())
        self.check(torch.nn.functional.silu, tensor())

    def test_binary_functions(self):
        x, y, real = tensor(), tensor(VALUES[::-1]), torch.tensor([0.5, 1.5, 2., 0.7], dtype=torch.float64)
        for function in (torch.add, torch.sub, torch.mul, torch.div, torch.pow):
            for a, b in ((x, y), (x, real), (real, y)):
                with self.subTest(function.__name__):
                    self.check(function, a, b)
        self.check(lambda a, b: torch.where(torch.tensor([True, False] * 2), a, b), x, y)
        self.check(lambda a, b: torch.lerp(a, b, 0.3), x, y)
        self.check(torch.addcdiv, x, y, x)
        self.check(torch.complex, real, real * 2)
        self.check(torch.polar, real, real * 2)

    def test_reductions_and_matmul(self):
        x, y = tensor().view(2, 2), tensor(VALUES[::-1]).view(2, 2)
        self.check(lambda a: a.sum(0), x)
        self.check(lambda a: a.mean(), x)
        self.check(lambda a: a.prod(), x)
        self.check(torch.mm, x, y)
        self.check(lambda a, b: torch.bmm(a[None], b[None]), x, y)
        self.check(lambda a, b: torch.addmm(a, a, b, beta=2), x, y)
        self.check(lambda a, b: torch.mv(a, b[0]), x, y)
        self.check(lambda a, b: torch.vdot(a[0], b[0]), x, y)
        self.check(lambda a: (a.mH @ a).diagonal().real, x)

    def test_composed_ops(self):
        x, index = tensor(), torch.tensor([0, 2, 2, 1])
        for function in (torch.norm, torch.var, torch.std, lambda a: a.cumsum(0), lambda a: a.view(2, 2).tril(),
                         lambda a: a[torch.tensor([True, False, True, True])], lambda a: a[index], lambda a: a.gather(0, index),
                         lambda a: a.index_select(0, index), lambda a: torch.logsumexp(a, 0), lambda a: torch.logaddexp(a, a * a),
                         lambda a: a.index_add(0, index, a * a), lambda a: torch.cov(a.view(2, 2))):
            self.check(function, x)

    def test_views_as_real_and_complex(self):
        x = tensor()
        self.check(lambda a: torch.view_as_real(a)[:, 1] * 3, x)
        self.check(lambda a: torch.view_as_complex(a.view(2, 2)), torch.tensor([1., 2, 3, 4], dtype=torch.float64))
        self.check(lambda a: a.conj().imag * a.real, x)

    def test_softmax_and_cumulative_ops(self):
        x = tensor(grad=True)
        for function in (torch.softmax, torch.log_softmax, torch.logcumsumexp, torch.cumprod):
            self.assertTrue(torch.autograd.gradcheck(function, (x, 0)))
            self.assertTrue(torch.autograd.gradgradcheck(function, (x, 0)))

    def test_complex_scalar_factors(self):
        x, y, z = (torch.randn(2, 2, dtype=torch.complex128, requires_grad=True) for _ in range(3))
        self.assertTrue(torch.autograd.gradcheck(lambda a, b, c: torch.addmm(a, b, c, beta=2j, alpha=1 - 1j), (x, y, z)))
        self.assertTrue(torch.autograd.gradcheck(lambda a: torch.constant_pad_nd(a, (1, 0), 1j), (x,)))

    def test_double_backward(self):
        x = tensor(grad=True)
        (first,) = torch.autograd.grad((x * x * x).real.sum(), x, create_graph=True)
        self.assertNear(first, [(3 * v * v).conjugate() for v in VALUES])
        (second,) = torch.autograd.grad(first.real.sum(), x)
        self.assertNear(second, [(6 * v).conjugate() for v in VALUES])

    def test_real_input_has_real_gradient(self):
        real = torch.tensor([1., 2.], requires_grad=True)
        (real * torch.tensor([1 + 2j, 3 - 1j])).real.sum().backward()
        self.assertEqual((real.grad.dtype, real.grad.tolist()), (torch.float32, [1, 3]))

    def test_backward_needs_real_output(self):
        x = tensor([1j], torch.complex64, grad=True)
        with self.assertRaisesRegex(RuntimeError, "^grad can be implicitly created only for real scalar outputs but got torch.complex64"):
            x.sum().backward()
        x.sum().backward(torch.tensor(2j))
        self.assertEqual(x.grad.tolist(), [2j])

    def test_in_place_through_conj(self):
        x = tensor(grad=True)
        y = x * 1
        y.conj().mul_(2j)
        y.real.sum().backward()
        self.assertNear(x.grad, [2j] * 4)


class Dropout(Case):
    """The expected values are PyTorch 2.15's."""
    def draw(self, name, z, **options):
        torch.manual_seed(5)
        return getattr(torch.nn.functional, name)(z, 0.5, True, **options)

    def test_elements_and_channels_are_dropped_whole(self):
        z = torch.complex(torch.arange(8.) + 1, torch.ones(8))
        self.assertEqual(self.draw("dropout", z).tolist(), [0, 4 + 2j, 6 + 2j, 8 + 2j, 10 + 2j, 0, 0, 0])
        self.assertEqual(self.draw("dropout", z, inplace=True).tolist(), [0, 4 + 2j, 6 + 2j, 8 + 2j, 10 + 2j, 0, 0, 0])
        z = torch.complex(torch.arange(8.) + 1, torch.ones(8))
        self.assertEqual(self.draw("dropout1d", z.reshape(2, 2, 2)).flatten().tolist(), [0, 0, 6 + 2j, 8 + 2j, 10 + 2j, 12 + 2j, 14 + 2j, 16 + 2j])
        self.assertEqual(self.draw("dropout2d", z.reshape(1, 2, 2, 2)).flatten().tolist(), [0, 0, 0, 0, 10 + 2j, 12 + 2j, 14 + 2j, 16 + 2j])
        self.assertNear(self.draw("alpha_dropout", z)[:2], [-0.7791939377784729, 2.5520036220550537 + 0.8864048719406128j], 1e-6)

    def test_gradient_is_that_of_the_kept_elements(self):
        for device in DEVICES:
            z = tensor(device=device, grad=True)
            y = self.draw("dropout", z)
            y.sum().backward(torch.ones((), dtype=y.dtype, device=device))
            self.assertEqual(z.grad.tolist(), [2 * (v != 0) for v in y.tolist()])


Z = 1 + 2j
C, R, I = [1 + 1j, 2 - 1j], [1.0, 2.0], [1, 2]
FIRST = torch.tensor([0])


def square(values):
    return torch.stack([values, values + 1])


class NumberArguments(Case):
    """Complex Python numbers as scalar arguments."""

    def test_values_of_complex_tensors(self):
        c, m = tensor(C), square(tensor(C))
        cases = {  # as PyTorch 2.15
            "new_full": (c.new_full((2,), Z), [Z, Z]), "new_full dtype": (torch.tensor(R).new_full((1,), Z, dtype=torch.complex64), [Z]),
            "scatter": (c.scatter(0, FIRST, Z), [Z, 2 - 1j]), "scatter_ add": (c.clone().scatter_(0, FIRST, Z, reduce="add"), [2 + 3j, 2 - 1j]),
            "scatter_ multiply": (c.clone().scatter_(0, FIRST, Z, reduce="multiply"), [-1 + 3j, 2 - 1j]),
            "fill_diagonal_": (m.clone().fill_diagonal_(Z), [Z, 2 - 1j, 2 + 1j, Z]),
            "fill_diagonal_ wrap": (torch.ones(5, 2, dtype=torch.complex64).fill_diagonal_(Z, wrap=True), [Z, 1, 1, Z, 1, 1, Z, 1, 1, Z]),
            "index_fill": (c.index_fill(0, FIRST, Z), [Z, 2 - 1j]), "masked_fill": (c.masked_fill(torch.tensor([True, False]), Z), [Z, 2 - 1j]),
            "rsub": (torch.rsub(c, Z), [1j, -1 + 3j]), "rsub alpha": (torch.rsub(c, Z, alpha=Z), [2 - 1j, -3 - 1j]),
            "rsub real": (torch.rsub(torch.tensor(R), Z), [2j, -1 + 2j]), "rsub integer": (torch.rsub(torch.tensor(I), Z), [2j, -1 + 2j]),
            "add": (torch.add(c, c, alpha=Z), [4j, 6 + 2j]), "add number": (torch.add(c, Z, alpha=Z), [-2 + 5j, -1 + 3j]),
            "add real": (torch.add(torch.tensor(R), c, alpha=Z), [3j, 6 + 3j]), "add_": (c.clone().add_(1, alpha=Z), [2 + 2j + 1j, 3 + 1j]),
            "sub": (torch.sub(c, c, alpha=Z), [2 - 2j, -2 - 4j]), "subtract": (torch.subtract(c, 1, alpha=Z), [-1j, 1 - 3j]),
            "addcmul": (torch.addcmul(c, c, c, value=Z), [-3 + 3j, 13 + 1j]), "addcdiv": (torch.addcdiv(c, c, c, value=Z), [2 + 3j, 3 + 1j]),
            "lerp": (torch.lerp(c, c + 1, Z), [2 + 3j, 3 + 1j]),
            "index_add": (torch.index_add(c, 0, FIRST, tensor([1j]), alpha=Z), [-1 + 2j, 2 - 1j]),
            "pow": (torch.pow(Z, torch.tensor(R, dtype=torch.float64)), [Z, -3 + 4j]), "float_power": (torch.float_power(Z, torch.tensor(I)), [Z, -3 + 4j]),
            "addmm": (torch.addmm(m, m, m, alpha=Z, beta=Z), (Z * (m + m @ m)).flatten().tolist()),
            "baddbmm": (torch.baddbmm(m[None], m[None], m[None], alpha=Z), (m + Z * (m @ m)).flatten().tolist()),
            "where": (torch.where(torch.tensor([True, False]), Z, c), [Z, 2 - 1j]), "foreach": (torch._foreach_addcmul([c], [c], [c], value=Z)[0], [-3 + 3j, 13 + 1j]),
            "constant_": (torch.nn.init.constant_(c.clone(), Z), [Z, Z]), "full bool": (torch.full((1,), Z, dtype=torch.bool), [True])}
        for name, (made, wanted) in cases.items():
            with self.subTest(name):
                self.assertNear(made, wanted)

    def test_real_numbers_in_complex_form(self):
        r, m, one = torch.tensor(R), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 1 + 0j
        for name, made, wanted in (
                ("new_full", r.new_full((1,), one), [1]), ("scatter", r.scatter(0, FIRST, one), [1, 2]), ("scatter_", r.clone().scatter_(0, FIRST, one, reduce="add"), [2, 2]),
                ("fill_diagonal_", m.clone().fill_diagonal_(one), [1, 2, 3, 1]), ("addcmul", torch.addcmul(r, r, r, value=one), [2, 6]),
                ("addcdiv", torch.addcdiv(r, r, r, value=one), [2, 3]), ("half", torch.addcmul(r.half(), r.half(), r.half(), value=2 + 0j), [3, 10]),
                ("lerp", torch.lerp(r, r + 1, one), [2, 3]), ("index_add", torch.index_add(r, 0, FIRST, torch.ones(1), alpha=one), [2, 2]),
                ("addmm", torch.addmm(m, m, m, beta=one), [8, 12, 18, 26]), ("baddbmm", torch.baddbmm(m[None], m[None], m[None], alpha=one), [8, 12, 18, 26]),
                ("addr", torch.addr(m, r, r, alpha=one), [2, 4, 5, 8]), ("clamp", torch.clamp(r, min=2 + 0j), [2, 2]), ("threshold", torch.threshold(r, 1, 5 + 0j), [5, 2]),
                ("leaky_relu", torch.nn.functional.leaky_relu(-r, 2 + 0j), [-2, -4]), ("arange", torch.arange(0, 3 + 0j, 1), [0, 1, 2]),
                ("scalar_tensor", torch.scalar_tensor(one), [1])):
            with self.subTest(name):
                self.assertEqual((made.flatten().tolist(), made.is_complex()), (wanted, False))

    def test_imaginary_parts_of_real_tensors_are_refused(self):
        r, i, m = torch.tensor(R), torch.tensor(I), torch.ones(2, 2)
        text = "value cannot be converted to type {} without overflow"
        calls = (lambda x: x.new_full((2,), Z), lambda x: x.scatter(0, FIRST, Z), lambda x: x.clone().scatter_(0, FIRST, Z, reduce="multiply"),
                 lambda x: torch.addcmul(x, x, x, value=Z), lambda x: torch.index_add(x, 0, FIRST, x[:1], alpha=Z), lambda x: torch.stack([x, x]).fill_diagonal_(Z),
                 lambda x: x.clone().__setitem__(0, Z), lambda x: x.clone().__setitem__(x > 1, Z), lambda x: torch.threshold(x, 1, Z), lambda x: torch.nn.init.constant_(x, Z))
        for x, kind in (r, "float"), (i, "int64_t"):
            for k, call in enumerate(calls):
                with self.subTest(kind, k=k), self.assertRaisesRegex(RuntimeError, text.format(kind)):
                    call(x)
        for call in (lambda: torch.addmm(m, m, m, alpha=Z), lambda: torch.lerp(r, r, Z), lambda: torch.nn.functional.elu(r, Z)):
            self.assertRaisesRegex(RuntimeError, text.format("float"), call)
        for x, what in (r, "non-complex input tensors, argument alpha must not be a complex"), (i, "integral input tensors, argument alpha must not be a floating"):
            for call in torch.add, torch.sub, torch.rsub, torch.Tensor.add_:
                self.assertRaisesRegex(RuntimeError, what, call, x, x, alpha=1 + 0j)
        self.assertRaisesRegex(RuntimeError, "Converting complex Scalar to non-complex type", r.__setitem__, FIRST, 1 + 0j)
        for call in torch.norm, torch.linalg.vector_norm, lambda x, p: torch.dist(x, x, p):
            self.assertRaisesRegex(RuntimeError, "Expected a non-complex scalar as the order of norm", call, r, Z)
        self.assertRaisesRegex(RuntimeError, "only support dx as a real number", lambda: torch.trapezoid(r, dx=Z))

    def test_tensors_without_dimensions(self):
        c, r, i, z = tensor(C), torch.tensor(R), torch.tensor(I), tensor(Z)
        m = square(c)
        cases = {  # as PyTorch 2.15
            "add": (torch.add(c, c, alpha=z), [4j, 6 + 2j]), "addcmul": (torch.addcmul(c, c, c, value=z), [-3 + 3j, 13 + 1j]),
            "scatter": (torch.scatter(c, 0, FIRST, value=z), [Z, 2 - 1j]), "index_add": (torch.index_add(c, 0, FIRST, c[:1], alpha=z), [4j, 2 - 1j]),
            "new_full": (c.new_full((2,), z), [Z, Z]), "full_like": (torch.full_like(c, z), [Z, Z]), "fill_diagonal_": (m.clone().fill_diagonal_(z)[0], [Z, 2 - 1j]),
            "addmm": (torch.addmm(m, m, m, alpha=z), (m + Z * (m @ m)).flatten().tolist()), "pad": (torch.constant_pad_nd(c, (1, 0), z), [Z, *C]),
            "real": (torch.nn.functional.leaky_relu(-r, tensor(2 + 0j)), [-2, -4])}
        for name, (made, wanted) in cases.items():
            with self.subTest(name):
                self.assertNear(made, wanted)
        self.assertRaisesRegex(RuntimeError, "alpha must not be a complex", torch.add, r, r, alpha=z)
        self.assertRaisesRegex(RuntimeError, "type float without overflow", r.new_full, (2,), z.to(torch.complex64))
        self.assertRaises(TypeError, torch.add, c, c, alpha=c)
        for name in "alpha", "beta":
            self.assertRaisesRegex(RuntimeError, f"argument {name} must not be a floating", torch.addr, i, i, i, **{name: 1 + 0j})

    def test_numbers_as_the_first_operand(self):
        c = tensor(C)
        self.assertNear(torch.add(1, c, alpha=Z), [3j, 5 + 3j])
        self.assertNear(torch.sub(1j, c.real, alpha=Z), [-1 - 1j, -2 - 3j])
        self.assertNear(torch.addr(c.real, c, c, beta=Z), [1 + 4j, 5 + 5j, 4 + 3j, 5])

    def test_sparse_matrices(self):
        m, s = torch.ones(2, 2), torch.eye(2).to_sparse()
        self.assertEqual(torch.sparse.addmm(m, s, m, alpha=2 + 0j, beta=1 + 0j).tolist(), [[3, 3], [3, 3]])
        self.assertRaisesRegex(RuntimeError, "type float without overflow", torch.sparse.addmm, m, s, m, beta=Z)
        for x in m, s:
            self.assertRaisesRegex(RuntimeError, "alpha must not be a complex", torch.add, x, s, alpha=Z)

    def test_assignment(self):
        r, i, b = torch.tensor(R), torch.tensor(I), torch.tensor([False, False])
        r[0], i[0], b[0] = 5 + 0j, 5 + 0j, Z
        r[r < 3], i[:1] = 7 + 0j, 6 + 0j
        self.assertEqual((r.tolist(), i.tolist(), b.tolist()), ([5, 7], [6, 2], [True, False]))

    def test_gradients(self):
        c = tensor(C, grad=True)
        for call in (lambda c: torch.add(c, c, alpha=Z), lambda c: torch.rsub(c, Z, alpha=Z), lambda c: torch.addcmul(c, c, c, value=Z), lambda c: torch.addcdiv(c, c, c, value=Z),
                     lambda c: torch.index_add(c, 0, FIRST, c[1:], alpha=Z), lambda c: torch.scatter(c, 0, FIRST, Z), lambda c: torch.pow(Z, c)):
            self.assertTrue(torch.autograd.gradcheck(call, (c,)))
        self.assertTrue(torch.autograd.gradcheck(lambda c: torch.stack([c, c]).fill_diagonal_(Z), (c,)))

    def test_vmap_and_devices(self):
        rows = square(tensor(C))
        for call in (lambda c: torch.add(c, c, alpha=Z), lambda c: torch.addcmul(c, c, c, value=Z), lambda c: c.new_full((2,), Z), lambda c: torch.pow(Z, c),
                     lambda c: torch.index_add(c, 0, FIRST.to(c.device), c[:1], alpha=Z), lambda c: c.scatter(0, FIRST.to(c.device), Z),
                     lambda c: torch.stack([c, c]).fill_diagonal_(Z)):
            wanted = torch.stack([call(row) for row in rows])
            self.assertNear(torch.vmap(call)(rows), wanted.flatten().tolist())
            for device in DEVICES:
                self.assertNear(call(rows[0].to(device)), wanted[0].flatten().tolist())
            self.assertEqual(call(rows[0].to("meta")).shape, wanted[0].shape)


class Reductions(Case):
    def test_scattered_products_and_means(self):  # as PyTorch 2.15
        for dtype in torch.complex64, torch.complex128:
            c, at = tensor(C, dtype), torch.tensor([0, 0])
            for reduce, own, wanted in (("prod", True, 2 + 4j), ("prod", False, 3 + 1j), ("mean", True, (4 + 1j) / 3), ("mean", False, 1.5)):
                self.assertNear(c.scatter_reduce(0, at, c, reduce, include_self=own), [wanted, 2 - 1j], 1e-6)
            self.assertNear(c.scatter(0, at, c, reduce="multiply"), [2 + 4j, 2 - 1j], 1e-6)
            for reduce in "prod", "mean", "amax":
                self.assertRaisesRegex(NotImplementedError, "not implemented for 'Complex", c.index_reduce, 0, at, c, reduce)
        self.assertRaisesRegex(NotImplementedError, "not implemented for 'ComplexFloat'", c.to(torch.complex64).scatter_reduce, 0, at, c.to(torch.complex64), "amax")
        c = tensor(C, grad=True)  # PyTorch has no gradients here
        for reduce in "prod", "mean":
            self.assertTrue(torch.autograd.gradcheck(lambda c: c.scatter_reduce(0, at, c, reduce), (c,)))
        if "cuda" in DEVICES:
            c = c.detach().cuda()
            self.assertRaises(NotImplementedError, c.scatter_reduce, 0, at.cuda(), c, "prod")
            self.assertNear(c.scatter_reduce(0, at.cuda(), c, "mean"), [(4 + 1j) / 3, 2 - 1j])

if __name__ == "__main__":
    unittest.main()
