# SPDX-License-Identifier: Apache-2.0
"""What torchrun's ranks have of torch.distributed.elastic.multiprocessing."""
from . import errors
