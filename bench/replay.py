# SPDX-License-Identifier: Apache-2.0
"""Memory waste of the allocator: typical request patterns on a simulated device. waste = (peak reserved - peak live) / peak reserved.
python3 bench/replay.py [--smallest] [--examples] [NAME | FILE ...]. Settings are those of PYTORCH_CUDA_ALLOC_CONF. Each pattern is compared to a model of PyTorch's
allocator (bench/rules.py). --smallest also searches for the smallest device on which the pattern succeeds, relative to peak live. FILEs are traces written by
bench/record.py or torch.cuda.memory._dump_snapshot. --examples records and replays traces of the examples on simulated devices."""
import os
import random
import subprocess
import sys
import tempfile
from statistics import geometric_mean

for name, value in ("PHLOX_SIM_MEMORY", "200G"), ("PHLOX_SIM_DEVICES", "1"), ("PHLOX_SIM_MODE", "schedule"):
    os.environ.setdefault(name, value)
import phlox as torch
import record
import rules

LAYERS, WIDTH, BATCH, MiB = 24, 2048, 8, 1 << 20
LARGE = 20 * MiB  # the size of a segment


def allocate(size):
    return torch.empty(int(size), dtype=torch.uint8, device="cuda")


def training(rng, lengths, recompute=False):
    """Training steps of a transformer. The backward pass frees the activations of the forward pass and allocates gradients."""
    states = [allocate(12 * WIDTH * WIDTH * width) for width in (2, 8) for _ in range(LAYERS)]
    for length in lengths:
        row, saved = BATCH * length * WIDTH * 2, []
        for _ in range(LAYERS):
            made = [allocate(row * k) for k in (1, 3, 1, 4, 4, 1)]
            saved.append(made[-1:] if recompute else made[:4])
            del made
        gradients = []
        while saved:
            recomputed = [allocate(row * k) for k in (1, 3, 1, 4)] if recompute else None
            gradient_in = allocate(row * 4)
            saved.pop()
            gradients.append(allocate(12 * WIDTH * WIDTH * 2))
            del recomputed, gradient_in
    return states


def fixed(rng):
    return training(rng, [2048] * 20)


def variable(rng):
    return training(rng, [rng.randrange(256, 4096) for _ in range(40)])


def recompute(rng):
    return training(rng, [rng.randrange(256, 8192) for _ in range(40)], True)


