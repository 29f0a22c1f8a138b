# SPDX-License-Identifier: Apache-2.0
"""Ensembles of models for torch.vmap: torch.func.stack_module_state, and removal of running statistics
that vmap does not support."""
from __future__ import annotations

from typing import Any, Sequence

import phlox


def _stacked(name, tensors):
    if len({t.requires_grad for t in tensors}) > 1:
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    return phlox.stack(tensors).detach().requires_grad_(tensors[0].requires_grad)


def stack_module_state(models: Sequence[phlox.nn.Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stacks the parameters and the buffers of several models of the same class. The results are leaves,
    for torch.func.functional_call within torch.vmap.

    >>> params, buffers = torch.func.stack_module_state([torch.nn.Linear(2, 3) for _ in range(4)])
    >>> params["weight"].shape
    torch.Size([4, 3, 2])
    """
    if len(models) == 0:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(each):
        return {name: _stacked(name, [tensors[name] for tensors in each]) for name in each[0]}
    return (stacked([dict(m.named_parameters()) for m in models]),
            stacked([dict(m.named_buffers()) for m in models]))


def replace_all_batch_norm_modules_(root: phlox.nn.Module) -> phlox.nn.Module:
    """Disables running statistics in all BatchNorm modules of a model. Under vmap, all examples would
    share them.

    >>> torch.func.replace_all_batch_norm_modules_(torch.nn.Sequential(torch.nn.BatchNorm1d(3)))
    Sequential(
      (0): BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=False)
    )
    """
    for module in root.modules():
        if isinstance(module, phlox.nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
