# SPDX-License-Identifier: Apache-2.0
"""User-defined subclasses of torch.optim.Optimizer: Lion (Chen et al. 2023), AdaBelief (Zhuang et al. 2020), Lookahead (Zhang et al. 2019) and
SAM (Foret et al. 2021). Covers groups, states, closures, files and schedulers on the CPU and a device. Steps are recomputed in Python
floats."""
import copy
import io
import math
import unittest

import phlox as torch

DEVICES = ["cpu"] + ["cuda"] * (torch.cuda.device_count() > 0)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, betas=(0.9, 0.99), weight_decay=0.0):
        if lr < 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["average"] = torch.zeros_like(p)
                average, (near, far) = state["average"], group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(average.mul(near).add(p.grad, alpha=1 - near).sign_(), alpha=-group["lr"])
                average.mul_(far).add_(p.grad, alpha=1 - far)
        return loss


class Belief(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            a, b = group["betas"]
            for p in filter(lambda p: p.grad is not None, group["params"]):
                state = self.state[p]
                if len(state) == 0:
                    state.update(step=0, mean=torch.zeros_like(p), doubt=torch.zeros_like(p))
                state["step"] += 1
                state["mean"].mul_(a).add_(p.grad, alpha=1 - a)
                off = p.grad - state["mean"]
                state["doubt"].mul_(b).addcmul_(off, off, value=1 - b).add_(group["eps"])
                scale = (state["doubt"] / (1 - b ** state["step"])).sqrt_().add_(group["eps"])
                p.addcdiv_(state["mean"], scale, value=-group["lr"] / (1 - a ** state["step"]))


class Lookahead(torch.optim.Optimizer):
    """Shares the groups of the wrapped optimizer, and keeps its own values in a separate state."""

    def __init__(self, inner, every=2, share=0.5):
        self.inner, self.every, self.share, self.count = inner, every, share, 0
        super().__init__(inner.param_groups, dict(inner.defaults))
        self.param_groups = inner.param_groups
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["slow"] = p.detach().clone()

    def step(self, closure=None):
        loss = self.inner.step(closure)
        self.count += 1
        if self.count % self.every == 0:
            with torch.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        slow = self.state[p]["slow"]
                        p.copy_(slow.add_(p - slow, alpha=self.share))
        return loss


class Sharpness(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **more):
        super().__init__(params, dict(rho=rho, **more))
        self.base = base(self.param_groups, **more)
        self.param_groups = self.base.param_groups

    def norm(self):
        return torch.norm(torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"] if p.grad is not None]))

    def step(self, closure=None):
        if closure is None:
            raise RuntimeError("a step needs the closure")
        with torch.no_grad():
            norm = self.norm()
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["here"] = p.clone()
                    p.add_(p.grad * (group["rho"] / (norm + 1e-12)))
        self.zero_grad()
        with torch.enable_grad():
            loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.copy_(self.state[p]["here"])
        self.base.step()
        return loss


def slope(w):
    """Gradient of sum(w ** 2 * [1, 3]) / 2."""
    return [w[0], 3 * w[1]]


def loss_of(w):
    return (w * w * torch.tensor([1.0, 3.0], dtype=w.dtype, device=w.device)).sum() / 2


class UserOptimizers(unittest.TestCase):
    def weight(self, device):
        return torch.tensor([1.0, -2.0], dtype=torch.float64, device=device, requires_grad=True)

    def close(self, w, wanted):
        self.assertTrue(all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in zip(w.tolist(), wanted)), (w.tolist(), wanted))

    def run_steps(self, w, optimiser, count):
        for _ in range(count):
            optimiser.zero_grad()
            loss_of(w).backward()
            optimiser.step()

    def test_lion_steps(self):
        for device in DEVICES:
            w = self.weight(device)
            self.run_steps(w, Lion([w], weight_decay=0.1), 3)
            x, average = [1.0, -2.0], [0.0, 0.0]
            for _ in range(3):
                for k, g in enumerate(slope(x)):
                    way = 0.9 * average[k] + 0.1 * g
                    x[k] = x[k] * (1 - 0.1 * 0.1) - 0.1 * ((way > 0) - (way < 0))
                    average[k] = 0.99 * average[k] + 0.01 * g
            self.close(w, x)

    def test_adabelief_steps(self):
        for device in DEVICES:
            w = self.weight(device)
            optimiser = Belief([w])
            self.run_steps(w, optimiser, 4)
            x, mean, doubt = [1.0, -2.0], [0.0, 0.0], [0.0, 0.0]
            for t in range(1, 5):
                for k, g in enumerate(slope(x)):
                    mean[k] = 0.9 * mean[k] + 0.1 * g
                    doubt[k] = 0.999 * doubt[k] + 0.001 * (g - mean[k]) ** 2 + 1e-8
                    x[k] -= 0.1 / (1 - 0.9 ** t) * mean[k] / (math.sqrt(doubt[k] / (1 - 0.999 ** t)) + 1e-8)
            self.close(w, x)
            self.assertEqual(optimiser.state[w]["step"], 4)

    def test_lookahead_over_library_optimizer(self):
        for device in DEVICES:
            w = self.weight(device)
            optimiser = Lookahead(torch.optim.SGD([w], lr=0.1), every=2)
            self.run_steps(w, optimiser, 4)
            x, slow = [1.0, -2.0], [1.0, -2.0]
            for t in range(1, 5):
                x = [a - 0.1 * g for a, g in zip(x, slope(x))]
                if t % 2 == 0:
                    slow = x = [s + 0.5 * (a - s) for a, s in zip(x, slow)]
            self.close(w, x)

    def test_sam_evaluates_closure_at_perturbed_weights(self):
        for device in DEVICES:
            w = self.weight(device)
            optimiser = Sharpness([w], torch.optim.SGD, lr=0.1)
            seen = []

            def closure():
                loss = loss_of(w)
                loss.backward()
                seen.append(w.tolist())
                return loss
            closure()
            optimiser.step(closure)
            g = slope([1.0, -2.0])
            far = [a + 0.05 * b / math.hypot(*g) for a, b in zip([1.0, -2.0], g)]
            self.close(torch.tensor(seen[1], dtype=torch.float64), far)
            self.close(w, [a - 0.1 * b for a, b in zip([1.0, -2.0], slope(far))])
            with self.assertRaisesRegex(RuntimeError, "needs the closure"):
                optimiser.step()

    def test_group_options_and_add_param_group(self):
        for device in DEVICES:
            a, b = self.weight(device), self.weight(device)
            optimiser = Lion([{"params": [a], "lr": 0.5}], lr=0.1)
            optimiser.add_param_group({"params": [b]})
            self.assertEqual([(g["lr"], g["betas"], g["weight_decay"]) for g in optimiser.param_groups], [(0.5, (0.9, 0.99), 0.0), (0.1, (0.9, 0.99), 0.0)])
            (loss_of(a) + loss_of(b)).backward()
            optimiser.step()
            self.close(a, [0.5, -1.5])
            self.close(b, [0.9, -1.9])
            with self.assertRaisesRegex(ValueError, "some parameters appear in more than one parameter group"):
                optimiser.add_param_group({"params": [a]})
            self.assertEqual(len(optimiser.param_groups), 2)

    def test_state_dict_through_file(self):
        for device in DEVICES:
            for kind in Lion, Belief:
                w = self.weight(device)
                optimiser = kind([w])
                self.run_steps(w, optimiser, 2)
                file = io.BytesIO()
                torch.save({"w": w.detach(), "optimiser": optimiser.state_dict()}, file)
                file.seek(0)
                kept = torch.load(file)
                again = kept["w"].clone().requires_grad_()
                other = kind([again], lr=9.0)
                other.load_state_dict(kept["optimiser"])
                self.assertEqual(other.param_groups[0]["lr"], 0.1)
                self.run_steps(w, optimiser, 2)
                self.run_steps(again, other, 2)
                self.assertEqual(w.tolist(), again.tolist())

    def test_deepcopy_has_own_state(self):
        w = self.weight("cpu")
        optimiser = Lion([w])
        self.run_steps(w, optimiser, 1)
        other = copy.deepcopy(optimiser)
        twin = other.param_groups[0]["params"][0]
        self.run_steps(w, optimiser, 3)
        self.run_steps(twin, other, 3)
        self.assertEqual(w.tolist(), twin.tolist())
        self.assertIsNot(other.state[twin]["average"], optimiser.state[w]["average"])

    def test_schedulers_and_hooks(self):
        for device in DEVICES:
            w = self.weight(device)
            optimiser = Lion([w], lr=0.4)
            schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
            rates = []
            optimiser.register_step_pre_hook(lambda o, args, kwargs: rates.append(o.param_groups[0]["lr"]))
            for _ in range(3):
                self.run_steps(w, optimiser, 1)
                schedule.step()
            self.assertEqual(rates, [0.4, 0.2, 0.1])
            self.close(w, [1 - 0.4 - 0.2 - 0.1, -2 + 0.7])

    def test_closure_has_gradients_and_returns_loss(self):
        w = self.weight("cpu")
        optimiser = Lion([w])

        def closure():
            optimiser.zero_grad()
            loss = loss_of(w)
            loss.backward()
            return loss
        self.assertEqual(optimiser.step(closure).item(), 6.5)
        self.close(w, [0.9, -1.9])


if __name__ == "__main__":
    unittest.main()
