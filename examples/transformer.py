# SPDX-License-Identifier: Apache-2.0
"""A Transformer encoder (Vaswani et al. 2017) classifies handwritten digits. The eight rows of an image are its words; their positions are learned
embeddings. Also runs on PyTorch."""
import csv, gzip, os
import torch
from torch import nn

SIZE, HEADS, LAYERS, EPOCHS, BATCH = 32, 4, 2, 12, 64
HERE = os.path.dirname(os.path.abspath(__file__))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Linear(8, SIZE)
        self.positions = nn.Parameter(0.02 * torch.randn(8, SIZE))
        layer = nn.TransformerEncoderLayer(SIZE, HEADS, 2 * SIZE, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(SIZE), enable_nested_tensor=False)
        self.out = nn.Linear(SIZE, 10)

    def forward(self, rows):
        return self.out(self.encoder(self.words(rows) + self.positions).mean(1))


def digits():
    with gzip.open(os.path.join(HERE, "..", "data", "digits.csv.gz"), "rt") as file:
        table = torch.tensor([[float(number) for number in line] for line in csv.reader(file)])
    return table[:, :64].view(-1, 8, 8) / 16, table[:, 64].long()


def main():
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, y = (part.to(device) for part in digits())
    known = 1500  # training images; the rest are for testing
    model = Reader().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.003, total_steps=EPOCHS * (known // BATCH))
    for epoch in range(EPOCHS):
        total, order = 0.0, torch.randperm(known).to(device)
        for part in order[:known // BATCH * BATCH].split(BATCH):
            loss = nn.functional.cross_entropy(model(x[part]), y[part])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() / (known // BATCH)
        if epoch % 3 == 0 or epoch + 1 == EPOCHS: print(f"epoch {epoch:2}: loss {total:.4f}")
    model.eval()
    with torch.no_grad():
        right = (model(x[known:]).argmax(1) == y[known:]).float().mean().item()
    print(f"{100 * right:.0f}% of {len(y) - known} digits are read")


if __name__ == "__main__":
    main()
