# SPDX-License-Identifier: Apache-2.0
"""Python's multiprocessing with tensors in shared memory: writes of one process are visible to the
others."""
import multiprocessing
from multiprocessing import *  # noqa: F403

from phlox import _C

from .reductions import init_reductions
from .spawn import (ProcessContext, ProcessException, ProcessExitedException,
                    ProcessRaisedException, SpawnContext, spawn, start_processes)

_C._name_missing(__name__)
__all__ = ["get_all_sharing_strategies", "get_sharing_strategy", "init_reductions",
           "set_sharing_strategy", "spawn", "start_processes", "ProcessContext",
           "ProcessException", "ProcessExitedException", "ProcessRaisedException",
           "SpawnContext"] + multiprocessing.__all__


def get_all_sharing_strategies() -> set[str]:
    """Returns the sharing strategies: "file_descriptor" keeps a descriptor open for each storage,
    "file_system" uses names in the file system, for large numbers of tensors."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """Returns the current sharing strategy. It applies to storages shared from now on."""
    return "file_system" if _C._sharing_strategy() else "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Sets the sharing strategy, one of get_all_sharing_strategies()."""
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"invalid sharing strategy {new_strategy!r}, expected one of "
                             f"{sorted(get_all_sharing_strategies())}")
    _C._sharing_strategy(new_strategy == "file_system")
