# SPDX-License-Identifier: Apache-2.0
"""Distributed training, Phlox compared to PyTorch: `python3 bench/distributed.py [parts of names of rows] [--ranks 2] [--device cpu]`.

Devices use nccl, with a device per rank; the CPU uses gloo. Prints for each row both libraries' figures, their ratio and the goal on two GPUs: GB/s of an
all_reduce (bytes * 2(n-1)/n, the convention for links), the time of a step, or tokens per second of all ranks. The slowest rank counts.
"""
import argparse, functools, gc, importlib, json, os, socket, subprocess, sys, time

import models, run

ROWS = {}  # name: (function, goal, unit)


def row(name, goal=None, unit="s", **more):
    def add(function):
        ROWS[name] = (function, {"goal": goal, "unit": unit, **more})
        return function
    return add


# ---- rows: a function returning (step, units per step, or None for seconds)

def all_reduce(o, mib):
    x = o.torch.zeros(mib << (10 if o.tiny else 18), device=o.device)
    return lambda: o.dist.all_reduce(x), x.numel() * 4 * 2 * (o.size - 1) / o.size / 1e9


@row("all_reduce of 1 KiB")
def all_reduce_small(o):
    x = o.torch.zeros(256, device=o.device)
    return lambda: o.dist.all_reduce(x), None


for _mib, _goal in (1, None), (64, None), (512, 311):
    row(f"all_reduce of {_mib} MiB", _goal, "GB/s")(lambda o, mib=_mib: all_reduce(o, mib))


def parallel(o, net, loss_of, autocast=None, optimizer=None, **more):
    net = o.torch.nn.parallel.DistributedDataParallel(net, device_ids=[o.rank] if o.device == "cuda" else None, **more)
    return models.train(o, net, loss_of, optimizer and optimizer(net), autocast)


