# SPDX-License-Identifier: Apache-2.0
"""torch.optim: steps with the results of PyTorch 1.13.1, groups, states, schedulers. test_optim_beside_torch.py compares all with a recent PyTorch."""
import copy
import doctest
import functools
import importlib.util
import inspect
import math
import os
import pickle
import sys
import unittest
import warnings

import phlox as torch
from phlox import nn

optim = torch.optim
ADADELTA, ADAM, ADAMW, SGD = optim.Adadelta, optim.Adam, optim.AdamW, optim.SGD


def descend(kind, steps=4, **options):
    """Four steps from (1, -2, 3); the gradient of step k is half the parameter plus (0.1, -0.2, 0.3) k."""
    p = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    optimizer = kind([p], **options)
    for k in range(steps):
        p.grad = p.detach() * 0.5 + torch.tensor([0.1, -0.2, 0.3]) * (k + 1)
        optimizer.step()
    return p.tolist()


class Steps(unittest.TestCase):
    def test_parameters_of_group_have_own_step_counts(self):
        turns = [(0, 2), (0, 1, 2), (1, 2), (2, 0), (0, 1, 2)]
        for kind in (torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD, torch.optim.Adamax):
            grouped, alone = [[torch.ones(2, requires_grad=True) for _ in range(3)] for _ in range(2)]
            optimizers = [kind(grouped, lr=0.1), *(kind([p], lr=0.1) for p in alone)]
            for turn in turns:
                for i in range(3):
                    grouped[i].grad = alone[i].grad = torch.full((2,), i + 0.5) if i in turn else None
                for optimizer in optimizers: optimizer.step()
            self.assertEqual([p.tolist() for p in grouped], [p.tolist() for p in alone], kind)
            self.assertNotEqual(grouped[0].tolist(), grouped[1].tolist())

    def test_golden(self):
        for kind, options, wanted in (
            (SGD, dict(lr=0.1), (0.719382465, -1.43876493, 2.15814734)),
            (SGD, dict(lr=0.1, momentum=0.9), (0.405327529, -0.810655057, 1.21598268)),
            (SGD, dict(lr=0.1, momentum=0.9, dampening=0.5), (0.595445335, -1.19089067, 1.78633595)),
            (SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01), (0.397813201, -0.795626402, 1.19343948)),
            (SGD, dict(lr=0.1, momentum=0.9, nesterov=True), (0.231978923, -0.463957846, 0.695936859)),
            (SGD, dict(lr=0.1, maximize=True), (1.32063258, -2.64126515, 3.96189761)),
            (ADAM, dict(lr=0.1), (0.598916888, -1.59883296, 2.59885478)),
            (ADAM, dict(lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1), (0.799580574, -1.79941189, 2.7993629)),
            (ADAM, dict(lr=0.1, maximize=True), (1.40034091, -2.40075064, 3.40086198)),
            (ADAMW, dict(lr=0.1), (0.595526934, -1.59144485, 2.58747101)),
            (ADAMW, dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, amsgrad=True),
             (0.780928135, -1.76107121, 2.74122405)),
            (ADADELTA, dict(), (0.985439241, -1.98542833, 2.98542452)),
            (ADADELTA, dict(lr=20.0, rho=0.5, eps=1e-2, weight_decay=0.1), (1.70790064, 0.123010278, -2.67751741)),
            (ADADELTA, dict(lr=20.0, maximize=True), (1.29983044, -2.29583693, 3.29446316)),
        ):
            with self.subTest(kind=kind.__name__, **options):
                for a, b in zip(descend(kind, **options), wanted):
                    self.assertAlmostEqual(a, b, 5)

    def test_closure(self):
        p = nn.Parameter(torch.ones(1))
        optimizer = SGD([p], lr=0.5)

        def closure():
            optimizer.zero_grad()
            loss = (p * 2).sum()
            loss.backward()
            return loss
        self.assertEqual(optimizer.step(closure).item(), 2)
        self.assertEqual(p.item(), 0)

    def test_zero_grad(self):
        p = nn.Parameter(torch.ones(1))
        optimizer = SGD([p], lr=0.5)
        p.grad = torch.ones(1)
        optimizer.zero_grad(set_to_none=False)
        self.assertEqual(p.grad.item(), 0)
        optimizer.zero_grad()
        self.assertIsNone(p.grad)

    def test_zero_grad_follows_param_groups(self):
        a, b, c = (torch.ones(2, requires_grad=True) for _ in range(3))
        def graded(*tensors):
            for t in (a, b, c): t.grad = torch.ones(2)
            optimizer.zero_grad()
            self.assertEqual([t.grad is None for t in (a, b, c)], [t in tensors for t in "abc"])
        optimizer = torch.optim.SGD([a], lr=0.1)
        graded("a")
        optimizer.param_groups[0]["params"].append(b)
        graded("a", "b")
        optimizer.param_groups = [{**optimizer.param_groups[0], "params": (c,)}]  # a tuple works as well
        graded("c")
        vars(optimizer)["param_groups"] = []
        graded()

        class Wrapped(torch.optim.SGD):
            param_groups = property(lambda self: [{"params": [b]}], lambda self, value: None)
        optimizer = Wrapped([a], lr=0.1)
        graded("b")

    def test_step_can_be_replaced_on_class(self):
        made = []
        def counted(step):
            @functools.wraps(step)
            def stepped(self, *args, **kwargs):
                made.append(type(self).__name__)
                return step(self, *args, **kwargs)
            return stepped
        class Counted(torch.optim.SGD):
            step = counted(torch.optim.Adamax.step)  # possibly before any Adamax was created
        class Doubled(torch.optim.SGD):
            def step(self, closure=None):
                loss = super().step(closure)
                super().step()
                return loss
        for kind, moved in (Counted, 1), (Doubled, 2), (torch.optim.SGD, 1):
            p = nn.Parameter(torch.zeros(1))
            optimizer = kind([p], lr=1.0)
            p.grad = torch.ones(1)
            self.assertIsNone(optimizer.step())
            self.assertEqual(p.item(), -moved)
            self.assertEqual(optimizer.step(lambda: 5), 5)
            self.assertEqual(p.item(), -2 * moved)
        self.assertEqual(made, ["Counted"] * 2)

    def test_parameters_without_gradient_are_unchanged(self):
        p = nn.Parameter(torch.ones(1))
        ADAM([p]).step()
        self.assertEqual(p.item(), 1)


