# SPDX-License-Identifier: Apache-2.0
"""torch.optim.swa_utils: averages of a model's weights over training (Izmailov et al. 2018,
Averaging weights leads to wider optima and better generalization)."""
from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from itertools import chain

import phlox as torch
from phlox import _C, nn

from .lr_scheduler import SWALR as SWALR

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn",
           "get_ema_avg_fn", "get_swa_avg_fn"]


def _of_all(average):
    """A function of two lists out of one of two tensors."""
    @torch.no_grad()
    def update(averages, currents, count):
        for mean, current in zip(averages, currents):
            mean.copy_(average(mean, current, count))

    return update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., torch.Tensor]:
    """A function of an average, a value and a count that gives the next average, of which `decay`
    is the old one (exponential moving average)."""
    if not 0 <= decay <= 1:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] "
                         "range.")
    return torch.no_grad()(lambda mean, current, count: decay * mean + (1 - decay) * current)


def get_swa_avg_fn() -> Callable[..., torch.Tensor]:
    """The same with the mean of all values."""
    return torch.no_grad()(lambda mean, current, count: mean + (current - mean) / (count + 1))


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """get_ema_avg_fn of lists of tensors, in place."""
    return _of_all(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """get_swa_avg_fn of lists of tensors, in place."""
    return _of_all(get_swa_avg_fn())


class AveragedModel(nn.Module):
    """A copy of a model with the average of its weights, as update_parameters has seen them.

    Args:
        model (Module): what it begins with
        device: where the averages are kept; None: with the model
        avg_fn, multi_avg_fn: how they are made, one by one or of lists; by default the means
        use_buffers (bool): whether buffers are averaged too, and not copied

    >>> model = torch.nn.Linear(1, 1)
    >>> average = torch.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = torch.nn.init.constant_(model.weight, value)
    ...     average.update_parameters(model)
    >>> average.module.weight.item(), average.n_averaged
    (3.0, tensor(3))
    """

    def __init__(self, model: nn.Module, device: Any = None, avg_fn: Callable[..., Any] | None = None,
                 multi_avg_fn: Callable[..., None] | None = None,
                 use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model).to(device) if device is not None else deepcopy(model)
        self.register_buffer("n_averaged", torch.tensor(0, dtype=torch.long, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model gives."""
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Takes the weights of a model into the average; the first time they are it."""
        def averaged(module):
            return chain(module.parameters(), module.buffers() if self.use_buffers else ())

        groups = defaultdict(lambda: ([], []))
        for mean, current in zip(averaged(self.module), averaged(model)):
            means, currents = groups[mean.device, mean.dtype]
            means.append(mean.detach())
            currents.append(current.detach().to(mean.device))
        update = self.multi_avg_fn or _of_all(self.avg_fn or get_swa_avg_fn())
        for (device, _), (means, currents) in groups.items():
            if self.n_averaged == 0:
                torch._foreach_copy_(means, currents)
            else:
                update(means, currents, self.n_averaged.to(device))
        if not self.use_buffers:
            for mean, current in zip(self.module.buffers(), model.buffers()):
                mean.copy_(current)
        self.n_averaged += 1


@torch.no_grad()
def update_bn(loader: Iterable[Any], model: nn.Module, device: Any = None) -> None:
    """Computes the statistics of a model's BatchNorm layers anew, from all batches of a loader, or
    the first items of those that are lists or tuples."""
    norms = {module: module.momentum for module in model.modules()
             if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))}
    if not norms:
        return
    training = model.training
    model.train()
    for module in norms:
        if module.track_running_stats:
            module.running_mean.zero_()
            module.running_var.fill_(1)
            module.num_batches_tracked.zero_()
        module.momentum = None  # the mean of all batches
    for batch in loader:
        given = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(given if device is None else given.to(device))
    for module, momentum in norms.items():
        module.momentum = momentum
    model.train(training)


_C._name_missing(__name__)
