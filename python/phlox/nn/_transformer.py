# SPDX-License-Identifier: Apache-2.0
"""How stacks of layers are made of any modules, and a Transformer of two stacks. Their forwards are the library's."""
from __future__ import annotations

import copy

import phlox as torch
from phlox import nn

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

    from phlox import Tensor


def _fill(self, layer, num_layers, norm):
    nn.Module.__init__(self)
    self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
    self.num_layers = num_layers
    self.norm = norm


class TransformerEncoder:
    def __init__(self, encoder_layer: Any, num_layers: int, norm: Any = None, enable_nested_tensor: bool = True,
                 mask_check: bool = True) -> None:
        _fill(self, encoder_layer, num_layers, norm)
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = False  # Phlox has none
        self.mask_check = mask_check


class TransformerDecoder:
    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None) -> None:
        _fill(self, decoder_layer, num_layers, norm)


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
        """A mask of numbers that hides what comes later: -inf above the diagonal, and 0."""
        return torch.triu(torch.full((sz, sz), float("-inf"), dtype=dtype, device=device), diagonal=1)
