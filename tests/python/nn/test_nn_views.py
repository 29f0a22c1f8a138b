# SPDX-License-Identifier: Apache-2.0
"""The dicts of a torch.nn.Module: entries written to _parameters, _buffers, _modules and __dict__ take effect, and copies and pickles are made
from them."""
import os
os.environ.setdefault("PHLOX_SIM_DEVICES", "2")

import copy
import gc
import pickle
import unittest
import weakref
from collections import OrderedDict

import phlox as torch
from phlox import nn


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 2)
        self.register_buffer("scratch", torch.ones(1), persistent=False)
        self.count = 4


class Forgetful(Counted):
    def __getstate__(self):
        return {**self.__dict__, "count": 9}


class Assigned(Counted):
    def __setstate__(self, state):
        self.__dict__ = state


class Updated(Counted):
    def __setstate__(self, state):
        self.__dict__.update(state)


class LiveDicts(unittest.TestCase):
    def test_dict_types_construct_plain_dicts(self):
        net = Counted()
        for live in (net._modules, net._parameters, net.__dict__):
            made = type(live)({"a": 1}, b=2)
            self.assertEqual((type(made), made, type(live)()), (dict, {"a": 1, "b": 2}, {}))

    def test_replace_child(self):
        net, new = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 5)
        net._modules["0"] = new
        self.assertIs(net[0], new)
        self.assertEqual(net(torch.ones(1, 2)).shape, (1, 5))
        self.assertEqual(list(net._modules), ["0", "1"])
        self.assertIsInstance(net._modules.pop("1"), nn.ReLU)
        self.assertEqual(len(net), 1)

    def test_clear_add_and_move_children(self):
        net = nn.Sequential(nn.ReLU(), nn.Tanh())
        net._modules.move_to_end("0")
        self.assertEqual([type(m).__name__ for m in net], ["Tanh", "ReLU"])
        net._modules.move_to_end("0", last=False)
        self.assertEqual([name for name, _ in net.named_children()], ["0", "1"])
        net._modules.clear()
        net._modules.update(a=nn.Identity(), b=None)
        self.assertEqual((list(net._modules), list(net.children())), (["a", "b"], [net.a]))
        self.assertEqual(net._modules.popitem(), ("b", None))
        net._modules = OrderedDict(z=nn.ReLU())
        self.assertEqual(repr(net), "Sequential(\n  (z): ReLU()\n)")

    def test_replace_parameter(self):
        layer, weight = nn.Linear(2, 5), nn.Parameter(torch.ones(5, 2))
        layer._parameters["weight"] = weight
        self.assertIs(layer.weight, weight)
        layer._parameters["bias"] = None
        self.assertEqual([name for name, _ in layer.named_parameters()], ["weight"])
        self.assertEqual(layer(torch.ones(1, 2)).tolist(), [[2] * 5])

    def test_non_leaf_in_parameters_dict(self):
        layer = nn.Linear(2, 1, bias=False)
        source = torch.ones(1, 2, requires_grad=True)
        layer._parameters["weight"] = source * 2
        layer(torch.ones(1, 2)).sum().backward()
        self.assertEqual(source.grad.tolist(), [[2, 2]])

    def test_deleted_name_can_be_registered(self):
        layer = nn.Linear(2, 2)
        del layer.bias
        self.assertFalse(hasattr(layer, "bias"))
        layer.register_parameter("bias", None)
        self.assertEqual(layer(torch.ones(1, 2)).shape, (1, 2))
        del layer._parameters["weight"]
        self.assertRaises(KeyError, layer._parameters.pop, "weight")
        layer.weight = torch.ones(2, 2)
        for _ in range(2):  # forward reads a plain attribute, which creates no entry
            self.assertEqual((layer(torch.ones(1, 2)).tolist(), layer.state_dict()), ([[2, 2]], {}))
        del layer.weight
        self.assertRaisesRegex(AttributeError, "'Linear' object has no attribute 'weight'", layer, torch.ones(1, 2))

    def test_buffers_and_persistence(self):
        layer = nn.BatchNorm1d(2)
        layer._buffers["running_mean"] = torch.full((2,), 7.0)
        self.assertEqual(layer.running_mean.tolist(), [7, 7])
        layer._non_persistent_buffers_set.add("running_mean")
        self.assertNotIn("running_mean", layer.state_dict())
        layer._buffers["running_mean"] = torch.zeros(2)
        self.assertEqual(layer._non_persistent_buffers_set, {"running_mean"})
        layer._non_persistent_buffers_set.discard("running_mean")
        self.assertIn("running_mean", layer.state_dict())

    def test_dict_protocol(self):
        net = nn.Sequential(nn.ReLU())
        plain = {"0": net[0]}
        self.assertIsInstance(net._modules, dict)
        self.assertTrue({**net._modules} == dict(net._modules) == net._modules.copy() == net._modules == plain)
        self.assertEqual((repr(net._modules), len(net._modules), "0" in net._modules), (repr(plain), 1, True))
        self.assertIs(net._modules.get("0"), net[0])
        self.assertIs(net._modules.setdefault("0", nn.Tanh()), net[0])

    def test_invalid_entries(self):
        layer = nn.Linear(1, 1)
        self.assertRaises(TypeError, layer._parameters.__setitem__, "weight", 5)
        self.assertRaises(TypeError, layer._modules.__setitem__, "child", torch.ones(1))
        self.assertRaises(KeyError, layer._modules.__delitem__, "child")
        self.assertRaises(KeyError, layer._buffers.__delitem__, "weight")
        self.assertIsInstance(layer.weight, nn.Parameter)

    def test_instance_dict(self):
        layer, other = nn.Linear(2, 3), nn.ReLU()
        self.assertLessEqual({"training": True, "in_features": 2}.items(), layer.__dict__.items())
        self.assertIs(layer.__dict__["_parameters"]["weight"], layer.weight)
        layer.__dict__["friend"] = other
        self.assertEqual((layer.friend, list(layer.children())), (other, []))
        layer.__dict__["training"] = False
        layer.__dict__["forward"] = lambda x: x + 1
        self.assertEqual((layer.training, layer(1)), (False, 2))
        del layer.__dict__["forward"]
        self.assertRaises(TypeError, layer, 1)

    def test_manual_copy(self):
        model = Counted()
        other = Counted.__new__(Counted)
        other.__dict__ = model.__dict__.copy()
        other._parameters = {}
        other._modules = {name: copy.copy(child) for name, child in model._modules.items()}
        other.layer.weight = None
        self.assertIs(other.scratch, model.scratch)
        self.assertIsNotNone(model.layer.weight)

    def test_dicts_do_not_keep_module(self):
        gc.disable()
        try:
            model = Counted()
            model._parameters, model.__dict__
            gone = weakref.ref(model)
            del model
            self.assertIsNone(gone())
        finally:
            gc.enable()


class States(unittest.TestCase):
    def test_getstate_and_setstate_overrides(self):
        for kind in (Counted, Forgetful, Assigned, Updated):
            model = kind()
            for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                self.assertEqual(made.count, 9 if kind is Forgetful else 4)
                self.assertTrue(torch.equal(made.layer.weight, model.layer.weight))
                self.assertIsNot(made.layer.weight, model.layer.weight)
                self.assertEqual(made._non_persistent_buffers_set, {"scratch"})
                self.assertEqual(repr(made), repr(model))

    def test_shallow_copy_shares_contents(self):
        model = Counted()
        made = copy.copy(model)
        self.assertIs(made.layer, model.layer)
        made.layer = nn.ReLU()
        self.assertIsInstance(model.layer, nn.Linear)

    def test_factory_arguments_are_not_attributes(self):
        layer = nn.Linear(2, 3, device="cpu", dtype=torch.float64)
        self.assertFalse(hasattr(layer, "device") or hasattr(layer, "dtype"))
        self.assertEqual(copy.deepcopy(layer).weight.dtype, torch.float64)


if __name__ == "__main__":
    unittest.main()
