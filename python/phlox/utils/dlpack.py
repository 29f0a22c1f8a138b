# SPDX-License-Identifier: Apache-2.0
"""torch.utils.dlpack: exchange of tensors with other libraries."""
from __future__ import annotations

import enum

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

_C._name_missing(__name__)


class DLDeviceType(enum.IntEnum):
    """The device types of DLPack."""
    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


_PINNED = DLDeviceType.kDLCPU, DLDeviceType.kDLCUDAHost  # pinned memory is the CPU's


class ReadOnlyTensorWrapper(_C.Tensor):
    """A view of a tensor whose exports are marked read-only; it has no other operation.

    >>> torch.utils.dlpack.ReadOnlyTensorWrapper(torch.ones(2)).__dlpack_device__()
    (<DLDeviceType.kDLCPU: 1>, 0)
    """
    __dlpack_c_exchange_api__ = _C._const_dlpack_exchange_api()
    _DLPACK_ALLOWED = frozenset({_C.Tensor.__dlpack__, _C.Tensor.__dlpack_device__})

    def __new__(cls, tensor):
        return tensor.as_subclass(cls)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls._DLPACK_ALLOWED:
            with _C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise RuntimeError(f"{cls.__name__} only supports DLPack export; '{getattr(func, '__name__', func)}' is not "
                           "allowed. Unwrap the tensor to operate on its data.")

    def __dlpack__(self, *, max_version=None, **kwargs):
        return super().__dlpack__(max_version=max_version or (1, 0), read_only=True, **kwargs)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> _C.Tensor:
    """Converts an object with __dlpack__, or a capsule (consumed), to a tensor sharing its memory.

    Args:
        ext_tensor: an array of another library; a device array's producer synchronizes with the
            current stream. Writing to a read-only array's tensor is undefined behaviour
        device: the device of the tensor. Other devices than the array's require a copy
        copy: True copies, False never copies, None copies if necessary

    >>> torch.from_dlpack(torch.ones(2))
    tensor([1., 1.])
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        if device is not None or copy is not None:
            raise AssertionError("device and copy kwargs not supported when ext_tensor is already a DLPack capsule.")
        return _C._take_capsule(ext_tensor)
    source = ext_tensor.__dlpack_device__() if hasattr(ext_tensor, "__dlpack_device__") else (DLDeviceType.kDLCPU, 0)
    target = None if device is None else _dl_device(device)
    moved = target is not None and target != source and (target[0], source[0]) != _PINNED
    if moved and copy is False:
        raise ValueError(f"cannot move DLPack tensor from device {source} to {target} without copying. "
                         "Set copy=None or copy=True.")
    options: dict[str, Any] = {"max_version": (1, 0)}
    if source[0] == DLDeviceType.kDLCUDA: options["stream"] = _C.cuda._native_stream(source[1])
    if copy is not None and not moved: options["copy"] = copy
    if target == source: options["dl_device"] = target
    capsule = _ask(ext_tensor, options)
    if moved: return _C._take_capsule(capsule).to(device)
    made = _C._take_capsule(capsule, options.get("copy", False))
    return made.clone() if copy and "copy" not in options else made


def _dl_device(device):
    if isinstance(device, str): device = _C.device(device)
    if not isinstance(device, _C.device):
        raise AssertionError(f"from_dlpack: unsupported device type: {type(device)}")
    if device.type == "meta": raise BufferError("Cannot pack tensors on meta")
    return _C.empty(0, device=device).__dlpack_device__()


def _ask(producer, options):
    """Calls __dlpack__; an option unknown to an older producer is removed from options."""
    for option in ("max_version", "copy", "dl_device"):
        try: return producer.__dlpack__(**options)
        except TypeError: options.pop(option, None)
    return producer.__dlpack__(**options)


def to_dlpack(tensor: _C.Tensor) -> Any:
    """Returns a capsule of the tensor, which may require gradient."""
    return tensor.detach().__dlpack__()
