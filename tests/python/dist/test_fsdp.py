# SPDX-License-Identifier: Apache-2.0
"""fully_shard. Each test starts its ranks: on CPUs with gloo, and on simulated devices with nccl."""
import copy
import gc
import os
import tempfile
import unittest
import weakref

from jobs import exit_codes, ranks, refuses
import phlox as torch
import phlox.distributed as dist
import phlox.distributed.checkpoint as dcp
from phlox import nn
from phlox.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_model_state_dict
from phlox.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from phlox.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from phlox.utils.checkpoint import checkpoint


def on_devices_with_gloo(rank, size, cpu):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(f"cuda:{rank}")
    torch.cuda.set_device(rank)
    whole = copy.deepcopy(model)
    fully_shard(model)
    x = torch.full((2, 4), 1.0 + rank, device=f"cuda:{rank}")
    model(x).sum().backward()
    whole(x).sum().backward()
    for shard, p in zip(model.parameters(), whole.parameters()):
        assert shard.device_mesh.device_type == "cuda", shard
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        assert torch.allclose(shard.grad.full_tensor(), p.grad / size), rank


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, 2 * width + 1), nn.Linear(2 * width + 1, width)

    def forward(self, x, scale=1.0):
        return {"out": x + self.b(torch.tanh(self.a(x))) * scale}


class Net(nn.Module):
    """Row counts that do not divide evenly, a tied weight, checkpointed blocks, and inputs without gradients."""

    def __init__(self, recompute=False, width=5):
        super().__init__()
        self.embed, self.blocks, self.norm = nn.Embedding(7, width), nn.ModuleList(Block(width) for _ in range(3)), nn.LayerNorm(width)
        self.head = nn.Linear(width, 7, bias=False)
        self.head.weight, self.recompute = self.embed.weight, recompute

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = (checkpoint(block, x, use_reentrant=False) if self.recompute else block(x, scale=0.5))["out"]
        return self.head(self.norm(x))


def net(**how):
    torch.manual_seed(11)
    return Net(**how).double()


def batches():
    torch.manual_seed(12)
    return torch.randint(0, 7, (5, 8, 3)), torch.randint(0, 7, (5, 8, 3))


def train(m, part=slice(None), device="cpu", parts=1, apart=False):
    opt = torch.optim.AdamW(m.parameters(), 0.02)
    losses = []
    for x, y in zip(*batches()):
        opt.zero_grad()
        for i in range(parts):
            if isinstance(m, FSDPModule):
                last = i == parts - 1
                m.set_requires_all_reduce(last) if apart else m.set_requires_gradient_sync(last)
            loss = nn.functional.cross_entropy(m(x[part][i::parts].to(device)).transpose(1, 2), y[part][i::parts].to(device)) / parts
            loss.backward()
            losses.append(loss.detach())
        norm = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        losses.append(norm.detach())
        opt.step()
    return torch.stack([t.cpu() for t in losses]), opt


def shard_columns(p):
    """Shards a matrix by columns if it has 8 of them."""
    return Shard(-1) if p.ndim == 2 and p.size(1) == 8 else None


def shard(m, how, mesh=None, device="cpu"):
    last = list(m.blocks[1:]) if "list" in how else []
    more = {"mesh": mesh, "shard_placement_fn": shard_columns if "columns" in how else None}
    if "offload" in how:
        more["offload_policy"] = CPUOffloadPolicy(pin_memory=device != "cpu")
    if last:
        assert fully_shard(last, **more) is last
    for block in m.blocks[:1] if last else m.blocks:
        fully_shard(block, reshard_after_forward="keep" not in how, **more)
    fully_shard(m, **more)
    if "prefetch" in how:
        m.set_modules_to_forward_prefetch([m.blocks[0]])
        m.blocks[0].set_modules_to_forward_prefetch([m.blocks[1], m.blocks[2]])
        m.blocks[2].set_modules_to_backward_prefetch([m.blocks[1], m.blocks[0]])
    return m


