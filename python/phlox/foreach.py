# SPDX-License-Identifier: Apache-2.0
"""torch.foreach: operations on lists of tensors, the public names of torch._foreach_*. They return tuples, in-place ones their argument."""
from __future__ import annotations

from typing import Any

from phlox import _C

_PREFIX = "_foreach_"
_NOT_PUBLIC = {"powsum"}
__all__ = sorted(name.removeprefix(_PREFIX) for name in vars(_C) if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in _NOT_PUBLIC)
globals().update({name: getattr(_C, _PREFIX + name) for name in __all__})


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'torch.foreach' has no attribute '{name}'")
