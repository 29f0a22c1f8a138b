# SPDX-License-Identifier: Apache-2.0
"""What the allocator wastes: patterns of requests as programs make them, on a simulated device. waste = (peak reserved - peak live) / peak reserved.
python3 bench/replay.py [NAME...]; the settings are those of PYTORCH_CUDA_ALLOC_CONF."""
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


torch.cuda.init()
for trace in (fixed, variable, recompute, serving, comb, power_law):
    if len(sys.argv) > 1 and trace.__name__ not in sys.argv[1:]:
        continue
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    taken = torch.cuda.memory_stats()["num_device_alloc"]
    kept = trace(random.Random(0))
    live, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    taken = torch.cuda.memory_stats()["num_device_alloc"] - taken
    del kept
    print(f"{trace.__name__:10}  live {live / 2**30:6.2f} GiB, reserved {reserved / 2**30:6.2f} GiB, waste {1 - live / reserved:6.1%}, "
          f"{taken} segments taken")
