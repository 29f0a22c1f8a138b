# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.gradcheck."""
from phlox import _C, autograd


def gradcheck(func, inputs, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0,
              fast_mode=False, check_undefined_grad=True):
    """Compares gradients with differences: True, or an error that tells where they part.

    Args:
        func (callable): of the inputs; gives a tensor, or a tuple of which the first counts
        inputs (Tensor or sequence): those that are tensors and require a gradient, of float64, are
            moved
        eps (float): by how much they are moved
        atol, rtol (float): what the two may differ by
        raise_exception (bool): raises where they differ by more; else gives False

    >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.sin, x)
    True
    """
    inputs = (inputs,) if isinstance(inputs, _C.Tensor) else tuple(inputs)
    try:
        autograd._gradcheck(func, inputs, eps, atol, rtol)
    except Exception:
        if raise_exception:
            raise
        return False
    return True
