# SPDX-License-Identifier: Apache-2.0
"""torch.nn.parallel: DataParallel and its pieces. Structures of arguments are taken apart and put
together here; tensors are cut and joined, modules copied and threads run by the core."""
from __future__ import annotations

import warnings

import phlox as torch
from phlox import _C
from phlox.nn import Module

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


def _rebuild(model, items):
    """A list or tuple of the model's type."""
    return type(model)(*items) if hasattr(model, "_fields") else type(model)(items)


def _parts(value, devices, dim):
    """A list of one part for each device; fewer where a tensor has fewer."""
    if isinstance(value, torch.Tensor):
        return _C._scatter_tensor(value, devices, dim)
    if isinstance(value, (tuple, list)) and len(value):
        return [_rebuild(value, part) for part in zip(*(_parts(v, devices, dim) for v in value))]
    if isinstance(value, dict) and value:
        return [type(value)(part) for part in _parts(list(value.items()), devices, dim)]
    return [value] * len(devices)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> tuple[Any, ...]:
    """Cuts tensors along `dim` into a part for each device, and what holds them likewise; other
    objects are referred to by each part. A tuple.

    RuntimeError for a tensor without dimensions.
    """
    return tuple(_parts(inputs, list(target_gpus), dim))


def scatter_kwargs(inputs: tuple[Any, ...], kwargs: dict[str, Any] | None,
                   target_gpus: Sequence[Any],
                   dim: int = 0) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Cuts positional and keyword arguments: two tuples of equal length."""
    inputs = scatter(inputs, target_gpus, dim) if inputs else ()
    kwargs = scatter(kwargs, target_gpus, dim) if kwargs else ()
    count = max(len(inputs), len(kwargs))
    return (inputs + ((),) * (count - len(inputs)), kwargs + ({},) * (count - len(kwargs)))


def gather(outputs: Iterable[Any], target_device: Any, dim: int = 0) -> Any:
    """Joins what the devices gave on one (-1: the CPU): tensors along `dim`, and None, dicts, lists
    and tuples by what they hold. TypeError for other objects."""
    outputs = list(outputs)
    if not outputs:
        raise ValueError("gather takes 1 to 64 outputs")
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        return _C._gather_tensors(outputs, target_device, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(output) != len(first) for output in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([output[key] for output in outputs], target_device, dim))
                           for key in first)
    if isinstance(first, (tuple, list)):
        return _rebuild(first, [gather(column, target_device, dim) for column in zip(*outputs)])
    raise TypeError("gather: outputs must be tensors, None, or dicts, tuples and lists of them, not "
                    + type(first).__name__)


def replicate(network: Module, devices: Sequence[Any],
              detach: bool = False) -> list[Module]:
    """Copies of a module, one on each device, whose gradients add up in the module's parameters."""
    if not isinstance(network, Module):
        raise TypeError(f"replicate() takes a Module, not {type(network).__name__}")
    if detach:
        with torch.no_grad():
            return _C._replicate(network, devices)
    return _C._replicate(network, devices)


def parallel_apply(modules: Iterable[Any], inputs: Iterable[Any],
                   kwargs_tup: Iterable[dict[str, Any]] | None = None,
                   devices: Sequence[Any] | None = None) -> list[Any]:
    """Calls each module with its inputs on a thread of its own, its device current; a list. The
    first error is raised as "Caught X in replica i on device d."."""
    modules, inputs = list(modules), list(inputs)
    kwargs = [{}] * len(modules) if kwargs_tup is None else list(kwargs_tup)
    assert len(modules) == len(inputs) == len(kwargs), \
        f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}"
    inputs = [tuple(one) if isinstance(one, (list, tuple)) else (one,) for one in inputs]
    devices = range(len(modules)) if devices is None else devices
    return _C._parallel_apply(modules, inputs, kwargs, list(devices))


