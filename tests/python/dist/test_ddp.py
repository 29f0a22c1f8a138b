# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel. Each test starts its ranks: on CPUs with gloo, and on simulated devices with nccl."""
import functools
import os
import tempfile
import unittest

import jobs
from jobs import exit_codes, ranks
import phlox as torch
import phlox.distributed as dist
from phlox import nn
from phlox.nn.parallel.distributed import DistributedDataParallel as DDP, _MixedPrecision


refuses = functools.partial(jobs.refuses, Exception)


def model():
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3)).double()


def batches():
    torch.manual_seed(12)
    return torch.randn(6, 8, 6).double(), torch.randint(0, 3, (6, 8))


def train(m, part=slice(None), device="cpu", set_to_none=True):
    opt = torch.optim.SGD(m.parameters(), 0.2, momentum=0.9)
    losses = []
    for x, y in zip(*batches()):
        opt.zero_grad(set_to_none)
        loss = nn.functional.cross_entropy(m(x[part].to(device)), y[part].to(device))
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


def train_like_one_process(r, n, device, how, path):
    m = DDP(model().to(device), **how)
    losses = train(m, slice(r, None, n), device, how.get("gradient_as_bucket_view") is None)
    dist.all_reduce(mean := losses.to(device))
    one = model()
    assert torch.allclose(mean.cpu() / n, train(one), atol=1e-12)
    for p, w in zip(m.module.parameters(), one.parameters()):
        assert torch.allclose(p.detach().cpu(), w.detach(), atol=1e-12)
    small = how.get("bucket_cap_mb") is not None
    assert m.reducer.bucket_count() == (6 if small else 1)
    torch.save([p.detach().cpu() for p in m.module.parameters()] + [losses], f"{path}/{r}")


def no_sync_then_sync(r, n, device):
    m, one = DDP(model().to(device)), model()
    x, y = (b[0] for b in batches())
    mine = slice(r * 4, r * 4 + 4)
    with m.no_sync():
        nn.functional.cross_entropy(m(x[mine][:2].to(device)), y[mine][:2].to(device)).backward()
    alone = next(m.parameters()).grad.clone()
    nn.functional.cross_entropy(m(x[mine][2:].to(device)), y[mine][2:].to(device)).backward()
    nn.functional.cross_entropy(one(x), y).backward()
    assert not torch.allclose(alone.cpu(), next(one.parameters()).grad)
    for p, w in zip(m.parameters(), one.parameters()):
        assert torch.allclose(p.grad.cpu() / 2, w.grad, atol=1e-12)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x, branch):
        return {"out": [getattr(self, branch)(x)]}


class Sums(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(1))
        self.register_buffer("other", torch.zeros(1))

    def forward(self, x):
        self.steps += x.sum().detach()
        return self.layer(x)


def hooks_of_buffers(r, n, device):
    place, seen = torch.nn.parallel.distributed._BufferCommHookLocation, []

    def average(state, buffers):
        seen.append((state, sorted(buffers)))
        return [dist.all_reduce(buffers["steps"], dist.ReduceOp.AVG if device != "cpu" else dist.ReduceOp.SUM, async_op=True).get_future()]

    own = 2. * r + 2
    first, second = (3., 6.) if device != "cpu" else (6., 18.)
    for location, wanted in ((place.POST_FORWARD, [first, second]), (place.PRE_FORWARD, [own, first + own])):
        m = DDP(Sums().to(device))
        m._register_buffer_comm_hook("state", average, **({} if location is place.POST_FORWARD else {"comm_hook_location": location}))
        found = []
        for _ in range(2):
            m(torch.full((1, 2), r + 1., device=device)).sum().backward()
            found.append(m.module.steps.item())
        assert found == wanted, found
        before = len(seen)
        with m.no_sync():
            m(torch.ones(1, 2, device=device)).sum().backward()
        m(torch.ones(1, 2, device=device))  # the first pass after no_sync does not synchronise buffers
        assert len(seen) == before + 1
    assert seen[0] == ("state", ["other", "steps"])
    refuses("hook must be callable, got int", lambda: m._register_buffer_comm_hook(None, 3))


