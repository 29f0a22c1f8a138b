# SPDX-License-Identifier: Apache-2.0
"""A generative adversarial network (Goodfellow et al. 2014) on the digits in data/digits.csv.gz: a generator draws digits, and a critic learns
to distinguish them from real ones. Run it with `python3 -m phlox examples/gan.py`; also runs on PyTorch."""
import gzip
import os

import torch
from torch import nn

SIZE, EPOCHS = 16, 30
torch.manual_seed(0)
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "digits.csv.gz")
with gzip.open(path, "rt") as file:
    rows = [[int(number) for number in line.split(",")] for line in file if line[0].isdigit()]
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
digits = torch.tensor([row[:64] for row in rows if row[64] in (0, 1)]) / 8 - 1  # zeros and ones, scaled to [-1, 1]

drawer = nn.Sequential(nn.Linear(SIZE, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh()).to(device)
critic = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(64, 1)).to(device)
drawing = torch.optim.Adam(drawer.parameters(), lr=0.002, betas=(0.5, 0.999))
judging = torch.optim.Adam(critic.parameters(), lr=0.002, betas=(0.5, 0.999))
loss_of = nn.BCEWithLogitsLoss()

for epoch in range(1, EPOCHS + 1):
    losses = []
    for part in torch.randperm(len(digits)).split(40):
        real = digits[part].to(device)
        drawn = drawer(torch.randn(len(part), SIZE).to(device))
        yes, no = torch.full((len(part), 1), 0.9, device=device), torch.zeros(len(part), 1, device=device)

        judging.zero_grad()
        judged = loss_of(critic(real), yes) + loss_of(critic(drawn.detach()), no)  # no gradient for the generator
        judged.backward()
        judging.step()

        drawing.zero_grad()
        fooled = loss_of(critic(drawn), yes)
        fooled.backward()
        drawing.step()
        losses.append((judged.item(), fooled.item()))
    if epoch in (1, 2, 3) or epoch % 10 == 0:
        means = [sum(column) / len(losses) for column in zip(*losses)]
        print(f"epoch {epoch}: {means[0]:.3f} {means[1]:.3f}")

drawer.eval()
with torch.no_grad():
    images = drawer(torch.randn(4, SIZE).to(device)).cpu().view(4, 8, 8).permute(1, 0, 2).reshape(8, 32)
for row in ((images + 1) / 2).tolist():
    print("".join(" .:*#"[int(shade * 4.99)] for shade in row))
