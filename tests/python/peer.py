# SPDX-License-Identifier: Apache-2.0
"""The PyTorch compared with: `installed` if this Python has one, and `newest` if its behaviour and texts are those that Phlox follows."""
try:
    import torch as installed
    if "phlox" in (installed.__file__ or ""): installed = None
except ImportError:
    installed = None

VERSION = tuple(int(part) for part in installed.__version__.split(".")[:2]) if installed else (0, 0)
newest = installed if VERSION >= (2, 15) else None
NOT_NEWEST = "requires PyTorch 2.15 or later in this Python"
