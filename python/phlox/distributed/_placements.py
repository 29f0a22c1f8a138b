# SPDX-License-Identifier: Apache-2.0
"""How a tensor lies on the ranks of a mesh. Plans of libraries name these, too; what would follow such
a plan (parallelize_module) is not in Phlox and refuses by name."""
from dataclasses import dataclass


class Placement:
    """How a tensor lies along one dimension of a mesh."""

    def is_shard(self, dim=None):
        """Whether each rank has a part of the tensor, cut along a dimension: `dim`, where given."""
        return type(self) is Shard and dim in (None, self.dim)

    def is_replicate(self):
        """Whether each rank has the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op=None):
        """Whether the tensor is what a reduction, `reduce_op` where given, gives of the ranks'."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


def _shown(form, short):
    """A frozen class of placements with PyTorch's repr and str."""
    def made(cls):
        cls.__repr__, cls.__str__ = (lambda self: form.format(**vars(self))), (lambda self: short.format(**vars(self)))
        cls.__module__ = "torch.distributed.tensor.placement_types"
        return dataclass(frozen=True, repr=False)(cls)
    return made


@_shown("Shard(dim={dim})", "S({dim})")
class Shard(Placement):
    """Each rank has a part of the tensor, cut along `dim`."""
    dim: int


@_shown("_StridedShard(dim={dim}, sf={split_factor})", "_S({dim}, {split_factor})")
class _StridedShard(Placement):
    """As Shard, of each of `split_factor` parts of the tensor."""
    dim: int
    split_factor: int


@_shown("Replicate()", "R")
class Replicate(Placement):
    """Each rank has the whole tensor."""


@_shown("Partial({reduce_op})", "P({reduce_op})")
class Partial(Placement):
    """The tensor is what `reduce_op` gives of the ranks' tensors."""
    reduce_op: str = "sum"
