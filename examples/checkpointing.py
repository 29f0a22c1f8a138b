# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing of a deep network: trades time for memory by recomputing activations in the backward pass (Chen et al. 2016,
Training deep nets with sublinear memory cost). The losses are unchanged. Also runs on PyTorch; memory is reported for devices."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

LAYERS, WIDTH, STEPS = 24, 64, 5
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.layers(x)


def all_kept(blocks, x):
    return blocks(x)


def each_again(blocks, x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def in_parts(blocks, x):
    return checkpoint_sequential(blocks, 4, x, use_reentrant=False)


def train(forward):
    """Returns the losses, and the peak memory in MiB on a device."""
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Block() for _ in range(LAYERS))).to(device)
    x, y = torch.randn(256, WIDTH).to(device), torch.randn(256, WIDTH).to(device)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.05)
    losses = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(forward(blocks, x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, torch.cuda.max_memory_allocated() / 2 ** 20 if device.type == "cuda" else None


first, most = train(all_kept)
print("losses", *(f"{loss:.4f}" for loss in first))
for forward in each_again, in_parts:
    losses, memory = train(forward)
    saved = "" if most is None else f", {memory:.0f} MiB instead of {most:.0f}"
    print(f"{forward.__name__}: the same losses: {losses == first}{saved}")
