# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.comm: copies, cuts, joins and sums of tensors over devices, by hand."""
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
    """Copies of a tensor on several devices.

    Args:
        tensor (Tensor)
        devices (sequence of devices): where to; or
        out (sequence of Tensors): on devices, into which it is copied

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
    """The sum of tensors of several devices.

    Args:
        inputs (sequence of Tensors): of one size
        destination (device): where the sum is; the current device by default
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
    """Copies of several tensors on several devices: a list for each device.

    Args:
        tensors (sequence of Tensors)
        devices (sequence of devices): where to
        buffer_size (int): at most how many bytes wait to be sent together; here none wait
    """
    devices = list(devices)
    copies = [broadcast(tensor, devices) for tensor in tensors]
    return [[copy[i] for copy in copies] for i in range(len(devices))]


def reduce_add_coalesced(inputs: Iterable[Iterable[_C.Tensor]], destination: Device | None = None,
                         buffer_size: int = 10485760) -> tuple[_C.Tensor, ...]:
    """The sums of the first tensors of several devices, of the second ones, and so on.

    Args:
        inputs (sequence of sequences of Tensors): those of each device
        destination (device): where the sums are; the current device by default
        buffer_size (int): at most how many bytes wait to be sent together; here none wait
    """
    return tuple(reduce_add(column, destination) for column in zip(*inputs))


def scatter(tensor: _C.Tensor, devices: Iterable[Device], chunk_sizes: Sequence[int] | None = None,
            dim: int = 0) -> tuple[_C.Tensor, ...]:
    """The parts of a tensor, each on a device.

    Args:
        tensor (Tensor)
        devices (sequence of devices): where to
        chunk_sizes (sequence of ints): the sizes of the parts along `dim`; equal ones by default
        dim (int): the dimension that is cut
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
    """Tensors of several devices joined along a dimension.

    Args:
        tensors (sequence of Tensors): alike in all other dimensions
        dim (int): the dimension
        destination (device): where to; the current device by default, "cpu" the host
    """
    tensors = _need_tensors(list(tensors), "gather")
    dims = tensors[0].dim() if tensors else 0
    dim = dim or 0
    at = dim + dims if dim < 0 else dim
    if not 0 <= at < 16:  # as many dimensions as tensors have
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
