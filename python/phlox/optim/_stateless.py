# SPDX-License-Identifier: Apache-2.0
"""Runs an optimiser on parameters and a state passed by the caller."""
from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from phlox import Tensor
    from phlox.optim import Optimizer
_NAME = "swap_in_optimizer_params_and_state"


def _check(condition, text):
    if not condition:
        raise RuntimeError(text)


def _check_state(state):
    _check(isinstance(state, dict),
          f"{_NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter ids to "
          f"per-param state dicts, got {type(state).__name__}.")
    _check(not any(isinstance(key, _C.Tensor) for key in state),
          f"{_NAME} requires optimizer.state_dict()-style state keyed by packed parameter ids.")
    _check(all(isinstance(value, dict) for key, value in state.items() if isinstance(key, int)),
          f"{_NAME} requires per-parameter optimizer state entries to be dictionaries.")


def _ids_of(index, live, group):
    """Returns the parameter ids of a group. Its structure must match the optimiser's group."""
    _check(isinstance(group, dict), f"{_NAME} requires each optimizer param group to be a dictionary.")
    ids = group.get("params")
    _check(isinstance(ids, list) and all(isinstance(key, int) for key in ids),
          f"{_NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed parameter ids.")
    _check(len(ids) == len(live["params"]), f"swapin_optim_state param group {index} has a different number of params than "
          "the live optimizer param group.")
    more, less = [key for key in group if key not in live], [key for key in live if key not in group]
    _check(not more and not less, f"{_NAME} requires optimizer.state_dict()-style param group keys to exactly match the live "
          f"optimizer group keys for group {index}. Keys only in swap-in: {more}. Keys only in live: {less}.")
    return ids


def _replacements(optimizer, parameters, given):
    """Returns the groups and the state that replace the optimiser's. Raises if the structures differ."""
    _check(optimizer.state, f"{_NAME} requires initialized optimizer state.")
    _check(isinstance(given, dict), f"{_NAME} requires a DCP-style optimizer state_dict.")
    state, groups = given.get("state"), given.get("param_groups")
    _check_state(state)
    _check(isinstance(groups, list), f"{_NAME} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, "
          f"got {type(groups).__name__}.")
    _check(len(groups) == len(optimizer.param_groups),
          "swapin_optim_state has a different number of parameter groups than the live optimizer.")
    made, by_parameter, seen, left = [], defaultdict(dict), set(), list(parameters)
    for index, (live, group) in enumerate(zip(optimizer.param_groups, groups)):
        ids = _ids_of(index, live, group)
        _check(len(ids) <= len(left), f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering.")
        own, left = left[:len(ids)], left[len(ids):]
        seen.update(ids)
        by_parameter.update((p, dict(state.get(key, {}))) for p, key in zip(own, ids))
        made.append({**group, "params": own})
    extra = [key for key in state if key not in seen]
    _check(not extra, f"{_NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from "
          f"param_groups[*]['params']; got extra keys {extra!r}.")
    return made, by_parameter


def _set_groups(groups, contents):
    for group, content in zip(groups, contents):
        group.clear()
        group.update(content)


@contextmanager
def swap_in_optimizer_params_and_state(optimizer: Optimizer, swapin_parameters: dict[str, Tensor],
                                       swapin_optim_state: dict[str, Any]) -> Iterator[None]:
    """A context manager that replaces an optimiser's parameters and state, and restores them at exit.

    Args:
        optimizer (Optimizer): an optimiser with initialized state
        swapin_parameters (dict): replacements of the parameters, in the optimiser's order
        swapin_optim_state (dict): a state from state_dict(); its tensors are updated in place

    >>> p, q = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> optimizer = torch.optim.SGD([p], lr=0.5, momentum=0.9)
    >>> p.sum().backward(); optimizer.step()
    >>> q.sum().backward()
    >>> with torch.optim.swap_in_optimizer_params_and_state(optimizer, {"q": q}, optimizer.state_dict()):
    ...     optimizer.step()
    >>> p.item(), q.item() < p.item()
    (0.5, True)
    """
    groups, state = _replacements(optimizer, swapin_parameters.values(), swapin_optim_state)
    own, contents = optimizer.state, [dict(group) for group in optimizer.param_groups]
    try:
        _set_groups(optimizer.param_groups, groups)
        optimizer.state = state
        yield
    finally:
        _set_groups(optimizer.param_groups, contents)
        optimizer.state = own
