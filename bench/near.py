# SPDX-License-Identifier: Apache-2.0
"""Requests that a device which is nearly full refuses: python3 bench/near.py [TRACES [REQUESTS]], with PHLOX_SIM_MEMORY the device (64M by default).

Random sizes from 256 bytes to 6 MiB, of which at most 80 % of the device live at once, on 1, 2, 3 and 8 streams: how many requests Phlox refuses, and how many a
model of PyTorch's rules (bench/rules.py) does, on the same traces; all free memory is idle. A request that was refused is left out of the rest of its trace.
build/bench/heap near does the same with work under way, and build/bench/placement tells whether there was a place. Last, what it would take that no trace at all
is refused anything: no allocator that leaves blocks where they are can do with less than M (log2(n) / 2 + 1) - n + 1 units for all traces of M units that live, in
blocks of 1, 2, 4, ... n (Robson 1974).
"""
import math, os, random, sys

os.environ.setdefault("PHLOX_SIM_MEMORY", "64M")
os.environ.setdefault("PHLOX_SIM_DEVICES", "1")
os.environ.setdefault("PHLOX_SIM_MODE", "schedule")
import phlox as torch
import rules

FULL, MOST, POWER, UNIT, MiB = 0.8, 6 << 20, 4 << 20, 512, 1 << 20  # POWER: the largest power of two that is asked for


def drawn(seed, streams, requests, capacity):
    """(key, size, stream) where a block is taken, (key, None, None) where it goes."""
    rng, live, held, events = random.Random(seed), [], 0, []
    for key in range(requests):
        size = int(2 ** rng.uniform(8, math.log2(MOST)))
        while live and held + size > FULL * capacity:
            gone, bytes = live.pop(rng.randrange(len(live)))
            held -= bytes
            events.append((gone, None, None))
        live.append((key, size))
        held += size
        events.append((key, size, rng.randrange(streams)))
    return events


def refused(events, take, let):
    """How many requests are."""
    live, count = {}, 0
    for key, size, stream in events:
        if size is not None:
            block = take(size, stream)
            if block is None: count += 1
            else: live[key] = block
        elif key in live:
            let(live.pop(key))
    return count


def taken(streams):
    def take(size, stream):
        with torch.cuda.stream(streams[stream]):
            try: return torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError: return None
    return take


def main(traces=20, requests=2200):
    capacity = torch.cuda.get_device_properties(0).total_memory
    streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(7)]
    print(f"{capacity / MiB:.0f} MiB; of {traces * requests} requests in {traces} traces are refused{'Phlox':>12}{'PyTorch':>12}")
    for count in (1, 2, 3, 8):
        own = model = 0
        for seed in range(traces):
            events = drawn(seed, count, requests, capacity)
            own += refused(events, taken(streams), lambda block: None)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            allocator = rules.Allocator(capacity)
            model += refused(events, allocator.take, allocator.let)
        print(f"{count} streams{own:51}{model:12}", flush=True)
    bound = FULL * capacity * (math.log2(POWER / UNIT) / 2 + 1) - POWER + UNIT
    print(f"so that no trace is refused anything: {bound / MiB:,.0f} MiB")


main(*map(int, sys.argv[1:]))
