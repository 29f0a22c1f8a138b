# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedulers. The base classes are here. The rates of built-in schedulers are computed
by the core; their classes (_schedules.py) are generated from optim/schedules.optim."""
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
    """Returns a list with a value per group, from a list or a common value."""
    if not isinstance(value, (list, tuple)):
        return [value] * len(optimizer.param_groups)
    if len(value) != len(optimizer.param_groups):
        raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has "
                         f"{len(value)} values, param_groups has {len(optimizer.param_groups)}.")
    return list(value)


def _set_rate(group, lr):
    """Sets a group's learning rate. A tensor is updated in place."""
    if isinstance(group["lr"], _C.Tensor):
        group["lr"].fill_(float(lr))
    else:
        group["lr"] = lr


def _number(lr):
    """Returns a learning rate as a number; an int stays an int."""
    return lr if isinstance(lr, int) else float(lr)


def _reset_rates(optimizer):
    for group in optimizer.param_groups:
        _set_rate(group, group["initial_lr"])


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
    """Returns the attributes of a callable object for state_dict; None for a plain function."""
    plain = hasattr(function, "__code__") or not hasattr(function, "__dict__")
    return None if plain else dict(function.__dict__)


class LRScheduler:
    """The base class of schedulers. Subclasses define `get_lr`, which returns a rate per group from
    self.last_epoch and self.base_lrs.

    optimizer: the optimiser to schedule. Its rates are set by the constructor and by each step().
    last_epoch: the epoch to resume from, with an "initial_lr" in each group; -1: start from epoch 0.
    """

    _warns_of_epochs = True

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if last_epoch < -1:
            raise ValueError(f"last_epoch is not less than -1, but got {last_epoch}")
        self.optimizer, self.last_epoch = optimizer, last_epoch
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
        self._initial_step()

    def _initial_step(self):
        """Sets the rates of the first epoch."""
        self._step_count, self._is_initial, self._get_lr_called_within_step = 0, True, False  # the last for state dicts
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Returns all attributes except the optimiser."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the result of state_dict()."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[float]:
        """Returns the rates set by the last step."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """Returns the rates of self.last_epoch, one per group."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def _update_lr(self, epoch=None):
        """Sets the rates of the next epoch, or of the given one by its closed form, if there is one. If it fails, the epoch is unchanged."""
        before, rates = self.last_epoch, self.get_lr
        if epoch is not None:
            rates = getattr(self, "_get_closed_form_lr", rates)
        self.last_epoch = before + 1 if epoch is None else epoch
        try:
            for group, lr in zip(self.optimizer.param_groups, rates()):
                _set_rate(group, lr)
        except BaseException:
            self.last_epoch = before
            raise
        self._last_lr = _rates_of(self.optimizer)

    def _undo(self):
        """Undoes the first step, so that a SequentialLR can repeat it."""
        self.last_epoch -= 1

    def _restart(self):
        """Sets the rates of epoch 0 from the present ones."""
        self.last_epoch = -1
        self._update_lr()

    def step(self, epoch: float | None = None) -> None:
        """Sets the rates of the next epoch, or of the given one by its closed form."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(_TOO_EARLY, stacklevel=2)
        if epoch is not None and self._warns_of_epochs:
            warnings.warn(_EPOCH, stacklevel=2)
        if epoch is not None and not isfinite(epoch):
            raise ValueError(f"there is no epoch {epoch}")
        self._step_count += 1
        try:
            self._update_lr(epoch)
        except BaseException:
            self._step_count -= 1
            raise


_LRScheduler = LRScheduler


class LambdaLR(LRScheduler):
    """Multiplies each group's initial rate by a function of the epoch.

    lr_lambda: a function, or a list with one function per group.

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
        """Returns the initial rates times the functions' values."""
        return [base * function(self.last_epoch)
                for function, base in zip(self.lr_lambdas, self.base_lrs)]

    def state_dict(self) -> dict[str, Any]:
        """Returns all attributes except the optimiser and plain functions. Callable objects are saved
        as their attributes."""
        state = super().state_dict()
        state["lr_lambdas"] = list(map(_attributes_of, self.lr_lambdas))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the result of state_dict(). Functions are kept."""
        for function, saved in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ())):
            if saved is not None:
                function.__dict__.update(saved)
        self.__dict__.update({key: value for key, value in state_dict.items()
                              if key != "lr_lambdas"})


class MultiplicativeLR(LambdaLR):
    """Multiplies each group's current rate by a function of the epoch.

        >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
        >>> rates = torch.optim.lr_scheduler
        >>> schedule = rates.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> optimizer.step(); schedule.step(); schedule.get_last_lr()
        [0.5]
    """

    def get_lr(self) -> list[float]:
        """Returns the current rates times the functions' values."""
        rates = [_number(group["lr"]) for group in self.optimizer.param_groups]
        if self._is_initial:
            return rates
        return [lr * function(self.last_epoch) for function, lr in zip(self.lr_lambdas, rates)]


