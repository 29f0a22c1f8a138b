# SPDX-License-Identifier: Apache-2.0
"""torch.optim: optimisers and schedules of learning rates.

The base classes are Python because programs subclass them, patch them and read their dicts. A step
of a parameter group is one call of the core. The optimiser classes are generated from
optim/*.optim."""
from phlox import _C

from . import lr_scheduler as lr_scheduler
from . import swa_utils as swa_utils
from ._kinds import *
from ._stateless import swap_in_optimizer_params_and_state as swap_in_optimizer_params_and_state
from .optimizer import Optimizer as Optimizer

_C._name_missing(__name__)
