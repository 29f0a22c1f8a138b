# SPDX-License-Identifier: Apache-2.0
"""torch.nn.parallel: DataParallel and its functions, and DistributedDataParallel. Python flattens and
rebuilds nested arguments. The core splits and concatenates tensors, replicates modules, runs threads
and reduces gradients."""
from __future__ import annotations

import contextlib
import functools
import warnings
from dataclasses import dataclass
from enum import Enum

import phlox as torch
from phlox import _C
from phlox.distributed.algorithms.join import Join, Joinable, JoinHook
from phlox.nn import Module

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


def _rebuild(model, items):
    """Returns a list, tuple or named tuple of the model's type."""
    return type(model)(*items) if hasattr(model, "_fields") else type(model)(items)


def _chunks(value, devices, dim):
    """Returns one chunk per device; fewer if a tensor is too small."""
    if isinstance(value, torch.Tensor):
        return _C._scatter_tensor(value, devices, dim)
    if isinstance(value, (tuple, list)) and len(value):
        return [_rebuild(value, part) for part in zip(*(_chunks(v, devices, dim) for v in value))]
    if isinstance(value, dict) and value:
        return [type(value)(part) for part in _chunks(list(value.items()), devices, dim)]
    return [value] * len(devices)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> tuple[Any, ...]:
    """Splits tensors along `dim` into chunks, one per device, also inside dicts, lists and tuples.
    Other objects are shared. Returns a tuple.

    Raises RuntimeError for 0-dimensional tensors.
    """
    return tuple(_chunks(inputs, list(target_gpus), dim))


def scatter_kwargs(inputs: tuple[Any, ...], kwargs: dict[str, Any] | None,
                   target_gpus: Sequence[Any],
                   dim: int = 0) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Scatters positional and keyword arguments. Returns two tuples of equal length."""
    inputs = scatter(inputs, target_gpus, dim) if inputs else ()
    kwargs = scatter(kwargs, target_gpus, dim) if kwargs else ()
    count = max(len(inputs), len(kwargs))
    return (inputs + ((),) * (count - len(inputs)), kwargs + ({},) * (count - len(kwargs)))


def gather(outputs: Iterable[Any], target_device: Any, dim: int = 0) -> Any:
    """Gathers outputs of several devices on one (-1: the CPU). Tensors are concatenated along `dim`;
    None, dicts, lists and tuples are gathered by element. Raises TypeError for other objects."""
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
    """Copies a module to several devices. Gradients of the copies accumulate in the module's parameters."""
    if not isinstance(network, Module):
        raise TypeError(f"replicate() takes a Module, not {type(network).__name__}")
    if detach:
        with torch.no_grad():
            return _C._replicate(network, devices)
    return _C._replicate(network, devices)


def parallel_apply(modules: Iterable[Any], inputs: Iterable[Any],
                   kwargs_tup: Iterable[dict[str, Any]] | None = None,
                   devices: Sequence[Any] | None = None) -> list[Any]:
    """Calls each module with its inputs in a thread, with its device current. Returns a list. The first
    error is raised as "Caught X in replica i on device d."."""
    modules, inputs = list(modules), list(inputs)
    kwargs = [{}] * len(modules) if kwargs_tup is None else list(kwargs_tup)
    assert len(modules) == len(inputs) == len(kwargs), \
        f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}"
    inputs = [tuple(one) if isinstance(one, (list, tuple)) else (one,) for one in inputs]
    devices = range(len(modules)) if devices is None else devices
    return _C._parallel_apply(modules, inputs, kwargs, list(devices))


def _warn_of_imbalance(ids):
    memory = [torch.cuda.get_device_properties(i).total_memory for i in ids]
    smallest, largest = min(memory), max(memory)
    if smallest / largest < 0.75:
        warnings.warn(
            "\n    There is an imbalance between your GPUs. You may want to exclude GPU "
            f"{ids[memory.index(smallest)]} which\n"
            f"    has less than 75% of the memory or cores of GPU {ids[memory.index(largest)]}. You "
            "can do so by setting\n"
            "    the device_ids argument to DataParallel, or by setting the CUDA_VISIBLE_DEVICES\n"
            "    environment variable.", stacklevel=4)


