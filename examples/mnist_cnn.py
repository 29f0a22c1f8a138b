# SPDX-License-Identifier: Apache-2.0
"""The network of PyTorch's MNIST example, trained on a device: python3 -m phlox examples/mnist_cnn.py DATA.

DATA is a folder with MNIST's four compressed IDX files. The program also runs on PyTorch, with the same weights, batches and dropout
masks for the same seed. Compare the losses written by --losses FILE: on an H200, with --no-tf32 --deterministic --no-dropout, the
relative difference was 3e-7 for 25 steps, 3e-6 for 50 and 1.7e-3 for 100, since rounding errors grow. PyTorch's losses on GPU and CPU
differ by twice as much. Without --deterministic two runs of PyTorch differ similarly."""
import argparse, gzip, os, time
import torch
import torch.nn.functional as F
from torch import nn, optim

parser = argparse.ArgumentParser()
parser.add_argument("data", help="folder with train-images-idx3-ubyte.gz and the three other files")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, help="maximum number of steps; skips the accuracy test")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--optimizer", choices=["sgd", "adadelta"], default="sgd")
parser.add_argument("--lr", type=float, help="learning rate (default: 0.01 for sgd, 1 for adadelta)")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--no-dropout", action="store_true")
parser.add_argument("--no-tf32", action="store_true", help="compute in float32")
parser.add_argument("--deterministic", action="store_true", help="use deterministic algorithms only")
parser.add_argument("--losses", help="output file for the loss of each step")
args = parser.parse_args()
device = torch.device(args.device)
torch.backends.cudnn.allow_tf32 = not args.no_tf32
torch.backends.cudnn.deterministic = args.deterministic


def read(name, header, *shape):
    with gzip.open(os.path.join(args.data, name), "rb") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8).view(-1, *shape)


def read_set(name):
    images = (read(f"{name}-images-idx3-ubyte.gz", 16, 1, 28, 28).to(device).float() / 255 - 0.1307) / 0.3081
    return images, read(f"{name}-labels-idx1-ubyte.gz", 8).to(device).long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.0 if args.no_dropout else 0.25)
        self.dropout2 = nn.Dropout(0.0 if args.no_dropout else 0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = self.dropout2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


def accuracy(net, images, labels):
    net.eval()
    with torch.no_grad():
        right = sum((net(images[i:i + 1000]).argmax(1) == labels[i:i + 1000]).sum().item() for i in range(0, len(labels), 1000))
    net.train()
    return 100 * right / len(labels)


torch.manual_seed(args.seed)
net = Net().to(device)
if args.optimizer == "sgd":
    optimizer = optim.SGD(net.parameters(), lr=args.lr or 0.01, momentum=0.9)
else:
    optimizer = optim.Adadelta(net.parameters(), lr=args.lr or 1.0)
images, labels = read_set("train")
held_out = read_set("t10k")

losses, start = [], time.perf_counter()
for epoch in range(args.epochs):
    order = torch.randperm(len(labels)).to(device)
    for at in range(0, len(order), args.batch):
        if args.steps is not None and len(losses) == args.steps: break
        index = order[at:at + args.batch]
        optimizer.zero_grad()
        loss = F.nll_loss(net(images[index]), labels[index])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    last = losses[-1].item()
    print(f"epoch {epoch + 1}: {len(losses)} steps in {time.perf_counter() - start:.2f} s, loss {last:.6f}")
    if len(losses) == args.steps: break
    print(f"accuracy {accuracy(net, *held_out):.2f} %", flush=True)

if args.losses:
    with open(args.losses, "w") as file: file.writelines(f"{loss.item():.9g}\n" for loss in losses)