def train_like_one_process(r, n, device, how, path):
    mesh = dist.init_device_mesh(device.type, (2, n // 2), mesh_dim_names=("replica", "part")) if "replicas" in how else None
    again, parts, width = "recompute" in how, 2 if "parts" in how else 1, 8 if "columns" in how else 5
    m, one = shard(net(recompute=again, width=width), how, mesh, device.type), net(recompute=again, width=width)
    losses, opt = train(m, slice(r, None, n), device, parts, "apart" in how)
    dist.all_reduce(mean := losses.to(device))
    wanted, other = train(one, parts=parts)
    assert torch.allclose(mean.cpu() / n, wanted, atol=1e-12) if parts == 1 else torch.allclose(mean.cpu().sum() / n, wanted.sum(), atol=1e-12)
    assert [name for name, _ in m.named_parameters()] == [name for name, _ in one.named_parameters()]
    for p, w in zip(m.parameters(), one.parameters()):
        assert isinstance(p, DTensor) and isinstance(p, nn.Parameter) and p.shape == w.shape
        cut = 1 if "columns" in how and shard_columns(w) else 0
        assert p.placements == ((Replicate(), Shard(cut)) if mesh else (Shard(cut),)) and (mesh is None or p.device_mesh == mesh)
        for mine, whole in ((p, w), (p.grad, w.grad), (opt.state[p]["exp_avg_sq"], other.state[w]["exp_avg_sq"])):
            assert isinstance(mine, DTensor) and torch.allclose(mine.full_tensor().cpu(), whole, atol=1e-12)
            k, each = (r % (n // 2), -(-whole.size(cut) // (n // 2))) if mesh else (r, -(-whole.size(cut) // n))
            local = mine.to_local()
            assert local.size(cut) == max(0, min(each, whole.size(cut) - k * each)) and local.is_contiguous()
            if "offload" in how:
                assert local.device.type == "cpu" and (mine is not p or local.is_pinned() == (device.type != "cpu"))
    if mesh:
        check_checkpoint(m, opt, one, other, device, path)
    torch.save([p.to_local().detach().cpu() for p in m.parameters()] + [losses], f"{path}/{r}")


def check_checkpoint(m, opt, one, other, device, path):
    """Replicas save each row once. The checkpoint matches that of one process and can be loaded by it and by the replicas."""
    state, states = get_state_dict(m, opt)
    dcp.save({"m": state, "o": states}, checkpoint_id=f"{path}/saved")
    wanted = get_state_dict(one, other)
    read = {"m": {k: torch.zeros_like(v) for k, v in wanted[0].items()}, "o": copy.deepcopy(wanted[1])}
    dcp.load(read, checkpoint_id=f"{path}/saved", no_dist=True)
    assert len(read["o"]["state"]) == len(list(one.parameters()))
    for name, value in wanted[0].items():
        assert torch.allclose(read["m"][name], value, atol=1e-12)
        for mine, other in zip(read["o"]["state"].get(name, {}).values(), wanted[1]["state"].get(name, {}).values()):
            assert torch.allclose(mine, other, atol=1e-12)
    whole = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
    with torch.no_grad():
        for p in m.parameters():
            p.zero_()
    dcp.load({"m": state}, checkpoint_id=f"{path}/saved")
    again = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
    assert all(torch.equal(again[name], value) for name, value in whole.items())
    set_model_state_dict(m, {name: value * 2 for name, value in whole.items()}, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    assert all(torch.equal(p.full_tensor(), 2 * whole[name]) for name, p in m.named_parameters())


def hybrid_sharding(r, n, device):
    mesh = dist.init_device_mesh(device.type, (2, 2), mesh_dim_names=("replica", "part"))
    for dtype, out in ((None, torch.float32), (torch.bfloat16, torch.bfloat16)):
        m = fully_shard(nn.Linear(4, 3, bias=False, device=device), mesh=mesh, mp_policy=MixedPrecisionPolicy(dtype, torch.float32))
        m(torch.full((2, 4), 1.0 + r, device=device)).sum().backward()
        assert torch.equal(m.weight.grad.full_tensor().cpu(), torch.full((3, 4), 5.0)) and m.weight.grad.dtype == torch.float32
    m.set_gradient_divide_factor(2.0)
    m.zero_grad()
    m(torch.ones(1, 4, device=device)).sum().backward()
    assert torch.equal(m.weight.grad.full_tensor().cpu(), torch.full((3, 4), 2.0))
    assert abs(nn.utils.clip_grad_norm_(m.parameters(), 1.0).item() - 48 ** 0.5) < 1e-5  # counts each row once
    grad_scaler(r, n, device, mesh)
    whole = torch.arange(15.0).view(5, 3)
    d = distribute_tensor(whole + r, mesh, [Replicate(), Shard(0)])
    assert torch.equal(d.full_tensor().cpu(), whole) and d.sum().placements == (Replicate(), Replicate()) and d.to_local().size(0) == 3 - r % 2
    assert d.redistribute(placements=[Shard(0), Replicate()]).to_local().size(0) == 3 - r // 2
    cube = dist.init_device_mesh(device.type, (2, 2, 1), mesh_dim_names=("a", "b", "c"))
    unnamed = dist.init_device_mesh(device.type, (2, 2))
    refuses(ValueError, "fully_shard expects a 1D or 2D DeviceMesh but got", lambda: fully_shard(nn.Linear(2, 2), mesh=cube))
    refuses(AssertionError, "Please init the 2D mesh for HSDP with mesh_dim_names specified", lambda: fully_shard(nn.Linear(2, 2), mesh=unnamed))
    if device.type == "cuda":
        refuses(ValueError, "stream cannot be set when using native HSDP",
                lambda: fully_shard(nn.Linear(2, 2), mesh=mesh).set_all_reduce_hook(print, stream=torch.cuda.Stream()))


def memory(r, n, device, offload):
    layers, width = 8, 512
    how = {"offload_policy": CPUOffloadPolicy()} if offload else {}
    m = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    for layer in m:
        fully_shard(layer, **how)
    fully_shard(m, **how)
    opt, x, one = torch.optim.Adam(m.parameters()), torch.randn(1, width, device=device), width * width * 4
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        m(x).square().mean().backward()
        opt.step()
        opt.zero_grad()
    # A parameter, its gradient and two optimizer states are sharded. The group in use is held in full with its gradient,
    # plus one buffer each for all-gather and reduce-scatter, and the shards that they copy in and out.
    # With offloading, shards are also in flight in both directions.
    most = 5.5 * one if offload else 4 * layers * one / n + 4.75 * one
    assert torch.cuda.max_memory_allocated() <= most, torch.cuda.max_memory_allocated() / one


def mixed_precision(r, n, device):
    seen = []

    class Watch(nn.Linear):
        def forward(self, x):
            seen.append((x.dtype, self.weight.dtype, type(self.weight)))
            return super().forward(x)

        def twice(self, x):
            return self(x) * 2
    m = fully_shard(Watch(4, 3, device=device), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float64))
    register_fsdp_forward_method(m, "twice")
    assert type(type(m)(4, 3)) is Watch and isinstance(m, Watch) and type(m).__name__ == "FSDPWatch"
    out = m.twice(torch.full((2, 4), 1.0 + r, device=device, requires_grad=True))
    assert out.dtype == torch.float64 and seen == [(torch.bfloat16, torch.bfloat16, nn.Parameter)]
    out.sum().backward()
    assert m.weight.dtype == m.weight.grad.dtype == torch.float32
    assert torch.equal(m.weight.grad.full_tensor().cpu(), torch.full((3, 4), 6.0))  # mean of 4 and 8
    handle = m.unshard(async_op=True)
    handle.wait()
    assert m.weight.dtype == torch.bfloat16 and not isinstance(m.weight, DTensor) and m.weight.shape == (3, 4)
    m.reshard()
    m.set_gradient_divide_factor(1.0)
    m.zero_grad()
    m(torch.ones(1, 4, device=device)).sum().backward()
    assert torch.equal(m.bias.grad.full_tensor().cpu(), torch.full((3,), float(n)))


def grad_scaler(r, n, device, mesh=None):
    check_grad_scaler(r, device, fully_shard(nn.Linear(2, 2, bias=False, device=device), mesh=mesh))
    check_grad_scaler(r, device, fully_shard(nn.Linear(2, 2, bias=False), mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=device.type == "cuda")))


def check_grad_scaler(r, device, m):
    opt, scaler = torch.optim.SGD(m.parameters(), 1.0), torch.amp.GradScaler(device.type, init_scale=4.0)
    before = m.weight.full_tensor()
    for step in range(2):
        opt.zero_grad()
        scaler.scale(m(torch.ones(1, 2, device=device)).sum()).backward()
        if step == 0 and r % 2 == 1:  # inf in the rows of one shard only
            m.weight.grad.to_local().fill_(float("inf"))
        scaler.step(opt)
        scaler.update()
        assert scaler.get_scale() == 2.0 and torch.equal(m.weight.full_tensor(), before - step)


def sharded_tensors(r, n, device):
    torch.manual_seed(5)
    whole = torch.randn(5, 3)
    mesh = dist.init_device_mesh(device.type, (n,))
    d = distribute_tensor(whole + r, mesh, [Shard(0)])  # broadcasts the tensor of rank 0
    assert d.shape == (5, 3) and d.numel() == 15 and len(d) == 5 and d.stride() == (3, 1) and torch.equal(d.full_tensor().cpu(), whole)
    e = (d * 2 + d.abs()).clamp(max=1)
    assert isinstance(e, DTensor) and e.placements == (Shard(0),)
    assert torch.equal(e.full_tensor().cpu(), (whole * 2 + whole.abs()).clamp(max=1))
    assert torch.allclose(d.norm().full_tensor().cpu(), whole.norm()) and d.sum().placements == (Replicate(),)
    w = nn.Parameter(d)
    w.square().sum().to_local().backward()
    assert torch.allclose(w.grad.full_tensor().cpu(), 2 * whole)
    assert torch.equal(d.redistribute(placements=[Replicate()]).to_local().cpu(), whole) and repr(d).endswith("placements=(Shard(dim=0),))")
    layer, alone = fully_shard(nn.Linear(3, 5, device=device)), torch.empty(5, 3, device=device)
    for weight in (layer.weight, alone):
        torch.manual_seed(6)
        nn.init.xavier_uniform_(weight)
    assert torch.equal(layer.weight.full_tensor(), alone)

    refuses(RuntimeError, "got mixed torch.Tensor and DTensor", lambda: d + whole.to(device))
    refuses(NotImplementedError, "pickling a DTensor is not implemented in Phlox", lambda: d.__reduce_ex__(2))
    refuses(NotImplementedError, f"FSDP does not support uneven sharding on dim 1: torch.Size([2, 3]) (world size: {n})",
            lambda: fully_shard(nn.Linear(3, 2), shard_placement_fn=lambda p: Shard(p.ndim - 1)))
    refuses(AssertionError, "Shard dim 1 is invalid for 1D tensor: torch.Size([2])", lambda: fully_shard(nn.Linear(4, 2), shard_placement_fn=lambda p: Shard(1)))
    refuses(ValueError, "Invalid shard_placement_fn result: 1", lambda: fully_shard(nn.Linear(4, 2), shard_placement_fn=lambda p: 1))
    refuses(KeyError, "none", lambda: fully_shard(nn.Linear(4, 2), shard_placement_fn=lambda p: {}["none"]))
    refuses(ValueError, "fully_shard does not support containers that do not implement forward: ModuleList", lambda: fully_shard(nn.ModuleList()))


def embedding_without_backward_gather(r, n, device):
    """An embedding not gathered for backward, and a forward waiting for an event."""
    whole, losses = [], []

    class Words(nn.Embedding):
        def forward(self, ids):
            x = super().forward(ids)
            x.register_hook(lambda grad: whole.append(isinstance(self.weight, DTensor)))
            return x
    torch.manual_seed(8)
    m = nn.Sequential(Words(7, 4), nn.Linear(4, 3)).to(device)
    one = copy.deepcopy(m)
    fully_shard(m[0]).set_unshard_in_backward(False)
    fully_shard(m)
    opts = [torch.optim.SGD(net.parameters(), 0.1) for net in (m, one)]
    for step in range(3):
        for net, opt in zip((m, one), opts):
            losses.append(net(torch.tensor([1, 2, step], device=device)).square().sum())
            losses[-1].backward()
            opt.step()
            opt.zero_grad()
            if net is m:
                event = torch.cuda.Event() if device.type == "cuda" else None
                if event is not None:
                    event.record()
                m.set_post_optim_event(event)
        assert torch.allclose(losses[-1], losses[-2])
    assert whole == [True, False] * 3
    refuses(TypeError, "expected a torch.cuda.Event, not int", lambda: m.set_post_optim_event(3))


def all_reduce_hook(r, n, device):
    """The hook receives the reduced gradient on its stream, and may modify it before accumulation."""
    seen, stream = [], torch.cuda.Stream() if device.type == "cuda" else None
    m = nn.Sequential(nn.Linear(3, 5, bias=False), nn.Linear(5, 2)).to(device)
    one = copy.deepcopy(m)

    def hook(reduced):
        seen.append((reduced.numel(), reduced.requires_grad, stream is None or torch.cuda.current_stream() == stream))
        reduced.mul_(2)
    fully_shard(m[0]).set_all_reduce_hook(hook, stream=stream)
    fully_shard(m, offload_policy=CPUOffloadPolicy(pin_memory=device.type == "cuda"))
    for net in (m, one):
        net(torch.ones(2, 3, device=device)).square().sum().backward()
    assert seen == [(3 * -(-5 // n), False, True)], seen
    for p, w, factor in zip(m.parameters(), one.parameters(), (2, 1, 1)):
        assert torch.allclose(p.grad.full_tensor().cpu(), factor * w.grad.cpu())
    assert m[1].weight.device.type == m[1].weight.grad.device.type == "cpu" and m[0].weight.device.type == device.type

    def fails(reduced):
        raise KeyError("the hook")
    m.zero_grad()
    m[0].set_all_reduce_hook(fails)
    refuses(KeyError, "the hook", lambda: m(torch.ones(2, 3, device=device)).sum().backward())
    m[0].set_all_reduce_hook(hook)
    m(torch.ones(2, 3, device=device)).square().sum().backward()
    assert torch.allclose(m[0].weight.grad.full_tensor().cpu(), 2 * one[0].weight.grad.cpu()) and len(seen) == 2
    m.to(device)
    if device.type == "cuda":
        refuses(RuntimeError, "FSDP parameters should be materialized on CPU when enabling CPU offloading", lambda: m(torch.ones(2, 3, device=device)))
    hook.model, ref = m, weakref.ref(m[0])
    del m, net, p, hook, fails
    gc.collect()
    assert ref() is None


def groups(r, n, device):
    def three():
        return [nn.Linear(2, 2, device=device) for _ in range(3)]
    refuses(AssertionError, "fully_shard has already been applied to the following module:\nFSDPLinear(in_features=2", lambda: fully_shard([fully_shard(three()[0])]))
    refuses(ValueError, "If passing reshard_after_forward as an int, it should be a factor of 2, not 3", lambda: fully_shard(three()[0], reshard_after_forward=3))
    refuses(IndexError, "tuple index out of range", lambda: fully_shard([]))
    for keeps in (1, 2):
        m = fully_shard(nn.Sequential(*fully_shard(three(), reshard_after_forward=keeps)))
        assert [type(layer).__name__ for layer in m] == ["FSDPLinear"] * 3
        out = m(torch.ones(1, 2, device=device))
        assert [isinstance(layer.weight, DTensor) for layer in m] == [keeps == 2] * 3
        with torch.no_grad():  # a subset of modules, and again after a change of the parameters
            for value in (1.0, 2.0):
                for p in m.parameters():
                    p.zero_() if p.ndim == 1 else p.fill_(value)
                assert torch.equal(m[0](torch.ones(2, device=device)), torch.full((2,), 2 * value, device=device))
        ref = weakref.ref(m[1])
        del m, out, p
        gc.collect()
        assert ref() is None
    embedding_without_backward_gather(r, n, device)


def from_meta(r, n, device):
    with torch.device("meta"):
        m = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    fully_shard(m)
    try:
        m(torch.ones(1, 3, device=device))
    except RuntimeError as e:
        assert "FSDP parameters should be materialized from meta device before training" in str(e)
    m.to_empty(device=device)
    torch.manual_seed(4)
    for layer in m:
        layer.reset_parameters()
    state = m.state_dict()
    assert list(state) == ["0.weight", "0.bias", "1.weight", "1.bias"] and all(isinstance(v, DTensor) for v in state.values())
    torch.manual_seed(4)
    one = nn.Sequential(nn.Linear(3, 5, device=device), nn.Linear(5, 2, device=device))
    wanted = one.state_dict()
    assert all(torch.equal(v.full_tensor(), wanted[k]) for k, v in state.items())
    other = fully_shard(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)))
    other.load_state_dict({k: v.clone() for k, v in state.items()}, assign=r < n)
    x = torch.ones(2, 3, device=device)
    assert torch.equal(other(x), one(x)) and torch.equal(m(x), one(x)) and not any(p.device.type == "meta" for p in m.parameters())


def rank_exits(r, n, device, where):
    class Dies(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return os._exit(7) if r == 1 and where == "forward" else x.clone()

        @staticmethod
        def backward(ctx, grad):
            return os._exit(7) if r == 1 else grad

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.b(Dies.apply(self.a(x)))
    m = Layers()
    try:  # a late rank may observe the death in its first call
        mesh = dist.init_device_mesh(device.type, (2, 2), mesh_dim_names=("replica", "part")) if n == 4 else None
        for part in (m.a, m.b, m):
            fully_shard(part, mesh=mesh)
        for _ in range(2):  # the next call reports an error of the stream
            m(torch.ones(2, 4, device=device)).sum().backward()
            if device.type == "cuda":
                torch.cuda.synchronize()
    except RuntimeError as e:
        assert type(e).__name__ == "DistBackendError" and "[Rank " in str(e) and " number " in str(e), e
        os._exit(9)
    raise AssertionError("the death of a rank was not told")


BACKENDS = [("gloo", 2), ("gloo", 4), ("nccl", 2), ("nccl", 4)]
HOWS = {("gloo", 2): ["parts list offload", "keep columns"], ("gloo", 4): ["recompute", "replicas apart parts keep columns"],
        ("nccl", 2): ["recompute list offload"], ("nccl", 4): ["prefetch columns offload parts", "replicas prefetch recompute"]}


@unittest.skipUnless(dist.is_available(), "the gloo backend is not built")
class FullyShardTest(unittest.TestCase):
    def backends(self, *sizes):
        devices = torch.cuda.device_count() if dist.is_nccl_available() else 0
        return [(backend, size) for backend, size in BACKENDS if size in sizes and (backend == "gloo" or devices >= size)]

    def test_training_is_deterministic_and_matches_one_process(self):
        for backend, size in self.backends(2, 4):
            for how in HOWS[backend, size]:
                with self.subTest(backend=backend, size=size, how=how), tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
                    for path in (a, b):
                        ranks(train_like_one_process, how, path, size=size, backend=backend)
                    for r in range(size):
                        one, two = torch.load(f"{a}/{r}"), torch.load(f"{b}/{r}")
                        self.assertTrue(all(torch.equal(x, y) for x, y in zip(one, two)))

    @unittest.skipUnless(torch.cuda.device_count() >= 2, "fewer than two devices")
    def test_default_mesh_has_the_device_of_the_parameters(self):
        ranks(on_devices_with_gloo, size=2, backend="gloo")

    def test_peak_memory(self):
        for backend, size in self.backends(4):
            if backend == "nccl":
                for offload in (False, True):
                    ranks(memory, offload, size=size, backend=backend)

    def test_mixed_precision_policy(self):
        for backend, _ in self.backends(2):
            ranks(mixed_precision, backend=backend)
            ranks(grad_scaler, backend=backend)

    def test_hybrid_sharding(self):
        for backend, size in self.backends(4):
            ranks(hybrid_sharding, size=size, backend=backend)

    def test_module_groups_and_backward_gather(self):
        for backend, _ in self.backends(2):
            ranks(groups, backend=backend)

    def test_all_reduce_hook(self):
        for backend, _ in self.backends(2):
            ranks(all_reduce_hook, backend=backend)

    def test_sharded_tensors_match_full_tensors(self):
        for backend, _ in self.backends(2):
            ranks(sharded_tensors, backend=backend)

    def test_initialization_from_meta(self):
        for backend, _ in self.backends(2):
            ranks(from_meta, backend=backend)

    def test_exited_rank_is_reported(self):
        for (backend, size), where in zip(self.backends(2, 4), ("forward", "backward", "backward", "backward")):
            self.assertEqual(exit_codes(rank_exits, where, size=size, backend=backend), [9, 7, 9, 9][:size])


if __name__ == "__main__":
    unittest.main()
