# SPDX-License-Identifier: Apache-2.0
"""torch.utils.tensorboard: logs scalars, histograms, images and texts for TensorBoard. Requires the
package tensorboard or tensorboardX."""
from phlox import _C

try:
    import tensorboard as _  # noqa: F401
except ModuleNotFoundError as error:
    try:
        from ._of_x import FileWriter, SummaryWriter
    except ModuleNotFoundError:
        raise error from None
else:
    from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
_C._name_missing(__name__)
