# SPDX-License-Identifier: Apache-2.0
"""Special functions and random numbers of distributions: known values, identities, moments. Compared with PyTorch if it is installed: values over the
full ranges, dtypes, gradients, errors and random numbers of a seed."""
import itertools
import math
import unittest
import warnings

import phlox
import peer
from peer import newest as torch

INF, NAN = math.inf, math.nan
DEVICES = ["cpu"] + ["cuda"] * (phlox.cuda.device_count() > 0)
# Values to 17 digits, computed independently of the library.
KNOWN = {
    "special.digamma": {1.0: -0.57721566490153286, 0.5: -1.9635100260214235, -0.25: 2.9141391202135278, 0.0: -INF, -3.0: NAN, INF: INF},
    "lgamma": {0.5: 0.57236494292470009, 10.0: 12.80182748008147, -0.5: 1.2655121234846454, 0.0: INF, -2.0: INF, INF: INF, -INF: INF},
    "erfinv": {0.5: 0.47693627620446987, 0.99: 1.8213863677184495, 1.0: INF, -1.0: -INF, 1.5: NAN, 1e-300: 8.8622692545275804e-301},
    "special.erfcx": {1.0: 0.427583576155807, 30.0: 0.018795888861416751, -2.0: 108.94090438997797, INF: 0.0, -INF: INF},
    "special.ndtr": {0.0: 0.5, 1.0: 0.84134474606854295, -40.0: 3.6558935409150297e-350, INF: 1.0, -INF: 0.0},
    "special.log_ndtr": {-40.0: -804.60844201375379, 0.0: -0.69314718055994531, 5.0: -2.8665161296376359e-7, -INF: -INF, INF: 0.0},
    "special.ndtri": {0.5: 0.0, 0.975: 1.9599639845400539, 1e-300: -37.047096299361199, 0.0: -INF, 1.0: INF, 2.0: NAN},
    "i0": {0.0: 1.0, 1.0: 1.2660658777520083, -5.0: 27.239871823604447, 40.0: 14894774793419900.0, INF: INF},
    "special.i0e": {1.0: 0.46575960759364044, 1e10: 3.9894228040641946e-6, INF: 0.0},
    "special.i1": {0.0: 0.0, 1.0: 0.56515910399248503, -5.0: -24.335642142450527, INF: INF},
    "special.i1e": {1.0: 0.20791041534970845, -100.0: -0.039744153025130253},
    "sinc": {0.0: 1.0, 0.5: 0.63661977236758134, 1.0: 0.0},
    "logit": {0.25: -1.0986122886681097, 0.0: -INF, 1.0: INF, 2.0: NAN},
    "special.entr": {0.5: 0.34657359027997265, 0.0: 0.0, -1.0: -INF, INF: -INF},
    "special.bessel_j0": {0.0: 1.0, 1.0: 0.76519768655796655, -5.0: -0.1775967713143383, 100.0: 0.019985850304223122},
    "special.bessel_j1": {0.0: 0.0, 1.0: 0.44005058574493352, -5.0: 0.32757913759146522, 100.0: -0.077145352014112158},
    "special.bessel_y0": {1.0: 0.088256964215676958, 5.0: -0.30851762524903378, 100.0: -0.077244313365083152, 0.0: -INF, -1.0: NAN},
    "special.bessel_y1": {1.0: -0.78121282130028872, 5.0: 0.14786314339122684, 100.0: -0.020372312002759793, 0.0: -INF, -1.0: NAN},
    "special.modified_bessel_i0": {1.0: 1.2660658777520083, -5.0: 27.239871823604447, INF: INF},
    "special.modified_bessel_i1": {1.0: 0.56515910399248503, -5.0: -24.335642142450527},
    "special.modified_bessel_k0": {1e-08: 18.536612259610778, 1.0: 0.42102443824070833, 2.0: 0.11389387274953344, 9.0: 5.0881312956459248e-5, 300.0: 3.7236948548891433e-132, 0.0: INF, -1.0: NAN, INF: 0.0},
    "special.modified_bessel_k1": {1e-08: 99999999.999999903, 1.0: 0.60190723019723457, 2.0: 0.13986588181652243, 9.0: 5.3637016379451945e-5, 300.0: 3.7298958583323727e-132, 0.0: INF, -1.0: NAN, INF: 0.0},
    "special.scaled_modified_bessel_k0": {0.5: 1.5241093857739095, 3.0: 0.69776159804385178, 10000.0: 0.012532984717699285, INF: 0.0},
    "special.scaled_modified_bessel_k1": {0.5: 2.7310097082117857, 3.0: 0.8065634801287869, 10000.0: 0.012533611351270506},
    "special.spherical_bessel_j0": {1.0: 0.84147098480789651, -20.0: 0.045647262536381383, 0.0: 1.0, INF: 0.0},
    "special.airy_ai": {-50.0: -0.16188142361232092, -9.5: 0.3191032477191282, -8.5: -0.33029023763020888, -4.0: -0.070265532949289515, -0.5: 0.47572809161053959, 0.0: 0.35502805388781724, 2.0: 0.034924130423274379, 4.0: 0.00095156385120480187, 20.0: 1.6916728686705403e-27, INF: 0.0, -INF: 0.0},
}


