# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.functional: Jacobians and Hessians of functions of tensors and their products
with vectors.

Inputs are a tensor or a tuple of tensors. With create_graph=True the results are differentiable.
With strict=True a result independent of an input is an error; otherwise its derivative is zero."""
from __future__ import annotations

from typing import Any, Callable

import phlox as torch
from phlox import _C, Tensor


def _tensors(given, what, function):
    """Returns the tensors of an argument as a tuple, and True if the argument was a tuple."""
    many = isinstance(given, tuple)
    tensors = given if many else (given,)
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            at = f"value at index {i}" if many else f"given {what}"
            raise TypeError(f"The {what} given to {function} must be either a Tensor or a tuple of "
                            f"Tensors but the {at} has type {type(tensor)}.")
    return tensors, many


def _gradients(outputs, inputs, weights, create_graph, check=None):
    """Returns gradients of weighted outputs with respect to inputs. Calls check(index, gradient)
    for each if given. Missing gradients become zeros."""
    live = [(out, weight) for out, weight in zip(outputs, weights) if out.requires_grad]
    grads = torch.autograd.grad([out for out, _ in live], inputs, [weight for _, weight in live],
                                retain_graph=True, create_graph=create_graph,
                                allow_unused=True) if live else [None] * len(inputs)
    for i, grad in enumerate(grads if check else ()):
        check(i, grad)
    return tuple(torch.zeros_like(x) if grad is None else grad for x, grad in zip(inputs, grads))


class _Call:
    """A call of the user's function with aliases of the inputs, and its outputs."""

    def __init__(self, name, func, inputs, create_graph, strict):
        self.name, self.create_graph, self.strict = name, create_graph, strict
        given, self.many_inputs = _tensors(inputs, "inputs", name)
        self.inputs = tuple(map(self._input, given))
        self.outputs, self.many_outputs = _tensors(
            func(*self.inputs), "outputs of the user-provided function", name)
        for i, output in enumerate(self.outputs if strict else ()):
            if not output.requires_grad:
                raise RuntimeError(f"Output {i} of the user-provided function does not require "
                                   "gradients. The outputs must be computed in a differentiable "
                                   "manner from the input when running in strict mode.")

    def _input(self, x):
        """Returns an alias of x, connected to the graph of x only with create_graph=True."""
        if self.create_graph and x.requires_grad:
            return x.view_as(x)
        if self.create_graph and _C._is_dual(x):
            return _C._dual_variable(x)
        return x.detach().requires_grad_()

    def vector(self, v, like, many, place):
        """Returns the validated v, or a one if v is None and `like` has a single element."""
        if v is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise RuntimeError(f"The vector v can only be None if {place} a single Tensor with "
                                   "a single element.")
            return (torch.ones_like(like[0]),)
        v, _ = _tensors(v, "v", self.name)
        if len(v) != len(like):
            raise RuntimeError("The given v should contain a single Tensor." if not many else
                               f"v is a tuple of invalid length: should be {len(like)} but got "
                               f"{len(v)}.")
        for i, (part, wanted) in enumerate(zip(v, like)):
            if part.shape != wanted.shape:
                raise RuntimeError(f"{f'Entry {i} in ' * many}v has invalid size: should be "
                                   f"{wanted.shape} but got {part.shape}.")
        return v

    def input_vector(self, v):
        return self.vector(v, self.inputs, self.many_inputs,
                           "the input to the user-provided function is")

    def output_vector(self, v=None):
        return self.vector(v, self.outputs, self.many_outputs,
                           "the user-provided function returns")

    def gradients(self, outputs, weights, create_graph, what="The output", of="The jacobian"):
        """Returns gradients with respect to the inputs. For error texts, `what` names the outputs
        and `of` the gradients; of=None marks inner gradients of a Hessian."""
        def check(i, grad):
            text = (f"of the user-provided function is independent of input {i}. This is not "
                    "allowed in strict mode")
            if grad is None:
                raise RuntimeError(f"{what} {text}.")
            if create_graph and not grad.requires_grad:
                raise RuntimeError(
                    f"{of} {text} when create_graph=True." if of else
                    "While computing the hessian, found that the jacobian of the user-provided "
                    f"function with respect to input {i} is independent of the input. This is not "
                    "allowed in strict mode. You should ensure that your function is twice "
                    "differentiable and that the jacobian depends on the inputs (this would be "
                    "violated by a linear function for example).")
        return _gradients(outputs, self.inputs, weights, create_graph, self.strict and check)

    def check_number(self):
        if self.many_outputs:
            raise RuntimeError(f"The function given to {self.name} should return a single Tensor")
        if self.outputs[0].numel() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {self.name} should "
                               "contain a single element")

    def gradients_of_number(self):
        """Returns differentiable gradients of a single-element output."""
        return self.gradients(self.outputs, self.output_vector(), True, of=None)

    def jacobian(self, number):
        """Returns the derivatives of output `number` with respect to each input."""
        output = self.outputs[number]
        flat, rows = output.reshape(-1), []
        for k in range(output.numel()):
            element = flat[k]
            rows.append(self.gradients((element,), (torch.ones_like(element),), self.create_graph,
                                       f"Output {number}"))
        shapes = [output.shape + x.shape for x in self.inputs]
        columns = ([torch.stack(column) for column in zip(*rows)] or
                   [x.new_empty(shape) for x, shape in zip(self.inputs, shapes)])
        return self.result(map(Tensor.reshape, columns, shapes), self.many_inputs)

    def result(self, tensors, many):
        """Returns tensors in the structure of the user's argument, detached unless create_graph."""
        tensors = tuple(t if self.create_graph else t.detach() for t in tensors)
        return tensors if many else tensors[0]

    def results(self, products, many):
        return self.result(self.outputs, self.many_outputs), self.result(products, many)


