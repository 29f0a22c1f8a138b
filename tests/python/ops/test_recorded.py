# SPDX-License-Identifier: Apache-2.0
"""Behaviour measured with PyTorch 2.15. The table tests/parity/recorded.txt has strides of results and random streams; the cases in
tests/parity/recorded_differences.txt differ. The other tests state single facts: operands multiplied by zero, ranges written to views, gradients of repeated indices, numbers out of range,
mixed dtypes of normalization, views of tensors that require grad later, and random streams."""
import math
import os
import sys
import unittest
import warnings

import phlox as torch
from phlox.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

PARITY = os.path.join(os.path.dirname(__file__), "..", "..", "parity")
sys.path.insert(0, PARITY)
import recorded

F = torch.nn.functional
NAN = math.nan


class Table(unittest.TestCase):
    def lines(self, name):
        with open(os.path.join(PARITY, name)) as file:
            return [line.rstrip("\n") for line in file if not line.startswith("#")]

    def test_strides_and_random_streams_match_pytorch(self):
        want = dict(line.split(" -> ") for line in self.lines("recorded.txt"))
        with warnings.catch_warnings():
            have = dict(recorded.cases(torch))
        self.assertEqual(list(have), list(want))
        self.assertEqual([key for key in want if have[key] != want[key]], self.lines("recorded_differences.txt"))


class RangesIntoViews(unittest.TestCase):
    def ranges(self):
        zero, three = torch.tensor(0.), torch.tensor(3.)
        yield "arange", lambda out: torch.arange(0, 4, out=out)
        for name in "linspace", "logspace":
            for a, b in (0, 3), (zero, three), (0, three), (zero, 3):
                yield f"{name} {a} {b}", lambda out, a=a, b=b, f=getattr(torch, name): f(a, b, 4, out=out)

    def test_ranges_keep_the_shape_of_out_with_as_many_elements(self):
        for name, run in self.ranges():
            with self.subTest(op=name):
                want = run(torch.empty(0)).tolist()
                x = torch.full((2, 3), 9.)
                run(x[:, 1:])
                self.assertEqual(x.tolist(), [[9, *want[:2]], [9, *want[2:]]])

    def test_complex_ranges_keep_the_shape_of_out(self):
        for name in "linspace", "logspace":
            x = torch.full((2, 3), 9., dtype=torch.complex64)
            getattr(torch, name)(0, 3, 4, out=x[:, 1:])
            self.assertEqual(x[:, 0].tolist(), [9, 9])

    def test_randint_and_randperm_write_to_out(self):
        for make in (lambda **k: torch.randint(0, 9, (4,), **k), lambda **k: torch.randint(9, (4,), **k), lambda **k: torch.randperm(4, **k)):
            torch.manual_seed(3)
            want = make().tolist()
            x = torch.zeros(4, 2)
            torch.manual_seed(3)
            make(out=x[:, 1])
            self.assertEqual(x.tolist(), [[0, v] for v in want])


