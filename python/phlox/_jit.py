# SPDX-License-Identifier: Apache-2.0
"""torch.jit. Functions return their argument unchanged, with a warning; load runs archives of PyTorch."""
from __future__ import annotations

import os
import warnings
from typing import Any, Callable, Dict, Final, List, NamedTuple, Optional, Tuple, Union  # re-exported

from phlox import _C, nn

_warned = set()


def _unchanged(what, given):
    if what not in _warned:
        _warned.add(what)
        name = getattr(given, "__qualname__", type(given).__name__)
        warnings.warn(f"{what} compiles nothing in Phlox: {name} runs uncompiled. Further calls do not "
                      "warn", stacklevel=3)
    return given


def script(obj: Any, optimize: None = None, _frames_up: int = 0, _rcb: None = None,
           example_inputs: Any = None) -> Any:
    """Returns the function, class or module unchanged. Warns on the first call."""
    return _unchanged("torch.jit.script", obj)


def trace(func: Callable[..., Any], example_inputs: Any = None, **options: Any) -> Any:
    """Returns the function or module unchanged. Warns on the first call."""
    return _unchanged("torch.jit.trace", func)


def trace_module(mod: nn.Module, inputs: dict[str, Any], **options: Any) -> nn.Module:
    """Returns the module unchanged. Warns on the first call."""
    return _unchanged("torch.jit.trace_module", mod)


def freeze(mod: nn.Module, preserved_attrs: list[str] | None = None,
           optimize_numerics: bool = True) -> nn.Module:
    """Returns the module unchanged. Warns on the first call."""
    return _unchanged("torch.jit.freeze", mod)


def optimize_for_inference(mod: nn.Module, other_methods: list[str] | None = None) -> nn.Module:
    """Returns the module unchanged. Warns on the first call."""
    return _unchanged("torch.jit.optimize_for_inference", mod)


def annotate(the_type: Any, the_value: Any) -> Any:
    """Returns the value. The type is a hint for a compiler, which Phlox lacks."""
    return the_value


class Attribute(NamedTuple):
    """A value and its type, a hint for a compiler. Phlox has none."""

    value: Any
    type: Any


class ScriptModule(nn.Module):
    """A Module. Subclasses run uncompiled."""


class RecursiveScriptModule(ScriptModule):
    """A module of an archive. Methods and attributes are those of its code; parameters, buffers and
    submodules are shared with it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the archive's forward."""
        return self._script.run(self._path + "forward", args, kwargs)

    def extra_repr(self) -> str:
        """Returns the name of the class."""
        return f"original_name={self.original_name}"

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            script, path = self.__dict__.get("_script"), self.__dict__.get("_path", "")
            if script is None or name.startswith("__"):
                raise
        if name in script.methods(path[:-1]):
            return lambda *args, **kwargs: script.run(path + name, args, kwargs)
        return script.get(path + name)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            if name not in ("training", *self._parameters, *self._buffers, *self._modules):
                return self._script.set(self._path + name, value)
        except AttributeError:
            pass  # an attribute of the object alone
        super().__setattr__(name, value)


def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None,
         _restore_shapes: bool = False) -> RecursiveScriptModule:
    """Loads a model saved by torch.jit.save. Its code runs in Phlox's interpreter, which names the
    first unsupported function it meets.

    Args:
        f (str, PathLike or file): the archive
        map_location (str or torch.device): the device of all tensors; None: those of the file
        _extra_files (dict): must be empty
    """
    if _extra_files:
        raise NotImplementedError("torch.jit.load: _extra_files is not supported")
    if isinstance(f, (str, os.PathLike)) and not os.path.exists(f):
        raise ValueError(f"The provided filename {f} does not exist")
    source = os.fspath(f) if isinstance(f, (str, os.PathLike)) else f.read()
    script = _C._Script(source, map_location)
    root = script.module(RecursiveScriptModule)
    for path, module in root.named_modules():
        module.__dict__.update(_script=script, _path=path + "." if path else "")
    return root


# Names for annotations, and an attribute of modules traced by torch.fx.
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = List
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
