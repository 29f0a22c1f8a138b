# SPDX-License-Identifier: Apache-2.0
"""torch.compile in Phlox and PyTorch, in turns in one process: python3 bench/fused.py [ROWS]. DEVICE is "cpu" (default) or "cuda", THREADS the CPU threads (2).

Each row is a formula of pointwise ops: call by call, and compiled. Prints minimum milliseconds of TURNS (12) turns and two ratios: Phlox's own gain, and its
compiled time to PyTorch's. The lower bound of a row is its traffic: each input is read once and each result written once. On a GPU the last columns are the
MiB that a compiled call allocates at most, and the seconds of its first call (PHLOX_CACHE=0: with an empty cache).
"""
import os, sys, time, warnings

import phlox

try:
    import torch as pytorch
except ImportError:
    pytorch = None
warnings.simplefilter("ignore")
DEVICE, THREADS, TURNS = os.environ.get("DEVICE", "cpu"), int(os.environ.get("THREADS", "2")), int(os.environ.get("TURNS", "12"))
M = 1 << 20


def chain(x):
    for k in range(6):
        x = (x * 0.5 + k).clamp(-3, 3).abs() - 1
    return x


def adamw(t, p, g, m, v):
    m.mul_(0.9).add_(g * 0.1)
    v.mul_(0.999).add_(g * g * 0.001)
    return p.mul_(0.9999).sub_(0.001 * (m / 0.1) / ((v / 0.001).sqrt() + 1e-8))


def norm(t, x, w, b):
    centered = x - x.mean(-1, keepdim=True)
    return centered * ((centered * centered).mean(-1, keepdim=True) + 1e-5).rsqrt() * w + b


ROWS = {  # name: function of the library and tensors, shapes
    "chain, 1 M": (lambda t, x: chain(x), [(M,)]),
    "chain with mean, 4 M": (lambda t, x: chain(x).mean(), [(4 * M,)]),
    "gelu by formula, 1 M": (lambda t, x: 0.5 * x * (1 + t.tanh(0.79788456 * (x + 0.044715 * x * x * x))), [(M,)]),
    "layer norm by formula, 1024 x 1024": (norm, [(1024, 1024), (1024,), (1024,)]),
    "adamw by formula, 1 M": (adamw, [(M,)] * 4),
}
ROWS |= {  # too large for the CPU
    "chain with mean, 64 M": (lambda t, x: chain(x).mean(), [(64 * M,)]),
    "gelu by formula, 64 M": (ROWS["gelu by formula, 1 M"][0], [(64 * M,)]),
    "layer norm by formula, 16384 x 1024": (norm, [(16384, 1024), (1024,), (1024,)]),
    "adamw by formula, 64 M": (adamw, [(64 * M,)] * 4),
} if DEVICE == "cuda" else {}


def prepared(library, function, shapes):
    """The functions to time, call by call and compiled, each with its own tensors."""
    library.set_num_threads(THREADS)
    library.manual_seed(0)
    compiled, calls = library.compile(function), []
    for one in (function, compiled):
        tensors = [library.rand(shape, device=DEVICE) for shape in shapes]
        calls.append(lambda one=one, tensors=tensors: one(library, *tensors))
    return calls


def seconds(library, call):
    begin = time.perf_counter()
    call()
    if DEVICE == "cuda":
        library.cuda.synchronize()
    return time.perf_counter() - begin


def peak(library, call):
    """MiB that a call allocates at most."""
    before = library.cuda.memory_allocated()
    library.cuda.reset_peak_memory_stats()
    call()
    return (library.cuda.max_memory_allocated() - before) / 2**20


def main(*names):
    libraries = [library for library in (phlox, pytorch) if library]
    print(f"{DEVICE}, {THREADS} threads, {TURNS} turns; load {os.getloadavg()[0]:.1f}")
    print(f"{'ms':36}{'calls':>9}{'compiled':>9}{'gain':>7}" + f"{'PyTorch':>10}{'compiled':>9}{'ratio':>7}" * bool(pytorch) + f"{'MiB':>9}{'first':>7}" * len(libraries) * (DEVICE == "cuda"))
    for name, (function, shapes) in ROWS.items():
        if not any(part in name for part in names or [""]):
            continue
        calls = [(library, call) for library in libraries for call in prepared(library, function, shapes)]
        first = [seconds(*call) for call in calls]
        least = [seconds(*call) for call in calls]
        for _ in range(TURNS):
            least = [min(best, seconds(*call)) for best, call in zip(least, calls)]
        ms = [1e3 * one for one in least]
        row = f"{name:36}{ms[0]:9.3f}{ms[1]:9.3f}{ms[0] / ms[1]:7.2f}"
        row += f"{ms[2]:10.3f}{ms[3]:9.3f}{ms[3] / ms[1]:7.2f}" if pytorch else ""
        if DEVICE == "cuda":
            row += "".join(f"{peak(*call):9.0f}{one:7.2f}" for call, one in list(zip(calls, first))[1::2])
        print(row, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
