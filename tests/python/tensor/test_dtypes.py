# SPDX-License-Identifier: Apache-2.0
"""Dtypes with few kernels: uint16 to uint64, float8, and complex numbers (see also test_complex.py). On the CPU and on a simulated
device."""
import copy
import io
import math
import pickle
import unittest

import phlox as torch

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
          torch.float8_e8m0fnu]
STORED = UNSIGNED + COMPLEX + FLOAT8
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


class StorageDtypes(unittest.TestCase):
    """Operations supported for each dtype on each device."""

    def each(self):
        return [(dtype, device) for device in DEVICES for dtype in STORED]

    def test_factories(self):
        for dtype, device in self.each():
            made = [torch.zeros(2, dtype=dtype, device=device), torch.ones(2, dtype=dtype, device=device),
                    torch.full((2,), 2, dtype=dtype, device=device),
                    torch.tensor([1, 2], dtype=dtype, device=device)]
            zero = made[0].cpu().tolist()[0] if dtype == torch.float8_e8m0fnu else 0
            self.assertEqual([t.tolist() for t in made], [[zero, zero], [1, 1], [2, 2], [1, 2]])
            self.assertTrue(all(t.dtype == dtype for t in made))
            self.assertEqual(torch.empty(3, dtype=dtype, device=device).element_size(), dtype.itemsize)

    def test_conversions(self):
        others = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                  torch.float16, torch.bfloat16, torch.float32, torch.float64]
        for dtype, device in self.each():
            x = torch.tensor([1, 2, 4], device=device).to(dtype)
            for other in others + STORED:
                y = x.to(other)
                self.assertEqual(y.tolist(), [1, 1, 1] if other == torch.bool else [1, 2, 4])
                self.assertEqual(y.to(dtype).dtype, dtype)
                strided = torch.zeros(3, 2, device=device).to(other)
                strided[:, 0] = x
                self.assertEqual(strided[:, 0].tolist(), y.tolist())

    def test_layout_ops_and_moves(self):
        for dtype, device in self.each():
            x = torch.tensor([[1, 2, 4], [8, 16, 32]], device=device).to(dtype)
            self.assertEqual(x.t().contiguous().tolist(), [[1, 8], [2, 16], [4, 32]])
            self.assertEqual(x[:, 1].clone().tolist(), [2, 16])
            self.assertEqual(x[1, ::2].tolist(), [8, 32])
            self.assertEqual(torch.cat([x, x], 1).shape, (2, 6))
            self.assertEqual(torch.stack([x[0], x[1]]).tolist(), x.tolist())
            self.assertEqual(x[torch.tensor([1, 0], device=device)].tolist(), [[8, 16, 32], [1, 2, 4]])
            self.assertEqual(x.flip(0).tolist(), [[8, 16, 32], [1, 2, 4]])
            self.assertEqual(torch.ones(40, 50, device=device).to(dtype).t().clone().tolist(), [[1] * 40] * 50)

    def test_comparisons(self):
        for dtype, device in self.each():
            x = torch.tensor([1, 2], device=device).to(dtype)
            y = torch.tensor([1, 4], device=device).to(dtype)
            self.assertTrue(torch.equal(x, x.clone()))
            self.assertFalse(torch.equal(x, y))
            self.assertEqual((x == y).tolist(), [True, False])
            self.assertEqual((x != 2).tolist(), [True, False])

    def test_view_as_bytes(self):
        for dtype, device in self.each():
            x = torch.tensor([1, 2], device=device).to(dtype)
            bits = x.view(torch.uint8)
            self.assertEqual(bits.shape, (2 * dtype.itemsize,))
            self.assertTrue(torch.equal(bits.view(dtype), x))
            bits.zero_()
            self.assertTrue(torch.equal(x, torch.zeros(2, dtype=dtype, device=device)))

    def test_files_and_pickles(self):
        for dtype, device in self.each():
            x = torch.tensor([1, 2, 4], device=device).to(dtype)
            for again in saved(x), saved({"a": x[1:]})["a"], pickle.loads(pickle.dumps(x)), copy.deepcopy(x):
                self.assertEqual((again.dtype, again.device), (x.dtype, x.device))
                self.assertEqual(again.tolist()[-1], 4)

    def test_unsupported_ops_raise_and_change_nothing(self):
        for dtype, device in self.each():
            if dtype in (torch.complex64, torch.complex128):
                continue
            x = torch.tensor([1, 2], device=device).to(dtype)
            name = torch._C._dtype_class(dtype)
            calls = [lambda: torch.sum(x), lambda: torch.nn.functional.relu_(x)] if dtype not in UNSIGNED else []
            if not dtype.is_complex:
                calls += [lambda: x.sort()] if dtype not in UNSIGNED else []
                calls += [lambda: x.add_(1), lambda: x.cummax(0), lambda: x.masked_fill_(x.view(torch.uint8)[:2] == 0, 1)]
            if not dtype.is_complex and dtype not in UNSIGNED:
                calls += [lambda: x.mul_(x), lambda: torch.where(x.bool(), x, x)]
            for call in calls:
                with self.assertRaisesRegex(NotImplementedError, f"not implemented for '{name}'"):
                    call()
            self.assertEqual(x.tolist(), [1, 2])

    def test_dlpack(self):
        for dtype, device in self.each():
            x = torch.tensor([1, 2], device=device).to(dtype)
            self.assertTrue(torch.equal(torch.from_dlpack(x), x))