def mlp(o, batch, width=4096, parallel=parallel):
    torch, width = o.torch, 16 if o.tiny else width
    net = torch.nn.Sequential(*[part for _ in range(4) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]).to(o.device)
    x = torch.randn(8 if o.tiny else batch // o.size, width).to(o.device)
    return parallel(o, net, lambda net: net(x).square().mean(), optimizer=lambda net: models.sgd(o, net)), None


row("DDP, MLP-1024, b64 a rank")(lambda o: mlp(o, 64 * o.size, 1024))
row("DDP, MLP-4096, tf32, b256", 0.75e-3)(lambda o: mlp(o, 256))
row("DDP, MLP-4096, tf32, b8192", 9.8e-3)(lambda o: mlp(o, 8192))
in_buckets = functools.partial(parallel, gradient_as_bucket_view=True)
row("DDP, MLP-4096, tf32, b256, gradients in buckets")(lambda o: mlp(o, 256, parallel=in_buckets))


@row("DDP, MLP-4096, tf32, b256, as one graph", devices=True)
def graph(o):
    aside = o.torch.cuda.Stream()
    with o.torch.cuda.stream(aside): step, _ = mlp(o, 256)
    aside.synchronize()
    return models.captured(o, step, warm=11), None


def gpt2(o, batch, together, parallel=parallel):
    from gpt2 import GPT2
    torch = o.torch
    net = (GPT2(64, 16, 16, 2, 1) if o.tiny else GPT2()).to(o.device)
    batch, length = (2, 16) if o.tiny else (batch, 1024)
    text = torch.randint(net.words.num_embeddings, (batch, length + 1)).to(o.device)
    x, y = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    make = parallel if together else lambda o, net, loss_of, autocast: models.train(o, net, loss_of, autocast=autocast)
    return make(o, net, lambda net: net(x, y), torch.bfloat16), o.size * batch * length


row("GPT-2 124M, bfloat16 by autocast, 32x1024 a rank, each by itself", None, "tokens/s")(lambda o: gpt2(o, 32, False))
row("GPT-2 124M, bfloat16 by autocast, 32x1024 a rank, DDP", None, "tokens/s")(lambda o: gpt2(o, 32, True))
row("GPT-2 124M, bfloat16 by autocast, 32x1024 a rank, DDP, gradients in buckets", None, "tokens/s")(lambda o: gpt2(o, 32, True, parallel=in_buckets))


def mixed(o, net, loss_of, autocast=None, optimizer=None):
    """Parameters in a low dtype in forward and backward, gradients reduced in float32."""
    policy = importlib.import_module(o.torch.__name__ + ".nn.parallel.distributed")._MixedPrecision(autocast, o.torch.float32)
    net = o.torch.nn.parallel.DistributedDataParallel(net, device_ids=[o.rank], mixed_precision=policy)
    return models.train(o, net, loss_of, optimizer and optimizer(net))


row("GPT-2 124M, 32x1024 a rank, DDP in bfloat16 of its own", None, "tokens/s", devices=True)(lambda o: gpt2(o, 32, True, parallel=mixed))


def sharded(o, net, loss_of, autocast=None, optimizer=None, offload=False, **more):
    """Shards each block of a net, and the rest, as separate groups. With autocast, parameters are gathered in its dtype."""
    fsdp = importlib.import_module(o.torch.__name__ + ".distributed.fsdp")
    more["mp_policy"] = fsdp.MixedPrecisionPolicy(param_dtype=autocast, reduce_dtype=o.torch.float32 if autocast else None)
    if offload: more["offload_policy"] = fsdp.CPUOffloadPolicy(pin_memory=o.device == "cuda")
    for block in getattr(net, "blocks", [part for part in net if list(part.parameters())] if isinstance(net, o.torch.nn.Sequential) else []):
        fsdp.fully_shard(block, **more)
    fsdp.fully_shard(net, **more)
    return models.train(o, net, loss_of, optimizer and optimizer(net))


def replicas(o, net, loss_of, autocast=None, optimizer=None):
    """Two replicas, each sharded over half the ranks."""
    mesh = o.dist.init_device_mesh(o.device, (2, o.size // 2), mesh_dim_names=("replica", "part"))
    return sharded(o, net, loss_of, autocast, optimizer, mesh=mesh)


offloaded = functools.partial(sharded, offload=True)  # parameters, gradients and optimizer state on the CPU
row("fully_shard, MLP-4096, tf32, b8192")(lambda o: mlp(o, 8192, parallel=sharded))
row("fully_shard, MLP-1024, b64 a rank")(lambda o: mlp(o, 64 * o.size, 1024, parallel=sharded))
row("fully_shard, MLP-1024, b64 a rank, parts on the CPU")(lambda o: mlp(o, 64 * o.size, 1024, parallel=offloaded))
row("fully_shard, MLP-1024, b64 a rank, two replicas")(lambda o: mlp(o, 64 * o.size, 1024, parallel=replicas))
row("GPT-2 124M, 32x1024 a rank, fully_shard in bfloat16", None, "tokens/s")(lambda o: gpt2(o, 32, True, parallel=sharded))
row("GPT-2 124M, 32x1024 a rank, fully_shard in bfloat16, parts on the CPU", None, "tokens/s")(lambda o: gpt2(o, 32, True, parallel=offloaded))


# ---- measuring

def slowest(o, seconds):
    t = o.torch.tensor([seconds], device=o.device)
    o.dist.all_reduce(t, o.dist.ReduceOp.MAX)
    return t.item()


def measure(o, step):
    """Returns the seconds of a step: the minimum over a few stretches, each timed by its slowest rank."""
    def repeat(times):
        o.dist.barrier()
        o.wait()
        begin = time.perf_counter()
        for _ in range(times): step()
        o.wait()
        return slowest(o, time.perf_counter() - begin) / times
    repeat(3)
    times = max(1, int(o.seconds / 5 / repeat(2)))
    return min(repeat(times) for _ in range(5))


def worker(library, o):
    """Runs one rank. Rank 0 prints a line of JSON per row."""
    torch = o.torch = run.bind(library)
    import torch.distributed as dist
    o.dist, o.rank, o.size, o.comparing = dist, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), False
    if o.device == "cuda": torch.cuda.set_device(o.rank)
    o.wait = torch.cuda.synchronize if o.device == "cuda" else lambda: None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    dist.init_process_group("nccl" if o.device == "cuda" else "gloo")
    for name, (function, more) in wanted(o).items():
        if more.get("devices") and o.device != "cuda": continue
        torch.manual_seed(1)
        try:
            step, units = function(o)
            seconds = measure(o, step)
            found = {"figure": units / seconds if units else seconds, "peak": torch.cuda.max_memory_allocated() if o.device == "cuda" else None}
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        step = None
        gc.collect()
        if o.device == "cuda": torch.cuda.empty_cache(), torch.cuda.reset_peak_memory_stats()
        if o.rank == 0: print(json.dumps({name: found}), flush=True)
    dist.destroy_process_group()


def wanted(o):
    return {name: entry for name, entry in ROWS.items() if any(part in name for part in o.names)}


def job(o, python, library):
    """Runs the ranks of a library and yields the results row by row."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [python, os.path.abspath(__file__), "--device", o.device, "--seconds", str(o.seconds), "--worker", library] + ["--tiny"] * o.tiny + o.names
    ranks = []
    for rank in range(o.ranks):
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(o.ranks), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen(command, env={**run.environment(), **where}, stdout=subprocess.PIPE if rank == 0 else None, text=True))
    for line in ranks[0].stdout:
        if line.startswith("{"): yield json.loads(line)
    if any(rank.wait() for rank in ranks): print(f"{library}: a rank has failed", file=sys.stderr)


def text(value, unit):
    return "-" if value is None else run.text(value, "s") if unit == "s" else f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def show(name, both):
    more = ROWS[name][1]
    ours, theirs = (both.get(library, {}).get("figure") for library in run.LIBRARIES)
    ratio = "" if not ours or not theirs else f"{theirs / ours if more['unit'] == 's' else ours / theirs:.2f}"
    peaks = "/".join(f"{both[l]['peak'] / 2**20:,.0f}" if both.get(l, {}).get("peak") else "-" for l in run.LIBRARIES)
    print(f"{name:68}{text(ours, more['unit']):>17}{text(theirs, more['unit']):>17}{ratio:>6}{text(more['goal'], more['unit']):>10}{peaks:>16}", flush=True)
    for library, figures in both.items():
        if "error" in figures: print(f"    {library}: {figures['error']}", flush=True)


def main(o):
    python, have = run.choose()
    found = {}
    print(f"{'':68}{'Phlox':>17}{'torch':>17}{'ratio':>6}{'goal':>10}{'peak, MiB':>16}", flush=True)
    for library in have:  # the last library's line completes a row
        for line in job(o, python, library):
            (name, figures), = line.items()
            found.setdefault(name, {})[library] = figures
            if library == have[-1]: show(name, found[name])
    for name, both in found.items():
        if have[-1] not in both: show(name, both)
    with open(o.out, "w") as file: json.dump(found, file, indent=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of rows")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a row is measured")
    parser.add_argument("--tiny", action="store_true", help="small models: to see that all rows run")
    parser.add_argument("--out", default=os.path.join(run.ROOT, "build", "distributed.json"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.names = options.names or [""]
    worker(options.worker, options) if options.worker else main(options)
