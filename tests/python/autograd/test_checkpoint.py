# SPDX-License-Identifier: Apache-2.0
"""Saved-tensor hooks, torch.utils.checkpoint in both forms, and torch.random.fork_rng."""
import collections, functools, gc, unittest, warnings, weakref

import phlox as torch
from phlox import nn
from phlox.autograd.graph import allow_mutation_on_saved_tensors, disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from phlox.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, set_checkpoint_debug_enabled


two_devices = unittest.skipUnless(torch.cuda.device_count() > 1, "requires two devices")


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * 2 * x


class SavedTensors(unittest.TestCase):
    def test_saved_tensors_hooks(self):
        seen = []

        def pack(t):
            seen.append(t)
            return t.tolist()

        x = torch.tensor([1., 2.], requires_grad=True)
        with saved_tensors_hooks(pack, torch.tensor):
            y = (x * x).exp() * 2
        self.assertEqual(len(seen), 3)
        self.assertEqual((seen[0] is x, seen[2].grad_fn), (True, None))
        y.sum().backward()
        torch_grad = 4 * x * (x * x).exp()
        self.assertTrue(torch.allclose(x.grad, torch_grad, rtol=1e-5))
        (x * x).sum().backward()  # without hooks again
        self.assertEqual(len(seen), 3)

    def test_custom_functions_use_saved_tensors_hooks(self):
        x = torch.tensor([3.], requires_grad=True)
        with saved_tensors_hooks(lambda t: t.tolist(), torch.tensor):
            y = Square.apply(x)
        first, = torch.autograd.grad(y, x, create_graph=True)
        second, = torch.autograd.grad(first, x)
        self.assertEqual((first.tolist(), second.tolist()), ([6.], [2.]))

    def test_double_backward_through_packed_tensors(self):
        x = torch.tensor([3.], requires_grad=True)
        with saved_tensors_hooks(lambda t: t * 1, lambda t: t):
            y = x * x * x
        first, = torch.autograd.grad(y, x, create_graph=True)
        self.assertEqual(torch.autograd.grad(first, x)[0].tolist(), [18.])

    def test_innermost_hooks_apply(self):
        log = []
        hooks = [saved_tensors_hooks(lambda t, n=n: log.append(n) or t, lambda t: t) for n in range(2)]
        x = torch.ones(1, requires_grad=True)
        with hooks[0]:
            x.exp()
            with hooks[1]:
                x.exp()
            x.exp()
        self.assertEqual(log, [0, 1, 0])

    def test_hook_errors(self):
        x = torch.ones(2, requires_grad=True)
        with saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t), self.assertRaisesRegex(RuntimeError, "pack hook is modifying its input in place"):
            x.exp() * 2
        for unpack, kind, text in ((lambda t: 3, TypeError, "Output of saved tensor unpack_hook expected to be a Tensor but got result of type int"),
                                   (lambda t: t[:1], RuntimeError, "expected a tensor with the shape"), (lambda t: 1 // 0, ZeroDivisionError, "")):
            with saved_tensors_hooks(lambda t: t, unpack):
                y = x.exp()
            with self.assertRaisesRegex(kind, text):
                y.sum().backward()
        for change in (lambda a: a.mul_(a[:]), lambda a: a[:].mul_(a.detach()), lambda a: a.mul_(a.detach())):
            x = torch.tensor([2.0, 3.0], requires_grad=True)
            with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
                y = x * 1
                change(y)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):  # PyTorch runs its hooks before the change
                y.sum().backward()
        with saved_tensors_hooks(lambda t: 1 // 0, lambda t: t), self.assertRaises(ZeroDivisionError):
            x.exp()

    def test_packed_values_are_freed_with_graph(self):
        class Box:
            def __init__(self, t):
                self.t = t

        made = []

        def pack(t):
            box = Box(t)
            made.append(weakref.ref(box))
            return box

        x = torch.ones(2, requires_grad=True)
        with saved_tensors_hooks(pack, lambda box: box.t):
            y, z = x.exp(), x.exp()
        y.sum().backward()
        self.assertEqual([one() is None for one in made], [True, False])
        del z
        gc.collect()
        self.assertIsNone(made[1]())

    def test_disable_saved_tensors_hooks(self):
        def enter():
            with save_on_cpu():
                pass

        with disable_saved_tensors_hooks("not here"):
            with disable_saved_tensors_hooks("nor here"), self.assertRaisesRegex(RuntimeError, "^nor here$"):
                enter()
            with self.assertRaisesRegex(RuntimeError, "^not here$"):
                enter()
            with self.assertRaisesRegex(RuntimeError, "^not here$"), allow_mutation_on_saved_tensors():
                pass
        enter()
        with saved_tensors_hooks(lambda t: t, lambda t: t), self.assertRaisesRegex(RuntimeError, "^are used$"):
            disable_saved_tensors_hooks("are used").__enter__()
        enter()
        with self.assertRaises(TypeError):
            disable_saved_tensors_hooks(3).__enter__()

    def test_allow_mutation_on_saved_tensors(self):
        def view(b): b[1:2].zero_()
        def detached(b): torch.add(torch.ones(3, device=b.device), 1, out=b.detach())
        def several(b): torch._foreach_mul_([b, b.clone()], 2.)
        for device in ("cpu", "cuda"):
            for change in (torch.Tensor.sin_, view, detached, several):
                a = torch.tensor([1., 2., 3.], device=device, requires_grad=True)
                with allow_mutation_on_saved_tensors() as ctx:
                    b = a.clone()
                    y = (b ** 2).sum()
                    change(b)
                    change(b)
                    self.assertEqual((len(ctx.cloned), len(ctx.cloned) and ctx.cloned[0].tolist()), (1, [1., 2., 3.]))
                    y.backward()
                    self.assertEqual(len(ctx.cloned), 0)
                self.assertEqual(a.grad.tolist(), [2., 4., 6.])

    def test_optimizer_step_before_backward(self):
        p, q = torch.nn.Parameter(torch.tensor([1., 2.])), torch.tensor([3., 4.], requires_grad=True)
        with allow_mutation_on_saved_tensors():
            first, second = (p * q).sum(), (p * q * p).sum()
            first.backward()
            torch.optim.Adam([p], lr=0.5).step()
            q.grad = None
            second.backward()
        self.assertEqual((q.grad.tolist(), p.grad.tolist()), ([1., 4.], [9., 20.]))

    def test_allow_mutation_backward_inside_scope(self):
        a = torch.tensor([2.], requires_grad=True)
        with allow_mutation_on_saved_tensors() as ctx:
            with self.assertRaisesRegex(RuntimeError, "contexts cannot be nested"), allow_mutation_on_saved_tensors():
                pass
            b = a.clone()
            y = b ** 3
            b.zero_()
            first, = torch.autograd.grad(y, a, create_graph=True)
            self.assertEqual((first.item(), torch.autograd.grad(first, a)[0].item()), (12., 12.))
            z = a.clone() ** 2
        self.assertEqual((len(ctx.cloned), len(ctx.original)), (0, 0))
        with self.assertRaisesRegex(AssertionError, "Trying to backward outside"):
            z.backward()

    def test_save_on_cpu(self):
        for pin in (False, True):
            x = torch.ones(1 << 16, device="cuda", requires_grad=True)
            plain = torch.cuda.memory_allocated()
            with save_on_cpu(pin_memory=pin):
                y = (x * x).exp().sin()
            held = torch.cuda.memory_allocated() - plain
            self.assertLess(held, 2 * x.nbytes)
            y.sum().backward()
            expected = 2 * x * (x * x).exp() * (x * x).exp().cos()
            self.assertTrue(torch.allclose(x.grad, expected, rtol=1e-4))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def gradients(model, call, device):
    torch.manual_seed(5)
    model.zero_grad()
    x = torch.arange(12.).reshape(3, 4).to(device).div(9).requires_grad_()
    call(model, x).pow(2).sum().backward()
    return [x.grad, *(p.grad for p in model.parameters())]


class Checkpoint(unittest.TestCase):
    def test_matches_plain_call(self):
        for device in ("cpu", f"cuda:{torch.cuda.device_count() - 1}"):
            model = net().to(device)
            plain = gradients(model, lambda m, x: m(x), device)
            warnings.filterwarnings("ignore", "None of the inputs")  # within the reentrant form there is no grad mode
            for reentrant in (True, False):
                for call in (lambda m, x: checkpoint(m, x, use_reentrant=reentrant), lambda m, x: checkpoint_sequential(m, 3, x, use_reentrant=reentrant),
                             lambda m, x: checkpoint(lambda y: checkpoint(m[3:], checkpoint(m[:3], y, use_reentrant=reentrant), use_reentrant=reentrant),
                                                     x, use_reentrant=reentrant)):
                    self.assertTrue(all(map(torch.equal, plain, gradients(model, call, device))))

    @two_devices
    def test_two_devices(self):
        parts = [nn.Linear(3, 3).to(f"cuda:{i}") for i in (0, 1)]

        def run(x):
            return parts[1](torch.tanh(parts[0](x.to("cuda:0"))).to("cuda:1")).cpu()

        x = torch.ones(2, 3, requires_grad=True)
        for call in (run, lambda x: checkpoint(run, x, use_reentrant=False)):
            x.grad = None
            call(x).sum().backward()
            found = x.grad.clone() if call is run else found
        self.assertTrue(torch.allclose(found, x.grad))

    def test_only_arguments_are_saved(self):
        x = torch.ones(1 << 18, device="cuda", requires_grad=True)
        held = {}
        for name, call in (("plain", lambda f: f(x)), ("kept", lambda f: checkpoint(f, x, use_reentrant=False))):
            before = torch.cuda.memory_allocated()
            y = call(lambda x: x.sin().cos().exp().tanh())
            held[name] = (torch.cuda.memory_allocated() - before) // x.nbytes
            del y
        self.assertEqual(held, {"plain": 3, "kept": 1})

    def test_non_reentrant_supports_double_backward_and_kwargs(self):
        x = torch.ones(3, requires_grad=True)
        y = checkpoint(lambda x, scale: (x * x).exp() * scale["by"], x, scale={"by": 2}, use_reentrant=False).sum()
        first, = torch.autograd.grad(y, x, create_graph=True)
        self.assertTrue(torch.allclose(first, 4 * x.exp()))
        self.assertTrue(torch.allclose(torch.autograd.grad(first.sum(), x)[0], 12 * x.exp()))
        y = checkpoint(lambda x: x.exp(), x, use_reentrant=False).sum()
        y.backward(retain_graph=True)
        y.backward()
        self.assertTrue(torch.allclose(x.grad, 2 * x.exp()))

    def test_recomputation_stops_early(self):
        runs = []

        def run(x):
            runs.append("begins")
            y = x.exp()
            runs.append("ends")
            return y.detach() + y

        x = torch.ones(1, requires_grad=True)
        checkpoint(run, x, use_reentrant=False).backward()
        self.assertEqual(runs, ["begins", "ends", "begins"])
        checkpoint(run, x, use_reentrant=False, early_stop=False).backward()
        self.assertEqual(runs[3:], ["begins", "ends"] * 2)
        with torch.utils.checkpoint.set_checkpoint_early_stop(False):
            y = checkpoint(run, x, use_reentrant=False)
        with torch.utils.checkpoint.set_checkpoint_early_stop(True):
            z = checkpoint(run, x, use_reentrant=False, early_stop=False)
        del runs[:]
        y.backward(), z.backward()
        self.assertEqual(runs, ["begins", "ends", "begins"])

    def test_recomputation_mismatch_raises(self):
        def by_turns(*functions):
            runs = iter(functions)
            return lambda x: next(runs)(x)

        x = torch.ones(3, requires_grad=True)
        for second, text in ((lambda x: x[:2].sin(), "different metadata than during the forward pass"),
                             (lambda x: x * 2, "Number of tensors saved during forward: 1\nNumber of tensors saved during recomputation: 0")):
            with self.assertRaisesRegex(CheckpointError, text):
                checkpoint(by_turns(torch.sin, second), x, use_reentrant=False).sum().backward()
        y = torch.ones(3, requires_grad=True) * 2
        z = checkpoint(lambda y: y.exp() * 2, y, use_reentrant=False)
        y.zero_()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            z.sum().backward()

    def test_argument_errors(self):
        x = torch.ones(1, requires_grad=True)
        with self.assertWarnsRegex(UserWarning, "the use_reentrant parameter should be passed explicitly"):
            checkpoint(torch.exp, x)
        with self.assertWarnsRegex(UserWarning, "None of the inputs have requires_grad=True"):
            checkpoint(torch.exp, torch.ones(1), use_reentrant=True)
        for kwargs, kind, text in (({"scale": 3}, ValueError, "^Unexpected keyword arguments: scale$"),
                                   ({"debug": True}, ValueError, "only supported when use_reentrant=False")):
            with self.assertRaisesRegex(kind, text):
                checkpoint(torch.exp, x, use_reentrant=True, **kwargs)
        with self.assertRaisesRegex(ValueError, "debug=True is incompatible with non-default context_fn"):
            checkpoint(torch.exp, x, use_reentrant=False, debug=True, context_fn=lambda: (torch.no_grad(), torch.no_grad()))
        with self.assertRaisesRegex(ValueError, "determinism_check should be one of"):
            checkpoint(torch.exp, x, use_reentrant=False, determinism_check="some")

    def test_hooks_around_save_the_arguments(self):
        w, x = torch.tensor([3.0], requires_grad=True), torch.tensor([1.0], requires_grad=True)
        run = lambda a, *more, b=0: (a.exp() * w).sin()
        for call, wanted in ((lambda: checkpoint(run, x, use_reentrant=False), [[1]]), (lambda: checkpoint(run, x, 5, w, use_reentrant=False), [[1], [3]]),
                             (lambda: checkpoint(run, x, b=w, use_reentrant=False), [[1]]), (lambda: checkpoint(run, x, use_reentrant=True), [[1]]),
                             (lambda: checkpoint(lambda a: checkpoint(run, a * 1, use_reentrant=False), x, use_reentrant=False), [[1]])):  # as PyTorch 2.15
            packed, unpacked = [], []
            with saved_tensors_hooks(lambda t: packed.append(t.tolist()) or t.tolist(), lambda t: unpacked.append(t) or torch.tensor(t)):
                y = call()
            x.grad = None
            y.sum().backward()
            self.assertEqual((packed, unpacked), (wanted, wanted))
            self.assertAlmostEqual(x.grad.item(), (3 * x.exp() * (3 * x.exp()).cos()).item(), 5)

    def test_debug_reports_the_ops(self):
        x, calls = torch.ones(2, requires_grad=True), []

        def changing(a):
            calls.append(1)
            return a.exp().sin() if len(calls) % 2 else a.exp()

        def backward(**options):
            checkpoint(changing, x, use_reentrant=False, **options).sum().backward()

        with self.assertRaisesRegex(CheckpointError, r"(?s)you passed `debug=True`.*exp.default.*\(1 of 2 in original\).*in changing.*\(1 of 1 in recompute\)"
                                                     r".*original forward:.*aten.sin.default.*recomputation:\n\n[^\n]*aten.exp.default[^\n]*\n\n ERROR: ") as caught:
            backward(debug=True)
        self.assertIsInstance(caught.exception.__cause__, CheckpointError)
        with self.assertRaisesRegex(CheckpointError, "different number of tensors.*(?s:.*)either pass `debug=True`"):
            backward()
        with set_checkpoint_debug_enabled(True), self.assertRaisesRegex(CheckpointError, "dumping logs"):
            backward()
        with set_checkpoint_debug_enabled(False), self.assertRaisesRegex(CheckpointError, "different number"):
            backward(debug=True)
        checkpoint(torch.exp, x, use_reentrant=False, debug=True).sum().backward()
        self.assertEqual(x.grad.tolist(), x.exp().tolist())

    def test_decorator(self):
        @checkpoint(use_reentrant=False)
        def run(x):
            return x.exp()

        x = torch.zeros(1, requires_grad=True)
        run(x).backward()
        self.assertEqual(x.grad.tolist(), [1.])


Pair = collections.namedtuple("Pair", "first second")
# Arguments around a tensor of the second device, and a function that returns the tensor.
CONTAINERS = {
    "tensor": (lambda t: t, lambda a: a),
    "list": (lambda t: [t], lambda a: a[0]),
    "tuple": (lambda t: (1, t), lambda a: a[1]),
    "named tuple": (lambda t: Pair(1, t), lambda a: a.second),
    "dict": (lambda t: {"x": t}, lambda a: a["x"]),
    "OrderedDict": (lambda t: collections.OrderedDict(x=t), lambda a: a["x"]),
    "defaultdict": (lambda t: collections.defaultdict(list, x=t), lambda a: a["x"]),
    "deque": (lambda t: collections.deque([t]), lambda a: a[0]),
    "nested": (lambda t: [{"x": (None, [t])}], lambda a: a[0]["x"][1][0]),
}


class Random(unittest.TestCase):
    def masks(self, run, *args, **kwargs):
        """Checks that run draws the same mask twice."""
        seen = []

        def call(*args, **kwargs):
            y = nn.functional.dropout(run(*args, **kwargs))
            seen.append(y.detach() != 0)
            return y.exp()

        y = checkpoint(call, *args, **kwargs)
        with torch.random.fork_rng():
            torch.manual_seed(7)
            y.sum().backward()
        self.assertEqual(len(seen), 2)
        self.assertTrue(torch.equal(*seen))

    @two_devices
    def test_recomputation_draws_the_same_numbers_for_tensors_in_containers(self):
        x = torch.ones(1000, device="cuda:1", requires_grad=True)
        first = torch.ones(1, requires_grad=True)
        for name, (pack, unpack) in CONTAINERS.items():
            with self.subTest(name):
                self.masks(unpack, pack(x), use_reentrant=False)
                self.masks(unpack, pack(x), use_reentrant=False, early_stop=False)
                self.masks(lambda given: unpack(given), given=pack(x), use_reentrant=False)
                self.masks(lambda a, t: unpack(t) * a.to(x.device), first, pack(x), use_reentrant=True)

    @two_devices
    def test_recomputation_draws_the_same_numbers_on_the_current_device(self):
        x, first = torch.ones(1000, device="cuda:1", requires_grad=True), torch.ones(1, requires_grad=True)
        with torch.cuda.device(1):
            self.masks(lambda: x * 1, use_reentrant=False)
            self.masks(lambda a: a.cuda() * x, first, use_reentrant=False)
            self.masks(lambda a: a.cuda() * x, first, use_reentrant=True)
            self.masks(lambda t: t["set"], {"set": x}, use_reentrant=False)

    @two_devices
    def test_replicas_draw_the_same_numbers(self):
        seen = {}

        class Drops(nn.Module):
            def forward(self, x):
                y = nn.functional.dropout(x[0])
                seen.setdefault(y.device, []).append(y.detach() != 0)
                return y.exp()

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.weight = Drops(), nn.Parameter(torch.ones(1))

            def forward(self, x):
                return checkpoint(self.inner, [x * self.weight], use_reentrant=False)

        nn.DataParallel(Outer().cuda(), [0, 1])(torch.ones(2, 1000, device="cuda")).sum().backward()
        self.assertEqual([torch.equal(*masks) for masks in seen.values()], [True, True])

    def test_recomputation_notices_changes_of_tensors_in_containers(self):
        x = torch.ones(2, requires_grad=True)
        given = {"x": [x * 1]}
        y = checkpoint(lambda a: a["x"][0].exp(), given, use_reentrant=False)
        given["x"][0].mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation: an argument of checkpoint"):
            y.sum().backward()

    def test_recomputation_keeps_the_autocast_cache_off(self):
        x, seen = torch.ones(2, requires_grad=True), []

        def run(t):
            seen.append(torch.is_autocast_cache_enabled())
            return t.exp()

        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            y = checkpoint(run, x, use_reentrant=False)
        y.sum().backward()
        self.assertEqual(seen, [False, False])

    @two_devices
    def test_fork_rng_restores_states(self):
        torch.manual_seed(3)
        with torch.random.fork_rng():
            inside = torch.rand(2), torch.rand(2, device="cuda:1")
        self.assertTrue(torch.equal(inside[0], torch.rand(2)) and torch.equal(inside[1], torch.rand(2, device="cuda:1")))
        with torch.random.fork_rng(devices=[0]):
            inside = torch.rand(2, device="cuda:1")
        self.assertFalse(torch.equal(inside, torch.rand(2, device="cuda:1")))
        with torch.random.fork_rng(enabled=False):
            inside = torch.rand(2)
        self.assertFalse(torch.equal(inside, torch.rand(2)))
        with self.assertRaises(ZeroDivisionError), torch.random.fork_rng():
            before = torch.rand(2)
            1 // 0
        self.assertTrue(torch.equal(before, torch.rand(2)))
        with self.assertRaisesRegex(RuntimeError, "^torch has no module of `xpu`"), torch.random.fork_rng(device_type="xpu"):
            pass


Policy = torch.utils.checkpoint.CheckpointPolicy
aten = torch.ops.aten


class Selective(unittest.TestCase):
    """Selective checkpointing: the results of some ops are saved."""

    @staticmethod
    def function(x, y):
        return torch.sigmoid(torch.matmul(torch.matmul(x, y), y)) * y

    def gradients(self, device, function, policy=None, **options):
        x = (torch.arange(9.0, device=device).reshape(3, 3) / 9).requires_grad_()
        y = ((torch.arange(9.0, device=device) - 4).reshape(3, 3) / 9).requires_grad_()
        if policy is None:
            out = function(x, y)
        else:
            make = functools.partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, policy, **options)
            out = torch.utils.checkpoint.checkpoint(function, x, y, use_reentrant=False, context_fn=make)
        out.sum().backward()
        return [x.grad.tolist(), y.grad.tolist()]

    def test_matches_plain_gradients(self):
        for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
            wanted = self.gradients(device, self.function)
            for policy in ([aten.mm.default], [aten.mm.default, aten.sigmoid.default], lambda *args, **kwargs: True, lambda *args, **kwargs: False,
                           lambda context, op, *args, **kwargs: Policy.PREFER_SAVE if op == aten.mul.Tensor else Policy.MUST_RECOMPUTE):
                self.assertEqual(self.gradients(device, self.function, policy), wanted)

    def test_saved_results_are_not_recomputed(self):
        for policy, storages in (([aten.mm.default], 1), ([aten.sigmoid.default], 2)):
            products = []

            def function(x, y):
                products.append(torch.mm(x, y))
                return torch.sigmoid(products[-1]) * y

            self.gradients("cpu", function, policy)
            self.assertEqual((len(products), len({product.data_ptr() for product in products})), (2, storages))

    def test_policy_receives_op_arguments_and_output(self):
        seen, layer = [], nn.Linear(3, 3)

        def policy(context, op, *args, **kwargs):
            seen.append((str(op), context.is_recompute, torch.is_tensor(args[0]), context.op_output.shape))
            return Policy.MUST_SAVE

        self.gradients("cpu", lambda x, y: torch.softmax(nn.functional.gelu(layer(x)) + y @ y, -1), policy)
        names = "aten.addmm.default aten.gelu.default aten.mm.default aten.add.Tensor aten._softmax.default".split()
        self.assertEqual(seen, [(name, False, True, (3, 3)) for name in names])

    def test_mutating_saved_results_raises(self):
        def function(x, y):
            z = torch.mm(x, y)
            w = z * 1
            z.add_(1)
            return torch.sigmoid(w) * z

        with self.assertRaisesRegex(RuntimeError, "^Tensor cached during selective activation checkpoint has been mutated$"):
            self.gradients("cpu", function, [aten.mm.default])
        self.gradients("cpu", function, [aten.mm.default], allow_cache_entry_mutation=True)

    def test_recomputation_mismatch_raises(self):
        runs = []

        def function(x, y):
            runs.append(0)
            return self.function(x if len(runs) == 1 else torch.sin(x), y)

        with self.assertRaisesRegex(RuntimeError, "^aten.sin.default encountered during backward but not found in storage. This can happen"):
            self.gradients("cpu", function, [aten.mm.default])
        x = torch.ones(2, 2, requires_grad=True)
        make = functools.partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, [aten.mm.default])
        out = torch.utils.checkpoint.checkpoint(lambda x: torch.exp(x @ x), x, use_reentrant=False, context_fn=make).sum()
        out.backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "^Trying to backward an extra time. You are only allowed"):
            out.backward()
        self.assertTrue(torch.equal(x + 1, torch.full((2, 2), 2.0)))  # the error ended the scope

    def test_policy_exceptions_propagate(self):
        def policy(context, op, *args, **kwargs):
            raise KeyError(str(op))

        with self.assertRaisesRegex(KeyError, "aten.mm.default"):
            self.gradients("cpu", self.function, policy)
        self.assertEqual(self.gradients("cpu", self.function, [aten.mm.default]), self.gradients("cpu", self.function))

    def test_invalid_policies(self):
        make = torch.utils.checkpoint.create_selective_checkpoint_contexts
        with self.assertRaisesRegex(TypeError, "^policy_fn_or_list must be either a function or a list of ops.$"):
            make(7)
        with self.assertRaisesRegex(ValueError, "Expected op in `op_list` to be an OpOverload but got: aten.mm of type .* change it to `torch.ops.aten.mm.default`"):
            make([aten.mm])
        with self.assertRaisesRegex(ValueError, "Expected op in `op_list` to be an OpOverload but got: 3 of type <class 'int'>. $"):
            make([3])

    def test_aten_op_names_and_calls(self):
        x = torch.ones(2, 2)
        self.assertEqual((repr(aten.mm.default), str(aten.mm), repr(aten.mm), aten.add.Tensor.name(), aten.mm.default.name()),
                         ("<OpOverload(op='aten.mm', overload='default')>", "aten.mm", "<OpOverloadPacket(op='aten.mm')>", "aten::add.Tensor", "aten::mm"))
        self.assertEqual((aten.mm(x, x).tolist(), aten.add.Tensor(x, x, alpha=2).tolist(), aten.relu.default(-x).tolist()),
                         ([[2, 2], [2, 2]], [[3, 3], [3, 3]], [[0, 0], [0, 0]]))
        self.assertIs(aten.add_.Tensor(x, 1), x)
        self.assertFalse(hasattr(aten, "frobnicate") or hasattr(aten.mm, "frobnicate"))


if __name__ == "__main__":
    unittest.main()
