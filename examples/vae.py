# SPDX-License-Identifier: Apache-2.0
"""A variational autoencoder of the digits (data/digits.csv.gz), which generates new ones. Run it with `python3 -m phlox
examples/vae.py`."""
import gzip
import os

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "digits.csv.gz")
with gzip.open(path, "rt") as file:
    digits = torch.tensor([[int(n) for n in line.split(",")[:64]] for line in file if line[0].isdigit()]) / 16

encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2 * 8))
decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.003)

for epoch in range(15):
    total = 0.0
    for x in digits[torch.randperm(len(digits))].split(100):
        mean, log_variance = encoder(x).chunk(2, 1)
        drawn = decoder(mean + torch.randn_like(mean) * (log_variance / 2).exp())
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
        loss = (F.binary_cross_entropy_with_logits(drawn, x, reduction="sum") + kl) / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
    if epoch % 7 == 0:
        print(f"epoch {epoch}: {total / len(digits):.1f}")

with torch.no_grad():
    for row in decoder(torch.randn(4, 8)).sigmoid().view(4, 8, 8).permute(1, 0, 2).reshape(8, 32).tolist():
        print("".join(" .:*#"[int(shade * 4.99)] for shade in row))
