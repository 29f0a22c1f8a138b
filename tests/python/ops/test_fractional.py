# SPDX-License-Identifier: Apache-2.0
"""Fractional max pooling, compared with an explicit loop over windows on the CPU and on a simulated device; errors; and results compared with
PyTorch if it is installed."""
import itertools
import pickle
import unittest

import phlox as torch

try:
    import torch as pytorch
    pytorch = None if "phlox" in pytorch.__file__ else pytorch
except ImportError:
    pytorch = None

nn, F = torch.nn, torch.nn.functional
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
CASES = ((2, (7, 9), (2, 3), (4, 5)), (2, (8, 6), (3, 1), (6, 6)), (2, (5, 5), (5, 2), (1, 2)), (3, (6, 5, 7), (2, 3, 2), (3, 2, 4)), (3, (5, 4, 5), (1, 2, 4), (4, 1, 1)))


def window_start(sample, size, kernel, count, i):
    """The start of the i-th of `count` windows."""
    if i == count - 1:
        return size - kernel
    step = (size - kernel) / (count - 1)
    return int((i + sample) * step) - int(sample * step)


def reference(x, kernel, counts, samples):
    """The maxima and their indices, computed window by window."""
    dims, sizes = len(kernel), x.shape[2:]
    values, positions = torch.zeros(*x.shape[:2], *counts, dtype=x.dtype), torch.zeros(*x.shape[:2], *counts, dtype=torch.int64)
    for n, c in itertools.product(range(x.shape[0]), range(x.shape[1])):
        order = samples[n, c].flip(0) if dims == 2 else samples[n, c]
        for window in itertools.product(*map(range, counts)):
            at = [window_start(order[k].item(), sizes[k], kernel[k], counts[k], window[k]) for k in range(dims)]
            best = None
            for at_input in itertools.product(*(range(a, a + k) for a, k in zip(at, kernel))):
                value = x[(n, c, *at_input)].item()
                if best is None or value > best:
                    best, where = value, at_input
            flat = 0
            for k in range(dims):
                flat = flat * sizes[k] + where[k]
            values[(n, c, *window)], positions[(n, c, *window)] = best, flat
    return values, positions