def _device_ids(given):
    """Returns the indices of the given devices (None: all). [] if there are no devices."""
    if not torch.cuda.device_count():
        return []
    if given is None:
        return list(range(torch.cuda.device_count()))
    ids = _C._device_indices(given)
    if not ids:
        raise ValueError("device_ids must name at least one device")
    return ids


class _Steps:
    """The steps of a data-parallel forward along the dimension self.dim. Programs may override them.

    The C library has a forward for modules with tensor arguments (px_data_parallel). This one also
    supports nested arguments. Both use the core's scatter, replicate, apply and gather."""

    def scatter(self, inputs, kwargs, device_ids):
        """Scatters the arguments. Like the three methods below, it may be overridden."""
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def replicate(self, module, device_ids):
        """Replicates the module on the devices."""
        return replicate(module, device_ids)

    def parallel_apply(self, replicas, inputs, kwargs):
        """Calls the replicas in parallel."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[:len(replicas)])

    def gather(self, outputs, output_device):
        """Gathers the results."""
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


class DataParallel(_Steps, Module):
    """Splits a batch over several devices, applies a module to each chunk and gathers the results.

    module: must be on device_ids[0]. device_ids: the devices; None: all. output_device: the device of
    the gathered results; None: the first device. dim: the dimension to split.

    Raises RuntimeError if the module is on another device. Without devices it calls the module itself.

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
        """Scatters the arguments, runs the replicas and gathers the results."""
        return self._run(inputs, kwargs)


def data_parallel(module: Module, inputs: Any, device_ids: Sequence[Any] | None = None,
                  output_device: Any = None, dim: int = 0,
                  module_kwargs: dict[str, Any] | None = None) -> Any:
    """Calls a module in parallel on chunks of `inputs`. The function form of DataParallel."""
    if not isinstance(module, Module):
        raise TypeError(f"data_parallel() takes a Module, not {type(module).__name__}")
    once = _Steps()
    once.module, once.dim, once.device_ids = module, dim, _device_ids(device_ids)
    once.output_device = output_device
    if output_device is None and once.device_ids:
        once.output_device = once.device_ids[0]
    return once._run(inputs if isinstance(inputs, tuple) else (inputs,), module_kwargs or {})


@dataclass
class _MixedPrecision:
    """The dtypes of parameters and inputs, of communication and of buffers. None keeps a dtype."""
    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    buffer_dtype: torch.dtype | None = None


class _BufferCommHookLocation(Enum):
    """When a hook for buffers runs."""
    PRE_FORWARD, POST_FORWARD = 1, 2


class _DDPJoinHook(JoinHook):
    """Shadows the collectives of the active ranks' steps."""

    def __init__(self, ddp, divide_by_initial_world_size):
        self.ddp, ddp._divide_by_initial_world_size = ddp, divide_by_initial_world_size

    def main_hook(self):
        """Shadows one step."""
        self.ddp.reducer.begin()
        self.ddp._sync_buffers(False)
        self.ddp.require_forward_param_sync = self.ddp._any_rank(False)
        if self.ddp.require_forward_param_sync:
            self.ddp.reducer.shadow()

    def post_hook(self, is_last_joiner):
        """Copies the model of one of the last ranks to all ranks."""
        self.ddp.reducer.divide_by(0)
        _C._copy_from(self.ddp.process_group, self.ddp._states(self.ddp.forward_sync_buffers), self.ddp._common_rank(is_last_joiner))


