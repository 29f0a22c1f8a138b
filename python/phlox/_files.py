# SPDX-License-Identifier: Apache-2.0
"""torch.frombuffer and from_file; and safetensors files with dtypes unknown to Phlox."""
from __future__ import annotations

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any


class PartlyRead(dict):
    """The tensors of a file, except those of dtypes unknown to Phlox. `foreign` maps their names to
    their dtypes; looking one up raises NotImplementedError."""

    def __init__(self, tensors: dict[str, Any], foreign: dict[str, str]) -> None:
        super().__init__(tensors)
        self.foreign = foreign

    def __missing__(self, key):
        if key not in self.foreign: raise KeyError(key)
        raise NotImplementedError(f"tensor '{key}' of the file has the dtype {self.foreign[key]}, "
                                  "which Phlox lacks; the other tensors were read")


def frombuffer(buffer: Any, *, dtype: _C.dtype, count: int = -1, offset: int = 0,
               requires_grad: bool = False) -> _C.Tensor:
    """Creates a 1-dimensional tensor sharing the memory of an object with the buffer protocol.

    Args:
        buffer: bytes, bytearray, memoryview, array.array...
        dtype (torch.dtype): the dtype of the elements
        count (int): the number of elements; -1 for all
        offset (int): the number of bytes to skip at the start

    Raises ValueError if the buffer is too short.

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


def mapped(filename, shared, count, dtype=_C.uint8):
    """Returns a 1-dimensional tensor backed by the first `count` bytes of a file. With `shared`,
    changes are written to the file, and the file is created or extended if necessary."""
    if not count:
        return _C.empty(0, dtype=dtype)
    import mmap
    import os
    try:
        fd = os.open(filename, os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY, 0o600)
    except OSError as error:
        raise RuntimeError(f"unable to open file <{filename}> in {'read-write' if shared else 'read-only'}"
                           f" mode: {error.strerror} ({error.errno})") from None
    try:
        size = os.fstat(fd).st_size
        if count > size and not shared:
            raise RuntimeError(f"file <{filename}> size <{size}> is smaller than the required mapping "
                               f"size <{count}>")
        if count > size:
            os.ftruncate(fd, count)
        memory = mmap.mmap(fd, count, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
        return frombuffer(memory, dtype=dtype)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"unable to mmap {count} bytes from file <{filename}>: {error}") from None
    finally:
        os.close(fd)


def from_file(filename: str, shared: bool | None = None, size: int = 0, *, dtype: _C.dtype | None = None,
              layout: _C.layout | None = None, device: _C.device | str | None = None,
              pin_memory: bool = False, requires_grad: bool = False) -> _C.Tensor:
    """Creates a 1-dimensional CPU tensor backed by a memory-mapped file.

    Args:
        filename: the file to map
        shared (bool): if True, changes are written to the file, and the file is created or extended
            if necessary; otherwise changes stay in memory
        size (int): the number of elements
        dtype (torch.dtype): the dtype of the elements. Default: the default dtype

    Raises RuntimeError if the file cannot be read or is too short.
    """
    if device is not None and _C.device(device).type != "cpu" or pin_memory:
        raise RuntimeError("from_file: the memory of a file is on the CPU, and not pinned")
    dtype = dtype or _C.get_default_dtype()
    made = mapped(filename, shared, size * dtype.itemsize, dtype)
    return made.requires_grad_() if requires_grad else made