# ---- combinations of schedulers for one optimiser

class _Composite(LRScheduler):
    """A scheduler composed of others. Its state includes theirs."""

    def state_dict(self) -> dict[str, Any]:
        """Returns all attributes except the optimiser, with a state dict per scheduler."""
        state = super().state_dict()
        state["_schedulers"] = [schedule.state_dict() for schedule in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the result of state_dict()."""
        for schedule, saved in zip(self._schedulers, state_dict["_schedulers"]):
            schedule.load_state_dict(saved)
        self.__dict__.update({key: value for key, value in state_dict.items()
                              if key != "_schedulers"})

    def _undo(self):
        for schedule in self._schedulers:
            schedule._undo()

    def _update_lr(self, epoch=None):
        """Starts again from the initial rates, at a milestone of a SequentialLR."""
        _reset_rates(self.optimizer)
        self._restart()

    def _check(self, schedulers, optimizer):
        for number, schedule in enumerate(schedulers):
            if not hasattr(schedule, "optimizer"):
                raise TypeError(f"{type(self).__name__} at index {number} should have `optimizer` as its attribute.")
            if isinstance(schedule, PlateauLR):
                raise ValueError(f"{type(self).__name__} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs "
                                 f"to be specified when calling `step`, but got one at index {number} in the given schedulers sequence.")
            if schedule.optimizer is not optimizer:
                raise ValueError(f"{type(self).__name__} expects all schedulers to belong to the "
                                 f"same optimizer, but got scheduler {type(schedule).__name__} at "
                                 f"index {number} has {schedule.optimizer!r}, which is different "
                                 f"from {type(optimizer).__name__}.")


class SequentialLR(_Composite):
    """Runs schedulers in sequence: the next one starts with its epoch 0 at each milestone.

    schedulers: one more than milestones, all of `optimizer`. Raises ValueError otherwise.

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
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        self._schedulers, self._milestones = schedulers, milestones
        # Constructing each scheduler has set the rates. Only those of the first one take effect.
        _reset_rates(optimizer)
        super()._undo()
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def _undo(self):
        self.last_epoch -= 1
        super()._undo()

    def _restart(self):
        self.last_epoch = 0
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._restart()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:
        """Steps the active scheduler."""
        self.last_epoch += 1
        which = bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[which]
        if which > 0 and self._milestones[which - 1] == self.last_epoch:
            schedule._update_lr(0)
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()


class ChainedScheduler(_Composite):
    """Applies several schedulers in each step: each modifies the rates set by the previous one.

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
        self.optimizer = getattr(schedulers[0], "optimizer", None) if optimizer is None else optimizer
        self._check(schedulers, self.optimizer)
        self._schedulers = list(schedulers)
        self._last_lr = _rates_of(self.optimizer)

    def _restart(self):
        for schedule in self._schedulers:
            schedule._restart()
        self._last_lr = _rates_of(self.optimizer)

    def step(self) -> None:
        """Steps all schedulers in order."""
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = _rates_of(self.optimizer)


# ---- built-in schedulers

class _Options:
    """The options of a built-in scheduler as attributes. Programs may change them."""

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
            return 0.0  # scale_fn replaces the mode
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


def _for_all(schedule, value):
    return list(value) if isinstance(value, (list, tuple)) else [value] * len(schedule.base_lrs)


def _one_cycle_state(s):
    ends = [s.pct_start * s.total_steps - 1] + [2 * s.pct_start * s.total_steps - 2] * bool(s.three_phase) + [s.total_steps - 1]
    rates = ["initial_lr", "max_lr"] + ["initial_lr"] * bool(s.three_phase) + ["min_lr"]
    momenta = ["max_momentum", "base_momentum", "max_momentum"] + ["max_momentum"] * bool(s.three_phase)
    phases = [{"end_step": end, "start_lr": rates[i], "end_lr": rates[i + 1], "start_momentum": momenta[i], "end_momentum": momenta[i + 1]}
              for i, end in enumerate(ends)]
    return {"_schedule_phases": phases, "_anneal_func_type": s.anneal_strategy, "use_beta1": s.cycle_momentum and "betas" in s.optimizer.defaults}


def _cyclic_state(s):
    up, down = (float(n) for n in (s.step_size_up, s.step_size_up if s.step_size_down is None else s.step_size_down))
    return {"max_lrs": _for_all(s, s.max_lr), "total_size": up + down, "step_ratio": up / (up + down), "base_momentums": _for_all(s, s.base_momentum),
            "max_momentums": _for_all(s, s.max_momentum), "use_beta1": s.cycle_momentum and "betas" in s.optimizer.defaults}


# What PyTorch's schedules of a kind keep under other names. A state has both, so that each library reads the other's.
_OTHER_NAMES = {"OneCycleLR": _one_cycle_state, "CyclicLR": _cyclic_state, "SWALR": lambda s: {"_anneal_strategy": s.anneal_strategy}}


class KindLR(_Options, LRScheduler):
    """The base class of built-in schedulers. The core computes the rates."""

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
        if "div_factor" in self._options and last_epoch == -1:
            self._begin(optimizer, first)
        if "div_factor" in self._options and any("initial_lr" in group and "max_lr" not in group for group in optimizer.param_groups):
            raise KeyError("max_lr")  # of the schedule to resume
        if "step_size_up" in self._options and last_epoch == -1:
            self._note(optimizer, lr=_per_group("base_lr", optimizer, self.base_lr))
        if "swa_lr" in self._options:
            self._note(optimizer, swa_lr=_per_group("swa_lr", optimizer, self.swa_lr))
        LRScheduler.__init__(self, optimizer, last_epoch)

    def _begin(self, optimizer, first):
        """Sets the groups' initial rates; a list gives one per group."""
        options = {"max_lr": _per_group("max_lr", optimizer, self.max_lr)}
        options["initial_lr"] = ([most / self.div_factor for most in options["max_lr"]]
                              if isinstance(self.max_lr, (list, tuple)) else
                              [first] * len(optimizer.param_groups))
        options["min_lr"] = [lr / self.final_div_factor for lr in options["initial_lr"]]
        self._note(optimizer, **options)

    def _note(self, optimizer, lr=(), **options):
        """Stores values in the groups, as PyTorch does, including the bounds of a cycled momentum."""
        for name in ("max_momentum", "base_momentum") if getattr(self, "cycle_momentum", 0) else ():
            if not {"momentum", "betas"} & set(optimizer.defaults):
                raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` "
                                 "option enabled")
            options[name] = _per_group(name, optimizer, getattr(self, name))
        for number, group in enumerate(optimizer.param_groups):
            group.update({name: values[number] for name, values in options.items()})
        for group, rate in zip(optimizer.param_groups, lr):
            _set_rate(group, rate)

    def _rates(self, closed):
        epoch = self.last_epoch
        rates, momenta = _C._schedule_rates(self, self._kind, closed, epoch, self._step_count - 1, self._is_initial)
        _set_momenta(self.optimizer, momenta)
        if "T_0" in self._options:
            self.T_cur, self.T_i, self.last_epoch = epoch, self.T_0, floor(epoch)
            while self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult
        return rates

    def state_dict(self) -> dict[str, Any]:
        """Returns all attributes except the optimiser, some also under PyTorch's names. Callable objects are saved as their attributes."""
        state, other = super().state_dict(), _OTHER_NAMES.get(self._kind)
        if "scale_fn" in state:
            scale = state.pop("scale_fn")
            state["_scale_fn_custom"] = None if scale is None else _attributes_of(scale)
        return {**state, **(other(self) if other else {})}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the result of state_dict(). Functions are kept."""
        super().load_state_dict(state_dict)
        if state_dict.get("_scale_fn_custom"):
            vars(self.scale_fn).update(state_dict["_scale_fn_custom"])

    def get_lr(self) -> list[float]:
        """Returns the next rates, one per group."""
        return self._rates(self._by_epoch)

    def _get_closed_form_lr(self):
        return self._rates(True)

    @property
    def _warns_of_epochs(self):
        return self._kind != "CosineAnnealingWarmRestarts"


class PlateauLR(_Options, LRScheduler):
    """The base class of ReduceLROnPlateau. The core decides when to reduce the rates."""

    def _make(self, optimizer, _, *values):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        self._keep(values)
        _C._schedule_check(self._kind, self._numbers())
        is_list, groups = isinstance(self.min_lr, (list, tuple)), len(optimizer.param_groups)
        if is_list and len(self.min_lr) != groups:
            raise ValueError(f"expected {groups} min_lrs, got {len(self.min_lr)}")
        self.default_min_lr = None if is_list else self.min_lr
        self.min_lrs = list(self.min_lr) if is_list else [self.min_lr] * groups
        self.mode_worse = -inf if self.mode == "max" else inf
        self.last_epoch, self._last_lr = 0, _rates_of(optimizer)
        self._reset()

    def _reset(self):
        """Resets the best metric and the counters."""
        self.best, self.num_bad_epochs, self.cooldown_counter = self.mode_worse, 0, 0

    @property
    def in_cooldown(self) -> bool:
        """True during the cooldown after a reduction, in which bad epochs are not counted."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Reports a metric (a number or a one-element tensor) and reduces the rates if it is time."""
        if epoch is not None:
            warnings.warn(_EPOCH, stacklevel=2)
        reduce, self.best, self.num_bad_epochs, self.cooldown_counter = _C._plateau_step(
            self, self._kind, self.best, self.num_bad_epochs, self.cooldown_counter,
            float(metrics))
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if reduce:
            self._reduce()
        self._last_lr = _rates_of(self.optimizer)

    step.__qualname__ = "ReduceLROnPlateau.step"  # the name in TypeErrors

    def _reduce(self):
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


from ._schedules import *  # subclasses of the classes above

_C._name_missing(__name__)
