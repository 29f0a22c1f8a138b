# SPDX-License-Identifier: Apache-2.0
"""fully_shard. The core schedules all-gathers and reduce-scatters (phlox/shard.h); FSDPModule's methods are in C (python/ext/dist/shards.c)."""
import functools
import sys
from dataclasses import dataclass

from phlox import _C
from phlox._C import _UnshardHandle as UnshardHandle
from phlox.distributed._dtensor import DTensor, Replicate, Shard, _spec

torch = sys.modules[__name__.partition(".")[0]]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of computation, reduction and outputs. None leaves a dtype unchanged."""
    param_dtype: "torch.dtype | None" = None
    reduce_dtype: "torch.dtype | None" = None
    output_dtype: "torch.dtype | None" = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """No offloading."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Keeps shards, their gradients and the optimiser's state in CPU memory; pin_memory uses page-locked memory."""
    pin_memory: bool = True


class FSDPModule(_C._FSDPModule):
    """The class mixed into modules by fully_shard."""

    def __new__(cls, *args, **kwargs):
        return cls.__mro__[3](*args, **kwargs)

    def _apply(self, fn, recurse=True):
        self.reshard()
        return super()._apply(fn, recurse)


def fully_shard(module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy=MixedPrecisionPolicy(),
                offload_policy=OffloadPolicy(), ignored_params=None):
    """Shards the parameters of a module over the ranks of a mesh (None: all ranks), along their first
    dimension. Returns the module, whose class becomes a subclass of FSDPModule. A list of modules that
    run in turn is sharded as one group. shard_placement_fn may select another dimension of a parameter:
    Shard(1). On a 2D mesh parameters are sharded along the second mesh dimension and replicated along
    the first.

    Shard submodules first. Parameters become DTensors; create optimisers afterwards.
    reshard_after_forward: if True, frees the full parameters between forward and backward. None: True
    for all modules but the outermost one. An int is the number of ranks that share the parameters
    meanwhile: 1, or all."""
    modules = tuple(module) if isinstance(module, (list, tuple)) else (module,)
    if isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)):
        raise ValueError(f"fully_shard does not support containers that do not implement forward: {module}")
    for member in modules:
        if isinstance(member, FSDPModule):
            raise AssertionError("Each distinct composable distributed API can only be applied to a module once. "
                                 f"fully_shard has already been applied to the following module:\n{member}")
    done = {id(p) for member in modules for within in member.modules() if isinstance(within, FSDPModule) for p in within.parameters()}
    done.update(map(id, ignored_params or ()))
    if any(isinstance(p, DTensor) and id(p) not in done for member in modules for p in member.parameters()):
        raise NotImplementedError("fully_shard of parameters that are DTensors is not implemented in Phlox")
    if mesh is not None and mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if mesh is not None and mesh.ndim == 2 and mesh.mesh_dim_names is None:
        raise AssertionError("Please init the 2D mesh for HSDP with mesh_dim_names specified")
    replicas = mesh.get_group(0) if mesh is not None and mesh.ndim == 2 else None
    spec = _spec(mesh, (Replicate(), Shard(0))[replicas is None:], cuda=any(p.is_cuda for member in modules for p in member.parameters()))
    if type(reshard_after_forward) is int:
        size = spec[3].size()
        if reshard_after_forward < 1 or size % reshard_after_forward:
            raise ValueError(f"If passing reshard_after_forward as an int, it should be a factor of {size}, not {reshard_after_forward}")
        if 1 < reshard_after_forward < size:
            raise NotImplementedError(f"fully_shard with reshard_after_forward={reshard_after_forward} of {size} ranks is not implemented in Phlox")
        reshard_after_forward = reshard_after_forward != 1
    device = torch.device("cuda", torch.cuda.current_device()) if spec[0].device_type == "cuda" else torch.device(spec[0].device_type)
    shards = _C._Shards(spec[3], replicas, modules, device, list(ignored_params or ()), None if reshard_after_forward is None else not reshard_after_forward,
                        mp_policy.param_dtype, mp_policy.reduce_dtype, shard_placement_fn, offload := isinstance(offload_policy, CPUOffloadPolicy),
                        offload and offload_policy.pin_memory)
    for _, shard, shape, dim in shards.parameters():
        shard._spec = (spec[0], (*spec[1][:-1], Shard(dim)), shape, spec[3])
    for member in modules:
        cls = type(member)
        member.__class__ = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})
        member._fsdp, member._fsdp_policy, member._fsdp_members = shards, mp_policy, modules  # keeps all members alive
        member.register_forward_pre_hook(_C._fsdp_before, prepend=True, with_kwargs=True)
        member.register_forward_hook(_C._fsdp_after, always_call=True)
    return module


def register_fsdp_forward_method(module, method_name):
    """Makes a method gather the parameters before its call, as forward does. Does nothing for other modules."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    method = getattr(module, method_name)

    @functools.wraps(method)
    def wrapper(*args, **kwargs):
        args, kwargs = _C._fsdp_before(module, args, kwargs)
        result = None
        try:
            result = method(*args, **kwargs)
        finally:
            result = _C._fsdp_after(module, args, result)
        return result
    setattr(module, method_name, wrapper)
