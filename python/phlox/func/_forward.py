# SPDX-License-Identifier: Apache-2.0
"""torch.func.jvp and linearize, and Jacobians of functions: jacrev, jacfwd and hessian."""
from __future__ import annotations

from typing import Any, Callable

import phlox
from phlox import _C
from phlox.func._reverse import _detach_from, _flat_outputs, _pull, _run, _select
from phlox.func._vmap import vmap
from phlox.utils import _pytree as pytree


def _zeros_for_none(tangents, outs):
    """Replaces None tangents (outputs independent of the inputs) with zeros."""
    return [phlox.zeros_like(out) if t is None else t for out, t in zip(outs, tangents)]


def _check_dual(primals, tangents):
    for name, items in ("primal", primals), ("tangent", tangents):
        for x in items:
            if not (x.is_floating_point() or x.is_complex()):
                raise ValueError(f"Expected {name} to be floating point or complex, but got: {x.dtype}")


def _push(func, primals, tangents, argnums, strict, has_aux):
    """jvp with respect to the arguments `argnums`. Returns (result, tangents, aux)."""
    caller = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{caller}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    own, spec = pytree.tree_flatten(_select(primals, argnums)[0])
    given, other = pytree.tree_flatten(tangents)
    if spec != other:
        raise RuntimeError(f"{caller}: Expected primals and tangents to have the same python structure. For example, "
                           "if primals is a tuple of 3 tensors, tangents also must be. Got primals with structure "
                           f"{spec} and tangents with structure {other}")
    for name, items in ("primals", own), ("tangents", given):
        if not items:
            raise RuntimeError(f"{caller}: Expected {name} to contain at least one Tensor.")
        for x in items:
            if not isinstance(x, phlox.Tensor):
                raise RuntimeError(f"{caller}: Expected {name} to only contain Tensors, got {type(x)}")
    _check_dual(own, given)
    level, tangents = _C._duals_begin(), iter(given)
    try:
        _, _, result, aux = _run(caller, func, primals, argnums, has_aux,
                                 own=lambda x: _C._dual_make(level, x, next(tangents)))
        outs, shape = _flat_outputs(caller, result)
        pushed = _C._dual_tangents(level, outs)
        if strict and None in pushed:
            raise RuntimeError("jvp(f, primals, tangents, strict=True): The output of f is independent of the "
                               "inputs. This is not allowed with strict=True.")
        pushed = _zeros_for_none(pushed, outs)
        result, aux = pytree.tree_map_only(phlox.Tensor, _C._dual_primal, (result, aux))
    finally:
        _C._duals_end(level)
    return result, shape.unflatten(pushed), aux


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False,
        has_aux: bool = False) -> Any:
    """Computes the Jacobian-vector product. Returns func(*primals) and the product of its Jacobian with
    the tangents. With strict, raises if an output is independent of the inputs. With has_aux, func
    returns (output, aux) and aux is returned third.

    >>> torch.func.jvp(torch.square, (torch.tensor(3.),), (torch.tensor(1.),))
    (tensor(9.), tensor(6.))
    """
    result = _push(func, primals, tangents, None, strict, has_aux)
    return result if has_aux else result[:2]


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Returns func(*primals), and a function that computes jvp for given tangents without running func
    again.

    >>> torch.func.linearize(torch.square, torch.tensor(3.))[1](torch.tensor(1.))
    tensor(6.)
    """
    with phlox.enable_grad():
        inputs, spec, result, _ = _run("linearize(f, *primals)", func, primals, None, False)
    outs, shape = pytree.tree_flatten(result)

    @phlox.enable_grad()
    def of(*tangents):
        given, other = pytree.tree_flatten(tangents)
        if spec != other:
            raise RuntimeError(f"Expected the tangents {other} to have the same argspec as the primals {spec}")
        for i, (x, t) in enumerate(zip(inputs, given)):
            for what in "shape", "device", "dtype":
                if getattr(x, what) != getattr(t, what):
                    raise RuntimeError(f"tangent:{i} with {what} {getattr(t, what)} in flattened pytree doesn't "
                                       f"match the {what} {getattr(x, what)} of the corresponding primal.")
        positions = [i for i, out in enumerate(outs) if isinstance(out, phlox.Tensor)]
        pushed = list(outs)
        found = [outs[i] for i in positions]
        for i, t in zip(positions, _zeros_for_none(_C._jvp(found, inputs, given, True), found)):
            pushed[i] = t
        return _detach_from(shape.unflatten(pushed), inputs)
    return _detach_from(result, inputs), of


def _basis(leaves, begin, end):
    """Returns rows begin:end of the identity matrix over all elements of the leaves, shaped like the leaves."""
    rows, first = [], 0
    for x in leaves:
        part = phlox.zeros(end - begin, x.numel(), dtype=x.dtype, device=x.device)
        part.diagonal(begin - first).fill_(1)
        rows.append(part.view(end - begin, *x.shape))
        first += x.numel()
    return rows


def _refuse_complex(caller, tree, what):
    for i, x in enumerate(pytree.tree_leaves(tree)):
        if isinstance(x, phlox.Tensor) and x.is_complex():
            raise RuntimeError(f"{caller}: Expected all {what} to be real but received complex tensor at flattened "
                               f"input idx: {i}")


def _nest(parts, shape, spec, argnums):
    """Nests Jacobians, one per output and input: the output's structure of the inputs' structure."""
    rows = [spec.unflatten(row) for row in parts]
    return shape.unflatten([row[0] for row in rows] if isinstance(argnums, int) else rows)


def jacrev(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False,
           chunk_size: int | None = None) -> Callable[..., Any]:
    """Returns a function computing the Jacobian of func with respect to the arguments `argnums`, in
    reverse mode. With has_aux it returns (jacobian, aux). chunk_size is the number of output elements
    per backward pass; None processes all in one.

    >>> torch.func.jacrev(torch.square)(torch.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    def of(*args):
        _refuse_complex("jacrev", args, "inputs")
        result, pull, aux, inputs = _pull(func, args, argnums, has_aux)
        outs, shape = pytree.tree_flatten(result)
        _refuse_complex("jacrev", outs, "outputs")
        sizes = [out.numel() for out in outs]
        step, parts = chunk_size or max(sum(sizes), 1), []
        for begin in range(0, max(sum(sizes), 1), step):
            rows = _basis(outs, begin, min(begin + step, sum(sizes)))
            if chunk_size == 1:  # without vmap, for functions it does not support
                grads = pull(shape.unflatten([row[0] for row in rows]))
                parts.append([x[None] for x in pytree.tree_leaves(grads)])
            else:
                parts.append(pytree.tree_leaves(vmap(pull)(shape.unflatten(rows))))
        leaves, spec = pytree.tree_flatten(_select(args, argnums)[0])
        whole = [[part.reshape(out.shape + x.shape) for part, out in zip(phlox.cat(column).split(sizes), outs)]
                 for column, x in zip(zip(*parts), leaves)]
        jacobian = _detach_from(_nest(zip(*whole), shape, spec, argnums), inputs)
        return (jacobian, aux) if has_aux else jacobian
    return of


def jacfwd(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
           randomness: str = "error") -> Callable[..., Any]:
    """Returns a function computing the Jacobian of func with respect to the arguments `argnums`, in
    forward mode. With has_aux it returns (jacobian, aux). randomness is that of torch.vmap.

    >>> torch.func.jacfwd(torch.square)(torch.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    def of(*args):
        _refuse_complex("jacfwd", args, "inputs")
        leaves, spec = pytree.tree_flatten(_select(args, argnums)[0])
        sizes = [x.numel() for x in leaves]

        def push(*rows):
            result = _push(func, args, spec.unflatten(rows), argnums, False, has_aux)[1:]
            return result if has_aux else result[0]
        pushed = vmap(push, out_dims=(-1, 0) if has_aux else -1, randomness=randomness)(*_basis(leaves, 0, sum(sizes)))
        if has_aux:
            pushed, aux = pushed[0], pytree.tree_map(lambda x: x[0], pushed[1])
        outs, shape = pytree.tree_flatten(pushed)
        _refuse_complex("jacfwd", outs, "outputs")
        parts = [[part.reshape(out.shape[:-1] + x.shape) for part, x in zip(out.split(sizes, -1), leaves)]
                 for out in outs]
        jacobian = _nest(parts, shape, spec, argnums)
        return (jacobian, aux) if has_aux else jacobian
    return of


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Returns a function computing the Hessian of func with respect to the arguments `argnums`: the
    Jacobian of the Jacobian.

    >>> torch.func.hessian(torch.prod)(torch.tensor([2., 3.]))
    tensor([[0., 1.],
            [1., 0.]])
    """
    return jacrev(jacrev(func, argnums), argnums)
