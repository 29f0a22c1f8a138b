# SPDX-License-Identifier: Apache-2.0
"""Methods of Module that cost no time where they matter: hooks, which live in dicts of the module where programs find
them, and calls of modules that have some. All hooks are functions in an OrderedDict by the id of their handle."""
from __future__ import annotations

import warnings
from collections import OrderedDict

from phlox import Tensor
from phlox.autograd import Function
from phlox.utils.hooks import RemovableHandle

from phlox import _C
from phlox.nn._views import Live, Passing, fill, live

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Hooks for the calls of all modules. They run before those of the module.
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


def _add(hooks, hook, *marks, prepend=False):
    """Adds a hook; `marks` are dicts that say something of it by its id."""
    handle = RemovableHandle(hooks, extra_dict=list(marks))
    hooks[handle.id] = hook
    for mark in marks:
        mark[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _add_global(hooks, hook, *marks):
    _C._watch_modules()
    return _add(hooks, hook, *marks)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls hook(module, args) before the forward of every module."""
    return _add_global(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False,
                                 always_call: bool = False) -> RemovableHandle:
    """Calls hook(module, args, result) after the forward of every module."""
    marks = [_global_forward_hooks_with_kwargs] if with_kwargs else []
    return _add_global(_global_forward_hooks, hook, *marks, *([_global_forward_hooks_always_called] * always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls hook(module, grad_output) before the gradients of every module's inputs are computed."""
    return _add_global(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls hook(module, grad_input, grad_output) when the gradients of a module's inputs are there."""
    return _add_global_backward(hook, True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """The same, in the old way, which sees the gradients of the last op of the module's alone."""
    return _add_global_backward(hook, False)


def _add_global_backward(hook, full):
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(_MIXED_GLOBAL)
    _global_is_full_backward_hook = full
    return _add_global(_global_backward_hooks, hook)


# ---- gradients on their way into a module and out of it

class _Boundary(Function):
    """Gives its tensors; calls a function with their gradients, which may give others."""

    @staticmethod
    def forward(ctx, passed, *tensors):
        ctx.passed = passed
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx, *grads):
        return (None, *ctx.passed(grads))


def _through(passed, values):
    """The values with their tensors led through a boundary. What `passed` sees has None for all others."""
    places = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    if not any(values[i].requires_grad for i in places) or not _C.is_grad_enabled():
        return values, False

    def spread(grads):
        full = [None] * len(values)
        for i, grad in zip(places, grads):
            full[i] = grad
        full = passed(tuple(full))
        return tuple(full[i] for i in places)
    led = _Boundary.apply(spread, *(values[i] for i in places))
    values = list(values)
    for i, tensor in zip(places, led):
        values[i] = tensor
    return tuple(values), True


def _replaced(grads, said, what):
    """The gradients, or what a hook said in their place."""
    if said is None:
        return grads
    said = said if isinstance(said, tuple) else (said,)
    if len(said) != len(grads):
        raise RuntimeError(f"Backward {what} hook returned an invalid number of grad, got {len(said)}, "
                           f"but expected {len(grads)}")
    return said


class _BackwardHooks:
    """The hooks of one call of a module, which run when its gradients pass."""

    def __init__(self, module, hooks, before):
        self.module, self.hooks, self.before = module, hooks, before
        self.grad_output, self.wants_input, self.input_count = None, False, 0

    def inputs(self, args):
        """Leads the module's arguments through."""
        self.input_count = len(args)
        args, self.wants_input = _through(self.leave, args)
        return args

    def outputs(self, result):
        """Leads the module's result through."""
        values = result if isinstance(result, tuple) else (result,)
        led, _ = _through(self.enter, values)
        if not isinstance(result, tuple):
            return led[0]
        return led if type(result) is tuple else type(result)(led)

    def enter(self, grads):
        for hook in self.before:
            grads = _replaced(grads, hook(self.module, grads), "pre")
        self.grad_output = grads
        if not self.wants_input:
            for hook in self.hooks:
                said = hook(self.module, (None,) * self.input_count, grads)
                if said is not None and not (isinstance(said, tuple) and all(one is None for one in said)):
                    raise RuntimeError("Backward hook for Modules where no input requires gradient should always "
                                       "return None or None for all gradients.")
        return grads

    def leave(self, grads):
        if self.grad_output is None:
            raise RuntimeError(f"Module backward hook for grad_input is called before the grad_output one. "
                               f"This happens because the gradient in your nn.Module flows to the Module's input "
                               f"without passing through the Module's output. Make sure that the output depends on "
                               f"the input and that the loss is computed based on the output.")
        for hook in self.hooks:
            grads = _replaced(grads, hook(self.module, grads, self.grad_output), "")
        self.grad_output = None
        return grads


# ---- calls

def _all_hooks(module, name):
    return (*globals()[f"_global{name}"].items(), *_C._module_dict(module).get(name, {}).items())


def _backward_of(module):
    """What leads a call's gradients past the module's backward hooks; None if it has none."""
    before = [hook for _, hook in _all_hooks(module, "_backward_pre_hooks")]
    hooks = [hook for _, hook in _all_hooks(module, "_backward_hooks")]
    return _BackwardHooks(module, hooks, before) if before or hooks else None


def _before(module, args, kwargs):
    with_kwargs = _C._module_dict(module).get("_forward_pre_hooks_with_kwargs", {})
    for key, hook in _all_hooks(module, "_forward_pre_hooks"):
        said = hook(module, args, kwargs) if key in with_kwargs else hook(module, args)
        if said is None:
            continue
        if key not in with_kwargs:
            args = said if isinstance(said, tuple) else (said,)
        elif isinstance(said, tuple) and len(said) == 2:
            args, kwargs = said
        else:
            raise RuntimeError("forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                               f"but got {said}.")
    return args, kwargs


def _after(module, hooks, args, kwargs, result, done):
    """Calls (id, hook) after forward; `done` collects the ids."""
    with_kwargs = (_global_forward_hooks_with_kwargs, _C._module_dict(module).get("_forward_hooks_with_kwargs", {}))
    for key, hook in hooks:
        done.add(key)
        named = any(key in marks for marks in with_kwargs)
        said = hook(module, args, kwargs, result) if named else hook(module, args, result)
        result = result if said is None else said
    return result


def _always_called(module, done):
    marks = (_global_forward_hooks_always_called, _C._module_dict(module).get("_forward_hooks_always_called", {}))
    return [(key, hook) for key, hook in _all_hooks(module, "_forward_hooks")
            if key not in done and any(key in mark for mark in marks)]


def call(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a module that has hooks, or may have some."""
    done, result = set(), None
    try:
        args, kwargs = _before(module, args, kwargs)
        backward = _backward_of(module)
        if backward:
            args = backward.inputs(args)
        result = module.forward(*args, **kwargs)
        result = _after(module, _all_hooks(module, "_forward_hooks"), args, kwargs, result, done)
        if not backward:
            return result
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors"
                          f" but received {type(result)}")
            return result
        return backward.outputs(result)
    except Exception:
        for key, hook in _always_called(module, done):
            try:
                _after(module, [(key, hook)], args, kwargs, result, done)
            except Exception as later:
                warnings.warn("module forward hook with ``always_call=True`` raised an exception that was silenced "
                              f"as another error was raised in forward: {later}")
        raise


class Module:
    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """Calls hook(module, args) before each forward; what it gives, unless None, are the arguments. With with_kwargs
        it is hook(module, args, kwargs), which may give both; with prepend it comes before the others."""
        return _add(self._forward_pre_hooks, hook, *([self._forward_pre_hooks_with_kwargs] * with_kwargs),
                    prepend=prepend)

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Calls hook(module, args, result) after each forward; what it gives, unless None, is the result. With
        with_kwargs it is hook(module, args, kwargs, result); with always_call it is called after an error, too."""
        return _add(self._forward_hooks, hook, *([self._forward_hooks_with_kwargs] * with_kwargs),
                    *([self._forward_hooks_always_called] * always_call), prepend=prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_output) before the gradients of the inputs are computed; what it gives, unless None,
        takes the place of grad_output."""
        return _add(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_input, grad_output) when the gradients of the inputs are there; what it gives, unless
        None, takes the place of grad_input.

        >>> layer = torch.nn.Linear(2, 3)
        >>> handle = layer.register_full_backward_hook(lambda module, inward, out: print(out[0].shape))
        >>> layer(torch.ones(4, 2)).sum().backward()
        torch.Size([4, 3])
        """
        return _add_backward(self, hook, True, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The old form of register_full_backward_hook."""
        return _add_backward(self, hook, False, False)


def _add_backward(module, hook, full, prepend):
    if module._is_full_backward_hook is (not full):
        raise RuntimeError(_MIXED)
    module._is_full_backward_hook = full
    return _add(module._backward_hooks, hook, prepend=prepend)


# ---- the printed form

def _indented(text, width=2):
    """Text with every line but the first moved to the right."""
    return text.replace("\n", "\n" + " " * width)


def _child_lines(module):
    return [f"({name}): {_indented(repr(child))}" for name, child in module._modules.items()]


def _list_lines(module):
    """Equal neighbours of a ModuleList are one line."""
    texts, lines, first = [repr(child) for child in module._modules.values()], [], 0
    for i, text in enumerate(texts):
        if i + 1 < len(texts) and texts[i + 1] == text:
            continue
        lines.append(f"({first}): {_indented(text)}" if first == i else
                     f"({first}-{i}): {i - first + 1} x {_indented(text)}")
        first = i + 1
    return lines


def text_of(module: Any, of_list: bool) -> str:
    """repr(module). A subclass's extra_repr and _get_name, and its children's __repr__, have their say."""
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    children = _list_lines(module) if of_list else _child_lines(module)
    if len(lines) == 1 and not children:
        return f"{module._get_name()}({extra})"
    body = "".join(f"\n  {line}" for line in lines + children)
    return f"{module._get_name()}({body}\n)" if body else f"{module._get_name()}()"


# ---- pickles and copies

def state_of(module: Any) -> dict[str, Any]:
    """A module's __dict__, with plain dicts in the place of those that are live."""
    return {name: value.copy() if isinstance(value, (Live, Passing)) else value
            for name, value in module.__dict__.items()}
