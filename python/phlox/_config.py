# SPDX-License-Identifier: Apache-2.0
"""torch.__config__: build and device information for bug reports."""
from __future__ import annotations

from phlox import _C


def show() -> str:
    """Returns a description of the backends and libraries in use."""
    backend = _C.cuda._backend_name() if _C.cuda.device_count() else "none"
    try:
        lapack = _C._cpu_lapack()
    except RuntimeError:
        lapack = "none"
    return (f"Phlox {_C.__version__}:\n  - C11, kernels of its own for the CPU\n"
            f"  - devices of type cuda: {_C.cuda.device_count()}, backend: {backend}\n"
            f"  - cuDNN: {_C._library_version('cudnn') or 'none'}\n  - LAPACK: {lapack}\n")


def parallel_info() -> str:
    """Returns a description of the CPU's thread pool."""
    return f"Phlox/Parallel:\n\tget_num_threads() : {_C.get_num_threads()}\n"
