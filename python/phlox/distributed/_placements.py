# SPDX-License-Identifier: Apache-2.0
"""Placements of tensors on a mesh. Plans of libraries use these names, too. parallelize_module, their
consumer, is not implemented in Phlox."""
from dataclasses import dataclass


class Placement:
    """The placement of a tensor along one mesh dimension."""

    def is_shard(self, dim=None):
        """Returns True if the tensor is sharded, along `dim` if given."""
        return type(self) is Shard and dim in (None, self.dim)

    def is_replicate(self):
        """Returns True if each rank has the full tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op=None):
        """Returns True if the tensor is a pending reduction, by `reduce_op` if given."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


def _placement(long, short):
    """Makes a frozen dataclass of placements with PyTorch's repr and str."""
    def made(cls):
        cls.__repr__, cls.__str__ = (lambda self: long.format(**vars(self))), (lambda self: short.format(**vars(self)))
        cls.__module__ = "torch.distributed.tensor.placement_types"
        return dataclass(frozen=True, repr=False)(cls)
    return made


@_placement("Shard(dim={dim})", "S({dim})")
class Shard(Placement):
    """Each rank has one shard of the tensor, split along `dim`."""
    dim: int


@_placement("_StridedShard(dim={dim}, sf={split_factor})", "_S({dim}, {split_factor})")
class _StridedShard(Placement):
    """Like Shard, applied to each of `split_factor` parts of the tensor."""
    dim: int
    split_factor: int


@_placement("Replicate()", "R")
class Replicate(Placement):
    """Each rank has the full tensor."""


@_placement("Partial({reduce_op})", "P({reduce_op})")
class Partial(Placement):
    """The tensor is the reduction by `reduce_op` of the ranks' local tensors."""
    reduce_op: str = "sum"
