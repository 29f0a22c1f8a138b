# SPDX-License-Identifier: Apache-2.0
"""Lazy modules: layers and user-defined modules that infer the sizes of their parameters from the first input."""
import copy
import pickle
import unittest

import phlox as torch
from phlox import nn
from phlox.nn.modules.lazy import LazyModuleMixin, is_lazy

LAZY = {name: kind for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, LazyModuleMixin)
        and kind is not LazyModuleMixin}


class Layers(unittest.TestCase):
    def test_class_changes_after_first_call(self):
        layer = nn.LazyLinear(3)
        self.assertIsInstance(layer, nn.Linear)
        self.assertEqual((repr(layer), layer.in_features), ("LazyLinear(in_features=0, out_features=3, bias=True)", 0))
        self.assertTrue(layer.has_uninitialized_params() and is_lazy(layer.weight) and is_lazy(layer.bias))
        weight = layer.weight
        self.assertEqual(layer(torch.ones(2, 5)).shape, (2, 3))
        self.assertIs(type(layer), nn.Linear)
        self.assertEqual((repr(layer), layer.in_features), ("Linear(in_features=5, out_features=3, bias=True)", 5))
        self.assertIs(layer.weight, weight)
        self.assertIs(type(weight), nn.Parameter)
        self.assertFalse(layer._forward_pre_hooks or layer._load_state_dict_pre_hooks or hasattr(layer, "has_uninitialized_params"))

    def test_initial_weights_match_eager_layer(self):
        for make, eager, x in ((lambda: nn.LazyLinear(3), lambda: nn.Linear(5, 3), torch.ones(2, 5)),
                               (lambda: nn.LazyConv2d(4, 3, groups=2), lambda: nn.Conv2d(2, 4, 3, groups=2), torch.ones(1, 2, 4, 4)),
                               (lambda: nn.LazyConvTranspose1d(4, 3), lambda: nn.ConvTranspose1d(2, 4, 3), torch.ones(2, 4))):
            lazy = make()
            torch.manual_seed(3)
            lazy(x)
            torch.manual_seed(3)
            for a, b in zip(lazy.parameters(), eager().parameters(), strict=True):
                self.assertTrue(torch.equal(a, b))

    def test_uninitialized_parameters_raise(self):
        weight = nn.LazyLinear(3).weight
        for use in (lambda: weight + 1, weight.numel, weight.detach, lambda: torch.relu(weight)):
            with self.assertRaisesRegex(ValueError, "Attempted to use an uninitialized parameter in .*LazyModule"):
                use()
        with self.assertRaisesRegex(RuntimeError, "Can't access the shape of an uninitialized parameter"):
            weight.shape
        with self.assertRaisesRegex(RuntimeError, "Can't share memory on an uninitialized parameter"):
            weight.share_memory_()
        self.assertEqual((weight.dtype, weight.device.type, weight.requires_grad, repr(weight)),
                         (torch.float32, "cpu", True, "<UninitializedParameter>"))

    def test_dtype_and_device_are_kept(self):
        layer = nn.LazyLinear(3).to(torch.float64)
        self.assertEqual(layer(torch.ones(2, 5, dtype=torch.float64)).dtype, torch.float64)
        if torch.cuda.is_available():
            layer = nn.LazyBatchNorm1d().cuda()
            layer(torch.ones(2, 5, device="cuda"))
            self.assertTrue(layer.weight.is_cuda and layer.running_mean.is_cuda)

    def test_load_state_dict_sets_sizes(self):
        layer, eager = nn.LazyLinear(3), nn.Linear(4, 3)
        self.assertEqual(str(layer.load_state_dict(eager.state_dict())), "<All keys matched successfully>")
        self.assertFalse(layer.has_uninitialized_params())
        self.assertTrue(torch.equal(layer(torch.ones(2, 4)), eager(torch.ones(2, 4))))
        self.assertEqual((type(layer), layer.in_features), (nn.Linear, 4))
        lazy = nn.LazyLinear(3)
        self.assertEqual([type(v).__name__ for v in lazy.state_dict().values()], ["UninitializedParameter"] * 2)
        self.assertEqual(str(nn.LazyLinear(3).load_state_dict(lazy.state_dict())), "<All keys matched successfully>")
        with self.assertRaisesRegex(RuntimeError, "load an uninitialized parameter into an initialized one"):
            eager.load_state_dict(lazy.state_dict())

    def test_copies_and_pickles_stay_lazy(self):
        for name, kind in LAZY.items():
            with self.subTest(name):
                layer = kind() if "Norm" in name else kind(3) if name == "LazyLinear" else kind(3, 2)
                dims = int(name[-2]) if name[-2].isdigit() else 1
                for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
                    self.assertEqual((type(other), repr(other)), (kind, repr(layer)))
                    other(torch.ones(2, 4, *[3] * dims))
                    self.assertIs(type(other), kind.cls_to_become)
                    self.assertFalse(any(map(is_lazy, (*other.parameters(), *other.buffers()))))
                    self.assertEqual([p is None for p in other._parameters.values()], [p is None for p in layer._parameters.values()])
                self.assertIs(type(layer), kind)

    def test_norms_have_uninitialized_buffers(self):
        layer = nn.LazyInstanceNorm2d()
        self.assertEqual([type(b).__name__ for b in layer.buffers()], ["UninitializedBuffer"] * 2 + ["Tensor"])
        with self.assertRaisesRegex(ValueError, "expected 3D or 4D input"):
            layer(torch.ones(2, 3))
        layer(torch.ones(2, 3, 4, 4))
        self.assertEqual(repr(layer), "InstanceNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)")
        with self.assertRaisesRegex(ValueError, r"expected input's size at dim=1 to match num_features \(3\), but got: 2\."):
            layer(torch.ones(2, 2, 4, 4))

    def test_input_dimension_errors(self):
        with self.assertRaisesRegex(RuntimeError, r"Expected 3D \(unbatched\) or 4D \(batched\) input to LazyConv2d, but got "
                                                  r"input of size: torch.Size\(\[2, 4\]\)"):
            nn.LazyConv2d(3, 3)(torch.ones(2, 4))

    def test_sequential(self):
        model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.ones(1, 7)).sum().backward()
        optimizer.step()
        self.assertEqual([tuple(p.shape) for p in model.parameters()], [(3, 7), (3,), (2, 3), (2,)])
        self.assertEqual(model(torch.ones(1, 7)).shape, (1, 2))


