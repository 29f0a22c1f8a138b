# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.gradcheck and gradgradcheck."""
from __future__ import annotations

import phlox as torch
from phlox import _C, autograd
from phlox.autograd import forward_ad

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class GradcheckError(RuntimeError):
    """Raised by gradcheck if analytical and numerical gradients differ."""


def _outputs(result):
    """Returns the differentiable results of a function: floating-point and complex tensors."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [x for x in results if isinstance(x, _C.Tensor)
            and (x.is_floating_point() or x.is_complex())]


def _compare_batch(function, flows, text, which):
    """Compares a mapped function with calls of each sample. `which`: the output and the input of
    result i."""
    wanted = [torch.stack(each) for each in zip(*(function(flow) for flow in flows))]
    try:
        got = torch.vmap(function)(torch.stack(flows))
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{text}") from error
    for i, (mine, other) in enumerate(zip(got, wanted)):
        if not torch.allclose(mine, other):
            output, source = which(i)
            raise GradcheckError(f"For output {output} and input {source}:\n\n{text}\n\n"
                                 f"Got:\n{mine}\n\nExpected:\n{other}")


def _check_batched(func, inputs):
    """Compares a backward pass over a batch of gradients with one pass for each."""
    wanted = [x for x in inputs if isinstance(x, _C.Tensor) and x.requires_grad]
    for j, y in enumerate(_outputs(func(*inputs))):
        def vjp(flow):
            grads = autograd.grad(y, wanted, flow, retain_graph=True, allow_unused=True)
            return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(grads, wanted))
        if y.requires_grad:
            _compare_batch(vjp, [torch.randn_like(y) for _ in range(2)],
                           "gradcheck or gradgradcheck failed while testing batched gradient computation.",
                           lambda i, j=j: (j, i))


def _check_batched_forward(func, inputs):
    """Compares forward mode over a batch of tangents with one call for each."""
    for i, x in enumerate(inputs):
        if not (isinstance(x, _C.Tensor) and x.requires_grad):
            continue

        def jvp(tangent):
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x.detach(), tangent)
                pairs = [forward_ad.unpack_dual(y) for y in _outputs(func(*inputs[:i], dual, *inputs[i + 1:]))]
                return tuple(torch.zeros_like(p) if t is None else t for p, t in pairs)
        _compare_batch(jvp, [torch.randn_like(x) for _ in range(2)],
                       "gradcheck failed while testing batched gradient computation with forward-mode AD.",
                       lambda j, i=i: (j, i))


def _check_repeats(func, inputs, tolerance):
    wanted = [x for x in inputs if isinstance(x, _C.Tensor) and x.requires_grad]
    outputs = [x for x in _outputs(func(*inputs)) if x.requires_grad]
    one, other = (autograd.grad(outputs, wanted, [torch.ones_like(x) for x in outputs],
                                retain_graph=True, allow_unused=True) for _ in range(2))
    for a, b in zip(one, other):
        if a is not None and a.numel() and (a - b).abs().max() > tolerance:
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output "
                "multiple times gives different values, although analytical gradient matches "
                f"numerical gradient. The tolerance for nondeterminism was {tolerance}.")


def _check_forward(func, inputs, eps, atol, rtol):
    """Compares forward-mode tangents with central differences, for each element of each input."""
    for i, x in enumerate(inputs):
        count = x.numel() if isinstance(x, _C.Tensor) and x.requires_grad else 0
        for k, step in [(k, step) for k in range(count) for step in (1, 1j)[:1 + x.is_complex()]]:
            change = torch.zeros(count, dtype=x.dtype, device=x.device)
            change[k] = step
            change = change.view_as(x)

            def outputs(value):
                return _outputs(func(*inputs[:i], value, *inputs[i + 1:]))
            with forward_ad.dual_level():
                tangents = [forward_ad.unpack_dual(y).tangent for y in outputs(forward_ad.make_dual(x, change))]
            more, less = (outputs((x + s * change).detach().requires_grad_()) for s in (eps, -eps))
            for j, (tangent, a, b) in enumerate(zip(tangents, more, less)):
                slope = ((a - b) / (2 * eps)).detach()
                tangent = torch.zeros_like(slope) if tangent is None else tangent.detach()
                if not torch.allclose(tangent, slope, rtol, atol):
                    raise GradcheckError(f"Jacobian computed with forward mode mismatch for output {j} with respect to "
                                         f"input {i},\nnumerical:{slope}\nanalytical:{tangent}\n")


def gradcheck(func: Callable[..., Any], inputs: _C.Tensor | Sequence[Any], *, eps: float = 1e-06,
              atol: float = 1e-05, rtol: float = 0.001, raise_exception: bool = True,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True,
              check_grad_dtypes: bool = False, check_batched_grad: bool = False,
              check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False,
              masked: bool | None = None) -> bool:
    """Compares analytical gradients with finite differences. Returns True, or raises an error that
    locates the mismatch.

    Args:
        func (callable): takes the inputs and returns a tensor or several
        inputs (Tensor or sequence): tensors with requires_grad=True, of float64, are perturbed
        eps (float): the perturbation
        atol, rtol (float): absolute and relative tolerance
        raise_exception (bool): if False, a mismatch returns False instead of raising
        nondet_tol (float): the tolerance between two identical backward passes
        check_undefined_grad, check_grad_dtypes, fast_mode, masked: no effect: each output is
            differentiated alone, gradients have their inputs' dtypes, and all elements are perturbed
        check_forward_ad, check_backward_ad (bool): the modes to check
        check_batched_grad, check_batched_forward_grad (bool): also compares gradients of a batch
            (torch.vmap) with those of each sample

    >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.sin, x)
    True
    """
    if not (check_backward_ad or check_forward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be "
                             "True")
    for name, given, needed, mode in (
            ("check_batched_grad", check_batched_grad, check_backward_ad, "check_backward_ad"),
            ("check_batched_forward_grad", check_batched_forward_grad, check_forward_ad, "check_forward_ad")):
        if given and not needed:
            raise AssertionError(f"Setting {name}=True requires {mode} to be True")
    inputs = (inputs,) if isinstance(inputs, _C.Tensor) else tuple(inputs)
    which = 0
    try:
        if check_forward_ad:
            _check_forward(func, inputs, eps, atol, rtol)
        if check_batched_forward_grad:
            _check_batched_forward(func, inputs)
        for which in range(max(1, len(_outputs(func(*inputs)))) if check_backward_ad else 0):
            autograd._gradcheck(lambda *given: tuple(_outputs(func(*given))[which:]), inputs, eps,
                                atol, rtol)
        if check_backward_ad:
            _check_repeats(func, inputs, nondet_tol)
        if check_batched_grad:
            _check_batched(func, inputs)
    except Exception as error:
        if not raise_exception:
            return False
        if isinstance(error, GradcheckError) or not str(error).startswith("Jacobian mismatch"):
            raise
        raise GradcheckError(str(error).replace("output 0", f"output {which}", 1)) from None
    return True


def gradgradcheck(func: Callable[..., Any], inputs: _C.Tensor | Sequence[Any],
                  grad_outputs: _C.Tensor | Sequence[Any] | None = None, *, eps: float = 1e-06,
                  atol: float = 1e-05, rtol: float = 0.001,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
                  nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
                  fast_mode: bool = False, masked: bool = False) -> bool:
    """Checks second derivatives: applies gradcheck to the gradients, with respect to the inputs and to
    grad_outputs. Default grad_outputs: random numbers."""
    inputs = (inputs,) if isinstance(inputs, _C.Tensor) else tuple(inputs)
    if grad_outputs is None:
        grad_outputs = [torch.randn_like(x) if x.is_floating_point() else
                        torch.complex(torch.randn_like(x.real), torch.randn_like(x.real))
                        for x in _outputs(func(*inputs))]
        if gen_non_contig_grad_outputs:
            grad_outputs = [torch.stack((x, x), -1)[..., 0] for x in grad_outputs]
    flow = (grad_outputs,) if isinstance(grad_outputs, _C.Tensor) else tuple(grad_outputs)
    flow = tuple(x.detach().requires_grad_() for x in flow)

    def gradients(*given):
        wanted = [x for x in given[:len(inputs)] if isinstance(x, _C.Tensor) and x.requires_grad]
        pairs = [(x, g) for x, g in zip(_outputs(func(*given[:len(inputs)])), given[len(inputs):])
                 if x.requires_grad]
        grads = autograd.grad([x for x, _ in pairs], wanted, [g for _, g in pairs],
                              create_graph=True, allow_unused=True)
        return tuple(x for x in grads if x is not None)

    return gradcheck(gradients, inputs + flow, eps=eps, atol=atol, rtol=rtol,
                     raise_exception=raise_exception, nondet_tol=nondet_tol,
                     check_batched_grad=check_batched_grad, check_backward_ad=check_rev_over_rev,
                     check_forward_ad=check_fwd_over_rev)
