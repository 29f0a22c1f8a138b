# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 (He et al. 2015) on random images, to measure the time of a step: python3 -m phlox examples/resnet50.py [--steps N] [--batch N].
Uses bfloat16 and channels_last, for tensor cores, unless --float32 is given. Also runs on PyTorch."""
import argparse, time
import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        out = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(into, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 or into != out else nn.Identity()

    def forward(self, x):
        return torch.relu_(self.path(x) + self.short(x))


def resnet50(classes=1000, width=64, blocks=(3, 4, 6, 3)):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    into = width
    for stage, count in enumerate(blocks):
        for i in range(count):
            layers.append(Bottleneck(into, width << stage, 2 if stage and not i else 1))
            into = 4 * width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--float32", action="store_true")
    for name, number in ("steps", 20), ("batch", 128), ("size", 224), ("width", 64):
        parser.add_argument(f"--{name}", type=int, default=number)
    o = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, layout = (torch.float32, torch.contiguous_format) if o.float32 else (torch.bfloat16, torch.channels_last)
    net = resnet50(width=o.width).to(device, kind, memory_format=layout)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    x = torch.randn(o.batch, 3, o.size, o.size).to(device, kind, memory_format=layout)
    y = torch.randint(1000, (o.batch,)).to(device)
    begin = time.perf_counter()
    for step in range(o.steps):
        loss = nn.functional.cross_entropy(net(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0 or step + 1 == o.steps: print(f"step {step:3}: loss {loss.item():.3f}", flush=True)
    print(f"{o.batch * o.steps / (time.perf_counter() - begin):.0f} pictures a second, the first steps included")


if __name__ == "__main__":
    main()
