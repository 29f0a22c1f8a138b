# SPDX-License-Identifier: Apache-2.0
"""ZeroRedundancyOptimizer. Each test starts its ranks."""
import tempfile
import unittest

from jobs import ranks
import phlox as torch
import phlox.distributed as dist
from phlox import nn
from phlox.distributed.algorithms.join import Join, Joinable, JoinHook
from phlox.distributed.optim import ZeroRedundancyOptimizer
from phlox.nn.parallel import DistributedDataParallel as DDP


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3), nn.Linear(3, 3)).double()


def groups(m):
    return [{"params": list(m[0].parameters()), "lr": 0.1}, {"params": list(m[2].parameters())}]


def steps(m, opt, first, last, part=slice(None), device="cpu"):
    for i in range(first, last):
        torch.manual_seed(i)
        x, y = torch.randn(8, 4).double(), torch.randn(8, 3).double()
        opt.zero_grad()
        nn.functional.mse_loss(m(x[part].to(device)), y[part].to(device)).backward()
        opt.step()
        for group in opt.param_groups:
            group["lr"] *= 0.9


def train_one_process(last, state=None):
    m = model()
    opt = torch.optim.Adam(groups(m), lr=0.02)
    opt.add_param_group({"params": list(m[3].parameters()), "lr": 0.5})
    steps(m, opt, 0, last)
    return m, opt


def train(r, n, device, view, path):
    m = model().to(device)
    opt = ZeroRedundancyOptimizer(groups(m), torch.optim.Adam, parameters_as_bucket_view=view, lr=0.02)
    opt.add_param_group({"params": list(m[3].parameters()), "lr": 0.5})
    ddp = DDP(m)
    steps(ddp, opt, 0, 2, slice(r, None, n), device)
    whole, other = train_one_process(2)
    for p, w in zip(m.parameters(), whole.parameters()):
        assert torch.allclose(p.cpu(), w, atol=1e-12)
    states = sum(s["exp_avg"].numel() for s in opt.optim.state.values())
    dist.all_reduce(total := torch.tensor([states], device=device))
    assert int(total) == sum(p.numel() for p in m.parameters()) and states <= 0.7 * int(total)
    try:
        opt.state_dict()
    except RuntimeError as e:
        assert "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to=...)`" in str(e)
    opt.consolidate_state_dict(to=0)
    if r == 0:
        state, wanted = opt.state_dict(), other.state_dict()
        assert list(state["state"]) == list(wanted["state"]) and [g["params"] for g in state["param_groups"]] == [[0, 1], [2, 3], [4, 5]]
        for key, values in wanted["state"].items():
            assert torch.allclose(state["state"][key]["exp_avg_sq"], values["exp_avg_sq"], atol=1e-12)
        torch.save([state, {k: v.cpu() for k, v in m.state_dict().items()}], path)


def resume(r, n, device, path):
    state, weights = torch.load(path)
    m = model()
    m.load_state_dict(weights)
    opt = ZeroRedundancyOptimizer([*groups(m), {"params": list(m[3].parameters()), "lr": 3.0}], torch.optim.Adam, lr=7.0)
    opt.load_state_dict(state)
    steps(DDP(m), opt, 2, 4, slice(r, None, n), device)
    for p, w in zip(m.parameters(), train_one_process(4)[0].parameters()):
        assert torch.allclose(p, w, atol=1e-12)


def errors(r, n, device):
    try:
        ZeroRedundancyOptimizer(model().parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=1.0)
    except NotImplementedError as e:
        assert "overlap_with_ddp" in str(e)
    else:
        raise AssertionError("overlap_with_ddp was taken")
    few = nn.Linear(2, 1, bias=False)  # fewer parameters than ranks
    opt = ZeroRedundancyOptimizer(few.parameters(), torch.optim.SGD, lr=1.0)
    few(torch.ones(1, 2)).sum().backward()
    before = few.weight.detach().clone()
    assert opt.step(lambda: torch.tensor(5.0)) == 5 and torch.equal(few.weight, before - 1)


class SetGradients(Joinable):
    """Joinable that sets precomputed gradients in each step."""
    join_device, join_process_group = torch.device("cpu"), property(lambda self: dist.group.WORLD)

    def __init__(self, parameters, gradients):
        super().__init__()
        self.parameters, self.gradients = parameters, iter(gradients)

    def set(self):
        for p, g in zip(self.parameters, next(self.gradients)):
            p.grad = g

    def join_hook(self, **kwargs):
        hook = JoinHook()
        hook.main_hook = self.set
        return hook


def join_uneven_inputs(r, n, device):
    m, gradients = model(), []
    wanted = model()
    other = torch.optim.Adam(wanted.parameters(), lr=0.02)
    for i in range(4):
        other.zero_grad()
        wanted(torch.full((2, 4), i + 1.0).double()).square().mean().backward()
        gradients.append([p.grad.clone() for p in wanted.parameters()])
        other.step()
    opt = ZeroRedundancyOptimizer(m.parameters(), torch.optim.Adam, lr=0.02)
    sets = SetGradients(list(m.parameters()), gradients)
    with Join([sets, opt]):
        for i in range((4, 2)[r]):  # batches of the rank
            Join.notify_join_context(sets)
            sets.set()
            opt.step()
    assert opt.join_device == torch.device("cpu") and opt.join_process_group == dist.group.WORLD
    for p, w in zip(m.parameters(), wanted.parameters()):
        assert torch.allclose(p, w, atol=1e-12)


@unittest.skipUnless(dist.is_available(), "the gloo backend is not built")
class ZeroTest(unittest.TestCase):
    def test_training_matches_one_process_and_resumes_with_other_ranks(self):
        with tempfile.NamedTemporaryFile() as file:
            ranks(train, True, file.name)
            if dist.is_nccl_available() and torch.cuda.device_count() >= 2:
                ranks(train, False, file.name, backend="nccl")
            ranks(resume, file.name, size=4)

    def test_join_with_uneven_inputs(self):
        ranks(join_uneven_inputs)

    def test_few_parameters_and_unsupported_options(self):
        ranks(errors)


if __name__ == "__main__":
    unittest.main()
