# SPDX-License-Identifier: Apache-2.0
"""torch.nn.modules: the layers by the longer name, and what concerns all modules."""
from phlox import nn as _nn

from . import lazy, module


def __getattr__(name):
    return getattr(_nn, name)
