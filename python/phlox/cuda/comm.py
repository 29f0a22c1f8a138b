# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.comm: broadcast, reduce, scatter and gather over devices."""
from __future__ import annotations

import warnings

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from phlox._typing import Device

_C._name_missing(__name__)


def _need_tensors(tensors, function):
    for tensor in tensors:
        if not isinstance(tensor, _C.Tensor):
            raise TypeError(f"{function}(): argument 'tensors' must be Tensor, not "
                            f"{type(tensor).__name__}")
    return tensors


def _need_tensor(tensor, function):
    if not isinstance(tensor, _C.Tensor):
        raise TypeError(f"{function}(): argument 'tensor' must be Tensor, not "
                        f"{type(tensor).__name__}")


def broadcast(tensor: _C.Tensor, devices: Iterable[Device] | None = None, *,
              out: Sequence[_C.Tensor] | None = None) -> tuple[_C.Tensor, ...]:
    """Broadcasts a tensor to several devices.

    Args:
        tensor (Tensor): the tensor to copy
        devices (sequence of devices): destination devices; or
        out (sequence of Tensors): CUDA tensors that receive the copies

    Returns the copies, or `out`.
    """
    _need_tensor(tensor, "broadcast")
    if (devices is None) == (out is None):
        raise RuntimeError("Exactly one of 'devices' and 'out' must be specified, but got "
                           f"devices={devices} and out={out}")
    if out is None:
        return _C._broadcast(tensor, devices)
    for i, target in enumerate(_need_tensors(out, "broadcast")):
        if not target.is_cuda:
            raise RuntimeError("Expected all output tensors to be CUDA tensors, but output tensor "
                               f"at index {i} has device '{target.device}'")
        target.copy_(tensor, non_blocking=True)
    return out


def reduce_add(inputs: Sequence[_C.Tensor], destination: Device | None = None) -> _C.Tensor:
    """Sums tensors of several devices.

    Args:
        inputs (sequence of Tensors): tensors of the same size
        destination (device): the device of the sum. Default: the current device
    """
    inputs = _need_tensors(list(inputs), "reduce_add")
    if destination is not None:
        destination = _C.device("cuda", _C._device_indices([destination])[0])
        if all(tensor.device != destination for tensor in inputs):
            raise RuntimeError("reduce_add expects destination to be on the same GPU with one of "
                               "the tensors")
    return _C._reduce_add(inputs, destination)


def broadcast_coalesced(tensors: Iterable[_C.Tensor], devices: Iterable[Device],
                        buffer_size: int = 10485760) -> list[list[_C.Tensor]]:
    """Broadcasts several tensors to several devices. Returns a list for each device.

    Args:
        tensors (sequence of Tensors): the tensors to copy
        devices (sequence of devices): destination devices
        buffer_size (int): ignored: tensors are not coalesced
    """
    devices = list(devices)
    copies = [broadcast(tensor, devices) for tensor in tensors]
    return [[copy[i] for copy in copies] for i in range(len(devices))]


def reduce_add_coalesced(inputs: Iterable[Iterable[_C.Tensor]], destination: Device | None = None,
                         buffer_size: int = 10485760) -> tuple[_C.Tensor, ...]:
    """Sums the i-th tensors of all devices, for each i.

    Args:
        inputs (sequence of sequences of Tensors): the tensors of each device
        destination (device): the device of the sums. Default: the current device
        buffer_size (int): ignored: tensors are not coalesced
    """
    return tuple(reduce_add(column, destination) for column in zip(*inputs))


def scatter(tensor: _C.Tensor, devices: Iterable[Device], chunk_sizes: Sequence[int] | None = None,
            dim: int = 0) -> tuple[_C.Tensor, ...]:
    """Splits a tensor and copies each chunk to a device.

    Args:
        tensor (Tensor): the tensor to split
        devices (sequence of devices): destination devices
        chunk_sizes (sequence of ints): sizes of the chunks along `dim`. Default: equal sizes
        dim (int): the dimension to split
    """
    _need_tensor(tensor, "scatter")
    devices, dim = list(devices), dim or 0
    if chunk_sizes is not None:
        if len(chunk_sizes) != len(devices):
            raise RuntimeError("Expected devices and chunk_sizes to be of same length, but got "
                               f"len(devices) = {len(devices)} and len(chunk_sizes) = "
                               f"{len(chunk_sizes)}")
        if sum(chunk_sizes) != tensor.size(dim):
            raise RuntimeError("split_with_sizes expects split_sizes to sum exactly to "
                               f"{tensor.size(dim)} (input tensor's size at dimension {dim}), but "
                               f"got split_sizes={chunk_sizes}")
    return tuple(_C._scatter_tensor(tensor, devices, dim, chunk_sizes))


def gather(tensors: Sequence[_C.Tensor], dim: int = 0,
           destination: Device | None = None) -> _C.Tensor:
    """Concatenates tensors of several devices along a dimension.

    Args:
        tensors (sequence of Tensors): tensors with equal sizes in all other dimensions
        dim (int): the dimension to concatenate
        destination (device): the result's device. Default: the current device; "cpu" for the host
    """
    tensors = _need_tensors(list(tensors), "gather")
    dims = tensors[0].dim() if tensors else 0
    dim = dim or 0
    at = dim + dims if dim < 0 else dim
    if not 0 <= at < 16:  # the maximum number of dimensions
        raise IndexError(f"Dimension out of range (got {at})")
    for i, tensor in enumerate(tensors):
        if not tensor.is_cuda:
            raise RuntimeError("Expected all input tensors to be CUDA tensors, but tensor at index "
                               f"{i} has device {tensor.device}")
        wanted = list(tensors[0].shape)
        if at < dims and tensor.dim() == dims:
            wanted[at] = tensor.size(at)
        if list(tensor.shape) != wanted:
            raise RuntimeError(f"Input tensor at index {i} has invalid shape {list(tensor.shape)}, "
                               f"but expected {wanted}")
    if destination == -1 and isinstance(destination, int):
        warnings.warn("Using -1 to represent CPU tensor is deprecated. Please use a device object "
                      'or string instead, e.g., "cpu".', FutureWarning, 2)
        destination = "cpu"
    return _C._gather_tensors(tensors, "cuda" if destination is None else destination, at)