class Pools(unittest.TestCase):
    def test_values_and_indices(self):
        torch.manual_seed(1)
        for device, (dims, sizes, kernel, counts) in itertools.product(DEVICES, CASES):
            with self.subTest(device=device, kernel=kernel):
                x, samples = torch.randn(2, 3, *sizes, dtype=torch.float64), torch.rand(2, 3, dims, dtype=torch.float64)
                wanted = reference(x, kernel, counts, samples)
                pool = getattr(F, f"fractional_max_pool{dims}d")
                given = pool(x.to(device), kernel, counts, return_indices=True, _random_samples=samples.to(device))
                for mine, theirs in zip(given, wanted):
                    self.assertTrue(torch.equal(mine.cpu(), theirs))
                one = pool(x[0].to(device), kernel, counts, _random_samples=samples[:1].to(device))
                self.assertTrue(torch.equal(one.cpu(), wanted[0][0]))
                layer = getattr(nn, f"FractionalMaxPool{dims}d")(kernel, counts, return_indices=True, _random_samples=samples).to(device)
                self.assertTrue(torch.equal(layer(x.to(device))[1].cpu(), wanted[1]))

    def test_gradients(self):
        x, samples = torch.randn(2, 2, 5, 6, dtype=torch.float64, requires_grad=True), torch.rand(2, 2, 2, dtype=torch.float64)
        self.assertTrue(torch.autograd.gradcheck(lambda x: F.fractional_max_pool2d(x, 3, (2, 3), _random_samples=samples), x))
        self.assertTrue(torch.autograd.gradgradcheck(lambda x: F.fractional_max_pool2d(x, 3, (2, 3), _random_samples=samples).square(), x))

    def test_output_ratio_and_random_samples(self):
        x = torch.randn(2, 3, 8, 9)
        self.assertEqual(F.fractional_max_pool2d(x, 2, output_ratio=(0.5, 0.7)).shape, (2, 3, 4, 6))
        self.assertEqual(nn.FractionalMaxPool2d(2, output_ratio=0.5)(x).shape, (2, 3, 4, 4))
        self.assertEqual(nn.FractionalMaxPool3d(2, 3)(torch.randn(2, 3, 5, 4, 6)).shape, (2, 3, 3, 3, 3))
        torch.manual_seed(5)
        first = F.fractional_max_pool2d(x, 2, 6)
        others = [F.fractional_max_pool2d(x, 2, 6) for _ in range(5)]
        self.assertFalse(all(torch.equal(first, other) for other in others))
        torch.manual_seed(5)
        self.assertTrue(torch.equal(F.fractional_max_pool2d(x, 2, 6), first))
        self.assertEqual(F.fractional_max_pool2d(x[:0], 2, 6).shape, (0, 3, 6, 6))
        self.assertTrue(F.fractional_max_pool2d(torch.tensor([[[1, float("nan")], [3, 4]]]), 2, 1).isnan().all())

    def test_attributes_repr_and_copies(self):
        layer = nn.FractionalMaxPool2d(3, output_ratio=(0.5, 0.6))
        self.assertEqual((layer.kernel_size, layer.output_size, layer.output_ratio, layer.return_indices), ((3, 3), None, (0.5, 0.6), False))
        self.assertEqual(repr(layer), "FractionalMaxPool2d()")
        self.assertEqual(pickle.loads(pickle.dumps(layer)).output_ratio, (0.5, 0.6))

    def test_errors_match_pytorch(self):
        x, y, pool = torch.randn(2, 3, 7, 9), torch.randn(2, 3, 5, 6, 7), F.fractional_max_pool2d
        for call, error, text in (
                (lambda: pool(x, 3), ValueError, "fractional_max_pool2d requires specifying either an output_size or an output_ratio"),
                (lambda: pool(x, 8, 2), RuntimeError, r"fractional_max_pool2d\(\): pool height 8 too large relative to input height 7"),
                (lambda: pool(x, (2, 10), 2), RuntimeError, "pool width 10 too large relative to input width 9"),
                (lambda: pool(x, 2, (2, 9)), RuntimeError, "pool width 2 too large relative to input width 9"),
                (lambda: F.fractional_max_pool3d(y, (6, 2, 2), 2), RuntimeError, "pool time 6 too large relative to input time 5"),
                (lambda: pool(x[0, 0], 2, 2), IndexError, "expected 3D or 4D input"),
                (lambda: pool(x, 0, 2), RuntimeError, "kernel sizes must be positive"),
                (lambda: pool(x[:, :0], 2, 2), RuntimeError, "Expected input to have non-zero size for non-batch dimensions"),
                (lambda: pool(x, 2, output_ratio=(0.5,) * 3), ValueError, "requires output_ratio to either be a single Int or tuple of Ints"),
                (lambda: pool(x, 2, 2, _random_samples=torch.rand(2, 3, 3)), RuntimeError, r"Expect _random_samples.size\(2\) equals to 2; got 3"),
                (lambda: pool(x, 2, 2, _random_samples=torch.rand(2, 2, 2)), RuntimeError, r"Expect _random_samples.size\(1\) equals to input channel size"),
                (lambda: pool(x, 2, 2, _random_samples=torch.rand(1, 3, 2)), RuntimeError, r"Expect _random_samples.size\(0\) no less then input batch size"),
                (lambda: pool(x, 2, 2, _random_samples=torch.rand(2, 3, 2).double()), RuntimeError, "Expect _random_samples to have the same dtype as input"),
                (lambda: pool(x, 2, 2, _random_samples=torch.rand(2, 3)), RuntimeError, "Expect _random_samples to have 3 dimensions, got 2"),
                (lambda: nn.FractionalMaxPool2d(2), ValueError, "FractionalMaxPool2d requires specifying either an output size, or a pooling ratio"),
                (lambda: nn.FractionalMaxPool3d(2, 2, 0.5), ValueError, "only one of output_size and output_ratio may be specified"),
                (lambda: nn.FractionalMaxPool3d(2, output_ratio=(0.5, 0.5, 2)), ValueError, r"output_ratio must be between 0 and 1 \(got \(0.5, 0.5, 2\)\)")):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                call()

    @unittest.skipIf(pytorch is None, "PyTorch is not installed")
    def test_matches_pytorch(self):
        for dims, sizes, kernel, counts in CASES:
            x, samples = torch.randn(2, 3, *sizes), torch.rand(2, 3, dims)
            outcomes = []
            for library in (torch, pytorch):
                tensor = library.tensor(x.tolist(), requires_grad=True)
                values, positions = getattr(library.nn.functional, f"fractional_max_pool{dims}d")(tensor, kernel, counts, return_indices=True,
                                                                                              _random_samples=library.tensor(samples.tolist()))
                values.square().sum().backward()
                outcomes.append((values.tolist(), positions.tolist(), tensor.grad.tolist()))
            self.assertEqual(*outcomes)


if __name__ == "__main__":
    unittest.main()
