# SPDX-License-Identifier: Apache-2.0
"""Embeddings and embedding bags, losses of classes and sequences, unfold, and random layers, compared with explicit computations."""
import itertools
import math
import unittest

import phlox as torch
from phlox import nn
from phlox.nn import functional as F

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


class Embeddings(unittest.TestCase):
    def test_max_norm_renormalizes_used_rows(self):
        for device in DEVICES:
            for p in (1.0, 2.0):
                weight = torch.arange(20.0, device=device).view(5, 4)
                before = weight.clone()
                F.embedding(torch.tensor([1, 2, 1], device=device), weight, max_norm=3.0, norm_type=p)
                for row in range(5):
                    norm = before[row].norm(p)
                    factor = 3 / (norm + 1e-7) if row in (1, 2) and norm > 3 else 1.0
                    self.assertTrue(torch.allclose(weight[row], before[row] * factor))
        layer = nn.Embedding(5, 3, max_norm=1.0)
        self.assertTrue(bool((layer(torch.arange(5)).norm(2, 1) <= 1.0001).all()))
        self.assertEqual(repr(layer), "Embedding(5, 3, max_norm=1.0)")

    def test_scale_grad_by_freq(self):
        for device in DEVICES:
            layer = nn.Embedding(5, 3, scale_grad_by_freq=True, padding_idx=4).to(device)
            (layer(torch.tensor([[1, 2], [1, 4]], device=device)) * torch.tensor([1.0, 2.0, 3.0], device=device)).sum().backward()
            self.assertEqual(layer.weight.grad.tolist(), [[0, 0, 0], [1, 2, 3], [1, 2, 3], [0, 0, 0], [0, 0, 0]])

    def reference(self, indices, weight, begins, mode, factors, padding):
        out = []
        for k, begin in enumerate(begins):
            end = begins[k + 1] if k + 1 < len(begins) else len(indices)
            rows = [weight[i] * (1.0 if factors is None else factors[at]) for at, i in enumerate(indices) if begin <= at < end and i != padding]
            out.append(torch.zeros_like(weight[0]) if not rows else torch.stack(rows).sum(0) if mode == "sum" else
                       torch.stack(rows).mean(0) if mode == "mean" else torch.stack(rows).amax(0))
        return torch.stack(out)

    def test_embedding_bag(self):
        indices, begins = [1, 2, 4, 3, 0, 2], [0, 3, 3, 5]
        for device, mode, padding in itertools.product(DEVICES, ("sum", "mean", "max"), (None, 2)):
            weight = torch.randn(5, 4, device=device, requires_grad=True)
            other = weight.detach().clone().requires_grad_()
            input, offsets = torch.tensor(indices, device=device), torch.tensor(begins, device=device)
            got = F.embedding_bag(input, weight, offsets, mode=mode, padding_idx=padding)
            wanted = self.reference(indices, other, begins, mode, None, padding)
            self.assertTrue(torch.allclose(got, wanted, atol=1e-6))
            grad = torch.randn(4, 4, device=device)
            got.backward(grad)
            wanted.backward(grad)
            self.assertTrue(torch.allclose(weight.grad, other.grad, atol=1e-6))
            last = F.embedding_bag(input, weight, torch.tensor([0, 3, 6], device=device), mode=mode, include_last_offset=True, padding_idx=padding)
            rows = F.embedding_bag(input.view(2, 3), weight, mode=mode, padding_idx=padding)
            self.assertTrue(torch.allclose(last, rows))
        factors = torch.arange(1.0, 7.0)
        weight = torch.randn(5, 4)
        got = F.embedding_bag(torch.tensor(indices), weight, torch.tensor(begins), mode="sum", per_sample_weights=factors)
        self.assertTrue(torch.allclose(got, self.reference(indices, weight, begins, "sum", factors, None), atol=1e-5))
        self.assertEqual(F.embedding_bag(torch.tensor(indices)[:0], weight, torch.tensor([0, 0])).tolist(), [[0.0] * 4] * 2)

    # Columns are split into blocks. The maximum is the first of equal values, or the first NaN.
    def test_embedding_bag_of_wide_rows_dtypes_and_threads(self):
        indices, offsets = torch.randint(0, 9, (400,)), torch.tensor([0, 3, 3, 120])
        threads = torch.get_num_threads()
        for dtype, columns, mode in itertools.product((torch.float32, torch.float64, torch.float16, torch.bfloat16), (1, 64, 131), ("sum", "mean", "max")):
            weight = torch.randint(-8, 8, (9, columns)).to(dtype)
            weight[4, 0] = float("nan") if mode == "max" else 1
            results = []
            for count in (1, 2, 7):
                torch.set_num_threads(count)
                leaf = weight.clone().requires_grad_()
                got = F.embedding_bag(indices, leaf, offsets, mode=mode)
                got.sum().backward()
                results.append((got.double().tolist(), leaf.grad.double().tolist()))
            torch.set_num_threads(threads)
            self.assertEqual(repr(results[1:]), repr(results[:1] * 2))
            wanted = self.reference(indices.tolist(), weight.double(), offsets.tolist(), mode, None, None)
            self.assertTrue(torch.allclose(got.double(), wanted, rtol=2 ** -7, equal_nan=True))
            if mode == "max":
                self.assertEqual(leaf.grad.double().sum().item(), columns * 3)

    def test_embedding_bag_max_memory(self):
        got = F.embedding_bag(torch.arange(20000), torch.arange(20000.0).unsqueeze(1), torch.arange(0, 20000, 2), mode="max")
        self.assertEqual(got.flatten().tolist(), [2.0 * i + 1 for i in range(10000)])

    def test_embedding_bag_layer(self):
        layer = nn.EmbeddingBag(5, 3, mode="sum", padding_idx=-1)
        self.assertEqual(repr(layer), "EmbeddingBag(5, 3, mode='sum', padding_idx=4)")
        self.assertEqual(layer.weight[4].tolist(), [0, 0, 0])
        input, offsets = torch.tensor([1, 2, 4, 3]), torch.tensor([0, 2])
        wanted = torch.stack([layer.weight[1] + layer.weight[2], layer.weight[3]])
        for got in (layer(input, offsets), layer(input, offsets=offsets), layer(input.view(2, 2)),
                    layer(input, offsets, torch.ones(4)), layer(input.view(2, 2), per_sample_weights=torch.ones(2, 2))):
            self.assertTrue(torch.allclose(got, wanted))

    def test_embedding_bag_errors(self):
        weight, input = torch.ones(5, 4), torch.tensor([1, 2, 3])
        for error, call, text in ((ValueError, lambda: F.embedding_bag(input, weight), "offsets has to be a 1D Tensor but got None"),
                                  (RuntimeError, lambda: F.embedding_bag(input, weight, torch.tensor([1])), r"offsets\[0\] has to be 0.*However, got 1"),
                                  (RuntimeError, lambda: F.embedding_bag(input, weight, torch.tensor([0, 9])), r"offsets\[-1\] can not be greater than input's length 3"),
                                  (ValueError, lambda: F.embedding_bag(input, weight, torch.tensor([0]), mode="foo"), "mode has to be one of sum, mean or max"),
                                  (NotImplementedError, lambda: F.embedding_bag(input, weight, torch.tensor([0]), sparse=True), "sparse=True is not implemented"),
                                  (NotImplementedError, lambda: F.embedding_bag(input, weight, torch.tensor([0]), per_sample_weights=torch.ones(3)), "only supported for mode='sum'"),
                                  (AssertionError, lambda: nn.EmbeddingBag(5, 3, padding_idx=7), "padding_idx must be within num_embeddings")):
            with self.assertRaisesRegex(error, text):
                call()


