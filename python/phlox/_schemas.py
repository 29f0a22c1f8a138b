# SPDX-License-Identifier: Apache-2.0
"""Schema inference from annotations, and torch.library.custom_op. The rest of torch.library is in
python/ext/ops/library.c."""
from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from functools import partial

from phlox import _C

_TYPES = {_C.Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", _C.dtype: "ScalarType",
          _C.device: "Device", int | float | bool: "Scalar"}


def _type(annotation):
    """Returns the schema's name for the type of an annotation; None if unsupported."""
    if annotation in _TYPES:
        return _TYPES[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType) and type(None) in inner:
        known = _type(typing.Union[tuple(x for x in inner if x is not type(None))])
        return known and known + "?"
    known = _type(inner[0]) if origin in (list, collections.abc.Sequence) else None
    return known and known + "[]"


def _results(annotation):
    if annotation is None or annotation is type(None):
        return "()"
    inner = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else (annotation,)
    names = [_type(one) for one in inner]
    return None if None in names else names[0] if len(names) == 1 else f"({', '.join(names)})"


def infer_schema(prototype_function: typing.Callable[..., typing.Any], /, *,
                 mutates_args: typing.Any, op_name: str | None = None) -> str:
    """Infers the schema of a function from its annotations."""
    signature = inspect.signature(prototype_function)
    hints, changed = typing.get_type_hints(prototype_function), mutates_args

    def refuse(text):
        raise ValueError(f"infer_schema(func): {text} Got func with signature {signature})")

    parts, star = [], False
    for name, param in signature.parameters.items():
        if name not in hints:
            refuse(f"Parameter {name} must have a type annotation.")
        known = _type(hints[name])
        if known is None:
            refuse(f"Parameter {name} has unsupported type {hints[name]}.")
        if param.kind is param.KEYWORD_ONLY and not star:
            star = not parts.append("*")
        if known.startswith("Tensor") and (changed == "unknown" or name in changed):
            known = known.replace("Tensor", f"Tensor(a{len(parts)}!)", 1)
        if not isinstance(param.default, (int, float, bool, str, type(None), _C.dtype, type)):
            refuse(f"Parameter {name} has an unsupported default value type {type(param.default)}.")
        default = "" if param.default is param.empty else "=" + (
            f'"{param.default}"' if isinstance(param.default, str) else str(param.default).removeprefix("torch."))
        parts.append(f"{known} {name}{default}")
    if changed != "unknown" and set(changed) - set(hints):
        refuse(f"{set(changed) - set(hints)} in mutates_args were not found in the custom op's signature.")
    if "return" not in hints:
        refuse("No return type annotation was provided. Please add one.")
    if _results(hints["return"]) is None:
        refuse(f"Return has unsupported type {hints['return']}.")
    return f"{op_name or ''}({', '.join(parts)}) -> {_results(hints['return'])}"


def custom_op(name: str, fn: typing.Callable[..., typing.Any] | None = None, /, *, mutates_args: typing.Any,
              device_types: typing.Any = None, schema: str | None = None) -> typing.Any:
    """Wraps an annotated function as a custom op. Without fn, returns a decorator."""
    if fn is None:
        return partial(custom_op, name, mutates_args=mutates_args, device_types=device_types, schema=schema)
    given = name + schema if schema else infer_schema(fn, mutates_args=mutates_args, op_name=name)
    changes = {*inspect.signature(fn).parameters} if mutates_args == "unknown" else {*mutates_args}
    op = _C.library._define(given, changes)
    op.register_kernel(device_types, fn)
    return op
