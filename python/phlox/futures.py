# SPDX-License-Identifier: Apache-2.0
"""torch.futures: values set once by one thread and awaited by others.

A future of device work completes at once with an event. wait() makes the current stream wait for
the event, and callbacks run on a new stream after it."""
from __future__ import annotations

from itertools import count
from threading import Condition

from phlox import _C, cuda

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def _check_callable(callback):
    if not callable(callback):
        raise TypeError(f"expected a function, not {type(callback).__name__}")


class Future:
    """The result of an asynchronous call, set later.

    >>> future = torch.futures.Future()
    >>> double = future.then(lambda future: 2 * future.value())
    >>> future.set_result(21); double.wait()
    42
    """
    __module__ = "torch.futures"

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        if devices is not None and len(devices):
            raise NotImplementedError("torch.futures.Future(devices=) is not implemented in Phlox")
        self._changed = Condition()  # guards the other fields; notified once, when the value is set
        self._done = self._failed = False
        self._value: Any = None  # the result, or the exception if _failed
        self._callbacks: list[Callable[[Future], Any]] = []
        self._event: cuda.Event | None = None  # recorded after the device work of the value

    def __class_getitem__(cls, item: Any) -> type[Future]:
        return cls

    def done(self) -> bool:
        """Returns True if this Future is done: it has a result or an exception."""
        return self._done

    def set_result(self, result: Any) -> None:
        """Sets the result for this Future, which marks it completed. Raises RuntimeError if it is
        completed already."""
        self._complete(result, False)

    def set_exception(self, result: BaseException) -> None:
        """Sets an exception for this Future, raised by wait() and value()."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(result, True)

    def _complete(self, value, failed):
        with self._changed:
            if self._done:
                raise RuntimeError("Attempting to mark a completed Future as complete again. Note "
                                   "that a Future can only be marked completed once.")
            self._value, self._failed, self._done = value, failed, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            _C._call_back(callback, self)

    def value(self) -> Any:
        """Obtains the value of an already-completed future. Raises RuntimeError if it is not
        completed."""
        if not self._done:
            raise RuntimeError("the Future is not completed: call wait() first")
        if not self._failed:
            return self._value
        try:
            raise self._value
        finally:
            del self  # the traceback refers to this frame: no cycle

    def wait(self) -> Any:
        """Blocks until the value of this Future is ready, and returns it."""
        with self._changed:
            self._changed.wait_for(lambda: self._done)
        if self._event is not None:
            cuda.current_stream(self._event.device).wait_event(self._event)
        try:
            return self.value()
        finally:
            del self  # the traceback of an exception refers to this frame: no cycle

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Appends a callback, called with this Future on its completion; at once if it is
        completed. Exceptions of callbacks go to sys.unraisablehook."""
        _check_callable(callback)
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        _C._call_back(callback, self)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Returns a new Future of the result of callback(self), called on completion of self."""
        _check_callable(callback)
        child = Future()

        def run(parent):
            try:
                result = _on_stream(child, callback, parent) if parent._event else callback(parent)
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
                child.set_exception(RuntimeError(
                    f"Got the following error when running the callback: {text}"))
            else:
                child.set_result(result)

        self.add_done_callback(run)
        return child


def _on_stream(child, callback, parent):
    """Returns callback(parent), run on a new stream after the parent's device work. Records the
    child's event on that stream."""
    stream = cuda.Stream(parent._event.device)
    stream.wait_event(parent._event)
    with cuda.stream(stream):
        result = callback(parent)
    child._event = stream.record_event()
    return result


def collect_all(futures: list[Future]) -> Future:
    """Collects the provided Futures into a single combined Future, completed when all of them are
    completed. It fails if one of them does.

    >>> future = torch.futures.Future()
    >>> both = torch.futures.collect_all([future, future.then(lambda future: future.value() + 1)])
    >>> future.set_result(1); [future.value() for future in both.wait()]
    [1, 2]
    """
    futures, child, arrived = list(futures or ()), Future(), count(1)
    for i, future in enumerate(futures):
        if not isinstance(future, Future):
            raise TypeError(f"expected a Future as element {i}, but got {type(future).__name__}")

    def arrive(_):
        if next(arrived) == len(futures):  # the last
            errors = [future._value for future in futures if future._failed]
            child._complete(errors[0] if errors else futures, bool(errors))

    for future in futures:
        future.add_done_callback(arrive)
    if not futures:
        child.set_result(futures)
    return child


def wait_all(futures: list[Future]) -> list[Any]:
    """Waits for all provided futures to be complete, and returns the list of completed values."""
    return [future.wait() for future in collect_all(futures).wait()]


_C._name_missing(__name__)
