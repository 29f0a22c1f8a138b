# SPDX-License-Identifier: Apache-2.0
"""torch.func.grad and vjp: functions that give the derivatives of functions."""
from __future__ import annotations

from typing import Any, Callable

import phlox
from phlox.utils import _pytree as pytree


def _input(x):
    """x as an input of its own, whose history outside stays."""
    if not isinstance(x, phlox.Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
    return x.view_as(x) if x.requires_grad else x.data.requires_grad_()


def _shown(tree, inputs):
    """A tree without history, but of tensors that depend on a leaf that is none of the inputs."""
    own = {id(leaf) for leaf in [None, *inputs]}

    def shown(x):
        nodes = [getattr(x, "grad_fn", None)]  # the list grows
        for node in filter(None, nodes):
            if id(getattr(node, "variable", None)) not in own:
                return x
            nodes += {n for n, _ in node.next_functions}.difference(nodes)
        return x.data if nodes[0] or any(x is leaf for leaf in inputs) else x

    return pytree.tree_map(shown, tree)


def _run(who, func, args, argnums, has_aux, kwargs={}):
    """Runs func with inputs of its own: these, how they are put together, the result, and aux."""
    given, numbers = list(args), (argnums,) if isinstance(argnums, int) else argnums
    if not isinstance(numbers, (tuple, range)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if not numbers or len(set(numbers)) < len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {numbers}" if numbers
                           else "argnums must be non-empty")
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    leaves, spec = pytree.tree_flatten(tuple(args[n] for n in numbers))
    inputs = [_input(x) for x in leaves]
    for n, part in zip(numbers, spec.unflatten(inputs)):
        given[n] = part
    result = func(*given, **kwargs)
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{who}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return inputs, spec, *(result if has_aux else (result, None))


def _gradients(outs, inputs, weights):
    """Of the outputs by the inputs: 0 for those that no output depends on."""
    live = [(out, weight) for out, weight in zip(outs, weights) if out.requires_grad]
    grads = phlox.autograd.grad([out for out, _ in live], inputs, [weight for _, weight in live],
                                create_graph=True, allow_unused=True) if live else [None] * len(inputs)
    return [phlox.zeros_like(x) if g is None else g for x, g in zip(inputs, grads)]


def grad_and_value(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0,
                   has_aux: bool = False) -> Callable[..., Any]:
    """Makes a function that gives the gradient of func by some arguments, and what func gives: a
    tensor of one number, or, with has_aux, a pair of that and what is handed on beside it.

    >>> torch.func.grad_and_value(torch.sum)(torch.tensor([1., 2.]))
    (tensor([1., 1.]), tensor(3.))
    """
    @phlox.enable_grad()
    def of(*args, **kwargs):
        who = "grad_and_value(f)(*args)"
        inputs, spec, value, aux = _run(who, func, args, argnums, has_aux, kwargs)
        if not isinstance(value, phlox.Tensor):
            raise RuntimeError(f"{who}: Expected f(*args) to return a Tensor, got {type(value)}")
        if value.dim():
            raise RuntimeError(f"{who}: Expected f(*args) to return a scalar Tensor, got tensor with "
                               f"{value.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
        grads = spec.unflatten(_gradients([value], inputs, [phlox.ones_like(value)]))
        return _shown((grads[0] if isinstance(argnums, int) else grads, (value, aux) if has_aux else value), inputs)
    return of


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0,
         has_aux: bool = False) -> Callable[..., Any]:
    """Makes a function that gives the gradient of func, and aux, as torch.func.grad_and_value does.

    >>> torch.func.grad(torch.func.grad(torch.square))(torch.tensor(3.))
    tensor(2.)
    """
    def of(*args, **kwargs):
        grads, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads
    return of


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """What func gives for primals, and a function of weights for that, which gives their product
    with func's Jacobian; with has_aux, func gives a pair, whose second part is handed on.

    >>> torch.func.vjp(torch.square, torch.tensor(3.))[1](torch.tensor(1.))
    (tensor(6.),)
    """
    with phlox.enable_grad():
        inputs, spec, result, aux = _run("vjp(f, *primals)", func, primals, range(len(primals)), has_aux)
    outs, shape = pytree.tree_flatten(result)
    for out in outs:
        if not isinstance(out, phlox.Tensor):
            raise RuntimeError("vjp(f, *primals): expected f(*primals) to return only tensors, got "
                               f"unsupported type {type(out)}")

    @phlox.enable_grad()
    def of(cotangents):
        weights, other = pytree.tree_flatten(cotangents)
        if other != shape:
            raise RuntimeError("Expected pytree structure of cotangents to be the same as pytree structure of "
                               f"outputs to the function. cotangents: {other}, primal output: {shape}")
        return _shown(spec.unflatten(_gradients(outs, inputs, weights)), inputs)
    result, aux = _shown((result, aux), inputs)
    return (result, of, aux) if has_aux else (result, of)
