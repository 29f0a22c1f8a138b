# SPDX-License-Identifier: Apache-2.0
"""Schedules of learning rates. The base classes are here; the rates of the library's kinds are the
core's, their classes (_schedules.py) written by the generator from optim/schedules.optim."""
from __future__ import annotations

import warnings
from bisect import bisect_right
from collections import Counter
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


def _per_group(name, optimizer, value):
    """A value for each group: those of a list, or the same for all."""
    if not isinstance(value, (list, tuple)):
        return [value] * len(optimizer.param_groups)
    if len(value) != len(optimizer.param_groups):
        raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has "
                         f"{len(value)} values, param_groups has {len(optimizer.param_groups)}.")
    return list(value)


def _set_rate(group, lr):
    """Gives a group its rate: one that is a tensor stays that tensor."""
    if isinstance(group["lr"], _C.Tensor):
        group["lr"].fill_(float(lr))
    else:
        group["lr"] = lr


def _number(lr):
    """What a rate is at the start: a whole number stays whole."""
    return lr if isinstance(lr, int) else float(lr)


def _rates_of(optimizer):
    return [group["lr"].clone() if isinstance(group["lr"], _C.Tensor) else group["lr"]
            for group in optimizer.param_groups]


def _set_momenta(optimizer, momenta):
    for group, momentum in zip(optimizer.param_groups, momenta):
        if "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


