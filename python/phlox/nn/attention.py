# SPDX-License-Identifier: Apache-2.0
# FLASH_ATTENTION is the kernel that goes by tiles; on devices, where it is cuDNN's, it serves as
# EFFICIENT_ATTENTION and CUDNN_ATTENTION too. MATH is a composition of other ops. OVERRIDEABLE has
# no kernel.
"""torch.nn.attention: which ways of computing scaled_dot_product_attention are allowed."""
from __future__ import annotations

import contextlib
import enum

from phlox import _C

__path__ = []
_C._name_missing(__name__)
_FIRST = _C._settings().index(("sdp", "math"))  # then those of the other ways, and of their order


class SDPBackend(enum.IntEnum):
    """The ways to compute scaled_dot_product_attention."""
    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = range(-1, 5)
    __str__ = enum.Enum.__str__


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False):
    """Allows these ways alone in a with block; set_priority: preferred in the order given."""
    ways = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(ways, list) or not all(isinstance(way, SDPBackend) for way in ways):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend "
                             f"instances, got {type(backends).__name__}")
    before = _put([None] * 5)
    order = 1 + (ways[0] == SDPBackend.MATH) if set_priority and ways else before[4]
    _put([way in ways for way in range(4)] + [order])
    try:
        yield {}
    finally:
        _put(before)


def _put(values):
    return [_C._setting(_FIRST + i, value) for i, value in enumerate(values)]
