# SPDX-License-Identifier: Apache-2.0
"""torch.utils.dlpack: exchange of tensors with other libraries."""
from __future__ import annotations

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

_C._name_missing(__name__)
_CUDA = 2  # DLPack's kDLCUDA


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> _C.Tensor:
    """Converts an object with __dlpack__, or a capsule (consumed), to a tensor sharing its memory.

    Args:
        ext_tensor: an array of another library; a device array's producer synchronizes with the
            current stream
        device: the device of the tensor. Other devices than the array's require a copy
        copy: True copies, False never copies, None copies if necessary

    >>> torch.from_dlpack(torch.ones(2))
    tensor([1., 1.])
    """
    if type(ext_tensor).__name__ == "PyCapsule":
        return _to_device(_C._take_capsule(ext_tensor), device, copy)
    has_device = hasattr(ext_tensor, "__dlpack_device__")
    type_, index = ext_tensor.__dlpack_device__() if has_device else (None, 0)
    options = {"stream": _C.cuda._native_stream(index)} if type_ == _CUDA else {}
    return _to_device(_C._take_capsule(ext_tensor.__dlpack__(**options)), device, copy)


def _to_device(tensor, device, copy):
    dest = tensor.device if device is None else _C.empty(0, device=device).device
    if dest == tensor.device:
        return tensor.clone() if copy else tensor
    if copy is False:
        raise ValueError(f"cannot move (i.e. copy) tensor from {tensor.device} to {dest} without copying it")
    return tensor.to(dest)


def to_dlpack(tensor: _C.Tensor) -> Any:
    """Returns tensor.__dlpack__()."""
    return tensor.__dlpack__()
