# SPDX-License-Identifier: Apache-2.0
"""Memory formats: strides compared with PyTorch's, values compared with those of row-major tensors, and operations that preserve a format."""
import copy
import io
import unittest

import memory_formats

import phlox as torch
from phlox import nn
from phlox.nn import functional as F

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
LAST, LAST_3D = torch.channels_last, torch.channels_last_3d
# 1x1 images are both row-major and channels last. PyTorch's batch norm treats its result as the former and its gradient as the latter.
UNLIKE = {"batch_norm_True 2x3x1x1", "batch_norm_False 2x3x1x1"}


def is_channels_last(*tensors):
    return all(t.is_contiguous(memory_format=LAST if t.dim() == 4 else LAST_3D) and not t.is_contiguous() for t in tensors)


def disable_tf32(test):
    """Disables TF32 for convolutions on GPUs, since its rounding depends on the order of additions."""
    test.addCleanup(setattr, torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
    torch.backends.cudnn.allow_tf32 = False


class Strides(unittest.TestCase):
    def test_strides_match_pytorch(self):
        with open(memory_formats.TABLE) as table:
            wanted = table.read().splitlines()
        found = list(memory_formats.cases(torch))
        self.assertEqual(len(found), len(wanted))
        for want, have in zip(wanted, found):
            if " ".join(want.split()[:2]) not in UNLIKE:
                self.assertEqual(have, want)

    def test_values_are_independent_of_layout(self):
        disable_tf32(self)
        others = {"cpu_last", "dropout", "rand_like", "randn_like", "randint_like_last", "empty_like", "empty_last", "is_last",
                  "is_row_major", "suggests_last"}
        for device in DEVICES:
            with torch.device(device):
                for name, (f, grads, dims) in memory_formats.ops(torch).items():
                    for shape in memory_formats.SHAPES:
                        if len(shape) in dims and name not in others:
                            self.compare(f"{name} {shape} {device}", f, grads, shape)

    def compare(self, name, f, grads, shape):
        wanted = None
        for order in "clsr":
            x = memory_formats.make(torch, shape, order).detach().requires_grad_(grads)
            made = f(x)
            made = made[0] if isinstance(made, tuple) else made
            seed = memory_formats.make(torch, tuple(made.shape), "l" if order != "c" and made.dim() > 3 else "c").to(made.dtype)
            found = [made.double()] + ([torch.autograd.grad(made, x, seed)[0].double()] if grads else [])
            wanted = wanted or found
            for want, have in zip(wanted, found):
                self.assertTrue(torch.allclose(want, have, 1e-4, 1e-5, equal_nan=True), f"{name} {order}")

    def test_empty_tensors_have_memory_format(self):
        for shape, strides in (((0, 3, 4, 5), (60, 1, 15, 3)), ((2, 0, 4, 5), (0, 1, 0, 0))):
            made = torch.empty(shape, memory_format=LAST)
            self.assertEqual(made.stride(), strides)
            self.assertEqual(torch.empty_like(made).stride(), strides)
            self.assertTrue(made.is_contiguous() and made.is_contiguous(memory_format=LAST))

    def test_copies_of_strided_tensors_keep_dimension_order(self):
        x = torch.zeros(4, 6, 8).permute(2, 0, 1)[::2, 1:3]
        for made in (x.clone(), torch.empty_like(x), x.to(torch.float64), x + 1, x.to("cpu", copy=True)):
            self.assertEqual(made.stride(), (1, 24, 4))
        expanded = torch.zeros(3, 1, 5).expand(3, 2, 5)
        self.assertEqual(expanded.clone().stride(), (10, 5, 1))
        self.assertEqual(torch.zeros(3, 5).t().expand(2, 5, 3).clone().stride(), (15, 1, 5))


class Preserved(unittest.TestCase):
    def each(self):
        for device in DEVICES:
            x = torch.randn(2, 3, 4, 5, device=device).to(memory_format=LAST)
            self.assertTrue(is_channels_last(x))
            yield device, x

    def test_moves_and_conversions(self):
        for device, x in self.each():
            made = [x.cpu(), x.double(), x.half(), x.to(device, torch.float64), x.detach(), x.data, copy.deepcopy(x), x.clone(), x.requires_grad_().float()]
            if device == "cuda":
                made += [x.cpu().cuda(), x.cpu().pin_memory(), x.to("cpu", non_blocking=True), torch.empty_like(x.cpu(), pin_memory=True).copy_(x)]
            self.assertTrue(is_channels_last(*made))
            for same in made:
                self.assertTrue(torch.allclose(same.detach().cpu().float(), x.detach().cpu(), 1e-2, 1e-3))

    def test_files_and_state_dicts(self):
        for device, x in self.each():
            model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(device).to(memory_format=LAST)
            file = io.BytesIO()
            torch.save({"x": x, "state": model.state_dict()}, file)
            file.seek(0)
            loaded = torch.load(file)
            self.assertTrue(is_channels_last(loaded["x"], loaded["state"]["0.weight"], model.state_dict()["0.weight"]))
            self.assertTrue(torch.equal(loaded["x"], x))
            plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(device)
            plain.load_state_dict(loaded["state"])
            self.assertTrue(plain[0].weight.is_contiguous())  # values are copied into the parameter, which keeps its layout
            self.assertTrue(is_channels_last(copy.deepcopy(model)[0].weight))

    def test_module_to_memory_format(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
        model(torch.randn(2, 3, 3, 3)).sum().backward()
        kept = model[0].weight
        self.assertIs(model.to(memory_format=LAST), model)
        self.assertIs(model[0].weight, kept)
        self.assertTrue(is_channels_last(kept, kept.grad))
        self.assertTrue(model[3].weight.is_contiguous())
        self.assertTrue(model.to(memory_format=torch.contiguous_format)[0].weight.is_contiguous())
        volume = nn.Conv3d(2, 3, 2).to(torch.float64, memory_format=LAST_3D)
        self.assertTrue(is_channels_last(volume.weight) and volume.weight.dtype == torch.float64)
        with self.assertRaisesRegex(RuntimeError, "required rank 4 tensor to use channels_last format"):
            nn.Conv3d(2, 3, 2).to(memory_format=LAST)

        class Own(nn.Conv2d):
            def _apply(self, fn, recurse=True):
                return super()._apply(fn, recurse)
        self.assertTrue(is_channels_last(Own(3, 4, 3).to(memory_format=LAST).weight))

    def test_gradients_match_leaf_layout(self):
        for device, x in self.each():
            leaf = x.detach().requires_grad_()
            (leaf.reshape(2, -1) ** 2).sum().backward()
            self.assertTrue(is_channels_last(leaf.grad))
            leaf.reshape(2, -1).sum().backward()
            self.assertTrue(is_channels_last(leaf.grad))
            self.assertTrue(torch.allclose(leaf.grad, 2 * x + 1))
            holes = torch.zeros(2, 6, 4, 5, device=device)[:, ::2].requires_grad_()
            (holes * x).sum().backward()
            self.assertTrue(holes.grad.is_contiguous())

    @unittest.skipUnless(torch.cuda.device_count() > 1, "wants two devices")
    def test_replicas(self):
        x = torch.randn(4, 3, 6, 5).to("cuda:0").to(memory_format=LAST)
        model = nn.Conv2d(3, 4, 3).to("cuda:0").to(memory_format=LAST)
        parts = nn.parallel.scatter(x, [0, 1])
        self.assertTrue(is_channels_last(*parts, nn.parallel.gather(parts, 0)))
        made = nn.DataParallel(model, [0, 1])(x)
        self.assertTrue(is_channels_last(made) and torch.allclose(made, model(x), 1e-4, 1e-5))


class Block(nn.Module):
    """A residual block."""

    def __init__(self, channels, out, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.side = nn.Conv2d(channels, out, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.side(x))


class Training(unittest.TestCase):
    def losses(self, device, formed):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), Block(8, 8, 1), Block(8, 16, 2),
                              nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)).to(device)
        x, target = torch.randn(4, 3, 16, 16).to(device), torch.tensor([0, 1, 2, 3]).to(device)
        if formed:
            model, x = model.to(memory_format=LAST), x.to(memory_format=LAST)
            self.assertTrue(is_channels_last(model[:6](x)))
        optimizer, found = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), []
        for _ in range(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        if formed:
            self.assertTrue(is_channels_last(model[0].weight, model[0].weight.grad, model[4].a.weight))
        return found

    def test_residual_network_losses_match_across_formats(self):
        disable_tf32(self)
        for device in DEVICES:
            plain, formed = self.losses(device, False), self.losses(device, True)
            self.assertLess(plain[-1], plain[0])
            for a, b in zip(plain, formed):
                self.assertAlmostEqual(a, b, 3)


if __name__ == "__main__":
    unittest.main()