def no_sync_of_parts(r, n, device):
    x = torch.full((1, 4), r + 1., device=device)
    halved = {"_register_builtin_comm_hook": dist.BuiltinCommHookType.FP16_COMPRESS}
    for how, hook in (({}, {}), ({"gradient_as_bucket_view": True}, {}), ({"bucket_cap_mb": 1e-5}, {}), ({}, halved)):
        m = DDP(Branches().to(device), find_unused_parameters=True, **how)
        for name, value in hook.items():
            getattr(m, name)(value)

        def run(branch):
            m(x, branch)["out"][0].sum().backward()

        def grads():
            return [None if (grad := getattr(m.module, branch).weight.grad) is None else grad.mean().item() for branch in "abc"]

        with m.no_sync():
            run("a")
        run("b")
        assert grads() == [1.5, 1.5, None]
        with m.no_sync():
            run("c")
            run("b")
        run("a")
        assert grads() == [3., 3., 1.5]
        m.zero_grad()
        run("b")
        assert grads() == [None, 1.5, None]
        m.zero_grad()
        with m.no_sync():
            run("ac"[r])  # other parts on other ranks
        run("b")
        assert grads() == [0.5, 1.5, 1.]
        m.zero_grad()
        with m.no_sync():
            run("a")
        with m.no_sync(), torch.no_grad():
            m(x, "b")
        run("c")
        assert grads() == [1.5, None, 1.5]


def check_unused_parameters(r, n, device):
    m = DDP(Branches().to(device), find_unused_parameters=True)
    x = torch.ones(2, 4, device=device)
    m(x, "a")["out"][0].sum().backward()
    assert m.module.b.weight.grad is None and torch.equal(m.module.a.weight.grad, torch.full((2, 4), 2.0, device=device))
    m.zero_grad()
    m(x, "ab"[r])["out"][0].sum().backward()
    assert torch.equal(m.module.a.weight.grad, torch.ones(2, 4, device=device))
    assert torch.equal(m.module.b.weight.grad, torch.ones(2, 4, device=device)) and m.module.c.weight.grad is None
    m = DDP(Branches().to(device), static_graph=True)
    for _ in range(3):
        m.zero_grad()
        m(x, "b")["out"][0].sum().backward()
        assert torch.equal(m.module.b.weight.grad, torch.full((2, 4), 2.0, device=device)) and m.module.a.weight.grad is None
    m = DDP(Branches().to(device))
    m(x, "a")["out"][0].sum().backward()
    try:
        m(x, "a")
    except RuntimeError as e:
        assert "Expected to have finished reduction in the prior iteration before starting a new one." in str(e)
        assert f"did not receive grad for rank {r}: 2 3 4 5" in str(e), e
    else:
        raise AssertionError("gradients are missing, and nothing was said")


def broadcast_and_errors(r, n, device):
    torch.manual_seed(r)
    m = DDP(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).to(device).to(memory_format=torch.channels_last))
    out = [torch.empty(3, 2, 3, 3, device=device) for _ in range(n)]
    dist.all_gather(out, m.module[0].weight.detach().contiguous())
    assert torch.equal(out[0], out[1])
    for _ in range(2):
        m(torch.randn(4, 2, 5, 5, device=device)).square().sum().backward()
    dist.all_gather(out, m.module[0].weight.grad.contiguous())
    assert torch.equal(out[0], out[1])
    with torch.no_grad():
        m.module[1].running_mean.fill_(r)
        m(torch.randn(4, 2, 5, 5, device=device))
    m.eval()
    with torch.no_grad():
        m(torch.randn(4, 2, 5, 5, device=device))
    assert list(m.state_dict())[0] == "module.0.weight" and str(m).startswith("DistributedDataParallel(\n  (module): Seq")

    refuses("is not needed when a module doesn't have any parameter", lambda: DDP(nn.ReLU()))
    refuses("device_ids can only be None or contain a single element.", lambda: DDP(model(), device_ids=[0, 1]))
    refuses(f"while rank {1 - r} has inconsistent {[4, 2][r]} params.",
            lambda: DDP(nn.Sequential(*[nn.Linear(2, 2, device=device) for _ in range(r + 1)])))
    refuses("params[0] in this process with sizes [2, 3] appears not to match sizes of the same param in process 0." if r else
            "[0]: params[0] in process 1 appears not to match sizes", lambda: DDP(nn.Linear(2 + r, 2, device=device)))
    refuses("appears not to match dtype", lambda: DDP(nn.Linear(2, 2, device=device, dtype=[torch.float32, torch.float64][r])))


