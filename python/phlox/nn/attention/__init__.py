# SPDX-License-Identifier: Apache-2.0
# FLASH_ATTENTION is the tiled kernel. On devices it is cuDNN's, and also serves EFFICIENT_ATTENTION
# and CUDNN_ATTENTION. MATH is a composition of other ops. OVERRIDEABLE has no kernel.
"""torch.nn.attention: selects the implementations of scaled_dot_product_attention."""
from __future__ import annotations

import contextlib
import enum

from phlox import _C

_C._name_missing(__name__)
_FIRST = _C._settings().index(("sdp", "math"))  # then the others, and their order


class SDPBackend(enum.IntEnum):
    """The implementations of scaled_dot_product_attention."""
    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = range(-1, 5)
    __str__ = enum.Enum.__str__


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False):
    """A context manager that enables only the given backends. set_priority: prefers them in this
    order."""
    allowed = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(allowed, list) or not all(isinstance(b, SDPBackend) for b in allowed):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend "
                             f"instances, got {type(backends).__name__}")
    before = _set([None] * 5)
    order = 1 + (allowed[0] == SDPBackend.MATH) if set_priority and allowed else before[4]
    _set([backend in allowed for backend in range(4)] + [order])
    try:
        yield {}
    finally:
        _set(before)


def _set(values):
    return [_C._setting(_FIRST + i, value) for i, value in enumerate(values)]
