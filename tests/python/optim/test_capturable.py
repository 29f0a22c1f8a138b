# SPDX-License-Identifier: Apache-2.0
"""Optimizers that count steps on the device, so that they can be captured in a graph. Requires a device."""
import inspect
import unittest
import warnings

import phlox as torch
from phlox import nn, optim

KINDS = [("Adam", {}), ("Adam", dict(amsgrad=True, weight_decay=0.1)), ("AdamW", {}), ("NAdam", {}), ("RAdam", {}), ("Adamax", {}),
         ("Adadelta", {}), ("RMSprop", dict(momentum=0.9, centered=True)), ("Rprop", {}), ("ASGD", dict(t0=2))]


def make(kind, count=4, device="cuda", **options):
    torch.manual_seed(0)
    parameters = [torch.randn(3, n + 1).to(device).requires_grad_() for n in range(count)]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    return parameters, getattr(torch.optim, kind)(parameters, **options)


def set_gradients(parameters, seed):
    torch.manual_seed(seed)
    for p in parameters:
        p.grad.copy_(torch.randn(p.shape))


def capture(function):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


@unittest.skipUnless(torch.cuda.is_available(), "requires a device")
class Capturable(unittest.TestCase):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def test_replays_match_eager_steps_exactly(self):
        for kind, options in KINDS:
            (plain, host), (eager, steps), (held, replayed) = (make(kind, **options, capturable=c) for c in (False, True, True))
            graph = None
            for seed in range(6):
                for parameters, optimizer in ((plain, host), (eager, steps)):
                    set_gradients(parameters, seed)
                    optimizer.step()
                set_gradients(held, seed)
                graph = graph or (capture(replayed.step) if seed == 2 else None)
                graph.replay() if graph else replayed.step()
            for p, q, r in zip(plain, eager, held):
                self.assertTrue(torch.equal(q, r) and torch.allclose(p, q, rtol=1e-5, atol=1e-7), kind)
                for name, value in replayed.state[r].items():
                    self.assertTrue(torch.equal(value, steps.state[q][name]) and value.is_cuda, (kind, name))
                self.assertEqual((replayed.state[r]["step"].item(), replayed.state[r]["step"].dtype), (6, torch.float32))

    def test_scheduled_tensor_lr_applies_to_replays(self):
        for kind, options in (("Adam", dict(capturable=True)), ("SGD", dict(momentum=0.9)), ("AdamW", dict(fused=True, capturable=True)),
                              ("Adagrad", dict(fused=True)), ("ASGD", dict(capturable=True))):
            rate = torch.tensor(0.1, device="cuda")
            (held, replayed), (plain, host) = make(kind, lr=rate, **options), make(kind, lr=0.1, **{"momentum": 0.9} if kind == "SGD" else {})
            schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (replayed, host)]
            set_gradients(held, 1), set_gradients(plain, 1)
            replayed.step(), host.step()
            graph = capture(replayed.step)
            for _ in range(3):
                for schedule in schedules:
                    schedule.step()
                graph.replay(), host.step()
            self.assertIs(replayed.param_groups[0]["lr"], rate)
            self.assertAlmostEqual(rate.item(), 0.0125)
            self.assertTrue(all(torch.allclose(p, q, rtol=1e-5, atol=1e-7) for p, q in zip(held, plain)), kind)

    def test_invalid_tensor_lr(self):
        with self.assertRaisesRegex(ValueError, "Tensor lr must be 1-element"):
            make("Adam", lr=torch.ones(2))
        with self.assertRaisesRegex(ValueError, "not supported for capturable=False and foreach=True"):
            make("Adam", lr=torch.tensor(0.1), foreach=True)
        with self.assertRaisesRegex(ValueError, "Invalid learning rate"):
            make("Adam", lr=torch.tensor(-0.1, device="cuda"))

    def test_capturable_state_must_be_on_device(self):
        devices = "must be on supported devices: ['cuda', 'xpu', 'hpu', 'privateuseone', 'xla']."
        for kind, names in (("Adam", "params and state_steps"), ("NAdam", "params, mu_products and state_steps"),
                            ("ASGD", "params, mus, etas, and state_steps")):
            _, optimizer = make(kind, device="cpu", capturable=True)
            with self.assertRaises(AssertionError) as raised:
                optimizer.step()
            self.assertEqual((str(raised.exception), dict(optimizer.state)), (f"If capturable=True, {names} {devices}", {}))
        _, optimizer = make("Adam")
        optimizer.step()
        optimizer.param_groups[0]["capturable"] = True
        with self.assertRaisesRegex(AssertionError, "params and state_steps"):
            optimizer.step()

    def test_host_step_counts_cannot_be_captured(self):
        for kind, options, error in (("Adam", {}, RuntimeError), ("RMSprop", {}, RuntimeError), ("Adam", dict(fused=True), RuntimeError),
                                     ("Adagrad", {}, NotImplementedError), ("SGD", {}, None), ("Adagrad", dict(fused=True), None)):
            parameters, optimizer = make(kind, **options)
            set_gradients(parameters, 1)
            optimizer.step()
            before = [p.tolist() for p in parameters], [s.get("step", torch.zeros(1)).item() for s in optimizer.state.values()]
            try:
                capture(optimizer.step)
            except (RuntimeError, NotImplementedError) as raised:
                text = (f"Attempting CUDA graph capture of step() for an instance of {kind} but param_groups' capturable is False."
                        if error is RuntimeError else "Adagrad.step() cannot be captured in a graph")
                self.assertIn(text, str(raised))
                self.assertIs(type(raised), error)
            else:
                self.assertIsNone(error)
            self.assertEqual(before, ([p.tolist() for p in parameters],
                                      [s.get("step", torch.zeros(1)).item() for s in optimizer.state.values()]))

    def test_step_count_is_loaded_to_device(self):
        for flags in (dict(capturable=True), dict(fused=True)):
            _, optimizer = make("Adam", **flags)
            optimizer.step()
            saved = optimizer.state_dict()
            self.assertTrue(saved["state"][0]["step"].is_cuda)
            (p, *_), other = make("Adam")
            other.load_state_dict(torch.load(self.file(saved), map_location="cpu"))
            other.step()
            self.assertEqual((other.state[p]["step"].item(), other.state[p]["step"].device.type), (2, "cuda"))
            _, host = make("Adam")
            host.step()
            saved = host.state_dict()
            saved["param_groups"][0].update(flags)
            other.load_state_dict(saved)
            self.assertTrue(other.state[p]["step"].is_cuda)

    def test_counters_saved_as_numbers_become_tensors(self):
        kinds = [kind for kind in vars(optim).values() if isinstance(kind, type) and issubclass(kind, optim.Optimizer) and kind._numbers]
        self.assertEqual(len(kinds), 11)
        for kind in kinds:
            for flags in ({}, {"capturable": True}, {"fused": True}):
                if not set(flags) <= set(inspect.signature(kind).parameters):
                    continue
                with self.subTest(kind=kind.__name__, **flags):
                    p = nn.Parameter(torch.ones(2, 2, device="cuda"))
                    p.grad = torch.ones_like(p)
                    first, second = kind([p], **flags), kind([p], **flags)
                    first.step()
                    saved = first.state_dict()
                    wanted = {name: saved["state"][0][name] for name in kind._numbers}
                    saved["state"][0].update({name: value.item() for name, value in wanted.items()}, step=1)
                    second.load_state_dict(saved)
                    found = second.state[p]
                    self.assertEqual({name: (found[name].dtype, found[name].device, found[name].item()) for name in wanted},
                                     {name: (value.dtype, value.device, value.item()) for name, value in wanted.items()})
                    second.step()
                    self.assertEqual(found["step"].item(), 2)

    def test_counters_have_the_default_dtype_unless_fused(self):
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        for flags, dtype in (({}, torch.float64), ({"capturable": True}, torch.float64), ({"fused": True}, torch.float32)):
            (p, *_), optimizer = make("Adam", **flags)
            optimizer.step()
            saved = optimizer.state_dict()
            saved["state"][0]["step"] = 1
            optimizer.load_state_dict(saved)
            self.assertEqual(optimizer.state[p]["step"].dtype, dtype)

    @staticmethod
    def file(value):
        import io
        file = io.BytesIO()
        torch.save(value, file)
        file.seek(0)
        return file

    def test_missing_capture_warns_once(self):
        _, optimizer = make("Adam", capturable=True)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            optimizer.step(), optimizer.step()
        self.assertEqual(len(seen), 1)
        self.assertIn("but step() is running without CUDA graph capture", str(seen[0].message))
        optimizer._cuda_graph_capture_health_check()  # called by user-defined optimizers


