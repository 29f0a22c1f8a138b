# SPDX-License-Identifier: Apache-2.0
"""torch.version."""
from phlox import _C

_C._name_missing(__name__)
__version__ = _C.__version__  # of PyTorch's interface
phlox = _C._phlox_version
cuda = hip = rocm = xpu = git_version = None
debug = False
