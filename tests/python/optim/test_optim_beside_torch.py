# SPDX-License-Identifier: Apache-2.0
"""torch.optim compared with a recent PyTorch if one is installed: twenty steps of every optimizer and scheduler, signatures, repr, errors,
averaged weights, and states transferred between the libraries."""
import inspect
import unittest
import warnings

import phlox

try:
    import torch
    torch = torch if "maximize" in inspect.signature(torch.optim.LBFGS).parameters else None
except ImportError:
    torch = None

OPTIONS = {
    "SGD": [{}, dict(lr=0.1, momentum=0.9), dict(lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01),
            dict(lr=0.1, momentum=0.9, nesterov=True, maximize=True)],
    "Adam": [{}, dict(lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1, amsgrad=True),
             dict(maximize=True, weight_decay=0.1, decoupled_weight_decay=True)],
    "AdamW": [{}, dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, amsgrad=True, maximize=True)],
    "Adamax": [{}, dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, maximize=True)],
    "NAdam": [{}, dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, momentum_decay=0.01),
              dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)],
    "RAdam": [{}, dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1),
              dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)],
    "RMSprop": [{}, dict(lr=0.1, alpha=0.9, eps=1e-6, weight_decay=0.1, momentum=0.5, centered=True), dict(momentum=0.9, maximize=True)],
    "Rprop": [{}, dict(lr=0.1, etas=(0.4, 1.5), step_sizes=(0.01, 0.2), maximize=True)],
    "Adagrad": [{}, dict(lr=0.1, lr_decay=0.5, weight_decay=0.1, initial_accumulator_value=0.2, maximize=True)],
    "Adadelta": [{}, dict(lr=20.0, rho=0.5, eps=0.01, weight_decay=0.1, maximize=True)],
    "ASGD": [{}, dict(lr=0.1, lambd=0.01, alpha=0.5, t0=3, weight_decay=0.1, maximize=True)],
    "Adafactor": [{}, dict(lr=0.1, beta2_decay=-0.5, eps=(1e-6, 1e-2), d=2.0, weight_decay=0.1, maximize=True)],
    "Muon": [{}, dict(lr=0.02, momentum=0.5, nesterov=False, weight_decay=0.3, ns_steps=3, adjust_lr_fn="match_rms_adamw"),
             dict(adjust_lr_fn="spectral_unclamped")],
    "LBFGS": [dict(lr=0.1), dict(line_search_fn="strong_wolfe", max_iter=3), dict(lr=0.5, max_iter=4, history_size=2),
              dict(line_search_fn="strong_wolfe", max_iter=2, max_eval=4, history_size=1, maximize=True)],
}
BAD = [("SGD", dict(lr=-1.0)), ("Adafactor", dict(lr=-1.0)), ("Adafactor", dict(beta2_decay=1)), ("Adafactor", dict(eps=(-1, 0))),
       ("Adafactor", dict(eps=(None, -1))), ("Adafactor", dict(d=0.5)), ("Adafactor", dict(weight_decay=-1)), ("Muon", dict(lr=-1)),
       ("Muon", dict(momentum=-1)), ("Muon", dict(weight_decay=-1)), ("Muon", dict(adjust_lr_fn="x")), ("LBFGS", dict(lr=-1)),
       ("SparseAdam", dict(lr=0)), ("SparseAdam", dict(eps=0)), ("SparseAdam", dict(betas=(1, 0))), ("SparseAdam", dict(betas=(0, 1)))]