class Groups(unittest.TestCase):
    def test_group_options(self):
        p, q = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        optimizer = SGD([{"params": [p]}, {"params": q, "lr": 0.25}], lr=0.5, momentum=0.9)
        self.assertEqual([g["lr"] for g in optimizer.param_groups], [0.5, 0.25])
        self.assertEqual(optimizer.param_groups[1]["momentum"], 0.9)
        self.assertIs(optimizer.param_groups[0]["params"][0], p)
        p.grad, q.grad = torch.ones(1), torch.ones(1)
        optimizer.step()
        self.assertEqual((p.item(), q.item()), (0.5, 0.75))
        optimizer.param_groups[0]["lr"] = 0.125
        p.grad, q.grad = torch.ones(1), None
        optimizer.param_groups[0]["momentum"] = 0
        optimizer.step()
        self.assertEqual(p.item(), 0.375)

    def test_add_param_group(self):
        p, q = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        optimizer = SGD([p], lr=0.5)
        optimizer.add_param_group({"params": [q]})
        self.assertEqual(len(optimizer.param_groups), 2)
        with self.assertRaisesRegex(ValueError, "some parameters appear in more than one parameter group"):
            optimizer.add_param_group({"params": [p]})

    def test_argument_errors(self):
        p = nn.Parameter(torch.ones(1))
        for make, text in (
            (lambda: SGD([], lr=0.1), "optimizer got an empty parameter list"),
            (lambda: SGD([p * 2], lr=0.1), "can't optimize a non-leaf Tensor"),
            (lambda: SGD([p], lr=-1.0), r"Invalid learning rate: -1\.0"),
            (lambda: SGD([p], lr=0.1, momentum=-1.0), r"Invalid momentum value: -1\.0"),
            (lambda: SGD([p], lr=0.1, nesterov=True), "Nesterov momentum requires a momentum and zero dampening"),
            (lambda: ADAM([p], betas=(1.0, 0.9)), r"Invalid beta parameter at index 0: 1\.0"),
            (lambda: ADADELTA([p], rho=1.5), r"Invalid rho value: 1\.5"),
            (lambda: ADAM([p], eps=-1.0), r"Invalid epsilon value: -1\.0"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                make()
        with self.assertRaisesRegex(TypeError, "'Linear' object is not iterable"):
            SGD(nn.Linear(1, 1), lr=0.1)

    def test_repr_and_parameters_on_several_devices(self):
        p = nn.Parameter(torch.ones(1))
        optimizer = ADAM([p], lr=0.5)
        self.assertIn("lr: 0.5", repr(optimizer))
        self.assertEqual(repr(optimizer), """Adam (
Parameter Group 0
    amsgrad: False
    betas: (0.9, 0.999)
    capturable: False
    decoupled_weight_decay: False
    differentiable: False
    eps: 1e-08
    foreach: None
    fused: None
    lr: 0.5
    maximize: False
    weight_decay: 0
)""")

    def test_decoupled_weight_decay(self):
        results = []
        for kind, options in ((ADAM, {"decoupled_weight_decay": True}), (torch.optim.AdamW, {})):
            p = nn.Parameter(torch.tensor([1.0, -2.0]))
            optimizer = kind([p], lr=0.1, weight_decay=0.1, **options)
            for _ in range(3):
                p.grad = p.detach() * 2
                optimizer.step()
            results.append(p.tolist())
        self.assertEqual(*results)


class States(unittest.TestCase):
    def check_resume(self, kind, carry, **options):
        """Two steps have the same result as a step, a copied state, and another step."""
        wanted = descend(kind, 2, **options)
        p = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        optimizer = kind([p], **options)
        for k in range(2):
            p.grad = p.detach() * 0.5 + torch.tensor([0.1, -0.2, 0.3]) * (k + 1)
            optimizer.step()
            if k == 0:
                state = carry(optimizer.state_dict())
                optimizer = kind([p], lr=9.0)
                optimizer.load_state_dict(state)
        self.assertEqual(p.tolist(), wanted)

    def test_state_dict_round_trip(self):
        carries = (lambda s: s, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s)))
        for carry in carries:
            self.check_resume(SGD, carry, lr=0.1, momentum=0.9)
            self.check_resume(ADAM, carry, lr=0.1, amsgrad=True)
            self.check_resume(ADAMW, carry, lr=0.1)
            self.check_resume(ADADELTA, carry, lr=0.5)

    def test_state_dict_format(self):
        p = nn.Parameter(torch.ones(2))
        optimizer = ADAM([p])
        p.grad = torch.ones(2)
        optimizer.step()
        state = optimizer.state_dict()
        self.assertEqual(list(state), ["state", "param_groups"])
        self.assertEqual(state["param_groups"][0]["params"], [0])
        self.assertEqual(state["param_groups"][0]["betas"], (0.9, 0.999))
        self.assertLessEqual({"step", "exp_avg", "exp_avg_sq"}, set(state["state"][0]))
        self.assertEqual(float(state["state"][0]["step"]), 1)
        self.assertEqual(state["state"][0]["exp_avg"].shape, (2,))

    def test_sgd_state_is_momentum_only(self):
        for momentum, wanted in ((0, {}), (0.9, {0: {"momentum_buffer": [1, 1]}})):
            p = nn.Parameter(torch.ones(2))
            optimizer = SGD([p], lr=0.1, momentum=momentum)
            p.grad = torch.ones(2)
            optimizer.step()
            for _ in range(2):
                state = optimizer.state_dict()
                self.assertEqual({i: {k: v.tolist() for k, v in s.items()} for i, s in state["state"].items()}, wanted)
                optimizer = SGD([p], lr=0.1, momentum=momentum)
                optimizer.load_state_dict(state)

    def test_named_parameters(self):
        layer = nn.Linear(1, 1)
        optimizer = SGD(layer.named_parameters(), lr=1.)
        group, = optimizer.param_groups
        self.assertEqual(group["param_names"], ["weight", "bias"])
        self.assertIs(group["params"][0], layer.weight)
        with self.assertRaisesRegex(ValueError, "all optimizer params should be with/without names."):
            SGD([("a", layer.weight), layer.bias], lr=1.)
        with self.assertRaisesRegex(ValueError, "all optimizer params should be with/without names."):
            SGD([layer.weight, ("a", layer.bias)], lr=1.)
        with self.assertRaisesRegex(TypeError, "optimizer can only optimize Tensors, but one of the params is int"):
            SGD([("a", 5)], lr=1.)

    def test_scheduler_before_optimizer_warns(self):
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=1.)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        with self.assertWarnsRegex(UserWarning, r"^Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`."):
            schedule.step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            schedule.step()
            optimizer.step()
            torch.optim.lr_scheduler.StepLR(optimizer, 1).step()

    def test_mismatched_state_dict_raises(self):
        p, q = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        with self.assertRaisesRegex(ValueError, "loaded state dict"):
            SGD([p, q], lr=0.1).load_state_dict(SGD([p], lr=0.1).state_dict())


