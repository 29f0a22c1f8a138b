# SPDX-License-Identifier: Apache-2.0
"""Uneven inputs: ranks out of batches shadow the collectives of the other ranks."""
import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import phlox as torch

dist = torch.distributed


class JoinHook:
    """The actions of a joined rank. Subclass it."""

    def main_hook(self) -> None:
        """Shadows the collectives of one step of the active ranks."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Runs after all ranks have joined. `is_last_joiner`: True if this rank was among the last."""


class _JoinConfig(NamedTuple):
    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool


class Joinable(ABC):
    """The base class of joinable objects. Call Join.notify_join_context before each step."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig(False, False, False)

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Returns the hook. `kwargs` are those of the context."""

    @property
    @abstractmethod
    def join_device(self) -> torch.device:
        """The device for the context's collectives."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group for the context's collectives."""


class Join:
    """A context manager for ranks with different numbers of steps.

    joinables: all must use the same group; their hooks run in this order. throw_on_early_termination:
    all ranks raise RuntimeError once one is out of inputs. Other arguments are passed to join_hook.
    """

    def __init__(self, joinables: list[Joinable], enable: bool = True,
                 throw_on_early_termination: bool = False, **kwargs: Any) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._joinables, self._enable, self._throw = joinables, enable, throw_on_early_termination
        for i, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, i == 0)
        if any(joinable.join_process_group != joinables[0].join_process_group for joinable in joinables):
            raise ValueError("Using join context manager with multiple process groups")
        self._process_group, self._device = joinables[0].join_process_group, joinables[0].join_device
        self._rank = dist.get_rank(self._process_group)

    def __enter__(self) -> None:
        pass

    def _sum(self, value):
        count = torch.full((1,), float(value), device=self._device)
        dist.all_reduce(count, group=self._process_group)
        return count.item()

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        for joinable in self._joinables:
            joinable._join_config = _JoinConfig(False, False, False)
        if not self._enable or type:
            return
        steps = 0
        while self._sum(0):  # each active rank adds 1 in notify_join_context
            if self._throw:
                self._sum(1)
                raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")
            if steps == 1000:
                warnings.warn(f"Detected uneven input skew of greater than 1000. This means that rank {self._rank} has at least 1000 "
                              "fewer inputs than other currently-active ranks. This level of skew could lead to performance "
                              "degradation during training.", stacklevel=2)
            for hook in self._hooks:
                hook.main_hook()
            steps += 1
        for hook in self._hooks:
            hook.post_hook(steps == 0)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Notifies the joined ranks that this rank starts a step. Returns the all-reduce's work; None
        outside a context and for all joinables but the first."""
        if not hasattr(joinable, "_join_config"):
            raise AssertionError(f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor")
        config = joinable._join_config
        if not config.is_first_joinable or not config.enable:
            return None
        work = dist.all_reduce(torch.ones(1, device=joinable.join_device), group=joinable.join_process_group, async_op=True)
        if config.throw_on_early_termination:
            dist.all_reduce(ended := torch.zeros(1, device=joinable.join_device), group=joinable.join_process_group)
            if ended.item():
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work
