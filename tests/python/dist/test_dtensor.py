# SPDX-License-Identifier: Apache-2.0
"""DTensor. Each test starts its ranks, on CPUs with gloo and on simulated devices with nccl, and compares with full tensors."""
import itertools
import tempfile
import unittest
import warnings

from jobs import ranks, refuses
import phlox as torch
import phlox.distributed as dist
import phlox.distributed.checkpoint as dcp
from phlox import nn
from phlox.distributed.fsdp import fully_shard
from phlox.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor

PLACEMENTS = [Replicate(), Shard(0), Shard(1), Partial()]


def whole_tensor(device):
    return torch.arange(5 * 4 * 3, dtype=torch.float64, device=device).view(5, 4, 3)


def make_distributed(mesh, placements, whole):
    """The tensor with the given placements; the summands of Partial differ between ranks."""
    cut = distribute_tensor(whole, mesh, [Replicate() if p.is_partial() else p for p in placements], src_data_rank=None).to_local()
    for i, p in enumerate(placements):
        if p.is_partial():
            k, n = mesh.get_local_rank(i), mesh.size(i)
            cut = cut * (k + 1) if k else cut * (1 - sum(range(2, n + 1)))
    return DTensor.from_local(cut, mesh, placements, shape=whole.shape)


def check_redistribute(r, n, device):
    whole = whole_tensor(device)
    for shape in [(n,)] + ([(2, 2)] if n == 4 and device.type == "cpu" else []):  # placement_test covers 2-D meshes of devices
        mesh = dist.init_device_mesh(device.type, shape)
        for a in itertools.product(PLACEMENTS, repeat=len(shape)):
            d = make_distributed(mesh, a, whole)
            assert d.shape == whole.shape and torch.equal(d.full_tensor(), whole), a
            for b in itertools.product(PLACEMENTS[:3], repeat=len(shape)):
                moved = d.redistribute(placements=b)
                assert moved.placements == b and moved.shape == whole.shape, (a, b)
                assert torch.equal(moved.to_local(), distribute_tensor(whole, mesh, b).to_local()), (a, b)
                assert torch.equal(moved.full_tensor(), whole) and torch.equal(d.full_tensor(), whole), (a, b)
    mesh = dist.init_device_mesh(device.type, (n,))
    for op, wanted in (("avg", (n - 1) / 2), ("max", n - 1), ("min", 0), ("product", 0), ("sum", n * (n - 1) / 2)):
        for to in (Replicate(), Shard(1)):
            d = DTensor.from_local(torch.full((3, 4), float(r), device=device), mesh, [Partial(op)])
            assert torch.equal(d.redistribute(placements=[to]).full_tensor(), torch.full((3, 4), float(wanted), device=device)), (op, to)
    summed = distribute_tensor(whole, mesh, [Shard(-2)]).redistribute(placements=[Partial()])
    assert summed.placements == (Partial(),) and summed.to_local().shape == whole.shape and torch.equal(summed.full_tensor(), whole)
    split = distribute_tensor(whole, mesh, [Partial()])
    assert torch.allclose(split.to_local() * n, whole) and torch.allclose(split.full_tensor(), whole)


def gradients(r, n, device):
    mesh, whole = dist.init_device_mesh(device.type, (n,)), whole_tensor(device)
    for a, b in itertools.product(PLACEMENTS, PLACEMENTS[:3]):
        local = make_distributed(mesh, [a], whole).to_local().detach().requires_grad_()
        d = DTensor.from_local(local, mesh, [a], shape=whole.shape).redistribute(placements=[b])
        weights = distribute_tensor(whole.square(), mesh, [b])
        (d.to_local() * weights.to_local()).sum().backward()  # of the rank's summand, or of the full sum
        wanted = whole.square() if a.is_partial() else distribute_tensor(whole.square(), mesh, [a]).to_local()
        assert torch.equal(local.grad, wanted), (a, b)
    local = torch.ones(3, device=device, requires_grad=True)
    (DTensor.from_local(local, mesh, [Partial()]) * torch.tensor(2.0)).sum().to_local().backward()
    assert torch.equal(local.grad, torch.full((3,), 2.0, device=device))


