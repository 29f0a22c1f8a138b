# SPDX-License-Identifier: Apache-2.0
"""torch.vmap: runs a function of one example on a batch."""
from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import Any, Callable, NamedTuple

import phlox
from phlox import _C
from phlox.random import _RandomStates
from phlox.utils import _pytree as pytree


def _name(func):
    return getattr(func, "__name__", None) or repr(func)


def _broadcast_prefix(prefix, tree):
    """Broadcasts a prefix tree over a tree: returns one prefix leaf per leaf. None if it is not a
    prefix."""
    leaves = []
    return leaves if _walk_prefix(prefix, tree, leaves) else None


def _walk_prefix(part, spec, leaves):
    if part is None or isinstance(part, int):
        leaves.extend([part] * spec.num_leaves)
        return True
    parts, own = pytree.tree_flatten(part, is_leaf=lambda p: p is not part)
    if own.is_leaf() or spec.type is not own.type or own.num_children != spec.num_children:
        if own.is_leaf() and spec.is_leaf():  # not a dimension: the caller raises
            leaves.append(part)
            return True
        return False
    return own.context == spec.context and all(_walk_prefix(p, s, leaves) for p, s in zip(parts, spec.children_specs))


def _check_in_dim(tensor, dim, caller):
    if not isinstance(dim, int) and dim is not None:
        raise ValueError(f"{caller}: Got in_dim={dim} for an input but in_dim must be either an "
                         "integer dimension or None.")
    if isinstance(dim, int) and not isinstance(tensor, _C.Tensor):
        raise ValueError(f"{caller}: Got in_dim={dim} for an input but the input is of type "
                         f"{type(tensor)}. We cannot vmap over non-Tensor arguments, please use "
                         "None as the respective in_dim")
    if dim is not None and not -tensor.dim() <= dim < tensor.dim():
        raise ValueError(f"{caller}: Got in_dim={dim} for some input, but that input is a Tensor of "
                         f"dimensionality {tensor.dim()} so expected in_dim to satisfy "
                         f"-{tensor.dim()} <= in_dim < {tensor.dim()}.")


def _inputs(func, in_dims, args):
    """Returns the leaves of the arguments, their batch dimensions and the spec."""
    caller = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"{caller}: expected `in_dims` to be int or a (potentially nested) tuple "
                         f"matching the structure of inputs, got: {type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add "
                         "inputs, or you are trying to vmap over a function with no inputs. The "
                         "latter is unsupported.")
    leaves, spec = pytree.tree_flatten(args)
    dims = _broadcast_prefix(in_dims, spec)
    if dims is None:
        raise ValueError(f"{caller}: in_dims is not compatible with the structure of `inputs`. "
                         f"in_dims has structure {pytree.tree_structure(in_dims)} but inputs has "
                         f"structure {spec}.")
    for tensor, dim in zip(leaves, dims):
        _check_in_dim(tensor, dim, caller)
    return leaves, dims, spec


def _size(leaves, dims):
    sizes = [leaf.size(dim) for leaf, dim in zip(leaves, dims) if dim is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(size != sizes[0] for size in sizes):
        raise ValueError("vmap: Expected all tensors to have the same size in the mapped "
                         f"dimension, got sizes {sizes} for the mapped dimension")
    return sizes[0]


def _out_dims(func, out_dims, outputs):
    """Returns the leaves of the function's outputs, their batch dimensions and the spec."""
    name = _name(func)

    def refuse():
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None "
                         "or a python collection of ints representing where in the outputs the "
                         "vmapped dimension should appear.")

    leaves, spec = pytree.tree_flatten(outputs)
    for leaf in leaves:
        if out_dims is not None and not isinstance(leaf, _C.Tensor):
            raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type "
                             f"{type(leaf)}. Did you mean to set out_dims= to None for output?")
    if not isinstance(out_dims, int) and isinstance(outputs, _C.Tensor):
        if isinstance(out_dims, tuple) and len(out_dims) == 1:
            return leaves, list(out_dims), spec
        if out_dims is None:
            return leaves, [None], spec
    dims = _broadcast_prefix(out_dims, spec)
    if dims is None:
        if not all(isinstance(dim, int) or dim is None for dim in pytree.tree_leaves(out_dims)):
            refuse()
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not "
                         "compatible with the structure of `outputs`. out_dims has structure "
                         f"{pytree.tree_structure(out_dims)} but outputs has structure {spec}.")
    if not all(isinstance(dim, int) or dim is None for dim in dims):
        refuse()
    return leaves, dims, spec


def _each(function, leaf, dim):
    """Applies _vmap_add or _vmap_remove, to both tensors of a masked one."""
    return leaf._map_both(function, dim) if hasattr(leaf, "_map_both") else function(leaf, dim)


def _unmapped(func, out_dims, outputs, level):
    leaves, dims, spec = _out_dims(func, out_dims, outputs)
    unwrapped = []
    for leaf, dim in zip(leaves, dims):
        if dim is None and isinstance(leaf, _C.Tensor) and _C._vmap_level(leaf) == level:
            raise ValueError(f"vmap({_name(func)}, ...): `{_name(func)}` can not return a "
                             "BatchedTensor when out_dim is None")
        unwrapped.append(leaf if dim is None else _each(_C._vmap_remove, leaf, dim))
    return spec.unflatten(unwrapped)


