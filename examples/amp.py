# SPDX-License-Identifier: Apache-2.0
"""Trains a small classifier in mixed precision: autocast for the forward pass, and gradient scaling
against underflow of float16 gradients. Also runs on PyTorch."""
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.float16 if device == "cuda" else torch.bfloat16
torch.manual_seed(0)

# Points in the plane. The class is the quadrant.
points = torch.randn(512, 2)
classes = ((points[:, 0] > 0).long() * 2 + (points[:, 1] > 0).long()).to(device)
points = points.to(device)

model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler(device, init_scale=2.0 ** 16, enabled=dtype == torch.float16)

for epoch in range(5):
    right = 0
    for part in torch.randperm(512).to(device).split(64):
        optimizer.zero_grad()
        with torch.autocast(device, dtype):
            scores = model(points[part])
            loss = nn.functional.cross_entropy(scores, classes[part])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        right += (scores.argmax(1) == classes[part]).sum()
    print(f"epoch {epoch}: {right.item() / 5.12:.0f} % of {scores.dtype}, scale {scaler.get_scale():.0f}")
