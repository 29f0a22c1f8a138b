# SPDX-License-Identifier: Apache-2.0
"""torch.nn.modules.lazy: what lazy modules derive from."""
from phlox.nn import LazyModuleMixin
from phlox.nn._lazy import is_lazy