def _attributes_of(function):
    """What is saved of a function that is an object; None of a plain one."""
    plain = hasattr(function, "__code__") or not hasattr(function, "__dict__")
    return None if plain else dict(function.__dict__)


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
                group.setdefault("initial_lr", _number(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError("param 'initial_lr' is not specified in "
                               f"param_groups[{number}] when resuming scheduler with last_epoch >= 0.\n"
                               "This typically happens when:\n1. You're trying to resume training from a "
                               "checkpoint but haven't properly loaded the optimizer state\n2. You're using "
                               "last_epoch >= 0 for a fresh training run (not recommended)")
        self.base_lrs = [_number(group["initial_lr"]) for group in optimizer.param_groups]
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
        before = self.last_epoch, self._step_count
        self.last_epoch, self._step_count = epoch, self._step_count + 1
        try:
            for group, lr in zip(self.optimizer.param_groups, rates()):
                _set_rate(group, lr)
        except BaseException:
            self.last_epoch, self._step_count = before
            raise
        self._last_lr = _rates_of(self.optimizer)

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
        state["lr_lambdas"] = list(map(_attributes_of, self.lr_lambdas))
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
        rates = [_number(group["lr"]) for group in self.optimizer.param_groups]
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
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
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
            _set_rate(group, group["initial_lr"])
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
        self._last_lr = _rates_of(self.optimizer)

    def step(self) -> None:
        """Steps all of them, in their order."""
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = _rates_of(self.optimizer)


# ---- the library's kinds

class _Options:
    """Options of a kind as attributes, by which a program may change them."""

    def _keep(self, values):
        for name, value in zip(self._options, values):
            setattr(self, name, value)

    def _number(self, name):
        value, scale = getattr(self, name), getattr(self, "scale_fn", None)
        if name == "scale_fn" and scale is not None and hasattr(self, "last_epoch"):
            down = self.step_size_up if self.step_size_down is None else self.step_size_down
            cycle = floor(1 + self.last_epoch / (self.step_size_up + down))
            return float(scale(self.last_epoch if self.scale_mode == "iterations" else cycle))
        if name in ("mode", "scale_fn") and scale is not None:
            return 0.0  # what it says counts in the place of a mode
        if name in self._words:
            words, text = self._words[name]
            if value not in words:
                raise ValueError(text.format(value))
            return float(words.index(value))
        if isinstance(value, (list, tuple)):
            return float(value[0]) if value else nan
        if isinstance(value, Counter):
            return float(min(value, default=nan))
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
            self.milestones = Counter(self.milestones)
        filled, first = _C._schedule_check(self._kind, self._numbers())
        for name, value in zip(self._options, filled):
            if getattr(self, name) is None and not isnan(value):
                setattr(self, name, int(value))
        if not isnan(first) and last_epoch == -1:
            self._begin(optimizer, first)
        if "step_size_up" in self._options and last_epoch == -1:
            self._note(optimizer, lr=_per_group("base_lr", optimizer, self.base_lr))
        if "swa_lr" in self._options:
            self._note(optimizer, swa_lr=_per_group("swa_lr", optimizer, self.swa_lr))
        LRScheduler.__init__(self, optimizer, last_epoch)

    def _begin(self, optimizer, first):
        """Gives the groups the rates that the schedule begins with, each its own of a list."""
        kept = {"max_lr": _per_group("max_lr", optimizer, self.max_lr)}
        kept["initial_lr"] = ([most / self.div_factor for most in kept["max_lr"]]
                              if isinstance(self.max_lr, (list, tuple)) else
                              [first] * len(optimizer.param_groups))
        kept["min_lr"] = [lr / self.final_div_factor for lr in kept["initial_lr"]]
        self._note(optimizer, **kept)

    def _note(self, optimizer, lr=(), **kept):
        """Writes values to the groups, as PyTorch does, and the ends of a momentum that changes."""
        for name in ("max_momentum", "base_momentum") if getattr(self, "cycle_momentum", 0) else ():
            if not {"momentum", "betas"} & set(optimizer.defaults):
                raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` "
                                 "option enabled")
            kept[name] = _per_group(name, optimizer, getattr(self, name))
        for number, group in enumerate(optimizer.param_groups):
            group.update({name: values[number] for name, values in kept.items()})
        for group, rate in zip(optimizer.param_groups, lr):
            _set_rate(group, rate)

    def _rates(self, closed, epoch):
        rates, momenta = _C._schedule_rates(self, self._kind, closed, epoch)
        _set_momenta(self.optimizer, momenta)
        if "T_0" in self._options:
            self.T_cur, self.T_i = epoch, self.T_0
            while self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult
        return rates

    def state_dict(self) -> dict[str, Any]:
        """All but the optimiser; of a function that is an object, its attributes."""
        state = super().state_dict()
        if "scale_fn" in state:
            scale = state.pop("scale_fn")
            state["_scale_fn_custom"] = None if scale is None else _attributes_of(scale)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what state_dict() gave; functions stay."""
        super().load_state_dict(state_dict)
        if state_dict.get("_scale_fn_custom"):
            vars(self.scale_fn).update(state_dict["_scale_fn_custom"])

    def get_lr(self) -> list[float]:
        """The rates that follow those of now, for each group."""
        return self._rates(self._by_epoch, self.last_epoch)

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
        several, groups = isinstance(self.min_lr, (list, tuple)), len(optimizer.param_groups)
        if several and len(self.min_lr) != groups:
            raise ValueError(f"expected {groups} min_lrs, got {len(self.min_lr)}")
        self.default_min_lr = None if several else self.min_lr
        self.min_lrs = list(self.min_lr) if several else [self.min_lr] * groups
        self.mode_worse = -inf if self.mode == "max" else inf
        self.last_epoch, self._last_lr = 0, _rates_of(optimizer)
        self._reset()

    def _reset(self):
        """Forgets the metrics."""
        self.best, self.num_bad_epochs, self.cooldown_counter = self.mode_worse, 0, 0

    @property
    def in_cooldown(self) -> bool:
        """Whether bad epochs are let pass, since the rates have just fallen."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Looks at a metric, a number or a tensor of one, and lets the rates fall if it is time."""
        if epoch is not None:
            warnings.warn(_EPOCH, stacklevel=2)
        falls, self.best, self.num_bad_epochs, self.cooldown_counter = _C._plateau_step(
            self, self._kind, self.best, self.num_bad_epochs, self.cooldown_counter,
            float(metrics))
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if falls:
            self._fall()
        self._last_lr = _rates_of(self.optimizer)

    step.__qualname__ = "ReduceLROnPlateau.step"  # errors of calls tell it

    def _fall(self):
        groups, numbers = self.optimizer.param_groups, self._numbers()
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from "
                    f"when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due "
                    "to a new param group being added to the optimizer. Please modify the "
                    "`min_lrs` field to match the length of the `optimizer` param groups.")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, numbers[self._options.index("min_lr")] in zip(groups, self.min_lrs):
            _set_rate(group, _C._plateau_rate(numbers, float(group["lr"])))


from ._schedules import *  # they derive from the classes above

_C._name_missing(__name__)
