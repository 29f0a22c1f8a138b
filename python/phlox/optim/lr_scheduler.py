# SPDX-License-Identifier: Apache-2.0
"""Schedules of learning rates. The base classes are here; the rates of the library's kinds are the
core's, their classes (_schedules.py) written by the generator from optim/schedules.optim."""
from __future__ import annotations

import warnings
from bisect import bisect_right
from math import floor, inf, isfinite, isnan, nan

from phlox import _C

from .optimizer import Optimizer

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_TOO_EARLY = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, "
    "you should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  "
    "Failure to do this will result in PyTorch skipping the first value of the learning rate "
    "schedule. See more details at "
    "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate")
_EPOCH = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available.")


class LRScheduler:
    """The base of schedules: derive from it with a `get_lr` that gives a rate for each group, from
    self.last_epoch and self.base_lrs.

    optimizer: whose rates it sets, at once and at every step().
    last_epoch: the epoch to go on from, where the groups have an "initial_lr"; -1: the start.
    """

    _warns_of_epochs = True

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if last_epoch < -1:
            raise ValueError(f"last_epoch is not less than -1, but got {last_epoch}")
        self.optimizer, self.last_epoch, self._step_count = optimizer, last_epoch, 0
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", float(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError("param 'initial_lr' is not specified in "
                               f"param_groups[{number}] when resuming an optimizer")
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self._advance(last_epoch + 1, self.get_lr)

    def state_dict(self) -> dict[str, Any]:
        """All that is remembered but the optimiser."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what state_dict() gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[float]:
        """The rates that the last step has set."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The rates of self.last_epoch, for each group."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def _advance(self, epoch, rates):
        """Goes to an epoch, and sets its rates; stays where they cannot be had."""
        before, self.last_epoch = self.last_epoch, epoch
        try:
            for group, lr in zip(self.optimizer.param_groups, rates()):
                group["lr"] = lr
        except BaseException:
            self.last_epoch = before
            raise
        self._step_count += 1
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: float | None = None) -> None:
        """Sets the rates of the next epoch, or those of any, by a form that knows it."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(_TOO_EARLY, stacklevel=2)
        if epoch is None:
            self._advance(self.last_epoch + 1, self.get_lr)
            return
        if self._warns_of_epochs:
            warnings.warn(_EPOCH, stacklevel=2)
        if not isfinite(epoch):
            raise ValueError(f"there is no epoch {epoch}")
        self._go_to(epoch)

    def _go_to(self, epoch):
        """Goes to any epoch, by a form that knows its rates if there is one."""
        closed = getattr(self, "_get_closed_form_lr", None)
        self._advance(floor(epoch), self.get_lr if closed is None else lambda: closed(epoch))


_LRScheduler = LRScheduler


class LambdaLR(LRScheduler):
    """Multiplies each group's first rate by what a function says of the epoch.

    lr_lambda: a function, or a list of them, one for each group.

        >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 ** epoch)
        >>> optimizer.step(); schedule.step(); schedule.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer,
                 lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
                 last_epoch: int = -1) -> None:
        groups = len(optimizer.param_groups)
        many = isinstance(lr_lambda, (list, tuple))
        if many and len(lr_lambda) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(lr_lambda)}")
        self.lr_lambdas = list(lr_lambda) if many else [lr_lambda] * groups
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The first rates times what the functions say."""
        return [base * function(self.last_epoch)
                for function, base in zip(self.lr_lambdas, self.base_lrs)]

    def state_dict(self) -> dict[str, Any]:
        """All but the optimiser and plain functions; of functions that are objects, their
        attributes."""
        state = super().state_dict()
        state["lr_lambdas"] = [dict(f.__dict__) if not hasattr(f, "__code__") and
                               hasattr(f, "__dict__") else None for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what state_dict() gave; the functions stay."""
        for function, saved in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ())):
            if saved is not None:
                function.__dict__.update(saved)
        self.__dict__.update({key: value for key, value in state_dict.items()
                              if key != "lr_lambdas"})


class MultiplicativeLR(LambdaLR):
    """Multiplies each group's rate of now by what a function says of the epoch.

        >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
        >>> rates = torch.optim.lr_scheduler
        >>> schedule = rates.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> optimizer.step(); schedule.step(); schedule.get_last_lr()
        [0.5]
    """

    def get_lr(self) -> list[float]:
        """The rates of now times what the functions say."""
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        if self.last_epoch == 0:
            return rates
        return [lr * function(self.last_epoch) for function, lr in zip(self.lr_lambdas, rates)]


# ---- several schedules of one optimiser