class FactorsOfZero(unittest.TestCase):
    """beta and alpha of 0: the operand is not read, except where PyTorch reads it."""

    def calls(self, dtype, value):
        def full(*size):
            return torch.full(size, value, dtype=dtype)
        return {"addmm": (torch.addmm, full(2, 2), full(2, 2), full(2, 2)), "addmv": (torch.addmv, full(2), full(2, 2), full(2)),
                "addbmm": (torch.addbmm, full(2, 2), full(2, 2, 2), full(2, 2, 2)), "baddbmm": (torch.baddbmm, full(2, 2, 2), full(2, 2, 2), full(2, 2, 2)),
                "addr": (torch.addr, full(2, 2), full(2), full(2))}

    def test_a_beta_of_zero_ignores_nan_with_real_and_complex_alpha(self):
        for dtype, alphas in ((torch.float32, (2,)), (torch.float64, (2,)), (torch.bfloat16, (2,)), (torch.complex64, (2, 2j))):
            for name, (f, s, a, b) in self.calls(dtype, NAN).items():
                for alpha in alphas:
                    with self.subTest(op=name, dtype=dtype, alpha=alpha):
                        a, b = torch.ones_like(a), torch.ones_like(b)
                        want = alpha * f(torch.zeros_like(s), a, b)
                        self.assertEqual(f(s, a, b, beta=0, alpha=alpha).tolist(), want.tolist())

    def test_an_alpha_of_zero_ignores_nan_in_matrix_products(self):
        ignores = {"addmm": (torch.float32, torch.float64, torch.complex64), "addmv": (torch.float32, torch.float64), "addbmm": (torch.float32, torch.float64, torch.complex64)}
        for dtype in torch.float32, torch.float64, torch.complex64:
            for name, (f, s, a, b) in self.calls(dtype, NAN).items():
                with self.subTest(op=name, dtype=dtype):
                    total = f(torch.ones_like(s), a, b, beta=3, alpha=0).flatten()[0].item()
                    self.assertEqual(total == 3, dtype in ignores.get(name, ()))

    def test_addmv_with_an_alpha_of_zero_has_gradients(self):
        s, m, v = (torch.ones(n).requires_grad_() for n in ((2,), (2, 3), (3,)))
        torch.addmv(s, m, v, alpha=0).sum().backward()
        self.assertEqual((s.grad.tolist(), m.grad.tolist(), v.grad.tolist()), ([1, 1], [[0] * 3] * 2, [0] * 3))


class IndexedGradients(unittest.TestCase):
    def test_a_repeated_index_counts_once_in_the_gradient_of_index_fills_value(self):
        for index, count in ([0, 0, 2], 8), ([1, -2, 1], 4), ([], 0):
            value = torch.tensor(2., requires_grad=True)
            torch.zeros(3, 4).index_fill(0, torch.tensor(index, dtype=torch.int64), value).sum().backward()
            self.assertEqual(value.grad.item(), count)

    def test_index_fill_takes_negative_indices(self):
        self.assertEqual(torch.zeros(3).index_fill(0, torch.tensor([-1]), 1.).tolist(), [0, 0, 1])
        self.assertEqual(torch.zeros(3).index_fill_(0, torch.tensor([-3]), torch.tensor(1.)).tolist(), [1, 0, 0])

    def test_as_strided_scatter_counts_from_the_storage_and_has_gradients_of_its_cells(self):
        weights = torch.arange(1., 11)
        for view in False, True:
            x = (torch.zeros(12)[2:] if view else torch.zeros(10)).requires_grad_()
            part = torch.ones(2, 2, requires_grad=True)
            result = torch.as_strided_scatter(x, part, (2, 2), (3, 1), 3)
            cells = [k for k, v in enumerate(result.tolist()) if v]
            self.assertEqual(cells, [1, 2, 4, 5] if view else [3, 4, 6, 7])
            (result * weights).sum().backward()
            self.assertEqual(part.grad.flatten().tolist(), [k + 1 for k in cells])
            self.assertEqual(x.grad.tolist(), [0 if k in cells else k + 1 for k in range(10)])

    def test_as_strided_scatter_of_a_transposed_tensor_has_gradients_of_its_cells(self):
        x = torch.zeros(4, 3).t().requires_grad_()
        part = torch.ones(2, 2, requires_grad=True)
        result = torch.as_strided_scatter(x, part, (2, 2), (3, 1), 3)
        result.sum().backward()
        self.assertEqual((result + x.grad).tolist(), torch.ones(3, 4).tolist())
        self.assertEqual(part.grad.tolist(), [[1, 1], [1, 1]])