def lookup(library, path):
    for part in path.split("."):
        library = getattr(library, part)
    return library


def near(a, b, share=1e-14, least=1e-300):
    return a == b or math.isnan(a) and math.isnan(b) or math.isclose(a, b, rel_tol=share, abs_tol=least)


class Values(unittest.TestCase):
    def test_complex_numbers_at_special_values(self):
        for device, dtype in itertools.product(DEVICES, (phlox.complex64, phlox.complex128)):
            def of(*values):
                return phlox.tensor(values, dtype=dtype, device=device, requires_grad=True)

            largest = phlox.finfo(dtype).max
            self.assertEqual((of(0, complex(INF, 1), complex(NAN, 0)) ** 0).tolist(), [1, 1, 1])
            self.assertEqual((1 ** of(complex(INF, 1), complex(NAN, 0))).tolist(), [1, 1])
            self.assertEqual((of(2.5j) ** -1).tolist(), [-0.4j] if dtype == phlox.complex128 else [complex(0, -0.4000000059604645)])
            self.assertEqual((of(2j) ** -2).tolist(), [-0.25])
            zero = of(0, 0)
            (zero**1).real.sum().backward()
            self.assertEqual(zero.grad.tolist(), [1, 1])
            same = of(2 + 1j, 2 + 1j)
            same.std().backward()
            self.assertEqual(same.grad.tolist(), [0, 0])
            self.assertAlmostEqual(of(complex(largest, largest)).log1p()[0].real.item() / (math.log(largest) + math.log(2) / 2), 1, 6)
            self.assertEqual(of(1, INF).logsumexp(0).item(), INF)
            self.assertTrue(phlox.isfinite(phlox.autograd.grad(phlox.logaddexp(of(0), big := of(500)).real.sum(), big)[0]).all())
            tiny = phlox.nn.functional.rms_norm(of(0, 1.5j), (2,))[1].real.item()
            self.assertAlmostEqual(tiny, 2**0.5, 14 if dtype == phlox.complex128 else 6)
            for call in ("argmax", "max", "sort", "topk", "msort", "isposinf", "aminmax", "maximum"):
                with self.assertRaisesRegex(TypeError, "complex"):
                    getattr(phlox, call)(zero, *{"topk": (1,), "max": (0,), "maximum": (zero,)}.get(call, ()))

    def test_known_values(self):
        for (path, rows), device in itertools.product(KNOWN.items(), DEVICES):
            found = lookup(phlox, path)(phlox.tensor([*rows, NAN], dtype=phlox.float64, device=device)).tolist()
            for x, y, wanted in zip(rows, found, rows.values()):
                self.assertTrue(near(y, wanted, 1e-11 if abs(x) > 4 else 4e-15, 2e-16), (path, x, y, wanted))
            self.assertTrue(math.isnan(found[-1]), path)

    def test_lower_precisions_and_integers(self):
        for path in KNOWN:
            x = phlox.linspace(-3, 3, 101, dtype=phlox.float64).float()
            for dtype in (phlox.float32, phlox.float16, phlox.bfloat16):
                y, wide = lookup(phlox, path)(x.to(dtype)), lookup(phlox, path)(x.to(dtype).double())
                self.assertTrue(phlox.allclose(y.double(), wide.to(dtype).double(), rtol=3e-7, atol=1e-7, equal_nan=True), (path, dtype))
            self.assertEqual(lookup(phlox, path)(phlox.tensor([1, 0])).dtype, phlox.float32)

    def test_polynomials_match_formulas(self):
        x, s = phlox.linspace(-1.5, 1.5, 31, dtype=phlox.float64), phlox.special
        rows = {"chebyshev_polynomial_t": 8 * x**4 - 8 * x**2 + 1, "chebyshev_polynomial_u": 16 * x**4 - 12 * x**2 + 1,
                "chebyshev_polynomial_v": 16 * x**4 - 8 * x**3 - 12 * x**2 + 4 * x + 1, "chebyshev_polynomial_w": 16 * x**4 + 8 * x**3 - 12 * x**2 - 4 * x + 1,
                "hermite_polynomial_h": 16 * x**4 - 48 * x**2 + 12, "hermite_polynomial_he": x**4 - 6 * x**2 + 3,
                "laguerre_polynomial_l": x**4 / 24 - 2 * x**3 / 3 + 3 * x**2 - 4 * x + 1, "legendre_polynomial_p": (35 * x**4 - 30 * x**2 + 3) / 8}
        for name, wanted in rows.items():
            made = getattr(s, name)(x, 4.9)  # the degree is truncated
            self.assertTrue(phlox.allclose(made, wanted, rtol=1e-13, atol=1e-12), name)
            if "chebyshev" in name:
                self.assertTrue(phlox.allclose(getattr(s, "shifted_" + name)((x + 1) / 2, 4), wanted, rtol=1e-13, atol=1e-12), name)
            self.assertEqual(getattr(s, name)(x, -1).tolist(), [0.0] * 31)
            self.assertEqual(getattr(s, name)(phlox.tensor([NAN, 2.0]), 0).tolist(), [1.0, 1.0])
            self.assertTrue(getattr(s, name)(x, NAN).isnan().all() and getattr(s, name)(phlox.tensor(NAN), 3).isnan())

    def test_polynomials_of_large_degree(self):
        theta, s = phlox.tensor([0.1, 1.0, 2.0, 3.0], dtype=phlox.float64), phlox.special
        for n in 65, 1000, 10**6 + 1:
            near_enough = {"rtol": 0, "atol": 1e-13 * n}
            self.assertTrue(phlox.allclose(s.chebyshev_polynomial_t(theta.cos(), n), (n * theta).cos(), **near_enough), n)
            self.assertTrue(phlox.allclose(s.chebyshev_polynomial_w(theta.cos(), n), ((n + .5) * theta).sin() / (theta / 2).sin(), **near_enough), n)
        ends = phlox.tensor([1.0, -1.0, 1.5, -1.5], dtype=phlox.float64)
        self.assertEqual(s.chebyshev_polynomial_u(ends, 10**6 + 1).tolist(), [10.0**6 + 2, -10.0**6 - 2, INF, -INF])
        self.assertEqual(s.chebyshev_polynomial_t(ends, 1e300).tolist(), [1.0, 1.0, INF, INF])
        self.assertEqual(s.legendre_polynomial_p(ends[:2], 1001).tolist(), [1.0, -1.0])
        self.assertTrue(s.hermite_polynomial_h(ends, 10**18).isnan().all())

    def test_binary_functions(self):
        t = lambda *x: phlox.tensor(x, dtype=phlox.float64)
        zeta = phlox.special.zeta(t(2, 2, 3, 1, 0.5, 2, 3), t(1, 0.25, -1.5, 2, 1, -2, 1e3)).tolist()
        for y, wanted in zip(zeta, (math.pi ** 2 / 6, 17.197329154507111, 0.1181020258208637, INF, NAN, INF, 5.0050024999991667e-7)):
            self.assertTrue(near(y, wanted, 1e-14), (y, wanted))
        for n, wanted in (1, math.pi ** 2 / 6), (2, -2.4041138063191886), (3, math.pi ** 4 / 15):
            self.assertTrue(near(phlox.polygamma(n, t(1.0)).item(), wanted), n)
        self.assertTrue(phlox.equal(t(0.3).polygamma(1), phlox.polygamma(1, t(0.3))))
        with self.assertRaisesRegex(RuntimeError, r"polygamma\(n, x\) does not support negative n\."):
            phlox.polygamma(-1, t(1.0))

    def test_incomplete_gamma_identities(self):
        a, x = (v.double() for v in phlox.meshgrid(phlox.tensor([1e-3, .5, 1, 3, 40, 900, 2e5, 3e9]), phlox.linspace(.5, 1.5, 21), indexing="ij"))
        low, high = phlox.special.gammainc(a, a * x), phlox.special.gammaincc(a, a * x)
        self.assertTrue(phlox.allclose(low + high, phlox.ones_like(a), rtol=1e-14, atol=0))
        self.assertTrue((low[:, 1:] >= low[:, :-1]).all())
        y = phlox.linspace(0, 30, 50, dtype=phlox.float64)
        self.assertTrue(phlox.allclose(phlox.igammac(phlox.ones_like(y), y), phlox.exp(-y), rtol=1e-14, atol=0))
        three = phlox.exp(-y) * (1 + y + y * y / 2)
        self.assertTrue(phlox.allclose(phlox.igammac(3 * phlox.ones_like(y), y), three, rtol=1e-13, atol=0))

    def test_digamma_at_signed_zero(self):
        self.assertEqual(phlox.digamma(phlox.tensor([0.0, -0.0])).tolist(), [-INF, INF])

    def test_inverse_functions(self):
        y = phlox.linspace(-1, 1, 2001, dtype=phlox.float64)[1:-1]
        self.assertTrue(phlox.allclose(phlox.erf(phlox.erfinv(y)), y, rtol=4e-15, atol=0))
        p = (10 ** phlox.linspace(-300, 0, 301, dtype=phlox.float64))[:-1]
        self.assertTrue(phlox.allclose(phlox.special.ndtr(phlox.special.ndtri(p)), p, rtol=1e-12, atol=0))

    def test_frexp_and_nextafter_over_full_range(self):
        for dtype, least, digits in (phlox.float32, 2.0**-149, 23), (phlox.float64, 5e-324, 52):
            some = [least * 3, -least, 2.0**-126, -(2.0**-126) / 2, 1 - 2.0**-digits, -1.0, 3e38, 0.75, 0.0, -0.0, INF, -INF, NAN] * 9
            x = phlox.tensor(some, dtype=dtype)
            mantissa, exponent = phlox.frexp(x)
            wanted = [math.frexp(v) if math.isfinite(v) else (v, 0) for v in x.tolist()]
            self.assertEqual(repr(mantissa.tolist()), repr([m for m, _ in wanted]))
            self.assertEqual(exponent.tolist(), [e for _, e in wanted])
        ends = [1.0, 2.0, 0.0, -1.0, INF, -0.0, 5e-324, 1.7976931348623157e308, -3.0] * 5
        for towards in (-INF, -1.0, 0.0, 2.5, INF):
            got = phlox.nextafter(phlox.tensor(ends, dtype=phlox.float64), phlox.tensor(towards, dtype=phlox.float64))
            self.assertEqual(repr(got.tolist()), repr([math.nextafter(v, towards) for v in ends]))
        self.assertTrue(phlox.nextafter(phlox.tensor([NAN, 1.0], dtype=phlox.float64), phlox.tensor([1.0, NAN], dtype=phlox.float64)).isnan().all())

    def test_bessel_float32_matches_float64(self):
        x = phlox.tensor([8.0, -8.0, 7.9999995, 0.0, 1e-30, 85.0, -20.5, INF, NAN, -INF, 1e30] + [k * 0.11 - 12 for k in range(301)])
        for name in "i0", "i0e", "i1", "i1e":
            wanted = getattr(phlox.special, name)(x.double()).float()
            self.assertTrue(phlox.allclose(getattr(phlox.special, name)(x), wanted, rtol=4e-7, atol=0, equal_nan=True), name)

    def test_ndtr_matches_erfc(self):
        x = phlox.linspace(-30, 9, 1001, dtype=phlox.float64)
        wanted = phlox.tensor([0.5 * math.erfc(-v * math.sqrt(0.5)) for v in x.tolist()], dtype=phlox.float64)
        self.assertTrue(phlox.allclose(phlox.special.ndtr(x), wanted, rtol=1e-13, atol=0))
        self.assertTrue(phlox.allclose(phlox.special.ndtr(x.float()[-500:]), wanted.float()[-500:], rtol=3e-5, atol=0))
        self.assertEqual(phlox.special.ndtr(phlox.tensor([-INF, INF])).tolist(), [0, 1])

    def test_signbit_isinf_fmax_and_nextafter(self):
        x = phlox.tensor([-0.0, 0.0, -INF, INF, NAN, -2.0])
        self.assertEqual(phlox.signbit(x).tolist(), [True, False, True, False, False, True])
        self.assertEqual(phlox.isposinf(x).tolist(), [False, False, False, True, False, False])
        self.assertEqual(phlox.isneginf(x).tolist(), [False, False, True, False, False, False])
        self.assertEqual(phlox.fmax(x, phlox.ones(6)).tolist(), [1, 1, 1, INF, 1, 1])
        self.assertEqual(phlox.fmin(x, phlox.ones(6)).tolist(), [0, 0, -INF, 1, 1, -2])
        self.assertEqual(phlox.heaviside(x, phlox.tensor([7.0])).tolist(), [7, 7, 0, 1, 0, 0])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                self.assertEqual(phlox.where(phlox.tensor([0, 2, 1], dtype=phlox.uint8), phlox.tensor([1., 2., 3.]), 7.).tolist(), [7, 2, 3])
        self.assertLessEqual([str(w.message)[:41] for w in caught], ["where received a uint8 condition tensor. "])
        lookup = phlox.ones(2, requires_grad=True)
        phlox.where(phlox.tensor([0, 1], dtype=phlox.uint8), lookup, 2 * lookup).sum().backward()
        self.assertEqual(lookup.grad.tolist(), [2, 1])
        self.assertEqual(phlox.gcd(phlox.tensor([12, -8, 0]), phlox.tensor([18, 0, 0])).tolist(), [6, 8, 0])
        self.assertEqual(phlox.lcm(phlox.tensor([12, -8, 0]), phlox.tensor([18, 6, 0])).tolist(), [36, 24, 0])
        near = phlox.tensor([0., 1., 2., -1., INF, -0., NAN, 3., -1.])
        for dtype, least, step, most in (phlox.float16, 2**-24, 2**-10, 65504.), (phlox.bfloat16, 2**-133, 2**-7, (2 - 2**-7) * 2**127):
            a, b = near.to(dtype), phlox.tensor([1., 2., 0., 5., 0., -1., 1., 3., -INF]).to(dtype)
            wanted = [least, 1 + step, 2 - step, step / 2 - 1, most, -least, NAN, 3, -1 - step]
            for device in ("cpu", "cuda") if phlox.cuda.is_available() else ("cpu",):
                got = phlox.nextafter(a.to(device), b.to(device)).cpu()
                self.assertEqual(got.dtype, dtype)
                self.assertTrue(phlox.equal(got.nan_to_num(9.), phlox.tensor(wanted, dtype=dtype).nan_to_num(9.)), got)
            back = phlox.nextafter(phlox.tensor(-least, dtype=dtype), phlox.tensor(1., dtype=dtype))
            self.assertTrue(back == 0 and back.signbit())
            self.assertEqual(a[:2].clone().nextafter_(b[1]).tolist(), [least, 1 + step])
            self.assertEqual(phlox.nextafter(a[:2, None], b[:2]).shape, (2, 2))
            self.assertEqual(phlox.nextafter(a[:3], phlox.tensor(1.0001)).tolist(), [least, 1, 2 - step])  # the scalar is first rounded to half precision
        self.assertEqual(phlox.gcd(phlox.tensor([-128], dtype=phlox.int8), phlox.tensor([-1], dtype=phlox.int8)).tolist(), [1])