def vjp(func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...],
        v: Tensor | tuple[Tensor, ...] | None = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """Computes the dot product between a vector v and the Jacobian of func at the point inputs.
    Returns the outputs of func and the product.

    >>> torch.autograd.functional.vjp(torch.sin, torch.zeros(2), torch.tensor([1.0, 2.0]))[1]
    tensor([1., 2.])
    """
    with torch.enable_grad():
        call = _Call("vjp", func, inputs, create_graph, strict)
        products = call.gradients(call.outputs, call.output_vector(v), create_graph)
        return call.results(products, call.many_inputs)


def jvp(func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...],
        v: Tensor | tuple[Tensor, ...] | None = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """Computes the dot product between the Jacobian of func at the point inputs and a vector v.
    Returns the outputs of func and the product."""
    with torch.enable_grad():
        call = _Call("jvp", func, inputs, create_graph, strict)
        v = call.input_vector(v)
        # Double-backward trick: vjp is linear in its weights; its derivative by them is the jvp.
        weights = tuple(torch.zeros_like(out).requires_grad_() for out in call.outputs)
        grads = call.gradients(call.outputs, weights, True)
        products = _gradients(grads, weights, v, create_graph)
        return call.results(products, call.many_outputs)


def _vhp(name, func, inputs, v, create_graph, strict):
    with torch.enable_grad():
        call = _Call(name, func, inputs, create_graph, strict)
        call.check_number()
        v = call.input_vector(v)
        products = call.gradients(call.gradients_of_number(), v, create_graph, "The jacobian",
                                  "The hessian")
        return call.results(products, call.many_inputs)


def vhp(func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...],
        v: Tensor | tuple[Tensor, ...] | None = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """Computes the dot product between a vector v and the Hessian of a scalar function at the point
    inputs. Returns the output of func and the product."""
    return _vhp("vhp", func, inputs, v, create_graph, strict)


def hvp(func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...],
        v: Tensor | tuple[Tensor, ...] | None = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """Computes the dot product between the Hessian of a scalar function and a vector v at the point
    inputs. Returns the output of func and the product. Uses vhp, since the Hessian is symmetric."""
    return _vhp("hvp", func, inputs, v, create_graph, strict)


def _is_forward(strategy, vectorize, strict, create_graph):
    """Returns True for forward mode. Rejects unsupported combinations of options."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode". '
                             "Hint: If your function has more outputs than inputs, "
                             '"forward-mode" tends to be more performant. Otherwise, prefer to '
                             'use "reverse-mode".')
    forward = strategy == "forward-mode"
    together = ('torch.autograd.functional.jacobian: `{0}=True` and `strategy="forward-mode"` are '
                "not supported together (yet). Please either set `{0}=False` or "
                '`strategy="reverse-mode"`.')
    if forward and create_graph:
        raise NotImplementedError(together.format("create_graph"))
    if forward and strict:
        raise RuntimeError(together.format("strict"))
    if forward and not vectorize:
        raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse "
                                  "Hessian isonly implemented for `vectorize=True`.")
    if vectorize and strict:
        raise RuntimeError("torch.autograd.functional.jacobian: `strict=True` and "
                           "`vectorized=True` are not supported together. Please either set "
                           "`strict=False` or `vectorize=False`.")
    return forward


def jacobian(func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...],
             create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """Computes the Jacobian of func: the derivatives of each output by each input.

    Args:
        create_graph (bool): if True, the Jacobian is differentiable
        strict (bool): if True, raises RuntimeError if an output is independent of an input
        vectorize (bool): no effect in reverse mode; required in forward mode
        strategy (str): 'reverse-mode', or 'forward-mode' like torch.func.jacfwd

    >>> torch.autograd.functional.jacobian(torch.square, torch.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if _is_forward(strategy, vectorize, strict, create_graph):
        given, many = _tensors(inputs, "inputs", "jacobian")
        return torch.func.jacfwd(func, tuple(range(len(given))) if many else 0)(*given)
    with torch.enable_grad():
        call = _Call("jacobian", func, inputs, create_graph, strict)
        whole = tuple(map(call.jacobian, range(len(call.outputs))))
    return whole if call.many_outputs else whole[0]


def hessian(func: Callable[..., Any], inputs: Tensor | tuple[Tensor, ...],
            create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """Computes the Hessian of a scalar function func. The arguments are those of jacobian.

    >>> torch.autograd.functional.hessian(torch.prod, torch.tensor([2.0, 3.0]))
    tensor([[0., 1.],
            [1., 0.]])
    """
    _is_forward(outer_jacobian_strategy, vectorize, strict, create_graph)
    given, many = _tensors(inputs, "inputs", "hessian")

    def gradients(*inputs):
        call = _Call("hessian", func, inputs, True, strict)
        call.check_number()
        return call.gradients_of_number()

    whole = jacobian(gradients, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return whole if many else whole[0][0]


_C._name_missing(__name__)