def reference_formulas():
    """The formulas of optim/*.optim, for elements or tensors, and the samples of each optimizer."""
    from phlox.optim import _formulas
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    path = os.path.join(root, "build", "gen", "optim_samples.py")
    if not os.path.exists(path):
        raise unittest.SkipTest("no build/gen/optim_samples.py")
    spec = importlib.util.spec_from_file_location("optim_samples", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [(name, getattr(_formulas, name), options) for name, options in module.SAMPLES]


class SwapInParamsAndState(unittest.TestCase):
    def setUp(self):
        self.own, self.others = ([torch.tensor([v], requires_grad=True) for v in values] for values in ((1.0, 2.0), (3.0, 4.0)))
        self.optimizer = optim.SGD([{"params": [self.own[0]]}, {"params": [self.own[1]], "lr": 0.5}], lr=0.1, momentum=0.9)

    def step(self, parameters):
        (parameters[0] ** 2 + parameters[1]).sum().backward()
        self.optimizer.step()

    def swap(self, state, count=2):
        return optim.swap_in_optimizer_params_and_state(self.optimizer, {str(i): p for i, p in enumerate(self.others[:count])}, state)

    def test_step_uses_swapped_parameters(self):
        self.step(self.own)
        state, groups = self.optimizer.state, [group["params"] for group in self.optimizer.param_groups]
        given = self.optimizer.state_dict()
        with self.swap(given):
            self.step(self.others)
            self.optimizer.param_groups[0]["lr"] = 7
        self.assertEqual([round(p.item(), 5) for p in (*self.own, *self.others)], [0.8, 1.5, 2.22, 3.05])
        self.assertIs(self.optimizer.state, state)
        self.assertTrue(all(group["params"] is own for group, own in zip(self.optimizer.param_groups, groups)))
        self.assertEqual(self.optimizer.param_groups[0]["lr"], 0.1)
        self.assertEqual(round(given["state"][0]["momentum_buffer"].item(), 5), 7.8)

    def test_mismatch_changes_nothing(self):
        name = "swap_in_optimizer_params_and_state requires"
        with self.assertRaisesRegex(RuntimeError, f"^{name} initialized optimizer state.$"), self.swap(self.optimizer.state_dict()):
            pass
        self.step(self.own)
        good = self.optimizer.state_dict()
        for text, bad in ((f"{name} a DCP-style optimizer state_dict.", 3),
                          (f"{name} swapin_optim_state\\['state'\\] to be a dict mapping packed parameter ids to per-param state dicts, got list.", {**good, "state": []}),
                          (f"{name} optimizer.state_dict\\(\\)-style state keyed by packed parameter ids.", {**good, "state": {self.own[0]: {}}}),
                          (f"{name} per-parameter optimizer state entries to be dictionaries.", {**good, "state": {0: 1}}),
                          ("swapin_optim_state has a different number of parameter groups than the live optimizer.", {**good, "param_groups": []}),
                          ("swapin_optim_state param group 0 has a different number of params than the live optimizer param group.",
                           {**good, "param_groups": [{"params": [0, 1]}, {}]}),
                          (f"{name} swapin_optim_state\\['state'\\] to be keyed only by packed parameter ids from .*got extra keys \\[9\\].", {**good, "state": {9: {}}})):
            with self.assertRaisesRegex(RuntimeError, f"^{text}$"), self.swap(bad):
                pass
        with self.assertRaisesRegex(RuntimeError, "explicit parameter state to match optimizer.param_groups ordering"), self.swap(good, 1):
            pass
        self.assertIs(self.optimizer.param_groups[0]["params"][0], self.own[0])


class AllOptimizers(unittest.TestCase):
    """Properties of every optimizer, on the samples of its entry."""
    START, SLOPE = (1.0, -2.0, 3.0, 0.5), (0.1, -0.2, 0.3, -0.7)

    def make(self, name, options):
        p = nn.Parameter(torch.tensor(self.START, dtype=torch.float64))
        return p, getattr(optim, name)([p], **options)

    def step(self, p, optimizer, k):
        p.grad = p.detach() * 0.5 + torch.tensor(self.SLOPE, dtype=torch.float64) * (k - 2)
        optimizer.step()

    def test_steps_match_formula(self):
        for name, formula, options in reference_formulas():
            with self.subTest(name, **options):
                p, optimizer = self.make(name, options)
                elements, states = list(self.START), [{} for _ in self.START]
                for k in range(6):
                    for i, x in enumerate(elements):
                        grad = x * 0.5 + self.SLOPE[i] * (k - 2)
                        elements[i], states[i] = formula(optimizer.param_groups[0], states[i], x, grad)
                    self.step(p, optimizer, k)
                    numbers = {key: value.item() for key, value in optimizer.state[p].items() if not value.ndim}
                    for state in states:  # scalars are stored in float32
                        state.update(numbers)
                for a, b in zip(p.tolist(), elements):
                    self.assertAlmostEqual(a, b, 8)
                self.assertEqual(set(optimizer.state[p]), set(states[0]))
                for key, value in optimizer.state[p].items():
                    for a, b in zip(value.tolist() if value.ndim else [], (s[key] for s in states)):
                        self.assertAlmostEqual(a, b, 8)

    def test_constructor_and_repr(self):
        for name, _, options in reference_formulas():
            kind = getattr(optim, name)
            _, optimizer = self.make(name, options)
            text = repr(optimizer)
            self.assertTrue(text.startswith(f"{name} (\nParameter Group 0\n"))
            for option, value in options.items():
                self.assertIn(f"    {option}: {value}\n", text)
            signature = inspect.signature(kind)
            self.assertEqual(list(signature.parameters)[:2], ["params", "lr"])
            more = {"decoupled_weight_decay": True} if kind is ADAMW else {}
            self.assertEqual({**{k: v.default for k, v in signature.parameters.items() if k != "params"}, **more}, kind([torch.ones(1)]).defaults)
            with self.assertRaisesRegex(ValueError, r"Invalid learning rate: -1\.0"):
                kind([torch.ones(1)], lr=-1.0)
            with self.assertRaises(TypeError):
                kind([torch.ones(1)], speed=1)

    def test_state_dict_round_trip(self):
        for name, _, options in reference_formulas():
            for carry in (lambda o: o, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))):
                p, optimizer = self.make(name, options)
                for k in range(2):
                    self.step(p, optimizer, k)
                q, other = self.make(name, {})
                with torch.no_grad():
                    q.copy_(p)
                other.load_state_dict(carry(optimizer.state_dict()))
                self.assertEqual(repr(other), repr(optimizer))
                whole = carry(optimizer)
                r = whole.param_groups[0]["params"][0]
                for k in range(2, 4):
                    for parameter, each in {id(x): (x, y) for x, y in ((p, optimizer), (q, other), (r, whole))}.values():
                        self.step(parameter, each, k)
                self.assertEqual(q.tolist(), p.tolist())
                self.assertEqual(r.tolist(), p.tolist())

    def test_bfloat16_parameters_have_bfloat16_state(self):
        for name, _, options in reference_formulas():
            p = nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
            optimizer = getattr(optim, name)([p], **options)
            p.grad = torch.ones_like(p)
            optimizer.step()
            self.assertEqual({v.dtype for v in optimizer.state[p].values() if v.ndim} - {torch.bfloat16}, set())
            self.assertNotEqual(p[0].item(), 0)

    def test_half_precision_steps_match_rounded_float32(self):
        def step(p, options, dtype):  # one step, from values exact in half precision
            p = nn.Parameter(p.to(dtype, copy=True))
            optimizer = getattr(optim, name)([p], **options)
            p.grad = (p.detach().float() * 3 - 1).to(half).to(dtype)
            optimizer.step()
            return [p.detach(), *(v for v in optimizer.state[p].values() if v.ndim)]
        for half in torch.bfloat16, torch.float16:
            whole = (torch.arange(70001) % 999 / 250 - 2).to(half)
            for name, options in (("SGD", {"lr": 0.1, "momentum": 0.9}), ("AdamW", {"lr": 0.1, "amsgrad": True}), ("Adagrad", {"lr": 0.1}), ("AdamW", {"fused": True})):
                for p in whole, whole[:1], whole[1:].view(700, 100).t(), whole[:0]:
                    for mine, theirs in zip(step(p, options, half), step(p, options, torch.float32)):
                        self.assertTrue(torch.equal(mine, theirs.to(half)), (half, name, p.shape))

    def test_channels_last_steps_match_contiguous(self):
        def step(dtype, rows, layout):
            p = nn.Parameter((torch.arange(16 * 8 * 9) % 99 / 25 - 2).view(16, 8, 3, 3).to(dtype, memory_format=layout))
            optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
            for _ in range(2):
                p.grad = (p.detach() * 3 - 1).contiguous() if rows else p.detach() * 3 - 1
                optimizer.step()
            return p.detach()
        for dtype in torch.float32, torch.float64, torch.bfloat16:
            for mixed in False, True:
                self.assertTrue(torch.equal(step(dtype, mixed, torch.channels_last), step(dtype, mixed, torch.contiguous_format)), (dtype, mixed))

    def test_docstring_examples(self):
        vectors = sys.modules[nn.utils.parameters_to_vector.__module__]
        for module in (optim._kinds, optim.lr_scheduler, optim._schedules, optim.swa_utils, vectors):
            found = doctest.testmod(module, extraglobs={"torch": torch})
            self.assertEqual((found.failed, found.attempted > 0), (0, True), module)


