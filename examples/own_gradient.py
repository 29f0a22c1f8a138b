# SPDX-License-Identifier: Apache-2.0
"""examples/own_gradient.c in Python. Also runs on PyTorch."""
import torch


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu() + torch.log1p(torch.exp(-x.abs()))

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * torch.sigmoid(x)


x = torch.tensor([-200., 0., 1., 200.], dtype=torch.float64, requires_grad=True)
y = Softplus.apply(x)
y.sum().backward()
print("value", y)
print("gradient", x.grad)
assert torch.autograd.gradcheck(Softplus.apply, (x,))
print("the gradient agrees with differences")
