# SPDX-License-Identifier: Apache-2.0
"""examples/streams.c in Python. Also runs on PyTorch; PHLOX_SIM_DEVICES=1 python3 -m phlox examples/streams.py"""
import torch

BATCHES, SIZE = 4, 1 << 16
copies, compute = torch.cuda.Stream(), torch.cuda.default_stream()
arrived = [torch.cuda.Event() for _ in range(BATCHES)]


def upload(batch):
    host = torch.full((SIZE,), float(batch + 1)).pin_memory()
    with torch.cuda.stream(copies):
        x = host.to("cuda", non_blocking=True)
    arrived[batch].record(copies)
    x.record_stream(compute)  # required by PyTorch; Phlox tracks the use itself
    return x


def mean_square(x, batch):
    compute.wait_event(arrived[batch])
    return (x * x).mean()


x, means = [upload(0)], []
for i in range(BATCHES):
    if i + 1 < BATCHES:
        x.append(upload(i + 1))
    means.append(mean_square(x[i], i))
for i in range(BATCHES):
    print(f"batch {i}: {means[i].item():g}")
