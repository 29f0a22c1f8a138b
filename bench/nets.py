# SPDX-License-Identifier: Apache-2.0
"""Models used by bench/models.py and bench/vs_torch.py, in addition to those of the examples."""
import torch
from torch import nn
from torch.nn import functional as F


class ViT(nn.Module):
    """A vision transformer (Dosovitskiy et al. 2021). The defaults are those of ViT-B/16."""
    def __init__(self, picture=224, patch=16, size=768, heads=12, layers=12, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, size, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, size))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (picture // patch)**2 + 1, size))
        layer = nn.TransformerEncoderLayer(size, heads, 4 * size, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(size), enable_nested_tensor=False)
        self.out = nn.Linear(size, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.positions
        return self.out(self.encoder(x)[:, 0])


def double_conv(into, out):
    """Two convolutions, each followed by a norm and an activation."""
    def once(a): return [nn.Conv2d(a, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU()]
    return nn.Sequential(*once(into), *once(out))


class UNet(nn.Module):
    """A U-Net (Ronneberger et al. 2015): three downsampling and upsampling stages with skip connections by default."""
    def __init__(self, width=64, depth=3):
        super().__init__()
        sizes = [width << i for i in range(depth + 1)]
        self.down = nn.ModuleList([double_conv(a, b) for a, b in zip([3] + sizes, sizes)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * a, a, 2, 2) for a in sizes[-2::-1]])
        self.join = nn.ModuleList([double_conv(2 * a, a) for a in sizes[-2::-1]])
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        seen = []
        for i, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if i else x)
            seen.append(x)
        for up, join, old in zip(self.up, self.join, seen[-2::-1]):
            x = join(torch.cat([up(x), old], 1))
        return self.out(x)


class LanguageModel(nn.Module):
    """An LSTM language model (Zaremba et al. 2014)."""
    def __init__(self, words=10000, size=650, layers=2):
        super().__init__()
        self.words, self.net, self.out = nn.Embedding(words, size), nn.LSTM(size, size, layers), nn.Linear(size, words)

    def forward(self, x):
        return self.out(self.net(self.words(x))[0])


def generator(width=64, noise=100):
    """The generator of a DCGAN (Radford et al. 2015), for images of 64 x 64."""
    sizes, layers = [noise, 8 * width, 4 * width, 2 * width, width], []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers += [nn.ConvTranspose2d(a, b, 4, 2 if i else 1, 1 if i else 0, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator(width=64):
    layers = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for a in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(a, 2 * a, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * a), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 0, bias=False), nn.Flatten(0))


def mlp():
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
                         nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
