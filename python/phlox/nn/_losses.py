# SPDX-License-Identifier: Apache-2.0
"""Losses with user-defined functions, and the parts of layers that handle tensors and modules in Python."""
from __future__ import annotations

import copy
import math

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
    """Computes the triplet loss: max(d(anchor, positive) - d(anchor, negative) + margin, 0).

    Args:
        anchor, positive, negative (Tensor): tensors with the same number of dimensions
        distance_function (callable): the distance d. Default: nn.functional.pairwise_distance
        margin (float), swap (bool), reduction (str): see triplet_margin_loss

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
    """Computes the triplet loss with a user-defined distance. See nn.functional.triplet_margin_with_distance_loss.

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
        """Computes the loss of a batch of triplets."""
        return F.triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=self.distance_function,
                                                   margin=self.margin, swap=self.swap, reduction=self.reduction)


class LinearCrossEntropyLoss(nn.Module):
    """Computes the cross entropy between the output of a linear layer and the target classes.

    Args:
        in_features (int), num_classes (int): the size of the inputs and the number of classes
        out_features (tuple): further dimensions of the output, each with its own classes
        bias (bool): if True, the linear layer has a learnable bias
        weight (Tensor), reduction (str), ignore_index (int), label_smoothing (float): see cross_entropy
        options: must be None: PyTorch's LinearCrossEntropyOptions (chunking) are not implemented

    >>> torch.nn.LinearCrossEntropyLoss(5, 10, out_features=(4, 3))(torch.ones(2, 5), torch.zeros(2, 4, 3, dtype=torch.int64)).shape
    torch.Size([])
    """

    def __init__(self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False,
                 device: Any = None, dtype: Any = None, reduction: str = "mean", weight: Tensor | None = None,
                 ignore_index: int | None = None, label_smoothing: float = 0.0, options: None = None) -> None:
        if weight is not None and weight.shape != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        if len(out_features) > 62:
            raise RuntimeError(f"expected at most 62 sizes in out_features, got {len(out_features)}")
        if options is not None:
            raise NotImplementedError("torch.nn.LinearCrossEntropyLoss: options= is not implemented in Phlox")
        super().__init__()
        self.register_buffer("weight", weight)
        self.reduction, self.num_classes, self.out_features = reduction, num_classes, out_features
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        self.linear = nn.Linear(in_features, math.prod(out_features, start=num_classes), bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Computes the loss of a batch."""
        sizes, linear = (self.num_classes, *self.out_features), self.linear
        return F.linear_cross_entropy(input, linear.weight.reshape(*sizes, linear.in_features), target,
                                      linear_bias=None if linear.bias is None else linear.bias.reshape(sizes), weight=self.weight,
                                      reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing)

    def extra_repr(self) -> str:
        """The arguments, for the printed form."""
        names = "num_classes", "out_features", "bias", "reduction", "ignore_index", "label_smoothing", "options"
        values = {**vars(self), "bias": self.linear.bias is not None}
        return f"in_features={self.linear.in_features}, " + ", ".join(f"{name}={values[name]}" for name in names)


def _from_pretrained(cls, embeddings, freeze, **how):
    if embeddings.dim() != 2:
        raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
    made = cls(*embeddings.shape, **how, device="meta")
    made.weight = nn.Parameter(embeddings, requires_grad=not freeze)
    return made


class _FractionalMaxPool(nn.Module):
    """Fractional max pooling (Graham 2015): windows at random steps. Exactly one of output_size and output_ratio (a fraction of the input size) is given."""
    dims = 2

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
                 _random_samples: Tensor | None = None) -> None:
        super().__init__()
        self.kernel_size, self.output_size, self.output_ratio = (
            x if x is None or isinstance(x, (tuple, list)) else (x,) * self.dims for x in (kernel_size, output_size, output_ratio))
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if output_ratio is not None and not all(0 < x < 1 for x in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        """Computes the maxima; with return_indices also their indices."""
        return getattr(F, f"fractional_max_pool{self.dims}d")(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
                                                              self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    __doc__ = _FractionalMaxPool.__doc__ + "\n\n    >>> torch.nn.FractionalMaxPool2d(2, output_ratio=0.5)(torch.ones(3, 8, 9)).shape\n    torch.Size([3, 4, 4])"


class FractionalMaxPool3d(_FractionalMaxPool):
    __doc__ = _FractionalMaxPool.__doc__ + "\n\n    >>> torch.nn.FractionalMaxPool3d(2, 3)(torch.ones(4, 8, 8, 9)).shape\n    torch.Size([4, 3, 3, 3])"
    dims = 3


class Embedding:
    """The Python methods of nn.Embedding."""

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
                        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False) -> Any:
        """Creates a layer from a weight matrix. If freeze, it gets no gradients."""
        return _from_pretrained(cls, embeddings, freeze, padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type,
                                scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


class EmbeddingBag:
    """The Python methods of nn.EmbeddingBag."""

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                        include_last_offset: bool = False, padding_idx: int | None = None) -> Any:
        """Creates a layer from a weight matrix. If freeze, it gets no gradients."""
        return _from_pretrained(cls, embeddings, freeze, max_norm=max_norm, norm_type=norm_type, mode=mode, sparse=sparse,
                                scale_grad_by_freq=scale_grad_by_freq, include_last_offset=include_last_offset,
                                padding_idx=padding_idx)


class MultiheadAttention:
    """The Python methods of nn.MultiheadAttention."""

    def merge_masks(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                    query: Tensor) -> tuple[Tensor | None, int | None]:
        """Merges both masks. Returns (mask, mask type): 2 for a mask per head and query, 1 for keys only, None for no mask. query is batch-first."""
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length = query.shape[:2]
        if attn_mask.dim() == 3:
            mask = attn_mask.view(batch, -1, length, length)
        else:
            mask = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)  # type: ignore[attr-defined]
        if key_padding_mask is not None:
            mask = mask + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)  # type: ignore[attr-defined]
        return mask, 2


class SyncBatchNorm:
    """The Python methods of nn.SyncBatchNorm."""

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """Replaces each BatchNorm of a module by a SyncBatchNorm with the same tensors. Returns the module."""
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


# ---- stacks of layers, and the Transformer made of two; forward is the C library's

def _init_stack(self, layer, num_layers, norm):
    nn.Module.__init__(self)
    if num_layers > 10000:
        raise ValueError(f"num_layers must be at most 10000, but is {num_layers}")
    self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
    self.num_layers = num_layers
    self.norm = norm


class TransformerEncoder:
    def __init__(self, encoder_layer: Any, num_layers: int, norm: Any = None, enable_nested_tensor: bool = True,
                 mask_check: bool = True) -> None:
        _init_stack(self, encoder_layer, num_layers, norm)
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = False  # Phlox has no nested tensors
        self.mask_check = mask_check


class TransformerDecoder:
    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None) -> None:
        _init_stack(self, decoder_layer, num_layers, norm)


class Transformer:
    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu", custom_encoder: Any = None,
                 custom_decoder: Any = None, layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
                 bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        nn.Module.__init__(self)
        for name, kind, layer, number, custom in (
                ("encoder", nn.TransformerEncoder, nn.TransformerEncoderLayer, num_encoder_layers, custom_encoder),
                ("decoder", nn.TransformerDecoder, nn.TransformerDecoderLayer, num_decoder_layers, custom_decoder)):
            if custom is None:
                one = layer(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)
                custom = kind(one, number, nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype))
            setattr(self, name, custom)
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Returns a causal mask: -inf above the diagonal, else 0."""
        return torch.triu(torch.full((sz, sz), float("-inf"), dtype=dtype, device=device), diagonal=1)
