# SPDX-License-Identifier: Apache-2.0
"""examples/digits.c in Python: the same network, batches and losses. Also runs on PyTorch."""
import gzip, os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

BATCH, EPOCHS = 64, 15
data, folder = (sys.argv[1:] + ["data/digits.csv.gz", "."][len(sys.argv) - 1:])[:2]

count = min(torch.cuda.device_count(), 2)
devices = [torch.device("cuda", i) for i in range(count)] or [torch.device("cpu")]
for i in range(count):
    name = torch.cuda.get_device_name(i)
    print(f"cuda:{i} is {'simulated' if 'simulated' in name else name}")
if not count: print("no devices: training on the CPU")

torch.backends.cudnn.deterministic = True  # reproducible losses
torch.manual_seed(0)
rows = [[float(v) for v in line.split(",")] for line in gzip.open(data, "rt")]
images = (torch.tensor([r[:64] for r in rows]) / 16).view(-1, 1, 8, 8)
labels = torch.tensor([int(r[64]) for r in rows])
train, held_out = random_split(TensorDataset(images, labels), [1438, 359])

net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)).to(devices[0])
model = nn.DataParallel(net, device_ids=list(range(count))) if count else net
optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
loader = DataLoader(train, batch_size=BATCH, shuffle=True, pin_memory=count > 0)

losses, total, start = [], EPOCHS * len(loader), time.perf_counter()
for epoch in range(EPOCHS):
    for x, y in loader:
        x, y = x.to(devices[0], non_blocking=True), y.to(devices[0], non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if sys.stdout.isatty():
            filled = 30 * len(losses) // total
            print(f"\r[{'#' * filled:30}] epoch {epoch + 1}/{EPOCHS}  loss {losses[-1]:.4f} ", end="\n" if len(losses) == total else "", flush=True)
    if not sys.stdout.isatty(): print(f"epoch {epoch + 1:2}  loss {losses[-1]:.9g}")
seconds = time.perf_counter() - start
print(f"{len(losses)} steps in {seconds:.2f} s: {len(train) * EPOCHS / seconds:.0f} images/s", file=sys.stderr)

with open(os.path.join(folder, "losses.txt"), "w") as file: file.writelines(f"{loss:.9g}\n" for loss in losses)

net.eval()
with torch.no_grad():
    x = torch.stack([held_out[i][0] for i in range(len(held_out))])
    y = torch.stack([held_out[i][1] for i in range(len(held_out))])
    right = int((model(x.to(devices[0])).argmax(1).cpu() == y).sum())
print(f"held-out accuracy {100 * right / len(held_out):.2f} % ({right} of {len(held_out)})")
assert right >= 0.97 * len(held_out), "the accuracy is below 97 %"

path = os.path.join(folder, "digits.safetensors")
torch.save(net.state_dict(), path)
loaded = torch.load(path, map_location=devices[0])
assert all(torch.equal(loaded[k], v) for k, v in net.state_dict().items())
net.load_state_dict(loaded)
print(f"checkpoint {path}: loaded and equal")
for i in range(count): print(f"peak memory of cuda:{i}: {torch.cuda.max_memory_allocated(i) / 2**20:.2f} MiB")