class DistributedDataParallel(Module, Joinable):
    """Averages a module's gradients over a process group in each backward pass.

    module: must be the same in all processes; rank 0's parameters and buffers are broadcast.
    device_ids: one device to move inputs to, or None. bucket_cap_mb: the bucket size in MiB.
    find_unused_parameters: skips parameters the outputs do not depend on. gradient_as_bucket_view:
    .grad is a view of the bucket. static_graph: every step uses the same parameters.

    Raises RuntimeError if modules differ between processes, or if gradients of the previous step are
    missing.
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
        self._buffer_hook = None, None, _BufferCommHookLocation.PRE_FORWARD
        self.mixed_precision = mixed_precision
        if mixed_precision is not None:
            state = [*module.named_parameters(), *module.named_buffers()]
            self.reducer.mix(module, mixed_precision, [t for n, t in state if n in self.parameters_to_ignore])

    def _buffers_to_sync(self):
        return {n: b for n, b in self.module.named_buffers() if n not in self.parameters_to_ignore}

    def _states(self, buffers):
        return self._module_parameters + (list(self._buffers_to_sync().values()) if buffers else [])

    def _sync_buffers(self, has_inputs, location=_BufferCommHookLocation.PRE_FORWARD):
        """Broadcasts the buffers of rank 0; in a join context, those of a rank with inputs. A hook at its location replaces the broadcast."""
        state, hook, wanted = self._buffer_hook
        buffers = self._buffers_to_sync() if self.forward_sync_buffers and self.require_forward_param_sync and location is wanted else {}
        if not buffers:
            return
        joins = self._join_config.enable or not has_inputs
        common = self._common_rank(has_inputs) if joins else 0
        if hook is None:
            _C._copy_from(self.process_group, list(buffers.values()), common)
        else:
            for future in hook(state, buffers) or ():
                future.wait()

    def _common_rank(self, candidate):
        torch.distributed.all_reduce(rank := torch.tensor([self.process_group.rank() if candidate else -1], device=self.device),
                                     torch.distributed.ReduceOp.MAX, self.process_group)
        return int(rank)

    def _any_rank(self, true):
        torch.distributed.all_reduce(count := torch.tensor([float(true)], device=self.device), group=self.process_group)
        return bool(count)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Runs the module. The backward pass of the result reduces the gradients."""
        reduces = torch.is_grad_enabled() and self.require_backward_grad_sync
        work = Join.notify_join_context(self)
        if work and not self._divide_by_initial_world_size:
            work.wait()
            self.reducer.divide_by(int(work.result()[0]))
        if torch.is_grad_enabled():
            self.reducer.begin()
        self._sync_buffers(True)
        if self._join_config.enable:
            self._any_rank(self.require_backward_grad_sync)
        if self.device_ids:
            inputs, kwargs = torch.utils._pytree.tree_map(
                lambda x: x.to(self.device) if isinstance(x, torch.Tensor) else x, (inputs, kwargs))
        inputs, kwargs = self.reducer.lower((inputs, kwargs))
        output = self.module(*inputs, **kwargs)
        self.reducer.raise_()
        self._sync_buffers(True, _BufferCommHookLocation.POST_FORWARD)
        self.require_forward_param_sync = reduces
        if reduces:
            self.reducer.expect(output if self.find_unused_parameters else None)
        return output

    @contextlib.contextmanager
    def no_sync(self):
        """A context manager that accumulates gradients locally. The first backward pass outside reduces them."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Registers hook(state, bucket) to reduce the buckets. It returns a future of the averaged bucket."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self.reducer.set_hook(functools.partial(hook, state))

    def _register_buffer_comm_hook(self, state: Any, hook: Any,
                                   comm_hook_location: _BufferCommHookLocation = _BufferCommHookLocation.POST_FORWARD) -> None:
        """Registers hook(state, buffers) in place of the broadcast of buffers, a dict by name. It may return futures, which are awaited."""
        if not callable(hook):
            raise AssertionError(f"hook must be callable, got {type(hook).__name__}")
        self._buffer_hook = state, hook, comm_hook_location

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        """Makes the core reduce the buckets, unchanged or compressed to float16."""
        half = comm_hook_type == torch.distributed.BuiltinCommHookType.FP16_COMPRESS
        self.reducer.compress(torch.float16 if half else None)

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True,
             throw_on_early_termination: bool = False) -> Any:
        """Returns a context manager for processes with different numbers of batches. Summed gradients are
        divided by the initial world size, or by the number of active ranks if divide_by_initial_world_size
        is False. At the end all ranks have the model of one of the last active ranks."""
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> Any:
        """Returns the join hook."""
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        """The device of the parameters."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The process group."""
        return self.process_group

    def __getstate__(self) -> Any:
        raise NotImplementedError("pickling DistributedDataParallel is not implemented in Phlox: pickle its .module")


_C._name_missing(__name__)
