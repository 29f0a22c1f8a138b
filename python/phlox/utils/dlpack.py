# SPDX-License-Identifier: Apache-2.0
"""torch.utils.dlpack: tensors from and for other libraries."""
from __future__ import annotations

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

_C._name_missing(__name__)
_CUDA = 2  # DLPack's number of the device type


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> _C.Tensor:
    """A tensor over the memory of an object with __dlpack__, or of a capsule, which it takes.

    Args:
        ext_tensor: an array of another library; one on a device is told our current stream, which
            it makes wait
        device: where the tensor is to be; on another one than the array's it is a copy
        copy: whether the tensor is a copy, or must not be one

    >>> torch.from_dlpack(torch.ones(2))
    tensor([1., 1.])
    """
    if type(ext_tensor).__name__ == "PyCapsule":
        return _placed(_C._take_capsule(ext_tensor), device, copy)
    told = hasattr(ext_tensor, "__dlpack_device__")
    type_, index = ext_tensor.__dlpack_device__() if told else (None, 0)
    options = {"stream": _C.cuda._native_stream(index)} if type_ == _CUDA else {}
    return _placed(_C._take_capsule(ext_tensor.__dlpack__(**options)), device, copy)


def _placed(tensor, device, copy):
    place = tensor.device if device is None else _C.empty(0, device=device).device
    if place == tensor.device:
        return tensor.clone() if copy else tensor
    if copy is False:
        raise ValueError(f"cannot move (i.e. copy) tensor from {tensor.device} to {place} without copying it")
    return tensor.to(place)


def to_dlpack(tensor: _C.Tensor) -> Any:
    """tensor.__dlpack__()."""
    return tensor.__dlpack__()