class Differentiable(unittest.TestCase):
    """Steps with differentiable=True are recorded by autograd."""
    def stepped(self, name, options, start, slopes, **more):
        p = start.clone()
        optimizer = getattr(optim, name)([p], **{**options, "differentiable": True, **more})
        for slope in slopes:
            p.grad = slope * 1 if slope.requires_grad else slope.clone()
            optimizer.step()
        return p, optimizer

    def numbers(self, *values):
        return torch.tensor(values, dtype=torch.float64, requires_grad=True)

    def test_steps_match_kernels(self):
        slopes = [torch.tensor([0.1, -0.2, 0.3, -0.7], dtype=torch.float64) * (k - 1.5) for k in range(4)]
        for name, _, options in reference_formulas():
            with self.subTest(name, **options):
                p, optimizer = self.stepped(name, options, self.numbers(1.0, -2.0, 3.0, 0.5), slopes)
                q = nn.Parameter(self.numbers(1.0, -2.0, 3.0, 0.5).detach())
                plain = getattr(optim, name)([q], **options)
                for q.grad in slopes:
                    plain.step()
                torch.testing.assert_close(p.detach(), q.detach())
                self.assertEqual((q.grad_fn, p.requires_grad, p.is_leaf), (None, True, False))
                states = {key: value.detach() for key, value in optimizer.state[p].items()}
                torch.testing.assert_close(states, dict(plain.state[q]))

    def test_gradients_of_parameters_gradients_and_lr(self):
        for name, _, options in reference_formulas():
            def end(start, a, b, lr):
                p, optimizer = self.stepped(name, options, start, (a, b), lr=lr)
                return (p, *(value for key, value in optimizer.state[p].items() if value.ndim))
            lr = torch.tensor(options.get("lr", 0.1), dtype=torch.float64, requires_grad=True)
            with self.subTest(name, **options):
                inputs = (self.numbers(1.0, -2.0), self.numbers(0.3, 0.4), self.numbers(0.5, -0.3), lr)
                self.assertTrue(torch.autograd.gradcheck(end, inputs, eps=1e-7, atol=1e-4, rtol=1e-3))

    def test_lr_gradient_through_several_steps(self):
        p, lr = self.numbers(4.0).clone(), torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        optimizer = SGD([p], lr=lr, differentiable=True)
        for _ in range(3):
            p.grad, = torch.autograd.grad((p.clone()**2).sum(), p, create_graph=True)  # p is modified
            optimizer.step()
        (p**2).sum().backward()  # 16 (1 - 2 lr)^6
        self.assertAlmostEqual(lr.grad.item(), -192 * 0.8**5)

    def test_failed_step_changes_nothing(self):
        p = self.numbers(1.0)
        p.grad = torch.ones_like(p)
        optimizer = ADAM([p], differentiable=True)
        with self.assertRaisesRegex(RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation"):
            optimizer.step()
        self.assertEqual((p.tolist(), len(optimizer.state)), ([1.0], 0))
        with self.assertRaisesRegex(ValueError, "can't optimize a non-leaf Tensor"):
            ADAM([p * 1])
        q = p * 1
        q.grad = torch.ones_like(q)
        optimizer = ADAM([q], differentiable=True)
        optimizer.param_groups[0]["lr"] = -1.0
        with self.assertRaisesRegex(ValueError, "Invalid learning rate: -1.0"):
            optimizer.step()

    @unittest.skipUnless(torch.cuda.is_available(), "requires a device")
    def test_device_steps_are_recorded_but_not_captured(self):
        for options in ({}, {"capturable": True}):
            p = torch.ones(2, device="cuda", requires_grad=True).clone()
            p.grad = torch.ones(2, device="cuda")
            optimizer = ADAM([p], lr=0.5, differentiable=True, **options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                optimizer.step()
                optimizer.step()
                step, before = optimizer.state[p]["step"], p.tolist()
                with self.assertRaisesRegex((NotImplementedError, RuntimeError), "captur"):
                    with torch.cuda.graph(torch.cuda.CUDAGraph()):
                        optimizer.step()
            self.assertEqual((step.item(), step.is_cuda, p.is_leaf), (2, bool(options), False))
            self.assertAlmostEqual(p[0].item(), 0, 5)
            self.assertEqual((p.tolist(), step.item()), (before, 2))

    def test_recorded_under_no_grad(self):
        p = self.numbers(1.0).clone()
        p.grad = torch.ones_like(p)
        with torch.no_grad():
            SGD([p], lr=0.5, differentiable=True).step()
        self.assertEqual((p.item(), p.grad_fn.name()), (0.5, "torch::autograd::CopyBackwards"))


class BaseClass(unittest.TestCase):
    """Optimizer as used by programs: subclassed, inspected and patched."""

    def test_subclass(self):
        class Signs(optim.Optimizer):
            def __init__(self, params, lr=0.5):
                super().__init__(params, {"lr": lr})

            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        self.state[p]["steps"] = self.state[p].get("steps", 0) + 1
                        p -= group["lr"] * p.grad.sign()

        p = nn.Parameter(torch.tensor([1.0, -1.0]))
        optimizer = Signs([p])
        schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for _ in range(2):
            p.grad = torch.tensor([2.0, -3.0])
            optimizer.step()
            schedule.step()
        self.assertEqual((p.tolist(), optimizer.state[p]["steps"]), ([0.25, -0.25], 2))
        other = Signs([p])
        other.load_state_dict(optimizer.state_dict())
        self.assertEqual((other.state[p]["steps"], other.param_groups[0]["lr"]), (2, 0.125))

    def test_subclass_using_private_helpers(self):
        from phlox.optim.optimizer import (Optimizer, ParamsT, _default_to_fused_or_foreach, _dispatch_sqrt, _get_value,
                                           _use_grad_for_differentiable, required)

        class Momentum(Optimizer):
            def __init__(self, params: ParamsT, lr=required, foreach=None):
                super().__init__(params, dict(lr=lr, foreach=foreach))

            @_use_grad_for_differentiable
            def step(self, closure=None):
                for group in self.param_groups:
                    params = [p for p in group["params"] if p.grad is not None]
                    self.assert_kinds(params)
                    bufs = [self.state[p].setdefault("buf", torch.zeros_like(p)) for p in params]
                    torch._foreach_mul_(bufs, 0.5)
                    torch._foreach_add_(bufs, [p.grad for p in params])
                    torch._foreach_add_(params, bufs, alpha=-_get_value(torch.tensor(group["lr"])) * _dispatch_sqrt(4.0))

            def assert_kinds(self, params):
                if any(_default_to_fused_or_foreach(params, False, True)):
                    raise AssertionError
        p = nn.Parameter(torch.tensor([1.0]))
        with self.assertRaisesRegex(ValueError, "didn't specify a value of required optimization parameter lr"):
            Momentum([p])
        self.assertEqual(repr(required), "<required parameter>")
        optimizer = Momentum([{"params": [p], "lr": 0.25}])
        for _ in range(2):
            p.grad = torch.ones(1)
            optimizer.step()
        self.assertEqual(p.item(), 1 - 0.5 - 0.75)

    def test_user_modified_state_is_used(self):
        for steps in (torch.tensor(7.0), torch.tensor(7), 7):
            p, q = (nn.Parameter(torch.ones(1)) for _ in range(2))
            optimizer, plain = ADAM([p], 0.1), ADAM([q], 0.1)
            for k in range(7):
                q.grad = torch.tensor([k - 2.0])
                plain.step()
            p.grad = torch.ones(1)
            optimizer.step()
            p.data = q.detach().clone()
            optimizer.state[p].update(plain.state[q], step=steps)
            q.grad = torch.ones(1)
            averages = copy.deepcopy(plain.state[q])
            optimizer.step()
            plain.state[q].update(averages)
            plain.step()
            self.assertEqual((p.item(), float(optimizer.state[p]["step"])), (q.item(), 8))

    def test_conflicting_options(self):
        p = nn.Parameter(torch.zeros(1))
        for options, error in (({"fused": True, "foreach": True}, "`fused` and `foreach` cannot be `True` together"),
                               ({"fused": True, "differentiable": True}, "`fused` does not support `differentiable`")):
            self.assertRaisesRegex(RuntimeError, error, optim.Adam, [p], **options)
            self.assertRaisesRegex(RuntimeError, error, optim.Adam, [{"params": [p], **options}])

    def test_hooks(self):
        p = nn.Parameter(torch.ones(1))
        optimizer, seen = SGD([p], lr=1.0), []
        handles = [optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before")),
                   optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after")),
                   optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1}),
                   optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append("load"))]
        optimizer.step()
        self.assertEqual(optimizer.state_dict()["more"], 1)
        optimizer.load_state_dict(optimizer.state_dict())
        self.assertEqual(seen, ["before", "after", "load"])
        for handle in handles:
            handle.remove()
        optimizer.step()
        self.assertEqual((len(seen), "more" in optimizer.state_dict()), (3, False))

    def test_step_keeps_function_attributes(self):
        import inspect
        p = nn.Parameter(torch.ones(1))
        optimizer = SGD([p], lr=0.1)
        for step in (SGD.step, optimizer.step):
            self.assertEqual((step.__name__, step.hooked, inspect.isroutine(step)), ("step", True, True))
            self.assertIn("Updates the parameters", step.__doc__)
        self.assertEqual(list(inspect.signature(optimizer.step).parameters), ["closure"])
        self.assertEqual([optimizer.step(closure=lambda: 3), SGD.step(optimizer, lambda: 4)], [3, 4])
        with self.assertRaisesRegex(TypeError, "missing 1 required positional argument: 'self'"):
            SGD.step()
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'closed'"):
            optimizer.step(closed=None)

    def test_global_hooks(self):
        from phlox.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
        p, seen = nn.Parameter(torch.ones(1)), []
        optimizer = SGD([p], lr=1.0)
        with register_optimizer_step_pre_hook(lambda *_: seen.append("all before")), \
             register_optimizer_step_post_hook(lambda *_: seen.append("all after")):
            optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
            optimizer.register_step_post_hook(lambda *_: seen.append("after"))
            optimizer.step()
            optim.Muon([nn.Parameter(torch.ones(1, 1))]).step()
        optimizer.step()
        self.assertEqual(seen, ["all before", "before", "after", "all after", "all before", "all after", "before", "after"])
        optimizer.register_step_pre_hook(lambda *_: 3)
        with self.assertRaisesRegex(RuntimeError, r"must return None or a tuple of \(new_args, new_kwargs\), but got 3\.$"):
            optimizer.step()

    def test_state_hooks_prepend(self):
        optimizer, seen = SGD([nn.Parameter(torch.ones(1))]), []
        for name in ("state_dict_pre", "state_dict_post", "load_state_dict_pre"):
            for n in range(3):
                getattr(optimizer, f"register_{name}_hook")(lambda *_, n=n, name=name: seen.append((name, n)), prepend=n == 2)
        optimizer.load_state_dict(optimizer.state_dict())
        self.assertEqual(seen, [(name, n) for name in ("state_dict_pre", "state_dict_post", "load_state_dict_pre") for n in (2, 0, 1)])

    def test_tensor_lr_is_kept(self):
        p, rate = nn.Parameter(torch.ones(1)), torch.tensor(0.5)
        optimizer = SGD([p], lr=rate)
        schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        p.grad = torch.ones(1)
        optimizer.step()
        schedule.step()
        self.assertIs(optimizer.param_groups[0]["lr"], rate)
        self.assertEqual((p.item(), rate.item(), schedule.get_last_lr()[0].item()), (0.5, 0.25, 0.25))
        schedule.get_last_lr()[0].fill_(9)
        self.assertEqual(rate.item(), 0.25)

    def test_argument_errors(self):
        p = nn.Parameter(torch.ones(1))
        with self.assertRaisesRegex(TypeError, "iterable of Tensors or dicts, but got torch.FloatTensor"):
            SGD(p.data)
        with self.assertRaisesRegex(TypeError, "ordered collections"):
            SGD([{"params": {p}}])
        optimizer = SGD([p], lr=1.0)
        p.grad = torch.ones(1)
        optimizer.param_groups[0]["lr"] = -1.0
        with self.assertRaisesRegex(ValueError, r"Invalid learning rate: -1\.0"):
            optimizer.step()
        del optimizer.param_groups[0]["lr"]
        with self.assertRaisesRegex(KeyError, "lr"):
            optimizer.step()
        self.assertEqual(p.item(), 1)

    def test_step_without_a_kind(self):
        optimizer = SGD([nn.Parameter(torch.ones(1))])
        for kind, error, text in ((None, TypeError, "must be str, not NoneType"), (b"SGD", TypeError, "must be str, not bytes"),
                                  ("SGD\0", ValueError, "embedded null character"), ("Sgd", KeyError, "Sgd")):
            optimizer._kind = kind
            with self.subTest(kind=kind), self.assertRaisesRegex(error, text):
                optimizer.step()
        with self.assertRaisesRegex(TypeError, "must be str, not NoneType"):
            optim.optimizer.KindOptimizer.__new__(optim.optimizer.KindOptimizer).step()


