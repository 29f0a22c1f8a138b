# SPDX-License-Identifier: Apache-2.0
"""torch.save and torch.load: values and tensors in safetensors files, or in file-like objects;
torch.frombuffer."""
from __future__ import annotations

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any


class PartlyRead(dict):
    """The tensors of a file, less those of dtypes that Phlox lacks: `foreign` has the dtypes of
    these by name, and asking for one raises NotImplementedError."""

    def __init__(self, tensors: dict[str, Any], foreign: dict[str, str]) -> None:
        super().__init__(tensors)
        self.foreign = foreign

    def __missing__(self, key):
        if key not in self.foreign: raise KeyError(key)
        raise NotImplementedError(f"tensor '{key}' of the file has the dtype {self.foreign[key]}, "
                                  "which Phlox lacks; the other tensors were read")


def _is_path(f):
    return isinstance(f, (str, bytes)) or hasattr(f, "__fspath__")


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int | None = None,
         _use_new_zipfile_serialization: bool = True) -> None:
    """Writes tensors, numbers, strings, None, and lists, tuples and dicts of them.

    Args:
        obj: the value; tensors that share memory are written once
        f (path or file): where to; of a file-like object, `write` is called
        pickle_module, pickle_protocol: not used, since nothing is pickled

    Raises NotImplementedError for values of other types, such as a module: save its state_dict().

    >>> import io; file = io.BytesIO()
    >>> torch.save({"x": torch.ones(2)}, file); file.seek(0)
    0
    >>> torch.load(file)
    {'x': tensor([1., 1.])}
    """
    if _is_path(f):
        _C._save_tree(obj, f)
        return
    if not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a "
                             "'write' attribute")
    f.write(_C._save_tree(obj, None))


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool = True,
         mmap: bool | None = None) -> Any:
    """Reads what torch.save, or another program, wrote as safetensors. Nothing in a file is
    executed.

    Args:
        f (path or file): where from; of a file-like object, `read` is called
        map_location (device, str, dict, callable or None): where tensors go: a device; a dict of
            names of devices, or a function of a storage and the name of the device that it was
            saved on; None is where they were

    Raises RuntimeError for what was saved on a device that is not there, and for files of another
    kind.
    """
    device_of = lambda tensor, home: _device_of(map_location, tensor, str(home))
    if _is_path(f):
        return _C._load_tree(f, None, device_of)
    if not hasattr(f, "read"):
        raise AttributeError(f"'{type(f).__name__}' object has no attribute 'read'. You can only "
                             "torch.load from a file that is seekable. Please pre-load the data "
                             "into a buffer like io.BytesIO and try to load from it instead.")
    return _C._load_tree(None, f.read(), device_of)


def _device_of(map_location, tensor, saved):
    if isinstance(map_location, (str, _C.device)):
        saved = map_location
    elif isinstance(map_location, dict):
        saved = map_location.get(saved, saved)
    elif map_location is not None:
        mapped = map_location(tensor.untyped_storage(), saved)
        saved = saved if mapped is None else mapped.device
    return _there(str(saved))


def _there(location):
    """The device of a location as files have it, "cuda:1": it must be there."""
    try:
        device = _C.device(location)
    except (RuntimeError, TypeError, ValueError):
        raise RuntimeError("don't know how to restore data location of "
                           f"torch.storage.UntypedStorage (tagged with {location})") from None
    count = _C.cuda.device_count() if device.type == "cuda" else None
    if count == 0:
        raise RuntimeError("Attempting to deserialize object on a CUDA device but "
                           "torch.cuda.is_available() is False. If you are running on a CPU-only "
                           "machine, please use torch.load with map_location=torch.device('cpu') "
                           "to map your storages to the CPU.")
    if count is not None and device.index is not None and device.index >= count:
        raise RuntimeError(f"Attempting to deserialize object on CUDA device {device.index} but "
                           f"torch.cuda.device_count() is {count}. Please use torch.load with "
                           "map_location to map your storages to an existing device.")
    return device


def frombuffer(buffer: Any, *, dtype: _C.dtype, count: int = -1, offset: int = 0,
               requires_grad: bool = False) -> _C.Tensor:
    """A tensor of one dimension over the memory of an object with the buffer protocol.

    Args:
        buffer: bytes, bytearray, memoryview, array.array...
        dtype (torch.dtype): what its bytes are
        count (int): how many elements; -1 for all
        offset (int): where they begin, in bytes

    Raises ValueError where the buffer is too short.

    >>> torch.frombuffer(bytearray([1, 0, 2, 0]), dtype=torch.int16)
    tensor([1, 2], dtype=torch.int16)
    """
    length, size = memoryview(buffer).nbytes, dtype.itemsize
    if length <= 0 or not 0 <= offset < length:
        raise ValueError("offset must be non-negative and no greater than buffer length "
                         f"({length - 1}) , but got {offset}")
    if count < 0:
        if (length - offset) % size:
            raise ValueError(f"buffer length ({length} bytes) after offset ({offset} bytes) must "
                             f"be a multiple of element size ({size})")
        count = (length - offset) // size
    if offset + count * size > length:
        raise ValueError(f"requested buffer length ({count} * {size} bytes) after offset ({offset} "
                         f"bytes) must not be greater than actual buffer length ({length} bytes)")
    made = _C._over_buffer(buffer, dtype, count, offset)
    return made.requires_grad_() if requires_grad else made