class Unsigned(unittest.TestCase):
    def test_values_beyond_int64(self):
        x = torch.tensor([2**64 - 1, 2**63], dtype=torch.uint64)
        self.assertEqual((x.tolist(), x[0].item(), int(x[1])), ([2**64 - 1, 2**63], 2**64 - 1, 2**63))
        self.assertEqual(str(x), "tensor([18446744073709551615,  9223372036854775808], dtype=torch.uint64)")
        self.assertEqual(x.to(torch.float64).tolist(), [2.0**64, 2.0**63])
        self.assertEqual(x.to(torch.float32).to(torch.uint64).tolist()[1], 2**63)
        self.assertEqual(x.to(torch.int64).tolist(), [-1, -2**63])

    def test_out_of_range_values(self):
        with self.assertRaisesRegex(RuntimeError, "cannot be converted to type uint16 without overflow"):
            torch.tensor([70000], dtype=torch.uint16)
        with self.assertRaises(OverflowError):
            torch.tensor([-1], dtype=torch.uint64)

    def test_mul_where_and_bitwise_ops(self):
        for dtype in UNSIGNED:
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                most = torch.iinfo(dtype).max
                x, y = torch.tensor([[most, 6], [5, 0]], dtype=dtype, device=device), torch.tensor([3, 2], dtype=dtype, device=device)
                self.assertEqual((x * y).tolist(), [[most - 2, 12], [15, 0]])  # modulo 2**bits
                self.assertEqual((x.t() * 2).tolist(), [[most - 1, 10], [12, 0]])
                self.assertEqual((x & y).tolist(), [[3, 2], [1, 0]])
                self.assertEqual((x | 1).tolist(), [[most, 7], [5, 1]])
                self.assertEqual((x ^ x).tolist(), [[0, 0], [0, 0]])
                self.assertEqual(torch.where(x == 5, x, y).tolist(), [[3, 2], [5, 2]])
                self.assertTrue(all(t.dtype is dtype for t in (x * y, x * 2, x & y, x | 1, x ^ x, torch.where(x == 5, x, y), x.clone().mul_(3))))
                self.assertEqual((x * .5).dtype, torch.float32)

    def test_math_functions_return_float32(self):
        for dtype in UNSIGNED:
            x = torch.tensor([torch.iinfo(dtype).max, 4, 1], dtype=dtype)
            for f in (torch.exp2, torch.log, torch.sqrt, torch.sigmoid, torch.reciprocal, lambda t: t / 2, lambda t: 2 / t):
                self.assertTrue(torch.equal(f(x), f(x.to(torch.float32))))
        for f in (torch.add, torch.sub, torch.floor_divide, torch.lt, torch.pow):
            with self.assertRaisesRegex(NotImplementedError, "not implemented for 'UInt64'"):
                f(x, x)

    def test_sums_are_int64(self):
        for dtype in UNSIGNED:
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                x = torch.tensor([[3, 0], [2, 5]], dtype=dtype, device=device)
                for got, wanted in ((x.sum(), 10), (x.sum(0), [5, 5]), (x.prod(1), [0, 10]), (x.nansum(), 10)):
                    self.assertEqual((got.dtype, got.tolist()), (torch.int64, wanted))
                self.assertEqual((x.any(1).tolist(), x.all(1).tolist(), x.all().item()), ([True, True], [False, True], False))
                self.assertEqual((x.sum(dtype=torch.float32).item(), x.prod(dtype=torch.int32).dtype), (10.0, torch.int32))
                self.assertTrue(torch.equal(x.logsumexp(0), x.to(torch.float32).logsumexp(0)))
                self.assertEqual((x.floor().dtype, x.round().tolist(), x.isfinite().all().item()), (dtype, x.tolist(), True))
                with self.assertRaisesRegex(NotImplementedError, "not implemented for 'UInt"):
                    torch.sum(x, dtype=dtype)
            x = torch.tensor([3, 0, torch.iinfo(dtype).max], dtype=dtype)
            wrapped = torch.iinfo(dtype).max if dtype != torch.uint64 else -1
            self.assertEqual((x.cumsum(0).tolist(), x[::2].cumprod(0).tolist()), ([3, 3, 3 + wrapped], [3, 3 * wrapped]))

    def test_ordering_beyond_int64(self):
        for dtype in UNSIGNED:
            most = torch.iinfo(dtype).max
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                x = torch.tensor([most, 3, most // 2 + 2], dtype=dtype, device=device)
                y = torch.tensor([4, most - 1, most // 2], dtype=dtype, device=device)
                for f in torch.maximum, torch.fmax, lambda a, b: a.clamp_min(b):
                    self.assertEqual((f(x, y).tolist(), f(x, y).dtype), ([most, most - 1, most // 2 + 2], dtype))
                for f in torch.minimum, torch.fmin, lambda a, b: a.clamp(max=b):
                    self.assertEqual(f(x, y).tolist(), [4, 3, most // 2])
                self.assertEqual((x.clamp(4, 100).tolist(), x.clamp(-1, 5).tolist(), x.clamp(min=y[0]).tolist()),
                                 ([100, 4, 100], [5, 3, 5], [most, 4, most // 2 + 2]))
                self.assertEqual(x.clone().clamp_(max=7).tolist(), [7, 3, 7])
                out = torch.empty(3, dtype=dtype, device=device)
                self.assertEqual((torch.minimum(x, y, out=out) is out, out.tolist()), (True, [4, 3, most // 2]))
                self.assertEqual((x.clamp(1.5, 3.5).dtype, x.clamp(1.5, 3.5).tolist()), (torch.float32, [3.5, 3, 3.5]))
            many = x.cpu()
            values, order = many.sort()
            self.assertEqual((values.tolist(), order.tolist(), values.dtype), ([3, most // 2 + 2, most], [1, 2, 0], dtype))
            self.assertEqual((many.argsort(descending=True).tolist(), many.msort().tolist()), ([0, 2, 1], values.tolist()))
            row = torch.arange(3000).to(dtype) * 4097
            mixed = row[torch.randperm(3000)]
            self.assertEqual(mixed.sort()[0].tolist(), sorted(mixed.tolist()))

    def test_promotion(self):
        self.assertEqual(torch.promote_types(torch.uint16, torch.float16), torch.float16)
        with self.assertRaisesRegex(RuntimeError, "Promotion for uint16, uint32, uint64 types is not "
                                    "supported, attempted to promote UInt16 and Int"):
            torch.ones(1, dtype=torch.uint16) + torch.ones(1, dtype=torch.int32)
        self.assertEqual(torch.result_type(torch.ones(1, dtype=torch.uint32), 1), torch.uint32)
        self.assertEqual(torch.iinfo(torch.uint64).max, 2**64 - 1)


class Complex(unittest.TestCase):
    def test_python_complex_numbers(self):
        x = torch.tensor([1 + 2j, 3])
        self.assertEqual((x.dtype, x.tolist(), x[0].item()), (torch.complex64, [1 + 2j, 3 + 0j], 1 + 2j))
        self.assertEqual(torch.tensor([x[0], 1]).tolist(), [1 + 2j, 1 + 0j])
        self.assertEqual(torch.full((2,), 1j).tolist(), [1j, 1j])
        self.assertEqual(torch.zeros(1, dtype=torch.complex128).fill_(2j).tolist(), [2j])
        x[1] = -1j
        self.assertEqual((x[1].item(), complex(x[0]), bool(x[1])), (-1j, 1 + 2j, True))

    def test_real_tensors_reject_complex(self):
        overflow = "value cannot be converted to type .* without overflow"
        for call in (lambda: torch.zeros(2).fill_(1j), lambda: torch.full((2,), 1j, dtype=torch.float32),
                     lambda: float(torch.tensor(1j)), lambda: int(torch.tensor(1j))):
            with self.assertRaisesRegex(RuntimeError, overflow):
                call()
        with self.assertRaisesRegex(TypeError, "must be real number, not complex"):
            torch.tensor([1j], dtype=torch.float32)
        x = torch.zeros(2)
        with self.assertRaisesRegex(RuntimeError, "result type ComplexFloat can't be cast to the desired output type Float"):
            x += 1j

    def test_repr_matches_pytorch(self):
        for values, text in (([1 + 2j, 3 - 4j], "tensor([1.+2.j, 3.-4.j])"),
                             ([1 + 2j, 3.5 - 1e-3j], "tensor([1.0000+2.0000e+00j, 3.5000-1.0000e-03j])"),
                             (1.5 + 2j, "tensor(1.5000+2.j)"),
                             ([complex("nan"), complex("inf")], "tensor([nan+0.j, inf+0.j])"),
                             ([[1e6 + 1j, 2]], "tensor([[1.0000e+06+1.j, 2.0000e+00+0.j]])")):
            self.assertEqual(str(torch.tensor(values, dtype=torch.complex64)), text)
        self.assertEqual(str(torch.zeros(1, dtype=torch.complex128)), "tensor([0.+0.j], dtype=torch.complex128)")
        self.assertEqual(str(torch.zeros(0, dtype=torch.complex64)), "tensor([], dtype=torch.complex64)")

    def test_real_and_imag_are_views(self):
        for device in DEVICES:
            x = torch.tensor([1 + 2j, 3 + 4j], device=device)
            x.imag[0] = 7
            x.real.zero_()
            self.assertEqual(x.tolist(), [7j, 4j])
            self.assertEqual(torch.view_as_real(x).tolist(), [[0, 7], [0, 4]])
            pairs = torch.tensor([[1., 2.], [3., 4.]], device=device)
            torch.view_as_complex(pairs)[1] = 5j
            self.assertEqual(pairs.tolist(), [[1, 2], [0, 5]])
        y = torch.ones(2)
        self.assertIs(y.real, y)

    def test_invalid_views(self):
        for error, text, call in (
                (TypeError, "imag is not implemented for tensors with non-complex", lambda: torch.ones(1).imag),
                (TypeError, "view_as_real is only supported for complex", lambda: torch.view_as_real(torch.ones(1))),
                (NotImplementedError, "scalar type: Long", lambda: torch.view_as_complex(torch.ones(2, dtype=torch.int64))),
                (RuntimeError, "last dimension of size 2", lambda: torch.view_as_complex(torch.ones(3))),
                (RuntimeError, "stride 1", lambda: torch.view_as_complex(torch.ones(2, 3).t())),
                (RuntimeError, "storage_offset divisible", lambda: torch.view_as_complex(torch.ones(5)[1:].view(2, 2)))):
            with self.assertRaisesRegex(error, text):
                call()

    def test_dtype_conversions(self):
        self.assertEqual((torch.float64.to_complex(), torch.complex32.to_real(), torch.int8.to_real()),
                         (torch.complex128, torch.float16, torch.int8))
        with self.assertRaisesRegex(RuntimeError, "Unknown Complex ScalarType for Int"):
            torch.int32.to_complex()
        self.assertEqual(torch.promote_types(torch.complex64, torch.float64), torch.complex128)
        self.assertEqual(torch.result_type(torch.ones(1, dtype=torch.float64), 1j), torch.complex128)
        self.assertFalse(torch.can_cast(torch.complex64, torch.float32))
        self.assertEqual(torch.finfo(torch.complex64).dtype, "float32")
        self.assertEqual((torch.cfloat, torch.cdouble, torch.chalf), (torch.complex64, torch.complex128, torch.complex32))
        self.assertTrue(torch.is_complex(torch.tensor(1j)) and torch.complex64.is_complex)
        self.assertEqual(torch.tensor([0, 0.5j]).to(torch.bool).tolist(), [False, True])


class Float8(unittest.TestCase):
    # The largest finite value, the result of overflow, the smallest positive value.
    LIMITS = {torch.float8_e4m3fn: (448, 448.0, 2**-9), torch.float8_e5m2: (57344, math.inf, 2**-16),
              torch.float8_e4m3fnuz: (240, math.nan, 2**-10), torch.float8_e5m2fnuz: (57344, math.nan, 2**-17)}

    def test_all_values_round_trip(self):
        for device in DEVICES:
            bits = torch.arange(256, device=device).to(torch.uint8)
            for dtype in FLOAT8:
                numbers = bits.view(dtype).to(torch.float32)
                again = numbers.to(dtype).to(torch.float32)
                self.assertTrue(torch.equal(again.nan_to_num(7777), numbers.nan_to_num(7777)), dtype)

    def test_rounding_is_to_nearest_even(self):
        for dtype, (_, _, smallest) in self.LIMITS.items():
            x = torch.tensor([smallest / 2, smallest * 0.75, smallest * 1.5, smallest * 2.5, 0.0, -0.0]).to(dtype)
            self.assertEqual(x.tolist(), [0, smallest, 2 * smallest, 2 * smallest, 0, 0])

    def test_overflow(self):
        for dtype, (largest, over, _) in self.LIMITS.items():
            x = torch.tensor([largest, largest * 1.01, largest * 4, -largest * 4]).to(dtype).tolist()
            self.assertEqual(x[:2], [largest, largest])
            self.assertTrue(str(x[2:]) in (str([over, -over]), str([over, over])), x)
            self.assertEqual((torch.finfo(dtype).max, torch.finfo(dtype).min), (largest, -largest))

    def test_e8m0_has_exponents_only(self):
        x = torch.tensor([1, 1.49, 1.5, 3, -4, 0, math.nan]).to(torch.float8_e8m0fnu).tolist()
        self.assertEqual(x[:6], [1, 1, 2, 4, 4, 2.0**-127])
        self.assertTrue(math.isnan(x[6]) and not torch.float8_e8m0fnu.is_signed)

    def test_no_promotion(self):
        with self.assertRaisesRegex(RuntimeError, "Promotion for Float8 Types is not supported, attempted to "
                                    "promote Float8_e5m2 and Float"):
            torch.cat([torch.ones(1, dtype=torch.float8_e5m2), torch.ones(1)])
        self.assertEqual(str(torch.tensor([1.5, 448]).to(torch.float8_e4m3fn)),
                         "tensor([  1.5000, 448.0000], dtype=torch.float8_e4m3fn)")


class Views(unittest.TestCase):
    def test_view_with_other_element_size(self):
        x = torch.zeros(4, 8, dtype=torch.uint8)
        self.assertEqual((x.view(torch.float32).shape, x[:, :4].view(torch.int32).stride()), ((4, 2), (2, 1)))
        for text, call in (("self.dim\\(\\) cannot be 0 to view Float as Byte", lambda: torch.tensor(1.).view(torch.uint8)),
                           ("self.stride\\(-1\\) must be 1", lambda: x.t().view(torch.int16)),
                           ("self.size\\(-1\\) must be divisible by 4", lambda: x[:, :6].view(torch.int32)),
                           ("self.storage_offset\\(\\) must be divisible by 4", lambda: x[:, 1:5].view(torch.int32)),
                           ("self.stride\\(0\\) must be divisible by 4",
                            lambda: torch.zeros(4, 6, dtype=torch.uint8)[:, :4].view(torch.int32))):
            with self.assertRaisesRegex(RuntimeError, text):
                call()


class HalfPrecisionSigns(unittest.TestCase):
    def test_neg_abs_and_relu_of_all_bit_patterns(self):
        for dtype in torch.float16, torch.bfloat16:
            x = torch.arange(-32768, 32768, dtype=torch.int64).to(torch.int16).view(dtype)
            for op in torch.neg, torch.abs, torch.relu:
                expected = op(x.float())
                nan = expected.isnan()
                for made in op(x), torch.stack([op(x[::2]), op(x[1::2])], 1).flatten(), torch.cat([op(x[i:i + 4099]) for i in range(0, 65536, 4099)]):
                    self.assertEqual(made.dtype, dtype)
                    made = made.float()
                    self.assertTrue((made.isnan() == nan).all())
                    self.assertTrue(((made == expected) & (made.signbit() == expected.signbit()) | nan).all())
            self.assertTrue(((x.clone().neg_().float() == -x.float()) | x.isnan()).all())


class LargeNumbers(unittest.TestCase):
    """Python numbers beyond a dtype, as in PyTorch 2.15."""

    def test_integers_beyond_64_bits_become_floats(self):
        big = float(2**64)
        for data in (2**64, [2**64], [2**64, 1.5], -2**64):
            for dtype in (torch.float64, torch.float32, torch.complex128):
                found = torch.tensor(data, dtype=dtype).flatten()[0].item()
                self.assertEqual(abs(found), big)
        self.assertEqual(torch.tensor([1.5, 2**64]).tolist(), [1.5, big])
        self.assertEqual((torch.tensor(2**64, dtype=torch.bool).item(), torch.tensor(2**200, dtype=torch.float32).item()), (True, float("inf")))
        self.assertEqual([f(2**64, dtype=torch.float64).item() for f in (torch.as_tensor, torch.asarray)], [big] * 2)
        self.assertEqual(torch.ones(1).new_tensor(2**64).item(), big)
        self.assertEqual(torch.nn.functional.pad(torch.ones(1), (1, 0), value=2**64).tolist(), [big, 1])
        for call in (lambda: torch.tensor(2**64), lambda: torch.tensor([-2**64]), lambda: torch.tensor(2**64, dtype=torch.int64)):
            self.assertRaisesRegex(ValueError, "Overflow when unpacking long long", call)
        self.assertRaisesRegex(OverflowError, "int too large to convert to float", torch.tensor, 10**400, dtype=torch.float64)

    def test_assigned_integers_have_64_bits(self):
        for x in torch.zeros(2), torch.zeros(2, dtype=torch.int64):
            for index in 0, slice(None), x == 0, torch.tensor([0]):
                for value in 2**63, 2**64:
                    self.assertRaisesRegex(ValueError, "Overflow when unpacking long long", x.__setitem__, index, value)
        u = torch.zeros(2, dtype=torch.uint64)
        u[0] = 2**63
        self.assertEqual(u.tolist(), [2**63, 0])

    def test_filled_values_fit(self):
        text = "value cannot be converted to type {} without overflow"
        for dtype, name, value in ((torch.float16, "c10::Half", 1e5), (torch.float16, "c10::Half", 100000), (torch.bfloat16, "c10::BFloat16", 1e39),
                                   (torch.float32, "float", 1e40), (torch.int8, "int8_t", 300), (torch.uint8, "uint8_t", 256), (torch.int64, "int64_t", 1e20)):
            x = torch.ones(2, dtype=dtype)
            for call in (lambda: x.masked_fill(x > 0, value), lambda: x.__setitem__(x > 0, value), lambda: x.__setitem__(torch.tensor([0]), value),
                         lambda: x.__setitem__(slice(None), value), lambda: x.fill_(value), lambda: x.scatter(0, torch.tensor([0]), value)):
                self.assertRaisesRegex(RuntimeError, text.format(name), call)
        h = torch.ones(2, 2, dtype=torch.float16)
        h[0, 0], h[torch.tensor([1]), torch.tensor([1])] = 1e5, 1e5  # single elements
        h[h == 1] = float("-inf")
        self.assertEqual(h.tolist(), [[float("inf"), float("-inf")], [float("-inf"), float("inf")]])
        u = torch.ones(3, dtype=torch.uint8)
        self.assertEqual((u.fill_(-1).tolist(), u.fill_(-255).tolist()), ([255] * 3, [1] * 3))

    def test_bounds_and_comparisons(self):
        x, i = torch.tensor([1.0, 2.0]), torch.tensor([1, 2])
        self.assertEqual([torch.clamp(x, max=2**63).tolist(), torch.clamp(i, max=2**63).tolist(), torch.clamp_max(i, 2**63).tolist()], [[1, 2]] * 3)
        self.assertEqual([(x < 2**63).tolist(), (x.half() < 100000).tolist(), (x == 2**63).tolist(), (i == 2**63).tolist()], [[True] * 2] * 2 + [[False] * 2] * 2)
        for call in (lambda: x < 2**64, lambda: i == 2**64, lambda: x + 2**64, lambda: torch.clamp(x, max=2**64)):
            self.assertRaisesRegex(OverflowError, "int too big to convert", call)

if __name__ == "__main__":
    unittest.main()
