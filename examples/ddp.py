# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training in several processes, in plain PyTorch code. `python3 -m phlox examples/ddp.py 4` starts 4 ranks,
each with its part of the data; under torchrun the program is one rank. With a device per rank it uses nccl."""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def spirals(count=240):
    torch.manual_seed(0)
    label = torch.arange(count) % 2
    turn = torch.rand(count) * 6
    angle = turn + label * torch.pi
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 6
    return TensorDataset(points, label)


def train(rank, size, meet, devices):
    backend, device = ("nccl", torch.device("cuda", rank)) if devices >= size else ("gloo", torch.device("cpu"))
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=meet, rank=rank, world_size=size)
    torch.manual_seed(rank)  # DDP broadcasts rank 0's parameters
    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2)).to(device))
    data = spirals()
    sampler = DistributedSampler(data, num_replicas=size, rank=rank, seed=1)
    loader = DataLoader(data, batch_size=48 // size, sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(30):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for points, label in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(points.to(device)), label.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader) / size
        dist.all_reduce(total)
        if rank == 0 and epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {total.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://", torch.cuda.device_count())
    else:
        ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(train, (ranks, f"file://{folder}/meet", torch.cuda.device_count()), nprocs=ranks)