def pointwise_ops(r, n, device):
    """Partial operands are reduced before an op, unless the op does not read the values."""
    mesh, whole = dist.init_device_mesh(device.type, (n,)), whole_tensor(device)
    d = make_distributed(mesh, [Partial()], whole)
    e = d + 1
    assert e.placements == (Replicate(),) and torch.equal(e.to_local(), whole + 1) and torch.equal((d * d).to_local(), whole * whole)
    assert d.clone().placements == d.float().placements == d.detach().placements == (Partial(),) and torch.equal(d.clone().full_tensor(), whole)
    assert torch.equal(torch.ones_like(d).full_tensor(), torch.ones_like(whole)) and torch.equal(d.max().to_local(), whole.max())
    refuses(RuntimeError, "in-place operations that require placement changes are not supported", lambda: d.add_(1))
    refuses(RuntimeError, "in-place operations that require placement changes are not supported", lambda: d.fill_(1))
    columns = distribute_tensor(whole, mesh, [Shard(1)])
    assert torch.equal((columns * 2).full_tensor(), whole * 2) and (columns * 2).placements == (Shard(1),)
    columns.cumsum_(0)
    assert torch.equal(columns.full_tensor(), whole.cumsum(0))
    norms = [distribute_tensor(whole, mesh, [p]) for p in (Shard(1), Shard(0), Replicate())] + [d]
    weights = [nn.Parameter(torch.zeros_like(whole)) for _ in norms]
    for w, g in zip(weights, norms):
        w.grad = g.full_tensor()
    params = [nn.Parameter(distribute_tensor(torch.zeros_like(whole), mesh, [Shard(1)])) for _ in norms[:1]]
    params[0].grad = norms[0]
    assert torch.allclose(nn.utils.clip_grad_norm_(params, 0.5), nn.utils.clip_grad_norm_(weights[:1], 0.5))
    assert torch.allclose(params[0].grad.full_tensor(), weights[0].grad)


def errors(r, n, device):
    mesh, whole = dist.init_device_mesh(device.type, (n,)), whole_tensor(device)
    two = dist.init_device_mesh(device.type, (n, 1))
    d = distribute_tensor(whole, mesh, [Shard(0)])
    assert distribute_tensor(d, mesh, [Shard(0)]) is d
    refuses(ValueError, "Cannot distribute a DTensor with placements (Shard(dim=0),) to a different placements [Replicate()]. do you want to call `redistribute`",
            lambda: distribute_tensor(d, mesh, [Replicate()]))
    refuses(ValueError, "Cannot distribute a DTensor with device mesh", lambda: distribute_tensor(d, two, [Shard(0), Replicate()]))
    refuses(RuntimeError, "should be used to distribute leaf tensors! but found non-leaf tensor!",
            lambda: distribute_tensor(whole.clone().requires_grad_() * 2, mesh, [Shard(0)]))
    refuses(ValueError, "`placements` must have the same length as `device_mesh.ndim`! Found placements length: 2, and device_mesh.ndim: 1.",
            lambda: distribute_tensor(whole, mesh, [Shard(0), Shard(1)]))
    refuses(ValueError, "Replicate to Partial(product) conversion is not supported.", lambda: distribute_tensor(whole, mesh, [Partial("product")]))
    refuses(ValueError, "Sharding dim 3 greater than tensor ndim 3", lambda: distribute_tensor(whole, mesh, [Shard(3)]))
    refuses(ValueError, "Mixed Partial reduce types are not supported in the same placement list.",
            lambda: DTensor.from_local(whole, two, [Partial(), Partial("max")]).full_tensor())
    refuses(NotImplementedError, "unsupported placements 1 on device mesh dimension 0", lambda: distribute_tensor(whole, mesh, [1]))
    refuses(RuntimeError, "Can not redistribute from Replicate() to Partial(sum), only Shard to Partial(sum) redistribution is supported!",
            lambda: distribute_tensor(whole, mesh, [Replicate()]).redistribute(placements=[Partial()]))
    refuses(RuntimeError, "Can not redistribute from Shard(dim=0) to Partial(max)", lambda: d.redistribute(placements=[Partial("max")]))
    refuses(RuntimeError, "placements is needed for redistribute!", lambda: d.redistribute())
    refuses(NotImplementedError, "fully_shard of parameters that are DTensors is not implemented in Phlox",
            lambda: fully_shard(distribute_module(nn.Linear(2, 2), mesh)))
    refuses(RuntimeError, "the local_tensor argument only accepts torch.Tensor", lambda: DTensor.from_local(d, mesh))