class NumbersOutOfRange(unittest.TestCase):
    def fills(self, dtype):
        def assign(x, v):
            x[0] = v
            return x
        yield "full", lambda v: torch.full((1,), v, dtype=dtype)
        yield "full_like", lambda v: torch.full_like(torch.zeros(1, dtype=dtype), v)
        yield "new_full", lambda v: torch.zeros(1, dtype=dtype).new_full((1,), v)
        yield "fill_", lambda v: torch.zeros(1, dtype=dtype).fill_(v)
        yield "fill", lambda v: torch.fill(torch.zeros(1, dtype=dtype), v)
        yield "assignment", lambda v: assign(torch.zeros(1, dtype=dtype), v)
        yield "constant_", lambda v: torch.nn.init.constant_(torch.zeros(1, dtype=dtype), v)

    def test_fills_of_one_element_of_16_and_8_bits_overflow_to_infinity_or_the_maximum(self):
        for dtype, most in ((torch.half, math.inf), (torch.bfloat16, math.inf), (torch.float8_e5m2, math.inf), (torch.float8_e4m3fn, 448)):
            for name, fill in self.fills(dtype):
                with self.subTest(op=name, dtype=dtype):
                    self.assertEqual([fill(1e39).float().item(), fill(-1e39).float().item()], [most, -most])

    def test_fills_of_other_dtypes_and_selections_refuse_numbers_out_of_range(self):
        one, zeros = torch.tensor([0]), torch.zeros(1, 1, dtype=torch.half)
        fails = [lambda: torch.full((1,), 1e39), lambda: torch.full((2,), 1e6, dtype=torch.half), lambda: torch.zeros(2).half().fill_(1e6), lambda: torch.zeros(1).fill_(1e39), lambda: torch.full((1,), 300, dtype=torch.uint8),
                 lambda: zeros.masked_fill(zeros == 0, 1e6), lambda: zeros.index_fill(0, one, 1e6), lambda: zeros.scatter(0, one[None], 1e6),
                 lambda: zeros.repeat(2, 2).fill_diagonal_(1e6), lambda: F.pad(zeros, (1, 0), value=1e6)]
        for fail in fails:
            self.assertRaisesRegex(RuntimeError, "value cannot be converted to type .* without overflow", fail)