def sharded(rng):
    """Layers with parameters gathered on a side stream during the previous layer's computation, and freed after use."""
    side, here = torch.cuda.Stream(), torch.cuda.current_stream()
    states = [allocate(12 * WIDTH * WIDTH * 10 // 8) for _ in range(LAYERS)]
    for _ in range(20):
        row, saved = BATCH * rng.randrange(1024, 3072) * WIDTH * 2, []
        for backward in False, True:
            for _ in range(LAYERS):
                with torch.cuda.stream(side):
                    gathered = allocate(12 * WIDTH * WIDTH * 2)
                    gathered[:1].fill_(1)
                here.wait_stream(side)
                gathered[:1].add_(1)
                if backward:
                    saved.pop()
                    gradient, gradient_in = allocate(12 * WIDTH * WIDTH * 2), allocate(row * 4)
                    side.wait_stream(here)
                    with torch.cuda.stream(side):
                        gradient[:1].add_(1)
                    del gradient, gradient_in
                else:
                    saved.append([allocate(row * k) for k in (1, 3, 1)])
                del gathered
    return states


def serving(rng):
    """Sequences of an inference server. Their KV caches grow by doubling."""
    weights, running = [allocate(400 * MiB) for _ in range(8)], []
    for _ in range(3000):
        if len(running) < 32 and rng.random() < 0.3:
            running.append(allocate(4 * MiB))
        elif running:
            at = rng.randrange(len(running))
            if rng.random() < 0.25 or running[at].numel() > 256 * MiB:
                running.pop(at)
            else:
                running[at] = allocate(running[at].numel() * 2)
    return weights


def comb(rng):
    """Frees every other block, then requests a large one."""
    blocks = [allocate(96 * MiB) for _ in range(160)]
    del blocks[::2]
    return blocks, allocate(6144 * MiB)


def power_law(rng):
    """Power-law sizes on 8 streams; some blocks are also used by another stream."""
    streams, live, held = [torch.cuda.Stream() for _ in range(8)], [], 0
    for _ in range(6000):
        size = int(min(1 << 30, 512 / rng.random() ** 2.5))
        while live and held + size > 16 << 30:
            held -= live.pop(rng.randrange(len(live))).numel()
        stream, other = rng.sample(streams, 2)
        with torch.cuda.stream(stream):
            block = allocate(size)
            block[:1].fill_(1)
        if rng.random() < 0.1:
            other.wait_stream(stream)
            with torch.cuda.stream(other):
                block[:1].add_(1)
        live.append(block)
        held += size
    return live


def pinned(rng):
    """Host-to-device batches of varying sizes in pinned memory, a few in flight at a time."""
    held = []
    for _ in range(2000):
        held.append(torch.empty(int(2 ** rng.uniform(12, 26)), dtype=torch.uint8, pin_memory=True))
        if len(held) > 8:
            held.pop(0)
    return held


def peaks():
    return [torch.cuda.memory_stats()[f"{name}_bytes.all.peak"] for name in ("allocated", "requested", "reserved")]


def pinned_peaks():
    stats = torch.cuda.host_memory_stats()
    return stats["active_bytes.peak"], stats["active_bytes.peak"], stats["allocated_bytes.peak"]


def reset(limit=1.0):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(limit)
    torch.cuda.reset_peak_memory_stats()


def completes(trace, limit):
    reset(limit / torch.cuda.get_device_properties(0).total_memory)
    try:
        trace(random.Random(0))
        return True
    except torch.OutOfMemoryError:
        return False


def smallest(does, live):
    """Returns the smallest sufficient multiple of `live` as text, to a precision of 0.005."""
    low, high = 0.99, 2.5
    if not does(high * live):
        return f"over {high}"
    while high - low > 0.005:
        middle = (low + high) / 2
        low, high = (low, middle) if does(middle * live) else (middle, high)
    return f"{high:.3f}"


# ---- traces
def replayed(events):
    """Converts a recorded trace to a pattern."""
    def trace(rng):
        streams, live = {0: torch.cuda.default_stream()}, {}
        for key, size, stream in events:
            if size is None:
                del live[key]
                continue
            if stream not in streams:
                streams[stream] = torch.cuda.Stream()
            with torch.cuda.stream(streams[stream]):
                live[key] = allocate(size)
        return live
    return trace


def recorded(trace):
    """Records the trace of a pattern."""
    record.begin()
    kept = trace(random.Random(0))
    del kept
    return record.events_of(record.end(), 0)


# name -> (command, number of devices, whether kernels run, number of processes)
EXAMPLES = {"gpt2": ("gpt2.py README.md --steps 3", 1, False, 1),
            "gpt2-autocast": ("gpt2.py README.md --steps 3 --autocast", 1, False, 1),
            "gpt2-small": ("gpt2.py README.md --steps 3 --batch 4 --length 128 --size 256 --heads 4 --layers 4 --words 512", 1, False, 1),
            "resnet50": ("resnet50.py --steps 3", 1, False, 1),
            "resnet50-small": ("resnet50.py --steps 3 --batch 16 --size 64 --float32", 1, False, 1),
            "digits": ("digits.py data/digits.csv.gz {folder}", 2, True, 1),
            "ddp": ("ddp.py", 2, True, 2)}


def record_example(name, folder):
    """Runs an example. Returns the files of its traces."""
    (program, *arguments), devices, kernels, ranks = EXAMPLES[name][0].format(folder=folder).split(), *EXAMPLES[name][1:]
    path = os.path.join(folder, name)
    command = [sys.executable] + (["-m", "phlox", "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else [])
    env = {**os.environ, "PHLOX_SIM_DEVICES": str(devices), "PHLOX_SIM_MODE": "threads" if ranks > 1 or kernels else "schedule", "PHLOX_SIM_KERNELS": "run" if kernels else "skip"}
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run([*command, "bench/record.py", path, f"examples/{program}", *arguments], cwd=root, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stdout}{done.stderr}")
    return [f"{path}.{rank}" for rank in range(ranks)] if ranks > 1 else [path]


def traces_of(names, examples):
    """Yields (name, pattern or trace)."""
    patterns = {trace.__name__: trace for trace in (fixed, variable, recompute, sharded, serving, comb, power_law, pinned)}
    files = [name for name in names if name not in patterns and name not in EXAMPLES]
    yield from ((name, trace) for name, trace in patterns.items() if name in names or not (names or examples))
    with tempfile.TemporaryDirectory() as folder:
        for name in EXAMPLES:
            if name in names or examples and not names:
                files += record_example(name, folder)
        for path in files:
            found = record.read(path)
            for device, events in found.items():
                yield os.path.basename(path) + (f":{device}" if len(found) > 1 else ""), replayed(events)


# ---- report
def measure(trace):
    """Returns the peaks of live, requested and reserved memory, and the number of device allocations."""
    reset()
    taken = torch.cuda.memory_stats()["num_device_alloc"]
    kept = trace(random.Random(0))
    found = *(pinned_peaks if trace is pinned else peaks)(), torch.cuda.memory_stats()["num_device_alloc"] - taken
    del kept
    return found


def report(name, trace, search):
    """Prints a line. Returns (reserved / live, the same for PyTorch's rules); None below the size of a segment, for which the ratios are meaningless."""
    live, wanted, reserved, taken = measure(trace)
    line = f"{name:14} live {size_text(live)}, reserved {size_text(reserved)}, waste {1 - live / reserved:6.1%}"
    if trace is pinned:
        print(line, flush=True)
        return None
    line += f" (of what was asked for {1 - wanted / reserved:.1%}), {taken} times memory taken"
    if search:
        line += f", smallest device {smallest(lambda limit: completes(trace, limit), live)}"
    reset()
    events = recorded(trace)
    model = rules.run(events)
    line += f"; by PyTorch's rules waste {1 - model.peak_live / model.peak:6.1%}"
    if search:
        line += f", smallest device {smallest(lambda limit: rules.run(events, limit), live)}"
    print(line, flush=True)
    return (reserved / live, model.peak / model.peak_live) if live >= LARGE else None


def size_text(count):
    return f"{count / 2**30:6.2f} GiB" if count >= 1 << 28 else f"{count / 2**20:6.2f} MiB"


def main(arguments):
    names = [a for a in arguments if not a.startswith("--")]
    torch.cuda.init()
    found = [report(name, trace, "--smallest" in arguments) for name, trace in traces_of(names, "--examples" in arguments)]
    found = [both for both in found if both]
    if found:
        print(f"reserved over live, geometric mean where 20 MiB and more live: {geometric_mean(own for own, _ in found):.4f}; by PyTorch's rules {geometric_mean(model for _, model in found):.4f}")


main(sys.argv[1:])
