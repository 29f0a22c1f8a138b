# SPDX-License-Identifier: Apache-2.0
"""A typed training script accepted by type checkers (test_stubs.py). It also runs."""
from __future__ import annotations

from typing import Any

import phlox as torch
import phlox.nn.functional as F
from phlox import Tensor, nn, optim
from phlox.optim.lr_scheduler import CosineAnnealingLR, StepLR
from phlox.utils.data import DataLoader, Dataset, TensorDataset


class Net(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.body = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(4 * 4 * 4, classes, bias=True)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.body(self.norm(self.conv(image)))
        logits = self.head(F.dropout(hidden, 0.1, self.training))
        return logits * self.scale


class Squares(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((2,), float(index)) ** 2


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return 3 * x ** 2 * grad


def train(model: Net, loader: DataLoader, epochs: int) -> float:
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    schedule = StepLR(optimizer, step_size=1, gamma=0.5)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    last = 0.0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            last = float(loss.item())
        schedule.step()
    return last


def tensors() -> Tensor:
    a = torch.randn(3, 4, requires_grad=True)
    b = torch.zeros((3, 4), dtype=torch.float32, device="cpu")
    c = (a + b * 2 - 1) @ b.T
    rows, columns = c.shape
    assert c.size(0) == rows and c.size()[1] == columns
    values, indices = torch.max(c, 1)
    top = c.topk(2, dim=-1)
    mask = c > 0
    picked = torch.where(mask, c, -c)
    parts = torch.cat([values, indices.to(torch.float32)], dim=0)
    (grad,) = torch.autograd.grad(picked.sum(), a)
    with torch.no_grad():
        d = a.detach().clone().view(-1, 2).permute(1, 0)[:, 0]
    d.requires_grad_().sum().backward()
    same = a.to("cpu").float().reshape(2, 6).unsqueeze(0)
    cube = Cube.apply(a)
    assert isinstance(cube, Tensor) and grad.dtype == torch.float32 and same.is_contiguous()
    return parts + top.values.sum() + F.relu(d, inplace=False).mean() + torch.stack([d, d]).std()


def streams() -> int:
    if not torch.cuda.is_available():
        return 0
    device = torch.device("cuda", torch.cuda.current_device())
    stream = torch.cuda.Stream(device)
    event = torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        x = torch.ones(4, device=device)
        event.record(stream)
    torch.cuda.current_stream().wait_event(event)
    x.record_stream(stream)
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated(device)


@torch.autocast("cpu", dtype=torch.bfloat16)
def planes(model: Net, images: Tensor) -> Tensor:
    return model.conv(images)


def mixed(model: Net, images: Tensor, labels: Tensor) -> float:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=10)
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    with torch.autocast(device_type="cpu", enabled=torch.amp.is_autocast_available("cpu")):
        loss = F.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    scaler.load_state_dict(scaler.state_dict())
    assert planes(model, images).dtype == torch.get_autocast_dtype("cpu")
    return scaler.get_scale()


@torch.no_grad()
def accuracy(model: Net, images: Tensor, labels: Tensor) -> float:
    model.eval()
    return float((model.forward(images).argmax(dim=1) == labels).float().mean().item())


def main() -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(16, 1, 8, 8), torch.randint(0, 3, (16,))
    loader = DataLoader(TensorDataset(images, labels), batch_size=4, shuffle=True)
    model = Net(classes=3).to(torch.device("cpu"))
    loss = train(model, loader, 2)
    adam = optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    cosine = CosineAnnealingLR(adam, T_max=4)
    adam.step()
    cosine.step()
    assert mixed(model, images, labels) == 8.0
    batches = [batch for batch in DataLoader(Squares(), batch_size=2)]
    state = model.state_dict()
    model.load_state_dict(state)
    print(loss, accuracy(model, images, labels), tensors().shape, len(batches), streams() >= 0)


if __name__ == "__main__":
    main()
