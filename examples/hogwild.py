# SPDX-License-Identifier: Apache-2.0
"""Hogwild (Recht et al. 2011): processes train one model concurrently, without locks. Its parameters are in shared memory: each step is visible
to all. Run it with `python3 -m phlox examples/hogwild.py`; also runs on PyTorch."""
import gzip
import os

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

WORKERS, EPOCHS = 3, 8


def load():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "digits.csv.gz")
    with gzip.open(path, "rt") as file:
        rows = torch.tensor([[int(number) for number in line.split(",")] for line in file if line[0].isdigit()])
    images, classes = rows[:, :64] / 16, rows[:, 64]
    return images[:1500], classes[:1500], images[1500:], classes[1500:]


def make():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(rank, model, steps):
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    images, classes, *_ = load()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)  # momentum buffers are per worker
    for _ in range(EPOCHS):
        for part in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(images[part]), classes[part]).backward()
            optimizer.step()
            steps[rank] += 1


if __name__ == "__main__":
    torch.manual_seed(0)
    model, steps = make().share_memory(), torch.zeros(WORKERS, dtype=torch.int64).share_memory_()
    *_, images, classes = load()

    def accuracy():
        with torch.no_grad():
            return (model(images).argmax(1) == classes).float().mean().item()

    before = accuracy()
    mp.spawn(train, (model, steps), nprocs=WORKERS)
    print(f"{WORKERS} processes, {steps.sum().item()} steps: {before:.0%} of the digits before, {accuracy():.0%} after")