SCHEDULES = {
    "StepLR": [(3, 0.5)], "MultiStepLR": [([2, 5, 5], 0.3)], "ConstantLR": [(), (0.25, 4)], "LinearLR": [(), (0.25, 0.75, 6)],
    "ExponentialLR": [(0.9,)], "PolynomialLR": [(), (12, 2.0)], "CosineAnnealingLR": [(5,), (7, 0.01)],
    "CosineAnnealingWarmRestarts": [(3,), (3, 2, 0.01)], "LambdaLR": [(lambda epoch: 0.9**epoch,)],
    "MultiplicativeLR": [(lambda epoch: 0.95,)],
    "OneCycleLR": [(0.5, 25), ([0.5, 0.3], 25, None, None, 0.3, "linear", True, [0.8, 0.7], 0.95)],
    "CyclicLR": [(0.01, 0.1, 4), ([0.01, 0.02], [0.1, 0.3], 3, 5, "triangular2"), (0.01, 0.1, 4, None, "exp_range", 0.9),
                 (0.01, 0.1, 4, None, "x", 1.0, lambda x: 1 / (x + 1), "iterations", True, [0.7, 0.6], 0.9)],
}


def parameters(t, kind):
    ps = [t.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]], dtype=t.float64), t.tensor([0.1, -0.2], dtype=t.float64)]
    if kind == "Muon":
        ps = ps[:1]
    return [p.requires_grad_() for p in ps]


def steps(t, kind, options, count=20, optimizer=None, ps=None):
    """The parameters after each step."""
    ps = ps or parameters(t, kind)
    optimizer = optimizer or getattr(t.optim, kind)(ps, **options)
    x, sign, seen = t.tensor([[1.0, 2.0, -1.0], [0.3, -0.4, 0.5], [2.0, 0.0, 1.0]], dtype=t.float64), -1 if options.get("maximize") else 1, []

    def closure():
        optimizer.zero_grad()
        y = x @ ps[0].t() + (ps[1] if len(ps) > 1 else 0)
        loss = sign * (y**2 * 0.1 + (y - 1)**4 * 0.01).mean()
        loss.backward()
        return loss
    for _ in range(count):
        optimizer.step(closure)
        seen.append([number for p in ps for number in p.flatten().tolist()])
    return seen, optimizer, ps


def differentiable_step(t, kind, options):
    """Result of a differentiable step, and its gradients. One step only: PyTorch's next step modifies the tensors saved by the first."""
    p, slope = (t.tensor(x, dtype=t.float64, requires_grad=True) for x in ([1.0, -2.0], [0.3, 0.9]))
    q = p.clone()
    q.grad = slope * 0.5
    getattr(t.optim, kind)([q], differentiable=True, **options).step()
    (q**3).sum().backward()
    detached = kind == "SGD" and "momentum" in options  # PyTorch detaches the first momentum
    return q.tolist() + ([] if detached else p.grad.tolist() + slope.grad.tolist())