class Own(LazyModuleMixin, nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.UninitializedParameter()

    def initialize_parameters(self, x):
        if self.has_uninitialized_params():
            self.weight.materialize(x.shape)

    def forward(self, x):
        return x * self.weight


class UserModules(unittest.TestCase):
    def test_user_defined_lazy_module(self):
        module = Own()
        self.assertEqual(module(torch.ones(3)).shape, (3,))
        self.assertIs(type(module), Own)
        self.assertIs(type(module.weight), nn.Parameter)

    def test_missing_initialization_raises(self):
        class Bare(LazyModuleMixin, nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.UninitializedParameter()

        class Idle(Bare):
            def initialize_parameters(self, x):
                pass

        with self.assertRaisesRegex(NotImplementedError, "initialize_parameters is not implemented for Bare"):
            Bare()(torch.ones(3))
        with self.assertRaisesRegex(RuntimeError, "module Idle has not been fully initialized"):
            Idle()(torch.ones(3))

    def test_uninitialized_parameter_and_buffer(self):
        parameter, buffer = nn.UninitializedParameter(requires_grad=False), nn.parameter.UninitializedBuffer()
        self.assertFalse(parameter.requires_grad)
        self.assertIsInstance(buffer, nn.Buffer)
        parameter.materialize((2, 3), dtype=torch.float64)
        buffer.materialize((2,))
        self.assertEqual((type(parameter), tuple(parameter.shape), parameter.dtype), (nn.Parameter, (2, 3), torch.float64))
        self.assertEqual((type(buffer), tuple(buffer.shape)), (torch.Tensor, (2,)))


class ResetParameters(unittest.TestCase):
    def test_reset_parameters_draws_again(self):
        for make in (lambda: nn.Linear(4, 3), lambda: nn.Conv2d(2, 3, 3, bias=False), lambda: nn.Embedding(5, 3, padding_idx=1)):
            torch.manual_seed(1)
            layer = make()
            before = copy.deepcopy(layer)
            layer.reset_parameters()
            self.assertFalse(torch.equal(layer.weight, before.weight))
            torch.manual_seed(1)
            layer.reset_parameters()
            self.assertTrue(torch.equal(layer.weight, before.weight))
        norm = nn.BatchNorm1d(3)
        norm(torch.randn(4, 3))
        norm.reset_parameters()
        self.assertEqual((norm.running_mean.tolist(), int(norm.num_batches_tracked)), ([0, 0, 0], 0))
        self.assertFalse(hasattr(nn.ReLU(), "reset_parameters") or hasattr(nn.Module(), "reset_parameters"))

    def test_overridden_reset_parameters_is_called(self):
        class Zeros(nn.Linear):
            def reset_parameters(self):
                nn.init.zeros_(self.weight)

        self.assertEqual(Zeros(2, 1).weight.tolist(), [[0, 0]])
        self.assertNotEqual(Zeros(2, 1).bias.item(), 0)


if __name__ == "__main__":
    unittest.main()
