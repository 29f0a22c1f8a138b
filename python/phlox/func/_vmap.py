# SPDX-License-Identifier: Apache-2.0
"""torch.vmap: a function of one example runs for a batch of them."""
from __future__ import annotations

import functools
from typing import Any, Callable

import phlox
from phlox import _C
from phlox.utils import _pytree as pytree


def _name(func):
    return getattr(func, "__name__", None) or repr(func)


def _spread(prefix, tree, is_leaf=None):
    """The leaves of a tree that begins a tree, one for each leaf of that one; None if it does not."""
    leaves = []

    def walk(part, spec):
        if part is None or isinstance(part, int):
            leaves.extend([part] * spec.num_leaves)
            return True
        parts, own = pytree.tree_flatten(part, is_leaf=lambda p: p is not part)
        if own.is_leaf() or spec.type is not own.type or own.num_children != spec.num_children:
            if own.is_leaf() and spec.is_leaf():  # no dimension: who called says so
                leaves.append(part)
                return True
            return False
        return own.context == spec.context and all(map(walk, parts, spec.children_specs))

    return leaves if walk(prefix, tree) else None


def _check_in_dim(tensor, dim, call):
    if not isinstance(dim, int) and dim is not None:
        raise ValueError(f"{call}: Got in_dim={dim} for an input but in_dim must be either an "
                         "integer dimension or None.")
    if isinstance(dim, int) and not isinstance(tensor, _C.Tensor):
        raise ValueError(f"{call}: Got in_dim={dim} for an input but the input is of type "
                         f"{type(tensor)}. We cannot vmap over non-Tensor arguments, please use "
                         "None as the respective in_dim")
    if dim is not None and not -tensor.dim() <= dim < tensor.dim():
        raise ValueError(f"{call}: Got in_dim={dim} for some input, but that input is a Tensor of "
                         f"dimensionality {tensor.dim()} so expected in_dim to satisfy "
                         f"-{tensor.dim()} <= in_dim < {tensor.dim()}.")


def _inputs(func, in_dims, args):
    """The leaves of the arguments, their dimensions, and how they are put together again."""
    call = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"{call}: expected `in_dims` to be int or a (potentially nested) tuple "
                         f"matching the structure of inputs, got: {type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add "
                         "inputs, or you are trying to vmap over a function with no inputs. The "
                         "latter is unsupported.")
    leaves, spec = pytree.tree_flatten(args)
    dims = _spread(in_dims, spec)
    if dims is None:
        raise ValueError(f"{call}: in_dims is not compatible with the structure of `inputs`. "
                         f"in_dims has structure {pytree.tree_structure(in_dims)} but inputs has "
                         f"structure {spec}.")
    for tensor, dim in zip(leaves, dims):
        _check_in_dim(tensor, dim, call)
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
    """The leaves of what the function gave, their dimensions, and how they are put together."""
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
    dims = _spread(out_dims, spec)
    if dims is None:
        if not all(isinstance(dim, int) or dim is None for dim in pytree.tree_leaves(out_dims)):
            refuse()
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not "
                         "compatible with the structure of `outputs`. out_dims has structure "
                         f"{pytree.tree_structure(out_dims)} but outputs has structure {spec}.")
    if not all(isinstance(dim, int) or dim is None for dim in dims):
        refuse()
    return leaves, dims, spec


def _unmapped(func, out_dims, outputs, level):
    leaves, dims, spec = _out_dims(func, out_dims, outputs)
    shown = []
    for leaf, dim in zip(leaves, dims):
        if dim is None and isinstance(leaf, _C.Tensor) and _C._vmap_level(leaf) == level:
            raise ValueError(f"vmap({_name(func)}, ...): `{_name(func)}` can not return a "
                             "BatchedTensor when out_dim is None")
        shown.append(leaf if dim is None else _C._vmap_remove(leaf, dim))
    return spec.unflatten(shown)


def _mapped(func, out_dims, randomness, leaves, dims, spec, kwargs):
    level = _C._vmap_begin(_size(leaves, dims), randomness)
    try:
        hidden = [leaf if dim is None else _C._vmap_add(leaf, dim)
                  for leaf, dim in zip(leaves, dims)]
        outputs = func(*spec.unflatten(hidden), **kwargs)
        return _unmapped(func, out_dims, outputs, level)
    finally:
        _C._vmap_end()


def _in_chunks(run, func, out_dims, chunk, same, leaves, dims, spec):
    """Parts of at most `chunk` places, one after another, whose results are joined; `same`: all
    draw the same numbers."""
    size, parts, state = _size(leaves, dims), [], phlox.get_rng_state() if same else None
    for start in range(0, size, chunk):
        if same:
            phlox.set_rng_state(state)
        count = min(chunk, size - start)
        part = [leaf if dim is None else leaf.narrow(dim, start, count)
                for leaf, dim in zip(leaves, dims)]
        outputs = run(part, dims, spec)
        flat, places, whole = _out_dims(func, out_dims, outputs)
        parts.append(flat)
    joined = [items[0] if dim is None else _C.cat(list(items), dim)
              for items, dim in zip(zip(*parts), places)]
    return whole.unflatten(joined)


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error",
         *, chunk_size: int | None = None) -> Callable[..., Any]:
    """Makes a function of a batch of one that is written for an example.

    func sees its tensors without the dimension that is mapped over, and is called once; what it
    gives has that dimension again. It may itself map, or take gradients (torch.func.grad).

    Args:
        func: takes tensors, and containers of them, and gives tensors
        in_dims (int or nested structure): which dimension of each argument is mapped, None if
            the argument is the same for all
        out_dims (int or nested structure): where the dimension goes in the results
        randomness (str): what random numbers do: 'error', 'different' for each example, 'same'
        chunk_size (int): at most so many examples at a time

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
