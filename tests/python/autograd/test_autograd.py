# SPDX-License-Identifier: Apache-2.0
"""Autograd in Python: modes, hooks, Function, errors that cross the engine."""
import gc
import sys
import threading
import unittest
import warnings
import weakref

import phlox as torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, times):
        ctx.save_for_backward(x)
        ctx.times = times
        return x * x * times

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 2 * x * grad * ctx.times, None


class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fill):
        ctx.set_materialize_grads(fill)
        sign = x > 0
        ctx.mark_non_differentiable(sign)
        return x * 2, sign, x * 3, "text"

    @staticmethod
    def backward(ctx, *grads):
        Split.seen = [grad if grad is None else (grad.dtype, grad.tolist()) for grad in grads]
        return grads[0] * 2, None


class Same(torch.autograd.Function):
    """Returns the result of `how(ctx, x)`. Its backward multiplies the gradient by 3."""
    @staticmethod
    def forward(ctx, x, how):
        result = how(ctx, x)
        return tuple(result) if isinstance(result, list) else result

    @staticmethod
    def backward(ctx, *grads):
        return sum(grad.reshape(2, 2) for grad in grads) * 3, None


def mark_dirty_mul(ctx, x):
    ctx.mark_dirty(x.mul_(2))
    return x


class Functions(unittest.TestCase):
    def apply_same(self, how, leaf=False):
        """Returns a tensor (a leaf on request) and the result of Same applied to it."""
        x = torch.ones(2, 2, requires_grad=True)
        x = x if leaf else x * 1
        return x, Same.apply(x, how)

    def test_views_returned_by_function_are_read_only(self):
        views = {"view": lambda ctx, x: x.view(-1), "itself": lambda ctx, x: x, "inner": lambda ctx, x: (x * 1).view(-1)}
        for name, how in views.items():
            for leaf in (True, False):
                x, y = self.apply_same(how, leaf)
                self.assertTrue(y._is_view() and y.grad_fn.name() == "SameBackward" and y is not x, name)
                self.assertEqual(y._base is x, name != "inner")
                with self.assertRaisesRegex(RuntimeError, "Output 0 of SameBackward is a view and is being modified inplace. This view "
                                            "was created inside a custom Function"):
                    y.mul_(2)
                y.sum().backward()
                if leaf:
                    self.assertEqual(x.grad.tolist(), [[3, 3], [3, 3]])

    def test_views_of_function_are_invalidated_by_base_modification(self):
        text = "Output 0 of SameBackward is a view and its base or another view of its base has been modified inplace. This view "
        x, y = self.apply_same(lambda ctx, x: x.view(-1))
        x.mul_(2)
        for ask in (lambda: y.grad_fn, lambda: y.sum(), lambda: y.sum().backward()):
            self.assertRaisesRegex(RuntimeError, text + "was created inside a custom Function", ask)
        x, y = self.apply_same(lambda ctx, x: [x[0], x[1]])
        self.assertRaisesRegex(RuntimeError, "Output 1 of SameBackward is a view and is being modified inplace. This view is the output of "
                               "a function that returns multiple views", y[1].mul_, 2)
        x.mul_(2)
        self.assertRaisesRegex(RuntimeError, text + "is the output of a function", lambda: y[0].grad_fn)
        x = torch.ones(2, 2, requires_grad=True) * 1
        rows = x.unbind()
        x.mul_(2)
        self.assertRaisesRegex(RuntimeError, "Output 1 of UnbindBackward0 is a view and its base", lambda: rows[1].grad_fn)

    def test_mark_dirty(self):
        x, y = self.apply_same(mark_dirty_mul)
        self.assertTrue(y is x and y.grad_fn.name() == "SameBackward")
        for how, leaf, text in (
                (mark_dirty_mul, True, "a leaf Variable that requires grad has been used in an in-place operation."),
                (lambda ctx, x: mark_dirty_mul(ctx, x) * 1, False, "Some elements marked as dirty during the forward method were not")):
            self.assertRaisesRegex(RuntimeError, text, self.apply_same, how, leaf)
        row = (torch.ones(2, 2, requires_grad=True) * 1)[0]
        self.assertRaisesRegex(RuntimeError, "your Function cannot return more than one Tensor", Same.apply, row,
                               lambda ctx, x: [mark_dirty_mul(ctx, x), x * 2])

    def test_mark_non_differentiable_input(self):
        def how(ctx, x):
            ctx.mark_non_differentiable(x)
            return x
        x, y = self.apply_same(how)
        self.assertEqual((y is x, y.requires_grad, y._is_view()), (False, False, False))

    def test_function_node_exposes_ctx_attributes(self):
        def how(ctx, x):
            ctx.note = 5
            ctx.save_for_backward(x)
            return x * 2
        x, y = self.apply_same(how)
        node = y.grad_fn
        self.assertEqual((node.note, node.needs_input_grad, len(node.saved_tensors)), (5, (True, False), 1))
        self.assertRegex(repr(node), "^<torch.autograd.function.SameBackward object at 0x")
        self.assertRaisesRegex(AttributeError, "'SameBackward' object has no attribute 'absent'", lambda: node.absent)

    def test_materialize_grads(self):
        x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        for create in (False, True):
            grads = torch.autograd.grad((x * 2).sum(), (x, y), materialize_grads=True, create_graph=create)
            self.assertEqual([(g.tolist(), g.requires_grad) for g in grads], [([2, 2], False), ([0, 0], create)])
        self.assertRaisesRegex(ValueError, "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
                               "allow_unused=False.", torch.autograd.grad, (x * 2).sum(), y, materialize_grads=True,
                               allow_unused=False)

    def test_set_materialize_grads(self):
        nothing = (torch.float32, [0, 0])
        for fill, wanted in ((True, [(torch.bool, [False] * 2), nothing]), (False, [None, None])):
            x = torch.ones(2, requires_grad=True)
            Split.apply(x, fill)[0].sum().backward()
            self.assertEqual(Split.seen, [(torch.float32, [1, 1]), *wanted, None])
            self.assertEqual(x.grad.tolist(), [2, 2])

    def test_custom_function(self):
        x = torch.tensor([1., 2.], requires_grad=True)
        y = Square.apply(x, 3)
        self.assertIn("grad_fn=<SquareBackward", repr(y))
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [6., 12.])
        self.assertTrue(torch.autograd.gradcheck(
            lambda a: Square.apply(a, 2).sum(), (torch.tensor([1., 2.], dtype=torch.float64,
                                                              requires_grad=True),)))

    def test_retain_grad_accumulates(self):
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        y.retain_grad()
        z = (y * 3).sum()
        z.backward(retain_graph=True)
        z.backward()
        self.assertEqual(y.grad.tolist(), [6., 6.])  # PyTorch 1.13.1's

    def test_second_backward_without_saved_tensors(self):
        x = torch.ones(2, requires_grad=True)
        y = (x + 1).sum()
        y.backward()
        y.backward()
        self.assertEqual(x.grad.tolist(), [2., 2.])

    def test_second_backward_raises(self):
        y = Square.apply(torch.ones(2, requires_grad=True), 1).sum()
        y.backward()
        with self.assertRaisesRegex(RuntimeError, "backward through the graph a second time"):
            y.backward()

    def test_wrong_number_of_gradients(self):
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                return grad, grad
        with self.assertRaisesRegex(RuntimeError, r"incorrect number of gradients \(expected 1, got 2\)"):
            Bad.apply(torch.ones(1, requires_grad=True)).backward()

    def test_instances_are_refused(self):
        class Old(torch.autograd.Function):
            def forward(self, x):
                return x
        with self.assertWarnsRegex(DeprecationWarning, "Old'> should not be instantiated"):
            old = Old()
        with self.assertRaisesRegex(RuntimeError, "^Legacy autograd function with non-static forward method is deprecated"):
            old(torch.ones(1))

    def test_backward_exceptions_propagate(self):
        class Custom(Exception):
            pass

        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                raise Custom("mine")
        with self.assertRaises(Custom):
            Bad.apply(torch.ones(1, requires_grad=True)).backward()

    def test_once_differentiable_and_setup_context(self):
        class New(torch.autograd.Function):
            @staticmethod
            def forward(x):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, grad):
                assert not torch.is_grad_enabled()
                return grad * 2
        x = torch.ones(1, requires_grad=True)
        New.apply(x).backward()
        self.assertEqual(x.grad.item(), 2)


