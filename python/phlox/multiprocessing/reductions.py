# SPDX-License-Identifier: Apache-2.0
"""How tensors are pickled for other processes, by the name that PyTorch has for it."""
from phlox._reductions import (copy_tensors, init_reductions, rebuild_cuda_tensor, rebuild_event,
                               rebuild_storage, rebuild_tensor, reduce_event, reduce_storage,
                               reduce_tensor)

__all__ = ["copy_tensors", "init_reductions", "rebuild_cuda_tensor", "rebuild_event",
           "rebuild_storage", "rebuild_tensor", "reduce_event", "reduce_storage", "reduce_tensor"]
