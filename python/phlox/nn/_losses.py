# SPDX-License-Identifier: Apache-2.0
"""A loss that calls what programs give it, and what layers make of tensors and modules."""
from __future__ import annotations

import phlox as torch
from phlox import Tensor, nn
from phlox.nn import functional as F

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *,
                                      distance_function: Callable[..., Any] | None = None, margin: float = 1.0,
                                      swap: bool = False, reduction: str = "mean") -> Tensor:
    """How much the distance to the positive example is above that to the negative one less margin.

    Args:
        anchor, positive, negative (Tensor): of one number of dimensions
        distance_function (callable): what gives distances; None: nn.functional.pairwise_distance
        margin (float), swap (bool), reduction (str): as of triplet_margin_loss

    >>> x = torch.zeros(2, 3)
    >>> torch.nn.functional.triplet_margin_with_distance_loss(x, x, x)
    tensor(1.)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    dims = anchor.dim(), positive.dim(), negative.dim()
    if len(set(dims)) > 1:
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the same number of dimensions, "
                           "but got: anchor {}D, positive {}D, and negative {}D inputs".format(*dims))
    distance = distance_function or F.pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    loss = torch.relu(margin + near - far)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


class TripletMarginWithDistanceLoss(nn.Module):
    """How much the distance to the positive example is above that to the negative one less margin, by a distance of the
    program's.

    >>> x = torch.zeros(2, 3)
    >>> torch.nn.TripletMarginWithDistanceLoss()(x, x, x)
    tensor(1.)
    """

    def __init__(self, *, distance_function: Callable[..., Any] | None = None, margin: float = 1.0, swap: bool = False,
                 reduction: str = "mean") -> None:
        super().__init__()
        if margin <= 0:
            raise ValueError(f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead")
        self.distance_function = distance_function or nn.PairwiseDistance()
        self.margin, self.swap, self.reduction = margin, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of three batches."""
        return F.triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=self.distance_function,
                                                   margin=self.margin, swap=self.swap, reduction=self.reduction)


def _from_pretrained(cls, embeddings, freeze, **how):
    if embeddings.dim() != 2:
        raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
    made = cls(*embeddings.shape, **how, device="meta")
    made.weight = nn.Parameter(embeddings, requires_grad=not freeze)
    return made


class Embedding:
    """What is Python of nn.Embedding."""

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
                        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False) -> Any:
        """A layer over a matrix, which stays as it is if freeze."""
        return _from_pretrained(cls, embeddings, freeze, padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type,
                                scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


class EmbeddingBag:
    """What is Python of nn.EmbeddingBag."""

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                        include_last_offset: bool = False, padding_idx: int | None = None) -> Any:
        """A layer over a matrix, which stays as it is if freeze."""
        return _from_pretrained(cls, embeddings, freeze, max_norm=max_norm, norm_type=norm_type, mode=mode, sparse=sparse,
                                scale_grad_by_freq=scale_grad_by_freq, include_last_offset=include_last_offset,
                                padding_idx=padding_idx)


class SyncBatchNorm:
    """What is Python of nn.SyncBatchNorm."""

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """The module with a SyncBatchNorm of the same tensors in the place of each BatchNorm."""
        made = module
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            made = nn.SyncBatchNorm(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                                    process_group, bias=module.bias is not None)
            made.training = module.training
            for name, value in (*module._parameters.items(), *module._buffers.items()):
                setattr(made, name, value)
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made
