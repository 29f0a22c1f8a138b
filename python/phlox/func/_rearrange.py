# SPDX-License-Identifier: Apache-2.0
"""torch.func.rearrange: transposes, splits and joins dimensions by a pattern (Rogozhnikov 2022, https://openreview.net/forum?id=oapKSVM2bcj)."""
from __future__ import annotations

import math
import re
from typing import Sequence

import phlox as torch
from phlox import Tensor

_TOKEN = re.compile(r"\s+|\(|\)|\.\.\.|[^\W\d]\w*|\d+|(.)")
_REST = ["..."]  # the dimension "..." itself; in parentheses, "..." is one of the names


def _dimensions(side: str, pattern: str) -> list[list[str]]:
    """Returns the names that each dimension of one side joins."""
    found: list[list[str]] = []
    joined: list[str] | None = None  # those after an opening parenthesis
    for match in _TOKEN.finditer(side):
        token = match.group()
        if match.group(1):
            raise ValueError(f"Unknown character '{token}' in the pattern '{pattern}'")
        if token == ("(" if joined is not None else ")"):
            raise ValueError(f"Parentheses are nested or not balanced in the pattern '{pattern}'")
        if token.isdigit() and token != "1":
            raise ValueError(f"Anonymous dimensions of a size other than 1 are not supported: '{token}' in the pattern '{pattern}'")
        if token == "(":
            joined = []
        elif token == ")" and joined is not None:
            found.append(joined)
            joined = None
        elif joined is not None:
            joined += [] if token.isspace() or token == "1" else [token]
        elif not token.isspace():
            found.append(_REST if token == "..." else [] if token == "1" else [token])
    if joined is not None:
        raise ValueError(f"Parentheses are nested or not balanced in the pattern '{pattern}'")
    names = [name for dimension in found for name in dimension]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Indexing expression contains duplicate dimension '{name}' in the pattern '{pattern}'")
    return found


def _listed(names: set[str]) -> str:
    return "{" + ", ".join(map(repr, sorted(names))) + "}"


def _check_names(left: list[list[str]], right: list[list[str]], pattern: str, lengths: dict[str, int]) -> None:
    a, b = ({name for dimension in side for name in dimension} for side in (left, right))
    if "..." in b - a:
        raise ValueError(f"Ellipsis found in right side, but not left side of a pattern {pattern}")
    if a != b:
        raise ValueError(f"Identifiers only on one side of rearrange expression (should be on both): {_listed(a ^ b)}")
    if any("..." in dimension and dimension is not _REST for dimension in left):
        raise ValueError(f"Ellipsis is parenthesis in the left side is not allowed: {pattern}")
    if set(lengths) - a:
        raise ValueError(f"Identifiers not found in rearrange expression: {_listed(set(lengths) - a)}")


def _with_rest(side: list[list[str]], rest: list[str]) -> list[list[str]]:
    """Replaces "..." by the names of the other dimensions."""
    found: list[list[str]] = []
    for dimension in side:
        named = [name for axis in dimension for name in (rest if axis == "..." else [axis])]
        found += [[name] for name in rest] if dimension is _REST else [named]
    return found


def _split(group: list[str], size: int, lengths: dict[str, int], pattern: str) -> dict[str, int]:
    """Returns the sizes of the axes that a dimension joins; one of them may be unknown."""
    unknown = [name for name in group if name not in lengths]
    known = math.prod(lengths[name] for name in group if name in lengths)
    if len(unknown) > 1:
        raise ValueError(f"cannot infer the sizes of two dimensions at once: {' and '.join(unknown)} in the pattern '{pattern}'")
    if unknown and (known == 0 or size % known):
        raise ValueError(f"inferred dimension does not evenly fit into larger dimension: {size} is no multiple of {known} in the pattern '{pattern}'")
    if not unknown and known != size:
        raise ValueError(f"Dimension sizes do not match ({known} != {size}) in the pattern '{pattern}'")
    return {name: lengths.get(name, size // known if known else 0) for name in group}


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """Returns a tensor with its dimensions transposed, split and joined: a view if possible.

    Args:
        tensor (Tensor or sequence of Tensors): a sequence is stacked first
        pattern (str): the dimensions of the tensor, "->" and those of the result. A dimension is a name, "1", or several names in parentheses that
            it joins, the last one innermost. "..." are any others
        axes_lengths (int): sizes of names; one name in each parentheses may be without

    Raises ValueError if the pattern does not fit the tensor.

    Example::

        >>> images = torch.randn(32, 30, 40, 3)
        >>> torch.func.rearrange(images, "b h w c -> b c h w").shape
        torch.Size([32, 3, 30, 40])
        >>> torch.func.rearrange(images, "b (h1 h) w c -> (b h1) h w c", h1=2).shape
        torch.Size([64, 15, 40, 3])
    """
    x = tensor if isinstance(tensor, torch.Tensor) else torch.stack(tuple(tensor))
    if pattern.count("->") != 1:
        raise ValueError("Pattern must contain a single '->' separator")
    left, right = (_dimensions(side, pattern) for side in pattern.split("->"))
    _check_names(left, right, pattern, axes_lengths)
    others = x.ndim - sum(dimension is not _REST for dimension in left)
    if others < 0 or others and _REST not in left:
        raise ValueError(f"Number of dimensions in pattern ({x.ndim - others}) must be equal to the number of dimensions in the tensor ({x.ndim})")
    rest = [f"...{i}" for i in range(others)]
    left, right = _with_rest(left, rest), _with_rest(right, rest)
    sizes: dict[str, int] = {}
    for group, size in zip(left, x.shape):
        sizes.update(_split(group, size, axes_lengths, pattern))
    order = [name for group in left for name in group]
    x = x.reshape([sizes[name] for name in order]).permute([order.index(name) for group in right for name in group])
    return x.reshape([math.prod(sizes[name] for name in group) for group in right])
