# SPDX-License-Identifier: Apache-2.0
"""Pickling of tensors for other processes: PyTorch's module name."""
from phlox._reductions import (copy_tensors, init_reductions, rebuild_cuda_tensor, rebuild_event,
                               rebuild_storage, rebuild_tensor, reduce_event, reduce_storage,
                               reduce_tensor)

__all__ = ["copy_tensors", "init_reductions", "rebuild_cuda_tensor", "rebuild_event",
           "rebuild_storage", "rebuild_tensor", "reduce_event", "reduce_storage", "reduce_tensor"]
