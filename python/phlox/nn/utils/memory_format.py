# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.memory_format: converts the weights of convolutions."""
from __future__ import annotations

from phlox import _C, nn

_C._name_missing(__name__)


def _convert(module, kinds, memory_format):
    for part in module.modules():
        if isinstance(part, kinds):
            part.weight.data = part.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: nn.Module, memory_format: _C.memory_format) -> nn.Module:
    """Converts the weights of 2d convolutions and transposed ones within a module. Returns the module."""
    return _convert(module, (nn.Conv2d, nn.ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: nn.Module, memory_format: _C.memory_format) -> nn.Module:
    """Converts the weights of 3d convolutions and transposed ones within a module. Returns the module."""
    return _convert(module, (nn.Conv3d, nn.ConvTranspose3d), memory_format)
