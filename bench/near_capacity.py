# SPDX-License-Identifier: Apache-2.0
"""Requests that fail although there is memory: random sizes on a simulated device that is kept nearly full, on 1 to 8 streams.
python3 bench/near_capacity.py [TRACES [REQUESTS]]; PHLOX_SIM_MEMORY=64M is the device (64M by default)."""
import os
import random
import sys

os.environ.setdefault("PHLOX_SIM_MEMORY", "64M")
os.environ.setdefault("PHLOX_SIM_DEVICES", "1")
import phlox as torch

traces, requests = (int(n) for n in (sys.argv[1:] + ["20", "2200"][len(sys.argv) - 1:]))
capacity = torch.cuda.get_device_properties(0).total_memory
FULL = 0.8  # of the device that is live at most: a request within it that fails is a false out of memory


def trace(seed, streams):
    """How many of the requests fail, at which share of the device."""
    rng, live, held, failed = random.Random(seed), [], 0, []
    for _ in range(requests):
        size = int(2 ** rng.uniform(8, 22.58))  # 256 B to 6 MiB
        while live and held + size > FULL * capacity:
            held -= live.pop(rng.randrange(len(live))).numel()
        stream = rng.choice(streams)
        with torch.cuda.stream(stream):
            try:
                block = torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                failed.append(held / capacity)
                continue
            block[:1].fill_(1)
        if rng.random() < 0.2:
            with torch.cuda.stream(rng.choice(streams)) as other:
                torch.cuda.current_stream().wait_stream(stream)
                block[:1].add_(1)
        live.append(block)
        held += size
    return failed


for count in (1, 2, 3, 8):
    streams = [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(count - 1)]
    failed = [f for seed in range(traces) for f in trace(seed, streams)]
    torch.cuda.empty_cache()
    share = f", at {min(failed):.0%} to {max(failed):.0%} of the device" if failed else ""
    print(f"{count} streams: {len(failed)} of {traces * requests} requests fail{share}; {torch.cuda.memory_stats()['num_device_alloc']} segments")
