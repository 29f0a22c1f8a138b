# SPDX-License-Identifier: Apache-2.0
"""Sums of sparse COO tensors over the ranks of a group: indices and values of all ranks are gathered and added."""
from __future__ import annotations

from typing import Any

import phlox as torch
from phlox import distributed as dist


def _gathered(part: torch.Tensor, counts: list[int], group: Any) -> torch.Tensor:
    """Returns the columns of all ranks; `part` has those of this one. Others may have more: columns are padded for the exchange."""
    padded = part.new_zeros((max(counts), *part.shape[1:]))
    padded[:len(part)] = part
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([each[:count] for each, count in zip(parts, counts)])


def all_reduce(tensor: Any, op: Any, group: Any, async_op: bool) -> None:
    """Replaces a sparse COO tensor by the coalesced sum of those of all ranks."""
    if tensor.layout != torch.sparse_coo:
        raise RuntimeError("Sparse allreduce only works with sparse COO tensors")
    if op not in (None, dist.ReduceOp.SUM):
        raise RuntimeError("Sparse allreduce only works with ReduceOp.SUM")
    if async_op:
        raise NotImplementedError("all_reduce of a sparse tensor is not implemented with async_op=True")
    own = tensor.coalesce()
    size = torch.tensor([own._nnz(), own.sparse_dim(), *own.shape])
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    if any(not torch.equal(other[1:], size[1:]) for other in sizes):
        raise RuntimeError("Sparse allreduce needs tensors of one size and one number of sparse dimensions on all ranks")
    counts = [int(other[0]) for other in sizes]
    if max(counts) == 0:
        return
    indices, values = _gathered(own.indices().t().contiguous(), counts, group), _gathered(own.values(), counts, group)
    total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()
    tensor._coords, tensor._data, tensor._is_sorted = total.indices(), total.values(), True
