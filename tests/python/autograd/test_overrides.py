# SPDX-License-Identifier: Apache-2.0
"""__torch_function__: Tensor subclasses kept by ops, and classes and modes that override functions."""
import copy
import threading
import unittest

import phlox as torch
from phlox import nn
from phlox.overrides import (TorchFunctionMode, get_overridable_functions, handle_torch_function, has_torch_function, is_tensor_like,
                             is_tensor_method_or_property, resolve_name, wrap_torch_function)

F = nn.functional


class Tagged(torch.Tensor):
    pass


class More(Tagged):
    pass


class Logging(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Never:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {})


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class Counting(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def log(call):
    Logging.seen.clear()
    call()
    return [func.__name__ for func in Logging.seen]


DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


class Subclasses(unittest.TestCase):
    def test_op_results_keep_subclass(self):
        for device in DEVICES:
            t, plain = torch.ones(2, 3, device=device).as_subclass(Tagged), torch.ones(2, 3, device=device)
            results = {"add": t + 1, "radd": 1 + t, "rsub": 1 - t, "rtruediv": 2 / t, "rpow": 2 ** t, "right": plain * t, "left": t * plain,
                       "neg": -t, "eq": t == t, "item": t[0], "slice": t[:, 1:], "mask": t[t > 0], "picked": plain[torch.zeros(1, dtype=torch.int64, device=device).as_subclass(Tagged)],
                       "cat": torch.cat((plain, t)), "stack": torch.stack([t, t]), "sum": t.sum(), "T": t.T, "data": t.data, "detach": t.detach(),
                       "clone": t.clone(), "view": t.view(3, 2), "to": t.to(torch.float64), "cpu": t.cpu(), "relu": F.relu(t),
                       "new_zeros": t.new_zeros(2), "values": t.max(0).values, "part": t.split(1)[0], "matmul": t @ t.T,
                       "einsum": torch.einsum("ij->ji", t), "iter": next(iter(t)), "like": torch.zeros_like(t), "float": t.double()}
            self.assertEqual({name: type(value) for name, value in results.items()}, dict.fromkeys(results, Tagged))
            self.assertEqual((type(t.shape), type(t.tolist()), type(t.sum().item()), len(t), bool(t.sum())), (torch.Size, list, float, 2, True))

    def test_in_place_ops_keep_object(self):
        t, plain = torch.ones(2).as_subclass(Tagged), torch.ones(2)
        same = t
        t += 1
        t[0] = 5
        self.assertIs(t.add_(1), t)
        self.assertIs(t, same)
        self.assertEqual(t.tolist(), [6, 3])
        self.assertIs(type(plain.add_(t)), Tagged)
        self.assertEqual((type(plain), plain.tolist()), (torch.Tensor, [7, 4]))

    def test_most_derived_class_wins(self):
        a, b = torch.ones(2).as_subclass(Tagged), torch.ones(2).as_subclass(More)
        self.assertIs(type(a + b), More)
        self.assertIs(type(b + a), More)

    def test_unrelated_subclasses_raise(self):
        with self.assertRaisesRegex(TypeError, "Multiple dispatch failed for 'torch.add'; all __torch_function__ handlers returned NotImplemented"):
            torch.ones(2).as_subclass(Tagged) + torch.ones(2).as_subclass(Refusing)

    def test_parameters_return_plain_tensors(self):
        p = nn.Parameter(torch.ones(2))
        self.assertIs(type(p + 1), torch.Tensor)
        self.assertIs(type(p * torch.ones(2).as_subclass(Tagged)), Tagged)

    def test_gradients_through_subclass(self):
        for device in DEVICES:
            w = torch.ones(2, requires_grad=True, device=device)
            loss = (w.as_subclass(Tagged) * 3).sum()
            self.assertIs(type(loss), Tagged)
            loss.backward()
            self.assertEqual((type(w.grad), w.grad.tolist()), (torch.Tensor, [3, 3]))
            leaf = torch.Tensor._make_subclass(Tagged, torch.ones(2, device=device), True)
            (leaf * 2).sum().backward()
            self.assertEqual((type(leaf), leaf.is_leaf, leaf.grad.tolist()), (Tagged, True, [2, 2]))

    def test_as_subclass_shares_memory(self):
        plain = torch.zeros(2)
        t = plain.as_subclass(Tagged)
        t += 1
        self.assertEqual(plain.tolist(), [1, 1])
        self.assertIs(type(plain), torch.Tensor)

    def test_constructor_copy_and_repr(self):
        self.assertEqual(repr(Tagged([1.0, 2.0])), "Tagged([1., 2.])")
        t = Tagged(torch.ones(2))
        t.note = "kept"
        for made in (copy.copy(t), copy.deepcopy(t)):
            self.assertEqual((type(made), made.note), (Tagged, "kept"))

    def test_class_attributes_take_precedence(self):
        class Named(torch.Tensor):
            shape = "round"

            def __getattr__(self, name):
                return f"no {name}"
        t = torch.ones(2).as_subclass(Named)
        self.assertEqual((t.shape, t.frobnicate, t.ndim), ("round", "no frobnicate", 1))

    def test_invalid_subclasses(self):
        for cls in (int, "Tagged", None):
            with self.assertRaises(TypeError):
                torch.ones(2).as_subclass(cls)
            with self.assertRaises(TypeError):
                torch.Tensor._make_subclass(cls, torch.ones(2))
        with self.assertRaisesRegex(NotImplementedError, "__torch_dispatch__ is not implemented in Phlox"):
            type("Low", (torch.Tensor,), {"__torch_dispatch__": classmethod(lambda *args: None)})


class Classes(unittest.TestCase):
    def test_every_operation_dispatches(self):
        t = torch.ones(2, 2).as_subclass(Logging)
        uses = {"add": lambda: t + 1, "sub": lambda: t - 1, "__rsub__": lambda: 1 - t, "__rpow__": lambda: 2 ** t, "mul_": lambda: t.__imul__(1),
                "neg": lambda: -t, "eq": lambda: t == 1, "matmul": lambda: t @ t, "__getitem__": lambda: t[0], "__setitem__": lambda: t.__setitem__(0, 1),
                "__len__": lambda: len(t), "__contains__": lambda: 1 in t, "__repr__": lambda: repr(t), "__get__": lambda: t.shape,
                "to": lambda: t.to("cpu"), "numel": lambda: t.numel(), "tolist": lambda: t.tolist(), "relu": lambda: F.relu(t), "new_zeros": lambda: t.new_zeros(2)}
        for name, use in uses.items():
            self.assertEqual(log(use)[:1], [name])
        one = t.sum()
        self.assertEqual([log(lambda: f(one))[0] for f in (bool, int, float)], ["__bool__", "__int__", "__float__"])

    def test_func_argument_is_public_object(self):
        t = torch.ones(2).as_subclass(Logging)
        Logging.seen.clear()
        torch.add(t, 1), t.add(1), t.shape, F.gelu(t), t.numel()
        self.assertEqual(Logging.seen, [torch.add, torch.Tensor.add, torch.Tensor.shape.__get__, F.gelu, torch.Tensor.numel])

    def test_attribute_setters_dispatch(self):
        t = torch.ones(2).as_subclass(Logging)
        self.assertEqual(log(lambda: setattr(t, "requires_grad", True)), ["__set__"])
        self.assertEqual(log(lambda: setattr(t, "mine", 3)), [])
        self.assertEqual((t.requires_grad, t.mine), (True, 3))

    def test_any_class_can_override(self):
        self.assertEqual(torch.add(Never(), 1, alpha=2), ("add", ["Never"], 2, ["alpha"]))
        for call in (lambda: torch.ones(2) + Never(), lambda: Never() + torch.ones(2)):
            self.assertEqual(call()[:2], ("add", ["Never"]))
        self.assertEqual(torch.ones(2) @ Never(), ("matmul", ["Never"], 2, []))
        self.assertEqual(torch.cat([torch.ones(2), Never()])[0], "cat")
        self.assertEqual(torch.ones(2)[Never()][0], "__getitem__")
        self.assertEqual(F.relu(Never())[0], "relu")
        self.assertEqual(torch.add(torch.ones(2).as_subclass(Tagged), Never())[1], ["Tagged", "Never"])

    def test_handler_exceptions_propagate(self):
        class Failing(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                raise KeyError("no")
        t = torch.ones(2).as_subclass(Failing)
        for call in (lambda: t + 1, lambda: torch.relu(t), lambda: t.shape, lambda: len(t), lambda: t[0], lambda: repr(t), lambda: 1.0 in t):
            with self.assertRaises(KeyError):
                call()

    def test_disable_torch_function_subclass(self):
        t = torch.ones(2).as_subclass(Logging)
        with torch._C.DisableTorchFunctionSubclass():
            self.assertEqual(log(lambda: self.assertIs(type(t + 1), torch.Tensor)), [])
        self.assertEqual(log(lambda: t + 1), ["add"])
        with self.assertRaisesRegex(TypeError, "takes no arguments"):
            torch._C.DisableTorchFunctionSubclass(1)


class Modes(unittest.TestCase):
    def test_mode_receives_functions_methods_and_attributes(self):
        with Counting() as mode:
            x = torch.ones(2) + 1
            x[0] = x.sum().item()
            x.shape, x.to(torch.float64), torch.tensor([1]), -x
        self.assertEqual(mode.seen, ["ones", "add", "sum", "item", "__setitem__", "__get__", "to", "tensor", "neg"])
        seen = len(mode.seen)
        torch.ones(2).shape
        self.assertEqual(len(mode.seen), seen)

    def test_is_tensor_dispatches_to_modes(self):
        x = torch.ones(2)
        self.assertTrue(torch.is_tensor(obj=x) and torch.is_tensor(nn.Parameter(x)))
        self.assertFalse(torch.is_tensor(obj=None) or torch.is_tensor(2))
        with Counting() as mode:
            torch.is_tensor(x)
        self.assertEqual(mode.seen, ["is_tensor"])
        for arguments, named in ((), {}), ((x, x), {}), ((x,), {"obj": x}), ((), {"x": x}):
            with self.assertRaises(TypeError):
                torch.is_tensor(*arguments, **named)

    def test_innermost_mode_runs_first(self):
        class Answering(TorchFunctionMode):
            def __init__(self, answer):
                self.answer = answer

            def __torch_function__(self, func, types, args=(), kwargs=None):
                return self.answer
        with Answering(1), Answering(2):
            self.assertEqual(torch.ones(2), 2)
        with Counting() as outer, Counting() as inner:
            torch.ones(2)
        self.assertEqual((outer.seen, inner.seen), (["ones"], ["ones"]))

    def test_modes_run_before_classes(self):
        t = torch.ones(2).as_subclass(Logging)
        with Counting() as mode:
            self.assertEqual(log(lambda: torch.add(t, 1)), ["add"])
        self.assertEqual(mode.seen, ["add"])

    def test_modes_are_thread_local(self):
        with Counting() as mode:
            thread = threading.Thread(target=lambda: torch.ones(2) + 1)
            thread.start()
            thread.join()
        self.assertEqual(mode.seen, [])

    def test_exception_exits_mode(self):
        with self.assertRaises(ZeroDivisionError):
            with Counting():
                1 / 0
        self.assertEqual(torch._C._modes(), [])
        with self.assertRaisesRegex(RuntimeError, "no mode is active"):
            torch._C._pop_mode()

    def test_disable_torch_function(self):
        with Counting() as mode, torch._C.DisableTorchFunction():
            torch.ones(2)
        self.assertEqual(mode.seen, [])


class Functions(unittest.TestCase):
    def test_wrap_torch_function(self):
        @wrap_torch_function(lambda x, y: (x, y))
        def mine(x, y):
            return "plain"
        self.assertEqual(mine(torch.ones(1), 2), "plain")
        self.assertEqual(mine(Never(), 2), ("mine", ["Never"], 2, []))

    def test_helpers(self):
        self.assertEqual([has_torch_function((x,)) for x in (torch.ones(1), nn.Parameter(torch.ones(1)), 3, Never(), torch.ones(1).as_subclass(Tagged))],
                         [False, False, False, True, True])
        self.assertEqual([is_tensor_like(x) for x in (torch.ones(1), Never(), 3)], [True, True, False])
        self.assertEqual(handle_torch_function(len, (Never(),), 1), ("len", ["Never"], 1, []))
        self.assertEqual([resolve_name(f) for f in (torch.add, torch.Tensor.add, F.conv2d, len)],
                         ["torch.add", "torch.Tensor.add", "torch.nn.functional.conv2d", None])
        self.assertEqual([is_tensor_method_or_property(f) for f in (torch.Tensor.add, torch.Tensor.shape.__get__, torch.add)], [True, True, False])
        self.assertIn(torch.Tensor.add, get_overridable_functions()[torch.Tensor])


if __name__ == "__main__":
    unittest.main()