def distribute_modules(r, n, device):
    mesh = dist.init_device_mesh(device.type, (n,))

    def net():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).to(device)

    def rows(name, module, mesh):
        names.append(name)
        if name == "0":
            module.weight = nn.Parameter(distribute_tensor(module.weight, mesh, [Shard(1)]))
    names, x = [], torch.randn(6, 3, device=device, generator=torch.Generator(device).manual_seed(1))
    m, one = net(), net()
    made = distribute_module(m, mesh, rows, lambda module, inputs, mesh: tuple(distribute_tensor(i, mesh) for i in inputs),
                             lambda module, outputs, mesh: outputs.full_tensor())
    assert made is m and names == ["", "0", "1", "2"], names
    assert all(isinstance(t, DTensor) for t in m.state_dict().values())
    assert [p.placements[0] for p in m.parameters()] == [Shard(1)] + [Replicate()] * 5 and isinstance(m[1].running_mean, DTensor)
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in m.parameters())
    with torch.no_grad():
        state = {name: t.clone() for name, t in m.state_dict().items()}
        for t in m.state_dict().values():
            t.zero_()
    m.load_state_dict(state)
    assert torch.allclose(m(x), one(x)) and torch.allclose(m[1].running_mean.to_local(), one[1].running_mean)
    refuses(RuntimeError, "distribute_module should only be called once on a module", lambda: distribute_module(m, mesh))
    refuses(ValueError, "input_fn should take in 3 arguments, but got 1 arguments!", lambda: distribute_module(net(), mesh, input_fn=lambda inputs: inputs))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        m = distribute_module(net(), mesh, output_fn=lambda outputs, mesh: outputs.to_local())
    assert str(caught[0].message).startswith("Deprecating output_fn that takes two arguments (outputs, device_mesh), please use output_fn that takes in (module")
    assert torch.allclose(m(distribute_tensor(x, mesh)), net()(x))


def save_and_load(r, n, device, path):
    """Tensors not sharded by rows are saved in full, and loaded with any placements."""
    mesh, whole = dist.init_device_mesh(device.type, (2, n // 2)), whole_tensor(device)
    kinds = [[Shard(1), Replicate()], [Shard(0), Shard(0)], [Shard(0), Shard(2)], [Partial(), Shard(0)]]
    dcp.save({str(i): make_distributed(mesh, p, whole + i) for i, p in enumerate(kinds)}, checkpoint_id=path)
    state = {str(i): distribute_tensor(torch.zeros_like(whole), mesh, [Shard(2), Shard(1)] if i % 2 else [Replicate(), Shard(0)]) for i in range(4)}
    dcp.load(state, checkpoint_id=path)
    for i in range(4):
        assert torch.equal(state[str(i)].full_tensor(), whole + i), i


@unittest.skipUnless(dist.is_available(), "the gloo backend is not built")
class DTensorTest(unittest.TestCase):
    def each(self, body, *args, sizes=(2, 4)):
        devices = torch.cuda.device_count() if dist.is_nccl_available() else 0
        for backend, size in itertools.product(("gloo", "nccl"), sizes):
            if backend == "gloo" or devices >= size:
                with self.subTest(backend=backend, size=size):
                    ranks(body, *args, size=size, backend=backend)

    def test_redistribute(self):
        self.each(check_redistribute)

    def test_gradients(self):
        self.each(gradients)

    def test_ops_reduce_partial_operands(self):
        self.each(pointwise_ops)

    def test_errors_match_pytorch(self):
        self.each(errors, sizes=(2,))

    def test_distribute_module(self):
        self.each(distribute_modules)

    def test_checkpoints_of_all_placements(self):
        with tempfile.TemporaryDirectory() as path:
            self.each(save_and_load, path, sizes=(4,))


if __name__ == "__main__":
    unittest.main()
