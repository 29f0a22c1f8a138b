# SPDX-License-Identifier: Apache-2.0
"""Tensors of which each rank has some rows, or all. What a DTensor does is in C (python/ext/dtensor.c)."""
import sys

from phlox import _C
from phlox.distributed._placements import Replicate, Shard

torch = sys.modules[__name__.partition(".")[0]]


def _spec(mesh, placements, shape=None):
    """What a DTensor knows of itself: mesh, placements, sizes of the whole, and the group that has parts."""
    dist = torch.distributed
    mesh = mesh if mesh is not None else dist.init_device_mesh("cuda" if dist.get_backend() == "nccl" else "cpu", (dist.get_world_size(),))
    placements = tuple(placements or [Replicate()] * mesh.ndim)
    if len(placements) != mesh.ndim:
        raise ValueError("`placements` must have the same length as `device_mesh.ndim`! "
                         f"Found placements length: {len(placements)}, and device_mesh.ndim: {mesh.ndim}.")
    if placements.count(Shard(0)) > 1 or not {*placements} <= {Shard(0), Replicate()}:
        raise NotImplementedError(f"a DTensor with placements {placements} on a mesh of {mesh.ndim} dimensions is not implemented in Phlox: "
                                  "it has Shard(0) along one of them, and Replicate()")
    return mesh, placements, torch.Size(shape or ()), mesh.get_group(placements.index(Shard(0))) if Shard(0) in placements else None


def _rows(whole, spec):
    """This rank's rows of a whole tensor, or all of it."""
    return whole.narrow(0, *_C._shard_rows(spec[2][0], spec[3].rank(), spec[3].size())) if spec[3] is not None else whole


class DTensor(_C._Sharded, torch.Tensor):
    """A tensor of which each rank of a mesh has some rows (Shard(0)), or all (Replicate()). Its memory is
    the rank's part, and its sizes are those of the whole."""
    __module__ = "torch.distributed.tensor"

    @staticmethod
    def from_local(local_tensor, device_mesh=None, placements=None, *, run_check=False, shape=None, stride=None):
        """The whole of the ranks' tensors, which have equally many rows unless `shape` is given."""
        if run_check or stride is not None:
            raise NotImplementedError("DTensor.from_local(run_check=, stride=) is not implemented in Phlox")
        spec = _spec(device_mesh, placements, shape)
        if shape is None:
            spec = _spec(spec[0], spec[1], (local_tensor.size(0) * (1 if spec[3] is None else spec[3].size()), *local_tensor.shape[1:]))
        return _C._sharded_over(local_tensor, spec)

    def redistribute(self, device_mesh=None, placements=None, *, async_op=False):
        """The same tensor with other placements."""
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        spec = _spec(device_mesh or self.device_mesh, placements, self.shape)
        if spec[0] != self.device_mesh:
            raise NotImplementedError("redistribute to another mesh is not implemented in Phlox")
        return self if spec[1] == self.placements else _C._sharded_over(_rows(self.full_tensor(), spec), spec)


_C._sharded_classes(DTensor, type("DTensor", (DTensor, torch.nn.Parameter), {"__module__": DTensor.__module__, "__doc__": DTensor.__doc__}))


def distribute_tensor(tensor, device_mesh=None, placements=None, *, src_data_rank=0):
    """This rank's part of a tensor that rank src_data_rank has (None: that all have), as a DTensor."""
    if isinstance(tensor, DTensor):
        return tensor.redistribute(device_mesh, placements)
    spec, whole = _spec(device_mesh, placements, tensor.shape), tensor.detach()
    if not tensor.is_meta:
        whole = whole.to(spec[0].device_type, copy=src_data_rank is not None).contiguous()
        for group in spec[0].get_all_groups() if src_data_rank is not None else ():
            torch.distributed.broadcast(whole, group=group, group_src=src_data_rank)
    made = _C._sharded_over(_rows(whole, spec).clone(), spec)
    return torch.nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else made.requires_grad_(tensor.requires_grad)
