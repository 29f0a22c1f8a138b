# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint: checkpoints of several processes, and state dicts independent of the number of ranks. phlox/checkpoint.h
has the file format."""
import sys
from dataclasses import dataclass

from phlox import _C
from phlox.distributed._dtensor import DTensor, distribute_tensor
from phlox.utils._pytree import tree_map_only

torch = sys.modules[__name__.partition(".")[0]]


class FileSystemWriter:
    """Writes a checkpoint to a folder."""

    def __init__(self, path, **others):
        if others:
            raise NotImplementedError(f"FileSystemWriter({next(iter(others))}=) is not implemented in Phlox")
        self.path = path


class FileSystemReader:
    """Reads a checkpoint from a folder."""

    def __init__(self, path):
        self.path = path

    def read_metadata(self):
        """Returns the dtype and size of each tensor, by name."""
        return _C._checkpoint_sizes(self.path)


def _resolve(checkpoint_id, storage, planner, state_dict):
    """Returns (folder, state, leaves of the state). Objects with state_dict and load_state_dict are replaced by their state dicts."""
    if planner is not None:
        raise NotImplementedError("planners of torch.distributed.checkpoint are not implemented in Phlox")
    if checkpoint_id is None and storage is None:
        raise RuntimeError("`checkpoint_id` must be specified if storage_writer or storage_reader is None.")
    state = {k: v.state_dict() if hasattr(v, "state_dict") and hasattr(v, "load_state_dict") else v for k, v in state_dict.items()}
    return checkpoint_id if checkpoint_id is not None else storage.path, state, _C._checkpoint_leaves(state)


def save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, no_dist=False, use_collectives=True):
    """Writes nested dicts of tensors, DTensors and values to a folder, replacing an earlier checkpoint. Must be called by all ranks."""
    path, _, leaves = _resolve(checkpoint_id, storage_writer, planner, state_dict)
    alone = no_dist or not torch.distributed.is_initialized()
    nccl = not alone and torch.distributed.get_backend(process_group) == "nccl"
    group = None if alone else process_group or torch.distributed.group.WORLD
    _C._checkpoint_save(path, group, torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu"), leaves)


def load(state_dict, *, checkpoint_id=None, storage_reader=None, planner=None, process_group=None, no_dist=False):
    """Loads a checkpoint in place: the nested dicts select the entries to read. Tensors are overwritten, values replaced."""
    path, state, leaves = _resolve(checkpoint_id, storage_reader, planner, state_dict)
    before = dict(state)
    _C._checkpoint_load(path, leaves)
    for key, value in state_dict.items():
        if value is not before[key]:
            value.load_state_dict(state[key])
        else:
            state_dict[key] = state[key]


def async_save(*args, **kwargs):
    """Not implemented: use save."""
    raise NotImplementedError("torch.distributed.checkpoint.async_save is not implemented in Phlox: use save")


# ---- state dicts keyed by parameter names

@dataclass
class StateDictOptions:
    """Options of the state dict functions."""
    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False


def _checked(model, options, submodules=None):
    options = options or StateDictOptions()
    if submodules is not None or options.flatten_optimizer_state_dict:
        raise NotImplementedError("submodules= and flatten_optimizer_state_dict= are not implemented in Phlox")
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model, options


def _apply_options(state, options):
    """Applies the options to a state dict: gathers full tensors and moves them to the CPU. With both options, ranks other than 0 return
    {}."""
    def convert(tensor):
        tensor = tensor.full_tensor() if options.full_state_dict and isinstance(tensor, DTensor) else tensor
        return tensor.cpu() if options.cpu_offload else tensor
    state = tree_map_only(torch.Tensor, convert, state)
    others = options.full_state_dict and options.cpu_offload and torch.distributed.is_initialized() and torch.distributed.get_rank()
    return {} if others else state


def _localized(own, value, options):
    """Converts a full value to the form of `own` (DTensor, device). With broadcast_from_rank0, takes rank 0's value."""
    if not isinstance(own, torch.Tensor) or isinstance(value, DTensor):
        return value
    source = 0 if options.broadcast_from_rank0 else None
    if source is not None and torch.distributed.get_rank() != 0:
        value = torch.empty(own.shape, dtype=own.dtype)
    if isinstance(own, DTensor):
        return distribute_tensor(value, own.device_mesh, own.placements, src_data_rank=source)
    if source is not None:
        nccl = torch.distributed.get_backend() == "nccl"
        torch.distributed.broadcast(value := value.to(torch.cuda.current_device() if nccl else "cpu"), 0)
    return value if own.is_meta else value.to(own.device)