def sync_batch_norm(r, n, device):
    torch.manual_seed(5)
    whole, factor = torch.randn(7, 3, 4).double(), torch.randn(7, 3, 4).double()
    one, both = nn.BatchNorm1d(3).double(), nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3).double(), dist.group.WORLD).to(device)
    assert type(both) is nn.SyncBatchNorm and both.process_group is dist.group.WORLD and nn.SyncBatchNorm(3).process_group is None
    part = slice(0, 2) if r == 0 else slice(2, 7)  # unequal sizes
    for momentum in (0.1, None):
        one.momentum = both.momentum = momentum
        x, y = whole.clone().requires_grad_(), whole[part].to(device).requires_grad_()
        a, b = one(x), both(y)
        (a * factor).sum().backward()
        (b * factor[part].to(device)).sum().backward()
        assert torch.allclose(b.cpu(), a[part], atol=1e-12) and torch.allclose(y.grad.cpu(), x.grad[part], atol=1e-12)
        for p, w in zip(both.parameters(), one.parameters()):
            dist.all_reduce(p.grad)
            assert torch.allclose(p.grad.cpu(), w.grad, atol=1e-12)
            p.grad = w.grad = None
        for p, w in zip(both.buffers(), one.buffers()):
            assert torch.allclose(p.cpu(), w, atol=1e-12)
    empty = torch.zeros(0 if r else 4, 3, device=device).double().requires_grad_()
    both(empty).sum().backward()
    assert empty.grad.shape == empty.shape
    half = nn.SyncBatchNorm(3, affine=False).to(device)
    out = half(whole[part].to(device).to(torch.float16))
    wanted = nn.functional.batch_norm(whole.float(), None, None, training=True)[part]
    assert out.dtype == torch.float16 and torch.allclose(out.float().cpu(), wanted, atol=1e-2)
    m = DDP(nn.SyncBatchNorm(3).to(device), broadcast_buffers=False)
    m(whole[part].to(device).float()).square().sum().backward()
    try:
        both.train()(torch.zeros(3, device=device))
    except ValueError as e:
        assert "expected at least 2D input (got 1D input)" in str(e)
    else:
        raise AssertionError("a vector was normalised")


class HalfSum:
    """Result of a hook: any object with wait()."""

    def __init__(self, tensor):
        self.tensor, self.work = tensor, dist.all_reduce(tensor, async_op=True)

    def wait(self):
        self.work.wait()
        return [self.tensor / 4]


def hooks(r, n, device):
    seen = []

    def hook(state, bucket):
        seen.append((state, bucket.index(), bucket.is_last(), len(bucket.parameters())))
        assert bucket.gradients()[0].numel() <= bucket.buffer().numel()
        return HalfSum(bucket.buffer())
    m = DDP(nn.Linear(3, 1, device=device))
    m.register_comm_hook("s", hook)
    m(torch.full((1, 3), 1.0 + r, device=device)).sum().backward()
    assert m.module.weight.grad.tolist() == [[0.75] * 3] and seen == [("s", 0, True, 2)]
    try:
        m.register_comm_hook(None, hook)
    except RuntimeError as e:
        assert "can only be called once" in str(e)
    else:
        raise AssertionError("a second hook was taken")


def default_hooks(r, n, device):
    from phlox.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks as hooks
    x = torch.tensor([[1.0, 2.0, 4.0], [0.5, 1.5, -3.0]], device=device) * (1 + r)

    def gradient(hook, state=None, **how):
        torch.manual_seed(3)
        m = DDP(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).to(device), **how)
        if hook:
            m.register_comm_hook(state, hook)
        for _ in range(2):
            m.zero_grad()
            m(x).square().sum().backward()
        return m.module[0].weight.grad
    plain = gradient(None)
    assert torch.equal(gradient(hooks.allreduce_hook), plain) and torch.equal(gradient(hooks.allreduce_hook, dist.group.WORLD, bucket_cap_mb=1e-6), plain)
    for hook, close in ((hooks.fp16_compress_hook, 2e-3), (hooks.bf16_compress_hook, 2e-2)):
        assert torch.allclose(gradient(hook), plain, rtol=close, atol=close) and gradient(hook).dtype == torch.float32
        wrapper = hooks.fp16_compress_wrapper if hook is hooks.fp16_compress_hook else hooks.bf16_compress_wrapper
        assert torch.equal(gradient(wrapper(hooks.allreduce_hook)), gradient(hook))
    m = DDP(nn.Linear(3, 1, device=device))
    m._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    m(x).sum().backward()
    assert torch.allclose(m.module.weight.grad, torch.tensor([[2.25, 5.25, 1.5]], device=device))
    own = gradient(debugging_hooks.noop_hook)
    dist.all_reduce(own)
    assert torch.allclose(own / n, plain)
    try:
        hooks.fp16_compress_wrapper(3)
    except TypeError as e:
        assert "Communication hook must be callable." in str(e)
    else:
        raise AssertionError("no error")


