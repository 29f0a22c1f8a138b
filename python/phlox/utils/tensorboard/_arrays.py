# SPDX-License-Identifier: Apache-2.0
"""Conversion of tensors to NumPy arrays, for writers."""
from phlox import _C


def to_arrays(x):
    """Replaces tensors by arrays, also in lists, tuples and dicts."""
    if isinstance(x, _C.Tensor):
        x = x.detach().cpu()
        return (x.float() if x.dtype == _C.bfloat16 else x).numpy()
    if isinstance(x, dict):
        return {key: to_arrays(value) for key, value in x.items()}
    return type(x)(map(to_arrays, x)) if type(x) in (list, tuple) else x
