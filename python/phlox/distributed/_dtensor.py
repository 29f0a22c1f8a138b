# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.tensor: DTensor and its distribution. The ops of DTensor are in C (python/ext/dist/dtensor.c, placements.c)."""
import inspect
import sys
import warnings

from phlox import _C
from phlox.distributed._placements import Partial, Replicate, Shard

torch = sys.modules[__name__.partition(".")[0]]
_C._placement_classes(Shard, Replicate, Partial)


def _spec(mesh, placements, shape=(), cuda=False):
    """Returns a DTensor's spec: (mesh, placements, global shape, group). `group` is that of the only non-replicated mesh dimension if it is a
    Shard, else None."""
    dist = torch.distributed
    mesh = mesh if mesh is not None else dist.init_device_mesh("cuda" if cuda or dist.get_backend() == "nccl" else "cpu", (dist.get_world_size(),))
    placements = tuple(Shard(p.dim + len(shape)) if type(p) is Shard and p.dim < 0 else p for p in placements or [Replicate()] * mesh.ndim)
    if len(placements) != mesh.ndim:
        raise ValueError("`placements` must have the same length as `device_mesh.ndim`! "
                         f"Found placements length: {len(placements)}, and device_mesh.ndim: {mesh.ndim}.")
    split = [i for i, p in enumerate(placements) if not isinstance(p, Replicate)]
    group = mesh.get_group(split[0]) if len(split) == 1 and type(placements[split[0]]) is Shard else None
    return mesh, placements, torch.Size(shape), group


class DTensor(_C._Sharded, torch.Tensor):
    """A tensor distributed over a mesh. Along each mesh dimension a rank holds a shard (Shard(dim)), the
    full tensor (Replicate()) or a summand (Partial()). The memory is the rank's local tensor; the
    shape is the global one."""
    __module__ = "torch.distributed.tensor"

    @staticmethod
    def from_local(local_tensor, device_mesh=None, placements=None, *, run_check=False, shape=None, stride=None):
        """Creates a DTensor from each rank's local tensor. Without `shape`, shards must be of equal size."""
        if run_check or stride is not None:
            raise NotImplementedError("DTensor.from_local(run_check=, stride=) is not implemented in Phlox")
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value.")
        spec, sizes = _spec(device_mesh, placements, local_tensor.shape), list(local_tensor.shape)
        for i, p in enumerate(spec[1]):
            if type(p) is Shard:
                sizes[p.dim] *= spec[0].size(i)
        return _C._sharded_over(local_tensor, (*spec[:2], torch.Size(shape or sizes), spec[3]))

    def redistribute(self, device_mesh=None, placements=None, *, async_op=False):
        """Returns the tensor with other placements: shards are gathered, partial values are reduced."""
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        spec = _spec(device_mesh or self.device_mesh, placements, self.shape)
        if spec[0] != self.device_mesh:
            raise NotImplementedError("redistribute to another mesh is not implemented in Phlox")
        return self if spec[1] == self.placements else _C._sharded_over(_C._redistribute_local(self, spec), spec)


_C._sharded_classes(DTensor, type("DTensor", (DTensor, torch.nn.Parameter), {"__module__": DTensor.__module__, "__doc__": DTensor.__doc__}))


def distribute_tensor(tensor, device_mesh=None, placements=None, *, src_data_rank=0):
    """Distributes the tensor of rank src_data_rank (None: all ranks already have it) and returns a DTensor with this rank's shard."""
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    spec, whole = _spec(device_mesh, placements, tensor.shape), tensor.detach()
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != spec[0]:
            raise ValueError(f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {spec[0]}.")
        if tensor.placements != spec[1]:
            raise ValueError(f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements {list(spec[1])}. "
                             "do you want to call `redistribute` instead?")
        return tensor
    if not tensor.is_meta:
        whole = whole.to(spec[0].device_type, copy=src_data_rank is not None).contiguous()
        for group in spec[0].get_all_groups() if src_data_rank is not None else ():
            torch.distributed.broadcast(whole, group=group, group_src=src_data_rank)
    made = _C._sharded_over(_C._local_shard(whole, spec), spec)
    return torch.nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else made.requires_grad_(tensor.requires_grad)


def _hook(fn, what, mesh):
    """Adapts partition hooks of distribute_module to (module, *values), by their number of arguments."""
    count = len(inspect.signature(fn).parameters)
    if count == 2:
        warnings.warn(f"Deprecating {what}_fn that takes two arguments ({what}s, device_mesh), "
                      f"please use {what}_fn that takes in (module, {what}s, device_mesh) instead!", FutureWarning, stacklevel=3)
    elif count != 3:
        raise ValueError(f"{what}_fn should take in 3 arguments, but got {count} arguments!")
    return lambda module, *values: fn(*(module,) * (count == 3), values[-1], mesh)


def distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None):
    """Distributes a module's parameters and buffers: calls partition_fn(name, module, mesh) for each submodule, and
    replicates the remaining tensors. input_fn(module, inputs, mesh) and output_fn(module, outputs, mesh) run before and after forward."""
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError("distribute_module should only be called once on a module, but it has already been called on this module!")
    mesh = _spec(device_mesh, None)[0]
    for name, within in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, within, mesh)
        for key, value in (*within._parameters.items(), *within._buffers.items()):
            if value is not None and not isinstance(value, DTensor):
                setattr(within, key, distribute_tensor(value, mesh))
    if input_fn is not None:
        module.register_forward_pre_hook(_hook(input_fn, "input", mesh))
    if output_fn is not None:
        module.register_forward_hook(_hook(output_fn, "output", mesh))
    module._distribute_module_applied = True
    return module
