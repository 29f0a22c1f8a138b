# SPDX-License-Identifier: Apache-2.0
"""torch.utils.deterministic: controls if uninitialized memory is filled (NaN or the maximum
integer) under torch.use_deterministic_algorithms."""
import sys
from types import ModuleType

from phlox import _C, backends

_NAME = "fill_uninitialized_memory"
sys.modules[__name__].__class__ = type("module", (ModuleType,), {
    _NAME: backends._attribute(_C._settings().index(("", _NAME)), _NAME)})
