# SPDX-License-Identifier: Apache-2.0
"""Pickles tensors and storages for other processes (multiprocessing's queues, pipes, pools and
arguments). A CPU tensor is moved to shared memory; the message carries the file descriptor. For a
device tensor the message carries an IPC memory handle, and an event recorded after the pending
work."""
from __future__ import annotations

import atexit
import os
import warnings
from multiprocessing import reduction

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_copying = False  # True: messages contain copies of tensors
_sent = False  # True once this process has sent a device tensor


def copy_tensors() -> None:
    """Makes this process copy tensors into its messages. DataLoader workers do so, because they may
    exit before their batches are read."""
    global _copying
    _copying = True


def rebuild_storage(file: Any, size: int) -> _C.UntypedStorage:
    """Rebuilds a storage from a message."""
    fd = file.detach()
    try:
        return _C._storage_of_fd(fd, size)
    finally:
        os.close(fd)


def reduce_storage(storage: _C.UntypedStorage) -> tuple[Any, ...]:
    """Reduces a storage to a message."""
    if storage.is_cuda:
        raise RuntimeError("Cannot pickle CUDA storage; try pickling a CUDA tensor instead")
    fd = _C._storage_fd(storage)
    if fd is None:
        return _C._storage_of_name, (_C._storage_name(storage), storage.nbytes())
    return rebuild_storage, (reduction.DupFd(fd), storage.nbytes())


def finish_tensor(tensor: _C.Tensor, is_parameter: bool, requires_grad: bool,
                  attributes: dict[str, Any] | None) -> _C.Tensor:
    if is_parameter:
        tensor = _C._Parameter(tensor, requires_grad)
    else:
        tensor.requires_grad_(requires_grad)
    if attributes:
        tensor.__dict__.update(attributes)
    return tensor


def rebuild_tensor(is_parameter: bool, storage: _C.UntypedStorage, dtype: _C.dtype, offset: int,
                   size: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool,
                   attributes: dict[str, Any] | None) -> _C.Tensor:
    """Rebuilds a CPU tensor from a message."""
    tensor = _C._tensor_of_storage(storage, dtype, offset, size, stride)
    return finish_tensor(tensor, is_parameter, requires_grad, attributes)


def rebuild_cuda_tensor(is_parameter: bool, tensor_size: tuple[int, ...],
                        tensor_stride: tuple[int, ...], tensor_offset: int,
                        attributes: dict[str, Any] | None, dtype: _C.dtype, storage_device: int,
                        storage_handle: bytes, storage_size_bytes: int, storage_offset_bytes: int,
                        requires_grad: bool, ref_counter_handle: bytes, ref_counter_offset: int,
                        event_handle: bytes, event_sync_required: bool) -> _C.Tensor:
    """Rebuilds a CUDA tensor. The order of arguments is PyTorch's: programs may modify and forward
    them."""
    storage = _C.UntypedStorage._new_shared_cuda(
        storage_device, storage_handle, storage_size_bytes, storage_offset_bytes,
        ref_counter_handle, ref_counter_offset, event_handle, event_sync_required)
    tensor = _C._tensor_of_storage(storage, dtype, tensor_offset, tensor_size, tensor_stride)
    return finish_tensor(tensor, is_parameter, requires_grad, attributes)


def _warn_of_shared_memory() -> None:
    if _C.cuda.is_initialized() and _C._ipc_collect():
        warnings.warn("Producer process has been terminated before all shared CUDA tensors "
                      "released. See docs/reference/threads.md")


def reduce_cuda_tensor(tensor: _C.Tensor) -> tuple[Any, ...]:
    global _sent
    storage = tensor.untyped_storage()
    (device, handle, size, offset, counters, counter_offset, event, waits) = storage._share_cuda_()
    if not _sent:
        _sent = True
        atexit.register(_warn_of_shared_memory)
    return rebuild_cuda_tensor, (
        type(tensor) is _C._Parameter, tuple(tensor.shape), tensor.stride(),
        tensor.storage_offset(), tensor.__dict__ or None, tensor.dtype, device, handle, size,
        offset, tensor.requires_grad, counters, counter_offset, event, waits)


def rebuild_view(metadata: dict[str, bool], rebuild: Callable[..., _C.Tensor],
                 *args: Any) -> _C.Tensor:
    """Rebuilds a conjugate or negative view from a message."""
    tensor = rebuild(*args)
    _C._set_tensor_metadata(tensor, metadata)
    return tensor


def reduce_tensor(tensor: _C.Tensor) -> tuple[Any, ...]:
    """Reduces a tensor to a message."""
    if _copying or tensor.is_meta or (tensor.requires_grad and not tensor.is_leaf):
        return tensor.__reduce_ex__(2)
    rebuild, args = _reduce_shared(tensor)
    metadata = _C._get_tensor_metadata(tensor)
    return (rebuild_view, (metadata, rebuild, *args)) if metadata else (rebuild, args)


def _reduce_shared(tensor):
    if tensor.is_cuda:
        return reduce_cuda_tensor(tensor)
    is_parameter = type(tensor) is _C._Parameter
    return rebuild_tensor, (is_parameter, tensor.untyped_storage(), tensor.dtype,
                            tensor.storage_offset(), tuple(tensor.shape), tensor.stride(),
                            tensor.requires_grad, tensor.__dict__ or None)


def rebuild_event(device: _C.device, handle: bytes) -> _C.cuda.Event:
    """Rebuilds an event from its IPC handle."""
    return _C.cuda.Event.from_ipc_handle(device, handle)


def reduce_event(event: _C.cuda.Event) -> tuple[Any, ...]:
    """Reduces an event to a message."""
    handle = event.ipc_handle()
    return rebuild_event, (event.device, handle)


def init_reductions() -> None:
    """Registers the reductions with multiprocessing's pickler, for programs that use it directly,
    too."""
    for cls in (_C.Tensor, _C._Parameter):
        reduction.ForkingPickler.register(cls, reduce_tensor)
    reduction.ForkingPickler.register(_C.UntypedStorage, reduce_storage)
    reduction.ForkingPickler.register(_C.cuda.Event, reduce_event)


init_reductions()
