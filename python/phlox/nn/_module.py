# SPDX-License-Identifier: Apache-2.0
"""Methods of Module that are not performance-critical, global module hooks, and backward hooks."""
from __future__ import annotations

import ast
import re
import warnings
from collections import OrderedDict
from functools import lru_cache
from weakref import ref

import phlox as torch
from phlox import Tensor
from phlox.autograd import Function
from phlox.utils.hooks import RemovableHandle

from phlox import _C
from phlox.nn._recurrent import packed
from phlox.nn._views import Live, NonPersistent, fill, live

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"  # the key of get_extra_state's result in a state dict

# Hooks for the calls of all modules. They run before the module's own hooks.
_global_forward_pre_hooks: OrderedDict = OrderedDict()
_global_forward_hooks: OrderedDict = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict = OrderedDict()
_global_forward_hooks_always_called: OrderedDict = OrderedDict()
_global_backward_pre_hooks: OrderedDict = OrderedDict()
_global_backward_hooks: OrderedDict = OrderedDict()
_global_is_full_backward_hook: bool | None = None

_MIXED = ("Cannot use both regular backward hooks and full backward hooks on a single Module. "
          "Please use only one of them.")
_MIXED_GLOBAL = ("Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
                 "Please use only one of them.")


_add = _C._add_hook


