# SPDX-License-Identifier: Apache-2.0
"""Failed requests on a nearly full device: python3 bench/near.py [TRACES [REQUESTS]]. PHLOX_SIM_MEMORY is the device's memory (default 64M).

Random sizes from 256 bytes to 6 MiB on 1, 2, 3 and 8 streams, with at most 80 % of the device live. Counts the requests refused by Phlox and by a model of
PyTorch's allocator (bench/rules.py) on the same traces; all free memory is idle. A refused request is left out of the rest of its trace. build/bench/heap near
measures the same with pending work, and build/bench/placement checks if a placement exists. The last line is the memory that guarantees success on every trace:
an allocator that does not move blocks needs at least M (log2(n) / 2 + 1) - n + 1 units for M live units in blocks of 1, 2, 4, ... n units (Robson 1974).
"""
import math, os, random, sys

os.environ.setdefault("PHLOX_SIM_MEMORY", "64M")
os.environ.setdefault("PHLOX_SIM_DEVICES", "1")
os.environ.setdefault("PHLOX_SIM_MODE", "schedule")
import phlox as torch
import rules

FULL, MOST, POWER, UNIT, MiB = 0.8, 6 << 20, 4 << 20, 512, 1 << 20  # maximum load and size; POWER: the largest power of two requested


def random_trace(seed, streams, requests, capacity):
    """Returns a random trace: (key, size, stream) for an allocation, (key, None, None) for a free."""
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


def count_refused(events, allocate, release):
    """Returns the number of refused requests."""
    live, count = {}, 0
    for key, size, stream in events:
        if size is not None:
            block = allocate(size, stream)
            if block is None: count += 1
            else: live[key] = block
        elif key in live:
            release(live.pop(key))
    return count


def allocate_on(streams):
    def allocate(size, stream):
        with torch.cuda.stream(streams[stream]):
            try: return torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError: return None
    return allocate


def main(traces=20, requests=2200):
    capacity = torch.cuda.get_device_properties(0).total_memory
    streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(7)]
    print(f"{capacity / MiB:.0f} MiB; of {traces * requests} requests in {traces} traces are refused{'Phlox':>12}{'PyTorch':>12}")
    for count in (1, 2, 3, 8):
        own = model = 0
        for seed in range(traces):
            events = random_trace(seed, count, requests, capacity)
            own += count_refused(events, allocate_on(streams), lambda block: None)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            allocator = rules.Allocator(capacity)
            model += count_refused(events, allocator.allocate, allocator.release)
        print(f"{count} streams{own:51}{model:12}", flush=True)
    bound = FULL * capacity * (math.log2(POWER / UNIT) / 2 + 1) - POWER + UNIT
    print(f"so that no trace is refused anything: {bound / MiB:,.0f} MiB")


main(*map(int, sys.argv[1:]))
