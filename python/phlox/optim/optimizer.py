# SPDX-License-Identifier: Apache-2.0
"""The base class of optimisers: parameter groups with options, state per parameter, hooks. Options
are stored in the group's dict only, and state in the parameter's dict only."""
from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict
from copy import deepcopy
from functools import wraps
from itertools import chain
from math import sqrt
from types import MappingProxyType as _Frozen

import phlox as torch
from phlox import _C
from phlox.utils.hooks import RemovableHandle

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Union
    Params = Union[Iterable[torch.Tensor], Iterable[dict[str, Any]],
                   Iterable[tuple[str, torch.Tensor]]]
else:
    Params = None


class _Required:
    def __repr__(self):
        return "<required parameter>"


# Names imported by optimisers written for PyTorch.
required, ParamsT = _Required(), Params  # required: the default of a mandatory option
_dispatch_sqrt = sqrt


def _use_grad_for_differentiable(step):
    @wraps(step)
    def stepped(self, *args, **kwargs):
        with torch.set_grad_enabled(bool(self.defaults.get("differentiable"))):
            return step(self, *args, **kwargs)
    return stepped


def _get_value(x):
    return x.item() if isinstance(x, _C.Tensor) else x


def _default_to_fused_or_foreach(params, differentiable, use_fused=False):
    return False, False


_before, _after = OrderedDict(), OrderedDict()  # global step hooks, for all optimisers


def _with_hooks(step, self, args, kwargs):
    """Runs a step with its pre- and post-hooks."""
    for hook in (*_before.values(), *self._optimizer_step_pre_hooks.values()):
        given = hook(self, args, kwargs)
        if given is not None:
            if not (isinstance(given, tuple) and len(given) == 2):
                raise RuntimeError(f"{step} must return None or a tuple of (new_args, "
                                   f"new_kwargs), but got {given}.")
            args, kwargs = given
    result = step(self, *args, **kwargs)
    for hook in (*self._optimizer_step_post_hooks.values(), *_after.values()):
        hook(self, args, kwargs)
    return result


_kind_step: Any = None  # KindOptimizer.step; without a closure it is a single C call


def _hooked(step):
    """Wraps a class's step() with its hooks and marks it as wrapped."""
    alone = _C._Optimizer._step_groups if step is _kind_step else None
    stepped = wraps(step)(_C._Hooked(step, _with_hooks, (_before, _after), alone))
    stepped.hooked = True
    return stepped