def _mapped(func, out_dims, randomness, leaves, dims, spec, kwargs):
    level = _C._vmap_begin(_size(leaves, dims), randomness)
    try:
        batched = [leaf if dim is None else _each(_C._vmap_add, leaf, dim) for leaf, dim in zip(leaves, dims)]
        outputs = func(*spec.unflatten(batched), **kwargs)
        return _unmapped(func, out_dims, outputs, level)
    finally:
        _C._vmap_end()


def _in_chunks(run, func, out_dims, chunk, same, leaves, dims, spec):
    """Runs in chunks of at most `chunk` examples and concatenates the results. `same`: every chunk
    starts with the same random state."""
    size, parts, states = _size(leaves, dims), [], _RandomStates(leaves) if same else None
    for start in range(0, size, chunk):
        if same:
            states.restore()
        count = min(chunk, size - start)
        part = [leaf if dim is None else leaf.narrow(dim, start, count) for leaf, dim in zip(leaves, dims)]
        outputs = run(part, dims, spec)
        outs, batch_dims, out_spec = _out_dims(func, out_dims, outputs)
        parts.append(outs)
    joined = [items[0] if dim is None else _C.cat(list(items), dim) for items, dim in zip(zip(*parts), batch_dims)]
    return out_spec.unflatten(joined)


class VmapInfo(NamedTuple):
    """The first argument of a Function's `vmap`."""
    batch_size: int
    randomness: str


@contextmanager
def _below(level):
    """Ends the maps from `level` on, and begins them again at exit."""
    ended = []
    try:
        while _C._vmap_depth() >= level:
            ended.append(_C._vmap_innermost())
            _C._vmap_end()
        yield
    finally:
        for size, randomness in reversed(ended):
            _C._vmap_begin(size, randomness)


def _check_returns(result):
    text = ("Expected the vmap staticmethod to have two returns, an output and out_dims with pytree "
            "structure compatible with the output. ")
    if not isinstance(result, tuple):
        raise RuntimeError(f"{text}Got a {type(result)} instead")
    if len(result) != 2:
        raise RuntimeError(f"{text}Got {len(result)} returns instead")
    return result


def call_function(function: Any, level: int, args: tuple[Any, ...]) -> Any:
    """Calls the own `vmap` of a Function, for arguments batched at `level`, the deepest of theirs."""
    def batched(leaf):
        return isinstance(leaf, _C.Tensor) and _C._vmap_level(leaf) == level

    leaves, spec = pytree.tree_flatten(args)
    with _below(level + 1):
        dims = [0 if batched(leaf) else None for leaf in leaves]
        whole = [_C._vmap_remove(leaf, 0) if batched(leaf) else leaf for leaf in leaves]
        info = VmapInfo(*_C._vmap_innermost())
        with _below(level):
            output, out_dims = _check_returns(
                function.vmap(info, spec.unflatten(dims), *spec.unflatten(whole)))
        outs, out_spec = pytree.tree_flatten(output)
        places = _broadcast_prefix(out_dims, out_spec)
        if places is None:
            raise RuntimeError("The autograd.Function's vmap staticmethod returned an incompatible "
                               f"(output, out_dims) tuple. Expected out_dims={out_dims} to be "
                               "compatible with the structure of `output`. out_dims has structure "
                               f"{pytree.tree_structure(out_dims)} but output has structure {out_spec}.")
        given = {id(tensor): leaf for tensor, leaf in zip(whole, leaves)}
        return out_spec.unflatten([
            given[id(out)] if id(out) in given and isinstance(out, _C.Tensor) else
            out if place is None else _C._vmap_add(out, place) for out, place in zip(outs, places)])


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error",
         *, chunk_size: int | None = None) -> Callable[..., Any]:
    """Returns a function mapping func over a batch dimension of its inputs.

    func is called once. It sees tensors without the mapped dimension, which is added to its outputs.
    func may use vmap or gradients (torch.func.grad) itself.

    Args:
        func: a function that takes and returns tensors, or containers of tensors
        in_dims (int or nested structure): the dimension to map over, for each input; None for an
            input shared by all examples
        out_dims (int or nested structure): the position of the mapped dimension in the outputs
        randomness (str): the behaviour of random ops: 'error', 'different' (per example) or 'same'
        chunk_size (int): the maximum number of examples per call; None for all

    >>> rows = torch.arange(6.).reshape(2, 3)
    >>> torch.vmap(torch.dot)(rows, rows)
    tensor([ 5., 50.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError("Only allowed values for randomness are 'error', 'different', or "
                           f"'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        leaves, dims, spec = _inputs(func, in_dims, args)

        def run(leaves, dims, spec):
            return _mapped(func, out_dims, randomness, leaves, dims, spec, kwargs)

        if chunk_size is None or _size(leaves, dims) <= chunk_size:
            return run(leaves, dims, spec)
        return _in_chunks(run, func, out_dims, chunk_size, randomness == "same", leaves, dims, spec)

    return wrapped
