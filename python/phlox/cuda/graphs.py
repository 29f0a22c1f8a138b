# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.graphs: callables with forward and backward captured in CUDA graphs."""
from __future__ import annotations

from typing import Any

import phlox as torch
from phlox import _C, cuda
from phlox.autograd.function import once_differentiable
from phlox.cuda import (  # noqa: F401
    CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing)
from phlox.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

_C._name_missing(__name__)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graphed, *inputs):
        ctx.graphed = graphed
        _C._graphed_replay(graphed.graphs[0], graphed.inputs, inputs)
        results = tuple(r.detach() for r in graphed.results)
        ctx.mark_non_differentiable(*(r for r, of in zip(results, graphed.results) if not of.requires_grad))
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        _C._graphed_replay(ctx.graphed.graphs[1], ctx.graphed.grad_outputs, grads)
        return (None, *(g if g is None else g.detach() for g in ctx.graphed.grads))


class _Callable:
    """One callable. Its graphs read the sample arguments, as static inputs, and write static
    results."""

    def __init__(self, function, args, unused):
        module = function if isinstance(function, torch.nn.Module) else torch.nn.Module()
        self.function, self.args, self.unused = function, args, unused
        self.parameters = tuple(module.parameters())
        self.inputs = (*tree_leaves(args), *self.parameters)
        self.graphs = CUDAGraph(), CUDAGraph()
        _C._graphed_check(module, self.inputs)

    def forward(self):
        self.results, self.spec = tree_flatten(self.function(*self.args))
        self.grad_outputs = [torch.zeros_like(r) if r.requires_grad else None for r in self.results]

    def has_gradients(self):
        return any(r.requires_grad for r in self.results)

    def backward(self):
        wanted, roots = ([t for t in ts if t.requires_grad] for ts in (self.inputs, self.results))
        grads = iter(torch.autograd.grad(roots, wanted, [g for g in self.grad_outputs if g is not None],
                                         allow_unused=self.unused))
        self.grads = [next(grads) if i.requires_grad else None for i in self.inputs]

    def __call__(self, *args):
        results = _Replay.apply(self, *tree_leaves(args), *self.parameters)
        return tree_unflatten(results, self.spec)

    def install(self):
        module = self.function
        if not isinstance(module, torch.nn.Module):
            return self
        original, mode = module.forward, module.training
        module.forward = lambda *a, **k: (self if module.training == mode else original)(*a, **k)
        return module


def make_graphed_callables(
        callables: Any, sample_args: tuple[Any, ...], num_warmup_iters: int = 3,
        allow_unused_input: bool = False, pool: tuple[int, int] | None = None,
        capture_error_mode: str = "global") -> Any:
    """Returns graphed versions of `callables`. They replay the captured work for tensors like
    `sample_args`."""
    several = isinstance(callables, tuple)
    pairs = zip(callables, sample_args) if several else [(callables, sample_args)]
    parts = [_Callable(function, args, allow_unused_input) for function, args in pairs]
    with cuda.stream(cuda.Stream()):
        cuda.synchronize()
        for graphed in parts * num_warmup_iters:
            graphed.forward()
            if graphed.has_gradients():
                graphed.backward()
        cuda.synchronize()
    pool = pool or graph_pool_handle()
    for graphed in parts:
        with graph(graphed.graphs[0], pool, capture_error_mode=capture_error_mode):
            graphed.forward()
    for graphed in filter(_Callable.has_gradients, reversed(parts)):
        with graph(graphed.graphs[1], pool, capture_error_mode=capture_error_mode):
            graphed.backward()
    made = tuple(graphed.install() for graphed in parts)
    return made if several else made[0]
