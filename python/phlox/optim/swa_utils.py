# SPDX-License-Identifier: Apache-2.0
"""torch.optim.swa_utils: stochastic weight averaging (Izmailov et al. 2018, Averaging weights leads
to wider optima and better generalization)."""
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


def _over_lists(average):
    """Converts an averaging function of tensors to one of lists, in place."""
    @torch.no_grad()
    def update(averages, currents, count):
        for mean, current in zip(averages, currents):
            mean.copy_(average(mean, current, count))

    return update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., torch.Tensor]:
    """Returns a function (average, value, count) -> the updated exponential moving average:
    decay * average + (1 - decay) * value."""
    if not 0 <= decay <= 1:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] "
                         "range.")
    return torch.no_grad()(lambda mean, current, count: decay * mean + (1 - decay) * current)


def get_swa_avg_fn() -> Callable[..., torch.Tensor]:
    """Returns a function (average, value, count) -> the updated mean of all values."""
    return torch.no_grad()(lambda mean, current, count: mean + (current - mean) / (count + 1))


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """Returns the list form of get_ema_avg_fn, in place."""
    return _over_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """Returns the list form of get_swa_avg_fn, in place."""
    return _over_lists(get_swa_avg_fn())


class AveragedModel(nn.Module):
    """A copy of a model with averaged weights, updated by update_parameters.

    Args:
        model (Module): the initial model
        device: the device of the averages. Default: the model's
        avg_fn, multi_avg_fn: averaging functions of tensors or of lists. Default: the mean
        use_buffers (bool): if True, buffers are averaged, too; otherwise they are copied

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
        """Runs the averaged model."""
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Updates the averages with a model's weights. The first update copies them."""
        def averaged(module):
            return chain(module.parameters(), module.buffers() if self.use_buffers else ())

        groups = defaultdict(lambda: ([], []))
        for mean, current in zip(averaged(self.module), averaged(model)):
            means, currents = groups[mean.device, mean.dtype]
            means.append(mean.detach())
            currents.append(current.detach().to(mean.device))
        update = self.multi_avg_fn or _over_lists(self.avg_fn or get_swa_avg_fn())
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
    """Recomputes the running statistics of a model's BatchNorm layers over all batches of a loader.
    The first item of a list or tuple is the input."""
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
        module.momentum = None  # cumulative average over all batches
    for batch in loader:
        given = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(given if device is None else given.to(device))
    for module, momentum in norms.items():
        module.momentum = momentum
    model.train(training)


_C._name_missing(__name__)
