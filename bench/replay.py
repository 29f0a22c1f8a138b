# SPDX-License-Identifier: Apache-2.0
"""What the allocator wastes: patterns of requests as programs make them, on a simulated device. waste = (peak reserved - peak live) / peak reserved.
python3 bench/replay.py [--smallest] [NAME...]; the settings are those of PYTORCH_CUDA_ALLOC_CONF. With --smallest also the smallest device, in parts of
the peak, on which the pattern runs through."""
import os
import random
import sys

for name, value in ("PHLOX_SIM_MEMORY", "200G"), ("PHLOX_SIM_DEVICES", "1"), ("PHLOX_SIM_MODE", "schedule"):
    os.environ.setdefault(name, value)
import phlox as torch

LAYERS, WIDTH, BATCH, MiB = 24, 2048, 8, 1 << 20


def take(size):
    return torch.empty(int(size), dtype=torch.uint8, device="cuda")


def training(rng, lengths, recompute=False):
    """Steps of a transformer: activations of a forward pass are freed by the backward pass, which makes gradients."""
    states = [take(12 * WIDTH * WIDTH * width) for width in (2, 8) for _ in range(LAYERS)]
    for length in lengths:
        row, saved = BATCH * length * WIDTH * 2, []
        for _ in range(LAYERS):
            made = [take(row * k) for k in (1, 3, 1, 4, 4, 1)]
            saved.append(made[-1:] if recompute else made[:4])
            del made
        gradients = []
        while saved:
            again = [take(row * k) for k in (1, 3, 1, 4)] if recompute else None
            passed = take(row * 4)
            saved.pop()
            gradients.append(take(12 * WIDTH * WIDTH * 2))
            del again, passed
    return states


def fixed(rng):
    return training(rng, [2048] * 20)


def variable(rng):
    return training(rng, [rng.randrange(256, 4096) for _ in range(40)])


def recompute(rng):
    return training(rng, [rng.randrange(256, 8192) for _ in range(40)], True)


def sharded(rng):
    """Layers whose parameters are gathered on a stream of their own while the one before is computed, and freed behind it."""
    side, here = torch.cuda.Stream(), torch.cuda.current_stream()
    states = [take(12 * WIDTH * WIDTH * 10 // 8) for _ in range(LAYERS)]
    for _ in range(20):
        row, saved = BATCH * rng.randrange(1024, 3072) * WIDTH * 2, []
        for backward in False, True:
            for _ in range(LAYERS):
                with torch.cuda.stream(side):
                    gathered = take(12 * WIDTH * WIDTH * 2)
                    gathered[:1].fill_(1)
                here.wait_stream(side)
                gathered[:1].add_(1)
                if backward:
                    saved.pop()
                    gradient, passed = take(12 * WIDTH * WIDTH * 2), take(row * 4)
                    side.wait_stream(here)
                    with torch.cuda.stream(side):
                        gradient[:1].add_(1)
                    del gradient, passed
                else:
                    saved.append([take(row * k) for k in (1, 3, 1)])
                del gathered
    return states


def serving(rng):
    """Sequences of a server, whose caches of keys and values grow by doubling."""
    weights, running = [take(400 * MiB) for _ in range(8)], []
    for _ in range(3000):
        if len(running) < 32 and rng.random() < 0.3:
            running.append(take(4 * MiB))
        elif running:
            at = rng.randrange(len(running))
            if rng.random() < 0.25 or running[at].numel() > 256 * MiB:
                running.pop(at)
            else:
                running[at] = take(running[at].numel() * 2)
    return weights


def comb(rng):
    """Every other block is freed, and then a large one is wanted."""
    blocks = [take(96 * MiB) for _ in range(160)]
    del blocks[::2]
    return blocks, take(6144 * MiB)


def power_law(rng):
    """Sizes by a power law, on 8 streams, of which others use some."""
    streams, live, held = [torch.cuda.Stream() for _ in range(8)], [], 0
    for _ in range(6000):
        size = int(min(1 << 30, 512 / rng.random() ** 2.5))
        while live and held + size > 16 << 30:
            held -= live.pop(rng.randrange(len(live))).numel()
        stream, other = rng.sample(streams, 2)
        with torch.cuda.stream(stream):
            block = take(size)
            block[:1].fill_(1)
        if rng.random() < 0.1:
            other.wait_stream(stream)
            with torch.cuda.stream(other):
                block[:1].add_(1)
        live.append(block)
        held += size
    return live


def pinned(rng):
    """Batches of varying sizes on their way to the device, of which a few are under way at a time."""
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


def fresh(limit=1.0):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(limit)
    torch.cuda.reset_peak_memory_stats()


def completes(trace, limit):
    fresh(limit / torch.cuda.get_device_properties(0).total_memory)
    try:
        trace(random.Random(0))
        return True
    except torch.OutOfMemoryError:
        return False


def smallest(trace, live):
    """The least part of `live` that will do, to half of a hundredth."""
    low, high = 0.99, 2.5
    while high - low > 0.005:
        middle = (low + high) / 2
        low, high = (low, middle) if completes(trace, middle * live) else (middle, high)
    return high


def main(names):
    wastes, search = [], "--smallest" in names
    names = [name for name in names if name != "--smallest"]
    torch.cuda.init()
    for trace in fixed, variable, recompute, sharded, serving, comb, power_law, pinned:
        if names and trace.__name__ not in names:
            continue
        fresh()
        taken = torch.cuda.memory_stats()["num_device_alloc"]
        kept = trace(random.Random(0))
        live, wanted, reserved = (pinned_peaks if trace is pinned else peaks)()
        taken = torch.cuda.memory_stats()["num_device_alloc"] - taken
        del kept
        line = f"{trace.__name__:10} live {live / 2**30:6.2f} GiB, reserved {reserved / 2**30:6.2f} GiB, waste {1 - live / reserved:6.1%}"
        if trace is not pinned:
            line += f" (of what was asked for {1 - wanted / reserved:.1%}), {taken} times memory taken"
            wastes.append(reserved / live)
            if search:
                line += f", smallest device {smallest(trace, live):.3f}"
        print(line, flush=True)
    mean = 1
    for waste in wastes:
        mean *= waste ** (1 / len(wastes))
    print(f"reserved over live, geometric mean: {mean:.4f}")


main(sys.argv[1:])