class Losses(unittest.TestCase):
    def test_multi_margin_loss(self):
        for device in DEVICES:
            x, target, weight = torch.randn(4, 5, device=device), torch.tensor([0, 4, 2, 2], device=device), torch.rand(5, device=device)
            for p, margin in ((1, 1.0), (2, 0.5)):
                got = F.multi_margin_loss(x, target, p, margin, weight, reduction="none")
                for n in range(4):
                    y = int(target[n])
                    wanted = sum(weight[y] * max(0.0, float(margin - x[n, y] + x[n, j])) ** p for j in range(5) if j != y) / 5
                    self.assertAlmostEqual(float(got[n]), float(wanted), places=5)
            self.assertAlmostEqual(float(F.multi_margin_loss(x[0], target[0])), float(F.multi_margin_loss(x[:1], target[:1])), places=6)

    def test_multilabel_margin_loss(self):
        for device in DEVICES:
            x = torch.randn(3, 4, device=device)
            sets = [[3, 0, -1, 1], [1, -1, 0, 0], [0, 1, 2, 3]]
            got = F.multilabel_margin_loss(x, torch.tensor(sets, device=device), reduction="none")
            for n, row in enumerate(sets):
                mine = row[:row.index(-1)] if -1 in row else row
                wanted = sum(max(0.0, 1 - float(x[n, j] - x[n, i])) for j in mine for i in range(4) if i not in mine) / 4
                self.assertAlmostEqual(float(got[n]), wanted, places=5)
            target = (torch.rand(3, 4, device=device) > 0.5).float()
            got = F.multilabel_soft_margin_loss(x, target)
            self.assertAlmostEqual(float(got), float(F.binary_cross_entropy_with_logits(x, target)), places=5)

    def ctc_reference(self, log_probs, target, blank):
        """The loss as the sum over all alignments that collapse to the target."""
        times, classes = log_probs.shape
        total = 0.0
        for way in itertools.product(range(classes), repeat=times):
            kept = [c for k, c in enumerate(way) if (k == 0 or way[k - 1] != c)]
            if [c for c in kept if c != blank] == target:
                total += math.exp(sum(float(log_probs[t, c]) for t, c in enumerate(way)))
        return -math.log(total) if total else math.inf

    def test_ctc_sums_over_alignments(self):
        for device, blank in itertools.product(DEVICES, (0, 2)):
            log_probs = torch.randn(5, 3, 3, dtype=torch.float64, device=device).log_softmax(2)
            classes = [c for c in range(3) if c != blank]
            targets = [[classes[0], classes[1]], [classes[1], classes[1]], []]
            lengths, padded = [5, 4, 3], torch.tensor([row + [blank] * (2 - len(row)) for row in targets])
            wanted = [self.ctc_reference(log_probs[:n, k], row, blank) for k, (n, row) in enumerate(zip(lengths, targets))]
            sizes = [len(row) for row in targets]
            for got in (F.ctc_loss(log_probs, padded, torch.tensor(lengths), torch.tensor(sizes), blank, "none"), F.ctc_loss(log_probs, padded, lengths, sizes, blank, "none"),
                        F.ctc_loss(log_probs, torch.tensor([c for row in targets for c in row]), lengths, sizes, blank, "none")):
                for a, b in zip(got.tolist(), wanted, strict=True):
                    self.assertAlmostEqual(a, b, places=9)
            mean = F.ctc_loss(log_probs, padded, lengths, sizes, blank)
            self.assertAlmostEqual(float(mean), sum(w / max(n, 1) for w, n in zip(wanted, sizes)) / 3, places=9)
            layer = torch.nn.CTCLoss(blank, reduction="none")
            for given in (lengths, sizes), (tuple(lengths), tuple(sizes)), (torch.tensor(lengths), sizes):
                self.assertEqual(layer(log_probs, padded, *given).tolist(), got.tolist())
            with self.assertRaisesRegex(TypeError, r"argument 'target_lengths' \(position 4\) must be Tensor, not str"):
                layer(log_probs, padded, lengths, "ab")
            alone = F.ctc_loss(log_probs[:, 0], padded[0], torch.tensor(5), torch.tensor(2), blank, "none")
            self.assertAlmostEqual(float(alone), wanted[0], places=9)

    def test_ctc_gradients(self):
        x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)

        def f(x):
            return F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2], [2, 2]]), [4, 3], [2, 1], reduction="none")

        self.assertTrue(torch.autograd.gradcheck(f, (x,)))
        self.assertTrue(torch.autograd.gradcheck(lambda x: torch.autograd.grad(f(x).sum(), x, create_graph=True)[0], (x,)))

    def test_ctc_in_half_precision(self):
        x = torch.randn(4, 2, 3)
        wanted = F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2], [2, 2]]), [4, 4], [2, 1])
        for dtype in (torch.float16, torch.bfloat16):
            leaf = x.to(dtype).requires_grad_()
            got = F.ctc_loss(leaf.log_softmax(2), torch.tensor([[1, 2], [2, 2]]), [4, 4], [2, 1])
            got.backward()
            self.assertEqual((got.dtype, leaf.grad.dtype), (dtype, dtype))
            self.assertAlmostEqual(float(got.detach()), float(wanted), delta=0.1)

    def test_ctc_infeasible_targets(self):
        x = torch.randn(2, 1, 3, requires_grad=True)
        call = lambda **how: F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 1]]), [2], [2], reduction="sum", **how)
        self.assertEqual(float(call()), math.inf)
        zero = call(zero_infinity=True)
        zero.backward()
        self.assertEqual((float(zero), x.grad.abs().sum().item()), (0.0, 0.0))

    def test_ctc_errors(self):
        lp, targets = torch.zeros(4, 2, 3), torch.tensor([[1, 2], [2, 2]])
        for call, text in ((lambda: F.ctc_loss(lp, targets, [9, 1], [1, 1]), "Expected input_lengths to have value at most 4, but got value 9"),
                           (lambda: F.ctc_loss(lp, targets, [4, 4], [1, -1]), "Expected target_lengths to have value at least 0, but got value -1"),
                           (lambda: F.ctc_loss(lp, targets, [4], [1, 1]), "input_lengths must be of size batch_size"),
                           (lambda: F.ctc_loss(lp, targets, [4, 4], [1, 1], blank=3), "blank must be in label range"),
                           (lambda: F.ctc_loss(lp, targets, [4, 4], [3, 1]), "Expected tensor to have size at least 3 at dimension 1, but got size 2"),
                           (lambda: F.ctc_loss(lp, targets * 5, [4, 4], [1, 1]), r"class 5 of targets is not in \[0, 3\)")):
            with self.assertRaisesRegex(RuntimeError, text):
                call()


