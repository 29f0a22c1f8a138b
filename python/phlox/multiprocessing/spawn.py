# SPDX-License-Identifier: Apache-2.0
"""spawn(fn, args, nprocs): runs a function in several processes, each with its index."""
from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings
from multiprocessing import connection

from .. import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class ProcessException(Exception):
    """The base class of failures of spawned processes."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function raised an exception. The message has the traceback."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """The process exited with a nonzero code or was killed by a signal."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int,
                 signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn, number, args, errors):
    """The main function of a process. An exception is written to the file `errors`: a pipe would
    block without a reader."""
    _C._end_with_parent()
    try:
        fn(number, *args)
    except KeyboardInterrupt:
        pass  # the parent gets the interrupt, too
    except Exception:
        with open(errors, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """The processes of one start_processes() call."""

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Returns the process ids, in order."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for processes to end. Returns True if all have ended. If one fails, terminates the
        others (after `grace_period` seconds, if given) and raises the failure."""
        if not self.sentinels:
            return True
        failed = None
        for sentinel in connection.wait(list(self.sentinels), timeout=timeout):
            number = self.sentinels.pop(sentinel)
            self.processes[number].join()
            if self.processes[number].exitcode != 0:
                failed = number
                break
        if failed is None:
            return not self.sentinels
        self._end_others(grace_period)
        raise self._failure(failed)

    def _end_others(self, grace_period):
        end = time.monotonic() + (grace_period or 0)
        for process in self.processes:
            process.join(max(0, end - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        end = time.monotonic() + (30 if grace_period is None else grace_period)
        for process in self.processes:
            process.join(max(0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _failure(self, number):
        process, path = self.processes[number], self.error_files[number]
        if os.path.getsize(path):
            with open(path, "rb") as file:
                text = pickle.load(file)
            return ProcessRaisedException(f"\n\n-- Process {number} terminated with the following "
                                          f"error:\n{text}", number, process.pid)
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name
            return ProcessExitedException(f"process {number} terminated with signal {name}", number,
                                          process.pid, code, name)
        return ProcessExitedException(f"process {number} terminated with exit code {code}", number,
                                      process.pid, code)

    def __del__(self) -> None:
        for path in self.error_files:
            try:
                os.unlink(path)
            except OSError:
                pass


class SpawnContext(ProcessContext):
    """The processes of spawn(join=False). See ProcessContext."""


def start_processes(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1,
                    join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> ProcessContext | None:
    """Starts `nprocs` processes running fn(i, *args) for i in range(nprocs). Waits for them and
    returns None, or returns their ProcessContext.

    Args:
        fn (Callable): a module-level function: child processes import it
        args (tuple): arguments of fn after the index; CPU tensors are shared
        nprocs (int): the number of processes
        join (bool): if True, waits; a failure of one process ends the others and is raised
        daemon (bool): if True, the processes end with this one
        start_method (str): "spawn", "fork" or "forkserver"
    """
    context = multiprocessing.get_context(start_method)
    processes, files = [], []
    try:
        for number in range(nprocs):
            fd, path = tempfile.mkstemp(prefix="phlox-errors-", suffix=".pickle")
            os.close(fd)
            files.append(path)
            process = context.Process(target=_run, args=(fn, number, args, path), daemon=daemon)
            process.start()
            processes.append(process)
    except BaseException:
        SpawnContext(processes, files)._end_others(0)
        raise
    spawned = SpawnContext(processes, files)
    if not join:
        return spawned
    try:
        while not spawned.join():
            pass
    except KeyboardInterrupt:  # the children may not have received it
        spawned._end_others(2)
        raise
    return None


def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
          daemon: bool = False, start_method: str = "spawn") -> ProcessContext | None:
    """Starts processes with the start method "spawn". See start_processes()."""
    if start_method != "spawn":
        warnings.warn(f"This method only supports start_method=spawn (got: {start_method}). "
                      "To use a different start_method use torch.multiprocessing.start_processes",
                      FutureWarning, stacklevel=2)
    return start_processes(fn, args, nprocs, join, daemon)