def invalid_hook(r, n, device):
    def hook(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0][:1])
    m = DDP(nn.Linear(3, 1, device=device))
    m.register_comm_hook(None, hook)
    try:
        m(torch.ones(1, 3, device=device)).sum().backward()
    except RuntimeError as e:
        assert "expected 4 elements from a communication hook, got 1" in str(e), e
    else:
        raise AssertionError("no error")


def uneven_batches(rank):
    """Rank r has 1 + 2 r batches."""
    torch.manual_seed(20 + rank)
    return torch.randn(1 + 2 * rank, 4, 6).double()


def join_uneven_inputs(r, n, device, how, divide):
    """Matches one process that sums, for each step, the gradients of the ranks with a batch left."""
    m, one = DDP(model().to(device), **how), model()
    opt, alone = (torch.optim.SGD(x.parameters(), 0.1) for x in (m, one))
    for _ in range(2):  # two epochs
        with m.join(divide_by_initial_world_size=divide):
            for x in uneven_batches(r).to(device):
                opt.zero_grad()
                m(x).square().mean().backward()
                opt.step()
        parts = [uneven_batches(k) for k in range(n)]
        for step in range(2 * n - 1):
            some = [part[step] for part in parts if step < len(part)]
            alone.zero_grad()
            (sum(one(x).square().mean() for x in some) / (n if divide else len(some))).backward()
            alone.step()
        for p, w in zip(m.module.parameters(), one.parameters()):
            assert torch.allclose(p.detach().cpu(), w.detach(), atol=1e-12)


