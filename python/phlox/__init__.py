# SPDX-License-Identifier: Apache-2.0
"""Phlox: tensors, devices, streams, autograd, modules and data parallelism, with PyTorch's names.

Everything is in the C extension; this file only puts its names here."""

from . import _C

globals().update({name: value for name, value in vars(_C).items()
                  if not name.startswith("__") or name in ("__version__", "__getattr__")})
