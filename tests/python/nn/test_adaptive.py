# SPDX-License-Identifier: Apache-2.0
"""AdaptiveLogSoftmaxWithLoss: probabilities and loss compared with an explicit softmax, on the CPU and on a simulated device; errors; and results
compared with PyTorch if it is installed."""
import copy
import pickle
import unittest
import warnings

import phlox as torch

try:
    import torch as pytorch
    pytorch = None if "phlox" in pytorch.__file__ else pytorch
except ImportError:
    pytorch = None

nn = torch.nn
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def make_layer(library=torch, **options):
    library.manual_seed(4)
    return library.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10, 15], 2.0, **options)


class Softmax(unittest.TestCase):
    def test_probabilities_and_loss(self):
        for device in DEVICES:
            layer, x, y = make_layer(head_bias=True).to(device), torch.randn(30, 16, device=device), torch.randint(20, (30,), device=device)
            whole = layer.log_prob(x)
            head = layer.head(x).log_softmax(1)
            parts = [head[:, :4]] + [layer.tail[i](x).log_softmax(1) + head[:, 4 + i, None] for i in range(3)]
            self.assertTrue(torch.allclose(whole, torch.cat(parts, 1), atol=1e-6))
            self.assertTrue(torch.allclose(whole.exp().sum(1), torch.ones(30, device=device), atol=1e-5))
            result = layer(x, y)
            self.assertTrue(torch.allclose(result.output, whole.gather(1, y[:, None])[:, 0], atol=1e-6))
            output, loss = result
            self.assertTrue(torch.equal(loss, -output.mean()) and torch.equal(result.loss, loss))
            self.assertTrue(torch.equal(layer.predict(x), whole.argmax(1)))
            one = layer(x[0], y[0])
            self.assertTrue(one.output.shape == () and torch.allclose(one.output, output[0], atol=1e-6))

    def test_gradients_of_used_clusters_only(self):
        layer, x = make_layer(), torch.randn(3, 16, requires_grad=True)
        layer(x, torch.tensor([0, 5, 3])).loss.backward()
        self.assertTrue(layer.tail[0][1].weight.grad.abs().sum() > 0 and x.grad.abs().sum() > 0)
        self.assertIsNone(layer.tail[1][0].weight.grad)
        double = make_layer().double()
        y = torch.tensor([1, 7, 12, 19])
        self.assertTrue(torch.autograd.gradcheck(lambda x: double(x, y).loss, torch.randn(4, 16, dtype=torch.float64, requires_grad=True)))

    def test_attributes_hooks_and_copies(self):
        layer, seen = make_layer(), []
        self.assertEqual((layer.in_features, layer.n_classes, tuple(layer.cutoffs), layer.div_value, layer.head_bias, layer.shortlist_size,
                          layer.n_clusters, layer.head_size), (16, 20, (4, 10, 15, 20), 2.0, False, 4, 3, 7))
        x, y = torch.randn(5, 16), torch.tensor([0, 4, 11, 16, 19])
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            self.assertTrue(torch.equal(other(x, y).output, layer(x, y).output))
        layer.tail[2].register_forward_hook(lambda module, args, result: seen.append(len(args[0])))
        layer(x, y)
        self.assertEqual(seen, [2])
        before, wanted = layer.head.weight.clone(), layer.log_prob(x).shape
        layer._reset_parameters()
        self.assertFalse(torch.equal(before, layer.head.weight))
        self.assertEqual((layer.log_prob(x).shape, layer.n_clusters, layer.head_size), (wanted, 3, 7))
        self.assertEqual(repr(layer(x, y))[:18], "_ASMoutput(output=")

    def test_errors_match_pytorch(self):
        layer, x, kind = make_layer(), torch.randn(3, 16), nn.AdaptiveLogSoftmaxWithLoss
        ordered = "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is between 1 and n_classes-1"
        for call, error, text in (
                (lambda: kind(4, 10, []), ValueError, "cutoffs should be a sequence of length larger than 0"),
                (lambda: kind(4, 10, [3, 2]), ValueError, ordered), (lambda: kind(4, 10, [2, 2]), ValueError, ordered),
                (lambda: kind(4, 10, [0, 2]), ValueError, ordered), (lambda: kind(4, 10, [2, 10]), ValueError, ordered),
                (lambda: kind(4, 10, [2], 0.0), ValueError, "div_value 0 results in an invalid size of cluster 0"),
                (lambda: kind(4, 99, range(1, 9)), ValueError, "at most"),
                (lambda: layer(x, torch.tensor([1, 2])), RuntimeError, "Input and target should have the same size in the batch dimension."),
                (lambda: layer(x, torch.tensor([1, 2, 20])), RuntimeError, r"Target values should be in \[0, 19\], but values in range \[1, 20\] were found. "),
                (lambda: layer(x, torch.tensor(1)), RuntimeError, r"0D target tensor expects 1D input tensors, but found inputs with size torch.Size\(\[3, 16\]\)"),
                (lambda: layer(x[None], torch.tensor([1])), RuntimeError, r"1D target tensor expects 2D input tensors, but found inputs with size torch.Size"),
                (lambda: layer(x, torch.zeros(3, 1, dtype=torch.int64)), RuntimeError, "0D or 1D target tensor expected, multi-target not supported")):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                call()

    @unittest.skipIf(pytorch is None, "PyTorch is not installed")
    def test_matches_pytorch(self):
        x, y, outcomes = torch.randn(12, 16).tolist(), torch.randint(20, (12,)).tolist(), []
        for library in (torch, pytorch):
            layer, tensor = make_layer(library, head_bias=True), library.tensor(x, requires_grad=True)
            result = layer(tensor, library.tensor(y))
            result.loss.backward()
            outcomes.append([torch.tensor(t.tolist()) for t in (result.output, result.loss, layer.log_prob(tensor), tensor.grad,
                                                            *layer.parameters(), *(p.grad for p in layer.parameters()))])
            self.assertEqual(list(layer.state_dict()), ["head.weight", "head.bias"] + [f"tail.{i}.{k}.weight" for i in range(3) for k in range(2)])
        for mine, theirs in zip(*outcomes, strict=True):
            self.assertTrue(torch.allclose(mine, theirs, atol=1e-5))


if __name__ == "__main__":
    unittest.main()