class RandomNumbers(unittest.TestCase):
    CASES = [("geometric_", (0.3,), 1 / 0.3, 0.7 / 0.09), ("log_normal_", (0.5, 0.2), math.exp(0.52), (math.exp(0.04) - 1) * math.exp(1.04))]

    def check_moments(self, x, mean, variance, what):
        x = x.double()
        self.assertLess(abs(x.mean().item() - mean), 5 * (variance / x.numel()) ** 0.5 + 1e-12, what)
        self.assertLess(abs(x.var().item() - variance), 0.1 * variance + 1e-12, what)

    def test_moments(self):
        n = 40000
        for device in DEVICES:
            phlox.manual_seed(5)
            full = lambda value: phlox.full((n,), value, device=device)
            for name, arguments, mean, variance in self.CASES:
                self.check_moments(getattr(full(0.0), name)(*arguments), mean, variance, (name, device))
            for rate in 0.0, 0.7, 9.5, 12.0, 3000.0:
                self.check_moments(phlox.poisson(full(rate)), rate, rate, ("poisson", rate, device))
            for shape in 0.3, 1.0, 4.0, 100.0:
                self.check_moments(phlox._standard_gamma(full(shape)), shape, shape, ("gamma", shape, device))
            for count, p in (5.0, 0.3), (5.0, 0.9), (200.0, 0.4), (3000.0, 0.7), (4.0, 1.0), (4.0, 0.0), (0.0, 0.5):
                self.check_moments(phlox.binomial(full(count), full(p)), count * p, count * p * (1 - p), ("binomial", count, p, device))
            cauchy = full(0.0).cauchy_(1.0, 2.0)
            self.assertLess(abs(cauchy.median().item() - 1), 0.06)
            self.assertLess(abs((cauchy < 3).float().mean().item() - 0.75), 0.02)
            shares = phlox._sample_dirichlet(phlox.tensor([1.0, 2.0, 5.0], device=device).expand(n, 3))
            self.assertTrue(phlox.allclose(shares.sum(-1), phlox.ones(n, device=device)))
            self.assertTrue(phlox.allclose(shares.mean(0).cpu(), phlox.tensor([0.125, 0.25, 0.625]), atol=0.01))

    def test_seeds(self):
        for device, (name, call) in itertools.product(DEVICES, {
                "poisson": lambda x: phlox.poisson(x * 7), "gamma": phlox._standard_gamma, "geometric": lambda x: x.clone().geometric_(0.01),
                "binomial": lambda x: phlox.binomial(x * 100, x * 0.5)}.items()):
            x, found = phlox.ones(1000, device=device), []
            for seed in 3, None, 3:
                if seed:
                    phlox.manual_seed(seed)
                found.append(call(x))
            self.assertTrue(phlox.equal(found[0], found[2]), name)
            # Also not equal under a shift.
            self.assertLess(max((found[0][:900] == found[1][k:900 + k]).float().mean().item() for k in range(8)), 0.6, name)

    def test_gamma_gradient_follows_quantile(self):
        for shape in 0.05, 0.7, 1.0, 9.0, 300.0, 2e5:
            a = phlox.full((200,), shape, dtype=phlox.float64, requires_grad=True)
            phlox.manual_seed(1)
            draws = phlox._standard_gamma(a)
            draws.sum().backward()
            x, h = draws.detach(), 1e-4 * min(shape, shape ** 0.5)
            above, below = (phlox.igamma(a.detach() + s, x) for s in (h, -h))
            density = phlox.exp((a.detach() - 1) * x.log() - x - phlox.lgamma(a.detach()))
            self.assertTrue(phlox.allclose(a.grad, (below - above) / (2 * h) / density, rtol=2e-3, atol=1e-7), shape)

    def test_errors(self):
        for call, kind, text in (
                (lambda: phlox.empty(3).geometric_(1.0), RuntimeError, r"geometric_ expects p to be in \(0, 1\), but got p=1"),
                (lambda: phlox.empty(3).cauchy_(1, -1), RuntimeError, "cauchy_ expects sigma > 0.0, but found sigma=-1"),
                (lambda: phlox.empty(3).log_normal_(1, -1), RuntimeError, "log_normal_ expects std > 0.0, but found std=-1"),
                (lambda: phlox.poisson(phlox.tensor([1])), NotImplementedError, "\"poisson_cpu\" not implemented for 'Long'"),
                (lambda: phlox.binomial(phlox.tensor([1]), phlox.tensor([.5])), ValueError, "binomial only supports floating-point dtypes for count")):
            with self.assertRaisesRegex(kind, text):
                call()
        for device in DEVICES:
            with self.assertRaisesRegex(RuntimeError, "invalid Poisson rate, expected rate to be non-negative"):
                phlox.poisson(phlox.tensor([1.0, -1.0], device=device)).sum().item()


