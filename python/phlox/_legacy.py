# SPDX-License-Identifier: Apache-2.0
"""Type names older than dtypes: torch.FloatTensor and the like, and torch.set_default_tensor_type."""
from __future__ import annotations

import warnings

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

_warned = False


class tensortype(type):
    """The metaclass of torch.FloatTensor. Calling a type creates a tensor; isinstance compares dtype and
    device."""

    __module__ = "torch"

    @property
    def is_cuda(cls):
        """True if the type's tensors are on a CUDA device."""
        return cls._device.type == "cuda"

    def __call__(cls, *data, device=None):
        global _warned
        if cls.is_cuda and not _warned:
            _warned = True
            warnings.warn("The torch.cuda.*DtypeTensor constructors are no longer recommended. "
                          "It's best to use methods such as torch.tensor(data, dtype=*, "
                          "device='cuda') to create tensors.", stacklevel=2)
        return _C._legacy_tensor(data, cls.dtype, cls._device, device)

    def __instancecheck__(cls, value):
        return (isinstance(value, _C.Tensor) and value.dtype == cls.dtype
                and value.device.type == cls._device.type)


def types(module, device):
    """Returns the legacy types of a module, by name."""
    names = {_C._dtype_class(dtype) + "Tensor": dtype for dtype in _C._typed_dtypes()}
    return {name: tensortype(name, (), {
        "__module__": module, "dtype": dtype, "_device": _C.device(device),
        "__doc__": f"Tensors of {dtype} on a {device} device. Legacy: use dtype and device instead."})
        for name, dtype in names.items()}


globals().update(types("torch", "cpu"))


def set_default_tensor_type(t: Any) -> None:
    """Sets the default dtype and the default device of torch.Tensor().

    Args:
        t (type or str): a floating-point type: torch.FloatTensor, "torch.cuda.DoubleTensor", ...

    Deprecated: use torch.set_default_dtype and torch.set_default_device.
    """
    warnings.warn("torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
                  "torch.set_default_dtype() and torch.set_default_device() as "
                  "alternatives.", stacklevel=2)
    if t is _C.Tensor:
        found = _C.float32, _C.device("cpu")
    elif isinstance(t, tensortype):
        found = t.dtype, t._device
    elif isinstance(t, str):
        found = _C._type_of_name(t)
        if found is None:
            module, _, name = t.rpartition(".")
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
    else:
        raise TypeError("invalid type object: only floating-point types are supported as the default type")
    if not found[0].is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    _C._set_legacy_type(*found)