class Images(unittest.TestCase):
    def test_unfold_and_fold(self):
        for device in DEVICES:
            x = torch.randn(2, 3, 5, 6, device=device)
            for size, dilation, padding, stride in (((2, 3), (1, 1), (0, 0), (1, 1)), ((2, 2), (2, 1), (1, 0), (1, 2))):
                got = F.unfold(x, size, dilation, padding, stride)
                padded = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
                counts = [(padded.shape[2 + k] - dilation[k] * (size[k] - 1) - 1) // stride[k] + 1 for k in range(2)]
                self.assertEqual(got.shape, (2, 3 * size[0] * size[1], counts[0] * counts[1]))
                for at, (i, j) in enumerate(itertools.product(*map(range, counts))):
                    rows = slice(i * stride[0], i * stride[0] + dilation[0] * (size[0] - 1) + 1, dilation[0])
                    columns = slice(j * stride[1], j * stride[1] + dilation[1] * (size[1] - 1) + 1, dilation[1])
                    self.assertTrue(torch.equal(got[:, :, at], padded[:, :, rows, columns].reshape(2, -1)))
                other = torch.randn_like(got)
                back = F.fold(other, (5, 6), size, dilation, padding, stride)
                self.assertAlmostEqual(float((got * other).sum()), float((x * back).sum()), places=3)
            self.assertTrue(torch.equal(F.unfold(x[0], 2), F.unfold(x, 2)[0]))
            self.assertTrue(torch.equal(F.fold(other[0], (5, 6), size, dilation, padding, stride), back[0]))
        with self.assertRaisesRegex(RuntimeError, r"calculated shape of the array of sliding blocks as \(-3, -2\)"):
            F.unfold(x, 9)
        with self.assertRaisesRegex(RuntimeError, r"sliding blocks 4 \* 5 = 20, but got input.size\(2\)=7"):
            F.fold(torch.ones(1, 4, 7), (5, 6), 2)

    def test_local_response_norm(self):
        x = torch.randn(2, 5, 3, 2)
        got = F.local_response_norm(x, 3, alpha=0.1, beta=0.5, k=2.0)
        for c in range(5):
            mean = (x[:, max(c - 1, 0):c + 2] ** 2).sum(1) / 3
            self.assertTrue(torch.allclose(got[:, c], x[:, c] / (2 + 0.1 * mean) ** 0.5, atol=1e-6))
        self.assertEqual(F.local_response_norm(x[..., 0], 2).shape, (2, 5, 3))

    def test_pdist(self):
        x = torch.randn(4, 3)
        self.assertTrue(torch.allclose(F.pdist(x), torch.stack([(x[i] - x[j]).norm() for i in range(4) for j in range(i + 1, 4)])))


class RandomLayers(unittest.TestCase):
    def test_alpha_dropout_keeps_mean_and_variance(self):
        x = torch.randn(200, 200)
        y = F.alpha_dropout(x, 0.3, training=True)
        self.assertAlmostEqual(float(y.mean()), 0, delta=0.05)
        self.assertAlmostEqual(float(y.std()), 1, delta=0.05)
        self.assertTrue(torch.equal(F.alpha_dropout(x, 0.3), x))
        channels = F.feature_alpha_dropout(torch.zeros(6, 7, 3, 3), 0.5, training=True).flatten(2)
        self.assertTrue(torch.equal(channels, channels[:, :, :1].expand(6, 7, 9)))

    def test_dropout3d_drops_channels(self):
        y = F.dropout3d(torch.ones(6, 7, 2, 2, 2), 0.5).flatten(2)
        self.assertTrue(torch.equal(y, y[:, :, :1].expand(6, 7, 8)))
        self.assertEqual(set(y.flatten().tolist()), {0.0, 2.0})
        with self.assertWarnsRegex(UserWarning, "Received a 2-D input to dropout3d"):
            F.dropout3d(torch.ones(2, 3))

    def test_rrelu(self):
        x = torch.randn(1000)
        y = F.rrelu(x, 0.2, 0.4, training=True)
        below = x < 0
        self.assertTrue(torch.equal(y[~below], x[~below]))
        slopes = y[below] / x[below]
        self.assertTrue(0.2 <= float(slopes.min()) < 0.25 and 0.35 < float(slopes.max()) <= 0.4001)
        self.assertTrue(torch.allclose(nn.RReLU(0.2, 0.4).eval()(x), F.leaky_relu(x, 0.3)))
        z = x.clone()
        self.assertEqual(F.rrelu(z, inplace=True).data_ptr(), z.data_ptr())

    def test_gumbel_softmax(self):
        logits = torch.tensor([[0.0, math.log(3.0)]]).expand(4000, 2).clone().requires_grad_()
        soft, hard = F.gumbel_softmax(logits), F.gumbel_softmax(logits, hard=True)
        self.assertTrue(torch.allclose(soft.sum(1), torch.ones(4000)))
        self.assertAlmostEqual(float(hard[:, 1].mean()), 0.75, delta=0.03)
        self.assertEqual(set(hard.flatten().round().tolist()), {0.0, 1.0})
        hard[:, 1].sum().backward()
        self.assertGreater(float(logits.grad.abs().sum()), 0)


if __name__ == "__main__":
    unittest.main()
