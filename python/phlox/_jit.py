# SPDX-License-Identifier: Apache-2.0
"""torch.compile and torch.jit: Phlox compiles nothing. What is to be compiled runs as it is, and
the first call of each says so."""
from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, Final, List, NamedTuple, Optional, Tuple, Union  # some for others

from phlox import nn

_said = set()


def _as_it_is(what, given):
    if what not in _said:
        _said.add(what)
        name = getattr(given, "__qualname__", type(given).__name__)
        warnings.warn(f"{what} compiles nothing in Phlox: {name} runs as it is, and so does what "
                      "it is given from here on", stacklevel=3)
    return given


def compile(model: Callable[..., Any] | None = None, *, fullgraph: bool = False,
            dynamic: bool | None = None, backend: Any = "inductor", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False, **more: Any) -> Any:
    """Gives the function or module back, as it is: Phlox compiles nothing, and warns of that once.
    Without one, a decorator that does so.

    Args:
        model (Callable): what is to be compiled
        fullgraph, dynamic, backend, mode, options: how; not both of the last two
        disable (bool): no warning
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified "
                           "at the same time.")
    if model is None:
        return lambda given: given if disable else _as_it_is("torch.compile", given)
    if not callable(model):
        raise RuntimeError("torch.compile: expected a function or a module, but got "
                           f"{type(model).__name__}")
    return model if disable else _as_it_is("torch.compile", model)


def script(obj: Any, optimize: None = None, _frames_up: int = 0, _rcb: None = None,
           example_inputs: Any = None) -> Any:
    """Gives the function, class or module back as it is, and warns of that once."""
    return _as_it_is("torch.jit.script", obj)


def trace(func: Callable[..., Any], example_inputs: Any = None, **options: Any) -> Any:
    """Gives the function or module back as it is, and warns of that once."""
    return _as_it_is("torch.jit.trace", func)


def trace_module(mod: nn.Module, inputs: dict[str, Any], **options: Any) -> nn.Module:
    """Gives the module back as it is, and warns of that once."""
    return _as_it_is("torch.jit.trace_module", mod)


def freeze(mod: nn.Module, preserved_attrs: list[str] | None = None,
           optimize_numerics: bool = True) -> nn.Module:
    """Gives the module back as it is, and warns of that once."""
    return _as_it_is("torch.jit.freeze", mod)


def optimize_for_inference(mod: nn.Module, other_methods: list[str] | None = None) -> nn.Module:
    """Gives the module back as it is, and warns of that once."""
    return _as_it_is("torch.jit.optimize_for_inference", mod)


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value: a type is told to a compiler that is not there."""
    return the_value


class Attribute(NamedTuple):
    """A value and its type, for a compiler that is not there."""

    value: Any
    type: Any


class ScriptModule(nn.Module):
    """A Module: what derives from it runs as it is."""


# Names of annotations, and of an attribute of what torch.fx traces.
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = List
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