def _add_hook(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers hook(optimizer, args, kwargs), called before each step of any optimiser. It may
    return new (args, kwargs)."""
    return _add_hook(_before, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers hook(optimizer, args, kwargs), called after each step of any optimiser."""
    return _add_hook(_after, hook)


_NO_HOOKS = _Frozen({})  # shared until a hook is registered


class Optimizer(_C._Optimizer):
    """The base class of optimisers. Subclasses define `step`, which reads self.param_groups and
    self.state.

    params: tensors, (name, tensor) pairs, or dicts of groups of them with their options.
    defaults: default values of the groups' options.
    param_groups: a list of dicts, "params" and options. They may be modified at any time.
    state: a dict from parameter to its state.
    """

    _optimizer_step_pre_hooks = _optimizer_step_post_hooks = _NO_HOOKS
    _optimizer_state_dict_pre_hooks = _optimizer_state_dict_post_hooks = _NO_HOOKS
    _optimizer_load_state_dict_pre_hooks = _optimizer_load_state_dict_post_hooks = _NO_HOOKS
    _warned_capturable_if_run_uncaptured = False
    _numbers: tuple[str, ...] = ()  # names of counters in the state of a parameter
    profile_hook_step = staticmethod(_hooked)

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, _C.Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of "
                            f"Tensors or dicts, but got {params.type()}")
        self.defaults, self.state, self.param_groups = defaults, defaultdict(dict), []
        self._wrap_step()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        self._added = set()  # ids of parameters; until all groups have been added
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)
        del self._added

    def _wrap_step(self):
        step = type(self).step
        if not getattr(step, "hooked", False):
            type(self).step = _hooked(step)

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._wrap_step()
        for group in self.param_groups if self._numbers else ():
            for parameter in group["params"]:
                self._convert_numbers(group, parameter)

    def _convert_numbers(self, group, parameter):
        """Converts counters saved as numbers, by old releases of PyTorch, to tensors."""
        state, fused = self.state.get(parameter, {}), group.get("fused")
        home = parameter.device if fused or group.get("capturable") else "cpu"
        wide = torch.get_default_dtype() == torch.float64 and not fused
        for name in self._numbers:
            if name in state and not isinstance(state[name], torch.Tensor):
                state[name] = torch.tensor(float(state[name]), dtype=torch.float64 if wide else torch.float32, device=home)

    def __repr__(self):
        text = type(self).__name__ + " ("
        for number, group in enumerate(self.param_groups):
            text += f"\nParameter Group {number}\n"
            text += "".join(f"    {key}: {group[key]}\n" for key in sorted(group)
                            if key != "params")
        return text + ")"

    # ---- groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a parameter group: a dict of "params" and options that override the defaults.

        Raises TypeError for non-tensors, ValueError for non-leaf tensors or tensors of another
        group.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = {**self.defaults, **param_group}
        for name, value in group.items():
            if value is required:
                raise ValueError("parameter group didn't specify a value of required optimization "
                                 f"parameter {name}")
        given = group["params"]
        if isinstance(given, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but "
                            "the ordering of tensors in sets will change between runs. Please use "
                            "a list instead.")
        group["params"] = params = [given] if isinstance(given, _C.Tensor) else list(given)
        if params and type(params[0]) is tuple:
            if not all(isinstance(item, tuple) and len(item) == 2 for item in params):
                raise ValueError("all optimizer params should be with/without names. Some param "
                                 "names are missing")
            group["param_names"] = [name for name, _ in params]
            group["params"] = params = [parameter for _, parameter in params]
        recorded = bool(self.defaults.get("differentiable"))
        added = getattr(self, "_added", None)
        if _C._optimizer_params(params, self.param_groups if added is None else [], recorded):
            warnings.warn("optimizer contains a parameter group with duplicate parameters; in "
                          "future, this will cause an error; see "
                          "github.com/pytorch/pytorch/issues/40967 for more information",
                          stacklevel=3)
        if added is not None:
            ids = set(map(id, params))
            if not added.isdisjoint(ids):
                raise ValueError("some parameters appear in more than one parameter group")
            added |= ids
        has_own = len(param_group) > 1  # the defaults are already checked
        param_group.update(group)
        if has_own:
            self._check_group(param_group)
        self.param_groups.append(param_group)

    def _check_group(self, group):
        pass

    # ---- steps

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Performs a step. closure: reevaluates the loss, which is returned."""
        raise NotImplementedError

    @staticmethod
    def _loss_of(closure):
        """Returns the loss computed by the closure with gradients enabled; None without a
        closure."""
        if closure is None:
            return None
        with torch.enable_grad():
            return closure()

    def _hook(self, name, hook, prepend=False):
        return _add_hook(vars(self).setdefault(f"_optimizer_{name}_hooks", OrderedDict()), hook,
                         prepend)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers hook(optimizer, args, kwargs), called before each step. It may return new
        ones."""
        return self._hook("step_pre", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers hook(optimizer, args, kwargs), called after each step."""
        return self._hook("step_post", hook)

    # ---- states

    def register_state_dict_pre_hook(self, hook: Callable[..., Any],
                                     prepend: bool = False) -> RemovableHandle:
        """Registers hook(optimizer), called before each state_dict()."""
        return self._hook("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any],
                                      prepend: bool = False) -> RemovableHandle:
        """Registers hook(optimizer, state_dict), called after each state_dict(). It may return
        another."""
        return self._hook("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any],
                                          prepend: bool = False) -> RemovableHandle:
        """Registers hook(optimizer, state_dict), called before each load_state_dict(). It may
        return another."""
        return self._hook("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any],
                                           prepend: bool = False) -> RemovableHandle:
        """Registers hook(optimizer), called after each load_state_dict()."""
        return self._hook("load_state_dict_post", hook, prepend)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state and the groups, with parameters replaced by ids."""
        for hook in tuple(self._optimizer_state_dict_pre_hooks.values()):
            hook(self)
        numbers, groups = {}, []
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
            groups.append({key: value for key, value in group.items() if key != "params"})
            groups[-1]["params"] = [numbers[id(p)] for p in group["params"]]
        state = {numbers.get(id(key), key): value for key, value in self.state.items()}
        whole = {"state": state, "param_groups": groups}
        for hook in tuple(self._optimizer_state_dict_post_hooks.values()):
            whole = hook(self, whole) or whole
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the result of state_dict(). Tensors are converted to their parameter's dtype and
        device.

        Raises ValueError if the groups do not match.
        """
        state_dict = dict(state_dict)
        for hook in tuple(self._optimizer_load_state_dict_pre_hooks.values()):
            state_dict = hook(self, state_dict) or state_dict
        saved = deepcopy(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(new["params"]) != len(old["params"])
               for new, old in zip(saved, self.param_groups)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the "
                             "size of optimizer's group")
        parameters = dict(zip(chain.from_iterable(group["params"] for group in saved),
                              chain.from_iterable(g["params"] for g in self.param_groups)))
        on_device = {number for group in saved for number in group["params"]
                     if group.get("capturable") or group.get("fused")}
        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in parameters:
                state[parameters[key]] = self._copied(parameters[key], value, key in on_device)
            else:
                state[key] = value
        groups = [{**new, "params": old["params"]} for new, old in zip(saved, self.param_groups)]
        for new, old in zip(groups, self.param_groups):
            if "param_names" in old and "param_names" not in new:
                new["param_names"] = old["param_names"]
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in tuple(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)

    def _copied(self, parameter, value, on_device, key=None):
        """Copies a state value. Tensors are converted to the parameter's dtype and device, except
        counters."""
        if isinstance(value, torch.Tensor):
            if self._is_number(key):
                like = parameter.new_empty((), dtype=torch.float32) if on_device else value
                return value.detach().to(like, copy=True)
            dtype = parameter.dtype if parameter.is_floating_point() else value.dtype
            return value.detach().to(parameter.device, dtype, copy=True)
        if isinstance(value, dict):
            return {k: self._copied(parameter, v, on_device, k) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._copied(parameter, v, on_device, key) for v in value)
        return deepcopy(value)

    def _is_number(self, key):
        return key == "step"


class KindOptimizer(Optimizer):
    """The base class of built-in optimisers. The core checks the options and performs the steps."""

    _kind = None

    def _check_group(self, group):
        _C._optimizer_check(self._kind, group)

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        _C._optimizer_check(self._kind, defaults)
        super().__init__(params, defaults)
        if defaults.get("fused"):
            self._step_supports_amp_scaling = True
        # Adagrad's state is created by the constructor, as in PyTorch.
        for group in self.param_groups if self._kind == "Adagrad" else ():
            for parameter in group["params"]:
                home = parameter.device if group["fused"] else "cpu"
                value = group["initial_accumulator_value"]
                value = complex(value, value) if parameter.is_complex() else value
                self.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32, device=home),
                    "sum": torch.full_like(parameter, value)}

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def _is_number(self, key):
        return key in self._numbers

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters with gradients. closure: reevaluates the loss, which is
        returned."""
        loss = None if closure is None else self._loss_of(closure)
        self._step_groups()
        return loss


_kind_step = KindOptimizer.step