@unittest.skipUnless(torch.cuda.is_available(), "requires a device")
class TrainingLoops(unittest.TestCase):
    def losses(self, graphed, kind, options, bad, unscaled):
        torch.manual_seed(3)
        m = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
        optimizer = getattr(torch.optim, kind)(m.parameters(), lr=torch.tensor(0.05, device="cuda"), **options)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0 ** 12, growth_interval=3)
        x, y, seen = torch.zeros(6, 8, device="cuda"), torch.zeros(6, dtype=torch.long, device="cuda"), []

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.float16, cache_enabled=False):
                self.loss = nn.functional.cross_entropy(m(x), y)
            scaler.scale(self.loss).backward()
            if unscaled:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

        graph, data = None, torch.randn(8, 6, 8)
        data[bad, 0, 0] = float("inf")
        for i, rows in enumerate(data):
            x.copy_(rows)
            graph = graph or (capture(step) if graphed and i == 3 else None)
            graph.replay() if graph else step()
            schedule.step()
            seen.append((str(self.loss.item()), scaler.get_scale()))
        return seen, [p.tolist() for p in m.parameters()], [s["step"].item() for s in optimizer.state.values() if "step" in s]

    def test_captured_loop_with_scaler_clipping_and_schedule(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kind, options in (("Adam", dict(fused=True, capturable=True)), ("SGD", dict(fused=True, momentum=0.9)),
                                  ("Adagrad", dict(fused=True))):
                for unscaled in (True, False):
                    eager, replayed = (self.losses(g, kind, options, 5, unscaled) for g in (False, True))
                    self.assertEqual(eager, replayed)
                    self.assertEqual(eager[2], [7.0] * len(eager[2]))  # the step with the inf gradient was skipped
                    self.assertIn("nan", eager[0][5][0])
                    self.assertEqual(eager[0][5][1], eager[0][4][1] / 2)


if __name__ == "__main__":
    unittest.main()
