# SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy for what writers are given."""
from phlox import _C


def plain(x):
    """The same with arrays in the place of tensors, in lists and dicts too."""
    if isinstance(x, _C.Tensor):
        x = x.detach().cpu()
        return (x.float() if x.dtype == _C.bfloat16 else x).numpy()
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    return type(x)(map(plain, x)) if type(x) in (list, tuple) else x
