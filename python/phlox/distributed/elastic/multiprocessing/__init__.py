# SPDX-License-Identifier: Apache-2.0
"""The part of torch.distributed.elastic.multiprocessing used by torchrun's ranks."""
from . import errors
