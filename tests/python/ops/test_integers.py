# SPDX-License-Identifier: Apache-2.0
"""Integer matrix products with wraparound, integer convolution and pooling, and unsigned dtypes, on the CPU and on a simulated device. Results match float64 within its exact range."""
import functools
import os
import unittest

os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import phlox as torch

F = torch.nn.functional
WHOLE = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64


def each_device(test):
    """Runs a test on the CPU, then with a simulated default device. GPUs are left out, since they have no integer matmul, as in PyTorch."""
    @functools.wraps(test)
    def run(self):
        for device in ["cpu"] + ["cuda"] * (torch.cuda._backend_name() == "sim"):
            with self.subTest(device), torch.device(device):
                test(self)
    return run


def numbers(*size, start=0, dtype=torch.int64):
    """Small integers of both signs in irregular order, with repetitions."""
    count = torch.Size(size).numel()
    return torch.tensor([(start + i * 7) % 11 - 5 for i in range(count)], dtype=torch.int64).reshape(size).to(dtype)


class Integers(unittest.TestCase):
    def same(self, have, want, dtype=torch.int64):
        self.assertEqual(have.dtype, dtype)
        self.assertEqual(have.tolist(), want.to(dtype).tolist())

    @each_device
    def test_hardtanh_limits_beyond_the_dtype_are_its_limits(self):
        for dtype, x, low, high, want in ((torch.uint8, [0, 3, 200], -1.5, 5, [0, 3, 5]), (torch.uint8, [0, 3, 200], -70000, 300, [0, 3, 200]),
                                          (torch.int8, [-100, 3, 100], -1.5, 300, [-1, 3, 100]), (torch.int16, [-30000, 3, 30000], -70000, 2.7, [-30000, 2, 2])):
            x = torch.tensor(x, dtype=dtype)
            self.assertEqual(F.hardtanh(x, low, high).tolist(), want)
            self.assertEqual(F.hardtanh(x[None].expand(2, 3).t(), low, high)[:, 1].tolist(), want)
            self.assertEqual(F.hardtanh(x, low, high, inplace=True).tolist(), want)
        for low, high, text in (-5, -1, "Clamp max value -1 is outside the representable range of Byte"), (300, 400, "Clamp min value 300 is outside"):
            self.assertRaisesRegex(RuntimeError, text, F.hardtanh, torch.zeros(2, dtype=torch.uint8), low, high)

    @each_device
    def test_matmul_wraps(self):
        for dtype in WHOLE:
            for m, k, n in (1, 5, 3), (7, 1, 70), (13, 300, 17), (130, 20, 1), (1, 40, 200), (80, 70, 131), (3, 0, 2):
                a, b, s = (torch.randint(-2**62, 2**62, size).to(dtype) for size in ((m, k), (k, n), (n,)))
                want = (a.long().unsqueeze(2) * b.long()).sum(1)
                for left in a, a.t().contiguous().t():
                    for right in b, b.t().contiguous().t(), b.repeat_interleave(2, 1)[:, ::2]:
                        with self.subTest(dtype=dtype, m=m, k=k, n=n):
                            self.same(left @ right, want, dtype)
                            self.same(torch.addmm(s, left, right, beta=3, alpha=-2), s.long() * 3 - want * 2, dtype)
                self.same((right.t() @ left.t()).t(), want, dtype)
                self.same(torch.stack([a, a]).bmm(torch.stack([b, b + 1])), torch.stack([want, want + a.long().sum(1, keepdim=True)]), dtype)

    def test_matmul_is_independent_of_thread_count(self):
        before = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, before)
        for dtype in WHOLE:
            a, b = torch.randint(-2**62, 2**62, (150, 330)).to(dtype), torch.randint(-2**62, 2**62, (330, 290)).to(dtype)
            torch.set_num_threads(1)
            alone = (a @ b).tolist()
            for threads in 2, 7:
                torch.set_num_threads(threads)
                self.assertEqual((a @ b).tolist(), alone)

    @each_device
    def test_pow_and_shifts_wrap(self):
        for dtype in WHOLE:
            info, bits = torch.iinfo(dtype), torch.iinfo(dtype).bits
            wrapped = lambda v: (v - info.min) % 2**bits + info.min
            values = [info.min, info.max, 0, 1, 2, 3, 7, 100] + [info.max // k for k in range(2, 70)]
            x = torch.tensor(values, dtype=dtype)
            for power in 0, 1, 2, 3, 4:
                self.assertEqual((x ** power).tolist(), [wrapped(v ** power) for v in values])
            for bit_count in list(range(bits)) + [bits, bits + 32]:
                self.assertEqual((x << torch.full_like(x, bit_count)).tolist(), [wrapped(v << bit_count) if bit_count < bits else 0 for v in values])
        truths = torch.tensor([True, False, True, False] * 20), torch.tensor([True, True, False, False] * 20)
        self.assertEqual(torch.maximum(*truths).tolist(), [True, True, True, False] * 20)
        self.assertEqual(torch.minimum(*truths).tolist(), [True, False, False, False] * 20)

    @each_device
    def test_division_by_scalar_matches_python(self):
        for dtype in torch.int32, torch.int64:
            info = torch.iinfo(dtype)
            powers = [2**k for k in range(1, info.bits - 1, 5)]
            divisors = [1, 2, 3, 7, 10, 641, -1, -7, info.max, info.max - 1, info.max // 3, info.min] + powers + [p + 1 for p in powers] + [2 * p - 1 for p in powers]
            for d in divisors:
                edges = [info.min, info.min + 1, info.max, 0, 1, -1, *range(-30, 31)]
                edges += [k * d + i for k in (info.max // d, info.min // d, 2, -3) for i in (-1, 0, 1)]
                values = [v for v in edges if info.min <= v <= info.max and -v * (d == -1) <= info.max]
                x = torch.tensor(values, dtype=dtype)
                floors, rests = [v // d for v in values], [v % d for v in values]
                whole = [-(-v // d) if (v < 0) != (d < 0) else v // d for v in values]
                for made, expected in (x // d, floors), (x % d, rests), (torch.div(x, d, rounding_mode="floor"), floors), \
                        (torch.div(x, d, rounding_mode="trunc"), whole), (torch.fmod(x, d), [v - q * d for v, q in zip(values, whole)]):
                    self.assertEqual(made.tolist(), expected, d)
                self.assertEqual(torch.stack([x, x], 1)[:, 0].floor_divide_(d).tolist(), floors)
                self.assertEqual((x[:5] // d).tolist(), floors[:5])
            with self.assertRaises(RuntimeError):
                (torch.arange(100, dtype=dtype) // 0).tolist()

    def test_convolution(self):
        forms = {}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2}, {"padding": "same"}
        for dims, convolve in enumerate((F.conv1d, F.conv2d, F.conv3d), 1):
            for form in forms:
                x, b = numbers(2, 4, *[6, 5, 7][:dims]), numbers(4)
                w = numbers(4, 4 // form.get("groups", 1), *[3, 2, 3][:dims], start=3)
                with self.subTest(dims=dims, **form):
                    self.same(convolve(x, w, b, **form), convolve(x.double(), w.double(), b.double(), **form))
        for dtype in WHOLE[1:]:
            x, w = numbers(1, 2, 5, dtype=dtype), numbers(3, 2, 3, dtype=dtype)
            self.same(F.conv1d(x, w), F.conv1d(x.double(), w.double()), dtype)

    @each_device
    def test_transposed_convolution(self):
        forms = {}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2, "groups": 2}, {"dilation": 3, "output_padding": 2, "padding": 1}
        for dims, spread in enumerate((F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d), 1):
            for form in forms:
                x, w, b = numbers(2, 4, *[4, 3, 2][:dims]), numbers(4, 3, *[3, 2, 3][:dims], start=3), numbers(3 * form.get("groups", 1))
                with self.subTest(dims=dims, **form):
                    self.same(spread(x, w, b, **form), spread(x.double(), w.double(), b.double(), **form))

    @each_device
    def test_output_padding_beyond_stride(self):
        x, w, b = torch.ones(1, 1, 2), torch.ones(1, 1, 2), torch.tensor([10.0])
        self.assertEqual(F.conv_transpose1d(x, w, b, dilation=3, output_padding=2).flatten().tolist(), [11, 11, 10, 11, 11, 10, 10])
        self.assertEqual(F.conv_transpose1d(x, w, b, dilation=3, padding=1, output_padding=2).flatten().tolist(), [11, 10, 11, 11, 10])
        x.requires_grad_()
        F.conv_transpose1d(x, w, b, dilation=3, padding=1, output_padding=2).sum().backward()
        self.assertEqual(x.grad.flatten().tolist(), [1, 2])

    @each_device
    def test_max_pool_values_and_indices(self):
        forms = {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, {"kernel_size": 2, "dilation": 2, "stride": 1, "padding": 1}
        for dims, pool in (1, F.max_pool1d), (2, F.max_pool2d), (3, F.max_pool3d):
            for dtype in WHOLE:
                for form in forms:
                    x = numbers(2, 2, *[6, 5, 7][:dims], dtype=dtype)
                    with self.subTest(dims=dims, dtype=dtype, **form):
                        (have, at), (want, where) = (pool(t, return_indices=True, **form) for t in (x, x.double()))
                        self.same(have, want, dtype)
                        self.same(at, where)
        near = torch.tensor([[[2**62, 2**62 + 1, 2**62 - 1]]])  # equal in float64
        self.assertEqual(F.max_pool1d(near, 3, return_indices=True)[0].item(), 2**62 + 1)
        least = torch.full((1, 1, 2), -128, dtype=torch.int8)
        self.assertEqual([t.tolist() for t in F.max_pool1d(least, 2, padding=1, return_indices=True)], [[[[-128, -128]]], [[[0, 1]]]])

    @each_device
    def test_avg_pool_truncates(self):
        forms = {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, {"kernel_size": 3, "padding": 1, "count_include_pad": False}
        for dims, pool in (1, F.avg_pool1d), (2, F.avg_pool2d), (3, F.avg_pool3d):
            for form in forms + ({"kernel_size": 2, "divisor_override": 3},) * (dims > 1):
                x = numbers(2, 2, *[6, 5, 7][:dims])
                with self.subTest(dims=dims, **form):
                    means = pool(x.double(), **form)
                    self.same(pool(x, **form), (means + means.sign() * 1e-9).trunc())

    @each_device
    def test_unsigned_sign_ops(self):
        large = torch.tensor([1, 2**64 - 5, 2**63 + 1], dtype=torch.uint64)
        self.assertEqual(torch.relu(large).tolist(), large.tolist())
        self.assertEqual(large.clone().relu_().tolist(), large.tolist())
        self.assertEqual(torch.signbit(large).tolist(), [False] * 3)
        self.assertEqual(F.hardtanh(large, 0, 10).tolist(), [1, 10, 10])
        self.assertEqual(F.relu6(large.to(torch.uint16)).tolist(), [1, 6, 1])
        self.assertEqual(torch.isin(large, large[:2]).tolist(), [True, True, False])
        self.assertEqual(large.unique().tolist(), sorted(large.tolist()))

    @each_device
    def test_unsigned_with_float_promotes(self):
        for dtype in torch.uint16, torch.uint32, torch.uint64:
            x, same = torch.tensor([3, 1, 2], dtype=dtype), torch.tensor([3., 1., 2.])
            for f in (lambda x: x + 0.5, lambda x: same.clone().sub_(x), lambda x: x > 1.5, lambda x: torch.ldexp(x, x), lambda x: torch.atan2(x, x), torch.deg2rad,
                      lambda x: x.mean(dtype=torch.float32), lambda x: x.mean(0, dtype=torch.float64), lambda x: x.softmax(0, dtype=torch.float64),
                      lambda x: torch.log_softmax(x, 0, dtype=torch.float32), F.tanhshrink, lambda x: torch.mvlgamma(x, 1), lambda x: x.count_nonzero()):
                self.same(f(x), f(same), f(same).dtype)
            for refused in lambda: x + x, lambda: x.mean(), lambda: x.softmax(0), lambda: x.softmax(0, dtype=torch.int32), lambda: x.max(0), lambda: x.argmax():
                self.assertRaisesRegex(NotImplementedError, "UInt", refused)

    @each_device
    def test_extrema_of_unsigned_and_a_negative_integer_without_dimensions(self):
        for dtype in (torch.uint16, torch.uint32, torch.uint64):
            x, top = torch.tensor([1, 200, 5], dtype=dtype), 2**(8 * dtype.itemsize) - 1
            for name in ("maximum", "fmax", "minimum", "fmin"):
                found = getattr(torch, name)(x, torch.tensor(-1))
                self.assertEqual((found.dtype, found.tolist()), (dtype, [top] * 3 if "max" in name else [1, 200, 5]), name)
            self.assertEqual(torch.clamp(x, min=torch.tensor(-1)).tolist(), [top] * 3)
            self.assertEqual(torch.maximum(x, torch.tensor(100)).tolist(), [100, 200, 100])

    @each_device
    def test_unsigned_scatter_wraps(self):
        for dtype in torch.uint16, torch.uint32, torch.uint64:
            self.check_scatter(dtype, torch.tensor([1, 2, -2]).to(dtype), torch.tensor([0, 1, 0]), torch.ones(2, dtype=dtype))

    def check_scatter(self, dtype, x, index, ones):
        self.same(ones.scatter_add(0, index, x), torch.tensor([0, 3]), dtype)
        self.same(ones.clone().scatter_add_(0, index, x), torch.tensor([0, 3]), dtype)
        self.same(ones.scatter(0, index, x, reduce="multiply"), torch.tensor([-2, 2]), dtype)
        self.same(ones.index_add(0, index, x, alpha=3), torch.tensor([-2, 7]), dtype)
        self.same(ones.index_reduce(0, index, x, "prod"), torch.tensor([-2, 2]), dtype)
        for reduce in "mean", "amax":
            self.assertRaisesRegex(NotImplementedError, "UInt", lambda: ones.scatter_reduce_(0, index, x, reduce))
        self.assertEqual(ones.tolist(), [1, 1])

    @each_device
    def test_unsigned_random_numbers_match_int64(self):
        for dtype in torch.uint16, torch.uint32, torch.uint64:
            draw = lambda dtype: (torch.manual_seed(3), torch.randint(0, 60000, (50,), dtype=dtype))[1]
            self.same(draw(dtype), draw(torch.int64), dtype)
            spaced = torch.zeros(4, 2, dtype=dtype)
            self.assertTrue(all(7 <= n < 9 for n in spaced[:, 1].random_(7, 9).tolist()))
            self.assertEqual(spaced[:, 0].tolist(), [0] * 4)
            self.assertRaisesRegex(RuntimeError, "from is out of bounds for .*unsigned int", lambda: spaced.random_(-1, 4))
        for dtype, name in (torch.uint16, "short unsigned int"), (torch.int8, "signed char"), (torch.bool, "bool"):
            self.assertRaisesRegex(RuntimeError, f"to - 1 is out of bounds for {name}", lambda: torch.zeros(2, dtype=dtype).random_(70000))

    def test_unsupported_dtypes(self):
        for dtype in torch.bool, torch.uint16:
            x = torch.ones(1, 1, 4, 4).to(dtype)
            for call in lambda: F.max_pool2d(x, 2), lambda: F.avg_pool2d(x, 2), lambda: F.conv2d(x, x):
                with self.assertRaisesRegex(NotImplementedError, "not implemented for '(Bool|UInt16)'$"):
                    call()


if __name__ == "__main__":
    unittest.main()
