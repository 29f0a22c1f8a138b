# SPDX-License-Identifier: Apache-2.0
"""torch.nn.parallel: DataParallel and its pieces, DistributedDataParallel. Structures of arguments
are taken apart and put together here; tensors are cut and joined, modules copied, threads run and
gradients reduced by the core."""
from __future__ import annotations

import contextlib
import functools
import warnings
from dataclasses import dataclass

import phlox as torch
from phlox import _C
from phlox.distributed.algorithms.join import Join, Joinable, JoinHook
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


@dataclass
class _MixedPrecision:
    """The dtypes of parameters and inputs, of what is sent, and of buffers; None: their own."""
    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    buffer_dtype: torch.dtype | None = None


class _DDPJoinHook(JoinHook):
    """Takes part in the collectives of the other ranks' steps."""

    def __init__(self, ddp, divide_by_initial_world_size):
        self.ddp, ddp._divide_by_initial_world_size = ddp, divide_by_initial_world_size

    def main_hook(self):
        """A step of the others."""
        self.ddp.reducer.begin()
        self.ddp._sync_buffers(False)
        self.ddp.require_forward_param_sync = self.ddp._is_anywhere(False)
        if self.ddp.require_forward_param_sync:
            self.ddp.reducer.shadow()

    def post_hook(self, is_last_joiner):
        """The model is that of a rank that joined last."""
        self.ddp.reducer.divide_by(0)
        _C._copy_from(self.ddp.process_group, self.ddp._states(self.ddp.forward_sync_buffers), self.ddp._common_rank(is_last_joiner))