def as_numbers(state):
    if isinstance(state, dict):
        return {key: as_numbers(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [as_numbers(value) for value in state]
    return state.tolist() if hasattr(state, "tolist") else state


def transfer_state(state, to):
    """A state with the other library's tensors, as if loaded from a file."""
    if isinstance(state, dict):
        return {key: transfer_state(value, to) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(transfer_state(value, to) for value in state)
    if hasattr(state, "tolist"):
        return to.tensor(state.tolist(), dtype=getattr(to, str(state.dtype).split(".")[-1]))
    return state


@unittest.skipIf(torch is None, "requires PyTorch 2.15 or later")
class Optimizers(unittest.TestCase):
    def near(self, a, b, bound=1e-6):
        for one, other in zip(a, b):
            for x, y in zip(one, other):
                self.assertLessEqual(abs(x - y), bound * max(1, abs(x)))

    def test_signatures(self):
        for where, names in (("optim", [*OPTIONS, "SparseAdam"]), ("optim.lr_scheduler", [*SCHEDULES, "ReduceLROnPlateau", "SequentialLR"]),
                             ("optim.swa_utils", ["AveragedModel", "SWALR", "update_bn", "get_ema_avg_fn", "get_ema_multi_avg_fn"])):
            for name in names:
                with self.subTest(name):
                    mine, theirs = ([(p.name, p.default, p.kind) for p in inspect.signature(eval(f"t.{where}.{name}", {"t": t})).parameters.values()]
                                    for t in (phlox, torch))
                    self.assertEqual(mine, theirs)

    def test_twenty_steps_of_each(self):
        for kind, cases in OPTIONS.items():
            for options in cases:
                with self.subTest(kind, **options):
                    # Muon computes in bfloat16. LBFGS may diverge between implementations close to convergence.
                    bound, count = (2e-2, 20) if kind == "Muon" else (1e-5, 6) if kind == "LBFGS" else (1e-6, 20)
                    self.near(steps(torch, kind, options)[0][:count], steps(phlox, kind, options)[0][:count], bound)

    def test_gradients_of_differentiable_steps(self):
        for kind, cases in OPTIONS.items():
            for options in cases if hasattr(getattr(phlox.optim, kind)([phlox.ones(1, 1)]), "_kind") else ():
                with self.subTest(kind, **options):
                    self.near([differentiable_step(torch, kind, options)], [differentiable_step(phlox, kind, options)])

    def test_state_dicts_have_same_structure(self):
        for kind, cases in OPTIONS.items():
            for options in cases:
                with self.subTest(kind, **options):
                    mine, theirs = (steps(t, kind, options, 3)[1].state_dict() for t in (phlox, torch))
                    self.assertEqual(mine["param_groups"], theirs["param_groups"])
                    for key, state in theirs["state"].items():
                        state.pop("al", None)  # scratch of LBFGS
                        self.assertEqual(set(mine["state"][key]), set(state))
                    self.assertEqual(repr(steps(phlox, kind, options, 1)[1]), repr(steps(torch, kind, options, 1)[1]))

    def test_states_transfer_between_libraries(self):
        for kind, cases in OPTIONS.items():
            for options in cases:
                for here, there in ((phlox, torch), (torch, phlox)):
                    with self.subTest(kind, to=there.__name__, **options):
                        _, optimizer, ps = steps(here, kind, options, 3)
                        wanted = steps(here, kind, options, 3, optimizer, ps)[0]
                        _, optimizer, ps = steps(here, kind, options, 3)
                        others = [there.tensor(p.tolist(), dtype=there.float64, requires_grad=True) for p in ps]
                        other = getattr(there.optim, kind)(others, **options)
                        other.load_state_dict(transfer_state(optimizer.state_dict(), there))
                        self.near(wanted, steps(there, kind, options, 3, other, others)[0], 2e-2 if kind == "Muon" else 1e-5)

    def test_option_errors(self):
        for kind, options in BAD:
            with self.subTest(kind, **options):
                messages = []
                for t in (phlox, torch):
                    with self.assertRaises(ValueError) as caught:
                        getattr(t.optim, kind)([t.ones(2, 2, requires_grad=True)], **options)
                    messages.append(str(caught.exception))
                self.assertEqual(*messages)
        for make in (lambda t, p: t.optim.Muon([p[0]]), lambda t, p: t.optim.LBFGS([{"params": [p]}, {"params": [p.clone().detach()]}]),
                     lambda t, p: t.optim.SparseAdam([p]).step(), lambda t, p: t.optim.LBFGS([p], line_search_fn="x").step(lambda: (p * p).sum())):
            messages = []
            for t in (phlox, torch):
                p = t.ones(2, requires_grad=True)
                p.grad = t.ones(2)
                with self.assertRaises((ValueError, RuntimeError)) as caught:
                    make(t, p)
                messages.append((type(caught.exception), str(caught.exception)))
            self.assertEqual(*messages)

    def test_adamw_is_subclass_of_adam(self):
        self.assertTrue(issubclass(phlox.optim.AdamW, phlox.optim.Adam) and issubclass(torch.optim.AdamW, torch.optim.Adam))


def two_groups(t):
    return t.optim.SGD([{"params": [t.ones(2, requires_grad=True)]}, {"params": [t.ones(1, requires_grad=True)], "lr": 0.05}],
                       lr=0.1, momentum=0.9)


def rates(t, make, count=20, start=None):
    """The learning rate and momentum of each epoch; `start` is the state of an optimizer and a scheduler to resume from."""
    optimizer = two_groups(t)
    schedule, seen = make(t, optimizer), []
    if start:
        optimizer.load_state_dict(start[0]), schedule.load_state_dict(start[1])
    for epoch in range(count):
        seen.append([group[key] for group in optimizer.param_groups for key in ("lr", "momentum")])
        optimizer.step()
        schedule.step(*([[3, 2, 2.5][epoch % 3]] if "Plateau" in type(schedule).__name__ else []))
    return seen, (optimizer.state_dict(), schedule.state_dict())


def makers():
    for name, cases in SCHEDULES.items():
        for case in cases:
            yield name, lambda t, o, name=name, case=case: getattr(t.optim.lr_scheduler, name)(o, *case)
    yield "ReduceLROnPlateau", lambda t, o: t.optim.lr_scheduler.ReduceLROnPlateau(o, "max", 0.5, 1, 0.1, "abs", 1, [0.01, 0.02])
    for case in ((0.3, 10, "cos"), ([0.3, 0.2], 4, "linear"), (0.3, 0)):
        yield "SWALR", lambda t, o, case=case: t.optim.swa_utils.SWALR(o, *case)


@unittest.skipIf(torch is None, "requires PyTorch 2.15 or later")
class Schedules(unittest.TestCase):
    near = Optimizers.near

    def setUp(self):
        warnings.simplefilter("ignore")
        self.addCleanup(warnings.resetwarnings)

    def test_twenty_epochs_of_each(self):
        for name, make in makers():
            with self.subTest(name):
                mine, theirs = rates(phlox, make), rates(torch, make)
                self.near(mine[0], theirs[0], 1e-12)
                self.assertEqual(mine[1][0]["param_groups"][1].keys(), theirs[1][0]["param_groups"][1].keys())

    def test_states_transfer_between_libraries(self):
        for name, make in makers():
            for here, there in ((phlox, torch), (torch, phlox)):
                with self.subTest(name, to=there.__name__):
                    wanted = rates(here, make, 15)[0][7:]
                    _, (optimizer, schedule) = rates(here, make, 7)
                    self.near(wanted, rates(there, make, 8, (transfer_state(optimizer, there), schedule))[0], 1e-12)


@unittest.skipIf(torch is None, "requires PyTorch 2.15 or later")
class AveragedModels(unittest.TestCase):
    def averaged(self, t, options):
        t.manual_seed(0)
        model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4))
        average = t.optim.swa_utils.AveragedModel(model, **{key: make(t) for key, make in options.items()})
        optimizer, xs = t.optim.SGD(model.parameters(), lr=0.01), [t.linspace(-1, k + 1, 15).view(5, 3) for k in range(4)]
        for x in xs:
            optimizer.zero_grad()
            (model(x)**2).mean().backward()
            optimizer.step()
            average.update_parameters(model)
        before = as_numbers(average.state_dict())
        t.optim.swa_utils.update_bn([(x, 0) for x in xs], average)
        return before, as_numbers(average.state_dict()), average.training

    def test_averaged_weights_and_buffers(self):
        for options in ({}, dict(use_buffers=lambda t: True), dict(avg_fn=lambda t: t.optim.swa_utils.get_ema_avg_fn(0.5)),
                        dict(multi_avg_fn=lambda t: t.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=lambda t: True),
                        dict(multi_avg_fn=lambda t: t.optim.swa_utils.get_swa_multi_avg_fn(), device=lambda t: "cpu")):
            with self.subTest(**{key: True for key in options}):
                mine, theirs = self.averaged(phlox, options), self.averaged(torch, options)
                self.assertEqual(mine[2], theirs[2])
                for a, b in zip(mine[:2], theirs[:2]):
                    self.assertEqual(list(a), list(b))
                    for key in a:
                        self.assertTrue(phlox.allclose(phlox.tensor(a[key]).double(), phlox.tensor(b[key]).double(), 1e-4, 1e-6), key)


if __name__ == "__main__":
    unittest.main()
