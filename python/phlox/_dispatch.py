# SPDX-License-Identifier: Apache-2.0
"""torch._C.DispatchKey and DispatchKeySet: libraries name such keys when they are imported. Phlox
has no dispatcher that they choose from."""
from __future__ import annotations

from enum import Enum

DispatchKey = Enum("DispatchKey", "CPU CUDA Meta Autograd AutogradCPU AutogradCUDA AutocastCPU AutocastCUDA "
                   "AutocastXPU BackendSelect CompositeExplicitAutograd CompositeImplicitAutograd "
                   "Functionalize Python PythonTLSSnapshot PrivateUse1 SparseCPU SparseCUDA")


class DispatchKeySet(frozenset):
    """A set of keys."""

    def __new__(cls, *keys: DispatchKey) -> DispatchKeySet:
        return super().__new__(cls, keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether the key is in the set."""
        return key in self
