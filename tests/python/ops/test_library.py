# SPDX-License-Identifier: Apache-2.0
"""torch.library: ops defined in Python."""
import importlib, threading, unittest
from typing import List, Optional, Sequence, Tuple

import phlox as torch
from phlox import library

HAS_DEVICE = torch.cuda.device_count() > 0


def unique(count=[0]):
    """A new op name; ops are registered for the life of the process."""
    count[0] += 1
    return f"test_library::op{count[0]}"


def scale_op(**options):
    """An op with a kernel for all devices: x * k + shift."""
    @library.custom_op(unique(), mutates_args=(), **options)
    def op(x: torch.Tensor, k: float = 2.0, *, shift: int = 0) -> torch.Tensor:
        return torch.mul(x, k) + shift
    return op


def with_gradient():
    op = scale_op()

    def setup(ctx, inputs, output, keyword_only_inputs):
        ctx.k, ctx.shift = inputs[1], keyword_only_inputs["shift"]
        ctx.save_for_backward(inputs[0], output)

    op.register_autograd(lambda ctx, grad: (grad * ctx.k + 0 * ctx.saved_tensors[1], None), setup_context=setup)
    return op


class CustomOps(unittest.TestCase):
    def test_callable_as_object_and_by_qualified_name(self):
        op = scale_op()
        space, name = op._qualname.split("::")
        same = getattr(getattr(torch.ops, space), name)
        x = torch.tensor([1.0, 2.0])
        self.assertEqual([f.tolist() for f in (op(x), same(x, 3), same.default(x, k=1, shift=4))], [[2, 4], [3, 6], [5, 6]])
        self.assertEqual((repr(op), op._schema), (f"<CustomOpDef({op._qualname})>", f"{op._qualname}(Tensor x, float k=2.0, *, SymInt shift=0) -> Tensor"))
        self.assertFalse(hasattr(torch.add, "default"))
        for args, options in ((("x",), {}), ((), {}), ((x,), {"no": 1})):
            with self.assertRaises(TypeError):
                op(*args, **options)

    def test_register_fake(self):
        op = scale_op()
        with self.assertRaisesRegex(NotImplementedError, "^There was no fake impl registered for <CustomOpDef"):
            op(torch.ones(2, device="meta"))

        @op.register_fake
        def _(x, k=2.0, *, shift=0):
            return torch.empty_like(x)
        self.assertEqual((op(torch.ones(2, 3, device="meta")).shape, op(torch.ones(2, 3, device="meta")).device.type), ((2, 3), "meta"))

    @unittest.skipUnless(HAS_DEVICE, "requires a device")
    def test_register_kernel(self):
        op = scale_op(device_types="cpu")
        x = torch.ones(2)
        with self.assertRaisesRegex(NotImplementedError, f"^Could not run '{op._qualname}' with arguments from the 'CUDA' backend.$"):
            op(x.cuda())

        @op.register_kernel("cuda")
        def on_device(x, k, *, shift):
            return x * 10
        self.assertEqual((op(x).tolist(), op(x.cuda()).tolist(), op(x.cuda()).device.type), ([2, 2], [10, 10], "cuda"))
        leaf = x.cuda().requires_grad_()
        both = with_gradient()
        both(leaf, 3).sum().backward()
        self.assertEqual((leaf.grad.tolist(), leaf.grad.device.type), ([3, 3], "cuda"))

    def test_register_autograd(self):
        op = with_gradient()
        x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
        y = op(x, 5, shift=1)
        self.assertEqual(y.grad_fn.name(), f"GeneratedBackwardFor_{op._qualname.replace('::', '_')}_defaultBackward")
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [5, 5])
        self.assertTrue(torch.autograd.gradcheck(lambda x: op(x, 3), x))
        with torch.no_grad():
            self.assertFalse(op(x).requires_grad)
        op.register_autograd(lambda ctx, grad: (grad,) * 3)
        with self.assertRaisesRegex(RuntimeError, f"Expected the backward of {op._qualname} to return 2 gradients, got 3"):
            op(x).sum().backward()

    def test_missing_gradient_raises(self):
        op = scale_op()
        y = op(torch.ones(1, requires_grad=True))
        self.assertTrue(y.requires_grad)
        with self.assertRaisesRegex(RuntimeError, f"^Trying to backward through {op._qualname.replace('::', '.')}.default but no autograd formula"):
            y.backward()

    def test_tensor_lists(self):
        @library.custom_op(unique(), mutates_args=())
        def total(xs: List[torch.Tensor], more: Optional[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
            assert isinstance(xs, list) and sizes == [2, 3]
            return sum(xs) if more is None else sum(xs) + more

        seen = []

        def backward(ctx, grad):
            seen.append(ctx.needs_input_grad[:3])
            return [grad * (i + 1) for i in range(ctx.n)], None, None
        total.register_autograd(backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "n", len(inputs[0])))
        a, b = torch.ones(2, requires_grad=True), torch.ones(2)
        total([a, b, a], b, (2, 3)).sum().backward()
        self.assertEqual((a.grad.tolist(), seen), ([4, 4], [(True, False, True)]))
        self.assertEqual(total([b], None, [2, 3]).tolist(), [1, 1])
        total.register_autograd(lambda ctx, grad: (None, None, None))
        total([a], None, [2, 3]).sum().backward()
        self.assertEqual(a.grad.tolist(), [4, 4])

    def test_multiple_and_no_results(self):
        @library.custom_op(unique(), mutates_args=())
        def two(x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
            return x + 1, x + 2

        two.register_autograd(lambda ctx, a, b: 10 * a + b)
        x = torch.ones(1, requires_grad=True)
        one, other = two(x)
        (3 * one + other).backward()
        self.assertEqual((x.grad.tolist(), isinstance(two(x), tuple)), ([31], True))

        @library.custom_op(unique(), mutates_args=("x",))
        def increase(x: torch.Tensor, by: int) -> None:
            x.data_ptr() and x.add_(by)

        y = torch.zeros(2)
        self.assertIsNone(increase(y, 3))
        self.assertEqual((y.tolist(), y._version > 0, "(Tensor(a0!) x, SymInt by) -> ()" in increase._schema), ([3, 3], True, True))
        increase(x, 1)
        self.assertEqual((x.tolist(), torch.is_grad_enabled()), ([2], True))

    def test_mutation_is_detected_by_backward(self):
        @library.custom_op(unique(), mutates_args=("x",))
        def touch(x: torch.Tensor) -> None:
            pass

        x = torch.ones(2, requires_grad=True)
        half = x * 0.5
        y = half * half
        touch(half)
        with self.assertRaisesRegex(RuntimeError, "has been modified by an inplace operation"):
            y.sum().backward()

    def test_results_must_not_alias_inputs(self):
        @library.custom_op(unique(), mutates_args=())
        def same(x: torch.Tensor, view: bool = False) -> torch.Tensor:
            return x[:1] if view else x

        for view in (False, True):
            with self.assertRaisesRegex(RuntimeError, "The output of this custom operator \\(1\\) must not also be an input"):
                same(torch.ones(2), view)

    def test_invalid_results_and_exceptions(self):
        @library.custom_op(unique(), mutates_args=())
        def wrong(x: torch.Tensor, how: str) -> Tuple[torch.Tensor, torch.Tensor]:
            if how == "raise":
                raise LookupError("mine")
            return {"one": x + 1, "three": (x + 1,) * 3, "number": (x + 1, 3)}[how]

        with self.assertRaisesRegex(LookupError, "^mine$"):
            wrong(torch.ones(1), "raise")
        for how, text in (("one", "Tensor"), ("three", "tuple"), ("number", "tuple")):
            with self.assertRaisesRegex(RuntimeError, f"^{wrong._qualname} returned {text}, but its schema is "):
                wrong(torch.ones(1), how)

    def test_threads(self):
        op, results = scale_op(), []
        threads = [threading.Thread(target=lambda i=i: results.append(op(torch.ones(3), i).sum().item() == 3 * i)) for i in range(8)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        self.assertEqual(results, [True] * 8)


class Schemas(unittest.TestCase):
    def test_infer_schema(self):
        def f(a: torch.Tensor, b: Optional[torch.Tensor], c: "list[torch.Tensor]", d: Sequence[int], e: Optional[float] = None, *, g: str = "x", h: bool = True,
              i: torch.dtype = torch.float32, j: torch.device) -> Tuple[torch.Tensor, torch.Tensor]:
            pass
        self.assertEqual(library.infer_schema(f, mutates_args={"b"}), "(Tensor a, Tensor(a1!)? b, Tensor[] c, SymInt[] d, float? e=None, *, str g=\"x\", bool h=True, "
                         "ScalarType i=float32, Device j) -> (Tensor, Tensor)")
        self.assertEqual(library.infer_schema(g, mutates_args="unknown", op_name="a::b"),
                         "a::b(Tensor(a0!) x) -> ()")

    def test_infer_schema_errors(self):
        def no_type(x) -> torch.Tensor: pass
        def a_dict(x: dict) -> torch.Tensor: pass
        def no_result(x: torch.Tensor): pass
        def a_text(x: torch.Tensor) -> dict: pass
        def a_tuple(x: torch.Tensor, s: Sequence[int] = (1, 2)) -> torch.Tensor: pass
        for function, text in ((no_type, "Parameter x must have a type annotation."), (a_dict, "Parameter x has unsupported type <class 'dict'>."),
                               (no_result, "No return type annotation was provided. Please add one."), (a_text, "Return has unsupported type <class 'dict'>."),
                               (a_tuple, "Parameter s has an unsupported default value type <class 'tuple'>.")):
            with self.assertRaises(ValueError) as raised:
                library.custom_op(unique(), function, mutates_args=())
            self.assertTrue(str(raised.exception).startswith(f"infer_schema(func): {text} Got func with signature ("), raised.exception)
        with self.assertRaisesRegex(ValueError, "{'z'} in mutates_args were not found in the custom op's signature."):
            library.infer_schema(g, mutates_args=("z",))
        with self.assertRaisesRegex(ValueError, "^bad schema"):
            library.custom_op(unique(), lambda x: x, mutates_args=(), schema="(Tnsor x) -> Tensor")
        with self.assertRaisesRegex(ValueError, "expected an op name 'namespace::name', got 'bare'"):
            library.custom_op("bare", g, mutates_args=())


def g(x: torch.Tensor) -> None:
    pass


class Libraries(unittest.TestCase):
    def test_definitions_and_kernels(self):
        lib = library.Library("test_libraries", "DEF")
        self.assertEqual((lib.define("pick(Tensor x, int[] s) -> Tensor"), repr(lib)), ("pick", "Library(kind=DEF, ns=test_libraries, dispatch_key=)>"))
        pick, x = torch.ops.test_libraries.pick, torch.ones(2, requires_grad=True)
        with self.assertRaisesRegex(NotImplementedError, "^Could not run 'test_libraries::pick' with arguments from the 'CPU' backend.$"):
            pick(x, [1])
        lib.impl("pick", lambda x, s: x * s[0], "CPU")
        pick(x, [7]).sum().backward()  # ops called by a kernel are recorded by autograd
        self.assertEqual(x.grad.tolist(), [7, 7])
        more = library.Library("test_libraries", "FRAGMENT")
        more.define("sine(Tensor x) -> Tensor")

        @library.impl(more, "sine", "CompositeImplicitAutograd")
        def sine(x):
            return x.sin()
        self.assertEqual((torch.ops.test_libraries.sine(torch.zeros(1)).tolist(), torch.ops.test_libraries.sine(torch.zeros(1, device="meta")).device.type), ([0], "meta"))

        for call, kind, text in ((lambda: lib.define("pick(Tensor x) -> Tensor"), RuntimeError, "Tried to register an operator .* multiple times"),
                                 (lambda: lib.impl("pick", sine, "Nope"), RuntimeError, "^could not parse dispatch key: Nope$"),
                                 (lambda: lib.impl("nothing", sine, "CPU"), RuntimeError, "^operator test_libraries::nothing does not exist$"),
                                 (lambda: lib.impl("pick", 3, "CPU"), TypeError, "^expected a function, not int$"),
                                 (lambda: library.Library("test_libraries", "DEF"), RuntimeError, "^Only a single TORCH_LIBRARY can be used"),
                                 (lambda: library.Library("aten", "DEF"), RuntimeError, "^Only a single TORCH_LIBRARY can be used"),
                                 (lambda: library.Library("other", "NO"), ValueError, "^Unsupported kind: NO$")):
            with self.assertRaisesRegex(kind, text):
                call()
        self.assertEqual(pick(torch.ones(1), [2]).tolist(), [2])

    def test_module_level_functions(self):
        name = unique()
        library.define(name, "(Tensor x, *, Scalar alpha=1) -> (Tensor, Tensor)")

        @library.impl(name, ("cpu", "cuda"))
        def run(x, *, alpha):
            return x * alpha, x + alpha

        @library.register_fake(name)
        def forms(x, *, alpha):
            return torch.empty_like(x), torch.empty_like(x)
        library.register_autograd(name, lambda ctx, a, b: a + 2 * b)
        op = getattr(torch.ops.test_library, name.partition("::")[2])
        x = torch.ones(1, requires_grad=True)
        one, two = op(x, alpha=3)
        (one + two).backward()
        self.assertEqual((one.tolist(), two.tolist(), x.grad.tolist(), op(torch.ones(2, device="meta"))[1].shape), ([3], [4], [3], (2,)))
        self.assertIs(library.register_kernel(name, "cpu", run), run)
        late = unique()
        library.register_fake(late, forms)
        library.define(late, "(Tensor x, *, Scalar alpha=1) -> (Tensor, Tensor)")
        self.assertEqual(getattr(torch.ops.test_library, late.partition("::")[2])(torch.ones(2, device="meta"))[1].shape, (2,))
        for function in (lambda op: library.register_autograd(op, len), lambda op: library.register_kernel(op, "cpu", len)):
            with self.assertRaisesRegex(RuntimeError, "^operator test_library::none does not exist$"):
                function("test_library::none")

    def test_legacy_paths_and_missing_functions(self):
        paths = importlib.import_module("phlox._library.custom_ops")
        self.assertIsInstance(scale_op(), paths.CustomOpDef)
        self.assertIs(paths.custom_op, library.custom_op)
        with self.assertRaisesRegex(NotImplementedError, "^torch.library.triton_op is not implemented in Phlox$"):
            library.triton_op("a::b")


if __name__ == "__main__":
    unittest.main()
