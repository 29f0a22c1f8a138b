# SPDX-License-Identifier: Apache-2.0
"""torch.testing: comparisons with detailed messages, and test tensors."""
from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import phlox as torch
from phlox import _C

_C._name_missing(__name__)
# dtype -> (rtol, atol)
_TOLERANCES = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5),
               torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7)}


def _largest(word, difference, allowed, is_scalar):
    """Returns a message line about the largest element of a tensor of differences."""
    at = index = difference.flatten().argmax().item()
    path: list[int] = []
    for size in reversed(difference.shape):
        path.insert(0, index % size)
        index //= size
    head, where = ("Greatest " + word, f" at index {tuple(path)}") if not is_scalar else (word.capitalize(), "")
    return f"\n{head} difference: {difference.flatten()[at].item()}{where}{allowed}"


def _mismatch(actual, expected, o):
    """Returns a message about the differing elements of two tensors of the same shape, or None."""
    found = [_TOLERANCES.get(x.dtype, (0.0, 0.0)) for x in (actual, expected)]
    rtol, atol = (o["rtol"], o["atol"]) if o["rtol"] is not None else map(max, zip(*found))
    dtype = torch.promote_types(actual.dtype, expected.dtype)
    wide = dtype if dtype.is_floating_point else torch.int64
    a, b = (x.detach().cpu().to(dtype).to(wide) for x in (actual, expected))
    close = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=o["equal_nan"])
    if close.all():
        return None
    exact = not rtol and not atol
    text = (f"Expected {b.item()} but got {a.item()}." if not a.dim() else
            f"Mismatched elements: {(~close).sum().item()} / {close.numel()} ({(~close).double().mean().item():.1%})")
    difference = (a - b).abs()
    relative = (difference.double() if wide is torch.int64 else difference) / b.abs()
    for word, values, limit in ("absolute", difference, atol), ("relative", relative, rtol):
        text += _largest(word, values.masked_fill(close, 0), "" if exact else f" (up to {limit} allowed)", not a.dim())
    return f"{'Tensor-likes' if a.dim() else 'Scalars'} are not {'equal' if exact else 'close'}!\n\n{text}"


def _compare_tensors(actual, expected, o):
    for name in "shape", "device", "dtype", "layout", "stride":
        a, b = (getattr(x, name)() if name == "stride" else getattr(x, name) for x in (actual, expected))
        if a != b and o.get("check_" + name, True):
            return f"The values for attribute '{name + '()' * (name == 'stride')}' do not match: {a} != {b}."
    is_meta = "meta" in (actual.device.type, expected.device.type)
    return None if is_meta else _mismatch(actual, expected, o)


def _compare_numbers(actual, expected, o):
    if isinstance(actual, bool) or isinstance(expected, bool):
        return None if actual is expected else f"Booleans mismatch: {actual} is not {expected}"
    if o["check_dtype"] and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    return _mismatch(*(torch.tensor(x, dtype=torch.float64 if isinstance(x, float) else torch.int64)
                       for x in (actual, expected)), o)


def _is_tensor(x):
    numpy = sys.modules.get("numpy")
    return torch.is_tensor(x) or numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic))


def _check(actual, expected, path, o):
    """Raises AssertionError for the first mismatch. `path` is the path to the values in their containers."""
    both, text = (actual, expected), None
    parts: Any = ()
    if all(isinstance(x, Mapping) for x in both):
        missing, more = [k for k in expected if k not in actual], [k for k in actual if k not in expected]
        if missing or more:
            text = (f"The keys of the mappings do not match:\nMissing keys in the actual mapping: {missing}\n"
                    f"Additional keys in the actual mapping: {more}")
        parts = actual
    elif all(isinstance(x, Sequence) and not isinstance(x, str) for x in both):
        if len(actual) != len(expected):
            text = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
        parts = range(len(actual))
    elif actual is None or expected is None:
        text = None if actual is expected else f"None mismatch: {actual} is not {expected}"
    elif all(isinstance(x, (int, float)) and not _is_tensor(x) for x in both):
        text = _compare_numbers(actual, expected, o)
    elif not all(map(_is_tensor, both)) or not (o["allow_subclasses"] or type(actual) is type(expected)):
        raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")
    else:
        text = _compare_tensors(*map(torch.as_tensor, both), o)
    if text:
        text += f"\n\nThe failure occurred for item {path}" if path else ""
        raise AssertionError(o["msg"](text) if callable(o["msg"]) else o["msg"] or text)
    for part in parts:
        _check(actual[part], expected[part], f"{path}[{part!r}]", o)


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_device: bool = True,
                 check_dtype: bool = True, check_layout: bool = True, check_stride: bool = False,
                 msg: str | Callable[[str], str] | None = None) -> None:
    """Asserts that |actual - expected| <= atol + rtol * |expected|. The AssertionError has the location and size of
    the mismatch.

    Args:
        actual, expected: tensors, arrays, numbers, None, or sequences and mappings of them
        rtol, atol (float): the tolerances; both or neither. Default: by dtype
        equal_nan (bool): if True, NaNs are equal
        check_device, check_dtype, check_layout, check_stride: attributes that must be equal
        msg (str or Callable): the error message, or a function of the default message

    >>> torch.testing.assert_close(torch.ones(2), torch.ones(2) + 1e-7)
    """
    if (rtol is None) != (atol is None):
        raise ValueError("Both 'rtol' and 'atol' must be either specified or omitted, but got no "
                         f"{'rtol' if rtol is None else 'atol'}.")
    _check(actual, expected, "", dict(locals()))


def make_tensor(*shape: Any, dtype: torch.dtype, device: Any, low: float | None = None,
                high: float | None = None, requires_grad: bool = False, noncontiguous: bool = False,
                exclude_zero: bool = False, memory_format: Any = None) -> torch.Tensor:
    """Creates a tensor of random numbers, uniform over [low, high).

    Args:
        low, high (float): the bounds. Default: -9 (0 for unsigned dtypes and bool) and 9 (10 for integers, 2 for bool)
        noncontiguous (bool): if True, the result is every second element of a larger tensor
        exclude_zero (bool): if True, zeros are replaced by the smallest positive number

    >>> torch.testing.make_tensor(2, 3, dtype=torch.int64, device="cpu").shape
    torch.Size([2, 3])
    """
    if noncontiguous and memory_format is not None:
        raise ValueError("The parameters `noncontiguous` and `memory_format` are mutually exclusive, "
                         f"but got {noncontiguous=} and {memory_format=}")
    shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    is_float, is_bool = dtype.is_floating_point, dtype == torch.bool
    if requires_grad and not is_float:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    limits = (torch.finfo if is_float else torch.iinfo)(torch.uint8 if is_bool else dtype)
    low = (0 if limits.min >= 0 else -9) if low is None else max(low, limits.min)
    high = (9 if is_float else 2 if is_bool else 10) if high is None else min(high, limits.max)
    if not low < high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    wide = (*shape[:-1], 2 * shape[-1]) if noncontiguous and shape else shape
    made = (torch.empty(wide, dtype=dtype, device=device).uniform_(low, high) if is_float else
            torch.randint(int(low), int(high), wide, dtype=dtype, device=device))
    made = made[..., ::2] if noncontiguous and shape else made
    made = made if memory_format is None else made.clone(memory_format=memory_format)
    if exclude_zero:
        made[made == 0] = limits.tiny if is_float else 1
    return made.requires_grad_(requires_grad)
