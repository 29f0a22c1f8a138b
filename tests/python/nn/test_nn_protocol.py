# SPDX-License-Identifier: Apache-2.0
"""torch.nn.Module as subclassed, patched and hooked by programs: replaced methods are called."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import contextlib
import copy
import gc
import inspect
import pickle
import unittest
import warnings
import weakref

import phlox as torch
from phlox import nn
from phlox.nn.modules import module as all_modules

F = nn.functional


class Doubled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Subclasses(unittest.TestCase):
    def test_super_forward(self):
        x, layer = torch.ones(3, 4), Doubled(4, 2)
        self.assertTrue(torch.equal(layer(x), F.linear(x, layer.weight, layer.bias) * 2))

    def test_super_forward_of_every_layer(self):
        for name, args, shape in (("Conv2d", (1, 2, 3), (1, 1, 5, 5)), ("BatchNorm1d", (4,), (3, 4)), ("ReLU", (), (3, 4)),
                                  ("LayerNorm", (4,), (3, 4)), ("Dropout", (0.0,), (3, 4)), ("MaxPool2d", (2,), (1, 1, 4, 4)),
                                  ("Softmax", (1,), (3, 4)), ("Flatten", (), (3, 4)), ("Identity", (), (3, 4))):
            base = getattr(nn, name)
            sub = type("Sub", (base,), {"forward": lambda self, x, base=base: base.forward(self, x) + 1})
            x = torch.rand(shape)
            torch.manual_seed(0)
            plain = base(*args)
            torch.manual_seed(0)
            self.assertTrue(torch.allclose(sub(*args)(x), plain(x) + 1), name)

    def test_super_forward_of_container_and_loss(self):
        class More(nn.Sequential):
            def forward(self, x):
                return super().forward(x) + 1

        class Triple(nn.CrossEntropyLoss):
            def forward(self, input, target):
                return super().forward(input, target) * 3
        x, target = torch.ones(3, 4), torch.zeros(3, dtype=torch.long)
        self.assertEqual(More(nn.Identity(), nn.Identity())(x).sum(), 24)
        self.assertTrue(torch.allclose(Triple()(x, target), 3 * F.cross_entropy(x, target)))

    def test_first_forward_in_mro_is_called(self):
        class Says(nn.Module):
            def forward(self, x):
                return "says"
        x = torch.ones(1, 2)
        self.assertEqual(type("A", (Says, nn.Linear), {})(2, 2)(x), "says")
        self.assertIsInstance(type("B", (nn.Linear, Says), {})(2, 2)(x), torch.Tensor)

    def test_layer_without_its_init(self):
        class Ones(nn.Linear):
            def __init__(self):
                nn.Module.__init__(self)
                self.weight, self.bias = nn.Parameter(torch.ones(2, 4)), None
        self.assertEqual(Ones()(torch.ones(1, 4)).tolist(), [[4, 4]])

    def test_init_arguments(self):
        class Given(nn.Module):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
        self.assertRaisesRegex(TypeError, r"Given.__init__\(\) takes 1 positional argument but 2 were given", Given, 3)
        self.assertRaisesRegex(TypeError, r"Given.__init__\(\) got an unexpected keyword argument 'a'", Given, a=3)

    def test_call_super_init(self):
        class Other:
            def __init__(self, number):
                self.number = number

        class Both(nn.Module, Other):
            call_super_init = True

            def __init__(self):
                super().__init__(number=4)
        self.assertEqual(Both().number, 4)

    def test_class_can_be_reassigned(self):
        layer, x = nn.Linear(4, 2), torch.ones(1, 4)
        plain = layer(x)
        layer.__class__ = Doubled
        self.assertTrue(torch.equal(layer(x), plain * 2))

    def test_identity_accepts_any_arguments(self):
        self.assertEqual(nn.Identity(54, unused=1)(3), 3)
        self.assertEqual(repr(nn.Identity(54)), "Identity()")

    def test_forward_signatures(self):
        self.assertEqual(list(inspect.signature(nn.BCELoss.forward).parameters), ["self", "input", "target"])


class MonkeyPatching(unittest.TestCase):
    def test_forward_of_instance(self):
        layer, x = nn.Linear(2, 2), torch.ones(2)
        layer.forward = lambda x: x * 3
        self.assertEqual(nn.Sequential(layer)(x).tolist(), [3, 3])
        del layer.forward
        self.assertTrue(torch.equal(layer(x), F.linear(x, layer.weight, layer.bias)))

    def test_forward_of_library_class(self):
        layer, x = nn.Sequential(nn.Tanh()), torch.zeros(1)
        own = nn.Tanh.forward
        nn.Tanh.forward = lambda self, x: x + 10
        try:
            self.assertEqual(layer(x).item(), 10)
        finally:
            nn.Tanh.forward = own
        self.assertEqual(layer(x).item(), 0)

    def test_forward_of_base_class(self):
        layer, x = type("Sub", (Doubled,), {})(2, 2), torch.ones(2)
        layer(x)
        own = Doubled.forward
        Doubled.forward = lambda self, x: x + 5
        try:
            self.assertEqual(layer(x).tolist(), [6, 6])
        finally:
            Doubled.forward = own
        self.assertTrue(torch.equal(layer(x), 2 * F.linear(x, layer.weight, layer.bias)))

    def test_module_call(self):
        net, seen, own = nn.Sequential(nn.ReLU(), Doubled(2, 1)), [], nn.Module.__call__

        def counted(self, *args, **kwargs):
            seen.append(type(self).__name__)
            return own(self, *args, **kwargs)
        nn.Module.__call__ = counted
        try:
            net(torch.ones(1, 2))
        finally:
            nn.Module.__call__ = own
        net(torch.ones(1, 2))
        self.assertEqual(seen, ["Sequential", "ReLU", "Doubled"])

    def test_functional_functions_used_by_layers(self):
        x, own = torch.rand(2, 3), {}
        calls = {"relu": lambda x, inplace=False: x + 100, "linear": lambda x, weight, bias=None: "linear",
                 "softmax": lambda x, dim: dim, "cross_entropy": lambda *args: "loss",
                 "hardtanh": lambda x, low, high, inplace: (low, high, inplace)}
        layers = {"relu": nn.ReLU(), "linear": Doubled(3, 1), "softmax": nn.Softmax(), "cross_entropy": nn.CrossEntropyLoss(),
                  "hardtanh": nn.Hardtanh(-2, 2, inplace=True)}
        for name, function in calls.items():
            own[name] = getattr(F, name)
            setattr(F, name, function)
        try:
            self.assertTrue(torch.equal(layers["relu"](x), x + 100))
            self.assertEqual([layers["linear"](x), layers["softmax"](x), layers["cross_entropy"](x, x)],
                             ["linear" * 2, 1, "loss"])
            self.assertEqual(layers["hardtanh"](x), (-2, 2, True))
            self.assertTrue(torch.equal(nn.Sigmoid()(x), x.sigmoid()))
        finally:
            for name, function in own.items():
                setattr(F, name, function)
        self.assertTrue(torch.equal(layers["relu"](x), x))

    def test_functional_functions_used_by_norms(self):
        x, called = torch.rand(2, 3, 4), []
        layers = [nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None), nn.InstanceNorm1d(3, affine=True), nn.GroupNorm(3, 3), nn.LayerNorm(4),
                  nn.RMSNorm(4)]
        wanted = [layer(x) for layer in layers]
        states = [layer.state_dict() for layer in layers]
        own = {name: getattr(F, name) for name in ("batch_norm", "instance_norm", "group_norm", "layer_norm", "rms_norm")}

        def recording(name):
            def function(*args, **kwargs):
                called.append(name)
                return own[name](*args, **kwargs)
            return function
        for name in own:
            setattr(F, name, recording(name))
        try:
            for layer, result, state in zip([copy.deepcopy(layer) for layer in layers], wanted, states):
                for name, value in state.items():
                    if "running" in name or "num_" in name:
                        layer.get_buffer(name).copy_(torch.ones(3) if "var" in name else torch.zeros_like(value))
                self.assertTrue(torch.allclose(layer(x), result))
                for name, value in state.items():
                    self.assertTrue(torch.allclose(layer.state_dict()[name], value), name)
            self.assertEqual(called, ["batch_norm", "batch_norm", "instance_norm", "group_norm", "layer_norm", "rms_norm"])
            self.assertEqual(nn.InstanceNorm2d(3)(torch.rand(3, 2, 2)).shape, (3, 2, 2))
        finally:
            for name, function in own.items():
                setattr(F, name, function)

    def test_attributes_of_module_class(self):
        nn.Module.marker = 5
        self.assertEqual(nn.Linear(1, 1).marker, 5)
        del nn.Module.marker
        self.assertFalse(hasattr(nn.Linear(1, 1), "marker"))

    def test_object_setattr_bypasses_registration(self):
        layer, other = nn.Linear(1, 1), nn.ReLU()
        object.__setattr__(layer, "friend", other)
        self.assertIs(layer.friend, other)
        self.assertEqual(list(layer.children()), [])

    def test_getattr_of_wrapper(self):
        class Wrapper(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def __getattr__(self, name):
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(self.inner, name)
        self.assertEqual(Wrapper(nn.Linear(3, 2)).in_features, 3)
        with self.assertRaisesRegex(AttributeError, "'Linear' object has no attribute 'nothing'"):
            Wrapper(nn.Linear(3, 2)).nothing

    def test_getattr_precedes_parameters(self):
        class Late(nn.Linear):
            def __getattr__(self, name):
                return "late" if name == "weight" else super().__getattr__(name)
        self.assertEqual(Late(1, 1).weight, "late")
        self.assertIsInstance(Late(1, 1).bias, nn.Parameter)

    def test_setattr_override(self):
        class Loud(nn.Module):
            def __setattr__(self, name, value):
                super().__setattr__(name + "_", value)
        module = Loud()
        module.inner = nn.ReLU()
        self.assertEqual([name for name, _ in module.named_children()], ["inner_"])

    def test_walks_have_no_depth_limit_and_calls_of_nested_modules_do(self):
        deep = inner = nn.Linear(1, 1)
        for depth in range(30000):  # the limit depends on Python's version
            deep = nn.Sequential(deep)
            net = deep if depth < 2000 else net
        with self.assertRaises(RecursionError):
            deep(torch.ones(1))
        for use in repr, copy.deepcopy:
            with contextlib.suppress(RecursionError):
                use(net)
        name = "0." * 2000 + "weight"
        self.assertEqual([name, name[:-6] + "bias"], list(net.state_dict()))
        self.assertEqual(name, next(net.named_parameters())[0])
        self.assertEqual(2001, len(list(net.modules())))
        self.assertFalse(net.eval().apply(id).double().requires_grad_(False).train().load_state_dict(net.state_dict())[0])
        self.assertTrue(inner.training and inner.weight.dtype is torch.float64 and not inner.weight.requires_grad)

    def test_module_dict_takes_pairs_and_mappings(self):
        made = nn.ModuleDict([("a", nn.ReLU())])
        made.update(zip("bc", (nn.ReLU(), nn.Tanh())))
        self.assertEqual([list(made), list(nn.ModuleDict(made))], [["a", "b", "c"]] * 2)
        self.assertRaisesRegex(TypeError, "should be called with an iterable of key/value pairs, but got int", made.update, 5)
        with self.assertRaises(KeyError):
            del made["d"]

    def test_module_that_contains_itself_raises_recursion_error(self):
        net = nn.Sequential()
        net.append(net)
        for use in (net.state_dict, net.train, lambda: net.apply(id)):
            self.assertRaises(RecursionError, use)
        self.assertEqual([net], list(net.modules()))

    def test_many_entries_are_found_and_removed(self):
        values = {f"p{i}": nn.Parameter(torch.full((), float(i))) for i in range(100)}
        items = nn.ParameterDict(values)
        for i in range(0, 100, 3):
            self.assertIs(values[f"p{i}"], items.pop(f"p{i}"))
        left = [f"p{i}" for i in range(100) if i % 3]
        self.assertEqual(sorted(left), list(items))
        self.assertEqual(sorted(left), [name for name, _ in items.named_parameters()])
        self.assertEqual((sorted(left)[-1], 66), (items.popitem()[0], len(left)))
        items["p0"] = 1.5
        self.assertEqual(1.5, items["p0"])

    def test_parameters_in_several_entries_are_kept_until_the_last_one_ends(self):
        module, parameter = nn.Module(), nn.Parameter(torch.ones(1))
        parameter.mark = "same object"
        module.a = module.b = parameter
        del parameter, module.a
        gc.collect()
        self.assertEqual("same object", module.b.mark)
        kept = weakref.ref(module.b)
        del module.b
        self.assertIsNone(kept())


class Hooks(unittest.TestCase):
    def test_hooks_with_kwargs(self):
        class Scaled(nn.Module):
            def forward(self, x, scale=1):
                return x * scale
        module, x = Scaled(), torch.ones(1)
        with module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": 3}), with_kwargs=True):
            self.assertEqual(module(x, scale=2).item(), 3)
        with module.register_forward_hook(lambda m, args, kwargs, out: out + kwargs["scale"], with_kwargs=True):
            self.assertEqual(module(x, scale=2).item(), 4)
        self.assertEqual((len(module._forward_hooks), len(module._forward_hooks_with_kwargs)), (0, 0))
        module.register_forward_pre_hook(lambda m, args, kwargs: 5, with_kwargs=True)
        self.assertRaisesRegex(RuntimeError, "forward pre-hook must return None or a tuple", module, x)

    def test_prepend(self):
        module, seen = nn.Identity(), []
        module.register_forward_hook(lambda *_: seen.append(1))
        module.register_forward_hook(lambda *_: seen.append(2), prepend=True)
        module(0)
        self.assertEqual(seen, [2, 1])

    def test_always_call(self):
        module, seen = nn.Linear(2, 2), []
        module.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
        module.register_forward_hook(lambda m, args, out: seen.append(0))
        self.assertRaises(RuntimeError, module, torch.ones(3))
        self.assertEqual(seen, [None])

    def test_exception_in_always_call_hook_warns(self):
        module, seen = nn.Linear(2, 2), []
        module.register_forward_hook(lambda m, args, out: 1 / 0, always_call=True)
        module.register_forward_hook(lambda m, args, kwargs, out: seen.append(kwargs), always_call=True, with_kwargs=True)
        with self.assertWarnsRegex(UserWarning, "silenced as another error was raised in forward: division by zero"):
            self.assertRaisesRegex(RuntimeError, "shapes cannot be multiplied", module, torch.ones(1, 3))
        self.assertEqual(seen, [{}])
        self.assertRaises(ZeroDivisionError, module, torch.ones(1, 2))
        self.assertEqual(seen, [{}] * 2)

    def test_hook_changes_apply_to_next_call(self):
        module, seen = nn.Identity(), []

        def once(m, args, out):
            seen.append("once")
            handle.remove()
            m.register_forward_hook(lambda *_: seen.append("later"))
        handle = module.register_forward_hook(once)
        module.register_forward_hook(lambda *_: seen.append("always"))
        module(0)
        self.assertEqual(seen, ["once", "always"])
        module(0)
        self.assertEqual(seen[2:], ["always", "later"])

    def test_pre_hook_may_register_forward_hook(self):
        module, seen = nn.Identity(), []
        module.register_forward_pre_hook(lambda m, args: seen.append(m.register_forward_hook(lambda *_: seen.append(1))))
        module(0)
        self.assertEqual(seen[1:], [1])

    def test_pre_hook_results(self):
        module, seen = nn.Identity(), []
        handle = module.register_forward_pre_hook(lambda m, args: args[0] + 1)
        module.register_forward_pre_hook(lambda m, args: seen.append(args))
        self.assertEqual((module(1), module(input=5) if handle.remove() is None else 0), (2, 5))
        self.assertEqual(seen, [(2,), ()])
        module.register_forward_pre_hook(lambda m, args, kwargs: ([7], {}), with_kwargs=True)
        self.assertEqual(module(1), 7)
        module.register_forward_pre_hook(lambda m, args, kwargs: (args, 5), with_kwargs=True)
        self.assertRaises(Exception, module, 1)

    def test_forward_after_hook_removal(self):
        module = nn.Linear(2, 2)
        module.register_forward_hook(lambda *_: 1 / 0).remove()
        module.x = 1
        del module.x
        module.forward = lambda x: 3
        self.assertEqual(module(None), 3)
        del module.forward
        module.register_forward_hook(lambda *_: 4)
        self.assertEqual(module(torch.ones(2)), 4)

    def test_hook_dicts_are_writable(self):
        module = nn.Identity()
        module.register_forward_hook(lambda m, args, out: out + 1)
        self.assertEqual(module(1), 2)
        module._forward_hooks[77] = lambda m, args, out: out * 10
        self.assertEqual(module(1), 20)
        module._forward_hooks.clear()
        self.assertEqual(module(1), 1)

    def test_global_hooks(self):
        net, seen = nn.Sequential(nn.Identity()), []
        with all_modules.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)):
            with all_modules.register_module_forward_pre_hook(lambda m, args: (args[0] + 1,)):
                self.assertEqual(net(1), 3)
        self.assertEqual((net(1), seen), (1, ["Identity", "Sequential"]))

    def test_hook_does_not_keep_module(self):
        module = nn.Identity()
        handle = module.register_forward_hook(lambda m, args, out: None)
        gone = weakref.ref(module)
        del module
        self.assertIsNone(gone())
        handle.remove()

    def test_hooks_are_copied_and_pickled(self):
        module = nn.Identity()
        module.register_forward_hook(add_one)
        for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            self.assertEqual(other(1), 2)


def add_one(module, args, out):
    return out + 1


class Operators(unittest.TestCase):
    def test_sequential_add_and_multiply(self):
        a, b = nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())
        kinds = lambda net: [type(module).__name__ for module in net]
        self.assertEqual(kinds(a + b), ["ReLU", "Tanh"])
        self.assertIs((a + b)[0], a[0])
        self.assertEqual((kinds(a * 2), kinds(2 * a), kinds(reversed(a + b))), (["ReLU"] * 2, ["ReLU"] * 2, ["Tanh", "ReLU"]))
        net = a
        a += b
        a *= 2
        self.assertIs(a, net)
        self.assertEqual((kinds(a), list(a._modules)), (["ReLU", "Tanh"] * 2, ["0", "1", "2", "3"]))
        self.assertRaisesRegex(ValueError, "add operator supports only objects of Sequential class", lambda: a + [b])
        self.assertRaisesRegex(ValueError, "Non-positive multiplication factor 0", lambda: a * 0)
        self.assertRaisesRegex(TypeError, r"unsupported operand type\(s\) for \*", lambda: a * 1.5)

    def test_module_list_add(self):
        layers = nn.ModuleList([nn.ReLU()])
        self.assertEqual([type(m).__name__ for m in layers + [nn.Tanh()]], ["ReLU", "Tanh"])
        layers += [nn.Tanh()]
        self.assertEqual(len(layers), 2)


class Graphs(unittest.TestCase):
    def test_move_while_graph_is_alive(self):
        for move in (lambda m: m.cuda(), lambda m: m.double()):
            layer = nn.Linear(2, 1)
            old = layer(torch.ones(1, 2))
            move(layer)
            x = torch.ones(1, 2).to(layer.weight)
            layer(x).sum().backward()
            self.assertEqual((layer.weight.grad.device, layer.weight.grad.dtype), (x.device, x.dtype))
            self.assertEqual(layer.weight.grad.tolist(), [[1, 1]])
            self.assertIsNotNone(old.grad_fn)

    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_replicas_after_moves(self):
        layer = nn.Linear(2, 2).cuda()
        replicas, x = nn.DataParallel(layer, device_ids=[0, 1]), torch.ones(4, 2, device="cuda")
        first = replicas(x).sum()
        layer.to("cuda:1").to("cuda:0")
        layer.zero_grad()
        replicas(x).sum().backward()
        self.assertEqual(layer.weight.grad.tolist(), [[4, 4]] * 2)
        self.assertTrue(first.requires_grad)

    def test_functions_are_pickled_by_reference(self):
        for function in (F.relu, torch.relu, F.linear, torch.add, torch.Tensor.add):
            self.assertIs(pickle.loads(pickle.dumps(function)), function)


class BackwardHooks(unittest.TestCase):
    def test_a_gradient_that_bypasses_the_results_runs_no_hook(self):
        model, calls = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)), []
        for name, child in model.named_children():
            child.register_full_backward_pre_hook(lambda m, outward, name=name: calls.append("pre" + name))
            child.register_full_backward_hook(lambda m, inward, outward, name=name: calls.append(name))
        x = torch.ones(2, 3, requires_grad=True)
        grad, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        self.assertEqual(calls, ["pre2", "2", "pre1", "1", "pre0", "0"])
        grad.pow(2).sum().backward()
        self.assertEqual(calls[6:], ["pre0", "0"])

    def test_hooks_receive_gradients(self):
        layer, seen = nn.Linear(2, 3), []
        layer.register_full_backward_hook(lambda m, inward, out: seen.append((inward[0].tolist(), out[0].tolist())))
        x = torch.ones(1, 2, requires_grad=True)
        (layer(x) * 2).sum().backward()
        self.assertEqual(seen, [(x.grad.tolist(), [[2, 2, 2]])])
        self.assertTrue(torch.allclose(x.grad, 2 * layer.weight.sum(0, keepdim=True)))

    def test_hooks_replace_gradients(self):
        layer = nn.Identity()
        layer.register_full_backward_pre_hook(lambda m, out: (out[0] * 3,))
        layer.register_full_backward_hook(lambda m, inward, out: (inward[0] + out[0],))
        x = torch.ones(1, requires_grad=True)
        layer(x).backward()
        self.assertEqual(x.grad.item(), 6)

    def test_inputs_without_gradient(self):
        layer, seen = nn.Linear(2, 1), []
        layer.register_full_backward_hook(lambda m, inward, out: seen.append(inward))
        layer(torch.ones(1, 2)).sum().backward()
        self.assertEqual(seen, [(None,)])
        layer.register_full_backward_hook(lambda m, inward, out: (torch.ones(1),))
        self.assertRaisesRegex(RuntimeError, "where no input requires gradient should always return None",
                               layer(torch.ones(1, 2)).sum().backward)

    def test_wrong_number_of_gradients(self):
        layer, x = nn.Identity(), torch.ones(1, requires_grad=True)
        layer.register_full_backward_hook(lambda m, inward, out: (None, None))
        self.assertRaisesRegex(RuntimeError, "invalid number of grad, got 2, but expected 1", layer(x).backward)

    def test_several_inputs_and_outputs(self):
        class Swap(nn.Module):
            def forward(self, a, b, factor):
                return b * factor, a
        module, seen = Swap(), []
        module.register_full_backward_hook(lambda m, inward, out: seen.append((inward, out)))
        a, b = torch.ones(1, requires_grad=True), torch.ones(1)
        module(a, b, 2)[1].backward()
        (inward, out), = seen
        self.assertEqual((inward[0].item(), inward[1:], out[0], out[1].item()), (1, (None, None), None, 1))

    def test_regular_and_full_backward_hooks_conflict(self):
        layer = nn.Identity()
        layer.register_full_backward_hook(lambda *_: None)
        self.assertRaisesRegex(RuntimeError, "Cannot use both regular backward hooks and full backward hooks",
                               layer.register_backward_hook, lambda *_: None)

    def test_global_hooks(self):
        net, seen = nn.Sequential(nn.ReLU(), nn.Tanh()), []
        with all_modules.register_module_full_backward_hook(lambda m, inward, out: seen.append(type(m).__name__)):
            net(torch.ones(1, requires_grad=True)).backward()
        self.assertEqual(seen, ["Tanh", "ReLU", "Sequential"])


if __name__ == "__main__":
    unittest.main()
