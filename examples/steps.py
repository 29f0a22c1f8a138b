# SPDX-License-Identifier: Apache-2.0
"""A small training loop to profile: python3 -m phlox.profile examples/steps.py"""
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
images, labels = torch.rand(3, 512, 512), torch.randint(0, 10, (3, 512))
if device == "cuda":
    images, labels = images.pin_memory(), labels.pin_memory()

for step in range(3):
    with torch.profiler.record_function(f"ProfilerStep#{step}"):
        x, y = (batch[step].to(device, non_blocking=True) for batch in (images, labels))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