def get_model_state_dict(model, *, submodules=None, options=None):
    """Returns a model's state dict with the names of the unwrapped model."""
    model, options = _checked(model, options, submodules)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad} if options.ignore_frozen_params else ()
    return _apply_options({name: value for name, value in model.state_dict().items() if name not in frozen}, options)


def set_model_state_dict(model, model_state_dict, *, options=None):
    """Loads the result of get_model_state_dict. The number of ranks may differ."""
    model, options = _checked(model, options)
    own = model.state_dict()
    names = own if options.broadcast_from_rank0 else model_state_dict
    state = {name: _localized(own.get(name), model_state_dict.get(name), options) for name in names}
    return model.load_state_dict(state, strict=options.strict, assign=any(v.is_meta for v in own.values()))


def _init_optim_state(optim):
    """Initializes an optimiser's state by a step with learning rate 0 and zero gradients."""
    if optim.state:
        return
    rates = [group["lr"] for group in optim.param_groups]
    for group in optim.param_groups:
        group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], torch.Tensor) else 0.0
        for p in group["params"]:
            if p.requires_grad:
                p.grad = torch.zeros_like(p)
    optim.step()
    for group, rate in zip(optim.param_groups, rates):
        group["lr"] = rate
    optim.zero_grad(set_to_none=True)


def _optimizers(model, optimizers):
    names = {id(p): name for name, p in model.named_parameters()}
    optimizers = [optimizers] if isinstance(optimizers, torch.optim.Optimizer) else list(optimizers)
    for optimizer in optimizers:
        _init_optim_state(optimizer)
    return names, optimizers


def get_optimizer_state_dict(model, optimizers, *, submodules=None, options=None):
    """Returns the state of optimisers, keyed by the names of the model's parameters."""
    model, options = _checked(model, options, submodules)
    names, optimizers = _optimizers(model, optimizers)
    state = {names[id(p)]: dict(values) for optimizer in optimizers for p, values in optimizer.state.items()}
    groups = [{**group, "params": [names[id(p)] for p in group["params"]]} for optimizer in optimizers for group in optimizer.param_groups]
    return _apply_options({"state": state, "param_groups": groups}, options)


def set_optimizer_state_dict(model, optimizers, optim_state_dict, *, options=None):
    """Loads the result of get_optimizer_state_dict. The number of ranks may differ."""
    model, options = _checked(model, options)
    names, optimizers = _optimizers(model, optimizers)
    groups = [optim_state_dict.get("param_groups")]
    if options.broadcast_from_rank0:
        torch.distributed.broadcast_object_list(groups, 0)
    saved = {name: group for group in groups[0] for name in group["params"]}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for p in group["params"]:
                name, own = names[id(p)], optimizer.state.get(p, {})
                group.update((k, v) for k, v in saved[name].items() if k != "params")
                for key in own:
                    own[key] = _localized(own[key], optim_state_dict.get("state", {}).get(name, {}).get(key), options)


def get_state_dict(model, optimizers, *, submodules=None, options=None):
    """Returns the state dicts of a model and of its optimisers."""
    return (get_model_state_dict(model, submodules=submodules, options=options),
            get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options))


def set_state_dict(model, optimizers, *, model_state_dict, optim_state_dict, options=None):
    """Loads the state dicts of a model and of its optimisers."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)
