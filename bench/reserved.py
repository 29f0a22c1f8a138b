# SPDX-License-Identifier: Apache-2.0
"""Memory reserved by training steps, with and without expandable segments, for Phlox and PyTorch: `python3 bench/reserved.py [parts of names of rows]`.

Prints for each row and setting: peak live memory, peak reserved memory, the waste, and the number of device allocations. A row is one of bench/models.py, or one
defined here, with varying sizes. Each figure is measured in a separate process. Without a GPU, Phlox uses a simulated device with kernels skipped, and PyTorch is
not measured.
"""
import argparse, json, os, random, sys, types

import models, run

SETTINGS = ("", "expandable_segments:True")
STEPS = 12
WANTED = ("GPT-2 124M, bfloat16, 16x1024", "GPT-2 124M, bfloat16 by autocast, 32x1024", "ResNet-50, bfloat16, channels_last, b128", "ResNet-50, tf32, b64",
          "GPT-2 124M, bfloat16, 16 lines of 128 to 1024", "ResNet-50, bfloat16, channels_last, b128, 128 to 224")


@models.row(WANTED[4], aside=True)
def varying_gpt2(o):
    from gpt2 import GPT2
    torch, draw = o.torch, random.Random(1)
    net = (GPT2(64, 16, 16, 2, 1) if o.tiny else GPT2()).to(o.device, torch.bfloat16)
    batch, low, high = (2, 4, 16) if o.tiny else (16, 128, 1024)
    def loss(net):
        text = torch.zeros(batch, draw.randint(low, high) + 1, dtype=torch.int64, device=o.device)
        return net(text[:, :-1], text[:, 1:])
    return models.train(o, net, loss), None


@models.row(WANTED[5], aside=True)
def varying_resnet(o):
    from resnet50 import resnet50
    torch, draw = o.torch, random.Random(1)
    layout = {"dtype": torch.bfloat16, "memory_format": torch.channels_last}
    net = (resnet50(10, 4, (1, 1)) if o.tiny else resnet50()).to(o.device, **layout)
    batch, low, high = (2, 1, 2) if o.tiny else (128, 4, 7)
    def loss(net):
        size = 32 * draw.randint(low, high)
        x = torch.zeros(batch, 3, size, size, device=o.device).to(**layout)
        return net(x).float().square().mean()
    return models.train(o, net, loss, models.sgd(o, net)), None


def worker(library, name, tiny):
    """Prints the peaks of a row."""
    torch = run.bind(library)
    function, more = models.ROWS[name]
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = bool(more.get("tf32"))
    step, _ = function(types.SimpleNamespace(torch=torch, device="cuda", tiny=tiny, comparing=False, losses=1, names=[name]))
    for _ in range(STEPS): step()
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    print(json.dumps([torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), stats["num_device_alloc"]]))


def figures(python, library, name, setting, o):
    """Returns the peaks of a row, measured in a process of the library."""
    command = [python, os.path.abspath(__file__), "--worker", library, name] + ["--tiny"] * o.tiny
    return run.last_json(f"{library}, {setting}", *command, **o.env, PYTORCH_CUDA_ALLOC_CONF=setting)


def show(peaks):
    if not peaks: return f"{'-':>32}"
    live, reserved, taken = peaks
    return f"{live / 2**20:10,.0f}{reserved / 2**20:9,.0f} {1 - live / reserved:6.1%}{taken:6}"


def main(o):
    python, have = run.choose()
    gpu = run.has_gpu(python, "phlox")
    o.env = {"PHLOX_BACKENDS": "cuda"} if gpu else run.SIMULATED
    print("on a GPU" if gpu else "on a simulated device")
    print(f"{STEPS} steps; MiB that lived, MiB reserved, waste, times memory was taken\n{'':56}{'':26}" + "".join(f"{library:>32}" for library in run.LIBRARIES))
    have = [library for library in have if run.has_gpu(python, library) or library == "phlox"]
    for name in o.names or WANTED:
        if name not in models.ROWS: sys.exit(f"no row is called {name!r}")
        for setting in SETTINGS:
            both = [figures(python, library, name, setting, o) if library in have else None for library in run.LIBRARIES]
            print(f"{name:56}{setting or 'default':26}" + "".join(map(show, both)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="names of rows")
    parser.add_argument("--tiny", action="store_true", help="small models: to see that all rows run")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    worker(options.worker, options.names[0], options.tiny) if options.worker else main(options)