class RMSpropAndAdagrad(unittest.TestCase):
    def run_steps(self, make, steps=4):
        p = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        optimizer = make([p])
        for i in range(steps):
            p.grad = torch.tensor([0.5, -1.0, 0.25]) * (i + 1)
            optimizer.step()
        return p, optimizer

    def test_steps(self):
        for make, wanted in ((lambda p: optim.RMSprop(p), [0.6568438, -1.6568439, 2.6568439]),
                             (lambda p: optim.RMSprop(p, 0.1, 0.9, 1e-6, 0.1, 0.5, True), [-0.8767099, -0.118633, 1.1965677]),
                             (lambda p: optim.RMSprop(p, momentum=0.9, maximize=True), [1.8124719, -2.8124716, 3.8124716]),
                             (lambda p: optim.Adagrad(p), [0.965735, -1.965735, 2.965735]),
                             (lambda p: optim.Adagrad(p, 0.1, 0.5, 0.1, 0.2), [0.7980425, -1.7809817, 2.8116548]),
                             (lambda p: optim.Adagrad(p, maximize=True), [1.034265, -2.034265, 3.034265])):
            p, _ = self.run_steps(make)
            self.assertTrue(torch.allclose(p.detach(), torch.tensor(wanted), atol=1e-6), p)

    def test_options_and_states(self):
        for make, text in ((lambda p: optim.RMSprop(p, alpha=-1), "Invalid alpha value: -1.0"), (lambda p: optim.Adagrad(p, lr_decay=-1), "Invalid lr_decay value: -1.0"),
                           (lambda p: optim.Adagrad(p, initial_accumulator_value=-1), "Invalid initial_accumulator_value value: -1.0")):
            with self.assertRaisesRegex(ValueError, text):
                self.run_steps(make)
        p, optimizer = self.run_steps(lambda p: optim.RMSprop(p, momentum=0.5, centered=True))
        self.assertEqual(set(optimizer.state[p]), {"step", "square_avg", "momentum_buffer", "grad_avg"})
        p, optimizer = self.run_steps(optim.Adagrad)
        self.assertEqual(set(optimizer.state[p]), {"step", "sum"})

    def test_step_count_tensor(self):
        def run(change):
            p = torch.nn.Parameter(torch.ones(3))
            optimizer = optim.Adam([p], 0.1)
            for i in range(4):
                p.grad = torch.tensor([1., -2., .5]) * (i + 1)
                optimizer.step()
                if i == 1:
                    change(optimizer, p)
            return p.detach().tolist(), optimizer.state[p]["step"].item()

        def by_key(o, p):
            o.state[p]["step"] += 5

        plain, more = ([0.6116406917572021, 1.3883594274520874, 0.6116406917572021], 4), ([0.6483610272407532, 1.351638913154602, 0.6483610272407532], 9)
        held = []
        self.assertEqual(run(lambda o, p: held.append(o.state[p]["step"])), plain)
        self.assertEqual(held[0].item(), 4)
        for change in (by_key, lambda o, p: o.state[p]["step"].fill_(7), lambda o, p: o.state_dict()["state"][0]["step"].add_(5)):
            self.assertEqual(run(change), more)
        self.assertEqual(run(lambda o, p: (by_key(o, p), o.load_state_dict(o.state_dict()))), more)
        with self.assertRaisesRegex(ValueError, "expected step >= 0, but got -1"):
            run(lambda o, p: o.state[p]["step"].fill_(-1))

    def test_pickle_protocols(self):
        optimizer = ADAM([nn.Parameter(torch.ones(2))], lr=0.5)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(optimizer, protocol))
            self.assertEqual(again.param_groups[0]["lr"], 0.5)

    def test_state_lookup_is_independent_of_order(self):
        p, q = (nn.Parameter(torch.ones(2)) for _ in range(2))
        one, other = ADAM([p], lr=0.1), ADAM([q], lr=0.1)
        for _ in range(3):
            p.grad, q.grad = torch.ones(2), torch.ones(2)
            one.step(), other.step()
            reordered = dict(reversed(other.state[q].items()))
            other.state[q] = {"mine": 1, **reordered, "".join(["st", "ep"]): reordered["step"]}
        self.assertEqual(p.tolist(), q.tolist())
        self.assertEqual(other.state[q]["step"].item(), 3)

    def test_copies_and_pickles_continue_identically(self):
        for make in (lambda p: SGD(p, 0.1, momentum=0.9), lambda p: optim.Adam(p, 0.1, betas=(0.5, 0.9)), optim.RMSprop):
            p, optimizer = self.run_steps(make, 2)
            for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
                q = other.param_groups[0]["params"][0]
                self.assertIsNot(q, p)
                self.assertEqual((repr(other), q.tolist()), (repr(optimizer), p.tolist()))
                before = p.detach().clone()
                p.grad, q.grad = torch.ones(3), torch.ones(3)
                kept = copy.deepcopy(optimizer.state_dict())
                optimizer.step()
                other.step()
                self.assertEqual(q.tolist(), p.tolist())
                with torch.no_grad(): p.copy_(before)
                optimizer.load_state_dict(kept)