class Counts(nn.Module):
    """Has a buffer, and a parameter unused in even steps."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 1), nn.Linear(2, 1)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x, both):
        with torch.no_grad():
            self.steps += 1
        return self.a(x) + self.b(x) if both else self.a(x)


def join_with_buffers_and_unused_parameters(r, n, device):
    m = DDP(Counts().to(device), find_unused_parameters=True)
    x = torch.ones(1, 2, device=device)
    with m.join():
        for step in range(5 * r):  # rank 0 has no batch
            m.zero_grad()
            m(x, step % 2 == 0).sum().backward()
            assert m.module.a.weight.grad.tolist() == [[0.5, 0.5]] and (m.module.b.weight.grad is None) == (step % 2 == 1)
    assert m.module.steps.item() == 5 * (n - 1)  # of the last rank to join
    with m.join():
        for step in range(4 * (2 - r)):
            with m.no_sync():
                m(x, True).sum().backward()
            m(x, True).sum().backward()
    with m.join(enable=False):
        m(x, True).sum().backward()

    def hook(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / state)
    m = DDP(nn.Linear(2, 1, bias=False, device=device), gradient_as_bucket_view=True)
    m.register_comm_hook(4, hook)
    with m.join():
        for _ in range(1 + r):
            m.zero_grad(False)
            m(x).sum().backward()
    assert m.module.weight.grad.tolist() == [[0.25 * (2 - r)] * 2]
    m = DDP(nn.Linear(2, 1, device=device))
    try:
        with m.join(throw_on_early_termination=True):
            for _ in range(1 + r):
                m(x).sum().backward()
    except RuntimeError as e:
        assert str(e) == (f"Rank {r} exhausted all inputs." if r == 0 else "Detected at least one rank that exhausted inputs. Throwing across all ranks."), e
    else:
        raise AssertionError("no error")
    m = DDP(nn.Linear(2, 1, device=device), static_graph=True)
    try:
        m.reducer.shadow()
    except NotImplementedError as e:
        assert "first step of a static graph" in str(e)
    else:
        raise AssertionError("no error")


def custom_join_hooks(r, n, device):
    from phlox.distributed.algorithms.join import Join, Joinable, JoinHook

    class Counter(Joinable):
        def __init__(self):
            super().__init__()
            self.sums, self.ended = [], None

        def step(self):
            Join.notify_join_context(self)
            dist.all_reduce(t := torch.ones(1, device=device))
            self.sums.append(t.item())

        def join_hook(self, **kwargs):
            counter = self

            class Hook(JoinHook):
                def main_hook(self):
                    dist.all_reduce(torch.zeros(1, device=device))

                def post_hook(self, is_last_joiner):
                    counter.ended = is_last_joiner, kwargs
            return Hook()

        join_device, join_process_group = property(lambda self: device), property(lambda self: dist.group.WORLD)
    counter = Counter()
    with Join([counter], word=5):
        for _ in range(2 + r):
            counter.step()
    assert counter.sums == [2, 2, 1][:2 + r] and counter.ended == (r == 1, {"word": 5}), (counter.sums, counter.ended)
    try:
        Join([])
    except ValueError as e:
        assert "requires at least one joinable" in str(e)
    else:
        raise AssertionError("no error")


def mixed_model(device):
    torch.manual_seed(13)
    m = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3))
    m[4].bias.requires_grad_(False)
    return m.to(device)


def train_mixed_precision(r, n, device, path):
    """Matches manual casts: gradients of the low-precision copy are reduced in the reduction dtype."""
    low, wide = torch.bfloat16, torch.float32
    for reduce, how in ((wide, {}), (None, {}), (wide, {"gradient_as_bucket_view": True}), (torch.float16, {"static_graph": True}), (wide, {"bucket_cap_mb": 1e-4})):
        m = DDP(mixed_model(device), mixed_precision=_MixedPrecision(low, reduce, low), **how)
        own, hand = m.module, mixed_model(device)
        opt, other = (torch.optim.AdamW([p for p in of.parameters() if p.requires_grad], 0.1) for of in (own, hand))
        assert own[1].running_mean.dtype == low and own[1].num_batches_tracked.dtype == torch.int64
        copy = mixed_model(device).to(low)
        for x, y in zip(*batches()):
            x, y = x[r::n].float().to(device), y[r::n].to(device)
            opt.zero_grad()
            out = m(x)
            assert out.dtype == low and {p.dtype for p in m.parameters()} == {low}
            loss = nn.functional.cross_entropy(out.float(), y)
            loss.backward()
            assert {p.dtype for p in m.parameters()} == {wide} and own[0].weight.grad.dtype == wide
            opt.step()
            with torch.no_grad():
                for p, q in zip(copy.parameters(), hand.parameters()):
                    p.copy_(q)
                for b in copy.buffers():
                    dist.broadcast(b, 0)
            copy.zero_grad()
            expected = nn.functional.cross_entropy(copy(x.to(low)).float(), y)
            expected.backward()
            assert torch.equal(expected, loss), (expected, loss)
            for p, q in zip(copy.parameters(), hand.parameters()):
                if p.requires_grad:
                    dist.all_reduce(sent := p.grad.to(reduce or low) / n)
                    q.grad = sent.to(wide)
            other.step()
            for p, q in zip(own.parameters(), hand.parameters()):
                assert torch.equal(p, q), (p, q)
    torch.save([p.detach().cpu() for p in own.parameters()], f"{path}/{r}")
    check_mixed_precision_modules(m, x, r)


def check_mixed_precision_modules(m, x, r):
    m.eval()
    with torch.no_grad():
        assert m(x).dtype == torch.bfloat16 and m.module[0].weight.dtype == torch.float32
    with m.no_sync():
        m(x).sum().backward()
    assert m.module[0].weight.dtype == m.module[0].weight.grad.dtype == torch.float32
    m(x).sum().backward()
    assert m.module[0].weight.dtype == m.module[0].weight.grad.dtype == torch.float32
    refuses("register_comm_hook or register_builtin_comm_hook can only be called once.", lambda: m.register_comm_hook(None, hooks))
    refuses("Only Tensors of floating point and complex dtype can require gradients",
            lambda: DDP(nn.Linear(2, 2, device=x.device), mixed_precision=_MixedPrecision(torch.int32)))
    odd = nn.Linear(2, 2, device=x.device)
    odd._ddp_params_and_buffers_to_ignore = ["bias"]
    d = DDP(odd, mixed_precision=_MixedPrecision(torch.float16))
    try:
        d(torch.ones(1, 2, device=x.device))
    except RuntimeError:
        pass  # mixed float16 and float32
    assert odd.bias.dtype == torch.float32 and odd.weight.dtype == torch.float16
    again = torch.utils.checkpoint.checkpoint
    layers = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)).to(x.device)
    layers.forward = lambda x: again(layers[2], again(layers[0], x, use_reentrant=False).tanh(), use_reentrant=True)
    d = DDP(layers, mixed_precision=_MixedPrecision(torch.bfloat16))
    d(x).sum().backward()
    assert layers[0].weight.grad.dtype == layers[0].weight.dtype == torch.float32


def rank_exits(r, n, device):
    class Dies(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            if r == 1:
                os._exit(7)
            return grad

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.b(Dies.apply(self.a(x)))
    try:  # a late rank may observe the death in its first call
        m = DDP(Layers().to(device), bucket_cap_mb=1e-5)
        for _ in range(2):  # the next call reports an error of the stream
            m(torch.ones(2, 4, device=device)).sum().backward()
            if device.type == "cuda":
                torch.cuda.synchronize()
    except RuntimeError as e:
        assert type(e).__name__ == "DistBackendError" and "[Rank 0] " in str(e) and " number " in str(e), e
        os._exit(9)
    raise AssertionError("the death of a rank was not told")


BACKENDS = [("gloo", 2), ("gloo", 4), ("nccl", 2), ("nccl", 4)]
HOWS = [{}, {"bucket_cap_mb": 1e-6}, {"gradient_as_bucket_view": True}, {"static_graph": True, "bucket_cap_mb": 1e-6}]


@unittest.skipUnless(dist.is_available(), "the gloo backend is not built")
class DDPTest(unittest.TestCase):
    def backends(self, *sizes):
        devices = torch.cuda.device_count() if dist.is_nccl_available() else 0
        return [(backend, size) for backend, size in BACKENDS if size in sizes and (backend == "gloo" or devices >= size)]

    def test_training_is_deterministic_and_matches_one_process(self):
        for i, (backend, size) in enumerate(self.backends(2, 4)):
            with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
                for path in (a, b):
                    ranks(train_like_one_process, HOWS[i], path, size=size, backend=backend)
                for r in range(size):
                    one, two = torch.load(f"{a}/{r}"), torch.load(f"{b}/{r}")
                    self.assertTrue(all(torch.equal(x, y) for x, y in zip(one, two)))

    def test_no_sync_accumulates_gradients(self):
        for backend, _ in self.backends(2):
            ranks(no_sync_then_sync, backend=backend)

    def test_a_hook_replaces_the_broadcast_of_buffers(self):
        for backend, _ in self.backends(2):
            ranks(hooks_of_buffers, backend=backend)

    def test_no_sync_of_unused_parameters_is_reduced_later(self):
        for backend, _ in self.backends(2):
            ranks(no_sync_of_parts, backend=backend)

    def test_unused_parameters(self):
        for backend, _ in self.backends(2):
            ranks(check_unused_parameters, backend=backend)

    def test_initial_broadcast_and_mismatch_errors(self):
        for backend, _ in self.backends(2):
            ranks(broadcast_and_errors, backend=backend)

    def test_sync_batch_norm(self):
        for backend, _ in self.backends(2):
            ranks(sync_batch_norm, backend=backend)

    def test_comm_hooks(self):
        for backend, _ in self.backends(2):
            ranks(hooks, backend=backend)
            ranks(default_hooks, backend=backend)
            ranks(invalid_hook, backend=backend)

    def test_join_with_uneven_inputs(self):
        for backend, size in self.backends(2, 4):
            ranks(join_uneven_inputs, {"bucket_cap_mb": 1e-6} if size == 2 else {}, size == 2, size=size, backend=backend)
        for backend, _ in self.backends(2):
            ranks(join_with_buffers_and_unused_parameters, backend=backend)
            ranks(custom_join_hooks, backend=backend)

    def test_mixed_precision(self):
        for backend, _ in self.backends(2):
            bits = []
            for _ in range(2):
                with tempfile.TemporaryDirectory() as path:
                    ranks(train_mixed_precision, path, backend=backend)
                    bits.append([torch.load(f"{path}/{r}") for r in range(2)])
            for one, two in zip(*bits):
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(one, two)))

    def test_exited_rank_is_reported_in_backward(self):
        for backend, _ in self.backends(2):
            self.assertEqual(exit_codes(rank_exits, backend=backend), [9, 7])


if __name__ == "__main__":
    unittest.main()