class _Several(LRScheduler):
    """What is made of other schedules keeps their states."""

    def state_dict(self) -> dict[str, Any]:
        """All that is remembered but the optimiser; of each schedule its own."""
        state = super().state_dict()
        state["_schedulers"] = [schedule.state_dict() for schedule in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what state_dict() gave."""
        for schedule, saved in zip(self._schedulers, state_dict["_schedulers"]):
            schedule.load_state_dict(saved)
        self.__dict__.update({key: value for key, value in state_dict.items()
                              if key != "_schedulers"})

    def _check(self, schedulers, optimizer):
        for number, schedule in enumerate(schedulers):
            if schedule.optimizer is not optimizer:
                raise ValueError(f"{type(self).__name__} expects all schedulers to belong to the "
                                 f"same optimizer, but got scheduler {type(schedule).__name__} at "
                                 f"index {number} has {schedule.optimizer!r}, which is different "
                                 f"from {type(optimizer).__name__}.")


class SequentialLR(_Several):
    """One schedule after another: the next one begins, at its epoch 0, at each milestone.

    schedulers: of `optimizer`, one more than there are milestones. ValueError otherwise.

        >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
        >>> rates = torch.optim.lr_scheduler
        >>> schedule = SequentialLR(optimizer, [rates.ConstantLR(optimizer, 0.5, 9),
        ...                                     rates.ExponentialLR(optimizer, 0.5)], [2])
        >>> for _ in range(4): optimizer.step(); schedule.step(); print(schedule.get_last_lr())
        [0.5]
        [1.0]
        [0.5]
        [0.25]
    """

    def __init__(self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int],
                 last_epoch: int = -1) -> None:
        self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be "
                             "one more than the number of milestone points, but got number of "
                             f"schedulers {len(schedulers)} and the number of milestones to be "
                             f"equal to {len(milestones)}")
        self.optimizer, self.last_epoch, self._step_count = optimizer, last_epoch + 1, 0
        self._schedulers, self._milestones = schedulers, milestones
        # Making the schedules has set rates: only the first one's count.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for schedule in schedulers:
            schedule.last_epoch -= 1
        first = schedulers[0]
        first._advance(first.last_epoch + 1, first.get_lr)
        self._last_lr = first.get_last_lr()

    def step(self) -> None:
        """Steps the schedule whose turn it is."""
        self.last_epoch += 1
        which = bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[which]
        if which > 0 and self._milestones[which - 1] == self.last_epoch:
            schedule._go_to(0)
        else:
            schedule._advance(schedule.last_epoch + 1, schedule.get_lr)
        self._last_lr = schedule.get_last_lr()


class ChainedScheduler(_Several):
    """Several schedules at once: each changes the rates that the one before has set.

        >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
        >>> rates = torch.optim.lr_scheduler
        >>> schedule = ChainedScheduler([rates.ExponentialLR(optimizer, 0.5),
        ...                              rates.ExponentialLR(optimizer, 0.1)])
        >>> optimizer.step(); schedule.step(); schedule.get_last_lr()
        [0.05]
    """

    def __init__(self, schedulers: list[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError(f"{type(self).__name__} expects at least one scheduler to be chained, "
                             "but got no scheduler.")
        self.optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        self._check(schedulers, self.optimizer)
        self._schedulers = list(schedulers)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self) -> None:
        """Steps all of them, in their order."""
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


# ---- the library's kinds

class _Options:
    """Options of a kind as attributes, by which a program may change them."""

    def _keep(self, values):
        for name, value in zip(self._options, values):
            setattr(self, name, value)

    def _number(self, name):
        value = getattr(self, name)
        if name in self._words:
            words, text = self._words[name]
            if value not in words:
                raise ValueError(text.format(value))
            return float(words.index(value))
        if isinstance(value, (list, tuple)):
            return float(value[0]) if value else nan
        return nan if value is None else float(value)

    def _numbers(self):
        return [self._number(name) for name in self._options]


class KindLR(_Options, LRScheduler):
    """What the schedules of the library share: the core knows their rates."""

    def _make(self, optimizer, last_epoch, *values):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self._keep(values)
        if "milestones" in self._options:
            self.milestones = sorted(self.milestones)
        filled, first = _C._schedule_check(self._kind, self._numbers())
        for name, value in zip(self._options, filled):
            if getattr(self, name) is None and not isnan(value):
                setattr(self, name, int(value))
        if not isnan(first) and last_epoch == -1:
            self._begin(optimizer, first)
        LRScheduler.__init__(self, optimizer, last_epoch)

    def _begin(self, optimizer, first):
        """Gives the groups the rates that the schedule begins with, each its own of a list."""
        groups = optimizer.param_groups
        if isinstance(self.max_lr, (list, tuple)):
            if len(self.max_lr) != len(groups):
                raise ValueError(f"expected {len(groups)} values for max_lr, got "
                                 f"{len(self.max_lr)}")
            firsts = [most / self.div_factor for most in self.max_lr]
        else:
            firsts = [first] * len(groups)
        if self.cycle_momentum and not {"momentum", "betas"} & set(optimizer.defaults):
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` "
                             "option enabled")
        for group, lr in zip(groups, firsts):
            group["initial_lr"] = lr

    def _rates(self, closed, epoch):
        rates, momenta = _C._schedule_rates(self, self._kind, closed, epoch)
        for group, momentum in zip(self.optimizer.param_groups, momenta):
            if "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            else:
                group["momentum"] = momentum
        return rates

    def get_lr(self) -> list[float]:
        """The rates that follow those of now, for each group."""
        return self._rates(False, self.last_epoch)

    def _get_closed_form_lr(self, epoch=None):
        return self._rates(True, self.last_epoch if epoch is None else epoch)

    @property
    def _warns_of_epochs(self):
        return self._kind != "CosineAnnealingWarmRestarts"


class PlateauLR(_Options, LRScheduler):
    """What ReduceLROnPlateau is made from: the core says when the rates fall."""

    def _make(self, optimizer, _, *values):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        self._keep(values)
        _C._schedule_check(self._kind, self._numbers())
        self.best = -inf if self.mode == "max" else inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Looks at a metric, a number or a tensor of one, and lets the rates fall if it is time."""
        falls, self.best, self.num_bad_epochs, self.cooldown_counter = _C._plateau_step(
            self, self._kind, self.best, self.num_bad_epochs, self.cooldown_counter,
            float(metrics))
        self.last_epoch += 1
        groups = self.optimizer.param_groups
        for group in groups if falls else ():
            group["lr"] = _C._plateau_rate(self._numbers(), float(group["lr"]))
        self._last_lr = [group["lr"] for group in groups]


from ._schedules import *  # they derive from the classes above

_C._name_missing(__name__)