class Schedulers(unittest.TestCase):
    def setUp(self):
        warnings.filterwarnings("ignore", "Detected call of")
        self.addCleanup(warnings.resetwarnings)

    def lr_sequence(self, make):
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        schedule, rates = make(optimizer), []
        for _ in range(9):
            self.assertEqual(schedule.get_last_lr(), [optimizer.param_groups[0]["lr"]])
            rates += schedule.get_last_lr()
            optimizer.step()
            schedule.step()
        return rates

    def assert_close(self, rates, wanted):
        for a, b in zip(rates, wanted, strict=True):
            self.assertTrue(math.isclose(a, b, rel_tol=1e-14), (a, b))

    def test_step_lr(self):
        self.assert_close(self.lr_sequence(lambda o: optim.lr_scheduler.StepLR(o, 2, gamma=0.5)),
                  [0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125, 0.00625])

    def test_cosine_annealing(self):
        self.assert_close(self.lr_sequence(lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 4, eta_min=0.01)),
                  [0.1, 0.086819805153394644, 0.055, 0.023180194846605363, 0.01, 0.023180194846605363,
                   0.055000000000000021, 0.086819805153394686, 0.10000000000000006])

    def test_chained_and_closed_forms(self):
        rates = optim.lr_scheduler
        makes = [lambda o: rates.MultiStepLR(o, [5, 2, 5], gamma=0.3), lambda o: rates.ConstantLR(o, 0.5, 3), lambda o: rates.LinearLR(o, 0.2, 0.8, 4),
                 lambda o: rates.ExponentialLR(o, 0.9), lambda o: rates.PolynomialLR(o, 12, 2.0), lambda o: rates.OneCycleLR(o, 0.5, epochs=4, steps_per_epoch=3),
                 lambda o: rates.CosineAnnealingWarmRestarts(o, 3, 2, 0.001), lambda o: rates.LambdaLR(o, lambda epoch: 1 / (1 + epoch))]
        for make in makes:
            chained, closed = (SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9) for _ in range(2))
            a, b = make(chained), make(closed)
            for epoch in range(11):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    b.step(epoch)
                self.assert_close(a.get_last_lr(), b.get_last_lr())
                self.assertEqual((a.last_epoch, chained.param_groups[0]["momentum"]), (b.last_epoch, closed.param_groups[0]["momentum"]))
                a.step()

    def test_step_to_an_epoch_warns(self):
        schedule = optim.lr_scheduler.StepLR(SGD([nn.Parameter(torch.ones(1))], lr=0.1), 2)
        with self.assertWarnsRegex(UserWarning, "The epoch parameter in `scheduler.step()"):
            schedule.step(4)
        self.assert_close(schedule.get_last_lr(), [0.001])

    def test_multi_step_with_many_milestones(self):
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        schedule = optim.lr_scheduler.MultiStepLR(optimizer, list(range(1, 301)), 0.5)
        optimizer.step()
        for _ in range(3):
            schedule.step()
        self.assertEqual(schedule.get_last_lr(), [0.125])

    def test_sequential_and_chained(self):
        rates = optim.lr_scheduler
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        parts = [rates.ConstantLR(optimizer, 0.5, 9), rates.ExponentialLR(optimizer, 0.9), rates.StepLR(optimizer, 2, 0.5)]
        schedule, seen = rates.SequentialLR(optimizer, parts, [2, 5]), []
        for _ in range(9):
            seen += schedule.get_last_lr()
            schedule.step()
        self.assert_close(seen, [0.05, 0.05, 0.1, 0.09000000000000001, 0.08100000000000002, 0.1, 0.1, 0.05, 0.05])
        state = copy.deepcopy(schedule.state_dict())
        schedule.step()
        schedule.load_state_dict(state)
        self.assertEqual((schedule.last_epoch, parts[2].last_epoch), (9, 4))
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        chained = rates.ChainedScheduler([rates.ConstantLR(optimizer, 0.5, 2), rates.ExponentialLR(optimizer, 0.9)])
        seen = []
        for _ in range(4):
            seen += chained.get_last_lr()
            chained.step()
        self.assert_close(seen, [0.05, 0.045000000000000005, 0.08100000000000002, 0.07290000000000002])
        other = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        with self.assertRaisesRegex(ValueError, "expects all schedulers to belong to the same optimizer"):
            rates.SequentialLR(other, parts, [2, 5])
        with self.assertRaisesRegex(ValueError, "one more than the number of milestone points"):
            rates.SequentialLR(parts[0].optimizer, parts, [2])

    def test_one_cycle(self):
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.5)
        schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.5, 5)
        seen = []
        for _ in range(5):
            seen.append((round(schedule.get_last_lr()[0], 10), round(optimizer.param_groups[0]["momentum"], 10)))
            schedule.step()
        self.assertEqual(seen, [(0.02, 0.95), (0.475242316, 0.8549515566), (0.305631011, 0.8888739533), (0.094129173, 0.9311744901), (2e-06, 0.95)])
        with self.assertRaisesRegex(ValueError, "Tried to step 6 times. The specified number of total steps is 5"):
            schedule.step()

    def test_reduce_on_plateau(self):
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=1, factor=0.5, cooldown=1, min_lr=0.03)
        seen = []
        for metric in (1, 1, torch.tensor(1.0), 1, 1, 1, 2):
            schedule.step(metric)
            seen.append((optimizer.param_groups[0]["lr"], schedule.num_bad_epochs))
        self.assertEqual(seen, [(0.1, 0), (0.1, 1), (0.05, 0), (0.05, 0), (0.05, 1), (0.03, 0), (0.03, 0)])
        other = optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        other.load_state_dict(schedule.state_dict())
        self.assertEqual((other.best, other.mode, other.patience, other.last_epoch), (2.0, "max", 1, 7))
        with self.assertRaisesRegex(ValueError, "mode up is unknown!"):
            optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="up")

    def test_subclass(self):
        class Inverse(optim.lr_scheduler.LRScheduler):
            def __init__(self, optimizer, by, last_epoch=-1):
                self.by = by
                super().__init__(optimizer, last_epoch)

            def get_lr(self):
                return [base / (1 + self.by * self.last_epoch) for base in self.base_lrs]

        optimizer = SGD([{"params": nn.Parameter(torch.ones(1))}, {"params": nn.Parameter(torch.ones(1)), "lr": 1.0}], lr=0.5)
        schedule = Inverse(optimizer, 1)
        for _ in range(3):
            schedule.step()
        self.assert_close(schedule.get_last_lr(), [0.125, 0.25])
        self.assertEqual([group["initial_lr"] for group in optimizer.param_groups], [0.5, 1.0])
        self.assertEqual(schedule.state_dict()["by"], 1)
        schedule.get_lr = None
        with self.assertRaises(TypeError):
            schedule.step()
        self.assertEqual(schedule.last_epoch, 3)

    def test_lambda_schedules(self):
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.5)
        schedule = optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        schedule.step()
        self.assert_close(schedule.get_last_lr(), [0.25])
        with self.assertRaisesRegex(ValueError, "Expected 1 lr_lambdas, but got 2"):
            optim.lr_scheduler.LambdaLR(optimizer, [abs, abs])
        with self.assertRaises(ZeroDivisionError):
            optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / epoch)

    def test_last_epoch(self):
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        with self.assertRaisesRegex(KeyError, "param 'initial_lr' is not specified in param_groups"):
            optim.lr_scheduler.StepLR(optimizer, 2, last_epoch=3)
        optimizer.param_groups[0]["initial_lr"] = 0.4
        schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5, last_epoch=3)
        self.assertEqual((schedule.last_epoch, schedule.base_lrs, optimizer.param_groups[0]["lr"]), (4, [0.4], 0.05))

    def test_options_are_attributes(self):
        schedule = optim.lr_scheduler.StepLR(SGD([nn.Parameter(torch.ones(1))], lr=1.0), 1)
        schedule.gamma = 0.5
        schedule.step()
        self.assertEqual((schedule.step_size, schedule.get_last_lr(), isinstance(schedule, optim.lr_scheduler.LRScheduler)), (1, [0.5], True))

    def test_state_dict_of_every_scheduler(self):
        rates = optim.lr_scheduler
        for make in (lambda o: rates.ConstantLR(o, 0.5, 3), lambda o: rates.LinearLR(o, 0.2, 0.8, 4), lambda o: rates.ExponentialLR(o, 0.9),
                     lambda o: rates.MultiStepLR(o, [2, 5]), lambda o: rates.CosineAnnealingLR(o, 7), lambda o: rates.PolynomialLR(o, 5)):
            first, second = (make(SGD([nn.Parameter(torch.ones(1))], lr=0.1)) for _ in range(2))
            for _ in range(2):
                first.optimizer.step()
                first.step()
            second.load_state_dict(first.state_dict())
            self.assertEqual(second.get_last_lr(), first.get_last_lr())
            second.optimizer.load_state_dict(first.optimizer.state_dict())
            for schedule in (first, second):
                schedule.optimizer.step()
                schedule.step()
            self.assertEqual(second.get_last_lr(), first.get_last_lr())

    def test_state_dict(self):
        optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        schedule = optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        for _ in range(3):
            optimizer.step()
            schedule.step()
        other = optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        state = schedule.state_dict()
        self.assertEqual(state, {"step_size": 2, "gamma": 0.5, "base_lrs": [0.1], "last_epoch": 3, "_step_count": 4, "_is_initial": False, "_get_lr_called_within_step": False,
                                 "_last_lr": [0.05]})
        other.load_state_dict(state)
        self.assertEqual(other.last_epoch, 3)


