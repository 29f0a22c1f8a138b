# SPDX-License-Identifier: Apache-2.0
"""torch._C.DispatchKey and DispatchKeySet: libraries use these names at import time. Phlox has no
dispatcher, and ignores the keys."""
from __future__ import annotations

from enum import Enum

DispatchKey = Enum("DispatchKey", "CPU CUDA Meta Autograd AutogradCPU AutogradCUDA AutocastCPU AutocastCUDA "
                   "AutocastXPU BackendSelect CompositeExplicitAutograd CompositeImplicitAutograd "
                   "Functionalize Python PythonTLSSnapshot PrivateUse1 SparseCPU SparseCUDA")


class DispatchKeySet(frozenset):
    """A set of dispatch keys."""

    def __new__(cls, *keys: DispatchKey) -> DispatchKeySet:
        return super().__new__(cls, keys)

    def has(self, key: DispatchKey) -> bool:
        """Returns True if the set contains the key."""
        return key in self