def _warn_of_imbalance(ids):
    memory = [torch.cuda.get_device_properties(i).total_memory for i in ids]
    least, most = min(memory), max(memory)
    if least / most < 0.75:
        warnings.warn(
            "\n    There is an imbalance between your GPUs. You may want to exclude GPU "
            f"{ids[memory.index(least)]} which\n"
            f"    has less than 75% of the memory or cores of GPU {ids[memory.index(most)]}. You "
            "can do so by setting\n"
            "    the device_ids argument to DataParallel, or by setting the CUDA_VISIBLE_DEVICES\n"
            "    environment variable.", stacklevel=4)


def _device_ids(given):
    """Indices of the devices asked for; all of them if none were, none where there are none."""
    if not torch.cuda.device_count():
        return []
    if given is None:
        return list(range(torch.cuda.device_count()))
    ids = _C._device_indices(given)
    if not ids:
        raise ValueError("device_ids must name at least one device")
    return ids


class _Pass:
    """What a pass over several devices consists of, along the dimension self.dim.

    The core has a pass of its own, of a module from tensor to tensor (px_data_parallel). Here any
    tree of arguments is cut, and each part of a pass is a method that programs override; what the
    parts do is the core's, in both."""

    def scatter(self, inputs, kwargs, device_ids):
        """Cuts the arguments; a program may override it, and the three below."""
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def replicate(self, module, device_ids):
        """Copies the module to the devices."""
        return replicate(module, device_ids)

    def parallel_apply(self, replicas, inputs, kwargs):
        """Calls the replicas."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[:len(replicas)])

    def gather(self, outputs, output_device):
        """Joins the results."""
        return gather(outputs, output_device, self.dim)

    def _run(self, inputs, kwargs):
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _C._data_parallel_check(self.module, self.device_ids[0])
        inputs, kwargs = self.scatter(inputs, kwargs, self.device_ids)
        if not inputs:
            inputs, kwargs = ((),), ({},)
        if len(self.device_ids) == 1:
            return self.module(*inputs[0], **kwargs[0])
        replicas = self.replicate(self.module, self.device_ids[:len(inputs)])
        return self.gather(self.parallel_apply(replicas, inputs, kwargs), self.output_device)


class DataParallel(_Pass, Module):
    """Calls a module on parts of a batch, each on a device of its own, and joins the results.

    module: on device_ids[0]. device_ids: the devices; None: all. output_device: where the results
    are joined; None: the first device. dim: the dimension that is cut.

    RuntimeError for a module that is elsewhere. Without devices the module is called as it is.

        >>> model = torch.nn.Linear(3, 2)
        >>> if torch.cuda.is_available():
        ...     model = torch.nn.DataParallel(model.cuda())
        >>> model(torch.ones(8, 3)).shape
        torch.Size([8, 2])
    """

    def __init__(self, module: Module, device_ids: Sequence[Any] | None = None,
                 output_device: Any = None, dim: int = 0) -> None:
        Module.__init__(self)
        if not isinstance(module, Module):
            raise TypeError(f"DataParallel takes a Module, not {type(module).__name__}")
        self.module, self.dim, self.device_ids = module, dim, _device_ids(device_ids)
        self.output_device = output_device
        if not self.device_ids:
            return
        if output_device is None:
            self.output_device = self.device_ids[0]
        self.src_device_obj = torch.device("cuda", self.device_ids[0])
        _warn_of_imbalance(self.device_ids)
        if len(self.device_ids) == 1:
            module.to(self.src_device_obj)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Cuts the tensors among the arguments, runs a replica on each part, and joins."""
        return self._run(inputs, kwargs)


def data_parallel(module: Module, inputs: Any, device_ids: Sequence[Any] | None = None,
                  output_device: Any = None, dim: int = 0,
                  module_kwargs: dict[str, Any] | None = None) -> Any:
    """Calls a module on parts of `inputs`, as DataParallel does."""
    if not isinstance(module, Module):
        raise TypeError(f"data_parallel() takes a Module, not {type(module).__name__}")
    once = _Pass()
    once.module, once.dim, once.device_ids = module, dim, _device_ids(device_ids)
    once.output_device = output_device
    if output_device is None and once.device_ids:
        once.output_device = once.device_ids[0]
    return once._run(inputs if isinstance(inputs, tuple) else (inputs,), module_kwargs or {})


_C._name_missing(__name__)