class Hooks(unittest.TestCase):
    def test_hook_replaces_and_is_removed(self):
        x = torch.ones(2, requires_grad=True)
        seen = []
        handle = x.register_hook(lambda g: seen.append(g) or g * 10)
        (x * 2).sum().backward()
        self.assertEqual(x.grad.tolist(), [20., 20.])
        handle.remove()
        x.grad = None
        (x * 2).sum().backward()
        self.assertEqual((x.grad.tolist(), len(seen)), ([2., 2.], 1))

    def test_hook_exception_propagates(self):
        x = torch.ones(2, requires_grad=True)
        y = x * 2

        def bad(grad):
            raise ValueError("boom")
        y.register_hook(bad)
        with self.assertRaisesRegex(ValueError, "boom"):
            y.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "doesn't require gradient"):
            torch.ones(1).register_hook(bad)


class Nodes(unittest.TestCase):
    """Hooks of graph nodes, and gradient edges as arguments."""

    def setUp(self):
        self.x, self.w = torch.ones(2, 3, requires_grad=True), torch.ones(3, requires_grad=True)
        self.y = (self.x * self.w).sum()
        self.product = self.y.grad_fn.next_functions[0][0]

    def back(self):
        self.x.grad = self.w.grad = None
        self.y.backward(retain_graph=True)
        return self.x.grad, self.w.grad

    def test_node_hooks_receive_gradients(self):
        seen, shapes = [], lambda grads: [None if g is None else tuple(g.shape) for g in grads]
        handles = [self.y.grad_fn.register_hook(lambda inputs, outputs: seen.append(("after", shapes(inputs), shapes(outputs)))),
                   self.y.grad_fn.register_prehook(lambda outputs: seen.append(("before", shapes(outputs))))]
        self.back()
        self.assertEqual(seen, [("before", [()]), ("after", [(2, 3)], [()])])
        for handle in handles:
            handle.remove()
        self.back()
        self.assertEqual(len(seen), 2)

    def test_node_hooks_replace_gradients(self):
        with self.product.register_hook(lambda inputs, outputs: (inputs[0] * 2, None)):
            x, w = self.back()
            self.assertEqual((x.tolist(), w), ([[2] * 3] * 2, None))
        with self.product.register_prehook(lambda outputs: (outputs[0] * 3,)):
            self.assertEqual(self.back()[1].tolist(), [6, 6, 6])
        leaf = self.product.next_functions[0][0]
        with leaf.register_prehook(lambda outputs: outputs[0] * 0 + 5):
            self.assertEqual(self.back()[0][0].tolist(), [5, 5, 5])
        for hook, kind, text in ((lambda *_: (self.x,), RuntimeError, r"^hook '<lambda>' has returned an incorrect number of values \(got 1, but expected 2\)"),
                                 (lambda *_: 3, TypeError, "^expected tuple, but hook returned 'int'"),
                                 (lambda *_: (3, 3), TypeError, "^expected Variable, but hook returned 'int'"), (lambda *_: 1 / 0, ZeroDivisionError, "")):
            with self.product.register_hook(hook), self.assertRaisesRegex(kind, text):
                self.back()

    def test_node_metadata(self):
        self.y.grad_fn.metadata["a"] = 1
        self.assertEqual((self.y.grad_fn.metadata, self.product.metadata), ({"a": 1}, {}))

    def test_gradient_edges(self):
        graph = torch.autograd.graph
        x, y = graph.get_gradient_edge(self.x), graph.get_gradient_edge(self.y)
        self.assertEqual((x.node.name(), x.output_nr, y.node), ("torch::autograd::AccumulateGrad", 0, self.y.grad_fn))
        self.assertEqual([g.tolist() for g in torch.autograd.grad(y, [x, self.w], retain_graph=True)], [[[1] * 3] * 2, [2] * 3])
        inner = graph.GradientEdge(self.product, 0)
        self.assertEqual(torch.autograd.grad(self.y, inner, retain_graph=True)[0].shape, (2, 3))
        torch.autograd.backward(y, torch.tensor(2.0), inputs=[x])
        self.assertEqual((self.x.grad[0].tolist(), self.w.grad), ([2, 2, 2], None))
        with self.assertRaisesRegex(RuntimeError, "the gradient edge for a Tensor that does not require gradients"):
            graph.get_gradient_edge(torch.ones(1))
        with self.assertRaisesRegex(TypeError, "must be a Node, not int"):
            torch.autograd.grad(graph.GradientEdge(3, 0), self.x)
        with self.assertRaisesRegex(IndexError, "MulBackward0 has no result 7"):
            torch.autograd.grad(graph.GradientEdge(self.product, 7), self.x)

    def test_multi_grad_hook(self):
        seen, hook = [], torch.autograd.graph.register_multi_grad_hook
        handle = hook((self.x, self.w), lambda grads: seen.append([None if g is None else g.shape for g in grads]))
        self.back()
        torch.autograd.grad(self.y, self.w, retain_graph=True)
        self.assertEqual(seen, [[(2, 3), (3,)], [None, (3,)]])
        handle.remove()
        self.back()
        self.assertEqual(len(seen), 2)
        hook((self.x, self.w), lambda grad: seen.append(grad.shape), mode="any")
        self.back(), self.back()
        self.assertEqual(len(seen), 4)
        with self.assertRaisesRegex(ValueError, r"one of \('all', 'any'\) but got x"):
            hook((self.x,), None, mode="x")

    def test_multi_grad_hook_lifetime(self):
        class Seen(list):
            pass
        seen = Seen()
        middle, ended = self.x * 2, weakref.ref(seen)
        torch.autograd.graph.register_multi_grad_hook((middle, self.w), seen.extend)
        (middle * self.w).sum().backward()
        self.assertEqual([g.shape for g in seen], [(2, 3), (3,)])
        del middle, seen, self.x, self.w, self.y, self.product
        gc.collect()
        self.assertIsNone(ended())

    def test_increment_version(self):
        a, b = torch.ones(1), torch.ones(1)
        torch.autograd.graph.increment_version([a, b, a])
        self.assertEqual((a._version, b._version), (2, 1))
        with self.assertRaises(TypeError):
            torch.autograd.graph.increment_version([a, 3])
        self.assertEqual(a._version, 2)


