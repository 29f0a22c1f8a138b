# SPDX-License-Identifier: Apache-2.0
"""Overridden methods of torch.nn.Module are called wherever PyTorch calls them: when parent modules are moved, saved, loaded, switched between
training modes and traversed."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import copy
import io
import pickle
import unittest
from collections import OrderedDict

import phlox as torch
from phlox import nn
from phlox.nn.modules import module as all_modules


class Moving(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))
        self.extra = torch.ones(2)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.extra = fn(self.extra)
        return self


class Counting(nn.Module):
    def __init__(self, count=0):
        super().__init__()
        self.w, self.count = nn.Parameter(torch.zeros(2)), count

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "count"] = torch.tensor(self.count)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        self.count = int(state_dict.pop(prefix + "count"))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Moves(unittest.TestCase):
    @unittest.skipIf(torch.cuda.device_count() < 2, "requires two devices")
    def test_child_apply_override_is_called(self):
        net = nn.Sequential(Moving())
        net.double()
        self.assertEqual((net[0].extra.dtype, net[0].layer.weight.dtype), (torch.float64, torch.float64))
        self.assertEqual(net[0].steps.dtype, torch.int64)
        net.to("cuda:1", torch.float32)
        self.assertEqual({str(t.device) for t in (net[0].extra, net[0].steps, net[0].layer.bias)}, {"cuda:1"})
        self.assertRaisesRegex(TypeError, "only accepts floating point", net.to, torch.int32)

    def test_gradients_move_and_parameters_keep_identity(self):
        net = nn.Sequential(Moving())
        weight = net[0].layer.weight
        net[0].layer(torch.ones(1, 2)).sum().backward()
        net.cuda()
        self.assertIs(net[0].layer.weight, weight)
        self.assertTrue(weight.is_cuda and weight.grad.is_cuda)
        self.assertEqual(weight.grad.tolist(), [[1, 1]] * 2)

    def test_apply_function(self):
        layer = nn.BatchNorm1d(2)
        layer._apply(lambda t: t + 1)
        self.assertEqual((layer.weight.tolist(), layer.running_mean.tolist()), ([2, 2], [1, 1]))
        self.assertIsInstance(layer.weight, nn.Parameter)

    def test_to_empty(self):
        layer = nn.Linear(2, 3).to_empty(device="cuda")
        self.assertEqual((layer.weight.device.type, layer.weight.shape), ("cuda", (3, 2)))


class StateDicts(unittest.TestCase):
    def test_save_and_load_overrides(self):
        saved, other = nn.Sequential(Counting(4), nn.Linear(1, 1)), nn.Sequential(Counting(), nn.Linear(1, 1))
        state = saved.state_dict()
        self.assertEqual(list(state), ["0.w", "0.count", "1.weight", "1.bias"])
        keys = other.load_state_dict(state)
        self.assertEqual((other[0].count, repr(keys)), (4, "<All keys matched successfully>"))
        self.assertEqual(other[1].weight.tolist(), saved[1].weight.tolist())

    def test_mismatch_errors(self):
        net = nn.Sequential(Counting(), nn.Linear(1, 2))
        with self.assertRaisesRegex(RuntimeError, r'^Error\(s\) in loading state_dict for Sequential:\n'
                                    r'\tMissing key\(s\) in state_dict: "1.bias". \n'
                                    r'\tUnexpected key\(s\) in state_dict: "more.x". \n'
                                    r"\tsize mismatch for 1.weight: copying a param with shape torch.Size\(\[1\]\) from "
                                    r"checkpoint, the shape in current model is torch.Size\(\[2, 1\]\).$"):
            net.load_state_dict({"0.w": torch.ones(2), "0.count": torch.tensor(1), "1.weight": torch.ones(1),
                                 "more.x": torch.ones(1)})
        keys = net.load_state_dict({"0.count": torch.tensor(1), "0.odd": torch.ones(1)}, strict=False)
        self.assertEqual((keys.missing_keys, keys.unexpected_keys), (["0.w", "1.weight", "1.bias"], ["0.odd"]))

    def test_versions(self):
        class Second(nn.Linear):
            _version = 2

            def _load_from_state_dict(self, state, prefix, metadata, *rest):
                seen.append(metadata.get("version"))
                super()._load_from_state_dict(state, prefix, metadata, *rest)
        seen, net = [], nn.Sequential(Second(1, 1))
        state = net.state_dict()
        self.assertEqual(dict(state._metadata), {"": {"version": 1}, "0": {"version": 2}})
        net.load_state_dict(state)
        net.load_state_dict(dict(state))
        self.assertEqual(seen, [2, None])

    def test_metadata_has_version_of_every_module(self):
        net = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.BatchNorm1d(1)))
        versions = {"": {"version": 1}, "0": {"version": 1}, "1": {"version": 1}, "1.0": {"version": 2}}
        self.assertEqual(net.state_dict()._metadata, versions)
        self.assertEqual(net.state_dict(prefix="a.")._metadata, {("a." + name).rstrip("."): version for name, version in versions.items()})
        copy = pickle.loads(pickle.dumps(net.state_dict()))
        self.assertEqual(copy._metadata, versions)
        self.assertFalse(hasattr(net.state_dict(destination=OrderedDict()), "_metadata"))

    def test_state_dict_hooks(self):
        net, seen = nn.Sequential(nn.Linear(1, 1, bias=False)), []
        net[0]._register_state_dict_hook(lambda m, state, prefix, meta: state.__setitem__(prefix + "more", 1))
        net[0].register_state_dict_pre_hook(lambda m, prefix, keep_vars: seen.append((prefix, keep_vars)))
        self.assertEqual(list(net.state_dict()), ["0.weight", "0.more"])
        self.assertEqual(seen, [("0.", False)])
        net._register_state_dict_hook(lambda m, state, prefix, meta: OrderedDict(only=2))
        self.assertEqual(net.state_dict(), {"only": 2})
        with net.register_state_dict_post_hook(lambda m, state, prefix, meta: state):
            self.assertRaisesRegex(RuntimeError, "must return None", net.state_dict)

    def test_load_state_dict_hooks(self):
        net, seen = nn.Sequential(nn.Linear(1, 1, bias=False)), []
        net[0]._register_load_state_dict_pre_hook(
            lambda state, prefix, *rest: state.__setitem__(prefix + "weight", state.pop(prefix + "old")))
        net[0].register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: seen.append((m, prefix)))
        net.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
        net.load_state_dict({"0.old": torch.full((1, 1), 3.0), "odd": torch.ones(1)})
        self.assertEqual((net[0].weight.item(), seen), (3, [(net[0], "0.")]))
        net.register_load_state_dict_post_hook(lambda m, keys: keys)
        self.assertRaisesRegex(AssertionError, "not expected to return new values", net.load_state_dict,
                               {"0.old": torch.ones(1, 1)})

    def test_extra_state(self):
        class Extra(nn.Module):
            def get_extra_state(self):
                return {"epoch": 3}

            def set_extra_state(self, state):
                self.state = state
        net = nn.Sequential(Extra())
        state = net.state_dict()
        self.assertEqual(state, {"0._extra_state": {"epoch": 3}})
        net.load_state_dict(state)
        self.assertEqual(net[0].state, {"epoch": 3})
        self.assertRaisesRegex(RuntimeError, 'Missing key.*"0._extra_state"', net.load_state_dict, {})
        self.assertRaisesRegex(RuntimeError, "should never be called", nn.Linear(1, 1).get_extra_state)

    def test_child_state_dict_override(self):
        class Bare(nn.Linear):
            def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
                destination[prefix + "bare"] = 1
                return destination
        self.assertEqual(nn.Sequential(Bare(1, 1)).state_dict(), {"0.bare": 1})


class Modes(unittest.TestCase):
    def test_child_train_override(self):
        class Frozen(nn.Sequential):
            def train(self, mode=True):
                return super().train(False)
        net = nn.Sequential(Frozen(nn.Dropout()), nn.Dropout()).train()
        self.assertEqual([m.training for m in net.modules()], [True, False, False, True])

    def test_train_attribute_of_instance(self):
        net = nn.Sequential(nn.Dropout())
        net[0].train = lambda mode=True: seen.append(mode)
        seen = []
        net.eval()
        self.assertEqual((seen, net[0].training), ([False], True))


class Traversal(unittest.TestCase):
    def test_named_parameters_override(self):
        class Some(nn.Linear):
            def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
                yield prefix + "bias", self.bias
        layer = Some(1, 1)
        layer(torch.ones(1, 1)).backward()
        self.assertEqual(list(layer.parameters()), [layer.bias])
        layer.zero_grad()
        layer.requires_grad_(False)
        self.assertEqual((layer.bias.grad, layer.weight.grad.item()), (None, 1))
        self.assertEqual((layer.bias.requires_grad, layer.weight.requires_grad), (False, True))

    def test_named_modules_override(self):
        class Shallow(nn.Sequential):
            def named_modules(self, memo=None, prefix="", remove_duplicate=True):
                yield prefix + "first", self[0]
        net = Shallow(nn.Linear(1, 1), nn.Linear(1, 1))
        self.assertEqual(list(net.modules()), [net[0]])
        self.assertEqual([name for name, _ in net.named_parameters()], ["first.weight", "first.bias"])

    def test_get_parameter_and_buffer_by_path(self):
        net = nn.Sequential(nn.BatchNorm1d(2))
        self.assertIs(net.get_parameter("0.weight"), net[0].weight)
        self.assertIs(net.get_buffer("0.running_mean"), net[0].running_mean)
        self.assertRaisesRegex(AttributeError, "is not a buffer", net.get_buffer, "0.weight")
        self.assertRaisesRegex(AttributeError, "has no attribute `none`", net.get_parameter, "0.none")
        net.set_submodule("0", nn.ReLU())
        self.assertIsInstance(net[0], nn.ReLU)


class Registration(unittest.TestCase):
    def test_buffer_attributes(self):
        module = nn.Module()
        module.a, module.b = nn.Buffer(torch.ones(2)), nn.Buffer(torch.ones(1), persistent=False)
        self.assertEqual([name for name, _ in module.named_buffers()], ["a", "b"])
        self.assertEqual(list(module.state_dict()), ["a"])
        self.assertIsInstance(module.a, nn.Buffer)
        self.assertNotIsInstance(torch.ones(1), nn.Buffer)

    def test_register_parameter_override(self):
        class Seen(nn.Module):
            def register_parameter(self, name, param):
                names.append(name)
                super().register_parameter(name, param)
        names, module = [], Seen()
        module.weight = nn.Parameter(torch.ones(1))
        self.assertEqual((names, len(list(module.parameters()))), (["weight"], 1))

    def test_global_registration_hooks(self):
        seen = []
        with all_modules.register_module_parameter_registration_hook(lambda m, name, p: seen.append(name)), \
                all_modules.register_module_module_registration_hook(lambda m, name, child: nn.Tanh()), \
                all_modules.register_module_buffer_registration_hook(lambda m, name, b: b + 1):
            module = nn.Module()
            module.p, module.child = nn.Parameter(torch.ones(1)), nn.ReLU()
            module.register_buffer("b", torch.zeros(1))
        self.assertEqual((seen, type(module.child), module.b.item()), (["p"], nn.Tanh, 1))
        module.child = nn.ReLU()
        self.assertIsInstance(module.child, nn.ReLU)



class Scaled(torch.Tensor):
    scale = 3


class Noted(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class OwnParameter(nn.Parameter):
    pass


class SubclassParameters(unittest.TestCase):
    def each(self):
        for kind in (Scaled, Noted):
            with self.subTest(kind.__name__):
                yield kind, torch.ones(2, 2).as_subclass(kind)

    def check(self, value, kind, requires_grad=True):
        self.assertIs(type(value), kind)
        self.assertIsInstance(value, nn.Parameter)
        self.assertEqual((value.requires_grad, value.is_leaf), (requires_grad, True))

    def test_a_parameter_keeps_the_class_of_its_data(self):
        for kind, data in self.each():
            data.note = 1
            made = nn.Parameter(data)
            self.check(made, kind)
            self.check(nn.Parameter(data, requires_grad=False), kind, False)
            self.check(OwnParameter(data), kind)
            self.assertEqual((made.data_ptr(), hasattr(made, "note")), (data.data_ptr(), False))
            self.assertNotIsInstance(data, nn.Parameter)
            self.assertNotIsInstance(made, OwnParameter)
            self.assertEqual([type(t) for t in (made * 2, made.detach(), made.data, made.clone())], [kind] * 4)
            self.assertNotIsInstance(made * 2, nn.Parameter)
            self.assertTrue(repr(made).startswith(f"Parameter({kind.__name__}("))

    def test_modules_register_it(self):
        for kind, data in self.each():
            module = nn.Module()
            module.first = nn.Parameter(data)
            module.register_parameter("second", nn.Parameter(data))
            module.list, module.dict = nn.ParameterList([data]), nn.ParameterDict({"a": data})
            self.assertEqual(len(list(module.parameters())), 4)
            for parameter in (*module.parameters(), module.get_parameter("first"), *module.double().parameters(),
                              *copy.deepcopy(module).parameters(), *pickle.loads(pickle.dumps(module)).parameters()):
                self.check(parameter, kind)
            with self.assertRaisesRegex(TypeError, "cannot assign"):
                module.first = data

    def test_state_dicts_have_the_class(self):
        for kind, data in self.each():
            module = nn.Module()
            module.weight = nn.Parameter(data)
            module.register_buffer("kept", data)
            module.register_buffer("hidden", data, persistent=False)
            state = module.state_dict()
            self.assertEqual({name: type(value) for name, value in state.items()}, {"weight": kind, "kept": kind})
            self.assertEqual((state["weight"].requires_grad, state["weight"].data_ptr()), (False, data.data_ptr()))
            self.assertIs(module.state_dict(keep_vars=True)["weight"], module.weight)
            module.load_state_dict({name: value * 5 for name, value in state.items()})
            self.assertEqual(module.weight.sum().item(), 20)

    def test_files_have_the_class(self):
        for kind, data in self.each():
            file = io.BytesIO()
            torch.save(nn.Parameter(data), file)
            file.seek(0)
            self.check(torch.load(file, weights_only=False), kind)

    def test_it_is_trained(self):
        for kind, data in self.each():
            parameter = nn.Parameter(data)
            optimizer = torch.optim.SGD([parameter], lr=1.0)
            (parameter * 2).sum().backward()
            optimizer.step()
            self.check(parameter, kind)
            self.assertEqual(parameter.sum().item(), -4)

    def test_a_class_whose_detach_loses_it_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "Creating a Parameter from an instance of type OwnParameter requires that detach"):
            nn.Parameter(OwnParameter(torch.ones(2)))


if __name__ == "__main__":
    unittest.main()
