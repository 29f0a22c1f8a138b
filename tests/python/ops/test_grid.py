# SPDX-License-Identifier: Apache-2.0
"""grid_sample and affine_grid compared with an explicit computation, for every interpolation and padding mode."""
import itertools
import math
import unittest

import phlox as torch
from phlox.nn import functional as F

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def pad_coordinate(x, size, padding, corners):
    if padding == "zeros":
        return x
    if padding == "reflection":
        low, span = (0, size - 1) if corners else (-0.5, size)
        x = abs(x - low)
        turns, rest = divmod(x, span)
        x = (span - rest if turns % 2 else rest) + low
    return min(max(x, 0), size - 1)


def cubic_kernel(d, a=-0.75):
    return ((a + 2) * d - (a + 3)) * d * d + 1 if d <= 1 else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def taps(g, size, mode, padding, corners):
    """(index, weight) of the contributing elements along one dimension; indices may be out of range."""
    x = (g + 1) / 2 * (size - 1) if corners else ((g + 1) * size - 1) / 2
    if mode == "bicubic":
        low = math.floor(x)
        return [(pad_coordinate(low + k, size, padding, corners), cubic_kernel(abs(x - low - k))) for k in range(-1, 3)]
    x = pad_coordinate(x, size, padding, corners)
    if mode == "nearest":
        return [(round(x), 1.0)]
    low = math.floor(x)
    return [(low, low + 1 - x), (low + 1, x - low)]


class Grids(unittest.TestCase):
    def reference(self, image, grid, mode, padding, corners):
        size, out = image.shape[2:], []
        for n, point in enumerate(grid.flatten(1, -2).tolist()):
            for coordinates in point:
                along = [taps(g, s, mode, padding, corners) for g, s in zip(reversed(coordinates), size)]
                total = torch.zeros(image.shape[1], dtype=image.dtype)
                for chosen in itertools.product(*along):
                    at = [int(p) for p, _ in chosen]
                    if all(0 <= p < s for p, s in zip(at, size)):
                        total = total + image[(n, slice(None), *at)] * math.prod(w for _, w in chosen)
                out.append(total)
        return torch.stack(out).view(image.shape[0], -1, image.shape[1]).transpose(1, 2).reshape(*image.shape[:2], *grid.shape[1:-1])

    def test_modes_and_paddings(self):
        for dims in (2, 3):
            image = torch.randn(2, 3, *(4, 5, 3)[:dims], dtype=torch.float64)
            grid = torch.randn(2, *(2, 3, 2)[:dims], dims, dtype=torch.float64)
            for mode, padding, corners in itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False)):
                if mode == "bicubic" and dims == 3:
                    continue
                wanted = self.reference(image, grid, mode, padding, corners)
                for device in DEVICES:
                    got = F.grid_sample(image.to(device), grid.to(device), mode, padding, corners)
                    self.assertTrue(torch.allclose(got.cpu(), wanted, atol=1e-9), (mode, padding, corners, dims))

    def test_gradients(self):
        image = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
        grid = (torch.rand(1, 2, 2, 2, dtype=torch.float64) * 1.6 - 0.8).requires_grad_()
        for mode, padding in (("bilinear", "zeros"), ("bilinear", "reflection"), ("bicubic", "border"), ("nearest", "zeros")):
            self.assertTrue(torch.autograd.gradcheck(lambda a, b: F.grid_sample(a, b, mode, padding, False), (image, grid)))

    def test_nan_and_inf_coordinates_contribute_nothing(self):
        grid = torch.tensor([[[[math.nan, 0.0], [math.inf, 0.0], [0.0, 0.0]]]])
        got = F.grid_sample(torch.ones(1, 1, 3, 3), grid, align_corners=True)
        self.assertEqual(got.flatten().tolist(), [0, 0, 1])

    def test_affine_grid(self):
        for dims, corners in itertools.product((2, 3), (True, False)):
            size = (2, 1, *(3, 4, 2)[:dims])
            same = torch.eye(dims, dims + 1).expand(2, dims, dims + 1)
            image = torch.randn(*size)
            self.assertTrue(torch.allclose(F.grid_sample(image, F.affine_grid(same, size, corners), align_corners=corners), image, atol=1e-5))
            flipped = same.clone()
            flipped[:, 0] *= -1
            self.assertTrue(torch.allclose(F.grid_sample(image, F.affine_grid(flipped, size, corners), align_corners=corners), image.flip(-1), atol=1e-5))
            theta = torch.randn(2, dims, dims + 1, dtype=torch.float64, requires_grad=True)
            self.assertTrue(torch.autograd.gradcheck(lambda t: F.affine_grid(t, size, corners), (theta,)))

    def test_warnings_and_errors(self):
        x, g = torch.ones(2, 2, 4, 5), torch.zeros(2, 3, 4, 2)
        with self.assertWarnsRegex(UserWarning, "has changed to align_corners=False since 1.3.0"):
            F.grid_sample(x, g)
        for error, call, text in ((ValueError, lambda: F.grid_sample(x, g, "foo"), "expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: 'foo'"),
                                  (RuntimeError, lambda: F.grid_sample(x, g[:1], align_corners=False), r"expected grid and input to have same batch size.*\[1, 3, 4, 2\]"),
                                  (RuntimeError, lambda: F.grid_sample(x, g[..., :1], align_corners=False), "expected grid to have size 2 in last dimension"),
                                  (RuntimeError, lambda: F.grid_sample(x, g.double(), align_corners=False), "expected scalar type Float but found Double"),
                                  (ValueError, lambda: F.affine_grid(torch.ones(2, 3), (2, 1, 3, 3), False), r"Expected a batch of 2D affine matrices of shape Nx2x3 for size \(2, 1, 3, 3\)")):
            with self.assertRaisesRegex(error, text):
                call()


if __name__ == "__main__":
    unittest.main()
