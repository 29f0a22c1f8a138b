# SPDX-License-Identifier: Apache-2.0
"""torch.nn: modules and containers, hooks, copies and losses."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import copy
import io
import pickle
import gc
import weakref
import unittest
import warnings
from collections import OrderedDict

import phlox as torch
from phlox import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.act = nn.ReLU()
        self.second = nn.Linear(4, 2)
        self.register_buffer("scale", torch.tensor(2.0))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.second(self.act(self.first(x))) * self.scale


class Numbers(unittest.TestCase):
    def near(self, tensor, values, places=6):
        for a, b in zip(tensor.detach().flatten().tolist(), values, strict=True):
            self.assertAlmostEqual(a, b, places)

    def test_linear_initialization_matches_pytorch(self):
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)
        self.near(layer.weight, [-0.00432251766, 0.309715837, -0.475185335, -0.424894601, -0.222368971, 0.154820725])
        self.near(layer.bias, [-0.0114391446, 0.457774937])
        self.near(layer(torch.tensor([[1.0, 2.0, 3.0]])), [-0.821886003, 0.0526045561])

    def test_conv_initialization_matches_pytorch(self):
        torch.manual_seed(0)
        layer = nn.Conv2d(1, 2, 2)
        self.near(layer.weight, [-0.00374341011, 0.268221796, -0.411522567, -0.367969513, -0.192577183, 0.134078681,
                                 -0.00990658998, 0.396444738])
        self.near(layer.bias, [-0.0443720222, 0.132306278])

    def test_init_functions(self):
        for name, wanted in (
            ("xavier_uniform_", [-0.00820140075, 0.587644517, -0.901600778, -0.806180835, -0.421915472, 0.293751687]),
            ("xavier_normal_", [0.974611521, -0.18558073, -1.37798738, 0.359507501, -0.685912132, -0.884549379]),
            ("kaiming_uniform_", [-0.0105879623, 0.758645773, -1.16396153, -1.04077494, -0.54469049, 0.379231781]),
            ("kaiming_normal_", [1.25821805, -0.239583701, -1.77897406, 0.464122206, -0.885508776, -1.14194834]),
        ):
            torch.manual_seed(0)
            w = torch.empty(2, 3)
            self.assertIs(getattr(nn.init, name)(w), w)
            self.near(w, wanted, 5)

    def test_weighted_cross_entropy(self):
        x, y = torch.tensor([[1.0, 2.0], [0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]), torch.tensor([1, 0, 0, 1])
        self.assertAlmostEqual(nn.CrossEntropyLoss(weight=torch.Tensor([1, 3]))(x, y).item(), 0.5574, 4)
        self.assertAlmostEqual(nn.CrossEntropyLoss()(x, y).item(), 0.6116, 4)

    def test_batch_norm(self):
        norm = nn.BatchNorm1d(2)
        x = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 4.0]])
        self.near(norm(x), [-1.22474265, -1.22474253, 0, 1.22474253, 1.22474241, 0], 5)
        self.near(norm.running_mean, [0.3, 0.4])
        self.near(norm.running_var, [1.3, 1.3])
        self.assertEqual(norm.num_batches_tracked.item(), 1)
        self.near(norm.eval()(x), [0.613938272, 1.40328753, 2.36804771, 4.91150618, 4.12215710, 3.15739679], 5)

    def test_window_argument_lengths(self):
        x, image, kernel = torch.randn(1, 2, 8), torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3)
        for name in ("stride", "padding", "dilation"):
            with self.assertRaisesRegex(RuntimeError, f"expected {name} to be a single integer value or a list of 1 values"):
                nn.functional.conv1d(x, kernel, **{name: ()})
        for call, name in ((nn.functional.max_pool2d, "padding"), (nn.functional.max_pool2d, "dilation"), (nn.functional.avg_pool2d, "padding")):
            for value in ((), (1, 1, 1)):
                with self.assertRaisesRegex(RuntimeError, f"{name} must .*either .*a single int, or a tuple of two ints"):
                    call(image, 2, **{name: value})
        self.assertEqual(nn.functional.max_pool2d(image, 2, stride=()).shape, (1, 2, 4, 4))

    def test_batch_norm_gradients(self):
        for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
            norm = nn.BatchNorm1d(2).to(device)
            x = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 4.0]], device=device, requires_grad=True)
            for _ in range(2):  # each pass updates the running statistics
                x.grad = norm.weight.grad = None
                norm(x).pow(3).sum().backward()
                self.near(norm.weight.grad, [0, 0], 4)
                self.near(x.grad, [0.9186, 0.9186, -1.8371, 0.9186, 0.9186, -1.8371], 3)


class Registration(unittest.TestCase):
    def test_names(self):
        model = Model()
        self.assertEqual([n for n, _ in model.named_parameters()],
                         ["first.weight", "first.bias", "second.weight", "second.bias"])
        self.assertEqual([n for n, _ in model.named_buffers()], ["scale"])
        self.assertEqual([n for n, _ in model.named_children()], ["first", "act", "second"])
        self.assertEqual([n for n, _ in model.named_modules()], ["", "first", "act", "second"])
        self.assertEqual(len(list(model.parameters())), 4)
        self.assertEqual([n for n, _ in model.named_parameters(prefix="m", recurse=True)][0], "m.first.weight")
        self.assertEqual(list(model.parameters(recurse=False)), [])

    def test_shared_modules_appear_once(self):
        layer = nn.Linear(2, 2)
        net = nn.Sequential(layer, layer)
        self.assertEqual([n for n, _ in net.named_parameters()], ["0.weight", "0.bias"])
        self.assertEqual(list(net.state_dict()), ["0.weight", "0.bias", "1.weight", "1.bias"])

    def test_assignment(self):
        layer = nn.Linear(2, 2)
        with self.assertRaises(TypeError) as caught:
            layer.weight = torch.zeros(2, 2)
        self.assertEqual(str(caught.exception), "cannot assign 'torch.FloatTensor' as parameter 'weight' "
                                                "(torch.nn.Parameter or None expected)")
        fresh = nn.Parameter(torch.ones(2, 2))
        layer.weight = fresh
        self.assertIs(layer.weight, fresh)
        layer.bias = None
        self.assertIsNone(layer.bias)
        self.assertEqual(list(layer.state_dict()), ["weight"])

    def test_assignment_before_init(self):
        class Early(nn.Module):
            def __init__(self):
                self.layer = nn.Linear(1, 1)
        with self.assertRaises(AttributeError) as caught:
            Early()
        self.assertEqual(str(caught.exception), "cannot assign module before Module.__init__() call")

    def test_missing_attributes(self):
        with self.assertRaises(AttributeError) as caught:
            nn.Linear(2, 2).foo
        self.assertEqual(str(caught.exception), "'Linear' object has no attribute 'foo'")
        with self.assertRaisesRegex(AttributeError, "^'Linear' object has no attribute 'save': torch.jit.ScriptModule.save is not implemented in Phlox$"):
            torch.nn.Linear(1, 1).save
        with self.assertRaises(KeyError) as caught:
            nn.Linear(2, 2).register_module("weight", nn.ReLU())
        self.assertEqual(str(caught.exception), '"attribute \'weight\' already exists"')

    def test_delete_entries(self):
        model = Model()
        del model.act
        self.assertFalse(hasattr(model, "act"))
        self.assertEqual([n for n, _ in model.named_children()], ["first", "second"])

    def test_missing_forward(self):
        with self.assertRaises(NotImplementedError) as caught:
            nn.Module()(1)
        self.assertEqual(str(caught.exception), 'Module [Module] is missing the required "forward" function')

    def test_moved_parameter_is_not_registered(self):
        class Big(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(2)).cuda(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(list(Big().named_parameters()), [])
        self.assertEqual([w.category for w in caught], [UserWarning])

    def test_loss_weight_is_buffer(self):
        loss = nn.CrossEntropyLoss(weight=torch.Tensor([1, 3]))
        self.assertEqual(list(loss.state_dict()), ["weight"])
        self.assertEqual(loss.cuda(0)._buffers["weight"].device, torch.device("cuda:0"))
        self.assertEqual(list(nn.CrossEntropyLoss()._buffers), ["weight"])
        self.assertEqual(list(nn.CrossEntropyLoss().state_dict()), [])


class Texts(unittest.TestCase):
    def test_repr(self):
        self.assertEqual(repr(nn.Linear(2, 3, bias=False)), "Linear(in_features=2, out_features=3, bias=False)")
        self.assertEqual(repr(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2))),
                         "Sequential(\n"
                         "  (0): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))\n"
                         "  (1): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)\n)")
        self.assertEqual(repr(Model()),
                         "Model(\n  (first): Linear(in_features=3, out_features=4, bias=True)\n  (act): ReLU()\n"
                         "  (second): Linear(in_features=4, out_features=2, bias=True)\n)")
        self.assertEqual(repr(nn.ReLU(inplace=True)), "ReLU(inplace=True)")
        self.assertEqual(repr(nn.Dropout(0.25)), "Dropout(p=0.25, inplace=False)")
        self.assertEqual(repr(nn.ModuleList([nn.ReLU()])), "ModuleList(\n  (0): ReLU()\n)")

    def test_extra_repr(self):
        class Scaled(nn.Module):
            def extra_repr(self):
                return "factor=3"
        self.assertEqual(repr(Scaled()), "Scaled(factor=3)")

    def test_parameter(self):
        self.assertEqual(repr(nn.Parameter(torch.ones(2))), "Parameter containing:\ntensor([1., 1.], requires_grad=True)")


class State(unittest.TestCase):
    def test_round_trip(self):
        a, b, x = Model(), Model(), torch.randn(2, 3)
        result = b.load_state_dict(a.state_dict())
        self.assertEqual(str(result), "<All keys matched successfully>")
        self.assertTrue(torch.equal(a(x), b(x)))
        self.assertIsInstance(a.state_dict(), OrderedDict)

    def test_errors(self):
        layer = nn.Linear(2, 2)
        before = layer.bias.tolist()
        with self.assertRaises(RuntimeError) as caught:
            layer.load_state_dict({"weight": torch.zeros(2, 2)})
        self.assertEqual(str(caught.exception),
                         'Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: "bias". ')
        with self.assertRaises(RuntimeError) as caught:
            layer.load_state_dict({"weight": torch.zeros(3, 2), "bias": torch.zeros(2)})
        self.assertEqual(str(caught.exception),
                         "Error(s) in loading state_dict for Linear:\n\tsize mismatch for weight: copying a param with "
                         "shape torch.Size([3, 2]) from checkpoint, the shape in current model is torch.Size([2, 2]).")
        with self.assertRaises(RuntimeError) as caught:
            layer.load_state_dict({"weight": torch.zeros(2, 2), "bias": torch.zeros(2), "more": torch.zeros(1)})
        self.assertIn('Unexpected key(s) in state_dict: "more". ', str(caught.exception))
        result = layer.load_state_dict({"weight": torch.zeros(2, 2), "more": torch.zeros(1)}, strict=False)
        self.assertEqual((result.missing_keys, result.unexpected_keys), (["bias"], ["more"]))
        self.assertEqual(layer.bias.tolist(), before)

    def test_state_dict_shares_memory(self):
        layer = nn.Linear(1, 1)
        state = layer.state_dict()
        with torch.no_grad():
            layer.weight.fill_(7)
        self.assertEqual(state["weight"].item(), 7)
        self.assertFalse(state["weight"].requires_grad)

    def test_non_persistent_buffers(self):
        layer = nn.Linear(1, 1)
        layer.register_buffer("scratch", torch.ones(1), persistent=False)
        self.assertEqual(list(layer.state_dict()), ["weight", "bias"])
        self.assertEqual(len(list(layer.buffers())), 1)


class Moving(unittest.TestCase):
    def test_moved_parameters_keep_identity(self):
        model = Model()
        model(torch.ones(1, 3)).sum().backward()
        w, grad = model.first.weight, model.first.weight.grad
        last = torch.device("cuda", torch.cuda.device_count() - 1)
        self.assertIs(model.to(last), model)
        self.assertIs(model.first.weight, w)
        self.assertIs(w.grad, grad)
        self.assertEqual((w.device, grad.device, model.scale.device), (last,) * 3)
        self.assertEqual(model.cpu().first.weight.device, torch.device("cpu"))

    def test_training_after_move(self):
        model = Model().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3, device="cuda")).pow(2).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[2], losses[0])

    def test_dtypes(self):
        norm = nn.BatchNorm1d(2).double()
        self.assertEqual((norm.weight.dtype, norm.num_batches_tracked.dtype), (torch.float64, torch.int64))
        self.assertEqual(norm.half().weight.dtype, torch.float16)
        with self.assertRaises(TypeError) as caught:
            norm.to(torch.int32)
        self.assertEqual(str(caught.exception), "nn.Module.to only accepts floating point or complex dtypes, but got "
                                                "desired dtype=torch.int32")

    def test_type_by_name(self):
        self.assertEqual(nn.Linear(1, 1).type("torch.DoubleTensor").weight.dtype, torch.float64)
        with self.assertRaisesRegex(ValueError, "invalid type: 'double'"):
            nn.Linear(1, 1).type("double")
        with self.assertRaisesRegex(TypeError, r"^Module.cuda\(\) got an unexpected keyword argument 'to'"):
            nn.Linear(1, 1).cuda(to=0)

    def test_zero_grad(self):
        layer = nn.Linear(1, 1)
        layer(torch.ones(1, 1)).backward()
        grad = layer.weight.grad
        layer.zero_grad(set_to_none=False)
        self.assertEqual((layer.weight.grad is grad, grad.tolist(), layer.bias.grad.tolist()), (True, [[0]], [0]))
        layer.zero_grad()
        self.assertIsNone(layer.weight.grad)

    def test_casts_of_floats_leave_complex_parameters(self):
        class Own(nn.Linear):
            def _apply(self, fn, recurse=True): return super()._apply(fn, recurse)
        for kind in (nn.Linear, Own):
            for name, dtype in (("double", torch.float64), ("half", torch.float16), ("bfloat16", torch.bfloat16), ("float", torch.float32)):
                model = nn.Sequential(kind(1, 1, bias=False, dtype=torch.complex64), kind(1, 1, bias=False))
                before = model[0].weight.item()
                getattr(model, name)()
                self.assertEqual([p.dtype for p in model.parameters()], [torch.complex64, dtype])
                self.assertEqual(model[0].weight.item(), before)
                model[0].to(torch.float64)
                self.assertEqual(model[0].weight.dtype, torch.float64)

    def test_apply_and_training_modes(self):
        model, seen = Model(), []
        model.apply(lambda m: seen.append(type(m).__name__))
        self.assertEqual(seen, ["Linear", "ReLU", "Linear", "Model"])
        self.assertFalse(model.eval().first.training)
        self.assertTrue(model.train().first.training)
        self.assertFalse(any(p.requires_grad for p in model.requires_grad_(False).parameters()))


class Hooks(unittest.TestCase):
    def test_forward_hooks(self):
        layer, seen = nn.Linear(2, 2), []
        before = layer.register_forward_pre_hook(lambda m, args: seen.append("pre"))
        after = layer.register_forward_hook(lambda m, args, out: out * 0)
        self.assertEqual(layer(torch.ones(1, 2)).tolist(), [[0, 0]])
        self.assertEqual(seen, ["pre"])
        before.remove()
        after.remove()
        self.assertNotEqual(layer(torch.ones(1, 2)).tolist(), [[0, 0]])
        self.assertEqual(seen, ["pre"])

    def test_pre_hook_changes_input(self):
        layer = nn.Identity()
        layer.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        self.assertEqual(layer(torch.zeros(1)).item(), 1)

    def test_hook_exception_propagates(self):
        layer = nn.Identity()

        def fail(module, args, out):
            raise ValueError("boom")
        layer.register_forward_hook(fail)
        with self.assertRaisesRegex(ValueError, "boom"):
            layer(torch.zeros(1))

    def test_hooks_registered_and_removed_during_call(self):
        layer, seen = nn.Identity(), []

        def once(module, args, out):
            seen.append("once")
            handle.remove()
            layer.register_forward_hook(lambda m, args, out: seen.append("later"))
        handle = layer.register_forward_hook(once)
        layer.register_forward_hook(lambda m, args, out: seen.append("second"))
        layer(torch.zeros(1))
        self.assertEqual(seen, ["once", "second"])
        layer(torch.zeros(1))
        self.assertEqual(seen[2:], ["second", "later"])

    def test_handles_do_not_keep_module_and_cycles_are_collected(self):
        layer = nn.Identity()
        gone = weakref.ref(layer)
        with layer.register_forward_hook(lambda m, args, out, keep=layer: out):
            handle = layer.register_forward_pre_hook(lambda m, args: None)
        del layer
        gc.collect()
        self.assertIsNone(gone())
        handle.remove()

    def test_hooks_receive_non_tensor_outputs(self):
        class Pair(nn.Module):
            def forward(self, x, scale=1):
                return x, x * scale
        model, seen = nn.Sequential(Pair(), nn.Identity()), []
        model[1] = type("Sum", (nn.Module,), {"forward": lambda self, pair: pair[0] + pair[1]})()
        model[0].register_forward_hook(lambda m, args, out: seen.append((len(args), type(out))))
        self.assertEqual(model(torch.ones(1)).item(), 2)
        self.assertEqual(seen, [(1, tuple)])
        self.assertEqual(model[0](torch.ones(1), scale=3)[1].item(), 3)


class Copies(unittest.TestCase):
    def same(self, a, b):
        x = torch.randn(2, 3)
        self.assertTrue(torch.equal(a(x), b(x)))
        with torch.no_grad():
            b.first.weight.add_(1)
        self.assertFalse(torch.equal(a(x), b(x)))
        self.assertEqual(repr(a), repr(b))
        self.assertIsInstance(b.first.weight, nn.Parameter)
        self.assertEqual([n for n, _ in a.named_parameters()], [n for n, _ in b.named_parameters()])

    def test_deepcopy(self):
        model = Model()
        model.calls = 5
        other = copy.deepcopy(model)
        self.assertEqual(other.calls, 5)
        self.same(model, other)

    def test_deepcopy_keeps_sharing(self):
        layer = nn.Linear(2, 2)
        net = copy.deepcopy(nn.Sequential(layer, layer))
        self.assertIs(net[0], net[1])

    def test_deepcopy_keeps_hooks_and_non_persistent_buffers(self):
        layer = nn.Identity()
        layer.register_buffer("scratch", torch.ones(1), persistent=False)
        layer.register_forward_hook(lambda m, args, out: out + 1)
        other = copy.deepcopy(layer)
        self.assertEqual(other(torch.zeros(1)).item(), 1)
        self.assertEqual((list(other.state_dict()), other.scratch.item()), ([], 1))
        self.assertIsNot(other.scratch, layer.scratch)
        other.register_forward_hook(lambda m, args, out: out + 1)
        self.assertEqual((other(torch.zeros(1)).item(), layer(torch.zeros(1)).item()), (2, 1))

    def test_deepcopy_of_cyclic_attributes(self):
        model = Model()
        model.same = [model, model.first]
        other = copy.deepcopy(model)
        self.assertIs(other.same[0], other)
        self.assertIs(other.same[1], other.first)

    def test_pickle(self):
        model = Model()
        self.same(model, pickle.loads(pickle.dumps(model)))

    def test_pickle_of_container(self):
        net = pickle.loads(pickle.dumps(nn.Sequential(OrderedDict(a=nn.Linear(1, 2), b=nn.Dropout(0.25)))))
        self.assertEqual(repr(net), "Sequential(\n  (a): Linear(in_features=1, out_features=2, bias=True)\n"
                                    "  (b): Dropout(p=0.25, inplace=False)\n)")


class Containers(unittest.TestCase):
    def test_sequential(self):
        net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        self.assertEqual(len(net), 3)
        self.assertIsInstance(net[1], nn.ReLU)
        self.assertIs(net[-1], net[2])
        self.assertEqual(len(net[:2]), 2)
        self.assertEqual([type(m).__name__ for m in net], ["Linear", "ReLU", "Linear"])
        net.append(nn.Tanh())
        self.assertEqual(net(torch.ones(4, 2)).shape, (4, 1))
        named = nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh()))
        self.assertIsInstance(named.b, nn.Tanh)
        with self.assertRaises(IndexError):
            net[9]

    def test_module_list(self):
        layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(2)])
        layers.append(nn.ReLU())
        layers.extend([nn.Tanh()])
        self.assertEqual(len(layers), 4)
        self.assertEqual(len(list(layers.parameters())), 4)
        layers[2] = nn.Sigmoid()
        self.assertEqual([n for n, _ in layers.named_children()], ["0", "1", "2", "3"])
        self.assertIsInstance(layers[2], nn.Sigmoid)

    def test_module_dict(self):
        layers = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.ReLU()})
        self.assertEqual(list(layers), ["a", "b"])
        self.assertIn("a", layers)
        layers["c"] = nn.Tanh()
        del layers["b"]
        self.assertEqual(list(layers.keys()), ["a", "c"])
        self.assertEqual([n for n, _ in layers.named_parameters()], ["a.weight", "a.bias"])

    def test_parameter_list(self):
        class Held(nn.Module):
            def __init__(self):
                super().__init__()
                self.all = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(3)])
        if not hasattr(nn, "ParameterList"):
            self.skipTest("nn.ParameterList")
        self.assertEqual([n for n, _ in Held().named_parameters()], ["all.0", "all.1", "all.2"])


class Deprecated(unittest.TestCase):
    def test_modules_remove_duplicate(self):
        layer = nn.ReLU()
        model = nn.Sequential(layer, layer, nn.Sequential(layer))
        self.assertEqual(len(list(model.modules())), 3)
        self.assertEqual(len(list(model.modules(remove_duplicate=False))), 5)

        class Counting(nn.Sequential):
            def named_modules(self, memo=None, prefix="", remove_duplicate=True):
                return iter([("once" if remove_duplicate else "often", layer)])
        self.assertEqual(list(Counting(layer).modules(False)), [layer])

    def test_nll_loss_2d_warns(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            loss = nn.NLLLoss2d(ignore_index=1, reduction="sum")
        self.assertIn("`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead", str(seen[0].message))
        self.assertIsInstance(loss, nn.NLLLoss)
        scores, target = torch.log_softmax(torch.arange(12.).reshape(1, 3, 2, 2), 1), torch.tensor([[[0, 1], [2, 1]]])
        self.assertEqual(loss(scores, target), nn.functional.nll_loss(scores, target, ignore_index=1, reduction="sum"))

    def test_implicit_softmax_dim_warns(self):
        for name in "softmax", "log_softmax", "softmin":
            with self.assertWarnsRegex(UserWarning, f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X"):
                getattr(nn.functional, name)(torch.zeros(2, 3))

    def test_merge_masks(self):
        layer, query = nn.MultiheadAttention(4, 2, batch_first=True), torch.zeros(2, 3, 4)
        keys, pairs = torch.tensor([[0., 0, -1], [0, 0, -2]]), torch.arange(9.).reshape(3, 3)
        self.assertEqual(layer.merge_masks(None, None, query), (None, None))
        self.assertEqual(layer.merge_masks(None, keys, query), (keys, 1))
        alone, kind = layer.merge_masks(pairs, None, query)
        self.assertEqual((alone.shape, kind), ((2, 2, 3, 3), 2))
        both, kind = layer.merge_masks(pairs.expand(4, 3, 3), keys, query)
        self.assertEqual(kind, 2)
        for batch in range(2):
            for head in range(2):
                self.assertEqual(both[batch, head].tolist(), (pairs + keys[batch]).tolist())


class Errors(unittest.TestCase):
    def test_registration_errors(self):
        layer = nn.BatchNorm1d(2)
        for call, text in ((lambda: layer.register_parameter("a.b", None), r"parameter name can\\?'t contain \".\"'?$"),
                           (lambda: layer.register_parameter("a", torch.ones(1)), r"cannot assign 'torch.FloatTensor' object to parameter 'a' "),
                           (lambda: setattr(layer, "running_mean", 5), r"cannot assign 'int' as buffer 'running_mean' "
                            r"\(torch.nn.Buffer, torch.Tensor or None expected\)"),
                           (lambda: nn.Linear(1, 1)(), r"Linear.forward\(\) missing 1 required positional argument: 'input'"),
                           (lambda: nn.MSELoss()(torch.ones(1)), r"MSELoss.forward\(\) missing 1 required positional argument: 'target'")):
            with self.assertRaisesRegex((TypeError, KeyError), text):
                call()

    def test_target_errors(self):
        loss = nn.CrossEntropyLoss()
        with self.assertRaisesRegex(IndexError, r"^Target 5 is out of bounds\.$"):
            loss(torch.zeros(1, 3), torch.tensor([5]))
        with self.assertRaisesRegex(ValueError, r"Expected input batch_size \(2\) to match target batch_size \(1\)\."):
            loss(torch.zeros(2, 3), torch.tensor([0]))
        with self.assertRaisesRegex(RuntimeError, "weight tensor should be defined either for all 3 classes or no "
                                                  r"classes but got weight tensor of shape: \[2\]"):
            nn.CrossEntropyLoss(weight=torch.ones(2))(torch.zeros(1, 3), torch.tensor([0]))

    def test_shape_errors(self):
        with self.assertRaisesRegex(RuntimeError, r"mat1 and mat2 shapes cannot be multiplied \(2x4 and 3x2\)"):
            nn.Linear(3, 2)(torch.ones(2, 4))

    def test_device_errors(self):
        with self.assertRaisesRegex(RuntimeError, "Expected all tensors to be on the same device"):
            nn.Linear(3, 2)(torch.ones(2, 3, device="cuda:0"))

    def test_argument_errors(self):
        with self.assertRaises(TypeError):
            nn.Linear(3)
        with self.assertRaises(TypeError):
            nn.Linear(3, 2, nonsense=1)
        with self.assertRaisesRegex(ValueError, "dropout probability has to be between 0 and 1, but got 2"):
            nn.Dropout(2)


class ParameterContainers(unittest.TestCase):
    def test_parameter_list(self):
        values = nn.ParameterList([nn.Parameter(torch.ones(2)), torch.zeros(1)])
        values.append(nn.Parameter(torch.ones(3)))
        values += [torch.ones(1)]
        values.extend(iter([torch.ones(4)]))
        values[0] = torch.zeros(7)
        self.assertEqual([tuple(v.shape) for v in values], [(7,), (1,), (3,), (1,), (4,)])
        self.assertTrue(all(isinstance(v, nn.Parameter) for v in values))
        self.assertEqual((len(values), list(values.state_dict()), values[-1].shape[0]), (5, list("01234"), 4))
        self.assertEqual([n for n, _ in values.named_parameters()], list("01234"))
        self.assertEqual([v.shape[0] for v in values[1:4:2]], [1, 1])
        self.assertIsInstance(values[1:], nn.ParameterList)
        self.assertIs(values[0], next(iter(values)))

    def test_parameter_list_errors(self):
        values = nn.ParameterList([torch.ones(1)])
        for index in (1, -2):
            with self.assertRaisesRegex(IndexError, f"index {index} is out of range"):
                values[index]
        for call in (lambda: values.extend(3), lambda: nn.ParameterList(3)):
            with self.assertRaisesRegex(TypeError, "ParameterList.extend should be called with an iterable, but got int"):
                call()
        with self.assertRaisesRegex(RuntimeError, "ParameterList should not be called."):
            values(1)

    def test_parameter_dict(self):
        values = nn.ParameterDict({"b": nn.Parameter(torch.ones(2)), "a": torch.zeros(1)})
        values["c"] = torch.ones(3)
        values.update([("d", torch.ones(4))])
        values |= {"e": torch.ones(5)}
        self.assertEqual(list(values), list("abcde"))
        self.assertEqual([(k, v.shape[0]) for k, v in values.items()], [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)])
        self.assertEqual((len(values), "b" in values, "z" in values, list(reversed(values))), (5, True, False, list("edcba")))
        self.assertEqual((values.pop("a").shape[0], values.popitem()[0], list(values.state_dict())), (1, "e", list("bcd")))
        self.assertEqual((values.get("z"), values.get("z", 7), values.setdefault("y", torch.ones(6)).shape[0]), (None, 7, 6))
        other = values.copy()
        del other["b"]
        self.assertEqual((list(other), "b" in values, list(nn.ParameterDict({"q": torch.ones(1)}) | other)), (list("cdy"), True, list("qcdy")))
        other.clear()
        self.assertEqual((len(other), list(other.fromkeys(["x", "y"], torch.ones(1)))), (0, ["x", "y"]))

    def test_parameter_dict_errors(self):
        values = nn.ParameterDict()
        for call, kind, text in (
                (lambda: values["q"], AttributeError, "'ParameterDict' object has no attribute 'q'"),
                (lambda: values.__delitem__("q"), KeyError, "q"),
                (lambda: values.update(3), TypeError, "ParametersDict.update should be called with an iterable of key/value pairs, but got int"),
                (lambda: values.update([(1,)]), ValueError, "ParameterDict update sequence element #0 has length 1; 2 is required"),
                (lambda: values.__setitem__(3, torch.ones(1)), TypeError, "cannot be used as a key as it is not a string"),
                (lambda: values(1), RuntimeError, "ParameterDict should not be called.")):
            with self.assertRaisesRegex(kind, text):
                call()

    def test_reprs(self):
        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.one = nn.ParameterList([torch.ones(1)])
                self.two = nn.ParameterList([torch.ones(2, 3), "text", 3])
                self.named = nn.ParameterDict({"w": torch.ones(2), "v": torch.ones(1, dtype=torch.float16)})

            def extra_repr(self):
                return "a\nb"
        self.assertEqual(repr(Both()), """Both(
  a
  b
  (one): ParameterList(  (0): Parameter containing: [torch.float32 of size 1])
  (two): ParameterList(
      (0): Parameter containing: [torch.float32 of size 2x3]
      (1): Object of type: str
      (2): Object of type: int
  )
  (named): ParameterDict(
      (v): Parameter containing: [torch.HalfTensor of size 1]
      (w): Parameter containing: [torch.FloatTensor of size 2]
  )
)""")

    def test_copies_and_pickles(self):
        net = nn.Module()
        net.values = nn.ParameterList([torch.ones(2)])
        net.named = nn.ParameterDict({"w": torch.ones(3)})
        for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            self.assertEqual((len(other.values), list(other.named), list(other.state_dict())), (1, ["w"], ["values.0", "named.w"]))

    def test_module_list_in_place_add(self):
        layers = nn.ModuleList([nn.ReLU()])
        same = layers
        layers += [nn.Identity()]
        self.assertIs(same, layers)
        self.assertEqual(len(layers), 2)


class Attributes(unittest.TestCase):
    def test_attributes_live_as_long_as_tensor(self):
        net = nn.Linear(2, 2)
        net.weight.tag = ["x"]
        gc.collect()
        self.assertEqual((net.weight.tag, next(net.parameters()).tag), (["x"], ["x"]))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        optimizer.param_groups[0]["params"][1].tag = "y"
        self.assertEqual(net.bias.tag, "y")
        net.half()
        self.assertEqual(net.weight.tag, ["x"])
        del net.weight.tag
        self.assertFalse(hasattr(net.weight, "tag"))

    def test_parameter_subclass_is_kept(self):
        class Special(nn.Parameter):
            pass
        net = nn.Linear(2, 2)
        net.weight = Special(torch.ones(2, 2))
        gc.collect()
        self.assertIs(type(net.weight), Special)
        self.assertEqual([type(p) for p in net.parameters()], [Special, nn.Parameter])

    def test_attributes_end_with_tensor(self):
        class Noted:
            pass
        noted = Noted()
        end = weakref.ref(noted)
        net = nn.Linear(1, 1)
        net.weight.noted = noted
        del noted
        self.assertIsNotNone(end())
        del net
        torch.ones(1)
        self.assertIsNone(end())


class Images(unittest.TestCase):
    def test_unbatched_image(self):
        torch.manual_seed(0)
        conv = nn.Conv2d(2, 3, 3, padding=1, stride=2)
        x = torch.randn(2, 6, 5, requires_grad=True)
        one, many = conv(x), conv(x.unsqueeze(0))
        self.assertEqual(one.shape, (3, 3, 3))
        self.assertTrue(torch.equal(one, many[0]))
        single = torch.autograd.grad(one.pow(2).sum(), (x, conv.weight, conv.bias))
        batch = torch.autograd.grad(many.pow(2).sum(), (x, conv.weight, conv.bias))
        for a, b in zip(single, batch):
            self.assertTrue(torch.allclose(a, b))
        with self.assertRaisesRegex(RuntimeError, r"expected input\[1, 3, 5, 5\] to have 2 channels, but got 3 channels instead"):
            conv(torch.ones(3, 5, 5))
        with self.assertRaisesRegex(RuntimeError, r"Expected 3D \(unbatched\) or 4D \(batched\) input to conv2d, but got input of size: \[5, 5\]"):
            conv(torch.ones(5, 5))


class Devices(unittest.TestCase):
    """Composed ops have the same results and gradients on a device as on the CPU."""
    @unittest.skipIf(torch.cuda.device_count() == 0, "requires a device")
    def test_composed_ops_match_cpu(self):
        F, weight = nn.functional, torch.tensor([1.0, 2, 3])
        target = torch.eye(3)[:2]
        for call in (lambda x, y: F.pad(x, (1, -1, 2, 0), value=2.5), lambda x, y: F.pad(x[None], (2, 1), "reflect"),
                     lambda x, y: F.pad(x[None], (2, 1), "circular"), lambda x, y: F.normalize(x), lambda x, y: F.normalize(x, 1, 0),
                     lambda x, y: F.cosine_similarity(x, y + 1), lambda x, y: nn.BCELoss()(x.sigmoid(), y),
                     lambda x, y: nn.BCEWithLogitsLoss(pos_weight=weight).to(x.device)(x, y), lambda x, y: nn.SmoothL1Loss(beta=2)(x, y),
                     lambda x, y: nn.HuberLoss("sum", delta=0.5)(x, y), lambda x, y: nn.ELU(0.5)(x), lambda x, y: nn.Softplus(2, 1)(x),
                     lambda x, y: nn.AdaptiveAvgPool2d((1, 2))(x[None])):
            results = []
            for device in ("cpu", "cuda"):
                x = torch.tensor([[-1.0, 2, -3], [4, -5, 6]], device=device, requires_grad=True)
                y = call(x, target.to(device))
                (y * torch.arange(1.0, y.numel() + 1, device=device).reshape(y.shape)).sum().backward()
                results.append((y.detach().cpu(), x.grad.cpu()))
            for cpu, there in zip(*results):
                self.assertTrue(torch.allclose(cpu, there, atol=1e-6), (call.__code__.co_firstlineno, cpu, there))


class LinearCrossEntropy(unittest.TestCase):
    def test_equals_linear_and_cross_entropy(self):
        for device in ("cpu", "cuda"):
            loss = nn.LinearCrossEntropyLoss(5, 10, out_features=(4, 3), bias=True, label_smoothing=0.1, device=device)
            x = (torch.arange(10.0, device=device).reshape(2, 5) / 7).requires_grad_()
            target = (torch.arange(24, device=device) % 10).reshape(2, 4, 3)
            made = loss(x, target)
            scores = loss.linear(x).reshape(2, 10, 4, 3)
            grads = torch.autograd.grad(made, [x, *loss.parameters()])
            wanted = nn.functional.cross_entropy(scores, target, label_smoothing=0.1)
            for got, want in zip((made, *grads), (wanted, *torch.autograd.grad(wanted, [x, *loss.parameters()]))):
                self.assertTrue(torch.allclose(got, want, atol=1e-6))

    def test_weight_buffer_and_repr(self):
        loss = nn.LinearCrossEntropyLoss(2, 3, weight=torch.tensor([1.0, 2, 3]), reduction="sum", ignore_index=1)
        self.assertEqual(list(loss.state_dict()), ["weight", "linear.weight"])
        self.assertEqual(repr(loss), "LinearCrossEntropyLoss(\n  in_features=2, num_classes=3, out_features=(), bias=False, reduction=sum, ignore_index=1, "
                         "label_smoothing=0.0, options=None\n  (linear): Linear(in_features=2, out_features=3, bias=False)\n)")

    def test_argument_errors(self):
        for error, text, options in ((RuntimeError, r"expected weight shape to be \(10,\), got \(3,\)", {"weight": torch.ones(3)}),
                                     (RuntimeError, r"expected label_smoothing to be in range \[0, 1\], got 2", {"label_smoothing": 2}),
                                     (NotImplementedError, "torch.nn.LinearCrossEntropyLoss: options= is not implemented in Phlox", {"options": 1})):
            with self.assertRaisesRegex(error, f"^{text}$"):
                nn.LinearCrossEntropyLoss(5, 10, **options)


class MissingNames(unittest.TestCase):
    def test_missing_names_raise(self):
        for module, space, name in ((torch, "torch", "q_scale"), (nn, "torch.nn", "LinearCrossEntropyOptions"),
                                    (torch.utils, "torch.utils", "ThroughputBenchmark"), (torch.cuda, "torch.cuda", "get_gencode_flags")):
            with self.assertRaisesRegex(AttributeError, f"^module '{space}' has no attribute '{name}': {space}.{name} is not implemented in Phlox$"):
                getattr(module, name)
            self.assertFalse(hasattr(module, name))

    def test_unknown_names_raise(self):
        for module, space in ((torch, "torch"), (nn, "torch.nn"), (nn.functional, "torch.nn.functional")):
            with self.assertRaisesRegex(AttributeError, f"^module '{space}' has no attribute 'frobnicate'$"):
                module.frobnicate


class ExtraState(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.kept = None
        self.inner = inner

    def get_extra_state(self):
        return {"kept": self.kept}

    def set_extra_state(self, state):
        self.kept = state["kept"]


class ContainerNames(unittest.TestCase):
    def names(self, model):
        return [(name, type(child).__name__) for name, child in model.named_children()]

    def test_deleting_layers_renumbers(self):
        for kind in (lambda *layers: nn.Sequential(*layers), lambda *layers: nn.ModuleList(layers)):
            model = kind(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1), nn.Tanh())
            del model[1]
            self.assertEqual(self.names(model), [("0", "Linear"), ("1", "Linear"), ("2", "Tanh")])
            self.assertEqual(list(model.state_dict()), ["0.weight", "0.bias", "1.weight", "1.bias"])
            model.append(nn.Sigmoid())
            self.assertEqual(self.names(model)[2:], [("2", "Tanh"), ("3", "Sigmoid")])
            self.assertIsInstance(model.pop(-1), nn.Sigmoid)
            del model[1:]
            self.assertEqual(self.names(model), [("0", "Linear")])
            model.insert(0, nn.ReLU())
            self.assertEqual(self.names(model), [("0", "ReLU"), ("1", "Linear")])
            self.assertRaisesRegex(TypeError, "int is not a Module subclass", model.insert, 0, 5)
            self.assertEqual(len(model), 2)

    def test_sequential_inserts_within_its_length_and_returns_itself(self):
        model = nn.Sequential(nn.ReLU(), nn.Tanh())
        self.assertIs(model.insert(2, nn.GELU()), model)
        model.insert(-1, nn.Sigmoid())
        self.assertEqual(self.names(model), [("0", "ReLU"), ("1", "Tanh"), ("2", "Sigmoid"), ("3", "GELU")])
        for index in 5, -5: self.assertRaisesRegex(IndexError, f"Index out of range: {index}", model.insert, index, nn.ReLU())
        layers = nn.ModuleList([nn.ReLU()])
        self.assertIsNone(layers.insert(7, nn.Tanh()))
        self.assertEqual(self.names(layers), [("0", "ReLU"), ("1", "Tanh")])

    def test_modules_do_not_replace_other_attributes(self):
        model = nn.Linear(2, 2)
        model.size = 3
        for name in "size", "forward", "weight":
            self.assertRaisesRegex(KeyError, f"attribute '{name}' already exists", model.add_module, name, nn.ReLU())
        for child in None, nn.ReLU(), nn.Tanh(): model.add_module("child", child)
        self.assertEqual((self.names(model), model.size), ([("child", "Tanh")], 3))

    def test_slices_keep_names(self):
        model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        self.assertEqual(self.names(model[1:]), [("1", "ReLU"), ("2", "Linear")])
        self.assertIs(model[1:][1], model[2])


class LoadStateDict(unittest.TestCase):
    def test_non_tensor_values(self):
        layer = nn.Linear(2, 2)
        before = layer.weight.tolist()
        with self.assertRaisesRegex(RuntimeError, r'^Error\(s\) in loading state_dict for Linear:\n\tWhile copying the parameter named '
                                    r'"weight", expected torch.Tensor or Tensor-like object from checkpoint but received '
                                    r"<class 'int'>$"):
            layer.load_state_dict({"bias": torch.ones(2), "weight": 5})
        with self.assertRaisesRegex(RuntimeError, r'\tUnexpected key\(s\) in state_dict: "more". '):
            layer.load_state_dict({"weight": torch.ones(2, 2), "bias": torch.ones(2), "more": 1})
        self.assertEqual(layer.weight.tolist(), before)
        keys = layer.load_state_dict({"weight": torch.ones(2, 2), "more": 1}, strict=False)
        self.assertEqual((keys.missing_keys, keys.unexpected_keys), (["bias"], ["more"]))
        self.assertEqual(layer.weight.tolist(), [[1, 1]] * 2)

    def test_assign_does_not_copy(self):
        layer, state = nn.BatchNorm1d(2), nn.BatchNorm1d(2).state_dict()
        weight = layer.weight
        layer.load_state_dict(state, assign=True)
        self.assertIs(layer.weight, weight)
        for name, value in layer.state_dict().items():
            self.assertEqual(value.data_ptr(), state[name].data_ptr(), name)

    def test_keep_vars(self):
        model = nn.Sequential(nn.BatchNorm1d(2))
        kept = model.state_dict(prefix="a.", keep_vars=True)
        self.assertIs(kept["a.0.weight"], model[0].weight)
        self.assertIs(kept["a.0.running_mean"], model[0].running_mean)
        self.assertFalse(model.state_dict()["0.weight"].requires_grad)

    def test_extra_state(self):
        model = ExtraState(nn.Sequential(nn.Linear(1, 1), ExtraState()))
        model.kept, model.inner[1].kept = "outer", [1, 2]
        state = model.state_dict()
        self.assertEqual((state["_extra_state"], state["inner.1._extra_state"]), ({"kept": "outer"}, {"kept": [1, 2]}))
        other = ExtraState(nn.Sequential(nn.Linear(1, 1), ExtraState()))
        self.assertEqual(str(other.load_state_dict(state)), "<All keys matched successfully>")
        self.assertEqual((other.kept, other.inner[1].kept), ("outer", [1, 2]))

    def test_missing_keys_before_unexpected_keys(self):
        with self.assertRaises(RuntimeError) as caught:
            nn.Linear(1, 1).load_state_dict({"weight": torch.ones(1, 1), "other": torch.ones(1)})
        self.assertEqual(str(caught.exception), 'Error(s) in loading state_dict for Linear:\n\tMissing key(s) in '
                                                'state_dict: "bias". \n\tUnexpected key(s) in state_dict: "other". ')
        self.assertRaisesRegex(TypeError, "Expected state_dict to be dict-like, got <class 'list'>.",
                               nn.Linear(1, 1).load_state_dict, [1])

    def test_parameter_name_conflicts(self):
        layer = nn.Linear(1, 1)
        for name, kind, text in (("in_features", KeyError, "attribute 'in_features' already exists"),
                                 (5, TypeError, "parameter name should be a string. Got int")):
            with self.assertRaisesRegex(kind, text):
                layer.register_parameter(name, None)
        layer.register_parameter("bias", None)
        self.assertIsNone(layer.bias)

    def test_negative_padding_idx(self):
        table = nn.Embedding(3, 2, padding_idx=-1)
        self.assertEqual((table.padding_idx, repr(table)), (2, "Embedding(3, 2, padding_idx=2)"))
        self.assertEqual(table.weight[2].tolist(), [0, 0])
        table(torch.tensor([1, 2])).sum().backward()
        self.assertEqual(table.weight.grad.tolist(), [[0, 0], [1, 1], [0, 0]])



class Functional(unittest.TestCase):
    """Functions that PyTorch 1.13 lacks or computes differently; the others are in parity_cases.txt."""
    def setUp(self):
        self.x = torch.tensor([[1., 2., 3.], [4., 5., 6.]])

    def near(self, tensor, wanted):
        self.assertTrue(torch.allclose(tensor, torch.tensor(wanted, dtype=torch.float32), atol=1e-4), tensor)

    def test_inplace(self):
        for name, rest in (("relu", ()), ("leaky_relu", (0.1,)), ("hardtanh", (-1., 2.)), ("relu6", ()), ("selu", ()), ("dropout", (0.5, True))):
            for args, kwargs in ((rest + (True,), {}), (rest, {"inplace": True})):
                x = self.x - 3
                y = getattr(nn.functional, name)(x, *args, **kwargs)
                self.assertIs(y, x, name)
                if name != "dropout": self.near(x, getattr(nn.functional, name)(self.x - 3, *rest).tolist())
        w = torch.ones(2, requires_grad=True)
        for change in (lambda x: nn.functional.selu(x, inplace=True), nn.SELU(inplace=True), lambda x: nn.functional.elu(x, inplace=True)):
            w.grad = None
            change(w * -2).sum().backward()
            self.assertLess(w.grad[0].item(), 0)
        self.near(w.grad, [-0.2707, -0.2707])
        with self.assertRaisesRegex(RuntimeError, "a leaf Variable that requires grad"):
            nn.functional.selu(w, inplace=True)
        with self.assertRaises(TypeError):
            torch.relu(self.x, inplace=True)

    def test_scaled_dot_product_attention(self):
        x = self.x[None]
        attend = nn.functional.scaled_dot_product_attention
        self.near(attend(x, x, x, is_causal=True), [[[1, 2, 3], [4, 5, 6]]])
        self.near(attend(x, x, x, torch.tensor([[True, False], [True, True]])), [[[1, 2, 3], [4, 5, 6]]])
        self.near(attend(x, x, x, torch.tensor([[1., 0], [0, .5]]), scale=.1), [[[3.0699, 4.0699, 5.0699], [3.9799, 4.9799, 5.9799]]])
        many, few = torch.ones(1, 4, 2, 3), torch.ones(1, 2, 2, 3)
        self.assertEqual(attend(many, few, few, enable_gqa=True).shape, (1, 4, 2, 3))
        with self.assertRaisesRegex(RuntimeError, "Explicit attn_mask should not be set when is_causal=True"):
            attend(x, x, x, torch.ones(2, 2), is_causal=True)
        with self.assertRaisesRegex(RuntimeError, "Number of heads in key and value must divide"):
            attend(many, torch.ones(1, 3, 2, 3), few, enable_gqa=True)
        with self.assertRaisesRegex(RuntimeError, "at least 2 dimensional"):
            attend(x[0, 0], x, x)

    def test_parse_to_arguments(self):
        read = torch._C._nn._parse_to
        self.assertEqual(read("meta", torch.float64, True), (torch.device("meta"), torch.float64, True, None))
        self.assertEqual(read(torch.ones(1, dtype=torch.int8)), (torch.device("cpu"), torch.int8, False, None))
        self.assertEqual(read(dtype=torch.half, memory_format=torch.channels_last), (None, torch.half, False, torch.channels_last))
        with self.assertRaisesRegex(TypeError, r"to\(\) takes at most 3 positional arguments but 4 were given"):
            read("cpu", torch.float32, True, False)

    def test_fully_masked_query_is_zero(self):
        for nothing in (torch.tensor([[False, False], [True, False]]), torch.tensor([[-torch.inf, -torch.inf], [0, -torch.inf]])):
            q, k, v = (torch.ones(2, 3, requires_grad=True) for _ in range(3))
            result = nn.functional.scaled_dot_product_attention(q, k, v, nothing)
            result.sum().backward()
            self.near(result, [[0, 0, 0], [1, 1, 1]])
            self.near(torch.stack([q.grad, k.grad, v.grad]), [[[0] * 3] * 2, [[0] * 3] * 2, [[1] * 3, [0] * 3]])

    def test_rms_norm(self):
        self.near(nn.functional.rms_norm(self.x, (3,), torch.ones(3), 1e-3), [[0.4629, 0.9257, 1.3886], [0.7895, 0.9869, 1.1843]])
        self.near(nn.RMSNorm(3)(self.x), [[0.4629, 0.9258, 1.3887], [0.7895, 0.9869, 1.1843]])
        self.assertEqual(repr(nn.RMSNorm(3)), "RMSNorm((3,), eps=None, elementwise_affine=True)")
        with self.assertRaisesRegex(RuntimeError, r"Given normalized_shape=\[2\], expected input with shape \[\*2\], but got input of size\[2, 3\]"):
            nn.functional.rms_norm(self.x, (2,))

    def test_pool_sizes_are_kept_as_given(self):
        for pool in (nn.MaxPool2d(2), copy.deepcopy(nn.MaxPool2d(2)), pickle.loads(pickle.dumps(nn.MaxPool2d(2)))):
            self.assertEqual((pool.kernel_size, pool.stride, pool.padding), (2, 2, 0))
        self.assertEqual(nn.AdaptiveAvgPool2d((2, 3)).output_size, (2, 3))
        conv = pickle.loads(pickle.dumps(nn.Conv2d(1, 2, 3, padding="same")))
        self.assertEqual((conv.padding, conv(torch.ones(1, 1, 5, 5)).shape), ("same", (1, 2, 5, 5)))
        self.assertEqual(nn.MaxPool2d(2, return_indices=True)(torch.ones(1, 1, 2, 2))[1].tolist(), [[[[0]]]])
        with self.assertRaisesRegex(ValueError, "Invalid padding string 'bad', should be one of {'valid', 'same'}"):
            nn.Conv2d(1, 2, 3, padding="bad")

    def test_deprecated_reduction_arguments_of_losses(self):
        a, b = torch.rand(2, 3), torch.rand(2, 3)
        for words, wanted in (({"size_average": False}, "sum"), ({"reduce": False}, "none"), ({"size_average": True}, "mean"),
                              ({"size_average": False, "reduce": False}, "none")):
            for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "BCELoss", "KLDivLoss", "PoissonNLLLoss"):
                with self.assertWarnsRegex(UserWarning, f"please use reduction='{wanted}' instead"):
                    loss = getattr(nn, name)(**words)
                self.assertEqual(loss.reduction, wanted)
                self.assertTrue(torch.equal(loss(a, b), getattr(nn, name)(reduction=wanted)(a, b)))
        with self.assertWarns(UserWarning):
            weighted = nn.CrossEntropyLoss(torch.ones(3), False)
        self.assertEqual((weighted.reduction, weighted.weight.tolist()), ("sum", [1, 1, 1]))

    def test_deprecated_reduction_arguments_of_functions(self):
        a, b = torch.rand(2, 3), torch.rand(2, 3)
        for words, wanted in (({"size_average": False}, "sum"), ({"reduce": False}, "none"), ({"reduce": True}, "mean"),
                              ({"size_average": False, "reduction": "none"}, "sum")):
            for name in ("l1_loss", "mse_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
                         "poisson_nll_loss", "soft_margin_loss", "hinge_embedding_loss", "cross_entropy"):
                loss = getattr(nn.functional, name)
                with self.assertWarnsRegex(UserWarning, f"size_average and reduce args will be deprecated, please use reduction='{wanted}' instead"):
                    result = loss(a, b, **words)
                self.assertTrue(torch.equal(result, loss(a, b, reduction=wanted)), name)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(nn.functional.mse_loss(a, b, size_average=None, reduce=None).dim(), 0)
            self.assertRaises(UserWarning, nn.functional.mse_loss, a, b, reduce=False)
        self.assertRaisesRegex(TypeError, "unexpected keyword argument 'reduce'", nn.functional.relu, a, reduce=True)

    def test_convolution_attributes(self):
        for layer, wanted in ((nn.Conv1d(2, 4, 3), (False, (0,), (0, 0))), (nn.Conv2d(2, 4, (3, 4), padding=(1, 2)), (False, (0, 0), (2, 2, 1, 1))),
                            (nn.Conv2d(2, 4, (3, 4), padding="same"), (False, (0, 0), [1, 2, 1, 1])),
                            (nn.Conv1d(2, 4, 3, padding="valid"), (False, (0,), [0, 0])),
                            (nn.ConvTranspose2d(2, 4, 3, padding=1, stride=2, output_padding=1), (True, (1, 1), (1, 1, 1, 1)))):
            self.assertEqual((layer.transposed, layer.output_padding, layer._reversed_padding_repeated_twice), wanted)
        self.assertFalse(hasattr(nn.Linear(1, 1), "transposed"))

    def test_norms_without_bias(self):
        for kind in (nn.BatchNorm1d, nn.InstanceNorm1d):
            layer = kind(2, affine=True, bias=False)
            self.assertIsNone(layer.bias)
            self.assertIn("affine=True, bias=False, track", repr(layer))
            self.assertNotIn("bias", layer.state_dict())
            x = torch.rand(3, 2, 4)
            self.assertTrue(torch.equal(layer(x), kind(2, affine=True)(x)))

    def test_reprs_of_numbers(self):
        self.assertEqual(repr(nn.Threshold(0.1, 20)), "Threshold(threshold=0.1, value=20.0)")
        self.assertEqual(repr(nn.GroupNorm(2, 4)), "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)")
        self.assertEqual(repr(nn.Upsample(size=3, mode="bilinear")), "Upsample(size=3, mode='bilinear')")

    def test_layers_on_device(self):
        if not torch.cuda.is_available(): self.skipTest("requires a device")
        for make, shape in ((lambda: nn.Conv1d(2, 4, 3, padding="same"), (2, 2, 6)), (lambda: nn.ConvTranspose2d(2, 4, 3, 2), (2, 2, 4, 4)),
                            (lambda: nn.GroupNorm(1, 2), (2, 2, 6)), (lambda: nn.InstanceNorm1d(2), (2, 2, 6)), (lambda: nn.PReLU(), (2, 2)),
                            (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 4)), (lambda: nn.ReflectionPad2d(1), (1, 2, 3, 4))):
            layer, x = make(), torch.randn(shape)
            wanted = layer(x)
            self.assertTrue(torch.allclose(layer.cuda()(x.cuda()).cpu(), wanted, atol=1e-5), layer)


if __name__ == "__main__":
    unittest.main()
