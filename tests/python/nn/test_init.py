# SPDX-License-Identifier: Apache-2.0
"""torch.nn.init functions other than uniform and normal, and layers built from other layers or from user-supplied values."""
import unittest
import warnings

import phlox as torch
from phlox import nn
from phlox.nn import functional as F
from phlox.nn import init

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


class Inits(unittest.TestCase):
    def test_orthogonal(self):
        for device in DEVICES:
            for shape, gain in (((3, 5), 1), ((5, 3), 2), ((4, 2, 3), 1), ((3, 3), 0.5)):
                flat = init.orthogonal_(torch.empty(*shape, device=device), gain).flatten(1)
                square = flat @ flat.t() if flat.shape[0] < flat.shape[1] else flat.t() @ flat
                self.assertTrue(torch.allclose(square, torch.eye(square.shape[0], device=device) * gain ** 2, atol=1e-5))

    def test_eye_and_dirac(self):
        self.assertEqual(init.eye_(torch.empty(2, 3)).tolist(), [[1, 0, 0], [0, 1, 0]])
        for dims in (1, 2, 3):
            x = torch.randn(1, 4, *[5] * dims)
            self.assertTrue(torch.equal(getattr(F, f"conv{dims}d")(x, init.dirac_(torch.empty(4, 4, *[3] * dims)), padding=1), x))
            grouped = init.dirac_(torch.empty(4, 2, *[3] * dims), 2)
            self.assertTrue(torch.equal(getattr(F, f"conv{dims}d")(x, grouped, padding=1, groups=2), x))
        sparse = init.sparse_(torch.empty(10, 4), 0.35)
        self.assertEqual((sparse == 0).sum(0).tolist(), [4] * 4)

    def test_trunc_normal(self):
        for device in DEVICES:
            for mean, std, a, b in ((0.0, 1.0, -0.5, 2.0), (0.0, 1.0, 2.0, 3.0), (1.0, 0.5, -9.0, 9.0)):
                x = init.trunc_normal_(torch.empty(20000, device=device), mean, std, a, b)
                self.assertTrue(a <= float(x.min()) and float(x.max()) <= b)
            self.assertAlmostEqual(float(x.mean()), 1.0, delta=0.03)
            self.assertAlmostEqual(float(x.std()), 0.5, delta=0.03)
            tail = init.trunc_normal_(torch.empty(20000, device=device), 0.0, 1.0, 2.0, 3.0)
            self.assertAlmostEqual(float(tail.mean()), 2.3158, delta=0.02)
        with self.assertWarnsRegex(UserWarning, r"mean is more than 2 std from \[a, b\]"):
            init.trunc_normal_(torch.empty(2), 5.0)

    def test_parameters_stay_leaves(self):
        layer = nn.Linear(3, 3)
        for fill in (init.orthogonal_, init.eye_, init.trunc_normal_, lambda w: init.sparse_(w, 0.5)):
            self.assertIs(fill(layer.weight), layer.weight)
            self.assertTrue(layer.weight.is_leaf and layer.weight.requires_grad)

    def test_errors(self):
        for call, text in ((lambda: init.eye_(torch.ones(3)), "Only tensors with 2 dimensions are supported"), (lambda: init.dirac_(torch.ones(3)), "3, 4, or 5"),
                           (lambda: init.dirac_(torch.ones(3, 2, 2), 2), "dim 0 must be divisible by groups"),
                           (lambda: init.orthogonal_(torch.ones(3)), "Only tensors with 2 or more dimensions are supported"),
                           (lambda: init._calculate_correct_fan(torch.ones(2, 2), "foo"), "Mode foo not supported")):
            with self.assertRaisesRegex(ValueError, text):
                call()
        self.assertEqual(init._calculate_fan_in_and_fan_out(torch.ones(3, 4, 5)), (20, 15))


class Layers(unittest.TestCase):
    def test_from_pretrained(self):
        weight = torch.randn(5, 4)
        for kind in (nn.Embedding, nn.EmbeddingBag):
            layer = kind.from_pretrained(weight, padding_idx=1)
            self.assertEqual((layer.weight.data_ptr(), layer.weight.requires_grad, layer.padding_idx), (weight.data_ptr(), False, 1))
            self.assertTrue(kind.from_pretrained(weight, freeze=False).weight.requires_grad)
        self.assertTrue(torch.equal(nn.Embedding.from_pretrained(weight)(torch.tensor([2])), weight[2:3]))
        with self.assertRaisesRegex(AssertionError, "expected to be 2-dimensional"):
            nn.Embedding.from_pretrained(weight[0])

    def test_triplet_margin_with_distance(self):
        a, p, n = torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 3)
        self.assertTrue(torch.allclose(nn.TripletMarginWithDistanceLoss()(a, p, n), F.triplet_margin_loss(a, p, n)))
        loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: (x - y).abs().sum(1), margin=2.0, swap=True, reduction="none")
        near, far, other = (a - p).abs().sum(1), (a - n).abs().sum(1), (p - n).abs().sum(1)
        self.assertTrue(torch.allclose(loss(a, p, n), (2 + near - torch.minimum(far, other)).relu()))
        with self.assertRaisesRegex(RuntimeError, "anchor 2D, positive 1D, and negative 2D"):
            F.triplet_margin_with_distance_loss(a, p[0], n)

    def test_sync_batch_norm_single_process(self):
        x = torch.randn(4, 3, 2, 5)
        norm, sync = nn.BatchNorm2d(3), nn.SyncBatchNorm(3)
        self.assertTrue(torch.equal(norm(x), sync(x)) and torch.equal(norm.running_var, sync.running_var))
        model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.ReLU())).eval()
        made = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        self.assertIs(type(made[1][0]), nn.SyncBatchNorm)
        self.assertTrue(torch.equal(made(x), model(x)) and not made[1][0].training)
        with self.assertRaisesRegex(ValueError, r"expected at least 2D input \(got 1D input\)"):
            sync(x[0, 0, 0])

    def test_upsample_functions(self):
        x = torch.randn(1, 2, 3, 4)
        self.assertTrue(torch.equal(F.upsample_nearest(x, scale_factor=2), F.interpolate(x, scale_factor=2)))
        self.assertTrue(torch.equal(F.upsample_bilinear(x, (5, 7)), F.interpolate(x, (5, 7), mode="bilinear", align_corners=True)))


class DeprecatedNames(unittest.TestCase):
    def test_deprecated_names_warn(self):
        for name, *more in ("uniform", 1, 2), ("normal", 1, 2), ("constant", 3), ("eye",), ("xavier_uniform",), ("xavier_normal",), ("kaiming_uniform",), \
                ("kaiming_normal",), ("orthogonal",), ("sparse", 0.5):
            results = []
            for older in True, False:
                torch.manual_seed(5)
                x = torch.zeros(4, 3)
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    results.append(getattr(torch.nn.init, name + "_" * (not older))(x, *more))
                self.assertIs(results[-1], x)
                self.assertEqual([(w.category, str(w.message)) for w in seen],
                                 [(FutureWarning, f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.")] * older)
            self.assertEqual(results[0].tolist(), results[1].tolist(), name)


if __name__ == "__main__":
    unittest.main()
