# SPDX-License-Identifier: Apache-2.0
"""Steps of complex parameters, on the CPU and on devices, beside the recorded values of PyTorch 2.15 (complex_steps.py)."""
import os
import unittest

import complex_steps
import phlox as torch

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def conjugate(t):
    return t.conj_physical().conj()


def negative(t):
    made = -t
    torch._utils.set_tensor_metadata(made, {"neg": True})
    return made


@unittest.skipUnless(os.path.exists(complex_steps.SAMPLES), "there are no samples")
class Steps(unittest.TestCase):
    def assertNear(self, made, expected, about):
        self.assertGreaterEqual(len(made), len(expected), about)
        for a, b in zip(made, expected):
            same = a == b if isinstance(a, str) else abs(a - float(b)) < 5e-6 * max(1, abs(a))  # PyTorch counts recorded steps in float32
            self.assertTrue(same, (about, a, b, made, expected))

    def test_steps_match_pytorch(self):
        with open(complex_steps.TABLE) as table: lines = [line.split() for line in table]
        found = list(complex_steps.cases(torch))
        self.assertEqual([" ".join(line[:3]) for line in lines], [name for name, _ in found])
        for line, (name, values) in zip(lines, found): self.assertNear(values, line[3:], name)

    def final(self, name, options, p):
        p = torch.nn.Parameter(p)
        optimiser = getattr(torch.optim, name)([p], **options)
        for step in range(complex_steps.STEPS):
            p.grad = complex_steps.gradient(torch, p.cpu(), step).resolve_conj().to(p.device)
            optimiser.step()
        states = [value for _, value in sorted(optimiser.state[p].items()) if isinstance(value, torch.Tensor)]
        return p, [x for t in (p, *states) for x in complex_steps.numbers(torch, t.cpu())]

    def test_devices_layouts_and_views_make_the_same_steps(self):
        for name, options in complex_steps.samples():
            _, expected = self.final(name, options, complex_steps.parameter(torch))
            for device in DEVICES:
                start = complex_steps.parameter(torch).to(device)
                for about, p in (("conj", conjugate(start)), ("neg", negative(start)), ("both", negative(conjugate(start).resolve_conj().conj_physical()).conj()),
                                 ("strided", start.t().contiguous().t()), ("gaps", torch.stack([start, start], -1)[..., 0]), ("device", start)):
                    stepped, made = self.final(name, options, p)
                    self.assertEqual((stepped.is_conj(), stepped.is_neg()), (p.is_conj(), p.is_neg()))
                    self.assertNear(made, expected, (name, options, device, about))

    def test_conjugate_and_negative_gradients_and_states(self):
        for name, options in complex_steps.samples():
            results = []
            for change in (lambda t: t.clone(), conjugate, negative):
                p = torch.nn.Parameter(complex_steps.parameter(torch))
                optimiser = getattr(torch.optim, name)([p], **options)
                for step in range(3):
                    p.grad = change(complex_steps.gradient(torch, p, step).resolve_conj())
                    optimiser.step()
                    for key, value in optimiser.state[p].items():
                        if value.is_complex(): optimiser.state[p][key] = change(value.resolve_conj().resolve_neg())
                results.append(complex_steps.numbers(torch, p))
            for made in results[1:]: self.assertNear(made, results[0], (name, options))

    def test_real_negative_views_are_updated(self):
        for name, options in complex_steps.samples():
            results = []
            for change in (lambda t: t.clone(), negative):
                p = torch.nn.Parameter(change(complex_steps.parameter(torch).real))
                optimiser = getattr(torch.optim, name)([p], **options)
                for step in range(3):
                    p.grad = change(p.detach().resolve_neg() * 0.5 + step - 1)
                    optimiser.step()
                results.append(p.tolist())
            self.assertEqual(results[1], results[0], (name, options))

    def test_states_survive_a_round_trip(self):
        for name, options in complex_steps.samples():
            p, q = (torch.nn.Parameter(complex_steps.parameter(torch)) for _ in range(2))
            one, other = (getattr(torch.optim, name)([t], **options) for t in (p, q))
            complex_steps.take_steps(torch, one, p)
            with torch.no_grad(): q.copy_(p)
            other.load_state_dict(one.state_dict())
            for t, optimiser in ((p, one), (q, other)): complex_steps.take_steps(torch, optimiser, t)
            self.assertEqual(p.tolist(), q.tolist(), name)

    @unittest.skipUnless(torch.cuda.is_available(), "requires a device")
    def test_captured_steps_update_complex_parameters(self):
        for name in ("Adam", "AdamW", "NAdam", "RMSprop", "Rprop", "Adadelta", "ASGD", "Adamax", "RAdam"):
            results = []
            for captured in (False, True):
                p = torch.nn.Parameter(complex_steps.parameter(torch).cuda())
                optimiser = getattr(torch.optim, name)([p], lr=0.1, capturable=True)
                p.grad = torch.ones_like(p) * (1 + 2j)
                optimiser.step()
                graph = torch.cuda.CUDAGraph()
                if captured:
                    with torch.cuda.graph(graph): optimiser.step()
                for _ in range(2): graph.replay() if captured else optimiser.step()
                results.append(complex_steps.numbers(torch, p.cpu()))
            self.assertNear(*results, name)


class Refused(unittest.TestCase):
    def parameter(self):
        p = torch.nn.Parameter(complex_steps.parameter(torch))
        p.grad = torch.ones_like(p)
        return p

    def test_kinds_without_complex_steps_name_themselves(self):
        for name in ("Adafactor", "Muon"):
            with self.assertRaisesRegex(RuntimeError, f"^{name} does not support complex parameters$"): getattr(torch.optim, name)([self.parameter()]).step()
        real = torch.ones(2)
        with self.assertRaisesRegex(ValueError, r"^Complex params at indices \[\[0, 1\], \[1, 0\]\]: SparseAdam does not support complex parameters$"):
            torch.optim.SparseAdam([{"params": [real, self.parameter()]}, {"params": [self.parameter()]}])

    def test_fused_steps_require_real_parameters(self):
        text = r"^`fused=True` requires all the params to be floating point Tensors of supported devices: .* but torch.complex128 and cpu$"
        for name in ("SGD", "Adam", "AdamW", "Adagrad"):
            with self.assertRaisesRegex(RuntimeError, text): getattr(torch.optim, name)([self.parameter()], fused=True).step()

    def test_unscaling_complex_gradients_is_refused(self):
        scaler, optimiser = torch.amp.GradScaler("cpu"), torch.optim.SGD([self.parameter()], lr=0.1)
        scaler.scale(torch.ones(()))
        with self.assertRaisesRegex(NotImplementedError, "_amp_foreach_non_finite_check_and_unscale_cpu.*ComplexDouble"): scaler.unscale_(optimiser)
