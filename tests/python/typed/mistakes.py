# SPDX-License-Identifier: Apache-2.0
"""Calls that a type checker must reject: an error on each marked line, and on no other (test_stubs.py). Not run."""
from typing_extensions import assert_type

import phlox as torch
import phlox.nn.functional as F
from phlox import Tensor, nn, optim

x = torch.ones(2, 3)
layer = nn.Linear(3, 4)
optimizer = optim.SGD(layer.parameters(), lr=0.1)

torch.add(x, "1")  # error
torch.add(x)  # error
torch.add(x, x, beta=2)  # error
torch.zeros("2")  # error
torch.zeros(2, dtype="float32")  # error
torch.softmax(x, dim="last")  # error
torch.cat(x, x)  # error
torch.no_such_function(x)  # error
x.view("2")  # error
x.sum(dim=0.5)  # error
x.no_such_method()  # error
x + "1"  # error
x["name"]  # error
torch.ones(2).shape = (3, 2)  # error
x.requires_grad = "yes"  # error
x.backward("gradient")  # error
F.relu("x")  # error
F.cross_entropy(x)  # error
F.conv2d(x, x, stride="2")  # error
nn.Linear(3)  # error
nn.Linear("3", 4)  # error
nn.Linear(3, 4, no_such=1)  # error
nn.Conv2d(1, 2, kernel_size="3")  # error
layer("x")  # error
layer.weight.no_such_method()  # error
layer.to(3.5)  # error
optim.SGD(layer.parameters(), lr="0.1")  # error
optim.Adam(layer.parameters(), betas=0.9)  # error
optim.lr_scheduler.StepLR(optimizer)  # error
optim.lr_scheduler.StepLR(layer, 2)  # error
torch.cuda.Stream(priority="high")  # error
torch.cuda.synchronize(1.5)  # error
torch.manual_seed("seed")  # error
torch.autograd.grad("y", x)  # error
length: str = x.size(0)  # error
number: int = torch.relu(x)  # error
values: int = torch.max(x, 1).values  # error

torch.add(x, 1, alpha=2)
torch.zeros(2, 3)
torch.zeros([2, 3])
x.sum(dim=(0, 1), keepdim=True)
nn.Conv2d(1, 2, kernel_size=(3, 3), padding="same")

assert_type(torch.add(x, 1), Tensor)
assert_type(x.T * 2 @ x[0, :, None] > 1, Tensor)
assert_type(x.shape, torch.Size)
assert_type(x.shape[0], int)
assert_type(x.size(1), int)
assert_type(x.dtype, torch.dtype)
assert_type(x.device.index, "int | None")
assert_type(x.grad, "Tensor | None")
assert_type(torch.max(x), Tensor)
assert_type(torch.max(x, 1).indices, Tensor)
assert_type(x.split(1), tuple[Tensor, ...])
assert_type(x.nonzero(as_tuple=True), tuple[Tensor, ...])
assert_type(layer(x), Tensor)
assert_type(layer.weight, Tensor)
assert_type(layer.in_features, int)
assert_type(layer.to("cpu"), nn.Linear)
assert_type(nn.Sequential(layer)(x), Tensor)
assert_type(F.interpolate(x, 2), Tensor)
assert_type(torch.isclose(x, x), Tensor)
assert_type(torch.cuda.current_stream().device, torch.device)
assert_type(torch.finfo(torch.float32).eps, float)
