# SPDX-License-Identifier: Apache-2.0
"""Convolution, pooling, interpolation and padding of volumes, and features shared with image layers: indices of maxima, padding modes, output sizes.
Results are compared with explicit sums and maxima."""
import itertools
import unittest

import phlox as torch
from phlox import nn
from phlox.nn import functional as F

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def windows(x, size, stride, padding, dilation, fill):
    """For each output position, the elements of its window; the last three dimensions are a dict by window position."""
    padded = F.pad(x, [p for p in reversed(padding) for _ in range(2)], value=fill)
    counts = [(padded.shape[-3 + k] - dilation[k] * (size[k] - 1) - 1) // stride[k] + 1 for k in range(3)]
    for position in itertools.product(*map(range, counts)):
        yield position, [tuple(position[k] * stride[k] + at[k] * dilation[k] for k in range(3)) for at in itertools.product(*map(range, size))], padded, counts


class Convolutions(unittest.TestCase):
    def reference(self, x, w, b, stride, padding, dilation, groups):
        out = None
        for position, seen, padded, counts in windows(x, w.shape[2:], stride, padding, dilation, 0.0):
            if out is None:
                out = torch.zeros(x.shape[0], w.shape[0], *counts, dtype=x.dtype, device=x.device)
            columns = torch.stack([padded[(slice(None), slice(None), *at)] for at in seen], -1)  # N, C, window positions
            for g in range(groups):
                n, o = w.shape[1], w.shape[0] // groups
                part = columns[:, g * n:(g + 1) * n].flatten(1)
                out[(slice(None), slice(g * o, (g + 1) * o), *position)] = part @ w[g * o:(g + 1) * o].flatten(1).t()
        return out + b.view(-1, 1, 1, 1)

    def test_conv3d_matches_explicit_sum(self):
        was, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
        self.addCleanup(setattr, torch.backends.cudnn, "allow_tf32", was)
        for device in DEVICES:
            for stride, padding, dilation, groups in (((1, 1, 1), (0, 0, 0), (1, 1, 1), 1), ((2, 1, 3), (1, 0, 2), (1, 1, 1), 2), ((1, 2, 1), (2, 1, 0), (2, 1, 2), 1),
                                                      ((3, 3, 3), (3, 1, 1), (1, 2, 1), 4)):
                x, w, b = torch.randn(2, 4, 6, 5, 7, device=device), torch.randn(8, 4 // groups, 3, 2, 3, device=device), torch.randn(8, device=device)
                got = F.conv3d(x, w, b, stride, padding, dilation, groups)
                self.assertTrue(torch.allclose(got, self.reference(x, w, b, stride, padding, dilation, groups), atol=1e-4))
                self.assertTrue(got.is_contiguous())

    def sum_of_planes(self, x, w, b, stride, padding, dilation, groups):
        """The sum of 2-D convolutions of each kernel plane with the input planes that it meets."""
        padded = F.pad(x, (0, 0, 0, 0, padding[0], padding[0]))
        made = []
        for z in range(0, padded.shape[2] - dilation[0] * (w.shape[2] - 1), stride[0]):
            parts = [F.conv2d(padded[:, :, z + k * dilation[0]], w[:, :, k], None, stride[1:], padding[1:], dilation[1:], groups) for k in range(w.shape[2])]
            made.append(sum(parts) + b.view(-1, 1, 1))
        return torch.stack(made, 2)

    def with_gradients(self, f, x, w, b, *how, dtype, threads):
        torch.set_num_threads(threads)
        given = [t.to(dtype).detach().requires_grad_() for t in (x, w, b)]
        made = f(*given, *how)
        last = torch.channels_last_3d if x.is_contiguous(memory_format=torch.channels_last_3d) else torch.contiguous_format
        made.backward((torch.arange(made.numel()).view(made.shape) % 11 - 4).to(dtype).contiguous(memory_format=last))
        return [made.detach()] + [t.grad for t in given]

    def test_conv3d_in_all_dtypes_and_thread_counts(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        allowed = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
        for size, out, kernel, stride, padding, dilation, groups in (
                ((2, 5, 7, 11, 13), 6, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),  # input planes shared by three output planes
                ((1, 20, 9, 13, 12), 18, (2, 3, 2), (2, 1, 2), (1, 2, 0), (2, 1, 1), 1),
                ((2, 6, 8, 9, 10), 9, (3, 2, 3), (3, 2, 1), (2, 0, 2), (1, 2, 3), 3),
                ((3, 4, 6, 3, 5), 8, (4, 3, 3), (1, 1, 1), (3, 1, 1), (1, 1, 1), 2),  # several planes at once
                ((2, 16, 5, 12, 13), 32, (3, 1, 1), (2, 1, 1), (1, 0, 0), (1, 1, 1), 1),  # planes treated as rows of an image
                ((2, 40, 3, 7, 6), 24, (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1),
                ((1, 70, 2, 4, 3), 150, (2, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),  # few output positions
                ((2, 16, 4, 9, 10), 32, (3, 3, 2), (2, 1, 1), (1, 1, 0), (1, 2, 1), 1),  # contiguous output pixels
                ((4, 32, 5, 9, 8), 16, (1, 2, 2), (2, 2, 1), (0, 0, 0), (1, 1, 1), 1),
                ((1, 3, 4, 5, 5), 2, (2, 2, 2), (3, 3, 3), (5, 4, 3), (1, 1, 1), 1)):
            x, w, b, how = torch.randn(*size), torch.randn(out, size[1] // groups, *kernel), torch.randn(out), (stride, padding, dilation, groups)
            wanted = self.with_gradients(self.sum_of_planes, x, w, b, *how, dtype=torch.float64, threads=1)
            for last, (dtype, most) in itertools.product((False, True), allowed.items()):
                order = torch.channels_last_3d if last else torch.contiguous_format
                call = lambda threads: self.with_gradients(F.conv3d, x.to(memory_format=order), w.to(memory_format=order), b, *how, dtype=dtype, threads=threads)
                got = call(1)
                for name, a, e in zip(("results", "input", "weight", "bias"), got, wanted):
                    with self.subTest(name, size=size, dtype=dtype, last=last):
                        self.assertLessEqual(float((a.double() - e).abs().max() / e.abs().max()), most)
                for threads in (2, 7):
                    self.assertTrue(all(torch.equal(a, e) for a, e in zip(call(threads)[:3], got)), (size, dtype, threads))

    def test_strided_operands(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        for dtype in (torch.float32, torch.float64, torch.float16):
            base, w = torch.randn(4, 6, 70, 81).to(dtype), torch.randn(4, 3, 3, 3).to(dtype)
            for x in (base[:2, :3], base[1:, 2:5, 3:40], base[::3, 1:6:2, 2:60, ::2], base[:2, :3].transpose(2, 3), base[0, 0, :20, :30].expand(2, 3, 20, 30),
                      base[1, 1, 1, 1].expand(2, 3, 150, 140), base[:, :3, :1, :1].expand(4, 3, 130, 131), base[:, :3, :, 5:6].expand(4, 3, 70, 90)):
                for threads in (1, 2, 7):
                    torch.set_num_threads(threads)
                    self.assertTrue(torch.equal(F.conv2d(x, w), F.conv2d(x.contiguous(), w)), (dtype, x.shape, x.stride(), threads))

    def test_padded_depth_of_one_plane(self):
        for sizes in ((17, 3, 1, 4, 4), (40, 3, 1, 3, 3), (8, 32, 1, 12, 12)):
            x, w, b = torch.randn(*sizes), torch.randn(32, sizes[1], 1, 3, 3), torch.randn(32)
            for dtype in (torch.float32, torch.float16):
                got = self.with_gradients(F.conv3d, x, w, b, 1, 1, dtype=dtype, threads=1)
                wanted = self.with_gradients(F.conv3d, x, w, b, 1, 1, dtype=torch.float64, threads=1)
                for one, other in zip(got, wanted):
                    self.assertTrue(torch.allclose(one.double(), other.double(), rtol=1e-2, atol=1e-3 if dtype == torch.float32 else 1))

    def test_gradients_and_second_gradients(self):
        def f(x, w, b):
            return F.conv3d(x, w, b, (2, 1, 1), (1, 0, 1), (1, 1, 2), 2)

        args = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((1, 4, 3, 3, 4), (2, 2, 2, 2, 2), (2,))]
        self.assertTrue(torch.autograd.gradcheck(f, args))
        self.assertTrue(torch.autograd.gradcheck(lambda x, w: torch.autograd.grad(f(x, w, args[2]).pow(2).sum(), (x, w), create_graph=True), args[:2]))

    def test_conv_transpose3d_is_gradient_of_conv3d(self):
        x, w = torch.randn(2, 3, 2, 3, 2), torch.randn(3, 2, 2, 3, 2)
        for stride, padding, beyond in ((1, 0, 0), (2, 1, 1), ((2, 3, 1), (1, 0, 0), (1, 2, 0))):
            got = F.conv_transpose3d(x, w, None, stride, padding, beyond)
            image = torch.zeros(*got.shape, requires_grad=True)
            F.conv3d(image, w, None, stride, padding).backward(x)
            self.assertTrue(torch.allclose(got, image.grad, atol=1e-5))

    def test_unbatched_and_empty_batch(self):
        w = torch.randn(3, 2, 2, 2, 2)
        x = torch.randn(2, 4, 4, 4)
        self.assertTrue(torch.allclose(F.conv3d(x, w), F.conv3d(x[None], w)[0], atol=1e-6))
        self.assertTrue(torch.allclose(F.conv_transpose3d(x[:, :2, :2], torch.randn(2, 2, 2, 2, 2) * 0 + 1),
                                       F.conv_transpose3d(x[None, :, :2, :2], torch.ones(2, 2, 2, 2, 2))[0], atol=1e-5))
        self.assertEqual(F.conv3d(torch.ones(0, 2, 4, 4, 4), w).shape, (0, 3, 3, 3, 3))
        self.assertEqual(F.conv3d(torch.ones(2, 0, 4, 4, 4), torch.ones(3, 0, 2, 2, 2)).shape, (2, 0, 3, 3, 3))

    def test_string_padding(self):
        x, w = torch.randn(1, 2, 4, 5, 3), torch.randn(2, 2, 2, 3, 3)
        self.assertEqual(F.conv3d(x, w, padding="same").shape, (1, 2, 4, 5, 3))
        self.assertTrue(torch.equal(F.conv3d(x, w, padding="valid"), F.conv3d(x, w)))

    def test_convolution_dispatches_by_weight_dimensions(self):
        x = torch.randn(2, 4, 5, 5, 5)
        for dims, f, back in ((1, F.conv1d, F.conv_transpose1d), (2, F.conv2d, F.conv_transpose2d), (3, F.conv3d, F.conv_transpose3d)):
            image, w = x[(slice(None), slice(None), *[0] * (3 - dims))], torch.randn(4, 4, *[2] * dims)
            ones, none = [1] * dims, [0] * dims
            self.assertTrue(torch.equal(torch.convolution(image, w, None, ones, none, ones, False, none, 1), f(image, w)))
            self.assertTrue(torch.equal(torch.convolution(image, w, None, ones, none, ones, True, none, 1), back(image, w)))

    def test_conv3d_errors(self):
        x, w = torch.ones(2, 4, 5, 5, 5), torch.ones(4, 2, 3, 3, 3)
        for call, text in ((lambda: F.conv3d(x, w), r"Given groups=1, weight of size \[4, 2, 3, 3, 3\], expected input\[2, 4, 5, 5, 5\] to have 2 channels"),
                           (lambda: F.conv3d(x, torch.ones(4, 4, 6, 6, 6)), r"padded input size per channel: \(5 x 5 x 5\). Kernel size: \(6 x 6 x 6\)"),
                           (lambda: F.conv3d(x[0, 0], w), r"Expected 4D \(unbatched\) or 5D \(batched\) input to conv3d, but got input of size: \[5, 5, 5\]"),
                           (lambda: F.conv3d(x, w, stride=0, groups=2), "non-positive stride is not supported"),
                           (lambda: F.conv3d(x, w, stride=(1, 2), groups=2), r"a list of 3 values to match the convolution dimensions, but got stride=\[1, 2\]"),
                           (lambda: F.conv3d(x, w.double(), groups=2), r"Input type \(torch.FloatTensor\) and weight type \(torch.DoubleTensor\)"),
                           (lambda: F.conv_transpose3d(x, w, output_padding=1), "output padding must be smaller than either stride or dilation"),
                           (lambda: F.conv_transpose3d(x, w, padding=5), r"Calculated output size per channel: \(-3 x -3 x -3\)")):
            with self.assertRaisesRegex(RuntimeError, text):
                call()


class Pools(unittest.TestCase):
    def test_max_pool_values_and_indices(self):
        for device in DEVICES:
            for size, stride, padding, dilation in (((2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1)), ((3, 2, 3), (2, 1, 2), (1, 1, 0), (1, 1, 1)),
                                                    ((2, 2, 2), (1, 2, 1), (1, 0, 1), (2, 1, 2))):
                x = torch.randn(2, 3, 6, 5, 7, device=device)
                x[0, 0] = 1.0  # the first maximum wins
                got, where = F.max_pool3d(x, size, stride, padding, dilation, return_indices=True)
                for position, seen, padded, counts in windows(x, size, stride, padding, dilation, -float("inf")):
                    self.assertEqual(tuple(got.shape[2:]), tuple(counts))
                    columns = torch.stack([padded[(slice(None), slice(None), *at)] for at in seen], -1)
                    best, at = columns.max(-1)
                    self.assertTrue(torch.equal(got[(..., *position)], best))
                    flat = torch.tensor([((s[0] - padding[0]) * 5 + s[1] - padding[1]) * 7 + s[2] - padding[2] for s in seen], device=device)
                    self.assertTrue(torch.equal(where[(..., *position)], flat[at]))

    def test_avg_pool(self):
        for device in DEVICES:
            x = torch.randn(2, 3, 6, 5, 7, device=device)
            for size, stride, padding in (((2, 2, 2), (2, 2, 2), (0, 0, 0)), ((3, 2, 3), (2, 1, 2), (1, 1, 0))):
                got = F.avg_pool3d(x, size, stride, padding)
                inside = F.avg_pool3d(x, size, stride, padding, count_include_pad=False)
                by = F.avg_pool3d(x, size, stride, padding, divisor_override=5)
                ones = torch.ones_like(x)
                for position, seen, padded, _ in windows(x, size, stride, padding, (1, 1, 1), 0.0):
                    total = sum(padded[(slice(None), slice(None), *at)] for at in seen)
                    count = sum(F.pad(ones, [p for p in reversed(padding) for _ in range(2)])[(0, 0, *at)] for at in seen)
                    self.assertTrue(torch.allclose(got[(..., *position)], total / len(seen), atol=1e-5))
                    self.assertTrue(torch.allclose(inside[(..., *position)], total / count, atol=1e-5))
                    self.assertTrue(torch.allclose(by[(..., *position)], total / 5, atol=1e-5))

    def test_adaptive_pooling(self):
        for device in DEVICES:
            x = torch.randn(2, 3, 5, 4, 7, device=device)
            size = (3, 2, 4)
            mean, (top, where) = F.adaptive_avg_pool3d(x, size), F.adaptive_max_pool3d(x, size, return_indices=True)
            for position in itertools.product(*map(range, size)):
                part = x[(..., *(slice(p * n // m, -(-(p + 1) * n // m)) for p, n, m in zip(position, (5, 4, 7), size)))]
                self.assertTrue(torch.allclose(mean[(..., *position)], part.mean((-3, -2, -1)), atol=1e-5))
                self.assertTrue(torch.equal(top[(..., *position)], part.amax((-3, -2, -1))))
            self.assertTrue(torch.equal(x.flatten(2).gather(2, where.flatten(2)), top.flatten(2)))
        self.assertEqual(F.adaptive_avg_pool2d(torch.ones(1, 2, 5, 6), (None, 3)).shape, (1, 2, 5, 3))
        self.assertEqual(F.adaptive_max_pool2d(torch.ones(1, 2, 5, 6), (2, None)).shape, (1, 2, 2, 6))

    def test_gradients(self):
        x = torch.randn(1, 2, 4, 3, 5, dtype=torch.float64, requires_grad=True)
        for f in (lambda x: F.max_pool3d(x, 2, 1), lambda x: F.avg_pool3d(x, 2, 1, 1, True, False), lambda x: F.adaptive_avg_pool3d(x, (3, 2, 2)),
                  lambda x: F.adaptive_max_pool3d(x, (3, 2, 2)), lambda x: F.adaptive_max_pool2d(x[0], 2), lambda x: F.lp_pool3d(x.abs() + 0.1, 3.0, 2)):
            self.assertTrue(torch.autograd.gradcheck(f, (x,)))
            self.assertTrue(torch.autograd.gradcheck(lambda x: torch.autograd.grad(f(x).pow(2).sum(), x, create_graph=True)[0], (x,)))

    def test_return_indices_of_every_pool(self):
        x = torch.randn(2, 3, 8, 6, 4)
        for dims in (1, 2, 3):
            image = x[(slice(None), slice(None), *[0] * (3 - dims))]
            for name, size in ((f"max_pool{dims}d", 2), (f"adaptive_max_pool{dims}d", 2)):
                f = getattr(F, name)
                alone, (top, where) = f(image, size), f(image, size, return_indices=True)
                self.assertTrue(torch.equal(alone, top) and torch.equal(image.flatten(2).gather(2, where.flatten(2)), top.flatten(2)))
                self.assertTrue(torch.equal(getattr(F, name + "_with_indices")(image, size)[1], where))
                kind = getattr(nn, "".join(word.capitalize() for word in name.split("_"))[:-2] + f"{dims}d")
                self.assertTrue(torch.equal(kind(size, return_indices=True)(image)[1], where))
                self.assertIsInstance(kind(size)(image), torch.Tensor)

    def test_max_unpool(self):
        x = torch.randn(2, 3, 8, 6, 4)
        for dims in (1, 2, 3):
            image = x[(slice(None), slice(None), *[0] * (3 - dims))]
            pool, unpool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True), getattr(nn, f"MaxUnpool{dims}d")(2)
            top, where = pool(image)
            back = unpool(top, where)
            self.assertEqual(back.shape, image.shape)
            self.assertTrue(torch.equal(pool(back)[0].clamp_min(0), top.clamp_min(0)))
            self.assertTrue(torch.equal(back.flatten(2).gather(2, where.flatten(2)), top.flatten(2)))
        top, where = F.max_pool2d(torch.randn(1, 1, 5, 5), 2, return_indices=True)
        self.assertEqual(nn.MaxUnpool2d(2)(top, where, output_size=torch.Size([1, 1, 5, 5])).shape, (1, 1, 5, 5))
        self.assertEqual(nn.MaxUnpool2d(2)(top, where, [5, 5]).shape, (1, 1, 5, 5))
        with self.assertRaisesRegex(ValueError, r'invalid output_size "\(9, 9\)" \(dim 0 must be between 2 and 6\)'):
            F.max_unpool2d(top, where, 2, output_size=(9, 9))
        with self.assertRaisesRegex(RuntimeError, r"Found an invalid max index: 40 \(output volumes are of size 4x4\)"):
            F.max_unpool2d(top, where * 0 + 40, 2)
        with self.assertRaisesRegex(RuntimeError, "numel: integer multiplication overflow"):
            F.max_unpool3d(torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int64), 2**31 - 1)
        with self.assertRaisesRegex(RuntimeError, "integer out of range"):
            F.max_unpool1d(torch.ones(1, 3), torch.zeros(1, 3, dtype=torch.int64), 2, 2**62)

    def test_pooling_errors(self):
        x = torch.ones(2, 4, 5, 5, 5)
        for call, text in ((lambda: F.max_pool3d(x, 6), r"Given input size: \(4x5x5x5\). Calculated output size: \(4x0x0x0\). Output size is too small"),
                           (lambda: F.avg_pool3d(x, 6), r"input image \(T: 5 H: 5 W: 5\) smaller than kernel size \(kT: 6 kH: 6 kW: 6\)"),
                           (lambda: F.max_pool3d(x, (2, 2)), "max_pool3d: kernel_size must either be a single int, or a tuple of three ints"),
                           (lambda: F.max_pool3d(x, 2, padding=2), "pad should be at most half of effective kernel size"),
                           (lambda: F.avg_pool3d(x, 2, divisor_override=0), "divisor must be not zero"),
                           (lambda: F.adaptive_max_pool3d(x[..., :0], 2), r"with dimension 4 being empty")):
            with self.assertRaisesRegex(RuntimeError, text):
                call()


class Sizes(unittest.TestCase):
    def test_interpolate_volumes(self):
        x = torch.arange(8.0).view(1, 1, 2, 2, 2)
        self.assertTrue(torch.equal(F.interpolate(x, scale_factor=2), x.repeat_interleave(2, 2).repeat_interleave(2, 3).repeat_interleave(2, 4)))
        corners = F.interpolate(x, size=3, mode="trilinear", align_corners=True)
        self.assertEqual((corners[0, 0, 0, 0].tolist(), corners[0, 0, :, 1, 1].tolist()), ([0, 0.5, 1], [1.5, 3.5, 5.5]))
        self.assertEqual(F.interpolate(x, scale_factor=(1, 2, 3), mode="trilinear").shape, (1, 1, 2, 4, 6))
        for dims in (1, 2, 3):
            image = torch.randn(1, 2, 5, 6, 7)[(slice(None), slice(None), *[0] * (3 - dims))]
            self.assertTrue(torch.equal(F.interpolate(image, size=[3] * dims, mode="area"), getattr(F, f"adaptive_avg_pool{dims}d")(image, 3)))
        with self.assertRaisesRegex(NotImplementedError, "Got 5D input, but bilinear mode needs 4D input"):
            F.interpolate(x, size=3, mode="bilinear")

    def antialias_weights(self, size, to, reach, corners):
        """Antialias weights [to, size]: the filter is as wide as an output element's span of input elements."""
        scale = ((size - 1) / (to - 1) if to > 1 else 0) if corners else size / to
        filters = {1: lambda x: max(0, 1 - x), 2: lambda x: (1.5 * x - 2.5) * x * x + 1 if x < 1 else ((-0.5 * x + 2.5) * x - 4) * x + 2 if x < 2 else 0}
        rows = []
        for i in range(to):
            centre, wide = scale * (i + 0.5), max(scale, 1)
            first, end = max(0, int(centre - reach * wide + 0.5)), min(size, int(centre + reach * wide + 0.5))
            row = [filters[reach](abs(j - centre + 0.5) / wide) if first <= j < end else 0 for j in range(size)]
            rows.append([w / sum(row) for w in row])
        return torch.tensor(rows, dtype=torch.float64)

    def test_antialiased_downsampling(self):
        x = torch.randn(2, 3, 9, 7, dtype=torch.float64)
        for device in DEVICES:
            for mode, reach in (("bilinear", 1), ("bicubic", 2)):
                for size, corners in (((3, 2), False), ((4, 6), True), ((12, 5), False), ((1, 1), True)):
                    got = F.interpolate(x.to(device), size, mode=mode, align_corners=corners, antialias=True).cpu()
                    rows, columns = self.antialias_weights(9, size[0], reach, corners), self.antialias_weights(7, size[1], reach, corners)
                    self.assertTrue(torch.allclose(got, rows @ x @ columns.t(), atol=1e-9), (mode, size, corners))
        self.assertEqual(F.interpolate(x.float(), (3, 2), mode="lanczos", antialias=True).shape, (2, 3, 3, 2))
        constant = F.interpolate(torch.full((1, 1, 9, 9), 7, dtype=torch.uint8), (2, 4), mode="bicubic", antialias=True)
        self.assertEqual((constant.dtype, set(constant.flatten().tolist())), (torch.uint8, {7}))
        leaf = torch.randn(1, 1, 6, 5, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda x: F.interpolate(x, (2, 3), mode="bicubic", antialias=True), (leaf,)))
        with self.assertRaisesRegex(ValueError, "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes"):
            F.interpolate(x, (3, 4), antialias=True)

    def test_convolution_padding_modes(self):
        for dims in (1, 2, 3):
            x = torch.randn(2, 3, *(5, 6, 4)[:dims])
            for mode in ("reflect", "replicate", "circular"):
                for padding in (1, "same", "valid"):
                    layer = getattr(nn, f"Conv{dims}d")(3, 2, 3, padding=padding, padding_mode=mode)
                    around = 0 if padding == "valid" else 1
                    plain = getattr(F, f"conv{dims}d")(F.pad(x, [around] * 2 * dims, mode), layer.weight, layer.bias)
                    self.assertTrue(torch.allclose(layer(x), plain, atol=1e-5))
        self.assertEqual(repr(nn.Conv1d(1, 2, 3, padding_mode="reflect")), "Conv1d(1, 2, kernel_size=(3,), stride=(1,), padding_mode=reflect)")
        with self.assertRaisesRegex(ValueError, "padding_mode must be one of .*, but got padding_mode='foo'"):
            nn.Conv2d(1, 1, 1, padding_mode="foo")
        with self.assertRaisesRegex(ValueError, 'Only "zeros" padding mode is supported for ConvTranspose2d'):
            nn.ConvTranspose2d(1, 1, 1, padding_mode="reflect")

    def test_conv_transpose_output_size(self):
        for dims in (1, 2, 3):
            layer, x = getattr(nn, f"ConvTranspose{dims}d")(2, 3, 3, stride=2), torch.randn(1, 2, *[3] * dims)
            self.assertEqual(layer(x, [8] * dims).shape, (1, 3, *[8] * dims))
            self.assertEqual(layer(x, output_size=torch.Size([1, 3] + [7] * dims)).shape, (1, 3, *[7] * dims))
            self.assertTrue(torch.equal(layer(x, output_size=None), layer(x)))
            with self.assertRaisesRegex(ValueError, r"requested an output size of \[9.*\], but valid sizes range from \[7.*\] to \[8.*\]"):
                layer(x, [9] * dims)
            with self.assertRaisesRegex(ValueError, f"ConvTranspose{dims}D: for {dims + 2}D input, output_size must have {dims} or {dims + 2} elements"):
                layer(x, [9] * (dims + 1))


if __name__ == "__main__":
    unittest.main()
