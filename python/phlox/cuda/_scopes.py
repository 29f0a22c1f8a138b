# SPDX-License-Identifier: Apache-2.0
"""with torch.cuda.device(...), device_of(...), stream(...): what is current within a block."""
from __future__ import annotations

from phlox import cuda

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any, Literal

    from phlox._typing import Device


class device:
    """Makes a device current within a with statement.

    Args:
        device (torch.device, str, int or None): None, and a negative index, change nothing

    >>> with torch.cuda.device(0):
    ...     x = torch.zeros(2, device='cuda')
    """

    __module__ = "torch.cuda"

    def __init__(self, device: Device | None) -> None:
        self.idx, self._restores = cuda._scope_index(device)
        self._before = []

    def __enter__(self) -> device:
        self._before.append(cuda._exchange_device(self.idx))
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        if not self._before:
            raise RuntimeError("the device scope was not entered")
        before = self._before.pop()
        if self._restores:
            cuda._exchange_device(before)
        return False


class device_of(device):
    """Makes the device of a tensor current within a with statement; of one on the CPU, changes
    nothing.

    Args:
        obj (Tensor): or what else has is_cuda and get_device
    """

    __module__ = "torch.cuda"

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


class StreamContext:
    """Makes a stream, and its device, current within a with statement. None changes nothing.

    Args:
        stream (Stream or None)

    >>> with torch.cuda.stream(torch.cuda.Stream()):
    ...     x = torch.zeros(2, device='cuda')
    """

    __module__ = "torch.cuda"

    def __init__(self, stream: cuda.Stream | None = ...) -> None:
        if stream is ...:
            raise TypeError("stream() missing 1 required positional argument: 'stream' (a new "
                            "stream is made by torch.cuda.Stream())")
        self.stream = stream
        self._before = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        if not isinstance(self.stream, cuda.Stream):
            raise TypeError(f"expected a torch.cuda.Stream, not {type(self.stream).__name__}")
        before = cuda._exchange_device(-1), cuda.current_stream(self.stream.device)
        cuda.set_stream(self.stream)
        self._before.append(before)

    def __exit__(self, *exc: object) -> None:
        if self.stream is None:
            return
        if not self._before:
            raise RuntimeError("the stream was not entered")
        index, stream = self._before.pop()
        cuda.set_stream(stream)
        cuda._exchange_device(index)


stream = StreamContext
