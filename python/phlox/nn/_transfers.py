# SPDX-License-Identifier: Apache-2.0
"""torch.nn.parallel._functions: copies between devices as autograd Functions."""
from __future__ import annotations

import warnings
from itertools import chain

import phlox as torch
from phlox import _C
from phlox.autograd import Function
from phlox.cuda import comm

_C._name_missing(__name__)
_streams = {}  # by device


def _indices(devices):
    return [torch.cuda._index_of(device) for device in devices]


def _check_devices(name, tensors):
    if not all(tensor.is_cuda for tensor in tensors):
        raise AssertionError(f"{name} function not implemented for CPU tensors")


class Broadcast(Function):
    """Copies of the inputs on each device, device by device. The gradient is their sum."""

    @staticmethod
    def forward(ctx, target_gpus, *inputs):
        _check_devices("Broadcast", inputs)
        if not inputs:
            return ()
        ctx.count, ctx.home = len(inputs), inputs[0].get_device()
        outputs = comm.broadcast_coalesced(inputs, _indices(target_gpus))
        ctx.mark_non_differentiable(*(copies[i] for copies in outputs for i in range(ctx.count)
                                      if not ctx.needs_input_grad[1 + i]))
        return tuple(chain.from_iterable(outputs))

    @staticmethod
    def backward(ctx, *grads):
        return (None, *ReduceAddCoalesced.apply(ctx.home, ctx.count, *grads))


class ReduceAddCoalesced(Function):
    """Sums of the tensors of all devices, given device by device. The gradient is a broadcast."""

    @staticmethod
    def forward(ctx, destination, num_inputs, *grads):
        ctx.devices = [grad.get_device() for grad in grads[::num_inputs]]
        return comm.reduce_add_coalesced([grads[i:i + num_inputs] for i in range(0, len(grads), num_inputs)],
                                         destination)

    @staticmethod
    def backward(ctx, *grads):
        return (None, None, *Broadcast.apply(ctx.devices, *grads))


class Gather(Function):
    """The inputs, concatenated on a device. The gradient is scattered."""

    @staticmethod
    def forward(ctx, target_device, dim, *inputs):
        _check_devices("Gather", inputs)
        ctx.dim, ctx.devices = dim, [tensor.get_device() for tensor in inputs]
        ctx.scalars = dim == 0 and all(tensor.dim() == 0 for tensor in inputs)
        if ctx.scalars:
            warnings.warn("Was asked to gather along dimension 0, but all input tensors were scalars; will "
                          "instead unsqueeze and return a vector.", stacklevel=2)
            inputs = [tensor.view(1) for tensor in inputs]
        ctx.sizes = [tensor.size(dim) for tensor in inputs]
        return comm.gather(inputs, dim, target_device)

    @staticmethod
    def backward(ctx, grad):
        parts = Scatter.apply(ctx.devices, ctx.sizes, ctx.dim, grad)
        return (None, None, *(part[0] if ctx.scalars else part for part in parts))


class Scatter(Function):
    """Chunks of the input, each on a device. The gradient is gathered."""

    @staticmethod
    def forward(ctx, target_gpus, chunk_sizes, dim, input):
        ctx.dim, ctx.home = dim, input.get_device() if input.is_cuda else "cpu"
        return comm.scatter(input, _indices(target_gpus), chunk_sizes, dim)

    @staticmethod
    def backward(ctx, *grads):
        return None, None, None, Gather.apply(ctx.home, ctx.dim, *grads)


def _get_stream(device):
    """Returns a stream of a device for copies, always the same; None for the CPU."""
    if device.type != "cuda":
        return None
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]