class NumbersOfOps(unittest.TestCase):
    """Numbers that do not fit the dtype of the computation are refused, and those of 16-bit dtypes that are computed in float32 if they do not fit that."""

    def calls(self, u):
        ones, batch, i = torch.ones(2, 2, dtype=u.dtype), torch.ones(1, 2, 2, dtype=u.dtype), torch.tensor([0])
        return {"add": lambda v: torch.add(u, u, alpha=v), "sub": lambda v: torch.sub(u, u, alpha=v), "rsub": lambda v: torch.rsub(u, u, alpha=v),
                "addcmul": lambda v: torch.addcmul(u, u, u, value=v), "pow": lambda v: u ** v, "where": lambda v: torch.where(u == 1, u, v),
                "where of a number": lambda v: torch.where(u == 1, v, u), "threshold": lambda v: F.threshold(u, 9, v), "pad": lambda v: F.pad(u, (1, 0), value=v),
                "addr": lambda v: torch.addr(ones, u, u, alpha=v), "addr beta": lambda v: torch.addr(ones, u, u, beta=v),
                "addmm": lambda v: torch.addmm(ones, ones, ones, alpha=v), "addmm beta": lambda v: torch.addmm(ones, ones, ones, beta=v),
                "addmv": lambda v: torch.addmv(u, ones, u, alpha=v), "baddbmm": lambda v: torch.baddbmm(batch, batch, batch, alpha=v),
                "addbmm": lambda v: torch.addbmm(ones, batch, batch, alpha=v), "index_add": lambda v: u.index_add(0, i, u[:1], alpha=v),
                "linspace": lambda v: torch.linspace(0, v, 3, dtype=u.dtype), "logspace": lambda v: torch.logspace(0, v, 3, dtype=u.dtype),
                "hardshrink": lambda v: F.hardshrink(u, v), "leaky_relu": lambda v: F.leaky_relu(u, v), "elu": lambda v: F.elu(u, v),
                "softplus": lambda v: F.softplus(u, v), "lerp": lambda v: torch.lerp(u, u, v), "clamp": lambda v: u.clamp(0, v), "hardtanh": lambda v: F.hardtanh(u, 0, v)}

    def refused(self, dtype, value):
        found = set()
        for name, call in self.calls(torch.tensor([1, 2]).to(dtype)).items():
            try:
                call(value)
            except RuntimeError as error:
                if "without overflow" in str(error):
                    found.add(name)
        return found

    def test_numbers_out_of_range_are_refused(self):
        every = set(self.calls(torch.ones(2)))
        of_floats = {"hardshrink", "leaky_relu", "elu", "softplus", "lerp"}
        limited = {"clamp", "hardtanh"}  # of integers: limits of the dtype
        for dtype in torch.uint8, torch.int8, torch.int32:
            self.assertEqual(self.refused(dtype, 2**40), every - of_floats - limited)
        self.assertEqual(self.refused(torch.float32, 1e39), every - {"pow"})
        wide = {"addcmul", "addmm", "addmm beta", "baddbmm", "addbmm", "leaky_relu", "elu", "softplus", "lerp"}
        self.assertEqual(self.refused(torch.half, 1e6), every - wide - {"pow", "where", "where of a number"})
        self.assertLessEqual(wide, self.refused(torch.half, 1e39))

    def test_negative_numbers_wrap_in_unsigned_dtypes_but_in_pad(self):
        u = torch.tensor([1, 200], dtype=torch.uint8)
        self.assertEqual(torch.add(u, u, alpha=-1).tolist(), [0, 0])
        self.assertEqual(torch.where(u > 5, u, -1).tolist(), [255, 200])
        self.assertEqual((300 ** u).tolist(), [44, 0])
        self.assertRaisesRegex(RuntimeError, "uint8_t without overflow", F.pad, u, (1, 1), value=-1)

    def test_ops_without_integers(self):
        u, b = torch.tensor([1, 2], dtype=torch.uint8), torch.ones(3, dtype=torch.bool)
        for text, call in ('"hardshrink_cpu" not implemented for .Byte.', lambda: F.hardshrink(u)), ('"glu_cpu" not implemented', lambda: F.glu(u)), \
                          ('"arange_cpu" not implemented for .Bool.', lambda: torch.arange(2, dtype=torch.bool)), \
                          ('"linspace_cpu" not implemented for .Bool.', lambda: torch.linspace(0, 1, 3, out=b)), \
                          ("expected common dtype to be floating point, yet common dtype is Byte", lambda: F.cosine_similarity(u, u, 0)):
            self.assertRaisesRegex((NotImplementedError, RuntimeError), text, call)

    def test_lerp_takes_no_mixed_dtypes_but_weights_of_one_element(self):
        f, d = torch.ones(2), torch.ones(2).double()
        self.assertRaisesRegex(RuntimeError, "expected dtype double for `end` but got dtype float", torch.lerp, d, f, 1)
        self.assertRaisesRegex(RuntimeError, "expected dtype float for `weight` but got dtype double", torch.lerp, f, f, d)
        self.assertEqual(torch.lerp(f, f, torch.tensor(1.).double()).dtype, torch.float32)


class MixedNormalization(unittest.TestCase):
    def test_group_norm_of_16_bits_with_float32_parameters_keeps_the_dtype_of_the_input(self):
        for dtype in torch.bfloat16, torch.half:
            x = torch.arange(24.).reshape(2, 4, 3).to(dtype).requires_grad_()
            for weight, bias in ((torch.ones(4), torch.zeros(4)), (torch.ones(4), None), (None, torch.zeros(4))):
                self.assertEqual(F.group_norm(x, 2, weight, bias).dtype, dtype)
            layer = torch.nn.GroupNorm(2, 4)
            result = layer(x)
            result.sum().backward()
            self.assertEqual([t.dtype for t in (result, x.grad, layer.weight.grad)], [dtype, dtype, torch.float32])
            want = F.group_norm(x.float(), 2, layer.weight, layer.bias).to(dtype)
            self.assertTrue(torch.equal(result, want))

    def test_group_norm_of_float32_refuses_parameters_of_16_bits(self):
        half = torch.ones(4, dtype=torch.half)
        with self.assertRaisesRegex(RuntimeError, "mixed dtype .CPU.: expect parameter to have scalar type of Float"):
            F.group_norm(torch.ones(2, 4, 3), 2, half, half)


