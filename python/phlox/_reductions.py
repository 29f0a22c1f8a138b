# SPDX-License-Identifier: Apache-2.0
"""How tensors and storages are pickled for other processes (multiprocessing's queues, pipes, pools
and arguments): a tensor on the CPU is moved to shared memory, and the message has its file."""
from __future__ import annotations

import os
import warnings
from multiprocessing import reduction

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

_copying = False  # whether tensors are copied into messages


def copy_tensors() -> None:
    """This process copies tensors into its messages from now on, as do workers of DataLoader, which
    may end before their batches are read."""
    global _copying
    _copying = True


def rebuild_storage(file: Any, size: int) -> _C.UntypedStorage:
    fd = file.detach()
    try:
        return _C._storage_of_fd(fd, size)
    finally:
        os.close(fd)


def reduce_storage(storage: _C.UntypedStorage) -> tuple[Any, ...]:
    if storage.is_cuda:
        raise RuntimeError("Cannot pickle CUDA storage; try pickling a CUDA tensor instead")
    return rebuild_storage, (reduction.DupFd(_C._storage_fd(storage)), storage.nbytes())


def rebuild_tensor(is_parameter: bool, storage: _C.UntypedStorage, dtype: _C.dtype, offset: int,
                   size: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool,
                   attributes: dict[str, Any] | None) -> _C.Tensor:
    tensor = _C._tensor_of_storage(storage, dtype, offset, size, stride)
    if is_parameter:
        tensor = _C._Parameter(tensor, requires_grad)
    else:
        tensor.requires_grad_(requires_grad)
    if attributes:
        tensor.__dict__.update(attributes)
    return tensor


def reduce_tensor(tensor: _C.Tensor) -> tuple[Any, ...]:
    if tensor.is_cuda:
        warnings.warn("Phlox copies tensors on devices into messages to other processes: what a "
                      "process writes to its copy, the others do not see", stacklevel=2)
    if tensor.is_cuda or _copying or (tensor.requires_grad and not tensor.is_leaf):
        return tensor.__reduce_ex__(2)
    is_parameter = type(tensor) is _C._Parameter
    return rebuild_tensor, (is_parameter, tensor.untyped_storage(), tensor.dtype,
                            tensor.storage_offset(), tuple(tensor.shape), tensor.stride(),
                            tensor.requires_grad, tensor.__dict__ or None)


def init_reductions() -> None:
    """Makes multiprocessing pickle tensors this way, also for programs that import it alone."""
    for cls in (_C.Tensor, _C._Parameter):
        reduction.ForkingPickler.register(cls, reduce_tensor)
    reduction.ForkingPickler.register(_C.UntypedStorage, reduce_storage)


init_reductions()