class PythonOptimizers(unittest.TestCase):
    """Optimizers implemented as Python loops; test_optim_beside_torch.py checks their numbers."""

    def rosenbrock(self, device="cpu", **options):
        p = torch.tensor([-1.2, 1.0], dtype=torch.float64, device=device, requires_grad=True)
        optimizer, calls = optim.LBFGS([p], **options), []

        def closure():
            optimizer.zero_grad()
            calls.append(0)
            loss = 100 * (p[1] - p[0]**2)**2 + (1 - p[0])**2
            loss.backward()
            return loss
        return p, optimizer, closure, calls

    def test_lbfgs_minimizes_rosenbrock(self):
        for device in ("cpu", "cuda")[:1 + torch.cuda.is_available()]:
            p, optimizer, closure, calls = self.rosenbrock(device, line_search_fn="strong_wolfe", max_iter=100, tolerance_change=1e-15)
            self.assertAlmostEqual(optimizer.step(closure).item(), 24.2)  # the initial loss
            for number in p.tolist():
                self.assertAlmostEqual(number, 1, 6)
            self.assertEqual(optimizer.state[p]["func_evals"], len(calls))
            before = len(calls)
            optimizer.step(closure)
            self.assertEqual(len(calls), before + 1)  # already converged

    def test_lbfgs_resumes_from_state(self):
        p, optimizer, closure, _ = self.rosenbrock(lr=0.01, max_iter=3)
        optimizer.step(closure)
        q, other, closure_of_other, _ = self.rosenbrock(lr=0.01, max_iter=3)
        with torch.no_grad():
            q.copy_(p)
        other.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
        for optimizer, closure in ((optimizer, closure), (other, closure_of_other)):
            optimizer.step(closure)
        self.assertEqual(q.tolist(), p.tolist())

    def test_lbfgs_limits(self):
        p, optimizer, closure, calls = self.rosenbrock(max_iter=50, max_eval=7, history_size=2, line_search_fn="strong_wolfe")
        optimizer.step(closure)
        self.assertEqual((len(calls), len(optimizer.state[p]["old_dirs"])), (7, 2))
        p, optimizer, closure, calls = self.rosenbrock(max_iter=0)
        optimizer.step(closure)
        self.assertEqual((len(calls), p.tolist()), (1, [-1.2, 1.0]))

    def test_argument_errors(self):
        p = torch.ones(2, requires_grad=True)
        p.grad = torch.ones(2)
        for make, kind, text in ((lambda: optim.LBFGS([{"params": [p]}, {"params": [torch.ones(1)]}]), ValueError, "parameter groups"),
                                 (lambda: optim.LBFGS([p], line_search_fn="x").step(lambda: p.sum()), RuntimeError, "only 'strong_wolfe'"),
                                 (lambda: optim.Muon([p]), ValueError, r"only supports 2D parameters .* size: torch\.Size\(\[2\]\)"),
                                 (lambda: optim.Muon([torch.ones(1, 1)], adjust_lr_fn="x"), ValueError, "function x is not supported"),
                                 (lambda: optim.Adafactor([p], d=0.5), ValueError, "d should be >= 1 but is: 0.5"),
                                 (lambda: optim.SparseAdam([p]).step(), RuntimeError, "does not support dense gradients")):
            self.assertRaisesRegex(kind, text, make)
        self.assertEqual(p.tolist(), [1, 1])

    def test_adafactor_state_is_factored(self):
        w, b = torch.ones(2, 3, 4, requires_grad=True), torch.ones(5, requires_grad=True)
        optimizer = optim.Adafactor([w, b])
        (w.sum() + b.sum()).backward()
        optimizer.step()
        self.assertEqual({key: tuple(value.shape) for key, value in optimizer.state[w].items()},
                         {"step": (), "row_var": (2, 3, 1), "col_var": (2, 1, 4)})
        self.assertEqual(list(optimizer.state[b]), ["step", "variance"])
        self.assertAlmostEqual(b[0].item(), 0.99)  # a relative step of 0.01

    def test_muon_step_is_orthogonal(self):
        w = torch.eye(3, 2).mul_(5).requires_grad_()
        optimizer = optim.Muon([w], lr=0.1, weight_decay=0)
        (w * torch.tensor([[100.0, 0], [0, 1], [0, 0]])).sum().backward()
        before = w.tolist()
        optimizer.step()
        moved = [before[i][i] - w[i, i].item() for i in range(2)]
        self.assertTrue(all(0.05 < step < 0.2 for step in moved), moved)