class MatrixExponentials(unittest.TestCase):
    def test_float32_exponentials_are_accurate_for_large_norms(self):
        torch.manual_seed(0)
        for size in 3, 8, 20:
            for scale in 0.1, 1, 4, 10:
                a = torch.randn(size, size) * scale
                want = torch.linalg.matrix_exp(a.double())
                error = (torch.linalg.matrix_exp(a).double() - want).abs().max() / want.abs().max()
                self.assertLess(error.item(), 1e-7)


class ViewsOfLaterLeaves(unittest.TestCase):
    MESSAGE = "a view of a leaf Variable that requires grad is being used in an in-place operation"

    def test_changes_of_views_fail_after_the_base_requires_grad(self):
        for view in (lambda a: a[:1], lambda a: a.view(3), lambda a: a[None]):
            for change in (lambda b: b.mul_(2), lambda b: b.fill_(1), lambda b: b.add_(torch.ones(1, requires_grad=True))):
                a = torch.zeros(3)
                b = view(a)
                a.requires_grad_()
                self.assertRaisesRegex(RuntimeError, self.MESSAGE, change, b)
                self.assertTrue(a.is_leaf)

    def test_other_views_of_the_memory_can_be_changed(self):
        a = torch.zeros(3)
        views = [a.detach(), a.data, a.data[:1], a.view(torch.int32)]
        a.requires_grad_()
        for b in views:
            b.add_(1)
        with torch.no_grad():
            a[:1].mul_(2)
        self.assertTrue(a.is_leaf)


class RandomStreams(unittest.TestCase):
    def test_ranges_of_28_bits_and_more_draw_64_bits(self):
        def after(high):
            torch.manual_seed(7)
            return torch.randint(0, high, (1,)).item(), torch.rand(1).item()
        self.assertEqual(after(2**31 - 1)[0], 1631897122)
        self.assertEqual(after(2**28)[1], after(2**40)[1])
        self.assertNotEqual(after(2**28 - 1)[1], after(2**28)[1])

    def test_integers_of_floating_point_dtypes_are_below_the_bound(self):
        for dtype, high, range_ in ((torch.bfloat16, 1000, 996), (torch.half, 5000, 4996), (torch.float32, 2**24 + 2, 2**24 + 2)):
            torch.manual_seed(7)
            have = torch.randint(0, high, (2000,), dtype=dtype)
            self.assertLess(have.max().item(), high)
            if range_ != high:
                torch.manual_seed(7)
                self.assertTrue(torch.equal(have, torch.randint(0, range_, (2000,)).to(dtype)))

    def test_samplers_draw_at_the_first_index(self):
        weights = [1.] * 8
        made = [lambda g: RandomSampler(range(8), generator=g), lambda g: RandomSampler(range(8), replacement=True, generator=g),
                lambda g: SubsetRandomSampler(range(8), generator=g), lambda g: WeightedRandomSampler(weights, 8, generator=g),
                lambda g: BatchSampler(RandomSampler(range(8), generator=g), 2, False)]
        for make in made:
            for generator in None, torch.Generator().manual_seed(1):
                source = generator or torch.default_generator
                before = source.get_state()
                indices = iter(make(generator))
                self.assertTrue(torch.equal(before, source.get_state()))
                next(indices)
                self.assertFalse(torch.equal(before, source.get_state()))


if __name__ == "__main__":
    unittest.main()