class DistributedDataParallel(Module, Joinable):
    """A module whose gradients are averaged over the processes of a group, in each backward pass.

    module: the same in all processes; rank 0's parameters and buffers are copied to the others.
    device_ids: one device, which inputs are moved to, or None. bucket_cap_mb: how many MiB of
    gradients are sent together. find_unused_parameters: do not wait for the gradients of parameters
    that the outputs do not depend on. gradient_as_bucket_view: .grad is a view of what is sent.
    static_graph: every step uses the same parameters.

    RuntimeError if the processes' modules differ, or if gradients of the step before are missing.
    """

    def __init__(self, module: Module, device_ids: Sequence[Any] | None = None,
                 output_device: Any = None, dim: int = 0, broadcast_buffers: bool | None = None,
                 init_sync: bool = True, process_group: Any = None, bucket_cap_mb: float | None = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = False, static_graph: bool = False,
                 delay_all_reduce_named_params: Any = None, param_to_hook_all_reduce: Any = None,
                 mixed_precision: Any = None, device_mesh: Any = None,
                 skip_all_reduce_unused_params: bool = False, bucket_cap_mb_list: Any = None,
                 batched_grad_copy: bool = False, forward_sync_buffers: bool | None = None,
                 lazy_bucket_allocation: bool = False) -> None:
        given = locals()
        super().__init__()
        Joinable.__init__(self)
        for name in ("delay_all_reduce_named_params", "param_to_hook_all_reduce", "device_mesh",
                     "skip_all_reduce_unused_params", "bucket_cap_mb_list", "batched_grad_copy", "lazy_bucket_allocation"):
            if given[name]:
                raise NotImplementedError(f"DistributedDataParallel({name}=) is not implemented in Phlox")
        self.process_group = torch.distributed._group(process_group)
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._module_parameters = [p for n, p in module.named_parameters() if n not in self.parameters_to_ignore]
        parameters = [p for p in self._module_parameters if p.requires_grad]
        if not parameters:
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        devices = {p.device for p in self._module_parameters}
        kinds = {device.type for device in devices}
        if len(kinds) != 1:
            raise ValueError("DistributedDataParallel's input module must be on the same type of devices, but input module "
                             f"parameters locate in {kinds}.")
        self.device_type, self.is_multi_device_module, self.device = *kinds, len(devices) > 1, parameters[0].device
        single = bool(device_ids) and "cpu" not in kinds and len(devices) == 1
        if not single and (device_ids or output_device):
            raise ValueError("DistributedDataParallel device_ids and output_device arguments only work with single-device/"
                             f"multiple-device GPU modules or CPU modules, but got device_ids {device_ids}, output_device "
                             f"{output_device}, and module parameters {devices}.")
        self.device_ids = _C._device_indices(device_ids) if single else None
        self.output_device = _C._device_indices([device_ids[0] if output_device is None else output_device])[0] if single else None
        self.module, self.dim, self.static_graph, self.find_unused_parameters = module, dim, static_graph, find_unused_parameters
        self.gradient_as_bucket_view, self.require_backward_grad_sync, self.require_forward_param_sync = gradient_as_bucket_view, True, True
        at_first = forward_sync_buffers is not None or broadcast_buffers is not False
        self.broadcast_buffers = self.forward_sync_buffers = (
            forward_sync_buffers if forward_sync_buffers is not None else broadcast_buffers is not False)
        if init_sync:
            _C._check_alike(self.process_group, parameters)
            _C._copy_from(self.process_group, self._states(at_first))
        self.reducer = _C._Reducer(self.process_group, parameters, int((bucket_cap_mb or 0) * (1 << 20)),
                                   gradient_as_bucket_view, find_unused_parameters, static_graph)
        self.mixed_precision = mixed_precision
        if mixed_precision is not None:
            state = [*module.named_parameters(), *module.named_buffers()]
            self.reducer.mix(module, mixed_precision, [t for n, t in state if n in self.parameters_to_ignore])

    def _buffers_to_sync(self):
        return [b for n, b in self.module.named_buffers() if n not in self.parameters_to_ignore]

    def _states(self, buffers):
        return self._module_parameters + (self._buffers_to_sync() if buffers else [])

    def _sync_buffers(self, has_inputs):
        """Copies the buffers of rank 0, or, in a join context, of one that has inputs."""
        buffers = self._buffers_to_sync() if self.forward_sync_buffers and self.require_forward_param_sync else []
        if buffers:
            joins = self._join_config.enable or not has_inputs
            _C._copy_from(self.process_group, buffers, self._common_rank(has_inputs) if joins else 0)

    def _common_rank(self, candidate):
        torch.distributed.all_reduce(rank := torch.tensor([self.process_group.rank() if candidate else -1], device=self.device),
                                     torch.distributed.ReduceOp.MAX, self.process_group)
        return int(rank)

    def _is_anywhere(self, true):
        torch.distributed.all_reduce(count := torch.tensor([float(true)], device=self.device), group=self.process_group)
        return bool(count)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Runs the module; the backward pass of what it gives reduces the gradients."""
        reduces = torch.is_grad_enabled() and self.require_backward_grad_sync
        work = Join.notify_join_context(self)
        if work and not self._divide_by_initial_world_size:
            work.wait()
            self.reducer.divide_by(int(work.result()[0]))
        if torch.is_grad_enabled():
            self.reducer.begin()
        self._sync_buffers(True)
        if self._join_config.enable:
            self._is_anywhere(self.require_backward_grad_sync)
        if self.device_ids:
            inputs, kwargs = torch.utils._pytree.tree_map(
                lambda x: x.to(self.device) if isinstance(x, torch.Tensor) else x, (inputs, kwargs))
        inputs, kwargs = self.reducer.lower((inputs, kwargs))
        output = self.module(*inputs, **kwargs)
        self.reducer.raise_()
        self.require_forward_param_sync = reduces
        if reduces:
            self.reducer.expect(output if self.find_unused_parameters else None)
        return output

    @contextlib.contextmanager
    def no_sync(self):
        """Within it, gradients add up in this process alone; the first pass outside reduces them."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Has `hook(state, bucket)` reduce the buckets; it gives a future of the bucket's mean."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self.reducer.set_hook(functools.partial(hook, state))

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        """Has the core reduce the buckets as they are, or sent as float16."""
        half = comm_hook_type == torch.distributed.BuiltinCommHookType.FP16_COMPRESS
        self.reducer.compress(torch.float16 if half else None)

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True,
             throw_on_early_termination: bool = False) -> Any:
        """A context in which the processes may have different numbers of batches. Sums of gradients
        are divided by the number of all processes, or, if not by_initial_world_size, of those that
        still have one; in the end all have the model of one that was among the last."""
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> Any:
        """The hook of a join context."""
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        """The parameters' device."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The group of processes."""
        return self.process_group

    def __getstate__(self) -> Any:
        raise NotImplementedError("DistributedDataParallel is not pickled by Phlox: pickle its .module")


_C._name_missing(__name__)