class MoreSchedulers(unittest.TestCase):
    def test_cyclic_lr(self):
        optimizer = SGD([{"params": [torch.ones(1)]}, {"params": [torch.ones(1)]}], momentum=0.5)
        schedule = optim.lr_scheduler.CyclicLR(optimizer, [0.0, 0.25], 0.5, 2, 4, base_momentum=0.5, max_momentum=[0.75, 1.0])
        seen = []
        for _ in range(7):
            seen.append([group[key] for group in optimizer.param_groups for key in ("lr", "momentum")])
            optimizer.step()
            schedule.step()
        near = [[round(number, 9) for number in row] for row in seen]
        self.assertEqual(near[:4] + near[6:], [[0, 0.75, 0.25, 1], [0.25, 0.625, 0.375, 0.75], [0.5, 0.5, 0.5, 0.5],
                                              [0.375, 0.5625, 0.4375, 0.625], [0, 0.75, 0.25, 1]])
        for make, text in ((lambda: optim.lr_scheduler.CyclicLR(optimizer, 0, 1, mode="x"), "mode is invalid and scale_fn is None"),
                           (lambda: optim.lr_scheduler.CyclicLR(optimizer, [0], 1), "base_lr has 1 values, param_groups has 2"),
                           (lambda: optim.lr_scheduler.CyclicLR(optim.Rprop([torch.ones(1)]), 0, 1), "must support momentum or beta1")):
            self.assertRaisesRegex(ValueError, text, make)

    def test_scale_fn_object_is_saved(self):
        class Scale:
            height = 1.0

            def __call__(self, x):
                return self.height
        made = [optim.lr_scheduler.CyclicLR(SGD([torch.ones(1)]), 0.0, 1.0, 1, scale_fn=Scale(), cycle_momentum=False) for _ in range(2)]
        made[0].scale_fn.height = 0.5
        made[1].load_state_dict(pickle.loads(pickle.dumps(made[0].state_dict())))
        made[1].optimizer.step()
        made[1].step()
        self.assertEqual(made[1].get_last_lr(), [0.5])

    def test_plateau_min_lr_per_group(self):
        optimizer = SGD([{"params": [torch.ones(1)]}, {"params": [torch.ones(1)]}], lr=1.0)
        plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.25, patience=0, min_lr=[0.5, 0.125])
        for _ in range(4):
            plateau.step(1.0)
        self.assertEqual(plateau.get_last_lr(), [0.5, 0.125])
        optimizer.add_param_group({"params": [torch.ones(1)]})
        with self.assertRaisesRegex(RuntimeError, r"\(3\) differs from when `ReduceLROnPlateau` was initialized \(2\)"):
            plateau.step(2.0)
        with self.assertRaisesRegex(ValueError, "expected 3 min_lrs, got 1"):
            optim.lr_scheduler.ReduceLROnPlateau(optimizer, min_lr=[1])

    def test_averaged_model(self):
        swa = optim.swa_utils
        model = nn.Linear(2, 1)
        with self.assertRaisesRegex(AssertionError, "Only one of avg_fn and multi_avg_fn"):
            swa.AveragedModel(model, avg_fn=swa.get_swa_avg_fn(), multi_avg_fn=swa.get_swa_multi_avg_fn())
        with self.assertRaisesRegex(ValueError, "Invalid decay value 2 provided"):
            swa.get_ema_avg_fn(2)
        average = swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.75))
        for value in (4.0, 8.0):
            nn.init.constant_(model.weight, value)
            average.update_parameters(model)
        self.assertEqual(average.module.weight.tolist(), [[5, 5]])
        self.assertEqual(list(average.state_dict()), ["n_averaged", "module.weight", "module.bias"])
        for bad, text in ((dict(anneal_strategy="x"), "one of 'cos' or 'linear', instead got x"), (dict(anneal_epochs=-1), "greater than 0, got -1")):
            self.assertRaisesRegex(ValueError, text, swa.SWALR, SGD([torch.ones(1)]), 0.1, **bad)

    def test_failed_step_is_not_counted(self):
        class Failing(optim.lr_scheduler.LRScheduler):
            def get_lr(self):
                if self.last_epoch == 1:
                    raise ValueError("no rate")
                return [0.5]
        schedule = Failing(SGD([torch.ones(1)]))
        before = schedule.state_dict()
        schedule.optimizer.step()
        with self.assertRaisesRegex(ValueError, "no rate"):
            schedule.step()
        self.assertEqual(schedule.state_dict(), before)


class Vectors(unittest.TestCase):
    def test_parameters_to_vector(self):
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        vector = nn.utils.parameters_to_vector(model.parameters())
        self.assertEqual((vector.shape, vector.requires_grad), ((13,), True))
        nn.utils.vector_to_parameters(torch.arange(13.0), model.parameters())
        self.assertEqual((model[0].weight.tolist(), model[1].bias.tolist()), ([[0, 1], [2, 3], [4, 5]], [12]))
        self.assertEqual(nn.utils.parameters_to_vector(model.parameters()).tolist(), list(range(13)))
        with self.assertRaisesRegex(RuntimeError, "exceeds dimension size"):
            nn.utils.vector_to_parameters(torch.ones(3), model.parameters())
        with self.assertRaisesRegex(TypeError, "expected torch.Tensor, but got: list"):
            nn.utils.vector_to_parameters([1.0], model.parameters())
        with self.assertRaises(TypeError):
            nn.utils.parameters_to_vector([1])


class Clipping(unittest.TestCase):
    def test_norms(self):
        for kind, norm, wanted in ((2, 13, 3 / 13), (math.inf, 12, 3 / 12), (1, 19, 3 / 19)):
            a, b = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
            a.grad, b.grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])
            self.assertAlmostEqual(nn.utils.clip_grad_norm_([a, b], 1.0, norm_type=kind).item(), norm, 5)
            self.assertAlmostEqual(a.grad[0].item(), wanted, 6)

    def parameter_with_gradient(self, *grad):
        p = nn.Parameter(torch.zeros(len(grad)))
        p.grad = torch.tensor(grad)
        return p

    def test_get_total_norm_and_clip_grads_with_norm(self):
        p, q = self.parameter_with_gradient(3.0, 4.0), nn.Parameter(torch.zeros(1))  # q has no gradient
        total = nn.utils.get_total_norm(p.grad, "inf")
        self.assertEqual((total.item(), nn.utils.get_total_norm([]).item()), (4, 0))
        nn.utils.clip_grads_with_norm_([p, q], 1.0, total * 2)
        self.assertAlmostEqual(p.grad[0].item(), 3 / 8, 6)

    def test_clip_grad_value(self):
        p = self.parameter_with_gradient(3.0, -0.5, -7.0)
        nn.utils.clip_grad_value_((x for x in [p]), torch.tensor(1.0), foreach=True)
        self.assertEqual(p.grad.tolist(), [1, -0.5, -1])

    def test_error_if_nonfinite(self):
        p = self.parameter_with_gradient(3.0, math.inf)
        with self.assertRaisesRegex(RuntimeError, r"^The total norm of order 2\.0 for gradients from `parameters` is non-finite"):
            nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
        self.assertEqual(p.grad.tolist(), [3, math.inf])

    def test_clip_grad_warnings(self):
        from phlox.nn.utils.clip_grad import clip_grad_norm
        with self.assertWarnsRegex(UserWarning, "empty generator, no gradient clipping will occur"):
            nn.utils.clip_grad_norm_((x for x in ()), 1.0)
        with self.assertWarnsRegex(FutureWarning, "in favor of `torch.nn.utils.clip_grad_norm_`"):
            self.assertEqual(clip_grad_norm(self.parameter_with_gradient(3.0, 4.0), 1.0).item(), 5)


if __name__ == "__main__":
    unittest.main()
