# SPDX-License-Identifier: Apache-2.0
"""Garbage collection of cycles through tensors and modules, live objects that must survive it, and stable object identity."""
import functools
import gc
import threading
import unittest
import weakref

import phlox as torch
from phlox import nn

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x * 2
        return ctx.y

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def leaf(device="cpu"):
    return torch.ones(2, device=device, requires_grad=True)


class Cycles(unittest.TestCase):
    def assert_collected(self, make, *args):
        """Calls `make`, which returns the objects of a cycle, and checks that all are collected."""
        gc.collect()
        refs = [weakref.ref(item) for item in make(*args)]
        gc.collect()
        self.assertEqual([ref() for ref in refs], [None] * len(refs))

    def test_hook_referencing_its_tensor(self):
        def hooked(device, method):
            x = leaf(device)
            hook = lambda grad: x
            getattr(x, method)(hook)
            return x, hook
        for device in DEVICES:
            for method in ("register_hook", "register_post_accumulate_grad_hook"):
                self.assert_collected(hooked, device, method)

    def test_hook_referencing_its_non_leaf_tensor(self):
        def hooked():
            y = leaf() * 2
            hook = lambda grad: y
            y.register_hook(hook)
            return y, hook
        self.assert_collected(hooked)

    def test_bound_builtin_hook(self):
        def hooked():
            x = leaf()
            x.register_hook(x.mul)
            return x,
        self.assert_collected(hooked)

    def test_hook_handle_does_not_keep_tensor(self):
        class Watcher:
            def __init__(self, x):
                self.x, self.handle = x, x.register_hook(self.see)

            def see(self, grad):
                pass
        self.assert_collected(lambda: (lambda w: (w, w.x))(Watcher(leaf())))
        x = leaf()
        hook = functools.partial(print)
        handle, ref = x.register_hook(hook), weakref.ref(hook)
        del x, hook
        self.assertIsNone(ref())
        handle.remove()

    def test_handle_removes_hook_of_freed_tensor(self):
        seen = []
        x = leaf()
        y = x * 2
        handle = y.register_hook(seen.append)
        z = y.sum()
        del y
        handle.remove()
        z.backward()
        self.assertEqual((seen, x.grad.tolist()), ([], [2, 2]))

    def test_output_saved_in_ctx(self):
        def made(device):
            y = Keep.apply(leaf(device))
            return y, y.grad_fn and y
        for device in DEVICES:
            self.assert_collected(made, device)

    def test_parameter_referenced_by_hook_and_optimizer(self):
        def trained(module, kind):
            parameter = module.weight if module is not None else nn.Parameter(torch.ones(2, 2))
            optimizer = torch.optim.Adam([parameter])

            def hook(p):
                optimizer.step()
                optimizer.zero_grad()
            parameter.register_post_accumulate_grad_hook(hook)
            (parameter * 2).sum().backward()
            self.assertIsNone(parameter.grad)
            return [parameter, optimizer, hook] + ([module] if module is not None else [])
        self.assert_collected(trained, None, 0)
        self.assert_collected(lambda: trained(nn.Linear(2, 2), 1))

    def test_module_with_method_as_parameter_hook(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.w = nn.Linear(2, 2), nn.Parameter(torch.ones(2))
                self.tied = self.w
                self.w.register_hook(self.see)
                self.handle = self.first.weight.register_hook(self.see)

            def see(self, grad):
                pass
        self.assert_collected(lambda: (lambda net: (net, net.w, net.first, net.first.weight))(Net()))

    def test_live_graph_is_not_collected(self):
        seen = []

        def graph():
            x = leaf()
            x.note = x
            x.register_hook(lambda grad: seen.append(x.note is x))
            return (x * 2).sum()
        y = graph()
        gc.collect()
        y.backward()
        self.assertEqual(seen, [True])

    def test_module_attributes_are_not_collected(self):
        layer = nn.Linear(2, 2)
        layer.weight.me, layer.weight.tag = layer.weight, 5
        seen = []
        layer.weight.register_hook(lambda grad, me=layer.weight: seen.append(me.tag))
        gc.collect()
        layer(torch.ones(1, 2)).sum().backward()
        self.assertEqual((seen, layer.weight.tag), ([5], 5))

    def test_collection_during_backward_in_threads(self):
        x = torch.ones(1 << 16, requires_grad=True)
        seen, end = [], threading.Event()
        x.register_hook(lambda grad, seen=seen: seen.append(1))

        def work():
            for _ in range(60):
                (x * 2).sum().backward()
            end.set()
        thread = threading.Thread(target=work)
        thread.start()
        while not end.is_set():
            gc.collect()
        thread.join()
        self.assertEqual(len(seen), 60)


class ObjectIdentity(unittest.TestCase):
    def test_module_parameters_keep_identity(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        head = list(map(id, model[2].parameters()))
        self.assertEqual([id(p) in head for p in model.parameters()], [False] * 4 + [True] * 2)
        own = [id(t) for t in list(model.parameters()) + list(model.buffers())]
        self.assertEqual([id(t) for t in list(model.parameters()) + list(model.buffers())], own)
        self.assertEqual(len(set(own)), len(own))
        self.assertEqual(id(model[0].weight), id(model[0]._parameters["weight"]))

    def test_assigned_parameter_keeps_identity(self):
        layer = nn.Module()
        for name in ("a", "b"):
            parameter = nn.Parameter(torch.ones(1))
            setattr(layer, name, parameter)
            number = id(parameter)
            del parameter
            self.assertEqual(id(getattr(layer, name)), number)

    def test_removed_parameter_is_freed(self):
        layer = nn.Linear(2, 2)
        layer.register_buffer("seen", torch.ones(2))
        for forget in (lambda: delattr(layer, "weight"), lambda: setattr(layer, "bias", None),
                       lambda: layer._buffers.pop("seen")):
            ref = weakref.ref(next(t for t in (*layer.parameters(), *layer.buffers())))
            forget()
            self.assertIsNone(ref())

    def test_moved_module_keeps_identity(self):
        for device in DEVICES:
            layer = nn.Linear(2, 2)
            before = [id(p) for p in layer.parameters()]
            layer.to(device).double()
            self.assertEqual([id(p) for p in layer.parameters()], before)

    def test_long_parameter_list(self):
        parameters = nn.ParameterList(nn.Parameter(torch.zeros(1)) for _ in range(300))
        numbers = [id(p) for p in parameters]
        self.assertEqual(len(set(numbers)), 300)
        self.assertEqual([id(p) for p in parameters.parameters()], numbers)


if __name__ == "__main__":
    unittest.main()
