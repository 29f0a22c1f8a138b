# SPDX-License-Identifier: Apache-2.0
"""torch.func.grad and vjp: reverse-mode derivatives of functions."""
from __future__ import annotations

from typing import Any, Callable

import phlox
from phlox import _C
from phlox.utils import _pytree as pytree


def _input(x):
    """Returns x as an input of the transform: its gradients stop there, and its outer history is kept."""
    if not isinstance(x, phlox.Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
    if x.requires_grad:
        return x.view_as(x)
    return _C._dual_variable(x) if _C._is_dual(x) else _C._dual_change(x).requires_grad_()


def _detach_from(tree, inputs):
    """Detaches a tree's tensors from the inputs. Tensors that also depend on another leaf keep their history."""
    leaves = list(inputs)
    for node in [x.grad_fn for x in inputs]:
        if node and node.name().endswith("DualVariable"):  # has a leaf of its own
            leaves.append(node.next_functions[0][0].variable)
    own = {id(leaf) for leaf in leaves}
    return pytree.tree_map(lambda x: _shown(x, own, inputs), tree)


def _shown(x, own, inputs):
    nodes = [getattr(x, "grad_fn", None)]  # the list grows
    for node in filter(None, nodes):
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf.requires_grad and id(leaf) not in own:
            return x
        nodes += {n for n, _ in node.next_functions}.difference(nodes)
    if isinstance(x, phlox.Tensor) and _C._vmap_level(x) == _C._vmap_depth() > 0:
        x = _C._vmap_add(_shown(_C._vmap_remove(x, 0), own, inputs), 0)  # the physical tensor has a history, too
    return _C._dual_change(x) if nodes[0] or any(x is leaf for leaf in inputs) else x


def _select(args, argnums):
    """Returns the arguments selected by argnums (None: all) as a tuple, and their indices."""
    numbers = (range(len(args)) if argnums is None else
               (argnums,) if isinstance(argnums, int) else argnums)
    if not isinstance(numbers, (tuple, range)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if argnums is not None and len(set(numbers)) < max(len(numbers), 1):
        raise RuntimeError(f"argnums elements must be unique, got {numbers}" if numbers
                           else "argnums must be non-empty")
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    return tuple(args[n] for n in numbers), numbers


def _run(caller, func, args, argnums, has_aux, kwargs={}, own=_input):
    """Runs func with the selected arguments replaced by own(x). Returns (inputs, their spec, the result, aux)."""
    selected, numbers = _select(args, argnums)
    given, (leaves, spec) = list(args), pytree.tree_flatten(selected)
    if any(hasattr(x, "_masked_mask") for x in leaves):
        raise NotImplementedError(f"{caller}: gradients with respect to a MaskedTensor are not supported; use torch.autograd.grad")
    inputs = [own(x) for x in leaves]
    for n, part in zip(numbers, spec.unflatten(inputs)):
        given[n] = part
    result = func(*given, **kwargs)
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{caller}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return inputs, spec, *(result if has_aux else (result, None))


def _flat_outputs(caller, result):
    """Returns the tensors of a result and their spec."""
    outs, shape = pytree.tree_flatten(result)
    if not outs or outs == [None]:
        raise RuntimeError(f"{caller}: Expected f to be a function that has non-empty output (got output = {outs})")
    for out in outs:
        if not isinstance(out, phlox.Tensor):
            raise RuntimeError(f"{caller}: expected f(*primals) to return only tensors, got unsupported type {type(out)}")
    return outs, shape


def _gradients(outs, inputs, weights):
    """Returns the gradients of the outputs with respect to the inputs. Zero for inputs no output depends on."""
    live = [(out, weight) for out, weight in zip(outs, weights) if out.requires_grad]
    grads = phlox.autograd.grad([out for out, _ in live], inputs, [weight for _, weight in live],
                                create_graph=True, allow_unused=True) if live else [None] * len(inputs)
    return [phlox.zeros_like(x) if g is None else g for x, g in zip(inputs, grads)]


def _detached(tree):
    return pytree.tree_map(lambda x: x.detach() if isinstance(x, phlox.Tensor) else x, tree)


def _with_grad_mode(func):
    """Wraps func to run with grad mode on. If grad mode was off, its results are detached."""
    def of(*args, **kwargs):
        was_enabled = phlox.is_grad_enabled()
        with phlox.enable_grad():
            made = func(*args, **kwargs)
        return made if was_enabled else _detached(made)
    return of


def grad_and_value(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0,
                   has_aux: bool = False) -> Callable[..., Any]:
    """Returns a function computing (gradient, value) of func with respect to the arguments `argnums`.
    func must return a scalar tensor, or with has_aux (scalar, aux). With has_aux the result is
    (gradient, (value, aux)).

    >>> torch.func.grad_and_value(torch.sum)(torch.tensor([1., 2.]))
    (tensor([1., 1.]), tensor(3.))
    """
    @_with_grad_mode
    def of(*args, **kwargs):
        caller = "grad_and_value(f)(*args)"
        inputs, spec, value, aux = _run(caller, func, args, argnums, has_aux, kwargs)
        if not isinstance(value, phlox.Tensor):
            raise RuntimeError(f"{caller}: Expected f(*args) to return a Tensor, got {type(value)}")
        if value.dim():
            raise RuntimeError(f"{caller}: Expected f(*args) to return a scalar Tensor, got tensor with "
                               f"{value.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
        if value.is_complex():
            raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {value.dtype}")
        grads = spec.unflatten(_gradients([value], inputs, [phlox.ones_like(value)]))
        results = grads[0] if isinstance(argnums, int) else grads, (value, aux) if has_aux else value
        return _detach_from(results, inputs)
    return of


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0,
         has_aux: bool = False) -> Callable[..., Any]:
    """Returns a function computing the gradient of func. Arguments are those of torch.func.grad_and_value.

    >>> torch.func.grad(torch.func.grad(torch.square))(torch.tensor(3.))
    tensor(2.)
    """
    def of(*args, **kwargs):
        grads, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads
    return of


def _pull(func, primals, argnums, has_aux):
    """vjp with respect to the arguments `argnums`. Returns (result, vjp function, aux, inputs). An int
    argnums makes the vjp function return a single gradient instead of a tuple."""
    caller = "vjp(f, *primals)"
    was_enabled = phlox.is_grad_enabled()
    with phlox.enable_grad():
        inputs, spec, result, aux = _run(caller, func, primals, argnums, has_aux)
    outs, shape = _flat_outputs(caller, result)
    for out in outs:
        if not (out.is_floating_point() or out.is_complex()):
            raise RuntimeError("vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got "
                               f"Tensor with dtype {out.dtype}")

    @_with_grad_mode
    def of(cotangents):
        weights, other = pytree.tree_flatten(cotangents)
        if other != shape:
            raise RuntimeError("Expected pytree structure of cotangents to be the same as pytree structure of "
                               f"outputs to the function. cotangents: {other}, primal output: {shape}")
        grads = spec.unflatten(_gradients(outs, inputs, weights))
        return _detach_from(grads[0] if isinstance(argnums, int) else grads, inputs)
    result, aux = _detach_from((result, aux), inputs)
    if not was_enabled:
        result, aux = _detached((result, aux))
    return result, of, aux, inputs


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Computes the vector-Jacobian product. Returns func(*primals) and a function of cotangents, which
    returns their product with func's Jacobian. With has_aux, func returns (output, aux) and aux is
    returned third.

    >>> torch.func.vjp(torch.square, torch.tensor(3.))[1](torch.tensor(1.))
    (tensor(6.),)
    """
    result, of, aux, _ = _pull(func, primals, None, has_aux)
    return (result, of, aux) if has_aux else (result, of)