class Modes(unittest.TestCase):
    def test_grad_mode_context_managers_and_decorators(self):
        x = torch.ones(1, requires_grad=True)
        with torch.no_grad():
            self.assertFalse((x * 2).requires_grad)
            with torch.enable_grad():
                self.assertTrue((x * 2).requires_grad)

        class Model:
            @torch.no_grad()
            def run(self, a):
                "what it does"
                return a * 2
        self.assertFalse(Model().run(x).requires_grad)
        self.assertEqual((Model.run.__name__, Model.run.__doc__), ("run", "what it does"))
        self.assertTrue(torch.is_grad_enabled())

    def test_set_grad_enabled_is_immediate(self):
        torch.set_grad_enabled(False)
        self.assertFalse(torch.is_grad_enabled())
        torch.set_grad_enabled(True)
        with torch.set_grad_enabled(False):
            self.assertFalse(torch.is_grad_enabled())
        self.assertTrue(torch.is_grad_enabled())

    def test_grad_mode_is_thread_local(self):
        seen = []
        with torch.no_grad():
            thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
            thread.start()
            thread.join()
        self.assertEqual(seen, [True])

    def test_grad_mode_decorates_generators(self):
        @torch.no_grad()
        def steps():
            seen = yield torch.is_grad_enabled()
            try:
                yield seen, torch.is_grad_enabled()
            except KeyError:
                yield torch.is_grad_enabled()
            return "end"
        running = steps()
        self.assertEqual((next(running), torch.is_grad_enabled()), (False, True))
        self.assertEqual(running.send(5), (5, False))
        self.assertEqual(running.throw(KeyError()), False)
        with self.assertRaises(StopIteration) as caught:
            next(running)
        self.assertEqual((caught.exception.value, torch.is_grad_enabled()), ("end", True))
        self.assertEqual([len(list(steps())), steps().close()], [2, None])

    def test_anomaly_mode_is_scoped(self):
        for mode in (lambda: torch.autograd.set_detect_anomaly(True, check_nan=False), torch.autograd.detect_anomaly):
            with warnings.catch_warnings(record=True) as caught, self.assertRaises(KeyError), mode():
                warnings.simplefilter("always")
                self.assertTrue(torch.is_anomaly_enabled())
                raise KeyError
            self.assertEqual((torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()), (False, True))

    def test_anomaly_mode_reports_forward_line(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.autograd.detect_anomaly():
                line = f"line {sys._getframe().f_lineno + 1}"
                y = torch.tensor([-1.], requires_grad=True).sqrt()
                with self.assertRaisesRegex(RuntimeError, "Function 'SqrtBackward0' returned nan values in its 0th output."):
                    y.backward()
            with torch.autograd.detect_anomaly(check_nan=False):
                torch.tensor([-1.], requires_grad=True).sqrt().backward()
        texts = [str(w.message) for w in caught]
        self.assertEqual([t.split(".")[0] for t in texts], ["Anomaly Detection has been enabled", "Error detected in SqrtBackward0",
                                                            "Anomaly Detection has been enabled"])
        self.assertIn(f'Traceback of forward call that caused the error:\n  File "{__file__}", {line}', texts[1])

    def test_inference_mode(self):
        with torch.inference_mode():
            x = torch.ones(1)
            self.assertTrue(x.is_inference() and torch.is_inference_mode_enabled())
        self.assertFalse(torch.is_inference_mode_enabled())
        with self.assertRaisesRegex(RuntimeError, "Inference tensors do not track version counter."):
            x._version


class Gradients(unittest.TestCase):
    def test_argument_errors(self):
        x = torch.ones(1, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, r"`inputs` argument to `grad\(\)` cannot be empty."):
            torch.autograd.grad(x * 2, [])
        with self.assertRaisesRegex(RuntimeError, "^Only Tensors of floating point and complex dtype can require gradients"):
            torch.nn.Parameter(torch.tensor([1]))
        self.assertFalse(torch.nn.Parameter(torch.tensor([1]), requires_grad=False).requires_grad)

    def test_functions_without_derivative_raise(self):
        a, w = torch.tensor([[4.0, 1], [1, 3]], requires_grad=True), torch.tensor([1.0, 2], requires_grad=True)
        LD, pivots = torch.linalg.ldl_factor(a.detach())
        calls = {"linalg_ldl_factor_ex": lambda: torch.linalg.ldl_factor(a)[0], "linalg_ldl_solve": lambda: torch.linalg.ldl_solve(LD, pivots, w[:, None]),
                 "bincount": lambda: torch.bincount(torch.tensor([0, 1]), w), "histogram": lambda: torch.histogram(w, 2)[0],
                 "floor_divide": lambda: w // 2, "heaviside": lambda: torch.heaviside(w, w)}
        for name, call in calls.items():
            result = call()
            self.assertEqual((result.requires_grad, result.grad_fn.name()), (True, "torch::autograd::NotImplemented"), name)
            with self.assertRaisesRegex(RuntimeError, f"^derivative for aten::{name} is not implemented$"):
                result.sum().backward()

    def test_arguments_without_derivative_are_refused(self):
        F, x, w, classes = torch.nn.functional, torch.ones(3, 2), torch.ones(2, requires_grad=True), torch.tensor([0, 1, 1])
        calls = {("nll_loss_forward", "weight"): lambda w: F.nll_loss(x, classes, w),
                 ("nll_loss2d_forward", "weight"): lambda w: F.cross_entropy(x[:, :, None], classes[:, None], w, label_smoothing=0.1),
                 ("native_batch_norm", "running_mean"): lambda w: F.batch_norm(x, w, x[0]),
                 ("native_batch_norm", "running_var"): lambda w: F.batch_norm(x, x[0], w)}
        for (function, name), call in calls.items():
            text = f"^The function '{function}' is not differentiable with respect to argument '{name}'. This input cannot have requires_grad True.$"
            for outer in (call, lambda w: torch.vmap(call)(w.expand(2, 2))):
                with self.assertRaisesRegex(RuntimeError, text):
                    outer(w)
                with torch.no_grad():
                    outer(w)

    def test_as_strided_of_views_that_share_memory(self):
        windows = lambda x: x.unfold(0, 3, 1)
        for view in (lambda x: windows(x).as_strided((2, 2, 2), (1, 1, 1)), lambda x: x[:1].expand(3).as_strided((2,), (0,)),
                     lambda x: windows(x).as_strided((4,), (1,), 1)):
            x = torch.arange(5.0, dtype=torch.float64).requires_grad_()
            self.assertTrue(torch.autograd.gradcheck(lambda x: view(x).sin(), x) and torch.autograd.gradgradcheck(lambda x: view(x).sin(), x))

    def test_grad_of_non_leaf_warns(self):
        y = torch.ones(1, requires_grad=True) * 2
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertIsNone(y.grad)
        self.assertIn("not a leaf Tensor is being accessed", str(caught[0].message))

    def test_grad_allow_unused(self):
        x, z = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        self.assertEqual(torch.autograd.grad((x * 3).sum(), x)[0].item(), 3)
        with self.assertRaisesRegex(RuntimeError, "appears to not have been used in the graph"):
            torch.autograd.grad((x * 3).sum(), z)
        self.assertEqual(torch.autograd.grad((x * 3).sum(), [x, z], allow_unused=True)[1], None)

    def test_backward_inputs(self):
        x, z = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        (x * z * 2).sum().backward(inputs=[x])
        self.assertEqual((x.grad.item(), z.grad), (2, None))

    def test_graph_nodes(self):
        x = torch.ones(1, requires_grad=True)
        node = (x * 2).grad_fn
        self.assertEqual((node.name(), type(node).__name__), ("MulBackward0", "MulBackward0"))
        self.assertEqual(type((x * 3).grad_fn), type(node))
        self.assertEqual(node.next_functions[0][0].name(), "torch::autograd::AccumulateGrad")
        self.assertEqual(type(node.next_functions[0][0]).__name__, "AccumulateGrad")
        self.assertIs(node.requires_grad, True)
        self.assertEqual(torch.zeros(1).copy_(x).grad_fn.name(), "torch::autograd::CopyBackwards")
        self.assertEqual(x.log1p().grad_fn.name(), "Log1PBackward0")
        self.assertEqual(Square.apply(x, 2).grad_fn.name(), "SquareBackward")
        self.assertIs(node.next_functions[0][0].variable, x)

    def test_gradient_layout_matches_leaf(self):
        weight, x = torch.rand(3, 4).requires_grad_(), torch.rand(2, 4)
        (x @ weight.t()).sum().backward()
        self.assertEqual(weight.grad.stride(), weight.stride())
        transposed = torch.rand(4, 3).t().requires_grad_()
        (x @ transposed.t()).sum().backward()
        self.assertEqual(transposed.grad.stride(), (1, 3))
        row, = torch.autograd.grad((x @ weight.t()).sum(), weight)
        self.assertTrue(row.is_contiguous())
        weight.grad = None
        (weight.t() * torch.rand(4, 3)).sum().backward()
        self.assertTrue(weight.grad.is_contiguous())

    def test_gradient_layout_ignores_saved_versions(self):
        weight, x = torch.rand(3, 4).requires_grad_(), torch.rand(2, 4)
        y = x @ weight.t()
        with torch.no_grad():
            weight.add_(1)
        y.sum().backward()
        self.assertEqual(weight.grad[0].tolist(), x.sum(0).tolist())

    def test_grad_setter_checks(self):
        x = torch.ones(2, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, r"gradient of size '\[3\]' to a tensor of size '\[2\]'"):
            x.grad = torch.ones(3)
        with self.assertRaises(TypeError):
            x.grad = 1


class HookLists(unittest.TestCase):
    def test_hooks_run_after_one_has_removed_earlier_ones(self):
        for many in 3, 5, 8, 40:
            for remover in 1, many // 2, many - 1:
                x, calls, hooks = torch.ones(1, requires_grad=True), [], []
                def hook(grad, i):
                    calls.append(i)
                    if i == remover: [hooks[j].remove() for j in range(i + 1)]
                for i in range(many): hooks.append(x.register_hook(lambda grad, i=i: hook(grad, i)))
                (x * 2).backward()
                self.assertEqual(calls, list(range(many)))

    def test_a_hook_added_by_a_hook_runs_from_the_next_call_on(self):
        x, calls = torch.ones(1, requires_grad=True), []
        x.register_hook(lambda grad: x.register_hook(lambda grad: calls.append(1)) and None)
        (x * 2).backward()
        self.assertEqual(calls, [])
        (x * 2).backward()
        self.assertEqual(calls, [1])


if __name__ == "__main__":
    unittest.main()
