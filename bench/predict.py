# SPDX-License-Identifier: Apache-2.0
"""Predicts the time of training steps, in virtual time on simulated devices: `python3 bench/predict.py [parts of names of rows of bench/models.py]`.

Prints the time of a step of each row on the machine described by PHLOX_SIM_MACHINE (default: an H200). `--scaling MODEL` (mlp, cnn, gpt2) prints the scaling of a
step to 1,024 devices: DistributedDataParallel simulates two ranks and gives the links the time of all ranks; DataParallel simulates up to 8 devices. `--trace FILE`
writes a trace of a rank's last step, for the largest number of ranks. Kernels are skipped: rows compute no values.
"""
import argparse, json, os, sys, tempfile, threading, types

import run

RANKS = (1, 2, 4, 8, 16, 64, 256, 1024)
STEPS = 3


def bind():
    sys.path.insert(0, os.path.join(run.ROOT, "examples"))
    return run.bind("phlox")


def timed(torch, step, device=0):
    """Returns the milliseconds per step of several steps in sequence."""
    step()
    begin = torch.cuda.virtual_time(device)
    for _ in range(STEPS): step()
    return (torch.cuda.virtual_time(device) - begin) / STEPS / 1e6


# ---- worker processes: each prints one line

def row(name, tiny="0"):
    torch = bind()
    import measured, models, reserved  # these add rows
    function, more = models.ROWS[name]
    o = types.SimpleNamespace(torch=torch, device="cuda", tiny=bool(int(tiny)), comparing=False, losses=1, names=[name])
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, bool(more.get("tf32"))
    return timed(torch, function(o)[0]) / more.get("parts", 1)


def model(torch, name):
    """Returns the net, its input and target, and the loss."""
    F = torch.nn.functional
    if name == "gpt2":
        from gpt2 import GPT2
        words = torch.zeros(8, 1025, dtype=torch.int64)
        return GPT2(), words[:, :-1].contiguous(), words[:, 1:].contiguous(), None
    import nets
    shape = (128, 784) if name == "mlp" else (64, 1, 28, 28)
    return getattr(nets, name)(), torch.zeros(shape), torch.zeros(shape[0], dtype=torch.int64), F.cross_entropy


def train(torch, net, x, y, loss_of):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    def step():
        with torch.autocast("cuda", torch.bfloat16): loss = loss_of(net(x), y) if loss_of else net(x, y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return step


def alone(name):
    torch = bind()
    net, x, y, loss_of = model(torch, name)
    return timed(torch, train(torch, net.cuda(), x.cuda(), y.cuda(), loss_of))


def ddp(name, trace=None):
    torch = bind()
    import torch.distributed as dist
    gate = threading.Barrier(2)
    def rank(rank):
        dist.init_process_group("nccl")
        net, x, y, loss_of = model(torch, name)
        step = train(torch, torch.nn.parallel.DistributedDataParallel(net.cuda()), x.cuda(), y.cuda(), loss_of)
        took = timed(torch, step, rank)
        if not trace: return took
        prof = torch.autograd.profiler.profile(use_device="cuda")
        gate.wait()  # ranks are threads; the profile covers all of them
        if rank == 0: prof.__enter__()
        gate.wait()
        step()
        torch.cuda.synchronize()
        gate.wait()
        if rank == 0:
            prof.__exit__(None, None, None)
            prof.export_chrome_trace(trace)
        gate.wait()
        return took
    return max(dist.simulate(rank, nprocs=2))


def ranks(name, tiny="0"):
    """Runs a row of bench/distributed.py on two ranks."""
    torch = bind()
    import distributed, torch.distributed as dist
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    def rank(rank):
        dist.init_process_group("nccl")
        o = types.SimpleNamespace(torch=torch, dist=dist, rank=rank, size=2, device=f"cuda:{rank}", tiny=bool(int(tiny)), comparing=False)
        return timed(torch, distributed.ROWS[name][0](o)[0], rank)
    return max(dist.simulate(rank, nprocs=2))


def data_parallel(name, count):
    torch = bind()
    net, x, y, loss_of = model(torch, name)
    count = int(count)
    x, y = (t.repeat(count, *[1] * (t.dim() - 1)).cuda() for t in (x, y))
    return timed(torch, train(torch, torch.nn.DataParallel(net.cuda(), list(range(count))), x, y, loss_of))


# ---- tables

def in_process(call, *arguments, devices=1, figures=""):
    """Returns the figure computed by a separate process."""
    own = os.environ.get("PHLOX_SIM_MACHINE")
    with tempfile.NamedTemporaryFile("w", suffix=".machine") as file:
        file.write((open(own).read() if own else "") + "\n" + figures)
        file.flush()
        env = {**run.SIMULATED, "PHLOX_SIM_DEVICES": str(devices), "PHLOX_SIM_MACHINE": file.name}
        return run.last_json(" ".join((call, *arguments)), sys.executable, os.path.abspath(__file__), "--worker", call, *arguments, **env)


def text(ms):
    return "-" if ms is None else f"{ms:.3f}"


def scaling(name, trace):
    one = in_process("alone", name)
    print(f"{'devices':>8}{'DDP, ms':>12}{'efficiency':>12}{'DataParallel, ms':>20}{'efficiency':>12}")
    for count in RANKS:
        last = [trace] if trace and count == RANKS[-1] else []
        ranks = one if count == 1 else in_process("ddp", name, *last, devices=2, figures=f"ranks = {count}\n")
        threads = in_process("data_parallel", name, str(count), devices=count) if count <= 8 else None
        print(f"{count:8}{text(ranks):>12}{one / ranks if ranks else 0:12.1%}{text(threads):>20}" + (f"{one / threads:12.1%}" if threads else f"{'-':>12}"), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scaling", choices=("mlp", "cnn", "gpt2"))
    parser.add_argument("--trace")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.worker:
        print(json.dumps(globals()[o.names[0]](*o.names[1:])))
    elif o.scaling:
        scaling(o.scaling, o.trace)
    else:
        import models
        for name, (_, more) in models.ROWS.items():
            if more.get("cpu") or not any(part in name for part in o.names or [""]): continue
            print(f"{name:60}{text(in_process('row', name, devices=more.get('devices', 1))):>12} ms", flush=True)


if __name__ == "__main__":
    main()