def _add_global(hooks, hook, *marks):
    _C._watch_modules(globals())
    return _add(hooks, hook, *marks)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers hook(module, args), called before forward of every module."""
    return _add_global(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False,
                                 always_call: bool = False) -> RemovableHandle:
    """Registers hook(module, args, result), called after forward of every module."""
    marks = [_global_forward_hooks_with_kwargs] if with_kwargs else []
    return _add_global(_global_forward_hooks, hook, *marks, *([_global_forward_hooks_always_called] * always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers hook(module, grad_output), called before the input gradients of every module are computed."""
    return _add_global(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers hook(module, grad_input, grad_output), called after the input gradients of a module are computed."""
    return _add_global_backward(hook, True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Legacy form of register_module_full_backward_hook. In Phlox it also gets the gradients of the modules' inputs."""
    return _add_global_backward(hook, False)


def _add_global_backward(hook, full):
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(_MIXED_GLOBAL)
    _global_is_full_backward_hook = full
    return _add_global(_global_backward_hooks, hook)


# ---- hooks for registrations in all modules

_global_parameter_registration_hooks: OrderedDict = OrderedDict()
_global_buffer_registration_hooks: OrderedDict = OrderedDict()
_global_module_registration_hooks: OrderedDict = OrderedDict()


def registered(module: Any, what: tuple) -> Any:
    """Runs the registration hooks. Returns the value to register: the hooks may replace it."""
    kind, name, value = what
    for hook in list(globals()[f"_global_{kind}_registration_hooks"].values()):
        returned = hook(module, name, value)
        value = value if returned is None else returned
    return value


def _watch(hooks, hook):
    _C._watch_registrations()
    return _add(hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers hook(module, name, parameter), called when any module registers a parameter. The result, unless None, replaces it."""
    return _watch(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers hook(module, name, buffer), called when any module registers a buffer. The result, unless None, replaces it."""
    return _watch(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers hook(module, name, child), called when any module registers a child. The result, unless None, replaces it."""
    return _watch(_global_module_registration_hooks, hook)


# ---- gradients entering and leaving a module

class _Boundary(Function):
    """The identity; passes the gradients to a function and uses its results."""

    @staticmethod
    def forward(ctx, on_grads, *tensors):
        ctx.on_grads = on_grads
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx, *grads):
        return (None, *ctx.on_grads(grads))


def _add_boundary(on_grads, values):
    """Passes the tensors among the values through a boundary. `on_grads` gets None for non-tensors. Returns (values, whether a boundary
    was added)."""
    positions = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    if not any(values[i].requires_grad for i in positions) or not _C.is_grad_enabled():
        return values, False

    count = len(values)

    def apply_passed(grads):  # owned by the boundary's node, so it may refer to no result
        full = [None] * count
        for i, grad in zip(positions, grads):
            full[i] = grad
        full = on_grads(tuple(full))
        return tuple(full[i] for i in positions)
    wrapped = _Boundary.apply(apply_passed, *(values[i] for i in positions))
    values = list(values)
    for i, tensor in zip(positions, wrapped):
        values[i] = tensor
    return tuple(values), True


def _apply_result(grads, returned, what):
    """Returns the gradients, or their replacement returned by a hook."""
    if returned is None:
        return grads
    returned = returned if isinstance(returned, tuple) else (returned,)
    if len(returned) != len(grads):
        raise RuntimeError(f"Backward {what} hook returned an invalid number of grad, got {len(returned)}, "
                           f"but expected {len(grads)}")
    return returned


class _GradOutput(list):
    """The gradients of a module's results in one backward call, which owns them."""


class _BackwardHooks:
    """The backward hooks of one call of a module, run when its gradients pass the boundaries. The nodes of the boundaries own it. It
    refers weakly to gradients, whose history may contain these nodes."""

    def __init__(self, module, hooks, before):
        self.module, self.hooks, self.before = module, hooks, before
        self.grad_output, self.wants_input, self.input_count = lambda: None, False, 0

    def inputs(self, args):
        """Adds the boundary at the arguments."""
        self.input_count = len(args)
        args, self.wants_input = _add_boundary(self.leave, args)
        return args

    def outputs(self, result):
        """Adds the boundary at the result."""
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors"
                          f" but received {type(result)}")
            return result
        values = result if isinstance(result, tuple) else (result,)
        wrapped, _ = _add_boundary(self.enter, values)
        if not isinstance(result, tuple):
            return wrapped[0]
        return wrapped if type(result) is tuple else type(result)(wrapped)

    def enter(self, grads):
        for hook in self.before:
            grads = _apply_result(grads, hook(self.module, grads), "pre")
        if self.wants_input:
            kept = _GradOutput(grads)
            self.grad_output = ref(kept)
            _C._keep_in_backward(kept)
            return grads
        for hook in self.hooks:
            returned = hook(self.module, (None,) * self.input_count, grads)
            if returned is not None and not (isinstance(returned, tuple) and all(one is None for one in returned)):
                raise RuntimeError("Backward hook for Modules where no input requires gradient should always "
                                   "return None or None for all gradients.")
        return grads

    def leave(self, grads):
        kept, self.grad_output = self.grad_output(), lambda: None
        if kept is None:  # the gradient did not pass through the results, as in double backward
            return grads
        for hook in self.hooks:
            grads = _apply_result(grads, hook(self.module, grads, tuple(kept)), "")
        return grads


def backward_of(module: Any) -> Any:
    """Returns the _BackwardHooks of a call: the global hooks, then the module's."""
    before, hooks = ([*globals()[f"_global{name}"].values(), *_C._module_dict(module).get(name, {}).values()]
                     for name in ("_backward_pre_hooks", "_backward_hooks"))
    return _BackwardHooks(module, hooks, before)


class Module:
    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Registers hook(module, grad_output), called before the input gradients are computed. Its result, unless None,
        replaces grad_output."""
        return _add(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Registers hook(module, grad_input, grad_output), called after the input gradients are computed. Its result,
        unless None, replaces grad_input.

        >>> layer = torch.nn.Linear(2, 3)
        >>> handle = layer.register_full_backward_hook(lambda module, inward, out: print(out[0].shape))
        >>> layer(torch.ones(4, 2)).sum().backward()
        torch.Size([4, 3])
        """
        return _add_backward(self, hook, True, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Legacy form of register_full_backward_hook. In Phlox it also gets the gradients of the module's inputs."""
        return _add_backward(self, hook, False, False)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers hook(module, prefix, keep_vars), called before state_dict saves the module."""
        return _add(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers hook(module, state_dict, prefix, local_metadata), called after state_dict has saved the module."""
        return _add(self._state_dict_hooks, hook, self._state_dict_hooks_without_result)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Like register_state_dict_post_hook; the hook's result, unless None, replaces the state dict."""
        return _add(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs),
        called before the module loads its part of a state dict."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any],
                                           with_module: bool = False) -> RemovableHandle:
        """Like register_load_state_dict_pre_hook; the hook gets the module only if with_module is True."""
        return _add(self._load_state_dict_pre_hooks, hook, *([self._load_state_dict_pre_hooks_of_module] * with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers hook(module, incompatible_keys), called after load_state_dict. It may modify the keys in place."""
        return _add(self._load_state_dict_post_hooks, hook)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Moves the parameters and buffers to a device without copying their contents."""
        return self._apply(lambda tensor: torch.empty_like(tensor, device=device), recurse=recurse)

    def share_memory(self) -> Any:
        """Moves the parameters and buffers to shared memory."""
        return self._apply(lambda tensor: tensor.share_memory_())


def _add_backward(module, hook, full, prepend):
    if module._is_full_backward_hook is (not full):
        raise RuntimeError(_MIXED)
    module._is_full_backward_hook = full
    return _add(module._backward_hooks, hook, prepend=prepend)


# ---- the printed form

def _indented(text, width=2):
    """Indents all lines but the first."""
    return text.replace("\n", "\n" + " " * width)


def _child_lines(module):
    return [f"({name}): {_indented(repr(child))}" for name, child in module._modules.items()]


def _list_lines(module):
    """Returns the lines of a ModuleList. Consecutive modules with equal text share a line."""
    texts, lines, first = [repr(child) for child in module._modules.values()], [], 0
    for i, text in enumerate(texts):
        if i + 1 < len(texts) and texts[i + 1] == text:
            continue
        lines.append(f"({first}): {_indented(text)}" if first == i else
                     f"({first}-{i}): {i - first + 1} x {_indented(text)}")
        first = i + 1
    return lines


def text_of(module: Any, of_list: bool) -> str:
    """Implements repr(module). Overrides of extra_repr and _get_name, and the children's __repr__, are respected."""
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    children = _list_lines(module) if of_list else _child_lines(module)
    if len(lines) == 1 and not children:
        return f"{module._get_name()}({extra})"
    body = "".join(f"\n  {line}" for line in lines + children)
    return f"{module._get_name()}({body}\n)" if body else f"{module._get_name()}()"


# ---- pickles and copies

def state_of(module: Any) -> dict[str, Any]:
    """Returns a module's __dict__ with plain dicts in place of the live views."""
    return {name: value.copy() if isinstance(value, (Live, NonPersistent)) else value
            for name, value in module.__dict__.items()}


# ---- functions of torch.nn.functional replaced by the program

class _Names(dict):
    """The namespace in which a layer's formula is evaluated."""

    def __init__(self, module, inputs):
        super().__init__(inputs)
        self.module = module
        self.update(ndim=lambda x: x.dim(), numel=lambda x: x.numel(), worded=lambda x: isinstance(x, str),
                    list=lambda x: [x] if isinstance(x, int) else list(x), training=module.training)

    def has(self, name):
        return name in self or hasattr(torch.nn.functional, name) or hasattr(torch, name)

    def __missing__(self, name):
        if not name.startswith(_CALLED):  # an attribute; Threshold has one with the name of its function
            return getattr(self.module, name)
        name = name[len(_CALLED):]
        if name in self:
            return self[name]
        namespace = torch.nn.functional if hasattr(torch.nn.functional, name) else torch
        return _by_position(getattr(namespace, name), name)


_CALLED = "called_"  # the prefix of function names in a formula


@lru_cache(None)
def _keywords():
    """Maps each op with keyword-only arguments to (number of positional arguments, names of the keyword-only ones)."""
    found = {}
    for _, owner, name, signature, _ in _C._op_signatures():
        args = ast.parse(f"def op{signature}: ...").body[0].args
        if owner != "tensor" and args.kwonlyargs and (owner == "nn_functional" or name not in found):
            found[name] = len(args.args), [arg.arg for arg in args.kwonlyargs]
    return found


def _by_position(function, name):
    """Adapts a function for formulas, in which all arguments are positional."""
    count, alone = _keywords().get(name, (0, ()))

    def call(*args, **kwargs):
        return function(*args[:count], **dict(zip(alone, args[count:])), **kwargs)
    return call if alone else function


def _by_batch_norm(module, x):
    """The forward of batch norm by torch.nn.functional.batch_norm, which the program may have replaced."""
    tracks, seen, momentum = module.track_running_stats, module.num_batches_tracked, module.momentum or 0.0
    if module.training and tracks and seen is not None:
        seen.add_(1)
        momentum = 1 / seen.item() if module.momentum is None else momentum
    batch = module.training or (module.running_mean is None and module.running_var is None)
    keep = tracks or not module.training
    return torch.nn.functional.batch_norm(x, module.running_mean if keep else None, module.running_var if keep else None, module.weight,
                                          module.bias, batch, momentum, module.eps)


def _dimensions(module, name):
    """Returns the number of spatial dimensions (1 to 3) of a norm layer of the library; 0 for other modules."""
    return next((n for n in (1, 2, 3) if isinstance(module, getattr(torch.nn, f"{name}{n}d"))), 0)


def _by_instance_norm(module, x):
    alone = x.dim() == 1 + _dimensions(module, "InstanceNorm")
    result = torch.nn.functional.instance_norm(x.unsqueeze(0) if alone else x, module.running_mean, module.running_var, module.weight,
                                               module.bias, module.training or not module.track_running_stats, module.momentum, module.eps)
    return result.squeeze(0) if alone else result


def by_functions(module: Any, how: tuple) -> Any:
    """Runs a layer's forward through functions replaced by the program (`replaced`; None: any). Returns NotImplemented if the
    layer calls none of them, or if one of its functions is missing in Python."""
    formula, inputs, replaced = how
    if formula is None:
        for name, kind, forward in (("batch_norm", "BatchNorm", _by_batch_norm), ("instance_norm", "InstanceNorm", _by_instance_norm)):
            if name in replaced and _dimensions(module, kind):
                return forward(module, *inputs.values())
        return NotImplemented
    names, called = _Names(module, inputs), re.findall(r"(\w+)\(", formula)
    if replaced is not None and replaced.isdisjoint(called) or not all(map(names.has, called)):
        return NotImplemented
    if hasattr(module, "inplace"):
        formula = f"{formula.rstrip()[:-1]}, inplace={module.inplace})"
    return eval("(" + re.sub(r"(\w+)\(", rf"{_CALLED}\1(", formula) + ")", {"__builtins__": {}}, names)


# ---- for classes that override methods used by the core

def seconds(pairs: Any) -> Any:
    """Yields the second item of each pair."""
    return (value for _, value in pairs)


def named_members(module: Any, how: tuple) -> Any:
    """Yields (name, entry) for the modules returned by an overridden named_modules."""
    kind, prefix, recurse, once = how
    seen = set()
    for path, owner in module.named_modules(prefix=prefix, remove_duplicate=once) if recurse else [(prefix, module)]:
        for name, value in _C._module_entries(owner, kind).items():
            if value is None or (once and id(value) in seen):
                continue
            seen.add(id(value))
            yield f"{path}.{name}" if path else name, value


def require_grad(module: Any, requires_grad: bool) -> Any:
    """Implements requires_grad_ for an overridden parameters()."""
    for parameter in module.parameters():
        parameter.requires_grad_(requires_grad)
    return module


def zero_grads(module: Any, set_to_none: bool) -> None:
    """Implements zero_grad for an overridden parameters()."""
    for parameter in module.parameters():
        if set_to_none:
            parameter.grad = None
        elif parameter.grad is not None:
            parameter.grad.detach_().zero_()


def _apply_to_parameter(fn, parameter):
    with _C.no_grad():
        value, grad = fn(parameter), parameter.grad
        if grad is not None:
            moved, required = fn(grad), grad.requires_grad
            parameter.grad = None
        parameter.data = value
        if grad is not None:
            grad.data = moved
            parameter.grad = grad.requires_grad_(required)


def apply_own(module: Any, fn_and_recurse: tuple) -> Any:
    """Implements Module._apply."""
    fn, recurse = fn_and_recurse
    if recurse:
        for child in module.children():
            child._apply(fn)
    for parameter in module._parameters.values():
        if parameter is not None:
            _apply_to_parameter(fn, parameter)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


def move(module: Any, to: tuple) -> Any:
    """Implements Module.to by _apply. dtype, device and memory format may be None. casts: complex
    tensors keep their dtype."""
    dtype, device, non_blocking, form, casts = to
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError("nn.Module.to only accepts floating point or complex dtypes, but got desired "
                        f"dtype={dtype}")

    def dtype_of(t):
        changes = t.is_floating_point() or (t.is_complex() and not casts)
        return dtype if dtype is not None and changes else t.dtype
    return module._apply(lambda t: t.to(device if device is not None else t.device, dtype_of(t),
                                        non_blocking, memory_format=form if t.dim() in (4, 5) else None))


# ---- state dicts of classes with hooks or overridden methods

def _overrides(module, name):
    return getattr(type(module), name) is not getattr(_C.nn.Module, name)


def _has_batch_counter(module):
    """Returns True for norm layers with a batch counter."""
    return bool(_dimensions(module, "BatchNorm") or _dimensions(module, "InstanceNorm"))


def _version_of(module):
    """Returns the class's version; 2 for norm layers with a batch counter, unless the class sets its own."""
    return 2 if _has_batch_counter(module) and module._version == 1 else module._version


def versions(module: Any, prefix: str) -> OrderedDict:
    """Returns the _metadata of a state dict: the version of each module's class, by the module's name."""
    modules = _C.nn.Module.named_modules(module, prefix=prefix, remove_duplicate=False)
    return OrderedDict((name, {"version": _version_of(child)}) for name, child in modules)


def save(module: Any, how: tuple) -> Any:
    """Implements Module.state_dict."""
    destination, prefix, keep_vars = how
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    metadata = {"version": _version_of(module)}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = metadata
    own = _C._module_dict(module)
    for hook in list(own.get("_state_dict_pre_hooks", {}).values()):
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for key, hook in list(own.get("_state_dict_hooks", {}).items()):
        returned = hook(module, destination, prefix, metadata)
        if returned is not None and key in own.get("_state_dict_hooks_without_result", {}):
            raise RuntimeError("state_dict post-hook must return None")
        destination = destination if returned is None else returned
    return destination


def save_own(module: Any, how: tuple) -> None:
    """Implements Module._save_to_state_dict."""
    destination, prefix, keep_vars = how
    non_persistent = module._non_persistent_buffers_set
    for name, value in (*module._parameters.items(), *module._buffers.items()):
        if value is not None and name not in non_persistent:
            destination[prefix + name] = value if keep_vars else value.detach()
    if _overrides(module, "get_extra_state"):
        destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = module.get_extra_state()


def _load_below(module, state, prefix, metadata, assign, keys, errors):
    local = dict((metadata or {}).get(prefix[:-1], {}))
    if assign:
        local["assign_to_params_buffers"] = assign
    module._load_from_state_dict(state, prefix, local, True, keys.missing_keys, keys.unexpected_keys, errors)
    parts = {}  # the state of each child
    for key, value in state.items():
        name, dot, _ = key[len(prefix):].partition(".")
        if dot and key.startswith(prefix):
            parts.setdefault(name, OrderedDict())[key] = value
    for name, child in module._modules.items():
        if child is not None:
            _load_below(child, parts.get(name, OrderedDict()), f"{prefix}{name}.", metadata, assign, keys, errors)
    for hook in list(_C._module_dict(module).get("_load_state_dict_post_hooks", {}).values()):
        if hook(module, keys) is not None:
            raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                                 "return new values, if incompatible_keys need to be modified, it should be done "
                                 "inplace.")


def load(module: Any, how: tuple) -> None:
    """Implements Module.load_state_dict. Fills the lists in keys."""
    state, strict, assign, keys = how
    errors = []
    _load_below(module, OrderedDict(state), "", getattr(state, "_metadata", None), assign, keys, errors)
    for what, names in (("Unexpected", keys.unexpected_keys), ("Missing", keys.missing_keys)):
        if strict and names:
            quoted = ", ".join(f'"{name}"' for name in names)
            errors.insert(0, f"{what} key(s) in state_dict: {quoted}. ")
    if errors:
        raise RuntimeError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(errors))


def _load_tensor(module, name, own, given, key, assign, errors):
    if not isinstance(given, Tensor):
        errors.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                      f"checkpoint but received {type(given)}")
    elif hasattr(own, "materialize"):  # both are uninitialized
        pass
    elif given.shape != own.shape:
        errors.append(f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, the shape "
                      f"in current model is {own.shape}.")
    else:
        try:
            with _C.no_grad():
                if assign:
                    own.data = given.detach()
                else:
                    own.copy_(given)
                    _C._warn_of_loss(own, given, key)
        except Exception as error:
            errors.append(f'While copying the parameter named "{key}", whose dimensions in the model are {own.size()} '
                          f"and whose dimensions in the checkpoint are {given.size()}, an exception occurred : "
                          f"{error.args}.")


def load_own(module: Any, how: tuple) -> None:
    """Implements Module._load_from_state_dict."""
    state, prefix, metadata, strict, missing, unexpected, errors = how
    own = _C._module_dict(module)
    for key, hook in list(own.get("_load_state_dict_pre_hooks", {}).items()):
        of_module = (module,) if key in own.get("_load_state_dict_pre_hooks_of_module", {}) else ()
        hook(*of_module, *how)
    seen, key = module._buffers.get("num_batches_tracked"), prefix + "num_batches_tracked"
    if seen is not None and key not in state and (metadata.get("version") or 1) < 2 and _has_batch_counter(module):
        state[key] = seen  # saved before norm layers had a batch counter, or without a version
    non_persistent = module._non_persistent_buffers_set
    tensors = {name: value for name, value in (*module._parameters.items(), *module._buffers.items())
               if value is not None and name not in non_persistent}
    for name, value in tensors.items():
        key = prefix + name
        if key in state:
            _load_tensor(module, name, value, state[key], key, metadata.get("assign_to_params_buffers"), errors)
        elif strict:
            missing.append(key)
    extra = prefix + _EXTRA_STATE_KEY_SUFFIX
    if _overrides(module, "set_extra_state"):
        if extra in state:
            module.set_extra_state(state[extra])
        elif strict:
            missing.append(extra)
    elif strict and extra in state:
        unexpected.append(extra)
    for key in state if strict else ():
        name, _, below = key[len(prefix):].partition(".")
        known = (name in module._modules) if below else (name in tensors)
        if key.startswith(prefix) and key != extra and not known:
            unexpected.append(key)