UNARY = ("lgamma special.digamma erfinv special.erfcx special.ndtr special.log_ndtr special.ndtri i0 special.i0e special.i1 special.i1e logit "
         "special.entr sinc deg2rad rad2deg signbit isposinf isneginf isreal positive special.expit").split()
BINARY = "special.xlog1py special.zeta igamma igammac logaddexp2 copysign fmax fmin heaviside".split()


@unittest.skipIf(torch is None, peer.NOT_NEWEST)
class ComparedWithPyTorch(unittest.TestCase):
    def grid(self, library, dtype):
        steps = [s * m for s in (1, -1) for m in (0.0, 5e-324, 1e-300, 1e-40, 1e-10, 0.1, 0.3, 0.5, 0.77, 0.999, 1.0, 1.5, 2.0, 3.3, 7.9, 8.1, 20.5, 88.0, INF)]
        return library.tensor(steps + [NAN], dtype=getattr(library, dtype))

    def same(self, ours, theirs, what, share):
        ours, theirs = ours.detach(), theirs.detach()
        self.assertEqual(str(ours.dtype)[6:], str(theirs.dtype)[6:], what)
        for a, b in zip(ours.double().reshape(-1).tolist(), theirs.double().reshape(-1).tolist()):
            self.assertTrue(near(float(a), float(b), share, 1e-30 if "64" in str(theirs.dtype) else 2e-38), (what, a, b))

    def each(self, paths, count):
        for path, dtype in itertools.product(paths, ("float64", "float32")):
            results = []
            for library in phlox, torch:
                x = [self.grid(library, dtype)]
                if count == 2:
                    x = [v.reshape(-1).clone() for v in library.meshgrid(x[0], x[0], indexing="ij")]
                y = lookup(library, path)(*x)
                results.append(y)
            inputs = [v.tolist() for v in x]
            for k, (a, b) in enumerate(zip(results[0].double().tolist(), results[1].double().tolist())):
                at = tuple(v[k] for v in inputs)
                self.assertTrue(path in BETTER and BETTER[path](*at) or near(a, b, 1e-5, 1e-6), (path, dtype, at, a, b))
            self.assertEqual(str(results[0].dtype)[6:], str(results[1].dtype)[6:], path)

    def test_unary_functions(self):
        self.each(UNARY, 1)

    def test_binary_functions(self):
        self.each(BINARY, 2)

    def test_polygamma(self):
        for n in range(5):
            x = [0.1, 0.5, 1.5, 4.0, 30.0, -0.5, -2.3]
            self.same(phlox.polygamma(n, phlox.tensor(x, dtype=phlox.float64)), torch.polygamma(n, torch.tensor(x, dtype=torch.float64)), n, 1e-8)

    def test_gradients(self):
        for path in UNARY[:15]:
            grads = []
            for library in phlox, torch:
                x = library.tensor([0.2, 0.7, 0.9], dtype=library.float64, requires_grad=True)
                lookup(library, path)(x).sum().backward()
                grads.append(x.grad)
            self.same(*grads, path, 1e-8)

    def test_samples_of_same_seed(self):
        for name, call in {
                "geometric": lambda t, x: x.geometric_(0.3), "cauchy": lambda t, x: x.cauchy_(1, 2), "log_normal": lambda t, x: x.log_normal_(0.5, 0.2),
                "gamma": lambda t, x: t._standard_gamma(x + 0.3), "large gamma": lambda t, x: t._standard_gamma(x + 30),
                "poisson": lambda t, x: t.poisson(x + 3), "large poisson": lambda t, x: t.poisson(x + 300),
                "binomial": lambda t, x: t.binomial(x + 5, x + 0.7), "large binomial": lambda t, x: t.binomial(x + 500, x + 0.3),
                "dirichlet": lambda t, x: t._sample_dirichlet(x.reshape(-1, 4) + 0.5)}.items():
            for dtype in "float64", "float32":
                draws = []
                for library in phlox, torch:
                    library.manual_seed(11)
                    draws.append(call(library, library.zeros(200, dtype=getattr(library, dtype))))
                self.same(*draws, name, 1e-12 if dtype == "float64" else 2e-6)


# Functions for which PyTorch is wrong or less exact.
BETTER = {"i0": math.isinf, "special.i1": math.isinf, "special.zeta": lambda x, q: not math.isfinite(x) or math.isinf(q),
          "igamma": lambda a, x: a < 1e-30 or a != a or x != x, "igammac": lambda a, x: a < 1e-30 or math.isnan(a) or math.isnan(x)}

if __name__ == "__main__":
    unittest.main()
